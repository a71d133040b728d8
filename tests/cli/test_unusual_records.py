"""A readable history with phantom, corrupt or misplaced records is valid input: its verdict names them.

The histories are those of a run in which nothing was wrong, with one row changed.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from harness.cli.main import main
from harness.history.schema import TABLES
from results.history_files import read_tables, write_tables
from tests.cli.cli_helpers import USAGE, Outcome, call

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def valid_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("valid")
    command = ["reproduce", "last-replica-standing", "--profile", "kafka-4.1"]
    assert main([*command, "--no-spark", "--quiet", "--results", str(root)]) == 0
    return (root / "latest").resolve()


def judge(
    capsys: pytest.CaptureFixture[str], run: Path, edits: dict[str, Callable[[Rows], object]]
) -> Outcome:
    tables = read_tables(run)
    originals = dict(tables)
    for name, edit in edits.items():
        rows = tables[name].to_pylist()
        edit(rows)
        tables[name] = pa.Table.from_pylist(rows, schema=TABLES[name])
    write_tables(run, tables)
    try:
        return call(capsys, "check", run, "--no-spark", "--json", "--quiet")
    finally:
        write_tables(run, originals)


def forbidden(outcome: Outcome) -> set[str]:
    return {row["id"] for row in outcome.data["anomalies"] if row["judgement"] == "forbidden"}


def change(index: int, **columns: object) -> Callable[[Rows], None]:
    def edit(rows: Rows) -> None:
        rows[index].update(columns)

    return edit


@pytest.mark.parametrize(
    ("edit", "anomaly", "words"),
    [
        (change(3, value=7777), "phantom-value", "the value 7777 at offset 3"),
        (
            change(3, value=-1, status="corrupt", process=-1, sequence=-1),
            "corrupt-record",
            "at offset 3 whose checksum, form or writer is wrong",
        ),
        (
            change(3, value=-1, status="foreign"),
            "misplaced-record",
            "at offset 3 of another run, topic or partition",
        ),
        (change(3, process=77), "corrupt-record", "at offset 3"),
        (change(3, sequence=77), "corrupt-record", "at offset 3"),
        (change(3, key="other"), "corrupt-record", "at offset 3"),
        (change(3, offset=999), "duplicate", "was read at offset 999"),
        (change(3, offset=-5), "impossible-offset", "the offset -5"),
    ],
)
def test_an_unusual_record_gets_a_verdict_that_names_it(
    capsys: pytest.CaptureFixture[str],
    valid_run: Path,
    edit: Callable[[Rows], object],
    anomaly: str,
    words: str,
) -> None:
    outcome = judge(capsys, valid_run, {"records_read": edit})
    assert outcome.code == 1
    assert outcome.err == ""
    assert outcome.data["verdict"] == "invalid"
    assert anomaly in forbidden(outcome)
    assert any(words in reason for reason in outcome.data["reasons"])


def test_the_same_history_unchanged_is_valid(
    capsys: pytest.CaptureFixture[str], valid_run: Path
) -> None:
    outcome = judge(capsys, valid_run, {})
    assert outcome.code == 0
    assert outcome.data["anomalies"] == []


@pytest.mark.parametrize(
    ("edits", "code"),
    [
        ({name: list.clear for name in TABLES}, 2),
        ({"partition_states": list.clear}, 0),
        ({"operations": change(3, offset=2**62)}, 1),
        ({"faults": change(0, params="{", evidence="[")}, 0),
    ],
)
def test_a_random_malformed_history_gets_a_verdict(
    capsys: pytest.CaptureFixture[str],
    valid_run: Path,
    edits: dict[str, Callable[[Rows], object]],
    code: int,
) -> None:
    outcome = judge(capsys, valid_run, edits)
    assert outcome.code == code
    assert outcome.err == ""
    assert "report_error" not in outcome.data


@pytest.mark.parametrize(
    ("edits", "file", "sentence"),
    [
        ({"operations": list.clear}, "records_read/t-0", "row 0: the record belongs to op_index"),
        ({"records_read": list.clear}, "operations/t-0", "but records_read has 0 records"),
        ({"records_read": change(3, status="banana")}, "records_read/t-0", "status is 'banana'"),
        (
            {"records_read": change(3, partition=5)},
            "operations/t-0",
            "but records_read has 9 records",
        ),
        ({"operations": change(3, completed_ns=-5)}, "operations/t-0", "row 3: completed_ns is -5"),
        ({"operations": change(0, op_index=-2)}, "operations/t-0", "row 0: op_index is -2"),
        ({"operations": change(3, op_index=2)}, "operations/t-0", "row 3: op_index 2 is in row 2"),
    ],
)
def test_a_history_that_no_run_can_have_is_refused(
    capsys: pytest.CaptureFixture[str],
    valid_run: Path,
    edits: dict[str, Callable[[Rows], object]],
    file: str,
    sentence: str,
) -> None:
    outcome = judge(capsys, valid_run, edits)
    assert outcome.code == USAGE
    assert outcome.envelope["exit_code"] == USAGE
    assert f"{valid_run}/history/{file}.parquet" in outcome.err
    assert sentence in outcome.err
    assert len(outcome.err.splitlines()) == 1
