"""What remains of a huge partition when everything good is left out of it, and its judgement.

Every slice keeps its rows of suspects (`checkers.kernels.suspects`), and the operations that prove most about
time: for every suspect and every hole the latest "did not exist yet" below it and the earliest "existed" above it.
The remainder is a history of its own, which the kernels judge like any other; they know what it lacks. Counts of
what was left out are added to the coverage, so that the judgement is that of the whole history.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from checkers.kernels.compose import PartitionJudgement, judge_partition
from checkers.kernels.cut_measures import CutMeasures, correction
from checkers.kernels.history import (
    I64,
    OFFSET_MAX,
    OK_AT,
    PartitionHistory,
    read_history,
)
from checkers.kernels.left_out import LeftOut
from checkers.kernels.measures import MEASURED
from checkers.kernels.sequences import process_codes
from checkers.kernels.suspects import Plan, Rules, earliest_above, is_in, latest_below
from checkers.kernels.vacuous_facts import Extent
from harness.contracts.run_context import RunContext
from harness.history.schema import OPERATION_TABLES


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What is kept of one slice.

    Attributes:
        tables: Rows of the client tables, by name.

    Shape:
        poll_op, poll_last: See `LeftOut`.
    """

    tables: dict[str, pa.Table]
    poll_op: I64
    poll_last: I64


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What is known of the whole history.

    Attributes:
        coverage: Counts that replace those of the remainder.
        acked: How many appends were acknowledged at an offset that counts.
        extent: What it spans.
        measures: Its measures, if they are taken.
    """

    coverage: Mapping[str, Any]
    acked: int
    extent: Extent
    measures: CutMeasures | None = None


def keep(
    tables: Mapping[str, pa.Table], history: PartitionHistory, plan: Plan, rules: Rules
) -> Kept:
    """Returns the rows of a slice that the judgement of the partition needs.

    Args:
        tables: The client tables of the slice.
        history: The same, as arrays.
        plan: What to keep.
        rules: What makes an offset suspicious.
    """
    records = tables["records_read"]
    offset = records.column("offset").to_numpy()
    of_suspects = is_in(offset, plan.offsets) | (offset < 0) | (offset > OFFSET_MAX)
    records = records.filter(pa.array(of_suspects))
    ops = np.unique(
        np.concatenate(
            (
                records.column("op_index").to_numpy(),
                history.odd_op,
                _appends(history, plan),
                _ends(history, plan, rules),
                _bounding(history, plan),
                _final_witnesses(history, plan),
                _moved_back(tables["operations"], history, rules),
            )
        )
    )
    poll = np.flatnonzero(is_in(history.poll_op, ops))
    last = history.poll_last[poll]
    unknown = (last >= 0) & ~is_in(last, plan.offsets)
    return Kept(
        tables={
            "operations": _of(tables["operations"], ops),
            "records_read": records,
            "end_offsets_seen": _of(tables["end_offsets_seen"], ops),
        },
        poll_op=history.poll_op[poll][unknown],
        poll_last=last[unknown],
    )


def _of(table: pa.Table, ops: I64) -> pa.Table:
    return table.filter(pa.array(is_in(table.column("op_index").to_numpy(), ops)))


def _appends(history: PartitionHistory, plan: Plan) -> I64:
    """Returns appends at suspects, those that the plan names, and neighbours of the former in their process."""
    is_acked = history.append_status == OK_AT
    suspect = is_acked & is_in(history.append_offset, plan.offsets)
    kept = suspect | is_in(history.append_op, plan.ops)
    if len(plan.swapped):
        rows = np.flatnonzero(is_acked & is_in(history.append_process, plan.swapped))
        rows = rows[np.argsort(process_codes(history.append_process[rows]), kind="stable")]
        process, is_suspect = history.append_process[rows], suspect[rows]
        # The first and the last one of a process in the slice have neighbours in others.
        edge = np.append(True, process[1:] != process[:-1])
        edge[:-1] |= edge[1:]
        edge[-1:] = True
        beside = np.zeros(len(rows), dtype=np.bool_)
        beside[1:] |= is_suspect[:-1]
        beside[:-1] |= is_suspect[1:]
        kept[rows[beside | edge | plan.keeps_swapped]] = True
    ops: I64 = history.append_op[kept]
    return ops


def _ends(history: PartitionHistory, plan: Plan, rules: Rules) -> I64:
    """Returns the operations whose log end contradicts a later operation, or an earlier one if that matters."""
    if plan.every_end:
        return history.end_op
    kept = np.zeros(len(history.end_op), dtype=np.bool_)
    for offset, ns, proven, rows in (
        (plan.late_offset, plan.late_ns, history.end_offset - 1, history.end_res),
        (
            plan.stale_offset,
            -plan.stale_ns,
            history.end_offset,
            -history.end_inv + rules.clock_error_ns,
        ),
    ):
        if len(offset):
            at = np.minimum(np.searchsorted(offset, proven), len(offset) - 1)
            kept |= (offset[at] == proven) & (rows < ns[at])
    return history.end_op[kept]


def _bounding(history: PartitionHistory, plan: Plan) -> I64:
    """Returns the operations that prove most about the plan's points, of this slice."""
    acked = np.flatnonzero(history.append_status == OK_AT)
    # What is judged without some of the suspects needs the next best bound.
    acked = acked[~is_in(history.append_offset[acked], plan.offsets)]
    polls = np.flatnonzero(history.poll_last >= 0)
    ends = np.flatnonzero(history.end_offset >= 0)
    append = (history.append_op[acked], history.append_offset[acked])
    end = (history.end_op[ends], history.end_offset[ends])
    absent = [
        _sorted(*append, history.append_inv[acked]),
        _sorted(*end, history.end_inv[ends]),
    ]
    present = _sorted(
        np.concatenate((append[0], history.poll_op[polls], end[0])),
        np.concatenate((append[1], history.poll_last[polls], end[1] - 1)),
        np.concatenate((history.append_res[acked], history.poll_res[polls], history.end_res[ends])),
    )
    ops = [op[latest_below(offset, time_ns, plan.points)] for op, offset, time_ns in absent]
    op, offset, time_ns = present
    ops.append(op[earliest_above(offset, time_ns, plan.points)])
    return np.concatenate(ops)


