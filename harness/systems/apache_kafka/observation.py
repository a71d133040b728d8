"""Follows the nodes of Apache Kafka: turns what `events.py` reads into history rows and committed metadata."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from harness.contracts.cluster import AddRow, Topic
from harness.contracts.metadata import CommittedMetadata
from harness.contracts.system import Event, Node
from harness.contracts.violation import Violation
from harness.systems.apache_kafka.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    KafkaBatch,
    OtherControlRecord,
    OtherRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    read_batches,
)
from harness.systems.metadata_rows import MetadataRows
from system_under_test.invariants import InvariantViolation
from system_under_test.metadata.image import ClusterImage, PartitionRegistration
from system_under_test.metadata.records import PartitionChangeRecord, RegisterBrokerRecord
from system_under_test.real.events import parse_event

COMMITTED_EVENT = "committed"
SNAPSHOT_EVENT = "snapshot"
REPLICA_EVENT = "replica"
VIOLATION_EVENT = "violation"

_NOT_REPLAYED = (
    BeginTransactionRecord,
    EndTransactionRecord,
    AbortTransactionRecord,
    OtherControlRecord,
    OtherRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replica:
    """The last recorded state of a replica."""

    log_end_offset: int
    high_watermark: int
    log_start_offset: int
    leader_epoch: int


class TransactionFilter:
    """Holds back the records of metadata transactions until they end. Mutable: the open transaction."""

    def __init__(self) -> None:
        self._open: list[tuple[int, Any]] | None = None

    def take(self, offset: int, record: Any) -> list[tuple[int, Any]]:
        """Takes the next committed record; returns the records that apply now, with their offsets."""
        if isinstance(record, BeginTransactionRecord):
            self._open = []
            return []
        if isinstance(record, EndTransactionRecord | AbortTransactionRecord):
            held, self._open = self._open, None
            return held or [] if isinstance(record, EndTransactionRecord) else []
        if isinstance(record, _NOT_REPLAYED):
            return []
        if self._open is not None:
            self._open.append((offset, record))
            return []
        return [(offset, record)]


def image_of_snapshot(end_offset: int, batches: Sequence[KafkaBatch]) -> ClusterImage:
    """Returns the image that a snapshot describes.

    Args:
        end_offset: The offset that it ends before.
        batches: All batches of the snapshot; their own offsets count its records only.

    Raises:
        InvariantViolation: The records do not fit each other.
    """
    image = ClusterImage(clears_leaderless_elr=True)
    count = 0
    for batch in batches:
        for record in batch.records:
            if not isinstance(record, _NOT_REPLAYED):
                image.replay(count, record)
                count += 1
    image.last_offset = end_offset - 1
    return image


class KafkaObservation:
    """Implements `Observation`. Mutable: the newest committed metadata.

    Args:
        nodes: All nodes of the run.
        view: Committed metadata, kept up to date.
        add_row: Takes history rows.
        on_violation: Called when nodes contradict an invariant.
        min_isr: `min.insync.replicas` of topics without a setting of their own.
        levels: Feature levels that the cluster must have when its first topic is created, by name; 0 is none.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        view: CommittedMetadata,
        add_row: AddRow,
        on_violation: Callable[[Violation], None],
        *,
        min_isr: int = 1,
        levels: Mapping[str, int] | None = None,
    ) -> None:
        self.doubt = ""
        self._unchecked_levels = dict(levels or {})
        self._now_ns = 0
        self._add_row = add_row
        self._on_violation = on_violation
        self._is_broken = False
        self._ids = {node.name: node.node_id for node in nodes}
        self._rows = MetadataRows(
            ClusterImage(clears_leaderless_elr=True),
            view,
            add_row,
            lambda: self._now_ns,
            clean_unless_noted=None,
            omits_repeated=True,
            min_isr=min_isr,
        )
        self._view = view
        self._transactions = TransactionFilter()
        self._replicas: dict[str, dict[tuple[str, int], _Replica]] = {
            node.name: {} for node in nodes
        }

    @property
    def features(self) -> dict[str, int]:
        """The finalized feature levels that were read, by name."""
        return dict(self._rows.image.features)

    def parse(self, line: bytes) -> Event:
        """Reads one line of an event log."""
        event = parse_event(line)
        return Event(at_ns=event.at_ns, node=event.node, event=event.event, fields=event.fields)

    def take(self, event: Event, at_ns: int) -> None:
        """Takes one event; after a violation no event counts, because no later state can be trusted."""
        if self._is_broken:
            return
        self._now_ns = at_ns
        try:
            self._take(event)
        except InvariantViolation as violation:
            self._violated(event.node, violation.invariant_id, str(violation))

    def topic_created(self, topic: Topic, at_ns: int) -> None:
        """Ignores the topic: the controllers report it."""

    def node_started(self, name: str, at_ns: int) -> None:
        """Forgets the replicas of the node: what it reports next is what it loaded."""
        self._replicas[name].clear()

    def node_went_down(self, name: str, at_ns: int) -> None:
        """Records that the node's replicas are offline."""
        self._now_ns = at_ns
        replicas = self._replicas[name]
        for (topic, partition), state in sorted(replicas.items()):
            self._replica_row(name, topic, partition, state, "offline", "down")
        replicas.clear()

    # -- events

    def _take(self, event: Event) -> None:
        fields = event.fields
        if event.event == COMMITTED_EVENT:
            # Event logs of earlier versions have no such time.
            after_ns = fields.get("after_ns", event.at_ns)
            self._rows.after_ns = max(self._now_ns - (event.at_ns - after_ns), 0)
            for batch in read_batches(bytes.fromhex(fields["data"])):
                self._batch(batch, fields["first"], fields["end"])
        elif event.event == SNAPSHOT_EVENT:
            self._snapshot(fields)
        elif event.event == REPLICA_EVENT:
            self._replica(event.node, **fields)
        elif event.event == VIOLATION_EVENT:
            self._violated(event.node, fields["invariant"], fields["sentence"])

    def _violated(self, node: str, invariant: str, sentence: str) -> None:
        self._is_broken = True
        self._on_violation(
            Violation(
                at_ns=self._now_ns, node=node, invariant=invariant, sentence=f"{node}: {sentence}"
            )
        )

    def _batch(self, batch: KafkaBatch, first: int, end: int) -> None:
        if batch.last_offset < first or batch.base_offset >= end:
            return
        self._note_registrations(batch)
        for offset, record in enumerate(batch.records, batch.base_offset):
            if first <= offset < end:
                for at, applied in self._transactions.take(offset, record):
                    self._rows.apply(at, applied)
                self._check_levels()
                self._view.offset = offset
                self._view.changed()

    def _snapshot(self, fields: dict[str, Any]) -> None:
        # It is only read before everything else, so nothing is known of when it was committed.
        self._rows.after_ns = 0
        batches = read_batches(bytes.fromhex(fields["data"]))
        last_offset = fields["end_offset"] - 1
        self._view.active_controller = fields["leader"]
        self._rows.replace_image(last_offset, image_of_snapshot(fields["end_offset"], batches))
        self._check_levels()
        self._view.offset = last_offset
        self._view.changed()

    def _check_levels(self) -> None:
        """Compares the feature levels with the expected ones, once: later an administrator may change them."""
        if not self._unchecked_levels or not self._rows.image.topics:
            return
        wrong = [
            f"{name} {self.features.get(name, 0)} and not {level}"
            for name, level in sorted(self._unchecked_levels.items())
            if self.features.get(name, 0) != level
        ]
        self._unchecked_levels = {}
        if wrong:
            self.doubt = (
                f"the cluster began with the feature level {', '.join(wrong)}, so it does not promise what the"
                " profile of the run says"
            )

    # -- registrations

    def _note_registrations(self, batch: KafkaBatch) -> None:
        """Notes the registrations of a batch that were certainly unclean.

        Kafka's controller puts the changes that an unclean registration causes right before the registration, into
        the same batch.
        """
        changes: list[tuple[int, PartitionChangeRecord]] = []
        changed: Counter[tuple[UUID, int]] = Counter()
        for offset, record in enumerate(batch.records, batch.base_offset):
            if isinstance(record, PartitionChangeRecord):
                changes.append((offset, record))
                changed[(record.topic_id, record.partition_id)] += 1
                continue
            # Other requests may share the batch: a partition that changed twice proves nothing.
            if isinstance(record, RegisterBrokerRecord) and any(
                # A broker epoch is the offset of the first record that its registration writes.
                self._was_unclean(record.broker_id, change, is_own=offset >= record.broker_epoch)
                for offset, change in changes
                if changed[(change.topic_id, change.partition_id)] == 1
            ):
                self._rows.registration_was(record.broker_epoch, clean=False)
            changes = []

    def _was_unclean(self, broker: int, change: PartitionChangeRecord, *, is_own: bool) -> bool:
        """Whether a change removes a broker from ISR and ELR that a clean registration would keep in the ELR.

        Without ELR, and while the ISR is not smaller than min ISR, a broker leaves the ISR by a clean registration
        as well.

        Args:
            broker: Which broker registers.
            change: A change in the same batch.
            is_own: Whether the registration itself wrote it, and no other request.
        """
        image = self._rows.image
        old = image.partitions.get((change.topic_id, change.partition_id))
        if old is None or not image.elr_on:
            return False
        isr = old.isr if change.isr is None else change.isr
        elr = (
            old.elr if change.eligible_leader_replicas is None else change.eligible_leader_replicas
        )
        if broker not in {*old.isr, *old.elr} or broker in {*isr, *elr}:
            return False
        if len(isr) > len(old.isr):
            # The ELR was emptied by a larger ISR, or, by the registration alone, it lost its last member, and the
            # last-known leader was elected at once.
            return (
                is_own
                and not old.isr
                and change.leader in old.last_known_elr
                and len(isr) < self._smallest_min_isr(old)
            )
        return bool(old.elr) or not isr or len(isr) < self._smallest_min_isr(old)

    def _smallest_min_isr(self, registration: PartitionRegistration) -> int:
        """Returns the effective min ISR; some releases use the replica count of partition 0 for all partitions."""
        image = self._rows.image
        min_isr = image.effective_min_isr(registration, 1)
        first = image.partitions.get((registration.topic_id, 0))
        return min_isr if first is None else min(min_isr, len(first.replicas))

    # -- replicas

    def _replica(
        self,
        node: str,
        *,
        topic: str,
        partition: int,
        log_end_offset: int,
        high_watermark: int,
        log_start_offset: int,
        leader_epoch: int,
        role: str,
        cause: str,
    ) -> None:
        state = _Replica(
            log_end_offset=log_end_offset,
            high_watermark=high_watermark,
            log_start_offset=log_start_offset,
            leader_epoch=leader_epoch,
        )
        replicas = self._replicas[node]
        if (topic, partition) not in replicas:
            cause = "load"
        replicas[(topic, partition)] = state
        self._replica_row(node, topic, partition, state, role, cause)

    def _replica_row(
        self, node: str, topic: str, partition: int, state: _Replica, role: str, cause: str
    ) -> None:
        self._add_row(
            "replica_states",
            (
                self._now_ns,
                node,
                self._ids[node],
                topic,
                partition,
                state.log_end_offset,
                state.high_watermark,
                state.log_start_offset,
                state.leader_epoch,
                role,
                cause,
            ),
        )
