"""Arrays of one partition: lookups, times and counts."""

import random
from dataclasses import fields, replace
from itertools import permutations

import numpy as np
import pyarrow as pa
import pytest

from checkers.kernels.history import (
    PartitionHistory,
    by_op_index,
    is_word,
    lookup,
    read_history,
)
from checkers.kernels.history import stored as stored_values
from checkers.kernels.left_out import NOTHING, LeftOut
from checkers.kernels.linearizability import check_tables
from tests.anomalies.runs import append, final_read, read
from tests.property.brute_force import Call, ends_table, operations_table, records_table
from tests.spark.stored_runs import replaced


@pytest.mark.parametrize(
    "keys",
    [
        [],
        [5],
        [0, 1, 2],
        [3, 4, 9],
        [7, 7 + 8 * 2 + 4096],
        [7, 7 + 8 * 2 + 4097],
        [1, 10**9],
        [0, 5, 2**61, 2**62],
    ],
)
def test_a_lookup_returns_positions_and_minus_one(keys: list[int]) -> None:
    positions = {key: at for at, key in enumerate(keys)}
    rng = random.Random(1)
    near = [key + shift for key in keys for shift in (-1, 0, 1)]
    for count in (0, 1, 20):
        wanted = [rng.choice([*near, -1, 0, 2**62, -(2**63)]) for _ in range(count)]
        found = lookup(np.array(keys, dtype=np.int64))(np.array(wanted, dtype=np.int64))
        assert found.tolist() == [positions.get(key, -1) for key in wanted]
        assert found.dtype == np.int64


def test_a_sparse_lookup_takes_little_memory() -> None:
    lookup(np.array([0, 2**62], dtype=np.int64))
    lookup(np.array([2**61, 2**61 + 10**15], dtype=np.int64))


def arrays(
    calls: list[Call], *, left_out: LeftOut = NOTHING, **changed: tuple[int, int]
) -> PartitionHistory:
    operations = operations_table(calls)
    for column, (row, value) in changed.items():
        operations = replaced(operations, column, row, value)
    return read_history(operations, records_table(calls), ends_table(calls), left_out)


@pytest.mark.parametrize(
    ("stored", "read_as"),
    [
        (2**60, 2**60),
        (2**60 + 1, 2**60),
        (2**62, 2**60),
        (2**61, 2**61),
        (-(2**60), -(2**60)),
        (-(2**60) - 1, -(2**60)),
        (-(2**62), -(2**60)),
        (5, 5),
    ],
)
def test_absurd_times_are_clipped(stored: int, read_as: int) -> None:
    history = arrays([append(0, 0, at=1)], completed_ns=(0, stored), invoked_ns=(0, stored))
    assert history.append_res.tolist() == [read_as]
    assert history.append_inv.tolist() == [read_as]


def test_an_operation_counts_once() -> None:
    calls = [
        append(0, 0, at=1),
        append(1, None, at=3),
        append(2, None, at=5, outcome="info"),
        append(3, None, at=7, outcome="fail"),
        read(4, 20, 0, end=1),
        read(5, 30, 0, 1, end=2),
        read(6, 40, 0),
        *final_read(7, 0, 1),
    ]
    coverage = check_tables(
        operations_table(calls), records_table(calls), ends_table(calls)
    ).coverage
    assert coverage == {
        "operations": 9,
        "appends": 4,
        "appends_acked": 2,
        "appends_failed": 1,
        "appends_unknown": 1,
        "polls": 4,
        "records_read": 6,
        "ends_seen": 4,
        "appends_unknown_revealed": 1,
        "acked_read_back": 1,
        "holes": 0,
        "hole_ranges": [],
    }


def test_rows_are_put_into_the_order_of_their_operations() -> None:
    calls = [append(op, op, at=op) for op in (3, 1, 2)]
    ordered = by_op_index(operations_table(calls))
    assert ordered.column("op_index").to_pylist() == [1, 2, 3]
    table = operations_table(calls[:1])
    assert by_op_index(table) is table


def test_a_null_is_no_word_and_not_final() -> None:
    assert is_word(pa.chunked_array([["a", None, "b"]]), "a").tolist() == [True, False, False]
    calls = [read(5, 9, 0), read(6, 9, 0, final=True)]
    operations = operations_table(calls)
    at = operations.schema.get_field_index("final")
    operations = operations.set_column(at, "final", pa.array([None, True]))
    history = read_history(operations, records_table(calls), ends_table(calls))
    assert history.poll_final.tolist() == [False, True]


