"""Topic settings, retention, DeleteRecords and compaction in the simulated cluster."""

from typing import Any

import pytest

from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    delete_records_request,
    find_coordinator_request,
    millis,
)
from system_under_test.protocol.record_batch import decode_records
from tests.simulation.cluster_story import TOPIC, Cluster
from tests.simulation.test_admin import TOPIC_RESOURCE, alter, ask, error_of, values


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster().start()
    cluster.create_topic()
    return cluster


def set_configs(cluster: Cluster, **configs: str) -> None:
    for name, value in configs.items():
        assert error_of(ask(cluster, alter(name.replace("_", "."), value))) == 0
    cluster.run_for(0.5)


def replica(cluster: Cluster, broker: int, topic: str = TOPIC) -> Any:
    return cluster.node(broker).process.replica_manager.partitions[topic, 0].replica


def log_starts(cluster: Cluster) -> list[int]:
    return [replica(cluster, broker).log_start_offset for broker in cluster.brokers]


def delete_records(cluster: Cluster, offset: int) -> Any:
    request = delete_records_request.DeleteRecordsRequest(
        topics=(
            delete_records_request.DeleteRecordsTopic(
                name=TOPIC,
                partitions=(
                    delete_records_request.DeleteRecordsPartition(partition_index=0, offset=offset),
                ),
            ),
        ),
        timeout=millis(1500),
    )
    (topic,) = ask(cluster, request, cluster.leader()).topics
    (partition,) = topic.partitions
    return partition


def test_all_settings_of_kafka_are_described_and_can_be_altered(cluster: Cluster) -> None:
    described = values(cluster, TOPIC_RESOURCE, TOPIC)
    assert len(described) == 33
    retention = described["retention.ms"]
    assert (retention.value, retention.config_source, retention.config_type) == ("604800000", 5, 5)
    assert [(one.name, one.value, one.source) for one in retention.synonyms] == [
        ("log.retention.hours", "168", 5)
    ]
    for name, value in (
        ("retention.ms", "5"),
        ("compression.type", "zstd"),
        ("leader.replication.throttled.replicas", "0:1"),
    ):
        assert error_of(ask(cluster, alter(name, value))) == 0
        cluster.run_for(0.5)
        after = values(cluster, TOPIC_RESOURCE, TOPIC)[name]
        assert (after.value, after.config_source) == (value, 1)


def test_elements_of_a_list_are_added_and_removed(cluster: Cluster) -> None:
    append, subtract = 2, 3
    for operation, value, expected in (
        (append, "compact", "delete,compact"),
        (append, "compact", "delete,compact"),
        (subtract, "delete", "compact"),
    ):
        assert error_of(ask(cluster, alter("cleanup.policy", value, operation=operation))) == 0
        cluster.run_for(0.5)
        assert values(cluster, TOPIC_RESOURCE, TOPIC)["cleanup.policy"].value == expected


def test_a_default_of_the_cluster_has_the_name_that_brokers_use(cluster: Cluster) -> None:
    assert error_of(ask(cluster, alter("log.retention.ms", "9", topic=""))) == 0
    assert error_of(ask(cluster, alter("retention.ms", "9", topic=""))) == ErrorCode.INVALID_CONFIG
    cluster.run_for(0.5)
    found = values(cluster, TOPIC_RESOURCE, TOPIC)["retention.ms"]
    assert (found.value, found.config_source) == ("9", 3)
    assert found.synonyms[0].name == "log.retention.ms"
    assert replica(cluster, 1).log.config.retention_ms == 9


def test_the_smallest_segment_depends_on_the_release() -> None:
    for profile, error in (("kafka-4.0", 0), ("kafka-4.1", ErrorCode.INVALID_CONFIG)):
        cluster = Cluster(profile=profile).start()
        cluster.create_topic()
        assert error_of(ask(cluster, alter("segment.bytes", "1000"))) == error


def test_a_smaller_limit_of_batches_is_in_force_at_once(cluster: Cluster) -> None:
    assert cluster.produce(b"x" * 200) == [0]
    set_configs(cluster, max_message_bytes="100")
    assert cluster.produce(b"x" * 200) == [ErrorCode.MESSAGE_TOO_LARGE]


