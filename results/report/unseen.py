"""How many acknowledged records no reader had received yet, over time: the measure `unseen` of a verdict."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from results.report.lanes import fault_bands
from results.report.run import RunData, seconds
from results.report.svg import LEFT, RIGHT, WIDTH, TimeAxis, element, figure, joined, ticks, titled

HEIGHT = 140
TOP = 22.0
LINES_MAX = 8
"""Partitions drawn: as many as there are colours. Those with the most unseen records come first."""

NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class UnseenSeries:
    """The series of one partition; `colour` is the number of its CSS class."""

    place: str
    at_ms: tuple[int, ...]
    count: tuple[int, ...]
    colour: int

    @property
    def sentence(self) -> str:
        """Describes the series for readers who do not see the chart."""
        return f"{self.place}: at most {max(self.count):,}, {self.count[-1]:,} at the end"


def unseen_series(run: RunData) -> list[UnseenSeries]:
    """Returns the series to draw, by name of the partition; empty if the verdict has none."""
    coverage = (run.verdict or {}).get("coverage")
    partitions = coverage.get("by_partition") if isinstance(coverage, Mapping) else None
    found = [
        (str(place), *series)
        for place, numbers in (partitions.items() if isinstance(partitions, Mapping) else ())
        if (series := _series(numbers)) is not None
    ]
    found.sort(key=lambda one: (-max(one[2]), one[0]))
    return [
        UnseenSeries(place=place, at_ms=at_ms, count=count, colour=colour)
        for colour, (place, at_ms, count) in enumerate(sorted(found[:LINES_MAX]))
    ]


def unseen_figure(run: RunData, shown: Iterable[UnseenSeries]) -> Markup:
    """Returns the chart: one line per partition; empty if there is no series."""
    shown = list(shown)
    if not shown:
        return Markup("")
    axis = TimeAxis(run.end_ns, run.begin_ns)
    bottom = TOP + HEIGHT
    most = max(1, *(max(one.count) for one in shown))

    def height(count: float) -> float:
        return round(bottom - count / most * HEIGHT, 2)

    parts = [
        axis.draw(TOP, bottom),
        fault_bands(run, axis, TOP, bottom),
        element("text", "records", class_="tick", x=LEFT - 6, y=TOP - 10, text_anchor="end"),
    ]
    for tick in ticks(0, most, 5):
        if tick == int(tick):
            y = height(tick)
            parts.append(element("line", class_="grid", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y))
            parts.append(
                element(
                    "text", f"{int(tick):,}", class_="tick", x=LEFT - 6, y=y + 4, text_anchor="end"
                )
            )
    for one in shown:
        points = [
            (axis.x(at_ms * NS_PER_MS), height(count), at_ms, count)
            for at_ms, count in zip(one.at_ms, one.count, strict=True)
        ]
        path = " ".join(f"{x:g},{y:g}" for x, y, _, _ in points)
        dots = (
            titled(
                "circle",
                f"{one.place} at {seconds(at_ms * NS_PER_MS)}: {count:,} records",
                class_="dot",
                cx=x,
                cy=y,
                r=2.4,
            )
            for x, y, at_ms, count in points
        )
        line = element("polyline", class_="line", points=path)
        parts.append(element("g", line + joined(dots), class_=f"c{one.colour}"))
    name = "acknowledged records not yet read, over time. " + "; ".join(
        one.sentence for one in shown
    )
    return figure(axis, bottom + 24, joined(parts), name=name)


def _series(numbers: Any) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Returns moments and counts, None for what is no such series: a report never fails on a detail."""
    measures = numbers.get("measures") if isinstance(numbers, Mapping) else None
    unseen = measures.get("unseen") if isinstance(measures, Mapping) else None
    if not isinstance(unseen, Mapping):
        return None
    at_ms, count = unseen.get("at_ms"), unseen.get("count")
    if not isinstance(at_ms, list) or not isinstance(count, list) or len(at_ms) != len(count):
        return None
    if not at_ms or not all(type(number) is int and number >= 0 for number in (*at_ms, *count)):
        return None
    return tuple(at_ms), tuple(count)
