"""One node as a process: from a TOML file to an exit code.

    laststand broker --config node.toml

SIGTERM and SIGINT stop the node in order: a broker leaves its partitions with the controller's consent and
marks its logs clean. Any other end is loud: the first error that nobody handled ends the process with one
sentence, because a node that is half alive tells its cluster lies.
"""

import argparse
import asyncio
import contextlib
import gc
import os
import resource
import signal
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from system_under_test.config import (
    TIMINGS,
    GroupConfig,
    LogConfig,
    NodeConfig,
    Voter,
    profile_features,
)
from system_under_test.real.clock import RealClock, SkewedLoop
from system_under_test.real.host import RealHost
from system_under_test.real.limits import Limits
from system_under_test.real.storage import DirectoryInUseError
from system_under_test.rules import Rules
from system_under_test.server import build_node

EXIT_STOPPED = 0
EXIT_FAILED = 1
EXIT_USAGE = 254
EXIT_CANNOT_START = 255
GC_THRESHOLDS = (50_000, 20, 50)
"""Most objects of a node die young and without cycles; looking for garbage less often costs nothing."""

CLOCK_TOLD_EVERY_S = 0.1

T = TypeVar("T")


class NodeFileError(Exception):
    """A node file, or what it asks for, is wrong; one sentence with what to do."""


class NodeStartError(Exception):
    """The node cannot start here: port taken, directory in use or unreadable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFile:
    """What a node file says, resolved.

    Attributes:
        config: What the node is told.
        data_dir: Where its logs are.
        limits: What strangers may take of it.
        events_path: Where its event log goes; None for none.
        skew_file: Through which its clock is skewed; None for a true clock.
    """

    config: NodeConfig
    data_dir: Path
    limits: Limits
    events_path: Path | None = None
    skew_file: Path | None = None

    @property
    def name(self) -> str:
        """The node's name: "b1", "c11"."""
        return f"{self.config.role[0]}{self.config.node_id}"


_TOP = {
    "node_id": int,
    "role": str,
    "listen": str,
    "advertised": str,
    "data_dir": str,
    "cluster_id": str,
    "profile": str,
    "timings": str,
    "voters": list,
    "events": str,
    "skew_file": str,
    "disabled_rules": list,
    "log": dict,
    "broker": dict,
    "limits": dict,
}
_REQUIRED = ("node_id", "role", "listen", "data_dir", "cluster_id", "voters")
_BROKER_KEYS = {
    "min_insync_replicas": int,
    "default_replication_factor": int,
    "num_partitions": int,
    "auto_create_topics_enable": bool,
    "unclean_leader_election_enable": bool,
}


