"""What elections excuse, in the smallest histories: which record was lost, by which election, and what hides."""

from dataclasses import replace
from typing import Any

import pytest

from checkers.kernels.compose import judge_run
from harness.contracts.run_context import LOG_CHECKERS, RunContext
from harness.contracts.verdict import Judgement, Validity, Verdict
from tests.anomalies.runs import Call, append, fault, final_read, read, replica, run, state

CONTEXT = RunContext(elr_on=False, unclean_election_enabled=True)
FORBIDDEN, EXCUSED, UNDECIDED = Judgement.FORBIDDEN, Judgement.EXCUSED, Judgement.UNDECIDED


def judged(calls: list[Call], states: list[dict[str, Any]], **more: Any) -> Verdict:
    return judge_run(run(calls, states=states, **more), CONTEXT)


def judgements(verdict: Verdict, identifier: str) -> dict[Judgement, int]:
    """Returns how many instances of an anomaly have each judgement."""
    return {a.judgement: a.count for a in verdict.anomalies if a.id == identifier}


def leads(at: int, broker: int, end: int, *, hw: int, epoch: int, cause: str) -> dict[str, Any]:
    return replica(at, broker, end, hw=hw, epoch=epoch, role="leader", cause=cause)


FIRST_TWO = [append(0, 0, at=1), append(1, 1, at=3)]
LEADER_OF_TWO = [
    leads(1, 1, 1, hw=0, epoch=0, cause="append"),
    leads(3, 1, 2, hw=1, epoch=0, cause="append"),
    leads(4, 1, 2, hw=2, epoch=0, cause="high-watermark"),
]
"""Broker 1 writes and commits ops 0 and 1."""


# --- when a record was established ---


@pytest.mark.parametrize("flagged", [True, False])
def test_a_high_watermark_of_an_earlier_log_does_not_establish_a_record(flagged: bool) -> None:
    """The log had two records before it was cut to one. Op 2 is committed at offset 1 only at 55, in epoch 3.

    Broker 3, elected at 40 without op 2, gave up nothing: op 2 was not committed yet.
    """
    uncommitted = append(2, None, at=20, outcome="info")
    calls = [*FIRST_TWO, uncommitted, read(5, 56, 2, start=1), *final_read(10, 0)]
    verdict = judged(
        calls,
        [
            state(1, 1, [1], epoch=0),
            state(10, 2, [2], epoch=1, flagged=True),
            state(40, 3, [3], epoch=2),
            state(50, 2, [2], epoch=3),
            state(60, 3, [3], epoch=4, flagged=flagged),
        ],
        replicas=[
            *LEADER_OF_TWO,
            replica(2, 2, 1),
            replica(2, 3, 1),
            leads(11, 2, 1, hw=1, epoch=1, cause="role"),
            leads(21, 2, 2, hw=1, epoch=1, cause="append"),
            leads(41, 3, 1, hw=1, epoch=2, cause="role"),
            leads(51, 2, 2, hw=1, epoch=3, cause="role"),
            leads(55, 2, 2, hw=2, epoch=3, cause="high-watermark"),
            leads(61, 3, 1, hw=1, epoch=4, cause="role"),
        ],
    )
    assert verdict.excused_lost_records == 1
    regress = EXCUSED if flagged else FORBIDDEN
    assert judgements(verdict, "visible-regress") == {regress: 1}
    assert verdict.validity == (Validity.VALID if flagged else Validity.INVALID)


@pytest.mark.parametrize(
    ("flagged", "written_by", "judgement"),
    [(True, 1, EXCUSED), (False, 1, FORBIDDEN), (True, 2, FORBIDDEN)],
)
def test_a_record_served_by_a_deposed_leader_is_older_than_the_election(
    flagged: bool, written_by: int, judgement: Judgement
) -> None:
    """Op 1 is read at 70, after op 2 was acknowledged at its offset. It was written by the leader before.

    The near misses: the election was not flagged, or the new leader itself wrote both.
    """
    calls = [
        FIRST_TWO[0],
        replace(FIRST_TWO[1], res=None, outcome="info", offset=None),
        append(2, 1, at=60),
        read(5, 70, 1, start=1),
        *final_read(10, 0, 2),
    ]
    stamp = 0 if written_by == 1 else 1
    calls[3] = replace(calls[3], stamps=(stamp,))
    verdict = judged(
        calls,
        [state(1, 1, [1], epoch=0), state(50, 2, [2], epoch=1, flagged=flagged)],
        replicas=[
            *LEADER_OF_TWO,
            replica(2, 2, 1),
            leads(51, 2, 1, hw=1, epoch=1, cause="role"),
            leads(60, 2, 2, hw=1, epoch=1, cause="append"),
            leads(61, 2, 2, hw=2, epoch=1, cause="high-watermark"),
        ],
    )
    assert judgements(verdict, "divergent-value") == {judgement: 1}


