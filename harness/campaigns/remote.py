"""Campaigns of a run store at a URI.

A campaign runs in the working directory of its store (`results.remote_store`), where its rows are forced to disk
as for any other campaign. It is copied to the store when it begins, every few minutes, and when it ends or is
interrupted. A copy is complete up to a row: runs come first, then the rows. So the store never has a row without
its stored run, and a campaign that continues from a copy repeats what the copy lacks and counts nothing twice.

One machine at a time runs a campaign. `running.json` in the store names it, and is written again with every copy.
Another machine continues the campaign after that file is gone, which the first one removes when it has copied
everything, or when it was not written for a while. A machine that finds another name in it copies nothing more.
"""

import contextlib
import fcntl
import json
import os
import platform
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from harness.campaigns.files import PLAN_FILE, ROWS_FILE, RUNS_FOLDER
from harness.campaigns.prune import Pruning, Removal, plan_pruning
from harness.errors import HarnessFailure, UsageError
from results.layout import RUNNING_FILE, STORED_FILE, RunFiles, is_run_name
from results.remote_store import UPLOADED, RemoteStore, at_once
from results.store import RunStore

COPY_INTERVAL_S = 300.0
"""A machine that is lost loses at most the runs of five minutes; its disk, if it survives, has them all."""

TAKEOVER_S = 3 * COPY_INTERVAL_S + 60
"""A machine that copied nothing for so long is taken for lost. Clocks may differ by minutes."""


