"""What can be wrong with the network: rules, each healed by its own token.

A rule speaks about ordered pairs of hosts and about planes. Overlapping rules are independent: healing one
leaves the others in force.
"""

from collections.abc import Callable

INTER_BROKER = "inter-broker"
CONTROLLER = "controller"
CLIENT = "client"
PLANES = frozenset({INTER_BROKER, CONTROLLER, CLIENT})

STALL = "stall"  # packets vanish; TCP keeps trying
REJECT = "reject"  # packets are answered with a reset
DEGRADE = "degrade"  # packets are late or lost now and then
THROTTLE = "throttle"  # packets wait for their turn on a slow wire
HOLD = "hold"  # one kind of message waits
DROP = "drop"  # one kind of message vanishes, and its connection with it

SECOND_NS = 1_000_000_000
BURST_BYTES = 1_600
BURSTS_PER_S = 100
"""A shaper lets a full packet pass at once, or what its rate is good for in 10 ms, whichever is more."""


def plane_of(kind_a: str, kind_b: str) -> str:
    """Returns the plane of a connection between nodes of two kinds.

    Anything with a controller at one end is the controller plane, then broker to broker is inter-broker, and
    all the rest, the harness included, is the client plane.
    """
    if CONTROLLER in (kind_a, kind_b):
        return CONTROLLER
    if kind_a == kind_b == "broker":
        return INTER_BROKER
    return CLIENT


class Token:
    """A rule in force, and the evidence that it bit.

    Attributes:
        kind: "stall", "reject", "degrade", "throttle", "hold" or "drop".
        label: For traces and reports.
        active: False once healed.
        dropped_or_stalled: Frames and connection attempts that this rule stopped, delayed or refused.
        at_sender: The packets are dropped where they are sent; then the next write sends what waits.
        delay_ns: Degrade: added to every frame.
        jitter_ns: Degrade: the delay of a frame is drawn from `delay_ns` plus or minus this, uniformly.
        loss: Degrade: probability that a packet is lost (and sent again).
        bytes_per_s: Throttle: what the wire carries.
        free_at_ns: Throttle: when it is done with all that was sent so far.
        message_type: Hold, drop: class name of the message.
        remaining: Drop: how many more messages vanish; None for all.
    """

    __slots__ = (
        "_applies",
        "active",
        "at_sender",
        "bytes_per_s",
        "delay_ns",
        "dropped_or_stalled",
        "free_at_ns",
        "jitter_ns",
        "kind",
        "label",
        "loss",
        "message_type",
        "remaining",
    )

    def __init__(
        self,
        kind: str,
        label: str,
        applies: Callable[[str, str, str], bool],
        *,
        at_sender: bool = False,
        delay_ns: int = 0,
        jitter_ns: int = 0,
        loss: float = 0.0,
        bytes_per_s: int = 0,
        message_type: str = "",
        remaining: int | None = None,
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
        self.message_type = message_type
        self.remaining = remaining
        self._applies = applies

    def __repr__(self) -> str:
        return f"<Token {self.label}{'' if self.active else ' (healed)'}>"

    def late_ns(self, random: Callable[[], float]) -> int:
        """Draws by how much a degraded wire delays one packet that is not lost."""
        if not self.jitter_ns:
            return self.delay_ns
        return self.delay_ns + int((2 * random() - 1) * self.jitter_ns)

    def wait_ns(self, now_ns: int, size_bytes: int) -> int:
        """Takes the time that a throttled wire needs for a packet, and returns how long the packet waits for it.

        A wire that was idle carries `BURST_BYTES` at once, as a token bucket does.
        """
        rate = self.bytes_per_s
        burst_ns = max(BURST_BYTES, rate // BURSTS_PER_S) * SECOND_NS // rate
        self.free_at_ns = max(self.free_at_ns, now_ns - burst_ns) + size_bytes * SECOND_NS // rate
        return max(0, self.free_at_ns - now_ns)

    def applies(self, src: str, dst: str, plane: str) -> bool:
        """Whether the rule speaks about packets from `src` to `dst` on a plane."""
        return self._applies(src, dst, plane)


def between(
    forward: Callable[[str, str], bool], planes: frozenset[str]
) -> Callable[[str, str, str], bool]:
    """Returns the predicate of a rule: the pairs that `forward` names, on some planes, never one host alone."""

    def applies(src: str, dst: str, plane: str) -> bool:
        return src != dst and plane in planes and forward(src, dst)

    return applies
