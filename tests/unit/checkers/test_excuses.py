"""Which conflicts elections excuse: several values at one offset, appends without an offset, and ties."""

from dataclasses import replace
from typing import Any

import pytest

from checkers.kernels.compose import judge_run
from harness.contracts.run_context import LOG_CHECKERS, SESSION_CHECKER, RunContext
from harness.contracts.verdict import Anomaly, Judgement, Verdict
from tests.anomalies.runs import Call, append, final_read, heard, leads, read, replica, run, state

Row = dict[str, Any]
CONTEXT = RunContext(elr_on=False, unclean_election_enabled=True)
SESSIONS = replace(CONTEXT, checkers=(*LOG_CHECKERS, SESSION_CHECKER))
"""Producers are idempotent, and may have sent appends again."""
FORBIDDEN, EXCUSED, UNDECIDED = Judgement.FORBIDDEN, Judgement.EXCUSED, Judgement.UNDECIDED


def judged(
    calls: list[Call],
    states: list[Row],
    replicas: list[Row] | None = None,
    context: RunContext = CONTEXT,
) -> Verdict:
    return judge_run(run(calls, states=states, replicas=heard(replicas or [], states)), context)


def of(verdict: Verdict, identifier: str) -> list[Anomaly]:
    return [anomaly for anomaly in verdict.anomalies if anomaly.id == identifier]


@pytest.mark.parametrize("is_contested_elsewhere", [False, True])
def test_a_value_is_compared_with_the_next_one_even_if_another_was_acknowledged_first(
    is_contested_elsewhere: bool,
) -> None:
    """Ops 1, 2 and 3 are at offset 1. The first two were committed in epoch 0, at 5 and 8, and read late.

    Op 3 was acknowledged after the flagged election at 10, which gave both of them up. That excuses op 2, but op 1
    and op 2 cannot both have been at offset 1 of one log.
    """
    calls = [
        append(0, 0, at=1),
        replace(append(1, None, at=3, outcome="info"), res=None),
        replace(append(2, None, at=7, outcome="info"), res=None),
        replace(append(3, 1, at=24), res=26),
        replace(read(11, 90, 1, start=1), stamps=(0,)),
        replace(read(12, 91, 2, start=1), stamps=(0,)),
    ]
    if is_contested_elsewhere:
        calls.append(append(20, 0, at=2))
    verdict = judged(
        calls,
        [state(0, 1, [1], epoch=0), state(10, 2, [2], epoch=1, flagged=True)],
        [
            leads(1, 1, 1, hw=0, epoch=0),
            replica(2, 2, 1),
            leads(4, 1, 2, hw=1, epoch=0),
            leads(5, 1, 2, hw=2, epoch=0, cause="high-watermark"),
            leads(8, 1, 2, hw=2, epoch=0, cause="high-watermark"),
            leads(11, 2, 1, hw=1, epoch=1, cause="role"),
            leads(25, 2, 2, hw=1, epoch=1),
            leads(26, 2, 2, hw=2, epoch=1, cause="high-watermark"),
        ],
    )
    found = of(verdict, "divergent-value")
    assert {a.judgement: [w.op_index for w in a.witnesses] for a in found} == {
        FORBIDDEN: [3, 11],
        EXCUSED: [3, 12],
    }


def test_a_conflict_at_another_offset_changes_nothing() -> None:
    """Op 9 was at offset 1 before the flagged election at 10, and op 3 after it. Ops 4 and 5 are at offset 2."""
    verdict = judged(
        [
            append(0, 0, at=1),
            replace(append(9, None, at=3, outcome="info"), res=None),
            append(3, 1, at=24),
            append(4, 2, at=30),
            append(5, 2, at=32),
            replace(read(11, 90, 9, start=1), epoch=0),
        ],
        [state(0, 1, [1, 2], epoch=0), state(10, 2, [2], epoch=1, flagged=True)],
    )
    assert [a.judgement for a in of(verdict, "divergent-value")] == [EXCUSED]
    assert [a.judgement for a in of(verdict, "two-acks-one-offset")] == [FORBIDDEN]


@pytest.mark.parametrize("elected_at", [9, 10, 11])
def test_a_record_cannot_be_lost_before_itself(elected_at: int) -> None:
    """Op 1 was read before it was sent, whenever there was an election."""
    calls = [read(5, 9, 1), append(1, 0, at=20)]
    states = [state(0, 1, [1, 2], epoch=0), state(elected_at, 2, [2], epoch=1, flagged=True)]
    (anomaly,) = of(judged(calls, states), "future-read")
    assert anomaly.judgement == FORBIDDEN


