"""The storage interface of one process.

Appending is the hot path: while the disk has no faults and the process is alive, it is a dictionary lookup and a
bytearray extension.
"""

import errno

from harness.simulation.device import Device
from harness.simulation.errors import NodeIsDead
from harness.simulation.inode import Inode, Sync
from harness.simulation.loop import NodeLoop


class NodeStorage:
    """Implements `system_under_test.runtime.Storage` over a device.

    Args:
        disk: The device.
        loop: The process that uses it; None for the harness.
    """

    def __init__(self, disk: Device, loop: NodeLoop | None) -> None:
        self._disk = disk
        self._loop = loop
        self._files = disk.files
        self._is_plain = False
        self.refresh()
        disk.attach(self)

    @property
    def is_dead(self) -> bool:
        """Whether the process that uses it has ended."""
        return self._loop is not None and self._loop.dead

    def refresh(self) -> None:
        """Adapts to the faults of the device and to the end of the process."""
        disk = self._disk
        self._is_plain = not (self.is_dead or disk.faults or disk.background)

    def _check_alive(self) -> None:
        if self._loop is not None and self._loop.dead:
            raise NodeIsDead(f"{self._loop!r} is dead and cannot use its disk")

    # Reading

    def exists(self, path: str) -> bool:
        """Whether a file of this name is visible."""
        self._check_alive()
        return path in self._files

    def list(self, directory: str) -> list[str]:
        """Returns the names in a directory, files and directories, sorted; empty if it does not exist."""
        self._check_alive()
        prefix = "" if directory in ("", ".") else directory.rstrip("/") + "/"
        skip = len(prefix)
        found = {path[skip:].split("/", 1)[0] for path in self._files if path.startswith(prefix)}
        return sorted(found)

    def size(self, path: str) -> int:
        """Returns the length of a file in bytes."""
        return len(self.inode(path).data)

    def read(self, path: str, offset: int = 0, length: int = -1) -> bytes:
        """Returns at most `length` bytes from `offset`; -1 means to the end."""
        inode = self._files.get(path) if self._is_plain else None
        if inode is None:
            self._check_alive()
            self._disk.check_io("read", path, changes=False)
            inode = self.inode(path)
        data = inode.data
        end = len(data) if length < 0 else offset + length
        # The memoryview ends with the statement, so it never prevents the file from growing.
        return bytes(memoryview(data)[offset:end])

    def inode(self, path: str) -> Inode:
        """Returns the file behind a name.

        Raises:
            FileNotFoundError: It does not exist.
        """
        self._check_alive()
        inode = self._files.get(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return inode

    # Changing

    def append(self, path: str, data: bytes) -> None:
        """Adds bytes at the end; creates the file. On `ENOSPC` a prefix may have been written."""
        if self._is_plain:
            inode = self._files.get(path)
            if inode is not None:
                inode.data += data
                return
        self._append_carefully("append", path, data)

    def _append_carefully(self, operation: str, path: str, data: bytes) -> None:
        self._check_alive()
        disk = self._disk
        disk.check_io(operation, path)
        inode = self._files.get(path)
        if inode is None:
            inode = self._create(path)
        if disk.background:
            inode.note_age(disk.timeline.now)
        fits = disk.take_space(len(data))
        inode.data += data[:fits]
        disk.stop_writer(self._loop)
        if fits < len(data):
            raise OSError(errno.ENOSPC, f"the disk of {disk.node_name} is full", path)

    def _create(self, path: str) -> Inode:
        if not path or path.startswith("/") or ".." in path.split("/"):
            raise ValueError(f"{path!r} is not a relative path inside the data directory")
        inode = self._files[path] = Inode()
        self._disk.log("create", path, inode)
        return inode

    def write(self, path: str, data: bytes) -> None:
        """Creates the file, or replaces its content in place (not atomic: use it for temporary files)."""
        self._check_alive()
        self._disk.check_io("write", path)
        if path in self._files:
            self._cut(path, self._files[path], 0)
        self._append_carefully("write", path, data)

    def truncate(self, path: str, size: int) -> None:
        """Cuts a file. A power cut may undo this.

        Raises:
            ValueError: The file is shorter than `size`.
        """
        inode = self.inode(path)
        self._disk.check_io("truncate", path)
        if not 0 <= size <= len(inode.data):
            raise ValueError(f"{path} has {len(inode.data)} bytes and cannot be cut to {size}")
        self._cut(path, inode, size)
        self._disk.stop_writer(self._loop)

    def _cut(self, path: str, inode: Inode, size: int) -> None:
        disk = self._disk
        length = len(inode.data)
        if size == length:
            return
        disk.settle()
        if disk.profile != "xfs":
            inode.grow_in_its_block()
        if size > inode.size_on_disk:
            # xfs writes the appended bytes that remain after the cut; ext4 journals only the size.
            inode.begin_write_back(size)
        sequence = disk.next_sequence()
        if inode.cut(size, sequence):
            disk.log("truncate", path, inode, size=size).sequence = sequence
        disk.release_space(length - size)

    def replace(self, source: str, target: str) -> None:
        """Renames a file over another. A power cut before `fsync_dir` may undo this."""
        inode = self.inode(source)
        self._disk.check_io("write", target)
        if source == target:
            return
        replaced = self._files.get(target)
        if replaced is not None:
            self._disk.release_space(len(replaced.data))
        self._disk.settle()
        if inode.truncations or len(inode.data) != inode.durable_size:
            inode.begin_write_back(len(inode.data))
        del self._files[source]
        self._files[target] = inode
        self._disk.log("rename", source, inode, target=target)
        self._disk.stop_writer(self._loop)

    def remove(self, path: str) -> None:
        """Removes a file. A power cut before `fsync_dir` may undo this."""
        inode = self.inode(path)
        self._disk.check_io("write", path)
        self._disk.settle()
        if inode.truncations or len(inode.data) != inode.durable_size:
            inode.begin_write_back(len(inode.data))
        del self._files[path]
        self._disk.log("unlink", path, inode)
        self._disk.release_space(len(inode.data))
        self._disk.stop_writer(self._loop)

    # Making durable

    async def fsync(self, path: str) -> None:
        """Makes the present content of a file durable; returns when it is."""
        inode = self.inode(path)
        disk, loop = self._disk, self._loop
        sync = self._begin_sync(path, inode)
        if loop is None:
            self._complete_or_raise(sync)
            return
        future = loop.create_future()

        def device_done(sync: Sync) -> None:
            error = disk.check_sync(sync)
            if error is None:
                disk.complete(sync)
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        disk.schedule_completion(sync, device_done)
        await future

    def fsync_blocking(self, path: str) -> None:
        """Like `fsync`, but the whole process waits."""
        self._sync_blocking(self._begin_sync(path, self.inode(path)))

    def fsync_dir(self, directory: str) -> None:
        """Makes creations, renames and removals in a directory durable, while the whole process waits."""
        self._check_alive()
        name = "" if directory in ("", ".") else directory.rstrip("/")
        self._sync_blocking(self._begin_sync(name, None))

    def _begin_sync(self, path: str, inode: Inode | None) -> Sync:
        disk = self._disk
        listener = disk.timeline.listener
        if listener is not None and self._loop is not None:
            listener.sync_began(disk.node_name)
        return disk.begin_sync(path, inode)

    def _sync_blocking(self, sync: Sync) -> None:
        disk, loop = self._disk, self._loop
        if loop is None or not disk.syncs_take_time:
            self._complete_or_raise(sync)
            return
        # The call returns now although the device is busy, since a plain call cannot wait in virtual time.
        # Instead, the effects of the process wait: its frames leave, and its next callback runs, when the device
        # is done. During a power cut before that, the sync is in flight.
        error = disk.check_sync(sync)
        if error is not None:
            raise error
        sync.is_blocking = True
        if disk.is_stuck:
            loop.freeze()
            disk.schedule_completion(sync, self._thaw)
        else:
            loop.be_busy_until(disk.schedule_completion(sync, disk.complete))

    def _thaw(self, sync: Sync) -> None:
        self._disk.complete(sync)
        assert self._loop is not None
        self._loop.thaw()

    def _complete_or_raise(self, sync: Sync) -> None:
        error = self._disk.check_sync(sync)
        if error is not None:
            raise error
        self._disk.complete(sync)
