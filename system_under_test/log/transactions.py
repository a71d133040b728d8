"""The transactions of one log: which are open, which were aborted, and how far a read_committed reader may read.

A transaction begins in a log with its first batch and ends there with a marker (`protocol/control_records.py`).
The *first unstable offset* is the first offset of the oldest transaction that is open, or whose marker the high
watermark has not passed. The *last stable offset* (LSO) is the smaller one of it and the high watermark (TXN-1,
TXN-2).

Followers keep the same state. Truncation and loading rebuild it together with the producers (PID-5), so neither an
index file of aborted transactions nor a snapshot of producers is needed.

Memory: about 100 bytes per aborted transaction whose records are in the log.

Source:
    KIP-98; Kafka's `ProducerStateManager` and `TransactionIndex`.
"""

from bisect import bisect_left
from operator import attrgetter
from typing import NamedTuple

from system_under_test.rules import Rules


class EndedTransaction(NamedTuple):
    """A transaction that has a marker in the log.

    Attributes:
        first_offset: Of its first batch in this log.
        last_offset: Of its marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int


class LogTransactions:
    """The transactions of one log. Mutable; the state of the producers keeps it up to date.

    Args:
        rules: The rules that apply.

    Attributes:
        open: First offset of every open transaction by producer id, in the order of these offsets.
        is_used: Whether the log has, or had, any transaction; without one every reader may skip this object.
    """

    __slots__ = ("_aborted", "_rules", "_unreplicated", "is_used", "open")

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self.is_used = False
        self.open: dict[int, int] = {}
        # Ended, but their markers may be above the high watermark.
        self._unreplicated: list[EndedTransaction] = []
        self._aborted: list[EndedTransaction] = []

    def clear(self) -> None:
        """Forgets everything."""
        self.is_used = False
        self.open.clear()
        self._unreplicated.clear()
        self._aborted.clear()

    def appended(self, producer_id: int, first_offset: int) -> None:
        """Enters a transactional batch; the first one begins a transaction."""
        self.is_used = True
        self.open.setdefault(producer_id, first_offset)

    def ended(self, producer_id: int, marker_offset: int, *, is_commit: bool) -> None:
        """Enters a marker; without an open transaction it changes nothing."""
        self.is_used = True
        first_offset = self.open.pop(producer_id, None)
        if first_offset is None:
            return
        transaction = EndedTransaction(producer_id, first_offset, marker_offset)
        self._unreplicated.append(transaction)
        if not is_commit:
            self._aborted.append(transaction)

    def first_unstable(self, high_watermark: int) -> int | None:
        """Returns the first offset of a transaction whose outcome may still change, None if there is none."""
        candidates = list(self.open.values())[:1]
        # TXN-2: a marker above the high watermark may be truncated, and the transaction is open again.
        if self._unreplicated and self._rules("TXN-2"):
            self._unreplicated = [
                one for one in self._unreplicated if one.last_offset >= high_watermark
            ]
            candidates.extend(one.first_offset for one in self._unreplicated)
        return min(candidates, default=None)

    def aborted_within(self, start_offset: int, end_offset: int) -> list[EndedTransaction]:
        """Returns the aborted transactions that have a batch or the marker in a range, by their markers.

        Args:
            start_offset: The first offset of the range.
            end_offset: The offset behind it.
        """
        first = bisect_left(self._aborted, start_offset, key=attrgetter("last_offset"))
        return [one for one in self._aborted[first:] if one.first_offset < end_offset]

    def is_aborted(self, producer_id: int, offset: int) -> bool:
        """Whether an offset of a producer's transactional batch belongs to a transaction that was aborted."""
        return any(
            one.producer_id == producer_id for one in self.aborted_within(offset, offset + 1)
        )

    def drop_below(self, log_start_offset: int) -> None:
        """Forgets the aborted transactions that lie below the log start as a whole."""
        if self._aborted and self._aborted[0].last_offset < log_start_offset:
            self._aborted = [one for one in self._aborted if one.last_offset >= log_start_offset]