@pytest.mark.parametrize(("last_epoch", "judgement"), [(0, UNDECIDED), (1, EXCUSED)])
def test_the_last_epoch_that_shows_a_record_bounds_its_loss(
    last_epoch: int, judgement: Judgement
) -> None:
    """The unflagged election at 100 did not lose what was read in its epoch, even if it was read before too."""
    calls = [append(0, 0, at=1), append(1, 1, at=3)]
    calls += [replace(read(5, 90, 1, start=1), epoch=0)]
    calls += [replace(read(6, 150, 1, start=1), epoch=last_epoch), *final_read(10, 0)]
    states = [
        state(1, 1, [1, 2], epoch=0),
        state(100, 2, [1, 2], epoch=1),
        state(200, 3, [3], epoch=2, flagged=True),
    ]
    (loss,) = of(judged(calls, states), "lost-acked-write")
    assert loss.judgement == judgement


def test_the_election_that_lost_the_first_record_of_a_log_is_named() -> None:
    states = [state(0, 1, [1, 2], epoch=0), state(50, 2, [2], epoch=1, flagged=True)]
    (loss,) = of(judged([append(0, 0, at=1), *final_read(10)], states), "lost-acked-write")
    assert loss.judgement == EXCUSED
    assert loss.details["election"]["at_ns"] == 50


# --- appends without an offset ---


def test_an_append_without_an_offset_is_not_taken_for_a_record_that_stayed() -> None:
    """Broker 1 wrote op 1 at offset 1 in epoch 0, and was deposed. Broker 2 wrote op 2 there, which stayed."""
    verdict = judged(
        [
            append(0, 0, at=1),
            replace(append(1, None, at=3), res=100),
            replace(append(2, 1, at=54), res=61),
            *final_read(10, 0, 2),
        ],
        [state(0, 1, [1], epoch=0), state(50, 2, [2], epoch=1, flagged=True)],
        [
            leads(1, 1, 1, hw=1, epoch=0),
            replica(2, 2, 1),
            leads(3, 1, 2, hw=1, epoch=0),
            leads(51, 2, 1, hw=1, epoch=1, cause="role"),
            leads(55, 2, 2, hw=1, epoch=1),
            leads(60, 2, 2, hw=2, epoch=1, cause="high-watermark"),
        ],
    )
    (loss,) = of(verdict, "lost-acked-write")
    assert (loss.judgement, loss.details["values"]) == (EXCUSED, [1])


@pytest.mark.parametrize(
    ("committed_at", "judgement"), [(64, EXCUSED), (65, EXCUSED), (66, FORBIDDEN)]
)
def test_a_deposed_leader_acknowledged_what_it_had_committed_by_then(
    committed_at: int, judgement: Judgement
) -> None:
    """Broker 1 does not know that it was deposed at 50. It acknowledges op 1, without an offset, at 65."""
    verdict = judged(
        [append(0, 0, at=1), replace(append(1, None, at=60), res=65), *final_read(10, 0)],
        [state(1, 1, [1], epoch=0), state(50, 2, [2], epoch=1, flagged=True)],
        [
            leads(1, 1, 1, hw=1, epoch=0),
            replica(2, 2, 1),
            leads(51, 2, 1, hw=1, epoch=1, cause="role"),
            leads(61, 1, 2, hw=1, epoch=0),
            leads(committed_at, 1, 2, hw=2, epoch=0, cause="high-watermark"),
        ],
    )
    (loss,) = of(verdict, "lost-acked-write")
    assert loss.judgement == judgement


