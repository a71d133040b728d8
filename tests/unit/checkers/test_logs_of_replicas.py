"""What replicas' logs held, where the leader wrote, copied or cut in unusual order."""

from typing import Any

import numpy as np
import pytest

from checkers.kernels.leader_terms import Records
from checkers.kernels.log_contents import ANY_EPOCH
from checkers.kernels.replica_logs import Moment, ReplicaLogs
from tests.anomalies.runs import leads, replica, table

Row = dict[str, Any]


def logs_of(*rows: Row) -> ReplicaLogs:
    return ReplicaLogs(table("replica_states", list(rows)))


def ints(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


def elected(broker: int, at: int, epoch: int = 0) -> Moment:
    return Moment(broker=broker, at_ns=at, epoch=epoch)


def records(*rows: tuple[int, int, int, int]) -> Records:
    """Each with its offset, its smallest and largest epoch, and when it was established."""
    offset, low, high, by = (ints(*column) for column in zip(*rows, strict=True))
    return Records(offset=offset, low_epoch=low, high_epoch=high, by_ns=by)


@pytest.mark.parametrize("copied", [1, 2])
@pytest.mark.parametrize("repeated", [False, True])
def test_a_follower_of_one_leader_goes_on_copying_what_it_began_to_copy(
    copied: int, repeated: bool
) -> None:
    """Broker 1 wrote offsets 1 to 3 in epoch 1, and cut its log at 2. Broker 2 copied offset 2 after that."""
    again = [replica(6, 2, copied, epoch=1, cause="high-watermark")] if repeated else []
    logs = logs_of(
        leads(1, 1, 1, epoch=0, cause="append"),
        leads(2, 1, 1, epoch=1, cause="role"),
        leads(3, 1, 4, epoch=1, cause="append"),
        replica(4, 2, copied, epoch=1, cause="replicate"),
        leads(5, 1, 2, epoch=1, cause="truncate"),
        *again,
        replica(7, 2, 3, epoch=1, cause="replicate"),
    )
    # A record of epoch 0 is at offset 0 only.
    old = records((0, 0, 0, 3), (1, 0, 0, 3), (2, 0, 0, 3))
    assert logs.lacks(elected(2, 9), old).tolist() == [False, True, True]
    # Of epoch 1 there were two at offset 2.
    has = logs.certainly_has(elected(2, 9), records((1, 1, 1, 3), (2, 1, 1, 3)))
    assert has.tolist() == [True, False]


@pytest.mark.parametrize(
    ("there_since", "established", "has"),
    [(3, 3, True), (4, 4, True), (4, 5, False), (5, 4, False), (6, 4, False), (6, 6, False)],
)
def test_a_replica_kept_what_it_and_the_leader_had_before_the_leader_cut_its_log(
    there_since: int, established: int, has: bool
) -> None:
    """Broker 1 wrote offset 1 at 2, cut it at 5 and wrote it again at 6. Offset 0 was not cut."""
    logs = logs_of(
        leads(2, 1, 2, epoch=0, cause="append"),
        leads(5, 1, 1, epoch=0, cause="truncate"),
        leads(6, 1, 2, epoch=0, cause="append"),
        replica(there_since, 2, 2, epoch=0, cause="replicate"),
    )
    both = records((0, 0, 0, established), (1, 0, 0, established))
    assert logs.certainly_has(elected(2, 9), both).tolist() == [True, has]
    if there_since <= 5:
        assert logs.certainly_has(elected(2, 5), both).tolist() == [True, has]
    # Before the cut, the epoch tells which record it was.
    if there_since < 5:
        assert logs.certainly_has(elected(2, 4), both).tolist() == [True, True]


def test_a_cut_says_nothing_about_records_of_other_epochs() -> None:
    """Broker 1 cut its log at 5, in epoch 1. The record at offset 1 that broker 2 has is of epoch 2."""
    logs = logs_of(
        leads(2, 1, 2, epoch=1, cause="append"),
        leads(5, 1, 1, epoch=1, cause="truncate"),
        replica(6, 2, 1, epoch=1, cause="replicate"),
        leads(7, 2, 2, epoch=2, cause="append"),
    )
    has = logs.certainly_has(elected(2, 9), records((1, 2, 2, 7)))
    assert has.tolist() == [True]


def test_what_an_unknown_leader_wrote_is_in_no_log_for_certain() -> None:
    """Brokers 3 and 4 copied offset 1 from a leader that wrote it, or copied it before.

    What broker 6 had, which led in epochs 0 and 2, is recorded only later, because its clock is ahead.
    Broker 5 had it when it was first seen, in epoch 1.
    """
    logs = logs_of(
        leads(2, 1, 2, epoch=1, cause="append"),
        leads(5, 1, 1, epoch=1, cause="truncate"),
        replica(6, 3, 2, epoch=2, cause="replicate"),
        replica(6, 4, 2, epoch=0, cause="replicate"),
        replica(6, 5, 2, epoch=1, cause="load"),
        *(leads(7, 6, 2, epoch=epoch, cause="role") for epoch in (0, 2)),
    )
    record = records((1, 0, 3, 8))
    for broker in (3, 4, 5):
        assert logs.certainly_has(elected(broker, 9), record).tolist() == [False]
    # It may be of epoch 0, too: who wrote it was not seen.
    assert logs.lacks(elected(5, 9), records((1, 0, 0, 8))).tolist() == [False]


# --- logs that somebody looked at now and then ---


def test_where_nobody_reports_appends_not_every_change_is_known() -> None:
    rows = [leads(2, 1, 1, epoch=1, cause="load"), leads(5, 1, 3, epoch=1, cause="observed")]
    assert not logs_of(*rows).has_all_changes
    assert logs_of(*rows, leads(6, 1, 4, epoch=1, cause="append")).has_all_changes
    assert not logs_of().has_all_changes


@pytest.mark.parametrize(
    ("later", "lacks"),
    [
        # It was one record long when it was elected: a leader does not cut its log.
        ([leads(7, 2, 1, epoch=2, cause="role")], [False, True]),
        # One look may tell how short the log was before, and how long it is.
        (
            [leads(7, 2, 0, epoch=2, cause="truncate"), leads(7, 2, 1, epoch=2, cause="role")],
            [False, True],
        ),
        # Whether it wrote the second record itself or had it before is not known.
        ([leads(7, 2, 2, epoch=2, cause="observed")], [False, False]),
        # It may have been cut since.
        ([replica(7, 2, 1, epoch=3, cause="truncate")], [False, False]),
        ([leads(7, 2, 1, epoch=3, cause="truncate")], [False, False]),
        ([], [False, False]),
    ],
)
def test_what_a_leader_lacks_at_the_next_look_it_lacked_when_it_was_elected(
    later: list[Row], lacks: list[bool]
) -> None:
    """Broker 2 was last seen with an empty log at 4, and elected at 5. It may have grown in between."""
    logs = logs_of(replica(4, 2, 0, epoch=1, cause="load"), *later)
    both = records((0, 0, 1, 3), (1, 0, 1, 3))
    assert logs.lacks(elected(2, 5, epoch=2), both).tolist() == lacks
    assert logs.lacks(elected(9, 5, epoch=2), both).tolist() == [False, False]


@pytest.mark.parametrize(
    ("later", "has"),
    [
        ([leads(7, 2, 2, epoch=2, cause="role")], [True, True, False]),
        # Nobody looked again, so it may have been cut before the election.
        ([], [False, False, False]),
        # Perhaps the log was cut before the election, and perhaps after it.
        (
            [replica(7, 2, 1, epoch=2, cause="truncate"), replica(7, 2, 3, epoch=2)],
            [True, False, False],
        ),
        ([replica(7, 2, 2, role="offline", epoch=1, cause="down")], [False, False, False]),
    ],
)
def test_what_a_replica_had_at_the_looks_before_and_after_it_had_when_it_was_elected(
    later: list[Row], has: list[bool]
) -> None:
    """Broker 1 wrote both records in epoch 1, after it was seen to lead, and broker 2 copied them until 4."""
    logs = logs_of(
        leads(1, 1, 0, epoch=1, cause="role"),
        replica(2, 2, 0, epoch=1, cause="load"),
        replica(4, 2, 2, epoch=1, cause="replicate"),
        *later,
    )
    three = records((0, 1, 1, 3), (1, 1, 1, 3), (2, 1, 1, 3))
    assert logs.certainly_has(elected(2, 5, epoch=2), three).tolist() == has
    # Of which epoch a record is must be known: another leader may have written one there.
    unknown = records((0, -1, ANY_EPOCH, 3), (1, 0, 1, 3))
    assert logs.certainly_has(elected(2, 5, epoch=2), unknown).tolist() == [False, False]


@pytest.mark.parametrize(
    ("started", "was_down"), [([9], True), ([3, 9], True), ([5], False), ([], False)]
)
def test_a_broker_that_nobody_looked_at_is_up_once_it_has_registered(
    started: list[int], was_down: bool
) -> None:
    """Broker 2 went down at 4, was elected at 5, and the next epoch began at 8."""
    logs = logs_of(replica(4, 2, 2, role="offline", epoch=1, cause="down"))
    assert logs.was_down(2, 5, 8, ints(*started)) is was_down
