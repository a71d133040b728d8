"""Times of schedules: multiplied for slow systems, and divided again when a run is repeated."""

from dataclasses import replace

import pytest

from harness.runs.experiment import Experiment, NemesisConfig
from harness.runs.planned import planned_schedule, unscaled

RANDOM = Experiment(nemesis=NemesisConfig(faults=("kill", "pause", "cut")), duration_ms=9000)


@pytest.mark.parametrize("scale", [0.3, 1.0, 1.7, 4.0, 16.0])
def test_a_schedule_that_was_run_is_planned_again_with_the_same_times(scale: float) -> None:
    experiment = replace(RANDOM, time_scale=scale)
    seen = 0
    for seed in range(30):
        run = planned_schedule(experiment, seed)
        listed = replace(experiment, schedule=unscaled(run, experiment))
        assert planned_schedule(listed, seed) == run
        seen += len(run)
    assert seen > 30


@pytest.mark.parametrize("scale", [1.0, 1.7, 4.0])
def test_without_the_factor_it_is_the_schedule_of_a_fast_system(scale: float) -> None:
    for seed in range(30):
        slow = replace(RANDOM, time_scale=scale)
        assert unscaled(planned_schedule(slow, seed), slow) == planned_schedule(RANDOM, seed)
