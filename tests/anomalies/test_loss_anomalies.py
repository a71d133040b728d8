"""Lost records: what is gone, how that is known, and which elections excuse it."""

import json
from dataclasses import replace
from typing import Any

import pytest

from checkers.kernels.compose import judge_partition, judge_run
from checkers.kernels.verdict_json import (
    judgement_from_json,
    judgement_to_json,
    verdict_from_json,
    verdict_to_json,
)
from harness.contracts.run_context import RunContext
from harness.contracts.verdict import Anomaly, Judgement, Validity, Verdict
from nemesis.driver import cut_short
from tests.anomalies.runs import (
    Call,
    append,
    broker,
    fault,
    final_read,
    heard,
    last_replica_standing,
    leads,
    read,
    replica,
    run,
    state,
    table,
)

PLAIN = RunContext(profile="kafka-4.1")
ELR_OFF = RunContext(profile="kafka-4.0", elr_on=False)


def found(verdict: Verdict) -> dict[str, Judgement]:
    return {anomaly.id: anomaly.judgement for anomaly in verdict.anomalies}


def one(verdict: Verdict, identifier: str) -> Anomaly:
    (anomaly,) = [a for a in verdict.anomalies if a.id == identifier]
    return anomaly


# --- the bug itself ---


def test_last_replica_standing_without_elr_loses_five_records_without_an_excuse() -> None:
    verdict = judge_run(last_replica_standing(elr=False), ELR_OFF)
    assert verdict.validity == Validity.INVALID
    assert verdict.unexcused_lost_records == 5
    assert verdict.excused_lost_records == 0
    loss = one(verdict, "lost-acked-write")
    assert loss.details["offsets"] == loss.details["values"] == [5, 6, 7, 8, 9]
    assert loss.details["election"]["leader"] == 1
    assert loss.details["election"]["log_end_offset"] == 5
    assert "broker 1 was elected with log end 5, not flagged" in loss.sentence
    assert "last-replica-standing" in loss.rule
    everything = found(verdict)
    for identifier in ("offset-reused", "visible-regress", "two-acks-one-offset"):
        assert everything[identifier] == Judgement.FORBIDDEN


def test_last_replica_standing_with_elr_loses_nothing() -> None:
    verdict = judge_run(last_replica_standing(elr=True), PLAIN)
    assert verdict.validity == Validity.VALID
    assert not verdict.anomalies
    assert verdict.coverage["acked_in_final_reads"] == 15


# --- what is gone, and how that is known ---


def test_an_acked_record_that_the_final_reads_skipped_is_lost() -> None:
    calls = [append(0, 0, at=1), append(1, 1, at=3), append(2, 1, at=5)]
    verdict = judge_run(run([*calls, *final_read(10, 0, 2)]), PLAIN)
    assert one(verdict, "lost-acked-write").details["values"] == [1]
    assert one(verdict, "lost-acked-write").witnesses[0].op_index == 1


def test_an_acked_record_beyond_the_settled_end_is_lost() -> None:
    verdict = judge_run(run([append(0, 0, at=1), append(1, 1, at=3), *final_read(10, 0)]), PLAIN)
    assert one(verdict, "lost-acked-write").details["offsets"] == [1]
    assert (
        "the settled log ends at or below that offset" in one(verdict, "lost-acked-write").sentence
    )


def test_everything_is_lost_when_the_final_log_is_empty() -> None:
    verdict = judge_run(run([append(0, 0, at=1), append(1, 1, at=3), *final_read(10)]), PLAIN)
    assert verdict.unexcused_lost_records == 2


def test_a_record_the_final_reads_did_not_reach_is_unseen_and_the_verdict_unknown() -> None:
    calls = [append(0, 0, at=1), append(1, 1, at=3), read(10, 900, 0, final=True)]
    verdict = judge_run(run(calls), PLAIN)
    assert found(verdict) == {"unseen": Judgement.INFORMATIONAL}
    assert verdict.validity == Validity.UNKNOWN


