"""What is known of every offset, in histories of a few operations, whole and reduced."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from checkers.kernels.facts import Facts, derive_facts
from checkers.kernels.findings import Finding
from checkers.kernels.history import PartitionHistory, read_history
from checkers.kernels.left_out import NOTHING, LeftOut
from tests.anomalies.runs import append, read
from tests.property.brute_force import Call, ends_table, operations_table, records_table


def ints(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


def history(
    calls: list[Call], left_out: LeftOut = NOTHING, statuses: dict[int, str] | None = None
) -> PartitionHistory:
    return read_history(
        operations_table(calls),
        records_table(calls, statuses=statuses),
        ends_table(calls),
        left_out,
    )


def only(findings: list[Finding], identifier: str) -> Finding:
    (finding,) = [each for each in findings if each.id == identifier]
    return finding


def occupied(facts: Facts) -> list[int]:
    """Returns the offsets at which a record is known to be."""
    return facts.places.offset(np.flatnonzero(facts.occupied)).tolist()


# --- places ---


@pytest.mark.parametrize("log_start", [0, 10])
@pytest.mark.parametrize("rows", [1, 2])
def test_a_history_is_sparse_above_four_offsets_per_fact_and_4096(
    rows: int, log_start: int
) -> None:
    for length, is_compact in ((4 * rows + 4096, False), (4 * rows + 4097, True)):
        last = log_start + length - 1
        calls = [append(op, last - op, at=1) for op in range(rows)]
        facts, _ = derive_facts(history(calls), log_start_offset=log_start)
        assert facts.places.is_compact is is_compact
        assert facts.places.offset(facts.acked_place).tolist() == [last - op for op in range(rows)]


def test_a_sparse_history_has_a_place_for_each_offset_that_counts() -> None:
    """The log starts at 10, and offset 3 is below the start. Positions and log ends are mentioned too."""
    far = 10**6
    end = Call(op=7, kind="latest", process=7, inv=1, res=2, offset=far)
    calls = [append(1, 3, at=1), append(2, 10, at=1), read(5, 9, 3, start=70), end]
    calls += [replace(read(6, 9), position=500)]
    facts, _ = derive_facts(history(calls), log_start_offset=10)
    assert facts.places.count == 5
    assert facts.places.offset(np.arange(5)).tolist() == [3, 10, 70, 500, far - 1]
    assert facts.first_there == 1
    assert facts.acked_there.tolist() == [1]


# --- records that cannot be read ---


def test_a_corrupt_record_and_one_of_another_partition_are_told_apart() -> None:
    statuses = {0: "corrupt", 1: "foreign"}
    calls = [append(3, 2, at=1), read(5, 9, 1, 2, 3)]
    _, findings = derive_facts(history(calls, statuses=statuses))
    assert only(findings, "corrupt-record").offset.tolist() == [0]
    assert only(findings, "misplaced-record").offset.tolist() == [1]


def test_beside_a_record_that_cannot_be_read_the_others_are_what_they_say() -> None:
    calls = [append(7, 0, at=1), append(8, 1, at=3), read(5, 9, 7, 8, 3)]
    facts, findings = derive_facts(history(calls, statuses={2: "corrupt"}))
    assert [each.id for each in findings] == ["corrupt-record"]
    assert facts.append_read.tolist() == [True, True]


def test_without_an_offset_there_is_no_place() -> None:
    calls = [replace(append(1, None, at=1, outcome="fail")), replace(read(5, 9), position=3)]
    facts, findings = derive_facts(history(calls))
    assert (facts.places.count, findings) == (0, [])


@pytest.mark.parametrize("log_start", [0, 2, 3])
def test_a_record_that_cannot_be_read_is_a_record(log_start: int) -> None:
    """Records 0 and 2 cannot be read, op 4 is at offset 4, and nothing is known of the others."""
    statuses = {0: "corrupt", 2: "corrupt"}
    calls = [append(4, 4, at=1), replace(read(5, 9, end=7), records=((0, 8), (2, 9), (4, 4)))]
    facts, _ = derive_facts(history(calls, statuses=statuses), log_start_offset=log_start)
    assert occupied(facts) == [0, 2, 4]


def test_a_read_reveals_the_append_of_unknown_outcome_that_wrote_its_record() -> None:
    calls = [replace(append(op, None, at=1, outcome="info"), res=None) for op in (1, 2)]
    for value, is_read in ((1, [True, False]), (2, [False, True])):
        facts, findings = derive_facts(history([*calls, read(5, 9, value)]))
        assert facts.append_read.tolist() == is_read
        assert facts.pinned.tolist() == np.flatnonzero(is_read).tolist()
        assert findings == []


# --- gaps ---


@pytest.mark.parametrize(
    ("sparse", "more", "log_start", "is_weak"),
    [
        (False, [], 0, False),
        (True, [], 0, True),
        # Another append was acknowledged at its offset, or another record was read there.
        (True, [append(3, 1, at=1)], 0, False),
        (True, [append(3, 1, at=1, acks=1)], 0, True),
        (True, [read(6, 12, 8, start=1)], 0, False),
        (True, [read(6, 12, 8, start=1)], 1, False),
    ],
)
def test_a_skipped_record_may_be_lost_in_a_sparse_log_if_it_had_acks_1_only(
    sparse: bool, more: list[Call], log_start: int, is_weak: bool
) -> None:
    """Op 1 was acknowledged with acks=1 at offset 1, which the poll skipped. Op 2 is weak too, and irrelevant."""
    skipping = replace(read(5, 9), records=((0, 0), (2, 2)))
    calls = [append(0, 0, at=1), append(1, 1, at=1, acks=1), append(2, 2, at=1), skipping, *more]
    _, findings = derive_facts(history(calls), sparse=sparse, log_start_offset=log_start)
    lost = only(findings, "lost-record")
    assert lost.first.tolist() == [5]
    assert lost.weak.tolist() == [is_weak]


@pytest.mark.parametrize(
    ("there", "statuses", "second"),
    [(append(1, 1, at=1), {}, 1), (read(6, 12, 8, start=1), {1: "corrupt"}, -1)],
)
def test_the_append_of_a_skipped_record_is_named_if_it_is_known(
    there: Call, statuses: dict[int, str], second: int
) -> None:
    skipping = replace(read(5, 9), records=((0, 0), (2, 2)))
    calls = [append(0, 0, at=1), append(2, 2, at=1), skipping, there]
    _, findings = derive_facts(history(calls, statuses=statuses))
    assert only(findings, "lost-record").second.tolist() == [second]


@pytest.mark.parametrize(("offset", "is_gap"), [(3, False), (5, False), (6, True)])
def test_what_a_poll_skipped_below_the_start_of_the_log_is_no_gap(
    offset: int, is_gap: bool
) -> None:
    """The log starts at 5. The poll was sent for offset 0, and its first record is at offset 3, 5 or 6."""
    calls = [append(1, offset, at=1), replace(read(5, 9), records=((offset, 1),))]
    facts, findings = derive_facts(history(calls), log_start_offset=5)
    assert [each.id for each in findings] == (["skipped-offset"] if is_gap else [])
    assert len(facts.gap_first) == is_gap


def test_records_of_polls_that_are_not_in_the_table_skip_nothing() -> None:
    skipping = replace(read(5, 9), records=((0, 0), (2, 2)))
    calls = [append(0, 0, at=1), append(2, 2, at=1)]
    for known in (calls, [*calls, read(6, 9, 0)]):
        records = records_table([*known, skipping])
        arrays = read_history(operations_table(known), records, ends_table(known))
        facts, findings = derive_facts(arrays)
        assert findings == []
        assert len(facts.gap_first) == 0


# --- several values at one offset ---


def test_of_two_acknowledgements_at_the_same_moment_the_first_append_is_named_first() -> None:
    calls = [append(1, 0, at=1), append(2, 0, at=1)]
    _, findings = derive_facts(history(calls))
    conflict = only(findings, "two-acks-one-offset")
    assert (conflict.first.tolist(), conflict.second.tolist()) == ([1], [2])
    assert conflict.gap_ns.tolist() == [0]


@pytest.mark.parametrize(("res", "gap_ns"), [(9, 7), (None, 0)])
def test_the_gap_of_a_conflict_is_the_time_between_two_completed_operations(
    res: int | None, gap_ns: int
) -> None:
    calls = [append(1, 0, at=1), append(2, 1, at=1), replace(read(5, 8, 2), res=res)]
    _, findings = derive_facts(history(calls))
    assert only(findings, "divergent-value").gap_ns.tolist() == [gap_ns]


# --- reduced histories ---

REDUCED = LeftOut(
    limit=9,
    start=ints(0, 5),
    stop=ints(3, 7),
    revealed_op=ints(1, 12, 77),
    revealed_offset=ints(1, 6, 2),
)
"""Offsets 0 to 2, 5 and 6 were left out; op 77 too."""


def test_offsets_that_were_left_out_hold_records_that_were_read() -> None:
    """Op 2 was acknowledged at an offset left out, op 4 at one that was not and that no poll returned."""
    unknown = [replace(append(op, None, at=1, outcome="info"), res=None) for op in (1, 11, 12)]
    calls = [append(2, 0, at=1, acks=1), append(4, 4, at=1, acks=1), *unknown]
    facts, findings = derive_facts(history(calls, REDUCED))
    assert facts.places.limit == facts.places.count == 9
    assert occupied(facts) == [0, 1, 2, 4, 5, 6]
    assert facts.append_read.tolist() == [True, True, False, False, True]
    assert facts.append_weak.tolist() == [False, False, True, False, False]
    assert facts.pinned.tolist() == [0, 4]
    assert facts.places.offset(facts.pinned_place).tolist() == [1, 6]
    assert findings == []


def test_beside_what_was_left_out_reads_show_which_append_kept_an_offset() -> None:
    calls = [append(3, 3, at=1), append(4, 4, at=1), append(5, 4, at=3), read(6, 9, 3, 5, start=3)]
    facts, findings = derive_facts(history(calls, REDUCED))
    assert facts.append_read.tolist() == [True, False, True]
    conflict = only(findings, "two-acks-one-offset")
    assert (conflict.first.tolist(), conflict.second.tolist()) == ([4], [5])


@pytest.mark.parametrize(
    ("position", "offset", "identifiers"),
    [(0, 3, []), (3, 4, ["lost-record"]), (5, 7, [])],
)
def test_a_poll_returned_what_was_left_out(
    position: int, offset: int, identifiers: list[str]
) -> None:
    """Of what the poll returned, the reduced history has one record. Op 4 is at offset 3."""
    calls = [append(4, 3, at=1)] if offset > 3 else []
    calls += [append(9, offset, at=1), replace(read(6, 9, start=position), records=((offset, 9),))]
    _, findings = derive_facts(history(calls, REDUCED))
    assert [each.id for each in findings] == identifiers


# --- copies, torn fetches ---


def test_an_acknowledged_append_that_was_read_at_another_offset_has_a_copy_there() -> None:
    """Ops 1 and 3 were both acknowledged at offset 1, so a read of either of them there shows no copy."""
    calls = [
        append(0, 0, at=1),
        append(1, 1, at=1),
        append(3, 1, at=1),
        append(2, None, at=1, outcome="info"),
        read(5, 9, 0, 1, 0, 2, 1),
        read(6, 9, 3, 0, start=1),
    ]
    facts, _ = derive_facts(history(calls), sent_twice=True)
    ops = history(calls).append_op[facts.copies].tolist()
    assert list(zip(ops, facts.copies_place.tolist(), strict=True)) == [(0, 2), (1, 4)]
    assert history(calls).append_op[facts.pinned].tolist() == [2]


@pytest.mark.parametrize(("end", "gap_ns"), [(1, None), (0, [0]), (None, None)])
def test_a_record_at_the_log_end_that_its_response_reports_is_beyond_it(
    end: int | None, gap_ns: list[int] | None
) -> None:
    calls = [append(0, 0, at=1), replace(read(1, 5, 0), end=end)]
    _, findings = derive_facts(history(calls))
    torn = [each.gap_ns.tolist() for each in findings if each.id == "torn-fetch"]
    assert torn == ([] if gap_ns is None else [gap_ns])
