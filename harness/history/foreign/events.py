"""Events of a recorded history, and operations made of them.

Jepsen's model: a process invokes one operation at a time; the operation ends with `ok` (it happened), `fail` (it
did not) or `info` (unknown). The order of events in the file is their order in time. Recorded times may tie or be
missing, so they are moved forward, by as little as possible, until they agree with that order.

Everything that cannot be interpreted becomes a `Problem` with its line. Nothing is dropped silently: a history
with problems cannot be judged better than unknown. A completion that contradicts its invocation is bad input: one
of the two is wrong, and so may be every other line of the same recorder.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.errors import HistoryError
from harness.history.foreign.edn import Form
from harness.history.foreign.edn_values import Keyword, Tagged, to_edn

INVOKE, OK, FAIL, INFO = "invoke", "ok", "fail", "info"
TYPES = (INVOKE, OK, FAIL, INFO)

PROBLEMS_KEPT_MAX = 20
"""Problems that are kept as sentences; their number is exact."""
TIME_NS_MAX = 2**62
"""Times beyond it are no nanoseconds of a clock; wall clocks are at 2^61 today."""
OFFSET_MAX = 2**62
"""Offsets beyond it cannot be; the kernels reserve them."""
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
SHOWN_MAX = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event.

    Attributes:
        line: Where it is recorded, counted from 1.
        type: invoke, ok, fail or info.
        process: Who; a text for what is no client, for example "nemesis".
        function: What was called; empty if the event does not state it.
        value: The argument or the result.
        time_ns: When; None if not recorded.
        extra: Its other fields by name.
    """

    line: int
    type: str
    process: int | str
    function: str
    value: Any = None
    time_ns: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedOperation:
    """An operation of a client: an invocation and how it ended.

    Attributes:
        line: Of the invocation.
        completion_line: Of the completion; of the invocation if there is none.
        process, function: Of the invocation.
        argument: Value of the invocation.
        result: Value of the completion; None if there is none.
        invoked_ns, completed_ns: In the order of the events; `completed_ns` is None while open.
        outcome: ok, fail or info.
        extra: Other fields of the completion, or of the invocation if there is none.
        invoked_extra: Other fields of the invocation.
    """

    line: int
    completion_line: int
    process: int
    function: str
    argument: Any
    result: Any
    invoked_ns: int
    completed_ns: int | None
    outcome: str
    extra: Mapping[str, Any] = field(default_factory=dict)
    invoked_extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Problems:
    """What could not be interpreted. Mutable while a history is read.

    Attributes:
        count: How many.
        sentences: The first ones.
    """

    count: int = 0
    sentences: list[str] = field(default_factory=list)

    def add(self, line: int, sentence: str) -> None:
        """Adds a problem; the sentence continues "line 3: "."""
        self.count += 1
        if len(self.sentences) < PROBLEMS_KEPT_MAX:
            self.sentences.append(f"line {line}: {sentence}")


def shown(value: Any) -> str:
    """Returns a value for a sentence, cut if it is long."""
    try:
        text = to_edn(value)
    except TypeError:
        text = repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def name_of(value: Any) -> str | None:
    """Returns the name that a keyword or a text is; None for other values."""
    if isinstance(value, Keyword):
        return value.name
    return value if isinstance(value, str) else None


def is_integer(value: Any) -> bool:
    """Returns whether a value is an integer; true and false are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_int64(value: Any) -> bool:
    """Returns whether a value is an integer that fits into 64 bits, as every number of a response does."""
    return is_integer(value) and INT64_MIN <= value <= INT64_MAX


def states_no_value(one: RecordedOperation) -> bool:
    """Returns whether a completion has something else in the place of the value of its invocation.

    That is nil; with `ok` true, with `fail` false. Old versions of Jepsen have `:timed-out` there if the operation
    did not succeed.
    """
    if one.result is None:
        return True
    if one.outcome != OK and one.result == Keyword("timed-out"):
        return True
    return one.result is {OK: True, FAIL: False}.get(one.outcome)


def events_of_forms(forms: Iterable[Form], problems: Problems) -> Iterator[Event]:
    """Returns the events of EDN forms: maps, possibly tagged, with the keys of Jepsen's operations."""
    for form in forms:
        value = form.value.value if isinstance(form.value, Tagged) else form.value
        if not isinstance(value, Mapping):
            problems.add(form.line, f"{shown(value)} is not an operation; expected a map")
            continue
        fields = {name_of(key) or shown(key): item for key, item in value.items()}
        if len(fields) != len(value):
            problems.add(
                form.line, "a key stands there twice, once as a keyword and once as a text"
            )
            continue
        event = event_of_fields(form.line, fields, problems)
        if event is not None:
            yield event


