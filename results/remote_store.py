"""A run store at a URI.

Runs are made, judged and shown in a *working directory* of this machine, which has the same folders as the store:
recording a run appends to its journal for as long as it lasts, and reports read columns at random. What is
complete is copied to the store; what is not here is copied from it when it is needed.

A run counts in the store from the moment its file `stored.json` exists, which is written last. It lists the run's
files with their hashes. The record of a run (its history, experiment and schedule) never changes afterwards; a
later judgement replaces the files of the judgement, and then the list.

A run that could not be copied stays in the working directory, and its next `check` copies it.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from harness.errors import HistoryError
from harness.history.filesystems import child
from results.layout import LATEST, STORED_FILE, RunFiles, is_run_name
from results.remote_files import RemoteFiles
from results.store import RunStore

WORK_ROOT = Path("results/remote")
READERS = 16
"""Requests at once: an object store answers each in tens of milliseconds, however many there are."""

MARKER_SCHEMA = 1
UPLOADED = ".uploaded"
"""A file of this name in a campaign's working directory: the store has all of it, and may have more by now."""

PLAN = "plan.json"
CAMPAIGN_SUMMARIES = (PLAN, "compare.json", "jobs.json")
"""What `laststand list` reads of a campaign."""

_RECORD = ("history/", "experiment.toml", "replay.json")
"""Files that never change once the run is over; their hashes are checked when they are copied back."""

_One = TypeVar("_One")
_Other = TypeVar("_Other")


