"""Verdicts where two declarations of a run meet: repeated sends, acks=1, missing offsets, log starts, clocks."""

from dataclasses import replace
from typing import Any

import pytest

from checkers.kernels.compose import judge_run
from checkers.kernels.cut_partition import can_be_cut
from harness.contracts.run_context import LOG_CHECKERS, RunContext
from harness.contracts.verdict import Judgement, Validity, Verdict
from tests.anomalies.runs import Call, append, final_read, read, run, state
from tests.anomalies.test_producer_anomalies import last_polls

ALLOWED, EXCUSED, FORBIDDEN = Judgement.ALLOWED, Judgement.EXCUSED, Judgement.FORBIDDEN


def judged(
    calls: list[Call], states: list[dict[str, Any]] | None = None, **declared: Any
) -> Verdict:
    context = RunContext(acked_during_faults_min=0, **declared)
    return judge_run(run(calls, states=states or []), context)


def judgements(verdict: Verdict) -> dict[str, Judgement]:
    return {anomaly.id: anomaly.judgement for anomaly in verdict.anomalies}


def last_read(records: tuple[tuple[int, int], ...], *, start: int = 0) -> list[Call]:
    """A final read of records (offset, value) and a final question for the log end."""
    end = records[-1][0] + 1
    poll = Call(op=90, kind="poll", process=9, inv=900, res=901, position=start, records=records)
    latest = Call(op=91, kind="latest", process=9, inv=905, res=906, offset=end, final=True)
    return [replace(poll, end=end, final=True), latest]


@pytest.mark.parametrize("offset", [1, 5])
def test_an_append_without_a_place_is_forbidden_in_a_sparse_log_with_gaps_too(offset: int) -> None:
    """Op 1 succeeded before op 0, the first record, was sent; no append has acks=1."""
    calls = [append(0, 0, at=30), append(1, None, at=10), append(3, offset, at=40)]
    poll = last_read(((0, 0), (offset, 3)))[0]
    verdict = judged([*calls, poll], sparse_offsets=True, log_ends_recorded=False)
    assert judgements(verdict) == {"unplaced-append": FORBIDDEN}


@pytest.mark.parametrize("acks", [-1, 1])
def test_a_sparse_log_may_lack_a_skipped_record_only_if_its_loss_is_allowed(acks: int) -> None:
    calls = [append(0, 0, at=1), append(1, 1, at=5, acks=acks), append(2, 2, at=50)]
    verdict = judged([*calls, *last_read(((0, 0), (2, 2)))], sparse_offsets=True)
    assert judgements(verdict)["lost-record"] == (ALLOWED if acks == 1 else FORBIDDEN)
    assert (verdict.validity == Validity.VALID) == (acks == 1)


@pytest.mark.parametrize(
    ("flagged", "sparse", "judgement"),
    [(True, True, EXCUSED), (False, True, FORBIDDEN), (True, False, FORBIDDEN)],
)
def test_an_election_excuses_a_skipped_record_of_a_sparse_log(
    flagged: bool, sparse: bool, judgement: Judgement
) -> None:
    calls = [append(0, 0, at=1), append(1, 1, at=5), append(2, 2, at=50)]
    states = [state(0, 1, [1, 2, 3], epoch=0), state(20, 3, [3], epoch=1, flagged=flagged)]
    verdict = judged(
        [*calls, *last_read(((0, 0), (2, 2)))],
        states,
        sparse_offsets=sparse,
        unclean_election_enabled=True,
        elr_on=False,
    )
    assert judgements(verdict)["lost-record"] == judgement


@pytest.mark.parametrize("at_least_once", [True, False])
def test_an_acknowledgement_proves_nothing_about_the_place_of_a_copy(at_least_once: bool) -> None:
    """Op 0 succeeded without an offset before op 1 was sent. Its records are at 0 and 2."""
    calls = [append(0, None, at=1), append(1, 1, at=5), *last_read(((0, 0), (1, 1), (2, 0)))]
    verdict = judged(calls, at_least_once=at_least_once)
    assert ("order-inversion" in judgements(verdict)) == (not at_least_once)
    assert (verdict.validity == Validity.VALID) == at_least_once


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("records", [((0, 0), (1, 1)), ((0, 1), (1, 0))])
def test_with_acks_1_another_record_of_an_append_is_not_the_acknowledged_one(
    acks: int, records: tuple[tuple[int, int], ...]
) -> None:
    """Op 0 was acknowledged at 1 and lost; a copy is at 0, or came back at 1 after op 1 had taken 0."""
    place = {value: offset for offset, value in records}
    calls = [append(0, 1, at=10, acks=acks), append(1, place[1], at=50), *last_read(records)]
    verdict = judged(calls, at_least_once=True)
    assert (verdict.validity == Validity.VALID) == (acks == 1)


