"""Records that may be lost, and what elections mean for them.

Claims say what is known of records and of when they were established. An election passes over those that it
concerns, and the fate of a record is what the elections mean that may have lost it. Which elections those are, and
which of them excuse a loss, is decided in `elections.py`.

Source: `docs/variants.md`, "How a loss is judged".
"""

from dataclasses import dataclass, replace

import numpy as np

from checkers.kernels.columns import find_pairs
from checkers.kernels.destroyed import Alone
from checkers.kernels.history import I8, I64, INF_NS, Bools
from checkers.kernels.leader_terms import Records
from checkers.kernels.log_contents import ANY_EPOCH
from checkers.kernels.metadata_gaps import Gap

UNEXCUSED, UNDECIDED, EXCUSED = 0, 1, 2
"""What elections mean for a loss, the better the larger."""

_NOT_SEEN_NS = np.int64(INF_NS)

NOT_LOST, CUT, GAP = -1, -2, -3
"""Stand for the number of an election: none, a leader that cut its own log, elections that are not recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Election:
    """One committed change that gave the partition a leader, or a leader whose own log was cut.

    Attributes:
        at_ns: When it was committed, at the latest.
        after_ns: Likewise, at the earliest; None if `at_ns` is exact.
        leader, leader_epoch: The elected replica and its epoch.
        is_flagged: Whether the controller marked it unclean.
        is_lawful: False iff it is flagged although the second rule above did not allow it.
        is_undecided: Whether it is flagged, and lawful only if certain registrations were unclean, which the
            system does not report; or whether it follows a gap.
        follows_gap: Whether states right before it are missing. The epoch may have begun before, and the flag
            is about a change that is not recorded.
        was_in_isr: Whether the elected replica was in the ISR before, or in the ELR, which has as much.
        may_have_more: Whether it may have what a leader before it lacked: it was in the ISR all the time since
            faults destroyed what that leader had.
        until_ns: When the first leader epoch was committed in which the replica does not lead by this election;
            infinity if none was.
        log_end_offset: The elected replica's log end at that moment; None if logs were not recorded.
        reason: Why it is not lawful, or why that is undecided; empty otherwise.
        alone: What faults destroyed, or may have, on every replica that had to have it, as min ISR 1 allows.
        cut_to: None for an election. Otherwise the leader's own log was cut to this log end, in the epoch before
            `leader_epoch`.
        is_possible: Whether that may only have happened: a fault hit the leader, and its log is not recorded.
    """

    at_ns: int
    leader: int
    leader_epoch: int
    is_flagged: bool
    is_lawful: bool = True
    is_undecided: bool = False
    follows_gap: bool = False
    was_in_isr: bool = True
    may_have_more: bool = False
    until_ns: int = INF_NS
    log_end_offset: int | None = None
    reason: str = ""
    alone: tuple[Alone, ...] = ()
    after_ns: int | None = None
    cut_to: int | None = None
    is_possible: bool = False

    @property
    def is_cut(self) -> bool:
        """Whether it is no election, but a leader whose own log was cut."""
        return self.cut_to is not None

    @property
    def earliest_ns(self) -> int:
        """When it was committed at the earliest."""
        return self.at_ns if self.after_ns is None else self.after_ns

    @property
    def excuses(self) -> bool:
        """Whether all that it lost is excused."""
        return self.is_flagged and self.is_lawful and not self.is_undecided

    @property
    def may_excuse(self) -> bool:
        """Whether all that it lost is excused, as far as is known."""
        return (self.is_flagged or self.follows_gap) and self.is_lawful

    @property
    def may_excuse_any(self) -> bool:
        """Whether anything that it lost is excused, as far as is known."""
        return self.may_excuse or bool(self.alone)

    @property
    def alone_since_ns(self) -> int:
        """Records established since then were certainly on destroyed replicas only; infinity if there are none."""
        return min((each.since_ns for each in self.alone), default=INF_NS)

    @property
    def may_restore(self) -> bool:
        """Whether the elected replica may have had what the leader before it lacked."""
        return not self.was_in_isr or self.may_have_more

    @property
    def may_lack_records(self) -> bool:
        """Whether a replica that has not heard of it may lawfully show what the new leader lacks."""
        return not self.was_in_isr or bool(self.alone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims(Records):
    """Records that were at certain offsets, each with what is known of when.

    Shape:
        from_ns: the moment before which it was not established, one row per record.
        epoch: a leader epoch in which it was established already, -1 if none is known.
        may_be_removed: whether a cleaner may have removed it, as a later record of its key permits.
        read_ns: when the last read was invoked that shows it and whose leader epoch is not known, minus infinity
            if there is none.
        gone_ns: when clients saw at the latest that it was gone, infinity if that is not known.
        elections_are_early: whether elections count as committed at the earliest moment, when it is compared with
            those of these records.
    """

    from_ns: I64
    epoch: I64
    may_be_removed: Bools | np.bool_ = np.False_
    read_ns: I64
    gone_ns: I64 | np.int64 = _NOT_SEEN_NS
    elections_are_early: bool = False

    @property
    def is_torn(self) -> Bools:
        """Which records were written in one of several epochs, as far as is known."""
        torn: Bools = (self.low_epoch < self.high_epoch) & (self.high_epoch < ANY_EPOCH)
        return torn

    @property
    def is_timeless(self) -> Bools:
        """Which records were established nobody knows when: `from_ns` is minus infinity."""
        timeless: Bools = self.from_ns <= -INF_NS
        return timeless

    def moved(self, from_ns: int, by_ns: int, gone_ns: int = 0) -> "Claims":
        """Returns the claims with other bounds of when they were established; what is unknown stays so."""
        return replace(
            self,
            from_ns=np.where(abs(self.from_ns) < INF_NS, self.from_ns + from_ns, self.from_ns),
            by_ns=np.where(abs(self.by_ns) < INF_NS, self.by_ns + by_ns, self.by_ns),
            read_ns=self.read_ns + from_ns,
            gone_ns=np.where(self.gone_ns < INF_NS, self.gone_ns + gone_ns, self.gone_ns),
        )

    def written_in(self, epoch: I64, rows: Bools | np.bool_) -> "Claims":
        """Returns the claims with some of them written in certain epochs."""
        return replace(
            self,
            low_epoch=np.where(rows, epoch, self.low_epoch),
            high_epoch=np.where(rows, epoch, self.high_epoch),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Which leader epochs wrote at which offsets: pairs, ascending and distinct."""

    epoch: I64
    offset: I64

    @classmethod
    def of(cls, epochs: I64, offsets: I64) -> "Written":
        """Returns what the stamps of records show; those without one have the epoch -1."""
        order = np.lexsort((offsets, epochs))
        order = order[epochs[order] >= 0]
        epoch, offset = epochs[order], offsets[order]
        head = np.append(True, (epoch[1:] != epoch[:-1]) | (offset[1:] != offset[:-1]))
        return cls(epoch=epoch[head[: len(order)]], offset=offset[head[: len(order)]])

    def at(self, epoch: int, offsets: I64) -> Bools:
        """Returns at which offsets an epoch wrote."""
        if not len(self.epoch):
            return np.zeros(len(offsets), dtype=np.bool_)
        return find_pairs(self.epoch, self.offset, np.full(len(offsets), epoch), offsets)[1]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Concerned:
    """Records that an election may have lost.

    Shape:
        rows: which of all, as the others one row per record.
        outcome: what the election means if it lost them.
        is_certain: whether they were established before the election and not known to be gone.
        lacks, has: whether the elected replica certainly lacked, or had, the record; at most one of them.
        may_have: whether it had the record unless a cleaner had removed it.
        read_ns: up to when a read may begin that shows the record although the election lost it; infinity if only
            replicas that had not heard of the election can have shown it since.
    """

    rows: I64
    outcome: I8
    is_certain: Bools
    lacks: Bools
    has: Bools
    may_have: Bools
    read_ns: I64


