"""Cycles of dependencies: the search for them, its limits, and the example that it names."""

from dataclasses import replace

import numpy as np
import pytest

from checkers.kernels.history import INF_NS, NONE
from checkers.kernels.transactions import cycles
from checkers.kernels.transactions.check import check_list_append
from checkers.kernels.transactions.columns import Append, Read, Transaction, transactions_of
from checkers.kernels.transactions.cycles import CycleSearch, Step, is_possible
from checkers.kernels.transactions.edges import RW, WR, WW, Edges, Graph


def _graph(edges: list[tuple[int, int, int]], count: int) -> Graph:
    columns = np.array(edges, dtype=np.int64).reshape(-1, 3)
    none = np.full(len(edges), NONE, dtype=np.int64)
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
        invoked_ns=np.zeros(count, dtype=np.int64),
        ended_ns=np.full(count, INF_NS, dtype=np.int64),
    )


def test_a_search_that_is_too_long_is_unknown_and_still_breaks_serializability() -> None:
    # 0 -rw-> 1 -ww-> 2 -rw-> 3 -ww-> 0, and 2 -ww-> 0: the first anti-dependency has a way back without a second.
    graph = _graph([(2, 3, RW), (3, 0, WW), (0, 1, RW), (1, 2, WW), (2, 0, WW)], 4)
    whole = CycleSearch(graph).report()
    assert [cycle.id for cycle in whole.cycles] == ["G-single"]
    assert whole.unknown_reasons == ()
    short = CycleSearch(graph, search_steps_max=0).report()
    assert [cycle.id for cycle in short.cycles] == ["G2-item"]
    assert "ended after 0 steps" in short.unknown_reasons[0]


def _timed(graph: Graph, times: list[tuple[int, int]]) -> Graph:
    """Returns the graph with times, as (invoked, ended); an end of 0 stands for an unknown one."""
    return replace(
        graph,
        invoked_ns=np.array([invoked for invoked, _ in times], dtype=np.int64),
        ended_ns=np.array([ended or INF_NS for _, ended in times], dtype=np.int64),
    )


IN_TURN = _graph([(0, 1, RW), (1, 0, WW), (2, 3, RW), (3, 2, WW)], 4)
"""Two cycles; the search for each takes two steps."""
BY_TIME = _timed(
    _graph([(0, 1, RW), (1, 2, WW), (3, 4, RW)], 5),
    [(10, 0), (0, 0), (0, 5), (30, 0), (20, 25)],
)
"""Two cycles; 2 and 4 were complete before 0 and 3 began. The search for the first cycle takes three steps."""


@pytest.mark.parametrize(
    ("graph", "steps_max", "ids"),
    [
        (_graph([(0, 1, WW), (1, 0, WW), (0, 1, RW)], 2), 0, ["G0", "G-single"]),
        (_graph([(0, 1, RW), (1, 0, WW)], 2), 1, ["G-single"]),
        (IN_TURN, 3, ["G-single"]),
        (IN_TURN, 2, ["G-single", "G2-item"]),
        (BY_TIME, 4, ["G-single-realtime"]),
        (BY_TIME, 3, ["G-single-realtime", "G2-item-realtime"]),
    ],
    ids=["no search", "one search", "enough", "too short", "enough in time", "too short in time"],
)
def test_a_search_goes_on_as_long_as_a_step_is_left(
    graph: Graph, steps_max: int, ids: list[str]
) -> None:
    report = CycleSearch(graph, search_steps_max=steps_max).report()
    assert [cycle.id for cycle in report.cycles] == ids
    assert bool(report.unknown_reasons) == (len(ids) > 1 and steps_max > 0)


FOUR_WITH_THREE = [(0, 1, WW), (1, 2, WW), (2, 3, WW), (3, 0, WW), (3, 1, WW)]
"""A cycle of four with one of three; the search from the first dependency takes five steps."""


@pytest.mark.parametrize(
    ("edges", "count", "size"),
    [
        ([(n, (n + 1) % 6, WW) for n in range(6)], 6, 6),
        ([*((n, (n + 1) % 6, WW) for n in range(6)), (2, 0, WW)], 6, 3),
        (FOUR_WITH_THREE, 4, 3),
        ([(0, 1, WW), (1, 2, WW), (2, 0, WW), (2, 1, WW)], 3, 2),
    ],
)
def test_the_example_is_the_smallest_cycle(
    edges: list[tuple[int, int, int]], count: int, size: int
) -> None:
    (cycle,) = CycleSearch(_graph(edges, count)).report().cycles
    assert len(cycle.steps) == size
    assert cycle.is_smallest


