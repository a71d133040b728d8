"""Finds and describes the campaigns of a run store: the folders below its root that have a plan.

Plans are read as JSON, not as experiments: `laststand list` must not wait for what a run needs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from harness.campaigns.drawn import DRAWN, draws_profile
from harness.campaigns.files import (
    JOBS_FILE,
    NIGHTLY,
    PLAN_FILE,
    RESULT_FILE,
    ROWS_FILE,
    SEARCH,
    SEARCH_FILE,
)
from harness.errors import HistoryError
from results.store import UNFINISHED, UNREADABLE, read_json


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmEntry:
    """One arm of a stored campaign."""

    name: str
    system: str
    profile: str
    world: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignEntry:
    """One stored campaign.

    Attributes:
        name: Its folder.
        directory: Where it is.
        kind: "swarm", "compare", "nightly" or "search"; empty if its plan is damaged.
        started: When it began (`results.layout.utc_stamp`).
        arms: Its arms, or the jobs of a night.
        planned: How many runs it has; None if time limits them.
        verdict: The worst of its arms: invalid, unknown or valid; "error" if runs ended in an error; "unfinished"
            while runs are missing, "unreadable" if a file is damaged.
        done: How many runs have a row.
        failing: How many of them are failing; None while it is unfinished.
    """

    name: str
    directory: Path
    kind: str = ""
    started: str = ""
    arms: tuple[ArmEntry, ...] = ()
    planned: int | None = None
    verdict: str = UNREADABLE
    done: int = 0
    failing: int | None = None


def find_campaign(root: Path, name: str) -> Path:
    """Finds a campaign by its path, its name, or the unique beginning of its name.

    Raises:
        HistoryError: There is no such campaign, or there are several.
    """
    for path in (Path(name), root / name):
        if (path / PLAN_FILE).is_file():
            return path
    names = _names(root)
    found = [one for one in names if name and one.startswith(name)]
    if len(found) == 1:
        return root / found[0]
    if found:
        raise HistoryError(
            f"{name!r} is the beginning of several campaigns; give more of it: {', '.join(found)}"
        )
    if Path(name).is_dir():
        raise HistoryError(f"{name} is not a campaign: it has no {PLAN_FILE}")
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise HistoryError(
        f"no campaign in {root} is called {name!r}{hint} (`laststand list` shows the stored campaigns)"
    )


def list_campaigns(root: Path) -> list[CampaignEntry]:
    """Lists all campaigns below a root, newest first."""
    entries = [_entry(root / name) for name in _names(root)]
    return sorted(entries, key=lambda entry: (entry.started, entry.name), reverse=True)


def _names(root: Path) -> list[str]:
    return sorted(path.parent.name for path in root.glob(f"*/{PLAN_FILE}"))


def _entry(directory: Path) -> CampaignEntry:
    empty = CampaignEntry(name=directory.name, directory=directory)
    try:
        plan = read_json(directory / PLAN_FILE)
        is_night = plan["kind"] == NIGHTLY
        arms = tuple(
            _arm(arm["name"], arm["experiment"]) for arm in plan["jobs" if is_night else "arms"]
        )
        entry = replace(
            empty,
            kind=str(plan["kind"]),
            started=str(plan["started"]),
            arms=arms,
            planned=_planned(plan),
        )
        return _with_search(entry) if entry.kind == SEARCH else _with_result(entry)
    except (OSError, HistoryError, KeyError, TypeError, ValueError, AttributeError):
        return empty


def _planned(plan: Mapping[str, Any]) -> int | None:
    """Returns how many runs a campaign has; a search for defects ends when it has found them."""
    if plan["kind"] == SEARCH:
        return None
    return plan["runs"] if plan["kind"] == NIGHTLY else int(plan["seeds"]) * len(plan["arms"])


def _arm(name: str, experiment: Mapping[str, Any]) -> ArmEntry:
    words = {key: str(experiment[key]) for key in ("system", "profile")}
    if draws_profile(experiment.get("space", ())):
        words["profile"] = DRAWN
    return ArmEntry(name=str(name), world=str(experiment["on"]), **words)


def _with_result(entry: CampaignEntry) -> CampaignEntry:
    """Adds the result; without one, how many runs are done."""
    is_night = entry.kind == NIGHTLY
    try:
        result = read_json(entry.directory / (JOBS_FILE if is_night else RESULT_FILE))
    except FileNotFoundError:
        done = _lines(entry.directory / ROWS_FILE)
        return replace(entry, verdict=UNFINISHED, done=done)
    arms = result["jobs" if is_night else "arms"]
    # The planned number of runs does not include repeats of real runs.
    repeats = 0 if entry.planned is None else result.get("repeats", 0)
    return replace(
        entry,
        verdict=worst_verdict(arms),
        done=sum(arm["runs"] for arm in arms) - repeats,
        failing=result["failing"],
    )


def _with_search(entry: CampaignEntry) -> CampaignEntry:
    """Adds the result of a search for defects; only what is found with the defect off is a failure."""
    try:
        result = read_json(entry.directory / SEARCH_FILE)
    except FileNotFoundError:
        return replace(entry, verdict=UNFINISHED, done=_lines(entry.directory / ROWS_FILE))
    errors, wrong = len(result["errors"]), len(result["wrong"])
    is_unknown = result.get("unknown_reasons") and result["found"] < len(result["defects"])
    verdict = "error" if errors else "invalid" if wrong else "unknown" if is_unknown else "valid"
    if result["unfinished"]:
        verdict = UNFINISHED
    return replace(entry, verdict=verdict, done=int(result["runs"]), failing=errors + wrong)


def worst_verdict(arms: Sequence[Mapping[str, Any]]) -> str:
    """Returns the worst verdict of several arms; "error" if runs ended in an error."""
    for key, verdict in (("errors", "error"), ("invalid", "invalid")):
        if any(arm[key] for arm in arms):
            return verdict
    # Results of earlier versions have no reasons: one unknown run made a campaign unknown.
    return "unknown" if any(arm.get("unknown_reasons", arm["unknown"]) for arm in arms) else "valid"


def _lines(path: Path) -> int:
    try:
        with path.open("rb") as file:
            return sum(1 for _ in file)
    except FileNotFoundError:
        return 0
