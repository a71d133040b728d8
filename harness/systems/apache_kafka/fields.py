"""Reads fields of Kafka's flexible encoding; what does not fit is a ValueError."""

import struct
from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

from system_under_test.protocol.metadata_fields import (
    BOOL,
    INT16_FORM,
    INT32_FORM,
    LONG,
    NULLABLE_STRING,
    STRING,
    UUID_,
    Reader,
)

_T = TypeVar("_T")
_INT8_FORM = struct.Struct(">b")
_UINT16_FORM = struct.Struct(">H")

Tags = dict[int, "Fields"]
"""Content of tagged fields by tag."""


class Fields(Reader):
    """A position in the fields of one record. Mutable.

    Args:
        data: The bytes of the record.
    """

    def int8(self) -> int:
        """Reads a signed byte."""
        return self.unpack(_INT8_FORM)

    def int16(self) -> int:
        """Reads a signed 16-bit number."""
        return self.unpack(INT16_FORM)

    def uint16(self) -> int:
        """Reads an unsigned 16-bit number."""
        return self.unpack(_UINT16_FORM)

    def int32(self) -> int:
        """Reads a signed 32-bit number."""
        return self.unpack(INT32_FORM)

    def int64(self) -> int:
        """Reads a signed 64-bit number."""
        value: int = LONG.read(self, "int64")
        return value

    def boolean(self) -> bool:
        """Reads a boolean."""
        value: bool = BOOL.read(self, "boolean")
        return value

    def uuid(self) -> UUID:
        """Reads a uuid."""
        value: UUID = UUID_.read(self, "uuid")
        return value

    def text(self) -> str:
        """Reads a string."""
        value: str = STRING.read(self, "string")
        return value

    def nullable_text(self) -> str | None:
        """Reads a string or null."""
        value: str | None = NULLABLE_STRING.read(self, "string")
        return value

    def array(self, element: Callable[[], _T]) -> tuple[_T, ...]:
        """Reads an array; null is an error."""
        return tuple(element() for _ in range(self.array_length("array")))

    def nullable_array(self, element: Callable[[], _T]) -> tuple[_T, ...] | None:
        """Reads an array or null."""
        if self.position < self.end and self.data[self.position] == 0:
            self.position += 1
            return None
        return self.array(element)

    def tags(self) -> Tags:
        """Reads a section of tagged fields; their content is not read yet."""
        found: Tags = {}
        last_tag = -1
        for _ in range(self.uvarint()):
            tag, size = self.uvarint(), self.uvarint()
            if tag <= last_tag:
                raise ValueError(f"tag {tag} follows tag {last_tag}")
            last_tag = tag
            found[tag] = Fields(self.take(size))
        return found


def tagged(tags: Tags, tag: int, read: Callable[[Fields], _T], default: _T) -> _T:
    """Returns the content of one tagged field, or a default if it is absent.

    Raises:
        ValueError: The content does not fit the field.
    """
    content = tags.get(tag)
    if content is None:
        return default
    value = read(content)
    content.expect_end(f"tag {tag}")
    return value