def test_final_reads_must_cover_the_log_from_its_start() -> None:
    calls = [append(0, 0, at=1), append(1, 1, at=3), read(10, 900, 1, start=1, end=2, final=True)]
    verdict = judge_run(run(calls), PLAIN)
    assert verdict.validity == Validity.UNKNOWN
    assert one(verdict, "unseen").details["values"] == [0]
    assert judge_run(run([*calls, read(11, 910, 0, end=2, final=True)]), PLAIN).validity == "valid"


def test_several_partial_final_reads_count_as_one() -> None:
    calls = [append(i, i, at=1 + 2 * i) for i in range(6)]
    pieces = [
        read(20, 900, 4, 5, start=4, end=6, final=True),
        read(21, 910, 0, 1, 2, end=6, final=True),
        read(22, 920, 2, 3, start=2, end=6, final=True),
    ]
    assert judge_run(run(calls + pieces), PLAIN).validity == Validity.VALID
    assert judge_run(run(calls + pieces[:2]), PLAIN).validity == Validity.UNKNOWN


def test_a_tail_that_the_leader_holds_but_may_not_serve_is_unseen() -> None:
    calls = [append(0, 0, at=1), append(1, 1, at=3), *final_read(10, 0)]
    leader = [replica(5, 1, 2, hw=1, role="leader")]
    verdict = judge_run(run(calls, replicas=leader), PLAIN)
    assert found(verdict) == {
        "unseen": Judgement.INFORMATIONAL,
        "stale-end": Judgement.INFORMATIONAL,
    }
    shorter = [*leader, replica(6, 2, 1, hw=1, epoch=1, role="leader")]
    verdict = judge_run(run(calls, replicas=shorter), PLAIN)
    assert verdict.unexcused_lost_records == 1


def test_a_reused_offset_shows_a_loss_without_any_final_read() -> None:
    calls = [append(0, 0, at=1), append(1, 0, at=5)]
    verdict = judge_run(run(calls), PLAIN)
    assert verdict.validity == Validity.INVALID
    assert one(verdict, "lost-acked-write").details["values"] == [0]
    assert one(verdict, "offset-reused").witnesses[1].op_index == 1


def test_of_two_records_acked_at_one_offset_the_one_in_the_final_log_survives() -> None:
    calls = [append(0, 0, at=1), append(1, 0, at=5), *final_read(10, 0)]
    assert one(judge_run(run(calls), PLAIN), "lost-acked-write").details["values"] == [1]


def test_a_read_record_that_is_gone_is_a_visible_regress_even_without_an_ack() -> None:
    """V5 without the gate: the producer got an error, a consumer read the record, then it vanished."""
    calls = [append(0, 0, at=1), append(1, None, at=3, outcome="info"), read(2, 8, 0, 1)]
    verdict = judge_run(run([*calls, *final_read(10, 0)]), ELR_OFF)
    assert found(verdict) == {
        "visible-regress": Judgement.FORBIDDEN,
        "end-regression": Judgement.INFORMATIONAL,
    }
    near_miss = [*calls[:2], read(2, 8, 0), *final_read(10, 0)]
    assert judge_run(run(near_miss), ELR_OFF).validity == Validity.VALID


# --- acks=1 ---


def test_losing_an_unread_acks_1_record_and_its_consequences_is_allowed() -> None:
    calls = [append(0, 0, at=1), append(1, 1, at=3, acks=1), append(2, 1, at=7)]
    verdict = judge_run(run([*calls, *final_read(10, 0, 2)]), PLAIN)
    assert found(verdict) == {
        identifier: Judgement.ALLOWED
        for identifier in (
            "lost-acked-write-acks1",
            "offset-reused",
            "two-acks-one-offset",
            "order-inversion",
        )
    }
    assert verdict.validity == Validity.VALID


