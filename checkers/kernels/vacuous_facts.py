"""Declarations of a run that would hide every anomaly.

What a run declares about its clocks and about the start of its log only ever hides facts: two operations closer in
time than the clocks' error have no order, and nothing below the log start has to be there. A declaration that
hides everything leaves nothing to judge, so the verdict is unknown.

The order of a log is judged by appends that began after another one was acknowledged. If there are such appends,
but none of them began later than the clocks' error allows, the order was not judged. What else happened does not
count: the final reads come long after all appends and would hide that.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from checkers.kernels.metadata_gaps import Shown, appended_epochs, shown_ends
from checkers.kernels.partition_tables import derive_once
from checkers.kernels.words import APPEND, FAIL, OK, operation_words
from harness.contracts.run_context import RunContext
from harness.contracts.verdict import Anomaly, Judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """What a partition's history, or a range of its operations, spans.

    Attributes:
        first_ns, last_ns: Its first invocation and its last invocation or completion; None without operations.
        highest_acked: Largest acknowledged offset; None without any.
        lowest_final: Smallest offset that a final read returned; None without any.
        first_acked_ns: When the first acknowledgement of an append arrived; None without any.
        last_append_ns: When the last append began that did not fail; None without any.
        final_end: One more than the largest offset that a final read returned; None without any.
        shown_ends: The leader epochs that records and responses to reads show, ascending, each with the largest
            log end that they show.
        appended_epochs: Those that responses to appends show, ascending, each with the moment at which the first
            such append was invoked.
    """

    first_ns: int | None
    last_ns: int | None
    highest_acked: int | None
    lowest_final: int | None
    first_acked_ns: int | None = None
    last_append_ns: int | None = None
    final_end: int | None = None
    shown_ends: tuple[tuple[int, int], ...] = ()
    appended_epochs: tuple[tuple[int, int], ...] = ()


EXTENT = "extent"
"""The name under which a partition's extent is derived once."""


def hides_nothing(context: RunContext) -> bool:
    """Returns whether a run declares neither an error of its clocks nor a log start."""
    return not context.clock_error_ns and not context.log_start_offset


def extent_of(operations: pa.Table, records_read: pa.Table) -> Extent:
    """Returns what some operations of one partition and their records span."""
    invoked = operations.column("invoked_ns").to_numpy()
    completed = operations.column("completed_ns").drop_null().to_numpy()
    words = operation_words(operations)
    is_append, is_ok = words.kind == APPEND, words.outcome == OK
    acked = operations.column("offset").filter(pa.array(is_append & is_ok)).drop_null().to_numpy()
    final = operations.column("op_index").to_numpy()[operations.column("final").to_numpy() & is_ok]
    is_final = np.isin(records_read.column("op_index").to_numpy(), final)
    read = records_read.column("offset").to_numpy()[is_final]
    acked_ns = operations.column("completed_ns").filter(pa.array(is_append & is_ok)).drop_null()
    begun_ns = invoked[is_append & (words.outcome != FAIL)]
    return Extent(
        first_ns=int(invoked.min()) if len(invoked) else None,
        last_ns=max(int(times.max()) for times in (invoked, completed) if len(times))
        if len(invoked)
        else None,
        highest_acked=int(acked.max()) if len(acked) else None,
        lowest_final=int(read.min()) if len(read) else None,
        first_acked_ns=int(acked_ns.to_numpy().min()) if len(acked_ns) else None,
        last_append_ns=int(begun_ns.max()) if len(begun_ns) else None,
        final_end=int(read.max()) + 1 if len(read) else None,
        shown_ends=tuple(sorted(shown_ends(operations, records_read).items())),
        appended_epochs=tuple(sorted(appended_epochs(operations).items())),
    )


def extent_in(tables: Mapping[str, pa.Table]) -> Extent:
    """Returns what the history of a partition spans, computed once."""
    return derive_once(
        tables, EXTENT, lambda: extent_of(tables["operations"], tables["records_read"])
    )


