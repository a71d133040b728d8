"""A process calls one operation at a time, so its operations have an order that a coarse clock does not hide."""

import random

import pytest

from checkers.models import Operation, check_model, find_model
from checkers.models.order import comes_first, order_in_time
from checkers.models.queue_decision import decide_queue
from harness.contracts.verdict import Validity
from tests.unit.checkers.model_operations import op

VALID, INVALID = Validity.VALID, Validity.INVALID


def verdict(name: str, *operations: Operation) -> Validity:
    validities = {
        check_model(order, find_model(name), time_limit_s=None).validity
        for order in (operations, operations[::-1])
    }
    (validity,) = validities
    return validity


@pytest.mark.parametrize(
    ("name", "first", "second", "rest"),
    [
        ("register", ("write", 1, None), ("read", None, None), []),
        ("set", ("add", 1, None), ("contains", 1, False), []),
        ("set", ("add", 1, None), ("read", None, []), []),
        ("queue", ("enqueue", 1, None), ("dequeue", None, None), []),
        (
            "queue",
            ("enqueue", 1, None),
            ("enqueue", 2, None),
            [
                op("dequeue", None, 2, 20, 21, process=2),
                op("dequeue", None, 1, 22, 23, process=2),
            ],
        ),
        ("key-value", ("put", ("x", 1), None), ("get", "x", None), []),
    ],
)
def test_only_operations_of_different_processes_are_concurrent_where_they_touch(
    name, first, second, rest
) -> None:
    """The second operation shows that the first one had no effect yet."""
    before = op(*first, 0, 5, process=0)
    assert verdict(name, before, op(*second, 5, 9, process=0), *rest) == INVALID
    assert verdict(name, before, op(*second, 5, 9, process=1), *rest) == VALID
    assert verdict(name, before, op(*second, 5, 5, process=0), *rest) == INVALID
    # The first one has no length, but the second one ends later.
    at_once = op(*first, 5, 5, process=0)
    assert verdict(name, at_once, op(*second, 5, 9, process=0), *rest) == INVALID
    # Which of the two came first is not known.
    assert verdict(name, at_once, op(*second, 5, 5, process=0), *rest) == VALID


def two_processes(first: str, second: str) -> list[Operation]:
    """Returns two processes that write at [0, 5], and read the value of one of them at [5, 9]."""
    return [
        op("write", "a", None, 0, 5, process=0),
        op("read", None, first, 5, 9, process=0),
        op("write", "b", None, 0, 5, process=1),
        op("read", None, second, 5, 9, process=1),
    ]


def test_processes_that_touch_at_one_time_stay_concurrent_with_each_other() -> None:
    """The write of each process may take effect after the read of the other one, but not after its own."""
    assert verdict("register", *two_processes("a", "b")) == VALID
    assert verdict("register", *two_processes("a", "a")) == VALID
    assert verdict("register", *two_processes("b", "b")) == VALID
    # Each process read what the other one wrote, after its own write: one of the writes was the last one.
    assert verdict("register", *two_processes("b", "a")) == INVALID


def test_the_set_and_the_queue_keep_the_order_of_several_processes_that_touch() -> None:
    adds = [op("add", process, None, 0, 5, process=process) for process in (0, 1)]
    own = [op("read", None, [process], 5, 9, process=process) for process in (0, 1)]
    assert verdict("set", *adds, own[0]) == VALID
    assert verdict("set", *adds, *own) == INVALID
    enqueues = [op("enqueue", process, None, 0, 5, process=process) for process in (0, 1)]
    nothing = [op("dequeue", None, None, 5, 9, process=process) for process in (0, 1)]
    assert verdict("queue", *enqueues, nothing[0]) == INVALID
    assert verdict("queue", *enqueues, op("dequeue", None, None, 5, 9, process=2)) == VALID


def test_queues_are_decided_in_the_stricter_order_if_that_is_enough() -> None:
    enqueues = [op("enqueue", process, None, 0, 5, process=process) for process in (0, 1)]
    own = [op("dequeue", None, process, 5, 9, process=process) for process in (0, 1)]
    nothing = op("dequeue", None, None, 5, 9, process=1)

    def is_valid(*operations: Operation) -> bool | None:
        assert order_in_time(operations).pairs
        decision = decide_queue(operations)
        return None if decision is None else decision.is_valid

    assert is_valid(*enqueues, *own) is True
    # Its own value had been enqueued, and nobody dequeued it.
    assert is_valid(*enqueues, own[0], nothing) is None
    assert is_valid(*enqueues, own[0], op("dequeue", None, 7, 5, 9, process=1)) is False


