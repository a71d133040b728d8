"""The experiment around a scripted scenario."""

from dataclasses import replace

from harness.contracts.system import VersionedSystem
from harness.environments.registry import DEFAULT
from harness.runs.experiment import ClusterConfig, Experiment, with_overrides
from harness.scenarios.steps import Scenario
from harness.systems.registry import REFERENCE, SYSTEMS
from workloads.append import AppendConfig

CONTAINERS = "docker"
"""Where scenarios run with a system that cannot be simulated: they cut links and power."""


def scenario_experiment(
    scenario: Scenario,
    profile: str | None,
    *,
    sim_wire: bool = False,
    system: str = REFERENCE,
    version: str = "",
) -> Experiment:
    """Returns the experiment that runs a scripted scenario: calm weather, no random faults.

    It runs in the simulation, or in containers if the system cannot be simulated.
    """
    kind = SYSTEMS.get(system)
    base = Experiment(
        name=scenario.name.replace(":", "-"),
        system=system,
        version=version,
        weather="calm",
        scenario=scenario.name,
        sim_wire=sim_wire,
        features=scenario.features if isinstance(kind, VersionedSystem) else {},
        on=DEFAULT if DEFAULT in kind.environments else CONTAINERS,
        cluster=ClusterConfig(log_dirs=scenario.log_dirs),
    )
    topic = replace(
        base.topic,
        replication_factor=scenario.replication_factor,
        min_insync_replicas=scenario.min_insync_replicas,
        partitions=scenario.partitions,
    )
    # V5's produce request must outlive one and a half lag limits, or it times out before the ISR shrinks.
    workload = AppendConfig(request_timeout_ms=4000, client=kind.default_client)
    return with_overrides(base, profile=profile, topic=topic, workload=workload)
