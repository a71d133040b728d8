"""The messages around the decisive moment: one line per node, one arrow per message, time from left to right."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from harness.errors import HistoryError
from results.layout import RunFiles
from results.report.argument import Argument
from results.report.run import RunData, seconds
from results.report.svg import WIDTH, TimeAxis, element, figure, joined, titled
from results.store import read_json, write_json

BEFORE_NS, AFTER_NS = 1_000_000_000, 300_000_000
"""How much of the run the diagram shows before the decisive moment, and after it."""

MESSAGES_MAX = 600
"""Arrows that are drawn; with more, a page is slow and nothing can be told apart."""

KINDS = ("produce", "fetch", "AlterPartition", "heartbeat", "metadata", "election")
_IMPORTANCE = {
    "election": 0,
    "AlterPartition": 1,
    "produce": 2,
    "fetch": 3,
    "metadata": 4,
    "heartbeat": 5,
}
_ROW, _TOP = 34, 24


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceTime:
    """The diagram with its legend, and how many messages it leaves out."""

    figure: Markup
    kinds: tuple[str, ...]
    omitted: int
    lost: int


def window_of(argument: Argument, end_ns: int) -> tuple[int, int] | None:
    """Returns the time that the diagram of an anomaly shows; None if its decisive moment is unknown."""
    if argument.moment is None:
        return None
    begin_ns = max(argument.moment.at_ns - BEFORE_NS, 0)
    return begin_ns, min(argument.moment.at_ns + AFTER_NS, end_ns)


def store_messages(
    run: RunData, window_ns: tuple[int, int], messages: Sequence[Mapping[str, Any]]
) -> None:
    """Stores the messages of a part of a run; the report shows them from then on."""
    begin_ns, end_ns = window_ns
    data = {"begin_ns": begin_ns, "end_ns": end_ns, "messages": [dict(one) for one in messages]}
    write_json(RunFiles(run.directory).messages, data)


def spacetime_of(run: RunData, argument: Argument) -> SpaceTime | None:
    """Returns the diagram for an anomaly; None if no messages of its moment are stored."""
    try:
        data = read_json(RunFiles(run.directory).messages)
        window_ns = (int(data["begin_ns"]), int(data["end_ns"]))
        rows = [one for one in data["messages"] if one["kind"] in _IMPORTANCE]
    except (FileNotFoundError, HistoryError, KeyError, TypeError, ValueError):
        return None
    if argument.moment is None or window_ns != window_of(argument, run.end_ns) or not rows:
        return None
    moment_ns = argument.moment.at_ns
    ranked = sorted(
        rows, key=lambda one: (_IMPORTANCE[one["kind"]], abs(one["sent_ns"] - moment_ns))
    )
    shown = sorted(ranked[:MESSAGES_MAX], key=lambda one: one["sent_ns"])
    return SpaceTime(
        figure=_figure(shown, window_ns, moment_ns, argument.moment.title),
        kinds=tuple(kind for kind in KINDS if any(one["kind"] == kind for one in shown)),
        omitted=len(rows) - len(shown),
        lost=sum(one["arrived_ns"] is None for one in shown),
    )


def _figure(
    rows: Sequence[Mapping[str, Any]], window_ns: tuple[int, int], moment_ns: int, title: str
) -> Markup:
    axis = TimeAxis(window_ns[1], window_ns[0])
    nodes = sorted({one[end] for one in rows for end in ("src", "dst")}, key=_node_order)
    place = {node: _TOP + index * _ROW + 10 for index, node in enumerate(nodes)}
    bottom = float(_TOP + len(nodes) * _ROW)
    parts = []
    for node, y in place.items():
        parts.append(element("line", class_="axis", x1=axis.left, x2=axis.right, y1=y, y2=y))
        parts.append(element("text", node, class_="lane", x=2, y=y + 4))
    parts += [_arrow(axis, one, place[one["src"]], place[one["dst"]]) for one in rows]
    x = axis.x(moment_ns)
    right = x < WIDTH * 0.6
    text = f"{seconds(moment_ns)} {title}"
    parts.append(titled("line", text, class_="loss", x1=x, x2=x, y1=4, y2=bottom))
    parts.append(
        element(
            "text",
            text,
            class_="loss-text",
            x=x + 5 if right else x - 5,
            y=13,
            text_anchor="start" if right else "end",
        )
    )
    body = axis.draw(_TOP - 2, bottom) + joined(parts)
    return figure(axis, bottom + 24, body, name="messages around the decisive moment, node by node")


def _arrow(axis: TimeAxis, one: Mapping[str, Any], begin_y: float, end_y: float) -> Markup:
    """Returns an arrow; of a message that did not arrive, only its beginning, with a cross."""
    colour = f"message k{KINDS.index(one['kind'])}"
    where = f"{one['src']} to {one['dst']}"
    x = axis.x(one["sent_ns"])
    if one["arrived_ns"] is None:
        y = begin_y + (end_y - begin_y) * 0.4
        title = f"{one['text']}, {where}, sent at {seconds(one['sent_ns'])}, did not arrive in this time"
        cross = f"M{x - 3:g} {y - 3:g}l6 6m0-6l-6 6"
        line = titled("line", title, class_=f"{colour} lost", x1=x, x2=x, y1=begin_y, y2=y)
        return line + titled("path", title, class_=f"{colour} cross", d=cross)
    title = f"{one['text']}, {where}, {seconds(one['sent_ns'])} to {seconds(one['arrived_ns'])}"
    until = axis.x(one["arrived_ns"])
    line = titled("line", title, class_=colour, x1=x, x2=until, y1=begin_y, y2=end_y)
    return line + titled("circle", title, class_=f"{colour} end", cx=until, cy=end_y, r=2)


def _node_order(name: str) -> tuple[int, int, str]:
    """Clients first, then brokers, then controllers, each by number."""
    digits = "".join(letter for letter in name if letter.isdigit())
    group = {"b": 1, "c": 2}.get(name.rstrip("0123456789"), 0)
    return group, int(digits or 0), name
