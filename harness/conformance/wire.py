"""Any request in any version from a mapping of fields, and its response.

The schemas are those of `kio`, which are generated from Kafka's own. The codec of the reference system is not
used: it serves fewer versions, and an error in it would be on both sides of a comparison.
"""

import datetime
import functools
import importlib
import io
import pkgutil
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

from kio.serial import entity_reader, entity_writer

CORRELATION_ID = 7
CLIENT_ID = "laststand-conformance"

_ZEROS: Mapping[type, Any] = {
    bool: False,
    int: 0,
    float: 0.0,
    str: "",
    bytes: b"",
    datetime.timedelta: datetime.timedelta(0),
}


@functools.cache
def message_class(api: str, version: int, kind: str) -> type[Any]:
    """Returns the class of a message.

    Args:
        api: Name of the API as in `kio.schema`, for example "create_topics".
        version: Its version.
        kind: "request" or "response".

    Raises:
        LookupError: There is no such message.
    """
    try:
        module = importlib.import_module(f"kio.schema.{api}.v{version}.{kind}")
    except ModuleNotFoundError:
        raise LookupError(f"{api} has no version {version}") from None
    name = "".join(part.capitalize() for part in api.split("_")) + kind.capitalize()
    found: type[Any] = getattr(module, name)
    return found


@functools.cache
def api_key(api: str) -> int:
    """Returns Kafka's key of an API."""
    package = importlib.import_module(f"kio.schema.{api}")
    version = min(int(one.name[1:]) for one in pkgutil.iter_modules(package.__path__))
    return int(message_class(api, version, "request").__api_key__)


def request_frame(
    api: str, version: int, values: Mapping[str, Any], *, drops_unknown: bool = False
) -> bytes:
    """Returns the bytes of a request with its size in front.

    Args:
        api: Name of the API.
        version: Its version.
        values: Its fields; a missing one has the schema's default, else zero, "", False, () or None.
        drops_unknown: Whether fields that this version does not have are left out.

    Raises:
        ValueError: A field does not exist in this version, and `drops_unknown` is false.
    """
    entity_type = message_class(api, version, "request")
    header_type = entity_type.__header_schema__
    header = {
        "request_api_key": entity_type.__api_key__,
        "request_api_version": version,
        "correlation_id": CORRELATION_ID,
        "client_id": CLIENT_ID,
    }
    out = io.BytesIO()
    entity_writer(header_type)(out, _build(header_type, header, drops_unknown=True))
    entity_writer(entity_type)(out, _build(entity_type, values, drops_unknown=drops_unknown))
    return framed(out.getvalue())


def framed(body: bytes) -> bytes:
    """Returns bytes with their size in front."""
    return len(body).to_bytes(4, "big") + body


def read_response(api: str, version: int, body: bytes) -> Any:
    """Returns the entity of a response.

    Args:
        api: Of the request.
        version: Of the request.
        body: The response without its size.

    Raises:
        ValueError: The bytes are not such a response, or bytes are left over.
    """
    entity_type = message_class(api, version, "response")
    try:
        _, size = entity_reader(entity_type.__header_schema__)(body, 0)
        entity, more = entity_reader(entity_type)(body, size)
    except Exception as error:
        # The reader has no base class of its errors; whatever it raises is a response that it cannot read.
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if size + more != len(body):
        raise ValueError(f"{len(body) - size - more} bytes are left after the response")
    return entity


def _build(entity_type: type[Any], values: Mapping[str, Any], *, drops_unknown: bool) -> Any:
    known = {item.name for item in fields(entity_type)}
    if not drops_unknown and (unknown := values.keys() - known):
        raise ValueError(f"{entity_type.__name__} has no field {', '.join(sorted(unknown))}")
    made = {
        item.name: _value(item, values[item.name], drops_unknown=drops_unknown)
        if item.name in values
        else _absent(item)
        for item in fields(entity_type)
    }
    return entity_type(**made)


def _value(item: Field[Any], value: Any, *, drops_unknown: bool) -> Any:
    _, is_array, element = _unfold(item.type)
    if value is None:
        return None
    if is_array:
        return tuple(
            _build(element, one, drops_unknown=drops_unknown) if isinstance(one, Mapping) else one
            for one in value
        )
    if isinstance(value, Mapping):
        return _build(element, value, drops_unknown=drops_unknown)
    if issubclass(element, datetime.timedelta):
        return datetime.timedelta(milliseconds=value)
    return value


def _absent(item: Field[Any]) -> Any:
    if item.default is not MISSING:
        return item.default
    is_nullable, is_array, element = _unfold(item.type)
    if is_nullable:
        return None
    if is_array:
        return ()
    if is_dataclass(element):
        return _build(typing.cast(type[Any], element), {}, drops_unknown=True)
    return next(zero for kind, zero in _ZEROS.items() if issubclass(element, kind))


def _unfold(kind: Any) -> tuple[bool, bool, type[Any]]:
    """Returns (is nullable, is an array, element type) of a field's type."""
    is_nullable = isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union
    if is_nullable:
        (kind,) = (one for one in typing.get_args(kind) if one is not type(None))
    is_array = typing.get_origin(kind) is tuple
    if is_array:
        kind = typing.get_args(kind)[0]
        if isinstance(kind, types.UnionType):
            (kind,) = (one for one in typing.get_args(kind) if one is not type(None))
    return is_nullable, is_array, kind
