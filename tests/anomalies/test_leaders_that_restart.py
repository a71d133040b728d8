"""Leaders that restart and lead on without another election, as before Kafka 4.0 (KAFKA-18106)."""

from dataclasses import replace
from typing import Any

import pytest

from checkers.kernels.compose import judge_run
from harness.contracts.run_context import RunContext
from harness.contracts.verdict import Judgement
from tests.anomalies.runs import Call, append, fault, final_read, leads, read, replica, run, state
from tests.anomalies.runs_with_elections import (
    EXCUSED,
    FIRST_TWO,
    FORBIDDEN,
    LEADER_OF_TWO,
    UNDECIDED,
    judged,
    judgements,
)

Row = dict[str, Any]


def restarts(end: int, *, hw: int) -> list[Row]:
    """Broker 1 ends at 20 with two records, and is back at 26 with as many as its log end says."""
    return [
        replica(20, 1, 2, hw=hw, role="offline", cause="down"),
        replica(26, 1, end, hw=min(hw, end), epoch=-1, cause="load"),
    ]


WRITTEN_AGAIN = [
    *LEADER_OF_TWO,
    *restarts(1, hw=2),
    leads(31, 1, 1, hw=1, epoch=0, cause="role"),
    leads(41, 1, 2, hw=1, epoch=0),
    leads(42, 1, 2, hw=2, epoch=0, cause="high-watermark"),
]
"""Broker 1 loses offset 1, leads on at 31 in its epoch, and writes there again at 41."""


def chooses_3(epoch: int, *, flagged: bool = True) -> list[Row]:
    """Broker 3 is elected at 60, which has only op 0."""
    return [
        state(50, -1, [1], epoch=epoch - 1),
        state(60, 3, [3], epoch=epoch, flagged=flagged),
    ]


# --- when a record was established that the leader wrote after its restart ---


@pytest.mark.parametrize("flagged", [True, False])
@pytest.mark.parametrize("acked_at", [40, 80])
@pytest.mark.parametrize("is_restarted", [True, False])
def test_a_record_that_a_leader_wrote_after_its_restart_is_as_old_as_its_high_watermark(
    is_restarted: bool, acked_at: int, flagged: bool
) -> None:
    """The leader lost op 1, which was not committed, and wrote op 2 at its offset. Op 2 is committed at 38.

    Broker 3, elected at 60 without op 2, gave it up, even if the response to it arrives later.
    """
    calls = [
        append(0, 0, at=1),
        Call(op=2, kind="append", process=2, inv=35, res=acked_at, offset=1),
        *final_read(10, 0),
    ]
    logs = [
        leads(1, 1, 1, hw=0, epoch=0),
        replica(2, 2, 1),
        replica(2, 3, 1),
        leads(3, 1, 1, hw=1, epoch=0, cause="high-watermark"),
        leads(36, 1, 2, hw=1, epoch=0),
        replica(37, 2, 2, hw=1),
        leads(38, 1, 2, hw=2, epoch=0, cause="high-watermark"),
        leads(61, 3, 1, hw=1, epoch=2, cause="role"),
    ]
    if is_restarted:
        calls.append(Call(op=1, kind="append", process=1, inv=4, res=None, outcome="info"))
        logs += [
            leads(5, 1, 2, hw=1, epoch=0),
            *restarts(1, hw=1),
            leads(31, 1, 1, hw=1, epoch=0, cause="role"),
        ]
    states = [state(0, 1, [1, 2], epoch=0), *chooses_3(2, flagged=flagged)]
    verdict = judged(calls, states, replicas=logs)
    assert judgements(verdict, "lost-acked-write") == {EXCUSED if flagged else FORBIDDEN: 1}


# --- what a leader lost that restarted ---

COMMITTED_BY_ALL = [*LEADER_OF_TWO, replica(2, 2, 1), replica(2, 3, 1), replica(3, 2, 2)]


@pytest.mark.parametrize("is_sampled", [False, True])
@pytest.mark.parametrize(
    ("end", "epoch_when_back", "judgement"),
    [(1, 0, FORBIDDEN), (1, 1, FORBIDDEN), (2, 0, EXCUSED), (2, 1, EXCUSED)],
)
def test_an_election_does_not_excuse_what_its_leader_before_lost_in_a_restart(
    end: int, epoch_when_back: int, judgement: Judgement, is_sampled: bool
) -> None:
    """Broker 1 comes back without op 1 and leads on, and broker 2 cuts its log. Then broker 3 is elected, flagged.

    Releases before 3.6 raise the leader epoch with each smaller ISR. The near miss: broker 1 still has op 1.
    """
    states = [state(0, 1, [1, 2, 3], epoch=0), *chooses_3(3)]
    if epoch_when_back:
        states.insert(1, state(10, 1, [1, 2], epoch=1))
    logs = [
        *COMMITTED_BY_ALL,
        *restarts(end, hw=2),
        leads(31, 1, end, hw=end, epoch=epoch_when_back, cause="role"),
        replica(33, 2, end, hw=end, epoch=epoch_when_back, cause="truncate"),
        leads(61, 3, 1, hw=1, epoch=3, cause="role"),
    ]
    if not epoch_when_back:
        states[1:] = chooses_3(2)
        logs[-1] |= {"leader_epoch": 2}
    if is_sampled:
        logs = [{**row, "cause": row["cause"].replace("append", "observed")} for row in logs]
    verdict = judged([*FIRST_TWO, *final_read(10, 0)], states, replicas=logs)
    assert judgements(verdict, "lost-acked-write") == {judgement: 1}


