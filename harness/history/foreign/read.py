"""Reads a history that another tool recorded: finds out format and workload, and converts it while it streams."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Any

from harness.errors import HistoryError
from harness.history.foreign import json_lines
from harness.history.foreign.edn import read_forms
from harness.history.foreign.events import (
    Event,
    Pairing,
    Problems,
    RecordedOperation,
    events_of_forms,
    name_of,
)
from harness.history.foreign.jepsen_log import events_of_log, is_log_line
from harness.history.foreign.kafka import FUNCTIONS as KAFKA_FUNCTIONS
from harness.history.foreign.kafka import KafkaConversion
from harness.history.foreign.log_tables import LogHistory, LogTables
from harness.history.foreign.overlaps import refuse_overlaps
from harness.history.foreign.source import Source, open_source

UNDECIDED_EVENTS_MAX = 10_000
"""Events that are read ahead to find out the workload; one is usually enough."""

_PARQUET_MAGIC = b"PAR1"
_BEGINNING = re.compile(r"[\s,]*+(?:;[^\n]*+\n[\s,]*+)*+")


class Format(StrEnum):
    """How a file is written."""

    AUTO = "auto"
    EDN = "edn"
    JSONL = "jsonl"
    JEPSEN_LOG = "jepsen-log"


class Workload(StrEnum):
    """What the operations of a history are about, and so what can judge them."""

    LOG = "log"
    LIST_APPEND = "list-append"
    MODEL = "model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What a file, or the user, declares about a history.

    Attributes:
        model: What judges it; empty if that follows from its functions.
        acks: What producers of a log requested, where an append does not state it.
        sparse: Whether offsets of a log may be missing.
        at_least_once: Whether producers of a log sent an append again after a timeout, without idempotence.
        compacted: Whether a cleaner removes a record after a later one of its key was committed.
        log_start_offset: First offset that must still be there.
        clock_error_ns: Largest difference between two clocks.
        final_reads_complete: Whether the final reads ended as planned.
    """

    model: str = ""
    acks: int = -1
    sparse: bool = False
    at_least_once: bool = False
    compacted: bool = False
    log_start_offset: int = 0
    clock_error_ns: int = 0
    final_reads_complete: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """What a user states about a log instead of its file; None leaves it to the file.

    Attributes:
        acks, sparse, at_least_once, compacted, log_start_offset: See `Declaration`.
    """

    acks: int | None = None
    sparse: bool | None = None
    at_least_once: bool | None = None
    compacted: bool | None = None
    log_start_offset: int | None = None

    def over(self, declared: Declaration) -> Declaration:
        """Returns a declaration with what is stated here."""
        stated = {name: value for name, value in asdict(self).items() if value is not None}
        return replace(declared, **stated)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignHistory:
    """A history as it was read.

    Attributes:
        path: The file.
        format: How it is written.
        workload: What it is about.
        declaration: What the file declares.
        problems: What could not be interpreted.
        log: The tables, if it is about logs.
        operations: The operations, if it is about anything else, in the order in which they end in the file.
        has_events: Whether the operations were recorded as events, in Jepsen's form.
        event_count: How many events there are; of a log, those that carry no facts as well.
        not_clients: Events of processes that are no clients (the nemesis), by process and function.
        silent: Operations that carry no facts, by function.
    """

    path: Path
    format: Format
    workload: Workload
    declaration: Declaration
    problems: Problems
    log: LogHistory | None = None
    operations: tuple[RecordedOperation, ...] = ()
    has_events: bool = True
    event_count: int = 0
    not_clients: Counter[tuple[str, str]] = field(default_factory=Counter)
    silent: Counter[str] = field(default_factory=Counter)

    @property
    def operation_count(self) -> int:
        """How many operations there are; of logs, one for every partition that an operation touches."""
        return len(self.operations) if self.log is None else len(self.log.lines)


