"""One partition of `__consumer_offsets` on its leader: what it holds, and how records are appended to it.

The leader of an offsets partition coordinates the groups whose records are in it. It loads them when it begins
to lead, and drops them when it stops. Every change is appended like any record with acks=all, and acknowledged
when the high watermark has passed it (GRP-1); so it outlives the coordinator exactly as acknowledged records
outlive a leader.

The topic is compacted, so a load reads about one record per offset and group, and what was appended since.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from system_under_test.broker.committed_append import CommittedAppend, Done
from system_under_test.broker.partition import ACKS_ALL, Partition
from system_under_test.broker.pending_offsets import PendingOffsets
from system_under_test.group.consumer.group import ConsumerGroup
from system_under_test.group.consumer.records import (
    Kind,
    decode_record_key,
    decode_record_value,
    is_consumer_group_key,
)
from system_under_test.group.records import (
    CommittedOffset,
    OffsetKey,
    StoredGroup,
    UnreadableRecordError,
    decode_group,
    decode_key,
    decode_offset,
)
from system_under_test.log.errors import BatchTooLargeError
from system_under_test.log.log import AppendInfo
from system_under_test.log.producer_state import ProducerRefusedError
from system_under_test.log.verified import VerifiedBatches
from system_under_test.protocol.control_records import marker_of
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.record_batch import Record, decode_records, encode_batch
from system_under_test.rules import Rules
from system_under_test.runtime import Host

READ_BYTES = 1 << 20


class OffsetsLog:
    """The records of one offsets partition in one leadership.

    Args:
        host: The node's interfaces to the outside.
        partition: The partition, led by this broker.
        rules: The rules that apply.
        timeout_ms: How long an append may wait for its high watermark (offsets.commit.timeout.ms).

    Attributes:
        leader_epoch: The leadership; in another one this object is of no use.
        is_loaded: Whether everything was read.
        offsets: Committed offsets by group, topic and partition.
        groups: The newest generation of every classic group.
        consumer_groups: The consumer groups (KIP-848).
        index: The partition's number.
        pending: Offsets of transactions that are not decided.
    """

    def __init__(
        self,
        host: Host,
        partition: Partition,
        *,
        rules: Rules,
        timeout_ms: int,
    ) -> None:
        self.leader_epoch = partition.leader_epoch
        self.index = partition.index
        self.pending = PendingOffsets()
        self.is_loaded = False
        self.offsets: dict[str, dict[tuple[str, int], CommittedOffset]] = {}
        self.groups: dict[str, StoredGroup] = {}
        self.consumer_groups: dict[str, ConsumerGroup] = {}
        self._host = host
        self._partition = partition
        self._rules = rules
        self._timeout_s = timeout_ms / 1000
        self._appended_to = 0

    @property
    def is_current(self) -> bool:
        """Whether this broker still leads the partition in the same epoch."""
        partition = self._partition
        return (
            partition.is_leader
            and partition.log is not None
            and partition.leader_epoch == self.leader_epoch
        )

    async def load(self) -> bool:
        """Reads the whole partition (GRP-4), in steps; returns False if the leadership ended meanwhile.

        Up to the log end, not the high watermark: what a leader has is either committed or will be.

        Raises:
            OSError: The disk failed.
        """
        if not self._rules("GRP-4"):
            self.is_loaded = True
            return True
        position = 0
        while self.is_current:
            log = self._partition.replica.online_log()
            position = max(position, log.log_start_offset)
            if position >= log.log_end_offset:
                self.is_loaded = True
                self._appended_to = position
                return True
            data = log.read(position, READ_BYTES, log.log_end_offset)
            for header, records in decode_records(data):
                for record in records:
                    if header.is_control:
                        self._replay_marker(header.producer_id, record)
                    elif header.is_transactional:
                        self._replay_pending(header.producer_id, record)
                    else:
                        self._replay(record.key, record.value)
                position = header.last_offset + 1
            await asyncio.sleep(0)
        return False

    def _replay_marker(self, producer_id: int, record: Record) -> None:
        marker = marker_of(record)
        if marker is not None:
            self.transaction_ended(producer_id, is_commit=marker.is_commit)

    def _replay_pending(self, producer_id: int, record: Record) -> None:
        if record.key is None or record.value is None:
            return
        try:
            key = decode_key(record.key)
            if isinstance(key, OffsetKey):
                self.pend(producer_id, {key: decode_offset(record.value)})
        except UnreadableRecordError as error:
            self._host.observer.mark("unreadable-offsets-record", error=str(error))

    def _replay(self, key: bytes | None, value: bytes | None) -> None:
        if key is None:
            return
        try:
            if is_consumer_group_key(key):
                self._replay_consumer_group(key, value)
                return
            decoded = decode_key(key)
            if isinstance(decoded, OffsetKey):
                self.set_offset(decoded, None if value is None else self._loaded(value))
            elif value is None:
                self.groups.pop(decoded, None)
            else:
                self.groups[decoded] = decode_group(value)
        except UnreadableRecordError as error:
            # Another program wrote to the topic. Kafka skips such a record as well.
            self._host.observer.mark("unreadable-offsets-record", error=str(error))

    def _replay_consumer_group(self, key: bytes, value: bytes | None) -> None:
        decoded = decode_record_key(key)
        group = self.consumer_groups.get(decoded.group_id)
        if value is None:
            if group is not None:
                group.apply(decoded, None)
                if decoded.kind is Kind.GROUP_EPOCH:
                    del self.consumer_groups[decoded.group_id]
            return
        found = decode_record_value(decoded.kind, value)
        if group is None:
            group = self.consumer_groups[decoded.group_id] = ConsumerGroup(
                group_id=decoded.group_id
            )
        group.apply(decoded, found)

    def _loaded(self, value: bytes) -> CommittedOffset:
        """Returns a committed offset that was in the log (GRP-13)."""
        found = decode_offset(value)
        return found if self._rules("GRP-13") else replace(found, offset=found.offset + 1)

    def set_offset(self, key: OffsetKey, value: CommittedOffset | None) -> None:
        """Enters a committed offset, or removes it."""
        self.pending.discard(key)
        of_group = self.offsets.setdefault(key.group, {})
        if value is None:
            of_group.pop((key.topic, key.partition), None)
        else:
            of_group[(key.topic, key.partition)] = value

    def pend(self, producer_id: int, offsets: Mapping[OffsetKey, CommittedOffset]) -> None:
        """Enters offsets that a transaction has written (TXN-13)."""
        if self._rules("TXN-13"):
            self.pending.add(producer_id, offsets)
            return
        for key, value in offsets.items():
            self.set_offset(key, value)

    def transaction_ended(self, producer_id: int, *, is_commit: bool) -> None:
        """Enters the offsets of a committed transaction, drops those of an aborted one (TXN-13)."""
        for key, value in self.pending.take(producer_id).items():
            if is_commit:
                self.set_offset(key, value)

    def append_transactional(
        self,
        pairs: Sequence[tuple[bytes, bytes | None]],
        done: Done,
        *,
        producer_id: int,
        producer_epoch: int,
    ) -> None:
        """As `append`, as a part of a producer's transaction."""
        if not self.is_current:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        batch = encode_batch(
            list(pairs),
            timestamp_ms=self._host.clock.wall_ms(),
            is_transactional=True,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
        info: AppendInfo | ErrorCode
        try:
            info = self._partition.append_as_leader(
                VerifiedBatches.verify(batch), ACKS_ALL, is_coordinator=True
            )
        except ProducerRefusedError as refused:
            info = refused.error
        except BatchTooLargeError:
            info = ErrorCode.MESSAGE_TOO_LARGE
        except OSError as error:
            replica = self._partition.replica
            replica.context.on_disk_error(replica.topic, replica.index, error)
            info = ErrorCode.KAFKA_STORAGE_ERROR
        if isinstance(info, ErrorCode):
            done(info)
        else:
            self._appended_to = info.last_offset + 1
            CommittedAppend(self._partition, info.last_offset + 1, self._timeout_s, done)

    def keys_of(self, wanted: Callable[[str], bool]) -> list[OffsetKey]:
        """Returns the keys of all committed offsets of the topics that are wanted."""
        return [
            OffsetKey(group=group, topic=topic, partition=partition)
            for group, offsets in self.offsets.items()
            for topic, partition in offsets
            if wanted(topic)
        ]

    def when_committed(self, done: Done) -> None:
        """Calls `done` when everything that was appended so far is committed, perhaps before this returns."""
        if not self.is_current:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif self._appended_to <= self._partition.high_watermark:
            done(ErrorCode.NONE)
        else:
            CommittedAppend(self._partition, self._appended_to, self._timeout_s, done)

    def append(
        self,
        pairs: Sequence[tuple[bytes, bytes | None]],
        done: Done,
        *,
        is_awaited: bool | None = None,
    ) -> None:
        """Appends records as one batch; calls `done` when they are committed, or with an error (GRP-1).

        `done` may be called before this returns. REQUEST_TIMED_OUT means that the outcome is unknown.

        Args:
            pairs: Keys and values.
            done: Gets the outcome.
            is_awaited: Whether to wait until the records are committed; None for what GRP-1 says.
        """
        if not self.is_current:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        batch = encode_batch(list(pairs), timestamp_ms=self._host.clock.wall_ms())
        try:
            info = self._partition.append_as_leader(VerifiedBatches.verify(batch), ACKS_ALL)
        except BatchTooLargeError:
            done(ErrorCode.MESSAGE_TOO_LARGE)
            return
        except OSError as error:
            replica = self._partition.replica
            replica.context.on_disk_error(replica.topic, replica.index, error)
            done(ErrorCode.KAFKA_STORAGE_ERROR)
            return
        if isinstance(info, ErrorCode):
            done(info)
            return
        self._appended_to = info.last_offset + 1
        if self._rules("GRP-1") if is_awaited is None else is_awaited:
            CommittedAppend(self._partition, info.last_offset + 1, self._timeout_s, done)
        else:
            done(ErrorCode.NONE)


def led_partitions(
    partitions: dict[tuple[str, int], Partition], topic: str
) -> Iterator[tuple[int, Partition]]:
    """Yields the partitions of a topic that this broker leads, by index."""
    for (name, index), partition in partitions.items():
        if name == topic and partition.is_leader and partition.log is not None:
            yield index, partition
