"""The rows of a campaign: a file of JSON lines that is only appended to, one line per finished run.

What is in the file is done, whatever ended the process: SIGKILL loses nothing that was written, and a reboot at
most the last second. A line that was not written completely is cut off when the file is opened again, and its
run is repeated. Only the position of each row is kept in memory. A lock on the file makes sure that one process
at a time runs the campaign.
"""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from harness.campaigns.files import ROWS_FILE
from harness.errors import HarnessFailure, HistoryError, UsageError

SYNC_INTERVAL_S = 1.0
"""An fsync per run would cost more than some runs; one per second loses at most a second to a power failure."""

Row: TypeAlias = dict[str, Any]
Key: TypeAlias = tuple[str, int] | tuple[str, int, int]
"""(arm, seed): identifies a run of a campaign. A third number identifies a repeat of that run, from 1."""


def key_of(row: Mapping[str, Any]) -> Key:
    """Returns which run a row or a request is about."""
    arm, seed, repeat = row["arm"], row["seed"], row.get("repeat", 0)
    return (arm, seed, repeat) if repeat else (arm, seed)


def whole_rows(path: Path) -> Iterator[Row]:
    """Yields the rows of a file that another process may be writing, one at a time; none if there is no file."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        for line in file:
            row = _whole_row(line)
            if row is None:
                return
            yield row


class RowLog:
    """The file of rows of one campaign, open for appending. Mutable; a context manager that closes it.

    Args:
        directory: The campaign's directory.
        notice: Called with every row that the file already has, in its order.

    Attributes:
        damage: Why rows at the end were cut off; empty if none were.

    Raises:
        UsageError: Another process is running this campaign, or the file cannot be opened.
        HistoryError: A row lacks what `notice` needs.
    """

    def __init__(self, directory: Path, notice: Callable[[Row], None] = lambda _: None) -> None:
        self.path = directory / ROWS_FILE
        self.damage = ""
        self._offsets: dict[tuple[str, int], dict[int, int]] = {}
        self._synced_s = time.monotonic()
        self._is_dirty = False
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise UsageError(f"{self.path} cannot be opened: {error.strerror}") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise UsageError(
                f"another process is running the campaign {directory}; wait until it ends, or stop it"
            ) from None
        try:
            self._end = self._recover(notice)
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> "RowLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return sum(map(len, self._offsets.values()))

    def __contains__(self, key: Key) -> bool:
        arm, seed, repeat = _parts(key)
        return seed in self._offsets.get((arm, repeat), ())

    def append(self, row: Row) -> None:
        """Writes a row; it survives the death of this process, and soon afterwards that of the machine.

        Raises:
            HarnessFailure: The run has a row already, or the file cannot be written.
        """
        if key_of(row) in self:
            raise HarnessFailure(f"two rows came back for seed {row['seed']} of {row['arm']}")
        data = (json.dumps(row, sort_keys=True) + "\n").encode()
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError as error:
            os.ftruncate(self._file, self._end)
            raise HarnessFailure(f"{self.path} cannot be written: {error.strerror}") from None
        self._add(row, self._end)
        self._end += len(data)
        self._is_dirty = True
        self.sync_if_due()

    def sync_if_due(self) -> None:
        """Forces new rows to disk, at most once per second."""
        if self._is_dirty and time.monotonic() - self._synced_s >= SYNC_INTERVAL_S:
            self.sync()

    def sync(self) -> None:
        """Forces all rows to disk."""
        os.fsync(self._file)
        self._is_dirty = False
        self._synced_s = time.monotonic()

    def read(self, keys: Iterable[Key]) -> Iterator[Row]:
        """Reads the rows of these runs, one at a time, in this order; leaves out runs that have none."""
        with self.path.open("rb") as file:
            for arm, seed, repeat in map(_parts, keys):
                offset = self._offsets.get((arm, repeat), {}).get(seed)
                if offset is not None:
                    file.seek(offset)
                    row: Row = json.loads(file.readline())
                    yield row

    def close(self) -> None:
        """Forces all rows to disk and releases the lock."""
        if self._file >= 0:
            if self._is_dirty:
                self.sync()
            os.close(self._file)
            self._file = -1

    def _recover(self, notice: Callable[[Row], None]) -> int:
        """Finds the rows, cuts off what follows the last whole one, and returns where the file ends."""
        end = 0
        with self.path.open("rb") as file:
            for line in file:
                row = _whole_row(line)
                if row is None or key_of(row) in self:
                    rest = os.fstat(self._file).st_size - end
                    self.damage = f"the last {rest} bytes of {self.path} were no whole row"
                    os.ftruncate(self._file, end)
                    break
                self._add(row, end)
                try:
                    notice(row)
                except (KeyError, TypeError, ValueError, AttributeError) as error:
                    raise HistoryError(
                        f"{self.path}: the row of seed {row['seed']} of {row['arm']} is damaged"
                        f" ({type(error).__name__}: {error}); delete the row to repeat its run"
                    ) from None
                end += len(line)
        return end

    def _add(self, row: Row, offset: int) -> None:
        arm, seed, repeat = _parts(key_of(row))
        self._offsets.setdefault((arm, repeat), {})[seed] = offset


def _parts(key: Key) -> tuple[str, int, int]:
    return key if len(key) == 3 else (*key, 0)


def _whole_row(line: bytes) -> Row | None:
    """Returns the row of a line, None if it was not written completely."""
    if not line.endswith(b"\n"):
        return None
    try:
        row = json.loads(line)
    except ValueError:
        return None
    if not isinstance(row, dict) or type(row.get("seed")) is not int:
        return None
    return row if type(row.get("arm")) is str else None