def perhaps_lost(gap: Gap, lost: Claims, until: Claims | None) -> Concerned:
    """Returns the records that elections which are not recorded may have lost; what that means is not known."""
    known = np.maximum(lost.epoch, lost.low_epoch)
    # A leader that was deposed in the gap may have established records after it.
    is_older = np.maximum(lost.high_epoch, lost.epoch) < gap.last_epoch
    may_be = (lost.from_ns <= gap.until_ns) | is_older | (lost.high_epoch == ANY_EPOCH)
    may_be &= known < gap.last_epoch
    if until is None:
        may_be &= gap.since_ns <= lost.gone_ns
    else:
        after = np.maximum(until.epoch, until.low_epoch)
        may_be &= (gap.since_ns <= until.by_ns) | (gap.first_epoch <= after)
    rows = np.flatnonzero(may_be)
    nothing = np.zeros(len(rows), dtype=np.bool_)
    return Concerned(
        rows=rows,
        outcome=np.full(len(rows), UNDECIDED, dtype=np.int8),
        is_certain=nothing,
        lacks=nothing,
        has=nothing,
        may_have=nothing,
        read_ns=np.full(len(rows), INF_NS),
    )


class Suspects:
    """Which elections may have lost each of some records, as elections are passed in order. Mutable.

    Args:
        count: How many records.
    """

    def __init__(self, count: int) -> None:
        self._may_be_there = np.ones(count, dtype=np.bool_)
        self._may_mean = np.zeros((3, count), dtype=np.bool_)
        self._first = np.full(count, NOT_LOST, dtype=np.int64)
        self._read_ns = np.full(count, -INF_NS, dtype=np.int64)

    def elected(self, number: int, records: Concerned, *, may_restore: bool) -> None:
        """Takes the next election.

        Args:
            number: Its number.
            records: The records that it concerns.
            may_restore: Whether the elected replica may have had what the leader before did not have, where the
                logs do not show whether it had it.
        """
        rows = records.rows
        self._may_be_there[rows[records.may_have]] = True
        may_lose = self._may_be_there[rows] & ~records.has
        losing = rows[may_lose]
        self._may_mean[records.outcome[may_lose], losing] = True
        self._first[losing[self._first[losing] == NOT_LOST]] = number
        self._read_ns[losing] = np.maximum(self._read_ns[losing], records.read_ns[may_lose])
        self._may_be_there[rows[records.lacks & records.is_certain]] = False
        self._may_be_there[rows[records.has | (~records.lacks & may_restore)]] = True
        there = rows[records.has & records.is_certain]
        self._may_mean[:, there] = False
        self._first[there] = NOT_LOST
        self._read_ns[there] = -INF_NS

    def fates(self, read_ns: I64) -> Fates:
        """Returns the fates of records that are gone after the last election.

        Args:
            read_ns: When the last read of each was invoked whose leader epoch is not known.
        """
        may_mean = self._may_mean
        outcome = np.full(len(self._first), UNDECIDED, dtype=np.int8)
        outcome[~may_mean[UNDECIDED] & ~may_mean[EXCUSED]] = UNEXCUSED
        is_excused = may_mean[EXCUSED] & ~may_mean[UNDECIDED] & ~may_mean[UNEXCUSED]
        outcome[is_excused & (read_ns <= self._read_ns)] = EXCUSED
        return Fates(outcome=outcome, election=np.maximum(self._first, -1))


def fate_alone(lost: Claims, alone: Alone) -> I8:
    """Returns what becomes of records if those of a certain time were on destroyed replicas only."""
    # A record that was never established by anything known has no moment to compare.
    may_be_late = (lost.by_ns > alone.until_ns) & (lost.by_ns < INF_NS)
    # One of an unknown epoch may be older than the first time that a client saw it.
    is_late = may_be_late & (lost.from_ns > alone.until_ns) & (lost.high_epoch < ANY_EPOCH)
    fate = np.where((lost.by_ns >= alone.perhaps_since_ns) & ~is_late, UNDECIDED, UNEXCUSED)
    if alone.since_ns < INF_NS:
        fate[(lost.from_ns >= alone.since_ns) & ~may_be_late] = EXCUSED
    return fate.astype(np.int8)
