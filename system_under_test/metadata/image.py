"""The image: what a prefix of the metadata log adds up to.

Registrations are frozen and replaced as a whole, so a copy of the image is two or three shallow dictionary
copies, and a reader may keep what it was handed. `ClusterImage` itself is mutable: one per owner. A controller
keeps one that follows the committed records and, while it is active, one that runs ahead of it (CTRL-1, CTRL-3).
"""

from dataclasses import dataclass
from uuid import UUID

from system_under_test.metadata.records import NO_LEADER, RECOVERED


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRegistration:
    """A partition as the controller knows it (section 3.6)."""

    topic: str
    topic_id: UUID
    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int = NO_LEADER
    leader_epoch: int = 0
    partition_epoch: int = 0
    leader_recovery_state: int = RECOVERED
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    directories: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """A broker as the controller knows it (section 3.7)."""

    broker_id: int
    broker_epoch: int
    incarnation_id: UUID
    address: str
    fenced: bool
    in_controlled_shutdown: bool
    register_record_offset: int
    log_dirs: tuple[UUID, ...] = ()

    @property
    def is_active(self) -> bool:
        """Whether it may lead and join ISRs: neither fenced nor shutting down."""
        return not self.fenced and not self.in_controlled_shutdown


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicImage:
    """A topic's identity."""

    name: str
    topic_id: UUID
