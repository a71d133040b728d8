"""Files as the page cache and the platter see them.

A file that is only appended to needs no bookkeeping: its durable image is a prefix of the cached one, so one
number says what a power cut may take. Only when bytes below that number are cut away or replaced is the
durable image copied out. No state is kept per byte or per page.
"""

from typing import Final

PAGE_BYTES: Final = 4096
SECTOR_BYTES: Final = 512

AGE_RESOLUTION_NS: Final = 1_000_000_000
"""The kernel's flusher looks every 5 s at pages of 30 s; a second more or less is noise."""


class Sync:
    """One fsync between its beginning and its completion.

    Attributes:
        number: Its place in the order of all syncs of the disk.
        path: The file or the directory.
        inode: The file; None for fsync of a directory.
        size: Length of the file at the beginning: what completion makes durable.
        journal_sequence: Newest metadata operation at the beginning.
        snapshot: The bytes at the beginning, kept only if the file was cut or replaced since.
        is_blocking: Whether the process waits for it. What the process did after it, it did only in the
            simulation: in reality it would not have come so far while the sync is in flight.
    """

    __slots__ = ("inode", "is_blocking", "journal_sequence", "number", "path", "size", "snapshot")

    def __init__(
        self, number: int, path: str, inode: "Inode | None", journal_sequence: int
    ) -> None:
        self.number = number
        self.path = path
        self.inode = inode
        self.size = len(inode.data) if inode is not None else 0
        self.journal_sequence = journal_sequence
        self.snapshot: bytes | None = None
        self.is_blocking = False


class Inode:
    """One file.

    Attributes:
        data: What the process reads back.
        durable_size: Length of the durable image.
        durable: The durable image, if it is not simply the first `durable_size` bytes of `data`.
        truncations: (journal sequence, size) of size changes that are not durable yet, oldest first.
        syncs: Syncs of this file in progress.
        holes: Byte ranges whose write-back failed: in the cache they look written, on the platter they are
            zeros, and no later fsync will notice.
        ages: (time, size): bytes below the size are at least as old as the time; coarse.
        appended_at_ns: Time of the last append, if the kernel writes back by itself.
        last_sync_number: The newest sync that completed.
    """

    __slots__ = (
        "ages",
        "appended_at_ns",
        "data",
        "durable",
        "durable_size",
        "holes",
        "last_sync_number",
        "syncs",
        "truncations",
    )

    def __init__(self, data: bytes = b"", *, durable_size: int = 0) -> None:
        self.data = bytearray(data)
        self.durable_size = durable_size
        self.durable: bytes | None = None
        self.truncations: list[tuple[int, int]] = []
        self.syncs: list[Sync] = []
        self.holes: list[tuple[int, int]] = []
        self.ages: list[tuple[int, int]] = []
        self.appended_at_ns = 0
        self.last_sync_number = 0

    def unsynced_bytes(self) -> int:
        """Returns how many cached bytes are not known to be durable."""
        if self.durable is None:
            return len(self.data) - self.durable_size
        return len(self.data)

    def durable_image(self) -> bytes:
        """Returns what the platter holds for sure."""
        image = self.durable if self.durable is not None else bytes(self.data[: self.durable_size])
        return self.with_holes(image)

    def with_holes(self, image: bytes) -> bytes:
        """Returns an image with zeros where write-back failed."""
        if not self.holes:
            return image
        patched = bytearray(image)
        for start, end in self.holes:
            width = min(end, len(patched)) - start
            if width > 0:
                patched[start : start + width] = bytes(width)
        return bytes(patched)

    def cut(self, size: int, journal_sequence: int) -> bool:
        """Cuts the cached bytes; returns whether the size change has to be journalled."""
        journalled = self.durable is not None or size < self.durable_size or bool(self.syncs)
        if journalled:
            for sync in self.syncs:
                if sync.snapshot is None:
                    sync.snapshot = self.with_holes(bytes(self.data[: sync.size]))
            if self.durable is None and size < self.durable_size:
                self.durable = self.durable_image()
            self.truncations.append((journal_sequence, size))
        del self.data[size:]
        self.ages = [(at, min(length, size)) for at, length in self.ages]
        self.holes = [(start, min(end, size)) for start, end in self.holes if start < size]
        return journalled

    def truncation_committed(self, journal_sequence: int, size: int) -> None:
        """The journal made one size change durable."""
        self.truncations = [cut for cut in self.truncations if cut[0] != journal_sequence]
        for sync in self.syncs:
            if sync.journal_sequence < journal_sequence and sync.snapshot is not None:
                sync.snapshot = sync.snapshot[:size]
        if self.durable is None:
            self.durable_size = min(self.durable_size, size)
            return
        self.durable = self.durable[:size]
        self.durable_size = len(self.durable)
        if not self.truncations:
            # Below the smallest cut nothing was ever replaced, so the images agree again.
            self.durable = None

    def sync_completed(self, sync: Sync) -> None:
        """The data of a sync is durable. The journal entries before it were committed just now."""
        if sync.number < self.last_sync_number:
            return  # a later one was faster and covers more
        self.last_sync_number = sync.number
        if sync.snapshot is None:
            # Only appends since the beginning, and every cut before it is committed.
            self.durable = None
            self.durable_size = max(self.durable_size, sync.size)
            return
        self.durable = sync.snapshot if self.truncations else None
        self.durable_size = len(sync.snapshot)

    def write_back_failed(self, sync: Sync) -> None:
        """An fsync failed: the kernel forgets that these pages were dirty, and they are not durable."""
        start = self.durable_size if self.durable is None else 0
        end = min(sync.size, len(self.data))
        if start < end:
            self.holes.append((start, end))

    def note_age(self, now_ns: int) -> None:
        """Remembers how old the bytes are, before an append; coarsely."""
        last_ns = self.appended_at_ns
        if self.data and (not self.ages or last_ns - self.ages[-1][0] >= AGE_RESOLUTION_NS):
            self.ages.append((last_ns, len(self.data)))
        self.appended_at_ns = now_ns

    def write_back_older_than(self, cutoff_ns: int) -> None:
        """The kernel writes pages that were dirtied before a moment."""
        if self.durable is not None or self.truncations:
            return  # after a cut, data waits for the size change to commit
        if self.appended_at_ns <= cutoff_ns:
            self.durable_size = len(self.data)
            self.ages.clear()
            return
        old = max((size for at, size in self.ages if at <= cutoff_ns), default=0)
        self.durable_size = max(self.durable_size, old)
        self.ages = [(at, size) for at, size in self.ages if at > cutoff_ns]
