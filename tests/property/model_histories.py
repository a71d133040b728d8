"""Sequential objects written down a second time, and random histories of them.

Nothing here is shared with `checkers.models` except the value `Operation`: a mistake in a model must not be
repeated in what it is compared with. Objects are ordinary mutable Python objects that return what a call returns.
"""

import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from checkers.models import Operation


class Register:
    """Also the cas-register."""

    def __init__(self) -> None:
        self.value: Any = None

    def call(self, function: str, given: Any) -> Any:
        if function == "read":
            return self.value
        if function == "write":
            self.value = given
            return None
        old, new = given
        if self.value != old:
            return False
        self.value = new
        return True


class KeyValue:
    def __init__(self) -> None:
        self.values: dict[Any, Any] = {}

    def call(self, function: str, given: Any) -> Any:
        if function == "get":
            return self.values.get(given)
        if function == "put":
            self.values[given[0]] = given[1]
            return None
        if function == "append":
            self.values[given[0]] = (self.values.get(given[0]) or "") + given[1]
            return None
        key, old, new = given
        if self.values.get(key) != old:
            return False
        self.values[key] = new
        return True


class Elements:
    def __init__(self) -> None:
        self.elements: list[Any] = []

    def call(self, function: str, given: Any) -> Any:
        if function == "read":
            return sorted(self.elements)
        was_member = given in self.elements
        if function == "contains":
            return was_member
        if function == "add":
            if not was_member:
                self.elements.append(given)
            return not was_member
        if was_member:
            self.elements.remove(given)
        return was_member


class Queue:
    def __init__(self) -> None:
        self.values: deque[Any] = deque()

    def call(self, function: str, given: Any) -> Any:
        if function == "enqueue":
            self.values.append(given)
            return None
        return self.values.popleft() if self.values else None


OBJECTS: dict[str, Callable[[], Any]] = {
    "register": Register,
    "cas-register": Register,
    "key-value": KeyValue,
    "set": Elements,
    "queue": Queue,
}

SILENT = ("write", "put", "append", "enqueue")
"""Functions without a result."""


def agrees(operation: Operation, result: Any) -> bool:
    """Returns whether the object's result is the recorded one, as far as one was recorded."""
    if operation.outcome == "info" or operation.function in SILENT:
        return True
    if operation.output is None and operation.function == "cas":
        return result is True
    if operation.output is None and operation.function in ("add", "remove"):
        return True
    if operation.function == "read" and isinstance(operation.output, list):
        return result == sorted(operation.output)
    return type(result) is type(operation.output) and result == operation.output


def is_linearizable(name: str, operations: list[Operation]) -> bool:
    """Tries every order and every choice of `info` operations, on a new object each time."""
    possible = [one for one in operations if one.outcome != "fail"]

    def precedes(first: Operation, second: Operation) -> bool:
        if first.outcome == "info":
            return False
        if first.completed_ns != second.invoked_ns or first.process != second.process:
            return first.completed_ns < second.invoked_ns
        # A process calls one operation at a time; the order of two calls without a length is not known.
        ends_ns = second.invoked_ns if second.completed_ns is None else second.completed_ns
        return first.invoked_ns < second.invoked_ns or second.invoked_ns < ends_ns

    def orders(chosen: list[Operation], left: list[Operation]) -> Iterator[list[Operation]]:
        if all(one.outcome == "info" for one in left):
            yield chosen
        for index, one in enumerate(left):
            rest = left[:index] + left[index + 1 :]
            if not any(precedes(other, one) for other in rest) and accepts(name, [*chosen, one]):
                yield from orders([*chosen, one], rest)

    return next(orders([], possible), None) is not None


def accepts(name: str, order: list[Operation]) -> bool:
    """Returns whether a new object returns what was recorded, in this order."""
    thing = OBJECTS[name]()
    return all(agrees(one, thing.call(one.function, one.input)) for one in order)


