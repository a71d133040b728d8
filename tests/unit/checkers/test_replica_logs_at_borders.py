"""What recorded replicas' logs show at the first and the last moment at which it is true."""

from typing import Any

import numpy as np
import pytest

from checkers.kernels.history import INF_NS
from checkers.kernels.leader_terms import Records
from checkers.kernels.replica_logs import Joined, Moment, ReplicaLogs
from checkers.kernels.replica_reports import Elected
from tests.anomalies.runs import leads, replica, table

Row = dict[str, Any]
FOREVER_NS = 2**61
ANY_EPOCH = 2**31


def logs_of(*rows: Row, **more: Any) -> ReplicaLogs:
    return ReplicaLogs(table("replica_states", list(rows)), **more)


def ints(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


def spans(*from_ns: int) -> tuple[Any, Any]:
    """When reads began, and when they ended, one later."""
    return ints(*from_ns), ints(*from_ns) + 1


def records(*rows: tuple[int, int, int, int]) -> Records:
    """Each with its offset, its smallest and largest epoch, and when it was established."""
    offset, low, high, by = (ints(*column) for column in zip(*rows, strict=True))
    return Records(offset=offset, low_epoch=low, high_epoch=high, by_ns=by)


# --- which logs are recorded ---


@pytest.mark.parametrize(
    ("rows", "hidden"),
    [
        # Nobody led before, or the log is empty since it could be created: nothing is missing before.
        ([replica(5, 2, 0, epoch=3, cause="load"), replica(9, 2, 1, epoch=3)], [False] * 4),
        ([replica(5, 2, 0, epoch=2, cause="load"), replica(9, 2, 1, epoch=3)], [False] * 4),
        # A fault may have emptied it.
        (
            [replica(5, 2, 0, epoch=4, cause="load"), replica(9, 2, 1, epoch=4)],
            [True, True, False, False],
        ),
        ([replica(5, 2, 2, epoch=0), replica(9, 2, 3, epoch=1)], [False] * 4),
        ([replica(5, 2, 1, epoch=1), replica(9, 2, 2, epoch=1)], [True, True, False, False]),
        ([replica(5, 2, 2, epoch=1), replica(9, 2, 0, epoch=0)], [True, True, False, False]),
        ([replica(5, 2, 0, epoch=1, cause="truncate")], [True, True, False, False]),
        ([], [True] * 4),
    ],
)
def test_a_follower_may_serve_reads_before_its_log_is_recorded(
    rows: list[Row], hidden: list[bool]
) -> None:
    """Each read began at 0, 5, 6 or 9. Broker 2 has been a replica since epoch 3."""
    logs = logs_of(*rows, replicas={2: Joined(epoch=3)})
    assert logs.may_hide_reader(*spans(0, 5, 6, 9)).tolist() == hidden


@pytest.mark.parametrize(
    ("rows", "hidden"),
    [
        ([replica(6, 2, 1, epoch=1)], [False, True, True, False]),
        ([], [False, True, True, True]),
        ([replica(6, 2, 0, epoch=1, cause="load")], [False] * 4),
    ],
)
def test_a_broker_serves_no_reads_before_it_is_a_replica(
    rows: list[Row], hidden: list[bool]
) -> None:
    """Each read began at 2, 3, 6 or 7, and ended one later. Broker 2 became a replica at 4."""
    logs = logs_of(*rows, replicas={2: Joined(at_ns=4, epoch=1)})
    assert logs.may_hide_reader(*spans(2, 3, 6, 7)).tolist() == hidden


def test_without_a_replica_no_read_is_hidden() -> None:
    assert logs_of().may_hide_reader(*spans(0, 1)).tolist() == [False, False]


def test_an_empty_log_of_a_later_epoch_may_have_been_emptied_if_it_is_not_known_since_when_it_is_a_replica() -> (
    None
):
    for epoch, hidden in ((0, [False, False]), (1, [True, False])):
        row = replica(5, 2, 0, epoch=epoch, cause="load")
        logs = logs_of(row, replicas={2: Joined()})
        assert logs.may_hide_reader(*spans(0, 9)).tolist() == hidden


def elected(
    broker: int, at: int, *, epoch: int = 0, until: int = INF_NS, is_first: bool = False
) -> Elected:
    return Elected(broker=broker, at_ns=at, epoch=epoch, until_ns=until, is_first=is_first)


APPENDED = leads(3, 1, 1, epoch=0)


@pytest.mark.parametrize(
    ("rows", "leader", "expected"),
    [
        ([], elected(2, 10), False),
        ([replica(10, 2, 1, epoch=1, cause="load")], elected(2, 10), True),
        ([replica(11, 2, 1, epoch=1), replica(12, 2, 2)], elected(2, 10), False),
        # A log that is empty when it is loaded may have been emptied by a fault since the election.
        ([replica(11, 2, 0, cause="load"), replica(12, 2, 1)], elected(2, 10), False),
        # The first leader of the partition began with an empty log.
        ([replica(11, 2, 1, hw=0), replica(12, 2, 1, hw=2)], elected(2, 10, is_first=True), True),
        ([replica(11, 2, 1, hw=1), replica(12, 2, 1, hw=2)], elected(2, 10, is_first=True), True),
        ([replica(11, 2, 2, hw=2), replica(12, 2, 2, hw=1)], elected(2, 10, is_first=True), False),
        ([replica(11, 2, 0, cause="load"), replica(12, 2, 1)], elected(2, 10, is_first=True), True),
        ([replica(11, 2, 1, hw=0, cause="load")], elected(2, 10, is_first=True), False),
    ],
)
def test_the_log_of_every_elected_replica_must_be_recorded_when_it_was_elected(
    rows: list[Row], leader: Elected, expected: bool
) -> None:
    """Broker 1, leader before, reports its appends. Broker 2 was elected at 10."""
    assert logs_of(APPENDED, *rows, elected=[leader]).has_all_changes is expected


@pytest.mark.parametrize(("established", "expected"), [(1, True), (2, False)])
def test_a_first_leader_with_two_established_records_had_reported_too_little(
    established: int, expected: bool
) -> None:
    rows = [replica(at, 2, 2, hw=established) for at in (11, 12)]
    first = [elected(2, 10, is_first=True)]
    logs = logs_of(leads(3, 1, 2, epoch=0), *rows, elected=first)
    assert logs.has_all_changes is expected


def offline(at: int, end: int, *, epoch: int = 0) -> Row:
    return replica(at, 2, end, epoch=epoch, role="offline", cause="down")


@pytest.mark.parametrize(
    ("rows", "until", "started", "expected"),
    [
        # It led when the record ends, or heard of its election only.
        ([leads(11, 2, 1, epoch=1, cause="role")], INF_NS, [], True),
        ([replica(11, 2, 1, epoch=1, cause="role")], INF_NS, [], True),
        # It has not heard of its election, or it did not hear that it was deposed.
        ([replica(11, 2, 2, epoch=0)], INF_NS, [], False),
        ([leads(11, 2, 1, epoch=1, cause="role")], 20, [], False),
        ([leads(11, 2, 1, epoch=1), leads(20, 2, 2, epoch=1)], 20, [], False),
        ([leads(11, 2, 1, epoch=1), replica(21, 2, 1, epoch=2, cause="role")], 20, [], True),
        ([replica(21, 2, 1, epoch=2, cause="role")], 20, [], True),
        # It was down at the end of its epoch, or at that moment.
        ([offline(12, 1)], 20, [], True),
        ([offline(19, 1)], 20, [10, 19, 20], True),
        ([offline(18, 1)], 20, [19], False),
        ([offline(20, 1)], 20, [19], True),
        ([offline(12, 1)], INF_NS, [], True),
        ([offline(12, 1)], INF_NS, [13], False),
        # A process that began later runs at the end of the epoch.
        ([offline(12, 1), replica(14, 2, 1, epoch=0, cause="load")], 20, [13], False),
        (
            [offline(12, 1), replica(14, 2, 1, epoch=0, cause="load"), offline(25, 1)],
            20,
            [13],
            True,
        ),
        # The log of a removed replica is not readable, but it reported that.
        ([{**offline(21, -1), "cause": "role"}], 20, [], True),
    ],
)
def test_the_record_of_a_leader_must_show_what_it_did_in_its_epoch(
    rows: list[Row], until: int, started: list[int], expected: bool
) -> None:
    """Broker 2 was elected at 10, in epoch 1, and the next epoch began at `until` if one did."""
    leader = elected(2, 10, epoch=1, until=until)
    shown = [APPENDED, replica(9, 2, 1), *rows]
    logs = logs_of(*shown, elected=[leader], started_ns={2: ints(*started)})
    assert logs.has_all_changes is expected


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([replica(4, 2, 1, epoch=2)], False),
        ([replica(4, 2, 1, epoch=2, cause="load"), replica(5, 2, 1, epoch=2)], True),
        ([replica(4, 2, 1), replica(5, 2, 2, epoch=2)], False),
        ([replica(4, 2, 2, cause="load"), replica(5, 2, 1, epoch=2)], True),
        ([leads(3, 1, 2, epoch=2, cause="role"), replica(4, 2, 2, epoch=2)], True),
        # The leader reported less than was copied from it.
        ([leads(3, 1, 1, epoch=2, cause="role"), replica(4, 2, 2, epoch=2)], False),
        ([replica(4, 2, 2)], False),
        (
            [
                leads(3, 1, 2, epoch=2, cause="role"),
                leads(5, 1, 1, epoch=2, cause="truncate"),
                replica(6, 2, 2, epoch=2),
            ],
            True,
        ),
    ],
)
def test_every_epoch_in_which_followers_copied_must_have_a_leader(
    rows: list[Row], expected: bool
) -> None:
    assert logs_of(APPENDED, *rows).has_all_changes is expected


