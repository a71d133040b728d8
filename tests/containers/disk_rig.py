"""Disks for tests: made below a folder of their own, and removed whatever happens."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nemesis.agent.disks.disk import NodeDisk
from nemesis.agent.disks.power_cut import leftovers, reset
from nemesis.agent.errors import AgentError

FILESYSTEMS = ("ext4", "xfs")
SIZE_MIB = 300


def why_not() -> str:
    """Returns why there can be no loop-mounted disks here; "" if there can."""
    if os.geteuid() != 0:
        return "loop-mounted disks need root"
    for program in ("mkfs.ext4", "mkfs.xfs"):
        if shutil.which(program) is None:
            return f"the program {program} is not installed"
    folder = Path(tempfile.mkdtemp(prefix="laststand-disks-"))
    try:
        NodeDisk.create(folder / "probe", filesystem="ext4", size_mib=64).destroy()
    except AgentError as error:
        return str(error)
    finally:
        reset(folder)
        shutil.rmtree(folder)
    return ""


@contextmanager
def disk_folder() -> Iterator[Path]:
    """Yields a folder for disks; nothing of it is left afterwards."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="laststand-disks-"))
    try:
        yield folder
    finally:
        reset(folder)
        assert leftovers(folder) == []
        shutil.rmtree(folder)


def make(folder: Path, name: str, filesystem: str) -> NodeDisk:
    """Makes a small disk."""
    return NodeDisk.create(folder / name, filesystem=filesystem, size_mib=SIZE_MIB)


def write(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Appends to a file as a node does, and perhaps makes it durable."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        assert os.write(descriptor, data) == len(data)
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
