"""Repeats of real runs with a finding: which, how often, in which order, and after an interruption."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.campaigns import nightly
from harness.campaigns.crew import Crew
from harness.campaigns.nightly import Budget, run_night
from harness.campaigns.nightly_plan import loads_nightly
from harness.campaigns.nights import Night, load_night, store_night
from harness.campaigns.real_runs import HANG_FACTOR, planned_s
from harness.campaigns.repeats import Repeats
from harness.campaigns.row_log import key_of, whole_rows
from harness.cli.progress import StandardErrorProgress
from harness.errors import UsageError
from tests.unit.harness.campaigns.fake_crew import Answer, FakeMember, made_up_row
from tests.unit.harness.campaigns.made_up_nights import BROKEN, LOSS
from tests.unit.harness.campaigns.test_night_runs import WORKERS, Clock
from tests.unit.harness.campaigns.test_nights import made_up_night

PLAN = """
[[jobs]]
name = "simulated"
experiment = "elr-compare"
[[jobs]]
name = "real"
repeats = 3
hang_factor = 2.5
[jobs.experiment]
on = "local"
"""


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answer], list[FakeMember]]:
    """Replaces the runs by made-up rows, and returns the member for real runs of each attempt."""
    real: list[FakeMember] = []

    def use(answer: Answer) -> list[FakeMember]:
        def crew(*_: Any) -> Crew:
            real.append(FakeMember(answer, runs_real=True))
            return Crew([real[-1], FakeMember(answer)], 2)

        monkeypatch.setattr(nightly, "_crew", crew)
        return real

    return use


def run(night: Night, directory: Path, budget: Budget) -> dict[str, Any]:
    directory.mkdir(exist_ok=True)
    store_night(night, directory)
    return run_night(night, directory, WORKERS, StandardErrorProgress(quiet=True), budget)


def answer_with(*findings: dict[str, Any]) -> Answer:
    """Every real run has these findings, except that repeats have none."""

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        is_found = request["arm"] == "real" and "repeat" not in request
        row = made_up_row(request, lost=is_found, trace_hash="")
        return {**row, "findings": list(findings) if is_found else []}

    return answer


def test_the_first_of_the_runs_with_the_same_finding_is_repeated_before_further_ones(
    tmp_path: Path, answering: Callable[[Answer], list[FakeMember]]
) -> None:
    member = answering(answer_with(LOSS))
    night = made_up_night(plan=PLAN, budget_s=None, runs=8)
    result = run(night, tmp_path, Budget(None))
    first, *others = member[0].requests
    repeats = [one for one in others if "repeat" in one]
    assert [one["repeat"] for one in others[:3]] == [1, 2, 3], "right after the run"
    assert len(repeats) == 3, "later runs fail alike"
    for one in repeats:
        assert (one["arm"], one["seed"], one["experiment"]) == (
            "real",
            first["seed"],
            first["experiment"],
        )
        assert one["repeated"] == [LOSS["signature"]]
    assert len({one["run"] for one in member[0].requests}) == len(member[0].requests)
    rows = list(whole_rows(tmp_path / "rows.jsonl"))
    assert [row["repeat"] for row in rows if row["repeat"]] == [1, 2, 3]
    assert len(rows) == 8 + 3, "repeats come on top of a number of runs"
    assert result["repeats"] == 3
    assert {one["limit_s"] for one in member[0].requests} == {
        2.5 * planned_s(night.job("real").experiment)
    }


def test_repeats_end_with_the_budget(
    tmp_path: Path, answering: Callable[[Answer], list[FakeMember]]
) -> None:
    clock = Clock()
    found = answer_with(LOSS)

    def answer(request: dict[str, Any]) -> dict[str, Any] | None:
        clock.now_s += 30.0 if request["arm"] == "real" else 0.0
        return {**(found(request) or {}), "wall_s": 30.0}

    members = answering(answer)
    night = made_up_night(plan=PLAN, budget_s=100.0, expected_s={"real": 24.0})
    run(night, tmp_path, Budget(100.0, clock=clock))
    assert [one.get("repeat", 0) for one in members[0].requests] == [0, 1, 2]
    assert clock.now_s - 1000 <= 100


def test_an_interrupted_night_repeats_what_is_missing(
    tmp_path: Path, answering: Callable[[Answer], list[FakeMember]]
) -> None:
    found = answer_with(LOSS)

    def interrupted(request: dict[str, Any]) -> dict[str, Any] | None:
        if request.get("repeat") == 2:
            raise KeyboardInterrupt
        return found(request)

    members = answering(interrupted)
    night = made_up_night(plan=PLAN, budget_s=None, runs=4)
    with pytest.raises(KeyboardInterrupt):
        run(night, tmp_path, Budget(None))
    before = [key_of(row) for row in whole_rows(tmp_path / "rows.jsonl")]
    answering(found)
    run(night, tmp_path, Budget(None))
    assert [one["repeat"] for one in members[1].requests if "repeat" in one] == [2, 3]
    keys = [key_of(row) for row in whole_rows(tmp_path / "rows.jsonl")]
    assert keys[: len(before)] == before
    assert len(keys) == len(set(keys)) == 4 + 3


def test_another_finding_is_repeated_and_errors_and_simulated_runs_are_not() -> None:
    night = made_up_night(plan=PLAN, budget_s=None, runs=1)
    repeats = Repeats(night.jobs)

    def notice(seed: int, *findings: dict[str, Any], **values: Any) -> None:
        row = {"arm": "real", "seed": seed, "error": "", "repeat": 0, "findings": list(findings)}
        repeats.notice({**row, **values})

    notice(1)
    notice(2, LOSS, error="the engine is gone")
    notice(3, LOSS, arm="simulated")
    assert repeats.first is None
    notice(4, LOSS)
    notice(5, LOSS)
    notice(6, BROKEN, LOSS)
    notice(7, BROKEN)
    taken = []
    while repeats.first is not None:
        taken.append((repeats.first.seed, repeats.first.number))
        repeats.take()
    assert taken == [(seed, number) for seed in (4, 6) for number in (1, 2, 3)]


def test_the_keys_of_a_plan_are_stored_with_the_night_and_checked(tmp_path: Path) -> None:
    night = made_up_night(plan=PLAN, budget_s=None, runs=1)
    store_night(night, tmp_path)
    assert load_night(tmp_path) == night
    assert (night.job("real").repeats, night.job("real").hang_factor) == (3, 2.5)
    plan = tmp_path / "plan.json"
    data = json.loads(plan.read_text(encoding="utf-8"))
    for job in data["jobs"]:
        del job["repeats"], job["hang_factor"]
    plan.write_text(json.dumps(data), encoding="utf-8")
    earlier = load_night(tmp_path).job("real")
    assert (earlier.repeats, earlier.hang_factor) == (5, HANG_FACTOR), "a night of before"
    for line in ("repeats = -1", "repeats = 1.5", "hang_factor = 0", "hang_factor = 'long'"):
        key = line.split()[0]
        with pytest.raises(UsageError, match=rf"line 4: jobs\.{key}: expected"):
            loads_nightly(
                f'[[jobs]]\nname = "a"\nexperiment = "elr-compare"\n{line}\n',
                origin="plan.toml",
                folder=Path(),
            )
