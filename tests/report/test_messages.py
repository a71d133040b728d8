"""The messages around the decisive moment: recorded when a run is repeated, drawn as a space-time diagram."""

import re
from pathlib import Path

import pytest

from harness.cli.main import main
from harness.environments.simulated.messages import MessageRecorder
from harness.errors import HarnessFailure
from harness.runs.messages import record_messages
from results.layout import RunFiles
from results.report.build import build_report
from results.report.spacetime import BEFORE_NS
from results.store import read_json, write_json
from tests.cli.cli_helpers import call, refused
from tests.report.made_up_run import make_lost_run


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The last-replica-standing bug; tests must not change it, but for its messages."""
    root = tmp_path_factory.mktemp("store")
    words = [
        "reproduce",
        "last-replica-standing",
        "--profile",
        "kafka-4.0",
        "--no-spark",
        "--quiet",
    ]
    assert main([*words, "--results", str(root)]) == 1
    return (root / "latest").resolve()


def test_the_diagram_shows_who_sent_what_around_the_decisive_moment(
    capsys: pytest.CaptureFixture[str], lost: Path
) -> None:
    assert "messages around" not in RunFiles(lost).report.read_text(encoding="utf-8")
    path = call(
        capsys, "report", lost, "--messages", "--quiet", "--results", lost.parent.parent
    ).out
    data = read_json(RunFiles(lost).messages)
    kinds = {one["kind"] for one in data["messages"]}
    assert {"heartbeat", "metadata"} <= kinds
    for one in data["messages"]:
        assert data["begin_ns"] <= one["sent_ns"] <= data["end_ns"]
        assert one["arrived_ns"] is None or one["arrived_ns"] > one["sent_ns"]
        assert one["src"] != one["dst"]
    assert data["end_ns"] - data["begin_ns"] > BEFORE_NS
    registered = [one for one in data["messages"] if one["text"] == "Registration of broker 1"]
    assert registered  # it comes back after the power cut and is elected
    text = Path(path.strip()).read_text(encoding="utf-8")
    arrows = re.findall(r'<line class="message k\d', text)
    assert len(arrows) == len(data["messages"])
    assert "Registration of broker 1, b1 to c1" in text


def test_a_repeated_run_that_differs_is_refused(lost: Path, tmp_path: Path) -> None:
    files, copy = RunFiles(lost), RunFiles(tmp_path)
    write_json(copy.replay, {**read_json(files.replay), "trace_hash": "0" * 32})
    with pytest.raises(HarnessFailure, match="the repeated run has the trace hash"):
        record_messages(tmp_path, 0, 1)


def test_only_what_can_be_repeated_and_was_decided_has_messages(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    made_up = make_lost_run(tmp_path)
    build_report(made_up)
    words = ("report", made_up, "--messages", "--quiet", "--results", tmp_path)
    assert "replay.json" in refused(capsys, *words)


def test_messages_of_another_moment_or_damaged_ones_are_not_drawn(tmp_path: Path) -> None:
    run = make_lost_run(tmp_path)
    for data in ({"begin_ns": 0, "end_ns": 1, "messages": []}, {"messages": 3}, {}):
        write_json(RunFiles(run).messages, data)
        assert "The messages around" not in build_report(run).read_text(encoding="utf-8")
    RunFiles(run).messages.write_text("no json", encoding="utf-8")
    assert "The messages around" not in build_report(run).read_text(encoding="utf-8")


class FetchResponse:
    """A message without records."""

    responses = ()


class VoteRequest:
    """A message of an election."""


def test_the_recorder_keeps_what_matters_in_its_time() -> None:
    recorder = MessageRecorder(10, 20)
    recorder.sent(9, (1, 1), "c11", "c12", VoteRequest())
    recorder.sent(10, (1, 2), "c11", "c12", VoteRequest())
    recorder.sent(12, (1, 2), "c11", "c12", VoteRequest())  # a frozen process sends it again
    recorder.sent(20, (1, 3), "c11", "c13", VoteRequest())
    recorder.sent(15, (1, 4), "b1", "b2", FetchResponse())
    recorder.sent(15, (1, 5), "b1", "b2", object())
    recorder.sent(21, (1, 6), "c11", "c12", VoteRequest())
    recorder.arrived(13, (1, 2))
    recorder.arrived(14, (9, 9))
    found = [(one["dst"], one["sent_ns"], one["arrived_ns"]) for one in recorder.rows()]
    assert found == [("c12", 10, 13), ("c13", 20, None)]
