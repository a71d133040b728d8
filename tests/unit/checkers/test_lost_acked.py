"""What the final phase shows of a log: ranges that were read, the end, and which appends are present."""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from checkers.kernels.compose import judge_run
from checkers.kernels.elections import Elections
from checkers.kernels.facts import derive_facts
from checkers.kernels.findings import Finding
from checkers.kernels.history import PartitionHistory, read_history
from checkers.kernels.left_out import NOTHING, LeftOut
from checkers.kernels.lost_acked import (
    NO_RANGES,
    NOWHERE,
    FinalLog,
    LossReport,
    _is_shown,
    check_losses,
    final_log,
    has_room,
    merged,
    passed_between_polls,
)
from harness.contracts.run_context import RunContext
from harness.contracts.verdict import Validity
from harness.history.schema import TABLES
from tests.anomalies.claims import plain_reader
from tests.anomalies.runs import append, final_read, read, replica, run, state
from tests.property.brute_force import Call, ends_table, operations_table, records_table


def history(calls: list[Call], left_out: LeftOut = NOTHING) -> PartitionHistory:
    return read_history(operations_table(calls), records_table(calls), ends_table(calls), left_out)


def checked(
    calls: list[Call],
    *,
    log_start: int = 0,
    left_out: LeftOut = NOTHING,
    corrupt: tuple[int, ...] = (),
) -> LossReport:
    """Returns the losses of a run without elections; the records of some polls cannot be read."""
    operations, records = operations_table(calls), records_table(calls)
    is_corrupt = pc.is_in(records.column("op_index"), pa.array(corrupt, pa.int64()))
    status = pc.if_else(is_corrupt, "corrupt", records.column("status"))
    records = records.set_column(records.schema.get_field_index("status"), "status", status)
    history = read_history(operations, records, ends_table(calls), left_out)
    facts, _ = derive_facts(history, log_start_offset=log_start)
    nothing = {
        name: TABLES[name].empty_table()
        for name in ("partition_states", "replica_states", "broker_states", "faults")
    }
    elections = Elections(**nothing, elr_on=False)
    reader = plain_reader(history, operations, records, elections)
    more = {"log_start_offset": log_start} if log_start else {}
    return check_losses(history, facts, elections, reader, **more)


def ints(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


def ranges(final: FinalLog) -> list[tuple[int, int]]:
    return list(zip(final.starts.tolist(), final.stops.tolist(), strict=True))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], []),
        ([(0, 5), (1, 2), (3, 4)], [(0, 5)]),
        ([(3, 4), (0, 1), (1, 2)], [(0, 2), (3, 4)]),
        ([(0, 9), (2, 3), (9, 10), (11, 12)], [(0, 10), (11, 12)]),
    ],
)
def test_ranges_that_touch_or_overlap_are_one(
    given: list[tuple[int, int]], expected: list[tuple[int, int]]
) -> None:
    start, stop = merged(ints(*(a for a, _ in given)), ints(*(b for _, b in given)))
    assert list(zip(start.tolist(), stop.tolist(), strict=True)) == expected


@pytest.mark.parametrize("polls_before", [0, 1])
def test_a_final_poll_without_a_position_covers_from_its_first_record(polls_before: int) -> None:
    first = [read(op, 1, 7, final=True) for op in range(polls_before)]
    final = final_log(history([*first, read(5, 9, 8, 9, start=3, final=True)]))
    assert ranges(final)[-1] == (3, 5)
    unknown = Call(
        op=5, kind="poll", process=9, inv=9, res=10, records=((3, 8), (4, 9)), final=True
    )
    assert ranges(final_log(history([*first, unknown])))[-1] == (3, 5)


def test_records_of_polls_that_are_not_in_the_table_show_nothing() -> None:
    reading = read(5, 9, 1, final=True)
    calls = [append(1, 0, at=1)]
    final = final_log(
        read_history(operations_table(calls), records_table([*calls, reading]), ends_table(calls))
    )
    assert final.present.tolist() == [False]
    assert ranges(final) == []


