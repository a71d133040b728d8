"""Foreign histories of other objects than logs, judged by the model checker.

Jepsen records an operation as function and value; a model wants the arguments apart from the result:

| functions | model | from Jepsen's values |
|---|---|---|
| `read`, `write`, `cas` | register, cas-register | `cas` has `[old new]` |
| the same with `[key value]` (jepsen.independent) | key-value | one register per key |
| `get`, `put`, `append` with `:key` | key-value | |
| `enqueue`, `dequeue` | queue | |
| the same with `[key value]` | keyed-queue | one queue per key; `dequeue` has `[key nil]` |
| `add`, `remove`, `contains`, `read` | set | |

Operations that are lines of kind `operation`, and those of any other model, are passed on as they are.

A completion repeats the value and the key of its invocation, except for the result of a read. Instead of a value
it may have nil, and what else `states_no_value` names; one that is `fail` or `info` may lack the key. What else it
has is bad input: the history does not show which of the two took effect. For `add` and `remove` of a set, true and
false are the result: whether it changed the set.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from checkers.models import ModelResult, Operation, check_model, find_model, model_names
from checkers.models.calls import objection
from checkers.models.model import Model, Validating
from checkers.models.picture import draw_failure
from checkers.models.queues import KeyedQueue, QueueModel
from checkers.models.registers import CasRegister, KeyValue, LenientKeyValue
from checkers.models.sets import SetModel
from checkers.models.values import frozen
from harness.contracts.verdict import Validity, Verdict
from harness.errors import HistoryError, UsageError
from harness.history.foreign.edn_values import to_edn
from harness.history.foreign.events import FAIL, INFO, OK, RecordedOperation, shown, states_no_value
from harness.history.foreign.read import ForeignHistory, Workload
from harness.names import unknown_name
from harness.runs.foreign_clocks import at_best_without_order, hides_order
from harness.runs.foreign_guess import is_keyed, is_pair, model_shown_by
from harness.runs.foreign_verdict import ForeignVerdict, Named, Ordered

TIME_LIMIT_S = 60.0
INITIAL_VALUES_MAX = 20
"""Initial values that are tried; as many as operations can be open when the first value is written."""


class Unstated(Enum):
    """The type of `NOT_STATED`."""

    INITIAL = "not stated"


NOT_STATED = Unstated.INITIAL
"""Instead of an initial value that is not stated; nil is a value."""

GUESSED_FIFO = ("queue", "keyed-queue")
FIFO_ASSUMED = (
    "nothing states the model, so a queue that is first in, first out is assumed; if it promises no order, name a"
    " model of your own with --model (docs/how-to/check-a-system-that-is-not-a-log.md has one)"
)
"""Added to what is invalid as a queue that was guessed."""

_WRITES = frozenset({"write", "put", "append", "enqueue"})
"""Functions whose result shows nothing about the state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """How to judge by a model.

    Attributes:
        initial: Its value before the first operation. If it is stated and not nil, a register always has a value,
            so a read that returned nil states nothing, as in Knossos. If it is not stated, nil is assumed, or
            empty text where a store returns that; what is invalid only under this assumption is unknown.
        time_limit_s: When the search of a model gives up.
    """

    initial: Any = NOT_STATED
    time_limit_s: float = TIME_LIMIT_S

    @property
    def is_initial_stated(self) -> bool:
        """Whether the value before the first operation is stated."""
        return self.initial is not NOT_STATED


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignOperation(Operation):
    """An operation whose values are written as EDN, as in other sentences about a file."""

    def value_text(self, value: Any) -> str:
        """Returns an argument or a result as text."""
        try:
            return to_edn(value)
        except TypeError:
            return repr(value)


class _UnfitError(Exception):
    """An operation cannot be given to the model."""


class _ContradictionError(Exception):
    """A completion contradicts its invocation."""


