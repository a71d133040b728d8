"""The settings of a topic's logs: the node's, as far as the metadata do not state others."""

from collections.abc import Mapping
from dataclasses import replace

from system_under_test.config import LogConfig
from system_under_test.metadata.topic_configs import (
    DOUBLE,
    INT,
    INTERNAL_SEGMENT_BYTES,
    LONG,
    TOPIC_CONFIGS,
    TopicConfigKey,
    stored_value,
)

IN_FORCE = (
    "cleanup.policy",
    "delete.retention.ms",
    "flush.messages",
    "flush.ms",
    "index.interval.bytes",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.index.bytes",
    "segment.ms",
)
"""Topic configurations that a log follows. Each is a field of `LogConfig`, with underscores."""

_FIELDS = {name: name.replace(".", "_") for name in IN_FORCE}


def field_value(key: TopicConfigKey, text: str) -> int | float | str:
    """Returns a canonical value as a field of `LogConfig` holds it."""
    if key.kind in (INT, LONG):
        return int(text)
    return float(text) if key.kind == DOUBLE else text


def field_of(name: str) -> str:
    """Returns the field of `LogConfig` that a topic configuration in force sets."""
    return _FIELDS[name]


def log_config(
    configs: Mapping[tuple[int, str, str], str], topic: str, node: LogConfig
) -> LogConfig:
    """Returns the settings of a topic's logs.

    Args:
        configs: Of an image.
        topic: Name of the topic.
        node: The node's settings.
    """
    changes: dict[str, int | float | str] = {}
    for name in IN_FORCE:
        key = TOPIC_CONFIGS[name]
        text = stored_value(configs, topic, key)
        if text is not None:
            changes[_FIELDS[name]] = field_value(key, text)
    own_segment_bytes = stored_value(configs, topic, TOPIC_CONFIGS[INTERNAL_SEGMENT_BYTES])
    if own_segment_bytes is not None:
        changes["segment_bytes"] = int(own_segment_bytes)
    return replace(node, **changes) if changes else node  # type: ignore[arg-type]
