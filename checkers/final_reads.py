"""Whether the final reads of a history agree about where the logs end.

Final reads are made when nothing happens any more, so a log does not become shorter between two of them. Where a
later one shows a smaller end, one of them was not final: a leader that had been deposed responded, or a record was
lost in between. What is lost is not known then, so such a history is not valid.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.compaction import as_not_compacted
from checkers.kernels.compose import judge_run, valid_partitions
from checkers.kernels.history import I64, OFFSET_MAX, Bools
from checkers.kernels.levels import levels_of
from harness.contracts.run_context import RunContext
from harness.contracts.verdict import Validity, Verdict

OPERATION_COLUMNS = (
    "op_index",
    "process",
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
        clock_error_ns: Largest difference between two clocks. Reads of two processes that are closer count as
            concurrent; each process has one clock.
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
        clock_error_ns: Largest difference between two clocks. Reads of two processes that are closer count as
            concurrent; each process has one clock.
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
    reads = _Reads(op=op, end=end, reach=reach, invoked=invoked, completed=completed)
    found = reads.first_shorter(clock_error_ns)
    if found is None and clock_error_ns:
        process = operations.column("process").to_numpy()
        own = (reads.take(process == each).first_shorter(0) for each in np.unique(process))
        found = next((each for each in own if each is not None), None)
    if found is None:
        return ""
    earlier, most, later, least = found
    return (
        f"the final reads of {topic}-{partition} do not agree: op {earlier} showed that its log reaches to"
        f" offset {most}, and op {later}, begun later, that it ends at {least}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reads:
    """Final reads of a partition.

    Shape:
        op, end, reach, invoked, completed: one row per read; `end` is NOT_KNOWN if it showed none.
    """

    op: I64
    end: I64
    reach: I64
    invoked: I64
    completed: I64

    def take(self, rows: Bools) -> "_Reads":
        """Returns some of the reads."""
        return _Reads(
            op=self.op[rows],
            end=self.end[rows],
            reach=self.reach[rows],
            invoked=self.invoked[rows],
            completed=self.completed[rows],
        )

    def first_shorter(self, clock_error_ns: int) -> tuple[int, int, int, int] | None:
        """Returns a read and what it reached, and the first later one with a smaller log end, and that end.

        Args:
            clock_error_ns: Largest difference between two clocks that stamped them.
        """
        op, end, invoked, completed = self.op, self.end, self.invoked, self.completed
        by_end = np.lexsort((op, completed))
        reached = np.maximum.accumulate(self.reach[by_end])
        # How many reads had ended when each one began.
        before = np.searchsorted(completed[by_end], invoked - clock_error_ns, side="left")
        known = (end != NOT_KNOWN) & (before > 0)
        candidates = np.flatnonzero(known & (end < reached[before - 1]))
        if not len(candidates):
            return None
        later = candidates[np.lexsort((op[candidates], invoked[candidates]))[0]]
        most = reached[before[later] - 1]
        earlier = by_end[np.searchsorted(reached, most)]
        return int(op[earlier]), int(most), int(op[later]), int(end[later])


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
