"""Reads and writes the flexible formats of Kafka's records (KIP-482): compact lengths and tagged fields."""

from collections.abc import Iterable, Mapping
from typing import Self
from uuid import UUID

from system_under_test.group.records import RecordReader, RecordWriter, UnreadableRecordError

_VARINT_BYTES_MAX = 5
_PRESENT = 1


class FlexibleWriter(RecordWriter):
    """Writes one value."""

    def varint(self, value: int) -> Self:
        """Writes an unsigned number, seven bits per byte, the lowest first."""
        while value >= 0x80:
            self.raw(bytes((value & 0x7F | 0x80,)))
            value >>= 7
        return self.raw(bytes((value,)))

    def count(self, value: int) -> Self:
        """Writes the length of an array."""
        return self.varint(value + 1)

    def text(self, value: str | None) -> Self:
        """Writes a text; None is null."""
        if value is None:
            return self.varint(0)
        data = value.encode()
        return self.varint(len(data) + 1).raw(data)

    def nullable_text(self, value: str | None) -> Self:
        """Writes a text that may be null."""
        return self.text(value)

    def texts(self, values: Iterable[str]) -> Self:
        """Writes an array of texts."""
        every = list(values)
        self.count(len(every))
        for value in every:
            self.text(value)
        return self

    def data(self, value: bytes) -> Self:
        """Writes bytes."""
        return self.varint(len(value) + 1).raw(value)

    def uuid(self, value: UUID) -> Self:
        """Writes an id."""
        return self.raw(value.bytes)

    def present(self) -> Self:
        """Writes that a nullable structure follows."""
        return self.number("b", _PRESENT)

    def tags(self, fields: Mapping[int, bytes]) -> Self:
        """Writes the tagged fields at the end of a structure."""
        self.varint(len(fields))
        for tag, value in sorted(fields.items()):
            self.varint(tag).varint(len(value)).raw(value)
        return self


class FlexibleReader(RecordReader):
    """Reads one value. Every method raises `UnreadableRecordError` if the bytes are not what it reads."""

    def varint(self) -> int:
        """Reads an unsigned number."""
        value = 0
        for place in range(_VARINT_BYTES_MAX):
            (byte,) = self.raw(1)
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return value
        raise UnreadableRecordError("a length has more than five bytes")

    def count(self) -> int:
        """Reads the length of an array; null counts as empty."""
        count = max(self.varint() - 1, 0)
        if count > self.left:
            raise UnreadableRecordError(f"an array of {count} entries has {self.left} bytes")
        return count

    def nullable_text(self) -> str | None:
        """Reads a text that may be null."""
        size = self.varint() - 1
        return None if size < 0 else self.decoded(self.raw(size))

    def texts(self) -> tuple[str, ...]:
        """Reads an array of texts."""
        return tuple(self.text() for _ in range(self.count()))

    def data(self) -> bytes:
        """Reads bytes; null counts as empty."""
        return self.raw(max(self.varint() - 1, 0))

    def uuid(self) -> UUID:
        """Reads an id."""
        return UUID(bytes=self.raw(16))

    def is_present(self) -> bool:
        """Reads whether a nullable structure follows."""
        return self.number("b") == _PRESENT

    def tags(self) -> dict[int, bytes]:
        """Reads the tagged fields at the end of a structure, by tag."""
        found = {}
        for _ in range(self.varint()):
            tag, size = self.varint(), self.varint()
            found[tag] = self.raw(size)
        return found
