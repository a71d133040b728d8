"""An operation in two partitions of a stored run is found in bounded memory, with the usual sentence."""

import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from checkers.jobs import op_indices
from checkers.jobs.op_indices import check_unique
from harness.errors import HistoryError
from harness.history.parquet import TableFile, table_files
from tests.spark.stored_runs import replaced, store, synthetic


def operations_of(run: Path) -> list[TableFile]:
    return [file for file in table_files(run) if file.table == "operations"]


def sentence(files: list[TableFile]) -> str:
    try:
        check_unique(files)
    except HistoryError as error:
        return str(error)
    return ""


@pytest.fixture
def files(tmp_path: Path) -> list[TableFile]:
    """Four partitions whose indices are mixed."""
    run = store(tmp_path, synthetic(4, 60), group_rows=13)
    files = operations_of(run)
    for number, file in enumerate(files):
        table = pq.read_table(file.path)
        mixed = [4 * index + number for index in range(table.num_rows)]
        column = table.schema.get_field_index("op_index")
        table = table.set_column(column, table.schema.field(column), [mixed])
        pq.write_table(table, file.path, row_group_size=13)
    return files


@pytest.mark.long
def test_windows_of_any_size_find_what_sorting_finds(
    files: list[TableFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sentence(files) == ""
    rng = random.Random(1)
    for number in range(20):
        file = rng.choice(files)
        table = pq.read_table(file.path)
        row, other = rng.randrange(table.num_rows), rng.randrange(4 * table.num_rows)
        pq.write_table(replaced(table, "op_index", row, other), file.path, row_group_size=13)
        monkeypatch.setattr(op_indices, "ROWS_AT_ONCE", 10**6)
        expected = sentence(files)
        monkeypatch.setattr(op_indices, "ROWS_AT_ONCE", 0)
        for window in (1, 7, 64, 10**6):
            monkeypatch.setattr(op_indices, "WINDOW", window)
            assert sentence(files) == expected, (number, window)
    assert "too, but an operation has one partition" in expected


def test_absurd_indices_and_files_without_statistics_are_sorted(
    files: list[TableFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(op_indices, "ROWS_AT_ONCE", 0)
    first = pq.read_table(files[0].path)
    pq.write_table(replaced(first, "op_index", 3, 2**60), files[0].path, row_group_size=13)
    assert sentence(files) == ""
    pq.write_table(replaced(first, "op_index", 3, 1), files[0].path, write_statistics=False)
    assert "row 3: op_index 1 is in" in sentence(files) or "row 0: op_index 1 is in" in sentence(
        files
    )
