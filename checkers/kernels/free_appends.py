"""Appends without a known place, and offsets without a known record.

An append of unknown outcome may be dropped, so it matters only where something must fill a *hole*: an offset that
was never acknowledged or read although a later one exists. An append that certainly happened but whose offset
was never learnt must be somewhere. With L and U the running bounds of `real_time` (latest "did not exist yet"
at or below, earliest "existed" at or above), an append fits at o iff it was invoked by U(o) and did not complete
before L(o). Both bounds grow with o: this is scheduling unit jobs with release times and deadlines.

There are two L: that of appends alone, which is about the order of the log, and that of observed log ends too. An
append that only the second one leaves without a place shows no more than a stale log end.

Equal times are concurrent, so both comparisons include equality.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from checkers.kernels.columns import Columns
from checkers.kernels.facts import Facts
from checkers.kernels.findings import Finding, finding
from checkers.kernels.history import (
    ABSENT,
    FAIL,
    I64,
    INF_NS,
    INFO,
    NONE,
    OK_SOMEWHERE,
    Bools,
    PartitionHistory,
)
from checkers.kernels.real_time import latest_not_before, not_after, not_before


@dataclass(frozen=True, slots=True, kw_only=True)
class Holes(Columns):
    """Ranges of offsets without a known record, below the largest that existed.

    Shape:
        first, length: one row per range, ascending.
        order_absent_ns: L of appends alone, for every offset of the range.
        latest_absent_ns: L of everything, likewise.
        earliest_present_ns: U, likewise.
    """

    first: I64
    length: I64
    order_absent_ns: I64
    latest_absent_ns: I64
    earliest_present_ns: I64

    @classmethod
    def none(cls) -> "Holes":
        """Returns no holes."""
        none = np.empty(0, dtype=np.int64)
        return cls(
            first=none,
            length=none,
            order_absent_ns=none,
            latest_absent_ns=none,
            earliest_present_ns=none,
        )

    @property
    def count(self) -> int:
        """How many offsets they hold."""
        return sum(self.length.tolist())

    def expanded(self, limit: int) -> "Holes":
        """Returns the first `limit` single holes."""
        return self.each_up_to(limit).take(np.arange(min(limit, self.count)))

    def each_up_to(self, limit: int) -> "Holes":
        """Returns the first `limit` single holes of every range."""
        length = np.minimum(self.length, limit)
        rows = np.repeat(np.arange(len(length)), length)
        step = np.arange(len(rows)) - (np.cumsum(length) - length)[rows]
        single = self.take(rows)
        return replace(single, first=single.first + step, length=np.ones_like(rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """L beyond the last known offset, where an append goes that finds no hole.

    Attributes:
        order_absent_ns: Of appends alone.
        latest_absent_ns: Of everything.
    """

    order_absent_ns: int
    latest_absent_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RealTimeHolds:
    """Whether C6 holds. Where it does not, the bounds contradict each other and prove nothing about deadlines.

    Attributes:
        order: For the order of appends.
        fresh: For observed log ends.
    """

    order: bool = True
    fresh: bool = True


EVERYTHING_HOLDS = RealTimeHolds()


def check_free_appends(
    history: PartitionHistory,
    facts: Facts,
    *,
    sparse: bool = False,
    clock_error_ns: int = 0,
    holds: RealTimeHolds = EVERYTHING_HOLDS,
    sent_again: bool = False,
    sent_twice: bool = False,
) -> tuple[list[Finding], Holes]:
    """Finds holes that no append can fill, and appends that certainly happened but fit nowhere.

    Args:
        history: One partition.
        facts: Derived from it.
        sparse: Whether offsets may be missing from the log.
        clock_error_ns: By how much two clocks of the run may differ.
        holds: What of C6 holds. If not even the order does, only the filling of holes is checked.
        sent_again: Whether producers may have sent appends again.
        sent_twice: Whether producers without idempotence did; see `checkers.kernels.real_time.not_after`.

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
    has_holes = facts.places.is_compact or not facts.occupied[facts.first_there :].all()
    if (sparse or not has_holes) and not has_certain:
        return [], Holes.none()
    bounds = _bounds(history, facts, clock_error_ns, sent_twice=sent_twice)
    start = facts.log_start_offset
    holes = _holes(history, facts, bounds, sparse, start, facts.places.limit)
    below = _below(history, facts, bounds, sparse) if has_certain else None
    tail = Tail(order_absent_ns=int(bounds.order[-1]), latest_absent_ns=int(bounds.latest[-1]))
    if sent_twice and not sparse and (early := _before_every_append(history, holes)) is not None:
        return [early], holes
    # An append that was sent again has one place in the log that remained. An earlier attempt may have had another
    # one in a log that an election replaced, so a hole may be where it was.
    found = fit_free_appends(
        history, free, holes, below=below, tail=tail, sparse=sparse or sent_again, holds=holds
    )
    return found, holes