@pytest.mark.parametrize(
    ("first", "second", "judgement"),
    [
        (True, True, EXCUSED),
        (False, True, UNDECIDED),
        (True, False, UNDECIDED),
        (False, False, FORBIDDEN),
    ],
)
def test_an_append_without_an_offset_may_be_lost_by_the_first_election_of_the_run(
    first: bool, second: bool, judgement: Judgement
) -> None:
    """Op 1 is at offset 1 or 2. The election at 20 gave up the record at 2, the one at 30 the record at 1.

    The flagged election at 40 came too late.
    """
    verdict = judged(
        [append(0, 0, at=0), replace(append(1, None, at=3), res=10), *final_read(10, 0)],
        [
            state(0, -1, [2, 3], epoch=0),
            state(20, 2, [2, 3], epoch=1, flagged=first),
            state(30, 3, [3], epoch=2, flagged=second),
            state(40, 3, [3], epoch=3, flagged=True),
        ],
        [
            leads(0, 1, 1, hw=1, epoch=0),
            leads(4, 1, 2, hw=1, epoch=0),
            leads(5, 1, 3, hw=3, epoch=0),
            replica(6, 2, 2, cause="replicate"),
            replica(6, 3, 1, cause="replicate"),
            leads(21, 2, 2, hw=2, epoch=1, cause="role"),
            leads(31, 3, 1, hw=1, epoch=2, cause="role"),
        ],
    )
    (loss,) = of(verdict, "lost-acked-write")
    assert loss.judgement == judgement


@pytest.mark.parametrize("is_complete", [True, False])
def test_which_election_gave_up_an_append_without_an_offset_is_not_known(is_complete: bool) -> None:
    """If the final phase saw no log end, op 1 is unseen; else it is lost."""
    final = final_read(10, 0) if is_complete else [read(10, 900, 0, final=True)]
    states = [state(0, 1, [1, 2], epoch=0), state(50, 2, [2], epoch=1, flagged=True)]
    verdict = judged([append(0, 0, at=1), append(1, None, at=3), *final], states)
    (loss,) = of(verdict, "lost-acked-write" if is_complete else "unseen")
    assert loss.details["values"] == [1]
    assert "election" not in loss.details


@pytest.mark.parametrize(
    ("acks", "flagged", "judgement"),
    [
        (-1, (), FORBIDDEN),
        (1, (), Judgement.ALLOWED),
        (-1, (True, True), EXCUSED),
        (-1, (False, True), UNDECIDED),
    ],
)
def test_an_append_that_may_be_lost_needs_no_place(
    acks: int, flagged: tuple[bool, ...], judgement: Judgement
) -> None:
    """Op 2 succeeded without an offset before op 1, at offset 0, was sent. So it is not in the log."""
    states = [state(0, 1, [1, 2], epoch=0)]
    states += [
        state(3 * epoch, 1 + epoch, [1 + epoch], epoch=epoch, flagged=each)
        for epoch, each in enumerate(flagged, 1)
    ]
    calls = [append(1, 0, at=10), append(2, None, at=1, acks=acks)]
    (anomaly,) = of(judged(calls, states), "unplaced-append")
    assert anomaly.judgement == judgement


def test_what_acks_1_allows_and_what_an_election_excuses_may_be_lost_together() -> None:
    """Neither op 2, acknowledged with acks=1, nor op 3, which the election lost, has a place before op 1."""
    states = [state(0, 1, [1, 2], epoch=0), state(5, 2, [2], epoch=1, flagged=True)]
    calls = [append(1, 0, at=10), append(2, None, at=6, acks=1), append(3, None, at=1)]
    (anomaly,) = of(judged(calls, states), "unplaced-append")
    assert anomaly.judgement == EXCUSED
    assert [witness.op_index for witness in anomaly.witnesses] == [3]


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize(("flagged", "judgement"), [(True, EXCUSED), (False, FORBIDDEN)])
def test_an_election_excuses_a_skipped_record_of_a_sparse_log_whichever_append_wrote_it(
    lost: int, flagged: bool, judgement: Judgement
) -> None:
    """The record at offset 1 was acknowledged at 6; the election at 20 lost it."""
    final = Call(
        op=90, kind="poll", process=9, inv=900, res=901, position=0, records=((0, 1 - lost), (2, 2))
    )
    latest = Call(op=91, kind="latest", process=9, inv=905, res=906, offset=3, final=True)
    calls = [
        append(1 - lost, 0, at=1),
        append(lost, 1, at=5),
        append(2, 2, at=50),
        replace(final, end=3, final=True),
        latest,
    ]
    states = [state(0, 1, [1, 2, 3], epoch=0), state(20, 3, [3], epoch=1, flagged=flagged)]
    context = replace(CONTEXT, sparse_offsets=True, acked_during_faults_min=0)
    (skipped,) = of(judge_run(run(calls, states=states), context), "lost-record")
    assert skipped.judgement == judgement


