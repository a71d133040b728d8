"""The controller's event loop: commit before response, activation, loss of leadership, timers."""

import pytest

from harness.defects.requests import elect_request, reassign_request
from system_under_test.config import FAST_TIMINGS
from system_under_test.invariants import InvariantViolation
from system_under_test.metadata.image import ClusterImage
from system_under_test.metadata.records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionRecord,
    TopicRecord,
)
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    broker_heartbeat_request,
    broker_heartbeat_response,
    fetch_request,
)
from tests.controller_story import (
    alter_request,
    create_request,
    heartbeat_request,
    list_request,
    partitions_request,
    registration_request,
)
from tests.unit.system_under_test.controller.controller_fakes import (
    ME,
    Node,
    settle,
    sleep_ms,
    virtually,
)

SESSION_MS = FAST_TIMINGS.broker_session_timeout_ms
IDLE_MS = FAST_TIMINGS.metadata_max_idle_interval_ms


@virtually
async def test_a_controller_that_does_not_lead_responds_not_controller_to_everything():
    """CTRL-5."""
    node = Node()
    alter = alter_request(
        1, 1, registration_request(1).log_dirs[0], leader_epoch=0, partition_epoch=0, isr=()
    )
    for message in (registration_request(1), heartbeat_request(1, 1, 1), alter):
        assert node.controller.handles(message)
        assert node.ask(message).error_code == ErrorCode.NOT_CONTROLLER
    topics = node.ask(create_request({"name": "a"}, {"name": "b"})).topics
    assert [topic.error_code for topic in topics] == [ErrorCode.NOT_CONTROLLER] * 2
    for message in (
        elect_request(("t", 0)),
        reassign_request(("t", 0, None)),
        list_request(),
    ):
        assert node.controller.handles(message)
        assert node.ask(message).error_code == ErrorCode.NOT_CONTROLLER
    (created,) = node.ask(partitions_request(("t", 2, None))).results
    assert created.error_code == ErrorCode.NOT_CONTROLLER
    assert not node.controller.handles(fetch_request)
    assert not node.controller.is_active
    assert node.controller.latest is None


@virtually
async def test_it_activates_when_the_leader_change_of_its_own_epoch_is_committed():
    node = Node()
    node.quorum.auto = False
    node.quorum.lead(4)
    await settle()
    assert not node.controller.is_active
    node.quorum.commit()
    assert node.controller.is_active
    assert "controller-activated" in node.marks


@virtually
async def test_a_leader_change_of_an_earlier_epoch_does_not_activate():
    """CTRL-4."""
    node = Node()
    node.quorum.auto = False
    node.quorum.lead(4)
    node.controller.on_leader_change(5, -1)
    node.quorum.commit()
    assert not node.controller.is_active
    node.controller.on_leader_change(6, ME)
    assert not node.controller.is_active


@virtually
async def test_it_does_not_activate_before_it_is_started_or_after_it_is_stopped():
    node = Node()
    node.controller.stop()
    node.quorum.lead(1)
    await settle()
    assert not node.controller.is_active
    node.controller.start()
    assert node.controller.is_active


@virtually
async def test_the_first_activation_writes_the_features_and_later_ones_do_not():
    node = Node()
    await node.begin()
    await settle()
    features = {
        record.name: record.feature_level
        for record in node.quorum.records
        if isinstance(record, FeatureLevelRecord)
    }
    assert features == {
        "metadata.version": 27,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "transaction.version": 2,
    }
    assert node.controller.image.elr_on
    assert node.controller.image.min_insync_replicas("any", 7) == 2
    count = len(node.quorum.records)
    node.quorum.follow(2)
    node.quorum.lead(3)
    await settle()
    assert node.controller.is_active
    assert len(node.quorum.records) == count + 1


@virtually
async def test_the_records_of_one_decision_are_one_batch():
    """CTRL-2: a topic is never committed without its partitions."""
    node = Node()
    await node.begin(1)
    await settle()
    count = len(node.quorum.batches)
    node.ask(create_request({"name": "t", "assignment": {0: (1,), 1: (1,)}}))
    (written,) = node.quorum.batches[count:]
    assert [type(record) for record in written.records] == [
        TopicRecord,
        PartitionRecord,
        PartitionRecord,
    ]


@virtually
async def test_a_response_waits_for_the_commit():
    node = Node()
    await node.begin()
    await settle()
    node.quorum.auto = False
    response = node.ask(registration_request(1))
    await settle()
    assert not response.done()
    assert 1 in node.controller.latest.brokers
    assert 1 not in node.controller.image.brokers
    node.quorum.commit()
    assert response.result().error_code == 0
    assert response.result().broker_epoch == node.controller.image.brokers[1].broker_epoch


@virtually
async def test_a_response_without_records_waits_for_the_commit_of_what_it_depends_on():
    node = Node()
    await node.begin(1)
    await settle()
    assert isinstance(
        node.ask(node.heartbeat_of(1)), broker_heartbeat_response.BrokerHeartbeatResponse
    )
    node.quorum.auto = False
    created = node.ask(create_request({"name": "t", "assignment": {0: (1,)}}))
    beat = node.ask(node.heartbeat_of(1))
    assert not created.done()
    assert not beat.done()
    node.quorum.commit()
    assert created.done()
    assert beat.done()


