"""Whether the final reads of a history agree about where the logs end.

Final reads are made when nothing happens any more, so a log does not become shorter between two of them. Where a
later one shows a smaller end, one of them was not final: a leader that had been deposed responded, or a record was
lost in between. What is lost is not known then, so such a history is not valid.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.compaction import as_not_compacted
from checkers.kernels.compose import judge_run, valid_partitions
from checkers.kernels.history import I64, OFFSET_MAX
from checkers.kernels.levels import levels_of
from harness.contracts.run_context import RunContext
from harness.contracts.verdict import Validity, Verdict

OPERATION_COLUMNS = (
    "op_index",
    "kind",
    "outcome",
    "final",
    "offset",
    "end_offset",
    "invoked_ns",
    "completed_ns",
)
"""Columns of `operations` that are needed here."""

RECORD_COLUMNS = ("op_index", "offset")
"""Columns of `records_read` that are needed here."""

NOT_KNOWN = -1


def judge_with_final_reads(tables: Mapping[str, pa.Table], context: RunContext) -> Verdict:
    """Judges a run; it is not valid if its final reads do not agree.

    Args:
        tables: All tables of the run.
        context: What the run declares about itself.

    Raises:
        HistoryError: A row cannot be.
    """
    if context.compacted:
        # Before rows are added, so that a message names the row that was recorded.
        valid_partitions(tables, context)
    verdict = judge_run(*as_not_compacted(tables, context))
    return at_best_unknown(verdict, disagreements(tables, context.clock_error_ns))


def at_best_unknown(verdict: Verdict, reasons: Iterable[str]) -> Verdict:
    """Returns the verdict with more reasons, if there are any, and then no longer valid."""
    more = tuple(reasons)
    if not more:
        return verdict
    validity = Validity.INVALID if verdict.validity == Validity.INVALID else Validity.UNKNOWN
    levels = levels_of(verdict.anomalies, more)
    return replace(verdict, validity=validity, reasons=(*verdict.reasons, *more), levels=levels)


def disagreements(tables: Mapping[str, pa.Table], clock_error_ns: int = 0) -> Iterator[str]:
    """Yields a sentence for each partition whose log became shorter between two final reads, in their order.

    Args:
        tables: `operations` and `records_read`, of all partitions.
        clock_error_ns: Largest difference between two clocks; reads that are closer count as concurrent.
    """
    operations = settled(tables["operations"])
    if operations.num_rows < 2:
        return
    places = (
        operations.select(["topic", "partition"]).group_by(["topic", "partition"]).aggregate([])
    )
    for topic, partition in sorted(zip(*places.to_pydict().values(), strict=True)):
        here = (pc.field("topic") == topic) & (pc.field("partition") == partition)
        sentence = disagreement(
            topic, partition, operations.filter(here), tables["records_read"], clock_error_ns
        )
        if sentence:
            yield sentence


def settled(operations: pa.Table) -> pa.Table:
    """Returns the final operations that were ok."""
    return operations.filter(pc.field("final") & (pc.field("outcome") == "ok"))


def log_ends(operations: pa.Table) -> I64:
    """Returns the log end that each operation shows, NOT_KNOWN if it shows none."""
    end = pc.if_else(
        pc.equal(operations.column("kind"), "latest"),
        operations.column("offset"),
        operations.column("end_offset"),
    )
    known: I64 = pc.fill_null(end, NOT_KNOWN).to_numpy()
    # Numbers that cannot be are anomalies of their own.
    return np.where((known >= 0) & (known <= OFFSET_MAX), known, NOT_KNOWN)


def disagreement(
    topic: str, partition: int, operations: pa.Table, records: pa.Table, clock_error_ns: int = 0
) -> str:
    """Returns a sentence on two final reads, the later of which shows a smaller log end; empty if all agree.

    Args:
        topic: The partition's topic.
        partition: Its index.
        operations: Its operations.
        records: Records that were read; those at offsets below every log end that is known do not matter.
        clock_error_ns: Largest difference between two clocks; reads that are closer count as concurrent.
    """
    operations = settled(operations)
    end = log_ends(operations)
    if len(end) < 2 or end.max() == NOT_KNOWN:
        return ""
    op = operations.column("op_index").to_numpy()
    least = int(end[end != NOT_KNOWN].min())
    reach = _reach(op, end, records.filter(pc.field("offset") >= least))
    if least >= reach.max():
        return ""
    invoked = operations.column("invoked_ns").to_numpy()
    completed = operations.column("completed_ns").to_numpy()
    by_end = np.lexsort((op, completed))
    reached = np.maximum.accumulate(reach[by_end])
    # How many reads had ended when each one began.
    before = np.searchsorted(completed[by_end], invoked - clock_error_ns, side="left")
    known = (end != NOT_KNOWN) & (before > 0)
    smaller = known & (end < reached[before - 1])
    if not smaller.any():
        return ""
    candidates = np.flatnonzero(smaller)
    later = candidates[np.lexsort((op[candidates], invoked[candidates]))[0]]
    most = reached[before[later] - 1]
    earlier = by_end[np.searchsorted(reached, most)]
    return (
        f"the final reads of {topic}-{partition} do not agree: op {op[earlier]} showed that its log reaches to"
        f" offset {most}, and op {op[later]}, begun later, that it ends at {end[later]}"
    )


def _reach(op: I64, end: I64, records: pa.Table) -> I64:
    """Returns up to where the log reached by what each operation shows: its end, and the records beyond it."""
    is_possible = pc.field("offset") <= OFFSET_MAX
    of_final = records.filter(pc.field("op_index").isin(pa.array(op)) & is_possible)
    last = of_final.group_by("op_index").aggregate([("offset", "max")])
    reach = end.copy()
    row = {number: index for index, number in enumerate(op.tolist())}
    for number, offset in zip(
        last.column("op_index").to_pylist(), last.column("offset_max").to_pylist(), strict=True
    ):
        reach[row[number]] = max(reach[row[number]], offset + 1)
    return reach