def test_a_leader_that_restarts_after_another_one_was_elected_loses_nothing() -> None:
    """Broker 2 has op 1 and leads from 30 on. Broker 1 has not heard of that at 31; it is deposed already."""
    verdict = judged(
        [*FIRST_TWO, *final_read(10, 0)],
        [state(0, 1, [1, 2, 3], epoch=0), state(30, 2, [2], epoch=1), *chooses_3(3)],
        replicas=[
            *COMMITTED_BY_ALL,
            *restarts(1, hw=2),
            leads(31, 1, 1, hw=1, epoch=0, cause="role"),
            leads(31, 2, 2, hw=2, epoch=1, cause="role"),
            leads(61, 3, 1, hw=1, epoch=3, cause="role"),
        ],
    )
    assert judgements(verdict, "lost-acked-write") == {EXCUSED: 1}


def test_a_leader_that_is_elected_once_more_has_not_cut_its_log_in_between() -> None:
    """Broker 1 has only op 0 when it is elected at 30, flagged: that election gave op 1 up."""
    verdict = judged(
        [*FIRST_TWO, *final_read(10, 0)],
        [
            state(0, 1, [1, 2, 3], epoch=0),
            state(25, -1, [1], epoch=1),
            state(30, 1, [1], epoch=2, flagged=True),
        ],
        replicas=[
            *COMMITTED_BY_ALL,
            *restarts(1, hw=2),
            leads(31, 1, 1, hw=1, epoch=2, cause="role"),
        ],
    )
    assert judgements(verdict, "lost-acked-write") == {EXCUSED: 1}


@pytest.mark.parametrize("epoch_when_back", [1, 2])
@pytest.mark.parametrize(("end", "judgement"), [(1, FORBIDDEN), (2, EXCUSED)])
def test_a_replica_that_is_elected_while_it_is_down_has_what_it_has_when_it_leads(
    end: int, judgement: Judgement, epoch_when_back: int
) -> None:
    """Broker 1 is elected at 22 while it is down, and leads at 31, perhaps without op 1. Broker 3 never had op 1.

    The ISR may become smaller at 24, which raises the leader epoch in releases before 3.6.
    """
    states = [state(0, 2, [1, 2], epoch=0), state(22, 1, [1, 2], epoch=1), *chooses_3(4)]
    if epoch_when_back == 2:
        states.insert(2, state(24, 1, [1], epoch=2))
    else:
        states[2:] = chooses_3(3)
    verdict = judged(
        [*FIRST_TWO, *final_read(10, 0)],
        states,
        replicas=[
            *({**row, "broker": 2, "node": "b2"} for row in LEADER_OF_TWO),
            replica(2, 1, 1),
            replica(2, 3, 1),
            replica(3, 1, 2),
            *restarts(end, hw=2),
            leads(31, 1, end, hw=end, epoch=epoch_when_back, cause="role"),
            leads(61, 3, 1, hw=1, epoch=states[-1]["leader_epoch"], cause="role"),
        ],
    )
    assert judgements(verdict, "lost-acked-write") == {judgement: 1}


# --- what faults destroyed on all members of the ISR, where one may commit alone ---


def judgement_alone(isr: list[int], faults: list[Row], *, min_isr: int = 1) -> Judgement:
    """Broker 1 leads on at 31 without op 1, in the leader epoch that it led before its process was down."""
    logs = [
        *LEADER_OF_TWO,
        replica(2, 2, 1),
        *restarts(1, hw=2),
        leads(31, 1, 1, hw=1, epoch=0, cause="role"),
    ]
    states = [state(0, 1, isr, epoch=0, min_isr=min_isr)]
    tables = run([*FIRST_TWO, *final_read(10, 0)], states=states, replicas=logs, faults=faults)
    verdict = judge_run(tables, RunContext(elr_on=False))
    (loss,) = [a for a in verdict.anomalies if a.id == "lost-acked-write"]
    return loss.judgement


def test_a_leader_that_leads_on_may_lack_what_a_fault_destroyed_on_it_alone() -> None:
    power = fault(19, "power", ["b1"], healed=22)
    assert judgement_alone([1], [power]) == EXCUSED
    assert judgement_alone([1], [power], min_isr=2) == FORBIDDEN
    assert judgement_alone([1, 2], [power]) == FORBIDDEN
    assert judgement_alone([1], [fault(19, "kill", ["b1"], healed=22)]) == FORBIDDEN
    assert judgement_alone([1], [fault(32, "power", ["b1"], healed=35)]) == FORBIDDEN


def test_a_leader_that_cuts_its_log_without_a_restart_is_not_excused_by_a_fault() -> None:
    verdict = judge_run(
        run(
            [*FIRST_TWO, *final_read(10, 0)],
            states=[state(0, 1, [1], epoch=0, min_isr=1)],
            replicas=[*LEADER_OF_TWO, leads(31, 1, 1, hw=1, epoch=0, cause="truncate")],
            faults=[fault(19, "power", ["b1"], healed=22)],
        ),
        RunContext(elr_on=False),
    )
    assert judgements(verdict, "lost-acked-write") == {FORBIDDEN: 1}


@pytest.mark.parametrize(
    ("nodes", "fault_at", "judgement"),
    [
        (["b1", "b2"], 19, EXCUSED),
        (["b1", "b2"], 24, EXCUSED),
        (["b1", "b2"], 32, FORBIDDEN),
        (["b1"], 19, FORBIDDEN),
    ],
)
def test_a_replica_that_is_elected_while_it_is_down_may_lack_what_faults_destroyed_before_it_leads(
    nodes: list[str], fault_at: int, judgement: Judgement
) -> None:
    """Broker 1 is elected at 22 while it is down, and leads in that epoch at 31 without op 1."""
    ours = {"min_isr": 1, "replicas": [1, 2]}
    logs = [
        *({**row, "broker": 2, "node": "b2"} for row in LEADER_OF_TWO),
        replica(2, 1, 1),
        replica(3, 1, 2),
        *restarts(1, hw=2),
        leads(31, 1, 1, hw=1, epoch=1, cause="role"),
        replica(33, 2, 1, hw=1, epoch=1, cause="truncate"),
    ]
    states = [state(0, 2, [1, 2], epoch=0, **ours), state(22, 1, [1], epoch=1, **ours)]
    faults = [fault(fault_at, "power", nodes, healed=fault_at + 1)]
    tables = run([*FIRST_TWO, *final_read(10, 0)], states=states, replicas=logs, faults=faults)
    verdict = judge_run(tables, RunContext(elr_on=False))
    assert judgements(verdict, "lost-acked-write") == {judgement: 1}