def read_history(
    path: Path, *, form: Format = Format.AUTO, model: str = "", stated: Stated | None = None
) -> ForeignHistory:
    """Reads a history from a file, possibly compressed with gzip.

    Args:
        path: The file.
        form: How it is written; `auto` finds out.
        model: What judges it ("log", "list-append", or the name of a model); empty if the file or its functions
            decide.
        stated: What the user states about a log; it counts more than what the file declares, and means nothing if
            the history is about something else.

    Raises:
        HistoryError: The file cannot be read, or is not a history; the sentence names file and line.
    """
    with open_source(path) as source:
        form = _format_of(source) if form == Format.AUTO else form
        history = (
            _read_json_lines(source, path, model, stated or Stated())
            if form == Format.JSONL
            else _read_events(source, path, form, model, stated or Stated())
        )
    if not history.operation_count and not history.event_count:
        if form == Format.JEPSEN_LOG:
            raise HistoryError(
                f"{path} holds no operation: no line has the form"
                " `INFO  jepsen.util - process :type :function value`; state another --format, or none"
            )
        if not history.problems.count:
            raise HistoryError(f"{path} holds no operation")
    return history


def _format_of(source: Source) -> Format:
    """Returns the format that the beginning of the text shows."""
    if source.head.startswith(_PARQUET_MAGIC):
        raise HistoryError(
            f"{source.origin} is one table of a stored run; name the directory of the run instead"
        )
    head = source.head.decode("utf-8", "replace").removeprefix("\ufeff")
    start = _BEGINNING.match(head)
    text = head[start.end() if start else 0 :]
    if is_log_line(text):
        return Format.JEPSEN_LOG
    if re.match(r'\{\s*"', text):
        return Format.JSONL
    if re.match(r'\[\s*\{\s*"', text):
        raise HistoryError(
            f"{source.origin} is a JSON array; write one object per line"
            " (docs/how-to/check-a-history.md)"
        )
    if not text or text[0] in "{[(#":
        return Format.EDN
    number = head.count("\n", 0, len(head) - len(text)) + 1
    raise HistoryError(
        f"{source.origin}, line {number}: this is neither EDN, JSON lines nor a log of Jepsen"
    )


def _read_json_lines(source: Source, path: Path, model: str, stated: Stated) -> ForeignHistory:
    lines = json_lines.read_lines(source.lines(), source.origin)
    first = next(lines, None)
    declaration = Declaration(model=model)
    where = source.origin
    if first is not None and isinstance(first[1], json_lines.HistoryLine):
        declaration = _declared(first[1], model)
        if not model:
            where = f"{source.origin}, line {first[0]}"
        first = next(lines, None)
    declaration = stated.over(declaration)
    numbered = lines if first is None else chain([first], lines)
    kind = type(None if first is None else first[1])
    if kind is json_lines.EventLine:
        events = (
            json_lines.to_event(number, line)
            for number, line in _of_kind(numbered, json_lines.EventLine, source)
        )
        return _read_pairs(events, Problems(), source, path, Format.JSONL, declaration)
    if kind is json_lines.OperationLine:
        if declaration.model == Workload.LOG:
            raise HistoryError(
                f"{where}: operations cannot be judged as log; state the model of their functions, or describe a"
                " log by lines of kind append, poll and latest"
            )
        operations = tuple(
            json_lines.to_operation(number, line)
            for number, line in _of_kind(numbered, json_lines.OperationLine, source)
        )
        refuse_overlaps(operations, source.origin)
        return ForeignHistory(
            path=path,
            format=Format.JSONL,
            workload=_workload_of(declaration.model) or Workload.MODEL,
            declaration=declaration,
            problems=Problems(),
            operations=operations,
            has_events=False,
        )
    if first is not None and declaration.model not in ("", Workload.LOG):
        raise HistoryError(
            f"{where}: lines of kind append, poll and latest are a log, which cannot be judged as"
            f" {declaration.model!r}; state no model, or log"
        )
    tables = LogTables(source.origin)
    log_kinds = (json_lines.AppendLine, json_lines.PollLine, json_lines.LatestLine)
    for number, line in _of_kind(numbered, log_kinds, source):
        json_lines.add_to_tables(tables, number, line, declaration.acks)
    return ForeignHistory(
        path=path,
        format=Format.JSONL,
        workload=Workload.LOG,
        declaration=declaration,
        problems=Problems(),
        log=tables.finish(from_jepsen=False, clock_error_ns=declaration.clock_error_ns),
    )


