"""What happens without the rules that protect idempotent producers, groups, and a change of min ISR."""

from uuid import UUID

import pytest

from system_under_test.config import profile_features
from system_under_test.controller.configs import alter_configs
from system_under_test.controller.policy import Policy
from system_under_test.metadata.image import MIN_ISR_CONFIG, TOPIC_RESOURCE, ClusterImage
from system_under_test.metadata.records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    TopicRecord,
)
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    delete_groups_request,
    incremental_alter_configs_request,
    millis,
    offset_delete_request,
    produce_request,
)
from system_under_test.protocol.record_batch import encode_batch
from system_under_test.rules import Rules
from tests.mutations.coverage import shows
from tests.mutations.expectation import expect_defect
from tests.simulation.cluster_story import TOPIC, Cluster
from tests.simulation.group_member import GROUP, Member, subscription_of

PRODUCER = 77


def send(
    cluster: Cluster, value: bytes, sequence: int, *, epoch: int = 0, leader: int | None = None
) -> tuple[int, int]:
    """Sends one record of the idempotent producer; returns (error code, offset)."""
    request = produce_request.ProduceRequest(
        acks=-1,
        timeout=millis(1500),
        topic_data=(
            produce_request.TopicProduceData(
                name=TOPIC,
                partition_data=(
                    produce_request.PartitionProduceData(
                        index=0,
                        records=encode_batch(
                            [(None, value)],
                            timestamp_ms=1,
                            producer_id=PRODUCER,
                            producer_epoch=epoch,
                            base_sequence=sequence,
                        ),
                    ),
                ),
            ),
        ),
    )
    broker = cluster.leader() if leader is None else leader
    response = cluster.do(cluster._ask(broker, request)).responses[0].partition_responses[0]
    return int(response.error_code), response.base_offset


def started(*without: str) -> Cluster:
    cluster = Cluster(rules=Rules(without)).start()
    cluster.create_topic()
    return cluster


def values_after_a_repetition(*without: str) -> list[bytes]:
    cluster = started(*without)
    first = send(cluster, b"a", 0)
    again = send(cluster, b"a", 0)
    assert first == (0, 0)
    assert again[0] == 0
    return cluster.read_all()


@shows("PID-1")
def test_a_repeated_batch_is_appended_once_and_without_the_rule_refused() -> None:
    assert values_after_a_repetition() == [b"a"]
    # The gap rule still applies: the producer gets an error for a record that is in the log.
    cluster = started("PID-1")
    assert send(cluster, b"a", 0)[0] == 0
    assert send(cluster, b"a", 0)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert values_after_a_repetition("PID-1", "PID-2") == [b"a", b"a"]


@shows("PID-2")
def test_a_gap_is_refused_and_without_the_rule_a_sequence_is_missing_from_the_log() -> None:
    for without, expected in (((), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), (("PID-2",), 0)):
        cluster = started(*without)
        assert send(cluster, b"a", 0)[0] == 0
        assert send(cluster, b"c", 2)[0] == expected
        assert cluster.read_all() == ([b"a"] if expected else [b"a", b"c"])


@shows("PID-3")
def test_a_zombie_of_an_older_epoch_is_refused_and_without_the_rule_it_writes() -> None:
    for without, expected in (((), ErrorCode.INVALID_PRODUCER_EPOCH), (("PID-3",), 0)):
        cluster = started(*without)
        assert send(cluster, b"a", 0, epoch=0)[0] == 0
        assert send(cluster, b"b", 0, epoch=1)[0] == 0
        assert send(cluster, b"zombie", 0, epoch=0)[0] == expected
        assert cluster.read_all() == ([b"a", b"b"] if expected else [b"a", b"b", b"zombie"])


def values_after_a_failover(*without: str) -> list[bytes]:
    """The response to a batch is lost with the leader; the producer repeats it to the next one."""
    cluster = started(*without)
    assert send(cluster, b"a", 0) == (0, 0)
    cluster.run_for(0.5)
    old = cluster.leader()
    cluster.node(old).kill()
    cluster.await_partition(lambda one: one.leader not in (-1, old))
    for _ in range(50):
        error, offset = send(cluster, b"a", 0)
        if error == 0:
            break
        cluster.run_for(0.1)
    assert (error, offset) == (0, 0 if not without else 1)
    return cluster.read_all()


@shows("PID-4", "B-52")
def test_a_new_leader_knows_the_old_leaders_producers_and_without_the_rule_appends_twice() -> None:
    assert values_after_a_failover() == [b"a"]
    assert values_after_a_failover("PID-4") == [b"a", b"a"]
    expect_defect("B-52")


def until_all_run(cluster: Cluster) -> None:
    cluster.run_until(lambda: all(cluster.is_running(one) for one in cluster.brokers))


