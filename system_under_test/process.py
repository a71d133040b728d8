"""One node as a process: from a TOML file to an exit code.

    laststand broker --config node.toml

SIGTERM and SIGINT stop the node cleanly: a broker leaves its partitions with the controller's consent and marks
its logs clean. The first unhandled error ends the process with one sentence on standard error, because a node
that runs only partly would mislead its cluster.

Exit codes: 0 stopped cleanly, 1 failed while running, 254 wrong file or command, 255 cannot start on this machine.
"""

import argparse
import asyncio
import contextlib
import gc
import os
import resource
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from system_under_test.log.errors import LogDirectoryError
from system_under_test.protocol.releases import RELEASES
from system_under_test.real.clock import RealClock, SkewedLoop
from system_under_test.real.host import RealHost
from system_under_test.real.metrics_listener import MetricsListener
from system_under_test.real.node_file import NodeFile, NodeFileError, read_node_file
from system_under_test.real.storage import DirectoryInUseError
from system_under_test.server import Node, build_node

EXIT_STOPPED = 0
EXIT_FAILED = 1
EXIT_USAGE = 254
EXIT_CANNOT_START = 255
GC_THRESHOLDS = (50_000, 20, 50)
"""Most objects of a node are short-lived and without cycles, so rarer garbage collections cost nothing."""

CLOCK_REPORT_INTERVAL_S = 0.1


class NodeStartError(Exception):
    """The node cannot start: its port is taken, or its directory is in use, unreadable or of another node."""


def run_node(node_file: NodeFile, *, ends_with_stdin: bool = False) -> int:
    """Runs a node until it is stopped or fails; returns the process's exit code.

    Args:
        node_file: The node to run.
        ends_with_stdin: Whether to end at once when standard input closes: a node that a run started must not
            outlive the run.

    Raises:
        NodeStartError: The node cannot start on this machine.
    """
    _raise_file_limit()
    try:
        return _NodeProcess(node_file, ends_with_stdin=ends_with_stdin).run()
    except DirectoryInUseError as error:
        raise NodeStartError(str(error)) from None


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one sentence and the exit code for wrong input."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"laststand: {message} (see `{self.prog} --help`)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one node as `python -m system_under_test`; returns the process's exit code."""
    parser = _Parser(prog="python -m system_under_test", description=__doc__)
    parser.add_argument(
        "--config", type=Path, required=True, metavar="FILE", help="the node's node.toml"
    )
    parser.add_argument("--until-stdin-closes", action="store_true")
    options = parser.parse_args(arguments)
    return run_file(options.config, ends_with_stdin=options.until_stdin_closes)


def run_file(path: Path, *, ends_with_stdin: bool = False) -> int:
    """Runs the node that a file describes; returns the process's exit code.

    Reports an error in the file, or a reason why the node cannot start, as one sentence on standard error.
    """
    try:
        return run_node(read_node_file(path), ends_with_stdin=ends_with_stdin)
    except (NodeFileError, NodeStartError) as error:
        print(f"laststand: {error}", file=sys.stderr, flush=True)
        return EXIT_USAGE if isinstance(error, NodeFileError) else EXIT_CANNOT_START


