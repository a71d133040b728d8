"""What nodes say of themselves, turned into history rows and into the view of committed metadata."""

import json
from collections.abc import Callable
from typing import Any

from harness.contracts.cluster import AddRow
from harness.contracts.metadata import BrokerState, CommittedMetadata, PartitionState
from system_under_test.invariants import check_invariant
from system_under_test.metadata.image import ClusterImage, PartitionRegistration
from system_under_test.metadata.records import (
    NO_LEADER,
    RECOVERING,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    LeaderChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

Now = Callable[[], int]


class MetadataWitness:
    """Follows what controllers say is committed. Mutable: the newest image.

    Every controller reports every record. The first report of an offset counts, all others must agree with it:
    that is metadata log matching (INV-5).
    """

    def __init__(self, view: CommittedMetadata, add_row: AddRow, now: Now) -> None:
        self.view = view
        self.image = ClusterImage()
        self._add_row = add_row
        self._now = now
        self._seen: list[tuple[int, Any]] = []
        self._clean_epochs: dict[int, bool] = {}
        self.flagged_partitions: frozenset[str] = frozenset()
        self.true_high_watermarks: dict[tuple[str, int], int] = {}

    def leader_committed(self, topic: str, partition: int, high_watermark: int) -> None:
        """Notes how far a leader says that a partition is committed; the largest word counts."""
        key = (topic, partition)
        if high_watermark > self.true_high_watermarks.get(key, 0):
            self.true_high_watermarks[key] = high_watermark

    def registration_was(self, broker_epoch: int, *, clean: bool) -> None:
        """Notes what the controller decided of the registration that was given an epoch."""
        self._clean_epochs[broker_epoch] = clean

    def committed(self, offset: int, quorum_epoch: int, record: Any) -> None:
        """Takes one controller's word that a record is committed."""
        if offset < len(self._seen):
            check_invariant(
                self._seen[offset] == (quorum_epoch, record),
                "INV-5",
                "all controllers agree on committed metadata",
                offset=offset,
                first=self._seen[offset],
                now=(quorum_epoch, record),
            )
            return
        check_invariant(
            offset == len(self._seen),
            "INV-5",
            "committed metadata has no gaps",
            offset=offset,
            expected=len(self._seen),
        )
        self._seen.append((quorum_epoch, record))
        self._apply(offset, record)
        self.view.offset = offset
        self.view.changed()

    def _apply(self, offset: int, record: Any) -> None:
        before: dict[Any, PartitionRegistration] = {}
        if isinstance(record, PartitionChangeRecord | ClearElrRecord):
            before = dict(self.image.partitions)
        self.image.replay(offset, record)
        if isinstance(record, LeaderChangeRecord):
            self.view.active_controller = record.leader_id
        elif isinstance(record, PartitionRecord | PartitionChangeRecord):
            key = (record.topic_id, record.partition_id)
            self._partition(offset, before.get(key), self.image.partitions[key])
        elif isinstance(record, ClearElrRecord):
            for key, registration in self.image.partitions.items():
                if before[key] != registration:
                    self._partition(offset, before[key], registration)
        elif isinstance(record, RegisterBrokerRecord):
            clean = self._clean_epochs.get(record.broker_epoch, False)
            self._broker(offset, record.broker_id, record.broker_epoch, "registered", clean)
        elif isinstance(record, UnregisterBrokerRecord):
            self._broker(offset, record.broker_id, record.broker_epoch, "unregistered", False)
        elif isinstance(record, BrokerRegistrationChangeRecord):
            change = "controlled-shutdown"
            if record.fenced is not None:
                change = "fenced" if record.fenced else "unfenced"
            self._broker(offset, record.broker_id, record.broker_epoch, change, False)

    def _partition(
        self, offset: int, old: PartitionRegistration | None, new: PartitionRegistration
    ) -> None:
        min_isr = self.image.effective_min_isr(new, 1)
        flagged = _is_flagged(old, new)
        state = PartitionState(
            topic=new.topic,
            partition=new.partition,
            replicas=new.replicas,
            leader=new.leader,
            leader_epoch=new.leader_epoch,
            partition_epoch=new.partition_epoch,
            isr=new.isr,
            elr=new.elr,
            last_known_elr=new.last_known_elr,
            leader_recovery_state=new.leader_recovery_state,
            min_isr=min_isr,
        )
        self.view.partitions[state.name] = state
        if flagged:
            self.flagged_partitions |= {state.name}
        self._add_row(
            "partition_states",
            (
                self._now(),
                offset,
                new.topic,
                new.partition,
                new.leader,
                new.leader_epoch,
                new.partition_epoch,
                list(new.isr),
                list(new.elr),
                list(new.last_known_elr),
                list(new.replicas),
                new.leader_recovery_state,
                flagged,
                min_isr,
            ),
        )

    def _broker(self, offset: int, broker: int, epoch: int, change: str, clean: bool) -> None:
        registration = self.image.brokers.get(broker)
        if registration is None:
            self.view.brokers.pop(broker, None)
        else:
            self.view.brokers[broker] = BrokerState(
                broker=broker,
                broker_epoch=registration.broker_epoch,
                fenced=registration.fenced,
                in_controlled_shutdown=registration.in_controlled_shutdown,
            )
        self._add_row("broker_states", (self._now(), offset, broker, epoch, change, clean))


def _is_flagged(old: PartitionRegistration | None, new: PartitionRegistration) -> bool:
    """Whether a change is an election that the controller marked unclean (EL-2, ELR-8).

    RECOVERING alone does not say it: it stays set until the leader's next accepted AlterPartition, and a clean
    election may fall into that time. An unclean leader is in neither set.
    """
    if old is None or new.leader == NO_LEADER or new.leader_epoch == old.leader_epoch:
        return False
    return (
        new.leader_recovery_state == RECOVERING
        and new.leader not in old.isr
        and new.leader not in old.elr
    )


class NodeObserver:
    """The observer door of one node in the simulation. Mutable: the last state of its replicas."""

    def __init__(
        self, name: str, node_id: int, witness: MetadataWitness, add_row: AddRow, now: Now
    ) -> None:
        self._name = name
        self._node_id = node_id
        self._witness = witness
        self._add_row = add_row
        self._now = now
        self._replicas: dict[tuple[str, int], tuple[int, int, int, int]] = {}

    def mark(self, name: str, **details: Any) -> None:
        """Records that a rare branch was taken."""
        if name in ("clean-registration", "unclean-registration"):
            epoch = details.get("broker_epoch")
            if epoch is not None:
                self._witness.registration_was(int(epoch), clean=name == "clean-registration")
        self._add_row(
            "marks",
            (self._now(), self._name, name, json.dumps(details, sort_keys=True, default=str)),
        )
        # A node cannot know whether a voter or a stranger named another leader. Here there are no strangers.
        check_invariant(
            name != "quorum-epoch-with-two-leaders",
            "INV-8",
            "a quorum epoch has one leader",
            node=self._name,
            **details,
        )

    def replica_changed(
        self,
        topic: str,
        partition: int,
        *,
        log_end_offset: int,
        high_watermark: int,
        log_start_offset: int,
        leader_epoch: int,
        role: str,
        cause: str,
    ) -> None:
        """Records a replica's new state."""
        self._replicas[(topic, partition)] = (
            log_end_offset,
            high_watermark,
            log_start_offset,
            leader_epoch,
        )
        if role == "leader":
            self._witness.leader_committed(topic, partition, high_watermark)
        self._add_row(
            "replica_states",
            (
                self._now(),
                self._name,
                self._node_id,
                topic,
                partition,
                log_end_offset,
                high_watermark,
                log_start_offset,
                leader_epoch,
                role,
                cause,
            ),
        )

    def log_cut(self, topic: str, partition: int, *details: Any) -> None:
        """Ignores the cut: what a replica lost by it shows in its log end."""

    def metadata_committed(self, offset: int, quorum_epoch: int, record: Any) -> None:
        """Hands a committed record to the witness."""
        self._witness.committed(offset, quorum_epoch, record)

    def node_went_down(self, *_: Any) -> None:
        """Records that the node's replicas are offline."""
        now_ns = self._now()
        for (topic, partition), (end, high, start, epoch) in sorted(self._replicas.items()):
            self._add_row(
                "replica_states",
                (
                    now_ns,
                    self._name,
                    self._node_id,
                    topic,
                    partition,
                    end,
                    high,
                    start,
                    epoch,
                    "offline",
                    "down",
                ),
            )
        self._replicas.clear()
