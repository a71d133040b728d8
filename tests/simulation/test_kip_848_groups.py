"""Consumer groups of KIP-848 in a cluster: their coordinator changes, loses power, and their type changes."""

import pytest

from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    delete_groups_request,
    describe_groups_request,
    find_coordinator_request,
    init_producer_id_request,
    list_groups_request,
    millis,
    offset_delete_request,
    txn_offset_commit_request,
)
from tests.simulation.cluster_story import TOPIC, Cluster
from tests.simulation.consumer_group_member import (
    GROUP,
    ConsumerMember,
    create_topic,
    settle,
    shares,
    started,
)
from tests.simulation.network_helpers import between

FAST_SESSIONS = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
}


def listed(member: ConsumerMember, **filters: tuple[str, ...]) -> list[tuple[str, str, str]]:
    values = {"states_filter": (), "types_filter": ()} | filters
    response = member.ask(list_groups_request.ListGroupsRequest(**values))
    return [(one.group_id, one.group_state, one.group_type) for one in response.groups]


# --- fail-over ------------------------------------------------------------------------------------------


def test_the_next_coordinator_goes_on_with_the_same_epochs_and_partitions() -> None:
    cluster = started()
    a, b = ConsumerMember(cluster, "a"), ConsumerMember(cluster, "b")
    settle(a, b)
    assert b.commit(7, partition=2) == 0
    before = a.find()
    cluster.node(before).kill()
    assert a.work().member_epoch == b.work().member_epoch == 2
    assert a.find() != before
    assert shares(a, b) == [[0, 1], [2, 3]]
    assert b.fetch("b", 2, partition=2) == (0, 7)
    first, second = b.describe().members
    assert [first.member_id, second.member_id] == ["a", "b"]


def test_a_rebalance_continues_under_the_next_coordinator() -> None:
    cluster = started()
    a, b = ConsumerMember(cluster, "a"), ConsumerMember(cluster, "b")
    a.work()
    b.work()
    a.heartbeat()  # learns what it has to give up, and still has it
    cluster.node(a.find()).kill()
    b.work()
    assert b.owned == set(), "the next coordinator knows that the first member still has them"
    settle(a, b)
    assert shares(a, b) == [[0, 1], [2, 3]]


@pytest.mark.parametrize("mode", ["lose_all", "prefix"])
def test_a_group_survives_power_cuts_of_all_brokers_one_after_the_other(mode: str) -> None:
    cluster = started()
    members = [ConsumerMember(cluster, name) for name in "abc"]
    settle(*members)
    for broker in cluster.brokers:
        cluster.node(broker).power_off(mode)
        for member in members:
            assert member.work().error_code == 0
        cluster.node(broker).start()
        cluster.run_until(lambda broker=broker: cluster.is_running(broker))
        cluster.run_until(cluster.all_in_sync)
    settle(*members)
    assert sorted(index for share in shares(*members) for index in share) == [0, 1, 2, 3]
    assert len({member.epoch for member in members}) == 1


def test_a_change_that_was_not_committed_is_not_acknowledged_and_the_member_joins_again() -> None:
    """The coordinator dies while nobody replicates a join; its successor does not know the member."""
    cluster = started()
    a, b = ConsumerMember(cluster, "a"), ConsumerMember(cluster, "b")
    a.work()
    old = a.find()
    others = [f"b{broker}" for broker in cluster.brokers if broker != old]
    network = cluster.world.network
    network.stall("followers", [pair for one in others for pair in between(f"b{old}", one)])
    pending = cluster.world.spawn("client", cluster._ask(old, b.request()))
    cluster.run_for(0.3)
    assert not pending.done()
    cluster.node(old).power_off("lose_all")
    cluster.run_until(pending.done)
    network.heal_all()
    assert pending.exception() is not None
    assert a.work().member_epoch == 1
    assert [member.member_id for member in a.describe().members] == ["a"]
    settle(a, b)
    assert shares(a, b) == [[0, 1], [2, 3]]


def test_a_heartbeat_that_changes_nothing_waits_for_what_it_depends_on() -> None:
    """The first member would learn a state that the next coordinator may not have."""
    cluster = started()
    a, b = ConsumerMember(cluster, "a"), ConsumerMember(cluster, "b")
    settle(a, b)
    old = a.find()
    others = [f"b{broker}" for broker in cluster.brokers if broker != old]
    network = cluster.world.network
    network.stall("followers", [pair for one in others for pair in between(f"b{old}", one)])
    joining = ConsumerMember(cluster, "c").request()
    waiting = [
        cluster.world.spawn("client", cluster._ask(old, request))
        for request in (joining, b.request(), b.request())
    ]
    cluster.run_for(0.3)
    assert not any(one.done() for one in waiting)
    network.heal_all()
    cluster.run_until(lambda: all(one.done() for one in waiting))
    assert [one.result().error_code for one in waiting] == [0, 0, 0]