def test_what_a_leader_wrote_and_did_not_report_is_in_its_log_when_that_is_loaded() -> None:
    """Leader 1 wrote op 1 at offset 1 and its disk failed before it reported that.

    Leader 2 acknowledged op 2 there. A flagged election chose broker 1 then, and the producer of op 1 tried again.
    """
    verdict = judged(
        [
            append(0, 0, at=1),
            replace(append(1, 1, at=5), res=25),
            append(2, 1, at=12),
            *final_read(90, 0, 1),
        ],
        [
            state(0, 1, [1, 2], epoch=0),
            state(10, 2, [2], epoch=1),
            state(20, 1, [1], epoch=2, flagged=True),
        ],
        [
            leads(1, 1, 1, hw=0, epoch=0),
            replica(2, 2, 1),
            leads(3, 1, 1, hw=1, epoch=0, cause="high-watermark"),
            replica(7, 1, 1, hw=1, role="offline", cause="down"),
            leads(11, 2, 1, hw=1, epoch=1, cause="role"),
            leads(12, 2, 2, hw=1, epoch=1),
            leads(13, 2, 2, hw=2, epoch=1, cause="high-watermark"),
            replica(16, 2, 2, hw=2, epoch=1, role="offline", cause="down"),
            replica(18, 1, 2, hw=1, epoch=1, cause="load"),
            leads(21, 1, 2, hw=1, epoch=2, cause="role"),
            leads(22, 1, 2, hw=2, epoch=2, cause="high-watermark"),
            replica(30, 2, 2, hw=2, epoch=1, cause="load"),
            replica(31, 2, 1, hw=1, epoch=2, cause="truncate"),
            replica(32, 2, 2, hw=2, epoch=2),
        ],
    )
    (conflict,) = of(verdict, "two-acks-one-offset")
    assert conflict.judgement == EXCUSED
    assert not [a.id for a in verdict.anomalies if a.judgement in (FORBIDDEN, UNDECIDED)]


@pytest.mark.parametrize("named", [0, 2])
def test_a_producer_may_name_the_first_epoch_of_a_leader_that_led_twice(named: int) -> None:
    """Leader 1 acknowledged op 1 at offset 1, lost it with its power, and acknowledged op 2 there in epoch 2.

    The producer of op 2 had sent it before, and its metadata may still name epoch 0.
    """
    verdict = judged(
        [
            append(0, 0, at=1),
            replace(append(1, 1, at=4), res=9, epoch=0),
            replace(append(2, 1, at=3), res=40, epoch=named),
            *final_read(90, 0, 2),
        ],
        [
            state(0, 1, [1], epoch=0),
            state(20, -1, [], epoch=1),
            state(25, 1, [1], epoch=2, flagged=True),
        ],
        [
            leads(1, 1, 1, hw=1, epoch=0),
            leads(5, 1, 2, hw=1, epoch=0),
            leads(6, 1, 2, hw=2, epoch=0, cause="high-watermark"),
            replica(15, 1, 2, hw=2, role="offline", cause="down"),
            replica(22, 1, 1, hw=1, epoch=1, cause="load"),
            leads(26, 1, 1, hw=1, epoch=2, cause="role"),
            leads(38, 1, 2, hw=1, epoch=2),
            leads(39, 1, 2, hw=2, epoch=2, cause="high-watermark"),
        ],
    )
    (conflict,) = of(verdict, "two-acks-one-offset")
    assert conflict.judgement == EXCUSED


# --- appends that were sent again ---


@pytest.mark.parametrize("poll", [0, 5])
@pytest.mark.parametrize(("stamp", "judgement"), [(0, EXCUSED), (1, FORBIDDEN)])
def test_the_poll_that_read_the_first_copy_of_a_duplicate_shows_which_epoch_wrote_it(
    stamp: int, judgement: Judgement, poll: int
) -> None:
    """A poll shows op 1 at offset 1, in a batch of epoch 0 or 1. The final read shows it at offset 2, in epoch 1.

    The flagged election at 50 began epoch 1. Only what epoch 0 wrote can have been lost by it.
    """
    first = replace(read(poll, 60, 1, start=1), stamps=(stamp,))
    calls = [append(2, 0, at=1), append(1, None, at=3, outcome="info"), append(3, 1, at=70), first]
    final = [
        replace(call, stamps=(0, 1, 1)) if call.records else call
        for call in final_read(10, 2, 3, 1)
    ]
    states = [state(0, 1, [1], epoch=0), state(50, 2, [2], epoch=1, flagged=True)]
    (duplicate,) = of(judged([*calls, *final], states, context=SESSIONS), "duplicate")
    assert duplicate.judgement == judgement


