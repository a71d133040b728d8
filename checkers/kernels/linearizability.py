"""Linearizability of one partition log, complete and in near-linear time.

One object is one partition: a growing sequence of values. An acknowledged append shows its place, a record read
shows the place of its writer, so nothing needs to be searched; what remains is whether the places agree (C1 to
C5, `facts`), whether they fit the clock (C6, `real_time`), and whether appends without a known place fit somewhere
(`free_appends`). A history is linearizable iff none of the three finds anything; every finding is shown by at most
three operations.

Assumed: one append writes one record of a unique value; `fail` means that nothing can have been appended; times
come from one clock (or `clock_error_ns` bounds the difference); a log end was requested after the invocation.

Left out: batches of several records as one step (`checkers.kernels.batches`), retries that may write twice,
transactions. If producers are idempotent (`Options.sent_again`), an offset without a known record shows nothing:
an attempt that is no longer in the log may have been there.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from checkers.kernels.acks_one import Reading, holding, weighed
from checkers.kernels.facts import Facts, derive_facts
from checkers.kernels.findings import Finding
from checkers.kernels.free_appends import Holes, check_free_appends
from checkers.kernels.history import (
    PartitionHistory,
    read_history,
)
from checkers.kernels.left_out import NOTHING, LeftOut
from checkers.kernels.real_time import check_real_time
from checkers.kernels.retention import LogStarts, with_log_starts
from checkers.kernels.sequences import check_poll_order, check_producer_order

HOLE_RANGES_SHOWN = 20
"""How many ranges of holes a report names; a run that ends with a full read has none."""

NOT_ABOUT_THE_LOG = frozenset(
    {
        "nonmonotonic-send",
        "reordered-send",
        "corrupt-record",
        "misplaced-record",
        "impossible-offset",
    }
)
"""Findings that are not violations of the sequential object: they are about payloads, or about pipelining."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to read a history.

    Attributes:
        sparse: Whether offsets may be missing (transactions).
        clock_error_ns: Largest difference between two clocks that stamped operations.
        log_start_offset: Nothing has to be there below it (retention).
        sent_again: Whether idempotent producers may have sent appends again, to another leader.
        sent_twice: Whether producers without idempotence sent appends again. A record at a second offset is then a
            further effect of its append, and an offset without a known record may be one.
        log_starts: When the log start moved, and where to (`checkers.kernels.retention`).
    """

    sparse: bool = False
    clock_error_ns: int = 0
    log_start_offset: int = 0
    sent_again: bool = False
    sent_twice: bool = False
    log_starts: LogStarts = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """What the kernel found in one partition.

    Attributes:
        findings: Not yet judged, one per anomaly.
        history, facts, holes: What they were derived from, for other kernels.
        coverage: Counts that show how much was tested.
    """

    findings: tuple[Finding, ...]
    history: PartitionHistory
    facts: Facts
    holes: Holes
    coverage: dict[str, Any] = field(default_factory=dict)

    @property
    def is_linearizable(self) -> bool:
        """Whether the history is linearizable as a log."""
        return all(f.id in NOT_ABOUT_THE_LOG for f in self.findings)


def check_history(history: PartitionHistory, options: Options | None = None) -> PartitionReport:
    """Checks one partition whose tables are arrays already; see `check_tables`."""
    options = options or Options()
    history = with_log_starts(history, options.log_starts)
    facts, findings = derive_facts(
        history,
        log_start_offset=options.log_start_offset,
        sparse=options.sparse,
        sent_twice=options.sent_twice,
    )
    real_time = check_real_time(
        history, facts, clock_error_ns=options.clock_error_ns, sent_twice=options.sent_twice
    )
    may_be_again = options.sent_again or options.sent_twice
    free, holes = check_free_appends(
        history,
        facts,
        sparse=options.sparse,
        clock_error_ns=options.clock_error_ns,
        holds=holding(real_time),
        sent_again=may_be_again,
        sent_twice=options.sent_twice,
    )
    if findings or real_time or free:
        reading = Reading(
            sparse=options.sparse,
            clock_error_ns=options.clock_error_ns,
            log_start_offset=options.log_start_offset,
            sent_again=may_be_again,
            sent_twice=options.sent_twice,
        )
        free = weighed(history, facts, free, reading)
    findings += [
        *real_time,
        *free,
        *check_producer_order(
            history, facts, clock_error_ns=options.clock_error_ns, sent_twice=options.sent_twice
        ),
        *check_poll_order(history),
    ]
    return PartitionReport(
        findings=tuple(sorted(findings, key=lambda f: f.id)),
        history=history,
        facts=facts,
        holes=holes,
        coverage=_coverage(history, facts, holes),
    )


def check_tables(
    operations: pa.Table,
    records_read: pa.Table,
    end_offsets_seen: pa.Table,
    options: Options | None = None,
    left_out: LeftOut = NOTHING,
) -> PartitionReport:
    """Checks whether one partition's history is linearizable, and what breaks which promise if not.

    Args:
        operations: The partition's rows, in any order.
        records_read: Likewise.
        end_offsets_seen: Likewise.
        options: How to read them.
        left_out: What was left out of them.

    Returns:
        Findings (see `checkers.anomalies` for each), coverage, and the intermediate arrays.

    Shape:
        Tables as in `harness.history.schema`; about 100 bytes of memory per operation, meant for up to some 10^7.

    Source:
        Herlihy and Wing, "Linearizability" (1990); unique values and known places make it a scan.
    """
    history = read_history(operations, records_read, end_offsets_seen, left_out)
    return check_history(history, options)


def _coverage(history: PartitionHistory, facts: Facts, holes: Holes) -> dict[str, Any]:
    return {
        **history.counts(),
        "appends_unknown_revealed": len(np.unique(facts.pinned)),
        "acked_read_back": int(facts.append_read[facts.acked_there].sum()),
        "holes": holes.count,
        "hole_ranges": _ranges(holes),
    }


def _ranges(holes: Holes) -> list[list[int]]:
    """Returns the first few maximal ranges [first, last] of holes."""
    if not len(holes.first):
        return []
    last = holes.first + holes.length - 1
    starts = np.append(True, holes.first[1:] != last[:-1] + 1)
    ends = np.append(starts[1:], True)
    pairs = zip(holes.first[starts].tolist(), last[ends].tolist(), strict=True)
    return [list(pair) for pair in pairs][:HOLE_RANGES_SHOWN]
