"""Questions of the native client about offsets: ListOffsets by timestamp, and OffsetForLeaderEpoch."""

from collections.abc import Callable
from typing import Any

from harness.contracts.client import OffsetAnswer
from harness.history.op import Outcome
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    list_offsets_request,
    offset_for_leader_epoch_request,
)
from workloads.clients.native_cluster import STALE_METADATA, ClusterClient, Leader
from workloads.clients.native_producer import GRACE_MS

CONSUMER_REPLICA_ID = -1


def list_offsets_of(
    topic: str, partition: int, leader_epoch: int, timestamp: int, *, isolation_level: int = 0
) -> Any:
    """Returns a ListOffsets request of a consumer about one partition.

    A leader of another epoch refuses it. The timestamp is in ms, or one of the negative numbers with a meaning,
    such as -1 for the log end; isolation level 1 is read_committed.
    """
    return list_offsets_request.ListOffsetsRequest(
        replica_id=CONSUMER_REPLICA_ID,
        isolation_level=isolation_level,
        topics=(
            list_offsets_request.ListOffsetsTopic(
                name=topic,
                partitions=(
                    list_offsets_request.ListOffsetsPartition(
                        partition_index=partition,
                        current_leader_epoch=leader_epoch,
                        timestamp=timestamp,
                    ),
                ),
            ),
        ),
    )


async def offset_of_timestamp(
    cluster: ClusterClient, topic: str, partition: int, timestamp_ms: int
) -> OffsetAnswer:
    """Requests the first offset whose record has at least this timestamp from the leader."""

    def request(leader: Leader) -> Any:
        return list_offsets_of(topic, partition, leader.leader_epoch, timestamp_ms)

    def read(result: Any) -> tuple[int, int]:
        return result.timestamp, result.offset

    return await _ask(cluster, topic, partition, request, read)


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

    def read(result: Any) -> tuple[int, int]:
        return result.leader_epoch, result.end_offset

    return await _ask(cluster, topic, partition, request, read)


async def _ask(
    cluster: ClusterClient,
    topic: str,
    partition: int,
    request: Callable[[Leader], Any],
    read: Callable[[Any], tuple[int, int]],
) -> OffsetAnswer:
    """Sends a request about one partition to its leader.

    `request` returns the request for a leader, and `read` what was found, and its offset, from the partition's
    part of the response.
    """
    leader = await cluster.leader(topic, partition)
    connection = None if leader is None else await cluster.open(leader.address)
    if leader is None or connection is None:
        cluster.forget_leader(topic, partition)
        error = "no-leader-known" if leader is None else "connect-failed"
        node = "" if leader is None else leader.host
        return OffsetAnswer(outcome=Outcome.FAIL, error_code=None, error=error, node=node)
    timeout_ms = cluster.request_timeout_ms + GRACE_MS
    response = await cluster.request(connection, leader.address, request(leader), timeout_ms)
    if isinstance(response, str):
        cluster.forget_leader(topic, partition)
        return OffsetAnswer(outcome=Outcome.FAIL, error_code=None, error=response, node=leader.host)
    result = response.topics[0].partitions[0]
    code = ErrorCode(result.error_code)
    if code != ErrorCode.NONE:
        if code in STALE_METADATA:
            cluster.forget_leader(topic, partition)
        return OffsetAnswer(
            outcome=Outcome.FAIL, error_code=int(code), error=code.name, node=leader.host
        )
    found, offset = read(result)
    return OffsetAnswer(
        outcome=Outcome.OK,
        found=found,
        offset=offset,
        leader_epoch=leader.leader_epoch,
        node=leader.host,
    )
