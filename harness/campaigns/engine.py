"""Runs the requests of a campaign and writes one row per run, as runs end.

The engine holds no rows: each is written (`harness.campaigns.row_log`) and forgotten. Whatever is computed from
them reads the file. A campaign that is interrupted at any moment therefore continues where it was: runs with a
row are done, all others run again.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from harness.campaigns.crew import Crew, Member, Request, Row
from harness.campaigns.files import RUNS_FOLDER
from harness.campaigns.kept_runs import is_failing
from harness.campaigns.row_log import Key, RowLog, key_of
from harness.contracts.progress import ProgressDisplay
from harness.errors import HarnessFailure

POLL_S = 0.5
"""How often progress is shown and rows are forced to disk while no run ends."""


class Source(Protocol):
    """Provides the requests of a campaign, in order."""

    @property
    def remaining(self) -> int:
        """How many simulated requests are left, as far as it is known."""

    def has_real(self) -> bool:
        """Returns whether there are more requests for real environments."""

    def take(self, count: int, *, real: bool) -> Sequence[Request]:
        """Returns the next requests of one kind, at most `count`; none if there are no more.

        A request has the keys that a worker expects, except `runs`, and its number in the plan, `index`.
        """


class Ledger(Protocol):
    """Receives every row."""

    def stamp(self, row: Row) -> None:
        """Adds what only the driver knows to a row, before it is written."""

    def notice(self, row: Row) -> None:
        """Counts a row that was written."""

    def show(self) -> None:
        """Shows the progress."""


class Remaining:
    """A source for a known sequence of requests, without those that have a row. Mutable.

    Args:
        requests: All requests, in order, all of one kind.
        total: How many.
        rows: What is done.
    """

    def __init__(self, requests: Iterator[Request], total: int, rows: RowLog) -> None:
        self._requests = (request for request in requests if key_of(request) not in rows)
        self.remaining = total - len(rows)

    def has_real(self) -> bool:
        """Returns False: no core has to be kept free for requests of one kind."""
        return False

    def take(self, count: int, *, real: bool) -> Sequence[Request]:
        """Returns the next requests."""
        taken = list(islice(self._requests, count))
        self.remaining -= len(taken)
        return taken


class Meter:
    """Shows how far a campaign is. Mutable.

    Args:
        display: Where.
        total: How many runs it has.
    """

    def __init__(self, display: ProgressDisplay, total: int) -> None:
        self.done = 0
        self.findings = 0
        self._display = display
        self._total = total
        self._done_before = 0
        self._began_s = time.monotonic()

    def notice(self, row: Mapping[str, Any]) -> None:
        """Counts a finished run."""
        self.done += 1
        self.findings += is_failing(row)

    def start(self) -> None:
        """Ends the counting of what is done already; the rate is that of the runs from now on."""
        self._done_before = self.done
        self._began_s = time.monotonic()

    def show(self) -> None:
        """Shows runs, rate, failing runs and the time left."""
        elapsed_s = time.monotonic() - self._began_s
        rate = (self.done - self._done_before) / elapsed_s if elapsed_s > 0 else 0.0
        parts = [f"{self.done}/{self._total}"]
        if rate:
            parts.append(f"{rate:.1f} runs/s" if rate >= 0.1 else f"{rate * 60:.1f} runs/min")
        parts.append(f"{self.findings} failing")
        if rate:
            parts.append(f"{duration_text((self._total - self.done) / rate)} left")
        self._display.update("runs", self.done / max(self._total, 1), ", ".join(parts))

    def finish(self) -> None:
        """Reports how many runs there were, and in what time."""
        elapsed_s = time.monotonic() - self._began_s
        self._display.message(f"{self.done - self._done_before} runs in {elapsed_s:.0f} s")


class Engine:
    """Runs every request of a source and writes its row. Mutable: it knows which runs are in flight.

    Args:
        source: The requests.
        crew: What runs them; stopped at the end, also after an error.
        rows: Where rows are written.
        ledger: Receives every row.
        directory: The campaign's directory.
    """

    def __init__(
        self, source: Source, crew: Crew, rows: RowLog, ledger: Ledger, directory: Path
    ) -> None:
        self._source = source
        self._crew = crew
        self._rows = rows
        self._ledger = ledger
        self._runs = str((directory / RUNS_FOLDER).resolve())
        self._pending: dict[Key, int] = {}

    def run(self) -> None:
        """Runs until the source is empty and every row has arrived.

        Raises:
            HarnessFailure: A worker died, or returned another row than that of its request.
        """
        shown_s = 0.0
        with self._crew:
            while True:
                for member in self._crew.in_turn():
                    self._fill(member)
                if not self._crew.is_busy:
                    break
                for member in self._crew.ready(POLL_S):
                    for row in member.receive():
                        self._accept(row)
                self._rows.sync_if_due()
                if time.monotonic() - shown_s >= POLL_S:
                    shown_s = time.monotonic()
                    self._ledger.show()

    def _fill(self, member: Member) -> None:
        source = self._source
        while member.room and self._crew.has_core_for(member, more_real=source.has_real()):
            batch = source.take(member.batch_size(source.remaining), real=member.runs_real)
            if not batch:
                return
            self._pending.update((key_of(request), request["index"]) for request in batch)
            member.send([{**request, "runs": self._runs} for request in batch])

    def _accept(self, row: Row) -> None:
        index = self._pending.pop(key_of(row), None)
        if index is None:
            raise HarnessFailure(
                f"a worker returned a row for seed {row['seed']} of {row['arm']}, which it was "
                "not asked for"
            )
        if "skipped" in row:
            return
        row["index"] = index
        self._ledger.stamp(row)
        self._rows.append(row)
        self._ledger.notice(row)


def duration_text(seconds: float) -> str:
    """Returns a rounded duration: "40 s", "12 min", "3 h 20 min"."""
    minutes = round(seconds / 60)
    if minutes < 2:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
