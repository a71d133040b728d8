"""What options permit, and what a report says about holes."""

import pytest

from checkers.kernels.linearizability import Options, PartitionReport, check_tables
from tests.anomalies.runs import append
from tests.property.brute_force import Call, ends_table, operations_table, records_table


def check(calls: list[Call], options: Options | None = None) -> PartitionReport:
    return check_tables(operations_table(calls), records_table(calls), ends_table(calls), options)


def latest(op: int, end: int, *, at: int) -> Call:
    return Call(op=op, kind="latest", process=99, inv=at, res=at + 1, offset=end)


@pytest.mark.parametrize(
    ("calls", "anomaly", "permits"),
    [
        ([append(0, 1, at=1)], "unfilled-hole", Options(sparse=True)),
        ([append(0, 1, at=1)], "unfilled-hole", Options(sent_again=True)),
        ([append(0, 1, at=1)], "unfilled-hole", Options(sent_twice=True)),
        (
            # The second append began one nanosecond after the first one was acknowledged.
            [append(0, 1, at=1), append(1, 0, at=3)],
            "order-inversion",
            Options(clock_error_ns=1),
        ),
        (
            [append(0, 1, at=1)],
            "unfilled-hole",
            Options(log_start_offset=1),
        ),
    ],
    ids=["sparse", "sent-again", "sent-twice", "clock-error", "log-start"],
)
def test_without_options_nothing_is_permitted(
    calls: list[Call], anomaly: str, permits: Options
) -> None:
    assert [finding.id for finding in check(calls).findings] == [anomaly]
    assert check(calls, permits).is_linearizable


@pytest.mark.parametrize("options", [Options(sent_again=True), Options(sent_twice=True)])
def test_records_that_were_sent_again_explain_a_hole_beside_a_contradiction_and_acks_1(
    options: Options,
) -> None:
    """Nothing is known of offset 0. Op 2 may have been lost."""
    report = check([append(0, 1, at=1), append(1, 1, at=1), append(2, 2, at=1, acks=1)], options)
    assert [finding.id for finding in report.findings] == ["two-acks-one-offset"]


def test_a_report_names_the_longest_ranges_of_holes() -> None:
    """Offsets 3 and 4 have different times, because op 2 received the log end 4."""
    report = check(
        [append(0, 2, at=1), append(1, 5, at=3), latest(2, 4, at=10), latest(3, 6, at=20)]
    )
    assert report.coverage["holes"] == 4
    assert report.coverage["hole_ranges"] == [[0, 1], [3, 4]]


def test_a_single_contradiction_is_enough_to_ask_whether_it_rests_on_acks_1() -> None:
    """Op 0 has no place, which is all that is wrong; it may have been lost."""
    (found,) = check([append(0, None, at=1, acks=1), append(1, 0, at=3)]).findings
    assert found.id == "unplaced-append"
    assert found.weak.tolist() == [True]
