"""Entry point of the system under test: builds a node from its configuration."""

from typing import Protocol

from system_under_test.broker.broker import BrokerNode
from system_under_test.config import NodeConfig
from system_under_test.controller.server import ControllerNode
from system_under_test.runtime import Host


class Node(Protocol):
    """One incarnation of a node. Started once, stopped at most once, then discarded."""

    node_id: int

    async def start(self) -> None:
        """Starts the node; returns when it listens and its tasks run."""
        ...

    async def stop(self) -> None:
        """Stops the node cleanly: a controlled shutdown (LIFE-3), or a resignation."""
        ...


def build_node(config: NodeConfig, host: Host) -> Node:
    """Builds the node of a configuration. Reads its directories, but starts nothing.

    Raises:
        ValueError: The role is neither "broker" nor "controller".
    """
    if config.role == "broker":
        return BrokerNode(host, config)
    if config.role == "controller":
        return ControllerNode(host, config)
    raise ValueError(f"the role of a node must be broker or controller, not {config.role!r}")
