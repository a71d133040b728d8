"""The messages that nodes of a real run recorded: in the report, and in the trace."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from harness.errors import HistoryError
from results.layout import RunFiles
from results.message_table import read_messages, write_messages
from results.report.build import build_report
from results.report.spacetime import CLIENTS_MAX, OTHER_CLIENTS
from results.report.trace import write_trace
from tests.report.made_up_run import make_lost_run

MS = 1_000_000
MOMENT_MS = 7250
"""When the lost record of the made-up run was decided."""


def message(sent_ms: float | None, arrived_ms: float | None, **changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "kind": "fetch",
        "src": "b1",
        "dst": "b2",
        "text": "Fetch response",
        "sent_ns": None if sent_ms is None else int(sent_ms * MS),
        "arrived_ns": None if arrived_ms is None else int(arrived_ms * MS),
        "lost": False,
    }
    return {**values, **changes}


BOTH = message(MOMENT_MS - 10, MOMENT_MS - 8, text="both ends")
LOST = message(MOMENT_MS - 9, None, lost=True, text="lost one")
FROM_CLIENT = message(None, MOMENT_MS - 7, src="client-0", dst="b1", text="from a client")
TO_CLIENT = message(MOMENT_MS - 6, None, dst="client-0", text="to a client")
ROWS = [BOTH, LOST, FROM_CLIENT, TO_CLIENT]


def made_up(tmp_path: Path, rows: list[dict[str, Any]], remarks: tuple[str, ...] = ()) -> Path:
    run = make_lost_run(tmp_path)
    write_messages(RunFiles(run).recorded_messages, rows, remarks)
    return run


def make_run_with_messages(folder: Path) -> Path:
    """Makes a run whose diagram has everything that one can have, with many clients of long names."""
    crowd = [
        message(None, MOMENT_MS - number, src=f"consumer-of-a-long-name-{number:03}", dst="b1")
        for number in range(CLIENTS_MAX + 5)
    ]
    remarks = ("messages of b3 before 2.000 s are missing: the size of its record is limited",)
    return made_up(folder, [*ROWS, *crowd], remarks)


def lines(page: str) -> list[str]:
    return re.findall(r'<line class="(message k\d[^"]*)"', page)


def test_the_report_shows_whole_lost_and_half_known_messages(tmp_path: Path) -> None:
    run = made_up(tmp_path, ROWS, ("messages of b3 before 2.000 s are missing",))
    page = build_report(run).read_text(encoding="utf-8")
    assert lines(page) == ["message k1", "message k1 lost", "message k1 half", "message k1 half"]
    assert "both ends, b1 to b2, 7.240 s to 7.242 s" in page
    assert "lost one, b1 to b2, sent at 7.241 s, did not arrive in this time" in page
    assert "from a client, client-0 to b1, arrived at 7.243 s; when it was sent was not rec" in page
    assert "to a client, b1 to client-0, sent at 7.244 s; its arrival was not recorded" in page
    assert "a line with a cross did not arrive" in page
    assert "only one end was recorded" in page
    assert "Note: messages of b3 before 2.000 s are missing." in page


def test_the_report_shows_messages_of_the_decisive_moment_only(tmp_path: Path) -> None:
    run = made_up(tmp_path, [message(1, 2, text="early"), BOTH, message(9e3, 9e3, text="late")])
    page = build_report(run).read_text(encoding="utf-8")
    assert lines(page) == ["message k1"]
    assert "only one end was recorded" not in page
    assert "did not arrive" not in page


def test_many_clients_share_a_line(tmp_path: Path) -> None:
    rows = [
        message(None, MOMENT_MS - number, src=f"consumer-number-{number:03}", dst="b1")
        for number in range(CLIENTS_MAX + 5)
    ]
    page = build_report(made_up(tmp_path, rows)).read_text(encoding="utf-8")
    assert page.count(f">{OTHER_CLIENTS}</text>") == 1
    assert page.count("</title>consumer-numbe…</text>") == CLIENTS_MAX


def test_a_run_from_before_or_a_damaged_table_has_no_diagram(tmp_path: Path) -> None:
    run = make_lost_run(tmp_path)
    path = RunFiles(run).recorded_messages
    assert "The messages around" not in build_report(run).read_text(encoding="utf-8")
    path.write_bytes(b"no table")
    assert "The messages around" not in build_report(run).read_text(encoding="utf-8")
    with pytest.raises(HistoryError, match="is not a table of messages"):
        read_messages(path)


def test_the_table_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "messages.parquet"
    write_messages(path, ROWS, ("one", "zwei ü"))
    assert read_messages(path) == (ROWS, ("one", "zwei ü"))
    assert read_messages(path, (LOST["sent_ns"], FROM_CLIENT["arrived_ns"]))[0] == [
        *(BOTH, LOST, FROM_CLIENT),
    ]
    assert read_messages(path, (0, 1))[0] == []


def test_the_trace_has_the_messages(tmp_path: Path) -> None:
    at_once = [message(5000, 5003, text="first"), message(5001, 5002, text="second")]
    run = made_up(tmp_path, [*at_once, *ROWS])
    path = tmp_path / "trace.json"
    write_trace(run, path)
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    groups = {one["args"]["name"]: one["pid"] for one in events if one["name"] == "process_name"}
    tracks = {
        (one["pid"], one["tid"]): one["args"]["name"]
        for one in events
        if one["name"] == "thread_name"
    }
    by_name = {one["name"]: one for one in events if one["ph"] in "Xi"}
    both = by_name["both ends"]
    assert (both["ph"], both["ts"], both["dur"]) == ("X", 7_240_000.0, 2000.0)
    assert both["pid"] == groups["b1"]
    assert tracks[both["pid"], both["tid"]] == "messages to b2"
    assert both["args"] == {"from": "b1", "to": "b2", "kind": "fetch", "lost": False}
    second = by_name["second"]
    assert tracks[second["pid"], second["tid"]] == "messages to b2 (2)"
    assert by_name["lost: lost one"]["pid"] == groups["b1"]
    assert by_name["from a client"]["pid"] == groups["b1"]
    assert "client-0" not in groups
