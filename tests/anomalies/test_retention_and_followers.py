"""Logs whose start moves, and reads from followers: what they permit, and what they must not hide."""

import random
from dataclasses import replace

import pytest

from checkers.anomalies import ANOMALIES
from checkers.kernels.linearizability import Options, PartitionReport, check_tables
from checkers.kernels.lost_acked import final_log
from harness.contracts.run_context import LOG_CHECKERS, RunContext
from harness.contracts.verdict import Judgement
from tests.anomalies.runs import Call, append, read, run, state
from tests.property.brute_force import ends_table, operations_table, records_table
from tests.property.cutting import differences, judged_as_a_whole

APPENDS = [append(op, op, at=1 + 2 * op) for op in range(4)]
"""Values 0 to 3 at offsets 0 to 3, acknowledged by 8."""


def check(calls: list[Call], **options: object) -> PartitionReport:
    return check_tables(
        operations_table(calls),
        records_table(calls),
        ends_table(calls),
        Options(**options),  # type: ignore[arg-type]
    )


def ids(calls: list[Call], **options: object) -> set[str]:
    return {finding.id for finding in check(calls, **options).findings}


def late(op: int, at: int, position: int, *records: tuple[int, int]) -> Call:
    """Returns a poll whose first record need not be at its position."""
    return Call(
        op=op, kind="poll", process=9, inv=at, res=at + 1, position=position, records=records
    )


SKIPS_TWO = late(10, 20, 0, (2, 2), (3, 3))


def test_a_read_may_begin_at_the_log_start_of_its_time() -> None:
    calls = [*APPENDS, SKIPS_TWO]
    assert ids(calls) == {"lost-record"}
    assert ids(calls, log_starts=((15, 2),)) == set()
    assert ids(calls, log_starts=((21, 2),)) == set(), "the start moved while it was read"
    assert ids(calls, log_starts=((22, 2),)) == {"lost-record"}, "the start moved only later"
    assert ids(calls, log_starts=((15, 1),)) == {"lost-record"}, "record 1 was still there"
    skips_one = [*APPENDS, late(10, 20, 0, (1, 1), (2, 2), (3, 3))]
    assert ids(skips_one, log_starts=((22, 1),)) == {"lost-record"}, "the log began at 0 before"


def test_a_record_above_the_log_start_must_not_be_skipped() -> None:
    calls = [*APPENDS, late(10, 20, 0, (1, 1), (3, 3))]
    assert ids(calls, log_starts=((15, 1),)) == {"lost-record"}
    assert ids(calls, log_starts=((15, 3),)) == {"lost-record"}, "it returned record 1"


def test_deleted_records_still_bound_the_order_of_appends() -> None:
    calls = [append(0, 1, at=1), append(1, 0, at=5), append(2, 2, at=9)]
    for given in ({"log_starts": ((20, 3),)}, {"log_start_offset": 3}):
        assert "order-inversion" in ids(calls, **given)
        assert "two-acks-one-offset" in ids([*APPENDS, append(9, 0, at=3)], **given)


def test_a_log_start_never_moves_back() -> None:
    calls = [*APPENDS, SKIPS_TWO]
    assert ids(calls, log_starts=((10, 2), (12, 0))) == set()


def test_a_poll_without_a_known_position_stays_one() -> None:
    history = check([*APPENDS, late(10, 20, -1, (2, 2))], log_starts=((15, 2),)).history
    assert history.poll_position.tolist() == [-1]


@pytest.mark.parametrize("start", [0, 2])
def test_the_final_reads_have_to_cover_the_log_from_its_last_start_on(start: int) -> None:
    calls = [*APPENDS, Call(**{**_fields(SKIPS_TWO), "final": True, "end": 4})]
    history = check(calls, log_starts=((15, 2),)).history
    assert final_log(history, log_start_offset=start).is_complete is (start == 2)


def _fields(call: Call) -> dict[str, object]:
    return {name: getattr(call, name) for name in Call.__slots__}


# --- what is said of offsets below the log start ---

