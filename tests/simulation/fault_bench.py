"""A cluster under a steady load, to which faults are done one by one: the vocabulary of the fault tests."""

import json
from collections.abc import Callable, Coroutine
from typing import Any

from harness.contracts.cluster import HARNESS_HOST
from harness.environments.simulated.world import violation_of
from harness.history.writer import HistoryWriter
from harness.runs.experiment import Experiment
from harness.runs.judge import judge_result
from harness.runs.promises import record_end
from harness.runs.result import RunResult
from harness.runs.simulated import START_LIMIT_MS, SimulatedRun
from nemesis.fault import Fault
from system_under_test.broker.broker import BrokerNode
from workloads.append_config import AppendConfig

MS = 1_000_000
LIMIT_MS = 120_000


class FaultBench:
    """Three brokers, three controllers, a load of appends and reads, and a nemesis in the hands of a test."""

    def __init__(self, seed: int = 1, *, profile: str = "kafka-4.1", weather: str = "calm") -> None:
        experiment = Experiment(
            name="bench",
            profile=profile,
            weather=weather,
            timings="fast",
            duration_ms=LIMIT_MS,
            workload=AppendConfig(processes=3, appends_per_s=60.0, polls_per_s=20.0),
        )
        self.rows: dict[str, tuple[Any, ...]] = {}
        self.run = SimulatedRun(experiment, seed, HistoryWriter(None))
        self.world, self.cluster = self.run.world, self.run.cluster
        self.nemesis = self.run.nemesis
        record = self.nemesis._record

        def note(row: tuple[Any, ...]) -> None:
            self.rows[row[0]] = row
            record(row)

        self.nemesis._record = note
        self.cluster.start()
        self.run.monitor.start()
        self.run.drive(self.run.phases.start(), START_LIMIT_MS)
        self.cluster.spawn(HARNESS_HOST, self.run.phases.main(()))
        self.idle_client = self.cluster.clients[-1]
        self.let(1500)

    # --- doing ----------------------------------------------------------------------------------------

    def do(self, coroutine: Coroutine[Any, Any, Any], limit_ms: int = LIMIT_MS) -> Any:
        task = self.cluster.spawn(HARNESS_HOST, coroutine)
        self.world.run(task.done, limit_ns=limit_ms * MS)
        return task.result()

    def let(self, duration_ms: int) -> None:
        """Lets the cluster work."""
        self.world.run_for(duration_ms * MS)

    def until(self, condition: Callable[[], bool], limit_ms: int = 60_000) -> None:
        self.world.run(condition, limit_ns=limit_ms * MS)

    def inject(self, fault: str, *targets: str, **params: Any) -> str:
        """Injects a fault and returns its id."""
        fault_id = f"f{len(self.rows)}"
        made = Fault(id=fault_id, fault=fault, targets=targets, params=params)
        self.nemesis.check([made])
        self.do(self.nemesis.inject(made))
        return fault_id

    def heal(self, fault_id: str) -> None:
        self.do(self.nemesis.heal(fault_id))

    # --- inspection -----------------------------------------------------------------------------------

    def took_effect(self, fault_id: str) -> bool:
        return bool(self.rows[fault_id][8])

    def hit(self, fault_id: str) -> list[str]:
        return list(self.rows[fault_id][3])

    def evidence(self, fault_id: str) -> dict[str, Any]:
        return dict(json.loads(self.rows[fault_id][9]))

    def node(self, name: str) -> Any:
        return self.world.nodes[name]

    def broker(self, name: str) -> Any:
        broker = self.cluster.running_broker(name)
        assert broker is not None
        return broker

    def leader(self) -> str:
        return f"b{self.state().leader}"

    def follower(self) -> str:
        return next(f"b{one}" for one in self.state().replicas if one != self.state().leader)

    def state(self) -> Any:
        return self.cluster.metadata.partitions["t-0"]

    def log_end(self, name: str) -> int:
        return int(self.cluster.log_ends(name)["t-0"])

    def high_watermark(self) -> int:
        return self.cluster.true_high_watermark("t", 0)

    def is_whole(self) -> bool:
        """Whether every node is up, is registered as it is now, and is in every ISR."""
        registered = self.cluster.metadata.brokers
        return (
            not self.cluster.down_nodes()
            and all(
                broker_id in registered
                and self.broker(name).broker_epoch == registered[broker_id].broker_epoch
                for name, broker_id in self.cluster.brokers.items()
            )
            and self.run.phases.is_recovered()
        )

    def is_clean(self) -> bool:
        """Whether nothing of any fault is left in the world."""
        nodes = self.world.nodes.values()
        return (
            not self.world.network.faults
            and not any(node.disk.faults or node.is_slowed for node in nodes)
            and all(node.state == "running" for node in nodes)
            and not any(broker.publisher.is_held for broker in self._brokers())
            and all(node.clock.wall_offset_ns() == 0 for node in nodes)
            and all(node.clock.drift_ppm == node.clock.own_drift_ppm for node in nodes)
        )

    def _brokers(self) -> list[BrokerNode]:
        found = (self.cluster.running_broker(name) for name in self.cluster.brokers)
        return [broker for broker in found if broker is not None]

    def close(self) -> None:
        """Ends the run and checks every guarantee: no invariant broken, no acknowledged record lost."""
        self.do(self.run.phases.final(), 120_000)
        self.world.close()
        for failure in self.world.failures:
            self.run.history.add("violations", violation_of(failure).to_row())
        record_end(
            self.run.history,
            self.run.experiment,
            (),
            final_phase_complete=True,
            incomplete_reason="",
            healed_ns=self.run.phases.healed_ns,
            ended_ns=self.world.now,
        )
        result = RunResult(tables=self.run.history.close(), final_phase_complete=True)
        verdict, _ = judge_result(self.run.experiment, self.run.seed, result)
        assert result.violations == []
        assert [a for a in verdict.anomalies if a.judgement == "forbidden"] == []
