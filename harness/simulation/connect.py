"""Opening a connection, packet by packet, and the network door of a node.

What a connect sees depends on who answers: a process that listens, a host without that process (refused after
one round trip), nobody on the segment (unreachable after 3.1 s), or a firewall that drops (nothing, with the
first packet sent again after 1, 2, 3, 4, 5, 7, 11 ... s; by kernels before 6.5 after 1, 3, 7 ... s).
"""

import asyncio
import errno

from harness.simulation.connection import Listener, SimConnection
from harness.simulation.errors import NodeIsDead
from harness.simulation.interfaces import Machine
from harness.simulation.loop import NodeLoop
from harness.simulation.network import SimNetwork
from system_under_test.runtime.network import Connection, Handler

SECOND_NS = 1_000_000_000

UNREACHABLE_NS = 3_100_000_000
"""Three unanswered ARP requests; measured 3.09 s."""

LISTEN_BACKLOG = 50
"""Kafka's socket.listen.backlog.size. Linux queues one connection more than the backlog."""


class NodeNetwork:
    """The network door of one incarnation of a node."""

    __slots__ = ("_loop", "_network")

    def __init__(self, network: SimNetwork, loop: NodeLoop) -> None:
        self._network = network
        self._loop = loop

    def listen(self, handler: Handler) -> None:
        """Starts to accept connections at the node's own address. At most once per process.

        Raises:
            OSError: The process listens already (`EADDRINUSE`).
            NodeIsDead: The process is gone.
        """
        loop = self._loop
        _check_alive(loop)
        if self._network.listener_of(loop.node) is not None:
            raise OSError(errno.EADDRINUSE, f"{loop.node.address} is in use")
        self._network.add_listener(loop.node, Listener(loop, handler))

    async def connect(self, address: str, timeout_ms: float) -> Connection:
        """Opens a connection to `address`; see the protocol for what it raises."""
        loop = self._loop
        _check_alive(loop)
        attempt = ConnectAttempt(self._network, loop, address)
        attempt.send_syn()
        timer = loop.call_later(timeout_ms / 1000, attempt.time_out)
        try:
            return await attempt.future
        finally:
            timer.cancel()
            attempt.finish()


def _check_alive(loop: NodeLoop) -> None:
    if loop.dead:
        raise NodeIsDead(f"{loop!r} is dead and cannot use the network")


class ConnectAttempt:
    """One call of `connect`, until it is decided."""

    def __init__(self, network: SimNetwork, loop: NodeLoop, address: str) -> None:
        self._network = network
        self._timeline = network.timeline
        self._loop = loop
        self._address = address
        self._began_ns = network.timeline.now
        self._attempts = 0
        self._next_syn_ns = self._began_ns
        self._is_over = False
        self.future: asyncio.Future[Connection] = loop.create_future()

    def time_out(self) -> None:
        """The caller's patience is over."""
        if not self.future.done():
            self.future.set_exception(TimeoutError(f"no connection to {self._address} in time"))

    def finish(self) -> None:
        """Nobody waits any more; a connection that is established later is closed again."""
        self._is_over = True

    def send_syn(self, _: object = None) -> None:
        """Sends the first packet, again if need be."""
        if self._is_over or self._loop.dead:
            return
        timeline, network = self._timeline, self._network
        here = self._loop.node
        there = network.node_at(self._address)
        if there is None or not there.host_is_up:
            self._ask_for_unreachable_host()
        elif network.is_rejected(here, there):
            timeline.push(timeline.now + self._round_trip_ns(there), self._refused, None)
        elif network.packets_vanish(here, there):
            self._try_again()
        else:
            latency_ns = network.link(here, there).handshake_ns(timeline.now)
            if latency_ns is None:
                self._try_again()
            else:
                timeline.push(timeline.now + latency_ns, self._syn_arrives, there)

    def _ask_for_unreachable_host(self) -> None:
        # The host may boot while the neighbour table still asks for it, once per second.
        timeline = self._timeline
        at = timeline.now + SECOND_NS
        if at - self._began_ns < UNREACHABLE_NS:
            timeline.push(at, self.send_syn, None)
        else:
            timeline.push(
                max(timeline.now, self._began_ns + UNREACHABLE_NS), self._unreachable, None
            )

    def _try_again(self) -> None:
        """Plans the next first packet."""
        timeline = self._timeline
        linear = self._network.syn_linear_timeouts
        while self._next_syn_ns <= timeline.now:
            self._next_syn_ns += 2 ** max(0, self._attempts - linear) * SECOND_NS
            self._attempts += 1
        timeline.push(self._next_syn_ns, self.send_syn, None)

    def _syn_arrives(self, there: Machine) -> None:
        if self._is_over or self._loop.dead:
            return
        timeline, network = self._timeline, self._network
        if not there.host_is_up:
            self._try_again()
            return
        # The answer takes the other direction; if that is cut, nobody can connect in either.
        answer_lost = network.packets_vanish(there, self._loop.node)
        latency_ns = network.link(there, self._loop.node).handshake_ns(timeline.now)
        listener = network.listener_of(there)
        if answer_lost or latency_ns is None:
            self._try_again()
            return
        answer_at = timeline.now + latency_ns
        if listener is None:
            timeline.push(answer_at, self._refused, None)
        elif listener.unaccepted > LISTEN_BACKLOG:
            self._try_again()
        else:
            listener.unaccepted += 1
            listener.loop.call_soon(listener.accepted, context=listener.loop.plain_context)
            connection = network.open_connection(self._loop, listener)
            timeline.push(answer_at, self._established, connection)

    def _established(self, connection: SimConnection) -> None:
        timeline = self._timeline
        label = f"net connect {self._loop.node.name}>{connection.server.loop.node.name}"
        timeline.trace.note(timeline.now, label)
        if connection.down.is_blocked:
            # The answer was lost on the way; the half-open connection at the other end dies unnoticed.
            connection.reset_both_ends()
            self._try_again()
        elif self._is_over or self.future.done() or self._loop.dead:
            if not connection.gone:
                connection.process_died()
        elif connection.gone:
            self.future.set_exception(ConnectionResetError("reset while connecting"))
        else:
            self.future.set_result(connection)

    def _refused(self, _: object) -> None:
        if not self.future.done():
            self.future.set_exception(
                ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens at {self._address}")
            )

    def _unreachable(self, _: object) -> None:
        if not self.future.done():
            self.future.set_exception(OSError(errno.EHOSTUNREACH, f"no route to {self._address}"))

    def _round_trip_ns(self, there: Machine) -> int:
        here = self._loop.node
        network = self._network
        return network.link(here, there).latency_ns() + network.link(there, here).latency_ns()
