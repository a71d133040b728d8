"""One member of a consumer group (KIP-848), whose requests a test sends itself."""

from typing import Any
from uuid import UUID

from system_under_test.protocol.messages import (
    consumer_group_describe_request,
    consumer_group_heartbeat_request,
    create_topics_request,
    find_coordinator_request,
    list_groups_request,
    millis,
    offset_commit_request,
    offset_fetch_by_id_request,
    offset_fetch_request,
)
from tests.simulation.cluster_story import TOPIC, Cluster

GROUP = "g"
RETRIABLE = (14, 15, 16)
"""Errors after which a client asks again, perhaps another coordinator."""


class ConsumerMember:
    """A consumer that sends one ConsumerGroupHeartbeat after the other.

    Attributes:
        owned: The partitions that it reports, as (topic id, index).
        epoch: The epoch that it names.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        *,
        topics: tuple[str, ...] | None = (TOPIC,),
        regex: str | None = None,
        instance_id: str | None = None,
        rebalance_timeout_ms: int = 10_000,
        group: str = GROUP,
        assignor: str | None = None,
    ) -> None:
        self.cluster = cluster
        self.name = name
        self.group = group
        self.epoch = 0
        self.owned: set[tuple[UUID, int]] = set()
        self._subscription = {
            "subscribed_topic_names": topics,
            "subscribed_topic_regex": regex,
            "server_assignor": assignor,
            "rebalance_timeout": millis(rebalance_timeout_ms),
            "instance_id": instance_id,
        }
        self.instance_id = instance_id
        self.assigned: set[tuple[UUID, int]] = set()

    # --- requests -----------------------------------------------------------------------------------------

    def ask(self, request: Any, seconds: float = 30) -> Any:
        """Sends a request to the coordinator of the group."""
        return self.cluster.do(self.cluster._ask(self.find(), request), seconds)

    def find(self) -> int:
        """Returns the coordinator of the group."""
        request = find_coordinator_request.FindCoordinatorRequest(
            key_type=0, coordinator_keys=(self.group,)
        )
        cluster = self.cluster
        for _ in range(200):
            alive = next(one for one in cluster.brokers if cluster.node(one).state == "running")
            (found,) = cluster.do(cluster._ask(alive, request)).coordinators
            if found.error_code == 0 and cluster.node(found.node_id).state == "running":
                return int(found.node_id)
            cluster.run_for(0.1)
        raise AssertionError("no coordinator was found")

    def request(self, *, is_full: bool = False, **changes: Any) -> Any:
        """Returns the next heartbeat: full when it joins or is asked to, else with owned partitions only."""
        is_joining = self.epoch == 0
        values: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.name,
            "member_epoch": self.epoch,
            "instance_id": self.instance_id,
            "topic_partitions": owned_topics(set() if is_joining else self.owned),
        }
        if is_joining or is_full:
            values |= self._subscription
        return consumer_group_heartbeat_request.ConsumerGroupHeartbeatRequest(**values | changes)

    def heartbeat(self, **changes: Any) -> Any:
        """Sends a heartbeat once and takes what it says; gives up nothing by itself."""
        response = self.ask(self.request(**changes))
        self.take(response)
        return response

    def take(self, response: Any) -> None:
        """Takes the epoch and the assignment of a response."""
        if response.error_code == 0:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                self.assigned = {
                    (topic.topic_id, index)
                    for topic in response.assignment.topic_partitions
                    for index in topic.partitions
                }

    def work(self) -> Any:
        """Sends a heartbeat like a consumer: repeats it, joins again if it is fenced, follows the assignment."""
        is_full = False
        for _ in range(100):
            try:
                response = self.heartbeat(is_full=is_full)
            except ConnectionError:
                is_full = True  # a response may have been lost
            else:
                if response.error_code not in RETRIABLE:
                    break
            self.cluster.run_for(0.1)
        if response.error_code in (25, 110):
            self.epoch, self.owned, self.assigned = 0, set(), set()
        elif response.error_code == 0:
            self.owned = set(self.assigned)
        return response

    def leave(self, epoch: int = -1) -> Any:
        """Leaves, for good or (-2) for a moment."""
        return self.ask(self.request(member_epoch=epoch, topic_partitions=None))

    def commit(self, offset: int, *, epoch: int | None = None, partition: int = 0) -> int:
        """Commits an offset; returns the error."""
        messages = offset_commit_request
        one = messages.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=""
        )
        topic = messages.OffsetCommitRequestTopic(name=TOPIC, partitions=(one,))
        response = self.ask(
            messages.OffsetCommitRequest(
                group_id=self.group,
                generation_id_or_member_epoch=self.epoch if epoch is None else epoch,
                member_id=self.name,
                group_instance_id=None,
                topics=(topic,),
            )
        )
        return int(response.topics[0].partitions[0].error_code)

    def fetch(self, member_id: str | None = None, epoch: int = -1, partition: int = 0) -> Any:
        """Returns (error, committed offset)."""
        messages = offset_fetch_request
        topic = messages.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=(partition,))
        group = messages.OffsetFetchRequestGroup(
            group_id=self.group, member_id=member_id, member_epoch=epoch, topics=(topic,)
        )
        response = self.ask(messages.OffsetFetchRequest(groups=(group,), require_stable=False))
        (found,) = response.groups
        if found.error_code:
            return found.error_code, None
        return 0, found.topics[0].partitions[0].committed_offset

    def fetch_by_id(self, member_id: str | None, epoch: int) -> int:
        """Returns the error of an OffsetFetch that names topics by id (version 10)."""
        messages = offset_fetch_by_id_request
        group = messages.OffsetFetchRequestGroup(
            group_id=self.group, member_id=member_id, member_epoch=epoch, topics=None
        )
        response = self.ask(messages.OffsetFetchRequest(groups=(group,), require_stable=False))
        return int(response.groups[0].error_code)

    def describe(self) -> Any:
        """Returns the description of the group."""
        request = consumer_group_describe_request.ConsumerGroupDescribeRequest(
            group_ids=(self.group,), include_authorized_operations=False
        )
        return self.ask(request).groups[0]


def owned_topics(owned: set[tuple[UUID, int]]) -> Any:
    """Returns partitions as a request names them."""
    topics: dict[UUID, list[int]] = {}
    for topic_id, index in sorted(owned):
        topics.setdefault(topic_id, []).append(index)
    return tuple(
        consumer_group_heartbeat_request.TopicPartitions(
            topic_id=topic_id, partitions=tuple(indexes)
        )
        for topic_id, indexes in topics.items()
    )


def settle(*members: ConsumerMember, rounds: int = 20) -> None:
    """Lets members work until the group is stable."""
    for _ in range(rounds):
        for member in members:
            member.work()
        if members[0].describe().group_state == "Stable":
            return
    raise AssertionError(f"the group is {members[0].describe().group_state}")


def shares(*members: ConsumerMember) -> list[list[int]]:
    """Returns the indexes of the partitions that each member owns."""
    return [sorted(index for _, index in member.owned) for member in members]


def create_topic(cluster: Cluster, name: str = TOPIC, partitions: int = 4) -> None:
    """Creates a topic with a replica on every broker."""
    messages = create_topics_request
    topic = messages.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=len(cluster.brokers),
        assignments=(),
        configs=(),
    )
    request = messages.CreateTopicsRequest(topics=(topic,), timeout=millis(10_000))
    response = cluster.do(cluster._ask(cluster.brokers[0], request))
    assert [one.error_code for one in response.topics] == [0], response
    cluster.run_for(0.5)


def started(*, partitions: int = 4, **settings: Any) -> Cluster:
    """Returns a cluster with a topic."""
    cluster = Cluster(**settings).start()
    create_topic(cluster, partitions=partitions)
    return cluster


def listed_types(member: ConsumerMember) -> list[tuple[str, str]]:
    """Returns (group, type) of the groups that the member's coordinator lists."""
    request = list_groups_request.ListGroupsRequest(states_filter=(), types_filter=())
    return [(one.group_id, one.group_type) for one in member.ask(request).groups]
