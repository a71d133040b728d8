"""Members of a consumer group (KIP-848) as values.

A member has an *epoch*: the epoch of the target assignment that it follows. It is *reconciled* if it has exactly
what the newest target assignment gives it. On the way there it is in one of two other states: it still has to
give up partitions (`UNREVOKED_PARTITIONS`), or it waits for partitions of others (`UNRELEASED_PARTITIONS`).

Source:
    Kafka's `ConsumerGroupMember` and `MemberState`; KIP-848.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from uuid import UUID

Partition = tuple[UUID, int]
"""A topic's id and the index of a partition."""
Partitions = frozenset[Partition]
NO_PARTITIONS: Partitions = frozenset()

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""Epoch of a static member that left for a moment and keeps its partitions."""
NO_OWNER_EPOCH = -1


class MemberState(IntEnum):
    """How far a member is with its target assignment, with Kafka's numbers."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127
    """A newer release stored a state that this one does not know."""

    @classmethod
    def _missing_(cls, value: object) -> "MemberState | None":
        return cls.UNKNOWN if isinstance(value, int) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicProtocols:
    """What a member that uses the classic protocol sent with JoinGroup.

    Attributes:
        protocols: (name, subscription) in the client's order of preference.
    """

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What a member wants, and who it is; changed by the member only.

    Attributes:
        topics: Names of topics, sorted.
        regex: Subscribes to the topics whose whole name matches; empty for none.
        assignor: Name of the assignor that the member prefers, None without a preference.
        classic: None if the member uses the consumer protocol.
    """

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    regex: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicProtocols | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a member has; changed by the coordinator only.

    Attributes:
        epoch: The epoch that the member has to name.
        previous_epoch: The one before; a member that did not get a response still names it.
        assigned: The partitions that it may consume.
        revoking: The partitions that it has to give up; nobody else gets them before.
    """

    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NO_PARTITIONS
    revoking: Partitions = NO_PARTITIONS

    @property
    def held(self) -> Partitions:
        """The partitions that the member may still consume or have."""
        return self.assigned | self.revoking

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Whether the member has what the target assignment of an epoch gives it."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """One member."""

    member_id: str
    subscription: Subscription = Subscription()
    progress: Progress = Progress()

    @property
    def epoch(self) -> int:
        """The epoch that the member has to name."""
        return self.progress.epoch

    @property
    def instance_id(self) -> str | None:
        """Its static name, None if it has none."""
        return self.subscription.instance_id

    @property
    def is_classic(self) -> bool:
        """Whether it uses the classic protocol."""
        return self.subscription.classic is not None


def by_topic(partitions: Iterable[Partition]) -> dict[UUID, list[int]]:
    """Returns the indexes of partitions by topic id, both in ascending order."""
    found: dict[UUID, list[int]] = {}
    for topic_id, index in sorted(partitions):
        found.setdefault(topic_id, []).append(index)
    return found


def from_topics(topics: Mapping[UUID, Iterable[int]]) -> Partitions:
    """Returns partitions from indexes by topic id."""
    return frozenset((topic_id, index) for topic_id, of in topics.items() for index in of)
