"""Kafka's topic configurations: names, types, defaults, valid values, and what brokers call their defaults.

A topic's configuration has up to four layers: the topic's own value, the cluster's default, the node's file, and
Kafka's default. The two in the middle are stored under the names of broker configurations, the *synonyms* of the
topic's: `retention.ms` is `log.retention.ms`, `log.retention.minutes` or `log.retention.hours` there.

`docs/mechanisms.md` lists which of them are in force; the others are stored and described.

Source:
    Kafka's `LogConfig`, `ServerTopicConfigSynonyms` and `DynamicLogConfig`, release 4.1.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from system_under_test.metadata.image import (
    BROKER_RESOURCE,
    CLUSTER_DEFAULT,
    MIN_ISR_CONFIG,
    TOPIC_RESOURCE,
    UNCLEAN_ELECTION_CONFIG,
)

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = 1, 2, 3, 5, 6, 7
"""Kafka's ConfigType codes."""
TYPE_NAMES = {
    BOOLEAN: "true or false",
    INT: "a whole number of 32 bits",
    LONG: "a whole number of 64 bits",
    DOUBLE: "a number",
}

INTERNAL_SEGMENT_BYTES = "internal.segment.bytes"
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS

Check = Callable[[str], str | None]
"""Returns what a canonical value of the right type must be instead, None if it is valid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Synonym:
    """A broker configuration that is the default of a topic configuration.

    Attributes:
        default: Kafka's default; None if it has none and the next synonym counts.
        factor: What a value is multiplied by to get the topic's unit.
        is_dynamic: Whether the cluster's default may be set while brokers run.
    """

    name: str
    default: str | None
    factor: int = 1
    is_dynamic: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfigKey:
    """One topic configuration.

    Attributes:
        name: Kafka's name.
        kind: A ConfigType code.
        default: Kafka's default as text.
        check: What else a value of the type must be.
        synonyms: What brokers call it, the one that counts most first.
        documentation: One sentence.
        is_internal: Whether it is for tests and not described.
    """

    name: str
    kind: int
    default: str
    documentation: str
    check: Check | None = None
    synonyms: tuple[Synonym, ...] = ()
    is_internal: bool = False


class InvalidConfigError(ValueError):
    """A configuration does not exist or cannot have a value; the message is a sentence for the client."""


def _at_least(least: int) -> Check:
    return lambda text: None if int(text) >= least else f"{least} or more"


def _between_0_and_1(text: str) -> str | None:
    return None if 0 <= float(text) <= 1 else "between 0 and 1"


def _one_of(*values: str) -> Check:
    return lambda text: None if text in values else f"one of {', '.join(values)}"


def _list_of(*values: str) -> Check:
    def check(text: str) -> str | None:
        parts = text.split(",") if text else []
        return None if set(parts) <= set(values) else f"a list of {', '.join(values)}"

    return check


def _level(least: int, most: int, usual: int | None = None) -> Check:
    def check(text: str) -> str | None:
        is_valid = least <= int(text) <= most or int(text) == usual
        return None if is_valid else f"between {least} and {most}"

    return check


def _throttled(text: str) -> str | None:
    is_valid = text in ("", "*") or all(re.fullmatch(r"\d+:\d+", one) for one in text.split(","))
    return None if is_valid else "'*' or a list of partition:broker"


def _same(name: str, default: str, *, is_dynamic: bool = True) -> tuple[Synonym, ...]:
    return (Synonym(name=name, default=default, is_dynamic=is_dynamic),)


_COMPRESSIONS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")

_KEYS = (
    TopicConfigKey(
        name="cleanup.policy",
        kind=LIST,
        default="delete",
        check=_list_of("compact", "delete"),
        synonyms=_same("log.cleanup.policy", "delete"),
        documentation="whether old segments are deleted, or compacted to the last record of each key",
    ),
    TopicConfigKey(
        name="compression.gzip.level",
        kind=INT,
        default="-1",
        check=_level(1, 9, -1),
        synonyms=_same("compression.gzip.level", "-1"),
        documentation="level of gzip if the broker compresses with it",
    ),
    TopicConfigKey(
        name="compression.lz4.level",
        kind=INT,
        default="9",
        check=_level(1, 17),
        synonyms=_same("compression.lz4.level", "9"),
        documentation="level of lz4 if the broker compresses with it",
    ),
    TopicConfigKey(
        name="compression.type",
        kind=STRING,
        default="producer",
        check=_one_of(*_COMPRESSIONS),
        synonyms=_same("compression.type", "producer"),
        documentation="codec of stored batches; producer keeps the producer's",
    ),
    TopicConfigKey(
        name="compression.zstd.level",
        kind=INT,
        default="3",
        check=_level(-131072, 22),
        synonyms=_same("compression.zstd.level", "3"),
        documentation="level of zstd if the broker compresses with it",
    ),
    TopicConfigKey(
        name="delete.retention.ms",
        kind=LONG,
        default=str(DAY_MS),
        check=_at_least(0),
        synonyms=_same("log.cleaner.delete.retention.ms", str(DAY_MS)),
        documentation="how long a tombstone stays after it was first compacted",
    ),
    TopicConfigKey(
        name="file.delete.delay.ms",
        kind=LONG,
        default="60000",
        check=_at_least(0),
        synonyms=_same("log.segment.delete.delay.ms", "60000"),
        documentation="how long the file of a deleted segment stays",
    ),
    TopicConfigKey(
        name="flush.messages",
        kind=LONG,
        default=str(INT64_MAX),
        check=_at_least(1),
        synonyms=_same("log.flush.interval.messages", str(INT64_MAX)),
        documentation="after how many records an append flushes the log",
    ),
    TopicConfigKey(
        name="flush.ms",
        kind=LONG,
        default=str(INT64_MAX),
        check=_at_least(0),
        synonyms=(
            Synonym(name="log.flush.interval.ms", default=None),
            Synonym(
                name="log.flush.scheduler.interval.ms", default=str(INT64_MAX), is_dynamic=False
            ),
        ),
        documentation="after how long the scheduled flush writes the log to disk",
    ),
    TopicConfigKey(
        name="follower.replication.throttled.replicas",
        kind=LIST,
        default="",
        check=_throttled,
        documentation="replicas whose fetches are throttled at the follower",
    ),
    TopicConfigKey(
        name="index.interval.bytes",
        kind=INT,
        default="4096",
        check=_at_least(0),
        synonyms=_same("log.index.interval.bytes", "4096"),
        documentation="how many bytes of a log lie between two entries of its index",
    ),
    TopicConfigKey(
        name=INTERNAL_SEGMENT_BYTES,
        kind=INT,
        default="",
        is_internal=True,
        documentation="segment.bytes without a lower limit, for tests",
    ),
    TopicConfigKey(
        name="leader.replication.throttled.replicas",
        kind=LIST,
        default="",
        check=_throttled,
        documentation="replicas whose fetches are throttled at the leader",
    ),
    TopicConfigKey(
        name="local.retention.bytes",
        kind=LONG,
        default="-2",
        check=_at_least(-2),
        synonyms=_same("log.local.retention.bytes", "-2"),
        documentation="retention.bytes of local segments with tiered storage",
    ),
    TopicConfigKey(
        name="local.retention.ms",
        kind=LONG,
        default="-2",
        check=_at_least(-2),
        synonyms=_same("log.local.retention.ms", "-2"),
        documentation="retention.ms of local segments with tiered storage",
    ),
    TopicConfigKey(
        name="max.compaction.lag.ms",
        kind=LONG,
        default=str(INT64_MAX),
        check=_at_least(1),
        synonyms=_same("log.cleaner.max.compaction.lag.ms", str(INT64_MAX)),
        documentation="after how long a record is compacted whatever the dirty ratio",
    ),
    TopicConfigKey(
        name="max.message.bytes",
        kind=INT,
        default="1048588",
        check=_at_least(0),
        synonyms=_same("message.max.bytes", "1048588"),
        documentation="the largest batch that a producer may append",
    ),
    TopicConfigKey(
        name="message.timestamp.after.max.ms",
        kind=LONG,
        default="3600000",
        check=_at_least(0),
        synonyms=_same("log.message.timestamp.after.max.ms", "3600000"),
        documentation="how far a producer's timestamp may be ahead of the broker's clock",
    ),
    TopicConfigKey(
        name="message.timestamp.before.max.ms",
        kind=LONG,
        default=str(INT64_MAX),
        check=_at_least(0),
        synonyms=_same("log.message.timestamp.before.max.ms", str(INT64_MAX)),
        documentation="how far a producer's timestamp may be behind the broker's clock",
    ),
    TopicConfigKey(
        name="message.timestamp.type",
        kind=STRING,
        default="CreateTime",
        check=_one_of("CreateTime", "LogAppendTime"),
        synonyms=_same("log.message.timestamp.type", "CreateTime"),
        documentation="whether a record has its producer's timestamp or the time of the append",
    ),
    TopicConfigKey(
        name="min.cleanable.dirty.ratio",
        kind=DOUBLE,
        default="0.5",
        check=_between_0_and_1,
        synonyms=_same("log.cleaner.min.cleanable.ratio", "0.5"),
        documentation="share of a log that must be uncompacted before it is compacted",
    ),
    TopicConfigKey(
        name="min.compaction.lag.ms",
        kind=LONG,
        default="0",
        check=_at_least(0),
        synonyms=_same("log.cleaner.min.compaction.lag.ms", "0"),
        documentation="how long a record stays uncompacted",
    ),
    TopicConfigKey(
        name=MIN_ISR_CONFIG,
        kind=INT,
        default="1",
        check=_at_least(1),
        synonyms=_same(MIN_ISR_CONFIG, "1"),
        documentation="how many replicas must be in sync for acks=all to be accepted and committed",
    ),
    TopicConfigKey(
        name="preallocate",
        kind=BOOLEAN,
        default="false",
        synonyms=_same("log.preallocate", "false"),
        documentation="whether the file of a new segment gets its full size at once",
    ),
    TopicConfigKey(
        name="remote.log.copy.disable",
        kind=BOOLEAN,
        default="false",
        documentation="whether tiered storage gets no more segments",
    ),
    TopicConfigKey(
        name="remote.log.delete.on.disable",
        kind=BOOLEAN,
        default="false",
        documentation="whether tiered segments are deleted when tiered storage is switched off",
    ),
    TopicConfigKey(
        name="remote.storage.enable",
        kind=BOOLEAN,
        default="false",
        documentation="whether the topic uses tiered storage",
    ),
    TopicConfigKey(
        name="retention.bytes",
        kind=LONG,
        default="-1",
        synonyms=_same("log.retention.bytes", "-1"),
        documentation="size of a partition from which on its oldest segments are deleted; -1 for no limit",
    ),
    TopicConfigKey(
        name="retention.ms",
        kind=LONG,
        default=str(WEEK_MS),
        check=_at_least(-1),
        synonyms=(
            Synonym(name="log.retention.ms", default=None),
            Synonym(name="log.retention.minutes", default=None, factor=60_000, is_dynamic=False),
            Synonym(name="log.retention.hours", default="168", factor=3_600_000, is_dynamic=False),
        ),
        documentation="age from which on segments are deleted; -1 for no limit",
    ),
    TopicConfigKey(
        name="segment.bytes",
        kind=INT,
        default=str(1 << 30),
        check=_at_least(14),
        synonyms=_same("log.segment.bytes", str(1 << 30)),
        documentation="size of a segment file from which on the next one begins",
    ),
    TopicConfigKey(
        name="segment.index.bytes",
        kind=INT,
        default="10485760",
        check=_at_least(4),
        synonyms=_same("log.index.size.max.bytes", "10485760"),
        documentation="largest size of a segment's index",
    ),
    TopicConfigKey(
        name="segment.jitter.ms",
        kind=LONG,
        default="0",
        check=_at_least(0),
        synonyms=(
            Synonym(name="log.roll.jitter.ms", default=None),
            Synonym(name="log.roll.jitter.hours", default="0", factor=3_600_000, is_dynamic=False),
        ),
        documentation="random part by which a segment ends earlier than segment.ms",
    ),
    TopicConfigKey(
        name="segment.ms",
        kind=LONG,
        default=str(WEEK_MS),
        check=_at_least(1),
        synonyms=(
            Synonym(name="log.roll.ms", default=None),
            Synonym(name="log.roll.hours", default="168", factor=3_600_000, is_dynamic=False),
        ),
        documentation="age of a segment from which on the next one begins",
    ),
    TopicConfigKey(
        name=UNCLEAN_ELECTION_CONFIG,
        kind=BOOLEAN,
        default="false",
        synonyms=_same(UNCLEAN_ELECTION_CONFIG, "false"),
        documentation="whether a replica that may lack committed records may lead",
    ),
)

TOPIC_CONFIGS: dict[str, TopicConfigKey] = {key.name: key for key in _KEYS}
"""Every topic configuration by name, in alphabetical order."""

SYNONYMS: dict[str, tuple[TopicConfigKey, Synonym]] = {
    synonym.name: (key, synonym) for key in _KEYS for synonym in key.synonyms
}
"""Every broker configuration that is the default of a topic's, by name."""

