"""Records that were at certain offsets, as elections judge them, and the elections of one partition."""

from typing import Any

import numpy as np
import pyarrow as pa

from checkers.kernels.claims import ClaimReader
from checkers.kernels.elections import Elections
from checkers.kernels.fates import Claims
from checkers.kernels.history import PartitionHistory
from tests.anomalies.runs import table

Row = dict[str, Any]
FOREVER_NS = 2**61
ANY_EPOCH = 2**31


def ints(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


def claims(**columns: list[int]) -> Claims:
    """Records of unknown epochs and times, but for what the columns give."""
    count = max(len(values) for values in columns.values())
    unknown = {
        "offset": 0,
        "low_epoch": -1,
        "high_epoch": ANY_EPOCH,
        "from_ns": -FOREVER_NS,
        "by_ns": FOREVER_NS,
        "epoch": -1,
        "read_ns": -FOREVER_NS,
    }
    values = {name: np.full(count, value, dtype=np.int64) for name, value in unknown.items()}
    return Claims(**(values | {name: ints(*column) for name, column in columns.items()}))


def claim(at_ns: int) -> Claims:
    """A record of epoch 0 that was established at a moment."""
    return claims(low_epoch=[0], high_epoch=[0], from_ns=[at_ns], by_ns=[at_ns], epoch=[0])


def plain_reader(
    history: PartitionHistory,
    operations: pa.Table,
    records: pa.Table,
    elections: Elections,
    *,
    sent_again: bool = False,
) -> ClaimReader:
    """Returns a reader for a run that had one clock, and whose topic is not compacted."""
    return ClaimReader(
        history,
        operations,
        records,
        elections,
        sent_again=sent_again,
        compacted=False,
        clock_error_ns=0,
    )


def elections_of(
    states: list[Row],
    replicas: list[Row] | None = None,
    brokers: list[Row] | None = None,
    faults: list[Row] | None = None,
    *,
    elr_on: bool = False,
    unclean_election_enabled: bool | None = None,
    **more: Any,
) -> Elections:
    """Returns elections; unless stated, unclean ones are allowed if there are no eligible leader replicas."""
    allowed = not elr_on if unclean_election_enabled is None else unclean_election_enabled
    return Elections(
        table("partition_states", states),
        table("replica_states", replicas or []),
        table("broker_states", brokers or []),
        table("faults", faults or []),
        elr_on=elr_on,
        unclean_election_enabled=allowed,
        **more,
    )
