"""Whether a run may lawfully have had a leader that lacked committed records, and what faults may have done."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from checkers.kernels.metadata_gaps import MetadataGaps, Shown


def may_have_destroyed(fault: Mapping[str, Any]) -> bool:
    """Returns whether a fault may have destroyed data: if injecting it failed, its effect is not known."""
    return bool(fault["can_lose_data"] and (fault["took_effect"] or fault["failed"]))


def may_have_hit(fault: Mapping[str, Any], node: str = "") -> bool:
    """Returns whether a fault was injected, perhaps into a node; if that failed halfway, any may be the one."""
    if fault["resolved"]:
        return not node or node in fault["resolved"]
    return bool(fault["failed"])


def ends_after(action: Mapping[str, Any], at_ns: int) -> bool:
    """Returns whether an action was completed after a moment, or never for certain."""
    return action["completed_ns"] is None or bool(action["completed_ns"] >= at_ns)


def may_lack_records(
    tables: Mapping[str, pa.Table], shown: Shown, *, after_destroyed_data: bool
) -> bool:
    """Returns whether a leader may have lacked committed records.

    Args:
        tables: `partition_states` and `faults`.
        shown: What operations show of metadata.
        after_destroyed_data: Whether a replica whose data a fault destroyed may lead by an election that is not
            flagged.
    """
    if may_have_been_unclean(tables["partition_states"], shown):
        return True
    return after_destroyed_data and any(map(may_have_destroyed, tables["faults"].to_pylist()))


def may_have_been_unclean(
    partition_states: pa.Table, shown: Shown, clock_error_ns: int = 0
) -> bool:
    """Returns whether an election was flagged, or may have been because states are missing.

    Args:
        partition_states: Rows of any partitions.
        shown: What operations show of metadata; of one partition only if all rows are of that one.
        clock_error_ns: Largest difference between two clocks of the run.
    """
    if any(partition_states.column("flagged").to_pylist()):
        return True
    rows: dict[tuple[str, int], list[dict[str, object]]] = {}
    for row in partition_states.sort_by("metadata_offset").to_pylist():
        rows.setdefault((row["topic"], row["partition"]), []).append(row)
    return any(
        MetadataGaps(each, shown, clock_error_ns).may_hide_elections for each in rows.values()
    )
