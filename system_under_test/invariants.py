"""Checks that stay enabled under `-O`: a broken invariant ends the run."""

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

S = TypeVar("S")


class InvariantViolation(Exception):  # noqa: N818 - the project's word for it
    """A property that must hold did not hold. Carries the invariant's identifier and the values."""

    def __init__(self, invariant_id: str, message: str, **context: Any) -> None:
        """Stores the identifier (`docs/invariants.md`), a sentence and the values that broke the invariant."""
        self.invariant_id = invariant_id
        self.context = context
        values = ", ".join(f"{name}={value!r}" for name, value in context.items())
        super().__init__(f"{invariant_id}: {message}" + (f" ({values})" if values else ""))


def check_invariant(condition: bool, invariant_id: str, message: str, **context: Any) -> None:
    """Raises `InvariantViolation` unless the condition holds.

    Args:
        condition: What must be true.
        invariant_id: Its name in `docs/invariants.md`, for example "INV-9".
        message: What must hold, as a statement.
        context: The values to report with a violation.
    """
    if not condition:
        raise InvariantViolation(invariant_id, message, **context)


def check_transition(
    legal: Mapping[S, Collection[S]], old: S, new: S, *, of: str, **context: Any
) -> None:
    """Refuses a change of state that the state machine's transition table does not list (INV-12).

    Args:
        legal: For every state, the states that may follow it.
        old: The current state.
        new: The next state.
        of: What has the state, for example "a group".
        context: The values to report with a violation.

    Raises:
        InvariantViolation: The table does not list the transition.
    """
    check_invariant(
        new in legal[old],
        "INV-12",
        f"the state of {of} changes only along listed transitions",
        old=old,
        new=new,
        **context,
    )
