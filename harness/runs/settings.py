"""The configuration of a run's nodes."""

from harness.contracts.system import HasRunProperties, Settings
from harness.runs.experiment import Experiment

METRICS_INTERVAL_MS = 1000


def settings_of(experiment: Experiment) -> Settings:
    """Returns the configuration that all nodes of a run get."""
    cluster = experiment.cluster
    system = experiment.system_under_test
    always = system.run_properties if isinstance(system, HasRunProperties) else {}
    return Settings(
        profile=experiment.profile,
        timings=experiment.timings,
        disabled_rules=experiment.disabled_rules,
        with_messages=experiment.records_messages,
        metrics_interval_ms=METRICS_INTERVAL_MS,
        segment_bytes=cluster.segment_bytes,
        flush_messages=cluster.flush_messages,
        unclean_leader_election=cluster.unclean_leader_election,
        log_dirs=cluster.log_dirs,
        properties={**always, **experiment.properties},
    )
