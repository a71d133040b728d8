"""Operations and times as a reader of a verdict sees them."""

from dataclasses import replace

import numpy as np
import pytest

from checkers.kernels.evidence import Evidence, duration, loss_sentence, seconds
from checkers.kernels.fates import Election
from checkers.kernels.findings import finding
from tests.anomalies.runs import append, read
from tests.property.brute_force import Call, operations_table


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (None, "open"),
        (2**61, "open"),
        (2**61 + 1, "open"),
        (2**60, "1152921504.607 s"),
        (0, "0.000 s"),
        (101_220_000_000, "101.220 s"),
    ],
)
def test_times_are_seconds_with_three_decimals(time_ns: int | None, text: str) -> None:
    assert seconds(time_ns) == text


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1 us"),
        (1_001, "1 us"),
        (1_230, "1.23 us"),
        (123_501, "124 us"),
        (999_000, "999 us"),
        (999_999, "1e+03 us"),
        (1_000_000, "1 ms"),
        (1_230_000, "1.23 ms"),
        (1_235_001, "1.24 ms"),
        (999_999_999, "1e+03 ms"),
        (1_000_000_000, "1.00 s"),
        (1_000_000_001, "1.00 s"),
        (12_345_000_001, "12.35 s"),
    ],
)
def test_a_length_of_time_has_the_largest_unit_that_is_not_above_it(
    time_ns: int, text: str
) -> None:
    assert duration(time_ns) == text


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (append(7, 3, at=1), "process 7 append v=7 acks=all -> ok offset 3"),
        (append(7, 0, at=1, acks=1), "process 7 append v=7 acks=1 -> ok offset 0"),
        (append(7, None, at=1, acks=0), "process 7 append v=7 acks=0 -> ok"),
        (
            replace(append(7, None, at=1), outcome="fail"),
            "process 7 append v=7 acks=all -> fail timeout",
        ),
        (read(7, 1, 0, 1, start=2), "process 99 poll from 2 -> ok 2 records"),
        (read(7, 1, end=0), "process 99 poll from 0 -> ok 0 records, end 0"),
        (
            Call(op=7, kind="latest", process=9, inv=1, res=2, offset=5),
            "process 9 latest -> ok end 5",
        ),
    ],
)
def test_an_operation_is_one_line(call: Call, text: str) -> None:
    assert Evidence(operations_table([call])).describe(7) == f"{text} [0.000 s, 0.000 s]"


def test_only_operations_of_the_table_are_described() -> None:
    evidence = Evidence(operations_table([append(5, 0, at=1), append(3, 1, at=1)]))
    for op in (2, 4, 6):
        assert evidence.describe(op) == "not in the history"
        assert evidence.operation(op) is None
    for op in (3, 5):
        row = evidence.operation(op)
        assert row is not None and row["op_index"] == op


def test_every_witness_is_named_once_and_in_order() -> None:
    evidence = Evidence(operations_table([append(op, op, at=1) for op in range(4)]))
    columns = [np.array([values], dtype=np.int64) for values in (2, 0, 2)]
    found = finding("duplicate", columns[0], second=columns[1], third=columns[2])
    assert [each.op_index for each in evidence.witnesses(found, 0)] == [2, 0]
    absent = np.array([-1], dtype=np.int64)
    found = finding("duplicate", columns[0], second=absent, third=columns[1])
    assert [each.op_index for each in evidence.witnesses(found, 0)] == [2, 0]


ELECTION = Election(
    at_ns=5_000_000_000, leader=2, leader_epoch=1, log_end_offset=None, is_flagged=False, reason=""
)


def lost(identifier: str, offset: int, how: int, election: Election | None = None) -> str:
    found = finding(
        identifier,
        np.array([4], dtype=np.int64),
        offset=np.array([offset], dtype=np.int64),
        other=np.array([how], dtype=np.int64),
    )
    return loss_sentence(found, 0, election)


@pytest.mark.parametrize(
    ("identifier", "offset", "how", "text"),
    [
        (
            "lost-acked-write",
            -1,
            4,
            "op 4 was acknowledged without an offset, and the final reads, from the start of the log to its"
            " end, do not contain it",
        ),
        (
            "unseen",
            -1,
            3,
            "op 4 was acknowledged without an offset, and the final reads do not contain it, but do not show"
            " that it is gone",
        ),
        (
            "lost-acked-write",
            -1,
            5,
            "op 4 was acknowledged without an offset; the log itself is gone: committed metadata no longer"
            " has it",
        ),
        (
            "lost-acked-write",
            0,
            0,
            "op 4 was acknowledged at offset 0; the final reads went past that offset without it",
        ),
        (
            "lost-acked-write",
            7,
            2,
            "op 4 was acknowledged at offset 7; the settled log ends at or below that offset",
        ),
        (
            "unseen",
            7,
            3,
            "op 4 was acknowledged at offset 7, and the final reads did not get that far",
        ),
    ],
)
def test_a_loss_is_a_sentence_that_says_how_it_is_known(
    identifier: str, offset: int, how: int, text: str
) -> None:
    assert lost(identifier, offset, how) == text


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({}, "broker 2 was elected, not flagged"),
        (
            {"is_flagged": True, "log_end_offset": 0, "reason": "because"},
            "broker 2 was elected with log end 0, flagged (because)",
        ),
    ],
)
def test_the_election_that_gave_a_record_up_ends_the_sentence(
    more: dict[str, object], text: str
) -> None:
    election = replace(ELECTION, **more)  # type: ignore[arg-type]
    sentence = lost("lost-acked-write", 0, 0, election)
    assert sentence.endswith(f"without it; at 5.000 s {text}")
