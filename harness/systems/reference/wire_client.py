"""Sends one request to one node over TCP, blocking; for commands that query and print."""

import socket
from typing import Any

from system_under_test.protocol.wire import ClientCodec

FRAME_MAX_BYTES = 1 << 28


def ask(address: str, request: Any, *, timeout_s: float = 2.0) -> Any:
    """Sends a canonical request and returns the response.

    Raises:
        OSError: The node cannot be reached, or did not respond in time.
        ValueError: Its response cannot be read.
    """
    codec = ClientCodec()
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=timeout_s) as connection:
        connection.sendall(codec.encode_request(request, 1, "laststand"))
        with connection.makefile("rb") as file:
            size = int.from_bytes(_whole(file, 4), "big", signed=True)
            if not 0 <= size <= FRAME_MAX_BYTES:
                raise ValueError(f"{address} announced a response of {size} bytes")
            return codec.decode_response(type(request), _whole(file, size))[1]


def _whole(file: Any, size: int) -> bytes:
    data: bytes = file.read(size)
    if len(data) < size:
        raise ConnectionResetError("the node closed the connection before it had responded")
    return data
