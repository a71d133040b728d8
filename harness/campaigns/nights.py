"""A night: a plan with its seeds drawn, stored as `plan.json` in the night's directory.

Seeds follow from the night's id (its date, and a number from the second night of that date on) and from the
plan, so a night that is resumed draws the same ones. What runs, and in which order, is a function of this file
alone; how far a night comes is decided by its budget.

Failing runs of earlier nights run first. They are found in the stored rows of those nights.
"""

import hashlib
import heapq
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from harness.campaigns.files import CORPUS_FOLDER, NIGHT_PREFIX, NIGHTLY, PLAN_FILE, ROWS_FILE
from harness.campaigns.kept_runs import is_failing
from harness.campaigns.night import night_order
from harness.campaigns.nightly_plan import RANDOM, REGRESSION, REPEATS, SCRIPTED, PlannedJob
from harness.campaigns.plan import PLAN_SCHEMA, store_durably
from harness.campaigns.real_runs import HANG_FACTOR
from harness.campaigns.row_log import whole_rows
from harness.errors import HistoryError, UsageError
from harness.runs import experiment_file as experiments
from harness.runs.experiment import Experiment
from results.store import read_json

EARLIER_NIGHTS = 7
"""A failing run is repeated for a week after the last night in which it failed."""

EARLIER_RUNS_MAX = 50
EARLIER_PER_GROUP = 3
"""Runs that failed alike show the same; a few of each are enough to see whether it is fixed."""

