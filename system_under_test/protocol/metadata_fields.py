"""Field types of Kafka's flexible encoding, as far as metadata records use them.

A `FieldType` writes a value and reads it back; `Reader` is a position in bytes that never leaves them.
Whatever does not fit is a ValueError. `metadata_codec.py` combines fields into records.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

MAX_VARINT_BYTES = 5
"""An unsigned varint holds at most 35 bits here, as in Kafka's ByteUtils."""

INT16_FORM = struct.Struct(">h")
INT32_FORM = struct.Struct(">i")
_INT8_FORM = struct.Struct(">b")
_UINT16_FORM = struct.Struct(">H")
_INT64_FORM = struct.Struct(">q")


class Reader:
    """A position in bytes. Bytes that do not fit raise ValueError."""

    __slots__ = ("data", "end", "position")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0
        self.end = len(data)

    def take(self, size: int) -> bytes:
        """Returns exactly the given number of bytes."""
        start = self.position
        if size < 0 or start + size > self.end:
            raise ValueError(f"metadata record: {size} bytes wanted, {self.end - start} are left")
        self.position = start + size
        return self.data[start : self.position]

    def unpack(self, form: struct.Struct) -> int:
        """Reads one number of a fixed size."""
        value: int = form.unpack(self.take(form.size))[0]
        return value

    def uvarint(self) -> int:
        """Reads an unsigned varint."""
        position = self.position
        if position < self.end and self.data[position] < 0x80:
            self.position = position + 1
            return self.data[position]
        value = 0
        for index in range(MAX_VARINT_BYTES):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value
        raise ValueError("metadata record: a varint is too long")

    def array_length(self, name: str) -> int:
        """Reads the length of a compact array that may not be null; it fits what is left."""
        length = self.uvarint() - 1
        if length < 0 or length > self.end - self.position:
            raise ValueError(f"{name}: an array of {length} elements is impossible")
        return length

    def expect_no_tags(self, name: str) -> None:
        """Reads an empty section of tagged fields."""
        if self.uvarint() != 0:
            raise ValueError(f"{name}: an unknown tagged field")

    def expect_end(self, name: str) -> None:
        """Raises ValueError if bytes are left over."""
        if self.position != self.end:
            raise ValueError(f"{name}: {self.end - self.position} bytes left over")


# --- field types ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldType:
    """How one kind of field is written and read."""

    write: Callable[[bytearray, Any], None]
    read: Callable[[Reader, str], Any]


def write_uvarint(out: bytearray, value: int) -> None:
    """Writes an unsigned varint."""
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def write_int32(out: bytearray, value: int) -> None:
    """Writes a 32-bit number."""
    out += INT32_FORM.pack(value)


def _integer(form: struct.Struct) -> FieldType:
    def write(out: bytearray, value: Any) -> None:
        out += form.pack(value)

    return FieldType(write=write, read=lambda reader, name: reader.unpack(form))


def _write_bool(out: bytearray, value: Any) -> None:
    out.append(1 if value else 0)


def _read_bool(reader: Reader, name: str) -> bool:
    byte = reader.take(1)[0]
    if byte > 1:
        raise ValueError(f"{name}: {byte} is not a boolean")
    return byte == 1


def _write_string(out: bytearray, value: Any) -> None:
    encoded = value.encode()
    write_uvarint(out, len(encoded) + 1)
    out += encoded


def _read_string(reader: Reader, name: str) -> str:
    value = _read_nullable_string(reader, name)
    if value is None:
        raise ValueError(f"{name}: a string is null")
    return value


def _write_nullable_string(out: bytearray, value: Any) -> None:
    if value is None:
        out.append(0)
    else:
        _write_string(out, value)


def _read_nullable_string(reader: Reader, name: str) -> str | None:
    length = reader.uvarint() - 1
    if length < 0:
        return None
    # UnicodeDecodeError is a ValueError.
    return reader.take(length).decode()


def _write_uuid(out: bytearray, value: Any) -> None:
    out += value.bytes


def _read_uuid(reader: Reader, name: str) -> UUID:
    return UUID(bytes=reader.take(16))


