"""A partition too large for one task, cut into buckets of offsets.

    slices (ranges of operations)  --shuffle by bucket-->  buckets (ranges of offsets)  -->  driver folds

Tasks read their slice's row groups with PyArrow and send each bucket its part. What is shuffled is one lump of
arrays per slice and bucket, so the JVM moves bytes, never rows. The driver first asks for the slices' reports (one
reduce partition of their own), hands the few appends of unknown outcome to every bucket, and folds the answers.
The second question finds the shuffled lumps where the first one left them.

The buckets decide whether anything at all is wrong. If nothing is, their numbers are the judgement. If something
is, or something cannot be read, the partition goes to one task as a whole after all: naming every anomaly with its
witnesses, excuses and losses needs the joins that only the kernel on the whole history makes, about 100 bytes of
memory for each operation. That is the limit of what is judged here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from checkers.compose import (
    PartitionJudgement,
    RunContext,
    acked_during_faults,
    judgement_to_json,
)
from checkers.jobs.buckets import (
    BucketAnswer,
    LogVerdict,
    all_free,
    final_log_of,
    fold,
    judge_bucket,
    senders_in_order,
)
from checkers.jobs.slices import FreeAppends, Part, SliceReport, cut_slice
from checkers.jobs.stored import CLIENT_TABLES, Task, context_of, file_of, wanted_columns
from checkers.kernels.history import read_history
from harness.history.parquet import TableFile, read_file
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
    """What one slice sends to the driver; `trouble` says why it could not be read."""

    index: int
    report: SliceReport | None = None
    acked_during: int = 0
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
    bounds = slice_bounds(task)
    if not bounds:
        return None
    context = context_of(task)
    cut = partial(_cut, task=task, width=width)
    lumps = spark.parallelize(bounds, len(bounds)).flatMap(cut)
    reducers = min(REDUCERS_MAX, len(bounds))
    lumps = lumps.partitionBy(reducers + 1, partial(_reducer, reducers=reducers))
    sent = sorted(spark.runJob(lumps, _values, [0]), key=lambda item: item.index)
    if any(item.trouble for item in sent):
        return None
    reports = [item.report for item in sent if item.report is not None]
    free = spark.broadcast(all_free(reports))
    limit = max(report.limit for report in reports)
    judge = partial(_judge, free=free, width=width, start=context.log_start_offset, limit=limit)
    answers = dict(lumps.mapPartitions(judge).collect())
    judgement = _judgement(task, context, reports, answers, free.value, width)
    free.unpersist()
    if judgement is None:
        return None
    return {
        "run": task["run"],
        "judgement": judgement_to_json(judgement),
        "acked_during": sum(item.acked_during for item in sent),
    }


def slice_bounds(task: Task) -> list[tuple[int, int, int]]:
    """Returns the slices of a partition, one per row group of its operations: (index, first op, op to stop at).

    Together they hold every operation index there is. Empty if the files do not tell, or are not what the manifest
    says; whoever reads them as a whole then says what is wrong.
    """
    files = _client_files(task)
    try:
        starts: list[int] = []
        for file in files:
            with pq.ParquetFile(file.path) as parquet:
                if parquet.metadata.num_rows != file.rows or not parquet.schema_arrow.equals(
                    TABLES[file.table], check_metadata=False
                ):
                    return []
                if file.table == "operations":
                    starts = [low for low, _ in _op_ranges(parquet)]
    except (OSError, pa.ArrowException, LookupError):
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


def _client_files(task: Task) -> list[TableFile]:
    files = [file_of(data) for data in task["files"]]
    return [file for file in files if file.table in CLIENT_TABLES]


def _op_ranges(parquet: Any) -> list[tuple[int, int]]:
    """Returns the smallest and the largest op_index of every row group.

    Raises:
        LookupError: The file does not say.
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
    bounds: tuple[int, int, int], *, task: Task, width: int
) -> list[tuple[int, _Sent] | tuple[int, Part]]:
    """Reads and cuts one slice: its report and its parts, each with its key."""
    index, first, stop = bounds
    context = context_of(task)
    try:
        tables = read_slice(task, first, stop)
        op = tables["operations"].column("op_index").to_numpy()
        if not bool((np.diff(op) > 0).all()):
            return [(_REPORTS, _Sent(index=index, trouble="operations are not in order"))]
        history = read_history(*(tables[name] for name in CLIENT_TABLES))
        report, parts = cut_slice(history, log_start_offset=context.log_start_offset, width=width)
        acked = acked_during_faults(tables["operations"], _faults(task))
    except Exception as error:  # whoever reads the partition as a whole names it
        return [(_REPORTS, _Sent(index=index, trouble=f"{type(error).__name__}: {error}"))]
    return [(_REPORTS, _Sent(index=index, report=report, acked_during=acked)), *parts.items()]


def _faults(task: Task) -> pa.Table:
    files = [file_of(data) for data in task["shared"]]
    tables = [read_file(file) for file in files if file.table == "faults"]
    return tables[0] if tables else TABLES["faults"].empty_table()


def _judge(
    pairs: Iterable[tuple[int, Any]], *, free: Any, width: int, start: int, limit: int
) -> Iterator[tuple[int, BucketAnswer]]:
    """Judges the buckets of one reduce partition."""
    parts: dict[int, list[Part]] = {}
    for bucket, part in pairs:
        if bucket != _REPORTS:
            parts.setdefault(bucket, []).append(part)
    known: FreeAppends = free.value
    for bucket in sorted(parts):
        first, stop = bucket_range(bucket, width, start, limit)
        yield bucket, judge_bucket(parts.pop(bucket), known, first=first, stop=stop)


def bucket_range(bucket: int, width: int, start: int, limit: int) -> tuple[int, int]:
    """Returns the first offset of a bucket that counts, and one more than its last known to have existed."""
    return max(bucket * width, start), min((bucket + 1) * width, limit)


def _judgement(
    task: Task,
    context: RunContext,
    reports: Sequence[SliceReport],
    answers: Mapping[int, BucketAnswer],
    free: FreeAppends,
    width: int,
) -> PartitionJudgement | None:
    """Returns the judgement of a partition in which nothing is wrong, None if something is."""
    start = context.log_start_offset
    verdict = fold(
        reports,
        answers,
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
        and all(answer.all_there for answer in answers.values())
        and not any(report.odd for report in reports)
        and senders_in_order(reports)
    )
    if not is_clean:
        return None
    return PartitionJudgement(
        topic=task["topic"],
        partition=task["partition"],
        coverage=_coverage(reports, verdict, final.end_offset),
    )


def _coverage(
    reports: Sequence[SliceReport], verdict: LogVerdict, final_end_offset: int
) -> dict[str, Any]:
    """Returns the coverage that the kernels would give: every acknowledged append was read back at the end."""
    total = {name: sum(report.counts[name] for report in reports) for name in reports[0].counts}
    appends = ("operations", "appends", "appends_acked", "appends_failed", "appends_unknown")
    acked = total["acked"]
    return {
        **{name: total[name] for name in appends},
        "appends_unknown_revealed": verdict.revealed_count,
        "acked_read_back": acked,
        **{name: total[name] for name in ("polls", "records_read", "ends_seen")},
        "holes": 0,
        "hole_ranges": [],
        "final_end_offset": final_end_offset,
        "final_reads_complete": True,
        "acked_in_final_reads": acked,
        "acked_unseen": 0,
    }
