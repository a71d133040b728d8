"""The two ends of one TCP connection that carries Kafka requests.

The client end needs no task per request. It has a future per request, and one deadline timer per connection that
checks the requests in flight. The server end passes one request at a time to the listener, in order, as Kafka's
socket server does. Other requests wait in its queue.

An end that is `gone` no longer has a socket. If a segment reaches it, the kernel of the host responds with a
reset. A host without power does not respond, so the peers of a machine that lost power receive nothing until it is
up again.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness.simulation.errors import NodeIsDead
from harness.simulation.flight import FIN, Flight
from harness.simulation.loop import NodeLoop
from harness.simulation.pipe import Link, Pipe
from harness.simulation.timeline import Handle, Timeline
from harness.simulation.watched_pipe import pipe_type
from harness.simulation.wire_check import WireCheck
from system_under_test.runtime.network import Handler, RequestContext

_NEVER_NS = 1 << 62


@dataclass(slots=True)
class Listener:
    """The process that listens at the address of a node.

    Attributes:
        loop: The process.
        handler: Handles its requests.
        unaccepted: Connections that the kernel has established and the process has not yet accepted.
    """

    loop: NodeLoop
    handler: Handler
    unaccepted: int = 0

    def accepted(self) -> None:
        """Removes one connection from the kernel's queue."""
        self.unaccepted -= 1


