"""The functions of which the measures consist, with times of a few nanoseconds."""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from checkers.kernels.facts import derive_facts
from checkers.kernels.history import I64, PartitionHistory, read_history
from checkers.kernels.measures import (
    MEASURES,
    Recovery,
    SlowRecovery,
    attempts,
    end_of,
    is_acked,
    measured,
    moments_of,
    moments_until,
    recoveries,
    slow_recoveries,
    unseen_changes,
    unseen_series,
    worst_lag_ns,
)
from harness.contracts.run_context import RunContext
from harness.contracts.verdict import Judgement
from harness.history.schema import with_column
from tests.anomalies.runs import append, fault, read, table
from tests.property.brute_force import Call, ends_table, operations_table, records_table

INFINITY_NS = 2**61


def ints(*values: int) -> I64:
    return np.array(values, dtype=np.int64)


def history(calls: list[Call], *, without: int | None = None) -> PartitionHistory:
    """Returns a history; the operation `without` is not in the table of operations."""
    known = [call for call in calls if call.op != without]
    return read_history(operations_table(known), records_table(calls), ends_table(known))


def test_the_checker_of_measures_judges_single_partitions() -> None:
    assert (MEASURES.name, MEASURES.per_partition) == ("measures", True)


# --- unseen records ---


@pytest.mark.parametrize(
    ("end_ns", "first", "last"),
    [
        (29, [0, 1, 2], [28, 29]),
        (290, [0, 10, 20], [280, 290]),
        (0, [0, 0, 0], [0, 1]),
        (1, [0, 0, 0], [0, 1]),
    ],
)
def test_a_series_has_30_moments_from_the_start_to_the_end(
    end_ns: int, first: list[int], last: list[int]
) -> None:
    moments = moments_until(end_ns).tolist()
    assert (len(moments), moments[:3], moments[-2:]) == (30, first, last)


@pytest.mark.parametrize(
    ("acked_ns", "seen_ns", "expected"),
    [
        ([], [], [0, 0, 0, 0]),
        ([10], [20], [0, 1, -1, 0]),
        ([11], [21], [0, 0, 1, -1]),
        ([0], [INFINITY_NS], [1, 0, 0, 0]),
        ([5, 6, 15], [8, 31, 25], [0, 1, 1, -1]),
    ],
)
def test_records_are_unseen_from_the_moment_of_their_acknowledgement_to_that_of_a_read(
    acked_ns: list[int], seen_ns: list[int], expected: list[int]
) -> None:
    assert unseen_changes(ints(0, 10, 20, 30), ints(*acked_ns), ints(*seen_ns)).tolist() == expected


@pytest.mark.parametrize("op", [0, 1])
@pytest.mark.parametrize(
    ("poll", "is_seen"),
    [
        (read(5, 9, 7), True),
        (replace(read(5, 9, 7), records=((4, 7),)), True),
        (read(5, 9, 3), False),
    ],
)
def test_a_record_is_seen_when_a_poll_returned_its_value(
    op: int, poll: Call, is_seen: bool
) -> None:
    """Append 7 was acknowledged at 2 ns; the series has a moment every nanosecond."""
    earlier = [append(1, 3, at=1)] if op else []
    given = history([*earlier, append(7, 0, at=1), poll])
    facts, _ = derive_facts(given)
    moments, unseen = unseen_series(given, facts, 29)
    count = dict(zip(moments.tolist(), unseen.tolist(), strict=True))
    others = len(earlier)
    assert [count[at] - others * (at >= 2) for at in (1, 2, 9, 10)] == [0, 1, 1, int(not is_seen)]


def test_a_poll_that_is_not_in_the_table_sees_nothing() -> None:
    calls = [append(7, 0, at=1), read(5, 9, 7), append(8, 1, at=1), read(6, 20, 8, start=1)]
    given = history(calls, without=5)
    facts, _ = derive_facts(given)
    assert unseen_series(given, facts, 29)[1].tolist()[-10:] == [2] + [1] * 9


# --- lag ---


