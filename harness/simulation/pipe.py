"""One direction of one TCP connection.

Frames leave in order and arrive in order: `deliver_at = max(previous deliver_at, now + latency)`. Only frames of
different connections can overtake each other. While packets are dropped, no frame is lost: the frames wait in the
sender's buffer, and TCP sends them again after rto, 2 rto, 4 rto ... since the first one that was not
acknowledged. So when the network heals, the pipe resumes at the next of these times and not at once. After a long
cut, that is much later (measured: 23.5 s after the end of a cut of 30 s). The same holds for a drop at the sender
(2.65 s after a drop of 4 s). But there, the kernel has nothing in flight, so the next write after healing is sent
at once, with all waiting frames.

Simplification: the sender's buffer is unbounded, since `request` never blocks. Its limit of 512 KiB is applied in
only one case, where a program can observe it: data arrives but its acknowledgements do not.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from harness.simulation.contents import contents_code
from harness.simulation.flight import FIN, Flight, estimated_bytes
from harness.simulation.loop import NodeLoop
from harness.simulation.message_rules import intercept
from harness.simulation.network_faults import NetworkFault
from harness.simulation.timeline import Timeline

RTO_NS = 210_000_000
"""First retransmission timeout; measured 208 to 209 ms on Linux 6.18."""

RTO_STEP_NS_MAX = 120_000_000_000
"""Linux' TCP_RTO_MAX: retransmissions are never further apart."""

GIVE_UP_NS = 924_600_000_000
"""Linux gives a connection up after 15 retransmissions, which takes about 15 minutes."""

SEND_BUFFER_BYTES = 512 * 1024
"""A stopped peer accepted 590 kB in the calibration; the kernel's default is of that order."""

LOSS_STEP_NS = 200_000_000
"""A lost packet is sent again after 0.2 s; if it is lost again, after twice that time, and so on."""

LOSS_REPEATS_MAX = 8

HANDSHAKE_BYTES = 64


def next_retransmission_ns(since_ns: int, at_least_ns: int) -> int:
    """Returns the first retransmission time of data sent at `since_ns` that is not before `at_least_ns`."""
    attempt_ns = since_ns + RTO_NS
    step_ns = RTO_NS
    while attempt_ns < at_least_ns:
        attempt_ns += min(step_ns, RTO_STEP_NS_MAX)
        step_ns *= 2
    return attempt_ns


