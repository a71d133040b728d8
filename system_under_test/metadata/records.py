"""Metadata records: the content of `__cluster_metadata`, written by the controller.

Names and fields are Kafka's. In `PartitionChangeRecord` None means "unchanged" for every optional field. For
the leader it is `LEADER_UNCHANGED`, because -1 has a meaning there (no leader).
`system_under_test.protocol.metadata_codec` encodes the records.
"""

from dataclasses import dataclass
from uuid import UUID

NO_LEADER = -1
LEADER_UNCHANGED = -2
RECOVERED = 0
RECOVERING = 1

MIGRATING_DIRECTORY = UUID(int=0)
"""The directory of a replica from before directories were recorded; its broker knows it."""
UNASSIGNED_DIRECTORY = UUID(int=1)
"""The directory of a replica whose broker has not chosen one yet."""
LOST_DIRECTORY = UUID(int=2)
"""A directory that does not exist any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLevelRecord:
    """A feature was finalized at a level."""

    name: str
    feature_level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerRecord:
    """A broker registered; a new incarnation of it unless the incarnation id is the registered one."""

    broker_id: int
    incarnation_id: UUID
    broker_epoch: int
    address: str
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBrokerRecord:
    """A broker was removed by an operator."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationChangeRecord:
    """A registration's flags changed. `fenced`: True = fence, False = unfence, None = unchanged."""

    broker_id: int
    broker_epoch: int
    fenced: bool | None = None
    in_controlled_shutdown: bool | None = None
    log_dirs: tuple[UUID, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    """A topic was created."""

    name: str
    topic_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTopicRecord:
    """A topic was deleted."""

    topic_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord:
    """A complete partition, at its creation or in a snapshot."""

    topic_id: UUID
    partition_id: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    leader_recovery_state: int = RECOVERED
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    directories: tuple[UUID, ...] = ()
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChangeRecord:
    """The changed fields of a partition; merged by META-1."""

    topic_id: UUID
    partition_id: int
    isr: tuple[int, ...] | None = None
    leader: int = LEADER_UNCHANGED
    leader_recovery_state: int | None = None
    replicas: tuple[int, ...] | None = None
    adding_replicas: tuple[int, ...] | None = None
    removing_replicas: tuple[int, ...] | None = None
    directories: tuple[UUID, ...] | None = None
    eligible_leader_replicas: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearElrRecord:
    """Empties ELR and last-known ELR of one topic, or of all topics when the name is empty."""

    topic_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRecord:
    """A configuration of a topic (resource type 2) or broker (4) was set, or removed (value None)."""

    resource_type: int
    resource_name: str
    name: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsRecord:
    """A block of producer ids was assigned to a broker; it ends before `next_producer_id` (KIP-730)."""

    broker_id: int
    broker_epoch: int
    next_producer_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOpRecord:
    """No change; written so that the metadata offset keeps moving."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredRecord:
    """A record of Apache Kafka that changes nothing here: its content is not kept.

    Attributes:
        type_id: Kafka's number of the record type; of a control record its control type.
    """

    type_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChangeRecord:
    """A quorum leader began its epoch; a control record (KIP-595 LeaderChangeMessage)."""

    leader_id: int
    voters: tuple[int, ...]


MetadataRecord = (
    FeatureLevelRecord
    | RegisterBrokerRecord
    | UnregisterBrokerRecord
    | BrokerRegistrationChangeRecord
    | TopicRecord
    | RemoveTopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | ClearElrRecord
    | ConfigRecord
    | ProducerIdsRecord
    | NoOpRecord
    | IgnoredRecord
    | LeaderChangeRecord
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataBatch:
    """Records that were appended as one unit (CTRL-2, META-4).

    Attributes:
        base_offset: Offset of the first record in the metadata log.
        quorum_epoch: Quorum epoch in which it was appended.
        records: At least one; record i has offset `base_offset + i`.
    """

    base_offset: int
    quorum_epoch: int
    records: tuple[MetadataRecord, ...]

    @property
    def last_offset(self) -> int:
        """Offset of the last record."""
        return self.base_offset + len(self.records) - 1
