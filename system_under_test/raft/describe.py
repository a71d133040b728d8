"""DescribeQuorum: the leader of the metadata quorum and the progress of every member, for display only."""

from typing import Any

from system_under_test.config import NodeConfig
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import describe_quorum_response
from system_under_test.protocol.metadata_codec import METADATA_TOPIC
from system_under_test.raft.leadership import UNKNOWN, Leadership, Progress
from system_under_test.raft.messages import only_partition, split_address

LISTENER = "CONTROLLER"


def describe_quorum(
    request: Any,
    config: NodeConfig,
    leadership: Leadership | None,
    *,
    leader_id: int,
    epoch: int,
    own_end_offset: int,
    now_ms: int,
) -> Any:
    """Returns the response to a DescribeQuorumRequest.

    A node that does not lead responds with NOT_LEADER_OR_FOLLOWER and the leader that it knows.

    Args:
        request: Must be about the metadata partition alone.
        config: Names the voters.
        leadership: This node's leadership; None if it does not lead.
        leader_id: The known leader, -1 if it is unknown.
        epoch: The quorum epoch.
        own_end_offset: End of what is durable on this node.
        now_ms: This node's wall clock.
    """
    schema = describe_quorum_response
    if only_partition(request) is None:
        return _unknown(request)
    voters: list[Any] = []
    observers: list[Any] = []
    if leadership is not None:
        progress = leadership.progress()
        progress[config.node_id] = Progress(own_end_offset, now_ms, now_ms)
        ids = [voter.node_id for voter in config.voters]
        unknown = Progress(UNKNOWN, UNKNOWN, UNKNOWN)
        voters = [_replica(node_id, progress.get(node_id, unknown)) for node_id in ids]
        observers = [
            _replica(node_id, seen) for node_id, seen in progress.items() if node_id not in ids
        ]
    partition = schema.PartitionData(
        partition_index=0,
        error_code=ErrorCode.NONE if leadership is not None else ErrorCode.NOT_LEADER_OR_FOLLOWER,
        error_message=None,
        leader_id=leader_id,
        leader_epoch=epoch,
        high_watermark=UNKNOWN if leadership is None else leadership.high_watermark,
        current_voters=tuple(voters),
        observers=tuple(observers),
    )
    return schema.DescribeQuorumResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        topics=(schema.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),),
        nodes=tuple(_node(voter.node_id, voter.address) for voter in config.voters),
    )


def _unknown(request: Any) -> Any:
    """Returns the response to a request about partitions of which none, or not only one, has a quorum."""
    schema = describe_quorum_response
    return schema.DescribeQuorumResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        topics=tuple(
            schema.TopicData(
                topic_name=topic.topic_name,
                partitions=tuple(
                    _unknown_partition(one.partition_index) for one in topic.partitions
                ),
            )
            for topic in request.topics
        ),
        nodes=(),
    )


def _unknown_partition(index: int) -> Any:
    return describe_quorum_response.PartitionData(
        partition_index=index,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message=f"the only quorum is that of {METADATA_TOPIC}-0",
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=(),
        observers=(),
    )


def _replica(node_id: int, progress: Progress) -> Any:
    return describe_quorum_response.ReplicaState(
        replica_id=node_id,
        replica_directory_id=None,
        log_end_offset=progress.end_offset,
        last_fetch_timestamp=progress.fetched_ms,
        last_caught_up_timestamp=progress.caught_up_ms,
    )


def _node(node_id: int, address: str) -> Any:
    host, port = split_address(address)
    return describe_quorum_response.Node(
        node_id=node_id,
        listeners=(describe_quorum_response.Listener(name=LISTENER, host=host, port=port),),
    )
