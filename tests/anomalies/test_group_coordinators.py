"""What elections of a group's coordinator excuse: commits and generations are records of the offsets topic.

The group "g" has its records in partition 3 of 4 of that topic.
"""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from checkers.kernels.compose import judge_run
from checkers.kernels.coordinators import offsets_partition
from harness.contracts.run_context import LOG_CHECKERS, RunContext
from harness.contracts.verdict import Judgement, Validity, Verdict
from system_under_test.group import records
from tests.anomalies.runs import append, broker, fault, final_read, read, run, state, table

OFFSETS = "__consumer_offsets"
PARTITION = 3
MEMBER = 99
"""The process of `read`."""
CONTEXT = RunContext(elr_on=False, checkers=(*LOG_CHECKERS, "consumer-group"))
CALLS = [append(0, 0, at=1), read(1, 2000, 0), *final_read(3000, 0)]


def election(
    at: int, *, flagged: bool, partition: int = PARTITION, epoch: int = 1
) -> dict[str, Any]:
    """Returns an election of a replica that was not in the ISR."""
    row = state(at, 2, [2], epoch=epoch, flagged=flagged)
    return {**row, "topic": OFFSETS, "partition": partition}


def events(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    base = {
        "group": "g",
        "process": MEMBER,
        "topic": "t",
        "partition": 0,
        "offset": -1,
        "refers_to": -1,
        "generation": -1,
    }
    return [{**base, "event_index": index, **row} for index, row in enumerate(rows)]


FORGOTTEN_COMMIT = events(
    {"event": "commit-sent", "offset": 1, "at_ns": 100},
    {"event": "commit-acknowledged", "offset": 1, "at_ns": 110},
    {"event": "committed-asked", "at_ns": 200},
    {"event": "committed-seen", "refers_to": 2, "at_ns": 210},
)
SECOND_OWNER = events(
    {"event": "assigned", "generation": 4, "at_ns": 100},
    {"event": "assigned", "generation": 4, "process": 98, "at_ns": 210},
)


def tables_of(rows: list[dict[str, Any]], *elections: dict[str, Any]) -> dict[str, pa.Table]:
    """Returns a run; the offsets topic has four partitions, all led by broker 1 at first."""
    existing = [
        {**state(2, 1, [1, 3], epoch=0), "topic": OFFSETS, "partition": index} for index in range(4)
    ]
    tables: dict[str, pa.Table] = run(CALLS, group_events=rows)
    states = [{**row, "metadata_offset": i} for i, row in enumerate((*existing, *elections), 100)]
    tables["partition_states"] = pa.concat_tables(
        [tables["partition_states"], table("partition_states", states)]
    )
    return tables


def judged(rows: list[dict[str, Any]], *elections: dict[str, Any]) -> Verdict:
    """Judges a run; the configuration allows unclean elections if it has one."""
    allowed = any(row["flagged"] for row in elections)
    context = replace(CONTEXT, unclean_election_enabled=allowed)
    return judge_run(tables_of(rows, *elections), context)


BOTH = pytest.mark.parametrize("rows", [FORGOTTEN_COMMIT, SECOND_OWNER])


def judgement_of(verdict: Verdict) -> Judgement:
    (anomaly,) = verdict.anomalies
    assert anomaly.id in ("committed-offset-regressed", "double-ownership")
    return anomaly.judgement


@BOTH
def test_a_flagged_election_of_the_coordinator_in_between_excuses(
    rows: list[dict[str, Any]],
) -> None:
    verdict = judged(rows, election(150, flagged=True))
    assert judgement_of(verdict) is Judgement.EXCUSED
    assert verdict.validity is Validity.VALID


@BOTH
def test_no_election_excuses_nothing(rows: list[dict[str, Any]]) -> None:
    verdict = judged(rows)
    assert judgement_of(verdict) is Judgement.FORBIDDEN
    assert verdict.validity is Validity.INVALID


@BOTH
@pytest.mark.parametrize(
    "elected",
    [
        election(150, flagged=False),
        # Another group's coordinator.
        election(150, flagged=True, partition=2),
        # The commit, or the generation, was gone before.
        election(220, flagged=True),
    ],
    ids=["unflagged", "other-partition", "later"],
)
def test_such_an_election_excuses_nothing(
    rows: list[dict[str, Any]], elected: dict[str, Any]
) -> None:
    assert judgement_of(judged(rows, elected)) is Judgement.FORBIDDEN


@BOTH
def test_a_flagged_and_an_unflagged_election_leave_it_undecided(
    rows: list[dict[str, Any]],
) -> None:
    verdict = judged(rows, election(150, flagged=False), election(160, flagged=True, epoch=2))
    assert judgement_of(verdict) is Judgement.UNDECIDED
    assert verdict.validity is Validity.UNKNOWN


@BOTH
def test_an_earlier_flagged_election_leaves_it_undecided(rows: list[dict[str, Any]]) -> None:
    """The coordinator may not have learned yet that another one was elected, and written in its name."""
    assert judgement_of(judged(rows, election(50, flagged=True))) is Judgement.UNDECIDED


def test_an_election_while_the_commit_was_under_way_counts() -> None:
    assert judgement_of(judged(FORGOTTEN_COMMIT, election(105, flagged=True))) is Judgement.EXCUSED


def register(*rows: tuple[str, int, int]) -> list[dict[str, Any]]:
    """Returns events, each with its offset and its time; the last one is the response to the one before it."""
    found = events(*({"event": kind, "offset": offset, "at_ns": at} for kind, offset, at in rows))
    found[-1]["refers_to"] = len(rows) - 2
    return found


SENT, ACKED, ASKED, SEEN = (
    "commit-sent",
    "commit-acknowledged",
    "committed-asked",
    "committed-seen",
)
LATER = [(SENT, 1, 100), (ACKED, 1, 110), (SENT, 0, 170), (ACKED, 0, 180), (ASKED, -1, 200)]
"""A commit before an election at 150, and another one after it."""


def test_an_election_before_a_commit_does_not_excuse_that_this_one_is_gone() -> None:
    """A deposed coordinator may have acknowledged it, so it is not known."""
    verdict = judged(register(*LATER, (SEEN, -1, 210)), election(150, flagged=True))
    assert judgement_of(verdict) is Judgement.UNDECIDED
    again = [(kind, 1 if kind in (SENT, ACKED) else offset, at) for kind, offset, at in LATER]
    verdict = judged(register(*again, (SEEN, -1, 210)), election(150, flagged=True))
    assert judgement_of(verdict) is Judgement.UNDECIDED


def test_every_two_owners_are_compared() -> None:
    third = events({"event": "assigned", "generation": 4, "process": 97, "at_ns": 220})
    rows = [*SECOND_OWNER, {**third[0], "event_index": 2}]
    verdict = judged(rows, election(150, flagged=True))
    assert verdict.validity is Validity.UNKNOWN
    found = {anomaly.judgement: anomaly.sentence for anomaly in verdict.anomalies}
    assert set(found) == {Judgement.EXCUSED, Judgement.UNDECIDED}
    assert found[Judgement.UNDECIDED].endswith("assigned to process 98 and to process 97")


STALE = register(*LATER, (SEEN, 1, 210))
"""The coordinator that was deposed at 150 may not know the second commit, and answer from its memory."""


def test_a_deposed_coordinator_may_answer_from_its_memory() -> None:
    assert judgement_of(judged(STALE)) is Judgement.FORBIDDEN
    verdict = judged(STALE, election(150, flagged=False))
    assert judgement_of(verdict) is Judgement.UNDECIDED
    assert verdict.validity is Validity.UNKNOWN


def test_one_that_was_killed_answers_nothing() -> None:
    """It starts again when the report has been seen."""
    tables = tables_of(STALE, election(150, flagged=False))
    tables["broker_states"] = table(
        "broker_states", [broker(1, 1, "registered"), broker(1100, 1, "registered")]
    )
    context = replace(CONTEXT, acked_during_faults_min=0)
    for ended, expected in (
        (fault(130, "kill", ["b1"], healed=1000), Judgement.FORBIDDEN),
        (fault(130, "pause", ["b1"], healed=1000), Judgement.UNDECIDED),
    ):
        tables["faults"] = table("faults", [ended])
        assert judgement_of(judge_run(tables, context)) is expected


@pytest.mark.parametrize(
    ("completed_ns", "judgement"), [(199, Judgement.FORBIDDEN), (201, Judgement.UNDECIDED)]
)
def test_one_that_was_stopped_answers_nothing(completed_ns: int, judgement: Judgement) -> None:
    """It is replaced at 150, while it stops, and the report is requested at 200."""
    tables = tables_of(STALE, election(150, flagged=False))
    tables["broker_states"] = table("broker_states", [broker(1, 1, "registered")])
    stop = fault(130, "stop", ["b1"], healed=1000)
    stop |= {"completed_ns": completed_ns, "evidence": '{"ended": {"b1": {"in_time": true}}}'}
    tables["faults"] = table("faults", [stop])
    context = replace(CONTEXT, acked_during_faults_min=0)
    assert judgement_of(judge_run(tables, context)) is judgement


def test_elections_that_were_not_recorded_may_have_deposed_one() -> None:
    tables = run(CALLS, group_events=STALE)
    context = replace(CONTEXT, acked_during_faults_min=0)
    assert judgement_of(judge_run(tables, context)) is Judgement.FORBIDDEN
    tables["faults"] = table("faults", [fault(50, "pause", ["b1"], healed=60)])
    assert judgement_of(judge_run(tables, context)) is Judgement.UNDECIDED


def returned(at: int) -> dict[str, Any]:
    row = state(at, 2, [1, 2], epoch=1)
    return {**row, "topic": OFFSETS, "partition": PARTITION}


@pytest.mark.parametrize(
    "elections",
    [
        # The second commit was acknowledged before.
        [election(185, flagged=False)],
        # The answer arrived before.
        [election(215, flagged=False)],
        # It knew when it copied from the new leader again.
        [election(150, flagged=False), returned(195)],
        # Nothing is committed unless all members of the ISR have it.
        [{**election(150, flagged=False), "isr": [1, 2]}],
        # The first commit was not sent yet.
        [election(90, flagged=False)],
        # Another group's coordinator.
        [election(150, flagged=False, partition=2)],
    ],
    ids=["acknowledged", "answered", "returned", "in-isr", "not-sent", "other-partition"],
)
def test_no_other_coordinator_may(elections: list[dict[str, Any]]) -> None:
    assert judgement_of(judged(STALE, *elections)) is Judgement.FORBIDDEN


LATE = election(205, flagged=False)
"""It is read at 205 ns."""


@pytest.mark.parametrize(
    ("elected", "judgement"),
    [
        (LATE, Judgement.FORBIDDEN),
        ({**LATE, "after_ns": 140}, Judgement.UNDECIDED),
        # It was not replaced yet when the second commit was acknowledged.
        ({**LATE, "after_ns": 195}, Judgement.FORBIDDEN),
        # It was in the ISR at any moment at which the commit may have been acknowledged.
        ({**LATE, "isr": [1, 2], "after_ns": 140}, Judgement.FORBIDDEN),
    ],
)
def test_a_coordinator_whose_election_is_read_late_may_have_been_replaced_before(
    elected: dict[str, Any], judgement: Judgement
) -> None:
    assert judgement_of(judged(STALE, elected)) is judgement


@BOTH
def test_an_election_that_is_read_late_may_have_lost_what_was_gone_before(
    rows: list[dict[str, Any]],
) -> None:
    """What is gone is seen at 210 ns, and the election is read at 220 ns."""
    for after_ns, judgement in (
        (None, Judgement.FORBIDDEN),
        (211, Judgement.FORBIDDEN),
        (150, Judgement.UNDECIDED),
    ):
        elected = {**election(220, flagged=True), "after_ns": after_ns}
        assert judgement_of(judged(rows, elected)) is judgement
    elected = {**election(150, flagged=True), "after_ns": 120}
    assert judgement_of(judged(rows, elected)) is Judgement.EXCUSED
    elected = {**election(220, flagged=False), "after_ns": 150}
    assert judgement_of(judged(rows, elected)) is Judgement.FORBIDDEN, "it is not flagged"


def test_a_coordinator_may_have_left_the_isr_in_a_gap() -> None:
    """Broker 1 is replaced at 150, and a member of the ISR at 160 and 220. It may have been away at 180."""
    first = {**election(150, flagged=False), "isr": [1, 2], "partition_epoch": 1}
    for changes, judgement in ((1, Judgement.FORBIDDEN), (3, Judgement.UNDECIDED)):
        again = {**first, "at_ns": 220, "partition_epoch": 1 + changes}
        assert judgement_of(judged(STALE, first, again)) is judgement


@pytest.mark.parametrize(
    ("still_there_at", "judgement"), [(175, Judgement.UNDECIDED), (185, Judgement.FORBIDDEN)]
)
def test_a_coordinator_left_the_isr_after_the_last_state_that_shows_it_there(
    still_there_at: int, judgement: Judgement
) -> None:
    """Broker 1 is replaced at 150. States are missing before 220. The second commit was acknowledged at 180."""
    states = [
        {**election(at, flagged=False), "isr": [1, 2], "partition_epoch": changes}
        for at, changes in ((150, 1), (still_there_at, 2), (220, 5))
    ]
    assert judgement_of(judged(STALE, *states)) is judgement


@pytest.mark.parametrize("changes", [1, 3])
def test_states_that_are_missing_before_a_coordinator_is_replaced_do_not_show_that_it_knew(
    changes: int,
) -> None:
    """The partition has no leader at 150, and broker 1 leaves the ISR at 160, when another one is elected."""
    without = {**state(150, -1, [1, 2], epoch=1), "topic": OFFSETS, "partition": PARTITION}
    elected = election(160, flagged=False, epoch=2)
    states = [
        {**without, "partition_epoch": changes},
        {**elected, "partition_epoch": changes + 1},
    ]
    assert judgement_of(judged(STALE, *states)) is Judgement.UNDECIDED


def test_a_coordinator_that_came_back_later_may_have_answered_before() -> None:
    elections = (election(150, flagged=False), returned(205))
    assert judgement_of(judged(STALE, *elections)) is Judgement.UNDECIDED


def test_no_memory_of_a_coordinator_lacks_what_was_acknowledged_before() -> None:
    verdict = judged(register(*LATER, (SEEN, -1, 210)), election(150, flagged=False))
    assert judgement_of(verdict) is Judgement.FORBIDDEN


def test_a_report_that_may_be_stale_proves_nothing_for_certain() -> None:
    """The second commit is reported after a report of the first one."""
    rows = register(*LATER, (SEEN, 1, 210), (ASKED, -1, 220), (SEEN, 0, 230))
    rows[5]["refers_to"] = 4
    verdict = judged(rows, election(150, flagged=False))
    (anomaly,) = verdict.anomalies
    assert (anomaly.count, anomaly.judgement) == (2, Judgement.UNDECIDED)
    (anomaly,) = judged(rows).anomalies
    assert (anomaly.count, anomaly.judgement) == (2, Judgement.FORBIDDEN)


def test_a_coordinator_that_was_started_again_knows() -> None:
    tables = tables_of(STALE, election(150, flagged=False))
    for at, broker_id, judgement in (
        (190, 1, Judgement.FORBIDDEN),
        (140, 1, Judgement.UNDECIDED),
        (190, 3, Judgement.UNDECIDED),
        (205, 1, Judgement.UNDECIDED),
    ):
        tables["broker_states"] = table("broker_states", [broker(at, broker_id, "registered")])
        assert judgement_of(judge_run(tables, CONTEXT)) is judgement


def test_an_election_of_the_data_loses_no_commit() -> None:
    rows = {**state(150, 2, [2], epoch=1, flagged=True), "topic": "t", "partition": 0}
    assert judgement_of(judged(FORGOTTEN_COMMIT, rows)) is Judgement.FORBIDDEN


# --- what a coordinator reports before it is committed ---

CLEAN = [
    {**state(150, 3, [1, 2, 3], epoch=1), "topic": OFFSETS, "partition": PARTITION},
    {**state(250, 2, [2], epoch=2), "topic": OFFSETS, "partition": PARTITION},
]
"""Two elections of members of the ISR. Broker 1 leads until the first one."""
KILLS = [fault(140, "kill", ["b1"], healed=400), fault(240, "kill", ["b3"], healed=401)]
"""They end the brokers that were replaced, so that none of them answers later."""
ACKED = (
    {"event": "commit-sent", "offset": 1, "at_ns": 100},
    {"event": "commit-acknowledged", "offset": 1, "at_ns": 110},
)
REPORTED = events(
    *ACKED,
    {"event": "commit-sent", "offset": 2, "at_ns": 120},
    {"event": "committed-asked", "at_ns": 200},
    {"event": "committed-seen", "offset": 2, "refers_to": 3, "at_ns": 210},
    {"event": "committed-asked", "at_ns": 300},
    {"event": "committed-seen", "offset": 1, "refers_to": 5, "at_ns": 310},
)
"""The commit of 2 has no response; the second coordinator reports it, and the third one does not have it."""
ASSIGNED = events(
    *ACKED,
    {"event": "assigned", "generation": 4, "at_ns": 200},
    {"event": "assigned", "generation": 4, "process": 98, "at_ns": 310},
)


def with_kills(
    rows: list[dict[str, Any]], *elections: dict[str, Any], clock_error_ns: int = 0
) -> Judgement:
    tables = tables_of(rows, *elections)
    tables["faults"] = table("faults", KILLS)
    context = replace(CONTEXT, acked_during_faults_min=0, clock_error_ns=clock_error_ns)
    return judgement_of(judge_run(tables, context))


@pytest.mark.parametrize("rows", [REPORTED, ASSIGNED], ids=["commit", "generation"])
def test_what_a_new_coordinator_reports_need_not_be_committed(rows: list[dict[str, Any]]) -> None:
    """Smallest history: both elections are clean. Any one of them alone loses nothing."""
    assert with_kills(rows, *CLEAN) is Judgement.UNDECIDED
    assert with_kills(rows, {**CLEAN[0], "leader": 0}, CLEAN[1]) is Judgement.UNDECIDED
    for one in CLEAN:
        assert with_kills(rows, {**one, "leader_epoch": 1}) is Judgement.FORBIDDEN
    assert with_kills(rows) is Judgement.FORBIDDEN


@pytest.mark.parametrize(
    ("changes", "error_ns", "expected"),
    [
        # The coordinator was elected after the report, or by the time of it.
        (({"at_ns": 211}, {}), 0, Judgement.FORBIDDEN),
        (({"at_ns": 210}, {}), 0, Judgement.UNDECIDED),
        (({"at_ns": 211}, {}), 1, Judgement.UNDECIDED),
        (({"at_ns": 215, "after_ns": 205}, {}), 0, Judgement.UNDECIDED),
        # The next one was elected after the last report, or before the first one was requested.
        (({}, {"at_ns": 311}), 0, Judgement.FORBIDDEN),
        (({}, {"at_ns": 310}), 0, Judgement.UNDECIDED),
        (({}, {"at_ns": 320, "after_ns": 310}), 0, Judgement.UNDECIDED),
        (({}, {"at_ns": 199}), 0, Judgement.FORBIDDEN),
        (({}, {"at_ns": 200}), 0, Judgement.UNDECIDED),
        (({}, {"at_ns": 199}), 1, Judgement.UNDECIDED),
        # Only the ISR changed.
        (({}, {"leader": 3, "leader_epoch": 1}), 0, Judgement.FORBIDDEN),
    ],
)
def test_only_a_report_of_the_coordinator_before_the_last_need_not_be_committed(
    changes: tuple[dict[str, Any], dict[str, Any]], error_ns: int, expected: Judgement
) -> None:
    elections = [{**one, **change} for one, change in zip(CLEAN, changes, strict=True)]
    assert with_kills(REPORTED, *elections, clock_error_ns=error_ns) is expected


@pytest.mark.parametrize(
    ("sent_ns", "acked_ns", "expected"),
    [
        (151, 249, Judgement.FORBIDDEN),
        (150, 249, Judgement.UNDECIDED),
        (151, 250, Judgement.UNDECIDED),
    ],
)
def test_a_commit_that_the_coordinator_acknowledged_shows_that_all_before_is_committed(
    sent_ns: int, acked_ns: int, expected: Judgement
) -> None:
    """Another member commits offset 1 again while the second coordinator is in office."""
    more = [
        {"event": "commit-sent", "offset": 1, "process": 97, "at_ns": sent_ns},
        {"event": "commit-acknowledged", "offset": 1, "process": 97, "at_ns": acked_ns},
    ]
    rows = sorted([*ASSIGNED, *events(*more)], key=lambda row: row["at_ns"])
    rows = [{**row, "event_index": index} for index, row in enumerate(rows)]
    assert with_kills(rows, *CLEAN) is expected
    # A change of the ISR in between is no election.
    assert (
        with_kills(rows, CLEAN[0], {**CLEAN[0], "at_ns": 200, "isr": [2, 3]}, CLEAN[1]) is expected
    )


@BOTH
@pytest.mark.parametrize("reason", ["unclean-elections", "power", "flagged"])
def test_elections_that_were_not_recorded_may_have_lost_it(
    rows: list[dict[str, Any]], reason: str
) -> None:
    tables = run(CALLS, group_events=rows)
    assert judgement_of(judge_run(tables, CONTEXT)) is Judgement.FORBIDDEN
    context = CONTEXT
    if reason == "unclean-elections":
        context = replace(CONTEXT, unclean_election_enabled=True)
    elif reason == "power":
        context = replace(CONTEXT, acked_during_faults_min=0)
        # Near miss: what a process has written survives its end. But an assignment that was reported after an
        # election, as the kill may have caused, need not have been committed.
        tables["faults"] = table("faults", [fault(50, "kill", ["b1"], healed=60)])
        is_report = rows is SECOND_OWNER
        expected = Judgement.UNDECIDED if is_report else Judgement.FORBIDDEN
        assert judgement_of(judge_run(tables, context)) is expected
        tables["faults"] = table("faults", [fault(50, "power", ["b1"], healed=60)])
    else:
        flagged = state(150, 2, [2], epoch=1, flagged=True)
        tables["partition_states"] = table("partition_states", [flagged])
    assert judgement_of(judge_run(tables, context)) is Judgement.UNDECIDED


@BOTH
@pytest.mark.parametrize(
    ("missing", "is_flagged", "judgement"),
    [
        # The last partition that is recorded is the last one, as far as is known.
        ([], False, Judgement.FORBIDDEN),
        ([], True, Judgement.EXCUSED),
        # The topic may have more partitions, and another one the records of the group.
        ([1], False, Judgement.UNDECIDED),
        ([1], True, Judgement.UNDECIDED),
        ([0, 1, 2], True, Judgement.UNDECIDED),
        # Of the partition nothing is recorded, or nothing of the topic.
        ([PARTITION], False, Judgement.UNDECIDED),
        ([0, 1, 2, 3], False, Judgement.UNDECIDED),
    ],
)
def test_which_partition_has_the_records_of_a_group_is_known_if_all_are_recorded(
    rows: list[dict[str, Any]], missing: list[int], is_flagged: bool, judgement: Judgement
) -> None:
    """Unclean elections are allowed. If partition 3 is missing, the topic seems to have more than 4."""
    tables = tables_of(rows, election(150, flagged=is_flagged))
    more = {**state(2, 1, [1, 3], epoch=0), "topic": OFFSETS, "partition": 4}
    states = tables["partition_states"].to_pylist()
    states = [one for one in states if one["topic"] != OFFSETS or one["partition"] not in missing]
    states += [{**more, "metadata_offset": 99}] if missing == [PARTITION] else []
    tables["partition_states"] = table("partition_states", states)
    context = replace(CONTEXT, unclean_election_enabled=True)
    assert judgement_of(judge_run(tables, context)) is judgement


def test_an_election_of_the_offsets_topic_may_be_one_of_the_group_if_partitions_are_missing() -> (
    None
):
    tables = tables_of(FORGOTTEN_COMMIT, election(150, flagged=True, partition=2))
    states = tables["partition_states"].to_pylist()
    for missing, judgement in ((1, Judgement.UNDECIDED), (-1, Judgement.FORBIDDEN)):
        some = [one for one in states if one["partition"] != missing]
        tables["partition_states"] = table("partition_states", some)
        assert judgement_of(judge_run(tables, CONTEXT)) is judgement


@BOTH
def test_a_record_that_ends_early_may_lack_the_election_that_lost_it(
    rows: list[dict[str, Any]],
) -> None:
    tables = tables_of(rows)
    killed = replace(CONTEXT, final_phase_complete=False)
    assert judgement_of(judge_run(tables, killed)) is Judgement.UNDECIDED
    for whole in (CONTEXT, replace(killed, ended_ns=500)):
        assert judgement_of(judge_run(tables, whole)) is Judgement.FORBIDDEN


def test_a_flagged_election_that_was_avoidable_excuses_nothing() -> None:
    """With eligible leader replicas on, min ISR brokers must have left uncleanly, each after a fault."""
    tables = tables_of(FORGOTTEN_COMMIT, election(150, flagged=True))
    registered = {
        "at_ns": 1,
        "metadata_offset": 1,
        "broker": 1,
        "broker_epoch": 1,
        "change": "registered",
        "clean": True,
    }
    tables["broker_states"] = table("broker_states", [registered])
    verdict = judge_run(tables, replace(CONTEXT, elr_on=True))
    assert judgement_of(verdict) is Judgement.FORBIDDEN


@pytest.mark.parametrize("count", [1, 4, 50])
@pytest.mark.parametrize("group", ["g", "laststand-group", "größe", "", "a" * 40, "\U0001f600"])
def test_a_groups_partition_is_the_one_that_the_coordinator_uses(group: str, count: int) -> None:
    assert offsets_partition(group, count) == records.offsets_partition(group, count)


def test_the_group_of_these_tests_has_its_records_in_partition_3() -> None:
    assert offsets_partition("g", 4) == PARTITION
