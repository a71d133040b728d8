"""A Kafka client without retries: every request is sent at most once, so every outcome can be classified.

Errors become completions as follows:

* an append is `ok` with its offset, `fail` only when it certainly was not appended (refused before the append,
  or never sent), else `info`;
* a poll or a latest that failed has no effect, so it is `fail` whatever the error.

A request that times out closes its connection, as Kafka's clients do: a late response must not be taken for the
response to the next request.

On a real host a connection negotiates the version of every request with its node
(`system_under_test.protocol.client_versions`): the client works with Apache Kafka from 3.4 on. The simulation
passes messages as they are.
"""

import asyncio
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from harness.contracts.client import ClientType, FetchedBatch, PollResult
from harness.contracts.host import ClientHost, Connection
from harness.errors import UsageError
from harness.history.op import Completion, Outcome
from system_under_test.protocol.client_versions import UnsupportedVersionError
from system_under_test.protocol.entities import fetch_of, fetch_partition, fetch_topic, produce_of
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    list_offsets_request,
    metadata_request,
    millis,
)
from system_under_test.protocol.record_batch import (
    BatchHeader,
    CorruptBatchError,
    Record,
    decode_records,
    encode_batch,
)

LATEST_TIMESTAMP = -1
CONSUMER_REPLICA_ID = -1
GRACE_MS = 250
"""A produce request carries its own timeout, which begins when the broker reads it. The client waits a little
longer, or it would never receive the broker's timeout error."""

_NOT_APPENDED = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_RECORD,
    }
)
"""Produce errors that prove that nothing was appended. NOT_LEADER_OR_FOLLOWER and KAFKA_STORAGE_ERROR do not:
a waiting acks=all request whose record was appended already gets the same codes."""

_STALE_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """A partition's leader as the client believes it to be."""

    node_id: int
    address: str
    leader_epoch: int
    topic_id: UUID
    host: str


