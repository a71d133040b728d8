"""What idempotent producers promise: the records of a session are in the log in order and without gaps."""

from dataclasses import replace
from typing import Any

import pytest

from checkers.kernels.compose import judge_run
from checkers.kernels.cut_partition import can_be_cut
from harness.contracts.run_context import LOG_CHECKERS, RunContext
from harness.contracts.verdict import Anomaly, Judgement, Validity
from tests.anomalies.runs import Call, broker, fault, final_read, read, replica, run, state

CONTEXT = RunContext(checkers=(*LOG_CHECKERS, "idempotent-producer"))
SESSION = 7
IDS = ("out-of-sequence", "producer-gap")


def sent(op: int, at: int, offset: int | None, *, until: int | None = None, **more: Any) -> Call:
    """Returns an append of the session; without an offset its outcome is unknown."""
    return Call(
        op=op,
        kind="append",
        process=more.pop("process", SESSION),
        inv=at,
        res=None if offset is None else (at + 1 if until is None else until),
        outcome="info" if offset is None else "ok",
        offset=offset,
        **more,
    )


def found(calls: list[Call], context: RunContext = CONTEXT, **tables: Any) -> list[Anomaly]:
    return [a for a in judge_run(run(calls, **tables), context).anomalies if a.id in IDS]


IN_FLIGHT = [sent(0, 1, 1, until=9), sent(1, 2, 0, until=9)]
GAP = [sent(0, 1, None), sent(1, 2, 0), *final_read(80, 1)]
"""The first record of the session is missing."""
GAP_AFTER_ONE = [sent(0, 1, 0), sent(1, 3, None), sent(2, 5, 1), *final_read(80, 0, 2)]


def last_polls(*values: int, epochs: tuple[int, ...]) -> list[Call]:
    """Returns final reads that return one record each."""
    polls = [
        replace(read(80 + n, 900 + 2 * n, value, start=n, final=True), epoch=epochs[n])
        for n, value in enumerate(values)
    ]
    return [*polls, final_read(89, *values)[-1]]


def gaps_by_elections(missing_at: int, acked_at: int, *args: Any, **tables: Any) -> list[Judgement]:
    """Judges two gaps: one at the begin of a session, one after a record that may be in another log only."""
    missing, later = sent(0, missing_at, None), sent(1, missing_at + 1, 0, until=acked_at)
    after = [sent(0, missing_at - 1, 0), replace(missing, op=1), replace(later, op=2, offset=1)]
    judgements = []
    for calls in (
        [missing, later, *final_read(80, 1)],
        [*after, *last_polls(0, 2, epochs=(-1, -1))],
    ):
        (anomaly,) = found(calls, *args, **tables)
        assert anomaly.id == "producer-gap"
        judgements.append(anomaly.judgement)
    return judgements


BY_ELECTIONS = {
    Judgement.EXCUSED: [Judgement.EXCUSED, Judgement.UNDECIDED],
    Judgement.UNDECIDED: [Judgement.UNDECIDED, Judgement.UNDECIDED],
    Judgement.FORBIDDEN: [Judgement.UNDECIDED, Judgement.FORBIDDEN],
}
"""What `gaps_by_elections` returns, by what the elections mean."""


def test_records_in_flight_together_keep_the_order_of_sending() -> None:
    (anomaly,) = found([*IN_FLIGHT, *final_read(80, 1, 0)])
    assert (anomaly.id, anomaly.judgement, anomaly.count) == (
        "out-of-sequence",
        Judgement.FORBIDDEN,
        1,
    )
    assert (
        "op 0 is at offset 1; op 1, which the same producer session sent later, is at offset 0"
        in (anomaly.sentence)
    )
    assert not found([*IN_FLIGHT, *final_read(80, 1, 0)], RunContext()), "without idempotence"


def test_a_record_of_unknown_outcome_has_its_place_in_the_order_too() -> None:
    late = [sent(0, 1, None), sent(1, 2, 0), read(5, 20, 1, 0), *final_read(80, 1, 0)]
    (anomaly,) = found(late)
    assert anomaly.id == "out-of-sequence"
    in_order = [sent(0, 1, None), sent(1, 2, 1), read(5, 20, 0, 1), *final_read(80, 0, 1)]
    assert not found(in_order)


