"""A node's settings under Kafka's own names, with Kafka's defaults: what `server.properties` is for Apache Kafka.

A set of timings ("fast", "kafka") is where a node begins; properties change single settings. What topics can set
themselves, too, is in `metadata/topic_configs.py`.

Source:
    Kafka's `KafkaConfig`, `ReplicationConfigs`, `ServerLogConfigs` and `QuorumConfig`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from system_under_test.config import NEVER_MS, GroupConfig, NodeConfig
from system_under_test.metadata.image import MIN_ISR_CONFIG, UNCLEAN_ELECTION_CONFIG
from system_under_test.metadata.log_settings import IN_FORCE, field_of, field_value
from system_under_test.metadata.topic_configs import (
    BOOLEAN,
    INT,
    LIST,
    LONG,
    STRING,
    SYNONYMS,
    TOPIC_CONFIGS,
    InvalidConfigError,
    TopicConfigKey,
    canonical,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """One setting of a node.

    Attributes:
        part: Which part of the configuration has it: "timings", "group", "transaction", "metadata_log" or "node".
        field: The field of that part.
        kind: Kafka's ConfigType code.
        least: The smallest number.
        choices: The possible texts, or entries of a list.
    """

    part: str
    field: str
    kind: int = INT
    least: int = 1
    choices: tuple[str, ...] = ()


def _timing(field: str, *, least: int = 1, kind: int = INT) -> tuple[str, Property]:
    return field.replace("_", "."), Property(part="timings", field=field, least=least, kind=kind)


def _group(name: str, field: str = "", *, least: int = 1) -> tuple[str, Property]:
    return name, Property(part="group", field=field or name.replace(".", "_"), least=least)


def _choice(name: str, kind: int, *choices: str) -> tuple[str, Property]:
    field = name.replace(".", "_")
    return name, Property(part="group", field=field, kind=kind, choices=choices)


def _transaction(field: str, *, kind: int = INT) -> tuple[str, Property]:
    return field.replace("_", "."), Property(part="transaction", field=field, kind=kind)


def _metadata(field: str, *, least: int = 0) -> tuple[str, Property]:
    name = field.replace("_", ".")
    return name, Property(part="metadata_log", field=field, least=least, kind=LONG)


def _node(name: str, *, kind: int = INT, least: int = 1) -> tuple[str, Property]:
    return name, Property(part="node", field=name.replace(".", "_"), kind=kind, least=least)


PROPERTIES: dict[str, Property] = dict(
    (
        _timing("broker_heartbeat_interval_ms"),
        _timing("broker_session_timeout_ms"),
        _timing("controller_quorum_append_linger_ms", least=0),
        _timing("controller_quorum_election_backoff_max_ms", least=0),
        _timing("controller_quorum_election_timeout_ms"),
        _timing("controller_quorum_fetch_timeout_ms"),
        _timing("controller_quorum_request_timeout_ms"),
        _timing("controller_quorum_retry_backoff_ms"),
        _timing("initial_broker_registration_timeout_ms"),
        _timing("log_cleaner_backoff_ms", kind=LONG),
        _timing("log_dir_failure_timeout_ms", kind=LONG),
        _timing("log_flush_offset_checkpoint_interval_ms"),
        _timing("log_flush_scheduler_interval_ms", kind=LONG),
        _timing("log_retention_check_interval_ms", kind=LONG),
        _timing("metadata_max_idle_interval_ms"),
        _timing("replica_fetch_backoff_ms", least=0),
        _timing("replica_fetch_wait_max_ms"),
        _timing("replica_high_watermark_checkpoint_interval_ms", kind=LONG),
        _timing("replica_lag_time_max_ms", kind=LONG),
        _timing("replica_socket_timeout_ms"),
        _timing("unclean_leader_election_interval_ms", kind=LONG),
        _choice("group.consumer.assignors", LIST, "uniform", "range"),
        _group("group.consumer.heartbeat.interval.ms"),
        _group("group.consumer.max.heartbeat.interval.ms"),
        _group("group.consumer.max.session.timeout.ms"),
        _group("group.consumer.max.size"),
        _choice(
            "group.consumer.migration.policy",
            STRING,
            "bidirectional",
            "downgrade",
            "upgrade",
            "disabled",
        ),
        _group("group.consumer.min.heartbeat.interval.ms"),
        _group("group.consumer.min.session.timeout.ms"),
        _group("group.consumer.session.timeout.ms"),
        _choice("group.coordinator.rebalance.protocols", LIST, "classic", "consumer"),
        _group("group.initial.rebalance.delay.ms", least=0),
        _group("group.max.session.timeout.ms"),
        _group("group.max.size"),
        _group("group.min.session.timeout.ms"),
        _group("offset.metadata.max.bytes", least=0),
        _group("offsets.commit.timeout.ms", "offset_commit_timeout_ms"),
        _group("offsets.topic.num.partitions"),
        _group("offsets.topic.replication.factor"),
        _timing("transaction_abort_timed_out_transaction_cleanup_interval_ms"),
        _timing("transaction_remove_expired_transaction_cleanup_interval_ms"),
        _transaction("transaction_max_timeout_ms"),
        _transaction("transaction_partition_verification_enable", kind=BOOLEAN),
        _transaction("transaction_state_log_min_isr"),
        _transaction("transaction_state_log_num_partitions"),
        _transaction("transaction_state_log_replication_factor"),
        _transaction("transaction_state_log_segment_bytes"),
        _transaction("transactional_id_expiration_ms"),
        _metadata("controller_quorum_fetch_snapshot_max_bytes"),
        _metadata("metadata_log_max_record_bytes_between_snapshots"),
        _metadata("metadata_log_max_snapshot_interval_ms"),
        _metadata("metadata_log_segment_bytes"),
        _metadata("metadata_max_retention_bytes", least=-1),
        _metadata("metadata_max_retention_ms", least=-1),
        _node("auto.create.topics.enable", kind=BOOLEAN),
        _node("controlled.shutdown.enable", kind=BOOLEAN),
        _node("default.replication.factor"),
        _node("num.partitions"),
        _node("replica.fetch.max.bytes", least=0),
        _node("replica.fetch.response.max.bytes", least=0),
    )
)
"""Settings of a node by Kafka's name, except for those that are defaults of topics."""

