"""What is not recorded is not known: states of the partition or logs of replicas are missing."""

from dataclasses import replace
from typing import Any

import pytest

from checkers.kernels.compose import judge_run
from harness.contracts.run_context import RunContext
from harness.contracts.verdict import Validity
from tests.anomalies.runs import (
    append,
    broker,
    fault,
    final_read,
    heard,
    leads,
    read,
    replica,
    run,
    state,
)

Row = dict[str, Any]
INVALID, UNKNOWN, VALID = Validity.INVALID, Validity.UNKNOWN, Validity.VALID
LOST = [append(0, 0, at=10), append(1, 1, at=20), append(2, 1, at=700), *final_read(80, 0, 2)]
"""Op 1 was acknowledged at offset 1, where op 2 is now."""
REGISTERED = [broker(0, b, "registered", clean=True) for b in (1, 2, 3)]
UNCLEAN = RunContext(elr_on=False, unclean_election_enabled=True, acked_during_faults_min=0)
WITH_ELR = RunContext(elr_on=True, acked_during_faults_min=0)


def validity(
    states: list[Row],
    context: RunContext = UNCLEAN,
    *,
    calls: list[Any] = LOST,
    replicas: list[Row] | None = None,
    faults: list[Row] | None = None,
    brokers: list[Row] | None = None,
) -> Validity:
    registered = REGISTERED if brokers is None else brokers
    tables = run(calls, states=states, replicas=replicas, brokers=registered, faults=faults)
    return judge_run(tables, context).validity


# --- logs of replicas ---

FLAGGED_FIRST = [
    state(1, 1, [1, 2, 3], epoch=0),
    state(100, 1, [1], epoch=0),
    state(200, -1, [1], epoch=1),
    state(300, 2, [2], epoch=2, flagged=True),
    state(350, 2, [2, 3], epoch=2),
    state(400, 3, [3], epoch=3),
]
FLAGGED_LAST = [
    state(1, 1, [1, 2, 3], epoch=0),
    state(100, 1, [1, 2], epoch=0),
    state(300, 2, [2], epoch=1),
    state(350, -1, [2], epoch=2),
    state(400, 3, [3], epoch=3, flagged=True),
]
FIRST_LEADER = [
    leads(10, 1, 1, hw=0, epoch=0, cause="append"),
    leads(20, 1, 2, hw=1, epoch=0, cause="append"),
    leads(21, 1, 2, hw=2, epoch=0, cause="high-watermark"),
]
LAST_LEADER = [
    replica(15, 3, 1, hw=1),
    leads(401, 3, 1, hw=1, epoch=3, cause="role"),
    leads(700, 3, 2, hw=2, epoch=3, cause="append"),
]


def second_leader(states: list[Row], end: int) -> list[Row]:
    """Rows of broker 2, whose log has op 1 if it ends at 2."""
    epoch = next(row["leader_epoch"] for row in states if row["leader"] == 2)
    return [replica(22, 2, end, hw=1), leads(301, 2, end, hw=end, epoch=epoch, cause="role")]


@pytest.mark.parametrize(
    ("states", "had_it", "lacked_it"),
    [(FLAGGED_FIRST, INVALID, VALID), (FLAGGED_LAST, VALID, INVALID)],
)
def test_an_elected_replica_without_rows_is_not_an_empty_one(
    states: list[Row], had_it: Validity, lacked_it: Validity
) -> None:
    """Broker 2 and then broker 3 were elected, one of them flagged. Broker 3 did not have op 1."""
    others = [*FIRST_LEADER, *LAST_LEADER]
    rows_if_it = [second_leader(states, end) for end in (2, 1)]
    found = [validity(states, replicas=heard([*others, *rows], states)) for rows in rows_if_it]
    assert found == [had_it, lacked_it]
    assert validity(states, replicas=others) == UNKNOWN
    assert validity(states, replicas=FIRST_LEADER) == UNKNOWN
    # Its first row is from after its election: what was there then may have been written since.
    assert validity(states, replicas=[*others, *rows_if_it[0][1:]]) == UNKNOWN


