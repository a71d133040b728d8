"""Searches the smallest trial that still shows a finding.

Every step tries a list of smaller trials in order and continues with the first that shows the finding:

1. faults after the decisive moment go, and the main phase ends soon after it;
2. delta debugging (Zeller's ddmin) over the faults that are left, and 1 once more;
3. the configuration: weather, special settings, topics and partitions, nodes;
4. each fault: fewer targets and parameters, no random choice, healed sooner, an earlier occurrence of its event
   and a shorter delay after it, sooner after the fault before;
5. numbers, by bisection: duration, clients, rates of operations.

The steps repeat until nothing changes any more, at most four times, because fewer clients may make a fault
unnecessary. Bisection assumes that a larger number shows the finding if a smaller one does. Where that is wrong
the result is larger than possible, and still shows the finding: every trial that is accepted was run.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from harness.campaigns.shrinking import simpler
from harness.campaigns.shrinking.finding import Row, find, idle_faults, shows
from harness.campaigns.shrinking.trial import (
    Trial,
    changed,
    given,
    with_fault,
    with_faults,
    with_workload,
)
from harness.campaigns.shrinking.trial_runs import OutOfBudgetError, TrialRuns
from nemesis.fault import Fault

ROUNDS_MAX = 4
"""The second round rarely finds much, the third almost nothing."""

MARGIN_MS = 1000
"""How much longer than the decisive moment the main phase of the second trial is: clients have to notice."""

TIME_GRAIN_MS = 50
"""Times are not bisected more finely: a network delay has a few milliseconds, a fast election a few hundred."""

DELAY_GRAIN_MS = 5
"""A delay after an event is about as long as a message takes."""

GRAIN_SHARE = 0.1
"""Nor more finely than this share of their value."""

_Numbered = Callable[[int], Trial | None]


class Shrinker:
    """Shrinks one run. Mutable: it knows the smallest trial so far.

    Args:
        start: A trial whose run shows the finding.
        row: The row of that run.
        wanted: The identity of the finding.
        trial_runs: Runs trials.

    Attributes:
        best, row: The smallest trial so far, and the row of its run.
        ended: Why the search ended before nothing could be made smaller; empty if it did not.
    """

    def __init__(
        self, start: Trial, row: Row, wanted: tuple[str, ...], trial_runs: TrialRuns
    ) -> None:
        self.best = start
        self.row = row
        self.ended = ""
        self._wanted = wanted
        self._trial_runs = trial_runs
        self._show()

    def run(self) -> None:
        """Searches until nothing changes any more, or the limits are reached.

        Raises:
            HarnessFailure: A worker died.
        """
        try:
            self._cut_end()
            for _ in range(ROUNDS_MAX):
                before = self.best
                self._fewer_faults()
                # With fewer faults the decisive moment is often another one.
                self._cut_end()
                self._plainer_configuration()
                self._plainer_faults()
                self._smaller_numbers()
                if self.best == before:
                    return
            # Each step may have made a fault unnecessary.
            self._fewer_faults()
        except OutOfBudgetError as limit:
            self.ended = str(limit)

    @property
    def decisive_ms(self) -> float:
        """The decisive moment of the finding in the smallest run so far, since the main phase began."""
        at_ns = find(self.row["findings"], self._wanted)["parts"]["at_ns"]
        return float(at_ns - self.row["effects"]["main_ns"]) / 1e6

    def _try(self, trials: Iterable[Trial], *, next_guess: Sequence[Trial] = ()) -> bool:
        """Continues with the first trial that shows the finding; returns whether there is one."""
        idle_max = len(idle_faults(self.row))
        found = self._trial_runs.first(
            trials,
            lambda row: shows(row, self._wanted, idle_max=idle_max),
            next_guess=next_guess,
        )
        if found is None:
            return False
        self.best, self.row = found, self._trial_runs.row(found)
        self._show()
        return True

    def _cut_end(self) -> None:
        """Removes faults that began after the decisive moment, and the time after it."""
        scale = self.best.experiment.time_scale
        end_ms = self.decisive_ms / scale
        before = [fault for fault in self.best.schedule if fault.at_ms <= end_ms]
        last_ms = max((fault.at_ms for fault in before), default=0)
        trials = []
        for margin_ms in (0, MARGIN_MS, 3 * MARGIN_MS):
            cut = with_faults(self.best, {fault.id for fault in before}) or self.best
            shorter = max(int(end_ms) + margin_ms, last_ms + 1)
            if shorter < cut.experiment.duration_ms:
                trials.append(changed(cut, duration_ms=shorter))
        self._try(one for one in trials if one is not None)

    def _fewer_faults(self) -> None:
        """Delta debugging: first none, then without those that did nothing, then parts of the schedule."""
        self._try(given(with_faults(self.best, ())))
        idle = set(idle_faults(self.row))
        self._try(given(with_faults(self.best, _ids(self.best) - idle)))
        parts = 2
        while self.best.schedule:
            ids = [fault.id for fault in self.best.schedule]
            parts = min(parts, len(ids))
            if self._try(without_parts(self.best, parts)):
                parts = max(parts - 1, 2)
            elif parts < len(ids):
                parts = 2 * parts
            else:
                return

    def _plainer_configuration(self) -> None:
        while self._try(simpler.without_settings(self.best)):
            pass
        self._try(simpler.fewer_partitions(self.best))
        while self._try(simpler.fewer_nodes(self.best)):
            pass

    def _plainer_faults(self) -> None:
        for index in range(len(self.best.schedule)):
            while self._try(self._plainer(index)):
                pass
            fault = self.best.schedule[index]
            if fault.for_ms is not None:
                self._smallest(1, fault.for_ms, self._with_number(index, "for_ms"), TIME_GRAIN_MS)
            self._smallest(1, fault.nth, self._with_number(index, "nth"), 1)
            self._smallest(0, fault.delay_ms, self._with_number(index, "delay_ms"), DELAY_GRAIN_MS)
            self._smallest(0, self._gap_ms(index), self._begun_after(index), TIME_GRAIN_MS)

    def _plainer(self, index: int) -> Iterator[Trial]:
        effects = {fault["id"]: fault["nodes"] for fault in self.row["effects"]["faults"]}
        return simpler.plainer_fault(
            self.best,
            index,
            effects.get(self.best.schedule[index].id, ()),
            self.best.experiment.topic.partition_names(),
        )

    def _smaller_numbers(self) -> None:
        last_ms = max((fault.at_ms for fault in self.best.schedule), default=0)
        self._smallest(
            last_ms + 1, self.best.experiment.duration_ms, self._with_duration, TIME_GRAIN_MS
        )
        settings: Any = self.best.experiment.workload
        for name, least in simpler.LEAST_CLIENTS.items():
            if hasattr(settings, name):
                self._smallest(least, getattr(settings, name), self._with_setting(name, int), 1)
        for name in simpler.RATES:
            if hasattr(settings, name):
                rate = int(getattr(settings, name))
                self._smallest(0, rate, self._with_setting(name, float), 1)

    def _smallest(self, least: int, present: int, at: _Numbered, grain: int) -> None:
        """Makes a number as small as possible.

        Args:
            least: The smallest value, which is tried first.
            present: The value of the smallest trial so far.
            at: Returns the smallest trial with another value; None if that is not possible.
            grain: How exact the result is.
        """
        if present <= least or self._try(given(at(least))):
            return
        low, high = least, present
        while high - low > max(grain, int(GRAIN_SHARE * high)):
            middle = _round((low + high) // 2, grain)
            if not low < middle < high:
                return
            guesses = [at(_round((end + middle) // 2, grain)) for end in (low, high)]
            if self._try(given(at(middle)), next_guess=[one for one in guesses if one is not None]):
                high = middle
            else:
                low = middle

    def _with_number(self, index: int, name: str) -> _Numbered:
        return lambda number: with_fault(self.best, index, **{name: number})

    def _gap_ms(self, index: int) -> int:
        """Returns the time between the fault before and this one; since the main phase began for the first."""
        schedule = self.best.schedule
        return schedule[index].at_ms - (schedule[index - 1].at_ms if index else 0)

    def _begun_after(self, index: int) -> _Numbered:
        """Returns the change that moves a fault, all later ones and the end of the main phase."""

        def moved(gap_ms: int) -> Trial | None:
            earlier_ms = self._gap_ms(index) - gap_ms
            schedule = tuple(
                _earlier(fault, earlier_ms if number >= index else 0)
                for number, fault in enumerate(self.best.schedule)
            )
            duration_ms = self.best.experiment.duration_ms - earlier_ms
            return changed(self.best, schedule=schedule, duration_ms=duration_ms)

        return moved

    def _with_duration(self, duration_ms: int) -> Trial | None:
        return changed(self.best, duration_ms=duration_ms)

    def _with_setting(self, name: str, kind: Callable[[int], Any]) -> _Numbered:
        return lambda number: with_workload(self.best, **{name: kind(number)})

    def _show(self) -> None:
        experiment = self.best.experiment
        self._trial_runs.best = (
            f"{len(self.best.schedule)} faults in {experiment.duration_ms / 1e3:.1f} s"
        )


def without_parts(trial: Trial, parts: int) -> Iterator[Trial]:
    """Yields the trial without one of so many equal parts of its faults each, the earliest first."""
    ids = [fault.id for fault in trial.schedule]
    ends = [len(ids) * number // parts for number in range(parts + 1)]
    for begin, end in pairwise(ends):
        found = with_faults(trial, set(ids[:begin] + ids[end:]))
        if found is not None:
            yield found


def _ids(trial: Trial) -> set[str]:
    return {fault.id for fault in trial.schedule}


def _round(number: int, grain: int) -> int:
    return number // grain * grain


def _earlier(fault: Fault, by_ms: int) -> Fault:
    return replace(fault, at_ms=fault.at_ms - by_ms)