FIXED: dict[str, tuple[str, str]] = {
    "group.consumer.regex.refresh.interval.ms": (
        "600000",
        "the topics of a regular expression are looked up every 10 s, which needs no permissions here",
    ),
    "log.flush.start.offset.checkpoint.interval.ms": (
        "60000",
        "log starts are checkpointed with the recovery points "
        "(log.flush.offset.checkpoint.interval.ms)",
    ),
    "num.replica.fetchers": ("1", "a broker has one fetcher per leader"),
    "replica.fetch.min.bytes": ("1", "a follower's fetch waits for one byte"),
}
"""Settings with only one possible value, Kafka's default, and the reason."""


class PropertyError(ValueError):
    """A property does not exist or cannot have a value; the message says what to do."""


def property_names() -> list[str]:
    """Returns the names of all properties, sorted."""
    return sorted((*PROPERTIES, *FIXED, *SYNONYMS))


def configured(config: NodeConfig, properties: Mapping[str, str]) -> NodeConfig:
    """Returns a node's configuration with properties.

    Args:
        config: What counts where no property is set.
        properties: Values by Kafka's names.

    Raises:
        PropertyError: A property does not exist, or its value is not possible.
    """
    parts: dict[str, dict[str, Any]] = {
        name: {} for name in ("timings", "group", "transaction", "node", "log", "metadata_log")
    }
    for name, text in properties.items():
        if name in PROPERTIES:
            found = PROPERTIES[name]
            parts[found.part][found.field] = _value(name, found, text)
        elif name in FIXED:
            _check_fixed(name, text)
        elif name not in SYNONYMS:
            near = get_close_matches(name, property_names(), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise PropertyError(f"{name} is not a property of a node{hint}")
    for key in TOPIC_CONFIGS.values():
        _take_default(key, properties, parts)
    made = replace(
        config,
        timings=replace(config.timings, **parts["timings"]),
        group=replace(config.group, **parts["group"]),
        transaction=replace(config.transaction, **parts["transaction"]),
        log=replace(config.log, **parts["log"]),
        metadata_log=replace(config.metadata_log, **parts["metadata_log"]),
        properties=(*config.properties, *sorted(properties.items())),
        **parts["node"],
    )
    _check_groups(made.group)
    return made


def _check_groups(group: GroupConfig) -> None:
    """Refuses timeouts of consumer groups that contradict each other, as Kafka does at a start."""
    for low, value, high in (
        ("min.session.timeout.ms", "session.timeout.ms", "max.session.timeout.ms"),
        ("min.heartbeat.interval.ms", "heartbeat.interval.ms", "max.heartbeat.interval.ms"),
    ):
        numbers = [
            int(getattr(group, f"group_consumer_{name.replace('.', '_')}"))
            for name in (low, value, high)
        ]
        if numbers != sorted(numbers):
            raise PropertyError(
                f"group.consumer.{value} is {numbers[1]}; use a number from group.consumer.{low} ({numbers[0]})"
                f" to group.consumer.{high} ({numbers[2]}), or change these"
            )
    session_ms = group.group_consumer_session_timeout_ms
    if group.group_consumer_heartbeat_interval_ms >= session_ms:
        raise PropertyError(
            f"group.consumer.heartbeat.interval.ms is {group.group_consumer_heartbeat_interval_ms}; use less than"
            f" group.consumer.session.timeout.ms ({session_ms})"
        )


def _value(name: str, found: Property, text: str) -> int | bool | str | tuple[str, ...]:
    key = TopicConfigKey(name=name, kind=found.kind, default="", documentation="")
    value = _canonical(key, name, text)
    if found.kind == BOOLEAN:
        return value == "true"
    if found.choices:
        return _chosen(name, found, value.lower())
    if int(value) < found.least:
        raise PropertyError(f"{name} is {text}; use {found.least} or more")
    # Kafka's largest number means never; timers cannot be set that far ahead.
    return min(int(value), NEVER_MS)


def _chosen(name: str, found: Property, value: str) -> str | tuple[str, ...]:
    parts = tuple(value.split(",")) if found.kind == LIST else (value,)
    if len(set(parts)) < len(parts) or not set(parts) <= set(found.choices):
        several = "one or more of" if found.kind == LIST else "one of"
        raise PropertyError(f"{name} is {value!r}; use {several} {', '.join(found.choices)}")
    return parts if found.kind == LIST else value


def _check_fixed(name: str, text: str) -> None:
    value, reason = FIXED[name]
    if text.strip() != value:
        raise PropertyError(f"{name} is {text}; it can only be {value}, because {reason}")


def _take_default(
    key: TopicConfigKey, properties: Mapping[str, str], parts: dict[str, dict[str, Any]]
) -> None:
    """Takes the default that properties set for a setting of topics; the first synonym counts most."""
    for synonym in reversed(key.synonyms):
        text = properties.get(synonym.name)
        if text is None:
            continue
        # A unit such as hours has the limits of its own type, but not those of the topic's setting.
        bare = replace(key, check=key.check if synonym.factor == 1 else None)
        value = _canonical(bare, synonym.name, text)
        if synonym.factor > 1:
            value = str(max(int(value) * synonym.factor, -1))
        if key.name == MIN_ISR_CONFIG:
            parts["node"]["min_insync_replicas"] = int(value)
        elif key.name == UNCLEAN_ELECTION_CONFIG:
            parts["node"]["unclean_leader_election_enable"] = value == "true"
        elif key.name in IN_FORCE:
            parts["log"][field_of(key.name)] = field_value(key, value)


def _canonical(key: TopicConfigKey, name: str, text: str) -> str:
    try:
        return canonical(key, text, name=name)
    except InvalidConfigError as error:
        raise PropertyError(str(error)) from None