CLUSTER_CONFIGS: dict[str, TopicConfigKey] = {
    name: key for name, (key, synonym) in SYNONYMS.items() if synonym.is_dynamic
}
"""What can be set as the cluster's default while brokers run, by the name that brokers use."""

BROKER_CONFIGS: dict[str, TopicConfigKey] = {
    name: TopicConfigKey(
        name=name,
        kind=LONG,
        default=str(INT64_MAX),
        check=_at_least(0),
        documentation=f"limit in bytes per second of {what}; stored and described only",
    )
    for name, what in (
        ("follower.replication.throttled.rate", "what a broker fetches of throttled replicas"),
        ("leader.replication.throttled.rate", "what a broker sends of throttled replicas"),
        ("replica.alter.log.dirs.io.max.bytes.per.second", "moves between directories"),
    )
}
"""What can be set for a single broker: the throttles, which Kafka's reassignment tool sets and removes."""


def canonical(key: TopicConfigKey, text: str, *, name: str = "") -> str:
    """Returns a value as Kafka describes it.

    Args:
        key: The configuration.
        text: The value.
        name: What the request calls it; without, the topic's name.

    Raises:
        InvalidConfigError: The value is not valid.
    """
    try:
        value = _parsed(key.kind, text.strip())
    except ValueError:
        raise InvalidConfigError(
            f"{text!r} is not a valid value of {name or key.name}: use {TYPE_NAMES[key.kind]}"
        ) from None
    problem = key.check(value) if key.check is not None else None
    if problem is not None:
        raise InvalidConfigError(
            f"{text!r} is not a valid value of {name or key.name}: use {problem}"
        )
    return value


