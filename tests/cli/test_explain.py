"""`laststand explain`: the argument for a verdict, in the terminal and as JSON."""

import json
import re
from pathlib import Path

import pytest

from harness.exit_codes import INVALID
from results.layout import RunFiles
from tests.cli.cli_helpers import call, refused


def test_the_most_important_anomaly_is_explained_first(
    capsys: pytest.CaptureFixture[str], stored: Path
) -> None:
    outcome = call(capsys, "explain", stored)
    assert outcome.code == 0
    for part in (
        "INVALID\n",
        "lost-acked-write in t-0 (5)",
        "A record acknowledged with acks=all is gone",
        "operation 5: process 0 append v=5 acks=all -> ok offset 5",
        "b1 is elected leader of t-0 at 2.250 s",
        "Before: b1 led t-0 in leader epoch 0; the partition had no leader any more.",
        "Log ends just before: b1 5; b2 10; b3 10.",
        "At 2.250 s b1 was elected in leader epoch 2 with log end 5, not flagged as unclean",
        "b2 cut t-0 off from 10 to 5.",
        "Forbidden: committed records may only be given up by an election that is flagged",
        "It would be excused if this were the case: after the record was established, a flagged",
        "Other anomalies:",
    ):
        assert part in outcome.out, part


def test_the_printed_command_explains_the_next_anomaly(
    capsys: pytest.CaptureFixture[str], stored: Path
) -> None:
    where = ("--results", stored.parent.parent)
    last = call(capsys, "explain", "latest", *where).out.splitlines()[-1]
    words = last.removeprefix("next  laststand ").split()
    outcome = call(capsys, *words)
    assert outcome.code == 0
    assert "offset-reused in t-0 (5)" in outcome.out
    assert "Other anomalies" not in outcome.out


def test_json_has_the_whole_argument(capsys: pytest.CaptureFixture[str], stored: Path) -> None:
    data = call(capsys, "explain", stored, "visible-regress", "--json").data
    (anomaly,) = data["anomalies"]
    assert data["verdict"] == "invalid"
    assert (anomaly["id"], anomaly["judgement"]) == ("visible-regress", "forbidden")
    assert [witness["op_index"] for witness in anomaly["witnesses"]] == [5, 11]
    assert anomaly["moment"]["at_ns"] == 2250100003


def test_what_a_run_does_not_have_cannot_be_explained(
    capsys: pytest.CaptureFixture[str], stored: Path
) -> None:
    assert "did you mean offset-reused?" in refused(capsys, "explain", stored, "offset-resued")
    verdict = json.loads(RunFiles(stored).verdict.read_text())
    verdict |= {"validity": "valid", "anomalies": [], "reasons": []}
    RunFiles(stored).verdict.write_text(json.dumps(verdict))
    assert "(it has: none at all)" in refused(capsys, "explain", stored, "duplicate")
    assert "The checkers found no anomaly." in call(capsys, "explain", stored).out
    RunFiles(stored).verdict.unlink()
    sentence = refused(capsys, "explain", stored)
    assert "was not judged" in sentence
    assert f"`laststand check {stored}`" in sentence


LATE = """
name = "late"
duration_ms = 3000
recovery_max_ms = 30

[workload]
appends_per_s = 400
polls_per_s = 400

[[schedule]]
fault = "delay"
targets = ["all"]
at_ms = 100
for_ms = 300
params = { ms = 5 }

[[schedule]]
fault = "kill"
targets = ["all"]
at_ms = 500
for_ms = 700
"""


def test_a_late_recovery_is_compared_with_the_seed_without_faults(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    experiment = tmp_path / "late.toml"
    experiment.write_text(LATE, encoding="utf-8")
    ran = call(capsys, "run", experiment, "--no-spark", "--results", tmp_path / "runs")
    assert ran.code == INVALID
    (files,) = map(RunFiles, (tmp_path / "runs" / "late").iterdir())
    sentence = json.loads(files.run.read_text(encoding="utf-8"))["recovery"]
    assert re.fullmatch(
        r"after everything was healed, the final phase took \d+ ms; "
        r"with the same seed and no faults it took \d+ ms",
        sentence,
    )
    assert sentence in files.report.read_text(encoding="utf-8")
    text = call(capsys, "explain", files.directory).out
    assert f"recovery: {sentence}" in " ".join(text.split())
