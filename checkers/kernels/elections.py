"""Elections of one partition, and which losses they explain.

A record that is gone is *excused* iff a flagged election after its acknowledgement chose a replica that did not
have it at that moment. Two refinements keep a broken implementation from hiding behind that rule:

- the first election after the acknowledgement that chose a replica without the record decides. If that one was not
  flagged, a later flagged one excuses nothing: the record was gone already. It was not gone, and the next such
  election decides, if meanwhile a replica was elected that had kept the record all the time since it was
  acknowledged: whoever led in between has left no trace in that log;
- with eligible leader replicas on and unclean elections off, a flagged election must itself have been unavoidable.
  Let t0 be the last moment before it with an ISR of min ISR members. Between t0 and the election, at least min ISR
  distinct brokers must have left ISR and ELR by an unclean registration or by unregistering, each after a fault
  that the harness injected since its last orderly start and after which a process does not stop in order: a kill,
  a power loss, a disk fault that was in force meanwhile, a stop for which the time was too short.

Whether a replica had a record is read off its log end over time. A log end beyond the record's offset is not
enough: if the replica passed that offset in an older leader epoch than the record's, another record stands there.

Source: last-replica-standing note, section 6.1; KIP-966.
"""

import json
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from checkers.kernels.history import I64, INF_NS, Bools, is_word

LOSSY_FAULTS = frozenset({"power", "wipe", "bit_flip", "truncate_file"})
"""Faults after which a broker may come back with less than it had."""

UNCLEAN_FAULTS = frozenset({"kill", "oom", "read_only"}) | LOSSY_FAULTS
"""Faults that end a broker in no order at the moment they are injected."""

BROKEN_DISKS = frozenset({"disk_full", "io_error", "read_only", "stuck_disk"})
"""Faults under which a broker may end by itself, in no order, as long as they are in force."""

ORDERLY_ENDS = frozenset({"stop", "restart"})
"""Faults that leave a broker the time to stop in order; it may not be enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Election:
    """One committed change that gave the partition a leader.

    Attributes:
        at_ns: When it was committed.
        leader, leader_epoch: Who was elected.
        is_flagged: Whether the controller marked it unclean.
        is_lawful: False iff it is flagged although the second rule above did not allow it.
        log_end_offset: The elected replica's log end at that moment; None if logs were not recorded.
        reason: Why it is not lawful; empty otherwise.
    """

    at_ns: int
    leader: int
    leader_epoch: int
    is_flagged: bool
    is_lawful: bool = True
    log_end_offset: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReplicaLog:
    """One replica's log end over time, in order of time; `extends` marks rows that wrote records."""

    at_ns: I64
    log_end_offset: I64
    leader_epoch: I64
    extends: Bools

    def lacks(self, at_ns: int, offsets: I64, epochs: I64) -> Bools:
        """Returns which records (by offset and lowest possible leader epoch) it did not have at a moment."""
        count = int(np.searchsorted(self.at_ns, at_ns, side="right"))
        if not count:
            return np.ones(len(offsets), dtype=np.bool_)
        ends = self.log_end_offset[:count]
        lowest_since = np.minimum.accumulate(ends[::-1])[::-1]
        beyond = offsets >= ends[-1]
        # The row after the last one that did not reach the offset wrote the record that stands there now.
        writer = np.minimum(np.searchsorted(lowest_since, offsets, side="right"), count - 1)
        older = self.extends[writer] & (self.leader_epoch[writer] < epochs)
        without: Bools = beyond | older
        return without

    def kept(self, at_ns: int, offsets: I64, epochs: I64, since_ns: I64) -> Bools:
        """Returns which records it had at a moment and had never been without since others."""
        count = int(np.searchsorted(self.at_ns, at_ns, side="right"))
        if not count:
            return np.zeros(len(offsets), dtype=np.bool_)
        lowest_since = np.minimum.accumulate(self.log_end_offset[:count][::-1])[::-1]
        start = np.searchsorted(self.at_ns[:count], since_ns, side="right") - 1
        reached = lowest_since[np.maximum(start, 0)] > offsets
        kept: Bools = (start >= 0) & reached & ~self.lacks(at_ns, offsets, epochs)
        return kept


