"""The index of a run store: runs, campaigns and nights with filters, two runs side by side, and trends."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from results.report.build import environment
from results.report.night_charts import number_text, trends_of
from results.report.site_facts import QUANTILES, RunFacts, started_text
from results.report.svg import element, joined, ticks, titled

DAYS_MAX = 60
"""Days of the chart of runs, the last ones that have runs."""

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 560, 200, 46, 34, 10
_TONES = {"invalid": "o-bad", "unknown": "o-info", "valid": "o-ok"}
_LABELS_MAX = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """One campaign or night in the index; `page` is its address, relative to the index, or empty."""

    name: str
    kind: str
    started: str
    verdict: str
    done: int
    planned: int | None
    failing: int | None
    arms: tuple[str, ...]
    systems: tuple[str, ...]
    profiles: tuple[str, ...]
    worlds: tuple[str, ...]
    page: str

    @property
    def day(self) -> str:
        """The ISO date on which it began (UTC); empty if that is not known."""
        return started_text(self.started)[:10]

    @property
    def words(self) -> str:
        """What a search looks at."""
        parts = (self.name, self.kind, self.verdict, *self.arms, *self.systems, *self.profiles)
        return " ".join((*parts, *self.worlds)).lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """All variants of a scenario, as `laststand reproduce SCENARIO --all` ran them; `page` as in `Campaign`."""

    scenario: str
    as_predicted: int
    cells: int
    page: str


def render_index(
    *,
    runs: Sequence[RunFacts],
    omitted: int,
    campaigns: Sequence[Campaign],
    matrices: Sequence[Matrix] = (),
    trends: Sequence[Mapping[str, Any]],
    place: str,
) -> str:
    """Returns the page.

    Args:
        runs: Newest first.
        omitted: How many older runs are left out.
        campaigns: Campaigns and nights, newest first.
        matrices: Scenarios of which all variants were run, by name.
        trends: One row per night and job (`results.report.night_charts`), oldest night first.
        place: Where the store is.
    """
    return (
        environment()
        .get_template("site.html")
        .render(
            runs=runs,
            omitted=omitted,
            campaigns=campaigns,
            matrices=matrices,
            place=place,
            choices=_choices(runs, campaigns),
            per_day=_per_day(runs),
            trends=trends_of(trends),
            number=number_text,
            quantiles=list(QUANTILES),
            data={run.id: _compared(run) for run in runs},
        )
    )


def _choices(
    runs: Sequence[RunFacts], campaigns: Sequence[Campaign]
) -> dict[str, tuple[str, list[str]]]:
    """Returns the filters: label and values of each."""
    values = {
        "verdict": ("verdict", [*(r.verdict for r in runs), *(c.verdict for c in campaigns)]),
        "system": (
            "system",
            [*(r.system.split(" ")[0] for r in runs), *(s for c in campaigns for s in c.systems)],
        ),
        "profile": (
            "profile",
            [*(r.profile for r in runs), *(p for c in campaigns for p in c.profiles)],
        ),
        "world": (
            "environment",
            [*(r.world for r in runs), *(w for c in campaigns for w in c.worlds)],
        ),
    }
    return {
        name: (label, sorted({value for value in found if value}))
        for name, (label, found) in values.items()
    }


def _compared(run: RunFacts) -> dict[str, Any]:
    """Returns what the comparison of two runs shows, as data for the script."""
    return {
        "verdict": run.verdict,
        "lost": run.lost,
        "reasons": list(run.reasons),
        "anomalies": list(run.anomalies),
        "config": dict(run.config) | {"seed": run.seed},
        "schedule": list(run.schedule),
        "latency": {kind: dict(values) for kind, values in run.latency_ms.items()},
        "report": run.report,
    }


def _per_day(runs: Sequence[RunFacts]) -> Markup:
    """Returns a chart with the runs of each day, by verdict; empty without runs."""
    days: dict[str, Counter[str]] = {}
    for run in runs:
        if run.started:
            days.setdefault(run.started[:10], Counter())[run.verdict] += 1
    shown = sorted(days)[-DAYS_MAX:]
    if not shown:
        return Markup("")
    high = max(sum(days[day].values()) for day in shown)
    step = (_WIDTH - _LEFT - 10) / max(len(shown), 8)
    scale = (_HEIGHT - _TOP - _BOTTOM) / high
    parts = [_day_grid(high, scale)]
    for index, day in enumerate(shown):
        x = _LEFT + index * step
        parts.append(_day_bar(day, days[day], x, step, scale))
        if (len(shown) - 1 - index) % -(-len(shown) // _LABELS_MAX) == 0:
            parts.append(
                element(
                    "text",
                    day[5:],
                    class_="tick",
                    x=round(x + step * 0.4, 2),
                    y=_HEIGHT - 16,
                    text_anchor="middle",
                )
            )
    words = "; ".join(
        f"{day}: " + ", ".join(f"{count} {verdict}" for verdict, count in sorted(days[day].items()))
        for day in shown
    )
    return element(
        "svg",
        element("title", "runs per day") + element("desc", words) + joined(parts),
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        class_="chart",
        role="img",
        aria_label=f"Runs per day. {words}",
    )


def _day_grid(high: int, scale: float) -> Markup:
    parts = []
    for tick in ticks(0, high, 4):
        if not float(tick).is_integer():
            continue
        y = round(_HEIGHT - _BOTTOM - tick * scale, 2)
        parts.append(element("line", class_="grid", x1=_LEFT, x2=_WIDTH - 10, y1=y, y2=y))
        parts.append(
            element("text", f"{tick:g}", class_="tick", x=_LEFT - 6, y=y + 4, text_anchor="end")
        )
    return joined(parts)


def _day_bar(day: str, counts: Counter[str], x: float, step: float, scale: float) -> Markup:
    parts = []
    y = float(_HEIGHT - _BOTTOM)
    for verdict in [*_TONES, *sorted(set(counts) - set(_TONES))]:
        height = counts[verdict] * scale
        if not height:
            continue
        y -= height
        parts.append(
            titled(
                "rect",
                f"{day}: {counts[verdict]} {verdict}",
                class_=_TONES.get(verdict, "o-fail"),
                x=round(x, 2),
                y=round(y, 2),
                width=round(step * 0.8, 2),
                height=round(height, 2),
            )
        )
    return joined(parts)
