"""What several checkers derive from the tables of one partition."""

import random
from itertools import count

import pyarrow as pa

from checkers.kernels.partition_tables import PartitionTables, derive_once, records_returned
from harness.history.schema import CLEANED_RECORDS

TABLES = {"operations": pa.table({}), "faults": pa.table({})}


def test_what_one_checker_derives_is_not_derived_again_for_another_one() -> None:
    numbers = count()
    partition = PartitionTables(TABLES)
    for names in (["operations"], ["operations", "faults"]):
        assert derive_once(partition.only(names), "log", lambda: next(numbers)) == 0
    assert derive_once(partition, "elections", lambda: next(numbers)) == 1
    assert derive_once(PartitionTables(TABLES), "log", lambda: next(numbers)) == 2


def test_what_was_derived_before_is_not_derived_again() -> None:
    known = PartitionTables(TABLES, {"log": 7})
    assert derive_once(known, "log", lambda: 8) == 7


def test_plain_tables_keep_nothing() -> None:
    numbers = count()
    assert [derive_once(TABLES, "log", lambda: next(numbers)) for _ in range(2)] == [0, 1]


def returned(read: list[tuple[int, int]], added: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns what polls returned, by operation and offset."""
    tables = {
        name: pa.table(
            {"op_index": [op for op, _ in rows], "offset": [at for _, at in rows]},
            schema=pa.schema([("op_index", pa.int64()), ("offset", pa.int64())]),
        )
        for name, rows in (("records_read", read), (CLEANED_RECORDS, added))
    }
    rows = records_returned(tables).to_pylist()
    return [(row["op_index"], row["offset"]) for row in rows]


def test_records_that_were_added_were_not_returned() -> None:
    every = [(op, offset) for op in range(3) for offset in range(3)]
    for seed in range(60):
        rng = random.Random(seed)
        read = rng.sample(every, rng.randint(1, 6))
        added = rng.sample(read, rng.randint(0, len(read)))
        assert returned(read, added) == [row for row in read if row not in added]


def test_without_added_records_all_were_returned() -> None:
    tables = {"records_read": pa.table({"op_index": [1], "offset": [4]})}
    assert records_returned(tables) is tables["records_read"]
