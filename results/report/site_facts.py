"""One stored run as the index of a run store shows it, and as it is compared with another run.

A damaged run is shown with what can be read: the index of a store must not depend on one file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from checkers.anomalies import ANOMALIES
from harness.errors import HistoryError
from results.history_files import read_table
from results.layout import RunFiles, parse_stamp
from results.report.fault_words import fault_sentence
from results.report.run import judgement_rank, numbers, parsed, seconds, texts
from results.store import RunEntry, read_json

SCHEDULE_MAX = 200
"""Faults of a run that a comparison shows."""

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
KINDS = ("append", "poll", "latest")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """One run in the index.

    Attributes:
        id: "<experiment>/<stamp>-<seed>".
        started: ISO date and time (UTC); empty if the name of the run has none.
        anomalies: Their ids with judgement and count, as one text each.
        reasons: Why the verdict is what it is.
        config: Keys of the experiment, dotted, with their values as text.
        schedule: Faults as sentences, in order of their times.
        latency_ms: By kind of operation, by quantile: of operations that were ok.
        report: Address of the report, relative to the index; empty if there is none.
    """

    id: str
    experiment: str
    seed: str
    started: str
    verdict: str
    lost: int
    system: str
    profile: str
    world: str
    operations: int
    faults: int
    anomalies: tuple[str, ...]
    reasons: tuple[str, ...]
    config: Mapping[str, str]
    schedule: tuple[str, ...]
    latency_ms: Mapping[str, Mapping[str, float]]
    report: str

    @property
    def words(self) -> str:
        """What a search looks at."""
        parts = (
            *(self.id, self.verdict, self.system, self.profile, self.world),
            *self.anomalies,
            *self.reasons,
        )
        return " ".join(parts).lower()


def run_facts(entry: RunEntry) -> RunFacts:
    """Reads what the index shows of a run."""
    files = RunFiles(entry.directory)
    summary = entry.summary
    replay = _json_or_empty(files, "replay")
    experiment = replay.get("experiment")
    version = str(summary.get("version", "") or "")
    return RunFacts(
        id=entry.id,
        experiment=entry.experiment,
        seed=entry.seed,
        started=started_text(entry.directory.name),
        verdict=entry.verdict,
        lost=entry.unexcused_lost_records,
        system=f"{summary.get('system', '')} {version}".strip(),
        profile=str(summary.get("profile", "")),
        world=str(summary.get("on", "")),
        operations=_count(summary.get("operations")),
        faults=_count(summary.get("faults")),
        anomalies=_anomalies(summary.get("anomalies")),
        reasons=tuple(str(reason) for reason in _list(summary.get("reasons"))),
        config=_flat(experiment if isinstance(experiment, Mapping) else {}),
        schedule=_schedule(entry),
        latency_ms=_latency_ms(entry),
        report=f"{entry.id}/{files.report.name}" if files.report.is_file() else "",
    )


def latency_ms(operations: pa.Table) -> dict[str, dict[str, float]]:
    """Returns quantiles of the latency of operations that were ok, by kind, in milliseconds."""
    kinds, outcomes = texts(operations, "kind"), texts(operations, "outcome")
    took_ns = numbers(operations, "completed_ns") - numbers(operations, "invoked_ns")
    found = {}
    for kind in KINDS:
        chosen = took_ns[(kinds == kind) & (outcomes == "ok")] / 1e6
        if len(chosen):
            values = np.quantile(chosen, list(QUANTILES.values()))
            found[kind] = {
                name: round(float(value), 3) for name, value in zip(QUANTILES, values, strict=True)
            }
    return found


def _latency_ms(entry: RunEntry) -> dict[str, dict[str, float]]:
    try:
        return latency_ms(read_table(entry.directory, "operations"))
    except HistoryError:
        return {}


def _schedule(entry: RunEntry) -> tuple[str, ...]:
    """Returns what the nemesis did, with the times of the run."""
    try:
        rows = read_table(entry.directory, "faults").to_pylist()
    except HistoryError:
        return ()
    sentences = []
    for row in rows[:SCHEDULE_MAX]:
        row["params"], row["evidence"] = parsed(row["params"]), parsed(row["evidence"])
        effect = "" if row["took_effect"] else " (did not take effect)"
        sentences.append(f"{seconds(row['invoked_ns'])}: {fault_sentence(row)}{effect}")
    if len(rows) > SCHEDULE_MAX:
        sentences.append(f"and {len(rows) - SCHEDULE_MAX} more")
    return tuple(sentences)


def _json_or_empty(files: RunFiles, name: str) -> Mapping[str, Any]:
    try:
        return read_json(getattr(files, name))
    except (FileNotFoundError, HistoryError):
        return {}


def started_text(name: str) -> str:
    """Returns date and time (UTC) of the stamp with which a name begins; empty if it has none."""
    try:
        return parse_stamp(name).strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return ""


def _anomalies(found: Any) -> tuple[str, ...]:
    """Returns anomalies with judgement and count, what matters most first."""
    known = list(ANOMALIES)
    anomalies = [one for one in _list(found) if isinstance(one, Mapping)]
    anomalies.sort(
        key=lambda one: (
            judgement_rank(one.get("judgement")),
            known.index(one["id"]) if one.get("id") in known else len(known),
        )
    )
    return tuple(
        f"{one.get('id')} ({one.get('judgement', 'unknown')}, {one.get('count', '?')})"
        for one in anomalies
    )


def _flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Returns nested tables with dotted keys; the schedule is compared apart."""
    flat: dict[str, str] = {}
    for key, value in data.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{name}.")
        elif name != "schedule":
            shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            flat[name] = shown.lower() if isinstance(value, bool) else shown
    return flat


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0
