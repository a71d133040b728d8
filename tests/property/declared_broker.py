"""A correct broker with one log, as small as possible: `declared_simulation` lets clients use it.

It acknowledges with acks=all only what is replicated, and shows only that. A clean election cuts what is not
replicated. An unclean one may also cut what is; committed metadata flags it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.anomalies.runs import state

REPLICAS = (1, 2, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """One append as the broker sees it; each attempt sends the same.

    Attributes:
        value: What the record contains, which no other append sends.
        session, sequence: Of an idempotent producer; the sequence begins at 0.
    """

    value: int
    acks: int
    session: int
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    offset: int
    epoch: int
    send: Send


@dataclass(slots=True, kw_only=True)
class Broker:
    """The partition as its leader sees it. Mutable.

    Attributes:
        is_idempotent: Whether it compares sequence numbers.
        log: The records. Those below `start` are removed for clients only.
        end: The offset of the next record.
        waiting: The (send, offset) of records to be acknowledged once they are replicated.
        forgotten: Sessions of which an unclean election removed every record.
        states: Rows of `partition_states`.
        effects: What happened in this run, for the tests that count it.
    """

    is_idempotent: bool
    log: list[Record] = field(default_factory=list)
    start: int = 0
    high_watermark: int = 0
    end: int = 0
    epoch: int = 0
    leader: int = 1
    waiting: list[tuple[Send, int]] = field(default_factory=list)
    forgotten: set[int] = field(default_factory=set)
    states: list[dict[str, Any]] = field(default_factory=list)
    effects: set[str] = field(default_factory=set)

    # --- requests of clients ---

    def append(self, send: Send) -> int | None:
        """Returns the offset of the record if its leader acknowledges it already, otherwise None."""
        there = next((record.offset for record in self.log if record.send == send), None)
        if there is not None and self.is_idempotent:
            self.effects.add("idempotence")
            offset = there
        elif self.is_idempotent and self._expected(send.session) not in (None, send.sequence):
            return None
        else:
            if there is not None:
                self.effects.add("copies")
            offset = self.end
            self.log.append(Record(offset=offset, epoch=self.epoch, send=send))
            self.end += 1
        if send.acks == 1 or offset < self.high_watermark:
            return offset
        if send.acks == -1:
            self.waiting.append((send, offset))
        return None

    def shown(self, position: int) -> list[Record]:
        """Returns what a poll from a position may return."""
        return [record for record in self.log if position <= record.offset < self.high_watermark]

    def _expected(self, session: int) -> int | None:
        """Returns the only sequence number that a session may continue with, None if any is accepted."""
        sequences = [r.send.sequence for r in self.log if r.send.session == session]
        if sequences:
            return max(sequences) + 1
        return None if session in self.forgotten else 0

    # --- what happens to the log ---

    def replicate(self, stop: int) -> Iterator[tuple[Send, int]]:
        """Advances the high watermark; yields what is acknowledged by that."""
        self.high_watermark = max(self.high_watermark, min(stop, self.end))
        waiting, self.waiting = self.waiting, []
        for send, offset in waiting:
            if offset < self.high_watermark:
                yield send, offset
            else:
                self.waiting.append((send, offset))

    def write_marker(self) -> None:
        """Appends a record that no client sees, as the end of a transaction does."""
        self.end += 1

    def retain_from(self, start: int) -> None:
        """Removes records from the start of the log, replicated ones only."""
        self.start = max(self.start, min(start, self.high_watermark))

    def begin(self, now: int) -> None:
        self._commit(now, list(REPLICAS))

    def elect(self, now: int, end: int) -> None:
        """Elects a member of the ISR that has the log up to `end`."""
        self._cut(max(end, self.high_watermark), "fail-over")
        self._lead(now, flagged=False)

    def elect_uncleanly(self, now: int, end: int) -> None:
        """Elects a replica outside of the ISR that has the log up to `end`, which may be replicated further."""
        sessions = {record.send.session for record in self.log}
        end = max(end, self.start)
        is_loss = any(end <= record.offset < self.high_watermark for record in self.log)
        self._cut(
            min(end, self.end), "unclean election" if is_loss else "unclean election without loss"
        )
        self.high_watermark = self.end
        if self.is_idempotent:
            self.forgotten |= sessions - {record.send.session for record in self.log}
        chosen = self._next_leader()
        self._commit(now, [b for b in REPLICAS if b != chosen])
        self._lead(now, flagged=True)
        self._commit(now, list(REPLICAS))

    def _cut(self, end: int, effect: str) -> None:
        if any(record.offset >= end for record in self.log):
            self.effects.add(effect)
        self.log = [record for record in self.log if record.offset < end]
        self.end = min(self.end, end)
        self.waiting = []

    def _next_leader(self) -> int:
        return self.leader % len(REPLICAS) + 1

    def _lead(self, now: int, *, flagged: bool) -> None:
        self.leader, self.epoch = self._next_leader(), self.epoch + 1
        self._commit(now, [self.leader] if flagged else list(REPLICAS), flagged=flagged)

    def _commit(self, now: int, isr: list[int], *, flagged: bool = False) -> None:
        self.states.append(
            state(
                now,
                self.leader,
                isr,
                epoch=self.epoch,
                flagged=flagged,
                metadata_offset=len(self.states),
            )
        )