def shown_in(extent: Extent, context: RunContext) -> Shown:
    """Returns what a partition's history shows of its metadata."""
    appended, ends = dict(extent.appended_epochs), dict(extent.shown_ends)
    return Shown(
        first_ns=extent.first_ns,
        last_ns=extent.last_ns,
        epochs=tuple(sorted({*ends, *appended})),
        appended_ns={epoch: at_ns for epoch, at_ns in appended.items() if epoch not in ends},
        ends=ends,
        final_end=extent.final_end,
        ends_early=context.record_ends_early,
    )


def joined(extents: Iterable[Extent]) -> Extent:
    """Returns what several ranges of operations span together."""
    extents = tuple(extents)

    def known(name: str) -> list[int]:
        return [value for extent in extents if (value := getattr(extent, name)) is not None]

    appended: dict[int, int] = {}
    ends: dict[int, int] = {}
    for extent in extents:
        for epoch, at_ns in extent.appended_epochs:
            appended[epoch] = min(at_ns, appended.get(epoch, at_ns))
        for epoch, end in extent.shown_ends:
            ends[epoch] = max(end, ends.get(epoch, end))
    return Extent(
        first_ns=min(known("first_ns"), default=None),
        last_ns=max(known("last_ns"), default=None),
        highest_acked=max(known("highest_acked"), default=None),
        lowest_final=min(known("lowest_final"), default=None),
        first_acked_ns=min(known("first_acked_ns"), default=None),
        last_append_ns=max(known("last_append_ns"), default=None),
        final_end=max(known("final_end"), default=None),
        shown_ends=tuple(sorted(ends.items())),
        appended_epochs=tuple(sorted(appended.items())),
    )


def unfounded_excuses(
    anomalies: Iterable[Anomaly], broker_states: pa.Table, context: RunContext
) -> tuple[str, ...]:
    """Returns why the excuses of a partition cannot be believed, at most one sentence.

    With eligible leader replicas a flagged election excuses a loss only if it was unavoidable, which the
    registrations of brokers show.

    Args:
        anomalies: Of the partition.
        broker_states: Of the run.
        context: What the run declares about itself.
    """
    if broker_states.num_rows or not context.elr_on or context.unclean_election_enabled:
        return ()
    if not any(anomaly.judgement is Judgement.EXCUSED for anomaly in anomalies):
        return ()
    return (
        "an election excuses what was lost, but no state of a broker was recorded, so it is not known whether the"
        " election was unavoidable",
    )


def clocks_hide_order(
    first_ended_ns: int | None, last_begun_ns: int | None, clock_error_ns: int
) -> bool:
    """Returns whether some began after others had ended, but none later than the clocks' error allows.

    Args:
        first_ended_ns: When the first one ended; None if none did.
        last_begun_ns: When the last one began; None if there is none.
        clock_error_ns: Largest difference between two clocks.
    """
    if first_ended_ns is None or last_begun_ns is None:
        return False
    return 0 < last_begun_ns - first_ended_ns <= clock_error_ns


def vacuous_facts(extent: Extent, context: RunContext) -> tuple[str, ...]:
    """Returns why what a run declares leaves nothing to judge in a partition, one sentence each.

    Args:
        extent: Of the whole partition.
        context: What the run declares about itself.
    """
    reasons = []
    error, start = context.clock_error_ns, context.log_start_offset
    if error and extent.first_ns is not None and extent.last_ns is not None:
        span = extent.last_ns - extent.first_ns
        if error >= span:
            reasons.append(
                f"clock_error_ns is {error}, but all operations are within {span} ns, so their order cannot be"
                " judged"
            )
        elif clocks_hide_order(extent.first_acked_ns, extent.last_append_ns, error):
            reasons.append(
                f"clock_error_ns is {error}, but no append began more than that after another one was"
                " acknowledged, so their order cannot be judged"
            )
    if start and extent.highest_acked is not None and extent.highest_acked < start:
        reasons.append(
            f"log_start_offset is {start}, but the largest acknowledged offset is {extent.highest_acked}, so no"
            " acknowledged record has to be there"
        )
    if start and extent.lowest_final is not None and extent.lowest_final < start:
        reasons.append(
            f"log_start_offset is {start}, but a final read returned offset {extent.lowest_final}, so the log did"
            " not start there"
        )
    return tuple(reasons)