@pytest.mark.parametrize(
    ("isr", "committed_end", "judgement"),
    [([1], 2, EXCUSED), ([1, 2], 2, FORBIDDEN), ([1], 1, FORBIDDEN)],
)
def test_what_a_deposed_leader_commits_alone_is_given_up_by_the_election_before(
    isr: list[int], committed_end: int, judgement: Judgement
) -> None:
    """Broker 1 does not know that it was deposed at 50, and commits op 1 at 62. Op 2 of epoch 1 is at its offset.

    With broker 2 in the ISR it cannot have committed anything without broker 2, which had another record there. An
    acknowledgement of what it has not committed is a broken promise too.
    """
    calls = [append(0, 0, at=1), append(2, 1, at=54), append(1, 1, at=60), *final_read(10, 0, 2)]
    verdict = judged(
        [calls[0], calls[1], replace(calls[2], res=65), *calls[3:]],
        [state(1, 1, isr, epoch=0), state(50, 2, [2], epoch=1, flagged=True)],
        replicas=[
            leads(1, 1, 1, hw=1, epoch=0, cause="append"),
            replica(2, 2, 1),
            leads(51, 2, 1, hw=1, epoch=1, cause="role"),
            leads(54, 2, 2, hw=2, epoch=1, cause="append"),
            leads(61, 1, 2, hw=1, epoch=0, cause="append"),
            leads(62, 1, 2, hw=committed_end, epoch=0, cause="high-watermark"),
        ],
    )
    assert judgements(verdict, "lost-acked-write") == {judgement: 1}
    assert judgements(verdict, "two-acks-one-offset") == {judgement: 1}


@pytest.mark.parametrize("is_cut", [True, False])
def test_an_election_does_not_excuse_what_the_leader_cut_from_its_own_log(is_cut: bool) -> None:
    cut = [leads(40, 1, 1, hw=1, epoch=0, cause="truncate")] if is_cut else []
    verdict = judged(
        [*FIRST_TWO, *final_read(10, 0)],
        [state(1, 1, [1], epoch=0), state(50, 2, [2], epoch=1, flagged=True)],
        replicas=[
            *LEADER_OF_TWO,
            replica(2, 2, 1),
            *cut,
            leads(51, 2, 1, hw=1, epoch=1, cause="role"),
        ],
    )
    assert judgements(verdict, "lost-acked-write") == {FORBIDDEN if is_cut else EXCUSED: 1}


def test_a_follower_of_a_leader_that_cut_its_log_is_not_taken_to_have_what_was_cut() -> None:
    """Op 1 is gone at 40. Broker 2 then copies another record of its offset, and broker 3 is elected lawfully."""
    verdict = judged(
        [*FIRST_TWO, append(2, None, at=41, outcome="info"), *final_read(10, 0)],
        [
            state(1, 1, [1], epoch=0),
            state(10, 1, [1], epoch=1),
            state(50, 2, [2], epoch=2),
            state(60, 3, [3], epoch=3, flagged=True),
        ],
        replicas=[
            *LEADER_OF_TWO,
            replica(2, 2, 1),
            replica(2, 3, 1),
            leads(11, 1, 2, hw=2, epoch=1, cause="role"),
            leads(40, 1, 1, hw=1, epoch=1, cause="truncate"),
            leads(41, 1, 2, hw=1, epoch=1, cause="append"),
            replica(42, 2, 2, epoch=1),
            leads(51, 2, 2, hw=1, epoch=2, cause="role"),
            leads(61, 3, 1, hw=1, epoch=3, cause="role"),
        ],
    )
    assert judgements(verdict, "lost-acked-write") == {FORBIDDEN: 1}