@pytest.mark.parametrize("at_least_once", [True, False])
@pytest.mark.parametrize("read_at", [5, 25])
def test_nothing_lets_a_client_read_a_record_before_it_was_first_sent(
    at_least_once: bool, read_at: int
) -> None:
    """The append with acks=1 begins at 20; the read shows its record where it was acknowledged."""
    early = read(5, read_at, 0)
    calls = [append(0, 0, at=20, acks=1), append(1, 1, at=50), early, *last_read(((0, 0), (1, 1)))]
    verdict = judged(calls, at_least_once=at_least_once)
    assert judgements(verdict) == ({"future-read": FORBIDDEN} if read_at < 20 else {})


@pytest.mark.parametrize("option", ["at_least_once", "sparse_offsets", "compacted"])
def test_a_log_with_some_options_is_not_cut(option: str) -> None:
    assert can_be_cut(RunContext())
    assert not can_be_cut(replace(RunContext(), **{option: True}))


@pytest.mark.parametrize(("start", "validity"), [(5, Validity.VALID), (0, Validity.INVALID)])
def test_an_append_without_an_offset_may_be_below_the_log_start(
    start: int, validity: Validity
) -> None:
    calls = [append(0, None, at=1), append(1, 5, at=10)]
    if not start:
        calls += [append(n, n - 10, at=2) for n in range(10, 15)]
    shown = (*((n, n + 10) for n in range(start, 5)), (5, 1))
    verdict = judged([*calls, *last_read(shown, start=start)], log_start_offset=start)
    assert verdict.validity == validity


@pytest.mark.parametrize(("sent_ns", "is_lost"), [(21, False), (22, True)])
@pytest.mark.parametrize("shows", ["record", "end"])
def test_what_was_sent_when_the_log_was_past_its_start_is_not_below_it(
    sent_ns: int, is_lost: bool, shows: str
) -> None:
    """Smallest history: a response at 21 shows offset 1, the start of the log; then op 3 is sent, and is gone."""
    shown = read(2, 20, 1, start=1) if shows == "record" else read(2, 20, start=1, end=2)
    calls = [append(1, None, at=10), shown, append(3, None, at=sent_ns)]
    calls[0] = replace(calls[0], outcome="info")
    verdict = judged([*calls, *last_read(((1, 1),), start=1)], log_start_offset=1)
    lost = {"lost-acked-write": FORBIDDEN, "unplaced-below-end": Judgement.INFORMATIONAL}
    assert judgements(verdict) == (lost if is_lost else {})


@pytest.mark.parametrize(("start", "is_unseen"), [(3, False), (2, True)])
def test_below_the_log_start_is_room_for_as_many_appends_as_it_has_offsets(
    start: int, is_unseen: bool
) -> None:
    """Three appends are nowhere, and which of them are below the start is not known."""
    calls = [append(op, None, at=10 * op) for op in (1, 2, 3)]
    latest = Call(op=91, kind="latest", process=9, inv=905, res=906, offset=start, final=True)
    verdict = judged([*calls, latest], log_start_offset=start)
    assert ("unseen" in judgements(verdict)) == is_unseen
    assert verdict.validity == (Validity.UNKNOWN if is_unseen else Validity.VALID)


@pytest.mark.parametrize(
    ("error", "validity"), [(0, Validity.INVALID), (10, Validity.VALID), (1, Validity.INVALID)]
)
def test_whether_an_append_began_above_the_log_start_depends_on_the_clocks(
    error: int, validity: Validity
) -> None:
    """Op 2 was sent 2 ns after op 1 was acknowledged at the log start, and is not there; op 3 was sent later."""
    calls = [append(1, 5, at=10), replace(append(2, None, at=13), res=14), append(3, 6, at=40)]
    calls += last_read(((5, 1), (6, 3)), start=5)
    assert judged(calls, log_start_offset=5, clock_error_ns=error).validity == validity


