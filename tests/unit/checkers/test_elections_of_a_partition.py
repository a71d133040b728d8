"""Elections at the borders: what happened at the same moment, and which election lost a record."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from checkers.kernels.compose import judge_run
from checkers.kernels.elections import Elections
from checkers.kernels.fates import EXCUSED, UNDECIDED, UNEXCUSED, Claims, Election, Fates
from checkers.kernels.history import INF_NS
from checkers.kernels.log_contents import ANY_EPOCH
from harness.contracts.verdict import Judgement
from tests.anomalies.claims import claim, elections_of
from tests.anomalies.runs import Call, append, final_read, heard, leads, replica, run, state, table
from tests.anomalies.runs_with_elections import CONTEXT

Row = dict[str, Any]


# --- the log at the end, and equal outcomes ---


@pytest.mark.parametrize(("leader", "expected"), [(0, 1), (1, 2), (2, None), (-1, 2)])
def test_the_log_of_the_last_leader_is_the_log_at_the_end(
    leader: int, expected: int | None
) -> None:
    """If nobody leads at the end, the log of broker 1 counts, which led last. Broker 2 reported nothing."""
    found = Elections(
        table("partition_states", [state(0, leader, [0, 1, 2], epoch=0)]),
        table(
            "replica_states",
            [
                replica(1, 0, 1, role="leader", cause="append"),
                replica(30, 1, 2, epoch=1, role="leader", cause="append"),
            ],
        ),
        table("broker_states", []),
        table("faults", []),
        elr_on=False,
    )
    assert found.settled_end_offset == expected


@pytest.mark.parametrize(("epoch", "expected"), [(1, 2), (2, None)])
def test_a_look_at_the_last_leader_before_its_election_says_nothing_about_the_end(
    epoch: int, expected: int | None
) -> None:
    """The logs were looked at now and then, and broker 1, leader in epoch 1, last while it was."""
    found = Elections(
        table("partition_states", [state(20, 1, [1, 2], epoch=epoch)]),
        table("replica_states", [replica(15, 1, 2, epoch=1, role="leader", cause="observed")]),
        table("broker_states", []),
        table("faults", []),
        elr_on=False,
    )
    assert found.settled_end_offset == expected


def test_of_two_equal_outcomes_the_first_election_is_named() -> None:
    def fates(outcomes: list[int], election: int) -> Fates:
        return Fates(
            outcome=np.array(outcomes, dtype=np.int8),
            election=np.full(len(outcomes), election, dtype=np.int64),
        )

    one = fates([EXCUSED, UNDECIDED, UNEXCUSED, EXCUSED], 1)
    better = one.or_else(fates([EXCUSED, UNDECIDED, EXCUSED, UNEXCUSED], 2))
    assert better.outcome.tolist() == [EXCUSED, UNDECIDED, EXCUSED, EXCUSED]
    assert better.election.tolist() == [1, 1, 2, 1]


# --- which election lost a record, without recorded logs ---


def claims(*from_ns: int) -> Claims:
    times, unknown = np.array(from_ns), np.full(len(from_ns), -1)
    return Claims(
        offset=np.arange(len(from_ns)),
        low_epoch=unknown,
        high_epoch=np.full(len(from_ns), ANY_EPOCH),
        from_ns=times,
        by_ns=times,
        epoch=unknown,
        read_ns=np.full(len(from_ns), -INF_NS),
    )


def flagged_elections(*are_certain: bool) -> Elections:
    """Returns elections at 10, 20 ... that excuse what they lost, certainly or perhaps."""
    found = Elections(
        **{
            name: table(name, [])
            for name in ("partition_states", "replica_states", "broker_states", "faults")
        },
        elr_on=True,
    )
    found.elections = [
        Election(
            at_ns=10 * epoch,
            leader=1,
            leader_epoch=epoch,
            is_flagged=True,
            is_undecided=not is_certain,
        )
        for epoch, is_certain in enumerate(are_certain, 1)
    ]
    return found


@pytest.mark.parametrize(
    ("first", "second"),
    [(True, True), (True, False), (False, True), (False, False)],
)
def test_the_first_election_that_may_have_lost_a_record_is_named(first: bool, second: bool) -> None:
    """Records were established before both elections, at 10 and 20, between them, and after them."""
    fates = flagged_elections(first, second).fates(claims(5, 15, 25))
    both, last = (EXCUSED if is_certain else UNDECIDED for is_certain in (first and second, second))
    assert fates.outcome.tolist() == [both, last, UNEXCUSED]
    assert fates.election.tolist() == [0, 1, -1]


def test_a_record_and_its_successor_may_be_as_old_as_the_election_between_them() -> None:
    """The election was at 10. Records were established at 9, 10 and 11, and the next ones at 9, 10 and 11."""
    lost, until = claims(9, 9, 9, 10, 10, 11), claims(9, 10, 11, 10, 11, 11)
    fates = flagged_elections(True).fates(lost, until)
    assert fates.outcome.tolist() == [UNEXCUSED, *4 * [EXCUSED], UNEXCUSED]


# --- a leader that cuts its own log ---


def judgement_of_the_loss(states: list[Row], replicas: list[Row]) -> Judgement:
    """Ops 0 and 1 are acknowledged by broker 1, and only op 0 is there at the end."""
    calls = [append(0, 0, at=1), append(1, 1, at=3), *final_read(10, 0)]
    logs = [
        leads(1, 1, 1, hw=0, epoch=0, cause="append"),
        leads(3, 1, 2, hw=1, epoch=0, cause="append"),
        leads(4, 1, 2, hw=2, epoch=0, cause="high-watermark"),
        *replicas,
    ]
    states = [state(0, 1, [1], epoch=0), *states]
    verdict = judge_run(run(calls, states=states, replicas=heard(logs, states)), CONTEXT)
    (loss,) = [a for a in verdict.anomalies if a.id == "lost-acked-write"]
    return loss.judgement


@pytest.mark.parametrize("cut_at", [50, 51])
def test_a_leader_that_cuts_its_log_when_it_is_deposed_loses_nothing(cut_at: int) -> None:
    """Broker 2 has op 1 and leads from 50 on. Only the flagged election at 80 gives it up."""
    judgement = judgement_of_the_loss(
        [state(50, 2, [2], epoch=1), state(80, 3, [3], epoch=2, flagged=True)],
        [
            replica(5, 2, 2, hw=2, cause="replicate"),
            replica(5, 3, 1, hw=1, cause="replicate"),
            leads(cut_at, 1, 1, hw=1, epoch=0, cause="truncate"),
            leads(52, 2, 2, hw=2, epoch=1, cause="role"),
            leads(81, 3, 1, hw=1, epoch=2, cause="role"),
        ],
    )
    assert judgement == Judgement.EXCUSED


@pytest.mark.parametrize(
    ("cut_at", "judgement"), [(50, Judgement.EXCUSED), (51, Judgement.FORBIDDEN)]
)
def test_at_the_same_moment_an_election_comes_before_what_its_leader_does(
    cut_at: int, judgement: Judgement
) -> None:
    """Broker 2, flagged and elected at 50, had op 1 until it cut its log, at that moment or later."""
    replicas = [
        replica(5, 2, 2, hw=2, cause="replicate"),
        leads(50, 2, 2, hw=2, epoch=1, cause="role"),
        leads(cut_at, 2, 1, hw=1, epoch=1, cause="truncate"),
    ]
    states = [state(50, 2, [2], epoch=1, flagged=True)]
    assert judgement_of_the_loss(states, replicas) == judgement


@pytest.mark.parametrize(
    ("copied_at", "elected", "judgement"),
    [(5, 2, Judgement.EXCUSED), (8, 2, Judgement.FORBIDDEN), (8, 1, Judgement.FORBIDDEN)],
)
def test_a_leader_that_cut_its_log_lost_a_record_even_if_it_wrote_another_one_there(
    copied_at: int, elected: int, judgement: Judgement
) -> None:
    """Broker 1 cut op 1 at 6 and wrote another record at its offset at 7, in the same epoch.

    Broker 2 copied what was there before or after that. The flagged election at 80 gave it up.
    """
    replicas = [
        replica(2, 2, 1, hw=0, cause="replicate"),
        replica(5, 2, 2 if copied_at == 5 else 1, hw=1, cause="replicate"),
        leads(6, 1, 1, hw=2, epoch=0, cause="truncate"),
        leads(7, 1, 2, hw=2, epoch=0, cause="append"),
        replica(copied_at, 2, 2, hw=2, cause="replicate"),
        leads(51, elected, 2, hw=2, epoch=1, cause="role"),
        replica(52, 3, 1, hw=1, epoch=1, cause="replicate"),
        leads(81, 3, 1, hw=1, epoch=2, cause="role"),
    ]
    states = [
        state(20, -1, [1, 2], epoch=0),
        state(50, elected, [1, 2], epoch=1),
        state(80, 3, [3], epoch=2, flagged=True),
    ]
    assert judgement_of_the_loss(states, replicas) == judgement


def test_a_leader_that_cut_its_log_did_not_lose_what_a_later_leader_showed() -> None:
    """Op 5 was sent before broker 1 cut its log at 40, but broker 2 returned log end 2, in epoch 1.

    The flagged election at 80 gave the record up. So op 2, which got its offset, is no broken promise.
    """
    calls = [
        append(0, 0, at=1),
        Call(op=1, kind="append", process=1, inv=3, res=None, outcome="info"),
        Call(op=5, kind="latest", process=5, inv=38, res=50, offset=2, epoch=1),
        append(2, 1, at=90),
        *final_read(10, 0, 2),
    ]
    states = [
        state(0, 1, [1, 2], epoch=0),
        state(45, 2, [2], epoch=1),
        state(80, 3, [3], epoch=2, flagged=True),
    ]
    replicas = [
        leads(1, 1, 1, hw=0, epoch=0, cause="append"),
        leads(3, 1, 2, hw=1, epoch=0, cause="append"),
        replica(5, 2, 2, hw=1, cause="replicate"),
        replica(5, 3, 1, hw=1, cause="replicate"),
        leads(6, 1, 2, hw=2, epoch=0, cause="high-watermark"),
        leads(40, 1, 1, hw=1, epoch=0, cause="truncate"),
        leads(46, 2, 2, hw=2, epoch=1, cause="role"),
        leads(81, 3, 1, hw=1, epoch=2, cause="role"),
        leads(90, 3, 2, hw=2, epoch=2, cause="append"),
    ]
    verdict = judge_run(run(calls, states=states, replicas=replicas), CONTEXT)
    (late,) = [a for a in verdict.anomalies if a.id == "late-insert"]
    assert late.judgement == Judgement.EXCUSED


# --- the first election of a run ---

FIRST = [state(15, 2, [2], epoch=1, flagged=True)]


def test_the_first_election_of_a_run_may_excuse_a_loss() -> None:
    calls = [append(0, 0, at=1), append(1, 1, at=3), *final_read(10, 0)]
    verdict = judge_run(run(calls, states=FIRST), CONTEXT)
    (loss,) = [a for a in verdict.anomalies if a.id == "lost-acked-write"]
    assert loss.judgement == Judgement.EXCUSED
    assert (loss.details["election"]["leader"], loss.details["election"]["at_ns"]) == (2, 15)


def test_what_the_first_election_of_a_run_excuses_hides_nothing() -> None:
    """Op 3 overtook op 1 after the election. Op 2 had overtaken it before."""
    calls = [append(1, 2, at=1), append(2, 0, at=5), append(3, 1, at=20), *final_read(10, 2, 3)]
    verdict = judge_run(run(calls, states=FIRST), CONTEXT)
    (inversion,) = [a for a in verdict.anomalies if a.id == "order-inversion"]
    assert inversion.judgement == Judgement.FORBIDDEN
    assert [witness.op_index for witness in inversion.witnesses] == [1, 2]


@pytest.mark.parametrize(
    ("before_it_leads", "expected"),
    [
        # It follows the leader that was flagged before, and only then hears of its own election.
        ([replica(45, 2, 0, epoch=1, cause="truncate")], EXCUSED),
        # Nothing of it was cut before it led, so it lost the record later.
        ([], UNEXCUSED),
        # Its process ended, and with it the leadership that it had not heard of.
        (
            [
                replica(44, 2, 1, epoch=1, role="offline", cause="down"),
                replica(45, 2, 0, epoch=1, cause="load"),
            ],
            UNEXCUSED,
        ),
    ],
)
def test_what_an_elected_replica_cuts_for_an_older_leader_before_it_leads_was_lost_by_that_one(
    before_it_leads: list[dict[str, Any]], expected: int
) -> None:
    """Broker 1 lost the record and was elected at 30, with a flag; broker 2 was elected at 40 and again at 60."""
    states = [
        state(0, 1, [1, 2], epoch=0),
        state(30, 1, [1], epoch=1, flagged=True),
        state(40, 2, [2], epoch=2, flagged=True),
        state(50, -1, [], epoch=3),
        state(60, 2, [2], epoch=4),
    ]
    end = 0 if before_it_leads else 1
    logs = [
        leads(5, 1, 1, hw=1, epoch=0),
        replica(6, 2, 1, hw=1),
        replica(29, 1, 0, cause="load"),
        leads(31, 1, 0, epoch=1, cause="role"),
        *before_it_leads,
        leads(46, 2, end, epoch=2, cause="role"),
        *([] if before_it_leads else [replica(55, 2, 0, epoch=3, cause="load")]),
        leads(61, 2, 0, epoch=4, cause="role"),
    ]
    assert elections_of(states, heard(logs, states)).fates(claim(7)).outcome.tolist() == [expected]


@pytest.mark.parametrize(("may_be_removed", "expected"), [(False, UNEXCUSED), (True, UNDECIDED)])
def test_an_elected_replica_has_a_record_again_unless_a_cleaner_may_have_removed_it(
    may_be_removed: bool, expected: int
) -> None:
    """Broker 3 lacks the record, lawfully. Broker 2, elected next, has it if its log was not cleaned."""
    replicas = [replica(0, one, 0) for one in (2, 3)]
    replicas += [leads(0, 1, 0, epoch=0, cause="load"), leads(1, 1, 1, epoch=0), replica(2, 2, 1)]
    replicas += [leads(11, 3, 0, epoch=1, cause="role"), leads(21, 2, 1, epoch=2, cause="role")]
    states = [state(0, 1, [1, 2], epoch=0), state(10, 3, [3], epoch=1, flagged=True)]
    found = elections_of([*states, state(20, 2, [2], epoch=2)], replicas)
    lost = replace(claim(5), may_be_removed=np.array([may_be_removed]))
    assert found.fates(lost).outcome.tolist() == [expected]


@pytest.mark.parametrize(
    ("may_be_removed", "outcome", "election"), [(False, EXCUSED, 1), (True, UNDECIDED, -1)]
)
def test_no_election_is_named_if_a_leader_that_cut_its_log_may_have_lost_the_record_before(
    may_be_removed: bool, outcome: int, election: int
) -> None:
    """Leader 1 cut its log behind the record, which a cleaner may have removed before; then 2 was elected."""
    states = [state(0, 1, [1, 2], epoch=0), state(50, 2, [2], epoch=1, flagged=True)]
    logs = [
        leads(2, 1, 1, epoch=0, cause="append"),
        leads(3, 1, 2, epoch=0, cause="append"),
        leads(10, 1, 1, epoch=0, cause="truncate"),
        replica(11, 2, 0, cause="load"),
    ]
    lost = replace(claim(5), may_be_removed=np.array([may_be_removed]))
    fates = elections_of(states, heard(logs, states)).fates(lost)
    assert (fates.outcome.tolist(), fates.election.tolist()) == ([outcome], [election])


@pytest.mark.parametrize(
    ("epoch", "until_ns", "error_ns", "expected"),
    [
        (0, 29, 0, True),
        (0, 30, 0, False),
        (0, 29, 1, False),
        (1, 99, 0, True),
        (2, 99, 0, True),
        # The same leader came to epoch 3 without an election.
        (3, 99, 0, True),
        (-1, 99, 0, False),
    ],
)
def test_a_leader_led_once_until_it_was_elected_again(
    epoch: int, until_ns: int, error_ns: int, expected: bool
) -> None:
    states = [state(0, 1, [1, 2], epoch=0), state(20, 2, [1, 2], epoch=1)]
    states += [state(30, 1, [1, 2], epoch=2), state(40, 1, [1, 2], epoch=3)]
    found = elections_of(states, clock_error_ns=error_ns)
    assert found.led_once(np.array([epoch]), np.array([until_ns])).tolist() == [expected]


def test_whether_a_leader_led_once_is_not_known_if_elections_are_missing() -> None:
    states = [state(0, 1, [1, 2], epoch=0), state(20, 2, [1, 2], epoch=3)]
    assert elections_of(states).led_once(np.array([3]), np.array([30])).tolist() == [False]
