"""The campaign tables: one partition per night, complete or absent, below a path or a URI."""

import json

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from checkers.spark import SparkOptions
from harness.campaigns.night import (
    is_night,
    night_order,
    plan_from_json,
    read_plan,
    replays,
    rows_of,
)
from harness.campaigns.night_summary import summarize_night
from harness.campaigns.night_tables import NightTables
from harness.campaigns.trends import trends
from harness.errors import HistoryError, UsageError
from harness.history.filesystems import child, open_root
from results.campaign_tables import NIGHT_TABLES
from tests.unit.harness.campaigns.made_up_nights import BROKEN, LOSS, row, write_night

JOBS = ({"name": "random", "experiment": {"name": "elr-compare"}}, {"name": "idle"})


def store(root, night, *rows):
    plan = plan_from_json({"night": night, "jobs": list(JOBS)}, origin="plan")
    summary = summarize_night(plan, rows)
    tables = NightTables(str(root))
    tables.write(summary, iter(rows), dict.fromkeys(summary.groups, "new"))
    return tables


RUNS = (
    row("random", 1),
    row("random", 2, LOSS, BROKEN, stored="runs/2", replayed="same"),
    row("random", 3, LOSS),
    row("random", 4, verdict="unknown", reasons=["the fault 'cut' never took effect"]),
    row("random", 5, verdict="unknown", error="killed", operations=0, marks={}, elapsed_ms=0.0),
)


@pytest.mark.parametrize("root", ["{}", "file://{}"])
def test_a_night_is_one_partition_with_three_files(tmp_path, root):
    tables = store(root.format(tmp_path / "tables"), "2026-11-22", *RUNS)
    assert tables.nights() == ["2026-11-22"]
    place = tmp_path / "tables" / "night=2026-11-22"
    assert sorted(path.name for path in place.iterdir()) == [
        "findings.parquet",
        "jobs.parquet",
        "runs.parquet",
    ]
    for name, schema in NIGHT_TABLES.items():
        assert pq.read_schema(place / f"{name}.parquet").equals(schema)


def test_any_engine_reads_the_night_from_the_name_of_the_directory(tmp_path):
    store(tmp_path, "2026-11-21", *RUNS)
    store(tmp_path, "2026-11-22-2", *RUNS)
    files = [str(path) for path in tmp_path.glob("*/runs.parquet")]
    partitioning = ds.partitioning(flavor="hive")
    read = ds.dataset(files, partitioning=partitioning, partition_base_dir=str(tmp_path)).to_table()
    assert set(read.column("night").to_pylist()) == {"2026-11-21", "2026-11-22-2"}
    assert read.num_rows == 2 * len(RUNS)


def test_the_rows_are_those_of_the_night(tmp_path):
    tables = store(tmp_path, "2026-11-22", *RUNS)
    runs = tables.read("2026-11-22", "runs")
    assert [one["seed"] for one in runs] == [1, 2, 3, 4, 5]
    assert runs[1]["signatures"] == [LOSS["signature"], BROKEN["signature"]]
    assert runs[1]["anomalies"] == [
        {"id": "lost-acked-write", "judgement": "forbidden", "count": 5}
    ]
    assert {"mark": "broker-fenced", "count": 3} in runs[0]["marks"]
    assert (runs[3]["reason"], runs[4]["error"]) == ("the fault 'cut' never took effect", "killed")
    findings = {one["signature"]: one for one in tables.read("2026-11-22", "findings")}
    loss = findings[LOSS["signature"]]
    assert (loss["runs"], loss["status"], loss["what"]) == (2, "new", "lost-acked-write")
    assert (loss["seeds"], loss["stored"]) == ([2, 3], ["runs/2"])
    random, idle = tables.read("2026-11-22", "jobs")
    assert (random["runs"], random["valid"], random["invalid"]) == (5, 1, 2)
    assert (random["unknown"], random["errors"], random["findings"]) == (1, 1, 2)
    assert (random["experiment"], random["unavailable_ms_median"]) == ("elr-compare", 250.0)
    assert random["operations"] == 1001 + 1002 + 1003 + 1004
    assert random["runs_per_min"] == pytest.approx(60 * 5 / 7.5)
    assert (idle["runs"], idle["unavailable_ms_median"]) == (0, None)


def test_a_night_that_was_interrupted_while_it_was_written_does_not_count(tmp_path):
    tables = store(tmp_path, "2026-11-21", *RUNS)

    def broken_rows():
        yield RUNS[0]
        raise OSError("the disk is full")

    plan = plan_from_json({"night": "2026-11-22", "jobs": list(JOBS)}, origin="plan")
    with pytest.raises(HistoryError, match="cannot be written: the disk is full"):
        tables.write(summarize_night(plan, RUNS), broken_rows(), {})
    assert tables.nights() == ["2026-11-21"]
    store(tmp_path, "2026-11-22", *RUNS)
    assert tables.nights() == ["2026-11-21", "2026-11-22"]
    with pytest.raises(HistoryError, match="cannot be written"):
        tables.write(summarize_night(plan, RUNS), broken_rows(), {})
    assert tables.nights() == ["2026-11-21"], "the old jobs.parquet must not vouch for new files"


def test_writing_a_night_again_gives_the_same_bytes(tmp_path):
    store(tmp_path, "2026-11-22", *RUNS)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*/*")}
    store(tmp_path, "2026-11-22", *RUNS)
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*/*")} == before


