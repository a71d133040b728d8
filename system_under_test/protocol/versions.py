"""Converts between versions of one message: fields by name, Kafka's defaults for fields that the source lacks.

Most versions differ by added or removed fields; for these a converter is compiled from the two schemas once. Where
the shape itself changed (one group becomes many), the conversion is written by hand in `reshaped.py`. Where two
versions have equal bytes, nothing is converted: the canonical class reads and writes them. The canonical class can
also read a version that lacks some of its tagged fields, since a tagged field may always be absent.
"""

import importlib
import types
import typing
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import timedelta
from operator import attrgetter
from typing import Any
from uuid import UUID

from system_under_test.protocol.apis import Api
from system_under_test.protocol.errors import ErrorCode

Converter = Callable[[Any], Any]
Getter = Callable[[Any], Any]
Setter = Callable[[Any, Any], None]

_LAYOUTS: dict[type[Any], tuple[Any, ...]] = {}
_CONVERTERS: dict[tuple[type[Any], type[Any]], Converter] = {}


def wire_type(api: Api, version: int, kind: str) -> type[Any]:
    """Returns the entity type of a message on the wire.

    Args:
        api: Which API.
        version: One of its versions.
        kind: "request" or "response".
    """
    return message_type(api.module, version, kind)


def message_type(api_module: str, version: int, kind: str) -> type[Any]:
    """Returns the entity type of a message of any API, also one that no node of the reference system serves.

    Args:
        api_module: Name of the package under `kio.schema`.
        version: One of its versions.
        kind: "request" or "response".
    """
    module = importlib.import_module(f"kio.schema.{api_module}.v{version}.{kind}")
    for value in vars(module).values():
        if (
            isinstance(value, type)
            and value.__module__ == module.__name__
            and getattr(getattr(value, "__type__", None), "name", "") == kind
        ):
            return value
    raise LookupError(f"{module.__name__} has no {kind}")


def layout(entity_type: type[Any]) -> tuple[Any, ...]:
    """Returns everything that determines an entity's bytes, so that equal layouts have equal bytes."""
    found = _LAYOUTS.get(entity_type)
    if found is None:
        found = _LAYOUTS[entity_type] = _layout(entity_type)
    return found


def _layout(entity_type: type[Any]) -> tuple[Any, ...]:
    return (
        entity_type.__flexible__,
        tuple((item.name, _field_layout(item)) for item in fields(entity_type)),
    )


def _field_layout(item: Field[Any]) -> tuple[Any, ...]:
    array, nullable, inner = unfold(item.type)
    tag = item.metadata.get("tag")
    return (
        item.metadata.get("kafka_type"),
        tag,
        None if tag is None else repr(item.default),
        array,
        nullable,
        layout(typing.cast(type[Any], inner)) if is_dataclass(inner) else None,
    )


def can_read(reader: type[Any], written: type[Any], *, after_skimming: bool = False) -> bool:
    """Whether one version's class reads what another version's class writes, with the same result.

    Args:
        reader: The class that reads.
        written: The class that wrote.
        after_skimming: Whether tagged fields that the reader does not know were removed before (`skim.py`).
    """
    if reader.__flexible__ is not written.__flexible__:
        return False
    known = {item.name for item in fields(reader)}
    theirs = [
        item
        for item in fields(written)
        if not after_skimming or item.name in known or item.metadata.get("tag") is None
    ]
    for item in fields(reader):
        if theirs and theirs[0].name == item.name:
            if not _can_read_field(item, theirs.pop(0), after_skimming):
                return False
        elif item.metadata.get("tag") is None:
            return False
    return not theirs


def _can_read_field(reader: Field[Any], written: Field[Any], after_skimming: bool) -> bool:
    mine, theirs = unfold(reader.type)[2], unfold(written.type)[2]
    if is_dataclass(mine) and is_dataclass(theirs):
        return _field_layout(reader)[:-1] == _field_layout(written)[:-1] and can_read(
            typing.cast(type[Any], mine),
            typing.cast(type[Any], theirs),
            after_skimming=after_skimming,
        )
    return _field_layout(reader) == _field_layout(written)