def _declared(line: json_lines.HistoryLine, model: str) -> Declaration:
    return Declaration(
        model=model or line.model,
        acks=json_lines.acks_number(line.acks),
        sparse=line.sparse,
        at_least_once=line.at_least_once,
        compacted=line.compacted,
        log_start_offset=line.log_start_offset,
        clock_error_ns=line.clock_error_ns,
        final_reads_complete=line.final_reads_complete,
    )


def _of_kind(
    numbered: Iterable[tuple[int, Any]], kinds: Any, source: Source
) -> Iterator[tuple[int, Any]]:
    for number, line in numbered:
        if not isinstance(line, kinds):
            raise HistoryError(
                f"{source.origin}, line {number}: a line of kind {line.__struct_config__.tag} cannot follow the"
                " lines before it; a history has either lines of a log, operations or events"
            )
        yield number, line


def _read_events(
    source: Source, path: Path, form: Format, model: str, stated: Stated
) -> ForeignHistory:
    problems = Problems()
    if form == Format.JEPSEN_LOG:
        events = events_of_log(source.text_lines(), problems)
    else:
        forms = read_forms(source.text(), origin=source.origin, unwrap=True)
        events = events_of_forms(forms, problems)
    # Transactions of Jepsen's Kafka workload leave markers in the log, and so may other systems.
    declaration = stated.over(Declaration(model=model, sparse=True))
    return _read_pairs(events, problems, source, path, form, declaration)


def _read_pairs(
    events: Iterator[Event],
    problems: Problems,
    source: Source,
    path: Path,
    form: Format,
    declaration: Declaration,
) -> ForeignHistory:
    ahead: list[Event] = []
    workload = _workload_of(declaration.model)
    while workload is None and len(ahead) < UNDECIDED_EVENTS_MAX:
        event = next(events, None)
        if event is None:
            break
        ahead.append(event)
        workload = _workload_shown_by(event)
    if workload == Workload.LOG and form == Format.JSONL:
        raise HistoryError(
            f"{source.origin}: describe a log by lines of kind append, poll and latest, not by events"
        )
    pairing = Pairing(problems, source.origin)
    operations = pairing.operations(chain(ahead, events))
    if workload != Workload.LOG:
        return ForeignHistory(
            path=path,
            format=form,
            workload=workload or Workload.MODEL,
            declaration=declaration,
            problems=problems,
            operations=tuple(operations),
            event_count=pairing.event_count,
            not_clients=pairing.not_clients,
        )
    tables = LogTables(source.origin)
    conversion = KafkaConversion(
        tables,
        problems,
        acks=declaration.acks,
        # With any other declaration, these producers have no transactions.
        is_idempotent=declaration.acks == -1 and not declaration.at_least_once,
    )
    for operation in operations:
        conversion.add(operation)
    return ForeignHistory(
        path=path,
        format=form,
        workload=Workload.LOG,
        declaration=declaration,
        problems=problems,
        log=tables.finish(from_jepsen=True),
        event_count=pairing.event_count,
        not_clients=pairing.not_clients,
        silent=conversion.silent,
    )


def _workload_of(model: str) -> Workload | None:
    """Returns the workload that the name of a model means; None if there is no name."""
    if not model:
        return None
    return Workload(model) if model in (Workload.LOG, Workload.LIST_APPEND) else Workload.MODEL


def _workload_shown_by(event: Event) -> Workload | None:
    """Returns the workload that an event is of; None if it does not show."""
    if not isinstance(event.process, int):
        return None
    if event.function in KAFKA_FUNCTIONS - {"txn"}:
        return Workload.LOG
    if event.function not in ("", "txn"):
        return Workload.MODEL
    value = event.value
    first = value[0] if isinstance(value, tuple | list) and value else None
    name = name_of(first[0]) if isinstance(first, tuple | list) and first else None
    if name in ("send", "poll"):
        return Workload.LOG
    if name in ("append", "r"):
        return Workload.LIST_APPEND
    return None if name is None else Workload.MODEL
