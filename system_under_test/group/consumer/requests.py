"""The ConsumerGroupHeartbeat request as a value, its result, and what makes a request invalid.

Source:
    ConsumerGroupHeartbeatRequest.json; `throwIfConsumerGroupHeartbeatRequestIsInvalid` of Kafka's
    `GroupMetadataManager`.
"""

from collections.abc import Collection
from dataclasses import dataclass

from system_under_test.group.consumer.members import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    Partitions,
)
from system_under_test.protocol.errors import ErrorCode

MEMBER_ID_SINCE = 1
"""First version in which clients make their member ids themselves (KIP-1082)."""
UNCHANGED_MS = -1


class GroupError(Exception):
    """A request is refused.

    Attributes:
        code: What the client gets.
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest:
    """Content of a ConsumerGroupHeartbeat request. None, or -1 as a timeout, stands for "unchanged".

    Attributes:
        owned: The partitions that the member has, as it reports them.
    """

    group_id: str
    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = UNCHANGED_MS
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_leaving(self) -> bool:
        """Whether the member leaves, for good or for a moment."""
        return self.epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH)

    @property
    def is_full(self) -> bool:
        """Whether the member sends everything, because it joins or had an error; it then gets everything, too."""
        return self.epoch == JOIN_EPOCH or (
            self.rebalance_timeout_ms != UNCHANGED_MS
            and (self.topics is not None or self.regex is not None)
            and self.owned is not None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResult:
    """What a member learns.

    Attributes:
        assigned: Its partitions, None if they have not changed.
    """

    member_id: str
    epoch: int
    assigned: Partitions | None = None


def check_heartbeat(request: HeartbeatRequest, version: int, assignors: Collection[str]) -> None:
    """Refuses a request that no client may send.

    Raises:
        GroupError: INVALID_REQUEST or UNSUPPORTED_ASSIGNOR.
    """
    _require(request.group_id.strip(), "the group id is empty")
    for name, value in (("instance id", request.instance_id), ("rack id", request.rack_id)):
        _require(value is None or value.strip(), f"the {name} is empty")
    needs_member_id = request.epoch != JOIN_EPOCH or not 0 <= version < MEMBER_ID_SINCE
    _require(request.member_id.strip() or not needs_member_id, "the member id is empty")
    _require(request.epoch >= STATIC_LEAVE_EPOCH, f"{request.epoch} is no member epoch")
    if request.epoch == STATIC_LEAVE_EPOCH:
        _require(request.instance_id is not None, "a static member needs its instance id to leave")
    if request.epoch == JOIN_EPOCH:
        _require(
            request.rebalance_timeout_ms != UNCHANGED_MS, "a new member needs a rebalance timeout"
        )
        _require(
            request.owned is not None and not request.owned, "a new member cannot own partitions"
        )
        has_subscription = request.topics is not None or request.regex is not None
        _require(has_subscription, "a new member needs topic names or a regular expression")
    if request.assignor is not None and request.assignor not in assignors:
        raise GroupError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"there is no assignor {request.assignor!r} (known: {', '.join(assignors)})",
        )


def _require(condition: object, problem: str) -> None:
    if not condition:
        raise GroupError(ErrorCode.INVALID_REQUEST, problem)
