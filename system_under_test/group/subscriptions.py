"""Which topics the members of a group subscribe to, as far as the coordinator can read it.

A subscription belongs to the clients. Kafka reads those of consumers for one purpose only: OffsetDelete may remove
the offsets of a topic that no live consumer reads (KIP-496).

Source:
    Kafka's ConsumerProtocolSubscription.json, of which every version begins with the list of topics;
    `ClassicGroup.computeSubscribedTopics` and `isSubscribedToTopic`.
"""

import struct
from collections.abc import Mapping

from system_under_test.group.state import Group
from system_under_test.group.transitions import GroupState

CONSUMER_PROTOCOL = "consumer"
"""Protocol type of consumers; other types are for example those of Kafka Connect."""
_VERSION_AND_COUNT = struct.Struct(">hi")
_SIZE = struct.Struct(">h")


def is_consumer_group(group: Group) -> bool:
    """Whether the members of a group are consumers."""
    return group.protocol_type == CONSUMER_PROTOCOL


def is_subscribed(group: Group, topic: str) -> bool:
    """Whether members of a group read a topic; true for consumers whose subscriptions cannot be read."""
    topics = _subscribed_topics(group)
    return is_consumer_group(group) if topics is None else topic in topics


def _subscribed_topics(group: Group) -> frozenset[str] | None:
    """Returns the topics of all members, None if they are not known."""
    if group.protocol_type is None:
        return None
    if not group.members:
        return frozenset()
    if not is_consumer_group(group) or group.state is GroupState.PREPARING_REBALANCE:
        # The next generation is not decided yet; until then nothing is certain.
        return None
    subscriptions: Mapping[str, bytes] = {
        one.member_id: one.subscription(group.protocol_name) for one in group.members.values()
    }
    found: set[str] = set()
    for data in subscriptions.values():
        topics = topics_of_subscription(data)
        if topics is None:
            return None
        found.update(topics)
    return frozenset(found)


def topics_of_subscription(data: bytes) -> tuple[str, ...] | None:
    """Returns the topics of a consumer's subscription, None if the bytes are not one."""
    try:
        version, count = _VERSION_AND_COUNT.unpack_from(data)
        if version < 0 or count < 0:
            return None
        position = _VERSION_AND_COUNT.size
        topics = []
        for _ in range(count):
            (size,) = _SIZE.unpack_from(data, position)
            position += _SIZE.size
            if size < 0 or position + size > len(data):
                return None
            topics.append(data[position : position + size].decode())
            position += size
    except (struct.error, UnicodeDecodeError):
        return None
    return tuple(topics)