ALONE = {"min_isr": 1, "replicas": [1, 2, 3]}


def judgements_alone(
    calls: list[Call], states: list[Row], logs: list[Row], faults: list[Row], identifier: str
) -> dict[Judgement, int]:
    """Returns what becomes of an anomaly if min ISR is 1 and unclean elections are allowed."""
    verdict = judged(calls, [{**row, **ALONE} for row in states], replicas=logs, faults=faults)
    return judgements(verdict, identifier)


def power(at: int, node: str = "b1") -> Row:
    return fault(at, "power", [node], healed=at + 3)


@pytest.mark.parametrize(("name", "judgement"), [("power", EXCUSED), ("kill", FORBIDDEN)])
def test_what_a_leader_lost_and_what_it_wrote_there_after_that_do_not_contradict_each_other(
    name: str, judgement: Judgement
) -> None:
    """Broker 1 loses op 1, leads on, and writes op 2 at its offset in the same leader epoch."""
    logs = WRITTEN_AGAIN
    again = Call(op=2, kind="append", process=2, inv=40, res=43, offset=1)
    calls = [*FIRST_TWO, again, *final_read(10, 0, 2)]
    faults = [fault(19, name, ["b1"], healed=22)]
    for identifier in ("offset-reused", "two-acks-one-offset"):
        found = judgements_alone(calls, [state(0, 1, [1], epoch=0)], logs, faults, identifier)
        assert found == {judgement: 1}


@pytest.mark.parametrize(
    ("end", "flagged", "judgement"), [(1, True, EXCUSED), (2, False, FORBIDDEN)]
)
def test_a_flagged_replica_that_is_down_has_what_it_comes_back_with(
    end: int, flagged: bool, judgement: Judgement
) -> None:
    """Broker 3, elected at 22, gave op 1 up. Broker 1 is elected at 23 and at 25 while it is down.

    The near miss: it still has op 1, and broker 3, which is elected at 60, has not.
    """
    states = [
        state(0, 1, [1], epoch=0),
        state(22, 3, [3], epoch=1, flagged=True),
        state(23, 1, [1], epoch=2, flagged=True),
        state(24, -1, [1], epoch=3),
        state(25, 1, [1], epoch=4),
    ]
    logs = [
        *LEADER_OF_TWO,
        replica(2, 3, 1),
        *restarts(end, hw=2),
        leads(22, 3, 1, hw=1, epoch=1, cause="role"),
        leads(31, 1, end, hw=end, epoch=4, cause="role"),
    ]
    if not flagged:
        states += chooses_3(6, flagged=False)
        logs.append(leads(61, 3, 1, hw=1, epoch=6, cause="role"))
    calls = [*FIRST_TWO, *final_read(10, 0)]
    found = judgements_alone(calls, states, logs, [power(19)], "lost-acked-write")
    assert found == {judgement: 1}


@pytest.mark.parametrize(("fault_at", "judgement"), [(19, FORBIDDEN), (39, EXCUSED)])
def test_what_a_leader_led_on_with_no_fault_before_that_destroyed(
    fault_at: int, judgement: Judgement
) -> None:
    """Broker 1 leads on at 31 with op 1. It ends once more at 40, and leads on without it."""
    logs = [
        *LEADER_OF_TWO,
        *restarts(2, hw=2),
        leads(31, 1, 2, hw=2, epoch=0, cause="role"),
        replica(40, 1, 2, hw=2, role="offline", cause="down"),
        replica(46, 1, 1, hw=1, cause="load"),
        leads(51, 1, 1, hw=1, epoch=0, cause="role"),
    ]
    calls = [*FIRST_TWO, *final_read(10, 0)]
    faults = [power(fault_at)]
    found = judgements_alone(calls, [state(0, 1, [1], epoch=0)], logs, faults, "lost-acked-write")
    assert found == {judgement: 1}


@pytest.mark.parametrize(("flagged", "judgement"), [(True, EXCUSED), (False, FORBIDDEN)])
def test_after_a_flagged_election_only_the_elected_replica_has_to_have_what_it_has(
    flagged: bool, judgement: Judgement
) -> None:
    """Broker 2 was in the ISR with op 1. Broker 1 is elected at 10 with op 1, and loses it in a power cut."""
    states = [state(0, 2, [1, 2], epoch=0), state(10, 1, [1], epoch=1, flagged=flagged)]
    logs = [
        *({**row, "broker": 2, "node": "b2"} for row in LEADER_OF_TWO),
        replica(2, 1, 1),
        replica(3, 1, 2),
        leads(11, 1, 2, hw=2, epoch=1, cause="role"),
        *restarts(1, hw=2),
        leads(31, 1, 1, hw=1, epoch=1, cause="role"),
        replica(33, 2, 1, hw=1, epoch=1, cause="truncate"),
    ]
    calls = [*FIRST_TWO, *final_read(10, 0)]
    found = judgements_alone(calls, states, logs, [power(19)], "lost-acked-write")
    assert found == {judgement: 1}


