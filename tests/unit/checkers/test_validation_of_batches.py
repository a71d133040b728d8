"""The validator: rows in any order, batches of several brokers, operations of several partitions."""

from typing import Any

import pyarrow as pa
import pytest

from checkers.kernels.validation import check_partition, check_run, check_states, partition_names
from harness.contracts.run_context import RunContext
from harness.errors import HistoryError
from tests.anomalies.runs import append, batch, final_read, read, run, table
from tests.spark.stored_runs import replaced

NAMES = partition_names("t", 0)


def check_batches(*rows: dict[str, Any]) -> None:
    check_states({"replica_batches": table("replica_batches", list(rows))}, NAMES)


@pytest.mark.parametrize("brokers", [(1, 2), (1, 65537), (32768, -32768), (2, 2**31 - 1)])
def test_batches_of_two_brokers_are_told_apart(brokers: tuple[int, int]) -> None:
    one, other = brokers
    rows = [
        batch(one, 0, 7, last=1, hw=3, end=3),
        batch(other, 0, 7, last=0, hw=3, end=3),
        batch(one, 2, 7, hw=3, end=3),
    ]
    check_batches(*rows)
    check_batches(*rows[::-1])
    rows[2] = batch(one, 1, 7, hw=3, end=3)
    with pytest.raises(HistoryError, match=f"broker {one} has another batch that reaches offset 1"):
        check_batches(*rows)


def test_batches_may_be_in_descending_order() -> None:
    rows = [batch(1, offset, 7, hw=9, end=9) for offset in (5, 3, 0)]
    check_batches(*rows)
    with pytest.raises(HistoryError, match="row 0: broker 1 has another batch that reaches"):
        check_batches(
            *rows[:1], *[row | {"last_offset": row["base_offset"] + 2} for row in rows[1:]]
        )


def test_an_operation_is_in_one_partition_of_a_run() -> None:
    one = run([append(0, 0, at=1), append(1, 1, at=3), *final_read(5, 0, 1)])
    other = run([append(2, 0, at=1), append(3, 1, at=3)])
    check_run({}, {("a", 0): one, ("b", 0): other, ("c", 0): {}}, RunContext())
    again = run([append(2, 0, at=1), append(1, 1, at=3)])
    with pytest.raises(HistoryError) as caught:
        check_run({}, {("a", 0): one, ("b", 0): again}, RunContext())
    assert (
        "operations/b-0.parquet, row 1: op_index 1 is in operations/a-0.parquet, row 1, too"
        in str(caught.value)
    )


def test_records_of_one_poll_may_be_in_any_order() -> None:
    tables = run([append(0, 0, at=1), append(1, 1, at=3), read(2, 5, 0, 1)])
    records = tables["records_read"].take(pa.array([1, 0]))
    assert records.column("index_in_poll").to_pylist() == [1, 0]
    check_partition(tables | {"records_read": records}, NAMES)
    again = replaced(records, "index_in_poll", 1, 1)
    with pytest.raises(HistoryError, match="row 0: index_in_poll is 1; the records of op_index 2"):
        check_partition(tables | {"records_read": again}, NAMES)


def test_a_log_end_belongs_to_a_poll_or_a_latest_of_the_partition() -> None:
    tables = run([read(0, 5, end=0)])
    check_partition(tables, NAMES)
    without = {"end_offsets_seen": tables["end_offsets_seen"]}
    with pytest.raises(HistoryError, match="row 0: the log end belongs to op_index 0, which is no"):
        check_partition(without, NAMES)
