"""Progress on standard error: a live bar on a terminal, occasional lines in a log, nothing when quiet."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from harness.cli.output import is_terminal, terminal_console
from results.text import plain

if TYPE_CHECKING:
    from rich.progress import TaskID

LOG_INTERVAL_S = 10.0
"""A log gets the state of an activity at most this often; a terminal at every report."""


class StandardErrorProgress:
    """Shows progress (`harness.contracts.progress`). A context manager: its end removes the live bar.

    Mutable: when it last wrote to a log, and the live display of a terminal, which the first report starts.

    Args:
        quiet: Write nothing.
        stream: Where to write; standard error by default.
    """

    def __init__(self, *, quiet: bool = False, stream: TextIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._quiet = quiet
        self._start_s = time.monotonic()
        self._logged_s = -LOG_INTERVAL_S
        self._bars = _Bars(self._stream) if not quiet and is_terminal(self._stream) else None

    def __enter__(self) -> "StandardErrorProgress":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def message(self, text: str) -> None:
        """Writes a line that stays."""
        if self._quiet:
            return
        line = f"[{time.monotonic() - self._start_s:6.1f} s] {plain(text)}"
        if self._bars is not None:
            self._bars.print(line)
        else:
            self._write(line)

    def update(self, label: str, fraction: float, detail: str = "") -> None:
        """Shows how much of an activity is done; in a log only every few seconds."""
        if self._quiet:
            return
        if self._bars is not None:
            self._bars.update(plain(label), fraction, plain(detail))
            return
        now_s = time.monotonic() - self._start_s
        if now_s - self._logged_s >= LOG_INTERVAL_S:
            self._logged_s = now_s
            self._write(f"[{now_s:6.1f} s] {plain(f'{label} {fraction:.0%} {detail}').rstrip()}")

    def _write(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()


class _Bars:
    """The live bar of the current activity on a terminal. Mutable: the activity."""

    def __init__(self, stream: TextIO) -> None:
        # A tenth of a second to load, and needed on a terminal only.
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
        from rich.table import Column

        self._console = terminal_console(stream)
        # No refreshing thread: a simulated world shares its process with the display, and reports often enough.
        self._progress: Progress = Progress(
            TextColumn("{task.description}", markup=False, table_column=Column(min_width=10)),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TextColumn("{task.fields[detail]}", markup=False),
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task: TaskID | None = None
        self._label = ""

    def print(self, line: str) -> None:
        """Writes a line above the bar."""
        self._console.print(line, soft_wrap=True)

    def update(self, label: str, fraction: float, detail: str) -> None:
        """Shows an activity; another label replaces the bar."""
        if self._task is None or label != self._label:
            if self._task is not None:
                self._progress.remove_task(self._task)
            self._task = self._progress.add_task(label, total=1.0, detail=detail)
            self._label = label
            self._progress.start()
        completed = min(max(fraction, 0.0), 1.0)
        self._progress.update(self._task, completed=completed, detail=detail)
        self._progress.refresh()

    def stop(self) -> None:
        """Removes the bar."""
        self._progress.stop()
