"""The input of the controller's decisions besides the image, and their result.

Every decision is a pure function of an image, a request, the time and a `Policy`. It returns a `Decision`; only
`controller.py` performs it.
"""

from dataclasses import dataclass
from typing import Any

from system_under_test.config import Features, NodeConfig
from system_under_test.metadata.image import ClusterImage, PartitionRegistration
from system_under_test.metadata.records import MetadataRecord
from system_under_test.protocol.errors import ErrorCode
from system_under_test.rules import ALL_RULES, Rules

NS_PER_MS = 1_000_000


class RequestRefusedError(Exception):
    """A request, or the part of it that concerns one resource, is refused; carries the error of the response."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        """Stores the error code and the sentence for the client."""
        self.error = error
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The static part of every decision.

    Attributes:
        default_min_isr: `min.insync.replicas` if neither topic nor cluster sets it.
        default_unclean_election: `unclean.leader.election.enable`, likewise.
        default_partition_count: Number of partitions of a topic if its creation request does not specify it.
    """

    cluster_id: str
    features: Features
    session_timeout_ns: int
    rules: Rules = ALL_RULES
    default_min_isr: int = 1
    default_unclean_election: bool = False
    default_replication_factor: int = 1
    default_partition_count: int = 1

    @classmethod
    def from_config(cls, config: NodeConfig) -> "Policy":
        """Returns the policy that follows from a node's configuration."""
        return cls(
            cluster_id=config.cluster_id,
            features=config.features,
            session_timeout_ns=config.timings.broker_session_timeout_ms * NS_PER_MS,
            rules=config.rules,
            default_min_isr=config.min_insync_replicas,
            default_unclean_election=config.unclean_leader_election_enable,
            default_replication_factor=config.default_replication_factor,
            default_partition_count=config.num_partitions,
        )

    def min_isr(self, image: ClusterImage, registration: PartitionRegistration) -> int:
        """Returns the effective min ISR of a partition (MIN-2)."""
        counted = registration
        if not self.rules("MIN-2"):
            counted = image.partition(registration.topic, 0) or registration
        return image.effective_min_isr(counted, self.default_min_isr)

    def unclean_election(self, image: ClusterImage, topic: str) -> bool:
        """Whether a topic allows unclean elections (EL-2)."""
        return image.unclean_election_enabled(topic, self.default_unclean_election)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A rare branch that a decision took; reported when the decision is performed."""

    name: str
    details: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Records to write, the response to send once they are committed, and marks of rare branches."""

    records: tuple[MetadataRecord, ...] = ()
    response: Any = None
    marks: tuple[Mark, ...] = ()


def mark(name: str, **details: Any) -> Mark:
    """Makes a mark."""
    return Mark(name=name, details=details)
