"""The network between all nodes: who is connected, what is broken, and the door of each node.

Rows of the behaviour table this implements were observed on Linux 6.18 (design note, section 6.2); each is a
test in tests/simulation/test_sim_network.py.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from harness.simulation.connect import SYN_LINEAR_TIMEOUTS, Listener
from harness.simulation.connection import ServerEnd, SimConnection
from harness.simulation.errors import CodecMismatch
from harness.simulation.pipe import FIN, Flight, Link, Pipe
from harness.simulation.rules import (
    DEGRADE,
    DROP,
    HOLD,
    PLANES,
    REJECT,
    STALL,
    THROTTLE,
    Token,
    between,
    plane_of,
)
from system_under_test.protocol.messages import decode, encode

if TYPE_CHECKING:
    from harness.simulation.loop import NodeLoop
    from harness.simulation.node import SimNode
    from harness.simulation.world import World

LOOPBACK_LATENCY_NS = 20_000
_NEVER = 1 << 62

Pairs = Collection[tuple[str, str]]
"""Ordered pairs (source, destination) of names of nodes."""


class SimNetwork:
    """The simulated network.

    Args:
        world: The world it is in.
        sim_wire: Every message goes through the codec.
        wire_sample: Otherwise, this share of them does.

    Attributes:
        tokens: The rules in force, oldest first.
        connections: Connections of which at least one end exists, by number.
        until_wire_check: Counts down to the next message that goes through the codec.
        syn_linear_timeouts: How many timeouts of a connect pass before they grow.
    """

    def __init__(self, world: "World", *, sim_wire: bool, wire_sample: float) -> None:
        self.world = world
        self.tokens: list[Token] = []
        self.connections: dict[int, SimConnection] = {}
        self.wire_checks = 0
        self.syn_linear_timeouts = SYN_LINEAR_TIMEOUTS
        self._sim_wire = sim_wire
        self._wire_sample = wire_sample
        self._wire_random = world.random.stream("wire").expovariate
        self.until_wire_check = self._next_wire_check()
        self._links: dict[tuple[str, str], Link] = {}
        self._listeners: dict[str, Listener] = {}  # by node name
        self._connection_count = 0

    # Faults

    def cut(
        self,
        a: str,
        b: str,
        *,
        planes: Iterable[str] | None = None,
        direction: str = "both",
        at: str = "receiver",
    ) -> Token:
        """Drops the packets between two nodes; TCP keeps trying.

        Args:
            a: A node.
            b: Another node.
            planes: On these planes only; None for all.
            direction: "both", "a_to_b" or "b_to_a": which packets are dropped.
            at: "receiver", as on a path or in an INPUT chain, or "sender", as in an OUTPUT chain. There the kernel
                knows that nothing was sent: it backs off all the same, but once the drop has ended, the next
                write takes along what waits.
        """
        forward = _choose(direction, both=(True, True), a_to_b=(True, False), b_to_a=(False, True))
        pairs = {pair for pair, cut in (((a, b), forward[0]), ((b, a), forward[1])) if cut}
        at_sender = _choose(at, receiver=False, sender=True)
        self._check_nodes(a, b)
        label = f"cut {a} {b} {direction}"
        return self._apply(
            Token(
                STALL,
                label,
                between(lambda src, dst: (src, dst) in pairs, _planes(planes)),
                at_sender=at_sender,
            )
        )

    def isolate(
        self, node: str, *, planes: Iterable[str] | None = None, at: str = "receiver"
    ) -> Token:
        """Drops the packets between a node and everybody else, clients included unless `planes` says not."""
        self._check_nodes(node)
        applies = between(lambda src, dst: node in (src, dst), _planes(planes))
        at_sender = _choose(at, receiver=False, sender=True)
        return self._apply(Token(STALL, f"isolate {node}", applies, at_sender=at_sender))

    def partition(
        self,
        groups: Sequence[Collection[str]],
        *,
        planes: Iterable[str] | None = None,
        at: str = "receiver",
    ) -> Token:
        """Drops the packets between nodes of different groups. Nodes in no group see everybody.

        A node in two groups is the bridge between them.
        """
        for group in groups:
            self._check_nodes(*group)

        def separated(src: str, dst: str) -> bool:
            of_src = [i for i, group in enumerate(groups) if src in group]
            of_dst = [i for i, group in enumerate(groups) if dst in group]
            return bool(of_src) and bool(of_dst) and not set(of_src) & set(of_dst)

        label = "partition " + " | ".join(",".join(sorted(group)) for group in groups)
        at_sender = _choose(at, receiver=False, sender=True)
        applies = between(separated, _planes(planes))
        return self._apply(Token(STALL, label, applies, at_sender=at_sender))

    def reject(self, a: str, b: str, *, planes: Iterable[str] | None = None) -> Token:
        """Answers the packets between two nodes with resets, as a firewall rule `REJECT tcp-reset` does."""
        self._check_nodes(a, b)
        chosen = _planes(planes)
        plane = plane_of(self.world.nodes[a].kind, self.world.nodes[b].kind)
        return self.refuse(f"reject {a} {b}", ((a, b), (b, a)) if plane in chosen else ())

    def degrade(
        self,
        a: str,
        b: str,
        *,
        delay_ns: int = 0,
        loss: float = 0.0,
        planes: Iterable[str] | None = None,
        direction: str = "both",
    ) -> Token:
        """Makes packets between two nodes late, or lost and sent again.

        Args:
            a: A node.
            b: Another node.
            delay_ns: Added to every frame.
            loss: Probability that a packet is lost. With probability loss**(j+1) a frame is late by
                0.2 s * (2**(j+1) - 1); no frame is ever lost for good.
            planes: On these planes only; None for all.
            direction: "both", "a_to_b" or "b_to_a".
        """
        forward = _choose(direction, both=(True, True), a_to_b=(True, False), b_to_a=(False, True))
        pairs = {pair for pair, bad in (((a, b), forward[0]), ((b, a), forward[1])) if bad}
        if not 0.0 <= loss < 1.0:
            raise ValueError(f"a loss of {loss} is no probability below one; cut the link instead")
        self._check_nodes(a, b)
        return self._apply(
            Token(
                DEGRADE,
                f"degrade {a} {b}",
                between(lambda src, dst: (src, dst) in pairs, _planes(planes)),
                delay_ns=delay_ns,
                loss=loss,
            )
        )

    def impair(
        self,
        label: str,
        pairs: Pairs,
        *,
        delay_ns: int = 0,
        jitter_ns: int = 0,
        loss: float = 0.0,
    ) -> Token:
        """Makes the packets of many ordered pairs of nodes late, or lost and sent again; one rule for all of them.

        Args:
            label: For traces.
            pairs: (source, destination).
            delay_ns: Added to every frame. What is still on its way when the rule is healed arrives at once.
            jitter_ns: Makes the delay a draw, uniform around `delay_ns`; at most `delay_ns`.
            loss: As for `degrade`; 1.0 drops everything.
        """
        if not 0.0 <= loss <= 1.0 or jitter_ns > delay_ns:
            raise ValueError(
                f"a loss of {loss} or a jitter of {jitter_ns} around {delay_ns} cannot be"
            )
        applies = self._among(pairs)
        if loss == 1.0:
            return self._apply(Token(STALL, label, applies))
        return self._apply(
            Token(DEGRADE, label, applies, delay_ns=delay_ns, jitter_ns=jitter_ns, loss=loss)
        )

    def throttle(self, node: str, *, bytes_per_s: int) -> Token:
        """Lets everything that a node sends to others pass one slow wire, in turn."""
        self._check_nodes(node)
        pairs = [(node, other) for other in self.world.nodes]
        return self.shape(f"throttle {node} {bytes_per_s}", pairs, bytes_per_s=bytes_per_s)

    def stall(self, label: str, pairs: Pairs, *, at: str = "receiver") -> Token:
        """Drops the packets of ordered pairs of nodes; one rule for all of them.

        Args:
            label: For traces.
            pairs: (source, destination).
            at: As for `cut`.
        """
        at_sender = _choose(at, receiver=False, sender=True)
        return self._apply(Token(STALL, label, self._among(pairs), at_sender=at_sender))

    def refuse(self, label: str, pairs: Pairs) -> Token:
        """Answers the packets of ordered pairs of nodes with resets, as a firewall rule `REJECT tcp-reset` does.

        Args:
            label: For traces.
            pairs: (source, destination).
        """
        token = self._apply(Token(REJECT, label, self._among(pairs)))
        for connection in list(self.connections.values()):
            up = connection.up
            if token.applies(up.link.src, up.link.dst, up.plane):
                token.dropped_or_stalled += 1
                connection.reset_both_ends()
        return token

    def shape(self, label: str, pairs: Pairs, *, bytes_per_s: int) -> Token:
        """Lets all packets of ordered pairs of nodes pass one slow wire, in turn.

        Args:
            label: For traces.
            pairs: (source, destination).
            bytes_per_s: What the wire carries.
        """
        return self._apply(Token(THROTTLE, label, self._among(pairs), bytes_per_s=bytes_per_s))

    def _among(self, pairs: Pairs) -> Callable[[str, str, str], bool]:
        """Returns the predicate of a rule about ordered pairs of nodes."""
        self._check_nodes(*{name for pair in pairs for name in pair})
        wanted = frozenset(pairs)
        return between(lambda src, dst: (src, dst) in wanted, PLANES)

    def hold(self, src: str | None, dst: str | None, message_type_name: str) -> Token:
        """Holds messages of one type from one node to another until `release`.

        A TCP stream cannot be overtaken: what follows a held message on its connection waits behind it.

        Args:
            src: Sending node; None for any.
            dst: Receiving node; None for any.
            message_type_name: Class name of a request or response, for example "FetchResponse".
        """
        return self._intercept(HOLD, src, dst, message_type_name, None)

    def release(self, token: Token) -> None:
        """Ends a `hold`; what was held is delivered now, in order."""
        self.heal(token)

    def drop(
        self, src: str | None, dst: str | None, message_type_name: str, *, count: int | None = None
    ) -> Token:
        """Makes messages of one type vanish, each together with its connection.

        A frame cannot get lost from within a TCP stream, so both ends see a reset: the request was perhaps
        acted upon, and nobody hears of it.

        Args:
            src: Sending node; None for any.
            dst: Receiving node; None for any.
            message_type_name: Class name of a request or response.
            count: Heals itself after so many messages; None for never.
        """
        return self._intercept(DROP, src, dst, message_type_name, count)

    def _intercept(
        self, kind: str, src: str | None, dst: str | None, name: str, remaining: int | None
    ) -> Token:
        self._check_nodes(*(node for node in (src, dst) if node is not None))

        def forward(from_node: str, to_node: str) -> bool:
            return src in (None, from_node) and dst in (None, to_node)

        label = f"{kind} {name} {src or '*'}>{dst or '*'}"
        token = Token(kind, label, between(forward, PLANES), message_type=name, remaining=remaining)
        return self._apply(token)

    def heal(self, token: Token) -> None:
        """Ends one rule; idempotent. Others stay in force."""
        if not token.active:
            return
        token.active = False
        self.tokens.remove(token)
        self.world.trace.note(self.world.now, f"heal {token.label}")
        self.refresh()
        if token.kind == THROTTLE or (token.kind == DEGRADE and token.delay_ns):
            self._empty_queue_of(token)

    def _empty_queue_of(self, token: Token) -> None:
        for connection in list(self.connections.values()):
            for pipe in (connection.up, connection.down):
                if token.applies(pipe.link.src, pipe.link.dst, pipe.plane):
                    pipe.hurry()

    def heal_all(self) -> None:
        """Ends every rule."""
        for token in list(self.tokens):
            self.heal(token)

    def reset_connections(self, nodes: Collection[str] | None = None) -> int:
        """Kills sockets as `ss -K` does: the nodes named see an abort, their peers a reset.

        Args:
            nodes: Whose connections; None for all there are.

        Returns:
            How many connections were killed.
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
                self._send_reset(pipe, there)
        self.world.trace.note(self.world.now, "reset connections", count)
        return count

    def _apply(self, token: Token) -> Token:
        self.tokens.append(token)
        self.world.trace.note(self.world.now, token.label)
        self.refresh()
        return token

    def _check_nodes(self, *names: str) -> None:
        for name in names:
            if name not in self.world.nodes:
                known = ", ".join(self.world.nodes)
                raise ValueError(f"there is no node called {name!r}; there are {known}")

    # What rules and hosts mean for packets

    def packets_vanish(self, src: "SimNode", dst: "SimNode") -> bool:
        """Whether a packet between two hosts is dropped by a rule, and counts it."""
        plane = plane_of(src.kind, dst.kind)
        hit = False
        for token in self.tokens:
            if token.kind == STALL and token.applies(src.name, dst.name, plane):
                token.dropped_or_stalled += 1
                hit = True
        return hit

    def is_rejected(self, src: "SimNode", dst: "SimNode") -> bool:
        """Whether a firewall answers packets between two hosts with resets, and counts it."""
        plane = plane_of(src.kind, dst.kind)
        for token in self.tokens:
            if token.kind == REJECT and token.applies(src.name, dst.name, plane):
                token.dropped_or_stalled += 1
                return True
        return False

    def refresh(self) -> None:
        """Tells links and pipes that rules changed, or that a host went off or came back."""
        for (src, dst), link in self._links.items():
            plane = plane_of(self.world.nodes[src].kind, self.world.nodes[dst].kind)
            touching = [token for token in self.tokens if token.applies(src, dst, plane)]
            link.degraders = tuple(token for token in touching if token.kind == DEGRADE)
            link.interceptors = tuple(token for token in touching if token.kind in (HOLD, DROP))
            link.throttlers = tuple(token for token in touching if token.kind == THROTTLE)
        for connection in list(self.connections.values()):
            self._refresh(connection)

    def _refresh(self, connection: SimConnection) -> None:
        client, server = connection.loop.node, connection.server.loop.node
        host_off = not (client.host_is_up and server.host_is_up)
        up_blocked = host_off or self._is_stalled(connection.up)
        down_blocked = host_off or self._is_stalled(connection.down)
        connection.up.refresh(path_blocked=host_off, reverse_blocked=down_blocked)
        connection.down.refresh(path_blocked=host_off, reverse_blocked=up_blocked)

    def _is_stalled(self, pipe: Pipe) -> bool:
        return any(
            token.kind == STALL and token.applies(pipe.link.src, pipe.link.dst, pipe.plane)
            for token in self.tokens
        )

    def answer_with_reset(
        self, pipe: Pipe, frame: Flight, reverse: Pipe, sender: SimConnection | ServerEnd
    ) -> None:
        """The kernel answers a segment for a socket that does not exist."""
        if sender.gone:
            pipe.clear()
        elif reverse.is_blocked:
            pipe.retry_later(frame)
        else:
            pipe.clear()
            self._send_reset(reverse, sender)

    def _send_reset(self, pipe: Pipe, to: SimConnection | ServerEnd) -> None:
        world = self.world

        def arrive(_: Any) -> None:
            if not pipe.is_blocked:
                world.trace.note(world.now, f"net {pipe.link.src}>{pipe.link.dst} RST")
                to.broken(ConnectionResetError("the other side reset the connection"))

        world.push(world.now + pipe.link.latency_ns(), arrive, None)

    # Connections

    def link(self, src: "SimNode", dst: "SimNode") -> Link:
        """Returns the wire from one host to another."""
        key = (src.name, dst.name)
        link = self._links.get(key)
        if link is None:
            weather = self.world.weather
            base_ns = weather.latency_base_ns
            if {"client", "harness"} & {src.kind, dst.kind}:
                base_ns = weather.client_latency_base_ns
            if src is dst:
                base_ns = LOOPBACK_LATENCY_NS
            stream = self.world.random.stream("net", *key)
            link = self._links[key] = Link(*key, base_ns, weather.latency_tail_ns, stream.random)
            self.refresh()
        return link

    def open_connection(
        self, client_loop: "NodeLoop", server_loop: "NodeLoop", listener: Listener
    ) -> SimConnection:
        """Makes an established connection."""
        client, server = client_loop.node, server_loop.node
        self._connection_count += 1
        connection = SimConnection(
            self,
            self._connection_count,
            client_loop,
            server_loop,
            listener.handler,
            (self.link(client, server), self.link(server, client)),
            plane_of(client.kind, server.kind),
        )
        self.connections[self._connection_count] = connection
        self._refresh(connection)
        return connection

    def forget(self, connection: SimConnection) -> None:
        """Drops a connection of which no end is left."""
        self.connections.pop(connection.connection_id, None)

    def listener_of(self, node: "SimNode") -> Listener | None:
        """Returns the listener of a node's running process, if it has one."""
        return self._listeners.get(node.name)

    def add_listener(self, node: "SimNode", listener: Listener) -> None:
        """Starts to accept connections at a node."""
        self._listeners[node.name] = listener

    def process_died(self, loop: "NodeLoop", *, host_is_off: bool) -> None:
        """Closes what a process had open, as its kernel does; a host without power only falls silent."""
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

    # The wire

    def through_the_codec(self, message: Any) -> Any:
        """Encodes and decodes a message, and returns what the other side would have decoded.

        Things that are not Kafka messages (tests send some) pass as they are.
        """
        self.until_wire_check = self._next_wire_check()
        kind = type(message)
        if not kind.__module__.startswith("kio."):
            return message
        self.wire_checks += 1
        try:
            decoded = decode(kind, encode(message))
        except Exception as error:  # whatever a codec raises, the message could not have been sent
            mismatch = CodecMismatch(f"{kind.__name__} has no wire form: {error!r}")
            mismatch.__cause__ = error
            self.world.fail(mismatch)
            return message
        if decoded != message:
            self.world.fail(
                CodecMismatch(f"{kind.__name__} changed on the wire: {message} {decoded}")
            )
        return decoded

    def _next_wire_check(self) -> int:
        if self._sim_wire or self._wire_sample >= 1.0:
            return 0
        if self._wire_sample <= 0.0:
            return _NEVER
        return int(self._wire_random(self._wire_sample))


def _planes(planes: Iterable[str] | None) -> frozenset[str]:
    if planes is None:
        return PLANES
    chosen = frozenset(planes)
    if unknown := sorted(chosen - PLANES):
        raise ValueError(
            f"no plane is called {unknown[0]!r}; there are {', '.join(sorted(PLANES))}"
        )
    return chosen


def _choose(word: str, **choices: Any) -> Any:
    if word not in choices:
        raise ValueError(f"{word!r} is none of {', '.join(choices)}")
    return choices[word]


__all__ = ["FIN", "Listener", "SimNetwork", "Token"]