@pytest.mark.parametrize(("states", "expected"), [(FLAGGED_FIRST, INVALID), (FLAGGED_LAST, VALID)])
def test_a_read_in_the_epoch_of_a_leader_shows_what_its_missing_log_had(
    states: list[Row], expected: Validity
) -> None:
    epoch = next(row["leader_epoch"] for row in states if row["leader"] == 2)
    shown = replace(read(50, 310, 0, 1), epoch=epoch, stamps=(0, 0))
    calls = [*LOST, shown]
    assert validity(states, calls=calls, replicas=[*FIRST_LEADER, *LAST_LEADER]) == expected


def test_an_empty_log_after_an_election_may_be_what_a_fault_left() -> None:
    """Near miss: the replica reports that it has nothing before it is elected."""
    rows = [*FIRST_LEADER, *LAST_LEADER]
    empty = replica(299, 2, 0, epoch=0, cause="load")
    assert validity(FLAGGED_FIRST, replicas=heard([*rows, empty], FLAGGED_FIRST)) == VALID
    late = {**empty, "at_ns": 310, "leader_epoch": 2}
    assert validity(FLAGGED_FIRST, replicas=heard([*rows, late], FLAGGED_FIRST)) == UNKNOWN


def test_a_leader_epoch_that_clients_saw_and_no_replica_reported_makes_logs_incomplete() -> None:
    """Broker 2 hears only of the epoch after its own, or its report that it led is missing."""
    rows = heard([*FIRST_LEADER, *LAST_LEADER, replica(15, 2, 1, hw=1)], FLAGGED_FIRST)
    assert validity(FLAGGED_FIRST, replicas=rows) == VALID
    shown = replace(read(50, 310, 0), epoch=2, stamps=(0,))
    assert validity(FLAGGED_FIRST, calls=[*LOST, shown], replicas=rows) == UNKNOWN


# --- rows of replicas that end early ---

EARLY = replica(15, 2, 1, hw=1)
HEARD_BY_LEADER = replica(450, 1, 1, epoch=3, cause="truncate")
OTHERS = [*FIRST_LEADER, HEARD_BY_LEADER, *LAST_LEADER]


def down(at: int) -> Row:
    return replica(at, 2, 1, hw=1, role="offline", cause="down")


@pytest.mark.parametrize("states", [FLAGGED_FIRST, FLAGGED_LAST])
def test_an_elected_replica_whose_rows_end_before_it_led_may_have_had_more(
    states: list[Row],
) -> None:
    """Broker 2 may have copied op 1 at 22. If it did, broker 3 gave it up, otherwise broker 2 did."""
    assert validity(states, replicas=[*OTHERS, EARLY]) == UNKNOWN
    # A row after its election shows nothing if it is from before the replica heard of it.
    late = {**EARLY, "at_ns": 310, "cause": "high-watermark"}
    assert validity(states, replicas=[*OTHERS, EARLY, late]) == UNKNOWN


@pytest.mark.parametrize(("states", "expected"), [(FLAGGED_FIRST, VALID), (FLAGGED_LAST, INVALID)])
def test_a_replica_that_was_down_or_heard_of_the_next_epoch_did_nothing_in_its_own(
    states: list[Row], expected: Validity
) -> None:
    """Near misses: broker 2 was elected without op 1, and its rows show that it wrote nothing as the leader."""
    next_epoch = replica(410, 2, 1, hw=1, epoch=3, cause="role")
    for rows in ([next_epoch], [down(305)], [down(305), {**next_epoch, "cause": "load"}]):
        assert validity(states, replicas=[*OTHERS, EARLY, *rows]) == expected


@pytest.mark.parametrize("states", [FLAGGED_FIRST, FLAGGED_LAST])
def test_a_process_that_registered_and_reported_nothing_may_have_led(states: list[Row]) -> None:
    """Broker 2 was down when it was elected at 300. Its epoch ended at 350 or 400, when broker 3 gave op 1 up."""
    until = next(row["at_ns"] for row in states if row["at_ns"] > 300 and row["leader"] != 2)
    rows = [*OTHERS, EARLY, down(290)]
    for at, expected in ((289, VALID), (291, UNKNOWN), (until - 1, UNKNOWN), (until, VALID)):
        brokers = [*REGISTERED, broker(at, 2, "registered", clean=True)]
        assert validity(states, replicas=rows, brokers=brokers) == expected, at
    assert validity(states, replicas=rows, brokers=[]) == VALID


