"""Checks stored runs: one task per (run, topic, partition); paths are distributed, judgements come back.

Moving rows from the JVM to Python costs several times the check itself, so no row moves: a task gets the paths of
the files of one partition, reads its columns with PyArrow, and runs the kernels. What comes back is one JSON line
per partition, and the driver composes the verdict with the same function as without Spark, so the two cannot
differ.

An RDD rather than a data frame with `mapInArrow`: what is distributed is a list of paths and what returns is a
list of lines, so the planner, Arrow and the columnar classes would be loaded for nothing (three seconds of
processor time). The largest partitions start first, so that none is still running when the others are done. A
partition too large for one task is cut by offsets (`checkers.jobs.huge`).
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from checkers.compaction import as_not_compacted
from checkers.final_reads import at_best_unknown, disagreement
from checkers.jobs.in_process import InProcess
from checkers.jobs.stored import (
    Task,
    context_of,
    names_of,
    read_journal,
    read_partition,
    read_shared,
    tasks_of,
    untouched_in,
)
from checkers.kernels.compose import (
    PartitionJudgement,
    acked_during_faults,
    committed_during_faults,
    compose,
    coordinator_states,
    judge_partition_safely,
    judge_whole_run,
    valid_partitions,
    whole_run_checkers,
)
from checkers.kernels.validation import NameOf, check_partition, partition_names
from checkers.kernels.verdict_json import judgement_from_json, judgement_to_json, verdict_to_json
from harness.contracts.run_context import RunContext
from harness.errors import HistoryError
from harness.history.filesystems import child
from harness.history.schema import COORDINATOR_STATES, PARTITIONED_TABLES, TABLES

TASKS_MAX = 1024
"""More Spark tasks than this only cost scheduling; each gets several partitions then."""

Row = dict[str, Any]
"""What comes back for one partition: `run`, `judgement`, `acked_during`, and `disagreement`, a sentence on its
final reads if they do not agree; or `run`, `history_error` and `place`."""

HUGE_OPERATIONS = 10_000_000
"""With more operations a partition is cut: as a whole it would take more than 4 GB of a task's memory if it is
invalid. Cut it takes about 1 GB, and as long if it is valid (`benchmarks/README.md`)."""

RUN_TABLES = ("faults", "violations")
"""Tables of the whole run that the composition reads."""


def plan(directories: Iterable[Path], contexts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the job's arguments for runs and their contexts.

    Raises:
        HistoryError: A run has no history that can be read.
    """
    runs: list[dict[str, Any]] = []
    tasks: list[Task] = []
    for directory, context in zip(directories, contexts, strict=True):
        tasks += tasks_of(directory, len(runs), context)
        run = {"directory": str(directory.resolve()), "context": dict(context)}
        runs.append({**run, "untouched": untouched_in(directory)})
    huge = any(task.get("operations", 0) > HUGE_OPERATIONS for task in tasks)
    return {"runs": runs, "tasks": tasks, "large": huge}


def at_locations(arguments: Mapping[str, Any], locations: Sequence[str]) -> dict[str, Any]:
    """Returns the job's arguments with tasks that read runs at URIs.

    The driver reads a run's small tables from its directory; only tasks read the others.

    Args:
        arguments: What `plan` returned.
        locations: The URI of each run; empty if tasks read its directory.
    """
    places = {
        index: (run["directory"], uri)
        for index, (run, uri) in enumerate(zip(arguments["runs"], locations, strict=False))
        if uri
    }

    def moved(path: str, directory: str, uri: str) -> str:
        return child(uri, *Path(path).relative_to(directory).parts)

    tasks = []
    for task in arguments["tasks"]:
        if task["run"] in places:
            place = places[task["run"]]
            task = dict(task)
            if "journal" in task:
                task["journal"] = moved(task["journal"], *place)
            for key in {"files", "shared", "coordinator"} & task.keys():
                task[key] = [[*data[:-1], moved(data[-1], *place)] for data in task[key]]
        tasks.append(task)
    return {**arguments, "tasks": tasks}


