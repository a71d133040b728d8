"""What the tables of a run must hold before they are judged: one validator for every path.

A system can lose, duplicate, reorder, damage and invent records, and report any offset; all of that is an anomaly,
and the kernels name it. What no system can cause, because the harness alone decides it, is refused here: a word
that the schema does not know, an operation recorded twice, a completion without a time, records of a poll that
does not exist. A history with such a row was damaged, forged or written by a defective program, and no verdict
about it is worth anything.

The same functions are called for tables in memory (`checkers.kernels.compose.judge_run`), for the files of a
stored run with and without Spark, and for every slice of a huge partition. Each raises a `HistoryError` with one
sentence that names the file and the row, counted from 0. A rule reads whole columns; only a broken one looks at
single rows.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from checkers.kernels.history import I8, I64, OFFSET_MAX, TIME_NS_MAX, Bools, lookup, stored
from checkers.kernels.partition_tables import empty_table
from checkers.kernels.queries.validation import check_offset_queries
from checkers.kernels.refusals import (
    REMEDY,
    check_times,
    check_words,
    int_column,
    is_ascending_once,
    refuse,
    refuse_back_in_time,
    refuse_below,
    refuse_beyond,
    refuse_repeated,
    require_no_nulls,
    require_words,
)
from checkers.kernels.transactions.validation import check_transaction_events
from checkers.kernels.words import (
    APPEND,
    INFO,
    KINDS,
    OK,
    OUTCOMES,
    POLL,
    OperationWords,
    codes,
    numbers,
    operation_words,
)
from harness.contracts.run_context import RunContext
from harness.errors import HistoryError
from harness.history.schema import CLIENT_TABLES, PARTITIONED_TABLES, TABLES

NameOf = Callable[[str], str]
"""Returns what a table is called in a message: the file that holds it."""

STATUSES = ("ok", "corrupt", "foreign")
ROLES = ("leader", "follower", "offline")
CAUSES = ("load", "append", "replicate", "observed", "truncate", "high-watermark", "role", "down")
BROKER_CHANGES = ("registered", "fenced", "unfenced", "controlled-shutdown", "unregistered")
GROUP_EVENTS = (
    "assigned",
    "revoked",
    "commit-sent",
    "commit-acknowledged",
    "committed-asked",
    "committed-seen",
)


def partition_names(topic: str, partition: int) -> NameOf:
    """Returns the names of a partition's tables as they are in the directory `history` of a run."""

    def name_of(table: str) -> str:
        if table not in PARTITIONED_TABLES:
            return f"{table}.parquet"
        return f"{table}/{topic}-{partition}.parquet"

    return name_of


def check_columns(tables: Mapping[str, pa.Table]) -> None:
    """Checks that tables in memory have the columns of the schema; those of stored runs were checked when read.

    Raises:
        HistoryError: One lacks a column; the sentence names both.
    """
    for name, schema in TABLES.items():
        present = set(tables[name].column_names) if name in tables else schema.names
        missing = [column for column in schema.names if column not in present]
        if missing:
            raise HistoryError(
                f"the table {name} has no column {missing[0]}; add it as docs/results.md describes it"
            )


def check_places(tables: Mapping[str, pa.Table], name_of: NameOf) -> None:
    """Checks that every row of the partitioned tables names a topic and a partition.

    Raises:
        HistoryError: One does not; the sentence names it.
    """
    for name in PARTITIONED_TABLES:
        table = tables.get(name)
        if table is not None and table.num_rows:
            places = table.select(["topic", "partition"])
            require_no_nulls(places, TABLES[name], name_of(name))
            refuse_below(places, "partition", 0, name_of(name))


