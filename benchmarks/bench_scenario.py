"""Times the simulated cluster: the standard scenario, steady produce, and an idle cluster.

    python -m benchmarks.bench_scenario

The standard scenario (`standard.toml`) is 60 s of virtual time with 100 produces/s, 100 polls/s and ten faults,
without checks.
CPU seconds of this process, after a short warm-up run; checks, Parquet and the report are not in it.

`--without monitors contents` leaves out what watches a run: the invariant monitors, and the hash of the contents
of messages. So it shows what they cost.

`--messages` prints instead which messages clients and nodes send in the standard scenario.
"""

import argparse
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import harness.simulation.network
import harness.simulation.pipe
from harness.history.writer import HistoryWriter
from harness.runs.experiment import ClusterConfig, Experiment
from harness.runs.experiment_file import load
from harness.runs.result import RunResult
from harness.runs.simulated import SimulatedRun, simulate
from workloads.append_config import AppendConfig

STANDARD = Path(__file__).with_name("standard.toml")
"""The standard scenario of the project's throughput targets."""


def timed(experiment: Experiment, seed: int) -> tuple[float, RunResult]:
    """Returns the CPU seconds of one run, and the run."""
    began = time.process_time()
    result = simulate(experiment, seed)
    return time.process_time() - began, result


def without_contents() -> None:
    """Lets this process leave the contents of messages out of traces."""
    for module in (harness.simulation.network, harness.simulation.pipe):
        module.contents_code = lambda message: 0  # type: ignore[attr-defined]


class MessageCounter:
    """Counts what is sent. Mutable. Implements `harness.simulation.timeline.MessageWatcher`.

    Attributes:
        counts: By whether a client takes part, and type of message.
    """

    def __init__(self, nodes: frozenset[str]) -> None:
        self.counts: Counter[tuple[bool, str]] = Counter()
        self._nodes = nodes

    def sent(self, at_ns: int, key: object, src: str, dst: str, message: object) -> None:
        """Counts a message."""
        has_client = not {src, dst} <= self._nodes
        self.counts[has_client, type(message).__name__] += 1

    def arrived(self, at_ns: int, key: object) -> None:
        """Does nothing: what was sent counts."""


def print_messages(experiment: Experiment) -> None:
    """Prints the share of each type of message in a run."""
    run = SimulatedRun(experiment, 1, HistoryWriter(None))
    counter = MessageCounter(frozenset({*run.cluster.brokers, *run.cluster.controllers}))
    run.world.watcher = counter
    run.run()
    total = sum(counter.counts.values())
    print(f"{'message':<32}{'between':<12}{'sent':>8}{'share':>8}")
    for (has_client, name), count in counter.counts.most_common():
        between = "client" if has_client else "nodes"
        print(f"{name:<32}{between:<12}{count:>8}{count / total:>8.1%}")
    print(f"{'all':<44}{total:>8}")


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", nargs="+", choices=["monitors", "contents"], default=[])
    parser.add_argument("--messages", action="store_true")
    options = parser.parse_args()
    left_out = options.without
    standard = load(STANDARD, on="simulation")
    if options.messages:
        print_messages(standard)
        return
    standard = replace(standard, check_invariants="monitors" not in left_out)
    if "contents" in left_out:
        without_contents()
    timed(replace(standard, duration_ms=2000, schedule=()), 1)
    print(
        f"{'what':<34}{'CPU s':>8}{'virtual s':>11}{'x real time':>13}{'messages/s':>12}{'appends ok/s':>14}"
    )
    for name, experiment in (
        ("standard scenario, Kafka timings", standard),
        ("standard scenario, fast timings", replace(standard, timings="fast")),
        (
            "steady produce, 32 processes",
            replace(
                standard,
                schedule=(),
                duration_ms=5000,
                workload=AppendConfig(
                    processes=32, appends_per_s=4000, polls_per_s=0.001, latests_per_s=0
                ),
            ),
        ),
        (
            "idle, 5 brokers, 3 controllers",
            replace(
                standard,
                schedule=(),
                cluster=ClusterConfig(brokers=5),
                workload=AppendConfig(
                    processes=1, appends_per_s=0.05, polls_per_s=0.05, latests_per_s=0
                ),
            ),
        ),
    ):
        cpu_s, result = timed(experiment, 1)
        acked = sum(
            kind == "append" and outcome == "ok"
            for kind, outcome in zip(
                result.tables["operations"].column("kind").to_pylist(),
                result.tables["operations"].column("outcome").to_pylist(),
                strict=True,
            )
        )
        virtual_s = result.elapsed_ms / 1e3
        print(
            f"{name:<34}{cpu_s:>8.2f}{virtual_s:>11.1f}{virtual_s / cpu_s:>13.0f}"
            f"{result.counters['messages'] / cpu_s:>12.0f}{acked / cpu_s:>14.0f}"
            f"  {result.stuck}{' '.join(result.violations)}"
        )


if __name__ == "__main__":
    main()