def judge_model(history: ForeignHistory, options: ModelOptions) -> ForeignVerdict:
    """Judges operations by a model.

    Raises:
        UsageError: No model has the name, the functions show none, or it has no initial value.
        HistoryError: An operation is none of the model, or not of the one that the functions show; the sentence
            names its line.
    """
    recorded = history.operations
    name = model_of(history)
    model = _model(name)
    if options.is_initial_stated:
        model = _with_initial(model, options.initial)
    operations = _operations(
        history, name, model, has_value=options.is_initial_stated and options.initial is not None
    )
    error_ns = history.declaration.clock_error_ns
    if not options.is_initial_stated and name == "key-value" and _reads_empty_text(operations):
        model = _with_initial(model, "")
    ordered = _ending_later(operations, error_ns, in_order=True)
    result = check_model(ordered, model, time_limit_s=options.time_limit_s)
    verdict = _unless_unread(_verdict_of(result), recorded, operations, model)
    if verdict.validity == Validity.INVALID:
        loose = _ending_later(operations, error_ns, in_order=False)
        if loose != ordered:
            verdict = _doubted_by_clocks(verdict, loose, model, options)
        if verdict.validity == Validity.INVALID and not options.is_initial_stated:
            verdict = _doubted(verdict, loose, model, options)
        if verdict.validity == Validity.INVALID and isinstance(model, KeyValue):
            _refuse_meaningless_append(history, loose, model, options)
        if (
            verdict.validity == Validity.INVALID
            and name in GUESSED_FIFO
            and not history.declaration.model
        ):
            verdict = replace(verdict, reasons=(*verdict.reasons, FIFO_ASSUMED))
    if hides_order(recorded, error_ns):
        verdict = at_best_without_order(verdict)
    return ForeignVerdict(
        verdict=verdict,
        model=name,
        named=_blocked(result, recorded, operations),
        order=_order(result, recorded, operations),
        picture=draw_failure(ordered, result.partitions[0]) if result.partitions else "",
    )


def model_of(history: ForeignHistory) -> str:
    """Returns the name of what judges a history: as it is stated, or as its functions and values show it.

    Raises:
        UsageError: The functions show no model.
        HistoryError: A value is not of the model that the functions show; the sentence names its line.
    """
    if history.declaration.model:
        return history.declaration.model
    return model_shown_by(history) if history.workload == Workload.MODEL else str(history.workload)


def _model(name: str) -> Model:
    """Returns the model with a name; the sentence about an unknown name lists everything that --model takes."""
    names = (*model_names(), Workload.LIST_APPEND, Workload.LOG)
    if ":" not in name and name not in names:
        raise UsageError(unknown_name("model", name, names))
    return find_model(name)


def _order(
    result: ModelResult, recorded: Sequence[RecordedOperation], operations: Sequence[Operation]
) -> Ordered:
    longest = [one for part in result.partitions[:1] for one in part.partial_linearizations[:1]]
    return tuple(
        (number, recorded[number].line, operations[number].text(), state)
        for one in longest
        for number, state in zip(one.operations, one.states, strict=True)
    )


def _ending_later(
    operations: Sequence[Operation], error_ns: int, *, in_order: bool
) -> list[Operation]:
    """Returns operations whose ends are later by the clock error, so that close ones are concurrent.

    Intervals cannot express that operations of one process keep their order although all others that are as close
    are concurrent. So there are two sets of intervals. What is valid in the stricter one is valid; what is invalid
    in the looser one is invalid.

    Args:
        operations: As they were recorded.
        error_ns: Largest difference between two clocks.
        in_order: Whether each still ends before the next one of its process begins.
    """
    if not error_ns:
        return list(operations)
    begun: dict[int | str, list[tuple[int, int]]] = {}
    for one in operations:
        # Without an end it is not known whether an operation ended at once.
        ends_ns = one.invoked_ns if one.completed_ns is None else one.completed_ns
        begun.setdefault(one.process, []).append((one.invoked_ns, ends_ns))
    for mine in begun.values():
        mine.sort()
    later = []
    for one in operations:
        if one.completed_ns is not None:
            end_ns = one.completed_ns + error_ns
            mine = begun[one.process]
            at = one.completed_ns, one.completed_ns
            # Two that begin and end at one time are in an order that is not known.
            following = (bisect_left if one.invoked_ns < one.completed_ns else bisect_right)(
                mine, at
            )
            if in_order and following < len(mine):
                # The models keep the order of a process in which one operation begins as another one ends.
                end_ns = min(end_ns, mine[following][0])
            one = replace(one, completed_ns=end_ns)
        later.append(one)
    return later