@pytest.mark.parametrize(("states", "epoch"), [(FLAGGED_FIRST, 2), (FLAGGED_LAST, 1)])
def test_what_a_follower_copied_shows_that_somebody_led(states: list[Row], epoch: int) -> None:
    """The report of broker 2 that it led is missing, and broker 3 copied a record in its epoch."""
    copied = replica(320, 3, 2, hw=1, epoch=epoch)
    cut = replica(345, 3, 1, hw=1, epoch=epoch, cause="truncate")
    rows = [*OTHERS, EARLY, down(345)]
    assert validity(states, replicas=rows) != UNKNOWN
    assert validity(states, replicas=[*rows, copied, cut]) == UNKNOWN
    # Near miss: the leader of the epoch reported that it led, and the record.
    led = leads(301, 2, 1, hw=1, epoch=epoch, cause="role")
    wrote = [
        leads(310, 2, 2, hw=1, epoch=epoch),
        replica(330, 2, 1, hw=1, epoch=epoch, cause="load"),
    ]
    assert validity(states, replicas=[*rows, led, *wrote, copied, cut]) != UNKNOWN


def test_a_leader_whose_rows_end_may_have_committed_before_the_election_what_is_acknowledged_later() -> (
    None
):
    """Broker 1 writes and commits op 1 at 21. The response arrives at 70, after the flagged election at 50."""
    states = [state(1, 1, [1], epoch=0), state(50, 2, [2], epoch=1, flagged=True)]
    calls = [append(0, 0, at=2), replace(append(1, 1, at=20), res=70), *final_read(10, 0)]
    rows = [
        leads(2, 1, 1, hw=1, epoch=0),
        replica(3, 2, 1),
        leads(51, 2, 1, hw=1, epoch=1, cause="role"),
    ]
    wrote = leads(21, 1, 2, hw=2, epoch=0)
    heard_of_it = replica(90, 1, 1, hw=1, epoch=1, cause="truncate")
    assert validity(states, calls=calls, replicas=[*rows, wrote, heard_of_it]) == VALID
    assert validity(states, calls=calls, replicas=rows) == VALID
    # Near miss: its rows do not end, and nobody wrote op 1.
    not_written = [*rows, {**heard_of_it, "cause": "role"}]
    assert validity(states, calls=calls, replicas=not_written) == INVALID


def test_a_leader_whose_rows_end_may_have_written_what_another_one_may_have_written_too() -> None:
    """Op 1 is acknowledged at 70, and lost by the unflagged election at 100 if broker 2 wrote it.

    Broker 1 wrote another record at its offset, which the flagged election at 30 gave up.
    """
    states = [
        state(1, 1, [1], epoch=0),
        state(30, 2, [2], epoch=1, flagged=True),
        state(100, 3, [3], epoch=2),
    ]
    other = replace(append(2, None, at=21, outcome="info"), res=None)
    calls = [append(0, 0, at=2), replace(append(1, 1, at=20), res=70), other, *final_read(10, 0)]
    rows = [
        leads(2, 1, 1, hw=1, epoch=0),
        *(replica(3, b, 1) for b in (2, 3)),
        leads(25, 1, 2, hw=2, epoch=0),
        leads(31, 2, 1, hw=1, epoch=1, cause="role"),
        leads(101, 3, 1, hw=1, epoch=2, cause="role"),
        replica(110, 1, 1, hw=1, epoch=2, cause="truncate"),
    ]
    assert validity(states, calls=calls, replicas=rows) == UNKNOWN
    # Near miss: broker 2 reports that it follows, and wrote nothing.
    follows = replica(110, 2, 1, hw=1, epoch=2, cause="role")
    assert validity(states, calls=calls, replicas=[*rows, follows]) == VALID


# --- states between two others ---

UNCLEAN_ELECTION = [
    state(1, 1, [1, 2, 3], epoch=0, partition_epoch=0),
    state(100, 1, [1], epoch=0, partition_epoch=1),
    state(200, -1, [1], epoch=1, partition_epoch=2),
    state(300, 2, [2], epoch=2, partition_epoch=3, flagged=True),
    state(350, 2, [2], epoch=2, partition_epoch=4),
    state(360, 2, [2, 3], epoch=2, partition_epoch=5),
]


