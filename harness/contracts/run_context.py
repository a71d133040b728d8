"""What a run declares about itself: the part of the record with its promises and its progress.

The same values are columns of the table `run_facts`. The harness writes a row when the run begins and another one
when it ends; the last row counts, so a harness that is killed leaves a run whose final phase is incomplete.
"""

from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from harness.history.schema import RUN_FACTS

LOG_CHECKERS = ("linearizability", "lost-acked")
"""The checkers of a workload that appends to a log and reads it back."""

SESSION_CHECKER = "idempotent-producer"
"""The checker of idempotent producers. A run that names it has producers that may send an append again."""

REPLICA_CHECKER = "replicas"
"""The checker of what nodes reported. It also judges partitions of which clients record nothing."""

BATCH_CHECKER = "batches"
"""The checker of record batches. A run that names it records which appends a batch carried together."""

QUERY_CHECKER = "offset-queries"
"""The checker of questions about offsets."""

NOT_RECORDED = ("sparse_offsets", "log_ends_recorded", "at_least_once")
"""Attributes without a column: all our own runs have the same values."""


def one_fault(name: str, fault_id: str) -> str:
    """Returns how `enabled_faults` names a single fault. Names have no spaces; an id may have some."""
    return f"{name} {fault_id}"


def name_and_id(enabled: str) -> tuple[str, str]:
    """Returns the name of an enabled fault and its id; the id is empty if any fault of that name will do."""
    name, _, fault_id = enabled.partition(" ")
    return name, fault_id


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """What a run declares about itself; the table `run_facts` has a column for each one not in `NOT_RECORDED`.

    Attributes:
        profile: Feature profile of the system under test.
        elr_on, min_isr, replication_factor, unclean_election_enabled: What the configuration promises.
        checkers: Names of the checkers that the workload needs.
        enabled_faults: The faults that must take effect, beside every kind of fault in the `faults` table that had
            targets or could not be injected; None for no others. A name alone, such as "kill", means one fault of
            that name, whichever; `one_fault` names a single one.
        final_phase_complete: Whether the final phase (heal, settle, read everything) ended as planned.
        acked_during_faults_min: How many appends must have been acknowledged while a fault was in force. Scripted
            schedules that make a partition unavailable on purpose set it to 0.
        incomplete_reason: Why the run ended early, in one sentence; empty if it did not.
        clock_error_ns: Largest difference between two clocks that stamped operations.
        log_start_offset: Where the log starts at the end of the run. Below it no record has to be there, but what
            operations show must not contradict itself.
        recovery_max_ms: How long a partition may take after the last fault in force was healed until appends and
            polls succeed; 0 for no limit.
        healed_ns: When every fault had been healed and every node been started for the final phase; None if the
            run did not get so far, or if that is not known.
        ended_ns: When the run ended, if its record shows what happened until then; otherwise None.
        stuck_after_ms: How long after `healed_ns` a partition may take to make progress (anomaly `stuck`); 0 if
            the system promises nothing.
        compacted: Whether a cleaner removes a record after a later one of its key was committed.
        sparse_offsets: Whether offsets may be missing from a log; not in our own runs.
        log_ends_recorded: Whether log ends were observed; our own clients always ask for them.
        at_least_once: Whether producers sent an append again after a timeout, without idempotence; our own do not.
    """

    profile: str = ""
    elr_on: bool = True
    min_isr: int = 2
    replication_factor: int = 3
    unclean_election_enabled: bool = False
    checkers: tuple[str, ...] = LOG_CHECKERS
    enabled_faults: tuple[str, ...] | None = None
    final_phase_complete: bool = True
    acked_during_faults_min: int = 1
    incomplete_reason: str = ""
    clock_error_ns: int = 0
    log_start_offset: int = 0
    recovery_max_ms: int = 0
    healed_ns: int | None = None
    ended_ns: int | None = None
    stuck_after_ms: int = 0
    compacted: bool = False
    sparse_offsets: bool = False
    log_ends_recorded: bool = True
    at_least_once: bool = False

    @property
    def record_ends_early(self) -> bool:
        """Whether the record may end before the run did, so that its last rows are missing."""
        return not self.final_phase_complete and self.ended_ns is None


def context_to_row(context: RunContext) -> tuple[Any, ...]:
    """Returns a context as a row of `run_facts`."""
    values = asdict(context)
    return tuple(_plain(values[name]) for name in RUN_FACTS.names)


def context_from_facts(run_facts: pa.Table) -> RunContext | None:
    """Returns the context that a run recorded, or None if it recorded none.

    Args:
        run_facts: The table; its last row counts.
    """
    if not run_facts.num_rows:
        return None
    (row,) = run_facts.slice(run_facts.num_rows - 1).to_pylist()
    return context_from_json(row)


def context_from_json(values: dict[str, Any]) -> RunContext:
    """Returns the context whose `dataclasses.asdict` went through JSON, where tuples become lists."""
    attributes: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    return RunContext(**attributes)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