def unfold(field_type: Any) -> tuple[bool, bool, Any]:
    """Returns (is an array, is nullable, element type) of a field of an entity."""
    nullable = False
    if typing.get_origin(field_type) in (types.UnionType, typing.Union):
        nullable = True
        (field_type,) = (one for one in typing.get_args(field_type) if one is not type(None))
    if typing.get_origin(field_type) is tuple:
        element = typing.get_args(field_type)[0]
        if typing.get_origin(element) in (types.UnionType, typing.Union):
            (element,) = (one for one in typing.get_args(element) if one is not type(None))
        return True, nullable, element
    return False, nullable, field_type


def converter(source: type[Any], target: type[Any]) -> Converter:
    """Returns a function that converts a `source` to a `target`; fields are matched by name.

    A field that only the source has is dropped. A field that only the target has gets its schema default, else
    zero, "", False, () or None, as in Kafka's message generator.
    """
    found = _CONVERTERS.get((source, target))
    if found is None:
        found = _CONVERTERS[(source, target)] = _compile(source, target)
    return found


def _compile(source: type[Any], target: type[Any]) -> Converter:
    if source is target:
        return _same
    available = {item.name: item for item in fields(source)}
    copies: list[tuple[Getter, Setter]] = []
    conversions: list[tuple[Getter, Setter, Converter]] = []
    constants: list[tuple[Setter, Any]] = []
    for item in fields(target):
        # The slot itself, which cannot be set through a frozen dataclass; see `entities.py`.
        setter = getattr(target, item.name).__set__
        origin = available.get(item.name)
        if origin is None:
            constants.append((setter, zero(item)))
            continue
        convert_field = _field_converter(origin, item)
        if convert_field is None:
            copies.append((attrgetter(item.name), setter))
        else:
            conversions.append((attrgetter(item.name), setter, convert_field))
    new = object.__new__

    def convert(entity: Any) -> Any:
        made = new(target)
        for get, put in copies:
            put(made, get(entity))
        for get, put, change in conversions:
            put(made, change(get(entity)))
        for put, value in constants:
            put(made, value)
        return made

    return convert


def _same(entity: Any) -> Any:
    return entity


def _field_converter(source: Field[Any], target: Field[Any]) -> Converter | None:
    """Returns how one field is converted, None if its value is taken as it is."""
    source_array, _, source_type = unfold(source.type)
    target_array, nullable, target_type = unfold(target.type)
    if source_array != target_array:
        raise TypeError(f"{source.name} is an array in one version only")
    inner: Converter | None = None
    if is_dataclass(target_type):
        inner = converter(source_type, typing.cast(type[Any], target_type))
    if inner is None and nullable:
        return None
    absent = None if nullable else zero(target)
    if inner is None:
        if source.type == target.type:
            return None
        return lambda value: absent if value is None else value
    if target_array:
        return lambda value: absent if value is None else tuple([inner(one) for one in value])
    return lambda value: absent if value is None else inner(value)


def zero(item: Field[Any]) -> Any:
    """Returns the value of a field that is not set: its schema default, else zero, "", False, () or None."""
    if item.default is not MISSING:
        return item.default
    array, nullable, inner = unfold(item.type)
    if nullable:
        return None
    if array:
        return ()
    if is_dataclass(inner):
        return inner(**{one.name: zero(one) for one in fields(inner)})  # type: ignore[operator]
    return _ZEROS[item.metadata["kafka_type"]]


_ZEROS: dict[str, Any] = {
    "bool": False,
    "int8": 0,
    "int16": 0,
    "int32": 0,
    "int64": 0,
    "uint16": 0,
    "uint32": 0,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "records": b"",
    "uuid": UUID(int=0),
    "error_code": ErrorCode.NONE,
    "timedelta_i32": timedelta(0),
    "timedelta_i64": timedelta(0),
}
