"""Short parts of the comparisons with exhaustive search, as mutation testing needs them."""

import random
from itertools import product

import pytest

from checkers.models import check_model, find_model
from checkers.models.order import order_in_time
from checkers.models.prepare import prepare
from checkers.models.queue_decision import decide_queue
from checkers.models.search import Budget, Search
from harness.contracts.verdict import Validity
from tests.property.brute_force import disagreements
from tests.property.election_runs import wrong_verdicts
from tests.property.model_brute_force import NAMES, disagreement
from tests.property.model_histories import (
    back_to_back_history,
    equal_values_history,
    is_linearizable,
    large_history,
    objects_are_linearizable,
    queue_history,
)
from tests.property.transaction_histories import KINDS, history_of


@pytest.mark.parametrize("part", range(20))
def test_partition_logs(part: int) -> None:
    assert next(disagreements(part * 50, 50, seed=2000), None) is None


@pytest.mark.parametrize("part", range(20))
def test_elections(part: int) -> None:
    assert list(wrong_verdicts(200 + 3 * part, 3)) == []


@pytest.mark.parametrize("part", range(10))
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_transactions(kind: str, part: int) -> None:
    for number in range(part * 25, (part + 1) * 25):
        assert not KINDS[kind][1](history_of(kind, 8, number))


@pytest.mark.parametrize("part", range(10))
def test_models(part: int) -> None:
    for number in range(part * 40, (part + 1) * 40):
        found, _ = disagreement(8, number)
        assert not found


@pytest.mark.parametrize("part", range(5))
def test_queues(part: int) -> None:
    for number in range(part * 50, (part + 1) * 50):
        history = queue_history(random.Random(f"sample/{number}"))
        result = check_model(history, find_model("queue"), time_limit_s=None)
        assert (result.validity == Validity.VALID) == is_linearizable("queue", history)


@pytest.mark.parametrize("part", range(5))
def test_queues_of_equal_values(part: int) -> None:
    queue = find_model("queue")
    for number in range(part * 50, (part + 1) * 50):
        history = equal_values_history(random.Random(f"sample/{number}"))
        decision = decide_queue(history)
        if decision is None:
            assert order_in_time(history).pairs
            continue
        found = Search(queue, prepare(queue, history)).run(Budget(configurations_max=3_000))
        assert found.is_linearizable in (None, decision.is_valid)


def test_a_large_queue_is_decided_within_the_limit_on_states() -> None:
    history = large_history(random.Random("sample/4"), "queue", domain=30, think=0.0)
    assert decide_queue(history) is not None


@pytest.mark.parametrize("part", range(10))
def test_operations_that_touch(part: int) -> None:
    for number, name in product(range(part * 20, (part + 1) * 20), NAMES):
        history = back_to_back_history(random.Random(f"sample/{number}"), name)
        expected = objects_are_linearizable(name, history)
        result = check_model(history, find_model(name), time_limit_s=None)
        assert (result.validity == Validity.VALID) == expected