def test_what_a_leader_wrote_again_after_it_cut_its_log_is_a_record_of_its_epoch() -> None:
    """Op 2, not committed, is cut. Op 0 takes its place; broker 2 has it, and leads when op 1 is given up."""
    verdict = judged(
        [
            append(2, None, at=1, outcome="info"),
            append(0, 0, at=5, acks=1),
            append(1, 0, at=12),
            *final_read(40, 0),
        ],
        [
            state(1, 1, [1, 2, 3], epoch=0),
            state(10, 3, [3], epoch=1),
            state(20, 2, [2], epoch=2, flagged=True),
        ],
        replicas=[
            leads(1, 1, 1, hw=0, epoch=0, cause="append"),
            leads(3, 1, 0, hw=0, epoch=0, cause="truncate"),
            leads(5, 1, 1, hw=0, epoch=0, cause="append"),
            replica(7, 2, 1),
            replica(7, 3, 0),
            leads(12, 3, 1, hw=0, epoch=1, cause="append"),
            leads(13, 3, 1, hw=1, epoch=1, cause="high-watermark"),
            leads(21, 2, 1, hw=0, epoch=2, cause="role"),
            leads(30, 2, 1, hw=1, epoch=2, cause="high-watermark"),
        ],
    )
    assert verdict.validity == Validity.VALID, verdict.reasons
    assert judgements(verdict, "lost-acked-write") == {EXCUSED: 1}


@pytest.mark.parametrize(
    ("down", "returns_at", "judgement"),
    [(True, 19, EXCUSED), (True, 12, FORBIDDEN), (False, 19, FORBIDDEN)],
)
def test_a_member_of_the_isr_that_was_down_for_all_of_its_epoch_lost_nothing(
    down: bool, returns_at: int, judgement: Judgement
) -> None:
    """Broker 2 is elected at 10, dead, because its session is not over. Its last report is from before op 1.

    Broker 3, elected at 20 with a flag, decides, unless broker 2 was alive in its epoch.
    """
    gone = [replica(6, 2, 1, role="offline", cause="down")] if down else []
    verdict = judged(
        [*FIRST_TWO, *final_read(40, 0)],
        [
            state(1, 1, [1, 2], epoch=0),
            state(10, 2, [2], epoch=1),
            state(15, -1, [2], epoch=2),
            state(20, 3, [3], epoch=3, flagged=True),
        ],
        replicas=[
            *LEADER_OF_TWO,
            replica(2, 2, 1),
            *gone,
            replica(returns_at, 2, 0, epoch=0, cause="load"),
            replica(5, 3, 1),
            leads(21, 3, 1, hw=1, epoch=3, cause="role"),
        ],
    )
    assert judgements(verdict, "lost-acked-write") == {judgement: 1}


def test_a_delayed_acknowledgement_does_not_blame_the_record_that_stayed() -> None:
    """Op 1 was written before the election and acknowledged after op 2, which has its offset. Nothing was read."""
    calls = [FIRST_TWO[0], replace(FIRST_TWO[1], res=200), append(2, 1, at=110)]
    states = [state(1, 1, [1], epoch=0), state(100, 2, [2], epoch=1, flagged=True)]
    logs = [
        *LEADER_OF_TWO,
        replica(2, 2, 1),
        leads(101, 2, 1, hw=1, epoch=1, cause="role"),
        leads(110, 2, 2, hw=1, epoch=1, cause="append"),
        leads(111, 2, 2, hw=2, epoch=1, cause="high-watermark"),
    ]
    for more in ({"replicas": logs}, {}):
        verdict = judged(calls, states, **more)
        assert judgements(verdict, "offset-reused") == {EXCUSED: 1}
        assert verdict.validity == Validity.UNKNOWN, "op 2 was not read"
        (loss,) = [a for a in verdict.anomalies if a.id == "lost-acked-write"]
        assert loss.judgement == EXCUSED
    assert judged(calls, states, replicas=logs).anomalies[0].details["values"] == [1]
    states[1]["flagged"] = False
    assert judged(calls, states, replicas=logs).validity == Validity.INVALID