@pytest.mark.parametrize(
    ("polled", "log_start", "is_complete"),
    [
        ([], 0, False),
        ([(0, 3)], 0, True),
        ([(0, 2)], 0, False),
        ([(1, 3)], 0, False),
        ([(1, 3)], 1, True),
        ([(0, 2), (2, 3)], 0, True),
        ([(0, 1), (2, 3)], 0, False),
        ([(0, 1), (2, 3)], 1, False),
        ([(0, 1), (2, 3)], 2, True),
        ([], 3, True),
    ],
)
def test_final_reads_are_complete_if_they_go_from_the_start_of_the_log_to_its_end(
    polled: list[tuple[int, int]], log_start: int, is_complete: bool
) -> None:
    polls = [
        read(5 + at, 10 + at, *range(90 + first, 90 + stop), start=first, final=True)
        for at, (first, stop) in enumerate(polled)
    ]
    end = Call(op=20, kind="latest", process=9, inv=30, res=31, offset=3, final=True)
    final = final_log(history([*polls, end]), log_start_offset=log_start)
    assert final.end_offset == 3
    assert final.is_complete is is_complete


# --- producers that send again without idempotence ---


def polled_last(op: int, records: tuple[tuple[int, int], ...], *, end: int) -> Call:
    """Returns the final read of a log from its start to its end."""
    poll = Call(op=op, kind="poll", process=9, inv=90, res=91, records=records)
    return replace(poll, position=0, final=True, end=end)


@pytest.mark.parametrize("at_least_once", [False, True])
@pytest.mark.parametrize(
    ("shown", "is_lost"),
    [
        ((0, 1, 0), False),  # both copies
        ((0, 1), True),  # the older copy is there, but not the record that was acknowledged
        ((None, 1, 0), False),
    ],
)
def test_an_older_copy_does_not_replace_the_record_that_was_acknowledged(
    shown: tuple[int | None, ...], is_lost: bool, at_least_once: bool
) -> None:
    """Op 0 was acknowledged at offset 2; a copy of it may be at offset 0."""
    records = tuple((offset, value) for offset, value in enumerate(shown) if value is not None)
    closing = polled_last(5, records, end=len(shown))
    calls = [append(0, 2, at=1), append(1, 1, at=1), closing]
    context = RunContext(at_least_once=at_least_once, acked_during_faults_min=0)
    verdict = judge_run(run(calls), context)
    lost = [found for found in verdict.anomalies if found.id == "lost-acked-write"]
    assert bool(lost) is (is_lost and at_least_once)
    if lost:
        assert lost[0].sentence.startswith("op 0 ")
        assert verdict.validity == Validity.INVALID


@pytest.mark.parametrize(("final", "is_gone"), [((0, 1, 0), False), ((1, 0), True)])
def test_a_copy_that_was_read_and_is_gone_is_missed_although_another_one_is_there(
    final: tuple[int, ...], is_gone: bool
) -> None:
    """A poll found copies of op 0 at offsets 0 and 2."""
    records = tuple(zip((0, 1, 2)[-len(final) :], final, strict=True))
    end = polled_last(6, records, end=3)
    calls = [append(0, 2, at=1), append(1, 1, at=1), read(5, 20, 0, 1, 0), end]
    verdict = judge_run(run(calls), RunContext(at_least_once=True, acked_during_faults_min=0))
    gone = [found for found in verdict.anomalies if found.id == "visible-regress"]
    assert bool(gone) is is_gone


# --- a reduced history ---


def test_an_append_acknowledged_at_an_offset_that_was_left_out_is_present() -> None:
    """Offsets 0 and 1 were left out. Op 3 is of unknown outcome, and op 2 was acknowledged elsewhere."""
    unknown = Call(op=3, kind="append", process=3, inv=1, res=None, outcome="info")
    calls = [append(1, 1, at=1), append(2, 2, at=1), unknown]
    final = final_log(history(calls, LeftOut(limit=3, start=ints(0), stop=ints(2))))
    assert final.present.tolist() == [True, False, False]


@pytest.mark.parametrize("revealed", [(0,), (1,), (0, 1), (2,), (9,), (0, 9)])
def test_an_append_that_a_read_revealed_at_an_offset_that_was_left_out_is_present(
    revealed: tuple[int, ...],
) -> None:
    """Op 9 is not in the reduced history."""
    calls = [append(op, None, at=1) for op in range(3)]
    left_out = LeftOut(
        limit=4,
        start=ints(0),
        stop=ints(4),
        revealed_op=ints(*revealed),
        revealed_offset=ints(*revealed),
    )
    assert final_log(history(calls, left_out)).present.tolist() == [
        op in revealed for op in range(3)
    ]


