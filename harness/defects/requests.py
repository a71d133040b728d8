"""Administrative requests of stories."""

from typing import Any

from system_under_test.controller.configs import SET
from system_under_test.controller.leader_elections import PREFERRED, UNCLEAN
from system_under_test.metadata.image import MIN_ISR_CONFIG, TOPIC_RESOURCE
from system_under_test.protocol.messages import (
    alter_reassignments_request,
    create_topics_request,
    elect_leaders_request,
    incremental_alter_configs_request,
    millis,
    produce_request,
)
from system_under_test.protocol.record_batch import encode_batch


def elect_request(
    *partitions: tuple[str, int], unclean: bool = False, kind: int | None = None
) -> Any:
    """Returns an ElectLeadersRequest; without partitions it is for all."""
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return elect_leaders_request.ElectLeadersRequest(
        election_type=(UNCLEAN if unclean else PREFERRED) if kind is None else kind,
        topic_partitions=tuple(
            elect_leaders_request.TopicPartitions(topic=topic, partitions=tuple(indexes))
            for topic, indexes in topics.items()
        )
        or None,
    )


def reassign_request(
    *changes: tuple[str, int, tuple[int, ...] | None], may_change_count: bool = True
) -> Any:
    """Returns an AlterPartitionReassignmentsRequest; replicas None cancel a reassignment."""
    m = alter_reassignments_request
    return m.AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=may_change_count,
        topics=tuple(
            m.ReassignableTopic(
                name=topic,
                partitions=(m.ReassignablePartition(partition_index=index, replicas=replicas),),
            )
            for topic, index, replicas in changes
        ),
    )


def min_isr_request(topic: str, min_isr: int) -> Any:
    """Returns an IncrementalAlterConfigsRequest that sets `min.insync.replicas` of a topic."""
    m = incremental_alter_configs_request
    change = m.AlterableConfig(name=MIN_ISR_CONFIG, config_operation=SET, value=str(min_isr))
    resource = m.AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=topic, configs=(change,)
    )
    return m.IncrementalAlterConfigsRequest(validate_only=False, resources=(resource,))


def create_topic_request(topic: str, *assignments: tuple[int, ...], min_isr: int = 2) -> Any:
    """Returns a CreateTopicsRequest for a topic with the replicas of each partition."""
    m = create_topics_request
    created = m.CreatableTopic(
        name=topic,
        num_partitions=-1,
        replication_factor=-1,
        assignments=tuple(
            m.CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
            for index, replicas in enumerate(assignments)
        ),
        configs=(m.CreatableTopicConfig(name=MIN_ISR_CONFIG, value=str(min_isr)),),
    )
    return m.CreateTopicsRequest(topics=(created,), validate_only=False)


def idempotent_produce_request(topic: str, index: int, *, producer_id: int) -> Any:
    """Returns a ProduceRequest with the first record of an idempotent producer."""
    m = produce_request
    records = encode_batch(
        [(None, b"once")],
        timestamp_ms=1,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
    )
    partition = m.PartitionProduceData(index=index, records=records)
    data = m.TopicProduceData(name=topic, partition_data=(partition,))
    return m.ProduceRequest(acks=-1, timeout=millis(900), topic_data=(data,))
