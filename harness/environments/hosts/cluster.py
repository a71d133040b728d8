"""A cluster whose nodes run on hosts with agents: containers, or machines over SSH.

The two differ in how hosts are made and how a process is started on one; that is a `Placement`. The cluster
starts and ends nodes and follows their event logs. Faults are injected by `nemesis.hosts`, which reaches the
nodes through their agents and registers a listener here.
"""

import asyncio
import base64
import contextlib
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from harness.contracts.node_events import Excuse, NodeListener
from harness.contracts.system import (
    DiskFormatter,
    EventSource,
    HasLogFiles,
    HasMetadataThread,
    Node,
    NodeFiles,
)
from harness.environments.real import RealCluster, final_line
from harness.environments.request import ClusterRequest
from nemesis.agent.client import AgentClient, AgentGoneError
from nemesis.agent.errors import AgentError

STOP_LIMIT_S = 15.0
DISK_MIB = 512
READ_BYTES = 1 << 20
"""How much of a file an agent sends in one response."""
OUTPUT_BYTES = 1 << 18
"""How much of a node's output is searched for the reason of its end."""


@dataclass(slots=True, kw_only=True)
class HostNode:
    """One node. Mutable: its process changes.

    Attributes:
        name: "b1", "c11".
        address: Its own IPv4 address.
        port: Where it listens.
        agent: The agent of its host.
        pid: Its process as the agent sees it; 0 while there is none.
        starts: How often it was started.
    """

    name: str
    role: str
    node_id: int
    address: str
    port: int
    agent: AgentClient
    pid: int = 0
    starts: int = 0

    def placed(self) -> Node:
        """Returns the node as its system knows it."""
        return Node(name=self.name, role=self.role, node_id=self.node_id, address=self.listen)

    @property
    def listen(self) -> str:
        """The address and port at which it listens."""
        return f"{self.address}:{self.port}"


