"""Cycles of dependencies: which kinds a history has, and a small example of each.

| name | a cycle of | breaks |
|---|---|---|
| G0 | ww | read uncommitted (PL-1) |
| G1c | ww and at least one wr | read committed (PL-2) |
| G-single | ww, wr and exactly one rw | snapshot isolation, consistent view (PL-2+) |
| G2-item | ww, wr and at least two rw | repeatable read, serializability (PL-3); see below |
| circular-reads | wr only | what a log with transactions promises; see `log` |

Snapshot isolation forbids a G2-item in which no two rw follow each other (`breaks_snapshots`).

With the suffix `-process` a cycle also needs an order inside a process, with `-realtime` an order in time. A
suffixed kind is searched only if the stronger one was not found; G2-item only in components without a G-single.

Whether a kind exists follows from strongly connected components, which takes linear time. Only two things are
searched: a return path for each anti-dependency between two components (G-single), and the smallest example. Both
have a budget counted in steps, never in seconds. Where the first one ends early, the cycle is reported as G2-item,
which it is in any case for the levels that forbid it, and a reason says what is unknown.

Source:
    Adya, Weak Consistency (1999), on phenomena; Kingsbury and Alvaro, Elle (2020).
"""

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from checkers.kernels.history import I64, INF_NS
from checkers.kernels.transactions.components import components
from checkers.kernels.transactions.edges import PROCESS, REALTIME, RW, WR, WW, Edges, Graph

PLAIN, IN_PROCESS, IN_REAL_TIME = 0, 1, 2
"""How strong an order between transactions a cycle may use."""

SUFFIXES = ("", "-process", "-realtime")

SEARCH_STEPS_MAX = 5_000_000
"""Dependencies that the search for return paths may follow, per kind of cycle; a few seconds."""
EXAMPLE_STEPS_MAX = 1_000_000
"""Dependencies that the search for a small example may follow; the first example is found in any case."""


@dataclass(frozen=True, slots=True)
class Step:
    """One dependency of a cycle; `edge` is its row, -1 for a realtime dependency."""

    source: int
    target: int
    edge: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """A kind of cycle that a history has.

    Attributes:
        id: The kind, with its suffix.
        count: How many components have such a cycle.
        steps: A small example.
        is_smallest: Whether no smaller example exists.
    """

    id: str
    count: int
    steps: tuple[Step, ...]
    is_smallest: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleReport:
    """All kinds of cycles of a history.

    Attributes:
        cycles: The strongest first.
        transactions: How many transactions are in cycles of any kind.
        unknown_reasons: What could not be searched, one sentence each.
    """

    cycles: tuple[Cycle, ...]
    transactions: int
    unknown_reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """The dependencies of some kinds inside one kind of component.

    Attributes:
        labels: Component of each transaction, -1 for none.
        rows: Dependencies with both ends in one component.
    """

    labels: I64
    rows: I64


