"""The front door of the system under test: one configuration in, one node out."""

from typing import Protocol

from system_under_test.broker.broker import BrokerNode
from system_under_test.config import NodeConfig
from system_under_test.controller.server import ControllerNode
from system_under_test.runtime import Host


class Node(Protocol):
    """One incarnation of a node. Started once, stopped at most once, then thrown away."""

    node_id: int

    async def start(self) -> None:
        """Starts the node; returns once it listens and its tasks run."""
        ...

    async def stop(self) -> None:
        """Stops the node in order: a controlled shutdown (LIFE-3), or a resignation."""
        ...


def build_node(config: NodeConfig, host: Host) -> Node:
    """Makes the node that a configuration describes. Reads its directories, and starts nothing.

    Raises:
        ValueError: The role is neither "broker" nor "controller".
    """
    if config.role == "broker":
        return BrokerNode(host, config)
    if config.role == "controller":
        return ControllerNode(host, config)
    raise ValueError(f"a node is a broker or a controller, not {config.role!r}")
