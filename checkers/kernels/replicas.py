"""What single replicas promise.

- *Within one leader epoch a leader never lowers its high watermark* (`high-watermark-regression`). Another leader
  may report an older log end (`end-regression`); the same broker in the same epoch has no such excuse. It is
  judged from what clients received (`end_offsets_seen`) and from the states of the replicas (`replica_states`).
  Clients that do not know broker and epoch prove nothing.
- *Below the high watermarks of two replicas their logs hold the same records* (`divergent-replicas`), judged from
  the batches that the replicas hold at the end (`replica_batches`; see `checkers.kernels.divergence`).

High watermarks are not compared across a restart. In some releases a broker that is back before its session ends
leads on in the same epoch, with the high watermark of its last checkpoint. A run that records no restarts at all
(neither `broker_states` nor `replica_states`) proves nothing about them either. Nor does what happened so close to
a restart that clocks (`clock_error_ns`) do not show which was first. A registration is stamped by another clock
than the states of a replica, which include its end and its start.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from checkers.anomalies import ANOMALIES, FRESH
from checkers.kernels.divergence import Divergence, find_divergence
from checkers.kernels.evidence import Evidence, duration, seconds
from checkers.kernels.history import I64, INF_NS, Bools, is_word, lookup
from checkers.kernels.judging import judged_finding
from checkers.kernels.log_checkers import LOG_TABLES, log_of
from checkers.kernels.words import OK, operation_words
from harness.contracts.checker import CheckerFinding, CheckerReport
from harness.contracts.run_context import REPLICA_CHECKER, RunContext
from harness.contracts.verdict import Witness

REGRESSION = "high-watermark-regression"
DIVERGENT = "divergent-replicas"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRegression:
    """A log end below one that the same leader had reported before in the same epoch.

    Attributes:
        node, leader_epoch: The leader.
        first, first_end: The operation that received the larger log end, and that end.
        second, second_end: The later operation, and its log end.
        gap_ns: From the completion of the first to the invocation of the second.
    """

    node: str
    leader_epoch: int
    first: int
    first_end: int
    second: int
    second_end: int
    gap_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredHighWatermark:
    """A leader's state with a smaller high watermark than an earlier one of the same epoch."""

    node: str
    leader_epoch: int
    before: int
    after: int
    at_ns: int


def registrations(broker_states: pa.Table) -> dict[int, I64]:
    """Returns when each broker registered, ascending, by broker id."""
    rows = broker_states.filter(is_word(broker_states.column("change"), "registered"))
    broker, at_ns = rows.column("broker").to_numpy(), rows.column("at_ns").to_numpy()
    return {number: np.sort(at_ns[broker == number]) for number in np.unique(broker).tolist()}


class LeaderStates:
    """Follows the states of the leaders of one partition in order of time. Mutable.

    A table of many rows can be followed in pieces: only the largest high watermark of every leader is kept.

    Args:
        registered: What `registrations` returned.
        clock_error_ns: Largest difference between two clocks; states that close to a registration are left out.
    """

    def __init__(self, registered: Mapping[int, I64], clock_error_ns: int = 0) -> None:
        self._registered = registered
        self._clock_error_ns = clock_error_ns
        self._loads: Counter[int] = Counter()
        self._highest: dict[tuple[int, int, int], int] = {}
        self.lowered: list[LoweredHighWatermark] = []

    def follow(self, states: pa.Table) -> None:
        """Takes the next rows of `replica_states`, in order of time; the order of equal times does not count."""
        broker = states.column("broker").to_numpy().astype(np.int64)
        at_ns = states.column("at_ns").to_numpy()
        is_new = is_restart(states)
        life = np.zeros(len(broker), dtype=np.int64)
        certain = np.ones(len(broker), dtype=np.bool_)
        for number in np.unique(broker).tolist():
            rows = np.flatnonzero(broker == number)
            loads = self._loads[number] + np.cumsum(is_new[rows])
            self._loads[number] = int(loads[-1])
            registered = self._registered.get(number, np.empty(0, dtype=np.int64))
            early, late = (
                np.searchsorted(registered, at_ns[rows] + error_ns, side="right")
                for error_ns in (-self._clock_error_ns, self._clock_error_ns)
            )
            life[rows] = loads + early
            certain[rows] = early == late
        leads = np.flatnonzero(is_word(states.column("role"), "leader") & certain)
        if not len(leads):
            return
        node, life, at_ns = broker[leads], life[leads], at_ns[leads]
        epoch = states.column("leader_epoch").to_numpy().astype(np.int64)[leads]
        high_watermark = states.column("high_watermark").to_numpy()[leads]
        names = states.column("node")
        # Of two states of one moment, the larger high watermark may be the later one.
        order = np.lexsort((high_watermark, at_ns, life, epoch, node))
        keys = np.stack((node[order], epoch[order], life[order]))
        starts = np.flatnonzero(np.append(True, (keys[:, 1:] != keys[:, :-1]).any(axis=0)))
        for rows in np.split(order, starts[1:]):
            key = (int(node[rows[0]]), int(epoch[rows[0]]), int(life[rows[0]]))
            name = names[int(leads[rows[0]])].as_py()
            self._follow(key, name, high_watermark[rows], at_ns[rows])

    def _follow(
        self, key: tuple[int, int, int], name: str, high_watermark: I64, at_ns: I64
    ) -> None:
        before = self._highest.get(key, -1)
        highest = np.maximum.accumulate(np.append(before, high_watermark))
        for row in np.flatnonzero(high_watermark < highest[:-1]).tolist():
            self.lowered.append(
                LoweredHighWatermark(
                    node=name,
                    leader_epoch=key[1],
                    before=int(highest[row]),
                    after=int(high_watermark[row]),
                    at_ns=int(at_ns[row]),
                )
            )
        self._highest[key] = int(highest[-1])


