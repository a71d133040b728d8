"""The run store: makes, finds and lists run directories."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from harness.errors import HistoryError
from results.layout import (
    DEFAULT_ROOT,
    LATEST,
    RunFiles,
    check_experiment_name,
    is_run_name,
    run_name,
)

CANDIDATES_MAX = 5
"""How many runs an error message names; a longer list does not help."""

UNFINISHED = "unfinished"
UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEntry:
    """One stored run.

    Attributes:
        id: "<experiment>/<stamp>-<seed>".
        directory: Where it is.
        experiment: The first part of the id.
        seed: As in run.json; as in the name when there is none.
        verdict: valid, invalid or unknown; "unfinished" without run.json, "unreadable" if that is damaged.
        unexcused_lost_records: 0 when unknown.
        anomalies: (anomaly id, count), as in run.json.
        summary: All of run.json.
    """

    id: str
    directory: Path
    experiment: str
    seed: str
    verdict: str
    unexcused_lost_records: int = 0
    anomalies: tuple[tuple[str, int], ...] = ()
    summary: Mapping[str, Any] = field(default_factory=dict)


class RunStore:
    """All runs below one root.

    Args:
        root: The folder of experiments; made with the first run.
    """

    def __init__(self, root: Path = DEFAULT_ROOT) -> None:
        self.root = root

    @property
    def place(self) -> str:
        """Where it is, as a user names it."""
        return str(self.root)

    @property
    def is_shared(self) -> bool:
        """Whether the workers of a cluster can read it."""
        return False

    def location(self, directory: Path) -> str:
        """Returns where the workers of a cluster find a run; empty if it is on this machine only."""
        return ""

    def refresh(self) -> None:
        """Updates what is known here of a store elsewhere."""

    def publish(self, directory: Path) -> None:
        """Copies a run to a store elsewhere, after it was recorded or judged."""

    def create(self, experiment: str, seed: int | str, *, stamp: str) -> Path:
        """Makes a new run directory and points `latest` at it.

        Args:
            experiment: Name of the experiment, the folder of its runs.
            seed: Root seed.
            stamp: When the run began (`results.layout.utc_stamp`).

        Returns:
            The run directory; two runs never share one, also when several processes create them.

        Raises:
            UsageError: The experiment's name or the seed cannot be part of a path.
        """
        folder = self.root / check_experiment_name(experiment)
        folder.mkdir(parents=True, exist_ok=True)
        repetition = 1
        while True:
            directory = folder / run_name(stamp, seed, repetition)
            try:
                directory.mkdir()
            except FileExistsError:
                repetition += 1
                continue
            self._point_latest(directory)
            return directory

    def run_id(self, directory: Path) -> str:
        """Returns "<experiment>/<name>" for a run of this store, otherwise its path as text."""
        try:
            return directory.resolve().relative_to(self.root.resolve()).as_posix()
        except ValueError:
            return str(directory)

    def find(self, name: str) -> Path:
        """Finds a run.

        Args:
            name: "latest" (the newest finished run), a path, an id, or the unique beginning of an id or of its
                last part.

        Raises:
            HistoryError: There is no such run, or there are several; the message names the nearest.
        """
        if name == LATEST:
            return self._latest()
        for path in (Path(name), self.root / name):
            if name and path.is_dir() and _is_run(path):
                return path
        ids = self._ids()
        wanted = name.rstrip("/")
        found = [run for run in ids if run == wanted or run.partition("/")[2] == wanted]
        if not found and wanted:
            found = [
                run
                for run in ids
                if run.startswith(wanted) or run.partition("/")[2].startswith(wanted)
            ]
        if len(found) == 1:
            return self.root / found[0]
        if found:
            raise HistoryError(f"{name!r} is the beginning of {_some(found)}; give more of it")
        names = [*ids, *(run.partition("/")[2] for run in ids), LATEST]
        near = get_close_matches(wanted, names, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise HistoryError(
            f"no run in {self.place} is called {name!r}{hint} (`laststand list` shows the stored runs)"
        )

    def list(self) -> tuple[RunEntry, ...]:
        """Lists all runs, newest first."""
        return tuple(self.entry(self.root / run) for run in reversed(self._ids()))

    def entry(self, directory: Path) -> RunEntry:
        """Describes one run; a damaged summary is a fact about the run, not an error."""
        run_id = self.run_id(directory)
        summary: Mapping[str, Any] = {}
        verdict = UNFINISHED
        try:
            summary = read_json(RunFiles(directory).run)
            verdict = str(summary.get("verdict", UNFINISHED))
        except FileNotFoundError:
            pass
        except HistoryError:
            verdict = UNREADABLE
        lost = summary.get("unexcused_lost_records", 0)
        return RunEntry(
            id=run_id,
            directory=directory,
            experiment=directory.parent.name,
            seed=str(summary.get("seed", directory.name[17:])),
            verdict=verdict,
            unexcused_lost_records=lost if isinstance(lost, int) else 0,
            anomalies=_anomaly_counts(summary.get("anomalies")),
            summary=summary,
        )

    def _latest(self) -> Path:
        """Returns the newest finished run; if none is finished, the newest run."""
        link = self.root / LATEST
        if link.is_dir() and RunFiles(link).run.is_file():
            return link.resolve()
        runs = [self.root / run for run in reversed(self._ids())]
        if not runs:
            raise HistoryError(f"there are no runs in {self.place} yet; `laststand run` makes one")
        began_last = link.resolve() if link.is_dir() else runs[0]
        return next((run for run in runs if RunFiles(run).run.is_file()), began_last)

    def _ids(self) -> tuple[str, ...]:
        """All runs, oldest first (the name begins with the time)."""
        found = [
            (path.name, path.parent.name)
            for path in self.root.glob("*/*")
            if is_run_name(path.name) and not path.parent.is_symlink() and path.is_dir()
        ]
        return tuple(f"{experiment}/{name}" for name, experiment in sorted(found))

    def _point_latest(self, directory: Path) -> None:
        """Replaces the link in one step. A file system without links only lacks the short cut."""
        partial = self.root / f".{LATEST}-{directory.parent.name}-{directory.name}"
        try:
            partial.symlink_to(directory.relative_to(self.root), target_is_directory=True)
            os.replace(partial, self.root / LATEST)
        except OSError:
            partial.unlink(missing_ok=True)


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
        FileNotFoundError: There is no such file.
        HistoryError: It is not a JSON object.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise HistoryError(f"{path} cannot be read: {error}") from None
    if not isinstance(data, dict):
        raise HistoryError(f"{path} is not a JSON object")
    return data


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Writes a JSON object, keys sorted, in one step: readers see the old file or the new one."""
    text = json.dumps(data, sort_keys=True, indent=2, ensure_ascii=False) + "\n"
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


def _is_run(path: Path) -> bool:
    files = RunFiles(path)
    return any(file.exists() for file in (files.run, files.history, files.experiment))


def _some(found: list[str]) -> str:
    shown = ", ".join(found[:CANDIDATES_MAX])
    return (
        shown if len(found) <= CANDIDATES_MAX else f"{shown} and {len(found) - CANDIDATES_MAX} more"
    )


def _anomaly_counts(data: Any) -> tuple[tuple[str, int], ...]:
    if not isinstance(data, list):
        return ()
    return tuple(
        (str(item["id"]), int(item["count"]))
        for item in data
        if isinstance(item, dict) and "id" in item and isinstance(item.get("count"), int)
    )
