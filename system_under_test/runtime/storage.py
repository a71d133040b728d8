"""The storage door: the few file operations a broker needs, with the durability of a POSIX file system.

Everything written is in the page cache: a killed process keeps it, a power cut may lose all that was not
fsynced. Paths are relative, with "/" between parts, and never leave the node's data directory.

Two ways to fsync exist on purpose. `fsync` is awaited; the node works on other things meanwhile, and the
caller must check its assumptions again afterwards. `fsync_blocking` holds the whole node, as Kafka does
when it flushes a small checkpoint under the partition lock; it is for critical sections, which never await.
"""

from typing import Protocol


class Storage(Protocol):
    """The files of one node.

    Every call may raise `OSError` (`ENOSPC` after a partial append, `EIO`, `EROFS`); `FileNotFoundError`
    for a missing file. Directories come into being with the first file in them.
    """

    def exists(self, path: str) -> bool:
        """Whether a file of this name is visible."""
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
        """Cuts a file. May come back after a power cut."""
        ...

    def replace(self, source: str, target: str) -> None:
        """Renames a file over another. May be undone by a power cut until `fsync_dir`."""
        ...

    def remove(self, path: str) -> None:
        """Removes a file. May be undone by a power cut until `fsync_dir`."""
        ...

    async def fsync(self, path: str) -> None:
        """Makes the present content of a file durable; returns when it is."""
        ...

    def fsync_blocking(self, path: str) -> None:
        """As `fsync`, with the whole node waiting."""
        ...

    def fsync_dir(self, directory: str) -> None:
        """Makes creations, renames and removals in a directory durable, with the whole node waiting."""
        ...
