"""A floor under the speed of the bare world, low enough for a busy machine: a regression is seen, noise is not."""

from benchmarks.bench_loop import measure
from harness.simulation.weather import CALM

MESSAGES_PER_CPU_SECOND_MIN = 40_000  # half of what the design demands of a quiet machine


def test_the_world_carries_enough_messages_per_second_of_cpu_time() -> None:
    best = 0.0
    for _ in range(3):
        world, cpu_s = measure(0.3, CALM)
        best = max(best, world.messages / cpu_s)
    assert best > MESSAGES_PER_CPU_SECOND_MIN
