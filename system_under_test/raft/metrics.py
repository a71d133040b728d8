"""The metrics of a member of the metadata quorum, with Kafka's names (`KafkaRaftMetrics`)."""

from collections.abc import Iterator

from system_under_test.raft.node import RaftNode
from system_under_test.runtime.metrics import Sample, gauge

DOMAIN, KIND = "kafka.server", "raft-metrics"
OBSERVER = "observer"


def raft_metrics(raft: RaftNode) -> Iterator[Sample]:
    """Yields the metrics of a voter or an observer.

    The state is a text, which Prometheus does not have: the gauge is 1, and the state is its label.
    """
    state = raft.state
    word = type(state).__name__.lower() if raft.is_voter else OBSERVER
    yield gauge(DOMAIN, KIND, "current-state", 1, (("state", word),))
    yield gauge(DOMAIN, KIND, "current-leader", raft.leader_id)
    yield gauge(DOMAIN, KIND, "current-epoch", raft.epoch)
    yield gauge(DOMAIN, KIND, "high-watermark", raft.high_watermark)
    yield gauge(DOMAIN, KIND, "log-end-offset", raft.log_end_offset)
