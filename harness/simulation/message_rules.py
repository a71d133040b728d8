"""What the rules about single messages do to a message at the moment of its arrival.

TCP delivers the bytes of a connection once and in order, or resets it. The rules stay within that:

* hold, late: the message waits, and with it everything behind it on its connection;
* drop: the message and its connection are lost, and both ends see a reset. A request that is dropped is not
  processed; one whose response is dropped was;
* duplicate: a copy of a request is processed, too, as if its sender had sent it again over another connection,
  after a delay, or when the rule ends if that is earlier;
* reorder: the message waits until one on another connection between the same nodes has arrived;
* refuse: the server responds to the request in its turn, with an error, and does not process it.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from harness.simulation.flight import Flight
from harness.simulation.network_faults import (
    DROP,
    DUPLICATE,
    HOLD,
    LATE,
    REFUSE,
    REORDER,
    NetworkFault,
)


class Ends(Protocol):
    """The part of a link that rules use."""

    src: str
    dst: str

    def on_exhausted(self, fault: NetworkFault, /) -> None:
        """Called with a fault that dropped its last message."""
        ...


class Carrier(Protocol):
    """The part of a pipe that rules use."""

    is_reply: bool

    @property
    def link(self) -> Ends:
        """The wire under it."""
        ...

    def hold_back(self, frame: Flight, fault: NetworkFault, for_ns: int | None = None) -> None:
        """Returns a frame to the pipe, which waits."""
        ...

    def release(self) -> None:
        """Ends the waiting."""
        ...

    def give_up(self) -> None:
        """Breaks the connection."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Copy:
    """A copy of a request that has not arrived yet: its sender, its receiver, and the message."""

    src: str
    dst: str
    message: Any


def intercept(fault: NetworkFault, pipe: Carrier, frame: Flight, message: Any, name: str) -> bool:
    """Applies a rule to a message that arrives; returns whether the message does not arrive now.

    Args:
        fault: The rule.
        pipe: Where the message arrives.
        frame: What carries it.
        message: The message.
        name: Its class name.
    """
    link = pipe.link
    if fault.kind == REORDER:
        _overtake(fault, pipe, frame)
    assert fault.concerns is not None
    is_used_up = fault.remaining == 0 and frame not in fault.waiting
    if is_used_up or not fault.concerns(link.src, link.dst, name):
        return False
    return _RULES[fault.kind](fault, pipe, frame, message)


def _hold(fault: NetworkFault, pipe: Carrier, frame: Flight, _message: Any) -> bool:
    if frame not in fault.waiting:
        _count_down(fault)
        fault.dropped_or_stalled += 1
        fault.waiting[frame] = pipe
    pipe.hold_back(frame, fault)
    return True


def _drop(fault: NetworkFault, pipe: Carrier, _frame: Flight, _message: Any) -> bool:
    fault.dropped_or_stalled += 1
    if fault.remaining is not None:
        fault.remaining -= 1
        if not fault.remaining:
            pipe.link.on_exhausted(fault)
    pipe.give_up()
    return True


def _delay(fault: NetworkFault, pipe: Carrier, frame: Flight, _message: Any) -> bool:
    if frame in fault.waiting:  # it has waited
        del fault.waiting[frame]
        return False
    _count_down(fault)
    if fault.kind == LATE:
        fault.dropped_or_stalled += 1
    fault.waiting[frame] = pipe
    pipe.hold_back(frame, fault, fault.delay_ns)
    return True


def _overtake(fault: NetworkFault, pipe: Carrier, frame: Flight) -> None:
    """Releases the messages that this one overtakes: those that wait on other connections of the link."""
    for waiting, its_pipe in fault.waiting.items():
        if its_pipe in (None, pipe) or frame is waiting or its_pipe.link is not pipe.link:
            continue
        fault.dropped_or_stalled += 1
        fault.waiting[waiting] = None
        its_pipe.release()


def _duplicate(fault: NetworkFault, pipe: Carrier, _frame: Flight, message: Any) -> bool:
    if not pipe.is_reply:
        assert fault.act is not None
        _count_down(fault)
        fault.dropped_or_stalled += 1
        fault.act(fault, Copy(pipe.link.src, pipe.link.dst, message))
    return False


def _refuse(fault: NetworkFault, pipe: Carrier, frame: Flight, message: Any) -> bool:
    if pipe.is_reply or frame.future is None or frame.refusal is not None:
        return False
    assert fault.act is not None
    frame.refusal = fault.act(message)
    if frame.refusal is not None:
        _count_down(fault)
        fault.dropped_or_stalled += 1
    return False


def _count_down(fault: NetworkFault) -> None:
    # A rule about which nothing is left stays until it is healed: messages that it made late still wait.
    if fault.remaining is not None:
        fault.remaining -= 1


_RULES = {
    HOLD: _hold,
    DROP: _drop,
    LATE: _delay,
    DUPLICATE: _duplicate,
    REORDER: _delay,
    REFUSE: _refuse,
}
