"""Small histories of transactions judged by definitions: every order is tried, every cycle is listed.

Nothing here is shared with the kernels but the input values. A transaction is a Python value, an order is a
permutation that is executed, and cycles are enumerated instead of searched.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, combinations, permutations

from checkers.kernels.transactions.columns import Append, Read, Transaction

History = list[Transaction]
Edge = tuple[int, int, str]
"""Source, target and kind, by id of the transactions."""

NEVER = 10**9


def is_committed(transaction: Transaction) -> bool:
    return transaction.outcome in ("committed", "ok")


def is_aborted(transaction: Transaction) -> bool:
    return transaction.outcome in ("aborted", "fail")


def process_of(transaction: Transaction) -> int:
    return transaction.id if transaction.process is None else transaction.process


def known_reads(history: History) -> list[tuple[Transaction, Read]]:
    """Returns the reads that prove something."""
    return [
        (transaction, op)
        for transaction in history
        if is_committed(transaction)
        for op in transaction.ops
        if isinstance(op, Read) and op.values is not None
    ]


def proven(history: History) -> History:
    """Returns the transactions that are known to have committed."""
    seen = {(op.key, value) for _, op in known_reads(history) for value in op.values or ()}
    return [
        t
        for t in history
        if is_committed(t)
        or (
            not is_aborted(t)
            and any(isinstance(op, Append) and (op.key, op.value) in seen for op in t.ops)
        )
    ]


# --- serializability by execution ---


def comes_before(u: Transaction, v: Transaction, strength: int) -> bool:
    """Returns whether an order must put one transaction before another one: 0 never, 1 in a process, 2 in time."""
    if not is_committed(u) or u.completed_ns is None or u.id == v.id:
        return False
    # Two of one process that begin and end at one and the same time are in an order that is not known.
    is_at_once = u.invoked_ns == u.completed_ns == v.invoked_ns == v.completed_ns
    in_process = process_of(u) == process_of(v) and (
        u.completed_ns <= v.invoked_ns and not is_at_once
    )
    return (strength >= 1 and in_process) or (strength >= 2 and u.completed_ns < v.invoked_ns)


def is_serializable(history: History, strength: int) -> bool:
    """Returns whether the committed transactions, and some of unknown outcome, can run one after the other.

    Args:
        history: The history.
        strength: Which order of transactions must be kept; see `comes_before`.
    """
    surely = [t for t in history if is_committed(t)]
    maybe = [t for t in history if not is_committed(t) and not is_aborted(t)]
    for some in _subsets(maybe):
        for order in permutations([*surely, *some]):
            fits = not any(
                comes_before(later, earlier, strength)
                for at, earlier in enumerate(order)
                for later in order[at + 1 :]
            )
            if fits and _runs(order):
                return True
    return False


def _subsets(items: History) -> Iterator[tuple[Transaction, ...]]:
    return chain.from_iterable(combinations(items, size) for size in range(len(items) + 1))


def _runs(order: Iterable[Transaction]) -> bool:
    lists: dict[int | str, tuple[int | str, ...]] = {}
    for transaction in order:
        for op in transaction.ops:
            if isinstance(op, Append):
                lists[op.key] = (*lists.get(op.key, ()), op.value)
            elif (
                isinstance(op, Read)
                and is_committed(transaction)
                and op.values is not None
                and lists.get(op.key, ()) != op.values
            ):
                return False
    return True


# --- weaker levels by definition ---


@dataclass(frozen=True, slots=True)
class Versions:
    """What the longest reads show.

    Attributes:
        order: Per key that was read, its values in order.
        writer: Per key and value, the transaction that wrote it.
        is_broken: Whether reads contradict each other, repeat a value, or return one that nobody wrote.
    """

    order: dict[int | str, tuple[int | str, ...]]
    writer: dict[tuple[int | str, int | str], Transaction]
    is_broken: bool


def versions_of(history: History) -> Versions:
    writer = {(op.key, op.value): t for t in history for op in t.ops if isinstance(op, Append)}
    order: dict[int | str, tuple[int | str, ...]] = {}
    reads = [(op.key, op.values or ()) for _, op in known_reads(history)]
    for key, values in reads:
        if key not in order or len(values) > len(order[key]):
            order[key] = values
    is_broken = any(
        order[key][: len(values)] != values
        or len(set(values)) < len(values)
        or any((key, value) not in writer for value in values)
        for key, values in reads
    )
    return Versions(order=order, writer=writer, is_broken=is_broken)


def places(history: History, versions: Versions) -> dict[tuple[int | str, int | str], int]:
    """Returns the place of every committed write of a key that was read; NEVER if no read returned it."""
    found = {}
    for transaction in proven(history):
        for op in transaction.ops:
            if isinstance(op, Append) and op.key in versions.order:
                order = versions.order[op.key]
                found[op.key, op.value] = order.index(op.value) if op.value in order else NEVER
    return found


def is_read_committed(history: History, *, with_reads: bool) -> bool:
    """Returns whether some order of whole transactions fits the order of writes, and of writes before their reads.

    Args:
        history: A history whose reads do not contradict each other.
        with_reads: False for read uncommitted, which orders writes only.
    """
    versions = versions_of(history)
    place = places(history, versions)
    needed = set()
    for (key, value), at in place.items():
        for (other_key, other), later in place.items():
            if key == other_key and at < later:
                needed.add((versions.writer[key, value].id, versions.writer[key, other].id))
    if with_reads:
        for reader, op in known_reads(history):
            values = op.values or ()
            for value in values:
                writer = versions.writer[op.key, value]
                if is_aborted(writer):
                    return False
                needed.add((writer.id, reader.id))
            if values:
                last = versions.writer[op.key, values[-1]]
                own = [x.value for x in last.ops if isinstance(x, Append) and x.key == op.key]
                if last.id != reader.id and own[-1] != values[-1]:
                    return False
    # Read uncommitted, a read does not show that its writer committed.
    ids = [t.id for t in proven(history) if with_reads or is_committed(t)]
    needed = {(u, v) for u, v in needed if u != v and {u, v} <= {*ids}}
    return any(
        all(order.index(u) < order.index(v) for u, v in needed) for order in permutations(ids)
    )


# --- every cycle by enumeration ---


def list_edges_by_definition(history: History) -> set[Edge]:
    """Returns ww, wr and rw between transactions, every pair of versions considered."""
    versions = versions_of(history)
    place = places(history, versions)
    nodes = {transaction.id for transaction in proven(history)}
    edges: set[Edge] = set()
    for (key, value), at in place.items():
        for (other_key, other), later in place.items():
            if key == other_key and at < later:
                edges.add((versions.writer[key, value].id, versions.writer[key, other].id, "ww"))
    for reader, op in known_reads(history):
        values = op.values or ()
        writers = [versions.writer[op.key, value].id for value in values]
        writers = [writer for writer in writers if writer in nodes]
        own_last = bool(writers) and writers[-1] == reader.id
        # A transaction that read its own version depends on the earlier ones by ww.
        for writer in writers if not own_last else ():
            edges.add((writer, reader.id, "wr"))
        for (key, value), at in place.items():
            # What a transaction wrote before it read is part of the version, and ww orders it.
            if key == op.key and at >= len(values) and not own_last:
                following = [
                    x for (k, x), place_ in place.items() if k == key and len(values) <= place_ < at
                ]
                if not any(versions.writer[key, x].id == reader.id for x in following):
                    edges.add((reader.id, versions.writer[key, value].id, "rw"))
    return {(u, v, kind) for u, v, kind in edges if u != v and u in nodes and v in nodes}


def order_edges(history: History) -> set[Edge]:
    """Returns process and realtime dependencies of the committed transactions."""
    return order_edges_between(proven(history))


def order_edges_between(nodes: History) -> set[Edge]:
    """Returns process and realtime dependencies of some transactions."""
    edges = {(u.id, v.id, "process") for u in nodes for v in nodes if comes_before(u, v, 1)}
    later = {(u.id, v.id, "realtime") for u in nodes for v in nodes if comes_before(u, v, 2)}
    return edges | {(u, v, kind) for u, v, kind in later if (u, v, "process") not in edges}


CYCLES = {
    "G0": ({"ww"}, None),
    "G1c": ({"ww", "wr"}, "wr"),
    "G-single": ({"ww", "wr", "rw"}, "rw"),
    "G2-item": ({"ww", "wr", "rw"}, "rw"),
    "circular-reads": ({"wr"}, "wr"),
}
EXTRA = ({}, {"process"}, {"process", "realtime"})
SUFFIXES = ("", "-process", "-realtime")


def cycles_by_enumeration(edges: set[Edge], *, circular_reads: bool) -> set[str]:
    """Returns the kinds of cycles of a small graph: of each the strongest form."""
    found = set()
    for name, (kinds, _) in CYCLES.items():
        if name == "circular-reads" and not circular_reads:
            continue
        for strength in range(3):
            allowed = [edge for edge in edges if edge[2] in kinds or edge[2] in EXTRA[strength]]
            if _has(name, allowed):
                found.add(name + SUFFIXES[strength])
                break
    return found


def _has(name: str, edges: list[Edge]) -> bool:
    needed = CYCLES[name][1]
    cycles = list(simple_cycles(edges))
    if name in ("G0", "G1c", "circular-reads"):
        return any(
            needed is None or any(kind == needed for _, _, kind in cycle) for cycle in cycles
        )
    singles = [c for c in cycles if sum(kind == "rw" for _, _, kind in c) == 1]
    if name == "G-single":
        return bool(singles)
    group = _groups(edges)
    with_single = {group[cycle[0][0]] for cycle in singles}
    return any(
        any(kind == "rw" for _, _, kind in cycle) and group[cycle[0][0]] not in with_single
        for cycle in cycles
    )


def simple_cycles(edges: list[Edge]) -> Iterator[list[Edge]]:
    """Yields every cycle without repeated vertices, once per choice of kinds."""
    outgoing: dict[int, list[Edge]] = {}
    for edge in sorted(edges):
        outgoing.setdefault(edge[0], []).append(edge)

    def extend(path: list[Edge], visited: set[int]) -> Iterator[list[Edge]]:
        first, last = path[0][0], path[-1][1]
        if last == first:
            yield path
            return
        for edge in outgoing.get(last, ()):
            if edge[1] == first or (edge[1] not in visited and edge[1] > first):
                yield from extend([*path, edge], visited | {edge[1]})

    for edge in sorted(edges):
        if edge[1] > edge[0]:
            yield from extend([edge], {edge[0], edge[1]})


def _groups(edges: list[Edge]) -> dict[int, int]:
    """Returns the smallest vertex that each vertex reaches and is reached from."""
    vertices = {vertex for u, v, _ in edges for vertex in (u, v)}
    reach = {vertex: {vertex} for vertex in vertices}
    for _ in vertices:
        for u, v, _kind in edges:
            reach[u] |= reach[v]
    return {u: min(v for v in reach[u] if u in reach[v]) for u in vertices}