@pytest.mark.parametrize(
    ("last", "started", "is_replica", "hidden"),
    [
        (replica(6, 3, 1, epoch=0), [], True, [False, True, True]),
        (replica(6, 3, 1, epoch=2), [], True, [False] * 3),
        ({**offline(6, 1), "broker": 3}, [], True, [False] * 3),
        ({**offline(6, 1), "broker": 3}, [6], True, [False] * 3),
        ({**offline(6, 1), "broker": 3}, [7], True, [False, True, True]),
        # It is not a replica any more, so its next process has nothing to report.
        ({**offline(6, 1), "broker": 3}, [7], False, [False] * 3),
    ],
)
def test_a_follower_may_serve_reads_after_its_rows_end(
    last: Row, started: list[int], is_replica: bool, hidden: list[bool]
) -> None:
    """Each read ended at 5, 6 or 9. Broker 1 leads in epoch 2, and broker 3 was a replica from the start."""
    rows = [APPENDED, leads(4, 1, 1, epoch=2, cause="role"), replica(1, 3, 0, cause="load"), last]
    logs = logs_of(
        *rows,
        elected=[elected(1, 4, epoch=2)],
        replicas={3: Joined()},
        last_replicas=[3] if is_replica else [],
        started_ns={3: ints(*started)},
    )
    assert logs.may_hide_reader(ints(4, 4, 4), ints(5, 6, 9)).tolist() == hidden