class Placement(Protocol):
    """The hosts of the nodes.

    Attributes:
        nodes: By name, controllers first.
        client_addresses: IPv4 address of every client host and of the harness, as nodes see it.
        client_sources: Address from which a client host connects; the kernel chooses for hosts that are not named.
        packets_at_clients: Node name under which an agent catches packets that arrive at clients; "" if none can.
    """

    nodes: dict[str, HostNode]
    client_addresses: dict[str, str]
    client_sources: dict[str, str]
    packets_at_clients: str

    def mechanisms(self) -> Sequence[Mapping[str, Mapping[str, Any]]]:
        """Returns what the agent of each host found out about its kernel and tools."""
        ...

    async def begin(self) -> None:
        """Makes hosts, disks and files; starts no node."""
        ...

    async def start_process(self, node: HostNode) -> int:
        """Starts a node's process and returns its pid; 0 if it ended at once."""
        ...

    async def exit_code(self, node: HostNode) -> int | None:
        """Returns how a node's last process ended; None if unknown."""
        ...

    async def output(self, node: HostNode) -> str:
        """Returns the end of what a node wrote to standard output and error."""
        ...

    def source(self) -> EventSource:
        """Returns the event logs."""
        ...

    async def collect(self) -> None:
        """Copies the nodes' logs to the run's directory; files that cannot be copied are left out."""
        ...

    async def end(self) -> list[str]:
        """Removes everything; returns what could not be removed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFolders:
    """Where a node's data and files are on its host.

    Attributes:
        directory: Holds the mounted disk.
        log: The node's files and logs.
        files: Text by name; still to be written to `log`.
    """

    directory: str
    log: str
    files: Mapping[str, str]


async def add_node(
    node: HostNode, nodes: Mapping[str, HostNode], request: ClusterRequest, *, seen_at: str = ""
) -> NodeFolders:
    """Has the node's agent make its disk and folders.

    Args:
        node: Which one.
        nodes: All nodes of the cluster, this one included.
        request: What the cluster is made for.
        seen_at: Where the node's process sees its directory; "" if that is where it is on the host.
    """
    system = request.system
    made = await node.agent.request(
        "add_node",
        node=node.name,
        addresses=[node.address],
        filesystem=request.disk,
        size_mib=DISK_MIB,
        log_files=system.log_files if isinstance(system, HasLogFiles) else "",
    )
    files = system.node_files(
        node.placed(),
        [other.placed() for other in nodes.values()],
        request.settings,
        data_dir=f"{seen_at or made['directory']}/disk/data",
    )
    return NodeFolders(directory=made["directory"], log=made["log"], files=files)


class HostCluster(RealCluster):
    """Implements `harness.contracts.cluster.Deployment` over hosts with agents.

    Args:
        placement: The hosts; not begun yet.
        request: What the cluster is made for.

    Attributes:
        mechanisms: What the agent of each host found out about its kernel and tools.
        seed: For draws inside a fault (which pages survive).
        metadata_thread: Pattern of the names of the threads with which a broker applies committed metadata.
    """

    def __init__(self, placement: Placement, request: ClusterRequest) -> None:
        super().__init__(request, [node.placed() for node in placement.nodes.values()])
        self._request = request
        self.placement = placement
        self.nodes = placement.nodes
        self.client_addresses = placement.client_addresses
        self.packets_at_clients = placement.packets_at_clients
        self.mechanisms = placement.mechanisms()
        self.seed = request.seed
        self.metadata_thread = (
            request.system.metadata_thread if isinstance(request.system, HasMetadataThread) else ""
        )
        self.leftovers: list[str] = []
        self.facts: dict[str, Any] = {}
        self._formatted = dict.fromkeys(self.nodes, 0)
        self._listener: NodeListener | None = None
        self._expected_down: dict[str, None] = dict.fromkeys(self.nodes)
        # Processes by node and pid: all that have ended, and all that were taken down.
        self._ended: set[tuple[str, int]] = set()
        self._taken_down: set[tuple[str, int]] = set()
        self._changing = {name: asyncio.Lock() for name in self.nodes}
        self._is_ending = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def describe(self) -> dict[str, Any]:
        """Returns, for the run's record, the hosts' kernels and what could not be removed."""
        return {"hosts": self.facts, "left_behind": self.leftovers}

    def listen(self, listener: NodeListener) -> None:
        """Registers the listener that is called when nodes start and end."""
        self._listener = listener

    # -- life

    async def start(self) -> None:
        """Makes the hosts, starts all nodes and follows their event logs."""
        self._loop = asyncio.get_running_loop()
        await self.placement.begin()
        for node in self.nodes.values():
            if node.agent.name not in self.facts:
                self.facts[node.agent.name] = await node.agent.request("facts")
        for agent in {id(node.agent): node.agent for node in self.nodes.values()}.values():
            agent.on_event = self._event_of_agent
        self.open_client_hosts(self.placement.client_sources)
        await self.start_all()
        self.follow(self.placement.source())

    async def end(self) -> None:
        """Stops following, copies the nodes' logs, and removes everything. Never raises."""
        self._is_ending = True
        problems = []
        for step in (self.stop_following, self.placement.collect):
            try:
                await step()
            except Exception as error:
                problems.append(f"{step.__name__}: {type(error).__name__}: {error}")
        try:
            problems += await self.placement.end()
        except Exception as error:  # whatever it is, the verdict does not depend on it
            problems.append(f"{type(error).__name__}: {error}")
        self.leftovers = problems

    def is_alive(self, name: str) -> bool:
        """Whether a node's process exists, running or not."""
        return self.nodes[name].pid > 0

    def runs(self, name: str) -> bool:
        """Whether a node's process runs and is not being taken down."""
        return self.is_alive(name) and name not in self._expected_down

    async def start_node(self, name: str) -> bool:
        """Starts a node; returns whether it was down."""
        # Two faults may be healed at once, and both start the nodes that are down.
        async with self._changing[name]:
            return await self._start_if_down(self.nodes[name])

    async def start_all(self) -> None:
        """Starts all nodes that are down."""
        await asyncio.gather(*(self.start_node(name) for name in self.nodes))

    async def settle(self) -> None:
        """Starts all nodes that are down."""
        await self.start_all()

    async def _start_if_down(self, node: HostNode) -> bool:
        if node.pid:
            return False
        if self._listener is not None:
            await self._listener.before_start(node.name)
        await self._format(node)
        self._expected_down.pop(node.name, None)
        node.starts += 1
        pid = await self.placement.start_process(node)
        # A process may end before its start is known here.
        if not pid:
            self._dead(node)
        elif (node.name, pid) not in self._ended:
            node.pid = pid
            self.went_up(node.name)
        return True

    async def _format(self, node: HostNode) -> None:
        """Formats the empty disk of a node that needs it: before its first start, and after its disk was wiped."""
        system = self._request.system
        if not isinstance(system, DiskFormatter):
            return
        files = await asyncio.to_thread(
            system.disk_files, node.placed(), self._request.settings, self._formatted[node.name]
        )
        encoded = {path: base64.b64encode(data).decode() for path, data in files.items()}
        response = await node.agent.request("format_disk", node=node.name, files=encoded)
        self._formatted[node.name] += response["formatted"]

    async def end_process(self, name: str, how: str, limit_s: float = STOP_LIMIT_S) -> Any:
        """Ends a node's process by "stop" or "kill"; its end is expected from now on."""
        async with self._changing[name]:
            if self._listener is not None:
                await self._listener.before_end((name,))
            self._expected_down[name] = None
            agent = self.nodes[name].agent
            response = await agent.request("end_process", node=name, how=how, limit_s=limit_s)
            self.process_is_gone(name)
            return response

    async def exit_code(self, name: str) -> int | None:
        """Returns how a node's last process ended; None if unknown."""
        return await self.placement.exit_code(self.nodes[name])

    def process_is_gone(self, name: str) -> None:
        """Notes that a node was taken down."""
        node = self.nodes[name]
        self._expected_down[name] = None
        if node.pid:
            self._taken_down.add((name, node.pid))
            node.pid = 0
            self.went_down((name,))

    def expect_end(self, name: str) -> None:
        """Notes that a node is about to be taken down."""
        self._expected_down[name] = None

    def is_expected_up(self, name: str) -> None:
        """Notes that a node was not taken down after all."""
        self._expected_down.pop(name, None)

    def node_files(self, name: str) -> NodeFiles:
        """Returns access to the files on a node's disk."""
        return _AgentFiles(self.nodes[name])

    async def write_beside(self, name: str, file: str, text: str) -> None:
        """Replaces a file beside the files of a node.

        Raises:
            OSError: It cannot be written.
        """
        try:
            await self.nodes[name].agent.request("write_beside", node=name, file=file, text=text)
        except (AgentError, AgentGoneError) as error:
            raise OSError(str(error)) from None

    # -- processes that end

    def _event_of_agent(self, event: dict[str, Any]) -> None:
        """Takes an agent's event, on the reader's thread."""
        if event.get("event") == "exited" and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the run is over
                self._loop.call_soon_threadsafe(self._exited, event)

    def _exited(self, event: dict[str, Any]) -> None:
        name = event["node"]
        node = self.nodes[name]
        process = (name, event["pid"])
        self._ended.add(process)
        if process in self._taken_down or name in self._expected_down or self._is_ending:
            return
        self._dead(node)

    def _dead(self, node: HostNode) -> None:
        """Notes that a process ended although nothing had ended it."""
        node.pid = 0
        self._expected_down[node.name] = None
        excuse = None if self._listener is None else self._listener.excuse_for_end(node.name)
        self._background(self._ended_by_itself(node, excuse))

    async def _ended_by_itself(self, node: HostNode, excuse: Excuse | None) -> None:
        line = code = None
        with contextlib.suppress(AgentError, AgentGoneError):
            line = final_line(self._request.system, await self.placement.output(node))
            code = await self.placement.exit_code(node)
        if excuse is None:
            self.died(node.name, f"exit code {code}", line or "no log line")
            return
        self.went_down((node.name,))
        if not excuse(line or ""):
            await self.start_node(node.name)  # healing the fault has not started it

    def _background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def true_wall_ms(self, name: str, at_ns: int) -> float:
        """Returns the true wall time at a moment of this machine's monotonic clock."""
        return (time.time_ns() - time.monotonic_ns() + at_ns) / 1e6


class _AgentFiles:
    """Implements `NodeFiles` over the agent of a node's host."""

    def __init__(self, node: HostNode) -> None:
        self._node = node

    def list(self, directory: str) -> list[str]:
        """Returns the names in a directory; empty if it does not exist."""
        names: list[str] = self._call("list_files", directory=directory)["names"]
        return names

    def read(self, path: str, length: int, offset: int = 0) -> bytes:
        """Returns bytes of a file."""
        data = b""
        while len(data) < length:
            wanted = min(READ_BYTES, length - len(data))
            response = self._call("read_disk", path=path, offset=offset + len(data), length=wanted)
            more = base64.b64decode(response["base64"], validate=True)
            data += more
            if len(more) < wanted:
                break
        return data

    def _call(self, command: str, **arguments: Any) -> Any:
        try:
            return self._node.agent.call(command, node=self._node.name, **arguments)
        except (AgentError, AgentGoneError, ValueError) as error:
            raise OSError(str(error)) from None
