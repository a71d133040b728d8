"""Errors and results that Apache Kafka 4.1 has too; `laststand conformance` compares both systems."""

from typing import Any
from uuid import UUID

import pytest

from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    create_topics_request,
    delete_topics_request,
    describe_cluster_request,
    describe_configs_request,
    describe_quorum_request,
    describe_topic_partitions_request,
    find_coordinator_request,
    incremental_alter_configs_request,
    init_producer_id_request,
    leave_group_request,
    list_offsets_request,
    metadata_request,
    millis,
    offset_commit_request,
    offset_fetch_request,
)
from tests.simulation.cluster_story import TOPIC, Cluster

MIN_ISR = "min.insync.replicas"
TOPIC_RESOURCE, BROKER_RESOURCE, BROKER_LOGGER = 2, 4, 8
SET = 0
ILLEGAL = "a b"


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    """One cluster for all tests: no request here changes what another one sees."""
    cluster = Cluster().start()
    cluster.create_topic()
    return cluster


def ask(cluster: Cluster, request: Any, broker: int = 1) -> Any:
    return cluster.do(cluster._ask(broker, request))


# --- topics


def metadata(cluster: Cluster, *topics: tuple[str | None, UUID | None]) -> Any:
    wanted = tuple(
        metadata_request.MetadataRequestTopic(name=name, topic_id=topic_id)
        for name, topic_id in topics
    )
    request = metadata_request.MetadataRequest(
        topics=wanted, include_topic_authorized_operations=False
    )
    return ask(cluster, request).topics


def test_a_topic_that_is_named_twice_is_described_once(cluster: Cluster) -> None:
    (topic,) = metadata(cluster, (TOPIC, None), (TOPIC, None))
    assert (topic.name, topic.error_code) == (TOPIC, 0)


def test_the_id_of_a_topic_wins_over_its_name(cluster: Cluster) -> None:
    (topic,) = metadata(cluster, (TOPIC, UUID(int=99)))
    assert (topic.error_code, topic.name, topic.topic_id) == (
        ErrorCode.UNKNOWN_TOPIC_ID,
        None,
        UUID(int=99),
    )


def created(cluster: Cluster, *names: str, value: str = "2") -> list[tuple[str, int]]:
    config = create_topics_request.CreatableTopicConfig(name=MIN_ISR, value=value)
    request = create_topics_request.CreateTopicsRequest(
        topics=tuple(
            create_topics_request.CreatableTopic(
                name=name,
                num_partitions=1,
                replication_factor=3,
                assignments=(),
                configs=(config,),
            )
            for name in names
        ),
        timeout=millis(5000),
        validate_only=True,
    )
    return [(topic.name, topic.error_code) for topic in ask(cluster, request).topics]


def test_a_name_that_occurs_twice_in_a_creation_gets_one_result(cluster: Cluster) -> None:
    results = created(cluster, "new", "other", "new")
    assert results == [("new", ErrorCode.INVALID_REQUEST), ("other", 0)]


@pytest.mark.parametrize(
    ("value", "error"),
    [(" 2 ", 0), ("2147483647", 0), ("2147483648", ErrorCode.INVALID_CONFIG)],
)
def test_a_setting_is_a_32_bit_number_with_spaces_around_it(
    cluster: Cluster, value: str, error: int
) -> None:
    assert created(cluster, "new", value=value) == [("new", error)]


def deleted(cluster: Cluster, *topics: tuple[str | None, UUID | None]) -> list[int]:
    states = tuple(
        delete_topics_request.DeleteTopicState(name=name, topic_id=topic_id)
        for name, topic_id in topics
    )
    request = delete_topics_request.DeleteTopicsRequest(topics=states, timeout=millis(5000))
    return [one.error_code for one in ask(cluster, request).responses]


