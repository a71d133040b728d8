"""For every anomaly of transactions the smallest history that has it, and a near miss that is valid."""

from collections.abc import Callable
from typing import Any

import pytest

from checkers.anomalies import ANOMALIES
from checkers.kernels.transactions.check import check_list_append, check_log_transactions
from checkers.kernels.transactions.columns import (
    Append,
    CommitOffset,
    MicroOperation,
    Poll,
    Read,
    Transaction,
    transactions_of,
)
from checkers.transaction_anomalies import TRANSACTION_ROWS
from harness.contracts.checker import CheckerFinding, CheckerReport
from harness.contracts.verdict import Judgement
from tests.anomalies.recorded_anomalies import CASES as RECORDED

History = tuple[Transaction, ...]


def txn(
    number: int, *ops: MicroOperation, at: tuple[int, int] | None = (0, 100), **more: Any
) -> Transaction:
    """Returns a committed transaction that is concurrent with all others unless `at` says when it ran."""
    start, end = at if at is not None else (0, None)
    return Transaction(id=number, ops=ops, invoked_ns=start, completed_ns=end, **more)


def put(key: str, *values: int) -> tuple[Append, ...]:
    return tuple(Append(key, value) for value in values)


def send(key: str, offset: int | None, value: int) -> Append:
    return Append(key, value, offset)


def got(*records: tuple[str, int, int]) -> Poll:
    """Returns one poll of (key, offset, value)."""
    return Poll(records)


def read(key: str, *values: int) -> Read:
    return Read(key, values)


WRITE_SKEW = (
    txn(1, read("x"), *put("y", 1)),
    txn(2, read("y"), *put("x", 2)),
)
ONE_WRITER = txn(1, *put("x", 1), *put("y", 1))

LISTS: dict[str, tuple[History, History]] = {
    "G0": (
        (
            ONE_WRITER,
            txn(2, *put("x", 2), *put("y", 2)),
            txn(3, read("x", 1, 2), read("y", 2, 1)),
        ),
        (
            ONE_WRITER,
            txn(2, *put("x", 2), *put("y", 2)),
            txn(3, read("x", 1, 2), read("y", 1, 2)),
        ),
    ),
    "G0-process": (
        (
            txn(1, *put("x", 1), at=(0, 5), process=7),
            txn(2, *put("x", 2), at=(5, 9), process=7),
            txn(3, read("x", 2, 1)),
        ),
        (
            txn(1, *put("x", 1), at=(0, 5), process=7),
            txn(2, *put("x", 2), at=(5, 9), process=8),
            txn(3, read("x", 2, 1)),
        ),
    ),
    "G0-realtime": (
        (txn(1, *put("x", 1), at=(0, 4)), txn(2, *put("x", 2), at=(5, 9)), txn(3, read("x", 2, 1))),
        (txn(1, *put("x", 1), at=(0, 5)), txn(2, *put("x", 2), at=(5, 9)), txn(3, read("x", 2, 1))),
    ),
    "G1a": (
        (txn(1, *put("x", 1), outcome="aborted"), txn(2, read("x", 1))),
        (txn(1, *put("x", 1), outcome="unknown"), txn(2, read("x", 1))),
    ),
    "G1b": (
        (txn(1, *put("x", 1, 2)), txn(2, read("x", 1))),
        (txn(1, *put("x", 1, 2)), txn(2, read("x", 1, 2))),
    ),
    "G1c": (
        (txn(1, *put("x", 1), read("y", 2)), txn(2, *put("y", 2), read("x", 1))),
        (txn(1, *put("x", 1), read("y")), txn(2, *put("y", 2), read("x", 1))),
    ),
    "G1c-process": (
        (
            txn(1, read("x", 1), at=(0, 5), process=7),
            txn(2, *put("x", 1), at=(5, 9), process=7),
        ),
        (
            txn(1, read("x", 1), at=(0, 5), process=7),
            txn(2, *put("x", 1), at=(5, 9), process=8),
        ),
    ),
    "G1c-realtime": (
        (txn(1, read("x", 1), at=(0, 4)), txn(2, *put("x", 1), at=(5, 9))),
        (txn(1, read("x", 1), at=(0, 5)), txn(2, *put("x", 1), at=(5, 9))),
    ),
    "G-single": (
        (ONE_WRITER, txn(2, read("x", 1), read("y"))),
        (ONE_WRITER, txn(2, read("x", 1), read("y", 1))),
    ),
    "G-single-process": (
        (
            txn(1, *put("x", 1), at=(0, 5), process=7),
            txn(2, read("x"), at=(5, 9), process=7),
        ),
        (
            txn(1, *put("x", 1), at=(0, 5), process=7),
            txn(2, read("x"), at=(5, 9), process=8),
        ),
    ),
    "G-single-realtime": (
        (txn(1, *put("x", 1), at=(0, 4)), txn(2, read("x"), at=(5, 9))),
        (txn(1, *put("x", 1), at=(0, 5)), txn(2, read("x"), at=(5, 9))),
    ),
    "G2-item": (
        WRITE_SKEW,
        (txn(1, read("x"), *put("y", 1)), txn(2, read("y", 1), *put("x", 2))),
    ),
    "G2-item-process": (
        (
            txn(1, *put("x", 1), at=(0, 5), process=7),
            txn(2, read("y"), at=(5, 9), process=7),
            txn(3, read("x"), *put("y", 3)),
        ),
        (
            txn(1, *put("x", 1), at=(0, 5), process=7),
            txn(2, read("y"), at=(5, 9), process=8),
            txn(3, read("x"), *put("y", 3)),
        ),
    ),
    "G2-item-realtime": (
        (
            txn(1, *put("x", 1), at=(0, 4)),
            txn(2, read("y"), at=(5, 9)),
            txn(3, read("x"), *put("y", 3)),
        ),
        (
            txn(1, *put("x", 1), at=(0, 4)),
            txn(2, read("y", 3), at=(5, 9)),
            txn(3, read("x"), *put("y", 3)),
        ),
    ),
    "dirty-update": (
        (
            txn(1, *put("x", 1), outcome="aborted"),
            txn(2, *put("x", 2)),
            txn(3, read("x", 1, 2)),
        ),
        (
            txn(1, *put("x", 1), outcome="unknown"),
            txn(2, *put("x", 2)),
            txn(3, read("x", 1, 2)),
        ),
    ),
    "lost-update": (
        (txn(1, read("x"), *put("x", 1)), txn(2, read("x"), *put("x", 2))),
        (txn(1, read("x"), *put("x", 1)), txn(2, read("x", 1), *put("x", 2))),
    ),
    "fractured-read": (
        (ONE_WRITER, txn(2, read("x", 1), read("y"))),
        (ONE_WRITER, txn(2, read("x"), read("y"))),
    ),
    "internal": (
        (txn(1, *put("x", 1), read("x")),),
        (txn(1, *put("x", 1), read("x", 1)),),
    ),
    "incompatible-order": (
        (ONE_WRITER, txn(2, *put("x", 2)), txn(3, read("x", 1)), txn(4, read("x", 2))),
        (ONE_WRITER, txn(2, *put("x", 2)), txn(3, read("x", 1)), txn(4, read("x", 1, 2))),
    ),
    "duplicate-elements": (
        (txn(1, *put("x", 1)), txn(2, read("x", 1, 1))),
        (txn(1, *put("x", 1)), txn(2, read("x", 1), read("x", 1))),
    ),
    "phantom-value": (
        (txn(1, *put("y", 1)), txn(2, read("x", 1))),
        (txn(1, *put("x", 1)), txn(2, read("x", 1))),
    ),
}

