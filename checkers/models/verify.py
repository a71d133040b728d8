"""Checks an order of operations by running it, so that a wrong `valid` cannot come from the search."""

from collections.abc import Hashable, Sequence

from checkers.models.calls import initial_state, step
from checkers.models.model import Model
from checkers.models.operation import OK, Operation
from checkers.models.order import comes_first


def objection_to_order(
    model: Model, operations: Sequence[Operation], order: Sequence[tuple[int, Hashable]]
) -> str:
    """Returns why an order is no linearization of the operations; empty if it is one.

    Args:
        model: The object.
        operations: All `ok` and `info` operations of one object; `validate` has accepted them.
        order: (position, state after it) of every operation that takes effect.
    """
    placed = {position for position, _ in order}
    if len(placed) != len(order):
        return "an operation takes effect twice"
    if any(one.outcome == OK and place not in placed for place, one in enumerate(operations)):
        return "an ok operation does not take effect"
    state: Hashable = initial_state(model)
    latest_invocation_ns: int | None = None
    begun: dict[tuple[int | str, int], list[Operation]] = {}
    for position, expected in order:
        operation = operations[position]
        after = step(model, state, operation)
        if after is None or after != expected:
            return f"the model does not accept {operation.text()!r} in its place"
        state = after
        if latest_invocation_ns is None or operation.invoked_ns > latest_invocation_ns:
            latest_invocation_ns = operation.invoked_ns
        begun.setdefault((operation.process, operation.invoked_ns), []).append(operation)
        if operation.outcome != OK:
            continue
        assert operation.completed_ns is not None
        if operation.completed_ns < latest_invocation_ns:
            return f"{operation.text()!r} takes effect after an operation that was invoked later"
        following = begun.get((operation.process, operation.completed_ns), ())
        if any(comes_first(operation, one) for one in following if one is not operation):
            return f"{operation.text()!r} takes effect after the next operation of its process"
    return ""