class RemoteStore(RunStore):
    """All runs below a URI. Mutable: it changes its working directory.

    Args:
        uri: The folder of experiments.
        work: The working directory; by default one below `results/remote` that belongs to the URI.

    Raises:
        UsageError: Arrow knows no such file system.
    """

    def __init__(self, uri: str, work: Path | None = None) -> None:
        super().__init__(WORK_ROOT / _folder_name(uri) if work is None else work)
        self.uri = uri.rstrip("/")
        self.files = RemoteFiles(self.uri)

    @property
    def place(self) -> str:
        """The URI."""
        return self.uri

    @property
    def is_shared(self) -> bool:
        """Workers read URIs."""
        return True

    def location(self, directory: Path) -> str:
        """Returns the URI of a run that is in the store."""
        return child(self.uri, *self._name(directory).split("/"))

    def find(self, name: str) -> Path:
        """Finds a run among those known since `refresh`, and copies it here if it is not here.

        Raises:
            HistoryError: There is no such run, or it is damaged.
            HarnessFailure: The store cannot be read.
        """
        if name == LATEST:
            # The link of the working directory names the last run of this machine.
            ids = self._ids()
            if not ids:
                raise HistoryError(
                    f"there are no runs in {self.uri} yet; `laststand run` makes one"
                )
            # A run in the store is finished; one that is only here may still be going on, or has died.
            finished = (run for run in reversed(ids) if RunFiles(self.root / run).run.is_file())
            name = next(finished, ids[-1])
        if name.startswith(f"{self.uri}/"):
            name = name.removeprefix(f"{self.uri}/")
        directory = super().find(name)
        self.fetch(directory)
        return directory

    def refresh(self) -> None:
        """Copies the list of what is in the store: summaries of runs, and plans and results of campaigns.

        Raises:
            HarnessFailure: The store cannot be read.
        """
        folders = [name for name, is_folder in self.files.names().items() if is_folder]
        found: set[str] = set()
        campaigns: set[str] = set()
        for folder, names in zip(folders, at_once(self.files.names, folders), strict=True):
            if PLAN in names:
                campaigns.add(folder)
            else:
                found |= {f"{folder}/{name}" for name in names if is_run_name(name)}
        runs = sorted(found)
        markers = at_once(self._refresh_run, runs)
        self._forget({run for run, is_stored in zip(runs, markers, strict=True) if is_stored})
        at_once(self._refresh_campaign, sorted(campaigns))
        for path in self.root.glob(f"*/{UPLOADED}"):
            if path.parent.name not in campaigns:
                shutil.rmtree(path.parent, ignore_errors=True)

    def fetch(self, directory: Path) -> None:
        """Copies a run here, unless its files are here.

        Raises:
            HistoryError: A file is missing from the store, or is damaged.
            HarnessFailure: The store cannot be read.
        """
        marker = directory / STORED_FILE
        if not marker.is_file():
            return  # made here, and not copied to the store yet
        name = self._name(directory)
        listed = _listed_files(marker.read_bytes(), child(self.uri, *name.split("/"), STORED_FILE))

        def copy(file: str) -> None:
            path = directory / file
            if path.is_file() and _hash_of(path) == listed[file]:
                return
            self.files.download(f"{name}/{file}", path)
            if file.startswith(_RECORD) and _hash_of(path) != listed[file]:
                path.unlink()
                raise HistoryError(
                    f"{child(self.uri, *name.split('/'), *file.split('/'))} is damaged: its content is not what "
                    "was stored"
                )

        at_once(copy, sorted(listed))

    def publish(self, directory: Path) -> None:
        """Copies a run to the store: what changed, and last of all the list of its files.

        Raises:
            HarnessFailure: The store cannot be written; the run stays where it is.
        """
        name = self._name(directory)
        marker = directory / STORED_FILE
        before: dict[str, str] = {}
        if marker.is_file():
            before = _listed_files(marker.read_bytes(), str(marker))
        now = {
            path.relative_to(directory).as_posix(): _hash_of(path)
            for path in sorted(directory.rglob("*"))
            if path.is_file() and path != marker and not path.name.startswith(".")
        }
        changed = [file for file in now if before.get(file) != now[file]]
        at_once(lambda file: self.files.upload(directory / file, f"{name}/{file}"), changed)
        if changed or before.keys() != now.keys():
            text = json.dumps({"schema": MARKER_SCHEMA, "files": now}, sort_keys=True, indent=1)
            self.files.write(f"{name}/{STORED_FILE}", text.encode())
            marker.write_text(text, encoding="utf-8")

    def is_published(self, directory: Path) -> bool:
        """Returns whether a run was copied to the store."""
        return (directory / STORED_FILE).is_file()

    def _name(self, directory: Path) -> str:
        return directory.resolve().relative_to(self.root.resolve()).as_posix()

    def _refresh_run(self, run: str) -> bool:
        """Copies the summary of a run; returns whether the run is complete."""
        content = self.files.read(f"{run}/{STORED_FILE}")
        if content is None:
            return False
        directory = self.root / run
        marker = directory / STORED_FILE
        if (
            marker.is_file()
            and marker.read_bytes() == content
            and RunFiles(directory).run.is_file()
        ):
            return True
        summary = self.files.read(f"{run}/{RunFiles(directory).run.name}")
        directory.mkdir(parents=True, exist_ok=True)
        if summary is not None:
            RunFiles(directory).run.write_bytes(summary)
        marker.write_bytes(content)
        return True

    def _refresh_campaign(self, folder: str) -> None:
        directory = self.root / folder
        if directory.is_dir() and not (directory / UPLOADED).exists():
            return  # in progress here, or not copied yet
        directory.mkdir(parents=True, exist_ok=True)
        for name in CAMPAIGN_SUMMARIES:
            content = self.files.read(f"{folder}/{name}")
            if content is not None:
                (directory / name).write_bytes(content)
        (directory / UPLOADED).touch()

    def _forget(self, stored: set[str]) -> None:
        """Removes copies of runs that were removed from the store."""
        for run in self._ids():
            if run not in stored and (self.root / run / STORED_FILE).is_file():
                shutil.rmtree(self.root / run, ignore_errors=True)


def _folder_name(uri: str) -> str:
    """Returns a name for the working directory of a URI that a person recognizes."""
    digest = hashlib.blake2b(uri.rstrip("/").encode(), digest_size=4).hexdigest()
    words = re.sub(r"[^0-9A-Za-z.]+", "-", uri.partition("?")[0]).strip("-")
    return f"{words[:60]}-{digest}"


def _hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _listed_files(content: bytes, origin: str) -> dict[str, str]:
    """Returns the files of a run with their hashes, as its list has them.

    Raises:
        HistoryError: It is not such a list.
    """
    try:
        data: Any = json.loads(content)
        if data["schema"] != MARKER_SCHEMA:
            raise ValueError(f"schema {data['schema']}")
        files = {str(name): str(digest) for name, digest in data["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise HistoryError(f"{origin} is not the list of a run's files: {error}") from None
    for name in files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise HistoryError(f"{origin} lists {name!r}, which is not a file of a run")
    return files


def at_once(function: Callable[[_One], _Other], items: Iterable[_One]) -> list[_Other]:
    """Returns the results for all items, in their order; several run at once."""
    with ThreadPoolExecutor(READERS) as pool:
        return list(pool.map(function, items))