def test_a_record_in_the_log_proves_that_what_was_sent_before_it_is_there() -> None:
    (anomaly,) = found(GAP_AFTER_ONE)
    assert (anomaly.id, anomaly.judgement, anomaly.count) == (
        "producer-gap",
        Judgement.FORBIDDEN,
        1,
    )
    assert [witness.op_index for witness in anomaly.witnesses] == [1, 2, 0]
    assert not found(GAP_AFTER_ONE, RunContext()), "without idempotence"


@pytest.mark.parametrize("is_elected", [False, True])
def test_a_leader_that_never_had_a_record_of_the_session_accepts_any_sequence_number(
    is_elected: bool,
) -> None:
    """Only a leader that an ordinary election deposed has op 0, or none has."""
    states = [state(0, 1, [1, 2], epoch=0), state(2, 2, [2], epoch=1)][: 1 + is_elected]
    for calls, judgement in (
        (GAP, Judgement.UNDECIDED),
        # What another session sent, or this one after the gap, does not help.
        ([sent(0, 1, 0, process=8), *GAP_AFTER_ONE[1:]], Judgement.UNDECIDED),
        ([*GAP[:2], sent(2, 5, 1), *final_read(80, 1, 2)], Judgement.UNDECIDED),
        (GAP_AFTER_ONE, Judgement.FORBIDDEN),
    ):
        (anomaly,) = found(calls, states=states)
        assert (anomaly.id, anomaly.judgement) == ("producer-gap", judgement)
        assert judge_run(run(calls, states=states), CONTEXT).validity == (
            Validity.INVALID if judgement == Judgement.FORBIDDEN else Validity.UNKNOWN
        )


def test_a_leader_whose_log_has_nothing_of_the_session_accepts_a_later_record() -> None:
    """Op 0 is at offset 0 of b1 alone, which is deposed; b2 is empty and gets op 1 at offset 0."""
    replicas = [
        replica(0, 1, 0, role="leader", cause="load"),
        replica(0, 2, 0, cause="load"),
        replica(2, 1, 1, role="leader"),
        replica(4, 2, 0, role="leader", epoch=1, cause="role"),
        replica(20, 2, 1, role="leader", epoch=1),
        replica(21, 2, 1, hw=1, role="leader", epoch=1, cause="high-watermark"),
    ]
    states = [state(0, 1, [1, 2], epoch=0), state(3, 2, [2], epoch=1)]
    calls = [sent(0, 1, None), sent(1, 19, 0, until=30), *final_read(80, 1)]
    verdict = judge_run(run(calls, states=states, replicas=replicas), CONTEXT)
    assert [(a.id, a.judgement) for a in verdict.anomalies] == [
        ("producer-gap", Judgement.UNDECIDED)
    ]


@pytest.mark.parametrize(
    ("at_1", "judgements"),
    [(0, [Judgement.FORBIDDEN, Judgement.EXCUSED]), (9, [Judgement.EXCUSED])],
)
def test_a_record_that_was_lost_does_not_hide_the_order_of_those_around_it(
    at_1: int, judgements: list[Judgement]
) -> None:
    """Op 1 is at offset 2 until a flagged election at 300. Then op 2 gets offset 0, and op 0 is at 1, or lost."""
    states = [state(-9, 1, [1], epoch=0), state(300, 2, [2], epoch=1, flagged=True)]
    calls = [sent(0, 1, 1, until=9), sent(1, 2, 2, until=9), sent(2, 3, 0, until=400)]
    other = Call(op=9, kind="append", process=8, inv=310, res=None, outcome="info")
    anomalies = found([*calls, other, *final_read(80, 2, at_1)], UNCLEAN, states=states)
    order = [(a.judgement, a.count) for a in anomalies if a.id == "out-of-sequence"]
    assert order == [(judgement, 1) for judgement in judgements]


@pytest.mark.parametrize("is_elected", [False, True])
def test_no_leader_accepts_an_older_record_after_a_later_one(is_elected: bool) -> None:
    """A leader that began with the later record knows the session, and so does every leader after it."""
    states = [state(0, 1, [1, 2], epoch=0), state(4, 2, [2], epoch=1)][: 1 + is_elected]
    (anomaly,) = found(
        [sent(0, 1, 1, until=9), sent(1, 2, 0), *final_read(80, 1, 0)], states=states
    )
    assert (anomaly.id, anomaly.judgement) == ("out-of-sequence", Judgement.FORBIDDEN)


