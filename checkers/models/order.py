"""The order of operations in time, with the order of each process where times are equal.

A process calls one operation at a time. So if one of its operations completes at the very time at which another
one is invoked, it comes before that one, however coarse the clock is. Two operations of different processes are
concurrent then. Two operations of one process that begin and end at one and the same time are in an order that is
not known.

If one process touches at an instant in this way, a list of events expresses it. If several do, none can: each
operation that ends there comes before one that begins, but is concurrent with those of the others. Then such pairs
are returned apart (`Order.pairs`).

Objects are judged alone, and with such pairs each object may be linearizable although all of them together are
not. That is the only case in which a history is accepted that contradicts the order of a process.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from checkers.models.operation import INFO, Operation

Event = tuple[bool, int]
"""Whether it is a completion, and the position of the operation."""


@dataclass(frozen=True, slots=True)
class Order:
    """The order of operations in time.

    Attributes:
        events: Invocations, and completions of operations that are not `info`, in the order of time. Of two
            operations the first comes before the second if it completes before the second is invoked.
        pairs: Positions of operations of one process of which the first comes before the second, although `events`
            have the invocation of the second before the completion of the first.
    """

    events: list[Event]
    pairs: list[tuple[int, int]]


def order_in_time(operations: Sequence[Operation], *, is_strict: bool = False) -> Order:
    """Returns the order of `ok` and `info` operations.

    Args:
        operations: The operations, in any order.
        is_strict: Whether to return no pairs. Then operations of different processes may be in an order, too,
            although they are concurrent.
    """
    at: list[tuple[int, bool, int]] = []
    for place, one in enumerate(operations):
        at.append((one.invoked_ns, False, place))
        if one.outcome != INFO:
            assert one.completed_ns is not None
            at.append((one.completed_ns, True, place))
    at.sort()
    events: list[Event] = []
    pairs: list[tuple[int, int]] = []
    for _, group in groupby(at, key=lambda event: event[0]):
        instant = [(is_completion, place) for _, is_completion, place in group]
        if not instant[-1][0] or instant[0][0]:
            events += instant  # only invocations, or only completions
            continue
        touching = _touching(operations, instant)
        if touching and (is_strict or len({operations[x].process for x, _ in touching}) == 1):
            events += _with_touching(operations, instant, touching)
        else:
            events += instant
            pairs += touching
    return Order(events, pairs)


def comes_first(first: Operation, second: Operation) -> bool:
    """Returns whether an operation comes before another one of its process that begins when it completes."""
    if first.outcome == INFO or first.completed_ns != second.invoked_ns:
        return False
    # A second one without a length may have come first if the first one has no length either.
    return first.invoked_ns < first.completed_ns or _ends_later(second)


def _ends_later(one: Operation) -> bool:
    return one.completed_ns is not None and one.completed_ns > one.invoked_ns


def _touching(operations: Sequence[Operation], instant: list[Event]) -> list[tuple[int, int]]:
    begun: dict[int | str, list[int]] = {}
    for is_completion, place in instant:
        if not is_completion:
            begun.setdefault(operations[place].process, []).append(place)
    return [
        (first, second)
        for is_completion, first in instant
        if is_completion
        for second in begun.get(operations[first].process, ())
        if first != second and comes_first(operations[first], operations[second])
    ]


def _with_touching(
    operations: Sequence[Operation], instant: list[Event], touching: list[tuple[int, int]]
) -> list[Event]:
    """Returns the events of an instant such that every completion in a pair is before the invocation in it."""
    processes = {operations[first].process for first, _ in touching}

    def phase(event: Event) -> int:
        is_completion, place = event
        one = operations[place]
        if one.process not in processes:
            return 5 if is_completion else 0
        if is_completion:
            return 1 if _ends_later(one) else 3
        return 4 if _ends_later(one) else 2

    return sorted(instant, key=phase)
