"""Entry point of the system under test: builds a node from its configuration."""

from collections.abc import Iterable
from typing import Protocol

from system_under_test.broker.broker import BrokerNode
from system_under_test.config import NodeConfig
from system_under_test.controller.server import ControllerNode
from system_under_test.protocol.feature_levels import FeatureLevels
from system_under_test.runtime import Host
from system_under_test.runtime.metrics import Sample


class Node(Protocol):
    """One incarnation of a node. Started once, stopped at most once, then discarded."""

    node_id: int

    def metrics(self) -> Iterable[Sample]:
        """Returns the metrics as they are now; computed at the call."""
        ...

    def feature_levels(self) -> FeatureLevels:
        """Returns the feature levels that this node supports, and those in force as far as it knows."""
        ...

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
