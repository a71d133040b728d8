"""A number for the contents of a message, so that the trace covers what was sent and not only that it was sent.

Messages are frozen dataclasses of numbers, text, bytes, times, ids, and tuples and dataclasses of these. Encoding
each of them would take longer than the rest of the simulation, so they are turned into plain tuples, and `marshal`
turns these into bytes. Its version 2 writes values only: later versions also write which strings are the same
object, which differs between processes. The bytes are never read again.
"""

import marshal
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID
from zlib import crc32

_VALUES_ONLY = 2
_PLAIN = frozenset({int, str, bytes, bool, float, NoneType})
_PARTS: dict[type[Any], tuple[str, ...]] = {
    timedelta: ("days", "seconds", "microseconds"),
    UUID: ("int",),
    Enum: ("_value_",),
}
"""Attributes that decide a value which is not plain."""


def contents_code(message: Any) -> int:
    """Returns a 32-bit checksum of a message's values; it is the same in every process."""
    plain = _plain(message)
    try:
        return crc32(marshal.dumps(plain, _VALUES_ONLY))
    except (
        ValueError
    ):  # a field has a value of another type than it declares, such as a number with a name
        return crc32(marshal.dumps(_thoroughly_plain(message), _VALUES_ONLY))


def _plain(value: Any) -> Any:
    """Returns a value as numbers, text, bytes, None, and tuples of these, if its fields are what they declare."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    read = _READERS.get(kind)
    if read is not None:
        return read(value)
    if is_dataclass(kind):
        read = _READERS[kind] = _reader(kind)
        return read(value)
    return _plain_other(value)


def _plain_items(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple([_plain(value) for value in values]) if values else values


_Read = Callable[[Any], Any]

_READERS: dict[type[Any], _Read] = {tuple: _plain_items, UUID: attrgetter("int")}
"""Makes values of a type plain; there is one for every type of dataclass that was met."""


def _thoroughly_plain(value: Any) -> Any:
    """Returns the same for any value, slowly."""
    if isinstance(value, tuple):
        return tuple([_thoroughly_plain(item) for item in value])
    if is_dataclass(value):
        names = [field.name for field in fields(value)]
        return tuple([_thoroughly_plain(getattr(value, name)) for name in names])
    return _plain_other(value)


def _plain_other(value: Any) -> Any:
    for kind, names in _PARTS.items():
        if isinstance(value, kind):
            return tuple([getattr(value, name) for name in names])
    if isinstance(value, datetime):
        return value.isoformat()
    plains: tuple[type[Any], ...] = (bool, int, float, str, bytes)
    for plain in plains:
        if isinstance(value, plain):
            return plain(value)
    # Nothing else has values that are free of addresses in every process.
    return None if value is None else type(value).__qualname__


def _reader(kind: type[Any]) -> _Read:
    """Returns what reads a dataclass: all fields with one value each in one call, then those with several."""
    flat, others = _names(kind)
    # Of one name, attrgetter returns the value and no tuple; a second one changes nothing.
    values = attrgetter(*flat, *flat[:1]) if flat else _nothing
    if not others:
        return values
    if len(others) == 1:
        (only,) = map(attrgetter, others)
        return lambda value: (*values(value), _plain(only(value)))
    rest = attrgetter(*others)
    return lambda value: (*values(value), *map(_plain, rest(value)))


def _nothing(_: Any) -> tuple[Any, ...]:
    return ()


def _names(kind: type[Any]) -> tuple[list[str], list[str]]:
    """Returns the dotted names of plain values of a dataclass, and the names of its other fields."""
    try:
        hints = get_type_hints(kind)
    except NameError:  # it declares a type that only type checkers know
        return [], [field.name for field in fields(kind)]
    flat: list[str] = []
    others: list[str] = []
    for field in fields(kind):
        inner = _inner_names(hints[field.name])
        if inner is None:
            others.append(field.name)
        else:
            flat += [f"{field.name}{name}" for name in inner]
    return flat, others


def _inner_names(hint: Any) -> list[str] | None:
    """Returns what follows the name of a field of this type; None if the type alone does not decide it."""
    if get_origin(hint) in (Union, UnionType):
        plain = all(_is_plain(each) for each in get_args(hint))
        return [""] if plain else None
    if _is_plain(hint):
        return [""]
    if not isinstance(hint, type):
        return None
    for kind, names in _PARTS.items():
        if issubclass(hint, kind):
            return [f".{name}" for name in names]
    if not is_dataclass(hint):
        return None
    flat, others = _names(hint)
    return None if others else [f".{name}" for name in flat]


def _is_plain(hint: Any) -> bool:
    """Whether values of a type are plain; numbers with names are not."""
    is_type = isinstance(hint, type) and not issubclass(hint, Enum)
    return is_type and issubclass(hint, (int, str, bytes, float, NoneType))
