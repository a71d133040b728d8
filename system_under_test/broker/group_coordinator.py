"""The group coordinator of a broker: for the groups whose offsets partition it leads.

The state machine of a group is in `group/state.py`, its stored records in `offsets_log.py`; this module dispatches
requests to the right group, responds when a result is due, and loads and unloads groups with the leadership of
their partition.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any
from uuid import UUID

from system_under_test.broker.classic_members import ClassicMembers
from system_under_test.broker.consumer_groups import ANY_VERSION, ConsumerGroups
from system_under_test.broker.group_administration import GroupAdministration
from system_under_test.broker.group_shard import Shard
from system_under_test.broker.join_requests import join_request
from system_under_test.broker.metadata_cache import OFFSETS_TOPIC, MetadataCache
from system_under_test.broker.offsets_by_id import OffsetsById
from system_under_test.broker.offsets_log import OffsetsLog, led_partitions
from system_under_test.broker.replica_manager import ReplicaManager
from system_under_test.broker.tasks import TaskScope
from system_under_test.broker.transactional_offsets import TransactionalOffsets, with_unstable
from system_under_test.config import NodeConfig
from system_under_test.group import responses
from system_under_test.group.consumer.group import ConsumerGroup
from system_under_test.group.members import NEVER_MS
from system_under_test.group.records import (
    CommittedOffset,
    OffsetKey,
    encode_group,
    encode_key,
    encode_offset,
    offsets_partition,
)
from system_under_test.group.state import Group
from system_under_test.group.stored import restore_group, stored_group
from system_under_test.group.transitions import GroupState
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    create_topics_request,
    find_coordinator_request,
    heartbeat_request,
    join_group_request,
    leave_group_request,
    millis,
    offset_commit_request,
    offset_fetch_request,
    sync_group_request,
    txn_offset_commit_request,
)
from system_under_test.runtime import Host, RequestContext

NS_PER_MS = 1_000_000
GROUP_KEY_TYPE = 0
TRANSACTION_KEY_TYPE = 1
FORGOTTEN_AT_ONCE = 1000
"""Number of offsets that one batch removes, so that the batch stays far below the size limit of a log."""
CREATE_TIMEOUT_MS = 10_000
OFFSETS_TOPIC_CONFIGS = tuple(
    create_topics_request.CreatableTopicConfig(name=name, value=value)
    for name, value in (
        ("cleanup.policy", "compact"),
        ("compression.type", "producer"),
        ("segment.bytes", str(100 << 20)),
    )
)
"""As in Kafka: only the last record of a group and of an offset is needed; small segments load faster."""
GROUP_NOT_FOUND_SINCE = 9
"""First version of OffsetCommit with an error for a generation of a group that does not exist (KIP-848)."""

_STORE_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}


class GroupCoordinator:
    """Serves the requests of consumer groups.

    Args:
        host: The node's interfaces to the outside.
        config: Group settings, rules, timings.
        metadata: The leaders of the offsets partitions, and the existing topics.
        replicas: The offsets partitions on this broker.
        forward: Sends a CreateTopicsRequest to the active controller.
        scope: Runs the tasks that load partitions.
    """

    def __init__(
        self,
        host: Host,
        config: NodeConfig,
        metadata: MetadataCache,
        replicas: ReplicaManager,
        forward: Callable[[Any], Any],
        scope: TaskScope,
    ) -> None:
        self._host = host
        self._config = config
        self._settings = config.group
        self._metadata = metadata
        self._replicas = replicas
        self._forward = forward
        self._scope = scope
        self._ids = host.random.stream("group-member-ids")
        self._shards: dict[int, Shard] = {}
        # Finds the coordinator of a transactional id; the owner replaces it.
        self.coordinator_of_transaction: Callable[[str], Any] = responses.no_such_type
        self._creation: asyncio.Future[Any] | None = None
        self._is_stopped = False
        self._consumer_groups = ConsumerGroups(
            host,
            config,
            metadata,
            shard_of=self._shard_of,
            log_errors=_STORE_ERRORS,
            new_member_id=self._new_member_id,
            new_classic_group=self._new_group,
            classic_group_changed=self._migrated,
            classic_record=lambda group: encode_group(stored_group(group, host.clock.wall_ms())),
        )
        self._classic_members = ClassicMembers(self._consumer_groups)
        self.transactional = TransactionalOffsets(
            host,
            self._settings,
            metadata,
            shard_of=partial(self._shard_of, for_offsets=True),
            refusal=self._transactional_refusal,
            log_errors=_STORE_ERRORS,
        )
        self._administration = GroupAdministration(
            config.rules,
            metadata,
            self._shards,
            shard_of=partial(self._shard_of, for_offsets=True),
            log_errors=_STORE_ERRORS,
        )

    def services(self) -> dict[type, Callable[[Any, RequestContext], Any]]:
        """Returns the handler of every type of request."""
        return {
            find_coordinator_request.FindCoordinatorRequest: self._find_coordinator,
            join_group_request.JoinGroupRequest: self._join,
            sync_group_request.SyncGroupRequest: self._sync,
            heartbeat_request.HeartbeatRequest: self._heartbeat,
            leave_group_request.LeaveGroupRequest: self._leave,
            offset_commit_request.OffsetCommitRequest: self._commit,
            offset_fetch_request.OffsetFetchRequest: self._fetch,
            txn_offset_commit_request.TxnOffsetCommitRequest: self.transactional.handle,
            **OffsetsById(self._metadata, self._commit, self._fetch).services(),
            **self._consumer_groups.services(),
            **self._administration.services(),
        }

    # --- leadership ------------------------------------------------------------------------------------

    def roles_changed(self) -> None:
        """Loads and unloads groups; called after every publish that changed replicas of this broker."""
        if self._is_stopped:
            return
        led = dict(led_partitions(self._replicas.partitions, OFFSETS_TOPIC))
        for index, shard in list(self._shards.items()):
            if index not in led or not shard.log.is_current:
                self._give_up(index)
        for index, partition in sorted(led.items()):
            if index not in self._shards:
                log = OffsetsLog(
                    self._host,
                    partition,
                    rules=self._config.rules,
                    timeout_ms=self._settings.offset_commit_timeout_ms,
                )
                shard = self._shards[index] = Shard(log)
                self._scope.spawn(self._load(index, shard), f"load-offsets-{index}")

    def topics_removed(self, names: Collection[str]) -> None:
        """Removes the offsets that groups have committed for deleted topics.

        Otherwise they would skip the beginning of topics that get the same names later.
        """
        removed = frozenset(names)
        for shard in self._shards.values():
            if shard.log.is_loaded:
                self._forget(shard, shard.log.keys_of(removed.__contains__))
            else:
                shard.removed_meanwhile |= removed

    def _forget(self, shard: Shard, keys: Iterable[OffsetKey]) -> None:
        every = list(keys)
        for start in range(0, len(every), FORGOTTEN_AT_ONCE):
            gone = every[start : start + FORGOTTEN_AT_ONCE]
            forget = partial(_remove_offsets, shard.log, gone)
            forget(ErrorCode.NONE)
            # Once more after the append: a commit that was in flight may have been stored meanwhile.
            shard.log.append([(encode_key(key), None) for key in gone], forget)

    def stop(self) -> None:
        """Unloads all groups; none is loaded afterwards."""
        self._is_stopped = True
        for index in list(self._shards):
            self._give_up(index)

    def _give_up(self, index: int) -> None:
        shard = self._shards.pop(index)
        for timer in shard.timers.values():
            timer.cancel()
        for group in shard.groups.values():
            group.give_up(ErrorCode.NOT_COORDINATOR)
            self._deliver(group)

    def _migrated(self, shard: Shard, group: Group) -> None:
        """Goes on with a classic group that was a consumer group, or ends one that becomes a consumer group."""
        self._deliver(group)
        self._arm(shard, group)

    async def _load(self, index: int, shard: Shard) -> None:
        if not await shard.log.load() or self._shards.get(index) is not shard:
            return
        topics = self._metadata.image.topics_by_name
        # The previous leader could not remove the offsets of topics that were deleted while there was no leader.
        self._forget(
            shard,
            shard.log.keys_of(lambda name: name not in topics or name in shard.removed_meanwhile),
        )
        now_ms = self._now_ms()
        for group_id, stored in shard.log.groups.items():
            group = shard.groups[group_id] = self._new_group(group_id)
            restore_group(group, stored, now_ms)
            self._arm(shard, group)
        self._host.observer.mark(
            "groups-loaded", partition=index, groups=len(shard.groups), epoch=shard.log.leader_epoch
        )
        self._consumer_groups.loaded(shard)
        for group_id, offsets in shard.log.offsets.items():
            # A group that never had members has no record of its own.
            is_known = group_id in shard.groups or group_id in shard.consumer_groups
            if offsets and not is_known:
                shard.groups[group_id] = self._new_group(group_id)

    # --- finding ---------------------------------------------------------------------------------------

    def _find_coordinator(self, request: Any, _context: RequestContext) -> Any:
        return responses.find_coordinator(
            self._coordinator(key)
            if request.key_type == GROUP_KEY_TYPE
            else self.coordinator_of_transaction(key)
            if request.key_type == TRANSACTION_KEY_TYPE
            else responses.no_such_type(key)
            for key in request.coordinator_keys
        )

    def _coordinator(self, group_id: str) -> Any:
        image = self._metadata.image
        topic = image.topics_by_name.get(OFFSETS_TOPIC)
        if topic is None:
            self._create_topic()
            return responses.coordinator(group_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        index = offsets_partition(group_id, len(image.partitions_of(topic.topic_id)))
        leader = image.partitions[(topic.topic_id, index)].leader
        address = self._metadata.alive_address(leader)
        if address is None:
            return responses.coordinator(group_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return responses.coordinator(group_id, ErrorCode.NONE, leader, address)

    def _create_topic(self) -> None:
        if self._creation is not None and not self._creation.done():
            return
        response = self._forward(
            create_topics_request.CreateTopicsRequest(
                topics=(
                    create_topics_request.CreatableTopic(
                        name=OFFSETS_TOPIC,
                        num_partitions=self._settings.offsets_topic_num_partitions,
                        # Never fewer than configured, as in Kafka: the topic stays as it is created, and until
                        # so many brokers have registered there is no coordinator.
                        replication_factor=self._settings.offsets_topic_replication_factor,
                        assignments=(),
                        configs=OFFSETS_TOPIC_CONFIGS,
                    ),
                ),
                timeout=millis(CREATE_TIMEOUT_MS),
                validate_only=False,
            )
        )
        self._creation = response if isinstance(response, asyncio.Future) else None

    def _shard_of(self, group_id: str, *, for_offsets: bool = False) -> Shard | ErrorCode:
        """Returns the loaded partition that holds a group, or why this broker does not coordinate it.

        Args:
            group_id: The group. The empty one has offsets, from times when that was its default, but no members.
            for_offsets: Whether the request is about offsets, not about membership.
        """
        if not group_id and not for_offsets:
            return ErrorCode.INVALID_GROUP_ID
        topic = self._metadata.image.topics_by_name.get(OFFSETS_TOPIC)
        if topic is None:
            return ErrorCode.NOT_COORDINATOR
        count = len(self._metadata.image.partitions_of(topic.topic_id))
        shard = self._shards.get(offsets_partition(group_id, count))
        if shard is None or not shard.log.is_current:
            return ErrorCode.NOT_COORDINATOR
        return shard if shard.log.is_loaded else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def _new_group(self, group_id: str) -> Group:
        return Group(
            group_id=group_id,
            config=self._settings,
            new_member_id=self._new_member_id,
            rules=self._config.rules,
        )

    def _new_member_id(self, client: str) -> str:
        return f"{client}-{self._ids.getrandbits(128):032x}"

    # --- membership ------------------------------------------------------------------------------------

    def _join(self, request: Any, context: RequestContext) -> Any:
        shard = self._shard_of(request.group_id)
        if isinstance(shard, ErrorCode):
            return responses.join_refused(shard, request.member_id)
        asked = join_request(request, context)
        consumers = shard.consumer_groups.get(request.group_id)
        if consumers is not None and consumers.members:
            return self._classic_members.join(shard, consumers, asked)
        group = shard.groups.get(request.group_id)
        is_new = group is None
        if group is None:
            if request.member_id:
                return responses.join_refused(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
            if consumers is not None and not self._consumer_groups.delete_empty(shard, consumers):
                return responses.join_refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
            group = shard.groups[request.group_id] = self._new_group(request.group_id)
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        group.join(asked, waiter, self._now_ms())
        if is_new and not group.has_clients:
            # A refused request does not create a group.
            del shard.groups[request.group_id]
        return self._result(shard, group, waiter)

    def _sync(self, request: Any, _context: RequestContext) -> Any:
        consumers = self._consumer_group(request.group_id)
        if consumers is not None:
            return self._classic_members.sync(*consumers, request)
        shard, group = self._known_group(request.group_id)
        if isinstance(group, ErrorCode) or isinstance(shard, ErrorCode):
            return responses.sync_refused(group if isinstance(group, ErrorCode) else shard)
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        must_store = group.sync(
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            (request.protocol_type, request.protocol_name),
            {one.member_id: bytes(one.assignment) for one in request.assignments},
            waiter,
            self._now_ms(),
        )
        if must_store:
            self._store_group(shard, group)
            if not self._config.rules("GRP-3"):
                group.assignment_stored(group.generation, ErrorCode.NONE, self._now_ms())
        return self._result(shard, group, waiter)

    def _heartbeat(self, request: Any, _context: RequestContext) -> Any:
        consumers = self._consumer_group(request.group_id)
        if consumers is not None:
            return self._classic_members.heartbeat(*consumers, request)
        shard, group = self._known_group(request.group_id)
        if isinstance(group, ErrorCode) or isinstance(shard, ErrorCode):
            return responses.heartbeat(group if isinstance(group, ErrorCode) else shard)
        error = group.heartbeat(
            request.member_id, request.group_instance_id, request.generation_id, self._now_ms()
        )
        return responses.heartbeat(error)

    def _leave(self, request: Any, _context: RequestContext) -> Any:
        consumers = self._consumer_group(request.group_id)
        if consumers is not None:
            return self._classic_members.leave(*consumers, request)
        shard, group = self._known_group(request.group_id)
        if isinstance(shard, ErrorCode):
            return responses.leave_refused(shard)
        if isinstance(group, ErrorCode):
            # A group that is not known has no members: each of them gets the error, not the request.
            return responses.leave((one, group) for one in request.members)
        was = group.generation, group.state
        results = [
            (one, group.leave(one.member_id, one.group_instance_id, self._now_ms()))
            for one in request.members
        ]
        self._after_input(shard, group, was)
        return responses.leave(results)

    def _consumer_group(self, group_id: str) -> tuple[Shard, ConsumerGroup] | None:
        shard = self._shard_of(group_id)
        if isinstance(shard, ErrorCode):
            return None
        group = shard.consumer_groups.get(group_id)
        return None if group is None else (shard, group)

    def _known_group(self, group_id: str) -> tuple[Shard | ErrorCode, Group | ErrorCode]:
        shard = self._shard_of(group_id)
        if isinstance(shard, ErrorCode):
            return shard, shard
        group = shard.groups.get(group_id)
        return shard, ErrorCode.UNKNOWN_MEMBER_ID if group is None else group

    def _result(self, shard: Shard, group: Group, waiter: "asyncio.Future[Any]") -> Any:
        """Delivers all available results; returns the response, or its future if it is not available yet."""
        self._after_input(shard, group, None)
        return waiter.result() if waiter.done() else waiter

    def _after_input(self, shard: Shard, group: Group, was: tuple[int, GroupState] | None) -> None:
        self._deliver(group)
        if was is not None and group.state is GroupState.EMPTY and was[1] is not GroupState.EMPTY:
            self._store_group(shard, group)
        self._arm(shard, group)

    def _deliver(self, group: Group) -> None:
        for waiter, result in group.take_results():
            if not waiter.done():
                waiter.set_result(responses.of_result(result))

    # --- time ------------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return self._host.clock.monotonic_ns() // NS_PER_MS

    def _arm(self, shard: Shard, group: Group) -> None:
        """Sets the group's timer to the next deadline."""
        timer = shard.timers.pop(group.group_id, None)
        if timer is not None:
            timer.cancel()
        deadline_ms = group.next_deadline_ms()
        if deadline_ms >= NEVER_MS:
            return
        delay_s = max(deadline_ms + 1 - self._now_ms(), 1) / 1000
        shard.timers[group.group_id] = asyncio.get_running_loop().call_later(
            delay_s, partial(self._expire, shard, group)
        )

    def _expire(self, shard: Shard, group: Group) -> None:
        shard.timers.pop(group.group_id, None)
        was = group.generation, group.state
        group.expire(self._now_ms())
        self._after_input(shard, group, was)

    # --- storing ---------------------------------------------------------------------------------------

    def _store_group(self, shard: Shard, group: Group) -> None:
        generation = group.generation
        stored = stored_group(group, self._host.clock.wall_ms())

        def stored_or_not(error: ErrorCode) -> None:
            group.assignment_stored(generation, _STORE_ERRORS.get(error, error), self._now_ms())
            self._deliver(group)
            if shard.log.is_current and shard.groups.get(group.group_id) is group:
                self._arm(shard, group)

        shard.log.append([(encode_key(group.group_id), encode_group(stored))], stored_or_not)

    # --- offsets ---------------------------------------------------------------------------------------

    def _commit(self, request: Any, context: RequestContext) -> Any:
        shard = self._shard_of(request.group_id, for_offsets=True)
        if isinstance(shard, ErrorCode):
            return responses.commit(request, lambda *_: shard)
        group = shard.groups.get(request.group_id)
        generation = request.generation_id_or_member_epoch
        consumers = shard.consumer_groups.get(request.group_id)
        if consumers is not None:
            refusal = self._consumer_groups.commit_error(
                consumers, request.member_id, generation, context.api_version
            )
            if refusal is not ErrorCode.NONE:
                return responses.commit(request, lambda *_: refusal)
            return self._store_offsets(shard, request)
        if group is None:
            # GRP-2: an unknown generation cannot be the current one.
            if generation >= 0 and self._config.rules("GRP-2"):
                is_known_error = context.api_version >= GROUP_NOT_FOUND_SINCE
                refusal = (
                    ErrorCode.GROUP_ID_NOT_FOUND if is_known_error else ErrorCode.ILLEGAL_GENERATION
                )
                return responses.commit(request, lambda *_: refusal)
            group = shard.groups[request.group_id] = self._new_group(request.group_id)
        error = group.commit_error(
            request.member_id, request.group_instance_id, generation, self._now_ms()
        )
        self._arm(shard, group)
        if error is not ErrorCode.NONE:
            return responses.commit(request, lambda *_: error)
        return self._store_offsets(shard, request)

    def _store_offsets(self, shard: Shard, request: Any) -> Any:
        now_ms = self._host.clock.wall_ms()
        refused: dict[tuple[str, int], ErrorCode] = {}
        accepted: dict[OffsetKey, CommittedOffset] = {}
        for topic in request.topics:
            for one in topic.partitions:
                place = (topic.name, one.partition_index)
                metadata = one.committed_metadata or ""
                if not self._metadata.has_partition(*place):
                    refused[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif len(metadata.encode()) > self._settings.offset_metadata_max_bytes:
                    refused[place] = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    key = OffsetKey(group=request.group_id, topic=place[0], partition=place[1])
                    accepted[key] = CommittedOffset(
                        offset=one.committed_offset,
                        leader_epoch=one.committed_leader_epoch,
                        metadata=metadata,
                        committed_ms=now_ms,
                    )
        if not accepted:
            return responses.commit(request, lambda *place: refused[place])
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        topic_ids = {key.topic: self._topic_id(key.topic) for key in accepted}

        def stored(error: ErrorCode) -> None:
            shard.storing_ends(accepted)
            if error is ErrorCode.NONE:
                for key, value in accepted.items():
                    shard.log.set_offset(key, value)
                removed = {name for name, was in topic_ids.items() if self._topic_id(name) != was}
                self._forget(shard, [key for key in accepted if key.topic in removed])
            outcome = _STORE_ERRORS.get(error, error)
            if not future.done():
                future.set_result(
                    responses.commit(request, lambda *place: refused.get(place, outcome))
                )

        pairs = [(encode_key(key), encode_offset(value)) for key, value in accepted.items()]
        shard.storing_begins(accepted)
        shard.log.append(pairs, stored)
        return future.result() if future.done() else future

    def _transactional_refusal(self, shard: Shard, request: Any) -> ErrorCode:
        """Returns why a member must not commit offsets in a transaction, NONE if it may (GRP-2)."""
        group = shard.groups.get(request.group_id)
        has_member = bool(request.member_id) or request.generation_id >= 0
        consumers = shard.consumer_groups.get(request.group_id)
        if consumers is not None and has_member:
            error = self._consumer_groups.commit_error(
                consumers, request.member_id, request.generation_id, ANY_VERSION
            )
            # Producers know generations only, so Kafka reports an old member epoch as one.
            is_stale = error == ErrorCode.STALE_MEMBER_EPOCH
            return ErrorCode.ILLEGAL_GENERATION if is_stale else error
        if consumers is not None:
            return ErrorCode.NONE
        if group is None:
            if has_member and self._config.rules("GRP-2"):
                return ErrorCode.ILLEGAL_GENERATION
            shard.groups[request.group_id] = self._new_group(request.group_id)
            return ErrorCode.NONE
        # Producers of versions that do not know members are not checked, as in Kafka (KIP-447).
        if not has_member:
            return ErrorCode.NONE
        error = group.commit_error(
            request.member_id, request.group_instance_id, request.generation_id, self._now_ms()
        )
        self._arm(shard, group)
        return error

    def transaction_ended(self, index: int, producer_id: int, is_commit: bool) -> None:
        """Decides on the offsets of a transaction in a partition whose marker is committed (TXN-13)."""
        shard = self._shards.get(index)
        if shard is not None and shard.log.is_current:
            shard.log.transaction_ended(producer_id, is_commit=is_commit)

    def _topic_id(self, name: str) -> UUID | None:
        topic = self._metadata.image.topics_by_name.get(name)
        return None if topic is None else topic.topic_id

    def _fetch(self, request: Any, _context: RequestContext) -> Any:
        found = []
        for wanted in request.groups:
            shard = self._shard_of(wanted.group_id, for_offsets=True)
            if isinstance(shard, ErrorCode):
                found.append(responses.fetched_group(wanted, shard, {}))
                continue
            consumers = shard.consumer_groups.get(wanted.group_id)
            error = ErrorCode.NONE
            if consumers is not None:
                error = self._consumer_groups.fetch_error(
                    consumers, wanted.member_id, wanted.member_epoch
                )
            offsets = shard.log.offsets.get(wanted.group_id, {})
            group = responses.fetched_group(wanted, error, offsets)
            found.append(with_unstable(group, shard.log) if request.require_stable else group)
        return responses.fetched(tuple(found))


def _remove_offsets(log: OffsetsLog, keys: Iterable[OffsetKey], _: ErrorCode) -> None:
    for key in keys:
        log.set_offset(key, None)
