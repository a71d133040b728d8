"""The connections of one native client, and the waits between attempts to connect to the same node.

A request that times out closes its connection, as Kafka's clients do: a late response must not be taken for the
response to the next request. After that, or if an attempt to connect fails, the client makes no attempt to connect
to the same node for a while: first 50 ms, then twice as long for every further failure in a row, up to a second,
with jitter.

Source:
    reconnect.backoff.ms and reconnect.backoff.max.ms of Kafka's clients; ClusterConnectionStates.
"""

import asyncio
from typing import Any

from harness.contracts.host import ClientHost, Connection
from harness.errors import UsageError
from system_under_test.protocol.client_versions import UnsupportedVersionError
from workloads.clients.backoff import backoff_ms

RECONNECT_BACKOFF_MS = 50
RECONNECT_BACKOFF_MAX_MS = 1000
"""Kafka's defaults."""
STREAM = "reconnect"


class Connections:
    """At most one connection to each node. Mutable: the connections, and what failed.

    Args:
        host: The client host it runs on.
        bootstrap: Addresses of brokers for requests that any broker can serve.
        connect_timeout_ms: After which a connection attempt is given up.
    """

    def __init__(
        self, host: ClientHost, bootstrap: tuple[str, ...], connect_timeout_ms: int
    ) -> None:
        self._host = host
        self._bootstrap = bootstrap
        self._next_bootstrap = 0
        self._connect_timeout_ms = connect_timeout_ms
        self._open: dict[str, Connection] = {}
        self._failures: dict[str, int] = {}
        self._closed_until_ns: dict[str, float] = {}

    def next_broker(self) -> str:
        """Returns the address of a broker, of the next one in turn.

        Brokers that could not be reached a short time ago are passed over, unless that is so for all of them.
        """
        count = len(self._bootstrap)
        turns = [(self._next_bootstrap + step) % count for step in range(count)]
        at = next((one for one in turns if self._may_open(self._bootstrap[one])), turns[0])
        self._next_bootstrap = (at + 1) % count
        return self._bootstrap[at]

    async def open(self, address: str) -> Connection | None:
        """Returns the connection to a node, a new one if necessary.

        Returns:
            None if the node cannot be reached, or could not a short time ago.
        """
        connection = self._open.get(address)
        if connection is not None and connection.is_open:
            return connection
        if not self._may_open(address):
            return None
        try:
            connection = await self._host.network.connect(address, self._connect_timeout_ms)
        except OSError:  # TimeoutError is one
            self._failed(address)
            return None
        self._failures.pop(address, None)
        self._open[address] = connection
        return connection

    async def request(
        self, address: str, connection: Connection, request: Any, timeout_ms: float
    ) -> Any:
        """Returns the response, or a short word for what went wrong with the connection.

        Raises:
            UsageError: The node knows no version of the request that can express it, for example an old broker.
        """
        try:
            return await _request(connection, request, timeout_ms)
        except TimeoutError:
            self._drop(address, connection)
            return "client-timeout"
        except OSError:
            self._drop(address, connection)
            return "connection-lost"

    def close(self) -> None:
        """Closes all connections; what waits for a response gets none."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    def _may_open(self, address: str) -> bool:
        connection = self._open.get(address)
        if connection is not None and connection.is_open:
            return True
        until_ns = self._closed_until_ns.get(address)
        return until_ns is None or self._host.clock.monotonic_ns() >= until_ns

    def _drop(self, address: str, connection: Connection) -> None:
        connection.close()
        if self._open.get(address) is connection:
            del self._open[address]
            self._failed(address)

    def _failed(self, address: str) -> None:
        failures = self._failures.get(address, 0)
        self._failures[address] = failures + 1
        wait_ms = backoff_ms(
            failures,
            first_ms=RECONNECT_BACKOFF_MS,
            most_ms=RECONNECT_BACKOFF_MAX_MS,
            random=self._host.random.stream(STREAM),
        )
        self._closed_until_ns[address] = self._host.clock.monotonic_ns() + wait_ms * 1e6


def send(connection: Connection, request: Any) -> None:
    """Sends a request that has no response.

    Raises:
        UsageError: As `Connections.request`.
    """
    try:
        connection.send(request)
    except UnsupportedVersionError as error:
        raise _unusable(error) from None


def _request(connection: Connection, request: Any, timeout_ms: float) -> "asyncio.Future[Any]":
    try:
        return connection.request(request, timeout_ms)
    except UnsupportedVersionError as error:
        raise _unusable(error) from None


def _unusable(error: UnsupportedVersionError) -> UsageError:
    return UsageError(f"the native client cannot use this cluster: {error}")