# --- what one excused instance hides ---


@pytest.mark.parametrize(("again", "excused"), [(False, 1), (True, 2)])
def test_each_value_of_an_offset_is_compared_with_the_one_before_it(
    again: bool, excused: int
) -> None:
    """Op 1 was given up at 10. Ops 2 and 3 were acknowledged at its offset, with an election between or not."""
    calls = [*FIRST_TWO, append(2, 1, at=20), append(3, 1, at=30)]
    states = [state(1, 1, [1, 2], epoch=0), state(10, 2, [2], epoch=1, flagged=True)]
    states += [state(25, 3, [3], epoch=2, flagged=True)] if again else []
    found = judgements(judged(calls, states), "two-acks-one-offset")
    assert found == {EXCUSED: excused} | ({} if again else {FORBIDDEN: 1})


@pytest.mark.parametrize(("invoked", "count"), [(5, 1), (1, 0)])
def test_an_excused_inversion_does_not_hide_an_earlier_one(invoked: int, count: int) -> None:
    """Op 3 overtook op 1 after the election. Op 2 had overtaken it before, unless both were concurrent."""
    calls = [
        append(1, 2, at=1),
        append(2, 0, at=invoked),
        append(3, 1, at=20),
        *final_read(10, 2, 3),
    ]
    verdict = judged(calls, [state(0, 1, [1], epoch=0), state(15, 2, [2], epoch=1, flagged=True)])
    found = judgements(verdict, "order-inversion")
    assert found.get(FORBIDDEN, 0) == count
    assert found.get(EXCUSED, 0) == 1 - count


def test_no_election_excuses_a_read_that_skipped_a_record() -> None:
    skipping = replace(read(5, 20, 0), records=((0, 0), (2, 3)))
    calls = [*FIRST_TWO, append(3, 2, at=6), skipping, *final_read(10, 0)]
    states = [state(1, 1, [1], epoch=0), state(50, 2, [2], epoch=1, flagged=True)]
    verdict = judged(calls, states)
    assert judgements(verdict, "lost-acked-write") == {EXCUSED: 2}
    assert judgements(verdict, "lost-record") == {FORBIDDEN: 1}


@pytest.mark.parametrize(("elected_at", "judgement"), [(50, EXCUSED), (150, FORBIDDEN)])
def test_a_duplicate_is_excused_if_its_first_place_was_given_up(
    elected_at: int, judgement: Judgement
) -> None:
    """Op 1 was read at offset 1, and after the election at offset 2, because its producer sent it again."""
    calls = [
        append(0, 0, at=1),
        append(1, None, at=3, outcome="info"),
        read(5, 20, 1, start=1),
        append(2, 1, at=60),
        read(6, 100, 1, start=2),
    ]
    verdict = judged(
        [*calls, *final_read(10, 0, 2, 1)],
        [state(1, 1, [1], epoch=0), state(elected_at, 2, [2], epoch=1, flagged=True)],
    )
    assert judgements(verdict, "duplicate") == {judgement: 1}


# --- appends without an offset ---


@pytest.mark.parametrize(
    ("elected_at", "flagged", "judgement"),
    [(50, True, EXCUSED), (50, False, FORBIDDEN), (2, True, FORBIDDEN)],
)
@pytest.mark.parametrize("has_logs", [True, False])
def test_an_append_without_an_offset_may_have_been_given_up(
    elected_at: int, flagged: bool, judgement: Judgement, has_logs: bool
) -> None:
    calls = [append(0, 0, at=0), append(1, None, at=3), append(2, 1, at=60)]
    logs = [
        leads(0, 1, 1, hw=1, epoch=0, cause="append"),
        replica(1, 2, 1),
        leads(3, 1, 2, hw=2, epoch=0, cause="append"),
        leads(51, 2, 1, hw=1, epoch=1, cause="role"),
        leads(60, 2, 2, hw=2, epoch=1, cause="append"),
    ]
    verdict = judged(
        [*calls, *final_read(10, 0, 2)],
        [state(-1, 1, [1, 2], epoch=0), state(elected_at, 2, [2], epoch=1, flagged=flagged)],
        replicas=logs if has_logs else [],
    )
    assert judgements(verdict, "unplaced-append") == {judgement: 1}


