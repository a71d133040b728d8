"""What all replicas of one broker share: who they are, whom they ask, and which rules apply."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from system_under_test.broker.interfaces import (
    AlterPartitionControl,
    FetcherControl,
    MetadataView,
)
from system_under_test.config import NodeConfig
from system_under_test.log.manager import LogManager
from system_under_test.runtime import Host

if TYPE_CHECKING:
    from system_under_test.broker.partition import Partition


class ReplicaContext:
    """Shared by the replica manager and its partitions; rule switches are looked up once, here.

    Attributes:
        broker_epoch: Epoch of this incarnation, -1 before the first publish.
        is_stopping: Whether a controlled shutdown has begun.
        on_disk_error: Takes a partition offline whose log failed.
    """

    __slots__ = (
        "acks_all_needs_min_isr",
        "acks_all_waits_for_high_watermark",
        "alter_partition",
        "broker_epoch",
        "broker_id",
        "checks_divergence",
        "checks_isr_broker_epoch",
        "checks_isr_eligibility",
        "clamps_high_watermark_on_load",
        "consumers_stop_at_high_watermark",
        "deposed_leader_fails_produces",
        "fences_fetches",
        "fetchers",
        "gates_high_watermark",
        "high_watermark_is_monotonic",
        "high_watermark_waits_for_caught_up",
        "high_watermark_waits_for_eligible_only",
        "high_watermark_waits_for_maximal_isr",
        "is_stopping",
        "isr_change_moves_high_watermark",
        "isr_error_keeps_pending",
        "isr_join_needs_epoch_start",
        "lag_max_ns",
        "late_acks_need_min_isr",
        "latest_offset_waits_for_epoch_start",
        "leader_records_its_epoch",
        "logs",
        "message_timestamp_after_max_ms",
        "metadata",
        "monotonic_ns",
        "new_leader_keeps_high_watermark",
        "observer",
        "on_disk_error",
        "only_good_fetches_count",
        "refuses_old_broker_epoch",
        "registration_cancels_isr_change",
        "shrink_counts_when_committed",
        "truncates_by_epoch",
        "truncation_lowers_high_watermark",
        "wall_ms",
    )

    fetchers: FetcherControl
    alter_partition: AlterPartitionControl
    on_disk_error: "Callable[[Partition, OSError], None]"

    def __init__(
        self, host: Host, config: NodeConfig, logs: LogManager, metadata: MetadataView
    ) -> None:
        self.broker_id = config.node_id
        self.broker_epoch = -1
        self.is_stopping = False
        self.logs = logs
        self.metadata = metadata
        self.observer = host.observer
        self.monotonic_ns = host.clock.monotonic_ns
        self.wall_ms = host.clock.wall_ms
        self.lag_max_ns = config.timings.replica_lag_time_max_ms * 1_000_000
        rules, features = config.rules, config.features
        self.message_timestamp_after_max_ms = features.message_timestamp_after_max_ms
        self.gates_high_watermark = features.hw_min_isr_gate and rules("HW-1")
        self.high_watermark_waits_for_maximal_isr = rules("HW-3")
        self.high_watermark_waits_for_caught_up = rules("HW-4")
        self.high_watermark_waits_for_eligible_only = rules("HW-4-ELIGIBLE")
        self.high_watermark_is_monotonic = rules("HW-5")
        self.truncation_lowers_high_watermark = rules("HW-7")
        self.clamps_high_watermark_on_load = rules("HW-8")
        self.new_leader_keeps_high_watermark = rules("HW-9")
        self.shrink_counts_when_committed = rules("ISR-2")
        self.isr_join_needs_epoch_start = rules("ISR-4")
        self.checks_isr_eligibility = rules("ISR-5")
        self.checks_isr_broker_epoch = features.isr_broker_epoch_check
        self.isr_error_keeps_pending = rules("AP-4")
        self.only_good_fetches_count = rules("FS-1")
        self.refuses_old_broker_epoch = features.isr_broker_epoch_check and rules("FS-2")
        self.fences_fetches = rules("FETCH-2")
        self.checks_divergence = rules("FETCH-5")
        self.consumers_stop_at_high_watermark = rules("FETCH-6")
        self.registration_cancels_isr_change = rules("LEAD-2")
        self.leader_records_its_epoch = rules("LEAD-3")
        self.isr_change_moves_high_watermark = rules("LEAD-5")
        self.deposed_leader_fails_produces = rules("FOLL-3")
        self.truncates_by_epoch = rules("TRUNC-1")
        self.acks_all_needs_min_isr = rules("PROD-2")
        self.acks_all_waits_for_high_watermark = rules("PROD-4")
        self.late_acks_need_min_isr = rules("PROD-5")
        self.latest_offset_waits_for_epoch_start = rules("LO-1")
