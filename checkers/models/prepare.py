"""Operations of one object, arranged for the search.

The search goes from completion to completion. Everything that it needs at one completion is computed once: which
operation completes, which ones are pending at that instant, and which of them are worth trying. Pending `ok`
operations have a *slot*, a bit that is free again after the completion, so that masks stay as small as the
concurrency. `info` operations never complete and have a bit of their own in another mask.

Operations in `Order.pairs` have an order that their intervals do not show, so each of them is interchangeable with
no other one, and none counts as an overwrite.
"""

import heapq
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from checkers.models.calls import call, hashable
from checkers.models.model import Canonical, Model, Observing, Overwriting
from checkers.models.operation import INFO, Operation
from checkers.models.order import Event, order_in_time
from checkers.models.values import frozen


@dataclass(frozen=True, slots=True)
class Level:
    """One completion of an `ok` operation, and what is pending just before it.

    Attributes:
        target: Position of the operation that completes.
        target_bit: Its slot.
        observers: (slot, signature, position) of the pending observers.
        mutators: The other pending operations, grouped by signature, each group in the order of completion.
        observer_mask, general_mask, overwrite_mask: Slots of the observers, of the mutators that do not overwrite,
            and of those that do.
        info_count: How many `info` operations were invoked before.
    """

    target: int
    target_bit: int
    observers: tuple[tuple[int, int, int], ...]
    mutators: tuple[tuple[int, tuple[tuple[int, int], ...]], ...]
    observer_mask: int
    general_mask: int
    overwrite_mask: int
    info_count: int


