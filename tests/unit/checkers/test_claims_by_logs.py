"""When and in which leader epoch a record was established, where the logs of replicas are recorded."""

from dataclasses import replace
from itertools import permutations
from typing import Any

import pyarrow as pa
import pytest

from checkers.kernels.claims import ClaimReader
from checkers.kernels.elections import Elections
from checkers.kernels.history import ABSENT, INF_NS, NONE, read_history
from checkers.kernels.log_contents import ANY_EPOCH
from tests.anomalies.claims import ints, plain_reader
from tests.anomalies.runs import append, heard, leads, read, replica, state, table
from tests.property.brute_force import Call, ends_table, operations_table, records_table

Row = dict[str, Any]
STATES = [state(0, 1, [1, 2], epoch=0), state(50, 2, [2], epoch=1)]


def reader_of(
    operations: pa.Table,
    records: pa.Table,
    ends: pa.Table,
    replicas: list[Row],
    *,
    sent_again: bool = False,
) -> ClaimReader:
    if any(row["cause"] == "append" for row in replicas):
        # Brokers without a row report that they have nothing; otherwise their logs were not recorded.
        silent = {1, 2} - {row["broker"] for row in replicas}
        replicas = [*(replica(0, b, 0, cause="load") for b in silent), *replicas]
        replicas = heard(replicas, STATES)
    elections = Elections(
        table("partition_states", STATES),
        table("replica_states", replicas),
        table("broker_states", []),
        table("faults", []),
        elr_on=False,
    )
    history = read_history(operations, records, ends)
    return plain_reader(history, operations, records, elections, sent_again=sent_again)


def claim(
    calls: list[Call],
    replicas: list[Row],
    op: int,
    offset: int,
    value: int = NONE,
    *,
    sent_again: bool = False,
) -> tuple[int, int, int, int, int]:
    """Returns the smallest and largest epoch, the two times, and the epoch that shows the record."""
    tables = operations_table(calls), records_table(calls), ends_table(calls)
    reader = reader_of(*tables, replicas, sent_again=sent_again)
    found = reader.claims(ints(op), ints(offset), ints(value))
    columns = (found.low_epoch, found.high_epoch, found.from_ns, found.by_ns, found.epoch)
    low, high, from_ns, by_ns, epoch = (int(column[0]) for column in columns)
    return low, high, from_ns, by_ns, epoch


# --- without logs ---


def test_an_acknowledgement_names_no_epoch_in_which_its_record_was_there() -> None:
    """A response to an append may come from a deposed leader, so its epoch bounds nothing but the writer."""
    calls = [append(0, 0, at=1), replace(append(1, 1, at=3), epoch=0)]
    assert claim(calls, [], 1, 1) == (-1, ANY_EPOCH, 3, 4, -1)
    assert claim(calls, [], 1, 1, 1) == (0, ANY_EPOCH, 3, 4, -1)


@pytest.mark.parametrize("sent_again", [False, True])
@pytest.mark.parametrize("last_shown", [False, True])
def test_a_read_of_an_unknown_operation_shows_no_epoch(last_shown: bool, sent_again: bool) -> None:
    calls = [append(0, 0, at=1), read(5, 9, 0)]
    known = operations_table(calls[:1])
    ends = ends_table(calls[:1])
    reader = reader_of(known, records_table(calls), ends, [], sent_again=sent_again)
    for op in (0, 77):
        found = reader.claims(ints(op), ints(0), ints(0), last_shown=last_shown)
        assert (found.epoch.tolist(), found.by_ns.tolist()) == ([-1], [2])


def test_the_first_epoch_that_shows_a_record_counts_unless_the_last_one_is_wanted() -> None:
    calls = [append(1, 0, at=1), *(replace(read(5 + at, 9, 1), epoch=at) for at in (1, 0))]
    tables = operations_table(calls), records_table(calls), ends_table(calls)
    record = ints(1), ints(0), ints(1)
    assert reader_of(*tables, []).claims(*record).epoch.tolist() == [0]
    assert reader_of(*tables, []).claims(*record, last_shown=True).epoch.tolist() == [1]


def test_records_may_be_in_any_order() -> None:
    calls = [read(5, 9, 8, 9, start=1), read(6, 9, 7)]
    for order in permutations(range(3)):
        records = records_table(calls).take(pa.array(order))
        reader = reader_of(operations_table(calls), records, ends_table(calls), [])
        assert reader.values(ints(5, 6, 5), ints(1, 0, 2)).tolist() == [8, 7, 9]


