"""The requests of a campaign's plan, and the command that repeats a run."""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.campaigns.crew import Request
from harness.campaigns.files import CORPUS_FOLDER
from harness.campaigns.kept_runs import KeptRuns
from harness.campaigns.plan import CampaignPlan
from harness.runs import experiment_file as experiments


def requests_of(plan: CampaignPlan, kept: KeptRuns) -> Iterator[Request]:
    """Yields the requests of a plan, in order; each is made when it is needed."""
    experiments_data = {name: experiments.to_data(arm) for name, arm in plan.arms.items()}
    for index, (arm, seed) in enumerate(plan.keys()):
        yield {
            "experiment": experiments_data[arm],
            "seed": seed,
            "arm": arm,
            "run": f"arm-{plan.arm_number(arm)}/{plan.started}-{seed}",
            "index": index,
            "keep": kept.wants(index),
        }


def run_command(experiment: Path, seed: int) -> str:
    """Returns the command line that runs an experiment file with a seed."""
    return f"laststand run {shlex.quote(str(experiment))} --seed {seed}"


def mutant_command(directory: Path, search: Mapping[str, Any]) -> str:
    """Returns the command line that repeats a guided run whose experiment a campaign has stored.

    Args:
        directory: Of the campaign.
        search: What the search says of the run: `search` of its row, with `file` and `root_seed`.
    """
    return run_command(directory / CORPUS_FOLDER / search["file"], search["root_seed"])
