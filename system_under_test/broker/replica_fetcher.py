"""Replica fetchers: how a follower copies its leaders' logs.

There is one fetcher per leader broker, with one connection and one request in flight, which contains every
partition that is ready (FF-1). Together with the listener's rule of one request at a time per connection this
gives what Kafka's fetch sessions are for: a leader never processes an older fetch after a newer one (FETCH-0).

What a partition does with fetched data is behind `FollowedPartition`. This module decides which partitions are
requested, whether an entry of a response may still be used (FF-2), and when to wait.
Every `follow` makes a new `_Followed`, so "the same object as when the request was built" is the whole
identity check: same fetcher, same leader epoch, not forgotten in between.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

from system_under_test.broker.channel import Channel
from system_under_test.broker.interfaces import FollowedPartition
from system_under_test.broker.tasks import TaskScope, Waker
from system_under_test.config import BY_EPOCH_REQUEST, NodeConfig
from system_under_test.log.errors import OutOfOrderOffsetError
from system_under_test.protocol.entities import fetch_of, fetch_partition, fetch_topic
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    fetch_request,
    fetch_response,
    list_offsets_request,
    millis,
    offset_for_leader_epoch_request,
)
from system_under_test.protocol.record_batch import CorruptBatchError
from system_under_test.runtime import Host

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2

_NONE = int(ErrorCode.NONE)
_OFFSET_OUT_OF_RANGE = int(ErrorCode.OFFSET_OUT_OF_RANGE)
_FENCED_LEADER_EPOCH = int(ErrorCode.FENCED_LEADER_EPOCH)

_Key = tuple[UUID, int]


class _Followed:
    """One partition in a fetcher, under one leader epoch."""

    __slots__ = (
        "delay_until_s",
        "entry",
        "is_active",
        "is_truncating",
        "key",
        "leader_epoch",
        "leader_high_watermark",
        "partition",
        "position",
    )

    def __init__(self, partition: FollowedPartition, leader_epoch: int) -> None:
        self.partition = partition
        self.key: _Key = (partition.topic_id, partition.index)
        self.leader_epoch = leader_epoch
        self.delay_until_s = 0.0
        # Of the newest response, for the metrics only.
        self.leader_high_watermark = 0
        # The position in the request in flight, and its entity: reused while the position does not change.
        self.position: tuple[int, int, int] | None = None
        self.entry: Any = None
        # Becomes false, for good, when the partition is forgotten or followed anew.
        self.is_active = True
        # TRUNC-4: whether the leader must first be asked where its epochs end.
        self.is_truncating = False

    def matches(self, topic_id: UUID | None, index: int) -> bool:
        """Whether an entry of a response is about this partition."""
        own_id, own_index = self.key
        return index == own_index and (topic_id is own_id or topic_id == own_id)


class ReplicaFetcher:
    """Fetches from one leader broker for as long as it has partitions.

    Args:
        host: The node's interfaces to the outside.
        config: Node id, limits and timings.
        leader_id: The broker it fetches from.
        address: Where that broker listened when the fetcher was made.
        broker_epoch: Returns the epoch of this incarnation.
        on_storage_failure: Called with topic, partition and error when the disk failed under a fetch.
    """

    def __init__(
        self,
        host: Host,
        config: NodeConfig,
        leader_id: int,
        address: str,
        *,
        broker_epoch: Callable[[], int],
        on_storage_failure: Callable[[str, int, OSError], None],
    ) -> None:
        self.leader_id = leader_id
        self.address = address
        self.task: asyncio.Task[Any] | None = None
        self.channel = Channel(
            host, lambda: self.address, config.timings, f"replica-fetcher-{leader_id}"
        )
        self._observer = host.observer
        self._node_id = config.node_id
        self._partition_max_bytes = config.replica_fetch_max_bytes
        self._response_max_bytes = config.replica_fetch_response_max_bytes
        self._asks_for_epochs = config.features.truncation == BY_EPOCH_REQUEST
        self._max_wait = millis(config.timings.replica_fetch_wait_max_ms)
        self._backoff_s = config.timings.replica_fetch_backoff_ms / 1000
        self._timeout_ms = config.timings.replica_socket_timeout_ms
        self._broker_epoch = broker_epoch
        self._on_storage_failure = on_storage_failure
        self._followed: dict[_Key, _Followed] = {}
        self._waker = Waker()
        self._request: Any = None
        self._request_epoch = -1
        self._replica_state: Any = None

    @property
    def partition_count(self) -> int:
        """Partitions it fetches now, delayed ones included."""
        return len(self._followed)

    def lag(self, key: _Key) -> int:
        """Returns how many records below the leader's high watermark a partition lacks, as far as is known."""
        followed = self._followed.get(key)
        if followed is None:
            return 0
        return max(followed.leader_high_watermark - followed.partition.fetch_position()[0], 0)

    def add(self, followed: _Followed) -> None:
        """Starts fetching a partition; the next request contains it."""
        # TRUNC-4: a log without epochs has been truncated to its high watermark (FOLL-4).
        followed.is_truncating = (
            self._asks_for_epochs and followed.partition.fetch_position()[1] >= 0
        )
        self._followed[followed.key] = followed
        # By topic, so that requests and responses, which are grouped by topic, have the same order.
        self._followed = dict(sorted(self._followed.items(), key=_by_name))
        self._request = None
        self._waker.wake()

    def remove(self, key: _Key) -> None:
        """Stops fetching a partition; an entry for it that is on its way will be ignored."""
        followed = self._followed.pop(key, None)
        if followed is not None:
            followed.is_active = False
            self._request = None

    def adopt(self, key: _Key, leader_epoch: int) -> bool:
        """Continues with a partition in another leader epoch; false when it is not fetched here."""
        followed = self._followed.get(key)
        if followed is None:
            return False
        followed.leader_epoch = leader_epoch
        followed.entry = None
        return True

    async def run(self) -> None:
        """Fetches until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            if self._asks_for_epochs:
                await self._truncate_by_requests(loop.time())
            requested = self._ready(loop.time())
            if not requested:
                await self._waker.wait(self._next_delay_ms(loop.time()))
                continue
            request = self._build(requested)
            try:
                response = await self.channel.send(request, self._timeout_ms)
            except (ConnectionError, TimeoutError):
                self._delay(requested)
                continue
            if response.error_code != _NONE:
                self._delay(requested)
                continue
            for followed in self._process(requested, response):
                await self._handle_out_of_range(followed)

    # --- request -------------------------------------------------------------------------------------

    def _ready(self, now_s: float) -> list[_Followed]:
        return [
            followed
            for followed in self._followed.values()
            if followed.delay_until_s <= now_s and not followed.is_truncating
        ]

    def _next_delay_ms(self, now_s: float) -> float | None:
        if not self._followed:
            return None
        earliest_s = min(followed.delay_until_s for followed in self._followed.values())
        return max(0.0, (earliest_s - now_s) * 1000)

    def _build(self, requested: list[_Followed]) -> fetch_request.FetchRequest:
        changed = False
        for followed in requested:
            position = followed.partition.fetch_position()
            if position != followed.position or followed.entry is None:
                changed = True
                followed.position = position
                followed.entry = fetch_partition(
                    followed.partition.index,
                    followed.leader_epoch,
                    position[0],
                    self._partition_max_bytes,
                    last_fetched_epoch=-1 if self._asks_for_epochs else position[1],
                    log_start_offset=position[2],
                )
        epoch = self._broker_epoch()
        complete = len(requested) == len(self._followed)
        # An idle follower repeats itself; the entity is immutable and may be sent again as it is.
        if self._request is not None and not changed and complete and epoch == self._request_epoch:
            return self._request
        if epoch != self._request_epoch or self._replica_state is None:
            self._replica_state = fetch_request.ReplicaState(
                replica_id=self._node_id, replica_epoch=epoch
            )
        request = fetch_of(
            _by_topic(requested), self._max_wait, self._response_max_bytes, self._replica_state
        )
        self._request = request if complete else None
        self._request_epoch = epoch
        return request

    # --- response ------------------------------------------------------------------------------------

    def _process(
        self, requested: list[_Followed], response: fetch_response.FetchResponse
    ) -> list[_Followed]:
        """Passes the entries of a response to their partitions; returns those that were out of range."""
        out_of_range = []
        place = 0
        for topic in response.responses:
            topic_id = topic.topic_id
            for data in topic.partitions:
                # Leaders respond in the order of the request. Trying that position first avoids hashing UUIDs,
                # which are slow in Python, for every entry of every response.
                followed = requested[place] if place < len(requested) else None
                place += 1
                if followed is None or not followed.matches(topic_id, data.partition_index):
                    followed = _find(requested, topic_id, data.partition_index)
                if followed is None or not self._is_current(followed):
                    continue
                error = data.error_code
                if error == _NONE:
                    self._accept(followed, data)
                elif error == _OFFSET_OUT_OF_RANGE:
                    out_of_range.append(followed)
                elif error == _FENCED_LEADER_EPOCH:
                    # [FF-2] The epoch of the request is still ours (it is part of the identity check), so
                    # our metadata are late: wait for them.
                    self._observer.mark("fetcher-fenced", leader_epoch=followed.leader_epoch)
                    self.remove(followed.key)
                else:
                    self._delay((followed,))
        return out_of_range

    def _is_current(self, followed: _Followed) -> bool:
        """Whether an entry of a response may still be used (FF-2).

        Same fetcher, same leader epoch, same fetch offset as in the request.
        """
        position = followed.position
        return (
            followed.is_active
            and position is not None
            and followed.partition.fetch_position()[0] == position[0]
        )

    def _accept(self, followed: _Followed, data: fetch_response.PartitionData) -> None:
        partition = followed.partition
        diverging = data.diverging_epoch
        if diverging.epoch >= 0 or diverging.end_offset >= 0:
            # [FF-2] Nothing else is taken from a diverging entry, its high watermark least of all.
            try:
                partition.truncate_on_divergence(
                    leader_epoch=followed.leader_epoch,
                    epoch=diverging.epoch,
                    end_offset=diverging.end_offset,
                )
            except OSError as error:
                self._failed(followed, error)
            return
        followed.leader_high_watermark = data.high_watermark
        try:
            partition.append_as_follower(
                data.records or b"",
                leader_epoch=followed.leader_epoch,
                high_watermark=data.high_watermark,
                log_start_offset=data.log_start_offset,
            )
        except CorruptBatchError:
            self._observer.mark(
                "corrupt-batch-fetched", topic=partition.topic, partition=partition.index
            )
            self._delay((followed,))
        except OutOfOrderOffsetError:
            # The leader responded with records that do not begin at our log end, and would do so
            # again. The partition stays failed until its next leader epoch.
            self._observer.mark(
                "fetched-out-of-order", topic=partition.topic, partition=partition.index
            )
            self.remove(followed.key)
        except OSError as error:
            self._failed(followed, error)

    def _failed(self, followed: _Followed, error: OSError) -> None:
        """Stops fetching a partition whose disk failed."""
        self.remove(followed.key)
        partition = followed.partition
        self._on_storage_failure(partition.topic, partition.index, error)

    def _delay(self, followed: Iterable[_Followed]) -> None:
        until_s = asyncio.get_running_loop().time() + self._backoff_s
        for one in followed:
            one.delay_until_s = until_s

    # --- truncation before the first fetch of a leader epoch (TRUNC-4) ---------------------------------

    async def _truncate_by_requests(self, now_s: float) -> None:
        """Asks the leader where epochs end, and truncates by its answers; one step for every partition."""
        asked = {
            (one.partition.topic, one.partition.index): (one, one.leader_epoch)
            for one in self._followed.values()
            if one.is_truncating and one.delay_until_s <= now_s
        }
        if not asked:
            return
        truncating = [one for one, _ in asked.values()]
        try:
            response = await self.channel.send(
                epoch_end_request(self._node_id, truncating), self._timeout_ms
            )
        except (ConnectionError, TimeoutError):
            self._delay(truncating)
            return
        for topic in response.topics:
            for end in topic.partitions:
                followed, leader_epoch = asked.pop((topic.topic, end.partition), (None, -1))
                if followed is None or not followed.is_active:
                    continue
                if followed.leader_epoch == leader_epoch:
                    self._truncate_by_answer(followed, end)
        self._delay(one for one, _ in asked.values())

    def _truncate_by_answer(self, followed: _Followed, end: Any) -> None:
        if end.error_code == _NONE:
            try:
                followed.is_truncating = not followed.partition.truncate_on_divergence(
                    leader_epoch=followed.leader_epoch,
                    epoch=end.leader_epoch,
                    end_offset=end.end_offset,
                )
            except OSError as error:
                self._failed(followed, error)
        elif end.error_code == _FENCED_LEADER_EPOCH:
            self._observer.mark("fetcher-fenced", leader_epoch=followed.leader_epoch)
            self.remove(followed.key)
        else:
            self._delay((followed,))

    # --- offsets that the leader does not have ---------------------------------------------------------

    async def _handle_out_of_range(self, followed: _Followed) -> None:
        """[TRUNC-2] Finds out whether the leader's log ends before ours or begins after it."""
        partition = followed.partition
        self._observer.mark("fetch-out-of-range", topic=partition.topic, partition=partition.index)
        leader_end = await self._request_offset(followed, LATEST_TIMESTAMP)
        if leader_end is None:
            return
        try:
            if leader_end < partition.fetch_position()[0]:
                partition.truncate_to(leader_epoch=followed.leader_epoch, offset=leader_end)
                return
            leader_start = await self._request_offset(followed, EARLIEST_TIMESTAMP)
            if leader_start is not None and leader_start > partition.fetch_position()[0]:
                partition.truncate_fully_and_start_at(
                    leader_epoch=followed.leader_epoch, offset=leader_start
                )
        except OSError as error:
            self._failed(followed, error)

    async def _request_offset(self, followed: _Followed, timestamp: int) -> int | None:
        """Returns an offset of the leader's log; None (and a back-off) when there is no usable response."""
        partition = followed.partition
        request = list_offsets_request.ListOffsetsRequest(
            replica_id=self._node_id,
            isolation_level=0,
            topics=(
                list_offsets_request.ListOffsetsTopic(
                    name=partition.topic,
                    partitions=(
                        list_offsets_request.ListOffsetsPartition(
                            partition_index=partition.index,
                            current_leader_epoch=followed.leader_epoch,
                            timestamp=timestamp,
                        ),
                    ),
                ),
            ),
        )
        try:
            response = await self.channel.send(request, self._timeout_ms)
        except (ConnectionError, TimeoutError):
            self._delay((followed,))
            return None
        if not self._is_current(followed):
            return None
        for topic in response.topics:
            for data in topic.partitions:
                if data.partition_index == partition.index and data.error_code == _NONE:
                    return int(data.offset)
        self._delay((followed,))
        return None


