"""Which observers are still to come, and which overwrites could lead to their results.

A model that can foresee (`checkers.models.model.Foreseeing`) knows whether a state can lead to the result of an
observer without an overwrite. Overwrites are added here: each of them leads to one known state, and it can take
effect as long as it is not linearized.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

from checkers.models.operation import INFO
from checkers.models.prepare import Prepared

ALWAYS = -1
"""Instead of a mask: an overwrite that is not pending yet, or an `info` one, leads there."""

COMPLETIONS_MAX = 200
"""How many completions ahead an observer is considered. Later ones would exclude the same states later."""


@dataclass(slots=True)
class Foresight:
    """What is to come at each completion, computed when it is first requested.

    Attributes:
        prepared: The operations.
        leads_to: Whether the state after an overwrite with the first signature can lead to the result of an
            observer with the second one.
    """

    prepared: Prepared
    leads_to: Callable[[int, int], bool]
    next_observer: dict[int, tuple[int, int] | None] = field(default_factory=dict)
    masks: dict[tuple[int, int], int] = field(default_factory=dict)
    overwrites: list[tuple[int, int]] = field(default_factory=list)
    infos: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Sorts the overwrites by the level at which they are invoked."""
        prepared = self.prepared
        for place, signature in enumerate(prepared.signature_of):
            if not prepared.replaces[place]:
                continue
            if prepared.operations[place].outcome == INFO:
                self.infos.add(signature)
            else:
                self.overwrites.append((prepared.arrival[place], signature))
        self.overwrites.sort()

    def following(self, number: int) -> tuple[int, int] | None:
        """Returns signature and position of the first observer that is invoked after a completion."""
        if number not in self.next_observer:
            self.next_observer[number] = self._following(number)
        return self.next_observer[number]

    def _following(self, number: int) -> tuple[int, int] | None:
        for level in self.prepared.levels[number + 1 : number + COMPLETIONS_MAX]:
            if not level.target_bit & level.observer_mask:
                continue
            if self.prepared.arrival[level.target] > number:
                return self.prepared.signature_of[level.target], level.target
        return None

    def detours(self, number: int, observer: int, position: int) -> int:
        """Returns the slots of pending overwrites that lead to the result of an observer, or ALWAYS.

        Args:
            number: The completion at which the search is.
            observer: Signature of the observer.
            position: The observer, which is pending there or invoked later.
        """
        key = (number, position)
        mask = self.masks.get(key)
        if mask is None:
            mask = self.masks[key] = self._detours(number, observer)
        return mask

    def _detours(self, number: int, observer: int) -> int:
        later = self.overwrites[
            bisect_right(self.overwrites, (number, len(self.prepared.samples))) :
        ]
        if any(self.leads_to(signature, observer) for signature in self.infos):
            return ALWAYS
        if any(self.leads_to(signature, observer) for _, signature in later):
            return ALWAYS
        level = self.prepared.levels[number]
        mask = 0
        for signature, members in level.mutators:
            if self.prepared.replaces[members[0][1]] and self.leads_to(signature, observer):
                for bit, _ in members:
                    mask |= bit
        return mask
