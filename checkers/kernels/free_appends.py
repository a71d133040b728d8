"""Appends without a known place, and offsets without a known record.

An append of unknown outcome may be dropped, so it matters only where something must fill a *hole*: an offset that
was never acknowledged or read although a later one exists. An append that certainly happened but whose offset
was never learnt must be somewhere. With L and U the running bounds of `real_time` (latest "did not exist yet"
at or below, earliest "existed" at or above), an append fits at o iff it was invoked by U(o) and did not complete
before L(o). Both bounds grow with o: this is scheduling unit jobs with release times and deadlines.

Equal times are concurrent, so both comparisons include equality.
"""

import heapq
from dataclasses import dataclass

import numpy as np

from checkers.kernels.facts import Facts
from checkers.kernels.findings import Finding, finding
from checkers.kernels.history import (
    ABSENT,
    I64,
    INF_NS,
    INFO,
    NONE,
    OK_SOMEWHERE,
    PartitionHistory,
)
from checkers.kernels.real_time import latest_not_before, not_after, not_before


@dataclass(frozen=True, slots=True, kw_only=True)
class Holes:
    """Ranges of offsets without a known record, below the largest that existed.

    Shape:
        first, length: one row per range, ascending.
        latest_absent_ns: L, earliest_present_ns: U; both hold for every offset of the range.
    """

    first: I64
    length: I64
    latest_absent_ns: I64
    earliest_present_ns: I64

    @property
    def count(self) -> int:
        """How many offsets they hold."""
        return sum(self.length.tolist())

    def expanded(self, limit: int) -> tuple[I64, I64, I64]:
        """Returns offset, L and U of the first `limit` single holes."""
        offset, absent, present = self.each_up_to(limit)
        return offset[:limit], absent[:limit], present[:limit]

    def each_up_to(self, limit: int) -> tuple[I64, I64, I64]:
        """Returns offset, L and U of the first `limit` single holes of every range."""
        length = np.minimum(self.length, limit)
        rows = np.repeat(np.arange(len(length)), length)
        step = np.arange(len(rows)) - (np.cumsum(length) - length)[rows]
        return self.first[rows] + step, self.latest_absent_ns[rows], self.earliest_present_ns[rows]


def check_free_appends(
    history: PartitionHistory,
    facts: Facts,
    *,
    sparse: bool = False,
    clock_error_ns: int = 0,
    real_time_holds: bool = True,
) -> tuple[list[Finding], Holes]:
    """Finds holes that no append can fill, and appends that certainly happened but fit nowhere.

    Args:
        history: One partition.
        facts: Derived from it.
        sparse: Whether offsets may be missing from the log.
        clock_error_ns: By how much two clocks of the run may differ.
        real_time_holds: Whether C6 holds. If not, the bounds contradict each other and prove nothing about
            deadlines; then only the filling of holes is checked.

    Returns:
        The findings and the holes. Dense logs only have holes; sparse ones have optional places instead.
    """
    is_pinned = np.zeros(len(history.append_op), dtype=np.bool_)
    is_pinned[facts.pinned] = True
    is_free = (
        (history.append_status == INFO) | (history.append_status == OK_SOMEWHERE)
    ) & ~is_pinned
    free = np.flatnonzero(is_free)
    has_certain = bool((history.append_status[free] == OK_SOMEWHERE).any())
    has_holes = facts.places.is_compact or not facts.occupied.all()
    if (sparse or not has_holes) and not has_certain:
        none = np.empty(0, dtype=np.int64)
        return [], Holes(first=none, length=none, latest_absent_ns=none, earliest_present_ns=none)
    absent, present = _bounds(history, facts, clock_error_ns)
    holes = _holes(facts, absent, present, sparse)
    findings = fit_free_appends(
        history,
        free,
        holes,
        tail_absent_ns=int(absent[-1]),
        sparse=sparse,
        real_time_holds=real_time_holds,
    )
    return findings, holes


def fit_free_appends(
    history: PartitionHistory,
    free: I64,
    holes: Holes,
    *,
    tail_absent_ns: int,
    sparse: bool = False,
    real_time_holds: bool = True,
) -> list[Finding]:
    """Finds what does not fit when free appends are put into holes.

    Args:
        history: One partition; only its appends are used.
        free: Positions of the appends without a known place, in any order.
        holes: Offsets without a known record.
        tail_absent_ns: L beyond the last known offset, where whatever is left over goes.
        sparse: Whether holes may stay empty.
        real_time_holds: See `check_free_appends`.
    """
    order = free[np.lexsort((history.append_op[free], history.append_inv[free]))]
    has_certain = bool((history.append_status[order] == OK_SOMEWHERE).any())
    if not has_certain or not real_time_holds:
        return [] if sparse else _fill(history, holes, order)
    if sparse:
        order = order[history.append_status[order] == OK_SOMEWHERE]
    elif (shortage := _shortage(history, holes, order)) is not None:
        return [shortage]
    return _schedule(history, holes, order, tail_absent_ns, optional=sparse)


