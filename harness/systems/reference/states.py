"""What nodes say of themselves, turned into history rows and into the view of committed metadata."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from harness.contracts.cluster import AddRow
from harness.contracts.metadata import CommittedMetadata
from harness.systems.metadata_rows import MetadataRows
from system_under_test.invariants import check_invariant
from system_under_test.metadata.image import ClusterImage
from system_under_test.metadata.records import PartitionChangeRecord, PartitionRecord

Now = Callable[[], int]


class ReplicaChange(NamedTuple):
    """The state of a replica after a change, as its node reports it."""

    log_end_offset: int
    high_watermark: int
    log_start_offset: int
    leader_epoch: int
    role: str
    cause: str


class ChangeWatcher(Protocol):
    """Is called with every change that nodes report, at the moment of the change; it may raise."""

    def replica_changed(self, node: str, key: tuple[str, int], change: ReplicaChange) -> None:
        """Takes the new state of a replica; `key` is its topic and partition."""
        ...

    def leader_isr_changed(self, node: str, key: tuple[str, int]) -> None:
        """Takes a change of what a leader knows of its ISR."""
        ...

    def records_served(
        self, node: str, key: tuple[str, int], offset: int, records: bytes, to_follower: bool
    ) -> None:
        """Takes the records of a partition in a response to a fetch from an offset."""
        ...

    def partition_committed(self, key: tuple[str, int]) -> None:
        """Takes a change of a partition that the controller committed."""
        ...

    def quorum_leader_elected(self, node: str, epoch: int, start_offset: int) -> None:
        """Takes an election of the metadata quorum, and where the new leader's log ended."""
        ...

    def quorum_voted(self, node: str, epoch: int, candidate: int) -> None:
        """Takes a vote that a member of the metadata quorum gave."""
        ...

    def node_went_down(self, node: str) -> None:
        """Takes the end of a process."""
        ...


SNAPSHOT_LOADED = "metadata-snapshot-loaded"
"""Mark of a node whose metadata continues from a snapshot."""
EARLY_RECORDS_MAX = 1_000_000
"""How many records may wait for earlier ones; a bound, never reached in a run."""


class Missing(NamedTuple):
    """A record that was not reported although later ones were, and since when."""

    offset: int
    since_ns: int


class MetadataWitness(MetadataRows):
    """Follows what controllers say is committed. Mutable: the newest image.

    Every controller reports every record that follows the snapshot from which it started. The first report of an
    offset counts, all others must agree with it: that is metadata log matching (INV-5). A snapshot covers only
    what some controller reported before; if that report is read later, the records behind the snapshot wait.

    Attributes:
        snapshot_loads: How often a node continued from a snapshot.
        watcher: Called with every change that nodes report; None if nothing watches.
    """

    def __init__(self, view: CommittedMetadata, add_row: AddRow, now: Now) -> None:
        super().__init__(ClusterImage(), view, add_row, now, clean_unless_noted=False)
        self._seen: list[tuple[int, Any]] = []
        self._early: dict[int, tuple[int, Any]] = {}
        self._early_since_ns = 0
        self.snapshot_loads = 0
        self.watcher: ChangeWatcher | None = None
        self.true_high_watermarks: dict[tuple[str, int], int] = {}

    def leader_committed(self, topic: str, partition: int, high_watermark: int) -> None:
        """Notes how far a leader says that a partition is committed; the largest word counts."""
        key = (topic, partition)
        if high_watermark > self.true_high_watermarks.get(key, 0):
            self.true_high_watermarks[key] = high_watermark

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
        if offset > len(self._seen):
            self._reported_early(offset, quorum_epoch, record)
            return
        self._next(quorum_epoch, record)
        while self._early and len(self._seen) in self._early:
            self._next(*self._early.pop(len(self._seen)))

    @property
    def missing(self) -> Missing | None:
        """The first record that nobody has reported although later ones were; None if there is none."""
        if not self._early:
            return None
        return Missing(offset=len(self._seen), since_ns=self._early_since_ns)

    @property
    def end_offset(self) -> int:
        """The end of what was reported without a gap."""
        return len(self._seen)

    def _next(self, quorum_epoch: int, record: Any) -> None:
        offset = len(self._seen)
        self._seen.append((quorum_epoch, record))
        self.apply(offset, record)
        self.view.offset = offset
        if self.watcher is not None and isinstance(record, PartitionRecord | PartitionChangeRecord):
            topic = self.image.partitions[record.topic_id, record.partition_id].topic
            self.watcher.partition_committed((topic, record.partition_id))
        self.view.changed()

    def _reported_early(self, offset: int, quorum_epoch: int, record: Any) -> None:
        if not self._early:
            self._early_since_ns = self._now()
        first = self._early.setdefault(offset, (quorum_epoch, record))
        check_invariant(
            first == (quorum_epoch, record),
            "INV-5",
            "all controllers agree on committed metadata",
            offset=offset,
            first=first,
            now=(quorum_epoch, record),
        )
        check_invariant(
            len(self._early) <= EARLY_RECORDS_MAX,
            "INV-5",
            "committed metadata has no gaps",
            offset=offset,
            expected=len(self._seen),
        )


