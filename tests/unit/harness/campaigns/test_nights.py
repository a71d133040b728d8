import json
import shutil
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from harness.campaigns.nightly_plan import RANDOM, PlannedJob, loads_nightly
from harness.campaigns.nights import (
    EARLIER_NIGHTS,
    EARLIER_PER_GROUP,
    Night,
    Regression,
    drawn_seed,
    load_night,
    new_night_folder,
    night_folders,
    planned_runs,
    runs_in_order,
    store_night,
    with_earlier_findings,
)
from harness.campaigns.row_log import RowLog
from harness.errors import HistoryError
from harness.runs.experiment import Experiment
from tests.unit.harness.campaigns.fake_crew import made_up_row

PLAN = """
[[jobs]]
name = "old"
experiment = "elr-compare"
seeds = [5, 3]
[[jobs]]
name = "script"
scenario = "last-replica-standing:V3b"
[[jobs]]
name = "much"
experiment = "elr-compare"
weight = 3
[[jobs]]
name = "little"
experiment = "elr-compare"
[[jobs]]
name = "real"
[jobs.experiment]
on = "local"
"""


def made_up_night(name: str = "2026-03-01", plan: str = PLAN, **values: Any) -> Night:
    jobs = loads_nightly(plan, origin="plan.toml", folder=Path())
    values = {"jobs": jobs, "budget_s": 60.0, "keep_failing": 5, "expected_s": {}, **values}
    return Night(night=name, started="20260301T220000Z", code="c0de", **values)


def test_regressions_come_first_then_scenarios_then_random_seeds_by_weight() -> None:
    night = made_up_night(regressions=(Regression(job="much", seed=77, night="2026-02-28"),))
    runs = list(islice(runs_in_order(night, is_simulated=True), 404))
    assert [job for job, _ in runs[:4]] == ["much", "old", "old", "script"]
    assert [seed for _, seed in runs[:3]] == [77, 5, 3]
    assert Counter(job for job, _ in runs[4:]) == {"much": 300, "little": 100}
    for length in range(8, 400, 4):
        assert Counter(job for job, _ in runs[4 : 4 + length])["much"] == length * 3 / 4
    assert len(set(runs)) == len(runs)
    real = list(islice(runs_in_order(night, is_simulated=False), 10))
    assert {job for job, _ in real} == {"real"}


def test_seeds_follow_from_the_night_and_the_plan() -> None:
    night = made_up_night()
    first = list(islice(runs_in_order(night), 50))
    assert list(islice(runs_in_order(made_up_night()), 50)) == first
    other_night = list(islice(runs_in_order(made_up_night("2026-03-01-2")), 50))
    other_plan = made_up_night(plan=PLAN.replace("weight = 3", "weight = 2"))
    for other in (other_night, list(islice(runs_in_order(other_plan), 50))):
        assert not set(first[3:]) & set(other[3:])
    assert all(0 <= seed < 2**48 for _, seed in first)
    assert drawn_seed("key", "job", 0) != drawn_seed("key", "job", 1)


def test_what_an_earlier_night_adds_does_not_change_the_seeds_that_are_drawn() -> None:
    night = made_up_night()
    old = PlannedJob(name="x (of y)", kind="regression", experiment=Experiment(), weight=0.0)
    more = replace(
        night,
        jobs=(*night.jobs, old),
        regressions=(Regression(job=old.name, seed=1, night="y"),),
    )
    assert list(islice(runs_in_order(more), 51))[1:] == list(islice(runs_in_order(night), 50))


def test_a_number_of_runs_limits_the_order_of_all_jobs() -> None:
    night = made_up_night(runs=13, budget_s=None)
    runs = planned_runs(night)
    assert len(runs) == 13
    assert Counter(job for job, _ in runs) == {
        "old": 2,
        "script": 1,
        "much": 6,
        "little": 2,
        "real": 2,
    }
    assert len(planned_runs(replace(night, jobs=night.jobs[:2], runs=100))) == 3


def test_a_stored_night_is_the_night(tmp_path: Path) -> None:
    night = made_up_night(regressions=(Regression(job="much", seed=77, night="2026-02-28"),))
    store_night(night, tmp_path)
    assert load_night(tmp_path) == night
    assert (tmp_path / "job-5.toml").is_file()
    data = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))
    data["jobs"][2]["weight"] = 4
    (tmp_path / "plan.json").write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(HistoryError, match="not those that its seeds belong to"):
        load_night(tmp_path)


def test_a_night_that_shared_tables_have_is_not_begun_again(tmp_path: Path) -> None:
    taken = ["2026-03-01", "2026-03-01-2", "2026-02-28"]
    assert new_night_folder(tmp_path, "2026-03-01", taken)[0] == "2026-03-01-3"
    assert new_night_folder(tmp_path, "2026-03-01", taken)[0] == "2026-03-01-4"
    assert [path.name for path in tmp_path.iterdir()].count("nightly-2026-03-01") == 0


