"""The real-time check as a monoid, for a partition too large for one task.

Offsets are cut into ranges of fixed width. The check needs six numbers per range: the latest "did not
exist yet", the earliest "existed", and the worst contradiction inside, each with the operation behind it. Elements
of neighbouring ranges combine associatively; the partition is consistent iff the slack of the whole is not
positive, and the operations of the worst contradiction come out with it (linearizability of a log, corollary of
the sufficiency proof).

Usage: `real_time_facts` gives rows to group by `bucket_of`; `bucket_element` turns one group into an element;
`fold` combines elements in bucket order.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import numpy as np

from checkers.kernels.facts import Facts
from checkers.kernels.history import ABSENT, I64, INF_NS, PartitionHistory
from checkers.kernels.real_time import NEVER_NS, not_after, not_before


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A time and the operation behind it; `op` is ABSENT where there is none."""

    time_ns: int
    op: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketElement:
    """What the real-time check needs to know of one range of offsets.

    Attributes:
        latest_absent: The latest time at which some offset of the range did not exist yet.
        earliest_present: The earliest time by which some offset of the range existed.
        slack_ns: Largest `inv(x) - res(y)` over contradicting pairs in the range; not positive if there is none.
        first, second: The operations y and x behind it.
    """

    latest_absent: Bound
    earliest_present: Bound
    slack_ns: int
    first: int
    second: int


IDENTITY = BucketElement(
    latest_absent=Bound(time_ns=NEVER_NS, op=ABSENT),
    earliest_present=Bound(time_ns=INF_NS, op=ABSENT),
    slack_ns=NEVER_NS - INF_NS,
    first=ABSENT,
    second=ABSENT,
)
"""The element of an empty range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RealTimeFacts:
    """Facts of one level, as columns that can be shuffled by offset.

    Shape:
        absent_*: "offset did not exist yet at time_ns"; present_*: "it existed by time_ns". Any order.
    """

    absent_offset: I64
    absent_ns: I64
    absent_op: I64
    present_offset: I64
    present_ns: I64
    present_op: I64


def real_time_facts(history: PartitionHistory, facts: Facts) -> dict[str, RealTimeFacts]:
    """Returns the facts of both levels, `order` and `fresh`, by level."""
    groups = not_after(history, facts)
    present = {
        "present_offset": np.concatenate([group.offset for group in groups]),
        "present_ns": np.concatenate([group.res for group in groups]),
        "present_op": np.concatenate([group.op for group in groups]),
    }
    return {
        bounds.level: RealTimeFacts(
            absent_offset=bounds.offset, absent_ns=bounds.inv, absent_op=bounds.op, **present
        )
        for bounds in not_before(history, facts)
    }


def bucket_of(offsets: I64, width: int) -> I64:
    """Returns the number of the range that each offset falls into."""
    return offsets // width


def bucket_element(facts: RealTimeFacts) -> BucketElement:
    """Returns the element of one range, from all facts whose offsets lie in it.

    Ties are broken by (time, operation), so that the result does not depend on the order of rows.
    """
    absent = _by_offset(facts.absent_offset, facts.absent_ns, -facts.absent_op)
    present = _by_offset(facts.present_offset, facts.present_ns, facts.present_op)
    element = BucketElement(
        latest_absent=_extreme(facts.absent_ns, facts.absent_op, latest=True),
        earliest_present=_extreme(facts.present_ns, facts.present_op, latest=False),
        slack_ns=IDENTITY.slack_ns,
        first=ABSENT,
        second=ABSENT,
    )
    if not len(absent) or not len(present):
        return element
    # For every "existed" row: how many "did not exist" rows lie at or below its offset.
    times = facts.absent_ns[absent]
    below = np.searchsorted(
        facts.absent_offset[absent], facts.present_offset[present], side="right"
    )
    running = np.maximum.accumulate(times)
    bounded = np.flatnonzero(below > 0)
    if not len(bounded):
        return element
    slack = running[below[bounded] - 1] - facts.present_ns[present[bounded]]
    worst = int(slack.max())
    # Of all pairs with the worst slack, the one with the smallest operations.
    rows = bounded[slack == worst]
    y = present[rows[facts.present_op[present[rows]].argmin()]]
    x_rows = absent[facts.absent_offset[absent] <= facts.present_offset[y]]
    x_rows = x_rows[facts.absent_ns[x_rows] == facts.present_ns[y] + worst]
    return BucketElement(
        latest_absent=element.latest_absent,
        earliest_present=element.earliest_present,
        slack_ns=worst,
        first=int(facts.present_op[y]),
        second=int(facts.absent_op[x_rows].min()),
    )


def _by_offset(offset: I64, time_ns: I64, op: I64) -> I64:
    if bool((offset[1:] > offset[:-1]).all()):
        return np.arange(len(offset))
    order: I64 = np.lexsort((op, time_ns, offset))
    return order


def _extreme(times: I64, ops: I64, *, latest: bool) -> Bound:
    if not len(times):
        return IDENTITY.latest_absent if latest else IDENTITY.earliest_present
    time_ns = int(times.max() if latest else times.min())
    return Bound(time_ns=time_ns, op=int(ops[times == time_ns].min()))


def combine(lower: BucketElement, upper: BucketElement) -> BucketElement:
    """Returns the element of a range and the one right above it."""
    across = BucketElement(
        latest_absent=max(lower.latest_absent, upper.latest_absent, key=_latest_key),
        earliest_present=min(lower.earliest_present, upper.earliest_present, key=_earliest_key),
        slack_ns=lower.latest_absent.time_ns - upper.earliest_present.time_ns,
        first=upper.earliest_present.op,
        second=lower.latest_absent.op,
    )
    worst = max(lower, upper, across, key=lambda e: (e.slack_ns, -e.first, -e.second))
    return BucketElement(
        latest_absent=across.latest_absent,
        earliest_present=across.earliest_present,
        slack_ns=worst.slack_ns,
        first=worst.first,
        second=worst.second,
    )


def _latest_key(bound: Bound) -> tuple[int, int]:
    return (bound.time_ns, -bound.op)


def _earliest_key(bound: Bound) -> tuple[int, int]:
    return (bound.time_ns, bound.op)


def fold(elements: Iterable[BucketElement]) -> BucketElement:
    """Combines elements in order of their ranges, lowest offsets first."""
    return reduce(combine, elements, IDENTITY)
