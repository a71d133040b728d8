"""The kernels for transactions agree with exhaustive search, and do not depend on how a history is written down.

`tests/property/transaction_histories.py` runs the same comparison on as many histories as wanted.
"""

import random
from dataclasses import replace

import numpy as np
import pytest

from checkers.kernels.history import INF_NS, NONE
from checkers.kernels.transactions.check import check_list_append, check_log_transactions
from checkers.kernels.transactions.columns import Transactions, transactions_of
from checkers.kernels.transactions.components import components
from checkers.kernels.transactions.cycles import (
    SUFFIXES,
    CycleSearch,
    Step,
    is_possible,
    kind_of,
)
from checkers.kernels.transactions.edges import PROCESS, REALTIME, RW, WR, WW, Edges, Graph
from harness.contracts.checker import CheckerReport
from tests.parts import parts
from tests.property.transaction_histories import KINDS, History, history_of
from tests.property.transaction_oracle import CYCLES, EXTRA, Edge, cycles_by_enumeration

CHUNK = 250
CHECKS = {"lists": check_list_append, "logs": check_log_transactions}
KIND_NAMES = {WW: "ww", WR: "wr", RW: "rw", PROCESS: "process", REALTIME: "realtime"}


@pytest.mark.parametrize("first", parts(range(0, 2000, CHUNK), quick=1))
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_kernel_and_exhaustive_search_agree(kind: str, first: int) -> None:
    differences = KINDS[kind][1]
    for number in range(first, first + CHUNK):
        history = history_of(kind, 2, number)
        found = differences(history)
        assert not found, f"history {number} of seed 2: {found}"


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_random_histories_are_of_all_sorts(kind: str) -> None:
    ids: set[str] = set()
    valid = 0
    for number in range(400):
        found = {f.id for f in CHECKS[kind](transactions_of(history_of(kind, 3, number))).findings}
        ids |= found
        valid += not found
    assert 100 < valid < 300
    assert len(ids) > 15


# --- laws ---


def _shuffled(t: Transactions, rng: random.Random) -> Transactions:
    """Returns the same history with all rows in another order."""
    rows = list(range(t.count))
    ops = list(range(len(t.op_kind)))
    rng.shuffle(rows)
    rng.shuffle(ops)
    row, op = np.array(rows, dtype=np.int64), np.array(ops, dtype=np.int64)
    place = np.empty(t.count, dtype=np.int64)
    place[row] = np.arange(t.count)
    elements = [np.arange(t.op_start[i], t.op_start[i + 1]) for i in ops]
    element = np.concatenate([np.empty(0, dtype=np.int64), *elements])
    return replace(
        t,
        **{
            name: getattr(t, name)[row]
            for name in (
                "id",
                "process",
                "invoked_ns",
                "completed_ns",
                "commit_invoked_ns",
                "ended_event",
                "session",
                "group",
                "is_final",
                "outcome",
            )
        },
        op_transaction=place[t.op_transaction[op]],
        **{
            name: getattr(t, name)[op]
            for name in ("op_number", "op_kind", "op_key", "op_is_known", "op_count")
        },
        element_value=t.element_value[element],
        element_offset=t.element_offset[element],
    )


@pytest.mark.parametrize("first", parts([0, 150], quick=1))
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_order_of_rows_does_not_matter(kind: str, first: int) -> None:
    rng = random.Random(5)
    for number in range(first, first + 150):
        t = transactions_of(history_of(kind, 4, number))
        assert CHECKS[kind](_shuffled(t, rng)) == CHECKS[kind](t)


def _counts(report: CheckerReport) -> list[tuple[str, int]]:
    return sorted((finding.id, finding.count) for finding in report.findings)


def _renamed(history: History, rng: random.Random) -> History:
    """Returns the history with other ids, processes, sessions and times that keep their order."""
    ids = rng.sample(range(10_000), len(history))
    ids.sort()
    by_id = sorted(history, key=lambda t: t.id)
    shift = rng.randrange(10**6)
    return [
        replace(
            t,
            id=number,
            process=None if t.process is None else t.process + shift,
            session=t.session if t.session in (None, -1) else t.session + shift,
            invoked_ns=t.invoked_ns * 7 + shift,
            completed_ns=None if t.completed_ns is None else t.completed_ns * 7 + shift,
            commit_invoked_ns=(
                None if t.commit_invoked_ns is None else t.commit_invoked_ns * 7 + shift
            ),
        )
        for number, t in zip(ids, by_id, strict=True)
    ]


