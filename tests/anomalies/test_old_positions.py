"""Records that were processed twice because a coordinator that was replaced, and does not know it, was asked.

Every event is a millisecond after the one before it. The group "g" has its records in partition 3 of 4.
"""

from dataclasses import replace
from typing import Any

import pytest

from harness.contracts.verdict import Judgement, Validity, Verdict
from tests.anomalies.recorded_anomalies import judgements
from tests.anomalies.recorded_transactions import CONTEXT, A, B, Events, producer
from tests.anomalies.runs import broker, fault, state, table

MS = 1_000_000
PARTITION = 3
OTHER = 2
REPEATED = "input-processed-twice"


def elected(
    at_ms: float, *isr: int, leader: int = 2, epoch: int = 1, partition: int = PARTITION
) -> dict[str, Any]:
    """Returns a state of a partition of the offsets topic from some moment on."""
    row = state(int(at_ms * MS), leader, list(isr), epoch=epoch)
    return {
        **row,
        "topic": "__consumer_offsets",
        "partition": partition,
        "replicas": [1, 2, 3],
        "min_isr": 2,
    }


def judged(
    events: Events,
    *elections: dict[str, Any],
    brokers: tuple[dict[str, Any], ...] = (),
    clock_error_ms: int = 0,
) -> Verdict:
    """Judges a run; broker 1 leads all partitions of the offsets topic at first."""
    first = [elected(0, 1, 2, 3, leader=1, epoch=0, partition=index) for index in range(4)]
    rows = [{**row, "metadata_offset": index} for index, row in enumerate((*first, *elections))]
    return events.verdict(
        replace(CONTEXT, clock_error_ns=clock_error_ms * MS),
        partition_states=table("partition_states", rows),
        broker_states=table("broker_states", list(brokers)),
    )


class Group:
    """Two committed records of an input, and the processors of a group. Mutable."""

    def __init__(self) -> None:
        self.events = Events()
        one = producer(self.events, 1)
        self.records = [self.events.send(one, 0, A, 0), self.events.send(one, 1, A, 1)]
        self.events.commit(one)
        self.outputs: list[tuple[int, int]] = []

    def begin(self, process: int) -> int:
        """A processor takes its id over and begins; returns its transaction."""
        self.events.initialised(process, "processor")
        return self.again(process)

    def again(self, process: int) -> int:
        """A processor begins once more; returns its transaction."""
        return self.events.begin(
            process, transactional_id="processor", group="g", isolation="read_committed"
        )

    def consume(self, number: int, *offsets: int) -> None:
        """A transaction polls some records."""
        self.events.poll(number, 0, A, [(offset, self.records[offset]) for offset in offsets])

    def position(self, number: int, offset: int) -> None:
        """A transaction sends a record and a position of the group."""
        place = len(self.outputs)
        self.outputs.append((place, self.events.send(number, 1, B, place)))
        self.events.note(number, "offset", A, number=2, offset=offset)

    def processed(self, process: int, *offsets: int) -> int:
        """A new processor consumes some records and commits; returns when it began, in milliseconds."""
        begun = len(self.events.rows)
        self.run(self.begin(process), *offsets, position=offsets[-1] + 1)
        return begun

    def run(self, number: int, *offsets: int, position: int) -> None:
        """A transaction consumes some records and commits a position."""
        self.consume(number, *offsets)
        self.position(number, position)
        self.events.commit(number)

    def end(self) -> Events:
        """Returns all events, with the closing reads."""
        self.events.closing(a=[*enumerate(self.records)], b=self.outputs)
        return self.events


def twice() -> tuple[Events, int]:
    """Returns a run in which two processors consumed record 0, and when the second one was there first."""
    group = Group()
    group.processed(2, 0)
    second = group.processed(3, 0)
    return group.end(), second


def test_a_coordinator_that_does_not_know_that_it_was_replaced_leaves_it_undecided() -> None:
    """Smallest history: the first processor commits with the new coordinator, the second one asks the old one."""
    events, _ = twice()
    assert judgements(judged(events))[REPEATED] is Judgement.FORBIDDEN
    verdict = judged(events, elected(9, 2, 3))
    assert judgements(verdict)[REPEATED] is Judgement.UNDECIDED
    assert verdict.validity is Validity.UNKNOWN
    (reason,) = verdict.reasons
    assert "may have reported an older position" in reason


