"""Files: their cached content, and what is durable of them.

A file that is only appended to needs no bookkeeping: its durable image is a prefix of the cached content, so its
length is enough to know what a power cut may lose. The durable image is copied only when bytes below that length
are cut or replaced. No state is kept per byte or per page.

Kernels begin to write a file back early, without an fsync, when it is renamed, removed or cut. After that, the
file can end where it ended at that time (`ends`), inside a page. Bytes that are cut off later can be restored
(`UndoneCut`). And if a cut is undone, one page of the file can contain data that was written after the cut
(`Patch`).
"""

from dataclasses import dataclass
from typing import Final

PAGE_BYTES: Final = 4096
SECTOR_BYTES: Final = 512

ALWAYS_NS: Final = -(2**63)
NEVER_NS: Final = 2**63
AGE_RESOLUTION_NS: Final = 1_000_000_000
"""The kernel's flusher runs every 5 s and writes pages that are 30 s old, so a second makes no difference."""


class Sync:
    """One fsync in flight.

    Attributes:
        number: Its position in the order of all syncs of the disk.
        path: The file or the directory.
        inode: The file; None for fsync of a directory.
        size: Length of the file at the beginning. Completion makes this many bytes durable.
        journal_sequence: Newest metadata operation at the beginning.
        commits_to: Newest metadata operation that completion makes durable; see `Device.begin_sync`.
        snapshot: The content at the beginning, kept only if the file was cut or replaced since.
        is_blocking: Whether the process waits for it. Later actions of the process exist only in the simulation: a
            real process would not have continued while the sync is in flight.
    """

    __slots__ = (
        "commits_to",
        "inode",
        "is_blocking",
        "journal_sequence",
        "number",
        "path",
        "size",
        "snapshot",
    )

    def __init__(
        self, number: int, path: str, inode: "Inode | None", journal_sequence: int
    ) -> None:
        self.number = number
        self.path = path
        self.inode = inode
        self.size = len(inode.data) if inode is not None else 0
        self.journal_sequence = journal_sequence
        self.commits_to = journal_sequence
        self.snapshot: bytes | None = None
        self.is_blocking = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoneCut:
    """A possible content of a file whose cut is undone, if the bytes cut off were being written back.

    Attributes:
        sequence: Number of the cut in the journal.
        image: The content before the cut, up to the last offset to which it was written back.
        ends: The offsets at which it may end.
    """

    sequence: int
    image: bytes
    ends: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """A page that was written back after a cut, into the block that it had before the cut.

    Attributes:
        sequence: Number of the cut in the journal. If it is undone, the block is part of the older file.
        start: Offset of the page.
        content: The whole page.
    """

    sequence: int
    start: int
    content: bytes

    def applied_to(self, image: bytes) -> bytes:
        """Returns an older image of the file that contains the new page. Its length does not change."""
        width = min(PAGE_BYTES, len(image) - self.start)
        if width <= 0:
            return image
        return image[: self.start] + self.content[:width] + image[self.start + width :]


