"""What is judged of a simulated run, kept in a directory if one is named.

Nearly all of the time of a case is its simulation. `LASTSTAND_EVIDENCE_RUNS=DIR` keeps what was recorded, so that
a changed kernel judges the same runs in a twentieth of the time. A run is found by the code that ran, by its
experiment and by its seed. One in a hundred is simulated nevertheless, and must be the same.
"""

import hashlib
import io
import json
import os
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyarrow.parquet as pq

from harness.history.schema import TABLES
from harness.history.writer import HistoryWriter
from harness.runs import experiment_file
from harness.runs.experiment import Experiment
from harness.runs.result import RunResult
from harness.runs.simulated import SimulatedRun
from tests.evidence.kept_records import missing_records
from tests.evidence.meaning import digest

DIRECTORY = "LASTSTAND_EVIDENCE_RUNS"
SIMULATED_AGAIN_EVERY = 100
_FACTS = "facts.json"
_WHAT_RUNS = (
    "system_under_test",
    "nemesis",
    "workloads",
    "harness/contracts",
    "harness/environments/simulated",
    "harness/history",
    "harness/runs",
    "harness/simulation",
    "harness/systems/reference",
    "tests/evidence/kept_records.py",
    "tests/evidence/recorded_runs.py",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """A run that ended.

    Attributes:
        result: What it left behind; of a run that was kept, the tables, `stuck` and the trace hash.
        missing: What `missing_records` found on the disks; None too if the run is stuck.
    """

    result: RunResult
    missing: int | None


class DifferentRunError(Exception):
    """A kept run is not the one that the same code gives now."""


def recorded_run(experiment: Experiment, seed: int) -> RecordedRun:
    """Returns a run that is kept, or simulates it.

    Args:
        experiment: As the seed resolved it.
        seed: Of the run.

    Raises:
        DifferentRunError: A run that is kept was simulated again and is another one.
    """
    if not (directory := os.environ.get(DIRECTORY)):
        return simulated_run(experiment, seed)
    path = Path(directory) / _text_of_runs() / f"{_digest_of(experiment)}-{seed}.zip"
    kept = _read(path)
    if kept is not None and seed % SIMULATED_AGAIN_EVERY:
        return kept
    run = simulated_run(experiment, seed)
    if kept is not None and kept.result.trace_hash != run.result.trace_hash:
        raise DifferentRunError(f"{path} holds another run than seed {seed} gives now; remove it")
    if kept is None:
        _write(path, run)
    return run


def simulated_run(experiment: Experiment, seed: int) -> RecordedRun:
    """Returns a run that is simulated, and keeps nothing."""
    run = SimulatedRun(experiment, seed, HistoryWriter(None))
    result = run.run()
    return RecordedRun(result=result, missing=None if result.stuck else missing_records(run))


@cache
def _text_of_runs() -> str:
    return digest(_WHAT_RUNS)


def _digest_of(experiment: Experiment) -> str:
    text = json.dumps(experiment_file.to_data(experiment), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _read(path: Path) -> RecordedRun | None:
    """Returns what a file holds; None if there is none, or none that was written to its end."""
    try:
        with zipfile.ZipFile(path) as file:
            facts = json.loads(file.read(_FACTS))
            tables = {
                name: pq.read_table(io.BytesIO(file.read(name)), schema=TABLES[name])
                for name in facts["tables"]
            }
    except (FileNotFoundError, zipfile.BadZipFile):
        return None
    result = RunResult(tables=tables, stuck=facts["stuck"], trace_hash=facts["trace_hash"])
    return RecordedRun(result=result, missing=facts["missing"])


def _write(path: Path, run: RecordedRun) -> None:
    facts = {
        "tables": list(run.result.tables),
        "stuck": run.result.stuck,
        "trace_hash": run.result.trace_hash,
        "missing": run.missing,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    with zipfile.ZipFile(partial, "w") as file:
        file.writestr(_FACTS, json.dumps(facts))
        for name, table in run.result.tables.items():
            data = io.BytesIO()
            pq.write_table(table, data, compression="zstd")
            file.writestr(name, data.getvalue())
    partial.replace(path)
