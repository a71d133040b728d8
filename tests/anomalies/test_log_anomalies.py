"""For every anomaly of the log itself: the smallest history that has it, and a near miss that does not."""

from dataclasses import replace

import pytest

from checkers.anomalies import ANOMALIES
from checkers.kernels.evidence import Evidence, sentence
from checkers.kernels.linearizability import Options, PartitionReport, check_tables
from tests.property.brute_force import Call, ends_table, operations_table, records_table


def append(op: int, inv: int, res: int | None, offset: int | None = None, **more: object) -> Call:
    more.setdefault("process", op)
    return Call(op=op, kind="append", inv=inv, res=res, offset=offset, **more)  # type: ignore[arg-type]


def poll(op: int, inv: int, res: int, *records: tuple[int, int], **more: object) -> Call:
    more.setdefault("position", records[0][0] if records else 0)
    return Call(op=op, kind="poll", process=op, inv=inv, res=res, records=records, **more)  # type: ignore[arg-type]


def latest(op: int, inv: int, res: int, end: int, **more: object) -> Call:
    return Call(op=op, kind="latest", process=op, inv=inv, res=res, offset=end, **more)  # type: ignore[arg-type]


def check(calls: list[Call], **options: object) -> PartitionReport:
    return check_tables(
        operations_table(calls),
        records_table(calls),
        ends_table(calls),
        Options(**options),  # type: ignore[arg-type]
    )


CASES: dict[str, tuple[list[Call], list[Call]]] = {
    # identifier: (the smallest history that has it, the near miss)
    "two-acks-one-offset": (
        [append(0, 1, 5, 0), append(1, 2, 6, 0)],
        [append(0, 1, 5, 0), append(1, 2, 6, 1)],
    ),
    "divergent-value": (
        [append(0, 1, 5, 0), append(1, 1, None, outcome="info"), poll(2, 6, 7, (0, 1))],
        [append(0, 1, 5, 0), append(1, 1, None, outcome="info"), poll(2, 6, 7, (1, 1))],
    ),
    "duplicate": (
        [append(0, 1, 5, 0), poll(1, 6, 7, (0, 0), (1, 0))],
        [append(0, 1, 5, 0), poll(1, 6, 7, (0, 0)), poll(2, 8, 9, (0, 0))],
    ),
    "failed-append-visible": (
        [append(0, 1, 5, outcome="fail"), poll(1, 6, 7, (0, 0))],
        [append(0, 1, 5, outcome="info"), poll(1, 6, 7, (0, 0))],
    ),
    "phantom-value": (
        [poll(0, 1, 5, (0, 77))],
        [append(77, 1, None, outcome="info"), poll(0, 1, 5, (0, 77))],
    ),
    "lost-record": (
        [append(0, 1, 5, 0), append(1, 6, 7, 1), poll(2, 8, 9, (1, 1), position=0)],
        [append(0, 1, 5, 0), append(1, 6, 7, 1), poll(2, 8, 9, (1, 1), position=1)],
    ),
    "skipped-offset": (
        [append(0, 1, None, outcome="info"), append(1, 6, 7, 1), poll(2, 8, 9, (1, 1), position=0)],
        [append(0, 1, None, outcome="info"), append(1, 6, 7, 1), poll(2, 8, 9, (1, 1), position=1)],
    ),
    "torn-fetch": (
        [append(0, 1, 5, 0), append(1, 1, 5, 1), poll(2, 2, 5, (0, 0), (1, 1), end=1)],
        [append(0, 1, 5, 0), append(1, 1, 5, 1), poll(2, 2, 5, (0, 0), (1, 1), end=2)],
    ),
    "unfilled-hole": (
        [append(0, 1, None, outcome="info"), append(1, 1, 5, 2)],
        [
            append(0, 1, None, outcome="info"),
            append(2, 1, None, outcome="info"),
            append(1, 1, 5, 2),
        ],
    ),
    "hole-before-append": (
        [append(0, 1, 5, 1), append(1, 6, None, outcome="info")],
        [append(0, 1, 5, 1), append(1, 5, None, outcome="info")],
    ),
    "unplaced-append": (
        [append(0, 1, 5), append(1, 6, 7, 0)],
        [append(0, 1, 6), append(1, 6, 7, 0)],
    ),
    "unplaced-below-end": (
        [append(0, 1, 5), latest(1, 6, 7, 0)],
        [append(0, 1, 6), latest(1, 6, 7, 0)],
    ),
    "order-inversion": (
        [append(0, 1, 5, 1), append(1, 6, 7, 0)],
        [append(0, 1, 6, 1), append(1, 6, 7, 0)],
    ),
    "future-read": (
        [poll(0, 1, 5, (0, 1)), append(1, 6, 7, 0)],
        [poll(0, 1, 6, (0, 1)), append(1, 6, 7, 0)],
    ),
    "late-insert": (
        [append(0, 1, None, outcome="info"), poll(1, 2, 5, (1, 0)), append(2, 6, 7, 0)],
        [append(0, 1, None, outcome="info"), poll(1, 2, 6, (1, 0)), append(2, 6, 7, 0)],
    ),
    "nonmonotonic-send": (
        [append(0, 1, 5, 1, process=7), append(1, 6, 9, 0, process=7)],
        [append(0, 1, 5, 1, process=7), append(1, 6, 9, 0, process=8)],
    ),
    "reordered-send": (
        [append(0, 1, 9, 1, process=7), append(1, 2, 9, 0, process=7)],
        [append(0, 1, 9, 1, process=7), append(1, 2, 9, 0, process=8)],
    ),
    "nonmonotonic-poll": (
        [append(0, 1, 5, 0), append(1, 1, 5, 1), poll(2, 6, 7, (0, 0), (1, 1), position=1)],
        [append(0, 1, 5, 0), append(1, 1, 5, 1), poll(2, 6, 7, (0, 0), (1, 1), position=0)],
    ),
    "unordered-poll": (
        [append(0, 1, 5, 0), append(1, 1, 5, 1), poll(2, 6, 7, (1, 1), (0, 0), position=0)],
        [append(0, 1, 5, 0), append(1, 1, 5, 1), poll(2, 6, 7, (0, 0), (1, 1), position=0)],
    ),
    "stale-end": (
        [append(0, 1, 5, 0), latest(1, 6, 7, 0)],
        [append(0, 1, 6, 0), latest(1, 6, 7, 0)],
    ),
    "lost-ack": (
        [
            append(0, 1, 5, 0),
            latest(1, 6, 7, 0),
            append(2, 8, 9, 0),
            poll(3, 10, 11, (0, 2), final=True),
        ],
        [append(0, 1, 5, 0), latest(1, 6, 7, 0), poll(3, 10, 11, (0, 0), final=True)],
    ),
    "end-regression": (
        [append(0, 1, 5, 0), latest(1, 2, 3, 1), latest(2, 4, 5, 0)],
        [append(0, 1, 5, 0), latest(1, 2, 3, 1), latest(2, 3, 5, 0)],
    ),
}