@pytest.mark.parametrize(
    ("isr", "committed_end", "judgement"),
    [([1], 2, EXCUSED), ([1, 2], 2, FORBIDDEN), ([1], 1, FORBIDDEN)],
)
def test_an_append_without_an_offset_to_a_deposed_leader_is_given_up_by_the_election_before(
    isr: list[int], committed_end: int, judgement: Judgement
) -> None:
    """Broker 1 does not know that it was deposed at 50. It writes op 1 at 61, and commits it at 62.

    The near misses: broker 2 was in the ISR, so broker 1 cannot have committed anything without it; broker 1
    acknowledged what it had not committed.
    """
    verdict = judged(
        [append(0, 0, at=1), replace(append(1, None, at=60), res=65), *final_read(10, 0)],
        [state(1, 1, isr, epoch=0), state(50, 2, [2], epoch=1, flagged=True)],
        replicas=[
            leads(1, 1, 1, hw=1, epoch=0, cause="append"),
            replica(2, 2, 1),
            leads(51, 2, 1, hw=1, epoch=1, cause="role"),
            leads(61, 1, 2, hw=1, epoch=0, cause="append"),
            leads(62, 1, 2, hw=committed_end, epoch=0, cause="high-watermark"),
        ],
    )
    assert judgements(verdict, "lost-acked-write") == {judgement: 1}


@pytest.mark.parametrize(
    ("first", "second", "judgement"),
    [
        (True, True, EXCUSED),
        (False, True, UNDECIDED),
        (True, False, UNDECIDED),
        (False, False, FORBIDDEN),
    ],
)
def test_an_append_without_an_offset_may_be_any_record_that_was_written_meanwhile(
    first: bool, second: bool, judgement: Judgement
) -> None:
    """Op 1 is at offset 1 or 2. The election at 20 gave up the record at 2, the one at 30 the record at 1."""
    verdict = judged(
        [append(0, 0, at=0), replace(append(1, None, at=3), res=10), *final_read(10, 0)],
        [
            state(0, 1, [1, 2, 3], epoch=0),
            state(20, 2, [2, 3], epoch=1, flagged=first),
            state(30, 3, [3], epoch=2, flagged=second),
        ],
        replicas=[
            leads(0, 1, 1, hw=1, epoch=0, cause="append"),
            leads(4, 1, 2, hw=1, epoch=0, cause="append"),
            leads(5, 1, 3, hw=3, epoch=0, cause="append"),
            replica(6, 2, 2, cause="replicate"),
            replica(6, 3, 1, cause="replicate"),
            leads(21, 2, 2, hw=2, epoch=1, cause="role"),
            leads(31, 3, 1, hw=1, epoch=2, cause="role"),
        ],
    )
    assert judgements(verdict, "lost-acked-write") == {judgement: 1}


def test_an_excused_append_without_an_offset_does_not_hide_another_one() -> None:
    """Op 3 was acknowledged without an offset after the election, and is not there either."""
    calls = [append(0, 0, at=1), append(1, None, at=3), append(2, 1, at=60), append(3, None, at=70)]
    late = append(4, 2, at=80)
    verdict = judged(
        [*calls, late, *final_read(10, 0, 2, 4)],
        [state(1, 1, [1, 2], epoch=0), state(50, 2, [2], epoch=1, flagged=True)],
    )
    (anomaly,) = [a for a in verdict.anomalies if a.id == "unplaced-append"]
    assert anomaly.judgement == FORBIDDEN
    assert [witness.op_index for witness in anomaly.witnesses] == [3]


def test_another_append_without_an_offset_that_has_a_place_changes_nothing() -> None:
    """Op 1 was given up. Op 3 was appended later, and may be at the end, which was not read."""
    calls = [append(0, 0, at=1), append(1, None, at=3), append(2, 1, at=60), append(3, None, at=70)]
    states = [state(1, 1, [1, 2], epoch=0), state(50, 2, [2], epoch=1, flagged=True)]
    assert judgements(judged(calls, states), "unplaced-append") == {EXCUSED: 1}


