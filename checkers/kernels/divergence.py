"""Whether the logs of a partition's replicas hold the same batches at the end of a run.

What is below the high watermark of a replica is committed, as far as that replica knows. Two replicas must
therefore hold the same batches below both high watermarks. Above its high watermark a follower may hold what a
deposed leader wrote; it is cut off later, and is not compared.

Only members of the last committed ISR count, or all replicas if the run recorded no metadata. A replica outside
of the ISR has not yet compared its log with its leader's, and after an unclean election it may have known records
as committed that were given up.

Two batches are the same if offsets, leader epoch and checksum are. A replica lacks a batch if its log has none at
that offset although it was read beyond it; in a log with gaps that proves nothing.

Rows can be followed in pieces, in order of base offsets, so a huge table never has to be in memory.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from checkers.kernels.history import I64, Bools

OFFSETS_LISTED_MAX = 1000
"""How many divergent offsets a verdict lists; their count is always exact."""

WINDOW_COLUMNS = ("broker", "node", "log_start_offset", "high_watermark", "read_end_offset")
"""What `windows_of` reads."""

BATCH_COLUMNS = ("broker", "base_offset", "last_offset", "leader_epoch", "checksum")
"""What `LogComparison` reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The offsets at which a replica is compared, from `start` to before `end`."""

    node: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """Where replicas differ.

    Attributes:
        count: Number of offsets.
        offsets: The first of them, ascending.
        nodes: Replicas that differ from another one there.
        sentence: The first difference.
    """

    count: int
    offsets: tuple[int, ...]
    nodes: tuple[str, ...]
    sentence: str


def find_divergence(
    replica_batches: pa.Table, partition_states: pa.Table, *, sparse: bool = False
) -> Divergence | None:
    """Compares the logs of one partition's replicas.

    Args:
        replica_batches: The partition's rows, in any order.
        partition_states: Likewise.
        sparse: Whether offsets may be missing (transactions, compaction).

    Returns:
        None if no two replicas differ.
    """
    if not replica_batches.num_rows:
        return None
    windows = in_sync(windows_of(replica_batches), partition_states)
    base = replica_batches.column("base_offset").to_numpy()
    if bool((base[1:] < base[:-1]).any()):
        replica_batches = replica_batches.take(pa.array(np.argsort(base, kind="stable")))
    comparison = LogComparison(windows, sparse=sparse)
    first, stop = _equal_rows(replica_batches, windows)
    comparison.follow(replica_batches.slice(0, first))
    comparison.follow(replica_batches.slice(stop))
    return comparison.end()


def _equal_rows(rows: pa.Table, windows: Mapping[int, Window]) -> tuple[int, int]:
    """Returns a range of rows that are certainly equal in all windows; usually nearly all of them.

    Args:
        rows: In order of base offsets.
        windows: Where each replica is compared.

    Shape:
        Whole places only. Empty if the rows of the windows' common part are not those of equal logs in canonical
        order.
    """
    brokers = sorted(windows)
    width = len(brokers)
    if width < 2:
        return 0, 0
    base = rows.column("base_offset").to_numpy()
    low = max(window.start for window in windows.values())
    high = min(window.end for window in windows.values())
    first, stop = (int(at) for at in np.searchsorted(base, [low, high], side="left"))
    if stop <= first or (stop - first) % width:
        return 0, 0
    part = rows.slice(first, stop - first)
    broker = part.column("broker").to_numpy().reshape(-1, width)
    last = part.column("last_offset").to_numpy()
    if not (broker == np.array(brokers)).all() or int(last[-width:].max()) >= high:
        return 0, 0
    for name in BATCH_COLUMNS[1:]:
        column = part.column(name).to_numpy().reshape(-1, width)
        if any(not np.array_equal(column[:, 0], column[:, at]) for at in range(1, width)):
            return 0, 0
    return first, stop


def windows_of(replica_batches: pa.Table) -> dict[int, Window]:
    """Returns where each replica is compared, by broker id."""
    broker = replica_batches.column("broker")
    ids = np.sort(broker.unique().to_numpy())
    rows = [broker.index(number).as_py() for number in ids.tolist()]
    first = (
        replica_batches.select(list(WINDOW_COLUMNS)).take(pa.array(rows, pa.int64())).to_pylist()
    )
    return {
        number: Window(
            node=row["node"],
            start=row["log_start_offset"],
            end=min(row["high_watermark"], row["read_end_offset"]),
        )
        for number, row in zip(ids.tolist(), first, strict=True)
    }


def in_sync(windows: Mapping[int, Window], partition_states: pa.Table) -> dict[int, Window]:
    """Returns the windows of the members of the last committed ISR; all if no metadata was recorded."""
    if not partition_states.num_rows:
        return dict(windows)
    order = np.lexsort(
        (
            partition_states.column("at_ns").to_numpy(),
            partition_states.column("metadata_offset").to_numpy(),
        )
    )
    isr = partition_states.column("isr")[int(order[-1])].as_py()
    return {broker: window for broker, window in windows.items() if broker in isr}


@dataclass(slots=True)
class LogComparison:
    """Compares batches in order of base offsets. Mutable.

    Args:
        windows: Where each replica is compared; replicas without a window are not.
        sparse: See `find_divergence`.
    """

    windows: Mapping[int, Window]
    sparse: bool = False
    _kept: pa.Table | None = None
    _count: int = 0
    _counted_to: int = -1
    _offsets: list[int] = field(default_factory=list)
    _nodes: set[str] = field(default_factory=set)
    _sentence: str = ""

    def follow(self, rows: pa.Table) -> None:
        """Takes the next rows; base offsets never decrease, from one call to the next either."""
        rows = rows.select(list(BATCH_COLUMNS))
        if self._kept is not None:
            rows = pa.concat_tables([self._kept, rows])
        base = rows.column("base_offset").to_numpy()
        # The last base offset may go on in the next piece.
        whole = int(np.searchsorted(base, base[-1], side="left")) if len(base) else 0
        self._kept = rows.slice(whole)
        self._compare(rows.slice(0, whole))

    def end(self) -> Divergence | None:
        """Returns what was found in all rows."""
        if self._kept is not None:
            self._compare(self._kept)
            self._kept = None
        if not self._count:
            return None
        return Divergence(
            count=self._count,
            offsets=tuple(self._offsets),
            nodes=tuple(sorted(self._nodes)),
            sentence=self._sentence,
        )

    def _compare(self, rows: pa.Table) -> None:
        batches = _Batches(rows, self.windows)
        places = np.flatnonzero(batches.differ(sparse=self.sparse))
        if not len(places):
            return
        first, last = batches.extents(places)
        # Each offset counts once, also where batches of one place reach into the next.
        before = np.maximum.accumulate(np.append(self._counted_to, last[:-1]))
        first = np.maximum(first, before + 1)
        self._count += int(np.maximum(last + 1 - first, 0).sum())
        self._counted_to = max(self._counted_to, int(last.max()))
        for row, place in enumerate(places.tolist()):
            room = OFFSETS_LISTED_MAX - len(self._offsets)
            if not room:
                return
            begin = int(first[row])
            self._offsets += range(begin, min(int(last[row]) + 1, begin + room))
            held = batches.held_at(place)
            self._nodes |= {self.windows[broker].node for broker in held}
            self._sentence = self._sentence or _sentence(batches.base(place), held, self.windows)


class _Batches:
    """Batches inside of the windows of their replicas, grouped by base offset (a *place*)."""

    def __init__(self, rows: pa.Table, windows: Mapping[int, Window]) -> None:
        columns = {
            name: rows.column(name).to_numpy().astype(np.int64) for name in rows.column_names
        }
        self._windows = windows
        inside = np.zeros(rows.num_rows, dtype=np.bool_)
        for broker, window in windows.items():
            inside |= (
                (columns["broker"] == broker)
                & (columns["base_offset"] >= window.start)
                & (columns["last_offset"] < window.end)
            )
        self._columns = {name: column[inside] for name, column in columns.items()}
        base = self._columns["base_offset"]
        self._starts = np.flatnonzero(np.append(True, base[1:] != base[:-1])) if len(base) else base
        self._stops = np.append(self._starts[1:], len(base))

    def differ(self, *, sparse: bool) -> Bools:
        """Returns at which places two replicas differ."""
        differs = np.zeros(len(self._starts), dtype=np.bool_)
        if not len(self._starts):
            return differs
        sizes = self._stops - self._starts
        for name in ("last_offset", "leader_epoch", "checksum"):
            column = self._columns[name]
            is_other = column != np.repeat(column[self._starts], sizes)
            differs |= np.logical_or.reduceat(is_other, self._starts)
        if not sparse:
            differs |= sizes < self._expected()
        return differs

    def _expected(self) -> I64:
        """Returns how many replicas must hold a batch at each place: those whose windows contain the smallest."""
        base = self._columns["base_offset"][self._starts]
        last = np.minimum.reduceat(self._columns["last_offset"], self._starts)
        expected = np.zeros(len(base), dtype=np.int64)
        for window in self._windows.values():
            expected += (base >= window.start) & (last < window.end)
        return expected

    def base(self, place: int) -> int:
        """Returns the base offset of a place."""
        offset: int = self._columns["base_offset"][self._starts[place]].item()
        return offset

    def extents(self, places: I64) -> tuple[I64, I64]:
        """Returns the first offset of places, and the last one of their batches."""
        last = np.maximum.reduceat(self._columns["last_offset"], self._starts)
        return self._columns["base_offset"][self._starts[places]], last[places]

    def held_at(self, place: int) -> dict[int, tuple[int, int, int] | None]:
        """Returns (last offset, leader epoch, checksum) of what each replica holds at a place, or None."""
        first, stop = int(self._starts[place]), int(self._stops[place])
        held: dict[int, tuple[int, int, int] | None] = {}
        for row in range(first, stop):
            broker, last, epoch, checksum = (
                int(self._columns[name][row])
                for name in ("broker", "last_offset", "leader_epoch", "checksum")
            )
            held[broker] = (last, epoch, checksum)
        smallest = int(self._columns["last_offset"][first:stop].min())
        for broker, window in self._windows.items():
            if window.start <= self.base(place) and smallest < window.end:
                held.setdefault(broker, None)
        return held


def _sentence(
    offset: int,
    held: Mapping[int, tuple[int, int, int] | None],
    windows: Mapping[int, Window],
) -> str:
    """Returns what two replicas that differ hold at an offset."""
    one = min(held)
    other = min((broker for broker in held if held[broker] != held[one]), default=one)
    logs = " and ".join(_holding(windows[broker].node, held[broker]) for broker in (one, other))
    return (
        f"at offset {offset}, below the high watermarks of both, {logs}; compared are the files of the replicas at"
        " the end of the run, whether a client read them or not"
    )


def _holding(node: str, batch: tuple[int, int, int] | None) -> str:
    if batch is None:
        return f"{node} holds no such batch"
    last, epoch, checksum = batch
    return f"{node} holds a batch up to offset {last} of leader epoch {epoch} with checksum {checksum:08x}"


def join_windows(parts: Iterable[Mapping[int, Window]]) -> dict[int, Window]:
    """Returns the windows of all replicas that pieces of a table mention."""
    return {broker: window for part in parts for broker, window in part.items()}
