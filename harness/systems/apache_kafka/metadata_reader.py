"""Reads committed metadata of Apache Kafka from the active controller, as an observer without an identity.

The reader finds the active controller by the errors of the others, follows it through fail-over, and returns every
record below the high watermark exactly once. Where the log begins later than the reader's position, it reads the
snapshot before that.

A controller that leads without a majority does not notice it in some releases, and it commits nothing. Kafka
writes a record at least every 500 ms, so if nothing was committed for a while, the reader also queries the other
controllers: one of them may know a newer epoch.

The reader is late after a fail-over. So what it reads has a moment when it was not committed yet: when the request
was sent whose response showed the end of the log before it. That counts only if the same controller, in the same
epoch, sends the next committed record: until then it had a majority, and what another leader commits is later. So
what the next controller sends first is later than the last moment of that kind.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from harness.systems.apache_kafka.quorum import (
    Connector,
    ControllerConnection,
    EndOffset,
    Fetched,
    SnapshotPart,
    open_controller,
)
from harness.systems.apache_kafka.records import (
    DamagedRecordError,
    KafkaBatch,
    SnapshotFooterRecord,
    read_batches,
)
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.record_batch import CorruptBatchError, read_headers

MAX_WAIT_MS = 500
BYTES_MAX = 1 << 20
STALLED_S = 1.5
"""How long nothing is committed before other controllers are queried."""
DAMAGED_S = 10.0
"""How long controllers may send damaged records before the reader gives up."""
PAUSE_FIRST_S = 0.005
PAUSE_LAST_S = 0.1
SNAPSHOT_BYTES_MAX = 1 << 28

_KNOWS_LEADER = frozenset(
    {int(ErrorCode.NOT_LEADER_OR_FOLLOWER), int(ErrorCode.FENCED_LEADER_EPOCH)}
)


class MetadataError(Exception):
    """Committed metadata cannot be read any further.

    Attributes:
        node_id: The controller that showed it.
        invariant: The broken invariant; empty if none is.
    """

    def __init__(self, sentence: str, *, node_id: int, invariant: str) -> None:
        super().__init__(sentence)
        self.node_id = node_id
        self.invariant = invariant


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """Committed batches, in order.

    Attributes:
        node_id: The controller that sent them.
        batches: Decoded.
        data: The same batches as bytes.
        first: The first offset that is new; a batch may begin before it.
        end: One more than the last committed offset among them; a batch may end after it.
        after_s: When none of them was committed yet, by the clock of the reader; 0 if that is not known.
    """

    node_id: int
    batches: tuple[KafkaBatch, ...]
    data: bytes
    first: int
    end: int
    after_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A snapshot: all that the log before its end describes.

    Attributes:
        node_id: The controller that sent it, which is the leader.
        end: The place that it ends at.
        batches: Decoded.
        data: The same batches as bytes.
    """

    node_id: int
    end: EndOffset
    batches: tuple[KafkaBatch, ...]
    data: bytes