@pytest.mark.parametrize(("steps_max", "size"), [(5, 3), (4, 4)])
def test_an_example_that_took_too_long_may_not_be_the_smallest(
    monkeypatch: pytest.MonkeyPatch, steps_max: int, size: int
) -> None:
    monkeypatch.setattr(cycles, "EXAMPLE_STEPS_MAX", steps_max)
    (cycle,) = CycleSearch(_graph(FOUR_WITH_THREE, 4)).report().cycles
    assert (len(cycle.steps), cycle.is_smallest) == (size, False)


@pytest.mark.parametrize(
    ("graph", "steps"),
    [
        (_graph([(0, 1, WW), (1, 0, WR)], 2), (Step(1, 0, 1), Step(0, 1, 0))),
        (_timed(_graph([(1, 0, WW)], 2), [(0, 1), (2, 0)]), (Step(1, 0, 0), Step(0, 1, -1))),
    ],
    ids=["values", "time"],
)
def test_a_cycle_names_its_dependencies(graph: Graph, steps: tuple[Step, ...]) -> None:
    (cycle,) = CycleSearch(graph).report().cycles
    assert cycle.steps == steps


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (Step(0, 1, 0), True),
        (Step(2, 1, 0), False),
        (Step(0, 2, 0), False),
        (Step(2, 1, -1), True),
        (Step(2, 0, -1), False),
        (Step(0, 1, -1), False),
    ],
)
def test_a_step_is_a_dependency_of_the_graph_or_follows_from_two_times(
    step: Step, expected: bool
) -> None:
    graph = _timed(_graph([(0, 1, WW)], 3), [(5, 0), (6, 0), (0, 5)])
    assert is_possible(graph, step) == expected


def test_what_leads_from_one_cycle_to_another_one_is_in_none() -> None:
    """T1 and T2 are a cycle, and so are T4 and T5; what T4 wrote reaches T1 through T3."""
    history = [
        Transaction(id=1, ops=(Append("a", 1), Read("b", (2,)), Read("c", (3,)))),
        Transaction(id=2, ops=(Append("b", 2), Read("a", (1,)))),
        Transaction(id=3, ops=(Append("c", 3), Read("d", (4,)))),
        Transaction(id=4, ops=(Append("d", 4), Read("e", (5,)))),
        Transaction(id=5, ops=(Append("e", 5), Read("d", (4,)))),
    ]
    report = check_list_append(transactions_of(history))
    assert [(found.id, found.count) for found in report.findings] == [("G1c", 2)]
    assert report.coverage["transactions_in_cycles"] == 4


def test_all_that_was_complete_before_a_transaction_comes_before_it() -> None:
    """T2 wrote first to both lists, and was invoked after T1 and T3 had ended at different times."""
    history = [
        Transaction(id=1, ops=(Append("x", 1),), completed_ns=5),
        Transaction(id=2, ops=(Append("x", 2), Append("y", 2)), invoked_ns=10, completed_ns=20),
        Transaction(id=3, ops=(Append("y", 3),), completed_ns=7),
        Transaction(id=4, ops=(Read("x", (2, 1)), Read("y", (2, 3)))),
    ]
    report = check_list_append(transactions_of(history))
    assert [found.id for found in report.findings] == ["G0-realtime"]
    assert report.coverage["transactions_in_cycles"] == 3


def test_a_long_chain_of_stale_reads_is_decided_too() -> None:
    """Every transaction reads what the one invoked after it wrote, so times help nothing."""
    count = 300
    history = [
        Transaction(
            id=n,
            ops=(Append(n, 1), Read(n + 1, (1,))) if n < count else (Append(n, 1),),
            invoked_ns=n * 10,
            completed_ns=n * 10 + 100_000,
        )
        for n in range(count + 1)
    ]
    assert check_list_append(transactions_of(history)).findings == ()
    last = replace(history[-1], ops=(Append(count, 1), Read(0, (1,))))
    report = check_list_append(transactions_of([*history[:-1], last]))
    assert [f.id for f in report.findings] == ["G1c"]
    assert len(report.findings[0].details["cycle"]) == count + 1
    assert len(report.findings[0].witnesses) == 3