def test_rows_may_be_in_any_order() -> None:
    """Two polls return two records each, the first one in the wrong order."""
    calls = [
        append(0, 0, at=1),
        append(1, 1, at=1),
        replace(read(5, 9), records=((1, 1), (0, 0))),
        read(6, 9, 0, 1),
    ]
    operations, records, ends = operations_table(calls), records_table(calls), ends_table(calls)
    expected = read_history(operations, records, ends)
    assert expected.record_poll.tolist() == [0, 0, 1, 1]
    assert expected.record_offset.tolist() == [0, 1, 0, 1]
    assert expected.unordered_op.tolist() == [5]
    for order in permutations(range(4)):
        rows = pa.array(order)
        found = read_history(operations.take(rows), records.take(rows), ends)
        for column in fields(PartitionHistory):
            if column.name != "left_out":
                values = getattr(found, column.name).tolist()
                assert values == getattr(expected, column.name).tolist(), (column.name, order)


@pytest.mark.parametrize("chunks", [[], [[]], [[3, 4]], [[3], [4, 5]], [[3], [], [4, None, 6]]])
def test_a_column_is_read_whatever_its_chunks_are(chunks: list[list[int | None]]) -> None:
    column = pa.chunked_array([pa.array(each, pa.int64()) for each in chunks], type=pa.int64())
    found = stored_values(column)
    expected = [value for each in chunks for value in each]
    assert len(found) == len(expected)
    assert [a for a, b in zip(found.tolist(), expected, strict=True) if b is not None] == [
        value for value in expected if value is not None
    ]
    assert stored_values(column.slice(1)).tolist()[:1] == expected[1:2]


@pytest.mark.parametrize("ops", [(), (3,), (3, 5), (5, 3), (5, 4, 3), (3, 5, 4)])
def test_operations_are_put_in_order(ops: tuple[int, ...]) -> None:
    table = by_op_index(operations_table([append(op, op, at=1) for op in ops]))
    assert table.column("op_index").to_pylist() == sorted(ops)
    assert table.column("offset").to_pylist() == sorted(ops)


@pytest.mark.parametrize(
    ("offset", "acks", "outcome", "status"),
    [
        (0, -1, "ok", "at"),
        (0, 1, "ok", "at"),
        (0, 0, "ok", "unknown"),
        (2**62, -1, "ok", "at"),
        (2**62 + 1, -1, "ok", "impossible"),
        (-1, -1, "ok", "somewhere"),
        (-2, -1, "ok", "impossible"),
        (None, -1, "ok", "somewhere"),
        (None, 0, "ok", "unknown"),
        (None, -1, "fail", "failed"),
        (None, -1, "info", "unknown"),
    ],
)
def test_the_response_to_an_append_decides_what_is_known_of_it(
    offset: int | None, acks: int, outcome: str, status: str
) -> None:
    found = arrays([replace(append(4, offset, at=1, acks=acks), outcome=outcome)])
    number = {"at": 0, "somewhere": 1, "unknown": 2, "impossible": 2, "failed": 3}[status]
    assert found.append_status.tolist() == [number]
    assert found.odd_op.tolist() == ([4] if status == "impossible" else [])
    assert found.append_res.tolist() == [2 if number < 2 else 2**61]


def test_the_records_of_every_poll_have_a_first_row() -> None:
    assert arrays([]).record_heads.tolist() == []
    assert arrays([append(0, 0, at=1)]).record_heads.tolist() == []
    assert arrays([read(0, 1, 5)]).record_heads.tolist() == [0]
    calls = [read(0, 1, 5, 6), read(1, 3), read(2, 5, 5), read(3, 7, 5, 6)]
    assert arrays(calls).record_heads.tolist() == [0, 2, 3]


@pytest.mark.parametrize(("poll", "expected"), [(4, [9, 1]), (5, [0, 9]), (6, [0, 1])])
def test_a_poll_returned_what_was_left_out_of_its_records(poll: int, expected: list[int]) -> None:
    left_out = LeftOut(
        start=np.array([9]), stop=np.array([10]), poll_op=np.array([poll]), poll_last=np.array([9])
    )
    assert (
        arrays([read(4, 1, 7), read(5, 3, 7, 8)], left_out=left_out).poll_last.tolist() == expected
    )