def test_a_deletion_needs_a_name_or_an_id(cluster: Cluster) -> None:
    assert deleted(cluster, (None, None)) == [ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize("topic", [("nope", None), (None, UUID(int=99)), (TOPIC, None)])
def test_a_topic_that_is_deleted_twice_gets_one_result(
    cluster: Cluster, topic: tuple[str | None, UUID | None]
) -> None:
    assert deleted(cluster, topic, topic) == [ErrorCode.INVALID_REQUEST]


def described(cluster: Cluster, name: str, cursor: int | None = None) -> Any:
    request = describe_topic_partitions_request.DescribeTopicPartitionsRequest(
        topics=(describe_topic_partitions_request.TopicRequest(name=name),),
        cursor=None
        if cursor is None
        else describe_topic_partitions_request.Cursor(topic_name=name, partition_index=cursor),
    )
    (topic,) = ask(cluster, request).topics
    return topic


def test_partitions_of_an_illegal_name_and_of_an_illegal_cursor(cluster: Cluster) -> None:
    assert described(cluster, "nope").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert described(cluster, ILLEGAL).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    topic = described(cluster, TOPIC, cursor=-1)
    assert (topic.error_code, topic.partitions) == (ErrorCode.INVALID_REQUEST, ())
    assert described(cluster, TOPIC, cursor=0).error_code == 0


def test_a_partition_whose_offset_is_listed_twice_gets_one_error(cluster: Cluster) -> None:
    def wanted(index: int) -> Any:
        return list_offsets_request.ListOffsetsPartition(partition_index=index, timestamp=-1)

    topic = list_offsets_request.ListOffsetsTopic(
        name=TOPIC, partitions=(wanted(0), wanted(9), wanted(0))
    )
    request = list_offsets_request.ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=(topic,)
    )
    listed = ask(cluster, request).topics[0].partitions
    assert [(one.partition_index, one.error_code) for one in listed] == [
        (0, ErrorCode.INVALID_REQUEST),
        (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


# --- settings


def settings(cluster: Cluster, name: str, keys: tuple[str, ...] | None) -> Any:
    resource = describe_configs_request.DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=keys
    )
    request = describe_configs_request.DescribeConfigsRequest(resources=(resource,))
    (result,) = ask(cluster, request).results
    return result


def test_an_empty_list_of_settings_means_all_of_them(cluster: Cluster) -> None:
    assert settings(cluster, TOPIC, ()).configs == settings(cluster, TOPIC, None).configs
    assert len(settings(cluster, TOPIC, ()).configs) == 33
    (only,) = settings(cluster, TOPIC, (MIN_ISR,)).configs
    assert only.name == MIN_ISR


def test_settings_of_an_illegal_name(cluster: Cluster) -> None:
    assert settings(cluster, "nope", None).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert settings(cluster, ILLEGAL, None).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize(
    ("kind", "name", "value", "error"),
    [
        (TOPIC_RESOURCE, TOPIC, "2", ErrorCode.NONE),
        (TOPIC_RESOURCE, TOPIC, None, ErrorCode.INVALID_REQUEST),
        (TOPIC_RESOURCE, "nope", "2", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC_RESOURCE, ILLEGAL, "2", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC_RESOURCE, "", "2", ErrorCode.INVALID_REQUEST),
        (BROKER_RESOURCE, "1", "2", ErrorCode.INVALID_CONFIG),
        (BROKER_RESOURCE, "99", "2", ErrorCode.INVALID_REQUEST),
        (BROKER_RESOURCE, "x", "2", ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "1", "2", ErrorCode.INVALID_CONFIG),
        (77, "1", "2", ErrorCode.INVALID_REQUEST),
    ],
)
def test_changes_of_settings_that_are_refused(
    cluster: Cluster, kind: int, name: str, value: str | None, error: ErrorCode
) -> None:
    config = incremental_alter_configs_request.AlterableConfig(
        name=MIN_ISR, config_operation=SET, value=value
    )
    resource = incremental_alter_configs_request.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=(config,)
    )
    request = incremental_alter_configs_request.IncrementalAlterConfigsRequest(
        resources=(resource,), validate_only=True
    )
    (response,) = ask(cluster, request).responses
    assert response.error_code == error


# --- the cluster


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (1, ErrorCode.NONE),
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_a_broker_describes_brokers_only(cluster: Cluster, kind: int, error: ErrorCode) -> None:
    request = describe_cluster_request.DescribeClusterRequest(
        include_cluster_authorized_operations=False,
        endpoint_type=kind,
        include_fenced_brokers=False,
    )
    response = ask(cluster, request)
    assert (response.error_code, response.endpoint_type) == (error, 1)
    assert len(response.brokers) == (3 if kind == 1 else 0)
    assert (response.controller_id > 0) is (kind == 1)


