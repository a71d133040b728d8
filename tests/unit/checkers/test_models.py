"""The model checker on small histories whose verdict can be seen by eye."""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from decimal import Decimal
from importlib import metadata
from typing import Any

import pytest

from checkers.models import (
    Model,
    ModelResult,
    Operation,
    check_model,
    find_model,
    model_names,
)
from checkers.models.registers import KeyValue
from checkers.models.registry import GROUP
from harness.contracts.verdict import Validity
from harness.errors import HistoryError, UsageError

NAMES = ("register", "cas-register", "key-value", "set", "queue")


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
    validity = check(name, *operations).validity
    assert validity in (Validity.VALID, Validity.INVALID)
    return validity == Validity.VALID


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


# Registers


def test_a_stale_read_is_invalid_and_an_overlapping_one_is_not() -> None:
    result = check("register", write(1, 1, 2), write(2, 3, 4), read(1, 5, 6))
    assert result.validity == Validity.INVALID
    assert is_valid("register", write(1, 1, 2), write(2, 3, 4), read(1, 4, 6))
    (partition,) = result.partitions
    assert partition.blocked == (2,)
    assert (partition.completed_count, partition.ok_count) == (2, 3)
    (partial,) = partition.partial_linearizations
    assert (partial.operations, partial.states) == ((0, 1), ("1", "2"))
    assert result.sentence == (
        "the history is not linearizable as a register: process 0 read -> 1 has no place in any order that the "
        "model register allows, although the 2 operations that completed before it can be ordered"
    )


def test_two_reads_cannot_see_two_writes_in_opposite_orders() -> None:
    writes = (write(1, 1, 9), write(2, 1, 9))
    assert is_valid("register", *writes, read(1, 2, 3), read(2, 4, 5))
    assert not is_valid("register", *writes, read(1, 2, 3), read(2, 4, 5), read(1, 6, 7))
    assert is_valid("register", *writes, read(1, 2, 3), read(2, 4, 5), read(1, 4, 7))


def test_a_write_without_a_result_may_take_effect_late_or_never_but_once() -> None:
    info = write(1, 1, 2, "info")
    assert is_valid("register", info, write(2, 3, 4), read(1, 5, 6))
    assert is_valid("register", info, read(None, 3, 4))
    assert not is_valid(
        "register", info, read(1, 3, 4), write(2, 5, 6), read(2, 7, 8), read(1, 9, 10)
    )
    assert not is_valid("register", read(1, 0, 0), info)


def test_of_several_writes_without_a_result_those_that_were_invoked_before_a_read_explain_it() -> (
    None
):
    invoked_later, invoked_before = write(2, 5, None, "info"), write(1, 1, None, "info")
    assert is_valid("register", invoked_later, invoked_before, read(1, 3, 4))
    assert not is_valid("register", invoked_later, invoked_before, read(2, 3, 4))


def test_a_pending_write_explains_what_can_follow_it() -> None:
    assert is_valid("register", write(7, 0, 0), write(None, 1, 9), read(None, 2, 3))
    for end in (8, None):
        follower = cas(1, 2, None, 1, end)
        history = (read(2, 3, 4), write(1, 0, 9), read(2, 5, 6), follower)
        assert is_valid("cas-register", *history)


@pytest.mark.parametrize(
    "history",
    [
        (
            write(4, 1, 3),
            write(1, 2, 5),
            cas(4, 5, False, 4, 7),
            write(0, 6, 11),
            write(1, 8, 9),
            read(0, 10, 12),
        ),
        (
            write(4, 1, 4),
            write(2, 2, 12),
            write(2, 3, 6),
            read(2, 5, 7),
            write(3, 8, 9),
            read(2, 10, 11),
        ),
    ],
    ids=["after-a-failed-cas", "after-an-equal-write"],
)
def test_a_write_that_a_later_read_can_notice_is_kept(history: tuple[Operation, ...]) -> None:
    assert is_valid("cas-register", *history)


def test_a_failed_write_is_never_read() -> None:
    assert not is_valid("register", write(1, 1, 2, "fail"), read(1, 3, 4))
    assert is_valid("register", write(1, 1, 2, "fail"), read(7, 1, 2, "fail"), read(None, 3, 4))


def test_cas_sequences() -> None:
    chain = (write(0, 1, 2), cas(0, 1, True, 3, 4), cas(1, 2, None, 5, 6))
    assert is_valid("cas-register", *chain, read(2, 7, 8))
    assert not is_valid("cas-register", *chain, read(1, 7, 8))
    assert not is_valid("cas-register", *chain, cas(0, 5, True, 7, 8))
    assert is_valid("cas-register", *chain, cas(0, 5, False, 7, 8), read(2, 9, 10))
    assert not is_valid("cas-register", *chain, cas(2, 5, False, 7, 8))
    assert is_valid("cas-register", *chain[:1], cas(0, 1, None, 3, 4), cas(0, 1, False, 5, 6))