def check_run(
    tables: Mapping[str, pa.Table],
    partitions: Mapping[tuple[str, int], Mapping[str, pa.Table]],
    context: RunContext,
    names: Callable[[str, int], NameOf] = partition_names,
) -> None:
    """Checks all tables of a run.

    Args:
        tables: By name; a missing one counts as empty.
        partitions: Its partitioned tables by topic and partition, in the order in which they are checked.
        context: What the run declares about itself.
        names: What the tables of a topic-partition are called; of the other tables for topic "".

    Raises:
        HistoryError: A row cannot be; the sentence names it.
    """
    check_context(context, names("", -1)("run_facts"))
    check_shared(tables, names("", -1))
    check_op_indices(
        [
            (names(*place)("operations"), int_column(rows["operations"], "op_index"))
            for place, rows in partitions.items()
            if "operations" in rows
        ]
    )
    for place, rows in partitions.items():
        check_partition(rows, names(*place), context.clock_error_ns)


def check_partition(
    tables: Mapping[str, pa.Table], name_of: NameOf, clock_error_ns: int = 0
) -> None:
    """Checks the rows of one partition, or of a range of its operations.

    Args:
        tables: Its rows of the partitioned tables; a missing table counts as empty. Every record, log end and
            query has its operation in the same call.
        name_of: What the tables are called.
        clock_error_ns: Largest difference between two clocks of the run.

    Raises:
        HistoryError: A row cannot be; the sentence names it.

    Shape:
        The columns that are read are those that a built-in checker reads; rows are in any order.
    """
    full = {
        name: tables[name] if name in tables else empty_table(name) for name in PARTITIONED_TABLES
    }
    operations = full["operations"]
    for name in CLIENT_TABLES:
        require_no_nulls(full[name], TABLES[name], name_of(name))
    words = operation_words(operations)
    _check_operations(operations, words, name_of("operations"))
    row_at = _row_at(int_column(operations, "op_index"))
    _check_records(full["records_read"], operations, row_at, words.kind == POLL, name_of)
    _check_ends(full["end_offsets_seen"], row_at, words.kind != APPEND, name_of("end_offsets_seen"))
    _check_group_events(full["group_events"], name_of("group_events"))
    if full["offset_queries"].num_rows:
        check_offset_queries(full, name_of("offset_queries"), clock_error_ns)
    check_states(full, name_of)


def check_states(tables: Mapping[str, pa.Table], name_of: NameOf) -> None:
    """Checks the rows of `partition_states`, `replica_states` and `replica_batches`.

    Args:
        tables: Rows of one partition, all or some.
        name_of: What the tables are called.

    Raises:
        HistoryError: A row cannot be; the sentence names it.
    """
    states, where = tables.get("partition_states"), name_of("partition_states")
    if states is not None and states.num_rows:
        require_no_nulls(states, TABLES["partition_states"], where)
        check_times(states, "at_ns", where)
        for column in ("leader", "leader_epoch"):
            refuse_below(states, column, -1, where)
        refuse_below(states, "metadata_offset", 0, where)
    replicas, where = tables.get("replica_states"), name_of("replica_states")
    if replicas is not None and replicas.num_rows:
        require_no_nulls(replicas, TABLES["replica_states"], where)
        check_times(replicas, "at_ns", where)
        check_words(replicas, "role", ROLES, where)
        check_words(replicas, "cause", CAUSES, where)
        for column in ("log_end_offset", "high_watermark"):
            refuse_beyond(replicas, column, -1, OFFSET_MAX, where)
    batches, where = tables.get("replica_batches"), name_of("replica_batches")
    if batches is not None and batches.num_rows:
        _check_batches(batches, where)


