"""Administration in the simulated cluster: requests to any broker, decided by the active controller."""

from typing import Any

import pytest

from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    allocate_producer_ids_request,
    create_topics_request,
    delete_topics_request,
    describe_cluster_request,
    describe_configs_request,
    describe_quorum_request,
    describe_topic_partitions_request,
    incremental_alter_configs_request,
    init_producer_id_request,
    metadata_request,
    millis,
)
from tests.simulation.cluster_story import CONTROLLERS, TOPIC, Cluster

MIN_ISR = "min.insync.replicas"
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster().start()
    cluster.create_topic()
    return cluster


def ask(cluster: Cluster, request: Any, broker: int = 1) -> Any:
    return cluster.do(cluster._ask(broker, request))


def delete(*topics: str, timeout_ms: int = 5000) -> Any:
    return delete_topics_request.DeleteTopicsRequest(
        topics=tuple(
            delete_topics_request.DeleteTopicState(name=name, topic_id=None) for name in topics
        ),
        timeout=millis(timeout_ms),
    )


def create(*topics: str) -> Any:
    return create_topics_request.CreateTopicsRequest(
        topics=tuple(
            create_topics_request.CreatableTopic(
                name=name, num_partitions=1, replication_factor=3, assignments=(), configs=()
            )
            for name in topics
        ),
        timeout=millis(5000),
        validate_only=False,
    )


def alter(
    name: str,
    value: str | None,
    *,
    topic: str = TOPIC,
    broker: str = "",
    operation: int = 0,
    validate: bool = False,
) -> Any:
    return incremental_alter_configs_request.IncrementalAlterConfigsRequest(
        resources=(
            incremental_alter_configs_request.AlterConfigsResource(
                resource_type=BROKER_RESOURCE if broker or not topic else TOPIC_RESOURCE,
                resource_name=broker or topic,
                configs=(
                    incremental_alter_configs_request.AlterableConfig(
                        name=name, config_operation=operation, value=value
                    ),
                ),
            ),
        ),
        validate_only=validate,
    )


def describe_configs(resource_type: int, name: str) -> Any:
    return describe_configs_request.DescribeConfigsRequest(
        resources=(
            describe_configs_request.DescribeConfigsResource(
                resource_type=resource_type, resource_name=name, configuration_keys=None
            ),
        ),
        include_synonyms=True,
        include_documentation=True,
    )


def values(cluster: Cluster, resource_type: int, name: str, broker: int = 1) -> dict[str, Any]:
    (result,) = ask(cluster, describe_configs(resource_type, name), broker).results
    assert result.error_code == 0, result
    return {config.name: config for config in result.configs}


def error_of(answer: Any) -> int:
    return int(answer.responses[0].error_code)


# --- deleting


def test_a_deleted_topic_is_gone_from_metadata_and_from_disks(cluster: Cluster) -> None:
    cluster.produce(b"x")
    assert error_of(ask(cluster, delete(TOPIC))) == 0
    cluster.run_for(1)
    for broker in cluster.brokers:
        assert cluster.metadata(broker).topics == ()
        assert not [
            path for path in cluster.world.nodes[f"b{broker}"].disk.files if f"/{TOPIC}-" in path
        ]
    assert error_of(ask(cluster, delete(TOPIC))) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_is_created_again_is_new_and_empty(cluster: Cluster) -> None:
    cluster.produce(b"old")
    first = cluster.partition()
    ask(cluster, delete(TOPIC))
    cluster.create_topic()
    second = cluster.partition()
    assert first is not None
    assert second is not None
    assert first.topic_id != second.topic_id
    cluster.run_for(0.5)
    cluster.produce(b"new")
    assert cluster.read_all() == [b"new"]


@pytest.mark.parametrize("down", ["broker", "everybody"])
def test_a_replica_that_was_away_when_its_topic_was_deleted_deletes_it_when_it_returns(
    cluster: Cluster, down: str
) -> None:
    cluster.produce(b"x")
    cluster.run_for(0.5)
    cluster.node(3).kill()
    ask(cluster, delete(TOPIC))
    if down == "everybody":
        for broker in (1, 2):
            cluster.node(broker).kill()
            cluster.node(broker).start()
    cluster.node(3).start()
    cluster.run_until(lambda: all(cluster.is_running(one) for one in cluster.brokers))
    cluster.run_for(0.5)
    assert not [path for path in cluster.world.nodes["b3"].disk.files if f"/{TOPIC}-" in path]


