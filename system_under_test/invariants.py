"""Checks that stay on: a broken invariant ends the run, whatever `-O` says."""

from typing import Any


class InvariantViolation(Exception):  # noqa: N818 - the project's word for it
    """A property that must hold did not. Carries the invariant's identifier and the numbers."""

    def __init__(self, invariant_id: str, message: str, **context: Any) -> None:
        """Keeps the identifier (`docs/invariants.md`), a sentence and the values that broke it."""
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
        context: The numbers that go with it.
    """
    if not condition:
        raise InvariantViolation(invariant_id, message, **context)
