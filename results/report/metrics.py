"""What the nodes' own metrics were, over time: replication as an operator of Kafka would have watched it.

`metrics.jsonl` has a line whenever values of a node changed, at most one per second and node: the time, the node,
the new values by series, and the series that are gone. A line with `"down"` says that the node went down; its next
line has all values.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
from markupsafe import Markup

from results.layout import RunFiles
from results.report.lanes import fault_bands
from results.report.run import RunData
from results.report.svg import (
    LEFT,
    RIGHT,
    WIDTH,
    TimeAxis,
    element,
    figure,
    joined,
    step_path,
    thinned,
)

ROW_HEIGHT = 52
TITLE_HEIGHT = 18
GAP = 14
LINES_MAX = 8
"""Nodes drawn in one row: as many as there are colours."""

REPLICA_MANAGER = "kafka_server_replicamanager_"
CONTROLLER = "kafka_controller_kafkacontroller_"
ACTIVE = f"{CONTROLLER}activecontrollercount"

PER_BROKER = (
    ("under-replicated partitions, per leader", f"{REPLICA_MANAGER}underreplicatedpartitions"),
    ("partitions below min ISR, per leader", f"{REPLICA_MANAGER}underminisrpartitioncount"),
    ("partitions led", f"{REPLICA_MANAGER}leadercount"),
    (
        "largest lag of a follower, records",
        'kafka_server_replicafetchermanager_maxlag{clientid="Replica"}',
    ),
)
"""(title, series) of the rows with one line per broker."""
OF_ACTIVE_CONTROLLER = (
    "partitions without a leader, by the active controller",
    f"{CONTROLLER}offlinepartitionscount",
)
COUNTERS = (
    ("ISR shrinks", f"{REPLICA_MANAGER}isrshrinks_total"),
    ("ISR expansions", f"{REPLICA_MANAGER}isrexpands_total"),
    ("failed ISR updates", f"{REPLICA_MANAGER}failedisrupdates_total"),
)
"""(name, series) of what is counted in the last row, over all brokers and from the start of the run on."""
COUNTERS_TITLE = "changes of in-sync replicas since the start, all brokers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One line of the file. Times in nanoseconds since run start."""

    at_ns: int
    node: str
    values: Mapping[str, float]
    gone: frozenset[str]
    is_down: bool


