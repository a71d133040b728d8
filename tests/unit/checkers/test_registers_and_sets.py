"""The model checker on small histories of registers, key-value stores and sets."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from checkers.models import Operation, check_model, find_model
from checkers.models.registers import KeyValue, LenientKeyValue
from harness.contracts.verdict import Validity
from tests.unit.checkers.model_operations import cas, check, is_valid, op, read, write

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


@pytest.mark.parametrize("is_searched", [False, True])
def test_a_set_that_returns_an_element_twice_is_not_linearizable(is_searched: bool) -> None:
    """An element that is added twice cannot be decided without a search."""
    adds = [op("add", 1, None, 1, 2), *([op("add", 1, None, 3, 4)] if is_searched else [])]
    found = check("set", *adds, op("read", None, [1, 1], 5, 6))
    assert found.validity == Validity.INVALID
    assert is_valid("set", *adds, op("read", None, [1], 5, 6))
    both = [op("read", None, values, 5, 6) for values in ([1], [1, 1])]
    assert not is_valid("set", *adds, *both), "not the same as a read of one"


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


def test_a_remove_of_an_element_that_nobody_adds_is_an_observation() -> None:
    added = op("add", 1, None, 1, 2)
    history = (added, op("remove", 2, None, 1, 2), op("remove", 2, None, 3, None, "info"))
    assert is_valid("set", *history, op("remove", 2, False, 5, 6), op("read", None, [1], 7, 8))
    assert not is_valid("set", *history, op("read", None, [], 7, 8))
    result = check("set", *history, op("remove", 2, True, 5, 6), op("read", None, [1], 7, 8))
    assert result.validity == Validity.INVALID
    assert "saw the element 2, which was never added" in result.sentence


def test_after_text_was_appended_to_a_number_a_key_may_hold_anything_until_it_is_put() -> None:
    calls = [op("put", ("x", 1), None, 0, 1), op("append", ("x", "a"), None, 2, 3)]
    gets = [op("get", "x", "1a", 4, 5), op("get", "x", 7, 6, 7)]
    again = [op("put", ("x", 2), None, 8, 9), op("append", ("y", "b"), None, 8, 9)]
    lenient = LenientKeyValue()

    def validity(*operations: Operation) -> Validity:
        return check_model(operations, lenient, time_limit_s=None).validity

    assert validity(*calls, *gets) == Validity.VALID
    assert validity(*calls, *gets, *again, op("get", "x", 2, 10, 11)) == Validity.VALID
    assert validity(*calls, *gets, *again, op("get", "x", 7, 10, 11)) == Validity.INVALID
    assert validity(*calls, *gets, *again, op("get", "y", "b", 10, 11)) == Validity.VALID
    assert validity(*calls, *gets, *again, op("get", "y", "c", 10, 11)) == Validity.INVALID
    assert validity(calls[0], op("get", "x", 7, 4, 5)) == Validity.INVALID
    state = lenient.step((1,), calls[1])
    assert (lenient.describe(state), lenient.describe((1,))) == ("anything", "1")
