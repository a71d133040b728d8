"""What free appends show if records that were acknowledged with acks=1 may be lost."""

from dataclasses import replace

import numpy as np
import pytest

from checkers.kernels.acks_one import holding
from checkers.kernels.findings import finding
from checkers.kernels.free_appends import RealTimeHolds
from checkers.kernels.linearizability import Options, check_tables
from tests.anomalies.runs import append, read
from tests.property.brute_force import Call, ends_table, operations_table, records_table


def found(*calls: Call, log_start_offset: int = 0) -> dict[str, list[bool]]:
    """Returns the findings of a history, and which of their instances rest on acks=1."""
    history = list(calls)
    report = check_tables(
        operations_table(history),
        records_table(history),
        ends_table(history),
        Options(log_start_offset=log_start_offset),
    )
    return {each.id: each.weak.tolist() for each in report.findings}


def unknown(op: int, *, at: int) -> Call:
    return replace(append(op, None, at=at), res=None, outcome="info")


def log_end(op: int, end: int, *, at: int) -> Call:
    return Call(op=op, kind="latest", process=98, inv=at, res=at + 1, offset=end)


@pytest.mark.parametrize(
    ("identifiers", "expected"),
    [
        ([], RealTimeHolds(order=True, fresh=True)),
        (["order-inversion"], RealTimeHolds(order=False, fresh=True)),
        (["stale-end"], RealTimeHolds(order=True, fresh=False)),
        (["late-insert", "end-regression"], RealTimeHolds(order=False, fresh=False)),
    ],
)
def test_real_time_holds_where_no_finding_contradicts_it(
    identifiers: list[str], expected: RealTimeHolds
) -> None:
    assert (
        holding([finding(each, np.array([1], dtype=np.int64)) for each in identifiers]) == expected
    )


def test_a_weak_append_fills_no_other_hole_than_the_one_at_its_own_offset() -> None:
    """Offset 0 existed at 5 ns. Op 1 was acknowledged at offset 1, and op 2 was invoked later."""
    ends = [replace(log_end(3, 1, at=1), res=5), log_end(4, 2, at=19)]
    weak = replace(append(1, 1, at=1, acks=1), res=30)
    assert found(weak, unknown(2, at=10), *ends) == {"hole-before-append": [False]}
    assert found(weak, unknown(2, at=5), *ends) == {}
    # If it is lost, op 1 may be at offset 0 and op 2 at offset 1, which two appends of unknown outcome may be too.
    assert found(unknown(1, at=1), unknown(2, at=10), *ends) == {}


@pytest.mark.parametrize("start", [0, 1])
def test_a_weak_append_fills_the_offset_at_which_the_log_starts(start: int) -> None:
    """Op 2 has offset 1. Two other appends have the same offset, so that what rests on acks=1 is told apart."""
    calls = [append(1, 0, at=1), append(2, 1, at=3, acks=1), append(3, 2, at=5)]
    assert set(found(*calls, append(4, 2, at=5), log_start_offset=start)) == {"two-acks-one-offset"}


def test_an_append_without_a_place_hides_no_hole() -> None:
    """Op 1 completed before op 0 was invoked, so it is not at offset 1. Op 2 is too late for offset 2."""
    calls = [
        append(0, 0, at=10),
        replace(append(1, None, at=1), res=5),
        unknown(2, at=30),
        append(3, 3, at=15),
    ]
    weak = append(4, 4, at=40, acks=1)
    assert found(*calls, weak) == {"hole-before-append": [False], "unplaced-append": [False]}


@pytest.mark.parametrize(("acks", "is_weak"), [(-1, False), (1, True)])
def test_an_append_beyond_the_log_end_rests_on_acks_1_if_it_had_acks_1(
    acks: int, is_weak: bool
) -> None:
    """Both appends completed before a log end of 0 was requested; op 0 had acks=1."""
    calls = [append(0, None, at=1, acks=1), append(1, None, at=2, acks=acks)]
    assert found(*calls, log_end(2, 0, at=10)) == {"unplaced-below-end": [is_weak]}


@pytest.mark.parametrize(("at", "is_filled"), [(4, True), (5, True), (6, False)])
def test_a_weak_append_fills_its_offset_if_it_was_invoked_when_that_was_known_to_exist(
    at: int, is_filled: bool
) -> None:
    """Offset 1 existed at 5 ns. A poll with a record beyond its log end makes the history invalid in any case."""
    torn = replace(read(3, 50, 0), end=0)
    calls = [append(0, 0, at=1), append(1, 1, at=at, acks=1), log_end(2, 2, at=4), torn]
    holes = {each for each in found(*calls) if "hole" in each}
    assert holes == (set() if is_filled else {"hole-before-append"})
