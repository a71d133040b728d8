"""The leader's response to FetchSnapshot: a part of one of its snapshots (RAFT-8).

Source:
    KIP-630; Kafka's `KafkaRaftClient.handleFetchSnapshotRequest`.
"""

from typing import Any

from system_under_test.metadata.snapshot import SnapshotId
from system_under_test.protocol.errors import ErrorCode
from system_under_test.raft import messages
from system_under_test.raft.quorum import METADATA_MAX_BATCH_BYTES, Quorum


def serve_snapshot(request: Any, quorum: Quorum, *, is_leader: bool) -> Any:
    """Returns the response to a FetchSnapshotRequest. The order of the checks is Kafka's.

    Args:
        request: Any request, of any sender.
        quorum: State and snapshots of this node.
        is_leader: Whether this node leads.
    """
    if request.cluster_id is not None and request.cluster_id != quorum.config.cluster_id:
        return messages.build_fetch_snapshot_refusal(ErrorCode.INCONSISTENT_CLUSTER_ID)
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return messages.build_fetch_snapshot_refusal(ErrorCode.INVALID_REQUEST)
    error, size_bytes, data = _read(request, quorum, is_leader=is_leader)
    return messages.build_fetch_snapshot_response(
        request,
        epoch=quorum.state.epoch,
        leader_id=quorum.state.leader_id,
        error=error,
        size_bytes=size_bytes,
        data=data,
    )


def _read(request: Any, quorum: Quorum, *, is_leader: bool) -> tuple[ErrorCode, int, bytes]:
    """Returns (error, size of the snapshot, the part of it)."""
    wanted = messages.only_partition(request)
    if wanted is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, b""
    epoch = quorum.state.epoch
    if wanted.current_leader_epoch < epoch:
        return ErrorCode.FENCED_LEADER_EPOCH, 0, b""
    if wanted.current_leader_epoch > epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH, 0, b""
    if not is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, b""
    snapshot_id = SnapshotId(
        end_offset=wanted.snapshot_id.end_offset, epoch=wanted.snapshot_id.epoch
    )
    if snapshot_id not in quorum.snapshots.ids:
        return ErrorCode.SNAPSHOT_NOT_FOUND, 0, b""
    size_bytes = quorum.snapshots.size(snapshot_id)
    if not 0 <= wanted.position < size_bytes:
        return ErrorCode.POSITION_OUT_OF_RANGE, 0, b""
    max_bytes = min(max(request.max_bytes, 0), METADATA_MAX_BATCH_BYTES)
    data = quorum.snapshots.read(snapshot_id, wanted.position, max_bytes)
    return ErrorCode.NONE, size_bytes, data
