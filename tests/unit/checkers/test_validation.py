"""The validator: what no run can record is refused with file and row, and nothing else is.

`tests/property/test_corrupted_runs.py` has a case for every rule on recorded runs; here are the borders.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from checkers.jobs.check import judge_task
from checkers.jobs.huge import judge_in_buckets
from checkers.jobs.in_process import InProcess
from checkers.kernels.compose import judge_run
from checkers.kernels.validation import check_op_indices, check_partition, partition_names
from checkers.synthetic import Shape, synthetic_tables
from harness.contracts.run_context import RunContext
from harness.contracts.verdict import Validity
from harness.errors import HistoryError
from harness.history.schema import TABLES
from tests.anomalies.runs import (
    append,
    batch,
    final_read,
    offset_query,
    read,
    replica,
    run,
    state,
    table,
)
from tests.spark.stored_runs import CONTEXT, replaced, store, synthetic, tasks, with_column

NAMES = partition_names("t", 0)
Tables = dict[str, pa.Table]


def refusal(check: Callable[[], object]) -> str:
    with pytest.raises(HistoryError) as caught:
        check()
    assert str(caught.value).endswith("restore the file or record the run again")
    return str(caught.value)


def test_a_synthetic_history_is_valid_in_any_order_of_rows() -> None:
    tables = synthetic_tables(Shape(operations=300))
    check_partition(tables, NAMES)
    rng = np.random.default_rng(1)
    check_partition(
        {name: t.take(pa.array(rng.permutation(t.num_rows))) for name, t in tables.items()}, NAMES
    )
    check_partition({}, NAMES)


def test_the_row_is_that_of_the_table_as_it_is() -> None:
    """Rows out of order are legal; the sentence names the row where the file has it."""
    tables = synthetic_tables(Shape(operations=50))
    operations = tables["operations"]
    backwards = operations.take(pa.array(np.arange(operations.num_rows)[::-1]))
    wrong = replaced(backwards, "outcome", 7, "okay")
    sentence = refusal(lambda: check_partition({**tables, "operations": wrong}, NAMES))
    assert sentence.startswith("operations/t-0.parquet, row 7: outcome is 'okay'; it is one of ")


@pytest.mark.parametrize("index", [-1, 1, 7])
def test_places_in_a_poll_count_from_0(index: int) -> None:
    tables = synthetic_tables(Shape(operations=50))
    wrong = replaced(tables["records_read"], "index_in_poll", 3, index)
    sentence = refusal(lambda: check_partition({**tables, "records_read": wrong}, NAMES))
    assert sentence.startswith(f"records_read/t-0.parquet, row 3: index_in_poll is {index}; ")


def test_the_second_of_two_rows_with_one_op_index_is_named() -> None:
    tables = synthetic_tables(Shape(operations=50, final_read_records=0))
    operations = tables["operations"]
    again = pa.concat_tables([operations, operations.slice(7, 1), operations.slice(3, 1)])
    sentence = refusal(lambda: check_partition({**tables, "operations": again}, NAMES))
    assert "row 50: op_index 7 is in row 7, too" in sentence


@pytest.mark.parametrize("offset", [None, 0, 2**62])
def test_offsets_at_the_borders_are_accepted(offset: int | None) -> None:
    judge_run(run([append(0, offset, at=1), *final_read(5, 0)]), RunContext())


def test_a_null_where_the_schema_has_none_is_refused() -> None:
    tables = run([append(0, 0, at=1), *final_read(5, 0)])
    for name, column in (
        ("operations", "outcome"),
        ("operations", "topic"),
        ("records_read", "value"),
    ):
        at = tables[name].schema.get_field_index(column)
        kind = tables[name].schema.field(column).type
        nothing = tables[name].set_column(at, column, pa.nulls(tables[name].num_rows, kind))
        sentence = refusal(lambda: judge_run({**tables, name: nothing}, RunContext()))  # noqa: B023
        assert f"row 0: {column} is null" in sentence


def test_what_nodes_did_before_the_clock_of_the_harness_began_is_accepted() -> None:
    tables = run(
        [append(0, 0, at=1), *final_read(5, 0)],
        states=[state(-20, 1, [1, 2, 3], epoch=0, metadata_offset=3)],
        replicas=[replica(-20, 1, 0, role="leader", cause="load")],
    )
    assert judge_run(tables, RunContext()).validity == Validity.VALID


def test_operations_of_two_partitions_are_compared() -> None:
    one, other = ("a", np.array([5, 1, 3])), ("b", np.array([4, 3, 0]))
    sentence = refusal(lambda: check_op_indices([one, other]))
    assert sentence.startswith("b, row 1: op_index 3 is in a, row 2, too")
    check_op_indices([one])
    check_op_indices(
        [("a", np.array([1, 1])), ("b", np.array([2]))]
    )  # left to the partition's check


@pytest.mark.parametrize("far", [0, 10**9])
def test_operations_of_many_partitions_in_turns_are_accepted(far: int) -> None:
    """The largest number decides how they are compared; the result is the same."""
    parts = [(name, np.arange(at, 30, 3)) for at, name in enumerate("abc")]
    parts[2] = ("c", np.append(parts[2][1], 100 + far))
    check_op_indices([*parts, ("d", np.empty(0, dtype=np.int64))])
    sentence = refusal(lambda: check_op_indices([*parts, ("d", np.array([200, 100 + far]))]))
    assert sentence.startswith(f"d, row 1: op_index {100 + far} is in c, row 10, too")


@pytest.mark.parametrize("moved", [(3, 4), (4, 6), (0, 7)])
def test_places_in_polls_are_checked_whatever_the_order_of_the_rows(moved: tuple[int, int]) -> None:
    """Rows out of order are legal as long as each poll's places count from 0."""
    calls = [append(at, at, at=2 * at + 1) for at in range(4)]
    tables = run([*calls, read(10, 20, 0, 1, 2, 3), *final_read(30, 0, 1, 2, 3)])
    records = tables["records_read"]
    order = np.arange(records.num_rows)
    order[list(moved)] = order[list(reversed(moved))]
    swapped = records.take(pa.array(order))
    check_partition({**tables, "records_read": swapped}, NAMES)
    index = swapped.column("index_in_poll")[moved[0]].as_py()
    wrong = replaced(swapped, "index_in_poll", moved[0], index + 1)
    sentence = refusal(lambda: check_partition({**tables, "records_read": wrong}, NAMES))
    assert "index_in_poll is" in sentence


