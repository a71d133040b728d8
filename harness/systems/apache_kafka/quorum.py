"""Requests to a controller of Apache Kafka, in the newest version that both sides know.

Every call may raise `OSError`: the controller cannot be reached, or did not respond in time, or its response
cannot be read.
"""

from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from system_under_test.protocol.entities import fetch_of, fetch_partition, fetch_topic
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    fetch_request,
    fetch_response,
    fetch_snapshot_request,
    millis,
)
from system_under_test.protocol.versions import converter, message_type
from system_under_test.runtime import Connection

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = UUID(int=1)

FETCH_KEY = 1
FETCH_VERSIONS = (13, 17)
"""Older versions identify topics by name, and controllers do not serve those."""
CONNECT_TIMEOUT_MS = 1000
RESPONSE_TIMEOUT_MS = 2000
"""How long a response may take beyond the time that the controller was allowed to wait."""


class Connector(Protocol):
    """What opens connections: the network of a host."""

    async def connect(self, address: str, timeout_ms: float) -> Connection:
        """Opens a connection to "host:port"."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOffset:
    """A place in the log: the offset before which it ends, and the epoch of the last record before that."""

    end_offset: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What a controller responded to a fetch of the metadata log.

    Attributes:
        error: Error code; 0 if there was none.
        leader_id, leader_epoch: The leader that it knows, -1 if it named none.
        high_watermark: Offset up to which the log is committed, -1 if the controller does not know it.
        records: Whole batches, perhaps followed by the beginning of another one.
        diverging: Where the logs begin to differ; None if they do not.
        snapshot: The snapshot to read instead, because the log begins later; None if there is none.
    """

    error: int
    leader_id: int
    leader_epoch: int
    high_watermark: int
    records: bytes
    diverging: EndOffset | None
    snapshot: EndOffset | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPart:
    """What a controller responded to a fetch of a snapshot.

    Attributes:
        error, leader_id, leader_epoch: As in `Fetched`.
        size: Size of the whole snapshot in bytes.
        position: Where `data` begins.
    """

    error: int
    leader_id: int
    leader_epoch: int
    size: int
    position: int
    data: bytes


class ControllerConnection:
    """A connection to one controller. Mutable; open it with `open_controller`."""

    def __init__(self, connection: Connection, fetch_version: int) -> None:
        self._connection = connection
        request = message_type("fetch", fetch_version, "request")
        response = message_type("fetch", fetch_version, "response")
        self._request_of = converter(fetch_request.FetchRequest, request)
        self._response_of = converter(response, fetch_response.FetchResponse)

    @property
    def is_open(self) -> bool:
        """Whether requests may still be sent."""
        return self._connection.is_open

    async def fetch(
        self, epoch: int, offset: int, last_epoch: int, *, max_wait_ms: int, bytes_max: int
    ) -> Fetched:
        """Requests the log from an offset on, as an observer without an identity.

        Args:
            epoch: The epoch in which the controller leads, as far as it is known; never -1, which Kafka refuses.
            offset: The first offset that is wanted.
            last_epoch: Epoch of the record before it, 0 at the beginning.
            max_wait_ms: How long the controller may wait for records.
            bytes_max: About how much it may send.
        """
        partition = fetch_partition(0, epoch, offset, bytes_max, last_fetched_epoch=last_epoch)
        topic = fetch_topic(METADATA_TOPIC_ID, (partition,))
        request = fetch_of((topic,), millis(max_wait_ms), bytes_max)
        response = self._response_of(
            await self._connection.request(
                self._request_of(request), max_wait_ms + RESPONSE_TIMEOUT_MS
            )
        )
        return _fetched(response)

    async def fetch_snapshot(
        self, epoch: int, snapshot: EndOffset, position: int, *, bytes_max: int
    ) -> SnapshotPart:
        """Requests a part of a snapshot.

        Args:
            epoch: The epoch in which the controller leads.
            snapshot: Which snapshot.
            position: Where the part begins.
            bytes_max: About how much the controller may send.
        """
        request = _snapshot_request(epoch, snapshot, position, bytes_max)
        response = await self._connection.request(request, RESPONSE_TIMEOUT_MS)
        if not response.topics or not response.topics[0].partitions:
            return _no_part(int(response.error_code))
        part = response.topics[0].partitions[0]
        return SnapshotPart(
            error=int(response.error_code) or int(part.error_code),
            leader_id=int(part.current_leader.leader_id),
            leader_epoch=int(part.current_leader.leader_epoch),
            size=int(part.size),
            position=int(part.position),
            data=bytes(part.unaligned_records or b""),
        )

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()


async def open_controller(network: Connector, address: str) -> ControllerConnection:
    """Connects to a controller and negotiates the version of Fetch.

    Raises:
        OSError: It cannot be reached, or no version is known to both sides.
    """
    connection = await network.connect(address, CONNECT_TIMEOUT_MS)
    try:
        versions = await connection.request(
            message_type("api_versions", 0, "request")(), RESPONSE_TIMEOUT_MS
        )
        first, last = FETCH_VERSIONS
        theirs = next((api for api in versions.api_keys if api.api_key == FETCH_KEY), None)
        if theirs is None or theirs.max_version < first or theirs.min_version > last:
            raise OSError(f"{address} does not serve Fetch in a version from {first} to {last}")
        return ControllerConnection(connection, min(int(theirs.max_version), last))
    except BaseException:
        connection.close()
        raise


def _fetched(response: Any) -> Fetched:
    if not response.responses or not response.responses[0].partitions:
        # A response without partitions is one without data, unless it has an error of its own.
        error = int(response.error_code) or int(ErrorCode.UNKNOWN_SERVER_ERROR)
        return Fetched(
            error=error,
            leader_id=-1,
            leader_epoch=-1,
            high_watermark=-1,
            records=b"",
            diverging=None,
            snapshot=None,
        )
    part = response.responses[0].partitions[0]
    return Fetched(
        error=int(response.error_code) or int(part.error_code),
        leader_id=int(part.current_leader.leader_id),
        leader_epoch=int(part.current_leader.leader_epoch),
        high_watermark=int(part.high_watermark),
        records=bytes(part.records or b""),
        diverging=_place(part.diverging_epoch),
        snapshot=_place(part.snapshot_id),
    )


def _place(place: Any) -> EndOffset | None:
    if place.end_offset < 0 and place.epoch < 0:
        return None
    return EndOffset(end_offset=int(place.end_offset), epoch=int(place.epoch))


def _snapshot_request(epoch: int, snapshot: EndOffset, position: int, bytes_max: int) -> Any:
    types: Any = fetch_snapshot_request
    partition = types.PartitionSnapshot(
        partition=0,
        current_leader_epoch=epoch,
        snapshot_id=types.SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch),
        position=position,
    )
    topic = types.TopicSnapshot(name=METADATA_TOPIC, partitions=(partition,))
    return types.FetchSnapshotRequest(max_bytes=bytes_max, topics=(topic,))


def _no_part(error: int) -> SnapshotPart:
    return SnapshotPart(
        error=error or int(ErrorCode.UNKNOWN_SERVER_ERROR),
        leader_id=-1,
        leader_epoch=-1,
        size=0,
        position=0,
        data=b"",
    )
