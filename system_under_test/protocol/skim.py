"""Checks the lengths of a message before it is decoded.

The native reader of `kio` reserves memory for as many elements as an array announces, and the process ends if
there is not enough memory: five untrusted bytes are enough for that. So the lengths of every message are checked
first. No values are built; only a position moves. The check makes sure that

* all arrays of a message together have at most `ELEMENTS_MAX` elements, which bounds memory and time;
* fields and arrays that must not be null are not null, which the reader does not check for arrays;
* tagged fields that the schema does not know are removed. Kafka ignores them (KIP-482: they may be added without a
  new version), the reader refuses them.

A walk is compiled once per type into a tuple of steps. Fields of fixed size that follow one another are one step,
and so is an array of such structs: a usual Fetch or Produce request takes a dozen steps, about 2 us.
"""

import typing
from dataclasses import fields, is_dataclass
from typing import Any

from system_under_test.protocol.versions import unfold

ELEMENTS_MAX = 100_000
"""Array elements and tagged fields of one message. Kafka's own limits for one request (2,000 partitions to
describe, 10,000 to create, each with its replicas) are far lower. So many elements take about 30 MB when decoded,
which is the most memory that one connection can make a node use beyond the bytes it sent."""

_FIXED, _STRING, _BYTES, _COMPACT, _ARRAY, _COMPACT_ARRAY, _STRUCT, _NULLABLE, _TAGS = range(9)

FIXED_SIZES = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "uint32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "float64": 8,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "uuid": 16,
}

Steps = tuple[tuple[int, Any], ...]
"""(kind, detail); the detail of an array is (whether it may be null, size or steps of one element)."""
Cut = tuple[int, int, bytes]
"""(start, stop, replacement)."""

_STEPS: dict[type[Any], Steps] = {}
_TOO_SHORT = "it ends too early"


class LengthError(ValueError):
    """A length exceeds the message, there are too many elements, or null is not allowed."""


def skim(entity_type: type[Any], frame: bytes, position: int) -> bytes:
    """Returns the frame without tagged fields that the type does not know.

    Args:
        entity_type: Type of the message at `position`.
        frame: As it was received.
        position: Where the message begins; the bytes before it stay unchanged.

    Raises:
        LengthError: The message must not be decoded.
    """
    steps = _STEPS.get(entity_type)
    if steps is None:
        steps = _STEPS[entity_type] = _compile(entity_type)
    walk = _Walk(frame)
    try:
        end = walk.over(steps, position)
    except IndexError:
        raise LengthError(_TOO_SHORT) from None
    if end > len(frame):
        raise LengthError(_TOO_SHORT)
    return walk.without_cuts() if walk.cuts else frame


def read_uvarint(data: bytes, position: int) -> tuple[int, int]:
    """Returns an unsigned varint of at most five bytes, and the position after it.

    Raises:
        LengthError: The bytes end too early, or the number has more than five bytes.
    """
    value = 0
    for shift in range(0, 35, 7):
        if position >= len(data):
            raise LengthError(_TOO_SHORT)
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise LengthError("a number has more than five bytes")


def skip_tags(data: bytes, position: int) -> int:
    """Returns the position after tagged fields of which none is known, as in a request header.

    Raises:
        LengthError: They exceed the message.
    """
    if position < len(data) and not data[position]:
        return position + 1
    return _Walk(data).over_tags({}, position)


