"""One direction of one TCP connection.

Frames leave in order and arrive in order: `deliver_at = max(previous deliver_at, now + latency)`. Reordering
exists between connections only. While packets are dropped, nothing is lost: the frames wait in the sender's
buffer, and TCP tries again after rto, 2 rto, 4 rto ... since the first one that was not acknowledged. So when
the network heals, the pipe resumes at the next of these moments and not at once, which for a long cut is much
later (measured: 23.5 s late after a cut of 30 s). A drop at the sender is no exception (2.65 s late after 4 s),
but its kernel has nothing in flight, so the next write after healing goes out at once, and what waits with it.

Simplification: the sender's buffer is unbounded, since `request` never blocks. Its bound of 512 KiB counts in
one place only, where a program can see it: data that arrives while its acknowledgements do not.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from harness.simulation.flight import FIN, Flight, estimated_bytes
from harness.simulation.loop import NodeLoop
from harness.simulation.rules import HOLD, Token
from harness.simulation.timeline import Timeline

RTO_NS = 210_000_000
"""First retransmission timeout; measured 208 to 209 ms on Linux 6.18."""

RTO_STEP_NS_MAX = 120_000_000_000
"""Linux' TCP_RTO_MAX: retransmissions are never further apart."""

GIVE_UP_NS = 924_600_000_000
"""Linux gives a connection up after 15 retransmissions, some 15 minutes."""

SEND_BUFFER_BYTES = 512 * 1024
"""A stopped peer took 590 kB in the calibration; the kernel's default is of that order."""

LOSS_STEP_NS = 200_000_000
"""A lost packet is sent again after 0.2 s, lost again after twice that, and so on."""

LOSS_REPEATS_MAX = 8

HANDSHAKE_BYTES = 64


def next_retransmission_ns(since_ns: int, at_least_ns: int) -> int:
    """Returns the first retransmission at or after a moment, for data that waits since another."""
    attempt_ns = since_ns + RTO_NS
    step_ns = RTO_NS
    while attempt_ns < at_least_ns:
        attempt_ns += min(step_ns, RTO_STEP_NS_MAX)
        step_ns *= 2
    return attempt_ns


class Link:
    """The wire between two hosts, in one direction, shared by all connections between them.

    Attributes:
        degraders: Rules that make frames late.
        interceptors: Rules that hold or drop messages by type.
        throttlers: Rules that let frames wait for their turn.
        on_exhausted: Called with a rule that dropped its last message.
    """

    __slots__ = (
        "base_ns",
        "degraders",
        "dst",
        "interceptors",
        "on_exhausted",
        "random",
        "src",
        "tail_ns",
        "throttlers",
    )

    def __init__(
        self,
        src: str,
        dst: str,
        base_ns: int,
        tail_ns: int,
        random: Callable[[], float],
        on_exhausted: Callable[[Token], None],
    ) -> None:
        self.src = src
        self.dst = dst
        self.base_ns = base_ns
        self.tail_ns = tail_ns
        self.random = random
        self.on_exhausted = on_exhausted
        self.degraders: tuple[Token, ...] = ()
        self.interceptors: tuple[Token, ...] = ()
        self.throttlers: tuple[Token, ...] = ()

    def latency_ns(self) -> int:
        """Draws the latency of one packet."""
        if not self.tail_ns:
            return self.base_ns
        return self.base_ns + int(self.tail_ns * self.random() ** 4)

    def handshake_ns(self, now_ns: int) -> int | None:
        """Draws the latency of a packet that opens a connection; None if it is lost, and nobody knows.

        What is lost of a connection that exists, TCP sends again by itself (`Pipe`).
        """
        late_ns = self.latency_ns()
        for token in self.degraders:
            if token.loss and self.random() < token.loss:
                token.dropped_or_stalled += 1
                return None
            wait_ns = token.late_ns(self.random)
            if wait_ns:
                token.dropped_or_stalled += 1
            late_ns += wait_ns
        for token in self.throttlers:
            late_ns += token.wait_ns(now_ns, HANDSHAKE_BYTES)
        return late_ns