class Elections:
    """The elections of one partition.

    Args:
        partition_states, replica_states: The partition's rows, in any order.
        broker_states, faults: Rows of the whole run.
        elr_on: Whether eligible leader replicas are in use.
        unclean_election_enabled: Whether the configuration allows unclean elections.
    """

    def __init__(
        self,
        partition_states: pa.Table,
        replica_states: pa.Table,
        broker_states: pa.Table,
        faults: pa.Table,
        *,
        elr_on: bool,
        unclean_election_enabled: bool = False,
    ) -> None:
        rows = partition_states.sort_by("metadata_offset").to_pylist()
        self._read_replicas(replica_states)
        is_checked = elr_on and not unclean_election_enabled and broker_states.num_rows > 0
        lawfulness = _Lawfulness(rows, broker_states, faults, self._node_of) if is_checked else None
        self.elections: list[Election] = []
        leader = -1
        for index, row in enumerate(rows):
            if row["leader"] >= 0 and (row["leader"] != leader or row["flagged"]):
                reason = lawfulness.objection(index) if lawfulness and row["flagged"] else ""
                self.elections.append(self._election(row, reason))
            leader = row["leader"]
        if leader < 0:
            leader = self._last_leader
        log = self._logs.get(leader)
        self.settled_end_offset = None if log is None else int(log.log_end_offset[-1])
        """Log end of the last leader at the end of the run; None if logs were not recorded."""

    def _read_replicas(self, replica_states: pa.Table) -> None:
        at = replica_states.column("at_ns").to_numpy()
        order = np.argsort(at, kind="stable")
        broker = replica_states.column("broker").to_numpy()[order]
        leads = np.flatnonzero(is_word(replica_states.column("role"), "leader")[order])
        cause = replica_states.column("cause")
        extends = (is_word(cause, "append") | is_word(cause, "replicate"))[order]
        columns = {
            name: replica_states.column(name).to_numpy().astype(np.int64)[order]
            for name in ("at_ns", "log_end_offset", "leader_epoch", "high_watermark")
        }
        self._node_of: dict[int, str] = {}
        self._logs: dict[int, _ReplicaLog] = {}
        for identifier in np.unique(broker).tolist():
            rows = np.flatnonzero(broker == identifier)
            self._node_of[identifier] = replica_states.column("node")[int(order[rows[0]])].as_py()
            self._logs[identifier] = _ReplicaLog(
                at_ns=columns["at_ns"][rows],
                log_end_offset=columns["log_end_offset"][rows],
                leader_epoch=columns["leader_epoch"][rows],
                extends=extends[rows],
            )
        self._visible_ns = columns["at_ns"][leads]
        self._visible_end = np.maximum.accumulate(columns["high_watermark"][leads])
        self._last_leader = -1
        if len(leads):
            last = leads[np.lexsort((leads, columns["leader_epoch"][leads]))[-1]]
            self._last_leader = int(broker[last])

    def _election(self, row: dict[str, Any], reason: str) -> Election:
        election = Election(
            at_ns=row["at_ns"],
            leader=row["leader"],
            leader_epoch=row["leader_epoch"],
            is_flagged=row["flagged"],
            is_lawful=not reason,
            reason=reason,
        )
        log = self._logs.get(row["leader"])
        if log is None:
            return replace(election, log_end_offset=0 if self._logs else None)
        count = int(np.searchsorted(log.at_ns, row["at_ns"], side="right"))
        end = int(log.log_end_offset[count - 1]) if count else 0
        return replace(election, log_end_offset=end)

    def committed_by(self, offsets: I64, invoked_ns: I64, completed_ns: I64) -> I64:
        """Returns when records were certainly committed: when the high watermark passed them, if that is known.

        A client learns of it later; an answer may even be delayed beyond the next election.
        """
        if not len(self._visible_ns):
            return completed_ns
        at = np.searchsorted(self._visible_end, offsets, side="right")
        passed = np.append(self._visible_ns, INF_NS)[at]
        known: I64 = np.clip(passed, np.minimum(invoked_ns, completed_ns), completed_ns)
        return known

    def epoch_ends(self, epochs: I64) -> I64:
        """Returns when the first election after each leader epoch was committed; infinity if there was none."""
        at = np.array([election.at_ns for election in self.elections] + [INF_NS], dtype=np.int64)
        started = np.array([election.leader_epoch for election in self.elections], dtype=np.int64)
        ends: I64 = at[np.searchsorted(np.maximum.accumulate(started), epochs, side="right")]
        return ends

    def deciding(self, offsets: I64, since_ns: I64, epochs: I64) -> I64:
        """Returns which election after each moment chose a replica without the record for good, -1 for none.

        That is the first one since a replica was last elected that had kept the record.
        """
        found = np.full(len(offsets), -1, dtype=np.int64)
        for number, election in enumerate(self.elections):
            self._found_again(election, found, offsets, since_ns, epochs)
            open_rows = np.flatnonzero((found < 0) & (since_ns <= election.at_ns))
            if not len(open_rows):
                continue
            log = self._logs.get(election.leader)
            if log is not None:
                lacks = log.lacks(election.at_ns, offsets[open_rows], epochs[open_rows])
                found[open_rows[lacks]] = number
            elif self._logs or election.is_flagged:
                # Without recorded logs a flagged election may have lost anything, and no other one anything.
                found[open_rows] = number
        return found

    def _found_again(
        self, election: Election, found: I64, offsets: I64, since_ns: I64, epochs: I64
    ) -> None:
        log = self._logs.get(election.leader)
        missing = np.flatnonzero(found >= 0)
        if log is None or not len(missing):
            return
        kept = log.kept(election.at_ns, offsets[missing], epochs[missing], since_ns[missing])
        found[missing[kept]] = -1

    def excused(self, offsets: I64, since_ns: I64, epochs: I64) -> Bools:
        """Returns which losses are excused; see the module."""
        if not self.elections:
            return np.zeros(len(offsets), dtype=np.bool_)
        excuses = np.array([e.is_flagged and e.is_lawful for e in self.elections] + [False])
        return excuses[self.deciding(offsets, since_ns, epochs)]


