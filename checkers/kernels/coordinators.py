"""What elections did to the records of a consumer group, which its coordinator keeps.

The leader of one partition of the offsets topic coordinates a group. Commits and assignments are records of that
partition, so a lawful flagged election of it may lose them, as it may lose any record. No client sees the offsets
of these records, so which replica had them is not known: what a group lost is excused if every election of the
partition in between was flagged and lawful, a broken promise if none was, and undecided otherwise
(`checkers.kernels.elections`).

Source:
    Kafka's `GroupMetadataManager.partitionFor`: the hash of the group's name determines the partition.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from checkers.kernels.elections import UNEXCUSED, Claims, Elections
from checkers.kernels.history import I8, I64
from checkers.kernels.partition_tables import derive_once
from checkers.kernels.replica_logs import ANY_EPOCH
from harness.contracts.run_context import RunContext
from harness.history.schema import COORDINATOR_STATES, TABLES


def losses_of_coordinator(
    group: str, from_ns: I64, until_ns: I64, tables: Mapping[str, pa.Table], context: RunContext
) -> I8:
    """Returns what elections of a group's offsets partition did to records of the group.

    Args:
        group: Name of the group.
        from_ns: When each record was written at the earliest.
        until_ns: When a client learned that it was gone.
        tables: Those of a checker that names COORDINATOR_STATES, `broker_states` and `faults`.
        context: What the run declares about itself.

    Returns:
        UNEXCUSED, UNDECIDED or EXCUSED for each record.
    """
    elections = _elections_of(group, tables, context)
    if elections is None:
        return np.full(len(from_ns), UNEXCUSED, dtype=np.int8)
    return elections.fates(_claims(from_ns), _claims(until_ns)).outcome


def offsets_partition(group: str, partition_count: int) -> int:
    """Returns the partition of the offsets topic that has a group's records, by Java's hash of its name."""
    value = 0
    data = group.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(data), 2):
        value = (31 * value + int.from_bytes(data[index : index + 2], "big")) & 0xFFFFFFFF
    # Kafka clears the sign bit instead of negating the number.
    return (value & 0x7FFFFFFF) % partition_count


def _elections_of(
    group: str, tables: Mapping[str, pa.Table], context: RunContext
) -> Elections | None:
    states = tables[COORDINATOR_STATES]
    if not states.num_rows:
        return None
    partition = states.column("partition").to_numpy()
    mine = offsets_partition(group, int(partition.max()) + 1)

    def derive() -> Elections:
        return Elections(
            states.filter(pa.array(partition == mine)),
            TABLES["replica_states"].empty_table(),
            tables["broker_states"],
            tables["faults"],
            elr_on=context.elr_on,
            unclean_election_enabled=context.unclean_election_enabled,
            clock_error_ns=context.clock_error_ns,
        )

    return derive_once(tables, f"elections of {COORDINATOR_STATES}-{mine}", derive)


def _claims(at_ns: I64) -> Claims:
    unknown = np.full(len(at_ns), -1, dtype=np.int64)
    return Claims(
        offset=unknown,
        low_epoch=unknown,
        high_epoch=np.full(len(at_ns), ANY_EPOCH, dtype=np.int64),
        from_ns=at_ns,
        by_ns=at_ns,
        epoch=unknown,
    )
