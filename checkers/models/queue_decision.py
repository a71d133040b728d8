"""Decides histories of a queue without a search.

Ranks replace times: the places of invocations and completions in `checkers.models.order`. Let
`[a, b]` be the ranks of the enqueue of a value and `[c, d]` those of its dequeue. Ranks that do not exist are
infinite: `b` and `d` of `info` operations, `c` and `d` of a value that stays in the queue. If no value is enqueued
twice, and it is known which value every dequeue removed, the history is linearizable exactly if

1. every dequeued value was enqueued, is dequeued once, and not `d < a`;
2. for no two values x and y, `b(x) < a(y)` and `d(y) < c(x)`: x was enqueued first, y was dequeued first;
3. during each dequeue that found nothing there is an instant at which no value is certainly in the queue. A value
   is certainly there between `b` and `c`.

An `info` enqueue of a value that no dequeue returned can be dropped. An `info` dequeue may have removed any value
that no other dequeue returned, or nothing. A value x that it removed has an infinite `d`, so that condition 2 is
only a limit for its `c`: `c(x)` is less than the smallest `d(y)` with `a(y) > b(x)`. Values with limits can all be
removed exactly if, for every rank, at least as many `info` dequeues were invoked by then as values have a limit by
then. At an instant without values, at least as many must have been invoked as staying values were enqueued before
it. Nothing else has to be tested: a value that was enqueued earlier never has a later limit, so that the values
enqueued before the instant are among those that have a limit by any later limit.

If operations have an order that ranks do not show (`Order.pairs`), a stricter order shows that a history is
linearizable, and one without the pairs that it is not. Otherwise the procedure does not apply.

Equal values are told apart by pairing their enqueues with their dequeues. If a pairing is linearizable, so is the
history. It is the only one that matters if equal operations never lie within one another (exchanging two of them
otherwise puts them in order) and it is known which of them took effect. Otherwise `queue_search` decides.

Source: conditions 1 to 3 are Henzinger, Sezgin and Vafeiadis, "Aspect-oriented linearizability proofs" (2013). The
treatment of `info` operations and of equal values is ours. `tests/property/model_brute_force.py` compares it with
exhaustive search.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from checkers.models.model import Decision
from checkers.models.operation import INFO, Operation
from checkers.models.order import Event, order_in_time
from checkers.models.queue_search import QueueSearch
from checkers.models.values import frozen

Ranks = npt.NDArray[np.int64]


@dataclass(slots=True)
class Value:
    """One value: the positions of its operations, -1 for none, and their ranks."""

    enqueue: int
    a: int
    b: int
    c: int
    d: int
    dequeue: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One history.

    Attributes:
        operations: All of it.
        begins, ends: Ranks of invocations and completions; the latter are infinite for `info` operations.
        infinite: A rank after all others.
        taken: Values that a dequeue returned.
        staying: The other values of `ok` enqueues.
        empties: Positions of dequeues that found nothing.
        unknown: Ranks of the invocations of `info` dequeues, in ascending order.
    """

    operations: Sequence[Operation]
    begins: list[int]
    ends: list[int]
    infinite: int
    taken: list[Value]
    staying: list[Value]
    empties: list[int]
    unknown: Ranks


def decide_queue(operations: Sequence[Operation]) -> Decision | None:
    """Decides whether operations of one queue are linearizable; None if this procedure does not apply to them."""
    order = order_in_time(operations)
    decision = _decide(operations, order.events)
    if not order.pairs or (decision is not None and not decision.is_valid):
        return decision
    # Ranks leave out the order of the pairs. What is linearizable in a stricter order is so with it, too.
    strict = _decide(operations, order_in_time(operations, is_strict=True).events)
    return strict if strict is not None and strict.is_valid else None


def _decide(operations: Sequence[Operation], events: Sequence[Event]) -> Decision | None:
    begins, ends, infinite = _ranks(events, len(operations))
    decision = _impossible(operations, begins, ends)
    if decision is not None:
        return decision
    enqueues, dequeues = _by_value(operations)
    pairs = _pairing(enqueues, dequeues, begins, ends)
    case = _case(operations, pairs, (begins, ends, infinite))
    decision = _wrong_order(case) or _not_empty(case)
    if decision is None:
        return Decision(is_valid=True)
    if _is_certain(operations, enqueues, dequeues, begins, ends):
        return decision
    search = QueueSearch(operations, begins, ends, infinite)
    is_linearizable = search.is_linearizable()
    if is_linearizable is None:
        return None
    return Decision(is_valid=True) if is_linearizable else _without_place(operations, search)


