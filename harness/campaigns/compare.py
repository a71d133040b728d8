"""Campaigns: many seeds, one setting (`swarm`) or several on the same seeds (`compare`).

The same seed means the same weather, the same fault schedule and the same client decisions in every
arm, so the arms are compared pair by pair (McNemar's exact test on the seeds on which they differ). Runs are
distributed by Spark, or by two local processes (`harness.campaigns.distribution`). Each run returns one row,
kept in `runs.jsonl` next to the report. Runs worth a closer look are listed with the command that repeats them.
"""

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from checkers.spark import SparkOptions
from harness.campaigns.distribution import Campaign, run_locally, run_on_spark
from harness.campaigns.one_by_one import run_one_by_one
from harness.campaigns.statistics import (
    mcnemar_exact_p,
    median,
    paired_difference_interval,
    wilson_interval,
)
from harness.contracts.progress import ProgressDisplay
from harness.errors import HarnessFailure, UsageError
from harness.runs import experiment_file as experiments
from harness.runs.experiment import Experiment

DISCORDANT_LISTED_MAX = 100
ATTENTION_LISTED_MAX = 100
"""A longer list would not be read; `runs.jsonl` has every run."""

RUNS_FILE = "runs.jsonl"
RESULT_FILE = "compare.json"


def compare(
    experiment: Experiment,
    *,
    vary: str,
    seeds: int,
    first_seed: int,
    spark: SparkOptions,
    progress: ProgressDisplay,
    directory: Path,
) -> dict[str, Any]:
    """Runs the same seeds in every arm and tests the difference.

    Args:
        experiment: What to run.
        vary: "key=value,value": a key of the experiment and its value in each arm.
        seeds: How many seeds.
        first_seed: The first of them.
        spark: Where to run.
        progress: Called with the number of finished runs.
        directory: Where rows and result are kept.

    Returns:
        The result: `arms`, `mcnemar_p` of the first two, `difference_interval`, `discordant` seeds with commands.

    Raises:
        UsageError: `vary` names no key or value of an experiment.
    """
    key, separator, values = vary.partition("=")
    names = [value for value in values.split(",") if value]
    if not separator or len(names) < 2 or len(set(names)) != len(names):
        raise UsageError(
            f"--vary takes a key and at least two different values, like "
            f"profile=kafka-4.0,kafka-4.1, not {vary!r}"
        )
    arms = {f"{key}={name}": experiments.vary(experiment, key, name) for name in names}
    if len({arm.on for arm in arms.values()}) > 1:
        raise UsageError(
            "the arms of a comparison run in one environment; to compare environments, replay a run in another "
            "(`laststand replay RUN --on docker`)"
        )
    campaign = _run(arms, seeds, first_seed, spark, progress, directory)
    commands = _Commands(arms, directory)
    result = {"vary": vary, **_result(experiment, arms, campaign, seeds, first_seed, commands)}
    return _keep(directory, result)


def swarm(
    experiment: Experiment,
    *,
    seeds: int,
    first_seed: int,
    spark: SparkOptions,
    progress: ProgressDisplay,
    directory: Path,
) -> dict[str, Any]:
    """Runs many seeds of one experiment; see `compare`."""
    arms = {f"profile={experiment.profile}": experiment}
    campaign = _run(arms, seeds, first_seed, spark, progress, directory)
    commands = _Commands(arms, directory)
    return _keep(directory, _result(experiment, arms, campaign, seeds, first_seed, commands))


def _run(
    arms: Mapping[str, Experiment],
    seeds: int,
    first_seed: int,
    spark: SparkOptions,
    progress: ProgressDisplay,
    directory: Path,
) -> Campaign:
    """Runs every seed in every arm; the rows are ordered by seed and arm."""
    directory.mkdir(parents=True, exist_ok=True)
    requests = [
        {"experiment": experiments.to_data(arm), "seed": seed, "arm": name}
        for seed in range(first_seed, first_seed + seeds)
        for name, arm in arms.items()
    ]
    if not next(iter(arms.values())).environment.is_simulated:
        campaign = run_one_by_one(requests, progress, directory)
    elif spark.enabled:
        campaign = run_on_spark(requests, spark, progress, directory)
    else:
        campaign = run_locally(requests, progress, directory)
    rows = campaign.rows
    if len(rows) != len(requests):
        raise HarnessFailure(f"{len(requests)} runs were requested, but {len(rows)} came back")
    order = {name: index for index, name in enumerate(arms)}
    rows.sort(key=lambda row: (row["seed"], order[row["arm"]]))
    with (directory / RUNS_FILE).open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, sort_keys=True) + "\n" for row in rows)
    return campaign


