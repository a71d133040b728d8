"""`laststand run`: runs an experiment file."""

import argparse
from pathlib import Path

from harness import exit_codes
from harness.cli.options import (
    Subcommands,
    add_command,
    add_profile_option,
    add_single_run_options,
    add_space_option,
    add_system_option,
    add_world_options,
    positive_number,
    system_keys,
)
from harness.cli.output import print_json
from harness.cli.runs import run_and_judge


def add_parser(commands: Subcommands) -> None:
    """Adds the command."""
    parser = add_command(commands, "run", run, "run an experiment from a TOML file")
    parser.add_argument(
        "experiment", type=Path, metavar="EXPERIMENT", help="the experiment file (TOML)"
    )
    add_system_option(parser, "the file's")
    add_profile_option(parser, "the file's")
    add_world_options(parser, "the file's")
    add_space_option(parser)
    parser.add_argument(
        "--weather", metavar="NAME", help="use calm, light or stormy weather (default: the file's)"
    )
    parser.add_argument(
        "--duration-ms",
        type=positive_number,
        metavar="MS",
        help="run the workload for this many milliseconds of the world's time "
        "(default: the file's)",
    )
    parser.add_argument(
        "--stop-on-violation",
        action="store_true",
        help="end the workload and the faults as soon as what clients have seen contradicts the order in time (the"
        " final verdict finds more), then heal, read everything and judge: a run that was ended is never valid,"
        " even if an unclean election allows what it saw; a simulated run in which nothing is seen is the same as"
        " without this option",
    )
    parser.add_argument(
        "--coverage",
        action="store_true",
        help="count the marks, rule decisions, states and message orders that a simulated run reached, and print"
        " how close invariants came to failing; run.json lists what was reached, as coverage.features",
    )
    parser.add_argument(
        "--print-config",
        action="store_true",
        help="print the experiment with its defaults and exit",
    )
    add_single_run_options(parser)


def run(options: argparse.Namespace) -> int:
    """Runs an experiment from a file."""
    from harness.runs import experiment_file as experiments

    experiment = experiments.load(
        options.experiment,
        on=options.on,
        inventory=options.hosts,
        profile=options.profile,
        **system_keys(options),
        space=options.space,
        weather=options.weather,
        duration_ms=options.duration_ms,
        sim_wire=True if options.sim_wire else None,
        stop_on_violation=True if options.stop_on_violation else None,
    )
    if options.print_config:
        if options.json:
            print_json(experiments.to_data(experiment))
        else:
            print(experiments.dumps(experiment).rstrip())
        return exit_codes.VALID
    if options.coverage:
        from harness.runs.coverage import check_has_coverage

        check_has_coverage(experiment)
    return run_and_judge(options, experiment, file=options.experiment, coverage=options.coverage)
