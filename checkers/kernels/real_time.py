"""Real time: whether the order in the log fits the order on the clock (condition C6).

Two kinds of facts are left of a history here. *Not before*: offset o did not exist yet at some instant after an
invocation (of the append at that offset, or of an observation that the log ended there). *Not after*: offset o'
existed already when an operation completed. They contradict each other iff o <= o' and the second operation
completed before the first was invoked; with L the running maximum over offsets of the first kind's times, iff
L(o') is later than the completion. One scan and one comparison per operation decide it.

Appends and ends are scanned apart, because they break different promises: an append in the wrong order breaks
`order`, an end that lags behind only breaks `fresh`.
"""

from dataclasses import dataclass, replace

import numpy as np

from checkers.kernels.columns import heads
from checkers.kernels.facts import Facts
from checkers.kernels.findings import Finding, finding, joined
from checkers.kernels.history import I64, NONE, OK_SOMEWHERE, Bools, PartitionHistory

NEVER_NS = -(2**61)
"""Stands for "no bound" in maxima of times."""

APPEND, READ, END = 0, 1, 2
"""What kind of operation proved that an offset exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotAfter:
    """Operations of one kind, each with the largest offset that it proves to have existed.

    Shape:
        place, offset, res: one row per operation. `append` is the position of the append, empty for others.
        rows: where each of them is in `ops`, which holds `op_index`.
    """

    kind: int
    place: I64
    offset: I64
    res: I64
    append: I64
    rows: I64
    ops: I64

    @property
    def op(self) -> I64:
        """The `op_index` of every operation; only a contradiction needs it."""
        return self.ops[self.rows]

    def take(self, at: I64) -> "NotAfter":
        """Returns some of the operations."""
        return replace(
            self,
            place=self.place[at],
            offset=self.offset[at],
            res=self.res[at],
            append=self.append[at] if len(self.append) else self.append,
            rows=self.rows[at],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NotBefore:
    """Operations that prove that an offset did not exist yet, of one level.

    Shape:
        place, offset, inv: one row per fact; `weak` rows can be left out (see `facts`).
        rows: where each of them is in `ops`, which holds `op_index`.
    """

    level: str
    place: I64
    offset: I64
    inv: I64
    weak: Bools
    rows: I64
    ops: I64

    @property
    def op(self) -> I64:
        """The `op_index` of every operation; only a contradiction needs it."""
        return self.ops[self.rows]

    def take(self, at: I64) -> "NotBefore":
        """Returns some of the facts."""
        return replace(
            self,
            place=self.place[at],
            offset=self.offset[at],
            inv=self.inv[at],
            weak=self.weak[at],
            rows=self.rows[at],
        )


def not_after(
    history: PartitionHistory, facts: Facts, *, sent_twice: bool = False
) -> list[NotAfter]:
    """Returns the facts "existed by then", by kind of operation.

    Args:
        history: One partition.
        facts: Derived from it.
        sent_twice: Whether a record that was read may be a later one of the same append. Then the record that was
            acknowledged without an offset may also be at an offset whose record is not known.
    """
    places = facts.places
    append, place = facts.acked, facts.acked_place
    # A read showed the place of an append that succeeded without learning its offset.
    succeeded = np.flatnonzero(history.append_status[facts.pinned] == OK_SOMEWHERE)
    if len(succeeded):
        found, at = facts.pinned[succeeded], facts.pinned_place[succeeded]
        if sent_twice:
            found, at = _first_possible(history, facts, found, at)
        append, place = np.concatenate((append, found)), np.concatenate((place, at))
    groups = [
        NotAfter(
            kind=APPEND,
            place=place,
            offset=places.offset(place),
            res=history.append_res[append],
            append=append,
            rows=append,
            ops=history.append_op,
        )
    ]
    none = np.empty(0, dtype=np.int64)
    # A poll that also carried a log end proves more by it; it is listed with the ends then.
    reads = np.flatnonzero(
        (history.poll_last >= places.start) & (history.poll_end <= history.poll_last + 1)
    )
    ends = np.flatnonzero(history.end_offset > places.start)
    if len(ends) and len(history.poll_op):
        # Both an end and a read of the last record before it: the read is the better witness.
        poll = history.end_poll[ends]
        ends = ends[(poll < 0) | (history.poll_last[poll] != history.end_offset[ends] - 1)]
    for kind, rows, ops, offset, res in (
        (READ, reads, history.poll_op, history.poll_last[reads], history.poll_res[reads]),
        (END, ends, history.end_op, history.end_offset[ends] - 1, history.end_res[ends]),
    ):
        place = places.index(offset)
        groups.append(
            NotAfter(
                kind=kind, place=place, offset=offset, res=res, append=none, rows=rows, ops=ops
            )
        )
    return groups


def _first_possible(
    history: PartitionHistory, facts: Facts, append: I64, place: I64
) -> tuple[I64, I64]:
    """Returns appends that may have several records, each with the first place that the acknowledged one may have.

    That is where a read showed one of them first, or before it a place whose record is not known. With acks=1 the
    acknowledged record may be lost.

    Args:
        history: One partition.
        facts: Derived from it.
        append: Appends acknowledged without an offset.
        place: Where reads showed their records.
    """
    order = np.lexsort((place, append))
    append, place = append[order], place[order]
    # Retention may have removed it, if the log does not start at 0.
    first = heads(append) & (history.append_acks[append] != 1) & (facts.log_start_offset == 0)
    known = facts.value != NONE
    known[facts.acked_place[facts.append_weak[facts.acked]]] = False
    known &= facts.places.offset(np.arange(len(known))) == np.arange(len(known))
    unknown = len(known) if known.all() else int(np.argmin(known))
    return append[first], np.minimum(place[first], unknown)


def not_before(
    history: PartitionHistory, facts: Facts, *, sent_twice: bool = False
) -> tuple[NotBefore, NotBefore]:
    """Returns the facts "did not exist yet": those of appends, and those of observed log ends.

    Args:
        history: One partition.
        facts: Derived from it.
        sent_twice: Whether a record at a second offset is a further effect of its append, not an anomaly alone.
    """
    places = facts.places
    acked, pinned, pinned_place = facts.acked, facts.pinned, facts.pinned_place
    if sent_twice:
        pinned = np.concatenate((pinned, facts.copies))
        pinned_place = np.concatenate((pinned_place, facts.copies_place))
    place = np.concatenate((facts.acked_place, pinned_place)) if len(pinned) else facts.acked_place
    append = np.concatenate((acked, pinned)) if len(pinned) else acked
    # A read of the record proves its offset, whatever the acknowledgement is worth.
    is_read = facts.seen[facts.acked_place] & (
        facts.value[facts.acked_place] == history.append_op[acked]
    )
    is_read = np.append(is_read, np.ones(len(pinned), dtype=np.bool_))
    ends = np.flatnonzero(history.end_offset >= places.start)
    return (
        NotBefore(
            level="order",
            place=place,
            offset=places.offset(place),
            inv=history.append_inv[append],
            weak=facts.append_weak[append] & ~is_read,
            rows=append,
            ops=history.append_op,
        ),
        NotBefore(
            level="fresh",
            place=places.index(history.end_offset[ends]),
            offset=history.end_offset[ends],
            inv=history.end_inv[ends],
            weak=np.zeros(len(ends), dtype=np.bool_),
            rows=ends,
            ops=history.end_op,
        ),
    )


def latest_not_before(bounds: NotBefore, count: int, *, strong_only: bool = False) -> I64:
    """Returns a(o): for every place (and one beyond) the latest time at which it did not exist yet."""
    place, inv = bounds.place, bounds.inv
    if strong_only:
        place, inv = place[~bounds.weak], inv[~bounds.weak]
    a = np.full(count + 1, NEVER_NS, dtype=np.int64)
    if bounds.level == "order":
        # Nearly every offset has one append: a plain scatter, then the few that lost it.
        a[place] = inv
        short = np.flatnonzero(a[place] < inv)
        place, inv = place[short], inv[short]
    np.maximum.at(a, place, inv)
    return a


@dataclass(frozen=True, slots=True, kw_only=True)
class _Violations:
    """Operations y that completed before some x was invoked which contradicts them; x is the strongest one."""

    kind: int
    y_op: I64
    y_offset: I64
    y_res: I64
    y_append: I64
    x_op: I64
    x_offset: I64
    x_inv: I64
    weak: Bools


def check_real_time(
    history: PartitionHistory,
    facts: Facts,
    *,
    clock_error_ns: int = 0,
    sent_twice: bool = False,
) -> list[Finding]:
    """Finds every operation that a later one contradicts (C6).

    Args:
        history: One partition.
        facts: Derived from it.
        clock_error_ns: By how much two clocks of the run may differ; it only ever hides violations.
        sent_twice: See `not_before` and `not_after`.

    Returns:
        Findings of level `order` and `fresh`; each operation that came first is listed once, with the latest
        operation that contradicts it.
    """
    groups = not_after(history, facts, sent_twice=sent_twice)
    findings = []
    for bounds in not_before(history, facts, sent_twice=sent_twice):
        for violations in _violations(history, facts, groups, bounds, clock_error_ns):
            findings += (
                _order_findings(violations)
                if bounds.level == "order"
                else _fresh_findings(history, facts, violations)
            )
        if clock_error_ns and bounds.level == "order":
            for violations in _of_one_process(history, facts, groups, bounds):
                findings += _order_findings(violations)
    return _merged(findings)


def _of_one_process(
    history: PartitionHistory, facts: Facts, groups: list[NotAfter], bounds: NotBefore
) -> list[_Violations]:
    """Returns the violations that one process alone shows: it has one clock, whatever the others differ by.

    Its appends are compared with what it had observed before; `sequences` compares them with one another.
    """
    appended = history.append_process[bounds.rows]
    of_kind = {READ: history.poll_process, END: history.end_process}
    groups = [group for group in groups if group.kind in of_kind]
    observed = [of_kind[group.kind][group.rows] for group in groups]
    found = []
    for process in _contradicting_themselves(groups, observed, bounds, appended).tolist():
        own = bounds.take(np.flatnonzero(appended == process))
        parts = [
            group.take(np.flatnonzero(of_group == process))
            for group, of_group in zip(groups, observed, strict=True)
        ]
        found += _violations(history, facts, parts, own, 0)
    return found


def _contradicting_themselves(
    groups: list[NotAfter], observed: list[I64], bounds: NotBefore, appended: I64
) -> I64:
    """Returns the processes that sent an append too late for something that they knew before.

    Args:
        groups: What operations prove to have existed.
        observed: Their processes, group by group.
        bounds: What appends prove not to have existed.
        appended: Their processes.
    """
    if not len(appended):
        return appended
    order = np.lexsort((bounds.place, appended))
    names, code = np.unique(appended[order], return_inverse=True)
    place, by_time = bounds.place[order], np.argsort(bounds.inv[order], kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[by_time] = np.arange(len(order))
    # Numbers grow from process to process, so the largest one so far is always one of the same process.
    latest = np.maximum.accumulate(code * len(order) + rank) % len(order)
    latest_ns = bounds.inv[order][by_time[latest]]
    width = 1 + max(int(place.max()), *(int(group.place.max(initial=0)) for group in groups))
    keys = code * width + place
    found = []
    for group, process in zip(groups, observed, strict=True):
        own = np.minimum(np.searchsorted(names, process), len(names) - 1)
        at = np.searchsorted(keys, own * width + group.place, side="right") - 1
        is_known = (names[own] == process) & (at >= 0) & (code[at] == own)
        found.append(process[is_known & (latest_ns[at] > group.res)])
    return np.unique(np.concatenate(found))


def _violations(
    history: PartitionHistory,
    facts: Facts,
    groups: list[NotAfter],
    bounds: NotBefore,
    clock_error_ns: int,
) -> list[_Violations]:
    a = latest_not_before(bounds, facts.places.count)
    running = _running(a, clock_error_ns)
    hit = [np.flatnonzero(running[group.place] > group.res) for group in groups]
    if history.left_out:
        # What is about a place that was left out is there as a bound only.
        covers = history.left_out.covers
        hit = [r[~covers(group.offset[r])] for group, r in zip(groups, hit, strict=True)]
    if not any(len(rows) for rows in hit):
        return []
    found = []
    strong_a = a
    if facts.append_weak.any():
        strong_a = latest_not_before(bounds, facts.places.count, strong_only=True)
    strong_running = _running(strong_a, clock_error_ns)
    for group, rows in zip(groups, hit, strict=True):
        # A violation is weak unless it is still there without the weak appends, on either side.
        strong = strong_running[group.place[rows]] > group.res[rows]
        if len(group.append):
            strong &= ~facts.append_weak[group.append[rows]]
        for times, part, strong_only in ((strong_a, rows[strong], True), (a, rows[~strong], False)):
            if not len(part):
                continue
            x = _strongest(bounds, times, group.place[part], strong_only)
            found.append(
                _Violations(
                    kind=group.kind,
                    y_op=group.op[part],
                    y_offset=group.offset[part],
                    y_res=group.res[part],
                    y_append=group.append[part] if len(group.append) else group.append,
                    x_op=bounds.op[x],
                    x_offset=bounds.offset[x],
                    x_inv=bounds.inv[x],
                    weak=np.full(len(part), not strong_only),
                )
            )
    return found


def _running(a: I64, clock_error_ns: int) -> I64:
    """Returns L(o), the running maximum, made later by nothing and earlier by the error of the clocks."""
    running: I64 = np.maximum.accumulate(a)
    return running - clock_error_ns if clock_error_ns else running


def _strongest(bounds: NotBefore, a: I64, place: I64, strong_only: bool) -> I64:
    """Returns, for each place, the row of the fact behind the running maximum there; ties by offset, then op."""
    running = np.maximum.accumulate(a)
    rises = np.ones(len(a), dtype=np.bool_)
    rises[1:] = running[1:] > running[:-1]
    source = np.maximum.accumulate(np.where(rises, np.arange(len(a)), 0))[place]
    wanted = np.unique(source)
    is_wanted = np.zeros(len(a), dtype=np.bool_)
    is_wanted[wanted] = True
    rows = np.flatnonzero(is_wanted[bounds.place] & (bounds.inv == a[bounds.place]))
    if strong_only:
        rows = rows[~bounds.weak[rows]]
    rows = rows[np.lexsort((bounds.op[rows], bounds.offset[rows], bounds.place[rows]))]
    first = np.searchsorted(bounds.place[rows], source)
    return rows[first]


def _order_findings(v: _Violations) -> list[Finding]:
    if v.kind == APPEND:
        return [_real_time_finding("order-inversion", v, np.ones(len(v.y_op), dtype=np.bool_))]
    if v.kind == END:
        return [_real_time_finding("late-insert", v, np.ones(len(v.y_op), dtype=np.bool_))]
    same = v.x_offset == v.y_offset
    return [_real_time_finding("future-read", v, same), _real_time_finding("late-insert", v, ~same)]


def _fresh_findings(history: PartitionHistory, facts: Facts, v: _Violations) -> list[Finding]:
    everything = np.ones(len(v.y_op), dtype=np.bool_)
    if v.kind != APPEND:
        return [_real_time_finding("end-regression", v, everything)]
    # Lost, not merely stale: the record was never read although the final reads went past its offset.
    reach = history.left_out.final_reach
    covered = np.max(history.end_offset[history.end_final], initial=reach)
    covered = np.max(history.poll_last[history.poll_final & history.poll_ok] + 1, initial=covered)
    lost = ~facts.append_read[v.y_append] & (v.y_offset < covered)
    lost &= v.y_offset >= facts.log_start_offset
    return [_real_time_finding("lost-ack", v, lost), _real_time_finding("stale-end", v, ~lost)]


def _real_time_finding(identifier: str, v: _Violations, rows: Bools) -> Finding:
    return finding(
        identifier,
        v.y_op[rows],
        second=v.x_op[rows],
        offset=v.y_offset[rows],
        other=v.x_offset[rows],
        since_ns=v.y_res[rows],
        weak=v.weak[rows],
        gap_ns=v.x_inv[rows] - v.y_res[rows],
    )


def _merged(findings: list[Finding]) -> list[Finding]:
    """Returns one finding per identifier; an operation that proves two things keeps the worse one."""
    merged = []
    for identifier in sorted({f.id for f in findings if f.count}):
        whole = joined([f for f in findings if f.id == identifier])
        whole = whole.take(np.lexsort((whole.second, -whole.gap_ns, whole.weak, whole.first)))
        keep = np.ones(whole.count, dtype=np.bool_)
        keep[1:] = whole.first[1:] != whole.first[:-1]
        merged.append(whole.take(np.flatnonzero(keep)))
    return merged
