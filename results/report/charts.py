"""Operations over time: how many, how they ended, which errors, how long appends took."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from results.report.lanes import fault_bands
from results.report.run import RunData, numbers, seconds, texts
from results.report.svg import LEFT, RIGHT, WIDTH, TimeAxis, element, figure, joined, ticks, titled

BUCKETS = 160
"""Buckets of time in a chart: each is then about six pixels wide."""

KINDS = ("append", "poll", "latest")
OUTCOMES = ("ok", "fail", "info")
ROW_HEIGHT = 58
LATENCY_HEIGHT = 140
ERRORS_MAX = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRow:
    """How often one kind of operation failed in one way. Times in nanoseconds since run start."""

    kind: str
    outcome: str
    error: str
    count: int
    first_ns: int
    last_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeRow:
    """How many operations of one kind ended how."""

    kind: str
    ok: int
    fail: int
    info: int


class Operations:
    """The operations of a run as NumPy columns."""

    def __init__(self, run: RunData) -> None:
        table = run.tables["operations"]
        self.kind = texts(table, "kind")
        self.outcome = texts(table, "outcome")
        self.error = texts(table, "error")
        self.invoked_ns = numbers(table, "invoked_ns")
        self.completed_ns = numbers(table, "completed_ns")
        self.begin_ns = run.begin_ns
        self.bucket_ns = max(1, math.ceil((run.end_ns + 1 - run.begin_ns) / BUCKETS))
        self.ended_ns = np.where(self.completed_ns >= 0, self.completed_ns, self.invoked_ns)

    def buckets(self, chosen: Any) -> Any:
        """Returns the bucket of time in which each of the chosen operations ended."""
        return np.maximum(self.ended_ns[chosen] - self.begin_ns, 0) // self.bucket_ns

    def outcomes(self) -> list[OutcomeRow]:
        """Returns counts by kind."""
        rows = []
        for kind in KINDS:
            ended = Counter(self.outcome[self.kind == kind].tolist())
            rows.append(OutcomeRow(kind=kind, **{name: ended.get(name, 0) for name in OUTCOMES}))
        return rows

    def errors(self) -> list[ErrorRow]:
        """Returns errors, most frequent first, at most `ERRORS_MAX`."""
        chosen = np.flatnonzero(self.outcome != "ok")
        groups: dict[tuple[str, str, str], list[int]] = {}
        for index in chosen.tolist():
            name = self.error[index] or (
                "open at the end" if self.completed_ns[index] < 0 else "none"
            )
            key = (self.kind[index], self.outcome[index], name)
            groups.setdefault(key, []).append(int(self.ended_ns[index]))
        rows = [
            ErrorRow(
                kind=kind,
                outcome=outcome,
                error=error,
                count=len(times),
                first_ns=min(times),
                last_ns=max(times),
            )
            for (kind, outcome, error), times in groups.items()
        ]
        rows.sort(key=lambda row: (-row.count, row.kind, row.outcome, row.error))
        return rows[:ERRORS_MAX]


def outcome_figure(run: RunData, operations: Operations) -> Markup:
    """Returns stacked counts per bucket of time, one row per kind of operation."""
    axis = TimeAxis(run.end_ns, run.begin_ns)
    parts = []
    top: float = 6
    kinds = [kind for kind in KINDS if bool((operations.kind == kind).any())]
    for kind in kinds:
        parts.append(_outcome_row(axis, operations, kind, top))
        top += ROW_HEIGHT + 16
    bottom = top - 16
    bands = fault_bands(run, axis, 2, bottom)
    return figure(
        axis, bottom + 24, axis.draw(2, bottom) + bands + joined(parts), name="operations over time"
    )


def latency_figure(run: RunData, operations: Operations) -> Markup:
    """Returns median, 95th percentile and maximum of the latency of successful appends, log scale."""
    chosen = (operations.kind == "append") & (operations.outcome == "ok")
    took_ms = (operations.completed_ns - operations.invoked_ns)[chosen] / 1e6
    if not len(took_ms):
        return Markup("")
    buckets = operations.buckets(chosen)
    axis = TimeAxis(run.end_ns, run.begin_ns)
    top, bottom = 8.0, 8.0 + LATENCY_HEIGHT
    low = 10.0 ** math.floor(math.log10(max(float(took_ms.min()), 1e-3)))
    high = 10.0 ** math.ceil(math.log10(max(float(took_ms.max()), low * 10)))

    def height(value_ms: float) -> float:
        share = math.log10(max(value_ms, low) / low) / math.log10(high / low)
        return round(bottom - share * LATENCY_HEIGHT, 2)

    quantiles = _quantiles(buckets, took_ms)
    parts = [_latency_grid(low, high, height)]
    parts.extend(_range_bars(axis, operations, quantiles, height))
    bands = fault_bands(run, axis, top, bottom)
    body = axis.draw(top, bottom) + bands + joined(parts)
    return figure(axis, bottom + 24, body, name="append latency over time")


def _outcome_row(axis: TimeAxis, operations: Operations, kind: str, top: float) -> Markup:
    bottom = top + ROW_HEIGHT
    counts = np.zeros((len(OUTCOMES), BUCKETS), dtype=np.int64)
    for row, outcome in enumerate(OUTCOMES):
        chosen = (operations.kind == kind) & (operations.outcome == outcome)
        np.add.at(counts[row], operations.buckets(chosen), 1)
    peak = max(int(counts.sum(axis=0).max()), 1)
    parts = [
        element("text", kind, class_="lane", x=2, y=top + 12),
        element("text", f"{peak:,}", class_="tick", x=LEFT - 6, y=top + 9, text_anchor="end"),
        element("text", "0", class_="tick", x=LEFT - 6, y=bottom, text_anchor="end"),
        element("line", class_="axis", x1=LEFT, x2=WIDTH - RIGHT, y1=bottom, y2=bottom),
    ]
    for bucket in np.flatnonzero(counts.sum(axis=0)).tolist():
        begin_ns = operations.begin_ns + bucket * operations.bucket_ns
        x = axis.x(begin_ns)
        width = max(axis.x(begin_ns + operations.bucket_ns) - x - 1, 0.8)
        column = counts[:, bucket].tolist()
        outcomes = ", ".join(f"{n} {name}" for n, name in zip(column, OUTCOMES, strict=True) if n)
        title = f"{kind} from {seconds(begin_ns)}: {outcomes}"
        y = bottom
        for outcome, count in zip(OUTCOMES, column, strict=True):
            if count:
                # A single failure among a thousand successes must still be seen.
                tall = max(count / peak * ROW_HEIGHT, 1.5)
                y -= tall
                parts.append(
                    titled("rect", title, class_=f"o-{outcome}", x=x, y=y, width=width, height=tall)
                )
    return joined(parts)


def _quantiles(buckets: Any, took_ms: Any) -> list[tuple[int, float, float, float, int]]:
    """Returns (bucket, median, 95th percentile, maximum, count) for every bucket that has appends."""
    order = np.argsort(buckets, kind="stable")
    names, starts = np.unique(buckets[order], return_index=True)
    groups = np.split(took_ms[order], starts[1:])
    return [
        (
            int(name),
            float(np.quantile(group, 0.5)),
            float(np.quantile(group, 0.95)),
            float(group.max()),
            len(group),
        )
        for name, group in zip(names.tolist(), groups, strict=True)
    ]


def _latency_grid(low: float, high: float, height: Callable[[float], float]) -> Markup:
    parts: list[Markup] = []
    for power in ticks(round(math.log10(low)), round(math.log10(high)), 6):
        if power != int(power):
            continue
        value = 10.0 ** int(power)
        y = height(value)
        parts.append(element("line", class_="grid", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y))
        parts.append(
            element("text", f"{value:g} ms", class_="tick", x=LEFT - 6, y=y + 4, text_anchor="end")
        )
    return joined(parts)


def _range_bars(
    axis: TimeAxis,
    operations: Operations,
    quantiles: list[tuple[int, float, float, float, int]],
    height: Callable[[float], float],
) -> list[Markup]:
    parts = []
    for bucket, median, high, worst, count in quantiles:
        begin_ns = operations.begin_ns + bucket * operations.bucket_ns
        x = axis.x(begin_ns + operations.bucket_ns / 2)
        title = (
            f"{count} appends from {seconds(begin_ns)}: median {median:.3g} ms, "
            f"p95 {high:.3g} ms, max {worst:.3g} ms"
        )
        y_median, y_high, y_worst = height(median), height(high), height(worst)
        parts.append(
            titled("line", title, class_="whisker", x1=x, x2=x, y1=y_worst, y2=y_median)
            + titled("line", title, class_="p95", x1=x, x2=x, y1=y_high, y2=y_median)
            + titled("circle", title, class_="p50", cx=x, cy=y_median, r=2.2)
            + titled("circle", title, class_="max", cx=x, cy=y_worst, r=1.6)
        )
    return parts