def test_nights_are_in_order_of_their_dates_and_numbers(tmp_path):
    for night in ("2026-11-22-10", "2026-11-22", "2026-11-22-9", "2026-11-21"):
        store(tmp_path, night, *RUNS)
    (tmp_path / "night=other").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    tables = NightTables(str(tmp_path))
    assert tables.nights() == ["2026-11-21", "2026-11-22", "2026-11-22-9", "2026-11-22-10"]
    assert [one.night for one in tables.before("2026-11-22-9", 1)] == ["2026-11-22"]
    assert [one.night for one in tables.before("2026-11-22-10", 2)] == [
        "2026-11-22",
        "2026-11-22-9",
    ]
    assert tables.before("2026-11-21", 5) == []
    assert not is_night("2026-11-22-0")
    assert night_order("2026-11-22-2") > night_order("2026-11-22")


def test_a_night_of_an_earlier_version_lacks_the_later_columns(tmp_path):
    tables = store(tmp_path, "2026-11-22", *RUNS)
    path = tmp_path / "night=2026-11-22" / "jobs.parquet"
    stored = pq.read_table(path, partitioning=None)
    schema = NIGHT_TABLES["jobs"]
    later = [
        field.name for field in schema if field.nullable and field.name != "unavailable_ms_median"
    ]
    pq.write_table(stored.drop_columns(later), path)
    assert "repeats" in later
    for job in tables.read("2026-11-22", "jobs"):
        assert set(job) == set(schema.names)
        assert {job[name] for name in later} == {None}
    pq.write_table(stored.drop_columns(["runs"]), path)
    with pytest.raises(HistoryError, match=r"jobs\.parquet cannot be read"):
        tables.read("2026-11-22", "jobs")


def test_a_damaged_table_is_named(tmp_path):
    tables = store(tmp_path, "2026-11-22", *RUNS)
    path = tmp_path / "night=2026-11-22" / "jobs.parquet"
    path.write_bytes(b"PAR1")
    with pytest.raises(HistoryError, match=r"night=2026-11-22/jobs\.parquet cannot be read"):
        tables.read("2026-11-22", "jobs")


def test_trends_without_spark_are_the_stored_numbers(tmp_path):
    store(tmp_path, "2026-11-21", *RUNS[:1])
    tables = store(tmp_path, "2026-11-22", *RUNS)
    rows = trends(tables, SparkOptions(enabled=False), log_path=tmp_path / "log")
    assert [(one["night"], one["job"], one["runs"], one["findings"]) for one in rows] == [
        ("2026-11-21", "random", 1, 0),
        ("2026-11-22", "random", 5, 2),
    ]
    assert rows[1]["marks"] == 2


def test_an_unknown_file_system_is_refused_and_places_are_below_a_uri():
    with pytest.raises(UsageError, match="use a path or a URI with file, s3a, gs or hdfs"):
        open_root("ftp://host/tables")
    assert child("s3a://bucket/a?region=eu", "b") == "s3a://bucket/a/b?region=eu"
    assert child("tables/", "night=1", "x") == "tables/night=1/x"


def test_a_night_is_read_up_to_its_last_whole_row(tmp_path):
    place = write_night(tmp_path, "2026-11-22", RUNS)
    with (place / "rows.jsonl").open("a") as file:
        file.write('{"job": "ran')
    plan = read_plan(place)
    assert [one["seed"] for one in rows_of(place, plan)] == [1, 2, 3, 4, 5]
    assert plan.night == "2026-11-22"
    assert list(rows_of(tmp_path / "nothing", plan)) == []


def test_a_row_inherits_from_its_job_and_an_error_is_a_finding(tmp_path):
    bare = row("random", 1)
    del bare["on"], bare["system"]
    failed = {"job": "random", "error": "it took longer than 300 s"}
    jobs = [{"name": "random", "world": "docker", "system": "kafka"}]
    place = write_night(tmp_path, "2026-11-22", [bare, failed], jobs)
    first, second = rows_of(place, read_plan(place))
    assert (first["on"], first["system"]) == ("docker", "kafka")
    assert [finding["title"] for finding in second["findings"]] == [
        "harness-error: it took longer than N s"
    ]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("[]", "rows.jsonl, line 1 is not the row of a run"),
        ("{", "rows.jsonl, line 1 is not the row of a run"),
        ('{"job": "random"}', "rows.jsonl, line 1 has no key or unplanned job 'findings'"),
        ('{"job": "other", "findings": []}', "line 1 has no key or unplanned job 'other'"),
        ('{"job": "random", "findings": 3}', "line 1 is not the row of a run"),
    ],
)
def test_a_line_that_is_no_row_is_named(tmp_path, line, sentence):
    place = write_night(tmp_path, "2026-11-22", [])
    (place / "rows.jsonl").write_text(line + "\n")
    with pytest.raises(HistoryError) as error:
        list(rows_of(place, read_plan(place)))
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        ({"jobs": []}, "has no key 'night'"),
        ({"night": "tonight", "jobs": []}, "'tonight' is not a night like 2026-11-22"),
        ({"night": "2026-11-22", "jobs": [{}]}, "missing required field `name`"),
        ({"night": "2026-11-22", "jobs": [{"name": "a"}, {"name": "a"}]}, "have the same name"),
        ({"night": "2026-11-22", "jobs": [3]}, "is damaged"),
        ({"night": "2026-11-22", "jobs": [{"name": "a", "weight": "x"}]}, "Expected `float`"),
    ],
)
def test_a_damaged_plan_is_refused(tmp_path, plan, sentence):
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(HistoryError, match=r"is damaged|is not a night") as error:
        read_plan(tmp_path)
    assert sentence in str(error.value)
    with pytest.raises(HistoryError, match=r"is not a night: it has no plan\.json"):
        read_plan(tmp_path / "nothing")


def test_what_a_replay_showed_is_counted():
    assert replays("") == (0, 0)
    assert replays("same") == (1, 1)
    assert replays("different verdict") == (0, 1)
