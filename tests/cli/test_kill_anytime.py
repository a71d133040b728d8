"""kill -9 of `laststand run` at any moment leaves a history that is accepted up to the last whole record.

Starting Python and Arrow takes longer than the run itself, so a warmed-up process forks one child per attempt;
the child executes the real command, and is killed after a random part of the time that a whole run takes; every
fourth one as soon as its history is finished, and every fourth one as soon as its journal has rows. The run is
a function of its seed, so the surviving rows can be compared with those of a complete run.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from harness.errors import HistoryError
from harness.history.journal import INVOCATIONS, journal_path
from harness.runs.check import check_locally
from results.history_files import is_finished, read_tables
from results.layout import RunFiles
from results.store import RunStore

ROOT = Path(__file__).parents[2]
DIED = "the run ended early: the harness died before the run was over"
KILLS = int(os.environ.get("LASTSTAND_KILLS", "12"))
"""`make test-all` does more of them."""
LIMIT_S = 300 + 10 * KILLS
"""For all kills; one takes about a second."""
# The fixture kills many runs; one worker is enough.
pytestmark = [pytest.mark.xdist_group("kill-anytime"), pytest.mark.timeout(LIMIT_S)]

EXPERIMENT = """
name = "killed"
weather = "calm"
duration_ms = 1500
[workload]
processes = 8
appends_per_s = 400.0
polls_per_s = 60.0
[[schedule]]
fault = "isolate"
targets = ["isr_follower:t-0"]
at_ms = 400
for_ms = 600
"""
KILLER = """
import json, os, random, signal, sys, time
from pathlib import Path
from harness.cli.main import main
from harness.history.journal import journal_path
from harness.runs.check import check_locally
from harness.runs.experiment_file import load
from harness.runs.simulated import check_possible
import harness.runs.execute
import results.report.terminal
from results.history_files import is_finished

experiment, results, kills = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])

def has_rows(run):
    try:
        return journal_path(run).stat().st_size > 100_000
    except FileNotFoundError:
        return False

CONDITIONS = {1: has_rows, 3: is_finished}

def start(number):
    child = os.fork()
    if child == 0:
        arguments = ["run", experiment, "--no-spark", "--quiet", "--json", "--results", str(results / str(number))]
        code = 99
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            code = main(arguments)
        finally:
            os._exit(code)
    return child

check_possible(load(Path(experiment)), 1)  # everything that a run needs is imported before the first fork
took_s = []
for number in ("whole-1", "whole-2"):
    began = time.monotonic()
    _, status = os.waitpid(start(number), 0)
    took_s.append(time.monotonic() - began)
    assert os.waitstatus_to_exitcode(status) == 0, status
draw = random.Random(2026)
ends = []
for number in range(kills):
    child = start(number)
    ended, status = 0, 0
    if number % 4 in CONDITIONS:
        is_time = CONDITIONS[number % 4]
        while not ended and not any(map(is_time, (results / str(number)).glob("killed/*"))):
            ended, status = os.waitpid(child, os.WNOHANG)
            time.sleep(0.002)
    else:
        time.sleep(draw.random() * min(took_s))
    if not ended:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    ends.append(os.waitstatus_to_exitcode(status))
print(json.dumps(ends))
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """The folder of all stores, one per attempt, and how each attempt ended."""
    root = tmp_path_factory.mktemp("killed")
    experiment = root / "killed.toml"
    experiment.write_text(EXPERIMENT)
    finished = subprocess.run(
        [sys.executable, "-c", KILLER, str(experiment), str(root), str(KILLS)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    ends: list[int] = json.loads(finished.stdout.splitlines()[-1])
    return root, ends


def run_of(store: Path) -> Path | None:
    """The only run of a store; None if the command was killed before it created one."""
    entries = RunStore(store).list()
    assert len(entries) <= 1
    return entries[0].directory if entries else None


def is_prefix(part: pa.Table, whole: pa.Table) -> bool:
    return bool(part.equals(whole.slice(0, part.num_rows)))


def expected_prefix(part: dict[str, pa.Table], whole: dict[str, pa.Table]) -> None:
    """Asserts that the recorded rows are a prefix of those of a complete run."""
    invocations = INVOCATIONS.names
    operations = part["operations"]
    assert is_prefix(operations.select(invocations), whole["operations"].select(invocations))
    ended = operations.to_pylist()
    truth: list[dict[str, Any]] = whole["operations"].slice(0, len(ended)).to_pylist()
    for row, true in zip(ended, truth, strict=True):
        assert row == true or (row["outcome"] == "info" and row["completed_ns"] is None)
    for name in ("partition_states", "broker_states", "replica_states", "violations", "marks"):
        assert is_prefix(part[name], whole[name]), name
    unfinished = {"final_phase_complete", "incomplete_reason", "healed_ns", "ended_ns"}
    promised = [name for name in part["run_facts"].column_names if name not in unfinished]
    assert is_prefix(part["run_facts"].select(promised), whole["run_facts"].select(promised))


def test_a_run_killed_at_any_moment_leaves_a_history_that_check_accepts(
    killed: tuple[Path, list[int]],
) -> None:
    root, ends = killed
    whole_run = run_of(root / "whole-1")
    assert whole_run is not None
    whole = read_tables(whole_run)
    seen = {"no run": 0, "no journal": 0, "journal": 0, "rows in a journal": 0, "finished": 0}
    for number, end in enumerate(ends):
        assert end in (-9, 0), "killed, or finished a little earlier than the others"
        run = run_of(root / str(number))
        if run is None:
            seen["no run"] += 1
            continue
        if not is_finished(run) and not journal_path(run).exists():
            with pytest.raises(HistoryError):
                check_locally([run])
            seen["no journal"] += 1
            continue
        (verdict,) = check_locally([run])
        assert verdict["validity"] in ("valid", "unknown"), verdict["reasons"]
        tables = read_tables(run)
        expected_prefix(tables, whole)
        if is_finished(run):
            assert tables["operations"].equals(whole["operations"])
            seen["finished"] += 1
        else:
            assert verdict["validity"] == "unknown"
            assert DIED in verdict["reasons"]
            seen["journal"] += 1
            seen["rows in a journal"] += tables["operations"].num_rows > 0
    # If the kills are not spread over the whole run, this test proves little.
    assert seen["journal"] >= KILLS / 10, seen
    assert seen["rows in a journal"] >= KILLS / 20, seen
    assert seen["finished"] >= KILLS / 20, seen


def test_a_killed_run_never_has_a_damaged_summary(killed: tuple[Path, list[int]]) -> None:
    """Every JSON file is written in one step: it is complete or missing."""
    root, ends = killed
    for number in range(len(ends)):
        run = run_of(root / str(number))
        if run is not None:
            files = RunFiles(run)
            for path in (files.run, files.verdict, files.replay):
                if path.exists():
                    assert isinstance(json.loads(path.read_text()), dict)


def test_two_complete_runs_are_the_same(killed: tuple[Path, list[int]]) -> None:
    root, _ = killed
    first, second = (run_of(root / name) for name in ("whole-1", "whole-2"))
    assert first is not None
    assert second is not None
    assert read_tables(first) == read_tables(second)
