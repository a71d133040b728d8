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
HOLD = "hold"  # one kind of message waits
DROP = "drop"  # one kind of message vanishes, and its connection with it


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
        kind: "stall", "reject", "degrade", "hold" or "drop".
        label: For traces and reports.
        active: False once healed.
        dropped_or_stalled: Frames and connection attempts that this rule stopped, delayed or refused.
        at_sender: The packets are dropped where they are sent; then TCP does not back off.
        delay_ns: Degrade: added to every frame.
        loss: Degrade: probability that a packet is lost (and sent again).
        message_type: Hold, drop: class name of the message.
        remaining: Drop: how many more messages vanish; None for all.
    """

    __slots__ = (
        "_applies",
        "active",
        "at_sender",
        "delay_ns",
        "dropped_or_stalled",
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
        loss: float = 0.0,
        message_type: str = "",
        remaining: int | None = None,
    ) -> None:
        self.kind = kind
        self.label = label
        self.active = True
        self.dropped_or_stalled = 0
        self.at_sender = at_sender
        self.delay_ns = delay_ns
        self.loss = loss
        self.message_type = message_type
        self.remaining = remaining
        self._applies = applies

    def __repr__(self) -> str:
        return f"<Token {self.label}{'' if self.active else ' (healed)'}>"

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
