"""What runs leave on a host, and how it is removed again.

Every run has one directory below the state root. It records what the run made: `owner.json` the agent that owns
the run, `processes/` the processes that it started, `interfaces.json` the interfaces that were made for it,
`addresses.json` the addresses that it added to an interface, `nodes/` the mounted disks and their images, `logs/`
the logs of the nodes. A run whose agent is dead is a leftover.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

from nemesis.agent.disks import power_cut
from nemesis.agent.errors import AgentError
from nemesis.agent.packets.namespace import Namespace
from nemesis.agent.processes.groups import remove_group
from nemesis.agent.processes.signals import ProcessId, identify, send, wait_gone

OWNER_FILE = "owner.json"
PROCESSES_FOLDER = "processes"
ADDRESSES_FILE = "addresses.json"
INTERFACES_FILE = "interfaces.json"
GROUPS_FILE = "groups.json"
NODES_FOLDER = "nodes"
LOGS_FOLDER = "logs"


def begin_run(run: Path) -> None:
    """Makes a run's directory and records this process as its owner."""
    run.mkdir(parents=True, exist_ok=True)
    owner = identify(os.getpid())
    _write_json(run / OWNER_FILE, {"pid": owner.pid, "began": owner.began, "boot_id": _boot_id()})
    # The owner comes first: a directory with folders but without an owner counts as a leftover, and another run
    # that starts at the same moment would remove it.
    for folder in (PROCESSES_FOLDER, NODES_FOLDER, LOGS_FOLDER):
        (run / folder).mkdir(exist_ok=True)


def record_process(run: Path, node: str, process: ProcessId) -> None:
    """Records a process that was started by this run."""
    _write_json(
        run / PROCESSES_FOLDER / f"{node}.json",
        {"pid": process.pid, "began": process.began, "boot_id": _boot_id()},
    )


def record_groups(run: Path, paths: list[str]) -> None:
    """Records control groups that this run makes."""
    path = run / GROUPS_FILE
    noted = _read_json(path, [])
    _write_json(path, noted + [entry for entry in paths if entry not in noted])


def record_interface(run: Path, interface: str) -> None:
    """Records an interface that a Docker engine makes for this run.

    The engine removes it with the run, but an engine that is killed leaves its bridges behind.
    """
    path = run / INTERFACES_FILE
    noted = _read_json(path, [])
    _write_json(path, noted + [interface] * (interface not in noted))


def add_addresses(run: Path, addresses: list[str], interface: str) -> dict[str, Any]:
    """Adds those addresses to an interface that the host does not have; they are recorded first.

    Returns:
        The addresses that were added, and the interface.

    Raises:
        OSError: The kernel refuses one, or `ip` is not installed.
    """
    has = _addresses()
    missing = [address for address in addresses if address not in has]
    path = run / ADDRESSES_FILE
    noted = _read_json(path, [])
    _write_json(path, noted + [[address, interface] for address in missing])
    for address in missing:
        done = _ip("addr", "add", f"{address}/32", "dev", interface)
        if done.returncode != 0:
            raise OSError(f"cannot add {address} to {interface}: {done.stderr.strip()}")
    return {"added": missing, "interface": interface}


def interface_of(address: str) -> str:
    """Returns the interface that has an address; "" if there is none."""
    for line in _ip("-o", "-4", "addr", "show").stdout.splitlines():
        fields = line.split()
        if fields[3].partition("/")[0] == address:
            return fields[1]
    return ""


def leftovers(root: Path) -> list[str]:
    """Returns the names of runs whose agent is dead."""
    return [run.name for run in _runs(root) if not _is_owned(run)]


def has_engine_leftovers(root: Path) -> bool:
    """Whether a run whose agent is dead had its nodes in containers: only an engine makes interfaces for runs."""
    return any((run / INTERFACES_FILE).exists() and not _is_owned(run) for run in _runs(root))


