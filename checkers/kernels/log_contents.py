"""Contents of replicas' logs, as ranges of offsets that one leader epoch wrote.

`replica_logs` says how they follow from the rows of `replica_states`, and answers questions about them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from checkers.kernels.columns import Columns
from checkers.kernels.history import I64, Bools

ANY_EPOCH = 2**31
"""Above every leader epoch."""

OTHER, APPEND, REPLICATE = 0, 1, 2
"""Why a row was reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content(Columns):
    """Which epoch wrote a log's records.

    Shape:
        start, epoch, is_exact: one row per range of offsets, ascending; a range ends where the next one starts. If
            `is_exact` is false, `epoch` is the largest that the writer can have had.
    """

    start: I64
    epoch: I64
    is_exact: Bools

    def cut(self, end: int) -> "Content":
        """Returns the ranges below an offset."""
        return self.take(self.start < end)

    def since(self, start: int) -> "Content":
        """Returns the ranges from an offset on."""
        at = max(int(np.searchsorted(self.start, start, side="right")) - 1, 0)
        tail = self.take(np.arange(len(self.start)) >= at)
        return Content(
            start=np.maximum(tail.start, start), epoch=tail.epoch, is_exact=tail.is_exact
        )

    def plus(self, more: "Content") -> "Content":
        """Returns these ranges and others behind them."""
        return Content(
            start=np.concatenate((self.start, more.start)),
            epoch=np.concatenate((self.epoch, more.epoch)),
            is_exact=np.concatenate((self.is_exact, more.is_exact)),
        )

    def at(self, offsets: I64) -> tuple[I64, Bools]:
        """Returns the epochs at offsets, and which of them are exact."""
        if not len(self.start):
            return np.full(len(offsets), ANY_EPOCH), np.zeros(len(offsets), dtype=np.bool_)
        row = np.searchsorted(self.start, offsets, side="right") - 1
        known = row >= 0
        return np.where(known, self.epoch[row], ANY_EPOCH), known & self.is_exact[row]


_EMPTY = Content(
    start=np.empty(0, dtype=np.int64),
    epoch=np.empty(0, dtype=np.int64),
    is_exact=np.empty(0, dtype=np.bool_),
)


