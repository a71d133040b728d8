"""A partition too large for one task, cut into buckets of offsets.

    slices (ranges of operations)  --shuffle by bucket-->  buckets (ranges of offsets)  -->  driver folds

Tasks read their slice's row groups with PyArrow and send each bucket its part. What is shuffled is one lump of
arrays per slice and bucket, so the JVM moves bytes, never rows. The driver first collects the slices' reports (one
reduce partition of their own), passes the few appends of unknown outcome to every bucket, and folds what the
buckets return. Every later Spark job reuses the shuffled lumps of the first one.

If something is wrong, the buckets name the offsets that may be part of it, knowing now what all other buckets know
of time. The slices are read once more, each keeps the rows that matter, and one task judges these with the kernels
for whole partitions. So memory is bounded by the size of a slice, of a bucket, and of what is suspicious.

Kernels decide (`slices`, `buckets`, `cut_partition`, `suspects`, `remainder`). The partition goes to one task as a
whole, which takes about 100 bytes of memory for each operation, only if it cannot be read in slices (a file is
damaged, a row cannot be, operations are not in order: that task names what is wrong), or if a checker runs that
does not know slices (`checkers.kernels.cut_partition.can_be_cut`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from checkers.final_reads import disagreement
from checkers.jobs.pieces import StoredPartition
from checkers.jobs.stored import Task
from checkers.kernels.buckets import BucketResult, all_free, judge_bucket
from checkers.kernels.compose import PartitionJudgement, acked_during_faults
from checkers.kernels.consumer_group import GroupFacts, group_facts, member_polls
from checkers.kernels.cut_measures import end_of_all
from checkers.kernels.cut_partition import (
    GROUP_CHECKER,
    bucket_range,
    can_be_cut,
    judge_cut_partition,
    may_contradict_itself,
    measures_of,
    rules_of,
    totals_of,
)
from checkers.kernels.history import I64, Bools, read_history
from checkers.kernels.measures import MEASURED, MS, attempts, moments_of, moments_until
from checkers.kernels.remainder import Kept, Totals, judge_remainder, keep
from checkers.kernels.slices import GROUPS_MAX, FreeAppends, Part, SliceReport, cut_slice
from checkers.kernels.suspects import (
    SUSPECTS_SENT_MAX,
    BucketSuspects,
    Plan,
    Rules,
    bounds_of,
    gather,
    quotas,
    repeated_in,
    strays_in,
    suspects_in,
)
from checkers.kernels.vacuous_facts import Extent, extent_of, joined, vacuous_facts
from checkers.kernels.verdict_json import judgement_to_json
from harness.contracts.run_context import REPLICA_CHECKER, RunContext
from harness.errors import HistoryError
from harness.history.schema import OPERATION_TABLES

BUCKET_WIDTH = 1_000_000
"""Offsets per bucket: some tens of megabytes of arrays."""

REDUCERS_MAX = 32
"""Buckets are dealt to as many reduce partitions as there are slices, so that one holds few of them at a time;
more than this many would only cost scheduling."""

_REPORTS = -1
"""The key under which slices send their reports; buckets are not negative."""


class Pieces(Protocol):
    """A partition that can be read in pieces; `checkers.jobs.pieces.StoredPartition` describes the methods."""

    @property
    def topic(self) -> str:
        """The name of its topic."""
        ...

    @property
    def partition(self) -> int:
        """Its index."""
        ...

    @property
    def context(self) -> RunContext:
        """What the run declares about itself."""
        ...

    def bounds(self) -> list[tuple[int, int, int]]:
        """Returns its slices."""
        ...

    def read(self, first: int, stop: int) -> dict[str, pa.Table]:
        """Returns the rows of a slice."""
        ...

    def check(self, tables: dict[str, pa.Table], index: int, slices: int) -> None:
        """Checks the rows of a slice."""
        ...

    def changed(self, tables: dict[str, pa.Table]) -> Bools:
        """Returns which records contradict an append of another slice."""
        ...

    def others(self) -> dict[str, pa.Table]:
        """Returns all tables but those of clients and of replicas."""
        ...

    def states(self) -> dict[str, pa.Table]:
        """Returns the states of its replicas."""
        ...

    def batches(self) -> dict[str, pa.Table]:
        """Returns what the logs of its replicas hold."""
        ...

    def leaders_hold(self, broker_states: pa.Table) -> bool:
        """Returns whether no leader lowered its high watermark."""
        ...

    def replicas_agree(self, partition_states: pa.Table) -> bool:
        """Returns whether the logs of its replicas are the same."""
        ...

    def offsets_of(self, values: I64) -> I64:
        """Returns the offsets at which appends were acknowledged."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    """What one slice sends to the driver; `trouble` is why it could not be read."""

    index: int
    report: SliceReport | None = None
    acked_during: int = 0
    extent: Extent | None = None
    trouble: str = ""


def judge_in_buckets(spark: Any, task: Task, *, width: int = BUCKET_WIDTH) -> dict[str, Any] | None:
    """Judges one stored partition in buckets.

    Args:
        spark: The Spark context.
        task: The partition (`checkers.jobs.stored.tasks_of`).
        width: How many offsets a bucket holds.

    Returns:
        A row as `checkers.jobs.check.judge_task` gives it; None if the partition must be judged as a whole.
    """
    pieces = StoredPartition(task)
    judged = judge_pieces(spark, pieces, width=width)
    if judged is None:
        return None
    judgement, acked = judged
    operations, records = pieces.final_reads()
    error_ns = pieces.context.clock_error_ns
    return {
        "run": task["run"],
        "judgement": judgement_to_json(judgement),
        "acked_during": acked,
        "disagreement": disagreement(pieces.topic, pieces.partition, operations, records, error_ns),
    }


def judge_pieces(
    spark: Any, pieces: Pieces, *, width: int = BUCKET_WIDTH
) -> tuple[PartitionJudgement, int] | None:
    """Judges a partition that is read in pieces.

    Args:
        spark: The Spark context.
        pieces: The partition.
        width: How many offsets a bucket holds.

    Returns:
        The judgement, and how many appends were acknowledged while a fault was in force; None if the partition
        must be judged as a whole.
    """
    context = pieces.context
    bounds = pieces.bounds() if can_be_cut(context) else []
    if not bounds:
        return None
    try:
        others = pieces.others()
        groups = group_facts(others["group_events"]) if GROUP_CHECKER in context.checkers else ()
        has_replicas = REPLICA_CHECKER in context.checkers
        hold = not has_replicas or pieces.leaders_hold(others["broker_states"])
        agree = not has_replicas or pieces.replicas_agree(others["partition_states"])
    except (HistoryError, ValueError, OSError, pa.ArrowException):
        return None
    if len(groups) > GROUPS_MAX:
        return None
    cut = _Cut(spark, pieces, bounds, others["faults"], groups, width)
    if cut.sent is None:
        return None
    judgement = None
    if hold and agree and not vacuous_facts(cut.extent, context):
        judgement = judge_cut_partition(
            pieces.topic,
            pieces.partition,
            cut.reports,
            cut.results,
            cut.free.value,
            context,
            width=width,
            groups=groups,
            measures=cut.measures,
        )
    if judgement is None:
        judgement = _judge_remainder(spark, cut, others, with_batches=not agree)
    cut.free.unpersist()
    return judgement, sum(item.acked_during for item in cut.sent)


class _Cut:
    """A partition that was cut: what its slices and buckets returned."""

    def __init__(
        self,
        spark: Any,
        pieces: Pieces,
        bounds: list[tuple[int, int, int]],
        faults: pa.Table,
        groups: Sequence[GroupFacts],
        width: int,
    ) -> None:
        self.pieces, self.bounds, self.groups, self.width = pieces, bounds, groups, width
        members = tuple(group.members for group in groups)
        since = None
        if MEASURED in pieces.context.checkers:
            since = moments_of(faults, pieces.context.clock_error_ns)
        cut = partial(
            _cut,
            pieces=pieces,
            width=width,
            faults=faults,
            members=members,
            since=since,
            slices=len(bounds),
        )
        lumps = spark.parallelize(bounds, len(bounds)).flatMap(cut)
        reducers = min(REDUCERS_MAX, len(bounds))
        self.lumps = lumps.partitionBy(reducers + 1, partial(_reducer, reducers=reducers))
        sent = sorted(spark.runJob(self.lumps, _values, [0]), key=lambda item: item.index)
        self.sent: list[_Sent] | None = None
        if any(item.trouble for item in sent):
            return
        reports = [item.report for item in sent if item.report is not None]
        if pieces.context.clock_error_ns and may_contradict_itself(reports):
            return
        self.sent, self.reports = sent, reports
        self.extent = joined(item.extent for item in sent if item.extent is not None)
        self.free = spark.broadcast(all_free(self.reports))
        committed = tuple(group.committed for group in groups)
        slices = [report.measures for report in self.reports if report.measures is not None]
        moments = moments_until(end_of_all(slices)) if slices else None
        judge = partial(_judge, free=self.free, committed=committed, moments=moments)
        self.results: dict[int, BucketResult] = self.in_buckets(judge)
        self.measures = measures_of(self.reports, self.results, faults)

    def in_buckets(self, judge: Callable[..., Any]) -> dict[int, Any]:
        """Returns what a function returns for every bucket, called with its parts, number and range of offsets."""
        context = self.pieces.context
        limit = max(report.limit for report in self.reports)
        task = partial(
            _in_buckets,
            judge=judge,
            width=self.width,
            start=context.log_start_offset,
            limit=limit,
        )
        return dict(self.lumps.mapPartitions(task).collect())


def _judge_remainder(
    spark: Any, cut: _Cut, others: Mapping[str, pa.Table], *, with_batches: bool
) -> PartitionJudgement:
    """Finds the suspects of a partition and judges what remains of it without everything else."""
    pieces, context = cut.pieces, cut.pieces.context
    states, faults = others["partition_states"], others["faults"]
    rules = rules_of(context, states, faults, cut.groups, cut.extent)
    plan = spark.broadcast(_plan(spark, cut, rules))
    totals = totals_of(cut.reports, cut.results, cut.groups, cut.extent, cut.measures)
    task = partial(_keep, pieces=pieces, plan=plan, rules=rules)
    kept = spark.parallelize(cut.bounds, len(cut.bounds)).flatMap(task).partitionBy(1, _first)
    judge = partial(
        _judge_kept,
        pieces=pieces,
        others=dict(others),
        with_batches=with_batches,
        plan=plan,
        totals=totals,
    )
    (judgement,) = kept.mapPartitions(judge).collect()
    plan.unpersist()
    result: PartitionJudgement = judgement
    return result


def _plan(spark: Any, cut: _Cut, rules: Rules) -> Plan:
    """Returns what every slice has to keep."""
    bounds = spark.broadcast(bounds_of(cut.results))
    repeated = repeated_in(cut.results)
    find = partial(
        _find, free=cut.free, bounds=bounds, rules=rules, repeated=repeated, width=cut.width
    )
    found: dict[int, BucketSuspects] = cut.in_buckets(partial(find, quota={}))
    quota = quotas({bucket: each.counts for bucket, each in found.items()})
    if not all(found[bucket].fills(quota[bucket]) for bucket in found):
        found = cut.in_buckets(partial(find, quota=quota))
    bounds.unpersist()
    strays = strays_in(found)
    return gather(
        cut.reports,
        cut.results,
        found,
        cut.free.value,
        cut.pieces.offsets_of(strays),
        rules,
        width=cut.width,
    )


def _reducer(key: int, *, reducers: int) -> int:
    """Returns the reduce partition of a key; the first one is that of the reports."""
    return 0 if key == _REPORTS else 1 + key % reducers


def _first(key: int) -> int:
    return 0


def _values(pairs: Iterable[tuple[int, Any]]) -> Iterator[Any]:
    return (value for _, value in pairs)


def _cut(
    bounds: tuple[int, int, int],
    *,
    pieces: Pieces,
    width: int,
    faults: pa.Table,
    members: Sequence[I64],
    since: Sequence[int] | None,
    slices: int,
) -> list[tuple[int, _Sent] | tuple[int, Part]]:
    """Reads and cuts one slice: its report and its parts, each with its key."""
    index, first, stop = bounds
    try:
        tables = pieces.read(first, stop)
        op = tables["operations"].column("op_index").to_numpy()
        if not bool((np.diff(op) > 0).all()):
            return [(_REPORTS, _Sent(index=index, trouble="operations are not in order"))]
        pieces.check(tables, index, slices)
        changed = pieces.changed(tables)
        operations, records, ends = (tables[name] for name in OPERATION_TABLES)
        history = read_history(operations, records, ends, changed=changed)
        limit_ns = pieces.context.recovery_max_ms * MS
        is_limited = since is not None and limit_ns > 0
        report, parts = cut_slice(
            history,
            log_start_offset=pieces.context.log_start_offset,
            width=width,
            group_polls=[member_polls(tables["operations"], each) for each in members],
            since=since,
            tried=attempts(operations, since or (), limit_ns) if is_limited else None,
        )
        acked = acked_during_faults(tables["operations"], faults)
        extent = extent_of(tables["operations"], tables["records_read"])
    except Exception as error:  # judging the partition as a whole reports it
        return [(_REPORTS, _Sent(index=index, trouble=f"{type(error).__name__}: {error}"))]
    sent = _Sent(index=index, report=report, acked_during=acked, extent=extent)
    return [(_REPORTS, sent), *parts.items()]


def _in_buckets(
    pairs: Iterable[tuple[int, Any]],
    *,
    judge: Callable[..., Any],
    width: int,
    start: int,
    limit: int,
) -> Iterator[tuple[int, Any]]:
    """Yields what a function returns for the buckets of one reduce partition."""
    parts: dict[int, list[Part]] = {}
    for bucket, part in pairs:
        if bucket != _REPORTS:
            parts.setdefault(bucket, []).append(part)
    for bucket in sorted(parts):
        first, stop = bucket_range(bucket, width, start, limit)
        yield bucket, judge(parts.pop(bucket), bucket, first=first, stop=stop)


def _judge(
    parts: list[Part],
    bucket: int,
    *,
    free: Any,
    committed: Sequence[int],
    moments: I64 | None,
    first: int,
    stop: int,
) -> BucketResult:
    known: FreeAppends = free.value
    return judge_bucket(parts, known, first=first, stop=stop, committed=committed, moments=moments)


def _find(
    parts: list[Part],
    bucket: int,
    *,
    free: Any,
    bounds: Any,
    rules: Rules,
    repeated: I64,
    width: int,
    quota: Mapping[int, tuple[int, int]],
    first: int,
    stop: int,
) -> BucketSuspects:
    return suspects_in(
        parts,
        free.value,
        bounds.value[bucket],
        rules,
        repeated,
        low=bucket * width,
        first=first,
        stop=stop,
        quota=quota.get(bucket, (SUSPECTS_SENT_MAX, SUSPECTS_SENT_MAX)),
    )


def _keep(
    bounds: tuple[int, int, int], *, pieces: Pieces, plan: Any, rules: Rules
) -> list[tuple[int, Kept]]:
    """Reads one slice again and keeps what matters."""
    _, first, stop = bounds
    tables = pieces.read(first, stop)
    history = read_history(*(tables[name] for name in OPERATION_TABLES))
    return [(0, keep(tables, history, plan.value, rules))]


def _judge_kept(
    pairs: Iterable[tuple[int, Kept]],
    *,
    pieces: Pieces,
    others: Mapping[str, pa.Table],
    with_batches: bool,
    plan: Any,
    totals: Totals,
) -> Iterator[PartitionJudgement]:
    # Logs that agree have no finding, and may be much larger than what is left of the history.
    batches = pieces.batches() if with_batches else {}
    yield judge_remainder(
        pieces.topic,
        pieces.partition,
        [kept for _, kept in pairs],
        {**others, **pieces.states(), **batches},
        plan.value,
        totals,
        pieces.context,
    )
