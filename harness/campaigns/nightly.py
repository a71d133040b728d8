"""Runs a night: simulated runs on all cores or on Spark, real runs beside them, until the budget is used up.

No run starts if it would probably end after the deadline. How long a run takes is learned from the runs of the
night, and before there are any from earlier nights. Every failing simulated run is run a second time by another
process; if its trace hash differs, the simulation is not deterministic, and the night fails. Real runs with a
finding are repeated (`harness.campaigns.repeats`).
"""

import itertools
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from math import sqrt
from pathlib import Path
from typing import Any

from harness.campaigns.compare import Workers
from harness.campaigns.crew import Crew, Request, Row, night_crew
from harness.campaigns.engine import Engine, Meter, duration_text
from harness.campaigns.files import JOBS_FILE, ROWS_FILE, RUNS_FOLDER, SHRUNK_PREFIX
from harness.campaigns.guided.night import GuidedJobs
from harness.campaigns.kept_runs import is_failing, remove_all_but, stored_run
from harness.campaigns.nightly_plan import PlannedJob
from harness.campaigns.nights import Night, job_path, planned_runs, runs_in_order
from harness.campaigns.real_runs import hang_limit_s
from harness.campaigns.repeats import Repeats
from harness.campaigns.requests import mutant_command, run_command
from harness.campaigns.row_log import RowLog, whole_rows
from harness.campaigns.totals import ArmTotals, Attention
from harness.contracts.progress import ProgressDisplay
from harness.environments.registry import ENVIRONMENTS
from harness.runs import experiment_file as experiments
from results.layout import RunFiles
from results.store import write_json

SAME = "same"
ALARMS_MAX = 50
"""Runs that did not repeat; one of them is enough to stop trusting the simulation."""

RESERVE_SHARE, RESERVE_S_MIN, RESERVE_S_MAX = 0.02, 1.0, 60.0
"""Part of the budget that is left for counting and for pages."""

SHRINK_SHARE = 0.1
"""Part of the budget that is left for shrinking new findings, from the first finding of the simulation on."""

SIMULATED_S_GUESS = 5.0
REAL_START_S_GUESS = 30.0
"""How long a real run takes apart from its main phase, until one has been measured."""


