"""Queries a running cluster of the reference system."""

import time
from collections.abc import Sequence
from typing import Any

from harness.contracts.system import Node
from harness.systems.reference.wire_client import ask
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    describe_quorum_request,
    describe_topic_partitions_request,
    list_offsets_request,
    metadata_request,
)
from system_under_test.protocol.metadata_codec import METADATA_TOPIC

PAGE_SIZE = 1000
UNKNOWN = -1
BROKER_LIMIT_S = 2.0
"""For a request that a broker can respond to without asking another node."""
SHORTEST_LIMIT_S = 0.1
"""A socket timeout of 0 means "do not wait at all"."""


def broker_count(address: str, timeout_s: float = 1.0) -> int:
    """Returns how many brokers the broker at an address reports to clients; 0 if it does not respond."""
    request = metadata_request.MetadataRequest(
        topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    try:
        return len(ask(address, request, timeout_s=timeout_s).brokers)
    except (OSError, ValueError):
        return 0


def knows_all_brokers(node: Node, nodes: Sequence[Node]) -> bool:
    """Whether a broker reports all brokers of a cluster to clients."""
    return broker_count(node.address) >= sum(other.role == "broker" for other in nodes)


def partitions(address: str, limit_s: float) -> list[dict[str, Any]]:
    """Returns every partition that one broker knows.

    Raises:
        OSError: It does not respond in time.
        ValueError: Its response cannot be read.
    """
    found: list[dict[str, Any]] = []
    deadline_s = time.monotonic() + limit_s
    cursor = None
    while True:
        response = ask(
            address,
            describe_topic_partitions_request.DescribeTopicPartitionsRequest(
                topics=(), response_partition_limit=PAGE_SIZE, cursor=cursor
            ),
            timeout_s=min(BROKER_LIMIT_S, max(deadline_s - time.monotonic(), SHORTEST_LIMIT_S)),
        )
        for topic in response.topics:
            found.extend(
                {
                    "topic": topic.name,
                    "partition": one.partition_index,
                    "leader": one.leader_id,
                    "leader_epoch": one.leader_epoch,
                    "replicas": list(one.replica_nodes),
                    "isr": list(one.isr_nodes),
                    "elr": list(one.eligible_leader_replicas or ()),
                    "last_known_elr": list(one.last_known_elr or ()),
                }
                for one in topic.partitions
            )
        if response.next_cursor is None:
            return found
        cursor = describe_topic_partitions_request.Cursor(
            topic_name=response.next_cursor.topic_name,
            partition_index=response.next_cursor.partition_index,
        )


def quorum(address: str, limit_s: float) -> dict[str, Any]:
    """Returns the metadata quorum as its leader reports it through one broker.

    Raises:
        OSError: No response in time. A broker searches for the leader for up to 30 s; this query waits less.
        ValueError: The response contains an error.
    """
    request = describe_quorum_request.DescribeQuorumRequest(
        topics=(
            describe_quorum_request.TopicData(
                topic_name=METADATA_TOPIC,
                partitions=(describe_quorum_request.PartitionData(partition_index=0),),
            ),
        )
    )
    response = ask(address, request, timeout_s=limit_s)
    if not response.topics:
        raise ValueError(f"the quorum responded with {response.error_code.name}")
    (one,) = response.topics[0].partitions
    if one.error_code != ErrorCode.NONE:
        raise ValueError(f"the quorum responded with {one.error_code.name}")
    end = max((replica.log_end_offset for replica in one.current_voters), default=UNKNOWN)
    return {
        "leader": one.leader_id,
        "epoch": one.leader_epoch,
        "high_watermark": one.high_watermark,
        "replicas": [
            {
                "node": replica.replica_id,
                "role": role,
                "log_end_offset": replica.log_end_offset,
                "lag": end - replica.log_end_offset if replica.log_end_offset >= 0 else None,
            }
            for role, replicas in (("voter", one.current_voters), ("observer", one.observers))
            for replica in replicas
        ],
    }


def high_watermarks(
    addresses: dict[int, str], partitions: list[dict[str, Any]]
) -> dict[tuple[str, int], int]:
    """Queries every leader for the high watermarks of the partitions that it leads."""
    high_watermarks: dict[tuple[str, int], int] = {}
    for broker, address in addresses.items():
        led: dict[str, list[int]] = {}
        for one in partitions:
            if one["leader"] == broker:
                led.setdefault(one["topic"], []).append(one["partition"])
        if not led:
            continue
        request = list_offsets_request.ListOffsetsRequest(
            replica_id=UNKNOWN,
            isolation_level=0,
            topics=tuple(
                list_offsets_request.ListOffsetsTopic(
                    name=topic,
                    partitions=tuple(
                        list_offsets_request.ListOffsetsPartition(
                            partition_index=index, timestamp=UNKNOWN
                        )
                        for index in indexes
                    ),
                )
                for topic, indexes in led.items()
            ),
        )
        try:
            response = ask(address, request)
        except (OSError, ValueError):
            continue  # its partitions have no high watermark in the result
        for topic in response.topics:
            for one in topic.partitions:
                if one.error_code == ErrorCode.NONE:
                    high_watermarks[(topic.name, one.partition_index)] = one.offset
    return high_watermarks