@pytest.mark.parametrize(
    ("flagged", "was_read", "judgement"),
    [
        (True, False, EXCUSED),
        (True, True, UNDECIDED),
        (False, False, FORBIDDEN),
        (False, True, FORBIDDEN),
    ],
)
def test_the_offset_of_a_record_that_was_given_up_is_free_again(
    flagged: bool, was_read: bool, judgement: Judgement
) -> None:
    """Op 2 can only be at offset 0, which op 1 had before the election. Nothing was read after it."""
    calls = [append(1, 0, at=10), append(2, None, at=60), append(3, 1, at=70)]
    calls += [read(4, 20, 1)] if was_read else []
    states = [state(1, 1, [1, 2], epoch=0), state(50, 2, [2], epoch=1, flagged=flagged)]
    assert judgements(judged(calls, states), "unplaced-append") == {judgement: 1}


@pytest.mark.parametrize(("at_least_once", "judgement"), [(True, UNDECIDED), (False, FORBIDDEN)])
def test_the_offset_of_a_record_of_which_a_copy_stays_is_free_again(
    at_least_once: bool, judgement: Judgement
) -> None:
    """As above. The producer had sent op 1 twice, and its copy is at offset 2 in the end."""
    calls = [append(1, 0, at=10), append(2, None, at=60), append(3, 1, at=70), read(4, 20, 1)]
    calls += [read(5, 100, 1, start=2, final=True)]
    states = [state(1, 1, [1, 2], epoch=0), state(50, 2, [2], epoch=1, flagged=True)]
    context = replace(CONTEXT, at_least_once=at_least_once)
    verdict = judge_run(run(calls, states=states), context)
    assert judgements(verdict, "unplaced-append") == {judgement: 1}


def test_losing_an_acks_1_record_without_an_offset_is_allowed() -> None:
    calls = [append(0, 0, at=1), append(1, None, at=3, acks=1), append(2, 1, at=60)]
    verdict = judged([*calls, *final_read(10, 0, 2)], [])
    assert set(judgements(verdict, "unplaced-append")) <= {Judgement.ALLOWED}
    assert verdict.validity == Validity.VALID


# --- without recorded logs ---

UNFLAGGED, FLAGGED = state(100, 2, [1, 2], epoch=1), state(200, 3, [3], epoch=2, flagged=True)


@pytest.mark.parametrize(
    ("elections", "judgement", "validity"),
    [
        ([UNFLAGGED], FORBIDDEN, Validity.INVALID),
        ([FLAGGED], EXCUSED, Validity.VALID),
        ([UNFLAGGED, FLAGGED], UNDECIDED, Validity.UNKNOWN),
    ],
)
def test_without_logs_elections_of_both_kinds_leave_a_loss_undecided(
    elections: list[dict[str, Any]], judgement: Judgement, validity: Validity
) -> None:
    verdict = judged([*FIRST_TWO, *final_read(10, 0)], [state(1, 1, [1, 2], epoch=0), *elections])
    assert judgements(verdict, "lost-acked-write") == {judgement: 1}
    assert verdict.validity == validity
    assert (verdict.unexcused_lost_records, verdict.excused_lost_records) == (
        int(judgement == FORBIDDEN),
        int(judgement == EXCUSED),
    )
    if judgement == UNDECIDED:
        (reason,) = verdict.reasons
        assert reason.startswith("lost-acked-write in t-0 (1): op 1 was acknowledged at offset 1")
        assert "what is recorded does not show whether that election lost it" in reason


@pytest.mark.parametrize(("epoch", "judgement"), [(1, EXCUSED), (0, UNDECIDED), (-1, UNDECIDED)])
def test_a_response_of_a_later_epoch_shows_which_elections_kept_the_record(
    epoch: int, judgement: Judgement
) -> None:
    """Read in epoch 1 the record was not given up by the unflagged election that began it."""
    shown = replace(read(5, 150, 1, start=1), epoch=epoch)
    verdict = judged(
        [*FIRST_TWO, shown, *final_read(10, 0)],
        [state(1, 1, [1, 2], epoch=0), UNFLAGGED, FLAGGED],
    )
    assert judgements(verdict, "lost-acked-write") == {judgement: 1}
    assert judgements(verdict, "visible-regress") == {judgement: 1}


