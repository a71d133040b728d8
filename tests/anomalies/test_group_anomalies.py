"""What a consumer group promises, judged from its events and from what its members read."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from checkers.kernels.compose import judge_partition, judge_run
from checkers.kernels.consumer_group import group_counters
from harness.contracts.run_context import LOG_CHECKERS, RunContext
from harness.contracts.verdict import Anomaly, Judgement, Validity, Verdict
from harness.history.op import FETCHED_AHEAD
from tests.anomalies.runs import Call, append, final_read, run, state
from tests.property.cutting import differences

CONTEXT = RunContext(checkers=(*LOG_CHECKERS, "consumer-group"))
MEMBER = 70
NOTHING_COMMITTED = -1001
GROUP_IDS = ("committed-offset-regressed", "group-skipped-record")


class Group:
    """Events of one group, in the order in which they happened."""

    def __init__(self, name: str = "g", member: int = MEMBER) -> None:
        self.rows: list[dict[str, Any]] = []
        self.name = name
        self.member = member
        self.note("assigned", NOTHING_COMMITTED)

    def note(self, event: str, offset: int = -1, refers_to: int = -1) -> int:
        index = len(self.rows)
        self.rows.append(
            {
                "event_index": index,
                "at_ns": 10 * index,
                "group": self.name,
                "process": self.member,
                "topic": "t",
                "partition": 0,
                "event": event,
                "offset": offset,
                "refers_to": refers_to,
                "generation": -1,
            }
        )
        return index

    def commit(self, offset: int) -> None:
        self.note("commit-sent", offset)
        self.note("commit-acknowledged", offset)

    def sees(self, offset: int) -> None:
        self.note("committed-seen", offset, self.note("committed-asked"))


def delivery(op: int, *records: tuple[int, int], process: int = MEMBER) -> Call:
    """Returns a poll of a member that returned (offset, value) pairs."""
    start = min(offset for offset, _ in records)
    return Call(
        op=op,
        kind="poll",
        process=process,
        inv=100 + op,
        res=101 + op,
        position=start,
        records=records,
    )


APPENDS = [append(op, op, at=1 + 2 * op) for op in range(3)]


def judged(
    group: Group, *deliveries: Call, flagged: bool = False, elected_at: int = 300, **more: Any
) -> Verdict:
    """Judges a run whose log holds the values 0, 1 and 2."""
    calls = [*APPENDS, *deliveries, *final_read(80, 0, 1, 2)]
    states = [state(2, 1, [1, 2, 3], epoch=0), state(elected_at, 2, [2], epoch=1, flagged=flagged)]
    tables = run(calls, states=states, group_events=more.pop("events", group.rows))
    return judge_run(tables, more.pop("context", CONTEXT))


def found(verdict: Verdict) -> list[Anomaly]:
    return [anomaly for anomaly in verdict.anomalies if anomaly.id in GROUP_IDS]


def test_a_group_that_got_everything_below_its_commit_has_no_findings() -> None:
    group = Group()
    group.sees(NOTHING_COMMITTED)
    group.commit(2)
    group.sees(2)
    verdict = judged(group, delivery(30, (0, 0), (1, 1)))
    assert found(verdict) == []
    assert verdict.validity == Validity.VALID
    assert verdict.coverage["group_assignments"] == 1
    assert verdict.coverage["group_commits"] == 1
    assert verdict.coverage["group_records"] == 2


def test_a_record_below_the_commit_that_no_member_got_was_skipped() -> None:
    group = Group()
    group.commit(3)
    verdict = judged(group, delivery(30, (0, 0)), delivery(31, (2, 2)))
    (anomaly,) = found(verdict)
    assert verdict.validity == Validity.INVALID
    assert (anomaly.id, anomaly.count) == ("group-skipped-record", 1)
    assert (anomaly.topic, anomaly.partition) == ("t", 0)
    assert "offset 3 is committed, but 1 records below it" in anomaly.sentence
    assert anomaly.sentence.endswith("the first at offset 1")
    assert anomaly.details == {"offsets": [1], "values": [1]}
    assert [witness.op_index for witness in anomaly.witnesses] == [80]
    json.dumps(anomaly.details)


def test_a_record_at_or_above_the_commit_need_not_have_been_delivered() -> None:
    group = Group()
    group.commit(1)
    assert found(judged(group, delivery(30, (0, 0)))) == []


def test_a_commit_that_was_not_acknowledged_promises_nothing() -> None:
    group = Group()
    group.note("commit-sent", 3)
    assert found(judged(group)) == []


def test_another_record_at_the_same_offset_does_not_count_as_delivered() -> None:
    group = Group()
    group.commit(1)
    (anomaly,) = found(judged(group, delivery(30, (0, 99))))
    assert anomaly.judgement == Judgement.FORBIDDEN
    (anomaly,) = found(judged(group, delivery(30, (0, 99)), flagged=True))
    assert anomaly.judgement == Judgement.EXCUSED


@pytest.mark.parametrize("is_acknowledged", [False, True])
@pytest.mark.parametrize(
    ("committed", "judgement"), [(1, Judgement.FORBIDDEN), (2, Judgement.EXCUSED)]
)
def test_only_a_member_that_sends_a_commit_above_a_lost_record_takes_the_group_past_it(
    committed: int, judgement: Judgement, is_acknowledged: bool
) -> None:
    """A flagged election loses what member 70 received at offset 1; member 71 begins at 2, and commits 3."""
    group = Group()
    group.note("commit-sent", committed)
    if is_acknowledged:
        group.note("commit-acknowledged", committed)
    group.member = 71
    group.note("assigned", committed)
    group.commit(3)
    deliveries = (delivery(30, (0, 0), (1, 99)), delivery(31, (2, 2), process=71))
    (anomaly,) = found(judged(group, *deliveries, flagged=True))
    assert (anomaly.details["offsets"], anomaly.judgement) == ([1], judgement)


def test_the_commit_above_a_lost_record_may_be_one_of_its_second_delivery() -> None:
    """Member 71 receives the record after member 70 did, and it commits more than its offset."""
    group = Group()
    group.commit(1)
    group.member = 71
    group.commit(3)
    lost, more = ((0, 0), (1, 99)), ((1, 99), (2, 2))
    for ops in ((30, 31), (31, 30)):
        deliveries = (delivery(ops[0], *lost), delivery(ops[1], *more, process=71))
        (anomaly,) = found(judged(group, *deliveries, flagged=True))
        assert (anomaly.count, anomaly.judgement) == (1, Judgement.EXCUSED)


@pytest.mark.parametrize(
    ("events", "judgement"),
    [
        # A member is at the offset, by its own commit or its assignment, and commits above it.
        ((("commit", 1), ("commit", 3)), Judgement.FORBIDDEN),
        ((("assigned", 1), ("commit", 3)), Judgement.FORBIDDEN),
        ((("commit-sent", 3), ("commit", 1), ("commit", 2)), Judgement.FORBIDDEN),
        # It was above the offset all the time, or whether it passed the offset is not known.
        ((("commit", 2), ("commit", 3)), Judgement.EXCUSED),
        ((("assigned", 1), ("assigned", NOTHING_COMMITTED), ("commit", 3)), Judgement.EXCUSED),
        ((("commit-sent", 1), ("commit", 3)), Judgement.EXCUSED),
        # It did not pass it, or that had no effect on the group.
        ((("commit", 1),), Judgement.EXCUSED),
        ((("commit", 1), ("commit-sent", 3)), Judgement.EXCUSED),
    ],
)
def test_members_pass_a_lost_record_again_after_the_group_was_moved_back(
    events: tuple[tuple[str, int], ...], judgement: Judgement
) -> None:
    """Member 70 receives offset 1, which a flagged election loses, and commits 3; the events are of member 71."""
    group = Group()
    group.commit(3)
    group.member = 71
    for event, offset in events:
        if event == "commit":
            group.commit(offset)
        else:
            group.note(event, offset)
    deliveries = (delivery(30, (0, 0), (1, 99)), delivery(31, (2, 2), process=71))
    (anomaly,) = found(judged(group, *deliveries, flagged=True))
    assert (anomaly.details["offsets"], anomaly.judgement) == ([1], judgement)
    # A member that receives the lost record too passes it.
    again = delivery(32, (1, 99), process=71)
    (anomaly,) = found(judged(group, *deliveries, again, flagged=True))
    assert anomaly.judgement == Judgement.EXCUSED
    tables = run(
        [*APPENDS, *deliveries, *final_read(80, 0, 1, 2)],
        states=[state(2, 1, [1, 2, 3], epoch=0), state(300, 2, [2], epoch=1, flagged=True)],
        group_events=group.rows,
    )
    assert differences(tables, CONTEXT, random.Random(1)) == []


@pytest.mark.parametrize(
    ("again", "committed_ns", "judgement"),
    [
        ({"position": 0}, 500, Judgement.FORBIDDEN),
        ({"position": 1, "records": ()}, 500, Judgement.FORBIDDEN),
        ({"position": 2, "records": ()}, 500, Judgement.EXCUSED),
        ({"position": -1}, 500, Judgement.EXCUSED),
        ({"position": 0, "process": 71}, 500, Judgement.EXCUSED),
        # It was moved back after its commit.
        ({"position": 0}, 400, Judgement.EXCUSED),
    ],
)
def test_a_member_that_was_moved_back_passes_a_record_again(
    again: dict[str, Any], committed_ns: int, judgement: Judgement
) -> None:
    """Member 70 receives offset 1 at 131, the flagged election at 300 loses that, and 70 polls again at 400."""
    group = Group()
    group.commit(3)
    events = [{**row, "at_ns": committed_ns} for row in group.rows]
    back = replace(delivery(31, (0, 0)), inv=400, res=401, **again)
    rest = replace(delivery(32, (2, 2)), inv=410, res=411)
    deliveries = (delivery(30, (0, 0), (1, 99)), back, rest)
    (anomaly,) = found(judged(group, *deliveries, flagged=True, events=events))
    assert (anomaly.details["offsets"], anomaly.judgement) == ([1], judgement)
    calls = [*APPENDS, *deliveries, *final_read(80, 0, 1, 2)]
    states = [state(2, 1, [1, 2, 3], epoch=0), state(300, 2, [2], epoch=1, flagged=True)]
    tables = run(calls, states=states, group_events=events)
    for seed in range(5):
        assert differences(tables, CONTEXT, random.Random(seed)) == []


@pytest.mark.parametrize(
    ("committed_ns", "judgement"), [(350, Judgement.EXCUSED), (450, Judgement.FORBIDDEN)]
)
def test_a_commit_between_two_moves_back_does_not_take_a_member_past_a_record(
    committed_ns: int, judgement: Judgement
) -> None:
    """Member 70 receives offset 1 at 131, which the election at 300 loses, and is moved back at 400 and 500."""
    group = Group()
    group.commit(3)
    events = [{**row, "at_ns": committed_ns} for row in group.rows]
    backs = [replace(delivery(op, (0, 0)), inv=at, res=at + 1) for op, at in ((31, 400), (32, 500))]
    rest = replace(delivery(33, (2, 2)), inv=510, res=511)
    deliveries = (delivery(30, (0, 0), (1, 99)), *backs, rest)
    (anomaly,) = found(judged(group, *deliveries, flagged=True, events=events))
    assert (anomaly.details["offsets"], anomaly.judgement) == ([1], judgement)


def test_a_member_passes_what_it_receives_in_the_poll_with_which_it_was_moved_back() -> None:
    """Member 70 receives offset 1 at 131, and at 201 from the start again; a flagged election at 450 loses it."""
    group = Group()
    group.commit(3)
    events = [{**row, "at_ns": 400} for row in group.rows]
    lost = (0, 0), (1, 99)
    again = replace(delivery(31, *lost), inv=200, res=201)
    rest = replace(delivery(32, (2, 2)), inv=510, res=511)
    deliveries = (delivery(30, *lost), again, rest)
    (anomaly,) = found(judged(group, *deliveries, flagged=True, elected_at=450, events=events))
    assert (anomaly.details["offsets"], anomaly.judgement) == ([1], Judgement.EXCUSED)


def of_sparse_log(*later: Call, sparse: bool = True, flagged: bool = True) -> list[Judgement]:
    """Judges a group of which a member receives offset 0, and 2, which is lost; nothing was at offset 1.

    Args:
        later: What else clients append; the final reads return it at offset 1.
        sparse: Whether offsets may be missing.
        flagged: Whether the election that loses offset 2 is flagged.
    """
    group = Group()
    group.commit(3)
    calls = [APPENDS[0], replace(APPENDS[2], op=9, offset=2), delivery(30, (0, 0), (2, 9)), *later]
    calls += final_read(80, 0, *(call.op for call in later))
    states = [state(2, 1, [1, 2, 3], epoch=0), state(300, 2, [2], epoch=1, flagged=flagged)]
    context = replace(CONTEXT, sparse_offsets=sparse)
    tables = run(calls, states=states, group_events=group.rows)
    return [anomaly.judgement for anomaly in found(judge_run(tables, context))]


def test_in_a_sparse_log_a_member_passes_offsets_that_a_later_log_fills() -> None:
    """A flagged election at 300 loses what it received; then op 1 is written at the offset that was empty."""
    later = append(1, 1, at=400)
    assert of_sparse_log(later) == [Judgement.EXCUSED]
    assert of_sparse_log(later, flagged=False) == [Judgement.FORBIDDEN]
    assert of_sparse_log(later, sparse=False) == [Judgement.FORBIDDEN]


@pytest.mark.parametrize(
    ("earlier", "judgement"),
    [
        (append(1, 1, at=10), Judgement.FORBIDDEN),
        # It may have been written before the member read, or after the election.
        (replace(append(1, 1, at=10), res=None, outcome="info"), Judgement.UNDECIDED),
        (replace(append(1, 1, at=10), res=400), Judgement.UNDECIDED),
    ],
)
def test_in_a_sparse_log_a_lost_record_does_not_excuse_a_skip_below_it(
    earlier: Call, judgement: Judgement
) -> None:
    """The record at offset 1 was there, or may have been, when the member received offset 2 after it."""
    assert of_sparse_log(earlier) == [judgement]


@pytest.mark.parametrize(
    ("sent_at", "judgement"), [(131, Judgement.UNDECIDED), (132, Judgement.EXCUSED)]
)
def test_in_a_sparse_log_the_first_record_above_an_offset_shows_when_a_member_had_passed_it(
    sent_at: int, judgement: Judgement
) -> None:
    """A member receives offset 2 at 131, then 3 and 4. Only the first one shows whether op 1 was sent later."""
    group = Group()
    group.commit(5)
    lost = [append(7 + offset, offset, at=10) for offset in (2, 3, 4)]
    calls = [APPENDS[0], *lost, delivery(30, (0, 0), (2, 9)), delivery(31, (3, 10), (4, 11))]
    calls += [replace(append(1, 1, at=sent_at), res=None, outcome="info"), *final_read(80, 0, 1)]
    states = [state(2, 1, [1, 2, 3], epoch=0), state(300, 2, [2], epoch=1, flagged=True)]
    tables = run(calls, states=states, group_events=group.rows)
    (anomaly,) = found(judge_run(tables, replace(CONTEXT, sparse_offsets=True)))
    assert (anomaly.details["offsets"], anomaly.judgement) == ([1], judgement)


def of_empty_end(
    *later: Call,
    polls: Sequence[Call] = (delivery(30, (0, 0)),),
    flagged: bool = True,
    sparse: bool = True,
    group: Group | None = None,
) -> list[Judgement]:
    """Judges a group that receives offset 0 and commits 2 at 230; offset 1 was taken, and had no record.

    Args:
        later: What else clients append; the final reads return it at offset 1.
        polls: How the group received offset 0, unless it is a poll of member 70 at 130 that began there.
        flagged: Whether the election at 300, which loses the end of the log, is flagged.
        sparse: Whether offsets may be missing.
        group: The group, if it has events before that commit. Member 70 sends the commit.
    """
    group = group or Group()
    group.member = MEMBER
    group.commit(2)
    events = [{**row, "at_ns": 230 + row["at_ns"] - group.rows[-2]["at_ns"]} for row in group.rows]
    calls = [APPENDS[0], *polls, *later]
    calls += final_read(80, 0, *(call.op for call in later))
    states = [
        state(2, 1, [1, 2, 3], epoch=0),
        state(50, 3, [2, 3], epoch=1),
        state(300, 2, [2], epoch=2, flagged=flagged),
    ]
    tables = run(calls, states=states, group_events=events)
    verdict = judge_run(tables, replace(CONTEXT, sparse_offsets=sparse))
    return [anomaly.judgement for anomaly in found(verdict)]


def test_a_member_passes_the_end_of_a_log_that_has_no_records_for_it() -> None:
    """Op 1 is written at offset 1 when a flagged election has lost that end."""
    later = append(1, 1, at=400)
    assert of_empty_end(later) == [Judgement.EXCUSED]
    assert of_empty_end(later, flagged=False) == [Judgement.FORBIDDEN]
    assert of_empty_end(later, sparse=False) == [Judgement.FORBIDDEN]


@pytest.mark.parametrize(
    ("sent", "judgement"),
    [
        (append(1, 1, at=10), Judgement.FORBIDDEN),
        # It may have been written before the member read, or after the election.
        (replace(append(1, 1, at=10), res=None, outcome="info"), Judgement.UNDECIDED),
        # The member had read when it was sent.
        (replace(append(1, 1, at=132), res=None, outcome="info"), Judgement.EXCUSED),
        (replace(append(1, 1, at=131), res=None, outcome="info"), Judgement.UNDECIDED),
    ],
)
def test_a_record_that_may_have_been_at_the_end_of_the_log_may_have_been_skipped(
    sent: Call, judgement: Judgement
) -> None:
    assert of_empty_end(sent) == [judgement]


@pytest.mark.parametrize(
    ("poll", "judgement"),
    [
        # The member that committed went over offset 1 in its last poll that began there or below.
        ({"inv": 230, "res": 241}, Judgement.EXCUSED),
        ({"inv": 231, "res": 241}, Judgement.FORBIDDEN),
        ({"process": 71}, Judgement.FORBIDDEN),
        ({"position": 2, "records": ()}, Judgement.FORBIDDEN),
        # Where it began, or when its records were fetched, is not known. Another election was at 50.
        ({"position": -1}, Judgement.UNDECIDED),
        ({"epoch": FETCHED_AHEAD}, Judgement.UNDECIDED),
    ],
)
def test_the_poll_that_passed_the_end_of_the_log_is_known(
    poll: dict[str, Any], judgement: Judgement
) -> None:
    later = append(1, 1, at=400)
    assert of_empty_end(later, polls=[replace(delivery(30, (0, 0)), **poll)]) == [judgement]


def test_a_poll_that_begins_at_an_offset_passes_it() -> None:
    """Member 71 receives offset 0, and 70 begins at offset 1, where it gets no record."""
    received = delivery(30, (0, 0), process=71)
    empty = Call(op=31, kind="poll", process=MEMBER, inv=140, res=141, position=1)
    judgements = []
    for position in (1, 2):
        polls = [received, replace(empty, position=position)]
        judgements += of_empty_end(append(1, 1, at=400), polls=polls, group=Group(member=71))
    assert judgements == [Judgement.EXCUSED, Judgement.FORBIDDEN]


def test_a_member_that_passes_the_end_lawfully_does_not_excuse_one_that_skipped_it() -> None:
    """Member 71 began behind offset 1 and committed 2. Then member 70 was assigned offset 0 and went over 1."""
    later = append(1, 1, at=400)
    behind = Call(op=29, kind="poll", process=71, inv=120, res=121, position=2)
    polls = [behind, delivery(30, (0, 0))]
    group = Group(member=71)
    assert of_empty_end(later, polls=polls, group=group) == [Judgement.EXCUSED]
    group = Group(member=71)
    group.commit(2)
    group.member = MEMBER
    group.note("assigned", 0)
    assert of_empty_end(later, polls=polls, group=group) == [Judgement.FORBIDDEN]


def test_the_epochs_of_records_show_that_a_skipped_one_was_in_a_later_log() -> None:
    unknown = replace(append(1, 1, at=10), res=None, outcome="info")
    stamped = [state(2, 1, [1, 2, 3], epoch=0), state(300, 2, [2], epoch=1, flagged=True)]
    judgements = []
    for epoch in (0, 1):
        group = Group()
        group.commit(3)
        calls = [APPENDS[0], replace(APPENDS[2], op=9, offset=2), unknown]
        calls += [replace(delivery(30, (0, 0), (2, 9)), stamps=(0, 0))]
        poll, *rest = final_read(80, 0, 1)
        calls += [replace(poll, stamps=(0, epoch)), *rest]
        tables = run(calls, states=stamped, group_events=group.rows)
        (anomaly,) = found(judge_run(tables, replace(CONTEXT, sparse_offsets=True)))
        judgements.append(anomaly.judgement)
    assert judgements == [Judgement.UNDECIDED, Judgement.EXCUSED]


def test_reads_by_a_process_outside_the_group_are_not_deliveries_to_the_group() -> None:
    group = Group()
    group.commit(1)
    assert len(found(judged(group, delivery(30, (0, 0), process=71)))) == 1
    assert found(judged(group, delivery(30, (0, 0)))) == []


def test_any_member_may_have_received_the_record() -> None:
    group = Group()
    group.member = 71
    group.note("assigned")
    group.commit(2)
    deliveries = (delivery(30, (0, 0)), delivery(31, (1, 1), process=71))
    assert found(judged(group, *deliveries)) == []


@pytest.mark.parametrize("seen", [4, NOTHING_COMMITTED])
def test_a_committed_offset_that_went_back_is_a_finding(seen: int) -> None:
    group = Group()
    group.commit(3)
    group.commit(7)
    group.sees(seen)
    everything = delivery(30, (0, 0), (1, 1), (2, 2))
    (anomaly,) = found(judged(group, everything))
    assert (anomaly.id, anomaly.count) == ("committed-offset-regressed", 1)
    assert "a commit of offset 7 was acknowledged" in anomaly.sentence
    assert ("nothing is committed" if seen < 0 else "offset 4 is committed") in anomaly.sentence
    assert anomaly.judgement == Judgement.FORBIDDEN
    # An election of this partition loses no commit: the coordinator has them in another one. Whether there was a
    # flagged election of that one is not recorded.
    for flagged, judgement in ((True, Judgement.UNDECIDED), (False, Judgement.FORBIDDEN)):
        (other,) = found(judged(group, everything, flagged=flagged, elected_at=45))
        assert other.judgement == judgement


@pytest.mark.parametrize("seen", [1, NOTHING_COMMITTED])
def test_what_the_coordinator_reported_may_not_go_back_either(seen: int) -> None:
    everything = delivery(30, (0, 0), (1, 1), (2, 2))
    group = Group()
    group.note("commit-sent", 3)  # its acknowledgement was lost
    group.sees(3)
    assert found(judged(group, everything)) == []
    group.sees(seen)
    (anomaly,) = found(judged(group, everything))
    assert (anomaly.id, anomaly.judgement) == ("committed-offset-regressed", Judgement.FORBIDDEN)
    assert "the coordinator reported that offset 3 is committed, and afterwards" in anomaly.sentence
    explained = Group()
    explained.note("commit-sent", 1)
    explained.sees(3)
    explained.sees(1)
    assert found(judged(explained, everything)) == []


def test_an_offset_that_the_coordinator_reports_is_committed() -> None:
    group = Group()
    group.sees(3)
    (anomaly,) = found(judged(group, delivery(30, (0, 0))))
    assert (anomaly.id, anomaly.count) == ("group-skipped-record", 2)
    assert found(judged(group, delivery(30, (0, 0), (1, 1), (2, 2)))) == []


def test_every_observation_of_a_regressed_offset_counts() -> None:
    group = Group()
    group.commit(2)
    group.sees(1)
    group.sees(2)
    group.sees(0)
    (anomaly,) = found(judged(group, delivery(30, (0, 0), (1, 1))))
    assert anomaly.count == 3, "the second one is what was committed, but not after the first one"
    assert "offset 1 is committed" in anomaly.sentence


def test_a_commit_without_a_response_may_be_applied_late() -> None:
    group = Group()
    everything = delivery(30, (0, 0), (1, 1), (2, 2))
    group.note("commit-sent", 4)
    group.commit(7)
    group.sees(4)
    assert found(judged(group, everything)) == []
    group.sees(5)
    assert len(found(judged(group, everything))) == 1


def test_the_last_acknowledged_commit_counts() -> None:
    everything = delivery(30, (0, 0), (1, 1), (2, 2))
    group = Group()
    group.commit(3)
    group.commit(1)
    group.sees(1)
    assert found(judged(group, everything)) == []
    group.sees(0)
    group.commit(3)
    group.sees(1)
    (anomaly,) = found(judged(group, everything))
    assert anomaly.count == 2, "0 was never committed, and 3 is the last commit"


def test_of_two_commits_at_once_either_may_be_the_last() -> None:
    everything = delivery(30, (0, 0), (1, 1), (2, 2))
    group = Group()
    for event in ("commit-sent", "commit-acknowledged"):
        for offset in (1, 3):
            group.note(event, offset)
    asked = group.note("committed-asked")
    group.commit(1)
    group.note("committed-seen", 3, asked)
    group.sees(1)
    assert found(judged(group, everything)) == [], "the response shows what was there before"
    group.sees(3)
    assert len(found(judged(group, everything))) == 1


def test_two_reports_at_once_show_in_which_order_two_commits_took_effect() -> None:
    everything = delivery(30, (0, 0), (1, 1), (2, 2))
    group = Group()
    for event in ("commit-sent", "commit-acknowledged"):
        for offset in (1, 3):
            group.note(event, offset)
    questions = [group.note("committed-asked") for _ in range(2)]
    group.note("committed-seen", 1, questions[0])
    group.note("committed-seen", 1, questions[1])
    assert found(judged(group, everything)) == []
    group.rows[-1]["offset"] = 3
    (anomaly,) = found(judged(group, everything))
    assert (anomaly.count, anomaly.judgement) == (1, Judgement.FORBIDDEN)


@pytest.mark.parametrize("last", [2, 3])
def test_a_forgotten_commit_may_be_smaller_than_the_one_that_is_reported(last: int) -> None:
    everything = delivery(30, (0, 0), (1, 1), (2, 2))
    group = Group()
    group.commit(3)
    group.commit(2)
    group.sees(last)
    anomalies = found(judged(group, everything))
    assert [each.judgement for each in anomalies] == [Judgement.FORBIDDEN] * (last == 3)
    assert all("a commit of offset 2 was acknowledged" in each.sentence for each in anomalies)
    # Sent again, or not answered the first time: either may be what was applied last.
    for again in (0, 2):
        explained = Group()
        explained.commit(3)
        explained.note("commit-sent", 3)
        explained.commit(2)
        del explained.rows[1 + again : 3]
        for index, row in enumerate(explained.rows):
            row.update(event_index=index, at_ns=10 * index)
        explained.sees(last)
        assert found(judged(explained, everything)) == []


def test_an_acknowledgement_belongs_to_the_commit_of_its_member() -> None:
    """Process 71 committed 3 and died without a response before member 70 committed 1 and then 3."""
    everything = delivery(30, (0, 0), (1, 1), (2, 2))
    group = Group()
    group.note("commit-sent", 3)
    group.rows[-1]["process"] = 71
    group.commit(1)
    group.commit(3)
    group.sees(1)
    (anomaly,) = found(judged(group, everything))
    assert anomaly.judgement == Judgement.FORBIDDEN
    # One member sent 3 before 1 and got the response after it: either may be what was applied last.
    group = Group()
    group.note("commit-sent", 3)
    group.commit(1)
    group.note("commit-acknowledged", 3)
    group.sees(1)
    assert found(judged(group, everything)) == []


@pytest.mark.parametrize("flagged", [False, True])
def test_a_committed_offset_that_nobody_sent_is_never_excused(flagged: bool) -> None:
    everything = delivery(30, (0, 0), (1, 1), (2, 2))
    group = Group()
    group.sees(2)
    group.note("commit-sent", 2)
    verdict = judged(group, everything, flagged=flagged, elected_at=15)
    (anomaly,) = [each for each in verdict.anomalies if each.id == "phantom-commit"]
    assert (anomaly.count, anomaly.judgement) == (1, Judgement.FORBIDDEN)
    assert anomaly.sentence == (
        "group g: the coordinator reported that offset 2 is committed, and no member had sent a commit of it"
    )
    explained = Group()
    explained.note("commit-sent", 2)
    explained.sees(2)
    assert judged(explained, everything).validity == Validity.VALID


def test_a_commit_sent_after_the_response_explains_nothing() -> None:
    group = Group()
    group.commit(7)
    group.sees(4)
    group.note("commit-sent", 4)
    assert len(found(judged(group, delivery(30, (0, 0), (1, 1), (2, 2))))) == 1


def test_a_commit_acknowledged_after_the_request_proves_nothing() -> None:
    group = Group()
    asked = group.note("committed-asked")
    group.commit(7)
    group.note("committed-seen", NOTHING_COMMITTED, asked)
    everything = delivery(30, (0, 0), (1, 1), (2, 2))
    assert found(judged(group, everything)) == []
    group.note("committed-seen", NOTHING_COMMITTED, -1)
    assert found(judged(group, everything)) == [], "a question that was not recorded"


def test_only_final_reads_show_what_the_log_holds() -> None:
    group = Group()
    group.commit(3)
    calls = [*APPENDS, delivery(30, (0, 0), (1, 1)), delivery(31, (2, 2), process=5)]
    tables = run([*calls, *final_read(80, 0, 1)], group_events=group.rows)
    assert found(judge_run(tables, CONTEXT)) == []
    tables = run([*calls, *final_read(80, 0, 1, 2)], group_events=group.rows)
    assert len(found(judge_run(tables, CONTEXT))) == 1


def test_groups_are_judged_separately_and_row_order_does_not_matter() -> None:
    one, other = Group("one"), Group("other", member=71)
    one.commit(2)
    other.commit(1)
    later = {"event_index": 50, "at_ns": 500}
    rows = [*one.rows, *(row | {k: row[k] + by for k, by in later.items()} for row in other.rows)]
    deliveries = (delivery(30, (0, 0)), delivery(31, (0, 0), process=71))
    verdict = judged(one, *deliveries, events=rows)
    (anomaly,) = found(verdict)
    assert anomaly.sentence.startswith("group one: offset 2 is committed")
    assert judged(one, *deliveries, events=rows[::-1]) == verdict
    assert verdict.coverage["group_commits"] == 2


def test_a_workload_without_a_group_has_no_group_findings() -> None:
    group = Group()
    group.commit(3)
    assert found(judged(group, context=RunContext())) == []


def test_a_partition_used_only_by_a_group_is_judged() -> None:
    group = Group()
    group.commit(1)
    group.commit(3)
    group.sees(1)
    verdict = judge_run(run([], group_events=group.rows), CONTEXT)
    assert [anomaly.id for anomaly in verdict.anomalies] == ["committed-offset-regressed"]
    judgement = judge_partition("t", 0, run([], group_events=group.rows), CONTEXT)
    assert judgement.anomalies == verdict.anomalies


def test_run_counters_are_the_sums_of_its_groups() -> None:
    group = Group()
    group.commit(2)
    calls = [*APPENDS, delivery(30, (0, 0), (1, 1)), delivery(31, (1, 1))]
    assert group_counters(run(calls, group_events=group.rows)) == {
        "group_assignments": 1,
        "group_commits": 1,
        "group_records": 2,
    }
    assert group_counters(run(calls)) == {}
