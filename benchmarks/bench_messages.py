"""Measures what recording messages costs a node: `python -m benchmarks.bench_messages [--rounds N]`.

Two clusters of three brokers stand side by side; the nodes of one record their messages, and both keep event logs
as in a run. They get the same load of single-record produce requests in turns of less than a second, so whatever
else the machine does slows down both. Prints CPU time of the brokers per acknowledged record, and the ratio with
an interval from resampled turns.
"""

import argparse
import random
import tempfile
import time
from pathlib import Path

from benchmarks.wire.__main__ import Load, create_topic, keep_busy, producers
from harness.environments.local.standing import LocalCluster, local_settings

TURN_S = 0.7
WARM_UP_S = 2.0
PRODUCERS, OUTSTANDING, RECORD_BYTES = 12, 6, 100
RESAMPLES = 2000


class Side:
    """One of the clusters with its load. Mutable: it collects (CPU seconds, records) per turn."""

    def __init__(self, directory: Path, *, with_messages: bool) -> None:
        settings = local_settings(with_events=True, with_messages=with_messages)
        self.cluster = LocalCluster.create(directory, brokers=3, controllers=1, settings=settings)
        self.turns: list[tuple[float, int]] = []
        self._load = Load()

    def start(self) -> None:
        """Starts the cluster and warms it up."""
        self.cluster.start()
        self.cluster.wait_ready(90)
        create_topic(self.cluster, "t")
        settings = {"linger.ms": 0, "batch.num.messages": 1}
        self._producers = producers(self.cluster, PRODUCERS, **settings)
        self._work(WARM_UP_S)

    def take_turn(self) -> None:
        """Measures one turn."""
        before, acked = self._cpu_s(), self._load.acked
        self._work(TURN_S)
        self.turns.append((self._cpu_s() - before, self._load.acked - acked))

    def _work(self, seconds: float) -> None:
        until_s = time.perf_counter() + seconds
        keep_busy(self._producers, "t", RECORD_BYTES, OUTSTANDING, until_s, self._load)
        for producer in self._producers:
            producer.flush(30)

    def _cpu_s(self) -> float:
        total_ns = 0
        for node in self.cluster.nodes.values():
            if node.role == "broker":
                # Exact, unlike /proc/PID/stat, which counts ticks of 10 ms.
                text = Path(f"/proc/{node.pid}/schedstat").read_text(encoding="ascii")
                total_ns += int(text.split()[0])
        return total_ns / 1e9


def us_per_record(turns: list[tuple[float, int]]) -> float:
    """Returns CPU microseconds per record of some turns."""
    return sum(cpu_s for cpu_s, _ in turns) / sum(count for _, count in turns) * 1e6


def ratio_interval(without: Side, recording: Side) -> tuple[float, float]:
    """Returns the 5th and the 95th percentile of the ratio, from resampled turns."""
    count = len(without.turns)
    stream = random.Random(0)
    ratios = []
    for _ in range(RESAMPLES):
        chosen = [stream.randrange(count) for _ in range(count)]
        with_us, without_us = (
            us_per_record([side.turns[index] for index in chosen]) for side in (recording, without)
        )
        ratios.append(with_us / without_us)
    ratios.sort()
    return ratios[RESAMPLES // 20], ratios[-RESAMPLES // 20]


def main(arguments: list[str] | None = None) -> int:
    """Prints the result."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bench_messages", description=__doc__
    )
    parser.add_argument("--rounds", type=int, default=60, help="turns of each cluster")
    rounds = parser.parse_args(arguments).rounds
    with tempfile.TemporaryDirectory(prefix="laststand-bench-") as directory:
        without = Side(Path(directory, "without"), with_messages=False)
        recording = Side(Path(directory, "recording"), with_messages=True)
        with without.cluster, recording.cluster:
            for side in (without, recording):
                side.start()
            for number in range(rounds):
                for side in (without, recording) if number % 2 else (recording, without):
                    side.take_turn()
    low, high = ratio_interval(without, recording)
    without_us, with_us = (us_per_record(side.turns) for side in (without, recording))
    print(f"brokers, CPU per record: {without_us:.0f} us without, {with_us:.0f} us with messages")
    print(f"ratio {with_us / without_us:.3f}, 90 % interval {low:.3f} to {high:.3f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
