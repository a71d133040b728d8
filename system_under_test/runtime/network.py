"""The network door: listen, connect, request.

Messages are frozen `kio` entities and cross the door as objects; a real back end encodes them, a
simulated one hands them over by reference. Semantics are those of one TCP connection carrying Kafka
requests, and every back end keeps them:

* requests of one connection are delivered to the listener in the order of `request`/`send` calls;
* like Kafka's socket server, the listener works on one request of a connection at a time: the next one
  is handed to the handler only when the response of the previous one has been sent. A caller that must
  not wait behind a parked request opens another connection;
* responses come back in the order of the requests;
* when the connection breaks, every request in flight fails with a `ConnectionError`, and nobody knows
  whether the other side had acted on it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """Says where a request came from.

    Attributes:
        peer: Address of the other end as far as it is known; for logs, never for a decision.
        connection_id: Unique among the connections that one node ever accepted.
        client_id: As the request's header says; empty when it says nothing.
        api_version: The version that the request had on the wire, -1 when it did not cross one. Handlers speak
            one version only; a few answers of the group protocol depend on what the client knew.
    """

    peer: str
    connection_id: int
    client_id: str = ""
    api_version: int = -1


Handler = Callable[[Any, RequestContext], Any]
"""Answers one request: returns the response, or an `asyncio.Future` of it, or None for "no answer"
(produce with acks=0). It is called on the node's loop and must not raise for bad input; if it raises
`ConnectionAbortedError` the connection is closed, which is how Kafka signals an acks=0 error."""


class Connection(Protocol):
    """One connection to one listener. Dead once closed; open a new one instead."""

    @property
    def is_open(self) -> bool:
        """Whether requests may still be sent."""
        ...

    def request(self, message: Any, timeout_ms: float) -> "asyncio.Future[Any]":
        """Sends a request and returns the future of its response.

        The future fails with `TimeoutError` when no response came in time (the connection stays open,
        but a late response is dropped), and with a `ConnectionError` when the connection broke.
        Cancelling the future only drops the response.
        """
        ...

    def send(self, message: Any) -> None:
        """Sends a request that has no response. Silently does nothing on a broken connection."""
        ...

    def close(self) -> None:
        """Closes the connection; idempotent."""
        ...


class Network(Protocol):
    """Opens listeners and connections for one node."""

    def listen(self, handler: Handler) -> None:
        """Starts to accept connections at the node's own address. At most once per process."""
        ...

    async def connect(self, address: str, timeout_ms: float) -> Connection:
        """Opens a connection to `address` ("host:port").

        Raises:
            ConnectionRefusedError: Nobody listens there.
            OSError: The host is unreachable (`EHOSTUNREACH`).
            TimeoutError: No answer within `timeout_ms`.
        """
        ...