@pytest.mark.parametrize(
    ("position", "start", "lag_ns"),
    [
        # Offsets 0, 1 and 2 are known to exist at 12, 12 and 22 ns, because of what is above them.
        (0, 0, 28),
        (1, 0, 28),
        (2, 0, 18),
        (3, 0, 0),
        (-1, 0, 0),
        (1, 1, 28),
        (1, 2, 0),
        (2, 2, 18),
    ],
)
def test_a_poll_is_late_by_the_time_for_which_its_record_existed(
    position: int, start: int, lag_ns: int
) -> None:
    calls = [
        append(0, 0, at=30),
        append(1, 1, at=11),
        append(2, 2, at=21),
        read(5, 40, start=position),
    ]
    given = history(calls)
    facts, _ = derive_facts(given, log_start_offset=start)
    assert worst_lag_ns(given, facts) == lag_ns


def test_a_poll_that_began_before_its_record_existed_is_not_late() -> None:
    given = history([append(0, 0, at=30), read(5, 10, start=0)])
    facts, _ = derive_facts(given)
    assert worst_lag_ns(given, facts) == 0


# --- recoveries ---


def injected(at: int, healed: int | None, **more: Any) -> dict[str, Any]:
    return fault(at, "cut", ["b1"], healed=healed) | more


def recovered(
    calls: list[Call], *faults: dict[str, Any], error_ns: int | None = None
) -> list[Recovery]:
    more = {} if error_ns is None else {"clock_error_ns": error_ns}
    return recoveries(history(calls), table("faults", list(faults)), **more)


def test_heals_are_moments_and_so_are_the_ends_of_the_error_of_the_clocks() -> None:
    faults = table(
        "faults", [injected(10, 50), injected(20, 50), injected(60, None), injected(70, 90)]
    )
    assert moments_of(faults, 3) == [47, 50, 53, 87, 90, 93]
    assert moments_of(faults, 0) == [50, 90]


TRIES = [append(0, 0, at=50), append(1, 1, at=70), read(5, 49), read(6, 60)]
"""Acknowledged at 51 and 71, polled at 50 and 61."""


@pytest.mark.parametrize(
    ("healed", "append_ns", "poll_ns"),
    [(49, 2, 1), (50, 1, 11), (51, 20, 10), (70, 1, None), (71, None, None)],
)
def test_a_recovery_is_the_time_to_the_next_success(
    healed: int, append_ns: int | None, poll_ns: int | None
) -> None:
    (found,) = recovered(TRIES, injected(10, healed))
    assert (found.append_ns, found.poll_ns) == (append_ns, poll_ns)
    assert found.perhaps_before == frozenset()


@pytest.mark.parametrize(
    ("healed", "error_ns", "perhaps"),
    [
        (51, 0, set()),
        (51, 1, {"append"}),
        (51, 2, {"append", "poll"}),
        (52, 1, set()),
        (52, 2, {"append"}),
        (100, 9, set()),
    ],
)
def test_what_succeeded_within_the_error_of_the_clocks_was_perhaps_before_the_heal(
    healed: int, error_ns: int, perhaps: set[str]
) -> None:
    (found,) = recovered(TRIES, injected(10, healed), error_ns=error_ns)
    assert found.perhaps_before == perhaps


@pytest.mark.parametrize(
    ("others", "quiet_until_ns"),
    [
        ([], INFINITY_NS),
        # The next fault begins.
        ([injected(80, 90)], 80),
        ([injected(80, 90), injected(70, 95)], 70),
        # Another one was over, also if it ended at the same moment.
        ([injected(20, 49)], INFINITY_NS),
        ([injected(20, 50)], INFINITY_NS),
        # It began at that moment, or was in force.
        ([injected(50, 60)], 50),
        ([injected(20, 51)], 50),
        ([injected(20, None)], 50),
        ([injected(51, None)], 51),
        ([injected(50, 50)], INFINITY_NS),
        # A repair is no fault.
        ([injected(51, None, heals=True)], INFINITY_NS),
    ],
)
def test_a_recovery_is_undisturbed_until_the_next_fault_begins(
    others: list[dict[str, Any]], quiet_until_ns: int
) -> None:
    found = {each.healed_ns: each for each in recovered(TRIES, injected(10, 50), *others)}
    assert found[50].quiet_until_ns == quiet_until_ns
    assert found[50].certain_until_ns == quiet_until_ns


