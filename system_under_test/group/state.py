"""One classic consumer group as a state machine: inputs and the time in, answers out. No clock, no loop, no log.

::

             join                       all joined, or time is up
    EMPTY ----------> PREPARING_REBALANCE -------------------------> COMPLETING_REBALANCE
      ^                 ^    ^    ^                                    |            |
      | nobody is left  |    |    |  join, leave, expiry, no sync      |            | the leader's assignment
      +-----------------+    |    +------------------------------------+            v
                             +------------------------------------------------- STABLE

A *generation* is one agreement: who is in, which protocol, who leads. Every member of a generation learns of it
by the answer to its JoinGroup, and of its share by the answer to its SyncGroup; whoever speaks for another
generation is refused (GRP-2). The group leader, one of the clients, divides the partitions; this side never
looks into subscriptions or assignments.

Answers go to *waiters*: whoever called `join` or `sync` gave one, and gets it back with the result in
`take_answers`.

Source:
    Kafka's classic GroupCoordinator; KIP-62 (rebalance timeout), KIP-345 (static members), KIP-394 (member ids
    before membership), KIP-814 (a leader may skip the assignment).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from system_under_test.config import GroupConfig
from system_under_test.protocol.errors import ErrorCode

NEVER_MS = 1 << 62
NO_GENERATION = -1


class GroupState(StrEnum):
    """Where a group is in its life."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """What a JoinGroup request says.

    Attributes:
        member_id: Empty for a client that has none yet.
        needs_known_member_id: Whether such a client has to come again with the id that it is given (KIP-394).
        protocols: (name, subscription) in the client's order of preference.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    needs_known_member_id: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResult:
    """What a JoinGroup request is answered.

    Attributes:
        members: (member id, instance id, subscription); empty unless the member leads.
    """

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    """What a SyncGroup request is answered."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(slots=True, kw_only=True)
class Member:
    """One member. Mutable.

    Attributes:
        join_waiter, sync_waiter: Who waits for an answer; None when nobody does.
        heard_ms: When it was last heard.
        has_synced: Whether it has asked for its share of this generation.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    heard_ms: int
    assignment: bytes = b""
    join_waiter: Any = None
    sync_waiter: Any = None
    has_synced: bool = False

    def subscription(self, protocol: str | None) -> bytes:
        """Returns what it said for a protocol."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    def take(self, request: JoinRequest) -> None:
        """Takes what a new JoinGroup says."""
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.protocols = request.protocols

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for an answer, and is thereby known to be alive."""
        return self.join_waiter is not None or self.sync_waiter is not None


