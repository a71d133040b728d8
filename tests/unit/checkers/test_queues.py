"""The model checker on small histories of a queue."""

import re

import pytest

from checkers.models import Operation, queue_search
from checkers.models.queue_decision import decide_queue
from harness.contracts.verdict import Validity
from harness.errors import HistoryError
from tests.unit.checkers.model_operations import check, dequeue, enqueue, is_valid, op

# Queues: the four histories H1 to H4 of Herlihy and Wing, "Linearizability: a correctness condition for concurrent
# objects" (1990), with times of our own.


def test_h1_overlapping_enqueues_may_take_effect_in_either_order() -> None:
    assert is_valid(
        "queue",
        enqueue("x", 1, 3),
        enqueue("y", 2, 5),
        dequeue("x", 6, 7),
        dequeue("y", 4, 8),
        enqueue("z", 9, 10),
    )


def test_h2_a_value_enqueued_later_cannot_be_dequeued_first() -> None:
    result = check("queue", enqueue("x", 1, 2), enqueue("y", 3, 4), dequeue("y", 5, 6))
    assert result.validity == Validity.INVALID
    assert "'x' was enqueued before 'y'" in result.sentence


def test_h3_an_overlapping_enqueue_explains_the_other_value() -> None:
    assert is_valid(
        "queue",
        enqueue("x", 1, 2),
        enqueue("y", 3, 8),
        dequeue("x", 4, 5),
        dequeue("y", 6, 7),
    )


def test_h4_no_value_is_dequeued_twice() -> None:
    result = check(
        "queue",
        enqueue("x", 1, 2),
        enqueue("y", 3, 4),
        dequeue("y", 5, 8),
        dequeue("y", 6, 7),
    )
    assert result.validity == Validity.INVALID
    assert "had returned, too" in result.sentence


def test_a_value_that_was_never_enqueued_cannot_be_dequeued() -> None:
    result = check("queue", enqueue(1, 1, 2), dequeue(2, 3, 4))
    assert result.validity == Validity.INVALID
    assert "never enqueued" in result.sentence
    assert is_valid("queue", enqueue(1, 1, 2), dequeue(1, 3, 4))


def test_a_value_cannot_be_dequeued_before_it_is_enqueued() -> None:
    assert not is_valid("queue", dequeue(1, 1, 2), enqueue(1, 3, 4))
    assert is_valid("queue", dequeue(1, 1, 3), enqueue(1, 3, 4)), "equal times are concurrent"


def test_a_lost_element_shows_when_the_queue_is_found_empty() -> None:
    lost = (enqueue(1, 1, 2), dequeue(None, 3, 4))
    assert not is_valid("queue", *lost)
    assert is_valid("queue", *lost, dequeue(None, 1, 4)) is False
    assert is_valid("queue", enqueue(1, 1, 3), dequeue(None, 3, 4)), "the enqueue may come later"
    assert is_valid("queue", *lost, dequeue(None, 2, None)), "a dequeue without a result took it"


def test_one_dequeue_without_a_result_explains_one_lost_element_only() -> None:
    lost = (enqueue(1, 1, 2), enqueue(2, 3, 4), enqueue(3, 5, 6), dequeue(3, 7, 8))
    assert not is_valid("queue", *lost, dequeue(None, 0, None))
    assert is_valid("queue", *lost, dequeue(None, 0, None), dequeue(None, 8, None))
    assert not is_valid("queue", *lost, dequeue(None, 0, None), dequeue(None, 9, None))


def test_elements_can_cover_an_empty_dequeue_one_after_another() -> None:
    covered = (enqueue(1, 1, 2), enqueue(2, 5, 6), dequeue(1, 8, 9), dequeue(2, 14, 15))
    assert not is_valid("queue", *covered, dequeue(None, 3, 12))
    gap = (enqueue(1, 1, 2), enqueue(2, 5, 9), dequeue(1, 8, 9), dequeue(2, 14, 15))
    assert is_valid("queue", *gap, dequeue(None, 3, 12))


def test_equal_values_are_told_apart() -> None:
    twice = (enqueue(1, 1, 2), enqueue(1, 3, 4), dequeue(1, 5, 6))
    assert is_valid("queue", *twice, dequeue(1, 7, 8), dequeue(None, 9, 10))
    assert not is_valid("queue", *twice, dequeue(None, 7, 8))
    more_often = check("queue", *twice, dequeue(1, 7, 8), dequeue(1, 9, 10))
    assert "more often than it was enqueued" in more_often.sentence
    assert more_often.partitions[0].blocked == (4, 2, 0), "one earlier dequeue, one enqueue"
    nested = (enqueue(1, 1, 20), enqueue(2, 3, 4), enqueue(1, 5, 6))
    assert is_valid("queue", *nested, dequeue(1, 7, 8), dequeue(2, 9, 10), dequeue(1, 11, 12))


@pytest.mark.parametrize(
    "history",
    [
        (enqueue(1, 1, 2), enqueue(1, 3, 4), dequeue(1, 5, 6)),
        (
            enqueue(1, 1, 2),
            enqueue(1, 3, 4),
            dequeue(1, 5, 6),
            dequeue(1, 9, 10),
            dequeue(None, 20, None),
        ),
        (
            enqueue(1, 1, None),
            enqueue(1, 3, None),
            enqueue(2, 3, 4),
            dequeue(1, 5, 6),
            dequeue(1, 9, 10),
            dequeue(2, 11, 12),
        ),
    ],
    ids=["one-is-left", "a-dequeue-without-a-result", "enqueues-without-a-result"],
)
def test_equal_values_in_an_obvious_order_do_not_hide_what_is_wrong(
    history: tuple[Operation, ...],
) -> None:
    result = check("queue", *history, dequeue(None, 7, 8))
    assert "found the queue empty, but at every instant of it a value" in result.sentence


