"""Inline SVG: elements as escaped markup, one time axis, and step lines with a bounded number of points.

Colours come from CSS classes, so that one drawing serves light and dark.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from markupsafe import Markup, escape

POINTS_MAX = 2000
"""Points a series may have: more cannot be seen, and a page must stay small enough to open."""

WIDTH = 1160
LEFT = 118
RIGHT = 26


def element(name: str, content: str | Markup = "", **attributes: Any) -> Markup:
    """Returns one element. Underscores in attribute names become hyphens; `class_` is `class`."""
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is None:
            continue
        text = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
        parts.append(f' {key.rstrip("_").replace("_", "-")}="{escape(text)}"')
    inner = escape(content)
    parts.append(f">{inner}</{name}>" if inner else "/>")
    return Markup("".join(parts))


def titled(name: str, title: str, **attributes: Any) -> Markup:
    """Returns one shape with a tooltip."""
    return element(name, element("title", title), **attributes)


def linked(content: Markup, anchor: str, *, is_tab_stop: bool = True) -> Markup:
    """Returns shapes that lead to a place in the page.

    Args:
        content: The shapes.
        anchor: The name of the place.
        is_tab_stop: Whether the tabulator key stops there; hundreds of stops would make the page unusable.
    """
    return element("a", content, href=f"#{anchor}", tabindex=None if is_tab_stop else -1)


def joined(parts: Iterable[Markup]) -> Markup:
    """Returns markup parts one after another."""
    return Markup("").join(parts)


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Maps nanoseconds since run start to x; what is outside is at the nearer edge."""

    end_ns: int
    begin_ns: int = 0

    @property
    def left(self) -> int:
        """Where the plot begins."""
        return LEFT

    @property
    def right(self) -> int:
        """Where the plot ends."""
        return WIDTH - RIGHT

    def x(self, time_ns: float) -> float:
        """Returns where a time is."""
        share = min(max((time_ns - self.begin_ns) / (self.end_ns - self.begin_ns), 0.0), 1.0)
        return round(self.left + share * (self.right - self.left), 2)

    def shows(self, begin_ns: float, end_ns: float | None = None) -> bool:
        """Returns whether any part of a time is on the axis."""
        until_ns = begin_ns if end_ns is None else end_ns
        return bool(begin_ns <= self.end_ns and until_ns >= self.begin_ns)

    def draw(self, top: float, bottom: float) -> Markup:
        """Returns grid lines and their labels in seconds below `bottom`."""
        parts = []
        for tick in ticks(self.begin_ns / 1e9, self.end_ns / 1e9, 10):
            x = self.x(tick * 1e9)
            parts.append(element("line", class_="grid", x1=x, x2=x, y1=top, y2=bottom))
            parts.append(
                element(
                    "text",
                    f"{tick:g} s",
                    class_="tick",
                    x=x,
                    y=bottom + 15,
                    text_anchor="middle",
                )
            )
        # The script draws it again for another zoom.
        return element("g", joined(parts), class_="time-axis", data_top=top, data_bottom=bottom)


def figure(axis: TimeAxis, height: float, body: Markup, *, name: str) -> Markup:
    """Returns a chart with a common time axis; the script moves a cursor over all of them at once."""
    cursor = element("line", class_="cursor", x1=0, x2=0, y1=0, y2=height) + element(
        "text", " ", class_="cursor-time", x=0, y=10
    )
    return element(
        "svg",
        element("title", name) + body + cursor,
        viewBox=f"0 0 {WIDTH} {height:g}",
        class_="chart",
        # Links inside of an image do not exist for a screen reader.
        role="group" if "<a " in body else "img",
        data_left=axis.left,
        data_right=axis.right,
        data_begin=f"{axis.begin_ns / 1e9:.9f}",
        data_end=f"{axis.end_ns / 1e9:.9f}",
    )


def ticks(low: float, high: float, count: int) -> list[float]:
    """Returns round numbers from low to high, about `count` of them."""
    if high <= low:
        return [low]
    rough = (high - low) / max(count, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step)
    return [round(index * step, 12) for index in range(first, math.floor(high / step + 1e-9) + 1)]


def thinned(times: Any, values: Any, limit: int = POINTS_MAX) -> tuple[Any, Any]:
    """Returns a series with at most `limit` points that looks the same.

    Of every stretch of time the first, the lowest, the highest and the last point stay: no spike is lost.
    """
    if len(times) <= limit:
        return times, values
    buckets = limit // 4
    edges = np.linspace(times[0], times[-1] + 1, buckets + 1)
    starts = np.searchsorted(times, edges)
    keep: list[int] = []
    for begin, end in pairwise(starts.tolist()):
        if begin == end:
            continue
        part = values[begin:end]
        keep.extend(
            {int(begin), int(begin + part.argmin()), int(begin + part.argmax()), int(end - 1)}
        )
    chosen = np.unique(np.array(keep))
    return times[chosen], values[chosen]


def step_path(axis: TimeAxis, times: Any, ys: Sequence[float], end_ns: int) -> str:
    """Returns the path of a line that keeps its value until the next point, and after the last until `end_ns`."""
    if not len(times):
        return ""
    # Of what lies before the axis only the last point counts, and of what lies behind it nothing.
    first = max(int(np.searchsorted(times, axis.begin_ns, side="right")) - 1, 0)
    last = int(np.searchsorted(times, axis.end_ns, side="right"))
    times, ys = times[first:last], ys[first:last]
    if not len(times):
        return ""
    parts = [f"M{axis.x(times[0]):g} {ys[0]:g}"]
    for time_ns, y in zip(times[1:], ys[1:], strict=True):
        parts.append(f"H{axis.x(time_ns):g}V{y:g}")
    parts.append(f"H{axis.x(end_ns):g}")
    return "".join(parts)
