"""A partition too large for one task, cut into buckets of offsets.

    slices (ranges of operations)  --shuffle by bucket-->  buckets (ranges of offsets)  -->  driver folds

Tasks read their slice's row groups with PyArrow and send each bucket its part. What is shuffled is one lump of
arrays per slice and bucket, so the JVM moves bytes, never rows. The driver first collects the slices' reports (one
reduce partition of their own), passes the few appends of unknown outcome to every bucket, and folds what the
buckets return. The second Spark job reuses the shuffled lumps of the first one.

Kernels decide (`slices`, `buckets`, `cut_partition`). If they find anything wrong, or if something cannot be read,
the partition goes to one task as a whole after all, which takes about 100 bytes of memory for each operation.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from checkers.jobs.stored import (
    CLIENT_TABLES,
    Task,
    context_of,
    file_of,
    names_of,
    read_tables_of,
    wanted_columns,
)
from checkers.kernels.buckets import BucketResult, all_free, judge_bucket
from checkers.kernels.compose import acked_during_faults
from checkers.kernels.consumer_group import member_polls
from checkers.kernels.cut_partition import (
    REPLICA_CHECKER,
    bucket_range,
    can_be_cut,
    group_to_fold,
    judge_cut_partition,
)
from checkers.kernels.divergence import (
    BATCH_COLUMNS,
    WINDOW_COLUMNS,
    LogComparison,
    in_sync,
    join_windows,
    windows_of,
)
from checkers.kernels.history import I64, lookup, read_history
from checkers.kernels.payloads import CLAIMS, contradicting
from checkers.kernels.replicas import LeaderStates, registrations
from checkers.kernels.slices import FreeAppends, Part, SliceReport, cut_slice
from checkers.kernels.vacuous_facts import Extent, extent_of, hides_nothing, joined, vacuous_facts
from checkers.kernels.validation import check_partition, check_states
from checkers.kernels.verdict_json import judgement_to_json
from harness.errors import HistoryError
from harness.history.parquet import TableFile, check_file
from harness.history.schema import TABLES

HUGE_OPERATIONS = 20_000_000
"""From here on a partition is cut: as a whole it would take some 2 GB of a task's memory."""

BUCKET_WIDTH = 1_000_000
"""Offsets per bucket: some tens of megabytes of arrays."""

REDUCERS_MAX = 32
"""Buckets are dealt to as many reduce partitions as there are slices, so that one holds few of them at a time;
more than this many would only cost scheduling."""