@dataclass(frozen=True, slots=True)
class InfoClass:
    """Interchangeable `info` operations.

    Attributes:
        signature: What they have in common.
        members: (bit, position) in the order of their invocations.
        is_overwrite: Whether they replace the whole state.
    """

    signature: int
    members: tuple[tuple[int, int], ...]
    is_overwrite: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The operations of one object for the search.

    Attributes:
        operations: All of them, without `fail` ones and without `info` observers.
        levels: Completions in the order of time.
        info_classes: The `info` operations.
        signature_of: Signature of every operation, as a number.
        samples: One operation for every signature.
        is_overwrite: Whether each operation replaces the whole state and is in no pair of `Order.pairs`.
        replaces: Whether each operation replaces the whole state.
        arrival: For every operation, the first level at which it is pending.
        waiting: By level, the operations of `Order.pairs` that others of their process come before, with the slots
            of those others. A level without such operations is missing.
        stricter: The same operations in a stricter order, if any are waiting: a linearization of these is one of
            the operations, and it is found sooner, but there may be none.
    """

    operations: tuple[Operation, ...]
    levels: tuple[Level, ...]
    info_classes: tuple[InfoClass, ...]
    signature_of: tuple[int, ...]
    samples: tuple[Operation, ...]
    is_overwrite: tuple[bool, ...]
    replaces: tuple[bool, ...]
    arrival: tuple[int, ...]
    waiting: Mapping[int, Mapping[int, int]]
    stricter: "Prepared | None"


def prepare(model: Model, operations: Sequence[Operation], *, is_strict: bool = False) -> Prepared:
    """Arranges the operations of one object, in the stricter order of `order_in_time` if that is requested."""
    order = order_in_time(operations, is_strict=is_strict)
    paired = {place for pair in order.pairs for place in pair}
    numbers: dict[Hashable, int] = {}
    samples: list[Operation] = []
    signature_of: list[int] = []
    for place, operation in enumerate(operations):
        signature = _signature(model, operation, place)
        if place in paired:
            signature = ("paired", place, signature)
        if signature not in numbers:
            numbers[signature] = len(numbers)
            samples.append(operation)
        signature_of.append(numbers[signature])
    replaces = [
        isinstance(model, Overwriting) and bool(call(model, operation, model.is_overwrite))
        for operation in operations
    ]
    overwrites = [is_one and place not in paired for place, is_one in enumerate(replaces)]
    levels, arrival = _levels(model, operations, signature_of, overwrites, order.events)
    return Prepared(
        operations=tuple(operations),
        levels=levels,
        info_classes=_info_classes(operations, signature_of, overwrites, order.events),
        signature_of=tuple(signature_of),
        samples=tuple(samples),
        is_overwrite=tuple(overwrites),
        replaces=tuple(replaces),
        arrival=arrival,
        waiting=_waiting(levels, arrival, order.pairs),
        stricter=prepare(model, operations, is_strict=True) if order.pairs else None,
    )


def is_observer(model: Model, operation: Operation) -> bool:
    """Returns whether the model declares that the operation never changes the state."""
    return isinstance(model, Observing) and bool(call(model, operation, model.is_observer))


def _signature(model: Model, operation: Operation, position: int) -> Hashable:
    if isinstance(model, Canonical):
        return hashable(model, operation, model.signature)
    is_info = operation.outcome == INFO
    given, output = operation.input, None if is_info else operation.output
    try:
        # Both forms: equal values may have different texts (1 and 1.0), and the reverse (long arrays).
        values = (frozen(given), frozen(output), repr(given), repr(output))
    except TypeError:
        return position
    return operation.process, operation.function, values, is_info


def _info_classes(
    operations: Sequence[Operation],
    signature_of: Sequence[int],
    overwrites: Sequence[bool],
    events: Sequence[Event],
) -> tuple[InfoClass, ...]:
    infos = [place for _, place in events if operations[place].outcome == INFO]
    bits = sorted((signature_of[place], bit, place) for bit, place in enumerate(infos))
    classes = []
    for signature, members in groupby(bits, key=lambda one: one[0]):
        places = tuple((1 << bit, place) for _, bit, place in members)
        classes.append((places[0][0], InfoClass(signature, places, overwrites[places[0][1]])))
    return tuple(one for _, one in sorted(classes, key=lambda pair: pair[0]))


def _levels(
    model: Model,
    operations: Sequence[Operation],
    signature_of: Sequence[int],
    overwrites: Sequence[bool],
    events: Sequence[Event],
) -> tuple[tuple[Level, ...], tuple[int, ...]]:
    levels: list[Level] = []
    arrival = [0] * len(operations)
    slots: dict[int, int] = {}
    free: list[int] = []
    info_count = 0
    observers = {
        place for place, operation in enumerate(operations) if is_observer(model, operation)
    }
    ending = [place for is_completion, place in events if is_completion]
    rank = {place: rank for rank, place in enumerate(ending)}
    for is_completion, place in events:
        if not is_completion:
            arrival[place] = len(levels)
            if operations[place].outcome == INFO:
                info_count += 1
            else:
                slots[place] = heapq.heappop(free) if free else len(slots)
            continue
        pending = sorted(slots, key=rank.__getitem__)
        watching = [(1 << slots[p], signature_of[p], p) for p in pending if p in observers]
        groups: dict[int, list[tuple[int, int]]] = {}
        for p in pending:
            if p not in observers:
                groups.setdefault(signature_of[p], []).append((1 << slots[p], p))
        changing = [pair for group in groups.values() for pair in group]
        levels.append(
            Level(
                target=place,
                target_bit=1 << slots[place],
                observers=tuple(watching),
                mutators=tuple((signature, tuple(group)) for signature, group in groups.items()),
                observer_mask=sum(bit for bit, _, _ in watching),
                general_mask=sum(bit for bit, p in changing if not overwrites[p]),
                overwrite_mask=sum(bit for bit, p in changing if overwrites[p]),
                info_count=info_count,
            )
        )
        heapq.heappush(free, slots.pop(place))
    return tuple(levels), tuple(arrival)


def _waiting(
    levels: Sequence[Level], arrival: Sequence[int], pairs: Sequence[tuple[int, int]]
) -> dict[int, dict[int, int]]:
    if not pairs:
        return {}
    completion = {level.target: (number, level.target_bit) for number, level in enumerate(levels)}
    waiting: dict[int, dict[int, int]] = {}
    for first, second in pairs:
        last, bit = completion[first]
        for number in range(arrival[second], last + 1):
            at = waiting.setdefault(number, {})
            at[second] = at.get(second, 0) | bit
    return waiting
