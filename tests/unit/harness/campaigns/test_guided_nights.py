"""Guided jobs of a night: mutants, the same ones after an interruption, and repeated in later nights."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkers.spark import SparkOptions
from harness.campaigns import nightly
from harness.campaigns.compare import Workers
from harness.campaigns.files import CORPUS_FOLDER, ROWS_FILE
from harness.campaigns.nightly import Budget, run_night
from harness.campaigns.nightly_plan import REGRESSION, loads_nightly
from harness.campaigns.nights import Night, load_night, store_night, with_earlier_findings
from harness.campaigns.row_log import whole_rows
from harness.cli.progress import StandardErrorProgress
from harness.errors import UsageError
from harness.runs import experiment_file as experiments
from harness.runs.coverage import hash_of
from tests.unit.harness.campaigns.fake_crew import Answer, fake_crew, made_up_row

PLAN = """
[[jobs]]
name = "search"
guided = 50
[jobs.experiment]
duration_ms = 2000
[jobs.experiment.nemesis]
faults = ["cut", "power", "kill"]

[[jobs]]
name = "plain"
[jobs.experiment]
duration_ms = 1000
"""
RUNS = 200


def guided_night(name: str = "2026-03-01", runs: int = RUNS) -> Night:
    jobs = loads_nightly(PLAN, origin="plan.toml", folder=Path())
    values: dict[str, Any] = {"budget_s": None, "runs": runs, "keep_failing": 5, "expected_s": {}}
    return Night(night=name, started="20260301T220000Z", code="c0de", jobs=jobs, **values)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """A made-up run: what it reaches, and whether it fails, follows from what it runs."""
    schedule = request["experiment"]["schedule"]
    names = [f"seed {request['seed'] % 40}", *sorted({f"a {one['fault']}" for one in schedule})]
    reached = {"coverage": [hash_of(name) for name in names], "feature_names": names}
    return made_up_row(
        request,
        int(len(schedule) % 3 == 2),
        **(reached if request.get("coverage") else {}),
        margins={},
        marks={},
        trace_hash=f"{request.get('root_seed', request['seed'])}-{len(schedule)}",
    )


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answer], None]:
    def use(answers: Answer) -> None:
        monkeypatch.setattr(nightly, "_crew", lambda *_: fake_crew(answers, members=3, size=2))

    return use


def run(night: Night, directory: Path) -> dict[str, Any]:
    directory.mkdir(exist_ok=True)
    store_night(night, directory)
    workers = Workers(jobs=2, spark=SparkOptions(enabled=False))
    return run_night(
        night, directory, workers, StandardErrorProgress(quiet=True), Budget(night.budget_s)
    )


def origins(directory: Path) -> dict[tuple[str, int], Any]:
    """What every run was: its hash, and the parent if it was a mutant."""
    return {
        (row["job"], row["seed"]): (row["trace_hash"], row.get("search", {}).get("parent"))
        for row in whole_rows(directory / ROWS_FILE)
    }


def test_part_of_a_guided_job_are_mutants_and_an_interruption_changes_none(
    tmp_path: Path, answering: Callable[[Answer], None]
) -> None:
    answering(answer)
    run(guided_night(), tmp_path / "whole")
    whole = origins(tmp_path / "whole")
    mutants = [job for (job, _), (_, parent) in whole.items() if parent is not None]
    assert len(whole) == RUNS
    assert set(mutants) == {"search"}
    assert len(mutants) >= RUNS / 2 / 4, "half of the runs, from the third generation on"
    count = 0

    def interrupted(request: dict[str, Any]) -> dict[str, Any]:
        nonlocal count
        count += 1
        if count == 90:
            raise KeyboardInterrupt
        return answer(request)

    answering(interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(guided_night(), tmp_path / "parts")
    answering(answer)
    run(load_night(tmp_path / "parts"), tmp_path / "parts")
    assert origins(tmp_path / "parts") == whole


def test_a_mutant_that_failed_can_be_repeated_now_and_in_the_next_night(
    tmp_path: Path, answering: Callable[[Answer], None]
) -> None:
    answering(answer)
    directory = tmp_path / "nightly-2026-03-01"
    result = run(guided_night(), directory)
    failed = [
        row
        for row in whole_rows(directory / ROWS_FILE)
        if row["verdict"] == "invalid" and "search" in row
    ]
    assert failed
    files = {(row["arm"], row["seed"]): row["search"] for row in failed}
    listed = [one for one in result["attention"] if (one["arm"], one["seed"]) in files]
    assert listed
    for one in listed:
        search = files[(one["arm"], one["seed"])]
        path = directory / CORPUS_FOLDER / search["file"]
        assert one["command"] == f"laststand run {path} --seed {search['root_seed']}"
        assert len(experiments.load(path).schedule) % 3 == 2, "what failed"
    night = with_earlier_findings(guided_night("2026-03-02", runs=20), tmp_path)
    again = [one for one in night.regressions if "mutated" in one.job]
    assert again
    for one in again:
        job = night.job(one.job)
        assert (job.kind, job.guided, job.weight) == (REGRESSION, 0.0, 0.0)
    later = tmp_path / "nightly-2026-03-02"
    run(night, later)
    rows = {(row["job"], row["seed"]): row for row in whole_rows(later / ROWS_FILE)}
    assert all(rows[(one.job, one.seed)]["verdict"] == "invalid" for one in again)
    third = with_earlier_findings(guided_night("2026-03-03"), tmp_path)
    assert {one.job for one in again} <= {one.job for one in third.regressions}


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        (
            PLAN.replace("guided = 50", "guided = 101"),
            "line 4: jobs.guided: expected `?int`? <= 100",
        ),
        (PLAN.replace("guided = 50", "guided = 50\nseeds = [1]"), "draws its seeds .* 'seeds'"),
        (PLAN.replace("guided = 50", 'guided = 50\nworld = "local"'), "leave out guided"),
        (PLAN.replace('faults = ["cut", "power", "kill"]', "faults = []"), "only random faults"),
    ],
)
def test_what_cannot_be_guided_is_refused(changed: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        loads_nightly(changed, origin="plan.toml", folder=Path())