@pytest.mark.parametrize(
    ("shown", "expected"), [((), True), ((0,), True), ((0, 2), True), ((2, 3), False)]
)
def test_every_leader_epoch_that_clients_saw_must_be_in_a_log(
    shown: tuple[int, ...], expected: bool
) -> None:
    logs = logs_of(APPENDED, leads(6, 2, 1, epoch=2, cause="role"), shown_epochs=shown)
    assert logs.has_all_changes is expected


@pytest.mark.parametrize(
    ("ends", "final_end", "expected"),
    [
        ({0: 1, 2: 3}, 3, True),
        ({0: 1, 2: 4}, None, False),
        ({0: 2}, None, False),
        # The last leader had cut its log, but it had more before.
        ({2: 3}, 4, False),
        ({}, None, True),
        # Who led in epoch 1 is not known, which is another matter.
        ({1: 9}, None, True),
    ],
)
def test_leaders_must_report_all_that_clients_saw(
    ends: dict[int, int], final_end: int | None, expected: bool
) -> None:
    rows = [replica(1, 1, 0, cause="load"), APPENDED, replica(4, 2, 1, cause="load")]
    rows += [leads(6, 2, 1, epoch=2, cause="role"), leads(7, 2, 3, epoch=2)]
    rows.append(leads(8, 2, 2, epoch=2, cause="truncate"))
    leaders = [elected(1, 2, until=5), elected(2, 5, epoch=2)]
    rows.append(offline(4, 1) | {"broker": 1})
    logs = logs_of(*rows, elected=leaders, shown_ends=ends, final_end=final_end)
    assert logs.has_all_changes is expected


@pytest.mark.parametrize(("epoch", "expected"), [(1, True), (2, False), (3, False)])
def test_the_last_leader_may_come_to_a_later_epoch_without_an_election(
    epoch: int, expected: bool
) -> None:
    """The leader was elected in epoch 2. If it has not heard of that, it need not have what final reads show."""
    rows = [replica(1, 1, 0, cause="load"), APPENDED, leads(6, 1, 2, epoch=epoch)]
    heard = replica(7, 1, 2, epoch=2, role="offline", cause="down")
    logs = logs_of(*rows, heard, elected=[elected(1, 5, epoch=2)], final_end=3)
    assert logs.has_all_changes is expected


def test_without_elections_nobody_is_the_last_leader() -> None:
    assert logs_of(APPENDED, final_end=9).has_all_changes


@pytest.mark.parametrize(
    ("shown", "appended", "expected"),
    [
        ((1,), {}, False),
        ((1,), {1: 21}, True),
        # Before that it may have led in epoch 1.
        ((1,), {1: 20}, False),
        # Nobody is known to have been elected in epoch 3, and a read shows epoch 4.
        ((1, 3), {1: 21, 3: 21}, False),
        ((1, 4), {1: 21}, False),
    ],
)
def test_a_producer_may_name_an_epoch_that_was_over(
    shown: tuple[int, ...], appended: dict[int, int], expected: bool
) -> None:
    """Broker 2 was down when it was elected in epoch 1, and reported epoch 2 at 20."""
    rows = [APPENDED, replica(9, 2, 1), offline(10, 1), leads(20, 2, 1, epoch=2, cause="role")]
    leaders = [elected(2, 11, epoch=1, until=15), elected(2, 19, epoch=2)]
    logs = logs_of(*rows, elected=leaders, shown_epochs=shown, appended_ns=appended)
    assert logs.has_all_changes is expected


def test_an_epoch_in_which_followers_copied_has_a_leader_whatever_producers_name() -> None:
    rows = [APPENDED, replica(9, 2, 1), offline(10, 1), leads(20, 2, 1, epoch=2, cause="role")]
    leaders = [elected(2, 11, epoch=1, until=15), elected(2, 19, epoch=2)]
    logs = logs_of(*rows, replica(12, 3, 1, epoch=1), elected=leaders, appended_ns={1: 21})
    assert not logs.has_all_changes


def test_the_node_of_a_broker_is_that_of_its_first_row() -> None:
    rows = [APPENDED, replica(4, 2, 0), {**replica(5, 2, 1), "node": "moved"}]
    assert logs_of(*rows).node_of == {1: "b1", 2: "b2"}


def test_the_last_log_end_in_a_term_is_that_of_the_last_report_as_leader_of_its_epoch() -> None:
    logs = logs_of(
        leads(3, 1, 1, epoch=0),
        leads(4, 1, 2, epoch=0),
        replica(5, 1, 3, epoch=0),
        leads(6, 1, 4, epoch=2),
    )
    assert [logs.end_in_term(1, epoch) for epoch in range(3)] == [2, None, 4]


# --- what logs hold ---


def test_a_log_that_grows_again_in_the_next_epoch_may_have_been_copied_from_another_leader() -> (
    None
):
    """Broker 2 copied offsets 0 and 1 in epoch 0, and offset 2 was in its log when it was loaded in epoch 1."""
    logs = logs_of(
        leads(2, 1, 3, epoch=0, cause="append"),
        replica(3, 2, 2, epoch=0, cause="replicate"),
        replica(4, 2, 3, epoch=1, cause="load"),
    )
    three = records((0, 1, 1, 3), (1, 1, 1, 3), (2, 1, 1, 3))
    assert logs.lacks(Moment(broker=2, at_ns=9, epoch=2), three).tolist() == [True, True, False]


