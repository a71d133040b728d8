"""`laststand replay`: runs a stored run again, in the simulation, in another world, or on another system."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import exit_codes
from harness.cli.options import (
    Subcommands,
    add_command,
    add_judging_options,
    add_run_argument,
    add_system_option,
    add_world_options,
    positive_number,
    system_keys,
)
from harness.cli.output import print_json, show
from harness.cli.progress import StandardErrorProgress
from harness.cli.runs import EXIT_CODE_OF, open_store, print_run, spark_for, worst_exit_code
from harness.errors import HarnessFailure, UsageError
from results.layout import RunFiles
from results.store import RunStore, read_json, write_json

if TYPE_CHECKING:
    from harness.runs.experiment import Experiment


def add_parser(commands: Subcommands) -> None:
    """Adds the command."""
    parser = add_command(commands, "replay", replay, "run a stored run again, here or elsewhere")
    add_run_argument(parser)
    add_world_options(parser, "the run's own; a simulated one is repeated exactly")
    add_system_option(parser, "the run's own")
    parser.add_argument(
        "--attempts",
        type=positive_number,
        default=3,
        metavar="N",
        help="run N times where runs are not repeatable (default: %(default)s)",
    )
    add_judging_options(parser)


def replay(options: argparse.Namespace) -> int:
    """Runs a stored run again.

    In its own world, the simulation, a different trace hash is a failure whose message gives the cause. Everywhere
    else, and on another system, the result is how often the stored finding was reproduced.
    """
    from harness.runs.execute import judge, record
    from harness.runs.replay import load_replay

    store = open_store(options, to_write=True)
    spark = spark_for(options, store)
    original = store.find(options.run)
    experiment, seed, stored = load_replay(original)
    if _differs(options, experiment) or not experiment.environment.is_simulated:
        return _repeat(options, store, original, experiment, seed)
    with StandardErrorProgress(quiet=options.quiet) as progress:
        directory = record(experiment, seed, store, progress)
        again = read_json(RunFiles(directory).replay)
        (summary,) = judge([directory], store, spark, progress)
    is_same = again["trace_hash"] == stored["trace_hash"]
    summary["replay_of"] = store.run_id(original)
    summary["same_trace"] = is_same
    write_json(RunFiles(directory).run, summary)
    store.publish(directory)
    print_run(options, directory, summary)
    if is_same:
        return EXIT_CODE_OF[summary["verdict"]]
    cause = (
        "the code has changed since that run"
        if again["code"] != stored["code"]
        else "the code is the same, so the simulation is not deterministic"
    )
    raise HarnessFailure(
        f"trace hash {again['trace_hash']} differs from the stored {stored['trace_hash']}: {cause}"
    )


def _differs(options: argparse.Namespace, experiment: "Experiment") -> bool:
    """Returns whether the command line names another world or system than the run's.

    Raises:
        UsageError: There is no such world, system or version.
    """
    from harness.environments.registry import ENVIRONMENTS
    from harness.runs.experiment import check_choice
    from harness.runs.experiment_file import find_system

    if options.on is not None:
        check_choice("environment", options.on, ENVIRONMENTS)
    keys = system_keys(options)
    if keys:
        find_system(**keys)
    own = {"system": experiment.system, "version": experiment.version}
    return options.on not in (None, experiment.on) or keys not in ({}, own)


def _repeat(
    options: argparse.Namespace,
    store: RunStore,
    original: Path,
    experiment: "Experiment",
    seed: int,
) -> int:
    """Runs the stored schedule where no run is repeatable, and counts how often its finding was reproduced."""
    from harness.runs import experiment_file as experiments
    from harness.runs.execute import judge, record
    from harness.runs.outcomes import confirms, finding_of
    from harness.runs.real import check_programs
    from harness.runs.record import check_world

    spark = spark_for(options, store)
    finding = finding_of(read_json(RunFiles(original).run))
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
        return _not_expressible(options, data, error)
    if not elsewhere.environment.is_simulated:
        check_programs(elsewhere)
    try:
        check_world(elsewhere, seed)
    except UsageError as error:
        return _not_expressible(options, data, error)
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
    data["result"] = f"confirmed {confirmed} of {attempts}" if confirmed else "not reproduced"
    data |= _comparison(experiment, elsewhere)
    _show(options, data, summaries)
    return worst_exit_code(summaries)


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


def _not_expressible(options: argparse.Namespace, data: dict[str, Any], error: UsageError) -> int:
    from results.tables import line

    if options.json:
        print_json({**data, "result": "cannot be expressed", "reason": str(error)})
    else:
        show(line(f"cannot be expressed on {data['on']}: {error}"))
    return exit_codes.UNKNOWN


def _show(
    options: argparse.Namespace, data: dict[str, Any], summaries: list[dict[str, Any]]
) -> None:
    from harness.runs.outcomes import finding_of
    from results.tables import line, table

    if options.json:
        print_json({**data, "runs": [summary["run"] for summary in summaries]})
        return
    rows = [
        (
            str(summary["verdict"]),
            finding_of(summary),
            str(summary["unexcused_lost_records"]),
            str(summary["run"]),
        )
        for summary in summaries
    ]
    show(
        table(("verdict", "finding", "lost", "run"), rows, right={"lost"}),
        *(line(f"equal: {sentence}") for sentence in data["equal"]),
        *(line(f"not equal: {sentence}") for sentence in data["not_equal"]),
        line(
            f"{data['replay_of']} ({data['of']}) found {data['finding']!r}; "
            f"on {data['at']}: {data['result']}"
        ),
    )
