"""Operations on the built-in models, and their verdicts, for tests of the model checker."""

from dataclasses import replace
from typing import Any

from checkers.models import ModelResult, Operation, check_model, find_model
from harness.contracts.verdict import Validity


def op(
    function: str,
    given: Any,
    output: Any,
    begin: int,
    end: int | None,
    outcome: str = "ok",
    process: int | str = 0,
) -> Operation:
    return Operation(
        process=process,
        function=function,
        input=given,
        output=output,
        invoked_ns=begin,
        completed_ns=end,
        outcome=outcome,
    )


def write(value: Any, begin: int, end: int | None, outcome: str = "ok") -> Operation:
    return op("write", value, None, begin, end, outcome)


def read(value: Any, begin: int, end: int, outcome: str = "ok") -> Operation:
    return op("read", None, value, begin, end, outcome)


def cas(old: Any, new: Any, output: Any, begin: int, end: int | None) -> Operation:
    return op("cas", (old, new), output, begin, end, "ok" if end is not None else "info")


def enqueue(value: Any, begin: int, end: int | None) -> Operation:
    return op("enqueue", value, None, begin, end, "ok" if end is not None else "info")


def dequeue(value: Any, begin: int, end: int | None) -> Operation:
    return op("dequeue", None, value, begin, end, "ok" if end is not None else "info")


def check(name: str, *operations: Operation) -> ModelResult:
    """Returns the result, which must not depend on the order in which operations are given."""
    result = check_model(operations, find_model(name), time_limit_s=None)
    reversed_result = check_model(operations[::-1], find_model(name), time_limit_s=None)
    assert reversed_result.validity == result.validity
    return result


def is_valid(name: str, *operations: Operation) -> bool:
    """Returns the verdict about operations of which each is called by a process of its own."""
    alone = [replace(one, process=place) for place, one in enumerate(operations)]
    validity = check(name, *alone).validity
    assert validity in (Validity.VALID, Validity.INVALID)
    return validity == Validity.VALID
