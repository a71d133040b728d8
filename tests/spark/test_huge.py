"""A partition cut into buckets is judged like the whole."""

import json
import random
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from checkers.jobs.check import check_here, check_job, judge_task, plan
from checkers.jobs.huge import judge_in_buckets
from checkers.jobs.in_process import InProcess
from checkers.jobs.pieces import slice_bounds
from checkers.kernels.acks_one import OF_FREE_APPENDS
from checkers.kernels.buckets import LogVerdict, all_free, fold, judge_bucket
from checkers.kernels.cut_partition import bucket_range
from checkers.kernels.history import OK_SOMEWHERE, read_history
from checkers.kernels.linearizability import (
    Options,
    PartitionReport,
    check_history,
)
from checkers.kernels.slices import Part, cut_slice
from harness.contracts.run_context import LOG_CHECKERS
from harness.history.parquet import table_files
from harness.history.schema import TABLES
from tests.parts import parts
from tests.property.brute_force import ends_table, operations_table, random_history, records_table
from tests.spark.stored_runs import (
    CONTEXT,
    judged_here,
    replaced,
    store,
    synthetic,
    tasks,
    with_group,
)

WIDTHS = (1, 2, 7, 10**6)
HISTORIES = 400
PARTS = 16
"""Of a second at most, so that they can be chosen one by one."""

INTEGRITY = frozenset(
    {
        "two-acks-one-offset",
        "divergent-value",
        "duplicate",
        "failed-append-visible",
        "phantom-value",
        "lost-record",
        "skipped-offset",
        "torn-fetch",
        "nonmonotonic-poll",
        "unordered-poll",
    }
)
ORDER = frozenset({"order-inversion", "future-read", "late-insert"})
FRESH = frozenset({"stale-end", "lost-ack", "end-regression"})


def in_buckets(
    tables: tuple[pa.Table, ...], width: int, cuts: list[int], options: Options
) -> LogVerdict:
    """Returns the verdict of buckets on a history that is cut before the given operations."""
    start = options.log_start_offset
    edges = [-(2**62), *cuts, 2**62]
    reports, parts = [], {}
    for first, stop in pairwise(edges):
        slice_tables = [_between(table, first, stop) for table in tables]
        report, cut = cut_slice(read_history(*slice_tables), log_start_offset=start, width=width)
        reports.append(report)
        for bucket, part in cut.items():
            mine: list[Part] = parts.setdefault(bucket, [])
            mine.insert(0, part)
    free, limit = all_free(reports), max(report.limit for report in reports)
    answers = {}
    for bucket, mine in parts.items():
        first, stop = bucket_range(bucket, width, start, limit)
        answers[bucket] = judge_bucket(mine, free, first=first, stop=stop)
    return fold(
        reports,
        answers,
        free,
        width=width,
        log_start_offset=start,
        clock_error_ns=options.clock_error_ns,
    )


def _between(table: pa.Table, first: int, stop: int) -> pa.Table:
    op = table.column("op_index")
    return table.filter(pc.and_(pc.greater_equal(op, first), pc.less(op, stop)))


def _says(report: PartitionReport) -> tuple[object, ...]:
    ids = {finding.id for finding in report.findings}
    return (
        *(not ids & kinds for kinds in (INTEGRITY, ORDER, FRESH, OF_FREE_APPENDS)),
        report.is_linearizable,
        report.holes.count,
    )


def _may_be_below_the_start(report: PartitionReport) -> bool:
    """Returns whether an append without an offset, which no read showed, may be below a log start."""
    is_nowhere = (report.history.append_status == OK_SOMEWHERE) & ~report.facts.append_read
    return report.facts.log_start_offset > 0 and bool(is_nowhere.any())


