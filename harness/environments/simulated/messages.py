"""The messages of a simulated run that matter in a part of it: who sent what to whom, and when it arrived.

A message matters if it carries records, acknowledges them, changes or proposes an ISR, keeps a broker's session
alive, or takes part in an election. Fetches without records, which are most of the messages, are left out.
"""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

PRODUCE, FETCH, ISR, SESSION, ELECTION, METADATA = (
    *("produce", "fetch", "AlterPartition", "heartbeat", "election", "metadata"),
)

MESSAGES_MAX = 5000
"""Messages that are kept; a diagram shows fewer, the nearest to its moment."""


_METADATA_TOPIC_ID = UUID(int=1)
"""Kafka's id of the topic `__cluster_metadata`."""


class MessageRecorder:
    """Keeps what matters of a time. Implements `harness.simulation.timeline.MessageWatcher`.

    Args:
        begin_ns: From when on messages are kept, by the time at which they were sent.
        end_ns: Until when.
    """

    def __init__(self, begin_ns: int, end_ns: int) -> None:
        self._begin_ns = begin_ns
        self._end_ns = end_ns
        # The keys are objects, which must live as long as they are compared.
        self._on_the_way: dict[tuple[object, object], dict[str, Any]] = {}
        self._rows: list[dict[str, Any]] = []

    def sent(
        self, at_ns: int, key: tuple[object, object], src: str, dst: str, message: object
    ) -> None:
        """Notes a message that was sent."""
        if not self._begin_ns <= at_ns <= self._end_ns or key in self._on_the_way:
            return
        found = _meaning(message)
        if found is None or len(self._rows) >= MESSAGES_MAX:
            return
        kind, text = found
        row = {
            "kind": kind,
            "src": src,
            "dst": dst,
            "text": text,
            "sent_ns": at_ns,
            "arrived_ns": None,
        }
        self._on_the_way[key] = row
        self._rows.append(row)

    def arrived(self, at_ns: int, key: tuple[object, object]) -> None:
        """Notes that a message arrived."""
        row = self._on_the_way.pop(key, None)
        if row is not None:
            row["arrived_ns"] = at_ns

    def rows(self) -> list[dict[str, Any]]:
        """Returns all messages in the order in which they were sent; `arrived_ns` is None for lost ones."""
        return list(self._rows)


def _meaning(message: object) -> tuple[str, str] | None:
    """Returns the kind of a message and its content in a few words; None if it does not matter."""
    read = _READERS.get(type(message).__name__)
    if read is None:
        return None
    try:
        return read(message)
    except AttributeError:  # a version of the message without that field
        return None


def _error(code: Any) -> str:
    return str(getattr(code, "name", code))


def _produce(message: Any) -> tuple[str, str]:
    partitions = [
        f"{topic.name}-{one.index}" for topic in message.topic_data for one in topic.partition_data
    ]
    return PRODUCE, f"Produce to {', '.join(partitions)}, acks={message.acks}"


def _produced(message: Any) -> tuple[str, str]:
    results = [
        f"{topic.name}-{one.index}: "
        + (f"offset {one.base_offset}" if not one.error_code else _error(one.error_code))
        for topic in message.responses
        for one in topic.partition_responses
    ]
    return PRODUCE, f"Produce response, {', '.join(results)}"


def _fetched(message: Any) -> tuple[str, str] | None:
    parts = []
    is_metadata = False
    for topic in message.responses:
        name = str(getattr(topic, "topic", "") or "")
        for one in topic.partitions:
            is_metadata = is_metadata or getattr(topic, "topic_id", None) == _METADATA_TOPIC_ID
            place = f"{name}-{one.partition_index}" if name else f"partition {one.partition_index}"
            if one.error_code:
                parts.append(f"{place}: {_error(one.error_code)}")
            elif one.diverging_epoch.epoch >= 0:
                parts.append(f"{place}: diverges at {one.diverging_epoch.end_offset}")
            elif one.records:
                parts.append(f"{place}: records, high watermark {one.high_watermark}")
    if not parts:
        return None
    return METADATA if is_metadata else FETCH, f"Fetch response, {'; '.join(parts)}"


def _altered(message: Any) -> tuple[str, str]:
    parts = [
        f"partition {one.partition_index}: ISR "
        + " ".join(str(member.broker_id) for member in one.new_isr_with_epochs)
        for topic in message.topics
        for one in topic.partitions
    ]
    return ISR, f"AlterPartition from broker {message.broker_id}, {'; '.join(parts)}"


def _altered_response(message: Any) -> tuple[str, str]:
    parts = [
        f"partition {one.partition_index}: "
        + (_error(one.error_code) if one.error_code else f"ISR {' '.join(map(str, one.isr))}")
        for topic in message.topics
        for one in topic.partitions
    ]
    return ISR, f"AlterPartition response, {'; '.join(parts)}"


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
