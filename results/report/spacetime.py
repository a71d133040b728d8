"""The messages around the decisive moment: one line per node, one arrow per message, time from left to right.

Of a simulated run they are stored when it is repeated (`messages.json`), of a real one when it ends
(`messages.parquet`). Of some messages of a real run only one end is known.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from harness.errors import HistoryError
from results.layout import RunFiles
from results.message_table import read_messages
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

CLIENTS_MAX = 8
"""Clients that have a line of their own; the others share one."""
OTHER_CLIENTS = "other clients"
_LABEL_MAX = 15
"""Characters of a name beside a line; the whole name is in the tooltip."""

_Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceTime:
    """The diagram with its legend.

    Attributes:
        figure: The diagram.
        kinds: The kinds of messages that it shows.
        omitted: How many messages it leaves out.
        lost: How many did not arrive.
        halves: Of how many only one end is known.
        remarks: What the record of this time lacks, one sentence each.
    """

    figure: Markup
    kinds: tuple[str, ...]
    omitted: int
    lost: int
    halves: int
    remarks: tuple[str, ...]


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
    window_ns = window_of(argument, run.end_ns)
    if argument.moment is None or window_ns is None:
        return None
    rows, remarks = _stored(RunFiles(run.directory), window_ns)
    rows = [one for one in rows if one["kind"] in _IMPORTANCE]
    if not rows:
        return None
    moment_ns = argument.moment.at_ns
    ranked = sorted(rows, key=lambda one: (_IMPORTANCE[one["kind"]], abs(_time(one) - moment_ns)))
    shown = sorted(ranked[:MESSAGES_MAX], key=_time)
    return SpaceTime(
        figure=_figure(shown, window_ns, moment_ns, argument.moment.title),
        kinds=tuple(kind for kind in KINDS if any(one["kind"] == kind for one in shown)),
        omitted=len(rows) - len(shown),
        lost=sum(_is_lost(one) for one in shown),
        halves=sum(_is_half(one) for one in shown),
        remarks=remarks,
    )


def _stored(files: RunFiles, window_ns: tuple[int, int]) -> tuple[Sequence[_Row], tuple[str, ...]]:
    """Returns the stored messages of a time, none if there are none, and remarks on what is missing."""
    try:
        data = read_json(files.messages)
        if (int(data["begin_ns"]), int(data["end_ns"])) == window_ns:
            return [{**one, "lost": one["arrived_ns"] is None} for one in data["messages"]], ()
    except (FileNotFoundError, HistoryError, KeyError, TypeError, ValueError):
        pass
    try:
        return read_messages(files.recorded_messages, window_ns)
    except (FileNotFoundError, HistoryError):
        return [], ()


def _time(one: _Row) -> int:
    return int(one["arrived_ns"] if one["sent_ns"] is None else one["sent_ns"])


def _is_lost(one: _Row) -> bool:
    return bool(one["lost"])


def _is_half(one: _Row) -> bool:
    return None in (one["sent_ns"], one["arrived_ns"]) and not _is_lost(one)


def _figure(rows: Sequence[_Row], window_ns: tuple[int, int], moment_ns: int, title: str) -> Markup:
    axis = TimeAxis(window_ns[1], window_ns[0])
    lanes = _lanes(rows)
    nodes = sorted(set(lanes.values()), key=_node_order)
    place = {node: _TOP + index * _ROW + 10 for index, node in enumerate(nodes)}
    bottom = float(_TOP + len(nodes) * _ROW)
    parts = []
    for node, y in place.items():
        parts.append(element("line", class_="axis", x1=axis.left, x2=axis.right, y1=y, y2=y))
        label = node if len(node) <= _LABEL_MAX else f"{node[: _LABEL_MAX - 1]}…"
        tooltip = element("title", node) if label != node else Markup("")
        parts.append(element("text", tooltip + label, class_="lane", x=2, y=y + 4))
    parts += [_arrow(axis, one, place[lanes[one["src"]]], place[lanes[one["dst"]]]) for one in rows]
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


def _lanes(rows: Sequence[_Row]) -> dict[str, str]:
    """Returns the line of every sender and receiver: its own name, or that of the clients that share one."""
    counts = Counter(one[end] for one in rows for end in ("src", "dst"))
    clients = sorted(
        (name for name in counts if _node_order(name)[0] == 0),
        key=lambda name: (-counts[name], name),
    )
    shared = clients[CLIENTS_MAX:] if len(clients) > CLIENTS_MAX + 1 else []
    return {name: OTHER_CLIENTS if name in shared else name for name in counts}


def _arrow(axis: TimeAxis, one: _Row, begin_y: float, end_y: float) -> Markup:
    """Returns an arrow; of a message that did not arrive, only its beginning, with a cross.

    A message of which one end is known is upright, at the time of that end.
    """
    colour = f"message k{KINDS.index(one['kind'])}"
    where = f"{one['src']} to {one['dst']}"
    begin_ns, end_ns = one["sent_ns"], one["arrived_ns"]
    if _is_lost(one):
        x = axis.x(begin_ns)
        y = begin_y + (end_y - begin_y) * 0.4
        title = f"{one['text']}, {where}, sent at {seconds(begin_ns)}, did not arrive in this time"
        cross = f"M{x - 3:g} {y - 3:g}l6 6m0-6l-6 6"
        line = titled("line", title, class_=f"{colour} lost", x1=x, x2=x, y1=begin_y, y2=y)
        return line + titled("path", title, class_=f"{colour} cross", d=cross)
    if begin_ns is None:
        title = f"{one['text']}, {where}, arrived at {seconds(end_ns)}; when it was sent was not recorded"
    elif end_ns is None:
        title = f"{one['text']}, {where}, sent at {seconds(begin_ns)}; its arrival was not recorded"
    else:
        title = f"{one['text']}, {where}, {seconds(begin_ns)} to {seconds(end_ns)}"
    if _is_half(one):
        colour = f"{colour} half"
        begin_ns = end_ns = _time(one)
    x, until = axis.x(begin_ns), axis.x(end_ns)
    line = titled("line", title, class_=colour, x1=x, x2=until, y1=begin_y, y2=end_y)
    return line + titled("circle", title, class_=f"{colour} end", cx=until, cy=end_y, r=2)


def _node_order(name: str) -> tuple[int, int, str]:
    """Clients first, then brokers, then controllers, each by number."""
    digits = "".join(letter for letter in name if letter.isdigit())
    group = {"b": 1, "c": 2}.get(name.rstrip("0123456789"), 0)
    return group, int(digits or 0), name