def test_losing_an_acks_1_record_that_was_read_is_not_allowed() -> None:
    calls = [append(0, 0, at=1), append(1, 1, at=3, acks=1), read(4, 5, 0, 1), append(2, 1, at=7)]
    verdict = judge_run(run([*calls, *final_read(10, 0, 2)]), PLAIN)
    assert found(verdict)["visible-regress"] == Judgement.FORBIDDEN
    assert found(verdict)["lost-acked-write-acks1"] == Judgement.ALLOWED
    assert verdict.unexcused_lost_records == 0


def test_a_zombies_acks_1_records_do_not_make_an_acks_all_record_look_lost() -> None:
    """The new leader's record is acknowledged first; the old leader then acknowledges one at the same offset."""
    calls = [append(0, 0, at=1), append(1, 0, at=5, acks=1)]
    verdict = judge_run(run(calls), PLAIN)
    assert verdict.unexcused_lost_records == 0
    assert found(verdict)["two-acks-one-offset"] == Judgement.ALLOWED
    assert found(verdict)["unseen"] == Judgement.INFORMATIONAL


# --- excuses ---

LOST_TAIL = [append(0, 0, at=1), append(1, 1, at=3), *final_read(10, 0)]
"""Op 1 at offset 1 is gone."""

LOGS = [
    replica(1, 1, 1, hw=0, role="leader", cause="append"),
    replica(3, 1, 2, hw=1, role="leader", cause="append"),
    replica(4, 1, 2, hw=2, role="leader", cause="high-watermark"),
    replica(100, 1, 1, hw=1, cause="load"),
]

ONE_BROKER = {"replicas": [1], "min_isr": 1}


def flagged_run(*, flagged: bool, **more: object) -> Verdict:
    tables = run(
        LOST_TAIL,
        states=[
            state(1, 1, [1], epoch=0, **ONE_BROKER),
            state(50, -1, [], epoch=1, elr=[1], **ONE_BROKER),
            state(101, -1, [], epoch=1, **ONE_BROKER),
            state(150, 1, [1], epoch=2, flagged=flagged, **ONE_BROKER),
        ],
        replicas=more.get("replicas", LOGS),  # type: ignore[arg-type]
        brokers=more.get(  # type: ignore[arg-type]
            "brokers", [broker(0, 1, "registered"), broker(101, 1, "registered")]
        ),
        faults=more.get("faults", [fault(40, "power", ["b1"])]),  # type: ignore[arg-type]
    )
    return judge_run(tables, RunContext(min_isr=1, replication_factor=1, acked_during_faults_min=0))


def test_a_flagged_election_of_a_replica_without_the_record_excuses_its_loss() -> None:
    verdict = flagged_run(flagged=True)
    assert verdict.validity == Validity.VALID
    assert verdict.excused_lost_records == 1
    assert one(verdict, "lost-acked-write").judgement == Judgement.EXCUSED


def test_an_unflagged_election_excuses_nothing() -> None:
    verdict = flagged_run(flagged=False)
    assert verdict.unexcused_lost_records == 1
    assert "not flagged" in one(verdict, "lost-acked-write").sentence


def test_a_flagged_election_that_no_injected_fault_explains_excuses_nothing() -> None:
    verdict = flagged_run(flagged=True, faults=[fault(40, "pause", ["b1"])])
    assert verdict.unexcused_lost_records == 1
    assert "only 0 of at least 1 brokers" in one(verdict, "lost-acked-write").sentence


ONCE_ORDERLY = [broker(0, 1, "registered", clean=True), broker(101, 1, "registered")]


def stopped(end: object) -> dict[str, object]:
    return fault(40, "stop", ["b1"], cut_short=cut_short({"ended": {"b1": end}}))


@pytest.mark.parametrize(
    "explains",
    [
        *(fault(40, name, ["b1"]) for name in ("kill", "oom", "wipe", "bit_flip", "read_only")),
        # A disk that was broken when the node was last known to be well may still end it.
        *(fault(-20, name, ["b1"]) for name in ("io_error", "disk_full", "stuck_disk")),
        fault(-20, "io_error", ["b1"], healed=30),
        stopped("stop-timeout"),
        stopped({"in_time": False}),
    ],
)
def test_any_fault_that_ends_a_broker_ungracefully_explains_an_unclean_registration(
    explains: dict[str, object],
) -> None:
    verdict = flagged_run(flagged=True, faults=[explains], brokers=ONCE_ORDERLY)
    assert verdict.excused_lost_records == 1