def test_coverage_counts_unseen_records_that_had_to_stay() -> None:
    """Ops 0 and 5 are unseen; op 2 is lost; op 4 was acknowledged with acks=1."""
    calls = [append(op, op, at=1, acks=1 if op == 4 else -1) for op in range(6)]
    final = Call(
        op=9,
        kind="poll",
        process=9,
        inv=9,
        res=10,
        position=1,
        records=((1, 1), (3, 3)),
        end=6,
        final=True,
    )
    report = checked([*calls, final])
    assert {f.id: f.first.tolist() for f in report.findings} == {
        "lost-acked-write": [2],
        "unseen": [0, 5],
    }
    assert report.coverage["acked_unseen"] == 2


# --- losses ---


def losses(calls: list[Call], identifier: str, *, log_start: int = 0) -> Finding | None:
    report = checked(calls, log_start=log_start)
    return next((each for each in report.findings if each.id == identifier), None)


@pytest.mark.parametrize(("invoked", "is_lost"), [(1, False), (2, False), (3, True)])
def test_an_append_without_an_offset_may_be_below_a_log_start_that_no_record_had_passed(
    invoked: int, is_lost: bool
) -> None:
    """Op 1, at the start of the log, was acknowledged at 2. Op 2 may have come before it until then."""
    calls = [append(1, 1, at=1), append(2, None, at=invoked)]
    calls += [read(5, 9, 1, start=1, end=2, final=True)]
    loss = losses(calls, "lost-acked-write", log_start=1)
    assert (loss is not None) is is_lost
    if loss is not None:
        assert (loss.first.tolist(), loss.other.tolist()) == ([2], [NOWHERE])


def test_the_witness_of_a_loss_is_a_final_read_that_went_past_its_offset() -> None:
    final = replace(read(9, 20, end=3, final=True), records=((0, 0), (2, 2)))
    calls = [append(0, 0, at=1), append(1, 1, at=1), append(2, 2, at=1), final]
    for more in ([], [read(5, 9, 2, start=1)], [replace(read(5, 9, final=True), outcome="info")]):
        loss = losses([*calls, *more], "lost-acked-write")
        assert loss is not None
        assert (loss.first.tolist(), loss.second.tolist()) == ([1], [9])


@pytest.mark.parametrize(("position", "offset"), [(5, 3), (-1, 1)])
def test_a_final_read_that_did_not_begin_before_an_offset_is_no_witness(
    position: int, offset: int
) -> None:
    """The poll returned offsets 3 and 4, although it was sent for 5, or for a position that is not known."""
    final = Call(
        op=9, kind="poll", process=9, inv=9, res=10, position=position, records=((3, 7), (4, 8)),
        final=True,
    )  # fmt: skip
    report = checked([append(1, offset, at=1), final])
    (finding,) = [each for each in report.findings if 1 in each.first]
    assert finding.second.tolist() == [-1]


def test_a_record_that_the_final_reads_show_at_offset_0_and_elsewhere_is_shown_at_both() -> None:
    calls = [
        append(7, None, at=1, outcome="info"),
        read(8, 3, 7, start=1),
        read(9, 5, 7, 7),
        read(10, 10, 7, start=1, final=True),
        read(11, 12, 7, final=True),
    ]
    assert _is_shown(history(calls)).all()
    assert not _is_shown(history(calls[:-2])).any()
    assert _is_shown(history([*calls[:-2], calls[-1]])).tolist() == [False, True, False, True]


def test_every_append_but_one_lost_an_offset_that_several_were_given() -> None:
    """Of ops 1 and 9 the final read shows op 1; of ops 2, 3 and 8, op 8 was acknowledged last."""
    calls = [
        append(9, 0, at=1),
        append(1, 0, at=1),
        append(2, 5, at=1),
        append(3, 5, at=1),
        append(8, 5, at=3),
        read(20, 9, 1, end=1, final=True),
    ]
    reused = losses(calls, "offset-reused")
    assert reused is not None
    assert reused.first.tolist() == [2, 3, 9]
    assert reused.second.tolist() == [8, 8, 1]
    # The same if other offsets were left out.
    left_out = LeftOut(limit=9, start=ints(0, 7), stop=ints(1, 9))
    (reused,) = [
        f for f in checked(calls[2:5], left_out=left_out).findings if f.id == "offset-reused"
    ]
    assert reused.first.tolist() == [2, 3]


@pytest.mark.parametrize("is_corrupt", [False, True])
def test_a_record_that_could_not_be_read_was_not_visible(is_corrupt: bool) -> None:
    """Op 1 was read at offset 0, or something that cannot be read was; in the end op 2 is there."""
    calls = [append(1, 0, at=1), append(2, 0, at=1), read(5, 9, 1)]
    calls += [read(6, 20, 2, final=True, end=1)]
    report = checked(calls, corrupt=(5,) if is_corrupt else ())
    assert ("visible-regress" in {each.id for each in report.findings}) is not is_corrupt