@pytest.mark.parametrize(
    ("end", "isr", "faults", "judgement"),
    [
        (1, [1, 2], [], FORBIDDEN),
        (2, [1, 2], [], EXCUSED),
        (1, [1], [power(19)], EXCUSED),
        (1, [1, 2], [power(19)], FORBIDDEN),
        (1, [1], [power(10)], FORBIDDEN),
    ],
)
def test_a_replica_that_ends_before_it_hears_of_its_election_may_lead_without_what_it_had(
    end: int, isr: list[int], faults: list[Row], judgement: Judgement
) -> None:
    """Broker 1 is elected at 15, ends at 20, and leads at 31, perhaps without op 1. Broker 3 never had op 1.

    The near miss: broker 1 still has op 1, so that the flagged election of broker 3 gave it up.
    """
    states = [
        state(0, 1, isr, epoch=0),
        state(14, -1, isr, epoch=1),
        state(15, 1, isr, epoch=2),
        *chooses_3(4),
    ]
    logs = [
        *COMMITTED_BY_ALL,
        *restarts(end, hw=2),
        leads(31, 1, end, hw=end, epoch=2, cause="role"),
        leads(61, 3, 1, hw=1, epoch=4, cause="role"),
    ]
    calls = [*FIRST_TWO, *final_read(10, 0)]
    found = judgements_alone(calls, states, logs, faults, "lost-acked-write")
    assert found == {judgement: 1}


@pytest.mark.parametrize(
    ("isr", "faults", "judgement"),
    [
        ([1], [power(19)], EXCUSED),
        ([1], [fault(19, "kill", ["b1"], healed=22)], FORBIDDEN),
        ([1], [power(19, "b2")], FORBIDDEN),
        ([1, 2], [power(19)], FORBIDDEN),
        # Broker 1 may be down again before it leads on.
        ([1, 2], [power(19), power(20, "b2")], UNDECIDED),
        ([1, 2], [power(19), power(40, "b2")], UNDECIDED),
        ([1, 2], [power(18, "b2"), power(19)], EXCUSED),
    ],
)
def test_a_leader_may_have_led_on_without_what_a_fault_destroyed_if_no_logs_are_recorded(
    isr: list[int], faults: list[Row], judgement: Judgement
) -> None:
    calls = [*FIRST_TWO, *final_read(10, 0)]
    found = judgements_alone(calls, [state(0, 1, isr, epoch=0)], [], faults, "lost-acked-write")
    assert found == {judgement: 1}


@pytest.mark.parametrize(("at", "judgement"), [(39, FORBIDDEN), (41, UNDECIDED)])
def test_what_a_fault_destroys_after_a_leader_was_seen_to_lead_on_explains_nothing(
    at: int, judgement: Judgement
) -> None:
    """Broker 1 is hit at 19, broker 2 at 40; the log of broker 1 is seen once, as it leads."""
    logs = [leads(at, 1, 1, hw=1, epoch=0, cause="observed")]
    found = judgements_alone(
        [*FIRST_TWO, *final_read(10, 0)],
        [state(0, 1, [1, 2], epoch=0)],
        logs,
        [power(19), power(40, "b2")],
        "lost-acked-write",
    )
    assert found == {judgement: 1}


@pytest.mark.parametrize(
    ("first", "later", "judgement"), [(1, 2, EXCUSED), (1, 1, EXCUSED), (2, 1, FORBIDDEN)]
)
def test_min_isr_counts_when_a_record_was_established_and_not_when_an_election_gave_up_the_others(
    first: int, later: int, judgement: Judgement
) -> None:
    """Min ISR is changed after op 1 was committed. Broker 1 is elected with op 1, and loses it in a power cut."""
    states = [
        state(0, 2, [1, 2], epoch=0, min_isr=first),
        state(8, 2, [1, 2], epoch=0, min_isr=later),
        state(10, 1, [1], epoch=1, flagged=True, min_isr=later),
    ]
    logs = [
        *({**row, "broker": 2, "node": "b2"} for row in LEADER_OF_TWO),
        replica(2, 1, 1),
        replica(3, 1, 2),
        leads(11, 1, 2, hw=2, epoch=1, cause="role"),
        *restarts(1, hw=2),
        leads(31, 1, 1, hw=1, epoch=1, cause="role"),
        replica(33, 2, 1, hw=1, epoch=1, cause="truncate"),
    ]
    calls = [*FIRST_TWO, *final_read(10, 0)]
    verdict = judged(calls, states, replicas=logs, faults=[power(19)])
    assert judgements(verdict, "lost-acked-write") == {judgement: 1}


@pytest.mark.parametrize(
    ("faults", "judged_as"), [(2, {EXCUSED: 2}), (1, {EXCUSED: 1, FORBIDDEN: 1})]
)
def test_a_leader_epoch_that_wrote_two_records_at_an_offset_may_have_written_either(
    faults: int, judged_as: dict[Judgement, int]
) -> None:
    """Broker 1 loses op 1, leads on, writes op 2 there, and loses it; elected again, it writes op 3 there.

    The response to op 2 comes after op 3 was written, so that its time shows no epoch.
    """
    logs = [
        *WRITTEN_AGAIN,
        replica(50, 1, 2, hw=2, role="offline", cause="down"),
        replica(56, 1, 1, hw=1, epoch=-1, cause="load"),
        leads(61, 1, 1, hw=1, epoch=2, cause="role"),
        leads(71, 1, 2, hw=1, epoch=2),
        leads(72, 1, 2, hw=2, epoch=2, cause="high-watermark"),
    ]
    calls = [
        *FIRST_TWO,
        Call(op=2, kind="append", process=2, inv=40, res=80, offset=1),
        append(3, 1, at=70),
        *final_read(10, 0, 3),
    ]
    states = [
        state(0, 1, [1], epoch=0),
        state(57, -1, [1], epoch=1),
        state(60, 1, [1], epoch=2),
    ]
    cuts = [power(19), power(49)][:faults]
    assert judgements_alone(calls, states, logs, cuts, "lost-acked-write") == judged_as


