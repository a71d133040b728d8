"""ListGroups, DescribeGroups, DeleteGroups and OffsetDelete, on the coordinator of the groups.

A group exists from its first member or commit on. A deletion appends records without a value, like any other
change (GRP-1), and the response comes when they are committed. The memory is changed as soon as the records are in
the log, so that a later request sees the deletion; offsets of commits in flight are deleted with the others.

Source:
    Kafka's `GroupCoordinatorService`, `OffsetMetadataManager.deleteOffsets`, `ClassicGroup.validateDeleteGroup`,
    `ClassicGroup.validateOffsetDelete`; KIP-229, KIP-496.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from system_under_test.broker.group_shard import AnyGroup, Shard
from system_under_test.broker.metadata_cache import MetadataCache
from system_under_test.group import descriptions
from system_under_test.group.consumer.group import ConsumerGroup, keys_of
from system_under_test.group.consumer.records import encode_record
from system_under_test.group.records import OffsetKey, encode_key
from system_under_test.group.state import Group
from system_under_test.group.subscriptions import is_consumer_group, is_subscribed
from system_under_test.group.transitions import GroupState
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    delete_groups_request,
    describe_groups_request,
    list_groups_request,
    offset_delete_request,
)
from system_under_test.rules import Rules
from system_under_test.runtime import RequestContext


class GroupAdministration:
    """Serves requests about whole groups and their offsets.

    Args:
        rules: The rules that apply.
        metadata: The existing partitions.
        shards: The offsets partitions that this broker leads, by index; changed by the coordinator.
        shard_of: Returns the loaded partition that holds a group, or why this broker does not coordinate it.
        log_errors: What a client gets for an error of an append.
    """

    def __init__(
        self,
        rules: Rules,
        metadata: MetadataCache,
        shards: Mapping[int, Shard],
        *,
        shard_of: Callable[[str], Shard | ErrorCode],
        log_errors: Mapping[ErrorCode, ErrorCode],
    ) -> None:
        self._rules = rules
        self._metadata = metadata
        self._shards = shards
        self._shard_of = shard_of
        self._log_errors = log_errors

    def services(self) -> dict[type, Callable[[Any, RequestContext], Any]]:
        """Returns the handler of every type of request."""
        return {
            list_groups_request.ListGroupsRequest: self._list,
            describe_groups_request.DescribeGroupsRequest: self._describe,
            delete_groups_request.DeleteGroupsRequest: self._delete,
            offset_delete_request.OffsetDeleteRequest: self._delete_offsets,
        }

    # --- reading ---------------------------------------------------------------------------------------

    def _list(self, request: Any, _context: RequestContext) -> Any:
        current = [shard for _, shard in sorted(self._shards.items()) if shard.log.is_current]
        if not all(shard.log.is_loaded for shard in current):
            return descriptions.listed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        states = {one.strip().lower() for one in request.states_filter}
        types = {one.strip().lower() for one in request.types_filter}
        groups = [descriptions.listing(group) for shard in current for group in shard.all_groups()]
        return descriptions.listed(
            ErrorCode.NONE,
            [
                group
                for group in groups
                if (not states or group.group_state.lower() in states)
                and (not types or group.group_type in types)
            ],
        )

    def _describe(self, request: Any, context: RequestContext) -> Any:
        return descriptions.described(
            self._description(group_id, context.api_version) for group_id in request.groups
        )

    def _description(self, group_id: str, version: int) -> Any:
        shard = self._shard_of(group_id)
        if isinstance(shard, ErrorCode):
            return descriptions.no_description(group_id, shard)
        group = shard.groups.get(group_id)
        if group is None:
            return descriptions.unknown_group(group_id, version)
        return descriptions.description(group)

    # --- groups ----------------------------------------------------------------------------------------

    def _delete(self, request: Any, _context: RequestContext) -> Any:
        results: dict[str, ErrorCode] = dict.fromkeys(request.groups_names, ErrorCode.NONE)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        waits_for = len(results)

        def decided(group_id: str, error: ErrorCode) -> None:
            nonlocal waits_for
            results[group_id] = error
            waits_for -= 1
            if not waits_for and not future.done():
                future.set_result(descriptions.deleted(results))

        if not results:
            return descriptions.deleted(results)
        for one in list(results):
            self._delete_group(one, partial(decided, one))
        return future.result() if future.done() else future

    def _delete_group(self, group_id: str, done: Callable[[ErrorCode], None]) -> None:
        shard = self._shard_of(group_id)
        if isinstance(shard, ErrorCode):
            done(shard)
            return
        group = shard.group(group_id)
        if group is None:
            done(ErrorCode.GROUP_ID_NOT_FOUND)
            return
        # [GRP-5] Its members would go on with partitions and offsets of a group that another may create anew.
        if not _is_empty(group) and self._rules("GRP-5"):
            done(ErrorCode.NON_EMPTY_GROUP)
            return
        keys = shard.known_offsets(group_id)
        members: Sequence[bytes] = (encode_key(group_id),)
        if isinstance(group, ConsumerGroup):
            members = [encode_record(key, None)[0] for key in keys_of(group)]

        def forget() -> None:
            if shard.group(group_id) is group:
                shard.drop(group_id)
            _forget_offsets(shard, keys)

        self._append(shard, [*map(encode_key, keys), *members], forget, done)

    # --- offsets ---------------------------------------------------------------------------------------

    def _delete_offsets(self, request: Any, _context: RequestContext) -> Any:
        places = [
            (topic.name, one.partition_index)
            for topic in request.topics
            for one in topic.partitions
        ]
        results = {
            place: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for place in places
            if not self._metadata.has_partition(*place)
        }
        error, group, shard = self._offsets_of(request.group_id)
        if group is None or shard is None:
            return descriptions.offsets_refused(error)
        keys = []
        for topic, partition in places:
            if (topic, partition) in results:
                continue
            # [GRP-5] A member that starts over would read the topic from its beginning, or skip records.
            if self._rules("GRP-5") and _reads(group, topic):
                results[(topic, partition)] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                results[(topic, partition)] = ErrorCode.NONE
                keys.append(OffsetKey(group=request.group_id, topic=topic, partition=partition))
        existing = set(shard.known_offsets(request.group_id))
        keys = [key for key in keys if key in existing]
        if not keys:
            return descriptions.offsets_deleted(request, results)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(error: ErrorCode) -> None:
            if not future.done():
                future.set_result(
                    descriptions.offsets_deleted(request, results)
                    if error is ErrorCode.NONE
                    else descriptions.offsets_refused(error)
                )

        encoded = [encode_key(key) for key in keys]
        self._append(shard, encoded, lambda: _forget_offsets(shard, keys), done)
        return future.result() if future.done() else future

    def _offsets_of(self, group_id: str) -> tuple[ErrorCode, AnyGroup | None, Shard | None]:
        """Returns the group whose offsets may be deleted, or an error."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID, None, None
        shard = self._shard_of(group_id)
        if isinstance(shard, ErrorCode):
            return shard, None, None
        group = shard.group(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND, None, None
        # Only of consumers is it known which topics they read.
        if isinstance(group, Group) and not _is_empty(group) and not is_consumer_group(group):
            return ErrorCode.NON_EMPTY_GROUP, None, None
        return ErrorCode.NONE, group, shard

    # --- storing ---------------------------------------------------------------------------------------

    def _append(
        self,
        shard: Shard,
        keys: Iterable[bytes],
        forget: Callable[[], None],
        done: Callable[[ErrorCode], None],
    ) -> None:
        """Appends a record without a value for every key.

        Args:
            shard: Where the group is.
            keys: Of offsets, and of the group itself, encoded.
            forget: Changes the memory; called when the records are in the log, and again when they are committed,
                because a commit that was in flight may have been entered meanwhile.
            done: Called once with the outcome.
        """
        is_refused = False

        def decided(error: ErrorCode) -> None:
            nonlocal is_refused
            is_refused = error is not ErrorCode.NONE
            if not is_refused:
                forget()
            done(self._log_errors.get(error, error))

        shard.log.append([(key, None) for key in keys], decided)
        if not is_refused:
            forget()


def _is_empty(group: AnyGroup) -> bool:
    if isinstance(group, ConsumerGroup):
        return not group.members
    return group.state is GroupState.EMPTY


def _reads(group: AnyGroup, topic: str) -> bool:
    if isinstance(group, ConsumerGroup):
        return topic in group.topic_names(group.members.values())
    return is_subscribed(group, topic)


def _forget_offsets(shard: Shard, keys: Iterable[OffsetKey]) -> None:
    for key in keys:
        shard.log.set_offset(key, None)
