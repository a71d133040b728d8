"""The judgement of a partition that was cut into buckets.

If nothing is wrong, what the buckets returned is all of it (`judge_cut_partition`). Otherwise the suspects are
judged like a partition of their own (`checkers.kernels.remainder`), which needs `rules_of` and `totals_of`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from checkers.kernels.buckets import (
    BucketResult,
    LogVerdict,
    carried_bounds,
    final_log_of,
    fold,
)
from checkers.kernels.columns import joined_columns
from checkers.kernels.compose import PartitionJudgement, partition_checkers
from checkers.kernels.consumer_group import GroupFacts, group_coverage
from checkers.kernels.cut_measures import CutMeasures, folded
from checkers.kernels.history import I64, OK_SOMEWHERE
from checkers.kernels.lawful_losses import may_have_been_unclean, may_have_destroyed
from checkers.kernels.measures import MEASURED
from checkers.kernels.progress import PROGRESS, may_be_stuck
from checkers.kernels.remainder import Totals
from checkers.kernels.slices import FreeAppends, SliceReport, first_of, last_of
from checkers.kernels.suspects import Rules, swapped_sends
from checkers.kernels.vacuous_facts import Extent, shown_in
from harness.contracts.run_context import LOG_CHECKERS, REPLICA_CHECKER, RunContext

GROUP_CHECKER = "consumer-group"
"""Its findings about log ends are violations of the log too, so only the states of leaders and the logs of
replicas have to be followed."""


def can_be_cut(context: RunContext) -> bool:
    """Returns whether every checker of single partitions can be folded."""
    if context.sparse_offsets or context.compacted:
        return False
    if context.at_least_once or not context.log_ends_recorded:
        return False
    known = {*LOG_CHECKERS, GROUP_CHECKER, REPLICA_CHECKER, MEASURED}
    if not may_be_stuck(context):
        known.add(PROGRESS.name)  # it finds nothing
    names = {checker.name for checker in partition_checkers(context)}
    return names <= known and names >= set(LOG_CHECKERS)


def may_contradict_itself(reports: Sequence[SliceReport]) -> bool:
    """Returns whether a process sent an append after it had read, or had asked for a log end.

    Where clocks differ, only its own clock may show that the append is in the wrong place, and slices do not know
    what a process had seen before.

    Args:
        reports: Of all slices.
    """

    def joined(name: str) -> I64:
        return joined_columns([getattr(report, name) for report in reports])

    sent, until = last_of(joined("sent"), joined("sent_until"))
    seen, since = first_of(joined("seen"), joined("seen_since"))
    _, at_sent, at_seen = np.intersect1d(sent, seen, assume_unique=True, return_indices=True)
    return bool((until[at_sent] > since[at_seen]).any())


def bucket_range(bucket: int, width: int, start: int, limit: int) -> tuple[int, int]:
    """Returns the first offset of a bucket that counts, and one more than its last known to have existed."""
    return max(bucket * width, start), min((bucket + 1) * width, limit)


def judge_cut_partition(
    topic: str,
    partition: int,
    reports: Sequence[SliceReport],
    results: Mapping[int, BucketResult],
    free: FreeAppends,
    context: RunContext,
    *,
    width: int,
    groups: Sequence[GroupFacts] = (),
    measures: CutMeasures | None = None,
) -> PartitionJudgement | None:
    """Returns the judgement of a partition in which nothing is wrong, None if something is.

    Args:
        topic: Its topic.
        partition: Its index.
        reports: Of all slices, in order of operations.
        results: Of every bucket that a part was sent to.
        free: `all_free(reports)`.
        context: What the run declares about itself.
        width: How many offsets a bucket holds.
        groups: The consumer groups to judge.
        measures: The measures, if they are taken.
    """
    start = context.log_start_offset
    verdict = fold(
        reports,
        results,
        free,
        width=width,
        log_start_offset=start,
        clock_error_ns=context.clock_error_ns,
    )
    final = final_log_of(
        reports, log_start_offset=start, phase_complete=context.final_phase_complete
    )
    is_clean = (
        verdict.is_linearizable
        and verdict.hole_count == 0
        and final.is_complete
        and all(result.all_there for result in results.values())
        and not _has_lost_appends(free, results)
        and not any(report.odd for report in reports)
        and not len(swapped_sends(reports, results, free)[0])
        and all(result.group_got_all for result in results.values())
        and all(group.is_consistent for group in groups)
    )
    report = None if measures is None else measures.report(context)
    if not is_clean or (report is not None and report.findings):
        return None
    coverage = _coverage(reports, verdict, final.end_offset)
    # In the order of the checkers.
    for name in context.checkers:
        if name == MEASURED and report is not None:
            coverage |= report.coverage
        elif name == GROUP_CHECKER:
            coverage |= _of_groups(groups, results)
    return PartitionJudgement(topic=topic, partition=partition, coverage=coverage)


def rules_of(
    context: RunContext,
    partition_states: pa.Table,
    faults: pa.Table,
    groups: Sequence[GroupFacts],
    extent: Extent,
) -> Rules:
    """Returns what makes an offset of a partition suspicious.

    Args:
        context: What the run declares about itself.
        partition_states: Rows of the partition.
        faults: Rows of the whole run.
        groups: The consumer groups to judge.
        extent: What the history spans.
    """
    shown = shown_in(extent, context)
    may_excuse = may_have_been_unclean(partition_states, shown, context.clock_error_ns) or (
        not context.elr_on and any(map(may_have_destroyed, faults.to_pylist()))
    )
    return Rules(
        log_start_offset=context.log_start_offset,
        clock_error_ns=context.clock_error_ns,
        committed=tuple(group.committed for group in groups),
        members=tuple(member for group in groups for member in group.members.tolist()),
        both_sides=may_excuse,
        stale_ends=REPLICA_CHECKER in context.checkers,
    )


def totals_of(
    reports: Sequence[SliceReport],
    results: Mapping[int, BucketResult],
    groups: Sequence[GroupFacts],
    extent: Extent,
    measures: CutMeasures | None,
) -> Totals:
    """Returns what is known of the whole partition without its suspects.

    Args:
        reports: Of all slices.
        results: Of every bucket that a part was sent to.
        groups: The consumer groups to judge.
        extent: What the history spans.
        measures: Its measures, if they are taken.
    """
    counts = _counts(reports)
    acked = counts.pop("acked")
    revealed = [result.revealed_op for result in results.values()]
    counts["appends_unknown_revealed"] = len(np.unique(np.concatenate(revealed or [_NONE])))
    return Totals(
        coverage=counts | _of_groups(groups, results), acked=acked, extent=extent, measures=measures
    )


def measures_of(
    reports: Sequence[SliceReport], results: Mapping[int, BucketResult], faults: pa.Table
) -> CutMeasures | None:
    """Returns the measures of a partition, None if none are taken.

    Args:
        reports: Of all slices.
        results: Of every bucket that a part was sent to.
        faults: Rows of the run.
    """
    slices = [report.measures for report in reports if report.measures is not None]
    if not slices:
        return None
    order = sorted(results)
    carried = carried_bounds([results[bucket] for bucket in order])
    high = {bucket: above for bucket, (_, above) in zip(order, carried, strict=True)}
    buckets = {b: result.measures for b, result in results.items() if result.measures is not None}
    return folded(slices, buckets, high, faults)


_NONE = np.empty(0, dtype=np.int64)


def _of_groups(groups: Sequence[GroupFacts], results: Mapping[int, BucketResult]) -> dict[str, int]:
    """Returns the coverage of all consumer groups together."""
    total: Counter[str] = Counter()
    for group in groups:
        total.update(group_coverage(group, 0))
    if groups:
        total["group_records"] = sum(result.delivered_count for result in results.values())
    return dict(total)


def _counts(reports: Sequence[SliceReport]) -> dict[str, int]:
    return {name: sum(report.counts[name] for report in reports) for name in reports[0].counts}


def _has_lost_appends(free: FreeAppends, results: Mapping[int, BucketResult]) -> bool:
    """Returns whether an append that was acknowledged without an offset was in no read."""
    revealed = [result.revealed_op for result in results.values()]
    shown = np.concatenate(revealed) if revealed else np.empty(0, dtype=np.int64)
    acknowledged = free.op[free.status == OK_SOMEWHERE]
    return not bool(np.isin(acknowledged, shown).all())


def _coverage(
    reports: Sequence[SliceReport], verdict: LogVerdict, final_end_offset: int
) -> dict[str, Any]:
    """Returns the coverage that the kernels would give: every acknowledged append was read back at the end."""
    total = _counts(reports)
    acked = total.pop("acked")
    return {
        **total,
        "appends_unknown_revealed": verdict.revealed_count,
        "acked_read_back": acked,
        "holes": 0,
        "hole_ranges": [],
        "final_end_offset": final_end_offset,
        "final_reads_complete": True,
        "acked_in_final_reads": acked,
        "acked_unseen": 0,
        "read_unseen": 0,
    }
