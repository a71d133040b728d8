"""What a model is: a sequential object as an initial state and a step from state to state.

A history is linearizable if some of its `info` operations can be dropped and every other operation can be given
one instant between its invocation and its completion, such that the model accepts the operations in the order of
their instants. A model only defines the sequential object. Orders, concurrency and unknown outcomes are the
checker's part.

The abilities below `Model` are optional. A model that has one of them must fulfil its contract, because the
checker relies on it; without them the checker only takes longer.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from checkers.models.operation import Operation


@runtime_checkable
class Model(Protocol):
    """A sequential object. Every method is a pure function of its arguments."""

    @property
    def name(self) -> str:
        """The name in sentences, and under which a package registers the model."""
        ...

    def initial_state(self) -> Hashable:
        """Returns the state before the first operation. States are immutable, hashable and never None."""
        ...

    def step(self, state: Hashable, operation: Operation) -> Hashable | None:
        """Applies one operation.

        Args:
            state: The state before it.
            operation: An operation whose outcome is `ok` or `info`. An `info` operation takes effect here, but its
                output is unknown: the result must not depend on `operation.output`. The result never depends on
                the times of an operation.

        Returns:
            The state after it, or None if the object cannot do this in `state` (for example, a read returned
            something else).
        """
        ...


@runtime_checkable
class Partitioned(Protocol):
    """A model of many independent objects, for example one register per key."""

    def partition_key(self, operation: Operation) -> Hashable | None:
        """Returns which object the operation concerns; None if it concerns several.

        Operations on different objects must not influence each other: each object is judged alone, from the
        initial state. One operation with None joins all objects of the history into one.
        """
        ...


@runtime_checkable
class Validating(Protocol):
    """A model that recognises operations that it cannot interpret."""

    def objection(self, operation: Operation) -> str:
        """Returns what is wrong, as the end of a sentence ("has the function 'pop'; ..."); empty if nothing is."""
        ...


@runtime_checkable
class Described(Protocol):
    """A model with states that are worth a better text than their `repr`."""

    def describe(self, state: Hashable) -> str:
        """Returns a state in a few words, for reports."""
        ...


@runtime_checkable
class Canonical(Protocol):
    """A model that declares which operations are interchangeable."""

    def signature(self, operation: Operation) -> Hashable:
        """Returns a value that is equal for two operations only if `step` treats them alike in every state.

        Without this ability, operations are alike if process, function, input, output and outcome are equal.
        """
        ...


@runtime_checkable
class Observing(Protocol):
    """A model that declares which operations only observe."""

    def is_observer(self, operation: Operation) -> bool:
        """Returns whether `step` returns the state that it was given, or None, in every state."""
        ...


@runtime_checkable
class Overwriting(Protocol):
    """A model that declares which operations replace the whole state."""

    def is_overwrite(self, operation: Operation) -> bool:
        """Returns whether `step` returns one and the same state (never None) in every state."""
        ...


CanReach = Callable[[Hashable, Operation], bool]
"""Whether operations other than overwrites can lead from a state to one in which an observer is legal."""


@runtime_checkable
class Foreseeing(Protocol):
    """A model that recognises states from which a later result is out of reach."""

    def foresee(self, operations: Sequence[Operation]) -> CanReach | None:
        """Returns a function that gets a state and an observer.

        Args:
            operations: The `ok` and `info` operations of one object.

        Returns:
            A function that is false only if no sequence of these operations, without those that `is_overwrite`,
            leads from the state to one in which the observer is legal. None if nothing can be foreseen.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a decision procedure found.

    Attributes:
        is_valid: Whether the operations are linearizable.
        sentence: If they are not: why, in one sentence that a reader can verify.
        witnesses: If they are not: positions of the operations that show it, in the given sequence.
    """

    is_valid: bool
    sentence: str = ""
    witnesses: tuple[int, ...] = ()


@runtime_checkable
class Deciding(Protocol):
    """A model with a decision procedure that is faster than a search."""

    def decide(self, operations: Sequence[Operation]) -> Decision | None:
        """Decides whether operations are linearizable, exactly.

        Args:
            operations: The `ok` and `info` operations of one object.

        Returns:
            The decision; None if the procedure does not apply to these operations, so that the search decides.
        """
        ...
