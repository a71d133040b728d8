"""A Kafka client that sends every request at most once, so that every outcome can be classified.

Errors become completions as follows:

* an append is `ok` with its offset, `fail` only when it certainly was not appended (refused before the append,
  or never sent), else `info`;
* a poll or a latest that failed has no effect, so it is `fail` whatever the error.

Its producers (`native_producer`) also send batches of several records, and with idempotence send them again.

On a real host a connection negotiates the version of every request with its node
(`system_under_test.protocol.client_versions`): the client works with Apache Kafka from 3.4 on. The simulation
passes messages as they are.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from harness.contracts.client import (
    OFFSET_OUT_OF_RANGE,
    ClientType,
    FetchedBatch,
    OffsetAnswer,
    PollResult,
    ProducedBatch,
    ProducerSettings,
)
from harness.contracts.host import ClientHost, Connection
from harness.contracts.transactions import (
    READ_COMMITTED,
    Key,
    TransactionSettings,
)
from harness.history.op import Completion, Outcome
from system_under_test.protocol.entities import fetch_of, fetch_partition, fetch_topic
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import millis
from system_under_test.protocol.record_batch import (
    BatchHeader,
    CorruptBatchError,
    Record,
    decode_records,
)
from workloads.clients.native_cluster import (
    STALE_METADATA,
    ClusterClient,
    Leader,
    failed,
    never_sent,
    refused,
)
from workloads.clients.native_isolation import visible_batches
from workloads.clients.native_producer import GRACE_MS, NativeProducer
from workloads.clients.native_queries import (
    ask_leader,
    end_of_epoch,
    list_offsets_of,
    offset_of_timestamp,
)
from workloads.clients.native_transactions import NativeTransactionalProducer, stable_positions

LATEST_TIMESTAMP = -1
READ_COMMITTED_LEVEL = 1
FOLLOWER_LAGS = "follower-lags"
"""The `error` of a poll whose position is beyond the follower's log."""


