"""Calls of a user's model. What goes wrong inside becomes a sentence that names the model and the operation."""

from collections.abc import Callable, Hashable
from typing import TypeVar

from checkers.models.model import Model
from checkers.models.operation import Operation
from harness.errors import HarnessError, UsageError

T = TypeVar("T")


def call(model: Model, operation: Operation, method: Callable[[Operation], T]) -> T:
    """Returns what a method of the model returns for an operation.

    Raises:
        UsageError: The method raised an exception.
    """
    try:
        return method(operation)
    except HarnessError:
        raise
    except Exception as error:
        raise _failed(model, method, operation, error) from error


def step(model: Model, state: Hashable, operation: Operation) -> Hashable | None:
    """Returns the state after an operation; None if the model refuses it.

    Raises:
        UsageError: The model raised an exception, or returned a state that cannot be hashed.
    """
    try:
        after = model.step(state, operation)
        hash(after)
    except HarnessError:
        raise
    except Exception as error:
        raise _failed(model, model.step, operation, error) from error
    return after


def _failed(
    model: Model, method: Callable[..., object], operation: Operation, error: Exception
) -> UsageError:
    name = getattr(method, "__name__", "a method")
    return UsageError(
        f"the model {model.name!r} failed in {name} on {operation.text()!r}: "
        f"{type(error).__name__}: {error}"
    )