def test_an_election_in_a_gap_of_leader_epochs_may_have_been_unclean() -> None:
    assert validity(UNCLEAN_ELECTION) == VALID
    for kept in ((0, 4, 5), (0, 5), (1, 5)):
        assert validity([UNCLEAN_ELECTION[at] for at in kept]) == UNKNOWN
    same = [UNCLEAN_ELECTION[0], state(400, 1, [1], epoch=6)]
    assert validity(same) == UNKNOWN
    # Near miss: an election without a flag, and nothing is missing.
    unflagged = [UNCLEAN_ELECTION[0], state(300, 2, [2, 3], epoch=1)]
    assert validity(unflagged) == INVALID


def test_a_gap_of_partition_epochs_may_hide_the_flag_of_an_election() -> None:
    states = [UNCLEAN_ELECTION[2], UNCLEAN_ELECTION[4]]
    assert validity([UNCLEAN_ELECTION[0], UNCLEAN_ELECTION[1], *states]) == UNKNOWN
    # The ISR may be whole in all states that are recorded.
    whole = [
        state(1, 1, [1, 2, 3], epoch=0, partition_epoch=0),
        state(300, 2, [1, 2, 3], epoch=1, partition_epoch=2),
    ]
    assert validity(whole) == UNKNOWN
    # Near miss: nothing is missing.
    whole[1]["partition_epoch"] = 1
    assert validity(whole) == INVALID


def test_a_gap_after_an_epoch_that_kept_the_record_and_before_one_that_has_it_decides_nothing() -> (
    None
):
    """Near miss: a read in epoch 4 shows the record, so only the election of epoch 5 can have lost it."""
    states = [UNCLEAN_ELECTION[0], state(300, 2, [2, 3], epoch=4), state(400, 3, [3], epoch=5)]
    shown = replace(read(50, 310, 0, 1), epoch=4, stamps=(0, 0))
    assert validity(states) == UNKNOWN
    assert validity(states, calls=[*LOST, shown]) == INVALID


def test_a_request_may_have_been_used_up_by_an_election_that_is_not_recorded() -> None:
    request = fault(150, "elect_leader", ["b1"], elects_uncleanly=["t-0"])
    full = [
        state(1, 1, [1, 2, 3], epoch=0),
        state(100, 1, [1, 2], epoch=0),
        state(200, -1, [1, 2], epoch=1),
        state(300, 3, [3], epoch=2, flagged=True),
    ]
    assert validity(full, WITH_ELR, faults=[request]) == VALID
    hidden = [*full[:2], state(180, -1, [1, 2], epoch=3), state(300, 3, [3], epoch=4, flagged=True)]
    assert validity(hidden, WITH_ELR, faults=[request]) == UNKNOWN


# --- states that begin late ---

WITH_ELR_STATES = [
    state(1, 1, [1, 2, 3], epoch=0),
    state(100, 1, [1, 2], epoch=0),
    state(150, 1, [1], epoch=0, elr=[2]),
    state(200, -1, [], epoch=1),
    state(300, 3, [3], epoch=2, flagged=True),
]


def test_a_flagged_election_is_not_lawful_because_earlier_states_are_missing() -> None:
    assert validity(WITH_ELR_STATES, WITH_ELR) == INVALID
    # A state with an ISR of min ISR members is enough.
    assert validity(WITH_ELR_STATES[1:], WITH_ELR) == INVALID
    for first in (2, 3, 4):
        assert validity(WITH_ELR_STATES[first:], WITH_ELR) == UNKNOWN
    allowed = fault(5, "alter_config", ["b1"], allows_unclean=["t-0"])
    assert validity(WITH_ELR_STATES[3:], WITH_ELR, faults=[allowed]) == VALID
    # Near miss: the partition never had min ISR members in the ISR.
    alone = [state(1, 1, [1], epoch=0), *WITH_ELR_STATES[3:]]
    assert validity(alone, WITH_ELR) == VALID


