"""Consumer groups whose coordinator is hit: every broker in turn, so the group's coordinator is one of them.

Three members work on three partitions. The native members of the workload record what they do, and the same
kernels judge it that judge every run.
"""

from functools import cache

from harness.contracts.verdict import Verdict
from harness.defects.playing import forbidden, judged
from harness.runs.experiment_file import loads
from harness.runs.simulated import simulate

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
    experiment = loads(EXPERIMENT.format(rules=rules) + schedule, origin="groups")
    return tuple(judged(simulate(experiment, seed).tables) for seed in SEEDS)


def broken(fault: str, *without: str) -> frozenset[str]:
    """Returns the promises that were broken in any of the runs."""
    return frozenset().union(*map(forbidden, verdicts(fault, *without)))
