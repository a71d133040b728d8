"""The network of a real machine: TCP with Kafka's framing."""

import asyncio
import contextlib
import errno
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

from system_under_test.protocol.client_versions import (
    NEWEST_API_VERSIONS,
    NodeVersions,
    TopicIds,
    api_versions_of,
    served_versions,
    version_to_send_instead,
)
from system_under_test.protocol.feature_levels import NO_LEVELS, FeatureLevels
from system_under_test.protocol.releases import Release
from system_under_test.protocol.wire import ClientCodec, ServerCodec
from system_under_test.real.fault_point import FaultPoint
from system_under_test.real.limits import Limits
from system_under_test.real.listener import SIZE_BYTES, Listener, Mark
from system_under_test.real.message_log import (
    REQUEST_SENT,
    RESPONSE_ARRIVED,
    MessageLog,
    line_head,
)
from system_under_test.runtime import Connection, Handler

BACKLOG = 1024
RESPONSE_MAX_BYTES = 1 << 28
NEVER_S = float("inf")
API_VERSIONS_TIMEOUT_MS = 1500
"""How long a new connection waits for the node's versions. The kernel accepts connections for a process that is
paused or busy; the limit is that of a workload's request, which would otherwise wait as long."""


class RealNetwork:
    """Implements `runtime.network.Network`.

    Args:
        address: Address to listen on, "host:port"; None for a host that only connects.
        role: "broker" or "controller", which determines the served APIs; None for a host that only connects.
        client_id: Client id of this node's requests.
        limits: Limits of the listener.
        mark: Called for connections that this side closed.
        on_failure: Called when a handler raises an unexpected error.
        source: Address from which this host connects; None lets the kernel choose. Packets of several nodes on one
            host can be distinguished only if each node uses its own address.
        negotiates_versions: Whether it first requests the versions of each node that it connects to, and converts
            every request to the highest common one. Nodes do not: they all run the same code.
        messages: Takes requests and responses; None if this host has no message log.
        faults: May take messages; None if this host has no fault point.
    """

    def __init__(
        self,
        *,
        address: str | None,
        role: str | None,
        client_id: str,
        limits: Limits,
        mark: Mark,
        on_failure: Callable[[BaseException], None],
        source: str | None = None,
        negotiates_versions: bool = False,
        messages: MessageLog | None = None,
        faults: FaultPoint | None = None,
    ) -> None:
        self._faults = faults
        self._address = address
        self._messages = messages
        self._negotiates_versions = negotiates_versions
        self._topics = TopicIds()
        self._source = (source, 0) if source else None
        self._role = role
        self._client_id = client_id
        self._limits = limits
        self._mark = mark
        self._on_failure = on_failure
        self._release: Release | None = None
        self._levels: Callable[[], FeatureLevels] = lambda: NO_LEVELS
        self._socket: socket.socket | None = None
        self._serving: asyncio.Task[None] | None = None
        self._clients: dict[RealConnection, None] = {}
        self.listener: Listener | None = None

    def bind(self) -> None:
        """Binds the address, so that a port in use is noticed before the node starts.

        Raises:
            OSError: The address cannot be bound.
        """
        assert self._address is not None, "this host only connects"
        host, _, port = self._address.rpartition(":")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((host.strip("[]"), int(port)))
        except BaseException:
            bound.close()
            raise
        self._socket = bound

    def announce(self, release: Release, levels: Callable[[], FeatureLevels]) -> None:
        """Sets what ApiVersions reports; call it before the node listens.

        Args:
            release: Versions of APIs.
            levels: Returns the feature levels as they are now.
        """
        self._release = release
        self._levels = levels

    def listen(self, handler: Handler) -> None:
        """Starts accepting connections on the node's own address."""
        if self._socket is None:
            self.bind()
        assert self._socket is not None
        assert self._role is not None
        codec = ServerCodec(self._role, release=self._release, levels=self._levels)
        self.listener = Listener(
            codec,
            handler,
            self._limits,
            self._mark,
            self._on_failure,
            self._messages,
            name=self._client_id,
            faults=self._faults,
        )
        self._socket.setblocking(False)
        self._socket.listen(BACKLOG)
        self._serving = asyncio.get_running_loop().create_task(
            self.listener.serve(self._socket), name="listen"
        )

    async def connect(self, address: str, timeout_ms: float) -> Connection:
        """Opens a connection to "host:port".

        Raises:
            ConnectionRefusedError: No process listens on the address.
            OSError: The host is unreachable or unknown.
            TimeoutError: No connection within `timeout_ms`, or no response to ApiVersions in time.
        """
        host, _, port = address.rpartition(":")
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: RealConnection(
                        self._client_id, self._forget, self._messages, address, self._faults
                    ),
                    host.strip("[]"),
                    int(port),
                    local_addr=self._source,
                )
        except socket.gaierror as error:
            raise OSError(errno.EHOSTUNREACH, f"{host} cannot be resolved: {error}") from None
        self._clients[connection] = None
        if self._negotiates_versions:
            try:
                await self._negotiate(connection, address, max(timeout_ms, API_VERSIONS_TIMEOUT_MS))
            except BaseException:
                connection.close()
                raise
        return connection

    async def _negotiate(
        self, connection: "RealConnection", address: str, timeout_ms: float
    ) -> None:
        """Requests the versions of the node, in older and older versions until it knows one."""
        version: int | None = NEWEST_API_VERSIONS
        while version is not None:
            response = await connection.request(api_versions_of(version), timeout_ms)
            try:
                version = version_to_send_instead(version, response)
            except ValueError as error:
                raise ConnectionResetError(f"{address}: {error}") from None
        connection.use_versions(NodeVersions(address, served_versions(response), self._topics))

    def close(self) -> None:
        """Closes the listener and every connection; idempotent."""
        if self.listener is not None:
            self.listener.close()
        if self._socket is not None:
            self._socket.close()
        for connection in list(self._clients):
            connection.close()

    def _forget(self, connection: "RealConnection") -> None:
        self._clients.pop(connection, None)