def test_two_concurrent_cas_from_one_value_cannot_both_succeed() -> None:
    both = (write(0, 1, 2), cas(0, 1, True, 3, 9), cas(0, 2, True, 3, 9))
    assert not is_valid("cas-register", *both)
    assert is_valid("cas-register", *both, write(0, 4, 5))
    assert is_valid("cas-register", *both[:2], replace(both[2], output=False))


def test_a_cas_without_a_result_may_have_failed() -> None:
    assert is_valid("cas-register", write(0, 1, 2), cas(0, 1, None, 3, None), read(1, 4, 5))
    assert is_valid("cas-register", write(0, 1, 2), cas(0, 1, None, 3, None), read(0, 4, 5))
    assert not is_valid("cas-register", write(0, 1, 2), cas(5, 1, None, 3, None), read(1, 4, 5))


@pytest.mark.parametrize(
    ("name", "unknown", "seen"),
    [
        ("cas-register", op("cas", (None, 1), False, 1, None, "info"), read(1, 4, 5)),
        ("set", op("add", 1, False, 1, None, "info"), op("contains", 1, True, 4, 5)),
    ],
)
def test_an_output_without_a_known_outcome_says_nothing(
    name: str, unknown: Operation, seen: Operation
) -> None:
    assert is_valid(name, unknown, seen)


def test_booleans_and_numbers_are_different_values() -> None:
    assert not is_valid("register", write(1, 1, 2), read(True, 3, 4))
    assert not is_valid("register", write(0, 1, 2), read(False, 3, 4))
    assert is_valid("register", write([1, {"a": {2}}], 1, 2), read((1, {"a": {2}}), 3, 4))
    nan = float("nan")
    assert is_valid("register", write(nan, 1, 2), read(float("nan"), 3, 4))


def test_integers_decimals_and_floating_point_numbers_are_different_values() -> None:
    numbers = [1, 1.0, Decimal(1)]
    for written in numbers:
        for found in numbers:
            is_same = type(written) is type(found)
            assert is_valid("register", write([written], 1, 2), read([found], 3, 4)) == is_same
    assert is_valid("register", write(Decimal("1.50"), 1, 2), read(Decimal("1.5"), 3, 4))


@pytest.mark.parametrize(
    ("value", "shown"),
    [(False, "false"), (1.5, "1.5"), (Decimal("1.5"), "1.5M"), ([True], "(true,)")],
)
def test_an_element_that_was_never_added_is_shown_as_a_reader_would_write_it(
    value: Any, shown: str
) -> None:
    result = check("set", op("read", None, [value], 1, 2))
    assert f"saw the element {shown}, which was never added" in result.sentence


# Key-value stores and sets


def test_keys_are_independent_and_the_broken_one_is_named() -> None:
    result = check(
        "key-value",
        op("put", ("a", 1), None, 1, 2),
        op("put", ("b", 1), None, 1, 2),
        op("append", ("b", "x"), None, 1, 9, "fail"),
        op("get", "a", 1, 3, 4),
        op("get", "b", None, 3, 4),
    )
    assert result.validity == Validity.INVALID
    assert result.partition_count == 2
    (partition,) = result.partitions
    assert partition.operations == (1, 4)
    assert "(1 of 2 objects): object 'b': process 0 get 'b' -> nil" in result.sentence


def test_appended_text_shows_every_append_once_and_in_order() -> None:
    appends = (op("append", ("k", "a"), None, 1, 2), op("append", ("k", "b"), None, 3, 4))
    assert is_valid("key-value", *appends, op("get", "k", "ab", 5, 6))
    assert not is_valid("key-value", *appends, op("get", "k", "ba", 5, 6))
    assert not is_valid("key-value", *appends, op("get", "k", "abb", 5, 6))
    assert is_valid("key-value", *appends, op("cas", ("k", "ab", "c"), True, 5, 6))


@pytest.mark.parametrize("begin", [None, "start"])
def test_a_later_read_guides_the_order_of_concurrent_appends(begin: str | None) -> None:
    letters = "hgpaenlibkcmjfdo"
    history = [op("append", ("k", letter), None, 1, 90) for letter in sorted(letters)]
    if begin is not None:
        history.append(op("put", ("k", begin), None, 0, 0))
    read_value = (begin or "") + letters
    for value, expected in (
        (read_value, Validity.VALID),
        (read_value[:-2] + "zz", Validity.INVALID),
    ):
        result = check_model(
            [*history, op("get", "k", value, 91, 92)],
            find_model("key-value"),
            time_limit_s=None,
            configurations_max=3_000,
        )
        assert result.validity == expected
        is_foreseen = "leads to the results that were read later" in result.sentence
        assert is_foreseen == (expected == Validity.INVALID)