@pytest.mark.parametrize(
    "calls",
    [
        [sent(0, 1, 0), sent(1, 2, None), *final_read(80, 0)],  # nothing was sent after it
        [sent(0, 1, None, process=8), sent(1, 2, 0), *final_read(80, 1)],  # another session
        [sent(0, 1, None, acks=0), sent(1, 2, 0), *final_read(80, 1)],  # not idempotent
        [sent(0, 1, None), sent(1, 2, 0), read(80, 900, 1, final=True)],  # incomplete final reads
        [sent(0, 1, None), sent(1, 2, None), *final_read(80)],  # none is in the log
        [sent(0, 1, None), sent(1, 2, 1), *final_read(80, 0, 1)],  # it is there
        [
            Call(op=0, kind="append", process=SESSION, inv=1, res=2, outcome="fail"),
            sent(1, 3, 0),
            *final_read(80, 1),
        ],  # it was never sent
    ],
)
def test_nothing_else_is_a_gap(calls: list[Call]) -> None:
    assert not found(calls)


def test_a_record_that_was_read_proves_it_without_an_acknowledgement() -> None:
    other = Call(op=9, kind="append", process=8, inv=50, res=51, offset=1)
    calls = [sent(0, 1, 0), sent(1, 3, None), sent(2, 5, None), replace(other, offset=2)]
    (anomaly,) = found([*calls, *final_read(80, 0, 2, 9)])
    assert (anomaly.id, anomaly.judgement) == ("producer-gap", Judgement.FORBIDDEN)


def test_every_missing_record_counts() -> None:
    calls = [sent(op, 1 + op, None) for op in range(3)]
    (anomaly,) = found([*calls, sent(3, 9, 0), sent(4, 11, 1), *final_read(80, 3, 4)])
    assert anomaly.count == 3


@pytest.mark.parametrize(
    ("at_ns", "flagged", "judgement"),
    [
        (2, True, Judgement.EXCUSED),
        (2, False, Judgement.UNDECIDED),
        (50, True, Judgement.UNDECIDED),
    ],
)
def test_a_flagged_election_meanwhile_excuses_a_gap(
    at_ns: int, flagged: bool, judgement: Judgement
) -> None:
    context = RunContext(checkers=CONTEXT.checkers, elr_on=False, unclean_election_enabled=True)
    states = [state(0, 1, [1], epoch=0), state(at_ns, 2, [2], epoch=1, flagged=flagged)]
    (anomaly,) = found(GAP, context, states=states)
    assert anomaly.judgement == judgement


UNANSWERED = [sent(0, 1, None), sent(1, 2, None)]
SEEN_AT_0 = [*UNANSWERED, read(5, 20, 1), *final_read(80, 1)]
OF_OTHER = Call(op=9, kind="append", process=8, inv=3, res=4, offset=0)
SEEN_AT_1 = [*UNANSWERED, OF_OTHER, read(5, 20, 9, 1), *final_read(80, 9, 1)]
TWISTED = [sent(0, 1, 1, until=500), sent(1, 2, None), read(5, 20, 1), *final_read(80, 1)]


@pytest.mark.parametrize(
    ("calls", "at_ns", "judgement"),
    [
        # Nothing precedes offset 0, so the gap was there when the read at 20 returned.
        (SEEN_AT_0, 50, Judgement.UNDECIDED),
        (SEEN_AT_0, 21, Judgement.EXCUSED),
        (SEEN_AT_0, 22, Judgement.UNDECIDED),
        # Both may have been there; op 1 was then sent again to the leader that was elected.
        (SEEN_AT_1, 50, Judgement.EXCUSED),
        # The final reads returned at 901.
        (SEEN_AT_1, 901, Judgement.EXCUSED),
        (SEEN_AT_1, 902, Judgement.UNDECIDED),
        (TWISTED, 50, Judgement.EXCUSED),
        (TWISTED, 902, Judgement.FORBIDDEN),
    ],
)
def test_an_election_after_all_that_is_known_of_a_record_without_a_response_excuses_nothing(
    calls: list[Call], at_ns: int, judgement: Judgement
) -> None:
    context = RunContext(checkers=CONTEXT.checkers, elr_on=False, unclean_election_enabled=True)
    states = [state(0, 1, [1], epoch=0), state(at_ns, 2, [2], epoch=1, flagged=True)]
    (anomaly,) = found(calls, context, states=states)
    assert anomaly.judgement == judgement


