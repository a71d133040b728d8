"""The metrics of a controller, with Kafka's names (`QuorumControllerMetrics`, `ControllerMetadataMetrics`)."""

from collections.abc import Iterator, Mapping

from system_under_test.runtime.metrics import Sample, gauge, meter

DOMAIN, KIND, STATS = "kafka.controller", "KafkaController", "ControllerStats"
_METERS = {
    "UncleanLeaderElectionsCount": "UncleanLeaderElectionsPerSec",
    "ElectionFromEligibleLeaderReplicasCount": "ElectionFromEligibleLeaderReplicasPerSec",
}


def controller_metrics(gauges: Mapping[str, int]) -> Iterator[Sample]:
    """Yields the metrics of a controller.

    Args:
        gauges: What `Controller.gauges` returns.
    """
    for name, value in gauges.items():
        if name in _METERS:
            yield meter(DOMAIN, STATS, _METERS[name], value)
        else:
            yield gauge(DOMAIN, KIND, name, value)