@pytest.mark.parametrize(("epoch", "lacks"), [(0, True), (1, False)])
def test_of_a_log_whose_first_row_is_an_append_only_the_last_record_is_known(
    epoch: int, lacks: bool
) -> None:
    """Nobody but the leader of the first epoch can have written what is below the last record."""
    logs = logs_of(leads(2, 1, 3, epoch=epoch), leads(4, 1, 4, epoch=epoch))
    before = epoch - 1
    of_before = records(*((offset, before, before, 1) for offset in range(4)))
    moment = Moment(broker=1, at_ns=9, epoch=epoch)
    assert logs.lacks(moment, of_before).tolist() == [lacks, lacks, True, True]
    (term,) = logs.terms.all
    assert term.write_begin.tolist() == ([0, 3] if epoch == 0 else [2, 3])
    assert term.write_end.tolist() == [3, 4]


def test_an_empty_append_as_the_first_row_begins_at_offset_0() -> None:
    (term,) = logs_of(leads(2, 1, 0, epoch=1), leads(4, 1, 1, epoch=1)).terms.all
    assert (term.write_begin.tolist(), term.write_end.tolist()) == ([0], [1])


def test_a_first_append_of_one_record_begins_at_offset_0() -> None:
    (term,) = logs_of(leads(2, 1, 1, epoch=1)).terms.all
    assert (term.write_begin.tolist(), term.write_end.tolist()) == ([0], [1])


def test_what_a_replica_has_is_what_its_last_row_before_the_election_shows() -> None:
    """Broker 2 copied offset 1 from broker 1, cut it, and copied it again from broker 3, in epoch 1."""
    logs = logs_of(
        leads(1, 1, 2, epoch=0),
        replica(2, 2, 2, epoch=0),
        replica(2, 3, 1, epoch=0),
        leads(4, 3, 1, epoch=1, cause="role"),
        leads(5, 3, 2, epoch=1),
        replica(6, 2, 1, epoch=1, cause="truncate"),
        replica(7, 2, 2, epoch=1),
    )
    three = records((0, 0, 0, 3), (1, 1, 1, 6), (1, 0, 0, 3))
    after = Moment(broker=2, at_ns=9, epoch=2)
    assert logs.certainly_has(after, three).tolist() == [True, True, False]
    assert logs.lacks(after, three).tolist() == [False, False, True]
    before = Moment(broker=2, at_ns=6, epoch=2)
    assert logs.certainly_has(before, three).tolist() == [True, False, False]
    assert logs.lacks(before, three).tolist() == [False, True, True]


def test_a_follower_may_have_copied_what_a_leader_wrote_over_records_of_an_earlier_epoch() -> None:
    """Broker 1 cut its log at 4, in epoch 1, and wrote offset 1 again. Broker 2 copied it after that."""
    logs = logs_of(
        leads(1, 1, 2, epoch=0),
        leads(2, 1, 2, epoch=1, cause="role"),
        leads(3, 1, 3, epoch=1),
        leads(4, 1, 1, epoch=1, cause="truncate"),
        leads(5, 1, 3, epoch=1),
        replica(6, 2, 3, epoch=1),
    )
    two = records((0, 1, 1, 5), (1, 1, 1, 5))
    assert logs.lacks(Moment(broker=2, at_ns=9, epoch=2), two).tolist() == [True, False]


def test_a_follower_of_a_leader_that_leads_again_copies_what_that_leader_has() -> None:
    """Broker 1 led in epochs 0 and 2, and reported nothing in between."""
    logs = logs_of(
        leads(1, 1, 1, epoch=0),
        leads(4, 1, 1, epoch=2, cause="role"),
        replica(5, 2, 1, epoch=2),
        leads(6, 1, 2, epoch=2),
    )
    two = records((0, 0, 0, 1), (0, 1, 2, 1))
    after = Moment(broker=2, at_ns=9, epoch=3)
    assert logs.certainly_has(after, two).tolist() == [True, False]
    assert logs.lacks(after, two).tolist() == [False, True]


def test_two_rows_of_a_leader_at_one_moment_show_what_its_follower_copies() -> None:
    """Broker 1 was looked at when it led in epoch 1, and twice at 7, in epoch 2. Then it wrote offset 2."""
    logs = logs_of(
        leads(3, 1, 2, epoch=1, cause="role"),
        leads(7, 1, 2, epoch=2, cause="role"),
        leads(7, 1, 2, hw=2, epoch=2, cause="high-watermark"),
        replica(8, 2, 3, epoch=2),
        replica(12, 2, 3, epoch=3, cause="high-watermark"),
    )
    assert not logs.has_all_changes
    moment = Moment(broker=2, at_ns=9, epoch=3)
    assert logs.certainly_has(moment, records((2, 2, 2, 8), (2, 1, 1, 8))).tolist() == [True, False]


def test_a_replica_kept_what_it_copied_after_it_had_been_down() -> None:
    """Broker 2 was down at 3, copied offset 1 at 4, and was looked at again when it led."""
    logs = logs_of(
        leads(1, 1, 0, epoch=1, cause="role"),
        replica(2, 2, 1, epoch=1),
        replica(3, 2, 1, epoch=1, role="offline", cause="down"),
        replica(4, 2, 2, epoch=1),
        leads(7, 2, 2, epoch=2, cause="role"),
    )
    assert not logs.has_all_changes
    both = records((0, 1, 1, 2), (1, 1, 1, 4))
    assert logs.certainly_has(Moment(broker=2, at_ns=5, epoch=2), both).tolist() == [True, True]
    assert logs.certainly_has(Moment(broker=2, at_ns=3, epoch=2), both).tolist() == [False, False]


