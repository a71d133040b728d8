"""How changes of consumer groups become records, then memory, then responses; and what happens by time alone.

Every change is one batch. The group changes in memory as soon as the log has taken the batch, and the response
waits until the batch is committed (GRP-9). A request that changes nothing waits as well, for what was appended
before: its response shows a state that must not be lost. An append whose outcome is unknown stays in memory, as in
Kafka: it is either committed later, or this broker does not coordinate the group any more.

Source:
    Kafka's `CoordinatorRuntime`; the timers of `GroupMetadataManager`.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from system_under_test.broker.group_shard import Shard
from system_under_test.broker.metadata_cache import MetadataCache
from system_under_test.config import Features, GroupConfig
from system_under_test.group.consumer.assigning import Surroundings
from system_under_test.group.consumer.deadlines import Deadlines, Reason
from system_under_test.group.consumer.group import ConsumerGroup, Draft
from system_under_test.group.consumer.members import ConsumerMember, MemberState
from system_under_test.group.consumer.records import encode_record
from system_under_test.group.consumer.topics import Topics
from system_under_test.group.members import NEVER_MS
from system_under_test.protocol.errors import ErrorCode
from system_under_test.rules import Rules
from system_under_test.runtime import Host

NS_PER_MS = 1_000_000
RETRY_MS = 500
"""When the removal of a member is tried again that the log did not take, as in Kafka."""

Pair = tuple[bytes, bytes | None]
Refuse = Callable[[ErrorCode], Any]
"""Makes the response to a request whose records the log did not take."""
Removal = Callable[[Shard, ConsumerGroup, str, Callable[[ErrorCode], None]], None]
"""Removes a member; the last argument gets the outcome."""


class ConsumerGroupStore:
    """Stores changes, and ends memberships whose time is over.

    Args:
        host: The node's interfaces to the outside.
        settings: Group settings.
        rules: The rules that apply.
        metadata: The topics of the cluster.
        features: What the release does.
        log_errors: What a client gets for an error of an append.

    Attributes:
        on_timeout: Removes a member whose time is over.
    """

    def __init__(
        self,
        host: Host,
        settings: GroupConfig,
        rules: Rules,
        metadata: MetadataCache,
        *,
        features: Features,
        log_errors: Mapping[ErrorCode, ErrorCode],
    ) -> None:
        self._host = host
        self._settings = settings
        self._rules = rules
        self._metadata = metadata
        self._features = features
        self._log_errors = log_errors
        self.on_timeout: Removal | None = None

    def surroundings(self) -> Surroundings:
        """Returns what decisions depend on at this moment."""
        return Surroundings(
            topics=Topics(self._metadata.image),
            wall_ms=self._host.clock.wall_ms(),
            assignors=self._settings.group_consumer_assignors,
            stores_hash=self._features.stores_group_metadata_hash,
            fenced_may_rejoin=self._features.fenced_member_may_rejoin,
            rules=self._rules,
        )

    # --- storing ---------------------------------------------------------------------------------------

    def store(
        self,
        shard: Shard,
        draft: Draft,
        install: Callable[[], None],
        respond: Callable[[], Any],
        refuse: Refuse,
        *,
        before: Iterable[Pair] = (),
        after: Iterable[Pair] = (),
    ) -> Any:
        """Appends the changes of a draft; returns the response, or a future with it.

        Args:
            shard: Where the group is.
            draft: The changes.
            install: Changes the memory; called once if the log takes the records.
            respond: Makes the response when the records are committed.
            refuse: Makes the response to an error.
            before: Records of the classic group that the draft replaces.
            after: Records of the classic group that replaces the draft.
        """
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(error: ErrorCode) -> None:
            if not future.done():
                future.set_result(
                    respond()
                    if error is ErrorCode.NONE
                    else refuse(self._log_errors.get(error, error))
                )

        pairs = [*before, *(encode_record(key, value) for key, value in draft.records), *after]
        if self._append(shard, pairs, done):
            install()
        return future.result() if future.done() else future

    def _append(self, shard: Shard, pairs: list[Pair], done: Callable[[ErrorCode], None]) -> bool:
        """Appends records; returns whether the log has taken them."""
        is_refused = False
        is_returned = False

        def decided(error: ErrorCode) -> None:
            nonlocal is_refused
            is_refused = not is_returned and error is not ErrorCode.NONE
            done(error)

        if not pairs and not self._rules("GRP-9"):
            decided(ErrorCode.NONE)
        elif not pairs:
            shard.log.when_committed(decided)
        else:
            # [GRP-9] After a fail-over, the next coordinator would not know what the member was told.
            shard.log.append(pairs, decided, is_awaited=self._rules("GRP-9"))
        is_returned = True
        return not is_refused

    def install(self, shard: Shard, group: ConsumerGroup) -> None:
        """Makes a changed copy the group; begins and ends the rebalance timeouts of its members."""
        old = shard.consumer_groups.get(group.group_id)
        shard.consumer_groups[group.group_id] = group
        deadlines = shard.deadlines.setdefault(group.group_id, Deadlines())
        for member_id in old.members if old is not None else ():
            if member_id not in group.members:
                deadlines.clear(member_id)
        for member in group.members.values():
            known = None if old is None else old.members.get(member.member_id)
            if known is None or known.progress != member.progress:
                self._rebalance_deadline(deadlines, member)
        self.arm(shard, group.group_id)

    def _rebalance_deadline(self, deadlines: Deadlines, member: ConsumerMember) -> None:
        is_revoking = member.progress.state is MemberState.UNREVOKED_PARTITIONS
        if is_revoking and not member.is_classic:
            ends_ms = self.now_ms() + member.subscription.rebalance_timeout_ms
            deadlines.set(member.member_id, Reason.REBALANCE, ends_ms)
        else:
            deadlines.clear(member.member_id, Reason.REBALANCE)

    # --- time ------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """Returns the time by which deadlines are set."""
        return self._host.clock.monotonic_ns() // NS_PER_MS

    def begin_session(self, shard: Shard, group: ConsumerGroup, member_id: str) -> None:
        """Begins a member's session, or renews it."""
        member = group.members.get(member_id)
        if member is None:
            return
        classic = member.subscription.classic
        timeout_ms = self._settings.group_consumer_session_timeout_ms
        if classic is not None:
            timeout_ms = classic.session_timeout_ms
        self.set_deadline(shard, group, member_id, Reason.SESSION, timeout_ms)

    def set_deadline(
        self,
        shard: Shard,
        group: ConsumerGroup,
        member_id: str,
        reason: Reason,
        timeout_ms: int,
        *,
        is_kept: bool = False,
    ) -> None:
        """Sets a deadline of a member; `is_kept` leaves one that is there already."""
        deadlines = shard.deadlines.setdefault(group.group_id, Deadlines())
        ends_ms = self.now_ms() + timeout_ms
        if is_kept:
            deadlines.set_if_absent(member_id, reason, ends_ms)
        else:
            deadlines.set(member_id, reason, ends_ms)
        self.arm(shard, group.group_id)

    def arm(self, shard: Shard, group_id: str) -> None:
        """Sets the timer of a group to the next deadline."""
        shard.cancel_timer(group_id)
        deadlines = shard.deadlines.get(group_id)
        ends_ms = NEVER_MS if deadlines is None else deadlines.next_ms()
        if ends_ms < NEVER_MS:
            delay_s = max(ends_ms + 1 - self.now_ms(), 1) / 1000
            shard.timers[group_id] = asyncio.get_running_loop().call_later(
                delay_s, partial(self._expire, shard, group_id)
            )

    def _expire(self, shard: Shard, group_id: str) -> None:
        due = shard.deadlines[group_id].take_due(self.now_ms())
        for member_id, reason in due:
            group = shard.consumer_groups.get(group_id)
            # [GRP-11] A member that is gone would keep its partitions from the others.
            if group is not None and member_id in group.members and self._rules("GRP-11"):
                self._host.observer.mark("group-member-timed-out", reason=reason.value)
                self._remove(shard, group, member_id, reason)
        self.arm(shard, group_id)

    def _remove(self, shard: Shard, group: ConsumerGroup, member_id: str, reason: Reason) -> None:
        def decided(error: ErrorCode) -> None:
            now = shard.consumer_groups.get(group.group_id)
            if error is not ErrorCode.NONE and now is not None and member_id in now.members:
                self.set_deadline(shard, now, member_id, reason, RETRY_MS)

        if self.on_timeout is not None and shard.log.is_current:
            self.on_timeout(shard, group, member_id, decided)
