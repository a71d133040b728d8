"""`laststand replay`: runs a stored run again, in the simulation, in another world, or on another system."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

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
from harness.cli.repeating import repeat_elsewhere, repeat_parts
from harness.cli.runs import EXIT_CODE_OF, open_store, print_run, spark_for, worst_exit_code
from harness.errors import HarnessFailure, UsageError
from results.layout import RunFiles
from results.store import RunStore, read_json, write_json

if TYPE_CHECKING:
    from harness.runs.experiment import Experiment

ATTEMPTS = 3


def add_parser(commands: Subcommands) -> None:
    """Adds the command."""
    parser = add_command(commands, "replay", replay, "run a stored run again, here or elsewhere")
    add_run_argument(parser)
    add_world_options(parser, "the run's own; a simulated one is repeated exactly")
    add_system_option(parser, "the run's own")
    parser.add_argument(
        "--attempts",
        type=positive_number,
        metavar="N",
        help=f"outside the simulation, where no run is repeatable, run N times (default: {ATTEMPTS})",
    )
    add_judging_options(parser)


def replay(options: argparse.Namespace) -> int:
    """Runs a stored run again.

    In its own world, the simulation, a different trace hash is a failure whose message gives the cause. Everywhere
    else, and on another system, the result is how often the stored finding was reproduced.
    """
    from harness.runs.execute import judge, record
    from harness.runs.experiment_file import check_hosts_used
    from harness.runs.replay import load_replay

    store = open_store(options, to_write=True)
    spark = spark_for(options, store)
    original = store.find(options.run)
    experiment, seed, stored = load_replay(original)
    check_hosts_used(options.hosts, options.on or experiment.on)
    differs = _differs(options, experiment)
    _check_attempts(options.attempts, options.on or experiment.on)
    options.attempts = options.attempts or ATTEMPTS
    if differs or not experiment.environment.is_simulated:
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
        else "the code is the same, so the simulation is not deterministic, or the stored experiment was changed"
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


def _check_attempts(attempts: int | None, on: str) -> None:
    """Refuses several attempts where all of them would be the same run.

    Raises:
        UsageError: There are several, in the simulation.
    """
    from harness.environments.registry import ENVIRONMENTS

    if attempts is not None and attempts > 1 and ENVIRONMENTS[on].is_simulated:
        raise UsageError(
            f"--attempts is {attempts}, but a simulated run is the same every time; leave it out, or add "
            "--on local, docker or ssh"
        )


def _repeat(
    options: argparse.Namespace,
    store: RunStore,
    original: Path,
    experiment: "Experiment",
    seed: int,
) -> int:
    """Runs the stored schedule where no run is repeatable, and reports how often its finding was reproduced."""
    data, summaries = repeat_elsewhere(options, store, original, experiment, seed)
    if options.json:
        print_json(data)
    else:
        show(*repeat_parts(data, summaries))
    return worst_exit_code(summaries) if summaries else exit_codes.UNKNOWN