@shows("PID-5")
def test_producer_state_survives_a_restart_and_without_the_rule_a_retry_is_appended_twice() -> None:
    for without, expected in (((), [b"a"]), (("PID-5",), [b"a", b"a"])):
        cluster = started(*without)
        assert send(cluster, b"a", 0) == (0, 0)
        cluster.run_for(0.5)
        for broker in cluster.brokers:
            cluster.node(broker).kill()
        for broker in cluster.brokers:
            cluster.node(broker).start()
        until_all_run(cluster)
        cluster.await_partition(lambda one: one.leader >= 0 and len(one.isr) == 3)
        assert send(cluster, b"a", 0)[0] == 0
        assert cluster.read_all() == expected


# --- groups


@shows("GRP-1")
def test_an_offset_commit_waits_for_the_high_watermark_and_without_the_rule_does_not() -> None:
    for without in ((), ("GRP-1",)):
        cluster = started(*without)
        member = Member(cluster)
        assert member.commit(5, member.generation) == 0
        for broker in cluster.brokers:
            if broker != member.coordinator:
                cluster.node(broker).kill()
        if without:
            assert member.commit(6, member.generation) == 0
        else:
            # No replica can copy it: no response within the client's timeout, or one without an acknowledgement.
            with pytest.raises((TimeoutError, AssertionError)):
                assert member.commit(6, member.generation) == 0


@shows("GRP-2")
def test_an_offset_commit_of_an_older_generation_is_refused_and_without_the_rule_overwrites() -> (
    None
):
    for without, expected in (((), ErrorCode.ILLEGAL_GENERATION), (("GRP-2",), 0)):
        member = Member(started(*without))
        assert member.commit(5, member.generation) == 0
        assert member.commit(3, member.generation - 1) == expected


@shows("GRP-5")
def test_a_group_with_members_is_not_deleted_and_without_the_rule_its_offsets_are_lost() -> None:
    for without, expected, left in (((), ErrorCode.NON_EMPTY_GROUP, 5), (("GRP-5",), 0, -1)):
        member = Member(started(*without))
        assert member.commit(5, member.generation) == 0
        request = delete_groups_request.DeleteGroupsRequest(groups_names=(GROUP,))
        assert member.ask(request).results[0].error_code == expected
        assert member.committed() == left


@shows("GRP-5")
def test_offsets_that_a_member_needs_are_not_deleted_and_without_the_rule_are_lost() -> None:
    subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    for without, expected, left in (((), subscribed, 5), (("GRP-5",), 0, -1)):
        member = Member(started(*without), subscription=subscription_of(TOPIC))
        assert member.commit(5, member.generation) == 0
        messages = offset_delete_request
        topic = messages.OffsetDeleteRequestTopic(
            name=TOPIC, partitions=(messages.OffsetDeleteRequestPartition(partition_index=0),)
        )
        response = member.ask(messages.OffsetDeleteRequest(group_id=GROUP, topics=(topic,)))
        assert response.error_code == 0
        assert response.topics[0].partitions[0].error_code == expected
        assert member.committed() == left


# --- min ISR


@shows("ELR-9")
def test_lowering_min_isr_empties_the_elr_and_without_the_rule_a_stale_member_stays_electable() -> (
    None
):
    topic_id = UUID(int=1)
    image = ClusterImage()
    for offset, record in enumerate(
        (
            FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1),
            ConfigRecord(
                resource_type=TOPIC_RESOURCE, resource_name="t", name=MIN_ISR_CONFIG, value="2"
            ),
            TopicRecord(name="t", topic_id=topic_id),
            PartitionRecord(
                topic_id=topic_id,
                partition_id=0,
                replicas=(1, 2, 3),
                isr=(1,),
                leader=1,
                eligible_leader_replicas=(2,),
            ),
        )
    ):
        image.replay(offset, record)
    request = incremental_alter_configs_request.IncrementalAlterConfigsRequest(
        resources=(
            incremental_alter_configs_request.AlterConfigsResource(
                resource_type=TOPIC_RESOURCE,
                resource_name="t",
                configs=(
                    incremental_alter_configs_request.AlterableConfig(
                        name=MIN_ISR_CONFIG, config_operation=0, value="1"
                    ),
                ),
            ),
        ),
        validate_only=False,
    )
    for without, expected_elr in (((), ()), (("ELR-9",), (2,))):
        policy = Policy(
            cluster_id="c",
            features=profile_features("kafka-4.1"),
            session_timeout_ns=1,
            rules=Rules(without),
        )
        after = image.copy()
        before_epoch = after.partitions[(topic_id, 0)].partition_epoch
        decision = alter_configs(after, request, policy)
        for record in decision.records:
            after.replay(after.last_offset + 1, record)
        partition = after.partitions[(topic_id, 0)]
        # Broker 1 may now commit alone, and broker 2 lacks what it commits.
        assert after.min_insync_replicas("t", 3) == 1
        assert partition.elr == expected_elr
        assert (partition.partition_epoch > before_epoch) == (not without)