def _check_batches(batches: pa.Table, where: str) -> None:
    """Checks what the logs of replicas hold."""
    require_no_nulls(batches, TABLES["replica_batches"], where)
    for column in ("base_offset", "last_offset", "high_watermark", "read_end_offset"):
        refuse_beyond(batches, column, 0, OFFSET_MAX, where)
    refuse_below(batches, "leader_epoch", -1, where)
    refuse_beyond(batches, "checksum", 0, 2**32 - 1, where)
    base, last, broker = (
        int_column(batches, name) for name in ("base_offset", "last_offset", "broker")
    )
    refuse(
        last < base,
        where,
        lambda row: f"the batch at offset {base[row]} ends at offset {last[row]}",
    )
    # Stored rows are in order of offsets; a stable sort of small numbers is much faster than one of both columns.
    is_quick = bool((base[1:] >= base[:-1]).all()) and int(np.abs(broker).max()) < 2**15
    order = (
        np.argsort(broker.astype(np.int16), kind="stable")
        if is_quick
        else np.lexsort((base, broker))
    )
    same = broker[order[1:]] == broker[order[:-1]]
    refuse(
        _at_rows(order[1:], same & (base[order[1:]] <= last[order[:-1]])),
        where,
        lambda row: f"broker {broker[row]} has another batch that reaches offset {base[row]}",
    )
    for column in ("node", "log_start_offset", "high_watermark", "read_end_offset"):
        values = codes(batches.column(column)) if column == "node" else int_column(batches, column)
        refuse(
            _at_rows(order[1:], same & (values[order[1:]] != values[order[:-1]])),
            where,
            partial(_other_value, column, broker),
        )


def _other_value(column: str, broker: I64, row: int) -> str:
    return f"{column} differs from other rows of broker {broker[row]}"


def _at_rows(rows: I64, bad: Bools) -> Bools:
    """Returns which rows of the table are bad, given that for rows in another order."""
    found = np.zeros(len(rows) + 1, dtype=np.bool_)
    found[rows[bad]] = True
    return found


def check_shared(tables: Mapping[str, pa.Table], name_of: NameOf) -> None:
    """Checks the tables of the whole run, and that `run_facts` has one row.

    Args:
        tables: Tables by name; a missing one counts as empty.
        name_of: What the tables are called.

    Raises:
        HistoryError: A row cannot be; the sentence names it.
    """
    faults, where = tables.get("faults"), name_of("faults")
    if faults is not None and faults.num_rows:
        require_no_nulls(faults, TABLES["faults"], where)
        _check_faults(faults, where)
    brokers, where = tables.get("broker_states"), name_of("broker_states")
    if brokers is not None and brokers.num_rows:
        require_no_nulls(brokers, TABLES["broker_states"], where)
        check_times(brokers, "at_ns", where)
        check_words(brokers, "change", BROKER_CHANGES, where)
    events, where = tables.get("transaction_events"), name_of("transaction_events")
    if events is not None and events.num_rows:
        require_no_nulls(events, TABLES["transaction_events"], where)
        check_transaction_events(events, where)
    facts = tables.get("run_facts")
    if facts is not None and facts.num_rows > 1:
        raise HistoryError(
            f"{name_of('run_facts')}, row 1: a run has one row of facts, not {facts.num_rows}; {REMEDY}"
        )


def check_context(context: RunContext, where: str) -> None:
    """Checks what a run declares about itself.

    Args:
        context: The declaration.
        where: What the table `run_facts` is called.

    Raises:
        HistoryError: A value cannot be; the sentence names it.
    """
    limits = {
        "clock_error_ns": (0, TIME_NS_MAX),
        "healed_ns": (0, TIME_NS_MAX),
        "ended_ns": (0, TIME_NS_MAX),
        "stuck_after_ms": (0, OFFSET_MAX),
        "recovery_max_ms": (0, OFFSET_MAX),
        "log_start_offset": (0, OFFSET_MAX),
        "acked_during_faults_min": (0, OFFSET_MAX),
        "min_isr": (1, 2**31 - 1),
        "replication_factor": (1, 2**31 - 1),
    }
    for column, (low, high) in limits.items():
        value = getattr(context, column)
        if value is not None and not low <= value <= high:
            raise HistoryError(
                f"{where}, row 0: {column} is {value}, which is not between {low} and {high}; {REMEDY}"
            )
    for column in ("checkers", "enabled_faults"):
        if not all(isinstance(name, str) for name in getattr(context, column) or ()):
            raise HistoryError(f"{where}, row 0: {column} has an element that is null; {REMEDY}")
    name, count = next(iter(Counter(context.checkers).most_common(1)), ("", 0))
    if count > 1:
        raise HistoryError(
            f"{where}, row 0: checkers names {name!r} more than once, so its findings would be counted as often;"
            f" {REMEDY}"
        )


