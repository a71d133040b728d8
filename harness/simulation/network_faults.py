"""Network faults: what can be wrong with the packets between two hosts.

A fault applies to ordered pairs of hosts. Overlapping faults are independent: healing one leaves the
others in force.
"""

from collections.abc import Callable
from typing import Any

STALL = "stall"  # packets are dropped; TCP sends them again
REJECT = "reject"  # the response to a packet is a reset
DEGRADE = "degrade"  # packets are late, or some are lost
THROTTLE = "throttle"  # packets are queued before a slow wire
HOLD = "hold"  # messages of one type wait
DROP = "drop"  # messages of one type are lost, and their connections with them
LATE = "late"  # messages of one type wait for a time
DUPLICATE = "duplicate"  # requests of one type are processed twice
REORDER = "reorder"  # messages of one type wait until one of another connection has overtaken them
REFUSE = "refuse"  # requests of one type get an error and are not processed

INTERCEPTORS = (HOLD, DROP, LATE, DUPLICATE, REORDER, REFUSE)
"""The kinds that are about single messages."""

Concerns = Callable[[str, str, str], bool]
"""Whether a rule is about a message: sending node, receiving node, class name of the message."""

SECOND_NS = 1_000_000_000
BURST_BYTES = 1_600
BURSTS_PER_S = 100
"""A shaper passes a full packet at once, or the bytes of 10 ms at its rate, whichever is more."""


class NetworkFault:
    """One fault, and the evidence that it took effect.

    Attributes:
        kind: One of the constants above.
        label: For traces and reports.
        active: False once healed.
        dropped_or_stalled: Number of frames and connection attempts that it stopped, delayed or refused.
        at_sender: Stall: the packets are dropped at the sender. The first write after healing sends all of them.
        delay_ns: Degrade: delay of every frame. Late, duplicate: delay of a message, of its copy. Reorder: how
            long a message waits at most.
        jitter_ns: Degrade: the delay of a frame is drawn uniformly from `delay_ns` plus or minus this.
        loss: Degrade: probability that a packet is lost (and sent again).
        bytes_per_s: Throttle: the rate of the wire.
        free_at_ns: Throttle: when the wire has carried everything that was sent so far.
        concerns: Interceptors: which messages they are about.
        remaining: Interceptors: how many more messages they affect; None for all.
        waiting: Hold, late, reorder: the messages that this rule has made wait, each with its pipe; None instead
            of the pipe once another message has overtaken it. Duplicate: the copies that have not arrived yet.
        act: Duplicate: delivers a copy, given this fault and the copy. Refuse: returns the response to a
            request; None if there is none.
    """

    __slots__ = (
        "_applies",
        "act",
        "active",
        "at_sender",
        "bytes_per_s",
        "concerns",
        "delay_ns",
        "dropped_or_stalled",
        "free_at_ns",
        "jitter_ns",
        "kind",
        "label",
        "loss",
        "remaining",
        "waiting",
    )

    def __init__(
        self,
        kind: str,
        label: str,
        applies: Callable[[str, str], bool],
        *,
        at_sender: bool = False,
        delay_ns: int = 0,
        jitter_ns: int = 0,
        loss: float = 0.0,
        bytes_per_s: int = 0,
        concerns: Concerns | None = None,
        remaining: int | None = None,
        act: Callable[..., Any] | None = None,
    ) -> None:
        self.kind = kind
        self.label = label
        self.active = True
        self.dropped_or_stalled = 0
        self.at_sender = at_sender
        self.delay_ns = delay_ns
        self.jitter_ns = jitter_ns
        self.loss = loss
        self.bytes_per_s = bytes_per_s
        self.free_at_ns = 0
        self.concerns = concerns
        self.remaining = remaining
        self.act = act
        self.waiting: dict[Any, Any] = {}
        self._applies = applies

    def __repr__(self) -> str:
        return f"<NetworkFault {self.label}{'' if self.active else ' (healed)'}>"

    def late_ns(self, random: Callable[[], float]) -> int:
        """Draws the delay that a degraded wire adds to one packet that is not lost."""
        if not self.jitter_ns:
            return self.delay_ns
        return self.delay_ns + int((2 * random() - 1) * self.jitter_ns)

    def wait_ns(self, now_ns: int, size_bytes: int) -> int:
        """Reserves a throttled wire for one packet, and returns how long the packet is delayed.

        An idle wire passes the first bytes without delay (`BURST_BYTES`), as a token bucket does.
        """
        rate = self.bytes_per_s
        burst_ns = max(BURST_BYTES, rate // BURSTS_PER_S) * SECOND_NS // rate
        self.free_at_ns = max(self.free_at_ns, now_ns - burst_ns) + size_bytes * SECOND_NS // rate
        return max(0, self.free_at_ns - now_ns)

    def applies(self, src: str, dst: str) -> bool:
        """Whether the fault applies to packets from `src` to `dst`. A host always reaches itself."""
        return src != dst and self._applies(src, dst)
