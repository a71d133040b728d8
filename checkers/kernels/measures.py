"""Numbers about one partition that break no promise: how late readers were, and how long recovery took.

- *unseen*: how many acknowledged records no poll had returned yet, over the time of the run;
- *worst lag*: the longest time for which the record at a poll's position had existed when the poll began, without
  the polls of the final phase, which start over (Jepsen's worst-realtime-lag);
- *recoveries*: the time from each heal to the first acknowledged append and to the first successful poll.

Only one of them can be a finding, and only if the experiment sets `recovery_max_ms`: `slow-recovery`. A heal
counts for it if no fault was in force from then until the limit, and if clients tried and went on that long: of
what was invoked since the heal, something was in progress in every quarter of the time until the limit. What is
refused for what it is (a record larger than the setting allows) is no attempt.

It is undecided if a fault whose injection failed may have disturbed the recovery: nothing shows that it was ever
over. A heal may also have been earlier or later than the clocks of clients show, by `clock_error_ns`. So it is
undecided too, unless nothing succeeded since the earliest of these moments until the limit after the latest one,
and clients tried since the latest one.

Times are milliseconds in the coverage, nanoseconds elsewhere. The size does not depend on the run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from checkers.kernels.evidence import duration, seconds
from checkers.kernels.facts import Facts
from checkers.kernels.history import I64, INF_NS, OK_AT, OK_SOMEWHERE, Bools, PartitionHistory
from checkers.kernels.judging import judged_finding
from checkers.kernels.log_checkers import LOG_TABLES, log_of
from checkers.kernels.partition_tables import derive_once
from checkers.kernels.progress import REFUSALS
from checkers.kernels.real_time import not_after
from checkers.kernels.words import APPEND, POLL, operation_words
from harness.contracts.checker import CheckerFinding, CheckerReport
from harness.contracts.run_context import RunContext

SLOW = "slow-recovery"
MEASURED = "measures"
"""The name under which a report is kept with the tables that it was derived from."""
POINTS = 30
"""Points of a series."""
RECOVERIES_MAX = 20
"""Recoveries in the coverage: the slowest ones."""
MS = 1_000_000
QUARTERS = 4
"""A client that lets a quarter of the time until the limit pass without an attempt has given up."""


def unseen_series(history: PartitionHistory, facts: Facts, end_ns: int) -> tuple[I64, I64]:
    """Returns moments, and how many acknowledged records had not been returned by a completed poll by then.

    Args:
        history: One partition.
        facts: Derived from it.
        end_ns: The last moment.

    Shape:
        Both have `POINTS` values, in order of time.
    """
    seen_ns = np.full(len(history.append_op), INF_NS, dtype=np.int64)
    if len(seen_ns) and len(history.record_poll):
        append, poll = history.record_append, history.record_poll
        known = history.record_trusted & (poll >= 0) & (append >= 0)
        if not known.all():
            rows = np.flatnonzero(known)
            append, poll = append[rows], poll[rows]
        np.minimum.at(seen_ns, append, history.poll_res[poll])
    acked_ns = history.append_res[facts.acked_there]
    seen_ns = np.maximum(seen_ns[facts.acked_there], acked_ns)
    moments = moments_until(end_ns)
    return moments, np.cumsum(unseen_changes(moments, acked_ns, seen_ns))


def moments_until(end_ns: int) -> I64:
    """Returns the moments of a series."""
    return np.linspace(0, max(end_ns, 1), POINTS).astype(np.int64)


def unseen_changes(moments: I64, acked_ns: I64, seen_ns: I64) -> I64:
    """Returns by how much the number of unseen records changes up to each moment.

    Args:
        moments: What `moments_until` returned.
        acked_ns: When each record was acknowledged.
        seen_ns: When it was first returned by a poll, not before `acked_ns`; infinity if never.
    """
    # One comparison per point is cheaper than a search for every record.
    counts = [
        np.count_nonzero(acked_ns <= moment) - np.count_nonzero(seen_ns <= moment)
        for moment in moments
    ]
    changes = np.array(counts, dtype=np.int64)
    changes[1:] -= changes[:-1].copy()
    return changes


def worst_lag_ns(history: PartitionHistory, facts: Facts) -> int:
    """Returns for how long the record at a poll's position had been known to exist when the poll began, at most.

    Shape:
        0 if no poll of the main phase was late.
    """
    places = facts.places
    polls = np.flatnonzero(
        history.poll_ok & ~history.poll_final & (history.poll_position >= facts.log_start_offset)
    )
    polls = polls[history.poll_position[polls] < places.limit]
    if not len(polls) or not places.count:
        return 0
    known_ns = np.full(places.count, INF_NS, dtype=np.int64)
    for group in not_after(history, facts):
        np.minimum.at(known_ns, group.place, group.res)
    known_ns = np.minimum.accumulate(known_ns[::-1])[::-1]
    lag = history.poll_inv[polls] - known_ns[places.index(history.poll_position[polls])]
    return max(int(lag.max()), 0)


TimeTo = Callable[[int], int | None]
"""Returns the time from a moment to something that happened after it; None if it never did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What happened after one heal.

    Attributes:
        healed_ns: When a fault was healed.
        append_ns, poll_ns: Time from then to the first acknowledged append and to the first successful poll; None
            if there was none.
        quiet_until_ns: When the next fault began; the moment of the heal if another fault was still in force.
        certain_until_ns: Likewise, if a fault whose injection failed is in force from then on.
        perhaps_before: What ("append", "poll") succeeded before the heal, or after it if clocks differ.
    """

    healed_ns: int
    append_ns: int | None
    poll_ns: int | None
    quiet_until_ns: int
    certain_until_ns: int
    perhaps_before: frozenset[str]


def recoveries(
    history: PartitionHistory, faults: pa.Table, clock_error_ns: int = 0
) -> list[Recovery]:
    """Returns what happened after each heal, in order of time."""
    if not heals_of(faults):
        return []
    appended = np.sort(history.append_res[np.flatnonzero(is_acked(history))])
    polled = np.sort(history.poll_res[np.flatnonzero(history.poll_ok)])
    after = {
        "append": lambda ns: _time_to(appended, ns),
        "poll": lambda ns: _time_to(polled, ns),
    }
    return recoveries_by(faults, after, clock_error_ns)


def heals_of(faults: pa.Table) -> list[int]:
    """Returns when faults were healed, each moment once, in order of time."""
    return sorted({row["healed_ns"] for row in _injected(faults) if row["healed_ns"] is not None})


def moments_of(faults: pa.Table, clock_error_ns: int) -> list[int]:
    """Returns when faults were healed, and the earliest and latest moments of that, in order of time."""
    errors = (-clock_error_ns, 0, clock_error_ns)
    return sorted({healed_ns + error for healed_ns in heals_of(faults) for error in errors})


def was_in_force(fault: Mapping[str, Any]) -> bool:
    """Returns whether a fault was injected at all: it had targets or an effect, and injecting it did not fail."""
    return not fault["failed"] and bool(fault["resolved"] or fault["took_effect"])


def _injected(faults: pa.Table) -> list[dict[str, Any]]:
    # Nothing heals a fault that was never in force.
    return [row for row in faults.to_pylist() if not row["heals"] and was_in_force(row)]


def recoveries_by(
    faults: pa.Table, after: Mapping[str, TimeTo], clock_error_ns: int
) -> list[Recovery]:
    """Returns what happened after each heal, in order of time.

    Args:
        faults: Rows of the run.
        after: The time from a moment (of `moments_of`) to the next acknowledged append ("append"), and to the next
            successful poll ("poll").
        clock_error_ns: Largest difference between two clocks.
    """
    rows, found = _injected(faults), []
    failed = [row["invoked_ns"] for row in faults.to_pylist() if row["failed"] and not row["heals"]]
    failed_ns = min(failed, default=INF_NS)
    for healed_ns in heals_of(faults):
        begins = [row["invoked_ns"] for row in rows if row["invoked_ns"] > healed_ns]
        is_quiet = all(
            row["healed_ns"] is not None and row["healed_ns"] <= healed_ns
            for row in rows
            if row["invoked_ns"] <= healed_ns
        )
        quiet_until_ns = min(begins, default=INF_NS) if is_quiet else healed_ns
        since = {kind: time_to(healed_ns - clock_error_ns) for kind, time_to in after.items()}
        found.append(
            Recovery(
                healed_ns=healed_ns,
                append_ns=after["append"](healed_ns),
                poll_ns=after["poll"](healed_ns),
                quiet_until_ns=quiet_until_ns,
                certain_until_ns=min(quiet_until_ns, failed_ns),
                perhaps_before=frozenset(
                    kind
                    for kind, time_ns in since.items()
                    if time_ns is not None and time_ns <= clock_error_ns
                ),
            )
        )
    return found


def is_acked(history: PartitionHistory) -> Any:
    """Returns which appends were acknowledged."""
    return (history.append_status == OK_AT) | (history.append_status == OK_SOMEWHERE)


def _time_to(times: I64, since_ns: int) -> int | None:
    at = int(np.searchsorted(times, since_ns, side="right"))
    return int(times[at]) - since_ns if at < len(times) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowRecovery:
    """A recovery that took longer than the limit: of appends or polls, since when, and whether that is certain."""

    kind: str
    healed_ns: int
    took_ns: int | None
    is_certain: bool


def attempts(operations: pa.Table, since: Sequence[int], limit_ns: int) -> dict[str, Bools]:
    """Returns when clients tried to append and to poll.

    Appends without acknowledgements show no recovery. Nor does a request that a system that works refuses for what
    it is.

    Args:
        operations: Rows of one partition, all or some.
        since: Moments.
        limit_ns: How much time after each of them counts.

    Shape:
        Per kind one row per moment and one column per quarter of that time: whether an operation was in progress
        that had been invoked since the moment.
    """
    kind = operation_words(operations).kind
    inv = operations.column("invoked_ns").to_numpy()
    end = operations.column("completed_ns").fill_null(INF_NS).to_numpy()
    is_append = (kind == APPEND) & (operations.column("acks").to_numpy() != 0)
    code = operations.column("error_code").fill_null(0).to_numpy()
    counts = ~np.isin(code, list(REFUSALS))
    chosen = {"append": is_append & counts, "poll": (kind == POLL) & counts}
    return {
        name: _in_progress(inv[rows], end[rows], since, limit_ns) for name, rows in chosen.items()
    }


def _in_progress(inv: I64, end: I64, since: Sequence[int], limit_ns: int) -> Bools:
    order = np.argsort(inv, kind="stable")
    inv, end = inv[order], end[order]
    found = np.zeros((len(since), QUARTERS), dtype=np.bool_)
    for row, since_ns in enumerate(since):
        first = int(np.searchsorted(inv, since_ns))
        for quarter in range(QUARTERS):
            from_ns, until_ns = (
                since_ns + limit_ns * number // QUARTERS for number in (quarter, quarter + 1)
            )
            last = int(np.searchsorted(inv, until_ns))
            found[row, quarter] = end[first:last].max(initial=-INF_NS) >= from_ns
    return found


def slow_recoveries(
    found: list[Recovery],
    tried: Mapping[str, Mapping[int, bool]],
    limit_ns: int,
    end_ns: int,
    clock_error_ns: int,
) -> list[SlowRecovery]:
    """Returns the recoveries that took longer than a limit although clients tried and nothing disturbed them.

    Args:
        found: What `recoveries` returned.
        tried: Per kind whether clients tried all the time from a moment (of `moments_of`) until the limit.
        limit_ns: The limit.
        end_ns: When the last operation of the partition ended; a limit after it was not reached.
        clock_error_ns: Largest difference between two clocks.
    """
    slow = []
    for each in found:
        healed_ns = each.healed_ns
        until_ns = healed_ns + limit_ns
        for kind, took_ns in (("append", each.append_ns), ("poll", each.poll_ns)):
            passed_ns = INF_NS if took_ns is None else took_ns
            is_slow = until_ns <= min(each.quiet_until_ns, end_ns) and passed_ns > limit_ns
            is_certain = (
                until_ns <= min(each.certain_until_ns, end_ns - clock_error_ns)
                and passed_ns > limit_ns + clock_error_ns
                and kind not in each.perhaps_before
                and tried[kind][healed_ns + clock_error_ns]
            )
            if is_certain or (is_slow and tried[kind][healed_ns]):
                slow.append(
                    SlowRecovery(
                        kind=kind, healed_ns=healed_ns, took_ns=took_ns, is_certain=is_certain
                    )
                )
    return slow


def all_the_time(tried: Mapping[str, Bools], since: Sequence[int]) -> dict[str, dict[int, bool]]:
    """Returns per kind the moments, and whether clients tried in all quarters since then.

    Args:
        tried: What `attempts` returned.
        since: For which moments.
    """
    return {
        kind: {since_ns: bool(row.all()) for since_ns, row in zip(since, quarters, strict=True)}
        for kind, quarters in tried.items()
    }


class Measures:
    """The checker `measures`; see the module."""

    name = "measures"
    tables = LOG_TABLES
    per_partition = True

    def check(self, tables: Mapping[str, pa.Table], context: RunContext) -> CheckerReport:
        """Measures one partition."""
        return derive_once(tables, MEASURED, lambda: self._measured(tables, context))

    def _measured(self, tables: Mapping[str, pa.Table], context: RunContext) -> CheckerReport:
        report = log_of(tables, context)
        history, facts = report.history, report.facts
        end_ns = end_of(history)
        error_ns = context.clock_error_ns
        found = recoveries(history, tables["faults"], error_ns)
        limit_ns = context.recovery_max_ms * MS
        slow: list[SlowRecovery] = []
        if limit_ns:
            since = moments_of(tables["faults"], error_ns)
            tried = all_the_time(attempts(tables["operations"], since, limit_ns), since)
            slow = slow_recoveries(found, tried, limit_ns, end_ns, error_ns)
        series = unseen_series(history, facts, end_ns)
        return measured(found, slow, series, worst_lag_ns(history, facts), context)


MEASURES = Measures()


def measured(
    found: list[Recovery],
    slow: list[SlowRecovery],
    series: tuple[I64, I64],
    lag_ns: int,
    context: RunContext,
) -> CheckerReport:
    """Returns the report of a partition.

    Args:
        found: What happened after each heal.
        slow: The recoveries that took too long.
        series: Moments, and how many records were unseen then.
        lag_ns: What `worst_lag_ns` returned.
        context: What the run declares about itself.
    """
    moments, unseen = series
    measures = {
        "unseen_max": int(unseen.max()),
        "worst_lag_ms": lag_ns / MS,
        "recovery_append_ms_max": _worst([each.append_ns for each in found]),
        "recovery_poll_ms_max": _worst([each.poll_ns for each in found]),
        "unseen": {"at_ms": (moments // MS).tolist(), "count": unseen.tolist()},
        "recoveries": _slowest(found),
    }
    parts = ([each for each in slow if each.is_certain is certain] for certain in (True, False))
    findings = tuple(_judged(part, context) for part in parts if part)
    return CheckerReport(findings=findings, coverage={"measures": measures})


def end_of(history: PartitionHistory) -> int:
    """Returns when the last operation of a history ended."""
    times = (history.append_res, history.poll_res, history.end_res, history.append_inv)
    return max(_latest(t) for t in times)


def _latest(times: I64) -> int:
    latest = int(times.max(initial=0))
    return latest if latest < INF_NS else int(times[times < INF_NS].max(initial=0))


def _worst(times_ns: list[int | None]) -> float | None:
    known = [time_ns for time_ns in times_ns if time_ns is not None]
    return max(known) / MS if known else None


def _slowest(found: list[Recovery]) -> list[list[float | None]]:
    """Returns (time of the heal, time to an append, time to a poll) of the slowest recoveries, in milliseconds."""

    def rank(each: Recovery) -> tuple[int, int]:
        times = [INF_NS if t is None else t for t in (each.append_ns, each.poll_ns)]
        return -max(times), each.healed_ns

    return [
        [None if t is None else t / MS for t in (each.healed_ns, each.append_ns, each.poll_ns)]
        for each in sorted(found, key=rank)[:RECOVERIES_MAX]
    ]


def _judged(slow: list[SlowRecovery], context: RunContext) -> CheckerFinding:
    def rank(each: SlowRecovery) -> tuple[int, int, str]:
        return (
            -(INF_NS if each.took_ns is None else each.took_ns),
            each.healed_ns,
            each.kind,
        )

    worst = min(slow, key=rank)
    what = "append was acknowledged" if worst.kind == "append" else "poll succeeded"
    when = f"the next {what} only after {duration(worst.took_ns or 0)}"
    if worst.took_ns is None:
        when = f"no {what} afterwards"
    return judged_finding(
        SLOW,
        len(slow),
        f"the last fault in force was healed at {seconds(worst.healed_ns)}, and {when}; the"
        f" experiment allows {context.recovery_max_ms} ms",
        context,
        is_undecided=not worst.is_certain,
    )
