"""A damaged or foreign run is refused in one sentence that names the file; no file is changed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.errors import HistoryError
from harness.history.journal import file_header
from harness.history.schema import TABLES
from results.history_files import read_tables, write_tables
from tests.cli.cli_helpers import call, refused

OPERATIONS = "history/operations/t-0.parquet"
FAULTS = "history/faults.parquet"
MANIFEST = "history/manifest.json"
Damage = Callable[[Path], None]


def check(capsys: pytest.CaptureFixture[str], run: Path) -> str:
    before = files_of(run)
    sentence = refused(
        capsys, "check", run, "--no-spark", "--quiet", "--results", run.parent.parent
    )
    assert files_of(run) == before, "nothing is lost, and nothing is added"
    return sentence


def files_of(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def halve(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def replace_with_text(path: Path) -> None:
    path.write_text("hello world\n" * 20)


def replace_with_foreign(path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2]}), path)


def drop_last_row(path: Path) -> None:
    with pq.ParquetFile(path) as file:
        table = file.read()
    pq.write_table(table.slice(0, table.num_rows - 1), path)


def remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("name", [OPERATIONS, FAULTS])
@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (halve, "is damaged or not a Parquet file"),
        (empty, "is damaged or not a Parquet file"),
        (replace_with_text, "is damaged or not a Parquet file"),
        (replace_with_foreign, "is not a table of ours: column"),
        (drop_last_row, "but the manifest lists"),
        (remove, "is missing from the history"),
    ],
)
def test_a_damaged_table_is_refused_and_named(
    capsys: pytest.CaptureFixture[str], stored: Path, name: str, damage: Damage, sentence: str
) -> None:
    damage(stored / name)
    output = check(capsys, stored)
    assert str(stored / name) in output
    assert sentence in output
    assert str(stored / name) in refused(capsys, "report", stored)


def test_a_flipped_byte_is_detected_or_changes_no_row(
    capsys: pytest.CaptureFixture[str], stored: Path
) -> None:
    """Pages have checksums. A flipped byte in metadata is refused, or the table has the same rows."""
    path = stored / OPERATIONS
    whole = path.read_bytes()
    rows = read_tables(stored)["operations"]
    refused_positions = []
    for position in range(0, len(whole), 61):
        data = bytearray(whole)
        data[position] ^= 0xFF
        path.write_bytes(data)
        try:
            assert read_tables(stored)["operations"].equals(rows)
        except HistoryError:
            refused_positions.append(position)
    assert len(refused_positions) > 50
    first = refused_positions[0]
    path.write_bytes(whole[:first] + bytes([whole[first] ^ 0xFF]) + whole[first + 1 :])
    assert str(path) in check(capsys, stored)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"format": 3, "tab', "cannot be read as a history manifest"),
        ("[]", "is not a history manifest of laststand"),
        ('{"format": 99}', "is of history format 99, this version reads 3 to 10"),
        ('{"format": 1, "tables": {}}', "is of history format 1, this version reads 3 to 10"),
        ('{"format": 3, "tables": {"operations": [["t", 0, "x"]]}}', "is not a history manifest"),
        ('{"format": 6, "tables": {"operations": [["t", 0, 1e999]]}}', "is not a history manifest"),
        ('{"format": 6, "tables": {"operations": [["t", 0.5, 1]]}}', "is not a history manifest"),
        ("[" * 100_000, "cannot be read as a history manifest"),
    ],
)
def test_a_damaged_manifest_is_refused(
    capsys: pytest.CaptureFixture[str], stored: Path, text: str, sentence: str
) -> None:
    (stored / MANIFEST).write_text(text)
    assert sentence in check(capsys, stored)


def test_a_manifest_cannot_name_files_outside_the_run(
    capsys: pytest.CaptureFixture[str], stored: Path
) -> None:
    text = (stored / MANIFEST).read_text().replace('"t"', '"../../../secret"')
    (stored / MANIFEST).write_text(text)
    assert "..%2F..%2F..%2Fsecret-0.parquet is missing" in check(capsys, stored)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda run: shutil.rmtree(run / "history"), "holds no history"),
        (lambda run: (run / MANIFEST).unlink(), "holds no history"),
    ],
)
def test_a_run_without_history_is_refused(
    capsys: pytest.CaptureFixture[str], stored: Path, damage: Damage, sentence: str
) -> None:
    damage(stored)
    assert sentence in check(capsys, stored)


def test_a_folder_without_a_run_is_refused_with_a_suggestion(
    capsys: pytest.CaptureFixture[str], stored: Path
) -> None:
    shutil.rmtree(stored)
    stored.mkdir()
    assert f"did you mean '{stored.parent.name}/{stored.name}'?" in check(capsys, stored)


def with_journal(run: Path, data: bytes) -> None:
    """Leaves only the files of a run whose harness died: an experiment and a journal."""
    for name in ("run.json", "verdict.json", "replay.json", "report.html", "summary.md"):
        (run / name).unlink()
    shutil.rmtree(run / "history")
    (run / "history").mkdir()
    (run / "history" / "history.journal").write_bytes(data)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"hello world" * 20, "is not a history journal of laststand"),
        (b"laststand journal 1\n" + bytes(16), "was written by another version of laststand"),
        (b"laststand journal 3\n" + bytes(16), "was written by another version of laststand"),
    ],
)
def test_a_foreign_journal_is_refused(
    capsys: pytest.CaptureFixture[str], stored: Path, data: bytes, sentence: str
) -> None:
    with_journal(stored, data)
    assert sentence in check(capsys, stored)


@pytest.mark.parametrize(
    "data",
    [b"", file_header()[:7], file_header(), file_header() + b"LSF1\x10", file_header() + b"x" * 99],
)
def test_a_journal_with_a_torn_tail_is_judged_up_to_the_last_complete_frame(
    capsys: pytest.CaptureFixture[str], stored: Path, data: bytes
) -> None:
    with_journal(stored, data)
    outcome = call(capsys, "check", stored, "--no-spark", "--json", "--quiet")
    assert outcome.code == 2
    assert outcome.data["verdict"] == "unknown"
    assert "the harness died before the run was over" in outcome.data["reasons"][0]
    assert outcome.data["profile"] == "kafka-4.0"
    assert outcome.data["seed"] == 1


def edited(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


NOT_JSON = [b"", b'{"seed": ', b"[]", b"\xff\x00"]


@pytest.mark.parametrize("data", NOT_JSON)
def test_a_damaged_run_json_is_refused(
    capsys: pytest.CaptureFixture[str], stored: Path, data: bytes
) -> None:
    (stored / "run.json").write_bytes(data)
    assert f"{stored / 'run.json'}" in check(capsys, stored)
    assert f"{stored / 'run.json'}" in refused(capsys, "report", stored)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (halve, "is damaged or not a Parquet file"),
        (replace_with_foreign, "is not a table of ours: column"),
        (drop_last_row, "but the manifest lists"),
        (remove, "is missing from the history"),
    ],
)
def test_damaged_facts_of_a_run_are_refused(
    capsys: pytest.CaptureFixture[str], stored: Path, damage: Damage, sentence: str
) -> None:
    damage(stored / "history/run_facts.parquet")
    output = check(capsys, stored)
    assert str(stored / "history/run_facts.parquet") in output
    assert sentence in output


def test_a_run_that_names_a_checker_that_is_not_installed_is_refused(
    capsys: pytest.CaptureFixture[str], stored: Path
) -> None:
    tables = read_tables(stored)
    (row,) = tables["run_facts"].to_pylist()
    row["checkers"] = ["linearizability", "losst-acked"]
    facts = pa.Table.from_pylist([row], schema=TABLES["run_facts"])
    write_tables(stored, {**tables, "run_facts": facts})
    assert "no checker is called 'losst-acked'; did you mean 'lost-acked'?" in check(capsys, stored)


def test_a_run_json_of_a_scenario_that_does_not_exist_is_refused(
    capsys: pytest.CaptureFixture[str], stored: Path
) -> None:
    edited(stored / "run.json", lambda data: data.update(scenario="last-replica-standing:V99"))
    sentence = refused(capsys, "check", stored, "--no-spark", "--quiet")
    assert "run.json is damaged: no variant" in sentence


@pytest.mark.parametrize("data", [*NOT_JSON, b"{}", b'{"validity": "fine"}', b'{"anomalies": 3}'])
def test_a_damaged_verdict_is_refused_by_report_and_replaced_by_check(
    capsys: pytest.CaptureFixture[str], stored: Path, data: bytes
) -> None:
    path = stored / "verdict.json"
    whole = path.read_bytes()
    path.write_bytes(data)
    assert str(path) in refused(capsys, "report", stored)
    assert call(capsys, "check", stored, "--no-spark", "--quiet").code == 1
    assert path.read_bytes() == whole


@pytest.mark.parametrize("data", NOT_JSON)
def test_a_damaged_replay_file_is_refused_by_replay_and_does_not_prevent_a_verdict(
    capsys: pytest.CaptureFixture[str], stored: Path, data: bytes
) -> None:
    path = stored / "replay.json"
    path.write_bytes(data)
    assert str(path) in refused(capsys, "replay", stored, "--no-spark", "--results", stored.parent)
    outcome = call(capsys, "check", stored, "--no-spark", "--quiet")
    assert outcome.code == 1
    assert outcome.out.startswith("INVALID\n")
    assert f"no report could be made: HistoryError: {path}" in outcome.err


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda data: data.update(schema=99), "is not a replay file of schema 1"),
        (lambda data: data.update(seed=-1), "a seed is a whole number"),
        (lambda data: data.update(seed=True), "it has no valid 'seed'"),
        (lambda data: data.pop("trace_hash"), "it has no valid 'trace_hash'"),
        (lambda data: data.pop("experiment"), "is damaged"),
        (lambda data: data.update(schedule=5), "is damaged"),
        (lambda data: data.update(schedule=[5]), "is damaged"),
        (lambda data: data["experiment"].update(profile="kafka-9"), "no profile is called"),
    ],
)
def test_a_replay_file_with_wrong_content_is_refused(
    capsys: pytest.CaptureFixture[str],
    stored: Path,
    change: Callable[[dict[str, Any]], object],
    sentence: str,
) -> None:
    edited(stored / "replay.json", change)
    output = refused(capsys, "replay", stored, "--no-spark", "--results", stored.parent.parent)
    assert sentence in output
    assert str(stored / "replay.json") in output


def test_a_run_that_never_wrote_a_replay_file_cannot_be_replayed(
    capsys: pytest.CaptureFixture[str], stored: Path
) -> None:
    (stored / "replay.json").unlink()
    output = refused(capsys, "replay", stored, "--no-spark", "--results", stored.parent.parent)
    assert "has no replay.json, so it cannot be replayed" in output


def test_a_replay_with_a_different_trace_hash_fails_and_names_the_cause(
    capsys: pytest.CaptureFixture[str], stored: Path
) -> None:
    """Not the user's mistake: the code has changed, or determinism is broken. Exit code 255."""
    edited(stored / "replay.json", lambda data: data.update(trace_hash="0" * 32))
    where = ("--no-spark", "--quiet", "--results", stored.parent.parent)
    outcome = call(capsys, "replay", stored, *where)
    assert outcome.code == 255
    assert "so the simulation is not deterministic" in outcome.err
    edited(stored / "replay.json", lambda data: data.update(code="another"))
    assert "the code has changed since that run" in call(capsys, "replay", stored, *where).err


def test_list_names_runs_that_are_unfinished_or_unreadable(
    capsys: pytest.CaptureFixture[str], stored: Path
) -> None:
    unfinished = stored.with_name("20990101T000000Z-5")
    shutil.copytree(stored, unfinished)
    (unfinished / "run.json").unlink()
    (stored / "run.json").write_bytes(b"{")
    outcome = call(capsys, "list", "--json", "--results", stored.parent.parent)
    assert outcome.code == 0
    assert [(run["run"].partition("/")[2], run["verdict"]) for run in outcome.data["runs"]] == [
        (unfinished.name, "unfinished"),
        (stored.name, "unreadable"),
    ]
