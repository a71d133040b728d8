"""Runs of the workload `transactions`: which anomalies they have, and which near misses are valid."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from checkers.kernels.transactions import checker
from harness.contracts.verdict import Judgement, Validity, Verdict
from tests.anomalies.recorded_anomalies import (
    CASES,
    committed_elsewhere,
    early_read,
    judgements,
    read_of_transaction,
    unanswered,
)
from tests.anomalies.recorded_transactions import CONTEXT, A, B, Events, producer
from tests.anomalies.runs import fault, table


@pytest.mark.parametrize("identifier", CASES)
def test_the_smallest_table_has_the_anomaly_and_the_near_miss_is_valid(identifier: str) -> None:
    make, smallest, near_miss = CASES[identifier]
    found = make(smallest)
    assert judgements(found).get(identifier) is Judgement.FORBIDDEN, found.reasons
    assert found.validity is Validity.INVALID
    missed = make(near_miss)
    assert missed.validity is Validity.VALID, missed.reasons


@pytest.mark.parametrize(("has_end", "end"), [(True, "0.012 s"), (False, "...")])
def test_a_commit_of_a_zombie_may_have_no_response(has_end: bool, end: str) -> None:
    verdict = unanswered(True, has_end=has_end)
    assert judgements(verdict) == {"zombie-commit": Judgement.FORBIDDEN}
    (anomaly,) = verdict.anomalies
    assert anomaly.sentence.endswith("which reads committed records, received 8 at offset 0 of t-0")
    assert anomaly.witnesses[0].text.endswith(f"-> unknown [0.007 s, {end}]")


@pytest.mark.parametrize(
    "verdict",
    [
        # The coordinator may have committed before the other producer came, and the response was lost.
        partial(unanswered, False),
        partial(unanswered, True, is_seen=False),
        # Consumers with read_uncommitted receive records of aborted transactions as well.
        partial(unanswered, True, isolation="read_uncommitted"),
    ],
)
def test_a_commit_without_a_response_may_have_been_refused_or_in_time(
    verdict: Callable[[], Verdict],
) -> None:
    found = verdict()
    assert found.validity is Validity.VALID, found.reasons
    assert "zombie-commit" not in judgements(found)


def test_a_record_that_was_received_too_early_shows_no_commit_of_a_zombie() -> None:
    events = Events()
    known = committed_elsewhere(events, 3)
    one = producer(events, 1)
    value = events.send(one, 0, A, 0)
    events.initialised(2, "p")
    events.read(7, A, (0, value))
    events.note(one, "commit-asked")
    events.note(one, "unknown")
    events.closing(b=[(0, known)])
    assert "precommitted-read" in judgements(events.verdict())
    assert "zombie-commit" not in judgements(events.verdict())


@pytest.mark.parametrize(("is_aborted", "found"), [(None, False), (True, True)])
def test_a_group_skips_nothing_before_the_first_record_that_it_consumed(
    is_aborted: bool | None, found: bool
) -> None:
    """The group begins at the second record; or at the first one, in a transaction that aborts."""
    events = Events()
    one = producer(events, 1)
    first, second = events.send(one, 0, A, 0), events.send(one, 1, A, 1)
    events.commit(one)
    events.initialised(2, "processor")
    begin = partial(
        events.begin, 2, transactional_id="processor", group="g", isolation="read_committed"
    )
    if is_aborted:
        number = begin()
        events.poll(number, 0, A, [(0, first)])
        events.send(number, 1, B, 0)
        events.note(number, "offset", A, number=2, offset=1)
        events.abort(number)
    number = begin()
    events.poll(number, 0, A, [(1, second)])
    output = events.send(number, 1, B, 2)
    events.note(number, "offset", A, number=2, offset=2)
    events.commit(number)
    events.closing(a=[(0, first), (1, second)], b=[(2, output)])
    assert ("input-skipped" in judgements(events.verdict())) == found


@pytest.mark.parametrize("identifier", CASES)
def test_an_anomaly_names_its_transactions(identifier: str) -> None:
    make, smallest, _ = CASES[identifier]
    (anomaly,) = (one for one in make(smallest).anomalies if one.id == identifier)
    assert anomaly.witnesses
    for witness in anomaly.witnesses:
        assert f"T{witness.op_index}" in anomaly.sentence
        assert f"T{witness.op_index}" in witness.text


def test_read_uncommitted_may_return_records_of_aborted_transactions() -> None:
    verdict = read_of_transaction(True, "read_uncommitted")
    assert judgements(verdict)["G1a"] is Judgement.ALLOWED
    assert verdict.validity is Validity.VALID, verdict.reasons


def test_read_uncommitted_may_return_records_of_open_transactions() -> None:
    verdict = early_read(True, "read_uncommitted")
    assert verdict.validity is Validity.VALID, verdict.reasons
    assert Judgement.FORBIDDEN not in judgements(verdict).values()


@pytest.mark.parametrize("is_early", [True, False])
def test_a_record_is_received_when_the_poll_returned_it_not_when_its_transaction_ends(
    is_early: bool,
) -> None:
    events = Events()
    one = producer(events, 1)
    value = events.send(one, 0, A, 0)
    if not is_early:
        events.commit(one)
    events.initialised(2, "processor")
    other = events.begin(2, transactional_id="processor", group="g", isolation="read_committed")
    events.poll(other, 0, A, [(0, value)])
    if is_early:
        events.commit(one)
    output = events.send(other, 1, B, 0)
    events.note(other, "offset", A, number=2, offset=1)
    events.commit(other)
    events.closing(a=[(0, value)], b=[(0, output)])
    verdict = events.verdict()
    assert verdict.validity is (Validity.INVALID if is_early else Validity.VALID)
    assert ("precommitted-read" in judgements(verdict)) == is_early


@pytest.mark.parametrize("events_of_it", [(), ("abort-asked",)])
def test_a_record_whose_commit_was_never_requested_must_not_be_received(
    events_of_it: tuple[str, ...],
) -> None:
    events = Events()
    known = committed_elsewhere(events, 2)
    one = producer(events, 1)
    value = events.send(one, 0, A, 0)
    for event in events_of_it:
        events.note(one, event)
    events.read(7, A, (0, value))
    events.closing(a=[(0, value)], b=[(0, known)])
    verdict = events.verdict()
    assert judgements(verdict)["precommitted-read"] is Judgement.FORBIDDEN
    (anomaly,) = (a for a in verdict.anomalies if a.id == "precommitted-read")
    assert anomaly.sentence.endswith("never requested its commit")


def test_a_transaction_whose_record_an_aborted_consumer_received_has_committed() -> None:
    events = Events()
    known = committed_elsewhere(events, 2)
    one = producer(events, 1)
    value = events.send(one, 0, A, 0)
    events.note(one, "commit-asked")
    events.note(one, "unknown")
    events.initialised(3, "processor")
    other = events.begin(3, transactional_id="processor", group="g", isolation="read_committed")
    events.poll(other, 0, A, [(0, value)])
    events.abort(other)
    events.closing(b=[(0, known)])
    verdict = events.verdict()
    assert judgements(verdict) == {"lost-acked-write": Judgement.FORBIDDEN}


def test_read_uncommitted_must_not_return_what_nobody_sent() -> None:
    events = Events()
    one = producer(events, 1)
    value = events.send(one, 0, A, 0)
    events.commit(one)
    events.read(7, B, (5, value), isolation="read_uncommitted")
    events.closing(a=[(0, value)])
    verdict = events.verdict()
    assert judgements(verdict)["phantom-value"] is Judgement.FORBIDDEN
    assert verdict.validity is Validity.INVALID


@pytest.mark.parametrize(
    ("commits", "is_there", "expected"),
    [
        (True, True, {}),
        (True, False, {"lost-acked-write": Judgement.FORBIDDEN}),
        (False, False, {}),
        (False, True, {"G1a": Judgement.FORBIDDEN}),
    ],
)
def test_what_a_processor_with_read_uncommitted_sends_is_judged_like_all_that_is_sent(
    commits: bool, is_there: bool, expected: dict[str, Judgement]
) -> None:
    events = Events()
    one = producer(events, 1)
    value = events.send(one, 0, A, 0)
    events.commit(one)
    events.initialised(2, "processor")
    number = events.begin(2, transactional_id="processor", group="g", isolation="read_uncommitted")
    events.poll(number, 0, A, [(0, value)])
    output = events.send(number, 1, B, 0)
    events.note(number, "offset", A, number=2, offset=1)
    if commits:
        events.commit(number)
    else:
        events.abort(number)
    events.closing(a=[(0, value)], b=[(0, output)] if is_there else [])
    assert judgements(events.verdict()) == expected


@pytest.mark.parametrize("in_one_poll", [True, False])
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_only_read_committed_passes_over_records_of_aborted_transactions(
    isolation: str, in_one_poll: bool
) -> None:
    events = Events()
    one, other, last = producer(events, 1), producer(events, 2, "q"), producer(events, 3, "r")
    first = events.send(one, 0, A, 0)
    events.commit(one)
    events.send(other, 0, A, 2)
    events.abort(other)
    third = events.send(last, 0, A, 4)
    events.commit(last)
    if in_one_poll:
        events.read(7, A, (0, first), (4, third), isolation=isolation)
    else:
        events.read(7, A, (0, first), isolation=isolation)
        events.read(7, A, (4, third), isolation=isolation)
    events.closing(a=[(0, first), (4, third)])
    found = judgements(events.verdict()).items()
    forbidden = [name for name, judgement in found if judgement is Judgement.FORBIDDEN]
    passed = "int-poll-skip" if in_one_poll else "session-poll-skip"
    assert forbidden == ([passed] if isolation == "read_uncommitted" else [])


def test_a_damaged_record_is_what_nobody_sent() -> None:
    events = Events()
    one = producer(events, 1)
    value = events.send(one, 0, A, 0)
    events.commit(one)
    read = events.read(7, A, (0, value))
    events.rows[read + 1] |= {"value": -1, "status": "corrupt"}
    events.closing(a=[(0, value)])
    found = {one.id: one.sentence for one in events.verdict().anomalies}
    assert "a corrupt record at offset 0 of t-0" in found["phantom-value"]


def test_a_search_for_cycles_that_kafka_allows_may_end_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A processor misses a record that is already there, and its output follows one of that transaction."""
    events = Events()
    old, new = producer(events, 1), producer(events, 2, "q")
    first = events.send(old, 0, A, 0)
    events.commit(old)
    second, output = events.send(new, 0, A, 2), events.send(new, 1, B, 0)
    events.commit(new)
    events.initialised(3, "processor")
    late = events.begin(3, transactional_id="processor", isolation="read_committed")
    events.poll(late, 0, A, [(0, first)])
    last = events.send(late, 1, B, 2)
    events.commit(late)
    events.closing(a=[(0, first), (2, second)], b=[(0, output), (2, last)])
    whole = events.verdict()
    assert (whole.validity, judgements(whole)) == (
        Validity.VALID,
        {"G-single": Judgement.ALLOWED},
    )
    without_search = partial(checker.check_log_transactions, search_steps_max=0)
    monkeypatch.setattr(checker, "check_log_transactions", without_search)
    short = events.verdict()
    assert (short.validity, short.reasons) == (Validity.VALID, ())
    assert judgements(short) == {"G2-item": Judgement.ALLOWED}


