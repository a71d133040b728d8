"""The guided jobs of a night: random jobs of the simulation, part of whose runs are mutants of new runs.

The n-th run that a job draws in a night has the number n, whatever its seed. Failing runs of earlier nights have
no number: they run as they were.
"""

from collections.abc import Mapping
from pathlib import Path

from harness.campaigns.crew import Request, Row
from harness.campaigns.files import CORPUS_FOLDER
from harness.campaigns.guided.campaign import GuidedArm
from harness.campaigns.nights import Night, drawn_seed
from harness.errors import HistoryError

NUMBERS_MAX = 1_000_000
"""Runs of one job in one night, at most; far more than fit into a day."""


class GuidedJobs:
    """What the runs of guided jobs are, and what their rows need. Mutable.

    Args:
        night: The night.
        directory: Its directory; new and failing runs are stored in its folder `corpus`.
    """

    def __init__(self, night: Night, directory: Path) -> None:
        self._jobs = {
            job.name: _GuidedJob(night, number, directory)
            for number, job in enumerate(night.jobs, start=1)
            if job.guided
        }
        self._earlier = {(one.job, one.seed) for one in night.regressions}

    def is_ready(self, request: Request) -> bool:
        """Returns whether it is known what a run is; it may depend on runs that have not ended."""
        found = self._find(request)
        return found is None or found[0].arm.is_ready(found[1])

    def request(self, request: Request) -> Request:
        """Returns the request of a run as the guidance has it."""
        found = self._find(request)
        return request if found is None else found[0].arm.request(found[1], request)

    def stamp(self, row: Row) -> None:
        """Adds the origin of a run, and replaces the names of features by those that are new."""
        found = self._find(row)
        if found is not None:
            found[0].arm.stamp(found[1], row)

    def notice(self, row: Row) -> None:
        """Takes a row that was written, in this process or an earlier one."""
        found = self._find(row)
        if found is not None:
            found[0].arm.notice(found[1], row)

    def _find(self, one: Mapping[str, object]) -> "tuple[_GuidedJob, int] | None":
        name, seed = str(one["arm"]), int(str(one["seed"]))
        job = self._jobs.get(name)
        if job is None or (name, seed) in self._earlier:
            return None
        return job, job.number_of(seed)


class _GuidedJob:
    """One guided job. Mutable: numbers of seeds are found when they are needed."""

    def __init__(self, night: Night, number: int, directory: Path) -> None:
        job = night.jobs[number - 1]
        self._key = night.draw_key
        self._name = job.name
        self._numbers: dict[int, int] = {}
        self.arm = GuidedArm(
            job.name,
            job.experiment,
            0,
            job.guided,
            lambda one: directory / CORPUS_FOLDER / f"job-{number}-{one}.toml",
            self._seed,
        )

    def _seed(self, number: int) -> int:
        return drawn_seed(self._key, self._name, number)

    def number_of(self, seed: int) -> int:
        """Returns the number of a run that this job drew.

        Raises:
            HistoryError: It drew no such seed.
        """
        while seed not in self._numbers:
            number = len(self._numbers)
            if number == NUMBERS_MAX:
                raise HistoryError(
                    f"job {self._name!r} has a row with seed {seed}, which it never drew"
                )
            self._numbers[self._seed(number)] = number
        return self._numbers[seed]
