"""Opening a connection, packet by packet, and the network interface of a node.

The outcome of a connect depends on the other side:

* a process listens: the connection is established;
* the host is up but no process listens: refused after one round trip;
* no host has the address: unreachable after 3.1 s;
* a firewall drops the packets: no response. The first packet is sent again after 1, 2, 3, 4, 5, 7, 11 ... s, or by
  kernels before 6.5 after 1, 3, 7 ... s.
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
    """The network interface of one process; implements `system_under_test.runtime.Network`."""

    __slots__ = ("_loop", "_network")

    def __init__(self, network: SimNetwork, loop: NodeLoop) -> None:
        self._network = network
        self._loop = loop

    def listen(self, handler: Handler) -> None:
        """Starts accepting connections at the node's own address. At most once per process.

        Raises:
            OSError: The process is already listening (`EADDRINUSE`).
            NodeIsDead: The process has ended.
        """
        loop = self._loop
        _check_alive(loop)
        if self._network.listener_of(loop.node) is not None:
            raise OSError(errno.EADDRINUSE, f"{loop.node.address} is in use")
        self._network.add_listener(loop.node, Listener(loop, handler))

    async def connect(self, address: str, timeout_ms: float) -> Connection:
        """Opens a connection to `address`; `system_under_test.runtime.Network` lists what it raises."""
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
    """One call of `connect`, until its outcome is known."""

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
        """Fails the call because its timeout expired."""
        if not self.future.done():
            self.future.set_exception(TimeoutError(f"the connection to {self._address} timed out"))

    def finish(self) -> None:
        """The caller no longer waits; a connection that is established later is closed at once."""
        self._is_over = True

    def send_syn(self, _: object = None) -> None:
        """Sends the first packet of the handshake, for the first time or again."""
        if self._is_over or self._loop.dead:
            return
        timeline, network = self._timeline, self._network
        here = self._loop.node
        there = network.node_at(self._address)
        if there is None or not there.host_is_up:
            self._look_for_missing_host()
        elif network.is_rejected(here, there):
            timeline.push(timeline.now + self._round_trip_ns(there), self._refused, None)
        elif network.packets_are_dropped(here, there):
            self._try_again()
        else:
            latency_ns = network.link(here, there).handshake_ns(timeline.now)
            if latency_ns is None:
                self._try_again()
            else:
                timeline.push(timeline.now + latency_ns, self._syn_arrives, there)

    def _look_for_missing_host(self) -> None:
        # The host may boot while the kernel still sends ARP requests for it, once per second.
        timeline = self._timeline
        at = timeline.now + SECOND_NS
        if at - self._began_ns < UNREACHABLE_NS:
            timeline.push(at, self.send_syn, None)
        else:
            timeline.push(
                max(timeline.now, self._began_ns + UNREACHABLE_NS), self._unreachable, None
            )

    def _try_again(self) -> None:
        """Schedules the next transmission of the first packet."""
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
        # The response travels in the other direction. If that is cut, neither side can connect.
        response_lost = network.packets_are_dropped(there, self._loop.node)
        latency_ns = network.link(there, self._loop.node).handshake_ns(timeline.now)
        listener = network.listener_of(there)
        if response_lost or latency_ns is None:
            self._try_again()
            return
        response_at = timeline.now + latency_ns
        if listener is None:
            timeline.push(response_at, self._refused, None)
        elif listener.unaccepted > LISTEN_BACKLOG:
            self._try_again()
        else:
            listener.unaccepted += 1
            listener.loop.call_soon(listener.accepted, context=listener.loop.plain_context)
            connection = network.open_connection(self._loop, listener)
            timeline.push(response_at, self._established, connection)

    def _established(self, connection: SimConnection) -> None:
        timeline = self._timeline
        label = f"net connect {self._loop.node.name}>{connection.server.loop.node.name}"
        timeline.trace.note(timeline.now, label)
        if connection.down.is_blocked:
            # The response was lost. The half-open connection at the other end is discarded silently.
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
                ConnectionRefusedError(errno.ECONNREFUSED, f"no process listens at {self._address}")
            )

    def _unreachable(self, _: object) -> None:
        if not self.future.done():
            self.future.set_exception(OSError(errno.EHOSTUNREACH, f"no route to {self._address}"))

    def _round_trip_ns(self, there: Machine) -> int:
        here = self._loop.node
        network = self._network
        return network.link(here, there).latency_ns() + network.link(there, here).latency_ns()