def event_of_fields(line: int, fields: dict[str, Any], problems: Problems) -> Event | None:
    """Returns the event that fields describe; None, and a problem, if they do not describe one."""
    kind = name_of(fields.pop("type", None))
    if kind not in TYPES:
        problems.add(line, "an event needs the type invoke, ok, fail or info")
        return None
    # Histories of one process may leave it out.
    process = fields.pop("process", 0)
    if not is_integer(process) or not -(2**63) <= process < 2**63:
        name = name_of(process)
        if name is None:
            problems.add(line, f"{shown(process)} is no process; clients are numbers")
            return None
        process = name
    called = fields.pop("f", "")
    function = name_of(called)
    if function is None and isinstance(process, str):
        # A nemesis that consists of several ones calls its functions [:one :start].
        function = shown(called)
    time_ns = fields.pop("time", None)
    if function is None:
        problems.add(line, "the function `f` is neither a keyword nor a text")
        return None
    if time_ns is not None and not (is_integer(time_ns) and abs(time_ns) <= TIME_NS_MAX):
        problems.add(line, f"the time {shown(time_ns)} is not a number of nanoseconds")
        return None
    value = fields.pop("value", None)
    return Event(
        line=line,
        type=kind,
        process=process,
        function=function,
        value=value,
        time_ns=time_ns,
        extra=fields,
    )


class Pairing:
    """Makes operations of events. Mutable: it holds the open operations.

    Args:
        problems: Where what cannot be interpreted is added.
        origin: The name of the file, for errors.

    Attributes:
        event_count: How many events there were, also those that are of no operation.
        not_clients: How many events are of no client, by process and function: the faults of the history.
    """

    def __init__(self, problems: Problems, origin: str) -> None:
        self._problems = problems
        self._origin = origin
        self._open: dict[int, tuple[Event, int]] = {}
        # Processes that invoked an operation while another one was open, until the next completion.
        self._doubtful: set[int] = set()
        self._last_ns: int | None = None
        # What to subtract from recorded times; None before the first one.
        self._zero_ns: int | None = None
        self.event_count = 0
        self.not_clients: Counter[tuple[str, str]] = Counter()

    def operations(self, events: Iterable[Event]) -> Iterator[RecordedOperation]:
        """Returns operations in the order in which they end; those that stay open come last and are `info`.

        Raises:
            HistoryError: A process completes another function than it invoked; the sentence names both lines.
        """
        for event in events:
            self.event_count += 1
            now_ns = self._advance(event.time_ns)
            process = event.process
            if isinstance(process, str):
                self.not_clients[process, event.function] += 1
                continue
            if event.type == INVOKE:
                if process in self._open:
                    still_open, _ = self._open[process]
                    self._problems.add(
                        event.line,
                        f"process {process} invokes an operation although its operation of line"
                        f" {still_open.line} is still open",
                    )
                    self._doubtful.add(process)
                    continue
                self._open[process] = event, now_ns
                continue
            operation = self._ended(event, process, now_ns)
            if operation is not None:
                yield operation
        for invocation, invoked_ns in self._open.values():
            yield _operation(invocation, None, invoked_ns, None)
        self._open.clear()

    def _advance(self, time_ns: int | None) -> int:
        earliest = 0 if self._last_ns is None else self._last_ns + 1
        if time_ns is None:
            self._last_ns = earliest
            return earliest
        if self._zero_ns is None:
            # The events before it have no times. How much earlier they were is not known.
            self._zero_ns = 0 if self._last_ns is None else time_ns - earliest
        now = time_ns - self._zero_ns
        self._last_ns = now if self._last_ns is None else max(now, earliest)
        return self._last_ns

    def _ended(self, event: Event, process: int, now_ns: int) -> RecordedOperation | None:
        opened = self._open.pop(process, None)
        if opened is None:
            self._problems.add(
                event.line, f"process {process} completes an operation that it did not invoke"
            )
            return None
        invocation, invoked_ns = opened
        if process in self._doubtful:
            self._doubtful.remove(process)
            self._problems.add(
                event.line,
                f"process {process} has several open operations, and it is not known which of them this completes",
            )
            return None
        if event.function != invocation.function:
            raise HistoryError(
                f"{self._origin}, line {event.line}: process {process} completes {event.function!r}, but it"
                f" invoked {invocation.function!r} on line {invocation.line}"
            )
        return _operation(invocation, event, invoked_ns, now_ns)


def _operation(
    invocation: Event, completion: Event | None, invoked_ns: int, completed_ns: int | None
) -> RecordedOperation:
    assert isinstance(invocation.process, int)
    return RecordedOperation(
        line=invocation.line,
        completion_line=invocation.line if completion is None else completion.line,
        process=invocation.process,
        function=invocation.function,
        argument=invocation.value,
        result=None if completion is None else completion.value,
        invoked_ns=invoked_ns,
        completed_ns=completed_ns,
        outcome=INFO if completion is None else completion.type,
        extra=invocation.extra if completion is None else completion.extra,
        invoked_extra=invocation.extra,
    )