def test_a_coordinator_whose_election_is_read_late_may_have_been_replaced_before() -> None:
    """The election is read after the second processor has polled."""
    events, _ = twice()
    late = elected(POLLED_MS + 2, 2, 3)
    assert judgements(judged(events, late))[REPEATED] is Judgement.FORBIDDEN
    for after_ms, judgement in (
        (COMMIT_ASKED_MS, Judgement.UNDECIDED),
        (COMMIT_ASKED_MS + 0.5, Judgement.FORBIDDEN),
    ):
        verdict = judged(events, {**late, "after_ns": int(after_ms * MS)})
        assert judgements(verdict)[REPEATED] is judgement


COMMIT_ASKED_MS, SECOND_MS, POLLED_MS = 14, 16, 18
"""In `twice`: the first processor requests its commit, the second one begins, and polls."""


@pytest.mark.parametrize(
    ("elections", "brokers", "judgement"),
    [
        ([elected(COMMIT_ASKED_MS, 2, 3)], (), Judgement.UNDECIDED),
        ([elected(COMMIT_ASKED_MS + 0.5, 2, 3)], (), Judgement.FORBIDDEN),
        ([elected(9, 2, 3), elected(SECOND_MS, 1, 2, 3)], (), Judgement.UNDECIDED),
        ([elected(9, 2, 3), elected(SECOND_MS - 0.5, 1, 2, 3)], (), Judgement.FORBIDDEN),
        ([elected(9, 2, 3)], (broker(SECOND_MS * MS, 1, "registered"),), Judgement.UNDECIDED),
        ([elected(9, 2, 3)], (broker(15 * MS, 1, "registered"),), Judgement.FORBIDDEN),
        ([elected(9, 1, 2, 3), elected(COMMIT_ASKED_MS, 2, 3)], (), Judgement.UNDECIDED),
        ([elected(9, 1, 2, 3), elected(COMMIT_ASKED_MS + 0.5, 2, 3)], (), Judgement.FORBIDDEN),
        ([elected(9, 2, 3, partition=OTHER)], (), Judgement.FORBIDDEN),
    ],
    ids=[
        "replaced-before-the-commit",
        "it-knew-the-position",
        "in-the-isr-again-when-it-was-asked",
        "in-the-isr-again-before",
        "started-again-when-it-was-asked",
        "started-again-before",
        "out-of-the-isr-before-the-commit",
        "in-the-isr-at-the-commit",
        "of-another-group",
    ],
)
def test_it_explains_what_it_may_not_have_known(
    elections: list[dict[str, Any]], brokers: tuple[dict[str, Any], ...], judgement: Judgement
) -> None:
    events, second = twice()
    assert [(row["event"], row["at_ns"]) for row in events.rows if row["process"] == 3][:3] == [
        ("initialised", second * MS),
        ("begin", (second + 1) * MS),
        ("poll", POLLED_MS * MS),
    ]
    assert (second, events.rows[COMMIT_ASKED_MS]["event"]) == (SECOND_MS, "commit-asked")
    assert judgements(judged(events, *elections, brokers=brokers))[REPEATED] is judgement


def test_without_a_record_of_the_elections_a_fault_may_have_caused_it() -> None:
    events, _ = twice()
    context = replace(CONTEXT, acked_during_faults_min=0)
    faults = table("faults", [fault(5, "pause", ["b1"], healed=60)])
    assert judgements(events.verdict(context))[REPEATED] is Judgement.FORBIDDEN
    assert judgements(events.verdict(context, faults=faults))[REPEATED] is Judgement.UNDECIDED
    data = {**elected(0, 1, 2, 3, leader=1, epoch=0), "topic": "t", "partition": 0}
    states = table("partition_states", [data])
    verdict = events.verdict(context, faults=faults, partition_states=states)
    assert judgements(verdict)[REPEATED] is Judgement.UNDECIDED


