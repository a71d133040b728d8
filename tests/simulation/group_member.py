"""One member of a consumer group, whose requests a test sends itself."""

import struct
from typing import Any

from system_under_test.protocol.messages import (
    find_coordinator_request,
    join_group_request,
    leave_group_request,
    millis,
    offset_commit_request,
    offset_fetch_request,
    sync_group_request,
)
from tests.simulation.cluster_story import TOPIC, Cluster

GROUP = "g"


class Member:
    """A consumer whose group protocol requests the test sends."""

    def __init__(
        self, cluster: Cluster, *, subscription: bytes = b"m", protocol_type: str = "consumer"
    ) -> None:
        self.cluster = cluster
        self._subscription = subscription
        self._protocol_type = protocol_type
        self.coordinator = self._find()
        self.generation, self.member_id = self._join()

    def ask(self, request: Any) -> Any:
        return self.cluster.do(self.cluster._ask(self.coordinator, request))

    def _find(self) -> int:
        request = find_coordinator_request.FindCoordinatorRequest(
            key_type=0, coordinator_keys=(GROUP,)
        )
        cluster = self.cluster
        for _ in range(100):
            alive = next(one for one in cluster.brokers if cluster.node(one).state == "running")
            (found,) = cluster.do(cluster._ask(alive, request)).coordinators
            # The metadata may still name a coordinator that was killed.
            if found.error_code == 0 and cluster.node(found.node_id).state == "running":
                return int(found.node_id)
            cluster.run_for(0.1)
        raise AssertionError("no coordinator was found")

    def _join(self) -> tuple[int, str]:
        member_id = ""
        for _ in range(100):
            response = self.ask(
                join_group_request.JoinGroupRequest(
                    group_id=GROUP,
                    session_timeout=millis(6000),
                    rebalance_timeout=millis(6000),
                    member_id=member_id,
                    group_instance_id=None,
                    protocol_type=self._protocol_type,
                    protocols=(
                        join_group_request.JoinGroupRequestProtocol(
                            name="range", metadata=self._subscription
                        ),
                    ),
                )
            )
            if response.error_code == 0:
                break
            member_id = response.member_id if response.error_code == 79 else member_id
            self.cluster.run_for(0.1)
        synced = self.ask(
            sync_group_request.SyncGroupRequest(
                group_id=GROUP,
                generation_id=response.generation_id,
                member_id=response.member_id,
                group_instance_id=None,
                assignments=(
                    sync_group_request.SyncGroupRequestAssignment(
                        member_id=response.member_id, assignment=b"share"
                    ),
                ),
            )
        )
        assert (synced.error_code, synced.assignment) == (0, b"share")
        return response.generation_id, response.member_id

    def commit(self, offset: int, generation: int) -> int:
        response = self.ask(
            offset_commit_request.OffsetCommitRequest(
                group_id=GROUP,
                generation_id_or_member_epoch=generation,
                member_id=self.member_id,
                group_instance_id=None,
                topics=(
                    offset_commit_request.OffsetCommitRequestTopic(
                        name=TOPIC,
                        partitions=(
                            offset_commit_request.OffsetCommitRequestPartition(
                                partition_index=0, committed_offset=offset, committed_metadata=""
                            ),
                        ),
                    ),
                ),
            )
        )
        return int(response.topics[0].partitions[0].error_code)

    def committed(self) -> int:
        """Returns the committed offset, -1 without one."""
        messages = offset_fetch_request
        topic = messages.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=(0,))
        group = messages.OffsetFetchRequestGroup(group_id=GROUP, topics=(topic,))
        response = self.ask(messages.OffsetFetchRequest(groups=(group,), require_stable=False))
        return int(response.groups[0].topics[0].partitions[0].committed_offset)

    def leave(self) -> None:
        """Leaves the group."""
        member = leave_group_request.MemberIdentity(
            member_id=self.member_id, group_instance_id=None, reason=None
        )
        request = leave_group_request.LeaveGroupRequest(group_id=GROUP, members=(member,))
        assert self.ask(request).error_code == 0


def subscription_of(*topics: str) -> bytes:
    """Returns a consumer's subscription to topics, in version 0 without user data."""
    names = b"".join(struct.pack(">h", len(one)) + one.encode() for one in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)
