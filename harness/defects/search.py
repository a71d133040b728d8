"""Looks for defects with random faults and counts the runs that each oracle needs.

An arm runs seed after seed until one shows something that the same seed does not show with the defect off, or
until its limits. What an arm needed is counted in the order of seeds, so neither the number of workers nor an
interruption changes it; only the limit on processor time depends on the machine.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from harness.campaigns.crew import Crew, Request, Row
from harness.campaigns.effects import CampaignEffects
from harness.campaigns.engine import Engine, duration_text
from harness.campaigns.files import SEARCH, SEARCH_FILE
from harness.campaigns.row_log import RowLog
from harness.contracts.progress import ProgressDisplay
from harness.defects.search_plan import CLIENTS, MONITOR, OFF, Arm, SearchPlan
from harness.defects.searched_mutants import SearchedMutants
from harness.runs import experiment_file as experiments
from harness.runs.promises import promises_of
from results.store import write_json
from system_under_test.defects import DEFECTS

FOUND, LIMIT, UNFINISHED, ENDED = "found", "limit", "unfinished", "ended"
"""How the search of an arm ended; `LIMIT`: nothing was found within its limits. `ENDED`: the other oracle of the
same runs found the defect first."""
STUCK = "stuck"
"""The oracle that sees clients make no progress, and the anomaly; it judges the runs in which clients decide."""
ONLY_STUCK = frozenset({"L"})
"""The harm of defects that only keep clients from working (`system_under_test.defects.LETTERS`)."""
ORACLES = (MONITOR, CLIENTS, STUCK)
NOT_SEEN_BY_CLIENTS = frozenset(
    {"invariant-broken", "divergent-replicas", "high-watermark-regression"}
)
"""Anomalies in what nodes report or hold; no client sees them."""

Seen: TypeAlias = tuple[str, ...]
"""What an oracle saw in a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The first finding of an arm.

    Attributes:
        seed: The seed that shows it.
        runs: How many runs it took.
        cpu_s: The processor time of these runs.
        what: What was seen: one violation in words, or the ids of anomalies.
    """

    seed: int
    runs: int
    cpu_s: float
    what: Seen


def seen_by(oracle: str, row: Mapping[str, Any]) -> Seen:
    """Returns what an oracle saw in a run: one violation in words, or the ids of anomalies; empty if nothing.

    Args:
        oracle: `MONITOR` for violations and what nodes report or hold, `CLIENTS` for what clients saw, `OFF` for
            all of it.
        row: Of the run.
    """
    if oracle != CLIENTS and row["violations"]:
        return (str(row["violations"][0]),)
    forbidden = {one["id"] for one in row["anomalies"] if one["judgement"] == "forbidden"}
    if oracle == CLIENTS:
        forbidden -= NOT_SEEN_BY_CLIENTS
    if oracle == MONITOR:
        forbidden &= NOT_SEEN_BY_CLIENTS
    return tuple(sorted(forbidden))


class Hunt:
    """The search of one arm. Mutable.

    Args:
        arm: The arm.
        plan: Its limits.
    """

    def __init__(self, arm: Arm, plan: SearchPlan) -> None:
        self.arm = arm
        self.found: Found | None = None
        self.runs = 0
        self.cpu_s = 0.0
        self._first = plan.first_seed
        self._runs_max = plan.runs
        self._cpu_s_max = plan.cpu_s
        self._sent: set[int] = set()
        self._rows: dict[int, tuple[Seen, float]] = {}
        self._shown_without: dict[int, bool] = {}

    @property
    def status(self) -> str:
        """`FOUND`, `LIMIT` or `UNFINISHED`."""
        if self.found is not None:
            return FOUND
        is_over = self.runs >= self._runs_max or self.cpu_s >= self._cpu_s_max
        return LIMIT if is_over else UNFINISHED

    @property
    def left(self) -> int:
        """How many more seeds it may need."""
        if self.status != UNFINISHED:
            return 0
        return self._runs_max - self.runs - len(self._rows) - len(self._sent)

    def next_seed(self, is_ready: Callable[[int], bool]) -> int | None:
        """Returns the seed to run next.

        Args:
            is_ready: Whether it is known what a seed runs.

        Returns:
            None if there is none, if a finding has to be confirmed first, or if it depends on runs that have not
            ended.
        """
        if self.status != UNFINISHED:
            return None
        findings = [seed for seed, (what, _) in self._rows.items() if what]
        seed = self._first + self.runs
        while seed in self._rows or seed in self._sent:
            seed += 1
        if seed >= min([self._first + self._runs_max, *findings]) or not is_ready(seed):
            return None
        self._sent.add(seed)
        return seed

    def add(self, seed: int, what: Seen, cpu_s: float) -> None:
        """Takes a run of this arm."""
        self._sent.discard(seed)
        if self.status == UNFINISHED:
            self._rows[seed] = (what, cpu_s)
            self._count()

    def to_confirm(self) -> Iterator[int]:
        """Yields the seeds of findings which have to run with the defect off."""
        return (
            seed
            for seed, (what, _) in self._rows.items()
            if what and seed not in self._shown_without
        )

    def confirm(self, seed: int, *, is_shown_without: bool) -> None:
        """Takes what the seed showed with the defect off."""
        self._shown_without[seed] = is_shown_without
        self._count()

    def _count(self) -> None:
        """Counts runs in the order of seeds, up to the first that is missing, unconfirmed, or the finding."""
        while self.status == UNFINISHED:
            seed = self._first + self.runs
            if seed not in self._rows:
                return
            what, cpu_s = self._rows[seed]
            if what and seed not in self._shown_without:
                return
            del self._rows[seed]
            self.runs += 1
            self.cpu_s += cpu_s
            if what and not self._shown_without[seed]:
                self.found = Found(seed=seed, runs=self.runs, cpu_s=self.cpu_s, what=what)
        self._rows.clear()


class Search:
    """The source and the ledger of a search. Mutable.

    Args:
        plan: What to run.
        mutants: What the runs of a guided search are.
        budget_s: When to start no more runs; None for never.
        display: Where progress is shown.
        clock: Seconds.

    Attributes:
        wrong: Findings with the defect off, under a profile that promises to lose nothing: (arm, seed, what).
        errors: Runs that the harness could not finish: (arm, seed, error).
        effects: What the faults of all runs did.
        done: How many runs have a row.
    """

    def __init__(
        self,
        plan: SearchPlan,
        mutants: SearchedMutants,
        budget_s: float | None,
        display: ProgressDisplay,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.hunts = {arm.name: Hunt(arm, plan) for arm in plan.arms.values() if arm.defect}
        self.wrong: list[tuple[str, int, Seen]] = []
        self.errors: list[tuple[str, int, str]] = []
        self.effects = CampaignEffects()
        self.done = 0
        self._plan = plan
        self._mutants = mutants
        self._data = {arm.name: experiments.to_data(arm.experiment) for arm in plan.arms.values()}
        self._number = {name: number for number, name in enumerate(plan.arms, 1)}
        self._off: dict[tuple[str, int], Seen] = {}
        self._asked_off: set[tuple[str, int]] = set()
        self._turn = 0
        self._sent = 0
        self._budget_s = budget_s
        self._display = display
        self._clock = clock
        self._began_s = clock()

    # -- the source

    @property
    def remaining(self) -> int:
        """How many runs are left, if nothing is found any more."""
        return sum(hunt.left for hunt in self.hunts.values()) + len(self._unconfirmed())

    def has_real(self) -> bool:
        """Returns False: all runs are simulated."""
        return False

    def take(self, count: int, *, real: bool) -> Sequence[Request]:
        """Returns the next requests: what confirms findings first, then one seed of each arm in turn."""
        if self._is_late():
            return []
        taken = [self._request(arm, seed) for arm, seed in self._confirming(count)]
        hunts = list(self.hunts.values())
        idle = 0
        while len(taken) < count and idle < len(hunts):
            hunt = hunts[self._turn % len(hunts)]
            self._turn += 1
            seed = hunt.next_seed(partial(self._mutants.is_ready, hunt.arm.name))
            if seed is None:
                idle += 1
                continue
            idle = 0
            taken.append(self._request(hunt.arm.name, seed))
        return taken

    def _confirming(self, count: int) -> list[tuple[str, int]]:
        new = self._unconfirmed()[:count]
        self._asked_off.update(new)
        return new

    def _unconfirmed(self) -> list[tuple[str, int]]:
        """Returns the arm and seed of each run with the defect off that is still to start."""
        wanted = dict.fromkeys(
            (hunt.arm.off, seed) for hunt in self.hunts.values() for seed in hunt.to_confirm()
        )
        return [each for each in wanted if each not in self._asked_off]

    def _is_late(self) -> bool:
        return self._budget_s is not None and self._clock() - self._began_s >= self._budget_s

    def _request(self, arm: str, seed: int) -> Request:
        self._sent += 1
        request = {
            "experiment": self._data[arm],
            "seed": seed,
            "arm": arm,
            "run": f"arm-{self._number[arm]}/{self._plan.started}-{seed}",
            "index": self.done + self._sent,
            "keep": False,
        }
        return self._mutants.request(arm, seed, request)

    # -- the ledger

    def stamp(self, row: Row) -> None:
        """Adds the origin of a mutated run."""
        self._mutants.stamp(row)

    def notice(self, row: Row) -> None:
        """Takes a run."""
        self.done += 1
        arm, seed = self._plan.arms[row["arm"]], row["seed"]
        if row["error"]:
            self.errors.append((arm.name, seed, row["error"]))
        # With a defect on, a run that is unknown for another reason may be the defect's doing.
        named = {**row, "seed": f"{seed} of {arm.name}"}
        self.effects.add(named if arm.oracle == OFF else {**named, "unknown_reason": ""})
        what = () if row["error"] else seen_by(arm.oracle, row)
        self._mutants.notice(row, is_finding=bool(what))
        if arm.oracle != OFF:
            hunt = self.hunts[arm.name]
            hunt.add(seed, what, row["cpu_s"] or 0.0)
            self._tell(hunt)
            return
        self._asked_off.add((arm.name, seed))
        self._off[(arm.name, seed)] = what
        if what and promises_of(arm.experiment).elr_on:
            self.wrong.append((arm.name, seed, what))
        for hunt in self.hunts.values():
            if hunt.arm.off == arm.name:
                self._tell(hunt)

    def _tell(self, hunt: Hunt) -> None:
        """Tells a search what its findings show with the defect off, as far as that is known."""
        for seed in list(hunt.to_confirm()):
            without = self._off.get((hunt.arm.off, seed))
            if without is not None:
                hunt.confirm(seed, is_shown_without=bool(without))

    def show(self) -> None:
        """Shows the progress."""
        ended = [hunt for hunt in self.hunts.values() if hunt.status != UNFINISHED]
        found = sum(hunt.status == FOUND for hunt in ended)
        share = len(ended) / max(len(self.hunts), 1)
        parts = [f"{self.done} runs", f"{found} of {len(self.hunts)} found"]
        if self._budget_s is not None:
            spent_s = self._clock() - self._began_s
            share = max(share, min(spent_s / max(self._budget_s, 1e-9), 1.0))
            parts.append(f"{duration_text(max(self._budget_s - spent_s, 0.0))} left")
        self._display.update("search", share, ", ".join(parts))


def run_search(
    plan: SearchPlan,
    directory: Path,
    make_crew: Callable[[int], Crew],
    budget_s: float | None,
    display: ProgressDisplay,
    *,
    on_interrupt: Callable[[dict[str, Any]], None] = lambda _: None,
) -> dict[str, Any]:
    """Runs what a stored search still has to run, and returns its result, which is also stored.

    Args:
        plan: The plan that `directory` has.
        directory: Of the search.
        make_crew: Starts what runs it, given how many runs are left at most.
        budget_s: When to start no more runs; None for never.
        display: Shows how far it is.
        on_interrupt: Called with the result so far when the search is interrupted.

    Raises:
        UsageError: Another process is running the search.
        HarnessFailure: A worker died.
        KeyboardInterrupt: It was interrupted.
    """
    mutants = SearchedMutants(plan, directory)
    search = Search(plan, mutants, budget_s, display)
    with RowLog(directory, search.notice) as rows:
        if rows.damage:
            display.message(f"{rows.damage}; those runs are repeated")
        try:
            if search.remaining:
                Engine(search, make_crew(search.remaining), rows, search, directory).run()
        except KeyboardInterrupt:
            on_interrupt(result_of(plan, search, mutants))
            raise
    result = result_of(plan, search, mutants)
    write_json(directory / SEARCH_FILE, result)
    return result


def result_of(plan: SearchPlan, search: Search, mutants: SearchedMutants) -> dict[str, Any]:
    """Returns what is known: `defects` by oracle (`ORACLES`), `wrong`, `errors`, `unknown_reasons`, and sums."""
    command = mutants.command

    def of_oracle(defect: str, oracle: str) -> dict[str, Any] | None:
        hunt = search.hunts.get(f"{defect} {MONITOR if oracle == MONITOR else CLIENTS}")
        is_blind = oracle == CLIENTS and ONLY_STUCK.issuperset(DEFECTS[defect].anomalies)
        if hunt is None or is_blind:
            return None
        found, status = hunt.found, hunt.status
        what = () if found is None else _seen_as(oracle, found.what)
        if found is not None and not what:
            found, status = None, ENDED
        return {
            "status": status,
            "runs": hunt.runs,
            "cpu_s": round(hunt.cpu_s, 3),
            "seed": None if found is None else found.seed,
            "what": ", ".join(what),
            "command": "" if found is None else command(hunt.arm.name, found.seed),
        }

    names = dict.fromkeys(hunt.arm.defect for hunt in search.hunts.values())
    defects: list[dict[str, Any]] = [
        {
            "id": name,
            "name": DEFECTS[name].name,
            "profile": DEFECTS[name].profile,
            MONITOR: of_oracle(name, MONITOR),
            CLIENTS: of_oracle(name, CLIENTS),
            STUCK: of_oracle(name, STUCK),
        }
        for name in names
    ]
    return {
        "kind": SEARCH,
        "started": plan.started,
        "runs_max": plan.runs,
        "cpu_s_max": plan.cpu_s,
        "first_seed": plan.first_seed,
        "guided": plan.guided,
        "runs": search.done,
        "defects": defects,
        "harmful": sum(one[STUCK] is not None for one in defects),
        "found": sum(any(_is_found(one[name]) for name in ORACLES) for one in defects),
        "found_by_clients": sum(_is_found(one[CLIENTS]) for one in defects),
        "found_by_stuck": sum(
            _is_found(one[STUCK]) and not _is_found(one[CLIENTS]) for one in defects
        ),
        "unknown_reasons": list(search.effects.unknown_reasons),
        "unfinished": sum(hunt.status == UNFINISHED for hunt in search.hunts.values()),
        "wrong": [
            {"arm": arm, "seed": seed, "what": ", ".join(what), "command": command(arm, seed)}
            for arm, seed, what in search.wrong
        ],
        "errors": [
            {"arm": arm, "seed": seed, "error": error, "command": command(arm, seed)}
            for arm, seed, error in search.errors
        ],
    }


def _seen_as(oracle: str, what: Seen) -> Seen:
    """Returns the part of what a run showed that is for an oracle."""
    if oracle == MONITOR:
        return what
    return tuple(one for one in what if (one == STUCK) == (oracle == STUCK))


def _is_found(oracle: Any) -> bool:
    return oracle is not None and bool(oracle["status"] == FOUND)
