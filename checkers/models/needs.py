"""Which overwrites a later operation could still notice.

An overwrite is noticed only by an operation that follows it immediately, is no overwrite itself, and is legal in
the state that the overwrite leaves. If no such operation is left, it does not matter whether the overwrite already
took effect, or has yet to: whatever follows it would overwrite it unseen.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from checkers.models.operation import INFO
from checkers.models.prepare import Level, Prepared

ALWAYS = -1
"""Instead of a mask: some operation that could notice it will be there in any case."""

PAIRS_MAX = 500_000
"""With more pairs of an overwrite and another operation, every overwrite counts as needed. About a second."""


class Group(NamedTuple):
    """Alike operations that are pending at one completion.

    Attributes:
        signature: What they have in common.
        members: (slot, position) in the order of their completions.
        is_overwrite: Whether they replace the whole state.
        noticed_now: Slots of pending operations that could notice an overwrite immediately; ALWAYS if an `info`
            operation could. ALWAYS for operations that are no overwrites.
        noticed_ever: The same, but ALWAYS also if an operation that is invoked later could.
        slots: Slots of the members.
    """

    signature: int
    members: tuple[tuple[int, int], ...]
    is_overwrite: bool
    noticed_now: int
    noticed_ever: int
    slots: int


class Infos(NamedTuple):
    """Alike `info` operations that were invoked before one completion."""

    signature: int
    members: tuple[tuple[int, int], ...]
    is_overwrite: bool
    noticed_now: int
    alike_slots: int


class Plan(NamedTuple):
    """What can be tried at one completion: pending operations, and `info` operations."""

    groups: tuple[Group, ...]
    overwrites: tuple[Group, ...]
    infos: tuple[Infos, ...]


@dataclass(slots=True)
class Needs:
    """Plans for one search, computed when they are first requested.

    Attributes:
        prepared: The operations.
        is_legal: Whether an operation with the second signature is legal in the state that an overwrite with the
            first one leaves.
    """

    prepared: Prepared
    is_legal: Callable[[int, int], bool]
    plans: dict[int, Plan] = field(default_factory=dict)
    last_arrival: dict[int, int] = field(default_factory=dict)
    arrivals: list[tuple[int, int]] = field(default_factory=list)
    infos: list[int] = field(default_factory=list)
    is_limited: bool = False

    def __post_init__(self) -> None:
        """Notes when each kind of operation that is no overwrite is invoked last."""
        prepared = self.prepared
        last: dict[int, int] = {}
        infos = set()
        overwrites = set()
        for place, signature in enumerate(prepared.signature_of):
            if prepared.is_overwrite[place]:
                overwrites.add(signature)
            elif prepared.operations[place].outcome == INFO:
                infos.add(signature)
            else:
                last[signature] = max(last.get(signature, 0), prepared.arrival[place])
        self.arrivals = sorted(((level, one) for one, level in last.items()), reverse=True)
        self.infos = sorted(infos)
        self.is_limited = len(overwrites) * (len(last) + len(infos)) > PAIRS_MAX

    def plan(self, number: int) -> Plan:
        """Returns what can be tried at a completion."""
        plan = self.plans.get(number)
        if plan is None:
            plan = self.plans[number] = self._plan(number, self.prepared.levels[number])
        return plan

    def _plan(self, number: int, level: Level) -> Plan:
        infos = []
        for info in self.prepared.info_classes:
            if info.members[0][0] >> level.info_count:
                break
            invoked = tuple(pair for pair in info.members if not pair[0] >> level.info_count)
            alike = sum(
                bit
                for signature, members in level.mutators
                if signature == info.signature
                for bit, _ in members
            )
            now = self._now(level, info.signature) if info.is_overwrite else ALWAYS
            infos.append(Infos(info.signature, invoked, info.is_overwrite, now, alike))
        groups = []
        for signature, members in level.mutators:
            slots = sum(bit for bit, _ in members)
            is_overwrite = bool(slots & level.overwrite_mask)
            now = ever = ALWAYS
            if is_overwrite:
                now = self._now(level, signature)
                is_later = self.is_limited or self._last_arrival(signature) > number
                ever = ALWAYS if is_later else now
            groups.append(Group(signature, members, is_overwrite, now, ever, slots))
        overwrites = tuple(group for group in groups if group.is_overwrite)
        return Plan(tuple(groups), overwrites, tuple(infos))

    def _now(self, level: Level, overwrite: int) -> int:
        """Returns the slots of the pending operations that could notice an overwrite, or ALWAYS."""
        for info in self.prepared.info_classes:
            if info.members[0][0] >> level.info_count:
                break
            if not info.is_overwrite and self.is_legal(overwrite, info.signature):
                return ALWAYS
        mask = 0
        for bit, signature, _ in level.observers:
            if self.is_legal(overwrite, signature):
                mask |= bit
        for signature, members in level.mutators:
            if not members[0][0] & level.overwrite_mask and self.is_legal(overwrite, signature):
                for bit, _ in members:
                    mask |= bit
        return mask

    def _last_arrival(self, signature: int) -> int:
        """Returns the last level at which an operation is invoked that could notice it."""
        last = self.last_arrival.get(signature)
        if last is None:
            if any(self.is_legal(signature, info) for info in self.infos):
                last = len(self.prepared.levels)
            else:
                last = next(
                    (level for level, other in self.arrivals if self.is_legal(signature, other)), -1
                )
            self.last_arrival[signature] = last
        return last
