"""Elections of one partition, and which losses they explain.

A record that is gone is *excused* iff a flagged election after it was established chose a replica that did not
have it at that moment. Two refinements keep a broken implementation from hiding behind that rule:

- the first election after the record was established that chose a replica without it decides. If that one was not
  flagged, a later flagged one excuses nothing: the record was gone already. It was not gone, and the next such
  election decides, if meanwhile a replica was elected that had the record;
- with eligible leader replicas on and unclean elections off, a flagged election must itself have been unavoidable.
  Let t0 be the last moment before it with an ISR of min ISR members. Between t0 and the election, at least min ISR
  distinct brokers must have left ISR and ELR by an unclean registration or by unregistering, each after a fault
  that the harness injected since its last clean start and that explains an unclean end. What a fault explains is
  in its row of the `faults` table: it ends its nodes uncleanly (`unclean_end`), it was a disk fault in force
  meanwhile (`broken_disk`), or it was a stop that did not finish in time (`cut_short`). No name of a fault is
  known here. A system may not report whether a registration was clean. If the result depends on that, the election
  is undecided: it neither excuses a loss nor breaks a promise.

A record is *established* when it is committed: when the high watermark of a leader that has it passes its offset.
A client learns of it later, even after the next election. A deposed leader that does not know of the election may
establish records after it. They count as older than the election if the new leader was not in the ISR; otherwise
the old leader could not have committed anything without the new one.

Which records a replica had follows from the recorded logs (`replica_logs`). If no logs were recorded, any election
between the moment a record was established and the moment it was certainly gone may have lost it: the loss is
excused if all of them are flagged and lawful, a broken promise if none is, and *undecided* otherwise.

A leader that cuts its own log is as bad as an unflagged election. Only recorded logs show it.

A controller may elect a member of the ISR that is down already, until its session ends. If the next epoch begins
before the process is back, nobody led in this one, and the election neither lost nor kept anything. Some systems
report log ends a moment late, so that the last report of a process that died may lack its last records.

An administrator may request an unclean election. The first election of the partition since then is the one that
was requested (`elects_uncleanly` of the `faults` table). If it is flagged, the second rule does not apply to it:
it is lawful, and excuses what it lost and nothing else. If it is not flagged, a member of ISR or ELR was elected.
Neither does the rule apply after an administrator allowed unclean elections (`allows_unclean`), nor if one changed
min ISR, replicas or feature levels between t0 and the election (`reconfigures`), which may erase the ELR.

Without eligible leader replicas and with a min ISR of 1 one replica may commit alone, and what only it has is gone
if a fault destroys it there. Such a loss is excused: since the record was established, min ISR was 1 and all
members of the ISR had such a fault before the leader that lacks the record was elected, the leader included. If
another replica was in the ISR, it has the record, and electing one without it breaks a promise.

Source: `docs/variants.md`, "How a loss is judged"; KIP-966.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from checkers.kernels.columns import Columns
from checkers.kernels.history import I8, I64, INF_NS, Bools
from checkers.kernels.replica_logs import ANY_EPOCH, ReplicaLogs

UNEXCUSED, UNDECIDED, EXCUSED = 0, 1, 2
"""What elections mean for a loss, the better the larger."""

_NOT_LOST, _CUT = -1, -2
"""Stand for the number of an election: none, and a leader that cut its own log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Election:
    """One committed change that gave the partition a leader.

    Attributes:
        at_ns: When it was committed.
        leader, leader_epoch: The elected replica and its epoch.
        is_flagged: Whether the controller marked it unclean.
        is_lawful: False iff it is flagged although the second rule above did not allow it.
        is_undecided: Whether it is flagged, and lawful only if certain registrations were unclean, which the
            system does not report.
        was_in_isr: Whether the elected replica was in the ISR before.
        until_ns: When the next leader epoch was committed; infinity if none was.
        log_end_offset: The elected replica's log end at that moment; None if logs were not recorded.
        reason: Why it is not lawful, or why that is undecided; empty otherwise.
        alone_since_ns: Records established since then were on no replica but those whose data faults destroyed, as
            min ISR 1 allows; infinity if there are none.
    """

    at_ns: int
    leader: int
    leader_epoch: int
    is_flagged: bool
    is_lawful: bool = True
    is_undecided: bool = False
    was_in_isr: bool = True
    until_ns: int = INF_NS
    log_end_offset: int | None = None
    reason: str = ""
    alone_since_ns: int = INF_NS

    @property
    def excuses(self) -> bool:
        """Whether all that it lost is excused."""
        return self.is_flagged and self.is_lawful and not self.is_undecided

    @property
    def may_excuse(self) -> bool:
        """Whether all that it lost is excused, as far as is known."""
        return self.is_flagged and self.is_lawful


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims(Columns):
    """Records that were at certain offsets, each with what is known of when.

    Shape:
        offset: one row per record, as in all others.
        low_epoch, high_epoch: between which leader epochs it was written; `ANY_EPOCH` if nothing bounds it.
        from_ns, by_ns: between which moments it was established.
        epoch: a leader epoch in which it was established already, -1 if none is known.
    """

    offset: I64
    low_epoch: I64
    high_epoch: I64
    from_ns: I64
    by_ns: I64
    epoch: I64

    @property
    def is_torn(self) -> Bools:
        """Which records were written in one of several epochs, as far as is known."""
        torn: Bools = (self.low_epoch < self.high_epoch) & (self.high_epoch < ANY_EPOCH)
        return torn

    def written_in(self, epoch: I64, rows: Bools) -> "Claims":
        """Returns the claims with some of them written in certain epochs."""
        return Claims(
            offset=self.offset,
            low_epoch=np.where(rows, epoch, self.low_epoch),
            high_epoch=np.where(rows, epoch, self.high_epoch),
            from_ns=self.from_ns,
            by_ns=self.by_ns,
            epoch=self.epoch,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fates:
    """What elections did to records.

    Shape:
        outcome: UNEXCUSED, UNDECIDED or EXCUSED, one row per record.
        election: which election decided, -1 if none is known.
    """

    outcome: I8
    election: I64

    def or_else(self, other: "Fates") -> "Fates":
        """Returns the better outcome of two, row by row."""
        better = other.outcome > self.outcome
        return Fates(
            outcome=np.where(better, other.outcome, self.outcome),
            election=np.where(better, other.election, self.election),
        )


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
        self.logs = ReplicaLogs(replica_states)
        is_checked = elr_on and not unclean_election_enabled and broker_states.num_rows > 0
        lawfulness = (
            _Lawfulness(rows, broker_states, faults, self.logs.node_of) if is_checked else None
        )
        self.elections: list[Election] = []
        requested = _Requested(faults)
        leader = -1
        for index, row in enumerate(rows):
            if row["leader"] >= 0 and (row["leader"] != leader or row["flagged"]):
                is_requested, objection = requested.take(row), _NO_OBJECTION
                if lawfulness is not None and row["flagged"] and not is_requested:
                    objection = lawfulness.objection(index)
                isr = rows[index - 1]["isr"] if index else ()
                later = (
                    r["at_ns"] for r in rows[index:] if r["leader_epoch"] > row["leader_epoch"]
                )
                until_ns = next(later, INF_NS)
                self.elections.append(self._election(row, isr, objection, until_ns))
            leader = row["leader"]
        if not elr_on:
            self.elections = self._with_destroyed(rows, faults)
        self.settled_end_offset = self._settled_end_offset(leader)
        """Log end of the last leader at the end of the run; None if logs were not recorded."""

    def _with_destroyed(self, rows: list[dict[str, Any]], faults: pa.Table) -> list[Election]:
        """Returns the elections, with what faults had destroyed before each of them."""
        destroyed = _Destroyed(rows, faults, self.logs.node_of)
        marked = []
        since_ns = -INF_NS
        for election in self.elections:
            if not election.is_flagged:
                alone_ns = destroyed.alone_since(election, since_ns)
                election = replace(election, alone_since_ns=alone_ns)
            marked.append(election)
            if not self.logs or not self._is_without_effect(election):
                since_ns = election.at_ns
        return marked

    def _settled_end_offset(self, leader: int) -> int | None:
        if not self.logs:
            return None
        if leader < 0:
            leader = self.logs.last_leader
        return self.logs.end_at(leader, INF_NS) if leader in self.logs.node_of else None

    def _election(
        self, row: dict[str, Any], isr: Any, objection: "_Objection", until_ns: int
    ) -> Election:
        return Election(
            at_ns=row["at_ns"],
            leader=row["leader"],
            leader_epoch=row["leader_epoch"],
            is_flagged=row["flagged"],
            is_lawful=not objection.is_certain,
            is_undecided=bool(objection.reason) and not objection.is_certain,
            was_in_isr=row["leader"] in isr,
            until_ns=until_ns,
            log_end_offset=self.logs.end_at(row["leader"], row["at_ns"]) if self.logs else None,
            reason=objection.reason,
        )

    @property
    def can_excuse(self) -> bool:
        """Whether there is any election that excuses what it lost, or that may."""
        return any(e.may_excuse or e.alone_since_ns < INF_NS for e in self.elections)

    def epoch_ends(self, epochs: I64) -> I64:
        """Returns when the first election after each leader epoch was committed; infinity if there was none."""
        at = np.array([election.at_ns for election in self.elections] + [INF_NS], dtype=np.int64)
        started = np.array([election.leader_epoch for election in self.elections], dtype=np.int64)
        ends: I64 = at[np.searchsorted(np.maximum.accumulate(started), epochs, side="right")]
        return ends

    def fates(self, lost: Claims, until: Claims | None = None) -> Fates:
        """Returns whether the election that lost each record excuses it.

        Args:
            lost: The records.
            until: For each of them another record that proves that it was gone; only elections before that one was
                established count. None if they are gone at the end of the run.
        """
        if not self.logs:
            return self._possible(lost, until)
        first = self._decided(lost.written_in(lost.low_epoch, lost.is_torn), until)
        is_torn = lost.is_torn if until is None else lost.is_torn | until.is_torn
        if not is_torn.any():
            return first
        # Written in one of several epochs: the first and the last of them must give the same result. How such a
        # record and another one followed each other is not known.
        second = self._decided(lost.written_in(lost.high_epoch, lost.is_torn), until)
        is_certain = first.outcome == second.outcome
        if until is not None:
            is_certain &= ~is_torn | (first.outcome == EXCUSED)
        outcome = np.where(is_certain, first.outcome, UNDECIDED)
        return Fates(outcome=outcome.astype(np.int8), election=first.election)

    def _decided(self, lost: Claims, until: Claims | None) -> Fates:
        """Returns the fates by the recorded logs: the election since which no elected replica had the record."""
        found = np.full(len(lost.offset), _NOT_LOST, dtype=np.int64)
        for number, event in self._events:
            between = _is_after(event, lost) & _is_before(event, until)
            if until is not None:
                # With recorded logs the epoch in which the other record was established is known.
                between &= (until.epoch < 0) | (event.leader_epoch <= until.epoch)
            rows = np.flatnonzero(between)
            claims = lost.take(rows)
            place = (event.leader, event.at_ns, claims.offset)
            epochs = (claims.low_epoch, claims.high_epoch)
            lacks = self.logs.lacks(*place, *epochs)
            has = self.logs.certainly_has(*place, *epochs, claims.by_ns)
            found[rows[has]] = _NOT_LOST
            missing = rows[lacks]
            found[missing[found[missing] == _NOT_LOST]] = number
        outcomes = [
            EXCUSED if e.excuses else UNDECIDED if e.may_excuse else UNEXCUSED
            for e in self.elections
        ]
        found = np.maximum(found, -1)
        outcome = np.array([*outcomes, UNEXCUSED], dtype=np.int8)[found]
        alone_ns = np.array([*(e.alone_since_ns for e in self.elections), INF_NS], dtype=np.int64)
        outcome = np.maximum(outcome, _fate_alone(lost, alone_ns[found]))
        return Fates(outcome=outcome, election=found)

    @cached_property
    def _events(self) -> tuple[tuple[int, Election], ...]:
        """The elections with their numbers, and in between the leaders that cut their own logs, numbered _CUT.

        A leader that cuts its log is as good as an election that excuses nothing and belongs to the next epoch.
        """
        events = [one for one in enumerate(self.elections) if not self._is_without_effect(one[1])]
        for cut in self.logs.self_cuts:
            if any(e.leader_epoch > cut.epoch and e.at_ns <= cut.at_ns for e in self.elections):
                continue  # it was deposed: the log of the partition is another one
            before = [event for event in events if event[1].at_ns <= cut.at_ns]
            election = Election(
                at_ns=cut.at_ns, leader=cut.broker, leader_epoch=cut.epoch + 1, is_flagged=False
            )
            events.insert(len(before), (_CUT, election))
        return tuple(events)

    def _is_without_effect(self, election: Election) -> bool:
        """Whether a member of the ISR was elected that was down until the next epoch began."""
        return (
            election.was_in_isr
            and not election.is_flagged
            and self.logs.was_down(election.leader, election.at_ns, election.until_ns)
        )

    def _possible(self, lost: Claims, until: Claims | None) -> Fates:
        """Returns the fates if no logs were recorded."""
        first = np.full(len(lost.offset), -1, dtype=np.int64)
        is_excused = np.zeros(len(lost.offset), dtype=np.bool_)
        is_not, may_be = is_excused.copy(), is_excused.copy()
        for number, election in enumerate(self.elections):
            before = _is_before(election, until)
            between = _is_after(election, lost) & before
            if not election.was_in_isr:
                # The record's own epoch shows the same; whether its leader had committed it is not recorded.
                written_before = np.maximum(lost.high_epoch, lost.epoch) < election.leader_epoch
                between |= before & written_before
            if election.excuses:
                first[between & ~is_excused] = number
                is_excused |= between
                if not election.was_in_isr:
                    # Perhaps the leader that was deposed wrote the record: its epoch is not known.
                    is_older = np.maximum(lost.epoch, lost.low_epoch) < election.leader_epoch
                    may_be |= is_older & (lost.high_epoch == ANY_EPOCH) & before
            else:
                alone = _fate_alone(lost, np.full(len(first), election.alone_since_ns))
                was_alone = between & (alone == EXCUSED)
                first[was_alone & ~is_excused] = number
                is_excused |= was_alone
                may_be |= between & (alone == UNDECIDED)
                is_not |= between & ~was_alone
                if election.may_excuse:
                    first[between & (first < 0)] = number
                    may_be |= between
        outcome = np.where(may_be, UNDECIDED, UNEXCUSED)
        outcome = np.where(is_excused, np.where(is_not, UNDECIDED, EXCUSED), outcome)
        return Fates(outcome=outcome.astype(np.int8), election=first)


def _is_after(election: Election, lost: Claims) -> Bools:
    """Returns which records may have been established before an election."""
    after = lost.from_ns <= election.at_ns
    if not election.was_in_isr:
        # A leader that was deposed without knowing it established the record; the new one never had it.
        after |= lost.epoch >= 0
    is_older: Bools = after & (np.maximum(lost.epoch, lost.low_epoch) < election.leader_epoch)
    return is_older


def _fate_alone(lost: Claims, alone_since_ns: I64) -> I8:
    """Returns what becomes of records if those established since a moment were on destroyed replicas only."""
    fate = np.where(lost.by_ns >= alone_since_ns, UNDECIDED, UNEXCUSED)
    fate = np.where(lost.from_ns >= alone_since_ns, EXCUSED, fate)
    # A record that was never established by anything known has no moment to compare.
    return np.where(alone_since_ns == INF_NS, UNEXCUSED, fate).astype(np.int8)


def _is_before(election: Election, until: Claims | None) -> Bools | bool:
    """Returns which records may have been established after an election."""
    if until is None:
        return True
    known = np.maximum(until.epoch, until.low_epoch)
    before: Bools = (election.at_ns <= until.by_ns) | (election.leader_epoch <= known)
    return before


@dataclass(frozen=True, slots=True, kw_only=True)
class _Objection:
    """Why a flagged election was wrong.

    Attributes:
        reason: A clause; empty if it was right or cannot be decided for another reason than registrations.
        is_certain: Whether the reason holds whatever the registrations were that may have been clean.
    """

    reason: str = ""
    is_certain: bool = False


_NO_OBJECTION = _Objection()


class _Destroyed:
    """Finds which records faults destroyed on every replica that had to have them.

    Args:
        rows: States of one partition, in order.
        faults: Rows of the whole run.
        node_of: Names of the nodes by the ids of their brokers.
    """

    def __init__(
        self, rows: list[dict[str, Any]], faults: pa.Table, node_of: dict[int, str]
    ) -> None:
        self._rows = rows
        self._node_of = node_of
        self._faults = [
            row for row in faults.to_pylist() if row["can_lose_data"] and row["resolved"]
        ]

    def alone_since(self, election: Election, since_ns: int) -> int:
        """Returns since when records were only on replicas whose data was destroyed before an election.

        Args:
            election: An election.
            since_ns: When the election before it was committed; faults before that one explain nothing.
        """
        hit = [f for f in self._faults if since_ns < f["invoked_ns"] <= election.at_ns]
        nodes = {node for fault in hit for node in fault["resolved"]}
        leader = self._node_of.get(election.leader, f"b{election.leader}")
        return min(
            (
                self._all_among(nodes, fault["invoked_ns"])
                for fault in hit
                if leader in fault["resolved"]
            ),
            default=INF_NS,
        )

    def _all_among(self, nodes: set[str], at_ns: int) -> int:
        """Returns since when, until a moment, one replica could commit alone and the ISR was among these nodes."""
        since_ns = INF_NS
        for row in reversed([row for row in self._rows if row["at_ns"] <= at_ns]):
            isr = {self._node_of.get(one, f"b{one}") for one in row["isr"]}
            if min(row["min_isr"], len(row["replicas"])) > 1 or not isr <= nodes:
                break
            since_ns = row["at_ns"]
        return since_ns


class _Requested:
    """The unclean elections that administrators requested. Mutable: each request explains one election.

    Args:
        faults: Rows of the whole run.
    """

    def __init__(self, faults: pa.Table) -> None:
        self._open = sorted(
            (row["invoked_ns"], name)
            for row in faults.to_pylist()
            for name in row["elects_uncleanly"] or ()
        )

    def take(self, election: dict[str, Any]) -> bool:
        """Returns whether an election was requested; the elections of a partition are passed in order."""
        name = f"{election['topic']}-{election['partition']}"
        later = [(at, other) for at, other in self._open if other != name or at > election["at_ns"]]
        is_requested = len(later) < len(self._open)
        self._open = later
        return is_requested


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
        self._actions = [
            row for row in self._faults if row["allows_unclean"] or row["reconfigures"]
        ]
        self._node_of = node_of

    def objection(self, election: int) -> _Objection:
        """Returns why the flagged election in a row was wrong, or may have been."""
        start = election - 1
        while start >= 0 and len(self._states[start]["isr"]) < self._states[start]["min_isr"]:
            start -= 1
        if start < 0:
            return _NO_OBJECTION
        span = self._states[start : election + 1]
        min_isr = span[0]["min_isr"]
        if any(s["replicas"] != span[0]["replicas"] or s["min_isr"] != min_isr for s in span):
            return _NO_OBJECTION  # an administrator changed the partition meanwhile
        if self._is_changed_by_administrator(span[0]["at_ns"], span[-1]):
            return _NO_OBJECTION
        left, perhaps = (
            self._left(span, unknown_is_clean=unknown_is_clean)
            for unknown_is_clean in (True, False)
        )
        if left >= min_isr:
            return _NO_OBJECTION
        if perhaps < min_isr:
            return _Objection(
                reason=(
                    f"only {perhaps} of at least {min_isr} brokers had left ISR and ELR by an unclean registration"
                    " that an injected fault explains"
                ),
                is_certain=True,
            )
        return _Objection(
            reason=(
                f"{left} to {perhaps} of at least {min_isr} brokers had left ISR and ELR by an unclean"
                " registration that an injected fault explains, because the system does not report which"
                " registrations were clean"
            )
        )

    def _left(self, span: list[dict[str, Any]], *, unknown_is_clean: bool) -> int:
        """Returns how many brokers left ISR and ELR by an unclean registration that an injected fault explains.

        Args:
            span: The states from the last moment with an ISR of min ISR members to the election.
            unknown_is_clean: What a registration counts as if the system does not report it.
        """
        left: set[int] = set()
        for before, after in pairwise(span):
            gone = {*before["isr"], *before["elr"]} - {*after["isr"], *after["elr"]}
            left |= {
                broker
                for broker in gone
                if self._left_uncleanly(
                    broker, span[0]["at_ns"], after["at_ns"], unknown_is_clean=unknown_is_clean
                )
            }
        return len(left)

    def _is_changed_by_administrator(self, since_ns: int, election: dict[str, Any]) -> bool:
        """Whether an administrator allowed unclean elections, or changed the partition since a moment."""
        name = f"{election['topic']}-{election['partition']}"
        return any(
            action["invoked_ns"] <= election["at_ns"]
            and (
                name in action["allows_unclean"]
                or (name in action["reconfigures"] and _ends_after(action, since_ns))
            )
            for action in self._actions
        )

    def _left_uncleanly(
        self, broker: int, after_ns: int, to_ns: int, *, unknown_is_clean: bool
    ) -> bool:
        # By time and not by offset: a registration comes after the partition changes of its own batch, and a
        # batch is committed at one moment.
        return any(
            state["broker"] == broker
            and after_ns <= state["at_ns"] <= to_ns
            and (
                state["change"] == "unregistered"
                or (
                    state["change"] == "registered"
                    and not _was_clean(state, unknown_is_clean=unknown_is_clean)
                    and self._is_explained(state, unknown_is_clean=unknown_is_clean)
                )
            )
            for state in self._brokers
        )

    def _is_explained(self, registration: dict[str, Any], *, unknown_is_clean: bool) -> bool:
        """Returns whether an injected fault since the broker's last clean start explains its unclean end."""
        broker = registration["broker"]
        node = self._node_of.get(broker, f"b{broker}")
        orderly_ns = max(
            (
                state["at_ns"]
                for state in self._brokers
                if state["broker"] == broker
                and state["change"] == "registered"
                and _was_clean(state, unknown_is_clean=unknown_is_clean)
                and state["metadata_offset"] < registration["metadata_offset"]
            ),
            default=-INF_NS,
        )
        return any(
            node in fault["resolved"] and _ended_it(fault, node, orderly_ns, registration["at_ns"])
            for fault in self._faults
        )


def _was_clean(registration: dict[str, Any], *, unknown_is_clean: bool) -> bool:
    clean = registration["clean"]
    return unknown_is_clean if clean is None else bool(clean)


def _ends_after(action: dict[str, Any], at_ns: int) -> bool:
    """Returns whether an action was completed after a moment, or never for certain."""
    return action["completed_ns"] is None or bool(action["completed_ns"] >= at_ns)


def _ended_it(fault: dict[str, Any], node: str, since_ns: int, to_ns: int) -> bool:
    """Returns whether a fault may be why a node ended uncleanly between two moments."""
    invoked_ns, healed_ns = fault["invoked_ns"], fault["healed_ns"]
    is_over = healed_ns is not None and healed_ns <= since_ns
    if fault["broken_disk"] and invoked_ns <= to_ns and not is_over:
        return True
    if not since_ns < invoked_ns <= to_ns:
        return False
    return bool(fault["unclean_end"]) or node in fault["cut_short"]
