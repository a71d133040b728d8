"""Measures the share of a run's time that the invariant monitors take in the simulation.

    python -m benchmarks.bench_monitors [--runs N]

The standard scenario (`standard.toml`) with Kafka's and with fast timings. The time in the entry points of the
monitors is measured inside of the run, so that load of the machine changes both parts alike. The clock is the
monotonic one, because reading a clock of CPU time is a system call and takes longer than most of what would be
measured. What the measuring itself takes is subtracted. What a node does to report a change or a fetch also
without a monitor is not in it.
"""

import argparse
import functools
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.bench_scenario import STANDARD
from harness.environments.simulated.monitor import InvariantMonitor
from harness.environments.simulated.shadow import ChangeMonitor
from harness.runs.experiment import Experiment
from harness.runs.experiment_file import load
from harness.runs.simulated import simulate

now_ns = time.perf_counter_ns
"""Bound here, because a simulated run replaces the functions of `time`."""
ENTRIES: dict[type[Any], tuple[str, ...]] = {
    InvariantMonitor: ("_check_and_report", "_metadata_changed"),
    ChangeMonitor: (
        "replica_changed",
        "leader_isr_changed",
        "partition_committed",
        "records_served",
        "quorum_leader_elected",
        "quorum_voted",
        "node_went_down",
    ),
}
"""The methods by which a run calls its monitors."""


class Meter:
    """Adds up the time in the monitors. Mutable."""

    def __init__(self) -> None:
        self.spent_ns: dict[str, int] = {}
        self.counts: dict[str, int] = {}
        self._depth = 0

    def cost_ns(self) -> tuple[float, float]:
        """Returns what measuring one call adds to the time of the monitors, and what it adds to the run."""
        nothing = self._timed("", lambda *_, **__: None)
        inside, outside = [], []
        for _ in range(20):
            self.spent_ns[""] = 0
            began_ns = now_ns()
            for _ in range(1000):
                nothing(self, "", None)
            outside.append((now_ns() - began_ns) / 1000)
            inside.append(self.spent_ns.pop("") / 1000)
        return statistics.median(inside), statistics.median(outside)

    def attach(self) -> None:
        """Measures every later call of a monitor's entry points in this process."""
        for owner, names in ENTRIES.items():
            for name in names:
                if hasattr(owner, name):
                    setattr(owner, name, self._timed(name, getattr(owner, name)))

    def _timed(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def timed(*arguments: Any, **named: Any) -> Any:
            # An entry point may call another one.
            if self._depth:
                return method(*arguments, **named)
            self._depth = 1
            began_ns = now_ns()
            try:
                return method(*arguments, **named)
            finally:
                self._depth = 0
                spent_ns = now_ns() - began_ns
                self.spent_ns[name] = self.spent_ns.get(name, 0) + spent_ns
                self.counts[name] = self.counts.get(name, 0) + 1

        return timed


def share(meter: Meter, experiment: Experiment, seed: int) -> tuple[float, float, dict[str, float]]:
    """Returns the seconds of a run, the monitors' share, and the share of each entry point."""
    inside_ns, outside_ns = meter.cost_ns()
    meter.spent_ns.clear()
    meter.counts.clear()
    began_ns = now_ns()
    result = simulate(experiment, seed)
    whole_ns: float = now_ns() - began_ns
    assert not result.violations
    whole_ns -= outside_ns * sum(meter.counts.values())
    parts = {
        name: (spent_ns - inside_ns * meter.counts[name]) / whole_ns
        for name, spent_ns in meter.spent_ns.items()
    }
    return whole_ns / 1e9, sum(parts.values()), parts


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="runs per row, with different seeds")
    runs = parser.parse_args().runs
    standard = load(STANDARD, on="simulation")
    meter = Meter()
    meter.attach()
    share(meter, replace(standard, duration_ms=2000, schedule=()), 1)
    print(f"{'timings':<10}{'s':>8}{'share':>8}{'min':>8}{'max':>8}  parts")
    for timings in ("kafka", "fast"):
        experiment = replace(standard, timings=timings)
        found = [share(meter, experiment, seed) for seed in range(1, runs + 1)]
        shares = sorted(one[1] for one in found)
        parts = sorted(found[-1][2].items(), key=lambda part: -part[1])
        print(
            f"{timings:<10}{statistics.median(one[0] for one in found):>8.2f}"
            f"{statistics.median(shares):>8.1%}{shares[0]:>8.1%}{shares[-1]:>8.1%}  "
            + ", ".join(f"{name} {part:.1%}" for name, part in parts if part >= 0.001)
        )


if __name__ == "__main__":
    main()