def _unless_unread(
    verdict: Verdict,
    recorded: Sequence[RecordedOperation],
    operations: Sequence[Operation],
    model: Model,
) -> Verdict:
    """Returns the verdict, unknown instead of valid if no operation shows what the others did.

    Of a model that is not built in, it is not known which operations show something.
    """
    is_known = isinstance(model, CasRegister | KeyValue | QueueModel | KeyedQueue | SetModel)
    is_any_ok = any(one.outcome == OK for one in recorded)
    if verdict.validity != Validity.VALID or not is_known or not is_any_ok:
        return verdict
    if any(one.outcome == OK and _shows_state(one) for one in operations):
        return verdict
    reason = "no operation that was ok read anything, so nothing was tested"
    return replace(verdict, validity=Validity.UNKNOWN, reasons=(reason,))


def _shows_state(one: Operation) -> bool:
    """Returns whether an operation that was ok shows what was there: a read, a cas, a change of a set or none."""
    if one.function in ("add", "remove"):
        return one.output is not None
    return one.function not in _WRITES


def _doubted_by_clocks(
    verdict: Verdict, loose: Sequence[Operation], model: Model, options: ModelOptions
) -> Verdict:
    """Returns an invalid verdict as unknown if the clock error may explain it."""
    other = check_model(loose, model, time_limit_s=options.time_limit_s)
    if other.validity == Validity.INVALID:
        return verdict
    reason = "operations of one process are closer than clock_error_ns, so it may be valid in another order"
    return replace(verdict, validity=Validity.UNKNOWN, reasons=(*verdict.reasons, reason))


def _operations(
    history: ForeignHistory, name: str, model: Model, *, has_value: bool
) -> list[Operation]:
    adapt = _adapter(name, history.operations) if history.has_events else _as_it_is
    always_has_value = has_value and isinstance(model, CasRegister | KeyValue)
    operations = []
    for one in history.operations:
        try:
            operation = adapt(one)
        except _UnfitError as error:
            raise HistoryError(f"{history.path}, line {one.line}: {error}") from None
        except _ContradictionError as error:
            raise HistoryError(f"{history.path}, line {one.completion_line}: {error}") from None
        why = objection(model, operation, model.objection) if isinstance(model, Validating) else ""
        if why:
            raise HistoryError(f"{history.path}, line {one.line}: {operation.text()} {why}")
        is_read = operation.function in ("read", "get") and operation.outcome == OK
        if always_has_value and is_read and operation.output is None:
            operation = replace(operation, outcome=INFO)
        operations.append(operation)
    return operations


def _reads_empty_text(operations: Sequence[Operation]) -> bool:
    """Returns whether a store reports a key without a value as empty text, never as nil."""
    results = [one.output for one in operations if one.function == "get" and one.outcome == OK]
    return "" in results and None not in results


def _doubted(
    verdict: Verdict, operations: Sequence[Operation], model: Model, options: ModelOptions
) -> Verdict:
    """Returns an invalid verdict as unknown if it rests on an initial value that was not stated.

    Every key may hold another value at first.
    """
    if not isinstance(model, CasRegister | KeyValue):
        return verdict
    objects: dict[Hashable, list[Operation]] = {}
    for one in operations:
        key: Hashable = model.partition_key(one) if isinstance(model, KeyValue) else None
        objects.setdefault(key, []).append(one)
    reasons = []
    for mine in objects.values():
        result = check_model(mine, model, time_limit_s=options.time_limit_s)
        if result.validity != Validity.INVALID:
            continue
        reason = _other_beginning(mine, model, options)
        if not reason:
            return verdict
        reasons.append(reason)
    return replace(
        verdict,
        validity=Validity.UNKNOWN,
        reasons=(*verdict.reasons, *dict.fromkeys(reasons)),
    )


def _other_beginning(
    operations: Sequence[Operation], model: CasRegister | KeyValue, options: ModelOptions
) -> str:
    """Returns why operations of one object may be valid with another initial value; empty if they are not."""
    candidates = _observed_first(operations, model)
    for value in candidates[:INITIAL_VALUES_MAX]:
        other = check_model(
            operations, _with_initial(model, value), time_limit_s=options.time_limit_s
        )
        if other.validity != Validity.INVALID:
            return f"it may be valid if the value is {shown(value)} at first; state what it is with --initial"
    if len(candidates) > INITIAL_VALUES_MAX:
        return "the value at first is not known; state it with --initial"
    return ""


