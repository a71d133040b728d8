"""What elections excuse of what consumer groups and reads from followers showed."""

from dataclasses import replace

import pytest

from checkers.kernels.compose import judge_run
from harness.contracts.run_context import LOG_CHECKERS, RunContext
from harness.contracts.verdict import Judgement, Validity
from harness.history.op import FETCHED_AHEAD
from tests.anomalies.runs import append, fault, final_read, leads, read, replica, run, state
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

# --- consumer groups ---


@pytest.mark.parametrize(
    ("invoked_at", "epoch", "judgement"),
    [
        (40, -1, EXCUSED),
        # The election lost the record before it was read.
        (60, -1, UNDECIDED),
        # It may have been fetched before that.
        (60, FETCHED_AHEAD, EXCUSED),
        (60, 0, EXCUSED),
        (60, 1, FORBIDDEN),
    ],
)
def test_records_that_were_fetched_ahead_may_have_been_lost_before_the_poll_began(
    invoked_at: int, epoch: int, judgement: Judgement
) -> None:
    polled = replace(read(5, invoked_at, 0, 1), epoch=epoch, stamps=(0, 0))
    verdict = judged(
        [*FIRST_TWO, polled, append(2, 1, at=80), *final_read(10, 0, 2)],
        [state(1, 1, [1], epoch=0), state(50, 2, [2], epoch=1, flagged=True)],
        faults=[fault(45, "isolate", ["b1"], healed=85)],
    )
    assert judgements(verdict, "lost-acked-write") == {judgement: 1}
    assert verdict.excused_lost_records == (judgement == EXCUSED)
    assert verdict.unexcused_lost_records == (judgement == FORBIDDEN)


@pytest.mark.parametrize(
    ("epoch", "judgement"), [(0, FORBIDDEN), (1, UNDECIDED), (FETCHED_AHEAD, UNDECIDED)]
)
def test_the_epoch_of_a_record_is_not_that_in_which_it_was_committed(
    epoch: int, judgement: Judgement
) -> None:
    """Broker 1 appends op 1 and dies; broker 2 leads, commits it alone, and loses its page cache.

    Had it been committed in epoch 0, more replicas than broker 2 had it.
    """
    polled = replace(read(5, 64, 1, start=1), inv=20, res=70, epoch=epoch, stamps=(0,))
    tables = run(
        [append(0, 0, at=1), append(1, None, at=3, outcome="info"), polled, *final_read(10, 0)],
        states=[
            state(1, 1, [1, 2, 3], epoch=0, min_isr=1),
            state(50, 2, [2, 3], epoch=1, min_isr=1),
            state(60, 2, [2], epoch=1, min_isr=1),
            state(80, -1, [2], epoch=2, min_isr=1),
            state(90, 2, [2], epoch=3, min_isr=1),
        ],
        faults=[
            fault(2, "cut", ["b3"], healed=100),
            fault(45, "kill", ["b1"], healed=100),
            fault(75, "power", ["b2"], healed=88),
        ],
    )
    verdict = judge_run(tables, RunContext(elr_on=False, min_isr=1))
    assert judgements(verdict, "visible-regress") == {judgement: 1}
    assert (verdict.validity == Validity.INVALID) == (judgement == FORBIDDEN)


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
            replica(5, 3, 0, epoch=0, cause="load"),
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
            replica(2, 1, 0, epoch=0, cause="load"),
            replica(2, 2, 0, epoch=0, cause="load"),
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