def _sorted(op: I64, offset: I64, time_ns: I64) -> tuple[I64, I64, I64]:
    """Returns facts by offset; of one offset, those with the latest time first, then by operation."""
    order = np.lexsort((op, -time_ns, offset))
    return op[order], offset[order], time_ns[order]


def _final_witnesses(history: PartitionHistory, plan: Plan) -> I64:
    """Returns the final polls that may show that a suspect is gone: for each the last one from below."""
    polls = np.flatnonzero(history.poll_final & history.poll_ok & (history.poll_last >= 0))
    polls = polls[np.lexsort((polls, history.poll_position[polls]))]
    at = np.searchsorted(history.poll_position[polls], plan.offsets, side="right") - 1
    return history.poll_op[polls[np.unique(at[at >= 0])]]


def _moved_back(operations: pa.Table, history: PartitionHistory, rules: Rules) -> I64:
    """Returns the polls with which members of groups began below where they had been.

    How far a member had got in the slices before is not known here, so its first poll of the slice may be one.
    """
    op, process = (operations.column(name).to_numpy() for name in ("op_index", "process"))
    order = np.argsort(op, kind="stable")
    process = process[order[np.searchsorted(op[order], history.poll_op)]]
    polls = np.flatnonzero(np.isin(process, np.array(rules.members, dtype=np.int64)))
    polls = polls[np.argsort(process[polls], kind="stable")]
    found = [polls[:0]]
    for mine in np.split(polls, np.flatnonzero(np.diff(process[polls])) + 1):
        position = history.poll_position[mine]
        reach = np.maximum.accumulate(np.maximum(position, history.poll_last[mine] + 1))
        is_back = np.append(True, position[1:] < reach[:-1])[: len(mine)]
        found.append(mine[is_back & (position >= 0)])
    return history.poll_op[np.concatenate(found)]


def judge_remainder(
    topic: str,
    partition: int,
    kept: Sequence[Kept],
    others: Mapping[str, pa.Table],
    plan: Plan,
    totals: Totals,
    context: RunContext,
) -> PartitionJudgement:
    """Judges a partition from what its slices kept.

    Args:
        topic: Its topic.
        partition: Its index.
        kept: Of all slices, in any order.
        others: All other tables that the checkers read.
        plan: By which it was kept.
        totals: Of the whole history.
        context: What the run declares about itself.
    """
    tables = {
        name: pa.concat_tables([each.tables[name] for each in kept]) for name in OPERATION_TABLES
    }
    tables = {name: table.sort_by(_ORDER[name]) for name, table in tables.items()}
    left_out = _with_polls(plan.left_out, kept)
    history = read_history(*(tables[name] for name in OPERATION_TABLES))
    derived = {}
    if totals.measures is not None:
        moments, start = totals.measures.moments, context.log_start_offset
        changes = totals.measures.changes + correction(history, plan.offsets, moments, start)
        derived[MEASURED] = replace(totals.measures, changes=changes).report(context)
    judgement = judge_partition(
        topic, partition, {**others, **tables}, context, left_out, totals.extent, derived
    )
    is_acked = history.append_status == OK_AT
    is_here = is_acked & (history.append_offset >= context.log_start_offset)
    # What was left out is read back and in the final reads.
    more = totals.acked - int(is_here.sum())
    coverage = {
        **judgement.coverage,
        **{name: count for name, count in totals.coverage.items() if name in judgement.coverage},
    }
    for name in ("acked_read_back", "acked_in_final_reads"):
        if name in coverage:
            coverage[name] += more
    judgement = replace(judgement, coverage=coverage)
    return _as_minimum(judgement, plan) if plan.ignored else judgement


_ORDER = {
    "operations": [("op_index", "ascending")],
    "records_read": [("op_index", "ascending"), ("index_in_poll", "ascending")],
    "end_offsets_seen": [("op_index", "ascending")],
}


def _with_polls(left_out: LeftOut, kept: Sequence[Kept]) -> LeftOut:
    op = np.concatenate([each.poll_op for each in kept])
    order = np.argsort(op)
    last = np.concatenate([each.poll_last for each in kept])
    return replace(left_out, poll_op=op[order], poll_last=last[order])


def _as_minimum(judgement: PartitionJudgement, plan: Plan) -> PartitionJudgement:
    """Returns a judgement that says that its counts are minima: not all suspects were judged."""
    reason = (
        f"{judgement.topic}-{judgement.partition}: {plan.ignored} of"
        f" {plan.ignored + len(plan.offsets)} suspicious offsets were not judged, so every count is a minimum"
    )
    return replace(
        judgement,
        anomalies=tuple(
            replace(
                anomaly,
                sentence=f"{anomaly.sentence} (at least {anomaly.count} in this partition)",
                details={**anomaly.details, "count_is_minimum": True},
            )
            for anomaly in judgement.anomalies
        ),
        unknown_reasons=(*judgement.unknown_reasons, reason),
        coverage={**judgement.coverage, "suspects_not_judged": plan.ignored},
    )