@pytest.mark.parametrize(("log_end", "validity"), [(2, Validity.UNKNOWN), (1, Validity.INVALID)])
def test_a_record_that_was_read_and_may_be_beyond_the_final_reads_is_not_forgotten(
    log_end: int, validity: Validity
) -> None:
    """Acknowledgements with acks=1 promise nothing, but the record at offset 1 was read before the final reads."""
    log = replica(3, 1, log_end, hw=1, role="leader", cause="append")
    tables = run(
        [append(0, 0, at=1), append(1, 1, at=3, acks=1), read(2, 5, 0, 1), *final_read(10, 0)],
        states=[state(0, 1, [1, 2], epoch=0)],
        replicas=[log],
    )
    assert judge_run(tables, RunContext()).validity == validity


@pytest.mark.parametrize("offset", [1, None])
@pytest.mark.parametrize(("log_end", "identifier"), [(2, "unseen"), (1, "lost-acked-write")])
def test_what_the_last_leader_may_hold_beyond_the_final_reads_is_not_known_to_be_lost(
    log_end: int, identifier: str, offset: int | None
) -> None:
    """Op 1 was acknowledged at offset 1, and the final reads ended at 1. The leader's log is longer, or is not."""
    log = replica(3, 1, log_end, hw=1, role="leader", cause="append")
    tables = run(
        [append(0, 0, at=1), append(1, offset, at=3), *final_read(10, 0)],
        states=[state(0, 1, [1, 2], epoch=0)],
        replicas=[log],
    )
    found = {anomaly.id for anomaly in judge_run(tables, RunContext()).anomalies}
    assert found & {"unseen", "lost-acked-write"} == {identifier}


NO_LOG = state(90, -1, [], epoch=0, replicas=[])


@pytest.mark.parametrize(
    ("last", "identifier"),
    [(NO_LOG, "lost-acked-write"), (state(90, -1, [], epoch=0), "unseen")],
)
@pytest.mark.parametrize("offset", [0, None])
def test_a_log_that_is_gone_has_lost_what_it_acknowledged_and_one_that_cannot_be_read_has_not(
    last: dict[str, Any], identifier: str, offset: int | None
) -> None:
    tables = run([append(0, offset, at=1)], states=[state(0, 1, [1, 2], epoch=0), last])
    context = replace(RunContext(), final_phase_complete=False)
    (found,) = [one for one in judge_run(tables, context).anomalies if one.level == "durability"]
    assert found.id == identifier
    assert ("the log itself is gone" in found.sentence) is (identifier == "lost-acked-write")


@pytest.mark.parametrize("offset", [0, None])
@pytest.mark.parametrize(("invoked", "identifier"), [(903, "lost-acked-write"), (904, "unseen")])
def test_what_was_acknowledged_when_the_final_end_was_requested_may_be_beyond_it(
    offset: int | None, invoked: int, identifier: str
) -> None:
    """The final log end of 0 was requested at 905. The append was acknowledged before, or at that moment."""
    (found,) = checked([append(1, offset, at=invoked), *final_read(10)]).findings
    assert found.id == identifier
    if identifier == "lost-acked-write":
        # Numbers of NOWHERE and BEYOND_END.
        assert found.other.tolist() == [4 if offset is None else 2]


def test_a_final_read_of_another_record_at_offset_0_is_a_witness() -> None:
    calls = [append(1, 0, at=1), append(2, 0, at=1), read(9, 20, 2, end=1, final=True)]
    loss = losses(calls, "lost-acked-write")
    assert loss is not None
    assert (loss.first.tolist(), loss.other.tolist()) == ([1], [0])
    loss = losses([append(1, 0, at=1), read(9, 20, 2, end=1, final=True)], "lost-acked-write")
    assert loss is not None
    assert (loss.second.tolist(), loss.other.tolist()) == ([9], [0])


def test_an_empty_log_is_read_completely_if_its_end_was_seen() -> None:
    final = final_log(history([append(0, None, at=1), *final_read(10)]))
    assert (final.end_offset, final.is_complete) == (0, True)
    final = final_log(history([append(0, None, at=1)]))
    assert (final.end_offset, final.is_complete) == (-1, False)