@pytest.mark.parametrize("min_isr", [2, 3])
def test_min_isr_is_no_larger_than_the_number_of_replicas(min_isr: int) -> None:
    more = {"replicas": [1, 2], "min_isr": min_isr}
    states = [
        state(1, 1, [1, 2], epoch=0, **more),
        state(300, 2, [2], epoch=1, flagged=True, **more),
    ]
    assert validity(states, WITH_ELR) == INVALID


def test_what_was_destroyed_before_the_first_state_is_not_known() -> None:
    alone = {"replicas": [1], "min_isr": 1}
    states = [
        state(1, 1, [1], epoch=0, **alone),
        state(150, 1, [1], epoch=0, **alone),
        state(250, -1, [1], epoch=1, **alone),
        state(300, 1, [1], epoch=2, **alone),
    ]
    context = RunContext(elr_on=False, min_isr=1, replication_factor=1, acked_during_faults_min=0)
    power = fault(200, "power", ["b1"], healed=210)
    found = [validity(states[first:], context, faults=[power]) for first in range(4)]
    assert found == [VALID, UNKNOWN, UNKNOWN, UNKNOWN]
    # Near miss: nothing was destroyed, and no election is missing.
    found = [validity(states[first:], context) for first in range(3)]
    assert found == [INVALID, INVALID, INVALID]


def test_what_was_destroyed_in_a_gap_is_not_known() -> None:
    """Broker 1 was alone when the power was cut, and perhaps not when op 1 was established."""
    alone = {"replicas": [1, 2], "min_isr": 1}
    states = [
        state(1, 1, [1, 2], epoch=0, partition_epoch=0, **alone),
        state(150, 1, [1], epoch=0, partition_epoch=1, **alone),
        state(250, -1, [1], epoch=1, partition_epoch=2, **alone),
        state(300, 1, [1], epoch=2, partition_epoch=3, **alone),
    ]
    power = fault(200, "power", ["b1"], healed=210)
    assert validity(states, RunContext(elr_on=False, min_isr=1), faults=[power]) == INVALID
    gap = [states[0], {**states[1], "partition_epoch": 4}, *states[2:]]
    gap = [*gap[:2], *({**row, "partition_epoch": 3 + at} for at, row in enumerate(gap[2:], 2))]
    assert validity(gap, RunContext(elr_on=False, min_isr=1), faults=[power]) == UNKNOWN


# --- a record that ends early ---


def test_a_leader_epoch_above_the_last_state_shows_that_states_are_missing() -> None:
    """The harness was killed: responses of clients reached the record, and the newest metadata did not."""
    killed = replace(UNCLEAN, final_phase_complete=False, incomplete_reason="killed")
    calls = [replace(append(op, op, at=10 + 10 * op), epoch=0) for op in (0, 1)]
    calls.append(replace(append(2, 1, at=700), epoch=2))
    for count in (1, 2, 3):
        assert validity(UNCLEAN_ELECTION[:count], killed, calls=calls) == UNKNOWN
    stamped = [
        *(replace(call, epoch=-1) for call in calls),
        replace(read(50, 710, 0, 2), stamps=(0, 2)),
    ]
    assert validity(UNCLEAN_ELECTION[:3], killed, calls=stamped) == UNKNOWN
    # Near misses: no response is of a later epoch than the last state.
    same = [replace(call, epoch=min(call.epoch, 0)) for call in calls]
    assert validity(UNCLEAN_ELECTION[:2], killed, calls=same) == INVALID
    # Without any state nothing is excused.
    assert validity([], killed, calls=calls) == INVALID


def test_states_may_be_missing_at_the_end_of_a_record_that_ends_early_if_no_response_has_an_epoch() -> (
    None
):
    """Clients of other projects show no leader epochs. Offset 1 has two records, and the states end before."""
    killed = replace(UNCLEAN, final_phase_complete=False, incomplete_reason="killed")
    calls = [append(op, op, at=10 + 10 * op) for op in (0, 1)]
    calls.append(append(2, 1, at=700))
    for count in (1, 2, 3):
        assert validity(UNCLEAN_ELECTION[:count], killed, calls=calls) == UNKNOWN
    # Near misses: the record shows what happened until the end.
    for whole in (replace(killed, ended_ns=900), UNCLEAN):
        assert validity(UNCLEAN_ELECTION[:2], whole, calls=calls) == INVALID
