"""The files of a node at one moment, with their content.

A file is identified by its inode number together with its birth time, because numbers are reused. So a rename that
a power cut undid can be distinguished from a new file. Contents are held in memory up to a bound; what exceeds it
goes to an unnamed file on the host's own disk.

Reading must not change anything. But both ext4 and xfs write a truncated file back when any process closes it. So
files that were opened for reading stay open until the file system is shut down.
"""

import ctypes
import os
import resource
import stat
import struct
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

from nemesis.agent.errors import AgentError

MEMORY_BYTES_MAX = 256 << 20
CHUNK_BYTES = 1 << 20
PAGE_BYTES = 4096
SPARE_DESCRIPTORS = 256

_AT_FDCWD = -100
_AT_SYMLINK_NOFOLLOW = 0x100
_STATX_BASIC_AND_BIRTH = 0xFFF
_STATX_BYTES = 256
_STATX_OWNER = struct.Struct("<IIHxxQQ")
_STATX_OWNER_AT = 20
_STATX_BIRTH = struct.Struct("<qI")
_STATX_BIRTH_AT = 80

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The identity of an inode that no later inode gets.

    Attributes:
        number: The inode number.
        born_ns: When it was made; 0 if the file system does not report it.
    """

    number: int
    born_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file or a directory.

    Attributes:
        path: Relative to the node's directory.
        size: Length in bytes; 0 for a directory.
        permissions: The mode bits that `chmod` sets.
        user, group: Owner.
    """

    path: str
    identity: Identity
    size: int
    permissions: int
    user: int
    group: int


