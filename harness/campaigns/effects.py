"""What the faults of a run did, for searches that need more of a run than its row."""

from typing import Any

from harness.history.op import OpKind
from harness.runs.result import RunResult


def effects_of(result: RunResult) -> dict[str, Any]:
    """Returns JSON-compatible data about the faults of a run, and how much its clients appended.

    Returns:
        `faults`: per fault its `id`, `nodes`, `took_effect` and `is_repair`. `main_ns`: when the main phase began,
        in nanoseconds since run start. `appends`: how many appends clients invoked in the main phase.
    """
    rows = result.tables["faults"].to_pylist()
    at_ms = {fault.id: fault.at_ms for fault in result.schedule if not fault.on}
    operations = result.tables["operations"]
    kinds = zip(
        operations.column("kind").to_pylist(), operations.column("final").to_pylist(), strict=True
    )
    begins = [
        row["invoked_ns"] - at_ms[row["fault_id"]] * 1_000_000
        for row in rows
        if row["fault_id"] in at_ms
    ]
    begins += operations.column("invoked_ns").to_pylist()
    return {
        "faults": [
            {
                "id": row["fault_id"],
                "nodes": list(row["resolved"]),
                "took_effect": bool(row["took_effect"]),
                "is_repair": bool(row["heals"]),
            }
            for row in rows
        ],
        "main_ns": min(begins, default=0),
        "appends": sum(kind == OpKind.APPEND and not final for kind, final in kinds),
    }