def test_what_was_sent_last_is_known_when_the_response_to_the_first_one_arrived() -> None:
    context = RunContext(checkers=CONTEXT.checkers, elr_on=False, unclean_election_enabled=True)
    late = [sent(0, 1, 1, until=990), *TWISTED[1:]]
    for at_ns, judgement in ((990, Judgement.EXCUSED), (991, Judgement.FORBIDDEN)):
        states = [state(0, 1, [1], epoch=0), state(at_ns, 2, [2], epoch=1, flagged=True)]
        (anomaly,) = found(late, context, states=states)
        assert (anomaly.id, anomaly.judgement) == ("out-of-sequence", judgement)


@pytest.mark.parametrize("is_above", [False, True])
def test_a_record_below_the_log_start_is_no_gap(is_above: bool) -> None:
    """Op 0 may have been deleted, unless a record that was sent before it is still there."""
    context = RunContext(checkers=CONTEXT.checkers, log_start_offset=6)
    before = sent(0, 1, 6 if is_above else 5)
    offset = 7 if is_above else 6
    values = (0, 2) if is_above else (2,)
    calls = [
        before,
        sent(1, 3, None),
        sent(2, 5, offset),
        read(80, 900, *values, start=6, final=True),
    ]
    calls.append(replace(final_read(81, *range(8))[-1], op=82, offset=offset + 1))
    assert [a.id for a in found(calls, context)] == (["producer-gap"] if is_above else [])


@pytest.mark.parametrize(
    ("clean", "judgement"),
    [
        (False, Judgement.EXCUSED),
        (None, Judgement.UNDECIDED),
        (True, Judgement.FORBIDDEN),
    ],
)
def test_a_gap_is_undecided_if_a_registration_decides_that_may_have_been_clean(
    clean: bool | None, judgement: Judgement
) -> None:
    alone = {"replicas": [1], "min_isr": 1}
    states = [
        state(-5, 1, [1], epoch=0, **alone),
        state(-4, -1, [], epoch=1, elr=[1], **alone),
        state(0, -1, [], epoch=1, **alone),
        state(2, 1, [1], epoch=2, flagged=True, **alone),
    ]
    context = RunContext(checkers=CONTEXT.checkers, min_isr=1, replication_factor=1)
    judged = gaps_by_elections(
        1,
        3,
        context,
        states=[{**each, "metadata_offset": number} for number, each in enumerate(states)],
        brokers=[broker(0, 1, "registered", clean=clean)],
        faults=[fault(-3, "power", ["b1"])],
    )
    assert judged == BY_ELECTIONS[judgement]


def test_a_run_with_sessions_is_not_judged_in_buckets() -> None:
    assert can_be_cut(RunContext())
    assert not can_be_cut(CONTEXT)


REPLACED = [
    sent(0, 1, 0, acks=1, process=1),
    sent(1, 3, 0, until=60),
    sent(2, 5, 2, acks=1, process=2),
    Call(op=3, kind="latest", process=3, inv=10, res=11, offset=3),
    *final_read(80, 1),
]
"""Op 1 was at offset 1 of a log that was replaced, and then sent again."""
HOLES = ("unfilled-hole", "hole-before-append")


def holes(calls: list[Call], context: RunContext) -> list[tuple[str, Judgement]]:
    judged = judge_run(run(calls), context).anomalies
    return [(a.id, a.judgement) for a in judged if a.id in HOLES]


def test_an_append_that_was_sent_again_may_have_had_another_offset_before() -> None:
    assert holes(REPLACED, RunContext()) == [("unfilled-hole", Judgement.FORBIDDEN)]
    assert not holes(REPLACED, CONTEXT)
    # In the log that remained, a place without a record is still none of its own.
    ids = {
        a.id
        for a in judge_run(
            run([sent(0, 1, 0), sent(1, 3, 2), read(2, 20, 0), read(3, 30, 1, start=2)]), CONTEXT
        ).anomalies
    }
    assert not ids & set(HOLES)