def test_a_put_explains_a_value_that_does_not_begin_like_the_initial_one() -> None:
    store = KeyValue(initial="old")
    history = [op("put", ("k", "new"), None, 1, 9), op("get", "k", "new", 2, 3)]
    assert check_model(history, store).validity == Validity.VALID
    assert check_model(history[1:], store).validity == Validity.INVALID


def test_a_set_loses_no_element_and_reads_agree_on_the_order() -> None:
    adds = (op("add", 1, None, 1, 9), op("add", 2, None, 1, 9))
    assert is_valid("set", *adds, op("read", None, [1], 2, 3), op("read", None, [2, 1], 4, 5))
    opposite = check("set", *adds, op("read", None, [1], 2, 8), op("read", None, [2], 2, 8))
    assert opposite.validity == Validity.INVALID
    assert opposite.sentence.count("must precede") == 4
    assert "and so on" not in opposite.sentence
    for added_ns in (0, 2):
        lost = (op("add", 1, None, 0, added_ns), op("read", None, [], added_ns + 1, 4))
        assert not is_valid("set", *lost)
    assert not is_valid("set", op("read", None, [3], 3, 4))
    assert not is_valid("set", op("add", 1, None, 1, 2), op("contains", 1, False, 3, 4))
    assert is_valid("set", op("add", 1, None, 1, None, "info"), op("contains", 1, False, 3, 4))


def test_a_long_contradiction_about_a_set_is_cut_after_four_operations() -> None:
    result = check(
        "set",
        op("add", 1, None, 1, 20),
        op("add", 2, None, 1, 20),
        op("read", None, [1], 1, 20),
        op("contains", 2, True, 1, 2),
        op("contains", 1, False, 3, 4),
    )
    assert result.partitions[0].blocked == (4, 0, 2, 1, 3)
    assert result.sentence.endswith(
        "process 0 add 2 -> ok, and so on (5 operations), which must precede the first one"
    )


def test_elements_are_independent_unless_the_whole_set_is_read() -> None:
    history = (op("add", 1, None, 1, 2), op("contains", 2, True, 3, 4))
    apart = check("set", *history)
    assert (apart.partition_count, apart.partitions[0].key) == (2, (2,))
    together = check("set", *history, op("read", None, [1], 5, 6))
    assert (together.partition_count, together.partitions[0].key) == (1, None)


def test_removed_elements_are_absent() -> None:
    history = (op("add", 1, True, 1, 2), op("remove", 1, True, 3, 4))
    assert is_valid("set", *history, op("contains", 1, False, 5, 6))
    assert not is_valid("set", *history, op("contains", 1, True, 5, 6))
    assert not is_valid("set", *history, op("add", 1, False, 5, 6), op("read", None, [], 7, 8))


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


# Models


@dataclass(frozen=True)
class Counter:
    """A model without any optional ability."""

    name: str = "counter"

    def initial_state(self) -> Hashable:
        return 0

    def step(self, state: Hashable, operation: Operation) -> Hashable | None:
        assert isinstance(state, int)
        if operation.function == "increment":
            return state + 1
        if operation.outcome == "info":
            return state
        return state if operation.output == state else None


COUNTER = Counter()


def test_a_model_of_the_user_needs_an_initial_state_and_a_step_only() -> None:
    model: Model = COUNTER
    increments = [op("increment", None, None, 1, 9, process=process) for process in range(4)]
    increments.append(op("increment", None, None, 1, None, "info", 9))
    for value, expected in ((3, False), (4, True), (5, True), (6, False)):
        final = op("get", None, value, 10, 11)
        assert (check_model([*increments, final], model).validity == Validity.VALID) == expected
    assert check_model([], model).validity == Validity.VALID


def test_reads_of_a_model_of_the_user_with_different_results_are_different_operations() -> None:
    history = [
        op("get", None, 0, 1, 2),
        op("increment", None, None, 3, 4),
        op("get", None, 1, 5, 6),
    ]
    assert check_model(history, COUNTER).validity == Validity.VALID
    history[2] = replace(history[2], output=0)
    assert check_model(history, COUNTER).validity == Validity.INVALID


@dataclass(frozen=True)
class Lock:
    """A model whose steps depend on the process."""

    name: str = "lock"

    def initial_state(self) -> Hashable:
        return "free"

    def step(self, state: Hashable, operation: Operation) -> Hashable | None:
        if operation.function == "acquire":
            return operation.process if state == "free" else None
        return "free" if state == operation.process else None


