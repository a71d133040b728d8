"""What a proxy reads from the frames of any program that speaks Kafka's protocol, and the refusals that it writes.

A frame is a size and that many bytes. A request begins with API key, version, correlation id and client id, in
every version of the header that is in use; a response begins with the correlation id.
"""

import io
import struct
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from kio.index import KioIndexError, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_writer
from kio.static.constants import EntityType
from kio.static.primitive import i32

from system_under_test.protocol.empty_responses import can_refuse, empty_response
from system_under_test.protocol.skim import LengthError, read_uvarint, skip_tags

_HEADER = struct.Struct(">hhih")
_SIZE = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_PRODUCE_KEY, _PRODUCE_WITH_TRANSACTION, _PRODUCE_FLEXIBLE = 0, 3, 9
API_NAMES: Mapping[int, str] = {
    key: "".join(word.capitalize() for word in name.split("_")) for key, name in api_key_map.items()
}
"""Name of each API by its key: "AlterPartition"."""


class RequestHead(NamedTuple):
    """The beginning of a request: `api` is a name, also for an API that is not known here."""

    key: int
    version: int
    correlation_id: int
    client_id: str

    @property
    def api(self) -> str:
        """The API's name."""
        return API_NAMES.get(self.key, f"Api{self.key}")


def request_head(frame: bytes) -> RequestHead:
    """Reads the beginning of a request.

    Args:
        frame: Without its size.

    Raises:
        ValueError: It is no request.
    """
    if len(frame) < _HEADER.size:
        raise ValueError("a request is shorter than its header")
    key, version, correlation_id, length = _HEADER.unpack_from(frame)
    end = _HEADER.size + max(length, 0)
    if length < -1 or end > len(frame):
        raise ValueError("the client id of a request is longer than the request")
    client_id = frame[_HEADER.size : end].decode(errors="replace")
    return RequestHead(key, version, correlation_id, client_id)


def has_response(head: RequestHead, frame: bytes) -> bool:
    """Returns whether a request is answered: all are, except those to produce with acks=0.

    Args:
        head: Of the request.
        frame: The request, without its size.
    """
    if head.key != _PRODUCE_KEY:
        return True
    at = _HEADER.size + max(_HEADER.unpack_from(frame)[3], 0)
    try:
        if head.version >= _PRODUCE_FLEXIBLE:
            at = skip_tags(frame, at)
            length, at = read_uvarint(frame, at)  # of the transactional id, and one more
            at += max(length - 1, 0)
        elif head.version >= _PRODUCE_WITH_TRANSACTION:
            at += 2 + max(_SHORT.unpack_from(frame, at)[0], 0)
        acks: int = _SHORT.unpack_from(frame, at)[0]
    except (struct.error, LengthError):
        return True  # the program closes the connection
    return acks != 0


def sized(frame: bytes) -> bytes:
    """Returns a frame with its size before it."""
    return _SIZE.pack(len(frame)) + frame


def refusal(head: RequestHead, error_code: int) -> bytes | None:
    """Returns the frame that refuses a whole request; None if its response has no error of the whole.

    Args:
        head: Of the request.
        error_code: Kafka's number.
    """
    try:
        schema: Any = load_response_schema(head.key, head.version)
    except KioIndexError:
        return None
    if not can_refuse(schema):
        return None
    buffer = io.BytesIO()
    header: Any = schema.__header_schema__
    entity_writer(header)(buffer, header(correlation_id=i32(head.correlation_id)))
    entity_writer(schema)(buffer, empty_response(schema, error_code))
    return buffer.getvalue()


@cache
def refusable_apis() -> tuple[str, ...]:
    """Returns the names of the APIs whose newest known response has an error of the whole."""
    found = []
    for key, name in sorted(api_key_map.items()):
        versions = [v for v, kinds in schema_name_map[name].items() if EntityType.response in kinds]
        schema: Any = load_response_schema(key, max(versions))
        if can_refuse(schema):
            found.append(API_NAMES[key])
    return tuple(sorted(found))
