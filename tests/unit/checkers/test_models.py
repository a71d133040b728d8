"""Models of the user, how models are found, and operations that a model refuses."""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from checkers.models import Model, Operation, check_model, find_model, model_names
from checkers.models.model import Decision
from checkers.models.registry import GROUP
from harness.contracts.verdict import Validity
from harness.errors import HistoryError, UsageError
from tests.unit.checkers.model_operations import cas, enqueue, op

NAMES = ("register", "cas-register", "key-value", "set", "queue", "keyed-queue")


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


def broken(**methods: Any) -> Any:
    """Returns a counter some of whose methods are replaced; what is no function is returned, or raised."""

    def method(name: str, what: Any) -> Any:
        def replaced(self: Any, *arguments: Any) -> Any:
            if isinstance(what, BaseException):
                raise what
            return what

        replaced.__name__ = name
        return what if callable(what) else replaced

    return type("Wrong", (Counter,), {name: method(name, what) for name, what in methods.items()})()


WRONG = ValueError("two\nlines")
"""What a broken model raises."""


def is_get(self: Any, operation: Operation) -> bool:
    return operation.function == "get"


def divides(self: Any, operations: Any) -> Any:
    return lambda state, operation: state / 0


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (broken(initial_state=WRONG), "failed in initial_state: ValueError: two lines"),
        (broken(initial_state=[1]), "failed in initial_state: TypeError: unhashable type"),
        (broken(initial_state=None), "returned None from initial_state; a state is never None"),
        (
            broken(partition_key=WRONG),
            "failed in partition_key on 'process 0 get -> 1': ValueError",
        ),
        (broken(partition_key=["k"]), "on 'process 0 get -> 1': TypeError: unhashable type"),
        (broken(signature=WRONG), "on 'process 0 get -> 1': ValueError: two lines"),
        (broken(signature=[1]), "on 'process 0 get -> 1': TypeError: unhashable type"),
        (broken(is_observer=WRONG), "on 'process 0 get -> 1': ValueError: two lines"),
        (broken(is_overwrite=WRONG), "on 'process 0 get -> 1': ValueError: two lines"),
        (broken(objection=WRONG), "on 'process 0 get -> 1': ValueError: two lines"),
        (broken(objection=True), "a value of the type bool from objection; return a text"),
        (broken(decide=WRONG), "failed in decide: ValueError: two lines"),
        (broken(decide=True), "a value of the type bool from decide; return a Decision or None"),
        (broken(decide=Decision(is_valid=False, sentence="no", witnesses=(2,))), "no positions"),
        (broken(decide=Decision(is_valid=False, sentence="no")), "its decision procedure found"),
        (broken(foresee=WRONG), "failed in foresee: ValueError: two lines"),
        (broken(foresee=True), "the type bool from foresee; return a function or None"),
        (
            broken(foresee=divides, is_observer=is_get),
            "failed in the function from foresee on 'process 0 get -> 1': ZeroDivisionError",
        ),
        (Broken(), "the model 'counter' failed in step on 'process 0 get -> 1': KeyError"),
        (Unhashable(), "TypeError"),
        (broken(step=SystemExit(0)), "failed in step on 'process 0 get -> 1': SystemExit: 0"),
        (broken(initial_state=SystemExit(3)), "failed in initial_state: SystemExit: 3"),
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


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (WRONG, "the model 'counter' failed in describe: ValueError: two lines"),
        (7, "the model 'counter' returned a value of the type int from describe; return a text"),
    ],
)
def test_a_state_that_cannot_be_described_is_reported_if_it_has_to_be(
    result: Any, sentence: str
) -> None:
    model = broken(describe=result)
    history = [op("get", None, 0, 1, 2), op("increment", None, None, 3, 4)]
    assert check_model(history, model).validity == Validity.VALID
    with pytest.raises(UsageError) as refused:
        check_model([*history, op("get", None, 0, 5, 6)], model)
    assert str(refused.value) == sentence


def test_optional_methods_may_return_nothing() -> None:
    history = [op("get", None, 0, 1, 2)]
    for method in ("partition_key", "signature", "objection", "decide", "foresee"):
        assert check_model(history, broken(**{method: None})).validity == Validity.VALID


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
        (
            "no_such_module:MODEL",
            "'no_such_module'; install it, or add the directory that contains it to PYTHONPATH",
        ),
        (
            "harness.no_such_module:MODEL",
            "'harness.no_such_module'; install it, or add the directory",
        ),
        (f"{__name__}:NAMES", "it has no method initial_state"),
        (f"{__name__}:Counter", "is a class; name an instance of it"),
    ],
)
def test_what_is_no_model_is_refused_in_one_sentence(name: str, sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        find_model(name)
    assert sentence in str(refused.value)


def test_what_a_module_lacks_is_not_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model_without_library.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UsageError) as refused:
        find_model("model_without_library:MODEL")
    assert str(refused.value).endswith("No module named 'no_such_library'")


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
