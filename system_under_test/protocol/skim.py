"""A look over the lengths of a message before it is decoded.

The native reader of `kio` reserves memory for as many elements as an array announces, and the process ends when
there is not that much: five bytes from a stranger would do. So the lengths of every request are walked first.
Nothing is decoded; runs of fields of fixed size are one step. An array must fit into the bytes that are left,
with at least one byte per element. What must not be null is not, which the reader does not check either.
"""

import typing
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

from system_under_test.protocol.versions import unfold

Step = Callable[[bytes, int], int]
"""Takes the message and a position; returns the position behind what it stands for."""

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


class LengthError(ValueError):
    """A length that goes beyond the message, or null where null is not allowed."""


_SKIMMERS: dict[type[Any], Step] = {}


def skimmer(entity_type: type[Any]) -> Step:
    """Returns the walk over one type of message.

    It raises `LengthError` when a length does not fit, and returns where the message ends.
    """
    found = _SKIMMERS.get(entity_type)
    if found is None:
        found = _SKIMMERS[entity_type] = _compile(entity_type)
    return found


def read_uvarint(data: bytes, position: int) -> tuple[int, int]:
    """Returns an unsigned varint of at most five bytes, and the position behind it.

    Raises:
        LengthError: The bytes end before, or it has more.
    """
    value = 0
    for shift in range(0, 35, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise LengthError(f"no length can be read at byte {position}")


def skip_tags(data: bytes, position: int) -> int:
    """Returns the position behind tagged fields of which none is known, as in a request header.

    Raises:
        LengthError: They go beyond the message.
    """
    return _tags({}, data, position)


def _compile(entity_type: type[Any]) -> Step:
    is_flexible: bool = entity_type.__flexible__
    steps: list[Step] = []
    fixed = 0
    tagged: dict[int, Step] = {}
    for item in fields(entity_type):
        step = _field(item, is_flexible)
        if "tag" in item.metadata:
            if not isinstance(step, int):
                tagged[item.metadata["tag"]] = step
        elif isinstance(step, int):
            fixed += step
        else:
            if fixed:
                steps.append(partial(_jump, fixed))
                fixed = 0
            steps.append(step)
    if fixed:
        steps.append(partial(_jump, fixed))
    if is_flexible:
        steps.append(partial(_tags, tagged))
    return steps[0] if len(steps) == 1 else partial(_all, tuple(steps))


def _field(item: Any, is_flexible: bool) -> Step | int:
    """Returns the step of a field, or its size if that is fixed."""
    is_array, is_nullable, inner = unfold(item.type)
    element: Step | int
    if is_dataclass(inner):
        element = skimmer(typing.cast(type[Any], inner))
        if not is_array:
            return partial(_nullable, element) if is_nullable else element
    else:
        kind = item.metadata["kafka_type"]
        element = FIXED_SIZES.get(kind, 0) or partial(
            _sized, 2 if kind == "string" else 4, is_flexible, is_nullable and not is_array
        )
    if not is_array:
        return element
    return partial(_array, is_flexible, is_nullable, element)


def _jump(size: int, data: bytes, position: int) -> int:
    position += size
    if position > len(data):
        raise LengthError(f"{position - len(data)} bytes are missing")
    return position


def _all(steps: Sequence[Step], data: bytes, position: int) -> int:
    for step in steps:
        position = step(data, position)
    return position


def _sized(width: int, is_flexible: bool, may_be_null: bool, data: bytes, position: int) -> int:
    """A string or bytes."""
    if is_flexible:
        size, position = read_uvarint(data, position)
        size -= 1
    else:
        end = position + width
        if end > len(data):
            raise LengthError("a length is missing")
        size = int.from_bytes(data[position:end], "big", signed=True)
        position = end
    if size > 0:
        position += size
        if position > len(data):
            raise LengthError(f"a field of {size} bytes goes beyond the message")
    elif size < 0 and not may_be_null:
        raise LengthError(f"a field that must be there is null at byte {position}")
    return position


def _array(
    is_flexible: bool, may_be_null: bool, element: Step | int, data: bytes, position: int
) -> int:
    if is_flexible:
        count, position = read_uvarint(data, position)
        count -= 1
    else:
        end = position + 4
        if end > len(data):
            raise LengthError("the length of an array is missing")
        count = int.from_bytes(data[position:end], "big", signed=True)
        position = end
    if count <= 0:
        if count < 0 and not may_be_null:
            raise LengthError(f"an array that must be there is null at byte {position}")
        return position
    if isinstance(element, int):
        return _jump(count * element, data, position)
    if count > len(data) - position:
        raise LengthError(f"an array of {count} elements goes beyond the message")
    for _ in range(count):
        position = element(data, position)
    return position


def _nullable(step: Step, data: bytes, position: int) -> int:
    if position >= len(data):
        raise LengthError("a mark for null is missing")
    is_null = data[position] >= 0x80
    return position + 1 if is_null else step(data, position + 1)


def _tags(known: dict[int, Step], data: bytes, position: int) -> int:
    if position < len(data) and not data[position]:
        return position + 1
    count, position = read_uvarint(data, position)
    for _ in range(count):
        tag, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        end = position + size
        if end > len(data):
            raise LengthError(f"tag {tag} of {size} bytes goes beyond the message")
        step = known.get(tag)
        if step is not None:
            step(data, position)
        position = end
    return position