def test_the_last_read_of_a_record_is_that_of_its_newest_batch_and_then_the_last_operation() -> (
    None
):
    calls = [
        replace(read(5, 10, 7, 8), stamps=(0, 0)),
        replace(read(6, 20, 7), stamps=(1,)),
        replace(read(7, 30, 7), stamps=(0,)),
        *(replace(read(op, 40, 7, start=1), stamps=(0,)) for op in (8, 9)),
    ]
    reader = reader_of(operations_table(calls), records_table(calls), ends_table(calls), [])
    values, offsets = ints(7, 7, 8, 8, 9), ints(0, 1, 1, 0, 0)
    assert reader.last_reads(values, offsets).tolist() == [6, 9, 5, ABSENT, ABSENT]


def test_the_last_epoch_of_a_record_is_the_largest_one_that_a_response_names() -> None:
    """It is -1 if no response names one, and for a record that no poll returned there."""
    calls = [replace(read(5 + n, 9, 7), epoch=epoch) for n, epoch in enumerate((0, 2, 1))]
    calls.append(read(8, 9, 8, start=1))
    reader = reader_of(operations_table(calls), records_table(calls), ends_table(calls), [])
    assert reader.last_epochs(ints(7, 8, 7, 9), ints(0, 1, 1, 0)).tolist() == [2, -1, -1, -1]


# --- by high watermarks ---


@pytest.mark.parametrize(
    ("passed_at", "expected"), [(2, (0, 0, 2, 2, 0)), (1, (0, 0, 1, 1, 0)), (3, (0, 0, 2, 2, -1))]
)
@pytest.mark.parametrize("others", [0, 1])
def test_a_record_was_established_when_a_high_watermark_passed_it_if_that_was_before_its_response(
    passed_at: int, expected: tuple[int, ...], others: int
) -> None:
    """The append was acknowledged at 2. If the high watermark passes later, only the response shows it."""
    calls = [*(append(op, 7, at=90) for op in range(others)), append(5, 0, at=1)]
    logs = [
        leads(1, 1, 1, hw=0, epoch=0),
        leads(passed_at, 1, 1, hw=1, epoch=0, cause="high-watermark"),
    ]
    assert claim(calls, logs, 5, 0, 5) == expected


@pytest.mark.parametrize(
    ("at", "epoch", "expected"),
    [
        # Its epoch is not known: epoch 0 served it, whose high watermark had passed at 4.
        (9, -1, (0, 0, 4, 4, 0)),
        # It is known, also of a leader that was deposed.
        (9, 0, (0, 0, 4, 4, 0)),
        (60, 0, (0, 0, 4, 4, 0)),
        # The leader of epoch 1 has what epoch 0 had committed.
        (60, 1, (0, 0, 4, 4, 0)),
    ],
)
def test_a_log_end_shows_that_a_record_was_there_without_naming_it(
    at: int, epoch: int, expected: tuple[int, ...]
) -> None:
    calls = [append(0, 0, at=1), replace(read(5, at, end=1), epoch=epoch)]
    logs = [
        leads(1, 1, 1, hw=0, epoch=0),
        leads(4, 1, 1, hw=1, epoch=0, cause="high-watermark"),
        replica(5, 2, 1, cause="replicate"),
        replica(5, 3, 0, cause="load"),
        leads(51, 2, 1, hw=1, epoch=1, cause="role"),
    ]
    assert claim(calls, logs, 5, 0) == expected


@pytest.mark.parametrize(
    ("passed_at", "expected"), [(59, (0, 0, 59, 59, 0)), (60, (0, 0, 60, 60, 1))]
)
def test_a_deposed_leader_established_a_record_if_its_high_watermark_passed_it_first(
    passed_at: int, expected: tuple[int, ...]
) -> None:
    """The high watermark of the leader of epoch 1, which responded, passed the record at 60."""
    calls = [append(0, 0, at=1), replace(read(5, 70, end=1), epoch=1)]
    logs = [
        leads(1, 1, 1, hw=0, epoch=0),
        replica(5, 2, 1, cause="replicate"),
        leads(51, 2, 1, hw=0, epoch=1, cause="role"),
        leads(passed_at, 1, 1, hw=1, epoch=0, cause="high-watermark"),
        leads(60, 2, 1, hw=1, epoch=1, cause="high-watermark"),
    ]
    assert claim(calls, logs, 5, 0) == expected


