"""The replay file: what is needed to run a stored run again."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.errors import HistoryError, UsageError
from harness.runs import experiment_file as experiments
from harness.runs.code_version import code_version
from harness.runs.experiment import Experiment
from harness.runs.planned import unscaled
from harness.runs.result import RunResult
from harness.scenarios import find_by_name
from harness.seeds import check_seed
from nemesis.fault import fault_from_json
from results.layout import RunFiles
from results.store import read_json

REPLAY_SCHEMA = 1


def replay_data(experiment: Experiment, seed: int, result: RunResult) -> dict[str, Any]:
    """Returns the replay file's content."""
    data: dict[str, Any] = {
        "schema": REPLAY_SCHEMA,
        "code": code_version(),
        "seed": seed,
        "experiment": experiments.to_data(experiment),
        "drawn": result.drawn,
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
            experiment = replace(experiment, schedule=unscaled(schedule, experiment))
    except (KeyError, TypeError, AttributeError, UsageError) as error:
        raise HistoryError(f"{path} is damaged: {error}") from None
    return experiment, data["seed"], data
