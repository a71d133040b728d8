"""Which topics a group reads, and whether they have changed since its newest assignment.

Source:
    Kafka's `ModernGroup.computeSubscriptionMetadata` (4.0) and `ModernGroup.computeMetadataHash` (4.1).
"""

import hashlib
import itertools
from collections.abc import Iterable
from functools import lru_cache

from system_under_test.group.consumer.records import StoredTopic
from system_under_test.group.consumer.regex import TopicRegex
from system_under_test.metadata.image import ClusterImage

HASH_BYTES = 8


class Topics:
    """The topics of the cluster at one moment.

    Args:
        image: The metadata.
    """

    def __init__(self, image: ClusterImage) -> None:
        self._image = image

    @property
    def version(self) -> int:
        """Offset of the metadata."""
        return self._image.last_offset

    def known(self, names: Iterable[str]) -> tuple[StoredTopic, ...]:
        """Returns the existing ones of some topics, by name."""
        found = []
        for name in sorted(set(names)):
            topic = self._image.topics_by_name.get(name)
            if topic is not None:
                partitions = self._image.partitions
                # Indexes have no gaps.
                count = next(n for n in itertools.count() if (topic.topic_id, n) not in partitions)
                found.append(StoredTopic(topic_id=topic.topic_id, name=name, count=count))
        return tuple(found)

    def matching(self, pattern: str) -> tuple[str, ...]:
        """Returns the names of the topics that match a pattern, sorted.

        Raises:
            RegexError: The pattern is not valid.
        """
        regex = compiled(pattern)
        return tuple(name for name in sorted(self._image.topics_by_name) if regex.matches(name))


@lru_cache(maxsize=64)
def compiled(pattern: str) -> TopicRegex:
    """Returns a pattern that was read before, or reads it.

    Raises:
        RegexError: The pattern is not valid.
    """
    return TopicRegex(pattern)


def hash_of(topics: Iterable[StoredTopic]) -> int:
    """Returns 64 bits that differ when the topics differ; 0 for none.

    Kafka's hash is another one. That is no difference: only a coordinator compares it, and with its own.
    """
    every = list(topics)
    if not every:
        return 0
    text = "\n".join(f"{one.name} {one.topic_id} {one.count}" for one in every)
    digest = hashlib.blake2b(text.encode(), digest_size=HASH_BYTES).digest()
    return int.from_bytes(digest, "big", signed=True) or 1