@pytest.mark.parametrize(
    ("from_ns", "to_ns", "expected"),
    [(5, 7, (ANY_EPOCH, FOREVER_NS, -1)), (5, 8, (0, 8, 0)), (8, 9, (0, 8, 0))],
)
def test_a_follower_shows_no_record_at_the_end_of_its_log(
    from_ns: int, to_ns: int, expected: tuple[int, int, int]
) -> None:
    """Broker 2 knew of the high watermark 2 at 5, and copied offset 1 at 8. The leader reported none."""
    logs = logs_of(
        leads(1, 1, 2, epoch=0),
        replica(5, 2, 1, hw=2),
        replica(8, 2, 2, hw=2),
    )
    found = logs.terms.served(ints(1), ints(from_ns), ints(to_ns), ints(-1))
    assert tuple(int(column[0]) for column in found) == expected


def test_what_is_below_a_first_append_is_not_of_a_later_epoch() -> None:
    logs = logs_of(leads(2, 1, 2, epoch=1))
    four = records((0, 0, 1, 1), (0, 2, 2, 1), (1, 0, 1, 1), (1, 2, 2, 1))
    lacks = logs.lacks(Moment(broker=1, at_ns=9, epoch=2), four)
    assert lacks.tolist() == [False, True, False, True]


def test_a_leader_that_reports_twice_at_one_moment_goes_on_writing() -> None:
    """Broker 1 reported an append and its high watermark at 3, and the next append at 4."""
    logs = logs_of(
        leads(3, 1, 1, epoch=1),
        leads(3, 1, 1, hw=1, epoch=1, cause="high-watermark"),
        leads(4, 1, 2, hw=1, epoch=1),
    )
    two = records((1, 1, 1, 1), (1, 0, 0, 1))
    moment = Moment(broker=1, at_ns=9, epoch=2)
    assert logs.certainly_has(moment, two).tolist() == [True, False]
    assert logs.lacks(moment, two).tolist() == [False, True]


def test_a_leader_whose_log_was_shorter_at_its_first_append_wrote_what_follows() -> None:
    """Broker 1 had offset 2 in epoch 0, and wrote it again in epoch 1. Broker 2 copied it after that."""
    logs = logs_of(
        leads(1, 3, 3, epoch=0),
        replica(2, 1, 3, epoch=0),
        leads(4, 1, 2, epoch=1),
        leads(5, 1, 3, epoch=1),
        replica(6, 2, 3, epoch=1),
    )
    two = records((2, 0, 0, 1), (2, 1, 1, 6))
    assert logs.lacks(Moment(broker=2, at_ns=9, epoch=2), two).tolist() == [True, False]


def test_beyond_what_a_leader_cut_from_its_log_its_epoch_wrote_every_offset_once() -> None:
    """Broker 1 wrote up to offset 2, cut its log at offset 1, and wrote up to offset 3 then."""
    logs = logs_of(
        leads(2, 1, 3, epoch=1, cause="append"),
        leads(5, 1, 1, epoch=1, cause="truncate"),
        leads(7, 1, 4, epoch=1, cause="append"),
    )
    both = records((2, 1, 1, 8), (3, 1, 1, 8))
    assert logs.certainly_has(Moment(broker=1, at_ns=20, epoch=2), both).tolist() == [False, True]


@pytest.mark.parametrize(("from_ns", "epoch"), [(20, 0), (21, -1)])
def test_a_leader_serves_reads_that_begin_until_its_end(from_ns: int, epoch: int) -> None:
    logs = logs_of(
        leads(3, 1, 1, epoch=0),
        leads(5, 1, 1, hw=1, epoch=0, cause="high-watermark"),
        replica(20, 1, 1, hw=1, role="offline", cause="down"),
    )
    _, passed_ns, found = logs.terms.served(ints(0), ints(from_ns), ints(40), ints(-1))
    assert (found.tolist(), passed_ns.tolist()) == ([epoch], [5 if epoch == 0 else FOREVER_NS])


# --- what a leader wrote and did not report ---

DOWN_AT_5 = offline(5, 3, epoch=1)
HAD_3 = leads(4, 2, 3, epoch=1)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([HAD_3, DOWN_AT_5, replica(9, 2, 5, epoch=2, cause="load")], [1]),
        ([HAD_3, replica(9, 2, 5, epoch=2, cause="load")], [1]),
        ([HAD_3, DOWN_AT_5, offline(6, 3, epoch=1), replica(9, 2, 5, epoch=2, cause="load")], [1]),
        # It followed, or it reported what it copied, or its log is no longer than before.
        ([replica(4, 2, 3, epoch=1), DOWN_AT_5, replica(9, 2, 5, epoch=2, cause="load")], []),
        ([HAD_3, DOWN_AT_5, replica(9, 2, 5, epoch=2)], []),
        ([HAD_3, DOWN_AT_5, replica(9, 2, 3, epoch=2, cause="load")], []),
        ([offline(1, 0), replica(9, 2, 5, epoch=2, cause="load")], []),
        ([replica(9, 2, 5, epoch=2, cause="load")], []),
    ],
)
def test_a_leader_may_have_written_what_its_log_has_when_it_is_loaded(
    rows: list[Row], expected: list[int]
) -> None:
    """Nobody was told of the record before the log was loaded, at 9."""
    logs = logs_of(APPENDED, replica(0, 2, 0, cause="load"), *rows)
    assert logs.terms.writes_at(3) == [(epoch, 9) for epoch in expected]
    assert logs.terms.writes_at(4) == [(epoch, 9) for epoch in expected]
    assert not logs.terms.writes_at(5)


