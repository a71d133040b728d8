"""Dependencies between committed transactions.

A *dependency* `u -> v` says that u comes before v in every order in which the transactions could have run alone,
one after the other:

- ww: v wrote the version of a key that follows one that u wrote;
- wr: v read a version that u wrote;
- rw: u read a version, and v wrote a later one (an anti-dependency);
- process: u and v ran in one process, u first;
- realtime: u was complete before v was invoked.

Realtime dependencies are not listed, because there are as many as pairs of transactions. They follow from two
times per transaction.

Source:
    Adya, Weak Consistency (1999), on dependencies; Kingsbury and Alvaro, Elle (2020).
"""

from dataclasses import dataclass

import numpy as np

from checkers.kernels.columns import Columns
from checkers.kernels.history import I8, I64, INF_NS, NONE, Bools
from checkers.kernels.transactions.columns import COMMITTED, Transactions

WW, WR, RW, PROCESS, REALTIME = 0, 1, 2, 3, 4
"""Kinds of dependencies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges(Columns):
    """Dependencies as arrays; row i of every array belongs to dependency i.

    Attributes:
        source, target: Rows of transactions.
        kind: WW, WR, RW or PROCESS.
        key: Index of the key, NONE for a process dependency.
        before: The value that the source wrote or read, NONE if it read the key empty.
        after: The value that the target wrote; NONE where it wrote none.
    """

    source: I64
    target: I64
    kind: I8
    key: I64
    before: I64
    after: I64

    @property
    def count(self) -> int:
        """How many dependencies there are."""
        return len(self.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """The committed transactions of a history and their dependencies.

    Attributes:
        edges: Everything but realtime dependencies, without repetition, in one order.
        is_node: Per transaction, whether it takes part; the others have no dependencies.
        invoked_ns: Per transaction. A realtime dependency ends at each one that was invoked late enough.
        ended_ns: Per transaction the time at which it is certain to have taken effect, plus the clock error;
            `INF_NS` if that is unknown.
    """

    edges: Edges
    is_node: Bools
    invoked_ns: I64
    ended_ns: I64

    @property
    def count(self) -> int:
        """How many transactions there are, the ones outside included."""
        return len(self.is_node)


def edges_of(
    kind: int, source: I64, target: I64, *, key: I64, before: I64, after: I64 | None = None
) -> Edges:
    """Returns dependencies of one kind, without those of a transaction on itself."""
    rows = source != target
    none = np.full(len(source), NONE, dtype=np.int64)
    return Edges(
        source=source[rows],
        target=target[rows],
        kind=np.full(int(rows.sum()), kind, dtype=np.int8),
        key=key[rows],
        before=before[rows],
        after=(none if after is None else after)[rows],
    )


def graph_of(t: Transactions, is_node: Bools, parts: list[Edges], clock_error_ns: int) -> Graph:
    """Returns the graph of a history.

    Args:
        t: The history, normalised.
        is_node: Which transactions are known to have committed.
        parts: The dependencies that follow from values.
        clock_error_ns: Largest difference between two clocks; only later invocations count as later.
    """
    parts = [*parts, _process_edges(t, is_node)]
    edges = Edges(
        source=np.concatenate([part.source for part in parts]),
        target=np.concatenate([part.target for part in parts]),
        kind=np.concatenate([part.kind for part in parts]),
        key=np.concatenate([part.key for part in parts]),
        before=np.concatenate([part.before for part in parts]),
        after=np.concatenate([part.after for part in parts]),
    )
    # What a transaction of unknown outcome did can take effect long after its client gave up.
    is_certain = is_node & (t.outcome == COMMITTED) & (t.completed_ns < INF_NS)
    ended_ns = np.where(is_certain, t.completed_ns + clock_error_ns, INF_NS)
    return Graph(
        edges=_distinct(edges, t.count),
        is_node=is_node,
        invoked_ns=t.invoked_ns,
        ended_ns=ended_ns,
    )


def _distinct(edges: Edges, count: int) -> Edges:
    """Returns one dependency per source, target and kind: the one with the smallest key and value."""
    if not edges.count:
        return edges
    pair = (edges.source * count + edges.target) * 4 + edges.kind
    order = np.argsort(pair, kind="stable")
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = np.diff(pair[order]) != 0
    return edges.take(order[first])


def _process_edges(t: Transactions, is_node: Bools) -> Edges:
    """Returns the dependency of each transaction on the last one that its process completed before."""
    rows = np.flatnonzero(is_node)
    order = rows[np.lexsort((rows, t.completed_ns[rows], t.invoked_ns[rows], t.process[rows]))]
    is_done = t.outcome[order] == COMMITTED
    if not len(order):
        return edges_of(PROCESS, order, order, key=order, before=order)
    # Those of a process that begin and end at one and the same time are in an order that is not known.
    times = np.stack((t.process[order], t.invoked_ns[order], t.completed_ns[order]))
    is_again = np.append(False, (times[:, 1:] == times[:, :-1]).all(axis=0))
    is_again &= times[1] == times[2]
    place = np.arange(len(order))
    first_at_once = np.maximum.accumulate(np.where(is_again, 0, place))
    last = np.append(-1, np.maximum.accumulate(np.where(is_done, place, -1)))
    previous = last[first_at_once]
    known = np.flatnonzero(previous >= 0)
    count = previous[known] - first_at_once[previous[known]] + 1
    back = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    source, target = order[np.repeat(previous[known], count) - back], order[np.repeat(known, count)]
    follows = (t.process[source] == t.process[target]) & (
        t.completed_ns[source] <= t.invoked_ns[target]
    )
    source, target = source[follows], target[follows]
    none = np.full(len(source), NONE, dtype=np.int64)
    return edges_of(PROCESS, source, target, key=none, before=none)
