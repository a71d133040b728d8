"""SIGTERM, which CI systems send, acts like SIGINT: the command cleans up and exits with 255."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.cli_helpers import write

FAILURE = 255
UNKNOWN = 2
LOCAL = """
name = "interrupted"
on = "local"
timings = "fast"
duration_ms = 60000
[workload]
processes = 2
"""


class Commands:
    """Starts commands, and stops those that a failed test left running."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[str]] = []

    def __call__(self, *arguments: object, ignores_sigint: bool = False) -> "subprocess.Popen[str]":
        def ignore() -> None:
            signal.signal(signal.SIGINT, signal.SIG_IGN)

        process = subprocess.Popen(
            [sys.executable, "-m", "harness.cli", *(str(argument) for argument in arguments)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=ignore if ignores_sigint else None,
        )
        self._processes.append(process)
        return process

    def stop(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.terminate()
                process.communicate(timeout=60)


@pytest.fixture
def started() -> Iterator[Commands]:
    commands = Commands()
    yield commands
    commands.stop()


def run_module(tmp_path: Path, code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs code as `python -m`; it must end within two minutes."""
    write(tmp_path / "made_up.py", code)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    return subprocess.run(
        [sys.executable, "-m", "made_up", *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def wait_for(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def processes_with(word: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in path.read_bytes() and path.parent.name != str(os.getpid()):
                found.append(path.parent.name)
        except OSError:
            continue
    return found


@pytest.mark.wire
@pytest.mark.parametrize(
    "ignores_sigint",
    [
        pytest.param(False, id="shell", marks=pytest.mark.long),
        pytest.param(True, id="background-job"),
    ],
)
def test_a_terminated_run_ends_its_nodes(
    started: Commands, tmp_path: Path, ignores_sigint: bool
) -> None:
    path = write(tmp_path / "long.toml", LOCAL)
    store = tmp_path / "runs"
    run = started(
        "run", path, "--no-spark", "--quiet", "--results", store, ignores_sigint=ignores_sigint
    )
    wait_for(lambda: any(one.stat().st_size for one in store.glob("*/*/nodes/b1/events.jsonl")))
    assert len(processes_with(str(store))) > 1
    run.send_signal(signal.SIGTERM)
    time.sleep(0.05)
    run.send_signal(signal.SIGTERM)  # as `timeout` does
    _, output = run.communicate(timeout=60)
    assert (run.returncode, output) == (FAILURE, "laststand: interrupted\n")
    assert processes_with(str(store)) == []


def test_a_terminated_campaign_does_not_wait_for_its_workers(
    started: Commands, tmp_path: Path
) -> None:
    words = ("swarm", "--seeds", 100_000, "--no-spark", "--results", tmp_path / "runs")
    run = started(*words)
    wait_for(lambda: any(one.stat().st_size for one in tmp_path.rglob("rows.jsonl")))
    run.send_signal(signal.SIGTERM)
    _, output = run.communicate(timeout=30)
    assert run.returncode == FAILURE
    assert "laststand: interrupted" in output
    assert "100000 runs in" not in output, "they are not all done"


def test_an_interrupt_during_exec_has_the_same_exit_code(tmp_path: Path) -> None:
    code = """
import sys
from harness.cli import main
from harness.cli.commands import doctor

def interrupted(options):
    exec("interrupt()")

def interrupt():
    raise KeyboardInterrupt

doctor.doctor = interrupted
sys.exit(main.main(["doctor"]))
"""
    done = run_module(tmp_path, code)
    assert (done.returncode, done.stderr) == (FAILURE, "laststand: interrupted\n")


def test_a_client_that_blocks_for_ever_does_not_keep_the_process(tmp_path: Path) -> None:
    code = """
import threading
from concurrent.futures import ThreadPoolExecutor
from harness.cli import main
from harness.cli.commands import doctor

def run_with_a_client_that_blocks(options):
    ThreadPoolExecutor(1).submit(threading.Event().wait)
    return 2

main.LEAVE_S = 0.1
doctor.doctor = run_with_a_client_that_blocks
main.console()
"""
    assert run_module(tmp_path, code, "doctor").returncode == UNKNOWN
