"""Threads that are stopped while the others of their process go on."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from nemesis.agent.processes.signals import ProcessError, ProcessId, identify, wait_gone
from nemesis.agent.processes.threads import StoppedThreads

COUNTERS = """
import sys, threading, time
counts = {"apply": 0, "fetch": 0}
def count(name):
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as comm:
        comm.write(f"broker-{name}")
    while True:
        counts[name] += 1
        time.sleep(0.001)
for name in counts:
    threading.Thread(target=count, args=(name,), daemon=True).start()
for _ in sys.stdin:
    print(counts["apply"], counts["fetch"], flush=True)
"""
LIMIT_S = 30


class Counters:
    """A process with two threads that count."""

    def __init__(self) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-c", COUNTERS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.process: ProcessId = identify(self.child.pid)

    def read(self) -> tuple[int, int]:
        assert self.child.stdin is not None and self.child.stdout is not None
        self.child.stdin.write(b"\n")
        self.child.stdin.flush()
        apply, fetch = self.child.stdout.readline().split()
        return int(apply), int(fetch)

    def until(self, condition: Callable[[int, int], bool]) -> tuple[int, int]:
        deadline_s = time.monotonic() + LIMIT_S
        while not condition(*(counts := self.read())):
            assert time.monotonic() < deadline_s, counts
            time.sleep(0.005)
        return counts


@pytest.fixture
def counters() -> Iterator[Counters]:
    found = Counters()
    found.until(lambda apply, fetch: min(apply, fetch) > 0)
    try:
        yield found
    finally:
        found.child.kill()
        found.child.communicate()


def test_a_stopped_thread_stands_still_while_the_others_go_on(counters: Counters) -> None:
    stopped = StoppedThreads(counters.process, "broker-ap.*")
    assert stopped.evidence()["threads"] == ["broker-apply"]
    before, fetched = counters.read()
    after, _ = counters.until(lambda _, fetch: fetch > fetched + 20)
    assert after == before
    assert stopped.evidence()["stood_still"]
    stopped.end()
    counters.until(lambda apply, _: apply > after)
    assert not stopped.evidence()["stood_still"]
    stopped.end()


def test_a_process_with_stopped_threads_can_be_killed(counters: Counters) -> None:
    stopped = StoppedThreads(counters.process, "broker-.*")
    counters.child.send_signal(signal.SIGKILL)
    counters.child.wait(LIMIT_S)
    assert wait_gone(counters.process, LIMIT_S)
    assert not stopped.evidence()["stood_still"]
    stopped.end()


def test_what_cannot_be_stopped_is_refused_and_the_threads_go_on(counters: Counters) -> None:
    with pytest.raises(ProcessError, match="has no thread 'other'"):
        StoppedThreads(counters.process, "other")
    first = StoppedThreads(counters.process, "broker-apply")
    with pytest.raises(ProcessError, match="cannot be stopped: Operation not permitted"):
        StoppedThreads(counters.process, "broker-.*")
    _, fetched = counters.read()
    counters.until(lambda _, fetch: fetch > fetched)
    assert first.evidence()["stood_still"]
    first.end()