@pytest.mark.parametrize(("name", "judgement"), [("power", EXCUSED), ("kill", FORBIDDEN)])
def test_what_a_leader_had_at_an_offset_before_an_append_was_sent_is_another_record(
    name: str, judgement: Judgement
) -> None:
    """Broker 1 loses ops 1 and 2, leads on, and writes a copy of op 2 at the offset of op 1, in the same epoch."""
    logs = [
        *LEADER_OF_TWO,
        leads(11, 1, 3, hw=2, epoch=0),
        leads(12, 1, 3, hw=3, epoch=0, cause="high-watermark"),
        replica(20, 1, 3, hw=3, role="offline", cause="down"),
        replica(26, 1, 1, hw=1, epoch=-1, cause="load"),
        leads(31, 1, 1, hw=1, epoch=0, cause="role"),
        leads(41, 1, 2, hw=1, epoch=0),
        leads(42, 1, 2, hw=2, epoch=0, cause="high-watermark"),
    ]
    calls = [*FIRST_TWO, append(2, 2, at=10), *final_read(10, 0, 2)]
    states, faults = [state(0, 1, [1], epoch=0)], [fault(19, name, ["b1"], healed=22)]
    assert judgements_alone(calls, states, logs, faults, "duplicate") == {judgement: 1}


@pytest.mark.parametrize("epoch", [-1, 2])
@pytest.mark.parametrize(("isr", "judgement"), [([1], EXCUSED), ([1, 2], FORBIDDEN)])
def test_what_a_log_end_shows_is_as_old_as_the_first_high_watermark_beyond_it(
    isr: list[int], judgement: Judgement, epoch: int
) -> None:
    """Broker 1 commits op 1 in epoch 0, and loses it alone in epoch 2. Only a log end showed that it existed."""
    logs = [
        *LEADER_OF_TWO,
        replica(1, 2, 0, cause="load"),
        replica(2, 2, 1),
        replica(3, 2, 2, hw=1),
        leads(11, 1, 2, hw=2, epoch=2, cause="role"),
        *restarts(1, hw=2),
        leads(31, 1, 1, hw=1, epoch=2, cause="role"),
        leads(41, 1, 2, hw=1, epoch=2),
        leads(42, 1, 2, hw=2, epoch=2, cause="high-watermark"),
    ]
    logs = [*logs, replica(60, 2, 1, hw=1, epoch=2, cause="truncate"), replica(61, 2, 2, epoch=2)]
    end = Call(op=8, kind="latest", process=8, inv=14, res=15, offset=2, epoch=epoch)
    written = Call(op=1, kind="append", process=1, inv=2, res=None, outcome="info")
    calls = [append(0, 0, at=1), written, end, append(2, 1, at=40), *final_read(10, 0, 2)]
    states = [
        state(0, 1, isr, epoch=0),
        state(8, -1, [1], epoch=1),
        state(10, 1, [1], epoch=2),
    ]
    assert judgements_alone(calls, states, logs, [power(19)], "late-insert") == {judgement: 1}


@pytest.mark.parametrize("epoch", [-1, 0])
@pytest.mark.parametrize(("at", "judgement"), [(45, FORBIDDEN), (14, EXCUSED)])
def test_a_log_end_that_was_asked_for_after_a_restart_shows_what_the_leader_wrote_since(
    at: int, judgement: Judgement, epoch: int
) -> None:
    """Broker 1 loses op 1 in a power cut, leads on, writes op 2 there, and loses it without a fault."""
    logs = [
        *WRITTEN_AGAIN,
        replica(50, 1, 2, hw=2, role="offline", cause="down"),
        replica(56, 1, 1, hw=1, epoch=-1, cause="load"),
        leads(61, 1, 1, hw=1, epoch=0, cause="role"),
        leads(71, 1, 2, hw=1, epoch=0),
        leads(72, 1, 2, hw=2, epoch=0, cause="high-watermark"),
    ]
    unknown = [
        Call(op=op, kind="append", process=op, inv=at_ns, res=None, outcome="info")
        for op, at_ns in ((1, 2), (2, 40))
    ]
    end = Call(op=8, kind="latest", process=8, inv=at, res=at + 1, offset=2, epoch=epoch)
    calls = [append(0, 0, at=1), *unknown, end, append(3, 1, at=70), *final_read(10, 0, 3)]
    states = [state(0, 1, [1], epoch=0)]
    assert judgements_alone(calls, states, logs, [power(19)], "late-insert") == {judgement: 1}


@pytest.mark.parametrize(
    ("states", "epoch"),
    [
        ([state(50, 1, [1, 2], epoch=1)], 1),
        ([state(0, 1, [1, 2], epoch=0), state(50, 1, [1, 2], epoch=0, partition_epoch=2)], 0),
        ([state(0, 2, [1, 2], epoch=0)], 2),
    ],
    ids=["first", "between", "last"],
)
@pytest.mark.parametrize(("name", "judgement"), [("power", UNDECIDED), ("kill", FORBIDDEN)])
def test_a_leader_may_have_led_on_where_states_are_missing(
    states: list[Row], epoch: int, name: str, judgement: Judgement
) -> None:
    """Broker 1 leads when its power is cut, and it may have been the only member of the ISR then."""
    calls = [*(replace(call, epoch=epoch) for call in FIRST_TWO), *final_read(10, 0)]
    faults = [fault(19, name, ["b1"], healed=22)]
    assert judgements_alone(calls, states, [], faults, "lost-acked-write") == {judgement: 1}