def ids(report: PartitionReport) -> set[str]:
    return {finding.id for finding in report.findings}


@pytest.mark.parametrize("identifier", CASES)
def test_the_smallest_history_has_the_anomaly_and_the_near_miss_does_not(identifier: str) -> None:
    smallest, near_miss = CASES[identifier]
    assert identifier in ids(check(smallest))
    assert identifier not in ids(check(near_miss))


@pytest.mark.parametrize("identifier", CASES)
def test_every_anomaly_has_a_definition_and_a_sentence_about_its_witnesses(identifier: str) -> None:
    smallest, _ = CASES[identifier]
    found = next(f for f in check(smallest).findings if f.id == identifier)
    evidence = Evidence(operations_table(smallest))
    row = found.worst()
    witnesses = evidence.witnesses(found, row)
    assert identifier in ANOMALIES
    assert len(witnesses) <= 3
    known = {call.op for call in smallest}
    assert {witness.op_index for witness in witnesses} <= known
    assert witnesses or "hole" in identifier
    text = sentence(found, row)
    assert text
    assert "-1" not in text


def test_a_revealed_append_may_not_be_before_one_that_its_process_knew_of() -> None:
    first, unknown = append(0, 1, 5, 1, process=7), append(1, 6, None, outcome="info", process=7)
    below = poll(2, 20, 21, (0, 1), (1, 0))
    (found,) = [f for f in check([first, unknown, below]).findings if f.id == "nonmonotonic-send"]
    assert (found.first.tolist(), found.second.tolist()) == ([0], [1])
    assert (found.offset.tolist(), found.other.tolist()) == ([1], [0])
    above = poll(2, 20, 21, (1, 0), (2, 1))
    assert "nonmonotonic-send" not in ids(check([first, unknown, above]))