def _by_name(item: tuple[_Key, _Followed]) -> tuple[str, int]:
    partition = item[1].partition
    return partition.topic, partition.index


def _find(requested: list[_Followed], topic_id: UUID | None, index: int) -> _Followed | None:
    for followed in requested:
        if followed.matches(topic_id, index):
            return followed
    return None


def epoch_end_request(node_id: int, truncating: Sequence[_Followed]) -> Any:
    """Returns the OffsetForLeaderEpoch request about the newest epochs of partitions (TRUNC-4)."""
    topics: dict[str, list[Any]] = {}
    for followed in truncating:
        partition = followed.partition
        topics.setdefault(partition.topic, []).append(
            offset_for_leader_epoch_request.OffsetForLeaderPartition(
                partition=partition.index,
                current_leader_epoch=followed.leader_epoch,
                leader_epoch=partition.fetch_position()[1],
            )
        )
    return offset_for_leader_epoch_request.OffsetForLeaderEpochRequest(
        replica_id=node_id,
        topics=tuple(
            offset_for_leader_epoch_request.OffsetForLeaderTopic(
                topic=topic, partitions=tuple(partitions)
            )
            for topic, partitions in topics.items()
        ),
    )


def _by_topic(requested: list[_Followed]) -> tuple[Any, ...]:
    if len(requested) == 1:
        only = requested[0]
        return (fetch_topic(only.key[0], (only.entry,)),)
    topics: dict[UUID, list[Any]] = {}
    for followed in requested:
        topics.setdefault(followed.key[0], []).append(followed.entry)
    return tuple(fetch_topic(topic_id, tuple(entries)) for topic_id, entries in topics.items())


