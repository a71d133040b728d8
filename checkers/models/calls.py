"""Calls of a user's model. What goes wrong inside becomes a sentence that names the model and the operation."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from checkers.models.model import CanReach, Deciding, Decision, Described, Foreseeing, Model
from checkers.models.operation import Operation
from checkers.models.values import text
from harness.errors import HarnessError, UsageError

T = TypeVar("T")


def call(model: Model, operation: Operation, method: Callable[[Operation], T]) -> T:
    """Returns what a method of the model returns for an operation.

    Raises:
        UsageError: The method raised an exception.
    """
    return _guarded(model, _name(method), lambda: method(operation), operation)


def hashable(
    model: Model, operation: Operation, method: Callable[[Operation], Hashable]
) -> Hashable:
    """Returns what a method of the model returns for an operation.

    Raises:
        UsageError: The method raised an exception, or returned a value that cannot be hashed.
    """
    return _guarded(model, _name(method), lambda: _hashed(method(operation)), operation)


def objection(model: Model, operation: Operation, method: Callable[[Operation], str]) -> str:
    """Returns what the model objects to; empty if nothing.

    Raises:
        UsageError: The method raised an exception, or returned no text.
    """
    found = call(model, operation, method)
    if found and not isinstance(found, str):
        raise _wrong(model, "objection", found, "a text")
    return found or ""


def initial_state(model: Model) -> Hashable:
    """Returns the state before the first operation.

    Raises:
        UsageError: The model raised an exception, or returned None or a state that cannot be hashed.
    """
    state = _guarded(model, "initial_state", lambda: _hashed(model.initial_state()))
    if state is None:
        raise UsageError(
            f"the model {model.name!r} returned None from initial_state; a state is never None"
        )
    return state


def step(model: Model, state: Hashable, operation: Operation) -> Hashable | None:
    """Returns the state after an operation; None if the model refuses it.

    Raises:
        UsageError: The model raised an exception, or returned a state that cannot be hashed.
    """
    # Called for every transition, so without the closures of `_guarded`.
    try:
        after = model.step(state, operation)
        hash(after)
    except HarnessError:
        raise
    except (Exception, SystemExit) as error:
        raise _failed(model, "step", error, operation) from error
    return after


def decide(model: Deciding, operations: Sequence[Operation]) -> Decision | None:
    """Returns the decision of the model's own procedure; None if it does not apply.

    Raises:
        UsageError: The procedure raised an exception, or returned no decision about these operations.
    """
    assert isinstance(model, Model)
    found: Any = _guarded(model, "decide", lambda: model.decide(operations))
    if found is None:
        return None
    if not isinstance(found, Decision):
        raise _wrong(model, "decide", found, "a Decision or None")
    places = range(len(operations))
    if any(witness not in places for witness in found.witnesses):
        raise UsageError(
            f"the model {model.name!r} returned witnesses from decide that are no positions of the operations"
        )
    return found


def foresee(model: Foreseeing, operations: Sequence[Operation]) -> CanReach | None:
    """Returns the function of the model that recognises states from which a result is out of reach.

    Raises:
        UsageError: The model raised an exception, or returned no function; the function does the former, too.
    """
    assert isinstance(model, Model)
    found: Any = _guarded(model, "foresee", lambda: model.foresee(operations))
    if found is None:
        return None
    if not callable(found):
        raise _wrong(model, "foresee", found, "a function or None")

    def can_reach(state: Hashable, operation: Operation) -> bool:
        what = "the function from foresee"
        return bool(_guarded(model, what, lambda: found(state, operation), operation))

    return can_reach


def describe(model: Model, state: Hashable) -> str:
    """Returns a state as text.

    Raises:
        UsageError: The model raised an exception, or returned no text.
    """
    if not isinstance(model, Described):
        return text(state)
    found: Any = _guarded(model, "describe", lambda: model.describe(state))
    if not isinstance(found, str):
        raise _wrong(model, "describe", found, "a text")
    return found


def _guarded(
    model: Model, name: str, run: Callable[[], T], operation: Operation | None = None
) -> T:
    try:
        return run()
    except HarnessError:
        raise
    except (Exception, SystemExit) as error:
        raise _failed(model, name, error, operation) from error


def _hashed(value: Hashable) -> Hashable:
    """Returns a value, which raises what hashing it raises."""
    hash(value)
    return value


def _name(method: Callable[..., object]) -> str:
    return getattr(method, "__name__", "a method")


def _failed(
    model: Model, name: str, error: BaseException, operation: Operation | None = None
) -> UsageError:
    where = "" if operation is None else f" on {operation.text()!r}"
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return UsageError(f"the model {model.name!r} failed in {name}{where}: {what}")


def _wrong(model: Model, name: str, found: object, expected: str) -> UsageError:
    return UsageError(
        f"the model {model.name!r} returned a value of the type {type(found).__name__} from {name}; return"
        f" {expected}"
    )