class Link:
    """The wire between two hosts, in one direction, shared by all connections between them.

    Attributes:
        degraders: Faults that delay frames.
        interceptors: Faults that hold or drop messages by type.
        throttlers: Faults that queue frames before a slow wire.
        on_exhausted: Called with a fault that dropped its last message.
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
        on_exhausted: Callable[[NetworkFault], None],
    ) -> None:
        self.src = src
        self.dst = dst
        self.base_ns = base_ns
        self.tail_ns = tail_ns
        self.random = random
        self.on_exhausted = on_exhausted
        self.degraders: tuple[NetworkFault, ...] = ()
        self.interceptors: tuple[NetworkFault, ...] = ()
        self.throttlers: tuple[NetworkFault, ...] = ()

    def latency_ns(self) -> int:
        """Draws the latency of one packet."""
        if not self.tail_ns:
            return self.base_ns
        return self.base_ns + int(self.tail_ns * self.random() ** 4)

    def handshake_ns(self, now_ns: int) -> int | None:
        """Draws the latency of a packet that opens a connection; None if the packet is lost.

        Lost packets of an established connection are sent again by `Pipe`.
        """
        late_ns = self.latency_ns()
        for fault in self.degraders:
            if fault.loss and self.random() < fault.loss:
                fault.dropped_or_stalled += 1
                return None
            wait_ns = fault.late_ns(self.random)
            if wait_ns:
                fault.dropped_or_stalled += 1
            late_ns += wait_ns
        for fault in self.throttlers:
            late_ns += fault.wait_ns(now_ns, HANDSHAKE_BYTES)
        return late_ns


class Pipe:
    """One direction of one connection.

    Attributes:
        link: The wire under it.
        sender: The loop of the process that writes into it.
        receive: Called with every frame that arrives.
        give_up: Called to break the connection after 15 minutes of retransmissions.
        blockers: Faults that drop its packets at present.
        is_slow: Whether sending needs `_push_slowly`, because a fault or its aftermath affects this pipe.
    """

    __slots__ = (
        "_arrive",
        "_codes",
        "_frames",
        "_generation",
        "_hold_number",
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
        "receive",
        "resuming",
        "sender",
        "timeline",
    )

    def __init__(self, timeline: Timeline, link: Link, sender: NodeLoop, *, is_reply: bool) -> None:
        self.timeline = timeline
        self.link = link
        self.sender = sender
        self.is_reply = is_reply
        self.receive: Callable[[Flight], None] = _not_connected
        self.give_up: Callable[[], None] = _nothing
        self.blockers: tuple[NetworkFault, ...] = ()
        self.is_slow = False
        self.ack_blocked = False
        self.choked = False
        self.resuming = False
        self.held_by: NetworkFault | None = None
        self._path_blocked = False
        self._is_unsent = False  # the waiting frames were never on the wire
        self._frames: deque[Flight] = deque()
        # Arrivals on the heap carry the generation in which they were sent. A new generation invalidates them:
        # their frames are still here and will be sent again.
        self._generation = 0
        self._hold_number = 0
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
        timeline.last_arrived[self.link.dst] = kind
        timeline.trace.record(timeline.now, code, contents_code(message))

    # The slow path

    def _push_slowly(self, frame: Flight) -> None:
        """Sends a frame that is already in `_frames`, while `is_slow`."""
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
        for fault in self.link.degraders:
            late = fault.late_ns(self.link.random)
            step = LOSS_STEP_NS
            for _ in range(LOSS_REPEATS_MAX):
                if not fault.loss or self.link.random() >= fault.loss:
                    break
                late += step
                step *= 2
            if late:
                fault.dropped_or_stalled += 1
            total += late
        return total

    def _throttled_ns(self, frame: Flight) -> int:
        message = frame.response if self.is_reply else frame.message
        size_bytes = estimated_bytes(message)
        longest_ns = 0
        for fault in self.link.throttlers:
            wait_ns = fault.wait_ns(self.timeline.now, size_bytes)
            if wait_ns:
                fault.dropped_or_stalled += 1
            longest_ns = max(longest_ns, wait_ns)
        return longest_ns

    def send_now(self) -> None:
        """Sends the frames that a fault delayed, now that it is healed.

        A frame that was already on the wire arrives slightly later than it would have.
        """
        is_waiting = self.resuming or self.choked or self.held_by is not None
        if self._frames and not self.is_blocked and not is_waiting:
            self._last_at_ns = self.timeline.now
            self._send_all()

    def _intercepted(self, frame: Flight) -> bool:
        """Applies the rules about messages to the first frame; returns whether one of them removed it."""
        if frame is FIN:
            return False
        message = frame.response if self.is_reply else frame.message
        name = type(message).__name__
        rules = self.link.interceptors
        return any(intercept(rule, self, frame, message, name) for rule in rules)

    def hold_back(self, frame: Flight, fault: NetworkFault, for_ns: int | None = None) -> None:
        """Returns a frame to the pipe. Frames of a TCP stream stay in order, so the whole pipe waits.

        Args:
            frame: The frame that has just arrived.
            fault: The pipe waits until this fault is healed.
            for_ns: The pipe waits this long at most; None for no limit.
        """
        self._frames.appendleft(frame)
        self._generation += 1
        self.held_by = fault
        self.is_slow = True
        self._hold_number += 1
        if for_ns is not None:
            self.timeline.push(self.timeline.now + for_ns, self._on_hold_over, self._hold_number)

    def _on_hold_over(self, number: int) -> None:
        if number == self._hold_number and self.held_by is not None:
            self.release()

    def release(self) -> None:
        """Sends the frames that a fault held back, unless another fault prevents it."""
        self.held_by = None
        if not self.is_blocked and not self.resuming:
            self._send_all()
        self._set_slow()

    def refresh(
        self, *, blockers: tuple[NetworkFault, ...], path_blocked: bool, reverse_blocked: bool
    ) -> None:
        """Adapts to new faults, or to a host that lost power or booted.

        Args:
            blockers: Faults that drop the packets of this pipe.
            path_blocked: Whether packets are dropped because a host has no power.
            reverse_blocked: Whether acknowledgements are dropped.
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
            unsent = any(fault.at_sender for fault in self.blockers)
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
        # Frames in flight when the cut began did not arrive; they will be sent again.
        self._generation += 1
        self.resuming = False
        if self._frames:
            self._count_blocked(len(self._frames))
            if self._stalled_at_ns is None:
                self._stall_since(self.timeline.now)

    def _count_blocked(self, frame_count: int) -> None:
        for fault in self.blockers:
            fault.dropped_or_stalled += frame_count

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
        """Returns a frame to the pipe because the receiver could not respond, to send it again later."""
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
        """Discards all frames that have not arrived: the sender no longer has them, or the receiver is gone."""
        self._frames.clear()
        self._generation += 1
        self._stalled_at_ns = None
        self.resuming = False

    def lose_unsent(self) -> None:
        """Discards the frames in the sender's buffer; those on the wire still arrive."""
        is_waiting = self.resuming or self.choked or self.held_by or self.link.throttlers
        if self.blockers or self._path_blocked or is_waiting:
            self.clear()
            self.choked = False

    @property
    def is_blocked(self) -> bool:
        """Whether packets of this pipe are dropped at present."""
        return bool(self.blockers) or self._path_blocked


def _not_connected(frame: Flight) -> None:
    raise AssertionError("a frame arrived before the connection was complete")


def _nothing() -> None:
    return