class SimConnection:
    """The client end: implements `system_under_test.runtime.network.Connection`."""

    __slots__ = (
        "_armed_ns",
        "_inflight",
        "_on_gone",
        "_timer",
        "connection_id",
        "down",
        "gone",
        "is_open",
        "loop",
        "server",
        "timeline",
        "up",
        "wire",
    )

    def __init__(
        self,
        timeline: Timeline,
        wire: WireCheck,
        connection_id: int,
        client_loop: NodeLoop,
        listener: Listener,
        links: tuple[Link, Link],
        on_gone: Callable[[int], None],
    ) -> None:
        self.timeline = timeline
        self.wire = wire
        self.connection_id = connection_id
        self.loop = client_loop
        self.is_open = True
        self.gone = False
        self._on_gone = on_gone
        self._inflight: dict[Flight, None] = {}
        self._timer: Handle | None = None
        self._armed_ns = _NEVER_NS
        make_pipe = pipe_type(timeline)
        self.up = make_pipe(timeline, links[0], client_loop, is_reply=False)
        self.down = make_pipe(timeline, links[1], listener.loop, is_reply=True)
        self.server = ServerEnd(self, listener)
        self.up.receive = self.server.on_frame
        self.down.receive = self.on_frame
        self.up.give_up = self.down.give_up = self.reset_both_ends

    # Interface of the node

    def request(self, message: Any, timeout_ms: float) -> "asyncio.Future[Any]":
        """Sends a request and returns the future of its response."""
        loop = self.loop
        future: asyncio.Future[Any] = asyncio.Future(loop=loop)
        if not self.is_open:
            self._check_alive()
            future.set_exception(ConnectionResetError("the connection is closed"))
            return future
        wire = self.wire
        wire.until_next -= 1
        if wire.until_next < 0:
            message = wire.apply(message)
        deadline_ns = self.timeline.now + int(timeout_ms * loop.node.clock.ns_per_ms)
        flight = Flight(message, future, deadline_ns)
        self._inflight[flight] = None
        if deadline_ns < self._armed_ns:
            self._arm(deadline_ns)
        self.up.push(flight)
        return future

    def send(self, message: Any) -> None:
        """Sends a request that has no response."""
        if not self.is_open:
            self._check_alive()
            return
        wire = self.wire
        wire.until_next -= 1
        if wire.until_next < 0:
            message = wire.apply(message)
        self.up.push(Flight(message, None, 0))

    def close(self) -> None:
        """Closes the connection; requests in flight fail."""
        if self.gone:
            return
        self._check_alive()
        self._fail_all(ConnectionAbortedError("the connection was closed on this side"))
        self._leave()
        self.up.push(FIN)

    def _check_alive(self) -> None:
        if self.loop.dead:
            raise NodeIsDead(f"{self.loop!r} is dead and cannot use its connections")

    # Deadlines

    def _arm(self, deadline_ns: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_ns = deadline_ns
        self._timer = self.loop.call_at_true_ns(deadline_ns, self._expire)

    def _expire(self) -> None:
        now = self.timeline.now
        self._timer = None
        self._armed_ns = _NEVER_NS
        earliest_ns = _NEVER_NS
        expired = []
        for flight in self._inflight:
            if flight.deadline_ns <= now:
                expired.append(flight)
            elif flight.deadline_ns < earliest_ns:
                earliest_ns = flight.deadline_ns
        for flight in expired:
            del self._inflight[flight]  # a late response is ignored, since its future is done
            if not flight.future.done():
                flight.future.set_exception(TimeoutError("no response in time"))
        if earliest_ns != _NEVER_NS:
            self._arm(earliest_ns)

    # Events from the network

    def on_frame(self, flight: Flight) -> None:
        """Processes a response that arrived."""
        if self.gone:
            _respond_with_reset(self.down, flight, self.up, self.server)
            return
        if flight is FIN:
            self.broken(ConnectionResetError("the other side closed the connection"))
            return
        self._inflight.pop(flight, None)
        future = flight.future
        if not future.done():
            future.set_result(flight.response)

    def broken(self, error: OSError) -> None:
        """Closes this end without notifying the other: a reset arrived, the peer closed, or TCP gave up."""
        if not self.gone:
            self._fail_all(error)
            self._leave()

    def process_died(self) -> None:
        """Closes the socket, as the kernel does when a process ends."""
        if not self.gone:
            self._inflight.clear()
            self._leave()
            self.up.push(FIN)

    def host_died(self) -> None:
        """The machine lost power: nothing is sent, and frames that were not on the wire yet are lost."""
        if not self.gone:
            self._inflight.clear()
            self._leave()
        self.up.lose_unsent()

    def reset_both_ends(self) -> None:
        """Breaks the connection at both ends at once."""
        self.broken(ConnectionResetError("the connection was reset"))
        self.server.broken()
        self.up.clear()
        self.down.clear()

    def _fail_all(self, error: OSError) -> None:
        inflight, self._inflight = self._inflight, {}
        for flight in inflight:
            if not flight.future.done():
                # One exception object per request: a shared one would accumulate the tracebacks of all waiters.
                flight.future.set_exception(type(error)(*error.args))

    def _leave(self) -> None:
        self.gone = True
        self.is_open = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.server.gone:
            self.report_gone()

    def report_gone(self) -> None:
        """Reports that neither end exists any more."""
        self._on_gone(self.connection_id)


class ServerEnd:
    """The server end of a connection."""

    __slots__ = (
        "_context",
        "_handler",
        "_queue",
        "_scheduled",
        "_working",
        "connection",
        "gone",
        "loop",
    )

    def __init__(self, connection: SimConnection, listener: Listener) -> None:
        self.connection = connection
        self.loop = listener.loop
        self.gone = False
        self._handler = listener.handler
        self._context = RequestContext(
            peer=connection.loop.node.address, connection_id=connection.connection_id
        )
        self._queue: deque[Flight] = deque()
        self._scheduled = False
        self._working: Flight | None = None

    def on_frame(self, flight: Flight) -> None:
        """Processes a request that arrived."""
        if self.gone:
            connection = self.connection
            _respond_with_reset(connection.up, flight, connection.down, connection)
            return
        # The end of the stream is queued too: requests that the client sent before it are still processed.
        self._queue.append(flight)
        if not self._scheduled and self._working is None:
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        self.loop.call_soon(self._work, context=self.loop.plain_context)

    def _work(self) -> None:
        self._scheduled = False
        queue = self._queue
        loop = self.loop
        while queue and not self.gone:
            if loop.interrupted:  # the last handler blocked or killed the process
                self._schedule()
                return
            flight = queue.popleft()
            if flight is FIN:
                self._leave()
                return
            if flight.refusal is not None:
                self._respond(flight, flight.refusal)
                continue
            try:
                result = self._handler(flight.message, self._context)
            except ConnectionAbortedError:
                self._close()
                return
            if isinstance(result, asyncio.Future):
                if not result.done():
                    self._working = flight
                    result.add_done_callback(self._response_ready, context=loop.plain_context)
                    return
                if not self._respond_from(flight, result):
                    return
            elif result is not None:
                self._respond(flight, result)

    def _response_ready(self, future: "asyncio.Future[Any]") -> None:
        flight = self._working
        assert flight is not None
        self._working = None
        if self._respond_from(flight, future) and self._queue:
            self._work()

    def _respond_from(self, flight: Flight, future: "asyncio.Future[Any]") -> bool:
        """Responds with the result of a future; returns whether the connection stays open."""
        if future.cancelled():
            self._close()
            return False
        try:
            response = future.result()
        except ConnectionAbortedError:
            self._close()
            return False
        if response is not None:
            self._respond(flight, response)
        return True

    def _respond(self, flight: Flight, response: Any) -> None:
        if self.gone or flight.future is None:
            return
        wire = self.connection.wire
        wire.until_next -= 1
        if wire.until_next < 0:
            response = wire.apply(response)
        flight.response = response
        self.connection.down.push(flight)

    def _close(self) -> None:
        if not self.gone:
            self._leave()
            self.connection.down.push(FIN)

    def broken(self, error: OSError | None = None) -> None:
        """Closes this end without notifying the other."""
        if not self.gone:
            self._leave()

    def process_died(self) -> None:
        """Closes the socket, as the kernel does when a process ends."""
        self._close()

    def host_died(self) -> None:
        """The machine lost power; frames that were not on the wire yet are lost."""
        if not self.gone:
            self._leave()
        self.connection.down.lose_unsent()

    def _leave(self) -> None:
        self.gone = True
        self._queue.clear()
        if self.connection.gone:
            self.connection.report_gone()


def _respond_with_reset(
    pipe: Pipe, frame: Flight, reverse: Pipe, sender: SimConnection | ServerEnd
) -> None:
    """Responds as the kernel does to a segment for a socket that does not exist."""
    if sender.gone:
        pipe.clear()
    elif reverse.is_blocked:
        pipe.retry_later(frame)
    else:
        pipe.clear()
        send_reset(reverse, sender)


def process_copy(listener: Listener, message: Any, context: RequestContext) -> None:
    """Lets a process handle a copy of a request; no process reads the response."""

    def work() -> None:
        try:
            result = listener.handler(message, context)
        except ConnectionAbortedError:
            return
        if isinstance(result, asyncio.Future):
            result.add_done_callback(_ignore_result)

    listener.loop.call_soon(work, context=listener.loop.plain_context)


def _ignore_result(future: "asyncio.Future[Any]") -> None:
    if not future.cancelled():
        future.exception()


def send_reset(pipe: Pipe, to: SimConnection | ServerEnd) -> None:
    """Sends a reset through a pipe to the end of the connection that reads from it."""
    timeline = pipe.timeline

    def arrive(_: object) -> None:
        if not pipe.is_blocked:
            timeline.trace.note(timeline.now, f"net {pipe.link.src}>{pipe.link.dst} RST")
            to.broken(ConnectionResetError("the other side reset the connection"))

    timeline.push(timeline.now + pipe.link.latency_ns(), arrive, None)