START = 3
KEPT = append(3, 3, at=40)
"""Value 3 at the log start, offset 3, acknowledged at 41."""
LAST_READ = Call(
    op=90,
    kind="poll",
    process=9,
    inv=900,
    res=901,
    position=START,
    records=((3, 3),),
    end=4,
    final=True,
)
UNKNOWN = append(7, None, at=1, outcome="info")


def ask(op: int, at: int, end: int) -> Call:
    return Call(op=op, kind="latest", process=8, inv=at, res=at + 1, offset=end)


def broken(calls: list[Call], *, start: int = START) -> set[str]:
    """Returns what is forbidden in a run whose log starts at offset 3 in the end, however it is judged."""
    tables = run([*calls, KEPT, LAST_READ])
    context = RunContext(acked_during_faults_min=0, checkers=LOG_CHECKERS, log_start_offset=start)
    for seed in range(2):
        assert differences(tables, context, random.Random(seed)) == []
    found = judged_as_a_whole(tables, context).anomalies
    return {one.id for one in found if one.judgement is Judgement.FORBIDDEN}


CONTRADICTIONS: dict[str, tuple[set[str], list[Call], list[Call]]] = {
    "two acknowledgements": (
        {"two-acks-one-offset", "offset-reused"},
        [append(0, 0, at=1), append(1, 0, at=1)],
        [append(0, 0, at=1), append(1, 1, at=1)],
    ),
    "two values": (
        {"divergent-value"},
        [append(0, 0, at=1), UNKNOWN, read(10, 20, 7)],
        [append(0, 0, at=1), UNKNOWN, read(10, 20, 0, 7)],
    ),
    "a value twice": (
        {"duplicate"},
        [append(0, 0, at=1), read(10, 20, 0, start=1)],
        [append(0, 0, at=1), read(10, 20, 0)],
    ),
    "a value twice, once above the log start": (
        {"duplicate", "divergent-value", "visible-regress"},
        [append(0, 0, at=1), read(10, 50, 0, start=3)],
        [append(0, 0, at=1), read(10, 50, 0), read(11, 52, 3, start=3)],
    ),
    "a value that nobody sent": (
        {"phantom-value"},
        [read(10, 20, 55)],
        [UNKNOWN, read(10, 20, 7)],
    ),
    "a value of a failed append": (
        {"failed-append-visible"},
        [append(0, None, at=1, outcome="fail"), read(10, 20, 0)],
        [append(0, None, at=1, outcome="info"), read(10, 20, 0)],
    ),
    "a value that was read before it was sent": (
        {"future-read"},
        [append(0, 0, at=20), read(10, 18, 0)],
        [append(0, 0, at=20), read(10, 19, 0)],
    ),
    "appends in the other order": (
        {"order-inversion"},
        [append(0, 2, at=1), append(1, 0, at=3)],
        [append(0, 0, at=1), append(1, 2, at=3)],
    ),
    "an append with acks=1 that was read, in the other order": (
        {"order-inversion"},
        [append(0, 2, at=1), append(1, 1, at=3, acks=1), read(10, 50, 1, start=1)],
        [append(0, 2, at=1), append(1, 1, at=3, acks=1)],
    ),
    "an append that came after one above the log start": (
        {"order-inversion"},
        [append(0, 2, at=42)],
        [append(0, 2, at=41)],
    ),
    "an append below a log end": (
        {"late-insert"},
        [ask(10, 5, 2), append(0, 1, at=7)],
        [ask(10, 5, 1), append(0, 1, at=7)],
    ),
    "a process that sent in another order": (
        {"nonmonotonic-send", "order-inversion"},
        [append(0, 2, at=1), replace(append(1, 1, at=3), process=0)],
        [append(0, 1, at=1), replace(append(1, 2, at=3), process=0)],
    ),
    "a poll in another order": (
        {"unordered-poll"},
        [append(0, 0, at=1), append(1, 1, at=1), late(10, 20, 0, (1, 1), (0, 0))],
        [append(0, 0, at=1), append(1, 1, at=1), late(10, 20, 0, (0, 0), (1, 1))],
    ),
    "a poll that returned more than it said": (
        {"torn-fetch"},
        [append(0, 1, at=1), replace(late(10, 20, 0, (1, 0)), end=1)],
        [append(0, 1, at=1), replace(late(10, 20, 0, (1, 0)), end=2)],
    ),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_what_was_said_of_removed_records_must_not_contradict_itself(name: str) -> None:
    expected, smallest, near_miss = CONTRADICTIONS[name]
    assert broken(smallest) == expected
    assert broken(near_miss) == set()
    assert broken(smallest, start=0) >= expected, "as it is where nothing was removed"


@pytest.mark.parametrize(
    "calls",
    [
        [append(0, 0, at=1), append(1, 2, at=1)],
        [append(0, 0, at=1), append(1, 1, at=1), late(10, 50, 0, (0, 0), (3, 3))],
        [append(0, 0, at=1), late(10, 20, 0, (0, 0)), late(11, 50, 0, (3, 3))],
        [UNKNOWN, late(10, 20, 0, (2, 7))],
        [ask(10, 1, 2)],
    ],
    ids=["hole", "skipped", "no longer read", "unknown", "log end"],
)
def test_no_record_has_to_be_below_the_log_start(calls: list[Call]) -> None:
    assert broken(calls) == set()
    assert broken(calls, start=0) != set()


@pytest.mark.parametrize(("start", "name"), [(0, "lost-ack"), (1, "lost-ack"), (2, "stale-end")])
def test_a_record_below_the_log_start_is_not_lost_but_a_smaller_log_end_is_stale(
    start: int, name: str
) -> None:
    """Op 0 is at offset 1, and was never read. Then somebody received the log end 1."""
    calls = [append(1, 0, at=1), append(0, 1, at=1), append(2, 2, at=1), ask(10, 8, 1)]
    last = replace(read(11, 20, 2, start=2, end=3), final=True)
    assert ids([*calls, last], log_start_offset=start) == {name, "stale-end"}


def test_below_the_log_start_is_no_room_for_appends_where_others_were() -> None:
    """Op 5 succeeded and is nowhere. Offsets 1 and 2 have other records, and so has offset 0, or had it."""
    known = [append(1, 1, at=1), append(2, 2, at=1), append(5, None, at=1)]

    def judged(*calls: Call, forbidden: bool = False) -> set[str]:
        tables = run([*known, *calls, KEPT, LAST_READ])
        context = RunContext(acked_during_faults_min=0, log_start_offset=START)
        assert differences(tables, context, random.Random(1)) == []
        found = judged_as_a_whole(tables, context).anomalies
        return {one.id for one in found if not forbidden or one.judgement is Judgement.FORBIDDEN}

    nowhere = {"unplaced-append", "unseen"}
    assert judged() == set()
    assert judged(append(0, 0, at=1)) == nowhere
    # What may be lost leaves room for it.
    assert judged(append(0, 0, at=1, acks=1)) == {"unplaced-append"}
    assert not judged(append(0, 0, at=1, acks=1), forbidden=True)
    assert judged(append(0, 0, at=1, acks=1), read(10, 20, 0)) == nowhere


@pytest.mark.parametrize(
    ("before", "after", "sent_ns", "acked_ns", "fits"),
    [
        (0, 2, 4, 7, True),  # offset 1 is between those of the appends before it and after it
        (1, 2, 4, 7, False),  # offset 0 is free, but the append at 1 was complete when it was sent
        (1, 2, 3, 7, True),
        (0, 1, 4, 7, False),  # offset 2 is free, but the append at 1 was sent when it was complete
        (0, 1, 4, 8, True),
    ],
)
def test_below_the_log_start_appends_without_an_offset_keep_the_order_of_time(
    before: int, after: int, sent_ns: int, acked_ns: int, fits: bool
) -> None:
    """Op 5 has no offset; op 0 was appended in [2, 3], op 1 in [8, 9]. One offset below the start is free."""
    somewhere = replace(append(5, None, at=sent_ns), res=acked_ns)
    calls = [append(0, before, at=2), somewhere, append(1, after, at=8), KEPT, LAST_READ]
    context = RunContext(acked_during_faults_min=0, log_start_offset=START)
    tables = run(calls)
    found = judged_as_a_whole(tables, context)
    assert ("unplaced-append" in {one.id for one in found.anomalies}) == (not fits)
    for seed in range(8):
        assert differences(tables, context, random.Random(seed)) == []


def test_a_hole_above_the_log_start_needs_an_append_that_fits_there() -> None:
    """Op 5 was complete before the log had reached its start, so it is below it, and offset 4 is nobody's."""
    somewhere = replace(append(5, None, at=4), res=7)
    for sent_ns, found in ((8, {"skipped-offset", "unplaced-append"}), (7, {"skipped-offset"})):
        last = replace(LAST_READ, records=((3, 3), (5, 6)), end=6)
        calls = [somewhere, replace(KEPT, inv=sent_ns), append(6, 5, at=50), last]
        context = RunContext(acked_during_faults_min=0, log_start_offset=START)
        tables = run(calls)
        assert {one.id for one in judged_as_a_whole(tables, context).anomalies} == found
        assert differences(tables, context, random.Random(1)) == []


@pytest.mark.parametrize(
    ("at_ns", "judgement"), [(10, Judgement.EXCUSED), (30, Judgement.FORBIDDEN)]
)
@pytest.mark.parametrize("start", [0, START])
def test_an_election_excuses_below_the_log_start_what_it_excuses_above(
    start: int, at_ns: int, judgement: Judgement
) -> None:
    """A flagged election between both acknowledgements at offset 0, or after them."""
    calls = [append(0, 0, at=5), append(1, 0, at=20), append(2, 1, at=32), append(4, 2, at=34)]
    shown = ((0, 1), (1, 2), (2, 4), (3, 3))[start:]
    last = replace(LAST_READ, position=start, records=shown)
    states = [state(1, 1, [1], epoch=0), state(at_ns, 2, [2], epoch=1, flagged=True)]
    tables = run([*calls, KEPT, last], states=states)
    context = RunContext(
        elr_on=False,
        unclean_election_enabled=True,
        acked_during_faults_min=0,
        log_start_offset=start,
    )
    for seed in range(4):
        assert differences(tables, context, random.Random(seed)) == []
    found = {one.id: one.judgement for one in judged_as_a_whole(tables, context).anomalies}
    assert found["two-acks-one-offset"] is found["offset-reused"] is judgement


@pytest.mark.parametrize("flagged", [False, True])
def test_a_log_that_lost_its_end_may_have_grown_past_its_start_once_more(flagged: bool) -> None:
    """Op 5 was sent when the log had been past its start, offset 1. An election may have cut all of it before."""
    calls = [append(0, 0, at=1), append(1, 1, at=1), append(5, None, at=20), append(6, 1, at=30)]
    last = replace(LAST_READ, position=1, records=((1, 6),), end=2)
    states = [state(1, 1, [1], epoch=0), state(10, 2, [2], epoch=1, flagged=flagged)]
    tables = run([*calls, last], states=states)
    context = RunContext(
        elr_on=False, unclean_election_enabled=True, acked_during_faults_min=0, log_start_offset=1
    )
    for seed in range(4):
        assert differences(tables, context, random.Random(seed)) == []
    found = {one.id: one.judgement for one in judged_as_a_whole(tables, context).anomalies}
    assert (Judgement.FORBIDDEN in found.values()) != flagged
    assert ("unseen" in found) == flagged


# --- reads from followers ---


def follower_read(op: int, at: int, *values: int) -> Call:
    """Returns a poll of a follower, which reports its own high watermark as the end."""
    return read(op, at, *values, end=len(values))


def test_a_follower_that_lags_is_a_matter_of_freshness() -> None:
    calls = [
        *APPENDS,
        read(10, 20, 0, 1, 2, 3, end=4),
        follower_read(11, 30, 0, 1),
        follower_read(12, 40, 0),
    ]
    found = ids(calls)
    assert found == {"stale-end", "end-regression"}
    assert {ANOMALIES[identifier].level for identifier in found} == {"fresh"}


def test_a_follower_that_diverged_or_has_a_gap_is_not() -> None:
    other = append(7, None, at=1, outcome="info")
    assert "divergent-value" in ids([*APPENDS, other, follower_read(11, 30, 0, 7)])
    assert "lost-record" in ids([*APPENDS, late(11, 30, 0, (0, 0), (2, 2))])
