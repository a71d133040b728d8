"""Campaigns in real environments: one run at a time, because concurrent runs would disturb each other's clocks.

Every run is stored like any other, below the campaign's folder, and judged before the next begins; a run that
fails becomes a row with an error.
"""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.campaigns.distribution import Campaign
from harness.campaigns.worker import SUMMARY_KEYS, failed_row
from harness.contracts.progress import ProgressDisplay
from harness.errors import HarnessError, HarnessFailure
from harness.runs import experiment_file as experiments
from harness.runs.judge import judge_result
from harness.runs.record import finish_run, record_run
from results.store import RunStore

RUNS_FOLDER = "runs"


def run_one_by_one(
    requests: Sequence[Mapping[str, Any]], progress: ProgressDisplay, directory: Path
) -> Campaign:
    """Runs every request in its real environment; same rows as a simulated campaign, without a trace hash."""
    store = RunStore(directory / RUNS_FOLDER)
    store.root.mkdir(parents=True, exist_ok=True)
    rows = []
    for done, request in enumerate(requests):
        progress.update("runs", done / len(requests), f"{done}/{len(requests)}")
        try:
            rows.append(_run(request, store))
        except (HarnessError, HarnessFailure) as error:
            rows.append(failed_row(request, str(error)))
    return Campaign(rows=rows)


def _run(request: Mapping[str, Any], store: RunStore) -> dict[str, Any]:
    began_s = time.perf_counter()
    experiment = experiments.from_data(request["experiment"])
    seed = request["seed"]
    directory, result = record_run(experiment, seed, store, now=datetime.now(UTC))
    verdict, summary = judge_result(experiment, seed, result)
    finish_run(directory, store.run_id(directory), verdict)
    row = {key: summary[key] for key in SUMMARY_KEYS}
    row.update(arm=request["arm"], error="", wall_s=time.perf_counter() - began_s)
    return row
