"""Elections of one partition, and which losses they explain.

A record that is gone is *excused* iff a flagged election after it was established chose a replica that did not
have it at that moment. Two refinements keep a broken implementation from hiding behind that rule:

- the first election after the record was established that chose a replica without it decides. If that one was not
  flagged, a later flagged one excuses nothing: the record was gone already. It was not gone, and the next such
  election decides, if meanwhile a replica was elected that had the record;
- with eligible leader replicas on and unclean elections off, a flagged election must itself have been unavoidable.
  Let t0 be the last moment before it with an ISR of min ISR members. Between t0 and the election, at least min ISR
  distinct brokers must have left ISR and ELR by an unclean registration or by unregistering, each after a fault
  that the harness injected since its last clean start and that explains an unclean end. Nobody may be left in ISR
  and ELR, and a last-known leader that is recorded is the only one who may be elected. What a fault explains is
  in its row of the `faults` table: it ends its nodes uncleanly (`unclean_end`), it was a disk fault in force
  meanwhile (`broken_disk`), or it was a stop that did not finish in time (`cut_short`). No name of a fault is
  known here. A system may not report whether a registration was clean. If the result depends on that, the election
  is undecided: it neither excuses a loss nor breaks a promise. Without eligible leader replicas and with unclean
  elections off, every flagged election is wrong. What an administrator did may justify it (below). Even if it was
  allowed or requested, it is wrong if a member of ISR or ELR was active: unfenced and not in controlled shutdown.
  A disk fault since the member was registered may have taken its log directory offline. If that may be so for all
  active members, it is undecided.

A record is *established* when it is committed: when the high watermark of a leader that has it passes its offset.
A client learns of it later, even after the next election. A deposed leader that does not know of the election may
establish records after it. They count as older than the election if the new leader was not in the ISR; otherwise
the old leader could not have committed anything without the new one.

Which records a replica had follows from the recorded logs (`replica_logs`). Where that is not certain, several
elections may have lost a record: without any logs all between the moment it was established and the moment it was
certainly gone. The loss is excused if each of them excuses it, a broken promise if none does, and *undecided*
otherwise. If logs were only looked at now and then, nothing but the responses to clients says when a record was
established.

In a compacted topic a replica may lack a record below its log end, because it copied a log that had been cleaned.
If the later record of the key was lost as well, nothing shows that the cleaner removed the first one. So if
another append of its key may be behind a record, no log certainly has the record, and it is undecided whether a
flagged election of a replica with such a log lost it.

If a read shows a record and began after an election, the election did not lose the record, or a replica responded
that had not heard of the election: a deposed leader or a follower of one. A consumer that fetches ahead may also
return the record. So an excused loss is undecided if all elections that may have lost the record are before such a
read, unless the response has an older leader epoch, or the logs show that the elected replica lacked the record.

A replica that does not know yet that it was elected may still follow an older leader, cut its log for it, and copy
from it. What it has is what it had when it began to lead, or heard of a later epoch, so the older leader lost the
rest. If its process ends before it hears of the election, it has what it had then. If its process is down when it
is elected, it has what it comes back with.

A leader that cuts its own log is as bad as an unflagged election. So is one that leads on with a shorter log after
its process restarted, in its leader epoch or in a later one that began without an election, and one whose process
ended after its election and before it led. Only recorded logs show it.

A controller may elect a member of the ISR that is down already, until its session ends. If the next epoch begins
before the process is back, nobody led in this one, and the election neither lost nor kept anything; unless that
epoch began without an election, so that the replica leads in it. Some systems report log ends a moment late, so
that the last report of a process that died may lack its last records.

An administrator may request an unclean election. The first election of the partition since then is the one that
was requested (`elects_uncleanly` of the `faults` table). If it is flagged and no member of ISR or ELR was active,
it is lawful, and excuses what it lost and nothing else. If it is not flagged, a member of ISR or ELR was elected,
or, while the request was open, the election was another one. Then the next one may be lawful, which is undecided.
So is an election after an administrator allowed unclean elections (`allows_unclean`), or if one changed min ISR,
replicas or feature levels between t0 and the election (`reconfigures`). Since the last state before the election
such a change may have erased the ELR, so that it says nothing; the ISR still does.

Without eligible leader replicas and with a min ISR of 1 one replica may commit alone, and what only it has is gone
if a fault destroys it there. Such a loss is excused: when the record was established, min ISR was 1, and before
the leader that lacks the record was elected, faults destroyed it on that leader and on each replica that had to
have it. These are the members of the ISR at that moment, and those that joined the ISR later, under a leader that
had not lost data in its own term by then. After a lawful flagged election only the elected replica has to have
what it has: the election gave up the others. A fault destroys nothing that is established after it is over, nor
what a replica has that joins the ISR after it, or that is elected or leads on after it was injected. If a replica
has the record, electing one without it breaks a promise. A fault that is being injected when a leader is elected
may explain what that leader lacks, and what the next one does. Another member of the ISR may still have the record
until it follows that leader. If it leads before, the record is back, and what it loses next is no longer excused.
The same holds for a leader that leads on after a restart without what faults destroyed. If not every change of the
logs is recorded, each fault that hits a leader may have been followed by such a restart: it explains a loss then,
and proves none.

A fault without effect explains nothing. If injecting it failed, it is not known whether it destroyed something, so
what it would excuse is undecided. So is a flagged election that is unavoidable only if a fault ended a node whose
evidence shows no effect: such a fault may have ended the node without damaging its disk.

What is not recorded is not known. Where states of the partition are missing (`metadata_gaps`), elections may have
been among them: what they did to records is undecided. So is what the first election after a gap did, because its
flag is about a change that is not recorded; whether a flagged election was unavoidable if states are missing since
t0; and what was on destroyed replicas only. All logs count as looked at now and then if the log of an elected
replica was not recorded when it was elected, if its record may lack what it did in its epoch, if followers copied
or clients saw more than the leader of an epoch reported, or if no leader reported an epoch that clients saw. A
producer names the epoch of its metadata, which says nothing if the elected replica had heard of a later epoch when
the append was sent.

States that were read from a controller may have been committed before they were read (`after_ns`). If that decides
whether an election was before a record was established or read, or before another record, which shows that the
first one is gone, or what faults destroyed while a replica was alone, it is undecided.

An excuse compares times of clients with times of the controller. What is closer than the clocks are to each other
(`clock_error_ns`) may have been the other way round. If the outcome depends on that, it is undecided. So is a
flagged election whose lawfulness depends on it. Where faults or replica logs count too, more clocks are compared,
and every loss that anything may excuse is undecided.

Source: `docs/variants.md`, "How a loss is judged"; KIP-966.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from checkers.kernels.fates import (
    CUT,
    EXCUSED,
    GAP,
    UNDECIDED,
    UNEXCUSED,
    Claims,
    Concerned,
    Election,
    Fates,
    Suspects,
    Written,
    fate_alone,
    perhaps_lost,
)
from checkers.kernels.history import I8, I64, INF_NS, Bools, is_word
from checkers.kernels.lawful_losses import may_have_destroyed
from checkers.kernels.led_on import NOBODY_LED_ON, Losses
from checkers.kernels.log_contents import ANY_EPOCH
from checkers.kernels.metadata_gaps import (
    NOTHING_SHOWN,
    Gap,
    MetadataGaps,
    Shown,
    earliest_ns,
    effective_min_isr,
)
from checkers.kernels.replica_logs import Joined, Moment, ReplicaLogs
from checkers.kernels.replica_reports import Elected
from checkers.kernels.unclean_elections import (
    NO_OBJECTION,
    NOT_RECORDED,
    FlaggedElections,
    Objection,
)


class Elections:
    """The elections of one partition.

    Args:
        partition_states, replica_states: The partition's rows, in any order.
        broker_states, faults: Rows of the whole run.
        elr_on: Whether eligible leader replicas are in use.
        unclean_election_enabled: Whether the configuration allows unclean elections.
        clock_error_ns: Largest difference between two clocks of the run.
        shown: What operations of the partition show of its metadata.
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
        clock_error_ns: int = 0,
        shown: Shown = NOTHING_SHOWN,
    ) -> None:
        self._clock_error_ns = clock_error_ns
        self._last_ns = INF_NS if shown.last_ns is None else shown.last_ns
        rows = partition_states.sort_by("metadata_offset").to_pylist()
        gaps = MetadataGaps(rows, shown, clock_error_ns)
        may_commit_alone = any(gaps.is_missing_before) or any(
            effective_min_isr(row) <= 1 for row in rows
        )
        self._may_destroy = (
            not elr_on and may_commit_alone and any(map(may_have_destroyed, faults.to_pylist()))
        )
        self._gaps: list[tuple[int, Gap]] = []
        """Elections that are not recorded, and how many recorded ones there were before."""
        begins = _elected(rows)
        elected = [
            Elected(
                broker=rows[index]["leader"],
                at_ns=rows[index]["at_ns"],
                epoch=rows[index]["leader_epoch"],
                until_ns=gaps.ends_ns(index),
                is_first=not index and not rows[index]["leader_epoch"],
            )
            for index in begins
        ]
        joined = _joined_in(rows, gaps)
        self._registered = broker_states.filter(
            is_word(broker_states.column("change"), "registered")
        )
        self.logs = ReplicaLogs(
            replica_states,
            elected,
            shown.epochs,
            appended_ns={
                epoch: at_ns - clock_error_ns for epoch, at_ns in shown.appended_ns.items()
            },
            shown_ends=shown.ends,
            final_end=shown.final_end,
            all_leaders_known=not gaps.may_hide_elections,
            replicas=joined,
            last_replicas=rows[-1]["replicas"] if rows else (),
            started_ns={broker: self._starts_of(broker) for broker in joined},
            elected_in=gaps.elected_in,
        )
        is_checked = elr_on and not unclean_election_enabled and broker_states.num_rows > 0
        self._counts_faults = is_checked and faults.num_rows > 0
        objections: dict[int, Objection] = {}
        if any(row["flagged"] for row in rows):
            objections = FlaggedElections(
                rows,
                begins,
                gaps,
                broker_states,
                faults,
                self.logs.node_of,
                elr_on=elr_on,
                unclean_election_enabled=unclean_election_enabled,
            ).objections(clock_error_ns)
        self._state_ns = np.array([row["at_ns"] for row in rows], dtype=np.int64)
        epochs = np.array([row["leader_epoch"] for row in rows], dtype=np.int64)
        self._state_epochs = np.maximum.accumulate(epochs)
        self._hides_creation = gaps.hides_creation
        self.elections: list[Election] = []
        is_election = {*begins}
        for index in range(len(rows) + 1):
            gap = gaps.before(index)
            if gap is not None:
                self._gaps.append((len(self.elections), gap))
            if index not in is_election:
                continue
            row, until_ns = rows[index], gaps.reign_ends_ns(index)
            if gap is not None:
                election = self._election(row, (), NOT_RECORDED, until_ns)
                self.elections.append(replace(election, follows_gap=True))
                continue
            objection = objections.get(index, NO_OBJECTION)
            before: Sequence[int] = ()
            if index or not row["flagged"]:
                # Before the first leader there was no record that it could lack.
                earlier = rows[index - 1] if index else row
                before = [*earlier["isr"], *earlier["elr"]]
            self.elections.append(self._election(row, before, objection, until_ns))
        self._led_on = NOBODY_LED_ON
        if not elr_on:
            by_row = dict(zip(begins, self.elections, strict=True))
            losses = Losses(
                rows,
                by_row,
                gaps,
                self.logs,
                faults,
                self._is_without_effect,
                lambda election: self._may_be_without_effect(election, shown),
            )
            self.elections, self._led_on = losses.elections, losses.led_on
        leader = rows[-1]["leader"] if rows else -1
        self.settled_end_offset = self._settled_end_offset(rows, leader)
        """Log end of the last leader at the end of the run; None if logs were not recorded."""
        self.log_is_gone = _is_gone(rows)
        """Whether the log itself is gone: it had replicas in committed metadata, and has none at the end."""

    def _settled_end_offset(self, rows: Sequence[dict[str, Any]], leader: int) -> int | None:
        if not self.logs:
            return None
        if leader < 0:
            leader = self.logs.last_leader
        if leader not in self.logs.node_of:
            return None
        if not self.logs.has_all_changes and rows:
            # What somebody saw of its log before it was elected says nothing about the end of the run.
            epoch = max((row["leader_epoch"] for row in rows if row["leader"] >= 0), default=-1)
            return self.logs.end_in_term(leader, epoch)
        return self.logs.end_at(leader, INF_NS)

    def _election(
        self, row: dict[str, Any], before: Sequence[int], objection: Objection, until_ns: int
    ) -> Election:
        return Election(
            at_ns=row["at_ns"],
            after_ns=earliest_ns(row),
            leader=row["leader"],
            leader_epoch=row["leader_epoch"],
            is_flagged=row["flagged"],
            is_lawful=not objection.is_certain,
            is_undecided=bool(objection.reason) and not objection.is_certain,
            was_in_isr=row["leader"] in before,
            until_ns=until_ns,
            log_end_offset=self.logs.end_at(row["leader"], row["at_ns"]) if self.logs else None,
            reason=objection.reason,
        )

    @property
    def can_excuse(self) -> bool:
        """Whether there is any election that excuses what it lost, or that may."""
        may_excuse = any(e.may_excuse_any for e in (*self.elections, *self.cuts))
        return bool(self._gaps) or may_excuse or self._compares_many_clocks

    def may_excuse_since(self, from_ns: I64, epochs: I64) -> Bools:
        """Returns which appends an election may have given up that excuses what it lost.

        Args:
            from_ns: When each was invoked.
            epochs: The leader epoch of the response, -1 if it is not known. A leader that was deposed without
                knowing it acknowledged what an election before had given up.
        """
        excusing = [e for e in (*self.elections, *self.cuts) if e.may_excuse_any]
        last_ns = max((e.at_ns for e in excusing), default=-INF_NS)
        last_epoch = max((e.leader_epoch - e.is_cut for e in excusing), default=-1)
        is_later: Bools = (from_ns <= last_ns + self._clock_error_ns) | (epochs < last_epoch)
        return is_later | bool(self._gaps)

    def led_once(self, epochs: I64, until_ns: I64) -> Bools:
        """Returns which leaders had certainly not been elected again before a moment.

        Args:
            epochs: In which each of them led.
            until_ns: The moments.
        """
        again_ns = dict.fromkeys(epochs.tolist(), INF_NS)
        for epoch in again_ns:
            before = [e for e in self.elections if e.leader_epoch <= epoch]
            later = [e for e in self.elections if e.leader_epoch > epoch]
            again_ns[epoch] = min(
                (e.earliest_ns for e in later if not before or e.leader == before[-1].leader),
                default=-INF_NS if self._gaps else INF_NS,
            )
        again = np.array([again_ns[epoch] for epoch in epochs.tolist()], dtype=np.int64)
        led_once: Bools = until_ns + self._clock_error_ns < again
        return led_once

    @property
    def _compares_many_clocks(self) -> bool:
        """Whether clocks differ, and excuses may depend on others than those of clients and controller."""
        is_excusable = bool(self._gaps) or any(e.is_flagged for e in self.elections)
        depends = self._may_destroy or (is_excusable and (self._counts_faults or bool(self.logs)))
        return depends and self._clock_error_ns > 0

    def epoch_ends(self, epochs: I64) -> I64:
        """Returns when the first election after each leader epoch was committed; infinity if there was none."""
        at = np.array([election.at_ns for election in self.elections] + [INF_NS], dtype=np.int64)
        started = np.array([election.leader_epoch for election in self.elections], dtype=np.int64)
        ends: I64 = at[np.searchsorted(np.maximum.accumulate(started), epochs, side="right")]
        return ends

    def fates(
        self, lost: Claims, until: Claims | None = None, written: Written | None = None
    ) -> Fates:
        """Returns whether the election that lost each record excuses it.

        Args:
            lost: The records.
            until: For each of them another record that proves that it was gone; only elections before that one was
                established count. None if they are gone at the end of the run: what follows the last operation of
                the partition explains nothing that clients saw.
            written: What reads show of who wrote where. A leader that wrote at an offset had nothing there when it
                was elected. Complete logs show that themselves.
        """
        last_ns = np.full(len(lost.offset), self._last_ns)
        lost = replace(lost, gone_ns=np.minimum(lost.gone_ns, last_ns))
        found = self._by_clocks(lost, until, written)
        if all(each.earliest_ns == each.at_ns for each in (*self.elections, *self.cuts)):
            return found
        outcome, election = found.outcome.copy(), found.election.copy()
        # Perhaps an election was committed before either of the two records was established, and read after it.
        early = replace(lost, elections_are_early=True)
        others: list[tuple[Claims, Claims | None]] = [(early, None)]
        if until is not None:
            until = replace(until, elections_are_early=True)
            others = [(lost, until), (early, until)]
        for one, after in others:
            other = self._by_clocks(one, after, written)
            is_unsure = other.outcome != found.outcome
            outcome[is_unsure] = UNDECIDED
            election = np.where(is_unsure & (election < 0), other.election, election)
        return Fates(outcome=outcome, election=election)

    def _by_clocks(self, lost: Claims, until: Claims | None, written: Written | None) -> Fates:
        """Returns the same for claims that state whether elections count as early."""
        found = self._fates(lost, until, written)
        error_ns = self._clock_error_ns
        if not error_ns:
            return found
        if self._compares_many_clocks:
            return replace(found, outcome=np.full_like(found.outcome, UNDECIDED))
        outcome, election = found.outcome.copy(), found.election.copy()
        # Either the record may be older and the other one later than the clocks show, or the other way round.
        for older_ns, later_ns in ((-error_ns, error_ns), (error_ns, -error_ns)):
            after = None if until is None else until.moved(-error_ns, later_ns)
            other = self._fates(lost.moved(older_ns, error_ns, later_ns), after, written)
            outcome[other.outcome != found.outcome] = UNDECIDED
            election = np.where(election < 0, other.election, election)
        return Fates(outcome=outcome, election=election)

    def _fates(self, lost: Claims, until: Claims | None, written: Written | None) -> Fates:
        if not self.logs.has_all_changes:
            return self._decided(lost, until, written)
        first = self._decided(lost.written_in(lost.low_epoch, lost.is_torn), until)
        if self.can_excuse:
            is_timeless = (
                lost.is_timeless if until is None else lost.is_timeless | until.is_timeless
            )
            first.outcome[is_timeless] = UNDECIDED
        is_torn = lost.is_torn if until is None else lost.is_torn | until.is_torn
        if not is_torn.any():
            return first
        # Written in one of several epochs: all of them must give the same result. How such a record and another
        # one followed each other is not known.
        second = self._decided(lost.written_in(lost.high_epoch, lost.is_torn), until)
        is_certain = first.outcome == second.outcome
        for epoch, wrote in self.logs.terms.wrote_at(lost.offset):
            is_between = (lost.low_epoch < epoch) & (epoch < lost.high_epoch)
            rows = np.flatnonzero(wrote & lost.is_torn & is_between)
            if len(rows):
                one = lost.take(rows).written_in(np.full(len(rows), epoch), np.bool_(True))
                other = self._decided(one, None if until is None else until.take(rows))
                is_certain[rows] &= other.outcome == first.outcome[rows]
        if until is not None:
            is_certain &= ~is_torn | (first.outcome == EXCUSED)
        outcome = np.where(is_certain, first.outcome, UNDECIDED)
        return Fates(outcome=outcome.astype(np.int8), election=first.election)

    def _decided(self, lost: Claims, until: Claims | None, written: Written | None = None) -> Fates:
        """Returns the fates by the election since which no elected replica had the record.

        Where that is not certain, several elections are candidates.
        """
        suspects = Suspects(len(lost.offset))
        # A leader whose log was cut may write where it had something when it was elected.
        cut_in = {cut.leader_epoch - 1 for cut in self.cuts}
        for number, event in self._events:
            if isinstance(event, Gap):
                suspects.elected(number, perhaps_lost(event, lost, until), may_restore=True)
                continue
            is_possible, is_certain = self._concerns(event, lost, until)
            rows = np.flatnonzero(is_possible)
            records = lost.take(rows)
            # A leader whose log was cut leads already.
            epoch = -1 if event.is_cut else event.leader_epoch
            moment = Moment(broker=event.leader, at_ns=event.at_ns, epoch=epoch)
            lacks = self.logs.lacks(moment, records)
            if written is not None and not event.is_cut and event.leader_epoch not in cut_in:
                lacks |= written.at(event.leader_epoch, records.offset)
            has = self.logs.certainly_has(moment, records)
            outcome = self._outcome(event, records, is_certain=is_certain[rows])
            if event.is_possible:
                # It explains a loss, and does not prove one.
                rows, outcome = rows[outcome > UNEXCUSED], outcome[outcome > UNEXCUSED]
                suspects.elected(number, _perhaps(rows, outcome, event, lost), may_restore=False)
                continue
            # The replica may have copied a log from which the record had been removed.
            is_unsure: Bools = has & records.may_be_removed
            # Only a replica that has not heard of the election can show what the new leader lacked.
            is_lost = is_certain[rows] | (records.high_epoch < event.leader_epoch - event.is_cut)
            suspects.elected(
                number,
                Concerned(
                    rows=rows,
                    outcome=np.where(is_unsure, np.minimum(outcome, UNDECIDED), outcome),
                    is_certain=is_certain[rows],
                    lacks=lacks,
                    has=has & ~is_unsure,
                    may_have=is_unsure,
                    read_ns=np.where(lacks & is_lost, INF_NS, _committed_ns(event, lost)),
                ),
                may_restore=event.may_restore,
            )
        # A record that is read after the other one was established is back.
        counts = True if until is None else lost.read_ns <= until.by_ns
        return suspects.fates(np.where(counts, lost.read_ns, -INF_NS))

    def _outcome(self, event: Election, lost: Claims, *, is_certain: Bools) -> I8:
        """Returns what an election means for records if it lost them."""
        outcome = EXCUSED if event.excuses else UNDECIDED if event.may_excuse else UNEXCUSED
        outcomes = np.full(len(lost.offset), outcome, dtype=np.int8)
        if event.alone:
            outcomes = np.maximum(outcomes, self._fate_alone(event, lost))
        if not self.logs.has_all_changes and event.may_lack_records:
            # Perhaps the leader that was deposed wrote the record later, or a follower showed it later.
            is_late = lost.from_ns > _committed_ns(event, lost)
            is_late &= (lost.high_epoch == ANY_EPOCH) & ~is_certain
            outcomes = np.where(is_late, np.minimum(outcomes, UNDECIDED), outcomes)
        return outcomes.astype(np.int8)

    def _fate_alone(self, event: Election, lost: Claims) -> I8:
        """Returns what an event means for records by what faults had destroyed before it."""
        found: I8 = np.maximum.reduce([fate_alone(lost, alone) for alone in event.alone])
        # What a deposed leader establishes counts as older than the election after its epoch.
        later = np.searchsorted(self._state_epochs, lost.epoch, side="right")
        last_ns = np.append(self._state_ns, INF_NS)[later] - 1
        ends = np.where(lost.epoch >= 0, last_ns, INF_NS)
        is_late = lost.from_ns > ends
        if not is_late.any():
            return found
        from_ns, by_ns = (np.where(is_late, ends, each) for each in (lost.from_ns, lost.by_ns))
        older = replace(lost, from_ns=from_ns, by_ns=by_ns)
        other = np.maximum.reduce([fate_alone(older, alone) for alone in event.alone])
        # Who had to have it, and whether a fault was after it, may depend on either moment.
        fate: I8 = np.where(found == other, found, UNDECIDED).astype(np.int8)
        return fate

    def _may_be_deposed(self, event: Election) -> bool:
        """Whether a leader may establish records after an election without knowing of it."""
        return any(gap.since_ns <= event.at_ns for _, gap in self._gaps) or any(
            not e.was_in_isr and e.at_ns <= event.at_ns for e in self.elections
        )

    def _concerns(self, event: Election, lost: Claims, until: Claims | None) -> tuple[Bools, Bools]:
        """Returns which records an election may have lost, by what is known of when, and which certainly may."""
        is_after, is_before = _is_after(event, lost), _is_before(event, lost, until)
        if event.is_possible:
            is_possible = (lost.from_ns <= _committed_ns(event, lost)) & is_before
            is_possible &= np.maximum(lost.epoch, lost.low_epoch) < event.leader_epoch
            return is_possible, np.zeros(len(is_possible), dtype=np.bool_)
        if self.logs.has_all_changes:
            between = is_after & is_before
            if event.cut_to is not None:
                # What is below the cut is still there, unless a cleaner had removed it for a record that was cut.
                between &= (lost.offset >= event.cut_to) | lost.may_be_removed
            if until is not None:
                # With recorded logs the epoch in which the other record was established is known.
                # A leader whose log was cut establishes records in the same epoch.
                first_epoch = event.leader_epoch - event.is_cut
                between &= (until.epoch < 0) | (first_epoch <= until.epoch)
                # Otherwise the election may also have been after it.
                is_later = first_epoch <= np.maximum(until.epoch, until.low_epoch)
                is_later |= _committed_ns(event, until) <= until.from_ns
                return between, between & is_later
            return between, between
        is_older = np.maximum(lost.epoch, lost.low_epoch) < event.leader_epoch
        is_known = lost.epoch >= 0
        if event.is_cut:
            # The leader may have established the record after that, in the same epoch.
            is_known &= lost.epoch < event.leader_epoch - 1
        is_certain = is_older & ((lost.by_ns <= _committed_ns(event, lost)) | is_known)
        if event.may_lack_records:
            # The record's own epoch shows the same; whether its leader had committed it is not recorded.
            is_after |= np.maximum(lost.high_epoch, lost.epoch) < event.leader_epoch
            is_after |= is_older & (lost.high_epoch == ANY_EPOCH)
        if until is not None:
            is_later = event.leader_epoch <= until.low_epoch
            if not self._may_be_deposed(event):
                is_later |= event.at_ns <= until.from_ns
            is_certain &= is_later
        possible = is_after & is_before
        return possible, is_certain & possible

    @cached_property
    def _events(self) -> tuple[tuple[int, "Election | Gap"], ...]:
        """The elections with their numbers, and in between what has none.

        That are elections that are not recorded (GAP), and the leaders whose own logs were cut (CUT). Such a cut
        is as good as an election that excuses nothing and belongs to the next epoch.
        """
        events: list[tuple[int, Election | Gap]] = []
        for number in range(len(self.elections) + 1):
            events += [(GAP, gap) for at, gap in self._gaps if at == number]
            for election in self.elections[number : number + 1]:
                if not (self._is_without_effect(election) or (not number and self._hides_creation)):
                    events.append((number, election))
        for cut in sorted(self.cuts, key=_begins_ns):
            before = [event for event in events if _begins_ns(event[1]) <= cut.at_ns]
            # Elections that are not recorded may have been before the cut, and after it.
            around = [
                (GAP, gap) for _, gap in self._gaps if gap.since_ns <= cut.at_ns < gap.until_ns
            ]
            events[len(before) : len(before)] = [(CUT, cut), *around]
        return tuple(events)

    @cached_property
    def cuts(self) -> tuple[Election, ...]:
        """The leaders whose own logs were cut, or may have been.

        Not those of leaders that had been deposed: the partition has another log then.
        """
        return *self._led_on.possible_cuts, *(
            Election(
                at_ns=cut.at_ns,
                leader=cut.broker,
                leader_epoch=cut.epoch + 1,
                is_flagged=False,
                alone=self._led_on.destroyed_before.get(cut, ()),
                cut_to=cut.end_offset,
            )
            for cut in self.logs.self_cuts
            if not any(e.leader_epoch > cut.epoch and e.at_ns <= cut.at_ns for e in self.elections)
        )

    def _is_without_effect(self, election: Election) -> bool:
        """Whether a member of the ISR was elected that was down until the next epoch began."""
        return (
            election.was_in_isr
            and not election.is_flagged
            and not election.follows_gap
            and self.logs.was_down(
                election.leader,
                election.at_ns,
                election.until_ns,
                self._starts_of(election.leader),
            )
        )

    def _may_be_without_effect(self, election: Election, shown: Shown) -> bool:
        """Whether that may be so: nothing shows that the replica led, and its process may have been down."""
        return (
            election.was_in_isr
            and not election.is_flagged
            and election.until_ns < INF_NS
            and election.leader_epoch not in shown.ends
            and not self.logs.has_all_changes
            and not self.logs.shows_leader(election.leader, election.leader_epoch)
        )

    def _starts_of(self, broker: int) -> I64:
        is_its_own = self._registered.column("broker").to_numpy() == broker
        at_ns: I64 = self._registered.column("at_ns").to_numpy()[is_its_own]
        return at_ns


