"""What a run says of a partition that has no leader although everything was healed."""

from dataclasses import replace

from harness.scenarios.outcome import STAYS_LEADERLESS
from tests.simulation.fault_bench import FaultBench


def leaderless(bench: FaultBench) -> None:
    metadata = bench.cluster.metadata
    metadata.partitions["t-0"] = replace(bench.state(), leader=-1, isr=(), elr=())


def test_a_partition_without_a_leader_is_named_once_everything_was_healed() -> None:
    bench = FaultBench()
    leaderless(bench)
    assert bench.run.phases.unavailability() == "", "faults may still be in force"
    bench.run.phases._is_final_phase = True
    sentence = bench.run.phases.unavailability()
    assert sentence.startswith(f"t-0 {STAYS_LEADERLESS}, although the brokers of all its replicas")
    assert "(replicas [1, 2, 3], ISR [], ELR [], last-known leader [])" in sentence


def test_a_fenced_broker_or_a_leader_explains_enough() -> None:
    bench = FaultBench()
    bench.run.phases._is_final_phase = True
    assert bench.run.phases.unavailability() == "", "there is a leader"
    leaderless(bench)
    brokers = bench.cluster.metadata.brokers
    brokers[2] = replace(brokers[2], fenced=True)
    assert bench.run.phases.unavailability() == ""
