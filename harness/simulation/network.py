"""The network between all nodes: its connections, and its faults.

The behaviour was observed on Linux 6.18. `tests/simulation/test_sim_network_*.py` have a test for each
observation, and `tests/containers/test_network_calibration.py` repeats them on the kernel.

A rule is about ordered pairs of nodes. It knows no planes: the caller chooses the pairs.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from harness.simulation.connection import (
    Listener,
    SimConnection,
    process_copy,
    send_reset,
)
from harness.simulation.contents import contents_code
from harness.simulation.interfaces import Machine
from harness.simulation.loop import NodeLoop
from harness.simulation.message_rules import Copy
from harness.simulation.network_faults import (
    DEGRADE,
    DROP,
    DUPLICATE,
    HOLD,
    INTERCEPTORS,
    REJECT,
    STALL,
    THROTTLE,
    Concerns,
    NetworkFault,
)
from harness.simulation.pipe import Link, Pipe
from harness.simulation.timeline import Timeline
from harness.simulation.wire_check import WireCheck
from system_under_test.runtime.network import RequestContext

LOOPBACK_LATENCY_NS = 20_000

SYN_LINEAR_TIMEOUTS = 4
"""Linux' tcp_syn_linear_timeouts since 6.5: the number of connect timeouts before they grow. Older kernels: 0."""

PLACES = ("receiver", "sender")
"""Where packets can be dropped."""

Pairs = Collection[tuple[str, str]]
"""Ordered pairs (source, destination) of names of nodes."""