def test_a_record_that_an_election_lost_excuses_the_order_of_the_next_one() -> None:
    context = RunContext(checkers=CONTEXT.checkers, elr_on=False, unclean_election_enabled=True)
    calls = [sent(0, 1, 1), sent(1, 20, 0), *final_read(80, 1)]
    for at_ns, flagged, judgement in (
        (10, True, Judgement.EXCUSED),
        (10, False, Judgement.FORBIDDEN),
        (50, True, Judgement.FORBIDDEN),
    ):
        states = [state(0, 1, [1], epoch=0), state(at_ns, 2, [2], epoch=1, flagged=flagged)]
        (anomaly,) = found(calls, context, states=states)
        assert (anomaly.id, anomaly.judgement) == ("out-of-sequence", judgement)


@pytest.mark.parametrize(
    ("offset", "final", "elected_at", "judgement"),
    [
        (0, (3,), 37, Judgement.EXCUSED),
        (0, (3,), 14, Judgement.EXCUSED),
        (0, (3,), 13, Judgement.UNDECIDED),
        (1, (0, 3), 37, Judgement.FORBIDDEN),
        # The leader that accepted op 3 had op 0 in its log.
        (1, (0, 3), 51, Judgement.FORBIDDEN),
        (1, (9, 3), 51, Judgement.EXCUSED),
    ],
)
def test_a_leader_that_lost_all_of_a_session_knows_nothing_of_it_until_it_has_a_new_record(
    offset: int, final: tuple[int, ...], elected_at: int, judgement: Judgement
) -> None:
    """Op 0 is acknowledged at 15 and is lost, or stays. Op 2 is sent at 51 and is not in the log, op 3 is."""
    context = RunContext(checkers=CONTEXT.checkers, elr_on=False, unclean_election_enabled=True)
    other = Call(op=9, kind="append", process=8, inv=55, res=57, offset=0)
    calls = [sent(0, 14, 0), sent(2, 51, None), sent(3, 60, offset), *final_read(80, *final)]
    calls += [other] if 9 in final else []
    states = [state(0, 1, [1], epoch=0), state(elected_at, 2, [2], epoch=1, flagged=True)]
    gaps = [a for a in found(calls, context, states=states) if a.id == "producer-gap"]
    assert [(a.judgement, a.count) for a in gaps] == [(judgement, 1)]


@pytest.mark.parametrize(
    ("at_ns", "judgement"),
    [
        (6, Judgement.FORBIDDEN),
        (7, Judgement.UNDECIDED),
        (12, Judgement.UNDECIDED),
        (13, Judgement.EXCUSED),
        (20, Judgement.EXCUSED),
        (21, Judgement.UNDECIDED),
    ],
)
def test_a_gap_near_an_election_is_undecided_if_clocks_differ(
    at_ns: int, judgement: Judgement
) -> None:
    """The missing record is sent at 10, the later one acknowledged at 23; clocks differ by at most 3."""
    context = replace(CONTEXT, elr_on=False, unclean_election_enabled=True, clock_error_ns=3)
    states = [state(-9, 1, [1], epoch=0), state(at_ns, 2, [2], epoch=1, flagged=True)]
    assert gaps_by_elections(10, 23, context, states=states) == BY_ELECTIONS[judgement]


UNCLEAN = RunContext(checkers=CONTEXT.checkers, elr_on=False, unclean_election_enabled=True)
FLAGGED = [state(0, 1, [1, 2], epoch=0), state(20, 3, [3], epoch=1, flagged=True)]
AFTER_A_KNOWN_ONE = [sent(0, 1, 0), sent(1, 10, None), sent(2, 30, 1)]
SWAPPED = [sent(0, 10, None), sent(1, 11, 0, until=41)]


@pytest.mark.parametrize(("calls", "values"), [(AFTER_A_KNOWN_ONE, (0, 2)), (SWAPPED, (1, 0))])
def test_a_leader_knows_what_is_in_its_log_whatever_was_elected_before(
    calls: list[Call], values: tuple[int, ...]
) -> None:
    """The election at 20 explains nothing if one log had both records."""
    for last, judgement in (
        (final_read(80, *values), Judgement.FORBIDDEN),
        (last_polls(*values, epochs=(1, 1)), Judgement.FORBIDDEN),
        # Another leader may have been elected between the polls, or the first one may have been deposed.
        (last_polls(*values, epochs=(0, 1)), Judgement.UNDECIDED),
        (last_polls(*values, epochs=(-1, -1)), Judgement.UNDECIDED),
    ):
        (anomaly,) = found([*calls, *last], UNCLEAN, states=FLAGGED)
        assert anomaly.judgement == judgement


