"""Removes what nights and runs left, beyond the last N nights.

The cutoff is the date of the oldest night that is kept. Nights and runs that began before it are removed; with
fewer nights than that, nothing is. Only what this program makes is removed, by name: an unknown file stays, and
so does the directory around it. Links are never followed. A night that another process is running stays. The
campaign tables, and what `swarm` and `compare` stored, stay too.
"""

import fcntl
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.campaigns.files import (
    CORPUS_FOLDER,
    JOBS_FILE,
    NIGHT_PAGE,
    NIGHT_PREFIX,
    PLAN_FILE,
    ROWS_FILE,
    RUNS_FOLDER,
)
from harness.campaigns.night import is_night, night_order
from harness.campaigns.night_outputs import JUNIT_FILE, RESULT_FILE, SUMMARY_FILE
from harness.errors import HarnessFailure, HistoryError
from results.layout import RUN_FILES, RunFiles, is_run_name
from results.store import read_json

_NIGHT_FILES = frozenset(
    {
        PLAN_FILE,
        ROWS_FILE,
        RESULT_FILE,
        NIGHT_PAGE,
        SUMMARY_FILE,
        JUNIT_FILE,
        JOBS_FILE,
        "workers.log",
        "spark.log",
    }
)
_JOB_FILE = re.compile(r"job-\d+\.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """One thing to remove: a run, or a whole night.

    Attributes:
        path: Its directory.
        kind: "night" or "run".
        size_bytes: How much it occupies.
        files: What is removed in it, all that this program knows.
        unknown: What is in it besides; it stays.
    """

    path: Path
    kind: str
    size_bytes: int
    files: tuple[Path, ...]
    unknown: tuple[Path, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning:
    """What is to be removed, and what is not although it is old.

    Attributes:
        removals: In the order of their paths.
        kept_failing: Failing runs that are old and stay.
        in_progress: Nights that are old and that another process is running.
    """

    removals: tuple[Removal, ...]
    kept_failing: tuple[Path, ...] = ()
    in_progress: tuple[Path, ...] = ()


def plan_pruning(root: Path, *, keep_nights: int, keep_failing: bool) -> Pruning:
    """Returns what is to be removed; removes nothing.

    Args:
        root: The run store.
        keep_nights: How many nights are kept.
        keep_failing: Whether failing runs stay, with the pages of their nights.
    """
    nights = _nights(root)
    if len(nights) < keep_nights:
        return Pruning(removals=())
    cutoff = nights[-keep_nights].name.removeprefix(NIGHT_PREFIX)
    removals: list[Removal] = []
    kept: list[Path] = []
    running: list[Path] = []
    for night in nights[:-keep_nights]:
        if _is_running(night):
            running.append(night)
            continue
        runs = list(_runs(night / RUNS_FOLDER))
        failing = [run for run in runs if keep_failing and is_failing_run(run)]
        kept += failing
        if failing:
            removals += [_run_removal(run) for run in runs if run not in failing]
        else:
            removals.append(_night_removal(night, runs))
    for run in _runs(root):
        if run.name[:8] >= cutoff[:10].replace("-", ""):
            continue
        if keep_failing and is_failing_run(run):
            kept.append(run)
        else:
            removals.append(_run_removal(run))
    # Of a directory that holds nothing but unknown files, nothing is left to remove.
    removals = [one for one in removals if one.files or not one.unknown]
    removals.sort(key=lambda removal: removal.path)
    return Pruning(
        removals=tuple(removals), kept_failing=tuple(sorted(kept)), in_progress=tuple(running)
    )


def prune(pruning: Pruning) -> None:
    """Removes what was planned; what is gone already is no error.

    Raises:
        HarnessFailure: Something could not be removed; the rest of it was.
    """
    problems = []
    for removal in pruning.removals:
        try:
            # What identifies a run and a night goes last, so that an interrupted removal can be continued.
            last = {RunFiles(removal.path).run.name: 1, PLAN_FILE: 2}
            for path in sorted(removal.files, key=lambda path: last.get(path.name, 0)):
                _remove(path)
            _remove_empty(removal)
        except OSError as error:
            problems.append(f"{error.filename or removal.path}: {error.strerror}")
    if problems:
        raise HarnessFailure(f"not everything could be removed: {'; '.join(problems[:5])}")


def is_failing_run(run: Path) -> bool:
    """Returns whether a stored run failed, or cannot be shown not to have: then it is worth keeping."""
    if not _known_in_run(run):
        return False  # its removal was interrupted
    try:
        summary = read_json(RunFiles(run).run)
    except (FileNotFoundError, HistoryError):
        return True
    verdict = summary.get("verdict")
    return bool(
        verdict not in ("valid", "unknown") or summary.get("violations") or summary.get("error")
    )


def _nights(root: Path) -> list[Path]:
    """Returns the directories of nights, oldest first."""
    found = [
        path
        for path in root.glob(f"{NIGHT_PREFIX}*")
        if is_night(path.name.removeprefix(NIGHT_PREFIX))
        and _is_directory(path)
        and (path / PLAN_FILE).is_file()
    ]
    return sorted(found, key=lambda path: night_order(path.name.removeprefix(NIGHT_PREFIX)))


def _runs(root: Path) -> Iterator[Path]:
    """Yields the directories of stored runs below a folder of experiments."""
    for experiment in sorted(root.iterdir()) if _is_directory(root) else ():
        if not _is_directory(experiment) or experiment.name.startswith(NIGHT_PREFIX):
            continue
        yield from (
            run
            for run in sorted(experiment.iterdir())
            if is_run_name(run.name) and _is_directory(run)
        )


def _run_removal(run: Path) -> Removal:
    return _removal(run, "run", _known_in_run(run), [])


def _night_removal(night: Path, runs: Iterable[Path]) -> Removal:
    known = [
        path
        for path in night.iterdir()
        if (path.is_file() and (path.name in _NIGHT_FILES or _JOB_FILE.fullmatch(path.name)))
        or (_is_directory(path) and path.name == CORPUS_FOLDER)
    ]
    inside = list(runs)
    for run in inside:
        known += _known_in_run(run)
    return _removal(night, "night", known, inside)


def _known_in_run(run: Path) -> list[Path]:
    names = {name.rstrip("/") for name in RUN_FILES}
    return [path for path in run.iterdir() if path.name in names]


def _removal(path: Path, kind: str, known: list[Path], runs: Iterable[Path]) -> Removal:
    containers = {path, path / RUNS_FOLDER, *(run.parent for run in runs), *runs}
    unknown = [
        inside
        for container in sorted(containers)
        if _is_directory(container)
        for inside in sorted(container.iterdir())
        if inside not in known and inside not in containers
    ]
    return Removal(
        path=path,
        kind=kind,
        size_bytes=sum(_size_bytes(one) for one in known),
        files=tuple(known),
        unknown=tuple(unknown),
    )


def _size_bytes(path: Path) -> int:
    if path.is_symlink() or path.is_file():
        return path.lstat().st_size
    return sum(one.lstat().st_size for one in path.rglob("*") if not one.is_dir())


def _remove(path: Path) -> None:
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    except FileNotFoundError:
        pass  # another process removes the same


def _remove_empty(removal: Removal) -> None:
    """Removes the directories that are empty now, the innermost first."""
    inside = {parent for file in removal.files for parent in file.parents}
    folders = {one for one in inside if one == removal.path or removal.path in one.parents}
    folders |= {removal.path, removal.path / RUNS_FOLDER}
    if removal.kind == "run":
        folders.add(removal.path.parent)  # the experiment, if this was its last run
    for folder in sorted(folders, key=lambda one: -len(one.parts)):
        if _is_directory(folder) and not any(folder.iterdir()):
            folder.rmdir()


def _is_directory(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _is_running(night: Path) -> bool:
    """Returns whether a process holds the lock on the rows of a night."""
    try:
        descriptor = os.open(night / ROWS_FILE, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
