"""Transactions that end shortly before the closing reads begin, or after that."""

from dataclasses import replace

import pytest

from harness.contracts.verdict import Judgement, Validity, Verdict
from tests.anomalies.recorded_anomalies import committed_elsewhere, judgements
from tests.anomalies.recorded_transactions import CONTEXT, A, B, Events, producer

REASON = (
    "T7 sent 8 to t-0, and the closing reads did not return it; it is not known whether it is lost, because T7 may"
    " have ended after they began"
)


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_record_committed_within_the_clock_error_before_the_closing_reads_is_lost(
    is_lost: bool,
) -> None:
    """A transaction began 9 ms after another one had ended, and ended 1 ms before the closing reads began."""
    events = Events()
    known = committed_elsewhere(events, 2)
    for _ in range(5):
        events.read(8, B)
    last = producer(events, 1)
    value = events.send(last, 0, A, 0)
    events.commit(last)
    events.closing(a=[] if is_lost else [(0, value)], b=[(0, known)])
    verdict = events.verdict(replace(CONTEXT, clock_error_ns=5_000_000))
    assert verdict.validity is (Validity.INVALID if is_lost else Validity.VALID), verdict.reasons
    assert ("lost-acked-write" in judgements(verdict)) == is_lost


def _ends_during_closing_reads(*, is_read: bool, is_same_moment: bool = False) -> Verdict:
    """A transaction sends a record to each partition, and commits when the closing read of A has begun."""
    events = Events()
    known = committed_elsewhere(events, 2)
    one = producer(events, 1)
    first, second = events.send(one, 0, A, 0), events.send(one, 1, B, 2)
    events.note(one, "commit-asked")
    closing = events.begin(99, isolation="read_committed", final=True)
    events.note(one, "committed")
    if is_same_moment:
        events.rows[-1]["at_ns"] = events.rows[-2]["at_ns"]
    events.poll(closing, 0, A, [(0, first)] if is_read else [])
    events.note(closing, "committed")
    events.read(99, B, *([(0, known), (2, second)] if is_read else [(0, known)]), final=True)
    return events.verdict()


@pytest.mark.parametrize("is_same_moment", [True, False])
def test_a_missing_record_is_unknown_if_its_transaction_ended_after_the_closing_reads_began(
    is_same_moment: bool,
) -> None:
    verdict = _ends_during_closing_reads(is_read=False, is_same_moment=is_same_moment)
    assert Judgement.FORBIDDEN not in judgements(verdict).values()
    assert (verdict.validity, verdict.reasons) == (Validity.UNKNOWN, (REASON,))


def test_a_transaction_may_end_after_the_closing_reads_began_if_they_returned_all_of_it() -> None:
    verdict = _ends_during_closing_reads(is_read=True)
    assert verdict.validity is Validity.VALID, verdict.reasons


@pytest.mark.parametrize("is_first", [True, False])
def test_a_transaction_without_an_end_is_torn_if_it_began_before_the_closing_reads(
    is_first: bool,
) -> None:
    """The clock error is longer than the run."""
    events = Events()
    known = committed_elsewhere(events, 2)
    events.initialised(1, "p")
    if not is_first:
        closing = events.begin(99, isolation="read_committed", final=True)
    one = events.begin(1, transactional_id="p")
    first, second = events.send(one, 0, A, 0), events.send(one, 1, B, 2)
    events.note(one, "commit-asked")
    if is_first:
        closing = events.begin(99, isolation="read_committed", final=True)
    events.poll(closing, 0, A, [(0, first)])
    events.note(closing, "committed")
    events.read(99, B, (0, known), final=True)
    verdict = events.verdict(replace(CONTEXT, clock_error_ns=10**9))
    assert ("torn-transaction" in judgements(verdict)) == is_first
    assert any(f"sent {second} to t-1" in reason for reason in verdict.reasons) == (not is_first)
    assert verdict.validity is (Validity.INVALID if is_first else Validity.UNKNOWN)
