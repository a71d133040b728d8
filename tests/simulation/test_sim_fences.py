"""Every leak of nondeterminism that can be fenced has a fence, and the fence fires."""

import ast
import logging
import os
import random
import secrets
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.simulation.clock import TRUE_EPOCH_MS
from harness.simulation.errors import ForbiddenInSimulation
from harness.simulation.fences import allow_real_io
from tests.simulation.sim_helpers import S, call, pair

LEAKS: dict[str, Callable[[], Any]] = {
    "time.time": lambda: time.time(),
    "time.time_ns": lambda: time.time_ns(),
    "time.monotonic": lambda: time.monotonic(),
    "time.monotonic_ns": lambda: time.monotonic_ns(),
    "time.perf_counter": lambda: time.perf_counter(),
    "time.process_time": lambda: time.process_time(),
    "time.sleep": lambda: time.sleep(0),
    "random.random": lambda: random.random(),
    "random.randint": lambda: random.randint(1, 2),
    "random.shuffle": lambda: random.shuffle([1, 2]),
    "random.seed": lambda: random.seed(1),
    "os.urandom": lambda: os.urandom(1),
    "uuid.uuid1": lambda: uuid.uuid1(),
    "uuid.uuid4": lambda: uuid.uuid4(),
    "secrets.token_bytes": lambda: secrets.token_bytes(1),
    "secrets.randbelow": lambda: secrets.randbelow(2),
    "Thread.start": lambda: threading.Thread(target=int).start(),
    "open": lambda: open(__file__),  # noqa: SIM115
    "os.open": lambda: os.open(__file__, os.O_RDONLY),
    "os.listdir": lambda: os.listdir("."),
    "os.rename": lambda: os.rename("no-such-file", "other"),
    "os.remove": lambda: os.remove("no-such-file"),
    "os.mkdir": lambda: os.mkdir("no-such-directory/other"),
    "os.fsync": lambda: os.fsync(0),
    "socket.": lambda: socket.socket(),
    "socket.getaddrinfo": lambda: socket.getaddrinfo("localhost", 1),
    "subprocess.Popen": lambda: subprocess.run(["true"]),
    "os.system": lambda: os.system("true"),
    "os.fork": lambda: os.fork(),
}


@pytest.mark.parametrize("what", LEAKS)
def test_the_fence_fires(what: str) -> None:
    world, _, _ = pair()

    async def leaks() -> None:
        LEAKS[what]()

    with pytest.raises(ForbiddenInSimulation, match="was used inside the simulation; use"):
        call(world, "k1", leaks())
    family = what.split(".")[0]  # os.open is one of those whose audit event is called "open"
    assert str(world.failures[0].error).startswith((family, "open"))


def test_a_refusal_ends_the_run_even_where_it_is_swallowed() -> None:
    world, _, _ = pair()

    async def swallows() -> str:
        try:
            return str(time.time())
        except Exception:
            return "swallowed"

    with pytest.raises(ForbiddenInSimulation, match=r"use host\.clock"):
        call(world, "k1", swallows())


def test_everything_works_again_outside(tmp_path: Path) -> None:
    world, _, _ = pair()
    before = {name: getattr(time, name) for name in ("time", "monotonic", "sleep")}
    world.run_for(1 * S)
    assert {name: getattr(time, name) for name in before} == before
    for what in ("time.time", "random.random", "uuid.uuid4", "secrets.token_bytes", "os.urandom"):
        LEAKS[what]()
    (tmp_path / "f").write_text("x")
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()


def test_everything_works_again_after_a_failed_run() -> None:
    world, _, _ = pair()

    async def fails() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        call(world, "k1", fails())
    assert time.time() > 0


def test_the_fence_can_exempt_the_harness(tmp_path: Path) -> None:
    world, _, _ = pair()

    async def writes_history() -> float:
        with allow_real_io():
            (tmp_path / "history").write_text("x")
            threading.Thread(target=int).start()
            return time.time()

    assert call(world, "k1", writes_history()) > 0
    assert world.failures == []