def _observed_first(operations: Sequence[Operation], model: CasRegister | KeyValue) -> list[Any]:
    """Returns the values other than the model's that may have been there at first.

    They were observed by a read or a cas before a first value was certainly replaced. A cas that found another
    value observed none, but it may be possible only with a value that occurs nowhere.
    """
    is_keyed = isinstance(model, KeyValue)
    replaced_ns: dict[Hashable, int] = {}
    observed: list[tuple[Hashable, int, Any]] = []
    has_failed_cas = False
    for one in operations:
        key: Hashable = model.partition_key(one) if isinstance(model, KeyValue) else None
        if one.function == "cas" and one.outcome != FAIL:
            if one.outcome == OK and one.output is False:
                has_failed_cas = True
                continue
            observed.append((key, one.invoked_ns, one.input[1 if is_keyed else 0]))
        if one.outcome != OK or one.completed_ns is None:
            continue
        if one.function in ("read", "get"):
            observed.append((key, one.invoked_ns, one.output))
            continue
        if one.function == "append":
            continue  # what was there at first stays there
        replaced_ns[key] = min(replaced_ns.get(key, one.completed_ns), one.completed_ns)
    grows = {
        model.partition_key(one) if isinstance(model, KeyValue) else None
        for one in operations
        if one.function == "append"
    }
    values = {
        to_edn(beginning): beginning
        for key, invoked_ns, value in observed
        if key not in replaced_ns or invoked_ns <= replaced_ns[key]
        for beginning in _beginnings(value, grows=key in grows)
    }
    values.pop(to_edn(model.initial), None)
    return [*values.values(), *([_unused_text(operations)] if has_failed_cas else [])]


def _unused_text(operations: Sequence[Operation]) -> str:
    """Returns a text that occurs nowhere in the operations."""
    texts = [repr((one.input, one.output)) for one in operations]
    unused = "another value"
    while any(unused in text for text in texts):
        unused += "?"
    return unused


def _beginnings(value: Any, *, grows: bool) -> list[Any]:
    """Returns the values that may have become a value by appending to them, itself first, empty text last."""
    if not grows or not isinstance(value, str):
        return [value]
    return [value[:length] for length in range(len(value), -1, -1)]


def _refuse_meaningless_append(
    history: ForeignHistory, operations: Sequence[Operation], model: KeyValue, options: ModelOptions
) -> None:
    """Refuses a history that is invalid only because text was appended to something else, for example a number."""
    lenient = LenientKeyValue(initial=model.initial)
    if (
        check_model(operations, lenient, time_limit_s=options.time_limit_s).validity
        == Validity.INVALID
    ):
        return
    for number, one in enumerate(operations):
        if one.function != "append" or one.outcome == FAIL:
            continue
        held = [
            other.input[-1]
            for other in operations
            if other.function in ("put", "cas")
            and other.outcome != FAIL
            and model.partition_key(other) == model.partition_key(one)
            and (one.completed_ns is None or other.invoked_ns <= one.completed_ns)
        ]
        value = next(
            (v for v in [*held[::-1], model.initial] if not isinstance(v, str | None)), None
        )
        if value is not None:
            raise HistoryError(
                f"{history.path}, line {history.operations[number].line}: {one.text()} appends to a key that may"
                f" hold {shown(value)}; text can be appended to text only, so name your own model with --model"
            )


def _with_initial(model: Model, initial: Any) -> Model:
    if not isinstance(model, CasRegister | KeyValue):
        raise UsageError(f"the model {model.name!r} has no initial value; leave out --initial")
    return replace(model, initial=initial)


def _adapter(
    name: str, operations: Sequence[RecordedOperation]
) -> Callable[[RecordedOperation], Operation]:
    if name in ("register", "cas-register"):
        return _register
    if name == "key-value":
        return _keyed_register if is_keyed(operations) else _key_value
    return {"queue": _queue, "keyed-queue": _keyed_queue, "set": _set}.get(name, _as_it_is)


def _operation(one: RecordedOperation, function: str, given: Any, output: Any) -> Operation:
    return ForeignOperation(
        process=one.process,
        function=function,
        input=given,
        output=output,
        invoked_ns=one.invoked_ns,
        completed_ns=one.completed_ns,
        outcome=one.outcome,
    )