def test_every_acknowledgement_is_a_success() -> None:
    calls = [
        append(0, 0, at=1),
        append(1, None, at=1),
        append(2, None, at=1, acks=0),
        replace(append(3, None, at=1), outcome="fail"),
        replace(append(4, None, at=1), outcome="info", res=None),
    ]
    assert is_acked(history(calls)).tolist() == [True, True, False, False, False]


# --- whether clients tried ---


@pytest.mark.parametrize(
    ("inv", "end", "expected"),
    [
        (0, 8, [True] * 4),
        # Quarters begin at 100, 102, 104 and 106.
        (0, 1, [True, False, False, False]),
        (1, 2, [True, True, False, False]),
        (2, 3, [False, True, False, False]),
        (2, 4, [False, True, True, False]),
        (7, 7, [False, False, False, True]),
        (8, 9, [False] * 4),
        (-1, 9, [False] * 4),
        (3, None, [False, True, True, True]),
    ],
)
@pytest.mark.parametrize("kind", ["append", "poll"])
def test_an_attempt_counts_in_each_quarter_in_which_it_was_in_progress(
    kind: str, inv: int, end: int | None, expected: list[bool]
) -> None:
    call = append(0, 0, at=1) if kind == "append" else read(0, 1)
    given = replace(
        call, inv=100 + inv, res=None if end is None else 100 + end, outcome="info", offset=None
    )
    found = attempts(operations_table([given]), [100], 8)
    other = "poll" if kind == "append" else "append"
    assert found[kind].tolist() == [expected]
    assert found[other].tolist() == [[False] * 4]


@pytest.mark.parametrize(
    ("kind", "code", "counts"),
    [
        ("append", 10, False),
        ("append", 19, True),
        ("append", None, True),
        ("poll", 29, False),
        ("poll", 6, True),
    ],
)
def test_what_is_refused_for_what_it_is_is_no_attempt(
    kind: str, code: int | None, counts: bool
) -> None:
    call = replace(append(0, None, at=100, outcome="fail"), kind=kind)
    operations = operations_table([call])
    column = pa.array([code], operations.schema.field("error_code").type)
    found = attempts(with_column(operations, "error_code", column), [100], 8)
    assert found[kind].any() == counts


@pytest.mark.parametrize(("acks", "counts"), [(-1, True), (0, False), (1, True)])
def test_appends_without_acknowledgements_are_no_attempts(acks: int, counts: bool) -> None:
    found = attempts(operations_table([append(0, 0, at=100, acks=acks)]), [100], 8)
    assert found["append"].tolist() == [[counts, False, False, False]]


# --- slow recoveries ---


def slow(
    *,
    took_ns: int | None = 11,
    quiet: int = INFINITY_NS,
    certain: int = INFINITY_NS,
    end: int = 1000,
    error: int = 0,
    tried: bool = True,
    tried_later: bool = True,
    perhaps: bool = False,
) -> list[bool]:
    """Returns whether a recovery of appends from 50 ns on is certainly slow, if it is; the limit is 10 ns."""
    recovery = Recovery(
        healed_ns=50,
        append_ns=took_ns,
        poll_ns=1,
        quiet_until_ns=quiet,
        certain_until_ns=min(quiet, certain),
        perhaps_before=frozenset({"append"} if perhaps else ()),
    )
    moments = {50 + error: tried_later} | {50: tried}
    found = slow_recoveries([recovery], {"append": moments, "poll": moments}, 10, end, error)
    assert all(
        (each.kind, each.healed_ns, each.took_ns) == ("append", 50, took_ns) for each in found
    )
    return [each.is_certain for each in found]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, [True]),
        ({"took_ns": 10}, []),
        ({"took_ns": None}, [True]),
        # A fault begins, or the run ends, before the limit.
        ({"quiet": 60}, [True]),
        ({"quiet": 59}, []),
        ({"quiet": 60, "perhaps": True}, [False]),
        ({"end": 60, "perhaps": True}, [False]),
        ({"end": 60}, [True]),
        ({"end": 59}, []),
        ({"tried": False}, []),
        # A fault whose injection failed may be in force.
        ({"certain": 60}, [True]),
        ({"certain": 59}, [False]),
        # Clocks may differ.
        ({"error": 1}, [False]),
        ({"error": 1, "took_ns": 12}, [True]),
        ({"error": 2, "took_ns": 12}, [False]),
        ({"error": 2, "took_ns": 13, "end": 62}, [True]),
        ({"error": 2, "took_ns": 13, "end": 61}, [False]),
        ({"error": 2, "took_ns": 13, "tried_later": False}, [False]),
        ({"error": 2, "took_ns": 13, "tried": False}, [True]),
        ({"error": 2, "took_ns": 13, "perhaps": True}, [False]),
    ],
)
def test_a_recovery_is_slow_if_nothing_else_explains_it(
    given: dict[str, Any], expected: list[bool]
) -> None:
    assert slow(**given) == expected


