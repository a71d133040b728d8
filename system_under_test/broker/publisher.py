"""The metadata publisher: applies committed records to this broker.

The publisher listens to the Raft observer. Until the broker may act on metadata (LIFE-1) it only
collects; the first publish then applies everything at once. Afterwards every committed batch is a separate
publish, in order (META-2), and never less than a batch (META-4). The simulation can make it lag, or merge several
batches into one change of which the replicas see only the end points (META-3): both are legal at any time. `hold`
and `release` force the latter.

A snapshot replaces the image as a whole. It is one publish, in which the replicas see what differs (RAFT-8).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol
from uuid import UUID

from system_under_test.broker.interfaces import LocalPartitionsDelta
from system_under_test.broker.metadata_cache import MetadataCache
from system_under_test.config import NodeConfig
from system_under_test.metadata.image import ClusterImage, PartitionRegistration
from system_under_test.metadata.records import (
    ClearElrRecord,
    IgnoredRecord,
    LeaderChangeRecord,
    MetadataBatch,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
)
from system_under_test.metadata.snapshot import MetadataSnapshot, image_of
from system_under_test.runtime import Host

MAX_LAG_MS = 200
"""Longest delay of a publish that the simulation inserts: some heartbeats and some fetches long."""

_Key = tuple[UUID, int]


class PublishTarget(Protocol):
    """What the publisher needs of the replica manager."""

    def publish_begins(self) -> None:
        """Called before the metadata cache changes (META-5)."""
        ...

    def apply_delta(self, delta: LocalPartitionsDelta, broker_epoch: int) -> None:
        """Applies the changes of hosted partitions."""
        ...

    def publish_ends(self) -> None:
        """Called after everything was applied (META-5)."""
        ...


class MetadataPublisher:
    """Turns committed batches into publishes; implements `RaftListener`.

    Args:
        host: The node's interfaces to the outside.
        config: Node id and rules.
        cache: Moved to the new image at the beginning of a publish.
        target: The replica manager.
        broker_epoch: Returns the epoch of this incarnation.
        before_first: Called once in the first publish, when the cache is there and no partition is: loads the
            logs.
        after_first: Called once, right after it.
        after_each: Called after every publish that changed a partition.
        on_topics_removed: Called with the names of the topics that a publish removed, after `after_each`.
        on_failure: Called when a publish failed. Nothing is published after that.
    """

    def __init__(
        self,
        host: Host,
        config: NodeConfig,
        cache: MetadataCache,
        target: PublishTarget,
        *,
        broker_epoch: Callable[[], int],
        before_first: Callable[[], None],
        after_first: Callable[[], None],
        after_each: Callable[[], None],
        on_topics_removed: Callable[[Sequence[str]], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.loaded_offset = -1
        self._node_id = config.node_id
        self._random = host.random
        self._lag_stream = host.random.stream("metadata-lag")
        self._observer = host.observer
        self._cache = cache
        self._target = target
        self._broker_epoch = broker_epoch
        self._before_first = before_first
        self._after_first = after_first
        self._after_each = after_each
        self._on_topics_removed = on_topics_removed
        self._on_failure = on_failure
        self._queue: deque[MetadataBatch] = deque()
        # Published before the queue; what the queue had before it is part of it.
        self._snapshot: MetadataSnapshot | None = None
        self._is_held = False
        self._merges_next = False
        self._hosted: dict[_Key, PartitionRegistration] = {}
        self._rules = config.rules
        # LIFE-1: without the rule the broker acts on the first prefix of the metadata that it has, however old.
        self._may_publish = not config.rules("LIFE-1")
        self._has_published = False
        self._stopped = False
        self._lag_timer: asyncio.TimerHandle | None = None

    @property
    def has_published(self) -> bool:
        """Whether the first publish is done."""
        return self._has_published

    @property
    def is_held(self) -> bool:
        """Whether `hold` is in force."""
        return self._is_held

    @property
    def metadata_offset(self) -> int:
        """Offset of the last record applied, or loaded while nothing was published yet (5.3)."""
        return self._cache.image.last_offset if self._has_published else self.loaded_offset

    def on_leader_change(self, quorum_epoch: int, leader_id: int) -> None:
        """Does nothing: channels query the Raft observer for the leader when they need it."""

    def on_commit(self, batches: Sequence[MetadataBatch]) -> None:
        """Accepts committed batches, and publishes them if publishing is allowed and not delayed."""
        if not batches or self._stopped:
            return
        self._queue.extend(batches)
        self.loaded_offset = batches[-1].last_offset
        if self._may_publish and self._lag_timer is None:
            self._drain()

    def on_snapshot(self, snapshot: MetadataSnapshot) -> None:
        """Accepts a snapshot, which replaces everything that was accepted before; see `RaftListener`."""
        if self._stopped:
            return
        self._queue.clear()
        self._snapshot = snapshot
        self.loaded_offset = snapshot.id.end_offset - 1
        if self._may_publish and self._lag_timer is None:
            self._drain()

    def snapshot_image(self) -> ClusterImage | None:
        """Returns the published image, None before the first publish; see `RaftListener`."""
        return self._cache.image if self._has_published and not self._stopped else None

    def hold(self) -> None:
        """Publishes nothing until `release`: the broker lags (META-2)."""
        self._is_held = True

    def release(self) -> None:
        """Publishes everything since `hold` as one change; replicas see only its end points (META-3)."""
        self._is_held = False
        self._merges_next = bool(self._queue)
        if self._may_publish and self._lag_timer is None:
            self._drain()

    def allow(self) -> None:
        """Publishes from now on: the broker's own registration is among the loaded records (LIFE-1)."""
        self._may_publish = True
        if self._lag_timer is None:
            self._drain()

    def stop(self) -> None:
        """Publishes nothing any more."""
        self._stopped = True
        self._queue.clear()
        self._snapshot = None
        if self._lag_timer is not None:
            self._lag_timer.cancel()

    def _lag(self) -> None:
        delay_ms = self._lag_stream.randrange(1, MAX_LAG_MS)
        self._observer.mark("metadata-lags", delay_ms=delay_ms)
        self._lag_timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._lag_is_over)

    def _lag_is_over(self) -> None:
        self._lag_timer = None
        self._drain()

    def _drain(self) -> None:
        queue = self._queue
        try:
            while (queue or self._snapshot) and not self._stopped and not self._is_held:
                count = 1
                if not self._has_published:
                    count = len(queue) if self._rules("LIFE-1") else 1
                elif self._merges_next:
                    count = len(queue)
                    self._observer.mark("metadata-batches-merged", count=count)
                elif self._snapshot is not None:
                    count = 0
                elif self._random.buggify("metadata-lag"):
                    self._lag()
                    return
                elif len(queue) > 1 and self._random.buggify("metadata-batch"):
                    count = len(queue)
                    self._observer.mark("metadata-batches-merged", count=count)
                self._merges_next = False
                self._publish([queue.popleft() for _ in range(count)])
        except Exception as error:
            # One of the edges where everything is caught: a broker whose replicas and metadata may
            # disagree must not continue. The owner ends the process with this very error.
            self._stopped = True
            self._on_failure(error)

    def _publish(self, batches: list[MetadataBatch]) -> None:
        """Publishes batches without awaiting, so that no part of them is visible alone (META-4)."""
        image = self._cache.image
        snapshot, self._snapshot = self._snapshot, None
        if self._has_published and snapshot is None and not _changes_anything(batches):
            for batch in batches:
                image.last_offset = batch.last_offset
            return
        first = not self._has_published
        self._target.publish_begins()
        removed = []
        if snapshot is not None:
            loaded = image_of(snapshot, like=image)
            removed = [
                one.name for one in image.topics.values() if one.topic_id not in loaded.topics
            ]
            self._cache.image = image = loaded
        for batch in batches:  # META-5: the cache first, because leaders query it for eligibility
            offset = batch.base_offset
            for record in batch.records:
                if isinstance(record, RemoveTopicRecord):
                    removed.append(image.topics[record.topic_id].name)
                image.replay(offset, record)
                offset += 1
        if first:
            self._before_first()
        # [RAFT-8] A snapshot does not state what changed: everything is compared.
        compares_all = first or snapshot is not None
        every = dict.fromkeys((*self._hosted, *image.partitions)) if compares_all else {}
        delta = self._delta(list(every) if compares_all else self._touched(batches))
        changed = bool(delta.deletes or delta.leaders or delta.followers)
        if changed:
            self._target.apply_delta(delta, self._broker_epoch())
        self._target.publish_ends()
        self._has_published = True
        if changed:
            self._after_each()
        if removed:
            self._on_topics_removed(removed)
        if first:
            self._after_first()

    def _touched(self, batches: Iterable[MetadataBatch]) -> list[_Key]:
        """Returns the partitions that records may have changed, in the order of the records."""
        touched: dict[_Key, None] = {}
        for batch in batches:
            for record in batch.records:
                if isinstance(record, (PartitionRecord, PartitionChangeRecord)):
                    touched[record.topic_id, record.partition_id] = None
                elif isinstance(record, ClearElrRecord):
                    for key, hosted in self._hosted.items():
                        if record.topic_name in ("", hosted.topic):
                            touched[key] = None
                elif isinstance(record, RemoveTopicRecord):
                    for key in self._hosted:
                        if key[0] == record.topic_id:
                            touched[key] = None
        return list(touched)

    def _delta(self, keys: list[_Key]) -> LocalPartitionsDelta:
        """[META-3] Compares the end points, old registration and new, of partitions hosted here."""
        deletes: list[tuple[str, int, bool]] = []
        leaders: list[PartitionRegistration] = []
        followers: list[PartitionRegistration] = []
        for key in keys:
            old = self._hosted.get(key)
            new = self._cache.image.partitions.get(key)
            if new is None or self._node_id not in new.replicas:
                if old is not None:
                    del self._hosted[key]
                    deletes.append((old.topic, old.partition, new is None))
                continue
            self._hosted[key] = new
            if old is None or new.partition_epoch != old.partition_epoch:
                (leaders if new.leader == self._node_id else followers).append(new)
        return LocalPartitionsDelta(
            deletes=tuple(deletes), leaders=tuple(leaders), followers=tuple(followers)
        )


def _changes_anything(batches: Iterable[MetadataBatch]) -> bool:
    return any(
        not isinstance(record, (NoOpRecord, IgnoredRecord, LeaderChangeRecord))
        for batch in batches
        for record in batch.records
    )
