"""The run store: where runs go and how they are found again."""

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from harness.errors import HistoryError, UsageError
from results.layout import RunFiles, run_name, utc_stamp
from results.store import RunStore, read_json, write_json

STAMP = "20260131T235959Z"


@pytest.fixture
def store(tmp_path) -> RunStore:
    return RunStore(tmp_path / "runs")


def finished(directory: Path, **summary: object) -> Path:
    write_json(RunFiles(directory).run, summary)
    return directory


def test_a_run_is_named_after_its_time_and_seed(store):
    assert store.create("lrs", 8812, stamp=STAMP) == store.root / "lrs" / f"{STAMP}-8812"
    assert store.create("lrs", 8812, stamp=STAMP) == store.root / "lrs" / f"{STAMP}-8812-2"
    assert store.create("lrs", "9f3cab", stamp=STAMP).name == f"{STAMP}-9f3cab"


def test_a_stamp_is_utc():
    moment = datetime(2026, 2, 1, 1, 59, 59, tzinfo=timezone(timedelta(hours=2)))
    assert utc_stamp(moment) == STAMP == utc_stamp(moment.astimezone(UTC))
    with pytest.raises(ValueError, match="time zone"):
        utc_stamp(moment.replace(tzinfo=None))
    with pytest.raises(ValueError, match="is not a stamp"):
        run_name("yesterday", 1)


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "latest", "-x", "a\nb", "x" * 101])
def test_names_that_cannot_be_folders_are_refused(store, name):
    with pytest.raises(UsageError, match="cannot be the name of an experiment"):
        store.create(name, 1, stamp=STAMP)
    assert not store.root.exists()


def test_a_seed_that_cannot_be_part_of_a_file_name_is_refused(store):
    with pytest.raises(UsageError, match="a seed is a number or a commit hash"):
        store.create("lrs", "../x", stamp=STAMP)


def test_a_run_is_found_by_latest_path_id_and_unique_prefix(store):
    first = finished(store.create("lrs", 1, stamp="20260101T000000Z"))
    second = finished(store.create("chaos", 2, stamp="20260102T000000Z"))
    assert store.find("latest") == second.resolve()
    assert store.find(str(first)) == first
    assert store.find("lrs/20260101T000000Z-1") == first
    assert store.find("20260101T000000Z-1") == first
    assert store.find("lrs") == first
    assert store.find("20260102") == second
    assert store.run_id(first) == "lrs/20260101T000000Z-1"


def test_latest_works_without_the_link(store):
    store.create("lrs", 1, stamp="20260103T000000Z")
    second = store.create("chaos", 2, stamp="20260102T000000Z")
    assert store.find("latest") == second.resolve()
    (store.root / "latest").unlink()
    assert store.find("latest").name == "20260103T000000Z-1"


def test_latest_is_the_newest_finished_run(store):
    """A run that is still going on, or whose harness died, has no run.json."""
    first = finished(store.create("lrs", 1, stamp="20260101T000000Z"))
    second = finished(store.create("chaos", 2, stamp="20260102T000000Z"))
    store.create("lrs", 3, stamp="20260103T000000Z")
    assert store.find("latest") == second
    (store.root / "latest").unlink()
    assert store.find("latest") == second
    RunFiles(second).run.unlink()
    assert store.find("latest") == first


def test_an_exact_name_wins_over_longer_ones(store):
    first = store.create("lrs", 8, stamp=STAMP)
    store.create("lrs", 8, stamp=STAMP)
    assert store.find(f"lrs/{STAMP}-8") == first


def test_an_unknown_run_gets_suggestions_and_an_ambiguous_prefix_lists_candidates(store):
    for seed in range(8):
        store.create("lrs", seed, stamp=STAMP)
    with pytest.raises(HistoryError, match=rf"did you mean 'lrs/{STAMP}-3'\?"):
        store.find(f"lsr/{STAMP}-3")
    with pytest.raises(HistoryError, match=r"is the beginning of .* and 3 more; give more of it"):
        store.find("lrs")
    with pytest.raises(HistoryError, match=r"no run in .* is called ''"):
        store.find("")


def test_an_empty_store_explains_what_to_do(store):
    with pytest.raises(HistoryError, match="`laststand run` makes one"):
        store.find("latest")
    assert store.list() == ()


def test_list_shows_verdicts_newest_first_and_survives_damage(store):
    bad = finished(
        store.create("lrs", 1, stamp="20260101T000000Z"),
        seed=1,
        verdict="invalid",
        unexcused_lost_records=5,
        anomalies=[{"id": "lost-acked-write", "count": 5}],
    )
    store.create("lrs", 2, stamp="20260102T000000Z")
    damaged = store.create("chaos", 3, stamp="20260103T000000Z")
    RunFiles(damaged).run.write_text("{")
    entries = store.list()
    assert [(entry.seed, entry.verdict) for entry in entries] == [
        ("3", "unreadable"),
        ("2", "unfinished"),
        ("1", "invalid"),
    ]
    assert entries[2].directory == bad
    assert entries[2].unexcused_lost_records == 5
    assert entries[2].anomalies == (("lost-acked-write", 5),)
    assert entries[2].experiment == "lrs"


def test_json_files_are_sorted_and_replaced_atomically(tmp_path):
    path = tmp_path / "x.json"
    write_json(path, {"b": "ü", "a": [1]})
    assert path.read_text(encoding="utf-8") == '{\n  "a": [\n    1\n  ],\n  "b": "ü"\n}\n'
    assert read_json(path) == {"a": [1], "b": "ü"}
    assert [item.name for item in tmp_path.iterdir()] == ["x.json"]
    path.write_text(json.dumps([1]))
    with pytest.raises(HistoryError, match="is not a JSON object"):
        read_json(path)
    path.write_text("[" * 100_000)
    with pytest.raises(HistoryError, match="cannot be read"):
        read_json(path)
