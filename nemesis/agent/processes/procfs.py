"""What the kernel reports about processes and their control groups."""

import os
from dataclasses import dataclass
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")


def process_start(pid: int) -> int:
    """Returns the start time of a process, in clock ticks since boot; 0 if it does not exist or is a zombie."""
    parts = _stat(pid)
    return int(parts[19]) if parts and parts[0] not in ("Z", "X") else 0


def process_state(pid: int, thread: int | None = None) -> str:
    """Returns the state letter of a process or of one of its threads; "" if it does not exist. "T" is stopped."""
    parts = _stat(pid, thread)
    return parts[0] if parts else ""


def cpu_ticks(pid: int, thread: int | None = None) -> int:
    """Returns the CPU time of a process or of one of its threads, in clock ticks; 0 if it does not exist."""
    parts = _stat(pid, thread)
    return int(parts[11]) + int(parts[12]) if parts else 0


def thread_ids(pid: int) -> list[int]:
    """Returns the threads of a process; empty if it does not exist."""
    try:
        return sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return []


def thread_name(pid: int, thread: int) -> str:
    """Returns the name of a thread, of which Linux keeps 15 characters; "" if it does not exist."""
    try:
        path = Path(f"/proc/{pid}/task/{thread}/comm")
        return path.read_text(encoding="ascii", errors="replace").rstrip("\n")
    except OSError:
        return ""


def _stat(pid: int, thread: int | None = None) -> list[str]:
    place = f"/proc/{pid}" if thread is None else f"/proc/{pid}/task/{thread}"
    try:
        text = Path(place, "stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlGroup:
    """The control groups of one process.

    Attributes:
        version: 1 or 2.
        memory, cpu: Folders of the controllers; None where the kernel has none, or none is visible here.
    """

    version: int
    memory: Path | None
    cpu: Path | None


def control_group(pid: int, root: Path = CGROUP_ROOT) -> ControlGroup:
    """Finds the control groups of a process.

    Raises:
        ProcessLookupError: There is no such process.
    """
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii").splitlines()
    except OSError:
        raise ProcessLookupError(f"there is no process {pid}") from None
    paths: dict[str, str] = {}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(","):
            paths[name] = path
    if "memory" in paths or "cpu" in paths:
        return ControlGroup(
            version=1,
            memory=_existing(root / "memory", paths.get("memory")),
            cpu=_existing(root / "cpu", paths.get("cpu")),
        )
    unified = _existing(root, paths.get(""))
    return ControlGroup(
        version=2,
        memory=_with(unified, "memory.max"),
        cpu=_with(unified, "cpu.max"),
    )


def _existing(root: Path, path: str | None) -> Path | None:
    if path is None:
        return None
    # Inside a container the kernel may report a path that begins above what is mounted here.
    parts = path.strip("/").split("/")
    for skip in range(len(parts) + 1):
        folder = root.joinpath(*parts[skip:])
        if folder.is_dir():
            return folder
    return None


def _with(folder: Path | None, file: str) -> Path | None:
    return folder if folder is not None and (folder / file).exists() else None


def counter(path: Path, name: str) -> int:
    """Returns one number of a file of "name value" lines; 0 if it is missing."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    for line in lines:
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0
