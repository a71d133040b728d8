"""Times faults on a real cluster in containers: `python -m benchmarks.bench_faults` (root and a Docker engine).

How long until a partition is in force on every host, and with which skew between the first and the last; how long
a power cut takes, from the first dropped packet to the file system mounted again with what its mode keeps. The
cluster carries a produce load meanwhile, so that logs have something to lose. Milliseconds: median and maximum.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.contracts.system import Settings
from harness.environments.hosts.cluster import HostCluster
from harness.environments.hosts.docker import DockerPlacement, check_machine
from harness.environments.request import ClusterRequest
from harness.errors import UsageError
from harness.history.writer import HistoryWriter
from harness.runs.experiment import Experiment
from harness.runs.phases import Phases
from harness.simulation.randomness import RandomTree
from harness.systems.registry import REFERENCE, SYSTEMS
from nemesis.driver import Nemesis
from nemesis.fault import Fault
from nemesis.hosts.injector import make_injector
from nemesis.parameters import POWER_MODES

BROKERS = ("b1", "b2", "b3")
CONTROLLERS = ("c11", "c12", "c13")


def timed(rows: Sequence[dict[str, Any]], key: str) -> str:
    """Returns median and maximum of one figure of the evidence."""
    values = [row[key] for row in rows]
    return f"{statistics.median(values):8.1f}{max(values):8.1f}"


async def measure(filesystem: str, repetitions: int, folder: Path) -> list[tuple[str, str]]:
    """Returns lines of the table for one file system."""
    history = HistoryWriter(folder)
    request = ClusterRequest(
        system=SYSTEMS.get(REFERENCE),
        settings=Settings(profile="kafka-4.1", timings="fast"),
        brokers=3,
        controllers=3,
        clients=5,
        disk=filesystem,
        inventory=Path(),
        logs_to=folder / "nodes",
        add_row=history.add,
        on_violation=lambda violation: print(violation.sentence, file=sys.stderr),
        seed=1,
    )
    cluster = HostCluster(DockerPlacement(request), request)
    rows: dict[str, dict[str, Any]] = {}

    def keep(row: tuple[Any, ...]) -> None:
        rows[row[0]] = json.loads(row[9])

    injector = make_injector(cluster)
    nemesis = Nemesis(cluster, injector, keep, RandomTree(1).stream("selectors"))
    experiment = Experiment(on="docker", timings="fast", duration_ms=10_000_000)
    phases = Phases(experiment, 1, cluster, nemesis, history, lambda *_: None)
    try:
        await cluster.start()
        await phases.start()
        load = asyncio.get_running_loop().create_task(phases.main(()))
        await asyncio.sleep(1)
        lines = await _faults(cluster, nemesis, rows, filesystem, repetitions)
        load.cancel()
    finally:
        await cluster.end()
        history.close()
    return lines


async def _faults(
    cluster: HostCluster,
    nemesis: Nemesis,
    rows: dict[str, dict[str, Any]],
    filesystem: str,
    repetitions: int,
) -> list[tuple[str, str]]:
    async def one(fault: Fault) -> dict[str, Any]:
        await nemesis.inject(fault)
        await asyncio.sleep(0.3)
        await nemesis.heal(fault.id)
        await _until_up(cluster)
        return rows[fault.id]

    lines = []
    for name, targets in (("2 hosts", ("b1", "b2")), ("6 hosts", (*BROKERS, *CONTROLLERS))):
        cuts = [
            await one(
                Fault(
                    id=f"{name}-{n}",
                    fault="cut" if len(targets) == 2 else "partition",
                    targets=targets,
                )
            )
            for n in range(repetitions)
        ]
        lines.append((f"partition, {name}: in force", timed(cuts, "in_force_ms")))
        lines.append((f"partition, {name}: skew", timed(cuts, "skew_ms")))
    for targets in (("b1",), BROKERS):
        for mode in POWER_MODES:
            cuts = [
                await one(
                    Fault(
                        id=f"{len(targets)}-{mode}-{n}",
                        fault="power",
                        targets=targets,
                        params={"mode": mode},
                    )
                )
                for n in range(max(2, repetitions // 4))
            ]
            totals = [{"ms": cut["timings_ms"][0]["total"]} for cut in cuts]
            lines.append(
                (f"power, {filesystem}, {len(targets)} nodes, {mode}", timed(totals, "ms"))
            )
    return lines


async def _until_up(cluster: HostCluster) -> None:
    while not all(not cluster.metadata.is_fenced(broker) for broker in cluster.brokers.values()):
        await asyncio.sleep(0.05)


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=20)
    options = parser.parse_args()
    try:
        check_machine()
    except UsageError as error:
        print(f"not measured: {error}")
        return 0
    print(f"{'ms':<44}{'median':>8}{'max':>8}")
    for filesystem in ("ext4", "xfs"):
        with tempfile.TemporaryDirectory() as folder:
            for name, figures in asyncio.run(
                measure(filesystem, options.repetitions, Path(folder))
            ):
                print(f"{name:<44}{figures}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
