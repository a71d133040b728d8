"""`check_model`: whether a history is linearizable with respect to a model.

`fail` operations and `info` observers are dropped first: neither took a visible effect. Then the objects are
separated (`Partitioned`), because a history is linearizable exactly if the history of each object is. Each object
is decided by the model's own procedure if it has one that applies, otherwise by the search. A linearization that
the search found is checked once more, step by step, before the result is called valid.
"""

import time
from collections.abc import Hashable, Sequence

from checkers.models.calls import decide, describe, hashable, initial_state, objection
from checkers.models.model import Deciding, Decision, Model, Partitioned, Validating
from checkers.models.operation import FAIL, INFO, Operation, validate
from checkers.models.prepare import is_observer, prepare
from checkers.models.result import ModelResult, PartialLinearization, PartitionResult
from checkers.models.search import Budget, Found, Search
from checkers.models.values import text
from checkers.models.verify import objection_to_order
from harness.contracts.verdict import Validity
from harness.errors import HarnessFailure, HistoryError, UsageError

FIRST_CONFIGURATIONS = 5_000
"""What each object may use before any may use more: a hard one must not consume the time of the others."""


def check_model(
    operations: Sequence[Operation],
    model: Model,
    *,
    time_limit_s: float | None = 60.0,
    configurations_max: int | None = None,
) -> ModelResult:
    """Decides whether a history is linearizable with respect to a model.

    Args:
        operations: The history, in any order. Times must come from one clock.
        model: What the history is compared with.
        time_limit_s: When to stop. Objects that are not decided by then are unknown. None for no limit.
        configurations_max: How many configurations of each object may be visited. With this limit alone the result
            depends on nothing but the history. None for no limit.

    Returns:
        The result. `valid` and `invalid` never depend on the limits.

    Raises:
        HistoryError: An operation contradicts itself, or the model cannot interpret it.
        UsageError: The model raises an exception, returns a state that cannot be hashed, or contradicts itself.
    """
    deadline_s = None if time_limit_s is None else time.monotonic() + time_limit_s
    validate(operations)
    objects = [
        _Object(key, places, model, operations)
        for key, places in _partition(operations, model).items()
    ]
    for one in objects:
        one.decide(_budget(configurations_max, FIRST_CONFIGURATIONS, deadline_s))
    undecided = [one for one in objects if one.validity == Validity.UNKNOWN]
    for left, one in zip(range(len(undecided), 0, -1), undecided, strict=True):
        share_s = deadline_s
        if deadline_s is not None:
            now = time.monotonic()
            share_s = now + max(0.0, deadline_s - now) / left
        one.decide(_budget(configurations_max, None, share_s, one.search.configurations))
    return _result(operations, model, objects)


def _budget(total: int | None, part: int | None, deadline_s: float | None, used: int = 0) -> Budget:
    limits = [
        limit for limit in (None if total is None else total - used, part) if limit is not None
    ]
    return Budget(configurations_max=min(limits, default=None), deadline_s=deadline_s)


def _partition(operations: Sequence[Operation], model: Model) -> dict[Hashable | None, list[int]]:
    """Returns the places of the operations that matter, by object; one object if they cannot be separated."""
    places = []
    for place, operation in enumerate(operations):
        if isinstance(model, Validating):
            why = objection(model, operation, model.objection)
            if why:
                raise HistoryError(f"operation {place} ({operation.text()}) {why}")
        if operation.outcome == FAIL:
            continue
        if operation.outcome == INFO and is_observer(model, operation):
            continue
        places.append(place)
    if not isinstance(model, Partitioned):
        return {None: places}
    objects: dict[Hashable | None, list[int]] = {}
    for place in places:
        key = hashable(model, operations[place], model.partition_key)
        if key is None:
            return {None: places}
        objects.setdefault(key, []).append(place)
    return objects


