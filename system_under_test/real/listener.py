"""The listening side: many connections, Kafka's framing, one request of a connection at a time.

Everything happens in callbacks on the node's loop; connections have no tasks. A connection is in one of three
states:

* *reading*: it receives bytes and passes on the first complete frame;
* *busy*: a handler works on its request; bytes that arrive meanwhile are buffered up to a limit, and then no
  longer read;
* *blocked*: the client does not read its responses; its requests are not handled until it does.

Memory grows only with bytes that were received: the announced size of a frame is compared with the limit, but
nothing is allocated for it.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from system_under_test.protocol.wire import MalformedRequestError, ServerCodec, WireRequest
from system_under_test.real.fault_point import FaultPoint
from system_under_test.real.limits import Limits
from system_under_test.real.message_log import (
    REQUEST_ARRIVED,
    RESPONSE_SENT,
    MessageLog,
    line_head,
)
from system_under_test.real.passages import Arrival, Departure
from system_under_test.runtime import Handler, RequestContext

SIZE_BYTES = 4
READ_AHEAD_BYTES = 65_536
"""Bytes of following requests that a busy connection buffers before it stops reading."""
SWEEP_S = 1.0
FRAMES_PER_TURN = 32
"""Number of consecutive requests after which other connections get their turn."""
HEADS_MAX = 4
"""Beginnings of lines in the message log that a connection keeps; nothing forbids a new client id per request."""

Mark = Callable[..., None]


class Listener:
    """All connections that one node has accepted.

    Args:
        codec: Converts between frames and canonical messages.
        handler: Handles requests.
        limits: Limits for connections, memory and time.
        mark: Called for connections that this side closed.
        on_failure: Called when the handler raises an unexpected error, which is a bug and ends the node.
        messages: Takes requests and responses; None if the node has no message log.
        name: Who receives requests, for the fault point.
        faults: May take requests and responses; None if the node has no fault point.

    Attributes:
        counts: Numbers of accepted connections, of requests, and of closed connections by cause.
        queued_bytes: Bytes received but not yet handled.
    """

    def __init__(
        self,
        codec: ServerCodec,
        handler: Handler,
        limits: Limits,
        mark: Mark,
        on_failure: Callable[[BaseException], None],
        messages: MessageLog | None = None,
        *,
        name: str = "",
        faults: FaultPoint | None = None,
    ) -> None:
        self.name = name
        self.faults = faults
        self.codec = codec
        self.handler = handler
        self.limits = limits
        self.on_failure = on_failure
        self.messages = messages
        self.counts: Counter[str] = Counter()
        self.queued_bytes = 0
        self.connections: dict[int, ServerConnection] = {}
        self._mark = mark
        self._per_ip: Counter[str] = Counter()
        self._last_id = 0
        self._server: asyncio.Server | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._over_budget: dict[int, ServerConnection] = {}

    async def serve(self, listening: socket.socket) -> None:
        """Starts accepting on a socket that already listens."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: ServerConnection(self), sock=listening)
        if self._is_closed:
            self._server.close()
            return
        self._sweep_timer = loop.call_later(SWEEP_S, self._sweep)

    def close(self) -> None:
        """Stops accepting and closes all connections; idempotent."""
        self._is_closed = True
        if self._server is not None:
            self._server.close()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for connection in list(self.connections.values()):
            connection.drop("listener-closed")

    def stats(self) -> dict[str, int]:
        """Returns the counters, and the numbers of open connections and queued bytes."""
        return {
            **dict(sorted(self.counts.items())),
            "open": len(self.connections),
            "queued_bytes": self.queued_bytes,
        }

    def admit(self, connection: "ServerConnection", address: str) -> int:
        """Returns the new connection's id, or 0 if there are too many."""
        self.counts["accepted"] += 1
        if self._is_closed or len(self.connections) >= self.limits.max_connections:
            self.report_closed("too-many-connections", address)
            return 0
        if self._per_ip[address] >= self.limits.max_connections_per_ip:
            self.report_closed("too-many-connections-of-one-address", address)
            return 0
        self._per_ip[address] += 1
        self._last_id += 1
        self.connections[self._last_id] = connection
        return self._last_id

    def forget(self, connection_id: int, address: str) -> None:
        """Removes a connection that was closed."""
        if self.connections.pop(connection_id, None) is None:
            return
        self._over_budget.pop(connection_id, None)
        self._per_ip[address] -= 1
        if not self._per_ip[address]:
            del self._per_ip[address]

    def report_closed(self, cause: str, peer: str, **details: Any) -> None:
        """Counts and reports a connection that this side closed."""
        self.counts[f"closed: {cause}"] += 1
        # Many closed connections must not fill the log: only counts that are powers of two are reported.
        count = self.counts[f"closed: {cause}"]
        if count & (count - 1) == 0:
            self._mark("connection-closed", cause=cause, peer=peer, count=count, **details)

    def wait_for_budget(self, connection: "ServerConnection") -> None:
        """Stops reading from a connection that holds much data until other requests have been handled."""
        self._over_budget[connection.connection_id] = connection
        connection.hold("budget")

    def release_bytes(self, count: int) -> None:
        """Subtracts bytes that were handled or dropped; resumes reading when there is room again."""
        self.queued_bytes -= count
        if self._over_budget and self.queued_bytes <= self.limits.queued_max_bytes // 2:
            waiting = list(self._over_budget.values())
            self._over_budget.clear()
            for connection in waiting:
                connection.release("budget")

    def process_copy(self, message: Any, context: RequestContext) -> None:
        """Processes a request as if it had come over another connection that nobody reads."""
        self._last_id += 1
        try:
            response = self.handler(message, replace(context, connection_id=self._last_id))
        except ConnectionAbortedError:
            return
        except Exception as error:
            self.on_failure(error)
            return
        if isinstance(response, asyncio.Future):
            response.add_done_callback(self._copy_is_done)

    def _copy_is_done(self, future: "asyncio.Future[Any]") -> None:
        error = None if future.cancelled() else future.exception()
        if error is not None and not isinstance(error, ConnectionAbortedError):
            self.on_failure(error)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        for connection in list(self.connections.values()):
            connection.check_timeouts(now_s)
        self._sweep_timer = loop.call_later(SWEEP_S, self._sweep)