@dataclass(slots=True, kw_only=True)
class Group:
    """One group. Mutable.

    Attributes:
        new_member_id: Makes a member id from a client id (or instance id).
        checks_generation: Whether GRP-2 applies.
        assignment_waits: Whether the leader's assignment is on its way into the log.
    """

    group_id: str
    config: GroupConfig
    new_member_id: Callable[[str], str]
    checks_generation: bool = True
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    assignment_waits: bool = False
    _instances: dict[str, str] = field(default_factory=dict)
    _pending: dict[str, int] = field(default_factory=dict)
    _answers: list[tuple[Any, JoinResult | SyncResult]] = field(default_factory=list)
    _phase_ends_ms: int = NEVER_MS
    _initial_ends_ms: int = NEVER_MS
    _joined_since: bool = False
    _was_empty: bool = False

    def take_answers(self) -> list[tuple[Any, JoinResult | SyncResult]]:
        """Returns the answers that have come about since the last call."""
        answers, self._answers = self._answers, []
        return answers

    # --- joining ---------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, waiter: Any, now_ms: int) -> None:
        """A client wants to be in the next generation."""
        error = self._join_error(request)
        if error is not ErrorCode.NONE:
            self._answer(waiter, JoinResult(error=error, member_id=request.member_id))
        elif not request.member_id:
            self._join_new(request, waiter, now_ms)
        else:
            self._join_known(request, waiter, now_ms)

    def _join_error(self, request: JoinRequest) -> ErrorCode:
        smallest = self.config.group_min_session_timeout_ms
        if not smallest <= request.session_timeout_ms <= self.config.group_max_session_timeout_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        others = [m for m in self.members.values() if m.member_id != request.member_id]
        if not request.protocol_type or not request.protocols:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if others and (
            request.protocol_type != self.protocol_type
            or not _common(others, {name for name, _ in request.protocols})
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        is_in = request.member_id in self.members or (
            request.instance_id is not None and request.instance_id in self._instances
        )
        if not is_in and len(self.members) + len(self._pending) >= self.config.group_max_size:
            known = request.member_id in self._pending
            if not known or len(self.members) >= self.config.group_max_size:
                return ErrorCode.GROUP_MAX_SIZE_REACHED
        return ErrorCode.NONE

    def _join_new(self, request: JoinRequest, waiter: Any, now_ms: int) -> None:
        if request.instance_id is not None:
            member_id = self.new_member_id(request.instance_id)
            old_id = self._instances.get(request.instance_id)
            if old_id is not None:
                self._replace_static(old_id, member_id, request, waiter, now_ms)
                return
        else:
            member_id = self.new_member_id(request.client_id)
            if request.needs_known_member_id:
                self._pending[member_id] = now_ms + request.session_timeout_ms
                self._answer(
                    waiter, JoinResult(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
                )
                return
        self._add(member_id, request, waiter, now_ms)

    def _join_known(self, request: JoinRequest, waiter: Any, now_ms: int) -> None:
        member_id = request.member_id
        if self._pending.pop(member_id, None) is not None and request.instance_id is None:
            self._add(member_id, request, waiter, now_ms)
            return
        error = self._member_error(member_id, request.instance_id)
        if error is not ErrorCode.NONE:
            self._answer(waiter, JoinResult(error=error, member_id=member_id))
            return
        member = self.members[member_id]
        member.heard_ms = now_ms
        is_same = member.protocols == request.protocols
        if self.state is GroupState.COMPLETING_REBALANCE and is_same:
            # The answer to its first JoinGroup got lost.
            self._answer(waiter, self._join_result(member))
            return
        if self.state is GroupState.STABLE and is_same and member_id != self.leader:
            self._answer(waiter, self._join_result(member))
            return
        member.take(request)
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
        self.members[member_id] = member
        if request.instance_id is not None:
            self._instances[request.instance_id] = member_id
        self._joined_since = True
        self._wait_for_join(member, waiter)
        self._rebalance(now_ms)

    def _replace_static(
        self, old_id: str, new_id: str, request: JoinRequest, waiter: Any, now_ms: int
    ) -> None:
        """A static member is back under a new id; the old one is fenced (KIP-345)."""
        member = self.members.pop(old_id)
        for old_waiter, result in (
            (member.join_waiter, JoinResult(error=ErrorCode.FENCED_INSTANCE_ID, member_id=old_id)),
            (member.sync_waiter, SyncResult(error=ErrorCode.FENCED_INSTANCE_ID)),
        ):
            if old_waiter is not None:
                self._answer(old_waiter, result)
        member.join_waiter = member.sync_waiter = None
        was_leader = self.leader == old_id
        if was_leader:
            self.leader = new_id
        is_same = member.subscription(self.protocol_name) == next(
            (data for name, data in request.protocols if name == self.protocol_name), None
        )
        member.member_id = new_id
        member.heard_ms = now_ms
        member.take(request)
        self.members[new_id] = member
        assert request.instance_id is not None
        self._instances[request.instance_id] = new_id
        if self.state is GroupState.STABLE and is_same:
            # Nobody need rebalance because somebody restarted. A leader is not asked to divide again.
            result = self._join_result(member)
            self._answer(waiter, _skipping(result) if was_leader else result)
            return
        self._wait_for_join(member, waiter)
        self._rebalance(now_ms)

    def _wait_for_join(self, member: Member, waiter: Any) -> None:
        if member.join_waiter is not None:
            # The client gave up on its earlier request and came again.
            self._answer(
                member.join_waiter,
                JoinResult(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=member.member_id),
            )
        member.join_waiter = waiter

    # --- rebalancing -----------------------------------------------------------------------------------

    def _rebalance(self, now_ms: int) -> None:
        """Begins a rebalance unless one is being prepared; ends it if everybody is there."""
        if self.state is not GroupState.PREPARING_REBALANCE:
            self._was_empty = self.state is GroupState.EMPTY
            self.state = GroupState.PREPARING_REBALANCE
            self.assignment_waits = False
            for member in self.members.values():
                member.assignment = b""
                member.has_synced = False
                if member.sync_waiter is not None:
                    self._answer(
                        member.sync_waiter, SyncResult(error=ErrorCode.REBALANCE_IN_PROGRESS)
                    )
                    member.sync_waiter = None
                    member.heard_ms = now_ms
            if self._was_empty:
                delay_ms = self.config.group_initial_rebalance_delay_ms
                self._initial_ends_ms = now_ms + self._rebalance_timeout_ms()
                self._phase_ends_ms = min(now_ms + delay_ms, self._initial_ends_ms)
                self._joined_since = False
            else:
                self._phase_ends_ms = now_ms + self._rebalance_timeout_ms()
        self._finish_join_if_complete(now_ms)

    def _finish_join_if_complete(self, now_ms: int) -> None:
        if self.state is not GroupState.PREPARING_REBALANCE or self._was_empty:
            # The first rebalance of a group waits for its time, so that a starting fleet joins once.
            if self._was_empty and self.config.group_initial_rebalance_delay_ms == 0:
                self._finish_join(now_ms)
            return
        if not self._pending and all(m.join_waiter is not None for m in self.members.values()):
            self._finish_join(now_ms)

    def _finish_join(self, now_ms: int) -> None:
        """Ends the preparation: who has not joined is out, the others are a generation."""
        self._was_empty = False
        for member in list(self.members.values()):
            if member.join_waiter is None and member.instance_id is None:
                self._remove(member)
        self.generation += 1
        self._phase_ends_ms = NEVER_MS
        if not self.members:
            self.state = GroupState.EMPTY
            self.protocol_name = None
            self.leader = ""
            return
        self.protocol_name = self._vote()
        joined = [m.member_id for m in self.members.values() if m.join_waiter is not None]
        if self.leader not in self.members or (joined and self.leader not in joined):
            self.leader = joined[0] if joined else next(iter(self.members))
        self.state = GroupState.COMPLETING_REBALANCE
        self._phase_ends_ms = now_ms + self._rebalance_timeout_ms()
        for member in self.members.values():
            member.has_synced = False
            member.heard_ms = now_ms
            if member.join_waiter is not None:
                self._answer(member.join_waiter, self._join_result(member))
                member.join_waiter = None

    def _vote(self) -> str:
        """Returns the protocol that all know and most prefer."""
        members = list(self.members.values())
        names = [name for name, _ in members[0].protocols]
        candidates = [name for name in names if _common(members, {name})]
        votes = [
            next(name for name, _ in member.protocols if name in candidates) for member in members
        ]
        return max(candidates, key=votes.count)

    def _rebalance_timeout_ms(self) -> int:
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def _join_result(self, member: Member) -> JoinResult:
        is_leader = member.member_id == self.leader
        return JoinResult(
            error=ErrorCode.NONE,
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader,
            members=self._subscriptions() if is_leader else (),
        )

    def _subscriptions(self) -> tuple[tuple[str, str | None, bytes], ...]:
        return tuple(
            (m.member_id, m.instance_id, m.subscription(self.protocol_name))
            for m in self.members.values()
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
        """A member asks for its share; the leader brings everybody's.

        Args:
            member_id: Who asks.
            instance_id: Its static name.
            generation: For which generation.
            protocol: (type, name) as the member understood them; None for what it does not say.
            assignments: By member id; only the leader's count.
            waiter: Gets the answer.
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
            self._answer(waiter, SyncResult(error=error))
            return False
        member = self.members[member_id]
        member.heard_ms = now_ms
        member.has_synced = True
        if self.state is GroupState.STABLE:
            self._answer(waiter, self._sync_result(member))
            return False
        if member.sync_waiter is not None:
            self._answer(member.sync_waiter, SyncResult(error=ErrorCode.UNKNOWN_MEMBER_ID))
        member.sync_waiter = waiter
        if member_id != self.leader or self.assignment_waits:
            return False
        for one in self.members.values():
            one.assignment = assignments.get(one.member_id, b"")
        self.assignment_waits = True
        return True

    def assignment_stored(self, generation: int, error: ErrorCode, now_ms: int) -> None:
        """The assignment of a generation is in the log, or could not be stored."""
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
                    self._answer(member.sync_waiter, SyncResult(error=error))
                    member.sync_waiter = None
            self._rebalance(now_ms)
            return
        self.state = GroupState.STABLE
        # Members that have not synced yet may do so until then; afterwards only their sessions count.
        for member in self.members.values():
            if member.sync_waiter is not None:
                self._answer(member.sync_waiter, self._sync_result(member))
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
        for said, known in zip(protocol, (self.protocol_type, self.protocol_name), strict=True):
            if said is not None and said != known:
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    # --- the rest of a member's life -------------------------------------------------------------------

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> ErrorCode:
        """A member says that it is there; the answer says whether it should join again."""
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
        """A member leaves, by its id or, if it is static, by its name."""
        if instance_id is not None:
            known_id = self._instances.get(instance_id)
            if known_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if member_id and member_id != known_id:
                return ErrorCode.FENCED_INSTANCE_ID
            member_id = known_id
        if self._pending.pop(member_id, None) is not None:
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
        """Returns whether an offset commit is acceptable now (GRP-2)."""
        if generation < 0 and not member_id and instance_id is None:
            # A consumer that assigned its partitions itself may use the group's offsets while nobody is in it.
            is_free = self.state is GroupState.EMPTY
            return ErrorCode.NONE if is_free else ErrorCode.UNKNOWN_MEMBER_ID
        error = self._generation_error(member_id, instance_id, generation)
        if error is not ErrorCode.NONE:
            return error
        if self.state is GroupState.COMPLETING_REBALANCE:
            # Its partitions may be somebody else's already.
            return ErrorCode.REBALANCE_IN_PROGRESS
        if self.state is GroupState.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self.members[member_id].heard_ms = now_ms
        return ErrorCode.NONE

    def _member_error(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if instance_id is not None:
            known_id = self._instances.get(instance_id)
            if known_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def _generation_error(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        error = self._member_error(member_id, instance_id)
        # GRP-2.
        if error is ErrorCode.NONE and generation != self.generation and self.checks_generation:
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
                self._answer(waiter, result)
        member.join_waiter = member.sync_waiter = None
        del self.members[member.member_id]
        if member.instance_id is not None:
            self._instances.pop(member.instance_id, None)

    def _after_removal(self, now_ms: int) -> None:
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._rebalance(now_ms)
        else:
            self._finish_join_if_complete(now_ms)

    # --- time ------------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int:
        """Returns when `expire` has something to do, `NEVER_MS` if only an input can change anything."""
        deadline = self._phase_ends_ms
        for member in self.members.values():
            if not member.is_waiting:
                deadline = min(deadline, member.heard_ms + member.session_timeout_ms)
        return min([deadline, *self._pending.values()])

    def expire(self, now_ms: int) -> None:
        """Does what is due: sessions end, preparations end, who does not sync is out."""
        for member_id, ends_ms in list(self._pending.items()):
            if ends_ms <= now_ms:
                del self._pending[member_id]
        self._finish_join_if_complete(now_ms)
        if self._phase_ends_ms <= now_ms:
            self._phase_is_over(now_ms)
        gone = [
            member
            for member in self.members.values()
            if not member.is_waiting and member.heard_ms + member.session_timeout_ms <= now_ms
        ]
        for member in gone:
            self._remove(member)
        if gone:
            self._after_removal(now_ms)

    def _phase_is_over(self, now_ms: int) -> None:
        self._phase_ends_ms = NEVER_MS
        if self.state is GroupState.PREPARING_REBALANCE:
            if self._was_empty and self._joined_since and now_ms < self._initial_ends_ms:
                # Somebody came while the first rebalance waited; others may be on their way.
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
        """Answers everybody who waits, because this side no longer coordinates the group."""
        for member in self.members.values():
            if member.join_waiter is not None:
                self._answer(
                    member.join_waiter, JoinResult(error=error, member_id=member.member_id)
                )
            if member.sync_waiter is not None:
                self._answer(member.sync_waiter, SyncResult(error=error))
            member.join_waiter = member.sync_waiter = None

    def restore_member(self, member: Member) -> None:
        """Takes a member that the log knows; used while a group is loaded."""
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id

    def _answer(self, waiter: Any, result: JoinResult | SyncResult) -> None:
        self._answers.append((waiter, result))


def _common(members: list[Member], names: set[str]) -> bool:
    """Whether all members know at least one of the protocols."""
    for member in members:
        names = names & {name for name, _ in member.protocols}
    return bool(names)


def _skipping(result: JoinResult) -> JoinResult:
    return JoinResult(
        error=result.error,
        member_id=result.member_id,
        generation=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        leader=result.leader,
        members=result.members,
        skip_assignment=True,
    )
