"""Moves one member towards its target assignment: first it gives up partitions, then it gets others.

::

               target lacks partitions that it has         has given them up, and the others are free
    STABLE ------------------------------------> UNREVOKED ------------------------------------------> STABLE
      |                                              |                                                   ^
      |  partitions of its target belong to others   v   the others have given them up                   |
      +---------------------------------------> UNRELEASED ----------------------------------------------+

While a member still has partitions that it must give up, it stays in its epoch (GRP-8). Then it takes the epoch
of the target assignment and gets those of its partitions that no other member has (GRP-7).

Source:
    Kafka's `CurrentAssignmentBuilder`; KIP-848.
"""

from collections.abc import Callable
from dataclasses import replace

from system_under_test.group.consumer.members import (
    NO_PARTITIONS,
    MemberState,
    Partition,
    Partitions,
    Progress,
)
from system_under_test.rules import Rules


class UnknownStateError(ValueError):
    """The stored state of a member is unknown; it has to give up everything and join again."""


def reconciled(
    progress: Progress,
    *,
    target_epoch: int,
    target: Partitions,
    owned: Partitions | None,
    is_free: Callable[[Partition], bool],
    rules: Rules,
) -> Progress:
    """Returns the next step of a member, or the same progress if it has to wait.

    Args:
        progress: What the member has.
        target_epoch: Epoch of the newest target assignment.
        target: What that assignment gives the member.
        owned: What the member reports to own, None if it reports nothing.
        is_free: Whether no member has a partition or still has to give it up.
        rules: The rules that apply.

    Raises:
        UnknownStateError: The stored state is unknown, and the member owns partitions.
    """
    epoch = progress.epoch
    match progress.state:
        case MemberState.STABLE if epoch == target_epoch:
            return progress
        case MemberState.UNREVOKED_PARTITIONS:
            if _still_owns(owned, progress.revoking, rules):
                return progress
            epoch += 1
        case MemberState.UNKNOWN:
            if owned is None or owned:
                raise UnknownStateError
            epoch = target_epoch
    return _next(progress, epoch, target_epoch, target, owned, is_free, rules)


def _still_owns(owned: Partitions | None, revoking: Partitions, rules: Rules) -> bool:
    # [GRP-8] Who reports nothing may still consume what it has to give up.
    if not rules("GRP-8"):
        return False
    return owned is None or bool(owned & revoking)


def _next(
    progress: Progress,
    epoch: int,
    target_epoch: int,
    target: Partitions,
    owned: Partitions | None,
    is_free: Callable[[Partition], bool],
    rules: Rules,
) -> Progress:
    kept = progress.assigned & target
    revoking = progress.assigned - target
    if revoking and _still_owns(owned, revoking, rules):
        return _moved(progress, epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    wanted = target - kept
    # [GRP-7] Two members would consume a partition that another still has.
    free = frozenset(filter(is_free, wanted)) if rules("GRP-7") else wanted
    state = MemberState.STABLE if free == wanted else MemberState.UNRELEASED_PARTITIONS
    return _moved(progress, target_epoch, state, kept | free, NO_PARTITIONS)


def _moved(
    progress: Progress, epoch: int, state: MemberState, assigned: Partitions, revoking: Partitions
) -> Progress:
    return replace(
        progress,
        epoch=epoch,
        previous_epoch=progress.epoch,
        state=state,
        assigned=assigned,
        revoking=revoking,
    )
