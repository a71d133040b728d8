"""The experiment around a scripted scenario."""

from dataclasses import replace

from harness.runs.experiment import Experiment, with_overrides
from harness.scenarios.steps import Scenario
from harness.systems.registry import REFERENCE, SYSTEMS
from workloads.append import AppendConfig


def scenario_experiment(
    scenario: Scenario,
    profile: str | None,
    *,
    sim_wire: bool = False,
    system: str = REFERENCE,
    version: str = "",
) -> Experiment:
    """Returns the experiment that runs a scripted scenario: calm weather, no random faults."""
    base = Experiment(
        name=scenario.name.replace(":", "-"),
        system=system,
        version=version,
        weather="calm",
        scenario=scenario.name,
        sim_wire=sim_wire,
    )
    topic = replace(
        base.topic,
        replication_factor=scenario.replication_factor,
        min_insync_replicas=scenario.min_insync_replicas,
    )
    # V5's produce request must outlive one and a half lag limits, or it times out before the ISR shrinks.
    client = SYSTEMS.get(system).default_client
    workload = AppendConfig(request_timeout_ms=4000, client=client)
    return with_overrides(base, profile=profile, topic=topic, workload=workload)
