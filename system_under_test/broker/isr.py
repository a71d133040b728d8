"""The leader's view of the ISR as a small state machine.

A leader never changes the ISR by itself: it proposes, and the controller decides. Between the two the leader
cannot know which ISR is in force, so the high watermark respects both: `maximal_isr` is everything that might be
in it.

One change at a time (ISR-1): a pending state must be committed, rolled back or replaced by metadata before
another may begin. Responses are matched by the identity of the pending object, not by its value.
"""

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from system_under_test.metadata.records import RECOVERED
from system_under_test.protocol.errors import ErrorCode
from system_under_test.rules import Rules


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Committed:
    """The ISR is the last one that the controller reported."""

    is_pending: ClassVar[bool] = False
    isr: tuple[int, ...]
    recovery_state: int = RECOVERED

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """Every broker that might be in the controller's ISR."""
        return self.isr


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PendingExpand:
    """An expansion by one follower was proposed; from now on the high watermark waits for it."""

    is_pending: ClassVar[bool] = True
    recovery_state: ClassVar[int] = RECOVERED
    new_member: int
    proposed_isr: tuple[int, ...]
    maximal_isr: tuple[int, ...]
    last_committed: Committed

    @property
    def isr(self) -> tuple[int, ...]:
        """The last committed ISR."""
        return self.last_committed.isr


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PendingShrink:
    """A shrink was proposed; until it is committed the high watermark waits for the old members too."""

    is_pending: ClassVar[bool] = True
    recovery_state: ClassVar[int] = RECOVERED
    out: tuple[int, ...]
    proposed_isr: tuple[int, ...]
    maximal_isr: tuple[int, ...]
    last_committed: Committed

    @property
    def isr(self) -> tuple[int, ...]:
        """The last committed ISR."""
        return self.last_committed.isr


PendingIsr = PendingExpand | PendingShrink
IsrState = Committed | PendingExpand | PendingShrink


def expand(committed: Committed, new_member: int) -> PendingExpand:
    """Returns the state of a leader that proposed to add one follower."""
    grown = (*committed.isr, new_member)
    return PendingExpand(
        new_member=new_member, proposed_isr=grown, maximal_isr=grown, last_committed=committed
    )


def shrink(committed: Committed, out: tuple[int, ...], rules: Rules) -> PendingShrink:
    """Returns the state of a leader that proposed to remove members (ISR-2).

    Args:
        committed: The state before.
        out: The members that leave.
        rules: The rules that apply.
    """
    kept = tuple(member for member in committed.isr if member not in out)
    # ISR-2: the members that leave count until the controller has removed them. Without the rule the smaller ISR
    # counts at once.
    return PendingShrink(
        out=out,
        proposed_isr=kept,
        maximal_isr=committed.isr if rules("ISR-2") else kept,
        last_committed=committed,
    )


class ResponseAction(Enum):
    """What a leader does after an AlterPartition response (AP-4)."""

    COMMIT = "take the ISR of the response"
    ROLL_BACK = "back to the last committed ISR"
    STAY_PENDING = "wait for metadata"
    RESEND = "propose the same again"


_ACTIONS: dict[int, ResponseAction] = {
    ErrorCode.NONE: ResponseAction.COMMIT,
    # Definitely not applied.
    ErrorCode.INELIGIBLE_REPLICA: ResponseAction.ROLL_BACK,
    ErrorCode.OPERATION_NOT_ATTEMPTED: ResponseAction.ROLL_BACK,
    # An earlier attempt of the same proposal may have been applied: only metadata can show it.
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ResponseAction.STAY_PENDING,
    ErrorCode.UNKNOWN_TOPIC_ID: ResponseAction.STAY_PENDING,
    ErrorCode.FENCED_LEADER_EPOCH: ResponseAction.STAY_PENDING,
    ErrorCode.INVALID_UPDATE_VERSION: ResponseAction.STAY_PENDING,
    ErrorCode.INVALID_REQUEST: ResponseAction.STAY_PENDING,
    ErrorCode.NEW_LEADER_ELECTED: ResponseAction.STAY_PENDING,
}


def action_for(error: int, rules: Rules) -> ResponseAction:
    """Decides what a leader does after a partition-level response (AP-4).

    Args:
        error: The error code of the response.
        rules: The rules that apply.
    """
    action = _ACTIONS.get(error, ResponseAction.RESEND)
    # AP-4: without the rule every final error rolls back, although an earlier attempt may have been applied.
    if action is ResponseAction.STAY_PENDING and not rules("AP-4"):
        return ResponseAction.ROLL_BACK
    return action
