"""The self-test: plants every anomaly into copies of a valid history and looks which ones the checkers find.

A history shows what its checkers can find in it. A run without consumer groups, for example, cannot show that a
lost commit would have been noticed; such an anomaly is listed as not planted, with the reason.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from checkers.anomalies import ANOMALIES
from checkers.kernels.compose import by_partition, judge_run
from checkers.planting.copy import CannotPlantError, Copy
from checkers.planting.table import PLANTS, UNPLANTED, Plant
from harness.contracts.run_context import SESSION_CHECKER, RunContext
from harness.contracts.verdict import Validity, Verdict
from harness.errors import UsageError
from harness.history.schema import PARTITIONED_TABLES, TABLES

Tables = Mapping[str, pa.Table]


class Outcome(StrEnum):
    """What became of a plant."""

    FOUND = "found"
    MISSED = "MISSED"
    NOT_PLANTED = "not planted"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantResult:
    """One plant and what became of it.

    Attributes:
        anomaly: What was planted.
        what: What was changed.
        outcome: Whether it was found.
        detail: The anomalies that were found; or why nothing could be planted.
    """

    anomaly: str
    what: str
    outcome: Outcome
    detail: str


def self_test(tables: Tables, context: RunContext) -> Iterator[PlantResult]:
    """Plants every anomaly that there is a plant for, one after the other.

    Args:
        tables: All tables of a run.
        context: What the run declares about itself.

    Raises:
        UsageError: The run has no partition that is valid.
        HistoryError: The tables cannot be judged.
    """
    sound = list(_sound_partitions(tables, context))
    if not sound:
        raise UsageError(
            "the self-test needs a valid run, but no partition of this one is valid; name another run"
        )
    for plant in PLANTS:
        yield _try(plant, sound, context)
    for anomaly, reason in UNPLANTED.items():
        yield PlantResult(anomaly=anomaly, what="", outcome=Outcome.NOT_PLANTED, detail=reason)


def _sound_partitions(tables: Tables, context: RunContext) -> Iterator[tuple[Tables, Verdict]]:
    """Yields the tables of every partition without a forbidden anomaly, and its verdict; the smallest first.

    Transactions span partitions: a run with some is yielded as a whole, too, if it has no forbidden anomaly.
    """
    full = {name: tables.get(name, schema.empty_table()) for name, schema in TABLES.items()}
    shared = {name: table for name, table in full.items() if name not in PARTITIONED_TABLES}
    parts = by_partition(full)
    for place in sorted(parts, key=lambda place: (_operation_count(parts[place]), place)):
        rows = parts[place]
        mine = {**shared, **rows}
        verdict = judge_run(mine, context)
        if verdict.validity != Validity.INVALID:
            yield mine, verdict
    if full["transaction_events"].num_rows:
        verdict = judge_run(full, context)
        if verdict.validity != Validity.INVALID:
            yield full, verdict


def _operation_count(rows: Tables) -> int:
    return rows["operations"].num_rows if "operations" in rows else 0


def _try(plant: Plant, sound: list[tuple[Tables, Verdict]], context: RunContext) -> PlantResult:
    """Plants one anomaly into the first partition that it can be planted into."""
    reason = _unsuitable(plant, context)
    for tables, before in () if reason else sound:
        if plant.needs_operations and not _operation_count(tables):
            reason = reason or "it has no operations outside of transactions"
            continue
        if plant.needs_level and (others := _of_level(before, plant.anomaly)):
            reason = reason or f"it is not reported beside {', '.join(others)}, which the run has"
            continue
        copy = Copy(tables)
        try:
            plant.change(copy)
        except CannotPlantError as cannot:
            reason = reason or str(cannot)
            continue
        after = judge_run(copy.tables(), context)
        is_found = _count(after, plant.anomaly) > _count(before, plant.anomaly)
        return PlantResult(
            anomaly=plant.anomaly,
            what=plant.what,
            outcome=Outcome.FOUND if is_found else Outcome.MISSED,
            detail=", ".join(dict.fromkeys(found.id for found in after.anomalies)),
        )
    return PlantResult(
        anomaly=plant.anomaly, what=plant.what, outcome=Outcome.NOT_PLANTED, detail=reason
    )


def _unsuitable(plant: Plant, context: RunContext) -> str:
    """Returns why the checkers cannot find an anomaly in such a run; "" if they can."""
    is_idempotent = SESSION_CHECKER in context.checkers
    if plant.needs_sessions and not is_idempotent:
        return "its producers are not idempotent"
    if plant.needs_single_attempts and is_idempotent:
        return "its producers are idempotent, so an attempt that was sent again may have been at the hole"
    return ""


def _of_level(verdict: Verdict, anomaly: str) -> list[str]:
    """Returns the anomalies in a verdict that break the same level as another one."""
    level = ANOMALIES[anomaly].level
    return sorted({found.id for found in verdict.anomalies if ANOMALIES[found.id].level == level})


def _count(verdict: Verdict, anomaly: str) -> int:
    return sum(found.count for found in verdict.anomalies if found.id == anomaly)