@pytest.mark.parametrize(
    ("error_ns", "validity"),
    [(0, "valid"), (1_999_999, "valid"), (2_000_000, "unknown"), (10**9, "unknown")],
)
@pytest.mark.parametrize("is_last_committed", [True, False])
def test_transactions_whose_order_the_clock_error_hides_are_unknown(
    error_ns: int, validity: str, is_last_committed: bool
) -> None:
    """The second transaction began two milliseconds after the first one had committed."""
    events = Events()
    first = producer(events, 1)
    sent = [(0, events.send(first, 0, A, 0))]
    events.commit(first)
    second = producer(events, 1)
    sent.append((2, events.send(second, 0, A, 2)))
    if is_last_committed:
        events.commit(second)
    else:
        events.abort(second)
        sent.pop()
    events.closing(a=sent)
    verdict = events.verdict(replace(CONTEXT, clock_error_ns=error_ns))
    assert str(verdict.validity) == validity
    assert verdict.reasons == (checker.NO_ORDER,) * (validity == "unknown")


def test_the_order_is_not_hidden_where_the_last_reads_are_within_the_clock_error() -> None:
    """A reader is no writer: that it begins late orders no transactions."""
    events = Events()
    one = producer(events, 1)
    sent = [(0, events.send(one, 0, A, 0))]
    events.commit(one)
    events.read(7, A, *sent)
    events.closing(a=sent)
    assert events.verdict(replace(CONTEXT, clock_error_ns=10**9)).validity is Validity.VALID