class CycleSearch:
    """Finds the kinds of cycles of one graph.

    Args:
        graph: The dependencies.
        with_circular_reads: Whether cycles of wr only are a kind of their own.
        search_steps_max: See `SEARCH_STEPS_MAX`.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        with_circular_reads: bool = False,
        search_steps_max: int = SEARCH_STEPS_MAX,
    ) -> None:
        self._graph = graph
        self._edges = graph.edges
        self._with_circular_reads = with_circular_reads
        self._steps_max = search_steps_max
        self._parts: dict[tuple[frozenset[int], int], _Part] = {}
        self._undecided: set[int] = set()
        # Every cycle lies in a component of all dependencies together, and a valid history has none.
        source, target = graph.edges.source, graph.edges.target
        self._labels = components(graph, source, target, realtime=True)

    def report(self) -> CycleReport:
        """Returns what was found."""
        cycles: list[Cycle] = []
        count = int(self._labels.max(initial=-1)) + 1
        if count:
            searches = [
                lambda strength: self._with_edge("G0", (WW,), WW, strength),
                lambda strength: self._with_edge("G1c", (WW, WR), WR, strength),
                self._g_single,
                self._g2_item,
            ]
            if self._with_circular_reads:
                searches.append(
                    lambda strength: self._with_edge("circular-reads", (WR,), WR, strength)
                )
            for search in searches:
                found = (search(strength) for strength in (PLAIN, IN_PROCESS, IN_REAL_TIME))
                cycles += [cycle for cycle in [next((c for c in found if c), None)] if cycle]
        reasons: tuple[str, ...] = ()
        if self._undecided:
            reasons = (
                f"the search for cycles with exactly one anti-dependency (G-single) ended after {self._steps_max}"
                " steps; what was not searched is reported as G2-item",
            )
        return CycleReport(
            cycles=tuple(cycles),
            transactions=int((self._labels >= 0).sum()),
            unknown_reasons=reasons,
        )

    def breaks_snapshots(self, strength: int) -> bool:
        """Returns whether a cycle has no two anti-dependencies that follow each other.

        Snapshot isolation allows a cycle only if two follow each other. Every transaction is there twice: as it is
        reached by an anti-dependency, after which no further one may follow, and as it is reached otherwise.

        Source:
            Cerone and Gotsman, Analysing Snapshot Isolation (2018): ((SO + WR + WW) ; RW?) has no cycle.
        """
        rows = self._rows(frozenset((WW, WR, RW)), strength)
        rows = rows[self._labels[self._edges.source[rows]] >= 0]
        count, graph = self._graph.count, self._graph
        is_rw = self._edges.kind[rows] == RW
        source, target = self._edges.source[rows], self._edges.target[rows]
        twice = Graph(
            edges=self._edges,
            is_node=np.tile(graph.is_node, 2),
            invoked_ns=np.tile(graph.invoked_ns, 2),
            ended_ns=np.tile(graph.ended_ns, 2),
        )
        tails = np.concatenate([source, source[~is_rw] + count])
        heads = np.concatenate([target + count * is_rw, target[~is_rw]])
        labels = components(twice, tails, heads, realtime=strength == IN_REAL_TIME)
        return bool((labels >= 0).any())

    def _part(self, kinds: frozenset[int], strength: int) -> _Part:
        """Returns the components that dependencies of some kinds make."""
        if (kinds, strength) not in self._parts:
            rows = self._rows(kinds, strength)
            inside = (
                self._labels[self._edges.source[rows]] == self._labels[self._edges.target[rows]]
            )
            rows = rows[inside & (self._labels[self._edges.source[rows]] >= 0)]
            source, target = self._edges.source[rows], self._edges.target[rows]
            labels = self._labels
            if not self._is_whole(kinds, strength):
                realtime = strength == IN_REAL_TIME
                labels = components(self._graph, source, target, realtime=realtime)
            inside = (labels[source] >= 0) & (labels[source] == labels[target])
            self._parts[kinds, strength] = _Part(labels=labels, rows=rows[inside])
        return self._parts[kinds, strength]

    def _is_whole(self, kinds: frozenset[int], strength: int) -> bool:
        """Returns whether fewer dependencies make the same components as all of them; these then make them too."""
        return any(
            known <= kinds and weaker <= strength and np.array_equal(part.labels, self._labels)
            for (known, weaker), part in self._parts.items()
        )

    def _rows(self, kinds: frozenset[int], strength: int) -> I64:
        wanted = sorted(kinds | ({PROCESS} if strength else set()))
        return np.flatnonzero(np.isin(self._edges.kind, wanted))

    def _with_edge(
        self, name: str, kinds: tuple[int, ...], needed: int, strength: int
    ) -> Cycle | None:
        """Returns cycles of some kinds that have at least one dependency of the needed kind."""
        part = self._part(frozenset(kinds), strength)
        rows = part.rows[self._edges.kind[part.rows] == needed]
        if not len(rows):
            return None
        hit = np.unique(part.labels[self._edges.source[rows]])
        return self._example(name + SUFFIXES[strength], len(hit), part, part, rows, strength)

    def _g_single(self, strength: int) -> Cycle | None:
        """Returns cycles with exactly one anti-dependency."""
        whole = self._part(frozenset((WW, WR, RW)), strength)
        starts = self._returning(strength)
        if not len(starts):
            return None
        hit = np.unique(whole.labels[self._edges.source[starts]])
        back = self._back(whole, strength)
        return self._example(
            "G-single" + SUFFIXES[strength], len(hit), whole, back, starts, strength
        )

    def _g2_item(self, strength: int) -> Cycle | None:
        """Returns cycles with anti-dependencies in components that have none with exactly one."""
        whole = self._part(frozenset((WW, WR, RW)), strength)
        rows = whole.rows[self._edges.kind[whole.rows] == RW]
        single = np.unique(whole.labels[self._edges.source[self._returning(strength)]])
        rows = rows[~np.isin(whole.labels[self._edges.source[rows]], single)]
        if not len(rows):
            return None
        hit = np.unique(whole.labels[self._edges.source[rows]])
        return self._example("G2-item" + SUFFIXES[strength], len(hit), whole, whole, rows, strength)

    def _back(self, whole: _Part, strength: int) -> _Part:
        """Returns the dependencies of a component without its anti-dependencies."""
        return _Part(labels=whole.labels, rows=whole.rows[self._edges.kind[whole.rows] != RW])

    def _returning(self, strength: int) -> I64:
        """Returns anti-dependencies with a way back that has no further one, if any at least one per component.

        An anti-dependency inside a component of ww and wr has a way back. The others are searched, one after
        the other, until one is found or the budget is used.
        """
        whole = self._part(frozenset((WW, WR, RW)), strength)
        inner = self._part(frozenset((WW, WR)), strength)
        rows = whole.rows[self._edges.kind[whole.rows] == RW]
        source, target = self._edges.source[rows], self._edges.target[rows]
        is_inside = (inner.labels[source] >= 0) & (inner.labels[source] == inner.labels[target])
        found: I64 = rows[is_inside]
        done = set(np.unique(whole.labels[self._edges.source[found]]).tolist())
        rest = rows[~np.isin(whole.labels[source], sorted(done))]
        if not len(rest):
            return found
        walk = _Walk(self._graph, self._back(whole, strength), strength)
        more: list[int] = []
        budget = self._steps_max
        for row in rest.tolist():
            component = int(whole.labels[self._edges.source[row]])
            if component in done:
                continue
            if budget <= 0:
                self._undecided.add(component)
                break
            start, end = int(self._edges.target[row]), int(self._edges.source[row])
            path = walk.shortest(start, end, self._graph.count)
            budget -= walk.steps
            if path is not None:
                done.add(component)
                more.append(row)
        result: I64 = np.append(found, np.array(more, dtype=np.int64))
        return result

    def _example(
        self, name: str, count: int, whole: _Part, back: _Part, starts: I64, strength: int
    ) -> Cycle:
        """Returns the smallest cycle that begins with one of some dependencies and returns through others."""
        sizes = np.bincount(whole.labels[whole.labels >= 0])
        # Small components have small cycles, and are cheap to search.
        order = np.lexsort((starts, sizes[whole.labels[self._edges.source[starts]]]))
        walk = _Walk(self._graph, back, strength)
        best: tuple[Step, ...] = ()
        is_smallest = True
        steps = 0
        for row in starts[order].tolist():
            if best and (steps > EXAMPLE_STEPS_MAX or len(best) == 2):
                is_smallest = len(best) == 2
                break
            start, end = int(self._edges.target[row]), int(self._edges.source[row])
            longest = len(best) - 2 if best else self._graph.count
            path = walk.shortest(start, end, longest)
            steps += walk.steps
            if path is not None:
                best = (Step(end, start, row), *path)
        assert best, f"{name}: a component without a cycle"
        return Cycle(id=name, count=count, steps=best, is_smallest=is_smallest)


class _Walk:
    """Shortest paths inside components, by breadth-first search.

    Args:
        graph: Gives the times.
        part: The dependencies to follow, and the components that a path must not leave.
        strength: Whether realtime dependencies are followed too.
    """

    def __init__(self, graph: Graph, part: _Part, strength: int) -> None:
        edges = graph.edges
        rows = part.rows[np.argsort(edges.source[part.rows], kind="stable")]
        members = np.flatnonzero(part.labels >= 0)
        self._row_of = dict(zip(members.tolist(), range(len(members)), strict=True))
        source = edges.source[rows]
        self._starts: list[int] = np.searchsorted(source, members, side="left").tolist()
        self._ends: list[int] = np.searchsorted(source, members, side="right").tolist()
        self._rows: list[int] = rows.tolist()
        self._targets: list[int] = edges.target[rows].tolist()
        self._is_realtime = strength == IN_REAL_TIME
        self._labels = part.labels
        self._by_time: dict[int, tuple[list[int], list[int], dict[int, int]]] = {}
        self._graph = graph
        self.steps = 0

    def shortest(self, start: int, end: int, longest: int) -> tuple[Step, ...] | None:
        """Returns the shortest path from one transaction to another, None if it needs more steps than `longest`.

        Sets `steps` to the number of dependencies that it followed.
        """
        self.steps = 1
        if longest < 1:
            return None
        targets, rows = self._targets, self._rows
        by_time, invoked_ns, ended_ns = self._times(start)
        # From where to each transaction, and through which dependency.
        reached: dict[int, tuple[int, int]] = {start: (-1, -1)}
        last = len(by_time)
        frontier = [start]
        for _ in range(longest):
            following: list[int] = []
            for vertex in frontier:
                row = self._row_of[vertex]
                begin, limit = self._starts[row], self._ends[row]
                self.steps += limit - begin
                for place in range(begin, limit):
                    target = targets[place]
                    if target not in reached:
                        reached[target] = (vertex, rows[place])
                        following.append(target)
                if last:
                    # All that was invoked late enough is reached at once, and is never considered again.
                    first = bisect_right(invoked_ns, ended_ns[vertex])
                    self.steps += max(last - first, 0)
                    for target in by_time[first:last]:
                        if target not in reached:
                            reached[target] = (vertex, -1)
                            following.append(target)
                    last = min(last, first)
                if end in reached:
                    return _path(reached, end)
            frontier = following
            if not frontier:
                return None
        return None

    def _times(self, vertex: int) -> tuple[list[int], list[int], dict[int, int]]:
        """Returns the component's transactions by invocation, their times, and when each one ended.

        All are empty if realtime dependencies are not followed.
        """
        if not self._is_realtime:
            return [], [], {}
        label = int(self._labels[vertex])
        if label not in self._by_time:
            members = np.flatnonzero(self._labels == label)
            order = members[np.argsort(self._graph.invoked_ns[members], kind="stable")]
            self._by_time[label] = (
                order.tolist(),
                self._graph.invoked_ns[order].tolist(),
                dict(zip(order.tolist(), self._graph.ended_ns[order].tolist(), strict=True)),
            )
        return self._by_time[label]


def _path(reached: dict[int, tuple[int, int]], end: int) -> tuple[Step, ...]:
    steps: list[Step] = []
    source, edge = reached[end]
    while source >= 0:
        steps.append(Step(source, end, edge))
        end = source
        source, edge = reached[end]
    return tuple(reversed(steps))


def kind_of(edges: Edges, step: Step) -> int:
    """Returns the kind of the dependency of one step."""
    return REALTIME if step.edge < 0 else int(edges.kind[step.edge])


def is_possible(graph: Graph, step: Step) -> bool:
    """Returns whether a step is a dependency of the graph; every step of an example must be."""
    if step.edge < 0:
        ended_ns = int(graph.ended_ns[step.source])
        return ended_ns < INF_NS and ended_ns < int(graph.invoked_ns[step.target])
    edges = graph.edges
    return (
        int(edges.source[step.edge]) == step.source and int(edges.target[step.edge]) == step.target
    )