def is_restart(replica_states: pa.Table) -> Bools:
    """Returns which rows show that the process of the replica ended or began."""
    cause = replica_states.column("cause")
    is_down = is_word(replica_states.column("role"), "offline") | is_word(cause, "down")
    restarts: Bools = is_down | is_word(cause, "load")
    return restarts


def restarts_of(replica_states: pa.Table, registered: Mapping[int, I64]) -> dict[str, I64]:
    """Returns the moments at which the process of each node ended or began, ascending, by node."""
    names = replica_states.column("node").to_pylist()
    numbers = replica_states.column("broker").to_pylist()
    node_of = dict(zip(numbers, names, strict=True))
    at_ns = replica_states.column("at_ns").to_numpy()
    moments: dict[str, list[int]] = {}
    for number, times in registered.items():
        moments[node_of.get(number, f"b{number}")] = times.tolist()
    for row in np.flatnonzero(is_restart(replica_states)).tolist():
        moments.setdefault(names[row], []).append(int(at_ns[row]))
    return {node: np.sort(np.array(times, dtype=np.int64)) for node, times in moments.items()}


def seen_regressions(
    operations: pa.Table,
    end_offsets_seen: pa.Table,
    restarts: Mapping[str, I64],
    *,
    clock_error_ns: int = 0,
) -> list[SeenRegression]:
    """Finds log ends that clients received after a larger one of the same leader in the same epoch.

    Args:
        operations: The partition's rows, in any order.
        end_offsets_seen: Likewise.
        restarts: When the process of each node ended or began; operations during which that happened are left out.
        clock_error_ns: Largest difference between two clocks that stamped operations.

    Returns:
        One per observation that is too small, with the largest earlier one, in order of the operations.
    """
    order = np.argsort(operations.column("op_index").to_numpy(), kind="stable")
    op = operations.column("op_index").to_numpy()[order]
    row = lookup(op)(end_offsets_seen.column("op_index").to_numpy())
    is_ok = (operation_words(operations).outcome == OK)[order]
    epoch = end_offsets_seen.column("leader_epoch").to_numpy().astype(np.int64)
    named = ~is_word(end_offsets_seen.column("node"), "")
    rows = np.flatnonzero((row >= 0) & (epoch >= 0) & named)
    rows = rows[is_ok[row[rows]]]
    row, epoch = row[rows], epoch[rows]
    end = end_offsets_seen.column("end_offset").to_numpy()[rows]
    node = _codes(end_offsets_seen.column("node"))[rows]
    names = end_offsets_seen.column("node")
    none = np.empty(0, dtype=np.int64)
    completed = operations.column("completed_ns").fill_null(INF_NS)
    inv = operations.column("invoked_ns").to_numpy()[order][row]
    res = completed.to_numpy()[order][row]
    life = np.zeros(len(rows), dtype=np.int64)
    certain = np.ones(len(rows), dtype=np.bool_)
    for code in np.unique(node).tolist():
        mine = np.flatnonzero(node == code)
        moments = restarts.get(names[int(rows[mine[0]])].as_py(), none)
        life[mine] = np.searchsorted(moments, inv[mine] - clock_error_ns, side="left")
        after = np.searchsorted(moments, res[mine] + clock_error_ns, side="right")
        certain[mine] = life[mine] == after
    res = res + clock_error_ns
    found = []
    for leader in sorted(set(zip(node.tolist(), epoch.tolist(), life.tolist(), strict=True))):
        is_leader = (node == leader[0]) & (epoch == leader[1]) & (life == leader[2])
        of_leader = np.flatnonzero(is_leader & certain)
        for first, second in _regressions(end[of_leader], inv[of_leader], res[of_leader]):
            y, x = int(of_leader[first]), int(of_leader[second])
            found.append(
                SeenRegression(
                    node=names[int(rows[x])].as_py(),
                    leader_epoch=leader[1],
                    first=int(op[row[y]]),
                    first_end=int(end[y]),
                    second=int(op[row[x]]),
                    second_end=int(end[x]),
                    gap_ns=int(inv[x] - res[y]),
                )
            )
    return sorted(found, key=lambda each: (each.second, each.second_end))