def test_a_leader_that_reports_late_what_it_wrote_does_not_make_the_record_younger() -> None:
    """Its process ends before it reports offset 1, which the leader of epoch 1 has copied and commits at 60."""
    unknown = replace(append(1, None, at=3, outcome="info"), res=None)
    calls = [append(0, 0, at=1), unknown, replace(read(5, 90, 1, start=1), epoch=1)]
    logs = [
        leads(1, 1, 1, hw=0, epoch=0),
        leads(2, 1, 1, hw=1, epoch=0, cause="high-watermark"),
        replica(5, 2, 2, hw=1, cause="replicate"),
        replica(6, 1, 1, hw=1, role="offline", cause="down"),
        leads(51, 2, 2, hw=1, epoch=1, cause="role"),
        leads(60, 2, 2, hw=2, epoch=1, cause="high-watermark"),
        replica(100, 1, 2, hw=1, cause="load"),
    ]
    assert claim(calls, logs, 5, 1, 1) == (0, 0, 60, 60, 1)


NOT_KNOWN = (-1, ANY_EPOCH, -(2**61), -(2**61), -1)


@pytest.mark.parametrize(
    ("rows_of_3", "expected"),
    [
        ([], NOT_KNOWN),
        # It has records at its first row already, or cuts some; the read begins at 9.
        ([replica(20, 3, 1, epoch=1)], NOT_KNOWN),
        ([replica(20, 3, 0, epoch=1, cause="truncate")], NOT_KNOWN),
        ([replica(9, 3, 1, epoch=1)], NOT_KNOWN),
        ([replica(8, 3, 1, epoch=1)], (0, 0, 4, 4, 0)),
        # A fault may have emptied it before; but not if nobody led before.
        ([replica(20, 3, 0, epoch=1, cause="load")], NOT_KNOWN),
        ([replica(20, 3, 0, epoch=0, cause="load")], (0, 0, 4, 4, 0)),
        ([replica(20, 3, 1, epoch=0)], (0, 0, 4, 4, 0)),
    ],
)
def test_a_follower_whose_log_is_not_recorded_may_have_responded_to_a_poll(
    rows_of_3: list[Row], expected: tuple[int, ...]
) -> None:
    calls = [append(0, 0, at=1), read(5, 9, end=1)]
    logs = [
        leads(1, 1, 1, hw=0, epoch=0),
        leads(4, 1, 1, hw=1, epoch=0, cause="high-watermark"),
        replica(5, 2, 1, cause="replicate"),
        *rows_of_3,
    ]
    assert claim(calls, logs, 5, 0) == expected


def test_no_follower_responded_to_a_poll_whose_leader_epoch_is_known() -> None:
    """Nor is anything of an operation known that is not in the table of operations."""
    calls = [append(0, 0, at=1), replace(read(5, 9, end=1), epoch=0)]
    logs = [
        leads(1, 1, 1, hw=0, epoch=0),
        leads(4, 1, 1, hw=1, epoch=0, cause="high-watermark"),
        replica(5, 2, 1, cause="replicate"),
    ]
    assert claim(calls, logs, 5, 0) == (0, 0, 4, 4, 0)
    assert claim(calls, logs, 77, 0) == (0, 0, 4, 4, 0)


def test_only_a_leader_responds_to_a_question_for_the_log_end() -> None:
    asked = Call(op=5, kind="latest", process=9, inv=8, res=9, offset=1)
    logs = [
        leads(1, 1, 1, hw=0, epoch=0),
        leads(4, 1, 1, hw=1, epoch=0, cause="high-watermark"),
    ]
    assert claim([append(0, 0, at=1), asked], logs, 5, 0) == (0, 0, 4, 4, 0)


def test_a_leader_whose_log_was_copied_before_its_source_reported_it_bounds_no_epoch() -> None:
    asked = Call(op=5, kind="latest", process=9, inv=59, res=60, offset=1)
    calls = [append(0, 0, at=1), asked]
    logs = [
        replica(5, 2, 1, cause="replicate"),
        leads(6, 1, 1, hw=0, epoch=0),
        leads(51, 2, 1, hw=1, epoch=1, cause="role"),
        leads(70, 2, 2, hw=1, epoch=1),
    ]
    assert claim(calls, logs, 5, 0) == (-1, ANY_EPOCH, 51, 51, 1)


def test_logs_that_were_looked_at_now_and_then_say_nothing_about_when_a_record_was_established() -> (
    None
):
    calls = [append(0, 0, at=1), read(5, 60, 0)]
    logs = [
        leads(1, 1, 0, hw=0, epoch=0, cause="role"),
        leads(4, 1, 1, hw=1, epoch=0, cause="observed"),
    ]
    assert claim(calls, logs, 0, 0, 0) == (-1, ANY_EPOCH, 1, 2, -1)


# --- who wrote it ---