@pytest.mark.parametrize(("failed", "judgement"), [(True, UNDECIDED), (False, FORBIDDEN)])
def test_a_fault_whose_injection_failed_may_be_why_a_leader_led_on_with_less(
    failed: bool, judgement: Judgement
) -> None:
    """No logs show whether broker 1 led on without op 1 after that. A fault without effect is no reason."""
    cut = {**power(19), "took_effect": False, "failed": failed}
    calls, states = [*FIRST_TWO, *final_read(10, 0)], [state(0, 1, [1], epoch=0)]
    found = judgements_alone(calls, states, [], [cut], "lost-acked-write")
    assert found == {judgement: 1}


@pytest.mark.parametrize(("name", "judgement"), [("power", UNDECIDED), ("kill", FORBIDDEN)])
def test_a_leader_that_was_seen_with_less_before_the_first_state_may_have_lost_it_by_a_fault(
    name: str, judgement: Judgement
) -> None:
    logs = [
        leads(4, 1, 2, hw=2, epoch=1, cause="observed"),
        *restarts(1, hw=2),
        leads(31, 1, 1, hw=1, epoch=1, cause="role"),
    ]
    calls = [*(replace(call, epoch=1) for call in FIRST_TWO), *final_read(10, 0)]
    states, faults = [state(50, 1, [1], epoch=1)], [fault(19, name, ["b1"], healed=22)]
    assert judgements_alone(calls, states, logs, faults, "lost-acked-write") == {judgement: 1}


@pytest.mark.parametrize(
    ("raised_to", "name", "judgement"),
    [(1, "power", EXCUSED), (2, "power", UNDECIDED), (2, "kill", FORBIDDEN)],
)
def test_what_a_deposed_leader_commits_is_older_than_a_change_of_min_isr_after_its_epoch(
    raised_to: int, name: str, judgement: Judgement
) -> None:
    """Broker 1 does not hear that it is deposed at 10. It commits op 1, is elected with it, and loses it."""
    states = [
        state(0, 1, [1], epoch=0, min_isr=1),
        state(8, -1, [1], epoch=1, min_isr=1),
        state(9, -1, [1], epoch=1, min_isr=raised_to),
        state(10, 2, [2], epoch=2, flagged=True, min_isr=raised_to),
        state(45, -1, [2], epoch=3, min_isr=raised_to),
        state(50, 1, [1], epoch=4, flagged=True, min_isr=raised_to),
    ]
    logs = [
        leads(1, 1, 1, hw=1, epoch=0),
        replica(2, 2, 0, cause="load"),
        leads(11, 2, 0, epoch=2, cause="role"),
        leads(31, 1, 2, hw=1, epoch=0),
        leads(32, 1, 2, hw=2, epoch=0, cause="high-watermark"),
        leads(51, 1, 2, hw=2, epoch=4, cause="role"),
        replica(60, 1, 2, hw=2, epoch=4, role="offline", cause="down"),
        replica(66, 1, 1, hw=1, epoch=4, cause="load"),
        leads(71, 1, 1, hw=1, epoch=4, cause="role"),
    ]
    calls = [append(0, 0, at=1), replace(append(1, 1, at=30), res=40), *final_read(10, 0)]
    verdict = judged(calls, states, replicas=logs, faults=[fault(59, name, ["b1"], healed=63)])
    assert judgements(verdict, "lost-acked-write") == {judgement: 1}


@pytest.mark.parametrize("acked_at", [43, 60])
@pytest.mark.parametrize(("name", "judgement"), [("power", EXCUSED), ("kill", FORBIDDEN)])
def test_an_append_that_was_open_while_an_epoch_wrote_two_records_at_an_offset_may_be_either(
    name: str, judgement: Judgement, acked_at: int
) -> None:
    """Op 2 is sent before op 1 is written. Broker 1 loses op 1, leads on, and writes op 2 at its offset.

    The near miss: no fault explains why broker 1 lost op 1.
    """
    logs = WRITTEN_AGAIN
    late = Call(op=2, kind="append", process=2, inv=2, res=acked_at, offset=1)
    calls = [*FIRST_TWO, late, *final_read(10, 0, 2)]
    faults = [fault(19, name, ["b1"], healed=22)]
    states = [state(0, 1, [1], epoch=0)]
    for identifier in ("offset-reused", "two-acks-one-offset"):
        found = judgements_alone(calls, states, logs, faults, identifier)
        assert found == {judgement: 1}


@pytest.mark.parametrize(("sent_at", "judgement"), [(2, UNDECIDED), (40, FORBIDDEN)])
def test_a_read_shows_either_of_two_records_of_an_epoch_if_nothing_shows_which_one_it_is(
    sent_at: int, judgement: Judgement
) -> None:
    """Broker 1 loses what it wrote at 3 in a power cut, and what it wrote there at 41 without a fault.

    The response to op 1 does not say which one it is. The near miss: it was sent after the first one was written.
    """
    logs = [
        *WRITTEN_AGAIN,
        replica(50, 1, 2, hw=2, role="offline", cause="down"),
        replica(56, 1, 1, hw=1, epoch=-1, cause="load"),
        leads(61, 1, 1, hw=1, epoch=0, cause="role"),
    ]
    one = Call(op=1, kind="append", process=1, inv=sent_at, res=80, offset=1)
    calls = [append(0, 0, at=1), one, *final_read(10, 0)]
    states, faults = [state(0, 1, [1], epoch=0)], [fault(19, "power", ["b1"], healed=22)]
    found = judgements_alone(calls, states, logs, faults, "lost-acked-write")
    assert found == {judgement: 1}