class _Walk:
    """One walk over one message. Mutable: the remaining number of elements, and the bytes to remove."""

    __slots__ = ("cuts", "frame", "left")

    def __init__(self, frame: bytes) -> None:
        self.frame = frame
        self.left = ELEMENTS_MAX
        self.cuts: list[Cut] = []

    def over(self, steps: Steps, position: int) -> int:
        """Returns the position after the described fields; it may be after the end of the frame."""
        frame = self.frame
        for kind, detail in steps:
            if kind == _FIXED:
                position += detail
            elif kind == _TAGS:
                # Almost always there are none.
                position = self.over_tags(detail, position) if frame[position] else position + 1
            elif kind == _COMPACT:
                size = frame[position]
                position += 1
                if size >= 0x80:
                    size, position = read_uvarint(frame, position - 1)
                if size:
                    position += size - 1
                elif not detail:
                    raise _missing(position)
            elif kind == _COMPACT_ARRAY:
                count = frame[position]
                position += 1
                if count >= 0x80:
                    count, position = read_uvarint(frame, position - 1)
                position = self._over_array(count - 1, detail, position)
            else:
                position = self._over_other(kind, detail, position)
        return position

    def over_tags(self, known: dict[int, Steps], position: int) -> int:
        """Returns the position after tagged fields; notes those that are not known."""
        frame = self.frame
        start = position
        count, position = read_uvarint(frame, position)
        self._count(count)
        unknown: list[Cut] = [(start, position, b"")]
        for _ in range(count):
            tag_start = position
            tag, position = read_uvarint(frame, position)
            size, position = read_uvarint(frame, position)
            end = position + size
            if end > len(frame):
                raise LengthError(f"tag {tag} of {size} bytes exceeds the message")
            steps = known.get(tag)
            if steps is None:
                unknown.append((tag_start, end, b""))
            elif self.over(steps, position) != end:
                raise LengthError(f"tag {tag} does not have the size it announces")
            position = end
        if len(unknown) > 1:
            left = _uvarint(count + 1 - len(unknown))
            unknown[0] = (start, unknown[0][1], left)
            self.cuts.extend(unknown)
        return position

    def without_cuts(self) -> bytes:
        """Returns the frame without the bytes to remove."""
        pieces = []
        position = 0
        # They were not noted in the order of their positions; they never overlap.
        for start, stop, instead in sorted(self.cuts):
            pieces += [self.frame[position:start], instead]
            position = stop
        return b"".join([*pieces, self.frame[position:]])

    def _over_other(self, kind: int, detail: Any, position: int) -> int:
        frame = self.frame
        if kind == _STRING:
            size = frame[position] << 8 | frame[position + 1]
            if size >= 0x8000:
                size = -1
            return _over_bytes(size, detail, position + 2)
        if kind == _STRUCT:
            return self.over(detail, position)
        if kind == _NULLABLE:
            is_null = frame[position] >= 0x80
            return position + 1 if is_null else self.over(detail, position + 1)
        frame[position + 3]  # if it is not there, the message ends too early
        size = int.from_bytes(frame[position : position + 4], "big", signed=True)
        position += 4
        if kind == _ARRAY:
            return self._over_array(size, detail, position)
        return _over_bytes(size, detail, position)

    def _over_array(self, count: int, detail: tuple[bool, Any], position: int) -> int:
        may_be_null, element = detail
        if count <= 0:
            if count < 0 and not may_be_null:
                raise _missing(position)
            return position
        self._count(count)
        if isinstance(element, int):
            return position + count * element
        for _ in range(count):
            position = self.over(element, position)
        return position

    def _count(self, elements: int) -> None:
        self.left -= elements
        if self.left < 0:
            raise LengthError(f"it has more than {ELEMENTS_MAX} elements")


def _over_bytes(size: int, may_be_null: bool, position: int) -> int:
    if size >= 0:
        return position + size
    if not may_be_null:
        raise _missing(position)
    return position


def _missing(position: int) -> LengthError:
    return LengthError(f"what must be there is null before byte {position}")


def _compile(entity_type: type[Any]) -> Steps:
    is_flexible: bool = entity_type.__flexible__
    steps: list[tuple[int, Any]] = []
    tagged: dict[int, Steps] = {}
    for item in fields(entity_type):
        step = _step(item, is_flexible)
        tag = item.metadata.get("tag")
        if tag is not None:
            # A tagged struct has no byte that marks it as null.
            tagged[tag] = step[1] if step[0] in (_STRUCT, _NULLABLE) else (step,)
        elif step[0] == _FIXED and steps and steps[-1][0] == _FIXED:
            steps[-1] = (_FIXED, steps[-1][1] + step[1])
        else:
            steps.append(step)
    if is_flexible:
        steps.append((_TAGS, tagged))
    return tuple(steps)


def _step(item: Any, is_flexible: bool) -> tuple[int, Any]:
    is_array, is_nullable, inner = unfold(item.type)
    element: int | Steps
    if is_dataclass(inner):
        element = _compile(typing.cast(type[Any], inner))
        if not is_array:
            return (_NULLABLE if is_nullable else _STRUCT), element
        if len(element) == 1 and element[0][0] == _FIXED:
            element = element[0][1]
    else:
        kind = item.metadata["kafka_type"]
        if kind in FIXED_SIZES:
            element = FIXED_SIZES[kind]
        else:
            plain = _STRING if kind == "string" else _BYTES
            element = ((_COMPACT if is_flexible else plain, is_nullable and not is_array),)
        if not is_array:
            return (_FIXED, element) if isinstance(element, int) else element[0]
    return (_COMPACT_ARRAY if is_flexible else _ARRAY), (is_nullable, element)


def _uvarint(value: int) -> bytes:
    pieces = bytearray()
    while value >= 0x80:
        pieces.append(value & 0x7F | 0x80)
        value >>= 7
    pieces.append(value)
    return bytes(pieces)