def rows_of(history: PartitionHistory) -> list[tuple[int, int, int]]:
    """Returns poll, offset and value of every record."""
    columns = (history.record_poll, history.record_offset, history.record_value)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_records_of_several_polls_may_be_mixed() -> None:
    """The row of poll 6 is between those of poll 5; offsets and positions in a poll grow nevertheless."""
    calls = [replace(read(5, 9), records=((3, 0), (5, 1))), replace(read(6, 9), records=((0, 2),))]
    records = records_table(calls).take(pa.array([0, 2, 1]))
    history = read_history(operations_table(calls), records, ends_table(calls))
    assert rows_of(history) == [(0, 3, 0), (0, 5, 1), (1, 0, 2)]
    assert history.unordered_op.tolist() == []


def test_records_at_one_offset_of_a_poll_are_ordered_by_value() -> None:
    calls = [replace(read(5, 9), records=((0, 9), (0, 8), (1, 7)))]
    history = arrays(calls)
    assert rows_of(history) == [(0, 0, 8), (0, 0, 9), (0, 1, 7)]
    assert history.unordered_op.tolist() == []


def test_polls_in_order_have_no_unordered_records() -> None:
    history = arrays([read(5, 9, 1, 2)])
    for column in (history.unordered_op, history.unordered_offset, history.unordered_before):
        assert column.tolist() == []


@pytest.mark.parametrize("op", [0, 3])
def test_log_ends_of_known_operations_count_though_their_rows_do_not_have_them(op: int) -> None:
    """Operation 77 is not in the table of operations."""
    calls = [
        *(append(each, each, at=1) for each in range(op)),
        Call(op=op, kind="latest", process=9, inv=5, res=6, offset=3),
    ]
    seen = ends_table(
        [replace(calls[-1], offset=end, op=of) for end, of in ((3, op), (4, op), (5, 77))]
    )
    history = read_history(operations_table(calls), records_table(calls), seen)
    assert history.end_op.tolist() == [op, op]
    assert history.end_offset.tolist() == [3, 4]


@pytest.mark.parametrize(("outcome", "ends"), [("ok", [3, 3]), ("info", []), ("fail", [])])
def test_log_ends_of_requests_that_did_not_succeed_do_not_count(
    outcome: str, ends: list[int]
) -> None:
    calls = [
        Call(op=0, kind="latest", process=9, inv=5, res=6, offset=3),
        read(1, 9, end=3, final=True),
    ]
    operations = [replace(call, outcome=outcome) for call in calls]
    history = read_history(operations_table(operations), records_table(calls), ends_table(calls))
    assert history.end_offset.tolist() == ends
    assert history.end_final.tolist() == [False, True][: len(ends)]


@pytest.mark.parametrize(
    ("offsets", "impossible"),
    [
        ((0, 2**62), ()),
        ((-5, 0, 2**62), (-5,)),
        ((0, 2**62, 2**62 + 1), (2**62 + 1,)),
        ((-1,), (-1,)),
        ((-1, 7, 2**63 - 1), (-1, 2**63 - 1)),
    ],
)
def test_records_at_impossible_offsets_are_set_aside(
    offsets: tuple[int, ...], impossible: tuple[int, ...]
) -> None:
    poll = replace(read(5, 9), records=tuple((offset, 1) for offset in offsets))
    history = arrays([poll])
    assert history.odd_offset.tolist() == list(impossible)
    assert history.odd_op.tolist() == [5] * len(impossible)
    assert history.record_offset.tolist() == [each for each in offsets if each not in impossible]


@pytest.mark.parametrize(
    ("end", "is_possible"), [(0, True), (2**62, True), (2**62 + 1, False), (-1, False), (-2, False)]
)
def test_impossible_log_ends_are_set_aside(end: int, is_possible: bool) -> None:
    calls = [read(5, 9, end=end), Call(op=6, kind="latest", process=9, inv=9, res=10, offset=end)]
    history = arrays(calls)
    assert history.end_offset.tolist() == [end, end] * is_possible
    assert history.odd_op.tolist() == [5, 6] * (not is_possible)
    assert history.poll_end.tolist() == [end if is_possible else -1]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_poll_that_returned_everything_in_the_wrong_order_is_put_in_order(
    order: tuple[int, int],
) -> None:
    calls = [replace(read(5, 9), records=((1, 7), (0, 8)))]
    records = records_table(calls).take(pa.array(order))
    history = read_history(operations_table(calls), records, ends_table(calls))
    assert rows_of(history) == [(0, 0, 8), (0, 1, 7)]
    assert history.unordered_op.tolist() == [5]
    assert (history.unordered_offset.tolist(), history.unordered_before.tolist()) == ([0], [1])
