"""Decides what the runs of a guided arm are: runs drawn from their number, and mutants of runs that were new.

Half of the drawn runs are weighted: they use a few families and templates only, which learned weights choose. The
other half is drawn as without guidance, so that no family and no template is left out.

Runs are numbered, and numbers form generations. What a generation runs depends only on the runs of all generations
up to the one before the last, in the order of their numbers. So the number of workers and interruptions change
nothing, and no worker waits while the last run of a generation ends.

A run is new if it reached a feature (`harness.runs.coverage`) that no run before it reached. New runs
that are not failing are parents. Those whose features are rare, whose margins are small and that have few mutants
so far are chosen more often; operators, families and templates with which runs were new are, too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.campaigns.guided.mutations import (
    OPERATORS,
    Material,
    Mutant,
    mutate,
    weighted,
    with_kinds,
)
from harness.campaigns.kept_runs import is_failing
from harness.campaigns.shrinking.trial import Trial, explicit
from harness.errors import UsageError
from harness.runs.experiment import Experiment
from harness.runs.planned import planned_schedule, unscaled
from harness.runs.resolved import resolve
from harness.runs.simulated import check_possible
from harness.simulation.randomness import RandomTree

DEFAULT_SHARE = 0.5
GENERATION = 16
ATTEMPTS_MAX = 8
"""So often a mutant is drawn; if none is possible the run is drawn from its number."""
OPERATIONS_MAX = 3
"""A mutant differs from its parent by one operator up to so many."""
PARENTS_MAX = 500
"""The newest runs of the corpus that can be parents."""
CHILDREN = 4
"""A parent with so many mutants is chosen half as often as one without."""


WEIGHTED_EVERY = 2
"""Every so many drawn runs one is weighted."""
FAMILIES_MAX, TEMPLATES_MAX = 4, 2
"""A weighted run uses at most so many: with more, its row would not show which of them reached something new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a run with a number is, if it is a mutant or weighted.

    Attributes:
        parent: The number of its parent; None for a weighted run, which has none.
        operators: What was done to the parent, in order.
        kinds: The families and templates that the learned weights chose for it, as in `Counts.kinds`.
        mutant: What runs.
    """

    parent: int | None
    operators: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    mutant: Mutant

    def to_row(self) -> dict[str, Any]:
        """Returns what the row of the run states about its origin."""
        return {
            "parent": self.parent,
            "operators": list(self.operators),
            "kinds": list(self.kinds),
            "root_seed": self.mutant.trial.seed,
        }


@dataclass(slots=True, kw_only=True)
class Entry:
    """A run of the corpus. Mutable: mutants of it are counted.

    Attributes:
        number: Its number.
        step: Its origin; None if it was drawn from its number.
        new: Hashes of the features that it was the first to reach.
        marks: The marks that it reached, sorted.
        margins: Its smallest margins by invariant.
        trace_hash: Of the run.
        is_failing: Whether it is failing; then it is no parent.
        children: How many mutants it has.
    """

    number: int
    step: Step | None
    new: tuple[str, ...]
    marks: tuple[str, ...]
    margins: Mapping[str, int]
    trace_hash: str
    is_failing: bool
    children: int = 0

    @property
    def danger(self) -> float:
        """How close its invariants came to failing: 1 for each margin of at most 0, half for 1 and so on."""
        return sum(2.0 ** -max(margin, 0) for margin in self.margins.values())


@dataclass(slots=True)
class Tally:
    """How often something was tried, and how often the run was new. Mutable."""

    tries: int = 0
    new: int = 0

    @property
    def weight(self) -> float:
        """The estimated probability of a new run; one half without any."""
        return (self.new + 1) / (self.tries + 2)

    def add(self, *, is_new: bool) -> None:
        """Counts a run."""
        self.tries += 1
        self.new += is_new


@dataclass(slots=True)
class Counts:
    """What the closed generations showed. Mutable.

    Attributes:
        drawn, mutants: Runs by their origin, with those that were new.
        weighted: The same for the drawn runs that are weighted.
        operators: The same for mutants by operator.
        kinds: The same by family and template, for weighted runs and for mutants into which one was inserted.
        curve: Features known after each generation.
        margins: The smallest margin by invariant.
    """

    operators: dict[str, Tally]
    kinds: dict[str, Tally]
    drawn: Tally = field(default_factory=Tally)
    weighted: Tally = field(default_factory=Tally)
    mutants: Tally = field(default_factory=Tally)
    curve: list[int] = field(default_factory=list)
    margins: dict[str, int] = field(default_factory=dict)


class Guidance:
    """The guidance of one arm. Mutable.

    Args:
        arm: Its name; part of the names of its random streams.
        experiment: What its runs draw from.
        first: The number of its first run.
        share: The share of runs that are mutants; with 0 no run is weighted either, and runs are only counted.
        seed_of: The seed with which a number is drawn; the number itself without it.
        keep: Called with every new or failing run and what repeats it, once a process, when its generation closes.

    Attributes:
        corpus: The new runs and the failing ones, in the order of their numbers.
        counts: What the closed generations showed.

    Raises:
        UsageError: The experiment has no random faults, or is not simulated.
    """

    def __init__(
        self,
        arm: str,
        experiment: Experiment,
        first: int,
        *,
        share: float = DEFAULT_SHARE,
        seed_of: Callable[[int], int] = int,
        keep: Callable[[Entry, Trial], None] = lambda *_: None,
    ) -> None:
        if share:
            check_guidable(experiment)
        nemesis = experiment.nemesis
        kinds = [f"family {name}" for name in nemesis.faults]
        kinds += [f"template {name}" for name in nemesis.templates]
        self.corpus: list[Entry] = []
        self.counts = Counts(
            operators={name: Tally() for name in OPERATORS}, kinds={kind: Tally() for kind in kinds}
        )
        self._arm = arm
        self._experiment = experiment
        self._first = first
        self._share = share
        self._seed_of = seed_of
        self._keep = keep
        self._tree = RandomTree(first)
        self._by_number: dict[int, Entry] = {}
        self._hits: dict[str, int] = {}
        self._closed = 0
        self._steps: dict[int, dict[int, Step]] = {}
        self._rows: dict[int, Mapping[str, Any]] = {}

    @property
    def features(self) -> int:
        """How many features the closed generations reached."""
        return len(self._hits)

    def is_ready(self, number: int) -> bool:
        """Returns whether it is known what a run is."""
        return not self._share or self._generation(number) <= self._closed + 1

    def step(self, number: int) -> Step | None:
        """Returns the origin of a run; None if it is drawn from its number as without guidance.

        Raises:
            ValueError: It is not known yet.
        """
        if not self.is_ready(number):
            raise ValueError(f"the generation of run {number} depends on runs that have not ended")
        return self._opened(self._generation(number)).get(number)

    def step_of(self, number: int) -> Step | None:
        """Returns the origin of a run of the corpus, or of an open generation; None if it has none."""
        entry = self._by_number.get(number)
        if entry is not None:
            return entry.step
        return self._steps.get(self._generation(number), {}).get(number)

    def add(self, number: int, row: Mapping[str, Any]) -> None:
        """Takes the row of the run with a number; it has `coverage` and `margins` unless it ended in an error."""
        if self._generation(number) < self._closed:
            return
        failing = is_failing(row)
        self._rows[number] = {
            "coverage": tuple(row.get("coverage", ())),
            "margins": row.get("margins", {}),
            "marks": tuple(sorted(row["marks"])),
            "trace_hash": row["trace_hash"],
            "is_failing": failing,
        }
        while all(each in self._rows for each in self._numbers(self._closed)):
            self._close()

    def finish(self) -> None:
        """Closes the last generation, of which not all numbers run."""
        if any(each in self._rows for each in self._numbers(self._closed)):
            self._close()

    def trial_of(self, entry: Entry) -> Trial:
        """Returns what repeats a run of the corpus."""
        return self._parent(entry)[0]

    # -- generations

    def _generation(self, number: int) -> int:
        return (number - self._first) // GENERATION

    def _numbers(self, generation: int) -> range:
        first = self._first + generation * GENERATION
        return range(first, first + GENERATION)

    def _opened(self, generation: int) -> dict[int, Step]:
        """Returns the mutants and weighted runs of a generation.

        They are drawn when the generation before the last has closed.
        """
        if generation not in self._steps:
            self._steps[generation] = {}
            for position, number in enumerate(self._numbers(generation)):
                mutants = int((position + 1) * self._share)
                is_mutant = mutants > int(position * self._share)
                step = self._draw(number) if is_mutant else None
                if self._share and not is_mutant and (position - mutants) % WEIGHTED_EVERY:
                    step = self._draw_weighted(number)
                if step is not None:
                    self._steps[generation][number] = step
        return self._steps[generation]

    def _close(self) -> None:
        """Takes the runs of a generation into account, in the order of their numbers."""
        # The next generation depends on the generations before this one only, so it is drawn first.
        self._opened(self._closed)
        self._opened(self._closed + 1)
        steps = self._steps.pop(self._closed)
        for number in self._numbers(self._closed):
            row = self._rows.pop(number, None)
            if row is not None:
                self._count(number, steps.get(number), row)
        self._closed += 1
        self.counts.curve.append(self.features)

    def _count(self, number: int, step: Step | None, row: Mapping[str, Any]) -> None:
        new = tuple(one for one in row["coverage"] if one not in self._hits)
        for one in row["coverage"]:
            self._hits[one] = self._hits.get(one, 0) + 1
        counts, is_new = self.counts, bool(new)
        for invariant, margin in row["margins"].items():
            counts.margins[invariant] = min(margin, counts.margins.get(invariant, margin))
        is_mutant = step is not None and step.parent is not None
        (counts.mutants if is_mutant else counts.drawn).add(is_new=is_new)
        if step is not None:
            if not is_mutant:
                counts.weighted.add(is_new=is_new)
            for operator in dict.fromkeys(step.operators):
                counts.operators[operator].add(is_new=is_new)
            for kind in step.kinds:
                counts.kinds[kind].add(is_new=is_new)
        if not self._share or not (is_new or row["is_failing"]):
            return
        entry = Entry(
            number=number,
            step=step,
            new=new,
            marks=row["marks"],
            margins=row["margins"],
            trace_hash=row["trace_hash"],
            is_failing=row["is_failing"],
        )
        self.corpus.append(entry)
        self._by_number[number] = entry
        self._keep(entry, self.trial_of(entry))

    # -- mutants

    def _draw(self, number: int) -> Step | None:
        parents = [one for one in self.corpus if not one.is_failing][-PARENTS_MAX:]
        if not parents:
            return None
        stream = self._tree.stream("guided", self._arm, number)
        weights = {str(one.number): self._weight(one) for one in parents}
        operators = {name: tally.weight for name, tally in self.counts.operators.items()}
        for _ in range(ATTEMPTS_MAX):
            parent = self._by_number[int(weighted(stream, weights))]
            other = self._by_number[int(weighted(stream, weights))]
            step = self._step(number, parent, other, operators)
            if step is not None:
                parent.children += 1
                return step
        return None

    def _step(
        self, number: int, parent: Entry, other: Entry, operators: Mapping[str, float]
    ) -> Step | None:
        stream = self._tree.stream("guided", self._arm, number)
        trial, drawn = self._parent(parent)
        mutant, done = Mutant(trial=trial, drawn=drawn), []
        kinds = {kind: tally.weight for kind, tally in self.counts.kinds.items()}
        for index in range(1 + int(stream.random() * OPERATIONS_MAX)):
            operator = weighted(stream, operators)
            material = Material(
                parent=mutant.trial,
                drawn=mutant.drawn,
                other=self._parent(other)[0],
                marks=parent.marks,
                base=self._experiment,
                kinds=kinds,
                name=f"m{number}-{index}",
            )
            mutated = mutate(stream, material, operator)
            if mutated is not None:
                kind = mutated.kind or mutant.kind
                mutant = Mutant(trial=mutated.trial, drawn=mutated.drawn, kind=kind)
                done.append(operator)
        if not done or not _is_possible(mutant.trial):
            return None
        kinds_used = (mutant.kind,) if mutant.kind else ()
        return Step(parent=parent.number, operators=tuple(done), kinds=kinds_used, mutant=mutant)

    # -- weighted runs

    def _draw_weighted(self, number: int) -> Step | None:
        """Returns a run with the seed of its number, and few families and templates, chosen by their weights."""
        if not self.corpus:
            return None
        stream = self._tree.stream("weighted", self._arm, number)
        chosen: list[str] = []
        for group, most in (("family ", FAMILIES_MAX), ("template ", TEMPLATES_MAX)):
            left = {
                kind: tally.weight
                for kind, tally in self.counts.kinds.items()
                if kind.startswith(group)
            }
            for _ in range(min(1 + int(stream.random() * most), len(left))):
                kind = weighted(stream, left)
                chosen.append(kind)
                del left[kind]
        kinds = tuple(kind for kind in self.counts.kinds if kind in chosen)
        seed = self._seed_of(number)
        experiment, drawn = resolve(self._experiment, seed)
        drawing = with_kinds(experiment, self._experiment.nemesis, kinds)
        schedule = unscaled(planned_schedule(drawing, seed), drawing)
        trial = explicit(experiment, schedule, seed)
        if not schedule or not _is_possible(trial):
            return None
        return Step(parent=None, operators=(), kinds=kinds, mutant=Mutant(trial=trial, drawn=drawn))

    def _weight(self, entry: Entry) -> float:
        rarity = sum(1 / self._hits[one] for one in entry.new)
        return (rarity + 0.01) * (1 + entry.danger) / (1 + entry.children / CHILDREN)

    def _parent(self, entry: Entry) -> tuple[Trial, Mapping[str, Any]]:
        if entry.step is not None:
            return entry.step.mutant.trial, entry.step.mutant.drawn
        seed = self._seed_of(entry.number)
        experiment, drawn = resolve(self._experiment, seed)
        schedule = unscaled(planned_schedule(experiment, seed), experiment)
        return explicit(experiment, schedule, seed), drawn


def check_guidable(experiment: Experiment, option: str = "--guided") -> None:
    """Raises `UsageError` unless an experiment is simulated and draws its faults.

    Args:
        experiment: The experiment.
        option: What the sentence advises to leave out.
    """
    if not experiment.environment.is_simulated:
        raise UsageError(
            f"the experiment runs on {experiment.on!r}, and only simulated runs can be guided; leave out {option}"
        )
    nemesis = experiment.nemesis
    if experiment.schedule or experiment.scenario or not (nemesis.faults or nemesis.templates):
        raise UsageError(
            "only random faults can be guided, and the experiment has none; set nemesis.faults, or leave out "
            f"{option}"
        )


def _is_possible(trial: Trial) -> bool:
    try:
        check_possible(trial.experiment, trial.seed)
    except UsageError:
        return False
    return True