def _without_place(operations: Sequence[Operation], search: QueueSearch) -> Decision:
    place = search.blocked()
    sentence = (
        f"{operations[place].text()} has no place in any order that a queue allows, "
        "however equal values are told apart"
    )
    return Decision(is_valid=False, sentence=sentence, witnesses=(place,))


def _by_value(
    operations: Sequence[Operation],
) -> tuple[dict[Hashable, list[int]], dict[Hashable, list[int]]]:
    """Returns the positions of enqueues and of dequeues with a result, by value."""
    enqueues: dict[Hashable, list[int]] = {}
    dequeues: dict[Hashable, list[int]] = {}
    for place, one in enumerate(operations):
        if one.function == "enqueue":
            enqueues.setdefault(frozen(one.input), []).append(place)
        elif one.outcome != INFO and one.output is not None:
            dequeues.setdefault(frozen(one.output), []).append(place)
    return enqueues, dequeues


def _impossible(
    operations: Sequence[Operation], begins: list[int], ends: list[int]
) -> Decision | None:
    """Returns a dequeue that contradicts condition 1, however equal values are paired."""
    enqueues, dequeues = _by_value(operations)
    for value, places in dequeues.items():
        given = sorted(begins[place] for place in enqueues.get(value, ()))
        taken = sorted((ends[place], place) for place in places)
        for count, (end, place) in enumerate(taken):
            if count < len(given) and given[count] < end:
                continue
            before = [other for _, other in taken[:count]]
            return _never_enqueued(operations, place, before, enqueues.get(value, []), given)
    return None


def _never_enqueued(
    operations: Sequence[Operation],
    place: int,
    before: list[int],
    enqueues: list[int],
    given: list[int],
) -> Decision:
    text = operations[place].text()
    if not enqueues:
        sentence = f"{text} returned a value that was never enqueued"
    elif not before:
        sentence = f"{text} returned a value before its enqueue was invoked"
    elif len(enqueues) == 1:
        sentence = f"{text} returned a value that {operations[before[0]].text()} had returned, too"
    else:
        sentence = (
            f"{text} returned a value that was dequeued more often than it was enqueued by then"
        )
    return Decision(
        is_valid=False, sentence=sentence, witnesses=(place, *before[:1], *enqueues[:1])
    )


def _is_certain(
    operations: Sequence[Operation],
    enqueues: dict[Hashable, list[int]],
    dequeues: dict[Hashable, list[int]],
    begins: list[int],
    ends: list[int],
) -> bool:
    """Returns whether the first pairing is the only one that matters."""
    has_unknown = any(one.function == "dequeue" and one.outcome == INFO for one in operations)
    for value, places in enqueues.items():
        if len(places) == 1:
            continue
        taken = dequeues.get(value, [])
        if has_unknown and len(taken) < len(places):
            return False
        if any(operations[place].outcome == INFO for place in places) and len(taken) < len(places):
            return False
        for group in (places, taken):
            by_begin = sorted(group, key=lambda place: begins[place])
            if any(ends[a] > ends[b] for a, b in pairwise(by_begin)):
                return False
    return True


def _pairing(
    enqueues: dict[Hashable, list[int]],
    dequeues: dict[Hashable, list[int]],
    begins: list[int],
    ends: list[int],
) -> dict[int, int]:
    """Returns which enqueue every dequeue is paired with: those that complete first, with each other."""

    def first_completed(places: list[int]) -> list[int]:
        return sorted(places, key=lambda place: (ends[place], begins[place]))

    pairs: dict[int, int] = {}
    for value, places in dequeues.items():
        pairs.update(zip(first_completed(places), first_completed(enqueues[value]), strict=False))
    return pairs


