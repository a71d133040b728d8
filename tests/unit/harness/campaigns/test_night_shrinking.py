"""New findings of a night are shrunk within a share of its budget, and its page links the shrunk runs."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pytest

from harness.campaigns.night_outputs import close_night, link_shrunk_runs
from harness.campaigns.nightly import SHRINK_SHARE, Budget
from harness.campaigns.shrinking import night
from harness.campaigns.shrinking.night import shrink_new_findings
from harness.errors import UsageError
from results.store import write_json
from tests.report.made_up_run import make_lost_run
from tests.report.pages import Page
from tests.unit.harness.campaigns.made_up_nights import BROKEN, LOSS, row, write_night
from tests.unit.harness.campaigns.test_shrinking import Silent

CAUSE = "op 3 is gone. Without any one of the 2 faults it was not."


def store_by_hand(place: Path, signature: str) -> Path:
    """A shrunk run as it is stored among the runs of a night."""
    directory = place / "runs" / f"shrunk-{signature}" / "20261122T000000Z-7"
    directory.mkdir(parents=True)
    write_json(directory / "run.json", {"seed": 7})
    (directory / "report.html").write_text("")
    sizes = {"before": {"faults": 11}, "after": {"faults": 2}}
    write_json(directory / "shrink.json", {**sizes, "cause": CAUSE, "ended": ""})
    return directory


@pytest.fixture
def closed(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A night with two new findings of the simulation and one of containers, all stored, and an open one."""
    stored = str(make_lost_run(tmp_path / "stored"))
    old, real = ({**LOSS, "signature": f"0000000000a{n}", "title": str(n)} for n in (1, 2))
    jobs = ({"name": "random"}, {"name": "containers", "world": "docker"})
    before = write_night(tmp_path / "n", "2026-11-21", [row("random", 1, old)], jobs)
    close_night(before, root=str(tmp_path / "tables"), known={})
    rows = [
        row("random", 1, LOSS, stored=stored),
        row("random", 2, BROKEN, stored=stored),
        row("random", 3, old, stored=stored),
        row("containers", 4, real, on="docker", stored=stored),
    ]
    place = write_night(tmp_path / "n", "2026-11-22", rows, jobs)
    return place, close_night(place, root=str(tmp_path / "tables"), known={})


class Searches:
    """Takes the place of the search; keeps what was asked for."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: list[str] = []
        self.budgets: list[float] = []
        self.refused: set[str] = set()
        self.interrupted = ""
        monkeypatch.setattr(night, "load_source", lambda _, __, signature: signature)
        monkeypatch.setattr(
            night, "store_shrunk", lambda one, *_, **__: store_by_hand(place, one.signature)
        )

    def __call__(self, signature: Any, limits: Any, _: object) -> Any:
        if signature in self.refused:
            raise UsageError("the simulation shows nothing")
        self.found.append(signature)
        self.budgets.append(limits.budget_s)
        return SimpleNamespace(signature=signature, was_interrupted=signature == self.interrupted)


def shrink(closed: tuple[Path, dict[str, Any]], search: Searches, budget_s: float = 100.0) -> int:
    place, result = closed
    return shrink_new_findings(
        result, place, jobs=1, budget_s=budget_s, progress=Silent(), search=search
    )


def test_new_findings_of_the_simulation_are_shrunk_once_in_equal_shares(
    closed: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    search = Searches(closed[0], monkeypatch)
    assert shrink(closed, search) == 2
    assert set(search.found) == {LOSS["signature"], BROKEN["signature"]}
    # The second one gets what the first one left, which took no time here.
    assert 40 < search.budgets[0] <= 50 < search.budgets[1] <= 100
    assert shrink(closed, search) == 0, "they were shrunk before"


def test_what_cannot_be_shrunk_costs_the_others_nothing(
    closed: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    search = Searches(closed[0], monkeypatch)
    search.refused = {LOSS["signature"]}
    assert shrink(closed, search) == 1
    assert search.found == [BROKEN["signature"]]


def test_without_time_nothing_is_shrunk(
    closed: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    search = Searches(closed[0], monkeypatch)
    assert shrink(closed, search, budget_s=9.0) == 0
    assert search.found == []


def test_an_interruption_stores_what_was_found_and_ends(
    closed: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    search = Searches(closed[0], monkeypatch)
    wanted = {LOSS["signature"], BROKEN["signature"]}
    signatures = [one["signature"] for one in closed[1]["findings"]]
    first = next(signature for signature in signatures if signature in wanted)
    search.interrupted = first
    with pytest.raises(KeyboardInterrupt):
        shrink(closed, search)
    assert search.found == [first]
    assert (closed[0] / "runs" / f"shrunk-{first}").is_dir()


def test_every_output_shows_the_shrunk_run(
    closed: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    place, result = closed
    directory = store_by_hand(place, LOSS["signature"])
    linked = link_shrunk_runs(place, result)
    shrunk = {one["signature"]: one["shrunk"] for one in linked["findings"]}
    assert shrunk.pop(LOSS["signature"])["after"] == {"faults": 2}
    assert set(shrunk.values()) == {None}
    page = Page((place / "nightly.html").read_text())
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert directory / "report.html" in [(place / unquote(link)).resolve() for link in links]
    assert CAUSE in page.text
    assert "The smallest run that shows it: 2 of 11 faults" in page.text
    command = f"laststand run {directory}/experiment.toml --seed 7"
    assert command in page.text
    assert command in (place / "summary.md").read_text()
    before = (place / "nightly.html").read_bytes()
    again = close_night(place, root=str(tmp_path / "tables"), known={})
    assert again == linked
    assert (place / "nightly.html").read_bytes() == before


def test_a_share_of_the_budget_is_kept_from_the_first_finding_on() -> None:
    clock = SimpleNamespace(now_s=0.0)
    budget = Budget(1000.0, clock=lambda: clock.now_s)
    assert (budget.left_s, budget.shrink_s) == (980.0, 0.0)
    budget.keep_for_shrinking()
    budget.keep_for_shrinking()
    assert budget.left_s == pytest.approx(980.0 - SHRINK_SHARE * 1000)
    assert budget.shrink_s == pytest.approx(SHRINK_SHARE * 1000)
    clock.now_s = 950.0
    assert budget.shrink_s == pytest.approx(30.0), "what is left, if the runs took longer"
    clock.now_s = 2000.0
    assert budget.shrink_s == 0.0
    by_runs = Budget(None)
    by_runs.keep_for_shrinking()
    assert by_runs.shrink_s == 0.0
