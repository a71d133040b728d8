"""Fetch for followers and consumers, by the leader; consumers may also read from followers (KIP-392).

A follower serves a consumer below its own high watermark, which is never above the leader's. Replicas fetch from
the leader only, and so do consumers with a version before 11, which do not know that followers can serve them.

FETCH-0: a stale fetch must never be processed after a newer one of the same follower. Kafka has fetch sessions
for it. This broker declines them, like a Kafka broker whose session cache is full: the response to a full fetch
has session id 0, the response to one that names a session is FETCH_SESSION_ID_NOT_FOUND. The guarantee is reached
in another way: a fetcher uses one connection with one outstanding request, a connection delivers in order, and a
new leader epoch or broker epoch fences what an older connection may still hold (FETCH-2, FS-2).

This is the hottest path of a broker. A fetch that finds nothing builds no response; it waits, and reads when it is
woken. Entities are immutable, so two followers that keep up with a log get the same response object.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

from system_under_test.broker.local_replica import LocalReplica
from system_under_test.broker.partition import Partition
from system_under_test.broker.purgatory import Purgatory
from system_under_test.broker.replica_context import ReplicaContext
from system_under_test.broker.replica_state import ReplicaState
from system_under_test.log.log import Log
from system_under_test.protocol.entities import fetch_response_of, fetched_data, fetched_topic
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import fetch_response
from system_under_test.protocol.record_batch import read_headers

CONSUMER = -1
"""What a consumer gives as its replica id."""
FETCH_MAX_BYTES = 55 * 1024 * 1024
"""Upper bound of a response, whatever the request allows; Kafka's fetch.max.bytes."""
READ_COMMITTED = 1
"""The isolation level of a consumer that reads no record of an open or aborted transaction."""
FULL_FETCH_EPOCHS = (-1, 0)
"""Session epochs of a request that names everything it wants: without a session, or to get one (KIP-227)."""

_NONE = ErrorCode.NONE
_NO_TIME = timedelta(0)

TopicIdLookup = Callable[[UUID | None, int], Partition | ErrorCode]
"""Finds a partition by topic id and index, or returns why it is not served here."""


class _Entry:
    """One partition of a fetch request; while it is parked the partition calls it when something moved.

    Attributes:
        wanted: The partition's part of the request.
        partition: None if it is not served here.
        leader_epoch: The partition's, when all checks were passed.
        data: This partition's part of the response; None if there is nothing to read and nothing wrong.
    """

    __slots__ = ("data", "fetch", "leader_epoch", "partition", "wanted")

    def __init__(self, fetch: "_Fetch", wanted: Any) -> None:
        self.fetch = fetch
        self.wanted = wanted
        self.partition: Partition | None = None
        self.leader_epoch = -1
        self.data: Any = None

    def bound_moved(self, bound: int) -> None:
        """Responds if there is now enough to read.

        Args:
            bound: Offset below which this request may read.
        """
        # A consumer may wait between the high watermark and the log end, where it cannot read yet.
        if bound > self.wanted.fetch_offset:
            self.fetch.data_arrived()

    def role_changed(self) -> None:
        """Responds: the checks of a second reading determine the error."""
        self.fetch.finish()


