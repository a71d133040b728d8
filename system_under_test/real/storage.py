"""The storage of a real machine: one directory of a real file system.

Written data is in the page cache at once and survives the end of the process; only an fsync makes it survive a
power cut. Awaited fsyncs run in one thread, so that they are done in the order in which they were requested.
"""

import asyncio
import errno
import fcntl
import os
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

OPEN_FILES_MAX = 256
LOCK_FILE = ".lock"


class DirectoryInUseError(Exception):
    """The data directory is in use by another process."""


class RealStorage:
    """Implements `runtime.storage.Storage` below a directory, which it locks.

    Args:
        root: The data directory; it is created if it does not exist.

    Attributes:
        on_fsync: Called when an fsync of a file begins.

    Raises:
        DirectoryInUseError: Another process uses the directory.
        OSError: The directory cannot be created or opened.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(root / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise DirectoryInUseError(f"{root} is in use by another process") from None
        self._prefix = os.fspath(root) + "/"
        self._open: OrderedDict[str, int] = OrderedDict()
        # Directories that exist, by relative path; the value is True if their names in their parents are durable.
        self._directories: dict[str, bool] = {"": True}
        self.on_fsync: Callable[[], None] = lambda: None
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="fsync")

    def close(self) -> None:
        """Closes all files, ends the worker thread and unlocks the directory."""
        self._worker.shutdown(wait=True)
        while self._open:
            os.close(self._open.popitem()[1])
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # Reading

    def exists(self, path: str) -> bool:
        """Whether a file with this name exists."""
        return os.path.isfile(self._full(path))

    def list(self, directory: str) -> list[str]:
        """Returns the names in a directory, sorted; empty if it does not exist."""
        full = self.root if directory in ("", ".") else Path(self._full(directory))
        try:
            names = os.listdir(full)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(name for name in names if name != LOCK_FILE)

    def size(self, path: str) -> int:
        """Returns the length of a file in bytes."""
        return os.fstat(self._descriptor(path, create=False)).st_size

    def read(self, path: str, offset: int = 0, length: int = -1) -> bytes:
        """Returns at most `length` bytes from `offset`; -1 means to the end."""
        descriptor = self._descriptor(path, create=False)
        if length < 0:
            length = max(os.fstat(descriptor).st_size - offset, 0)
        data = os.pread(descriptor, length, offset)
        if len(data) == length or not data:
            return data
        parts = [data]
        got = len(data)
        while got < length:
            data = os.pread(descriptor, length - got, offset + got)
            if not data:
                break
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    # Changing

    def append(self, path: str, data: bytes) -> None:
        """Adds bytes at the end; creates the file. On `ENOSPC` a prefix may have been written."""
        descriptor = self._descriptor(path, create=True)
        written = os.write(descriptor, data) if data else 0
        while written < len(data):
            written += os.write(descriptor, data[written:])

    def write(self, path: str, data: bytes) -> None:
        """Creates the file, or replaces its content in place."""
        os.ftruncate(self._descriptor(path, create=True), 0)
        self.append(path, data)

    def truncate(self, path: str, size: int) -> None:
        """Cuts off the end of a file.

        Raises:
            ValueError: The file is shorter than `size`.
        """
        descriptor = self._descriptor(path, create=False)
        current = os.fstat(descriptor).st_size
        if not 0 <= size <= current:
            raise ValueError(f"{path} has {current} bytes and cannot be truncated to {size}")
        os.ftruncate(descriptor, size)

    def replace(self, source: str, target: str) -> None:
        """Renames a file over another."""
        full_source, full_target = self._full(source), self._full(target)
        self._make_parents(target)
        self._forget(target)
        self._forget(source)
        os.replace(full_source, full_target)

    def remove(self, path: str) -> None:
        """Removes a file, and its directory if it is empty then: directories exist only together with files."""
        self._forget(path)
        os.remove(self._full(path))
        parent = path.rpartition("/")[0]
        while parent:
            try:
                os.rmdir(self._full(parent))
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                    raise
                return
            self._directories.pop(parent, None)
            parent = parent.rpartition("/")[0]

    # Durability

    async def fsync(self, path: str) -> None:
        """Makes the current content of a file durable before it returns."""
        # A duplicate, because the file may be closed or removed meanwhile.
        descriptor = os.dup(self._descriptor(path, create=False))
        self.on_fsync()
        await asyncio.get_running_loop().run_in_executor(self._worker, _fsync_and_close, descriptor)

    def fsync_blocking(self, path: str) -> None:
        """Does the same as `fsync`, but blocks the whole node."""
        descriptor = self._descriptor(path, create=False)
        self.on_fsync()
        os.fsync(descriptor)

    def fsync_dir(self, directory: str) -> None:
        """Makes creations, renames and removals in a directory durable; blocks the whole node."""
        directory = "" if directory == "." else directory.strip("/")
        while True:
            self._fsync_one_directory(directory)
            if self._directories.get(directory, True):
                return
            # The directory itself is new: its name is in its parent.
            self._directories[directory] = True
            directory = directory.rpartition("/")[0]

    def _fsync_one_directory(self, directory: str) -> None:
        full = os.fspath(self.root) if not directory else self._full(directory)
        try:
            descriptor = os.open(full, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # it was removed together with its last file
        _fsync_and_close(descriptor)

    # Paths and descriptors

    def _full(self, path: str) -> str:
        if not path or path.startswith("/") or ".." in path.split("/") or "\0" in path:
            raise ValueError(f"{path!r} is not a relative path inside the data directory")
        return self._prefix + path

    def _descriptor(self, path: str, *, create: bool) -> int:
        descriptor = self._open.get(path)
        if descriptor is not None:
            self._open.move_to_end(path)
            return descriptor
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
        if create:
            self._make_parents(path)
            flags |= os.O_CREAT
        descriptor = os.open(self._full(path), flags, 0o644)
        self._open[path] = descriptor
        if len(self._open) > OPEN_FILES_MAX:
            os.close(self._open.popitem(last=False)[1])
        return descriptor

    def _forget(self, path: str) -> None:
        descriptor = self._open.pop(path, None)
        if descriptor is not None:
            os.close(descriptor)

    def _make_parents(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        if parent in self._directories:
            return
        made = []
        while parent and parent not in self._directories:
            made.append(parent)
            parent = parent.rpartition("/")[0]
        for directory in reversed(made):
            try:
                os.mkdir(self._full(directory))
                self._directories[directory] = False
            except FileExistsError:
                self._directories[directory] = True


def _fsync_and_close(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
