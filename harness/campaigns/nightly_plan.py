"""The plan of a night as users write it: a TOML file that lists jobs.

    [[jobs]]
    name = "random-faults"
    experiment = "elr-compare"     # built in, or a file (relative to the plan), or a table with the experiment
    profiles = ["kafka-4.1"]
    weight = 3

A job has an experiment or a scripted scenario. Its kind follows from that, and decides when it runs:

1. `regression`: it lists seeds. They run first, after the failing runs of earlier nights.
2. `scripted`: it names a scenario. Each runs once.
3. `random`: all others share the rest of the night by their weights.

A random job of the simulation may be `guided`: part of its runs are mutations of runs that reached something new.

A misspelt key gets a suggestion, and every error names the line.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from harness.campaigns.guided.guidance import check_guidable
from harness.campaigns.real_runs import HANG_FACTOR
from harness.errors import UsageError
from harness.names import unknown_name
from harness.runs import experiment_file as experiments
from harness.runs.experiment import Experiment, given
from harness.runs.scripted import can_run, scenario_experiment
from harness.scenarios import FAMILIES, find_by_name
from harness.seeds import check_seed
from harness.systems.registry import REFERENCE

BUILT_IN = Path(__file__).parents[1] / "experiments"
DEFAULT_PLAN = BUILT_IN / "nightly.toml"

REGRESSION, SCRIPTED, RANDOM = "regression", "scripted", "random"
KINDS = (REGRESSION, SCRIPTED, RANDOM)
"""In the order in which they run."""

_FIXED = {REGRESSION: "'seeds'", SCRIPTED: "a scenario"}

REPEATS = 5
"""Five repeats of a run of a minute take five minutes. If all of them have the finding, it occurs in at least 57 %
of the runs (95 % interval); if none has, in at most 43 %."""

_JOB_NAME = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_. -]{0,59}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NightlyJob:
    """One job of a plan.

    Attributes:
        name: Unique in the plan.
        experiment: A built-in experiment, a file, or the experiment itself as a table.
        scenario: A scripted scenario ("last-replica-standing:V3b"), or a family of them, instead of an experiment.
        system, world, hosts: Replace `system`, `on` and `inventory` of the experiment.
        profiles: The job runs with each of these; the experiment's own by default.
        seeds: Run these, once, instead of drawing seeds.
        weight: Share of the runs of its world, relative to the other random jobs.
        guided: Per cent of its runs that are mutations of runs that reached something new.
        repeats: How often a real run with a finding is repeated.
        hang_factor: A real run hangs after this many times its planned length (`harness.campaigns.real_runs`).
    """

    name: str
    experiment: str | dict[str, Any] = ""
    scenario: str = ""
    system: str = ""
    profiles: tuple[str, ...] = ()
    world: str = ""
    hosts: str = ""
    seeds: tuple[int, ...] = ()
    weight: Annotated[float, Meta(gt=0, le=1e6)] = 1.0
    guided: Annotated[int, Meta(ge=0, le=100)] = 0
    repeats: Annotated[int, Meta(ge=0, le=1000)] = REPEATS
    hang_factor: Annotated[float, Meta(gt=0, le=1000)] = HANG_FACTOR

    @property
    def kind(self) -> str:
        """What it is, and so when it runs."""
        return REGRESSION if self.seeds else SCRIPTED if self.scenario else RANDOM


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """One job with one profile and everything resolved.

    Attributes:
        name: Unique in the night; that of the job, with scenario and profile if it has several.
        kind: When it runs.
        experiment: What runs.
        weight: Its share among the random jobs.
        seeds: The seeds to run; empty if they are drawn.
        guided: The share of its runs that are mutations of runs that reached something new.
        repeats, hang_factor: As in the plan; without effect on simulated runs.
    """

    name: str
    kind: str
    experiment: Experiment
    weight: float
    seeds: tuple[int, ...] = ()
    guided: float = 0.0
    repeats: int = REPEATS
    hang_factor: float = HANG_FACTOR

    @property
    def is_simulated(self) -> bool:
        """Whether its runs are simulated."""
        return self.experiment.environment.is_simulated


def load_nightly(path: Path | None) -> tuple[PlannedJob, ...]:
    """Reads a plan and resolves its jobs; None for the built-in plan.

    Raises:
        UsageError: The file is missing or not TOML, or a key or value is wrong; the sentence names the line.
    """
    path = path or DEFAULT_PLAN
    return loads_nightly(read_plan_text(path), origin=str(path), folder=path.parent)


def read_plan_text(path: Path) -> str:
    """Returns the text of a plan file.

    Raises:
        UsageError: It cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(
            f"there is no plan {path}; `laststand nightly --print-plan` prints one to start from"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the plan {path}: {error}") from None


def loads_nightly(text: str, *, origin: str, folder: Path) -> tuple[PlannedJob, ...]:
    """Reads a plan from TOML text and resolves its jobs; see `load_nightly`.

    Args:
        text: The plan.
        origin: What messages call it.
        folder: Where the files that it names are.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{origin} is not valid TOML: {error}") from None
    for key in data:
        if key != "jobs":
            line = _line_of(text, key)
            raise UsageError(
                f"{origin}, line {line}: {unknown_name('key of a plan', key, ['jobs'])}"
            )
    jobs = data.get("jobs", [])
    if not isinstance(jobs, list) or not all(isinstance(job, Mapping) for job in jobs):
        raise UsageError(f"{origin}: 'jobs' must be an array of tables, [[jobs]]")
    if not jobs:
        raise UsageError(f"{origin} has no jobs; add a table [[jobs]]")
    planned: list[PlannedJob] = []
    for index, job in enumerate(jobs):
        planned += _planned(text, index, job, origin, folder)
    names = [job.name for job in planned]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise UsageError(f"{origin}: two jobs are called {name!r}")
    return tuple(planned)


def _planned(
    text: str, index: int, data: Mapping[str, Any], origin: str, folder: Path
) -> list[PlannedJob]:
    """Resolves one job; an error names the line of the key, or of the job."""

    def where(key: str = "") -> str:
        return f"{origin}, line {_line_of(text, key, index)}"

    known = [item.name for item in fields(NightlyJob)]
    for key in data:
        if key not in known:
            raise UsageError(f"{where(key)}: {unknown_name('key of a job', key, known)}")
    try:
        job = msgspec.convert(data, NightlyJob)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$.")
        key = re.split(r"[.\[`]", path)[0]
        problem = problem.replace("`", "").replace("Expected", "expected")
        name = f"jobs.{key}" if key else "jobs"
        raise UsageError(f"{where(key)}: {name}: {problem}") from None
    try:
        return _resolved(job, folder)
    except UsageError as error:
        raise UsageError(f"{where()}: job {job.name!r}: {error}") from None


def _resolved(job: NightlyJob, folder: Path) -> list[PlannedJob]:
    if not _JOB_NAME.fullmatch(job.name):
        raise UsageError("the name of a job has up to 60 letters, digits, ' ', '.', '-' and '_'")
    if bool(job.experiment) == bool(job.scenario):
        raise UsageError("give it either an experiment or a scenario")
    for seed in job.seeds:
        check_seed(seed)
    if job.guided and job.kind != RANDOM:
        raise UsageError(
            f"only a job that draws its seeds can be guided, and it has {_FIXED[job.kind]}"
        )
    planned = []
    for scenario in _scenarios(job):
        for profile in job.profiles or (None,):
            experiment = _experiment(job, scenario, profile, folder)
            if job.guided:
                check_guidable(experiment, "guided")
            words = [job.name]
            words += [scenario.partition(":")[2]] if scenario != job.scenario else []
            words += [experiment.profile] if len(job.profiles) > 1 else []
            planned.append(
                PlannedJob(
                    name=" ".join(words),
                    kind=job.kind,
                    experiment=experiment,
                    weight=job.weight / max(len(job.profiles), 1),
                    seeds=job.seeds,
                    guided=job.guided / 100,
                    repeats=job.repeats,
                    hang_factor=job.hang_factor,
                )
            )
    return planned


def _scenarios(job: NightlyJob) -> list[str]:
    """Returns the scenarios of a job: "" for none, one, or those of a family that can run where the job does."""
    name = job.scenario
    if name in FAMILIES:
        system = job.system.partition(":")[0] or REFERENCE
        family = FAMILIES[name].values()
        return [one.name for one in family if can_run(one, system, job.world or None)]
    return [find_by_name(name).name] if name else [""]


def _experiment(job: NightlyJob, scenario: str, profile: str | None, folder: Path) -> Experiment:
    hosts = str(folder / job.hosts) if job.hosts else None
    changes: dict[str, Any] = given(
        {"on": job.world or None, "inventory": hosts, "profile": profile}
    )
    changes |= experiments.split_system(job.system) if job.system else {}
    if scenario:
        return scenario_experiment(find_by_name(scenario), **changes)
    if isinstance(job.experiment, dict):
        return experiments.check_space(
            experiments.from_data({"name": job.name, **job.experiment, **changes})
        )
    built_in = BUILT_IN / f"{job.experiment}.toml"
    path = built_in if built_in.is_file() else folder / job.experiment
    if not path.is_file() and "/" not in job.experiment and not path.suffix:
        names = [one.stem for one in sorted(BUILT_IN.glob("*.toml")) if one != DEFAULT_PLAN]
        raise UsageError(unknown_name("built-in experiment", job.experiment, names))
    return experiments.load(path, **changes)


def _line_of(text: str, key: str, index: int | None = None) -> int:
    """Returns the line of a key, of the job if it is not found there, or of the top level.

    The standard library's parser keeps no positions. A key that is written in an unusual way, for example in
    quotes, is reported with the line of its job.
    """
    table, job_line = -1, 1
    for number, line in enumerate(text.splitlines(), start=1):
        if re.match(r"\s*\[\[\s*jobs\s*\]\]", line):
            table += 1
            if table == index:
                job_line = number
        is_here = index is None or table == index
        if key and is_here and re.match(rf"\s*(\[+\s*jobs\s*\.\s*)?{re.escape(key)}\b", line):
            return number
        if key and index is None and re.match(rf"\s*\[+\s*{re.escape(key)}\b", line):
            return number
    return job_line
