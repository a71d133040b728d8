"""Records that were processed twice because a coordinator that was replaced reported an old position.

The coordinator of a group answers OffsetFetch from its memory. One that was replaced, for example while it was
paused, and does not know it yet reports the position of the moment when it was replaced, in Kafka as well. A
processor that begins there processes records that others have consumed since. So it is undecided whether such a
repetition breaks a promise, as it is for consumer groups (`checkers.kernels.coordinators`).

A processor may read positions of its group at any time between its first event and its first poll of the record.
An old coordinator reports a position that is not behind a record only if it may lack every position behind it. It
knows a position when it knows the request TxnOffsetCommit, because the position is unstable from then on
(KIP-447). So the moment that counts is at the latest when the commit of the transaction was requested.

The last commit counts, also if its position is smaller. So who begins at an old position and commits a position
before the record makes the current coordinator report that one, rightly; its own repetition is judged.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from checkers.kernels.coordinators import Coordinator, Deposed
from checkers.kernels.history import INF_NS, is_word
from checkers.kernels.transactions.events import Recorded
from harness.contracts.run_context import RunContext
from harness.history.op import TransactionEvent

Place = tuple[str, str, int]
"""A group, a topic and a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A position of a group that a transaction committed, or may have committed.

    Attributes:
        transaction, process: Whose it is.
        offset: One more than the last offset that was consumed.
        by_ns: When the coordinator knew it, at the latest.
        is_certain: Whether the commit was acknowledged.
    """

    transaction: int
    process: int
    offset: int
    by_ns: int
    is_certain: bool


class OldPositions:
    """Decides which records may have been processed twice because an old coordinator reported a position.

    Args:
        recorded: All transactions of a run.
        tables: Those of a checker that may ask a `Coordinator`, and `transaction_events`.
        context: What the run declares about itself.
    """

    def __init__(
        self, recorded: Sequence[Recorded], tables: Mapping[str, pa.Table], context: RunContext
    ) -> None:
        self._recorded, self._tables, self._context = recorded, tables, context
        self._error_ns = context.clock_error_ns

    # Most runs repeat nothing, and nobody asks for these.

    @cached_property
    def _deposed(self) -> dict[str, tuple[Deposed, ...]]:
        groups = {str(one.begin["group"]) for one in self._recorded if one.positions}
        return {group: Coordinator(group, self._tables, self._context).deposed for group in groups}

    @cached_property
    def _of(self) -> dict[int, Recorded]:
        return {int(one.begin["transaction"]): one for one in self._recorded}

    @cached_property
    def _first_ns(self) -> dict[int, int]:
        return _first_events(self._tables["transaction_events"], self._recorded)

    @cached_property
    def _positions(self) -> dict[Place, list[Position]]:
        return _positions(self._recorded)

    def may_explain(self, transactions: Iterable[int], key: str, offset: int) -> bool:
        """Returns whether all transactions but one may have begun where an old coordinator told them.

        Args:
            transactions: Numbers of those of one group that consumed the record and committed.
            key: Its partition, as "topic-partition".
            offset: Its offset.
        """
        readers = [self._of[number] for number in transactions]
        group = str(readers[0].begin["group"])
        topic, _, partition = key.rpartition("-")
        positions = self._positions.get((group, topic, int(partition)), [])
        told = [
            reader
            for reader in readers
            if self._may_begin_before(
                reader, _first_poll(reader, topic, int(partition), offset), offset, positions
            )
        ]
        return len(told) >= len(readers) - 1

    def _may_begin_before(
        self, reader: Recorded, seen_ns: int, offset: int, positions: Sequence[Position]
    ) -> bool:
        """Returns whether a transaction's process may have been told a position that is not behind a record."""
        number, process = int(reader.begin["transaction"]), int(reader.begin["process"])
        earlier = [
            one
            for one in positions
            if one.transaction != number and one.by_ns - self._error_ns <= seen_ns
        ]
        behind = [one for one in earlier if one.offset > offset]
        if not behind:
            # Nothing was committed that it should have been told.
            return False
        known = [one for one in behind if one.is_certain and one.by_ns + self._error_ns <= seen_ns]
        last_ns = max((one.by_ns for one in known), default=INF_NS)
        if any(one.offset <= offset and one.by_ns + self._error_ns >= last_ns for one in earlier):
            return True
        own_ns = [one.by_ns for one in known if one.process == process]
        asked_ns = max([self._first_ns[process], *own_ns])
        return any(
            deposed.may_answer(asked_ns, seen_ns)
            and all(deposed.may_lack(one.by_ns) for one in known)
            for deposed in self._deposed[str(reader.begin["group"])]
        )


def _first_poll(reader: Recorded, topic: str, partition: int, offset: int) -> int:
    """Returns when a transaction polled a record first."""
    place = (topic, partition, offset)
    rows = (row for row in reader.polls if (row["topic"], row["partition"], row["offset"]) == place)
    return min(int(row["at_ns"]) for row in rows)


def _first_events(events: pa.Table, recorded: Iterable[Recorded]) -> dict[int, int]:
    """Returns when the first event of each process was."""
    takes_over = pa.array(is_word(events.column("event"), TransactionEvent.INITIALISED))
    first_ns: dict[int, int] = {}
    for row in (*events.filter(takes_over).to_pylist(), *(one.begin for one in recorded)):
        process, at_ns = int(row["process"]), int(row["at_ns"])
        first_ns[process] = min(at_ns, first_ns.get(process, at_ns))
    return first_ns


def _positions(recorded: Iterable[Recorded]) -> dict[Place, list[Position]]:
    """Returns the positions of transactions that did not abort."""
    found: dict[Place, list[Position]] = {}
    for one in recorded:
        if one.outcome == "aborted":
            continue
        by = one.asked or one.end or one.begin
        for row in one.positions:
            place = (str(one.begin["group"]), str(row["topic"]), int(row["partition"]))
            position = Position(
                transaction=int(one.begin["transaction"]),
                process=int(one.begin["process"]),
                offset=int(row["offset"]),
                by_ns=int(by["at_ns"]),
                is_certain=one.outcome == "committed",
            )
            found.setdefault(place, []).append(position)
    return found
