"""What an environment needs to make a cluster."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.contracts.cluster import AddRow
from harness.contracts.metrics import MetricsSink
from harness.contracts.system import Settings, System
from harness.contracts.violation import Violation


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentRequest:
    """What can be checked before a cluster is made.

    Attributes:
        brokers, controllers: How many of each.
        inventory: File that lists the hosts, where the environment needs one.
    """

    brokers: int
    controllers: int
    inventory: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRequest(EnvironmentRequest):
    """A cluster to be made for one run.

    Attributes:
        system: What runs on the nodes.
        settings: Configuration of all nodes.
        clients: How many client hosts workloads need.
        disk: Kind of file system of the nodes' disks, where the environment makes disks.
        logs_to: Where the nodes' files and logs go.
        add_row: Takes history rows.
        on_violation: Called with every violation by a node: it ended by itself, or contradicted another.
        seed: Of the draws of clients and inside a fault; the same for the same seed.
        collected: Names of further files beside the nodes' files that are copied to `logs_to` at the end.
        metrics: Takes the metrics that nodes report; None if nothing does.
    """

    system: System
    settings: Settings
    clients: int
    disk: str
    logs_to: Path
    add_row: AddRow
    on_violation: Callable[[Violation], None]
    seed: int
    collected: Sequence[str] = ()
    metrics: MetricsSink | None = None
