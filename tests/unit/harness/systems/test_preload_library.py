"""The library that makes a foreign program a node, with programs of this machine."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.contracts.system import EVENTS_FILE
from harness.errors import UsageError
from harness.systems.preload import library as preload
from nemesis.agent.node import SKEW_FILE
from system_under_test.real.clock import write_skew
from system_under_test.real.events import Event, parse_event

HOUR_NS = 3_600_000_000_000
CLOCKS = """
import sys, time
for _ in sys.stdin:
    print(time.time_ns(), time.monotonic_ns(), flush=True)
"""
WAITS = """
#include <pthread.h>
#include <stdio.h>
#include <time.h>
int main(void) {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    struct timespec until;
    pthread_mutex_lock(&mutex);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 200000000;
    if (until.tv_nsec >= 1000000000) { until.tv_sec++; until.tv_nsec -= 1000000000; }
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    pthread_cond_timedwait(&condition, &mutex, &until);
    clock_gettime(CLOCK_MONOTONIC, &after);
    long long ns = (after.tv_sec - before.tv_sec) * 1000000000LL + after.tv_nsec - before.tv_nsec;
    printf("%lld\\n", ns);
    return 0;
}
"""


@pytest.fixture(scope="module")
def library() -> Path:
    if not (shutil.which("cc") or shutil.which("gcc")):
        pytest.skip("there is no C compiler")
    return preload.build_library()


class Program:
    """A Python program that prints what its clocks show whenever it is asked."""

    def __init__(self, library: Path, directory: Path) -> None:
        self.skew = directory / SKEW_FILE
        self.events = directory / EVENTS_FILE
        # The interpreter itself: a script that starts it would be a second program with the library.
        self._process = subprocess.Popen(
            [os.path.realpath(sys.executable), "-I", "-c", CLOCKS],
            env={**os.environ, **preload.variables(library, str(directory), "b1")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ahead_ns(self) -> tuple[int, int]:
        """Returns how far its wall clock and its monotonic clock are ahead of this process's."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        wall_ns, monotonic_ns = time.time_ns(), time.monotonic_ns()
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        wall, monotonic = map(int, self._process.stdout.readline().split())
        return wall - wall_ns, monotonic - monotonic_ns

    def readings(self) -> list[Event]:
        """Returns what it has reported so far."""
        return [parse_event(line) for line in self.events.read_bytes().splitlines()]

    def end(self) -> None:
        """Ends it."""
        self._process.communicate()


@pytest.fixture
def program(library: Path, tmp_path: Path) -> Iterator[Program]:
    made = Program(library, tmp_path)
    yield made
    made.end()


def test_a_program_without_skew_shows_the_true_time(program: Program) -> None:
    wall_ns, monotonic_ns = program.ahead_ns()
    assert 0 <= wall_ns < HOUR_NS / 60
    assert 0 <= monotonic_ns < HOUR_NS / 60


@pytest.mark.parametrize("hours", [1, -1])
def test_a_step_moves_the_wall_clock_only_until_it_is_healed(program: Program, hours: int) -> None:
    program.ahead_ns()
    write_skew(program.skew, offset_ns=hours * HOUR_NS)
    wall_ns, monotonic_ns = program.ahead_ns()
    assert abs(wall_ns - hours * HOUR_NS) < HOUR_NS / 60
    assert abs(monotonic_ns) < HOUR_NS / 60
    write_skew(program.skew)
    assert abs(program.ahead_ns()[0]) < HOUR_NS / 60


def test_a_rate_makes_the_wall_clock_gain_time(program: Program) -> None:
    program.ahead_ns()
    # A thousand times too fast: the difference outweighs any delay of this test.
    write_skew(program.skew, rate_ppb=1000 * 10**9)
    first, _ = program.ahead_ns()
    began_ns = time.monotonic_ns()
    while time.monotonic_ns() - began_ns < 50_000_000:
        time.sleep(0.01)
    second, _ = program.ahead_ns()
    assert second - first > 900 * 50_000_000


