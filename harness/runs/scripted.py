"""The experiment around a scripted scenario."""

from dataclasses import replace
from typing import Any

from harness.contracts.system import RecordsMessages, VersionedSystem
from harness.environments.registry import DEFAULT
from harness.runs.experiment import AUTO, ON, ClusterConfig, Experiment, given
from harness.scenarios.steps import Scenario
from harness.systems.registry import REFERENCE, SYSTEMS
from workloads.append_config import AppendConfig

CONTAINERS = "docker"
"""Where scenarios run with a system that cannot be simulated: they cut links and power."""


def scenario_experiment(
    scenario: Scenario, profile: str | None = None, *, system: str = REFERENCE, **values: Any
) -> Experiment:
    """Returns the experiment that runs a scripted scenario: calm weather, no random faults.

    It runs in the simulation, or in containers if the system cannot be simulated.

    Args:
        scenario: Which one.
        profile: Which release the system behaves like; the system's default if None.
        system: Which one.
        values: Top-level values of the experiment; those that are None are left out.
    """
    kind = SYSTEMS.get(system)
    known: dict[str, Any] = {
        "on": DEFAULT if DEFAULT in kind.environments else CONTAINERS,
        # A scenario is short, and its report shows one moment.
        "record_messages": ON if isinstance(kind, RecordsMessages) else AUTO,
        "features": scenario.features if isinstance(kind, VersionedSystem) else {},
        "properties": dict(scenario.properties),
        **given({"profile": profile, **values}),
    }
    base = Experiment(
        name=scenario.name.replace(":", "-"),
        system=system,
        weather="calm",
        scenario=scenario.name,
        disabled_rules=scenario.disabled_rules,
        cluster=ClusterConfig(brokers=scenario.brokers, log_dirs=scenario.log_dirs),
        **known,
    )
    topic = replace(
        base.topic,
        replication_factor=scenario.replication_factor,
        min_insync_replicas=scenario.min_insync_replicas,
        partitions=scenario.partitions,
    )
    # V5's produce request must outlive one and a half lag limits, or it times out before the ISR shrinks.
    workload = AppendConfig(request_timeout_ms=4000, client=kind.default_client)
    return replace(base, topic=topic, workload=workload)


def can_run(scenario: Scenario, system: str = REFERENCE, on: str | None = None) -> bool:
    """Returns whether a scenario can run on a system, and in an environment, as far as its own needs decide it.

    Args:
        scenario: Which one.
        system: Name of the system.
        on: The environment; None for that of `scenario_experiment`.
    """
    if scenario.disabled_rules and system != REFERENCE:
        return False
    chosen = on or (DEFAULT if DEFAULT in SYSTEMS.get(system).environments else CONTAINERS)
    return not scenario.is_simulated_only or chosen == DEFAULT