@pytest.mark.parametrize("first", parts([0, 150], quick=1))
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_names_of_transactions_and_the_unit_of_time_do_not_matter(kind: str, first: int) -> None:
    rng = random.Random(6)
    for number in range(first, first + 150):
        history = history_of(kind, 7, number)
        report = CHECKS[kind](transactions_of(history))
        other = CHECKS[kind](transactions_of(_renamed(history, rng)))
        assert _counts(other) == _counts(report)


# --- graphs ---


def _random_graph(rng: random.Random) -> Graph:
    count = rng.randint(2, 6)
    density = rng.choice((0.15, 0.3, 0.5))
    rows = [
        (u, v, kind)
        for u in range(count)
        for v in range(count)
        for kind in (WW, WR, RW)
        if u != v and rng.random() < density / 2
    ]
    span = rng.choice((1, 4, 12))
    invoked = np.array([rng.randrange(12) for _ in range(count)], dtype=np.int64)
    ended = np.array(
        [INF_NS if rng.random() < 0.2 else int(at) + rng.randrange(span) for at in invoked],
        dtype=np.int64,
    )
    # Process dependencies are between transactions that did not overlap.
    rows += [
        (u, v, PROCESS)
        for u in range(count)
        for v in range(count)
        if ended[u] <= invoked[v] and (invoked[u], u) < (invoked[v], v) and rng.random() < 0.3
    ]
    none = np.full(len(rows), NONE, dtype=np.int64)
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return Graph(
        edges=Edges(
            source=columns[:, 0],
            target=columns[:, 1],
            kind=columns[:, 2].astype(np.int8),
            key=none,
            before=none,
            after=none,
        ),
        is_node=np.ones(count, dtype=np.bool_),
        invoked_ns=invoked,
        ended_ns=ended,
    )


def _edges_of(graph: Graph) -> set[Edge]:
    e = graph.edges
    listed = zip(e.source.tolist(), e.target.tolist(), e.kind.tolist(), strict=True)
    edges = {(u, v, KIND_NAMES[kind]) for u, v, kind in listed}
    times = list(zip(graph.invoked_ns.tolist(), graph.ended_ns.tolist(), strict=True))
    return edges | {
        (u, v, "realtime")
        for u, (_, ended) in enumerate(times)
        for v, (invoked, _) in enumerate(times)
        if ended < invoked
    }


@pytest.mark.parametrize("first", parts(range(0, 1000, CHUNK), quick=1))
def test_kinds_of_cycles_agree_with_the_enumeration_of_all_cycles(first: int) -> None:
    for number in range(first, first + CHUNK):
        graph = _random_graph(random.Random(f"graph/{number}"))
        report = CycleSearch(graph, with_circular_reads=True).report()
        expected = cycles_by_enumeration(_edges_of(graph), circular_reads=True)
        assert {cycle.id for cycle in report.cycles} == expected, f"graph {number}"
        assert not report.unknown_reasons
        for cycle in report.cycles:
            assert_is_example(graph, cycle.id, cycle.steps)


def assert_is_example(graph: Graph, identifier: str, steps: tuple[Step, ...]) -> None:
    """Checks that the steps are dependencies of the graph, form a cycle, and are of the kinds in its name."""
    assert all(is_possible(graph, step) for step in steps)
    following = (*steps[1:], steps[0])
    assert all(a.target == b.source for a, b in zip(steps, following, strict=True))
    assert len({step.source for step in steps}) == len(steps)
    base = next(name for name in CYCLES if identifier.startswith(name))
    strength = SUFFIXES.index(identifier.removeprefix(base))
    kinds = [KIND_NAMES[kind_of(graph.edges, step)] for step in steps]
    allowed, needed = CYCLES[base]
    assert set(kinds) <= set(allowed) | set(EXTRA[strength])
    assert needed is None or needed in kinds
    assert base != "G-single" or kinds.count("rw") == 1
    assert base != "G2-item" or kinds.count("rw") > 1


@pytest.mark.parametrize("realtime", [False, True])
def test_components_agree_with_reachability(realtime: bool) -> None:
    for number in range(400):
        rng = random.Random(f"components/{number}")
        graph = _random_graph(rng)
        e = graph.edges
        labels = components(graph, e.source, e.target, realtime=realtime)
        edges = {(u, v) for u, v, kind in _edges_of(graph) if realtime or kind != "realtime"}
        reach = {u: {u} for u in range(graph.count)}
        for _ in range(graph.count):
            for u, v in edges:
                reach[u] |= reach[v]
        for u in range(graph.count):
            group = {v for v in reach[u] if u in reach[v]}
            assert (labels[u] >= 0) == (len(group) > 1)
            assert all(labels[v] == labels[u] for v in group)
            others = set(range(graph.count)) - group
            assert labels[u] < 0 or all(labels[v] != labels[u] for v in others)