@pytest.mark.parametrize(("since", "epochs"), [(40, (-1, ANY_EPOCH)), (39, (0, 0))])
def test_a_leader_need_not_have_led_when_its_log_was_shorter(
    since: int, epochs: tuple[int, int]
) -> None:
    """The look at 40 tells two things: the log had two records, and none at some moment since the look before.

    The near miss: it was looked at when it was empty, and its broker led already.
    """
    looks = [
        leads(since, 1, 0, hw=0, epoch=0, cause="load"),
        leads(40, 1, 2, hw=1, epoch=0, cause="observed"),
    ]
    end = replace(read(1, 45, start=1, end=1), epoch=0)
    assert claim([end], looks, 1, 0)[:2] == epochs


TWO_LEADERS = [
    leads(1, 1, 1, hw=0, epoch=0),
    leads(3, 1, 2, hw=1, epoch=0),
    replica(4, 2, 1, cause="replicate"),
    leads(51, 2, 1, hw=1, epoch=1, cause="role"),
    leads(55, 2, 2, hw=1, epoch=1),
    leads(60, 2, 2, hw=2, epoch=1, cause="high-watermark"),
]
"""Both wrote at offset 1, at 3 and at 55; only the second one committed its record."""


def test_a_record_was_written_before_the_first_response_that_shows_it() -> None:
    """Op 1 was acknowledged at 4 and read at 90; what was written at 55 is another record."""
    calls = [append(0, 0, at=1), append(1, 1, at=3), read(5, 90, 1, start=1)]
    assert claim(calls, TWO_LEADERS, 1, 1, 1)[:2] == (0, 0)


@pytest.mark.parametrize("epoch", [0, 1])
@pytest.mark.parametrize(("stamp", "epochs"), [(-1, (0, 0)), (1, (1, 1))])
def test_the_log_of_the_leader_that_shows_a_record_tells_its_epoch_unless_its_batch_does(
    stamp: int, epochs: tuple[int, int], epoch: int
) -> None:
    """The append of the record is not known. The leader of epoch 1 copied offset 0 from epoch 0."""
    shown = replace(read(5, 90, 7), epoch=epoch, stamps=(stamp,))
    calls = [append(0, None, at=1, outcome="info"), shown]
    assert claim(calls, TWO_LEADERS, 5, 0, 7)[:2] == epochs


def test_an_append_that_no_client_saw_at_an_offset_is_what_a_leader_wrote_there() -> None:
    unknown = replace(append(1, None, at=3, outcome="info"), res=None)
    logs = TWO_LEADERS[:2]
    assert claim([append(0, 0, at=1), unknown], logs, 1, 1, 1)[:2] == (0, 0)


@pytest.mark.parametrize(
    ("other", "epochs"),
    [
        # Op 2 can only have been written in epoch 1, so op 1 was written in epoch 0.
        ([replace(append(2, 1, at=54), res=60)], (0, 0)),
        ([replace(append(2, 1, at=3), res=4)], (1, 1)),
        # Its batch names the epoch.
        (
            [append(2, None, at=2, outcome="info"), replace(read(5, 90, 2, start=1), stamps=(1,))],
            (0, 0),
        ),
        # It may have been either of them, too, and the one at offset 2 shows nothing about offset 1.
        ([replace(append(2, 1, at=3), res=200)], (0, 1)),
        ([replace(append(2, 1, at=3), res=200), append(3, 2, at=54), append(4, 0, at=54)], (0, 1)),
        # No append of value 7 is known, so nothing shows which leader wrote it.
        ([replace(read(5, 3, 7, start=1))], (0, 1)),
        # Both leaders show op 2. The first of them wrote it.
        (
            [
                append(2, None, at=2, outcome="info"),
                *(replace(read(5 + n, 90, 2, start=1), epoch=n) for n in (0, 1)),
            ],
            (1, 1),
        ),
    ],
)
def test_two_records_of_one_offset_were_written_in_different_epochs(
    other: list[Call], epochs: tuple[int, int]
) -> None:
    """Op 1 was open from 3 to 200, while both leaders wrote at offset 1, and both committed it."""
    calls = [append(0, 0, at=1), replace(append(1, 1, at=3), res=200), *other]
    logs = [*TWO_LEADERS, leads(70, 1, 2, hw=2, epoch=0, cause="high-watermark")]
    assert claim(calls, logs, 1, 1, 1)[:2] == epochs


