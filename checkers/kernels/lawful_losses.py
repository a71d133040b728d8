"""Whether a run may lawfully have had a leader that lacked committed records."""

from collections.abc import Mapping

import pyarrow as pa


def may_lack_records(tables: Mapping[str, pa.Table], *, after_destroyed_data: bool) -> bool:
    """Returns whether a leader may have lacked committed records.

    Args:
        tables: `partition_states` and `faults`.
        after_destroyed_data: Whether a replica whose data a fault destroyed may lead by an election that is not
            flagged.
    """
    if any(tables["partition_states"].column("flagged").to_pylist()):
        return True
    return after_destroyed_data and any(
        row["took_effect"] and row["can_lose_data"] for row in tables["faults"].to_pylist()
    )
