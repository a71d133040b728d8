"""The self-test: plants every anomaly into copies of a valid history and looks which ones the checkers find.

A history shows what its checkers can find in it. A run without consumer groups, for example, cannot show that a
lost commit would have been noticed; such an anomaly is listed as not planted, with the reason.

A plant is found if the copy has more instances of it than the run, of a judgement that matters: forbidden or
undecided ones, or those of another judgement that the configuration gives to every instance. Where faults excuse
a plant, the self-test plants it elsewhere. In a compacted topic only records are removed that its cleaner has to
keep.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from checkers.anomalies import NOT_IN_COMPACTED
from checkers.expectations import Case, judge
from checkers.final_reads import judge_with_final_reads
from checkers.kernels.compose import by_partition
from checkers.kernels.judging import expectations_of
from checkers.kernels.transactions.isolation import KAFKA_READ_COMMITTED, judge_isolation
from checkers.planting.copy import CannotPlantError, Copy
from checkers.planting.table import PLANTS, UNPLANTED, Plant
from checkers.transaction_anomalies import OF_TRANSACTIONS
from harness.contracts.run_context import SESSION_CHECKER, RunContext
from harness.contracts.verdict import Judgement, Validity, Verdict
from harness.errors import UsageError
from harness.history.schema import PARTITIONED_TABLES, TABLES

Tables = Mapping[str, pa.Table]
SHARES = (1 / 2, 3 / 4, 7 / 8, 15 / 16, 31 / 32, 1 / 4, 1 / 8, 1 / 16)
"""Where an anomaly is planted, one after the other, until it is not excused; in transactions only at the first."""


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
    none = {name: table.slice(0, 0) for name, table in full.items()}
    parts = by_partition(full)
    for place in sorted(parts, key=lambda place: (_operation_count(parts[place]), place)):
        rows = parts[place]
        mine = {**none, **shared, **rows}
        verdict = judge_with_final_reads(mine, context)
        if verdict.validity != Validity.INVALID:
            yield mine, verdict
    if full["transaction_events"].num_rows:
        verdict = judge_with_final_reads(full, context)
        if verdict.validity != Validity.INVALID:
            yield full, verdict


def _operation_count(rows: Tables) -> int:
    return rows["operations"].num_rows if "operations" in rows else 0


def _try(plant: Plant, sound: list[tuple[Tables, Verdict]], context: RunContext) -> PlantResult:
    """Plants one anomaly into the first partition that it can be planted into and where it is not excused."""
    reason = _unsuitable(plant, context)
    excused = hidden = ""
    expected = _expected(plant.anomaly, context)
    for tables, before in () if reason else sound:
        if plant.needs_operations and not _operation_count(tables):
            reason = reason or "it has no operations outside of transactions"
            continue
        if others := plant.hidden_by(before):
            reason = reason or f"it is not reported beside {', '.join(others)}, which the run has"
            continue
        for share in SHARES[:1] if plant.anomaly in OF_TRANSACTIONS else SHARES:
            copy = Copy(
                tables,
                share=share,
                clock_error_ns=context.clock_error_ns,
                compacted=context.compacted,
            )
            try:
                plant.change(copy)
            except CannotPlantError as cannot:
                reason = reason or str(cannot)
                break
            after = judge_with_final_reads(copy.tables(), context)
            new = _counts(after, plant.anomaly) - _counts(before, plant.anomaly)
            is_found = not new.keys().isdisjoint(expected)
            if is_found or not (new or _counts(before, plant.anomaly)):
                return PlantResult(
                    anomaly=plant.anomaly,
                    what=plant.what,
                    outcome=Outcome.FOUND if is_found else Outcome.MISSED,
                    detail=", ".join(dict.fromkeys(found.id for found in after.anomalies)),
                )
            if not new:
                # An operation counts once, so one more contradiction of the same one does not show.
                hidden = "wherever it was planted, it is not counted beside those that the run has"
                continue
            # The checkers see it. Elsewhere in the log it may be forbidden, for example after an election.
            excused = f"wherever it was planted, it is {' or '.join(sorted(new))}"
    return PlantResult(
        anomaly=plant.anomaly,
        what=plant.what,
        outcome=Outcome.NOT_PLANTED,
        detail=excused or hidden or reason,
    )


def _expected(anomaly: str, context: RunContext) -> frozenset[Judgement]:
    """Returns the judgements of a plant that count as found.

    Allowed, excused and informational instances count only where the run's configuration allows the anomaly
    whatever the faults were.
    """
    if anomaly in OF_TRANSACTIONS:
        usual = judge_isolation(anomaly, KAFKA_READ_COMMITTED).judgement
    else:
        usual = judge(
            Case(
                id=anomaly,
                is_weak=False,
                is_excused=False,
                expectations=expectations_of(context),
            )
        ).judgement
    return frozenset({Judgement.FORBIDDEN, Judgement.UNDECIDED, usual})


def _unsuitable(plant: Plant, context: RunContext) -> str:
    """Returns why the checkers cannot find an anomaly in such a run; "" if they can."""
    is_idempotent = SESSION_CHECKER in context.checkers
    if plant.needs_sessions and not is_idempotent:
        return "its producers are not idempotent"
    if plant.needs_whole_log and not context.final_phase_complete:
        return "its final phase is not complete"
    if context.compacted and (why := NOT_IN_COMPACTED.get(plant.anomaly)):
        return f"its topics are compacted: {why}"
    if plant.needs_dense_log and context.compacted:
        return "its topics are compacted, so an offset without a record is no anomaly"
    if plant.needs_dense_log and context.sparse_offsets:
        return "its topics may have offsets without a record"
    if plant.needs_single_attempts and is_idempotent:
        return "its producers are idempotent, so an attempt that was sent again may have been at the hole"
    return ""


def _counts(verdict: Verdict, anomaly: str) -> Counter[Judgement]:
    """Returns the number of instances of an anomaly by judgement."""
    counts: Counter[Judgement] = Counter()
    for found in verdict.anomalies:
        if found.id == anomaly:
            counts[found.judgement] += found.count
    return counts
