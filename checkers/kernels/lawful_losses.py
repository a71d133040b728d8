"""Whether a run may lawfully have had a leader that lacked committed records."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa


def may_have_destroyed(fault: Mapping[str, Any]) -> bool:
    """Returns whether a fault may have destroyed data: if injecting it failed, its effect is not known."""
    return bool(fault["can_lose_data"] and (fault["took_effect"] or fault["failed"]))


def may_lack_records(tables: Mapping[str, pa.Table], *, after_destroyed_data: bool) -> bool:
    """Returns whether a leader may have lacked committed records.

    Args:
        tables: `partition_states` and `faults`.
        after_destroyed_data: Whether a replica whose data a fault destroyed may lead by an election that is not
            flagged.
    """
    if any(tables["partition_states"].column("flagged").to_pylist()):
        return True
    return after_destroyed_data and any(map(may_have_destroyed, tables["faults"].to_pylist()))