def test_without_faults_no_commit_was_during_one_and_without_the_checker_none_counts() -> None:
    events = Events()
    one = producer(events, 1)
    sent = [(0, events.send(one, 0, A, 0))]
    events.commit(one)
    events.closing(a=sent)
    assert events.verdict().coverage["acked_during_faults"] == 0
    lasting = table("faults", [fault(1, "kill", ["b1"])])
    assert events.verdict(faults=lasting).coverage["acked_during_faults"] == 1
    appends_only = replace(CONTEXT, checkers=("linearizability",))
    assert events.verdict(appends_only, faults=lasting).coverage["acked_during_faults"] == 0


def test_an_aborted_transaction_of_which_a_part_was_read_is_not_torn() -> None:
    """No part of it belongs there."""
    events = Events()
    aborted, committed = producer(events, 1), producer(events, 2)
    first = events.send(aborted, 0, A, 0)
    events.send(aborted, 1, B, 0)
    events.abort(aborted)
    second = events.send(committed, 0, A, 1)
    events.commit(committed)
    events.closing(a=[(0, first), (1, second)])
    assert judgements(events.verdict(CONTEXT)) == {"G1a": Judgement.FORBIDDEN}


@pytest.mark.parametrize("offset", [0, None], ids=["acknowledged", "read"])
def test_the_first_offset_of_a_log_counts_for_the_order_of_sends(offset: int | None) -> None:
    events = Events()
    other, sender = producer(events, 2), producer(events, 1)
    first = events.send(sender, 0, A, offset)
    between = events.send(other, 0, A, 1)
    last = events.send(sender, 1, A, 2)
    events.commit(other)
    events.commit(sender)
    events.closing(a=[(0, first), (1, between), (2, last)])
    assert "int-send-skip" in judgements(events.verdict(CONTEXT))
