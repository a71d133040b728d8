"""Configuration of a node: features (profiles), timings, topology.

A profile is a set of feature switches that represents a Kafka release.
Timings carry Kafka's names and Kafka's defaults; `FAST_TIMINGS` divides them by about ten and keeps the ratios.
"""

from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from system_under_test.rules import ALL_RULES, Rules

LOG_DIR_NAMES = ("data", "data2", "data3", "data4")
"""What the log directories of a node are called; most nodes have the first one only."""
NEVER_MS = 2**53
"""Practically infinite; stands for Kafka's "off" (2^63-1) and is exact as a float."""
ON_FETCH = "on_fetch"
"""The leader reports a divergence in its fetch response (KIP-595; Kafka from 2.7)."""
BY_EPOCH_REQUEST = "offsets_for_leader_epoch"
"""A follower asks with OffsetForLeaderEpoch before it fetches in a new leader epoch (KIP-101, KIP-279)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """Feature switches; each stands for a difference between Kafka releases (`docs/profiles.md`)."""

    profile: str
    metadata_version: int = 27
    """The newest level of `metadata.version` in the release, which is reported; behaviour follows the switches.

    Source: `MetadataVersion.LATEST_PRODUCTION` of the last patch release.
    """
    elr_version: int = 1
    transaction_version: int = 2
    """The level of `transaction.version`: 0, or 2 with epochs for every transaction (KIP-890; from 4.0)."""
    strict_marker_epochs: bool = False
    """Whether a marker ends an open transaction of an older epoch only (TXN-14; KAFKA-19446, from 4.2)."""
    verifies_transactions: bool = True
    """Whether a partition's leader asks the coordinator before the first batch of a transaction (from 3.6)."""
    hw_min_isr_gate: bool = True
    isr_broker_epoch_check: bool = True
    shutdown_detection: str = "epoch_match"
    """"none" (Kafka 3.6 and older), "always_unclean" (3.7-3.9) or "epoch_match" (4.0)."""
    bump_leader_epoch_on_isr_shrink: bool = False
    last_known_leader: bool = True
    last_known_leader_must_be_alive: bool = True
    pre_vote: bool = True
    reassignment_waits_for: str = "target"
    """Replicas that must be in the ISR before a reassignment completes: "added" (before KAFKA-15665, Kafka 3.8),
    all of the "target", or "target-if-fewer" (KAFKA-19975, Kafka 4.3): all if the partition has fewer replicas
    afterwards, else the added ones."""
    caps_min_isr: bool = True
    """Whether a leader limits `min.insync.replicas` to the number of replicas (MIN-1; from 3.7)."""
    recovery_compares_epochs: bool = False
    """Whether recovery cuts a batch that is older than the epoch cache has for its offset (REC-1)."""
    truncation: str = ON_FETCH
    """What shows a follower where it diverges: `ON_FETCH` or `BY_EPOCH_REQUEST` (TRUNC-4)."""
    commit_wakes_metadata_fetch: bool = True
    """Whether a commit answers a fetch of the metadata log that waits (RAFT-9). Kafka does it from 4.1 on."""
    candidate_backs_off: bool = False
    """Whether a candidate that lost waits for a back-off, not for its election timeout (RAFT-10; until 4.0)."""
    message_timestamp_after_max_ms: int = 3_600_000
    """How far a record's timestamp may be ahead of the broker's clock; without a limit before KIP-1030."""
    group_version: int | None = 1
    """Level of `group.version`: consumer groups exist from 1 on (KIP-848). None before 4.0, where only
    `group.coordinator.rebalance.protocols` decides."""
    stores_group_metadata_hash: bool = True
    """Whether a consumer group stores its topics as a hash (Kafka 4.1); before, one by one."""
    fenced_member_may_rejoin: bool = True
    """Whether a fenced member of a consumer group may join again before its session is over (KAFKA-19233)."""
    segment_bytes_min: int = 1 << 20
    """The smallest `segment.bytes` that a topic may have."""

    @property
    def has_group_version(self) -> bool:
        """Whether the release has `group.version`."""
        return self.group_version is not None

    @property
    def elr_on(self) -> bool:
        """Whether eligible leader replicas (KIP-966) are in use."""
        return self.elr_version > 0


