"""Chooses what a power cut leaves beyond the minimum, and writes it back (see `power_cut.py`)."""

import os
from dataclasses import dataclass
from pathlib import Path
from random import Random

from nemesis.agent.disks import log_files
from nemesis.agent.disks.images import sync_filesystem
from nemesis.agent.disks.snapshot import (
    CHUNK_BYTES,
    PAGE_BYTES,
    Entry,
    Snapshot,
    by_identity,
    common_prefix_bytes,
    take_inventory,
)

MODES = ("lose_all", "prefix", "torn_sector", "zero_tail", "pages", "keep_all")
SECTOR_BYTES = 512

_MOVING = ".power-cut-{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCut:
    """What a power cut did to one file that processes saw.

    Attributes:
        path: Its name.
        cached_bytes: Its length before.
        unsynced_bytes: Bytes that the kernel alone would have lost, as `lost_bytes` counts them.
        kept_bytes: Length of the part of the cached content that survived from the beginning on.
        lost_bytes: The rest of the cached content. Whole pages of zeros at its end do not count, because files may
            be allocated in advance.
        size_after: Its length after; None if the name is gone.
    """

    path: str
    cached_bytes: int
    unsynced_bytes: int
    kept_bytes: int
    lost_bytes: int
    size_after: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenBack:
    """The outcome; see `power_cut.CutReport`."""

    unsynced_bytes: int
    kept_bytes: int
    lost_bytes: int
    files: tuple[FileCut, ...]
    returned: tuple[str, ...]
    missing: tuple[str, ...]
    metadata: str
    notes: tuple[str, ...]