class _NodeProcess:
    """The loop, the host and the node of this process."""

    def __init__(self, node_file: NodeFile, *, ends_with_stdin: bool) -> None:
        self._file = node_file
        self._ends_with_stdin = ends_with_stdin
        self._failure: BaseException | None = None
        self._metrics: MetricsListener | None = None
        self._node: Node | None = None
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
        self._stop_requested = asyncio.Event()
        try:
            self._host = RealHost(
                node_file.name,
                data_dir=node_file.data_dir,
                address=node_file.config.address,
                role=node_file.config.role,
                clock=clock,
                limits=node_file.limits,
                events_path=node_file.events_path,
                messages_path=node_file.messages_path,
                fault_point_path=node_file.fault_point_path,
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
            except (OSError, UnicodeError) as error:  # UnicodeError: not a valid host name
                reason = error.strerror if isinstance(error, OSError) else error
                raise NodeStartError(f"cannot listen on {config.address}: {reason}") from None
            asyncio.set_event_loop(self._loop)
            try:
                self._loop.run_until_complete(self._live())
            except SystemExit as error:
                # BrokerExit: the node ends itself, from any of its tasks.
                self._failure = self._failure or error
            except NodeStartError:
                raise
            except LogDirectoryError as error:
                # Directories are checked before the node does anything else, so it has not started yet.
                self._host.observer.report("failed", error=str(error))
                raise NodeStartError(f"{self._file.data_dir}: {error}") from None
            except Exception as error:
                self._failure = self._failure or error
            return self._end()
        finally:
            if self._metrics is not None:
                self._metrics.close()
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
            loop.add_reader(sys.stdin.fileno(), self._stdin_readable)
        self._host.observer.report(
            "started", node_id=config.node_id, role=config.role, pid=os.getpid()
        )
        if self._host.faults is not None:
            self._host.faults.start()
        node = build_node(config, self._host)
        release = RELEASES[config.features.profile]
        self._host.network.announce(release, node.feature_levels)
        await self._serve_metrics()
        await node.start()
        self._node = node
        self._report_metrics({})
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        print(f"laststand: {config.role} {config.node_id} listens on {config.address}", flush=True)
        if self._file.events_path is not None and self._file.skew_file is not None:
            self._report_clocks()
        await self._stop_requested.wait()
        if self._failure is None:
            async with asyncio.timeout(config.timings.controlled_shutdown_timeout_ms / 1000):
                await node.stop()

    async def _serve_metrics(self) -> None:
        """Serves the metrics if the node's file names an address; the node has none until it has started.

        Raises:
            NodeStartError: The address cannot be used.
        """
        address = self._file.metrics_address
        if not address:
            return
        self._metrics = MetricsListener(
            address, lambda: () if self._node is None else self._node.metrics()
        )
        try:
            await self._metrics.start()
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise NodeStartError(f"cannot serve metrics on {address}: {reason}") from None

    def _report_metrics(self, before: dict[str, float]) -> None:
        """Writes the metrics that have changed to the event log, periodically if the node's file says so."""
        interval_ms = self._file.metrics_interval_ms
        if self._node is None or not interval_ms or self._file.events_path is None:
            return
        now = {sample.series: sample.value for sample in self._node.metrics()}
        changed = {name: value for name, value in now.items() if before.get(name) != value}
        gone = [name for name in before if name not in now]
        if changed or gone:
            self._host.observer.report("metrics", values=changed, gone=gone)
        self._loop.call_later(interval_ms / 1000, self._report_metrics, now)

    def _report_clocks(self) -> None:
        """Reports this node's clocks, so that a skew can be verified by its effect."""
        clock = self._host.clock
        self._host.observer.report(
            "clock", wall_ms=clock.wall_ms(), monotonic_ns=clock.monotonic_ns()
        )
        self._loop.call_later(CLOCK_REPORT_INTERVAL_S, self._report_clocks)

    def _end(self) -> int:
        config = self._file.config
        if self._failure is None:
            self._host.observer.report("stopped")
            return EXIT_STOPPED
        error = self._failure
        sentence = (
            str(error) if isinstance(error, SystemExit) else f"{type(error).__name__}: {error}"
        )
        self._host.observer.report("failed", error=sentence)
        print(
            f"laststand: {config.role} {config.node_id} failed: {sentence}",
            file=sys.stderr,
            flush=True,
        )
        return EXIT_FAILED

    def _fail(self, error: BaseException) -> None:
        """Stores the first error and ends the node."""
        if self._failure is None:
            self._failure = error
        self._stop_requested.set()

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        message = str(context.get("message", ""))
        if message.startswith("socket.accept()"):
            # Out of file descriptors: asyncio retries after a second.
            self._host.observer.mark("accept-failed", error=str(error))
            return
        self._fail(error if isinstance(error, BaseException) else RuntimeError(message))

    def _signalled(self) -> None:
        self._signals += 1
        if self._signals > 1:
            os._exit(EXIT_FAILED)
        self._stop_requested.set()

    def _stdin_readable(self) -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            os._exit(EXIT_FAILED)


def _raise_file_limit() -> None:
    """Raises the limit on file descriptors to the hard limit; every connection needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