class FetcherManager:
    """Assigns partitions to fetchers, one per leader; implements `FetcherControl`.

    Args:
        host: The node's interfaces to the outside.
        config: Node id, limits and timings.
        scope: Runs the fetchers.
        alive_address: Returns the address of a broker that is alive in the metadata, else None.
        broker_epoch: Returns the epoch of this incarnation.
        on_storage_failure: Called with topic, partition and error when the disk failed under a fetch.
    """

    def __init__(
        self,
        host: Host,
        config: NodeConfig,
        scope: TaskScope,
        *,
        alive_address: Callable[[int], str | None],
        broker_epoch: Callable[[], int],
        on_storage_failure: Callable[[str, int, OSError], None],
    ) -> None:
        self._host = host
        self._config = config
        self._scope = scope
        self._alive_address = alive_address
        self._broker_epoch = broker_epoch
        self._on_storage_failure = on_storage_failure
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._where: dict[tuple[str, int], tuple[ReplicaFetcher, _Key]] = {}
        self._stopped = False

    def follow(self, partition: FollowedPartition, leader_id: int, leader_epoch: int) -> None:
        """Starts fetching a partition from a leader; replaces an earlier fetch of it (FOLL-2)."""
        if not self._config.rules("FOLL-2") and self._adopt(partition, leader_id, leader_epoch):
            return
        self.forget(partition.topic, partition.index)
        address = self._alive_address(leader_id)
        if address is None or self._stopped:
            # [FOLL-2] Nothing is fetched from a leader that is not alive; the next leader epoch tries again.
            return
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._start(leader_id, address)
        fetcher.address = address  # a restarted leader may listen elsewhere
        followed = _Followed(partition, leader_epoch)
        self._where[partition.topic, partition.index] = (fetcher, followed.key)
        fetcher.add(followed)

    def forget(self, topic: str, index: int) -> None:
        """Stops fetching a partition; a response in flight for it will be ignored. Idempotent."""
        found = self._where.pop((topic, index), None)
        if found is not None:
            fetcher, key = found
            fetcher.remove(key)

    def leader_of(self, topic: str, index: int) -> int | None:
        """Returns the broker a partition is fetched from, None when it is not fetched."""
        found = self._where.get((topic, index))
        return None if found is None else found[0].leader_id

    def lags(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Returns (leader, lag) of every partition that is fetched.

        The lag counts the records below the high watermark of the newest response, as in Kafka's FetcherLagStats.
        """
        return {
            place: (fetcher.leader_id, fetcher.lag(key))
            for place, (fetcher, key) in self._where.items()
        }

    def stop_idle(self) -> None:
        """Ends fetchers without partitions; called at the end of a publish, as in Kafka."""
        for leader_id, fetcher in list(self._fetchers.items()):
            if fetcher.partition_count == 0:
                del self._fetchers[leader_id]
                _end(fetcher)

    def stop(self) -> None:
        """Ends all fetchers for good."""
        self._stopped = True
        self._where.clear()
        for fetcher in self._fetchers.values():
            _end(fetcher)
        self._fetchers.clear()

    def _adopt(self, partition: FollowedPartition, leader_id: int, leader_epoch: int) -> bool:
        """Without FOLL-2: a fetcher of the same leader silently continues in the new epoch (KAFKA-7164)."""
        found = self._where.get((partition.topic, partition.index))
        if found is None or found[0].leader_id != leader_id:
            return False
        return found[0].adopt(found[1], leader_epoch)

    def _start(self, leader_id: int, address: str) -> ReplicaFetcher:
        fetcher = ReplicaFetcher(
            self._host,
            self._config,
            leader_id,
            address,
            broker_epoch=self._broker_epoch,
            on_storage_failure=self._on_storage_failure,
        )
        self._fetchers[leader_id] = fetcher
        fetcher.task = self._scope.spawn(fetcher.run(), f"replica-fetcher-{leader_id}")
        return fetcher


def _end(fetcher: ReplicaFetcher) -> None:
    fetcher.channel.close()
    if fetcher.task is not None:
        fetcher.task.cancel()