def _range(start: int, epoch: int, *, is_exact: bool) -> Content:
    return Content(
        start=np.array([start], dtype=np.int64),
        epoch=np.array([epoch], dtype=np.int64),
        is_exact=np.array([is_exact]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cuts:
    """Where a leader's own log was cut.

    Shape:
        row: the first row in which it leads after that, one row per cut, as in all others.
        before: the last row in which it led before it.
        end: the log end to which the log was cut.
    """

    row: I64
    before: I64
    end: I64


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRows:
    """One replica's rows while its log was readable, in order of time.

    Shape:
        order: its place among the rows of all replicas.
        has_started: whether a process read its log when it started.
        stopped_ns: if the log was not readable before the row, since when; otherwise the time of the row.

    Attributes:
        is_whole: Whether the rows begin with the creation of the log.
    """

    order: I64
    at_ns: I64
    stopped_ns: I64
    end: I64
    high_watermark: I64
    epoch: I64
    kind: I64
    is_leader: Bools
    is_down: Bools
    has_started: Bools
    is_whole: bool

    def grew_from(self, row: int) -> int:
        """Returns where the records begin that a log has certainly got since the row before.

        Of a log whose first row is an append, nothing else is known: only in the first epoch nobody else can have
        written what is below the last record.
        """
        if row:
            return int(self.end[row - 1])
        is_known = self.kind[0] != APPEND or self.epoch[0] <= 0
        return 0 if is_known else max(int(self.end[0]) - 1, 0)

    def is_earlier_part(self, row: int) -> bool:
        """Returns whether a row tells how short the log was before the look at the same moment, the next row."""
        return row + 1 < len(self.at_ns) and bool(self.at_ns[row] == self.at_ns[row + 1])

    def until(self, at_ns: int) -> int:
        """Returns how many rows are not after a moment."""
        return int(np.searchsorted(self.at_ns, at_ns, side="right"))

    @property
    def was_down(self) -> Bools:
        """Before which rows the log was not readable for a time."""
        return self.stopped_ns < self.at_ns

    def cuts(self, reigns: I64) -> "Cuts":
        """Returns where the log had become shorter since the row before in which the replica led.

        It may have been cut while the replica led, or while its process was down in the same reign.

        Args:
            reigns: In which reign of a leader each row is.
        """
        lead = np.flatnonzero(self.is_leader)
        before, after = lead[:-1], lead[1:]
        lowest = self.end[after]
        if len(after):
            lowest = np.minimum(np.minimum.reduceat(self.end, lead)[:-1], lowest)
        is_cut = (lowest < self.end[before]) & (reigns[before] == reigns[after])
        return Cuts(row=after[is_cut], before=before[is_cut], end=lowest[is_cut])

    @property
    def unreported(self) -> tuple[I64, I64]:
        """Rows before which a leader's log had grown without a report.

        Its process or its disk failed when it had written and before it reported that.

        Returns:
            The last row of that leader, and the row.
        """
        grows = self.end > np.append(0, self.end[:-1])
        rows = np.flatnonzero(grows & (self.kind == OTHER))
        rows = rows[rows > 0]
        # The last row before that of a process which ran.
        was_up = np.maximum.accumulate(np.where(self.is_down, -1, np.arange(len(self.end))))
        last = was_up[rows - 1]
        is_leaders = (last >= 0) & self.is_leader[last]
        return last[is_leaders], rows[is_leaders]

    @property
    def turns(self) -> I64:
        """The rows at which the content changes in another way than before: cut, another writer, a new leader."""
        before = np.concatenate(([0], self.end[:-1]))
        grows, shrinks = self.end > before, self.end < before
        row = np.arange(len(self.end))
        last_growth = np.concatenate(([-1], np.maximum.accumulate(np.where(grows, row, -1))[:-1]))
        last_cut = np.maximum.accumulate(np.where(shrinks, row, -1))
        writer = self.kind + 3 * self.epoch
        another = grows & (
            (last_growth < 0)
            | (last_cut > last_growth)
            | (writer[last_growth] != writer)
            | self.was_down
        )
        starts = self.is_leader.copy()
        is_new = ~self.is_leader[:-1] | (self.epoch[1:] != self.epoch[:-1])
        starts[1:] &= is_new | (self.at_ns[1:] == self.at_ns[:-1])
        turns: I64 = np.flatnonzero(another | shrinks | starts | (row == 0))
        return turns


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Contents of all logs.

    Attributes:
        turns, contents: Per broker, the rows at which its log changes, and the content from each of them on.
        by_epoch: Per epoch, its leader's log as others copied it.
        by_term: Per epoch, its leader's log before each time it cut it, and after the last time.
    """

    turns: dict[int, I64]
    contents: dict[int, list[Content]]
    by_epoch: dict[int, Content]
    by_term: dict[int, list[Content]]


def _begun(logs: Iterable[LogRows]) -> dict[int, int]:
    """Returns when the first leader of each epoch reported that it led."""
    begun: dict[int, int] = {}
    for rows in logs:
        epochs, first = np.unique(rows.epoch[rows.is_leader], return_index=True)
        at_ns = rows.at_ns[rows.is_leader][first]
        for epoch, begun_ns in zip(epochs.tolist(), at_ns.tolist(), strict=True):
            begun[epoch] = min(begun_ns, begun.get(epoch, begun_ns))
    return begun


def _cut_to(rows: LogRows) -> dict[int, int]:
    """Returns for each row before which a leader's log was cut in its epoch to which log end it was."""
    cuts = rows.cuts(rows.epoch)
    return dict(zip(cuts.row.tolist(), cuts.end.tolist(), strict=True))


def contents_of(logs: Mapping[int, LogRows], *, has_all_changes: bool) -> Contents:
    """Returns the content of every log.

    Args:
        logs: The rows of each broker's replica.
        has_all_changes: Whether every change of every leader's log was recorded.
    """
    turns = {broker: rows.turns for broker, rows in logs.items()}
    events = sorted(
        (int(rows.order[row]), broker, row)
        for broker, rows in logs.items()
        for row in turns[broker].tolist()
    )
    begun = _begun(logs.values())
    cut_to = {broker: _cut_to(rows) for broker, rows in logs.items()}
    contents: dict[int, list[Content]] = {broker: [] for broker in logs}
    by_epoch: dict[int, Content] = {}
    by_term: dict[int, list[Content]] = {}
    for _, broker, row in events:
        rows = logs[broker]
        content = contents[broker][-1] if contents[broker] else _EMPTY
        before, end = rows.grew_from(row), int(rows.end[row])
        epoch, kind = int(rows.epoch[row]), int(rows.kind[row])
        # What a follower copies is known beyond what it has copied so far.
        content = content.cut(min(before, end))
        if not row and before:
            content = _range(0, epoch, is_exact=False)
        if end > before and kind == REPLICATE and epoch in by_epoch:
            content = content.plus(by_epoch[epoch].since(before))
        elif end > before and kind == OTHER and has_all_changes and rows.was_down[row]:
            # It copied nothing from the leaders that began when it was down.
            earlier = (e for e, at_ns in begun.items() if at_ns <= rows.stopped_ns[row])
            bound = min(max(earlier, default=epoch), epoch)
            content = content.plus(_range(before, bound, is_exact=False))
        elif end > before:
            content = content.plus(_range(before, epoch, is_exact=kind == APPEND))
        # Of two rows of one look, the first tells how short the log was before, perhaps under another leader.
        is_look = has_all_changes or not rows.is_earlier_part(row)
        if rows.is_leader[row] and epoch not in by_epoch and is_look:
            start = before if kind == APPEND and end > before else end
            by_epoch[epoch] = content.cut(start).plus(_range(start, epoch, is_exact=True))
            by_term[epoch] = [by_epoch[epoch]]
        elif row in cut_to[broker] and epoch in by_epoch:
            # From there on the leader had two records at an offset; which one a follower copied is not known.
            lowest = cut_to[broker][row]
            cut = by_epoch[epoch].cut(lowest)
            by_epoch[epoch] = cut.plus(_range(lowest, epoch, is_exact=False))
            own = by_term[epoch][-1].cut(lowest)
            by_term[epoch].append(own.plus(_range(lowest, epoch, is_exact=True)))
        contents[broker].append(content)
    return Contents(turns=turns, contents=contents, by_epoch=by_epoch, by_term=by_term)