class MetadataReader:
    """Reads committed metadata. Mutable: a position in the log.

    Args:
        controllers: Addresses by node id.
        network: Opens connections.
        clock_s: A clock that never goes back.

    Attributes:
        offset: The next offset to read.
        last_epoch: Epoch of the record before it, 0 at the beginning.
        epoch: The newest quorum epoch that is known.
        leader_id: The controller that is read from.
    """

    def __init__(
        self,
        controllers: Mapping[int, str],
        network: Connector,
        *,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._addresses = dict(controllers)
        self._ids = sorted(controllers)
        self._network = network
        self._clock_s = clock_s
        self._connections: dict[int, ControllerConnection] = {}
        self.offset = 0
        self.last_epoch = 0
        self.epoch = 0
        self.leader_id = self._ids[0]
        self._pause_s = PAUSE_FIRST_S
        self._progress_s = clock_s()
        self._damaged_since_s: float | None = None
        self._after_s = 0.0
        self._shown: tuple[int, int, float] | None = None

    async def read(self) -> Committed | Snapshot | None:
        """Queries one controller once; returns what is new, None if nothing is.

        It waits `MAX_WAIT_MS` for new records, and a short time after an error, so that callers can repeat it.

        Raises:
            MetadataError: Committed records have changed, or controllers keep sending damaged records.
        """
        is_stalled = self._clock_s() - self._progress_s > STALLED_S
        if is_stalled:
            self._next()
            self._progress_s = self._clock_s()
        node_id = self.leader_id
        asked_s = self._clock_s()
        try:
            fetched = await self._fetch(node_id, max_wait_ms=0 if is_stalled else MAX_WAIT_MS)
            found = self._dated(await self._take(node_id, fetched), fetched, asked_s)
        except OSError:
            self._drop(node_id)
            self._next()
            found = None
        except DamagedRecordError as error:
            self._damaged(node_id, error)
            found = None
        else:
            if found is not None:
                self._damaged_since_s = None
        if found is None:
            await self._pause()
        else:
            self._pause_s = PAUSE_FIRST_S
            self._progress_s = self._clock_s()
        return found

    def close(self) -> None:
        """Closes all connections."""
        for node_id in list(self._connections):
            self._drop(node_id)

    # -- one response

    async def _fetch(self, node_id: int, *, max_wait_ms: int) -> Fetched:
        connection = await self._connection(node_id)
        return await connection.fetch(
            self.epoch, self.offset, self.last_epoch, max_wait_ms=max_wait_ms, bytes_max=BYTES_MAX
        )

    async def _take(self, node_id: int, fetched: Fetched) -> Committed | Snapshot | None:
        if fetched.error:
            self._redirected(node_id, fetched)
            return None
        if fetched.diverging is not None:
            raise MetadataError(
                f"the log of controller {node_id} in epoch {self.epoch} differs from committed metadata: the"
                f" record before offset {self.offset} was read in epoch {self.last_epoch}, and in this log epoch"
                f" {fetched.diverging.epoch} ends at offset {fetched.diverging.end_offset}",
                node_id=node_id,
                invariant="INV-5",
            )
        if fetched.snapshot is not None:
            return await self._snapshot(node_id, fetched.snapshot)
        return self._records(node_id, fetched)

    def _dated(
        self, found: Committed | Snapshot | None, fetched: Fetched, asked_s: float
    ) -> Committed | Snapshot | None:
        """Adds to what was read when it was not committed yet, and notes when the end of the log was requested."""
        if fetched.error or fetched.snapshot is not None:
            return found
        if isinstance(found, Committed):
            node_id = found.node_id
            if self._shown is not None and self._shown[:2] == (node_id, self.epoch):
                self._after_s = max(self._after_s, self._shown[2])
            found = replace(found, after_s=self._after_s)
        # Of a part of the committed records, the rest may have been committed as well. A new leader does not know
        # how far the log is committed (-1) until a record of its own epoch is.
        if 0 <= fetched.high_watermark <= self.offset:
            self._shown = (self.leader_id, self.epoch, asked_s)
        return found

    def _redirected(self, node_id: int, response: Fetched | SnapshotPart) -> None:
        """Continues with the leader that an error names, or with the next controller."""
        if response.error in _KNOWS_LEADER and response.leader_epoch >= self.epoch:
            self.epoch = response.leader_epoch
            if response.leader_id in self._addresses:
                if response.leader_id != node_id:
                    self.leader_id = response.leader_id
                return
        self._next()

    def _records(self, node_id: int, fetched: Fetched) -> Committed | None:
        data = _whole_batches(fetched.records)
        batches = []
        position, epoch = self.offset, self.last_epoch
        for batch in read_batches(data):
            if batch.last_offset < position:
                continue
            # The high watermark may be within a batch, of which nothing more is committed yet.
            if max(batch.base_offset, position) >= fetched.high_watermark:
                break
            self._check(node_id, batch, position, epoch)
            batches.append(batch)
            position = min(batch.last_offset + 1, fetched.high_watermark)
            epoch = batch.epoch
        if not batches:
            if fetched.records and fetched.high_watermark > self.offset:
                raise DamagedRecordError(
                    f"controller {node_id} sent no whole batch at offset {self.offset}, although the log is"
                    f" committed up to offset {fetched.high_watermark}"
                )
            return None
        first, self.offset, self.last_epoch = self.offset, position, epoch
        return Committed(
            node_id=node_id, batches=tuple(batches), data=data, first=first, end=position
        )

    def _check(self, node_id: int, batch: KafkaBatch, position: int, epoch: int) -> None:
        """Refuses a batch that does not continue the log."""
        if batch.base_offset > position:
            raise DamagedRecordError(
                f"controller {node_id} sent the batch at offset {batch.base_offset} where offset {position} was"
                " expected"
            )
        if not epoch <= batch.epoch <= self.epoch:
            raise DamagedRecordError(
                f"controller {node_id} sent a batch of epoch {batch.epoch} at offset {batch.base_offset}, after"
                f" epoch {epoch} and while epoch {self.epoch} is the newest"
            )

    async def _snapshot(self, node_id: int, end: EndOffset) -> Snapshot | None:
        if end.end_offset <= self.offset:
            raise DamagedRecordError(
                f"controller {node_id} has no record at offset {self.offset}, but its snapshot ends at offset"
                f" {end.end_offset}"
            )
        connection = await self._connection(node_id)
        data = b""
        while True:
            part = await connection.fetch_snapshot(self.epoch, end, len(data), bytes_max=BYTES_MAX)
            if part.error:
                self._redirected(node_id, part)
                return None
            if part.position != len(data) or not part.data or part.size > SNAPSHOT_BYTES_MAX:
                raise DamagedRecordError(
                    f"controller {node_id} sent {len(part.data)} bytes at position {part.position} of a snapshot"
                    f" of {part.size} bytes; position {len(data)} was expected"
                )
            data += part.data
            if len(data) >= part.size:
                break
        batches = read_snapshot(data)
        self.offset, self.last_epoch = end.end_offset, end.epoch
        return Snapshot(node_id=node_id, end=end, batches=tuple(batches), data=data)

    # -- controllers

    async def _connection(self, node_id: int) -> ControllerConnection:
        connection = self._connections.get(node_id)
        if connection is None or not connection.is_open:
            connection = await open_controller(self._network, self._addresses[node_id])
            self._connections[node_id] = connection
        return connection

    def _drop(self, node_id: int) -> None:
        connection = self._connections.pop(node_id, None)
        if connection is not None:
            connection.close()

    def _next(self) -> None:
        self.leader_id = self._ids[(self._ids.index(self.leader_id) + 1) % len(self._ids)]

    def _damaged(self, node_id: int, error: DamagedRecordError) -> None:
        """Tries again for a while: a controller whose disk is damaged may lose its leadership."""
        self._drop(node_id)
        self._next()
        now_s = self._clock_s()
        if self._damaged_since_s is None:
            self._damaged_since_s = now_s
        elif now_s - self._damaged_since_s > DAMAGED_S:
            raise MetadataError(
                f"for {DAMAGED_S:.0f} s no controller sent metadata that can be read: {error}",
                node_id=node_id,
                invariant="",
            ) from None

    async def _pause(self) -> None:
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, PAUSE_LAST_S)


def read_snapshot(data: bytes) -> list[KafkaBatch]:
    """Reads a whole snapshot.

    Raises:
        DamagedRecordError: A batch is damaged, or the snapshot is not complete.
    """
    batches = read_batches(data)
    if _whole_batches(data) != data:
        raise DamagedRecordError("metadata snapshot: the last batch is incomplete")
    records = [record for batch in batches for record in batch.records]
    if not records or not isinstance(records[-1], SnapshotFooterRecord):
        raise DamagedRecordError("metadata snapshot: the footer is missing")
    return batches


def _whole_batches(data: bytes) -> bytes:
    """Returns the bytes without the beginning of a batch that does not fit."""
    end = 0
    try:
        for position, header in read_headers(data):
            end = position + header.size_bytes
    except CorruptBatchError:
        pass
    return data[:end]
