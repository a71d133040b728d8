"""A link: one connection to one voter for one purpose, with callbacks instead of tasks.

Votes and announcements use other links than fetches, so that a parked fetch never delays a vote. A link opens its
connection when it is needed. A request that times out also closes the connection, as in Kafka's NetworkClient: the
connection may be dead without an error having been reported.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from system_under_test.config import Timings
from system_under_test.runtime import Connection, Host

OnResponse = Callable[[Any], None]
"""Takes the response, or None without a response: refused, broken, too late, superseded."""

MAX_BACKOFF_DOUBLINGS = 10
"""Keeps the exponent small; the configured maximum is reached long before."""


class Link:
    """Sends requests to one address.

    At most one request waits for the connection to come up. A newer request replaces it, because in this
    protocol a newer request always contains more.
    """

    def __init__(self, host: Host, address: str, timings: Timings) -> None:
        self._network = host.network
        self._address = address
        self._connect_timeout_ms = timings.connection_setup_timeout_ms
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._waiting: tuple[Any, float, OnResponse] | None = None
        self._backoff_ms = timings.reconnect_backoff_ms
        self._backoff_ms_max = timings.reconnect_backoff_max_ms
        self._failures = 0

    @property
    def retry_delay_s(self) -> float:
        """Seconds that a caller should wait after a failure before it sends again."""
        doublings = min(max(self._failures - 1, 0), MAX_BACKOFF_DOUBLINGS)
        return min(self._backoff_ms << doublings, self._backoff_ms_max) / 1000

    def send(self, message: Any, timeout_ms: float, on_response: OnResponse) -> None:
        """Sends a request; `on_response` is called exactly once, never from inside this call."""
        connection = self._connection
        if connection is not None and connection.is_open:
            future = connection.request(message, timeout_ms)
            future.add_done_callback(partial(self._completed, connection, on_response))
            return
        superseded = self._waiting
        self._waiting = (message, timeout_ms, on_response)
        if superseded is not None:
            asyncio.get_running_loop().call_soon(superseded[2], None)
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())

    def close(self) -> None:
        """Closes the connection. Requests in flight end with None."""
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            asyncio.get_running_loop().call_soon(waiting[2], None)
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    async def _connect(self) -> None:
        task = asyncio.current_task()
        try:
            connection = await self._network.connect(self._address, self._connect_timeout_ms)
        except OSError:
            # Refused, unreachable, or TimeoutError, which is an OSError too.
            connection = None
        if self._connecting is not task:
            # Closed meanwhile; `close` has ended the waiting request.
            if connection is not None:
                connection.close()
            return
        self._connecting = None
        self._connection = connection
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            return
        message, timeout_ms, on_response = waiting
        if connection is None:
            self._failures += 1
            asyncio.get_running_loop().call_soon(on_response, None)
        else:
            self.send(message, timeout_ms, on_response)

    def _completed(
        self, connection: Connection, on_response: OnResponse, future: "asyncio.Future[Any]"
    ) -> None:
        error = None if future.cancelled() else future.exception()
        if error is not None and not isinstance(error, OSError):
            raise error
        if error is None and not future.cancelled():
            self._failures = 0
            on_response(future.result())
            return
        connection.close()
        if self._connection is connection:
            # A connection that `close` closed is not a failure of the other side.
            self._connection = None
            self._failures += 1
        on_response(None)
