"""Every variant of a scripted scenario, under every release whose behaviour the outcomes depend on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import UsageError
from harness.runs.experiment import Experiment
from harness.runs.scripted import can_run, scenario_experiment
from harness.scenarios import FAMILIES, find_scenario
from harness.scenarios.steps import Scenario
from harness.systems.registry import REFERENCE

RELEASES = ("kafka-3.4", "kafka-3.6", "kafka-3.9", "kafka-4.0", "kafka-4.1")
"""The profiles of the columns, if none is chosen; later ones have the outcomes of the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One variant in one column.

    Attributes:
        variant: Its name.
        title: What happens in it.
        column: The profile, or system and version.
        experiment: What is to be run.
    """

    variant: str
    title: str
    column: str
    experiment: Experiment


def cells_of(family: str, profile: str | None, **values: Any) -> list[Cell]:
    """Returns the cells of a scenario's matrix, row by row.

    Variants whose outcome is not predicted for a column are left out, and so are those that cannot run there.

    Args:
        family: Name of the scenario.
        profile: The only column; None for `RELEASES`, or for the profile of the system's version.
        values: Further top-level values of the experiments: `system`, `version`, `on` ...

    Raises:
        UsageError: There is no such scenario; or a variant cannot run on this system, or where it is to run.
    """
    find_scenario(family)
    version = str(values.get("version") or "")
    profiles: Sequence[str | None] = [profile] if profile or version else RELEASES
    cells = []
    for variant, scenario in FAMILIES[family].items():
        if not _is_predicted(scenario, str(values.get("system", "")), version):
            continue
        if not can_run(scenario, str(values.get("system") or REFERENCE), values.get("on")):
            continue
        for one in profiles:
            experiment = scenario_experiment(scenario, one, **values)
            column = f"{experiment.system} {version}" if version else experiment.profile
            cells.append(
                Cell(variant=variant, title=scenario.title, column=column, experiment=experiment)
            )
    if not cells:
        raise UsageError(
            f"no variant of {family} has a predicted outcome here; name a system and its version, for example "
            "--system apache-kafka:4.1.2"
        )
    return cells


def _is_predicted(scenario: Scenario, system: str, version: str) -> bool:
    if version and scenario.versions:
        return any(row.covers(version) for row in scenario.versions.get(system, ()))
    return bool(scenario.expected)


def matrix_of(
    family: str, cells: Sequence[Cell], summaries: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Returns the matrix as data.

    Args:
        family: Name of the scenario.
        cells: What was run.
        summaries: Of the judged runs, in the same order.

    Shape:
        scenario, on: str; columns: list of str; cells, as_predicted: int; rows: list of {variant, title, cells:
        {column: {predicted, seen, verdict, lost, run: str or int}}}.
    """
    rows: dict[str, dict[str, Any]] = {}
    for cell, summary in zip(cells, summaries, strict=True):
        row = rows.setdefault(
            cell.variant, {"variant": cell.variant, "title": cell.title, "cells": {}}
        )
        row["cells"][cell.column] = {
            "predicted": str(summary["predicted"]),
            "seen": str(summary["outcome"]),
            "verdict": str(summary["verdict"]),
            "lost": int(summary["unexcused_lost_records"]),
            "run": str(summary["run"]),
        }
    return {
        "scenario": family,
        "on": cells[0].experiment.on,
        "columns": list(dict.fromkeys(cell.column for cell in cells)),
        "cells": len(cells),
        "as_predicted": sum(bool(summary["as_predicted"]) for summary in summaries),
        "rows": list(rows.values()),
    }
