"""A cluster of real processes on loopback, for `laststand cluster`, for runs and for tests.

All its files are in one directory:

    cluster.json          the nodes: addresses, pids and start times of the processes
    b1/node.toml          the node's configuration
    b1/data/              its logs
    b1/node.log           its standard output and error: truncated logs, and why it ended
    b1/events.jsonl       its event log, if it keeps one
    b1/skew               the file that skews its clock

A pid is trusted only together with the start time that the kernel reports for it, so another process that got the
same pid is never touched.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.contracts.cluster import CONTROLLER_ID_FIRST
from harness.contracts.system import DiskFormatter, Node, Settings, System
from harness.environments.local.ports import LOOPBACK, listening_ports
from harness.environments.start_command import start_command
from harness.errors import HarnessFailure, UsageError
from harness.systems.registry import REFERENCE, SYSTEMS
from nemesis.agent.processes.procfs import process_start

STATE_FILE = "cluster.json"
DATA_FOLDER = "data"
STOP_LIMIT_S = 30.0
POLL_S = 0.02
LOG_TAIL_LINES = 5


@dataclass(slots=True, kw_only=True)
class LocalNode:
    """One node of the cluster. Mutable: its process changes.

    Attributes:
        name: "b1", "c11".
        metrics: Where it serves its metrics over HTTP; "" if it does not.
        pid: Its last process, 0 before the first.
        began: Start time of that process in clock ticks since boot.
    """

    name: str
    node_id: int
    role: str
    address: str
    directory: Path
    metrics: str = ""
    pid: int = 0
    began: int = 0
    process: subprocess.Popen[bytes] | None = None

    def placed(self) -> Node:
        """Returns the node as its system knows it."""
        return Node(
            name=self.name,
            role=self.role,
            node_id=self.node_id,
            address=self.address,
            metrics=self.metrics,
        )

    @property
    def is_alive(self) -> bool:
        """Whether its process runs (or is paused)."""
        if self.process is not None and self.process.poll() is not None:
            return False
        return self.pid > 0 and process_start(self.pid) == self.began

    @property
    def exit_code(self) -> int | None:
        """How its last process ended, if this object started it; negative for a signal."""
        return None if self.process is None else self.process.poll()

    def output(self) -> str:
        """Returns what it wrote to standard output and error."""
        try:
            return (self.directory / "node.log").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def log_tail(self) -> str:
        """Returns the last lines of its output."""
        return "\n".join(self.output().splitlines()[-LOG_TAIL_LINES:])


class LocalCluster:
    """Processes on loopback. Use `create` or `attach`; a context manager that ends in `down`.

    Attributes:
        directory: All its files.
        nodes: By name, controllers first.
        system: The system that runs on the nodes.
        profile, timings: Settings of all nodes.
    """

    def __init__(
        self,
        directory: Path,
        nodes: dict[str, LocalNode],
        *,
        system: System,
        profile: str,
        timings: str,
        ends_with_parent: bool,
        with_fault_point: bool = False,
    ) -> None:
        self.directory = directory
        self.nodes = nodes
        self.system = system
        self.profile = profile
        self.timings = timings
        self._ends_with_parent = ends_with_parent
        self._with_fault_point = with_fault_point

    @classmethod
    def create(
        cls,
        directory: Path | None = None,
        *,
        system: System | None = None,
        brokers: int = 3,
        controllers: int = 3,
        settings: Settings | None = None,
        first_port: int | None = None,
        with_metrics: bool = False,
        ends_with_parent: bool = True,
    ) -> "LocalCluster":
        """Writes the files of a new cluster; starts nothing.

        Args:
            directory: Directory of the files; a temporary one if None.
            system: The system that runs on the nodes; the reference system if None.
            brokers: Number of brokers.
            controllers: Number of controllers, if the system has any.
            settings: Configuration of all nodes; the system's defaults if None.
            first_port: Brokers listen at this port and the following; free ones if None.
            with_metrics: Whether nodes serve their metrics over HTTP, at the ports that follow.
            ends_with_parent: Nodes end when this process ends, however it ends.

        Raises:
            UsageError: There is a cluster in that directory, nothing can be written there, or a port is taken.
        """
        system = system or SYSTEMS.get(REFERENCE)
        settings = settings or local_settings(system)
        controllers = controllers if system.has_controllers else 0
        directory = directory or Path(tempfile.mkdtemp(prefix="laststand-cluster-"))
        with _usable(directory):
            directory.mkdir(parents=True, exist_ok=True)
            if (directory / STATE_FILE).exists():
                raise UsageError(
                    f"there is a cluster in {directory} already; `laststand cluster down` removes it"
                )
        count = brokers + controllers
        ports = listening_ports(count * 2 if with_metrics else count, first_port)
        nodes: dict[str, LocalNode] = {}
        for index in range(controllers):
            _add(
                nodes, directory, "controller", CONTROLLER_ID_FIRST + index, ports[brokers + index]
            )
        for index in range(brokers):
            _add(nodes, directory, "broker", 1 + index, ports[index])
        if with_metrics:
            for node, port in zip(nodes.values(), ports[count:], strict=True):
                node.metrics = f"{LOOPBACK}:{port}"
        cluster = cls(
            directory,
            nodes,
            system=system,
            profile=settings.profile,
            timings=settings.timings,
            ends_with_parent=ends_with_parent,
            with_fault_point=settings.with_fault_point,
        )
        placed = cluster.placed_nodes()
        with _usable(directory):
            for place in placed:
                folder = nodes[place.name].directory
                folder.mkdir(parents=True, exist_ok=True)
                data = (folder / DATA_FOLDER).absolute()
                files = system.node_files(place, placed, settings, data_dir=str(data))
                for name, text in files.items():
                    (folder / name).write_text(text, encoding="utf-8")
                if isinstance(system, DiskFormatter):
                    for path, content in system.disk_files(place, settings, 0).items():
                        (data / path).parent.mkdir(parents=True, exist_ok=True)
                        (data / path).write_bytes(content)
            cluster.save()
        return cluster

    @classmethod
    def attach(cls, directory: Path) -> "LocalCluster":
        """Returns the cluster in a directory, running or not.

        Raises:
            UsageError: There is no cluster, or its state file is damaged.
        """
        path = directory / STATE_FILE
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            nodes = {
                entry["name"]: LocalNode(
                    name=str(entry["name"]),
                    node_id=int(entry["node_id"]),
                    role=str(entry["role"]),
                    address=str(entry["address"]),
                    directory=directory / str(entry["name"]),
                    metrics=str(entry.get("metrics", "")),
                    pid=int(entry["pid"]),
                    began=int(entry["began"]),
                )
                for entry in data["nodes"]
            }
            return cls(
                directory,
                nodes,
                system=SYSTEMS.get(str(data["system"])),
                profile=str(data["profile"]),
                timings=str(data["timings"]),
                ends_with_parent=False,
            )
        except (FileNotFoundError, NotADirectoryError):
            raise UsageError(
                f"there is no cluster in {directory}; `laststand cluster up` starts one"
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path} is damaged: {error}") from None

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers, as clients expect them."""
        return ",".join(node.address for node in self.nodes.values() if node.role == "broker")

    def placed_nodes(self) -> list[Node]:
        """Returns all nodes as their system knows them."""
        return [node.placed() for node in self.nodes.values()]

    def save(self) -> None:
        """Writes the state file; it is replaced in one step."""
        data = {
            "system": self.system.name,
            "profile": self.profile,
            "timings": self.timings,
            "nodes": [
                {
                    "name": node.name,
                    "node_id": node.node_id,
                    "role": node.role,
                    "address": node.address,
                    "metrics": node.metrics,
                    "pid": node.pid,
                    "began": node.began,
                }
                for node in self.nodes.values()
            ],
        }
        temporary = self.directory / (STATE_FILE + ".new")
        temporary.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
        temporary.replace(self.directory / STATE_FILE)

    # -- life

    def start(self) -> None:
        """Starts every node that does not run."""
        for node in self.nodes.values():
            if not node.is_alive:
                self._spawn(node)
        self.save()

    def start_node(self, name: str) -> None:
        """Starts one node; does nothing if it runs."""
        node = self._node(name)
        if not node.is_alive:
            self._spawn(node)
            self.save()

    def kill(self, name: str) -> int | None:
        """Ends a node with SIGKILL; returns its exit code if this process had started it."""
        return self._end(self._node(name), signal.SIGKILL, STOP_LIMIT_S)

    def stop(self, name: str, limit_s: float = STOP_LIMIT_S) -> int | None:
        """Ends a node cleanly with SIGTERM; with SIGKILL if it takes longer than `limit_s`."""
        return self._end(self._node(name), signal.SIGTERM, limit_s)

    def down(self, *, keep: bool = False) -> None:
        """Ends every node and removes the directory; idempotent.

        Args:
            keep: Whether to keep the nodes' files.
        """
        alive = [node for node in self.nodes.values() if node.is_alive]
        # Brokers first: a controlled shutdown needs a controller.
        for role in ("broker", "controller"):
            ours = [node for node in alive if node.role == role]
            for node in ours:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(node.pid, signal.SIGCONT)
                    os.kill(node.pid, signal.SIGTERM)
            deadline_s = time.monotonic() + STOP_LIMIT_S
            for node in ours:
                self._wait(node, deadline_s)
        for node in self.nodes.values():
            if node.process is not None and node.process.stdin is not None:
                node.process.stdin.close()
        with contextlib.suppress(FileNotFoundError):
            (self.directory / STATE_FILE).unlink()
        if not keep:
            for node in self.nodes.values():
                shutil.rmtree(node.directory, ignore_errors=True)
            # The directory may contain other files.
            with contextlib.suppress(OSError):
                self.directory.rmdir()

    def dead_nodes(self) -> Iterator[LocalNode]:
        """Yields the nodes whose process has ended."""
        for node in self.nodes.values():
            if node.pid and not node.is_alive:
                yield node

    def __enter__(self) -> "LocalCluster":
        """Returns itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends everything."""
        self.down()

    # -- readiness

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Waits until the metadata of every broker lists all brokers.

        Raises:
            HarnessFailure: A node died, or time is up.
        """
        placed = self.placed_nodes()
        waiting = [node for node in placed if node.role == "broker"]
        deadline_s = time.monotonic() + timeout_s
        while waiting:
            for node in self.nodes.values():
                if not node.is_alive:
                    raise HarnessFailure(f"{node.name} died while it started: {node.log_tail()}")
            if time.monotonic() > deadline_s:
                names = ", ".join(node.name for node in waiting)
                tails = "\n".join(
                    f"{node.name}: {self.nodes[node.name].log_tail()}" for node in waiting
                )
                raise HarnessFailure(
                    f"after {timeout_s:g} s these brokers are not ready: {names}\n{tails}".rstrip()
                )
            waiting = [node for node in waiting if not self.system.is_ready(node, placed)]
            if waiting:
                time.sleep(POLL_S)

    # -- processes

    def _node(self, name: str) -> LocalNode:
        if name not in self.nodes:
            raise UsageError(f"no node is called {name!r} (known: {', '.join(self.nodes)})")
        return self.nodes[name]

    def _spawn(self, node: LocalNode) -> None:
        command = start_command(
            self.system,
            node.placed(),
            str(node.directory.absolute()),
            python=sys.executable,
            ends_with_stdin=self._ends_with_parent,
            with_fault_point=self._with_fault_point,
        )
        log_path = node.directory / "node.log"
        if self._ends_with_parent:
            if node.process is not None and node.process.stdin is not None:
                node.process.stdin.close()
            with open(log_path, "ab") as log:
                node.process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            node.pid = node.process.pid
        else:
            node.pid = _spawn_detached(command, log_path)
        node.began = process_start(node.pid)

    def _end(self, node: LocalNode, number: int, limit_s: float) -> int | None:
        if node.is_alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(node.pid, number)
                if number != signal.SIGKILL:
                    os.kill(node.pid, signal.SIGCONT)
            self._wait(node, time.monotonic() + limit_s)
        return node.exit_code

    def _wait(self, node: LocalNode, deadline_s: float) -> None:
        """Waits for a process to end; kills it when time is up."""
        while node.is_alive:
            if time.monotonic() > deadline_s:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(node.pid, signal.SIGKILL)
                deadline_s = float("inf")
            time.sleep(POLL_S / 4)
        if node.process is not None:
            node.process.wait()  # a child that has ended is a zombie until its parent waits for it


def _spawn_detached(command: list[str], log_path: Path) -> int:
    """Starts a process that outlives this one, without waiting for it; returns its pid."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawn(
        command[0],
        command,
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.fspath(log_path), flags, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


