"""What elections excuse, in the smallest histories: which record was lost, by which election, and what hides."""

from dataclasses import replace

import pytest

from checkers.kernels.compose import judge_run
from harness.contracts.run_context import LOG_CHECKERS, SESSION_CHECKER, RunContext
from harness.contracts.verdict import Judgement, Validity
from tests.anomalies.runs import (
    Call,
    append,
    broker,
    final_read,
    heard,
    leads,
    read,
    replica,
    run,
    state,
)
from tests.anomalies.runs_with_elections import (
    CONTEXT,
    EXCUSED,
    FIRST_TWO,
    FORBIDDEN,
    LEADER_OF_TWO,
    UNDECIDED,
    judged,
    judgements,
)

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


@pytest.mark.parametrize("flagged", [True, False])
def test_a_follower_may_have_copied_what_its_leader_cut_or_what_it_wrote_there_again(
    flagged: bool,
) -> None:
    """Op 1 is gone at 40. Broker 2 copies a record of its offset then, is elected, and after it broker 3."""
    verdict = judged(
        [*FIRST_TWO, append(2, None, at=41, outcome="info"), *final_read(10, 0)],
        [
            state(1, 1, [1], epoch=0),
            state(10, 1, [1], epoch=1),
            state(50, 2, [2], epoch=2),
            state(60, 3, [3], epoch=3, flagged=flagged),
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
    assert judgements(verdict, "lost-acked-write") == {UNDECIDED if flagged else FORBIDDEN: 1}


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


@pytest.mark.parametrize(("flagged", "judgement"), [(True, EXCUSED), (False, FORBIDDEN)])
def test_what_a_leader_cut_from_its_own_log_was_not_in_it_later(
    flagged: bool, judgement: Judgement
) -> None:
    """Op 1, not committed, is cut by broker 1 in its next epoch, where op 2 is committed instead.

    Broker 2 still has op 1 when it is elected.
    """
    calls = [
        append(0, 0, at=1),
        append(1, None, at=3, outcome="info"),
        append(2, None, at=21, outcome="info"),
        read(5, 30, 0, 2),
        *final_read(60, 0, 1),
    ]
    verdict = judged(
        calls,
        [
            state(0, 1, [1, 2], epoch=0),
            state(15, -1, [1], epoch=1),
            state(16, 1, [1], epoch=2),
            state(50, 2, [2], epoch=3, flagged=flagged),
        ],
        replicas=[
            replica(0, 2, 0, epoch=0, cause="load"),
            leads(1, 1, 1, hw=0, epoch=0, cause="append"),
            leads(2, 1, 1, hw=1, epoch=0, cause="high-watermark"),
            leads(3, 1, 2, hw=1, epoch=0, cause="append"),
            replica(5, 2, 2, hw=1, epoch=0, cause="replicate"),
            leads(17, 1, 2, hw=1, epoch=2, cause="role"),
            leads(18, 1, 1, hw=1, epoch=2, cause="truncate"),
            leads(21, 1, 2, hw=1, epoch=2, cause="append"),
            leads(22, 1, 2, hw=2, epoch=2, cause="high-watermark"),
            leads(51, 2, 2, hw=1, epoch=3, cause="role"),
            leads(52, 2, 2, hw=2, epoch=3, cause="high-watermark"),
        ],
    )
    assert judgements(verdict, "divergent-value") == {judgement: 1}


@pytest.mark.parametrize(
    ("copied", "is_down", "judgement"),
    [(2, False, FORBIDDEN), (1, False, EXCUSED), (2, True, EXCUSED)],
)
def test_a_replica_that_has_not_heard_of_its_election_may_copy_from_the_leader_before_it(
    copied: int, is_down: bool, judgement: Judgement
) -> None:
    """Broker 2, elected at 20 with a flag, copies op 1 at 22 and leads from 25 on. The next election loses op 1.

    If it was down in between, what it had when it was elected counts.
    """
    down = [{**replica(21, 2, 1, epoch=0, cause="down"), "role": "offline"}] if is_down else []
    verdict = judged(
        [append(0, 0, at=1), append(1, 1, at=12), *final_read(60, 0)],
        [
            state(0, 1, [1, 2, 3], epoch=0),
            state(10, 1, [1], epoch=0),
            state(20, 2, [2], epoch=1, flagged=True),
            state(50, 3, [3], epoch=2),
        ],
        replicas=[
            replica(0, 2, 0, epoch=0, cause="load"),
            replica(0, 3, 0, epoch=0, cause="load"),
            leads(1, 1, 1, hw=0, epoch=0, cause="append"),
            replica(2, 2, 1, epoch=0, cause="replicate"),
            replica(2, 3, 1, epoch=0, cause="replicate"),
            leads(12, 1, 2, hw=2, epoch=0, cause="append"),
            *down,
            replica(22, 2, copied, epoch=0, cause="replicate"),
            leads(25, 2, copied, hw=1, epoch=1, cause="role"),
            leads(51, 3, 1, hw=1, epoch=2, cause="role"),
        ],
    )
    assert judgements(verdict, "lost-acked-write") == {judgement: 1}


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


@pytest.mark.parametrize(
    ("lost", "identifier"),
    [
        ([append(1, 1, at=3)], "lost-acked-write"),
        ([append(1, None, at=3)], "lost-acked-write"),
        ([append(1, None, at=3, outcome="info"), read(5, 20, 0, 1)], "visible-regress"),
    ],
)
@pytest.mark.parametrize(
    ("elected_at", "error_ns", "judgement"),
    [
        (906, 0, EXCUSED),
        (907, 0, FORBIDDEN),
        (907, 1, UNDECIDED),
        (906, 1, UNDECIDED),
        (908, 1, FORBIDDEN),
    ],
)
def test_an_election_after_the_last_operation_excuses_no_loss(
    lost: list[Call], identifier: str, elected_at: int, error_ns: int, judgement: Judgement
) -> None:
    """The final reads end at 906."""
    calls = [append(0, 0, at=1), *lost, *final_read(10, 0)]
    states = [state(0, 1, [1, 2], epoch=0), state(elected_at, 2, [2], epoch=1, flagged=True)]
    context = replace(CONTEXT, clock_error_ns=error_ns)
    assert judgements(judge_run(run(calls, states=states), context), identifier) == {judgement: 1}


def test_an_election_that_may_have_been_before_the_last_operation_leaves_a_loss_undecided() -> None:
    late = {**state(910, 2, [2], epoch=1, flagged=True), "after_ns": 900}
    verdict = judged([*FIRST_TWO, *final_read(10, 0)], [state(0, 1, [1, 2], epoch=0), late])
    assert judgements(verdict, "lost-acked-write") == {UNDECIDED: 1}


@pytest.mark.parametrize(
    ("last_state_at", "next_epoch", "judgement"),
    [(906, 5, UNDECIDED), (907, 5, FORBIDDEN), (906, 2, FORBIDDEN)],
)
def test_states_that_are_missing_after_the_last_operation_leave_no_loss_undecided(
    last_state_at: int, next_epoch: int, judgement: Judgement
) -> None:
    """The final reads end at 906. Both epochs show whether states are missing after the second one."""
    states = [
        state(0, 1, [1, 2], epoch=0, partition_epoch=0),
        state(last_state_at, 1, [1], epoch=0, partition_epoch=1),
        state(950, 2, [2], epoch=next_epoch - 1, partition_epoch=next_epoch),
    ]
    verdict = judged([*FIRST_TWO, *final_read(10, 0)], states)
    assert judgements(verdict, "lost-acked-write") == {judgement: 1}


@pytest.mark.parametrize(("elected_at", "judgement"), [(21, EXCUSED), (22, FORBIDDEN)])
def test_an_election_after_a_read_does_not_excuse_what_it_skipped_in_a_sparse_log(
    elected_at: int, judgement: Judgement
) -> None:
    """The poll begins at 20 and ends at 21."""
    skipping = replace(read(5, 20, 0), records=((0, 0), (2, 3)))
    calls = [*FIRST_TWO, append(3, 2, at=6), skipping, *final_read(10, 0)]
    states = [state(0, 1, [1], epoch=0), state(elected_at, 2, [2], epoch=1, flagged=True)]
    verdict = judge_run(run(calls, states=states), replace(CONTEXT, sparse_offsets=True))
    assert judgements(verdict, "lost-record") == {judgement: 1}


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


@pytest.mark.parametrize(
    ("flagged", "stamp", "epoch", "judgement"),
    [
        (True, 0, 2, EXCUSED),
        (True, 1, 2, FORBIDDEN),
        # The log of the leader that responded shows who wrote it, and so do those who wrote there meanwhile.
        (True, -1, 2, EXCUSED),
        (True, -1, -1, EXCUSED),
        (False, 0, 2, FORBIDDEN),
        (False, -1, -1, FORBIDDEN),
    ],
)
def test_a_copy_that_a_deposed_leader_had_written_comes_back_when_it_is_elected(
    flagged: bool, stamp: int, epoch: int, judgement: Judgement
) -> None:
    """Broker 1 wrote op 1 at offset 1 after broker 2 had been elected, which got it again and put it at offset 2.

    Broker 1 is elected at 100, and loses what broker 2 wrote. With stamp 1, broker 2 wrote both copies.
    """
    calls = [
        append(0, 0, at=1),
        replace(append(1, 2, at=3), res=60, epoch=1),
        replace(append(2, 1, at=30), epoch=1),
        replace(read(5, 120, 1, start=1), epoch=epoch, stamps=(stamp,)),
        *(replace(call, epoch=epoch) for call in final_read(10, 0, 1)),
    ]
    calls[4] = replace(calls[4], stamps=(0, stamp))
    states = [
        state(0, 1, [1, 2], epoch=0),
        state(20, 2, [2], epoch=1),
        state(100, 1, [1], epoch=2, flagged=flagged),
    ]
    logs = [
        leads(1, 1, 1, hw=0, epoch=0),
        replica(1, 2, 1),
        leads(2, 1, 1, hw=1, epoch=0, cause="high-watermark"),
        leads(21, 2, 1, hw=1, epoch=1, cause="role"),
        leads(25, 1, 2, hw=1, epoch=0),
        leads(30, 2, 2, hw=2, epoch=1),
        leads(59, 2, 3, hw=3, epoch=1),
        leads(101, 1, 2, hw=1, epoch=2, cause="role"),
        leads(110, 1, 2, hw=2, epoch=2, cause="high-watermark"),
    ]
    context = replace(CONTEXT, checkers=(*LOG_CHECKERS, SESSION_CHECKER))
    verdict = judge_run(run(calls, states=states, replicas=heard(logs, states)), context)
    assert judgements(verdict, "duplicate") == {judgement: 1}


@pytest.mark.parametrize(
    ("flagged", "has_stamps", "judgement"),
    [(True, True, EXCUSED), (False, True, FORBIDDEN), (False, False, FORBIDDEN)],
)
def test_a_copy_that_was_read_and_is_gone_is_a_loss_although_another_copy_is_there(
    flagged: bool, has_stamps: bool, judgement: Judgement
) -> None:
    """The first election gives up both records. Op 1 is sent again, read, and given up by the second one."""
    copied = replace(read(5, 30, 1), epoch=1, stamps=(1,) if has_stamps else (-1,))
    calls = [*FIRST_TWO, copied, *final_read(10, 0, 1)]
    states = [
        state(1, 1, [1], epoch=0),
        state(20, 2, [2], epoch=1, flagged=True),
        state(50, 3, [3], epoch=2, flagged=flagged),
    ]
    context = replace(CONTEXT, checkers=(*LOG_CHECKERS, SESSION_CHECKER))
    verdict = judge_run(run(calls, states=states), context)
    assert judgements(verdict, "visible-regress") == {judgement: 1}
    assert (verdict.validity == Validity.INVALID) == (judgement == FORBIDDEN)


# --- who may be elected uncleanly ---


@pytest.mark.parametrize(
    ("allowed", "validity"), [(True, Validity.VALID), (False, Validity.INVALID)]
)
def test_without_eligible_replicas_an_unclean_election_excuses_only_if_it_was_allowed(
    allowed: bool, validity: Validity
) -> None:
    calls = [append(0, 0, at=1), append(1, 1, at=3), *final_read(50, 0)]
    states = [state(0, 1, [1, 2], epoch=0), state(100, 3, [3], epoch=1, flagged=True)]
    context = RunContext(elr_on=False, unclean_election_enabled=allowed)
    verdict = judge_run(run(calls, states=states), context)
    assert verdict.validity is validity
    assert judgements(verdict, "lost-acked-write") == {EXCUSED if allowed else FORBIDDEN: 1}


def test_an_unclean_election_excuses_nothing_while_a_member_of_the_isr_is_active() -> None:
    """Broker 2 has op 1 and is unfenced all the time, or until 60."""
    calls = [append(0, 0, at=1), append(1, 1, at=3), *final_read(50, 0)]
    states = [state(0, 1, [1, 2], epoch=0), state(100, 3, [3], epoch=1, flagged=True)]
    context = RunContext(elr_on=False, unclean_election_enabled=True)
    active = [broker(0, 2, "registered"), broker(0, 2, "unfenced")]
    for brokers, expected in (
        (active, FORBIDDEN),
        ([*active, broker(60, 2, "fenced")], EXCUSED),
    ):
        rows = [{**row, "metadata_offset": number} for number, row in enumerate(brokers)]
        verdict = judge_run(run(calls, states=states, brokers=rows), context)
        assert judgements(verdict, "lost-acked-write") == {expected: 1}


@pytest.mark.parametrize(
    ("acks", "is_read", "validity"),
    [(1, False, Validity.VALID), (1, True, Validity.INVALID), (-1, False, Validity.INVALID)],
)
def test_a_record_that_was_acknowledged_with_acks_1_need_not_be_the_one_that_was_established(
    acks: int, is_read: bool, validity: Validity
) -> None:
    """While op 1 was open, two leaders wrote offset 0, and only the second one established what it had.

    With acks=1 op 1 may be the record of the first one. Then op 4, which a read showed, is that of the second one,
    and a flagged election lost it. With acks=all, or if op 1 was read too, nothing is left for op 4 but the epoch
    of the last leader, whose record is in the final reads.
    """
    weak = Call(op=1, kind="append", process=1, inv=29, res=98, offset=0, acks=acks)
    shown = replace(read(15, 316, 4), res=406)
    calls = [
        weak,
        append(4, None, at=85, outcome="info"),
        shown,
        *([read(14, 100, 1)] if is_read else []),
        replace(append(16, 0, at=336), res=355),
        replace(append(17, 0, at=351), res=363),
        *final_read(28, 16),
    ]
    states = [
        state(13, 1, [1, 2, 3], epoch=0, min_isr=1),
        state(39, 2, [1, 2, 3], epoch=1, min_isr=1),
        state(52, -1, [1, 2, 3], epoch=2, min_isr=1),
        state(53, 2, [2], epoch=3, flagged=True, min_isr=1),
        state(173, -1, [2], epoch=4, min_isr=1),
        state(264, 2, [2, 1], epoch=5, min_isr=1),
        state(327, 3, [3], epoch=6, flagged=True, min_isr=1),
        state(333, 2, [2], epoch=7, flagged=True, min_isr=1),
    ]
    replicas = [
        replica(14, 2, 0, cause="load"),
        replica(14, 3, 0, cause="load"),
        leads(67, 1, 1, hw=0, epoch=0, cause="append"),
        leads(88, 2, 1, hw=0, epoch=3, cause="append"),
        leads(98, 2, 1, hw=1, epoch=3, cause="high-watermark"),
        replica(334, 2, 0, hw=0, epoch=6, cause="truncate"),
        leads(346, 2, 1, hw=0, epoch=7, cause="append"),
        leads(347, 2, 1, hw=1, epoch=7, cause="high-watermark"),
        leads(352, 3, 1, hw=0, epoch=6, cause="append"),
        leads(355, 3, 1, hw=1, epoch=6, cause="high-watermark"),
        replica(633, 3, 1, hw=1, epoch=7, cause="replicate"),
        replica(644, 1, 1, hw=1, epoch=7, cause="replicate"),
    ]
    tables = run(calls, states=states, replicas=replicas)
    context = RunContext(
        elr_on=False, min_isr=1, unclean_election_enabled=True, acked_during_faults_min=0
    )
    verdict = judge_run(tables, context)
    assert verdict.validity == validity
    # What was at offset 0 before the flagged elections was lost to them in any case.
    assert Judgement.FORBIDDEN not in judgements(verdict, "offset-reused")