class Pipe:
    """One direction of one connection.

    Attributes:
        link: The wire under it.
        plane: Its plane, for rules.
        sender: The loop of the process that writes into it.
        receive: Takes a frame that arrived.
        give_up: Breaks the connection after 15 minutes of retransmissions.
        blockers: Rules that stop its packets now.
        is_slow: Whether sending needs `_push_slowly`: something about this pipe is not normal.
    """

    __slots__ = (
        "_arrive",
        "_codes",
        "_frames",
        "_generation",
        "_is_unsent",
        "_last_at_ns",
        "_path_blocked",
        "_stalled_at_ns",
        "_unacknowledged_bytes",
        "_unacknowledged_since_ns",
        "ack_blocked",
        "blockers",
        "choked",
        "give_up",
        "held_by",
        "is_reply",
        "is_slow",
        "link",
        "plane",
        "receive",
        "resuming",
        "sender",
        "timeline",
    )

    def __init__(
        self, timeline: Timeline, link: Link, plane: str, sender: NodeLoop, *, is_reply: bool
    ) -> None:
        self.timeline = timeline
        self.link = link
        self.plane = plane
        self.sender = sender
        self.is_reply = is_reply
        self.receive: Callable[[Flight], None] = _nobody
        self.give_up: Callable[[], None] = _nothing
        self.blockers: tuple[Token, ...] = ()
        self.is_slow = False
        self.ack_blocked = False
        self.choked = False
        self.resuming = False
        self.held_by: Token | None = None
        self._path_blocked = False
        self._is_unsent = False  # what waits was never on the wire
        self._frames: deque[Flight] = deque()
        # Arrivals on the heap carry the generation of their sending. A new generation voids them: their
        # frames are still here and will be sent again.
        self._generation = 0
        self._last_at_ns = 0
        self._stalled_at_ns: int | None = None
        self._unacknowledged_bytes = 0
        self._unacknowledged_since_ns = 0
        self._codes: dict[Any, int] = {}
        self._arrive = self._on_arrival

    # The fast path

    def push(self, frame: Flight) -> None:
        """Sends a frame."""
        timeline = self.timeline
        now = timeline.now
        if self.sender.busy_until_ns > now or self.sender.frozen:
            self.sender.outbox.append((self, frame))
            return
        self._frames.append(frame)
        if self.is_slow:
            self._push_slowly(frame)
            return
        link = self.link
        at = now + link.base_ns
        if link.tail_ns:
            at += int(link.tail_ns * link.random() ** 4)
        if at < self._last_at_ns:
            at = self._last_at_ns
        self._last_at_ns = at
        timeline.push(at, self._arrive, self._generation)

    def _on_arrival(self, generation: int) -> None:
        if generation != self._generation:
            return
        frame = self._frames.popleft()
        if self.link.interceptors and self._intercepted(frame):
            return
        self.trace(frame)
        self.receive(frame)

    def trace(self, frame: Flight) -> None:
        """Records an arrival and counts the message."""
        message = frame.response if self.is_reply else frame.message
        kind = type(message)
        code = self._codes.get(kind)
        timeline = self.timeline
        if code is None:
            name = "FIN" if frame is FIN else kind.__name__
            code = self._codes[kind] = timeline.trace.intern(
                f"net {self.link.src}>{self.link.dst} {name}"
            )
        timeline.messages += 1
        timeline.trace.record(timeline.now, code, 0)

    # Everything else

    def _push_slowly(self, frame: Flight) -> None:
        """Sends a frame that is already in `_frames`, while something is not normal."""
        now = self.timeline.now
        if self.blockers or self._path_blocked:
            self._count_blocked(1)
            if self._stalled_at_ns is None:
                self._stall_since(now)
            return
        if self.resuming or self.held_by is not None:
            if self._is_unsent and self.held_by is None:
                self._on_resume(self._generation)
            return
        if self.ack_blocked:
            if not self._unacknowledged_bytes:
                self._unacknowledged_since_ns = now
            message = frame.response if self.is_reply else frame.message
            self._unacknowledged_bytes += estimated_bytes(message)
            if self.choked or self._unacknowledged_bytes > SEND_BUFFER_BYTES:
                self.choked = True
                if self._stalled_at_ns is None:
                    self._stall_since(self._unacknowledged_since_ns)
                return
        self._schedule_arrival(frame)

    def _schedule_arrival(self, frame: Flight) -> None:
        timeline = self.timeline
        at = timeline.now + self.link.latency_ns() + self._degradation_ns()
        if self.link.throttlers:
            at += self._throttled_ns(frame)
        self._last_at_ns = at = max(at, self._last_at_ns)
        timeline.push(at, self._arrive, self._generation)

    def _degradation_ns(self) -> int:
        total = 0
        for token in self.link.degraders:
            if not token.applies(self.link.src, self.link.dst, self.plane):
                continue
            late = token.late_ns(self.link.random)
            step = LOSS_STEP_NS
            for _ in range(LOSS_REPEATS_MAX):
                if not token.loss or self.link.random() >= token.loss:
                    break
                late += step
                step *= 2
            if late:
                token.dropped_or_stalled += 1
            total += late
        return total

    def _throttled_ns(self, frame: Flight) -> int:
        message = frame.response if self.is_reply else frame.message
        size_bytes = estimated_bytes(message)
        longest_ns = 0
        for token in self.link.throttlers:
            wait_ns = token.wait_ns(self.timeline.now, size_bytes)
            if wait_ns:
                token.dropped_or_stalled += 1
            longest_ns = max(longest_ns, wait_ns)
        return longest_ns

    def hurry(self) -> None:
        """Sends what a rule kept back, now that the rule is gone: its queue is emptied onto the wire.

        A frame that was on the wire already is a little later for it than it would have been.
        """
        is_waiting = self.resuming or self.choked or self.held_by is not None
        if self._frames and not self.is_blocked and not is_waiting:
            self._last_at_ns = self.timeline.now
            self._send_all()

    def _intercepted(self, frame: Flight) -> bool:
        """Whether a hold or drop rule took the frame, which was the head of the pipe."""
        message = frame.response if self.is_reply else frame.message
        name = type(message).__name__
        for token in self.link.interceptors:
            if token.message_type != name or frame is FIN:
                continue
            token.dropped_or_stalled += 1
            if token.kind == HOLD:
                # Later frames of a TCP stream cannot overtake: the whole pipe waits.
                self._frames.appendleft(frame)
                self._generation += 1
                self.held_by = token
                self.is_slow = True
                return True
            if token.remaining is not None:
                token.remaining -= 1
                if not token.remaining:
                    self.link.on_exhausted(token)
            self.give_up()
            return True
        return False

    def refresh(
        self, *, blockers: tuple[Token, ...], path_blocked: bool, reverse_blocked: bool
    ) -> None:
        """Takes notice of new rules or of a host that went off or came back.

        Args:
            blockers: Rules that stop the packets of this pipe.
            path_blocked: Packets vanish for a reason that is not a rule: a host is off.
            reverse_blocked: Whether acknowledgements cannot come back.
        """
        was_blocked = bool(self.blockers) or self._path_blocked
        self.blockers = blockers
        self._path_blocked = path_blocked
        self.ack_blocked = reverse_blocked
        if self.held_by is not None and not self.held_by.active:
            self.held_by = None
            if not (self.blockers or path_blocked):
                self._send_all()
        if self.blockers or path_blocked:
            unsent = any(token.at_sender for token in self.blockers)
            self._is_unsent = unsent and (self._is_unsent or not was_blocked or not self._frames)
            if not was_blocked:
                self._block()
        elif was_blocked:
            self._resume_later()
        if not reverse_blocked:
            self._unacknowledged_bytes = 0
            if self.choked:
                self.choked = False
                if not self.is_blocked:
                    self._is_unsent = False
                    self._resume_later()
        self._set_slow()

    def _set_slow(self) -> None:
        self.is_slow = bool(
            self.blockers
            or self._path_blocked
            or self.ack_blocked
            or self.choked
            or self.resuming
            or self.held_by is not None
            or self.link.degraders
            or self.link.throttlers
        )

    def _block(self) -> None:
        # Frames in flight at the moment of a cut did not arrive; they will be sent again.
        self._generation += 1
        self.resuming = False
        if self._frames:
            self._count_blocked(len(self._frames))
            if self._stalled_at_ns is None:
                self._stall_since(self.timeline.now)

    def _count_blocked(self, frame_count: int) -> None:
        for token in self.blockers:
            token.dropped_or_stalled += frame_count

    def _stall_since(self, since_ns: int) -> None:
        self._stalled_at_ns = since_ns
        self.timeline.push(since_ns + GIVE_UP_NS, self._on_give_up, since_ns)

    def _on_give_up(self, since_ns: int) -> None:
        if self._stalled_at_ns == since_ns:
            self.timeline.trace.note(
                self.timeline.now, f"net give up {self.link.src}>{self.link.dst}"
            )
            self.give_up()

    def _resume_later(self) -> None:
        timeline = self.timeline
        if not self._frames or self._stalled_at_ns is None:
            self._stalled_at_ns = None
            return
        self.resuming = True
        at = next_retransmission_ns(self._stalled_at_ns, timeline.now)
        timeline.push(at, self._on_resume, self._generation)

    def _on_resume(self, generation: int) -> None:
        if generation != self._generation or not self.resuming:
            return
        self.resuming = False
        self._stalled_at_ns = None
        if self.held_by is None:
            self._send_all()
        self._set_slow()

    def _send_all(self) -> None:
        self._generation += 1
        for frame in self._frames:
            self._schedule_arrival(frame)

    def retry_later(self, frame: Flight) -> None:
        """Takes back a frame that arrived where nobody could answer it, to send it again later."""
        self._frames.appendleft(frame)
        self._generation += 1
        now = self.timeline.now
        if self._stalled_at_ns is None:
            self._stall_since(now)
        assert self._stalled_at_ns is not None
        self.resuming = True
        self.is_slow = True
        self._is_unsent = False
        at = next_retransmission_ns(self._stalled_at_ns, now + 1)
        self.timeline.push(at, self._on_resume, self._generation)

    def clear(self) -> None:
        """Forgets all frames that have not arrived: the sender's memory is gone, or nobody wants them."""
        self._frames.clear()
        self._generation += 1
        self._stalled_at_ns = None
        self.resuming = False

    def lose_unsent(self) -> None:
        """Forgets frames that wait in the sender's buffer; those on the wire still arrive."""
        is_waiting = self.resuming or self.choked or self.held_by or self.link.throttlers
        if self.blockers or self._path_blocked or is_waiting:
            self.clear()
            self.choked = False

    @property
    def is_blocked(self) -> bool:
        """Whether packets of this pipe vanish now."""
        return bool(self.blockers) or self._path_blocked


def _nobody(frame: Flight) -> None:
    raise AssertionError("a frame arrived before the connection was complete")


def _nothing() -> None:
    return
