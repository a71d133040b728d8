"""Which anomalies an isolation level forbids, and which levels hold."""

from dataclasses import replace

import pytest

from checkers.kernels.transactions.check import check_list_append, check_log_transactions
from checkers.kernels.transactions.columns import Append, Poll, Read, Transaction, transactions_of
from checkers.kernels.transactions.isolation import (
    KAFKA_READ_COMMITTED,
    KAFKA_READ_UNCOMMITTED,
    LEVELS,
    breaks,
    judge_isolation,
    levels,
    levels_held,
    needs_cycle_search,
    needs_order_in_time,
)
from checkers.transaction_anomalies import TRANSACTION_ROWS
from harness.contracts.verdict import Judgement
from harness.errors import UsageError
from tests.unit.checkers.small_transactions import ONE, READER


@pytest.mark.parametrize("identifier", [row[0] for row in TRANSACTION_ROWS])
def test_every_level_judges_every_anomaly(identifier: str) -> None:
    for promise in levels():
        judged = judge_isolation(identifier, promise)
        assert judged.judgement in (Judgement.FORBIDDEN, Judgement.ALLOWED)
        assert judged.rule
    broken = [level for level in LEVELS if breaks(identifier, level)]
    assert identifier == "int-send-skip" or "strong-serializable" in broken


@pytest.mark.parametrize(
    ("identifier", "allowed", "forbidden"),
    [
        ("G0", None, "read-uncommitted"),
        ("G0-process", "serializable", "strong-session-read-uncommitted"),
        ("G0-realtime", "strong-session-serializable", "strong-read-uncommitted"),
        ("G1a", "strong-read-uncommitted", "read-committed"),
        ("incompatible-order", "strong-read-uncommitted", "read-committed"),
        ("duplicate-elements", None, "read-uncommitted"),
        ("fractured-read", "strong-read-committed", "read-atomic"),
        ("G-single", "strong-read-atomic", "snapshot-isolation"),
        ("G2-item", "strong-snapshot-isolation", "serializable"),
        ("G2-item-realtime", "strong-session-serializable", "strict-serializable"),
        ("G1c", KAFKA_READ_COMMITTED, "read-committed"),
        ("G1a", KAFKA_READ_UNCOMMITTED, KAFKA_READ_COMMITTED),
        ("circular-reads-realtime", KAFKA_READ_UNCOMMITTED, KAFKA_READ_COMMITTED),
        ("lost-acked-write", None, KAFKA_READ_UNCOMMITTED),
    ],
)
def test_an_anomaly_breaks_a_level_and_not_the_one_below(
    identifier: str, allowed: str | None, forbidden: str
) -> None:
    assert judge_isolation(identifier, forbidden).judgement == Judgement.FORBIDDEN
    if allowed is not None:
        assert judge_isolation(identifier, allowed).judgement == Judgement.ALLOWED


@pytest.mark.parametrize("level", LEVELS)
def test_records_of_others_between_those_of_a_transaction_break_no_level(level: str) -> None:
    assert judge_isolation("int-send-skip", level).judgement == Judgement.ALLOWED


def test_an_unknown_level_is_refused_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match="did you mean 'serializable'"):
        check_list_append(transactions_of([ONE]), promise="serialisable")


def test_the_levels_that_hold_are_named() -> None:
    skew = [
        Transaction(id=1, ops=(Read("x", ()), Append("y", 1))),
        Transaction(id=2, ops=(Read("y", ()), Append("x", 2))),
    ]
    report = check_list_append(transactions_of(skew), promise="snapshot-isolation")
    assert [f.judgement for f in report.findings] == [Judgement.ALLOWED]
    held = levels_held(report.findings, report.unknown_reasons)
    assert held["read-atomic"] == held["strong-read-atomic"] == "holds"
    assert held["serializable"] == held["strong-serializable"] == "broken"
    # G2-item may be one of the cycles that snapshot isolation forbids too.
    assert held["snapshot-isolation"] == "unknown"
    valid = check_list_append(transactions_of([ONE, READER]))
    assert set(levels_held(valid.findings, valid.unknown_reasons).values()) == {"holds"}
    assert set(levels_held((), ("a reason",)).values()) == {"unknown"}


CYCLE_OF_WRITES = (
    Transaction(id=1, ops=(Append("x", 1), Append("y", 1))),
    Transaction(id=2, ops=(Append("x", 2), Append("y", 2))),
    Transaction(id=3, ops=(Read("x", (1, 2)), Read("y", (2, 1)))),
)


@pytest.mark.parametrize("strength", ["", "strong-session-", "strong-"])
@pytest.mark.parametrize(
    ("outcome", "base", "is_forbidden"),
    [
        ("committed", "read-uncommitted", True),
        ("unknown", "read-uncommitted", False),
        ("unknown", "read-committed", True),
    ],
)
def test_an_uncommitted_read_does_not_show_that_its_writer_committed(
    outcome: str, base: str, is_forbidden: bool, strength: str
) -> None:
    first, *rest = CYCLE_OF_WRITES
    history = [replace(first, outcome=outcome), *rest]
    report = check_list_append(transactions_of(history), promise=strength + base)
    assert (Judgement.FORBIDDEN in {one.judgement for one in report.findings}) == is_forbidden
    assert report.coverage["transactions_proven"] == (
        outcome == "unknown" and base == "read-committed"
    )


def test_a_cycle_of_writes_may_rest_on_an_uncommitted_read() -> None:
    report = check_list_append(transactions_of(CYCLE_OF_WRITES))
    held = levels_held(report.findings, report.unknown_reasons)
    assert held["read-uncommitted"] == "unknown"
    assert held["read-committed"] == "broken"
    again = [Transaction(id=1, ops=(Append("x", 1),)), Transaction(id=2, ops=(Read("x", (1, 1)),))]
    report = check_list_append(transactions_of(again))
    assert levels_held(report.findings, report.unknown_reasons)["read-uncommitted"] == "broken"


