"""`laststand compare`: runs the same seeds under several settings."""

import argparse

from harness.cli.campaigns import BUILT_IN_EXPERIMENT, run_campaign
from harness.cli.options import Subcommands, add_campaign_options, add_command, add_world_options


def add_parser(commands: Subcommands) -> None:
    """Adds the command."""
    parser = add_command(
        commands, "compare", compare, "run the same seeds under two settings and compare statistics"
    )
    parser.add_argument(
        "--vary",
        required=True,
        metavar="KEY=A,B",
        help="compare these values of this key, for example profile=kafka-4.0,kafka-4.1",
    )
    add_world_options(parser, "the file's")
    add_campaign_options(parser, 200)


def compare(options: argparse.Namespace) -> int:
    """Runs the same seeds under two settings and tests the difference."""
    from harness.runs import experiment_file as experiments

    experiment = experiments.load(
        options.experiment or BUILT_IN_EXPERIMENT, on=options.on, inventory=options.hosts
    )
    return run_campaign(options, experiment, vary=options.vary)