SEED_BYTES = 6
"""Seeds of 48 bits: every JSON reader keeps them, and they are short enough to type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """A run that failed in an earlier night."""

    job: str
    seed: int
    night: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """What a night runs.

    Attributes:
        night: Its id: the date on which it began, and from the second night of one date on a number.
        started: When it began (`results.layout.utc_stamp`).
        code: Version of the code.
        jobs: Its jobs; those of earlier findings have weight 0.
        regressions: Failing runs of earlier nights, to be run first.
        budget_s: How long it may take; None if it is limited by runs.
        runs: How many runs it has; None if it is limited by time.
        keep_failing: How many failing runs of each job are stored whole.
        expected_s: How long a run of each job takes, as far as earlier nights show it.
    """

    night: str
    started: str
    code: str
    jobs: tuple[PlannedJob, ...]
    regressions: tuple[Regression, ...] = ()
    budget_s: float | None = None
    runs: int | None = None
    keep_failing: int
    expected_s: Mapping[str, float]

    @property
    def draw_key(self) -> str:
        """What the seeds are derived from: the night, and the jobs that draw seeds."""
        jobs = [
            # Nights of earlier versions were never guided.
            [job.name, job.kind, job.weight, experiments.to_data(job.experiment)]
            + ([job.guided] if job.guided else [])
            for job in self.jobs
            if job.kind != REGRESSION
        ]
        digest = hashlib.blake2b(json.dumps(jobs, sort_keys=True).encode(), digest_size=8)
        return f"{self.night}/{digest.hexdigest()}"

    def job(self, name: str) -> PlannedJob:
        """Returns a job by its name."""
        return next(job for job in self.jobs if job.name == name)

    def to_json(self) -> dict[str, Any]:
        """Returns the content of the plan file."""
        return {
            "schema": PLAN_SCHEMA,
            "kind": NIGHTLY,
            "night": self.night,
            "started": self.started,
            "code": self.code,
            "jobs": [_job_json(job) for job in self.jobs],
            "regressions": [
                {"job": one.job, "seed": one.seed, "night": one.night} for one in self.regressions
            ],
            "budget_s": self.budget_s,
            "runs": self.runs,
            "keep_failing": self.keep_failing,
            "expected_s": dict(self.expected_s),
            "draw_key": self.draw_key,
        }


def _job_json(job: PlannedJob) -> dict[str, Any]:
    return {
        "name": job.name,
        "kind": job.kind,
        "weight": job.weight,
        "seeds": list(job.seeds),
        "guided": job.guided,
        "repeats": job.repeats,
        "hang_factor": job.hang_factor,
        "system": job.experiment.system,
        "profile": job.experiment.profile,
        "world": job.experiment.on,
        "experiment": experiments.to_data(job.experiment),
    }


def store_night(night: Night, directory: Path) -> None:
    """Writes the plan of a night and the experiments of its jobs, durably."""
    for number, job in enumerate(night.jobs, start=1):
        text = experiments.dumps(job.experiment)
        job_path(directory, number).write_text(text, encoding="utf-8")
    store_durably(directory / PLAN_FILE, night.to_json())


def job_path(directory: Path, number: int) -> Path:
    """Returns where a night keeps the experiment of a job, which is numbered from 1."""
    return directory / f"job-{number}.toml"


def load_night(directory: Path) -> Night:
    """Reads the plan of a night.

    Raises:
        HistoryError: There is none, or it is damaged.
    """
    path = directory / PLAN_FILE
    try:
        data = read_json(path)
    except FileNotFoundError:
        raise HistoryError(f"{directory} is not a night: it has no {PLAN_FILE}") from None
    if data.get("schema") != PLAN_SCHEMA or data.get("kind") != NIGHTLY:
        raise HistoryError(f"{path} is not the plan of a night of schema {PLAN_SCHEMA}")
    try:
        night = Night(
            night=str(data["night"]),
            started=str(data["started"]),
            code=str(data["code"]),
            jobs=tuple(
                PlannedJob(
                    name=str(job["name"]),
                    kind=str(job["kind"]),
                    experiment=experiments.from_data(job["experiment"]),
                    weight=float(job["weight"]),
                    seeds=tuple(int(seed) for seed in job["seeds"]),
                    # Nights of earlier versions lack them.
                    guided=float(job.get("guided", 0.0)),
                    repeats=int(job.get("repeats", REPEATS)),
                    hang_factor=float(job.get("hang_factor", HANG_FACTOR)),
                )
                for job in data["jobs"]
            ),
            regressions=tuple(
                Regression(job=str(one["job"]), seed=int(one["seed"]), night=str(one["night"]))
                for one in data["regressions"]
            ),
            budget_s=None if data["budget_s"] is None else float(data["budget_s"]),
            runs=None if data["runs"] is None else int(data["runs"]),
            keep_failing=int(data["keep_failing"]),
            expected_s={str(name): float(s) for name, s in data["expected_s"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError, UsageError) as error:
        raise HistoryError(f"{path} is damaged: {error}") from None
    if night.draw_key != data["draw_key"]:
        raise HistoryError(f"{path} is damaged: its jobs are not those that its seeds belong to")
    return night


def night_folders(root: Path) -> list[Path]:
    """Returns the directories of all nights below a root, oldest first."""
    found = [path.parent for path in root.glob(f"{NIGHT_PREFIX}*/{PLAN_FILE}")]
    return sorted(found, key=lambda path: night_order(path.name.removeprefix(NIGHT_PREFIX)))


def new_night_folder(root: Path, date: str, taken: Collection[str] = ()) -> tuple[str, Path]:
    """Makes the directory of a new night, and returns the night's id with it.

    Args:
        root: The run store.
        date: When the night begins.
        taken: Further nights that exist, for example in campaign tables that several run stores share.
    """
    number = 1
    while True:
        night = date if number == 1 else f"{date}-{number}"
        folder = root / f"{NIGHT_PREFIX}{night}"
        if night in taken:
            number += 1
            continue
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
            continue
        return night, folder


def runs_in_order(night: Night, *, is_simulated: bool | None = None) -> Iterator[tuple[str, int]]:
    """Yields (job, seed) of the runs of a night, in order; endless if random jobs draw seeds.

    Args:
        night: The night.
        is_simulated: Only runs in the simulation, or only real ones; a night that is limited by its budget runs
            both side by side, each in its own order. None for all runs as one sequence.
    """
    jobs = [job for job in night.jobs if is_simulated in (None, job.is_simulated)]
    names = {job.name for job in jobs}
    fixed = [(one.job, one.seed) for one in night.regressions if one.job in names]
    fixed += [(job.name, seed) for job in jobs if job.kind == REGRESSION for seed in job.seeds]
    key = night.draw_key
    fixed += [(job.name, drawn_seed(key, job.name, 0)) for job in jobs if job.kind == SCRIPTED]
    done: set[tuple[str, int]] = set()
    for run in fixed:
        if run not in done:
            done.add(run)
            yield run
    for job, number in _by_weight([job for job in jobs if job.kind == RANDOM and job.weight > 0]):
        run = (job.name, drawn_seed(key, job.name, number))
        if run not in done:
            yield run


def planned_runs(night: Night) -> list[tuple[str, int]]:
    """Returns the runs of a night that is limited by their number."""
    return list(islice(runs_in_order(night), night.runs))


def drawn_seed(key: str, job: str, number: int) -> int:
    """Returns the n-th seed that a job draws in a night."""
    digest = hashlib.blake2b(f"{key}/{job}/{number}".encode(), digest_size=SEED_BYTES).digest()
    return int.from_bytes(digest, "big")


def _by_weight(jobs: Sequence[PlannedJob]) -> Iterator[tuple[PlannedJob, int]]:
    """Yields jobs, each with a counter from 0, so that at any time their runs are as their weights are."""
    turns = [(1 / job.weight, index, 0) for index, job in enumerate(jobs)]
    heapq.heapify(turns)
    while turns:
        _, index, number = turns[0]
        yield jobs[index], number
        heapq.heapreplace(turns, ((number + 2) / jobs[index].weight, index, number + 1))


def with_earlier_findings(night: Night, root: Path) -> Night:
    """Returns the night with the failing runs of earlier nights, and with what these show about durations.

    A run is repeated with the experiment with which it failed. If tonight's plan has that job unchanged the run
    belongs to it, otherwise to a further job.
    """
    jobs = {job.name: job for job in night.jobs}
    regressions: list[Regression] = []
    groups: dict[str, int] = {}
    seconds: dict[str, list[float]] = {}
    for directory in reversed(night_folders(root)[-EARLIER_NIGHTS:]):
        try:
            earlier = load_night(directory)
        except HistoryError:
            continue  # made by another version of the program
        names = {job.name: _name_tonight(job, earlier.night, jobs) for job in earlier.jobs}
        for row in whole_rows(directory / ROWS_FILE):
            name = names.get(row["arm"])
            if name is None:
                continue
            seconds.setdefault(name, []).append(float(row["wall_s"]))
            anomalies = sorted((one["id"], one["judgement"]) for one in row["anomalies"])
            group = json.dumps([name, row["verdict"], anomalies, row["violations"]])
            is_new = all((one.job, one.seed) != (name, row["seed"]) for one in regressions)
            if (
                is_failing(row)
                and row["trace_hash"]
                and is_new
                and len(regressions) < EARLIER_RUNS_MAX
                and groups.get(group, 0) < EARLIER_PER_GROUP
            ):
                groups[group] = groups.get(group, 0) + 1
                old, seed = earlier.job(row["arm"]), row["seed"]
                if "search" in row:
                    mutant = _mutant(directory / CORPUS_FOLDER / str(row["search"].get("file")))
                    if mutant is None:
                        continue
                    old, seed = replace(old, experiment=mutant), row["search"]["root_seed"]
                    name = f"{row['arm']}, mutated {row['seed']} (of {earlier.night})"
                if name not in jobs:
                    jobs[name] = replace(
                        old, name=name, kind=REGRESSION, seeds=(), weight=0.0, guided=0.0
                    )
                regressions.append(Regression(job=name, seed=seed, night=earlier.night))
    expected_s = {name: sum(all_s) / len(all_s) for name, all_s in seconds.items() if name in jobs}
    return replace(
        night,
        jobs=tuple(jobs.values()),
        regressions=tuple(regressions),
        expected_s={**expected_s, **night.expected_s},
    )


def _mutant(path: Path) -> Experiment | None:
    """Returns the experiment of a mutated run; None if it cannot be read, because the night ran elsewhere."""
    try:
        return experiments.load(path)
    except UsageError:
        return None


def _name_tonight(job: PlannedJob, night: str, jobs: Mapping[str, PlannedJob]) -> str:
    """Returns the name of the job to which runs of an earlier night's job belong tonight."""
    if job.name in jobs and jobs[job.name].experiment == job.experiment:
        return job.name
    return job.name if job.name.endswith(")") else f"{job.name} (of {night})"
