"""The first panel of a report: the most important anomaly, as one argument that fits a screen.

A few lines of text, the operations that show it on a timeline per process, and the lanes of its partition around
the moment that decided it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from results.report.argument import Argument, Witness
from results.report.lanes import partition_figure
from results.report.run import RunData, seconds
from results.report.spacetime import SpaceTime, spacetime_of
from results.report.story import Loss
from results.report.svg import WIDTH, TimeAxis, element, figure, joined, linked, titled

AROUND_NS = 1_000_000_000
"""How much of the run the lanes show before the decisive moment, and after it."""

WITNESSES_MAX = 12
ROW_HEIGHT = 20
_TOP = 20
_LETTER_WIDTH = 6.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterexample:
    """What the panel shows.

    Attributes:
        argument: The anomaly.
        others: Further forbidden anomalies with the same decisive moment.
        timeline: The witnesses as a figure; empty if none is in the history.
        lanes: The partition around the decisive moment; empty if that is unknown.
        span: The time that the lanes show.
        spacetime: The messages around the decisive moment; None if they were not recorded.
    """

    argument: Argument
    others: tuple[Argument, ...]
    timeline: Markup
    lanes: Markup
    span: str
    spacetime: SpaceTime | None


def counterexample_of(
    run: RunData, arguments: Sequence[Argument], losses: Sequence[Loss]
) -> Counterexample | None:
    """Returns the panel for the most important anomaly; None if no anomaly is forbidden or undecided."""
    first = next((one for one in arguments if one.tone != "calm"), None)
    if first is None:
        return None
    same = [
        one
        for one in arguments
        if one is not first
        and one.is_forbidden
        and first.moment is not None
        and one.moment is not None
        and (one.place, one.moment.at_ns) == (first.place, first.moment.at_ns)
    ]
    lanes, span = Markup(""), ""
    if first.moment is not None and (first.topic, first.partition) in run.partitions:
        begin_ns = max(first.moment.at_ns - AROUND_NS, 0)
        end_ns = max(min(first.moment.at_ns + AROUND_NS, run.end_ns), begin_ns + 1_000_000)
        near = [one for one in arguments if one.is_forbidden and one.place == first.place]
        place = (first.topic, first.partition)
        lanes = partition_figure(run, *place, losses, near, (begin_ns, end_ns))
        span = f"{seconds(begin_ns)} to {seconds(end_ns)}"
    return Counterexample(
        argument=first,
        others=tuple(same),
        timeline=witness_figure(first, same),
        lanes=lanes,
        span=span,
        spacetime=spacetime_of(run, first),
    )


def witness_figure(first: Argument, others: Sequence[Argument] = ()) -> Markup:
    """Returns the operations that show anomalies, one row each, by process and time; empty if none is known."""
    known: dict[int, Witness] = {}
    for argument in (first, *others):
        for one in argument.witnesses:
            if one.begin_ns is not None and len(known) < WITNESSES_MAX:
                known.setdefault(one.op_index, one)
    if not known:
        return Markup("")
    rows = sorted(known.values(), key=lambda one: (one.process, one.begin_ns or 0, one.op_index))
    axis = _axis_of(rows, first)
    parts = []
    before = None
    for place, one in enumerate(rows):
        y = _TOP + place * ROW_HEIGHT
        if one.process != before:
            parts.append(element("text", f"process {one.process}", class_="lane", x=2, y=y + 12))
            before = one.process
        parts.append(_bar(axis, one, y))
    bottom: float = _TOP + len(rows) * ROW_HEIGHT + 4
    moment = Markup("")
    if first.moment is not None:
        x = axis.x(first.moment.at_ns)
        right = x < WIDTH * 0.6
        text = f"{seconds(first.moment.at_ns)} {first.moment.title}"
        moment = titled("line", text, class_="loss", x1=x, x2=x, y1=4, y2=bottom) + element(
            "text",
            text,
            class_="loss-text",
            x=x + 5 if right else x - 5,
            y=13,
            text_anchor="start" if right else "end",
        )
    # The labels of operations are drawn over the line of the moment.
    body = axis.draw(_TOP - 2, bottom) + moment + joined(parts)
    return figure(axis, bottom + 24, body, name="operations that show the anomaly, per process")


def _axis_of(rows: Sequence[Witness], first: Argument) -> TimeAxis:
    times = [time for one in rows for time in (one.begin_ns, one.end_ns) if time is not None]
    if first.moment is not None:
        times.append(first.moment.at_ns)
    margin_ns = max((max(times) - min(times)) // 20, 1_000_000)
    return TimeAxis(max(times) + margin_ns, max(min(times) - margin_ns, 0))


def _bar(axis: TimeAxis, one: Witness, y: float) -> Markup:
    begin_ns = one.begin_ns or 0
    x = axis.x(begin_ns)
    open_end = "" if one.end_ns is not None else " open"
    width = max(axis.x(axis.end_ns if one.end_ns is None else one.end_ns) - x, 3.0)
    text = f"operation {one.op_index}: {_without_process(one)}"
    shape = titled(
        "rect",
        f"operation {one.op_index}: {one.text}",
        class_=f"o-{one.outcome}{open_end}",
        x=x,
        y=y + 3,
        width=width,
        height=11,
        rx=2,
    )
    right = x + width + len(text) * _LETTER_WIDTH + 6 < WIDTH
    label = element(
        "text",
        text,
        class_="witness",
        x=x + width + 5 if right else x - 5,
        y=y + 12,
        text_anchor="start" if right else "end",
    )
    return linked(shape + label, f"op-{one.op_index}")


def _without_process(one: Witness) -> str:
    """Returns the operation without its process and its times, which the row and the axis show."""
    text = one.text.removeprefix(f"process {one.process} ")
    return text.rpartition(" [")[0] if text.endswith("]") and " [" in text else text