class SimNetwork:
    """The simulated network.

    Args:
        timeline: The timeline of the world.
        wire: Sends messages through the codec.
        nodes: All nodes by name. The world adds to it.
        addresses: All nodes by address. The world adds to it.

    Attributes:
        faults: The faults in force, oldest first.
        connections: Connections of which at least one end exists, by number.
        syn_linear_timeouts: Number of connect timeouts before they grow.
    """

    def __init__(
        self,
        timeline: Timeline,
        wire: WireCheck,
        *,
        nodes: Mapping[str, Machine],
        addresses: Mapping[str, Machine],
    ) -> None:
        self.timeline = timeline
        self.faults: list[NetworkFault] = []
        self.connections: dict[int, SimConnection] = {}
        self.syn_linear_timeouts = SYN_LINEAR_TIMEOUTS
        self._wire = wire
        self._nodes = nodes
        self._addresses = addresses
        self._links: dict[tuple[str, str], Link] = {}
        self._listeners: dict[str, Listener] = {}  # by node name
        self._connection_count = 0

    @property
    def wire_checks(self) -> int:
        """Returns how many messages went through the codec."""
        return self._wire.count

    # Faults

    def impair(
        self,
        label: str,
        pairs: Pairs,
        *,
        delay_ns: int = 0,
        jitter_ns: int = 0,
        loss: float = 0.0,
    ) -> NetworkFault:
        """Delays or loses the packets between many ordered pairs of nodes, as one fault.

        Args:
            label: For traces.
            pairs: (source, destination).
            delay_ns: Delay of every frame. Frames still on their way when the fault is healed arrive at once.
            jitter_ns: The delay is drawn uniformly from `delay_ns` plus or minus this; at most `delay_ns`.
            loss: Probability that a packet is lost. With probability loss**(j+1) a frame is late by
                0.2 s * (2**(j+1) - 1); no frame is ever lost for good. 1.0 drops everything.
        """
        if not 0.0 <= loss <= 1.0 or jitter_ns > delay_ns:
            raise ValueError(
                f"a loss of {loss}, or a jitter of {jitter_ns} ns around {delay_ns} ns, cannot be applied"
            )
        applies = self._among(pairs)
        if loss == 1.0:
            return self._apply(NetworkFault(STALL, label, applies))
        return self._apply(
            NetworkFault(DEGRADE, label, applies, delay_ns=delay_ns, jitter_ns=jitter_ns, loss=loss)
        )

    def stall(self, label: str, pairs: Pairs, *, at: str = "receiver") -> NetworkFault:
        """Drops the packets of ordered pairs of nodes; TCP keeps trying. One rule for all of them.

        Args:
            label: For traces.
            pairs: (source, destination).
            at: "receiver", as on the path or in an INPUT chain, or "sender", as in an OUTPUT chain. With "sender",
                the kernel knows that nothing was sent. It backs off nevertheless, but the first write after the
                drop has ended also sends everything that waits.
        """
        if at not in PLACES:
            raise ValueError(f"{at!r} is not one of {', '.join(PLACES)}")
        applies = self._among(pairs)
        return self._apply(NetworkFault(STALL, label, applies, at_sender=at == "sender"))

    def refuse(self, label: str, pairs: Pairs) -> NetworkFault:
        """Responds to packets between ordered pairs of nodes with resets, as the firewall rule `REJECT tcp-reset`.

        Args:
            label: For traces.
            pairs: (source, destination).
        """
        fault = self._apply(NetworkFault(REJECT, label, self._among(pairs)))
        for connection in list(self.connections.values()):
            link = connection.up.link
            if fault.applies(link.src, link.dst):
                fault.dropped_or_stalled += 1
                connection.reset_both_ends()
        return fault

    def shape(self, label: str, pairs: Pairs, *, bytes_per_s: int) -> NetworkFault:
        """Lets all packets of ordered pairs of nodes pass one slow wire, in turn.

        Args:
            label: For traces.
            pairs: (source, destination).
            bytes_per_s: What the wire carries.
        """
        return self._apply(
            NetworkFault(THROTTLE, label, self._among(pairs), bytes_per_s=bytes_per_s)
        )

    def _among(self, pairs: Pairs) -> Callable[[str, str], bool]:
        """Returns the predicate of a rule about ordered pairs of nodes."""
        self._check_nodes(*{name for pair in pairs for name in pair})
        wanted = frozenset(pairs)
        return lambda src, dst: (src, dst) in wanted

    def hold(self, src: str | None, dst: str | None, message_type_name: str) -> NetworkFault:
        """Holds messages of one type from one node to another until `release`.

        Frames of a TCP stream stay in order, so later messages of the same connection wait, too.

        Args:
            src: Sending node; None for any.
            dst: Receiving node; None for any.
            message_type_name: Class name of a request or response, for example "FetchResponse".
        """
        return self._intercept(HOLD, src, dst, message_type_name, None)

    def release(self, fault: NetworkFault) -> None:
        """Ends a `hold`. The held messages are delivered now, in order."""
        self.heal(fault)

    def drop(
        self, src: str | None, dst: str | None, message_type_name: str, *, count: int | None = None
    ) -> NetworkFault:
        """Drops messages of one type, each together with its connection.

        TCP cannot lose a frame in the middle of a stream, so both ends see a reset. The request may have been
        processed without a response.

        Args:
            src: Sending node; None for any.
            dst: Receiving node; None for any.
            message_type_name: Class name of a request or response.
            count: The fault ends after this many messages; None for never.
        """
        return self._intercept(DROP, src, dst, message_type_name, count)

    def _intercept(
        self, kind: str, src: str | None, dst: str | None, name: str, remaining: int | None
    ) -> NetworkFault:
        self._check_nodes(*(node for node in (src, dst) if node is not None))

        def concerns(from_node: str, to_node: str, message: str) -> bool:
            return message == name and src in (None, from_node) and dst in (None, to_node)

        label = f"{kind} {name} {src or '*'}>{dst or '*'}"
        return self.intercept(kind, label, concerns, count=remaining)

    def intercept(
        self,
        kind: str,
        label: str,
        concerns: Concerns,
        *,
        count: int | None = None,
        delay_ns: int = 0,
        refusal: Callable[[Any], Any] | None = None,
    ) -> NetworkFault:
        """Adds a rule about single messages at the moment of their arrival.

        Args:
            kind: One of `network_faults.INTERCEPTORS`; `message_rules` describes what they do.
            label: For traces.
            concerns: Which messages it is about.
            count: The rule ends after this many messages; None for never.
            delay_ns: How late a message or its copy is, or how long it waits for another at most.
            refusal: For "refuse": returns the response to a request, None if it cannot be refused.
        """
        return self._apply(
            NetworkFault(
                kind,
                label,
                lambda _src, _dst: True,
                delay_ns=delay_ns,
                concerns=concerns,
                remaining=count,
                act=self._deliver_copy if kind == DUPLICATE else refusal,
            )
        )

    def _deliver_copy(self, fault: NetworkFault, copy: Copy) -> None:
        """Delivers a request a second time, as over a connection of its own, whose response no process reads.

        It arrives after the delay of the fault, or when the fault is healed.
        """
        fault.waiting[copy] = None
        self.timeline.push(self.timeline.now + fault.delay_ns, self._copy_arrives, (fault, copy))

    def _copy_arrives(self, arriving: tuple[NetworkFault, Copy]) -> None:
        fault, copy = arriving
        if copy not in fault.waiting:
            return
        del fault.waiting[copy]
        src, dst, message = copy.src, copy.dst, copy.message
        listener = self._listeners.get(dst)
        is_cut = any(one.kind in (STALL, REJECT) and one.applies(src, dst) for one in self.faults)
        if listener is None or is_cut or not self._nodes[src].host_is_up:
            return
        self._connection_count += 1
        self.timeline.trace.note(
            self.timeline.now,
            f"net {src}>{dst} copy of {type(message).__name__}",
            contents_code(message),
        )
        context = RequestContext(
            peer=self._nodes[src].address, connection_id=self._connection_count
        )
        process_copy(listener, message, context)

    def heal(self, fault: NetworkFault) -> None:
        """Ends one fault; idempotent. Others stay in force."""
        if not fault.active:
            return
        fault.active = False
        self.faults.remove(fault)
        self.timeline.trace.note(self.timeline.now, f"heal {fault.label}")
        self.refresh()
        if fault.kind == DUPLICATE:
            for copy in fault.waiting:
                self.timeline.push(self.timeline.now, self._copy_arrives, (fault, copy))
        if fault.kind == THROTTLE or (fault.kind == DEGRADE and fault.delay_ns):
            self._empty_queue_of(fault)

    def _empty_queue_of(self, fault: NetworkFault) -> None:
        for connection in list(self.connections.values()):
            for pipe in (connection.up, connection.down):
                if fault.applies(pipe.link.src, pipe.link.dst):
                    pipe.send_now()

    def heal_all(self) -> None:
        """Ends every fault."""
        for fault in list(self.faults):
            self.heal(fault)

    def reset_connections(self, nodes: Collection[str] | None = None) -> int:
        """Kills sockets as `ss -K` does: the given nodes see an abort, their peers a reset.

        Args:
            nodes: The nodes whose connections are killed; None for all connections.

        Returns:
            The number of killed connections.
        """
        count = 0
        for connection in list(self.connections.values()):
            client, server = connection.loop.node.name, connection.server.loop.node.name
            if nodes is not None and client not in nodes and server not in nodes:
                continue
            count += 1
            if nodes is None:
                connection.reset_both_ends()
                continue
            here, there = (connection, connection.server)
            pipe = connection.up
            if client not in nodes:
                here, there = there, here  # type: ignore[assignment]
                pipe = connection.down
            here.broken(ConnectionAbortedError("the socket was killed"))
            if not pipe.is_blocked:
                send_reset(pipe, there)
        self.timeline.trace.note(self.timeline.now, "reset connections", count)
        return count

    def _apply(self, fault: NetworkFault) -> NetworkFault:
        self.faults.append(fault)
        self.timeline.trace.note(self.timeline.now, fault.label)
        self.refresh()
        return fault

    def _check_nodes(self, *names: str) -> None:
        for name in names:
            if name not in self._nodes:
                known = ", ".join(self._nodes)
                raise ValueError(f"there is no node called {name!r}; the nodes are {known}")

    # Effects of faults and of hosts without power

    def packets_are_dropped(self, src: Machine, dst: Machine) -> bool:
        """Whether a fault drops a packet between two hosts. Counts the packet as evidence."""
        hit = False
        for fault in self.faults:
            if fault.kind == STALL and fault.applies(src.name, dst.name):
                fault.dropped_or_stalled += 1
                hit = True
        return hit

    def is_rejected(self, src: Machine, dst: Machine) -> bool:
        """Whether a firewall resets a packet between two hosts. Counts the packet as evidence."""
        for fault in self.faults:
            if fault.kind == REJECT and fault.applies(src.name, dst.name):
                fault.dropped_or_stalled += 1
                return True
        return False

    def refresh(self) -> None:
        """Updates links and pipes after faults changed, or after a host lost power or booted."""
        for (src, dst), link in self._links.items():
            touching = [fault for fault in self.faults if fault.applies(src, dst)]
            if not touching:
                link.degraders = link.interceptors = link.throttlers = ()
                continue
            link.degraders = tuple(fault for fault in touching if fault.kind == DEGRADE)
            link.interceptors = tuple(fault for fault in touching if fault.kind in INTERCEPTORS)
            link.throttlers = tuple(fault for fault in touching if fault.kind == THROTTLE)
        for connection in list(self.connections.values()):
            self._refresh(connection)

    def _refresh(self, connection: SimConnection) -> None:
        client, server = connection.loop.node, connection.server.loop.node
        host_off = not (client.host_is_up and server.host_is_up)
        up, down = connection.up, connection.down
        up_blockers, down_blockers = self._blockers_of(up), self._blockers_of(down)
        up.refresh(
            blockers=up_blockers,
            path_blocked=host_off,
            reverse_blocked=host_off or bool(down_blockers),
        )
        down.refresh(
            blockers=down_blockers,
            path_blocked=host_off,
            reverse_blocked=host_off or bool(up_blockers),
        )

    def _blockers_of(self, pipe: Pipe) -> tuple[NetworkFault, ...]:
        """Returns the faults that drop the packets of a pipe."""
        return tuple(
            fault
            for fault in self.faults
            if fault.kind == STALL and fault.applies(pipe.link.src, pipe.link.dst)
        )

    # Connections

    def link(self, src: Machine, dst: Machine) -> Link:
        """Returns the wire from one host to another."""
        key = (src.name, dst.name)
        link = self._links.get(key)
        if link is None:
            weather = self.timeline.weather
            base_ns = weather.latency_base_ns
            if {"client", "harness"} & {src.kind, dst.kind}:
                base_ns = weather.client_latency_base_ns
            if src is dst:
                base_ns = LOOPBACK_LATENCY_NS
            stream = self.timeline.random.stream("net", *key)
            link = self._links[key] = Link(
                *key, base_ns, weather.latency_tail_ns, stream.random, self.heal
            )
            # Without faults a new link is complete, and nothing has changed for the others.
            if self.faults:
                self.refresh()
        return link

    def open_connection(self, client_loop: NodeLoop, listener: Listener) -> SimConnection:
        """Makes an established connection."""
        client, server = client_loop.node, listener.loop.node
        self._connection_count += 1
        connection = SimConnection(
            self.timeline,
            self._wire,
            self._connection_count,
            client_loop,
            listener,
            (self.link(client, server), self.link(server, client)),
            self._forget,
        )
        self.connections[self._connection_count] = connection
        self._refresh(connection)
        return connection

    def _forget(self, connection_id: int) -> None:
        self.connections.pop(connection_id, None)

    def node_at(self, address: str) -> Machine | None:
        """Returns the node at an address."""
        return self._addresses.get(address)

    def listener_of(self, node: Machine) -> Listener | None:
        """Returns the listener of a node's running process, if it has one."""
        return self._listeners.get(node.name)

    def add_listener(self, node: Machine, listener: Listener) -> None:
        """Starts accepting connections at a node."""
        self._listeners[node.name] = listener

    def process_died(self, loop: NodeLoop, *, host_is_off: bool) -> None:
        """Closes the connections of a process, as its kernel does. A host without power sends nothing."""
        self._listeners.pop(loop.node.name, None)
        for connection in list(self.connections.values()):
            for end in (connection, connection.server):
                if end.loop is not loop:
                    continue
                if host_is_off:
                    end.host_died()
                else:
                    end.process_died()
        if host_is_off:
            self.refresh()