def test_a_record_that_contradicts_its_append_is_corrupt_whatever_its_size() -> None:
    tables = run([append(0, 0, at=1), append(1, 1, at=3), *final_read(5, 0, 1)])
    for column, value in (("process", 9), ("sequence", 9), ("key", "k"), ("key", "a longer key")):
        verdict = judge_run(
            {**tables, "records_read": replaced(tables["records_read"], column, 1, value)},
            RunContext(),
        )
        (found,) = (a for a in verdict.anomalies if a.id == "corrupt-record")
        assert "at offset 1 whose checksum, form or writer is wrong" in found.sentence
    keys = {
        name: replaced(tables[name], "key", 1, "a longer key")
        for name in ("operations", "records_read")
    }
    assert judge_run({**tables, **keys}, RunContext()).validity == Validity.VALID


@pytest.mark.parametrize(
    ("clock_error_ns", "log_start_offset", "reason"),
    [
        (10, 0, ""),
        (10**6, 0, "so their order cannot be judged"),
        (0, 1, "so the log did not start there"),
        (0, 2, "so no acknowledged record has to be there"),
    ],
)
def test_a_declaration_that_hides_everything_makes_the_verdict_unknown(
    clock_error_ns: int, log_start_offset: int, reason: str
) -> None:
    tables = run([append(0, 0, at=1), append(1, 1, at=300), *final_read(5, 0, 1)])
    context = RunContext(clock_error_ns=clock_error_ns, log_start_offset=log_start_offset)
    verdict = judge_run(tables, context)
    assert verdict.validity == (Validity.UNKNOWN if reason else Validity.VALID)
    assert any(reason in why for why in verdict.reasons) or not reason