class NodeObserver:
    """The observer door of one node in the simulation. Mutable: the last state of its replicas."""

    def __init__(
        self,
        name: str,
        node_id: int,
        witness: MetadataWitness,
        add_row: AddRow,
        now: Now,
        on_mark: Callable[[str, str], None] | None = None,
    ) -> None:
        self._name = name
        self._node_id = node_id
        self._witness = witness
        self._add_row = add_row
        self._now = now
        self._on_mark = on_mark
        self._replicas: dict[tuple[str, int], tuple[int, int, int, int]] = {}
        self._next_metadata_offset = 0

    def mark(self, name: str, **details: Any) -> None:
        """Records that a rare branch was taken."""
        if name in ("clean-registration", "unclean-registration"):
            epoch = details.get("broker_epoch")
            if epoch is not None:
                self._witness.registration_was(int(epoch), clean=name == "clean-registration")
        elif name == SNAPSHOT_LOADED:
            self._next_metadata_offset = int(details["end_offset"])
            self._witness.snapshot_loads += 1
        self._add_row(
            "marks",
            (self._now(), self._name, name, json.dumps(details, sort_keys=True, default=str)),
        )
        if self._on_mark is not None:
            self._on_mark(self._name, name)
        # A node cannot know whether a voter or a stranger named another leader. Here there are no strangers.
        check_invariant(
            name != "quorum-epoch-with-two-leaders",
            "INV-8",
            "a quorum epoch has one leader",
            node=self._name,
            **details,
        )
        watcher = self._witness.watcher
        if watcher is not None and name == "quorum-leader-elected":
            watcher.quorum_leader_elected(self._name, details["epoch"], details["start_offset"])
        elif watcher is not None and name == "quorum-voted":
            watcher.quorum_voted(self._name, details["epoch"], details["candidate"])

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
        if self._witness.watcher is not None:
            change = ReplicaChange(
                log_end_offset, high_watermark, log_start_offset, leader_epoch, role, cause
            )
            self._witness.watcher.replica_changed(self._name, (topic, partition), change)

    def leader_isr_changed(self, topic: str, partition: int) -> None:
        """Passes the change on; what it leads to is recorded when the controller commits it."""
        if self._witness.watcher is not None:
            self._witness.watcher.leader_isr_changed(self._name, (topic, partition))

    def records_served(
        self, topic: str, partition: int, offset: int, records: bytes, to_follower: bool
    ) -> None:
        """Passes the response on; consumers record what they get."""
        if self._witness.watcher is not None:
            key = (topic, partition)
            self._witness.watcher.records_served(self._name, key, offset, records, to_follower)

    def log_cut(self, topic: str, partition: int, *details: Any) -> None:
        """Ignores the cut: what a replica lost by it shows in its log end."""

    def metadata_committed(self, offset: int, quorum_epoch: int, record: Any) -> None:
        """Hands a committed record to the witness.

        A process without a snapshot begins at offset 0; every later record continues the one before it.
        """
        check_invariant(
            offset in (0, self._next_metadata_offset),
            "INV-5",
            "committed metadata has no gaps",
            node=self._name,
            offset=offset,
            expected=self._next_metadata_offset,
        )
        self._next_metadata_offset = offset + 1
        self._witness.committed(offset, quorum_epoch, record)

    def node_went_down(self, *_: Any) -> None:
        """Records that the node's replicas are offline."""
        if self._witness.watcher is not None:
            self._witness.watcher.node_went_down(self._name)
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