@pytest.mark.parametrize("sent_at", [2, 40])
def test_a_record_is_not_older_than_the_first_write_that_may_have_written_it(sent_at: int) -> None:
    """Broker 1 loses op 1 in a power cut, writes op 2 at its offset at 41, and loses that without a fault.

    Op 1 was acknowledged before that, so op 2 is the other one, even if it was sent earlier.
    """
    logs = [
        *WRITTEN_AGAIN,
        replica(50, 1, 2, hw=2, role="offline", cause="down"),
        replica(56, 1, 1, hw=1, epoch=-1, cause="load"),
        leads(61, 1, 1, hw=1, epoch=0, cause="role"),
    ]
    other = Call(op=2, kind="append", process=2, inv=sent_at, res=80, offset=1)
    calls = [*FIRST_TWO, other, *final_read(10, 0)]
    states, faults = [state(0, 1, [1], epoch=0)], [fault(19, "power", ["b1"], healed=22)]
    found = judgements_alone(calls, states, logs, faults, "lost-acked-write")
    assert found == {EXCUSED: 1, FORBIDDEN: 1}


# --- which state was in force, and which fault was over ---


@pytest.mark.parametrize(
    "shrinks",
    [
        [state(2, 1, [1], epoch=0)],
        # Another change was committed when it led on.
        [state(2, 1, [1], epoch=0), state(31, 1, [1], epoch=0)],
    ],
)
def test_a_leader_may_lack_what_it_committed_alone_under_a_later_state(shrinks: list[Row]) -> None:
    """Broker 2 leaves the ISR at 2. Broker 1 commits op 1 at 4, and leads on without it at 31."""
    logs = [
        *LEADER_OF_TWO,
        replica(2, 2, 1),
        *restarts(1, hw=2),
        leads(31, 1, 1, hw=1, epoch=0, cause="role"),
    ]
    states = [state(0, 1, [1, 2], epoch=0), *shrinks]
    calls = [*FIRST_TWO, *final_read(10, 0)]
    found = judgements_alone(calls, states, logs, [power(19)], "lost-acked-write")
    assert found == {EXCUSED: 1}


def test_a_leader_that_leads_on_when_it_is_elected_again_may_lack_what_a_fault_destroyed() -> None:
    """Broker 1 leads on at 31 without op 1, in the epoch before, and is elected at that moment."""
    logs = [
        *LEADER_OF_TWO,
        *restarts(1, hw=2),
        leads(31, 1, 1, hw=1, epoch=0, cause="role"),
        leads(32, 1, 1, hw=1, epoch=2, cause="role"),
    ]
    states = [
        state(0, 1, [1], epoch=0),
        state(25, -1, [1], epoch=1),
        state(31, 1, [1], epoch=2),
    ]
    calls = [*FIRST_TWO, *final_read(10, 0)]
    found = judgements_alone(calls, states, logs, [power(19)], "lost-acked-write")
    assert found == {EXCUSED: 1}


@pytest.mark.parametrize(("name", "judgement"), [("power", UNDECIDED), ("kill", FORBIDDEN)])
def test_a_leader_that_led_on_before_a_first_state_that_is_late_may_lack_what_a_fault_destroyed(
    name: str, judgement: Judgement
) -> None:
    """All of its log is recorded. The first state is committed at 50, after the first operations."""
    logs = [
        *LEADER_OF_TWO,
        *restarts(1, hw=2),
        leads(31, 1, 1, hw=1, epoch=0, cause="role"),
    ]
    calls = [*FIRST_TWO, *final_read(10, 0)]
    states, faults = [state(50, 1, [1], epoch=0)], [fault(19, name, ["b1"], healed=22)]
    assert judgements_alone(calls, states, logs, faults, "lost-acked-write") == {judgement: 1}


@pytest.mark.parametrize(
    ("healed", "later", "judgement"),
    [
        (22, [], EXCUSED),
        (22, [state(19, 1, [1], epoch=0)], EXCUSED),
        # It is not known when the leader led on.
        (None, [], UNDECIDED),
    ],
)
def test_a_leader_may_have_led_on_after_a_fault_that_began_with_a_state_or_was_never_over(
    healed: int | None, later: list[Row], judgement: Judgement
) -> None:
    """No logs are recorded."""
    states = [state(0, 1, [1], epoch=0), *later]
    faults = [fault(19, "power", ["b1"], healed=healed)]
    calls = [*FIRST_TWO, *final_read(10, 0)]
    assert judgements_alone(calls, states, [], faults, "lost-acked-write") == {judgement: 1}


@pytest.mark.parametrize(("epoch", "judgement"), [(0, UNDECIDED), (1, FORBIDDEN)])
def test_a_fault_does_not_explain_what_a_later_leader_wrote_on_another_node(
    epoch: int, judgement: Judgement
) -> None:
    """Op 1 is sent at 15. Broker 1 leads until 20, and its power is cut from 19 to 25. Then broker 3 leads."""
    states = [state(0, 1, [1], epoch=0), state(20, 3, [3], epoch=1, flagged=True)]
    one = Call(op=1, kind="append", process=1, inv=15, res=30, offset=1, epoch=epoch)
    calls = [append(0, 0, at=1), one, *final_read(10, 0)]
    faults = [fault(19, "power", ["b1"], healed=25)]
    assert judgements_alone(calls, states, [], faults, "lost-acked-write") == {judgement: 1}


@pytest.mark.parametrize(
    ("before", "elected", "struck_at", "judgement"),
    [
        # The fault begins at 18, before broker 1 is elected at 19.
        (state(0, 2, [1, 2], epoch=0), state(19, 1, [1], epoch=1), 23, UNDECIDED),
        (state(0, 2, [1, 2], epoch=0), state(19, 1, [1], epoch=1), 19, UNDECIDED),
        (state(0, 2, [1, 2], epoch=0), state(19, 1, [1], epoch=1), 18, FORBIDDEN),
        # That state was read at 19, and committed since 17.
        (
            state(0, 2, [1, 2], epoch=0),
            {**state(19, 1, [1], epoch=1), "after_ns": 17},
            18,
            UNDECIDED,
        ),
        # Broker 1 leads all the time; its leader epoch rises at 19.
        (state(0, 1, [1], epoch=0), state(19, 1, [1], epoch=1), 23, UNDECIDED),
        (state(0, 1, [1], epoch=0), state(19, 1, [1], epoch=1), 18, FORBIDDEN),
    ],
)
def test_a_fault_strikes_a_leader_that_began_while_it_was_injected(
    before: dict[str, Any], elected: dict[str, Any], struck_at: int, judgement: Judgement
) -> None:
    """Op 1 is written and committed by broker 1 alone, in leader epoch 1."""
    calls = [append(0, 0, at=1), replace(append(1, 1, at=21), epoch=1), *final_read(10, 0)]
    power = {**fault(18, "power", ["b1"], healed=24), "completed_ns": struck_at}
    found = judgements_alone(calls, [before, elected], [], [power], "lost-acked-write")
    assert found == {judgement: 1}


