"""`laststand compare`: runs the same seeds under several settings."""

import argparse
from typing import TYPE_CHECKING

from harness.cli.campaigns import BUILT_IN_EXPERIMENT, start_or_resume
from harness.cli.options import (
    GivenOnce,
    Subcommands,
    add_campaign_options,
    add_command,
    add_space_option,
    add_system_option,
    add_world_options,
    system_keys,
)
from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.campaigns.plan import CampaignPlan
    from harness.runs.experiment import Experiment

SEEDS = 200


def add_parser(commands: Subcommands) -> None:
    """Adds the command."""
    parser = add_command(
        commands,
        "compare",
        compare,
        "run the same seeds and schedules under several settings and compare statistics",
    )
    parser.add_argument(
        "--vary",
        action=GivenOnce,
        metavar="KEY=A,B",
        help="compare these values of this key: system=reference,apache-kafka:4.1.2, version=4.0.2,4.1.2, "
        "elr=off,on (eligible leader replicas), profile=kafka-4.0,kafka-4.1, or any other key of an experiment",
    )
    add_system_option(parser, "the file's")
    add_world_options(parser, "the file's")
    add_space_option(parser)
    add_campaign_options(parser, SEEDS)


def compare(options: argparse.Namespace) -> int:
    """Runs the same seeds under several settings and tests the differences."""
    from harness.campaigns.compare import compare_plan
    from harness.runs import experiment_file as experiments

    if options.vary is None and options.resume is None:
        raise UsageError("the option --vary is required, for example profile=kafka-4.0,kafka-4.1")

    def plan(experiment: "Experiment", numbers: dict[str, int], vary: str) -> "CampaignPlan":
        return compare_plan(experiment, vary=vary, **numbers)

    return start_or_resume(
        options,
        "compare",
        lambda: experiments.load(
            options.experiment or BUILT_IN_EXPERIMENT,
            on=options.on,
            inventory=options.hosts,
            space=options.space,
            **system_keys(options),
        ),
        plan,
        default_seeds=SEEDS,
    )