def test_beyond_every_acknowledged_offset_a_log_start_hides_no_contradiction() -> None:
    calls = [append(0, 0, at=1), append(1, 0, at=1)]
    assert judge_run(run(calls), RunContext(log_start_offset=5)).validity == "invalid"
    calls[1] = append(1, 1, at=1)
    assert judge_run(run(calls), RunContext(log_start_offset=5)).validity == "unknown"


def test_a_log_whose_start_has_moved_is_judged_from_there() -> None:
    calls = [append(0, 0, at=1), append(1, 1, at=3), append(2, 2, at=5)]
    final = [read(10, 900, 1, 2, start=1, end=3, final=True), *final_read(10, 0, 0, 0)[1:]]
    assert judge_run(run([*calls, *final]), RunContext(log_start_offset=1)).validity == "valid"


# --- huge partitions ---


def whole_and_cut(directory: Path, tables: Tables, **context: Any) -> tuple[dict[str, Any], Any]:
    stored = store(directory, tables, group_rows=40)
    (task,) = tasks(stored, RunContext(**{"acked_during_faults_min": 0, **context}))
    (whole,) = judge_task(task)
    return whole, judge_in_buckets(InProcess(), task, width=50)


def test_a_huge_partition_with_questions_about_offsets_is_checked_as_a_whole(
    tmp_path: Path,
) -> None:
    tables = synthetic(1, 200, final_read_records=30)
    whole, cut = whole_and_cut(tmp_path / "without", tables)
    assert whole["judgement"] and cut
    topic = tables["operations"].column("topic")[0].as_py()
    query = dict.fromkeys(TABLES["offset_queries"].names, 0)
    query |= offset_query("timestamp", op_index=10**6, topic=topic)
    queries = table("offset_queries", [query])
    whole, cut = whole_and_cut(tmp_path / "with", {**tables, "offset_queries": queries})
    assert "row 0: no poll with op_index 1000000 had returned" in whole["history_error"]
    assert cut is None


def test_a_huge_partition_is_checked_slice_by_slice_and_across_slices(tmp_path: Path) -> None:
    clean = synthetic(1, 200, final_read_records=30)
    records, operations = clean["records_read"], clean["operations"]
    # The last records are final reads of appends that are several slices away.
    last = records.num_rows - 1
    changed: dict[str, Tables] = {
        "clean": clean,
        "process": {**clean, "records_read": replaced(records, "process", last, 10**6)},
        "sequence": {**clean, "records_read": replaced(records, "sequence", last, 10**6)},
        "key": {**clean, "records_read": replaced(records, "key", last, "a key")},
        "status": {**clean, "records_read": replaced(records, "status", last, "odd")},
        "count": {**clean, "operations": replaced(operations, "record_count", 3, 77)},
        "twice": {**clean, "operations": replaced(operations, "op_index", 41, 39)},
        "poll": {**clean, "records_read": replaced(records, "op_index", last, 10**6)},
        "role": {**clean, "replica_states": replicas(0, "king")},
        "replica": {**clean, "replica_states": replicas(0, "leader")},
    }
    for name, tables in changed.items():
        whole, cut = whole_and_cut(tmp_path / name, tables)
        if "history_error" in whole:
            assert cut is None, name
        else:
            assert cut == whole, name
            is_clean = name in ("clean", "replica")
            assert bool(whole["judgement"]["anomalies"]) != is_clean, name


