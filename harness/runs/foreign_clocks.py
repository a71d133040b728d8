"""Whether the declared error of clocks leaves any order of the operations of a foreign history."""

from collections.abc import Sequence
from dataclasses import replace

from harness.contracts.verdict import Validity, Verdict
from harness.history.foreign.events import FAIL, OK, RecordedOperation

NO_ORDER = (
    "no operation began more than clock_error_ns after one of another process had ended, so their order in time"
    " cannot be judged"
)


def hides_order(operations: Sequence[RecordedOperation], clock_error_ns: int) -> bool:
    """Returns whether operations of different processes follow each other, but none later than clocks may differ.

    Args:
        operations: All of the history.
        clock_error_ns: Largest difference between two clocks.
    """
    ended: dict[int, int] = {}
    for one in operations:
        if one.outcome == OK and one.completed_ns is not None:
            ended[one.process] = min(one.completed_ns, ended.get(one.process, one.completed_ns))
    # The first end of all, and the first one of another process.
    first = sorted((end_ns, process) for process, end_ns in ended.items())[:2]
    gaps_ns = (
        one.invoked_ns - end_ns
        for one in operations
        for end_ns, process in first
        if one.outcome != FAIL and process != one.process
    )
    return 0 < max(gaps_ns, default=0) <= clock_error_ns


def at_best_without_order(verdict: Verdict) -> Verdict:
    """Returns the verdict, unknown instead of valid, with the reason that the order in time is hidden."""
    if verdict.validity == Validity.INVALID:
        return verdict
    return replace(verdict, validity=Validity.UNKNOWN, reasons=(*verdict.reasons, NO_ORDER))
