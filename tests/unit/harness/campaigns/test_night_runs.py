import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkers.spark import SparkOptions
from harness.campaigns import nightly
from harness.campaigns.compare import Workers
from harness.campaigns.crew import Crew
from harness.campaigns.guided.night import GuidedJobs
from harness.campaigns.nightly import Budget, Durations, NightSource, run_night
from harness.campaigns.nights import Night, planned_runs, store_night
from harness.campaigns.repeats import Repeats
from harness.campaigns.row_log import RowLog, whole_rows
from harness.cli.options import budget_s
from harness.cli.progress import StandardErrorProgress
from results.store import write_json
from tests.unit.harness.campaigns.fake_crew import Answer, FakeMember, made_up_row
from tests.unit.harness.campaigns.test_nights import made_up_night

WORKERS = Workers(jobs=2, spark=SparkOptions(enabled=False))


class Clock:
    """A clock that moves when a run takes time."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answer], None]:
    """Replaces the runs by made-up rows: two members for simulated runs, one for real ones."""

    def use(answer: Answer) -> None:
        def crew(*_: Any) -> Crew:
            members = [FakeMember(answer, runs_real=True), FakeMember(answer), FakeMember(answer)]
            return Crew(members, 2)

        monkeypatch.setattr(nightly, "_crew", crew)

    return use


def _run(night: Night, directory: Path, budget: Budget, **keywords: Any) -> dict[str, Any]:
    directory.mkdir(exist_ok=True)
    store_night(night, directory)
    progress = StandardErrorProgress(quiet=True)
    return run_night(night, directory, WORKERS, progress, budget, **keywords)


def _taking(clock: Clock, real_s: float = 20.0) -> Answer:
    """Answers; two simulated runs at a time take a second, and a real run twenty."""

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        is_real = request["experiment"]["on"] != "simulation"
        wall_s = real_s if is_real else 1.0
        clock.now_s += 0.0 if is_real else 0.5
        return made_up_row(request, wall_s=wall_s, trace_hash="" if is_real else "h")

    return answer


@pytest.mark.parametrize("budget", [30.0, 61.5, 600.0])
def test_a_budget_holds_within_one_run(
    tmp_path: Path, answering: Callable[[Answer], None], budget: float
) -> None:
    clock = Clock()
    answering(_taking(clock))
    night = made_up_night(budget_s=budget)
    result = _run(night, tmp_path, Budget(budget, clock=clock))
    spent_s = clock.now_s - 1000
    assert budget * 0.95 - 6 <= spent_s <= budget
    runs = {job["name"]: job["runs"] for job in result["jobs"]}
    assert (runs["old"], runs["script"]) == (2, 1)
    assert runs["much"] == pytest.approx(3 * runs["little"], abs=4)
    expected_real = 0 if budget < 60 else 1
    assert runs["real"] >= expected_real, "a real run is started only if it fits"


def test_no_run_starts_that_would_end_too_late(tmp_path: Path) -> None:
    clock = Clock()
    night = made_up_night(budget_s=100.0, expected_s={"much": 40.0, "old": 4.0, "real": 10.0})
    with RowLog(tmp_path) as rows:
        budget, durations = Budget(100.0, clock=clock), Durations(night)
        source = NightSource(
            night, rows, budget, durations, Repeats(night.jobs), GuidedJobs(night, tmp_path)
        )
        assert budget.left_s == 98
        assert [one["arm"] for one in source.take(3, real=False)] == ["old", "old", "script"]
        clock.now_s += 47
        assert source.has_real()
        assert [one["arm"] for one in source.take(5, real=False)] == ["much"], "one after the other"
        clock.now_s += 2
        assert source.take(1, real=False) == [], "it takes 50 s, and 49 s are left"
        durations.add("much", 30.0)
        (request,) = source.take(1, real=False)
        assert request["arm"] in ("much", "little")
        clock.now_s += 40
        assert not source.has_real()


def test_a_deadline_is_passed_to_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nightly.time, "time", lambda: 5000.0)
    night = made_up_night(budget_s=100.0, expected_s={"old": 8.0})
    with RowLog(tmp_path) as rows:
        budget = Budget(100.0, clock=Clock())
        source = NightSource(
            night, rows, budget, Durations(night), Repeats(night.jobs), GuidedJobs(night, tmp_path)
        )
        (request,) = source.take(1, real=False)
        assert request["start_before"] == 5000 + 98 - 10
        assert (request["keep"], request["replay"]) == (True, True)
        (real,) = source.take(1, real=True)
        assert (real["experiment"]["on"], real["replay"]) == ("local", False)
    counted = made_up_night(budget_s=None, runs=9)
    with RowLog(tmp_path) as rows:
        source = NightSource(
            counted,
            rows,
            Budget(None),
            Durations(counted),
            Repeats(counted.jobs),
            GuidedJobs(counted, tmp_path),
        )
        assert "start_before" not in source.take(1, real=False)[0]


def test_durations_are_those_of_the_night_and_before_that_of_earlier_ones() -> None:
    durations = Durations(made_up_night(expected_s={"much": 4.0}))
    assert durations.expected_s("much") == 5.0
    assert durations.expected_s("little") == 5.0, "a guess"
    assert durations.expected_s("real") == 40.0, "its main phase and a guess"
    durations.add("much", 1.0)
    assert durations.expected_s("much") == 1.0
    durations.add("much", 3.0)
    assert durations.expected_s("much") == 3.0, "the mean and one standard deviation"
    durations.add("real", 100.0)
    assert durations.mean_s() == 2.0, "of simulated runs"


def test_a_resumed_night_repeats_nothing_and_keeps_what_was_spent(
    tmp_path: Path, answering: Callable[[Answer], None]
) -> None:
    clock = Clock()
    night = made_up_night(budget_s=100.0)
    rows, answer = 0, _taking(clock)

    def interrupted(request: dict[str, Any]) -> dict[str, Any]:
        nonlocal rows
        rows += 1
        if rows == 50:
            raise KeyboardInterrupt
        return answer(request) or {}

    answering(interrupted)
    so_far: list[dict[str, Any]] = []
    with pytest.raises(KeyboardInterrupt):
        _run(night, tmp_path, Budget(100.0, clock=clock), on_interrupt=so_far.append)
    assert sum(job["runs"] for job in so_far[0]["jobs"]) == 49
    spent_s = clock.now_s - 1000
    clock.now_s += 8 * 3600
    answering(_taking(clock))
    began_s = clock.now_s
    result = _run(night, tmp_path, Budget(100.0, clock=clock))
    assert 90 <= spent_s + clock.now_s - began_s <= 101
    keys = [(row["job"], row["seed"]) for row in whole_rows(tmp_path / "rows.jsonl")]
    assert len(keys) == len(set(keys)) == sum(job["runs"] for job in result["jobs"])
    assert json.loads((tmp_path / "jobs.json").read_text(encoding="utf-8")) == result
    answering(interrupted)
    assert _run(night, tmp_path, Budget(100.0, clock=clock)) == result


def test_a_number_of_runs_is_the_number_of_runs(
    tmp_path: Path, answering: Callable[[Answer], None]
) -> None:
    answering(_taking(Clock()))
    night = made_up_night(budget_s=None, runs=23)
    result = _run(night, tmp_path, Budget(None))
    keys = [(row["job"], row["seed"]) for row in whole_rows(tmp_path / "rows.jsonl")]
    assert sorted(keys) == sorted(planned_runs(night))
    assert sum(job["runs"] for job in result["jobs"]) == 23


def test_real_runs_have_a_core_to_themselves(
    tmp_path: Path, answering: Callable[[Answer], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While there are real runs, one of the two members for simulated runs stays idle."""
    members: list[FakeMember] = []
    together: Counter[tuple[int, int]] = Counter()

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        real, *simulated = members
        together[(real.is_busy, sum(one.is_busy for one in simulated))] += 1
        return made_up_row(request)

    def crew(*_: Any) -> Crew:
        members[:] = [FakeMember(answer, runs_real=True), FakeMember(answer), FakeMember(answer)]
        return Crew(members, 2)

    monkeypatch.setattr(nightly, "_crew", crew)
    night = made_up_night(budget_s=None, runs=40)
    _run(night, tmp_path, Budget(None))
    assert together[(True, 1)] > 0
    assert together[(True, 2)] == 0
    assert together[(False, 2)] > 0, "without real runs all cores are used"


