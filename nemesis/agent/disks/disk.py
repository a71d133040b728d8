"""The disk of one node: its own file system, on an image file that is mounted through a loop device.

    DIR.img        the image, sparse: what survives a power cut
    DIR/           a shared mount of itself: containers that see it as a slave see what is mounted below
    DIR/disk/      the file system
    DIR/disk/data/ the node's files

A power cut discards what was not fsynced (`power_cut.py`), and the file system can be replaced, filled, frozen,
mounted read-only or made to fail. `destroy` undoes everything, also after a crash of the agent, because it needs
only the name of the directory.
"""

import base64
import contextlib
import errno
import os
import threading
import time
from pathlib import Path
from random import Random
from typing import Any

from nemesis.agent.disks import freezer, log_files, mounts
from nemesis.agent.disks.freezer import Freezer
from nemesis.agent.disks.images import (
    FILESYSTEMS,
    FOLDER,
    MIB,
    NO_LOG_FLUSH,
    SIZE_MIB_MIN,
    identity_of,
    image_of,
    make_image,
    remove_disk,
    shutdown_descriptor,
    stored_bytes,
    sync_filesystem,
)
from nemesis.agent.disks.snapshot import Snapshot, take_snapshot
from nemesis.agent.errors import AgentError

DATA = "data"
BALLAST = ".ballast"
PROBE = ".probe"

PROBE_BEYOND_BYTES = 4 << 20
FILL_STEP_MIN_BYTES = 4096
FILL_TOLERANCE_BYTES = 65536
FILL_LIMIT_S = 5.0
FILL_PAUSE_S = 0.005


Response = dict[str, Any]


