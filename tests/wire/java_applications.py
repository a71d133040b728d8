"""Applications of Apache Kafka for tests: Kafka Streams, Kafka Connect, and our own Java programs.

Their jars are fetched on demand with the code of `laststand system fetch`, into `kafka-applications` in the cache
directory. Their list is `applications/jars.toml`.
"""

import contextlib
import signal
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from kafka_tools import VERSION, logging_to_stderr

from harness.cli.progress import StandardErrorProgress
from harness.errors import UsageError
from harness.java import JavaRuntime, cache_directory
from harness.systems.apache_kafka.cache import VersionCache
from harness.systems.apache_kafka.command import logging_flag
from harness.systems.apache_kafka.fetch import fetch
from harness.systems.apache_kafka.jars import Jar, parse_lock
from harness.systems.apache_kafka.properties import logging_file
from tests.kafka_jars import kafka_or_skip

SOURCES = Path(__file__).parent / "applications"
STOP_LIMIT_S = 90


class ApplicationCache(VersionCache):
    """The jars that applications need in addition to those of a node."""

    @property
    def jars(self) -> tuple[Jar, ...]:
        """The jars of Kafka Streams and Kafka Connect."""
        return parse_lock((SOURCES / "jars.toml").read_text(encoding="utf-8"))

    @property
    def tools(self) -> tuple[Jar, ...]:
        """None: tools belong to a node's jars."""
        return ()


@dataclass(frozen=True, kw_only=True)
class Applications:
    """What runs Java programs.

    Attributes:
        java: The Java runtime, with a compiler.
        class_path: The jars of a node, then those of applications, if there are any.
        node: The jars of a node.
    """

    java: JavaRuntime
    class_path: tuple[Path, ...]
    node: VersionCache

    def start(self, directory: Path, program: str, *arguments: str) -> "Application":
        """Starts a class of the jars, or a program of `applications`, with its files in a directory."""
        directory.mkdir(parents=True, exist_ok=True)
        version = self.node.version
        (directory / logging_file(version)).write_text(
            logging_to_stderr("warn", "%d %p %c{1}: %m%n"), encoding="utf-8"
        )
        source = SOURCES / program
        command = [
            str(self.java.java),
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-Xmx512m",
            logging_flag(version, str(directory)),
            "-cp",
            ":".join(map(str, self.class_path)),
            str(source) if source.suffix == ".java" else program,
            *arguments,
        ]
        return Application(command, directory / "application.log")


class Application:
    """A Java program that runs. Mutable; its output is collected in the background.

    Attributes:
        lines: What it has printed to standard output.
    """

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.lines: list[str] = []
        self._log = log
        with open(log, "ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> "Application":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def is_alive(self) -> bool:
        """Whether it runs; fails if it ended."""
        assert self._process.poll() is None, f"it ended too early: {self.errors()}"
        return True

    def has_printed(self, line: str) -> bool:
        """Whether it has printed a line; fails if it ended before."""
        return line in self.lines or not self.is_alive()

    def errors(self) -> str:
        """Returns the end of what it wrote to standard error."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-4000:]

    def kill(self) -> None:
        """Ends it with SIGKILL; does nothing if it has ended."""
        self._process.kill()
        self._collect()

    def terminate(self) -> int:
        """Ends it with SIGTERM and returns its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._wait(STOP_LIMIT_S)

    def finish(self, limit_s: float = STOP_LIMIT_S) -> list[str]:
        """Closes its input, waits until it ends and returns what it printed; fails if it failed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._wait(limit_s)
        assert code == 0, f"exit code {code}: {self.errors()}"
        return self.lines

    def _wait(self, limit_s: float) -> int:
        try:
            return self._process.wait(limit_s)
        finally:
            self.kill()

    def _collect(self) -> None:
        self._process.wait()
        self._reader.join()
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                self.lines.append(line.rstrip("\n"))


def programs_or_skip() -> Applications:
    """Returns what runs programs with the Java client; skips the test if it is missing."""
    node, java = kafka_or_skip(VERSION)
    if not (java.home / "bin" / "javac").is_file():
        pytest.skip(f"{java.home} has no compiler; install a JDK")
    return Applications(java=java, class_path=tuple(node.jar_paths), node=node)


def applications_or_skip() -> Applications:
    """Returns what runs Kafka Streams and Kafka Connect; skips the test if it cannot be had."""
    programs = programs_or_skip()
    cache = ApplicationCache(
        version=programs.node.version,
        directory=cache_directory() / "kafka-applications" / VERSION,
    )
    if not cache.is_fetched:
        try:
            fetch(cache, StandardErrorProgress(quiet=True))
        except UsageError as error:
            pytest.skip(f"no jars of Kafka Streams and Kafka Connect: {error}")
    return Applications(
        java=programs.java,
        class_path=(*programs.class_path, *cache.jar_paths),
        node=programs.node,
    )