class _Flight:
    """A request without a response so far."""

    __slots__ = ("correlation_id", "deadline_s", "future", "request", "sent_type")

    def __init__(
        self,
        correlation_id: int,
        request: Any,
        sent_type: type[Any],
        future: "asyncio.Future[Any]",
        deadline_s: float,
    ) -> None:
        self.correlation_id = correlation_id
        self.request = request
        self.sent_type = sent_type
        self.future = future
        self.deadline_s = deadline_s


class RealConnection(asyncio.Protocol):
    """The connecting side. Implements `runtime.network.Connection`.

    One timer per connection checks the requests in flight; a request needs a future but no task.
    """

    def __init__(
        self,
        client_id: str,
        on_gone: Callable[["RealConnection"], None],
        messages: MessageLog | None = None,
        address: str = "",
        faults: FaultPoint | None = None,
    ) -> None:
        self._client_id = client_id
        self._address = address
        self._faults = faults
        self._on_gone = on_gone
        self._messages = messages
        self._heads: dict[str, str] = {}
        self._loop = asyncio.get_running_loop()
        self._codec = ClientCodec()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._flights: deque[_Flight] = deque()
        self._correlation_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self._armed_s = NEVER_S
        self._versions: NodeVersions | None = None

    def use_versions(self, versions: NodeVersions) -> None:
        """From now on converts requests to a version that the node knows, and responses back."""
        self._versions = versions

    @property
    def is_open(self) -> bool:
        """Whether requests may still be sent."""
        return self._transport is not None

    def request(self, message: Any, timeout_ms: float) -> "asyncio.Future[Any]":
        """Sends a request and returns the future of its response.

        Raises:
            UnsupportedVersionError: The node knows no version that can express it. Nothing was sent.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._transport is None:
            _fail(future, ConnectionResetError("the connection is closed"))
            return future
        sent = self._outgoing(message)
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        deadline_s = self._loop.time() + timeout_ms / 1000
        self._flights.append(_Flight(self._correlation_id, message, type(sent), future, deadline_s))
        if deadline_s < self._armed_s:
            self._arm(deadline_s)
        self._write(sent)
        return future

    def send(self, message: Any) -> None:
        """Sends a request that has no response.

        Raises:
            UnsupportedVersionError: The node knows no version that can express it. Nothing was sent.
        """
        if self._transport is not None:
            sent = self._outgoing(message)
            self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
            self._write(sent)

    def _write(self, sent: Any) -> None:
        assert self._transport is not None
        data = self._codec.encode_request(sent, self._correlation_id, self._client_id)
        self._note(REQUEST_SENT, self._correlation_id, sent)
        if self._faults is not None:
            self._faults.client_sent(self._address, sent)
        self._transport.write(data)

    def _note(self, what: str, correlation_id: int, message: Any) -> None:
        if self._messages is not None:
            self._messages.note(self._heads[what], correlation_id, message)

    def _outgoing(self, message: Any) -> Any:
        return message if self._versions is None else self._versions.outgoing(message)

    def close(self) -> None:
        """Closes the connection; requests in flight fail."""
        self._end(ConnectionAbortedError("the connection was closed on this side"))

    # Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Stores the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._messages is not None:
            client, server = (transport.get_extra_info(key) for key in ("sockname", "peername"))
            self._heads = {
                what: line_head(what, client, server, self._client_id)
                for what in (REQUEST_SENT, RESPONSE_ARRIVED)
            }

    def connection_lost(self, error: Exception | None) -> None:
        """Fails the requests in flight: whether the other side acted on them is unknown."""
        reason = (
            f"the connection broke: {error}" if error else "the other side closed the connection"
        )
        self._end(ConnectionResetError(reason))

    def data_received(self, data: bytes) -> None:
        """Completes requests with their responses, in the order of the requests."""
        buffer = self._buffer
        buffer += data
        while len(buffer) >= SIZE_BYTES:
            size = int.from_bytes(buffer[:SIZE_BYTES], "big", signed=True)
            if not 0 <= size <= RESPONSE_MAX_BYTES:
                self._end(ConnectionResetError(f"a response announces {size} bytes"))
                return
            if len(buffer) < SIZE_BYTES + size:
                return
            frame = bytes(memoryview(buffer)[SIZE_BYTES : SIZE_BYTES + size])
            del buffer[: SIZE_BYTES + size]
            if not self._take(frame):
                return

    def _take(self, frame: bytes) -> bool:
        if not self._flights:
            self._end(ConnectionResetError("a response arrived without a request"))
            return False
        flight = self._flights.popleft()
        try:
            correlation_id, response = self._codec.decode_response(flight.sent_type, frame)
            if self._versions is not None:
                response = self._versions.incoming(flight.request, response)
        except ValueError as error:
            self._flights.appendleft(flight)
            self._end(ConnectionResetError(f"a response cannot be read: {error}"))
            return False
        if correlation_id != flight.correlation_id:
            self._flights.appendleft(flight)
            self._end(ConnectionResetError("a response belongs to another request"))
            return False
        self._note(RESPONSE_ARRIVED, correlation_id, response)
        if self._faults is not None:
            self._faults.client_received(self._address, response)
        if not flight.future.done():
            flight.future.set_result(response)
        return True

    # Deadlines

    def _arm(self, deadline_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_s = deadline_s
        self._timer = self._loop.call_at(deadline_s, self._expire)

    def _expire(self) -> None:
        now_s = self._loop.time()
        self._timer = None
        self._armed_s = NEVER_S
        next_s = NEVER_S
        for flight in self._flights:
            if flight.future.done():
                continue
            if flight.deadline_s <= now_s:
                # It stays in the queue: its response may still arrive, and must not complete the next request.
                _fail(flight.future, TimeoutError("no response in time"))
            elif flight.deadline_s < next_s:
                next_s = flight.deadline_s
        if next_s < NEVER_S:
            self._arm(next_s)

    def _end(self, error: ConnectionError) -> None:
        transport = self._transport
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._armed_s = NEVER_S
        flights, self._flights = self._flights, deque()
        for flight in flights:
            if not flight.future.done():
                _fail(flight.future, error)
        if transport is not None:
            self._on_gone(self)
            with contextlib.suppress(OSError):
                transport.close()


def _fail(future: "asyncio.Future[Any]", error: Exception) -> None:
    future.set_exception(error)
    # The caller may no longer wait for the future, which is not an error of the node.
    future.exception()
