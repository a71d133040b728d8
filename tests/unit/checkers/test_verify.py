"""An order that the search returns is not believed: it is run once more."""

from collections.abc import Hashable

import pytest

from checkers.models import Operation, find_model
from checkers.models.verify import objection_to_order

REGISTER = find_model("register")


def write(value: int, begin: int, end: int, process: int = 0) -> Operation:
    return Operation(
        process=process,
        function="write",
        input=value,
        output=None,
        invoked_ns=begin,
        completed_ns=end,
        outcome="ok",
    )


def objection(operations: list[Operation], *order: tuple[int, Hashable]) -> str:
    return objection_to_order(REGISTER, operations, order)


def test_an_order_with_a_state_that_the_model_does_not_reach_is_refused() -> None:
    assert objection([write(1, 1, 2)], (0, (1,))) == ""
    assert "the model does not accept" in objection([write(1, 1, 2)], (0, (7,)))


@pytest.mark.parametrize(
    "operations",
    [
        # The last one was complete before the second one began, while the first one was under way.
        [write(0, 1, 10), write(1, 5, 6), write(2, 2, 3)],
        [write(0, 0, 0), write(1, 1, 2), write(2, 0, 0)],
    ],
    ids=["under-way", "complete-at-0"],
)
def test_an_operation_cannot_take_effect_after_one_that_was_invoked_later(
    operations: list[Operation],
) -> None:
    refused = objection(operations, (0, (0,)), (1, (1,)), (2, (2,)))
    assert refused.endswith("takes effect after an operation that was invoked later")
    assert objection(operations, (0, (0,)), (2, (2,)), (1, (1,))) == ""


def test_operations_of_one_process_that_touch_keep_their_order() -> None:
    touching = [write(1, 1, 2), write(2, 2, 3)]
    refused = objection(touching, (1, (2,)), (0, (1,)))
    assert refused.endswith("takes effect after the next operation of its process")
    assert objection(touching, (0, (1,)), (1, (2,))) == ""
    other = [write(1, 1, 2), write(2, 2, 3, process=1)]
    assert objection(other, (1, (2,)), (0, (1,))) == ""


def test_operations_without_a_length_at_one_time_are_in_either_order() -> None:
    at_once = [write(1, 2, 2), write(2, 2, 2)]
    assert objection(at_once, (1, (2,)), (0, (1,))) == ""
    assert objection(at_once, (0, (1,)), (1, (2,))) == ""
    then = [write(1, 2, 2), write(2, 2, 3)]
    assert objection(then, (1, (2,)), (0, (1,))).endswith("the next operation of its process")
