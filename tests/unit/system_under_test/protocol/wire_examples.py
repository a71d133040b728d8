"""Frames and messages for the tests of the wire: of any API, in any version, plain or arbitrary."""

import io
import random
import struct
import typing
from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from kio.serial import entity_reader, entity_writer

from system_under_test.protocol.apis import APIS, BROKER, CONTROLLER, Api
from system_under_test.protocol.entities import EPOCH
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.versions import unfold, wire_type
from tests.fuzz import corpus

ROLES = (BROKER, CONTROLLER)
VERSIONS = [
    (role, api, version)
    for role in ROLES
    for api in APIS
    if role in api.roles
    for version in range(api.min_version, api.max_version + 1)
]
"""Everything that is served: (role, API, version)."""
NAMES = [f"{role}-{api.name}-{version}" for role, api, version in VERSIONS]
IDS = (UUID(int=1), UUID(int=2))


def api_of(name: str, role: str = BROKER) -> Api:
    """Returns the row of an API."""
    return next(api for api in APIS if api.name == name and role in api.roles)


def header(
    key: int, version: int, *, flexible: bool, client_id: bytes | None = b"me", tags: bytes = b"\0"
) -> bytes:
    """Returns a request header with correlation id 7."""
    size = -1 if client_id is None else len(client_id)
    return (
        struct.pack(">hhih", key, version, 7, size)
        + (client_id or b"")
        + (tags if flexible else b"")
    )


def body_of(message: Any) -> bytes:
    """Returns a message as kio writes it."""
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def frame_of(api: Api, message: Any, **options: Any) -> bytes:
    """Returns a request frame without its size."""
    kind = type(message)
    return header(api.key, kind.__version__, flexible=kind.__flexible__, **options) + body_of(
        message
    )


def arbitrary_request(api: Api, version: int, seed: int) -> Any:
    """Returns a request with legal values in a version of the wire."""
    request_type = wire_type(api, version, "request")
    return corpus.arbitrary(request_type, random.Random(f"{api.name} {version} {seed}"), IDS)


def arbitrary_response(response_type: type[Any], seed: int) -> Any:
    """Returns a response of a type with legal values; error codes and times are as handlers give them.

    Old versions are about one group or key: there is exactly one in the response.
    """
    return _arbitrary(response_type, random.Random(f"{response_type.__name__} {seed}"))


def _arbitrary(entity_type: type[Any], stream: random.Random) -> Any:
    values = {}
    for item in fields(entity_type):
        is_array, is_nullable, inner = unfold(item.type)
        kind = item.metadata.get("kafka_type")
        if (kind == "datetime_i64" and is_nullable) or (is_nullable and stream.random() < 0.2):
            values[item.name] = None
        elif is_array:
            count = 1 if item.name in ("groups", "coordinators") else stream.randrange(3)
            values[item.name] = tuple(_one(inner, kind, stream) for _ in range(count))
        else:
            values[item.name] = _one(inner, kind, stream)
    return entity_type(**values)


def _one(inner: Any, kind: str | None, stream: random.Random) -> Any:
    if is_dataclass(inner):
        return _arbitrary(typing.cast(type[Any], inner), stream)
    return stream.choice(_SAMPLES[typing.cast(str, kind)])


_SAMPLES: dict[str, tuple[Any, ...]] = {
    "bool": (True, False),
    "int8": (0, 1, 127, -128),
    "int16": (0, 1, 32767, -32768),
    "int32": (0, 1, 2**31 - 1, -(2**31)),
    "int64": (0, 1, 2**63 - 1, -(2**63)),
    "uint16": (0, 9092, 65535),
    "string": ("", "topic", "\u00e9\u4e2d"),
    "bytes": (b"", b"\0\xff"),
    "records": (b"", b"\0\xff" * 100),
    "uuid": IDS,
    "error_code": (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_SERVER_ERROR),
    "datetime_i64": (EPOCH, EPOCH + timedelta(days=20_000)),
    "timedelta_i32": (timedelta(0), timedelta(milliseconds=1234)),
    "timedelta_i64": (timedelta(0), timedelta(milliseconds=2**40)),
}


def answer_of(api: Api, version: int, frame: bytes) -> tuple[int, Any]:
    """Reads a whole response frame with kio; returns the correlation id and the message.

    Nothing may be left over, and the size must be right.
    """
    size, correlation_id = struct.unpack_from(">ii", frame)
    assert size == len(frame) - 4
    response_type = wire_type(api, version, "response")
    position = 8
    if response_type.__header_schema__.__flexible__:
        assert frame[position] == 0
        position += 1
    message, consumed = entity_reader(response_type)(frame, position)
    assert position + consumed == len(frame)
    return correlation_id, message


def in_common(one: Any, other: Any) -> list[tuple[str, Any, Any]]:
    """Returns (path, value, other value) of all fields that two versions of a message both have.

    What must be there in one of them stands for null in the other.
    """
    found: list[tuple[str, Any, Any]] = []
    others = {item.name for item in fields(other)}
    for item in fields(one):
        if item.name in others:
            mine, theirs = getattr(one, item.name), getattr(other, item.name)
            found.extend(_pairs(item.name, mine, theirs))
    return found


def _pairs(name: str, mine: Any, theirs: Any) -> list[tuple[str, Any, Any]]:
    if is_dataclass(mine) and is_dataclass(theirs):
        return [(f"{name}.{path}", a, b) for path, a, b in in_common(mine, theirs)]
    if isinstance(mine, tuple) and isinstance(theirs, tuple) and len(mine) == len(theirs):
        return [pair for a, b in zip(mine, theirs, strict=True) for pair in _pairs(name, a, b)]
    if mine is None or theirs is None:
        return [(name, mine or None, theirs or None)]
    return [(name, mine, theirs)]


def element_types(kind: type[Any]) -> list[type[Any]]:
    """Returns a message type and all struct types inside it."""
    hints = [item.type for item in fields(kind)]
    found = [kind]
    while hints:
        hint = hints.pop()
        if isinstance(hint, type) and is_dataclass(hint):
            found.extend(element_types(hint))
        else:
            hints.extend(typing.get_args(hint))
    return found
