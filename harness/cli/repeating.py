"""Repeats a stored run in another world or on another system, where no run is repeatable, several times."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cli.options import system_keys
from harness.cli.progress import StandardErrorProgress
from harness.cli.runs import spark_for
from harness.errors import UsageError
from results.layout import RunFiles
from results.store import RunStore, read_json, write_json

if TYPE_CHECKING:
    from rich.console import RenderableType

    from harness.runs.experiment import Experiment

NOT_EXPRESSIBLE = "cannot be expressed"


def repeat_elsewhere(
    options: argparse.Namespace,
    store: RunStore,
    original: Path,
    experiment: "Experiment",
    seed: int,
    *,
    finding: str = "",
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Runs a stored schedule where the command line names, and counts how often its finding was reproduced.

    Args:
        options: `on`, `hosts`, `system`, `attempts`, `quiet`, and the options of Spark.
        store: Where the runs are stored.
        original: The run to repeat.
        experiment: Its experiment, with the schedule as data.
        seed: Its seed.
        finding: What counts as reproduced, as `finding_of` names it; empty for what the verdict names first.

    Returns:
        JSON-compatible data with the `result`, and the summaries of the runs. If the other world or system cannot
        run the experiment, the result is `NOT_EXPRESSIBLE`, with a `reason`, and there are no runs.
    """
    from harness.runs import experiment_file as experiments
    from harness.runs.execute import judge, record
    from harness.runs.outcomes import confirms, finding_of
    from harness.runs.real import check_programs
    from harness.runs.record import check_world

    spark = spark_for(options, store)
    finding = finding or finding_of(read_json(RunFiles(original).run))
    data: dict[str, Any] = {
        "replay_of": store.run_id(original),
        "of": _place(experiment),
        "on": options.on or experiment.on,
        "finding": finding,
        "attempts": options.attempts,
    }
    try:
        elsewhere = experiments.changed(
            experiment, on=options.on, inventory=options.hosts, **system_keys(options)
        )
    except UsageError as error:
        return {**data, "result": NOT_EXPRESSIBLE, "reason": str(error)}, []
    if not elsewhere.environment.is_simulated:
        check_programs(elsewhere)
    try:
        check_world(elsewhere, seed)
    except UsageError as error:
        return {**data, "result": NOT_EXPRESSIBLE, "reason": str(error)}, []
    # Simulated runs of one seed are all the same run.
    attempts = 1 if elsewhere.environment.is_simulated else options.attempts
    data |= {"attempts": attempts, "at": _place(elsewhere)}
    with StandardErrorProgress(quiet=options.quiet) as progress:
        directories = [record(elsewhere, seed, store, progress) for _ in range(attempts)]
        summaries = judge(directories, store, spark, progress)
    confirmed = sum(confirms(summary, finding) for summary in summaries)
    for directory, summary in zip(directories, summaries, strict=True):
        summary["replay_of"] = data["replay_of"]
        write_json(RunFiles(directory).run, summary)
        store.publish(directory)
    data["confirmed"] = confirmed
    data["result"] = f"confirmed {confirmed} of {attempts}" if confirmed else "not reproduced"
    data["runs"] = [summary["run"] for summary in summaries]
    return data | _comparison(experiment, elsewhere), summaries


def repeat_parts(data: dict[str, Any], summaries: list[dict[str, Any]]) -> "list[RenderableType]":
    """Returns what the repeats showed as a table and lines."""
    from harness.runs.outcomes import finding_of
    from results.tables import line, table

    if data["result"] == NOT_EXPRESSIBLE:
        return [line(f"{NOT_EXPRESSIBLE} on {data['on']}: {data['reason']}")]
    rows = [
        (
            str(summary["verdict"]),
            finding_of(summary),
            str(summary["unexcused_lost_records"]),
            str(summary["run"]),
        )
        for summary in summaries
    ]
    return [
        table(("verdict", "finding", "lost", "run"), rows, right={"lost"}),
        *(line(f"equal: {sentence}") for sentence in data["equal"]),
        *(line(f"not equal: {sentence}") for sentence in data["not_equal"]),
        line(
            f"{data['replay_of']} ({data['of']}) found {data['finding']!r}; "
            f"on {data['at']}: {data['result']}"
        ),
    ]


def _place(experiment: "Experiment") -> str:
    """Returns what ran where, for example "apache-kafka 4.1.2, kafka-4.1, docker"."""
    system = f"{experiment.system} {experiment.version}".strip()
    return f"{system}, {experiment.profile}, {experiment.on}"


def _comparison(old: "Experiment", new: "Experiment") -> dict[str, list[str]]:
    """Returns what is equal in both runs by construction, and what cannot be, as sentences."""
    from harness.runs.promises import promises_of

    if new.scenario:
        equal = ["the steps of the scenario"]
    else:
        equal = [f"the schedule ({len(new.schedule)} faults), the topics and the workload"]
    unequal = []
    if not old.environment.is_simulated or not new.environment.is_simulated:
        unequal.append("the order and the results of operations, because time is real")
        unequal.append("the node that a target such as leader:t-0 names at that moment")
    if new.time_scale != old.time_scale:
        unequal.append(
            f"the times: all are multiplied by {new.time_scale:g} instead of {old.time_scale:g}"
        )
    if promises_of(new).elr_on != promises_of(old).elr_on:
        state = "on" if promises_of(new).elr_on else "off"
        unequal.append(f"what is promised: eligible leader replicas are {state} now")
    return {"equal": equal, "not_equal": unequal}
