"""What the messages that matter say, in a few words: for the space-time diagram of a run.

A message matters if it carries records, acknowledges them, changes or proposes an ISR, keeps a broker's session
alive, or takes part in an election. Fetches without records, which are most of the messages, are left out.
"""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

PRODUCE, FETCH, ISR, SESSION, ELECTION, METADATA = (
    *("produce", "fetch", "AlterPartition", "heartbeat", "election", "metadata"),
)
"""The kinds of messages."""

PARTITIONS_MAX = 8
"""Partitions that the words of one message name."""

METADATA_TOPIC_ID = UUID(int=1)
"""Kafka's id of the topic `__cluster_metadata`."""


def meaning_of(message: object, name: str = "") -> tuple[str, str] | None:
    """Returns the kind of a message and its content in a few words; None if it does not matter.

    Args:
        message: A message of the codec, or an object with the fields of one.
        name: Name of the message, for example "ProduceRequest"; that of its class by default.
    """
    read = _READERS.get(name or message.__class__.__name__)
    if read is None:
        return None
    try:
        return read(message)
    except AttributeError:  # a version of the message without that field
        return None


def _error(code: Any) -> str:
    return str(getattr(code, "name", code))


_NAME_FIELDS: dict[type, str] = {}
"""By class of a topic in a message, the field with its name; "" if it has its id instead."""


def _name(topic: Any) -> Any:
    """Returns the name of a topic; nothing if the message has its id instead."""
    kind = topic.__class__
    field = _NAME_FIELDS.get(kind)
    if field is None:
        # Remembered, because it takes long to look for a field that does not exist. Fetch responses have `topic`.
        field = next((one for one in ("name", "topic") if hasattr(topic, one)), "")
        if not hasattr(kind, "__getattr__"):
            _NAME_FIELDS[kind] = field
    return getattr(topic, field) if field else None


def _joined(parts: list[str], separator: str) -> str:
    left_out = len(parts) - PARTITIONS_MAX
    if left_out <= 0:
        return separator.join(parts)
    return f"{separator.join(parts[:PARTITIONS_MAX])} and {left_out} more"


# The next three are called for most messages of a node, so they call few functions per partition.


def _produce(message: Any) -> tuple[str, str]:
    parts: list[str] = []
    for topic in message.topic_data:
        begin = f"{name}-" if (name := _name(topic)) else "partition "
        parts += [f"{begin}{one.index}" for one in topic.partition_data]
    places = parts[0] if len(parts) == 1 else _joined(parts, ", ")
    return PRODUCE, f"Produce to {places}, acks={message.acks}"


def _produced(message: Any) -> tuple[str, str]:
    parts = []
    for topic in message.responses:
        begin = f"{name}-" if (name := _name(topic)) else "partition "
        for one in topic.partition_responses:
            error = one.error_code
            what = _error(error) if error else f"offset {one.base_offset}"
            parts.append(f"{begin}{one.index}: {what}")
    results = parts[0] if len(parts) == 1 else _joined(parts, ", ")
    return PRODUCE, f"Produce response, {results}"


def _fetched(message: Any) -> tuple[str, str] | None:
    parts = []
    is_metadata = False
    for topic in message.responses:
        for one in topic.partitions:
            if one.records:
                what = f"records, high watermark {one.high_watermark}"
            elif one.error_code:
                what = _error(one.error_code)
            elif one.diverging_epoch.epoch >= 0:
                what = f"diverges at {one.diverging_epoch.end_offset}"
            else:
                continue
            begin = f"{name}-" if (name := _name(topic)) else "partition "
            parts.append(f"{begin}{one.partition_index}: {what}")
            is_metadata = is_metadata or getattr(topic, "topic_id", None) == METADATA_TOPIC_ID
    if not parts:
        return None
    results = parts[0] if len(parts) == 1 else _joined(parts, "; ")
    return METADATA if is_metadata else FETCH, f"Fetch response, {results}"


def _altered(message: Any) -> tuple[str, str]:
    parts = [
        f"partition {one.partition_index}: ISR "
        + " ".join(str(member.broker_id) for member in one.new_isr_with_epochs)
        for topic in message.topics
        for one in topic.partitions
    ]
    return ISR, f"AlterPartition from broker {message.broker_id}, {_joined(parts, '; ')}"


def _altered_response(message: Any) -> tuple[str, str]:
    parts = [
        f"partition {one.partition_index}: "
        + (_error(one.error_code) if one.error_code else f"ISR {' '.join(map(str, one.isr))}")
        for topic in message.topics
        for one in topic.partitions
    ]
    return ISR, f"AlterPartition response, {_joined(parts, '; ')}"


def _heartbeat(message: Any) -> tuple[str, str]:
    wants = " wants to be fenced" if message.want_fence else ""
    return SESSION, f"Heartbeat of broker {message.broker_id}{wants}"


def _heartbeat_response(message: Any) -> tuple[str, str]:
    state = "fenced" if message.is_fenced else "unfenced"
    return SESSION, f"Heartbeat response, {state}"


def _named(text: str) -> Callable[[Any], tuple[str, str]]:
    return lambda _: (ELECTION, text)


_READERS: Mapping[str, Callable[[Any], tuple[str, str] | None]] = {
    "ProduceRequest": _produce,
    "ProduceResponse": _produced,
    "FetchResponse": _fetched,
    "AlterPartitionRequest": _altered,
    "AlterPartitionResponse": _altered_response,
    "BrokerHeartbeatRequest": _heartbeat,
    "BrokerHeartbeatResponse": _heartbeat_response,
    "BrokerRegistrationRequest": lambda message: (
        SESSION,
        f"Registration of broker {message.broker_id}",
    ),
    "BrokerRegistrationResponse": lambda _: (SESSION, "Registration response"),
    "VoteRequest": _named("Vote"),
    "VoteResponse": _named("Vote response"),
    "BeginQuorumEpochRequest": _named("BeginQuorumEpoch"),
    "BeginQuorumEpochResponse": _named("BeginQuorumEpoch response"),
}
"""How to read each message type that matters, by its name."""