def _as_it_is(one: RecordedOperation) -> Operation:
    return _operation(one, one.function, one.argument, one.result)


def _register(one: RecordedOperation) -> Operation:
    if one.function == "read":
        return _operation(one, "read", None, one.result)
    _require_same(one)
    return _operation(one, one.function, one.argument, None)


def _keyed_register(one: RecordedOperation) -> Operation:
    key, plain = _without_key(one, _register)
    if plain.function == "read":
        return replace(plain, function="get", input=key)
    if plain.function == "write":
        return replace(plain, function="put", input=(key, plain.input))
    return replace(plain, input=(key, *_pair(plain.input)))


def _without_key(
    one: RecordedOperation, adapt: Callable[[RecordedOperation], Operation]
) -> tuple[Any, Operation]:
    """Returns the key of an operation with pairs of key and value, and the operation without it."""
    key, value = _pair(one.argument)
    result = one.result
    if is_pair(result):
        completed_key, result = result
        _require_key(one, key, completed_key)
    elif one.outcome == OK:
        raise _ContradictionError(
            f"{shown(result)} is no pair; a completion that is ok has [key value], with the key {shown(key)}"
            f" of its invocation on line {one.line}"
        )
    return key, adapt(replace(one, argument=value, result=result))


def _key_value(one: RecordedOperation) -> Operation:
    completed = one.extra
    if one.outcome != OK and completed.get("key") is None:
        completed = one.invoked_extra
    if "key" not in completed:
        if one.invoked_extra.get("key") is not None:
            raise _ContradictionError(
                f"the completion has no :key; one that is ok repeats the key invoked on line {one.line}"
            )
        raise _UnfitError("the operation has no :key")
    key = completed["key"]
    _require_key(one, one.invoked_extra.get("key", key), key)
    if one.function == "get":
        return _operation(one, "get", key, one.result)
    _require_same(one)
    return _operation(one, one.function, (key, one.argument), None)


def _queue(one: RecordedOperation) -> Operation:
    if one.function == "dequeue":
        return _operation(one, "dequeue", None, one.result)
    _require_same(one)
    return _operation(one, one.function, one.argument, None)


def _keyed_queue(one: RecordedOperation) -> Operation:
    key, plain = _without_key(one, _queue)
    return replace(plain, input=key if plain.function == "dequeue" else (key, plain.input))


def _set(one: RecordedOperation) -> Operation:
    if one.function == "read":
        return _operation(one, "read", None, one.result)
    repeats = one.function != "contains" and frozen(one.result) == frozen(one.argument)
    if isinstance(one.result, bool) and not repeats:
        return _operation(one, one.function, one.argument, one.result)
    _require_same(one)
    return _operation(one, one.function, one.argument, None)


def _require_same(one: RecordedOperation) -> None:
    """Refuses an operation that completes with another value than it was invoked with."""
    is_repeated = states_no_value(one) or frozen(one.result) == frozen(one.argument)
    if not is_repeated:
        raise _ContradictionError(
            f"process {one.process} completes {one.function} {shown(one.result)}, but it invoked {one.function}"
            f" {shown(one.argument)} on line {one.line}"
        )


def _require_key(one: RecordedOperation, invoked: Any, completed: Any) -> None:
    if frozen(completed) != frozen(invoked):
        raise _ContradictionError(
            f"process {one.process} completes {one.function} of the key {shown(completed)}, but it invoked it"
            f" of the key {shown(invoked)} on line {one.line}"
        )


def _pair(value: Any) -> Sequence[Any]:
    if not is_pair(value):
        raise _UnfitError(f"{shown(value)} is no pair; the values of the history have keys")
    pair: Sequence[Any] = value
    return pair


def _verdict_of(result: ModelResult) -> Verdict:
    reasons = [part.sentence for part in result.partitions] or [result.sentence]
    return Verdict(
        validity=result.validity,
        reasons=() if result.validity == Validity.VALID else tuple(reasons),
        coverage={"objects": result.partition_count, "operations": result.operation_count},
    )


def _blocked(
    result: ModelResult, recorded: Sequence[RecordedOperation], operations: Sequence[Operation]
) -> Named:
    numbers = sorted({number for part in result.partitions for number in part.blocked})
    return tuple((number, recorded[number].line, operations[number].text()) for number in numbers)