def test_deleted_records_are_deleted_on_all_replicas(cluster: Cluster) -> None:
    cluster.produce(b"a", b"b", b"c", b"d")
    found = delete_records(cluster, 3)
    assert (found.error_code, found.low_watermark) == (0, 3)
    assert log_starts(cluster) == [3, 3, 3]
    # A new leader begins there, too.
    cluster.node(cluster.leader()).kill()
    cluster.run_for(2)
    assert replica(cluster, cluster.leader()).log_start_offset == 3
    cluster.produce_eventually(b"e")


def test_a_follower_below_its_leaders_log_start_begins_anew_there(cluster: Cluster) -> None:
    """Broker 3 is down while everything that it has is deleted; what it has cannot be continued."""
    cluster.produce(b"a", b"b")
    cluster.run_for(0.5)
    cluster.node(3).kill()
    cluster.await_isr(1, 2)
    cluster.produce(b"c", b"d", b"e")
    found = delete_records(cluster, 4)
    assert (found.error_code, found.low_watermark) == (0, 4)
    cluster.node(3).start()
    cluster.await_isr(1, 2, 3)
    assert cluster.marks("fetch-out-of-range")
    assert [one for one in cluster.marks("truncated") if one["end_after"] == 4]
    assert log_starts(cluster) == [4, 4, 4]
    assert [replica(cluster, one).log_end_offset for one in cluster.brokers] == [5, 5, 5]


def test_a_replica_that_is_down_does_not_keep_a_deletion_waiting_once_it_is_fenced(
    cluster: Cluster,
) -> None:
    cluster.produce(b"a", b"b")
    cluster.run_for(0.5)
    cluster.node(3).kill()
    cluster.run_until(lambda: cluster.registration(3).fenced)
    cluster.run_for(0.3)
    found = delete_records(cluster, 2)
    assert (found.error_code, found.low_watermark) == (0, 2)


def test_retention_deletes_on_every_replica_and_keeps_what_is_not_committed(
    cluster: Cluster,
) -> None:
    set_configs(cluster, retention_ms="1", internal_segment_bytes="80")
    cluster.produce(b"a", b"b", b"c")
    cluster.run_for(60)
    assert log_starts(cluster) == [3, 3, 3]
    assert cluster.marks("segments-deleted")
    assert cluster.produce(b"d") == [0]


def test_nothing_is_deleted_without_a_limit(cluster: Cluster) -> None:
    set_configs(cluster, retention_ms="-1")
    cluster.produce(b"a")
    cluster.run_for(60)
    assert log_starts(cluster) == [0, 0, 0]


def test_the_offsets_topic_is_compacted(cluster: Cluster) -> None:
    request = find_coordinator_request.FindCoordinatorRequest(key_type=0, coordinator_keys=("g",))
    ask(cluster, request)
    cluster.run_for(1)
    found = values(cluster, TOPIC_RESOURCE, "__consumer_offsets")
    assert found["cleanup.policy"].value == "compact"
    assert found["segment.bytes"].value == str(100 << 20)
    assert replica(cluster, 1, "__consumer_offsets").log.config.compacts


def test_a_compacted_topic_keeps_the_last_record_of_every_key_on_all_replicas(
    cluster: Cluster,
) -> None:
    set_configs(cluster, cleanup_policy="compact", internal_segment_bytes="200")
    # The client of this story sends no keys, and records without a key are removed.
    cluster.produce(*[b"%d" % number for number in range(20)])
    cluster.run_for(30)
    assert cluster.marks("log-compacted")
    for broker in cluster.brokers:
        kept = [
            record.offset
            for _, records in decode_records(cluster.log_of(broker))
            for record in records
        ]
        active = replica(cluster, broker).log.segments.active.base_offset
        assert kept == list(range(active, 20))
    # Brokers that restart load, serve and copy a compacted log.
    cluster.node(3).kill()
    cluster.node(3).start()
    cluster.await_isr(1, 2, 3)
    assert cluster.produce(b"more") == [0]
