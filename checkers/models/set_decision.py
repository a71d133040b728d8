"""Decides histories of a set without a search, if no element is added twice and none that is added is removed.

A remove of an element that is never added has no effect; with a result it is an observation. Every observation
of an element states an order: an operation that saw the element took effect after its add, one that did not see
it took effect before. Together with real time these are the edges of a graph. If the graph has no cycle, every
topological order of it is a linearization; if it has one, no order can satisfy all of its edges. An `info` add
is part of it only if some operation saw its element; otherwise it can be dropped.
"""

from collections.abc import Hashable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter

from checkers.models.model import Decision
from checkers.models.operation import INFO, Operation
from checkers.models.order import order_in_time
from checkers.models.values import frozen

EDGES_MAX = 3_000_000
"""More edges than this are left to the search; a few seconds."""

Node = tuple[str, int]
"""("operation", position) or ("instant", index). The chain of instants carries the order of real time."""


def decide_set(operations: Sequence[Operation]) -> Decision | None:
    """Decides whether operations of one set are linearizable; None if this procedure does not apply to them."""
    adds: dict[Hashable, int] = {}
    removed: set[Hashable] = set()
    observers = []
    for place, one in enumerate(operations):
        if one.function == "remove" and _may_change(one):
            removed.add(frozen(one.input))
            if one.outcome != INFO and one.output is not None:
                observers.append(place)
        elif one.function == "add" and _may_change(one):
            element = frozen(one.input)
            if element in adds:
                return None
            adds[element] = place
        elif one.outcome != INFO:
            observers.append(place)
    if removed & adds.keys():
        return None
    seen = {place: _seen(operations[place]) for place in observers}
    if len(seen) * len(adds) > EDGES_MAX:
        return None
    observed: set[Hashable] = set().union(*(present for present, _ in seen.values()))
    for place, (present, _) in seen.items():
        strange = sorted(map(str, present - adds.keys()))
        if strange:
            text = operations[place].text()
            sentence = f"{text} saw the element {strange[0]}, which was never added"
            return Decision(is_valid=False, sentence=sentence, witnesses=(place,))
        one = operations[place]
        if one.function == "read" and len(one.output) != len(present):
            sentence = f"{one.text()} returned an element twice"
            return Decision(is_valid=False, sentence=sentence, witnesses=(place,))
    certain = {
        element: place
        for element, place in adds.items()
        if operations[place].outcome != INFO or element in observed
    }
    return _decide(operations, certain, seen)


def _may_change(operation: Operation) -> bool:
    """Returns whether an add or a remove may have changed the set."""
    return operation.outcome == INFO or operation.output is not False


def _seen(operation: Operation) -> tuple[frozenset[Hashable], tuple[Hashable] | None]:
    """Returns the elements that an observer saw, and the only element it looked for; None if it looked for all."""
    if operation.function == "read":
        return frozenset(map(frozen, operation.output)), None
    element = frozen(operation.input)
    is_present = operation.function == "add" or operation.output
    return (frozenset((element,)), (element,)) if is_present else (frozenset(), (element,))


def _decide(
    operations: Sequence[Operation],
    adds: dict[Hashable, int],
    seen: dict[int, tuple[frozenset[Hashable], tuple[Hashable] | None]],
) -> Decision:
    graph: TopologicalSorter[Node] = TopologicalSorter()
    for before, after in _real_time(operations, {*adds.values(), *seen}):
        graph.add(after, before)
    for place, (present, only) in seen.items():
        observer = ("operation", place)
        for element, add in adds.items():
            if element in present:
                graph.add(observer, ("operation", add))
            elif only is None or only == (element,):
                graph.add(("operation", add), observer)
    try:
        graph.prepare()
    except CycleError as error:
        cycle = [place for kind, place in error.args[1][:-1] if kind == "operation"]
        last = max(cycle, key=lambda place: operations[place].invoked_ns)
        cycle = cycle[cycle.index(last) :] + cycle[: cycle.index(last)]
        return Decision(
            is_valid=False, sentence=_sentence(operations, cycle), witnesses=tuple(cycle)
        )
    return Decision(is_valid=True)


def _real_time(operations: Sequence[Operation], places: set[int]) -> Iterator[tuple[Node, Node]]:
    """Yields edges that order two operations if one comes before the other in time."""
    ordered = sorted(places)
    order = order_in_time([operations[place] for place in ordered])
    for index, (is_completion, number) in enumerate(order.events):
        instant, operation = ("instant", index), ("operation", ordered[number])
        yield ("instant", index - 1), instant
        yield (operation, instant) if is_completion else (instant, operation)
    for first, second in order.pairs:
        yield ("operation", ordered[first]), ("operation", ordered[second])


def _sentence(operations: Sequence[Operation], cycle: Sequence[int]) -> str:
    texts = [operations[place].text() for place in cycle]
    chain = ", which must precede ".join(texts[:4])
    more = "" if len(texts) <= 4 else f", and so on ({len(texts)} operations)"
    return f"{chain}{more}, which must precede the first one"
