"""The experiment around a scripted scenario."""

from dataclasses import replace
from typing import Any

from harness.runs.experiment import Experiment, given
from harness.scenarios.steps import Scenario
from workloads.append import AppendConfig


def scenario_experiment(
    scenario: Scenario, profile: str | None = None, **values: Any
) -> Experiment:
    """Returns the experiment that runs a scripted scenario: calm weather, no random faults.

    Args:
        scenario: Which one.
        profile: Which release the system behaves like; the system's default if None.
        values: Top-level values of the experiment; those that are None are left out.
    """
    known = given({"profile": profile, **values})
    base = Experiment(
        name=scenario.name.replace(":", "-"), weather="calm", scenario=scenario.name, **known
    )
    topic = replace(
        base.topic,
        replication_factor=scenario.replication_factor,
        min_insync_replicas=scenario.min_insync_replicas,
    )
    # V5's produce request must outlive one and a half lag limits, or it times out before the ISR shrinks.
    client = base.system_under_test.default_client
    workload = AppendConfig(request_timeout_ms=4000, client=client)
    return replace(base, topic=topic, workload=workload)