INTERLEAVED = (
    txn(1, send("a", 0, 1), send("b", 1, 1)),
    txn(2, send("a", 1, 2), send("b", 0, 2)),
)
THREE_RECORDS = txn(1, send("a", 0, 1), send("a", 1, 2), send("a", 2, 3))
TWO_PARTITIONS = txn(1, send("a", 0, 1), send("b", 0, 1), at=(0, 10))
CLOSING = {"at": (200, 300), "is_final": True}
GROUP = {"group": 5}

LOGS: dict[str, tuple[History, History]] = {
    "G0": (
        INTERLEAVED,
        (txn(1, send("a", 0, 1), send("b", 0, 1)), txn(2, send("a", 1, 2), send("b", 1, 2))),
    ),
    "G1c": (
        (txn(1, send("a", 0, 1), send("b", 1, 1)), txn(2, send("b", 0, 2), got(("a", 0, 1)))),
        (txn(1, send("a", 0, 1), send("b", 0, 1)), txn(2, send("b", 1, 2), got(("a", 0, 1)))),
    ),
    "G-single": (
        (
            txn(1, send("a", 1, 1), send("b", 0, 1)),
            txn(2, got(("a", 0, 9), ("b", 0, 1))),
            txn(3, send("a", 0, 9)),
        ),
        (
            txn(1, send("a", 1, 1), send("b", 0, 1)),
            txn(2, got(("a", 0, 9))),
            txn(3, send("a", 0, 9)),
        ),
    ),
    "circular-reads": (
        (txn(1, send("a", 0, 1), got(("b", 0, 2))), txn(2, send("b", 0, 2), got(("a", 0, 1)))),
        (txn(1, send("a", 0, 1)), txn(2, send("b", 0, 2), got(("a", 0, 1)))),
    ),
    "circular-reads-process": (
        (
            txn(1, got(("a", 0, 1)), at=(0, 5), process=7),
            txn(2, send("a", 0, 1), at=(5, 9), process=7),
        ),
        (
            txn(1, got(("a", 0, 1)), at=(0, 5), process=7),
            txn(2, send("a", 0, 1), at=(5, 9), process=8),
        ),
    ),
    "circular-reads-realtime": (
        (
            txn(1, got(("a", 0, 1)), at=(0, 4)),
            txn(2, send("b", 0, 2), at=(5, 9)),
            txn(3, got(("b", 0, 2)), send("a", 0, 1)),
        ),
        (
            txn(1, got(("a", 0, 1)), at=(0, 5)),
            txn(2, send("b", 0, 2), at=(5, 9)),
            txn(3, got(("b", 0, 2)), send("a", 0, 1)),
        ),
    ),
    "G1a": (
        (txn(1, send("a", 0, 1), outcome="aborted"), txn(2, got(("a", 0, 1)))),
        (txn(1, send("a", 0, 1), outcome="unknown"), txn(2, got(("a", 0, 1)))),
    ),
    "aborted-record-visible": (
        (
            txn(1, send("a", 0, 1), outcome="aborted"),
            txn(2, got(("a", 0, 1)), outcome="unknown"),
        ),
        (
            txn(1, send("a", 0, 1), outcome="unknown"),
            txn(2, got(("a", 0, 1)), outcome="unknown"),
        ),
    ),
    "precommitted-read": (
        (
            txn(1, send("a", 0, 1), at=(0, 50), commit_invoked_ns=40),
            txn(2, got(("a", 0, 1)), at=(10, 39)),
        ),
        (
            txn(1, send("a", 0, 1), at=(0, 50), commit_invoked_ns=40),
            txn(2, got(("a", 0, 1)), at=(10, 40)),
        ),
    ),
    "torn-transaction": (
        (TWO_PARTITIONS, txn(2, got(("a", 0, 1)), **CLOSING)),
        (TWO_PARTITIONS, txn(2, got(("a", 0, 1), ("b", 0, 1)), **CLOSING)),
    ),
    "lost-acked-write": (
        (txn(1, send("a", 0, 1), at=(0, 10)), txn(2, got(), **CLOSING)),
        (txn(1, send("a", 0, 1), at=(0, 10), outcome="unknown"), txn(2, got(), **CLOSING)),
    ),
    "int-send-skip": (
        (txn(1, send("a", 0, 1), send("a", 2, 2)), txn(2, send("a", 1, 3))),
        (txn(1, send("a", 0, 1), send("a", 2, 2)), txn(2, send("a", 3, 3))),
    ),
    "int-nonmonotonic-send": (
        (txn(1, send("a", 1, 1), send("a", 0, 2)),),
        (txn(1, send("a", 0, 1), send("a", 1, 2)),),
    ),
    "int-poll-skip": (
        (THREE_RECORDS, txn(2, got(("a", 0, 1), ("a", 2, 3)))),
        (
            txn(1, send("a", 0, 1), send("a", 2, 3)),
            txn(3, send("a", 1, 2), outcome="aborted"),
            txn(2, got(("a", 0, 1)), got(("a", 2, 3))),
        ),
    ),
    "int-nonmonotonic-poll": (
        (THREE_RECORDS, txn(2, got(("a", 1, 2)), got(("a", 0, 1)))),
        (THREE_RECORDS, txn(2, got(("a", 0, 1)), got(("a", 1, 2)))),
    ),
    "session-poll-skip": (
        (
            THREE_RECORDS,
            txn(2, got(("a", 0, 1)), at=(10, 20), session=7),
            txn(3, got(("a", 2, 3)), at=(30, 40), session=7),
        ),
        (
            THREE_RECORDS,
            txn(2, got(("a", 0, 1)), at=(10, 20), session=7),
            txn(3, got(("a", 2, 3)), at=(30, 40), session=8),
        ),
    ),
    "session-nonmonotonic-poll": (
        (
            THREE_RECORDS,
            txn(2, got(("a", 0, 1)), at=(10, 20), session=7),
            txn(3, got(("a", 0, 1)), at=(30, 40), session=7),
        ),
        (
            THREE_RECORDS,
            txn(2, got(("a", 0, 1)), at=(10, 20), session=7, outcome="aborted"),
            txn(3, got(("a", 0, 1)), at=(30, 40), session=7),
        ),
    ),
    "input-processed-twice": (
        (
            txn(1, send("in", 0, 1)),
            txn(2, got(("in", 0, 1)), send("out", 0, 2), CommitOffset("in", 1), **GROUP),
            txn(3, got(("in", 0, 1)), send("out", 1, 3), CommitOffset("in", 1), **GROUP),
        ),
        (
            txn(1, send("in", 0, 1)),
            txn(
                2,
                got(("in", 0, 1)),
                send("out", 0, 2),
                CommitOffset("in", 1),
                outcome="aborted",
                **GROUP,
            ),
            txn(3, got(("in", 0, 1)), send("out", 1, 3), CommitOffset("in", 1), **GROUP),
        ),
    ),
    "input-skipped": (
        (
            THREE_RECORDS,
            txn(2, got(("a", 0, 1)), send("out", 0, 2), CommitOffset("a", 2), **GROUP),
        ),
        (
            THREE_RECORDS,
            txn(2, got(("a", 0, 1)), send("out", 0, 2), CommitOffset("a", 1), **GROUP),
        ),
    ),
    "order-inversion": (
        (txn(1, send("a", 1, 1), at=(0, 4)), txn(2, send("a", 0, 2), at=(5, 9))),
        (txn(1, send("a", 1, 1), at=(0, 5)), txn(2, send("a", 0, 2), at=(5, 9))),
    ),
    "future-read": (
        (txn(1, got(("a", 0, 1)), at=(0, 4)), txn(2, send("a", 0, 1), at=(5, 9))),
        (txn(1, got(("a", 0, 1)), at=(0, 5)), txn(2, send("a", 0, 1), at=(5, 9))),
    ),
    "divergent-value": (
        (txn(1, send("a", 0, 1), send("a", 1, 2)), txn(2, got(("a", 0, 2)))),
        (txn(1, send("a", 0, 1), send("a", 1, 2)), txn(2, got(("a", 0, 1)))),
    ),
    "duplicate": (
        (txn(1, send("a", 0, 1)), txn(2, got(("a", 0, 1), ("a", 1, 1)))),
        (txn(1, send("a", 0, 1)), txn(2, got(("a", 0, 1)))),
    ),
    "phantom-value": (
        (txn(1, send("b", 0, 1)), txn(2, got(("a", 0, 1)))),
        (txn(1, send("a", 0, 1)), txn(2, got(("a", 0, 1)))),
    ),
    "impossible-offset": (
        (txn(1, send("a", 0, 1)), txn(2, got(("a", -5, 1)))),
        (txn(1, send("a", None, 1)), txn(2, got(("a", 0, 1)))),
    ),
}