class Inode:
    """One file.

    Attributes:
        data: The cached content, which the process reads. durable_size: Length of the durable image. durable: The
        durable image; None if it is the first `durable_size` bytes of `data`. truncations: (journal sequence,
        size) of size changes that are not durable yet, oldest first. syncs: Syncs of this file in flight. holes:
        Byte ranges whose write-back failed. They are intact in the cache but zeros in the durable image, and
            no later fsync corrects or reports this.
        ages: (time, size): bytes below the size are at least as old as the time. Approximate.
        appended_at_ns: Time of the last append, if the kernel writes back without an fsync.
        last_sync_number: The newest completed sync.
        ends: Lengths above the durable size that the file system knows: those at which the kernel began to write
            the file back, and those to which it grew within its last block.
        undone: Contents before cuts that are not durable yet and may be undone.
        patches: Pages that were written back after cuts that are not durable yet.
        cut_sequence: Number of the newest cut, journalled or not.
        settles_at_ns: The least argument with which `write_back_older_than` may change something. Whatever changes
            the file sets it to `ALWAYS_NS`. A disk may have hundreds of files, and a sync looks at all of them.
    """

    __slots__ = (
        "ages",
        "appended_at_ns",
        "cut_sequence",
        "data",
        "durable",
        "durable_size",
        "ends",
        "holes",
        "last_sync_number",
        "patches",
        "settles_at_ns",
        "syncs",
        "truncations",
        "undone",
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
        self.ends: tuple[int, ...] = ()
        self.undone: tuple[UndoneCut, ...] = ()
        self.patches: tuple[Patch, ...] = ()
        self.cut_sequence = 0
        self.settles_at_ns = ALWAYS_NS

    def unsynced_bytes(self) -> int:
        """Returns how many cached bytes are not known to be durable."""
        if self.durable is None:
            return len(self.data) - self.durable_size
        return len(self.data)

    def durable_image(self) -> bytes:
        """Returns the content that is certainly durable."""
        image = self.durable if self.durable is not None else bytes(self.data[: self.durable_size])
        return self.with_holes(image)

    def with_holes(self, image: bytes) -> bytes:
        """Returns an image with zeros in the ranges whose write-back failed."""
        if not self.holes:
            return image
        patched = bytearray(image)
        for start, end in self.holes:
            width = min(end, len(patched)) - start
            if width > 0:
                patched[start : start + width] = bytes(width)
        return bytes(patched)

    def cut(self, size: int, journal_sequence: int) -> bool:
        """Cuts the cached content; returns whether the size change must be journalled."""
        journalled = (
            self.durable is not None
            or size < self.durable_size
            or bool(self.syncs)
            or any(end > size for end in self.ends)
        )
        self.cut_sequence = journal_sequence
        self.settles_at_ns = ALWAYS_NS
        if journalled:
            for sync in self.syncs:
                if sync.snapshot is None:
                    sync.snapshot = self.with_holes(bytes(self.data[: sync.size]))
            if self.durable is None and size < self.durable_size:
                self.durable = self.durable_image()
            self._keep_cut_content(journal_sequence)
            self.truncations.append((journal_sequence, size))
        if any(end > size for end in self.ends):
            self.ends = (*(end for end in self.ends if end < size), size)
        del self.data[size:]
        self.ages = [(at, min(length, size)) for at, length in self.ages]
        self.holes = [(start, min(end, size)) for start, end in self.holes if start < size]
        return journalled

    def truncation_committed(self, journal_sequence: int, size: int) -> None:
        """Applies a size change that the journal has made durable."""
        self.settles_at_ns = ALWAYS_NS
        self.truncations = [cut for cut in self.truncations if cut[0] != journal_sequence]
        self.undone = tuple(cut for cut in self.undone if cut.sequence > journal_sequence)
        self.patches = tuple(page for page in self.patches if page.sequence > journal_sequence)
        for sync in self.syncs:
            if sync.journal_sequence < journal_sequence and sync.snapshot is not None:
                sync.snapshot = sync.snapshot[:size]
        if self.durable is None:
            self.durable_size = min(self.durable_size, size)
            return
        self.durable = self.durable[:size]
        self.durable_size = len(self.durable)
        if not self.truncations:
            # Below the smallest cut nothing was ever replaced, so the cached and the durable content agree again.
            self.durable = None

    def sync_completed(self, sync: Sync) -> None:
        """Makes the data of a sync durable. The caller has already committed the journal entries before it."""
        if sync.number < self.last_sync_number:
            return  # a later sync completed first and covers more
        self.last_sync_number = sync.number
        self.settles_at_ns = ALWAYS_NS
        if sync.snapshot is None:
            # There were only appends since the beginning, and every earlier cut is committed.
            self.durable = None
            self.durable_size = max(self.durable_size, sync.size)
            if self.ends:
                self._forget_ends()
            return
        self.durable = sync.snapshot if self.truncations else None
        self.durable_size = len(sync.snapshot)

    # Early write-back

    @property
    def size_on_disk(self) -> int:
        """The length that the file system knows. Bytes beyond it are only in the cache."""
        if self.ends:
            return self.ends[-1]
        return self.truncations[-1][1] if self.truncations else self.durable_size

    @property
    def undone_cut(self) -> UndoneCut | None:
        """A possible content if no further cut is committed; None if the durable image is the only one."""
        if self.undone and self.truncations and self.undone[0].sequence == self.truncations[0][0]:
            return self.undone[0]
        return None

    @property
    def may_be_as_cut(self) -> bool:
        """Whether an uncommitted cut may take effect, since it removed only bytes that were never durable.

        Such a cut is like an append, whose size the journal does not order.
        """
        return self.durable is None and self.undone_cut is not None

    def begin_write_back(self, size: int) -> None:
        """Begins to write the file back up to a length, as the kernel does without an fsync."""
        if size <= self.size_on_disk and not self.truncations:
            return
        self.settles_at_ns = ALWAYS_NS
        self.ends = (*(end for end in self.ends if end != size), size)
        if self.truncations:
            self._patch(size)

    def grow_in_its_block(self) -> None:
        """Grows the size within the last block. On ext4, this is journalled at once, before the data."""
        known = self.size_on_disk
        end = min(len(self.data), known + -known % PAGE_BYTES)
        if end > known:
            self.settles_at_ns = ALWAYS_NS
            self.ends = (*self.ends, end)

    def _patch(self, size: int) -> None:
        # Below the smallest cut nothing changed, and data after the page of that cut is in new blocks.
        sequence, kept = min(self.truncations, key=lambda cut: (cut[1], -cut[0]))
        start = kept - kept % PAGE_BYTES
        if start < kept:
            cached = self.with_holes(bytes(self.data[: min(size, start + PAGE_BYTES)]))
            page = cached[start:].ljust(PAGE_BYTES, b"\0")
            self.patches = (*self.patches, Patch(sequence=sequence, start=start, content=page))

    def _keep_cut_content(self, journal_sequence: int) -> None:
        if self.ends:
            image = self.with_holes(bytes(self.data[: max(self.ends)]))
            cut = UndoneCut(sequence=journal_sequence, image=image, ends=self.ends)
            self.undone = (*self.undone, cut)

    def _forget_ends(self) -> None:
        self.ends = tuple(end for end in self.ends if end > self.durable_size)

    def write_back_failed(self, sync: Sync) -> None:
        """Handles a failed fsync: the kernel marks the pages clean although they are not durable."""
        start = self.durable_size if self.durable is None else 0
        end = min(sync.size, len(self.data))
        if start < end:
            self.holes.append((start, end))

    def note_age(self, now_ns: int) -> None:
        """Records the approximate age of the bytes before an append."""
        last_ns = self.appended_at_ns
        self.settles_at_ns = ALWAYS_NS
        if self.data and (not self.ages or last_ns - self.ages[-1][0] >= AGE_RESOLUTION_NS):
            self.ages.append((last_ns, len(self.data)))
        self.appended_at_ns = now_ns

    def write_back_older_than(self, cutoff_ns: int) -> None:
        """Makes pages durable that were dirtied before a time, as the kernel's flusher does."""
        if self.durable is not None or self.truncations:
            return  # after a cut, data waits for the size change to commit
        if self.appended_at_ns <= cutoff_ns:
            self.durable_size = len(self.data)
            self.ages.clear()
            self.ends = ()
            self.settles_at_ns = NEVER_NS
            return
        old = max((size for at, size in self.ages if at <= cutoff_ns), default=0)
        self.durable_size = max(self.durable_size, old)
        self.ages = [(at, size) for at, size in self.ages if at > cutoff_ns]
        self._forget_ends()
        if self.ends:
            return
        if self.ages:
            self.settles_at_ns = self.ages[0][0]  # the oldest
        else:
            is_durable = self.durable_size == len(self.data)
            self.settles_at_ns = NEVER_NS if is_durable else self.appended_at_ns