def _bounds(history: PartitionHistory, facts: Facts, clock_error_ns: int) -> tuple[I64, I64]:
    """Returns L for every place and one beyond, and U for every place."""
    count = facts.places.count
    appends, ends = not_before(history, facts)
    a = np.maximum(latest_not_before(appends, count), latest_not_before(ends, count))
    b = np.full(count, INF_NS, dtype=np.int64)
    for group in not_after(history, facts):
        np.minimum.at(b, group.place, group.res)
    absent = np.maximum.accumulate(a) - clock_error_ns
    present = np.minimum.accumulate(b[::-1])[::-1]
    present = np.where(present < INF_NS, present + clock_error_ns, INF_NS)
    return absent, present


def _holes(facts: Facts, absent: I64, present: I64, sparse: bool) -> Holes:
    """Returns unoccupied ranges; in a sparse log without those that a read proved to be empty for ever."""
    places = facts.places
    vacant = ~facts.occupied
    if sparse and len(facts.gap_first):
        depth = np.zeros(places.count + 1, dtype=np.int64)
        np.add.at(depth, places.index(facts.gap_first), 1)
        np.add.at(depth, places.index(facts.gap_last), -1)
        covered = np.cumsum(depth)[:-1] > 0
    else:
        covered = np.zeros(places.count, dtype=np.bool_)
    at = np.flatnonzero(vacant & ~covered)
    first, length = places.offset(at), np.ones(len(at), dtype=np.int64)
    low, high = absent[at], present[at]
    if places.is_compact:
        # Offsets between two places that no fact mentions: L of the place below, U of the place above.
        stands = places.offset(np.arange(places.count))
        below = np.concatenate(([places.start - 1], stands[:-1]))
        inner = np.flatnonzero((stands - below > 1) & ~np.concatenate(([False], covered[:-1])))
        first = np.concatenate((first, below[inner] + 1))
        length = np.concatenate((length, stands[inner] - below[inner] - 1))
        before = np.concatenate(([-INF_NS], absent[:-2]))
        low, high = np.concatenate((low, before[inner])), np.concatenate((high, present[inner]))
        order = np.argsort(first)
        first, length, low, high = first[order], length[order], low[order], high[order]
    return Holes(first=first, length=length, latest_absent_ns=low, earliest_present_ns=high)


def _hole_finding(identifier: str, offset: int, needed: int, missing: int) -> Finding:
    return finding(
        identifier,
        np.array([ABSENT], dtype=np.int64),
        offset=np.array([offset], dtype=np.int64),
        other=np.array([needed], dtype=np.int64),
        gap_ns=np.array([missing], dtype=np.int64),
    )


def _shortage(history: PartitionHistory, holes: Holes, order: I64) -> Finding | None:
    """Returns the finding that there are more holes than unresolved appends, if that is so."""
    total = holes.count
    if total <= len(order):
        return None
    # Numbers beyond 2^62 only arise from garbage; the report need not be exact there.
    return _hole_finding(
        "unfilled-hole", int(holes.first[0]), min(total, 2**62), min(total - len(order), 2**62)
    )


def _fill(history: PartitionHistory, holes: Holes, order: I64) -> list[Finding]:
    """Fills holes with appends that have no deadline: the k-th hole needs k appends invoked early enough."""
    shortage = _shortage(history, holes, order)
    if shortage is not None:
        return [shortage]
    offset, _, present = holes.expanded(len(order))
    invoked = history.append_inv[order]
    if not (invoked[: len(present)] > present).any():
        return []
    early = np.searchsorted(invoked, present, side="right")
    missing = np.arange(1, len(present) + 1) - early
    worst = int(missing.argmax())
    return [_hole_finding("hole-before-append", int(offset[0]), worst + 1, int(missing[worst]))]


def _schedule(
    history: PartitionHistory, holes: Holes, order: I64, tail_absent_ns: int, *, optional: bool
) -> list[Finding]:
    """Places appends that must be somewhere, earliest deadline first.

    Args:
        history: One partition.
        holes: Slots in offset order; every one must be filled unless `optional`.
        order: Positions of the free appends by invocation time; those of unknown outcome have no deadline.
        tail_absent_ns: L beyond the last known offset, where whatever is left over goes.
        optional: Whether a slot may stay empty (sparse logs).
    """
    appends = [
        (int(history.append_inv[i]), int(history.append_res[i]), int(history.append_op[i]), int(i))
        for i in order
    ]
    released: list[tuple[int, int, int]] = []
    next_release = 0
    slots = holes.each_up_to(len(order)) if optional else holes.expanded(len(order))
    columns = [column.tolist() for column in slots]
    for filled, (offset, absent, present) in enumerate(zip(*columns, strict=True)):
        while next_release < len(appends) and appends[next_release][0] <= present:
            _, res, op, at = appends[next_release]
            heapq.heappush(released, (res, op, at))
            next_release += 1
        if not released:
            if optional:
                continue
            return [_hole_finding("hole-before-append", int(holes.first[0]), filled + 1, 1)]
        res, op, at = heapq.heappop(released)
        if res < absent:
            return [_unplaced(history, at, offset)]
    rest = released + [(res, op, at) for _, res, op, at in appends[next_release:]]
    for res, _, at in sorted(rest):
        if history.append_status[at] == OK_SOMEWHERE and res < tail_absent_ns:
            return [_unplaced(history, at, NONE)]
    return []


def _unplaced(history: PartitionHistory, append: int, offset: int) -> Finding:
    return finding(
        "unplaced-append",
        history.append_op[[append]],
        offset=np.array([ABSENT if offset == NONE else offset], dtype=np.int64),
        since_ns=history.append_res[[append]],
    )
