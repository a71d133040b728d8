"""Mounts and loop devices through system calls; no program is started, so a power cut takes milliseconds.

A loop device is attached so that it detaches itself with its last user (`LO_FLAGS_AUTOCLEAR`). An unmount is
therefore complete when the device has detached its image. Until then the old file system is still in use, in
another mount namespace or through an open file, and mounting the image a second time would destroy it.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import stat
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nemesis.agent.errors import AgentError

MS_RDONLY = 1
MS_BIND = 4096
MS_PRIVATE = 1 << 18
MS_SHARED = 1 << 20
MNT_DETACH = 2
UMOUNT_NOFOLLOW = 8

LOOP_SET_FD = 0x4C00
LOOP_CLR_FD = 0x4C01
LOOP_SET_STATUS64 = 0x4C04
LOOP_CONFIGURE = 0x4C0A
LOOP_CTL_GET_FREE = 0x4C82
LO_FLAGS_AUTOCLEAR = 4
LOOP_MAJOR = 7
LOOP_TRIES = 64

CLONE_FS = 0x200
CLONE_NEWNS = 0x20000

BUSY_LIMIT_S = 5.0
LOOK_AGAIN_S = 0.25
POLL_S = 0.001

_libc = ctypes.CDLL(None, use_errno=True)
_LOOP_INFO = struct.Struct("<5Q4I64s64s32s2Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One line of `/proc/PID/mountinfo`.

    Attributes:
        device: "major:minor".
        path: The mount point.
        source: What is mounted, for instance a loop device.
    """

    device: str
    path: str
    options: str
    filesystem: str
    source: str

    @property
    def is_read_only(self) -> bool:
        """Whether it is mounted read-only."""
        return "ro" in self.options.split(",")


def mounts(pid: "int | str" = "self") -> list[Mount]:
    """Returns what is mounted in the mount namespace of a process, oldest first; none if it is gone."""
    try:
        text = Path(f"/proc/{pid}/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return []
    found = []
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        fields, rest = left.split(" "), right.split(" ")
        if len(fields) < 6 or len(rest) < 2:
            continue
        found.append(
            Mount(
                device=fields[2],
                path=_unescape(fields[4]),
                options=fields[5],
                filesystem=rest[0],
                source=_unescape(rest[1]),
            )
        )
    return found


def mount_at(path: Path) -> Mount | None:
    """Returns the topmost mount at a path; None if nothing is mounted exactly there."""
    wanted = os.fspath(path)
    return next((mount for mount in reversed(mounts()) if mount.path == wanted), None)


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def mount(source: str, target: Path, filesystem: str, flags: int = 0) -> None:
    """Mounts.

    Raises:
        OSError: The kernel refuses.
    """
    result = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        filesystem.encode() if filesystem else None,
        ctypes.c_ulong(flags),
        None,
    )
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot mount {source}: {os.strerror(number)}", os.fspath(target))


def share(directory: Path) -> None:
    """Makes a directory a shared mount of itself, so that later mounts below it reach containers; idempotent."""
    if mount_at(directory) is None:
        mount(os.fspath(directory), directory, "", MS_BIND)
        # Private first: otherwise it would stay in its parent's group, and every mount below would appear again
        # wherever that group has members.
        mount("none", directory, "", MS_PRIVATE)
        mount("none", directory, "", MS_SHARED)


def unmount_once(target: Path, flags: int = 0) -> None:
    """Unmounts, without retrying.

    Raises:
        OSError: `EBUSY` if a process uses it, `EINVAL` if it is not a mount.
    """
    if _libc.umount2(os.fsencode(target), flags | UMOUNT_NOFOLLOW) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), os.fspath(target))


def syncfs(descriptor: int) -> None:
    """Writes everything of the file system of a descriptor.

    Raises:
        OSError: Something could not be written.
    """
    if _libc.syncfs(descriptor) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def unmount(target: Path, limit_s: float = BUSY_LIMIT_S) -> None:
    """Unmounts what is mounted at a path, in every mount namespace; does nothing if there is none.

    Raises:
        AgentError: A process uses it for too long; the message names the processes.
    """
    there = mount_at(target)
    if there is None:
        return
    image = backing_file(there.source) if there.source.startswith("/dev/loop") else ""
    deadline_s = time.monotonic() + limit_s
    while True:
        try:
            unmount_once(target)
            break
        except OSError as error:
            if error.errno == errno.EINVAL:
                break
            if error.errno != errno.EBUSY or time.monotonic() > deadline_s:
                raise AgentError(
                    f"{target} cannot be unmounted ({error.strerror}); {_describe_users(there.device)}"
                ) from None
        time.sleep(POLL_S)
    if mount_at(target) is not None:
        unmount(target, limit_s)  # it was mounted twice, one on top of the other
        return
    if image:
        _wait_released(there, image, deadline_s)


def _wait_released(there: Mount, image: str, deadline_s: float) -> None:
    """Waits until a loop device has detached its image; meanwhile unmounts it in other namespaces."""
    looked_for_s = (
        time.monotonic() + 5 * POLL_S
    )  # the kernel needs a moment even if there is no other user
    # Once it is detached, another program may take the device at once, so only its image identifies it.
    while backing_file(there.source) == image:
        now_s = time.monotonic()
        if now_s > deadline_s:
            raise AgentError(
                f"{there.path} is unmounted here but its file system is still in use; "
                f"{_describe_users(there.device)}"
            )
        if now_s > looked_for_s:
            looked_for_s = now_s + LOOK_AGAIN_S
            _unmount_elsewhere_if_attached(there, image)
        time.sleep(POLL_S)