def _perhaps(rows: I64, outcome: I8, event: Election, lost: Claims) -> Concerned:
    """Returns the records that something may have lost of which it is not known whether it happened."""
    nothing = np.zeros(len(rows), dtype=np.bool_)
    return Concerned(
        rows=rows,
        outcome=outcome,
        is_certain=nothing,
        lacks=nothing,
        has=nothing,
        may_have=nothing,
        read_ns=np.full(len(rows), _committed_ns(event, lost)),
    )


def _elected(rows: Sequence[dict[str, Any]]) -> list[int]:
    """Returns the indices of the states that begin with an election."""
    leaders = [-1, *(row["leader"] for row in rows)]
    return [
        index
        for index, row in enumerate(rows)
        if row["leader"] >= 0 and (row["leader"] != leaders[index] or row["flagged"])
    ]


def _joined_in(rows: Sequence[dict[str, Any]], gaps: MetadataGaps) -> dict[int, Joined]:
    """Returns when each replica became one."""
    joined: dict[int, Joined] = {}
    for row, is_late in zip(rows, gaps.is_missing_before, strict=False):
        since = Joined(at_ns=earliest_ns(row), epoch=row["leader_epoch"])
        for broker in row["replicas"]:
            joined.setdefault(broker, Joined() if is_late else since)
    return joined


