"""A quorum of fake controllers that serve Fetch and FetchSnapshot from the bytes of a log, without network."""

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    fetch_request,
    fetch_response,
    fetch_snapshot_response,
    millis,
)
from system_under_test.protocol.record_batch import CorruptBatchError, read_headers
from system_under_test.protocol.versions import converter, message_type


def whole_batches(data: bytes) -> list[tuple[int, int, int, bytes]]:
    """Returns base offset, last offset, epoch and bytes of every whole batch."""
    found = []
    try:
        for position, header in read_headers(data):
            batch = data[position : position + header.size_bytes]
            found.append((header.base_offset, header.last_offset, header.leader_epoch, batch))
    except CorruptBatchError:
        pass
    return found


def with_epoch(batch: bytes, epoch: int) -> bytes:
    """Returns a batch with another leader epoch; its checksum does not cover that."""
    return batch[:12] + struct.pack(">i", epoch) + batch[16:]


@dataclass(slots=True)
class Controller:
    """One controller. Mutable: tests change it while it is read from.

    Attributes:
        log: The bytes of its log.
        high_watermark: Offset up to which the log is committed.
        start: The first offset of the log; earlier records are in `snapshot`.
        snapshot: End offset, epoch and bytes.
        is_up: Whether it accepts connections and responds.
        is_frozen: Whether it accepts connections and never responds.
        bytes_max: How much it sends at most, but at least one batch; half batches are sent as well, as by Kafka.
        requests: What it was sent.
    """

    log: bytes = b""
    high_watermark: int = 0
    start: int = 0
    snapshot: tuple[int, int, bytes] | None = None
    is_up: bool = True
    is_frozen: bool = False
    bytes_max: int = 1 << 20
    versions: tuple[int, int] = (0, 17)
    requests: list[Any] = field(default_factory=list)


class Quorum:
    """Controllers by node id, and who leads. Mutable. Implements `Connector`.

    Args:
        controllers: By node id.
    """

    def __init__(self, controllers: dict[int, Controller]) -> None:
        self.controllers = controllers
        self.leader = min(controllers)
        self.epoch = 1
        self.on_fetch: Callable[[int], None] = lambda _: None
        """Called with the offset of every fetch that the leader serves, before it responds."""

    @property
    def addresses(self) -> dict[int, str]:
        """Addresses by node id."""
        return {node_id: f"{node_id}:9093" for node_id in self.controllers}

    async def connect(self, address: str, timeout_ms: float) -> "FakeConnection":
        """Opens a connection."""
        node_id = int(address.partition(":")[0])
        if not self.controllers[node_id].is_up:
            raise ConnectionRefusedError(address)
        return FakeConnection(self, node_id)