class NativeClient:
    """One client; one operation at a time. Mutable: its connections, and what it knows of leaders.

    Args:
        host: The client host it runs on.
        bootstrap: Addresses of brokers to query for metadata, in turn.
        request_timeout_ms: After which a request counts as lost.
        connect_timeout_ms: After which a connection attempt is given up.
    """

    def __init__(
        self,
        host: ClientHost,
        bootstrap: tuple[str, ...],
        *,
        request_timeout_ms: int,
        connect_timeout_ms: int,
    ) -> None:
        self._host = host
        self._bootstrap = bootstrap
        self._connect_timeout_ms = connect_timeout_ms
        self._is_read_committed = False
        self._cluster = ClusterClient(
            host,
            bootstrap,
            request_timeout_ms=request_timeout_ms,
            connect_timeout_ms=connect_timeout_ms,
        )
        self._once = self.producer(ProducerSettings())

    def producer(self, settings: ProducerSettings) -> NativeProducer:
        """Makes a producer that uses this client's connections."""
        return NativeProducer(self._cluster, settings)

    def transactional_producer(self, settings: TransactionSettings) -> NativeTransactionalProducer:
        """Makes a producer with a transactional id; it has connections of its own."""
        return NativeTransactionalProducer(
            self._host,
            self._bootstrap,
            settings,
            request_timeout_ms=self._cluster.request_timeout_ms,
            connect_timeout_ms=self._connect_timeout_ms,
        )

    def isolated(self, isolation: str) -> "NativeClient":
        """Makes a client whose reads have an isolation level; it is closed by itself."""
        client = NativeClient(
            self._host,
            self._bootstrap,
            request_timeout_ms=self._cluster.request_timeout_ms,
            connect_timeout_ms=self._connect_timeout_ms,
        )
        client._is_read_committed = isolation == READ_COMMITTED
        return client

    async def committed(self, group: str, keys: Sequence[Key]) -> dict[Key, int] | None:
        """Returns the committed positions of a group; None if they are not available."""
        return await stable_positions(
            self._host,
            self._bootstrap,
            group,
            keys,
            request_timeout_ms=self._cluster.request_timeout_ms,
            connect_timeout_ms=self._connect_timeout_ms,
        )

    async def append(
        self, topic: str, partition: int, key: bytes, value: bytes, acks: int
    ) -> Completion:
        """Produces one batch of one record, and sends it at most once."""
        completions: list[Completion] = []
        await self._once.produce(
            (ProducedBatch(topic=topic, partition=partition, records=((key, value),)),),
            acks,
            lambda _, completion: completions.append(completion),
            lambda: True,
        )
        return completions[0]

    async def poll(
        self, topic: str, partition: int, position: int, *, max_bytes: int, max_wait_ms: int
    ) -> PollResult:
        """Fetches once from a position, from the leader."""
        leader = await self._cluster.leader(topic, partition)
        if leader is None:
            return PollResult(completion=never_sent(leader))
        return await self._fetch(
            leader, topic, partition, position, max_bytes=max_bytes, max_wait_ms=max_wait_ms
        )

    async def poll_follower(
        self,
        topic: str,
        partition: int,
        position: int,
        *,
        max_bytes: int,
        max_wait_ms: int,
        choice: float,
    ) -> PollResult:
        """Fetches once from a position, from a follower (KIP-392); `choice` is from 0 to below 1.

        The completion has no leader epoch. A follower that has just learned of an epoch may still have records
        that its leader does not have, so its response proves nothing about the log of that leader.
        """
        leader = await self._cluster.leader(topic, partition)
        if leader is None:
            return PollResult(completion=never_sent(leader))
        if not leader.followers:
            self._cluster.forget_leader(topic, partition)
            none = Completion(outcome=Outcome.FAIL, error_code=None, error="no-follower-known")
            return PollResult(completion=none)
        address, host = leader.followers[int(choice * len(leader.followers))]
        follower = replace(leader, address=address, host=host)
        result = await self._fetch(
            follower, topic, partition, position, max_bytes=max_bytes, max_wait_ms=max_wait_ms
        )
        completion = replace(result.completion, leader_epoch=-1)
        if completion.error == OFFSET_OUT_OF_RANGE:
            # It lags; Kafka's consumer then fetches from the leader, and keeps its position.
            completion = replace(completion, error=FOLLOWER_LAGS)
        return replace(result, completion=completion)

    async def _fetch(
        self,
        leader: Leader,
        topic: str,
        partition: int,
        position: int,
        *,
        max_bytes: int,
        max_wait_ms: int,
    ) -> PollResult:
        """Fetches from a position, from the node that is given as the leader.

        What transactions hide may fill a whole response. The client then fetches again behind it, as Kafka's
        consumer does, so that a poll without records has reached the log end.
        """
        while True:
            result, following = await self._fetch_visible(
                leader, topic, partition, position, max_bytes=max_bytes, max_wait_ms=max_wait_ms
            )
            if following is None or following <= position or result.batches:
                return result
            position = following

    async def _fetch_visible(
        self,
        leader: Leader,
        topic: str,
        partition: int,
        position: int,
        *,
        max_bytes: int,
        max_wait_ms: int,
    ) -> tuple[PollResult, int | None]:
        """Fetches once; returns what is visible, and the offset behind what was returned, if anything was."""
        connection = await self._cluster.open(leader.address)
        if connection is None:
            self._cluster.forget_leader(topic, partition)
            return PollResult(completion=never_sent(leader)), None
        wanted = fetch_partition(partition, leader.leader_epoch, position, max_bytes)
        request = fetch_of(
            (fetch_topic(leader.topic_id, (wanted,)),), millis(max_wait_ms), max_bytes
        )
        if self._is_read_committed:
            request = replace(request, isolation_level=READ_COMMITTED_LEVEL)
        response = await self._request(connection, leader, request)
        if isinstance(response, str) or response.error_code or not response.responses:
            self._cluster.forget_leader(topic, partition)
            return PollResult(completion=failed(leader, response)), None
        result = response.responses[0].partitions[0]
        if result.error_code:
            code = ErrorCode(result.error_code)
            if code in STALE_METADATA:
                self._cluster.forget_leader(topic, partition)
            return PollResult(completion=refused(leader, code)), None
        fetched = _decode(result.records or b"")
        aborted = (result.aborted_transactions or ()) if self._is_read_committed else ()
        batches = tuple(
            [
                FetchedBatch(leader_epoch=header.leader_epoch, records=visible)
                for header, records in visible_batches(fetched, aborted)
                if (visible := _from_position(records, position))
            ]
        )
        end = result.last_stable_offset if self._is_read_committed else result.high_watermark
        completion = Completion(
            outcome=Outcome.OK,
            end_offset=self._end_of(end, batches),
            node=leader.host,
            leader_epoch=leader.leader_epoch,
        )
        following = fetched[-1][0].last_offset + 1 if fetched else None
        return PollResult(completion=completion, batches=batches), following

    def _end_of(self, high_watermark: int, batches: tuple[FetchedBatch, ...]) -> int | None:
        """Returns the log end that a response claims; None if it claims none.

        Apache Kafka reads the high watermark before the records, so a response may have records beyond it. The
        reference system takes both at one moment; there such a response is an error.
        """
        if getattr(self._host, "reads_end_before_records", False):
            last = max((r.offset for batch in batches for r in batch.records), default=-1)
            if last >= high_watermark:
                return None
        return high_watermark

    async def latest(self, topic: str, partition: int) -> Completion:
        """Requests the log end from the leader (ListOffsets, latest)."""
        level = READ_COMMITTED_LEVEL if self._is_read_committed else 0
        request = list_offsets_of(topic, partition, LATEST_TIMESTAMP, isolation_level=level)
        completion, result = await ask_leader(self._cluster, topic, partition, request)
        if result is None:
            return completion
        return replace(completion, offset=result.offset, leader_epoch=result.leader_epoch)

    async def offset_of_timestamp(
        self, topic: str, partition: int, timestamp_ms: int
    ) -> OffsetAnswer:
        """Requests the first offset whose record has at least this timestamp (ListOffsets)."""
        return await offset_of_timestamp(self._cluster, topic, partition, timestamp_ms)

    async def end_of_epoch(self, topic: str, partition: int, leader_epoch: int) -> OffsetAnswer:
        """Requests the end of the largest leader epoch up to this one (OffsetForLeaderEpoch)."""
        return await end_of_epoch(self._cluster, topic, partition, leader_epoch)

    def close(self) -> None:
        """Closes all connections."""
        self._cluster.close()

    async def _request(self, connection: Connection, leader: Leader, request: Any) -> Any:
        timeout_ms = self._cluster.request_timeout_ms + GRACE_MS
        return await self._cluster.request(connection, leader.address, request, timeout_ms)


def _from_position(records: tuple[Record, ...], position: int) -> tuple[Record, ...]:
    # The broker sends whole batches; only the first can begin below the position.
    if not records or records[0].offset >= position:
        return records
    return tuple(record for record in records if record.offset >= position)


def _decode(data: bytes) -> list[tuple[BatchHeader, tuple[Record, ...]]]:
    """Decodes what was fetched, also batches whose checksum is wrong.

    Payloads have their own checksum: a corrupt record is a named finding, and an exception here would keep it
    out of the history.
    """
    try:
        return decode_records(data)
    except CorruptBatchError:
        return decode_records(data, verify_crc=False)


NATIVE = ClientType(name="native", make=NativeClient, runs_in_simulation=True)
