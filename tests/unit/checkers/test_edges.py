"""Which transaction of a process comes directly after which."""

import random
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from checkers.kernels.history import INF_NS
from checkers.kernels.transactions.columns import COMMITTED, UNKNOWN
from checkers.kernels.transactions.edges import _process_edges

Edges = set[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Row:
    """One transaction."""

    process: int
    begin: int
    end: int
    is_committed: bool = True


def edges_in(rows: list[Row], is_node: list[bool] | None = None) -> Edges:
    transactions: Any = SimpleNamespace(
        process=np.array([row.process for row in rows], dtype=np.int64),
        invoked_ns=np.array([row.begin for row in rows], dtype=np.int64),
        completed_ns=np.array([row.end for row in rows], dtype=np.int64),
        outcome=np.array([COMMITTED if row.is_committed else UNKNOWN for row in rows]),
        count=len(rows),
    )
    nodes = np.array([True] * len(rows) if is_node is None else is_node, dtype=np.bool_)
    found = _process_edges(cast(Any, transactions), nodes)
    pairs = list(zip(found.source.tolist(), found.target.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    return set(pairs)


def by_definition(rows: list[Row], is_node: list[bool]) -> Edges:
    """Each follows the last ones that ended when it began; at one instant the order is not known."""
    found: Edges = set()
    for target, row in enumerate(rows):
        before = [
            source
            for source, one in enumerate(rows)
            if source != target and is_node[source] and is_node[target] and one.is_committed
            if one.process == row.process and one.end <= row.begin
            if not (one.begin == one.end == row.begin == row.end)
        ]
        last = max(((rows[source].begin, rows[source].end) for source in before), default=None)
        found |= {
            (source, target) for source in before if (rows[source].begin, rows[source].end) == last
        }
    return found


def history(rng: random.Random) -> list[Row]:
    rows = []
    for process in range(rng.randint(1, 3)):
        now = rng.randrange(2)
        for _ in range(rng.randint(0, 5)):
            end = now + rng.choice((0, 0, 1, 2))
            is_committed = rng.random() < 0.9
            rows.append(Row(process, now, end if is_committed else INF_NS, is_committed))
            if not is_committed:
                break
            now = end + rng.choice((0, 0, 1))
    rng.shuffle(rows)
    return rows


def test_a_transaction_follows_the_last_ones_that_its_process_completed() -> None:
    sizes = set()
    for seed in range(500):
        rng = random.Random(seed)
        rows = history(rng)
        is_node = [rng.random() < 0.85 for _ in rows]
        expected = by_definition(rows, is_node)
        assert edges_in(rows, is_node) == expected, f"seed {seed}: {rows}"
        sizes |= {sum(target == one for _, target in expected) for one in range(len(rows))}
    assert sizes >= {0, 1, 2, 3}


def test_no_order_is_made_up_at_one_instant() -> None:
    rows = [Row(1, 0, 3), Row(1, 3, 3), Row(1, 3, 3), Row(1, 3, 4)]
    assert edges_in(rows) == {(0, 1), (0, 2), (1, 3), (2, 3)}
