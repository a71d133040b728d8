"""`laststand nightly` as a user runs it: real workers, a killed night, the printed commands."""

import json
import random
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.cli_helpers import Outcome, call, refused, write

pytestmark = pytest.mark.xdist_group("nightly")

TINY = """
[jobs.experiment]
weather = "calm"
duration_ms = 300
final_phase_ms = 20000
"""
PLAN = f"""
[[jobs]]
name = "first"
weight = 2
{TINY}
[[jobs]]
name = "second"
{TINY}
"""
FAILING = """
[[jobs]]
name = "losing"
experiment = "elr-compare"
profiles = ["kafka-4.0"]
seeds = [7]
"""
LIMIT_S = 240
LEFT_BY_A_NIGHT = ("nightly.json", "nightly.html", "summary.md", "junit.xml", "jobs.json")


def where(root: Path) -> tuple[object, ...]:
    return ("--no-spark", "--jobs", 2, "--quiet", "--results", root / "runs")


def rows_of(directory: Path) -> list[dict[str, Any]]:
    lines = (directory / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    for row in rows:
        row.update(wall_s=0, cpu_s=0, at_s=0, run=row["run"].rpartition("-")[2])
    return sorted(rows, key=lambda row: row["index"])


def test_the_built_in_plan_is_printed_and_can_be_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    printed = call(capsys, "nightly", "--print-plan")
    assert (printed.code, printed.err) == (0, "")
    path = write(tmp_path / "plan.toml", printed.out)
    again = call(capsys, "nightly", path, "--print-plan", "--json")
    assert again.data["plan"].strip() == printed.out.strip()


@pytest.mark.long
def test_a_failing_run_is_replayed_stored_and_run_again_in_the_next_night(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plan = write(tmp_path / "plan.toml", FAILING)
    outcome = call(capsys, "nightly", plan, "--runs", 1, *where(tmp_path))
    assert outcome.code == 1
    (night,) = (tmp_path / "runs").glob("nightly-*")
    (row,) = rows_of(night)
    assert (row["replayed"], row["verdict"], row["seed"]) == ("same", "invalid", 7)
    assert (night / row["stored"] / "report.html").is_file()
    (command,) = [line for line in outcome.out.splitlines() if "laststand replay" in line]
    assert all((night / name).stat().st_size for name in LEFT_BY_A_NIGHT)
    once = call(
        capsys, *shlex.split(command)[1:], "--quiet", "--json", "--results", tmp_path / "again"
    )
    assert (once.code, once.data["trace_hash"]) == (1, row["trace_hash"])
    healthy = write(tmp_path / "healthy.toml", PLAN)
    second = call(capsys, "nightly", healthy, "--runs", 2, *where(tmp_path), "--json")
    assert second.code == 1
    jobs = {job["job"]: (job["runs"], job["invalid"]) for job in second.data["jobs"]}
    assert jobs[f"losing (of {night.name.removeprefix('nightly-')})"] == (1, 1)
    (finding,) = second.data["findings"]
    assert (finding["status"], second.data["counts"]["open"]) == ("open", 1)
    known = write(
        tmp_path / "known.toml",
        f'[[failure]]\nsignature = "{finding["signature"]}"\nreason = "ELR is off"\nexpiry = 2999-01-01\n',
    )
    third = call(
        capsys, "nightly", plan, "--runs", 10, "--known-failures", known, *where(tmp_path), "--json"
    )
    assert (third.code, third.data["counts"]["known"]) == (0, 1)
    listed = call(capsys, "list", "--json", "--results", tmp_path / "runs").data["campaigns"]
    assert [(one["kind"], one["verdict"]) for one in listed] == [("nightly", "invalid")] * 3


def start(root: Path, *words: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "harness.cli", "nightly", *map(str, (*words, *where(root)))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: "subprocess.Popen[str]") -> Outcome:
    out, err = process.communicate(timeout=LIMIT_S)
    return Outcome(process.returncode, out, err)


def night_of(root: Path) -> Path:
    (directory,) = (root / "runs").glob("nightly-*")
    return directory


def wait_for_rows(root: Path, number: int) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while sum(len(one.read_bytes().splitlines()) for one in root.rglob("rows.jsonl")) < number:
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


@pytest.mark.long
@pytest.mark.timeout(1800)  # some fifty starts of the harness, one after the other
@pytest.mark.parametrize("kills", [1, 20])
def test_a_night_that_was_killed_and_one_that_was_not_have_the_same_rows(
    tmp_path: Path, kills: int
) -> None:
    plan = write(tmp_path / "plan.toml", PLAN)
    runs = 13 + 3 * kills
    whole = finish(start(tmp_path / "whole", plan, "--runs", runs))
    assert whole.code == 0
    killed = tmp_path / "killed"
    draw = random.Random(kills)
    words: tuple[object, ...] = (plan, "--runs", runs)
    for kill in range(kills):
        process = start(killed, *words)
        wait_for_rows(killed, 2 * kill + draw.choice((1, 2)))
        time.sleep(draw.random() / 10)
        process.kill()
        finish(process)
        words = ("--resume", night_of(killed))
    process = start(killed, *words)
    wait_for_rows(killed, 2 * kills + 2)
    process.send_signal(signal.SIGTERM)
    outcome = finish(process)
    assert outcome.code == 255
    command = outcome.err.splitlines()[0].removeprefix(
        "laststand: to continue, run: laststand nightly "
    )
    assert finish(start(killed, *shlex.split(command))).code == 0
    # Both nights have one date and one plan, so they drew the same seeds, unless midnight was between them.
    if night_of(killed).name == night_of(tmp_path / "whole").name:
        assert rows_of(night_of(killed)) == rows_of(night_of(tmp_path / "whole"))
    assert len(rows_of(night_of(killed))) == runs


@pytest.mark.long
def test_a_budget_ends_a_night(tmp_path: Path) -> None:
    """How many runs fit depends on the machine; none of them starts too late."""
    plan = write(tmp_path / "plan.toml", PLAN)
    outcome = finish(start(tmp_path, plan, "--budget", "60s"))
    lines = (night_of(tmp_path) / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert rows
    # With a single run, one of the two jobs shows nothing.
    assert outcome.code == (0 if {row["job"] for row in rows} == {"first", "second"} else 2)
    assert max(row["at_s"] - row["wall_s"] for row in rows) <= 60
    assert (night_of(tmp_path) / "jobs.json").is_file()


def test_a_resumed_night_keeps_its_plan_and_its_budget(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plan = write(tmp_path / "plan.toml", PLAN)
    assert call(capsys, "nightly", plan, "--runs", 1, *where(tmp_path)).code in (0, 2)
    night = night_of(tmp_path)
    assert "leave out" in refused(capsys, "nightly", plan, "--resume", night)
    assert "--runs is not that" in refused(capsys, "nightly", "--runs", 2, "--resume", night)
    assert "--budget is not that" in refused(capsys, "nightly", "--budget", "1h", "--resume", night)
    said = refused(capsys, "swarm", "--resume", night)
    assert f"is a night; `laststand nightly --resume {night}` continues it" in said


@pytest.mark.long
def test_the_three_nights_of_the_guide_show_a_finding_as_new_known_and_resolved(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (Path(__file__).parents[2] / "docs/how-to/nightly.md").read_text(encoding="utf-8")
    section = text.partition("### Try it")[2].partition("\n## Known failures")[0]
    plan = section.partition("```toml\n")[2].partition("```")[0]
    commands = [line.strip() for line in section.splitlines() if line.startswith("    laststand")]
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "fine.toml", plan)
    write(tmp_path / "broken.toml", plan.replace("# disabled_rules", "disabled_rules"))

    def hold_night(command: str) -> Outcome:
        words = shlex.split(command)[1:]
        return call(capsys, *words, "--json", "--no-spark", "--jobs", 2, "--quiet")

    def signatures(outcome: Outcome, status: str) -> list[str]:
        return [one["signature"] for one in outcome.data["findings"] if one["status"] == status]

    first, second, third = commands
    night = hold_night(first)
    (listed,) = signatures(night, "new")
    assert (night.code, night.data["runs"]) == (1, 3)
    entry = f'signature = "{listed}"\nreason = "no ELR"\nexpiry = 2999-01-01\n'
    write(tmp_path / "known-failures.toml", f"[[failure]]\n{entry}")
    night = hold_night(second)
    new = signatures(night, "new")
    assert (night.code, signatures(night, "known"), signatures(night, "open")) == (1, [listed], [])
    assert new
    night = hold_night(third)
    assert (night.code, night.data["counts"]["new"], night.data["counts"]["open"]) == (0, 0, 0)
    assert signatures(night, "known") == [listed]
    assert sorted(one["signature"] for one in night.data["resolved"]) == sorted(new)
    nights = [path.name for path in sorted((tmp_path / "tables").iterdir())]
    assert len(nights) == 3, "nights of one date that share tables have different numbers"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "a night needs an end: give --budget, for example 2h, or --runs"),
        (("--budget", "2"), "'2' is not a time such as 2h"),
        (("--budget", "0s"), "'0s' is not a time such as 2h"),
        (("--budget", "1h", "--runs", 3), "not allowed with argument"),
        (("none.toml", "--runs", 3), "there is no plan none.toml"),
        (("--resume", "nightly-1999-01-01"), "is called 'nightly-1999-01-01'"),
    ],
)
def test_a_wrong_command_line_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: tuple[object, ...], sentence: str
) -> None:
    assert sentence in refused(capsys, "nightly", *words, "--results", tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