class _Object:
    """The decision about one object, which may take several attempts."""

    def __init__(
        self,
        key: Hashable | None,
        places: Sequence[int],
        model: Model,
        operations: Sequence[Operation],
    ) -> None:
        self.key = key
        self.model = model
        self.places = places
        self.operations = [operations[place] for place in places]
        self.search = Search(model, prepare(model, self.operations))
        self.validity = Validity.UNKNOWN
        self.decision: Decision | None = None
        self.found: Found | None = None
        self.is_foreseen = False

    def decide(self, budget: Budget) -> None:
        """Decides, or continues as far as the budget allows."""
        if self.found is None and isinstance(self.model, Deciding):
            self.decision = decide(self.model, self.operations)
        if self.decision is not None and self.decision.is_valid:
            self.validity = Validity.VALID
            return
        self.found = self.search.run(budget)
        if self.found.is_linearizable:
            self._verify(self.found)
            self.validity = Validity.VALID
        if self.found.is_linearizable is False or self.decision is not None:
            self.validity = Validity.INVALID
            self._explain()

    def _explain(self) -> None:
        """Searches again without foresight, which blames an operation before the one that cannot be explained."""
        if self.search.can_reach is None:
            return
        plain = Search(self.model, self.search.prepared, uses_foresight=False)
        found = plain.run(Budget(configurations_max=FIRST_CONFIGURATIONS))
        if found.is_linearizable:
            raise UsageError(
                f"the model {self.model.name!r} foresees that a linearization is impossible, but there is one: "
                "correct foresee"
            )
        if found.is_linearizable is False:
            self.found = found
            self.is_foreseen = False
        else:
            self.is_foreseen = True

    def _verify(self, found: Found) -> None:
        why = objection_to_order(self.model, self.operations, found.orders[0])
        if self.decision is not None:
            why = "its decision procedure found none"
        if not why:
            return
        sentence = f"the search found a linearization for the model {self.model.name!r}, but {why}"
        if type(self.model).__module__.startswith(f"{__package__}."):
            raise HarnessFailure(sentence)
        raise UsageError(f"{sentence}: correct decide, signature or step")

    def result(self) -> PartitionResult:
        """Returns what is known about an object that is not valid."""
        found = self.found
        assert found is not None
        levels = self.search.prepared.levels
        witnesses = self.decision.witnesses if self.decision is not None else ()
        target = levels[found.level].target
        return PartitionResult(
            key=self.key,
            validity=self.validity,
            sentence=self._sentence(found, self.operations[target]),
            operations=tuple(self.places),
            blocked=self._indices(witnesses or (target,))
            if self.validity == Validity.INVALID
            else (),
            partial_linearizations=tuple(self._partial(order) for order in found.orders),
            completed_count=found.level,
            ok_count=len(levels),
            configurations=self.search.configurations,
            initial_state=self._state_text(initial_state(self.model)),
        )

    def _sentence(self, found: Found, target: Operation) -> str:
        if self.validity == Validity.UNKNOWN:
            return (
                f"the limit was reached after {self.search.configurations} configurations; the first "
                f"{found.level} of {len(self.search.prepared.levels)} ok operations can be ordered"
            )
        if self.decision is not None:
            return self.decision.sentence
        if self.is_foreseen:
            return f"no order of the operations up to {target.text()} leads to the results that were read later"
        others = "operation" if found.level == 1 else "operations"
        earlier = f", although the {found.level} {others} that completed before it can be ordered"
        return (
            f"{target.text()} has no place in any order that the model {self.model.name} allows"
            f"{earlier if found.level else ''}"
        )

    def _partial(self, order: Sequence[tuple[int, Hashable]]) -> PartialLinearization:
        return PartialLinearization(
            operations=self._indices([position for position, _ in order]),
            states=tuple(self._state_text(state) for _, state in order),
        )

    def _state_text(self, state: Hashable) -> str:
        return describe(self.model, state)

    def _indices(self, positions: Sequence[int]) -> tuple[int, ...]:
        return tuple(self.places[position] for position in positions)


def _result(
    operations: Sequence[Operation], model: Model, objects: Sequence[_Object]
) -> ModelResult:
    invalid = [one.result() for one in objects if one.validity == Validity.INVALID]
    unknown = [one.result() for one in objects if one.validity == Validity.UNKNOWN]
    validity = Validity.INVALID if invalid else Validity.UNKNOWN if unknown else Validity.VALID
    return ModelResult(
        model=model.name,
        validity=validity,
        sentence=_overall_sentence(model, len(operations), len(objects), invalid, unknown),
        operation_count=len(operations),
        partitions=(*invalid, *unknown),
        partition_count=len(objects),
        configurations=sum(one.search.configurations for one in objects),
    )


def _key_text(key: Hashable) -> str:
    """Returns a key as text; the built-in models wrap keys in tuples, because None is a key, too."""
    return text(key[0] if isinstance(key, tuple) and len(key) == 1 else key)


def _overall_sentence(
    model: Model,
    operation_count: int,
    object_count: int,
    invalid: Sequence[PartitionResult],
    unknown: Sequence[PartitionResult],
) -> str:
    worst = (*invalid, *unknown)
    if not worst:
        return f"the history of {operation_count} operations is linearizable as a {model.name}"
    first = worst[0]
    where = "" if first.key is None else f"object {_key_text(first.key)}: "
    what = "not linearizable" if invalid else "not decided"
    count = f" ({len(invalid or unknown)} of {object_count} objects)" if object_count > 1 else ""
    return f"the history is {what} as a {model.name}{count}: {where}{first.sentence}"
