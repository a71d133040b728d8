"""A consumer group without a broker: members send heartbeats to the decisions, and a list is the log."""

from dataclasses import dataclass, field, replace
from uuid import UUID

from system_under_test.group.consumer import heartbeat
from system_under_test.group.consumer.assigning import Surroundings
from system_under_test.group.consumer.group import ConsumerGroup, Draft
from system_under_test.group.consumer.members import Partitions
from system_under_test.group.consumer.records import (
    decode_record_key,
    decode_record_value,
    encode_record,
)
from system_under_test.group.consumer.requests import HeartbeatRequest, HeartbeatResult
from system_under_test.group.consumer.topics import Topics
from system_under_test.metadata.image import ClusterImage
from system_under_test.metadata.records import MetadataRecord, PartitionRecord, TopicRecord
from system_under_test.rules import ALL_RULES, Rules

TOPIC = "t"


@dataclass
class World:
    """The group, its log, and the topics of the cluster."""

    rules: Rules = ALL_RULES
    assignors: tuple[str, ...] = ("uniform", "range")
    stores_hash: bool = True
    fenced_may_rejoin: bool = True
    wall_ms: int = 1_000_000
    group: ConsumerGroup = field(default_factory=lambda: ConsumerGroup(group_id="g"))
    image: ClusterImage = field(default_factory=ClusterImage)
    log: list[tuple[bytes, bytes | None]] = field(default_factory=list)

    def around(self) -> Surroundings:
        return Surroundings(
            topics=Topics(self.image),
            wall_ms=self.wall_ms,
            assignors=self.assignors,
            stores_hash=self.stores_hash,
            fenced_may_rejoin=self.fenced_may_rejoin,
            rules=self.rules,
        )

    def _metadata(self, record: MetadataRecord) -> None:
        self.image.replay(self.image.last_offset + 1, record)

    def create_topic(self, name: str = TOPIC, partitions: int = 4) -> UUID:
        topic_id = UUID(int=1000 + self.image.last_offset + 2)
        self._metadata(TopicRecord(name=name, topic_id=topic_id))
        for index in range(partitions):
            self.add_partition(topic_id, index)
        return topic_id

    def add_partition(self, topic_id: UUID, index: int) -> None:
        self._metadata(
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=(1,),
                isr=(1,),
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
            )
        )

    # --- requests -----------------------------------------------------------------------------------------

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResult:
        draft = Draft(self.group)
        result = heartbeat.heartbeat(draft, request, self.around())
        self.keep(draft)
        return result

    def remove(self, *member_ids: str) -> None:
        draft = Draft(self.group)
        heartbeat.remove(draft, list(member_ids), self.around())
        self.keep(draft)

    def pause(self, member_id: str) -> None:
        draft = Draft(self.group)
        heartbeat.pause(draft, self.group.members[member_id])
        self.keep(draft)

    def keep(self, draft: Draft) -> None:
        self.log += [encode_record(key, value) for key, value in draft.records]
        self.group = draft.group

    def reload(self) -> ConsumerGroup:
        """Returns the group that a new coordinator reads."""
        found = ConsumerGroup(group_id="g")
        for key, value in self.log:
            decoded = decode_record_key(key)
            found.apply(
                decoded, None if value is None else decode_record_value(decoded.kind, value)
            )
        return found


@dataclass
class Client:
    """A consumer that follows what it is told.

    Attributes:
        is_unsure: Whether a response was lost; the next heartbeat then is a full one, as clients send it.
    """

    world: World
    name: str
    topics: tuple[str, ...] | None = (TOPIC,)
    regex: str | None = None
    instance_id: str | None = None
    assignor: str | None = None
    epoch: int = 0
    owned: Partitions = frozenset()
    assigned: Partitions = frozenset()
    is_unsure: bool = False

    def request(self, **changes: object) -> HeartbeatRequest:
        made = HeartbeatRequest(
            group_id="g",
            member_id=self.name,
            epoch=self.epoch,
            instance_id=self.instance_id,
            owned=frozenset() if self.epoch == 0 else self.owned,
        )
        if self.epoch == 0 or self.is_unsure:
            made = replace(
                made,
                topics=self.topics,
                regex=self.regex,
                rebalance_timeout_ms=1000,
                assignor=self.assignor,
            )
        return replace(made, **changes)  # type: ignore[arg-type]

    def send(self, **changes: object) -> HeartbeatResult:
        """Sends a heartbeat and takes the result; gives nothing up yet."""
        result = self.world.heartbeat(self.request(**changes))
        self.take(result)
        return result

    def take(self, result: HeartbeatResult) -> None:
        self.epoch, self.is_unsure = result.epoch, False
        if result.assigned is not None:
            self.assigned = result.assigned

    def follow(self) -> None:
        """Gives up what it may not consume any more, and takes over the rest."""
        self.owned = self.assigned

    def work(self) -> HeartbeatResult:
        result = self.send()
        self.follow()
        return result

    def reset(self) -> None:
        """Gives everything up, to join again."""
        self.epoch, self.owned, self.assigned = 0, frozenset(), frozenset()

    @property
    def indexes(self) -> list[int]:
        return sorted(index for _, index in self.owned)


def settle(*clients: Client, rounds: int = 20) -> None:
    """Lets all clients work until the group is stable."""
    for _ in range(rounds):
        for client in clients:
            client.work()
        if clients[0].world.group.state == "Stable":
            return
    raise AssertionError(f"the group is {clients[0].world.group.state}")
