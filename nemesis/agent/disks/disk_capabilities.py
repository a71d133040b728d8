"""Which disk faults this host supports, found out with a scratch image and a scratch process."""

import contextlib
import errno
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from nemesis.agent.disks.disk import NodeDisk
from nemesis.agent.disks.images import FILESYSTEMS
from nemesis.agent.disks.power_cut import CutPlan, cut
from nemesis.agent.disks.tracing import Tracer
from nemesis.agent.errors import AgentError

SCRATCH_SIZE_MIB = 300
WATCHDOG_S = 5.0
TRACE_LIMIT_S = 2.0
THROTTLE_BYTES_PER_S = 1 << 20

_SYNCER = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
print("ready", flush=True)
sys.stdin.read(1)
try:
    os.fsync(file)
    print(0, flush=True)
except OSError as error:
    print(error.errno, flush=True)
"""

SCRATCH_PREFIX = "laststand-probe-"
"""How the name of a probe's folder begins; a killed probe leaves it (`harness.cli.probe_leftovers`)."""

Response = dict[str, str]


def capabilities(scratch: Path | None = None) -> dict[str, Response]:
    """Tries every mechanism; returns its level ("yes", "weaker", "no"), how it is done and what is missing.

    Args:
        scratch: Where scratch images may be made; None for the system's temporary folder.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=scratch))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        disks: dict[str, NodeDisk] = {}
        problems = []
        for filesystem in FILESYSTEMS:
            try:
                disk = NodeDisk.create(
                    folder / filesystem, filesystem=filesystem, size_mib=SCRATCH_SIZE_MIB
                )
            except AgentError as error:
                problems.append(f"{filesystem}: {error}")
                continue
            stack.callback(disk.destroy)
            disks[filesystem] = disk
        return {
            "loop-mount": _level(disks, problems, "image files, mounted through loop devices"),
            "shutdown-ioctl": _on_each(disks, _power_cut, "the file system's shutdown ioctl"),
            "freeze": _on_each(disks, _freeze, "FIFREEZE, with a watchdog"),
            "strace": _trace(folder),
            "blkio": _blkio(disks),
        }


def _level(good: dict[str, NodeDisk], problems: list[str], how: str) -> Response:
    if not good:
        return {"level": "no", "how": "", "why": "; ".join(problems) or "no loop-mounted image"}
    level = "weaker" if problems else "yes"
    return {"level": level, "how": f"{how}: {', '.join(good)}", "why": "; ".join(problems)}


def _on_each(disks: dict[str, NodeDisk], attempt: Callable[[NodeDisk], str], how: str) -> Response:
    good = {}
    problems = []
    for name, disk in disks.items():
        try:
            problem = attempt(disk)
        except (AgentError, OSError) as error:
            problem = str(error)
        if problem:
            problems.append(f"{name}: {problem}")
        else:
            good[name] = disk
    return _level(good, problems, how)


def _power_cut(disk: NodeDisk) -> str:
    """Cuts the power of a scratch disk: synced data must survive, and other data must be lost."""
    synced, unsynced = disk.data / "synced", disk.data / "unsynced"
    descriptor = os.open(synced, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, b"x")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    unsynced.write_bytes(b"x")
    cut([disk], [CutPlan(mode="lose_all")], lambda _: None)
    if not synced.exists() or synced.read_bytes() != b"x":
        return "a file that was synced did not survive"
    return "a file that was not synced survived" if unsynced.exists() else ""


def _freeze(disk: NodeDisk) -> str:
    evidence = disk.freeze(WATCHDOG_S)
    disk.thaw()
    return (
        "" if evidence["probe_blocked"] else "a write succeeded although the file system was frozen"
    )


def _trace(folder: Path) -> Response:
    """Makes one fsync of a process fail."""
    child = subprocess.Popen(
        [sys.executable, "-S", "-E", "-c", _SYNCER, os.fspath(folder / "synced")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    tracer = Tracer()
    try:
        assert child.stdout is not None
        child.stdout.readline()
        tracer.start(child.pid, inject="fsync-error")
        output, _ = child.communicate(b"g", timeout=TRACE_LIMIT_S)
        tracer.stop()
        deadline_s = time.monotonic() + TRACE_LIMIT_S
        while not tracer.evidence()["calls"] and time.monotonic() < deadline_s:
            time.sleep(0.001)
        if output.strip() != str(errno.EIO).encode() or tracer.evidence()["calls"] != 1:
            return {"level": "no", "how": "", "why": "strace runs, but the call did not fail"}
    except (AgentError, subprocess.TimeoutExpired, OSError) as error:
        return {"level": "no", "how": "", "why": str(error)}
    finally:
        child.kill()
        child.communicate()
        tracer.stop()
    return {"level": "yes", "how": "strace, one tracer per process", "why": ""}


def _blkio(disks: dict[str, NodeDisk]) -> Response:
    """Throttles a scratch group's writes to a scratch device."""
    if not disks:
        return {"level": "no", "how": "", "why": "no loop-mounted image to throttle"}
    device = os.stat(next(iter(disks.values())).device).st_rdev
    number = f"{os.major(device)}:{os.minor(device)}"
    why = "no blkio or io controller in /sys/fs/cgroup"
    for parent, name, text in _throttles(number):
        group = parent / f"laststand-probe-{os.getpid()}"
        try:
            group.mkdir()
            try:
                (group / name).write_text(text, encoding="ascii")
                return {"level": "yes", "how": f"{name} of a control group", "why": ""}
            finally:
                group.rmdir()
        except OSError as error:
            why = f"{name}: {error.strerror}"
    return {"level": "no", "how": "", "why": why}


def _throttles(number: str) -> Iterator[tuple[Path, str, str]]:
    root = Path("/sys/fs/cgroup")
    if (root / "blkio").is_dir():
        yield root / "blkio", "blkio.throttle.write_bps_device", f"{number} {THROTTLE_BYTES_PER_S}"
    if (root / "cgroup.controllers").is_file():
        yield root, "io.max", f"{number} wbps={THROTTLE_BYTES_PER_S}"