class Content:
    """The bytes of one file, in memory or spooled.

    Args:
        data: In memory; empty if spooled.
        size: Length.
        spool: Descriptor and offset of spooled bytes.
    """

    __slots__ = ("_data", "_spool", "size")

    def __init__(self, data: bytes, size: int, spool: tuple[int, int] | None = None) -> None:
        self._data = data
        self.size = size
        self._spool = spool

    def read(self, offset: int, length: int) -> bytes:
        """Returns bytes from an offset on; fewer at the end."""
        length = max(0, min(length, self.size - offset))
        if self._spool is None:
            if length == len(self._data):
                return self._data
            return self._data[offset : offset + length]
        descriptor, base = self._spool
        return os.pread(descriptor, length, base + offset)

    def written_bytes(self) -> int:
        """Returns the length without whole pages of zeros at the end, as files allocated in advance have them."""
        end = self.size
        while end:
            start = (end - 1) // CHUNK_BYTES * CHUNK_BYTES
            found = len(self.read(start, end - start).rstrip(b"\0"))
            if found:
                return min(self.size, start + -(-found // PAGE_BYTES) * PAGE_BYTES)
            end = start
        return 0


class Snapshot:
    """Files and directories below a root; a context manager.

    Attributes:
        files: By path.
        directories: By path; the root is not among them.
        contents: By path; empty for an inventory.
    """

    def __init__(self) -> None:
        self.files: dict[str, Entry] = {}
        self.directories: dict[str, Entry] = {}
        self.contents: dict[str, Content] = {}
        self._spool: IO[bytes] | None = None
        self._in_memory = 0
        self._open: list[int] = []

    @property
    def size_bytes(self) -> int:
        """Returns the total length of all files."""
        return sum(entry.size for entry in self.files.values())

    def close_files(self) -> None:
        """Closes the files that were read, after the file system was shut down. Idempotent."""
        while self._open:
            os.close(self._open.pop())

    def close(self) -> None:
        """Closes everything and frees the contents; idempotent."""
        self.close_files()
        self.contents.clear()
        if self._spool is not None:
            self._spool.close()
            self._spool = None

    def __enter__(self) -> "Snapshot":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def load(self, root: Path, entry: Entry, memory_max: int, spool_folder: Path) -> None:
        """Reads one file up to the length that it had at first."""
        descriptor = os.open(root / entry.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOATIME)
        self._open.append(descriptor)
        if self._in_memory + entry.size <= memory_max:
            data = _read_all(descriptor, entry.size)
            self._in_memory += len(data)
            self.contents[entry.path] = Content(data, len(data))
            return
        if self._spool is None:
            self._spool = tempfile.TemporaryFile(dir=spool_folder)  # noqa: SIM115 - see close
        base = self._spool.seek(0, os.SEEK_END)
        at = 0
        while at < entry.size:
            piece = os.pread(descriptor, min(CHUNK_BYTES, entry.size - at), at)
            if not piece:
                break
            self._spool.write(piece)
            at += len(piece)
        self._spool.flush()
        self.contents[entry.path] = Content(b"", at, (self._spool.fileno(), base))


def take_inventory(root: Path) -> Snapshot:
    """Returns names, sizes and identities below a directory, without contents."""
    snapshot = Snapshot()
    folders = [""]
    while folders:
        folder = folders.pop()
        with os.scandir(root / folder) as found:
            for item in sorted(found, key=lambda item: item.name):
                path = f"{folder}/{item.name}" if folder else item.name
                if item.is_dir(follow_symlinks=False):
                    snapshot.directories[path] = _entry(root, path)
                    folders.append(path)
                elif item.is_file(follow_symlinks=False):
                    snapshot.files[path] = _entry(root, path)
    return snapshot


def take_snapshot(
    root: Path, *, spool_folder: Path, memory_max: int = MEMORY_BYTES_MAX
) -> Snapshot:
    """Returns everything below a directory with its contents, as processes see it.

    Args:
        root: The directory. No process should be changing it.
        spool_folder: A folder on another file system, for what does not fit into memory.
        memory_max: How many bytes are held in memory.
    """
    snapshot = take_inventory(root)
    _allow_descriptors(len(snapshot.files))
    try:
        for entry in snapshot.files.values():
            snapshot.load(root, entry, memory_max, spool_folder)
    except BaseException:
        snapshot.close()
        raise
    return snapshot


def _allow_descriptors(count: int) -> None:
    """Raises the limit of open files of this process by a number of files.

    Raises:
        AgentError: The limit cannot be raised so far.
    """
    needed = count + len(os.listdir("/proc/self/fd")) + SPARE_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise AgentError(f"{count} files cannot be open at once: the agent may open {hard}")
    if soft != resource.RLIM_INFINITY and needed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def by_identity(entries: Mapping[str, Entry]) -> dict[Identity, Entry]:
    """Returns entries by identity instead of by name."""
    return {entry.identity: entry for entry in entries.values()}


def common_prefix_bytes(content: Content, path: Path) -> tuple[int, bool]:
    """Compares a content with a file.

    Returns:
        How many leading bytes agree; and whether the rest of the file is zeros or empty.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOATIME)
    try:
        size = os.fstat(descriptor).st_size
        at = 0
        while at < size:
            theirs = os.pread(descriptor, min(CHUNK_BYTES, size - at), at)
            if not theirs:
                break
            ours = content.read(at, len(theirs))
            if ours != theirs:
                same = at + _agreeing(ours, theirs)
                return same, _is_zeros_from(descriptor, same, size)
            at += len(theirs)
        return at, True
    finally:
        os.close(descriptor)


def _is_zeros_from(descriptor: int, at: int, size: int) -> bool:
    while at < size:
        piece = os.pread(descriptor, min(CHUNK_BYTES, size - at), at)
        if not _is_zeros(piece):
            return False
        if not piece:
            break
        at += len(piece)
    return True


def _is_zeros(data: bytes) -> bool:
    return not data.strip(b"\0")


def _agreeing(left: bytes, right: bytes) -> int:
    low, high = 0, min(len(left), len(right))
    if left[:high] == right[:high]:
        return high
    while high - low > 1:  # left[:low] agrees, left[:high] does not
        middle = (low + high) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle
    return low


def _read_all(descriptor: int, size: int) -> bytes:
    parts = []
    at = 0
    while at < size:
        piece = os.pread(descriptor, size - at, at)
        if not piece:
            break
        parts.append(piece)
        at += len(piece)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _entry(root: Path, path: str) -> Entry:
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    full = os.path.join(root, path)
    if _libc.statx(
        _AT_FDCWD, os.fsencode(full), _AT_SYMLINK_NOFOLLOW, _STATX_BASIC_AND_BIRTH, buffer
    ):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), full)
    user, group, mode, inode, size = _STATX_OWNER.unpack_from(buffer, _STATX_OWNER_AT)
    seconds, nanoseconds = _STATX_BIRTH.unpack_from(buffer, _STATX_BIRTH_AT)
    return Entry(
        path=path,
        identity=Identity(number=inode, born_ns=seconds * 1_000_000_000 + nanoseconds),
        size=0 if stat.S_ISDIR(mode) else size,
        permissions=stat.S_IMODE(mode),
        user=user,
        group=group,
    )
