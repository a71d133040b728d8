"""File systems on image files: made, recognised, shut down, removed."""

import contextlib
import errno
import fcntl
import os
import shutil
import struct
import subprocess
import uuid
from pathlib import Path

from nemesis.agent.disks import freezer, mounts
from nemesis.agent.errors import AgentError

FILESYSTEMS = ("ext4", "xfs")
SIZE_MIB_MIN = {"ext4": 16, "xfs": 300}
FOLDER = "disk"
MIB = 1 << 20

FS_IOC_SHUTDOWN = 0x8004587D
"""The same number for ext4 and xfs."""

FLUSH = 0
LOG_FLUSH = 1
NO_LOG_FLUSH = 2
"""What a shutdown writes first: everything, the journal, or nothing."""

MKFS_LIMIT_S = 60.0

_EXT4_UUID_AT = 1024 + 0x68
_EXT4_MAGIC_AT = 1024 + 0x38
_XFS_UUID_AT = 32


def make_image(image: Path, filesystem: str, size_mib: int) -> None:
    """Makes a new, empty file system on a new, sparse image.

    Raises:
        AgentError: This host cannot make it.
    """
    # A new file, so that a process that still has the old one open cannot write into the new file system.
    image.unlink(missing_ok=True)
    with open(image, "xb") as file:
        file.truncate(size_mib * MIB)
    identity = str(uuid.uuid4())
    if filesystem == "ext4":
        # Everything that depends on the size or on the distribution's defaults is explicit. No blocks are
        # reserved for root: a full disk is full for every process.
        command = ["mkfs.ext4", "-q", "-F", "-b", "4096", "-I", "256", "-m", "0", "-U", identity]
    else:
        command = ["mkfs.xfs", "-q", "-f", "-m", f"uuid={identity}"]
    command.append(os.fspath(image))
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=MKFS_LIMIT_S, check=False
        )
    except FileNotFoundError:
        package = "e2fsprogs" if filesystem == "ext4" else "xfsprogs"
        raise AgentError(f"{command[0]} is missing on this host; install {package}") from None
    except subprocess.TimeoutExpired:
        raise AgentError(f"{command[0]} took more than {MKFS_LIMIT_S:.0f} s") from None
    if done.returncode != 0:
        raise AgentError(f"{command[0]} failed: {done.stderr.strip()[-300:]}")


def image_of(directory: Path) -> Path:
    """Returns the image that belongs to a directory."""
    return directory.with_name(directory.name + ".img")


def identity_of(image: Path) -> tuple[str, str]:
    """Returns the file system on an image and its id.

    Raises:
        OSError: There is no such image, or no known file system on it.
    """
    with open(image, "rb") as file:
        start = file.read(2048)
    if start[:4] == b"XFSB":
        return "xfs", str(uuid.UUID(bytes=start[_XFS_UUID_AT : _XFS_UUID_AT + 16]))
    if start[_EXT4_MAGIC_AT : _EXT4_MAGIC_AT + 2] == b"\x53\xef":
        return "ext4", str(uuid.UUID(bytes=start[_EXT4_UUID_AT : _EXT4_UUID_AT + 16]))
    raise OSError(errno.EINVAL, "neither ext4 nor xfs", os.fspath(image))


def shutdown_descriptor(descriptor: int, flag: int) -> None:
    """Shuts down the file system of a descriptor.

    Raises:
        AgentError: The kernel refuses.
    """
    try:
        fcntl.ioctl(descriptor, FS_IOC_SHUTDOWN, struct.pack("I", flag))
    except OSError as error:
        raise AgentError(f"the file system cannot be shut down: {error.strerror}") from None


def sync_filesystem(path: Path) -> None:
    """Makes a whole file system durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        mounts.syncfs(descriptor)
    finally:
        os.close(descriptor)


def stored_bytes(folder: Path) -> int:
    """Returns the total length of all files below a folder; 0 if it cannot be read."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(root, name)).st_size
    return total


def remove_disk(directory: Path) -> list[str]:
    """Unmounts and removes the disk at a directory; returns what was removed, one line each.

    Raises:
        AgentError: A process uses it for too long.
    """
    directory = directory.absolute()
    mountpoint = directory / FOLDER
    image = image_of(directory)
    removed = []
    if mounts.mount_at(mountpoint) is not None:
        if freezer.thaw_now(mountpoint):
            removed.append(f"frozen file system at {mountpoint}")
        mounts.unmount(mountpoint)
        removed.append(f"mount {mountpoint}")
    while mounts.mount_at(directory) is not None:
        mounts.unmount(directory)
        removed.append(f"mount {directory}")
    for device, name in mounts.loops_below(image).items():
        mounts.detach_loop(device)
        removed.append(f"loop device {device} of {name}")
    if image.exists():
        image.unlink()
        removed.append(f"image {image}")
    if directory.exists():
        below = [mount.path for mount in mounts.mounts() if mount.path.startswith(f"{directory}/")]
        if below:
            raise AgentError(f"{below[0]} is still mounted; nothing below it is removed")
        shutil.rmtree(directory)
        removed.append(f"directory {directory}")
    return removed
