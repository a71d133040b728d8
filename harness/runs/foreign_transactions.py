"""Foreign histories of transactions that append to lists, judged by the search for cycles of dependencies."""

from dataclasses import replace
from typing import Any

from checkers.kernels.levels import HOLDS, UNKNOWN
from checkers.kernels.transactions.check import check_list_append
from checkers.kernels.transactions.columns import (
    Append,
    MicroOperation,
    Read,
    Transaction,
    transactions_of,
)
from checkers.kernels.transactions.isolation import (
    levels_held,
    needs_order_in_time,
    promises_read_committed,
)
from checkers.models.values import frozen
from harness.contracts.checker import CheckerReport
from harness.contracts.verdict import Anomaly, Judgement, Validity, Verdict
from harness.errors import HistoryError
from harness.history.foreign.edn_values import to_edn
from harness.history.foreign.events import (
    OK,
    RecordedOperation,
    is_integer,
    name_of,
    shown,
    states_no_value,
)
from harness.history.foreign.read import ForeignHistory
from harness.runs.foreign_clocks import at_best_without_order, hides_order

PROMISE = "strict-serializable"
"""The isolation level that is assumed if none is named."""


def judge_list_append(
    history: ForeignHistory, promise: str
) -> tuple[Verdict, tuple[tuple[int, int | None, str], ...]]:
    """Judges transactions; returns the verdict and the transactions it names.

    Args:
        history: Transactions that append values to lists and read whole lists.
        promise: The isolation level that they were promised; empty for `PROMISE`.

    Raises:
        HistoryError: A transaction is none of appends and reads; the sentence names its line.
        UsageError: The promise is no known isolation level.
    """
    transactions = transactions_of(
        _transaction(history, number, one) for number, one in enumerate(history.operations)
    )
    try:
        report = check_list_append(
            transactions,
            promise=promise or PROMISE,
            clock_error_ns=history.declaration.clock_error_ns,
        )
    except HistoryError:
        _refuse_repeated_append(history)
        raise
    verdict = _verdict_of_report(report, promise or PROMISE)
    if hides_order(history.operations, history.declaration.clock_error_ns):
        verdict = _without_order(verdict, promise or PROMISE)
    named = {
        witness.op_index: witness.text
        for anomaly in verdict.anomalies
        for witness in anomaly.witnesses
    }
    return verdict, tuple(
        (number, history.operations[number].line, text) for number, text in sorted(named.items())
    )


def _without_order(verdict: Verdict, promise: str) -> Verdict:
    """Returns the verdict with unknown instead of what needs the order in time: a promise, and levels."""
    levels = {
        level: UNKNOWN if needs_order_in_time(level) and state == HOLDS else state
        for level, state in verdict.levels.items()
    }
    verdict = replace(verdict, levels=levels)
    return at_best_without_order(verdict) if needs_order_in_time(promise) else verdict


def _refuse_repeated_append(history: ForeignHistory) -> None:
    """Refuses a value that is appended to one key twice; the sentence names both lines."""
    first: dict[tuple[int | str, int | str], int] = {}
    for number, one in enumerate(history.operations):
        for micro in _transaction(history, number, one).ops:
            if not isinstance(micro, Append):
                continue
            earlier = first.get((micro.key, micro.value))
            if earlier is not None:
                raise HistoryError(
                    f"{history.path}, line {one.line}: {micro.value} is appended to {micro.key}, as on line"
                    f" {earlier}; append each value to a key once only, because otherwise it is unknown which"
                    " append a read returned"
                )
            first[micro.key, micro.value] = one.line


def _transaction(history: ForeignHistory, number: int, one: RecordedOperation) -> Transaction:
    is_ok = one.outcome == OK
    value, line = (one.result, one.completion_line) if is_ok else (one.argument, one.line)
    if not isinstance(value, tuple | list):
        raise HistoryError(
            f"{history.path}, line {line}: {shown(value)} is no list of appends and reads"
        )
    ops = tuple(_micro(history, one, micro, is_ok) for micro in value)
    states_nothing = one.argument is None or (not is_ok and states_no_value(one))
    if not states_nothing and (
        frozen(_without_results(one.argument)) != frozen(_without_results(one.result))
    ):
        raise HistoryError(
            f"{history.path}, line {one.completion_line}: the appends and reads differ from those that process"
            f" {one.process} invoked on line {one.line}"
        )
    return Transaction(
        id=number,
        process=one.process,
        ops=ops,
        invoked_ns=one.invoked_ns,
        completed_ns=one.completed_ns if is_ok else None,
        outcome=one.outcome,
    )


def _micro(
    history: ForeignHistory, one: RecordedOperation, micro: Any, is_ok: bool
) -> MicroOperation:
    if isinstance(micro, tuple | list) and len(micro) == 3:
        function, key, value = micro
        if name_of(function) == "append":
            return Append(_atom(key), _atom(value))
        if name_of(function) == "r" and (value is None or isinstance(value, tuple | list)):
            # A list that was never appended to is read as nil.
            return Read(_atom(key), tuple(map(_atom, value or ())) if is_ok else None)
    line = one.completion_line if is_ok else one.line
    raise HistoryError(
        f"{history.path}, line {line}: {shown(micro)} is neither [:append key value] nor"
        " [:r key list]"
    )


def _without_results(micros: Any) -> Any:
    """Returns what a transaction was asked to do: its appends, and the keys that it reads."""
    if not isinstance(micros, tuple | list):
        return micros
    return [
        tuple(micro[:2] if micro and name_of(micro[0]) == "r" else micro)
        if isinstance(micro, tuple | list)
        else micro
        for micro in micros
    ]


def _atom(value: Any) -> int | str:
    # The kernels hold numbers in 64 bits; longer ones are texts, which no quoted text equals.
    is_number = is_integer(value) and -(2**63) <= value < 2**63
    return value if is_number else to_edn(value)


def _verdict_of_report(report: CheckerReport, promise: str) -> Verdict:
    anomalies = tuple(
        Anomaly(
            id=one.id,
            level=one.level,
            topic="",
            partition=-1,
            count=one.count,
            judgement=one.judgement,
            rule=one.rule,
            sentence=one.sentence,
            witnesses=one.witnesses,
            details=one.details,
        )
        for one in report.findings
    )
    forbidden = [one for one in anomalies if one.judgement == Judgement.FORBIDDEN]
    reasons = (
        *(f"{one.id} ({one.count}): {one.sentence}" for one in forbidden),
        *report.unknown_reasons,
    )
    validity = (
        Validity.INVALID
        if forbidden
        else Validity.UNKNOWN
        if report.unknown_reasons
        else Validity.VALID
    )
    levels = levels_held(report.findings, report.unknown_reasons)
    if not promises_read_committed(promise):
        # What only a stronger promise forbids was not looked for.
        levels = {
            level: UNKNOWN if state == HOLDS and promises_read_committed(level) else state
            for level, state in levels.items()
        }
    return Verdict(
        validity=validity,
        reasons=reasons,
        anomalies=anomalies,
        coverage=dict(report.coverage),
        levels=levels,
    )
