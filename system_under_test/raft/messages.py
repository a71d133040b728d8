"""Builds and reads the quorum's messages, all of them for the one partition of the metadata topic.

Kafka nests every quorum request in topics and partitions. Here they are flattened: a builder takes the values, a
reader returns them. A request that is not about the metadata partition alone is read as None.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from system_under_test.config import NodeConfig
from system_under_test.metadata.snapshot import SnapshotId
from system_under_test.protocol import entities
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    begin_quorum_epoch_request,
    begin_quorum_epoch_response,
    end_quorum_epoch_request,
    end_quorum_epoch_response,
    fetch_request,
    fetch_response,
    fetch_snapshot_request,
    fetch_snapshot_response,
    millis,
    vote_request,
    vote_response,
)
from system_under_test.protocol.metadata_codec import METADATA_TOPIC, METADATA_TOPIC_ID
from system_under_test.raft.state import LogPosition

QUORUM_REQUESTS = (
    vote_request.VoteRequest,
    begin_quorum_epoch_request.BeginQuorumEpochRequest,
    end_quorum_epoch_request.EndQuorumEpochRequest,
)

FETCH_SNAPSHOT_REQUEST = fetch_snapshot_request.FetchSnapshotRequest

_NO_DIVERGENCE = fetch_response.EpochEndOffset()
_NO_SNAPSHOT = fetch_response.SnapshotId()
_NO_WAIT = millis(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumResponse:
    """Content of every quorum response: an error, and the epoch and leader as the sender knows them."""

    error: int
    epoch: int
    leader_id: int
    vote_granted: bool = False


def is_metadata_fetch(message: Any) -> bool:
    """Whether a message is a Fetch for the metadata log."""
    return (
        isinstance(message, fetch_request.FetchRequest)
        and len(message.topics) == 1
        and message.topics[0].topic_id == METADATA_TOPIC_ID
    )


def only_partition(request: Any) -> Any | None:
    """Returns the partition part of a request, None if the request is not about the metadata partition alone."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return None
    topic = request.topics[0]
    partition = topic.partitions[0]
    if isinstance(request, fetch_request.FetchRequest):
        return partition if partition.partition == 0 else None
    if isinstance(request, FETCH_SNAPSHOT_REQUEST):
        return partition if topic.name == METADATA_TOPIC and partition.partition == 0 else None
    if topic.topic_name != METADATA_TOPIC or partition.partition_index != 0:
        return None
    return partition


def split_address(address: str) -> tuple[str, int]:
    """Splits "host:port".

    Raises:
        ValueError: The address has another form.
    """
    host, separator, port = address.rpartition(":")
    if not separator or not port.isascii() or not port.isdigit():
        raise ValueError(f"address {address!r} is not host:port")
    return host, int(port)


# --- requests ------------------------------------------------------------------------------------------


def build_vote_request(
    config: NodeConfig, *, voter_id: int, epoch: int, log: LogPosition, pre_vote: bool
) -> Any:
    """Builds the request for a vote or a pre-vote."""
    partition = vote_request.PartitionData(
        partition_index=0,
        replica_epoch=epoch,
        replica_id=config.node_id,
        replica_directory_id=None,
        voter_directory_id=None,
        last_offset_epoch=log.last_epoch,
        last_offset=log.end_offset,
        pre_vote=pre_vote,
    )
    return vote_request.VoteRequest(
        cluster_id=config.cluster_id,
        voter_id=voter_id,
        topics=(vote_request.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),),
    )


def build_begin_quorum_epoch(config: NodeConfig, *, voter_id: int, epoch: int) -> Any:
    """Builds the announcement of a new leader."""
    schema = begin_quorum_epoch_request
    host, port = split_address(config.address)
    partition = schema.PartitionData(
        partition_index=0, voter_directory_id=None, leader_id=config.node_id, leader_epoch=epoch
    )
    return schema.BeginQuorumEpochRequest(
        cluster_id=config.cluster_id,
        voter_id=voter_id,
        topics=(schema.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),),
        leader_endpoints=(schema.LeaderEndpoint(name="PLAINTEXT", host=host, port=port),),
    )


def build_end_quorum_epoch(config: NodeConfig, *, epoch: int, successors: list[int]) -> Any:
    """Builds the resignation of a leader, with the voters in the order in which they should stand for election."""
    schema = end_quorum_epoch_request
    host, port = split_address(config.address)
    partition = schema.PartitionData(
        partition_index=0,
        leader_id=config.node_id,
        leader_epoch=epoch,
        preferred_candidates=tuple(
            schema.ReplicaInfo(candidate_id=voter, candidate_directory_id=None)
            for voter in successors
        ),
    )
    return schema.EndQuorumEpochRequest(
        cluster_id=config.cluster_id,
        topics=(schema.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),),
        leader_endpoints=(schema.LeaderEndpoint(name="PLAINTEXT", host=host, port=port),),
    )


def build_fetch(config: NodeConfig, *, epoch: int, log: LogPosition, max_bytes: int) -> Any:
    """Builds a fetch from the end of the own log."""
    partition = entities.fetch_partition(
        0,
        epoch,
        log.end_offset,
        max_bytes,
        last_fetched_epoch=log.last_epoch,
        log_start_offset=0,
    )
    return entities.fetch_of(
        (entities.fetch_topic(METADATA_TOPIC_ID, (partition,)),),
        millis(config.timings.controller_quorum_fetch_wait_ms),
        max_bytes,
        _replica_state(config.node_id),
        config.cluster_id,
    )


