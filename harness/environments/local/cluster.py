"""A cluster of real processes on this machine as a run needs it: it starts and ends nodes and follows them.

What can be injected here is in `nemesis.local`. A killed process loses nothing that it wrote, because the page
cache belongs to the machine; data loss needs an environment that can cut power.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.contracts.system import EVENTS_FILE, NodeFiles
from harness.environments.local.standing import DATA_FOLDER, LocalCluster, LocalNode
from harness.environments.observation.event_tail import LocalFiles
from harness.environments.real import RealCluster, final_line
from harness.environments.request import ClusterRequest, EnvironmentRequest


def make_cluster(request: ClusterRequest) -> "ProcessCluster":
    """Writes the files of a cluster of processes; starts nothing.

    Raises:
        UsageError: Its directory cannot be written.
    """
    local = LocalCluster.create(
        request.logs_to,
        system=request.system,
        brokers=request.brokers,
        controllers=request.controllers,
        settings=request.settings,
        with_metrics=request.metrics is not None,
    )
    return ProcessCluster(local, request)


def find_mechanisms(request: EnvironmentRequest) -> Sequence[Mapping[str, Mapping[str, Any]]]:
    """Returns nothing: signals need no mechanisms of hosts."""
    return ()


class ProcessCluster(RealCluster):
    """Implements `harness.contracts.cluster.Deployment` over a `LocalCluster`.

    Args:
        local: The processes; not started yet.
        request: What the cluster is made for.
    """

    def __init__(self, local: LocalCluster, request: ClusterRequest) -> None:
        super().__init__(request, local.placed_nodes())
        self.local = local
        self.open_client_hosts({})
        self._taken_down: dict[str, None] = {}
        # Of a start and an end of one node, one comes after the other, and what was noted last is true.
        self._changing = {name: asyncio.Lock() for name in local.nodes}

    # -- life

    async def start(self) -> None:
        """Starts all processes and follows their event logs."""
        await asyncio.to_thread(self.local.start)
        for name in self.local.nodes:
            self.went_up(name)
        paths = {name: node.directory / EVENTS_FILE for name, node in self.local.nodes.items()}
        self.follow(LocalFiles(paths))

    async def end(self) -> None:
        """Stops following, after reading once more, and ends all processes."""
        await self.stop_following()
        await asyncio.to_thread(self.local.down, keep=True)

    def describe(self) -> dict[str, Any]:
        """Returns nothing: signals are the same on all machines."""
        return {}

    @property
    def nodes(self) -> Mapping[str, LocalNode]:
        """All nodes by name."""
        return self.local.nodes

    def is_alive(self, name: str) -> bool:
        """Whether a node's process exists, running or not."""
        return self.local.nodes[name].is_alive

    def runs(self, name: str) -> bool:
        """Whether a node's process runs and is not being taken down."""
        return self.is_alive(name) and name not in self._taken_down

    def watch_processes(self) -> None:
        """Reports processes that have ended by themselves."""
        for name, node in self.local.nodes.items():
            if name not in self._taken_down and node.pid and not node.is_alive:
                self._taken_down[name] = None
                line = final_line(self.local.system, node.output())
                self.died(name, f"exit code {node.exit_code}", line or "no log line")

    async def start_node(self, name: str) -> None:
        """Starts a node; does nothing if it runs."""
        async with self._changing[name]:
            if not self.is_alive(name):
                await asyncio.to_thread(self.local.start_node, name)
                self.went_up(name)
            self._taken_down.pop(name, None)

    async def end_process(self, name: str, how: str, limit_s: float) -> int | None:
        """Ends a node's process by "stop" or "kill", which is expected from now on; returns its exit code."""
        async with self._changing[name]:
            self._taken_down[name] = None
            if how == "kill":
                code = await asyncio.to_thread(self.local.kill, name)
            else:
                code = await asyncio.to_thread(self.local.stop, name, limit_s)
            self.went_down((name,))
            return code

    async def settle(self) -> None:
        """Starts all nodes that are down."""
        for name in self.local.nodes:
            await self.start_node(name)

    async def write_beside(self, name: str, file: str, text: str) -> None:
        """Replaces a file beside the files of a node.

        Raises:
            OSError: It cannot be written.
        """
        directory = self.local.nodes[name].directory
        made = directory / f"{file}.new"
        made.write_text(text, encoding="utf-8")
        made.replace(directory / file)

    def node_files(self, name: str) -> NodeFiles:
        """Returns access to the files of a node."""
        return _LocalNodeFiles(self.local.nodes[name].directory / DATA_FOLDER)


class _LocalNodeFiles:
    """Implements `NodeFiles` over a directory of this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def list(self, directory: str) -> list[str]:
        """Returns the names in a directory; empty if it does not exist."""
        try:
            return sorted(path.name for path in (self._root / directory).iterdir())
        except FileNotFoundError:
            return []

    def read(self, path: str, length: int, offset: int = 0) -> bytes:
        """Returns bytes of a file."""
        with open(self._root / path, "rb") as file:
            file.seek(offset)
            return file.read(length)