def test_a_revealed_append_may_be_after_or_between_later_ones_of_its_process() -> None:
    """A request whose response was lost may still wait in the network when the next one is sent."""
    unknown = append(0, 1, None, outcome="info", process=7)
    late = [unknown, append(1, 2, 5, 0, process=7), poll(2, 20, 21, (0, 1), (1, 0))]
    assert not check(late).findings
    between = [
        append(3, 1, 2, 0, process=7),
        replace(unknown, op=4, inv=3),
        append(5, 4, 6, 1, process=7),
        poll(6, 20, 21, (0, 3), (1, 5), (2, 4)),
    ]
    assert not check(between).findings


def test_a_revealed_append_hides_no_swap_of_the_acknowledged_ones_around_it() -> None:
    calls = [
        append(0, 1, 5, 1, process=7),
        append(1, 6, None, outcome="info", process=7),
        append(2, 8, 9, 0, process=7),
        poll(3, 20, 21, (0, 2), (1, 0), (2, 1)),
    ]
    (found,) = [f for f in check(calls).findings if f.id == "nonmonotonic-send"]
    assert (found.first.tolist(), found.second.tolist()) == ([0], [2])


def test_a_revealed_append_in_flight_with_an_acknowledged_one_may_be_before_it() -> None:
    calls = [
        append(0, 1, 9, 1, process=7),
        append(1, 2, None, outcome="info", process=7),
        poll(2, 20, 21, (0, 1), (1, 0)),
    ]
    assert not check(calls).findings


def test_a_swap_with_a_lost_acks_1_append_is_weak() -> None:
    calls = [append(0, 1, 5, 1, acks=1, process=7), append(1, 6, 9, 0, process=7)]
    (found,) = [f for f in check(calls).findings if f.id == "nonmonotonic-send"]
    assert found.weak.tolist() == [True]


def test_a_witness_reads_like_a_line_of_the_history() -> None:
    calls = [
        append(4711, 101_220_000_000, 101_245_000_000, 5520, process=12),
        append(5003, 103_085_000_000, 103_101_000_000, 5519, process=7),
    ]
    found = next(f for f in check(calls).findings if f.id == "order-inversion")
    first, second = Evidence(operations_table(calls)).witnesses(found, 0)
    assert first.text == (
        "process 12 append v=4711 acks=all -> ok offset 5520 [101.220 s, 101.245 s]"
    )
    assert second.op_index == 5003
    assert sentence(found, 0) == (
        "op 5003 began 1.84 s after op 4711 was acknowledged at offset 5520, so it must come after it in the log,"
        " but it was given offset 5519"
    )


def test_a_stale_log_end_hides_no_append_without_a_place() -> None:
    """Op 0 must be at offset 0, where op 1 is; that op 2 received a stale end as well changes nothing."""
    calls = [append(0, 1, 2), append(1, 3, 4, 0), latest(2, 5, 6, 0)]
    assert ids(check(calls)) == {"unplaced-append", "stale-end"}


def test_an_append_without_an_offset_that_only_a_log_end_contradicts_is_a_matter_of_freshness() -> (
    None
):
    found = check([append(0, 1, 5), latest(1, 6, 7, 0)]).findings
    assert [ANOMALIES[finding.id].level for finding in found] == ["fresh"]


def test_an_append_without_a_place_rests_on_acks_1_if_it_or_what_is_in_its_place_may_be_lost() -> (
    None
):
    weak = {
        "it was sent with acks=1": [append(0, 1, 5, acks=1), append(1, 6, 7, 0)],
        "its place was, and that one was never read": [
            append(0, 1, 5),
            append(1, 6, 7, 0, acks=1),
        ],
        "an append that was acknowledged before it was": [
            append(2, 1, 2, 0, acks=1),
            append(0, 3, 4),
            append(1, 5, 6, 1),
        ],
    }
    for case, calls in weak.items():
        (found,) = [f for f in check(calls).findings if f.id == "unplaced-append"]
        assert found.weak.all(), case
    read = [*weak["its place was, and that one was never read"], poll(3, 8, 9, (0, 1))]
    (found,) = [f for f in check(read).findings if f.id == "unplaced-append"]
    assert not found.weak.any()


@pytest.mark.parametrize("acks", [0, -1])
def test_an_append_that_required_no_acknowledgement_may_take_effect_after_its_success(
    acks: int,
) -> None:
    """Op 0 succeeded at 2, and op 1 is somewhere. Offset 1 was written after 10: with acks=0 by either of them."""
    calls = [
        append(0, 1, 2, acks=acks),
        append(1, 1, 100),
        append(2, 10, 15, 0),
        append(3, 11, 20, 2),
    ]
    assert ids(check(calls)) == (set() if acks == 0 else {"unplaced-append"})