def build_fetch_snapshot(
    config: NodeConfig, *, epoch: int, snapshot_id: SnapshotId, position: int, max_bytes: int
) -> Any:
    """Builds a request for a part of a snapshot."""
    schema = fetch_snapshot_request
    partition = schema.PartitionSnapshot(
        partition=0,
        current_leader_epoch=epoch,
        snapshot_id=schema.SnapshotId(end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch),
        position=position,
    )
    return schema.FetchSnapshotRequest(
        cluster_id=config.cluster_id,
        replica_id=config.node_id,
        max_bytes=max_bytes,
        topics=(schema.TopicSnapshot(name=METADATA_TOPIC, partitions=(partition,)),),
    )


@lru_cache(maxsize=256)
def _replica_state(node_id: int) -> Any:
    return fetch_request.ReplicaState(replica_id=node_id)


# --- responses -----------------------------------------------------------------------------------------


def build_response(
    request: Any,
    *,
    error: ErrorCode,
    epoch: int,
    leader_id: int,
    vote_granted: bool = False,
    request_error: ErrorCode = ErrorCode.NONE,
) -> Any:
    """Builds the response to Vote, BeginQuorumEpoch or EndQuorumEpoch.

    `error` is the error of the partition. With a `request_error`, the error of the whole request, the rest of the
    response is empty.
    """
    schema: Any
    if isinstance(request, vote_request.VoteRequest):
        schema, response_type = vote_response, vote_response.VoteResponse
    elif isinstance(request, begin_quorum_epoch_request.BeginQuorumEpochRequest):
        schema = begin_quorum_epoch_response
        response_type = begin_quorum_epoch_response.BeginQuorumEpochResponse
    else:
        schema = end_quorum_epoch_response
        response_type = end_quorum_epoch_response.EndQuorumEpochResponse
    if request_error != ErrorCode.NONE:
        return response_type(error_code=request_error, topics=())
    values = {
        "partition_index": 0,
        "error_code": error,
        "leader_id": leader_id,
        "leader_epoch": epoch,
    }
    if schema is vote_response:
        values["vote_granted"] = vote_granted
    partition = schema.PartitionData(**values)
    topic = schema.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
    return response_type(error_code=ErrorCode.NONE, topics=(topic,))


def read_response(response: Any) -> QuorumResponse:
    """Reads the response to Vote, BeginQuorumEpoch or EndQuorumEpoch. The epoch is -1 if it names none."""
    if response.error_code != ErrorCode.NONE or not response.topics:
        return QuorumResponse(error=int(response.error_code), epoch=-1, leader_id=-1)
    partition = response.topics[0].partitions[0]
    return QuorumResponse(
        error=int(partition.error_code),
        epoch=partition.leader_epoch,
        leader_id=partition.leader_id,
        vote_granted=getattr(partition, "vote_granted", False),
    )


def build_fetch_response(
    *,
    error: ErrorCode,
    epoch: int,
    leader_id: int,
    high_watermark: int = -1,
    log_start_offset: int = 0,
    records: bytes | None = None,
    diverging: tuple[int, int] | None = None,
    snapshot: SnapshotId | None = None,
) -> Any:
    """Builds the response to a metadata fetch.

    `diverging` is the (epoch, end offset) up to which the follower's log may agree with the leader's; `snapshot`
    is what the follower has to fetch instead of records.
    """
    partition = entities.fetched_data(
        0,
        error,
        high_watermark,
        log_start_offset,
        records,
        current_leader=_leader(leader_id, epoch),
        diverging_epoch=_NO_DIVERGENCE
        if diverging is None
        else fetch_response.EpochEndOffset(epoch=diverging[0], end_offset=diverging[1]),
        snapshot_id=_NO_SNAPSHOT
        if snapshot is None
        else fetch_response.SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch),
    )
    topic = entities.fetched_topic(METADATA_TOPIC_ID, (partition,))
    return entities.fetch_response_of(ErrorCode.NONE, (topic,))


@lru_cache(maxsize=256)
def _leader(leader_id: int, leader_epoch: int) -> Any:
    return fetch_response.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)


def build_fetch_refusal(error: ErrorCode) -> Any:
    """Builds the response to a fetch that is refused as a whole."""
    return fetch_response.FetchResponse(throttle_time=_NO_WAIT, error_code=error, responses=())


def build_fetch_snapshot_response(
    request: Any,
    *,
    epoch: int,
    leader_id: int,
    error: ErrorCode = ErrorCode.NONE,
    size_bytes: int = 0,
    data: bytes = b"",
) -> Any:
    """Builds the response to a request for a part of a snapshot, about its only partition."""
    schema = fetch_snapshot_response
    topic = request.topics[0]
    wanted = topic.partitions[0]
    partition = schema.PartitionSnapshot(
        index=wanted.partition,
        error_code=error,
        snapshot_id=schema.SnapshotId(
            end_offset=wanted.snapshot_id.end_offset, epoch=wanted.snapshot_id.epoch
        ),
        current_leader=schema.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=epoch),
        size=size_bytes,
        position=wanted.position,
        unaligned_records=data,
    )
    return schema.FetchSnapshotResponse(
        throttle_time=_NO_WAIT,
        error_code=ErrorCode.NONE,
        topics=(schema.TopicSnapshot(name=topic.name, partitions=(partition,)),),
    )


def build_fetch_snapshot_refusal(error: ErrorCode) -> Any:
    """Builds the response to a request for a part of a snapshot that is refused as a whole."""
    return fetch_snapshot_response.FetchSnapshotResponse(
        throttle_time=_NO_WAIT, error_code=error, topics=()
    )
