"""The judgement of a partition that was cut into buckets, if it has no anomaly.

The buckets decide whether anything is wrong. If something is, or if a requested checker cannot be folded,
the partition is judged as a whole instead: naming every anomaly with its witnesses and excuses needs joins that
only the kernels on the whole history make.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from checkers.kernels.buckets import (
    BucketResult,
    LogVerdict,
    final_log_of,
    fold,
    senders_in_order,
)
from checkers.kernels.compose import PartitionJudgement, partition_checkers
from checkers.kernels.consumer_group import GroupFacts, group_coverage, group_facts
from checkers.kernels.history import OK_SOMEWHERE
from checkers.kernels.slices import FreeAppends, SliceReport
from harness.contracts.run_context import LOG_CHECKERS, RunContext

GROUP_CHECKER = "consumer-group"
REPLICA_CHECKER = "replicas"
"""Its findings about log ends are violations of the log too, so only the states of leaders and the logs of
replicas have to be followed."""

MEASURES = "measures"


def can_be_cut(context: RunContext) -> bool:
    """Returns whether every checker of single partitions can be folded.

    Measures are left out of the judgement then, unless the run sets a limit to one of them.
    """
    if MEASURES in context.checkers and context.recovery_max_ms:
        return False
    names = [
        checker.name
        for checker in partition_checkers(context)
        if checker.name not in (GROUP_CHECKER, REPLICA_CHECKER, MEASURES)
    ]
    return tuple(names) == LOG_CHECKERS


def group_to_fold(events: pa.Table, context: RunContext) -> GroupFacts | None:
    """Returns the consumer group of a partition, or None if there is none that has to be judged.

    Args:
        events: Rows of `group_events` of the partition.
        context: What the run declares about itself.

    Raises:
        ValueError: The partition has to be judged as a whole: a committed offset regressed, a generation has two
            owners, or there are several groups.
    """
    if GROUP_CHECKER not in context.checkers:
        return None
    groups = group_facts(events)
    if len(groups) > 1 or any(facts.regressions or facts.second_owners for facts in groups):
        raise ValueError("these events of consumer groups cannot be folded")
    return groups[0] if groups else None


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
    group: GroupFacts | None = None,
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
        group: The consumer group to judge, if there is one.
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
        and senders_in_order(reports)
        and all(result.group_got_all for result in results.values())
    )
    if not is_clean:
        return None
    coverage = _coverage(reports, verdict, final.end_offset)
    if group is not None:
        delivered = sum(result.delivered_count for result in results.values())
        coverage |= group_coverage(group, delivered)
    return PartitionJudgement(topic=topic, partition=partition, coverage=coverage)


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
    total = {name: sum(report.counts[name] for report in reports) for name in reports[0].counts}
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
    }
