"""What elections excuse if the offset of an append, or the logs of replicas, are not known."""

from dataclasses import replace
from typing import Any

import pytest

from checkers.kernels.compose import judge_run
from harness.contracts.verdict import Judgement, Validity
from tests.anomalies.runs import append, broker, fault, final_read, leads, read, replica, run, state
from tests.anomalies.runs_with_elections import (
    CONTEXT,
    EXCUSED,
    FIRST_TWO,
    FORBIDDEN,
    UNDECIDED,
    judged,
    judgements,
)

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
        ([{**FLAGGED, "leader_epoch": 1}], EXCUSED, Validity.VALID),
        # An election before it is not recorded.
        ([FLAGGED], UNDECIDED, Validity.UNKNOWN),
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


FLAGGED_AT_100 = [state(-20, 1, [1, 2], epoch=0), state(100, 3, [3], epoch=1, flagged=True)]


@pytest.mark.parametrize(
    ("invoked", "epoch", "judgement"),
    [
        (100, -1, EXCUSED),
        (101, -1, UNDECIDED),
        (10**6, -1, UNDECIDED),
        # Only the deposed leader can have responded in epoch 0, and only the new one in epoch 1.
        (10**6, 0, EXCUSED),
        (10**6, 1, FORBIDDEN),
    ],
)
def test_a_record_that_is_read_after_the_flagged_election_may_not_have_been_lost_by_it(
    invoked: int, epoch: int, judgement: Judgement
) -> None:
    """Op 1 is read again after the election at 100, and gone at the end."""
    shown = replace(read(5, invoked, 1, start=1), epoch=epoch)
    calls = [*FIRST_TWO, shown, *final_read(10, 0, at=2 * 10**6)]
    verdict = judged(calls, FLAGGED_AT_100)
    assert judgements(verdict, "lost-acked-write") == {judgement: 1}
    assert judgements(verdict, "visible-regress") == {judgement: 1}
    # The election that began after the read may have lost the record.
    later = state(10**6 + 10, 2, [2], epoch=2, flagged=True)
    verdict = judged(calls, [*FLAGGED_AT_100, later])
    assert judgements(verdict, "lost-acked-write") == {EXCUSED: 1}


@pytest.mark.parametrize(
    ("end", "judgement"),
    [(1, EXCUSED), (2, UNDECIDED)],
)
def test_logs_that_were_looked_at_show_that_the_read_after_the_election_was_of_an_older_log(
    end: int, judgement: Judgement
) -> None:
    """Broker 3 had one record, or two, when its log was looked at for the first time after its election."""
    looks = [
        leads(50, 1, 2, hw=2, epoch=0, cause="observed"),
        replica(50, 3, 1, hw=1, cause="observed"),
        leads(150, 3, end, hw=end, epoch=1, cause="observed"),
        leads(10**6 + 10, 3, 1, hw=1, epoch=1, cause="observed"),
    ]
    verdict = judged(
        [*FIRST_TWO, read(5, 10**6, 1, start=1), *final_read(10, 0, at=2 * 10**6)],
        FLAGGED_AT_100,
        replicas=looks,
    )
    assert judgements(verdict, "lost-acked-write") == {judgement: 1}


@pytest.mark.parametrize(
    ("read_at", "judgement"), [(150, UNDECIDED), (250, EXCUSED), (90, EXCUSED)]
)
def test_a_record_that_is_read_before_another_one_takes_its_offset_may_have_been_there_still(
    read_at: int, judgement: Judgement
) -> None:
    """Op 2 is acknowledged at 200, at the offset that op 1 had before the election at 100."""
    verdict = judged(
        [*FIRST_TWO, append(2, 1, at=200), read(5, read_at, 1, start=1), *final_read(10, 0)],
        FLAGGED_AT_100,
    )
    assert judgements(verdict, "offset-reused") == {judgement: 1}