def test_another_topic_has_no_quorum(cluster: Cluster) -> None:
    partition = describe_quorum_request.PartitionData(partition_index=0)
    topic = describe_quorum_request.TopicData(topic_name=TOPIC, partitions=(partition,))
    response = ask(cluster, describe_quorum_request.DescribeQuorumRequest(topics=(topic,)))
    (partition,) = response.topics[0].partitions
    assert (response.error_code, partition.error_code) == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    response = ask(cluster, describe_quorum_request.DescribeQuorumRequest(topics=()))
    assert (response.error_code, response.topics) == (0, ())


@pytest.mark.parametrize(
    ("producer_id", "epoch", "error"),
    [
        (-1, -1, ErrorCode.NONE),
        (5, 0, ErrorCode.NONE),
        (5, -1, ErrorCode.INVALID_REQUEST),
        (-1, 0, ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_earlier_producer_id_comes_with_its_epoch(
    cluster: Cluster, producer_id: int, epoch: int, error: ErrorCode
) -> None:
    request = init_producer_id_request.InitProducerIdRequest(
        transactional_id=None,
        transaction_timeout=millis(60_000),
        producer_id=producer_id,
        producer_epoch=epoch,
    )
    response = ask(cluster, request)
    assert response.error_code == error
    assert (response.producer_id >= 0) is (error is ErrorCode.NONE)


# --- groups


@pytest.fixture(scope="module")
def coordinator(cluster: Cluster) -> dict[str, int]:
    """The coordinator of each group of these tests."""
    return {group: found(cluster, group) for group in ("", "unknown", "free")}


def found(cluster: Cluster, group: str) -> int:
    """Returns the broker that coordinates a group, once it has loaded the group's offsets."""
    find = find_coordinator_request.FindCoordinatorRequest(key_type=0, coordinator_keys=(group,))
    wanted = offset_fetch_request.OffsetFetchRequestGroup(group_id=group, topics=None)
    read = offset_fetch_request.OffsetFetchRequest(groups=(wanted,), require_stable=False)
    for _ in range(100):
        (coordinator,) = ask(cluster, find).coordinators
        if not coordinator.error_code:
            broker = int(coordinator.node_id)
            if not ask(cluster, read, broker).groups[0].error_code:
                return broker
        cluster.run_for(0.1)
    raise AssertionError(f"group {group!r} has no coordinator")


def test_members_that_leave_an_unknown_group_get_an_error_each(
    cluster: Cluster, coordinator: dict[str, int]
) -> None:
    member = leave_group_request.MemberIdentity(member_id="who")
    request = leave_group_request.LeaveGroupRequest(group_id="unknown", members=(member,))
    response = ask(cluster, request, coordinator["unknown"])
    assert response.error_code == ErrorCode.NONE
    assert [one.error_code for one in response.members] == [ErrorCode.UNKNOWN_MEMBER_ID]


def committed(cluster: Cluster, broker: int, group: str, **fields: Any) -> int:
    partition = offset_commit_request.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=7, committed_metadata=""
    )
    topic = offset_commit_request.OffsetCommitRequestTopic(name=TOPIC, partitions=(partition,))
    values = {"generation_id_or_member_epoch": -1, "member_id": "", "topics": (topic,), **fields}
    request = offset_commit_request.OffsetCommitRequest(group_id=group, **values)
    return int(ask(cluster, request, broker).topics[0].partitions[0].error_code)


def test_the_empty_group_has_offsets(cluster: Cluster, coordinator: dict[str, int]) -> None:
    broker = coordinator[""]
    assert committed(cluster, broker, "") == ErrorCode.NONE
    topic = offset_fetch_request.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=(0,))
    group = offset_fetch_request.OffsetFetchRequestGroup(group_id="", topics=(topic,))
    request = offset_fetch_request.OffsetFetchRequest(groups=(group,), require_stable=False)
    (group_offsets,) = ask(cluster, request, broker).groups
    assert (group_offsets.error_code, group_offsets.topics[0].partitions[0].committed_offset) == (
        0,
        7,
    )


@pytest.mark.parametrize("fields", [{"member_id": "who"}, {"group_instance_id": "i9"}])
def test_without_a_generation_anyone_may_commit_for_a_group_without_members(
    cluster: Cluster, coordinator: dict[str, int], fields: dict[str, str]
) -> None:
    assert committed(cluster, coordinator["free"], "free", **fields) == ErrorCode.NONE
