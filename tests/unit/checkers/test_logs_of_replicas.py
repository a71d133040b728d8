"""What replicas' logs held, where the leader wrote, copied or cut in unusual order."""

from typing import Any

import numpy as np
import pytest

from checkers.kernels.replica_logs import ReplicaLogs
from tests.anomalies.runs import replica, table

Row = dict[str, Any]


def logs_of(*rows: Row) -> ReplicaLogs:
    return ReplicaLogs(table("replica_states", list(rows)))


def leads(at: int, broker: int, end: int, *, hw: int = 0, epoch: int, cause: str) -> Row:
    return replica(at, broker, end, hw=hw, epoch=epoch, role="leader", cause=cause)


def ints(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


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
    assert logs.lacks(2, 9, ints(0, 1, 2), ints(0, 0, 0), ints(0, 0, 0)).tolist() == [
        False,
        True,
        True,
    ]
    # Of epoch 1 there were two at offset 2.
    has = logs.certainly_has(2, 9, ints(1, 2), ints(1, 1), ints(1, 1), ints(3, 3))
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
    offsets, epochs, since = ints(0, 1), ints(0, 0), ints(established, established)
    assert logs.certainly_has(2, 9, offsets, epochs, epochs, since).tolist() == [True, has]
    if there_since <= 5:
        assert logs.certainly_has(2, 5, offsets, epochs, epochs, since).tolist() == [True, has]
    # Before the cut, the epoch tells which record it was.
    if there_since < 5:
        assert logs.certainly_has(2, 4, offsets, epochs, epochs, since).tolist() == [True, True]


def test_a_cut_says_nothing_about_records_of_other_epochs() -> None:
    """Broker 1 cut its log at 5, in epoch 1. The record at offset 1 that broker 2 has is of epoch 2."""
    logs = logs_of(
        leads(2, 1, 2, epoch=1, cause="append"),
        leads(5, 1, 1, epoch=1, cause="truncate"),
        replica(6, 2, 1, epoch=1, cause="replicate"),
        leads(7, 2, 2, epoch=2, cause="append"),
    )
    has = logs.certainly_has(2, 9, ints(1), ints(2), ints(2), ints(7))
    assert has.tolist() == [True]


def test_what_an_unknown_leader_wrote_may_be_of_the_epoch_in_which_a_leader_cut_its_log() -> None:
    """Broker 3 copied offset 1 from a leader of epoch 2 that is not recorded, or of an epoch before; 4 could not.

    Broker 5 had it when it was first seen, in epoch 1.
    """
    logs = logs_of(
        leads(2, 1, 2, epoch=1, cause="append"),
        leads(5, 1, 1, epoch=1, cause="truncate"),
        replica(6, 3, 2, epoch=2, cause="replicate"),
        replica(6, 4, 2, epoch=0, cause="replicate"),
        replica(6, 5, 2, epoch=1, cause="load"),
    )
    record = (ints(1), ints(0), ints(3), ints(8))
    assert logs.certainly_has(3, 9, *record).tolist() == [False]
    assert logs.certainly_has(4, 9, *record).tolist() == [True]
    assert logs.certainly_has(5, 9, *record).tolist() == [False]
    # It may be of epoch 0, too: who wrote it was not seen.
    assert logs.lacks(5, 9, ints(1), ints(0), ints(0)).tolist() == [False]