@dataclass(slots=True, kw_only=True)
class Line:
    """One line of a chart. Mutable while it is built.

    Attributes:
        name: For the legend.
        colour: Number of its CSS class.
        pieces: (time, value) of every change, in pieces: between them there is no value.
        ends_ns: The end of each piece that has one; the last piece may be open.
    """

    name: str
    colour: int
    pieces: list[list[tuple[int, float]]] = field(default_factory=list)
    ends_ns: list[int] = field(default_factory=list)

    def set(self, at_ns: int, value: float) -> None:
        """Adds a value; it begins a piece if there is none that is open."""
        if len(self.pieces) == len(self.ends_ns):
            self.pieces.append([])
        if not self.pieces[-1] or self.pieces[-1][-1][1] != value:
            self.pieces[-1].append((at_ns, value))

    def end(self, at_ns: int) -> None:
        """Ends the open piece, if there is one."""
        if len(self.pieces) > len(self.ends_ns):
            self.ends_ns.append(at_ns)

    @property
    def largest(self) -> float:
        """The largest value."""
        return max((value for piece in self.pieces for _, value in piece), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the chart."""

    title: str
    lines: tuple[Line, ...]

    @property
    def largest(self) -> float:
        """The largest value of its lines."""
        return max((line.largest for line in self.lines), default=0.0)


def read_changes(run: RunData) -> Iterator[Change]:
    """Yields what the run's nodes reported, in order; skips lines that are no such report."""
    path = RunFiles(run.directory).metrics
    if not path.is_file():
        return
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                change = _change(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError):
                continue  # the last line of a run that was killed, for example
            yield change


def _change(data: Any) -> Change:
    return Change(
        at_ns=int(data["at_ns"]),
        node=str(data["node"]),
        values={str(name): float(value) for name, value in data.get("values", {}).items()},
        gone=frozenset(data.get("gone", ())),
        is_down=bool(data.get("down")),
    )


def metric_rows(changes: Iterable[Change]) -> list[Row]:
    """Returns the rows of the chart; empty without a report of any node."""
    changes = list(changes)
    brokers = sorted({one.node for one in changes if one.node.startswith("b")}, key=_order)
    if not brokers:
        return []
    rows = [
        Row(title=title, lines=_lines(changes, series, brokers[:LINES_MAX]))
        for title, series in PER_BROKER
    ]
    rows.insert(2, _of_active_controller(changes))
    rows.append(Row(title=COUNTERS_TITLE, lines=_counted(changes)))
    return [row for row in rows if any(line.pieces for line in row.lines)]


def _order(node: str) -> tuple[int, str]:
    return (int(node[1:]) if node[1:].isdecimal() else 0, node)


def _lines(changes: list[Change], series: str, nodes: list[str]) -> tuple[Line, ...]:
    lines = {node: Line(name=node, colour=(_order(node)[0] - 1) % LINES_MAX) for node in nodes}
    for one in changes:
        line = lines.get(one.node)
        if line is None:
            continue
        if one.is_down or series in one.gone:
            line.end(one.at_ns)
        elif series in one.values:
            line.set(one.at_ns, one.values[series])
    return tuple(lines.values())


def _of_active_controller(changes: list[Change]) -> Row:
    """Returns the row of what only an active controller knows at once: the newest one counts."""
    title, series = OF_ACTIVE_CONTROLLER
    line = Line(name="active controller", colour=0)
    known: dict[str, dict[str, float]] = {}
    for one in changes:
        if one.is_down:
            known.pop(one.node, None)
        else:
            known.setdefault(one.node, {}).update(one.values)
        active = [values for values in known.values() if values.get(ACTIVE) and series in values]
        if active:
            # A controller that was cut off may believe for a while that it is active.
            line.set(one.at_ns, max(values[series] for values in active))
        else:
            line.end(one.at_ns)
    return Row(title=title, lines=(line,))


def _counted(changes: list[Change]) -> tuple[Line, ...]:
    """Returns one line per counter: the sum over all brokers, which restarts do not set back."""
    lines = []
    for (name, series), colour in zip(COUNTERS, count(), strict=False):
        line = Line(name=name, colour=colour)
        total = 0.0
        last: dict[str, float] = {}
        for one in changes:
            if one.is_down:
                last.pop(one.node, None)
            elif series in one.values:
                value = one.values[series]
                total += max(value - last.get(one.node, 0.0), 0.0)
                last[one.node] = value
                line.set(one.at_ns, total)
        lines.append(line)
    return tuple(lines)


def metric_figure(run: RunData, rows: list[Row]) -> Markup:
    """Returns the chart: one row per metric, all over the same time; empty without rows."""
    if not rows:
        return Markup("")
    axis = TimeAxis(run.end_ns, run.begin_ns)
    top: float = 4
    parts = []
    for row in rows:
        parts.append(_drawn(axis, row, top))
        top += TITLE_HEIGHT + ROW_HEIGHT + GAP
    bottom = top - GAP
    body = axis.draw(4, bottom) + fault_bands(run, axis, 4, bottom) + joined(parts)
    name = "metrics of the nodes over time. " + "; ".join(
        f"{row.title}: at most {row.largest:,.0f}" for row in rows
    )
    return figure(axis, bottom + 24, body, name=name)


def _drawn(axis: TimeAxis, row: Row, top: float) -> Markup:
    peak = max(row.largest, 1.0)
    begin, bottom = top + TITLE_HEIGHT, top + TITLE_HEIGHT + ROW_HEIGHT

    def height(value: float) -> float:
        return round(bottom - value / peak * ROW_HEIGHT, 2)

    parts = [
        element("text", row.title, class_="lane", x=LEFT, y=top + 12),
        element("text", f"{peak:,.0f}", class_="tick", x=LEFT - 6, y=begin + 9, text_anchor="end"),
        element("text", "0", class_="tick", x=LEFT - 6, y=bottom, text_anchor="end"),
        element("line", class_="axis", x1=LEFT, x2=WIDTH - RIGHT, y1=bottom, y2=bottom),
    ]
    for line in row.lines:
        paths = []
        for number, piece in enumerate(line.pieces):
            end_ns = line.ends_ns[number] if number < len(line.ends_ns) else axis.end_ns
            times = np.array([at_ns for at_ns, _ in piece], dtype=np.int64)
            times, values = thinned(times, np.array([value for _, value in piece]))
            ys = [height(value) for value in values.tolist()]
            title = f"{line.name}, {row.title}: at most {max(value for _, value in piece):,.0f}"
            path = step_path(axis, times, ys, end_ns)
            paths.append(element("path", element("title", title), class_="line", d=path))
        parts.append(element("g", joined(paths), class_=f"c{line.colour}"))
    return joined(parts)