PROFILES: dict[str, Features] = {
    "kafka-3.4": Features(
        profile="kafka-3.4",
        metadata_version=8,
        elr_version=0,
        group_version=None,
        stores_group_metadata_hash=False,
        fenced_member_may_rejoin=False,
        transaction_version=0,
        verifies_transactions=False,
        hw_min_isr_gate=False,
        isr_broker_epoch_check=False,
        shutdown_detection="none",
        bump_leader_epoch_on_isr_shrink=True,
        pre_vote=False,
        reassignment_waits_for="added",
        caps_min_isr=False,
        candidate_backs_off=True,
        message_timestamp_after_max_ms=NEVER_MS,
        segment_bytes_min=14,
    ),
    "kafka-3.6": Features(
        profile="kafka-3.6",
        metadata_version=14,
        elr_version=0,
        group_version=None,
        stores_group_metadata_hash=False,
        fenced_member_may_rejoin=False,
        transaction_version=0,
        hw_min_isr_gate=False,
        shutdown_detection="none",
        pre_vote=False,
        reassignment_waits_for="added",
        caps_min_isr=False,
        candidate_backs_off=True,
        message_timestamp_after_max_ms=NEVER_MS,
        segment_bytes_min=14,
    ),
    "kafka-3.9": Features(
        profile="kafka-3.9",
        metadata_version=21,
        elr_version=0,
        group_version=None,
        stores_group_metadata_hash=False,
        fenced_member_may_rejoin=False,
        transaction_version=0,
        shutdown_detection="always_unclean",
        pre_vote=False,
        candidate_backs_off=True,
        message_timestamp_after_max_ms=NEVER_MS,
        segment_bytes_min=14,
    ),
    "kafka-4.0": Features(
        profile="kafka-4.0",
        metadata_version=25,
        elr_version=0,
        stores_group_metadata_hash=False,
        fenced_member_may_rejoin=False,
        candidate_backs_off=True,
        segment_bytes_min=14,
    ),
    "kafka-4.1": Features(profile="kafka-4.1", fenced_member_may_rejoin=False),
    "kafka-4.2": Features(profile="kafka-4.2", metadata_version=29, strict_marker_epochs=True),
    "kafka-4.3": Features(
        profile="kafka-4.3",
        metadata_version=30,
        strict_marker_epochs=True,
        reassignment_waits_for="target-if-fewer",
    ),
    "kafka-4.4": Features(
        profile="kafka-4.4",
        metadata_version=33,
        strict_marker_epochs=True,
        reassignment_waits_for="target-if-fewer",
    ),
}
"""Every profile of a release, the oldest first. All that lists releases follows from this table."""

DEFAULT_PROFILE = "kafka-4.1"


def _derived(profile: str, suffix: str, **switched: Any) -> Features:
    return replace(PROFILES[profile], profile=f"{profile}-{suffix}", **switched)


DERIVED_PROFILES: dict[str, Features] = {
    features.profile: features
    for features in (
        _derived("kafka-4.0", "elr-on", elr_version=1),
        _derived("kafka-4.0", "late-commits", commit_wakes_metadata_fetch=False),
        _derived("kafka-4.1", "elr-off", elr_version=0),
        _derived("kafka-4.1", "epoch-requests", truncation=BY_EPOCH_REQUEST),
    )
}
"""Releases with one switch that an operator, or an older protocol version between brokers, sets otherwise."""

ALL_PROFILES: dict[str, Features] = {**PROFILES, **DERIVED_PROFILES}
"""Every name that `profile_features` knows."""


def profile_features(name: str) -> Features:
    """Returns the features of a profile.

    Raises:
        ValueError: The profile does not exist; the message suggests one and lists all.
    """
    if name not in ALL_PROFILES:
        near = get_close_matches(name, ALL_PROFILES, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"no profile is called {name!r}{hint} (known: {', '.join(ALL_PROFILES)})")
    return ALL_PROFILES[name]


