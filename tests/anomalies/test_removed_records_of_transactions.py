"""Which anomalies of transactions records explain that were removed from their logs, and which they do not."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from checkers.kernels.transactions.checker import MAY_BE_CLEANED, MAY_BE_REMOVED
from harness.contracts.run_context import RunContext
from harness.contracts.verdict import Judgement, Validity, Verdict
from tests.anomalies.recorded_anomalies import CASES, judgements
from tests.anomalies.recorded_transactions import CONTEXT, A, Events, producer, valid_run

REMOVED = replace(CONTEXT, log_start_offset=1)
CLEANED = replace(CONTEXT, compacted=True)
EXPLAINED = {"torn-transaction", "lost-acked-write", "input-skipped"}
Records = list[tuple[int, int]]


def committed(events: Events, process: int, *offsets: int) -> Records:
    """Returns the offsets and values of records in A that a transaction has committed."""
    one = producer(events, process, f"p-{process}")
    records = [(offset, events.send(one, at, A, offset)) for at, offset in enumerate(offsets)]
    events.commit(one)
    return records


def reads(*polls: tuple[int, ...]) -> Events:
    """A consumer receives some of three records of A, given by their offsets, in one or more transactions."""
    events = Events()
    records = committed(events, 1, 0, 1, 2)
    for poll in polls:
        events.read(7, A, *(records[offset] for offset in poll))
    events.closing(a=records)
    return events


def sends(*transactions: tuple[int, ...]) -> Events:
    """Transactions follow each other, and their records get these offsets."""
    events = Events()
    sent: Records = []
    for process, offsets in enumerate(transactions, 1):
        sent += committed(events, process, *offsets)
    events.closing(a=sorted(sent))
    return events


def received_twice() -> Events:
    """A consumer receives a record at two offsets."""
    events = Events()
    ((_, value),) = committed(events, 1, 0)
    events.read(7, A, (0, value), (1, value))
    events.closing(a=[(0, value)])
    return events


def received_by_an_aborted_consumer() -> Events:
    """A processor that aborts receives a record of an aborted transaction."""
    events = Events()
    known = committed(events, 1, 0)
    one = producer(events, 2, "q")
    value = events.send(one, 0, A, 2)
    events.abort(one)
    events.initialised(3, "processor")
    other = events.begin(3, transactional_id="processor", group="g", isolation="read_committed")
    events.poll(other, 0, A, [(2, value)])
    events.abort(other)
    events.closing(a=known)
    return events


MORE: list[tuple[str, Callable[[], Events], bool]] = [
    ("aborted-record-visible", received_by_an_aborted_consumer, False),
    ("divergent-value", partial(sends, (0,), (0,)), False),
    ("order-inversion", partial(sends, (1,), (0,)), False),
    ("int-nonmonotonic-send", partial(sends, (1, 0)), False),
    ("int-nonmonotonic-poll", partial(reads, (1, 0)), False),
    ("session-nonmonotonic-poll", partial(reads, (0,), (0,)), False),
    ("int-poll-skip", partial(reads, (0, 2)), True),
    ("session-poll-skip", partial(reads, (0,), (2,)), True),
    ("duplicate", received_twice, True),
]
"""Anomalies, histories, and whether a removed record explains them."""


def _is_judged(identifier: str, verdict: Verdict, reason: str, *, is_explained: bool) -> None:
    (anomaly,) = (one for one in verdict.anomalies if one.id == identifier)
    if is_explained:
        assert (anomaly.judgement, anomaly.rule) == (Judgement.UNDECIDED, reason)
        assert verdict.validity is Validity.UNKNOWN
    else:
        assert anomaly.judgement is Judgement.FORBIDDEN
        assert verdict.validity is Validity.INVALID


@pytest.mark.parametrize(
    ("context", "reason"), [(REMOVED, MAY_BE_REMOVED), (CLEANED, MAY_BE_CLEANED)]
)
@pytest.mark.parametrize(("identifier", "make", "is_explained"), MORE)
def test_removed_records_explain_what_polls_passed_over_and_what_is_there_twice(
    identifier: str,
    make: Callable[[], Events],
    is_explained: bool,
    context: RunContext,
    reason: str,
) -> None:
    events = make()
    assert judgements(events.verdict())[identifier] is Judgement.FORBIDDEN
    _is_judged(identifier, events.verdict(context), reason, is_explained=is_explained)


@pytest.mark.parametrize(
    ("context", "reason"), [(REMOVED, MAY_BE_REMOVED), (CLEANED, MAY_BE_CLEANED)]
)
@pytest.mark.parametrize("identifier", CASES)
def test_of_the_smallest_tables_removed_records_explain_what_is_missing_only(
    identifier: str, context: RunContext, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, smallest, near_miss = CASES[identifier]
    judged = Events.verdict
    monkeypatch.setattr(Events, "verdict", lambda events, _=CONTEXT: judged(events, context))
    _is_judged(identifier, make(smallest), reason, is_explained=identifier in EXPLAINED)
    missed = make(near_miss)
    assert missed.validity is Validity.VALID, missed.reasons


@pytest.mark.parametrize("context", [REMOVED, CLEANED])
def test_a_run_without_anomalies_is_valid_where_records_may_have_been_removed(
    context: RunContext,
) -> None:
    assert valid_run().verdict(context).validity is Validity.VALID


def _moved(events: Events) -> Events:
    """Moves all records to the next offset, so that no record is below the log start of `REMOVED`."""
    for row in events.rows:
        if row["offset"] is not None:
            row["offset"] += 1
    return events


@pytest.mark.parametrize("make", [case[1] for case in MORE], ids=[case[0] for case in MORE])
def test_records_from_the_log_start_on_were_not_removed(make: Callable[[], Events]) -> None:
    complete, removed = make().verdict(), _moved(make()).verdict(REMOVED)
    assert judgements(removed) == judgements(complete)
    assert removed.validity is complete.validity is Validity.INVALID


@pytest.mark.parametrize("identifier", CASES)
def test_the_smallest_tables_are_decided_from_the_log_start_on(
    identifier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, smallest, near_miss = CASES[identifier]
    complete = make(smallest), make(near_miss)
    judged = Events.verdict
    monkeypatch.setattr(
        Events, "verdict", lambda events, _=CONTEXT: judged(_moved(events), REMOVED)
    )
    for before, after in zip(complete, (make(smallest), make(near_miss)), strict=True):
        assert judgements(after) == judgements(before)
        assert after.validity is before.validity


@pytest.mark.parametrize("lost", [0, 1])
def test_a_record_is_lost_if_it_is_not_below_the_log_start(lost: int) -> None:
    """The record of one transaction is below the log start, and that of another one is at it."""
    events = Events()
    records = [*committed(events, 1, 0), *committed(events, 2, 1), *committed(events, 3, 2)]
    events.closing(a=[record for record in records if record[0] != lost])
    judgement = Judgement.FORBIDDEN if lost else Judgement.UNDECIDED
    verdict = events.verdict(REMOVED)
    assert judgements(verdict)["lost-acked-write"] is judgement
    assert verdict.validity is (Validity.INVALID if lost else Validity.UNKNOWN)


def test_of_two_lost_records_the_one_that_was_not_removed_is_named() -> None:
    events = Events()
    records = [*committed(events, 1, 0), *committed(events, 2, 1), *committed(events, 3, 2)]
    events.closing(a=records[2:])
    (anomaly,) = events.verdict(REMOVED).anomalies
    assert (anomaly.count, anomaly.judgement) == (1, Judgement.FORBIDDEN)
    assert f"committed {records[1][1]} in t-0" in anomaly.sentence
