"""The report of a run that is hostile, damaged, empty, unfinished or long."""

import json
import re
from pathlib import Path

import pytest

from harness.errors import HistoryError
from harness.history.op import Completion, OpKind, Outcome
from harness.history.writer import HistoryWriter
from results.layout import RunFiles
from results.report.build import build_report
from results.report.lanes import INTERVALS_MAX
from results.report.story import STORY_MAX
from results.report.terminal import terminal_summary
from results.tables import as_text
from tests.report.made_up_run import MS, make_lost_run
from tests.report.pages import Page, page_of


@pytest.fixture
def run_dir(tmp_path) -> Path:
    return make_lost_run(tmp_path)


HOSTILE = (
    "</title><script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7*7 }}\x1b[31m\ud800|`*"
)


def test_hostile_strings_are_escaped(tmp_path):
    run_dir = tmp_path / "run"
    writer = HistoryWriter(run_dir)
    clean = HOSTILE.replace("\ud800", "")
    append = writer.invoke(
        process=0, kind=OpKind.APPEND, topic=clean, partition=0, invoked_ns=0, key=clean
    )
    writer.complete(append, 5, Completion(outcome=Outcome.FAIL, error=clean, node=clean))
    traits = (False, False, False, False, [clean], False, [clean], [clean], [clean])
    fault = (clean, clean, [clean], [clean], clean, 1, 2, 3, True, clean)
    writer.add("faults", (*fault, *traits))
    params = json.dumps({clean: clean})
    fault = ("f2", "cut", [clean], [clean, "b"], params, 1, 2, 3, True, "[]")
    writer.add("faults", (*fault, *traits))
    writer.add("marks", (3, clean, clean, json.dumps({clean: [clean]})))
    state = (4, 1, clean, 0, 1, 0, 0, [1], [], [], [1], 0, False, 1, None)
    writer.add("partition_states", state)
    writer.add("replica_states", (4, clean, 1, clean, 0, 5, 5, 0, 0, "leader", clean))
    writer.add("replica_states", (6, clean, 1, clean, 0, 1, 1, 0, 0, clean, "truncate"))
    writer.add("broker_states", (5, 2, 1, 1, clean, False))
    writer.close()
    anomaly = {
        **dict.fromkeys(("id", "level", "topic", "judgement", "rule", "sentence"), HOSTILE),
        "partition": 0,
        "count": 1,
        "witnesses": [{"op_index": HOSTILE, "text": HOSTILE}],
        "details": {HOSTILE: HOSTILE},
    }
    loss = {**anomaly, "id": "lost-acked-write", "topic": clean, "details": {"values": [0, 99]}}
    verdict = {
        "validity": HOSTILE,
        "reasons": [HOSTILE, HOSTILE],
        "anomalies": [anomaly, loss],
        "coverage": {HOSTILE: HOSTILE},
    }
    (run_dir / "verdict.json").write_text(json.dumps(verdict))
    (run_dir / "run.json").write_text(json.dumps({"seed": HOSTILE, "profile": HOSTILE}))
    RunFiles(run_dir).experiment.write_text("name = '</pre><script>alert(3)</script>'")
    page = page_of(run_dir)
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert "img" not in {tag for tag, _ in page.tags}
    for tag, attributes in page.tags:
        assert not any(name.startswith("on") for name in attributes), tag
    assert "{{ 7*7 }}" in page.text
    assert "<script>alert(1)</script>" in page.text
    summary = (run_dir / "summary.md").read_text(encoding="utf-8")
    assert "<script" not in summary
    assert "\x1b" not in summary
    terminal = as_text(*terminal_summary(run_dir))
    assert "\x1b" not in terminal
    terminal.encode("utf-8")


def test_a_report_of_a_run_without_verdict_states_that(tmp_path):
    page = page_of(make_lost_run(tmp_path, judged=False))
    assert (
        "not judged The run has a history but no verdict; `laststand check` gives it one."
        in page.text
    )
    assert "The run was not judged." in page.text
    assert "f3: Cut the power of b1" in page.text


def test_a_run_whose_harness_died_has_a_report(tmp_path):
    writer = HistoryWriter(tmp_path, frame_rows=1)
    writer.invoke(process=0, kind=OpKind.APPEND, topic="t", partition=0, invoked_ns=5 * MS, acks=-1)
    page = page_of(tmp_path)
    assert "append info open at the end 1 0.005 s" in page.text


def test_an_empty_history_has_a_report(tmp_path):
    HistoryWriter(tmp_path).close()
    page = page_of(tmp_path)
    assert "Nothing was recorded." in page.text
    assert "The history mentions no partition." in page.text
    assert "None were injected." in page.text


def test_damaged_files_are_reported_in_one_sentence(tmp_path, run_dir):
    with pytest.raises(HistoryError, match="there is no run at"):
        build_report(tmp_path / "nowhere")
    RunFiles(run_dir).verdict.write_text("{")
    with pytest.raises(HistoryError, match=r"verdict\.json cannot be read"):
        build_report(run_dir)


@pytest.mark.long
def test_a_long_run_has_a_small_page(tmp_path):
    """Ten thousand leader changes and a hundred thousand replica states are thinned, not drawn."""
    writer = HistoryWriter(tmp_path)
    for index in range(10_000):
        at_ns = index * MS
        state = (at_ns, index, "t", 0, index % 3 + 1, index, index, [1 + index % 3], [], [])
        writer.add("partition_states", (*state, [1, 2, 3], 0, False, 2, None))
        for step in range(10):
            end = index * 10 + step
            row = (at_ns + step * MS // 10, "b1", 1, "t", 0, end, end - 1, 0, index)
            writer.add("replica_states", (*row, "leader", "append"))
        op = writer.invoke(
            process=0, kind=OpKind.APPEND, topic="t", partition=0, invoked_ns=at_ns, acks=-1
        )
        writer.complete(op, at_ns + MS, Completion(outcome=Outcome.OK, offset=index))
        writer.add("marks", (at_ns, "b1", "often", "{}"))
    for index in range(500):
        fault = (f"f{index}", "kill", ["b1"], ["b1"], "{}", index * 20 * MS, index * 20 * MS)
        traits = (False, False, True, False, [], False, [], [], [])
        writer.add("faults", (*fault, index * 20 * MS + 5 * MS, True, "{}", *traits))
    writer.close()
    text = build_report(tmp_path).read_text(encoding="utf-8")
    page = Page(text)
    assert len(text) < 3_000_000
    assert text.count('<li data-kind="') == STORY_MAX
    assert "less important entries are left out" in page.text
    bars = re.findall(r"<title>b.(?: in ISR|, leader epoch)", text)
    assert 100 < len(bars) <= 4 * INTERVALS_MAX
    line = re.search(r'class="line c0" d="([^"]*)"', text)
    assert line is not None
    assert 100 < line[1].count("H") <= 2001
