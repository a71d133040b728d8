"""DescribeLogDirs and AlterReplicaLogDirs, as a client sends them to one broker (KIP-113)."""

from typing import Any

from harness.defects.requests import reassign_request
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    alter_replica_log_dirs_request as alter,
)
from system_under_test.protocol.messages import (
    describe_log_dirs_request as describe,
)
from tests.simulation.cluster_story import TOPIC, Cluster


def cluster_of(**options: Any) -> Cluster:
    cluster = Cluster(log_dirs=2, **options).start()
    cluster.create_topic()
    assert cluster.produce(b"a", b"b") == [0, 0]
    return cluster


def described(cluster: Cluster, broker: int, *topics: str) -> dict[str, Any]:
    """Returns the result of every directory by its path."""
    request = describe.DescribeLogDirsRequest(
        topics=tuple(describe.DescribableLogDirTopic(topic=one, partitions=(0,)) for one in topics)
        if topics
        else None
    )
    response = cluster.do(cluster._ask(broker, request))
    assert response.error_code == ErrorCode.NONE
    return {result.log_dir: result for result in response.results}


def replicas_in(result: Any) -> list[tuple[str, int, int, bool]]:
    return [
        (topic.name, one.partition_index, one.offset_lag, one.is_future_key)
        for topic in result.topics
        for one in topic.partitions
    ]


def altered(cluster: Cluster, broker: int, path: str, topic: str = TOPIC) -> int:
    request = alter.AlterReplicaLogDirsRequest(
        dirs=(
            alter.AlterReplicaLogDir(
                path=path, topics=(alter.AlterReplicaLogDirTopic(name=topic, partitions=(0,)),)
            ),
        )
    )
    response = cluster.do(cluster._ask(broker, request))
    code: int = response.results[0].partitions[0].error_code
    return code


def reassigned(cluster: Cluster, *replicas: int) -> None:
    request = reassign_request((TOPIC, 0, replicas))
    response = cluster.do(cluster._ask(1, request))
    (one,) = response.responses[0].partitions
    assert one.error_code == ErrorCode.NONE, one


def test_directories_are_listed_with_the_replicas_in_them() -> None:
    cluster = cluster_of()
    results = described(cluster, 1)
    assert list(results) == ["/data", "/data2"]
    assert replicas_in(results["/data"]) == [(TOPIC, 0, 0, False)]
    assert replicas_in(results["/data2"]) == []
    size = results["/data"].topics[0].partitions[0].partition_size
    assert size == len(cluster.log_of(1))
    assert (results["/data"].total_bytes, results["/data"].usable_bytes) == (-1, -1)
    assert replicas_in(described(cluster, 1, "other")["/data"]) == []
    assert replicas_in(described(cluster, 1, TOPIC, "other")["/data"]) == [(TOPIC, 0, 0, False)]


def test_a_replica_moves_and_the_metadata_follow() -> None:
    cluster = cluster_of()
    first, second = cluster.registration(2).log_dirs
    partition = cluster.partition()
    assert partition is not None
    assert altered(cluster, 2, "/data2") == ErrorCode.NONE
    moved = cluster.await_partition(lambda one: one.directories[1] == second)
    assert (moved.isr, moved.leader) == (partition.isr, partition.leader)
    cluster.run_until(lambda: cluster.node(2).process.logs.directory_name(TOPIC, 0) == "data2")
    assert replicas_in(described(cluster, 2)["/data2"]) == [(TOPIC, 0, 0, False)]
    cluster.produce(b"c")
    assert altered(cluster, 2, "/data") == ErrorCode.NONE
    cluster.await_partition(lambda one: one.directories[1] == first)
    cluster.run_until(lambda: cluster.node(2).process.logs.directory_name(TOPIC, 0) == "data")
    assert cluster.log_of(2) == cluster.log_of(1)


def test_requests_that_cannot_be_served() -> None:
    cluster = cluster_of()
    assert altered(cluster, 1, "/data9") == ErrorCode.LOG_DIR_NOT_FOUND
    assert altered(cluster, 1, "/data2", "other") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert altered(cluster, 1, "/data9", "other") == ErrorCode.LOG_DIR_NOT_FOUND
    assert altered(cluster, 1, "/data") == ErrorCode.NONE, "it is there"
    assert not cluster.marks("move-began")


def test_a_replica_that_does_not_exist_yet_is_created_where_it_was_requested() -> None:
    """As Kafka's tool does it: first the directory, which the broker does not serve yet, then the reassignment."""
    cluster = cluster_of()
    reassigned(cluster, 1, 2)
    cluster.run_until(lambda: cluster.node(3).process.logs.get(TOPIC, 0) is None)
    assert altered(cluster, 3, "/data2") == ErrorCode.REPLICA_NOT_AVAILABLE
    reassigned(cluster, 1, 2, 3)
    cluster.await_isr(1, 2, 3)
    assert cluster.node(3).process.logs.directory_name(TOPIC, 0) == "data2"
    second = cluster.registration(3).log_dirs[1]
    cluster.await_partition(lambda one: one.directories[one.replicas.index(3)] == second)


def test_a_topic_that_does_not_exist_yet_begins_in_the_requested_directory() -> None:
    cluster = Cluster(log_dirs=2).start()
    assert altered(cluster, 2, "/data2") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.create_topic()
    cluster.produce(b"a")
    names = [cluster.node(broker).process.logs.directory_name(TOPIC, 0) for broker in (1, 2, 3)]
    assert names == ["data", "data2", "data"]


def test_no_replica_moves_while_another_directory_is_offline() -> None:
    """A copy of its log may be in the directory that cannot be read."""
    cluster = Cluster(log_dirs=3).start()
    cluster.create_topic()
    cluster.produce(b"a")
    cluster.node(1).process.logs.offline_directories = ("data3",)
    assert altered(cluster, 1, "/data2") == ErrorCode.KAFKA_STORAGE_ERROR
    assert altered(cluster, 1, "/data") == ErrorCode.NONE, "it is there"
    assert not cluster.marks("move-began")


def test_a_failed_directory_is_described_as_such_and_takes_no_replica() -> None:
    cluster = cluster_of()
    altered(cluster, 1, "/data2")
    cluster.run_until(lambda: cluster.node(1).process.logs.directory_name(TOPIC, 0) == "data2")
    cluster.node(1).disk.io_error("any", "data2/")
    assert cluster.produce(b"c", broker=1) == [ErrorCode.KAFKA_STORAGE_ERROR]
    results = described(cluster, 1)
    assert results["/data2"].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert results["/data"].error_code == ErrorCode.NONE
    assert replicas_in(results["/data"]) == []
    assert altered(cluster, 1, "/data2") == ErrorCode.KAFKA_STORAGE_ERROR
    gauges = cluster.node(1).process.replica_manager.gauges()
    assert (gauges["OfflineReplicaCount"], gauges["OfflineLogDirectoryCount"]) == (1, 1)
    cluster.await_partition(lambda one: one.leader == 2)
    (topic,) = cluster.metadata(2).topics
    assert topic.partitions[0].offline_replicas == (1,)


def test_a_cluster_of_brokers_with_one_directory_has_no_directories_in_its_metadata() -> None:
    cluster = Cluster().start()
    cluster.create_topic()
    partition = cluster.partition()
    assert partition is not None
    assert partition.directories == ()
    assert not any(cluster.node(broker).process.assignments._is_running for broker in (1, 2, 3))
    assert list(described(cluster, 1)) == ["/data"]