@virtually
async def test_without_ctrl_1_it_responds_before_the_commit():
    node = Node(without=("CTRL-1",))
    await node.begin()
    node.quorum.auto = False
    assert node.ask(registration_request(1)).error_code == 0
    assert 1 not in node.controller.image.brokers


@virtually
async def test_a_lost_leadership_fails_pending_requests_and_drops_their_records():
    """CTRL-3."""
    node = Node()
    await node.begin(1)
    await settle()
    node.quorum.auto = False
    registered = node.ask(registration_request(2))
    topics = node.ask(create_request({"name": "t", "assignment": {0: (1,)}}))
    hung_up = node.ask(node.heartbeat_of(1))
    hung_up.cancel()
    assert 2 in node.controller.latest.brokers
    node.quorum.follow(2)
    assert registered.result().error_code == ErrorCode.NOT_CONTROLLER
    assert topics.result().topics[0].error_code == ErrorCode.NOT_CONTROLLER
    assert node.controller.latest is None
    assert 2 not in node.controller.image.brokers
    assert "controller-deposed" in node.marks
    # The next leader wrote something else at the same offsets.
    node.quorum.auto = True
    node.quorum.put([NoOpRecord()])
    await settle()
    assert node.controller.image.last_offset == node.quorum.next_offset() - 1
    assert not node.controller.image.topics


@virtually
async def test_a_leadership_that_raft_lost_silently_ends_with_the_next_write():
    node = Node()
    await node.begin(1)
    await settle()
    node.quorum.leads = False
    before = node.controller.image.last_offset
    assert node.ask(registration_request(2)).error_code == ErrorCode.NOT_CONTROLLER
    assert not node.controller.is_active
    assert node.quorum.next_offset() == before + 1


@virtually
async def test_a_foreign_append_in_the_own_epoch_ends_the_run():
    node = Node()
    await node.begin()
    node.quorum.put([NoOpRecord()])
    with pytest.raises(InvariantViolation, match="INV-5"):
        node.ask(registration_request(1))


@virtually
async def test_every_controller_reports_every_committed_record_once_and_in_order():
    node = Node()
    await node.begin(1, 2)
    await settle()
    reported = node.host.observer.committed
    assert [offset for offset, _, _ in reported] == list(range(node.quorum.next_offset()))
    assert [record for _, _, record in reported] == node.quorum.records
    standby = ClusterImage()
    for offset, _, record in reported:
        standby.replay(offset, record)
    assert standby == node.controller.image == node.controller.latest


async def silent_cluster(node: Node) -> None:
    """Brokers 1, 2, 3 with a topic; last heard of in the order 3, 1, 2."""
    await node.begin(1, 2, 3)
    assignment = {"name": "t", "assignment": {0: (1, 2, 3)}}
    assert (await node.answer(create_request(assignment))).topics[0].error_code == 0
    for broker_id in (3, 1, 2):
        await sleep_ms(5)
        await node.beat(broker_id)


def fenced_in_order(node: Node) -> list[int]:
    return [
        record.broker_id
        for record in node.quorum.records
        if isinstance(record, BrokerRegistrationChangeRecord) and record.fenced
    ]


@virtually
async def test_silent_brokers_are_fenced_one_by_one_in_the_order_of_last_contact():
    node = Node()
    await silent_cluster(node)
    await sleep_ms(SESSION_MS - 10.5)
    assert fenced_in_order(node) == []
    await sleep_ms(1)
    assert fenced_in_order(node) == [3]
    await sleep_ms(10)
    assert fenced_in_order(node) == [3, 1, 2]
    registration = node.controller.image.partition("t", 0)
    assert (registration.isr, set(registration.elr), registration.last_known_elr) == (
        (),
        {1, 2},
        (2,),
    )
    assert node.controller.gauges()["TimedOutBrokerHeartbeatCount"] == 3
    assert node.controller.gauges()["OfflinePartitionsCount"] == 1


@virtually
async def test_a_broker_that_sends_heartbeats_is_not_fenced():
    node = Node()
    await silent_cluster(node)
    for _ in range(30):
        await sleep_ms(SESSION_MS / 10)
        await node.beat(2)
    assert fenced_in_order(node) == [3, 1]


@virtually
async def test_brokers_that_expire_together_are_fenced_in_separate_events():
    node = Node()
    await node.begin(1, 2, 3)
    node.quorum.follow(2)
    node.quorum.lead(3)
    await settle()
    await sleep_ms(SESSION_MS + 1)
    assert fenced_in_order(node) == [1, 2, 3]
    batches = [
        batch
        for batch in node.quorum.batches
        if any(
            isinstance(record, BrokerRegistrationChangeRecord) and record.fenced
            for record in batch.records
        )
    ]
    assert len(batches) == 3