_REPORTS = -1
"""The key under which slices send their reports; buckets are not negative."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    """What one slice sends to the driver; `trouble` is why it could not be read."""

    index: int
    report: SliceReport | None = None
    acked_during: int = 0
    extent: Extent | None = None
    trouble: str = ""


def judge_in_buckets(spark: Any, task: Task, *, width: int = BUCKET_WIDTH) -> dict[str, Any] | None:
    """Judges one partition in buckets.

    Args:
        spark: The Spark context.
        task: The partition (`checkers.jobs.stored.tasks_of`).
        width: How many offsets a bucket holds.

    Returns:
        A row as `checkers.jobs.check.judge_task` gives it; None if something is wrong with the partition, so that
        it must be judged as a whole.
    """
    context = context_of(task)
    bounds = slice_bounds(task) if can_be_cut(context) else []
    if not bounds:
        return None
    try:
        shared = read_tables_of(task, ("faults", "group_events", "broker_states"))
        check_partition({"group_events": shared["group_events"]}, names_of(task))
        group = group_to_fold(shared["group_events"], context)
        if REPLICA_CHECKER in context.checkers and not (
            leaders_hold(task, shared["broker_states"])
            and replicas_agree(task, sparse=context.sparse_offsets)
        ):
            return None
    except (HistoryError, ValueError, OSError, pa.ArrowException):
        return None
    members = None if group is None else group.members
    cut = partial(
        _cut, task=task, width=width, faults=shared["faults"], members=members, slices=len(bounds)
    )
    lumps = spark.parallelize(bounds, len(bounds)).flatMap(cut)
    reducers = min(REDUCERS_MAX, len(bounds))
    lumps = lumps.partitionBy(reducers + 1, partial(_reducer, reducers=reducers))
    sent = sorted(spark.runJob(lumps, _values, [0]), key=lambda item: item.index)
    if any(item.trouble for item in sent):
        return None
    extent = joined(item.extent for item in sent if item.extent is not None)
    if vacuous_facts(extent, context):
        return None
    reports = [item.report for item in sent if item.report is not None]
    free = spark.broadcast(all_free(reports))
    limit = max(report.limit for report in reports)
    judge = partial(
        _judge,
        free=free,
        width=width,
        start=context.log_start_offset,
        limit=limit,
        committed=-1 if group is None else group.committed,
    )
    results = dict(lumps.mapPartitions(judge).collect())
    judgement = judge_cut_partition(
        task["topic"],
        task["partition"],
        reports,
        results,
        free.value,
        context,
        width=width,
        group=group,
    )
    free.unpersist()
    if judgement is None:
        return None
    return {
        "run": task["run"],
        "judgement": judgement_to_json(judgement),
        "acked_during": sum(item.acked_during for item in sent),
    }


def leaders_hold(task: Task, broker_states: pa.Table) -> bool:
    """Returns whether no leader lowered its high watermark, reading one row group after the other.

    Args:
        task: The partition.
        broker_states: Rows of the whole run.

    Raises:
        OSError: A file cannot be read.
        pyarrow.ArrowException: It is damaged.
    """
    states = LeaderStates(registrations(broker_states))
    last_ns = -(2**63)
    for file in (file_of(data) for data in task["files"]):
        if file.table != "replica_states":
            continue
        with pq.ParquetFile(file.path, page_checksum_verification=True) as parquet:
            for group in range(parquet.metadata.num_row_groups):
                rows = parquet.read_row_group(group, columns=wanted_columns(file.table))
                at_ns = np.append(last_ns, rows.column("at_ns").to_numpy())
                if bool((at_ns[1:] < at_ns[:-1]).any()):
                    return False  # not in canonical order: to be judged as a whole
                last_ns = int(at_ns[-1])
                states.follow(rows)
    return not states.lowered


def replicas_agree(task: Task, *, sparse: bool = False) -> bool:
    """Returns whether the logs of the replicas are the same, reading one row group after the other.

    Args:
        task: The partition.
        sparse: Whether offsets may be missing.

    Raises:
        HistoryError, OSError: A file cannot be read.
        pyarrow.ArrowException: It is damaged.
    """
    windows = join_windows(windows_of(rows) for rows in _batch_groups(task, WINDOW_COLUMNS))
    states = read_tables_of(task, ("partition_states",))["partition_states"]
    comparison = LogComparison(in_sync(windows, states), sparse=sparse)
    last = -1
    for rows in _batch_groups(task, BATCH_COLUMNS):
        base = np.append(last, rows.column("base_offset").to_numpy())
        if bool((base[1:] < base[:-1]).any()):
            return False  # not in canonical order: to be judged as a whole
        last = int(base[-1])
        comparison.follow(rows)
    return comparison.end() is None


def _batch_groups(task: Task, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yields the row groups of the table `replica_batches` of a partition."""
    for file in (file_of(data) for data in task["files"]):
        if file.table == "replica_batches":
            with pq.ParquetFile(file.path, page_checksum_verification=True) as parquet:
                for group in range(parquet.metadata.num_row_groups):
                    yield parquet.read_row_group(group, columns=list(columns))


def slice_bounds(task: Task) -> list[tuple[int, int, int]]:
    """Returns the slices of a partition, one per row group of its operations: (index, first op, op to stop at).

    Together they hold every operation index there is. Empty if the files lack statistics or differ from the
    manifest; reading them as a whole then reports what is wrong.
    """
    files = _client_files(task)
    try:
        starts: list[int] = []
        for data in task["files"]:
            check_file(file_of(data))
        for file in files:
            with pq.ParquetFile(file.path) as parquet:
                if file.table == "operations":
                    starts = [low for low, _ in _op_ranges(parquet)]
    except (OSError, pa.ArrowException, LookupError, HistoryError):
        return []
    if not starts or any(later <= earlier for earlier, later in pairwise(starts)):
        return []
    edges = [-(2**63), *starts[1:], 2**63 - 1]
    return [(index, edges[index], edges[index + 1]) for index in range(len(starts))]


def read_slice(task: Task, first: int, stop: int) -> dict[str, pa.Table]:
    """Reads the rows of a partition whose op_index is in [first, stop).

    Raises:
        OSError: A file cannot be read.
        pyarrow.ArrowException: It is damaged.
    """
    tables = {name: TABLES[name].empty_table() for name in CLIENT_TABLES}
    for file in _client_files(task):
        columns = wanted_columns(file.table)
        with pq.ParquetFile(file.path, page_checksum_verification=True) as parquet:
            groups = [
                group
                for group, (low, high) in enumerate(_op_ranges(parquet))
                if low < stop and high >= first
            ]
            table = parquet.read_row_groups(groups, columns=columns)
        op = table.column("op_index")
        tables[file.table] = table.filter(
            pc.and_(pc.greater_equal(op, pa.scalar(first)), pc.less(op, pa.scalar(stop)))
        )
    return tables


