"""A channel: one purpose, one connection at a time, reconnected when it breaks.

Mirrors what Kafka's `NetworkClient` does for one destination: connections come up on demand, failures are
followed by exponential back-off, and a request that times out closes its connection, because later responses on
it could not be distinguished from the missing one. Heartbeats, AlterPartition and every replica fetcher have
their own channels, so that one can be delayed without the others (AP-2).
"""

import asyncio
from collections.abc import Callable
from typing import Any

from system_under_test.config import Timings
from system_under_test.runtime import Connection, Host

MAX_BACKOFF_DOUBLINGS = 16
"""Keeps the exponent small; the cap in milliseconds is reached long before."""


class Channel:
    """Sends requests to the address that its provider returns at that moment.

    Args:
        host: The node's interfaces to the outside.
        address_provider: Returns "host:port", or None while the destination is unknown.
        timings: Reconnect back-off and connection set-up timeout.
        purpose: What it is for, for example "heartbeat"; also names its random stream.
    """

    def __init__(
        self,
        host: Host,
        address_provider: Callable[[], str | None],
        timings: Timings,
        purpose: str,
    ) -> None:
        self.purpose = purpose
        self._network = host.network
        self._jitter = host.random.stream("channel", purpose)
        self._address_provider = address_provider
        self._timings = timings
        self._connection: Connection | None = None
        self._address: str | None = None
        self._connecting: asyncio.Lock | None = None
        self._failures = 0
        self._not_before_s = 0.0
        self._closed = False

    async def send(self, message: Any, timeout_ms: float) -> Any:
        """Sends a request and returns its response.

        Waits first for a reconnect back-off that is still running, and for the connection to come up; the
        timeout counts from the moment the request is sent, as in Kafka.

        Raises:
            ConnectionError: The address is unknown, the connection failed or broke, the channel is closed.
            TimeoutError: The connection did not come up, or no response came, in time.
        """
        connection = self._connection
        if (
            connection is None
            or not connection.is_open
            or self._address_provider() != self._address
        ):
            connection = await self._connected()
        try:
            return await connection.request(message, timeout_ms)
        except OSError as error:  # ConnectionError and TimeoutError are OSErrors, too
            if self._connection is connection:
                self._drop()
                self._back_off()
            raise _narrowed(error) from error

    def close(self) -> None:
        """Closes the connection for good; requests in flight fail. Idempotent."""
        self._closed = True
        self._drop()

    async def _connected(self) -> Connection:
        if self._connecting is None:
            self._connecting = asyncio.Lock()
        async with self._connecting:
            return await self._connect()

    async def _connect(self) -> Connection:
        address = self._destination()
        if address == self._address:
            if self._connection is not None and self._connection.is_open:
                return self._connection  # another task opened it while this one waited for the lock
            if self._connection is not None:
                self._drop()
                self._back_off()  # it broke between two requests
            loop = asyncio.get_running_loop()
            delay_s = self._not_before_s - loop.time()
            if delay_s > 0:
                await asyncio.sleep(delay_s)
                address = self._destination()
        if address != self._address:
            # Back-off belongs to an address: a new active controller is tried at once.
            self._drop()
            self._address, self._failures, self._not_before_s = address, 0, 0.0
        try:
            connection = await self._network.connect(
                address, self._timings.connection_setup_timeout_ms
            )
        except OSError as error:
            self._back_off()
            raise _narrowed(error) from error
        if self._closed:
            connection.close()
            raise ConnectionAbortedError(f"channel {self.purpose} is closed")
        self._failures = 0
        self._connection = connection
        return connection

    def _destination(self) -> str:
        if self._closed:
            raise ConnectionAbortedError(f"channel {self.purpose} is closed")
        address = self._address_provider()
        if address is None:
            raise ConnectionError(f"channel {self.purpose}: no address is known yet")
        return address

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _back_off(self) -> None:
        timings = self._timings
        exponent = min(self._failures, MAX_BACKOFF_DOUBLINGS)
        delay_ms = min(timings.reconnect_backoff_ms * 2**exponent, timings.reconnect_backoff_max_ms)
        self._failures += 1
        # 20 % jitter as in Kafka, so that brokers do not all reconnect to a restarted node at the same moment.
        delay_ms *= 0.8 + 0.4 * self._jitter.random()
        self._not_before_s = asyncio.get_running_loop().time() + delay_ms / 1000


def _narrowed(error: OSError) -> OSError:
    """Returns the error as one of the two kinds that callers handle."""
    if isinstance(error, (ConnectionError, TimeoutError)):
        return error
    return ConnectionError(str(error))
