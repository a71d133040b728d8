"""A run as a trace: valid JSON in Chrome's format, slices that nest, the same bytes each time."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from results.report.trace import write_trace
from tests.cli.cli_helpers import call, refused
from tests.report.made_up_run import make_lost_run

MS = 1000.0


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_lost_run(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def events(run_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    path = tmp_path_factory.mktemp("trace") / "a.json"
    count = write_trace(run_dir, path)
    data = json.loads(path.read_text(encoding="utf-8"))
    assert len(data["traceEvents"]) == count
    assert write_trace(run_dir, path.with_name("b.json")) == count
    assert path.read_bytes() == path.with_name("b.json").read_bytes()
    return list(data["traceEvents"])


def named(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [event for event in events if event["name"] == name]


def test_every_track_belongs_to_a_group_with_a_name(events: list[dict[str, Any]]) -> None:
    groups = {event["pid"]: event["args"]["name"] for event in named(events, "process_name")}
    assert {event["pid"] for event in events} == set(groups)
    assert list(groups.values()) == [
        *("anomalies", "faults", "partition leaders", "b1", "b2", "b3", "c1", "clients"),
    ]


def test_slices_of_one_track_do_not_overlap(events: list[dict[str, Any]]) -> None:
    ends: dict[tuple[int, int], float] = defaultdict(float)
    slices = [event for event in events if event["ph"] == "X"]
    for event in sorted(slices, key=lambda event: event["ts"]):
        track = (event["pid"], event["tid"])
        assert event["ts"] >= ends[track] - 1e-6, event
        ends[track] = event["ts"] + event["dur"]


def test_operations_faults_leaders_and_findings_are_where_they_happened(
    events: list[dict[str, Any]],
) -> None:
    appends = [event for event in named(events, "append ok") if event["ph"] == "X"]
    assert len(appends) == 15
    assert (appends[0]["ts"], appends[0]["dur"]) == (199 * MS, 6 * MS)
    assert appends[0]["args"]["offset"] == 0
    (power,) = named(events, "f3 power b1")
    assert (power["ts"], power["ts"] + power["dur"]) == (5000 * MS, 6601 * MS)
    assert power["args"]["evidence"] == {"bytes_lost": 612, "records_lost": 5}
    (vacant,) = named(events, "no leader, leader epoch 1")
    assert (vacant["ts"], vacant["dur"]) == (5900 * MS, 1300 * MS)
    (lost,) = named(events, "lost-acked-write in t-0")
    assert (lost["ph"], lost["s"], lost["ts"]) == ("i", "g", 7250 * MS)
    ends = [event for event in named(events, "t-0 log_end_offset") if event["pid"] == 10]
    assert [event["args"]["log_end_offset"] for event in ends if event["ts"] == 6800 * MS] == [5]


def test_the_command_writes_into_the_run_or_where_it_is_told(
    capsys: pytest.CaptureFixture[str], run_dir: Path, tmp_path: Path
) -> None:
    outcome = call(capsys, "trace", run_dir)
    assert (outcome.code, outcome.out) == (0, f"{run_dir / 'trace.json'}\n")
    path = tmp_path / "own.json"
    data = call(capsys, "trace", run_dir, "-o", path, "--json").data
    assert data == {"trace": str(path), "events": len(json.loads(path.read_text())["traceEvents"])}
    assert path.read_bytes() == (run_dir / "trace.json").read_bytes()
    assert "cannot be written" in refused(capsys, "trace", run_dir, "-o", tmp_path / "no" / "x")