def _unmount_elsewhere_if_attached(there: Mount, image: str) -> None:
    with contextlib.suppress(OSError):
        # While it is open, it cannot be detached and given to another process.
        held = os.open(there.source, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if backing_file(there.source) == image:
                unmount_elsewhere(there.device)
        finally:
            os.close(held)


def unmount_elsewhere(device: str) -> int:
    """Unmounts a device in all other mount namespaces; returns in how many it was mounted."""
    own = _namespace_of("self")
    seen = {own}
    count = 0
    for pid in _pids():
        namespace = _namespace_of(pid)
        if not namespace or namespace in seen:
            continue
        seen.add(namespace)
        paths = [mount.path for mount in mounts(pid) if mount.device == device]
        if paths:
            count += 1
            _in_namespace_of(pid, paths)
    return count


def _in_namespace_of(pid: int, paths: list[str]) -> None:
    """Unmounts paths in another mount namespace, from a thread that ends there."""

    def enter_and_unmount() -> None:
        with contextlib.suppress(OSError):
            descriptor = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
            try:
                # A thread that shares its working directory with others may not change its namespace.
                if _libc.unshare(CLONE_FS) == 0 and _libc.setns(descriptor, CLONE_NEWNS) == 0:
                    for path in reversed(paths):
                        with contextlib.suppress(OSError):
                            unmount_once(Path(path), MNT_DETACH)
            finally:
                os.close(descriptor)

    thread = threading.Thread(target=enter_and_unmount)
    thread.start()
    thread.join()


def users(device: str) -> dict[int, str]:
    """Returns the processes that have something open on a device: pid to name."""
    major, _, minor = device.partition(":")
    number = os.makedev(int(major), int(minor))
    found = {}
    for pid in _pids():
        if any(_is_on(path, number) for path in _held_by(pid)):
            with contextlib.suppress(OSError):
                found[pid] = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    return found


def _held_by(pid: int) -> Iterator[str]:
    yield f"/proc/{pid}/cwd"
    yield f"/proc/{pid}/root"
    yield f"/proc/{pid}/exe"
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            yield f"/proc/{pid}/fd/{name}"


def _is_on(path: str, device: int) -> bool:
    try:
        return os.stat(path).st_dev == device
    except OSError:
        return False


def _describe_users(device: str) -> str:
    found = users(device)
    if not found:
        return "no process that uses it is visible"
    names = ", ".join(f"{name} ({pid})" for pid, name in sorted(found.items())[:5])
    return f"it is used by {names}: end these first"


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _namespace_of(pid: "int | str") -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/mnt")
    except OSError:
        return ""


# -- loop devices


def attach_loop(image: Path, *, read_only: bool = False) -> tuple[str, int]:
    """Attaches an image to a free loop device that detaches itself when it is no longer used.

    Returns:
        The device's path, and a descriptor of it, to be closed after it was mounted.

    Raises:
        AgentError: This host has no loop devices.
    """
    try:
        control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise AgentError(
            f"no loop devices here ({error.strerror}): the host needs /dev/loop-control"
        ) from None
    try:
        backing = os.open(image, (os.O_RDONLY if read_only else os.O_RDWR) | os.O_CLOEXEC)
        try:
            for _ in range(LOOP_TRIES):
                number = fcntl.ioctl(control, LOOP_CTL_GET_FREE)
                device = _open_loop(number)
                try:
                    _configure(device, backing, image)
                except OSError as error:
                    os.close(device)
                    if error.errno != errno.EBUSY:  # otherwise another process was faster
                        raise AgentError(
                            f"loop{number} cannot be attached to the image: {error}"
                        ) from None
                    continue
                return f"/dev/loop{number}", device
        finally:
            os.close(backing)
    finally:
        os.close(control)
    raise AgentError("every free loop device was taken by another process; try again")


def _open_loop(number: int) -> int:
    path = f"/dev/loop{number}"
    if not os.path.exists(path):
        # In a container /dev is not the kernel's.
        os.mknod(path, stat.S_IFBLK | 0o660, os.makedev(LOOP_MAJOR, number))
    return os.open(path, os.O_RDWR | os.O_CLOEXEC)


def _configure(device: int, backing: int, image: Path) -> None:
    name = os.fsencode(image)[-63:]
    info = _LOOP_INFO.pack(0, 0, 0, 0, 0, 0, 0, 0, LO_FLAGS_AUTOCLEAR, name, b"", b"", 0, 0)
    try:
        fcntl.ioctl(device, LOOP_CONFIGURE, struct.pack("<II", backing, 0) + info + bytes(64))
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTTY):
            raise
        # Before Linux 5.8 it took two steps.
        fcntl.ioctl(device, LOOP_SET_FD, backing)
        fcntl.ioctl(device, LOOP_SET_STATUS64, info)


def backing_file(device: str) -> str:
    """Returns the image that a loop device is attached to; "" if none."""
    name = device.rpartition("/")[2]
    try:
        text = Path(f"/sys/block/{name}/loop/backing_file").read_text(
            encoding="utf-8", errors="surrogateescape"
        )
    except OSError:
        return ""
    return text.rstrip("\n").removesuffix(" (deleted)")


def loops_below(root: Path) -> dict[str, str]:
    """Returns the loop devices whose image is a path or lies below it: device to image."""
    prefix = os.fspath(root)
    found = {}
    for folder in Path("/sys/block").glob("loop*"):
        image = backing_file(folder.name)
        if image and (image == prefix or image.startswith(prefix.rstrip("/") + "/")):
            found[f"/dev/{folder.name}"] = image
    return dict(sorted(found.items()))


def detach_loop(device: str) -> None:
    """Detaches a loop device; one that is in use detaches itself later. Idempotent."""
    with contextlib.suppress(OSError):
        descriptor = os.open(device, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.ioctl(descriptor, LOOP_CLR_FD)
        finally:
            os.close(descriptor)
