"""kill -9 of the harness at random moments of runs in containers: the history survives, the next start heals.

Two kills are part of the tests; `LASTSTAND_KILLS=50 python -m pytest tests/containers/test_harness_killed.py` is
the long form.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness.campaigns import worker
from harness.environments.hosts import docker
from harness.environments.hosts.docker import LABEL_OWNER, LABEL_RUN, STATE_ROOT, is_owned
from harness.errors import HistoryError
from harness.runs import experiment_file as experiments
from harness.runs.check import check_locally
from nemesis.agent import state
from results.history_files import read_tables
from results.layout import RunFiles
from results.store import RunStore

KILLS = int(os.environ.get("LASTSTAND_KILLS", "2"))
LONGEST_S = 22.0
WORKLOAD_S = 10.0
BEGUN_BYTES = 50_000
"""Of the journals of a run whose workload is under way."""
SEED = 2026
EXPERIMENT = """
name = "killed-harness"
on = "docker"
timings = "fast"
duration_ms = 9000
[workload]
processes = 6
appends_per_s = 120.0
polls_per_s = 40.0
[[schedule]]
fault = "isolate"
targets = ["isr_follower:t-0"]
at_ms = 300
for_ms = 5000
[[schedule]]
fault = "pause"
targets = ["one"]
at_ms = 900
for_ms = 3000
[[schedule]]
fault = "power"
targets = ["leader:t-0"]
at_ms = 2000
for_ms = 2500
params = { mode = "prefix" }
[[schedule]]
fault = "stuck_disk"
targets = ["active_controller"]
at_ms = 3500
for_ms = 4000
[[schedule]]
fault = "delay"
targets = ["leader:t-0"]
at_ms = 4500
for_ms = 3500
params = { ms = 20 }
"""


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_killed_harness_loses_no_completed_operation_and_the_next_start_heals(
    engine: Any, tmp_path: Path
) -> None:
    path = tmp_path / "killed.toml"
    path.write_text(EXPERIMENT)
    draw = random.Random(SEED)
    completed = 0
    for number in range(KILLS):
        store = tmp_path / str(number)
        if number % 2:  # some time into the workload, however long this machine took to get there
            _run_and_kill(path, store, after_s=draw.random() * WORKLOAD_S, has_begun=True)
        else:
            _run_and_kill(path, store, after_s=1.5 + draw.random() * (LONGEST_S - 1.5))
        completed += _check_history(store)
    assert completed > 0, "no kill came late enough to prove anything"

    left = docker.remove_leftovers(engine)  # of the last kill; the next start does the same
    subprocess.run([sys.executable, "-m", "harness.cli", "reset"], check=True, capture_output=True)
    print(f"{KILLS} kills, {completed} completed operations, last left {len(left)} containers")
    assert what_is_left(engine) == []


@pytest.mark.slow
@pytest.mark.long
def test_a_run_of_a_campaign_that_hangs_and_is_killed_leaves_nothing(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit ends it in the middle of its faults, and it gets no time to clean up."""
    monkeypatch.setattr(worker, "STOP_S", 0.001)
    before = signal.signal(signal.SIGTERM, worker._interrupted)
    try:
        row = worker.run_real_seed_forked(
            {
                "experiment": experiments.to_data(experiments.loads(EXPERIMENT, origin="killed")),
                "seed": SEED,
                "arm": "hangs",
                "run": f"job-1/20260301T220000Z-{SEED}",
                "runs": str(tmp_path),
                "keep": True,
                "limit_s": 14.0,
            }
        )
    finally:
        signal.signal(signal.SIGTERM, before)
    assert row["error"] == (
        "the run did not end within 14 s, the limit for a run that hangs, nor within 0.001 s after SIGTERM, "
        "and was killed"
    )
    assert what_is_left(engine) == []


def _run_and_kill(path: Path, store: Path, after_s: float, has_begun: bool = False) -> None:
    command = [sys.executable, "-m", "harness.cli", "run", str(path), "--no-spark", "--quiet"]
    process = subprocess.Popen(
        [*command, "--results", str(store)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while has_begun and _journal_bytes(store) < BEGUN_BYTES and process.poll() is None:
        time.sleep(0.05)
    try:
        _, errors = process.communicate(timeout=after_s)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        return
    assert process.returncode in (0, 2), errors


def _journal_bytes(store: Path) -> int:
    return sum(one.stat().st_size for one in store.glob("*/*/history/*"))


def _check_history(store: Path) -> int:
    """Checks what a killed run left; returns how many operations had completed."""
    entries = RunStore(store).list() if store.exists() else []
    if not entries:
        return 0  # killed before there was a run
    (entry,) = entries
    try:
        (verdict,) = check_locally([entry.directory])
    except HistoryError:
        assert not RunFiles(entry.directory).verdict.exists()
        return 0  # killed before the first operation
    assert verdict["validity"] != "invalid", verdict["reasons"]
    operations = read_tables(entry.directory)["operations"].to_pylist()
    by_process: dict[int, list[dict[str, Any]]] = {}
    for row in operations:
        by_process.setdefault(row["process"], []).append(row)
    for rows in by_process.values():
        # A process begins an operation when the one before has completed, so all but its last one must have.
        assert all(row["completed_ns"] is not None for row in rows[:-1])
        appended = [row["sequence"] for row in rows if row["kind"] == "append"]
        assert (
            appended == list(range(appended[0], appended[0] + len(appended))) if appended else True
        )
    return sum(row["completed_ns"] is not None for row in operations)


def what_is_left(engine: Any) -> list[str]:
    """Returns everything of the project that is still on this machine without a living owner."""
    labelled = {"label": LABEL_RUN}
    containers = engine.containers.list(all=True, filters=labelled)
    living = {c.labels[LABEL_RUN] for c in containers if is_owned(c.labels[LABEL_OWNER])}
    dead_runs = state.leftovers(STATE_ROOT)
    left = [c.name for c in containers]
    left += [network.name for network in engine.networks.list(filters=labelled)]
    left += dead_runs
    mounts = Path("/proc/mounts").read_text().splitlines()
    left += [line for line in mounts if str(STATE_ROOT) in line]
    loops = json.loads(_output("losetup", "--json", "--list") or '{"loopdevices": []}')
    images = [d["back-file"].removesuffix(" (deleted)") for d in loops["loopdevices"]]
    # Hosts made of containers have such images too, at paths that mean nothing here.
    left += [image for image in images if str(STATE_ROOT) in image and Path(image).exists()]
    if not living:  # packet rules and agents do not name their owner
        left += [t for t in _output("nft", "list", "tables").splitlines() if "laststand" in t]
        left += _agents()
    return [thing for thing in left if not any(run in thing for run in living)]


def _agents() -> list[str]:
    found = []
    deadline_s = time.monotonic() + 5.0
    while time.monotonic() < deadline_s:
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            if b"nemesis.agent" in words or b"nemesis.agent.packets.network" in words:
                found.append(f"process {path.parent.name}")
        if not found:
            break
        time.sleep(0.1)
    return found


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