@pytest.mark.parametrize(
    ("before", "lacks"),
    [
        # Epoch 2 had begun when the log became unreadable.
        ([offline(8, 3, epoch=1)], [False, False, True, False]),
        ([offline(7, 3, epoch=1), offline(8, 3, epoch=1)], [False, False, True, False]),
        ([offline(6, 3, epoch=1), offline(8, 3, epoch=1)], [False, True, True, False]),
        ([offline(6, -1, epoch=1)], [False, True, True, False]),
        ([offline(6, 3, epoch=1), replica(8, 2, 3, epoch=1, cause="role")], [False] * 4),
        ([], [False] * 4),
    ],
)
def test_a_replica_copied_nothing_from_leaders_that_began_while_it_was_down(
    before: list[Row], lacks: list[bool]
) -> None:
    """Broker 2 had two records more when it was loaded, in epoch 4. Epoch 2 began at 7."""
    rows = [leads(3, 1, 1, epoch=0), HAD_3, leads(7, 1, 3, epoch=2, cause="role"), *before]
    rows.append(replica(9, 2, 5, epoch=4, cause="load"))
    rows += [leads(9, 1, 3, epoch=4, cause="role"), leads(10, 2, 5, epoch=5, cause="role")]
    shown = records((3, 0, 1, 5), (3, 2, 4, 5), (4, 3, 3, 5), (4, 1, 1, 5))
    assert logs_of(*rows).lacks(Moment(broker=2, at_ns=9, epoch=5), shown).tolist() == lacks


def test_each_time_that_a_replica_is_down_counts_for_what_it_has_then() -> None:
    """It copied offset 1 before epoch 2 began at 7, and offset 2 perhaps after that. Both were never reported."""
    rows = [leads(3, 1, 3, epoch=0), replica(4, 2, 1), leads(7, 1, 3, epoch=2, cause="role")]
    rows += [offline(6, 1), replica(9, 2, 2, epoch=3, cause="load")]
    rows += [offline(11, 2, epoch=3), replica(12, 2, 3, epoch=3, cause="load")]
    shown = records((1, 2, 2, 5), (1, 0, 0, 5), (2, 2, 2, 5), (2, 3, 3, 5))
    lacks = logs_of(*rows).lacks(Moment(broker=2, at_ns=20, epoch=4), shown).tolist()
    assert lacks == [True, False, False, True]


def test_clients_may_have_seen_what_a_leader_did_not_report() -> None:
    rows = [replica(1, 1, 0, cause="load"), APPENDED, replica(3, 2, 0, cause="load"), HAD_3]
    rows += [DOWN_AT_5, replica(9, 2, 5, epoch=1, cause="load")]
    assert logs_of(*rows, shown_ends={1: 5}).has_all_changes
    assert not logs_of(*rows, shown_ends={1: 6}).has_all_changes


@pytest.mark.parametrize(
    ("heard", "lacks"),
    [
        (leads(14, 2, 1, epoch=3, cause="role"), True),
        # It heard of the next epoch only: it leads that one, or follows in it.
        (leads(14, 2, 1, epoch=5, cause="role"), True),
        (replica(14, 2, 1, epoch=4, cause="role"), True),
        # It is not known that it has heard of its election.
        (leads(14, 2, 1, epoch=2, cause="role"), False),
        (offline(14, 1, epoch=3), True),
    ],
)
def test_a_replica_has_what_it_has_when_it_hears_of_its_election_or_of_a_later_one(
    heard: Row, lacks: bool
) -> None:
    """Broker 2 was elected at 10, in epoch 3, and cut its log for an older leader at 12."""
    rows = [leads(1, 1, 2, epoch=0), replica(3, 2, 2), replica(12, 2, 1, epoch=2, cause="truncate")]
    election, record = Moment(broker=2, at_ns=10, epoch=3), records((1, 0, 0, 5))
    logs = logs_of(*rows, heard)
    assert logs.lacks(election, record).tolist() == [lacks]
    assert logs.certainly_has(election, record).tolist() == [not lacks]
    # If its process ended meanwhile, it has what it had then.
    ended = logs_of(*rows, offline(13, 1, epoch=2), heard)
    assert ended.certainly_has(election, record).tolist() == [not lacks]


def test_each_term_says_at_which_offsets_its_leader_wrote() -> None:
    rows = [leads(1, 1, 2, epoch=0), leads(2, 1, 3, epoch=0), leads(5, 2, 2, epoch=1, cause="role")]
    rows.append(leads(6, 2, 4, epoch=1))
    wrote = {epoch: at.tolist() for epoch, at in logs_of(*rows).terms.wrote_at(ints(0, 1, 2, 3, 4))}
    assert wrote == {0: [True, True, True, False, False], 1: [False, False, True, True, False]}


WRITTEN_TWICE = [
    leads(1, 1, 0, hw=0, epoch=4, cause="role"),
    leads(2, 1, 1, hw=0, epoch=4),
    leads(3, 1, 1, hw=1, epoch=4, cause="high-watermark"),
    replica(10, 1, 1, epoch=4, role="offline", cause="down"),
    leads(20, 1, 0, hw=0, epoch=4, cause="role"),
    leads(22, 1, 1, hw=0, epoch=4),
    leads(23, 1, 1, hw=1, epoch=4, cause="high-watermark"),
]


