"""Which offsets of a huge partition are suspects, from parts and reports that are written by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from checkers.kernels.buckets import BucketResult
from checkers.kernels.free_appends import Holes
from checkers.kernels.history import FAIL, INF_NS, INFO, OK_SOMEWHERE
from checkers.kernels.real_time import NEVER_NS
from checkers.kernels.slices import FreeAppends, Part, SliceReport, Times
from checkers.kernels.suspects import (
    Bounds,
    BucketSuspects,
    Plan,
    Rules,
    earliest_above,
    gather,
    is_in,
    latest_below,
    quotas,
    repeated_in,
    runs_of,
    strays_in,
    suspects_in,
    swapped_sends,
)

NONE = np.empty(0, dtype=np.int64)
FAR = 2**62 + 2
"""Above every offset."""
NOTHING_KNOWN = Bounds(low={"order": NEVER_NS, "fresh": NEVER_NS}, high=INF_NS, high_end=INF_NS)
Pairs = tuple[tuple[int, int], ...]


def ints(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


def times(*rows: tuple[int, int]) -> Times:
    """Returns facts, each an offset and a time."""
    return Times(
        offset=ints(*(offset for offset, _ in rows)),
        time_ns=ints(*(time_ns for _, time_ns in rows)),
        op=ints(*range(len(rows))),
    )


def part(
    *,
    order: Pairs = (),
    fresh: Pairs = (),
    present: Pairs = (),
    ended: Pairs = (),
    acked: Pairs = (),
    read: tuple[tuple[int, int, bool, int], ...] = (),
    unread: Pairs = (),
    weak: tuple[int, ...] = (),
) -> Part:
    """Returns a part; of records offset and value, of read ones also whether finally and by which groups."""
    return Part(
        absent={"order": times(*order), "fresh": times(*fresh)},
        present=times(*present),
        ended=times(*ended),
        asked=times(),
        acked_ns=NONE,
        read_ns=NONE,
        acked_offset=ints(*(offset for offset, _ in acked)),
        acked_value=ints(*(value for _, value in acked)),
        read_offset=ints(*(row[0] for row in read)),
        read_value=ints(*(row[1] for row in read)),
        read_final=np.array([row[2] for row in read], dtype=np.bool_),
        read_delivered=ints(*(row[3] for row in read)),
        unread_offset=ints(*(offset for offset, _ in unread)),
        unread_value=ints(*(value for _, value in unread)),
        unread_delivered=ints(*(0 for _ in unread)),
        weak_offset=ints(*weak),
    )


def free(*rows: dict[str, int]) -> FreeAppends:
    """Returns appends without an acknowledged offset, by default of unknown outcome and process 3."""
    full = [
        {"inv": 1, "res": INF_NS, "status": INFO, "process": 3, "before": -1, "after": FAR, **row}
        for row in rows
    ]
    columns: dict[str, Any] = {
        name: ints(*(row[name] for row in full))
        for name in ("op", "inv", "res", "process", "before", "after")
    }
    return FreeAppends(**columns, status=np.array([row["status"] for row in full], dtype=np.int8))


def found(
    *parts: Part,
    appends: FreeAppends | None = None,
    bounds: Bounds = NOTHING_KNOWN,
    rules: Rules | None = None,
    repeated: Any = NONE,
    low: int | None = None,
    first: int = 0,
    stop: int = 0,
    quota: tuple[int, int] = (99, 99),
) -> BucketSuspects:
    return suspects_in(
        parts,
        appends or free(),
        bounds,
        rules or Rules(),
        repeated,
        low=first if low is None else low,
        first=first,
        stop=stop,
        quota=quota,
    )


def suspects(*parts: Part, **more: Any) -> tuple[list[int], list[int]]:
    """Returns what is contradicted, and what is missing."""
    bucket = found(*parts, **more)
    return bucket.contradicted.tolist(), bucket.missing.tolist()


@pytest.mark.parametrize(
    ("asked_ns", "error_ns", "both_sides", "contradicted"),
    [
        (10, 0, True, []),
        (10, 0, False, []),
        (11, 0, True, [3, 5]),
        (11, 0, False, [5]),
        (11, 1, True, []),
        (12, 1, True, [3, 5]),
    ],
)
def test_an_offset_that_existed_is_contradicted_by_a_lower_one_that_did_not_exist_later(
    asked_ns: int, error_ns: int, both_sides: bool, contradicted: list[int]
) -> None:
    """Offset 5 existed at 10; when an operation began at `asked_ns`, offset 3 did not."""
    rules = Rules(both_sides=both_sides, clock_error_ns=error_ns)
    facts = part(order=((3, asked_ns),), present=((5, 10),))
    assert suspects(facts, rules=rules) == (contradicted, [])
    # The other fact may be of another bucket.
    above = replace(NOTHING_KNOWN, high=10)
    is_late = both_sides and bool(contradicted)
    assert suspects(part(order=((3, asked_ns),)), rules=rules, bounds=above)[0] == [3] * is_late
    below = replace(NOTHING_KNOWN, low={"order": asked_ns, "fresh": NEVER_NS})
    late = [5] * bool(contradicted)
    assert suspects(part(present=((5, 10),)), rules=rules, bounds=below)[0] == late


@pytest.mark.parametrize(("end_ns", "is_missing"), [(10, False), (11, True)])
def test_what_only_a_log_end_contradicts_is_missing(end_ns: int, is_missing: bool) -> None:
    facts = part(order=((5, 10),), fresh=((5, end_ns),), present=((5, 10),))
    assert suspects(facts) == ([], [5] * is_missing)
    bucket = found(facts)
    assert bucket.late_offset.tolist() == [5] * is_missing
    assert bucket.late_ns.tolist() == [11] * is_missing


@pytest.mark.parametrize(
    ("asked_ns", "stale_ends", "is_stale"),
    [(10, True, False), (11, True, True), (11, False, False)],
)
def test_a_log_end_is_stale_if_a_larger_one_had_been_received(
    asked_ns: int, stale_ends: bool, is_stale: bool
) -> None:
    rules = Rules(stale_ends=stale_ends)
    bucket = found(part(fresh=((3, asked_ns),), ended=((5, 10),)), rules=rules)
    assert (bucket.stale_offset.tolist(), bucket.stale_ns.tolist()) == (
        [3] * is_stale,
        [10] * is_stale,
    )
    # The larger one may be of another bucket.
    bounds = replace(NOTHING_KNOWN, high_end=10)
    assert found(
        part(fresh=((3, asked_ns),)), rules=rules, bounds=bounds
    ).stale_offset.tolist() == ([3] * is_stale)


def test_a_run_that_declares_nothing_has_the_plain_rules() -> None:
    """Only what a finding is about is suspicious, and only the latest log end matters."""
    assert suspects(part(order=((3, 11),), present=((5, 10),))) == ([5], [])
    assert found(part(fresh=((3, 11),), ended=((5, 10),))).stale_offset.tolist() == []
    lost = part(acked=((0, 1),), read=((0, 1, True, 0),))
    assert suspects(lost) == ([], [])


FINAL, NOT_FINAL = True, False


@pytest.mark.parametrize(
    ("records", "more", "expected"),
    [
        (part(acked=((0, 1), (1, 2)), read=((0, 1, FINAL, 0), (1, 2, FINAL, 0))), {}, ([], [])),
        (part(acked=((0, 1), (1, 2)), read=((0, 1, FINAL, 0),)), {}, ([], [1])),
        (part(acked=((0, 1),), read=((0, 1, NOT_FINAL, 0),)), {}, ([], [0])),
        (part(acked=((0, 1),), read=((0, 2, FINAL, 0),)), {}, ([0], [])),
        (part(acked=((0, 1),), read=((0, 1, FINAL, 0),), unread=((0, 1),)), {}, ([0], [])),
        # An append of unknown outcome was read: the first one, and one that failed.
        (part(read=((2, 7, FINAL, 0),)), {"appends": free({"op": 7})}, ([], [])),
        (part(read=((2, 7, FINAL, 0),)), {"appends": free({"op": 7, "status": FAIL})}, ([2], [])),
        (part(read=((2, 8, FINAL, 0),)), {"appends": free({"op": 7})}, ([2], [])),
        (
            part(read=((2, 7, FINAL, 0),)),
            {"appends": free({"op": 7}), "repeated": ints(7)},
            ([2], []),
        ),
        # Below the first offset at which a record has to be.
        (part(acked=((0, 1),)), {"first": 1}, ([], [])),
        (part(acked=((1, 1),)), {"first": 1}, ([], [1])),
        (part(acked=((0, 1), (0, 2))), {"first": 1}, ([0], [])),
        (part(read=((0, 7, NOT_FINAL, 0),)), {"first": 1, "appends": free({"op": 7})}, ([], [])),
        (part(read=((0, 8, NOT_FINAL, 0),)), {"first": 1, "appends": free({"op": 7})}, ([0], [])),
        # An append with acks=1 that was not read may have been lost.
        (part(acked=((0, 1), (1, 2)), weak=(0,)), {"first": 2}, ([], [0])),
        (
            part(acked=((0, 1),), read=((0, 1, NOT_FINAL, 0),), weak=(0,)),
            {"first": 1},
            ([], []),
        ),
        # Consumer groups 0 and 1 committed offset 3; group 1 did not receive the second record.
        (
            part(acked=((1, 1), (2, 2)), read=((1, 1, FINAL, 3), (2, 2, FINAL, 1))),
            {"rules": Rules(committed=(3, 3))},
            ([2], []),
        ),
        (
            part(acked=((1, 1), (2, 2)), read=((1, 1, FINAL, 3), (2, 2, FINAL, 1))),
            {"rules": Rules(committed=(3, 2))},
            ([], []),
        ),
    ],
)
def test_records_that_are_contradicted_or_missing(
    records: Part, more: dict[str, Any], expected: tuple[list[int], list[int]]
) -> None:
    assert suspects(records, **more) == expected


@pytest.mark.parametrize(
    ("quota", "contradicted", "missing"),
    [((1, 2), [0], [5, 6]), ((9, 0), [0, 1], []), ((0, 9), [], [5, 6, 7])],
)
def test_a_quota_limits_both_kinds_separately(
    quota: tuple[int, int], contradicted: list[int], missing: list[int]
) -> None:
    twice = part(acked=tuple((offset, value) for offset in (0, 1) for value in (10, 20)))
    lost = part(acked=((5, 30), (6, 31), (7, 32)))
    bucket = found(twice, lost, quota=quota)
    assert (bucket.contradicted.tolist(), bucket.missing.tolist()) == (contradicted, missing)
    assert bucket.counts == (2, 3)
    assert bucket.ignored == 5 - len(contradicted) - len(missing)
    assert bucket.fills(quota)
    assert not found(twice, lost, quota=(1, 1)).fills((2, 1))
    assert not found(twice, lost, quota=(2, 1)).fills((1, 1))


def test_records_that_are_known_and_not_suspicious_are_good() -> None:
    records = part(acked=((1, 1), (2, 2), (4, 4)), read=((1, 1, FINAL, 0), (2, 2, FINAL, 0)))
    bucket = found(records, first=1, stop=5)
    assert (bucket.good_start.tolist(), bucket.good_stop.tolist()) == ([1], [3])
    assert bucket.missing.tolist() == [4]


@pytest.mark.parametrize(("stop", "holes"), [(2, [0, 1]), (3, [0]), (5, [0, 3]), (0, [])])
def test_ranges_without_a_record_begin_where_a_bound_changes(stop: int, holes: list[int]) -> None:
    records = part(read=((2, 2, FINAL, 0),)) if stop != 2 else part(order=((0, 5),))
    assert found(records, stop=stop).hole_first.tolist() == holes


def test_a_bucket_without_holes_names_none() -> None:
    records = part(acked=((0, 1), (1, 2)), read=((0, 1, FINAL, 0), (1, 2, FINAL, 0)))
    assert found(records, stop=2).hole_first.tolist() == []


@pytest.mark.parametrize(
    ("status", "holes"), [(INFO, [12]), (OK_SOMEWHERE, [0, 3, 12]), (FAIL, [12])]
)
def test_an_append_without_an_offset_may_be_where_nothing_has_to_be(
    status: int, holes: list[int]
) -> None:
    """Offset 2 and 11 have records, and the log starts at 11."""
    records = part(read=((2, 2, FINAL, 0), (11, 3, FINAL, 0)))
    mine = free({"op": 7, "status": status})
    bucket = found(records, appends=mine, low=0, first=11, stop=14)
    assert bucket.hole_first.tolist() == holes


def test_strays_are_the_values_at_suspicious_offsets() -> None:
    records = part(read=((2, 8, FINAL, 0), (3, 9, FINAL, 0)))
    bucket = found(records)
    assert bucket.strays.tolist() == [8, 9]
    assert found(records, quota=(1, 0)).strays.tolist() == [8]
    assert strays_in({0: bucket, 1: found(part(read=((30, 1, FINAL, 0),)))}).tolist() == [1, 8, 9]
    assert strays_in({}).tolist() == []


# --- what every slice has to keep ---


def report(**more: Any) -> SliceReport:
    columns = ("defects", "doubtful", "swapped", "sender", "sender_first", "sender_last")
    final = ("final_position", "final_first", "final_last")
    times = ("sent", "sent_until", "seen", "seen_since")
    return SliceReport(
        **{
            **dict.fromkeys((*columns, *times, *final), NONE),
            "counts": {},
            "measures": None,
            "limit": 20,
            "shown_limit": 9,
            "log_violated": False,
            "odd": False,
            "odd_ends": False,
            "free": free(),
            "final_end": -1,
            "final_end_asked_ns": -1,
            **more,
        }
    )


def result(*revealed: tuple[int, int], ended_ns: int = INF_NS) -> BucketResult:
    """Returns the result of a bucket in which reads revealed appends, each with its offset."""
    return BucketResult(
        elements={},
        integrity_holds=True,
        all_there=True,
        revealed_op=ints(*(op for op, _ in revealed)),
        revealed_offset=ints(*(offset for _, offset in revealed)),
        hole_count=0,
        holes=Holes.none(),
        delivered_count=0,
        ended_ns=ended_ns,
        measures=None,
        group_got_all=True,
    )


def bucket_of(**more: Any) -> BucketSuspects:
    columns = BucketSuspects.__dataclass_fields__.keys() - {"counts"}
    return BucketSuspects(**{**dict.fromkeys(columns, NONE), "counts": (0, 0), **more})


def plan(
    *reports: SliceReport,
    revealed: Pairs = (),
    bucket: BucketSuspects | None = None,
    appends: FreeAppends | None = None,
    rules: Rules | None = None,
    at: int = 0,
    width: int = 20,
) -> Plan:
    return gather(
        reports or (report(),),
        {at: result(*revealed)},
        {at: bucket or bucket_of()},
        appends or free(),
        NONE,
        rules or Rules(),
        width=width,
    )


def test_all_good_offsets_but_suspects_are_left_out() -> None:
    good = bucket_of(good_start=ints(0), good_stop=ints(10), missing=ints(5), counts=(0, 1))
    whole = plan(bucket=good)
    left_out = whole.left_out
    assert (left_out.start.tolist(), left_out.stop.tolist()) == ([0, 6], [5, 10])
    assert whole.offsets.tolist() == [5]
    assert whole.points.tolist() == [5, FAR]
    assert (left_out.limit, left_out.final_end, whole.ignored) == (10, -1, 0)


@pytest.mark.parametrize(("shown", "limit"), [((12, 15), 15), ((15, 3), 15), ((0, 0), 10)])
def test_the_history_reaches_as_far_as_reads_log_ends_and_what_is_left_out_show(
    shown: tuple[int, int], limit: int
) -> None:
    good = bucket_of(good_start=ints(0), good_stop=ints(10))
    reports = [report(shown_limit=each) for each in shown]
    assert plan(*reports, bucket=good).left_out.limit == limit


@pytest.mark.parametrize(
    ("at", "start", "points"),
    [(0, 0, []), (1, 0, [0]), (1, 10, [10]), (1, 9, [9]), (2, 0, [0]), (5, 0, [0])],
)
def test_ranges_of_buckets_without_any_part_have_a_point(
    at: int, start: int, points: list[int]
) -> None:
    """So has the start of a log that does not start at 0."""
    whole = plan(at=at, width=10, rules=Rules(log_start_offset=start))
    assert whole.points.tolist() == [*points, FAR]


def test_a_range_of_buckets_below_the_log_start_has_a_point_if_an_append_may_be_there() -> None:
    rules = Rules(log_start_offset=30)
    for buckets, status, points in (
        ((0, 3), INFO, [30]),
        ((0, 3), OK_SOMEWHERE, [10, 30]),
        ((2, 3), INFO, [30]),
        ((2, 3), OK_SOMEWHERE, [0, 30]),
    ):
        results = {bucket: result() for bucket in buckets}
        found_in = {bucket: bucket_of() for bucket in buckets}
        mine = free({"op": 7, "status": status})
        whole = gather([report(limit=40)], results, found_in, mine, NONE, rules, width=10)
        assert whole.points.tolist() == [*points, FAR]


def test_a_range_between_two_buckets_has_a_point() -> None:
    for buckets, points in (((0, 1, 2), []), ((0, 2), [10]), ((1, 4), [0, 20])):
        results = {bucket: result() for bucket in buckets}
        found_in = {bucket: bucket_of() for bucket in buckets}
        reports = [report(limit=50)]
        whole = gather(reports, results, found_in, free(), NONE, Rules(), width=10)
        assert whole.points.tolist() == [*points, FAR]


@pytest.mark.parametrize(
    ("before", "is_swapped"), [(-1, False), (3, False), (4, True), (5, True), (0, False)]
)
def test_a_process_whose_revealed_append_is_not_above_its_last_one_is_out_of_order(
    before: int, is_swapped: bool
) -> None:
    whole = plan(revealed=((7, 4),), appends=free({"op": 7, "before": before}))
    assert whole.swapped.tolist() == [3] * is_swapped
    assert whole.offsets.tolist() == sorted({4, before}) * is_swapped


@pytest.mark.parametrize(("before", "is_swapped"), [(-1, True), (0, False), (1, False)])
def test_the_last_append_of_a_process_may_be_in_an_earlier_slice(
    before: int, is_swapped: bool
) -> None:
    mine = free({"op": 7, "before": before})
    earlier = report(sender=ints(3), sender_first=ints(9), sender_last=ints(9))
    whole = plan(earlier, report(free=mine), revealed=((7, 4),), appends=mine)
    assert whole.offsets.tolist() == [4, 9] * is_swapped
    # In the slices after it, it is not before it.
    later = plan(report(free=mine), earlier, revealed=((7, 4),), appends=mine)
    assert later.swapped.tolist() == []


OK = {"status": OK_SOMEWHERE}


@pytest.mark.parametrize(
    ("rows", "revealed", "processes", "offsets"),
    [
        # Before an acknowledged one, at its offset or above.
        ([{"op": 1, "after": 5, **OK}], [(1, 5)], [3], [5]),
        ([{"op": 1, "after": 4, **OK}], [(1, 5)], [3], [4, 5]),
        ([{"op": 1, "after": 6, **OK}], [(1, 5)], [], []),
        # Nothing promises that an append of unknown outcome takes effect first.
        ([{"op": 1, "after": 4}], [(1, 5)], [], []),
        # Behind an acknowledged one.
        ([{"op": 1, "before": 5}], [(1, 5)], [3], [5]),
        ([{"op": 1, "before": 4}], [(1, 5)], [], []),
        # Two of one process without offsets.
        ([{"op": 1, **OK}, {"op": 2}], [(1, 5), (2, 5)], [3], [5]),
        ([{"op": 1, **OK}, {"op": 2, **OK}], [(1, 5), (2, 4)], [3], [4, 5]),
        ([{"op": 1, **OK}, {"op": 2}], [(1, 5), (2, 6)], [], []),
        ([{"op": 1}, {"op": 2, **OK}], [(1, 5), (2, 4)], [], []),
        ([{"op": 1, **OK}, {"op": 2, "process": 4}], [(1, 5), (2, 4)], [], []),
        # Everything of a process that is out of order, also its neighbours with offsets.
        (
            [{"op": 1, **OK}, {"op": 2, "before": 0, "after": 8}],
            [(1, 5), (2, 4)],
            [3],
            [0, 4, 5, 8],
        ),
    ],
)
def test_appends_without_an_offset_are_compared_with_their_neighbours(
    rows: list[dict[str, int]],
    revealed: list[tuple[int, int]],
    processes: list[int],
    offsets: list[int],
) -> None:
    appends = free(*({"inv": row["op"], **row} for row in rows))
    found = swapped_sends([report(free=appends)], {0: result(*revealed)}, appends)
    assert tuple(column.tolist() for column in found) == (processes, offsets)


@pytest.mark.parametrize(
    ("after", "firsts", "is_out"),
    [(FAR, (4, 9), True), (FAR, (6, 9), False), (6, (4, 9), False), (FAR, (), False)],
)
def test_the_next_append_of_a_process_may_be_in_a_later_slice(
    after: int, firsts: tuple[int, ...], is_out: bool
) -> None:
    appends = free({"op": 1, "after": after, **OK})
    later = [
        report(sender=ints(3), sender_first=ints(first), sender_last=ints(first))
        for first in firsts
    ]
    found, _ = swapped_sends([report(free=appends), *later], {0: result((1, 5))}, appends)
    assert found.tolist() == ([3] if is_out else [])


@pytest.mark.parametrize("error_ns", [0, 1])
def test_all_appends_of_processes_out_of_order_are_kept_if_clocks_differ(error_ns: int) -> None:
    assert plan(rules=Rules(clock_error_ns=error_ns)).keeps_swapped is bool(error_ns)


def test_free_appends_that_reads_revealed_at_several_offsets_are_repeated() -> None:
    results = {0: result((7, 1), (8, 2)), 1: result((7, 11), (9, 12)), 2: result((9, 21), (9, 22))}
    assert repeated_in(results).tolist() == [7, 9]
    assert repeated_in({0: result((7, 1))}).tolist() == []
    assert repeated_in({}).tolist() == []


def test_the_appends_that_bound_a_point_are_kept() -> None:
    """Two appends are left out with their offsets. The first one had succeeded by 50."""
    good = bucket_of(good_start=ints(2, 4), good_stop=ints(3, 5), hole_first=ints(0))
    appends = free(
        {"op": 7, "status": OK_SOMEWHERE, "inv": 1, "res": 50},
        {"op": 8, "inv": 5},
        {"op": 9, "status": FAIL},
        {"op": 10},
    )
    whole = plan(bucket=good, revealed=((7, 2), (8, 4)), appends=appends)
    assert whole.ops.tolist() == [7, 8, 10]
    assert whole.left_out.revealed_op.tolist() == [7, 8]
    assert whole.left_out.revealed_offset.tolist() == [2, 4]


@pytest.mark.parametrize(("position", "start"), [(0, 0), (1, 1), (2, 2), (-1, 2), (9, 4)])
def test_final_polls_went_over_everything_from_their_positions_on(
    position: int, start: int
) -> None:
    """The poll returned records from offset 2 to 4."""
    poll = report(
        final_position=ints(position),
        final_first=ints(2),
        final_last=ints(4),
        final_end=5,
        final_end_asked_ns=70,
    )
    left_out = plan(report(), poll).left_out
    assert (left_out.final_start.tolist(), left_out.final_stop.tolist()) == ([start], [5])
    assert (left_out.final_end, left_out.final_end_asked_ns) == (5, 70)


@pytest.mark.parametrize(
    ("defect", "offsets"), [(0, [0, 3]), (3, [3]), (4, [4]), (5, [5, 8]), (9, [9])]
)
def test_the_first_good_record_after_a_defect_is_kept(defect: int, offsets: list[int]) -> None:
    good = bucket_of(good_start=ints(3, 8), good_stop=ints(5, 9))
    assert plan(report(defects=ints(defect)), bucket=good).offsets.tolist() == offsets


@pytest.mark.parametrize("stale_ends", [True, False])
@pytest.mark.parametrize("odd_ends", [True, False])
def test_every_log_end_is_kept_if_one_cannot_be(stale_ends: bool, odd_ends: bool) -> None:
    whole = plan(report(), report(odd_ends=odd_ends), rules=Rules(stale_ends=stale_ends))
    assert whole.every_end is (stale_ends and odd_ends)


# --- small functions ---


def test_rows_that_bound_points() -> None:
    offset, time_ns = ints(1, 2, 4, 6), ints(9, 5, 9, 12)
    for points, below, above in (
        ((0,), [], [1]),
        ((1,), [0], [1]),
        ((2,), [0], [1]),
        ((3,), [0], [2]),
        ((4, 5), [0], [2, 3]),
        ((6, 7), [3], [3]),
        ((0, 3, 9), [0, 3], [1, 2]),
    ):
        assert latest_below(offset, time_ns, ints(*points)).tolist() == below
        assert earliest_above(offset, time_ns, ints(*points)).tolist() == above
    assert latest_below(NONE, NONE, ints(1)).tolist() == []
    assert earliest_above(NONE, NONE, ints(1)).tolist() == []
    assert latest_below(offset, time_ns, NONE).tolist() == []


def test_ascending_offsets_are_ranges() -> None:
    for offsets, starts, stops in (
        ((), [], []),
        ((3,), [3], [4]),
        ((3, 4, 6, 9, 10), [3, 6, 9], [5, 7, 11]),
    ):
        start, stop = runs_of(ints(*offsets))
        assert (start.tolist(), stop.tolist()) == (starts, stops)


def test_touching_ranges_of_two_buckets_are_one() -> None:
    good = {
        0: bucket_of(good_start=ints(0, 7), good_stop=ints(5, 10)),
        1: bucket_of(good_start=ints(10, 15), good_stop=ints(12, 20)),
    }
    whole = gather([report()], {0: result(), 1: result()}, good, free(), NONE, Rules(), width=10)
    assert whole.left_out.start.tolist() == [0, 7, 15]
    assert whole.left_out.stop.tolist() == [5, 12, 20]


def test_values_are_found_among_ascending_ones() -> None:
    assert is_in(ints(1, 2, 3, 9), ints(2, 3)).tolist() == [False, True, True, False]
    assert is_in(ints(1), NONE).tolist() == [False]
    assert is_in(NONE, ints(1)).tolist() == []


def test_lower_buckets_have_the_first_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checkers.kernels.suspects.SUSPECTS_MAX", 5)
    assert quotas({1: (2, 9), 0: (1, 4)}) == {1: (2, 0), 0: (1, 2)}
    assert quotas({0: (9, 9), 1: (9, 9)}) == {0: (5, 0), 1: (0, 0)}