@pytest.mark.parametrize("offset", [2, None])
@pytest.mark.parametrize(
    ("completed_ns", "error", "is_lost"),
    [(904, 0, True), (905, 0, False), (950, 0, False), (904, 1, False), (903, 1, True)],
)
def test_what_was_acknowledged_while_the_last_log_end_was_read_may_be_beyond_it(
    offset: int | None, completed_ns: int, error: int, is_lost: bool
) -> None:
    calls = [append(0, 0, at=1), append(1, 1, at=5), replace(append(2, offset, at=100))]
    calls[2] = replace(calls[2], res=completed_ns)
    verdict = judged([*calls, *last_read(((0, 0), (1, 1)))], clock_error_ns=error)
    assert ("lost-acked-write" in judgements(verdict)) == is_lost
    assert ("unseen" in judgements(verdict)) == (not is_lost)
    assert verdict.validity == (Validity.INVALID if is_lost else Validity.UNKNOWN)


@pytest.mark.parametrize(("at_ns", "is_lost"), [(800, True), (950, False)])
def test_what_was_first_read_after_the_last_log_end_may_be_beyond_it(
    at_ns: int, is_lost: bool
) -> None:
    unknown = Call(op=1, kind="append", process=1, inv=5, res=None, outcome="info")
    calls = [append(0, 0, at=1), unknown, *final_read(80, 0), read(3, at_ns, 0, 1)]
    verdict = judged(calls)
    assert ("visible-regress" in judgements(verdict)) == is_lost
    assert verdict.validity == (Validity.INVALID if is_lost else Validity.UNKNOWN)


ELECTED: dict[str, Any] = {"unclean_election_enabled": True, "elr_on": False}
SESSIONS = (*LOG_CHECKERS, "idempotent-producer")


def elected(*, flagged: bool = True) -> list[dict[str, Any]]:
    """At 20 broker 3 was elected, whose log may have been empty."""
    return [state(0, 1, [1, 2], epoch=0), state(20, 3, [3], epoch=1, flagged=flagged)]


@pytest.mark.parametrize(
    ("declared", "judgement"),
    [
        ({"at_least_once": True}, EXCUSED),
        ({"checkers": SESSIONS}, EXCUSED),
        ({}, FORBIDDEN),
    ],
)
def test_a_record_that_was_sent_again_says_nothing_about_the_epoch_of_the_lost_one(
    declared: dict[str, Any], judgement: Judgement
) -> None:
    """Op 0 was read at 1 in epoch 0. The final read returns it at 1, too, written in epoch 1."""
    first = replace(append(0, 1, at=10), res=60, process=7)
    poll = Call(op=2, kind="poll", process=9, inv=14, res=15, position=1, records=((1, 0),))
    final = [
        replace(call, stamps=(1, 1)) if call.records else call for call in final_read(80, 1, 0)
    ]
    calls = [first, replace(poll, stamps=(0,)), replace(append(1, 0, at=30), process=8), *final]
    verdict = judged(calls, elected(), **ELECTED, **declared)
    assert judgements(verdict)["late-insert"] == judgement


@pytest.mark.parametrize(("flagged", "judgement"), [(True, EXCUSED), (False, FORBIDDEN)])
def test_a_sparse_log_may_get_a_record_at_an_offset_that_a_poll_of_a_lost_log_skipped(
    flagged: bool, judgement: Judgement
) -> None:
    """The poll returned op 0 at offset 1 before the election; ops 3 and 4 are at 0 and 1 after it."""
    poll = Call(op=2, kind="poll", process=9, inv=14, res=15, position=0, records=((1, 0),))
    later = [append(3, 0, at=30), append(4, 1, at=40), *final_read(80, 3, 4)]
    verdict = judged(
        [append(0, 1, at=10), poll, *later],
        elected(flagged=flagged),
        sparse_offsets=True,
        **ELECTED,
    )
    assert judgements(verdict)["lost-record"] == judgement


@pytest.mark.parametrize(
    ("flagged", "judgement"), [(True, Judgement.UNDECIDED), (False, FORBIDDEN)]
)
def test_a_late_copy_may_have_brought_an_acknowledged_record_back_without_the_one_before(
    flagged: bool, judgement: Judgement
) -> None:
    """Op 1 is gone. Op 2 of the same session was acknowledged before the election, and is there.

    Another leader may have responded to the final poll that shows op 0.
    """
    unknown = Call(op=1, kind="append", process=7, inv=10, res=None, outcome="info")
    calls = [replace(append(0, 0, at=8), process=7), unknown]
    calls += [replace(append(2, 1, at=12), process=7), *last_polls(0, 2, epochs=(-1, -1))]
    verdict = judged(calls, elected(flagged=flagged), checkers=SESSIONS, **ELECTED)
    assert judgements(verdict)["producer-gap"] == judgement
