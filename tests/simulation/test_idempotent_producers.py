"""Idempotent producers in whole runs: a retry is in the log once, unless a new leader forgets its producers."""

from dataclasses import replace

from harness.runs import experiment_file as experiments
from harness.runs.judge import judge_result
from harness.runs.simulated import simulate

KILL = '[[schedule]]\nfault = "kill"\ntargets = ["leader:t-0"]\nat_ms = {}\nfor_ms = 300\n'
EXPERIMENT = experiments.loads(
    """
name = "retries"
duration_ms = 4000
[topic]
partitions = 2
[workload]
processes = 8
appends_per_s = 300.0
polls_per_s = 20.0
enable_idempotence = true
records_per_batch_max = 3
partitions_per_request_max = 2
"""
    + "".join(KILL.format(at_ms) for at_ms in (500, 1500, 2500)),
    origin="retries.toml",
)
SEEDS = range(1, 9)


def anomalies(seed: int, *disabled_rules: str) -> set[str]:
    """Returns what a run of the seed finds that no system may do."""
    experiment = replace(EXPERIMENT, disabled_rules=disabled_rules, check_invariants=False)
    verdict, _ = judge_result(experiment, seed, simulate(experiment, seed))
    return {one.id for one in verdict.anomalies if one.judgement == "forbidden"}


def test_clients_see_a_leader_that_forgot_its_producers() -> None:
    """A kill has to hit the moment between replication and acknowledgement, so some seeds show nothing."""
    seed, found = next((seed, found) for seed in SEEDS if (found := anomalies(seed, "PID-4")))
    assert "duplicate" in found
    assert not anomalies(seed)
