"""Strongly connected components, fast where a history is valid.

A valid history has no cycle, so most of the work is to show that there is none. Give every transaction the number
`p(v)` = the largest invocation time among all transactions from which v can be reached, v included. The number
never falls along a dependency, so all members of a cycle have the same one, and a dependency between different
numbers is in no cycle. In a history that fits the clock, reached transactions are concurrent or later, so `p`
settles within a few rounds over whole arrays, and only concurrent transactions share it. Those among them that
have no way in or no way out are removed, again over whole arrays. What is left is searched one by one, with
Tarjan's algorithm.

Source:
    Tarjan, Depth-First Search and Linear Graph Algorithms (1972).
"""

import numpy as np

from checkers.kernels.history import I64, INF_NS
from checkers.kernels.transactions.edges import Graph

ROUNDS_MAX = 64
"""Rounds after which the numbers are given up; a history that is very stale needs as many as it is stale."""


def components(graph: Graph, source: I64, target: I64, *, realtime: bool) -> I64:
    """Returns the component of every transaction: -1 if it is alone in its component.

    Args:
        graph: Gives the times.
        source: Where the dependencies that count begin.
        target: Where they end.
        realtime: Whether realtime dependencies count too.

    Returns:
        Numbers of components from 0, in the order of their first transactions.
    """
    count = graph.count
    labels = np.full(count, -1, dtype=np.int64)
    if not len(source):
        return labels  # realtime dependencies alone make no cycle
    number = _settled(graph, source, target, realtime)
    if number is None:
        number = np.zeros(count, dtype=np.int64)
    same = number[source] == number[target]
    tails, heads, size = source[same], target[same], count
    if realtime:
        more_tails, more_heads, size = _barriers(graph, _shared(number, graph), number)
        tails, heads = np.append(tails, more_tails), np.append(heads, more_heads)
    tails, heads = _peeled(size, tails, heads)
    members = np.unique(np.append(tails, heads))
    if not len(members):
        return labels
    local = np.full(size, -1, dtype=np.int64)
    local[members] = np.arange(len(members))
    found = tarjan(len(members), local[tails], local[heads])
    is_transaction = members < count
    return _numbered(labels, members[is_transaction], found[is_transaction])


def _settled(graph: Graph, source: I64, target: I64, realtime: bool) -> I64 | None:
    """Returns the number of every transaction, None if it did not settle."""
    order = np.argsort(target, kind="stable")
    tail, head = source[order], target[order]
    starts = np.flatnonzero(np.append(True, head[1:] != head[:-1]))
    heads = head[starts]
    number = graph.invoked_ns.copy()
    by_end = waits = np.array([], dtype=np.int64)
    if realtime:
        ended = np.flatnonzero(graph.ended_ns < INF_NS)
        by_end = ended[np.argsort(graph.ended_ns[ended], kind="stable")]
        waits = np.searchsorted(graph.ended_ns[by_end], graph.invoked_ns, side="left")
    for _ in range(ROUNDS_MAX):
        following = number.copy()
        following[heads] = np.maximum(following[heads], np.maximum.reduceat(number[tail], starts))
        if len(by_end):
            reached = np.append(graph.invoked_ns.min(), np.maximum.accumulate(following[by_end]))
            np.maximum(following, reached[waits], out=following, where=graph.is_node)
        if np.array_equal(following, number):
            return number
        number = following
    return None


def _shared(number: I64, graph: Graph) -> I64:
    """Returns the transactions that share their number with another one."""
    nodes = np.flatnonzero(graph.is_node)
    order = nodes[np.argsort(number[nodes], kind="stable")]
    same = np.flatnonzero(np.diff(number[order]) == 0)
    is_shared = np.zeros(graph.count, dtype=np.bool_)
    is_shared[order[same]] = True
    is_shared[order[same + 1]] = True
    return np.flatnonzero(is_shared)


