"""Questions of the native client to the leader of a partition about offsets: ListOffsets, OffsetForLeaderEpoch."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from harness.contracts.client import OffsetAnswer
from harness.history.op import Completion, Outcome
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    list_offsets_request,
    offset_for_leader_epoch_request,
)
from workloads.clients.native_cluster import (
    STALE_METADATA,
    ClusterClient,
    Leader,
    failed,
    never_sent,
    refused,
)
from workloads.clients.native_producer import GRACE_MS

CONSUMER_REPLICA_ID = -1

RequestTo = Callable[[Leader], Any]
"""Returns the request for a leader, which refuses it if it leads in another epoch."""


def list_offsets_of(
    topic: str, partition: int, timestamp: int, *, isolation_level: int = 0
) -> RequestTo:
    """Returns what makes the ListOffsets request of a consumer about one partition.

    The timestamp is in ms, or one of the negative numbers with a meaning, such as -1 for the log end; isolation
    level 1 is read_committed.
    """

    def request(leader: Leader) -> Any:
        wanted = list_offsets_request.ListOffsetsPartition(
            partition_index=partition,
            current_leader_epoch=leader.leader_epoch,
            timestamp=timestamp,
        )
        return list_offsets_request.ListOffsetsRequest(
            replica_id=CONSUMER_REPLICA_ID,
            isolation_level=isolation_level,
            topics=(list_offsets_request.ListOffsetsTopic(name=topic, partitions=(wanted,)),),
        )

    return request


async def offset_of_timestamp(
    cluster: ClusterClient, topic: str, partition: int, timestamp_ms: int
) -> OffsetAnswer:
    """Requests the first offset whose record has at least this timestamp from the leader."""
    request = list_offsets_of(topic, partition, timestamp_ms)
    completion, result = await ask_leader(cluster, topic, partition, request)
    if result is None:
        return OffsetAnswer(completion=completion)
    return OffsetAnswer(
        completion=replace(completion, offset=result.offset), found=result.timestamp
    )


async def end_of_epoch(
    cluster: ClusterClient, topic: str, partition: int, leader_epoch: int
) -> OffsetAnswer:
    """Requests the end of the largest leader epoch up to this one from the leader."""

    def request(leader: Leader) -> Any:
        wanted = offset_for_leader_epoch_request.OffsetForLeaderPartition(
            partition=partition,
            current_leader_epoch=leader.leader_epoch,
            leader_epoch=leader_epoch,
        )
        return offset_for_leader_epoch_request.OffsetForLeaderEpochRequest(
            replica_id=CONSUMER_REPLICA_ID,
            topics=(
                offset_for_leader_epoch_request.OffsetForLeaderTopic(
                    topic=topic, partitions=(wanted,)
                ),
            ),
        )

    completion, result = await ask_leader(cluster, topic, partition, request)
    if result is None:
        return OffsetAnswer(completion=completion)
    return OffsetAnswer(
        completion=replace(completion, offset=result.end_offset), found=result.leader_epoch
    )


async def ask_leader(
    cluster: ClusterClient, topic: str, partition: int, request: RequestTo
) -> tuple[Completion, Any]:
    """Sends a request about one partition to its leader.

    Returns:
        How it ended, with the epoch in which the leader was asked if ok; and the partition's part of the
        response, None if it failed.
    """
    leader = await cluster.leader(topic, partition)
    connection = None if leader is None else await cluster.open(leader.address)
    if leader is None or connection is None:
        cluster.forget_leader(topic, partition)
        return never_sent(leader), None
    timeout_ms = cluster.request_timeout_ms + GRACE_MS
    response = await cluster.request(connection, leader.address, request(leader), timeout_ms)
    if isinstance(response, str):
        cluster.forget_leader(topic, partition)
        return failed(leader, response), None
    result = response.topics[0].partitions[0]
    code = ErrorCode(result.error_code)
    if code != ErrorCode.NONE:
        if code in STALE_METADATA:
            cluster.forget_leader(topic, partition)
        return refused(leader, code), None
    completion = Completion(outcome=Outcome.OK, node=leader.host, leader_epoch=leader.leader_epoch)
    return completion, result
