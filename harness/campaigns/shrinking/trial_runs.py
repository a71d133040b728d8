"""Runs trials on worker processes, and answers in the order of the trials.

Several trials run at once, but the first one in order that shows the finding is chosen, not the first one to
end. So the result does not depend on the number of workers: what runs ahead is only guessed to be needed. Only
trials that were needed count as runs.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from itertools import chain
from typing import Any

from harness.campaigns.crew import Crew, Row
from harness.campaigns.shrinking.trial import Trial
from harness.contracts.progress import ProgressDisplay
from harness.runs import experiment_file as experiments

POLL_S = 0.5
"""How often the time is checked while no run ends."""


class OutOfBudgetError(Exception):
    """The runs or the time of a search are used up; the message states which."""


class TrialRuns:
    """Runs trials, each once. Mutable: it knows the rows so far.

    Args:
        crew: The workers; the caller stops them.
        runs_max: After this many runs that were needed, `OutOfBudgetError` is raised; None for no limit.
        budget_s: After this time it is raised, too; None for no limit. The result then depends on the machine.
        progress: Shows how far the search is.
        clock: Seconds.

    Attributes:
        runs: How many runs were needed.
        cpu_s: Processor time of all simulations, those that were not needed included.
        best: One line about the smallest run so far, for the display.
    """

    def __init__(
        self,
        crew: Crew,
        *,
        runs_max: int | None,
        budget_s: float | None,
        progress: ProgressDisplay,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.runs = 0
        self.cpu_s = 0.0
        self.best = ""
        self._crew = crew
        self._runs_max = runs_max
        self._budget_s = budget_s
        self._progress = progress
        self._clock = clock
        self._began_s = clock()
        self._rows: dict[str, Row] = {}
        self._running: set[str] = set()
        self._counted: set[str] = set()

    def row(self, trial: Trial) -> Row:
        """Returns the row of a trial.

        Raises:
            OutOfBudgetError: The limit of runs or of time is reached.
            HarnessFailure: A worker died.
        """
        key = _digest(trial)
        self._need(key)
        while key not in self._rows:
            self._start([trial])
            self._wait()
        self._counted.add(key)
        self.runs = len(self._counted)
        return self._rows[key]

    def first(
        self,
        trials: Iterable[Trial],
        shows: Callable[[Row], bool],
        *,
        next_guess: Iterable[Trial] = (),
    ) -> Trial | None:
        """Returns the first trial, in order, whose run shows the finding; None if none does.

        Args:
            trials: In order; only as many are taken as are needed or guessed.
            shows: Decides about a row.
            next_guess: Trials of which some are probably needed next; they run on workers that are free.

        Raises:
            OutOfBudgetError: The limit of runs or of time is reached.
            HarnessFailure: A worker died.
        """
        source: Iterator[Trial] = iter(trials)
        guesses = deque(next_guess)
        ahead: deque[Trial] = deque()
        width = len(self._crew.members)
        while True:
            while len(ahead) < width and (following := next(source, None)) is not None:
                ahead.append(following)
            if not ahead:
                return None
            self._start(chain(ahead, guesses))
            trial = ahead.popleft()
            if shows(self.row(trial)):
                return trial

    def _need(self, key: str) -> None:
        if self._runs_max is not None and self.runs >= self._runs_max and key not in self._counted:
            raise OutOfBudgetError(f"the limit of {self._runs_max} runs")

    def _start(self, trials: Iterable[Trial]) -> None:
        """Starts trials that have no row, in order, as long as workers are free."""
        free = [member for member in self._crew.members if member.room]
        for trial in trials:
            if not free:
                return
            key = _digest(trial)
            if key in self._rows or key in self._running:
                continue
            self._running.add(key)
            free.pop().send([_request(trial, key)])

    def _wait(self) -> None:
        """Waits until a run ends, or for a moment."""
        spent_s = self._clock() - self._began_s
        if self._budget_s is not None and spent_s >= self._budget_s:
            raise OutOfBudgetError(f"the time of {self._budget_s:g} s")
        for member in self._crew.ready(POLL_S):
            for row in member.receive():
                self._running.discard(row["arm"])
                self._rows[row["arm"]] = row
                self.cpu_s += row["cpu_s"]
        detail = ", ".join(filter(None, (f"{self.runs} runs", self.best)))
        self._progress.update("shrinking", self._fraction(spent_s), detail)

    def _fraction(self, spent_s: float) -> float:
        """Returns the part of the limits that is used; without limits the end is not known."""
        by_runs = self.runs / self._runs_max if self._runs_max else 0.0
        by_time = spent_s / self._budget_s if self._budget_s else 0.0
        return min(max(by_runs, by_time), 1.0)


def _digest(trial: Trial) -> str:
    return blake2b(trial.key.encode(), digest_size=12).hexdigest()


def _request(trial: Trial, key: str) -> dict[str, Any]:
    return {
        "experiment": experiments.to_data(trial.experiment),
        "seed": trial.seed,
        "arm": key,
        "run": "",
        "keep": False,
        "effects": True,
    }