def test_log_records_carry_the_time_of_the_world(caplog: pytest.LogCaptureFixture) -> None:
    world, _, _ = pair()
    world.run_for(5 * S)

    async def logs() -> None:
        logging.getLogger("test").warning("hello")

    call(world, "k1", logs())
    assert caplog.records[-1].created == TRUE_EPOCH_MS / 1000 + 5


def test_imports_may_read_files() -> None:
    world, _, _ = pair()

    async def imports() -> str:
        import this as module  # a module that nothing else imports

        return module.__name__

    import sys

    sys.modules.pop("this", None)
    assert call(world, "k1", imports()) == "this"


ROOT = Path(__file__).parents[2]
FORBIDDEN_MODULES = {
    "concurrent",
    "fcntl",
    "mmap",
    "multiprocessing",
    "random",
    "resource",
    "secrets",
    "select",
    "signal",
    "socket",
    "subprocess",
    "tempfile",
    "threading",
    "time",
}
FORBIDDEN_CALLS = {
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("date", "today"),
    ("uuid", "uuid4"),
    ("uuid", "uuid1"),
    ("os", "urandom"),
}
REAL_BACK_ENDS = {
    Path("system_under_test/process.py"),
    *(path.relative_to(ROOT) for path in sorted((ROOT / "system_under_test/real").glob("*.py"))),
    Path("workloads/clients/confluent.py"),
    Path("workloads/clients/confluent_transactions.py"),
    Path("workloads/clients/java_process.py"),
    Path("workloads/consumer_group.py"),
    *(
        path.relative_to(ROOT)
        for folder in ("agent", "hosts", "local")
        for path in sorted((ROOT / "nemesis" / folder).rglob("*.py"))
    ),
}
"""What is not simulated: real backends, node processes, clients with threads, faults on real nodes."""


def leaks_of(source: str) -> list[str]:
    """Names of the real machine that a module uses, which no fence can see at run time."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.split(".")[0] in FORBIDDEN_MODULES]
        elif isinstance(node, ast.ImportFrom):
            module = (node.module or "").split(".")[0]
            names = {a.name for a in node.names}
            if module in FORBIDDEN_MODULES and not (module == "random" and names == {"Random"}):
                found.append(f"from {node.module}")
            found += [name for name in sorted(names & {"uuid4", "uuid1", "urandom"})]
        elif isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Name) and function.id == "open":
                found.append("open()")
            if isinstance(function, ast.Attribute):
                owner = function.value
                name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
                if (name, function.attr) in FORBIDDEN_CALLS:
                    found.append(f"{name}.{function.attr}")
    return found


def test_the_scan_finds_forbidden_names() -> None:
    assert leaks_of("import time\nfrom random import randrange, Random") == ["time", "from random"]
    assert leaks_of("from uuid import UUID, uuid4\nopen('x')") == ["uuid4", "open()"]
    assert leaks_of("import datetime\ndatetime.datetime.now()") == ["datetime.now"]
    assert leaks_of("from random import Random\nfrom uuid import UUID") == []


@pytest.mark.parametrize("package", ["system_under_test", "workloads", "nemesis"])
def test_simulated_code_uses_no_real_time_randomness_or_io(package: str) -> None:
    leaks = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        relative = path.relative_to(ROOT)
        if relative in REAL_BACK_ENDS:
            continue
        if found := leaks_of(path.read_text()):
            leaks[str(relative)] = found
    assert leaks == {}


def test_other_threads_of_the_process_are_not_fenced():
    import threading
    import time as real_time

    from harness.simulation.world import World

    stop = threading.Event()
    errors = []

    def tick():
        while not stop.is_set():
            try:
                real_time.sleep(0.0005)
                real_time.monotonic()
            except Exception as error:
                errors.append(error)
                return

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        with World(1) as world:
            node = world.add_node("n", kind="broker", address="n:1")
            node.start()
            for moment in range(1, 20000):
                world.schedule(moment * 1000, int)
            world.run_for(30_000_000)
            assert not world.failures
    finally:
        stop.set()
        thread.join()
    assert not errors