def replicas(at_ns: int, role: str) -> pa.Table:
    table = run([], replicas=[replica(at_ns, 1, 0, role=role) for _ in range(130)])[
        "replica_states"
    ]
    at = table.schema.get_field_index("topic")
    return table.set_column(at, table.schema.field(at), pa.array(["synthetic"] * table.num_rows))


def test_a_vacuous_declaration_is_noticed_in_a_huge_partition(tmp_path: Path) -> None:
    mixed = synthetic(1, 200, final_read_records=30)
    assert whole_and_cut(tmp_path / "mixed", mixed, clock_error_ns=0)[1] is not None
    # Its processes send after they have read, which is judged as a whole where clocks differ.
    assert whole_and_cut(tmp_path / "whole", mixed, clock_error_ns=1)[1] is None
    readers = [
        process if kind == "append" else process + 1000
        for process, kind in zip(
            *(mixed["operations"].column(name).to_pylist() for name in ("process", "kind")),
            strict=True,
        )
    ]
    clean = {**mixed, "operations": with_column(mixed["operations"], "process", readers)}
    assert whole_and_cut(tmp_path / "plain", clean, clock_error_ns=1)[1] is not None
    for name, context in (("clock", {"clock_error_ns": 10**15}), ("log", {"log_start_offset": 3})):
        whole, cut = whole_and_cut(tmp_path / name, clean, **context)
        assert cut == whole
        assert whole["judgement"]["unknown_reasons"]


def test_the_tables_of_a_journal_are_validated_too(tmp_path: Path) -> None:
    from harness.history.op import Completion, Outcome
    from harness.history.writer import HistoryWriter

    writer = HistoryWriter(tmp_path)
    op = writer.invoke(process=1, kind="write", topic="t", partition=0, invoked_ns=5, acks=-1)
    writer.complete(op, 6, Completion(outcome=Outcome.OK, offset=0))
    writer.flush()
    (task,) = tasks(tmp_path, CONTEXT)
    (row,) = judge_task(task)
    pattern = r"history\.journal, operations/t-0\.parquet, row 0: kind is 'write'"
    assert re.search(pattern, row["history_error"])


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"base_offset": -1}, "row 1: base_offset is -1, which is not between 0 and"),
        ({"last_offset": 0}, "row 1: the batch at offset 1 ends at offset 0"),
        ({"last_offset": 2**63 - 1}, "row 1: last_offset is"),
        ({"leader_epoch": -2}, "row 1: leader_epoch is -2"),
        (
            {"checksum": 2**32},
            "row 1: checksum is 4294967296, which is not between 0 and 4294967295",
        ),
        ({"checksum": -1}, "row 1: checksum is -1"),
        ({"base_offset": 0}, "row 1: broker 1 has another batch that reaches offset 0"),
        ({"high_watermark": 3}, "row 1: high_watermark differs from other rows of broker 1"),
        ({"read_end_offset": 3}, "row 1: read_end_offset differs from other rows of broker 1"),
        ({"log_start_offset": 1}, "row 1: log_start_offset differs from other rows of broker 1"),
        ({"node": "b2"}, "row 1: node differs from other rows of broker 1"),
    ],
)
def test_batches_that_no_reading_of_a_log_gives_are_refused(
    changed: dict[str, object], reason: str
) -> None:
    rows = [batch(1, 0, 7, hw=2, end=2), batch(1, 1, 8, hw=2, end=2), batch(2, 0, 7, hw=1, end=1)]
    tables = run([append(0, 0, at=1), *final_read(5, 0)])
    good = {**tables, "replica_batches": table("replica_batches", rows)}
    assert judge_run(good, RunContext()).validity == Validity.VALID
    rows[1] = rows[1] | changed
    bad = {**tables, "replica_batches": table("replica_batches", rows)}
    assert f"replica_batches/t-0.parquet, {reason}" in refusal(lambda: judge_run(bad, RunContext()))
