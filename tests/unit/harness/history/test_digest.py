"""Digests of histories: every value counts, and how Arrow holds it does not."""

from typing import Any

import pyarrow as pa
import pytest

from harness.history.digest import digest_of
from harness.history.schema import TABLES

ROWS: list[dict[str, Any]] = [
    {"a": 1, "b": None, "c": True, "d": ["x", "y"]},
    {"a": 2, "b": "text", "c": False, "d": []},
    {"a": 3, "b": None, "c": True, "d": ["z"]},
]
SCHEMA = pa.schema(
    [("a", pa.int64()), ("b", pa.string()), ("c", pa.bool_()), ("d", pa.list_(pa.string()))]
)


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def test_chunks_and_slices_change_nothing() -> None:
    whole = table(ROWS)
    chunked = pa.concat_tables([table(ROWS[:1]), table([]), table(ROWS[1:])])
    sliced = table([*ROWS[1:2], *ROWS, *ROWS[:1]]).slice(1, 3)
    assert digest_of({"t": chunked}) == digest_of({"t": sliced}) == digest_of({"t": whole})


def test_the_bytes_of_missing_values_change_nothing() -> None:
    """Two arrays with the same values, one of which has a number where its value is missing."""
    present = pa.py_buffer(bytes([0b101]))
    arrays = [
        pa.Array.from_buffers(
            pa.int64(), 3, [present, pa.py_buffer(b"".join(n.to_bytes(8, "little") for n in given))]
        )
        for given in ((7, 0, 9), (7, 12345, 9))
    ]
    assert arrays[0].equals(arrays[1])
    first, second = ({"t": pa.table({"a": array})} for array in arrays)
    assert digest_of(first) == digest_of(second)


@pytest.mark.parametrize(
    ("row", "values"),
    [
        (0, {"a": 9}),
        (0, {"b": ""}),
        (1, {"b": None}),
        (1, {"c": True}),
        (0, {"d": ["xy"]}),
        (1, {"d": [""]}),
        (2, {"d": []}),
    ],
)
def test_every_value_counts(row: int, values: dict[str, Any]) -> None:
    changed = [{**one, **(values if index == row else {})} for index, one in enumerate(ROWS)]
    assert digest_of({"t": table(changed)}) != digest_of({"t": table(ROWS)})


def test_order_names_and_missing_tables_count() -> None:
    whole = table(ROWS)
    others = [
        {"t": table(ROWS[::-1])},
        {"u": whole},
        {"t": whole, "u": whole},
        {"t": whole.rename_columns(["a", "b", "c", "e"])},
        {"t": whole.drop_columns("a")},
        {"t": table(ROWS[:2])},
        {},
    ]
    digests = [digest_of(one) for one in [{"t": whole}, *others]]
    assert len(set(digests)) == len(digests)


def test_empty_tables_of_a_history_have_a_digest() -> None:
    empty = {name: schema.empty_table() for name, schema in TABLES.items()}
    assert digest_of(empty) == digest_of(dict(reversed(empty.items())))
    assert len(digest_of(empty)) == 32


def test_a_column_that_a_later_format_added_counts_if_it_has_a_value() -> None:
    row = {field.name: None for field in TABLES["partition_states"]}
    schema = pa.schema([field.with_nullable(True) for field in TABLES["partition_states"]])
    with_it = pa.Table.from_pylist([row], schema=schema)
    without = with_it.drop_columns("after_ns")
    known = pa.Table.from_pylist([{**row, "after_ns": 0}], schema=schema)
    digests = [digest_of({"partition_states": one}) for one in (with_it, without, known)]
    assert digests[0] == digests[1] != digests[2]
    assert digest_of({"t": with_it}) != digest_of({"t": without}), "a column of another table"