def check_together(values: Mapping[str, str]) -> None:
    """Checks what several configurations of one topic must fulfil together.

    Args:
        values: The topic's own values after the change; configurations without one have their default.

    Raises:
        InvalidConfigError: They contradict each other.
    """

    def lag(name: str) -> int:
        return int(values.get(name, TOPIC_CONFIGS[name].default))

    if lag("min.compaction.lag.ms") > lag("max.compaction.lag.ms"):
        raise InvalidConfigError("min.compaction.lag.ms is larger than max.compaction.lag.ms")
    if values.get("remote.storage.enable") == "true":
        raise InvalidConfigError(
            "remote.storage.enable cannot be true: the cluster has no tiered storage"
        )


def stored_value(
    configs: Mapping[tuple[int, str, str], str], topic: str, key: TopicConfigKey
) -> str | None:
    """Returns what the metadata say of a topic's configuration: its own value, or the cluster's default.

    Args:
        configs: Of an image.
        topic: Name of the topic.
        key: The configuration.

    Returns:
        None if neither is set; then the node's file counts.
    """
    own = configs.get((TOPIC_RESOURCE, topic, key.name))
    if own is not None:
        return own
    for synonym in key.synonyms:
        value = configs.get((BROKER_RESOURCE, CLUSTER_DEFAULT, synonym.name))
        if value is not None:
            return value
    return None


def _parsed(kind: int, text: str) -> str:
    """Returns a value of a type in canonical form, or raises `ValueError`."""
    if kind == BOOLEAN:
        if text.lower() not in ("true", "false"):
            raise ValueError
        return text.lower()
    if kind in (INT, LONG):
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", text):
            raise ValueError
        number = int(text)
        most = INT32_MAX if kind == INT else INT64_MAX
        if not -most - 1 <= number <= most:
            raise ValueError
        return str(number)
    if kind == DOUBLE:
        if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", text):
            raise ValueError
        return repr(float(text))
    if kind == LIST:
        return ",".join(part.strip() for part in text.split(",")) if text else ""
    return text
