"""What this host's kernel and tools can do, found out by trying it on scratch objects."""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from nemesis.agent.disks import disk_capabilities
from nemesis.agent.packets import network
from nemesis.agent.processes.groups import OwnGroup
from nemesis.agent.processes.signals import ProcessError, identify
from nemesis.agent.processes.threads import StoppedThreads

Response = dict[str, Any]

SETTINGS = (
    "net/ipv4/tcp_retries2",
    "net/ipv4/tcp_syn_retries",
    "vm/dirty_expire_centisecs",
    "vm/dirty_writeback_centisecs",
    "vm/dirty_background_ratio",
    "vm/dirty_ratio",
)
"""Settings that decide how long a cut connection hangs, and how much unsynced data a power cut finds."""


def facts() -> Response:
    """Returns the kernel version and the kernel settings that runs depend on."""
    settings = {}
    for name in SETTINGS:
        with contextlib.suppress(OSError):
            text = Path("/proc/sys", name).read_text(encoding="ascii").strip()
            settings[name.replace("/", ".")] = text
    return {"kernel": os.uname().release, "settings": settings}


def find(scratch: Path | None = None) -> dict[str, Response]:
    """Returns every mechanism with its level ("yes", "weaker", "no"), how it is done and what is missing.

    Args:
        scratch: Where scratch disks may be made. In a run's own folder, `reset` finds what a crash leaves.
    """
    if os.geteuid() != 0:
        why = "the agent is not root; all faults on hosts need root"
        return {"root": {"level": "no", "how": "", "why": why}}
    return {
        "root": {"level": "yes", "how": "", "why": ""},
        **network.capabilities(),
        **disk_capabilities.capabilities(scratch),
        "memory-cgroup": _memory_group(),
        "cpu": _cpu_group(),
        "ptrace": _ptrace(),
        "ip": _tool("ip", "iproute2"),
        "time-namespace": _tries(
            ["unshare", "--time", "true"], "unshare --time", "install util-linux"
        ),
        "host-clock": {
            "level": "no",
            "how": "",
            "why": "never set: hosts share it, and nodes read a skew file instead",
        },
        "libfaketime": _libfaketime(),
        "device-mapper": _file(
            "/dev/mapper/control", "the shutdown ioctl and strace are used instead"
        ),
        "fail-make-request": _file(
            "/sys/kernel/debug/fail_make_request", "strace and the shutdown ioctl are used instead"
        ),
    }


def _file(path: str, instead: str) -> Response:
    """Reports a device-mapper target that no fault needs."""
    if os.path.exists(path):
        return {"level": "yes", "how": f"{path}, not used", "why": ""}
    return {"level": "no", "how": "", "why": f"the kernel has no {path}; {instead}"}


def _tries(command: list[str], how: str, hint: str) -> Response:
    """Reports whether a command succeeds."""
    if shutil.which(command[0]) is None:
        return {"level": "no", "how": "", "why": hint}
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return {"level": "yes", "how": how, "why": ""}
    return {"level": "no", "how": "", "why": done.stderr.strip()[:120]}


def _ptrace() -> Response:
    """Reports whether a thread of another process can be stopped, by stopping that of a child."""
    child = subprocess.Popen(["sleep", "60"])
    try:
        StoppedThreads(identify(child.pid), ".*").end()
    except ProcessError as error:
        return {"level": "no", "how": "", "why": str(error)}
    finally:
        child.kill()
        child.wait()
    return {"level": "yes", "how": "threads are stopped with ptrace", "why": ""}


def _memory_group() -> Response:
    return _group("memory", "the kernel's OOM killer, triggered by a memory limit", "")


def _cpu_group() -> Response:
    return _group("cpu", "cpu quota of a control group", "the process is stopped in turns")


def _group(controller: str, how: str, instead: str) -> Response:
    try:
        with OwnGroup(f"laststand-probe-{os.getpid()}") as group:
            if group.has(controller):
                return {"level": "yes", "how": how, "why": ""}
            why = f"no writable {controller} control group"
    except OSError as error:
        why = f"no writable control group: {error.strerror}"
    return {"level": "weaker" if instead else "no", "how": instead, "why": why}


def _tool(name: str, package: str) -> Response:
    path = shutil.which(name)
    if path is None:
        return {"level": "no", "how": "", "why": f"install {package}"}
    return {"level": "yes", "how": path, "why": ""}


def _libfaketime() -> Response:
    """Reports libfaketime: reference nodes read a skew file, and third-party programs would need the library."""
    for folder in (
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
    ):
        path = f"{folder}/faketime/libfaketimeMT.so.1"
        if os.path.exists(path):
            return {
                "level": "weaker",
                "how": "libfaketime, for third-party programs only",
                "why": "it breaks time.sleep, and programs that do not use libc do not see it",
            }
    return {
        "level": "no",
        "how": "",
        "why": "install libfaketime to skew the clocks of third-party programs",
    }