def test_final_reads_went_over_what_they_passed_without_a_record() -> None:
    calls = [read(5, 1, 7, final=True), replace(read(6, 3, 8, start=5, end=6, final=True))]
    final = final_log(history(calls), passed=(ints(1), ints(5)))
    assert (ranges(final), final.is_complete) == ([(0, 6)], True)
    assert [column.tolist() for column in NO_RANGES] == [[], []]
    assert ranges(final_log(history(calls), passed=NO_RANGES)) == [(0, 1), (5, 6)]
    assert ranges(final_log(history(calls), passed=(ints(2), ints(4)))) == [(0, 1), (2, 4), (5, 6)]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (read(5, 1, 7), read(6, 3, start=4), [(1, 4)]),
        (read(5, 1, 7, 8), read(6, 3, start=4), [(2, 4)]),
        (read(5, 1), read(6, 3, start=4), [(0, 4)]),
        # It ended at 2.
        (read(5, 1, 7), read(6, 2, start=4), [(1, 4)]),
        (read(5, 1, 7), replace(read(6, 1, start=4), res=5), []),
        # Nothing lies between them.
        (read(5, 1, 7), read(6, 3, start=1), []),
        (read(5, 1, 7), read(6, 3, start=0), []),
        (replace(read(5, 1), position=-1), read(6, 3, start=4), []),
        # They are of two processes.
        (read(5, 1, 7), replace(read(6, 3, start=4), process=1), []),
    ],
)
def test_a_consumer_passed_over_what_is_between_two_polls(
    first: Call, second: Call, expected: list[tuple[int, int]]
) -> None:
    calls = [replace(call, final=True) for call in (first, second)]
    start, stop = passed_between_polls(history(calls), operations_table(calls))
    assert list(zip(start.tolist(), stop.tolist(), strict=True)) == expected
    calls[0] = replace(calls[0], final=False)
    assert passed_between_polls(history(calls), operations_table(calls))[0].tolist() == []


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        # The second one ends when the third one begins.
        (((1, 2), (2, 3), (3, 4)), [(1, 2), (4, 6)]),
        # In the table the third one stands before the second one, which certainly was before it.
        (((1, 2), (2, 4), (2, 2)), [(1, 6)]),
        # Which one of two was first is not known, nor what followed the first one.
        (((1, 2), (2, 2), (2, 2)), []),
        (((1, 1), (1, 1), (2, 3)), []),
        (((1, 2), (2, 2), (2, 3)), [(1, 2), (4, 6)]),
    ],
)
def test_only_the_clock_shows_which_poll_followed_another_one(
    times: tuple[tuple[int, int], ...], expected: list[tuple[int, int]]
) -> None:
    polls = [read(5, 0, 7), read(6, 0, 8, 9, start=2), read(7, 0, start=6)]
    calls = [
        replace(poll, inv=begin, res=end, final=True)
        for poll, (begin, end) in zip(polls, times, strict=True)
    ]
    start, stop = passed_between_polls(history(calls), operations_table(calls))
    assert sorted(zip(start.tolist(), stop.tolist(), strict=True)) == expected


def test_an_append_whose_offset_another_one_got_is_lost_without_final_reads_too() -> None:
    loss = losses([append(1, 0, at=1), append(2, 0, at=3)], "lost-acked-write")
    assert loss is not None
    # The number of REUSED.
    assert (loss.first.tolist(), loss.second.tolist(), loss.other.tolist()) == ([1], [2], [1])


def test_final_reads_have_to_begin_at_offset_0_unless_the_log_starts_later() -> None:
    given = history([read(5, 1, 7, start=1, end=2, final=True)])
    assert final_log(given).is_complete is False
    assert final_log(given, log_start_offset=1).is_complete is True


def test_a_record_is_there_wherever_it_is_read_unless_producers_send_twice() -> None:
    """The final read shows both records, each at the offset of the other one."""
    calls = [append(0, 1, at=1), append(1, 0, at=1), *final_read(10, 0, 1)]
    assert final_log(history(calls)).present.tolist() == [True, True]
    assert final_log(history(calls), sent_twice=True).present.tolist() == [False, False]
    assert [each.id for each in checked(calls).findings] == []


@pytest.mark.parametrize(
    ("start", "stop", "is_left"),
    [(3, 5, False), (3, 6, True), (2, 5, True), (5, 5, False), (6, 5, False), (0, 1, True)],
)
def test_a_range_has_room_unless_all_of_it_is_taken(start: int, stop: int, is_left: bool) -> None:
    taken, first, last = (np.array(column) for column in ([3, 4, 7], [start], [stop]))
    assert has_room(taken, first, last).tolist() == [is_left]