def random_call(rng: random.Random, name: str, value: Callable[[], Any]) -> tuple[str, Any]:
    """Returns a function and its input."""
    key = rng.choice("xy") if rng.random() < 0.3 else "x"
    if name == "queue":
        return ("enqueue", value()) if rng.random() < 0.55 else ("dequeue", None)
    if name == "set":
        function = rng.choice(("add", "add", "add", "remove", "contains", "read"))
        return function, None if function == "read" else value()
    if name == "key-value":
        function = rng.choice(("get", "get", "put", "append", "cas"))
        if function == "get":
            return function, key
        return function, (key, *(f"v{value()}" for _ in range(2 if function == "cas" else 1)))
    functions = ("read", "write") if name == "register" else ("read", "write", "cas")
    function = rng.choice(functions)
    if function == "cas":
        return function, (value(), value())
    return function, value() if function == "write" else None


def executed(name: str, calls: list[tuple[Operation, float]]) -> list[Operation]:
    """Returns the operations with the results of an object that executes them at the given instants.

    An operation without an effect has the instant infinity. A result of an `info` operation is not recorded.
    """
    thing = OBJECTS[name]()
    results: dict[int, Any] = {}
    for _, place in sorted((at, place) for place, (_, at) in enumerate(calls)):
        one, at = calls[place]
        if at != float("inf"):
            results[place] = thing.call(one.function, one.input)
    history = []
    for place, (one, _) in enumerate(calls):
        is_known = one.outcome == "ok" and one.function not in SILENT
        history.append(replace(one, output=results.get(place)) if is_known else one)
    return history


def small_history(rng: random.Random, name: str) -> list[Operation]:
    """Returns up to seven operations with many equal times; about half of them are linearizable."""
    count = rng.randint(2, 7)
    domain = rng.choice((2, 3, 20))
    only = rng.choice((None, None, ("add", "contains", "read"), ("add", "remove", "contains")))
    calls = []
    for place in range(count):
        function, given = random_call(rng, name, lambda: rng.randrange(domain))
        while name == "set" and only and function not in only:
            function, given = random_call(rng, name, lambda: rng.randrange(domain))
        begin = rng.randrange(10)
        end = begin + rng.choice((0, 1, 1, 2, 6))
        outcome = rng.choices(("ok", "info", "fail"), (80, 17, 3))[0]
        one = Operation(
            process=place,
            function=function,
            input=given,
            invoked_ns=begin,
            completed_ns=None if outcome == "info" and rng.random() < 0.5 else end,
            outcome=outcome,
        )
        at = rng.uniform(begin, end) + rng.random() / 100
        if outcome == "info":
            at = rng.choice((at, at + rng.randrange(8), float("inf")))
        calls.append((one, float("inf") if outcome == "fail" else at))
    history = executed(name, calls)
    for _ in range(rng.choice((0, 1, 2, 3))):
        history = corrupted(rng, name, history)
    for place, one in enumerate(history):
        if one.function in ("cas", "add", "remove") and one.output is True and rng.random() < 0.5:
            history[place] = replace(one, output=None)
    if name == "key-value" and rng.random() < 0.5:
        history = [one for one in history if one.function != "cas"]
    if name == "key-value" and not any(one.function == "append" for one in history):
        history = [
            replace(one, input=as_numbers(one.input), output=as_numbers(one.output))
            for one in history
        ]
    history = in_few_processes(rng, history)
    rng.shuffle(history)
    return history


def in_few_processes(rng: random.Random, history: list[Operation]) -> list[Operation]:
    """Returns the operations with processes that call one at a time, often when the last one ended."""
    share = rng.choice((0.0, 0.5, 1.0))
    free_at: dict[int, int | None] = {}
    changed = list(history)
    for place in sorted(range(len(history)), key=lambda place: history[place].invoked_ns):
        one = history[place]
        free = [
            process for process, at in free_at.items() if at is not None and at <= one.invoked_ns
        ]
        process = rng.choice(free) if free and rng.random() < share else len(free_at)
        # After an operation without an end, its process may call the next one at once, or never.
        free_at[process] = one.completed_ns
        if one.completed_ns is None and rng.random() < 0.3:
            free_at[process] = one.invoked_ns
        changed[place] = replace(one, process=process)
    return changed