class _Fetch:
    """A fetch request, parked or not.

    Attributes:
        topics: (topic id, entries) in the order of the request.
        is_follower: Whether the requester is a replica, as opposed to a consumer.
        needs_leader: Whether only the leader may serve it.
        must_respond: Whether there is an error or a divergence, which is never parked.
    """

    __slots__ = (
        "_handler",
        "_watched",
        "future",
        "is_done",
        "is_follower",
        "must_respond",
        "needs_leader",
        "number",
        "request",
        "size_bytes",
        "topics",
    )

    future: "asyncio.Future[Any]"

    def __init__(
        self, handler: "FetchHandler", request: Any, *, knows_followers_serve: bool
    ) -> None:
        self._handler = handler
        self.request = request
        self.topics: list[tuple[UUID | None, list[_Entry]]] = []
        self.size_bytes = 0
        self.must_respond = False
        self.is_done = False
        self.number = 0
        self.is_follower = request.replica_state.replica_id > CONSUMER
        self.needs_leader = self.is_follower or not knows_followers_serve
        self._watched: list[dict[int, Any]] = []

    @property
    def is_ready(self) -> bool:
        """Whether the response is due before the deadline (FETCH-7)."""
        if self.must_respond:
            return True
        wanted: int = min(self.request.min_bytes, self.request.max_bytes, FETCH_MAX_BYTES)
        return self.size_bytes >= wanted

    def data_arrived(self) -> None:
        """Reads again, and responds if that is enough."""
        if not self.is_done:
            self._handler.read_again(self)
            if self.is_ready:
                self._respond()

    def finish(self) -> None:
        """Reads again, and responds with the available data."""
        if not self.is_done:
            self._handler.read_again(self)
            self._respond()

    def expire(self) -> None:
        """Responds at the deadline."""
        self.finish()

    def abandon(self) -> None:
        """Responds because the broker stops."""
        self.finish()

    def watch(self) -> None:
        """Adds this request to the waiters of its partitions."""
        for _, entries in self.topics:
            for entry in entries:
                partition = entry.partition
                if partition is not None:
                    waiters = partition.waiters
                    waits = (
                        waiters.follower_fetches if self.is_follower else waiters.consumer_fetches
                    )
                    waits[self.number] = entry
                    self._watched.append(waits)

    def _respond(self) -> None:
        self.is_done = True
        for waits in self._watched:
            waits.pop(self.number, None)
        # The connection may be closed, which cancels the future.
        if not self.future.done():
            self.future.set_result(self.response())
        self.release()

    def release(self) -> None:
        """Breaks the cycle of request and entries, so that no garbage collector is needed."""
        self.topics = []
        self._watched = []

    def response(self) -> Any:
        """Returns the fetch response, and reports its records to the observer."""
        topics = self.topics
        for _, entries in topics:
            for entry in entries:
                if entry.data is not None and entry.data.records and entry.partition is not None:
                    entry.partition.replica.report_served(
                        entry.wanted.fetch_offset, entry.data.records, self.is_follower
                    )
        if len(topics) == 1 and len(topics[0][1]) == 1:
            entry = topics[0][1][0]
            partition = entry.partition
            if (
                partition is not None
                and entry.data is not None
                and entry.data is partition.last_read
            ):
                if partition.last_response is None:
                    partition.last_response = self._build()
                return partition.last_response
        return self._build()

    def _build(self) -> Any:
        return fetch_response_of(
            _NONE,
            tuple(
                [
                    fetched_topic(
                        topic_id, tuple([entry.data or _nothing(entry) for entry in entries])
                    )
                    for topic_id, entries in self.topics
                ]
            ),
        )


