"""Which real runs of a night are repeated: those with a finding that the night has not repeated yet.

A real run cannot be replayed from its seed: the same faults meet other timings. Whether a finding occurs again is
a rate, and repeats of the run measure it. Of the runs of a job with the same findings the first is repeated, one
repeat at a time, before further random runs. A run that the harness could not finish is not repeated.

Repeats are runs of their job with rows of their own, so an interruption loses none.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.campaigns.nightly_plan import PlannedJob

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Repeat:
    """One repeat of a run.

    Attributes:
        job: The job of the run.
        seed: Its seed.
        number: From 1.
        signatures: The findings of the run that is repeated.
    """

    job: str
    seed: int
    number: int
    signatures: tuple[str, ...]


class Repeats:
    """The repeats that a night still has to run, in order. Mutable.

    Args:
        jobs: The jobs of the night.
    """

    def __init__(self, jobs: Iterable[PlannedJob]) -> None:
        self._counts = {job.name: job.repeats for job in jobs if not job.is_simulated}
        self._seen: dict[str, set[str]] = {name: set() for name in self._counts}
        self._due: dict[tuple[str, int, int], Repeat] = {}

    @property
    def first(self) -> Repeat | None:
        """The next repeat; None if none is due."""
        return next(iter(self._due.values()), None)

    def take(self) -> None:
        """Notices that the first one was started."""
        del self._due[next(iter(self._due))]

    def notice(self, row: Row) -> None:
        """Notices a finished run; rows come in the order in which runs ended."""
        job, seed, number = row["arm"], row["seed"], row.get("repeat", 0)
        if number:
            self._due.pop((job, seed, number), None)
            return
        if job not in self._counts or row["error"]:
            return
        signatures = tuple(sorted({one["signature"] for one in row["findings"]}))
        if self._seen[job].issuperset(signatures):
            return
        self._seen[job].update(signatures)
        for repeat in range(1, self._counts[job] + 1):
            self._due[(job, seed, repeat)] = Repeat(job, seed, repeat, signatures)


def is_judged(row: Row) -> bool:
    """Returns whether a run shows if a finding occurs again: neither an error nor an unknown verdict does."""
    return not row["error"] and row["verdict"] in ("valid", "invalid")