@pytest.mark.parametrize(
    "explains",
    [
        *(fault(40, name, ["b1"]) for name in ("slow_disk", "clock_step", "slow_cpu", "delay")),
        *(fault(40, name, ["b2"]) for name in ("wipe", "io_error")),  # another broker
        fault(-20, "io_error", ["b1"], healed=-10),  # healed before the clean start of the node
        fault(-20, "kill", ["b1"]),
        fault(102, "io_error", ["b1"]),  # only after it had registered
        stopped("stopped"),
        stopped({"in_time": True}),
        {**fault(40, "stop", ["b1"]), "evidence": "[]"},
    ],
)
def test_a_fault_that_does_not_end_the_broker_explains_no_unclean_registration(
    explains: dict[str, object],
) -> None:
    verdict = flagged_run(flagged=True, faults=[explains], brokers=ONCE_ORDERLY)
    assert verdict.unexcused_lost_records == 1


@pytest.mark.parametrize("replicas", [LOGS, []])
@pytest.mark.parametrize(
    ("before", "last", "cause", "judgement"),
    [
        ([], False, "power", Judgement.EXCUSED),
        ([], None, "power", Judgement.UNDECIDED),
        ([], True, "power", Judgement.FORBIDDEN),
        ([], None, "pause", Judgement.FORBIDDEN),  # whatever the registration was
        # After a clean start in between, the fault no longer explains an unclean end.
        ([broker(60, 1, "registered", clean=False)], False, "power", Judgement.EXCUSED),
        ([broker(60, 1, "registered", clean=None)], False, "power", Judgement.UNDECIDED),
        ([broker(60, 1, "registered", clean=True)], False, "power", Judgement.FORBIDDEN),
    ],
)
def test_a_registration_that_may_have_been_clean_leaves_the_loss_undecided(
    before: list[dict[str, Any]],
    last: bool | None,
    cause: str,
    judgement: Judgement,
    replicas: list[dict[str, Any]],
) -> None:
    first = broker(0, 1, "registered", clean=None)
    verdict = flagged_run(
        flagged=True,
        brokers=[first, *before, broker(101, 1, "registered", clean=last)],
        faults=[fault(40, cause, ["b1"])],
        replicas=replicas,
    )
    loss = one(verdict, "lost-acked-write")
    assert loss.judgement == judgement
    expected = {
        Judgement.EXCUSED: Validity.VALID,
        Judgement.UNDECIDED: Validity.UNKNOWN,
        Judgement.FORBIDDEN: Validity.INVALID,
    }
    assert verdict.validity == expected[judgement]
    is_undecided = judgement == Judgement.UNDECIDED
    assert ("0 to 1 of at least 1 brokers" in loss.sentence) == is_undecided
    assert any("does not report which" in reason for reason in verdict.reasons) == is_undecided


@pytest.mark.parametrize(
    ("elected_end", "elected_at", "judgement"),
    [
        (1, 150, Judgement.EXCUSED),
        (2, 150, Judgement.FORBIDDEN),  # it had the record
        (1, 2, Judgement.FORBIDDEN),  # elected before the record was acknowledged
    ],
)
def test_the_flagged_election_must_come_later_and_choose_a_replica_that_lacks_the_record(
    elected_end: int, elected_at: int, judgement: Judgement
) -> None:
    states = [state(1, 1, [1, 2], epoch=0), state(elected_at, 2, [2], epoch=1, flagged=True)]
    # Whatever broker 2 had when it was elected, it does not have the record at the end.
    rows = [
        *LOGS[:3],
        replica(2, 2, elected_end),
        role(elected_at, 2, elected_end, epoch=1),
        replica(500, 2, 1, epoch=1, cause="load"),
    ]
    tables = run(LOST_TAIL, states=states, replicas=heard(rows, states))
    verdict = judge_run(tables, RunContext(unclean_election_enabled=True))
    assert one(verdict, "lost-acked-write").judgement == judgement


