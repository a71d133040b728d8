"""Watches a run while it is recorded, and says when clients have seen something that no log does.

It looks at each operation alone (records out of order, skipped, damaged, never sent) and at the order of the log
in time (`time_order`). It remembers what is open, unresolved or failed and nothing else, so it can watch a run of
any length. What Kafka does not promise is left out: log ends may be stale, and records acknowledged with acks=1
may be lost.

Its finding is a reason to stop a run, not a verdict: only the checkers know which elections excuse what, and only
they look at everything.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from checkers.kernels.time_order import LiveMonitor
from harness.history.op import Completion, OpKind, Outcome, ReadRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    """An operation that has not completed."""

    kind: str
    topic: str
    partition: int
    acks: int
    position: int


@dataclass(slots=True)
class _Log:
    """What is known of one partition. Mutable: it grows with the run.

    Attributes:
        proofs: Completion times and offsets that existed by then, not yet given to the monitor.
    """

    monitor: LiveMonitor = field(default_factory=LiveMonitor)
    proofs: deque[tuple[int, int]] = field(default_factory=deque)
    failed: set[int] = field(default_factory=set)


class LiveWatch:
    """The watch over one run. Call its methods in order of time. Mutable: it keeps the first finding.

    Args:
        found: Called once, when there is a finding.

    Attributes:
        finding: The first thing that no log does, as a sentence; empty while there is none.
    """

    def __init__(self, found: Callable[[], None] = lambda: None) -> None:
        self.finding = ""
        self._found = found
        self._open: dict[int, _Open] = {}
        self._logs: dict[tuple[str, int], _Log] = {}
        self._next_op = 0

    def invoke(
        self,
        op: int,
        *,
        kind: str,
        topic: str,
        partition: int,
        invoked_ns: int,
        acks: int = 0,
        position: int = -1,
    ) -> None:
        """Learns that an operation begins."""
        self._next_op = op + 1
        self._open[op] = _Open(
            kind=kind, topic=topic, partition=partition, acks=acks, position=position
        )
        if kind != OpKind.APPEND:
            return
        log = self._logs.setdefault((topic, partition), _Log())
        # Equal times are concurrent: what was proven at this very moment does not precede the append.
        while log.proofs and log.proofs[0][0] < invoked_ns:
            log.monitor.prove(log.proofs.popleft()[1])
        log.monitor.invoke(op, is_append=True)

    def complete(
        self,
        op: int,
        completed_ns: int,
        completion: Completion,
        records: Sequence[ReadRecord] = (),
    ) -> None:
        """Learns how an operation ended."""
        began = self._open.pop(op, None)
        if began is None:
            return
        log = self._logs.setdefault((began.topic, began.partition), _Log())
        if began.kind == OpKind.APPEND:
            self._append_ended(op, began, completed_ns, completion, log)
        elif completion.outcome == Outcome.OK:
            self._observed(op, began, completed_ns, completion, records, log)

    def _append_ended(
        self, op: int, began: _Open, completed_ns: int, completion: Completion, log: _Log
    ) -> None:
        if completion.outcome == Outcome.FAIL:
            log.failed.add(op)
            log.monitor.forget(op)
        elif (
            completion.outcome == Outcome.OK and completion.offset is not None and began.acks == -1
        ):
            # With acks=1 the place counts once a poll has returned the record.
            self._place(op, completion.offset, began, log)
            log.proofs.append((completed_ns, completion.offset))
            log.monitor.forget(op)

    def _observed(
        self,
        op: int,
        began: _Open,
        completed_ns: int,
        completion: Completion,
        records: Sequence[ReadRecord],
        log: _Log,
    ) -> None:
        expected = began.position
        for record in records:
            self._check_record(op, record, expected, began, log)
            expected = record.offset + 1
        end = completion.offset if began.kind == OpKind.LATEST else completion.end_offset
        last = max((record.offset for record in records), default=-1)
        if end is not None and records and last >= end:
            self._find(began, f"op {op} returned offset {last} together with the log end {end}")
        exists = max(last, -1 if end is None else end - 1)
        if exists >= 0:
            log.proofs.append((completed_ns, exists))

    def _check_record(
        self, op: int, record: ReadRecord, expected: int, began: _Open, log: _Log
    ) -> None:
        if record.status != "ok":
            self._find(
                began, f"op {op} returned a {record.status} record at offset {record.offset}"
            )
        elif record.value >= self._next_op or record.value < 0:
            self._find(
                began,
                f"op {op} returned the value {record.value} at offset {record.offset}, which no append sent",
            )
        elif record.value in log.failed:
            self._find(
                began,
                f"op {record.value} failed, yet op {op} read its record at offset {record.offset}",
            )
        else:
            self._place(record.value, record.offset, began, log)
            log.monitor.forget(record.value)
        if 0 <= expected != record.offset:
            self._find(
                began, f"op {op} returned offset {record.offset} where offset {expected} is next"
            )

    def _place(self, op: int, offset: int, began: _Open, log: _Log) -> None:
        before = len(log.monitor.violations)
        log.monitor.place(op, offset)
        for violation in log.monitor.violations[before:]:
            self._find(
                began,
                f"op {op} is at offset {offset}, but offset {violation.known_end - 1} had been seen before it"
                " began",
            )

    def _find(self, began: _Open, sentence: str) -> None:
        if not self.finding:
            self.finding = f"{began.topic}-{began.partition}: {sentence}"
            self._found()