def _barriers(graph: Graph, members: I64, number: I64) -> tuple[I64, I64, int]:
    """Returns dependencies that stand for all realtime ones between members of equal number.

    They lead through further vertices, one for the end of each transaction. The ends of members of equal number
    form a chain in the order of time: each transaction leads to its own end, and the last end before each
    invocation leads to the transaction that was invoked.

    Returns:
        Where the dependencies begin, where they end, and how many vertices there are with the further ones.
    """
    ended = members[graph.ended_ns[members] < INF_NS]
    # Of equal times the invocation comes first, because only what is later counts.
    is_end = np.append(np.ones(len(ended), dtype=np.bool_), np.zeros(len(members), dtype=np.bool_))
    who = np.append(ended, members)
    time_ns = np.append(graph.ended_ns[ended], graph.invoked_ns[members])
    order = np.lexsort((is_end, time_ns, number[who]))
    who, is_end = who[order], is_end[order]
    vertex = graph.count + np.cumsum(is_end) - 1
    has_end = vertex >= graph.count
    # The last end so far is of use only if it belongs to the same number.
    owner = who[is_end]
    last = np.where(has_end, vertex - graph.count, 0)
    same = has_end.copy()
    if len(owner):
        same &= number[owner[last]] == number[who]
    ends = vertex[is_end]
    linked = number[owner[1:]] == number[owner[:-1]]
    waits = same & ~is_end
    tails = np.concatenate([owner, ends[:-1][linked], vertex[waits]])
    heads = np.concatenate([ends, ends[1:][linked], who[waits]])
    return tails, heads, graph.count + len(owner)


def _peeled(size: int, tails: I64, heads: I64) -> tuple[I64, I64]:
    """Returns the edges without those that lead to or from a vertex where every path ends or begins."""
    for _ in range(ROUNDS_MAX):
        has_way = np.zeros(size, dtype=np.bool_)
        has_way[heads] = True
        is_left = np.zeros(size, dtype=np.bool_)
        is_left[tails] = True
        is_left &= has_way
        kept = is_left[tails] & is_left[heads]
        if kept.all():
            break
        tails, heads = tails[kept], heads[kept]
    return tails, heads


def _numbered(labels: I64, members: I64, found: I64) -> I64:
    """Writes components of more than one member into the labels, numbered by their first members."""
    _, first, inverse, sizes = np.unique(
        found, return_index=True, return_inverse=True, return_counts=True
    )
    large = np.flatnonzero(sizes > 1)
    rank = np.full(len(sizes), -1, dtype=np.int64)
    rank[large[np.argsort(first[large])]] = np.arange(len(large))
    labels[members] = rank[inverse]
    return labels


def tarjan(size: int, tails: I64, heads: I64) -> I64:
    """Returns a number per vertex that is equal for two vertices if each can be reached from the other.

    Args:
        size: How many vertices there are.
        tails: Where the edges begin.
        heads: Where they end.
    """
    order = np.argsort(tails, kind="stable")
    successors: list[int] = heads[order].tolist()
    starts: list[int] = np.searchsorted(tails[order], np.arange(size + 1)).tolist()
    at = starts[:-1]
    index = [-1] * size
    low = [0] * size
    component = [-1] * size
    open_vertices: list[int] = []
    path: list[int] = []
    counter = 0
    for root in range(size):
        if index[root] >= 0:
            continue
        path.append(root)
        while path:
            vertex = path[-1]
            if index[vertex] < 0:
                index[vertex] = low[vertex] = counter
                counter += 1
                open_vertices.append(vertex)
            position, end = at[vertex], starts[vertex + 1]
            lowest = low[vertex]
            entered = False
            while position < end:
                successor = successors[position]
                position += 1
                if index[successor] < 0:
                    path.append(successor)
                    entered = True
                    break
                # A vertex whose component is complete is not on the stack and cannot reach this one.
                if component[successor] < 0 and low[successor] < lowest:
                    lowest = low[successor]
            low[vertex] = lowest
            if entered:
                # Its successor is read again on return, which takes over what the successor reached.
                at[vertex] = position - 1
                continue
            at[vertex] = position
            path.pop()
            if lowest == index[vertex]:
                while True:
                    member = open_vertices.pop()
                    component[member] = vertex
                    if member == vertex:
                        break
    return np.array(component, dtype=np.int64)