def read_node_file(path: Path) -> NodeFile:
    """Reads and checks a node file.

    Raises:
        NodeFileError: It cannot be read, or a key or value is wrong.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NodeFileError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise NodeFileError(f"{path} is not TOML: {error}") from None
    try:
        return _resolve(data, path.parent)
    except (NodeFileError, ValueError) as error:
        raise NodeFileError(f"{path}: {error}") from None


def _resolve(data: Mapping[str, Any], folder: Path) -> NodeFile:
    _check_keys(data, _TOP, "")
    for key in _REQUIRED:
        if key not in data:
            raise NodeFileError(f"{key!r} is missing")
    if data["role"] not in ("broker", "controller"):
        raise NodeFileError(f'role is {data["role"]!r}; use "broker" or "controller"')
    if data["node_id"] < 0:
        raise NodeFileError(f"node_id is {data['node_id']}; use 0 or more")
    timings = data.get("timings", "kafka")
    if timings not in TIMINGS:
        raise NodeFileError(f"timings is {timings!r}; use {' or '.join(TIMINGS)}")
    broker = dict(data.get("broker", {}))
    group_keys = {item.name: int for item in fields(GroupConfig)}
    _check_keys(broker, {**_BROKER_KEYS, **group_keys}, "broker.")
    group = {key: broker.pop(key) for key in list(broker) if key in group_keys}
    _check_at_least(group, "broker.", 0)
    _check_at_least(broker, "broker.", 1)
    config = NodeConfig(
        node_id=data["node_id"],
        role=data["role"],
        address=_address("listen", data["listen"]),
        advertised_address=_address("advertised", data.get("advertised", data["listen"])),
        cluster_id=data["cluster_id"],
        voters=_voters(data["voters"]),
        features=profile_features(data.get("profile", "kafka-4.1")),
        timings=TIMINGS[timings],
        log=_table(LogConfig, data.get("log", {}), "log."),
        group=GroupConfig(**group),
        rules=Rules(data.get("disabled_rules", ())),
        **broker,
    )
    if config.role == "controller" and config.node_id not in [v.node_id for v in config.voters]:
        raise NodeFileError(f"voters does not name this controller ({config.node_id})")
    return NodeFile(
        config=config,
        data_dir=folder / data["data_dir"],
        limits=_table(Limits, data.get("limits", {}), "limits."),
        events_path=folder / data["events"] if data.get("events") else None,
        skew_file=folder / data["skew_file"] if data.get("skew_file") else None,
    )


def _check_keys(data: Mapping[str, Any], known: Mapping[str, type], prefix: str) -> None:
    for key, value in data.items():
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f"; did you mean {prefix}{near[0]}?" if near else ""
            raise NodeFileError(f"{prefix}{key} is no setting of a node{hint}")
        if type(value) is not known[key]:
            raise NodeFileError(
                f"{prefix}{key} is {value!r}; it has to be of type {known[key].__name__}"
            )


def _check_at_least(data: Mapping[str, Any], prefix: str, least: int) -> None:
    for key, value in data.items():
        if type(value) is int and value < least:
            raise NodeFileError(f"{prefix}{key} is {value}; use {least} or more")


def _table(kind: type[T], data: Mapping[str, Any], prefix: str) -> T:
    _check_keys(data, {item.name: int for item in fields(kind)}, prefix)  # type: ignore[arg-type]
    _check_at_least(data, prefix, 1)
    return kind(**data)


def _address(key: str, text: str) -> str:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise NodeFileError(f'{key} is {text!r}; write "host:port"')
    return text


def _voters(entries: list[Any]) -> tuple[Voter, ...]:
    voters = []
    for entry in entries:
        node_id, _, address = str(entry).partition("@")
        if not node_id.isdecimal():
            raise NodeFileError(f'voters has {entry!r}; write "id@host:port"')
        voters.append(Voter(node_id=int(node_id), address=_address("voters", address)))
    if not voters:
        raise NodeFileError('voters is empty; name every controller as "id@host:port"')
    voters.sort(key=lambda voter: voter.node_id)
    if len({voter.node_id for voter in voters}) != len(voters):
        raise NodeFileError("voters names a controller twice")
    return tuple(voters)


def run_node(node_file: NodeFile, *, ends_with_stdin: bool = False) -> int:
    """Runs a node until it is told to stop, or fails; returns the process's exit code.

    Args:
        node_file: What to run.
        ends_with_stdin: End at once when standard input closes: a node that a run started must not outlive the
        run.

    Raises:
        NodeStartError: It cannot start here.
    """
    _raise_file_limit()
    try:
        return _NodeProcess(node_file, ends_with_stdin=ends_with_stdin).run()
    except DirectoryInUseError as error:
        raise NodeStartError(str(error)) from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one node; what is wrong with its file or its place is one sentence on standard error."""
    parser = argparse.ArgumentParser(prog="python -m system_under_test", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="its node.toml")
    parser.add_argument("--until-stdin-closes", action="store_true")
    options = parser.parse_args(arguments)
    try:
        return run_node(read_node_file(options.config), ends_with_stdin=options.until_stdin_closes)
    except (NodeFileError, NodeStartError) as error:
        print(f"laststand: {error}", file=sys.stderr)
        return EXIT_USAGE if isinstance(error, NodeFileError) else EXIT_CANNOT_START