class ServerConnection(asyncio.Protocol):
    """One accepted connection."""

    __slots__ = (
        "_active_s",
        "_address",
        "_blocked_since_s",
        "_buffer",
        "_heads",
        "_holds",
        "_is_busy",
        "_is_closed",
        "_listener",
        "_loop",
        "_pending",
        "_transport",
        "connection_id",
        "peer",
    )

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._holds: dict[str, None] = {}
        self._is_busy = False
        self._is_closed = False
        self._pending: WireRequest | None = None
        self._active_s = self._loop.time()
        self._blocked_since_s: float | None = None
        self._address = ""
        self._heads: dict[tuple[str, str], str] = {}
        self.connection_id = 0
        self.peer = ""

    # Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admits the connection, or closes it."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        name = transport.get_extra_info("peername")
        if isinstance(name, tuple):
            self._address = str(name[0])
            self.peer = f"{name[0]}:{name[1]}"
        self.connection_id = self._listener.admit(self, self._address)
        if not self.connection_id:
            self._is_closed = True
            transport.abort()
            return
        transport.set_write_buffer_limits(high=self._listener.limits.write_buffer_bytes)

    def connection_lost(self, error: Exception | None) -> None:
        """Drops the received bytes; the response to a request in progress is discarded."""
        self._is_closed = True
        self._listener.forget(self.connection_id, self._address)
        self._drop_buffer()
        self._transport = None

    def data_received(self, data: bytes) -> None:
        """Buffers bytes and handles complete frames."""
        if self._is_closed:
            return
        listener = self._listener
        self._active_s = self._loop.time()
        self._buffer += data
        listener.queued_bytes += len(data)
        if self._is_busy or self._blocked_since_s is not None:
            if len(self._buffer) > READ_AHEAD_BYTES:
                self.hold("busy")
        else:
            self._work()
        # Small requests are always read: over the limit, only connections that hold much data have to wait.
        if (
            listener.queued_bytes > listener.limits.queued_max_bytes
            and len(self._buffer) > READ_AHEAD_BYTES
        ):
            listener.wait_for_budget(self)

    def eof_received(self) -> bool:
        """Closes the connection: a client that shut down one direction does not wait for a response."""
        return False

    def pause_writing(self) -> None:
        """Stops handling requests until the client reads its responses."""
        self._blocked_since_s = self._loop.time()

    def resume_writing(self) -> None:
        """Resumes handling requests."""
        self._blocked_since_s = None
        if not self._is_busy:
            self._work()

    # Pausing and resuming reads

    def hold(self, why: str) -> None:
        """Stops reading from the socket for a reason."""
        if self._transport is not None and not self._holds and not self._is_closed:
            self._transport.pause_reading()
        self._holds[why] = None

    def release(self, why: str) -> None:
        """Removes a reason; resumes reading if it was the last one."""
        if why not in self._holds:
            return
        del self._holds[why]
        if not self._holds and self._transport is not None and not self._is_closed:
            self._transport.resume_reading()

    # Requests

    def _work(self) -> None:
        """Handles complete frames until one needs time, the client is slow, or no complete frame is left."""
        buffer = self._buffer
        turns = 0
        while not (self._is_closed or self._is_busy or self._blocked_since_s is not None):
            if len(buffer) < SIZE_BYTES:
                break
            size = int.from_bytes(buffer[:SIZE_BYTES], "big", signed=True)
            if not 0 <= size <= self._listener.limits.max_request_bytes:
                self.drop("frame-size", size=size)
                return
            if len(buffer) < SIZE_BYTES + size:
                break
            turns += 1
            if turns > FRAMES_PER_TURN:
                self._is_busy = True
                self._loop.call_soon(self._next_turn)
                return
            frame = bytes(memoryview(buffer)[SIZE_BYTES : SIZE_BYTES + size])
            del buffer[: SIZE_BYTES + size]
            self._listener.release_bytes(SIZE_BYTES + size)
            self._handle(frame)
        if "busy" in self._holds and len(buffer) <= READ_AHEAD_BYTES:
            self.release("busy")
        elif "busy" in self._holds and not self._is_busy and self._blocked_since_s is None:
            # A frame larger than the read-ahead has begun and no request is in progress: the frame must be
            # completed.
            self.release("busy")

    def _next_turn(self) -> None:
        self._is_busy = False
        if not self._is_closed:
            self._work()

    def _handle(self, frame: bytes) -> None:
        listener = self._listener
        listener.counts["requests"] += 1
        try:
            request = listener.codec.decode_request(frame)
        except MalformedRequestError as error:
            self.drop("malformed-request", reason=str(error))
            return
        if request.direct is not None:
            self._write(request.direct)
            return
        self._note(REQUEST_ARRIVED, request, request.message)
        if listener.faults is not None and listener.faults.takes(Arrival(self, request)):
            return
        self.process(request)

    def context_of(self, request: WireRequest) -> RequestContext:
        """Describes the sender of a request."""
        return RequestContext(
            peer=self.peer,
            connection_id=self.connection_id,
            client_id=request.client_id,
            api_version=request.version,
        )

    def process(self, request: WireRequest) -> None:
        """Passes a request to the handler, and its response to the sender, now or later."""
        listener = self._listener
        try:
            response = listener.handler(request.message, self.context_of(request))
        except ConnectionAbortedError as error:
            self.drop("refused", reason=str(error))
            return
        except Exception as error:
            listener.on_failure(error)
            self.drop("failure")
            return
        if response is None:
            return
        if isinstance(response, asyncio.Future):
            self._is_busy = True
            self._pending = request
            response.add_done_callback(self._completed)
            return
        self.respond(request, response)

    def _completed(self, future: "asyncio.Future[Any]") -> None:
        request = self._pending
        self._pending = None
        self._is_busy = False
        if future.cancelled():
            self.drop("refused", reason="the request was cancelled")
            return
        error = future.exception()
        if error is not None:
            if not isinstance(error, ConnectionAbortedError):
                self._listener.on_failure(error)
            self.drop("refused", reason=str(error))
            return
        if self._is_closed or request is None:
            return
        self._active_s = self._loop.time()
        self.respond(request, future.result())
        self._work()

    def respond(self, request: WireRequest, response: Any) -> None:
        """Sends a response, unless the fault point takes it."""
        try:
            data = self._listener.codec.encode_response(request, response)
        except MalformedRequestError as error:
            self.drop("malformed-request", reason=str(error))
            return
        except Exception as error:
            # A bug. The effects of the request remain; only this client gets no response.
            self.drop("answer-not-encodable", api=request.api.name, error=str(error))
            return
        faults = self._listener.faults
        if faults is not None and not self._is_closed:
            departure = Departure(self, request, response, data)
            if faults.takes(departure):
                return
        self.send(request, response, data)

    def send(self, request: WireRequest, response: Any, data: bytes) -> None:
        """Writes a response."""
        if not self._is_closed:
            self._note(RESPONSE_SENT, request, response)
        self._write(data)

    # What the fault point does

    @property
    def node(self) -> str:
        """The node's name."""
        return self._listener.name

    def process_copy(self, message: Any, context: RequestContext) -> None:
        """Processes a request as if it had come over another connection that nobody reads."""
        self._listener.process_copy(message, context)

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._is_closed

    def wait(self) -> None:
        """Handles no request until `resume`."""
        self._is_busy = True

    def resume(self, action: Callable[[], None]) -> None:
        """Does what a message had to wait for, and goes on with the requests behind it."""
        was_busy, self._is_busy = self._is_busy, False
        self._active_s = self._loop.time()
        action()
        if was_busy:
            self._work()

    def _note(self, what: str, request: WireRequest, message: Any) -> None:
        messages = self._listener.messages
        if messages is None or self._transport is None:
            return
        head = self._heads.get((what, request.client_id))
        if head is None:
            client, server = (
                self._transport.get_extra_info(key) for key in ("peername", "sockname")
            )
            head = line_head(what, client, server, request.client_id)
            if len(self._heads) < HEADS_MAX:
                self._heads[what, request.client_id] = head
        messages.note(head, request.correlation_id, message)

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._is_closed:
            self._transport.write(data)

    # Closing

    def drop(self, cause: str, **details: Any) -> None:
        """Closes the connection for a reason; idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._listener.report_closed(cause, self.peer, **details)
        self._drop_buffer()
        if self._transport is not None:
            # The write buffer holds earlier responses, which may still be sent unless the client does not read.
            if cause in ("write-stall", "listener-closed", "fault"):
                self._transport.abort()
            else:
                self._transport.close()

    def check_timeouts(self, now_s: float) -> None:
        """Closes the connection if it was idle, had an incomplete frame, or was not read for too long."""
        limits = self._listener.limits
        if self._blocked_since_s is not None:
            if now_s - self._blocked_since_s > limits.write_stall_timeout_ms / 1000:
                self.drop("write-stall")
        elif not self._is_busy:
            quiet_s = now_s - self._active_s
            if self._buffer and quiet_s > limits.partial_timeout_ms / 1000:
                self.drop("partial-frame")
            elif quiet_s > limits.idle_timeout_ms / 1000:
                self.drop("idle")

    def _drop_buffer(self) -> None:
        count = len(self._buffer)
        self._buffer = bytearray()
        if count:
            self._listener.release_bytes(count)
