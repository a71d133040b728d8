"""The image: the state that a prefix of the metadata log describes.

Registrations are frozen and replaced as a whole, so a copy of the image is a few shallow dictionary copies, and a
reader may keep a registration. `ClusterImage` itself is mutable, with one owner. A controller has one image that
follows the committed records and, while it is active, another one that also has its uncommitted records (CTRL-1,
CTRL-3). Brokers use the same class.

Look-ups by broker scan all partitions: they are needed for rare events only (fencing, registration), and clusters
are small.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from system_under_test.invariants import check_invariant
from system_under_test.metadata.records import (
    LEADER_UNCHANGED,
    NO_LEADER,
    RECOVERED,
    UNASSIGNED_DIRECTORY,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    IgnoredRecord,
    LeaderChangeRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)

ELR_FEATURE = "eligible.leader.replicas.version"
GROUP_FEATURE = "group.version"
TRANSACTION_FEATURE = "transaction.version"
METADATA_VERSION_FEATURE = "metadata.version"
MIN_ISR_CONFIG = "min.insync.replicas"
UNCLEAN_ELECTION_CONFIG = "unclean.leader.election.enable"
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
CLUSTER_DEFAULT = ""
"""Resource name of the cluster-wide default among the broker configurations."""

TOPIC_NAME_LENGTH_MAX = 249
TOPIC_NAME_CHARACTERS = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
)

PartitionKey = tuple[UUID, int]


def is_legal_topic_name(name: str) -> bool:
    """Whether a topic may have this name: 1 to 249 of a-z A-Z 0-9 . _ - and not "." or ".."."""
    return (
        0 < len(name) <= TOPIC_NAME_LENGTH_MAX
        and name not in (".", "..")
        and TOPIC_NAME_CHARACTERS.issuperset(name)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRegistration:
    """A partition as the metadata log describes it."""

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

    @property
    def has_preferred_leader(self) -> bool:
        """Whether the first replica leads."""
        return self.leader == self.replicas[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """A broker as the metadata log describes it."""

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
    """Name and id of a topic."""

    name: str
    topic_id: UUID


def merge_change(
    registration: PartitionRegistration, change: PartitionChangeRecord
) -> PartitionRegistration:
    """Returns a registration with a change applied (META-1).

    An absent field is unchanged. The partition epoch always grows by one. The leader epoch grows by one if and
    only if the record names a leader, even if it is the same one or none.
    """
    fields: dict[str, Any] = {"partition_epoch": registration.partition_epoch + 1}
    # [META-1] A record that names the leader starts a leader epoch, even for the same leader: followers must
    # compare their logs with the leader's again.
    if change.leader != LEADER_UNCHANGED:
        fields["leader"] = change.leader
        fields["leader_epoch"] = registration.leader_epoch + 1
    optional: tuple[tuple[str, Any], ...] = (
        ("isr", change.isr),
        ("leader_recovery_state", change.leader_recovery_state),
        ("replicas", change.replicas),
        ("adding_replicas", change.adding_replicas),
        ("removing_replicas", change.removing_replicas),
        ("directories", change.directories),
        ("elr", change.eligible_leader_replicas),
        ("last_known_elr", change.last_known_elr),
    )
    fields.update((name, value) for name, value in optional if value is not None)
    if change.replicas is not None and change.directories is None and registration.directories:
        # Directories are in the order of the replicas, so they cannot stay as they are.
        known = dict(zip(registration.replicas, registration.directories, strict=False))
        fields["directories"] = tuple(
            known.get(replica, UNASSIGNED_DIRECTORY) for replica in change.replicas
        )
    return replace(registration, **fields)


@dataclass(slots=True, kw_only=True)
class ClusterImage:
    """The cluster after a prefix of the metadata log. Mutable; replay records in log order.

    Attributes:
        brokers: Registrations by broker id.
        topics: Topics by id; `topics_by_name` holds the same values by name.
        partitions: Registrations by (topic id, partition index), in the order of creation.
        features: Finalized feature levels by name.
        configs: Values by (resource type, resource name, configuration name).
        next_producer_id: The first producer id that is not assigned to a broker.
        last_offset: Offset of the last replayed record, -1 before the first.
        clears_leaderless_elr: Whether a `ClearElrRecord` also empties the ELR of partitions with an empty ISR, as
            Kafka's controller does. An image of Kafka's log must replay it as its writer does.
    """

    brokers: dict[int, BrokerRegistration] = field(default_factory=dict)
    topics: dict[UUID, TopicImage] = field(default_factory=dict)
    topics_by_name: dict[str, TopicImage] = field(default_factory=dict)
    partitions: dict[PartitionKey, PartitionRegistration] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    configs: dict[tuple[int, str, str], str] = field(default_factory=dict)
    next_producer_id: int = 0
    last_offset: int = -1
    clears_leaderless_elr: bool = False

    def copy(self) -> "ClusterImage":
        """Returns an independent image with the same content."""
        return ClusterImage(
            brokers=dict(self.brokers),
            topics=dict(self.topics),
            topics_by_name=dict(self.topics_by_name),
            partitions=dict(self.partitions),
            features=dict(self.features),
            configs=dict(self.configs),
            next_producer_id=self.next_producer_id,
            last_offset=self.last_offset,
            clears_leaderless_elr=self.clears_leaderless_elr,
        )

    def replay(self, offset: int, record: MetadataRecord) -> None:
        """Applies one record of the metadata log.

        Args:
            offset: The record's offset; must be higher than that of the record before.
            record: Any metadata record; control records and no-ops only move the offset.

        Raises:
            InvariantViolation: The record does not fit the image (a stale broker epoch, an unknown topic).
        """
        check_invariant(
            offset > self.last_offset,
            "INV-5",
            "metadata records are replayed in the order of their offsets",
            offset=offset,
            last_offset=self.last_offset,
        )
        self.last_offset = offset
        _REPLAY[type(record)](self, offset, record)

    def load(self, records: Iterable[MetadataRecord], *, last_offset: int) -> None:
        """Replays the records of a snapshot into an empty image (RAFT-8).

        Args:
            records: The whole snapshot.
            last_offset: Offset of the last record of the log that the snapshot covers.

        Raises:
            InvariantViolation: A record does not fit the ones before it.
        """
        for record in records:
            _REPLAY[type(record)](self, last_offset, record)
        self.last_offset = last_offset

    @property
    def elr_on(self) -> bool:
        """Whether eligible leader replicas are finalized in the metadata; independent of the node's settings."""
        return self.features.get(ELR_FEATURE, 0) > 0

    def is_active(self, broker_id: int) -> bool:
        """Whether a broker is registered, not fenced and not in controlled shutdown."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def partition(self, topic: str, index: int) -> PartitionRegistration | None:
        """Returns a partition by topic name and index, None if it does not exist."""
        named = self.topics_by_name.get(topic)
        return None if named is None else self.partitions.get((named.topic_id, index))

    def partitions_of(self, topic_id: UUID) -> list[PartitionRegistration]:
        """Returns the partitions of a topic, ordered by index."""
        return self._select(lambda registration: registration.topic_id == topic_id)

    def leaderless_partitions(self) -> list[PartitionRegistration]:
        """Returns the partitions without a leader, ordered by topic name and index."""
        return self._select(lambda registration: registration.leader == NO_LEADER)

    def is_imbalanced(self) -> bool:
        """Whether any partition is not led by its preferred leader."""
        return any(not one.has_preferred_leader for one in self.partitions.values())

    def imbalanced_partitions(self) -> list[PartitionRegistration]:
        """Returns the partitions that their preferred leader does not lead, ordered by topic name and index."""
        return self._select(lambda registration: not registration.has_preferred_leader)

    def partitions_with_in_isr(self, broker_id: int) -> list[PartitionRegistration]:
        """Returns the partitions that have a broker in the ISR, ordered by topic name and index."""
        return self._select(lambda registration: broker_id in registration.isr)

    def partitions_with_in_elr(self, broker_id: int) -> list[PartitionRegistration]:
        """Returns the partitions that have a broker in the ELR, ordered by topic name and index."""
        return self._select(lambda registration: broker_id in registration.elr)

    def leads_any(self, broker_id: int) -> bool:
        """Whether a broker leads at least one partition."""
        return any(registration.leader == broker_id for registration in self.partitions.values())

    def min_insync_replicas(self, topic: str, default: int) -> int:
        """Returns `min.insync.replicas` of a topic: its own value, the cluster's, or the node's default."""
        value = self._topic_config(topic, MIN_ISR_CONFIG)
        return default if value is None else int(value)

    def effective_min_isr(self, registration: PartitionRegistration, default: int) -> int:
        """Returns the effective min ISR of a partition: never more than it has replicas.

        Source:
            MIN-2, KAFKA-15583. Kafka's controller uses the replica count of partition 0 for all partitions of a
            topic; here the partition's own count is used.
        """
        return min(
            self.min_insync_replicas(registration.topic, default), len(registration.replicas)
        )

    def unclean_election_enabled(self, topic: str, default: bool) -> bool:
        """Returns `unclean.leader.election.enable` of a topic, looked up like min.insync.replicas (EL-2)."""
        value = self._topic_config(topic, UNCLEAN_ELECTION_CONFIG)
        return default if value is None else value == "true"

    def _topic_config(self, topic: str, name: str) -> str | None:
        own = self.configs.get((TOPIC_RESOURCE, topic, name))
        if own is not None:
            return own
        return self.configs.get((BROKER_RESOURCE, CLUSTER_DEFAULT, name))

    def _select(
        self, wanted: Callable[[PartitionRegistration], bool]
    ) -> list[PartitionRegistration]:
        found = [registration for registration in self.partitions.values() if wanted(registration)]
        found.sort(key=lambda registration: (registration.topic, registration.partition))
        return found

    def _feature_level(self, _offset: int, record: FeatureLevelRecord) -> None:
        self.features[record.name] = record.feature_level

    def _register_broker(self, offset: int, record: RegisterBrokerRecord) -> None:
        self.brokers[record.broker_id] = BrokerRegistration(
            broker_id=record.broker_id,
            broker_epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            address=record.address,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            register_record_offset=offset,
            log_dirs=record.log_dirs,
        )

    def _registered(self, broker_id: int, broker_epoch: int) -> BrokerRegistration:
        broker = self.brokers.get(broker_id)
        # A change of another registration than the current one can only come from a controller whose state differs
        # from the log. Applying it would fence or unfence the wrong incarnation.
        check_invariant(
            broker is not None and broker.broker_epoch == broker_epoch,
            "INV-8",
            "a registration change names the registered broker epoch",
            broker_id=broker_id,
            record_epoch=broker_epoch,
            registered_epoch=None if broker is None else broker.broker_epoch,
        )
        assert broker is not None
        return broker

    def _unregister_broker(self, _offset: int, record: UnregisterBrokerRecord) -> None:
        self._registered(record.broker_id, record.broker_epoch)
        del self.brokers[record.broker_id]

    def _change_registration(self, _offset: int, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._registered(record.broker_id, record.broker_epoch)
        self.brokers[record.broker_id] = replace(
            broker,
            fenced=broker.fenced if record.fenced is None else record.fenced,
            in_controlled_shutdown=(
                broker.in_controlled_shutdown
                if record.in_controlled_shutdown is None
                else record.in_controlled_shutdown
            ),
            log_dirs=broker.log_dirs if record.log_dirs is None else record.log_dirs,
        )

    def _topic(self, _offset: int, record: TopicRecord) -> None:
        topic = TopicImage(name=record.name, topic_id=record.topic_id)
        self.topics[record.topic_id] = topic
        self.topics_by_name[record.name] = topic

    def _known_topic(self, topic_id: UUID) -> TopicImage:
        topic = self.topics.get(topic_id)
        check_invariant(
            topic is not None, "INV-5", "a record names a topic of the image", topic_id=topic_id
        )
        assert topic is not None
        return topic

    def _remove_topic(self, _offset: int, record: RemoveTopicRecord) -> None:
        topic = self._known_topic(record.topic_id)
        del self.topics[record.topic_id]
        del self.topics_by_name[topic.name]
        for key in [key for key in self.partitions if key[0] == record.topic_id]:
            del self.partitions[key]
        resource = (TOPIC_RESOURCE, topic.name)
        for config in [config for config in self.configs if config[:2] == resource]:
            del self.configs[config]

    def _partition(self, _offset: int, record: PartitionRecord) -> None:
        topic = self._known_topic(record.topic_id)
        self.partitions[(record.topic_id, record.partition_id)] = PartitionRegistration(
            topic=topic.name,
            topic_id=record.topic_id,
            partition=record.partition_id,
            replicas=record.replicas,
            isr=record.isr,
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            leader_recovery_state=record.leader_recovery_state,
            elr=record.eligible_leader_replicas,
            last_known_elr=record.last_known_elr,
            adding_replicas=record.adding_replicas,
            removing_replicas=record.removing_replicas,
            directories=record.directories,
        )

    def _change_partition(self, _offset: int, record: PartitionChangeRecord) -> None:
        key = (record.topic_id, record.partition_id)
        check_invariant(
            key in self.partitions,
            "INV-5",
            "a partition change names a partition of the image",
            topic_id=record.topic_id,
            partition=record.partition_id,
        )
        self.partitions[key] = merge_change(self.partitions[key], record)

    def _producer_ids(self, _offset: int, record: ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id

    def _clear_elr(self, _offset: int, record: ClearElrRecord) -> None:
        for key, registration in list(self.partitions.items()):
            # [ELR-9-LEADERLESS] A partition with an empty ISR keeps its ELR: it has no leader that could commit
            # under the new min ISR, and without ELR and last-known leader no replica could ever be elected. Kafka
            # clears it anyway.
            if (
                record.topic_name in ("", registration.topic)
                and (registration.isr or self.clears_leaderless_elr)
                and (registration.elr or registration.last_known_elr)
            ):
                cleared = PartitionChangeRecord(
                    topic_id=registration.topic_id,
                    partition_id=registration.partition,
                    eligible_leader_replicas=(),
                    last_known_elr=(),
                )
                self.partitions[key] = merge_change(registration, cleared)

    def _config(self, _offset: int, record: ConfigRecord) -> None:
        key = (record.resource_type, record.resource_name, record.name)
        if record.value is None:
            self.configs.pop(key, None)
        else:
            self.configs[key] = record.value

    def _nothing(
        self, _offset: int, _record: NoOpRecord | IgnoredRecord | LeaderChangeRecord
    ) -> None:
        pass


_REPLAY: dict[type, Callable[[ClusterImage, int, Any], None]] = {
    FeatureLevelRecord: ClusterImage._feature_level,
    RegisterBrokerRecord: ClusterImage._register_broker,
    UnregisterBrokerRecord: ClusterImage._unregister_broker,
    BrokerRegistrationChangeRecord: ClusterImage._change_registration,
    TopicRecord: ClusterImage._topic,
    RemoveTopicRecord: ClusterImage._remove_topic,
    PartitionRecord: ClusterImage._partition,
    PartitionChangeRecord: ClusterImage._change_partition,
    ClearElrRecord: ClusterImage._clear_elr,
    ProducerIdsRecord: ClusterImage._producer_ids,
    ConfigRecord: ClusterImage._config,
    NoOpRecord: ClusterImage._nothing,
    IgnoredRecord: ClusterImage._nothing,
    LeaderChangeRecord: ClusterImage._nothing,
}