def test_a_change_that_the_log_does_not_take_did_not_happen() -> None:
    cluster = started(min_isr=3)
    a, b = ConsumerMember(cluster, "a"), ConsumerMember(cluster, "b")
    a.work()
    coordinator = a.find()
    other = next(broker for broker in cluster.brokers if broker != coordinator)
    cluster.node(other).kill()
    cluster.run_for(3)
    assert b.heartbeat().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert [member.member_id for member in a.describe().members] == ["a"]
    cluster.node(other).start()
    cluster.run_until(cluster.all_in_sync)
    settle(a, b)
    assert shares(a, b) == [[0, 1], [2, 3]]


def test_a_member_that_is_silent_is_removed_and_may_join_again() -> None:
    cluster = started(properties=FAST_SESSIONS, profile="kafka-4.3")
    a, b = ConsumerMember(cluster, "a"), ConsumerMember(cluster, "b")
    settle(a, b)
    for _ in range(4):
        cluster.run_for(1)
        a.work()
    assert shares(a) == [[0, 1, 2, 3]]
    assert b.heartbeat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    marks = [mark for book in cluster.books.values() for mark in book.marks]
    assert ("group-member-timed-out", {"reason": "session"}) in marks


def test_a_member_that_gives_nothing_up_is_removed_after_its_rebalance_timeout() -> None:
    cluster = started()
    a = ConsumerMember(cluster, "a", rebalance_timeout_ms=2000)
    b = ConsumerMember(cluster, "b")
    a.work()
    b.work()
    for _ in range(5):
        a.heartbeat()  # it lives, but still owns everything
        cluster.run_for(0.6)
    assert a.heartbeat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    settle(b)
    assert shares(b) == [[0, 1, 2, 3]]


# --- static members, patterns, settings -----------------------------------------------------------------


def test_a_static_member_comes_back_to_its_partitions_within_its_session() -> None:
    cluster = started(properties=FAST_SESSIONS)
    a = ConsumerMember(cluster, "a", instance_id="one")
    b = ConsumerMember(cluster, "b", instance_id="two")
    settle(a, b)
    assert b.leave(-2).member_epoch == -2
    again = ConsumerMember(cluster, "c", instance_id="two")
    again.work()
    assert (shares(again), again.epoch) == ([[2, 3]], 2)
    assert again.leave(-2).error_code == 0
    for _ in range(4):
        cluster.run_for(1)
        a.work()
    assert shares(a) == [[0, 1, 2, 3]], "it did not come back in time"


def test_a_pattern_follows_new_topics() -> None:
    cluster = started()
    a = ConsumerMember(cluster, "a", topics=None, regex="ev.*|logs-[0-9]+")
    a.work()
    assert len(a.owned) == 4
    create_topic(cluster, "logs-1", partitions=2)
    cluster.run_for(10)
    a.work()
    assert len(a.owned) == 6
    (member,) = a.describe().members
    assert (member.subscribed_topic_regex, member.subscribed_topic_names) == (
        "ev.*|logs-[0-9]+",
        (),
    )
    bad = ConsumerMember(cluster, "b", topics=None, regex="(a")
    response = bad.work()
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "'(a' is not valid" in response.error_message


@pytest.mark.parametrize(
    ("profile", "properties", "error"),
    [
        ("kafka-4.1", {}, 0),
        ("kafka-4.1", {"group.coordinator.rebalance.protocols": "classic"}, 35),
        ("kafka-4.0", {}, 0),
        ("kafka-3.9", {}, 35),
        ("kafka-3.9", {"group.coordinator.rebalance.protocols": "classic,consumer"}, 0),
    ],
)
def test_consumer_groups_exist_where_the_release_and_its_settings_have_them(
    profile: str, properties: dict[str, str], error: int
) -> None:
    cluster = started(profile=profile, properties=properties)
    a = ConsumerMember(cluster, "a")
    assert a.work().error_code == error
    assert a.describe().error_code == error


def test_a_full_group_and_unknown_groups_are_refused() -> None:
    cluster = started(properties={"group.consumer.max.size": "1"})
    a, b = ConsumerMember(cluster, "a"), ConsumerMember(cluster, "b")
    a.work()
    assert b.work().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    other = ConsumerMember(cluster, "c", group="other")
    assert other.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    other.epoch = 1
    assert other.heartbeat().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert other.leave().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert b.leave().error_code == ErrorCode.UNKNOWN_MEMBER_ID


# --- offsets and administration -------------------------------------------------------------------------