def test_one_core_is_used_by_real_and_simulated_runs_in_turn() -> None:
    real, simulated = FakeMember(made_up_row, runs_real=True), FakeMember(made_up_row)
    crew = Crew([real, simulated], 1)
    first = [crew.in_turn()[0] for _ in range(4)]
    assert first in ([real, simulated] * 2, [simulated, real] * 2)
    with crew:
        assert crew.has_core_for(simulated, more_real=True)
        assert crew.has_core_for(real, more_real=True)
        real.send([{}])
        assert not crew.has_core_for(simulated, more_real=False)
        real.receive_nothing()
        simulated.send([{}])
        assert not crew.has_core_for(real, more_real=True)


def test_of_runs_that_fail_alike_the_first_few_are_stored(
    tmp_path: Path, answering: Callable[[Answer], None]
) -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        directory = Path(request["runs"]) / request["run"]
        directory.mkdir(parents=True)
        write_json(directory / "run.json", {})
        if request["arm"] == "little":
            return made_up_row(request, violations=["INV-1 at 3"])
        return made_up_row(request, request["seed"] % 5 if request["arm"] == "much" else 0)

    answering(answer)
    night = made_up_night(budget_s=None, runs=80, keep_failing=3)
    (tmp_path / "runs" / "job-9" / "x").mkdir(parents=True)
    result = _run(night, tmp_path, Budget(None))
    stored = [row for row in whole_rows(tmp_path / "rows.jsonl") if row["stored"]]
    assert Counter(row["job"] for row in stored) == {"little": 3, "much": 3}
    found = {path.parent.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("run.json")}
    assert found == {row["stored"] for row in stored}
    assert not (tmp_path / "runs" / "job-9").exists() or not any(
        (tmp_path / "runs/job-9").iterdir()
    )
    assert sum(bool(item["run"]) for item in result["attention"]) == 6


def test_repeats_do_not_take_the_places_of_other_runs_that_fail_alike() -> None:
    row = {"arm": "real", "verdict": "invalid", "replayed": "", "findings": [], "anomalies": []}
    row |= {"violations": [], "error": "", "outcome": "", "repeat": 0}
    assert nightly._likeness(row) != nightly._likeness({**row, "repeat": 1})
    assert nightly._likeness({**row, "repeat": 1}) == nightly._likeness({**row, "repeat": 4})


@pytest.mark.parametrize(
    ("text", "seconds"), [("2h", 7200), ("30m", 1800), ("90s", 90), ("1h30m", 5400), ("1m5s", 65)]
)
def test_a_budget_is_written_in_hours_minutes_and_seconds(text: str, seconds: float) -> None:
    assert budget_s(text) == seconds