def local_settings(
    system: System | None = None,
    *,
    profile: str = "",
    timings: str = "",
    with_events: bool = False,
    with_messages: bool = False,
    disabled_rules: tuple[str, ...] = (),
    **more: Mapping[str, Any],
) -> Settings:
    """Returns settings for a cluster of processes.

    Args:
        system: What the nodes are; the reference system if None.
        profile: As in an experiment; the system's default if empty.
        timings: As in an experiment; the system's own defaults if empty.
        with_events: Whether nodes keep an event log.
        with_messages: Whether nodes record the messages that matter.
        disabled_rules: Protocol rules that are switched off on purpose.
        more: Further settings of the system, by table.
    """
    system = system or SYSTEMS.get(REFERENCE)
    return Settings(
        profile=profile or next(iter(system.profiles)),
        timings=timings or system.timings[-1],
        with_events=with_events,
        with_messages=with_messages,
        disabled_rules=disabled_rules,
        more=more,
    )


@contextlib.contextmanager
def _usable(directory: Path) -> Iterator[None]:
    """Turns an error of the file system into a `UsageError` about the chosen directory."""
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"{directory} cannot hold a cluster ({error.strerror}); choose another with --directory"
        ) from None


def _add(nodes: dict[str, LocalNode], directory: Path, role: str, node_id: int, port: int) -> None:
    name = f"{role[0]}{node_id}"
    nodes[name] = LocalNode(
        name=name,
        node_id=node_id,
        role=role,
        address=f"{LOOPBACK}:{port}",
        directory=directory / name,
    )
