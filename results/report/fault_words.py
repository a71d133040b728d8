"""How the report describes and colours faults. The texts are in the table `nemesis.faults`."""

from collections.abc import Mapping, Sequence
from typing import Any

from nemesis.faults import FAULTS, Group, Targets
from results.report.run import details_text

_STYLES = {Group.NETWORK: "network", Group.DISK: "power"}
"""Style of a fault's bars; faults of processes and clocks have the usual one."""


def fault_style(fault: str) -> str:
    """Returns the class of a fault's bars; empty for the usual style, and for a fault that is not in the table."""
    row = FAULTS.get(fault)
    return _STYLES.get(row.group, "") if row is not None else ""


def is_repair(fault: str) -> bool:
    """Whether a fault is a repair."""
    row = FAULTS.get(fault)
    return row is not None and row.is_repair


def fault_sentence(row: Mapping[str, Any]) -> str:
    """Returns what a fault did, for example "Isolated b2 from all others"."""
    name, params = row["fault"], row["params"]
    kind = FAULTS.get(name)
    template = kind.sentence if kind is not None else ""
    values = {key: str(value) for key, value in params.items() if isinstance(value, int | str)}
    values |= {"who": _who(row), "groups": _groups(row), "faults": _healed(row)}
    try:
        sentence = template.format_map(values)
    except KeyError:  # a number that the sentence needs is missing: another version wrote the run
        sentence = ""
    sentence = sentence or f"{name} {values['who']}"
    rest = {
        key: value
        for key, value in params.items()
        if key not in ("direction", "groups") and f"{{{key}}}" not in template
    }
    return f"{sentence} ({details_text(rest)})" if rest else sentence


def _who(row: Mapping[str, Any]) -> str:
    nodes = list(row["resolved"])
    kind = FAULTS.get(row["fault"])
    if kind is not None and kind.targets is Targets.LINKS and len(nodes) == 2:
        return (" → " if row["params"].get("direction") == "one-way" else " ↔ ").join(nodes)
    return listed(nodes) if nodes else "no node"


def _groups(row: Mapping[str, Any]) -> str:
    groups = row["params"].get("groups", ())
    if not row["resolved"] or not all(isinstance(group, list | tuple) for group in groups):
        return "no node"
    return " | ".join(" ".join(str(name) for name in group) for group in groups) or "no node"


def _healed(row: Mapping[str, Any]) -> str:
    return listed([str(fault_id) for fault_id in row["params"].get("faults", [])]) or "everything"


def listed(names: Sequence[str]) -> str:
    """Joins names as in a sentence: "b1, b2 and b3"."""
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)
