"""From an experiment to a stored, judged and reported run.

    simulate -> history/ -> check (Spark, or kernels in this process) -> verdict.json, run.json -> report.html

Each arrow leaves its result on disk before the next begins, so whatever fails later, the history is there and
`laststand check` and `laststand report` go on from it.
"""

import hashlib
import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from checkers.kernels.verdict_json import verdict_to_json
from harness import experiment as experiments
from harness import real_run
from harness.contracts.verdict import Verdict
from harness.errors import HistoryError, UsageError
from harness.experiment import Experiment
from harness.judge import summarize, verdict_summary
from harness.phases import Progress
from harness.runner import SimulationResult, check_possible, simulate
from harness.scenarios import find_by_name
from harness.seeds import check_seed
from nemesis.fault import fault_from_json
from results.layout import RunFiles, utc_stamp
from results.report import build_report
from results.store import RunStore, read_json, write_json

PACKAGES = ("harness", "nemesis", "workloads", "checkers", "system_under_test")
REPLAY_SCHEMA = 1


def code_version() -> str:
    """Returns a hash of the code that decides a run: its Python sources, in order of their names."""
    digest = hashlib.blake2b(digest_size=8)
    root = Path(__file__).parent.parent
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def check_world(experiment: Experiment, seed: int) -> None:
    """Raises `UsageError` if an experiment's world cannot carry it out; starts and stores nothing."""
    is_simulated = experiment.on == experiments.SIMULATION
    (check_possible if is_simulated else real_run.check_possible)(experiment, seed)


def record_run(
    experiment: Experiment,
    seed: int,
    store: RunStore,
    *,
    now: datetime,
    progress: Progress | None = None,
) -> tuple[Path, SimulationResult]:
    """Carries out a run and stores everything that is needed to judge and to replay.

    Returns:
        The run directory and what happened.

    Raises:
        UsageError: The simulation cannot carry out this experiment; nothing was stored.
    """
    check_world(experiment, seed)
    is_simulated = experiment.on == experiments.SIMULATION
    directory = store.create(experiment.name, seed, stamp=utc_stamp(now))
    files = RunFiles(directory)
    files.experiment.write_text(experiments.dumps(experiment), encoding="utf-8")
    carry_out = simulate if is_simulated else real_run.run_real
    result = carry_out(experiment, seed, directory=directory, progress=progress)
    write_json(files.replay, replay_data(experiment, seed, result))
    summary = summarize(experiment, seed, result, None)
    write_json(files.run, {**summary, "run": store.run_id(directory)})
    return directory, result


def finish_run(directory: Path, run_id: str, verdict: Verdict) -> dict[str, Any]:
    """Stores a verdict, and the report that shows it; returns the summary.

    A report that cannot be rendered is said so in the summary and changes nothing else.
    """
    files = RunFiles(directory)
    write_json(files.verdict, verdict_to_json(verdict))
    summary = read_json(files.run) if files.run.exists() else _unfinished_summary(directory)
    summary.setdefault("run", run_id)
    summary.update(verdict_summary(verdict))
    write_json(files.run, summary)
    try:
        build_report(directory)
    except Exception as error:  # the verdict must not depend on a plot
        summary["report_error"] = f"{type(error).__name__}: {error}"
        write_json(files.run, summary)
    return summary


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


def replay_data(experiment: Experiment, seed: int, result: SimulationResult) -> dict[str, Any]:
    """Returns the replay file's content."""
    data: dict[str, Any] = {
        "schema": REPLAY_SCHEMA,
        "code": code_version(),
        "seed": seed,
        "experiment": experiments.to_data(experiment),
        "weather": result.weather,
        "schedule": [
            {**fault.to_json(), "resolved": list(result.resolved.get(fault.id, ()))}
            for fault in result.schedule
        ],
        "trace_hash": result.trace_hash,
    }
    if experiment.scenario:
        data["steps"] = find_by_name(experiment.scenario).steps_json()
    return data


def load_replay(directory: Path) -> tuple[Experiment, int, dict[str, Any]]:
    """Reads a replay file: the experiment with its schedule as data, the seed, and the file itself.

    Raises:
        HistoryError: The run has no replay file, or it is not one of ours.
    """
    path = RunFiles(directory).replay
    try:
        data = read_json(path)
    except FileNotFoundError:
        raise HistoryError(f"{directory} has no replay.json, so it cannot be replayed") from None
    if data.get("schema") != REPLAY_SCHEMA:
        raise HistoryError(f"{path} is not a replay file of schema {REPLAY_SCHEMA}")
    for key, kind in (("seed", int), ("trace_hash", str), ("code", str)):
        if type(data.get(key)) is not kind:
            raise HistoryError(f"{path} is damaged: it has no valid {key!r}")
    try:
        check_seed(data["seed"])
        experiment = experiments.from_data(data["experiment"])
        schedule = tuple(
            fault_from_json(
                {key: value for key, value in entry.items() if key != "resolved"},
                default_id=f"f{index}",
            )
            for index, entry in enumerate(data["schedule"])
        )
        if not experiment.scenario:
            experiment = replace(experiment, schedule=schedule)
    except (KeyError, TypeError, AttributeError, UsageError) as error:
        raise HistoryError(f"{path} is damaged: {error}") from None
    return experiment, data["seed"], data


def to_json_line(data: Any) -> str:
    """Returns one line of JSON with sorted keys."""
    return json.dumps(data, sort_keys=True, default=str)
