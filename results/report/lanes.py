"""What happened to one partition, as lanes over one time axis.

From the top: forbidden findings, faults, the leader, who is in the ISR, who is in the ELR (or only last known in
it), and one panel per replica with its log end (line) and its high watermark (area). Fault windows are shaded
through all lanes, and a loss is a line through all of them: red if forbidden, grey if allowed or excused.
Faults have the numbers of their table, and lead to it.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from markupsafe import Markup

from harness.contracts.verdict import Judgement
from results.report.argument import Argument
from results.report.fault_words import fault_style
from results.report.run import FaultWindow, RunData, numbers, rows_of, seconds, texts
from results.report.story import Loss, broker_name, place_name
from results.report.svg import (
    LEFT,
    RIGHT,
    WIDTH,
    TimeAxis,
    element,
    figure,
    joined,
    linked,
    step_path,
    thinned,
    titled,
)

INTERVALS_MAX = 1000
"""Bars a lane may have; where there are more, each shows what held longest."""

FAULT_ROWS_MAX = 6
TRUNCATIONS_MAX = 200
PANEL_HEIGHT = 66
BAR_HEIGHT = 9
LEADER_HEIGHT = 18
GAP = 14

_LETTER_WIDTH = 6.1
_MARK_WIDTH = 30
_LOSS_WORDS_WIDTH = 220
_LOSS_FLOORS_MAX = 4


@dataclass(frozen=True, slots=True)
class Interval:
    """Something that held from one time to another. Nanoseconds since run start."""

    begin_ns: int
    end_ns: int
    value: Any


def partition_figure(
    run: RunData,
    topic: str,
    partition: int,
    losses: Sequence[Loss] = (),
    findings: Sequence[Argument] = (),
    window_ns: tuple[int, int] | None = None,
) -> Markup:
    """Returns the lanes of one partition as an SVG figure.

    Args:
        run: The run.
        topic: Its topic.
        partition: Its number.
        losses: When its records were lost; those with an unknown time are not drawn.
        findings: Forbidden findings, which are marked where they were decided.
        window_ns: The part of the run to draw, from and until; everything since the cluster was ready by default.
    """
    begin_ns, end_ns = window_ns or (run.begin_ns, run.end_ns)
    axis = TimeAxis(end_ns, begin_ns)
    states = _rows_on(axis, rows_of(run.tables["partition_states"], topic, partition))
    replicas = rows_of(run.tables["replica_states"], topic, partition)
    brokers = _brokers_of(run, states.to_pylist(), replicas)
    parts: list[Markup] = []
    y = _finding_lane(parts, axis, findings, 8)
    shown = [one for one in run.fault_windows if axis.shows(one.begin_ns, one.end_ns)]
    windows, rows = packed(shown)
    parts.append(_fault_lane(axis, windows, y))
    if rows:
        parts.append(_label("faults", y + 10))
    y += rows * 15 + (GAP if rows else 0)
    top_of_lanes = y
    y = _leader_lane(parts, axis, states.to_pylist(), end_ns, y)
    y = _member_lanes(parts, axis, states.to_pylist(), brokers, end_ns, y)
    y = _replica_panels(parts, axis, replicas, brokers, end_ns, y)
    bottom = y - GAP + 4
    bands = _bands(shown, axis, top_of_lanes - 4, bottom)
    here = [
        loss
        for loss in losses
        if (loss.topic, loss.partition) == (topic, partition)
        and loss.at_ns is not None
        and axis.shows(loss.at_ns)
    ]
    markers = joined(_loss_markers(axis, here, top_of_lanes - 4, bottom))
    body = bands + axis.draw(top_of_lanes - 4, bottom) + joined(parts) + markers
    return figure(axis, bottom + 24, body, name=f"{place_name(topic, partition)} over time")


def _bands(windows: Sequence[FaultWindow], axis: TimeAxis, top: float, bottom: float) -> Markup:
    return joined(
        element(
            "rect",
            class_=f"band {fault_style(window.fault)}",
            x=axis.x(window.begin_ns),
            y=top,
            width=_width(axis, window.begin_ns, window.end_ns),
            height=bottom - top,
        )
        for window in windows
        if window.took_effect and window.end_ns > window.begin_ns
    )


def _rows_on(axis: TimeAxis, rows: pa.Table) -> pa.Table:
    """Returns the rows that an axis shows: those on it, and the last one before it."""
    times = numbers(rows, "at_ns")
    first = max(int(np.searchsorted(times, axis.begin_ns, side="right")) - 1, 0)
    last = int(np.searchsorted(times, axis.end_ns, side="right"))
    return rows.slice(first, max(last - first, 0))


def _finding_lane(
    parts: list[Markup], axis: TimeAxis, findings: Sequence[Argument], top: float
) -> float:
    """Marks where findings were decided, with their numbers; several at one place share a mark."""
    places: dict[float, list[Argument]] = {}
    for one in findings:
        if one.at_ns is not None and axis.shows(one.at_ns):
            x = axis.x(one.at_ns)
            near = next((at for at in places if abs(at - x) < _MARK_WIDTH), x)
            places.setdefault(near, []).append(one)
    if not places:
        return top
    parts.append(_label("findings", top + 10))
    for x, here in places.items():
        title = "; ".join(f"anomaly {one.number}: {one.id} in {one.place}" for one in here)
        text = _spans([one.number for one in here])
        right = x + len(text) * 7 + 12 < WIDTH
        mark = titled("path", title, class_="finding", d=f"M{x - 5:g} {top + 1:g}h10l-5 9z")
        label = element(
            "text",
            text,
            class_="finding-text",
            x=x + 8 if right else x - 8,
            y=top + 10,
            text_anchor="start" if right else "end",
        )
        parts.append(linked(mark + label, here[0].anchor))
    return top + 12 + GAP


def _spans(numbers_: Sequence[int]) -> str:
    """Returns numbers as text: "1 to 4, 7"."""
    spans: list[list[int]] = []
    for number in sorted(numbers_):
        if spans and number == spans[-1][-1] + 1:
            spans[-1] = [spans[-1][0], number]
        else:
            spans.append([number])
    return ", ".join(" to ".join(str(end) for end in span) for span in spans)


def fault_bands(run: RunData, axis: TimeAxis, top: float, bottom: float) -> Markup:
    """Returns the fault windows as shaded bands for another chart with the same axis."""
    return joined(
        titled(
            "rect",
            _window_title(window),
            class_=f"band {fault_style(window.fault)}",
            x=axis.x(window.begin_ns),
            y=top,
            width=_width(axis, window.begin_ns, window.end_ns),
            height=bottom - top,
        )
        for window in run.fault_windows
        if window.took_effect and window.end_ns > window.begin_ns
    )


def packed(windows: Sequence[FaultWindow]) -> tuple[list[tuple[int, FaultWindow]], int]:
    """Puts windows into rows without overlaps, as far as there are rows; returns them and the row count."""
    ends: list[int] = []
    placed = []
    for window in windows:
        free = [row for row, end in enumerate(ends) if end <= window.begin_ns]
        if free:
            row = free[0]
            ends[row] = window.end_ns
        elif len(ends) < FAULT_ROWS_MAX:
            row = len(ends)
            ends.append(window.end_ns)
        else:
            row = min(range(len(ends)), key=lambda index: ends[index])
            ends[row] = max(ends[row], window.end_ns)
        placed.append((row, window))
    return placed, len(ends)


def intervals(
    rows: Sequence[dict[str, Any]], value: Callable[[dict[str, Any]], Hashable], end_ns: int
) -> list[Interval]:
    """Returns how long each value held; neighbours with one value are one interval."""
    found: list[Interval] = []
    for index, row in enumerate(rows):
        begin_ns = row["at_ns"]
        until_ns = rows[index + 1]["at_ns"] if index + 1 < len(rows) else end_ns
        held = value(row)
        if found and found[-1].value == held:
            found[-1] = Interval(found[-1].begin_ns, until_ns, held)
        else:
            found.append(Interval(begin_ns, until_ns, held))
    return found if len(found) <= INTERVALS_MAX else _condensed(found, end_ns)


def _condensed(found: Sequence[Interval], end_ns: int) -> list[Interval]:
    """Shows for every slice of time the value that held longest in it."""
    slice_ns = -(-(end_ns + 1) // INTERVALS_MAX)
    held_ns: list[dict[Any, int]] = [{} for _ in range(INTERVALS_MAX)]
    for item in found:
        for index in range(item.begin_ns // slice_ns, item.end_ns // slice_ns + 1):
            begin_ns = max(item.begin_ns, index * slice_ns)
            until_ns = min(item.end_ns, (index + 1) * slice_ns)
            shares = held_ns[index]
            shares[item.value] = shares.get(item.value, 0) + until_ns - begin_ns
    condensed: list[Interval] = []
    for index, shares in enumerate(held_ns):
        if not shares:
            continue
        value = max(shares, key=lambda name: shares[name])
        begin_ns = max(index * slice_ns, found[0].begin_ns)
        if condensed and condensed[-1].value == value:
            begin_ns = condensed.pop().begin_ns
        condensed.append(Interval(begin_ns, min((index + 1) * slice_ns, end_ns), value))
    return condensed


def _brokers_of(
    run: RunData, states: Sequence[dict[str, Any]], replicas: pa.Table
) -> tuple[int, ...]:
    found = {broker for row in states for broker in row["replicas"]}
    found.update(numbers(replicas, "broker").tolist())
    return tuple(sorted(found)) or run.brokers


def _fault_lane(axis: TimeAxis, placed: Sequence[tuple[int, FaultWindow]], top: float) -> Markup:
    parts = []
    begins: dict[int, list[float]] = {}
    at_once: dict[tuple[int, float], list[int]] = {}
    for row, window in placed:
        x = axis.x(window.begin_ns)
        begins.setdefault(row, []).append(x)
        at_once.setdefault((row, x), []).append(window.number)
    for row, window in placed:
        x, y = axis.x(window.begin_ns), top + row * 15
        title = _window_title(window)
        later = [at for at in begins[row] if at > x]
        space = min(later, default=WIDTH) - x
        number = str(window.number)
        if window.end_ns <= window.begin_ns:
            shape = titled("circle", title, class_="moment", cx=x, cy=y + 6, r=3.5)
            # Momentary faults at one place share a label; the last of them is on top.
            here = at_once[row, x]
            text = _spans(here)
            if window.number == here[-1] and len(text) * _LETTER_WIDTH + 8 < space:
                shape += element("text", text, class_="on-bar", x=x + 6, y=y + 9.5)
            parts.append(linked(shape, window.anchor, is_tab_stop=False))
            continue
        width = _width(axis, window.begin_ns, window.end_ns)
        state = "" if window.took_effect else " missed"
        kind = fault_style(window.fault)
        shape = titled(
            "rect", title, class_=f"bar {kind}{state}", x=x, y=y, width=width, height=12, rx=2
        )
        texts_ = (f"{number} {window.label}", number)
        text = next((one for one in texts_ if len(one) * _LETTER_WIDTH + 4 < width), "")
        if text:
            shape += element("text", text, class_="on-bar", x=x + 4, y=y + 9.5)
        parts.append(linked(shape, window.anchor, is_tab_stop=False))
    return joined(parts)


def _leader_lane(
    parts: list[Markup],
    axis: TimeAxis,
    states: Sequence[dict[str, Any]],
    end_ns: int,
    top: float,
) -> float:
    if not states:
        return top
    parts.append(_label("leader", top + 13))
    for item in intervals(states, lambda row: (row["leader"], row["leader_epoch"]), end_ns):
        leader, epoch = item.value
        x, width = axis.x(item.begin_ns), _width(axis, item.begin_ns, item.end_ns)
        name = "no leader" if leader < 0 else broker_name(leader)
        title = f"{name}, leader epoch {epoch}, {seconds(item.begin_ns)} to {seconds(item.end_ns)}"
        class_ = "vacant" if leader < 0 else f"fill {_colour(leader)}"
        parts.append(
            titled(
                "rect", title, class_=class_, x=x, y=top, width=width, height=LEADER_HEIGHT, rx=2
            )
        )
        text = f"{name} · e{epoch}"
        if len(text) * _LETTER_WIDTH < width:
            ink = "in-vacant" if leader < 0 else "on-fill"
            parts.append(element("text", text, class_=ink, x=x + 5, y=top + 13))
    return top + LEADER_HEIGHT + GAP


def _member_lanes(
    parts: list[Markup],
    axis: TimeAxis,
    states: Sequence[dict[str, Any]],
    brokers: Sequence[int],
    end_ns: int,
    top: float,
) -> float:
    if not states:
        return top
    knows_elr = any(row["elr"] or row["last_known_elr"] for row in states)
    lanes = [("ISR", "isr")] + ([("ELR", "elr")] if knows_elr else [])
    for name, column in lanes:
        parts.append(_label(name, top + 9))
        for broker in brokers:
            parts.append(_label(broker_name(broker), top + 8.5, small=True))
            membership = partial(_membership, column=column, broker=broker)
            held = intervals(states, membership, end_ns)
            parts.extend(_member_bar(axis, item, name, broker, top) for item in held if item.value)
            top += BAR_HEIGHT + 4
        top += GAP - 4
    return top


def _membership(row: dict[str, Any], *, column: str, broker: int) -> str:
    if broker in row[column]:
        return "in"
    return "last known" if column == "elr" and broker in row["last_known_elr"] else ""


def _member_bar(axis: TimeAxis, item: Interval, name: str, broker: int, top: float) -> Markup:
    text = name if item.value == "in" else f"last-known {name}"
    title = f"{broker_name(broker)} in {text}, {seconds(item.begin_ns)} to {seconds(item.end_ns)}"
    faded = "" if item.value == "in" else " faded"
    return titled(
        "rect",
        title,
        class_=f"fill {_colour(broker)}{faded}",
        x=axis.x(item.begin_ns),
        y=top,
        width=_width(axis, item.begin_ns, item.end_ns),
        height=BAR_HEIGHT,
        rx=1.5,
    )


def _replica_panels(
    parts: list[Markup],
    axis: TimeAxis,
    replicas: pa.Table,
    brokers: Sequence[int],
    end_ns: int,
    top: float,
) -> float:
    if not replicas.num_rows:
        return top
    owners = numbers(replicas, "broker")
    shown = {
        broker: _rows_on(axis, replicas.filter(pa.array(owners == broker, type=pa.bool_())))
        for broker in brokers
    }
    low, high = _span(replicas, list(shown.values()))
    for broker, rows in shown.items():
        parts.append(_panel(axis, rows, broker, (low, high), end_ns, top))
        top += PANEL_HEIGHT + GAP
    return top


def _span(replicas: pa.Table, shown: Sequence[pa.Table]) -> tuple[int, int]:
    """Returns the offsets of a panel's lower and upper edge: of a part of the run, those that it shows."""
    low = int(numbers(replicas, "log_start_offset").min())
    ends = [numbers(rows, "log_end_offset") for rows in shown if rows.num_rows]
    marks = [numbers(rows, "high_watermark") for rows in shown if rows.num_rows]
    if not ends:
        return low, low + 1
    high = max(int(values.max()) for values in ends)
    least = min(int(values.min()) for values in (*ends, *marks))
    # The common beginning of long logs would hide the few records that a short time is about.
    if least - low > (high - low) / 2:
        low = max(low, least - max((high - least) // 4, 1))
    return low, max(high, low + 1)


def _panel(
    axis: TimeAxis, rows: pa.Table, broker: int, span: tuple[int, int], end_ns: int, top: float
) -> Markup:
    low, high = span
    bottom = top + PANEL_HEIGHT

    def height(offset: float) -> float:
        share = min(max((offset - low) / (high - low), 0.0), 1.0)
        return round(bottom - share * (PANEL_HEIGHT - 6), 2)

    parts = [
        element(
            "rect",
            class_="panel",
            x=LEFT,
            y=top,
            width=WIDTH - LEFT - RIGHT,
            height=PANEL_HEIGHT,
        ),
        _label(f"{broker_name(broker)} log", top + 13),
        element("text", f"{high:,}", class_="tick", x=LEFT - 6, y=top + 10, text_anchor="end"),
        element("text", f"{low:,}", class_="tick", x=LEFT - 6, y=bottom, text_anchor="end"),
    ]
    if not rows.num_rows:
        return joined(parts)
    parts.extend(_roles(axis, rows, broker, end_ns, top))
    times = numbers(rows, "at_ns")
    marks_at, marks = thinned(times, numbers(rows, "high_watermark"))
    path = step_path(axis, marks_at, [height(mark) for mark in marks.tolist()], end_ns)
    area = f"{path}V{bottom:g}H{axis.x(marks_at[0]):g}Z"
    parts.append(element("path", class_=f"watermark {_colour(broker)}", d=area))
    ends_at, ends = thinned(times, numbers(rows, "log_end_offset"))
    path = step_path(axis, ends_at, [height(end) for end in ends.tolist()], end_ns)
    parts.append(element("path", class_=f"line {_colour(broker)}", d=path))
    parts.extend(_drops(axis, rows, height))
    last_end, last_mark = int(ends[-1]), int(marks[-1])
    title = f"{broker_name(broker)}: log end {last_end:,}, high watermark {last_mark:,} at {seconds(end_ns)}"
    parts.append(
        titled(
            "circle",
            title,
            class_=f"fill {_colour(broker)}",
            cx=axis.x(end_ns),
            cy=height(last_end),
            r=3,
        )
    )
    return joined(parts)


def _roles(axis: TimeAxis, rows: pa.Table, broker: int, end_ns: int, top: float) -> list[Markup]:
    plain = [
        {"at_ns": at_ns, "role": role}
        for at_ns, role in zip(
            numbers(rows, "at_ns").tolist(), texts(rows, "role").tolist(), strict=True
        )
    ]
    parts = []
    for item in intervals(plain, lambda row: row["role"], end_ns):
        if item.value == "follower":
            continue
        class_ = "offline" if item.value == "offline" else f"leading {_colour(broker)}"
        what = "is down" if item.value == "offline" else "leads"
        title = f"{broker_name(broker)} {what}, {seconds(item.begin_ns)} to {seconds(item.end_ns)}"
        parts.append(
            titled(
                "rect",
                title,
                class_=class_,
                x=axis.x(item.begin_ns),
                y=top,
                width=_width(axis, item.begin_ns, item.end_ns),
                height=PANEL_HEIGHT,
            )
        )
    return parts


def _drops(axis: TimeAxis, rows: pa.Table, height: Callable[[float], float]) -> list[Markup]:
    """Marks every place where the log end went back, the largest first if there are too many."""
    ends = numbers(rows, "log_end_offset")
    fall = -np.diff(ends)
    indices = np.flatnonzero(fall > 0)
    if len(indices) > TRUNCATIONS_MAX:
        indices = np.sort(indices[np.argsort(-fall[indices], kind="stable")[:TRUNCATIONS_MAX]])
    times = numbers(rows, "at_ns")
    causes = texts(rows, "cause")
    parts = []
    for index in indices.tolist():
        if not axis.shows(times[index + 1]):
            continue
        x, y = axis.x(times[index + 1]), height(ends[index + 1])
        title = (
            f"log end {ends[index]:,} → {ends[index + 1]:,} "
            f"({causes[index + 1]}) at {seconds(int(times[index + 1]))}"
        )
        shape = f"M{x - 4:g} {y - 8:g}h8l-4 7z"
        parts.append(titled("path", title, class_="drop", d=shape))
    return parts


def _loss_markers(
    axis: TimeAxis, losses: Sequence[Loss], top: float, bottom: float
) -> list[Markup]:
    """Marks losses; labels that would overlap are stacked, the most important at the bottom."""
    parts = []
    floor, last_x = 0, -math.inf
    for loss in losses:
        x = axis.x(loss.at_ns or 0)
        loud = loss.judgement in (Judgement.FORBIDDEN, Judgement.UNDECIDED)
        if loud:
            floor = (floor + 1) % _LOSS_FLOORS_MAX if x - last_x < _LOSS_WORDS_WIDTH else 0
            last_x = x
        parts.append(_loss_marker(axis, loss, top, bottom, bottom - 4 - 14 * floor, loud=loud))
    return parts


def _loss_marker(
    axis: TimeAxis, loss: Loss, top: float, bottom: float, label_y: float, *, loud: bool
) -> Markup:
    """Returns a line, and a label unless the loss is allowed or excused."""
    x = axis.x(loss.at_ns or 0)
    count = len(loss.records)
    offsets = [record.offset for record in loss.records if record.offset is not None]
    where = f" (offsets {min(offsets)} to {max(offsets)})" if offsets else ""
    title = f"{count} acknowledged records lost{where} at {seconds(loss.at_ns)}"
    if not loud:
        title += f", {loss.judgement}"
        line = titled("line", title, class_="loss calm", x1=x, x2=x, y1=top, y2=bottom)
        return linked(line, f"anomaly-{loss.anomaly}", is_tab_stop=False)
    undecided = " undecided" if loss.judgement == Judgement.UNDECIDED else ""
    text = f"{count} lost{' (undecided)' if undecided else ''}"
    # The label is on the side that has space.
    right = x + len(text) * 7 + 8 < WIDTH
    label = element(
        "text",
        text,
        class_=f"loss-text{undecided}",
        x=x + 5 if right else x - 5,
        y=label_y,
        text_anchor="start" if right else "end",
    )
    line = titled("line", title, class_=f"loss{undecided}", x1=x, x2=x, y1=top, y2=bottom)
    return linked(line + label, f"anomaly-{loss.anomaly}")


def _label(text: str, y: float, *, small: bool = False) -> Markup:
    if small:
        return element("text", text, class_="tick", x=LEFT - 6, y=y, text_anchor="end")
    return element("text", text, class_="lane", x=2, y=y)


def _window_title(window: FaultWindow) -> str:
    missed = "" if window.took_effect else " (did not take effect)"
    if window.end_ns <= window.begin_ns:
        return f"{window.fault_id}: {window.label}{missed} at {seconds(window.begin_ns)}"
    return (
        f"{window.fault_id}: {window.label}{missed}, "
        f"{seconds(window.begin_ns)} to {seconds(window.end_ns)}"
    )


def _colour(broker: int) -> str:
    return f"c{(broker - 1) % 8}" if broker > 0 else "c7"


def _width(axis: TimeAxis, begin_ns: int, end_ns: int) -> float:
    return max(axis.x(end_ns) - axis.x(begin_ns), 0.6)