def _check_slice(task: Task, tables: dict[str, pa.Table], index: int, slices: int) -> None:
    """Checks the rows of a slice, and a share of the rows of other tables that a valid partition does not need.

    Raises:
        HistoryError: A row cannot be, or a record contradicts its append; judging the whole partition names it.
    """
    names = names_of(task)
    check_partition(tables, names)
    for file in (file_of(data) for data in task["files"]):
        if file.table in ("partition_states", "replica_states", "replica_batches"):
            with pq.ParquetFile(file.path, page_checksum_verification=True) as parquet:
                for group in range(index, parquet.metadata.num_row_groups, slices):
                    rows = parquet.read_row_group(group, columns=wanted_columns(file.table))
                    check_states({file.table: rows}, names)
    if _has_contradicting_records(task, tables):
        raise HistoryError("a record contradicts its append")


def _has_contradicting_records(task: Task, tables: dict[str, pa.Table]) -> bool:
    """Returns whether a record contradicts an append of another slice; `read_history` sees those of its own."""
    value = tables["records_read"].column("value").to_numpy()
    is_here = np.isin(value, tables["operations"].column("op_index").to_numpy())
    rows = np.flatnonzero(~is_here & (value >= 0))
    records = tables["records_read"].select(CLAIMS).take(pa.array(rows))
    value = value[rows]
    (file,) = (file for file in _client_files(task) if file.table == "operations")
    with pq.ParquetFile(file.path, page_checksum_verification=True) as parquet:
        for group, (low, high) in enumerate(_op_ranges(parquet)):
            inside = np.flatnonzero((value >= low) & (value <= high))
            if not len(inside):
                continue
            appends = parquet.read_row_group(group, columns=["op_index", "kind", *CLAIMS])
            appends = appends.filter(pc.field("kind") == "append")
            append = lookup(appends.column("op_index").to_numpy())(value[inside])
            if contradicting(records.take(pa.array(inside)), appends, append).any():
                return True
    return False


def _client_files(task: Task) -> list[TableFile]:
    files = [file_of(data) for data in task["files"]]
    return [file for file in files if file.table in CLIENT_TABLES]


def _op_ranges(parquet: Any) -> list[tuple[int, int]]:
    """Returns the smallest and the largest op_index of every row group.

    Raises:
        LookupError: The file has no statistics.
    """
    column = parquet.schema_arrow.get_field_index("op_index")
    ranges = []
    for group in range(parquet.metadata.num_row_groups):
        statistics = parquet.metadata.row_group(group).column(column).statistics
        if statistics is None or not statistics.has_min_max:
            raise LookupError("no statistics")
        ranges.append((statistics.min, statistics.max))
    return ranges


def _reducer(key: int, *, reducers: int) -> int:
    """Returns the reduce partition of a key; the first one is that of the reports."""
    return 0 if key == _REPORTS else 1 + key % reducers


def _values(pairs: Iterable[tuple[int, Any]]) -> Iterator[Any]:
    return (value for _, value in pairs)


def _cut(
    bounds: tuple[int, int, int],
    *,
    task: Task,
    width: int,
    faults: pa.Table,
    members: I64 | None,
    slices: int,
) -> list[tuple[int, _Sent] | tuple[int, Part]]:
    """Reads and cuts one slice: its report and its parts, each with its key."""
    index, first, stop = bounds
    context = context_of(task)
    try:
        tables = read_slice(task, first, stop)
        op = tables["operations"].column("op_index").to_numpy()
        if not bool((np.diff(op) > 0).all()):
            return [(_REPORTS, _Sent(index=index, trouble="operations are not in order"))]
        _check_slice(task, tables, index, slices)
        history = read_history(*(tables[name] for name in CLIENT_TABLES))
        report, parts = cut_slice(
            history,
            log_start_offset=context.log_start_offset,
            width=width,
            group_polls=None if members is None else member_polls(tables["operations"], members),
        )
        acked = acked_during_faults(tables["operations"], faults)
        operations, records = tables["operations"], tables["records_read"]
        extent = None if hides_nothing(context) else extent_of(operations, records)
    except Exception as error:  # judging the partition as a whole reports it
        return [(_REPORTS, _Sent(index=index, trouble=f"{type(error).__name__}: {error}"))]
    sent = _Sent(index=index, report=report, acked_during=acked, extent=extent)
    return [(_REPORTS, sent), *parts.items()]


def _judge(
    pairs: Iterable[tuple[int, Any]],
    *,
    free: Any,
    width: int,
    start: int,
    limit: int,
    committed: int,
) -> Iterator[tuple[int, BucketResult]]:
    """Judges the buckets of one reduce partition."""
    parts: dict[int, list[Part]] = {}
    for bucket, part in pairs:
        if bucket != _REPORTS:
            parts.setdefault(bucket, []).append(part)
    known: FreeAppends = free.value
    for bucket in sorted(parts):
        first, stop = bucket_range(bucket, width, start, limit)
        yield (
            bucket,
            judge_bucket(parts.pop(bucket), known, first=first, stop=stop, committed=committed),
        )
