"""Consumer groups (KIP-848) on their coordinator: heartbeats, descriptions, and changes of a group's type.

Decisions are in `group/consumer`, storing and timeouts in `consumer_group_store.py`, the requests of members that
use the classic protocol in `classic_members.py`.

Source:
    Kafka's `GroupCoordinatorService` and `GroupMetadataManager`; KIP-848.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from system_under_test.broker.consumer_group_store import ConsumerGroupStore, Pair, Refuse
from system_under_test.broker.group_shard import Shard
from system_under_test.broker.metadata_cache import MetadataCache
from system_under_test.config import GroupConfig, NodeConfig
from system_under_test.group.consumer import heartbeat, messages, migration
from system_under_test.group.consumer.assigning import preferred_assignor
from system_under_test.group.consumer.group import ConsumerGroup, Draft
from system_under_test.group.consumer.members import JOIN_EPOCH, STATIC_LEAVE_EPOCH, Partition
from system_under_test.group.consumer.requests import (
    GroupError,
    HeartbeatRequest,
    HeartbeatResult,
    check_heartbeat,
)
from system_under_test.group.consumer.topics import Topics
from system_under_test.group.records import encode_key
from system_under_test.group.state import Group
from system_under_test.group.transitions import GroupState
from system_under_test.metadata.image import GROUP_FEATURE
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    consumer_group_describe_request,
    consumer_group_heartbeat_request,
)
from system_under_test.runtime import Host, RequestContext

CLASSIC, CONSUMER = "classic", "consumer"
REBALANCE_PROTOCOLS = "group.coordinator.rebalance.protocols"
MIGRATION_POLICY = "group.consumer.migration.policy"
MEMBER_EPOCH_SINCE = 9
"""First version of OffsetCommit that members of the consumer protocol may use."""
ANY_VERSION = -1
"""Stands for the version of a request that members of the consumer protocol may use in all versions."""


class ConsumerGroups:
    """The consumer groups of a coordinator.

    Args:
        host: The node's interfaces to the outside.
        config: Group settings, features, rules.
        metadata: Topics and feature levels.
        shard_of: Returns the loaded partition that holds a group, or why this broker does not coordinate it.
        log_errors: What a client gets for an error of an append.
        new_member_id: Makes a member id from a client id.
        new_classic_group: Makes an empty classic group.
        classic_group_changed: Called with a classic group that begins or ends here.
        classic_record: Encodes the value of a classic group.
    """

    def __init__(
        self,
        host: Host,
        config: NodeConfig,
        metadata: MetadataCache,
        *,
        shard_of: Callable[[str], Shard | ErrorCode],
        log_errors: Mapping[ErrorCode, ErrorCode],
        new_member_id: Callable[[str], str],
        new_classic_group: Callable[[str], Group],
        classic_group_changed: Callable[[Shard, Group], None],
        classic_record: Callable[[Group], bytes],
    ) -> None:
        self._features = config.features
        self._rules = config.rules
        self.settings = _settings(config)
        self.store = ConsumerGroupStore(
            host,
            self.settings,
            config.rules,
            metadata,
            features=config.features,
            log_errors=log_errors,
        )
        self.store.on_timeout = self._time_out
        self._metadata = metadata
        self._shard_of = shard_of
        self.new_member_id = new_member_id
        self._new_classic_group = new_classic_group
        self._classic_group_changed = classic_group_changed
        self._classic_record = classic_record

    def services(self) -> dict[type, Callable[[Any, RequestContext], Any]]:
        """Returns the handler of every type of request."""
        return {
            consumer_group_heartbeat_request.ConsumerGroupHeartbeatRequest: self._heartbeat,
            consumer_group_describe_request.ConsumerGroupDescribeRequest: self._describe,
        }

    def loaded(self, shard: Shard) -> None:
        """Takes the groups that were read from the log; every member gets a full session timeout."""
        for group in shard.log.consumer_groups.values():
            self.store.install(shard, group)
            self._begin_sessions(shard, group)

    @property
    def _is_enabled(self) -> bool:
        is_allowed = CONSUMER in self.settings.group_coordinator_rebalance_protocols
        if self._features.has_group_version:
            return is_allowed and self._metadata.image.features.get(GROUP_FEATURE, 0) > 0
        return is_allowed

    def _begin_sessions(self, shard: Shard, group: ConsumerGroup) -> None:
        for member_id in group.members:
            self.store.begin_session(shard, group, member_id)

    # --- heartbeats ------------------------------------------------------------------------------------

    def _heartbeat(self, message: Any, context: RequestContext) -> Any:
        if not self._is_enabled:
            return messages.heartbeat_refused(ErrorCode.UNSUPPORTED_VERSION)
        host = "/" + context.peer.rpartition(":")[0]
        request = messages.heartbeat_request(message, context.client_id, host)
        try:
            check_heartbeat(request, context.api_version, self.settings.group_consumer_assignors)
            shard = self._shard_of(request.group_id)
            if isinstance(shard, ErrorCode):
                return messages.heartbeat_refused(shard)
            if request.is_leaving:
                return self._leave(shard, request)
            return self._stay(shard, request)
        except GroupError as error:
            return messages.heartbeat_refused(error.code, str(error))

    def _stay(self, shard: Shard, request: HeartbeatRequest) -> Any:
        draft, classic = self._draft_for(shard, request)
        group = draft.group
        self.check_room(group, request.member_id)
        if not request.member_id:  # in version 0 the coordinator makes the id
            request = replace(request, member_id=self.new_member_id(request.client_id))
        result = heartbeat.heartbeat(draft, request, self.store.surroundings())

        def install() -> None:
            if classic is not None:
                classic.give_up(ErrorCode.REBALANCE_IN_PROGRESS)
                self._classic_group_changed(shard, classic)
                shard.drop(classic.group_id)
            self.store.install(shard, group)
            if classic is not None:
                self._begin_sessions(shard, group)
            self.store.begin_session(shard, group, result.member_id)

        interval_ms = self.settings.group_consumer_heartbeat_interval_ms
        return self.store.store(
            shard,
            draft,
            install,
            lambda: messages.heartbeat_response(result, interval_ms),
            messages.heartbeat_refused,
            before=() if classic is None else ((encode_key(request.group_id), None),),
        )

    def check_room(self, group: ConsumerGroup, member_id: str) -> None:
        """Refuses a new member of a group that is full.

        Raises:
            GroupError: GROUP_MAX_SIZE_REACHED.
        """
        is_full = len(group.members) >= self.settings.group_consumer_max_size
        if is_full and member_id not in group.members:
            raise GroupError(
                ErrorCode.GROUP_MAX_SIZE_REACHED, "the group has group.consumer.max.size members"
            )

    def _draft_for(self, shard: Shard, request: HeartbeatRequest) -> tuple[Draft, Group | None]:
        """Returns the group of a request, and the classic group that it replaces if it does."""
        group = shard.consumer_groups.get(request.group_id)
        if group is not None:
            return Draft(group), None
        if request.epoch != JOIN_EPOCH:
            raise self._no_group(request.group_id)
        classic = shard.groups.get(request.group_id)
        if classic is None or classic.state is GroupState.EMPTY:
            return Draft(ConsumerGroup(group_id=request.group_id)), classic
        return migration.upgraded(classic, Topics(self._metadata.image), self.settings), classic

    def _no_group(self, group_id: str) -> GroupError:
        return GroupError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group {group_id!r}")

    # --- leaving ---------------------------------------------------------------------------------------

    def _leave(self, shard: Shard, request: HeartbeatRequest) -> Any:
        group = shard.consumer_groups.get(request.group_id)
        if group is None:
            raise self._no_group(request.group_id)
        member = heartbeat.leaver(group, request)

        def response() -> Any:
            result = HeartbeatResult(member_id=member.member_id, epoch=request.epoch)
            return messages.heartbeat_response(result, 0)

        if request.epoch == STATIC_LEAVE_EPOCH:
            draft = Draft(group)
            heartbeat.pause(draft, member)
            install = partial(self.store.install, shard, draft.group)
            return self.store.store(shard, draft, install, response, messages.heartbeat_refused)
        return self.remove(shard, group, [member.member_id], response, messages.heartbeat_refused)

    def remove(
        self,
        shard: Shard,
        group: ConsumerGroup,
        member_ids: list[str],
        response: Callable[[], Any],
        refuse: Refuse,
    ) -> Any:
        """Removes members; the group becomes a classic one if only members of that protocol remain."""
        draft = Draft(group)
        staying = group.copy()
        for member_id in member_ids:
            del staying.members[member_id]
        if migration.must_downgrade(group, staying, self.settings):
            draft.remove_group()
            install, record = self.classic_successor(shard, staying, rebalances=True)
            return self.store.store(shard, draft, install, response, refuse, after=(record,))
        heartbeat.remove(draft, member_ids, self.store.surroundings())
        install = partial(self.store.install, shard, draft.group)
        return self.store.store(shard, draft, install, response, refuse)

    def delete_empty(self, shard: Shard, group: ConsumerGroup) -> bool:
        """Deletes a group without members, because a classic group takes its id; returns whether that worked."""
        draft = Draft(group)
        draft.remove_group()
        dropped = partial(shard.drop, group.group_id)
        self.store.store(shard, draft, dropped, lambda: None, lambda _: None)
        return group.group_id not in shard.consumer_groups

    def _time_out(
        self,
        shard: Shard,
        group: ConsumerGroup,
        member_id: str,
        decided: Callable[[ErrorCode], None],
    ) -> None:
        self.remove(shard, group, [member_id], partial(decided, ErrorCode.NONE), decided)

    def classic_successor(
        self, shard: Shard, group: ConsumerGroup, *, rebalances: bool
    ) -> tuple[Callable[[], None], Pair]:
        """Returns how a classic group takes the place of a consumer group, and the record of that."""
        classic = self._new_classic_group(group.group_id)
        migration.fill_classic(classic, group, self.topic_of, self.store.now_ms())

        def install() -> None:
            shard.drop(group.group_id)
            shard.groups[group.group_id] = classic
            if rebalances:
                classic.begin_rebalance(self.store.now_ms())
            self._classic_group_changed(shard, classic)

        return install, (encode_key(group.group_id), self._classic_record(classic))

    def topic_of(self, partition: Partition) -> str | None:
        """Returns the name of a partition's topic, None if it does not exist any more."""
        return self._metadata.topic_name(partition[0])

    # --- reading ---------------------------------------------------------------------------------------

    def _describe(self, request: Any, _context: RequestContext) -> Any:
        if not self._is_enabled:
            error = ErrorCode.UNSUPPORTED_VERSION
            return messages.described(
                [messages.no_description(group_id, error) for group_id in request.group_ids]
            )
        return messages.described([self._description(group_id) for group_id in request.group_ids])

    def _description(self, group_id: str) -> Any:
        shard = self._shard_of(group_id)
        if isinstance(shard, ErrorCode):
            return messages.no_description(group_id, shard)
        group = shard.consumer_groups.get(group_id)
        if group is None:
            return messages.no_description(
                group_id, ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group {group_id!r}"
            )
        assignor = preferred_assignor(group, self.settings.group_consumer_assignors)
        return messages.description(group, assignor, self._metadata.topic_name)

    # --- offsets ---------------------------------------------------------------------------------------

    def commit_error(
        self, group: ConsumerGroup, member_id: str, epoch: int, version: int
    ) -> ErrorCode:
        """Returns why an offset commit is refused, `NONE` if it is acceptable now."""
        if epoch < 0 and not group.members:
            return ErrorCode.NONE
        member = group.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not member.is_classic and 0 <= version < MEMBER_EPOCH_SINCE:
            return ErrorCode.UNSUPPORTED_VERSION
        # [GRP-12] A member of another epoch may commit for partitions that now belong to others.
        if member.epoch == epoch or not self._rules("GRP-12"):
            return ErrorCode.NONE
        return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH

    def fetch_error(self, group: ConsumerGroup, member_id: str | None, epoch: int) -> ErrorCode:
        """Returns why the offsets of a group are not shown to a member, `NONE` if they are."""
        if member_id is None and epoch < 0:
            return ErrorCode.NONE  # an administrator, or a client that knows no epochs
        member = group.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member.epoch == epoch:
            return ErrorCode.NONE
        return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH


def _settings(config: NodeConfig) -> GroupConfig:
    """Returns the group settings with the defaults of the release."""
    settings = config.group
    if config.features.has_group_version:
        return settings
    chosen = dict(config.properties)
    if REBALANCE_PROTOCOLS not in chosen:
        settings = replace(settings, group_coordinator_rebalance_protocols=(CLASSIC,))
    if MIGRATION_POLICY not in chosen:
        settings = replace(settings, group_consumer_migration_policy="disabled")
    return settings
