"""Campaigns that are killed, interrupted and resumed: no run is lost, none is counted twice.

Each attempt is the real command, with real workers. It is killed with SIGKILL after a random number of further
rows and a random moment more, while it starts, runs or ends, until the campaign is complete.
"""

import json
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness.campaigns import listing
from harness.campaigns.row_log import RowLog
from tests.cli.cli_helpers import Outcome, call, refused, write

pytestmark = pytest.mark.xdist_group("resumed-campaigns")

EXPERIMENT = """
name = "resumed"
weather = "calm"
duration_ms = 300
final_phase_ms = 20000
[workload]
processes = 2
"""
LIMIT_S = 240


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign that was not interrupted."""
    root = tmp_path_factory.mktemp("whole")
    finish(start(root, *swarm(root, 12)))
    return campaign_of(root)


def swarm(root: Path, seeds: int) -> tuple[object, ...]:
    path = write(root / "resumed.toml", EXPERIMENT)
    return ("swarm", path, "--seeds", seeds)


def start(root: Path, *words: object) -> "subprocess.Popen[str]":
    where = ("--no-spark", "--jobs", 2, "--quiet", "--results", root / "runs")
    return subprocess.Popen(
        [sys.executable, "-m", "harness.cli", *map(str, (*words, *where))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_listen_to_sigint,
    )


def _listen_to_sigint() -> None:
    """Children of a shell's background job, in which these tests may run, ignore SIGINT otherwise."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def finish(process: "subprocess.Popen[str]") -> Outcome:
    out, err = process.communicate(timeout=LIMIT_S)
    return Outcome(process.returncode, out, err)


def campaign_of(root: Path) -> Path:
    """The one campaign that has a plan; one that was killed before it had one left nothing to resume."""
    (plan,) = (root / "runs").glob("swarm-*/plan.json")
    return plan.parent


