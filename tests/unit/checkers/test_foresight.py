"""Which observer the search of a linearization looks forward to."""

from checkers.models import Operation, find_model
from checkers.models.foresight import Foresight
from checkers.models.prepare import prepare


def operation(function: str, given: object, output: object, begin: int, end: int) -> Operation:
    return Operation(
        process=0,
        function=function,
        input=given,
        output=output,
        invoked_ns=begin,
        completed_ns=end,
        outcome="ok",
    )


def test_the_first_observer_that_is_invoked_after_a_completion_is_awaited() -> None:
    """The first get is pending when the append completes; three more follow."""
    history = [
        operation("append", ("k", "a"), None, 1, 3),
        operation("get", "k", "a", 2, 4),
        operation("get", "k", "a", 5, 6),
        operation("get", "k", "ab", 7, 8),
        operation("get", "k", "abc", 9, 10),
    ]
    prepared = prepare(find_model("key-value"), history)
    foresight = Foresight(prepared, lambda overwrite, observer: False)
    awaited = [foresight.following(number) for number in range(len(prepared.levels))]
    positions = [None if one is None else one[1] for one in awaited]
    assert positions == [2, 2, 3, 4, None]
    assert awaited[0] == (prepared.signature_of[2], 2)