@pytest.mark.parametrize("seed", parts(range(PARTS), quick=4))
def test_buckets_of_any_width_and_the_kernel_agree_on_random_histories(seed: int) -> None:
    rng = random.Random(seed)
    invalid = 0
    for _ in range(HISTORIES // PARTS):
        calls = random_history(rng)
        tables = (operations_table(calls), records_table(calls), ends_table(calls))
        options = Options(
            log_start_offset=rng.choice((0, 0, 1, 2, 4)), clock_error_ns=rng.choice((0, 0, 1))
        )
        report = check_history(read_history(*tables), options)
        ops = sorted(call.op for call in calls)
        invalid += not report.is_linearizable
        for width in WIDTHS:
            cuts = sorted(rng.sample(ops, min(len(ops), rng.randrange(4))))
            verdict = in_buckets(tables, width, cuts, options)
            says, fits = _says(report), verdict.free_appends_fit
            if not all(says[:3]) and report.facts.append_weak.any():
                # Holes where records of acks=1 may be lost matter only if a partition is judged as a whole.
                says = (*says[:3], fits, *says[4:])
            elif _may_be_below_the_start(report):
                # Such a partition has an append that no read showed, so its suspects are judged anyway.
                assert says[3] or not fits, (width, cuts, options, calls)
                says = (*says[:3], fits, fits and all(says[:3]), *says[5:])
            assert (
                verdict.integrity_holds,
                verdict.order_holds,
                verdict.fresh_holds,
                fits,
                verdict.is_linearizable,
                verdict.hole_count,
            ) == says, (width, cuts, options, calls)
            for kinds, element in ((ORDER, verdict.order), (FRESH, verdict.fresh)):
                gaps = [int(f.gap_ns.max()) for f in report.findings if f.id in kinds]
                # The worst contradiction comes out of the fold, without a second pass.
                assert not gaps or element.slack_ns == max(gaps), (width, cuts, calls)
    assert 0 < invalid < HISTORIES // PARTS


@pytest.mark.parametrize("width", WIDTHS)
def test_a_clean_partition_is_judged_by_its_buckets_alone(tmp_path: Path, width: int) -> None:
    run = store(tmp_path, synthetic(1, 400, final_read_records=30), group_rows=90)
    (task,) = tasks(run)
    assert len(slice_bounds(task)) > 4
    (whole,) = judge_task(task)
    assert not whole["judgement"]["anomalies"]
    assert json.dumps(judge_in_buckets(InProcess(), task, width=width)) == json.dumps(whole)


@pytest.mark.long
def test_a_partition_with_a_violation_is_judged_in_buckets_like_the_whole(tmp_path: Path) -> None:
    rng = random.Random(3)
    clean = synthetic(1, 150, final_read_records=20)
    wrong = refused = 0
    for number in range(40):
        tables = _mutated(clean, rng)
        run = store(tmp_path / str(number), tables, group_rows=40)
        (task,) = tasks(run)
        (whole,) = judge_task(task)
        cut = judge_in_buckets(InProcess(), task, width=rng.choice(WIDTHS))
        if "history_error" in whole:
            assert cut is None, (number, whole)
            refused += 1
            continue
        wrong += bool(whole["judgement"]["anomalies"] or whole["judgement"]["unknown_reasons"])
        assert json.dumps(cut) == json.dumps(whole), number
    assert wrong > 15
    assert refused > 5


def test_a_lost_append_without_an_offset_is_found_in_buckets(tmp_path: Path) -> None:
    """Its interval overlaps with every other operation but the last final read."""
    tables = synthetic(1, 150, final_read_records=20, unknown_share=0.1)
    operations = tables["operations"]
    read = set(tables["records_read"].column("value").to_pylist())
    lost = next(
        row
        for row, call in enumerate(operations.to_pylist())
        if call["outcome"] == "info" and call["op_index"] not in read
    )
    end_ns = max(operations.column("invoked_ns").to_pylist())
    for column, value in (("outcome", "ok"), ("completed_ns", end_ns - 1)):
        operations = replaced(operations, column, lost, value)
    run = store(tmp_path, {**tables, "operations": operations}, group_rows=40)
    (task,) = tasks(run)
    (whole,) = judge_task(task)
    found = [anomaly["id"] for anomaly in whole["judgement"]["anomalies"]]
    assert found == ["lost-acked-write", "unplaced-below-end"]
    assert json.dumps(judge_in_buckets(InProcess(), task, width=50)) == json.dumps(whole)


GROUP_CONTEXT = replace(CONTEXT, checkers=(*LOG_CHECKERS, "consumer-group"))


@pytest.mark.parametrize("width", WIDTHS)
def test_a_clean_partition_with_a_consumer_group_is_judged_by_its_buckets_alone(
    tmp_path: Path, width: int
) -> None:
    clean = synthetic(1, 300, final_read_records=30)
    for number, tables in enumerate(
        (
            with_group(clean, committed=100),
            with_group(clean, committed=100, skip=(120,), seen=100),
            {
                **with_group(clean, committed=100),
                "group_events": TABLES["group_events"].empty_table(),
            },
        )
    ):
        run = store(tmp_path / str(number), tables, group_rows=70)
        (task,) = tasks(run, GROUP_CONTEXT)
        (whole,) = judge_task(task)
        assert not whole["judgement"]["anomalies"]
        assert ("group_records" in whole["judgement"]["coverage"]) == (number < 2)
        assert json.dumps(judge_in_buckets(InProcess(), task, width=width)) == json.dumps(whole)


@pytest.mark.parametrize(
    ("skip", "seen", "anomaly"),
    [((60,), None, "group-skipped-record"), ((), 7, "committed-offset-regressed")],
)
def test_a_partition_with_records_that_a_group_missed_is_judged_in_buckets_like_the_whole(
    tmp_path: Path, skip: tuple[int, ...], seen: int | None, anomaly: str
) -> None:
    clean = synthetic(1, 300, final_read_records=30)
    run = store(tmp_path, with_group(clean, committed=100, skip=skip, seen=seen), group_rows=70)
    (task,) = tasks(run, GROUP_CONTEXT)
    (whole,) = judge_task(task)
    for width in WIDTHS:
        assert json.dumps(judge_in_buckets(InProcess(), task, width=width)) == json.dumps(whole)
    arguments = plan([run], [asdict(GROUP_CONTEXT)])
    cut = {**arguments, "huge_operations": 300, "bucket_width": 64}
    response = check_job(InProcess(), cut)
    assert response["cut"] == 1
    assert json.dumps(response["verdicts"]) == json.dumps([judged_here(run, GROUP_CONTEXT)])
    assert anomaly in {found["id"] for found in response["verdicts"][0]["anomalies"]}


def test_operations_that_are_not_sorted_are_left_to_the_whole_kernel(tmp_path: Path) -> None:
    run = store(tmp_path, synthetic(1, 100), group_rows=30)
    (task,) = tasks(run)
    assert judge_in_buckets(InProcess(), task) is not None
    (path,) = (data[-1] for data in task["files"] if data[0] == "operations")
    table = pq.read_table(path)
    backwards = table.take(list(reversed(range(table.num_rows))))
    pq.write_table(backwards, path, row_group_size=30)
    assert judge_in_buckets(InProcess(), task) is None
    pq.write_table(backwards, path)
    assert judge_in_buckets(InProcess(), task) is None


def test_files_with_statistics_of_operations_alone_are_cut_too(tmp_path: Path) -> None:
    """Other programs write Parquet as well, and need not write statistics of every column."""
    run = store(tmp_path, synthetic(1, 300, final_read_records=30))
    wanted = json.dumps([judged_here(run)])
    for file in table_files(run):
        whole = pq.read_table(file.path)
        pq.write_table(whole, file.path, row_group_size=70, write_statistics=["op_index"])
    (task,) = tasks(run)
    assert len(slice_bounds(task)) > 4
    cut = {**plan([run], [asdict(CONTEXT)]), "huge_operations": 200, "bucket_width": 64}
    response = check_job(InProcess(), cut)
    assert response["cut"] == 1
    assert json.dumps(response["verdicts"]) == wanted


def test_a_huge_partition_is_cut_without_spark_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = store(tmp_path, synthetic(1, 300), group_rows=70)
    arguments = plan([run], [asdict(CONTEXT)])
    wanted = json.dumps([judged_here(run)])
    monkeypatch.setattr("checkers.jobs.check.judge_task", lambda task: pytest.fail("not cut"))
    cut = {**arguments, "huge_operations": 200, "bucket_width": 64}
    assert json.dumps(check_here(cut)) == wanted


@pytest.mark.parametrize("has_records_beyond", [False, True])
@pytest.mark.parametrize("row", [0, 3, 7])
def test_final_reads_that_do_not_agree_leave_a_huge_partition_undecided(
    tmp_path: Path, row: int, has_records_beyond: bool
) -> None:
    tables = synthetic(1, 300, final_read_records=20)
    operations = tables["operations"]
    final = np.flatnonzero(operations.column("final").to_numpy())
    if has_records_beyond:
        # Only records show how far the log reaches.
        for other in final:
            operations = replaced(operations, "end_offset", int(other), None)
    lowered = replaced(operations, "end_offset", int(final[row]), 5)
    run = store(tmp_path, {**tables, "operations": lowered}, group_rows=70)
    arguments = plan([run], [asdict(CONTEXT)])
    wanted = judged_here(run)
    # Nothing came before the first one.
    assert any("do not agree" in reason for reason in wanted["reasons"]) == (row > 0)
    cut = {**arguments, "huge_operations": 200, "bucket_width": 64}
    assert json.dumps(check_here(cut)) == json.dumps([wanted]) == json.dumps(check_here(arguments))


@pytest.mark.spark
def test_huge_partitions_are_split_on_spark_and_the_verdict_is_the_same(
    spark: Any, tmp_path: Path
) -> None:
    tables = synthetic(2, 600, final_read_records=50)
    operations = tables["operations"]
    broken = {**tables, "operations": replaced(operations, "offset", _acked_row(operations), 3)}
    last = int(np.flatnonzero(operations.column("final").to_numpy())[-1])
    unsettled = {**tables, "operations": replaced(operations, "end_offset", last, 5)}
    for name, content in (("clean", tables), ("broken", broken), ("unsettled", unsettled)):
        run = store(tmp_path / name, content, group_rows=100)
        arguments = plan([run], [asdict(CONTEXT)])
        response = check_job(spark, {**arguments, "huge_operations": 300, "bucket_width": 64})
        assert response["cut"] == 2
        assert json.dumps(response["verdicts"]) == json.dumps([judged_here(run)])


def _acked_row(operations: pa.Table) -> int:
    offsets = operations.column("offset").to_pylist()
    kinds = operations.column("kind").to_pylist()
    return next(
        row
        for row, (kind, offset) in enumerate(zip(kinds, offsets, strict=True))
        if kind == "append" and offset is not None and offset > 20
    )


def _mutated(tables: dict[str, pa.Table], rng: random.Random) -> dict[str, pa.Table]:
    """Returns a history with one number changed, or one row missing."""
    table, column = rng.choice(
        (
            ("operations", "offset"),
            ("operations", "offset"),
            ("operations", "completed_ns"),
            ("operations", "acks"),
            ("operations", ""),
            ("records_read", "offset"),
            ("records_read", "value"),
            ("records_read", ""),
        )
    )
    row = rng.randrange(tables[table].num_rows)
    if not column:
        keep = [index != row for index in range(tables[table].num_rows)]
        return {**tables, table: tables[table].filter(keep)}
    old = tables[table].column(column)[row].as_py()
    value = {"completed_ns": 1, "acks": 1}.get(column, max(0, (old or 0) + rng.choice((-1, 1, 9))))
    return {**tables, table: replaced(tables[table], column, row, value)}
