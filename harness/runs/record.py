"""From an experiment to a stored, judged and reported run.

    simulate -> history/ -> check (Spark, or kernels in this process) -> verdict.json, run.json -> report.html

Each arrow leaves its result on disk before the next begins, so the history exists whatever fails later, and
`laststand check` and `laststand report` continue from it.
"""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from checkers.kernels.verdict_json import verdict_to_json
from harness.contracts.verdict import Verdict
from harness.errors import HarnessError, UsageError
from harness.runs import experiment_file as experiments
from harness.runs import real
from harness.runs.coverage import coverage_of
from harness.runs.experiment import Experiment
from harness.runs.judge import summarize, verdict_summary
from harness.runs.phases import Progress
from harness.runs.recovery import LATE, compared_recovery
from harness.runs.replay import replay_data
from harness.runs.resolved import resolve
from harness.runs.result import RunResult
from harness.runs.simulated import check_possible, simulate
from results.history_files import read_table, write_tables
from results.layout import RunFiles, utc_stamp
from results.report.build import build_report
from results.store import RunStore, read_json, write_json


def check_world(experiment: Experiment, first_seed: int, seeds: int = 1) -> None:
    """Raises `UsageError` if the experiment is not possible in its environment; starts and stores nothing.

    Args:
        experiment: What is to be run.
        first_seed: The first seed.
        seeds: How many seeds. In the simulation every fault is possible, so one seed represents all.
    """
    if experiment.environment.is_simulated:
        check_possible(resolve(experiment, first_seed).experiment, first_seed)
    elif not experiment.space:
        real.check_possible(experiment, range(first_seed, first_seed + seeds))
    else:
        for seed in range(first_seed, first_seed + seeds):
            real.check_possible(resolve(experiment, seed).experiment, (seed,))


def record_run(
    experiment: Experiment,
    seed: int,
    store: RunStore,
    *,
    now: datetime,
    progress: Progress | None = None,
    folder: str = "",
    coverage: bool = False,
) -> tuple[Path, RunResult]:
    """Runs an experiment and stores everything that is needed to judge and to replay it.

    Args:
        experiment: What to run; if it has a space, what the seed draws from it.
        seed: Its root seed.
        store: Where it is stored.
        now: Part of the run's name.
        progress: Called with the name of a phase and the fraction of it that is done.
        folder: The folder of the run in the store; the experiment's name by default.
        coverage: Whether `run.json` states what a simulated run reached.

    Returns:
        The run directory and what happened.

    Raises:
        UsageError: The experiment is not possible in its environment; nothing was stored.
    """
    experiment, drawn = resolve(experiment, seed)
    check_world(experiment, seed)
    directory = store.create(folder or experiment.name, seed, stamp=utc_stamp(now))
    files = RunFiles(directory)
    files.experiment.write_text(experiments.dumps(experiment), encoding="utf-8")
    if experiment.environment.is_simulated:
        result = simulate(
            experiment, seed, directory=directory, progress=progress, records_decisions=coverage
        )
    else:
        result = real.run_real(experiment, seed, directory=directory, progress=progress)
    result.drawn = drawn
    reached = {"coverage": coverage_of(result).to_json()} if coverage else {}
    _store_summary(directory, store.run_id(directory), experiment, seed, result, reached)
    return directory, result


def store_run(
    directory: Path,
    run_id: str,
    experiment: Experiment,
    seed: int,
    result: RunResult,
    verdict: Verdict | None,
    *,
    place: Path,
) -> None:
    """Stores a run that is in memory only; the directory has the same files as after `record_run`.

    Args:
        directory: An existing, empty directory.
        run_id: The run's name in its store.
        experiment: What was run.
        seed: Its root seed.
        result: What happened.
        verdict: None if it could not be judged; then there is no report either.
        place: See `finish_run`.
    """
    RunFiles(directory).experiment.write_text(experiments.dumps(experiment), encoding="utf-8")
    write_tables(directory, result.tables)
    _store_summary(directory, run_id, experiment, seed, result)
    if verdict is not None:
        finish_run(directory, run_id, verdict, place=place)


def _store_summary(
    directory: Path,
    run_id: str,
    experiment: Experiment,
    seed: int,
    result: RunResult,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    files = RunFiles(directory)
    write_json(files.replay, replay_data(experiment, seed, result))
    write_json(files.run, {**summarize(experiment, seed, result, None), "run": run_id, **more})


def finish_run(
    directory: Path, run_id: str, verdict: Verdict, *, place: Path | None = None
) -> dict[str, Any]:
    """Stores a verdict, and the report that shows it; returns the summary.

    If rendering the report fails, the summary says so; nothing else changes.

    Args:
        directory: The run's directory.
        run_id: The run's name in its store.
        verdict: Of the run.
        place: What the directory will be renamed to, which the report names; by default it stays where it is.
    """
    files = RunFiles(directory)
    write_json(files.verdict, verdict_to_json(verdict))
    summary = read_json(files.run) if files.run.exists() else _unfinished_summary(directory)
    summary.setdefault("run", run_id)
    summary.update(verdict_summary(verdict))
    if {one.id for one in verdict.anomalies} & LATE and "recovery" not in summary:
        summary.update(_recovery(directory))
    write_json(files.run, summary)
    try:
        build_report(directory, place=place)
    except Exception as error:  # the verdict must not depend on a plot
        summary["report_error"] = f"{type(error).__name__}: {error}"
        write_json(files.run, summary)
    return summary


def _recovery(directory: Path) -> dict[str, str]:
    """Returns how long the run took to recover, and the same seed without faults; nothing if that is not known."""
    try:
        facts = {"run_facts": read_table(directory, "run_facts")}
        sentence = compared_recovery(directory, facts)
    except HarnessError:
        return {}  # there is too little of the run to repeat it
    return {"recovery": sentence} if sentence else {}


def _unfinished_summary(directory: Path) -> dict[str, Any]:
    """Returns what is known of a run whose harness died: its experiment, and the seed in its name."""
    try:
        experiment = experiments.load(RunFiles(directory).experiment)
    except UsageError:
        return {"experiment": "", "profile": "", "seed": None, "trace_hash": ""}
    seed = directory.resolve().name[17:].partition("-")[0]
    return {
        "experiment": experiment.name,
        "profile": experiment.profile,
        "on": experiment.on,
        "seed": int(seed) if seed.isdecimal() else None,
        "trace_hash": "",
    }