@pytest.mark.parametrize(
    ("invoked_ns", "passed_ns"), [(2, 3), (3, 23), (21, 23), (22, 23), (24, 99)]
)
def test_a_record_is_not_what_a_leader_had_written_there_before_the_append_began(
    invoked_ns: int, passed_ns: int
) -> None:
    """The leader writes offset 0 at 2, loses it, leads on, and writes another record there at 22."""
    passed = logs_of(*WRITTEN_TWICE).terms.passed(ints(0), ints(4), ints(4), ints(invoked_ns))
    assert passed.at_ns.tolist() == [passed_ns if passed_ns < 99 else INF_NS]


@pytest.mark.parametrize(
    ("written_ns", "seen_ns", "passed_ns"), [(21, 30, 3), (22, 30, 23), (22, 22, 3)]
)
def test_a_record_that_may_be_either_of_two_of_an_epoch_is_established_when_the_last_one_is(
    written_ns: int, seen_ns: int, passed_ns: int
) -> None:
    """The near misses: it was written before the second one, or seen before that one was established."""
    times = ints(0), ints(written_ns), ints(seen_ns)
    passed = logs_of(*WRITTEN_TWICE).terms.passed(ints(0), ints(4), ints(4), *times)
    assert (passed.perhaps_ns.tolist(), passed.at_ns.tolist()) == ([3], [passed_ns])


def test_a_record_may_be_established_at_the_moment_in_which_it_was_first_seen() -> None:
    """It may be either of the two that the leader wrote; the second one is established at 23."""
    times = ints(0), ints(22), ints(23)
    passed = logs_of(*WRITTEN_TWICE).terms.passed(ints(0), ints(4), ints(4), *times)
    assert passed.at_ns.tolist() == [23]


def test_a_leader_may_write_two_records_at_one_offset_in_the_moment_in_which_an_append_begins() -> (
    None
):
    """The leader writes offset 0 at 22, loses it, and writes another record there at the same moment."""
    both = [{**row, "at_ns": max(row["at_ns"], 22)} for row in WRITTEN_TWICE]
    times = ints(22), ints(22), ints(30)
    passed = logs_of(*both).terms.passed(ints(0), ints(4), ints(4), *times)
    assert (passed.perhaps_ns.tolist(), passed.at_ns.tolist()) == ([22], [23])


def test_when_a_leader_wrote_at_an_offset_says_nothing_about_the_leader_of_the_next_epoch() -> None:
    """Broker 1 writes offset 1 at 2, before the append begins. Who wrote what broker 2 has is not known."""
    logs = logs_of(
        leads(1, 1, 1, epoch=0),
        leads(2, 1, 2, epoch=0),
        replica(3, 2, 1),
        leads(20, 2, 2, hw=1, epoch=1, cause="role"),
        leads(21, 2, 2, hw=2, epoch=1, cause="high-watermark"),
    )
    passed = logs.terms.passed(ints(1), ints(1), ints(1), ints(10))
    assert (passed.perhaps_ns.tolist(), passed.at_ns.tolist()) == ([21], [INF_NS])


@pytest.mark.parametrize(("to_ns", "expected"), [(69, (1, 60, 1)), (70, (0, 70, 0))])
def test_a_deposed_leader_serves_what_it_commits_at_the_moment_in_which_a_read_ends(
    to_ns: int, expected: tuple[int, int, int]
) -> None:
    """Broker 2 commits its record at offset 0 at 60, and broker 1, which it deposed, commits its own at 70."""
    logs = logs_of(
        leads(1, 1, 1, epoch=0),
        leads(51, 2, 0, epoch=1, cause="role"),
        leads(55, 2, 1, epoch=1),
        leads(60, 2, 1, hw=1, epoch=1, cause="high-watermark"),
        leads(70, 1, 1, hw=1, epoch=0, cause="high-watermark"),
    )
    found = logs.terms.served(ints(0), ints(65), ints(to_ns), ints(-1))
    assert tuple(int(column[0]) for column in found) == expected


@pytest.mark.parametrize(
    ("from_ns", "to_ns", "expected"),
    [
        (5, 19, (4, 3, 4)),
        # It leads on at 20, and which of its two records a read shows is not known.
        (5, 20, (ANY_EPOCH, 3, 4)),
        # Its process ends at 10.
        (10, 30, (ANY_EPOCH, 3, 4)),
        (11, 30, (4, 23, 4)),
    ],
)
def test_a_leader_whose_epoch_is_known_serves_its_first_record_until_it_leads_on_without_it(
    from_ns: int, to_ns: int, expected: tuple[int, int, int]
) -> None:
    found = logs_of(*WRITTEN_TWICE).terms.served(ints(0), ints(from_ns), ints(to_ns), ints(4))
    assert tuple(int(column[0]) for column in found) == expected


def test_no_epoch_wrote_where_no_leader_did() -> None:
    logs = logs_of(leads(1, 1, 1, epoch=4))
    low, high = logs.terms.writers(ints(0, 1), ints(0, 0), ints(9, 9), ints(-1, -1))
    assert (low.tolist(), high.tolist()) == ([4, ANY_EPOCH], [4, -1])


def test_a_leader_wrote_again_at_an_offset_if_it_led_on_without_it_once() -> None:
    terms = logs_of(*WRITTEN_TWICE).terms
    assert terms.wrote_again(ints(4, 4, 3), ints(0, 1, 0)).tolist() == [True, False, False]