class _NodeProcess:
    """The loop, the host and the node of this process."""

    def __init__(self, node_file: NodeFile, *, ends_with_stdin: bool) -> None:
        self._file = node_file
        self._ends_with_stdin = ends_with_stdin
        self._failure: BaseException | None = None
        self._signals = 0
        try:
            clock = RealClock(node_file.skew_file)
        except OSError as error:
            raise NodeStartError(
                f"{node_file.skew_file} cannot be used: {error.strerror}"
            ) from None
        self._loop: asyncio.AbstractEventLoop = (
            asyncio.new_event_loop() if node_file.skew_file is None else SkewedLoop(clock)
        )
        self._loop.set_exception_handler(self._unhandled)
        self._stop_asked = asyncio.Event()
        try:
            self._host = RealHost(
                node_file.name,
                data_dir=node_file.data_dir,
                address=node_file.config.address,
                role=node_file.config.role,
                clock=clock,
                limits=node_file.limits,
                events_path=node_file.events_path,
                on_failure=self._fail,
            )
        except OSError as error:
            self._loop.close()
            raise NodeStartError(f"{node_file.data_dir} cannot be used: {error}") from None
        except BaseException:
            self._loop.close()
            raise

    def run(self) -> int:
        """Runs until the end and cleans up."""
        config = self._file.config
        try:
            try:
                self._host.network.bind()
            except OSError as error:
                raise NodeStartError(
                    f"{config.address} cannot be listened at: {error.strerror}"
                ) from None
            asyncio.set_event_loop(self._loop)
            try:
                self._loop.run_until_complete(self._live())
            except (
                SystemExit
            ) as error:  # BrokerExit: the node ends itself, from whatever task decided it
                self._failure = self._failure or error
            except Exception as error:
                self._failure = self._failure or error
            return self._end()
        finally:
            self._host.close()
            with contextlib.suppress(Exception):
                self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    async def _live(self) -> None:
        config = self._file.config
        loop = self._loop
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)
        if self._ends_with_stdin:
            loop.add_reader(sys.stdin.fileno(), self._stdin_said)
        self._host.observer.say(
            "started", node_id=config.node_id, role=config.role, pid=os.getpid()
        )
        node = build_node(config, self._host)
        await node.start()
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        print(f"laststand: {config.role} {config.node_id} listens at {config.address}", flush=True)
        if self._file.events_path is not None and self._file.skew_file is not None:
            self._tell_time()
        await self._stop_asked.wait()
        if self._failure is None:
            async with asyncio.timeout(config.timings.controlled_shutdown_timeout_ms / 1000):
                await node.stop()

    def _tell_time(self) -> None:
        """Says what this node's clocks show: whoever skews them asks the node, not the file."""
        clock = self._host.clock
        self._host.observer.say("clock", wall_ms=clock.wall_ms(), monotonic_ns=clock.monotonic_ns())
        self._loop.call_later(CLOCK_TOLD_EVERY_S, self._tell_time)

    def _end(self) -> int:
        config = self._file.config
        if self._failure is None:
            self._host.observer.say("stopped")
            return EXIT_STOPPED
        error = self._failure
        sentence = (
            str(error) if isinstance(error, SystemExit) else f"{type(error).__name__}: {error}"
        )
        self._host.observer.say("failed", error=sentence)
        print(
            f"laststand: {config.role} {config.node_id} ends: {sentence}",
            file=sys.stderr,
            flush=True,
        )
        return EXIT_FAILED

    def _fail(self, error: BaseException) -> None:
        """Keeps the first error and ends the node."""
        if self._failure is None:
            self._failure = error
        self._stop_asked.set()

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        message = str(context.get("message", ""))
        if message.startswith("socket.accept()"):
            # Out of file descriptors: asyncio tries again in a second.
            self._host.observer.mark("accept-failed", error=str(error))
            return
        self._fail(error if isinstance(error, BaseException) else RuntimeError(message))

    def _signalled(self) -> None:
        self._signals += 1
        if self._signals > 1:
            os._exit(EXIT_FAILED)
        self._stop_asked.set()

    def _stdin_said(self) -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            os._exit(EXIT_FAILED)


def _raise_file_limit() -> None:
    """Takes as many file descriptors as the system allows; every connection needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
