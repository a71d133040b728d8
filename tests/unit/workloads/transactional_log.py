"""A log with transactions in memory, and a client of it, for tests of the workload `transactions`."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.contracts.client import (
    FetchedBatch,
    PlainRecord,
    PollResult,
    ProducedBatch,
)
from harness.contracts.transactions import (
    READ_COMMITTED,
    Key,
    RecordsDelivered,
    TransactionSettings,
)
from harness.history.op import Completion, Outcome

OK = Completion(outcome=Outcome.OK)
FENCED = Completion(outcome=Outcome.INFO, error_code=90, error="PRODUCER_FENCED")
LOST = Completion(outcome=Outcome.INFO, error_code=None, error="no-response")
MARKER = b""


@dataclass(eq=False)
class Open:
    """A transaction: `outcome` is None while it is open."""

    outcome: str | None = None
    positions: dict[tuple[str, Key], int] = field(default_factory=dict)
    keys: set[Key] = field(default_factory=set)


@dataclass
class TransactionalLog:
    """The log. Mutable: its partitions, and who has each transactional id.

    Attributes:
        defect: What it does wrong: "" for nothing, "aborted" (shows what was aborted), "early" (shows what is not
            committed yet), "zombies" (fences nobody), "positions" (loses committed positions), "half" (commits
            one partition of a transaction only).
        times_out: Whether it aborts the open transaction of a producer that has gone.
        lost_responses: Of every so many commits the response is lost; 0 for none.
        stale_ends: How many requests for log ends a deposed leader answers, which has no records; it answers the
            next poll too.
    """

    defect: str = ""
    times_out: bool = True
    lost_responses: int = 0
    stale_ends: int = 0
    stale_polls: set[Key] = field(default_factory=set)
    records: dict[Key, list[tuple[bytes, Open]]] = field(default_factory=dict)
    owners: dict[str, "FakeProducer"] = field(default_factory=dict)
    positions: dict[tuple[str, Key], int] = field(default_factory=dict)
    commits: int = 0
    fenced: int = 0

    def end(self, transaction: Open, outcome: str) -> None:
        """Ends a transaction and writes its markers."""
        transaction.outcome = outcome
        if outcome == "committed" and self.defect != "positions":
            self.positions.update(transaction.positions)
        for key in sorted(transaction.keys):
            self.records[key].append((MARKER, transaction))

    def visible(self, key: Key, transaction: Open, isolation: str) -> bool:
        """Whether a reader gets the records of a transaction."""
        if isolation != READ_COMMITTED or transaction.outcome == "committed":
            is_half = self.defect == "half" and len(transaction.keys) > 1
            return not (is_half and isolation == READ_COMMITTED and key == max(transaction.keys))
        return transaction.outcome == "aborted" and self.defect == "aborted"

    def stable_end(self, key: Key, isolation: str) -> int:
        """The last stable offset, or the log end."""
        log = self.records.setdefault(key, [])
        if isolation != READ_COMMITTED or self.defect == "early":
            return len(log)
        return next((at for at, (_, one) in enumerate(log) if one.outcome is None), len(log))


class FakeProducer:
    """Implements `TransactionalProducer`."""

    def __init__(self, log: TransactionalLog, settings: TransactionSettings) -> None:
        self._log = log
        self._id = settings.transactional_id
        self.transaction = Open(outcome="none")

    @property
    def _is_fenced(self) -> bool:
        is_fenced = self._log.owners.get(self._id) is not self
        self._log.fenced += is_fenced
        return is_fenced and self._log.defect != "zombies"

    async def initialise(self) -> Completion:
        before = self._log.owners.get(self._id)
        is_left = self._log.defect == "zombies" and before is not None
        if before is not None and before.transaction.outcome is None and not is_left:
            self._log.end(before.transaction, "aborted")
        self._log.owners[self._id] = self
        return OK

    async def begin(self) -> Completion:
        self.transaction = Open()
        return OK

    async def send(
        self, batches: Sequence[ProducedBatch], delivered: RecordsDelivered
    ) -> Completion:
        if self._is_fenced:
            return FENCED
        for index, batch in enumerate(batches):
            key = (batch.topic, batch.partition)
            log = self._log.records.setdefault(key, [])
            self.transaction.keys.add(key)
            delivered(index, batch.offsets_from(len(log)))
            log.extend((value, self.transaction) for _, value in batch.records)
        for _ in range(3):
            await asyncio.sleep(0)  # others run while the transaction is open
        return OK

    async def send_offsets(self, group: str, positions: Mapping[Key, int]) -> Completion:
        self.transaction.positions = {(group, key): at for key, at in positions.items()}
        return FENCED if self._is_fenced else OK

    async def commit(self) -> Completion:
        if self._is_fenced:
            return FENCED
        log = self._log
        log.commits += 1
        if self.transaction.outcome is None:
            log.end(self.transaction, "committed")
        return LOST if log.lost_responses and log.commits % log.lost_responses == 0 else OK

    async def abort(self) -> Completion:
        if self._is_fenced:
            return FENCED
        if self.transaction.outcome is None:
            self._log.end(self.transaction, "aborted")
        return OK

    def close(self) -> None:
        if self._log.times_out and self.transaction.outcome is None:
            self._log.end(self.transaction, "aborted")


class FakeClient:
    """Implements `LogClient` and `MakesTransactions`."""

    def __init__(self, log: TransactionalLog, isolation: str = "read_uncommitted") -> None:
        self._log = log
        self._isolation = isolation

    def transactional_producer(self, settings: TransactionSettings) -> FakeProducer:
        return FakeProducer(self._log, settings)

    def isolated(self, isolation: str) -> "FakeClient":
        return FakeClient(self._log, isolation)

    async def committed(self, group: str, keys: Sequence[Key]) -> dict[Key, int] | None:
        return {
            key: self._log.positions[(group, key)]
            for key in keys
            if (group, key) in self._log.positions
        }

    async def append(self, *args: Any) -> Completion:
        raise NotImplementedError

    async def poll(self, topic: str, partition: int, position: int, **_: Any) -> PollResult:
        log, key = self._log, (topic, partition)
        await asyncio.sleep(0)
        if key in log.stale_polls:
            log.stale_polls.remove(key)
            return PollResult(completion=Completion(outcome=Outcome.OK, end_offset=0), batches=())
        end = log.stable_end(key, self._isolation)
        early = log.defect == "early"
        records = tuple(
            PlainRecord(offset, b"k", value)
            for offset, (value, one) in enumerate(log.records[key][:end])
            if offset >= position
            and value != MARKER
            and (log.visible(key, one, self._isolation) or (early and one.outcome is None))
        )
        batches = (FetchedBatch(leader_epoch=1, records=records),) if records else ()
        return PollResult(
            completion=Completion(outcome=Outcome.OK, end_offset=end), batches=batches
        )

    async def latest(self, topic: str, partition: int) -> Completion:
        if self._log.stale_ends > 0:
            self._log.stale_ends -= 1
            self._log.stale_polls.add((topic, partition))
            return Completion(outcome=Outcome.OK, offset=0)
        end = self._log.stable_end((topic, partition), self._isolation)
        return Completion(outcome=Outcome.OK, offset=end)

    def close(self) -> None:
        pass