def test_a_model_may_depend_on_the_process() -> None:
    held = [
        op("acquire", None, None, 1, 5, process="a"),
        op("release", None, None, 6, 7, process="a"),
    ]
    other = [
        op("acquire", None, None, 1, 9, process="b"),
        op("release", None, None, 10, 11, process="b"),
    ]
    assert check_model([*held, *other], Lock()).validity == Validity.VALID
    both = [*held[:1], replace(other[0], completed_ns=5), *held[1:], *other[1:]]
    assert check_model(both, Lock()).validity == Validity.INVALID


class Broken(Counter):
    def step(self, state: Hashable, operation: Operation) -> Hashable | None:
        raise KeyError("surprise")


class Unhashable(Counter):
    def step(self, state: Hashable, operation: Operation) -> Any:
        return [1]


class LyingObserver(Counter):
    def is_observer(self, operation: Operation) -> bool:
        return True


class LyingOverwrite(Counter):
    def is_overwrite(self, operation: Operation) -> bool:
        return True


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (Broken(), "the model 'counter' failed in step on 'process 0 get -> 1': KeyError"),
        (Unhashable(), "TypeError"),
        (LyingObserver(), "would only observe, but it changes the state"),
        (LyingOverwrite(), "would replace the whole state, but refuses it"),
    ],
)
def test_a_broken_model_is_reported_in_one_sentence(model: Model, sentence: str) -> None:
    history = [op("get", None, 1, 1, 2), op("increment", None, None, 1, 2)]
    with pytest.raises(UsageError) as refused:
        check_model(history, model)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_built_in_models_have_the_names_of_the_documentation() -> None:
    assert model_names()[: len(NAMES)] == NAMES
    assert [find_model(name).name for name in NAMES] == list(NAMES)


def test_models_are_found_by_entry_point_and_by_import_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entries = [
        metadata.EntryPoint(name=name, value=f"{__name__}:COUNTER", group=GROUP)
        for name in ("counter", "queue")
    ]
    monkeypatch.setattr("harness.contracts.registry.entry_points", lambda *, group: entries)
    assert find_model("counter") is COUNTER
    assert find_model("queue") is not COUNTER, "no package can replace a built-in model"
    assert find_model(f"{__name__}:COUNTER") is COUNTER


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("queu", "no model is called 'queu'; did you mean 'queue'?"),
        (f"{__name__}:GONE", "cannot be loaded: AttributeError"),
        ("no_such_module:MODEL", "cannot be loaded: ModuleNotFoundError"),
        (f"{__name__}:NAMES", "it has no method initial_state"),
        (f"{__name__}:Counter", "is a class; name an instance of it"),
    ],
)
def test_what_is_no_model_is_refused_in_one_sentence(name: str, sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        find_model(name)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("name", "operation", "sentence"),
    [
        ("register", op("read", None, 1, 2, 1), "completed before it was invoked"),
        ("register", op("read", None, 1, 2, None), "is ok without a completion time"),
        ("register", op("read", None, 1, 2, 3, "lost"), "use ok, fail or info"),
        ("register", op("read", None, 1, True, 3), "use whole nanoseconds"),
        ("register", cas(1, 2, True, 1, 2), "has the function 'cas'; a register has read, write"),
        ("cas-register", op("cas", 5, True, 1, 2), "needs the input (old, new), not 5"),
        ("cas-register", cas(1, 2, "no", 1, 2), "an ok cas returns None, True or False"),
        ("key-value", op("put", "a", None, 1, 2), "needs the input (key, value)"),
        ("key-value", op("append", ("a", 1), None, 1, 2), "only text can be appended"),
        ("key-value", op("delete", "a", None, 1, 2), "a key-value store has get, put, append, cas"),
        ("set", op("read", None, 5, 1, 2), "a read of a set returns a list of elements"),
        ("set", op("read", None, [1, 1], 1, 2), "a read of a set returns each element once"),
        ("set", op("contains", 1, None, 1, 2), "contains returns True or False"),
        ("queue", enqueue(None, 1, 2), "enqueues nothing"),
        ("queue", op("peek", None, 1, 1, 2), "a queue has enqueue, dequeue"),
    ],
)
def test_an_operation_that_makes_no_sense_is_named(
    name: str, operation: Operation, sentence: str
) -> None:
    with pytest.raises(HistoryError) as refused:
        check_model([operation], find_model(name))
    assert str(refused.value).startswith("operation 0 (process 0 ")
    assert sentence in str(refused.value)
