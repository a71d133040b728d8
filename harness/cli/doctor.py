"""What laststand needs from a machine: what is there, what is missing, and how to fix it.

Every finding is one line. Only a missing requirement makes `laststand doctor` fail; something that makes runs
slower or less capable is reported, and is not a failure.
"""

import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from checkers.java import JAVA_VERSION_MIN, find_java
from checkers.spark import archive_path
from checkers.spark import warm_up as make_archive
from harness.contracts.capability import NO, WEAKER, YES
from harness.contracts.progress import ProgressDisplay
from harness.errors import HarnessFailure, UsageError
from harness.names import unknown_name
from results.layout import DEFAULT_ROOT

PYTHON_VERSION_MIN = (3, 11)
FREE_DISK_MB_MIN = 500
"""A run takes a few megabytes, the class-data archive 180; below half a gigabyte something will fail soon."""

DISTRIBUTION = "laststand"

STATES = {YES: "ok", WEAKER: "~", NO: "--"}
"""The label before the line of a fault, by its level of support."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was examined.

    Attributes:
        name: What it is, for example "java".
        is_good: False if laststand cannot work like this.
        text: What was found.
        hint: How to fix it; empty if nothing has to be done.
        state: The label before the line; by default "ok" or "BAD".
    """

    name: str
    is_good: bool
    text: str
    hint: str = ""
    state: str = ""

    def to_json(self) -> dict[str, Any]:
        """Returns the finding as JSON-compatible data."""
        return {
            "name": self.name,
            "is_good": self.is_good,
            "text": self.text,
            "hint": self.hint,
        }

    def cells(self) -> tuple[str, str, str]:
        """Returns the finding as a row of a table: state, name, text with the hint."""
        hint = f" -> {self.hint}" if self.hint else ""
        return self.state or ("ok" if self.is_good else "BAD"), self.name, f"{self.text}{hint}"


def examine(results: Path | str = DEFAULT_ROOT) -> list[Finding]:
    """Examines everything that laststand needs.

    Args:
        results: Where runs are to be stored, a path or a URI.

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
        *_store(str(results)),
    ]


def warm_up(progress: ProgressDisplay) -> None:
    """Prepares a fast start of Spark: the launcher of a packaged Java, and the class-data archive.

    Raises:
        HarnessFailure: There is no Java, or the archive could not be made.
    """
    runtime = find_java()
    if archive_path(runtime).exists():
        return
    progress.message("preparing Spark's class-data archive (once, about half a minute)")
    make_archive()


def examine_world(world: str, hosts: str | None) -> list[Finding]:
    """Returns one finding per fault: whether a world supports it, and by which mechanism.

    Raises:
        UsageError: There is no such world, it cannot be reached, or it has no hosts and some are named.
    """
    from harness.environments.registry import ENVIRONMENTS
    from harness.runs.experiment_file import check_hosts_used

    if world not in ENVIRONMENTS:
        raise UsageError(unknown_name("environment", world, ENVIRONMENTS))
    environment = ENVIRONMENTS[world]
    check_hosts_used(hosts, world)
    if environment.has_containers:
        from harness.environments.hosts import docker

        return _docker_findings() + _findings("", docker.machine_mechanisms())
    if environment.needs_inventory:
        from harness.environments.hosts import ssh

        if not hosts:
            raise UsageError(f"--on {world} needs --hosts FILE")
        found = ssh.mechanisms(Path(hosts))
        return [finding for host, what in found.items() for finding in _findings(f"{host} ", what)]
    return []


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
    """Returns one finding for all usable packages, and one for each missing or unsuitable package."""
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
        # Extras are not needed to run laststand.
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
        ValueError: The bounds contain another operator.
    """
    for bound in filter(None, (part.strip() for part in bounds.split(","))):
        found = re.fullmatch(r"(>=|<)\s*([0-9.]+)", bound)
        if not found:
            raise ValueError(f"{bound!r} is not a supported version bound")
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
        # Only the start is slower without it: not a failure.
        else Finding(
            name="archive",
            is_good=True,
            text="no class-data archive: Spark takes some seconds longer to start",
            hint="`laststand doctor --warm`",
        )
    )
    return [Finding(name="java", is_good=True, text=where), archived]


def _git() -> Finding:
    found = shutil.which("git")
    return Finding(name="git", is_good=True, text=found or "not found (optional)")


def _store(results: str) -> list[Finding]:
    """Returns whether a run store can be used; of one at a URI also whether it can be read."""
    if "://" not in results:
        return [_disk(Path(results)), _writable(Path(results))]
    from results.remote_files import RemoteFiles
    from results.remote_store import WORK_ROOT

    try:
        RemoteFiles(results).names()
        text = ""
    except (HarnessFailure, UsageError) as error:
        text = str(error)
    finding = Finding(
        name="store",
        is_good=not text,
        text=text or f"{results} can be read",
        hint="choose another store with --results" if text else "",
    )
    return [_disk(WORK_ROOT), _writable(WORK_ROOT), finding]


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
        text=f"{results} is {'' if is_good else 'not '}writable",
        hint="" if is_good else "choose another directory with --results",
    )


def _existing(path: Path) -> Path:
    """Returns the nearest ancestor that exists."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def _docker_findings() -> list[Finding]:
    from harness.environments.hosts import docker, image

    findings = [
        Finding(
            name="root",
            is_good=os.geteuid() == 0,
            text="yes" if os.geteuid() == 0 else "no",
            hint="" if os.geteuid() == 0 else "run as root: the agent that injects faults needs it",
        )
    ]
    try:
        engine = docker.connect()
    except UsageError as error:
        return [*findings, Finding(name="engine", is_good=False, text=str(error))]
    try:
        version = engine.version()
        there = image.has_image(engine)
    finally:
        engine.close()
    findings.append(
        Finding(
            name="engine", is_good=True, text=f"{version['Version']}, {version['KernelVersion']}"
        )
    )
    hint = (
        "" if there else "`laststand image build` (with --from-debootstrap if there is no registry)"
    )
    findings.append(Finding(name="image", is_good=there, text=image.image_name(), hint=hint))
    return findings


def _findings(prefix: str, mechanisms: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    from nemesis.hosts.capabilities import host_capabilities

    # A missing mechanism is not a failure of the machine: a run that needs it is refused with the reason.
    return [
        Finding(
            name=f"{prefix}{name}",
            is_good=True,
            text=capability.line(),
            state=STATES[capability.level],
        )
        for name, capability in host_capabilities(mechanisms).items()
    ]
