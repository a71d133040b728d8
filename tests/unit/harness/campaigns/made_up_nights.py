"""Nights that never ran: plans and rows for tests of everything that only reads them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LOSS = {
    "signature": "7ae67d83737f",
    "title": "lost-acked-write: loss without ELR (leader elected from the ISR)",
    "parts": {
        "what": "lost-acked-write",
        "expectation": "loss without ELR",
        "change": "leader elected from the ISR",
        "role": "",
        "marks": [],
        "also": ["divergent-value", "offset-reused"],
        "before": ["ISR shrinks to 1", "no leader", "leader elected from the ISR"],
        "sentence": "op 653 was acknowledged at offset 12; the final reads went past that offset without it",
    },
}
BROKEN = {
    "signature": "796b26cb3749",
    "title": "INV-2: every member of ISR and ELR has all committed records (ELR member)",
    "parts": {
        "what": "INV-2",
        "expectation": "every member of ISR and ELR has all committed records",
        "change": "",
        "role": "ELR member",
        "marks": [],
        "also": [],
        "before": [],
        "sentence": "INV-2: every member of ISR and ELR has all committed records (broker=2)",
    },
}


def row(job: str, seed: int, *findings: dict[str, Any], **others: Any) -> dict[str, Any]:
    """Returns the row of a run; invalid if it has findings."""
    return {
        "job": job,
        "arm": "",
        "on": "simulation",
        "system": "reference",
        "seed": seed,
        "profile": "kafka-4.1",
        "verdict": "invalid" if findings else "valid",
        "reasons": [finding["title"] for finding in findings],
        "unexcused_lost_records": 5 if LOSS in findings else 0,
        "excused_lost_records": 0,
        "anomalies": [
            {"id": "lost-acked-write", "judgement": "forbidden", "count": 5}
            for finding in findings
            if finding is LOSS
        ],
        "trace_hash": f"{seed:016x}",
        "unavailable_ms": 100.0 * seed,
        "elapsed_ms": 12_000.0,
        "operations": 1000 + seed,
        "faults": 7,
        "counters": {"messages": 5},
        "marks": {"elected-from-isr": 1 + seed % 2, "broker-fenced": 3},
        "violations": ["INV-2"] if BROKEN in findings else [],
        "error": "",
        "wall_s": 1.5,
        "stored": "",
        "replayed": "",
        "repeat": 0,
        "repeated": [],
        "findings": list(findings),
        **others,
    }


def write_night(
    directory: Path,
    night: str,
    rows: Sequence[dict[str, Any]],
    jobs: Sequence[dict[str, Any]] = ({"name": "random"},),
) -> Path:
    """Writes a night's plan and rows, as the engine does, and returns its directory."""
    place = directory / night
    place.mkdir(parents=True)
    (place / "plan.json").write_text(json.dumps({"night": night, "jobs": list(jobs)}))
    (place / "rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    return place