def test_offsets_are_committed_and_shown_in_the_members_epoch_only() -> None:
    cluster = started()
    a = ConsumerMember(cluster, "a")
    a.work()
    assert a.commit(5) == 0
    assert a.commit(6, epoch=0) == ErrorCode.STALE_MEMBER_EPOCH
    assert a.fetch("a", 1) == (0, 5)
    assert a.fetch("a", 2) == (ErrorCode.STALE_MEMBER_EPOCH, None)
    assert a.fetch("b", 1) == (ErrorCode.UNKNOWN_MEMBER_ID, None)
    assert a.fetch() == (0, 5), "an administrator names no member"
    assert [a.fetch_by_id("a", epoch) for epoch in (1, 2)] == [0, ErrorCode.STALE_MEMBER_EPOCH]
    stranger = ConsumerMember(cluster, "b")
    assert stranger.commit(7, epoch=-1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert a.leave().error_code == 0
    assert stranger.commit(7, epoch=-1) == 0, "without members anybody may"


def test_a_group_is_listed_by_type_and_state_and_deleted_when_it_is_empty() -> None:
    cluster = started()
    a = ConsumerMember(cluster, "a")
    a.work()
    assert a.commit(5) == 0
    assert listed(a) == [(GROUP, "Stable", "consumer")]
    assert listed(a, types_filter=("Consumer",), states_filter=("stable",)) == listed(a)
    assert listed(a, types_filter=("classic",)) == listed(a, states_filter=("Empty",)) == []
    classic = a.ask(
        describe_groups_request.DescribeGroupsRequest(
            groups=(GROUP,), include_authorized_operations=False
        )
    )
    assert classic.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    delete = delete_groups_request.DeleteGroupsRequest(groups_names=(GROUP,))
    assert a.ask(delete).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    assert delete_offsets(a) == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    a.leave()
    assert listed(a) == [(GROUP, "Empty", "consumer")]
    assert delete_offsets(a) == 0
    assert a.ask(delete).results[0].error_code == 0
    assert listed(a) == []
    cluster.node(a.find()).kill()
    again = ConsumerMember(cluster, "again")
    assert again.work().member_epoch == 1, "nothing is left of the group"
    assert again.fetch() == (0, -1)


def delete_offsets(member: ConsumerMember) -> int:
    messages = offset_delete_request
    topic = messages.OffsetDeleteRequestTopic(
        name=TOPIC, partitions=(messages.OffsetDeleteRequestPartition(partition_index=0),)
    )
    response = member.ask(messages.OffsetDeleteRequest(group_id=GROUP, topics=(topic,)))
    return int(response.topics[0].partitions[0].error_code)


def test_a_malformed_heartbeat_gets_one_sentence() -> None:
    cluster = started()
    a = ConsumerMember(cluster, "a")
    response = a.heartbeat(topic_partitions=None)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert response.error_message == "a new member cannot own partitions"
    unknown = a.heartbeat(server_assignor="sticky")
    assert unknown.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR


# --- offsets in transactions ------------------------------------------------------------------------------


def transactional_producer(cluster: Cluster) -> tuple[int, int]:
    """Returns the id and the epoch that the coordinator of the transactional id "t" gives a producer."""
    find = find_coordinator_request.FindCoordinatorRequest(key_type=1, coordinator_keys=("t",))
    init = init_producer_id_request.InitProducerIdRequest(
        transactional_id="t", transaction_timeout=millis(60_000)
    )
    for _ in range(200):
        (found,) = cluster.do(cluster._ask(1, find)).coordinators
        if found.error_code == ErrorCode.NONE:
            given = cluster.do(cluster._ask(found.node_id, init))
            if given.error_code == ErrorCode.NONE:
                return given.producer_id, given.producer_epoch
        cluster.run_for(0.1)
    raise AssertionError("there is no coordinator of transactions")


@pytest.mark.parametrize(
    ("member_id", "epoch", "error"),
    [
        ("b", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", 0, ErrorCode.ILLEGAL_GENERATION),
        ("a", 1, ErrorCode.NONE),
        ("", -1, ErrorCode.NONE),
    ],
)
def test_a_producer_commits_offsets_of_a_member_in_its_present_epoch(
    member_id: str, epoch: int, error: ErrorCode
) -> None:
    """Producers that do not know members are not checked (KIP-447)."""
    cluster = started()
    member = ConsumerMember(cluster, "a")
    settle(member)
    producer_id, producer_epoch = transactional_producer(cluster)
    m = txn_offset_commit_request
    one = m.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_metadata=""
    )
    response = member.ask(
        m.TxnOffsetCommitRequest(
            transactional_id="t",
            group_id=GROUP,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            generation_id=epoch,
            member_id=member_id,
            topics=(m.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=(one,)),),
        )
    )
    assert response.topics[0].partitions[0].error_code == error
    assert listed(member) == [(GROUP, "Stable", "consumer")], "no classic group has the same name"