@virtually
async def test_without_fence_3_they_are_fenced_in_one_event():
    node = Node(without=("FENCE-3",))
    await node.begin(1, 2, 3)
    assignment = {"name": "t", "assignment": {0: (1, 2, 3)}}
    await node.answer(create_request(assignment))
    node.quorum.follow(2)
    node.quorum.lead(3)
    await settle()
    await sleep_ms(SESSION_MS / 2)
    await node.beat(3)
    await sleep_ms(SESSION_MS / 2 + 1)
    registration = node.controller.image.partition("t", 0)
    assert (registration.leader, registration.isr) == (2, (1, 3))


@virtually
async def test_a_new_active_controller_gives_every_broker_a_new_session():
    node = Node()
    await node.begin(1)
    await sleep_ms(SESSION_MS - 20)
    node.quorum.follow(2)
    node.quorum.lead(3)
    await settle()
    await sleep_ms(SESSION_MS - 20)
    assert fenced_in_order(node) == []
    await sleep_ms(40)
    assert fenced_in_order(node) == [1]


@virtually
async def test_late_fencing_lets_a_broker_register_again_first():
    node = Node()
    await silent_cluster(node)
    node.host.random.late_fencing = 1
    await sleep_ms(SESSION_MS + 10)
    assert fenced_in_order(node) == []
    response = await node.answer(registration_request(3, incarnation=2))
    assert response.error_code == 0
    assert node.controller.image.partition("t", 0).isr == (1, 2)


@virtually
async def test_no_ops_are_written_only_when_nothing_else_was_and_nothing_is_pending():
    node = Node()
    await node.begin(1)

    def no_ops() -> int:
        return sum(isinstance(record, NoOpRecord) for record in node.quorum.records)

    await sleep_ms(3.5 * IDLE_MS)
    assert no_ops() == 3
    await node.beat(1)
    node.ask(create_request({"name": "t", "assignment": {0: (1,)}}))
    await sleep_ms(0.9 * IDLE_MS)
    assert no_ops() == 3
    await sleep_ms(0.2 * IDLE_MS)
    assert no_ops() == 4
    await node.beat(1)
    # Without a majority it adds one record and waits.
    node.quorum.auto = False
    await sleep_ms(4 * IDLE_MS)
    assert no_ops() == 5


@virtually
async def test_a_stopped_controller_leaves_no_timer_behind():
    node = Node()
    await node.begin(1)
    node.controller.stop()
    records = len(node.quorum.records)
    await sleep_ms(10 * SESSION_MS)
    assert len(node.quorum.records) == records


@virtually
async def test_the_sweep_runs_while_a_topic_that_allows_it_is_leaderless():
    node = Node(profile="kafka-4.0", without=("FENCE-1",))
    await node.begin(1, 2)
    topic = {
        "name": "t",
        "assignment": {0: (1, 2)},
        "configs": {"unclean.leader.election.enable": "true"},
    }
    await node.answer(create_request(topic))
    await sleep_ms(SESSION_MS + 10)
    assert node.controller.image.partition("t", 0).leader == -1
    await node.beat(1)
    assert node.controller.image.partition("t", 0).leader == -1
    for _ in range(FAST_TIMINGS.unclean_leader_election_interval_ms // 100 + 1):
        await sleep_ms(100)
        await node.beat(1)
    assert node.controller.image.partition("t", 0).leader == 1
    assert "elected-unclean" in node.marks
    assert node.controller.gauges()["UncleanLeaderElectionsCount"] == 1


@virtually
async def test_a_controlled_shutdown_is_permitted_when_the_other_brokers_know():
    node = Node()
    await silent_cluster(node)
    assert not (await node.beat(1, want_stop=True)).should_shut_down
    assert node.controller.image.partition("t", 0).leader == 2
    for broker_id in (2, 3):
        await node.beat(broker_id)
    response = await node.beat(1, want_stop=True)
    assert response.should_shut_down
    assert node.controller.image.brokers[1].fenced


@virtually
async def test_topic_ids_are_distinct_and_of_version_4():
    node = Node()
    await node.begin(1)
    request = create_request({"name": "a", "factor": 1}, {"name": "b", "factor": 1})
    await node.answer(request)
    ids = [record.topic_id for record in node.quorum.records if isinstance(record, TopicRecord)]
    assert len(set(ids)) == 2
    assert {topic_id.version for topic_id in ids} == {4}


@virtually
async def test_a_heartbeat_of_a_settled_broker_gets_a_shared_response_at_once():
    node = Node()
    await node.begin(1)
    await settle()
    first = node.ask(node.heartbeat_of(1))
    second = node.ask(node.heartbeat_of(1))
    assert first is second
    assert isinstance(first, broker_heartbeat_response.BrokerHeartbeatResponse)
    assert node.controller.handles(
        broker_heartbeat_request.BrokerHeartbeatRequest(
            broker_id=1,
            broker_epoch=1,
            current_metadata_offset=1,
            want_fence=False,
            want_shut_down=False,
        )
    )