def test_a_leader_that_has_no_record_of_the_session_from_before_the_gap_knows_nothing() -> None:
    other = Call(op=9, kind="append", process=8, inv=22, res=23, offset=0)
    # What is below op 2 is of another session, of the same one without a sequence number, or was sent later.
    for below in (
        other,
        replace(other, process=SESSION, acks=1, op=0, inv=1, res=2),
        replace(other, process=SESSION, inv=40, res=41),
    ):
        calls = [below, sent(1, 10, None), sent(2, 30, 1), *final_read(80, below.op, 2)]
        gaps = [a for a in found(calls, UNCLEAN, states=FLAGGED) if a.id == "producer-gap"]
        assert [a.judgement for a in gaps] == [Judgement.EXCUSED]
    above = [sent(0, 1, None), *AFTER_A_KNOWN_ONE[1:2], sent(2, 30, 0), *final_read(80, 2, 0)]
    gaps = [a for a in found(above, UNCLEAN, states=FLAGGED) if a.id == "producer-gap"]
    assert [a.judgement for a in gaps] == [Judgement.EXCUSED]


LONE = RunContext(checkers=CONTEXT.checkers, elr_on=False, min_isr=1)
EMPTIED = [sent(0, 10, None), sent(1, 11, 0, until=41), *final_read(80, 1)]


def lone_states(isr: list[int], since: int) -> list[dict[str, Any]]:
    rows = [
        state(-9, 1, isr, epoch=0),
        state(since, 1, [1], epoch=0),
        state(25, -1, [1], epoch=1),
        state(30, 1, [1], epoch=2),
    ]
    return [{**row, "metadata_offset": n, "min_isr": 1} for n, row in enumerate(rows)]


@pytest.mark.parametrize(
    ("alone_since", "wipe", "judgement"),
    [
        (0, {"at": 20, "healed": 22}, Judgement.EXCUSED),
        (10, {"at": 20, "healed": 22}, Judgement.EXCUSED),
        # Op 0 may have been sent to a leader that another replica had copied from.
        (11, {"at": 20, "healed": 22}, Judgement.UNDECIDED),
        (0, {"at": 9, "healed": 10}, Judgement.EXCUSED),
        (0, {"at": 8, "healed": 9}, Judgement.FORBIDDEN),
        # It led on after that, in the same epoch.
        (0, {"at": 31, "healed": 32}, Judgement.EXCUSED),
        (0, {"at": 20, "healed": 22, "took_effect": False}, Judgement.FORBIDDEN),
        (0, {"at": 20, "healed": 22, "took_effect": False, "failed": True}, Judgement.UNDECIDED),
    ],
)
def test_a_fault_that_destroyed_the_only_replica_excuses_a_gap(
    alone_since: int, wipe: dict[str, Any], judgement: Judgement
) -> None:
    """The record is sent at 10, b1 is emptied and elected again at 30, the later one is acknowledged at 41."""
    failed = {"failed": wipe.get("failed", False), "took_effect": wipe.get("took_effect", True)}
    faults = [{**fault(wipe["at"], "wipe", ["b1"], healed=wipe["healed"]), **failed}]
    states = lone_states([1, 2], alone_since)
    judged = gaps_by_elections(10, 41, LONE, states=states, faults=faults)
    assert judged == BY_ELECTIONS[judgement]
    # Another replica had what was sent, so the election broke a promise.
    (anomaly,) = found(EMPTIED, LONE, states=lone_states([1, 2], 25), faults=faults)
    assert anomaly.judgement != Judgement.EXCUSED


def test_a_gap_near_a_destroyed_replica_is_undecided_if_clocks_differ() -> None:
    faults = [fault(20, "wipe", ["b1"], healed=22)]
    for alone_since, error, judgement in (
        (7, 3, Judgement.EXCUSED),
        (8, 3, Judgement.UNDECIDED),
        (0, 11, Judgement.EXCUSED),
        (0, 12, Judgement.UNDECIDED),
    ):
        context = replace(LONE, clock_error_ns=error)
        states = lone_states([1, 2], alone_since)
        if error > 3:
            states[1]["at_ns"] = -8
        judged = gaps_by_elections(10, 41, context, states=states, faults=faults)
        assert judged == BY_ELECTIONS[judgement], (alone_since, error)