@pytest.mark.parametrize("poll", [0, 5])
@pytest.mark.parametrize(("flagged", "judgement"), [(True, EXCUSED), (False, UNDECIDED)])
def test_the_copy_of_a_lost_record_that_a_poll_read_may_be_the_one_that_was_promised(
    flagged: bool, judgement: Judgement, poll: int
) -> None:
    """Op 1 was acknowledged at 4. The flagged election at 20 lost it, and the one at 50 the copy of epoch 1."""
    copied = replace(read(poll, 30, 1, start=1), stamps=(1,))
    calls = [append(2, 0, at=1), append(1, 1, at=3), copied, *final_read(10, 2)]
    states = [
        state(0, 1, [1], epoch=0),
        state(20, 2, [2], epoch=1, flagged=True),
        state(50, 3, [3], epoch=2, flagged=flagged),
    ]
    (loss,) = of(judged(calls, states, context=SESSIONS), "lost-acked-write")
    assert loss.judgement == judgement


@pytest.mark.parametrize(
    ("flagged", "stamps", "judgement"),
    [
        (False, (0, 1), FORBIDDEN),
        # Either election may have lost what both polls returned.
        (False, (0, -1), UNDECIDED),
        (True, (0, 1), EXCUSED),
    ],
)
def test_each_copy_that_was_read_was_promised(
    flagged: bool, stamps: tuple[int, int], judgement: Judgement
) -> None:
    """Polls returned op 1 before and after the election at 20, and the flagged one at 50 lost the last copy.

    If the second poll shows a batch of epoch 1, the election at 20 lost the first copy.
    """
    polls = [
        replace(read(op, at, 1, start=1), stamps=(stamp,))
        for op, at, stamp in zip((5, 6), (10, 30), stamps, strict=True)
    ]
    states = [
        state(0, 1, [1], epoch=0),
        state(20, 2, [2], epoch=1, flagged=flagged),
        state(50, 3, [3], epoch=2, flagged=True),
    ]
    calls = [append(2, 0, at=1), append(1, 1, at=3), *polls, *final_read(10, 2)]
    (loss,) = of(judged(calls, states, context=SESSIONS), "visible-regress")
    assert loss.judgement == judgement


@pytest.mark.parametrize(
    ("epoch", "stamp", "judgement"), [(0, 0, EXCUSED), (-1, 0, UNDECIDED), (0, -1, UNDECIDED)]
)
def test_two_polls_read_the_same_copy_if_the_log_of_one_leader_and_one_batch_name_the_same_epoch(
    epoch: int, stamp: int, judgement: Judgement
) -> None:
    """The poll at 10 names its leader, in whose log epoch 0 wrote op 1. The poll at 30 shows a batch of epoch 0.

    So the flagged election at 20 lost op 1: its leader wrote op 2 there. The near misses: one poll names nothing.
    What was read at 30 may then be another copy, which the unflagged election at 50 may have lost.
    """
    calls = [
        append(0, 0, at=1),
        replace(append(1, None, at=3, outcome="info"), res=None),
        append(2, 1, at=25),
        replace(read(5, 10, 1, start=1), epoch=epoch),
        replace(read(6, 30, 1, start=1), stamps=(stamp,)),
    ]
    final = [
        replace(call, stamps=(0, 1)) if call.records else call for call in final_read(10, 0, 2)
    ]
    states = [
        state(0, 1, [1, 2, 3], epoch=0),
        state(20, 2, [2, 3], epoch=1, flagged=True),
        state(50, 3, [2, 3], epoch=2),
    ]
    looks = [
        leads(1, 1, 0, epoch=0, cause="load"),
        leads(10, 1, 2, hw=2, epoch=0, cause="observed"),
    ]
    (loss,) = of(judged([*calls, *final], states, looks, SESSIONS), "visible-regress")
    assert loss.judgement == judgement