def test_clocks_that_differ_leave_it_undecided() -> None:
    events, _ = twice()
    verdict = judged(events, elected(COMMIT_ASKED_MS + 2, 2, 3), clock_error_ms=2)
    assert judgements(verdict)[REPEATED] is Judgement.UNDECIDED
    verdict = judged(events, elected(COMMIT_ASKED_MS + 2, 2, 3), clock_error_ms=1)
    assert judgements(verdict)[REPEATED] is Judgement.FORBIDDEN


@pytest.mark.parametrize(
    ("clock_error_ms", "judgement"), [(4, Judgement.FORBIDDEN), (5, Judgement.UNDECIDED)]
)
def test_a_position_was_known_if_it_certainly_was_before_the_poll(
    clock_error_ms: int, judgement: Judgement
) -> None:
    """The commit was requested 4 ms before the poll, and the coordinator was replaced after it."""
    events, _ = twice()
    assert POLLED_MS - COMMIT_ASKED_MS == 4
    replaced = elected(COMMIT_ASKED_MS + clock_error_ms + 0.5, 2, 3)
    verdict = judged(events, replaced, clock_error_ms=clock_error_ms)
    assert judgements(verdict)[REPEATED] is judgement


@pytest.mark.parametrize(
    ("clock_error_ms", "judgement"),
    [(0, Judgement.FORBIDDEN), (3, Judgement.FORBIDDEN), (4, Judgement.UNDECIDED)],
)
def test_a_commit_after_the_poll_needs_no_old_coordinator(
    clock_error_ms: int, judgement: Judgement
) -> None:
    """The first processor requests its commit 4 ms after the second one has polled, which began rightly."""
    group = Group()
    first = group.begin(2)
    group.consume(first, 0)
    group.position(first, 1)
    second = group.begin(3)
    polled = len(group.events.rows)
    group.consume(second, 0)
    group.position(second, 1)
    for number in (first, second):
        group.events.commit(number)
    events = group.end()
    assert [row["event"] for row in events.rows].index("commit-asked", polled) - polled == 4
    verdict = judged(events, elected(9, 2, 3), clock_error_ms=clock_error_ms)
    assert judgements(verdict)[REPEATED] is judgement


@pytest.mark.parametrize(
    ("processes", "judgement"),
    [((3, 4), Judgement.UNDECIDED), ((3, 3), Judgement.FORBIDDEN)],
)
def test_all_but_one_need_the_explanation(processes: tuple[int, int], judgement: Judgement) -> None:
    """Three transactions consume record 0; a process that consumed it itself asks again after it came back."""
    group = Group()
    group.processed(2, 0)
    one, other = processes
    group.processed(one, 0)
    again = len(group.events.rows)
    if other == one:
        group.run(group.again(other), 0, position=1)
    else:
        group.processed(other, 0)
    back = elected(again - 2.5 if other == one else again + 0.5, 1, 2, 3)
    verdict = judged(group.end(), elected(9, 2, 3), back)
    assert judgements(verdict)[REPEATED] is judgement


def test_a_later_transaction_of_a_process_goes_on_where_it_was_told_to_begin() -> None:
    """The old coordinator came back into the ISR in between."""
    group = Group()
    group.processed(2, 0, 1)
    group.processed(3, 0)
    back = elected(len(group.events.rows) - 0.5, 1, 2, 3)
    group.run(group.again(3), 1, position=2)
    verdict = judged(group.end(), elected(9, 2, 3), back)
    assert [(one.count, one.judgement) for one in verdict.anomalies if one.id == REPEATED] == [
        (2, Judgement.UNDECIDED)
    ]


@pytest.mark.parametrize(
    ("position", "judgement"), [(1, Judgement.UNDECIDED), (2, Judgement.FORBIDDEN)]
)
def test_the_last_position_counts_also_if_it_is_smaller(
    position: int, judgement: Judgement
) -> None:
    """The second processor began at an old position; the third one asks when the old coordinator knows."""
    group = Group()
    group.processed(2, 0, 1)
    group.run(group.begin(3), 0, position=position)
    back = elected(len(group.events.rows) - 0.5, 1, 2, 3)
    group.processed(4, 1)
    verdict = judged(group.end(), elected(9, 2, 3), back)
    assert judgements(verdict)[REPEATED] is judgement


