"""The experiment of one seed: what the seed draws from the space is set, and nothing is left to draw."""

from typing import Any, NamedTuple

from harness.runs import experiment_file as experiments
from harness.runs.experiment import Experiment
from harness.runs.space import draw
from harness.simulation.randomness import RandomTree


class Resolved(NamedTuple):
    """What one seed runs.

    Attributes:
        experiment: Without a space.
        drawn: What the seed drew, by key; empty if the experiment has no space.
    """

    experiment: Experiment
    drawn: dict[str, Any]


def resolve(experiment: Experiment, seed: int) -> Resolved:
    """Returns what a seed runs; an experiment without a space is returned as it is.

    Raises:
        UsageError: The seed draws what no experiment can have.
    """
    if not experiment.space:
        return Resolved(experiment, {})
    tree = RandomTree(seed)
    drawn = draw(
        experiment.space, experiments.to_data(experiment), lambda key: tree.stream("space", key)
    )
    as_listed = {
        key: list(value) if isinstance(value, tuple) else value for key, value in drawn.items()
    }
    return Resolved(experiments.with_drawn(experiment, drawn), as_listed)
