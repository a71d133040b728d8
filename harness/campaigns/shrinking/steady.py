"""Makes a trial that does not depend on exact times, for worlds where time is real.

A shrunk schedule often hits a moment of a few milliseconds by its times alone. So faults begin later in a longer
main phase, and clients append more often: there have to be records when the first fault strikes. Each fault waits
for the committed change that came before it, and lasts until the one after it; the last fault comes first, because
what an earlier one causes moves with it. A change is kept only if the simulation still shows the finding, also
when every fault that waits for an event begins late.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from harness.campaigns.shrinking.finding import Row, idle_faults, shows
from harness.campaigns.shrinking.trial import Trial, changed, given, with_fault, with_workload
from harness.campaigns.shrinking.trial_runs import TrialRuns

LATE_MS = (40, 120)
"""How late faults begin that wait for an event: a harness on the same machine needs some tens of milliseconds."""

EVENTS_TRIED_MAX = 4
"""How many changes before a fault are tried as its event, the nearest first."""

ROUNDS_MAX = 3
"""What one fault waits for may be possible only when another one waits."""

LATER_MS = 1000
"""How much later faults begin: real clients need a moment to connect."""

MORE_MS = 3000
"""How much longer the main phase is besides: events may come later."""

APPENDS_PER_S = (20.0, 5.0)
"""Rates that are tried, so that there is a record to lose."""

LASTS_MS_MIN = 2000
"""How long a fault may last that is healed by an event."""

Change = dict[str, Any]


class Steadier:
    """Makes one trial steadier. Mutable: the best trial so far.

    Args:
        start: A trial whose run shows the finding.
        row: The row of that run, with `effects`.
        wanted: The identity of the finding.
        trial_runs: Runs trials.

    Attributes:
        best: The steadiest trial so far; it shows the finding.
    """

    def __init__(
        self, start: Trial, row: Row, wanted: tuple[str, ...], trial_runs: TrialRuns
    ) -> None:
        self.best = start
        self._row = row
        self._wanted = wanted
        self._trial_runs = trial_runs
        self._idle_max = len(idle_faults(row))

    def run(self) -> Trial:
        """Returns the steadiest trial.

        Raises:
            HarnessFailure: A worker died.
        """
        duration_ms = self.best.experiment.duration_ms + MORE_MS
        self._take(given(changed(self.best, duration_ms=duration_ms)))
        is_later = self._take(given(_later(self.best, LATER_MS)))
        self._take(
            one
            for rate in APPENDS_PER_S
            if getattr(self.best.experiment.workload, "appends_per_s", rate) < rate
            for one in given(with_workload(self.best, appends_per_s=rate))
        )
        for _ in range(ROUNDS_MAX):
            before = self.best
            for index in reversed(range(len(self.best.schedule))):
                self._take(self._waiting(index))
                self._take(self._healed_by_event(index))
            if self.best == before:
                break
        if not is_later:
            self._take(given(_later(self.best, LATER_MS)))
        return self.best

    def _take(self, trials: Iterator[Trial]) -> bool:
        """Continues with the first trial that shows the finding, in time and late; returns whether one does."""
        for trial in trials:
            variants = [trial, *(late(trial, by_ms) for by_ms in LATE_MS)]
            if all(map(self._shows, variants)):
                self.best, self._row = trial, self._trial_runs.row(trial)
                return True
        return False

    def _shows(self, trial: Trial) -> bool:
        return shows(self._trial_runs.row(trial), self._wanted, idle_max=self._idle_max)

    def _waiting(self, index: int) -> Iterator[Trial]:
        """Yields the trial with a fault that waits for one of the last changes before it."""
        fault = self.best.schedule[index]
        times = self._times(fault.id)
        if fault.on or times is None:
            return
        began_ns, main_ns = times["invoked_ns"], self._row["effects"]["main_ns"]
        before = [one for one in self._changes if main_ns <= one["at_ns"] <= began_ns]
        for change in before[: -1 - EVENTS_TRIED_MAX : -1]:
            nth = _nth(change, before)
            yield from given(
                with_fault(self.best, index, on=_text(change), nth=nth, at_ms=0, delay_ms=0)
            )

    def _healed_by_event(self, index: int) -> Iterator[Trial]:
        """Yields the trial with a fault that lasts until one of the next changes, or until the last one before."""
        fault = self.best.schedule[index]
        times = self._times(fault.id)
        if fault.for_ms is None or fault.until or times is None or times["healed_ns"] is None:
            return
        since = [one for one in self._changes if one["at_ns"] > times["invoked_ns"]]
        after = [one for one in since if one["at_ns"] >= times["healed_ns"]]
        earlier = [one for one in since if one["at_ns"] < times["healed_ns"]]
        for_ms = max(LASTS_MS_MIN, 3 * fault.for_ms)
        for change in (*after[:2], *earlier[-1:]):
            nth = _nth(change, since)
            yield from given(
                with_fault(self.best, index, until=_text(change), until_nth=nth, for_ms=for_ms)
            )

    @property
    def _changes(self) -> Sequence[Change]:
        changes: Sequence[Change] = self._row["effects"]["changes"]
        return changes

    def _times(self, fault_id: str) -> dict[str, Any] | None:
        rows = self._row["effects"]["faults"]
        return next((row for row in rows if row["id"] == fault_id), None)


def differences(before: Trial, after: Trial) -> list[str]:
    """Returns what was changed of a trial to make it steadier, as sentences."""
    sentences = []
    for old, new in zip(before.schedule, after.schedule, strict=True):
        if new.on != old.on:
            which = "" if new.nth == 1 else f", occurrence {new.nth},"
            sentences.append(
                f"{new.id} begins at the event {new.on!r}{which} instead of at {old.at_ms} ms"
            )
        elif new.at_ms != old.at_ms:
            sentences.append(f"{new.id} begins at {new.at_ms} ms instead of at {old.at_ms} ms")
        if new.until != old.until:
            which = "" if new.until_nth == 1 else f", occurrence {new.until_nth},"
            sentences.append(
                f"{new.id} lasts until the event {new.until!r}{which} instead of for {old.for_ms} ms"
            )
    rates = [getattr(one.experiment.workload, "appends_per_s", None) for one in (before, after)]
    if rates[0] != rates[1]:
        sentences.append(f"{rates[1]:g} appends per second instead of {rates[0]:g}")
    durations = [one.experiment.duration_ms for one in (before, after)]
    if durations[0] != durations[1]:
        sentences.append(f"the main phase takes {durations[1]} ms instead of {durations[0]} ms")
    return sentences


def _later(trial: Trial, by_ms: int) -> Trial | None:
    """Returns the trial with faults that begin later, and a main phase that is longer by as much."""
    schedule = tuple(
        fault if fault.on else replace(fault, at_ms=fault.at_ms + by_ms) for fault in trial.schedule
    )
    duration_ms = trial.experiment.duration_ms + by_ms
    return changed(trial, schedule=schedule, duration_ms=duration_ms)


def late(trial: Trial, by_ms: int) -> Trial:
    """Returns the trial with every fault that waits for an event so much later."""
    for index, fault in enumerate(trial.schedule):
        if fault.on:
            trial = with_fault(trial, index, delay_ms=fault.delay_ms + by_ms) or trial
    return trial


def _text(change: Change) -> str:
    return f"{change['event']} of {change['partition']}"


def _nth(change: Change, changes: Sequence[Change]) -> int:
    """Returns which occurrence of its event a change is among others, counted from 1."""
    return sum(_text(one) == _text(change) for one in changes if one["at_ns"] <= change["at_ns"])