class NativeClient:
    """One client; one operation at a time. Mutable: connections and metadata.

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
        self._next_bootstrap = 0
        self.request_timeout_ms = request_timeout_ms
        self._connect_timeout_ms = connect_timeout_ms
        self._connections: dict[str, Connection] = {}
        self._leaders: dict[tuple[str, int], Leader] = {}

    async def append(
        self, topic: str, partition: int, key: bytes, value: bytes, acks: int
    ) -> Completion:
        """Produces one batch of one record."""
        batch = encode_batch([(key, value)], timestamp_ms=self._host.clock.wall_ms())
        leader = await self._leader(topic, partition)
        connection = await self._connection(leader) if leader is not None else None
        if leader is None or connection is None:
            self._leaders.pop((topic, partition), None)
            return _never_sent(leader)
        request = produce_of(topic, partition, batch, acks, millis(self.request_timeout_ms))
        node = leader.host
        if acks == 0:
            _send(connection, request)
            return Completion(
                outcome=Outcome.INFO, error_code=None, error="no-ack-requested", node=node
            )
        response = await self._request(connection, leader, request)
        if isinstance(response, str):
            self._leaders.pop((topic, partition), None)
            return Completion(outcome=Outcome.INFO, error_code=None, error=response, node=node)
        result = response.responses[0].partition_responses[0]
        if not result.error_code:
            return Completion(
                outcome=Outcome.OK,
                # -1 is how Kafka says that a batch was appended at an offset that the leader does not know.
                offset=None if result.base_offset == -1 else result.base_offset,
                node=node,
                leader_epoch=leader.leader_epoch,
            )
        code = ErrorCode(result.error_code)
        if code in _STALE_METADATA:
            self._leaders.pop((topic, partition), None)
        return Completion(
            outcome=Outcome.FAIL if code in _NOT_APPENDED else Outcome.INFO,
            error_code=int(code),
            error=code.name,
            node=node,
        )

    async def poll(
        self, topic: str, partition: int, position: int, *, max_bytes: int, max_wait_ms: int
    ) -> PollResult:
        """Fetches once from a position."""
        leader = await self._leader(topic, partition)
        connection = await self._connection(leader) if leader is not None else None
        if leader is None or connection is None:
            self._leaders.pop((topic, partition), None)
            return PollResult(completion=_never_sent(leader))
        wanted = fetch_partition(partition, leader.leader_epoch, position, max_bytes)
        request = fetch_of(
            (fetch_topic(leader.topic_id, (wanted,)),), millis(max_wait_ms), max_bytes
        )
        response = await self._request(connection, leader, request)
        if isinstance(response, str) or response.error_code or not response.responses:
            self._leaders.pop((topic, partition), None)
            return PollResult(completion=_failed(leader, response))
        result = response.responses[0].partitions[0]
        if result.error_code:
            code = ErrorCode(result.error_code)
            if code in _STALE_METADATA:
                self._leaders.pop((topic, partition), None)
            return PollResult(completion=_refused(leader, code))
        batches = tuple(
            [
                FetchedBatch(
                    leader_epoch=header.leader_epoch, records=_from_position(records, position)
                )
                for header, records in _decode(result.records or b"")
            ]
        )
        return PollResult(
            completion=Completion(
                outcome=Outcome.OK,
                end_offset=self._end_of(result.high_watermark, batches),
                node=leader.host,
                leader_epoch=leader.leader_epoch,
            ),
            batches=batches,
        )

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
        leader = await self._leader(topic, partition)
        connection = await self._connection(leader) if leader is not None else None
        if leader is None or connection is None:
            self._leaders.pop((topic, partition), None)
            return _never_sent(leader)
        request = list_offsets_request.ListOffsetsRequest(
            replica_id=CONSUMER_REPLICA_ID,
            isolation_level=0,
            topics=(
                list_offsets_request.ListOffsetsTopic(
                    name=topic,
                    partitions=(
                        list_offsets_request.ListOffsetsPartition(
                            partition_index=partition,
                            current_leader_epoch=leader.leader_epoch,
                            timestamp=LATEST_TIMESTAMP,
                        ),
                    ),
                ),
            ),
        )
        response = await self._request(connection, leader, request)
        if isinstance(response, str):
            self._leaders.pop((topic, partition), None)
            return _failed(leader, response)
        result = response.topics[0].partitions[0]
        code = ErrorCode(result.error_code)
        if code != ErrorCode.NONE:
            if code in _STALE_METADATA:
                self._leaders.pop((topic, partition), None)
            return _refused(leader, code)
        return Completion(
            outcome=Outcome.OK,
            offset=result.offset,
            node=_node(leader),
            leader_epoch=result.leader_epoch,
        )

    def close(self) -> None:
        """Closes all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def _request(self, connection: Connection, leader: Leader, request: Any) -> Any:
        """Returns the response, or a short word for what went wrong with the connection."""
        try:
            return await request_of(connection, request, self.request_timeout_ms + GRACE_MS)
        except TimeoutError:
            self._drop(leader.address)
            return "client-timeout"
        except OSError:
            self._drop(leader.address)
            return "connection-lost"

    async def _connection(self, leader: Leader) -> Connection | None:
        return await self._open(leader.address)

    async def _open(self, address: str) -> Connection | None:
        connection = self._connections.get(address)
        if connection is not None and connection.is_open:
            return connection
        try:
            connection = await self._host.network.connect(address, self._connect_timeout_ms)
        except OSError:  # TimeoutError is one
            return None
        self._connections[address] = connection
        return connection

    def _drop(self, address: str) -> None:
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    async def _leader(self, topic: str, partition: int) -> Leader | None:
        leader = self._leaders.get((topic, partition))
        if leader is not None:
            return leader
        await self._refresh(topic)
        return self._leaders.get((topic, partition))

    async def _refresh(self, topic: str) -> None:
        """Requests the topic's metadata from one broker, the next in turn."""
        address = self._bootstrap[self._next_bootstrap]
        self._next_bootstrap = (self._next_bootstrap + 1) % len(self._bootstrap)
        connection = await self._open(address)
        if connection is None:
            return
        request = metadata_request.MetadataRequest(
            topics=(metadata_request.MetadataRequestTopic(topic_id=None, name=topic),),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        try:
            response = await request_of(connection, request, self.request_timeout_ms)
        except OSError:
            self._drop(address)
            return
        hosts = {broker.node_id: broker.host for broker in response.brokers}
        addresses = {broker.node_id: f"{broker.host}:{broker.port}" for broker in response.brokers}
        for described in response.topics:
            for item in described.partitions:
                if item.leader_id in addresses:
                    self._leaders[(topic, item.partition_index)] = Leader(
                        node_id=item.leader_id,
                        address=addresses[item.leader_id],
                        leader_epoch=item.leader_epoch,
                        topic_id=described.topic_id,
                        host=hosts[item.leader_id],
                    )


def request_of(connection: Connection, request: Any, timeout_ms: float) -> "asyncio.Future[Any]":
    """Sends a request and returns the future of its response.

    Raises:
        UsageError: The node knows no version of the request that can express it, for example an old broker.
    """
    try:
        return connection.request(request, timeout_ms)
    except UnsupportedVersionError as error:
        raise _unusable(error) from None


def _send(connection: Connection, request: Any) -> None:
    try:
        connection.send(request)
    except UnsupportedVersionError as error:
        raise _unusable(error) from None


def _unusable(error: UnsupportedVersionError) -> UsageError:
    return UsageError(f"the native client cannot use this cluster: {error}")


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


def _node(leader: Leader | None) -> str:
    return leader.host if leader is not None else ""


def _never_sent(leader: Leader | None) -> Completion:
    error = "no-leader-known" if leader is None else "connect-failed"
    return Completion(outcome=Outcome.FAIL, error_code=None, error=error, node=_node(leader))


def _failed(leader: Leader, response: Any) -> Completion:
    if isinstance(response, str):
        return Completion(outcome=Outcome.FAIL, error_code=None, error=response, node=_node(leader))
    return _refused(leader, ErrorCode(response.error_code or ErrorCode.UNKNOWN_SERVER_ERROR))


def _refused(leader: Leader, code: ErrorCode) -> Completion:
    return Completion(
        outcome=Outcome.FAIL, error_code=int(code), error=code.name, node=_node(leader)
    )


NATIVE = ClientType(name="native", make=NativeClient, runs_in_simulation=True)
