"""The rows of a night, counted: numbers per job, and the findings as groups of one signature.

Rows come one at a time, so that a night of any length needs the same memory: a job keeps its numbers, a group its
first runs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from harness.campaigns.effects import CampaignEffects
from harness.campaigns.night import Job, NightPlan, Row, is_nondeterministic, replays
from harness.campaigns.repeats import is_judged
from harness.campaigns.statistics import median, wilson_interval
from harness.errors import HistoryError

EXAMPLES_MAX = 5
"""Runs of one group that are listed. One is enough to debug; a few show what they share."""

ALARMS_MAX = 50
"""Alarms of a night that are listed; one of them is enough to stop trusting the simulation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """How often a finding occurred again when real runs with it were repeated.

    Attributes:
        recurred: Repeats that had the finding.
        repeats: Repeats that were judged valid or invalid.
    """

    recurred: int = 0
    repeats: int = 0

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the rate."""
        return wilson_interval(self.recurred, self.repeats)

    @property
    def is_flaky(self) -> bool:
        """Whether the finding was absent from a repeat."""
        return self.recurred < self.repeats

    def after(self, *, recurred: bool) -> "Rate":
        """Returns the rate after one more repeat."""
        return replace(self, recurred=self.recurred + recurred, repeats=self.repeats + 1)


@dataclass(slots=True, kw_only=True)
class JobSummary:
    """The numbers of one job of a night. Mutable: `add` counts a row.

    Attributes:
        job: The job.
        runs, valid, invalid, unknown, errors: Finished runs, and how they ended; errors are not among the unknown.
        operations, faults: Sums over the runs.
        elapsed_ms: How long the runs lasted, in their own time.
        wall_s: How long they took on the machine.
        unavailable_ms: Per judged run, the time without a leader.
        marks: In how many runs each mark was reached.
        signatures: Findings.
        confirmed, replayed: Replays of simulated runs with a finding, and how many of them were the same run.
        repeats: How many of the runs repeat a real run with a finding.
        rate: How many of these had one of its findings again, of those that were judged.
        nondeterministic: Simulated runs that did not repeat.
        effects: What the faults of the runs did.
        features: What no run of the job before had reached, if the job is guided.
        mutants: How many of the runs are mutated.
    """

    job: Job
    runs: int = 0
    valid: int = 0
    invalid: int = 0
    unknown: int = 0
    errors: int = 0
    operations: int = 0
    faults: int = 0
    elapsed_ms: float = 0.0
    wall_s: float = 0.0
    unavailable_ms: list[float] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)
    signatures: set[str] = field(default_factory=set)
    confirmed: int = 0
    replayed: int = 0
    repeats: int = 0
    rate: Rate = Rate()
    nondeterministic: int = 0
    effects: CampaignEffects = field(default_factory=CampaignEffects)
    features: int = 0
    mutants: int = 0

    @property
    def shows_nothing(self) -> bool:
        """Whether no run was judged valid or invalid."""
        return self.valid + self.invalid == 0

    @property
    def unknown_reasons(self) -> list[str]:
        """Why the job is unknown as a whole, one sentence each; see `CampaignEffects`."""
        reasons = list(self.effects.unknown_reasons)
        if self.shows_nothing:
            reasons.append(f"no run was judged valid or invalid ({self.runs} runs)")
        return reasons

    @property
    def unavailable_ms_median(self) -> float | None:
        """The median time without a leader; None if no run was judged."""
        return median(self.unavailable_ms) if self.unavailable_ms else None

    @property
    def runs_per_min(self) -> float:
        """Runs per minute of one worker."""
        return 60 * self.runs / self.wall_s if self.wall_s > 0 else 0.0

    def add(self, row: Row) -> None:
        """Counts one run."""
        self.runs += 1
        self.wall_s += row["wall_s"]
        signatures = {finding["signature"] for finding in row["findings"]}
        self.signatures |= signatures
        if row["repeat"]:
            self.repeats += 1
            if is_judged(row):
                self.rate = self.rate.after(recurred=not signatures.isdisjoint(row["repeated"]))
        confirmed, replayed = replays(row["replayed"])
        self.confirmed += confirmed
        self.replayed += replayed
        self.nondeterministic += is_nondeterministic(row)
        self.effects.add(row)
        self.features += len(row.get("new_features", ()))
        self.mutants += row.get("search", {}).get("parent") is not None
        if row["error"]:
            self.errors += 1
            return
        self.valid += row["verdict"] == "valid"
        self.invalid += row["verdict"] == "invalid"
        self.unknown += row["verdict"] not in ("valid", "invalid")
        self.operations += row["operations"]
        self.faults += row["faults"]
        self.elapsed_ms += row["elapsed_ms"]
        self.unavailable_ms.append(row["unavailable_ms"])
        for mark in row["marks"]:
            self.marks[mark] = self.marks.get(mark, 0) + 1


@dataclass(slots=True, kw_only=True)
class Group:
    """The runs of one signature in a night. Mutable: `add` counts a run.

    Attributes:
        signature, title, parts: As in `harness.campaigns.signature.Finding`, of the first run.
        runs: How many runs have it, by job.
        examples: The first of them: job, world, seed, arm, repeat, stored, replayed, at_ns (the decisive moment).
        confirmed, replayed: Replays of simulated runs that have it, and how many of them were the same run.
        rates: How often it occurred again in real worlds, by job.
    """

    signature: str
    title: str
    parts: Mapping[str, Any]
    runs: dict[str, int] = field(default_factory=dict)
    examples: list[dict[str, Any]] = field(default_factory=list)
    confirmed: int = 0
    replayed: int = 0
    rates: dict[str, Rate] = field(default_factory=dict)

    def add(self, row: Row, at_ns: int) -> None:
        """Counts one run with its decisive moment; among the examples stored runs come first, repeats last."""
        self.runs[row["job"]] = self.runs.get(row["job"], 0) + 1
        confirmed, replayed = replays(row["replayed"])
        self.confirmed += confirmed
        self.replayed += replayed
        keys = ("job", "seed", "arm", "repeat", "stored", "replayed")
        example = {key: row[key] for key in keys}
        self.examples.append({**example, "world": row["on"], "at_ns": at_ns})
        self.examples.sort(key=lambda example: (example["repeat"] > 0, not example["stored"]))
        del self.examples[EXAMPLES_MAX:]

    def notice_repeat(self, row: Row) -> None:
        """Counts a repeat of a run that has this finding."""
        if is_judged(row):
            recurred = self.signature in {finding["signature"] for finding in row["findings"]}
            rate = self.rates.get(row["job"], Rate())
            self.rates[row["job"]] = rate.after(recurred=recurred)


@dataclass(slots=True, kw_only=True)
class NightSummary:
    """A night, counted.

    Attributes:
        plan: What was planned.
        jobs: One per job of the plan, in its order.
        groups: By signature, in the order in which they were found.
        alarms: Simulated runs that did not repeat: job, seed, stored, replayed.
    """

    plan: NightPlan
    jobs: dict[str, JobSummary]
    groups: dict[str, Group] = field(default_factory=dict)
    alarms: list[dict[str, Any]] = field(default_factory=list)

    @property
    def runs(self) -> int:
        """How many runs finished."""
        return sum(job.runs for job in self.jobs.values())


def summarize_night(plan: NightPlan, rows: Iterable[Row]) -> NightSummary:
    """Counts the rows of a night.

    Raises:
        HistoryError: A row is of no job of the plan, or lacks a key.
    """
    night = NightSummary(plan=plan, jobs={job.name: JobSummary(job=job) for job in plan.jobs})
    for row in rows:
        try:
            _add(night, row)
        except (KeyError, TypeError) as error:
            raise HistoryError(
                f"a row of night {plan.night} is damaged: {type(error).__name__}: {error}"
            ) from None
    return night


def _add(night: NightSummary, row: Row) -> None:
    name = row["job"]
    if name not in night.jobs:
        raise HistoryError(f"a row of night {night.plan.night} is of the unplanned job {name!r}")
    night.jobs[name].add(row)
    for finding in row["findings"]:
        signature = str(finding["signature"])
        if signature not in night.groups:
            night.groups[signature] = Group(
                signature=signature, title=str(finding["title"]), parts=dict(finding["parts"])
            )
        night.groups[signature].add(row, int(finding["parts"].get("at_ns", 0)))
    for signature in row["repeated"] if row["repeat"] else ():
        if signature in night.groups:
            night.groups[signature].notice_repeat(row)
    if is_nondeterministic(row) and len(night.alarms) < ALARMS_MAX:
        night.alarms.append({key: row[key] for key in ("job", "seed", "stored", "replayed")})