class FakeConnection:
    """Implements `Connection`."""

    def __init__(self, quorum: Quorum, node_id: int) -> None:
        self._quorum, self._node_id = quorum, node_id
        self.is_open = True

    def request(self, message: Any, timeout_ms: float) -> "asyncio.Future[Any]":
        """Returns the future of a response that is there already."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        controller = self._quorum.controllers[self._node_id]
        controller.requests.append(message)
        if not controller.is_up:
            self.is_open = False
            future.set_exception(ConnectionResetError("it is down"))
        elif controller.is_frozen:
            future.set_exception(TimeoutError("it is frozen"))
        else:
            future.set_result(self._respond(controller, message))
        return future

    def send(self, message: Any) -> None:
        """Is never called."""
        raise AssertionError

    def close(self) -> None:
        """Closes the connection."""
        self.is_open = False

    def _respond(self, controller: Controller, message: Any) -> Any:
        key = type(message).__api_key__
        if key == 18:
            response = message_type("api_versions", 0, "response")
            types = __import__(response.__module__, fromlist=["response"])
            first, last = controller.versions
            api = types.ApiVersion(api_key=1, min_version=first, max_version=last)
            return response(error_code=0, api_keys=(api,))
        if key == 1:
            assert type(message).__version__ <= controller.versions[1]
            canonical = converter(type(message), fetch_request.FetchRequest)(message)
            assert canonical.replica_state.replica_id == -1
            assert canonical.cluster_id is None
            response = self._fetch(controller, canonical.topics[0].partitions[0])
            version = type(message).__version__
            older = message_type("fetch", version, "response")
            return converter(fetch_response.FetchResponse, older)(response)
        return self._fetch_snapshot(controller, message.topics[0].partitions[0])

    def _error(self, epoch: int) -> ErrorCode:
        quorum = self._quorum
        if epoch < quorum.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > quorum.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        leads = quorum.leader == self._node_id
        return ErrorCode.NONE if leads else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _fetch(self, controller: Controller, wanted: Any) -> Any:
        types: Any = fetch_response
        error = self._error(wanted.current_leader_epoch)
        if wanted.last_fetched_epoch < 0 or wanted.current_leader_epoch < 0:
            error = ErrorCode.INVALID_REQUEST  # as Kafka
        more: dict[str, Any] = {}
        records, high_watermark = b"", -1
        if error == ErrorCode.NONE:
            self._quorum.on_fetch(wanted.fetch_offset)
            high_watermark = controller.high_watermark
            records, more = self._read(controller, wanted)
        leader = types.LeaderIdAndEpoch(
            leader_id=self._quorum.leader, leader_epoch=self._quorum.epoch
        )
        partition = types.PartitionData(
            partition_index=0,
            error_code=error,
            high_watermark=high_watermark,
            current_leader=leader,
            aborted_transactions=None,
            records=records,
            **more,
        )
        topic = types.FetchableTopicResponse(topic_id=None, partitions=(partition,))
        return types.FetchResponse(
            throttle_time=millis(0), error_code=0, responses=(topic,), node_endpoints=()
        )

    def _read(self, controller: Controller, wanted: Any) -> tuple[bytes, dict[str, Any]]:
        types: Any = fetch_response
        offset, last_epoch = wanted.fetch_offset, wanted.last_fetched_epoch
        if offset < controller.start:
            assert controller.snapshot is not None
            end, epoch, _ = controller.snapshot
            return b"", {"snapshot_id": types.SnapshotId(end_offset=end, epoch=epoch)}
        batches = whole_batches(controller.log)
        before = [batch for batch in batches if batch[1] < offset]
        if before and before[-1][2] != last_epoch:
            last = before[-1]
            diverging = types.EpochEndOffset(epoch=last[2], end_offset=last[1] + 1)
            return b"", {"diverging_epoch": diverging}
        # Behind the last whole batch, a damaged one may follow.
        rest = controller.log[sum(len(batch[3]) for batch in batches) :]
        first = next((batch[3] for batch in batches if batch[1] >= offset), rest)
        data = controller.log[controller.log.index(first) :] if first else b""
        return data[: max(controller.bytes_max, len(first))], {}

    def _fetch_snapshot(self, controller: Controller, wanted: Any) -> Any:
        types: Any = fetch_snapshot_response
        error = self._error(wanted.current_leader_epoch)
        data, size = b"", 0
        if error == ErrorCode.NONE:
            if controller.snapshot is None:
                error = ErrorCode.SNAPSHOT_NOT_FOUND
            else:
                size = len(controller.snapshot[2])
                begin = wanted.position
                data = controller.snapshot[2][begin : begin + controller.bytes_max]
        identifier = types.SnapshotId(
            end_offset=wanted.snapshot_id.end_offset, epoch=wanted.snapshot_id.epoch
        )
        leader = types.LeaderIdAndEpoch(
            leader_id=self._quorum.leader, leader_epoch=self._quorum.epoch
        )
        partition = types.PartitionSnapshot(
            index=0,
            error_code=error,
            snapshot_id=identifier,
            current_leader=leader,
            size=size,
            position=wanted.position,
            unaligned_records=data,
        )
        topic = types.TopicSnapshot(name="__cluster_metadata", partitions=(partition,))
        return types.FetchSnapshotResponse(throttle_time=millis(0), error_code=0, topics=(topic,))