@pytest.mark.parametrize(
    ("acked_at", "epochs"), [(60, (1, 1)), (59, (0, 1)), (70, (0, 1)), (69, (1, 1))]
)
def test_of_two_records_the_one_that_was_committed_in_time_was_acknowledged(
    acked_at: int, epochs: tuple[int, int]
) -> None:
    """The leader of epoch 1 committed its record at 60, the deposed one at 70."""
    calls = [append(0, 0, at=1), replace(append(1, 1, at=3), res=acked_at)]
    logs = [*TWO_LEADERS, leads(70, 1, 2, hw=2, epoch=0, cause="high-watermark")]
    assert claim(calls, logs, 1, 1, 1)[:2] == epochs


@pytest.mark.parametrize(("acked_at", "epochs"), [(54, (0, 0)), (55, (0, 1))])
def test_a_record_may_have_been_written_at_the_moment_of_its_response(
    acked_at: int, epochs: tuple[int, int]
) -> None:
    """The leader of epoch 1 wrote at 55. No leader had committed its record by then."""
    calls = [append(0, 0, at=1), replace(append(1, 1, at=3), res=acked_at)]
    assert claim(calls, TWO_LEADERS, 1, 1, 1)[:2] == epochs


def test_what_a_leader_wrote_before_a_record_was_sent_is_another_record() -> None:
    """Broker 1 wrote offset 1 at 5, and again at 41 after a restart. The leader of epoch 1 wrote it at 55."""
    calls = [append(0, 0, at=1), replace(append(1, 1, at=35), res=200)]
    logs = [
        leads(1, 1, 1, hw=0, epoch=0),
        leads(5, 1, 2, hw=1, epoch=0),
        replica(6, 2, 1, cause="replicate"),
        replica(20, 1, 2, hw=1, role="offline", cause="down"),
        replica(26, 1, 1, hw=1, epoch=-1, cause="load"),
        leads(31, 1, 1, hw=1, epoch=0, cause="role"),
        leads(41, 1, 2, hw=1, epoch=0),
        leads(51, 2, 1, hw=1, epoch=1, cause="role"),
        leads(55, 2, 2, hw=1, epoch=1),
        leads(60, 2, 2, hw=2, epoch=1, cause="high-watermark"),
        leads(70, 1, 2, hw=2, epoch=0, cause="high-watermark"),
    ]
    assert claim(calls, logs, 1, 1, 1)[:2] == (0, 1)


@pytest.mark.parametrize(("read_at", "epochs"), [(40, (-1, ANY_EPOCH)), (90, (1, 1))])
def test_a_copy_that_was_read_before_a_leader_wrote_the_acknowledged_one_is_another_copy(
    read_at: int, epochs: tuple[int, int]
) -> None:
    """Producers may send appends again. The only recorded write at offset 1 is one of epoch 1, at 55."""
    calls = [append(0, 0, at=1), replace(append(1, 1, at=3), res=200)]
    calls.append(read(5, read_at, 1, start=1))
    logs = [*TWO_LEADERS[:1], *TWO_LEADERS[2:]]
    assert claim(calls, logs, 1, 1, 1, sent_again=True)[:2] == (1, 1)
    assert claim(calls, logs, 5, 1, 1, sent_again=True)[:2] == epochs


@pytest.mark.parametrize(("named", "epochs"), [(0, (0, 0)), (1, (1, 1)), (-1, (0, 1))])
def test_of_two_leaders_that_wrote_an_offset_the_one_that_acknowledged_the_record_wrote_it(
    named: int, epochs: tuple[int, int]
) -> None:
    calls = [append(0, 0, at=1), replace(append(1, 1, at=3), res=200, epoch=named)]
    logs = [*TWO_LEADERS, leads(70, 1, 2, hw=2, epoch=0, cause="high-watermark")]
    assert claim(calls, logs, 1, 1, 1)[:2] == epochs


@pytest.mark.parametrize(
    ("acks", "is_read", "epochs"),
    [(1, False, (0, 1)), (1, True, (1, 1)), (-1, False, (1, 1)), (-1, True, (1, 1))],
)
def test_a_record_that_only_acks_1_shows_may_be_one_that_no_leader_committed(
    acks: int, is_read: bool, epochs: tuple[int, int]
) -> None:
    """The leaders of epochs 0 and 1 wrote offset 1 while op 1 was open, and only the second one committed it."""
    calls = [append(0, 0, at=1), replace(append(1, 1, at=3, acks=acks), res=200)]
    calls += [read(5, 210, 1, start=1)] if is_read else []
    assert claim(calls, TWO_LEADERS, 1, 1, 1)[:2] == epochs


def test_a_record_that_is_shown_by_nothing_was_never_established() -> None:
    assert claim([append(0, 0, at=1)], [], 8, 3) == (-1, ANY_EPOCH, 0, INF_NS, -1)
