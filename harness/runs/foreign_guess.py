"""Which model the operations of a foreign history show, if nobody states it.

The names of functions are not enough: other workloads of Jepsen use the same names. Values that such a model does
not have are refused with their line instead of being judged by a model that is not meant.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from checkers.models.values import frozen
from harness.errors import HistoryError, UsageError
from harness.history.foreign.events import OK, RecordedOperation, name_of, shown
from harness.history.foreign.read import ForeignHistory

_REGISTER = frozenset({"read", "write", "cas"})
_KEY_VALUE = frozenset({"get", "put", "append", "cas"})
_QUEUE = frozenset({"enqueue", "dequeue"})
_SET = frozenset({"add", "remove", "contains", "read"})

_MICRO_OPERATIONS = frozenset({"r", "w", "read", "write", "append"})
"""Names of what one transaction consists of."""


def model_shown_by(history: ForeignHistory) -> str:
    """Returns the name of the model that functions and values show.

    Raises:
        UsageError: The functions show none.
        HistoryError: A value is not of the model that the functions show; the sentence names its line.
    """
    for one in history.operations:
        if not one.function:
            raise HistoryError(
                f"{history.path}, line {one.line}: the event has no function, so it does not show the model; state"
                " the function of every event (`f`)"
            )
    functions = {one.function for one in history.operations}
    if functions <= _REGISTER:
        _refuse_transactions(history)
        if is_keyed(history.operations):
            return "key-value"
        name = "cas-register" if "cas" in functions else "register"
        _refuse_asked(
            history,
            "read",
            "a read of a register",
            f"--model {name} if there is one register and this means nothing, or your own as module:attribute",
        )
        return name
    for name, known in (("key-value", _KEY_VALUE), ("queue", _QUEUE), ("set", _SET)):
        if functions <= known:
            if name == "set":
                _refuse_other_reads(history)
            if name == "queue":
                return _queue_shown_by(history)
            return name
    hint = (
        "; list-append takes transactions of [:append key value] and [:r key list] only"
        if "txn" in functions
        else ""
    )
    raise UsageError(
        f"{history.path} has the functions {', '.join(sorted(functions))}, which show no model; name one with"
        f" --model{hint}"
    )


def is_keyed(operations: Sequence[RecordedOperation]) -> bool:
    """Returns whether values are pairs of key and value.

    Then reads are asked with a key. Without reads, every write has a pair, and every cas has `[key [old new]]`. A
    key that is a pair itself does not count: it may be the old value of a register that holds pairs.
    """
    reads = [one.argument for one in operations if one.function == "read"]
    if reads:
        return any(is_pair(asked) for asked in reads)
    cas = [one.argument for one in operations if one.function == "cas"]
    writes = [one.argument for one in operations if one.function == "write"]
    return (
        bool(cas)
        and all(is_pair(asked) and is_pair(asked[1]) and not is_pair(asked[0]) for asked in cas)
        and all(is_pair(asked) for asked in writes)
    )


def _refuse_asked(history: ForeignHistory, function: str, what: str, how: str) -> None:
    """Refuses operations that are asked with something although the model that is shown gives them nothing.

    Histories that Knossos completed have the result of a read at its invocation, too.
    """
    for one in history.operations:
        is_completed = frozen(one.argument) == frozen(one.result)
        if one.function == function and one.argument is not None and not is_completed:
            raise _not_shown(
                history,
                one.line,
                f"{function} is asked with {shown(one.argument)}, and {what} is asked with nothing",
                how,
            )


def _queue_shown_by(history: ForeignHistory) -> str:
    """Returns whether there is one queue or one per key: then dequeues are asked with a key.

    Only events have pairs of key and value there. Operations have the form that a model defines.
    """
    is_asked_with_pair = any(
        one.function == "dequeue" and is_pair(one.argument) for one in history.operations
    )
    if history.has_events and is_asked_with_pair:
        return "keyed-queue"
    _refuse_asked(
        history,
        "dequeue",
        "a dequeue of a queue",
        "--model queue if there is one queue and this means nothing, or --model keyed-queue if it is the key",
    )
    return "queue"


def is_pair(value: Any) -> bool:
    """Returns whether a value is a list of two."""
    return isinstance(value, tuple | list) and len(value) == 2


def _refuse_transactions(history: ForeignHistory) -> None:
    """Refuses to take transactions on several registers or lists for reads and writes of one register."""
    appends = "append" in {
        name_of(micro[0])
        for one in history.operations
        if _is_transaction(one.argument)
        for micro in one.argument
    }
    several, how = (
        ("lists", "--model list-append")
        if appends
        else ("registers", "--model, for example your own as module:attribute")
    )
    for one in history.operations:
        for line, value in ((one.line, one.argument), (one.completion_line, one.result)):
            if _is_transaction(value) or (is_pair(value) and _is_transaction(value[1])):
                raise HistoryError(
                    f"{history.path}, line {line}: {one.function} has the value {shown(value)}, which is a"
                    f" transaction on several {several}, so the functions do not show the model; state it with"
                    f" {how}, or --model register if one register holds such values"
                )


def _is_transaction(value: Any) -> bool:
    """Returns whether a value is a list of micro-operations, each with function, key and value."""
    return (
        isinstance(value, tuple | list)
        and bool(value)
        and all(
            isinstance(micro, tuple | list)
            and len(micro) == 3
            and name_of(micro[0]) in _MICRO_OPERATIONS
            for micro in value
        )
    )


def _refuse_other_reads(history: ForeignHistory) -> None:
    """Refuses to take reads of a counter, or of one of several sets, for reads of a set."""
    how = "--model, for example your own as module:attribute"
    _refuse_asked(history, "read", "a read of a set", how)
    for one in history.operations:
        if one.function == "read" and one.outcome == OK and not _is_collection(one.result):
            raise _not_shown(
                history,
                one.completion_line,
                f"read returned {shown(one.result)}, and a read of a set returns a collection of its elements",
                how,
            )


def _not_shown(history: ForeignHistory, line: int, why: str, how: str) -> HistoryError:
    return HistoryError(
        f"{history.path}, line {line}: {why}, so the functions do not show the model; state it with {how}"
    )


def _is_collection(value: Any) -> bool:
    return isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping)
