"""A stored partition in pieces: what one task of a huge partition reads at a time.

Slices are the row groups of its operations, with the records and log ends that belong to these.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.final_reads import NOT_KNOWN, OPERATION_COLUMNS, RECORD_COLUMNS, log_ends, settled
from checkers.jobs.stored import (
    Task,
    context_of,
    file_of,
    names_of,
    read_coordinator_states,
    read_tables_of,
    wanted_columns,
)
from checkers.kernels.divergence import (
    BATCH_COLUMNS,
    WINDOW_COLUMNS,
    LogComparison,
    in_sync,
    join_windows,
    windows_of,
)
from checkers.kernels.history import I64, OFFSET_MAX, Bools, lookup
from checkers.kernels.payloads import CLAIMS, contradicting
from checkers.kernels.replicas import LeaderStates, registrations
from checkers.kernels.validation import check_partition, check_states
from harness.contracts.run_context import RunContext
from harness.errors import HistoryError
from harness.history.filesystems import parquet_file
from harness.history.parquet import TableFile, check_file
from harness.history.schema import COORDINATOR_STATES, OPERATION_TABLES, TABLES


@dataclass(frozen=True, slots=True)
class StoredPartition:
    """The partition of a task, as `checkers.jobs.huge` reads it.

    Attributes:
        task: See `checkers.jobs.stored.tasks_of`.
    """

    task: Task

    @property
    def topic(self) -> str:
        """The name of its topic."""
        return str(self.task["topic"])

    @property
    def partition(self) -> int:
        """Its index."""
        return int(self.task["partition"])

    @property
    def context(self) -> RunContext:
        """What the run declares about itself."""
        return context_of(self.task)

    def bounds(self) -> list[tuple[int, int, int]]:
        """Returns its slices; see `slice_bounds`."""
        return slice_bounds(self.task)

    def read(self, first: int, stop: int) -> dict[str, pa.Table]:
        """Returns the rows of a slice; see `read_slice`."""
        return read_slice(self.task, first, stop)

    def check(self, tables: dict[str, pa.Table], index: int, slices: int) -> None:
        """Checks the rows of a slice, and a share of the states of replicas; see `check_slice`.

        Raises:
            HistoryError: A row cannot be; judging the whole partition names it.
        """
        check_slice(self.task, tables, index, slices)

    def changed(self, tables: dict[str, pa.Table]) -> Bools:
        """Returns which records of a slice contradict an append of another one; see `contradicting_records`."""
        return contradicting_records(self.task, tables)

    def others(self) -> dict[str, pa.Table]:
        """Returns all tables but those of clients and those that `states` returns.

        Raises:
            HistoryError: A file is missing, truncated or not ours, or a row cannot be.
        """
        tables = read_tables_of(
            self.task, ("faults", "group_events", "broker_states", "partition_states")
        )
        check_partition({"group_events": tables["group_events"]}, names_of(self.task))
        tables[COORDINATOR_STATES] = read_coordinator_states(self.task)
        return tables

    def states(self) -> dict[str, pa.Table]:
        """Returns the states of its replicas.

        Raises:
            HistoryError: The file is missing, truncated or not ours.
        """
        return read_tables_of(self.task, ("replica_states",))

    def batches(self) -> dict[str, pa.Table]:
        """Returns what the logs of its replicas hold.

        Raises:
            HistoryError: The file is missing, truncated or not ours.
        """
        return read_tables_of(self.task, ("replica_batches",))

    def leaders_hold(self, broker_states: pa.Table) -> bool:
        """Returns whether no leader lowered its high watermark; see `leaders_hold`."""
        return leaders_hold(self.task, broker_states, self.context.clock_error_ns)

    def replicas_agree(self, partition_states: pa.Table) -> bool:
        """Returns whether the logs of its replicas are the same; see `replicas_agree`."""
        return replicas_agree(self.task, partition_states, sparse=self.context.sparse_offsets)

    def offsets_of(self, values: I64) -> I64:
        """Returns the offsets that appends were acknowledged at; see `acknowledged_offsets`."""
        return acknowledged_offsets(self.task, values)

    def final_reads(self) -> tuple[pa.Table, pa.Table]:
        """Returns the final operations, and the records that show more than these; see `final_reads`."""
        return final_reads(self.task)


def replicas_agree(task: Task, partition_states: pa.Table, *, sparse: bool = False) -> bool:
    """Returns whether the logs of the replicas are the same, reading one row group after the other.

    Args:
        task: The partition.
        partition_states: Its rows.
        sparse: Whether offsets may be missing.

    Raises:
        HistoryError, OSError: A file cannot be read.
        pyarrow.ArrowException: It is damaged.
    """
    windows = join_windows(
        windows_of(rows) for rows in _row_groups(task, "replica_batches", WINDOW_COLUMNS)
    )
    comparison = LogComparison(in_sync(windows, partition_states), sparse=sparse)
    last = -1
    for rows in _row_groups(task, "replica_batches", BATCH_COLUMNS):
        base = np.append(last, rows.column("base_offset").to_numpy())
        if bool((base[1:] < base[:-1]).any()):
            return False  # not in canonical order: to be judged with all rows at once
        last = int(base[-1])
        comparison.follow(rows)
    return comparison.end() is None


def _row_groups(
    task: Task, table: str, columns: Sequence[str], column: str = "", low: int = 0
) -> Iterator[pa.Table]:
    """Yields the row groups of a table of a partition; with a column, those that may have `low` or more."""
    for file in (file_of(data) for data in task["files"]):
        if file.table == table:
            with parquet_file(file.path, page_checksum_verification=True) as parquet:
                groups = parquet.metadata.num_row_groups
                highs = [low] * groups
                if column:
                    # Another writer may have left the statistics of this column out: then every group is read.
                    with suppress(LookupError):
                        highs = [high for _, high in _ranges(parquet, column)]
                for group in range(groups):
                    if highs[group] >= low:
                        yield parquet.read_row_group(group, columns=list(columns))


def slice_bounds(task: Task) -> list[tuple[int, int, int]]:
    """Returns the slices of a partition, one per row group of its operations: (index, first op, op to stop at).

    Together they hold every operation index there is. Empty if the files lack statistics or differ from the
    manifest; reading them as a whole then reports what is wrong. Also empty if clients asked about offsets: a
    query and the poll that it is about can be in different slices.
    """
    if any(file_of(data).table == "offset_queries" for data in task["files"]):
        return []
    files = _client_files(task)
    try:
        starts: list[int] = []
        for data in task["files"]:
            check_file(file_of(data))
        for file in files:
            with parquet_file(file.path) as parquet:
                if file.table == "operations":
                    starts = [low for low, _ in _op_ranges(parquet)]
    except (OSError, pa.ArrowException, LookupError, HistoryError):
        return []
    if not starts or any(later <= earlier for earlier, later in pairwise(starts)):
        return []
    edges = [-(2**63), *starts[1:], 2**63 - 1]
    return [(index, edges[index], edges[index + 1]) for index in range(len(starts))]


def read_slice(task: Task, first: int, stop: int) -> dict[str, pa.Table]:
    """Reads the rows of a partition whose op_index is in [first, stop).

    Raises:
        OSError: A file cannot be read.
        pyarrow.ArrowException: It is damaged.
    """
    tables = {name: TABLES[name].empty_table() for name in OPERATION_TABLES}
    for file in _client_files(task):
        columns = wanted_columns(file.table)
        with parquet_file(file.path, page_checksum_verification=True) as parquet:
            groups = [
                group
                for group, (low, high) in enumerate(_op_ranges(parquet))
                if low < stop and high >= first
            ]
            table = parquet.read_row_groups(groups, columns=columns)
        tables[file.table] = _between(table, first, stop)
    return tables


def _between(table: pa.Table, first: int, stop: int) -> pa.Table:
    """Returns the rows whose op_index is in [first, stop)."""
    op = table.column("op_index").to_numpy()
    if bool((op[1:] >= op[:-1]).all()):
        # As they are stored; a part of a table costs nothing.
        low, high = np.searchsorted(op, (first, stop))
        return table.slice(low, high - low)
    return table.filter(pa.array((op >= first) & (op < stop)))


def check_slice(task: Task, tables: dict[str, pa.Table], index: int, slices: int) -> None:
    """Checks the rows of a slice, and a share of the rows of other tables that a valid partition does not need.

    Raises:
        HistoryError: A row cannot be; judging the whole partition names it.
    """
    names = names_of(task)
    check_partition(tables, names)
    for file in (file_of(data) for data in task["files"]):
        if file.table in ("partition_states", "replica_states", "replica_batches"):
            with parquet_file(file.path, page_checksum_verification=True) as parquet:
                for group in range(index, parquet.metadata.num_row_groups, slices):
                    rows = parquet.read_row_group(group, columns=wanted_columns(file.table))
                    check_states({file.table: rows}, names)


def contradicting_records(task: Task, tables: dict[str, pa.Table]) -> Bools:
    """Returns which records of a slice contradict an append of another one; `read_history` sees those of its own.

    Args:
        task: The partition.
        tables: The client tables of the slice.

    Raises:
        OSError: A file cannot be read.
        pyarrow.ArrowException: It is damaged.
    """
    value = tables["records_read"].column("value").to_numpy()
    here = lookup(tables["operations"].column("op_index").to_numpy())(value)
    rows = np.flatnonzero((here < 0) & (value >= 0))
    found = np.zeros(len(value), dtype=np.bool_)
    records = tables["records_read"].select(CLAIMS).take(pa.array(rows))
    value = value[rows]
    (file,) = (file for file in _client_files(task) if file.table == "operations")
    with parquet_file(file.path, page_checksum_verification=True) as parquet:
        for group, (low, high) in enumerate(_op_ranges(parquet)):
            inside = np.flatnonzero((value >= low) & (value <= high))
            if not len(inside):
                continue
            appends = parquet.read_row_group(group, columns=["op_index", "kind", *CLAIMS])
            appends = appends.filter(pc.field("kind") == "append")
            append = lookup(appends.column("op_index").to_numpy())(value[inside])
            found[rows[inside]] = contradicting(records.take(pa.array(inside)), appends, append)
    return found


def acknowledged_offsets(task: Task, ops: I64) -> I64:
    """Returns the offsets at which some appends were acknowledged, reading one row group after the other.

    Args:
        task: The partition.
        ops: Their op_index, ascending; what is no append, or was not acknowledged at an offset, has none.

    Raises:
        OSError: The file cannot be read.
        pyarrow.ArrowException: It is damaged.
    """
    found = [np.empty(0, dtype=np.int64)]
    (file,) = (file for file in _client_files(task) if file.table == "operations")
    columns = ["op_index", "kind", "outcome", "offset"]
    with parquet_file(file.path, page_checksum_verification=True) as parquet:
        for group, (low, high) in enumerate(_op_ranges(parquet)):
            wanted = ops[(ops >= low) & (ops <= high)]
            if not len(wanted):
                continue
            rows = parquet.read_row_group(group, columns=columns)
            rows = rows.filter((pc.field("kind") == "append") & (pc.field("outcome") == "ok"))
            rows = rows.filter(pa.array(np.isin(rows.column("op_index").to_numpy(), wanted)))
            offset = rows.column("offset").drop_null().to_numpy()
            found.append(offset[(offset >= 0) & (offset <= OFFSET_MAX)])
    return np.concatenate(found)


def final_reads(task: Task) -> tuple[pa.Table, pa.Table]:
    """Returns what `checkers.final_reads.disagreement` needs, reading one row group after the other.

    Args:
        task: The partition.

    Returns:
        The final operations that were ok, some tens of bytes for each; the records from the smallest log end on
        that one of them shows.

    Raises:
        OSError: A file cannot be read.
        pyarrow.ArrowException: It is damaged.
    """
    none = TABLES["operations"].empty_table().select(OPERATION_COLUMNS)
    groups = _row_groups(task, "operations", OPERATION_COLUMNS, "final", low=True)
    operations = pa.concat_tables([none, *(settled(rows) for rows in groups)])
    end = log_ends(operations)
    known = end[end != NOT_KNOWN]
    records = [TABLES["records_read"].empty_table().select(RECORD_COLUMNS)]
    if len(known):
        low = int(known.min())
        groups = _row_groups(task, "records_read", RECORD_COLUMNS, "offset", low)
        records += [rows.filter(pc.field("offset") >= low) for rows in groups]
    return operations, pa.concat_tables(records)


def leaders_hold(task: Task, broker_states: pa.Table, clock_error_ns: int = 0) -> bool:
    """Returns whether no leader lowered its high watermark, reading one row group after the other.

    Args:
        task: The partition.
        broker_states: Rows of the whole run.
        clock_error_ns: Largest difference between two clocks.

    Raises:
        OSError: A file cannot be read.
        pyarrow.ArrowException: It is damaged.
    """
    states = LeaderStates(registrations(broker_states), clock_error_ns)
    last_ns = -(2**63)
    for rows in _row_groups(task, "replica_states", wanted_columns("replica_states")):
        at_ns = np.append(last_ns, rows.column("at_ns").to_numpy())
        if bool((at_ns[1:] < at_ns[:-1]).any()):
            return False  # not in canonical order: to be judged as a whole
        last_ns = int(at_ns[-1])
        states.follow(rows)
    return not states.lowered


def _client_files(task: Task) -> list[TableFile]:
    files = [file_of(data) for data in task["files"]]
    return [file for file in files if file.table in OPERATION_TABLES]


def _op_ranges(parquet: Any) -> list[tuple[int, int]]:
    """Returns the smallest and the largest op_index of every row group; see `_ranges`."""
    return _ranges(parquet, "op_index")


def _ranges(parquet: Any, name: str) -> list[tuple[Any, Any]]:
    """Returns the smallest and the largest value of a column in every row group.

    Raises:
        LookupError: The file has no statistics.
    """
    column = parquet.schema_arrow.get_field_index(name)
    ranges = []
    for group in range(parquet.metadata.num_row_groups):
        statistics = parquet.metadata.row_group(group).column(column).statistics
        if statistics is None or not statistics.has_min_max:
            raise LookupError("no statistics")
        ranges.append((statistics.min, statistics.max))
    return ranges
