"""Queues, first in, first out: one alone, or one per key."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from checkers.models.model import Decision
from checkers.models.operation import INFO, OK, Operation
from checkers.models.queue_decision import decide_queue
from checkers.models.values import frozen, text


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueModel:
    """A FIFO queue, initially empty.

    | function | input | output | meaning |
    |---|---|---|---|
    | enqueue | value, not None | any | the value becomes the last one |
    | dequeue | none | value | this was the first value; it is removed |
    | dequeue | none | None | the queue was empty |

    An `info` dequeue removes the first value, if there is one. A dequeue that found nothing may also be recorded
    as `fail`; then it states nothing.
    """

    name: str = "queue"

    def initial_state(self) -> Hashable:
        """Returns the empty queue."""
        return ()

    def objection(self, operation: Operation) -> str:
        """Returns why the operation is none of a queue; empty if it is one."""
        if operation.function not in ("enqueue", "dequeue"):
            return f"has the function {operation.function!r}; a queue has enqueue, dequeue"
        if operation.function == "enqueue" and operation.input is None:
            return "enqueues nothing; a dequeue that returns nothing means that the queue was empty"
        return ""

    def step(self, state: Hashable, operation: Operation) -> Hashable | None:
        """Applies one operation to the queue."""
        assert isinstance(state, tuple)
        if operation.function == "enqueue":
            return (*state, frozen(operation.input))
        if operation.outcome == INFO:
            return state[1:]
        if operation.output is None:
            return None if state else state
        return state[1:] if state and state[0] == frozen(operation.output) else None

    def signature(self, operation: Operation) -> Hashable:
        """Returns the same value for operations that have the same effect."""
        if operation.function == "enqueue":
            return "enqueue", frozen(operation.input)
        if operation.outcome == INFO:
            return "dequeue", INFO, None
        return "dequeue", OK, frozen(operation.output)

    def is_observer(self, operation: Operation) -> bool:
        """Returns true for a dequeue that found the queue empty."""
        is_ok_dequeue = operation.function == "dequeue" and operation.outcome == OK
        return is_ok_dequeue and operation.output is None

    def decide(self, operations: Sequence[Operation]) -> Decision | None:
        """Decides almost all histories; those with very many choices among equal values are left to the search."""
        return decide_queue(operations)

    def describe(self, state: Hashable) -> str:
        """Returns the values, the first one first."""
        return text(state)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedQueue:
    """Independent FIFO queues, one per key. Histories are checked per key.

    | function | input | output | meaning |
    |---|---|---|---|
    | enqueue | (key, value), value not None | any | the value becomes the last one of the key |
    | dequeue | key | value | this was the first value of the key; it is removed |
    | dequeue | key | None | the key had no value |
    """

    name: str = "keyed-queue"

    def initial_state(self) -> Hashable:
        """Returns the empty queue of every key."""
        return QUEUE.initial_state()

    def objection(self, operation: Operation) -> str:
        """Returns why the operation is none of a queue with keys; empty if it is one."""
        given = operation.input
        if operation.function == "enqueue" and not _is_pair(given):
            return f"needs the input (key, value), not {given!r}"
        return QUEUE.objection(_without_key(operation))

    def partition_key(self, operation: Operation) -> Hashable:
        """Returns the key, in a tuple: None is a key, too."""
        return (frozen(_key(operation)),)

    def step(self, state: Hashable, operation: Operation) -> Hashable | None:
        """Applies one operation to the queue of its key."""
        return QUEUE.step(state, _without_key(operation))

    def signature(self, operation: Operation) -> Hashable:
        """Returns the same value for operations of one key that have the same effect."""
        return QUEUE.signature(_without_key(operation))

    def is_observer(self, operation: Operation) -> bool:
        """Returns true for a dequeue that found the queue empty."""
        return QUEUE.is_observer(operation)

    def decide(self, operations: Sequence[Operation]) -> Decision | None:
        """Decides the operations of one key as those of a queue; the sentence names the key."""
        decision = decide_queue([_without_key(one) for one in operations])
        if decision is None or decision.is_valid:
            return decision
        key = text(frozen(_key(operations[0])))
        return replace(decision, sentence=f"key {key}: {decision.sentence}")

    def describe(self, state: Hashable) -> str:
        """Returns the values, the first one first."""
        return text(state)


def _is_pair(given: Any) -> bool:
    return isinstance(given, tuple | list) and len(given) == 2


def _key(operation: Operation) -> Any:
    return operation.input if operation.function == "dequeue" else operation.input[0]


def _without_key(operation: Operation) -> Operation:
    is_enqueue = operation.function == "enqueue"
    return replace(operation, input=operation.input[1] if is_enqueue else None)


QUEUE = QueueModel()
KEYED_QUEUE = KeyedQueue()