class _Lawfulness:
    """Decides whether a flagged election was unavoidable (second rule of the module)."""

    def __init__(
        self,
        states: list[dict[str, Any]],
        broker_states: pa.Table,
        faults: pa.Table,
        node_of: dict[int, str],
    ) -> None:
        self._states = states
        self._brokers = broker_states.sort_by("metadata_offset").to_pylist()
        self._faults = [row for row in faults.to_pylist() if row["resolved"]]
        self._node_of = node_of

    def objection(self, election: int) -> str:
        """Returns why the flagged election in the given row was wrong; empty if it was not, or nobody can say."""
        start = election - 1
        while start >= 0 and len(self._states[start]["isr"]) < self._states[start]["min_isr"]:
            start -= 1
        if start < 0:
            return ""
        span = self._states[start : election + 1]
        min_isr = span[0]["min_isr"]
        if any(s["replicas"] != span[0]["replicas"] or s["min_isr"] != min_isr for s in span):
            return ""  # an administrator changed the partition meanwhile
        left: set[int] = set()
        for before, after in pairwise(span):
            gone = {*before["isr"], *before["elr"]} - {*after["isr"], *after["elr"]}
            left |= {
                broker
                for broker in gone
                if self._left_uncleanly(broker, span[0]["at_ns"], after["at_ns"])
            }
        if len(left) >= min_isr:
            return ""
        return (
            f"only {len(left)} of at least {min_isr} brokers had left ISR and ELR by an unclean registration that"
            " an injected fault explains"
        )

    def _left_uncleanly(self, broker: int, after_ns: int, to_ns: int) -> bool:
        # By time and not by offset: a registration stands behind the partition changes of its own batch
        # (replication-protocol section 16.2, step 5), and a batch is committed at one moment.
        return any(
            state["broker"] == broker
            and after_ns <= state["at_ns"] <= to_ns
            and (
                state["change"] == "unregistered"
                or (
                    state["change"] == "registered"
                    and not state["clean"]
                    and self._is_explained(state)
                )
            )
            for state in self._brokers
        )

    def _is_explained(self, registration: dict[str, Any]) -> bool:
        """Returns whether the harness had hurt the broker since its last orderly start."""
        broker = registration["broker"]
        node = self._node_of.get(broker, f"b{broker}")
        orderly_ns = max(
            (
                state["at_ns"]
                for state in self._brokers
                if state["broker"] == broker
                and state["change"] == "registered"
                and state["clean"]
                and state["metadata_offset"] < registration["metadata_offset"]
            ),
            default=-INF_NS,
        )
        return any(
            node in fault["resolved"] and _ended_it(fault, node, orderly_ns, registration["at_ns"])
            for fault in self._faults
        )


def _ended_it(fault: dict[str, Any], node: str, since_ns: int, to_ns: int) -> bool:
    """Returns whether a fault may be why a node did not stop in order between two moments."""
    name, invoked_ns, healed_ns = fault["fault"], fault["invoked_ns"], fault["healed_ns"]
    if name in BROKEN_DISKS and invoked_ns <= to_ns and (healed_ns is None or healed_ns > since_ns):
        return True
    if not since_ns < invoked_ns <= to_ns:
        return False
    return name in UNCLEAN_FAULTS or (name in ORDERLY_ENDS and _was_cut_short(fault, node))


def _was_cut_short(fault: dict[str, Any], node: str) -> bool:
    """Returns whether the harness says that an orderly stop did not come to its end."""
    try:
        end = json.loads(fault["evidence"])["ended"][node]
        in_order = end.get("in_time") if isinstance(end, dict) else end == "stopped"
        return not in_order
    except (ValueError, TypeError, KeyError):
        return False
