"""What a run is judged by, and its summary.

The context (what the configuration promises, whether the final phase ended) is stored in `run.json` next to the
history, so that `laststand check` judges a stored run by the same promises, on Spark or not, today or in a year.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pyarrow as pa

from checkers.compose import RunContext, judge_run
from harness.contracts.verdict import Verdict
from harness.errors import HistoryError, UsageError
from harness.runs import experiment_file as experiments
from harness.runs.experiment import Experiment
from harness.runs.result import RunResult
from results.layout import RunFiles
from results.store import read_json

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
    context = run_context(experiment, result)
    verdict = judge_run(result.tables, context)
    return verdict, summarize(experiment, seed, result, context, verdict)


def run_context(experiment: Experiment, result: RunResult) -> RunContext:
    """Returns what a simulated run declares about itself."""
    base = _configured(experiment)
    enabled = {
        row["fault"]
        for row in result.tables["faults"].to_pylist()
        if row["resolved"] or "error" in json.loads(row["evidence"])
    }
    return RunContext(
        **{
            **base,
            "enabled_faults": tuple(sorted(enabled)),
            "final_phase_complete": result.final_phase_complete,
            "invariants_broken": tuple(result.violations),
            "incomplete_reason": result.stuck,
        }
    )


def summarize(
    experiment: Experiment,
    seed: int,
    result: RunResult,
    context: RunContext,
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
        **verdict_summary(verdict),
        "trace_hash": result.trace_hash,
        "unavailable_ms": unavailable_ms(result.tables),
        "elapsed_ms": result.elapsed_ms,
        "operations": result.tables["operations"].num_rows,
        "faults": result.tables["faults"].num_rows,
        "counters": dict(result.counters),
        "marks": dict(sorted(marks.items())[:MARK_COUNT_MAX]),
        "violations": list(result.violations),
        "on": experiment.on,
        "environment": result.environment,
        "context": asdict(context),
    }


def verdict_summary(verdict: Verdict | None) -> dict[str, Any]:
    """Returns the part of a summary that says how the run was judged."""
    if verdict is None:
        return {"verdict": UNCHECKED}
    return {
        "verdict": str(verdict.validity),
        "reasons": list(verdict.reasons),
        "unexcused_lost_records": verdict.unexcused_lost_records,
        "excused_lost_records": verdict.excused_lost_records,
        "anomalies": anomaly_counts(verdict),
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

    A run whose harness died has no context: it is judged by its experiment, with the final phase incomplete.

    Raises:
        HistoryError: Neither run.json nor experiment.toml can be read.
    """
    files = RunFiles(directory)
    try:
        stored = read_json(files.run).get("context")
    except FileNotFoundError:
        stored = None
    if stored is None:
        return _context_of_unfinished(directory)
    if not isinstance(stored, dict) or not all(_fits(key, stored[key]) for key in stored):
        raise HistoryError(f"{files.run} has no context that this version can read")
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in stored.items()
    }
    return RunContext(**values)


def _fits(name: str, value: Any) -> bool:
    """Whether a context that was read may have this value."""
    known = {item.name: item.default for item in fields(RunContext)}
    if name not in known:
        return False
    default = known[name]
    if name == "enabled_faults" and value is None:
        return True
    if default is None or isinstance(default, tuple):
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return type(value) is type(default)


def _context_of_unfinished(directory: Path) -> RunContext:
    files = RunFiles(directory)
    try:
        experiment = experiments.load(files.experiment)
    except UsageError as error:
        raise HistoryError(f"{directory} is no run that can be judged: {error}") from None
    return RunContext(
        **{
            **_configured(experiment),
            "final_phase_complete": False,
            "incomplete_reason": "the harness died before the run was over",
        }
    )


def _configured(experiment: Experiment) -> dict[str, Any]:
    promises = experiment.system_under_test.profiles[experiment.profile]
    return {
        "profile": experiment.profile,
        "elr_on": promises.elr_on,
        "min_isr": min(experiment.topic.min_insync_replicas, experiment.topic.replication_factor),
        "replication_factor": experiment.topic.replication_factor,
        "unclean_election_enabled": experiment.cluster.unclean_leader_election,
        # A script makes a partition unavailable on purpose.
        "acked_during_faults_min": 0 if experiment.scenario else 1,
    }