def _regressions(end: I64, inv: I64, res: I64) -> list[tuple[int, int]]:
    """Returns pairs (earlier, later) of observations of one leader whose log ends go back."""
    by_end = np.lexsort((-end, res))
    largest = np.maximum.accumulate(end[by_end])
    count = np.searchsorted(res[by_end], inv, side="left")
    known = count > 0
    before = np.where(known, largest[np.maximum(count - 1, 0)], -1)
    pairs = []
    for x in np.flatnonzero(known & (end < before)).tolist():
        candidates = by_end[: count[x]]
        pairs.append((int(candidates[np.argmax(end[candidates] == before[x])]), x))
    return pairs


def _codes(words: Any) -> I64:
    encoded = words.combine_chunks().dictionary_encode()
    codes: I64 = encoded.indices.to_numpy().astype(np.int64)
    return codes


# --- the checker ---


class Replicas:
    """The checker `replicas`; see the module."""

    name = REPLICA_CHECKER
    tables = (*LOG_TABLES, "replica_batches")
    per_partition = True

    def check(self, tables: Mapping[str, pa.Table], context: RunContext) -> CheckerReport:
        """Checks one partition."""
        findings: list[CheckerFinding] = []
        report = log_of(tables, context)
        # A log end that went back at one leader is stale, so a log without stale ends needs no second look.
        replica_states = tables["replica_states"]
        registered = registrations(tables["broker_states"])
        is_stale = any(ANOMALIES[finding.id].level == FRESH for finding in report.findings)
        if is_stale and (registered or replica_states.num_rows):
            seen = seen_regressions(
                tables["operations"],
                tables["end_offsets_seen"],
                restarts_of(replica_states, registered),
                clock_error_ns=context.clock_error_ns,
            )
            if seen:
                findings.append(_of_clients(seen, Evidence(tables["operations"]), context))
        states = LeaderStates(registered, context.clock_error_ns)
        if replica_states.num_rows:
            at_ns = replica_states.column("at_ns").to_numpy()
            if bool((at_ns[1:] < at_ns[:-1]).any()):
                order = np.argsort(at_ns, kind="stable")
                replica_states = replica_states.take(pa.array(order))
            states.follow(replica_states)
        if states.lowered:
            findings.append(_of_states(states.lowered, context))
        divergence = find_divergence(
            tables["replica_batches"], tables["partition_states"], sparse=context.sparse_offsets
        )
        if divergence is not None:
            findings.append(_of_logs(divergence, context))
        return CheckerReport(findings=tuple(findings))


REPLICAS = Replicas()


def _of_clients(
    seen: list[SeenRegression], evidence: Evidence, context: RunContext
) -> CheckerFinding:
    worst = min(seen, key=lambda each: (-each.gap_ns, each.second, each.first))
    return judged_finding(
        REGRESSION,
        len(seen),
        f"op {worst.first} received the log end {worst.first_end} from {worst.node} in leader epoch"
        f" {worst.leader_epoch}; op {worst.second}, begun {duration(worst.gap_ns)} later, received the log end"
        f" {worst.second_end} from it in the same epoch",
        context,
        witnesses=tuple(
            Witness(op_index=op, text=evidence.describe(op)) for op in (worst.first, worst.second)
        ),
    )


def _of_states(lowered: Iterable[LoweredHighWatermark], context: RunContext) -> CheckerFinding:
    ordered = sorted(lowered, key=lambda each: (each.after - each.before, each.at_ns, each.node))
    worst = ordered[0]
    return judged_finding(
        REGRESSION,
        len(ordered),
        f"{worst.node} lowered its high watermark from {worst.before} to {worst.after} at"
        f" {seconds(worst.at_ns)}, while it led in epoch {worst.leader_epoch}",
        context,
    )


def _of_logs(divergence: Divergence, context: RunContext) -> CheckerFinding:
    return judged_finding(
        DIVERGENT,
        divergence.count,
        divergence.sentence,
        context,
        details={"offsets": list(divergence.offsets), "nodes": list(divergence.nodes)},
    )
