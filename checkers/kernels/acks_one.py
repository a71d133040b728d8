"""Free appends where records acknowledged with acks=1 may be lost.

Such an acknowledgement promises only that the leader had the record. A *weak* append, acknowledged with acks=1 and
never read, may be in the log at its offset, or nowhere; then its offset may belong to another record. What free
appends show is a broken promise only if it holds in both cases:

- a hole that no append can fill, a weak append only at its own offset and if it was invoked in time;
- an append without an offset that has no place, wherever the weak appends are.

Source: Kafka producer configuration acks=1.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from checkers.anomalies import ANOMALIES
from checkers.kernels.facts import Facts, derive_facts
from checkers.kernels.findings import Finding
from checkers.kernels.free_appends import RealTimeHolds, check_free_appends, earliest_present
from checkers.kernels.history import (
    FAIL,
    INF_NS,
    INFO,
    OK_AT,
    OK_SOMEWHERE,
    Bools,
    PartitionHistory,
)
from checkers.kernels.real_time import check_real_time

OF_FREE_APPENDS = frozenset(
    {"unfilled-hole", "hole-before-append", "unplaced-append", "unplaced-below-end"}
)
_OF_HOLES = frozenset({"unfilled-hole", "hole-before-append"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a history is read; see `checkers.kernels.linearizability.Options`."""

    sparse: bool
    clock_error_ns: int
    log_start_offset: int
    sent_again: bool
    sent_twice: bool


def holding(real_time: Sequence[Finding]) -> RealTimeHolds:
    """Returns what of C6 holds, given what contradicts it."""
    levels = {ANOMALIES[finding.id].level for finding in real_time}
    return RealTimeHolds(order="order" not in levels, fresh="fresh" not in levels)


def weighed(
    history: PartitionHistory,
    facts: Facts,
    free: Sequence[Finding],
    reading: Reading,
) -> list[Finding]:
    """Returns what free appends show, told apart by whether it rests on acks=1.

    Args:
        history: One partition that is not linearizable.
        facts: Derived from it.
        free: What its free appends show if everything that was acknowledged is in the log.
        reading: How to read it.
    """
    weak = _is_weak(history, facts, reading)
    if not weak.any():
        return list(free)
    firm = [*_unfilled(history, weak, reading), *_unplaced(history, weak, reading)]
    known = {finding.id for finding in firm}
    return [*firm, *(replace(f, weak=~f.weak) for f in free if f.id not in known)]


def _unfilled(history: PartitionHistory, weak: Bools, reading: Reading) -> list[Finding]:
    """Returns holes that no append can fill, weak ones at their own offsets neither."""
    absent = _moved(history, weak, INFO)
    facts, _ = _derive(absent, reading)
    inside = weak & _are_inside(history, facts)
    in_time = inside & _are_in_time(history, absent, facts, reading)
    found = _holes_if(history, weak, in_time, reading)
    timeless = _holes_if(history, weak, inside, reading)
    if any(f.id == "unfilled-hole" for f in timeless):
        return found
    # Without the clock, weak appends would fill them.
    return [replace(f, id="hole-before-append") for f in found]


def _holes_if(
    history: PartitionHistory, weak: Bools, stays: Bools, reading: Reading
) -> list[Finding]:
    """Returns holes that no append can fill if, of the weak ones, these stay where they were acknowledged."""
    gone = weak & ~stays & (history.append_status == OK_AT)
    kept = _moved(_moved(history, weak & (history.append_status == OK_SOMEWHERE), INFO), gone, FAIL)
    kept = replace(kept, append_res=np.where(stays, INF_NS, kept.append_res))
    found = _free(kept, _derive(kept, reading)[0], reading, RealTimeHolds(order=False, fresh=False))
    return [f for f in found if f.id in _OF_HOLES]


def _unplaced(history: PartitionHistory, weak: Bools, reading: Reading) -> list[Finding]:
    """Returns appends that have no place even if weak ones are anywhere or nowhere."""
    if not (history.append_status == OK_SOMEWHERE).any():
        return []
    absent = _moved(history, weak, INFO)
    facts, _ = _derive(absent, reading)
    real_time = check_real_time(
        absent, facts, clock_error_ns=reading.clock_error_ns, sent_twice=reading.sent_twice
    )
    found = _free(absent, facts, reading, holding(real_time))
    return [f for f in found if f.id not in _OF_HOLES]


def _is_weak(history: PartitionHistory, facts: Facts, reading: Reading) -> Bools:
    acknowledged = (history.append_status == OK_AT) | (history.append_status == OK_SOMEWHERE)
    weak: Bools = acknowledged & (history.append_acks == 1)
    # What was read may be another record of the same append.
    return weak if reading.sent_twice else weak & ~facts.append_read


def _moved(history: PartitionHistory, appends: Bools, status: int) -> PartitionHistory:
    """Returns the history with other outcomes of some appends, which are not completed then."""
    return replace(
        history,
        append_status=np.where(appends, np.int8(status), history.append_status),
        append_res=np.where(appends, INF_NS, history.append_res),
    )


def _are_inside(history: PartitionHistory, facts: Facts) -> Bools:
    """Returns which appends were acknowledged at an offset that something else proves to have existed."""
    offset = history.append_offset
    is_inside: Bools = (
        (history.append_status == OK_AT)
        & (offset >= facts.log_start_offset)
        & (offset < facts.places.limit)
    )
    return is_inside


def _are_in_time(
    history: PartitionHistory, absent: PartitionHistory, facts: Facts, reading: Reading
) -> Bools:
    """Returns which appends were invoked before their offset is known to have existed."""
    times = earliest_present(absent, facts, reading.clock_error_ns, sent_twice=reading.sent_twice)
    present = np.append(times, INF_NS)
    at = facts.places.index(np.maximum(history.append_offset, facts.places.start))
    in_time: Bools = history.append_inv <= present[at]
    return in_time


def _free(
    history: PartitionHistory, facts: Facts, reading: Reading, holds: RealTimeHolds
) -> list[Finding]:
    found, _ = check_free_appends(
        history,
        facts,
        sparse=reading.sparse,
        clock_error_ns=reading.clock_error_ns,
        holds=holds,
        sent_again=reading.sent_again,
        sent_twice=reading.sent_twice,
    )
    return found


def _derive(history: PartitionHistory, reading: Reading) -> tuple[Facts, list[Finding]]:
    return derive_facts(
        history,
        log_start_offset=reading.log_start_offset,
        sparse=reading.sparse,
        sent_twice=reading.sent_twice,
    )
