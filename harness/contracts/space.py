"""A space of configurations: for each key of an experiment the values from which every seed draws one.

The default space is here too, as far as it is the same for every system; what a system adds comes from its adapter
(`harness.contracts.system.HasSpace`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """All numbers between two, both included.

    Whole numbers are drawn if both ends are whole. Ranges that begin above 0 are drawn so that every factor is
    equally likely: from 100 to 10000, half of the values are below 1000.

    Attributes:
        least, most: The ends.
    """

    least: float
    most: float


Draws: TypeAlias = tuple[Any, ...] | Range
"""Values of one key; one that occurs twice is twice as likely."""

Space: TypeAlias = Mapping[str, Draws]
"""What is drawn for each key, for example "topic.partitions"."""

DEFAULT_SPACE: Space = {
    "weather": ("light", "stormy", "stormy", "calm"),
    "cluster.brokers": (3, 3, 3, 4, 5),
    "cluster.controllers": (3, 3, 3, 1, 5),
    "cluster.segment_bytes": (1 << 30, 1 << 14, 1 << 12, 1 << 10),
    "cluster.flush_messages": (2**53, 2**53, 2**53, 1, 20),
    "cluster.unclean_leader_election": (*(False,) * 9, True),
    "cluster.disk": ("ext4", "ext4", "xfs", "posix-strict"),
    "topic.count": (1, 1, 1, 2),
    "topic.partitions": (1, 1, 2, 3, 5),
    "topic.replication_factor": (3, 3, 3, 2, 4, 5),
    "topic.min_insync_replicas": (2, 2, 2, 2, 1, 3),
    "topic.assignment": ("round-robin", "shuffled"),
    "workload.acks": (("all",), ("all",), ("all", "all", "1"), ("all", "1", "0"), ("1",)),
    "workload.poll_max_bytes": (16384, 16384, 1024, 200),
    "workload.fetches_per_poll_max": (1, 1, 4),
    "workload.record_bytes_max": (0, 0, 300, 3000),
    "workload.follower_fetch_share": (0.0, 0.0, 0.3),
    "workload.records_per_batch_max": (1, 1, 1, 4, 12),
    "workload.partitions_per_request_max": (1, 1, 3),
    "workload.enable_idempotence": (True, False),
    "workload.retries": (2**31 - 1, 2**31 - 1, 2**31 - 1, 1),
    "workload.request_timeout_ms": Range(least=500, most=3000),
}
"""The part of the default space that does not depend on the system. Most draws are what users run."""

BOUNDED_BY: Mapping[str, str] = {
    "topic.replication_factor": "cluster.brokers",
    "topic.min_insync_replicas": "topic.replication_factor",
}
"""Keys that cannot be larger than others. They are drawn after those, from the values that are left."""