def test_the_program_itself_reports_what_its_clocks_show(program: Program) -> None:
    program.ahead_ns()
    write_skew(program.skew, offset_ns=HOUR_NS)
    deadline_s = time.monotonic() + 60
    while not (
        program.events.exists() and program.readings()[-1:] and _is_ahead(program.readings()[-1])
    ):
        assert time.monotonic() < deadline_s, "it reports no step"
        time.sleep(0.02)
    last = program.readings()[-1]
    assert (last.node, last.event) == ("b1", "clock")
    assert abs(last.fields["monotonic_ns"] - last.at_ns) < HOUR_NS / 60


def _is_ahead(event: Event) -> bool:
    true_ms = (time.time_ns() - time.monotonic_ns() + event.at_ns) / 1e6
    return abs(event.fields["wall_ms"] - true_ms - HOUR_NS / 1e6) < HOUR_NS / 6e7


@pytest.mark.parametrize("hours", [1, -1])
def test_a_wait_for_a_moment_of_the_wall_clock_takes_as_long_as_without_skew(
    library: Path, tmp_path: Path, hours: int
) -> None:
    source, waits = tmp_path / "waits.c", tmp_path / "waits"
    source.write_text(WAITS, encoding="utf-8")
    subprocess.run(["cc", "-o", str(waits), str(source), "-lpthread"], check=True)
    write_skew(tmp_path / SKEW_FILE, offset_ns=hours * HOUR_NS)
    environment = {**os.environ, **preload.variables(library, str(tmp_path), "b1")}
    done = subprocess.run(
        [str(waits)], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    # Not at once, as with a wait that had passed already, and not in an hour.
    assert int(done.stdout) >= 190_000_000


def test_a_program_without_the_variables_reports_nothing(library: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    done = subprocess.run(
        ["/bin/date", "+%s"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert abs(int(done.stdout) - time.time()) < 60
    assert list(tmp_path.iterdir()) == []


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LASTSTAND_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(UsageError, match="need a C compiler; install"):
        preload.build_library()
    monkeypatch.setenv("CC", "/bin/false")
    with pytest.raises(UsageError, match="/bin/false cannot build the library"):
        preload.build_library()
    assert preload.find_library() is None
    assert not list((tmp_path / "cache").rglob("*.so*"))


# --- the address from which a program connects ---

CONNECTS = """
import socket, sys
family, host, port, own = socket.AddressFamily(int(sys.argv[1])), sys.argv[2], int(sys.argv[3]), sys.argv[4]
with socket.socket(family, socket.SOCK_STREAM) as connection:
    if own:
        connection.bind((own, 0))
    connection.connect((host, port))
    print(connection.getsockname()[0])
"""


@pytest.mark.parametrize(
    ("family", "host", "own", "source", "seen"),
    [
        (socket.AF_INET, "127.0.0.1", "", "127.0.0.5", "127.0.0.5"),
        (socket.AF_INET6, "::ffff:127.0.0.1", "", "127.0.0.5", "127.0.0.5"),
        (socket.AF_INET, "127.0.0.1", "127.0.0.7", "127.0.0.5", "127.0.0.7"),
        (socket.AF_INET, "127.0.0.1", "", "", "127.0.0.1"),
        (socket.AF_INET, "127.0.0.1", "", "198.51.100.9", "127.0.0.1"),
        (socket.AF_INET, "127.0.0.1", "", "nonsense", "127.0.0.1"),
    ],
)
def test_a_connection_comes_from_the_node_s_address(
    library: Path,
    tmp_path: Path,
    family: socket.AddressFamily,
    host: str,
    own: str,
    source: str,
    seen: str,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        variables = preload.variables(library, str(tmp_path), "b1", source=source)
        words = [sys.executable, "-c", CONNECTS, str(int(family)), host, str(port), own]
        done = subprocess.run(
            words, env={**os.environ, **variables}, capture_output=True, text=True, check=True
        )
        accepted, (address, _) = server.accept()
        accepted.close()
    assert done.stdout.strip().removeprefix("::ffff:") == seen == address