Check = Callable[[History], CheckerReport]


def check_lists(history: History) -> CheckerReport:
    promise = "serializable"
    if any(t.process is not None for t in history):
        promise = "strong-session-serializable"
    elif any(t.completed_ns != 100 for t in history):
        promise = "strict-serializable"
    return check_list_append(transactions_of(history), promise=promise)


def check_logs(history: History) -> CheckerReport:
    return check_log_transactions(transactions_of(history))


CASES = [
    *((check_lists, identifier, *histories) for identifier, histories in LISTS.items()),
    *((check_logs, identifier, *histories) for identifier, histories in LOGS.items()),
]
NAMES = [f"{'lists' if case[0] is check_lists else 'logs'}-{case[1]}" for case in CASES]


def found(check: Check, identifier: str, history: History) -> CheckerFinding | None:
    return next((f for f in check(history).findings if f.id == identifier), None)


@pytest.mark.parametrize(("check", "identifier", "smallest", "near_miss"), CASES, ids=NAMES)
def test_the_smallest_history_has_the_anomaly_and_the_near_miss_does_not(
    check: Check, identifier: str, smallest: History, near_miss: History
) -> None:
    assert found(check, identifier, smallest) is not None
    assert found(check, identifier, near_miss) is None
    forbidden = [f.id for f in check(near_miss).findings if f.judgement == Judgement.FORBIDDEN]
    assert forbidden == []


@pytest.mark.parametrize(("check", "identifier", "smallest", "near_miss"), CASES, ids=NAMES)
def test_a_finding_names_its_transactions_and_explains_itself(
    check: Check, identifier: str, smallest: History, near_miss: History
) -> None:
    finding = found(check, identifier, smallest)
    assert finding is not None
    assert finding.level == ANOMALIES[identifier].level
    assert finding.count == 1
    assert 1 <= len(finding.witnesses) <= 3
    assert {w.op_index for w in finding.witnesses} <= {t.id for t in smallest}
    for witness in finding.witnesses:
        assert f"T{witness.op_index} " in witness.text
        assert f"T{witness.op_index}" in finding.sentence
    assert finding.rule


@pytest.mark.parametrize("identifier", [row[0] for row in TRANSACTION_ROWS])
def test_every_anomaly_of_transactions_has_a_smallest_history(identifier: str) -> None:
    assert identifier in {*LISTS, *LOGS, *RECORDED}
