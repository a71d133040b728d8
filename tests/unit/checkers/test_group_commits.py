"""Which committed offsets contradict each other, and whose answers may be stale."""

from typing import Any

import numpy as np
import pytest

from checkers.kernels.coordinators import Coordinator, Deposed
from checkers.kernels.fates import UNDECIDED, UNEXCUSED
from checkers.kernels.group_commits import GroupJudge, Register, Report, register_of
from harness.contracts.run_context import RunContext
from tests.anomalies.runs import table

NAMES = {
    "send": "commit-sent",
    "ack": "commit-acknowledged",
    "ask": "committed-asked",
    "see": "committed-seen",
}
NEVER = 2**62
INFINITY_NS = 2**61


def registered(text: str) -> tuple[Register, tuple[Report, ...]]:
    """Returns what a register holds after some events, of which number n is at 10 n ns.

    Each event is its kind, with the number of the member, and for most kinds the offset. A response that
    refers to the request number n ends with `@n`.
    """
    rows: list[dict[str, Any]] = []
    for index, event in enumerate(text.split(", ")):
        words, _, refers_to = event.partition(" @")
        kind, process, *offset = words.split()
        rows.append(
            {
                "event_index": index,
                "at_ns": 10 * index,
                "group": "g",
                "process": int(process),
                "topic": "t",
                "partition": 0,
                "event": NAMES[kind],
                "offset": int(offset[0]) if offset else -1,
                "generation": -1,
                "refers_to": int(refers_to) if refers_to else -1,
            }
        )
    return register_of(table("group_events", rows))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # A response whose request is not known contradicts nothing.
        ("send 1 5, ack 1 5, see 1 -1", {2: []}),
        ("send 1 5, ack 1 5, ask 1, see 1 -1 @2", {3: [1]}),
        # A report proves that its offset was committed, offset 0 too.
        ("ask 1, see 1 0 @0, ask 1, see 1 -1 @2", {1: [], 3: [1]}),
        # No commit of offset 0 explains the reports of it, but nothing larger was committed either.
        ("ask 1, see 1 0 @0, ask 1, see 1 0 @2", {1: [], 3: []}),
        ("ask 1, see 1 1 @0, ask 1, see 1 0 @2", {1: [], 3: [1]}),
        # The report of 2 was requested before the commit of 1, but 2 was committed after it.
        ("ask 2, send 1 1, ack 1 1, send 1 2, see 2 2 @0, ask 1, see 1 1 @5", {4: [], 6: [4]}),
        # The commit of 1 has no response; it had taken effect when it was reported.
        (
            "send 1 1, ask 2, see 2 1 @1, send 1 2, ack 1 2, ask 2, see 2 1 @5",
            {2: [], 6: [4]},
        ),
        # One of two commits of 1 may take effect late.
        (
            "send 1 1, send 2 1, ask 3, see 3 1 @2, send 1 2, ack 1 2, ask 3, see 3 1 @6",
            {3: [], 7: []},
        ),
        # Two reports at once, of two commits that had taken effect before.
        (
            "send 1 0, send 2 2, ack 1 0, ack 2 2, ask 1, ask 2, see 1 0 @4, see 2 2 @5",
            {6: [], 7: [6]},
        ),
        (
            "send 1 0, send 2 2, ack 1 0, ack 2 2, ask 1, ask 2, see 2 2 @5, see 1 0 @4",
            {6: [], 7: [6]},
        ),
        # The same, but nothing is known of a commit of the one or of the other.
        ("send 1 1, ack 1 1, ask 1, ask 2, see 1 1 @2, see 2 2 @3", {4: [], 5: []}),
        ("send 1 1, ack 1 1, ask 1, ask 2, see 2 2 @3, see 1 1 @2", {4: [], 5: []}),
    ],
)
def test_a_report_contradicts_proofs_that_ended_before_it_was_requested(
    text: str, expected: dict[int, list[int]]
) -> None:
    register, reports = registered(text)
    found = {
        report.seen: register.proofs.end[register.contradicted_by(report)].tolist()
        for report in reports
    }
    assert found == expected


def test_a_report_whose_request_is_not_known_is_kept() -> None:
    register, reports = registered("see 1 3")
    assert reports == (Report(offset=3, asked=NEVER, seen=0, asked_ns=INFINITY_NS, seen_ns=0),)
    assert register.proofs.from_ns.tolist() == [0]


def test_the_first_event_may_be_the_request_of_a_report() -> None:
    _, reports = registered("ask 1, see 1 3 @0")
    assert reports == (Report(offset=3, asked=0, seen=1, asked_ns=0, seen_ns=10),)


def test_an_acknowledgement_whose_request_is_not_known_proves_its_offset_from_the_start() -> None:
    register, reports = registered("ack 1 3")
    assert reports == ()
    assert register.proofs.from_ns.tolist() == [0]
    assert register.proofs.end_ns.tolist() == [0]
    register, _ = registered("ask 2, ack 1 3")
    assert register.proofs.from_ns.tolist() == [0]
    assert register.took_effect(3, 0) == 1


def test_only_commits_that_were_sent_before_an_event_count() -> None:
    register, _ = registered("send 1 5, ack 1 5, send 1 5, ack 1 5")
    assert [register.was_sent(5, before) for before in (0, 1)] == [False, True]
    assert [register.took_effect(5, before) for before in (0, 1, 2, 3)] == [None, 1, 1, 3]