def role(at: int, broker_id: int, end: int, *, epoch: int) -> dict[str, Any]:
    """Returns the row of a broker that begins to lead."""
    return replica(at, broker_id, end, epoch=epoch, role="leader", cause="role")


def test_a_later_flagged_election_does_not_excuse_what_an_unflagged_one_lost() -> None:
    tables = run(
        LOST_TAIL,
        states=[
            state(1, 1, [1, 2], epoch=0),
            state(100, 2, [2], epoch=1),
            state(200, 1, [1], epoch=2, flagged=True),
        ],
        replicas=[
            *LOGS[:3],
            replica(2, 2, 1),
            role(101, 2, 1, epoch=1),
            replica(150, 1, 1, cause="truncate"),
            role(201, 1, 1, epoch=2),
        ],
    )
    verdict = judge_run(tables, RunContext(elr_on=False, unclean_election_enabled=True))
    loss = one(verdict, "lost-acked-write")
    assert loss.judgement == Judgement.FORBIDDEN
    assert loss.details["election"]["leader"] == 2


@pytest.mark.parametrize(
    ("kept", "judgement"),
    [
        # Broker 1 leads again with its log untouched: the record is back, and lost only when broker 3 is elected.
        ([], Judgement.EXCUSED),
        # Broker 1 was cut and filled again meanwhile: its log is as long as before and holds another record.
        (
            [
                replica(110, 1, 1, hw=1, epoch=1, cause="truncate"),
                leads(115, 2, 2, hw=1, epoch=1),
                replica(120, 1, 2, hw=1, epoch=1, cause="replicate"),
            ],
            Judgement.FORBIDDEN,
        ),
    ],
)
def test_a_record_that_its_last_holder_restores_is_lost_by_the_next_election_without_it(
    kept: list[dict[str, object]], judgement: Judgement
) -> None:
    states = [
        state(1, 1, [1, 2], epoch=0),
        state(100, 2, [2], epoch=1),
        state(200, 1, [1], epoch=2),
        state(300, 3, [3], epoch=3, flagged=True),
    ]
    rows = [
        *LOGS[:3],
        replica(2, 2, 1),
        replica(2, 3, 1),
        role(101, 2, 1, epoch=1),
        *kept,
        role(201, 1, 2, epoch=2),
        role(301, 3, 1, epoch=3),
    ]
    tables = run(LOST_TAIL, states=states, replicas=heard(rows, states))
    verdict = judge_run(tables, RunContext(elr_on=False, unclean_election_enabled=True))
    assert one(verdict, "lost-acked-write").judgement == judgement


def test_a_log_that_is_long_enough_but_older_does_not_hold_the_record() -> None:
    """Broker 2 has its own uncommitted record of epoch 0 at offset 1; the lost one was written in epoch 5."""
    own = append(77, None, at=2, outcome="info")
    calls = [append(0, 0, at=1), append(1, 1, at=20), own, *final_read(10, 0, 77)]
    tables = run(
        calls,
        states=[
            state(1, 2, [2], epoch=0),
            state(10, 1, [1], epoch=5),
            state(100, 2, [2], epoch=6, flagged=True),
        ],
        replicas=[
            replica(2, 2, 1, role="leader", cause="append"),
            replica(3, 2, 2, role="leader", cause="append"),
            replica(11, 1, 1, epoch=5),
            replica(20, 1, 2, epoch=5, role="leader", cause="append"),
        ],
    )
    operations = tables["operations"].to_pylist()
    operations[1]["leader_epoch"] = 5
    tables["operations"] = tables["operations"].from_pylist(
        operations, schema=tables["operations"].schema
    )
    context = RunContext(elr_on=False, unclean_election_enabled=True)
    assert judge_run(tables, context).excused_lost_records == 1


