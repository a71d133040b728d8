"""The metrics of a broker, with Kafka's names.

Source:
    Kafka's ReplicaManager, Partition, DelayedOperationPurgatory, ReplicaFetcherManager, FetcherLagMetrics,
    KafkaServer and UnifiedLog; MBeans as in the section "Monitoring" of its documentation.
"""

from collections.abc import Iterator, Mapping

from system_under_test.broker.lifecycle import BrokerState
from system_under_test.broker.metadata_cache import MetadataCache
from system_under_test.broker.partition import Partition
from system_under_test.broker.replica_fetcher import FetcherManager
from system_under_test.broker.replica_manager import ReplicaManager
from system_under_test.runtime.metrics import Labels, Sample, gauge, meter

SERVER, CLUSTER, LOG, OWN = "kafka.server", "kafka.cluster", "kafka.log", "laststand"
REPLICA_MANAGER, PURGATORY = "ReplicaManager", "DelayedOperationPurgatory"

STATE_NUMBERS: Mapping[BrokerState, int] = {
    BrokerState.NOT_RUNNING: 0,
    BrokerState.STARTING: 1,
    BrokerState.RECOVERY: 2,
    BrokerState.RUNNING: 3,
    BrokerState.PENDING_CONTROLLED_SHUTDOWN: 6,
    BrokerState.SHUTTING_DOWN: 7,
}
"""Kafka's numbers of the states of a broker."""

_GAUGES = (
    "PartitionCount",
    "LeaderCount",
    "OfflineReplicaCount",
    "UnderReplicatedPartitions",
    "UnderMinIsrPartitionCount",
    "AtMinIsrPartitionCount",
)
_METERS = ("IsrExpands", "IsrShrinks", "FailedIsrUpdates")


def broker_metrics(
    state: BrokerState,
    replicas: ReplicaManager,
    metadata: MetadataCache,
    fetchers: FetcherManager,
) -> Iterator[Sample]:
    """Yields the metrics of a broker.

    Args:
        state: Of its lifecycle.
        replicas: Its partitions.
        metadata: Its copy of the metadata.
        fetchers: What it copies from other brokers.
    """
    yield gauge(SERVER, "KafkaServer", "BrokerState", STATE_NUMBERS[state])
    found = replicas.gauges()
    for name in _GAUGES:
        yield gauge(SERVER, REPLICA_MANAGER, name, found[name])
    led = [one for one in replicas.partitions.values() if one.is_leader]
    reassigned = sum(_is_reassigned(metadata, one) for one in led)
    yield gauge(SERVER, REPLICA_MANAGER, "ReassigningPartitions", reassigned)
    offline = found["OfflineLogDirectoryCount"]
    yield gauge(LOG, "LogManager", "OfflineLogDirectoryCount", offline)
    for name in _METERS:
        yield meter(SERVER, REPLICA_MANAGER, f"{name}PerSec", found[name])
    for operation in ("Produce", "Fetch"):
        labels = (("delayedoperation", operation),)
        size = found[f"{operation}PurgatorySize"]
        yield gauge(SERVER, PURGATORY, "PurgatorySize", size, labels)
        expired = found[f"{operation}Expirations"]
        yield meter(SERVER, f"Delayed{operation}Metrics", "ExpiresPerSec", expired)
    yield from _fetcher_metrics(fetchers)
    for _, partition in sorted(replicas.partitions.items()):
        yield from _partition_metrics(partition)


def _is_reassigned(metadata: MetadataCache, partition: Partition) -> bool:
    registration = metadata.image.partition(partition.topic, partition.index)
    return registration is not None and bool(
        registration.adding_replicas or registration.removing_replicas
    )


def _fetcher_metrics(fetchers: FetcherManager) -> Iterator[Sample]:
    lags = fetchers.lags()
    client = (("clientid", "Replica"),)
    largest = max((lag for _, lag in lags.values()), default=0)
    yield gauge(SERVER, "ReplicaFetcherManager", "MaxLag", largest, client)
    for (topic, index), (leader, lag) in sorted(lags.items()):
        labels = (("clientid", f"ReplicaFetcherThread-0-{leader}"), *_labels(topic, index))
        yield gauge(SERVER, "FetcherLagMetrics", "ConsumerLag", lag, labels)


def _labels(topic: str, index: int) -> Labels:
    return (("topic", topic), ("partition", str(index)))


def _partition_metrics(partition: Partition) -> Iterator[Sample]:
    """Yields the metrics of one replica; those that only a leader knows are 0 at a follower, as in Kafka."""
    labels = _labels(partition.topic, partition.index)
    led = partition.leadership
    isr = () if led is None else led.state.isr
    values = {
        "UnderReplicated": led is not None and led.is_under_replicated,
        "UnderMinIsr": led is not None and led.is_below_min_isr,
        "AtMinIsr": led is not None and len(isr) == led.effective_min_isr,
        "InSyncReplicasCount": len(isr),
        "ReplicasCount": 0 if led is None else len(led.followers) + 1,
        # There are no transactions: everything below the high watermark is stable.
        "LastStableOffsetLag": 0,
    }
    for name, value in values.items():
        yield gauge(CLUSTER, "Partition", name, int(value), labels)
    log = partition.log
    if log is not None:
        yield gauge(LOG, "Log", "LogEndOffset", log.log_end_offset, labels)
        yield gauge(LOG, "Log", "LogStartOffset", log.log_start_offset, labels)
        yield gauge(OWN, "Partition", "HighWatermark", partition.high_watermark, labels)
    yield gauge(OWN, "Partition", "LeaderEpoch", partition.leader_epoch, labels)
    yield gauge(OWN, "Partition", "PartitionEpoch", partition.replica.partition_epoch, labels)
    if led is not None:
        yield gauge(OWN, "Partition", "EpochStartOffset", led.epoch_start_offset, labels)
        yield gauge(OWN, "Partition", "MaximalIsrCount", len(led.state.maximal_isr), labels)
