"""The model checker agrees with exhaustive search, and with itself when a model declares nothing."""

import random
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import pytest

from checkers.models import Decision, Model, Operation, check_model, find_model
from checkers.models.order import order_in_time
from checkers.models.prepare import prepare
from checkers.models.queue_decision import decide_queue
from checkers.models.search import Budget, Search
from harness.contracts.verdict import Validity
from tests.property.model_brute_force import NAMES, disagreement
from tests.property.model_histories import (
    back_to_back_history,
    corrupted,
    equal_values_history,
    is_linearizable,
    large_history,
    objects_are_linearizable,
    queue_history,
    small_history,
)

CHUNK = 500
SEED = 7


@pytest.mark.parametrize(
    "chunk", [0, 1, *(pytest.param(chunk, marks=pytest.mark.long) for chunk in (2, 3, 4))]
)
def test_small_histories_get_the_verdict_of_exhaustive_search(chunk: int) -> None:
    verdicts = []
    for number in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        found, expected = disagreement(SEED, number)
        assert not found, found
        verdicts.append(expected)
    assert verdicts.count(True) > CHUNK // 5
    assert verdicts.count(False) > CHUNK // 5


@pytest.mark.parametrize(
    "chunk", [0, *(pytest.param(chunk, marks=pytest.mark.long) for chunk in range(1, 20))]
)
def test_operations_of_one_process_that_touch_keep_their_order(chunk: int) -> None:
    """By definition, and whether one process touches at an instant or several do.

    Objects are judged alone. If several processes touch at one instant, each object may be linearizable although
    all of them together are not.
    """
    seen = set()
    for number in range(chunk * 1000, (chunk + 1) * 1000):
        name = NAMES[number % len(NAMES)]
        history = back_to_back_history(random.Random(f"back-to-back/{number}"), name)
        expected = objects_are_linearizable(name, history)
        result = check_model(history, find_model(name), time_limit_s=None)
        assert result.validity != Validity.UNKNOWN
        assert (result.validity == Validity.VALID) == expected, f"history {number}: {history}"
        alone = [replace(one, process=place) for place, one in enumerate(history)]
        rests_on_touching = not expected and is_linearizable(name, alone)
        assert expected or not is_linearizable(name, history)
        seen.add((name, bool(order_in_time(history).pairs), rests_on_touching))
    assert {case[1:] for case in seen} == {(a, b) for a in (False, True) for b in (False, True)}
    assert {name for name, _, rests_on_touching in seen if rests_on_touching} == set(NAMES)


@pytest.mark.parametrize(
    "chunk", [0, *(pytest.param(chunk, marks=pytest.mark.long) for chunk in (1, 2, 3))]
)
def test_queues_with_wrong_empty_and_unknown_dequeues(chunk: int) -> None:
    verdicts = []
    for number in range(chunk * 1000, (chunk + 1) * 1000):
        history = queue_history(random.Random(f"queue/{number}"))
        expected = is_linearizable("queue", history)
        result = check_model(history, find_model("queue"), time_limit_s=None)
        assert (result.validity == Validity.VALID) == expected, f"history {number}: {history}"
        assert result.validity != Validity.UNKNOWN
        verdicts.append(expected)
    assert verdicts.count(True) > 200
    assert verdicts.count(False) > 200


@pytest.mark.parametrize(
    "chunk", [0, *(pytest.param(chunk, marks=pytest.mark.long) for chunk in range(1, 10))]
)
def test_queues_of_equal_values_get_the_verdict_of_the_search(chunk: int) -> None:
    queue = find_model("queue")
    verdicts = []
    for number in range(chunk * 400, (chunk + 1) * 400):
        history = equal_values_history(random.Random(f"equal/{number}"))
        decision = decide_queue(history)
        if decision is None:
            assert order_in_time(history).pairs
            continue
        found = Search(queue, prepare(queue, history)).run(Budget(configurations_max=3_000))
        if found.is_linearizable is not None:
            assert decision.is_valid == found.is_linearizable, f"history {number}: {history}"
            verdicts.append(decision.is_valid)
    assert verdicts.count(True) > 150
    assert verdicts.count(False) > 50


@dataclass(frozen=True)
class Plain:
    """A model reduced to its state and step, so that nothing but the search decides."""

    model: Model

    @property
    def name(self) -> str:
        return self.model.name

    def initial_state(self) -> Hashable:
        return self.model.initial_state()

    def step(self, state: Hashable, operation: Operation) -> Hashable | None:
        return self.model.step(state, operation)


@dataclass(frozen=True)
class PlainKeyed(Plain):
    """The same for a key-value store, whose state is that of one key."""

    def partition_key(self, operation: Operation) -> Hashable | None:
        return self.model.partition_key(operation)  # type: ignore[attr-defined]


def medium_history(rng: random.Random, name: str) -> list[Operation]:
    """Returns a history that is too long for exhaustive search, with unique values in half of the cases."""
    history = large_history(
        rng,
        name,
        operations=rng.randint(8, 14),
        processes=rng.randint(2, 5),
        info_share=0.15,
        domain=rng.choice((None, None, 2, 4)),
    )
    for _ in range(rng.randint(0, 2)):
        history = corrupted(rng, name, history)
    return coarse(history, rng.choice((1, 200_000, 500_000)))


