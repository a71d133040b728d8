"""The storage interface: the file operations that a broker needs, with the durability of a POSIX file system.

Written data is in the page cache: it survives the end of the process, but a power cut may lose everything that
was not fsynced. Paths are relative, with "/" between parts, and never leave the node's data directory.

There are two ways to fsync. `fsync` is awaited; the node continues with other work meanwhile, and the caller
must check its assumptions again afterwards. `fsync_blocking` blocks the whole node, as Kafka does when it
flushes a small checkpoint under the partition lock; it is for critical sections, which never await.
"""

from typing import Protocol


class Storage(Protocol):
    """The files of one node.

    Every call may raise `OSError` (`ENOSPC` after a partial append, `EIO`, `EROFS`); `FileNotFoundError`
    for a missing file. Directories are created with their first file.
    """

    def exists(self, path: str) -> bool:
        """Whether a file with this name exists."""
        ...

    def list(self, directory: str) -> list[str]:
        """Returns the names in a directory, files and directories, sorted; empty if it does not exist."""
        ...

    def size(self, path: str) -> int:
        """Returns the length of a file in bytes."""
        ...

    def read(self, path: str, offset: int = 0, length: int = -1) -> bytes:
        """Returns at most `length` bytes from `offset`; -1 means to the end."""
        ...

    def append(self, path: str, data: bytes) -> None:
        """Adds bytes at the end; creates the file. On `ENOSPC` a prefix may have been written."""
        ...

    def write(self, path: str, data: bytes) -> None:
        """Creates the file, or replaces its content in place (not atomic: use it for temporary files)."""
        ...

    def truncate(self, path: str, size: int) -> None:
        """Cuts off the end of a file. A power cut may undo it."""
        ...

    def replace(self, source: str, target: str) -> None:
        """Renames a file over another. A power cut may undo it until `fsync_dir`."""
        ...

    def remove(self, path: str) -> None:
        """Removes a file. A power cut may undo it until `fsync_dir`."""
        ...

    async def fsync(self, path: str) -> None:
        """Makes the current content of a file durable before it returns."""
        ...

    def fsync_blocking(self, path: str) -> None:
        """Does the same as `fsync`, but blocks the whole node."""
        ...

    def fsync_dir(self, directory: str) -> None:
        """Makes creations, renames and removals in a directory durable; blocks the whole node."""
        ...
