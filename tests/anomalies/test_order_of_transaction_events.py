"""What the order of recorded events shows about transactions that overlap."""

from dataclasses import replace

import pytest

from checkers.kernels.history import OFFSET_MAX
from harness.contracts.verdict import Judgement, Validity, Verdict
from tests.anomalies.recorded_anomalies import judgements
from tests.anomalies.recorded_transactions import CONTEXT, A, Events, producer
from tests.anomalies.runs import state, table


def _in_log_before(second_offset: int, *, shown_by: str = "sent") -> Events:
    """Of two transactions that overlap, the second one's record is in the log before the first one sends its own.

    Its acknowledgement shows that, with an offset or without one, or a poll with read_uncommitted.
    """
    events = Events()
    one, other = producer(events, 1), producer(events, 2, "q")
    early = events.note(other, "send", A, number=0)
    events.rows[early]["value"] = early

    def acknowledge(offset: int | None) -> None:
        events.note(other, "sent", A, number=0, offset=offset, value=early)

    if shown_by != "poll":
        acknowledge(5 if shown_by == "sent" else None)
    if shown_by == "poll":
        events.read(7, A, (5, early), isolation="read_uncommitted")
    late = events.send(one, 0, A, second_offset)
    if shown_by == "poll":
        acknowledge(5)
    events.commit(one)
    events.commit(other)
    events.closing(a=sorted([(5, early), (second_offset, late)]))
    return events


@pytest.mark.parametrize("shown_by", ["sent", "sent without offset", "poll"])
@pytest.mark.parametrize("clock_error_ns", [0, 2_000_000])
def test_a_record_is_overtaken_although_the_transactions_overlap(
    shown_by: str, clock_error_ns: int
) -> None:
    context = replace(CONTEXT, clock_error_ns=clock_error_ns)
    found = _in_log_before(3, shown_by=shown_by).verdict(context)
    assert judgements(found)["order-inversion"] is Judgement.FORBIDDEN
    assert found.validity is Validity.INVALID
    missed = _in_log_before(6, shown_by=shown_by).verdict()
    assert "order-inversion" not in judgements(missed)
    assert missed.validity is Validity.VALID, missed.reasons


def test_the_sentence_names_both_records() -> None:
    (anomaly,) = (
        one for one in _in_log_before(3).verdict().anomalies if one.id == "order-inversion"
    )
    assert anomaly.sentence == (
        "T1 sent 6 at 0.006 s, after 4 of T3 had been acknowledged at 0.005 s, but in t-0 it is at offset 3,"
        " before the other one at offset 5"
    )
    assert [one.op_index for one in anomaly.witnesses] == [3, 1]


def _sent_together(*, is_aborted: bool) -> Verdict:
    """Each of two records is sent before the other one is acknowledged; the later send gets the smaller offset."""
    events = Events()
    one, other = producer(events, 1), producer(events, 2, "q")
    first = events.note(one, "send", A, number=0)
    events.rows[first]["value"] = first
    second = events.send(other, 0, A, 3)
    events.note(one, "sent", A, number=0, offset=5, value=first)
    events.commit(other)
    if is_aborted:
        events.abort(one)
    else:
        events.commit(one)
    events.closing(a=[(3, second)] if is_aborted else [(3, second), (5, first)])
    return events.verdict()


@pytest.mark.parametrize("is_aborted", [True, False])
def test_of_two_records_on_their_way_either_may_come_first(is_aborted: bool) -> None:
    found = _sent_together(is_aborted=is_aborted)
    assert found.validity is Validity.VALID, found.reasons


def test_a_record_of_an_aborted_transaction_is_overtaken_too() -> None:
    events = Events()
    one, other = producer(events, 1), producer(events, 2, "q")
    events.send(other, 0, A, 5)
    kept = events.send(one, 0, A, 3)
    events.abort(other)
    events.commit(one)
    events.closing(a=[(3, kept)])
    assert judgements(events.verdict())["order-inversion"] is Judgement.FORBIDDEN