def fit_free_appends(
    history: PartitionHistory,
    free: I64,
    holes: Holes,
    *,
    tail: Tail,
    below: Holes | None = None,
    sparse: bool = False,
    holds: RealTimeHolds = EVERYTHING_HOLDS,
) -> list[Finding]:
    """Finds what does not fit when free appends are put into holes.

    Offsets below the log start may hold an append, but need none. There, every append that must be somewhere has a
    place while every hole that must be filled has an append, iff either is possible alone (Mendelsohn and Dulmage,
    1958); so the two are checked one after the other.

    Args:
        history: One partition; only its appends are used.
        free: Positions of the appends without a known place, in any order.
        holes: Offsets without a known record.
        tail: Where whatever is left over goes.
        below: Offsets below the log start without a known record; None if the log starts at 0.
        sparse: Whether holes may stay empty.
        holds: See `check_free_appends`.
    """
    order = free[np.lexsort((history.append_op[free], history.append_inv[free]))]
    has_certain = bool((history.append_status[order] == OK_SOMEWHERE).any())
    if not has_certain or not holds.order:
        return [] if sparse else _fill(history, holes, order)
    if not sparse and (shortage := _shortage(history, holes, order)) is not None:
        return [shortage]
    certain = order[history.append_status[order] == OK_SOMEWHERE]
    if below is None:
        found = _schedule(history, holes, certain if sparse else order, tail, optional=sparse)
    else:
        found = [] if sparse else _fill_in_time(history, holes, order)
        found += _schedule(history, joined_holes([below, holes]), certain, tail, optional=True)
        # What is about the order of the log says more than a stale log end.
        found = sorted(found, key=lambda f: f.id == "unplaced-below-end")[:1]
    return [f for f in found if holds.fresh or f.id != "unplaced-below-end"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bounds:
    """L of appends alone and of everything, for every place and one beyond; U for every place."""

    order: I64
    latest: I64
    present: I64


def _bounds(
    history: PartitionHistory, facts: Facts, clock_error_ns: int, *, sent_twice: bool
) -> _Bounds:
    count = facts.places.count
    appends, ends = not_before(history, facts)
    order = np.maximum.accumulate(latest_not_before(appends, count))
    latest = np.maximum(order, np.maximum.accumulate(latest_not_before(ends, count)))
    return _Bounds(
        order=order - clock_error_ns,
        latest=latest - clock_error_ns,
        present=earliest_present(history, facts, clock_error_ns, sent_twice=sent_twice),
    )


def earliest_present(
    history: PartitionHistory, facts: Facts, clock_error_ns: int, *, sent_twice: bool = False
) -> I64:
    """Returns U: by when every place existed at the latest."""
    b = np.full(facts.places.count, INF_NS, dtype=np.int64)
    for group in not_after(history, facts, sent_twice=sent_twice):
        np.minimum.at(b, group.place, group.res)
    present = np.minimum.accumulate(b[::-1])[::-1]
    return np.where(present < INF_NS, present + clock_error_ns, INF_NS)


def _holes(
    history: PartitionHistory, facts: Facts, bounds: _Bounds, sparse: bool, low: int, high: int
) -> Holes:
    """Returns unoccupied ranges of the offsets [low, high).

    In a sparse log, those are left out that a read proved to be empty for ever. Reads that skip what is below the
    log start prove nothing: they are not among the gaps.
    """
    places = facts.places
    is_empty = np.zeros(places.count, dtype=np.bool_)
    skipped_first, skipped_last = places.index(facts.gap_first), places.index(facts.gap_last)
    if sparse:
        is_empty = _within(skipped_first, skipped_last, places.count)
    stands = places.offset(np.arange(places.count))
    at = np.flatnonzero(~facts.occupied & ~is_empty & (stands >= low) & (stands < high))
    holes = Holes(
        first=stands[at],
        length=np.ones(len(at), dtype=np.int64),
        order_absent_ns=bounds.order[at],
        latest_absent_ns=bounds.latest[at],
        earliest_present_ns=bounds.present[at],
    )
    if places.is_compact or low < places.start:
        # Offsets between two places that no fact mentions: L of the place below, U of the place above.
        above = np.minimum(stands, high)
        below = np.maximum(np.concatenate(([-1], stands[:-1])), low - 1)
        if sparse:
            # A read that skipped anything between two places skipped all of it.
            begin = np.searchsorted(stands, facts.gap_first, side="right")
            is_empty = _within(begin, skipped_last + 1, places.count)
        inner = np.flatnonzero((above - below > 1) & ~is_empty)
        first, last, piece = history.left_out.without(below[inner] + 1, above[inner])
        inner = inner[piece]
        between = Holes(
            first=first,
            length=last - first,
            order_absent_ns=np.concatenate(([-INF_NS], bounds.order[:-2]))[inner],
            latest_absent_ns=np.concatenate(([-INF_NS], bounds.latest[:-2]))[inner],
            earliest_present_ns=bounds.present[inner],
        )
        holes = joined_holes([holes, between])
    return holes


def _below(history: PartitionHistory, facts: Facts, bounds: _Bounds, sparse: bool) -> Holes | None:
    """Returns unoccupied ranges below the log start; None if that is 0."""
    start = facts.log_start_offset
    return _holes(history, facts, bounds, sparse, 0, start) if start else None


def _within(first: I64, last: I64, count: int) -> Bools:
    """Returns which of `count` positions are in any of the ranges [first, last)."""
    if not len(first):
        return np.zeros(count, dtype=np.bool_)
    depth = np.zeros(count + 1, dtype=np.int64)
    np.add.at(depth, first, 1)
    np.subtract.at(depth, last, 1)
    inside: Bools = np.cumsum(depth)[:-1] > 0
    return inside


def joined_holes(parts: Sequence[Holes]) -> Holes:
    """Returns the holes of several parts, ascending."""
    if not parts:
        return Holes.none()
    order = np.argsort(np.concatenate([part.first for part in parts]))
    return Holes(
        **{
            field.name: np.concatenate([getattr(part, field.name) for part in parts])[order]
            for field in fields(Holes)
        }
    )


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


def _before_every_append(history: PartitionHistory, holes: Holes) -> Finding | None:
    """Returns the finding that a hole existed before any append began, if one did.

    Producers that send appends again may fill every hole, but not with a record that nobody had sent yet.
    """
    invoked = history.append_inv[history.append_status != FAIL]
    early = np.flatnonzero(holes.earliest_present_ns < invoked.min(initial=INF_NS))
    if not len(early):
        return None
    name = "hole-before-append" if len(invoked) else "unfilled-hole"
    return _hole_finding(name, int(holes.first[early[0]]), 1, 1)


def _fill(history: PartitionHistory, holes: Holes, order: I64) -> list[Finding]:
    """Fills holes with appends that have no deadline: the k-th hole needs k appends invoked early enough."""
    shortage = _shortage(history, holes, order)
    if shortage is not None:
        return [shortage]
    single = holes.expanded(len(order))
    present = single.earliest_present_ns
    invoked = history.append_inv[order]
    if not (invoked[: len(present)] > present).any():
        return []
    early = np.searchsorted(invoked, present, side="right")
    missing = np.arange(1, len(present) + 1) - early
    worst = int(missing.argmax())
    return [
        _hole_finding("hole-before-append", int(single.first[0]), worst + 1, int(missing[worst]))
    ]


def _fill_in_time(history: PartitionHistory, holes: Holes, order: I64) -> list[Finding]:
    """Fills holes with appends that may be elsewhere, and returns the first hole that none of them can fill.

    Other than in `_schedule`, L decides which appends are left for a hole, so every L needs its own pass.
    """
    slots = holes.expanded(len(order))
    for absent_ns, name in (
        (slots.order_absent_ns, "unplaced-append"),
        (slots.latest_absent_ns, "unplaced-below-end"),
    ):
        released: list[tuple[int, int]] = []
        too_old, next_release = NONE, 0
        columns = (slots.first.tolist(), absent_ns.tolist(), slots.earliest_present_ns.tolist())
        for filled, (offset, absent, present) in enumerate(zip(*columns, strict=True)):
            while next_release < len(order) and history.append_inv[order[next_release]] <= present:
                at = int(order[next_release])
                heapq.heappush(released, (int(history.append_res[at]), at))
                next_release += 1
            while released and released[0][0] < absent:
                _, too_old = heapq.heappop(released)
            if released:
                heapq.heappop(released)
            elif too_old != NONE:
                return [_unplaced(name, history, too_old, offset)]
            else:
                return [_hole_finding("hole-before-append", int(holes.first[0]), filled + 1, 1)]
    return []


def _schedule(
    history: PartitionHistory, holes: Holes, order: I64, tail: Tail, *, optional: bool
) -> list[Finding]:
    """Places appends that must be somewhere, earliest deadline first, and returns the first one that does not fit.

    The choice does not depend on L, so one pass serves both of them.

    Args:
        history: One partition.
        holes: Slots in offset order; every one must be filled unless `optional`.
        order: Positions of the free appends by invocation time; those of unknown outcome have no deadline.
        tail: Where whatever is left over goes.
        optional: Whether a slot may stay empty (sparse logs).
    """
    appends = [
        (int(history.append_inv[i]), int(history.append_res[i]), int(history.append_op[i]), int(i))
        for i in order
    ]
    released: list[tuple[int, int, int]] = []
    next_release = 0
    stale: list[Finding] = []
    slots = holes.each_up_to(len(order)) if optional else holes.expanded(len(order))
    columns = (
        slots.first.tolist(),
        slots.order_absent_ns.tolist(),
        slots.latest_absent_ns.tolist(),
        slots.earliest_present_ns.tolist(),
    )
    for filled, (offset, order_absent, absent, present) in enumerate(zip(*columns, strict=True)):
        while next_release < len(appends) and appends[next_release][0] <= present:
            _, res, op, at = appends[next_release]
            heapq.heappush(released, (res, op, at))
            next_release += 1
        if not released:
            if optional:
                continue
            return [_hole_finding("hole-before-append", int(holes.first[0]), filled + 1, 1)]
        res, op, at = heapq.heappop(released)
        if res < order_absent:
            return [_unplaced("unplaced-append", history, at, offset)]
        if res < absent and not stale:
            stale = [_unplaced("unplaced-below-end", history, at, offset)]
    rest = released + [(res, op, at) for _, res, op, at in appends[next_release:]]
    for res, _, at in sorted(rest):
        if history.append_status[at] != OK_SOMEWHERE:
            continue
        if res < tail.order_absent_ns:
            return [_unplaced("unplaced-append", history, at, NONE)]
        if res < tail.latest_absent_ns and not stale:
            stale = [_unplaced("unplaced-below-end", history, at, NONE)]
    return stale


def _unplaced(identifier: str, history: PartitionHistory, append: int, offset: int) -> Finding:
    return finding(
        identifier,
        history.append_op[[append]],
        offset=np.array([ABSENT if offset == NONE else offset], dtype=np.int64),
        since_ns=history.append_res[[append]],
    )