def test_topics_of_one_deletion_succeed_or_fail_independently(cluster: Cluster) -> None:
    ask(cluster, create("a", "b"))
    response = ask(cluster, delete("a", "nothing", "b", "b"))
    errors = [(one.name, int(one.error_code)) for one in response.responses]
    assert errors == [("a", 0), ("nothing", 3), ("b", 42)]


def test_the_metadata_log_cannot_be_created_as_a_topic(cluster: Cluster) -> None:
    response = ask(cluster, create("__cluster_metadata"))
    assert response.topics[0].error_code == ErrorCode.INVALID_REQUEST


# --- settings


def test_a_setting_reports_its_source(cluster: Cluster) -> None:
    before = values(cluster, TOPIC_RESOURCE, TOPIC)[MIN_ISR]
    assert before.config_source != 1
    assert error_of(ask(cluster, alter(MIN_ISR, "3"))) == 0
    cluster.run_for(0.5)
    after = values(cluster, TOPIC_RESOURCE, TOPIC)[MIN_ISR]
    assert (after.value, after.config_source) == ("3", 1)
    assert after.synonyms[0].value == "3"
    assert len(after.synonyms) > 1
    assert after.documentation
    assert error_of(ask(cluster, alter(MIN_ISR, None, operation=1))) == 0
    cluster.run_for(0.5)
    assert values(cluster, TOPIC_RESOURCE, TOPIC)[MIN_ISR].value == before.value


def test_a_raised_min_isr_is_in_force_at_once(cluster: Cluster) -> None:
    cluster.node(3).kill()
    cluster.await_isr(1, 2)
    assert cluster.produce(b"x") == [0]
    assert error_of(ask(cluster, alter(MIN_ISR, "3"))) == 0
    cluster.run_for(0.5)
    assert cluster.produce(b"y") == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert error_of(ask(cluster, alter(MIN_ISR, "1"))) == 0
    cluster.run_for(0.5)
    assert cluster.produce(b"z") == [0]


def test_a_cluster_default_holds_for_topics_without_their_own_value(cluster: Cluster) -> None:
    assert error_of(ask(cluster, alter(MIN_ISR, "3", topic=""))) == 0
    cluster.run_for(0.5)
    found = values(cluster, TOPIC_RESOURCE, TOPIC)[MIN_ISR]
    assert (found.value, found.config_source) == ("3", 3)
    assert values(cluster, BROKER_RESOURCE, "")[MIN_ISR].value == "3"
    # With ELR on the default may change, but not disappear.
    refused = ask(cluster, alter(MIN_ISR, None, topic="", operation=1))
    assert error_of(refused) == ErrorCode.INVALID_CONFIG


