"""What one slice reports about itself, and what it sends to the buckets."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from checkers.kernels.history import I64, read_history
from checkers.kernels.slices import Part, SliceReport, Times, cut_slice, strongest
from tests.anomalies.runs import append, read
from tests.property.brute_force import Call, ends_table, operations_table, records_table

INFINITY_NS = 2**61


def ints(*values: int) -> I64:
    return np.array(values, dtype=np.int64)


def cut(
    calls: list[Call],
    *,
    start: int = 0,
    width: int = 100,
    members: Sequence[Sequence[int]] = (),
    since: Sequence[int] | None = None,
    statuses: dict[int, str] | None = None,
) -> tuple[SliceReport, dict[int, Part]]:
    history = read_history(
        operations_table(calls), records_table(calls, statuses=statuses), ends_table(calls)
    )
    return cut_slice(
        history,
        log_start_offset=start,
        width=width,
        group_polls=[ints(*polls) for polls in members],
        since=since,
    )


def only(calls: list[Call], **more: Any) -> Part:
    """Returns what a slice sends to its only bucket."""
    (part,) = cut(calls, **more)[1].values()
    return part


def rows(times: Times) -> list[tuple[int, ...]]:
    columns = (times.offset.tolist(), times.time_ns.tolist(), times.op.tolist())
    return list(zip(*columns, strict=True))


def log_end(op: int, end: int, *, at: int, final: bool = False) -> Call:
    return Call(op=op, kind="latest", process=98, inv=at, res=at + 1, offset=end, final=final)


def by(process: int, call: Call) -> Call:
    return replace(call, process=process)


# --- how far the log reaches ---


@pytest.mark.parametrize(
    ("call", "limit", "shown_limit"),
    [
        (append(1, 7, at=5), 8, 0),
        (append(1, None, at=5), 0, 0),
        (read(1, 5, 8, 9, start=3), 5, 5),
        (log_end(1, 4, at=5), 4, 4),
        (read(1, 5, end=6), 6, 6),
    ],
)
def test_what_only_an_acknowledgement_shows_is_told_apart(
    call: Call, limit: int, shown_limit: int
) -> None:
    report, _ = cut([call])
    assert (report.limit, report.shown_limit) == (limit, shown_limit)


# --- one fact per offset ---


@pytest.mark.parametrize(
    ("facts", "latest", "earliest"),
    [
        ([], [], []),
        ([(3, 5, 1)], [(3, 5, 1)], [(3, 5, 1)]),
        ([(2, 5, 1), (3, 5, 2)], [(2, 5, 1), (3, 5, 2)], [(2, 5, 1), (3, 5, 2)]),
        ([(3, 5, 1), (2, 7, 2)], [(2, 7, 2), (3, 5, 1)], [(2, 7, 2), (3, 5, 1)]),
        ([(3, 5, 1), (3, 7, 2)], [(3, 7, 2)], [(3, 5, 1)]),
        ([(3, 5, 1), (3, 5, 0)], [(3, 5, 0)], [(3, 5, 0)]),
        (
            [(4, 1, 9), (3, 5, 1), (4, 3, 8), (3, 5, 0), (3, 7, 5)],
            [(3, 7, 5), (4, 3, 8)],
            [(3, 5, 0), (4, 1, 9)],
        ),
    ],
)
def test_of_several_facts_about_an_offset_the_strongest_one_is_sent(
    facts: list[tuple[int, ...]],
    latest: list[tuple[int, ...]],
    earliest: list[tuple[int, ...]],
) -> None:
    columns = [ints(*(fact[at] for fact in facts)) for at in range(3)]
    assert rows(strongest(*columns, latest=True)) == latest
    assert rows(strongest(*columns, latest=False)) == earliest


def test_appends_and_log_ends_say_when_an_offset_did_not_exist_and_when_it_did() -> None:
    """Two appends are acknowledged at offset 0; a log end of 2 is seen twice."""
    calls = [append(0, 0, at=1), append(1, 0, at=5), log_end(2, 2, at=10), log_end(3, 2, at=20)]
    part = only(calls)
    assert rows(part.absent["order"]) == [(0, 5, 1)]
    assert rows(part.absent["fresh"]) == [(2, 20, 3)]
    assert rows(part.present) == [(0, 2, 0), (1, 11, 2)]
    assert rows(part.ended) == [(1, 11, 2)]


@pytest.mark.parametrize(
    ("end", "start", "expected"),
    [
        (0, 0, []),
        (1, 0, [(0, 11, 1)]),
        (0, 5, []),
        (1, 5, [(0, 11, 1)]),
        (6, 5, [(5, 11, 1)]),
    ],
)
def test_a_log_end_above_0_proves_that_the_offset_below_it_existed(
    end: int, start: int, expected: list[tuple[int, ...]]
) -> None:
    """Wherever the log starts in the end."""
    assert rows(only([append(0, 7, at=1), log_end(1, end, at=10)], start=start).ended) == expected


def test_what_acks_1_shows_below_the_start_of_the_log_is_told_apart() -> None:
    calls = [append(op, op, at=1, acks=1 if op < 3 else -1) for op in range(4)]
    assert only(calls).weak_offset.tolist() == []
    assert only(calls, start=2).weak_offset.tolist() == [0, 1]
    assert only(calls, start=4).weak_offset.tolist() == [0, 1, 2]


# --- claims ---


def claims(part: Part, kind: str) -> list[tuple[int, ...]]:
    names = {
        "acked": ("offset", "value"),
        "read": ("offset", "value", "final", "delivered"),
        "unread": ("offset", "value", "delivered"),
    }[kind]
    columns = [getattr(part, f"{kind}_{name}").tolist() for name in names]
    return list(zip(*columns, strict=True))


def test_appends_acknowledged_at_an_offset_are_claims_and_all_others_are_free() -> None:
    calls = [
        append(0, 4, at=1),
        append(1, None, at=2),
        replace(append(2, None, at=3), outcome="fail"),
        replace(append(3, None, at=4), outcome="info", res=None),
    ]
    report, parts = cut(calls)
    assert claims(parts[0], "acked") == [(4, 0)]
    free = report.free
    assert free.op.tolist() == [1, 2, 3]
    assert free.inv.tolist() == [2, 3, 4]
    assert free.res.tolist() == [3, INFINITY_NS, INFINITY_NS]


def test_what_several_polls_return_is_one_claim() -> None:
    """Only the second poll is a final one. The first and the last one are of groups 0 and 1."""
    calls = [
        read(5, 1, 7, 8),
        read(6, 10, 7, 8, 9, final=True),
        read(7, 20, 3),
    ]
    part = only(calls, members=[[5], [7]])
    assert claims(part, "read") == [
        (0, 3, False, 2),
        (0, 7, True, 1),
        (1, 8, True, 1),
        (2, 9, True, 0),
    ]


def test_a_record_of_a_poll_that_is_not_in_the_table_was_read_by_no_group() -> None:
    polls = [read(5, 1, 7), read(6, 10, 8, start=1, final=True)]
    history = read_history(operations_table(polls[1:]), records_table(polls), ends_table(polls[1:]))
    _, parts = cut_slice(history, log_start_offset=0, width=100, group_polls=[ints(5, 6)], since=())
    assert claims(parts[0], "read") == [(0, 7, False, 0), (1, 8, True, 1)]
    assert parts[0].read_ns.tolist() == [INFINITY_NS, 11]


def test_records_that_cannot_be_read_are_claims_of_their_own() -> None:
    part = only([read(5, 1, 7, 8)], members=[[5]], statuses={1: "corrupt"})
    assert claims(part, "read") == [(0, 7, False, 1)]
    assert claims(part, "unread") == [(1, 8, 1)]
    part = only([read(5, 1, 7, 8), read(6, 2, 7)], members=[[5]])
    assert claims(part, "unread") == []


@pytest.mark.parametrize("count", [8, 9])
def test_every_group_has_its_bit(count: int) -> None:
    calls = [read(op, 1 + op, 7) for op in range(count)]
    part = only(calls, members=[[op] for op in range(count)])
    assert part.read_delivered.tolist() == [2**count - 1]
    assert part.read_delivered.dtype == (np.uint8 if count == 8 else np.int64)


# --- times, for measures ---


def test_without_measures_no_times_are_sent() -> None:
    part = only([append(0, 0, at=1), read(1, 5, 0)])
    for times in (part.acked_ns, part.read_ns, part.asked.offset, part.asked.time_ns):
        assert times.tolist() == []


@pytest.mark.parametrize(
    ("start", "asked"), [(0, [(0, 30, 3), (1, 7, 2)]), (1, [(1, 7, 2)]), (2, [])]
)
def test_with_measures_times_of_acknowledgements_reads_and_requests_are_sent(
    start: int, asked: list[tuple[int, ...]]
) -> None:
    calls = [
        append(0, 0, at=1),
        read(1, 5, 0),
        replace(read(2, 7, start=1), end=1),
        read(3, 30, 0),
        read(4, 40, 0, final=True),
    ]
    part = only(calls, since=(), start=start)
    assert part.acked_ns.tolist() == [2]
    assert part.read_ns.tolist() == [6]
    assert rows(part.asked) == asked


# --- buckets ---


@pytest.mark.parametrize(
    "offsets", [(0, 1, 12, 25), (25, 12, 1, 0), (12, 0, 25, 1), (25, 12, 1), (12, 13)]
)
def test_rows_go_to_the_buckets_of_their_offsets(offsets: tuple[int, ...]) -> None:
    _, parts = cut([append(op, at, at=1) for op, at in enumerate(offsets)], width=10)
    found = {bucket: sorted(claims(part, "acked")) for bucket, part in parts.items()}
    assert found == {
        bucket: sorted((at, op) for op, at in enumerate(offsets) if at // 10 == bucket)
        for bucket in {at // 10 for at in offsets}
    }


def test_a_bucket_has_only_its_own_rows() -> None:
    """Records at offsets 3 and 12; one of them cannot be read."""
    calls = [append(0, 3, at=1), read(1, 5, 0, 9, start=3), log_end(2, 15, at=9)]
    _, parts = cut(calls, width=4, since=(), statuses={4: "corrupt"})
    assert sorted(parts) == [0, 1, 3]
    assert claims(parts[0], "read") == [(3, 0, False, 0)]
    assert claims(parts[1], "unread") == [(4, 9, 0)]
    for bucket, name in ((0, "unread_offset"), (1, "acked_offset"), (1, "read_offset")):
        assert getattr(parts[bucket], name).tolist() == []
    empty = [field.name for field in fields(Part) if field.name[:5] in ("acked", "read_", "unrea")]
    assert [name for name in empty if len(getattr(parts[3], name))] == []


# --- the report ---


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        # The first append of a process has none before it.
        ([append(0, None, at=1)], [-1]),
        ([by(7, append(0, 5, at=1)), by(7, append(1, None, at=3))], [5]),
        ([by(7, append(0, 5, at=1)), by(8, append(1, None, at=3))], [-1]),
        (
            [
                by(7, append(0, 5, at=1)),
                by(7, append(1, None, at=3)),
                by(7, append(2, None, at=5)),
                by(8, append(3, None, at=7)),
                by(8, append(4, 9, at=9)),
                by(7, append(5, 6, at=11)),
                by(8, append(6, None, at=13)),
                by(7, append(7, None, at=15)),
            ],
            [5, 5, -1, 9, 6],
        ),
        ([by(8, append(0, 4, at=1)), by(7, append(1, 5, at=1)), by(7, append(2, None, at=3))], [5]),
    ],
)
def test_a_free_append_knows_the_last_offset_that_its_process_learned(
    calls: list[Call], expected: list[int]
) -> None:
    assert cut(calls)[0].free.before.tolist() == expected


def test_senders_have_the_offsets_of_their_first_and_last_appends() -> None:
    calls = [
        by(8, append(0, 3, at=1)),
        by(7, append(1, 4, at=1)),
        by(8, append(2, 6, at=3)),
        by(8, append(3, 5, at=5)),
    ]
    report, _ = cut(calls)
    assert report.sender.tolist() == [7, 8]
    assert report.sender_first.tolist() == [4, 3]
    assert report.sender_last.tolist() == [4, 5]
    assert (report.swapped.tolist(), report.odd) == ([8], True)
    assert report.defects.tolist() == [5, 6]


def test_final_polls_that_returned_something_are_reported() -> None:
    calls = [
        read(0, 1, 7, final=True),
        read(1, 3, 8, 9, start=1, final=True),
        read(2, 5, start=3, final=True),
        read(3, 7, 7, 8),
        replace(read(4, 9, 7, final=True), outcome="fail"),
    ]
    report, _ = cut(calls)
    assert report.final_position.tolist() == [0, 1]
    assert report.final_first.tolist() == [0, 1]
    assert report.final_last.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([], (-1, -1)),
        ([log_end(0, 5, at=3)], (-1, -1)),
        ([log_end(0, 0, at=3, final=True)], (0, 3)),
        ([log_end(0, 5, at=3, final=True), log_end(1, 4, at=9, final=True)], (5, 3)),
        ([log_end(0, 5, at=3, final=True), log_end(1, 5, at=9, final=True)], (5, 9)),
    ],
)
def test_the_largest_log_end_of_the_final_phase_is_reported(
    calls: list[Call], expected: tuple[int, int]
) -> None:
    report, _ = cut([append(9, None, at=1), *calls])
    assert (report.final_end, report.final_end_asked_ns) == expected


@pytest.mark.parametrize(
    ("start", "records", "defects"),
    [
        (0, ((0, 1), (1, 2)), []),
        # Offset 1 was skipped: it, the record before it and the one after it are suspicious.
        (0, ((0, 1), (2, 2)), [0, 1, 2]),
        (0, ((3, 1),), [-1, 0, 3]),
        (2, ((3, 1),), [-1, 2, 3]),
        (3, ((3, 1),), []),
        # An offset twice.
        (0, ((0, 1), (0, 2)), [0]),
        # In another order.
        (0, ((1, 1), (0, 2)), [0, 1]),
    ],
)
def test_what_is_wrong_with_a_poll_makes_offsets_suspicious(
    start: int, records: tuple[tuple[int, int], ...], defects: list[int]
) -> None:
    poll = replace(read(0, 1), records=records, position=0)
    report, _ = cut([poll], start=start)
    assert report.defects.tolist() == defects
    assert report.odd is bool(defects)


def test_a_record_beyond_the_log_end_of_its_response_is_suspicious() -> None:
    report, _ = cut([append(0, 0, at=1), read(1, 3, 0, end=0)])
    assert (report.defects.tolist(), report.log_violated) == ([0], True)


def test_a_duplicate_is_no_defect_of_one_poll() -> None:
    report, _ = cut([replace(append(5, None, at=1), outcome="info", res=None), read(1, 9, 5, 5)])
    assert (report.defects.tolist(), report.odd) == ([], False)


@pytest.mark.parametrize(
    ("call", "is_odd"),
    [
        (log_end(0, -5, at=1), True),
        (log_end(0, 5, at=1), False),
        (append(0, -5, at=1), False),
        (append(0, 5, at=1), False),
    ],
)
def test_log_ends_that_cannot_be_are_told_apart_from_such_offsets_of_appends(
    call: Call, is_odd: bool
) -> None:
    assert cut([call])[0].odd_ends is is_odd


@pytest.mark.parametrize("since", [None, (), (3,)])
def test_measures_are_in_the_report_if_they_are_taken(since: tuple[int, ...] | None) -> None:
    report, _ = cut([append(0, 0, at=1), read(1, 9, 0)], since=since)
    if since is None:
        assert report.measures is None
    else:
        assert report.measures is not None
        assert report.measures.end_ns == 10
        assert report.measures.succeeded["poll"].tolist() == [10] * len(since)
