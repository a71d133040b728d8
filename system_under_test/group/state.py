"""One classic consumer group as a state machine: inputs and the time in, results out. No clock, no loop, no log.

The states and their transitions are in `transitions.py`, the members in `members.py`.

A *generation* is one agreement on members, protocol and leader. Every member learns of its generation by the
response to its JoinGroup, and of its share by the response to its SyncGroup; a request for another generation
is refused (GRP-2). The group leader, one of the clients, divides the partitions; the coordinator never
interprets assignments, and subscriptions only for OffsetDelete (`subscriptions.py`).

Results go to *waiters*: the caller of `join` or `sync` passes one, and gets it back with the result from
`take_results`.

Source:
    Kafka's classic GroupCoordinator; KIP-62 (rebalance timeout), KIP-345 (static members), KIP-394 (member ids
    before membership), KIP-814 (a leader may skip the assignment).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from system_under_test.config import GroupConfig
from system_under_test.group.members import (
    NEVER_MS,
    JoinRequest,
    JoinResult,
    Member,
    Roster,
    SyncResult,
)
from system_under_test.group.transitions import GroupState, check_group_transition
from system_under_test.protocol.errors import ErrorCode
from system_under_test.rules import ALL_RULES, Rules


@dataclass(slots=True, kw_only=True)
class Group:
    """One group. Mutable.

    Attributes:
        new_member_id: Makes a member id from a client id (or instance id).
        assignment_waits: Whether the leader's assignment is being written to the log.
    """

    group_id: str
    config: GroupConfig
    new_member_id: Callable[[str], str]
    rules: Rules = ALL_RULES
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    assignment_waits: bool = False
    _state: GroupState = GroupState.EMPTY
    _roster: Roster = field(default_factory=Roster)
    _results: list[tuple[Any, JoinResult | SyncResult]] = field(default_factory=list)
    _phase_ends_ms: int = NEVER_MS
    _initial_ends_ms: int = NEVER_MS
    _joined_since: bool = False
    _was_empty: bool = False

    @property
    def state(self) -> GroupState:
        """The current state; it changes along `transitions.LEGAL_TRANSITIONS` only."""
        return self._state

    @property
    def members(self) -> Mapping[str, Member]:
        """Members by id, in the order in which they joined."""
        return self._roster.members

    @property
    def has_clients(self) -> bool:
        """Whether there are members, or clients that were given a member id and have not joined with it yet."""
        return bool(self._roster.members) or self._roster.has_pending

    def take_results(self) -> list[tuple[Any, JoinResult | SyncResult]]:
        """Returns the results that have come about since the last call, with their waiters."""
        results, self._results = self._results, []
        return results

    def choose_protocol(self) -> None:
        """Chooses the protocol that all members support; for a group that was a consumer group."""
        if self.members:
            self.protocol_name = self._roster.preferred_protocol()

    def begin_rebalance(self, now_ms: int) -> None:
        """Begins a rebalance that no request asked for; for a group that was a consumer group."""
        self._rebalance(now_ms)

    def restore(
        self,
        *,
        generation: int,
        protocol_type: str | None,
        protocol_name: str | None,
        leader: str,
        members: Iterable[Member],
    ) -> None:
        """Restores the stored generation; for a group that has just been created.

        A generation that is in the log had its assignment, so a group with members is stable.
        """
        self.generation = generation
        self.protocol_type = protocol_type
        for member in members:
            self._roster.add(member)
        if self.members:
            self.protocol_name = protocol_name
            self.leader = leader
            self._enter(GroupState.STABLE, is_restored=True)

    def _enter(self, state: GroupState, *, is_restored: bool = False) -> None:
        old = None if is_restored else self._state
        check_group_transition(self.group_id, self.generation, old, state)
        self._state = state

    # --- joining ---------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, waiter: Any, now_ms: int) -> None:
        """Handles the request of a client to be in the next generation."""
        error = self._join_error(request)
        if error is not ErrorCode.NONE:
            self._complete(waiter, JoinResult(error=error, member_id=request.member_id))
        elif not request.member_id:
            self._join_new(request, waiter, now_ms)
        else:
            self._join_known(request, waiter, now_ms)

    def _join_error(self, request: JoinRequest) -> ErrorCode:
        smallest = self.config.group_min_session_timeout_ms
        if not smallest <= request.session_timeout_ms <= self.config.group_max_session_timeout_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if not request.protocol_type or not request.protocols:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self._roster.has_others(request.member_id) and (
            request.protocol_type != self.protocol_type or not self._roster.others_support(request)
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not self._roster.has_room_for(request, self.config.group_max_size):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        return ErrorCode.NONE

    def _join_new(self, request: JoinRequest, waiter: Any, now_ms: int) -> None:
        if request.instance_id is not None:
            member_id = self.new_member_id(request.instance_id)
            old_id = self._roster.id_of_instance(request.instance_id)
            if old_id is not None:
                self._replace_static(old_id, member_id, request, waiter, now_ms)
                return
        else:
            member_id = self.new_member_id(request.client_id)
            if request.needs_known_member_id:
                self._roster.expect(member_id, now_ms + request.session_timeout_ms)
                self._complete(
                    waiter, JoinResult(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
                )
                return
        self._add(member_id, request, waiter, now_ms)

    def _join_known(self, request: JoinRequest, waiter: Any, now_ms: int) -> None:
        member_id = request.member_id
        if self._roster.end_pending(member_id) and request.instance_id is None:
            self._add(member_id, request, waiter, now_ms)
            return
        error = self._roster.error_of(member_id, request.instance_id)
        if error is not ErrorCode.NONE:
            self._complete(waiter, JoinResult(error=error, member_id=member_id))
            return
        member = self.members[member_id]
        member.heard_ms = now_ms
        is_same = member.protocols == request.protocols
        if self.state is GroupState.COMPLETING_REBALANCE and is_same:
            # The response to its first JoinGroup was lost.
            self._complete(waiter, self._join_result(member))
            return
        if self.state is GroupState.STABLE and is_same and member_id != self.leader:
            self._complete(waiter, self._join_result(member))
            return
        member.update(request)
        self._wait_for_join(member, waiter)
        self._rebalance(now_ms)

    def _add(self, member_id: str, request: JoinRequest, waiter: Any, now_ms: int) -> None:
        self.protocol_type = request.protocol_type
        member = Member(
            member_id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=request.protocols,
            heard_ms=now_ms,
        )
        self._roster.add(member)
        self._joined_since = True
        self._wait_for_join(member, waiter)
        self._rebalance(now_ms)

    def _replace_static(
        self, old_id: str, new_id: str, request: JoinRequest, waiter: Any, now_ms: int
    ) -> None:
        """Gives a returning static member its new id; the old id is fenced (KIP-345)."""
        member = self._roster.rename(old_id, new_id)
        for old_waiter, result in (
            (member.join_waiter, JoinResult(error=ErrorCode.FENCED_INSTANCE_ID, member_id=old_id)),
            (member.sync_waiter, SyncResult(error=ErrorCode.FENCED_INSTANCE_ID)),
        ):
            if old_waiter is not None:
                self._complete(old_waiter, result)
        member.join_waiter = member.sync_waiter = None
        was_leader = self.leader == old_id
        if was_leader:
            self.leader = new_id
        is_same = member.subscription(self.protocol_name) == next(
            (data for name, data in request.protocols if name == self.protocol_name), None
        )
        member.heard_ms = now_ms
        member.update(request)
        if self.state is GroupState.STABLE and is_same:
            # A restart alone needs no rebalance. A leader does not have to assign again (KIP-814).
            result = self._join_result(member)
            self._complete(waiter, replace(result, skip_assignment=True) if was_leader else result)
            return
        self._wait_for_join(member, waiter)
        self._rebalance(now_ms)

    def _wait_for_join(self, member: Member, waiter: Any) -> None:
        if member.join_waiter is not None:
            # The client gave up on its earlier request and repeats it.
            self._complete(
                member.join_waiter,
                JoinResult(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=member.member_id),
            )
        member.join_waiter = waiter

    # --- rebalancing -----------------------------------------------------------------------------------

    def _rebalance(self, now_ms: int) -> None:
        """Begins a rebalance unless one is being prepared; ends the preparation if all members have joined."""
        if self.state is not GroupState.PREPARING_REBALANCE:
            self._was_empty = self.state is GroupState.EMPTY
            # Until they join again, members have what they got; a migration to a consumer group needs it.
            has_assignments = self.state is GroupState.STABLE
            self._enter(GroupState.PREPARING_REBALANCE)
            self.assignment_waits = False
            for member in self.members.values():
                if not has_assignments:
                    member.assignment = b""
                member.has_synced = False
                if member.sync_waiter is not None:
                    self._complete(
                        member.sync_waiter, SyncResult(error=ErrorCode.REBALANCE_IN_PROGRESS)
                    )
                    member.sync_waiter = None
                    member.heard_ms = now_ms
            if self._was_empty:
                delay_ms = self.config.group_initial_rebalance_delay_ms
                self._initial_ends_ms = now_ms + self._roster.rebalance_timeout_ms()
                self._phase_ends_ms = min(now_ms + delay_ms, self._initial_ends_ms)
                self._joined_since = False
            else:
                self._phase_ends_ms = now_ms + self._roster.rebalance_timeout_ms()
        self._finish_join_if_complete(now_ms)

    def _finish_join_if_complete(self, now_ms: int) -> None:
        if self.state is not GroupState.PREPARING_REBALANCE or self._was_empty:
            # The first rebalance of a group waits for a delay, so that clients that start together join once.
            if self._was_empty and self.config.group_initial_rebalance_delay_ms == 0:
                self._finish_join(now_ms)
            return
        if not self._roster.has_pending and all(
            m.join_waiter is not None for m in self.members.values()
        ):
            self._finish_join(now_ms)

    def _finish_join(self, now_ms: int) -> None:
        """Ends the preparation: members that have not joined are removed, the others are a generation."""
        self._was_empty = False
        for member in list(self.members.values()):
            if member.join_waiter is None and member.instance_id is None:
                self._remove(member)
        self.generation += 1
        self._phase_ends_ms = NEVER_MS
        if not self.members:
            self._enter(GroupState.EMPTY)
            self.protocol_name = None
            self.leader = ""
            return
        self.protocol_name = self._roster.preferred_protocol()
        joined = [m.member_id for m in self.members.values() if m.join_waiter is not None]
        if self.leader not in self.members or (joined and self.leader not in joined):
            self.leader = joined[0] if joined else next(iter(self.members))
        self._enter(GroupState.COMPLETING_REBALANCE)
        self._phase_ends_ms = now_ms + self._roster.rebalance_timeout_ms()
        for member in self.members.values():
            member.has_synced = False
            member.heard_ms = now_ms
            if member.join_waiter is not None:
                self._complete(member.join_waiter, self._join_result(member))
                member.join_waiter = None

    def _join_result(self, member: Member) -> JoinResult:
        is_leader = member.member_id == self.leader
        return JoinResult(
            error=ErrorCode.NONE,
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader,
            members=self._roster.subscriptions(self.protocol_name) if is_leader else (),
        )

    # --- syncing ---------------------------------------------------------------------------------------

    def sync(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol: tuple[str | None, str | None],
        assignments: dict[str, bytes],
        waiter: Any,
        now_ms: int,
    ) -> bool:
        """Handles a member's request for its share; the leader's request carries the shares of all members.

        Args:
            member_id: Id of the member.
            instance_id: Its static name, if any.
            generation: Generation that the member is in.
            protocol: (type, name) as the member knows them; None for a value that it did not send.
            assignments: By member id; only the leader's count.
            waiter: Gets the result.
            now_ms: The time.

        Returns:
            Whether the group now waits for `assignment_stored`: the assignment has to be in the log first.
        """
        error = self._generation_error(member_id, instance_id, generation)
        if error is ErrorCode.NONE:
            error = self._protocol_error(protocol)
        if error is ErrorCode.NONE and self.state is GroupState.PREPARING_REBALANCE:
            error = ErrorCode.REBALANCE_IN_PROGRESS
        if error is ErrorCode.NONE and self.state is GroupState.EMPTY:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error is not ErrorCode.NONE:
            self._complete(waiter, SyncResult(error=error))
            return False
        member = self.members[member_id]
        member.heard_ms = now_ms
        member.has_synced = True
        if self.state is GroupState.STABLE:
            self._complete(waiter, self._sync_result(member))
            return False
        if member.sync_waiter is not None:
            self._complete(member.sync_waiter, SyncResult(error=ErrorCode.UNKNOWN_MEMBER_ID))
        member.sync_waiter = waiter
        if member_id != self.leader or self.assignment_waits:
            return False
        for one in self.members.values():
            one.assignment = assignments.get(one.member_id, b"")
        self.assignment_waits = True
        return True

    def assignment_stored(self, generation: int, error: ErrorCode, now_ms: int) -> None:
        """Handles the outcome of writing a generation's assignment to the log."""
        if (
            self.state is not GroupState.COMPLETING_REBALANCE
            or generation != self.generation
            or not self.assignment_waits
        ):
            return
        self.assignment_waits = False
        if error is not ErrorCode.NONE:
            for member in self.members.values():
                member.assignment = b""
                if member.sync_waiter is not None:
                    self._complete(member.sync_waiter, SyncResult(error=error))
                    member.sync_waiter = None
            self._rebalance(now_ms)
            return
        self._enter(GroupState.STABLE)
        # Members that have not synced yet still have until the end of this phase.
        for member in self.members.values():
            if member.sync_waiter is not None:
                self._complete(member.sync_waiter, self._sync_result(member))
                member.sync_waiter = None
                member.heard_ms = now_ms

    def _sync_result(self, member: Member) -> SyncResult:
        return SyncResult(
            error=ErrorCode.NONE,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )

    def _protocol_error(self, protocol: tuple[str | None, str | None]) -> ErrorCode:
        for named, known in zip(protocol, (self.protocol_type, self.protocol_name), strict=True):
            if named is not None and named != known:
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    # --- heartbeats, leaving, commits ------------------------------------------------------------------

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> ErrorCode:
        """Renews a member's session; the error tells the member whether to join again."""
        error = self._generation_error(member_id, instance_id, generation)
        if error is not ErrorCode.NONE:
            return error
        if self.state is GroupState.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self.members[member_id].heard_ms = now_ms
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(self, member_id: str, instance_id: str | None, now_ms: int) -> ErrorCode:
        """Removes a member, by its id or, if it is static, by its static name."""
        if instance_id is not None:
            known_id = self._roster.id_of_instance(instance_id)
            if known_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if member_id and member_id != known_id:
                return ErrorCode.FENCED_INSTANCE_ID
            member_id = known_id
        if self._roster.end_pending(member_id):
            self._finish_join_if_complete(now_ms)
            return ErrorCode.NONE
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self._remove(member)
        self._after_removal(now_ms)
        return ErrorCode.NONE

    def commit_error(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> ErrorCode:
        """Returns why an offset commit is refused, `NONE` if it is acceptable now."""
        if generation < 0 and self.state is GroupState.EMPTY:
            # A consumer that assigns its own partitions may use the group's offsets while the group has no
            # members; what it calls itself does not matter.
            return ErrorCode.NONE
        if generation < 0 and not member_id and instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = self._generation_error(member_id, instance_id, generation)
        if error is not ErrorCode.NONE:
            return error
        if self.state is GroupState.COMPLETING_REBALANCE:
            # Its partitions may already belong to another member.
            return ErrorCode.REBALANCE_IN_PROGRESS
        if self.state is GroupState.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self.members[member_id].heard_ms = now_ms
        return ErrorCode.NONE

    def _generation_error(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        error = self._roster.error_of(member_id, instance_id)
        # [GRP-2] A member of another generation may act on partitions that are no longer its own.
        if error is ErrorCode.NONE and generation != self.generation and self.rules("GRP-2"):
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def _remove(self, member: Member) -> None:
        for waiter, result in (
            (
                member.join_waiter,
                JoinResult(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=member.member_id),
            ),
            (member.sync_waiter, SyncResult(error=ErrorCode.UNKNOWN_MEMBER_ID)),
        ):
            if waiter is not None:
                self._complete(waiter, result)
        member.join_waiter = member.sync_waiter = None
        self._roster.remove(member)

    def _after_removal(self, now_ms: int) -> None:
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._rebalance(now_ms)
        else:
            self._finish_join_if_complete(now_ms)

    # --- time ------------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int:
        """Returns when `expire` has something to do, `NEVER_MS` if only an input can change anything."""
        if self.state is GroupState.DEAD:
            return NEVER_MS
        return min(self._phase_ends_ms, self._roster.next_expiry_ms())

    def expire(self, now_ms: int) -> None:
        """Applies every timeout that is due: pending member ids, the phase, sessions."""
        if self.state is GroupState.DEAD:
            return
        self._roster.expire_pending(now_ms)
        self._finish_join_if_complete(now_ms)
        if self._phase_ends_ms <= now_ms:
            self._phase_is_over(now_ms)
        gone = self._roster.expired(now_ms)
        for member in gone:
            self._remove(member)
        if gone:
            self._after_removal(now_ms)

    def _phase_is_over(self, now_ms: int) -> None:
        self._phase_ends_ms = NEVER_MS
        if self.state is GroupState.PREPARING_REBALANCE:
            if self._was_empty and self._joined_since and now_ms < self._initial_ends_ms:
                # A client joined while the first rebalance waited; others may follow.
                self._joined_since = False
                delay_ms = self.config.group_initial_rebalance_delay_ms
                self._phase_ends_ms = min(now_ms + delay_ms, self._initial_ends_ms)
                return
            self._finish_join(now_ms)
            return
        silent = [member for member in self.members.values() if not member.has_synced]
        for member in silent:
            self._remove(member)
        if silent:
            self._after_removal(now_ms)

    def give_up(self, error: ErrorCode) -> None:
        """Ends the group here and completes all waiters with an error: this broker no longer coordinates it."""
        self._enter(GroupState.DEAD)
        for member in self.members.values():
            if member.join_waiter is not None:
                self._complete(
                    member.join_waiter, JoinResult(error=error, member_id=member.member_id)
                )
            if member.sync_waiter is not None:
                self._complete(member.sync_waiter, SyncResult(error=error))
            member.join_waiter = member.sync_waiter = None

    def _complete(self, waiter: Any, result: JoinResult | SyncResult) -> None:
        self._results.append((waiter, result))