def check_op_indices(parts: Sequence[tuple[str, I64]]) -> None:
    """Checks that no operation is in two partitions.

    Args:
        parts: The name of each partition's table of operations and its column `op_index`, in order of partitions.
            What is wrong within one partition is left to `check_partition`.

    Raises:
        HistoryError: An operation is in two partitions; the sentence names both.
    """
    if not _may_share([op for _, op in parts if len(op)]):
        return
    ops = np.concatenate([op for _, op in parts])
    part = np.repeat(np.arange(len(parts)), [len(op) for _, op in parts])
    row = np.concatenate([np.arange(len(op)) for _, op in parts])
    order = np.lexsort((row, part, ops))
    ops, part, row = ops[order], part[order], row[order]
    twice = np.flatnonzero((ops[1:] == ops[:-1]) & (part[1:] != part[:-1]))
    if not len(twice):
        return
    first = int(twice[0])
    raise shared_operation(
        int(ops[first]),
        (parts[part[first]][0], int(row[first])),
        (parts[part[first + 1]][0], int(row[first + 1])),
    )


def shared_operation(op: int, other: tuple[str, int], mine: tuple[str, int]) -> HistoryError:
    """Returns the refusal of an operation that is in two tables, each given by name and row."""
    return HistoryError(
        f"{mine[0]}, row {mine[1]}: op_index {op} is in {other[0]}, row {other[1]}, too, but an operation has one"
        f" partition; {REMEDY}"
    )


def _may_share(parts: Sequence[I64]) -> bool:
    """Returns whether two of several arrays may hold the same number; False if they certainly do not."""
    if len(parts) < 2:
        return False
    low, high = min(int(part.min()) for part in parts), max(int(part.max()) for part in parts)
    if high - low > 8 * sum(len(part) for part in parts):
        # Numbers of real runs are dense.
        return True
    # One byte per number: sorting all of them would take far more time and memory.
    is_taken = np.zeros(high - low + 1, dtype=np.bool_)
    for part in parts:
        at = part - low
        if is_taken[at].any():
            return True
        is_taken[at] = True
    return False


def _check_operations(operations: pa.Table, words: OperationWords, where: str) -> None:
    op = int_column(operations, "op_index")
    refuse_beyond(operations, "op_index", 0, OFFSET_MAX, where)
    if not is_ascending_once(op):
        refuse_repeated(op, "op_index", where)
    is_append = words.kind == APPEND
    require_words(operations, "kind", words.kind, KINDS, where)
    require_words(operations, "outcome", words.outcome, OUTCOMES, where)
    acks = operations.column("acks").to_numpy()
    bad = (acks != 0) & ~is_append
    if len(acks) and (int(acks.min()) < -1 or int(acks.max()) > 1):
        bad |= (acks < -1) | (acks > 1)
    refuse(
        bad,
        where,
        lambda row: f"acks is {acks[row]}; an append has 0, 1 or -1 (all), every other operation 0",
    )
    _check_intervals(operations, words.outcome, where)
    _check_batch_heads(operations, op, is_append, where)
    offset = operations.column("offset")
    minus_one = stored(offset) == -1
    minus_one &= is_append & (words.outcome == OK)
    if minus_one.any():
        refuse(
            minus_one & ~offset.is_null().to_numpy(),
            where,
            lambda _: "the acknowledged offset is -1; an offset that is not known is null",
        )
    refuse_beyond(operations, "position", -1, OFFSET_MAX, where)