def _begins_ns(event: Election | Gap) -> int:
    return event.since_ns if isinstance(event, Gap) else event.at_ns


def _is_gone(rows: Sequence[dict[str, Any]]) -> bool:
    return bool(rows) and not rows[-1]["replicas"] and any(row["replicas"] for row in rows)


def _committed_ns(election: Election, claims: Claims) -> int:
    """Returns when an election was committed, as it counts for some records."""
    return election.earliest_ns if claims.elections_are_early else election.at_ns


def _is_after(election: Election, lost: Claims) -> Bools:
    """Returns which records may have been established before an election."""
    after = lost.from_ns <= _committed_ns(election, lost)
    if not election.was_in_isr:
        # A leader that was deposed without knowing it established the record; the new one never had it.
        after |= lost.epoch >= 0
    is_older: Bools = after & (np.maximum(lost.epoch, lost.low_epoch) < election.leader_epoch)
    return is_older


def _is_before(election: Election, lost: Claims, until: Claims | None) -> Bools | np.bool_:
    """Returns before which records, or before which losses were seen, an election may have been."""
    if until is None:
        return _committed_ns(election, lost) <= lost.gone_ns
    known = np.maximum(until.epoch, until.low_epoch)
    at_ns = _committed_ns(election, until)
    before: Bools = (at_ns <= until.by_ns) | (election.leader_epoch <= known)
    return before
