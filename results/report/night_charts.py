"""Trend charts of a night's page: one line per job over the nights, each chart with its numbers as a table."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from results.report.svg import element, joined, ticks, titled

JOBS_MAX = 8
"""Lines of a chart: there are eight colours. They are the jobs with most runs: a scripted scenario has one run
per night and shows no trend. The table below the charts has every job."""

WIDTH, HEIGHT = 560, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 12, 42
_LABELS_MAX = 7
_TICKS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One number per night and job.

    Attributes:
        key: Its key in the rows of the trends.
        title: Of the chart.
        unit: What is counted or measured; stands at the vertical axis.
        is_count: Whether it is a whole number.
    """

    key: str
    title: str
    unit: str
    is_count: bool = False


MEASURES = (
    Measure(key="findings", title="Findings", unit="different signatures", is_count=True),
    Measure(key="runs", title="Runs", unit="finished runs", is_count=True),
    Measure(key="marks", title="Coverage", unit="kinds of marks that runs reached", is_count=True),
    Measure(key="unavailable_ms_median", title="Unavailability", unit="median per run, ms"),
    Measure(key="runs_per_min", title="Speed", unit="runs per minute of one worker"),
)
"""The charts, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendChart:
    """One chart and what a reader without pictures gets instead."""

    measure: Measure
    figure: Markup
    alternative: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trends:
    """All charts, the jobs that have a colour, and the nights on the horizontal axis."""

    charts: tuple[TrendChart, ...]
    jobs: tuple[str, ...]
    omitted: int
    nights: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]


def trends_of(rows: Sequence[Mapping[str, Any]]) -> Trends:
    """Returns the charts of the trends.

    Args:
        rows: One per night and job: `night`, `job` and the keys of `MEASURES`; oldest night first.
    """
    nights = list(dict.fromkeys(str(row["night"]) for row in rows))
    runs: Counter[str] = Counter()
    for row in rows:
        runs[str(row["job"])] += row["runs"]
    tonight = {str(row["job"]) for row in rows if str(row["night"]) in nights[-1:]}
    jobs = sorted(runs, key=lambda job: (job not in tonight, -runs[job], job))
    shown = jobs[:JOBS_MAX]
    return Trends(
        charts=tuple(_chart(measure, rows, nights, shown) for measure in MEASURES)
        if nights
        else (),
        jobs=tuple(shown),
        omitted=len(jobs) - len(shown),
        nights=tuple(nights),
        rows=tuple(rows),
    )


def number_text(value: Any) -> str:
    """Returns a number for a table; None is a number that was not measured."""
    if value is None:
        return "–"
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _chart(
    measure: Measure, rows: Sequence[Mapping[str, Any]], nights: Sequence[str], jobs: Sequence[str]
) -> TrendChart:
    lines = {
        job: [
            (nights.index(str(row["night"])), float(row[measure.key]))
            for row in rows
            if row["job"] == job and row[measure.key] is not None
        ]
        for job in jobs
    }
    high = max([value for line in lines.values() for _, value in line], default=0.0)
    axes = _Axes(len(nights), max(high, 1.0) * 1.08, is_count=measure.is_count)
    parts = [axes.draw(nights)]
    for index, (job, points) in enumerate(lines.items()):
        parts.append(_line(axes, f"c{index}", job, points, nights))
    alternative = _alternative(measure, lines, nights)
    body = element("title", f"{measure.title}: {measure.unit}") + element("desc", alternative)
    figure = element(
        "svg",
        body + joined(parts),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        class_="chart",
        role="img",
        aria_label=f"{measure.title}, {measure.unit}. {alternative}",
    )
    return TrendChart(measure=measure, figure=figure, alternative=alternative)


class _Axes:
    """Maps nights and values to the plane of a chart."""

    def __init__(self, nights: int, high: float, *, is_count: bool) -> None:
        self._nights = nights
        self._is_count = is_count
        self._high = high

    def x(self, index: int) -> float:
        """Returns where a night is; a single one is in the middle."""
        width = WIDTH - _LEFT - _RIGHT
        share = index / (self._nights - 1) if self._nights > 1 else 0.5
        return round(_LEFT + 10 + share * (width - 20), 2)

    def y(self, value: float) -> float:
        """Returns where a value is."""
        return round(HEIGHT - _BOTTOM - value / self._high * (HEIGHT - _TOP - _BOTTOM), 2)

    def draw(self, nights: Sequence[str]) -> Markup:
        """Returns grid, labels of values, and labels of nights."""
        parts = []
        for tick in ticks(0, self._high, _TICKS):
            if self._is_count and not float(tick).is_integer():
                continue
            y = self.y(tick)
            parts.append(element("line", class_="grid", x1=_LEFT, x2=WIDTH - _RIGHT, y1=y, y2=y))
            label = number_text(tick)
            parts.append(
                element("text", label, class_="tick", x=_LEFT - 6, y=y + 4, text_anchor="end")
            )
        step = -(-len(nights) // _LABELS_MAX)
        # Counted from the last night, which always has its label.
        for index in range(len(nights) - 1, -1, -step):
            x = self.x(index)
            bottom = HEIGHT - _BOTTOM
            parts.append(element("line", class_="axis", x1=x, x2=x, y1=bottom, y2=bottom + 4))
            parts.append(
                element(
                    "text",
                    nights[index][5:],
                    class_="tick",
                    x=x,
                    y=bottom + 18,
                    text_anchor="middle",
                )
            )
        parts.append(
            element(
                "text",
                "night (month-day)",
                class_="tick",
                x=(WIDTH + _LEFT - _RIGHT) / 2,
                y=HEIGHT - 6,
                text_anchor="middle",
            )
        )
        return joined(parts)


def _line(
    axes: _Axes, colour: str, job: str, points: Sequence[tuple[int, float]], nights: Sequence[str]
) -> Markup:
    places = [(axes.x(index), axes.y(value)) for index, value in points]
    path = "".join(f"{'L' if number else 'M'}{x:g} {y:g}" for number, (x, y) in enumerate(places))
    parts = [element("path", class_=f"line {colour}", d=path)] if len(places) > 1 else []
    for (index, value), (x, y) in zip(points, places, strict=True):
        title = f"{job}, night {nights[index]}: {number_text(value)}"
        parts.append(titled("circle", title, class_=f"dot {colour}", cx=x, cy=y, r=3.5))
    return joined(parts)


def _alternative(
    measure: Measure, lines: Mapping[str, Sequence[tuple[int, float]]], nights: Sequence[str]
) -> str:
    """Returns the chart in words: the first and the last value of every job."""
    sentences = []
    for job, points in lines.items():
        if not points:
            sentences.append(f"{job}: not measured")
            continue
        (first, begin), (last, end) = points[0], points[-1]
        text = f"{job}: {number_text(end)} in the night {nights[last]}"
        if first != last:
            text += f", {number_text(begin)} in the night {nights[first]}"
        sentences.append(text)
    return "; ".join(sentences) + "."