@contextlib.contextmanager
def copied(
    store: RunStore, directory: Path, report: Callable[[str], None], command: str
) -> Iterator[None]:
    """Copies a campaign to its store when the block begins, every few minutes, and when it ends.

    Args:
        store: The store; nothing is copied if it is a directory of this machine.
        directory: The campaign's working directory.
        report: Called with a sentence when a copy fails; the campaign goes on.
        command: What continues the campaign, and copies what is missing.

    Raises:
        UsageError: Another machine is running it.
        HarnessFailure: The store cannot be reached at the beginning or at the end.
    """
    if not isinstance(store, RemoteStore):
        yield
        return
    copier = CampaignCopier(store, directory)
    copier.claim()
    ended = threading.Event()

    def copy_again() -> None:
        is_reported = False
        while not ended.wait(COPY_INTERVAL_S):
            try:
                copier.copy()
                is_reported = False
            except HarnessFailure as failure:
                if not is_reported:
                    report(f"{failure}; everything stays in {directory}, and is copied later")
                is_reported = True

    thread = threading.Thread(target=copy_again, name="campaign-copier", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        try:
            copier.finish()
        except HarnessFailure as failure:
            raise HarnessFailure(
                f"{failure}; everything is in {directory}; to copy it to the store, run: {command}"
            ) from None


class CampaignCopier:
    """Copies one campaign from its working directory to its store. Mutable: it knows what it copied.

    Args:
        store: The store.
        directory: The campaign's working directory.
    """

    def __init__(self, store: RemoteStore, directory: Path) -> None:
        self._store = store
        self._files = store.files
        self._directory = directory
        self._name = directory.name
        self._me = {"machine": platform.node(), "directory": str(directory.resolve())}
        self._copied: dict[str, tuple[int, int]] = {}

    def claim(self) -> None:
        """States in the store that this machine runs the campaign, and copies what there is.

        Raises:
            UsageError: Another machine is running it.
            HarnessFailure: The store cannot be reached.
        """
        owner = self._owner()
        if owner and not self._is_mine(owner) and not _is_lost(owner):
            raise UsageError(
                f"{self._name} is run by the machine {owner.get('machine')}, seen at {owner.get('seen')}; "
                f"continue it there, or {TAKEOVER_S / 60:.0f} minutes after that machine was lost"
            )
        self._write_owner()
        (self._directory / UPLOADED).unlink(missing_ok=True)
        self.copy()

    def copy(self) -> None:
        """Copies what is new: rows that are there now, after the runs that belong to them.

        Raises:
            HarnessFailure: The store cannot be written, or another machine runs the campaign now.
        """
        owner = self._owner()
        if owner and not self._is_mine(owner):
            raise HarnessFailure(
                f"{self._name} was continued by the machine {owner.get('machine')}; nothing more is copied"
            )
        self._write_owner()
        rows = _whole_lines(self._directory / ROWS_FILE)
        for run in _stored_runs(self._directory):
            # A failing run may turn out not to be among those that are kept.
            with contextlib.suppress(FileNotFoundError):
                self._store.publish(run)
        for path in sorted(self._directory.iterdir()):
            if path.is_file() and not path.name.startswith(".") and path.name != ROWS_FILE:
                self._copy_file(path)
        if rows is not None:
            self._files.write(f"{self._name}/{ROWS_FILE}", rows)

    def finish(self) -> None:
        """Copies everything, removes runs that were not kept, and gives up the claim.

        Raises:
            HarnessFailure: The store cannot be written.
        """
        self.copy()
        for run in remote_runs(self._store, self._name):
            if not (self._directory / run).is_dir():
                self._files.remove(f"{self._name}/{run}")
        self._files.remove(f"{self._name}/{RUNNING_FILE}")
        (self._directory / UPLOADED).touch()

    def _owner(self) -> dict[str, str]:
        """Returns what the store says about who runs the campaign; nothing if no machine does."""
        content = self._files.read(f"{self._name}/{RUNNING_FILE}")
        try:
            data = {} if content is None else json.loads(content)
            return {str(key): str(value) for key, value in data.items()}
        except (ValueError, AttributeError):
            return {}  # its writer did not finish

    def _is_mine(self, owner: Mapping[str, str]) -> bool:
        return all(owner.get(key) == value for key, value in self._me.items())

    def _write_owner(self) -> None:
        text = json.dumps({**self._me, "seen": datetime.now(UTC).isoformat(timespec="seconds")})
        self._files.write(f"{self._name}/{RUNNING_FILE}", text.encode())

    def _copy_file(self, path: Path) -> None:
        found = path.stat()
        state = (found.st_size, found.st_mtime_ns)
        if self._copied.get(path.name) != state:
            self._files.upload(path, f"{self._name}/{path.name}")
            self._copied[path.name] = state


def fetch_campaign(store: RunStore, directory: Path) -> None:
    """Copies a campaign of a store at a URI here, so that it can continue; nothing if it ran here last.

    Raises:
        HistoryError: A run of it is damaged.
        HarnessFailure: The store cannot be read.
    """
    if not isinstance(store, RemoteStore) or not (directory / UPLOADED).exists():
        return
    name = directory.name
    for file, is_folder in store.files.names(name).items():
        if not is_folder and file != RUNNING_FILE:
            store.files.download(f"{name}/{file}", directory / file)
    for run in remote_runs(store, name):
        content = store.files.read(f"{name}/{run}/{STORED_FILE}")
        if content is not None:
            (directory / run).mkdir(parents=True, exist_ok=True)
            (directory / run / STORED_FILE).write_bytes(content)
            store.fetch(directory / run)


def fetch_rows(store: RunStore, directories: list[Path]) -> None:
    """Copies the rows of campaigns of a store at a URI here that ran elsewhere.

    Raises:
        HarnessFailure: The store cannot be read.
    """
    if not isinstance(store, RemoteStore):
        return

    def fetch(directory: Path) -> None:
        if (directory / UPLOADED).exists():
            content = store.files.read(f"{directory.name}/{ROWS_FILE}")
            if content is not None:
                (directory / ROWS_FILE).write_bytes(content)

    at_once(fetch, directories)


def remote_runs(store: RemoteStore, campaign: str) -> list[str]:
    """Returns the stored runs of a campaign, by their names relative to it."""
    folders = [f"{RUNS_FOLDER}/{name}" for name in store.files.names(f"{campaign}/{RUNS_FOLDER}")]
    names = at_once(lambda folder: store.files.names(f"{campaign}/{folder}"), folders)
    return sorted(
        f"{folder}/{name}"
        for folder, inside in zip(folders, names, strict=True)
        for name in inside
        if is_run_name(name)
    )


def prune_remote(
    store: RemoteStore, *, keep_nights: int, keep_failing: bool, dry_run: bool
) -> Pruning:
    """Removes old nights and runs from a store, and from its working directory.

    What to remove is decided as for a local store, from files that have the names and the sizes of those in the
    store and, where it matters, their content.

    Returns:
        What was removed, or would be; paths are relative to the store.

    Raises:
        HarnessFailure: The store cannot be read, or something could not be removed.
    """
    with tempfile.TemporaryDirectory(prefix="laststand-gc-") as folder:
        root = Path(folder)
        locks = _make_likeness(store, root)
        try:
            pruning = plan_pruning(root, keep_nights=keep_nights, keep_failing=keep_failing)
        finally:
            for lock in locks:
                os.close(lock)
        named = Pruning(
            removals=tuple(_relative(one, root) for one in pruning.removals),
            kept_failing=tuple(path.relative_to(root) for path in pruning.kept_failing),
            in_progress=tuple(path.relative_to(root) for path in pruning.in_progress),
        )
    if dry_run:
        return named
    for removal in named.removals:
        # What identifies a run and a night goes last, so that an interrupted removal can be continued.
        last = {STORED_FILE: 1, RunFiles(removal.path).run.name: 2, PLAN_FILE: 3}
        for path in sorted(removal.files, key=lambda path: last.get(path.name, 0)):
            store.files.remove(path.as_posix())
        if not removal.unknown:
            store.files.remove(removal.path.as_posix())
    store.refresh()
    return named


def _relative(removal: Removal, root: Path) -> Removal:
    return Removal(
        path=removal.path.relative_to(root),
        kind=removal.kind,
        size_bytes=removal.size_bytes,
        files=tuple(path.relative_to(root) for path in removal.files),
        unknown=tuple(path.relative_to(root) for path in removal.unknown),
    )


def _make_likeness(store: RemoteStore, root: Path) -> list[int]:
    """Makes a directory that looks like a store; returns the locks on the nights that are in progress."""
    locks: list[int] = []
    summaries: list[str] = []
    for name, size_bytes in store.files.sizes().items():
        if ".." in PurePosixPath(name).parts:
            continue  # not ours
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.truncate(size_bytes)  # takes no space
        if path.name == RunFiles(path.parent).run.name:
            summaries.append(name)
    contents = at_once(store.files.read, summaries)
    for name, content in zip(summaries, contents, strict=True):
        (root / name).write_bytes(content or b"")
    for path in root.glob(f"*/{RUNNING_FILE}"):
        locks.append(os.open(path.parent / ROWS_FILE, os.O_RDWR | os.O_CREAT))
        fcntl.flock(locks[-1], fcntl.LOCK_EX)
    return locks


def _stored_runs(directory: Path) -> list[Path]:
    return sorted(
        path
        for path in (directory / RUNS_FOLDER).glob("*/*")
        if is_run_name(path.name) and RunFiles(path).run.is_file()
    )


def _whole_lines(path: Path) -> bytes | None:
    """Returns the lines of a file that another thread appends to, up to the last whole one."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    return content[: content.rfind(b"\n") + 1]


def _is_lost(owner: Mapping[str, str]) -> bool:
    """Returns whether a machine has not copied anything for so long that it is taken for lost."""
    try:
        seen = datetime.fromisoformat(owner["seen"])
    except (KeyError, ValueError):
        return True
    return (datetime.now(UTC) - seen).total_seconds() > TAKEOVER_S