def test_a_throttle_belongs_to_one_broker_and_can_be_removed(cluster: Cluster) -> None:
    rate, unlimited = "leader.replication.throttled.rate", str(2**63 - 1)
    assert values(cluster, BROKER_RESOURCE, "1")[rate].value == unlimited
    assert error_of(ask(cluster, alter(rate, "1000", broker="1"))) == 0
    cluster.run_for(0.5)
    found = values(cluster, BROKER_RESOURCE, "1")[rate]
    assert (found.value, found.config_source, found.read_only) == ("1000", 2, False)
    assert [(one.value, one.source) for one in found.synonyms] == [("1000", 2), (unlimited, 5)]
    assert values(cluster, BROKER_RESOURCE, "2", broker=2)[rate].value == unlimited
    assert rate not in values(cluster, BROKER_RESOURCE, "")
    for _ in range(2):  # Kafka's tool also removes what was never set.
        assert error_of(ask(cluster, alter(rate, None, broker="1", operation=1))) == 0
    cluster.run_for(0.5)
    found = values(cluster, BROKER_RESOURCE, "1")[rate]
    assert (found.value, found.config_source) == (unlimited, 5)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (alter("leader.replication.throttled.rate", "-1", broker="1"), ErrorCode.INVALID_CONFIG),
        (alter("log.cleaner.threads", "2", broker="1"), ErrorCode.INVALID_CONFIG),
        (alter(MIN_ISR, "0"), ErrorCode.INVALID_CONFIG),
        (alter(MIN_ISR, "many"), ErrorCode.INVALID_CONFIG),
        (alter("retention.ms", "-2"), ErrorCode.INVALID_CONFIG),
        (alter("retention.minutes", "1"), ErrorCode.INVALID_CONFIG),
        (alter(MIN_ISR, "2", operation=2), ErrorCode.INVALID_CONFIG),
        (alter(MIN_ISR, "2", topic="nothing"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_an_invalid_setting_is_refused(cluster: Cluster, request_: Any, error: ErrorCode) -> None:
    response = ask(cluster, request_)
    assert error_of(response) == error
    assert response.responses[0].error_message


def test_a_validation_changes_nothing(cluster: Cluster) -> None:
    assert error_of(ask(cluster, alter(MIN_ISR, "3", validate=True))) == 0
    cluster.run_for(0.5)
    assert values(cluster, TOPIC_RESOURCE, TOPIC)[MIN_ISR].value != "3"


def test_lowering_min_isr_empties_the_elr_in_the_running_cluster(cluster: Cluster) -> None:
    cluster.node(3).kill()
    cluster.await_isr(1, 2)
    cluster.node(2).kill()
    cluster.await_partition(lambda one: one.isr == (1,) and one.elr == (2,))
    assert error_of(ask(cluster, alter(MIN_ISR, "1"))) == 0
    cluster.await_partition(lambda one: one.elr == ())
    # The leader has learnt the new partition epoch, and can still change the ISR.
    cluster.node(2).start()
    cluster.await_partition(lambda one: set(one.isr) == {1, 2})


def test_a_broker_describes_only_its_own_settings(cluster: Cluster) -> None:
    assert values(cluster, BROKER_RESOURCE, "2", broker=2)["node.id"].value == "2"
    (result,) = ask(cluster, describe_configs(BROKER_RESOURCE, "2"), 1).results
    assert result.error_code == ErrorCode.INVALID_REQUEST


# --- inspection


def test_topics_are_described_with_their_elr(cluster: Cluster) -> None:
    cluster.node(3).kill()
    cluster.await_isr(1, 2)
    cluster.node(2).kill()
    cluster.await_partition(lambda one: one.elr == (2,))
    cluster.run_for(0.3)
    request = describe_topic_partitions_request.DescribeTopicPartitionsRequest(
        topics=(describe_topic_partitions_request.TopicRequest(name=TOPIC),),
        response_partition_limit=10,
    )
    (topic,) = ask(cluster, request).topics
    (partition,) = topic.partitions
    assert partition.isr_nodes == (1,)
    assert partition.eligible_leader_replicas == (2,)
    assert set(partition.offline_replicas) == {2, 3}


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_of_partitions_form_the_complete_list(cluster: Cluster, limit: int) -> None:
    for name in ("a", "b", "c"):
        request = create_topics_request.CreateTopicsRequest(
            topics=(
                create_topics_request.CreatableTopic(
                    name=name, num_partitions=3, replication_factor=1, assignments=(), configs=()
                ),
            ),
            timeout=millis(5000),
            validate_only=False,
        )
        ask(cluster, request)
    cluster.run_for(0.5)
    seen: list[tuple[str, int]] = []
    cursor = None
    for _ in range(20):
        response = ask(
            cluster,
            describe_topic_partitions_request.DescribeTopicPartitionsRequest(
                topics=(), response_partition_limit=limit, cursor=cursor
            ),
        )
        page = [(t.name, p.partition_index) for t in response.topics for p in t.partitions]
        assert len(page) <= limit
        seen += page
        if response.next_cursor is None:
            break
        cursor = describe_topic_partitions_request.Cursor(
            topic_name=response.next_cursor.topic_name,
            partition_index=response.next_cursor.partition_index,
        )
    expected = [(name, index) for name in ("a", "b", "c") for index in range(3)]
    assert seen == [*expected, (TOPIC, 0)]


def test_the_cluster_is_described_with_fenced_brokers_on_request(cluster: Cluster) -> None:
    cluster.node(3).kill()
    cluster.run_until(lambda: cluster.registration(3).fenced)
    cluster.run_for(0.3)

    def described(**changes: Any) -> Any:
        fields = {
            "include_cluster_authorized_operations": False,
            "endpoint_type": 1,
            "include_fenced_brokers": False,
            **changes,
        }
        return ask(cluster, describe_cluster_request.DescribeClusterRequest(**fields))

    assert [one.broker_id for one in described().brokers] == [1, 2]
    everybody = described(include_fenced_brokers=True).brokers
    assert [(one.broker_id, one.is_fenced) for one in everybody] == [
        (1, False),
        (2, False),
        (3, True),
    ]
    assert described(endpoint_type=2).error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


def test_the_quorum_is_described_through_any_broker(cluster: Cluster) -> None:
    request = describe_quorum_request.DescribeQuorumRequest(
        topics=(
            describe_quorum_request.TopicData(
                topic_name="__cluster_metadata",
                partitions=(describe_quorum_request.PartitionData(partition_index=0),),
            ),
        )
    )
    (topic,) = ask(cluster, request, 2).topics
    (partition,) = topic.partitions
    assert partition.error_code == 0
    assert partition.leader_id in CONTROLLERS
    assert {one.replica_id for one in partition.current_voters} == set(CONTROLLERS)
    assert {one.replica_id for one in partition.observers} == set(cluster.brokers)
    assert all(one.log_end_offset > 0 for one in partition.current_voters)


# --- on demand, and while the controller changes


def test_a_topic_is_created_on_demand_if_the_client_allows_it(cluster: Cluster) -> None:
    def asked(name: str, *, allowed: bool) -> Any:
        request = metadata_request.MetadataRequest(
            topics=(metadata_request.MetadataRequestTopic(topic_id=None, name=name),),
            allow_auto_topic_creation=allowed,
            include_topic_authorized_operations=False,
        )
        return ask(cluster, request).topics[0]

    assert asked("new", allowed=False).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.run_for(0.5)
    assert asked("new", allowed=False).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert asked("new", allowed=True).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.run_for(0.5)
    assert asked("new", allowed=False).error_code == 0
    for internal in ("__transaction_state", "__share_group_state"):
        assert asked(internal, allowed=True).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        cluster.run_for(0.5)
        assert asked(internal, allowed=False).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    asked("__heartbeat.of-somebody", allowed=True)
    cluster.run_for(0.5)
    assert asked("__heartbeat.of-somebody", allowed=False).error_code == 0
    assert asked("no good", allowed=True).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_request_waits_for_the_next_controller(cluster: Cluster) -> None:
    active = next(
        n for n in CONTROLLERS if cluster.world.nodes[f"c{n}"].process.controller.is_active
    )
    cluster.world.nodes[f"c{active}"].kill()
    assert error_of(ask(cluster, alter(MIN_ISR, "3"))) == 0
    cluster.run_for(0.5)
    assert values(cluster, TOPIC_RESOURCE, TOPIC)[MIN_ISR].value == "3"


def test_without_a_quorum_a_request_fails_with_a_timeout_error(cluster: Cluster) -> None:
    for node_id in CONTROLLERS[:2]:
        cluster.world.nodes[f"c{node_id}"].kill()
    response = ask(cluster, delete(TOPIC, timeout_ms=1000))
    assert error_of(response) == ErrorCode.REQUEST_TIMED_OUT


# --- producer ids


def init_producer_id(cluster: Cluster, broker: int) -> Any:
    request = init_producer_id_request.InitProducerIdRequest(
        transactional_id=None, transaction_timeout=millis(1000)
    )
    return ask(cluster, request, broker)


def test_no_producer_id_is_assigned_twice_after_any_restart(cluster: Cluster) -> None:
    given: list[int] = []
    for _ in range(3):
        for broker in cluster.brokers:
            for _ in range(5):
                response = init_producer_id(cluster, broker)
                assert response.error_code == 0
                given.append(response.producer_id)
        for broker in cluster.brokers:
            cluster.node(broker).kill()
            cluster.node(broker).start()
        for controller in CONTROLLERS:
            cluster.world.nodes[f"c{controller}"].kill()
            cluster.world.nodes[f"c{controller}"].start()
        cluster._connections.clear()
        cluster.run_until(lambda: all(cluster.is_running(one) for one in cluster.brokers), 60)
    assert len(set(given)) == len(given)


def test_a_block_is_refused_to_a_broker_of_another_session(cluster: Cluster) -> None:
    active = next(
        n for n in CONTROLLERS if cluster.world.nodes[f"c{n}"].process.controller.is_active
    )

    async def allocate(broker: int, epoch: int) -> Any:
        connection = await cluster.host.network.connect(f"c{active}:9093", 1000)
        request = allocate_producer_ids_request.AllocateProducerIdsRequest(
            broker_id=broker, broker_epoch=epoch
        )
        return await connection.request(request, 1000)

    epoch = cluster.registration(1).broker_epoch
    good = cluster.do(allocate(1, epoch))
    assert (good.error_code, good.producer_id_len) == (0, 1000)
    assert cluster.do(allocate(1, epoch - 1)).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert cluster.do(allocate(99, 0)).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_only_the_coordinator_of_a_transactional_id_gives_it_a_producer(cluster: Cluster) -> None:
    """There is no topic of transactions before a client looks for a coordinator."""
    request = init_producer_id_request.InitProducerIdRequest(
        transactional_id="t", transaction_timeout=millis(1000)
    )
    assert ask(cluster, request).error_code == ErrorCode.NOT_COORDINATOR