@pytest.mark.parametrize(
    ("invoked", "judgement"),
    [(90, EXCUSED), (91, UNDECIDED), (110, UNDECIDED), (111, UNDECIDED)],
)
def test_a_read_near_the_flagged_election_may_have_begun_after_it_if_clocks_differ(
    invoked: int, judgement: Judgement
) -> None:
    calls = [*FIRST_TWO, read(5, invoked, 1, start=1), *final_read(10, 0)]
    tables = run(calls, states=FLAGGED_AT_100)
    verdict = judge_run(tables, replace(CONTEXT, clock_error_ns=10))
    assert judgements(verdict, "lost-acked-write") == {judgement: 1}


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


@pytest.mark.parametrize(
    ("error_ns", "flagged", "fault_name", "has_logs", "judgement"),
    [
        # Clients and controller alone: far more than 10 apart.
        (10, True, "", False, EXCUSED),
        (10, False, "", False, FORBIDDEN),
        # The clocks of brokers count too.
        (0, True, "", True, EXCUSED),
        (10, True, "", True, UNDECIDED),
        (10, False, "", True, FORBIDDEN),
        # So does that of a fault that may have destroyed what one replica had alone.
        (0, False, "power", False, FORBIDDEN),
        (10, False, "power", False, UNDECIDED),
        (10, False, "pause", False, FORBIDDEN),
    ],
)
def test_a_loss_is_undecided_if_clocks_of_brokers_or_faults_count_and_differ(
    error_ns: int, flagged: bool, fault_name: str, has_logs: bool, judgement: Judgement
) -> None:
    calls = [append(0, 0, at=1), append(1, 1, at=20), append(2, 1, at=300), *final_read(80, 0, 2)]
    states = [state(0, 1, [1, 2, 3], epoch=0), state(101, 3, [3], epoch=1, flagged=flagged)]
    logs = [
        leads(1, 1, 1, hw=0, epoch=0, cause="append"),
        replica(2, 3, 1, hw=0, epoch=0, cause="replicate"),
        leads(20, 1, 2, hw=2, epoch=0, cause="append"),
        leads(102, 3, 1, hw=1, epoch=1, cause="role"),
        leads(301, 3, 2, hw=2, epoch=1, cause="append"),
    ]
    faults = [fault(50, fault_name, ["b2"], healed=60)] if fault_name else []
    tables = run(calls, states=states, replicas=logs if has_logs else [], faults=faults)
    verdict = judge_run(tables, replace(CONTEXT, clock_error_ns=error_ns))
    assert judgements(verdict, "lost-acked-write") == {judgement: 1}
    assert judgements(verdict, "offset-reused") == {judgement: 1}


@pytest.mark.parametrize(
    ("error_ns", "killed_at", "judgement"),
    [(0, 40, EXCUSED), (0, 105, FORBIDDEN), (10, 105, UNDECIDED), (10, None, FORBIDDEN)],
)
def test_a_fault_may_have_been_before_the_flagged_election_that_it_justifies_if_clocks_differ(
    error_ns: int, killed_at: int | None, judgement: Judgement
) -> None:
    """With ELR, two brokers must have left by an unclean registration that a fault explains."""
    calls = [append(0, 0, at=1), append(1, 1, at=20), append(2, 1, at=300), *final_read(80, 0, 2)]
    states = [
        state(0, 1, [1, 2], epoch=0, min_isr=2),
        state(100, -1, [], epoch=1, min_isr=2),
        state(101, 3, [3], epoch=2, flagged=True, min_isr=2),
    ]
    registered = [broker(0, b, "registered", clean=True) for b in (1, 2, 3)]
    registered += [broker(100 + b, b, "registered") | {"at_ns": 100} for b in (1, 2)]
    faults = [fault(killed_at, "kill", ["b1", "b2"])] if killed_at else []
    tables = run(calls, states=states, brokers=registered, faults=faults)
    context = replace(CONTEXT, elr_on=True, unclean_election_enabled=False, clock_error_ns=error_ns)
    verdict = judge_run(tables, context)
    assert judgements(verdict, "lost-acked-write") == {judgement: 1}
