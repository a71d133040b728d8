"""What templates of faults are made of: the draws of a schedule, and faults that several templates have in common.

The templates are in `nemesis.templates`, `nemesis.replica_templates`, `nemesis.settings_templates`,
`nemesis.message_templates`, `nemesis.window_templates`, `nemesis.isr_templates` and
`nemesis.controller_templates`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Protocol, TypeVar

from nemesis.administration import MIN_ISR_KEY
from nemesis.fault import Fault
from nemesis.trigger import parse_trigger

T = TypeVar("T")

DELAYS_MS = (0, 0, 1, 5, 20, 100)
"""Times between an event and the fault that waits for it: mostly shorter than a round trip."""

MIN_ISRS = (1, 2)
"""Values of min ISR that are drawn; with larger ones a topic with few replicas would refuse every append."""

LEAVES = ("kill", "isolate", "pause", "power")
"""Faults that take a broker away."""
STRIKES = ("kill", "power", "isolate", "pause")
"""Faults that strike at an event."""
LONG = 6
"""What lasts until an event may last for so many drawn times at most."""
SHORT_MS = (0, 1, 3, 10, 30, 100)
"""Times after an event at which something else is still under way."""


class Drawing(Protocol):
    """What templates use of a schedule that is being drawn.

    Attributes:
        stream: The random stream.
        families: The families that the seed uses.
        actions: The administrative actions that may be drawn.
        brokers: The names of all brokers.
        controllers: The names of all controllers; none if the system has none.
        observes_nodes: Whether faults may wait for what happens inside of nodes, and act on messages.
        log_dirs: How many log directories a broker has.
    """

    stream: Random
    families: Sequence[str]
    actions: Sequence[str]
    brokers: Sequence[str]
    controllers: Sequence[str]
    observes_nodes: bool
    log_dirs: int

    def pick(self, items: Sequence[T], /) -> T:
        """Returns one of several values."""
        ...

    def partition(self) -> str:
        """Returns the name of a partition."""
        ...

    def step_ms(self) -> int:
        """Returns a time between two faults of a burst."""
        ...

    def hold_ms(self) -> int:
        """Returns how long a fault lasts."""
        ...

    def on_node(self, at_ms: int, family: str, targets: tuple[str, ...]) -> Fault:
        """Returns a fault of a family, with its parameters drawn."""
        ...

    def action(self, at_ms: int, partition: str) -> Fault:
        """Returns an administrative action."""
        ...

    def fault(
        self, at_ms: int, fault: str, targets: tuple[str, ...], for_ms: int, **params: object
    ) -> Fault:
        """Returns a fault."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """One template.

    Attributes:
        about: What it does, for the documents.
        draw: Returns its faults from a time on.
        needs_controllers: Whether the system must have controllers.
        needs_simulation: Whether only the simulation can observe its events or inject its faults.
    """

    about: str
    draw: Callable[[Drawing, int], list[Fault]]
    needs_controllers: bool = False
    needs_simulation: bool = False


def chance(draw: Drawing, share: float) -> bool:
    """Returns whether something happens that happens in this share of the draws."""
    return draw.stream.random() < share


def min_isr_set(draw: Drawing, at_ms: int, partition: str, value: int) -> Fault:
    """Returns a fault that sets min ISR of the topic of a partition."""
    topic = partition.rpartition("-")[0]
    return draw.fault(at_ms, "alter_config", (), 0, topic=topic, key=MIN_ISR_KEY, value=value)


def one_of(draw: Drawing, wanted: Sequence[str]) -> str:
    """Returns one of several families, one that the seed uses if there is one."""
    return draw.pick([one for one in wanted if one in draw.families] or list(wanted))


def strike(draw: Drawing, at_ms: int, on: Sequence[str], targets: Sequence[str]) -> Fault:
    """Returns a fault for one of several targets that waits for one of several events."""
    fault = draw.on_node(at_ms, one_of(draw, STRIKES), (draw.pick(targets),))
    return waiting(draw, fault, on)


def waiting(draw: Drawing, fault: Fault, on: Sequence[str], nth: int = 0) -> Fault:
    """Returns a fault that waits for one of several events that can be observed; `nth` 0: drawn."""
    usable = [text for text in on if draw.observes_nodes or parse_trigger(text).kind.is_committed]
    delay_ms = draw.pick(DELAYS_MS)
    nth = nth or (2 if draw.stream.random() < 0.2 else 1)
    return replace(fault, on=draw.pick(usable), nth=nth, delay_ms=delay_ms)


def leaves(draw: Drawing, at_ms: int, target: str) -> Fault:
    """Returns a fault that takes a broker away."""
    return draw.on_node(at_ms, one_of(draw, LEAVES), (target,))


def loses_unflushed(draw: Drawing, at_ms: int, *targets: str) -> Fault:
    """Returns a power cut that mostly takes all that was not flushed."""
    lost = draw.on_node(at_ms, "power", targets)
    if chance(draw, 0.7):
        lost = replace(lost, params={**lost.params, "mode": "lose_all"})
    return lost


def short_ms(draw: Drawing) -> int:
    """Returns a time after an event at which something else is still under way."""
    return draw.pick(SHORT_MS)


def some_ms(draw: Drawing) -> int:
    """Returns a time after an event: short, or up to two steps."""
    return short_ms(draw) if chance(draw, 0.4) else int(2 * draw.stream.random() * draw.step_ms())


def late_copy(draw: Drawing, at_ms: int, messages: str, until: str, nth: int = 1) -> Fault:
    """Returns a fault by which a request arrives once more, at an event."""
    ms = LONG * draw.hold_ms()
    copied = draw.fault(at_ms, "duplicate_messages", (), 1, messages=messages, ms=ms, count=1)
    return until_event(draw, copied, until, nth)


def up_to(draw: Drawing, most: int) -> int:
    """Returns a number from 1 to `most`."""
    return 1 + int(most * draw.stream.random())


def until_event(draw: Drawing, fault: Fault, until: str, nth: int = 1) -> Fault:
    """Returns a fault that is healed at an event."""
    return replace(fault, for_ms=LONG * draw.hold_ms(), until=until, until_nth=nth)


def until_fenced(draw: Drawing, at_ms: int, broker: str) -> Fault:
    """Returns a fault by which a broker is away until the controller has noticed it."""
    return until_event(draw, draw.fault(at_ms, "isolate", (broker,), 1), f"fencing at {broker}")


def at_event(fault: Fault, on: str, nth: int = 1, delay_ms: int = 0) -> Fault:
    """Returns a fault that begins at an event."""
    return replace(fault, on=on, nth=nth, delay_ms=delay_ms)


def held(draw: Drawing, at_ms: int, messages: str, until: str, nth: int = 1) -> Fault:
    """Returns a fault by which messages wait until an event."""
    fault = draw.fault(at_ms, "hold_messages", (), 1, messages=messages)
    return until_event(draw, fault, until, nth)