def test_the_dequeue_that_came_too_late_is_a_witness_wherever_it_is_written_down() -> None:
    enqueues = (enqueue(1, 1, 2), enqueue(2, 3, 4))
    assert is_valid("queue", dequeue(1, 5, 6), *enqueues, dequeue(2, 7, 8))
    overtaken = check("queue", dequeue(1, 7, 8), *enqueues, dequeue(2, 5, 6))
    assert overtaken.partitions[0].blocked == (3, 1, 2, 0)


def test_a_dequeue_without_a_result_may_have_taken_the_first_of_two_equal_values() -> None:
    history = (
        enqueue(1, 1, 2),
        enqueue(2, 3, 4),
        enqueue(1, 5, 6),
        dequeue(2, 7, 8),
        dequeue(1, 9, 10),
    )
    assert not is_valid("queue", *history)
    assert is_valid("queue", *history, dequeue(None, 0, None))


# Equal values of which one operation lies within the other: which of them is which is not known.


def test_a_queue_between_two_equal_values_may_have_been_empty() -> None:
    assert is_valid(
        "queue",
        enqueue(0, 0, 4),
        dequeue(None, 1, 7),
        enqueue(0, 2, 8),
        dequeue(0, 3, 11),
        dequeue(None, 5, 6),
        dequeue(0, 9, 10),
    )


def test_a_queue_that_was_empty_in_one_order_only() -> None:
    assert is_valid(
        "queue",
        dequeue(None, 0, None),
        enqueue(2, 1, 18),
        enqueue(1, 2, 4),
        enqueue(1, 3, 11),
        dequeue(2, 5, 8),
        enqueue(2, 6, None),
        enqueue(2, 7, 9),
        dequeue(None, 10, 16),
        dequeue(2, 12, 14),
        dequeue(2, 13, 19),
        enqueue(2, 15, 17),
    )


NESTED = (
    enqueue("x", 0, 20),
    enqueue("x", 1, 2),
    enqueue("y", 3, 4),
    dequeue("y", 7, 8),
)
"""The inner x was enqueued before y, the outer one perhaps after it."""


def test_the_dequeue_without_a_place_among_equal_values_is_named() -> None:
    assert is_valid("queue", *NESTED, dequeue("x", 5, 6), dequeue("x", 9, 10))
    result = check("queue", *NESTED, dequeue("x", 9, 12), dequeue("x", 10, 11))
    assert result.validity == Validity.INVALID
    assert result.partitions[0].blocked == (3,)
    assert "has no place in any order that a queue allows, however equal values are told apart" in (
        result.sentence
    )


def test_a_dequeue_that_found_nothing_has_no_place_among_equal_values() -> None:
    history = (*NESTED, dequeue("x", 5, 6), dequeue("x", 30, 31))
    assert is_valid("queue", *history, dequeue(None, 9, 10))
    result = check("queue", *history, dequeue(None, 9, 10), dequeue(None, 21, 22))
    assert result.partitions[0].blocked == (7,)


def test_too_many_choices_among_equal_values_are_left_to_the_search_of_operations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    history = (*NESTED, dequeue("x", 9, 12), dequeue("x", 10, 11))
    assert decide_queue(history) is not None
    monkeypatch.setattr(queue_search, "STATES_MAX", 1)
    assert decide_queue(history) is None
    assert not is_valid("queue", *history)


def test_queues_with_keys_are_checked_per_key() -> None:
    apart = [enqueue(("x", 1), 1, 2), enqueue(("y", 2), 3, 4)]
    last_first = [op("dequeue", "y", 2, 5, 6), op("dequeue", "x", 1, 7, 8)]
    assert is_valid("keyed-queue", *apart, *last_first)
    assert is_valid("keyed-queue", apart[0], op("dequeue", "y", None, 5, 6))
    assert not is_valid("keyed-queue", apart[0], op("dequeue", "x", None, 5, 6))
    result = check("keyed-queue", *apart, enqueue(("y", 3), 5, 6), op("dequeue", "y", 3, 7, 8))
    (part,) = result.partitions
    assert (part.key, part.blocked[0]) == (("y",), 3)
    assert part.sentence.startswith("key 'y': 2 was enqueued before 3, but 3 was dequeued")
    (alone,) = check("keyed-queue", op("dequeue", "y", 3, 7, 8)).partitions
    assert alone.sentence.startswith("key 'y': ")


@pytest.mark.parametrize(
    ("operation", "sentence"),
    [
        (enqueue(1, 1, 2), "needs the input (key, value), not 1"),
        (enqueue(("x", None), 1, 2), "enqueues nothing"),
        (op("pop", "x", 1, 1, 2), "has the function 'pop'"),
    ],
)
def test_what_is_no_operation_of_a_queue_with_keys_is_refused(
    operation: Operation, sentence: str
) -> None:
    with pytest.raises(HistoryError, match=re.escape(sentence)):
        check("keyed-queue", operation)
