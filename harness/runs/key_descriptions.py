"""Descriptions of the keys of an experiment, from the docstrings of the classes whose fields they are.

A key is described once, under *Attributes* of its class. The JSON Schema (`harness.runs.experiment_file`) and the
files that `laststand new` writes (`harness.runs.experiment_template`) have the same sentences.
"""

import inspect
import re
from typing import Any

_SECTION = "Attributes:"
_ENTRY = re.compile(r"([a-z_0-9]+(?:, [a-z_0-9]+)*): (.+)")


def describe_keys(kind: type[Any]) -> dict[str, str]:
    """Returns the description of every field that the class or a base class documents.

    Fields that are documented together ("gap_ms, hold_ms: Mean times") have the same description.
    """
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        found |= _described(inspect.cleandoc(base.__doc__ or ""))
    return found


def _described(docstring: str) -> dict[str, str]:
    """Returns the entries of the section: lines that are indented less than what continues them."""
    _, section, rest = docstring.partition(f"\n{_SECTION}\n")
    if not section:
        return {}
    found: dict[str, str] = {}
    names: list[str] = []
    for line in rest.partition("\n\n")[0].splitlines():
        entry = _ENTRY.fullmatch(line.strip())
        if entry and not line.startswith(" " * 8):
            names = entry[1].split(", ")
            found |= dict.fromkeys(names, entry[2])
        else:
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
    return found
