"""A drawing of the operations around a failure, for reports.

One lane per process, one bar per operation, from its invocation to its completion. Columns are invocations and
completions in the order of time, so that nothing is too short to be seen; time is not to scale. The longest
partial linearization is a line through the bars: each dot is an instant at which its operation can take effect.
Operations that cannot be linearized are red. The last steps are listed below, with the state after each.

The drawing is one self-contained SVG element, without scripts and references.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate, groupby, pairwise
from textwrap import wrap

from checkers.models.operation import FAIL, INFO, Operation
from checkers.models.result import PartitionResult

OPERATIONS_MAX = 30
"""How many operations a drawing shows: as many as fit on a screen."""

STEPS_MAX = 8
"""How many steps are listed below."""

TEXT_MAX = 120
"""Longer texts are cut."""

COLUMN = 22
"""Narrow enough that `OPERATIONS_MAX` operations fit on a screen."""

WIDTH_MIN = 1000
"""A page that is narrower than the drawing scales it down to this width at most; below it text is too small."""

LANE = 40
LEFT = 110
TOP = 70
BAR = 12
LINE = 18

STYLE = (
    "text{font:11px ui-monospace,Consolas,monospace;fill:#1c2733}.title{font-weight:bold}.lane{stroke:#dde3e9}"
    ".done{fill:#8fb8de}.open{fill:#d3d9df}.blocked{fill:#d64545}.order{fill:none;stroke:#1c2733;stroke-width:1.3}"
    ".dot{fill:#1c2733}.number{font-size:9px}.bad{fill:#b02020;font-weight:bold}"
    ".label,.number{paint-order:stroke;stroke:#fff;stroke-width:3px;stroke-linejoin:round}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What is drawn.

    Attributes:
        places: Indices of the operations, in the order of their invocations.
        begins, ends: Columns of their invocations and completions.
        columns: How many columns there are.
        processes: One lane each.
        middles: Where the bar of each operation is, vertically.
    """

    places: tuple[int, ...]
    begins: dict[int, int]
    ends: dict[int, int]
    columns: int
    processes: tuple[int | str, ...]
    middles: dict[int, int]


def draw_failure(operations: Sequence[Operation], result: PartitionResult) -> str:
    """Returns an SVG element that shows why one object is not linearizable, or how far the search came.

    Args:
        operations: The whole history, as `check_model` got it.
        result: One of the results that `check_model` returned for it.
    """
    window = _window(operations, result)
    partial = result.partial_linearizations[:1]
    order = partial[0].operations if partial else ()
    lines = _listing(operations, result)
    title = wrap(result.sentence, TEXT_MAX, max_lines=3, placeholder=" …")
    width = LEFT + (window.columns + 1) * COLUMN + 10
    width = max(width, *(8 * len(line) + 30 for line in (*lines, *title)))
    bottom = TOP + len(window.processes) * LANE
    height = bottom + (len(lines) + 1) * LINE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" '
        f'style="max-width:max(100%,{WIDTH_MIN}px);height:auto" '
        f'role="img"><title>{escape(result.sentence)}</title><style>{STYLE}</style>'
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        *(_text(8, LINE * (row + 1), line, "title") for row, line in enumerate(title)),
        *_lanes(window, width),
        *_bars(operations, window, result, frozenset(order)),
        *_order(window, order),
        *_labels(operations, window),
    ]
    for number, line in enumerate(lines):
        is_bad = number == len(lines) - 1 and bool(result.blocked)
        parts.append(_text(8, bottom + (number + 1) * LINE, line, "bad" if is_bad else ""))
    return "".join([*parts, "</svg>"])


def _window(operations: Sequence[Operation], result: PartitionResult) -> Window:
    """Chooses the operations that were invoked last before the failure became certain."""
    known = [place for place in result.operations if operations[place].outcome != FAIL]
    until = _until_ns(operations, result)
    before = [place for place in known if operations[place].invoked_ns <= until]
    # Completed operations matter least, the longest ago the less.
    before.sort(
        key=lambda place: (
            place not in result.blocked,
            -min(_end_ns(operations[place]) or until, until),
            place,
        )
    )
    places = sorted(
        before[:OPERATIONS_MAX], key=lambda place: (operations[place].invoked_ns, place)
    )
    events = []
    for place in places:
        one = operations[place]
        events.append((one.invoked_ns, 0, place))
        end = _end_ns(one)
        if end is not None:
            events.append((end, 1, place))
    begins: dict[int, int] = {}
    ends: dict[int, int] = {}
    for column, (_, is_completion, place) in enumerate(sorted(events)):
        (ends if is_completion else begins)[place] = column
    columns = len(events)
    ends = {place: ends.get(place, columns) for place in places}
    processes = sorted(
        {operations[place].process for place in places}, key=lambda p: (str(type(p)), p)
    )
    return Window(
        places=tuple(places),
        begins=begins,
        ends=ends,
        columns=columns,
        processes=tuple(processes),
        middles={
            place: TOP + processes.index(operations[place].process) * LANE + 12 + BAR // 2
            for place in places
        },
    )


def _until_ns(operations: Sequence[Operation], result: PartitionResult) -> int:
    """Returns when the failure was certain, or how far the search came."""
    for place in result.blocked[:1]:
        return _end_ns(operations[place]) or operations[place].invoked_ns
    ends = sorted(
        end for place in result.operations if (end := _end_ns(operations[place])) is not None
    )
    return ends[min(result.completed_count, len(ends) - 1)] if ends else 0