def switches(features: Features) -> Features:
    """Returns the features without what is only reported: equal ones behave alike."""
    return replace(features, profile="", metadata_version=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Kafka's timing configuration with Kafka's names and defaults, in milliseconds."""

    broker_heartbeat_interval_ms: int = 2000
    broker_session_timeout_ms: int = 9000
    initial_broker_registration_timeout_ms: int = 60000
    broker_startup_heartbeat_interval_ms: int = 10
    log_dir_failure_timeout_ms: int = 30000
    controlled_shutdown_timeout_ms: int = 300000
    controlled_shutdown_retry_ms: int = 50
    replica_lag_time_max_ms: int = 30000
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_backoff_ms: int = 1000
    replica_socket_timeout_ms: int = 30000
    replica_high_watermark_checkpoint_interval_ms: int = 5000
    log_flush_offset_checkpoint_interval_ms: int = 60000
    log_flush_scheduler_interval_ms: int = NEVER_MS
    log_retention_check_interval_ms: int = 300000
    log_cleaner_backoff_ms: int = 15000
    alter_partition_retry_ms: int = 50
    controller_quorum_election_timeout_ms: int = 1000
    controller_quorum_fetch_timeout_ms: int = 2000
    controller_quorum_fetch_wait_ms: int = 500
    controller_quorum_election_backoff_max_ms: int = 1000
    controller_quorum_append_linger_ms: int = 25
    controller_quorum_request_timeout_ms: int = 2000
    controller_quorum_retry_backoff_ms: int = 20
    metadata_max_idle_interval_ms: int = 500
    unclean_leader_election_interval_ms: int = 300000
    leader_imbalance_check_interval_ms: int = 300000
    """Kafka's `leader.imbalance.check.interval.seconds`."""
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3600000
    transaction_marker_retry_ms: int = 100
    """Pause before markers are sent again."""
    connection_setup_timeout_ms: int = 10000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1000


KAFKA_TIMINGS = Timings()
FAST_TIMINGS = Timings(
    broker_heartbeat_interval_ms=100,
    broker_session_timeout_ms=600,
    initial_broker_registration_timeout_ms=600000,
    log_dir_failure_timeout_ms=3000,
    controlled_shutdown_timeout_ms=10000,
    replica_lag_time_max_ms=1000,
    replica_fetch_wait_max_ms=50,
    replica_fetch_backoff_ms=50,
    replica_socket_timeout_ms=1000,
    replica_high_watermark_checkpoint_interval_ms=500,
    log_flush_offset_checkpoint_interval_ms=6000,
    log_retention_check_interval_ms=30000,
    log_cleaner_backoff_ms=1500,
    alter_partition_retry_ms=20,
    controller_quorum_election_timeout_ms=150,
    controller_quorum_fetch_timeout_ms=300,
    controller_quorum_fetch_wait_ms=100,
    controller_quorum_election_backoff_max_ms=150,
    controller_quorum_append_linger_ms=2,
    controller_quorum_request_timeout_ms=300,
    metadata_max_idle_interval_ms=100,
    unclean_leader_election_interval_ms=1000,
    leader_imbalance_check_interval_ms=30000,
    transaction_abort_timed_out_transaction_cleanup_interval_ms=1000,
    transaction_remove_expired_transaction_cleanup_interval_ms=360000,
    transaction_marker_retry_ms=20,
    connection_setup_timeout_ms=500,
    reconnect_backoff_ms=10,
    reconnect_backoff_max_ms=100,
)
TIMINGS: dict[str, Timings] = {"fast": FAST_TIMINGS, "kafka": KAFKA_TIMINGS}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Settings of a partition log: a node's defaults, or those of one topic. Names and defaults are Kafka's.

    Attributes:
        flush_messages: Number of records after which an append flushes; 1 makes every append durable at once
            (LOG-1).
        flush_ms: Age of the oldest unflushed record at which the scheduled flush writes the log.
        retention_ms, retention_bytes: -1 for no limit.
        cleanup_policy: "delete", "compact", or both with a comma.
        delete_retention_ms: How long a tombstone stays after it was first compacted.
        message_timestamp_type: "CreateTime" or "LogAppendTime".
        index_interval_bytes: A segment's index has an entry per so many bytes.
        segment_index_bytes: A segment is closed when its index would have this size in Kafka.
        message_timestamp_after_max_ms: How far a record's timestamp may be ahead of the broker's clock; None
            for the profile's limit.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    flush_messages: int = 2**63 - 1
    flush_ms: int = 2**63 - 1
    max_message_bytes: int = 1048588
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    cleanup_policy: str = "delete"
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    min_cleanable_dirty_ratio: float = 0.5
    message_timestamp_type: str = "CreateTime"
    message_timestamp_after_max_ms: int | None = None
    index_interval_bytes: int = 4096
    segment_index_bytes: int = 10_485_760

    @property
    def deletes(self) -> bool:
        """Whether retention deletes old segments."""
        return "delete" in self.cleanup_policy.split(",")

    @property
    def compacts(self) -> bool:
        """Whether the cleaner keeps only the last record of each key."""
        return "compact" in self.cleanup_policy.split(",")

    @property
    def roll_after_ms(self) -> int:
        """Age at which a segment is full; a compacted log must not keep records active beyond their lag."""
        return (
            min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataLogConfig:
    """Settings of the metadata log (RAFT-8), with Kafka's names and, except for the segments, its defaults.

    Attributes:
        metadata_log_max_record_bytes_between_snapshots: How many bytes of new records call for a snapshot.
        metadata_log_max_snapshot_interval_ms: How old the newest snapshot may get while there are new records; 0
            for any age. As in Kafka, this is checked when records are committed.
        metadata_log_segment_bytes: Kafka's default is 1 GiB; 0 stands for the segment size of partition logs.
        metadata_max_retention_bytes: Up to which size older snapshots, and the log from the oldest of them on, are
            kept; a negative number for any size.
        metadata_max_retention_ms: How long; a negative number for any time.
        controller_quorum_fetch_snapshot_max_bytes: How much of a snapshot one request fetches (KIP-1219).
    """

    metadata_log_max_record_bytes_between_snapshots: int = 20 * 1024 * 1024
    metadata_log_max_snapshot_interval_ms: int = 3_600_000
    metadata_log_segment_bytes: int = 0
    metadata_max_retention_bytes: int = 100 * 1024 * 1024
    metadata_max_retention_ms: int = 7 * 24 * 3_600_000
    controller_quorum_fetch_snapshot_max_bytes: int = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Settings of the group coordinator, with Kafka's names and, except for the partition count, its defaults.

    Attributes:
        offsets_topic_num_partitions: Kafka's default is 50. Fewer are enough for small clusters, and every
            partition enlarges each fetch request of a follower.
        group_coordinator_rebalance_protocols: Which protocols the members of groups may use. Releases before 4.0
            have only "classic" if the node's file does not say otherwise.
        group_consumer_assignors: The first one is used where the members of a group prefer none.
        group_consumer_migration_policy: Whether groups may change their type while they have members: "disabled",
            "upgrade" (classic to consumer), "downgrade", or "bidirectional". The default of releases before 4.0 is
            "disabled".
    """

    offsets_topic_num_partitions: int = 4
    offsets_topic_replication_factor: int = 3
    offset_metadata_max_bytes: int = 4096
    group_initial_rebalance_delay_ms: int = 3000
    group_min_session_timeout_ms: int = 6000
    group_max_session_timeout_ms: int = 1800000
    group_max_size: int = 2**31 - 1
    offset_commit_timeout_ms: int = 5000
    group_coordinator_rebalance_protocols: tuple[str, ...] = ("classic", "consumer")
    group_consumer_session_timeout_ms: int = 45000
    group_consumer_min_session_timeout_ms: int = 45000
    group_consumer_max_session_timeout_ms: int = 60000
    group_consumer_heartbeat_interval_ms: int = 5000
    group_consumer_min_heartbeat_interval_ms: int = 5000
    group_consumer_max_heartbeat_interval_ms: int = 15000
    group_consumer_max_size: int = 2**31 - 1
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_migration_policy: str = "bidirectional"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """Settings of transactions, with Kafka's names and, except for the partition count, its defaults.

    Attributes:
        transaction_state_log_num_partitions: Kafka's default is 50; see `GroupConfig`.
        transaction_partition_verification_enable: Whether leaders verify transactions with the coordinator, in
            profiles that can.
    """

    transaction_state_log_num_partitions: int = 4
    transaction_state_log_replication_factor: int = 3
    transaction_state_log_min_isr: int = 2
    transaction_state_log_segment_bytes: int = 100 << 20
    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    transaction_partition_verification_enable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Voter:
    """One member of the metadata quorum."""

    node_id: int
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """Configuration of one node.

    Attributes:
        node_id: Unique among all brokers and controllers of the cluster.
        role: "broker" or "controller"; combined nodes are not supported.
        address: Address on which this node listens, "host:port".
        voters: The metadata quorum, ordered by id.
        advertised_address: Address for clients and other nodes, "host:port"; empty means `address`.
        min_insync_replicas: Cluster default; a topic may override it.
        log_dirs: Names of the log directories; the first also has the metadata log.
        log_dirs_root: Where these are, for clients.
        num_partitions: Number of partitions of a topic if its creation request does not specify it.
        auto_create_topics_enable: Whether a Metadata request that allows it creates missing topics.
        auto_leader_rebalance_enable: Whether leadership moves back to preferred leaders by itself (EL-4).
        controlled_shutdown_enable: Whether a broker that stops asks the controller to move its leaderships first.
        properties: What was configured under Kafka's own names; the other fields follow it already.
    """

    node_id: int
    role: str
    address: str
    cluster_id: str
    voters: tuple[Voter, ...]
    features: Features = PROFILES[DEFAULT_PROFILE]
    timings: Timings = KAFKA_TIMINGS
    log: LogConfig = LogConfig()
    metadata_log: MetadataLogConfig = MetadataLogConfig()
    log_dirs: tuple[str, ...] = LOG_DIR_NAMES[:1]
    log_dirs_root: str = ""
    min_insync_replicas: int = 1
    default_replication_factor: int = 1
    unclean_leader_election_enable: bool = False
    num_partitions: int = 1
    auto_create_topics_enable: bool = True
    auto_leader_rebalance_enable: bool = True
    controlled_shutdown_enable: bool = True
    group: GroupConfig = GroupConfig()
    transaction: TransactionConfig = TransactionConfig()
    advertised_address: str = ""
    properties: tuple[tuple[str, str], ...] = ()
    replica_fetch_max_bytes: int = 1048576
    replica_fetch_response_max_bytes: int = 10485760
    rules: Rules = field(default=ALL_RULES)

    def with_rules(self, rules: Rules) -> "NodeConfig":
        """Returns the same configuration with other rules."""
        return replace(self, rules=rules)