def _case(
    operations: Sequence[Operation],
    pairs: dict[int, int],
    ranks: tuple[list[int], list[int], int],
) -> Case:
    begins, ends, infinite = ranks
    values = {
        place: Value(place, begins[place], ends[place], infinite, infinite)
        for place, one in enumerate(operations)
        if one.function == "enqueue"
    }
    for dequeue, enqueue in pairs.items():
        value = values[enqueue]
        value.dequeue, value.c, value.d = dequeue, begins[dequeue], ends[dequeue]
    unpaired = [
        place
        for place, one in enumerate(operations)
        if one.function == "dequeue" and place not in pairs
    ]
    is_info = [operations[place].outcome == INFO for place in unpaired]
    unknown = sorted(begins[p] for p, info in zip(unpaired, is_info, strict=True) if info)
    return Case(
        operations=operations,
        begins=begins,
        ends=ends,
        infinite=infinite,
        taken=[one for one in values.values() if one.dequeue >= 0],
        staying=[one for one in values.values() if one.dequeue < 0 and one.b < infinite],
        empties=[place for place, info in zip(unpaired, is_info, strict=True) if not info],
        unknown=np.array(unknown, dtype=np.int64),
    )


def _ranks(events: Sequence[Event], count: int) -> tuple[list[int], list[int], int]:
    infinite = len(events)
    begins, ends = [0] * count, [infinite] * count
    for rank, (is_completion, place) in enumerate(events):
        (ends if is_completion else begins)[place] = rank
    return begins, ends, infinite


def _wrong_order(case: Case) -> Decision | None:
    """Returns a violation of condition 1 or 2."""
    for one in case.taken:
        if one.d < one.a:
            text = case.operations[one.dequeue].text()
            sentence = f"{text} returned a value before its enqueue was invoked"
            return Decision(is_valid=False, sentence=sentence, witnesses=(one.dequeue, one.enqueue))
    followers = sorted(case.taken, key=lambda one: one.a)
    earliest: list[Value | None] = [None] * (len(followers) + 1)
    for index in range(len(followers) - 1, -1, -1):
        later = earliest[index + 1]
        is_earlier = later is None or followers[index].d < later.d
        earliest[index] = followers[index] if is_earlier else later
    starts = [one.a for one in followers]
    limits = []
    for one in (*case.taken, *case.staying):
        other = earliest[int(np.searchsorted(starts, one.b, side="right"))]
        if other is None:
            continue
        if one.dequeue < 0:
            limits.append((other.d, one.enqueue, one, other))
        elif other.d < one.c:
            return _overtaken(case, one, other)
    for count, (limit, _, one, other) in enumerate(sorted(limits, key=lambda each: each[:2])):
        if count >= len(case.unknown) or case.unknown[count] > limit:
            return _overtaken(case, one, other)
    return None


def _overtaken(case: Case, first: Value, second: Value) -> Decision:
    enqueued, other = case.operations[first.enqueue], case.operations[second.enqueue]
    sentence = (
        f"{enqueued.input!r} was enqueued before {other.input!r}, but {other.input!r} was dequeued "
        f"and {enqueued.input!r} was still in the queue"
    )
    witnesses = [second.dequeue, first.enqueue, second.enqueue]
    if first.dequeue >= 0:
        witnesses.append(first.dequeue)
    elif len(case.unknown):
        sentence += ", even if every dequeue with an unknown result removed an earlier value"
    return Decision(is_valid=False, sentence=sentence, witnesses=tuple(witnesses))


def _not_empty(case: Case) -> Decision | None:
    """Returns a violation of condition 3."""
    if not case.empties:
        return None
    occupied = np.zeros(case.infinite + 1, dtype=np.int64)
    for one in case.taken:
        if one.b < one.c:
            occupied[one.b] += 1
            occupied[one.c] -= 1
    may_be_empty = np.cumsum(occupied) == 0
    ranks = np.arange(case.infinite + 1)
    enqueued = np.searchsorted(sorted(one.b for one in case.staying), ranks, side="right")
    may_be_empty &= enqueued <= np.searchsorted(case.unknown, ranks, side="right")
    for place in case.empties:
        begin, end = case.begins[place], case.ends[place]
        if not may_be_empty[begin:end].any():
            sentence = (
                f"{case.operations[place].text()} found the queue empty, but at every instant of it a value "
                "had been enqueued and was not dequeued yet"
            )
            return Decision(is_valid=False, sentence=sentence, witnesses=(place,))
    return None