def test_a_consumer_without_isolation_does_not_show_that_a_transaction_committed() -> None:
    history = [
        Transaction(id=1, ops=(Append("a", 1, offset=0),), outcome="unknown"),
        Transaction(id=2, ops=(Poll((("a", 0, 1),)),)),
    ]
    for promise, proven in (("read-uncommitted", 0), ("read-committed", 1)):
        report = check_log_transactions(transactions_of(history), promise=promise)
        assert report.coverage["transactions_proven"] == proven


LONG_FORK = (
    Transaction(id=1, ops=(Append("x", 1),)),
    Transaction(id=2, ops=(Append("y", 1),)),
    Transaction(id=3, ops=(Read("x", (1,)), Read("y", ()))),
    Transaction(id=4, ops=(Read("x", ()), Read("y", (1,)))),
)
SKEW_OF_WRITES = (
    Transaction(id=1, ops=(Read("x", ()), Append("y", 1))),
    Transaction(id=2, ops=(Read("y", ()), Append("x", 2))),
)


@pytest.mark.parametrize("strength", ["", "strong-session-", "strong-"])
@pytest.mark.parametrize(
    ("history", "judgement"),
    [(LONG_FORK, Judgement.FORBIDDEN), (SKEW_OF_WRITES, Judgement.ALLOWED)],
)
def test_snapshots_forbid_a_cycle_whose_anti_dependencies_do_not_follow_each_other(
    history: tuple[Transaction, ...], judgement: Judgement, strength: str
) -> None:
    history = tuple(replace(one, process=one.id) for one in history)
    report = check_list_append(transactions_of(history), promise=f"{strength}snapshot-isolation")
    assert [(one.id, one.judgement) for one in report.findings] == [("G2-item", judgement)]


@pytest.mark.parametrize(
    ("promise", "is_forbidden"),
    [
        ("snapshot-isolation", False),
        ("strong-session-snapshot-isolation", True),
        ("strong-snapshot-isolation", True),
    ],
)
def test_an_order_between_transactions_may_separate_anti_dependencies(
    promise: str, is_forbidden: bool
) -> None:
    """A long fork whose readers are two processes with one read in each transaction."""
    history = [
        Transaction(id=1, process=1, ops=(Read("x", (1,)),), invoked_ns=0, completed_ns=1),
        Transaction(id=2, process=1, ops=(Read("y", ()),), invoked_ns=2, completed_ns=3),
        Transaction(id=3, process=2, ops=(Append("y", 1),), invoked_ns=0, completed_ns=1),
        Transaction(id=4, process=2, ops=(Append("x", 1),), invoked_ns=0, completed_ns=3),
        Transaction(id=5, process=3, ops=(Read("y", (1,)),), invoked_ns=0, completed_ns=1),
        Transaction(id=6, process=3, ops=(Read("x", ()),), invoked_ns=2, completed_ns=3),
    ]
    report = check_list_append(transactions_of(history), promise=promise)
    assert (Judgement.FORBIDDEN in {one.judgement for one in report.findings}) == is_forbidden


def test_an_order_in_time_separates_nothing_in_a_session() -> None:
    stale = [
        Transaction(id=3, ops=(Append("z", 3),), completed_ns=1),
        Transaction(id=4, ops=(Read("z", ()),), invoked_ns=2),
    ]
    report = check_list_append(
        transactions_of([*SKEW_OF_WRITES, *stale]), promise="strong-session-snapshot-isolation"
    )
    assert {one.id: one.judgement for one in report.findings} == {
        "G-single-realtime": Judgement.ALLOWED,
        "G2-item": Judgement.ALLOWED,
    }


@pytest.mark.parametrize("is_fractured", [True, False])
def test_a_write_skew_stays_allowed_beside_a_cycle_that_snapshots_forbid(
    is_fractured: bool,
) -> None:
    """T4 reads one append of T3 and misses the other one."""
    history = [
        Transaction(id=1, process=1, ops=(Read("x", ()), Append("y", 1))),
        Transaction(id=2, process=2, ops=(Read("y", ()), Append("x", 2))),
        Transaction(id=3, process=3, ops=(Append("p", 1), Append("q", 1))),
        Transaction(
            id=4, process=4, ops=(Read("p", (1,)), Read("q", () if is_fractured else (1,)))
        ),
        Transaction(id=5, process=5, ops=(Read("x", (2,)), Read("y", (1,)), Read("q", (1,)))),
    ]
    report = check_list_append(transactions_of(history), promise="snapshot-isolation")
    found = {finding.id: finding.judgement for finding in report.findings}
    assert found["G2-item"] is Judgement.ALLOWED
    assert (found.get("G-single") is Judgement.FORBIDDEN) == is_fractured


@pytest.mark.parametrize("promise", levels())
def test_only_kafka_allows_every_cycle_with_an_anti_dependency(promise: str) -> None:
    is_of_kafka = promise in ("kafka-read-committed", "kafka-read-uncommitted")
    assert needs_cycle_search(promise) is not is_of_kafka


@pytest.mark.parametrize("level", levels())
def test_a_level_needs_the_order_in_time_if_it_forbids_what_only_that_shows(level: str) -> None:
    is_of_kafka = level in (KAFKA_READ_COMMITTED, KAFKA_READ_UNCOMMITTED)
    assert needs_order_in_time(level) == (not is_of_kafka and breaks("G0-realtime", level))
