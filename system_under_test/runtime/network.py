"""The network interface: listen, connect, request.

Messages are frozen `kio` entities and cross the interface as objects; a real implementation encodes them, a
simulated one passes them by reference. Every implementation behaves like a TCP connection with Kafka requests:

* requests of one connection are delivered to the listener in the order of `request`/`send` calls;
* like Kafka's socket server, the listener handles one request of a connection at a time: the handler gets the next
  request only after the response of the previous one has been sent. A caller that must not wait behind a parked
  request opens another connection;
* responses arrive in the order of the requests;
* when the connection breaks, every request in flight fails with a `ConnectionError`, and it is unknown whether the
  other side has acted on it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """Describes the sender of a request.

    Attributes:
        peer: Address of the other end as far as it is known; for logs, never for a decision.
        connection_id: Unique among all connections that the node has accepted.
        client_id: From the request's header; empty without one.
        api_version: The version that the request had on the wire, -1 if it was not encoded. Handlers use one
            version only; a few responses of the group protocol depend on the client's version.
    """

    peer: str
    connection_id: int
    client_id: str = ""
    api_version: int = -1


Handler = Callable[[Any, RequestContext], Any]
"""Handles one request: returns the response, or an `asyncio.Future` of it, or None for no response (produce
with acks=0). It is called on the node's loop and must not raise for bad input. If it raises
`ConnectionAbortedError`, the connection is closed; Kafka signals an acks=0 error in this way."""


class Connection(Protocol):
    """One connection to one listener. It cannot be reopened."""

    @property
    def is_open(self) -> bool:
        """Whether requests may still be sent."""
        ...

    def request(self, message: Any, timeout_ms: float) -> "asyncio.Future[Any]":
        """Sends a request and returns the future of its response.

        The future fails with `TimeoutError` if no response arrives in time (the connection stays open, but a
        late response is dropped), and with a `ConnectionError` if the connection breaks. Cancelling the future
        only drops the response.
        """
        ...

    def send(self, message: Any) -> None:
        """Sends a request that has no response. Does nothing on a broken connection."""
        ...

    def close(self) -> None:
        """Closes the connection; idempotent."""
        ...


class Network(Protocol):
    """Opens listeners and connections for one node."""

    def listen(self, handler: Handler) -> None:
        """Starts accepting connections on the node's own address. At most once per process."""
        ...

    async def connect(self, address: str, timeout_ms: float) -> Connection:
        """Opens a connection to `address` ("host:port").

        Raises:
            ConnectionRefusedError: No process listens on the address.
            OSError: The host is unreachable (`EHOSTUNREACH`).
            TimeoutError: No connection within `timeout_ms`.
        """
        ...
