"""Anomalies of small histories of transactions on logs, each straight from its definition, by loops over pairs."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from checkers.kernels.transactions.columns import Append, CommitOffset, Poll, Transaction
from tests.property.transaction_oracle import (
    Edge,
    History,
    cycles_by_enumeration,
    is_aborted,
    is_committed,
    order_edges_between,
    process_of,
)

Key = int | str


@dataclass(frozen=True, slots=True)
class Expected:
    """What a history has.

    Attributes:
        counts: How often, by anomaly, cycles excepted.
        cycles: Kinds of cycles.
    """

    counts: dict[str, int]
    cycles: set[str]


@dataclass(frozen=True, slots=True)
class Record:
    """One record that a poll returned."""

    reader: Transaction
    key: Key
    offset: int
    value: Key
    sender: Transaction | None


def anomalies(history: History, *, is_read_committed: bool) -> Expected:
    """Returns the anomalies of a history."""
    history = sorted(history, key=lambda t: t.id)
    sender = {(op.key, op.value): t for t in history for op in t.ops if isinstance(op, Append)}
    records = [
        Record(t, key, offset, value, sender.get((key, value)))
        for t in history
        for op in t.ops
        if isinstance(op, Poll)
        for key, offset, value in op.records
    ]
    records, impossible = (
        [r for r in records if r.offset >= 0],
        [r for r in records if r.offset < 0],
    )
    nodes = [
        t
        for t in history
        if is_committed(t)
        or (
            is_read_committed
            and not is_aborted(t)
            and any(r.sender is t and r.reader is not t for r in records)
        )
    ]
    content = _content(records, history)
    certain = {
        (key, offset, value)
        for key, offset, value in content
        if sum(k == key and o == offset for k, o, _ in content) == 1
        and sum(k == key and v == value for k, _, v in content) == 1
    }
    versions = {
        (key, offset): (sender[key, value], value)
        for key, offset, value in certain
        if (key, value) in sender and sender[key, value] in nodes
    }
    counts: dict[str, int] = defaultdict(int)
    counts["impossible-offset"] = len(impossible) + sum(
        # A broker that does not know the offset reports -1.
        isinstance(op, Append) and op.offset is not None and op.offset < -1
        for t in history
        for op in t.ops
    )
    counts["phantom-value"] = len({(k, v) for k, _, v in content if (k, v) not in sender})
    counts["divergent-value"] = len(content) - len({(k, o) for k, o, _ in content})
    counts["duplicate"] = len(content) - len({(k, v) for k, _, v in content})
    _reads(counts, records, is_read_committed)
    counts["order-inversion"] = sum(
        any(
            k == key and o > offset and _ended_before(other, one)
            for (k, o), (other, _) in versions.items()
        )
        for (key, offset), (one, _) in versions.items()
    )
    _sends(counts, history, content, {(k, v): o for k, o, v in certain})
    places = set(versions) if is_read_committed else {(k, o) for k, o, _ in content}
    _polls(counts, history, records, places, is_read_committed)
    _closing(counts, history, nodes)
    _inputs(counts, history, nodes, records, set(versions))
    edges = _edges(records, versions, nodes) | order_edges_between(nodes)
    return Expected(
        counts={name: count for name, count in counts.items() if count},
        cycles=cycles_by_enumeration(edges, circular_reads=True),
    )


def _content(records: list[Record], history: History) -> set[tuple[Key, int, Key]]:
    """Returns what polls returned, and what sends were told, whether or not they committed."""
    return {(r.key, r.offset, r.value) for r in records} | {
        (op.key, op.offset, op.value)
        for t in history
        for op in t.ops
        if isinstance(op, Append) and op.offset is not None and op.offset >= 0
    }


def _ended_before(one: Transaction, other: Transaction) -> bool:
    return (
        is_committed(one) and one.completed_ns is not None and one.completed_ns < other.invoked_ns
    )


def _reads(counts: dict[str, int], records: list[Record], is_read_committed: bool) -> None:
    for r in records:
        if r.sender is None:
            continue
        is_own = r.sender is r.reader
        if is_aborted(r.sender) and not is_own:
            counts["G1a" if is_committed(r.reader) else "aborted-record-visible"] += 1
        ended = r.reader.completed_ns
        is_future = ended is not None and ended < r.sender.invoked_ns
        counts["future-read"] += is_future
        commit = (
            r.sender.invoked_ns
            if r.sender.commit_invoked_ns is None
            else r.sender.commit_invoked_ns
        )
        is_early = ended is not None and ended < commit and not is_future
        is_early = is_early and not is_aborted(r.sender)
        counts["precommitted-read"] += is_read_committed and (is_own or is_early)


def _sends(
    counts: dict[str, int],
    history: History,
    content: set[tuple[Key, int, Key]],
    certain: dict[tuple[Key, Key], int],
) -> None:
    for t in history:
        last: dict[Key, int] = {}
        for op in t.ops:
            if not isinstance(op, Append):
                continue
            offset = certain.get((op.key, op.value), op.offset)
            if offset is None or offset < 0:
                continue
            if op.key in last:
                counts["int-nonmonotonic-send"] += offset <= last[op.key]
                counts["int-send-skip"] += any(
                    k == op.key and last[op.key] < o < offset for k, o, _ in content
                )
            last[op.key] = offset


def _polls(
    counts: dict[str, int],
    history: History,
    records: list[Record],
    places: set[tuple[Key, int]],
    is_read_committed: bool,
) -> None:
    def compare(prefix: str, pairs: Iterable[tuple[Record, Record]]) -> None:
        for one, other in pairs:
            counts[f"{prefix}-nonmonotonic-poll"] += other.offset <= one.offset
            # Closing reads receive committed records only, whatever the others do.
            is_complete = is_read_committed or not one.reader.is_final
            counts[f"{prefix}-poll-skip"] += is_complete and any(
                key == one.key and one.offset < offset < other.offset for key, offset in places
            )

    records = [r for r in records if r.reader.session != -1]
    keys = {r.key for r in records}
    for key in keys:
        for t in history:
            own = [r for r in records if r.key == key and r.reader is t]
            compare("int", pairwise(own))
        sessions = {_session(t) for t in history}
        for session in sessions:
            consumer = sorted(
                (
                    t
                    for t in history
                    if _session(t) == session and is_committed(t) and not t.is_final
                ),
                key=lambda t: (t.invoked_ns, t.id),
            )
            seen = [r for t in consumer for r in records if r.key == key and r.reader is t]
            compare(
                "session",
                (
                    (a, b)
                    for a, b in pairwise(seen)
                    if a.reader is not b.reader
                    and not _unknown_between(history, a.reader, b.reader)
                ),
            )


def _unknown_between(history: History, one: Transaction, other: Transaction) -> bool:
    def moment(t: Transaction) -> tuple[int, int]:
        return (t.invoked_ns, t.id)

    return any(
        not is_committed(t)
        and not is_aborted(t)
        and _session(t) == _session(one)
        and moment(one) < moment(t) < moment(other)
        for t in history
    )


def _session(t: Transaction) -> int:
    return process_of(t) if t.session is None else t.session


def _returned(closing: History) -> set[tuple[Key, Key]]:
    """Returns partition and value of what the closing reads returned."""
    return {
        (key, value)
        for t in closing
        for op in t.ops
        if isinstance(op, Poll)
        for key, offset, value in op.records
        if offset >= 0
    }


def _did_not_commit(history: History, nodes: History) -> set[int]:
    """Returns the transactions of unknown outcome all of whose sends are missing at the end, by identifier."""
    closing = [t for t in history if t.is_final and is_committed(t)]
    returned = _returned(closing)
    found = set()
    for t in history:
        sends = {(op.key, op.value) for op in t.ops if isinstance(op, Append)}
        is_unknown = not is_committed(t) and not is_aborted(t) and t not in nodes
        ended = t.invoked_ns if t.completed_ns is None else t.completed_ns
        is_over = bool(closing) and all(ended <= reader.invoked_ns for reader in closing)
        if is_unknown and is_over and sends and not sends & returned:
            found.add(t.id)
    return found


def _closing(counts: dict[str, int], history: History, nodes: History) -> None:
    closing = [t for t in history if t.is_final and is_committed(t)]
    if not closing:
        return
    begin = min(t.invoked_ns for t in closing)
    seen = _returned(closing)
    for t in history:
        sends = [(op.key, op.value) for op in t.ops if isinstance(op, Append)]
        is_open = t.completed_ns is None and not is_committed(t) and not is_aborted(t)
        ended = t.invoked_ns if is_open else t.completed_ns
        if not sends or t in closing or ended is None or ended > begin:
            continue
        missing = [send for send in sends if send not in seen]
        if len(missing) == len(sends):
            counts["lost-acked-write"] += len(missing) if t in nodes else 0
        elif missing and not is_aborted(t):
            counts["torn-transaction"] += 1


def _inputs(
    counts: dict[str, int],
    history: History,
    nodes: History,
    records: list[Record],
    places: set[tuple[Key, int]],
) -> None:
    commits = [
        (t, op.key, op.offset)
        for t in history
        if t.group is not None
        for op in t.ops
        if isinstance(op, CommitOffset)
    ]
    without_effect = _did_not_commit(history, nodes)
    for group, key in {(t.group, key) for t, key, _ in commits}:
        members = [t for t, k, _ in commits if t.group == group and k == key]
        consumed = [r for r in records if r.key == key and r.reader in members]
        offsets = {r.offset for r in consumed}
        for offset in offsets:
            readers = {r.reader.id for r in consumed if r.offset == offset and r.reader in nodes}
            counts["input-processed-twice"] += len(readers) > 1
        limits = [o for t, k, o in commits if t.group == group and k == key and t in nodes]
        if limits and offsets:
            maybe = {
                r.offset
                for r in consumed
                if not is_aborted(r.reader) and r.reader.id not in without_effect
            }
            counts["input-skipped"] += sum(
                k == key and min(offsets) <= o < max(limits) and o not in maybe for k, o in places
            )


def _edges(
    records: list[Record],
    versions: dict[tuple[Key, int], tuple[Transaction, Key]],
    nodes: History,
) -> set[Edge]:
    edges: set[Edge] = set()
    for (key, offset), (one, _) in versions.items():
        for (other_key, other_offset), (other, _) in versions.items():
            if key == other_key and offset < other_offset:
                edges.add((one.id, other.id, "ww"))
    highest: dict[tuple[int, Key], int] = {}
    for r in records:
        if not is_committed(r.reader):
            continue
        if r.sender in nodes:
            edges.add((r.sender.id, r.reader.id, "wr"))
        place = (r.reader.id, r.key)
        highest[place] = max(r.offset, highest.get(place, -1))
    for (reader, key), offset in highest.items():
        later = sorted(o for k, o in versions if k == key and o > offset)
        # Its own next record is ordered before later ones by ww.
        if later and versions[key, later[0]][0].id != reader:
            edges |= {(reader, versions[key, o][0].id, "rw") for o in later}
    return {(u, v, kind) for u, v, kind in edges if u != v}
