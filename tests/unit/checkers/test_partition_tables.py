"""What several checkers derive from the tables of one partition."""

from itertools import count

import pyarrow as pa

from checkers.kernels.partition_tables import PartitionTables, derive_once

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