def test_a_response_delayed_beyond_the_election_does_not_change_the_judgement() -> None:
    """The record was committed at 4 and lost at 150; the client heard of its success at 200 only."""
    late = [LOST_TAIL[0], replace(LOST_TAIL[1], res=200), *LOST_TAIL[2:]]
    states = [state(1, 1, [1, 2], epoch=0), state(150, 1, [1], epoch=1, flagged=True)]
    context = RunContext(elr_on=False, unclean_election_enabled=True)
    verdict = judge_run(run(late, states=states, replicas=LOGS), context)
    assert verdict.excused_lost_records == 1


@pytest.mark.parametrize(
    ("asked_at", "judgement"), [(50, Judgement.EXCUSED), (160, Judgement.FORBIDDEN)]
)
def test_a_late_log_end_response_is_excused_only_if_requested_before_the_election(
    asked_at: int, judgement: Judgement
) -> None:
    """Offset 1 was there until the election at 150; the response that shows it arrives at 200."""
    reported = Call(op=5, kind="latest", process=9, inv=asked_at, res=200, offset=2)
    calls = [LOST_TAIL[0], LOST_TAIL[1], reported, append(2, 1, at=300), *final_read(10, 0, 2)]
    states = [state(1, 1, [1, 2], epoch=0), state(150, 1, [1], epoch=1, flagged=True)]
    context = RunContext(elr_on=False, unclean_election_enabled=True)
    verdict = judge_run(run(calls, states=states, replicas=LOGS), context)
    assert one(verdict, "late-insert").judgement == judgement


@pytest.mark.parametrize(("epoch", "judgement"), [(0, Judgement.EXCUSED), (1, Judgement.FORBIDDEN)])
def test_reads_from_a_deposed_leader_after_a_flagged_election_are_excused(
    epoch: int, judgement: Judgement
) -> None:
    """An isolated leader of epoch 0 reports its log end at 160; epoch 1 began without that record at 150."""
    reported = Call(op=5, kind="latest", process=9, inv=160, res=200, offset=2)
    calls = [LOST_TAIL[0], LOST_TAIL[1], reported, append(2, 1, at=300), *final_read(10, 0, 2)]
    tables = run(
        calls,
        states=[state(1, 1, [1, 2], epoch=0), state(150, 1, [1], epoch=1, flagged=True)],
        replicas=LOGS,
    )
    rows = tables["operations"].to_pylist()
    for row in rows:
        row["leader_epoch"] = epoch if row["op_index"] == 5 else -1
    tables["operations"] = table("operations", rows)
    context = RunContext(elr_on=False, unclean_election_enabled=True)
    assert one(judge_run(tables, context), "late-insert").judgement == judgement


def test_without_recorded_logs_a_flagged_election_excuses_and_an_unflagged_one_does_not() -> None:
    context = RunContext(elr_on=False, unclean_election_enabled=True)
    states = [state(1, 1, [1, 2], epoch=0), state(150, 2, [2], epoch=1, flagged=True)]
    assert judge_run(run(LOST_TAIL, states=states), context).excused_lost_records == 1
    states[1]["flagged"] = False
    assert judge_run(run(LOST_TAIL, states=states), context).unexcused_lost_records == 1


def test_the_order_anomalies_of_an_excused_loss_are_excused_too() -> None:
    """Op 1 was acknowledged at 1 and given up; op 2 then got offset 1, and op 3, written before, is untouched."""
    calls = [append(0, 0, at=1), append(1, 1, at=3), append(2, 1, at=300), *final_read(10, 0, 2)]
    states = [state(1, 1, [1, 2], epoch=0), state(150, 1, [1], epoch=1, flagged=True)]
    context = RunContext(elr_on=False, unclean_election_enabled=True)
    verdict = judge_run(run(calls, states=states, replicas=LOGS), context)
    assert found(verdict) == {
        identifier: Judgement.EXCUSED
        for identifier in (
            "lost-acked-write",
            "offset-reused",
            "two-acks-one-offset",
            "order-inversion",
        )
    }
    assert verdict.validity == Validity.VALID


