"""Judging runs by their record, and the summary of a run.

A verdict is a function of the recorded tables alone. What the configuration promises and how the run ended is the
table `run_facts`, so `laststand check` judges a stored run as it was judged first, on Spark or not, today or in a
year.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from checkers.final_reads import judge_with_final_reads
from checkers.registry import find_checkers
from harness.contracts.run_context import RunContext, context_from_facts
from harness.contracts.verdict import Verdict
from harness.errors import HarnessFailure, HistoryError, UsageError
from harness.history.schema import CLIENT_TABLES
from harness.runs import experiment_file as experiments
from harness.runs.experiment import Experiment
from harness.runs.promises import promised_context, promises_of, without_end
from harness.runs.result import RunResult
from nemesis.faults import FAULTS
from results.history_files import is_finished, read_table, table_files
from results.layout import RunFiles

UNCHECKED = "unchecked"
MARK_COUNT_MAX = 60
"""Kinds of marks that a summary lists; there are about forty in the code."""


def judge_result(
    experiment: Experiment, seed: int, result: RunResult
) -> tuple[Verdict, dict[str, Any]]:
    """Judges a run with the kernels in this process.

    Returns:
        The verdict and the summary that goes into run.json.
    """
    verdict = judge_record(result.tables, experiment)
    return verdict, summarize(experiment, seed, result, verdict)


def judge_record(tables: Mapping[str, pa.Table], experiment: Experiment) -> Verdict:
    """Returns the verdict on a recorded run.

    Args:
        tables: All tables of the run.
        experiment: What was run; it counts only if the record does not contain what the run promised.

    Raises:
        HarnessFailure: The record holds what no run can have recorded, so the harness, the workload or the client
            has a defect.
    """
    context = context_from_facts(tables["run_facts"]) or promised_context(experiment)
    try:
        return judge_with_final_reads(tables, context)
    except HistoryError as error:
        # Nothing was stored that a user could restore.
        raise HarnessFailure(f"the run was recorded wrongly: {error}") from None


def summarize(
    experiment: Experiment,
    seed: int,
    result: RunResult,
    verdict: Verdict | None,
) -> dict[str, Any]:
    """Returns the summary of a run: what `--json` prints and `run.json` holds; "unchecked" without a verdict."""
    marks: dict[str, int] = {}
    for name in result.tables["marks"].column("mark").to_pylist():
        marks[name] = marks.get(name, 0) + 1
    return {
        "run": "",
        "experiment": experiment.name,
        "seed": seed,
        "profile": experiment.profile,
        "scenario": experiment.scenario,
        "outcome_family": promises_of(experiment).outcome_family,
        **verdict_summary(verdict),
        "trace_hash": result.trace_hash,
        "unavailable_ms": unavailable_ms(result.tables),
        "elapsed_ms": result.elapsed_ms,
        "operations": result.tables["operations"].num_rows,
        "faults": result.tables["faults"].num_rows,
        "counters": dict(result.counters),
        "marks": dict(sorted(marks.items())[:MARK_COUNT_MAX]),
        "violations": list(result.violations),
        "stopped_early": result.stopped_early,
        "system": experiment.system,
        "version": experiment.version,
        "on": experiment.on,
        "environment": result.environment,
        "drawn": dict(result.drawn),
    }


def verdict_summary(verdict: Verdict | None) -> dict[str, Any]:
    """Returns the part of a summary that holds the verdict."""
    if verdict is None:
        return {"verdict": UNCHECKED}
    return {
        "verdict": str(verdict.validity),
        "reasons": list(verdict.reasons),
        "unexcused_lost_records": verdict.unexcused_lost_records,
        "excused_lost_records": verdict.excused_lost_records,
        "anomalies": anomaly_counts(verdict),
        "levels": dict(verdict.levels),
    }


def anomaly_counts(verdict: Verdict) -> list[dict[str, Any]]:
    """Returns every anomaly id with its count, per judgement, summed over partitions."""
    counts: dict[tuple[str, str], int] = {}
    for anomaly in verdict.anomalies:
        key = (anomaly.id, str(anomaly.judgement))
        counts[key] = counts.get(key, 0) + anomaly.count
    return [
        {"id": anomaly_id, "count": count, "judgement": judgement}
        for (anomaly_id, judgement), count in sorted(counts.items())
    ]


def unavailable_ms(tables: Mapping[str, pa.Table]) -> float:
    """Returns for how long partitions had no leader in committed metadata before the final phase.

    Units:
        Milliseconds, summed over partitions, from the creation of the topic to the first operation of the
        final phase (or the last event, if the run did not get so far).
    """
    operations = tables["operations"]
    final = operations.filter(operations.column("final")).column("invoked_ns").to_pylist()
    states = tables["partition_states"].to_pylist()
    if not states:
        return 0.0
    end_ns: int = min(final) if final else max(state["at_ns"] for state in states)
    open_since: dict[tuple[str, int], int] = {}
    total_ns: int = 0
    for state in sorted(states, key=lambda item: item["metadata_offset"]):
        key = (state["topic"], state["partition"])
        since_ns = open_since.pop(key, None)
        if since_ns is not None:
            total_ns += max(0, min(state["at_ns"], end_ns) - since_ns)
        if state["leader"] < 0:
            open_since[key] = min(state["at_ns"], end_ns)
    total_ns += sum(max(0, end_ns - since_ns) for since_ns in open_since.values())
    return total_ns / 1e6


def stored_context(directory: Path) -> RunContext:
    """Returns what a stored run declares about itself.

    If the history was never finished, the harness died and the final phase counts as incomplete. If it died before
    it recorded anything, the experiment determines what was promised.

    Raises:
        HistoryError: The history is missing, truncated or not ours, or its promises are unknown, or it is not all
            that the run's experiment says.
        UsageError: The run names a checker that is not installed.
    """
    context = context_from_facts(read_table(directory, "run_facts"))
    experiment, problem = _stored_experiment(directory)
    if context is None:
        if experiment is None:
            raise HistoryError(f"{directory} is not a run that can be judged: {problem}")
        context = promised_context(experiment)
    find_checkers(context.checkers)
    if not is_finished(directory):
        return without_end(context)
    _require_faults(directory)
    if experiment is not None:
        _require_all(directory, context, experiment)
    return context


def _stored_experiment(directory: Path) -> tuple[Experiment | None, str]:
    """Returns the experiment of a stored run, None with the reason if it cannot be read."""
    try:
        return experiments.load(RunFiles(directory).experiment), ""
    except UsageError as error:
        return None, str(error)


def _require_faults(directory: Path) -> None:
    """Raises HistoryError if a row calls a fault a repair, which would need no effect, or the other way round."""
    faults = read_table(directory, "faults")
    for row, (name, heals) in enumerate(
        zip(faults.column("fault").to_pylist(), faults.column("heals").to_pylist(), strict=True)
    ):
        if name in FAULTS and heals != FAULTS[name].is_repair:
            raise HistoryError(
                f"{directory}, table faults, row {row}: heals is {str(heals).lower()}, and {name} is"
                f" {'a repair' if FAULTS[name].is_repair else 'no repair'}; restore the file as the run wrote it"
            )


def _require_all(directory: Path, context: RunContext, experiment: Experiment) -> None:
    """Raises HistoryError if a finished history lacks what its experiment says, which no checker would notice."""
    promised = promised_context(experiment).checkers
    missing = [name for name in promised if name not in context.checkers]
    if missing:
        raise HistoryError(
            f"{directory}: run_facts leaves out the checkers {', '.join(missing)}, which experiment.toml asks for,"
            " so nothing would judge what they find; restore both files as the run wrote them, or record the run"
            " again if an older version stored it"
        )
    if not context.final_phase_complete or context.incomplete_reason:
        return  # it may have ended before it reached every partition
    files = [file for file in table_files(directory) if file.topic]
    found = {(file.topic, file.partition) for file in files}
    lacking = [place for place in experiment.topic.topic_partitions() if place not in found]
    if found and lacking:
        topic, partition = lacking[0]
        raise HistoryError(
            f"{directory}: the history has nothing of partition {topic}-{partition}, which experiment.toml has;"
            " restore the files as the run wrote them"
        )
    # The final phase reads every partition, unless the workload records no operations of partitions.
    touched = {file.topic for file in files if file.table in CLIENT_TABLES and file.rows}
    ignored = [topic for topic, _ in experiment.topic.topic_partitions() if topic not in touched]
    if touched and ignored:
        raise HistoryError(
            f"{directory}: the history has no operation of a client in the topic {ignored[0]}, which"
            " experiment.toml has; restore the files as the run wrote them"
        )
