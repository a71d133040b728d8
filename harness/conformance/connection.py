"""One request on a connection of its own.

A connection that the node closes and one on which nothing arrives are observations too. Each request has its own
connection, so that no request depends on what an earlier one did to it.
"""

import socket
from dataclasses import dataclass

CONNECT_LIMIT_S = 10.0
RESPONSE_LIMIT_S = 20.0
"""A busy machine is slow; only what is never answered takes this long."""
SILENCE_LIMIT_S = 3.0
"""For requests to which one side is known not to respond."""
RESPONSE_BYTES_MAX = 64 << 20

RESPONSE = "response"
CLOSED = "connection closed"
SILENT = "no response, connection open"


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back.

    Attributes:
        outcome: `RESPONSE`, `CLOSED` or `SILENT`.
        body: The response without its size; empty without a response.
    """

    outcome: str
    body: bytes = b""


def exchange(address: str, data: bytes, *, limit_s: float = RESPONSE_LIMIT_S) -> Reply:
    """Sends bytes to a node and returns what comes back.

    Args:
        address: "host:port".
        data: What to send, its size included.
        limit_s: How long to wait for each part of the response.

    Raises:
        OSError: No connection could be made; the node is down.
    """
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=CONNECT_LIMIT_S) as connection:
        connection.settimeout(limit_s)
        try:
            connection.sendall(data)
            size = int.from_bytes(_receive(connection, 4), "big")
            if size > RESPONSE_BYTES_MAX:
                raise ConnectionError(f"a response of {size} bytes")
            return Reply(RESPONSE, _receive(connection, size))
        except TimeoutError:
            return Reply(SILENT)
        except ConnectionError:
            return Reply(CLOSED)


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise ConnectionError("the node closed the connection")
        received += part
    return bytes(received)