def _array(element: FieldType) -> FieldType:
    def write(out: bytearray, value: Any) -> None:
        write_uvarint(out, len(value) + 1)
        for item in value:
            element.write(out, item)

    def read(reader: Reader, name: str) -> tuple[Any, ...]:
        return tuple(element.read(reader, name) for _ in range(reader.array_length(name)))

    return FieldType(write=write, read=read)


def _write_fenced_change(out: bytearray, value: Any) -> None:
    # Kafka: 1 = FENCE, -1 = UNFENCE, 0 (absent) = unchanged.
    out += _INT8_FORM.pack(1 if value else -1)


def _read_fenced_change(reader: Reader, name: str) -> bool | None:
    value = reader.unpack(_INT8_FORM)
    if value not in (-1, 0, 1):
        raise ValueError(f"{name}: {value} is not a fencing change")
    return None if value == 0 else value == 1


def _write_shutdown_change(out: bytearray, value: Any) -> None:
    # Kafka knows 1 = IN_CONTROLLED_SHUTDOWN and 0 (absent) = unchanged. Only a registration ends a shutdown.
    if not value:
        raise ValueError("a registration change cannot end a controlled shutdown")
    out += _INT8_FORM.pack(1)


def _read_shutdown_change(reader: Reader, name: str) -> bool | None:
    value = reader.unpack(_INT8_FORM)
    if value not in (0, 1):
        raise ValueError(f"{name}: {value} is not a shutdown change")
    return True if value == 1 else None


def _write_endpoints(out: bytearray, value: Any) -> None:
    """An address "host:port" is a list of one endpoint, an empty address an empty list."""
    if not value:
        write_uvarint(out, 1)
        return
    host, separator, port = value.rpartition(":")
    if not separator or not port.isascii() or not port.isdigit():
        raise ValueError(f"address {value!r} is not host:port")
    write_uvarint(out, 2)
    _write_string(out, "PLAINTEXT")
    _write_string(out, host)
    out += _UINT16_FORM.pack(int(port))
    out += INT16_FORM.pack(0)
    write_uvarint(out, 0)


def _read_endpoints(reader: Reader, name: str) -> str:
    count = reader.array_length(name)
    addresses = []
    for _ in range(count):
        _read_string(reader, name)
        host = _read_string(reader, name)
        addresses.append(f"{host}:{reader.unpack(_UINT16_FORM)}")
        reader.unpack(INT16_FORM)
        reader.expect_no_tags(name)
    # Brokers here have one listener. A broker of Apache Kafka registers the one for other brokers with the rest.
    return addresses[0] if addresses else ""


def _write_features_and_rack(out: bytearray, value: Any) -> None:
    # An empty array and null: brokers here register neither. What a broker of Apache Kafka registered is skipped.
    out += b"\x01\x00"


def _read_features_and_rack(reader: Reader, name: str) -> None:
    for _ in range(reader.array_length(name)):
        _read_string(reader, name)
        reader.unpack(INT16_FORM)
        reader.unpack(INT16_FORM)
        reader.expect_no_tags(name)
    _read_nullable_string(reader, name)


def _write_false(out: bytearray, value: Any) -> None:
    # IsMigratingZkBroker of RegisterBrokerRecord: no broker here comes from ZooKeeper.
    out.append(0)


def _read_false(reader: Reader, name: str) -> None:
    if reader.take(1) != b"\x00":
        raise ValueError(f"{name}: a migration from ZooKeeper is not known here")


BYTE = _integer(_INT8_FORM)
SHORT = _integer(INT16_FORM)
INT = _integer(INT32_FORM)
LONG = _integer(_INT64_FORM)
BOOL = FieldType(write=_write_bool, read=_read_bool)
STRING = FieldType(write=_write_string, read=_read_string)
NULLABLE_STRING = FieldType(write=_write_nullable_string, read=_read_nullable_string)
UUID_ = FieldType(write=_write_uuid, read=_read_uuid)
INTS = _array(INT)
UUIDS = _array(UUID_)
ENDPOINTS = FieldType(write=_write_endpoints, read=_read_endpoints)
NEVER_TRUE = FieldType(write=_write_false, read=_read_false)
FEATURES_AND_RACK = FieldType(write=_write_features_and_rack, read=_read_features_and_rack)
FENCED_CHANGE = FieldType(write=_write_fenced_change, read=_read_fenced_change)
SHUTDOWN_CHANGE = FieldType(write=_write_shutdown_change, read=_read_shutdown_change)