def back_to_back_history(rng: random.Random, name: str) -> list[Operation]:
    """Returns up to seven operations of two or three processes, most of which begin as the last one ended.

    Often several processes end one operation and begin the next one at the same time.
    """
    domain = rng.choice((2, 3, 20))
    calls = []
    for process in range(rng.choice((2, 2, 3))):
        now = rng.choice((0, 0, 1))
        for _ in range(rng.randint(1, 3)):
            if len(calls) == 7:
                break
            function, given = random_call(rng, name, lambda: rng.randrange(domain))
            begin, end = now, now + rng.choice((0, 1, 1, 1, 2))
            outcome = rng.choices(("ok", "info"), (88, 12))[0]
            one = Operation(
                process=process,
                function=function,
                input=given,
                invoked_ns=begin,
                completed_ns=None if outcome == "info" and rng.random() < 0.5 else end,
                outcome=outcome,
            )
            at = rng.uniform(begin, end) * 0.999 + len(calls) / 10_000
            if outcome == "info":
                at = rng.choice((at, at + rng.randrange(4), float("inf")))
            calls.append((one, at))
            now = end + rng.choice((0, 0, 0, 0, 1))
    history = executed(name, calls)
    for _ in range(rng.choice((0, 1, 1, 2))):
        history = corrupted(rng, name, history)
    rng.shuffle(history)
    return history


def as_numbers(value: Any) -> Any:
    """Returns a value of a key-value store with numbers instead of texts: "v3" becomes 3."""
    if isinstance(value, tuple):
        return tuple(as_numbers(item) for item in value)
    return int(value[1:]) if isinstance(value, str) and value.startswith("v") else value


def queue_history(rng: random.Random) -> list[Operation]:
    """Returns enqueues, and dequeues that may all be wrong: with a value, with nothing, or without a result."""
    values = [rng.choice((0, 1, 2, 3)) if rng.random() < 0.2 else place for place in range(4)]
    calls: list[tuple[str, Any, Any, str]] = [
        ("enqueue", value, None, "info" if rng.random() < 0.15 else "ok")
        for value in values[: rng.randint(1, 4)]
    ]
    given = [value for _, value, _, _ in calls]
    taken = rng.sample(given, rng.randint(0, min(2, len(given))))
    calls += [("dequeue", None, value, "ok") for value in taken]
    calls += [("dequeue", None, None, "ok")] * rng.choice((0, 0, 1, 1, 2))
    calls += [("dequeue", None, None, "info")] * rng.choice((0, 1, 1, 2))
    instants = list(range(2 * len(calls)))
    if rng.random() < 0.7:
        # Mostly short operations, enqueues first.
        begins = sorted(rng.randrange(3 * len(calls)) for _ in calls)
        ends = [begin + rng.choice((0, 1, 2, 4, 9)) for begin in begins]
    else:
        rng.shuffle(instants)
        pairs = [sorted(instants[2 * one : 2 * one + 2]) for one in range(len(calls))]
        begins, ends = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    history = [
        Operation(
            process=place,
            function=function,
            input=value,
            output=output,
            invoked_ns=begins[place],
            completed_ns=None if outcome == "info" else ends[place],
            outcome=outcome,
        )
        for place, (function, value, output, outcome) in enumerate(calls)
    ]
    return in_few_processes(rng, history)


