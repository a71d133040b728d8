"""What happens to consumer groups without the rules by which a coordinator's records outlive it.

Three members work on three partitions while every broker is hit in turn, so the coordinator of the group is one of
them. The native members of the workload record what they do, and the same checkers judge it that judge every run.
"""

from functools import cache

import pytest

from checkers.kernels.compose import judge_run
from harness.contracts.run_context import context_from_facts
from harness.contracts.verdict import Judgement, Verdict
from harness.runs.experiment_file import loads
from harness.runs.simulated import simulate
from system_under_test.defects import find_defect
from tests.mutations.coverage import shows

EXPERIMENT = """
duration_ms = 14000
disabled_rules = [{rules}]

[topic]
partitions = 3

[workload]
name = "consumer-group"
processes = 2
appends_per_s = 40.0
polls_per_s = 4.0
members = 3
"""

CUT_OFF = """
[[schedule]]
fault = "isolate"
targets = ["b{broker}"]
at_ms = {at_ms}
for_ms = 2500
params = {{ planes = ["inter-broker", "controller"] }}
"""
"""Clients still reach the broker, which does not know that another one leads."""

KILLED = """
[[schedule]]
fault = "kill"
targets = ["b{broker}"]
at_ms = {at_ms}
for_ms = 1000
"""

SEEDS = (1, 2, 3)


@cache
def verdicts(fault: str, *without: str) -> tuple[Verdict, ...]:
    """Returns the verdicts of three runs in which a fault hits every broker in turn."""
    rules = ", ".join(f'"{rule}"' for rule in without)
    schedule = "".join(fault.format(broker=n, at_ms=4000 * n - 2500) for n in (1, 2, 3))
    experiment = loads(EXPERIMENT.format(rules=rules) + schedule, origin="here")
    judged = []
    for seed in SEEDS:
        tables = simulate(experiment, seed).tables
        context = context_from_facts(tables["run_facts"])
        assert context is not None
        judged.append(judge_run(tables, context))
    return tuple(judged)


def broken(fault: str, *without: str) -> frozenset[str]:
    """Returns the promises that were broken in any of the runs."""
    return frozenset(
        anomaly.id
        for verdict in verdicts(fault, *without)
        for anomaly in verdict.anomalies
        if anomaly.judgement is Judgement.FORBIDDEN
    )


@pytest.mark.parametrize("fault", [CUT_OFF, KILLED], ids=["cut-off", "killed"])
def test_with_all_rules_a_group_survives_every_coordinator(fault: str) -> None:
    for verdict in verdicts(fault):
        assert verdict.validity == "valid", verdict.reasons
        assert verdict.coverage["group_commits"] > 100


@shows("GRP-1", "B-56")
def test_a_coordinator_that_acknowledges_before_replication_loses_commits() -> None:
    assert find_defect("B-56").rules == ("GRP-1",)
    assert "committed-offset-regressed" in broken(CUT_OFF, "GRP-1")


@shows("GRP-3", "B-57")
def test_a_generation_that_only_the_coordinator_has_is_counted_again_by_its_successor() -> None:
    assert find_defect("B-57").rules == ("GRP-3",)
    assert broken(CUT_OFF, "GRP-3") == {"double-ownership"}


@shows("GRP-4", "B-55")
def test_a_coordinator_that_loads_nothing_reports_that_nothing_is_committed() -> None:
    assert find_defect("B-55").rules == ("GRP-4",)
    assert "committed-offset-regressed" in broken(KILLED, "GRP-4")
    sentences = [anomaly.sentence for v in verdicts(KILLED, "GRP-4") for anomaly in v.anomalies]
    assert any("nothing is committed" in sentence for sentence in sentences)