def coarse(history: list[Operation], tick_ns: int) -> list[Operation]:
    """Returns operations as a clock that moves in ticks records them; then many of one process touch."""
    return [
        replace(
            one,
            invoked_ns=one.invoked_ns // tick_ns,
            completed_ns=None if one.completed_ns is None else one.completed_ns // tick_ns,
        )
        for one in history
    ]


@pytest.mark.parametrize("name", NAMES)
def test_what_a_model_declares_changes_no_verdict(name: str) -> None:
    model = find_model(name)
    plain = PlainKeyed(model) if name == "key-value" else Plain(model)
    verdicts = []
    for number in range(100):
        history = medium_history(random.Random(f"{name}/{number}"), name)
        with_everything = check_model(history, model, time_limit_s=None)
        with_nothing = check_model(history, plain, time_limit_s=None)
        assert with_everything.validity == with_nothing.validity, f"history {number}: {history}"
        verdicts.append(with_everything.validity)
    assert {Validity.VALID, Validity.INVALID} == set(verdicts)


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_rows_and_the_unit_of_time_change_no_verdict(name: str) -> None:
    model = find_model(name)
    for number in range(100):
        rng = random.Random(f"laws/{name}/{number}")
        history = small_history(rng, name)
        verdict = check_model(history, model, time_limit_s=None).validity
        later = [
            replace(
                one,
                invoked_ns=one.invoked_ns * 1000 - 7,
                completed_ns=None if one.completed_ns is None else one.completed_ns * 1000 - 7,
            )
            for one in history
        ]
        rng.shuffle(later)
        assert check_model(later, model, time_limit_s=None).validity == verdict
        # An operation that was invoked after everything and has no known effect explains nothing.
        end = max(one.completed_ns or one.invoked_ns for one in history) + 1
        info = [one for one in history if one.outcome == "info"]
        more = [replace(one, invoked_ns=end, completed_ns=None) for one in info]
        assert check_model([*history, *more], model, time_limit_s=None).validity == verdict


@pytest.mark.parametrize(
    ("name", "domain"),
    [
        *((name, domain) for name in ("register", "cas-register") for domain in (5, 30, None)),
        ("key-value", 5),
        *((name, domain) for name in ("queue", "set") for domain in (5, 30, None)),
    ],
)
def test_large_linearizable_histories_are_valid_within_a_deterministic_limit(
    name: str, domain: int | None
) -> None:
    for number in range(6):
        rng = random.Random(f"large/{name}/{number % 3}")
        processes, tick_ns = (25, 1) if number < 3 else (10, 200_000)
        history = large_history(rng, name, domain=domain, keys=5, processes=processes)
        history = coarse(history, tick_ns)
        result = check_model(
            history, find_model(name), time_limit_s=None, configurations_max=30_000
        )
        assert result.validity == Validity.VALID, f"history {number}: {result.sentence}"


@pytest.mark.parametrize(("name", "domain"), [("queue", 5), ("queue", 30), ("set", None)])
def test_large_corrupted_histories_are_decided_without_a_search(
    name: str, domain: int | None
) -> None:
    verdicts = set()
    for number in range(8):
        rng = random.Random(f"corrupted/{name}/{number}")
        history = corrupted(rng, name, large_history(rng, name, domain=domain))
        result = check_model(history, find_model(name), time_limit_s=None, configurations_max=1)
        assert result.validity != Validity.UNKNOWN, f"history {number}: {result.sentence}"
        verdicts.add(result.validity)
    assert Validity.INVALID in verdicts


@pytest.mark.parametrize("number", [1409, 1416, 2442])
def test_an_overwrite_that_a_later_operation_can_notice_is_kept(number: int) -> None:
    """These histories are wrongly invalid if one of the conditions in `checkers.models.needs` is dropped."""
    rng = random.Random(f"kill{number}")
    name = rng.choice(["register", "cas-register"])
    history = large_history(
        rng,
        name,
        operations=rng.randint(8, 24),
        processes=rng.randint(3, 9),
        info_share=rng.choice((0, 0.1, 0.3)),
        think=rng.choice((0, 0.3)),
        domain=rng.choice((None, None, 3, 6)),
    )
    if rng.random() < 0.4:
        history = corrupted(rng, name, history)
    assert check_model(history, find_model(name), time_limit_s=None).validity == Validity.VALID


@dataclass(frozen=True)
class WrongDecision(Plain):
    """A model whose decision procedure claims that nothing is linearizable."""

    def decide(self, operations: Sequence[Operation]) -> Decision | None:
        return Decision(is_valid=False, sentence="never")


def test_a_decision_procedure_that_is_refuted_by_a_linearization_is_not_believed() -> None:
    write = Operation(process=0, function="write", input=1, invoked_ns=1, completed_ns=2)
    with pytest.raises(Exception, match="its decision procedure found none"):
        check_model([write], WrongDecision(find_model("register")))