class Budget:
    """The time of a night. Mutable: time passes.

    Args:
        budget_s: All of it; None if the night is limited by runs.
        spent_s: What was spent before the night was interrupted.
        clock: Seconds.
    """

    def __init__(
        self,
        budget_s: float | None,
        spent_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.budget_s = budget_s
        self._clock = clock
        self._began_s = clock() - spent_s
        self._shrink_share = 0.0

    def resume(self, spent_s: float) -> None:
        """Notices that this much was spent already, when the night was interrupted."""
        self._began_s = self._clock() - spent_s

    @property
    def spent_s(self) -> float:
        """What was spent, without the time between an interruption and its resumption."""
        return self._clock() - self._began_s

    @property
    def left_s(self) -> float:
        """How long runs may still take; infinite without a budget."""
        if self.budget_s is None:
            return float("inf")
        return self._left_s(self.budget_s) - self._shrink_share * self.budget_s

    def keep_for_shrinking(self) -> None:
        """Leaves a share for shrinking: there is something to shrink."""
        self._shrink_share = SHRINK_SHARE

    @property
    def shrink_s(self) -> float:
        """How long shrinking may take now that the runs are over; 0 without a budget, or without findings."""
        if self.budget_s is None:
            return 0.0
        return max(min(self._shrink_share * self.budget_s, self._left_s(self.budget_s)), 0.0)

    def _left_s(self, budget_s: float) -> float:
        reserve_s = min(max(RESERVE_SHARE * budget_s, RESERVE_S_MIN), RESERVE_S_MAX)
        return budget_s - reserve_s - self.spent_s


class Durations:
    """Learns how long the runs of each job take. Mutable.

    Args:
        night: The night; it knows the durations of earlier ones.
    """

    def __init__(self, night: Night) -> None:
        self._before = night.expected_s
        self._jobs = {job.name: job for job in night.jobs}
        self._sums: dict[str, tuple[int, float, float]] = {}

    def add(self, job: str, wall_s: float) -> None:
        """Notices a run."""
        runs, total, squares = self._sums.get(job, (0, 0.0, 0.0))
        self._sums[job] = (runs + 1, total + wall_s, squares + wall_s * wall_s)

    def expected_s(self, name: str) -> float:
        """Returns how long a run will probably take at most: the mean and one standard deviation."""
        runs, total, squares = self._sums.get(name, (0, 0.0, 0.0))
        if runs:
            mean = total / runs
            return mean + sqrt(max(squares / runs - mean * mean, 0.0))
        if name in self._before:
            return 1.25 * self._before[name]
        job = self._jobs[name]
        if job.is_simulated:
            return SIMULATED_S_GUESS
        return REAL_START_S_GUESS + job.experiment.main_phase_ms / 1e3

    def mean_s(self) -> float:
        """Returns the mean of all simulated runs of the night so far."""
        known = [one for name, one in self._sums.items() if self._jobs[name].is_simulated]
        runs = sum(one[0] for one in known)
        return sum(one[1] for one in known) / runs if runs else SIMULATED_S_GUESS


class NightSource:
    """Provides the requests of a night that have no row and fit into what is left of its budget. Mutable.

    Args:
        night: The night.
        rows: What is done.
        budget: The time that is left.
        durations: How long runs take.
        repeats: Repeats of real runs; they come before other real runs.
        guided: What the runs of guided jobs are.
    """

    def __init__(
        self,
        night: Night,
        rows: RowLog,
        budget: Budget,
        durations: Durations,
        repeats: Repeats,
        guided: GuidedJobs,
    ) -> None:
        self._night = night
        self._guided = guided
        self._budget = budget
        self._durations = durations
        self._repeats = repeats
        self._jobs = {job.name: (number, job) for number, job in enumerate(night.jobs, start=1)}
        self._data = {job.name: experiments.to_data(job.experiment) for job in night.jobs}
        self._planned = planned_runs(night) if night.runs is not None else None
        self._left = sum(run not in rows for run in self._planned or ())
        self._lanes = {real: self._lane(rows, real=real) for real in (False, True)}
        self._next = {real: next(lane, None) for real, lane in self._lanes.items()}

    @property
    def remaining(self) -> int:
        """How many simulated runs are left, as far as the durations so far show it."""
        if self._planned is not None:
            return max(self._left, 1)
        return max(int(self._budget.left_s / max(self._durations.mean_s(), 0.001)), 1)

    def has_real(self) -> bool:
        """Returns whether there is a request for a real environment that fits."""
        following = self._following(real=True)
        return following is not None and self._fits(following, 0.0)

    def has_simulated(self) -> bool:
        """Returns whether there is a simulated request that fits."""
        following = self._following(real=False)
        return following is not None and self._fits(following, 0.0)

    def take(self, count: int, *, real: bool) -> list[Request]:
        """Returns the next requests that fit, one after the other; fewer while one depends on runs under way."""
        taken: list[Request] = []
        before_s = 0.0
        while len(taken) < count:
            following = self._following(real=real)
            if following is None or not self._fits(following, before_s):
                break
            if not self._guided.is_ready(following):
                break
            before_s += self._durations.expected_s(following["arm"])
            taken.append(self._guided.request(self._dated(following)))
            if "repeat" in following:
                self._repeats.take()
            else:
                self._next[real] = next(self._lanes[real], None)
                self._left -= 1
        return taken

    def _following(self, *, real: bool) -> Request | None:
        repeat = self._repeats.first if real else None
        if repeat is None:
            return self._next[real]
        # They are not in the plan, and so have no number there.
        return {
            **self._request(repeat.job, repeat.seed, index=-1, folder=f"-repeat-{repeat.number}"),
            "repeat": repeat.number,
            "repeated": list(repeat.signatures),
        }

    def _fits(self, request: Request, before_s: float) -> bool:
        return before_s + self._durations.expected_s(request["arm"]) <= self._budget.left_s

    def _dated(self, request: Request) -> Request:
        if self._budget.budget_s is None:
            return request
        expected_s = self._durations.expected_s(request["arm"])
        return {**request, "start_before": time.time() + self._budget.left_s - expected_s}

    def _lane(self, rows: RowLog, *, real: bool) -> Iterator[Request]:
        """Yields the simulated requests, or the real ones."""
        for index, (name, seed) in self._numbered(real=real):
            if self._jobs[name][1].is_simulated != real and (name, seed) not in rows:
                yield self._request(name, seed, index=index)

    def _request(self, name: str, seed: int, *, index: int, folder: str = "") -> Request:
        number, job = self._jobs[name]
        request = {
            "experiment": self._data[name],
            "seed": seed,
            "arm": name,
            "run": f"job-{number}{folder}/{self._night.started}-{seed}",
            "index": index,
            "keep": True,
            "replay": job.is_simulated,
        }
        if not job.is_simulated:
            request["limit_s"] = hang_limit_s(job.experiment, job.hang_factor)
        return request

    def _numbered(self, *, real: bool) -> Iterator[tuple[int, tuple[str, int]]]:
        if self._planned is not None:
            return iter(enumerate(self._planned))
        # Two endless sequences, numbered alternately.
        return zip(
            itertools.count(int(real), 2),
            runs_in_order(self._night, is_simulated=not real),
            strict=False,
        )


class NightLedger:
    """Adds the night's keys to rows, decides which runs stay stored, and counts. Mutable.

    Of runs that fail alike, the first few of each job stay; they are the first to end, which time decides.

    Args:
        night: The night.
        directory: Its directory.
        budget: The time that is left.
        durations: Learns from every row.
        repeats: Learns which runs have to be repeated.
        guided: Learns what the runs of guided jobs reached.
        meter: Shows the progress.
    """

    def __init__(
        self,
        night: Night,
        directory: Path,
        budget: Budget,
        durations: Durations,
        repeats: Repeats,
        guided: GuidedJobs,
        meter: Meter,
    ) -> None:
        self.spent_s = 0.0
        self._repeats = repeats
        self._guided = guided
        self._keep = night.keep_failing
        self._root = directory / RUNS_FOLDER
        self._directory = directory
        self._budget = budget
        self._durations = durations
        self._meter = meter
        self._alike: dict[str, int] = {}
        self._stored: set[str] = set()

    def stamp(self, row: Row) -> None:
        """Adds `job`, `at_s` (time spent when the run ended), `stored` (where it is) and what guidance needs."""
        self._guided.stamp(row)
        row["job"] = row["arm"]
        row["at_s"] = round(self._budget.spent_s, 3)
        row["stored"] = ""
        if stored_run(self._directory, row) is None:
            return
        if is_failing(row) and self._alike.get(_likeness(row), 0) < self._keep:
            row["stored"] = f"{RUNS_FOLDER}/{row['run']}"
        else:
            shutil.rmtree(self._root / row["run"], ignore_errors=True)

    def notice(self, row: Row) -> None:
        """Counts a row."""
        if row["stored"]:
            self._stored.add(row["run"])
            self._alike[_likeness(row)] = self._alike.get(_likeness(row), 0) + 1
        self.spent_s = max(self.spent_s, row["at_s"])
        self._durations.add(row["arm"], row["wall_s"])
        self._repeats.notice(row)
        self._guided.notice(row)
        if row.get("findings") and ENVIRONMENTS[row["on"]].is_simulated:
            self._budget.keep_for_shrinking()
        self._meter.notice(row)

    def show(self) -> None:
        """Shows the progress."""
        self._meter.show()

    def clean(self) -> None:
        """Removes what an interrupted process stored of runs that have no row; shrunk runs have none."""
        shrunk = (path.relative_to(self._root) for path in self._root.glob(f"{SHRUNK_PREFIX}*/*"))
        remove_all_but(self._root, self._stored | {path.as_posix() for path in shrunk})


def _likeness(row: Row) -> str:
    """Returns what runs that fail alike have in common: their findings if the row has any."""
    signatures = sorted(finding["signature"] for finding in row.get("findings", ()))
    anomalies = sorted(anomaly["id"] for anomaly in row["anomalies"])
    broken = signatures or [anomalies, row["violations"], row["error"], row["outcome"]]
    # Repeats of one run must not take the places of other runs.
    kind = [row["arm"], row["verdict"], row["replayed"], row.get("repeat", 0) > 0]
    return re.sub(r"\d+", "N", json.dumps(kind)) + (
        json.dumps(broken) if signatures else re.sub(r"\d+", "N", json.dumps(broken))
    )


class NightMeter(Meter):
    """Shows how far a night is: by its budget, or by its runs."""

    def __init__(self, display: ProgressDisplay, night: Night, budget: Budget) -> None:
        super().__init__(display, night.runs or 0)
        self._budget = budget

    def notice(self, row: Mapping[str, Any]) -> None:
        """Counts a finished run; the number of runs of a night does not include repeats."""
        if self._budget.budget_s is not None or not row.get("repeat"):
            super().notice(row)

    def show(self) -> None:
        """Shows runs, rate, failing runs and the time left."""
        if self._budget.budget_s is None:
            super().show()
            return
        spent_s = max(self._budget.spent_s, 0.001)
        parts = [f"{self.done} runs", f"{60 * self.done / spent_s:.0f} runs/min"]
        parts.append(f"{self.findings} failing")
        parts.append(f"{duration_text(max(self._budget.left_s, 0.0))} left")
        self._display.update("night", spent_s / self._budget.budget_s, ", ".join(parts))


def run_night(
    night: Night,
    directory: Path,
    workers: Workers,
    progress: ProgressDisplay,
    budget: Budget,
    *,
    on_interrupt: Callable[[dict[str, Any]], None] = lambda _: None,
) -> dict[str, Any]:
    """Runs what a stored night still has to run, and returns its result.

    Args:
        night: The night that `directory` has.
        directory: Its directory.
        workers: Where the runs take place.
        progress: Shows how far the night is.
        budget: Its time, running since the command was started.
        on_interrupt: Called with the result so far when the night is interrupted.

    Returns:
        The result; see `night_result`.

    Raises:
        UsageError: Another process is running the night.
        HarnessFailure: A worker died.
        KeyboardInterrupt: It was interrupted.
    """
    durations = Durations(night)
    repeats = Repeats(night.jobs)
    guided = GuidedJobs(night, directory)
    meter = NightMeter(progress, night, budget)
    ledger = NightLedger(night, directory, budget, durations, repeats, guided, meter)
    with RowLog(directory, ledger.notice) as rows:
        if rows.damage:
            progress.message(f"{rows.damage}; those runs are repeated")
        if len(rows):
            budget.resume(ledger.spent_s)
        ledger.clean()
        source = NightSource(night, rows, budget, durations, repeats, guided)
        meter.start()
        try:
            crew = _crew(night, directory, workers, source)
            Engine(source, crew, rows, ledger, directory).run()
        except KeyboardInterrupt:
            on_interrupt(night_result(night, directory))
            raise
        meter.finish()
        result = night_result(night, directory)
    write_json(directory / JOBS_FILE, result)
    return result


def _crew(night: Night, directory: Path, workers: Workers, source: NightSource) -> Crew:
    spark = workers.spark if workers.spark.enabled else None
    return night_crew(
        directory,
        workers.jobs,
        spark,
        simulated=source.has_simulated(),
        real=source.has_real(),
    )


def night_result(night: Night, directory: Path) -> dict[str, Any]:
    """Returns the result of the runs that have a row.

    Returns:
        `night`, `jobs` (numbers per job, with `kind` and `world`), `attention` (failing runs with commands),
        `failing`, `alarms` (simulated runs that did not repeat), `replayed` (how many were run a second time),
        `repeats` (how many of the runs repeat a real run).
    """
    totals = {job.name: ArmTotals() for job in night.jobs}
    attention = Attention()
    alarms: list[dict[str, Any]] = []
    mutants: dict[tuple[str, int], str] = {}
    replayed = repeats = 0
    for row in whole_rows(directory / ROWS_FILE):
        totals[row["arm"]].add(row)
        attention.add(row)
        if "file" in row.get("search", {}):
            command = mutant_command(directory.resolve(), row["search"])
            mutants[(row["arm"], row["seed"])] = command
        replayed += bool(row["replayed"])
        repeats += row.get("repeat", 0) > 0
        if row["replayed"] not in ("", SAME) and len(alarms) < ALARMS_MAX:
            alarms.append({key: row[key] for key in ("arm", "seed", "replayed", "stored")})
    files = {
        job.name: job_path(directory.resolve(), number)
        for number, job in enumerate(night.jobs, start=1)
    }
    failing = attention.to_json()
    for item in failing:
        repeated = mutants.get((item["arm"], item["seed"]))
        item["command"] = repeated or run_command(files[item["arm"]], item["seed"])
        stored = stored_run(directory, item)
        item["run"] = "" if stored is None else stored.relative_to(directory).as_posix()
        has_report = stored is not None and RunFiles(stored).report.is_file()
        item["report"] = f"{item['run']}/report.html" if has_report else ""
    return {
        "night": night.night,
        "jobs": [_job_result(job, totals[job.name]) for job in night.jobs],
        "attention": failing,
        "failing": attention.count,
        "alarms": alarms,
        "replayed": replayed,
        "repeats": repeats,
    }


def _job_result(job: PlannedJob, totals: ArmTotals) -> dict[str, Any]:
    return {
        **totals.to_json(job.name),
        "kind": job.kind,
        "world": job.experiment.on,
        "system": job.experiment.system,
        "profile": job.experiment.profile,
    }
