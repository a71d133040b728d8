"""Whether the final reads of a history agree about where the logs end.

Final reads are made when nothing happens any more, so a log does not become shorter between two of them. Where a
later one shows a smaller end, one of them was not final: a leader that had been deposed responded, or a record was
lost in between. What is lost is not known then.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NOT_KNOWN = -1


def disagreements(tables: Mapping[str, pa.Table], clock_error_ns: int = 0) -> Iterator[str]:
    """Yields a sentence for each partition whose log became shorter between two final reads.

    Args:
        tables: `operations` and `records_read`.
        clock_error_ns: Largest difference between two clocks; reads that are closer count as concurrent.
    """
    operations = tables["operations"]
    final = operations.filter(
        pc.and_(operations.column("final"), pc.equal(operations.column("outcome"), "ok"))
    )
    if final.num_rows < 2:
        return
    reads = tables["records_read"]
    of_final = pc.is_in(reads.column("op_index"), value_set=final.column("op_index"))
    last = reads.filter(of_final).group_by("op_index").aggregate([("offset", "max")])
    last_of = dict(
        zip(last.column("op_index").to_pylist(), last.column("offset_max").to_pylist(), strict=True)
    )
    columns = (
        "op_index",
        "topic",
        "partition",
        "kind",
        "offset",
        "end_offset",
        "invoked_ns",
        "completed_ns",
    )
    partitions: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in final.select(columns).to_pylist():
        end = row["offset"] if row["kind"] == "latest" else row["end_offset"]
        row["end"] = NOT_KNOWN if end is None else end
        # A record shows that the log reaches beyond it.
        row["reach"] = max(row["end"], last_of.get(row["op_index"], NOT_KNOWN) + 1)
        partitions.setdefault((row["topic"], row["partition"]), []).append(row)
    for (topic, partition), rows in partitions.items():
        pair = _first_pair(rows, clock_error_ns)
        if pair is not None:
            earlier, later = pair
            yield (
                f"the final reads of {topic}-{partition} do not agree: op {earlier['op_index']} showed that its"
                f" log reaches to offset {earlier['reach']}, and op {later['op_index']}, begun later, that it ends"
                f" at {later['end']}"
            )


def _first_pair(
    rows: list[dict[str, Any]], clock_error_ns: int
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Returns two final reads of one partition the later of which shows a smaller log end."""
    by_end = sorted(rows, key=lambda row: (row["completed_ns"], row["op_index"]))
    completed = np.array([row["completed_ns"] for row in by_end], dtype=np.int64)
    reach = np.maximum.accumulate(np.array([row["reach"] for row in by_end], dtype=np.int64))
    for row in sorted(rows, key=lambda row: (row["invoked_ns"], row["op_index"])):
        before = int(np.searchsorted(completed, row["invoked_ns"] - clock_error_ns, side="left"))
        if before and row["end"] != NOT_KNOWN and row["end"] < reach[before - 1]:
            earlier = next(one for one in by_end if one["reach"] == reach[before - 1])
            return earlier, row
    return None
