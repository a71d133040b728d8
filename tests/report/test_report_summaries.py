"""The summaries of a run in Markdown and in the terminal."""

import json
import re
from pathlib import Path

import pytest

from harness.contracts.run_context import RunContext, context_to_row
from harness.history.writer import HistoryWriter
from results.layout import RunFiles
from results.report.build import build_report
from results.report.terminal import terminal_summary
from results.store import write_json
from results.tables import as_text
from tests.report.made_up_run import make_lost_run
from tests.report.pages import page_of

TERMINAL = """\
INVALID
  5 acknowledged records of t-0 are gone and no flagged election excuses it.

run                     last-replica-standing/20260131T235959Z-8812
seed                    8812
profile                 kafka-3.9
world                   simulation
trace hash              9f3c5b20a7c1d4e8
unexcused lost records  5
faults                  4, 3 of them took effect
without effect          f2 pause: no evidence shows an effect

anomaly           breaks      where  count  judgement
─────────────────────────────────────────────────────────
lost-acked-write  durability  t-0        5  forbidden
offset-reused     integrity   t-0        5  forbidden
stale-read        fresh       t-0        2  informational

lost at  where  offset  key  value  acked at
────────────────────────────────────────────
7.250 s  t-0         5  k5       5   0.707 s
7.250 s  t-0         6  k6       6   0.805 s
7.250 s  t-0         7  k7       7   0.906 s
7.250 s  t-0         8  k8       8   1.007 s
7.250 s  t-0         9  k9       9   1.105 s

replay  laststand replay last-replica-standing/20260131T235959Z-8812
"""


@pytest.fixture
def run_dir(tmp_path) -> Path:
    return make_lost_run(tmp_path)


def test_the_summary_is_markdown_with_the_narrative(run_dir):
    build_report(run_dir)
    text = RunFiles(run_dir).summary.read_text(encoding="utf-8")
    assert text.startswith("# invalid: last-replica-standing/20260131T235959Z-8812\n")
    assert "| unexcused lost records | 5 |" in text
    assert (
        "* 7.250 s **5 acknowledged records of t-0 lost: b1 leads without them** (forbidden)"
        in text
    )
    assert "    * offset 5, key k5, value 5, acknowledged at 0.707 s" in text


def test_the_terminal_summary_is_a_table(run_dir):
    assert as_text(*terminal_summary(run_dir)) == TERMINAL


@pytest.mark.parametrize(
    ("reason", "name", "value"),
    [
        ("the watch saw a violation (t-0: op 2 is early)", "stopped early", "t-0: op 2 is early"),
        (
            "",
            "violation seen",
            "after the main phase, so nothing was ended early: t-0: op 2 is early",
        ),
        ("the final phase did not end", "violation seen", "t-0: op 2 is early"),
    ],
)
def test_what_the_live_watch_saw_is_no_early_end_if_nothing_was_ended(
    tmp_path, reason, name, value
):
    writer = HistoryWriter(tmp_path / "run")
    for incomplete_reason in ("the harness died", reason):
        row = context_to_row(RunContext(incomplete_reason=incomplete_reason))
        writer.add("run_facts", row)
    writer.close()
    write_json(RunFiles(tmp_path / "run").run, {"stopped_early": "t-0: op 2 is early"})
    text = as_text(*terminal_summary(tmp_path / "run"))
    assert [name, value] in [re.split(" {2,}", line) for line in text.splitlines()]


def test_the_levels_of_the_verdict_are_at_the_top_of_every_summary(tmp_path):
    run_dir = make_lost_run(tmp_path)
    files = RunFiles(run_dir)
    verdict = json.loads(files.verdict.read_text(encoding="utf-8"))
    verdict["levels"] = {"order": "holds\x1b[0m", "durability": "broken"}
    files.verdict.write_text(json.dumps(verdict), encoding="utf-8")
    page = page_of(run_dir)
    assert "levels durability broken, order holds" in page.text, "the most important level first"
    assert "| levels | durability broken, order holds" in files.summary.read_text(encoding="utf-8")
    terminal = as_text(*terminal_summary(run_dir))
    assert "durability broken, order holds" in terminal
    assert "\x1b" not in terminal
    verdict["levels"] = 3
    files.verdict.write_text(json.dumps(verdict), encoding="utf-8")
    assert "\nlevels" not in as_text(*terminal_summary(run_dir))
