"""Shrinks the new findings of a night, so that its page links a small run of each.

Only findings of the simulation are shrunk, each from the first of its examples that is stored. They share the
time: each gets an equal part of what the ones before it left. A finding that cannot be shrunk stays as it is.
"""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.campaigns.files import RUNS_FOLDER, SHRUNK_PREFIX
from harness.campaigns.night_result import shrunk_run
from harness.campaigns.shrinking.shrunk import Limits, Shrunk, shrink, store_shrunk
from harness.campaigns.shrinking.source import Source, load_source
from harness.campaigns.triage import NEW
from harness.contracts.progress import ProgressDisplay
from harness.environments.registry import ENVIRONMENTS
from harness.errors import HarnessError, HarnessFailure
from results.store import RunStore

FINDING_S_MIN = 5.0
"""With less time than this, the first trials would not even end."""

Search = Callable[[Source, Limits, ProgressDisplay], Shrunk]


def shrink_new_findings(
    result: Mapping[str, Any],
    directory: Path,
    *,
    jobs: int,
    budget_s: float,
    progress: ProgressDisplay,
    search: Search = shrink,
) -> int:
    """Shrinks the new findings of a night that were not shrunk yet.

    Args:
        result: The result of the night (`harness.campaigns.night_result`).
        directory: The night's directory; the shrunk runs are stored among its runs.
        jobs: How many trials run at once.
        budget_s: How long all of it may take.
        progress: Shows how far it is.
        search: Finds the smallest run; for tests.

    Returns:
        How many were shrunk.

    Raises:
        KeyboardInterrupt: It was interrupted; the finding that was being shrunk is stored as far as it came.
    """
    ends_s = time.monotonic() + budget_s
    waiting = [one for one in result["findings"] if _can_be_shrunk(one, directory)]
    done = 0
    while waiting:
        share_s = (ends_s - time.monotonic()) / len(waiting)
        if share_s < FINDING_S_MIN:
            progress.message(f"no time is left to shrink {len(waiting)} new findings")
            break
        finding = waiting.pop(0)
        try:
            shrunk = _shrink_one(
                finding, directory, Limits(jobs=jobs, budget_s=share_s), progress, search
            )
        except (HarnessError, HarnessFailure) as error:
            progress.message(f"{finding['signature']} is not shrunk: {error}")
            continue
        done += 1
        if shrunk.was_interrupted:
            raise KeyboardInterrupt
    return done


def _can_be_shrunk(finding: Mapping[str, Any], directory: Path) -> bool:
    """Whether a finding is new, was found by a stored simulated run, and was not shrunk before."""
    return (
        finding["status"] == NEW
        and _example(finding) is not None
        and shrunk_run(directory, finding["signature"]) is None
    )


def _example(finding: Mapping[str, Any]) -> Mapping[str, Any] | None:
    for example in finding["examples"]:
        environment = ENVIRONMENTS.get(str(example["world"]))
        if example["run"] and environment is not None and environment.is_simulated:
            found: Mapping[str, Any] = example
            return found
    return None


def _shrink_one(
    finding: Mapping[str, Any],
    directory: Path,
    limits: Limits,
    progress: ProgressDisplay,
    search: Search,
) -> Shrunk:
    example = _example(finding)
    assert example is not None
    signature = str(finding["signature"])
    run = Path(example["run"])
    store = RunStore(directory / RUNS_FOLDER)
    source = load_source(run, store.run_id(run), signature=signature)
    progress.message(f"shrinking {signature}: {finding['title']}")
    shrunk = search(source, limits, progress)
    store_shrunk(shrunk, store, now=datetime.now(UTC), folder=f"{SHRUNK_PREFIX}{signature}")
    return shrunk