def _result(
    experiment: Experiment,
    arms: Mapping[str, Experiment],
    campaign: Campaign,
    seeds: int,
    first_seed: int,
    command: "_Commands",
) -> dict[str, Any]:
    rows = campaign.rows
    by_arm = {name: [row for row in rows if row["arm"] == name] for name in arms}
    totals = campaign.totals or {name: arm_totals(by_arm[name]) for name in arms}
    result: dict[str, Any] = {
        "experiment": experiment.name,
        "seeds": seeds,
        "first_seed": first_seed,
        "arms": [_arm(name, totals[name]) for name in arms],
        "mcnemar_p": None,
        "discordant": [],
        "attention": _attention(rows, command),
    }
    if len(arms) >= 2:
        first, second = list(arms)[:2]
        result.update(_paired(by_arm[first], by_arm[second], first, second, command))
    return result


def arm_totals(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the numbers of one arm; `checkers.jobs.distribute.totals_of` does the same in SQL.

    Runs that ended in an error count only as runs.
    """
    judged = [row for row in rows if not row["error"]]
    return {
        "runs": len(rows),
        "judged": len(judged),
        "runs_with_unexcused_loss": sum(row["unexcused_lost_records"] > 0 for row in judged),
        "unexcused_lost_records": sum(row["unexcused_lost_records"] for row in judged),
        "runs_with_excused_loss": sum(row["excused_lost_records"] > 0 for row in judged),
        "unavailable_ms_median": median([row["unavailable_ms"] for row in judged]),
        "valid": sum(row["verdict"] == "valid" for row in judged),
        "invalid": sum(row["verdict"] == "invalid" for row in judged),
        "unknown": sum(row["verdict"] == "unknown" for row in judged),
        "violations": sum(bool(row["violations"]) for row in judged),
        "wall_s": sum(row["wall_s"] for row in judged),
        "anomalies": _runs_by_anomaly(judged),
    }


def _runs_by_anomaly(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    runs: dict[tuple[str, str], int] = {}
    for row in rows:
        for key in sorted({(anomaly["id"], anomaly["judgement"]) for anomaly in row["anomalies"]}):
            runs[key] = runs.get(key, 0) + 1
    return [{"id": a, "judgement": j, "runs": n} for (a, j), n in sorted(runs.items())]


def _arm(name: str, totals: Mapping[str, Any]) -> dict[str, Any]:
    interval = wilson_interval(totals["runs_with_unexcused_loss"], totals["runs"])
    return {
        "name": name,
        **{key: number for key, number in totals.items() if key != "judged"},
        "loss_rate_interval": list(interval),
        "errors": totals["runs"] - totals["judged"],
    }


def _paired(
    first_rows: Sequence[Mapping[str, Any]],
    second_rows: Sequence[Mapping[str, Any]],
    first: str,
    second: str,
    command: "_Commands",
) -> dict[str, Any]:
    counts = {(True, True): 0, (True, False): 0, (False, True): 0, (False, False): 0}
    discordant = []
    for one, other in zip(first_rows, second_rows, strict=True):
        if one["error"] or other["error"]:
            continue
        lost = (one["unexcused_lost_records"], other["unexcused_lost_records"])
        counts[(lost[0] > 0, lost[1] > 0)] += 1
        if (lost[0] > 0) != (lost[1] > 0):
            discordant.append(
                {
                    "seed": one["seed"],
                    "losses": {first: lost[0], second: lost[1]},
                    "commands": {name: command(name, one["seed"]) for name in (first, second)},
                }
            )
    return {
        "mcnemar_p": mcnemar_exact_p(counts[(True, False)], counts[(False, True)]),
        "difference_interval": list(
            paired_difference_interval(
                counts[(True, True)],
                counts[(True, False)],
                counts[(False, True)],
                counts[(False, False)],
            )
        ),
        "discordant": discordant[:DISCORDANT_LISTED_MAX],
    }


def _attention(rows: Sequence[Mapping[str, Any]], command: "_Commands") -> list[dict[str, Any]]:
    """Runs that need attention, failures of the harness first, each with its command."""

    def urgency(row: Mapping[str, Any]) -> int:
        return 0 if row["error"] else 1 if row["violations"] else 2

    chosen = [
        row for row in rows if row["error"] or row["violations"] or row["verdict"] == "invalid"
    ]
    return [
        {
            "seed": row["seed"],
            "arm": row["arm"],
            "reason": (row["reasons"] or row["violations"])[0],
            "command": command(row["arm"], row["seed"]),
        }
        for row in sorted(chosen, key=urgency)[:ATTENTION_LISTED_MAX]
    ]


class _Commands:
    """Provides commands that repeat one run; stores every arm's experiment next to the result."""

    def __init__(self, arms: Mapping[str, Experiment], directory: Path) -> None:
        self._files = {}
        for index, (name, experiment) in enumerate(arms.items(), start=1):
            path = directory / f"arm-{index}.toml"
            path.write_text(experiments.dumps(experiment), encoding="utf-8")
            self._files[name] = path

    def __call__(self, arm: str, seed: int) -> str:
        """Returns the command line."""
        return f"laststand run {shlex.quote(str(self._files[arm]))} --seed {seed}"


def _keep(directory: Path, result: dict[str, Any]) -> dict[str, Any]:
    (directory / RESULT_FILE).write_text(
        json.dumps(result, sort_keys=True, indent=2) + "\n", encoding="utf-8"
    )
    return result
