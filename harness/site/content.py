"""What the pages of a run store show: its runs, its campaigns, its nights, and how their numbers change."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.campaigns.files import NIGHTLY, PAGE_FILES
from harness.campaigns.listing import CampaignEntry, list_campaigns
from harness.campaigns.night_outputs import RESULT_FILE
from harness.errors import HistoryError
from results.layout import RunFiles
from results.report.site import Campaign, Matrix, render_index
from results.report.site_facts import RunFacts, run_facts
from results.store import RunEntry, RunStore, read_json

RUNS_MAX = 2000
"""Runs that the index lists, the newest; with more, a browser takes seconds for a search."""


@dataclass(frozen=True, slots=True)
class _Version:
    """Tells whether what is known of a run is still true: when its summary and its report were written."""

    run_ns: int
    report_ns: int


class SiteContent:
    """The pages of a run store. Mutable: it remembers the facts of runs that did not change.

    Args:
        store: The runs.
    """

    def __init__(self, store: RunStore) -> None:
        self.store = store
        self._known: dict[str, tuple[_Version, RunFacts]] = {}

    def index(self) -> str:
        """Returns the page with all runs, campaigns and nights."""
        runs = self.store.list()
        campaigns = list_campaigns(self.store.root)
        return render_index(
            runs=[self._facts(entry) for entry in runs[:RUNS_MAX]],
            omitted=max(len(runs) - RUNS_MAX, 0),
            campaigns=[_campaign(entry) for entry in campaigns],
            matrices=_matrices(self.store.root),
            trends=_latest_trends(campaigns),
            place=self.store.place,
        )

    def pages(self) -> list[Path]:
        """Returns the pages of runs and campaigns, relative to the root of the store."""
        root = self.store.root
        reports = [RunFiles(entry.directory).report for entry in self.store.list()[:RUNS_MAX]]
        found = [path for path in reports if path.is_file()]
        for campaign in list_campaigns(root):
            found += [path for path in campaign.directory.rglob("*.html") if path.is_file()]
        found += [root / matrix.page for matrix in _matrices(root)]
        return sorted({path.relative_to(root) for path in found})

    def _facts(self, entry: RunEntry) -> RunFacts:
        files = RunFiles(entry.directory)
        version = _Version(_changed_ns(files.run), _changed_ns(files.report))
        known = self._known.get(entry.id)
        if known is None or known[0] != version:
            known = (version, run_facts(entry))
            self._known[entry.id] = known
        return known[1]


def _changed_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return -1


def _campaign(entry: CampaignEntry) -> Campaign:
    page = PAGE_FILES.get(entry.kind, "")
    has_page = bool(page) and (entry.directory / page).is_file()
    return Campaign(
        name=entry.name,
        kind=entry.kind or "unreadable",
        started=entry.started,
        verdict=entry.verdict,
        done=entry.done,
        planned=entry.planned,
        failing=entry.failing,
        arms=tuple(arm.name for arm in entry.arms),
        systems=tuple(dict.fromkeys(arm.system for arm in entry.arms)),
        profiles=tuple(dict.fromkeys(arm.profile for arm in entry.arms)),
        worlds=tuple(dict.fromkeys(arm.world for arm in entry.arms)),
        page=f"{entry.name}/{page}" if has_page else "",
    )


def _matrices(root: Path) -> list[Matrix]:
    """Returns the scenarios all of whose variants were run, and whose page is there."""
    found = []
    for path in sorted(root.glob("*.json")):
        page = path.with_suffix(".html")
        try:
            matrix = read_json(path)
            scenario, cells = str(matrix["scenario"]), int(matrix["cells"])
            as_predicted = int(matrix["as_predicted"])
        except (FileNotFoundError, HistoryError, KeyError, TypeError, ValueError):
            continue
        if page.is_file():
            found.append(
                Matrix(scenario=scenario, as_predicted=as_predicted, cells=cells, page=page.name)
            )
    return found


def _latest_trends(campaigns: list[CampaignEntry]) -> list[Mapping[str, Any]]:
    """Returns the rows of all nights, as the newest night that has a result knows them."""
    for entry in campaigns:
        if entry.kind != NIGHTLY:
            continue
        try:
            rows = read_json(entry.directory / RESULT_FILE)["trends"]
        except (FileNotFoundError, HistoryError, KeyError):
            continue
        return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return []