NOTHING_GIVEN_BACK = GivenBack(
    unsynced_bytes=0,
    kept_bytes=0,
    lost_bytes=0,
    files=(),
    returned=(),
    missing=(),
    metadata="none",
    notes=(),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Image:
    """The content of one file: pieces of the cached content, with zeros between and after them."""

    pieces: tuple[tuple[int, int], ...]
    size: int


@dataclass(slots=True, kw_only=True)
class _Survivor:
    """What the kernel left of one cached file. Mutable.

    Attributes:
        path: Its name now; "" if its inode is gone.
        floor: How many leading bytes of the cached content it has.
        size: Its length.
        is_appended: Whether the cached content extends it: nothing was truncated or overwritten.
    """

    path: str = ""
    floor: int = 0
    size: int = 0
    is_appended: bool = True


def give_back(
    root: Path,
    before: Snapshot,
    *,
    mode: str,
    seed: int,
    keep_records: int | None = None,
    torn_bytes: int = 0,
) -> GivenBack:
    """Turns what the kernel left into what a mode leaves, durably.

    Args:
        root: The node's directory, just mounted again.
        before: Its content when the power was cut.
        mode: One of `MODES`.
        seed: Decides the choices that the mode leaves open.
        keep_records: An exact cut of every partition log.
        torn_bytes: How many bytes of what follows are kept.
    """
    return _Synthesis(root, before, mode, Random(seed)).run(keep_records, torn_bytes)


class _Synthesis:
    """One synthesis of one disk. Mutable."""

    def __init__(self, root: Path, before: Snapshot, mode: str, random: Random) -> None:
        self.root = root
        self.before = before
        self.mode = mode
        self.random = random
        self.after = take_inventory(root)
        self.notes: list[str] = []
        self.created: set[str] = set()
        self.survivors = self._find_survivors()
        self.new_files = [path for path in before.files if self.survivors[path].path != path]
        self.new_folders = [
            path
            for path, entry in before.directories.items()
            if path not in self.after.directories
            or self.after.directories[path].identity != entry.identity
        ]
        self.old_files = self._gone(self.after.files, before.files)
        self.old_folders = self._gone(self.after.directories, before.directories)

    def _find_survivors(self) -> dict[str, _Survivor]:
        left = by_identity(self.after.files)
        found = {}
        for path, entry in self.before.files.items():
            survivor = _Survivor()
            there = left.get(entry.identity)
            if there is not None:
                content = self.before.contents[path]
                floor, has_zeros_after = common_prefix_bytes(content, self.root / there.path)
                survivor = _Survivor(
                    path=there.path,
                    floor=floor,
                    size=there.size,
                    # A kernel may leave the new length without the bytes; then zeros follow.
                    is_appended=has_zeros_after and there.size <= content.size,
                )
            found[path] = survivor
        return found

    @staticmethod
    def _gone(after: dict[str, Entry], before: dict[str, Entry]) -> list[str]:
        """Returns names that exist again although processes had removed or replaced them."""
        return [
            path
            for path, entry in after.items()
            if path not in before or before[path].identity != entry.identity
        ]

    def run(self, keep_records: int | None, torn_bytes: int) -> GivenBack:
        """Chooses the outcome and writes it."""
        keep = self._kept_bytes(keep_records, torn_bytes)
        names, metadata = self._choose_names(keep)
        if metadata == "all":
            self._redo_names()
            names = set(self.new_files)
        else:
            self._create(names)
            self.created = names
        has_written = bool(names) or metadata == "all"
        for path in sorted(self.before.files):
            survivor = self.survivors[path]
            if survivor.path != path and path not in names:
                continue
            if not survivor.is_appended and metadata != "all":
                continue  # its new bytes cannot be older than the truncation before them
            image = self._outcome(path, survivor, keep)
            if image is not None:
                self._write(path, survivor, image)
                has_written = True
        if has_written:
            sync_filesystem(self.root)
        return self._account(metadata)

    # -- what is kept

    def _kept_bytes(self, keep_records: int | None, torn_bytes: int) -> dict[str, int]:
        """Translates an exact cut into bytes per file; never less than what was durable."""
        keep: dict[str, int] = {}
        if keep_records is None:
            return keep
        for path, content in self.before.contents.items():
            if not log_files.is_partition_log(path):
                continue
            wanted = log_files.bytes_of_records(
                content.read, content.size, keep_records, torn_bytes
            )
            survivor = self.survivors[path]
            keep[path] = max(wanted, survivor.floor)
            if wanted < survivor.floor:
                self.notes.append(
                    f"{path}: {survivor.floor} bytes were durable, more than the requested {wanted}"
                )
        return keep

    def _choose_names(self, keep: dict[str, int]) -> tuple[set[str], str]:
        """Chooses which changes of names come back: single creations, or all, or none."""
        was_cut = any(not survivor.is_appended for survivor in self.survivors.values())
        is_changed = bool(
            self.new_files or self.new_folders or self.old_files or self.old_folders or was_cut
        )
        if not is_changed:
            return set(), "unchanged"
        must_exist = any(path in keep and self._needs_names(path) for path in keep)
        if self.mode == "keep_all" or must_exist:
            return set(), "all"
        if self.mode == "lose_all":
            return set(), "none"
        was_moved = any(self.survivors[path].path for path in self.new_files)
        if was_cut or was_moved or self.old_files or self.old_folders:
            return set(), "all" if self.random.random() < 0.5 else "none"
        groups = self._creations()
        chosen = groups[: int(self.random.random() * (len(groups) + 1))]
        names = {path for group in chosen for path in group}
        return names, f"{len(names)} of {sum(map(len, groups))} creations"

    def _needs_names(self, path: str) -> bool:
        survivor = self.survivors[path]
        return survivor.path != path or not survivor.is_appended

    def _creations(self) -> list[list[str]]:
        """Returns groups of creations, oldest first; the clock is coarse, and files with one time are a group."""
        groups: dict[int, list[str]] = {}
        for paths, entries in (
            (self.new_folders, self.before.directories),
            (self.new_files, self.before.files),
        ):
            for path in paths:
                groups.setdefault(entries[path].identity.born_ns, []).append(path)
        return [groups[born_ns] for born_ns in sorted(groups)]

    def _outcome(self, path: str, survivor: _Survivor, keep: dict[str, int]) -> _Image | None:
        """Chooses the content of one file whose name exists; None leaves it unchanged."""
        start, end = survivor.floor, self.before.contents[path].size
        must_write = survivor.path != path or not survivor.is_appended
        if path in keep:
            return _Image(pieces=((start, keep[path]),), size=keep[path])
        if self.mode == "lose_all" or start >= end:
            return _Image(pieces=(), size=min(start, end)) if must_write else None
        if self.mode == "keep_all":
            return _Image(pieces=((start, end),), size=end)
        if self.mode == "pages":
            return self._some_pages(start, end)
        step = SECTOR_BYTES if self.mode == "torn_sector" else PAGE_BYTES
        written = self._some_boundary(start, end, step)
        size = written
        if self.mode == "zero_tail":
            size += int(self.random.random() * (end - written + 1))
        return _Image(pieces=((start, written),), size=size)

    def _some_boundary(self, start: int, end: int, step: int) -> int:
        """Draws a place where write-back may have stopped: the start, a multiple of `step`, or the end."""
        first = start // step + 1
        inner = max(0, (end - 1) // step - first + 1)
        choice = int(self.random.random() * (inner + 2))
        if choice == 0:
            return start
        if choice == inner + 1:
            return end
        return (first + choice - 1) * step

    def _some_pages(self, start: int, end: int) -> _Image:
        pieces = []
        at = start
        while at < end:
            page_end = min(end, at - at % PAGE_BYTES + PAGE_BYTES)
            if self.random.random() < 0.5:
                pieces.append((at, page_end))
            at = page_end
        return _Image(pieces=tuple(pieces), size=pieces[-1][1] if pieces else start)

    # -- writing

    def _redo_names(self) -> None:
        """Restores the names."""
        moved = {}
        for index, path in enumerate(self.new_files):
            there = self.survivors[path].path
            if there:
                # Through a temporary name, because two files may have exchanged their names.
                moved[path] = self.root / _MOVING.format(index)
                os.rename(self.root / there, moved[path])
        for path in self.old_files:
            (self.root / path).unlink(missing_ok=True)
        for path in sorted(self.old_folders, reverse=True):
            if path not in self.before.directories:
                (self.root / path).rmdir()
        self._create(set(self.new_folders) | (set(self.new_files) - set(moved)))
        for path, temporary in moved.items():
            os.rename(temporary, self.root / path)

    def _create(self, names: set[str]) -> None:
        for path, entry in self.before.directories.items():
            if path in names and not (self.root / path).is_dir():
                (self.root / path).mkdir()
                self._own(path, entry)
        for path in sorted(names & self.before.files.keys()):
            descriptor = os.open(self.root / path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            os.close(descriptor)
            self._own(path, self.before.files[path])

    def _own(self, path: str, entry: Entry) -> None:
        os.chown(self.root / path, entry.user, entry.group)
        os.chmod(self.root / path, entry.permissions)

    def _write(self, path: str, survivor: _Survivor, image: _Image) -> None:
        content = self.before.contents[path]
        descriptor = os.open(self.root / path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            if not survivor.is_appended:
                os.ftruncate(descriptor, min(survivor.floor, image.size))
            for start, end in image.pieces:
                for at in range(start, end, CHUNK_BYTES):
                    data = content.read(at, min(CHUNK_BYTES, end - at))
                    if os.pwrite(descriptor, data, at) != len(data):
                        raise OSError(f"{path} could not be written back completely")
            # Never shorter: a length that was durable stays.
            if os.fstat(descriptor).st_size < image.size:
                os.ftruncate(descriptor, image.size)
        finally:
            os.close(descriptor)

    # -- the report

    def _account(self, metadata: str) -> GivenBack:
        names = self._names_now(metadata)
        cuts = []
        for path, entry in self.before.files.items():
            content = self.before.contents[path]
            survivor = self.survivors[path]
            if survivor.path == path and survivor.floor == survivor.size == content.size:
                continue
            kept, size_after = 0, None
            if path in names:
                kept, _ = common_prefix_bytes(content, self.root / path)
                size_after = os.stat(self.root / path).st_size
            written = content.written_bytes()
            cuts.append(
                FileCut(
                    path=path,
                    cached_bytes=entry.size,
                    unsynced_bytes=max(written - survivor.floor, 0),
                    kept_bytes=kept,
                    lost_bytes=max(written - kept, 0),
                    size_after=size_after,
                )
            )
        before = _names(self.before)
        return GivenBack(
            unsynced_bytes=sum(cut.unsynced_bytes for cut in cuts),
            kept_bytes=sum(max(0, cut.kept_bytes - self.survivors[cut.path].floor) for cut in cuts),
            lost_bytes=sum(cut.lost_bytes for cut in cuts),
            files=tuple(cuts),
            returned=tuple(sorted(names - before)),
            missing=tuple(sorted(before - names)),
            metadata=metadata,
            notes=tuple(self.notes),
        )

    def _names_now(self, metadata: str) -> set[str]:
        return _names(self.before) if metadata == "all" else _names(self.after) | self.created


def _names(snapshot: Snapshot) -> set[str]:
    return {*snapshot.files, *snapshot.directories}
