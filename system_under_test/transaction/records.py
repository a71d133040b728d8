"""The records of `__transaction_state`, in Kafka's format.

Source:
    Kafka's `TransactionLogKey` and `TransactionLogValue`: version 0, and version 1, which is flexible, of values.
"""

import struct

from system_under_test.transaction.transaction import (
    NO_PRODUCER_ID,
    TopicPartition,
    Transaction,
    TransactionState,
)

KEY_VERSION = 0
FLEXIBLE_VERSION = 1
_STATES = {state.number: state for state in TransactionState}
_PREVIOUS_ID_TAG, _NEXT_ID_TAG, _CLIENT_VERSION_TAG = 0, 1, 2


class UnreadableTransactionError(ValueError):
    """Bytes in the topic that are not one of its records."""


def encode_key(transactional_id: str) -> bytes:
    """Encodes the key of a transactional id."""
    data = transactional_id.encode()
    return struct.pack(">hh", KEY_VERSION, len(data)) + data


def decode_key(data: bytes) -> str:
    """Decodes a key.

    Raises:
        UnreadableTransactionError: It is not a transactional id.
    """
    reader = _Reader(data)
    if reader.number("h") != KEY_VERSION:
        raise UnreadableTransactionError("unknown key version")
    return reader.text(reader.number("h"))


def encode_value(transaction: Transaction, version: int) -> bytes:
    """Encodes a value.

    Args:
        transaction: What to store.
        version: 0, or 1, which also has what KIP-890 added.
    """
    is_flexible = version >= FLEXIBLE_VERSION
    parts = [
        struct.pack(
            ">hqhib",
            version,
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.timeout_ms,
            transaction.state.number,
        ),
        _partitions(transaction, is_flexible=is_flexible),
        struct.pack(">qq", transaction.changed_ms, transaction.started_ms),
    ]
    if is_flexible:
        tagged = []
        for tag, form, value, default in (
            (_PREVIOUS_ID_TAG, ">q", transaction.previous_producer_id, NO_PRODUCER_ID),
            (_NEXT_ID_TAG, ">q", transaction.next_producer_id, NO_PRODUCER_ID),
            (_CLIENT_VERSION_TAG, ">h", transaction.client_version, 0),
        ):
            if value != default:
                data = struct.pack(form, value)
                tagged.append(_unsigned(tag) + _unsigned(len(data)) + data)
        parts.append(_unsigned(len(tagged)) + b"".join(tagged))
    return b"".join(parts)


def _partitions(transaction: Transaction, *, is_flexible: bool) -> bytes:
    """Encodes the partitions by topic; null while there is no transaction, as in Kafka."""
    if transaction.state is TransactionState.EMPTY:
        return _unsigned(0) if is_flexible else struct.pack(">i", -1)
    by_topic: dict[str, list[int]] = {}
    for topic, index in transaction.partitions:
        by_topic.setdefault(topic, []).append(index)
    parts = []
    for topic, indexes in by_topic.items():
        name = topic.encode()
        if is_flexible:
            parts.append(_unsigned(len(name) + 1) + name + _unsigned(len(indexes) + 1))
        else:
            parts.append(struct.pack(">h", len(name)) + name + struct.pack(">i", len(indexes)))
        parts.append(struct.pack(f">{len(indexes)}i", *indexes))
        if is_flexible:
            parts.append(_unsigned(0))
    count = len(by_topic)
    return (_unsigned(count + 1) if is_flexible else struct.pack(">i", count)) + b"".join(parts)


def decode_value(transactional_id: str, data: bytes) -> Transaction:
    """Decodes a value.

    Raises:
        UnreadableTransactionError: The bytes are malformed.
    """
    reader = _Reader(data)
    version = reader.number("h")
    if version not in (0, FLEXIBLE_VERSION):
        raise UnreadableTransactionError(f"unknown value version {version}")
    is_flexible = version == FLEXIBLE_VERSION
    producer_id, epoch = reader.number("q"), reader.number("h")
    timeout_ms, number = reader.number("i"), reader.number("b")
    if number not in _STATES:
        raise UnreadableTransactionError(f"unknown state {number}")
    partitions: list[TopicPartition] = []
    for _ in range(reader.count(is_flexible=is_flexible)):
        topic = reader.text(reader.unsigned() - 1 if is_flexible else reader.number("h"))
        indexes = [reader.number("i") for _ in range(reader.count(is_flexible=is_flexible))]
        partitions.extend((topic, index) for index in indexes)
        if is_flexible:
            reader.tagged()
    changed_ms, started_ms = reader.number("q"), reader.number("q")
    tagged = reader.tagged() if is_flexible else {}
    return Transaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=timeout_ms,
        state=_STATES[number],
        partitions=tuple(sorted(partitions)),
        changed_ms=changed_ms,
        started_ms=started_ms,
        previous_producer_id=_tag(tagged, _PREVIOUS_ID_TAG, "q", NO_PRODUCER_ID),
        next_producer_id=_tag(tagged, _NEXT_ID_TAG, "q", NO_PRODUCER_ID),
        client_version=_tag(tagged, _CLIENT_VERSION_TAG, "h", 0),
    )


def _tag(tagged: dict[int, bytes], tag: int, form: str, default: int) -> int:
    return _Reader(tagged[tag]).number(form) if tag in tagged else default


def _unsigned(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


class _Reader:
    """Reads one key or value; every method raises `UnreadableTransactionError`."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def raw(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise UnreadableTransactionError(f"bytes are missing at position {self._position}")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def number(self, form: str) -> int:
        form = ">" + form
        value: int = struct.unpack(form, self.raw(struct.calcsize(form)))[0]
        return value

    def unsigned(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.raw(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise UnreadableTransactionError(f"no whole number before position {self._position}")

    def count(self, *, is_flexible: bool) -> int:
        return max(self.unsigned() - 1 if is_flexible else self.number("i"), 0)

    def text(self, size: int) -> str:
        try:
            return self.raw(size).decode()
        except UnicodeDecodeError:
            raise UnreadableTransactionError("a text is not UTF-8") from None

    def tagged(self) -> dict[int, bytes]:
        return {self.unsigned(): self.raw(self.unsigned()) for _ in range(self.unsigned())}
