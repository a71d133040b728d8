"""System calls that fail, lie or come late, injected into a real process by a tracer."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nemesis.agent.disks.tracing import Tracer, TracerBusyError
from nemesis.agent.errors import AgentError

LIMIT_S = 5.0
SYNCER = """
import os, sys, threading, time
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
def answer():
    for line in sys.stdin:
        began = time.monotonic()
        os.write(file, b"x")
        try:
            (os.fdatasync if line == "data\\n" else os.fsync)(file)
            number = 0
        except OSError as error:
            number = error.errno
        print(number, time.monotonic() - began, flush=True)
thread = threading.Thread(target=answer)
thread.start()
print("ready", flush=True)
thread.join()
"""


class Syncer:
    """A process whose second thread syncs a file on request."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SYNCER, os.fspath(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def sync(self, call: str = "whole") -> tuple[int, float]:
        """Returns the errno, and how many milliseconds it took."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{call}\n")
        self.process.stdin.flush()
        number, seconds = self.process.stdout.readline().split()
        return int(number), float(seconds) * 1000


@pytest.fixture
def syncer(tmp_path: Path) -> Iterator[Syncer]:
    if os.geteuid() != 0:
        pytest.skip("tracing another process needs root")
    if shutil.which("strace") is None:
        pytest.skip("the program strace is not installed")
    made = Syncer(tmp_path / "file")
    try:
        yield made
    finally:
        made.process.kill()
        made.process.communicate()


@pytest.fixture
def tracer() -> Iterator[Tracer]:
    made = Tracer()
    try:
        yield made
    finally:
        made.stop()


def tracer_of(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(next(line for line in text.splitlines() if line.startswith("TracerPid")).split()[1])


def wait_until_free(pid: int) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while tracer_of(pid):
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def test_syncs_fail_until_the_tracer_detaches(syncer: Syncer, tracer: Tracer) -> None:
    assert syncer.sync()[0] == 0
    tracer.start(syncer.process.pid, inject="fsync-error")
    assert [syncer.sync("data")[0], syncer.sync()[0]] == [errno.EIO] * 2
    tracer.stop()
    assert tracer.evidence() == {"calls": 2, "calls_seen": 2}
    assert syncer.sync()[0] == 0
    assert tracer_of(syncer.process.pid) == 0


def test_only_every_third_sync_fails(syncer: Syncer, tracer: Tracer) -> None:
    tracer.start(syncer.process.pid, inject="fsync-error", every=3)
    assert [syncer.sync()[0] for _ in range(6)] == [0, 0, errno.EIO, 0, 0, errno.EIO]
    tracer.stop()
    assert tracer.evidence() == {"calls": 2, "calls_seen": 6}


def test_syncs_take_longer(syncer: Syncer, tracer: Tracer) -> None:
    tracer.start(syncer.process.pid, inject="fsync-delay", delay_ms=60)
    number, took_ms = syncer.sync()
    assert number == 0
    assert 60 <= took_ms < 2000
    tracer.stop()
    assert tracer.evidence()["calls"] == 1


def test_syncs_can_report_success_without_syncing(syncer: Syncer, tracer: Tracer) -> None:
    tracer.start(syncer.process.pid, inject="fsync-lies")
    assert syncer.sync()[0] == 0
    tracer.stop()
    assert tracer.evidence()["calls"] == 1


def test_a_process_has_one_tracer(syncer: Syncer, tracer: Tracer) -> None:
    tracer.start(syncer.process.pid, inject="fsync-error")
    with pytest.raises(TracerBusyError, match="being traced already"):
        Tracer().start(syncer.process.pid, inject="fsync-delay", delay_ms=1)
    assert syncer.sync()[0] == errno.EIO


def test_a_stopped_process_stays_stopped(syncer: Syncer, tracer: Tracer) -> None:
    syncer.process.send_signal(signal.SIGSTOP)
    tracer.start(syncer.process.pid, inject="fsync-error")
    tracer.stop()
    time.sleep(0.05)
    state = Path(f"/proc/{syncer.process.pid}/stat").read_text(encoding="ascii").split(") ")[1][0]
    assert state in "Tt"
    syncer.process.send_signal(signal.SIGCONT)
    assert syncer.sync()[0] == 0


def test_ending_the_agent_detaches_its_tracers(syncer: Syncer) -> None:
    agent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time\nfrom nemesis.agent.disks.tracing import Tracer\n"
            "tracer = Tracer()\ntracer.start(int(sys.argv[1]), inject='fsync-error')\n"
            "print('traced', flush=True)\ntime.sleep(60)",
            str(syncer.process.pid),
        ],
        stdout=subprocess.PIPE,
    )
    try:
        assert agent.stdout is not None
        assert agent.stdout.readline() == b"traced\n"
        assert syncer.sync()[0] == errno.EIO
        agent.kill()
        agent.wait()
        wait_until_free(syncer.process.pid)
        assert syncer.sync()[0] == 0
    finally:
        agent.kill()
        agent.communicate()


def test_the_end_of_the_process_ends_the_tracer(syncer: Syncer, tracer: Tracer) -> None:
    tracer.start(syncer.process.pid, inject="fsync-error")
    assert syncer.sync()[0] == errno.EIO
    syncer.process.kill()
    syncer.process.wait()
    began_s = time.monotonic()
    tracer.stop()
    tracer.stop()
    assert time.monotonic() - began_s < LIMIT_S
    assert tracer.evidence()["calls"] == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"inject": "fsync-maybe"}, "fsync-error, fsync-delay, fsync-lies"),
        ({"inject": "fsync-delay"}, "longer than 0 ms"),
        ({"inject": "fsync-error", "every": 0}, "1 or more"),
    ],
)
def test_a_fault_that_cannot_be_injected_is_reported(
    arguments: dict[str, object], words: str
) -> None:
    with pytest.raises(AgentError, match=words):
        Tracer().start(os.getpid(), **arguments)  # type: ignore[arg-type]


def test_tracing_a_process_that_does_not_exist_is_refused(syncer: Syncer) -> None:
    syncer.process.kill()
    syncer.process.wait()
    with pytest.raises(AgentError, match="there is no process"):
        Tracer().start(syncer.process.pid, inject="fsync-error")