def check_job(spark: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Judges runs.

    Args:
        spark: The Spark context.
        arguments: What `plan` returned. `huge_operations` and `bucket_width` override when and how a partition is
            cut.

    Returns:
        `verdicts`: one per run, in their order, as `verdict_to_json` gives them; `cut`: how many partitions were
        judged in buckets.

    Raises:
        HistoryError: A file is missing, truncated or not ours.
    """
    outcomes, cut = outcomes_of_runs(spark, arguments)
    verdicts = []
    for outcome in outcomes:
        if isinstance(outcome, HistoryError):
            raise outcome
        verdicts.append(outcome)
    return {"verdicts": verdicts, "cut": cut}


def outcomes_of_runs(
    spark: Any, arguments: Mapping[str, Any]
) -> tuple[list[dict[str, Any] | HistoryError], int]:
    """Judges runs of which one may be refused without an effect on the others.

    Args:
        spark: The Spark context.
        arguments: As in `check_job`.

    Returns:
        For each run its verdict, or why its history is refused; and how many partitions were cut.

    Raises:
        HistoryError: A partition that is cut is refused.
    """
    whole: list[Task] = []
    rows: list[Row] = []
    for task in arguments["tasks"]:
        row = _judge_if_huge(spark, task, arguments)
        if row is None:
            whole.append(task)
        else:
            rows.append(row)
    cut = len(rows)
    rows += _distributed(spark, whole)
    by_run: dict[int, list[Row]] = {}
    for row in rows:
        by_run.setdefault(row["run"], []).append(row)
    outcomes: list[dict[str, Any] | HistoryError] = []
    for index, run in enumerate(arguments["runs"]):
        try:
            outcomes.append(_verdict(run, by_run.get(index, [])))
        except HistoryError as error:
            outcomes.append(error)
    return outcomes, cut


def check_here(arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Judges runs in this process, one task after the other.

    Args:
        arguments: What `plan` returned. `huge_operations` and `bucket_width` as in `check_job`.

    Returns:
        One verdict per run, in their order, as `verdict_to_json` gives them.

    Raises:
        HistoryError: A file is missing, truncated or not ours, or one of its rows cannot be.
    """
    rows: dict[int, list[Row]] = {}
    for task in arguments["tasks"]:
        row = _judge_if_huge(InProcess(), task, arguments)
        rows.setdefault(task["run"], []).extend(judge_task(task) if row is None else [row])
    return [_verdict(run, rows.get(index, [])) for index, run in enumerate(arguments["runs"])]


def judge_tasks(tasks: Iterable[str]) -> Iterator[str]:
    """Judges what a Spark task was given: tasks come in and rows leave as lines of JSON."""
    for line in tasks:
        for row in judge_task(json.loads(line)):
            yield json.dumps(row)


def judge_task(task: Task) -> list[Row]:
    """Judges one partition, or every partition of an unfinished run.

    A file that cannot be read is a result, not an exception: Spark would wrap it into a failure of the job.
    """
    context = context_of(task)
    try:
        if "journal" in task:
            return _judge_journal(task, context)
        tables = read_partition(task)
        if "topic" in task:
            check_partition(tables, names_of(task), context.clock_error_ns)
    except HistoryError as error:
        place = [task.get("topic", ""), task.get("partition", -1)]
        return [{"run": task["run"], "history_error": str(error), "place": place}]
    if "topic" not in task:
        return [_row_of_run(task["run"], tables, context)]
    return [_row(task["run"], task["topic"], task["partition"], tables, context)]


def _judge_journal(task: Task, context: RunContext) -> list[Row]:
    tables = read_journal(task)
    journal = task["journal"]

    def names(topic: str, partition: int) -> NameOf:
        return lambda table: f"{journal}, {partition_names(topic, partition)(table)}"

    tables[COORDINATOR_STATES] = coordinator_states(tables["partition_states"])
    partitions = valid_partitions(tables, context, names)
    shared = {name: table for name, table in tables.items() if name not in PARTITIONED_TABLES}
    rows = [
        _row(task["run"], topic, partition, {**mine, **shared}, context)
        for (topic, partition), mine in partitions.items()
    ]
    if whole_run_checkers(context):
        rows.append(_row_of_run(task["run"], tables, context))
    recovered = {name: tables[name].to_pylist() for name in RUN_TABLES}
    return [*rows, {"run": task["run"], "recovered": recovered}]


def _row(
    run: int, topic: str, partition: int, tables: Mapping[str, pa.Table], context: RunContext
) -> Row:
    judgement = judge_partition_safely(topic, partition, *as_not_compacted(tables, context))
    row: Row = {"run": run, "judgement": judgement_to_json(judgement), "acked_during": 0}
    operations = tables.get("operations")
    if operations is not None:
        row["acked_during"] = acked_during_faults(operations, tables["faults"])
        # A journal has no table of a kind of which it has no row.
        records = tables.get("records_read", TABLES["records_read"].empty_table())
        row["disagreement"] = disagreement(
            topic, partition, operations, records, context.clock_error_ns
        )
    return row


def _row_of_run(run: int, tables: Mapping[str, pa.Table], context: RunContext) -> Row:
    judgement = judge_whole_run(tables, context)
    acked = committed_during_faults(tables["transaction_events"], tables["faults"])
    return {"run": run, "judgement": judgement_to_json(judgement), "acked_during": acked}


def _judge_if_huge(spark: Any, task: Task, arguments: Mapping[str, Any]) -> Row | None:
    """Judges a partition in buckets; None if it is not huge, or must be judged as a whole all the same."""
    if task.get("operations", 0) <= arguments.get("huge_operations", HUGE_OPERATIONS):
        return None
    # Imported here, because what cuts partitions takes a tenth of a second to load, which short runs would feel.
    from checkers.jobs.huge import BUCKET_WIDTH, judge_in_buckets

    width = arguments.get("bucket_width", BUCKET_WIDTH)
    return judge_in_buckets(spark, task, width=width)


def _distributed(spark: Any, tasks: list[Task]) -> list[Row]:
    if not tasks:
        return []
    largest_first = sorted(tasks, key=lambda task: -task["size"])
    lines = [json.dumps(task) for task in largest_first]
    slices = min(len(lines), TASKS_MAX)
    # Dealt in turn: partitions of similar size must not share a task.
    packs = [lines[first::slices] for first in range(slices)]
    results = spark.parallelize(packs, slices).flatMap(judge_tasks).collect()
    return [json.loads(line) for line in results]


def _verdict(run: Mapping[str, Any], rows: list[Row]) -> dict[str, Any]:
    """Composes the verdict of one run from what its tasks returned."""
    errors = sorted((row["place"], row["history_error"]) for row in rows if "history_error" in row)
    if errors:
        raise HistoryError(errors[0][1])
    judged = [
        (judgement_from_json(row["judgement"]), row["acked_during"])
        for row in rows
        if "judgement" in row
    ]
    judgements: list[PartitionJudgement] = [judgement for judgement, _ in judged]
    recovered = [row["recovered"] for row in rows if "recovered" in row]
    faults, violations = (
        pa.Table.from_pylist(recovered[0][name], schema=TABLES[name])
        if recovered
        else read_shared(Path(run["directory"]), name)
        for name in RUN_TABLES
    )
    context = context_of({"context": run["context"]})
    acked_during = sum(acked for _, acked in judged)
    # Of a run whose harness died no final phase ended as planned.
    untouched = tuple(run["untouched"])
    verdict = compose(judgements, acked_during, faults, violations, context, untouched=untouched)
    unsettled = sorted(
        (judged["topic"], judged["partition"], row["disagreement"])
        for row in rows
        if row.get("disagreement")
        for judged in [row["judgement"]]
    )
    return verdict_to_json(at_best_unknown(verdict, (sentence for *_, sentence in unsettled)))
