"""When two runs show the same finding, although one of them is smaller.

Nights group findings by signature (`harness.campaigns.signature`). Its hash contains names of marks, which report
a truncation in the half second before the decisive moment. A smaller run has shorter gaps between faults, so a
truncation may fall into that half second or out of it, while the bug is the same. The marks only group findings,
no verdict reads them, so they do not count here. Everything else does: the system, what broke, the expectation
that was applied, for an anomaly the committed change at its decisive moment (which role the elected leader had),
and for an invariant the role of the brokers that broke it.

A run counts only if its verdict is invalid, and if at least one of its faults took effect, unless it has none. Of
the faults that took no effect it may have no more than the smallest run so far: otherwise a fault could stay that
does nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from harness.contracts.verdict import Validity

_DECIDING = ("system", "what", "expectation", "change", "role")

Row = Mapping[str, Any]


def identity(parts: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns what a finding keeps when its run shrinks; see the module."""
    return tuple(str(parts[name]) for name in _DECIDING)


def find(findings: Sequence[Mapping[str, Any]], wanted: tuple[str, ...]) -> Mapping[str, Any]:
    """Returns the first finding with an identity; empty if there is none."""
    return next((one for one in findings if identity(one["parts"]) == wanted), {})


def idle_faults(row: Row) -> list[str]:
    """Returns the ids of the faults of a run that took no effect."""
    return [
        fault["id"]
        for fault in row["effects"]["faults"]
        if not fault["took_effect"] and not fault["is_repair"]
    ]


def shows(row: Row, wanted: tuple[str, ...], *, idle_max: int) -> bool:
    """Returns whether a run shows a finding.

    Args:
        row: Its row, with `effects` unless it ended in an error.
        wanted: The identity of the finding.
        idle_max: How many of its faults may have taken no effect.
    """
    if row["error"] or row["verdict"] != Validity.INVALID or not find(row["findings"], wanted):
        return False
    harmful = [fault for fault in row["effects"]["faults"] if not fault["is_repair"]]
    idle = idle_faults(row)
    return len(idle) <= idle_max and (not harmful or len(idle) < len(harmful))


def why_not(row: Row, wanted: tuple[str, ...]) -> str:
    """Returns why a run does not show a finding, as the end of a sentence."""
    if row["error"]:
        return f"it ended in an error: {row['error']}"
    found = ", ".join(one["title"] for one in row["findings"])
    if find(row["findings"], wanted):
        return "none of its faults took effect"
    verdict = f"its verdict is {row['verdict']}"
    return f"{verdict}, with another finding: {found}" if found else verdict
