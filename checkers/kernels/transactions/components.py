"""Strongly connected components, fast where a history is valid.

A valid history has no cycle, so most of the work is to show that there is none. Give every transaction the number
`p(v)` = the largest invocation time among all transactions from which v can be reached, v included. The number
never falls along a dependency, so all members of a cycle have the same one, and a dependency between different
numbers is in no cycle. In a history that fits the clock, reached transactions are concurrent or later, so `p`
settles within a few rounds over whole arrays, and hardly any two transactions share it. Only those that do are
searched one by one, with Tarjan's algorithm.

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
        members = np.flatnonzero(graph.is_node)
    else:
        same = number[source] == number[target]
        source, target = source[same], target[same]
        members = _shared(number, graph, realtime) if realtime else np.unique([source, target])
    if not len(members):
        return labels
    local = np.full(count, -1, dtype=np.int64)
    local[members] = np.arange(len(members))
    keep = (local[source] >= 0) & (local[target] >= 0)
    tails, heads = local[source[keep]], local[target[keep]]
    size = len(members)
    if realtime:
        extra_tails, extra_heads, size = _barriers(
            graph.invoked_ns[members], graph.ended_ns[members]
        )
        tails = np.concatenate([tails, extra_tails])
        heads = np.concatenate([heads, extra_heads])
    found = tarjan(size, tails, heads)[: len(members)]
    return _numbered(labels, members, found)


def _settled(graph: Graph, source: I64, target: I64, realtime: bool) -> I64 | None:
    """Returns the number of every transaction, None if it did not settle."""
    order = np.argsort(target, kind="stable")
    tail, head = source[order], target[order]
    starts = np.flatnonzero(np.append(True, head[1:] != head[:-1]))
    heads = head[starts]
    number = graph.invoked_ns.copy()
    by_end, waits = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
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


def _shared(number: I64, graph: Graph, realtime: bool) -> I64:
    """Returns the transactions that share their number with another one."""
    nodes = np.flatnonzero(graph.is_node)
    order = nodes[np.argsort(number[nodes], kind="stable")]
    same = np.diff(number[order]) == 0
    shared = np.append(same, False) | np.append(False, same)
    return np.sort(order[shared]) if len(order) else order


def _barriers(invoked_ns: I64, ended_ns: I64) -> tuple[I64, I64, int]:
    """Returns dependencies that stand for all realtime ones, and how many vertices they connect.

    The further vertices are the ends of transactions in the order of time. They form a chain: each transaction
    leads to its own end, and the last end before each invocation leads to the transaction that was invoked.
    """
    size = len(invoked_ns)
    ended = np.flatnonzero(ended_ns < INF_NS)
    by_end = ended[np.argsort(ended_ns[ended], kind="stable")]
    chain = np.arange(size, size + len(by_end))
    waits = np.searchsorted(ended_ns[by_end], invoked_ns, side="left")
    later = np.flatnonzero(waits > 0)
    tails = np.concatenate([by_end, chain[:-1], chain[waits[later] - 1]])
    heads = np.concatenate([chain, chain[1:], later])
    return tails, heads, size + len(by_end)


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
