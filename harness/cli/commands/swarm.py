"""`laststand swarm`: runs many seeds of one experiment."""

import argparse

from harness.cli.campaigns import BUILT_IN_EXPERIMENT, start_or_resume
from harness.cli.options import (
    Subcommands,
    add_campaign_options,
    add_command,
    add_guided_option,
    add_profile_option,
    add_space_option,
    add_system_option,
    add_world_options,
    system_keys,
)

SEEDS = 1000


def add_parser(commands: Subcommands) -> None:
    """Adds the command."""
    parser = add_command(commands, "swarm", swarm, "run many seeds of one experiment")
    add_system_option(parser, "the file's")
    add_profile_option(parser, "the file's")
    add_world_options(parser, "the file's")
    add_space_option(parser)
    add_campaign_options(parser, SEEDS)
    add_guided_option(parser)
    parser.add_argument(
        "--coverage",
        action="store_true",
        help="count what the runs reached, as a guided swarm does, without guiding them",
    )


def swarm(options: argparse.Namespace) -> int:
    """Runs many seeds of one experiment."""
    from harness.campaigns.compare import swarm_plan
    from harness.runs import experiment_file as experiments

    return start_or_resume(
        options,
        "swarm",
        lambda: experiments.load(
            options.experiment or BUILT_IN_EXPERIMENT,
            profile=options.profile,
            **system_keys(options),
            on=options.on,
            inventory=options.hosts,
            space=options.space,
        ),
        lambda experiment, numbers, _: swarm_plan(
            experiment, **numbers, guided=(options.guided or 0) / 100, coverage=options.coverage
        ),
        default_seeds=SEEDS,
    )
