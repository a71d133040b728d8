"""The nodes of a cluster on hosts, as far as faults need them.

These protocols are everything that this package knows of an environment; `harness.environments.hosts.cluster`
implements them without being imported here.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from harness.contracts.administration import Action, ActionOutcome
from harness.contracts.node_events import NodeListener
from nemesis import fault_points

STOP_LIMIT_S = 15.0
"""How long a process may take to end after a signal, unless a fault sets another limit."""

ClockReading = tuple[int, int, int]
"""(at_ns, wall_ms, monotonic_ns): when a node read its clocks, and what they showed."""


class Agent(Protocol):
    """The agent of a host."""

    async def request(self, command: str, **arguments: Any) -> Any:
        """Runs a command on the host and returns its response.

        Raises:
            AgentError: The command failed.
            AgentGoneError: The agent cannot be reached.
        """
        ...


class Node(Protocol):
    """A node on a host."""

    @property
    def name(self) -> str:
        """Its name, for example "b1"."""
        ...

    @property
    def address(self) -> str:
        """Its own IPv4 address."""
        ...

    @property
    def port(self) -> int:
        """The port on which it listens."""
        ...

    @property
    def agent(self) -> Agent:
        """The agent of its host."""
        ...

    @property
    def pid(self) -> int:
        """Its process, 0 while there is none."""
        ...

    @property
    def starts(self) -> int:
        """How often it was started."""
        ...


class Cluster(fault_points.Cluster, Protocol):
    """A cluster whose nodes run on hosts with agents."""

    @property
    def nodes(self) -> Mapping[str, Node]:
        """All nodes by name."""
        ...

    @property
    def client_addresses(self) -> Mapping[str, str]:
        """IPv4 address of every client host and of the harness, as nodes see it."""
        ...

    @property
    def packets_at_clients(self) -> str:
        """Node name under which an agent can catch packets that arrive at clients; "" if none can."""
        ...

    @property
    def clocks(self) -> Mapping[str, Sequence[ClockReading]]:
        """What each node reported about its clocks, oldest first."""
        ...

    @property
    def mechanisms(self) -> Sequence[Mapping[str, Mapping[str, Any]]]:
        """What the agent of each host found out about its kernel and tools."""
        ...

    @property
    def seed(self) -> int:
        """Seed of the draws inside a fault."""
        ...

    @property
    def metadata_thread(self) -> str:
        """Pattern of the names of the threads with which a broker applies committed metadata; "" if unknown."""
        ...

    async def administer(self, action: Action) -> ActionOutcome:
        """Requests an administrative action; returns what became of it after a limited time."""
        ...

    def listen(self, listener: NodeListener) -> None:
        """Registers the listener that is called when nodes start and end."""
        ...

    async def start_node(self, name: str) -> bool:
        """Starts a node; returns whether it was down."""
        ...

    async def end_process(self, name: str, how: str, limit_s: float = STOP_LIMIT_S) -> Any:
        """Ends a node's process by "stop" (SIGTERM) or "kill" (SIGKILL); returns the agent's response."""
        ...

    async def exit_code(self, name: str) -> int | None:
        """Returns how a node's last process ended; None if unknown."""
        ...

    def expect_end(self, name: str) -> None:
        """Notes that a node is about to be taken down."""
        ...

    def is_expected_up(self, name: str) -> None:
        """Notes that a node was not taken down after all."""
        ...

    def process_is_gone(self, name: str) -> None:
        """Notes that a node was taken down."""
        ...

    def true_wall_ms(self, name: str, at_ns: int) -> float:
        """Returns the true wall time at a moment of the monotonic clock of a node's readings."""
        ...