def _check_batch_heads(operations: pa.Table, op: I64, is_append: Bools, where: str) -> None:
    """Refuses a batch whose first append is no earlier append of the same process, or is in another batch."""
    batch = operations.column("batch")
    if batch.null_count == len(batch):
        return
    is_stated = batch.is_valid().to_numpy()
    head: I64 = batch.fill_null(-1).to_numpy()
    at = _row_at(op)(head)
    process: I64 = operations.column("process").to_numpy()
    fits = is_append & is_append[at] & (at >= 0) & (head < op)
    fits &= (process[at] == process) & ~is_stated[at]
    refuse(
        is_stated & ~fits,
        where,
        lambda row: (
            f"batch is {head[row]}, which is not the first append of a batch that process {process[row]} sent to"
            " this partition before"
        ),
    )


def _check_intervals(operations: pa.Table, outcome: I8, where: str) -> None:
    """Checks that operations begin in the run, end after they began, and end if their outcome is known."""
    invoked = int_column(operations, "invoked_ns")
    refuse_beyond(operations, "invoked_ns", 0, TIME_NS_MAX, where)
    column = operations.column("completed_ns")
    completed = stored(column)
    bad = completed < invoked
    if len(completed) and int(completed.max()) > TIME_NS_MAX:
        bad |= completed > TIME_NS_MAX
    if column.null_count:
        is_open = column.is_null().to_numpy()
        refuse(
            is_open & (outcome != INFO),
            where,
            lambda _: "completed_ns is null, but the outcome is known",
        )
        bad &= ~is_open
    refuse(
        bad,
        where,
        lambda row: (
            f"completed_ns is {completed[row]}, which is before invoked_ns {invoked[row]} or after every run"
        ),
    )


def _check_records(
    records: pa.Table,
    operations: pa.Table,
    row_at: Callable[[I64], I64],
    is_poll: Bools,
    name_of: NameOf,
) -> None:
    where = name_of("records_read")
    first, count = _groups(int_column(records, "op_index"))
    group_op = int_column(records, "op_index")[first]
    row_of = row_at(group_op)
    is_foreign = row_of < 0
    is_foreign[~is_foreign] = ~is_poll[row_of[~is_foreign]]
    if is_foreign.any():
        at = int(np.argmin(np.where(is_foreign, first, records.num_rows)))
        raise HistoryError(
            f"{where}, row {first[at]}: the record belongs to op_index {group_op[at]}, which is no poll of the"
            f" partition; {REMEDY}"
        )
    declared = int_column(operations, "record_count")
    found = np.zeros(len(declared), dtype=np.int64)
    found[row_of] = count
    op = operations.column("op_index")
    refuse(
        declared != found,
        name_of("operations"),
        lambda row: (
            f"record_count is {declared[row]}, but records_read has {found[row]} records of op_index {op[row]}"
        ),
    )
    if not _is_in_order(records, first, count):
        _check_places_in_polls(records, where)
    status = numbers(records.column("status"), STATUSES)
    require_words(records, "status", status, STATUSES, where)
    is_ok = status == 0
    value = int_column(records, "value")
    if len(value) and (int(value.min()) < 0 or int(value.max()) > OFFSET_MAX):
        refuse(
            is_ok & ((value < 0) | (value > OFFSET_MAX)),
            where,
            lambda row: (
                f"value is {value[row]}, which no append can have written, but status is ok"
            ),
        )


def _is_in_order(records: pa.Table, first: I64, count: I64) -> bool:
    """Returns whether the records of each poll are in consecutive rows, and their places count from 0.

    Args:
        records: Rows of `records_read`.
        first: The first row of every poll.
        count: How many rows it has.
    """
    places = np.arange(records.num_rows)
    if not np.array_equal(first, np.cumsum(count) - count):
        return False
    places -= np.repeat(first, count)
    return np.array_equal(records.column("index_in_poll").to_numpy(), places)