@pytest.mark.parametrize(
    ("less_ms", "judgement"), [(0, Judgement.UNDECIDED), (1, Judgement.FORBIDDEN)]
)
def test_an_earlier_position_may_be_the_last_one_if_clocks_differ_enough(
    less_ms: int, judgement: Judgement
) -> None:
    """Positions 1 and 2 were committed in this order, by clocks that may differ as much as they are apart."""
    group = Group()
    group.processed(2, 0)
    group.processed(3, 1)
    asked = [row["at_ns"] // MS for row in group.events.rows if row["event"] == "commit-asked"]
    apart_ms = asked[-1] - asked[-2]
    # Then nothing until both are certainly committed.
    for _ in range(apart_ms):
        group.events.initialised(9, "idle")
    group.processed(4, 1)
    verdict = judged(group.end(), clock_error_ms=apart_ms - less_ms)
    assert judgements(verdict)[REPEATED] is judgement


def test_one_record_without_the_explanation_is_enough() -> None:
    """Record 0 was consumed before the coordinator was replaced, record 1 afterwards."""
    group = Group()
    group.processed(2, 0)
    replaced = elected(len(group.events.rows), 2, 3)
    group.processed(3, 1)
    group.processed(4, 0, 1)
    verdict = judged(group.end(), replaced)
    (anomaly,) = (one for one in verdict.anomalies if one.id == REPEATED)
    assert (anomaly.count, anomaly.judgement) == (2, Judgement.FORBIDDEN)
    assert "both consumed offset 0 of" in anomaly.sentence


def test_a_position_that_is_not_behind_the_record_may_be_known() -> None:
    """The old coordinator knew position 1, which is where the second processor of record 1 begins."""
    group = Group()
    group.processed(2, 0)
    replaced = elected(len(group.events.rows), 2, 3)
    group.processed(3, 1)
    group.processed(4, 1)
    assert judgements(judged(group.end(), replaced))[REPEATED] is Judgement.UNDECIDED


@pytest.mark.parametrize(
    ("outcome", "judgement"),
    [("unknown", Judgement.UNDECIDED), ("committed", Judgement.FORBIDDEN)],
)
def test_a_position_that_may_not_have_committed_was_not_certainly_known(
    outcome: str, judgement: Judgement
) -> None:
    """Another transaction sent a position before the coordinator was replaced."""
    group = Group()
    number = group.begin(2)
    group.consume(number, 1)
    group.position(number, 2)
    group.events.note(number, "commit-asked")
    group.events.note(number, outcome)
    # Without its output it is not known whether it committed.
    if outcome == "unknown":
        group.outputs.clear()
    replaced = elected(len(group.events.rows), 2, 3)
    group.processed(3, 0)
    group.processed(4, 0)
    assert judgements(judged(group.end(), replaced))[REPEATED] is judgement


def test_an_unknown_commit_that_is_proven_may_be_what_the_coordinator_did_not_know() -> None:
    """The first processor's response is lost, and its output is there."""
    group = Group()
    number = group.begin(2)
    group.consume(number, 0)
    group.position(number, 1)
    group.events.note(number, "commit-asked")
    group.events.note(number, "unknown")
    group.processed(3, 0)
    assert judgements(judged(group.end(), elected(9, 2, 3)))[REPEATED] is Judgement.UNDECIDED


@pytest.mark.parametrize(
    ("position", "judgement"), [(1, Judgement.FORBIDDEN), (2, Judgement.UNDECIDED)]
)
def test_a_processor_that_committed_too_little_was_not_told_an_old_position(
    position: int, judgement: Judgement
) -> None:
    """The first one processed records 0 and 1; the next one began at 1."""
    group = Group()
    group.run(group.begin(2), 0, 1, position=position)
    group.run(group.begin(3), 1, position=2)
    verdict = judged(group.end(), elected(9, 2, 3))
    assert judgements(verdict)[REPEATED] is judgement
