"""Committed metadata records, turned into history rows and into the view that scenarios wait for."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from harness.contracts.cluster import AddRow
from harness.contracts.metadata import BrokerState, CommittedMetadata, PartitionState
from system_under_test.metadata.image import ClusterImage, PartitionRegistration
from system_under_test.metadata.records import (
    NO_LEADER,
    RECOVERING,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    LeaderChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

Now = Callable[[], int]


class MetadataRows:
    """Replays committed records into an image, a view and the tables of states. Mutable: the newest image.

    Args:
        image: An empty one, which replays as the writer of the log does.
        view: Committed metadata, kept up to date except for its offset.
        add_row: Takes history rows.
        now: Returns nanoseconds since the start of the run.
        clean_unless_noted: Whether a registration was clean if `registration_was` was not called; None if that is
            not known.
        omits_repeated: Whether the record of a registration that is repeated by the same incarnation has no row.
            Kafka's brokers repeat the request until they get a response, and every request is committed.
        min_isr: `min.insync.replicas` of topics without a setting of their own.

    Attributes:
        after_ns: When the records that come next were certainly not committed yet; None if they come at once.
    """

    def __init__(
        self,
        image: ClusterImage,
        view: CommittedMetadata,
        add_row: AddRow,
        now: Now,
        *,
        clean_unless_noted: bool | None,
        omits_repeated: bool = False,
        min_isr: int = 1,
    ) -> None:
        self.view = view
        self.image = image
        self._add_row = add_row
        self._now = now
        self._clean_unless_noted = clean_unless_noted
        self._omits_repeated = omits_repeated
        self.after_ns: int | None = None
        self._min_isr = min_isr
        self._clean_epochs: dict[int, bool] = {}
        self.flagged_partitions: frozenset[str] = frozenset()

    def registration_was(self, broker_epoch: int, *, clean: bool) -> None:
        """Notes what the controller decided of the registration that was given an epoch."""
        self._clean_epochs[broker_epoch] = clean

    def replace_image(self, offset: int, image: ClusterImage) -> None:
        """Continues from an image that a snapshot describes, and adds the rows of what is different in it.

        Args:
            offset: Offset of the last record that the snapshot covers.
            image: The new image.
        """
        before_min_isr = self._min_isr_by_partition()
        old, self.image = self.image, image
        for broker in sorted({*old.brokers, *image.brokers}):
            before, after = old.brokers.get(broker), image.brokers.get(broker)
            if after is None:
                assert before is not None
                self._broker(offset, broker, before.broker_epoch, "unregistered", False)
                continue
            if before is None or before.broker_epoch != after.broker_epoch:
                clean = self._clean_epochs.get(after.broker_epoch)
                self._broker(offset, broker, after.broker_epoch, "registered", clean)
            if before is None or before.fenced != after.fenced:
                change = "fenced" if after.fenced else "unfenced"
                self._broker(offset, broker, after.broker_epoch, change, False)
        changed = self._changed_min_isr(before_min_isr)
        for key, registration in image.partitions.items():
            if old.partitions.get(key) != registration or key in changed:
                self._partition(offset, old.partitions.get(key), registration)

    def apply(self, offset: int, record: Any) -> None:
        """Replays a committed record, and adds the rows of what it changed."""
        if isinstance(record, ConfigRecord):
            self._configure(offset, record)
            return
        before: dict[Any, PartitionRegistration] = {}
        incarnation = self._incarnation_of(record) if self._omits_repeated else None
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
            if self._omits_repeated and incarnation == record.incarnation_id:
                self._broker_view(record.broker_id)
                return
            clean = self._clean_epochs.get(record.broker_epoch, self._clean_unless_noted)
            self._broker(offset, record.broker_id, record.broker_epoch, "registered", clean)
        elif isinstance(record, UnregisterBrokerRecord):
            self._broker(offset, record.broker_id, record.broker_epoch, "unregistered", False)
        elif isinstance(record, BrokerRegistrationChangeRecord):
            self._registration_changed(offset, record)

    def _configure(self, offset: int, record: ConfigRecord) -> None:
        """Replays a setting; with ELR off no record of a partition says that its min ISR changed with it.

        The view keeps the min ISR of the partition's last change: the record that clears the ELR comes next.
        """
        before = self._min_isr_by_partition()
        self.image.replay(offset, record)
        for key, min_isr in self._changed_min_isr(before).items():
            self._partition_row(offset, self.image.partitions[key], min_isr)

    def _min_isr_by_partition(self) -> dict[Any, int]:
        return {
            key: self.image.effective_min_isr(registration, self._min_isr)
            for key, registration in self.image.partitions.items()
        }

    def _changed_min_isr(self, before: dict[Any, int]) -> dict[Any, int]:
        """Returns the min ISR of the partitions that had another one before."""
        now = self._min_isr_by_partition()
        return {key: one for key, one in now.items() if before.get(key, one) != one}

    def _registration_changed(self, offset: int, record: BrokerRegistrationChangeRecord) -> None:
        if record.fenced is None and record.in_controlled_shutdown is None:
            return  # its log directories changed
        change = "controlled-shutdown"
        if record.fenced is not None:
            change = "fenced" if record.fenced else "unfenced"
        self._broker(offset, record.broker_id, record.broker_epoch, change, False)

    def _incarnation_of(self, record: Any) -> UUID | None:
        if not isinstance(record, RegisterBrokerRecord):
            return None
        registration = self.image.brokers.get(record.broker_id)
        return None if registration is None else registration.incarnation_id

    def _partition(
        self, offset: int, old: PartitionRegistration | None, new: PartitionRegistration
    ) -> None:
        min_isr = self.image.effective_min_isr(new, self._min_isr)
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
        self._partition_row(offset, new, min_isr, flagged=flagged)

    def _partition_row(
        self, offset: int, new: PartitionRegistration, min_isr: int, *, flagged: bool = False
    ) -> None:
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
                self.after_ns,
            ),
        )

    def _broker(
        self, offset: int, broker: int, epoch: int, change: str, clean: bool | None
    ) -> None:
        self._broker_view(broker)
        self._add_row("broker_states", (self._now(), offset, broker, epoch, change, clean))

    def _broker_view(self, broker: int) -> None:
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
