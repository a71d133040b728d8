"""What all replicas of one broker share: its identity, the parts they use, and the rules that apply."""

from collections.abc import Callable

from system_under_test.broker.interfaces import (
    AlterPartitionControl,
    FetcherControl,
    MetadataView,
)
from system_under_test.config import NodeConfig
from system_under_test.log.manager import LogManager
from system_under_test.runtime import Host


class ReplicaContext:
    """Shared by the replica manager, its request handlers and its partitions.

    Attributes:
        rules: The rules that apply; each is queried by its id in the function that applies it.
        features: What the Kafka release that the node imitates can do.
        broker_epoch: Epoch of this incarnation, -1 before the first publish.
        is_stopping: Whether a controlled shutdown has begun.
        on_disk_error: Called with topic and index of a partition whose log failed; takes it offline.
    """

    __slots__ = (
        "alter_partition",
        "broker_epoch",
        "broker_id",
        "features",
        "fetchers",
        "is_stopping",
        "lag_max_ns",
        "logs",
        "metadata",
        "monotonic_ns",
        "observer",
        "on_disk_error",
        "rules",
        "wall_ms",
    )

    fetchers: FetcherControl
    alter_partition: AlterPartitionControl
    on_disk_error: Callable[[str, int, OSError], None]

    def __init__(
        self, host: Host, config: NodeConfig, logs: LogManager, metadata: MetadataView
    ) -> None:
        self.broker_id = config.node_id
        self.broker_epoch = -1
        self.is_stopping = False
        self.logs = logs
        self.metadata = metadata
        self.observer = host.observer
        self.monotonic_ns = host.clock.monotonic_ns
        self.wall_ms = host.clock.wall_ms
        self.lag_max_ns = config.timings.replica_lag_time_max_ms * 1_000_000
        self.rules = config.rules
        self.features = config.features
