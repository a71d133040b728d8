"""Fences around the world: while it runs, code in it cannot use the real machine.

A simulated run is a function of its seed only if no code in it reads a clock, an entropy source or a file, uses a
socket, or starts a thread. Lint finds most of this before the run; the fences find the rest during it:

* functions of `time`, `random`, `uuid`, `secrets`, `os` and `threading` are replaced by functions that raise;
* an audit hook refuses the events of files, sockets and processes.

A fence cannot detect a use that is neither a module attribute nor an audit event: names that were imported with
`from time import ...` before the run, `datetime.now()` (a method of a C type), and `random.Random()` without a
seed. A scan of the sources finds these (`tests/simulation/test_sim_fences.py`).

A refusal raises `ForbiddenInSimulation` and is also reported to the world, so that the run ends even if the code
swallows the exception. Imports and the printing of source lines may read files.
"""

import contextlib
import os
import random
import secrets
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from harness.simulation.errors import ForbiddenInSimulation

_TIME = "host.clock, or asyncio.sleep"
_RANDOM = "host.random"
_DISK = "host.storage"

# (object, attribute, what to use instead)
_FUNCTIONS: tuple[tuple[Any, str, str], ...] = (
    *(
        (time, name, _TIME)
        for name in (
            "time",
            "time_ns",
            "monotonic",
            "monotonic_ns",
            "perf_counter",
            "perf_counter_ns",
            "process_time",
            "process_time_ns",
            "thread_time",
            "thread_time_ns",
            "clock_gettime",
            "clock_gettime_ns",
            "sleep",
        )
    ),
    *((random, name, _RANDOM) for name in random.__all__ if name not in ("Random", "SystemRandom")),
    *((os, name, _RANDOM) for name in ("urandom", "getrandom")),
    *((os, name, _DISK) for name in ("fsync", "fdatasync")),
    (os, "fork", "a separate node"),
    *((uuid, name, _RANDOM) for name in ("uuid1", "uuid4")),
    *(
        (secrets, name, _RANDOM)
        for name in secrets.__all__
        if name not in ("SystemRandom", "compare_digest")
    ),
    (threading.Thread, "start", "a task"),
)

_FORBIDDEN_EVENTS = frozenset({"open", "_thread.start_new_thread", "fcntl.flock", "mmap.__new__"})
_FORBIDDEN_EVENT_FAMILIES = ("os.", "socket.", "subprocess.", "shutil.", "tempfile.")

# Importing a module, and quoting a source line in a traceback, read files. The program itself does not.
_READERS_OF_SOURCE = ("<frozen importlib", "linecache.py", "tokenize.py")


class _State:
    """Whether the fences are up. One per process, since the replaced functions are global.

    They apply only to the thread that runs the world. Other threads (of a test runner or a progress bar) are not
    part of it, and the world cannot start any.
    """

    is_up = False
    thread_id = 0
    allowed = 0
    hook_installed = False
    report: Callable[[ForbiddenInSimulation], None] | None = None
    wall_s: Callable[[], float] = staticmethod(lambda: 0.0)


def _refuse(what: str, instead: str) -> ForbiddenInSimulation:
    error = ForbiddenInSimulation(f"{what} was used inside the simulation; use {instead}")
    if _State.report is not None:
        _State.report(error)
    return error


def _raiser(
    owner: Any, name: str, instead: str, original: Callable[..., Any]
) -> Callable[..., Any]:
    what = f"{getattr(owner, '__name__', owner)}.{name}"

    def refused(*args: Any, **kwargs: Any) -> Any:
        if _State.allowed or threading.get_ident() != _State.thread_id:
            return original(*args, **kwargs)
        # Log records carry a time; they get that of the world.
        if owner is time and sys._getframe(1).f_globals.get("__name__") == "logging":
            return _State.wall_s()
        raise _refuse(what, instead)

    refused.__name__ = name
    return refused


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if not _State.is_up or _State.allowed or threading.get_ident() != _State.thread_id:
        return
    if event not in _FORBIDDEN_EVENTS and not event.startswith(_FORBIDDEN_EVENT_FAMILIES):
        return
    if _reads_source(sys._getframe(1)):
        return
    raise _refuse(f"{event}{args[:1]!r}", "the interfaces of the node (`Host`)")


def _reads_source(frame: FrameType | None) -> bool:
    while frame is not None:
        if any(mark in frame.f_code.co_filename for mark in _READERS_OF_SOURCE):
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def raised(
    *, report: Callable[[ForbiddenInSimulation], None], wall_s: Callable[[], float]
) -> Iterator[None]:
    """Puts the fences up for the duration of the block.

    Args:
        report: Called with every refusal.
        wall_s: The time for log records, in seconds since the Unix epoch.
    """
    if _State.is_up:
        raise ForbiddenInSimulation("a world is already running in this process")
    if not _State.hook_installed:
        # An audit hook cannot be removed. While the fences are down, it costs one comparison per event.
        sys.addaudithook(_audit)
        _State.hook_installed = True
    originals = []
    for owner, name, instead in _FUNCTIONS:
        original = getattr(owner, name, None)
        if original is not None:
            originals.append((owner, name, original))
            setattr(owner, name, _raiser(owner, name, instead, original))
    _State.report = report
    _State.wall_s = staticmethod(wall_s)
    _State.thread_id = threading.get_ident()
    _State.is_up = True
    try:
        yield
    finally:
        _State.is_up = False
        _State.report = None
        for owner, name, original in originals:
            setattr(owner, name, original)


@contextlib.contextmanager
def allow_real_io() -> Iterator[None]:
    """Lets the harness use the real machine while the world runs, for example to write the history."""
    _State.allowed += 1
    try:
        yield
    finally:
        _State.allowed -= 1