def test_many_faults_where_states_are_missing_take_no_longer_than_few() -> None:
    """Each may have made the leader lead on with less, and elections may be missing after each."""
    states = [state(0, 2, [1, 2], epoch=0), state(90, 1, [1, 2], epoch=2)]
    calls = [append(0, 0, at=1), replace(append(1, 1, at=20), epoch=2), *final_read(10, 0)]
    faults = [fault(21 + at, "power", ["b1"], healed=22 + at) for at in range(60)]
    assert judgements_alone(calls, states, [], faults, "lost-acked-write") == {UNDECIDED: 1}


def test_a_fault_that_may_have_hit_any_broker_hits_no_partition_without_a_leader() -> None:
    """The injection at 20 failed, so it is not known what it hit."""
    calls = [replace(append(op, op, at=1 + 4 * op), epoch=0) for op in (0, 1)]
    states = [
        {**each, **ALONE}
        for each in (state(10, -1, [1], epoch=1), state(50, 2, [2], epoch=2, flagged=True))
    ]
    failed = {**fault(20, "power", [], healed=25, took_effect=False), "failed": True}
    tables = run([*calls, *final_read(10, 0)], states=states, faults=[failed])
    verdict = judge_run(tables, RunContext(elr_on=False))
    assert judgements(verdict, "lost-acked-write") == {FORBIDDEN: 1}


@pytest.mark.parametrize(
    ("state_at", "leads_on_at", "judgement"),
    [
        (10, None, UNDECIDED),
        (10, 31, UNDECIDED),
        (31, 31, UNDECIDED),
        (10, 89, UNDECIDED),
        (10, 90, FORBIDDEN),  # the next state is of that moment
    ],
)
def test_elections_that_are_not_recorded_may_follow_the_restart_of_a_leader(
    state_at: int, leads_on_at: int | None, judgement: Judgement
) -> None:
    """Broker 2 leads on with op 1, but with less than before. The states of epochs 2 and 3 are missing.

    Broker 3, which leads without op 1 in epoch 3, may have been elected lawfully after that.
    """
    logs = [
        leads(1, 1, 0, hw=0, epoch=0, cause="role"),
        leads(3, 1, 2, hw=1, epoch=0, cause="observed"),
        replica(4, 2, 2, hw=1, epoch=0),
        leads(5, 1, 2, hw=2, epoch=0, cause="observed"),
        leads(12, 2, 2, hw=2, epoch=1, cause="role"),
        leads(15, 2, 4, hw=2, epoch=1, cause="observed"),
    ]
    if leads_on_at is not None:
        logs += [
            replica(20, 2, 4, hw=2, epoch=1, role="offline", cause="down"),
            replica(26, 2, 3, hw=2, epoch=1, cause="load"),
            leads(leads_on_at, 2, 3, hw=2, epoch=1, cause="role"),
        ]
    logs += [
        leads((leads_on_at or 40) + 1, 2, 3 if leads_on_at else 4, hw=2, epoch=1, cause="observed"),
        leads(95, 3, 1, hw=1, epoch=3, cause="observed"),
    ]
    states = [
        state(0, 1, [1, 2], epoch=0),
        state(state_at, 2, [1, 2], epoch=1),
        state(90, -1, [3], epoch=4),
    ]
    calls = [
        *(replace(append(op, op, at=2), epoch=0) for op in (0, 1)),
        replace(read(5, 6, 0, 1), epoch=0, stamps=(0, 0)),
        *final_read(10, 0),
    ]
    context = RunContext(elr_on=False, unclean_election_enabled=True)
    verdict = judge_run(run(calls, states=states, replicas=logs), context)
    assert judgements(verdict, "lost-acked-write") == {judgement: 1}


@pytest.mark.parametrize("broker", [0, 1])
@pytest.mark.parametrize(
    ("last_state_at", "at", "healed", "judgement"),
    [
        (0, 18, 21, UNDECIDED),
        # It was injected before the broker was elected.
        (19, 18, 21, FORBIDDEN),
        (19, 19, 22, UNDECIDED),
        (19, 49, 52, UNDECIDED),
        (19, 49, None, UNDECIDED),
        # Broker 2 is in the ISR and has the record.
        (19, 50, 53, FORBIDDEN),
    ],
)
def test_a_leader_may_have_led_on_after_a_fault_that_began_where_states_are_missing(
    last_state_at: int, at: int, healed: int | None, judgement: Judgement, broker: int
) -> None:
    """Broker 2 leads up to a state, and broker 0 or 1 in the next one at 50, two leader epochs later.

    Op 1 is acknowledged in that epoch before 50.
    """
    isr = [broker, 2]
    states = [state(each, 2, isr, epoch=0) for each in sorted({0, last_state_at})]
    states.append(state(50, broker, isr, epoch=2))
    calls = [append(0, 0, at=1), replace(append(1, 1, at=20), epoch=2), *final_read(10, 0)]
    faults = [fault(at, "power", [f"b{broker}"], healed=healed)]
    assert judgements_alone(calls, states, [], faults, "lost-acked-write") == {judgement: 1}