def test_nights_of_one_date_are_numbered_and_sorted_by_their_numbers(tmp_path: Path) -> None:
    for _ in range(11):
        night, folder = new_night_folder(tmp_path, "2026-03-01")
        store_night(made_up_night(night), folder)
    _, folder = new_night_folder(tmp_path, "2026-02-28")
    store_night(made_up_night("2026-02-28"), folder)
    names = [path.name for path in night_folders(tmp_path)]
    assert names[:3] == ["nightly-2026-02-28", "nightly-2026-03-01", "nightly-2026-03-01-2"]
    assert names[-2:] == ["nightly-2026-03-01-10", "nightly-2026-03-01-11"]


def _store(root: Path, night: Night, *rows: dict[str, Any]) -> None:
    folder = root / f"nightly-{night.night}"
    folder.mkdir()
    store_night(night, folder)
    with RowLog(folder) as log:
        for row in rows:
            log.append(row)


def _row(job: str, seed: int, lost: int = 0, **values: Any) -> dict[str, Any]:
    request = {"arm": job, "seed": seed, "run": f"job-1/x-{seed}", "experiment": {}}
    return made_up_row(request, lost, **{"trace_hash": "h", "wall_s": 2.0, **values})


def test_failing_runs_of_earlier_nights_run_again(tmp_path: Path) -> None:
    earlier = made_up_night("2026-02-27")
    _store(tmp_path, earlier, _row("much", 1), _row("much", 2, 1), _row("little", 3, 2, wall_s=4.0))
    _store(tmp_path, made_up_night("2026-02-28"), _row("much", 2, 1), _row("little", 9))
    night = with_earlier_findings(made_up_night(), tmp_path)
    assert [(one.job, one.seed, one.night) for one in night.regressions] == [
        ("much", 2, "2026-02-28"),
        ("little", 3, "2026-02-27"),
    ]
    assert night.jobs == made_up_night().jobs
    assert night.expected_s == {"much": 2.0, "little": 3.0}


def test_of_runs_that_failed_alike_a_few_are_repeated(tmp_path: Path) -> None:
    alike = [_row("much", seed, 1 + seed) for seed in range(20)]
    others = [_row("much", 100 + seed, violations=[f"INV-{seed}"]) for seed in range(4)]
    real = _row("real", 1, 1, trace_hash="")
    _store(tmp_path, made_up_night("2026-02-28"), *alike, *others, real)
    night = with_earlier_findings(made_up_night(), tmp_path)
    seeds = [one.seed for one in night.regressions]
    assert seeds == [*range(EARLIER_PER_GROUP), 100, 101, 102, 103]


def test_a_run_is_repeated_with_the_experiment_with_which_it_failed(tmp_path: Path) -> None:
    _store(tmp_path, made_up_night("2026-02-28"), _row("much", 2, 1))
    changed = PLAN.replace('name = "much"\n', 'name = "much"\nprofiles = ["kafka-4.0"]\n')
    night = with_earlier_findings(made_up_night(plan=changed), tmp_path)
    (one,) = night.regressions
    assert one.job == "much (of 2026-02-28)"
    old = night.job(one.job)
    assert (old.experiment.profile, old.kind, old.weight) == ("kafka-4.1", "regression", 0.0)
    assert night.job("much").kind == RANDOM
    _store(tmp_path, night, _row(one.job, 2, 1))
    later = with_earlier_findings(made_up_night("2026-03-02", plan=changed), tmp_path)
    assert {run.job for run in later.regressions} == {"much (of 2026-02-28)"}
    assert later.job("much (of 2026-02-28)").experiment == old.experiment


def test_a_failing_run_is_forgotten_after_a_week_without_it(tmp_path: Path) -> None:
    _store(tmp_path, made_up_night("2026-02-01"), _row("much", 2, 1))
    for day in range(2, 2 + EARLIER_NIGHTS):
        assert with_earlier_findings(made_up_night(), tmp_path).regressions
        _store(tmp_path, made_up_night(f"2026-02-0{day}"), _row("much", 2))
    assert not with_earlier_findings(made_up_night(), tmp_path).regressions


def test_nights_of_another_version_of_the_program_are_left_out(tmp_path: Path) -> None:
    _store(tmp_path, made_up_night("2026-02-28"), _row("much", 2, 1))
    (tmp_path / "nightly-2026-02-28" / "plan.json").write_text("{}", encoding="utf-8")
    assert with_earlier_findings(made_up_night(), tmp_path).regressions == ()
    shutil.rmtree(tmp_path / "nightly-2026-02-28")
