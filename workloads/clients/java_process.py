"""The Java process of the Java client: where its jars and its Java are, how it is compiled, and the pipe to it.

`java/LaststandClient.java` is compiled once per version of kafka-clients, by the compiler of a JDK, into the cache
directory; after that a Java runtime is enough. One process serves all clients of this process, with any number of
operations at a time, and ends with it: it ends itself when its standard input does.
"""

import asyncio
import atexit
import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import IO

from harness.errors import HarnessFailure, UsageError
from harness.java import JavaRuntime, cache_directory, find_runtimes, java_homes, major_version

MAIN_CLASS = "LaststandClient"
VERSION_VARIABLE = "LASTSTAND_JAVA_CLIENT"
"""Names the version of kafka-clients to use, for example 4.1.2; the newest that was fetched if it is not set."""
JAVA_VERSION_MIN = 11
COMPILE_TIMEOUT_S = 120
END_TIMEOUT_S = 5
_JARS = re.compile(r"(kafka-clients|slf4j-api|lz4-java|zstd-jni|snappy-java)-[^/]*\.jar")
"""The jars of a broker that the client needs. A logging backend is left out: slf4j then logs nothing."""
_FLAGS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss512k", "-Xshare:auto")


class JavaEndedError(Exception):
    """The Java process ended while an operation was in progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaClientFiles:
    """What starts the Java process.

    Attributes:
        runtime: The Java that runs it.
        version: Of kafka-clients.
        class_path: Jars and the directory of the compiled program.
    """

    runtime: JavaRuntime
    version: str
    class_path: tuple[Path, ...]

    @property
    def command(self) -> list[str]:
        """The command line."""
        class_path = os.pathsep.join(map(str, self.class_path))
        return [str(self.runtime.java), *_FLAGS, "-cp", class_path, MAIN_CLASS]


def find_files() -> JavaClientFiles:
    """Returns the files of the client; compiles it if that was not done before.

    Raises:
        UsageError: Jars, Java or its compiler are missing; the sentence states what to do.
    """
    version, jars = find_jars()
    source = source_text()
    key = hashlib.blake2b(f"{version}|{source}".encode(), digest_size=8).hexdigest()
    classes = cache_directory().absolute() / "java-client" / f"{version}-{key}"
    if not (classes / f"{MAIN_CLASS}.class").is_file():
        compile_into(classes, source, jars)
    suitable = (one for one in find_runtimes() if major_version(one.version) >= JAVA_VERSION_MIN)
    runtime = next(suitable, None)
    if runtime is None:
        raise UsageError(
            f"the client 'java' needs Java {JAVA_VERSION_MIN} or newer, and none was found; install one and set "
            "JAVA_HOME"
        )
    return JavaClientFiles(runtime=runtime, version=version, class_path=(classes, *jars))


def source_text() -> str:
    """Returns the source of the Java program."""
    place = files("workloads.clients") / "java" / f"{MAIN_CLASS}.java"
    return place.read_text(encoding="utf-8")


def find_jars() -> tuple[str, tuple[Path, ...]]:
    """Returns the version of kafka-clients and its jars, as `laststand system fetch` keeps them.

    Raises:
        UsageError: No version was fetched, or not the one that the environment names.
    """
    root = cache_directory().absolute() / "apache-kafka"
    wanted = os.environ.get(VERSION_VARIABLE, "")
    found = {
        jar.parent.parent.name: jar.parent
        for jar in root.glob("*/lib/kafka-clients-*.jar")
        if not wanted or jar.parent.parent.name == wanted
    }
    if not found:
        raise UsageError(
            f"the client 'java' needs the jars of Apache Kafka {wanted or 'in any version'}, which are not in "
            f"{root}; `laststand system fetch apache-kafka {wanted or '4.1.2'}` gets them"
        )
    version = max(found, key=_numbers)
    jars = sorted(path for path in found[version].iterdir() if _JARS.fullmatch(path.name))
    return version, tuple(jars)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def compile_into(classes: Path, source: str, jars: Sequence[Path]) -> None:
    """Compiles the program with the first Java that has a compiler.

    Raises:
        UsageError: None has one.
        HarnessFailure: The program does not compile with these jars.
    """
    seen = []
    for origin, home in java_homes():
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"{MAIN_CLASS}.java"
            file.write_text(source, encoding="utf-8")
            made = Path(folder) / "classes"
            finished = _run_compiler(home, ["-d", str(made)], file, jars)
            if finished is None:
                seen.append(f"{home} from {origin}")
                continue
            if finished.returncode:
                raise HarnessFailure(
                    f"the Java client does not compile: {finished.stderr.strip()[:500]}"
                )
            _move(made, classes)
            return
    found = f"none of these has one: {', '.join(seen)}" if seen else "no Java was found"
    raise UsageError(
        f"the client 'java' is compiled once, which needs the compiler of a JDK, and {found}; install a JDK 11 or "
        "newer and set JAVA_HOME (afterwards a Java runtime is enough)"
    )


def _run_compiler(
    home: Path, options: list[str], file: Path, jars: Sequence[Path]
) -> "subprocess.CompletedProcess[str] | None":
    """Returns how the compiler ended, None if this Java has none."""
    java = str(home / "bin" / "java")
    compiler = [java, "-m", "jdk.compiler/com.sun.tools.javac.Main"]
    settings = ["--release", "11", "-nowarn", "-proc:none", "-cp", os.pathsep.join(map(str, jars))]
    try:
        finished = subprocess.run(
            [*compiler, *settings, *options, str(file)],
            capture_output=True,
            text=True,
            timeout=COMPILE_TIMEOUT_S,
            check=False,
        )
    except OSError:
        return None
    except subprocess.TimeoutExpired:
        raise HarnessFailure(
            f"the Java compiler of {home} did not end within {COMPILE_TIMEOUT_S} s"
        ) from None
    missing = finished.returncode != 0 and "jdk.compiler" in finished.stderr + finished.stdout
    return None if missing else finished


def _move(made: Path, classes: Path) -> None:
    """Moves the compiled program to its place; another process may do the same at the same time."""
    classes.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=classes.parent) as folder:
        whole = Path(folder) / "whole"
        shutil.copytree(made, whole)
        with contextlib.suppress(OSError):
            whole.rename(classes)
    if not (classes / f"{MAIN_CLASS}.class").is_file():
        raise HarnessFailure(f"the compiled Java client cannot be written to {classes}")


@dataclass(frozen=True, slots=True)
class _Waiting:
    """An operation in progress."""

    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[list[str]]"


class JavaProcess:
    """The running Java process. Mutable: its operations. A thread reads the results.

    Args:
        files: What to start.
    """

    def __init__(self, files: JavaClientFiles) -> None:
        self.files = files
        self.owner = os.getpid()
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            files.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            # A signal from the terminal is for the harness, which still needs the client while it ends.
            start_new_session=True,
        )
        self._lock = threading.Lock()
        self._waiting: dict[int, _Waiting] = {}
        self._ids = count(1)
        self._clients = count(1)
        self._end = ""
        self._reader = threading.Thread(target=self._read, name="java-client", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Of the Java process."""
        return self._process.pid

    @property
    def is_usable(self) -> bool:
        """Whether it runs, and belongs to this process rather than to the one that forked it."""
        return not self._end and self.owner == os.getpid()

    def open_client(self, *settings: object) -> str:
        """Makes a client; returns its name."""
        name = str(next(self._clients))
        self._write(["open", name, *settings])
        return name

    def close_client(self, name: str) -> None:
        """Closes a client in the background."""
        with contextlib.suppress(HarnessFailure):
            self._write(["close", name])

    async def request(self, kind: str, *fields: object) -> list[str]:
        """Does one operation; returns the result as the Java program reports it.

        Raises:
            JavaEndedError: The process ended before it had reported the result.
            HarnessFailure: The process had ended before; nothing was requested.
        """
        loop = asyncio.get_running_loop()
        waiting = _Waiting(loop, loop.create_future())
        number = next(self._ids)
        self._waiting[number] = waiting
        try:
            self._write([kind, number, *fields])
            return await waiting.future
        finally:
            self._waiting.pop(number, None)

    def close(self) -> None:
        """Ends the process; idempotent."""
        with contextlib.suppress(OSError):
            self._input.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(END_TIMEOUT_S)

    @property
    def _input(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    def _write(self, fields: Sequence[object]) -> None:
        line = "\t".join(map(str, fields)) + "\n"
        with self._lock:
            if self._end:
                raise HarnessFailure(self._end)
            with contextlib.suppress(OSError, ValueError):  # the reading thread reports the end
                self._input.write(line.encode())
                self._input.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as results:
            for line in results:
                if not line.endswith(b"\n"):
                    break  # The process was killed while it wrote; a result cut short is none.
                kind, *fields = line.decode(errors="replace").rstrip("\n").split("\t")
                if kind != "ready":
                    self._finish(int(fields[0]), [kind, *fields[1:]])
        code = self._process.wait()
        with self._lock:
            self._end = f"the process of the Java client ended ({code}): {self._final_line()}"
            with contextlib.suppress(OSError):  # what was still buffered has no reader
                self._input.close()
        self._log.close()
        for number in tuple(self._waiting):
            self._finish(number, None)

    def _finish(self, number: int, result: list[str] | None) -> None:
        waiting = self._waiting.get(number)
        if waiting is None:
            return  # The caller has given up; a late result changes nothing.

        def finish() -> None:
            if waiting.future.done():
                return
            if result is None:
                waiting.future.set_exception(JavaEndedError(self._end))
            else:
                waiting.future.set_result(result)

        with contextlib.suppress(RuntimeError):  # the loop was closed: the run is over
            waiting.loop.call_soon_threadsafe(finish)

    def _final_line(self) -> str:
        self._log.seek(0)
        lines = self._log.read()[-100_000:].decode(errors="replace").strip().splitlines()
        errors = [one for one in lines if "rror" in one or "xception" in one]
        return (errors or lines or ["it reported no error"])[0][:300]


_PROCESS: JavaProcess | None = None


def java_process() -> JavaProcess:
    """Returns the Java process of this process; starts one if there is none.

    Raises:
        UsageError: The client cannot be used here.
    """
    global _PROCESS
    if _PROCESS is None or not _PROCESS.is_usable:
        if _PROCESS is None or _PROCESS.owner != os.getpid():
            atexit.register(end_java_process)
        _PROCESS = JavaProcess(find_files())
    return _PROCESS


def java_versions() -> Mapping[str, str]:
    """Returns the versions of kafka-clients and of Java: of the running process, else of the one that would start.

    Raises:
        UsageError: The client cannot be used here.
    """
    files = find_files() if _PROCESS is None or not _PROCESS.is_usable else _PROCESS.files
    return {"kafka-clients": files.version, "java": files.runtime.version}


def end_java_process() -> None:
    """Ends the Java process, if this process has one."""
    global _PROCESS
    if _PROCESS is not None and _PROCESS.owner == os.getpid():
        _PROCESS.close()
        _PROCESS = None