class NodeDisk:
    """The disk of one node. Mutable; made with `create` or `attach`.

    Attributes:
        directory: The shared directory.
        image: The image file.
        mountpoint: Where the file system is mounted.
        data: The node's files.
        filesystem: "ext4" or "xfs".
        log_pattern: Which files are segments of logs, relative to `data`; "" if they are Kafka's.
    """

    def __init__(self, directory: Path, filesystem: str, size_mib: int) -> None:
        self.directory = directory
        self.filesystem = filesystem
        self.size_mib = size_mib
        self.image = image_of(directory)
        self.mountpoint = directory / FOLDER
        self.data = self.mountpoint / DATA
        self.log_pattern = ""
        self._ballast_free_bytes: int | None = None
        self._freezer: Freezer | None = None
        self._thawed: Response = {"frozen": False, "blocked_ms": 0.0}
        self._must_unfill = False
        self._lock = threading.RLock()
        # A second lock: the holder of the first one may be waiting for the file system to thaw.
        self._freezer_lock = threading.Lock()

    @classmethod
    def create(cls, directory: Path, *, filesystem: str, size_mib: int = 512) -> "NodeDisk":
        """Makes a new, empty, mounted disk.

        Args:
            directory: It is made; the image is placed beside it.
            filesystem: "ext4" or "xfs".
            size_mib: Size of the file system. The image is sparse.

        Raises:
            AgentError: There is a disk already, or this host does not support disks.
        """
        if filesystem not in FILESYSTEMS:
            raise AgentError(f"{filesystem!r} is not a file system for nodes; use ext4 or xfs")
        if size_mib < SIZE_MIB_MIN[filesystem]:
            raise AgentError(f"{filesystem} needs at least {SIZE_MIB_MIN[filesystem]} MiB")
        directory = directory.absolute()
        disk = cls(directory, filesystem, size_mib)
        if disk.image.exists() or mounts.mount_at(disk.mountpoint) is not None:
            raise AgentError(f"there is a disk at {directory} already; attach or destroy it")
        try:
            directory.mkdir(parents=True, exist_ok=True)
            mounts.share(directory)
            disk.mountpoint.mkdir(exist_ok=True)
            make_image(disk.image, filesystem, size_mib)
            disk.mount()
            disk._make_data()
        except (OSError, AgentError) as error:
            with contextlib.suppress(OSError, AgentError):
                disk.destroy()
            raise AgentError(f"no disk can be made at {directory}: {error}") from None
        return disk

    @classmethod
    def attach(cls, directory: Path) -> "NodeDisk":
        """Returns a disk that exists, for instance after a restart of the agent; it need not be mounted.

        Raises:
            AgentError: There is no disk at this directory.
        """
        directory = directory.absolute()
        image = image_of(directory)
        try:
            filesystem, _ = identity_of(image)
            size = image.stat().st_size
        except OSError as error:
            raise AgentError(f"there is no disk at {directory}: {error}") from None
        disk = cls(directory, filesystem, size // MIB)
        directory.mkdir(parents=True, exist_ok=True)
        mounts.share(directory)
        disk.mountpoint.mkdir(exist_ok=True)
        return disk

    # -- mounting

    @property
    def is_frozen(self) -> bool:
        """Whether writes wait."""
        return self._freezer is not None

    @property
    def is_mounted(self) -> bool:
        """Whether the file system is mounted."""
        return mounts.mount_at(self.mountpoint) is not None

    @property
    def is_read_only(self) -> bool:
        """Whether it is mounted read-only."""
        there = mounts.mount_at(self.mountpoint)
        return there is not None and there.is_read_only

    @property
    def device(self) -> str:
        """The loop device; "" if it is not mounted."""
        there = mounts.mount_at(self.mountpoint)
        return there.source if there is not None else ""

    def mount(self, *, read_only: bool = False, with_ballast: bool = True) -> None:
        """Mounts the image; replays its journal. Does nothing if it is mounted that way already.

        Args:
            read_only: Whether nothing may be written.
            with_ballast: Whether a full disk is filled again at once; `restore_ballast` does it otherwise.

        Raises:
            AgentError: It is mounted the other way, or the old file system is still mounted somewhere.
        """
        with self._lock:
            there = mounts.mount_at(self.mountpoint)
            if there is not None:
                if there.is_read_only != read_only:
                    raise AgentError(f"{self.mountpoint} is mounted; unmount it first")
                return
            attached = mounts.loops_below(self.image)
            if attached:
                raise AgentError(
                    f"{self.image} is still attached to {', '.join(attached)}; "
                    "mounting it twice would destroy it"
                )
            device, descriptor = mounts.attach_loop(self.image)
            try:
                flags = mounts.MS_RDONLY if read_only else 0
                mounts.mount(device, self.mountpoint, self.filesystem, flags)
            except OSError as error:
                raise AgentError(f"{self.image} cannot be mounted: {error}") from None
            finally:
                os.close(descriptor)
            if self._ballast_free_bytes is not None and not read_only:
                # A power cut may have removed some of it.
                self._drop_ballast()
                if with_ballast:
                    self.restore_ballast()

    def unmount(self) -> None:
        """Unmounts, in every mount namespace; thaws first, and retries for some seconds.

        Raises:
            AgentError: A process uses it for too long.
        """
        with self._lock:
            self.thaw()
            if self.is_mounted:
                freezer.thaw_now(self.mountpoint)  # perhaps an earlier agent froze it
            mounts.unmount(self.mountpoint)

    def wipe(self) -> Response:
        """Replaces the file system by a new, empty one; the node is down.

        Returns:
            Bytes in the node's files and the file system's id, before and after.
        """
        with self._lock:
            before = stored_bytes(self.data)
            _, id_before = identity_of(self.image)
            self.unmount()
            self._ballast_free_bytes = None
            make_image(self.image, self.filesystem, self.size_mib)
            self.mount()
            self._make_data()
            _, id_after = identity_of(self.image)
            return {
                "bytes_before": before,
                "bytes_after": stored_bytes(self.data),
                "filesystem_id_before": id_before,
                "filesystem_id_after": id_after,
            }

    def _make_data(self) -> None:
        """Makes the node's directory, durably: no power cut removes it."""
        self.data.mkdir(exist_ok=True)
        sync_filesystem(self.mountpoint)

    # -- faults

    def shutdown(self, flag: int = NO_LOG_FLUSH) -> None:
        """Cuts the file system off from its image: what was not durable is lost, and every call fails with EIO.

        Raises:
            AgentError: It is not mounted, or the kernel refuses.
        """
        with self._lock:
            self.thaw()
            descriptor = self.open_for_shutdown()
            try:
                shutdown_descriptor(descriptor, flag)
            finally:
                os.close(descriptor)

    def open_for_shutdown(self) -> int:
        """Returns a descriptor for `shutdown_descriptor`, so that several disks can be shut down together."""
        if not self.is_mounted:
            raise AgentError(f"{self.mountpoint} is not mounted")
        return os.open(self.mountpoint, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def snapshot(self) -> Snapshot:
        """Returns the node's files as the page cache has them; close it after a shutdown."""
        return take_snapshot(self.data, spool_folder=self.directory.parent)

    def fill(self, free_bytes: int = 0) -> Response:
        """Fills the file system up with a ballast file. It stays full through power cuts, until `unfill`.

        Args:
            free_bytes: How much is left.

        Returns:
            The size of the ballast, the free bytes, and the result of a probe that wrote more than that.

        Raises:
            AgentError: The disk is full already, or the probe could write more than it should.
        """
        with self._lock:
            if self._ballast_free_bytes is not None:
                raise AgentError(f"{self.mountpoint} is full already")
            if free_bytes < 0:
                raise AgentError("free_bytes is 0 or more")
            if self.is_frozen:
                raise AgentError(f"{self.mountpoint} is frozen; thaw it first")
            before = self._free_bytes()
            if free_bytes > before:
                raise AgentError(f"only {before} bytes are free, and {free_bytes} should be left")
            self._ballast_free_bytes = free_bytes
            try:
                # Made while there is room: xfs refuses new files earlier than new data.
                (self.mountpoint / PROBE).touch()
                ballast, probe = self._fill_up(free_bytes)
            except (OSError, AgentError):
                self.unfill()
                raise
            return {
                "free_bytes_before": before,
                "free_bytes_after": self._free_bytes(),
                "ballast_bytes": ballast,
                "probe": probe,
            }

    def _fill_up(self, free_bytes: int) -> tuple[int, Response]:
        """Grows the ballast until a probe can write only so much; returns its size and the probe's result."""
        deadline_s = time.monotonic() + FILL_LIMIT_S
        ballast = self._grow_ballast(free_bytes)
        while True:
            probe = self.probe_write(free_bytes + PROBE_BEYOND_BYTES)
            excess = probe["written_bytes"] - free_bytes
            is_full = probe["errno"] == errno.ENOSPC
            if is_full and abs(excess) <= FILL_TOLERANCE_BYTES:
                return ballast, probe
            if time.monotonic() > deadline_s:
                raise AgentError(f"{self.mountpoint} could not be filled: the probe found {probe}")
            # The reported free space is not what can be written; the probe knows, unless it was never refused.
            change = excess if is_full else max(excess, self._free_bytes() - free_bytes)
            ballast = self._change_ballast(change)
            time.sleep(FILL_PAUSE_S)  # removed files return their blocks with a delay

    def unfill(self) -> None:
        """Removes the ballast, from a frozen disk when it thaws; idempotent."""
        with self._lock:
            self._ballast_free_bytes = None
            with self._freezer_lock:
                self._must_unfill = self.is_frozen
                if self._must_unfill:
                    return
            self._drop_ballast()
            (self.mountpoint / PROBE).unlink(missing_ok=True)

    def probe_write(self, size: int = 8192) -> Response:
        """Tries to write bytes to a file beside the node's; returns how many were written, and the errno."""
        path = self.mountpoint / PROBE
        is_kept = self._ballast_free_bytes is not None
        written = 0
        number = 0
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                while written < size:
                    written += os.write(descriptor, b"\xa5" * min(4096, size - written))
            finally:
                os.ftruncate(descriptor, 0)
                os.close(descriptor)
        except OSError as error:
            number = error.errno or 0
        if not is_kept:
            with contextlib.suppress(OSError):
                path.unlink()
        return {
            "written_bytes": written,
            "errno": number,
            "error": os.strerror(number) if number else "",
        }

    def _free_bytes(self) -> int:
        state = os.statvfs(self.mountpoint)
        return state.f_bavail * state.f_frsize

    def _grow_ballast(self, free_bytes: int) -> int:
        """Grows the ballast until so much is reported as free; returns its size."""
        return self._change_ballast(max(0, self._free_bytes() - free_bytes))

    def _change_ballast(self, change: int) -> int:
        """Grows the ballast as far as there is space, or shrinks it; returns its size."""
        path = self.mountpoint / BALLAST
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if change < 0:
                os.ftruncate(descriptor, max(0, size + change))
            step = change
            while step >= FILL_STEP_MIN_BYTES and change >= FILL_STEP_MIN_BYTES:
                try:
                    os.posix_fallocate(descriptor, size, step)
                except OSError as error:
                    if error.errno not in (errno.ENOSPC, errno.EFBIG):
                        raise
                    os.ftruncate(descriptor, size)
                    step //= 2
                    continue
                size += step
                change -= step
                step = min(step, change)
            return os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)

    def _drop_ballast(self) -> None:
        (self.mountpoint / BALLAST).unlink(missing_ok=True)

    def restore_ballast(self) -> None:
        """Fills the disk again, if it should be full."""
        if self._ballast_free_bytes is not None:
            self._grow_ballast(self._ballast_free_bytes)

    def freeze(self, watchdog_s: float) -> Response:
        """Makes every write wait, until `thaw`, until the time is up, or until the agent ends.

        Returns:
            `probe_blocked`: whether the write of a probe was seen waiting.

        Raises:
            AgentError: It is frozen already, or cannot be.
        """
        with self._lock, self._freezer_lock:
            if self._freezer is not None:
                raise AgentError(f"{self.mountpoint} is frozen already; thaw it first")
            if not self.is_mounted:
                raise AgentError(f"{self.mountpoint} is not mounted")
            self._freezer = Freezer(self.mountpoint, self.mountpoint / PROBE, watchdog_s)
            return dict(self._freezer.evidence)

    def thaw(self) -> Response:
        """Lets writes continue; returns what thawed the disk and how long the probe had to wait.

        Idempotent: a disk that has thawed already, for instance because the node was killed, reports that thaw.
        """
        with self._freezer_lock:
            if self._freezer is not None:
                self._thawed = self._freezer.thaw()
                self._freezer = None
            must_unfill, self._must_unfill = self._must_unfill, False
        if must_unfill:
            self.unfill()
        return dict(self._thawed)

    def flip_bit(self, seed: int) -> Response:
        """Flips one bit of a partition log where recovery must detect it; the node is down.

        Returns:
            The place, and the byte before and after; or `bit` None and the reason.
        """
        chosen = log_files.choose_flip(self.data, Random(seed), self.log_pattern)
        if chosen is None:
            why = "no partition log has a whole batch beyond its recovery point"
            return {"bit": None, "why": why}
        place, offset, bit = chosen
        descriptor = os.open(place.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            before = os.pread(descriptor, 1, offset)[0]
            os.pwrite(descriptor, bytes([before ^ 1 << bit]), offset)
            os.fsync(descriptor)
            after = os.pread(descriptor, 1, offset)[0]
        finally:
            os.close(descriptor)
        return {
            "path": place.path.relative_to(self.data).as_posix(),
            "offset": offset,
            "bit": bit,
            "byte_before": before,
            "byte_after": after,
        }

    def truncate_file(self, size: int) -> Response:
        """Cuts bytes off the newest segment of the largest partition log, durably; the node is down.

        Args:
            size: How many bytes; a shorter segment becomes empty.

        Returns:
            The segment, and its size before and after; empty if there is no partition log with records.
        """
        path = log_files.newest_segment_of_largest_log(self.data, self.log_pattern)
        if path is None:
            return {}
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            before = os.fstat(descriptor).st_size
            os.ftruncate(descriptor, max(0, before - size))
            os.fsync(descriptor)
            after = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
        return {
            "path": path.relative_to(self.data).as_posix(),
            "bytes_before": before,
            "bytes_after": after,
        }

    # -- files

    def format(self, files: dict[str, str]) -> Response:
        """Writes files durably if the node has none yet; does nothing otherwise.

        Args:
            files: Path below the node's directory to base64.

        Returns:
            Whether they were written.
        """
        with self._lock:
            if any(self.data.iterdir()):
                return {"formatted": False}
            for path, text in files.items():
                place = self._inside(path)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(base64.b64decode(text, validate=True))
            sync_filesystem(self.mountpoint)
            return {"formatted": True}

    def list_files(self, directory: str) -> Response:
        """Returns the names in a directory of the node's files; none if it does not exist."""
        try:
            return {"names": sorted(os.listdir(self._inside(directory)))}
        except FileNotFoundError:
            return {"names": []}

    def read_bytes(self, path: str, offset: int, length: int) -> Response:
        """Returns at most `length` bytes of one of the node's files."""
        with open(self._inside(path), "rb") as file:
            return {"base64": base64.b64encode(os.pread(file.fileno(), length, offset)).decode()}

    def _inside(self, path: str) -> Path:
        full = self.data / path
        if self.data not in full.parents or ".." in full.parts:
            raise AgentError(f"{path} is not below the node's files")
        return full

    # -- end

    def destroy(self) -> None:
        """Removes the disk from the host; idempotent, also after crashes.

        Raises:
            AgentError: A process uses it for too long.
        """
        with self._lock:
            self.thaw()
            remove_disk(self.directory)
