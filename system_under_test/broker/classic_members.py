"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of members of consumer groups that use the classic protocol.

Decisions are in `group/consumer/classic_members.py`. These members have two more timeouts: to join again after a
Heartbeat has told them to, and to sync after they joined.

Source:
    Kafka's `GroupMetadataManager` (`classicGroupJoinToConsumerGroup` and the like); KIP-848.
"""

from typing import Any

from system_under_test.broker.consumer_groups import ConsumerGroups
from system_under_test.broker.group_shard import Shard
from system_under_test.group import responses
from system_under_test.group.consumer import classic_members, migration
from system_under_test.group.consumer.classic_members import classic_member
from system_under_test.group.consumer.deadlines import Reason
from system_under_test.group.consumer.group import ConsumerGroup, Draft
from system_under_test.group.consumer.heartbeat import known_static
from system_under_test.group.consumer.members import ConsumerMember
from system_under_test.group.consumer.requests import GroupError
from system_under_test.group.members import JoinRequest, JoinResult, SyncResult
from system_under_test.group.subscriptions import CONSUMER_PROTOCOL
from system_under_test.protocol.errors import ErrorCode


class ClassicMembers:
    """Serves the classic protocol in consumer groups.

    Args:
        groups: The consumer groups.
    """

    def __init__(self, groups: ConsumerGroups) -> None:
        self._groups = groups
        self._store = groups.store

    def join(self, shard: Shard, group: ConsumerGroup, request: JoinRequest) -> Any:
        """Serves JoinGroup."""
        settings = self._groups.settings
        low, high = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
        if not low <= request.session_timeout_ms <= high:
            return responses.join_refused(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)
        try:
            return self._join(shard, group, request)
        except GroupError as error:
            return responses.join_refused(error.code, request.member_id)

    def _join(self, shard: Shard, group: ConsumerGroup, request: JoinRequest) -> Any:
        member_id = request.member_id
        if not member_id:
            name = request.instance_id or request.client_id
            member_id = self._groups.new_member_id(name)
        self._groups.check_room(group, member_id)
        classic_members.check_protocols(group, request)
        if not request.member_id and not request.instance_id and request.needs_known_member_id:
            return responses.join_refused(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        draft = Draft(group)
        replaced = group.member_of_instance(request.instance_id)
        member = classic_members.join(draft, request, member_id, self._store.surroundings())
        joined = JoinResult(
            error=ErrorCode.NONE,
            member_id=member_id,
            generation=member.epoch,
            protocol_type=CONSUMER_PROTOCOL,
            protocol_name=classic_members.protocol_of(member),
        )

        def respond() -> Any:
            self._joined(shard, group.group_id, member)
            return responses.of_result(joined)

        def refuse(error: ErrorCode) -> Any:
            return responses.join_refused(error, member_id)

        if replaced is not None and migration.must_downgrade(
            group, draft.group, self._groups.settings
        ):
            # The last member of the consumer protocol was restarted with the classic one.
            install, record = self._groups.classic_successor(shard, draft.group, rebalances=False)
            draft.remove_group()
            return self._store.store(shard, draft, install, respond, refuse, after=(record,))
        after = draft.group
        return self._store.store(
            shard, draft, lambda: self._store.install(shard, after), respond, refuse
        )

    def _joined(self, shard: Shard, group_id: str, member: ConsumerMember) -> None:
        group = shard.consumer_groups.get(group_id)
        if group is None or member.member_id not in group.members:
            return
        shard.deadlines[group_id].clear(member.member_id, Reason.JOIN)
        self._store.begin_session(shard, group, member.member_id)
        timeout_ms = member.subscription.rebalance_timeout_ms
        self._store.set_deadline(shard, group, member.member_id, Reason.SYNC, timeout_ms)

    def sync(self, shard: Shard, group: ConsumerGroup, request: Any) -> Any:
        """Serves SyncGroup."""
        try:
            member = classic_member(group, request.member_id, request.group_instance_id)
            classic_members.check_generation(member, request.generation_id)
            classic_members.check_named_protocol(
                member, request.protocol_type, request.protocol_name
            )
            if classic_members.must_join_before_sync(group, member):
                self._expect_join(shard, group, member)
                return responses.sync_refused(ErrorCode.REBALANCE_IN_PROGRESS)
            result = SyncResult(
                error=ErrorCode.NONE,
                protocol_type=request.protocol_type,
                protocol_name=request.protocol_name,
                assignment=classic_members.share_of(member, self._groups.topic_of),
            )
        except GroupError as error:
            return responses.sync_refused(error.code)

        def respond() -> Any:
            now = shard.consumer_groups.get(group.group_id)
            if now is not None and member.member_id in now.members:
                shard.deadlines[group.group_id].clear(member.member_id, Reason.SYNC)
                self._store.begin_session(shard, now, member.member_id)
            return responses.of_result(result)

        # What the member learns must not be lost with this coordinator.
        return self._store.store(shard, Draft(group), lambda: None, respond, responses.sync_refused)

    def heartbeat(self, shard: Shard, group: ConsumerGroup, request: Any) -> Any:
        """Serves Heartbeat."""
        try:
            member = classic_member(group, request.member_id, request.group_instance_id)
            classic_members.check_generation(member, request.generation_id)
        except GroupError as error:
            return responses.heartbeat(error.code)
        self._store.begin_session(shard, group, member.member_id)
        if not classic_members.must_join_again(group, member):
            return responses.heartbeat(ErrorCode.NONE)
        self._expect_join(shard, group, member)
        return responses.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)

    def _expect_join(self, shard: Shard, group: ConsumerGroup, member: ConsumerMember) -> None:
        timeout_ms = member.subscription.rebalance_timeout_ms
        self._store.set_deadline(
            shard, group, member.member_id, Reason.JOIN, timeout_ms, is_kept=True
        )

    def leave(self, shard: Shard, group: ConsumerGroup, request: Any) -> Any:
        """Serves LeaveGroup, with which administrators remove members of both protocols."""
        results: list[tuple[Any, ErrorCode]] = []
        leaving: list[str] = []
        for one in request.members:
            try:
                member = self._leaver(group, one.member_id, one.group_instance_id)
                results.append((one, ErrorCode.NONE))
                if member.member_id not in leaving:
                    leaving.append(member.member_id)
            except GroupError as error:
                results.append((one, error.code))
        if not leaving:
            return responses.leave(results)
        return self._groups.remove(
            shard, group, leaving, lambda: responses.leave(results), responses.leave_refused
        )

    @staticmethod
    def _leaver(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
        if instance_id is not None:
            known = group.member_of_instance(instance_id)
            named = member_id or (known.member_id if known is not None else "")
            return known_static(known, instance_id, named)
        found = group.members.get(member_id)
        if found is None:
            raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id!r} is not a member")
        return found
