"""The leader-epoch cache: which leader epoch begins at which offset (rules EC-1 ... EC-6).

An entry is (epoch, offset of the first record of that epoch), or the log end at the election for an epoch
that has no records yet. Both columns strictly increase. Replicas compare their caches to find where
their logs diverge, so a missing entry is dangerous: it makes a replica report an older epoch than it has. A
superfluous entry is not, as long as it begins at or after the log end.
"""

from bisect import bisect_left, bisect_right

from system_under_test.log.checkpoints import (
    format_lines,
    read_lines,
    replace_content,
    replace_file,
)
from system_under_test.rules import ALL_RULES, Rules
from system_under_test.runtime import Storage

EPOCH_CHECKPOINT = "leader-epoch-checkpoint"


class LeaderEpochCache:
    """The epochs of one log, and the file that keeps them.

    Attributes:
        latest_epoch: The newest epoch, -1 when there is none.
    """

    __slots__ = (
        "_epochs",
        "_path",
        "_rules",
        "_starts",
        "_storage",
        "latest_epoch",
    )

    def __init__(self, storage: Storage, directory: str, rules: Rules = ALL_RULES) -> None:
        """Reads the file; one that is absent, torn or unparsable gives an empty cache."""
        self._storage = storage
        self._path = f"{directory}/{EPOCH_CHECKPOINT}"
        self._rules = rules
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, start in self._read():
            self._insert(epoch, start)
        self.latest_epoch = self._epochs[-1] if self._epochs else -1

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        """All (epoch, start offset), oldest first."""
        return tuple(zip(self._epochs, self._starts, strict=True))

    def __len__(self) -> int:
        return len(self._epochs)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Records that an epoch begins at an offset; durable when it returns (EC-1)."""
        self.assign_all(((epoch, start_offset),))

    def assign_all(self, entries: "tuple[tuple[int, int], ...] | list[tuple[int, int]]") -> None:
        """Records several epochs, oldest first, with one write (EC-1)."""
        has_changed = False
        for epoch, start_offset in entries:
            if epoch < 0 or start_offset < 0:
                raise ValueError(f"epoch {epoch} at offset {start_offset}: neither may be negative")
            if epoch != self.latest_epoch or start_offset < self._starts[-1]:
                self._insert(epoch, start_offset)
                has_changed = True
        # EC-1: nothing of an epoch may survive a power cut that its entry does not survive.
        if has_changed and self._rules("EC-1"):
            replace_file(self._storage, self._path, self._content())

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int] | None:
        """Returns the largest known epoch at or below `epoch`, and where it ends (EC-3).

        Returns:
            None when `epoch` is unknown (negative) or newer than every entry. The requested epoch, with the
            start of the first entry, when every entry is newer.
        """
        if epoch < 0:
            return None
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        higher = bisect_right(self._epochs, epoch)
        if higher == len(self._epochs):
            return None
        if higher == 0:
            return epoch, self._starts[0]
        # EC-3: the requester must learn that this log does not have its epoch, or it would take everything below
        # the end for equal (KAFKA-6361).
        found = self._epochs[higher - 1] if self._rules("EC-3") else epoch
        return found, self._starts[higher]

    def epoch_at(self, offset: int) -> int:
        """Returns the epoch that the offset belongs to, -1 when no entry reaches that far down."""
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else -1

    def truncate_from_end(self, offset: int) -> bool:
        """Drops the entries that begin at or after an offset (EC-4); returns whether there were any."""
        keep = bisect_left(self._starts, offset)
        if keep == len(self._starts):
            return False
        self._cut(keep)
        self._write_behind()
        return True

    def truncate_from_start(self, offset: int) -> bool:
        """Lets the cache begin at an offset (EC-4); returns whether that changed anything.

        The entry that covers the offset stays, rewritten to begin there.
        """
        covering = bisect_right(self._starts, offset) - 1
        if covering < 0 or (covering == 0 and self._starts[0] == offset):
            return False
        del self._epochs[:covering]
        del self._starts[:covering]
        self._starts[0] = offset
        self._write_behind()
        return True

    def clear(self) -> None:
        """Drops all entries."""
        if self._epochs:
            self._cut(0)
            self._write_behind()

    def _insert(self, epoch: int, start_offset: int) -> None:
        keep = min(bisect_left(self._epochs, epoch), bisect_left(self._starts, start_offset))
        self._cut(keep)
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.latest_epoch = epoch

    def _cut(self, keep: int) -> None:
        del self._epochs[keep:]
        del self._starts[keep:]
        self.latest_epoch = self._epochs[-1] if self._epochs else -1

    def _write_behind(self) -> None:
        # EC-5: a removal need not be durable at once. It is renamed into place now, so that a killed process
        # never leaves an entry behind; a power cut may, until the directory is next made durable, and the
        # log does that before it advances its recovery point.
        replace_content(self._storage, self._path, self._content())

    def _content(self) -> bytes:
        return format_lines([f"{epoch} {start}" for epoch, start in self.entries])

    def _read(self) -> list[tuple[int, int]]:
        entries: list[tuple[int, int]] = []
        for line in read_lines(self._storage, self._path) or ():
            try:
                epoch, start = (int(field) for field in line.split(" "))
            except ValueError:
                return []
            if epoch < 0 or start < 0:
                return []
            entries.append((epoch, start))
        return entries