def test_a_flagged_election_does_not_excuse_a_phantom() -> None:
    calls = [append(0, 0, at=1), read(5, 8, 0, 77), *final_read(10, 0, 77)]
    states = [state(1, 1, [1, 2], epoch=0), state(150, 1, [1], epoch=1, flagged=True)]
    context = RunContext(elr_on=False, unclean_election_enabled=True)
    assert found(judge_run(run(calls, states=states), context)) == {
        "phantom-value": Judgement.FORBIDDEN
    }


def test_judgements_and_verdicts_survive_json() -> None:
    tables = last_replica_standing(elr=False)
    verdict = judge_run(tables, ELR_OFF)
    assert verdict_from_json(json.loads(json.dumps(verdict_to_json(verdict)))) == verdict
    judged = judge_partition("t", 0, tables, ELR_OFF)
    assert judgement_from_json(json.loads(json.dumps(judgement_to_json(judged)))) == judged


# --- acknowledged without an offset ---


def test_a_record_acknowledged_without_an_offset_that_complete_final_reads_lack_is_lost() -> None:
    """Nothing else shows it: op 1 overlaps with everything, so it could have been at the end of the log."""
    calls = [append(0, 0, at=1), Call(op=1, kind="append", process=9, inv=1, res=500)]
    verdict = judge_run(run([*calls, *final_read(10, 0)]), PLAIN)
    assert verdict.validity == "invalid"
    assert verdict.unexcused_lost_records == 1
    (loss,) = [a for a in verdict.anomalies if a.id == "lost-acked-write"]
    assert loss.sentence == (
        "op 1 was acknowledged without an offset, and the final reads, from the start of the log to its end, do"
        " not contain it"
    )


def test_a_record_acknowledged_without_an_offset_with_acks_1_may_be_lost() -> None:
    calls = [append(0, 0, at=1), Call(op=1, kind="append", process=9, inv=1, res=500, acks=1)]
    verdict = judge_run(run([*calls, *final_read(10, 0)]), PLAIN)
    assert verdict.validity == "valid"
    assert "lost-acked-write-acks1" in {a.id for a in verdict.anomalies}


def test_a_record_acknowledged_without_an_offset_is_unseen_if_reads_are_incomplete() -> None:
    calls = [append(0, 0, at=1), Call(op=1, kind="append", process=9, inv=1, res=500)]
    verdict = judge_run(run(calls), PLAIN)
    assert verdict.validity == "unknown"


def test_the_stale_end_of_another_client_does_not_hide_the_loss() -> None:
    calls = [
        Call(op=0, kind="append", process=0, inv=1, res=2),
        Call(op=1, kind="append", process=1, inv=3, res=4, offset=0),
        Call(op=2, kind="latest", process=2, inv=5, res=6, offset=0),
    ]
    verdict = judge_run(run([*calls, *final_read(10, 1)]), PLAIN)
    assert verdict.validity == "invalid"
    assert {"lost-acked-write", "unplaced-append"} <= {a.id for a in verdict.anomalies}


@pytest.mark.parametrize(
    ("later_end", "expected"),
    [(None, Validity.UNKNOWN), (8, Validity.UNKNOWN), (10, Validity.INVALID)],
)
def test_a_smaller_final_log_end_does_not_make_the_largest_one_newer(
    later_end: int | None, expected: Validity
) -> None:
    """A final read shows log end 10, and then op 10 is acknowledged there."""
    calls = [append(number, number, at=10 + 2 * number) for number in range(10)]
    calls += [read(20, 100, *range(10), end=10, final=True), append(10, 10, at=150)]
    if later_end is not None:
        calls.append(
            Call(op=31, kind="latest", process=99, inv=200, res=201, offset=later_end, final=True)
        )
    verdict = judge_run(run(calls, states=[state(0, 1, [1, 2, 3], epoch=0)]), PLAIN)
    assert ("lost-acked-write" in found(verdict)) is (expected is Validity.INVALID)
    if later_end != 8:
        assert verdict.validity is expected
