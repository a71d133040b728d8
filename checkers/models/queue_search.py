"""Searches for an order of a queue's operations in which equal values can be told apart.

**The order.** A queue's history is a sequence of removals: the first value that is enqueued, with the dequeue that
removes it, then the second one, and so on; values that stay come last. After some removals the next one may be any
enqueue that was invoked before the *limit of the enqueues*, the earliest completion of one that is left, with any
dequeue of the same value that was invoked before the *limit of the dequeues*; the enqueue must have been invoked
before that limit, too. Nothing else restricts the order: every removal takes effect as early as these operations
allow, and what is left has not completed by then.

**Removals without a choice.** If the enqueue and the dequeue of a value that complete first are both possible now,
they can be next. Where another order exists, exchange them with their partners there: each operation then moves to
an earlier place, or takes the place of one that completes sooner. The search only decides when an
operation that completes later is possible first, because it was invoked before the other and completes after it.

**Dequeues that found nothing** take effect as soon as the queue can be empty: after some removals, not before the
latest invocation among them, and before both limits. Removals in advance can only do harm if they raise this
latest invocation beyond the invocation of a dequeue that found nothing and has not taken effect.

**`info` dequeues** remove values that no dequeue returned, the one that was invoked first before others. They can
be delayed until something else would overtake the value, so that they only ever remove the enqueue that completes
first. `info` enqueues are dropped unless they are needed.

`tests/property/model_brute_force.py` compares it with exhaustive search.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

from checkers.models.operation import INFO, Operation
from checkers.models.values import frozen

STATES_MAX = 50_000
"""After so many states the other search decides; a few seconds. Histories of 200 operations need some hundred."""


class State(NamedTuple):
    """Some removals.

    Attributes:
        enqueues, dequeues: Masks of the operations that took part.
        infos: How many `info` dequeues did.
        empties: Mask of the dequeues that found nothing and have taken effect.
        latest: Rank of the latest invocation of an operation that took part.
    """

    enqueues: int
    dequeues: int
    infos: int
    empties: int
    latest: int


@dataclass(frozen=True, slots=True)
class Side:
    """The enqueues, or the dequeues with a value, in the order of their completions.

    Attributes:
        begins, ends: Ranks of their invocations and completions; a last end, after all of them, is infinite.
        of_value: Their indices, by value.
    """

    begins: tuple[int, ...]
    ends: tuple[int, ...]
    of_value: dict[Hashable, tuple[int, ...]]

    def limit(self, taken: int) -> int:
        """Returns the earliest completion of an operation that is left."""
        return self.ends[_first_left(taken)]

    def possible(
        self, value: Hashable, taken: int, limit: int, soon: int
    ) -> tuple[list[int], bool]:
        """Returns operations with a value that may be next, and whether one of them is next without a choice.

        Args:
            value: The value.
            taken: Mask of the operations that are not left.
            limit: They must be invoked before.
            soon: Until this rank it does not matter when an operation was invoked.

        Returns:
            Indices: where one begins and ends before another, only the first of them. The flag is true if the one
            that completes first of all that are left may be next, and it does not matter when it was invoked.
        """
        found: list[int] = []
        is_first, is_next = True, False
        earliest = self.ends[-1] + 1
        for index in self.of_value.get(value, ()):
            if taken >> index & 1:
                continue
            begin = max(self.begins[index], soon)
            if self.begins[index] <= limit and begin < earliest:
                earliest = begin
                found.append(index)
                if begin == soon:
                    is_next = is_first
                    break
            is_first = False
        return found, is_next


@dataclass(slots=True)
class QueueSearch:
    """One search.

    Attributes:
        operations: The `ok` and `info` operations of one queue.
        begins, ends: Ranks of invocations and completions; the latter are `infinite` for `info` operations.
        infinite: A rank after all others.
    """

    operations: Sequence[Operation]
    begins: Sequence[int]
    ends: Sequence[int]
    infinite: int
    enqueues: Side = field(init=False)
    dequeues: Side = field(init=False)
    infos: list[int] = field(init=False)
    empties: list[int] = field(init=False)
    farthest: int = 0

    def __post_init__(self) -> None:
        """Sorts the operations."""
        enqueues, dequeues, empties, infos = [], [], [], []
        for place, one in enumerate(self.operations):
            if one.function == "enqueue":
                enqueues.append(place)
            elif one.outcome == INFO:
                infos.append(self.begins[place])
            elif one.output is None:
                empties.append(place)
            else:
                dequeues.append(place)
        self.enqueues = self._side(enqueues, "input")
        self.dequeues = self._side(dequeues, "output")
        self.infos, self.empties = sorted(infos), empties

    def _side(self, places: list[int], field_name: str) -> Side:
        places.sort(key=lambda place: (self.ends[place], self.begins[place]))
        of_value: dict[Hashable, list[int]] = {}
        for index, place in enumerate(places):
            value = frozen(getattr(self.operations[place], field_name))
            of_value.setdefault(value, []).append(index)
        return Side(
            tuple(self.begins[place] for place in places),
            (*(self.ends[place] for place in places), self.infinite),
            {value: tuple(indices) for value, indices in of_value.items()},
        )

    def is_linearizable(self) -> bool | None:
        """Returns whether there is an order; None if too many states were visited."""
        visited: dict[tuple[int, int], list[int]] = {}
        stack = [State(0, 0, 0, 0, 0)]
        for _ in range(STATES_MAX):
            if not stack:
                return False
            advanced = self._advance(stack.pop())
            if advanced is None:
                continue
            state, removals = advanced
            if self._is_whole(state):
                return True
            before = visited.setdefault((state.enqueues, state.dequeues), [])
            if any(state.empties | empties == empties for empties in before):
                continue
            before.append(state.empties)
            following = [*self._next(state, removals), *self._unknown(state)]
            if not following:
                self._note_end(state)
            stack += reversed(following)
        return None

    def blocked(self) -> int:
        """Returns the position of the dequeue whose completion no order passes, after a search without success."""
        return self.ends.index(self.farthest)

    def _note_end(self, state: State) -> None:
        """Notes which dequeue is missing where nothing can follow."""
        ends = [self.ends[place] for _, place in self._empties_left(state)]
        self.farthest = max(self.farthest, min([*ends, self.dequeues.limit(state.dequeues)]))

    def _is_whole(self, state: State) -> bool:
        return (
            self.dequeues.limit(state.dequeues) == self.infinite
            and state.empties == (1 << len(self.empties)) - 1
        )

    def _advance(self, state: State) -> tuple[State, list[tuple[int, int]]] | None:
        """Makes removals without a choice; returns what else is possible then, None if there is no way on."""
        while True:
            empties = self._observe(state)
            if empties is None:
                return None
            state = state._replace(empties=empties)
            limit = self.dequeues.limit(state.dequeues)
            soon = max(state.latest, self._next_empty(state))
            removals: list[tuple[int, int]] = []
            for value in self.dequeues.of_value:
                dequeues, is_dequeue_next = self.dequeues.possible(
                    value, state.dequeues, limit, soon
                )
                if not dequeues:
                    continue
                enqueues, is_enqueue_next = self.enqueues.possible(
                    value,
                    state.enqueues,
                    min(limit, self.enqueues.limit(state.enqueues)),
                    soon,
                )
                if is_dequeue_next and is_enqueue_next:
                    state = self._removed(state, enqueues[0], dequeues[0])
                    break
                removals += product(dequeues, enqueues)
            else:
                return state, removals

    def _observe(self, state: State) -> int | None:
        """Returns which dequeues that found nothing took effect by now; None if one of them never can."""
        limit = min(self.enqueues.limit(state.enqueues), self.dequeues.limit(state.dequeues))
        done = state.empties
        for index, place in self._empties_left(state):
            if max(state.latest, self.begins[place]) <= min(limit, self.ends[place]):
                done |= 1 << index
            elif self.ends[place] < state.latest:
                self.farthest = max(self.farthest, self.ends[place])
                return None
        return done

    def _next_empty(self, state: State) -> int:
        return min(
            (self.begins[place] for _, place in self._empties_left(state)), default=self.infinite
        )

    def _empties_left(self, state: State) -> Iterator[tuple[int, int]]:
        for index, place in enumerate(self.empties):
            if not state.empties >> index & 1:
                yield index, place

    def _removed(self, state: State, enqueue: int, dequeue: int) -> State:
        begins = self.enqueues.begins[enqueue], self.dequeues.begins[dequeue]
        return state._replace(
            enqueues=state.enqueues | 1 << enqueue,
            dequeues=state.dequeues | 1 << dequeue,
            latest=max(state.latest, *begins),
        )

    def _next(self, state: State, removals: list[tuple[int, int]]) -> list[State]:
        """Returns what follows each of these removals; the dequeue that completes first comes first."""
        return [self._removed(state, enqueue, dequeue) for dequeue, enqueue in sorted(removals)]

    def _unknown(self, state: State) -> Iterator[State]:
        """Yields what follows if an `info` dequeue removes the enqueue that completes first."""
        limit = self.dequeues.limit(state.dequeues)
        first = _first_left(state.enqueues)
        if state.infos == len(self.infos) or self.enqueues.ends[first] == self.infinite:
            return
        begins = self.infos[state.infos], self.enqueues.begins[first]
        if max(begins) <= limit:
            yield State(
                state.enqueues | 1 << first,
                state.dequeues,
                state.infos + 1,
                state.empties,
                max(state.latest, *begins),
            )


def _first_left(taken: int) -> int:
    return (~taken & (taken + 1)).bit_length() - 1