@pytest.mark.parametrize("early", [5, OFFSET_MAX])
def test_of_several_records_behind_it_the_one_that_was_shown_first_counts(early: int) -> None:
    """The record between both is acknowledged last, and each of two later sends is overtaken."""
    events = Events()
    one, other, last = producer(events, 1), producer(events, 2, "q"), producer(events, 3, "r")
    first = events.send(other, 0, A, early)
    second, third = events.send(one, 0, A, 2), events.send(last, 0, A, 1)
    fourth = events.send(one, 1, A, 4)
    for transaction in (one, other, last):
        events.commit(transaction)
    events.closing(a=[(1, third), (2, second), (4, fourth), (early, first)])
    (anomaly,) = (one for one in events.verdict().anomalies if one.id == "order-inversion")
    assert anomaly.count == 3
    assert anomaly.sentence.startswith(f"T{one} sent {second} at ")
    assert anomaly.sentence.endswith(
        f"in t-0 it is at offset 2, before the other one at offset {early}"
    )


def test_an_offset_that_held_two_values_shows_no_order() -> None:
    events = _in_log_before(3)
    events.read(8, A, (5, 6), isolation="read_uncommitted")
    found = judgements(events.verdict())
    assert {"divergent-value", "duplicate"} <= set(found)
    assert "order-inversion" not in found


def _received_behind(
    *, asks: str = "after", ends: str = "committed", isolation: str = "read_committed"
) -> Events:
    """A consumer receives a committed record behind one of a transaction that ends before, or afterwards."""
    events = Events()
    one, other = producer(events, 1), producer(events, 2, "q")
    first, second = events.send(one, 0, A, 0), events.send(other, 0, A, 1)
    events.commit(other)

    def end() -> None:
        events.note(one, "abort-asked" if ends == "aborted" else "commit-asked")
        events.note(one, "unknown" if ends.startswith("unknown") else ends)

    if asks == "before":
        end()
    events.read(7, A, (1, second), isolation=isolation)
    if asks == "after":
        end()
    is_there = ends in ("committed", "unknown and read")
    events.closing(a=[(0, first), (1, second)] if is_there else [(1, second)])
    return events


@pytest.mark.parametrize("ends", ["committed", "unknown and read"])
def test_nothing_is_received_behind_a_record_of_a_transaction_that_commits_afterwards(
    ends: str,
) -> None:
    found = _received_behind(ends=ends).verdict()
    assert judgements(found) == {"precommitted-read": Judgement.FORBIDDEN}
    assert found.validity is Validity.INVALID
    (anomaly,) = found.anomalies
    assert anomaly.sentence == (
        "T10 received 6 at offset 1 of t-0 at 0.011 s, but T1, which sent 4 at offset 0 before it, requested its"
        " commit only at 0.013 s"
    )
    missed = _received_behind(asks="before", ends=ends).verdict()
    assert missed.validity is Validity.VALID, missed.reasons


@pytest.mark.parametrize(
    "events",
    [
        # It may have been aborted because its time was over.
        _received_behind(ends="aborted"),
        _received_behind(ends="unknown"),
        _received_behind(isolation="read_uncommitted"),
    ],
)
def test_records_behind_others_may_be_received(events: Events) -> None:
    found = events.verdict()
    assert Judgement.FORBIDDEN not in judgements(found).values()
    assert found.validity is Validity.VALID, found.reasons


def test_an_open_transaction_keeps_nothing_back_that_is_before_its_records() -> None:
    events = Events()
    one, other, last = producer(events, 1), producer(events, 2, "q"), producer(events, 3, "r")
    records = [
        (offset, events.send(sender, 0, A, offset))
        for offset, sender in enumerate((one, other, last))
    ]
    events.commit(one)
    events.commit(other)
    events.read(7, A, records[1])
    events.commit(last)
    events.closing(a=records)
    found = events.verdict()
    assert found.validity is Validity.VALID, found.reasons


def test_a_record_that_may_have_been_removed_keeps_nothing_back() -> None:
    found = _received_behind().verdict(replace(CONTEXT, log_start_offset=1))
    assert "precommitted-read" not in judgements(found)


def test_after_an_unclean_election_both_are_undecided() -> None:
    states = table("partition_states", [state(0, 1, [1], epoch=1, flagged=True)])
    for events, anomaly in (
        (_in_log_before(3), "order-inversion"),
        (_received_behind(), "precommitted-read"),
    ):
        found = events.verdict(partition_states=states)
        assert judgements(found)[anomaly] is Judgement.UNDECIDED
        assert found.validity is Validity.UNKNOWN
