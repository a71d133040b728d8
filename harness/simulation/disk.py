"""The disk of one node as the harness uses it: its files, and the faults that it injects."""

import errno

from harness.simulation.device import Device, DiskFault
from harness.simulation.loop import NodeLoop
from harness.simulation.power_cut import PowerCutReport, cut_power
from harness.simulation.storage import NodeStorage
from harness.simulation.timeline import Timeline

IO_OPERATIONS = frozenset({"append", "write", "read", "truncate", "fsync", "any"})


class SimDisk(Device, NodeStorage):
    """The disk of one node, through all its incarnations. The harness can read and write it directly.

    Args:
        timeline: The timeline of the world.
        node_name: The node that owns the disk.

    Attributes:
        disk_id: Changes with every `wipe`.
    """

    def __init__(self, timeline: Timeline, node_name: str) -> None:
        Device.__init__(self, timeline, node_name)
        NodeStorage.__init__(self, self, None)
        self.disk_id = 1

    def storage_for(self, loop: NodeLoop) -> NodeStorage:
        """Returns the storage interface of one process."""
        return NodeStorage(self, loop)

    # Faults

    def power_cut(self, mode: str, *, keep: dict[str, int] | None = None) -> PowerCutReport:
        """Cuts the power; see `power_cut.cut_power`."""
        report = cut_power(self, mode, keep or {})
        self._epoch += 1
        self._stuck.clear()
        self.syncs.clear()
        self.journal.clear()
        self._device_free_ns = 0
        self._mounted_ns = self._committed_ns = self.timeline.now
        return report

    def io_error(
        self,
        operation: str,
        prefix: str = "",
        *,
        error: int = errno.EIO,
        count: int | None = None,
        every: int = 1,
    ) -> DiskFault:
        """Makes an operation fail on files whose path begins with a prefix.

        After a failed fsync, the pages are marked clean although they are not durable: the kernel reports the
        error once, and the next fsync succeeds.

        Args:
            operation: "append", "write", "read", "truncate", "fsync" or "any".
            prefix: Beginning of the path; empty for all files.
            error: The errno.
            count: Number of failures; None for unlimited.
            every: Only every n-th of these calls fails.
        """
        if operation not in IO_OPERATIONS:
            raise ValueError(f"{operation!r} is not one of {', '.join(sorted(IO_OPERATIONS))}")
        return self.add_fault(
            DiskFault(
                kind="io-error",
                operation=operation,
                prefix=prefix,
                error=error,
                remaining=count,
                every=every,
            )
        )

    def full(self, free_bytes: int = 0) -> DiskFault:
        """Limits the free space. Cutting and removing files frees space."""
        return self.add_fault(DiskFault(kind="full", free_bytes=free_bytes))

    def slow(self, *, extra_ns: int = 0, factor: float = 1.0) -> DiskFault:
        """Makes every fsync take longer."""
        return self.add_fault(DiskFault(kind="slow", extra_ns=extra_ns, factor=factor))

    def stuck(self, *, stops_writes: bool = False) -> DiskFault:
        """Completes no fsync until healed; a process that waits for one is blocked.

        Args:
            stops_writes: Whether a process that changes a file is blocked, too, as on a frozen file system.
        """
        return self.add_fault(DiskFault(kind="stuck", stops_writes=stops_writes))

    def read_only(self) -> DiskFault:
        """Refuses every change, as a kernel does after it has remounted a broken file system read-only."""
        return self.add_fault(DiskFault(kind="read-only"))

    def fsync_lies(self) -> DiskFault:
        """Makes fsync succeed without making anything durable, as broken drives do."""
        return self.add_fault(DiskFault(kind="fsync-lies"))

    def wipe(self, prefix: str = "") -> None:
        """Replaces the disk by a new, empty one. The node should be down, since syncs in flight never complete.

        Args:
            prefix: Beginning of the paths that are on the disk, if the node has several; empty for all files.
        """
        self.timeline.trace.note(self.timeline.now, f"disk {self.node_name} wipe {prefix}".rstrip())
        if prefix:
            with self.timeline.inspecting():
                for path in [path for path in self.files if path.startswith(prefix)]:
                    self.remove(path)
                    self.fsync_dir(path.rpartition("/")[0])
            return
        self._epoch += 1
        self.disk_id += 1
        self.files.clear()
        self.names.clear()
        self.journal.clear()
        self.syncs.clear()
        self._stuck.clear()

    def bit_flip(self, path: str, offset: int, bit: int = 0) -> None:
        """Flips one bit of a file, in the cache and in the durable image.

        Raises:
            FileNotFoundError: There is no such file.
            ValueError: The file is shorter.
        """
        inode = self.inode(path)
        if not 0 <= offset < len(inode.data):
            raise ValueError(
                f"{path} has only {len(inode.data)} bytes, so byte {offset} cannot be changed"
            )
        self.timeline.trace.note(
            self.timeline.now, f"disk {self.node_name} bit flip {path}", offset
        )
        inode.data[offset] ^= 1 << bit
        if inode.durable is not None and offset < len(inode.durable):
            image = bytearray(inode.durable)
            image[offset] ^= 1 << bit
            inode.durable = bytes(image)

    def peek(self, path: str) -> bytes:
        """Returns the cached content of a file, for the harness: no fault applies, and none is counted."""
        return bytes(self.files[path].data)

    def stored_bytes(self) -> int:
        """Returns the total length of all files."""
        return sum(len(inode.data) for inode in self.files.values())
