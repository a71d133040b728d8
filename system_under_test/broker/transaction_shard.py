"""One partition of `__transaction_state` on its leader: the transactional ids in it, and how they are stored.

The leader coordinates these ids. It loads them when it begins to lead, and forgets them when it stops. Its
leader epoch is the *coordinator epoch* in the markers that it sends (TXN-4). The topic is compacted, so a load
reads about one record per transactional id.
"""

import asyncio
from collections.abc import Sequence

from system_under_test.broker.committed_append import CommittedAppend
from system_under_test.broker.partition import ACKS_ALL, Partition
from system_under_test.log.errors import BatchTooLargeError
from system_under_test.log.verified import VerifiedBatches
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.record_batch import decode_records, encode_batch
from system_under_test.rules import Rules
from system_under_test.runtime import Host
from system_under_test.transaction.records import (
    UnreadableTransactionError,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from system_under_test.transaction.transaction import Transaction

READ_BYTES = 1 << 20
APPEND_TIMEOUT_MS = 5000
"""How long an append may wait; Kafka uses the transaction's timeout, but at least the request's."""

_STORE_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


class Entry:
    """One transactional id. Mutable.

    Attributes:
        transaction: What is stored.
        is_changing: Whether another state is being stored, or a producer id is being allocated; meanwhile every
            other change gets CONCURRENT_TRANSACTIONS.
    """

    __slots__ = ("is_changing", "transaction")

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self.is_changing = False


class TransactionShard:
    """The transactional ids of one partition in one leadership.

    Args:
        host: The node's interfaces to the outside.
        partition: The partition, led by this broker.
        rules: The rules that apply.
        value_version: The version of the values that are written.

    Attributes:
        leader_epoch: The leadership, and the coordinator epoch.
        is_loaded: Whether everything was read.
        entries: By transactional id.
    """

    def __init__(
        self, host: Host, partition: Partition, *, rules: Rules, value_version: int
    ) -> None:
        self.leader_epoch = partition.leader_epoch
        self.is_loaded = False
        self.entries: dict[str, Entry] = {}
        self._host = host
        self._partition = partition
        self._rules = rules
        self._value_version = value_version

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
        """Reads the whole partition, in steps; returns False if the leadership ended meanwhile (TXN-7).

        Raises:
            OSError: The disk failed.
        """
        position = 0
        while self.is_current and self._rules("TXN-7"):
            log = self._partition.replica.online_log()
            position = max(position, log.log_start_offset)
            if position >= log.log_end_offset:
                break
            data = log.read(position, READ_BYTES, log.log_end_offset)
            for header, records in decode_records(data):
                for record in records:
                    self._replay(record.key, record.value)
                position = header.last_offset + 1
            await asyncio.sleep(0)
        # TXN-6: what is above the high watermark may still be lost with this leader; no marker may follow from it.
        while (
            self.is_current and self._partition.high_watermark < position and self._rules("TXN-6")
        ):
            await self._committed(position)
        self.is_loaded = self.is_current
        return self.is_loaded

    def _replay(self, key: bytes | None, value: bytes | None) -> None:
        if key is None:
            return
        try:
            transactional_id = decode_key(key)
            if value is None:
                self.entries.pop(transactional_id, None)
            else:
                self.entries[transactional_id] = Entry(decode_value(transactional_id, value))
        except UnreadableTransactionError as error:
            self._host.observer.mark("unreadable-transaction-record", error=str(error))

    async def store(self, transaction: Transaction) -> ErrorCode:
        """Appends the state of a transactional id; returns NONE when it is committed, else the client's error."""
        pair = (
            encode_key(transaction.transactional_id),
            encode_value(transaction, self._value_version),
        )
        return await self._append([pair])

    async def remove(self, transactional_ids: Sequence[str]) -> ErrorCode:
        """Appends records without values for transactional ids; as `store`."""
        return await self._append([(encode_key(one), None) for one in transactional_ids])

    async def _append(self, pairs: Sequence[tuple[bytes, bytes | None]]) -> ErrorCode:
        error = await self._appended(pairs)
        return _STORE_ERRORS.get(error, error)

    async def _appended(self, pairs: Sequence[tuple[bytes, bytes | None]]) -> ErrorCode:
        if not self.is_current:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        batch = encode_batch(list(pairs), timestamp_ms=self._host.clock.wall_ms())
        try:
            info = self._partition.append_as_leader(VerifiedBatches.verify(batch), ACKS_ALL)
        except BatchTooLargeError:
            return ErrorCode.MESSAGE_TOO_LARGE
        except OSError as error:
            replica = self._partition.replica
            replica.context.on_disk_error(replica.topic, replica.index, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        if isinstance(info, ErrorCode):
            return info
        # TXN-6: without the rule a decision counts before it is committed.
        if not self._rules("TXN-6"):
            return ErrorCode.NONE
        return await self._committed(info.last_offset + 1)

    async def _committed(self, required_offset: int) -> ErrorCode:
        future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def done(error: ErrorCode) -> None:
            if not future.done():
                future.set_result(error)

        CommittedAppend(self._partition, required_offset, APPEND_TIMEOUT_MS / 1000, done)
        return await future
