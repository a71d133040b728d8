"""A night as it is stored: what was planned, and one row per finished run.

    <night's directory>/
        plan.json    the night's id and its jobs
        rows.jsonl   one JSON object per finished run, in the order in which they finished

The engine that runs a night appends to `rows.jsonl`; everything else here only reads. A last line that was not
written completely belongs to a run that was interrupted, and is skipped.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from harness.campaigns.files import PLAN_FILE, ROWS_FILE
from harness.campaigns.signature import finding_of_error
from harness.environments.registry import DEFAULT, ENVIRONMENTS
from harness.errors import HistoryError
from results.store import read_json

Row: TypeAlias = dict[str, Any]
"""One finished run: the keys of `harness.campaigns.worker.SUMMARY_KEYS`, and `job`, `arm`, `on` (the world),
`system`, `error`, `wall_s`, `stored` (path of the stored run or ""), `replayed`, `findings`, `repeat` (the
number of a repeat of a real run, otherwise 0), `repeated` (signatures of the run that it repeats)."""

_NIGHT = re.compile(r"\d{4}-\d{2}-\d{2}(-[1-9]\d*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job of a night.

    Attributes:
        name: Unique in the night.
        experiment: Name of the experiment.
        system, profile, world: What was tested, and where.
        weight: Its share of the budget, relative to the other jobs.
        budget_s: The time it was given; 0 if it was limited by runs.
    """

    name: str
    experiment: str = ""
    system: str = ""
    profile: str = ""
    world: str = DEFAULT
    weight: float = 1.0
    budget_s: float = 0.0

    @property
    def is_simulated(self) -> bool:
        """Whether the same seed gives the same run."""
        environment = ENVIRONMENTS.get(self.world)
        return environment is not None and environment.is_simulated


@dataclass(frozen=True, slots=True, kw_only=True)
class NightPlan:
    """What a night was to run.

    Attributes:
        night: Its id: the date on which it began, and from the second night of one date on a number
            ("2026-11-22-2").
        jobs: In the order of the plan.
    """

    night: str
    jobs: tuple[Job, ...]


def read_plan(directory: Path) -> NightPlan:
    """Reads the plan of a night.

    Raises:
        HistoryError: There is none, or it is damaged; the sentence names the file.
    """
    path = directory / PLAN_FILE
    try:
        data = read_json(path)
    except FileNotFoundError:
        raise HistoryError(f"{directory} is not a night: it has no {PLAN_FILE}") from None
    return plan_from_json(data, origin=str(path))


def plan_from_json(data: Mapping[str, Any], *, origin: str) -> NightPlan:
    """Returns the plan that `plan.json` describes; keys that only the engine needs are ignored.

    Raises:
        HistoryError: It is damaged.
    """
    try:
        jobs = [{**job, "experiment": _experiment_name(job)} for job in data["jobs"]]
        plan = msgspec.convert({"night": data["night"], "jobs": jobs}, NightPlan)
    except KeyError as error:
        raise HistoryError(f"{origin} is damaged: it has no key {error}") from None
    except (msgspec.ValidationError, TypeError, AttributeError) as error:
        raise HistoryError(f"{origin} is damaged: {error}") from None
    check_night(plan.night, origin)
    names = [job.name for job in plan.jobs]
    if len(set(names)) != len(names):
        raise HistoryError(f"{origin} is damaged: two jobs have the same name")
    return plan


def check_night(night: str, origin: str) -> str:
    """Returns the id of a night if it is one.

    Raises:
        HistoryError: It is not.
    """
    if not is_night(night):
        raise HistoryError(f"{origin}: {night!r} is not a night like 2026-11-22 or 2026-11-22-2")
    return night


def is_night(text: str) -> bool:
    """Returns whether a text is the id of a night."""
    return _NIGHT.fullmatch(text) is not None


def night_order(night: str) -> tuple[str, int]:
    """Returns the key by which nights are sorted: "2026-11-22-10" comes after "2026-11-22-9"."""
    number = night[11:]
    return night[:10], int(number) if number.isdecimal() else 1


def rows_of(directory: Path, plan: NightPlan) -> Iterator[Row]:
    """Yields the rows of a night, one at a time.

    What a row does not state about its world and system is that of its job. A run with an error and no finding has
    one: that the harness could not finish it.

    Raises:
        HistoryError: A line other than the last one is no row; the sentence names it.
    """
    path = directory / ROWS_FILE
    jobs = {job.name: job for job in plan.jobs}
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    except OSError as error:
        raise HistoryError(f"{path} cannot be read: {error.strerror}") from None
    with file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            yield _row(line, jobs, f"{path}, line {number}")


def replays(replayed: str) -> tuple[int, int]:
    """Returns how many replays of a simulated run were the same run, and how many there were."""
    return (1, 1) if replayed == "same" else (0, 1) if replayed else (0, 0)


def is_nondeterministic(row: Mapping[str, Any]) -> bool:
    """Returns whether a simulated run did not repeat. No result of the simulation counts then."""
    environment = ENVIRONMENTS.get(row["on"])
    return (
        environment is not None
        and environment.is_simulated
        and row["replayed"] in ("different hash", "different verdict")
    )


def _experiment_name(job: Mapping[str, Any]) -> str:
    experiment = job.get("experiment", "")
    return str(experiment.get("name", "") if isinstance(experiment, Mapping) else experiment)


def _row(line: bytes, jobs: Mapping[str, Job], where: str) -> Row:
    try:
        row: Row = json.loads(line)
        job = jobs[row["job"]]
        if row.get("error") and not row.get("findings"):
            row["findings"] = [finding_of_error(row["error"]).to_json()]
        if not isinstance(row["findings"], list):
            raise TypeError("its findings are no list")
    except KeyError as error:
        raise HistoryError(f"{where} has no key or unplanned job {error}") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise HistoryError(f"{where} is not the row of a run: {error}") from None
    return {
        "arm": "",
        "on": job.world,
        "system": job.system,
        "error": "",
        "wall_s": 0.0,
        "stored": "",
        "replayed": "",
        "repeat": 0,
        "repeated": [],
    } | row
