"""What laststand needs of a machine: what is there, what is missing, and what to type about it.

Every finding is one line. Whatever is required and missing makes `laststand doctor` fail; what only makes things
slower or poorer is said, and is no failure.
"""

import os
import re
import shutil
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from checkers.spark import archive_path
from checkers.spark import warm_up as make_archive
from harness.errors import HarnessFailure
from harness.java import JAVA_VERSION_MIN, find_java
from harness.progress import ProgressLine
from results.layout import DEFAULT_ROOT

PYTHON_VERSION_MIN = (3, 11)
FREE_DISK_MB_MIN = 500
"""A run takes a few megabytes, the class-data archive 180; below half a gigabyte something will fail soon."""

DISTRIBUTION = "laststand"
NAME_WIDTH = 17


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        name: What it is, for example "java".
        is_good: False if laststand cannot do its work like this.
        text: What was found.
        hint: What to do about it; empty if nothing has to be done.
        mark: What stands before the line; by default "ok" or "BAD".
    """

    name: str
    is_good: bool
    text: str
    hint: str = ""
    mark: str = ""

    def to_json(self) -> dict[str, Any]:
        """Returns the finding as JSON-compatible data."""
        return {
            "name": self.name,
            "is_good": self.is_good,
            "text": self.text,
            "hint": self.hint,
        }

    def line(self) -> str:
        """Returns the finding as a line for people."""
        hint = f" -> {self.hint}" if self.hint else ""
        mark = self.mark or ("ok" if self.is_good else "BAD")
        return f"{mark:<4} {self.name:<{NAME_WIDTH}} {self.text}{hint}"


def examine(results: Path = DEFAULT_ROOT) -> list[Finding]:
    """Looks at everything that laststand needs.

    Args:
        results: Where runs are to be stored.

    Returns:
        One finding per thing, in a fixed order; starts no Spark.
    """
    packages = _packages()
    has_spark = all(finding.is_good for finding in packages)
    return [
        _python(),
        *packages,
        *(_java() if has_spark else []),
        _git(),
        _disk(results),
        _writable(results),
    ]


def warm_up(progress: ProgressLine) -> None:
    """Prepares what makes Spark start fast: the launcher of a packaged Java, and the class-data archive.

    Raises:
        HarnessFailure: There is no Java, or the archive could not be made.
    """
    runtime = find_java()
    if archive_path(runtime).exists():
        return
    progress.say("preparing Spark's class-data archive (once, about half a minute)")
    make_archive()


def _python() -> Finding:
    found = ".".join(str(part) for part in sys.version_info[:3])
    wanted = ".".join(str(part) for part in PYTHON_VERSION_MIN)
    is_good = sys.version_info[:2] >= PYTHON_VERSION_MIN
    return Finding(
        name="python",
        is_good=is_good,
        text=f"{found} at {sys.executable}",
        hint="" if is_good else f"use Python {wanted} or newer",
    )


def _packages() -> list[Finding]:
    """Returns one finding for all packages that are there, and one for each that is not or does not fit."""
    try:
        declared = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return [
            Finding(
                name="packages",
                is_good=False,
                text=f"{DISTRIBUTION} itself is not installed",
                hint="`make setup`",
            )
        ]
    good, bad = [], []
    for requirement in declared:
        # Extras are for those who work on laststand itself.
        if "extra ==" in requirement:
            continue
        name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
        bounds = requirement[len(name) :].partition(";")[0].strip()
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            bad.append((name, f"{name}{bounds} is missing"))
            continue
        if fits(version, bounds):
            good.append(f"{name} {version}")
        else:
            bad.append((name, f"{name} {version} does not fit {bounds}"))
    findings = [Finding(name="packages", is_good=True, text=", ".join(sorted(good)))]
    findings += [
        Finding(name=name, is_good=False, text=text, hint="`make setup`")
        for name, text in sorted(bad)
    ]
    return findings


def fits(version: str, bounds: str) -> bool:
    """Returns whether a version lies within bounds like ">=4.3,<4.4"; only >= and < are understood.

    Raises:
        ValueError: The bounds say something else.
    """
    for bound in filter(None, (part.strip() for part in bounds.split(","))):
        found = re.fullmatch(r"(>=|<)\s*([0-9.]+)", bound)
        if not found:
            raise ValueError(f"{bound!r} is no bound of a version that is understood here")
        is_below = _numbers(version) < _numbers(found.group(2))
        if is_below != (found.group(1) == "<"):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    """Returns the release numbers of a version, without zeros at the end: 4.3.0 is 4.3."""
    release = re.match(r"\d+(\.\d+)*", version)
    numbers = [int(part) for part in release.group().split(".")] if release else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _java() -> list[Finding]:
    try:
        runtime = find_java()
    except HarnessFailure as failure:
        return [
            Finding(
                name="java",
                is_good=False,
                text=f"no Java {JAVA_VERSION_MIN} or newer",
                hint=str(failure),
            )
        ]
    where = f"{runtime.version} from {runtime.source} ({runtime.home})"
    archive = archive_path(runtime)
    archived = (
        Finding(
            name="archive",
            is_good=True,
            text=f"class-data archive of {archive.stat().st_size >> 20} MB",
        )
        if archive.exists()
        # Without it everything works, only later: not a failure.
        else Finding(
            name="archive",
            is_good=True,
            text="no class-data archive: Spark starts some seconds later",
            hint="`laststand doctor --warm`",
        )
    )
    return [Finding(name="java", is_good=True, text=where), archived]


def _git() -> Finding:
    found = shutil.which("git")
    return Finding(name="git", is_good=True, text=found or "not found (optional)")


def _disk(results: Path) -> Finding:
    place = _existing(results)
    free_mb = shutil.disk_usage(place).free >> 20
    is_good = free_mb >= FREE_DISK_MB_MIN
    return Finding(
        name="disk",
        is_good=is_good,
        text=f"{free_mb} MB free at {place}",
        hint="" if is_good else f"free at least {FREE_DISK_MB_MIN} MB",
    )


def _writable(results: Path) -> Finding:
    place = _existing(results)
    is_good = place.is_dir() and os.access(place, os.W_OK | os.X_OK)
    return Finding(
        name="results",
        is_good=is_good,
        text=f"{results} {'can' if is_good else 'cannot'} be written",
        hint="" if is_good else "choose another place with --results",
    )


def _existing(path: Path) -> Path:
    """Returns the nearest ancestor that exists."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path