def _end_ns(operation: Operation) -> int | None:
    return None if operation.outcome == INFO else operation.completed_ns


def _lanes(window: Window, width: int) -> list[str]:
    parts = []
    for number, process in enumerate(window.processes):
        y = TOP + number * LANE
        parts.append(
            f'<line class="lane" x1="0" x2="{width}" y1="{y + LANE - 4}" y2="{y + LANE - 4}"/>'
        )
        parts.append(_text(8, y + 26, _cut(f"process {process}", 16)))
    return parts


def _bars(
    operations: Sequence[Operation],
    window: Window,
    result: PartitionResult,
    linearized: frozenset[int],
) -> list[str]:
    parts = []
    for place in window.places:
        one = operations[place]
        x, end = _x(window.begins[place]), _x(window.ends[place])
        y = window.middles[place] - BAR // 2
        kind = "blocked" if place in result.blocked else "done" if place in linearized else "open"
        dashes = ' stroke="#1c2733" stroke-dasharray="4 3"' if one.outcome == INFO else ""
        times = f"[{_seconds(one.invoked_ns)}, {_seconds(_end_ns(one))}]"
        parts.append(
            f'<rect class="{kind}" x="{x}" y="{y}" width="{end - x}" height="{BAR}" rx="3"{dashes}>'
            f"<title>{escape(f'operation {place}: {one.text()} {times}')}</title></rect>"
        )
    return parts


def _labels(operations: Sequence[Operation], window: Window) -> list[str]:
    """Returns what is written above the bars, to be drawn over the lines."""
    parts = []
    for place in window.places:
        x, y = _x(window.begins[place]), window.middles[place] - BAR // 2
        room = int(_next_begin(operations, window, place) - x) // 7
        parts.append(_text(x, y - 4, _cut(_label(operations[place]), max(room, 3)), "label"))
    return parts


def _next_begin(operations: Sequence[Operation], window: Window, place: int) -> float:
    """Returns where the label of an operation has to end, because the next one of its lane begins there."""
    begins = [
        window.begins[other]
        for other in window.places
        if operations[other].process == operations[place].process
        and window.begins[other] > window.begins[place]
    ]
    return _x(min(begins, default=window.columns + 8))


def _order(window: Window, order: Sequence[int]) -> list[str]:
    """Returns the line through the instants at which the operations of a partial linearization take effect."""
    shown = [(number, place) for number, place in enumerate(order, 1) if place in window.begins]
    # An instant is after every invocation before it in the order, and before the next column: each
    # operation completes in a later column than that, because the order is a linearization.
    columns = list(accumulate((window.begins[place] for _, place in shown), max))
    points = []
    for column, group in groupby(zip(columns, shown, strict=True), key=lambda pair: pair[0]):
        members = list(group)
        for index, (_, (number, place)) in enumerate(members):
            points.append((column + (index + 0.5) / len(members), place, number))
    return _polyline(window, points)


def _polyline(window: Window, points: Sequence[tuple[float, int, int]]) -> list[str]:
    places = [(_x(at), window.middles[place], number) for at, place, number in points]
    parts = [
        f'<line class="order" x1="{x:.1f}" y1="{y}" x2="{to_x:.1f}" y2="{to_y}"/>'
        for (x, y, _), (to_x, to_y, _) in pairwise(places)
    ]
    for x, y, number in places:
        parts.append(f'<circle class="dot" cx="{x:.1f}" cy="{y}" r="3"/>')
        parts.append(f'<text class="number" x="{x + 4:.1f}" y="{y + 16}">{number}</text>')
    return parts


def _listing(operations: Sequence[Operation], result: PartitionResult) -> list[str]:
    """Returns the last steps of the longest partial linearization, and what cannot follow."""
    lines = []
    state = result.initial_state
    for partial in result.partial_linearizations[:1]:
        steps = list(zip(partial.operations, partial.states, strict=True))
        for number, (place, after) in list(enumerate(steps, 1))[-STEPS_MAX:]:
            lines.append(_cut(f"{number:>4}. {operations[place].text()}; state {after}"))
        state = steps[-1][1] if steps else state
    for place in result.blocked[:1]:
        one = operations[place]
        times = f"[{_seconds(one.invoked_ns)}, {_seconds(_end_ns(one))}]"
        lines.append(_cut(f"   no. {one.text()} {times}; state {state}"))
    return lines


def _label(operation: Operation) -> str:
    words = [operation.function]
    if operation.input is not None:
        words.append(str(operation.input))
    if operation.outcome == INFO:
        words.append("info")
    elif operation.output is not None or operation.input is None:
        words.append(f"→ {'nil' if operation.output is None else operation.output}")
    return " ".join(words)


def _x(column: float) -> float:
    return round(LEFT + column * COLUMN, 1)


def _seconds(time_ns: int | None) -> str:
    return "open" if time_ns is None else f"{time_ns / 1e9:.6f} s"


def _cut(text: str, length: int = TEXT_MAX) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _text(x: float, y: int, text: str, kind: str = "") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{x}" y="{y}"{style} xml:space="preserve">{escape(text)}</text>'
