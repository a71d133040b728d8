"""The metrics of real nodes in the report."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harness.runs.metrics_file import MetricsFile
from results.report.metrics import (
    ACTIVE,
    CONTROLLER,
    COUNTERS,
    COUNTERS_TITLE,
    OF_ACTIVE_CONTROLLER,
    PER_BROKER,
    metric_rows,
    read_changes,
)

LED = f"{'kafka_server_replicamanager_'}leadercount"
SHRINKS = COUNTERS[0][1]
OFFLINE = f"{CONTROLLER}offlinepartitionscount"


def rows_of(directory: Path) -> dict[str, Any]:
    run: Any = SimpleNamespace(directory=directory)
    return {row.title: row for row in metric_rows(read_changes(run))}


def pieces(row: Any, name: str) -> Any:
    (line,) = (one for one in row.lines if one.name == name)
    return line.pieces, line.ends_ns


def test_a_run_without_metrics_has_no_rows(tmp_path: Path) -> None:
    assert rows_of(tmp_path) == {}
    MetricsFile(tmp_path / "metrics.jsonl").close()
    assert not (tmp_path / "metrics.jsonl").exists()


def test_a_line_ends_while_its_node_is_down_and_counters_go_on(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.jsonl")
    file.went_down("b2", 1)  # it never reported anything
    file.changed("b1", 10, {LED: 2, SHRINKS: 3}, ())
    file.changed("b1", 20, {SHRINKS: 5}, ())
    file.went_down("b1", 30)
    file.changed("b1", 40, {LED: 1, SHRINKS: 1}, ())
    file.changed("b1", 50, {}, (LED,))
    file.close()
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 5
    rows = rows_of(tmp_path)
    assert pieces(rows["partitions led"], "b1") == ([[(10, 2.0)], [(40, 1.0)]], [30, 50])
    assert pieces(rows[COUNTERS_TITLE], "ISR shrinks")[0] == [[(10, 3.0), (20, 5.0), (40, 6.0)]]
    assert set(rows) <= {
        COUNTERS_TITLE,
        OF_ACTIVE_CONTROLLER[0],
        *(title for title, _ in PER_BROKER),
    }


def test_partitions_without_a_leader_are_those_of_the_active_controller(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.jsonl")
    file.changed("b1", 1, {LED: 1}, ())
    file.changed("c11", 10, {ACTIVE: 1, OFFLINE: 0}, ())
    file.changed("c12", 11, {ACTIVE: 0, OFFLINE: 7}, ())
    file.changed("c11", 20, {OFFLINE: 2}, ())
    file.went_down("c11", 30)
    file.changed("c12", 40, {ACTIVE: 1}, ())
    file.close()
    row = rows_of(tmp_path)[OF_ACTIVE_CONTROLLER[0]]
    assert pieces(row, "active controller") == ([[(10, 0.0), (20, 2.0)], [(40, 7.0)]], [30])


def test_lines_that_are_no_report_are_skipped(tmp_path: Path) -> None:
    good = json.dumps({"at_ns": 5, "node": "b1", "values": {LED: 4}, "gone": []})
    lines = ["{", "3", '{"at_ns": 1}', '{"at_ns": 1, "node": "b1", "values": 3}', good, good[:20]]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    assert pieces(rows_of(tmp_path)["partitions led"], "b1") == ([[(5, 4.0)]], [])