def report(*found: SlowRecovery, recoveries: list[Recovery] | None = None) -> Any:
    series = ints(0, 1), ints(0, 0)
    return measured(recoveries or [], list(found), series, 0, RunContext(recovery_max_ms=5))


def recovery_of(kind: str, healed: int, took: int | None, *, certain: bool = True) -> SlowRecovery:
    return SlowRecovery(kind=kind, healed_ns=healed, took_ns=took, is_certain=certain)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ([("append", 10, 7_000_000)], "the next append was acknowledged only after 7 ms"),
        ([("poll", 10, 7_000_000)], "the next poll succeeded only after 7 ms"),
        ([("append", 10, None)], "no append was acknowledged afterwards"),
        ([("poll", 10, 0)], "the next poll succeeded only after 0 ns"),
        (
            [("append", 10, 7_000_000), ("poll", 10, None)],
            "no poll succeeded afterwards",
        ),
        (
            [("append", 10, 7_000_000), ("poll", 20, 8_000_000)],
            "the next poll succeeded only after 8 ms",
        ),
    ],
)
def test_the_worst_recovery_is_named(found: list[tuple[str, int, int | None]], text: str) -> None:
    (finding,) = report(*(recovery_of(*each) for each in found)).findings
    assert text in finding.sentence
    assert finding.sentence.endswith("the experiment allows 5 ms")
    assert (finding.judgement, finding.count) == (Judgement.FORBIDDEN, len(found))


def test_uncertain_recoveries_are_undecided_and_come_last() -> None:
    certain, uncertain = (recovery_of("append", 10, 9, certain=each) for each in (True, False))
    found = report(uncertain, certain, uncertain).findings
    assert [(each.judgement, each.count) for each in found] == [
        (Judgement.FORBIDDEN, 1),
        (Judgement.UNDECIDED, 2),
    ]
    assert [each.judgement for each in report(uncertain).findings] == [Judgement.UNDECIDED]
    assert report().findings == ()


def test_the_20_slowest_recoveries_are_in_the_coverage() -> None:
    """The worst is one that never came; of equal ones the first heal comes first."""
    many = [
        Recovery(
            healed_ns=1_000_000 * n,
            append_ns=None if n == 7 else 1_000_000 * (n // 2),
            poll_ns=0,
            quiet_until_ns=INFINITY_NS,
            certain_until_ns=INFINITY_NS,
            perhaps_before=frozenset(),
        )
        for n in range(25)
    ]
    found = report(recoveries=many).coverage["measures"]
    assert found["recoveries"][:4] == [
        [7.0, None, 0.0],
        [24.0, 12.0, 0.0],
        [22.0, 11.0, 0.0],
        [23.0, 11.0, 0.0],
    ]
    assert len(found["recoveries"]) == 20
    assert (found["recovery_append_ms_max"], found["recovery_poll_ms_max"]) == (12.0, 0.0)


# --- the end ---


@pytest.mark.parametrize(
    ("calls", "end_ns"),
    [
        ([], 0),
        ([append(0, 0, at=1)], 2),
        ([replace(append(0, None, at=1), outcome="info", res=None)], 1),
        ([replace(append(0, None, at=0), outcome="info", res=None)], 0),
        ([append(0, 0, at=1), replace(append(1, None, at=9), outcome="info", res=None)], 9),
        ([append(0, 0, at=1), replace(append(1, None, at=1), outcome="info", res=None)], 2),
        ([append(0, 0, at=1), read(1, 20)], 21),
        ([append(0, 0, at=1), Call(op=1, kind="latest", process=1, inv=30, res=31, offset=1)], 31),
    ],
)
def test_a_history_ends_with_its_last_operation(calls: list[Call], end_ns: int) -> None:
    assert end_of(history(calls)) == end_ns