def test_of_equal_operations_each_waits_for_another_one() -> None:
    """Both write 2, but one of the writes may only follow the read, and the read needs the other one."""
    history = [
        op("write", 0, None, 1, 2, process=1),
        op("write", 2, None, 2, 3, process=1),
        op("read", None, 2, 0, 2, process=0),
        op("write", 2, None, 2, 2, process=0),
    ]
    assert len(order_in_time(history).pairs) == 2
    assert verdict("register", *history) == VALID


def test_an_observer_that_waits_for_another_one_follows_it_at_once() -> None:
    history = [
        op("enqueue", 0, None, 0, 1, process=0),
        op("enqueue", 1, None, 1, 2, process=0),
        op("dequeue", None, None, 1, 1, process=2),
        op("dequeue", None, None, 0, 1, process=2),
    ]
    assert order_in_time(history).pairs == [(0, 1), (3, 2)]
    assert verdict("queue", *history) == VALID


def test_pairs_are_returned_apart_only_where_several_processes_touch() -> None:
    one, two = two_processes("a", "b")[:2], two_processes("a", "b")
    assert order_in_time(one).events == [(False, 0), (True, 0), (False, 1), (True, 1)]
    assert order_in_time(one).pairs == []
    assert order_in_time(two).pairs == [(0, 1), (2, 3)]
    strict = order_in_time(two, is_strict=True)
    assert strict.pairs == []
    assert [is_completion for is_completion, _ in strict.events[2:6]] == [True, True, False, False]


def test_an_operation_with_an_unknown_end_comes_before_nothing() -> None:
    """It comes after the operation before it, unless that one and possibly itself have no length."""
    unknown = op("write", 1, None, 5, None, "info")
    read = op("read", None, 1, 0, 5)
    assert verdict("register", read, unknown) == INVALID
    assert verdict("register", op("read", None, 1, 5, 5), unknown) == VALID
    assert verdict("register", op("read", None, 1, 5, 5), op("write", 1, None, 5, 9, "info")) == (
        INVALID
    )
    assert verdict(
        "register", op("write", 1, None, 0, 5, "info"), op("read", None, None, 5, 9)
    ) == (VALID)


def touches(first: Operation, second: Operation) -> bool:
    """Whether one process called the second operation when the first one ended, by definition."""
    if first is second or first.process != second.process or first.outcome == "info":
        return False
    has_length = [
        one.completed_ns is not None and one.completed_ns > one.invoked_ns
        for one in (first, second)
    ]
    return first.completed_ns == second.invoked_ns and any(has_length)


def coarse_history(rng: random.Random) -> list[Operation]:
    history = []
    for _ in range(rng.randint(2, 6)):
        begin = rng.randrange(4)
        outcome = rng.choice(("ok", "ok", "ok", "info"))
        end = begin + rng.randrange(3)
        is_open = outcome == "info" and rng.random() < 0.5
        history.append(
            op(
                "read",
                None,
                None,
                begin,
                None if is_open else end,
                outcome,
                process=rng.randrange(3),
            )
        )
    return history


def test_the_order_in_time_is_that_of_all_pairs_of_operations() -> None:
    seen = set()
    for seed in range(800):
        history = coarse_history(random.Random(seed))
        order = order_in_time(history)
        strict = order_in_time(history, is_strict=True)
        assert sorted(order.events) == sorted(strict.events)
        assert strict.pairs == []
        for x, first in enumerate(history):
            for y, second in enumerate(history):
                if x == y:
                    continue
                is_touching = touches(first, second)
                if first.process == second.process:
                    assert comes_first(first, second) == is_touching
                is_over = first.outcome == "ok" and (first.completed_ns or 0) < second.invoked_ns
                comes_before, comes_before_strictly = (
                    first.outcome == "ok"
                    and each.events.index((True, x)) < each.events.index((False, y))
                    for each in (order, strict)
                )
                is_pair = (x, y) in order.pairs
                assert comes_before == ((is_over or is_touching) and not is_pair)
                assert comes_before_strictly >= (is_over or is_touching)
                assert is_touching or not is_pair
                seen.add((is_touching, is_pair, is_over))
    assert seen == {
        (False, False, False),
        (False, False, True),
        (True, False, False),
        (True, True, False),
    }