@pytest.mark.parametrize(
    ("epoch", "was_in_isr", "judgement"),
    [(-1, False, UNDECIDED), (0, False, UNDECIDED), (1, False, FORBIDDEN), (-1, True, FORBIDDEN)],
)
def test_without_logs_an_append_acknowledged_after_the_election_may_be_the_deposed_leaders(
    epoch: int, was_in_isr: bool, judgement: Judgement
) -> None:
    lost = replace(append(1, 1, at=60), epoch=epoch)
    isr = [1, 2] if was_in_isr else [1]
    verdict = judged(
        [append(0, 0, at=1), lost, *final_read(10, 0)],
        [state(1, 1, isr, epoch=0), state(50, 2, [2], epoch=1, flagged=True)],
    )
    assert judgements(verdict, "lost-acked-write") == {judgement: 1}


# --- consumer groups ---


@pytest.mark.parametrize(
    ("elected_at", "flagged", "judgement"),
    [
        (50, True, EXCUSED),
        (50, False, FORBIDDEN),
        (2, True, FORBIDDEN),
    ],
)
def test_a_skipped_record_is_excused_only_if_what_a_member_got_there_was_given_up(
    elected_at: int, flagged: bool, judgement: Judgement
) -> None:
    """A member got op 1 at offset 1. Op 2 is there now, and offset 2, which is committed, was never delivered."""
    member = replace(read(5, 20, 0, 1), process=70)
    calls = [*FIRST_TWO, member, append(2, 1, at=60), append(3, 2, at=62)]
    events = [
        {
            "generation": -1,
            "event_index": index,
            "at_ns": 30 + index,
            "group": "g",
            "process": 70,
            "topic": "t",
            "partition": 0,
            "event": event,
            "offset": 3,
            "refers_to": -1,
        }
        for index, event in enumerate(("commit-sent", "commit-acknowledged"))
    ]
    tables = run(
        [*calls, *final_read(10, 0, 2, 3)],
        states=[
            state(1, 1, [1, 2], epoch=0),
            state(elected_at, 2, [2], epoch=1, flagged=flagged),
        ],
        group_events=events,
    )
    verdict = judge_run(tables, replace(CONTEXT, checkers=(*LOG_CHECKERS, "consumer-group")))
    assert judgements(verdict, "group-skipped-record") == (
        {FORBIDDEN: 1, EXCUSED: 1} if judgement == EXCUSED else {FORBIDDEN: 2}
    )


# --- reads from followers ---


@pytest.mark.parametrize(("cut_at", "judgement"), [(70, EXCUSED), (55, FORBIDDEN)])
def test_a_follower_that_has_not_heard_of_an_election_shows_the_log_before_it(
    cut_at: int, judgement: Judgement
) -> None:
    """The read at 60 gets its log end from broker 2, whose log is still that of epoch 0, or was cut already."""
    calls = [*FIRST_TWO, read(2, 60, start=2, end=2), append(3, 0, at=80)]
    verdict = judged(
        [*calls, *final_read(10, 3)],
        [state(1, 1, [1, 2], epoch=0), state(50, 3, [3], epoch=1, flagged=True)],
        replicas=[
            *LEADER_OF_TWO,
            replica(5, 2, 2, hw=2, cause="replicate"),
            leads(51, 3, 0, hw=0, epoch=1, cause="role"),
            replica(52, 1, 0, hw=0, epoch=1, cause="truncate"),
            replica(cut_at, 2, 0, hw=0, epoch=1, cause="truncate"),
            leads(80, 3, 1, hw=1, epoch=1, cause="append"),
        ],
    )
    assert judgements(verdict, "late-insert") == {judgement: 1}