def rows_of(directory: Path) -> list[dict[str, Any]]:
    """All rows without what time decides, in the order of the plan."""
    lines = (directory / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    for row in rows:
        row.update(wall_s=0, cpu_s=0, run=row["run"].rpartition("-")[2])
    return sorted(rows, key=lambda row: row["index"])


def result_of(directory: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((directory / "compare.json").read_text(encoding="utf-8"))
    for arm in result["arms"]:
        arm["wall_s"] = 0
    return result


def kill_until_complete(root: Path, seeds: int, kills: int, draw: random.Random) -> None:
    """Kills the campaign again and again, then lets it complete."""
    words = swarm(root, seeds)
    for attempt in range(kills):
        process = start(root, *words)
        kill_later(process, root, draw)
        if list((root / "runs").glob("swarm-*/plan.json")):
            words = ("swarm", "--resume", campaign_of(root))
        assert process.returncode in (0, -signal.SIGKILL), attempt
    outcome = finish(start(root, *words))
    assert outcome.code == 0, outcome


def kill_later(process: "subprocess.Popen[str]", root: Path, draw: random.Random) -> None:
    size = total_size(root)
    more = draw.choice((0, 0, 1, 2, 3))
    deadline_s = time.monotonic() + LIMIT_S
    while process.poll() is None and total_size(root) < size + more * 700:
        assert time.monotonic() < deadline_s
        time.sleep(0.005)
    time.sleep(draw.random() * (2.5 if more == 0 else 0.2))
    process.kill()
    process.communicate(timeout=LIMIT_S)


def total_size(root: Path) -> int:
    return sum(path.stat().st_size for path in (root / "runs").glob("swarm-*/rows.jsonl"))


def check_killed(tmp_path: Path, whole: Path, kills: int) -> None:
    kill_until_complete(tmp_path, 12, kills, random.Random(kills))
    directory = campaign_of(tmp_path)
    assert [row["seed"] for row in rows_of(directory)] == list(range(12))
    assert rows_of(directory) == rows_of(whole)
    assert result_of(directory) == result_of(whole)


def test_a_campaign_that_was_killed_has_the_same_rows_as_a_whole_one(
    tmp_path: Path, whole: Path
) -> None:
    check_killed(tmp_path, whole, 3)


@pytest.mark.long
def test_a_campaign_that_was_killed_twenty_times_has_the_same_rows_as_a_whole_one(
    tmp_path: Path, whole: Path
) -> None:
    check_killed(tmp_path, whole, 20)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_campaign_prints_what_was_done_and_a_command_that_continues_it(
    tmp_path: Path, whole: Path, number: signal.Signals
) -> None:
    process = start(tmp_path, *swarm(tmp_path, 16))
    deadline_s = time.monotonic() + LIMIT_S
    while not total_size(tmp_path):
        assert time.monotonic() < deadline_s
        time.sleep(0.005)
    process.send_signal(number)
    outcome = finish(process)
    assert outcome.code == 255
    assert outcome.err.endswith("laststand: interrupted\n")
    assert "of 16 runs were done" in outcome.out
    words = outcome.err.splitlines()[0].removeprefix("laststand: to continue, run: laststand ")
    # The printed command alone must work, from where the campaign was started.
    command = [sys.executable, "-m", "harness.cli", *words.split(), "--no-spark", "--quiet"]
    resumed = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (resumed.returncode, resumed.stderr) == (0, "")
    rows = rows_of(campaign_of(tmp_path))
    assert [row["seed"] for row in rows] == list(range(16))
    assert rows[:12] == rows_of(whole)


@pytest.mark.long
def test_an_interrupted_search_for_defects_ends_like_other_campaigns_and_continues(
    tmp_path: Path,
) -> None:
    process = start(tmp_path, "defects", "search", "B-19", "B-33", "--runs", 8, "--json")
    deadline_s = time.monotonic() + LIMIT_S
    while not any(path.stat().st_size for path in (tmp_path / "runs").glob("search-*/rows.jsonl")):
        assert process.poll() is None
        assert time.monotonic() < deadline_s
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    outcome = finish(process)
    assert outcome.code == 255
    first, last = outcome.err.splitlines()
    assert last == "laststand: interrupted"
    said = json.loads(outcome.out)
    assert (said["exit_code"], said["interrupted"], said["error"]) == (255, True, "interrupted")
    assert first == f"laststand: to continue, run: {said['resume']}"
    assert said["unfinished"]
    (file,) = (tmp_path / "runs").glob("search-*/rows.jsonl")
    kept = file.read_bytes()
    # A row that was stored right before the signal may not have been counted.
    assert said["runs"] <= kept.count(b"\n") <= said["runs"] + 2
    words = said["resume"].removeprefix("laststand ").split()
    resumed = finish(start(tmp_path, *words, "--json"))
    whole = json.loads(resumed.out)
    assert (resumed.code in (0, 2), whole["error"], whole["unfinished"]) == (True, None, 0)
    assert file.read_bytes().startswith(kept)
    assert whole["runs"] > said["runs"]


def test_two_processes_cannot_run_one_campaign(
    capsys: pytest.CaptureFixture[str], whole: Path
) -> None:
    with RowLog(whole):
        said = refused(capsys, "swarm", "--resume", whole)
    assert f"another process is running the campaign {whole}" in said


def test_a_complete_campaign_is_not_run_again(
    capsys: pytest.CaptureFixture[str], whole: Path
) -> None:
    before = (whole / "rows.jsonl").read_bytes()
    root = whole.parent
    outcome = call(capsys, "swarm", "--resume", whole.name[:10], "--results", root, "--json")
    assert outcome.code == 0
    assert outcome.data["arms"][0]["runs"] == 12
    assert (whole / "rows.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("swarm", "--seeds", 13), "--seeds is 13, but the campaign .* was started with 12"),
        (("swarm", "--first-seed", 1), "--first-seed is 1, but"),
        (("swarm", "--keep-failing", 0), "--keep-failing is 0, but"),
        (("swarm", "--profile", "kafka-4.0"), "runs another experiment than the one given"),
        (("compare",), "is a campaign of `laststand swarm`; use `laststand swarm --resume"),
    ],
)
def test_other_options_than_those_of_the_plan_are_refused(
    capsys: pytest.CaptureFixture[str], whole: Path, words: tuple[object, ...], sentence: str
) -> None:
    said = refused(capsys, *words, "--resume", whole)
    assert re.search(sentence, said)


def test_the_options_of_the_plan_may_be_repeated(
    capsys: pytest.CaptureFixture[str], whole: Path
) -> None:
    file = whole.parent.parent / "resumed.toml"
    assert call(capsys, "swarm", file, "--seeds", 12, "--resume", whole).code == 0


def test_other_code_than_that_of_the_plan_is_refused(
    capsys: pytest.CaptureFixture[str], whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.runs.code_version.code_version", lambda: "0123456789abcdef")
    assert "the code has changed since the campaign" in refused(capsys, "swarm", "--resume", whole)


def test_a_campaign_that_does_not_exist_is_refused_with_a_suggestion(
    capsys: pytest.CaptureFixture[str], whole: Path, tmp_path: Path
) -> None:
    wrong = whole.name.replace("swarm", "swarn")
    said = refused(capsys, "swarm", "--resume", wrong, "--results", whole.parent)
    assert f"did you mean {whole.name!r}?" in said
    assert "it has no plan.json" in refused(capsys, "swarm", "--resume", tmp_path)


def test_jobs_and_a_spark_master_exclude_one_another(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("swarm", "--jobs", 2, "--spark-master", "local[4]")
    assert "--jobs is for runs on this machine" in refused(capsys, *words)


def test_campaigns_are_listed_and_filtered(capsys: pytest.CaptureFixture[str], whole: Path) -> None:
    def listed(*words: object) -> list[str]:
        data = call(capsys, "list", "--json", "--results", whole.parent, *words).data
        return [entry["campaign"] for entry in data["campaigns"]]

    assert listed() == [whole.name]
    for words in (("--verdict", "valid"), ("--profile", "kafka-4.1"), ("--system", "reference")):
        assert listed(*words) == [whole.name], words
    for words in (("--since", "1d"), ("--world", "simulation"), ("--limit", 1)):
        assert listed(*words) == [whole.name], words
    for words in (("--verdict", "invalid"), ("--since", "2999-01-01"), ("--world", "docker")):
        assert listed(*words) == [], words
    text = call(capsys, "list", "--results", whole.parent).out
    assert "12/12" in text
    assert text.splitlines()[-1].endswith(whole.name)
    nothing = call(capsys, "list", "--results", whole.parent, "--profile", "kafka-3.4").out
    assert "nothing in" in nothing
    (entry,) = listing.list_campaigns(whole.parent)
    assert (entry.done, entry.failing, entry.verdict) == (12, 0, "valid")


def test_an_unfinished_and_a_damaged_campaign_are_listed(
    capsys: pytest.CaptureFixture[str], whole: Path, tmp_path: Path
) -> None:
    unfinished, damaged = tmp_path / "swarm-1", tmp_path / "swarm-2"
    for directory in (unfinished, damaged):
        directory.mkdir()
        (directory / "plan.json").write_bytes((whole / "plan.json").read_bytes())
    (unfinished / "rows.jsonl").write_text("{}\n{}\n")
    (damaged / "compare.json").write_text("{}")
    data = call(capsys, "list", "--json", "--results", tmp_path).data
    found = {entry["campaign"]: entry["verdict"] for entry in data["campaigns"]}
    assert found == {"swarm-1": "unfinished", "swarm-2": "unreadable"}
    assert "2/12" in call(capsys, "list", "--results", tmp_path, "--verdict", "unfinished").out


def test_a_damaged_age_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "nor an ISO date" in refused(capsys, "list", "--since", "yesterday")