@pytest.mark.parametrize(("epoch_before", "passed_ns"), [(1, INF_NS), (2, 7)])
def test_one_look_may_show_how_long_the_log_of_a_leader_was_before_it_was_cut_too(
    epoch_before: int, passed_ns: int
) -> None:
    """The look at 7 shows a log of two records, and one record in epoch 2. Who wrote them is not known."""
    logs = logs_of(
        leads(7, 1, 2, hw=2, epoch=epoch_before, cause="observed"),
        leads(7, 1, 1, hw=1, epoch=2, cause="truncate"),
    )
    assert not logs.has_all_changes
    passed = logs.terms.passed(ints(1), ints(1), ints(2), ints(0))
    assert passed.at_ns.tolist() == [passed_ns]
    found = logs.terms.served(ints(0, 0), ints(8, 8), ints(9, 9), ints(1, 2))
    written, served_ns, epochs = (column.tolist() for column in found)
    assert (written, served_ns, epochs) == ([ANY_EPOCH, ANY_EPOCH], [INF_NS, 7], [-1, 2])


# --- leaders that led on, or ended before they led ---


@pytest.mark.parametrize(
    ("between", "has_restarted"),
    [
        ([], False),
        ([replica(20, 1, 2, cause="load")], True),
        ([replica(20, 1, 2, role="offline", cause="down")], True),
        ([replica(20, 1, -1, role="offline", cause="down")], True),
        (
            [replica(20, 1, 2, role="offline", cause="down"), replica(26, 1, 1, cause="load")],
            True,
        ),
    ],
)
def test_a_leader_may_have_restarted_if_it_did_not_lead_all_the_time_or_its_log_was_not_readable(
    between: list[Row], has_restarted: bool
) -> None:
    """Broker 1 leads with two records, and with one at 31."""
    before = [leads(1, 1, 1, epoch=0), leads(3, 1, 2, epoch=0)]
    logs = logs_of(*before, *between, leads(31, 1, 1, epoch=0, cause="role"))
    (cut,) = logs.self_cuts
    assert (cut.end_offset, cut.end_before, cut.at_ns) == (1, 2, 31)
    assert cut.has_restarted is has_restarted
    assert logs.led_on == (((31, 1),) if has_restarted else ())


LEADS_AT_20 = leads(20, 2, 1, epoch=1, cause="role")


@pytest.mark.parametrize(
    ("rows", "cuts"),
    [
        # What it copied last counts, and what it came back with.
        (
            [
                replica(8, 2, 1),
                replica(9, 2, 2),
                offline(12, 2),
                replica(14, 2, 1, cause="load"),
                LEADS_AT_20,
            ],
            [(20, 1, 2)],
        ),
        # It had restarted before it was elected.
        (
            [
                replica(4, 2, 2),
                offline(5, 2),
                replica(9, 2, 2, cause="load"),
                offline(12, 2),
                replica(14, 2, 1, cause="load"),
                LEADS_AT_20,
            ],
            [(20, 1, 2)],
        ),
        # It still has both records when it leads, and cuts its log then.
        (
            [
                replica(9, 2, 2),
                offline(12, 2),
                replica(14, 2, 2, cause="load"),
                leads(20, 2, 2, epoch=1, cause="role"),
                leads(22, 2, 1, epoch=1, cause="truncate"),
            ],
            [(22, 1, 2)],
        ),
    ],
)
def test_a_replica_that_ends_before_it_leads_has_lost_what_it_does_not_come_back_with(
    rows: list[Row], cuts: list[tuple[int, int, int]]
) -> None:
    """Broker 2 was elected at 10, in epoch 1. It had offset 1 before its process ended."""
    logs = logs_of(leads(3, 1, 2, epoch=0), *rows, elected=[elected(2, 10, epoch=1)])
    assert logs.has_all_changes
    assert [(cut.at_ns, cut.end_offset, cut.end_before) for cut in logs.self_cuts] == cuts
    moment, record = Moment(broker=2, at_ns=10, epoch=1), records((1, 0, 0, 5))
    assert logs.lacks(moment, record).tolist() == [False]
    assert logs.certainly_has(moment, record).tolist() == [True]


@pytest.mark.parametrize(
    ("heard", "lacks"),
    [
        # It has what it has when it leads by this election.
        (leads(20, 2, 1, epoch=1, cause="role"), True),
        # It never does, so it has what it comes back with.
        (replica(20, 2, 1, epoch=1, cause="role"), False),
        (leads(20, 2, 1, epoch=2, cause="role"), False),
    ],
)
def test_a_replica_that_was_elected_while_it_was_down_has_what_it_leads_or_comes_back_with(
    heard: Row, lacks: bool
) -> None:
    """Broker 2 was elected at 10, comes back with offset 1, and cuts it for an older leader."""
    logs = logs_of(
        leads(3, 1, 2, epoch=0),
        replica(8, 2, 2),
        offline(9, 2),
        replica(14, 2, 2, cause="load"),
        replica(16, 2, 1, cause="truncate"),
        heard,
        elected=[elected(2, 10, epoch=1)],
    )
    assert logs.has_all_changes
    moment, record = Moment(broker=2, at_ns=10, epoch=1), records((1, 0, 0, 5))
    assert logs.lacks(moment, record).tolist() == [lacks]
    assert logs.led_after_restart_ns(2, 10, 1) == (20 if lacks else None)
    assert logs.led_after_restart_ns(2, 8, 1) is None
    assert logs.led_after_restart_ns(7, 10, 1) is None
