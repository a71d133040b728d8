"""The workload `consumer-group` with members of the consumer protocol (KIP-848), under faults."""

from collections import Counter
from dataclasses import replace

import pytest

from harness.contracts.verdict import Validity
from harness.errors import UsageError
from harness.runs import experiment_file as experiments
from harness.runs.judge import judge_result
from harness.runs.simulated import simulate
from tests.simulation.test_determinism_of_runs import ROOT
from workloads.group_workload import ConsumerGroupConfig

EXAMPLE = experiments.load(ROOT / "examples" / "consumer-group.toml")
CONSUMERS = replace(
    EXAMPLE,
    workload=replace(EXAMPLE.workload, group_protocol="consumer"),  # type: ignore[call-arg]
    duration_ms=9000,
)


@pytest.mark.long
def test_members_receive_every_record_and_keep_their_commits_whatever_happens() -> None:
    counters: Counter[str] = Counter()
    for seed in (3, 4):
        result = simulate(CONSUMERS, seed)
        verdict, summary = judge_result(CONSUMERS, seed, result)
        assert verdict.validity is Validity.VALID, (seed, verdict.reasons)
        counters.update(summary["counters"])
        counters.update(summary["marks"])
        assert summary["counters"]["group_records"] >= verdict.coverage["acked_in_final_reads"] > 50
        repeated = simulate(CONSUMERS, seed) if seed == 3 else result
        assert repeated.trace_hash == result.trace_hash
    assert counters["group_assignments"] > 10
    assert counters["group_commits"] > 100


def test_a_coordinator_that_loads_nothing_loses_commits_of_these_members_too() -> None:
    broken = replace(CONSUMERS, disabled_rules=("GRP-4",))
    found = set()
    for seed in (1, 2):
        verdict, _ = judge_result(broken, seed, simulate(broken, seed))
        found |= {anomaly.id for anomaly in verdict.anomalies}
    assert "committed-offset-regressed" in found


def test_only_native_members_know_the_consumer_protocol() -> None:
    with pytest.raises(UsageError, match="choose one of classic, consumer"):
        ConsumerGroupConfig(group_protocol="share")
    with pytest.raises(UsageError, match="needs the client 'native', not 'confluent'"):
        ConsumerGroupConfig(group_protocol="consumer", client="confluent")
    assert ConsumerGroupConfig(group_protocol="consumer").group_protocol == "consumer"
