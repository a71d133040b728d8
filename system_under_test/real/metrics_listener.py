"""Serves the metrics of a node over HTTP, for Prometheus: `GET /metrics`.

The listener is separate from the node's own, has its own port, and is off unless the node's file names an address.
It takes few connections and short requests, each for a short time, because anyone may connect.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable

from system_under_test.runtime.metrics import Sample, exposition

CONNECTIONS_MAX = 16
"""A monitoring system needs one or two."""
REQUEST_MAX_BYTES = 8192
REQUEST_LIMIT_S = 5.0
PATH = "/metrics"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Collect = Callable[[], Iterable[Sample]]


class MetricsListener:
    """Listens for requests of a monitoring system.

    Args:
        address: "host:port".
        collect: Returns all samples of the node as they are now.
    """

    def __init__(self, address: str, collect: Collect) -> None:
        self._address = address
        self._collect = collect
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Starts listening.

        Raises:
            OSError: The address cannot be used.
        """
        host, _, port = self._address.rpartition(":")
        self._server = await asyncio.start_server(
            self._serve, host.strip("[]"), int(port), limit=REQUEST_MAX_BYTES
        )

    def close(self) -> None:
        """Stops listening and closes all connections; idempotent."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._open):
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= CONNECTIONS_MAX:
            writer.close()
            return
        self._open.add(writer)
        try:
            # A peer that sends too much, too slowly or not enough gets no response.
            # An error of one connection must not end the node.
            with contextlib.suppress(
                OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
            ):
                async with asyncio.timeout(REQUEST_LIMIT_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._response(head))
                    await writer.drain()
        finally:
            self._open.discard(writer)
            writer.close()

    def _response(self, head: bytes) -> bytes:
        method, _, rest = head.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if path != PATH:
            return _message("404 Not Found", f"the metrics are at {PATH}\n")
        if method != "GET":
            return _message("405 Method Not Allowed", "only GET is allowed\n", "Allow: GET\r\n")
        return _message("200 OK", exposition(self._collect()), kind=CONTENT_TYPE)


def _message(
    status: str, text: str, more: str = "", kind: str = "text/plain; charset=utf-8"
) -> bytes:
    body = text.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        f"{more}Connection: close\r\n\r\n"
    )
    return head.encode() + body