@pytest.mark.parametrize(
    ("text", "event"),
    [
        ("send 1 9, ack 1 9, send 1 5, ack 1 5, send 1 6, ack 1 6", 0),
        # The commit above the offset is of another member, or has no response.
        ("send 1 9, ack 1 9, send 1 5, ack 1 5, send 2 6, ack 2 6", -1),
        ("send 1 9, ack 1 9, send 1 5, ack 1 5, send 1 6", -1),
        # No member was at the offset or below it.
        ("send 1 9, ack 1 9, send 1 6, ack 1 6, send 1 7, ack 1 7", -1),
        # No member passed it: the last commit is of the offset itself.
        ("send 1 9, ack 1 9, send 1 5, ack 1 5, send 1 5, ack 1 5", -1),
        # Nothing was above the offset before.
        ("send 1 5, ack 1 5, send 1 6, ack 1 6", -1),
        # The last one of two members that passed the offset counts.
        ("send 1 9, send 1 0, ack 1 0, send 1 8, ack 1 8, send 2 0, ack 2 0, send 2 6, ack 2 6", 3),
        (
            "send 2 0, ack 2 0, send 1 9, send 1 0, ack 1 0, send 1 8, ack 1 8, send 2 6, ack 2 6",
            -1,
        ),
        # When a commit without a request was sent is not known.
        ("send 1 9, send 1 5, ack 1 5, ack 1 6", -1),
        ("ack 1 9, ack 1 5, send 1 6, ack 1 6", 0),
    ],
)
def test_what_was_committed_before_a_member_passed_an_offset_last(text: str, event: int) -> None:
    register, _ = registered(text)
    assert register.passed_since(5) == event


@pytest.mark.parametrize(
    ("text", "since", "expected"),
    [
        ("send 2 6, send 1 7", -1, (0, 2)),
        ("send 2 6, send 1 7", 0, (10, 1)),
        # A member that commits the offset itself has not passed its record.
        ("send 2 5, send 1 6", -1, (10, 1)),
        ("send 2 5", -1, (INFINITY_NS, -1)),
        ("send 2 6, send 1 7", 1, (INFINITY_NS, -1)),
    ],
)
def test_the_first_commit_above_an_offset_shows_who_passed_it(
    text: str, since: int, expected: tuple[int, int]
) -> None:
    register, _ = registered(text)
    assert register.passed(5, since) == expected


def test_moments_and_events_belong_together() -> None:
    register, _ = registered("send 1 5, ack 1 5")
    assert [register.at(at_ns) for at_ns in (-1, 0, 9, 10)] == [0, 1, 1, NEVER]
    assert [register.time_of(index) for index in (0, 1, NEVER)] == [0, 10, INFINITY_NS]


class OneDeposed(Coordinator):
    """Elections of which none lost a record, and which deposed one coordinator."""

    def __init__(self, deposed: Deposed) -> None:
        super().__init__("g", {}, RunContext())
        self.deposed = (deposed,)

    def losses(self, from_ns: Any, until_ns: Any) -> Any:
        return np.full(len(from_ns), UNEXCUSED, dtype=np.int8)

    def may_be_uncommitted(self, *_: Any) -> bool:
        return False


def outcome(text: str, *, from_ns: int, left_ns: int | None = None) -> int:
    """Returns what it means for the last report that a coordinator was deposed, and left the ISR."""
    deposed = Deposed(
        from_ns=from_ns,
        until_ns=from_ns,
        left_ns=from_ns if left_ns is None else left_ns,
        back_ns=INFINITY_NS,
    )
    register, reports = registered(text)
    return GroupJudge(register, OneDeposed(deposed)).contradiction(reports[-1]).outcome


GONE_BACK = "send 1 1, ack 1 1, send 1 2, ack 1 2, ask 1, see 1 1 @4"
"""Offset 2 is acknowledged at 30 ns."""


@pytest.mark.parametrize(
    ("from_ns", "left_ns", "expected"),
    [
        (29, None, UNDECIDED),
        (30, None, UNDECIDED),
        (31, None, UNEXCUSED),
        # It was still in the ISR when offset 2 was acknowledged.
        (29, 31, UNEXCUSED),
        (30, 31, UNEXCUSED),
    ],
)
def test_what_was_acknowledged_when_a_coordinator_was_deposed_may_be_missing_in_its_memory(
    from_ns: int, left_ns: int | None, expected: int
) -> None:
    assert outcome(GONE_BACK, from_ns=from_ns, left_ns=left_ns) == expected


@pytest.mark.parametrize("seen", [0, 3])
def test_no_coordinator_has_an_offset_in_its_memory_that_no_member_committed(seen: int) -> None:
    text = f"send 1 5, ack 1 5, ask 1, see 1 {seen} @2"
    assert outcome(text, from_ns=5) == UNEXCUSED
    text = f"send 1 {seen}, ack 1 {seen}, send 1 5, ack 1 5, ask 1, see 1 {seen} @4"
    assert outcome(text, from_ns=15) == UNDECIDED


@pytest.mark.parametrize(("sent_at", "expected"), [(0, UNDECIDED), (3, UNEXCUSED)])
def test_a_report_is_stale_only_if_its_offset_was_committed_before_the_coordinator_was_deposed(
    sent_at: int, expected: int
) -> None:
    """The coordinator is deposed at 5 ns. Offset 7 is reported, then offset 2, which was committed before."""
    events = ["ask 3", "send 1 2", "ack 1 2", "ask 1", "see 1 7 @4", "ask 1", "see 1 2 @6"]
    events.insert(sent_at, "send 2 7")
    assert outcome(", ".join(events), from_ns=5) == expected
