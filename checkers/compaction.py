"""Compacted logs: what the cleaner removed counts as read.

The cleaner of a compacted topic removes a record once a later record of its key is committed (KIP-58 and
`cleanup.policy=compact`; rules CLEAN-1 to CLEAN-4). So a poll that passes over the place of a record may do so for
two reasons: the record was lost, or it was removed. It can have been removed only if a later record of its key
existed when the poll ended. Those records are added to what the poll returned, and what is then judged is a log
without compaction, in which offsets may be missing. The last record of each key is never added, so its loss shows.

A later record exists if a client saw it: in a poll, in an acknowledgement with an offset, or because one batch
carried it with such a record. A record between both that no client saw may have done the same earlier, and have
been removed since. If the final reads do not reach the end of the log, such a record may also be beyond them; the
verdict is at best unknown then. Tombstones count as records; a history in which they are the last records of their
keys is not judged rightly after `delete.retention.ms`.

An append that was acknowledged without an offset has unknown outcome if a later record of its key may have
replaced it. Its record is behind every one that was there before it was sent, unless an election lost that one
since. The end of an append without a response shows nothing: its record may arrive afterwards.

If the later records of a key are all gone at the end of the run, the earlier one is judged as a loss of its own.
A record that was acknowledged with acks=1 may be cut off before it is committed, and then it replaces nothing.
What was committed is lost only by an election that an anomaly names; if that one is excused, the elected replica
may have copied a cleaned log without its end, and it is undecided what it lost (`checkers.kernels.elections`).

Checkers that need to know what the final reads returned themselves read the table `CLEANED_RECORDS` too.

The batches of replicas are not compared: each replica cleans its log in its own time, and rewrites batches.
"""

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from harness.contracts.run_context import RunContext
from harness.history.schema import CLEANED_RECORDS

Tables = Mapping[str, pa.Table]


def as_not_compacted(tables: Tables, context: RunContext) -> tuple[Tables, RunContext]:
    """Returns tables and context with which a run counts as one without compaction.

    Args:
        tables: Those of a run, or of one of its partitions; they have been validated.
        context: What the run declares. If its topics are not compacted, both are returned as they are.

    Returns:
        Tables and a context that allows missing offsets. The context still declares compaction, because a replica
        may have copied a log after it was cleaned.
    """
    if not context.compacted:
        return tables, context
    context = replace(context, sparse_offsets=True)
    # Imported here, because it needs pandas, which takes a third of a second to load.
    from checkers.removed_records import with_removed_records

    filled = {name: rows for name, rows in tables.items() if name != "replica_batches"}
    if "operations" not in tables or "records_read" not in tables:
        return filled, context
    filled["operations"], filled["records_read"], filled[CLEANED_RECORDS] = with_removed_records(
        tables["operations"],
        tables["records_read"],
        context.clock_error_ns,
        replica_states=tables.get("replica_states"),
        partition_states=tables.get("partition_states"),
        phase_complete=context.final_phase_complete,
        sent_twice=context.at_least_once,
    )
    return filled, context
