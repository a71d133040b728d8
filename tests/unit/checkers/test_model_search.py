"""The search of the model checker: its limits and its course."""

from dataclasses import replace

import pytest

from checkers.models import Operation, check_model, find_model
from checkers.models.registers import KeyValue
from harness.contracts.verdict import Validity
from tests.unit.checkers.model_operations import cas, check, dequeue, enqueue, op, read, write

# Limits


def hard_history() -> list[Operation]:
    """Returns twenty concurrent appends and a read that no order of them explains.

    With a cas in the history the model foresees nothing.
    """
    appends = [op("append", ("hard", chr(97 + index)), None, 1, 90 + index) for index in range(20)]
    found_another_value = op("cas", ("hard", "x", "y"), False, 1, 300)
    return [*appends, found_another_value, op("get", "hard", "impossible", 200, 201)]


def test_an_initial_value_from_which_no_result_can_come_blames_the_first_operation() -> None:
    """Nothing can be ordered, and without foresight the search is too long to show more."""
    history = [*hard_history()[:20], op("get", "hard", "impossible", 200, 201)]
    result = check_model(history, KeyValue(initial="start"), time_limit_s=None)
    (partition,) = result.partitions
    assert partition.validity == Validity.INVALID
    assert (partition.completed_count, partition.blocked) == (0, (0,))
    assert "no order of the operations up to process 0 append" in partition.sentence


def test_a_limit_makes_the_result_unknown_and_reports_how_far_the_search_came() -> None:
    model = find_model("key-value")
    result = check_model(hard_history(), model, time_limit_s=None, configurations_max=50)
    again = check_model(hard_history(), model, time_limit_s=None, configurations_max=50)
    assert result == again
    assert result.validity == Validity.UNKNOWN
    (partition,) = result.partitions
    assert (partition.configurations, partition.completed_count) == (50, 20)
    assert len(partition.partial_linearizations[0].operations) == 21
    assert not partition.blocked
    assert result.sentence.endswith(
        "the limit was reached after 50 configurations; the first 20 of 22 ok operations can be ordered"
    )
    at_once = check_model(hard_history(), model, time_limit_s=0.0)
    assert at_once.validity == Validity.UNKNOWN
    assert 0 < at_once.configurations < 5_000


@pytest.mark.parametrize(("configurations_max", "visited"), [(None, 5_000), (6_000, 5_000), (7, 7)])
def test_a_decided_history_is_searched_for_partial_linearizations_within_a_limit(
    configurations_max: int | None, visited: int
) -> None:
    history = [
        *(enqueue(value, 1, 20) for value in range(8)),
        dequeue(9, 10, 11),
    ]
    result = check_model(
        history, find_model("queue"), time_limit_s=None, configurations_max=configurations_max
    )
    assert result.validity == Validity.INVALID
    assert "never enqueued" in result.sentence
    assert result.configurations == visited


def test_several_objects_can_remain_undecided() -> None:
    other = [
        replace(one, input="hard 2" if one.function == "get" else ("hard 2", *one.input[1:]))
        for one in hard_history()
    ]
    result = check_model([*hard_history(), *other], find_model("key-value"), configurations_max=50)
    assert [one.configurations for one in result.partitions] == [50, 50]
    assert "not decided as a key-value (2 of 2 objects)" in result.sentence


def test_a_hard_key_does_not_keep_an_easy_one_from_being_judged() -> None:
    hard = [op("append", ("hard", chr(97 + index)), None, 1, 90 + index) for index in range(20)]
    hard.append(op("get", "hard", "impossible", 200, 201))
    easy = [op("put", ("easy", 1), None, 1, 2), op("get", "easy", None, 3, 4)]
    result = check_model(
        [*hard_history(), *easy], find_model("key-value"), configurations_max=2_000
    )
    assert result.validity == Validity.INVALID
    assert [(one.key, one.validity) for one in result.partitions] == [
        (("easy",), Validity.INVALID),
        (("hard",), Validity.UNKNOWN),
    ]


# The course of the search


def two_ways(*, reads: int, steps: int) -> list[Operation]:
    """Returns operations of which none explains a read of 7: a cas with reads, or several cas in a row."""
    return [
        read(7, 2, 3),
        cas(None, "read", True, 1, 9),
        *[read("read", 1, 9)] * reads,
        cas(None, 1, True, 1, 9),
        *(cas(value, value + 1, True, 1, 9) for value in range(1, steps)),
    ]


@pytest.mark.parametrize(
    ("history", "lengths"),
    [
        (two_ways(reads=2, steps=4), [4, 3, 3, 2, 1]),
        (two_ways(reads=3, steps=3), [4, 3, 2, 1, 0]),
        (
            [
                op("put", ("k", "a"), None, 1, 6),
                op("put", ("k", "a"), None, 2, 4),
                op("cas", ("k", "b", "a"), True, 3, 7),
                op("append", ("k", "a"), None, 5, 8),
            ],
            [3, 3, 2],
        ),
    ],
    ids=["more-steps", "more-reads", "overwritten-unseen"],
)
def test_the_longest_partial_linearizations_come_first_and_are_five_at_most(
    history: list[Operation], lengths: list[int]
) -> None:
    name = "key-value" if history[0].function == "put" else "cas-register"
    (partition,) = check(name, *history).partitions
    assert [len(one.operations) for one in partition.partial_linearizations] == lengths


@pytest.mark.parametrize(
    ("history", "count"),
    [
        ((write(1, 1, 2), read(1, 1, 9), read(7, 3, 4)), 1),
        ((write(1, 1, 2), cas(5, 6, False, 1, 9), read(7, 3, 4)), 1),
        (
            (
                write(2, 1, 5),
                write(0, 2, None, "info"),
                read(3, 3, 7),
                read(0, 4, 8),
                write(0, 6, 9),
            ),
            3,
        ),
        ((write(1, 1, 4), write(2, 2, 3), read(None, 4, 6), write(1, 5, 7), read(1, 6, 8)), 2),
    ],
    ids=["read", "failed-cas", "overwrite-noticed-by-one-read", "overwrite-noticed-now-only"],
)
def test_orders_that_differ_in_nothing_that_can_be_noticed_are_tried_once(
    history: tuple[Operation, ...], count: int
) -> None:
    (partition,) = check("cas-register", *history).partitions
    assert len(partition.partial_linearizations) == count


def test_operations_that_no_completion_forces_are_tried_last() -> None:
    history = [
        op("append", ("k", "a"), None, 1, 7),
        op("cas", ("k", "a", "b"), None, 2, None, "info"),
        op("cas", ("k", "b", "c"), True, 3, 5),
        op("put", ("k", "a"), None, 4, 6),
    ]
    result = check_model(history, find_model("key-value"), configurations_max=9)
    assert result.validity == Validity.VALID