class FetchHandler:
    """Serves the fetch requests of one broker."""

    __slots__ = ("_context", "_lookup", "_number", "purgatory")

    def __init__(self, context: ReplicaContext, lookup: TopicIdLookup) -> None:
        self._context = context
        self._lookup = lookup
        self._number = 0
        self.purgatory = Purgatory()

    def handle(self, request: Any, *, knows_followers_serve: bool = True) -> Any:
        """Reads, and responds now or when there is more (FETCH-7).

        Args:
            request: The canonical request.
            knows_followers_serve: Whether a consumer with the version of the request may read from followers.

        Returns:
            The response or a future of it.
        """
        if request.session_epoch not in FULL_FETCH_EPOCHS:
            # An incremental fetch in a session that was never granted. The client then sends a full fetch.
            return fetch_response_of(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ())
        fetch = _Fetch(self, request, knows_followers_serve=knows_followers_serve)
        arrival_ns = self._context.monotonic_ns() if fetch.is_follower else None
        for topic in request.topics:
            topic_id = topic.topic_id
            entries = []
            for wanted in topic.partitions:
                entry = _Entry(fetch, wanted)
                self._find_and_read(fetch, entry, topic_id, arrival_ns)
                entries.append(entry)
            fetch.topics.append((topic_id, entries))
        if fetch.is_ready or not fetch.topics or request.max_wait <= _NO_TIME:
            response = fetch.response()
            fetch.release()
            return response
        self._number += 1
        fetch.number = self._number
        fetch.future = asyncio.get_running_loop().create_future()
        fetch.watch()
        self.purgatory.park(fetch, request.max_wait.total_seconds())
        return fetch.future

    def read_again(self, fetch: _Fetch) -> None:
        """Reads all partitions of a parked request anew; a follower's progress is not recorded (FS-1)."""
        fetch.size_bytes = 0
        fetch.must_respond = False
        for topic_id, entries in fetch.topics:
            for entry in entries:
                self._find_and_read(fetch, entry, topic_id, None)

    def _find_and_read(
        self, fetch: _Fetch, entry: _Entry, topic_id: UUID | None, arrival_ns: int | None
    ) -> None:
        """Reads one partition.

        Args:
            fetch: The request.
            entry: Its part; gets the data or the error.
            topic_id: Of the partition.
            arrival_ns: When a follower's request arrived; None for consumers and for a second reading, whose
                progress is not recorded (FS-1).
        """
        partition = self._lookup(topic_id, entry.wanted.partition)
        if isinstance(partition, ErrorCode):
            entry.data = _error(entry.wanted.partition, partition)
            fetch.must_respond = True
            return
        entry.partition = partition
        try:
            self._read(fetch, entry, partition, arrival_ns)
        except OSError as error:
            replica = partition.replica
            self._context.on_disk_error(replica.topic, replica.index, error)
            entry.data = _error(entry.wanted.partition, ErrorCode.KAFKA_STORAGE_ERROR)
            fetch.must_respond = True

    def _read(
        self, fetch: _Fetch, entry: _Entry, partition: Partition, arrival_ns: int | None
    ) -> None:
        """Checks and reads one partition, and records a follower's progress (FETCH-1, FS-1)."""
        replica = partition.replica
        leadership = partition.leadership
        log = replica.online_log()
        if (
            entry.leader_epoch == replica.leader_epoch
            and leadership is not None
            and entry.wanted.fetch_offset >= log.log_start_offset
        ):
            # A second reading in the same leadership. The epochs have not changed, and the log has not become
            # shorter at its end: no check can have another result.
            entry.data = self._data(fetch, entry, partition, log)
            return
        wanted = entry.wanted
        requester = fetch.request.replica_state
        follower = None
        error = leader_epoch_error(self._context, replica, wanted.current_leader_epoch)
        if error is None:
            if leadership is None:
                # FETCH-3.
                if fetch.needs_leader or replica.state is not ReplicaState.FOLLOWER:
                    error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif fetch.is_follower:
                follower = leadership.followers.get(requester.replica_id)
                error = _not_assigned(wanted) if follower is None else None
        if error is not None:
            entry.data = _error(wanted.partition, error, partition=partition)
            fetch.must_respond = True
            return
        # FETCH-1: taken before reading, for the response as well as for the follower's progress.
        leader_leo = log.log_end_offset
        refusal = self._compare(replica, log, wanted, requester.replica_id)
        entry.data = self._data(fetch, entry, partition, log) if refusal is None else refusal
        # FS-1: a fetch that diverges or failed does not show what the follower has (KAFKA-13141, KAFKA-8400).
        if (
            follower is not None
            and leadership is not None
            and arrival_ns is not None
            and (refusal is None or not self._context.rules("FS-1"))
        ):
            error = leadership.record_follower_fetch(
                follower,
                fetch_offset=wanted.fetch_offset,
                log_start_offset=wanted.log_start_offset,
                arrival_ns=arrival_ns,
                leader_leo=leader_leo,
                broker_epoch=requester.replica_epoch,
            )
            if partition.waiters.deletions:
                partition.log_starts_moved()
            if error is not _NONE:
                entry.data = refusal = _error(wanted.partition, error, partition=partition)
        if refusal is None:
            entry.leader_epoch = replica.leader_epoch
        else:
            fetch.must_respond = True

    def _compare(self, replica: LocalReplica, log: Log, wanted: Any, replica_id: int) -> Any:
        """Returns a response if the requester's log cannot be a prefix of this one (FETCH-5), else None."""
        offset = wanted.fetch_offset
        last_epoch = wanted.last_fetched_epoch
        leader_leo = log.log_end_offset
        if last_epoch >= 0 and self._context.rules("FETCH-5"):
            if last_epoch == log.epochs.latest_epoch:
                end: tuple[int, int] | None = (last_epoch, leader_leo)
            else:
                end = log.end_offset_for_epoch(last_epoch)
            # Below the log start nothing can be compared, even if the epochs diverge (KAFKA-12996).
            if end is None or offset < log.log_start_offset:
                return _error(wanted.partition, ErrorCode.OFFSET_OUT_OF_RANGE)
            if end[0] < last_epoch or end[1] < offset:
                replica.mark(
                    "diverging-fetch",
                    replica=replica_id,
                    fetch_offset=offset,
                    last_fetched_epoch=last_epoch,
                    epoch=end[0],
                    end_offset=end[1],
                )
                return _diverging(replica, wanted.partition, end)
        if not log.log_start_offset <= offset <= leader_leo:
            return _error(wanted.partition, ErrorCode.OFFSET_OUT_OF_RANGE)
        return None

    def _data(self, fetch: _Fetch, entry: _Entry, partition: Partition, log: Log) -> Any:
        """Reads what the requester may see (FETCH-6); None if that is nothing."""
        request = fetch.request
        wanted = entry.wanted
        offset = wanted.fetch_offset
        replica = partition.replica
        high_watermark = replica.high_watermark
        # FETCH-6: followers read up to the log end.
        bound = log.log_end_offset if fetch.is_follower else replica.consumer_bound(log)
        stable = high_watermark
        is_committed = False
        if log.producers.transactions.is_used:
            stable = log.last_stable_offset(high_watermark)
            # TXN-1: such a consumer gets whole transactions only.
            is_committed = request.isolation_level == READ_COMMITTED and not fetch.is_follower
            bound = min(bound, stable) if is_committed else bound
        if offset >= bound:
            return None
        taken = fetch.size_bytes
        limit = min(wanted.partition_max_bytes, request.max_bytes - taken, FETCH_MAX_BYTES - taken)
        if limit <= 0 and taken:
            return None
        if partition.leadership is None:
            # A follower may truncate its log within a leader epoch, so that no key determines the bytes.
            records = log.read(offset, max(limit, 1), bound)
            if not records or (len(records) > limit and taken):
                return None
            fetch.size_bytes = taken + len(records)
            return fetched_data(
                wanted.partition,
                _NONE,
                high_watermark,
                log.log_start_offset,
                records,
                last_stable_offset=stable,
                aborted_transactions=_aborted(log, records) if is_committed else None,
            )
        # Within one leader epoch nothing is cut off a leader's log, so that the key determines the bytes. The
        # generation changes when a segment was compacted.
        key = (
            replica.leader_epoch,
            offset,
            bound,
            high_watermark,
            limit,
            not taken,
            log.log_start_offset,
            log.generation,
            stable,
            is_committed,
        )
        if key == partition.last_read_key:
            data = partition.last_read
        else:
            records = log.read(offset, max(limit, 1), bound)
            # Only the first partition with data may exceed the limit, so that a large batch gets through.
            if not records or (len(records) > limit and taken):
                return None
            data = fetched_data(
                wanted.partition,
                _NONE,
                high_watermark,
                log.log_start_offset,
                records,
                last_stable_offset=stable,
                aborted_transactions=_aborted(log, records) if is_committed else None,
            )
            partition.last_read_key = key
            partition.last_read = data
            partition.last_response = None
        fetch.size_bytes = taken + len(data.records)
        return data


