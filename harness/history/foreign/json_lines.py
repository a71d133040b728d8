"""Histories as JSON lines, our documented format for tools that have none: one object per line.

The member `kind` of a line says what it is. A `history` line may come first and states what holds for all lines.
The rest are either lines of a log (`append`, `poll`, `latest`), one per operation, or lines about any other
object: `operation`, one per operation, or `event`, one per invocation and completion. The classes below define
their members; docs/history.schema.json is generated from them.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from harness.errors import HistoryError
from harness.history.foreign.edn import NESTING_MAX, read_one
from harness.history.foreign.events import (
    INT64_MAX,
    INT64_MIN,
    OFFSET_MAX,
    TIME_NS_MAX,
    Event,
    RecordedOperation,
)
from harness.history.foreign.log_tables import Call, LogTables

Time = Annotated[
    int,
    Meta(
        ge=-TIME_NS_MAX,
        le=TIME_NS_MAX,
        description="Nanoseconds on a clock that all processes share; any moment can be 0.",
    ),
]
Offset = Annotated[int, Meta(ge=0, le=OFFSET_MAX)]
ReceivedOffset = Annotated[
    int,
    Meta(
        ge=INT64_MIN,
        le=INT64_MAX,
        description="An offset as a client received it; one below 0 or above 2^62 is an impossible-offset.",
    ),
]
Process = Annotated[
    int,
    Meta(
        ge=-(2**53),
        le=2**53,
        description="Who calls; a process calls one operation at a time. On a log it may have several in flight.",
    ),
]
Topic = Annotated[str, Meta(min_length=1, max_length=1000, pattern=r"^[^\x00-\x1f]*$")]
Partition = Annotated[int, Meta(ge=0, lt=2**31)]
Outcome = Annotated[
    Literal["ok", "fail", "info"],
    Meta(description="ok: it happened. fail: it did not happen. info: not known."),
]
Value = Annotated[
    int | str,
    Meta(
        description="What the record contains. Every append to a partition needs a value of its own."
    ),
]
Acks = Annotated[
    Literal[-1, 0, 1, "all"],
    Meta(description="What the producer requested; -1 and all are the same."),
]


class HistoryLine(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="kind",
    tag="history",
    forbid_unknown_fields=True,
):
    """What holds for the whole history; at most one, on the first line."""

    version: Literal[1]
    model: Annotated[
        str, Meta(description="What judges the operations, as the option --model does.")
    ] = ""
    acks: Acks = -1
    sparse: Annotated[
        bool,
        Meta(
            description="Whether offsets of a log may be missing, as with transactions, but no record."
        ),
    ] = False
    at_least_once: Annotated[
        bool,
        Meta(
            description="Whether producers of a log without idempotence sent an append again after a timeout."
        ),
    ] = False
    compacted: Annotated[
        bool,
        Meta(
            description="Whether a cleaner removes a record of a log after a later one of its key was committed."
        ),
    ] = False
    log_start_offset: Annotated[
        int, Meta(ge=0, le=OFFSET_MAX, description="First offset that must still be there.")
    ] = 0
    clock_error_ns: Annotated[
        int,
        Meta(
            ge=0,
            le=2**60,
            description="Largest difference between two clocks. Each process has one.",
        ),
    ] = 0
    final_reads_complete: Annotated[
        bool,
        Meta(description="Whether the polls marked `final` were meant to read all partitions."),
    ] = True


class AppendLine(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="kind",
    tag="append",
    forbid_unknown_fields=True,
):
    """One record appended to a log."""

    process: Process
    topic: Topic
    partition: Partition = 0
    value: Value
    key: str = ""
    invoked_ns: Time
    completed_ns: Time | None = None
    outcome: Outcome
    offset: Annotated[
        ReceivedOffset | None,
        Meta(
            description="Where it was appended, if the response contains it; never if it is fail, and never -1,"
            " with which Kafka states none. If it is info, the offset counts once an ok poll returned the value."
        ),
    ] = None
    acks: Acks | None = None
    batch: Annotated[
        int | str | None,
        Meta(
            description="Which record batch carried it: a name that no other batch of its process to the partition"
            " has. The records of a batch are in the order of their invocations, then of their lines. Leave it out"
            " if you do not know it."
        ),
    ] = None


class PollLine(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="kind",
    tag="poll",
    forbid_unknown_fields=True,
):
    """One read of one partition."""

    process: Process
    topic: Topic
    partition: Partition = 0
    records: Annotated[
        list[tuple[ReceivedOffset, Value]],
        Meta(
            description="Offset and value of every record that it returned, in their order. They count whatever"
            " the outcome is."
        ),
    ] = []
    position: Annotated[
        Offset | None,
        Meta(
            description="The offset that was requested; leave it out if you do not know it. It counts only if the"
            " poll is ok."
        ),
    ] = None
    end_offset: Annotated[
        ReceivedOffset | None,
        Meta(
            description="The log end in the response, if there is one. It counts only if the poll is ok."
        ),
    ] = None
    invoked_ns: Time
    completed_ns: Time | None = None
    outcome: Outcome
    final: Annotated[
        bool,
        Meta(
            description="Whether it is one of the reads at the end of the run that decide what is lost. It"
            " begins after every append to the partition has ended. In a sparse log a process that polls again"
            " goes on without seeking: what lies between two of its final polls was read too."
        ),
    ] = False


class LatestLine(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="kind",
    tag="latest",
    forbid_unknown_fields=True,
):
    """One request for the end of a partition."""

    process: Process
    topic: Topic
    partition: Partition = 0
    end_offset: Annotated[
        ReceivedOffset | None, Meta(description="The log end. It counts only if the request is ok.")
    ] = None
    invoked_ns: Time
    completed_ns: Time | None = None
    outcome: Outcome
    final: bool = False


class OperationLine(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="kind",
    tag="operation",
    forbid_unknown_fields=True,
):
    """One operation on any other object; the model defines function, input and output."""

    process: Process
    f: Annotated[str, Meta(min_length=1, description="The function, for example read.")]
    input: Any = None
    output: Any = None
    invoked_ns: Time
    completed_ns: Time | None = None
    outcome: Outcome


class EventLine(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="kind",
    tag="event",
    forbid_unknown_fields=True,
):
    """The invocation or the completion of an operation, as in Jepsen; lines are in the order of time."""

    type: Literal["invoke", "ok", "fail", "info"]
    process: Annotated[
        Process | str, Meta(description="A number for a client; a text for anything else.")
    ]
    f: str = ""
    value: Any = None
    time: Time | None = None
    error: Any = None


LogLine = AppendLine | PollLine | LatestLine
Line = HistoryLine | AppendLine | PollLine | LatestLine | OperationLine | EventLine


def _number(digits: str) -> int | float | Decimal:
    """Returns a number with a fraction or an exponent; JSON has one type of numbers, so 1.0 is 1.

    Equal numbers are the same value, however they are written, and no others are: one that is not whole is a
    float if that has the same decimal digits, as 0.5 and 0.10 have, and otherwise a Decimal.
    """
    nearest = float(digits)
    try:
        exact = Decimal(digits)
    except InvalidOperation:
        raise ValueError("Number out of range") from None
    if math.isinf(nearest):
        raise ValueError("Number out of range")
    whole = exact.to_integral_value()
    if whole == exact:
        return int(whole)
    return nearest if Decimal(repr(nearest)) == exact else exact


_DECODER = msgspec.json.Decoder(Line, float_hook=_number)
_VALUE = msgspec.json.Decoder(Any, float_hook=_number)


class _TwiceError(Exception):
    """An object has a member twice."""


def _refuse_twice(members: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(members)
    if len(unique) != len(members):
        names = [name for name, _ in members]
        twice = next(name for name in names if names.count(name) > 1)
        raise _TwiceError(f"an object has the member {json.dumps(twice)} twice; write it once")
    return unique


TOO_DEEP = f"the value is nested too deeply; write at most {NESTING_MAX} levels"
_MEMBERS = json.JSONDecoder(object_pairs_hook=_refuse_twice)


def json_schema() -> dict[str, Any]:
    """Returns the JSON Schema of one line."""
    schema = msgspec.json.schema(Line)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "One line of a laststand history",
        **schema,
    }


def read_value(text: str, *, origin: str) -> Any:
    """Returns the value of a text as a line would have it; what is not JSON is read as EDN with JSON's numbers.

    Raises:
        EdnError: It is neither.
    """
    try:
        return _VALUE.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return read_one(text, origin=origin, real=_number)


def read_lines(raw_lines: Iterable[bytes], origin: str) -> Iterator[tuple[int, Line]]:
    """Returns the lines with their numbers, counted from 1; blank lines are left out.

    Raises:
        HistoryError: A line is not one of the format; the sentence names it.
    """
    is_first = True
    for number, raw in enumerate(raw_lines, 1):
        if not raw.strip():
            continue
        try:
            line = _DECODER.decode(raw)
            _MEMBERS.decode(raw.decode())
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, _TwiceError) as error:
            raise HistoryError(f"{origin}, line {number}: {_sentence(error)}") from None
        if isinstance(line, HistoryLine) and not is_first:
            raise HistoryError(
                f"{origin}, line {number}: a line of kind history can only be the first one"
            )
        is_first = False
        objection = _objection(line)
        if objection:
            raise HistoryError(f"{origin}, line {number}: {objection}")
        yield number, line


def _sentence(error: Exception) -> str:
    return TOO_DEEP if isinstance(error, RecursionError) else str(error).replace("\n", " ")


def _objection(line: Line) -> str:
    """Returns why a line contradicts itself; empty if it does not."""
    if isinstance(line, HistoryLine):
        return ""
    if isinstance(line, EventLine):
        return TOO_DEEP if _is_deeper(line.value, NESTING_MAX) else ""
    if isinstance(line, OperationLine) and _is_deeper((line.input, line.output), NESTING_MAX + 1):
        return TOO_DEEP
    if line.completed_ns is None:
        if line.outcome != "info":
            return f"an operation that is {line.outcome} needs completed_ns; one that is still open is info"
        return _objection_to_open(line)
    if line.completed_ns < line.invoked_ns:
        return "completed_ns is before invoked_ns"
    if isinstance(line, AppendLine) and line.offset == -1:
        return "an append has the offset -1, with which Kafka states that it is not known; leave it out"
    if isinstance(line, AppendLine) and line.outcome == "fail" and line.offset is not None:
        return "an append that is fail has no offset; leave it out, or write info if it may have happened"
    return ""


def _objection_to_open(line: OperationLine | LogLine) -> str:
    """Returns which result an operation has although it never ended; empty if it has none."""
    if isinstance(line, AppendLine) and line.offset is not None:
        return "an append with an offset needs completed_ns, the time of the response"
    if isinstance(line, PollLine) and line.records:
        return "a poll with records needs completed_ns, the time of the response"
    if isinstance(line, PollLine | LatestLine) and line.end_offset is not None:
        kind = line.__struct_config__.tag
        return f"a {kind} with an end_offset needs completed_ns, the time of the response"
    return ""


def _is_deeper(value: Any, levels: int) -> bool:
    """Returns whether collections are nested in more than so many levels."""
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return False
    return levels == 0 or any(_is_deeper(item, levels - 1) for item in value)


def acks_number(acks: int | str) -> int:
    """Returns acks as a number, which is -1 for all."""
    return acks if isinstance(acks, int) else -1


def add_to_tables(tables: LogTables, number: int, line: LogLine, default_acks: int) -> None:
    """Adds an operation on a log."""
    call = Call(
        line=number,
        process=line.process,
        topic=line.topic,
        partition=line.partition,
        invoked_ns=line.invoked_ns,
        completed_ns=line.completed_ns,
        outcome=line.outcome,
        final=not isinstance(line, AppendLine) and line.final,
    )
    if isinstance(line, AppendLine):
        acks = default_acks if line.acks is None else acks_number(line.acks)
        # Each append is a group of its own, so that a read of its value proves the offset of an `info` append.
        group = -1 if line.offset is None else number
        tables.append(
            call,
            _text(line.value),
            offset=line.offset,
            acks=acks,
            key=line.key,
            group=group,
            batch="" if line.batch is None else _text(line.batch),
        )
    elif isinstance(line, LatestLine):
        tables.latest(call, line.end_offset)
    else:
        tables.poll(
            call,
            [(offset, _text(value)) for offset, value in line.records],
            # The position that a poll states counts only if it is `ok`.
            position=-1 if line.position is None or call.outcome != "ok" else line.position,
            end_offset=line.end_offset,
        )


def _text(value: int | str) -> str:
    """Returns a value as JSON, so that 1 and "1" differ."""
    return str(value) if isinstance(value, int) else msgspec.json.encode(value).decode()


def to_operation(number: int, line: OperationLine) -> RecordedOperation:
    """Returns an operation on any other object."""
    return RecordedOperation(
        line=number,
        completion_line=number,
        process=line.process,
        function=line.f,
        argument=line.input,
        result=line.output,
        invoked_ns=line.invoked_ns,
        completed_ns=line.completed_ns,
        outcome=line.outcome,
    )


def to_event(number: int, line: EventLine) -> Event:
    """Returns an event."""
    return Event(
        line=number,
        type=line.type,
        process=line.process,
        function=line.f,
        value=line.value,
        time_ns=line.time,
        extra={} if line.error is None else {"error": line.error},
    )
