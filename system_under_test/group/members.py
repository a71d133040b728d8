"""Members of a classic group: identity, subscriptions, and the responses that they wait for.

A member is known by its member id, which the coordinator assigns. A *static* member also has an instance id of
its own choice; it keeps its place when it returns under a new member id (KIP-345). A *pending* member id was
given to a client that has not joined with it yet (KIP-394).

`Roster` is bookkeeping only. What a change of membership means for the group is decided in `state.py`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from system_under_test.protocol.errors import ErrorCode

NEVER_MS = 1 << 62
NO_GENERATION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """Content of a JoinGroup request.

    Attributes:
        member_id: Empty for a client that has none yet.
        needs_known_member_id: Whether such a client has to repeat the request with the id that it gets (KIP-394).
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
    """Result of a JoinGroup request.

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
    """Result of a SyncGroup request."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(slots=True, kw_only=True)
class Member:
    """One member. Mutable.

    Attributes:
        join_waiter, sync_waiter: Waiter of the request that has no response yet; None without one.
        heard_ms: Time of its last request.
        has_synced: Whether it has requested its share of this generation.
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
        """Returns the member's subscription for a protocol."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    def update(self, request: JoinRequest) -> None:
        """Replaces settings and subscriptions by those of a new JoinGroup request."""
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.protocols = request.protocols

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for a response; a waiting member does not expire."""
        return self.join_waiter is not None or self.sync_waiter is not None

    @property
    def session_ends_ms(self) -> int:
        """Time at which the session expires if nothing more is heard."""
        return self.heard_ms + self.session_timeout_ms


class Roster:
    """Members, static names and pending member ids of one group. Mutable.

    Attributes:
        members: By member id, in the order in which they joined.
    """

    __slots__ = ("_ids_of_instances", "_pending", "members")

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self._ids_of_instances: dict[str, str] = {}
        self._pending: dict[str, int] = {}

    # --- identity --------------------------------------------------------------------------------------

    def add(self, member: Member) -> None:
        """Adds a member, or a member that the log knows."""
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._ids_of_instances[member.instance_id] = member.member_id

    def remove(self, member: Member) -> None:
        """Removes a member and its static name."""
        del self.members[member.member_id]
        if member.instance_id is not None:
            self._ids_of_instances.pop(member.instance_id, None)

    def rename(self, old_id: str, new_id: str) -> Member:
        """Moves a static member to a new member id; it becomes the last in the order."""
        member = self.members.pop(old_id)
        member.member_id = new_id
        self.add(member)
        return member

    def id_of_instance(self, instance_id: str) -> str | None:
        """Returns the member id of a static name, None when the name is unknown."""
        return self._ids_of_instances.get(instance_id)

    def error_of(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Returns why a request does not come from a member, `NONE` if it does."""
        if instance_id is not None:
            known_id = self._ids_of_instances.get(instance_id)
            if known_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def has_room_for(self, request: JoinRequest, size_max: int) -> bool:
        """Whether a client may join without exceeding the largest size, pending member ids included."""
        is_member = request.member_id in self.members or (
            request.instance_id is not None and request.instance_id in self._ids_of_instances
        )
        if is_member or len(self.members) + len(self._pending) < size_max:
            return True
        return request.member_id in self._pending and len(self.members) < size_max

    # --- pending member ids ----------------------------------------------------------------------------

    @property
    def has_pending(self) -> bool:
        """Whether a client may still join with a member id that it was given."""
        return bool(self._pending)

    def expect(self, member_id: str, until_ms: int) -> None:
        """Notes a member id that was given to a client."""
        self._pending[member_id] = until_ms

    def end_pending(self, member_id: str) -> bool:
        """Removes a pending member id; true if there was one."""
        return self._pending.pop(member_id, None) is not None

    # --- protocols and timeouts -------------------------------------------------------------------------

    def others_support(self, request: JoinRequest) -> bool:
        """Whether the sender and all other members have a protocol in common."""
        others = [m for m in self.members.values() if m.member_id != request.member_id]
        return _have_common(others, {name for name, _ in request.protocols})

    def has_others(self, member_id: str) -> bool:
        """Whether there is a member with another id."""
        return any(known_id != member_id for known_id in self.members)

    def preferred_protocol(self) -> str:
        """Returns the protocol that all members support and most prefer."""
        members = list(self.members.values())
        names = [name for name, _ in members[0].protocols]
        candidates = [name for name in names if _have_common(members, {name})]
        votes = [
            next(name for name, _ in member.protocols if name in candidates) for member in members
        ]
        return max(candidates, key=votes.count)

    def subscriptions(self, protocol: str | None) -> tuple[tuple[str, str | None, bytes], ...]:
        """Returns (member id, instance id, subscription) of every member."""
        return tuple(
            (m.member_id, m.instance_id, m.subscription(protocol)) for m in self.members.values()
        )

    def rebalance_timeout_ms(self) -> int:
        """Returns the longest rebalance timeout of all members."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    # --- time ------------------------------------------------------------------------------------------

    def next_expiry_ms(self) -> int:
        """Returns when the next session or pending member id expires, `NEVER_MS` without any."""
        sessions = (m.session_ends_ms for m in self.members.values() if not m.is_waiting)
        return min((*sessions, *self._pending.values()), default=NEVER_MS)

    def expire_pending(self, now_ms: int) -> None:
        """Forgets pending member ids whose time is up."""
        for member_id, ends_ms in list(self._pending.items()):
            if ends_ms <= now_ms:
                del self._pending[member_id]

    def expired(self, now_ms: int) -> list[Member]:
        """Returns the members whose session is over."""
        return [
            member
            for member in self.members.values()
            if not member.is_waiting and member.session_ends_ms <= now_ms
        ]


def _have_common(members: Iterable[Member], names: set[str]) -> bool:
    for member in members:
        names = names & {name for name, _ in member.protocols}
    return bool(names)