def reset(root: Path, *, keep: Path | None = None, even_if_alive: bool = False) -> list[str]:
    """Removes leftovers; returns what was removed, one line each.

    Args:
        root: The state root.
        keep: A run that is never touched.
        even_if_alive: Also removes what belongs to live agents.
    """
    removed: list[str] = []
    is_shared = False
    for run in _runs(root):
        if run == keep:
            continue
        if _is_owned(run) and not even_if_alive:
            is_shared = True
            continue
        removed.extend(f"{run.name}: {what}" for what in remove_run(run))
    if not is_shared and keep is None:
        removed.extend(_reset_own_namespace())
    return removed


def remove_run(run: Path) -> list[str]:
    """Removes everything of one run from the host; returns what was removed, one line each."""
    removed = []
    for path in sorted((run / PROCESSES_FOLDER).glob("*.json")):
        data = _read_json(path, {})
        process = ProcessId(pid=int(data.get("pid", 0)), began=int(data.get("began", 0)))
        if data.get("boot_id") == _boot_id() and process.is_alive:
            # A process on a frozen disk cannot end before the disk is thawed, which happens below.
            send(process, signal.SIGCONT)
            send(process, signal.SIGKILL)
            removed.append(f"process {process.pid}")
    problem: AgentError | None = None
    try:
        removed.extend(power_cut.reset(run / NODES_FOLDER))
    except AgentError as error:
        problem = (
            error  # something is still in use; the rest is removed first, then this is reported
        )
    for path in sorted((run / PROCESSES_FOLDER).glob("*.json")):
        data = _read_json(path, {})
        wait_gone(ProcessId(pid=int(data.get("pid", 0)), began=int(data.get("began", 0))), 2.0)
    for address, interface in _read_json(run / ADDRESSES_FILE, []):
        if _ip("addr", "del", f"{address}/32", "dev", interface).returncode == 0:
            removed.append(f"address {address}")
    removed += [
        f"interface {interface}"
        for interface in _read_json(run / INTERFACES_FILE, [])
        if os.path.isdir(f"/sys/class/net/{interface}")
        and _ip("link", "del", "dev", interface).returncode == 0
    ]
    removed += [
        f"control group {path}"
        for path in _read_json(run / GROUPS_FILE, [])
        if os.path.isdir(path) and remove_group(path)
    ]
    if problem is not None:
        raise problem
    if run.exists():
        shutil.rmtree(run, ignore_errors=True)
        removed.append(f"directory {run.name}")
    return removed


def _reset_own_namespace() -> list[str]:
    namespace = Namespace(None)
    try:
        return [f"packet rules: {what}" for what in namespace.reset()]
    finally:
        namespace.close()


def _runs(root: Path) -> list[Path]:
    if not root.is_dir():
        return []
    return sorted(path for path in root.iterdir() if (path / NODES_FOLDER).is_dir())


def _is_owned(run: Path) -> bool:
    data = _read_json(run / OWNER_FILE, {})
    owner = ProcessId(pid=int(data.get("pid", 0)), began=int(data.get("began", 0)))
    return data.get("boot_id") == _boot_id() and owner.is_alive


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _addresses() -> set[str]:
    lines = _ip("-o", "-4", "addr", "show").stdout.splitlines()
    return {line.split()[3].partition("/")[0] for line in lines}


def _ip(*arguments: str) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            ["ip", *arguments], capture_output=True, text=True, check=False, timeout=10
        )
    except FileNotFoundError:
        raise OSError("the command `ip` is missing; install iproute2") from None


def _write_json(path: Path, data: Any) -> None:
    new = path.with_suffix(".new")
    new.write_text(json.dumps(data), encoding="utf-8")
    new.replace(path)


def _read_json(path: Path, default: Any) -> Any:
    with contextlib.suppress(OSError, ValueError):
        return json.loads(path.read_text(encoding="utf-8"))
    return default