def _aborted(log: Log, records: bytes) -> tuple[Any, ...]:
    """Returns the aborted transactions that records may belong to, whose batches a consumer skips (TXN-5)."""
    if not log.rules("TXN-5"):
        return ()
    headers = [header for _, header in read_headers(records)]
    found = log.producers.transactions.aborted_within(
        headers[0].base_offset, headers[-1].last_offset + 1
    )
    return tuple(
        fetch_response.AbortedTransaction(
            producer_id=one.producer_id, first_offset=one.first_offset
        )
        for one in sorted(found, key=lambda one: one.first_offset)
    )


def _not_assigned(wanted: Any) -> ErrorCode:
    """Returns the error for a broker that is no replica (FETCH-4): our metadata may be behind; it tries again."""
    if wanted.current_leader_epoch >= 0:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NOT_LEADER_OR_FOLLOWER


def leader_epoch_error(
    context: ReplicaContext, replica: LocalReplica, current_leader_epoch: int
) -> ErrorCode | None:
    """Compares the leader epoch of a request with the partition's (FETCH-2).

    Args:
        context: Has the rules.
        replica: Of the requested partition.
        current_leader_epoch: The epoch that the requester assumes; -1 if the request has none.
    """
    if current_leader_epoch == replica.leader_epoch or current_leader_epoch < 0:
        return None
    # FETCH-2: a requester with an older epoch may hold what a later leader has replaced.
    if not context.rules("FETCH-2"):
        return None
    if current_leader_epoch > replica.leader_epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    replica.mark(
        "fenced-fetch",
        requested_leader_epoch=current_leader_epoch,
        leader_epoch=replica.leader_epoch,
    )
    return ErrorCode.FENCED_LEADER_EPOCH


def _nothing(entry: _Entry) -> Any:
    partition = entry.partition
    assert partition is not None  # an entry without a partition has an error
    replica = partition.replica
    return fetched_data(
        entry.wanted.partition,
        _NONE,
        replica.high_watermark,
        replica.log_start_offset,
        b"",
        last_stable_offset=replica.last_stable_offset,
    )


def _diverging(replica: LocalReplica, index: int, end: tuple[int, int]) -> Any:
    return fetch_response.PartitionData(
        partition_index=index,
        error_code=_NONE,
        high_watermark=replica.high_watermark,
        last_stable_offset=replica.last_stable_offset,
        log_start_offset=replica.log_start_offset,
        diverging_epoch=fetch_response.EpochEndOffset(epoch=end[0], end_offset=end[1]),
        aborted_transactions=None,
        records=b"",
    )


def _error(index: int, error: ErrorCode, *, partition: Partition | None = None) -> Any:
    # The current leader helps a client whose metadata are old (KIP-951).
    leader = fetch_response.LeaderIdAndEpoch()
    if partition is not None and error in (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
    ):
        leader = fetch_response.LeaderIdAndEpoch(
            leader_id=partition.leader_id, leader_epoch=partition.leader_epoch
        )
    return fetch_response.PartitionData(
        partition_index=index,
        error_code=error,
        high_watermark=-1,
        current_leader=leader,
        aborted_transactions=None,
        records=b"",
    )
