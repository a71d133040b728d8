"""A new experiment file: it runs as it is, and names every key, most of them commented out with their default.

Descriptions, bounds and choices are those of the JSON Schema (`harness.runs.experiment_file.properties_of`).
"""

import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import tomli_w

from harness.runs.experiment import Experiment
from harness.runs.experiment_file import NAME_KEY, OPEN_TABLES, TABLES, loads, properties_of
from nemesis.fault import Fault
from results.layout import check_experiment_name
from workloads.append import APPEND
from workloads.registry import WORKLOADS
from workloads.transactions import TRANSACTIONS

WIDTH = 100

FAULTS = ["isolate", "cut", "pause", "kill", "power"]
"""Random faults of a new experiment: those that reach states with one in-sync replica most often."""

TRANSACTION_PARTITIONS = 4
"""Of a new experiment with transactions: two to consume from, and two to send to."""

_INTRODUCTION = """\
A laststand experiment. Run it with `laststand run {name}.toml --seed 1`. Lines that begin with # and a space are
comments. Lines that begin with # alone are settings with their defaults: remove the # to change one. In a
terminal, `laststand help run` lists the flags that replace settings."""

_SCHEDULE = """\
Faults at fixed times or at events instead of random ones, one table per fault; they replace those of [nemesis].
docs/faults.md lists all faults with their parameters."""

_EXAMPLE = Fault(id="f0", fault="isolate", targets=("leader",), at_ms=2000, for_ms=1500)


def template(name: str, workload: str = APPEND.name) -> str:
    """Returns the text of a new experiment file.

    Args:
        name: Of the experiment, and of its file without the suffix.
        workload: Name of its workload.

    Raises:
        UsageError: The name cannot be that of a folder, or there is no such workload.
    """
    check_experiment_name(name)
    text = "\n".join(_lines(name, workload)) + "\n"
    loads(text, origin="the new experiment")  # a file that cannot be read must not be written
    return text


def _lines(name: str, workload: str) -> Iterator[str]:
    yield from _comment(_INTRODUCTION.format(name=name))
    root = properties_of(Experiment)
    apart = (*TABLES, *OPEN_TABLES, "space", "workload_name", "workload", "schedule")
    top = {key: entry for key, entry in root.items() if key not in apart}
    yield from _settings(top, {"name": name, "on": root["on"]["default"], "duration_ms": 10_000})
    for key in OPEN_TABLES:
        yield from ("", *_comment(root[key]["description"]), f"#[{key}]")
    yield from _table("cluster", TABLES["cluster"], root, {"brokers": 3})
    partitions = TRANSACTION_PARTITIONS if workload == TRANSACTIONS.name else 1
    yield from _table("topic", TABLES["topic"], root, {"partitions": partitions})
    config = WORKLOADS.get(workload).config
    chosen = {NAME_KEY: workload, "appends_per_s": 60.0, "acks": ["all"]}
    name_key = {NAME_KEY: {"description": root["workload_name"]["description"]}}
    yield from _table("workload", config, root, chosen, first=name_key)
    yield from _table("nemesis", TABLES["nemesis"], root, {"faults": FAULTS})
    yield from ("", *_comment(root["space"]["description"]), "#[space]", "#default = false")
    yield from ("", *_comment(_SCHEDULE), "#[[schedule]]")
    for key, value in _EXAMPLE.to_json().items():
        yield f"#{_assignment(key, value)}"


def _table(
    name: str,
    kind: type[Any],
    root: Mapping[str, Any],
    chosen: Mapping[str, Any],
    *,
    first: Mapping[str, Any] | None = None,
) -> Iterator[str]:
    yield from ("", *_comment(root[name]["description"]), f"[{name}]")
    yield from _settings({**(first or {}), **properties_of(kind)}, chosen)


def _settings(properties: Mapping[str, Any], chosen: Mapping[str, Any]) -> Iterator[str]:
    """Yields every key with its description: the chosen ones with their values, the others with their defaults."""
    for key, entry in properties.items():
        yield from ("", *_comment(f"{entry.get('description', '')} {_legal(entry)}"))
        if key in chosen:
            yield _assignment(key, chosen[key])
        else:
            yield f"#{_assignment(key, entry['default'])}"


def _legal(entry: Mapping[str, Any]) -> str:
    """Returns the bounds of a number or the choices of a word as a sentence, unless the description names them."""
    least, most = entry.get("minimum"), entry.get("maximum")
    choices = {**entry, **entry.get("items", {})}.get("enum", ())
    if not all(f'"{choice}"' in entry.get("description", "") for choice in choices):
        return f"Possible: {', '.join(choices)}."
    return "" if most is None else f"From {least} to {most}."


def _assignment(key: str, value: Any) -> str:
    # tomli-w writes one item of an array per line.
    return (
        re.sub(r"\s+", " ", tomli_w.dumps({key: value}).strip())
        .replace("[ ", "[")
        .replace(", ]", "]")
    )


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(" ".join(text.split()), WIDTH - 2)]