def test_an_order_that_rests_on_acks_1_hides_no_append_without_a_place() -> None:
    calls = [
        append(0, 1, 2, 9, acks=1),
        append(1, 3, 4, 8, acks=1),
        append(2, 1, 2),
        append(3, 3, 4, 0),
        *(append(10 + n, 1, 20, n) for n in range(1, 8)),
    ]
    (found,) = [f for f in check(calls).findings if f.id == "unplaced-append"]
    assert not found.weak.any()


def test_corrupt_and_foreign_records_are_named_and_other_records_are_still_judged() -> None:
    calls = [append(0, 1, 5, 0), poll(1, 6, 7, (0, 0), (1, -1), (2, -1))]
    report = check_tables(
        operations_table(calls),
        records_table(calls, statuses={1: "corrupt", 2: "foreign"}),
        ends_table(calls),
    )
    assert ids(report) == {"corrupt-record", "misplaced-record"}


def test_a_record_of_value_minus_one_with_status_ok_is_a_phantom() -> None:
    assert ids(check([poll(0, 1, 5, (0, -1))])) == {"phantom-value"}


def test_impossible_offsets_are_reported() -> None:
    calls = [append(0, 1, 5, -7), latest(1, 1, 5, -3), poll(2, 1, 5, (-2, 0), position=0)]
    report = check(calls)
    assert ids(report) == {"impossible-offset"}
    assert report.findings[0].count == 3


def test_equal_times_are_concurrent_and_a_clock_error_only_hides_violations() -> None:
    calls = [append(0, 1, 5, 1), append(1, 8, 9, 0)]
    assert "order-inversion" in ids(check(calls, clock_error_ns=2))
    assert "order-inversion" not in ids(check(calls, clock_error_ns=3))


def test_below_the_log_start_offsets_may_be_free_but_not_in_another_order() -> None:
    calls = [append(0, 1, 5, 3), append(1, 6, 7, 2), append(2, 8, 9, 10)]
    assert ids(check(calls, log_start_offset=0)) == {"order-inversion", "unfilled-hole"}
    assert ids(check(calls, log_start_offset=10)) == {"order-inversion"}


def test_a_sparse_log_may_skip_offsets_but_not_records() -> None:
    gap = [append(0, 1, 5, 0), append(1, 6, 7, 3), poll(2, 8, 9, (0, 0), (3, 1))]
    assert not check(gap, sparse=True).findings
    assert ids(check(gap)) == {"skipped-offset", "unfilled-hole"}
    skipped = [*gap[:2], append(3, 5, None, outcome="info"), append(4, 6, 7, 2), gap[2]]
    assert "lost-record" in ids(check(skipped, sparse=True))


def test_a_violation_that_rests_on_an_unread_acks_1_append_is_weak() -> None:
    calls = [append(0, 1, 5, 1, acks=1), append(1, 6, 7, 0)]
    assert check(calls).findings[-1].weak.tolist() == [True]
    read = [*calls, poll(2, 8, 9, (0, 1), (1, 0))]
    found = next(f for f in check(read).findings if f.id == "order-inversion")
    assert found.weak.tolist() == [False]


def test_a_weak_contradiction_does_not_hide_a_strong_one() -> None:
    """Op 0 is contradicted by a zombie's acks=1 append and, less badly, by an append that was read."""
    calls = [
        append(0, 1, 5, 2),
        append(1, 20, 21, 0, acks=1),
        append(2, 10, 11, 1),
        poll(3, 30, 31, (1, 2), (2, 0)),
    ]
    found = next(f for f in check(calls).findings if f.id == "order-inversion")
    assert found.weak[found.first == 0].tolist() == [False]
    assert found.second[found.first == 0].tolist() == [2]


def test_each_overtaken_operation_is_counted_once_however_many_pairs_there_are() -> None:
    early = [append(i, 1, 5, 100 + i) for i in range(50)]
    late = [append(100 + i, 10, 15, i) for i in range(50)]
    found = next(f for f in check(early + late).findings if f.id == "order-inversion")
    assert found.count == 50


def test_huge_offsets_cost_no_memory() -> None:
    calls = [
        append(0, 1, 5, 0),
        append(1, 6, 7, 2**62 - 1),
        latest(2, 8, 9, 2**62),
        replace(append(3, 10, 11, 2**62), acks=1),
        poll(4, 12, 13, (0, 0)),
    ]
    report = check(calls)
    assert ids(report) == {"unfilled-hole"}
    assert report.facts.places.count < 10
    assert not check(calls, sparse=True).findings