@pytest.mark.parametrize(
    ("named", "flags", "stamp", "judgement"),
    [
        # The copy that was acknowledged is excused. The other one, which was read, is not.
        (0, (True, False), 1, FORBIDDEN),
        (1, (False, True), 0, FORBIDDEN),
        # It was read itself.
        (0, (True, False), 0, EXCUSED),
        (1, (False, True), 1, EXCUSED),
        # It is not known which copy was acknowledged, so perhaps it is the one that was read.
        (-1, (False, True), 0, UNDECIDED),
        (-1, (True, False), 1, UNDECIDED),
    ],
)
def test_a_copy_that_was_read_is_judged_alone_if_its_batch_shows_that_another_was_acknowledged(
    named: int, flags: tuple[bool, bool], stamp: int, judgement: Judgement
) -> None:
    """While op 1 was open, the leaders of epochs 0 and 1 both wrote it at offset 1, and the next election lost it.

    The poll read the batch of one of them. The acknowledgement names the epoch of one of them, or none.
    """
    calls = [
        append(0, 0, at=0),
        replace(append(1, 1, at=3), res=35, epoch=named),
        replace(read(5, 32, 1, start=1), stamps=(stamp,)),
        *final_read(10, 0),
    ]
    states = [
        state(0, 1, [1, 2, 3], epoch=0),
        state(20, 2, [2, 3], epoch=1, flagged=flags[0]),
        state(50, 3, [3], epoch=2, flagged=flags[1]),
    ]
    logs = [
        leads(1, 1, 1, epoch=0),
        leads(2, 1, 1, hw=1, epoch=0, cause="high-watermark"),
        leads(4, 1, 2, hw=1, epoch=0),
        replica(4, 2, 1, hw=1),
        replica(4, 3, 1, hw=1),
        leads(5, 1, 2, hw=2, epoch=0, cause="high-watermark"),
        leads(21, 2, 1, hw=1, epoch=1, cause="role"),
        leads(30, 2, 2, hw=1, epoch=1),
        leads(31, 2, 2, hw=2, epoch=1, cause="high-watermark"),
        leads(51, 3, 1, hw=1, epoch=2, cause="role"),
    ]
    (loss,) = of(judged(calls, states, logs, SESSIONS), "lost-acked-write")
    assert loss.judgement == judgement


@pytest.mark.parametrize(("stamp", "judgement"), [(0, UNDECIDED), (1, FORBIDDEN)])
def test_a_later_leader_that_shows_an_older_batch_need_not_have_the_copy_that_was_acknowledged(
    stamp: int, judgement: Judgement
) -> None:
    """Leader 2 acknowledged its copy of op 1, in epoch 1. The flagged election at 50 may have lost it.

    The leader of epoch 2 shows op 1 in a batch of epoch 0 or 1, and the election at 70 lost that one.
    """
    calls = [
        append(0, 0, at=0),
        replace(append(1, 1, at=3), res=35, epoch=1),
        replace(read(5, 32, 1, start=1), stamps=(1,), epoch=1),
        replace(read(6, 55, 1, start=1), stamps=(stamp,), epoch=2),
        *final_read(10, 0),
    ]
    states = [
        state(0, 1, [1, 2, 3], epoch=0),
        state(20, 2, [2, 3], epoch=1),
        state(50, 3, [3], epoch=2, flagged=True),
        state(70, 2, [2], epoch=3),
    ]
    (loss,) = of(judged(calls, states, context=SESSIONS), "lost-acked-write")
    assert loss.judgement == judgement


@pytest.mark.parametrize("op", [0, 2])
@pytest.mark.parametrize(("flagged", "judgement"), [(True, UNDECIDED), (False, FORBIDDEN)])
def test_what_was_acknowledged_without_an_offset_need_not_be_the_copy_that_a_later_leader_wrote(
    flagged: bool, judgement: Judgement, op: int
) -> None:
    """Leader 1 acknowledged this append without an offset, and the flagged election at 5 lost it.

    Leader 2 acknowledged op 1 at offset 0, and then wrote another copy of the first append at offset 1.
    """
    calls = [
        append(op, None, at=1),
        replace(append(1, 0, at=9), res=12),
        *final_read(8, 1, op),
    ]
    states = [state(0, 1, [1], epoch=0), state(5, 2, [2], epoch=1, flagged=flagged)]
    logs = [
        leads(1, 1, 1, epoch=0),
        leads(2, 1, 1, hw=1, epoch=0, cause="high-watermark"),
        replica(2, 2, 0, cause="load"),
        leads(6, 2, 0, epoch=1, cause="role"),
        leads(10, 2, 1, epoch=1),
        leads(11, 2, 1, hw=1, epoch=1, cause="high-watermark"),
        leads(15, 2, 2, hw=1, epoch=1),
        leads(16, 2, 2, hw=2, epoch=1, cause="high-watermark"),
    ]
    (inversion,) = of(judged(calls, states, logs, SESSIONS), "order-inversion")
    assert inversion.judgement == judgement
