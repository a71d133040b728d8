"""Members of the classic and of the consumer protocol in one group, and groups that change their type."""

import struct
from typing import Any

import pytest

from system_under_test.group.consumer.embedded import read_assignment, write_assignment
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    heartbeat_request,
    join_group_request,
    leave_group_request,
    millis,
    sync_group_request,
)
from tests.simulation.cluster_story import TOPIC, Cluster
from tests.simulation.consumer_group_member import (
    GROUP,
    ConsumerMember,
    listed_types,
    settle,
    started,
)

POLICY = "group.consumer.migration.policy"
DOWNGRADED = [(GROUP, "classic")]
UPGRADED = [(GROUP, "consumer")]


def subscription(owned: list[int], *, topics: tuple[str, ...] = (TOPIC,)) -> bytes:
    """Returns a subscription in version 1, with what the consumer owns."""
    names = b"".join(struct.pack(">h", len(one)) + one.encode() for one in topics)
    parts = b"".join(struct.pack(">i", index) for index in owned)
    name = struct.pack(">h", len(TOPIC)) + TOPIC.encode()
    held = struct.pack(">i", 1) + name + struct.pack(">i", len(owned)) + parts
    return struct.pack(">hi", 1, len(topics)) + names + struct.pack(">i", -1) + held


class ClassicMember:
    """A consumer of the classic protocol; as leader it assigns everything to itself."""

    def __init__(
        self, cluster: Cluster, *, protocol: str = "range", instance_id: str | None = None
    ) -> None:
        self.cluster = cluster
        self.protocol = protocol
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.owned: list[int] = []
        self._peer = ConsumerMember(cluster, "unused")

    def ask(self, request: Any) -> Any:
        return self._peer.ask(request)

    def join(self, **changes: Any) -> Any:
        """Joins, twice if it has no member id yet; returns the response."""
        for _ in range(2):
            values: dict[str, Any] = {
                "group_id": GROUP,
                "session_timeout": millis(6000),
                "rebalance_timeout": millis(6000),
                "member_id": self.member_id,
                "group_instance_id": self.instance_id,
                "protocol_type": "consumer",
                "protocols": (
                    join_group_request.JoinGroupRequestProtocol(
                        name=self.protocol, metadata=subscription(self.owned)
                    ),
                ),
            }
            response = self.ask(join_group_request.JoinGroupRequest(**values | changes))
            if response.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                break
            self.member_id = response.member_id
        if response.error_code == 0:
            self.member_id, self.generation = response.member_id, response.generation_id
        return response

    def sync(self, *, leads: bool = False, **changes: Any) -> Any:
        """Syncs and takes its share; a leader assigns all four partitions to itself."""
        everything = write_assignment([(TOPIC, index) for index in range(4)], 1)
        values: dict[str, Any] = {
            "group_id": GROUP,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "assignments": (
                sync_group_request.SyncGroupRequestAssignment(
                    member_id=self.member_id, assignment=everything
                ),
            )
            if leads
            else (),
        }
        response = self.ask(sync_group_request.SyncGroupRequest(**values | changes))
        if response.error_code == 0:
            found = read_assignment(response.assignment)
            self.owned = sorted(index for _, index in found.partitions)
        return response

    def heartbeat(self, generation: int | None = None) -> int:
        request = heartbeat_request.HeartbeatRequest(
            group_id=GROUP,
            generation_id=self.generation if generation is None else generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        return int(self.ask(request).error_code)

    def work(self) -> None:
        """Sends a heartbeat and joins again when it is told to."""
        if self.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS:
            assert self.join().error_code == 0
            assert self.sync().error_code == 0

    def leave(self) -> int:
        member = leave_group_request.MemberIdentity(
            member_id=self.member_id, group_instance_id=None, reason=None
        )
        request = leave_group_request.LeaveGroupRequest(group_id=GROUP, members=(member,))
        return int(self.ask(request).members[0].error_code)


def upgraded() -> tuple[Cluster, ClassicMember, ConsumerMember]:
    """Returns a cluster, a member of the classic protocol that had everything, and one that has just joined."""
    cluster = started()
    old = ClassicMember(cluster)
    assert old.join().error_code == 0
    assert old.sync(leads=True).error_code == 0
    assert old.owned == [0, 1, 2, 3]
    new = ConsumerMember(cluster, "new")
    assert new.work().error_code == 0
    return cluster, old, new


def test_a_classic_group_becomes_a_consumer_group_and_its_members_share() -> None:
    _, old, new = upgraded()
    assert listed_types(new) == UPGRADED
    assert new.owned == set(), "the classic member still has everything"
    for _ in range(4):
        old.work()
        new.work()
    assert old.owned == [0, 1]
    assert sorted(index for _, index in new.owned) == [2, 3]
    group = new.describe()
    assert (group.group_state, [one.member_type for one in group.members]) == ("Stable", [0, 1])


def test_the_next_coordinator_knows_the_members_of_both_protocols() -> None:
    cluster, old, new = upgraded()
    cluster.node(new.find()).kill()
    for _ in range(4):
        new.work()
        old.work()
    new.work()
    assert (old.owned, len(new.owned)) == ([0, 1], 2)


def test_when_the_last_consumer_member_leaves_the_group_is_classic_again_and_rebalances() -> None:
    cluster, old, new = upgraded()
    for _ in range(4):
        old.work()
        new.work()
    assert new.leave().error_code == 0
    assert listed_types(new) == DOWNGRADED
    assert old.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert old.join().error_code == 0
    assert old.sync(leads=True).error_code == 0
    assert old.owned == [0, 1, 2, 3]
    cluster.node(new.find()).kill()
    assert old.heartbeat() == 0
    assert listed_types(new) == DOWNGRADED


def test_a_member_of_the_classic_protocol_that_is_wrong_is_refused_as_in_a_classic_group() -> None:
    _, old, new = upgraded()
    assert old.heartbeat(generation=9) == ErrorCode.ILLEGAL_GENERATION
    assert old.sync(generation_id=9).error_code == ErrorCode.ILLEGAL_GENERATION
    assert old.sync(protocol_name="x").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert old.sync().error_code == ErrorCode.REBALANCE_IN_PROGRESS, "it has to join first"
    stranger = ClassicMember(old.cluster, protocol="sticky")
    assert stranger.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    garbled = (join_group_request.JoinGroupRequestProtocol(name="range", metadata=b"?"),)
    fresh = ClassicMember(old.cluster)
    assert fresh.join(protocols=garbled).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert fresh.join(session_timeout=millis(1)).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    old.member_id = "new"
    assert old.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID, "that one uses the consumer protocol"
    old.member_id = "gone"
    assert old.leave() == ErrorCode.UNKNOWN_MEMBER_ID
    assert new.work().error_code == 0
    # LeaveGroup of an administrator removes members of both protocols.
    old.member_id = "new"
    assert old.leave() == 0
    assert listed_types(new) == DOWNGRADED


def test_a_member_of_the_classic_protocol_leaves_and_expires() -> None:
    cluster, old, new = upgraded()
    second = ClassicMember(cluster)
    assert second.join().error_code == 0
    assert old.leave() == 0
    settle_with(new, second)
    assert len(new.owned) + len(second.owned) == 4
    for _ in range(4):
        cluster.run_for(2)
        new.work()
    settle(new)
    assert len(new.owned) == 4, "the second one sent nothing for 6 s"


def settle_with(new: ConsumerMember, *old: ClassicMember) -> None:
    for _ in range(6):
        new.work()
        for one in old:
            one.work()


def test_a_static_member_that_returns_with_the_classic_protocol_makes_the_group_classic() -> None:
    cluster = started()
    before = ConsumerMember(cluster, "a", instance_id="one")
    before.work()
    before.leave(-2)
    after = ClassicMember(cluster, instance_id="one")
    response = after.join()
    assert (response.error_code, response.protocol_name) == (0, "range")
    assert listed_types(before) == DOWNGRADED
    assert after.heartbeat() == 0


@pytest.mark.parametrize(
    ("policy", "upgrades", "downgrades"),
    [
        ("bidirectional", True, True),
        ("upgrade", True, False),
        ("downgrade", False, True),
        ("disabled", False, False),
    ],
)
def test_the_migration_policy_decides(policy: str, upgrades: bool, downgrades: bool) -> None:
    cluster = started(properties={POLICY: policy})
    old, new = ClassicMember(cluster), ConsumerMember(cluster, "new")
    assert old.join().error_code == 0
    assert old.sync(leads=True).error_code == 0
    response = new.work()
    assert response.error_code == (0 if upgrades else ErrorCode.GROUP_ID_NOT_FOUND)
    if upgrades:
        new.leave()
        assert listed_types(new) == (DOWNGRADED if downgrades else UPGRADED)
        return
    assert "group.consumer.migration.policy" in response.error_message
    assert old.leave() == 0
    assert new.work().error_code == 0, "an empty classic group is replaced"
    other = ClassicMember(cluster)
    assert other.join().error_code == 0
    new.leave()
    assert listed_types(new) == (DOWNGRADED if downgrades else UPGRADED)


def test_an_empty_consumer_group_is_replaced_by_a_classic_one_and_keeps_its_offsets() -> None:
    cluster = started()
    new = ConsumerMember(cluster, "new")
    new.work()
    assert new.commit(5) == 0
    new.leave()
    old = ClassicMember(cluster)
    assert old.join().error_code == 0
    assert listed_types(new) == DOWNGRADED
    assert new.fetch() == (0, 5)


def test_a_group_of_another_protocol_type_stays_classic() -> None:
    cluster = started()
    old = ClassicMember(cluster)
    assert old.join(protocol_type="connect").error_code == 0
    assert old.sync(leads=True).error_code == 0
    response = ConsumerMember(cluster, "new").work()
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "its members are not consumers" in response.error_message