def _check_places_in_polls(records: pa.Table, where: str) -> None:
    """Checks that the places of a poll's records count from 0, in any order of the rows."""
    op, index = int_column(records, "op_index"), int_column(records, "index_in_poll")
    if not len(op):
        return
    rows = np.arange(len(op))
    order = rows
    if bool((op[1:] < op[:-1]).any()) or bool(
        ((op[1:] == op[:-1]) & (index[1:] <= index[:-1])).any()
    ):
        order = np.lexsort((index, op))
    begins = np.append(True, op[order][1:] != op[order][:-1])
    place = rows - np.maximum.accumulate(np.where(begins, rows, 0))
    bad = np.zeros(len(op), dtype=np.bool_)
    bad[order] = index[order] != place
    refuse(
        bad,
        where,
        lambda row: (
            f"index_in_poll is {index[row]}; the records of op_index {op[row]} count from 0 without gaps"
        ),
    )


def _check_ends(ends: pa.Table, row_at: Callable[[I64], I64], reads_end: Bools, where: str) -> None:
    if not ends.num_rows:
        return
    seen_by = int_column(ends, "op_index")
    row_of = row_at(seen_by)
    # An unknown operation has row -1, which is that of the last one here.
    refuse(
        (row_of < 0) | ~reads_end[row_of] if len(reads_end) else row_of < 0,
        where,
        lambda row: (
            f"the log end belongs to op_index {seen_by[row]}, which is no poll or latest of the partition"
        ),
    )


def _check_group_events(events: pa.Table, where: str) -> None:
    if not events.num_rows:
        return
    index = int_column(events, "event_index")
    refuse_beyond(events, "event_index", 0, OFFSET_MAX, where)
    refuse_repeated(index, "event_index", where)
    check_times(events, "at_ns", where)
    refuse_back_in_time(index, int_column(events, "at_ns"), where)
    check_words(events, "event", GROUP_EVENTS, where)
    refuse_beyond(events, "offset", -OFFSET_MAX, OFFSET_MAX, where)
    event = np.array(events.column("event").to_pylist(), dtype=object)
    refers_to = int_column(events, "refers_to")
    requests = np.sort(index[event == "committed-asked"])
    at = lookup(requests)(refers_to)
    refuse(
        (refers_to != -1) & ((at < 0) | (event != "committed-seen") | (refers_to >= index)),
        where,
        lambda row: (
            f"refers_to is {refers_to[row]}; it is the event_index of an earlier committed-asked of the partition"
            " for committed-seen, and -1 otherwise"
        ),
    )


def _check_faults(faults: pa.Table, where: str) -> None:
    seen: dict[str, int] = {}
    for row, fault_id in enumerate(faults.column("fault_id").to_pylist()):
        if fault_id in seen:
            raise HistoryError(
                f"{where}, row {row}: fault_id {fault_id!r} is in row {seen[fault_id]}, too; {REMEDY}"
            )
        seen[fault_id] = row
    check_times(faults, "invoked_ns", where)
    invoked = int_column(faults, "invoked_ns")
    for column in ("completed_ns", "healed_ns"):
        times: I64 = faults.column(column).fill_null(TIME_NS_MAX).to_numpy()
        refuse((times < invoked) | (times > TIME_NS_MAX), where, partial(_no_end, column, times))


def _no_end(column: str, times: I64, row: int) -> str:
    return f"{column} is {times[row]}, which is before invoked_ns or after every run"


def _row_at(op: I64) -> Callable[[I64], I64]:
    """Returns a function from distinct operations to their rows, -1 where there is none."""
    if is_ascending_once(op):
        return lookup(op)
    order = np.argsort(op, kind="stable")
    position_of = lookup(op[order])
    # The last entry is that of position -1.
    rows = np.append(order, -1)
    return lambda wanted: rows[position_of(wanted)]


def _groups(op: I64) -> tuple[I64, I64]:
    """Returns for every distinct operation its first row, and how many rows it has."""
    if len(op) and bool((op[1:] >= op[:-1]).all()):
        first = np.flatnonzero(np.append(True, op[1:] != op[:-1]))
        return first, np.diff(np.append(first, len(op)))
    _, first, count = np.unique(op, return_index=True, return_counts=True)
    return first, count
