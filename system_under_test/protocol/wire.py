"""Frames to messages and back, without a socket: headers, versions, and Kafka's response to unknown versions.

    frame --header--> (API, version) --skim, kio--> message of that version --versions--> canonical message

The codec of a listener knows the APIs of its role. It responds to ApiVersions itself, since only the codec knows
the versions. A request that cannot be decoded has no response: Kafka closes the connection, and so must the caller
that gets a `MalformedRequestError`. Bytes after a message are ignored, as in Kafka.
"""

import io
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kio.serial import entity_reader, entity_writer
from kio.serial.errors import OutOfBoundValue

from system_under_test.protocol import reshaped
from system_under_test.protocol.admin_messages import RESPONSES
from system_under_test.protocol.apis import APIS, CONTROLLER, Api
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.feature_levels import NO_LEVELS, FeatureLevels
from system_under_test.protocol.messages import (
    NO_THROTTLE,
    add_partitions_to_txns_request,
    api_versions_response,
    fetch_request,
    list_offsets_request,
    write_txn_markers_request,
)
from system_under_test.protocol.releases import Release
from system_under_test.protocol.skim import skim, skip_tags
from system_under_test.protocol.versions import (
    can_read,
    converter,
    layout,
    message_type,
    wire_type,
)

API_VERSIONS_KEY = 18
_HEADER = struct.Struct(">hhih")
_SIZE_AND_CORRELATION = struct.Struct(">ii")
_NO_TAGS = b"\0"
_UNSUPPORTED_VERSION = struct.pack(">h", ErrorCode.UNSUPPORTED_VERSION)
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""Allowed names and versions of client software (KIP-511)."""


_BETWEEN_BROKERS = {
    kind.__api_key__: kind.__version__
    for kind in (
        add_partitions_to_txns_request.AddPartitionsToTxnRequest,
        fetch_request.FetchRequest,
        list_offsets_request.ListOffsetsRequest,
        write_txn_markers_request.WriteTxnMarkersRequest,
    )
}
"""The version of each request that a broker sends to another one, by API key."""


class MalformedRequestError(ValueError):
    """The bytes are not a request that this node can decode; the caller closes the connection."""


@dataclass(slots=True, kw_only=True)
class WireRequest:
    """One request as it was received.

    Attributes:
        message: In the canonical version; None when `direct` is set.
        direct: A whole frame to send back without calling a handler.
    """

    api: Api
    version: int
    correlation_id: int
    client_id: str
    message: Any = None
    direct: bytes | None = None


class _Form:
    """How one version of one API is read and written. Compiled when it is first needed."""

    __slots__ = ("is_flexible", "read", "request_type", "write")

    def __init__(self, api: Api, version: int) -> None:
        canonical = next(one for one in api.canonical if one.first <= version <= one.last)
        request = wire_type(api, version, "request")
        response = wire_type(api, version, "response")
        self.is_flexible: bool = request.__flexible__
        self.request_type, self.read = _reader(api, version, request, canonical.request)
        self.write = _writer(api, version, canonical.response, response)


def _reader(
    api: Api, version: int, request: type[Any], canonical: type[Any]
) -> tuple[type[Any], Callable[[bytes, int], Any]]:
    """Returns the type that reads a frame, which is skimmed for it before, and a function that reads it."""
    reshape = reshaped.find(reshaped.REQUESTS, api.key, version)
    if reshape is None and can_read(canonical, request, after_skimming=True):
        read = entity_reader(canonical)
        return canonical, lambda frame, position: read(frame, position)[0]
    read_as_sent = entity_reader(request)
    if reshape is None:
        convert = converter(request, canonical)
        return request, lambda frame, position: convert(read_as_sent(frame, position)[0])
    by_hand = reshape
    return request, lambda frame, position: by_hand(read_as_sent(frame, position)[0], canonical)


def _writer(
    api: Api, version: int, canonical: type[Any], response: type[Any]
) -> Callable[[Any, Any], bytes]:
    """Returns a function that encodes a response; its second argument is the canonical request."""
    tags = _NO_TAGS if response.__header_schema__.__flexible__ else b""
    reshape = reshaped.find(reshaped.RESPONSES, api.key, version)
    write = entity_writer(response)
    convert: Callable[[Any], Any] | None = None
    if reshape is None:
        if layout(canonical) == layout(response):
            write = entity_writer(canonical)
        else:
            convert = converter(canonical, response)

    def encode(message: Any, request: Any) -> bytes:
        if reshape is not None:
            message = reshape(message, response, request)
        elif convert is not None:
            message = convert(message)
        buffer = io.BytesIO()
        buffer.write(tags)
        write(buffer, message)
        return buffer.getvalue()

    return encode


_FORMS: dict[tuple[int, int], _Form] = {}


def _form(api: Api, version: int) -> _Form:
    form = _FORMS.get((api.key, version))
    if form is None:
        form = _FORMS[(api.key, version)] = _Form(api, version)
    return form


class ServerCodec:
    """Reads requests and writes responses for nodes of one role.

    Args:
        role: "broker" or "controller".
        release: The release whose versions it announces and serves; everything that the table has if None.
        levels: Returns the feature levels that ApiVersions reports.
    """

    def __init__(
        self,
        role: str,
        *,
        release: Release | None = None,
        levels: Callable[[], FeatureLevels] = lambda: NO_LEVELS,
    ) -> None:
        self._role = role
        self._apis = {api.key: api for api in APIS if role in api.roles}
        newest = {} if release is None else release.newest
        self._newest = {
            key: min(api.max_version, newest.get(api.name, api.max_version))
            for key, api in self._apis.items()
        }
        self._levels = levels

    def _serves(self, api: Api, version: int) -> bool:
        """Whether a version is served: the release has it, or nodes use it between them."""
        if not api.min_version <= version <= api.max_version:
            return False
        return version <= self._newest[api.key] or self._is_between_nodes(api.key, version)

    def _is_between_nodes(self, key: int, version: int) -> bool:
        # Brokers forward requests in canonical versions, and few clients speak to controllers.
        return self._role == CONTROLLER or version == _BETWEEN_BROKERS.get(key)

    def decode_request(self, frame: bytes) -> WireRequest:
        """Reads a frame without its size.

        Raises:
            MalformedRequestError: It is not a request, or its API is not served here.
        """
        if len(frame) < _HEADER.size:
            raise MalformedRequestError(f"a request of {len(frame)} bytes has no header")
        key, version, correlation_id, client_id_bytes = _HEADER.unpack_from(frame)
        api = self._apis.get(key)
        if api is None:
            raise MalformedRequestError(f"API key {key} is not served here")
        position = _HEADER.size
        client_id = ""
        if client_id_bytes > 0:
            client_id = _text(frame, position, client_id_bytes)
            position += client_id_bytes
        request = WireRequest(
            api=api, version=version, correlation_id=correlation_id, client_id=client_id
        )
        if not self._serves(api, version):
            if key == API_VERSIONS_KEY:
                request.direct = self._unsupported_api_versions(correlation_id)
                return request
            raise MalformedRequestError(
                f"{api.name} version {version} is not served"
                f" ({api.min_version} to {self._newest[key]} are)"
            )
        form = _form(api, version)
        try:
            if form.is_flexible:
                position = skip_tags(frame, position)
            message = form.read(skim(form.request_type, frame, position), position)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            # Untrusted bytes may raise anything; a panic of the native codec is not an `Exception`.
            raise MalformedRequestError(
                f"{api.name} version {version} cannot be read: {type(error).__name__}: {error}"
            ) from None
        if key == API_VERSIONS_KEY:
            request.direct = self._api_versions(request, message)
        else:
            request.message = message
        return request

    def encode_response(self, request: WireRequest, response: Any) -> bytes:
        """Returns the whole frame of a response, with its size.

        Raises:
            MalformedRequestError: The response does not fit into the requested version: it contains a string that
                is longer than old versions allow (32,767 bytes). Kafka closes the connection as well.
        """
        try:
            body = _form(request.api, request.version).write(response, request.message)
        except OutOfBoundValue as error:
            raise MalformedRequestError(
                f"the response does not fit into {request.api.name} version {request.version}: {error}"
            ) from None
        return _SIZE_AND_CORRELATION.pack(len(body) + 4, request.correlation_id) + body

    def _api_versions(self, request: WireRequest, message: Any) -> bytes:
        error = ErrorCode.NONE
        if request.version >= 3 and not (
            _SOFTWARE.fullmatch(message.client_software_name)
            and _SOFTWARE.fullmatch(message.client_software_version)
        ):
            error = ErrorCode.INVALID_REQUEST
        response = api_versions_response.ApiVersionsResponse(
            error_code=error,
            api_keys=()
            if error
            else tuple(
                api_versions_response.ApiVersion(
                    api_key=api.key,
                    min_version=api.min_version
                    if api.advertised_min is None
                    else api.advertised_min,
                    max_version=self._newest[api.key],
                )
                for api in self._apis.values()
                if self._newest[api.key] >= api.min_version
            ),
            throttle_time=NO_THROTTLE,
            **({} if error else self._levels().fields(request.version)),
        )
        return self.encode_response(request, response)

    def _unsupported_api_versions(self, correlation_id: int) -> bytes:
        """KIP-511: a newer client gets version 0 of the response, with the range that it may use instead."""
        api = self._apis[API_VERSIONS_KEY]
        body = struct.pack(
            ">hihhh",
            ErrorCode.UNSUPPORTED_VERSION,
            1,
            API_VERSIONS_KEY,
            api.min_version,
            self._newest[api.key],
        )
        return _SIZE_AND_CORRELATION.pack(len(body) + 4, correlation_id) + body


class ClientCodec:
    """Writes requests in the version of their own class, and reads the responses to them."""

    def encode_request(self, message: Any, correlation_id: int, client_id: str) -> bytes:
        """Returns the whole frame of a request, with its size."""
        message_type = type(message)
        name = client_id.encode()
        buffer = io.BytesIO()
        buffer.write(b"\0\0\0\0")
        buffer.write(
            _HEADER.pack(
                message_type.__api_key__, message_type.__version__, correlation_id, len(name)
            )
        )
        buffer.write(name)
        if message_type.__flexible__:
            buffer.write(_NO_TAGS)
        entity_writer(message_type)(buffer, message)
        data = buffer.getbuffer()
        struct.pack_into(">i", data, 0, len(data) - 4)
        return bytes(data)

    def decode_response(self, request_type: type[Any], frame: bytes) -> tuple[int, Any]:
        """Reads the response to a request of some type from a frame without its size.

        Returns:
            The correlation id and the response.

        Raises:
            ValueError: It is not such a response.
        """
        if len(frame) < 4:
            raise ValueError(f"a response of {len(frame)} bytes has no header")
        (correlation_id,) = struct.unpack_from(">i", frame)
        response_type = _response_type(request_type)
        if request_type.__api_key__ == API_VERSIONS_KEY and frame[4:6] == _UNSUPPORTED_VERSION:
            # A node that does not know the version of the request responds in version 0 (KIP-511).
            response_type = wire_type(_api_versions(), 0, "response")
        try:
            position = 4
            if response_type.__header_schema__.__flexible__:
                position = skip_tags(frame, position)
            frame = skim(response_type, frame, position)
            response, _ = entity_reader(response_type)(frame, position)
        except Exception as error:
            raise ValueError(
                f"the response to {request_type.__name__} cannot be read: {error}"
            ) from None
        return correlation_id, response


def _api_versions() -> Api:
    return next(one for one in APIS if one.key == API_VERSIONS_KEY)


_RESPONSE_TYPES: dict[type[Any], type[Any]] = {}


def _response_type(request_type: type[Any]) -> type[Any]:
    found = _RESPONSE_TYPES.get(request_type) or RESPONSES.get(request_type)
    if found is None:
        api = next((one for one in APIS if one.key == request_type.__api_key__), None)
        canonical = () if api is None else api.canonical
        found = next((one.response for one in canonical if one.request is request_type), None)
        if found is None:
            # The reference system need not serve what a client of other systems requests.
            module = request_type.__module__.split(".")[2]
            found = message_type(module, request_type.__version__, "response")
        _RESPONSE_TYPES[request_type] = found
    return found


def _text(frame: bytes, position: int, size: int) -> str:
    data = frame[position : position + size]
    if len(data) < size:
        raise MalformedRequestError("the client id is longer than the request")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise MalformedRequestError("the client id is not UTF-8") from None
