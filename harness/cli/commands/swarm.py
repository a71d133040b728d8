"""`laststand swarm`: runs many seeds of one experiment."""

import argparse

from harness.cli.campaigns import BUILT_IN_EXPERIMENT, run_campaign
from harness.cli.options import (
    Subcommands,
    add_campaign_options,
    add_command,
    add_profile_option,
    add_world_options,
)


def add_parser(commands: Subcommands) -> None:
    """Adds the command."""
    parser = add_command(commands, "swarm", swarm, "run many seeds of one experiment")
    add_profile_option(parser, "the file's")
    add_world_options(parser, "the file's")
    add_campaign_options(parser, 1000)


def swarm(options: argparse.Namespace) -> int:
    """Runs many seeds of one experiment."""
    from harness.runs import experiment_file as experiments

    experiment = experiments.load(
        options.experiment or BUILT_IN_EXPERIMENT,
        profile=options.profile,
        on=options.on,
        inventory=options.hosts,
    )
    return run_campaign(options, experiment, vary=None)
