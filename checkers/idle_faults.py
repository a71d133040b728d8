"""Why faults took no effect, in words, for the reason of a run that lacks a fault that it needs."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from harness.contracts.run_context import one_fault

NAMED_MAX = 3
"""Faults without effect that a sentence names."""


def never_took_effect(name: str) -> str:
    """Returns how the reason of a run begins in which no fault of an enabled name had an effect."""
    return f"the fault {name!r} never took effect"


def none_was_injected(name: str) -> str:
    """Returns the reason of a run without any fault of a required name, which may be that of a template."""
    return f"{name!r} never took effect (none was injected)"


def some_never_took_effect(name: str) -> str:
    """Returns how the reason of a run begins in which some of the faults of a name had none that had to."""
    return f"some of the faults {name!r} never took effect"


def beginnings(name: str) -> tuple[str, ...]:
    """Returns how the reason begins if faults of a name lacked the effect that they had to have."""
    return never_took_effect(name), some_never_took_effect(name), none_was_injected(name)


def without_effect(name: str, rows: Sequence[Mapping[str, Any]], required: Sequence[str]) -> str:
    """Returns the reason of a run in which not all faults of one name took effect that had to.

    Args:
        name: Of the faults, for example "cut".
        rows: Of the table of faults, those of other names too.
        required: What had to take effect, as `RunContext.enabled_faults` names it.
    """
    own = [row for row in rows if row["fault"] == name]
    if not own:
        return none_was_injected(name)
    if not any(row["took_effect"] for row in own):
        return f"{never_took_effect(name)} ({why_all_idle(own)})"
    idle = [
        row
        for row in own
        if not row["took_effect"] and one_fault(name, row["fault_id"]) in required
    ]
    return f"{some_never_took_effect(name)} ({why_all_idle(idle) or 'one was not injected'})"


def why_all_idle(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns why several faults took no effect, as a part of a sentence; empty if there are none."""
    named = [f"{row['fault_id']} {row['fault']}: {why_idle(row)}" for row in rows[:NAMED_MAX]]
    more = len(rows) - len(named)
    return "; ".join([*named, f"and {more} more"] if more else named)


def why_idle(row: Mapping[str, Any]) -> str:
    """Returns why a fault took no effect, as a sentence without its end.

    Args:
        row: Of the table of faults; its evidence as JSON text.
    """
    evidence = _object(row["evidence"])
    if "not_started" in evidence:
        return str(evidence["not_started"])
    if row["failed"]:
        return f"it could not be injected: {evidence.get('error', 'no error is recorded')}"
    if row["resolved"]:
        return "no evidence shows an effect"
    messages = _object(row.get("params", "")).get("messages")
    return f"no message matched {messages!r}" if messages else "it met no target"


def _object(text: str) -> Mapping[str, Any]:
    """Returns what JSON text has; nothing if it cannot be read or is no object, which changes no verdict."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