@pytest.mark.parametrize(
    ("min_isr", "judgement"),
    [(1, UNDECIDED), (2, FORBIDDEN)],
)
def test_the_log_end_of_a_follower_may_be_that_before_one_replica_lost_it_alone(
    min_isr: int, judgement: Judgement
) -> None:
    """Broker 3 shows a log with one record at 70. Broker 1 came back without it at 60.

    Its log was looked at at 5 and 55. With min ISR 1 it may have committed op 1 alone in between.
    """
    more = {"min_isr": min_isr}
    calls = [
        append(1, None, at=20, outcome="info"),
        read(2, 70, start=1, end=1),
        append(3, 0, at=80),
        *final_read(10, 3),
    ]
    verdict = judge_run(
        run(
            calls,
            states=[
                state(0, 1, [1, 2], epoch=0, **more),
                state(10, 1, [1], epoch=0, **more),
                state(50, -1, [1], epoch=1, **more),
                state(60, 1, [1], epoch=2, **more),
            ],
            replicas=[
                leads(5, 1, 0, hw=0, epoch=0, cause="role"),
                replica(55, 1, 0, cause="load"),
                leads(65, 1, 0, hw=0, epoch=2, cause="role"),
                leads(200, 1, 1, hw=1, epoch=2, cause="high-watermark"),
            ],
            faults=[fault(40, "power", ["b1"], healed=54)],
        ),
        replace(CONTEXT, unclean_election_enabled=False),
    )
    assert judgements(verdict, "late-insert") == {judgement: 1}


@pytest.mark.parametrize(("min_isr", "judgement"), [(1, EXCUSED), (2, FORBIDDEN)])
def test_what_a_deposed_leader_shows_was_established_when_its_high_watermark_passed_it(
    min_isr: int, judgement: Judgement
) -> None:
    """Broker 3 is deposed at 21, commits op 1 at 26 and shows it at 30. It leads again from 40 on, and loses it.

    Since 24 the ISR has been one broker whose disk was destroyed later, so no other broker had to have op 1.
    """
    more = {"min_isr": min_isr}
    shown = replace(read(2, 30, start=1, end=1), epoch=0)
    calls = [append(1, None, at=22, outcome="info"), shown, append(3, 0, at=80)]
    verdict = judged(
        [*calls, *final_read(10, 3)],
        [
            state(0, 3, [1, 2, 3], epoch=0, **more),
            state(21, 1, [1], epoch=1, flagged=True, **more),
            state(24, 2, [2], epoch=2, flagged=True, **more),
            state(40, 3, [3], epoch=3, flagged=True, **more),
            state(60, -1, [3], epoch=4, **more),
            state(70, 3, [3], epoch=5, **more),
        ],
        replicas=[
            leads(1, 3, 0, hw=0, epoch=0, cause="role"),
            leads(22, 1, 0, hw=0, epoch=1, cause="role"),
            leads(25, 3, 1, hw=0, epoch=0, cause="append"),
            leads(26, 3, 1, hw=1, epoch=0, cause="high-watermark"),
            leads(27, 2, 0, hw=0, epoch=2, cause="role"),
            leads(41, 3, 1, hw=1, epoch=3, cause="role"),
            replica(55, 3, 0, cause="load"),
            leads(71, 3, 0, hw=0, epoch=5, cause="role"),
            leads(80, 3, 1, hw=0, epoch=5, cause="append"),
            leads(81, 3, 1, hw=1, epoch=5, cause="high-watermark"),
        ],
        faults=[fault(48, "power", ["b2"], healed=52), fault(50, "power", ["b3"], healed=54)],
    )
    assert judgements(verdict, "late-insert") == {judgement: 1}


@pytest.mark.parametrize(
    ("at", "judgement"),
    [
        (91, EXCUSED),
        (92, UNDECIDED),
        (102, UNDECIDED),
        (111, UNDECIDED),
        (112, FORBIDDEN),
    ],
)
def test_a_loss_is_undecided_if_the_clocks_do_not_tell_whether_the_election_was_later(
    at: int, judgement: Judgement
) -> None:
    """Op 1 is acknowledged near the flagged election at 101, by clocks that differ by at most 10."""
    calls = [append(0, 0, at=1), append(1, 1, at=at), append(2, 1, at=300), *final_read(80, 0, 2)]
    states = [state(0, 1, [1, 2, 3], epoch=0), state(101, 3, [3], epoch=1, flagged=True)]
    verdict = judge_run(run(calls, states=states), replace(CONTEXT, clock_error_ns=10))
    assert judgements(verdict, "lost-acked-write") == {judgement: 1}
    exact = judge_run(run(calls, states=states), CONTEXT)
    assert judgements(exact, "lost-acked-write") == {EXCUSED if at <= 101 else FORBIDDEN: 1}