def equal_values_history(rng: random.Random) -> list[Operation]:
    """Returns up to 16 operations of a queue, of which many lie within others and have the same values."""
    domain, span = rng.choice((1, 2, 2, 3, 4)), rng.choice((6, 12, 24, 40))
    calls = []
    for place in range(rng.randint(5, 16)):
        function, given = random_call(rng, "queue", lambda: rng.randrange(domain))
        begin = rng.randrange(span)
        end = begin + rng.choice((0, 1, 2, 4, 8, 16))
        is_info = rng.random() < 0.15
        at = rng.uniform(begin, end) + rng.random() / 100
        if is_info:
            at = rng.choice((at, at + rng.randrange(8), float("inf")))
        one = Operation(
            process=place,
            function=function,
            input=given,
            invoked_ns=begin,
            completed_ns=None if is_info else end,
            outcome="info" if is_info else "ok",
        )
        calls.append((one, at))
    history = executed("queue", calls)
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        history = corrupted(rng, "queue", history)
    return in_few_processes(rng, history)


def corrupted(rng: random.Random, name: str, history: list[Operation]) -> list[Operation]:
    """Returns the history with one result replaced by another one that could occur; the same if none can be."""
    places = [
        place
        for place, one in enumerate(history)
        if one.outcome == "ok" and one.function not in SILENT
    ]
    if not places:
        return history
    place = rng.choice(places)
    one = history[place]
    if isinstance(one.output, bool):
        changed: Any = not one.output
    elif one.function == "read" and name == "set":
        element = rng.choice([each.input for each in history if each.input is not None] or [0])
        changed = sorted(set(one.output) ^ {element})
    else:
        others = [each.output for each in history if each.function == one.function]
        written = [each.input for each in history if each.function in ("write", "enqueue")]
        written += [each.input[1] for each in history if each.function == "put"]
        changed = rng.choice([None, *others, *written])
    return [*history[:place], replace(one, output=changed), *history[place + 1 :]]


def large_history(
    rng: random.Random,
    name: str,
    *,
    operations: int = 200,
    processes: int = 25,
    info_share: float = 0.07,
    think: float = 0.2,
    domain: int | None = 5,
    keys: int = 1,
) -> list[Operation]:
    """Returns a linearizable history as a test with many processes records it.

    Args:
        rng: Source of all choices.
        name: The object.
        operations: How many.
        processes: How many are busy at the same time. A process that cannot know a result gets a new number.
        info_share: Which share of the operations is `info`.
        think: Pause between two operations of a process, relative to the duration of one.
        domain: How many values there are; None if every value is used once.
        keys: How many keys a key-value store has.
    """
    used = iter(range(1, 10**9))

    def value() -> int:
        return next(used) if domain is None else rng.randrange(domain)

    free = [(rng.uniform(0, 1), process) for process in range(processes)]
    calls = []
    for _ in range(operations):
        free.sort()
        at, process = free.pop(0)
        begin = at + rng.expovariate(1) * think
        duration = rng.expovariate(1)
        function, given = random_call(rng, name, value)
        if name == "key-value":
            key = f"k{rng.randrange(keys)}"
            given = key if function == "get" else (key, *given[1:])
        is_info = rng.random() < info_share
        effect = rng.uniform(begin, begin + duration * (3 if is_info else 1))
        if is_info and rng.random() < 0.5:
            effect = float("inf")
        one = Operation(
            process=process,
            function=function,
            input=given,
            invoked_ns=round(begin * 1e6),
            completed_ns=None if is_info else round((begin + duration) * 1e6),
            outcome="info" if is_info else "ok",
        )
        calls.append((one, effect * 1e6))
        free.append((begin + duration, process + processes if is_info else process))
    return executed(name, calls)


def objects_of(name: str, history: list[Operation]) -> list[list[Operation]]:
    """Returns the operations by key or element, if each of them is an object of its own."""
    if name == "key-value":
        keys = [one.input if one.function == "get" else one.input[0] for one in history]
    elif name == "set" and all(one.function != "read" for one in history):
        keys = [one.input for one in history]
    else:
        return [history]
    return [
        [one for one, its in zip(history, keys, strict=True) if its == key] for key in set(keys)
    ]


def objects_are_linearizable(name: str, history: list[Operation]) -> bool:
    """Returns whether each object alone is linearizable, by exhaustive search."""
    return all(is_linearizable(name, one) for one in objects_of(name, history))
