"""The leader's view of the ISR as a small state machine (replication-protocol sections 3.3 and 8.4).

A leader never changes the ISR by itself: it proposes, and the controller decides. Between the two nobody knows
which ISR is in force, so the high watermark respects both: `maximal_isr` is everything that might be in it.

One change at a time (ISR-1): a pending state must be answered, rolled back or replaced by metadata before
another may begin. Answers are matched by the identity of the pending object, not by its value.
"""

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from system_under_test.metadata.records import RECOVERED
from system_under_test.protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Committed:
    """The ISR is what the controller last said."""

    is_pending: ClassVar[bool] = False
    isr: tuple[int, ...]
    recovery_state: int = RECOVERED

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """Everybody who might be in the controller's ISR."""
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


def shrink(
    committed: Committed, out: tuple[int, ...], *, counts_when_committed: bool
) -> PendingShrink:
    """Returns the state of a leader that proposed to remove members.

    Args:
        committed: The state before.
        out: Who leaves.
        counts_when_committed: ISR-2; False is the defect in which the smaller ISR counts at once.
    """
    kept = tuple(member for member in committed.isr if member not in out)
    return PendingShrink(
        out=out,
        proposed_isr=kept,
        maximal_isr=committed.isr if counts_when_committed else kept,
        last_committed=committed,
    )


class AnswerAction(Enum):
    """What an AlterPartition answer asks of the leader (AP-4)."""

    COMMIT = "take the answered ISR"
    ROLL_BACK = "back to the last committed ISR"
    STAY_PENDING = "wait for metadata"
    RESEND = "propose the same again"


_ACTIONS: dict[int, AnswerAction] = {
    ErrorCode.NONE: AnswerAction.COMMIT,
    # Definitely not applied.
    ErrorCode.INELIGIBLE_REPLICA: AnswerAction.ROLL_BACK,
    ErrorCode.OPERATION_NOT_ATTEMPTED: AnswerAction.ROLL_BACK,
    # An earlier attempt of the same proposal may have been applied: only metadata can tell.
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: AnswerAction.STAY_PENDING,
    ErrorCode.UNKNOWN_TOPIC_ID: AnswerAction.STAY_PENDING,
    ErrorCode.FENCED_LEADER_EPOCH: AnswerAction.STAY_PENDING,
    ErrorCode.INVALID_UPDATE_VERSION: AnswerAction.STAY_PENDING,
    ErrorCode.INVALID_REQUEST: AnswerAction.STAY_PENDING,
    ErrorCode.NEW_LEADER_ELECTED: AnswerAction.STAY_PENDING,
}


def action_for(error: int, *, keeps_pending: bool) -> AnswerAction:
    """Decides what to do about a partition-level answer.

    Args:
        error: The answer's error code.
        keeps_pending: AP-4; False is the defect in which every final error rolls back, although an earlier
            attempt may have been applied.
    """
    action = _ACTIONS.get(error, AnswerAction.RESEND)
    if action is AnswerAction.STAY_PENDING and not keeps_pending:
        return AnswerAction.ROLL_BACK
    return action
