"""What elections mean for a record that is gone, one record and one election after the other."""

import random
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from checkers.kernels.elections import Elections
from checkers.kernels.fates import EXCUSED, UNDECIDED, UNEXCUSED, Claims
from checkers.kernels.history import INF_NS
from checkers.kernels.log_contents import ANY_EPOCH
from tests.anomalies.runs import heard, replica, state, table
from tests.property.naive_replica_logs import Led, NaiveLogs
from tests.property.test_replica_logs_by_replay import random_rows

CASES = 240
NONE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One row of `Claims`."""

    offset: int
    low_epoch: int
    high_epoch: int
    from_ns: int
    by_ns: int
    epoch: int
    read_ns: int = -INF_NS
    is_early: bool = False

    @property
    def is_torn(self) -> bool:
        return self.low_epoch < self.high_epoch < ANY_EPOCH

    def written_in(self, epoch: int) -> tuple[int, int]:
        return (epoch, epoch) if self.is_torn else (self.low_epoch, self.high_epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An election, or a leader that cut its own log, which excuses nothing and has no number."""

    number: int
    at_ns: int
    leader: int
    epoch: int
    excuses: bool
    was_in_isr: bool
    until_ns: int = INF_NS
    is_known: bool = True
    after_ns: int | None = None
    cut_to: int | None = None
    """The log end to which a leader cut its own log."""

    @property
    def led_since(self) -> int:
        """The epoch in which it begins to lead, or leads already when it cuts its log."""
        return self.epoch if self.cut_to is None else self.epoch - 1

    def committed_ns(self, claim: Claim) -> int:
        """Returns when it was committed: at the earliest, if that is what counts for a record."""
        return self.at_ns if self.after_ns is None or not claim.is_early else self.after_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Unrecorded:
    """Elections that may have been between two states."""

    since_ns: int
    until_ns: int
    epochs: tuple[int, ...]
    number: int = NONE

    def may_concern(self, lost: Claim, until: Claim | None, low: int) -> bool:
        """Whether one of them may have been after a record was established, and before another one was."""
        later = [epoch for epoch in self.epochs if epoch > max(low, lost.epoch)]
        if not later:
            return False
        # Or a leader that one of them deposed established it.
        in_time = lost.from_ns <= self.until_ns or lost.high_epoch == ANY_EPOCH
        in_time |= max(lost.high_epoch, lost.epoch) < self.epochs[-1]
        if until is None or self.since_ns <= until.by_ns:
            return in_time
        return in_time and self.epochs[0] <= max(until.epoch, until.low_epoch)


Course = tuple[Event | Unrecorded, int, int]
"""What lost a record, what that means, and up to when a read of it may have begun."""


class NaiveElections:
    """The elections of one partition whose flagged ones are all lawful."""

    def __init__(self, states: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
        self.elections: list[Event] = []
        self.unrecorded: list[Unrecorded] = []
        events: list[Event | Unrecorded] = []
        led = []
        # If the first recorded election is flagged, who was in the ISR before is not known.
        leader, eligible = NONE, states[0]["isr"] if states and not states[0]["flagged"] else []
        for index, row in enumerate(states):
            missing = unrecorded_before(states, index)
            if missing:
                self.unrecorded.append(missing)
                events.append(missing)
            if row["leader"] >= 0 and (row["leader"] != leader or row["flagged"]):
                until_ns = ends_ns(states, index)
                is_first = index == 0 and row["leader_epoch"] == 0
                led.append(
                    Led(
                        broker=row["leader"],
                        at_ns=row["at_ns"],
                        epoch=row["leader_epoch"],
                        until_ns=until_ns,
                        is_first=is_first,
                    )
                )
                self.elections.append(
                    Event(
                        number=len(self.elections),
                        at_ns=row["at_ns"],
                        leader=row["leader"],
                        epoch=row["leader_epoch"],
                        excuses=row["flagged"] and not missing,
                        was_in_isr=row["leader"] in eligible and not missing,
                        until_ns=reign_ends_ns(states, index),
                        is_known=not missing,
                        after_ns=row["after_ns"],
                    )
                )
                events.append(self.elections[-1])
            leader, eligible = row["leader"], row["isr"]
        self.last_leader = leader
        self.last_epoch = max((r["leader_epoch"] for r in states if r["leader"] >= 0), default=NONE)
        self.has_states = bool(states)
        self.logs = logs = NaiveLogs(
            rows, led, all_leaders_known=not self.unrecorded, elected_in=elected_in(states)
        )
        self.events = [
            one
            for one in events
            if isinstance(one, Unrecorded)
            or not one.was_in_isr
            or one.excuses
            or not logs.was_down(one.leader, one.at_ns, one.until_ns, [])
        ]
        for at_ns, epoch, broker, cut_to, _ in logs.self_cuts():
            if any(e.epoch > epoch and e.at_ns <= at_ns for e in self.elections):
                continue
            cut = Event(
                number=NONE,
                at_ns=at_ns,
                leader=broker,
                epoch=epoch + 1,
                excuses=False,
                was_in_isr=True,
                cut_to=cut_to,
            )
            begins = [e.since_ns if isinstance(e, Unrecorded) else e.at_ns for e in self.events]
            self.events.insert(sum(begin_ns <= at_ns for begin_ns in begins), cut)

    def epoch_end(self, epoch: int) -> int:
        return next((e.at_ns for e in self.elections if e.epoch > epoch), INF_NS)

    def settled_end(self) -> int | None:
        if not self.logs.replicas:
            return None
        leader = self.last_leader
        if leader < 0:
            leader = self.logs.reigns[-1].broker if self.logs.reigns else NONE
        if leader not in self.logs.replicas:
            return None
        if self.logs.has_all_changes or not self.has_states:
            return self.logs.end_at(leader, INF_NS)
        ends = [
            len(moment.log)
            for moment in self.logs.replicas[leader].moments
            if (moment.row["role"], moment.row["leader_epoch"]) == ("leader", self.last_epoch)
        ]
        return ends[-1] if ends else None

    def fate(self, lost: Claim, until: Claim | None) -> tuple[int, int]:
        """Returns the outcome and the number of the election."""
        if not self.logs.has_all_changes:
            return self._decided(lost, until, (lost.low_epoch, lost.high_epoch))
        first = self._decided(lost, until, lost.written_in(lost.low_epoch))
        wrote = [
            reign.epoch
            for reign in self.logs.reigns
            if any(begin <= lost.offset < stop for _, begin, stop in reign.writes)
        ]
        epochs = [e for e in wrote if lost.is_torn and lost.low_epoch < e < lost.high_epoch]
        others = [
            self._decided(lost, until, lost.written_in(epoch))
            for epoch in (*epochs, lost.high_epoch)
        ]
        is_torn = lost.is_torn or (until is not None and until.is_torn)
        is_certain = all(first[0] == other[0] for other in others)
        if until is not None and is_torn and first[0] != EXCUSED:
            is_certain = False
        return (first[0] if is_certain else UNDECIDED), first[1]

    def _decided(
        self, lost: Claim, until: Claim | None, epochs: tuple[int, int]
    ) -> tuple[int, int]:
        """Follows every possible course of events; None is that the record is still there."""
        low, high = epochs
        courses: set[Course | None] = {None}
        for event in self.events:
            if isinstance(event, Unrecorded):
                if event.may_concern(lost, until, low):
                    # What was there may be lost then, what was lost may be back.
                    courses |= {course or (event, UNDECIDED, INF_NS) for course in courses} | {None}
                continue
            may_concern, certainly = self._concerns(event, lost, until, low)
            if not may_concern:
                continue
            has, lacks = self._state(event, lost, low, high)
            # If it certainly lost the record, any read since then is one of an older log.
            is_known = lacks and (certainly or high < event.led_since)
            read_ns = INF_NS if is_known else event.committed_ns(lost)
            after: set[Course | None] = set()
            for course in courses:
                lost_now = course or (event, self._outcome(event, lost, certainly), read_ns)
                if has:
                    after |= {None}
                elif lacks:
                    after |= {lost_now}
                else:
                    # A member of the ISR has nothing that the leader before did not have.
                    restores = not event.was_in_isr and not self.logs.has_all_changes
                    after |= {lost_now, None if restores else course}
                if not certainly:
                    after |= {course}
            courses = after
        losses = sorted((c for c in courses if c), key=lambda c: self.events.index(c[0]))
        outcomes = {outcome for _, outcome, _ in losses} or {UNEXCUSED}
        outcome = outcomes.pop() if len(outcomes) == 1 else UNDECIDED
        counts = until is None or lost.read_ns <= until.by_ns
        if outcome == EXCUSED and counts and lost.read_ns > max(at_ns for *_, at_ns in losses):
            outcome = UNDECIDED
        return outcome, losses[0][0].number if losses else NONE

    def _state(self, event: Event, lost: Claim, low: int, high: int) -> tuple[bool, bool]:
        place = (event.leader, event.at_ns)
        if self.logs.has_all_changes:
            # A leader that cuts its log leads already.
            epoch = event.epoch if event.cut_to is None else NONE
            record = (epoch, lost.offset, low, high)
            has = self.logs.certainly_has(*place, *record, lost.by_ns)
            return has, self.logs.lacks(*place, *record)
        has = self.logs.had_before_and_after(*place, lost.offset, low, high)
        if event.cut_to is not None:
            return has, self.logs.lacks(*place, NONE, lost.offset, low, high)
        return has, self.logs.lacks_later(*place, event.epoch, lost.offset, low, high)

    def _outcome(self, event: Event, lost: Claim, certainly: bool) -> int:
        if not event.is_known:
            return UNDECIDED
        if not event.excuses:
            return UNEXCUSED
        is_late = lost.from_ns > event.committed_ns(lost) and lost.high_epoch == ANY_EPOCH
        perhaps = is_late and not event.was_in_isr and not certainly
        return UNDECIDED if perhaps and not self.logs.has_all_changes else EXCUSED

    def _concerns(
        self, event: Event, lost: Claim, until: Claim | None, low: int
    ) -> tuple[bool, bool]:
        """Whether an election may have come between two records, and whether it certainly did."""
        is_after, is_before = _is_after(event, lost, low), _is_before(event, until)
        if self.logs.has_all_changes:
            is_after &= event.cut_to is None or lost.offset >= event.cut_to
            # A leader that cuts its log establishes records in the same epoch afterwards.
            is_known = until is None or until.epoch < 0 or event.led_since <= until.epoch
            return is_after and is_before and is_known, is_after and is_before and is_known
        is_older = max(lost.epoch, low) < event.epoch
        if not event.was_in_isr:
            is_after |= max(lost.high_epoch, lost.epoch) < event.epoch
            is_after |= is_older and lost.high_epoch == ANY_EPOCH
        # A leader that cuts its log may establish records in that epoch afterwards.
        is_known = 0 <= lost.epoch < event.led_since
        was_there = lost.by_ns <= event.committed_ns(lost) or is_known
        comes_first = (
            until is None
            or (
                event.at_ns <= until.from_ns
                and all(e.was_in_isr for e in self.elections if e.at_ns <= event.at_ns)
                and all(one.since_ns > event.at_ns for one in self.unrecorded)
            )
            or event.epoch <= until.low_epoch
        )
        may_concern = is_after and is_before
        return may_concern, may_concern and is_older and was_there and comes_first


def fate_by_clocks(
    naive: NaiveElections, lost: Claim, until: Claim | None, error: int
) -> tuple[int, int]:
    """Returns the fate if it is the same whatever the clocks of clients show too late or too early."""
    fates = [naive.fate(lost, until)]
    if error:
        lost = replace(lost, by_ns=lost.by_ns + error)
        earliest, latest = (
            replace(lost, from_ns=lost.from_ns + ns, read_ns=lost.read_ns + ns)
            for ns in (-error, error)
        )
        last = until and replace(until, from_ns=until.from_ns - error, by_ns=until.by_ns + error)
        first = until and replace(until, from_ns=until.from_ns - error, by_ns=until.by_ns - error)
        fates += [naive.fate(earliest, last), naive.fate(latest, first)]
    is_excusable = bool(naive.unrecorded) or any(e.excuses for e in naive.elections)
    if error and is_excusable and naive.logs.replicas:
        return UNDECIDED, fates[0][1]  # the clocks of brokers count too
    outcomes = {outcome for outcome, _ in fates}
    named = (number for _, number in fates if number != NONE)
    return outcomes.pop() if len(outcomes) == 1 else UNDECIDED, next(named, NONE)


def fate_by_moments(
    naive: NaiveElections, lost: Claim, until: Claim | None, error: int
) -> tuple[int, int]:
    """Returns the fate if it is the same whenever elections were committed that were read late."""
    outcome, number = first, _ = fate_by_clocks(naive, lost, until, error)
    early = until and replace(until, is_early=True)
    for claim in (lost, replace(lost, is_early=True)):
        other, named = fate_by_clocks(naive, claim, early, error)
        if other != first:
            outcome, number = UNDECIDED, named if number == NONE else number
    return outcome, number


def unrecorded_before(states: list[dict[str, Any]], index: int) -> Unrecorded | None:
    """Returns the elections that may have been right before a state, that of its epoch included."""
    row, before = states[index], states[index - 1] if index else None
    known = 0 if before is None else before["leader_epoch"]
    if known == row["leader_epoch"] or (before and not lacks_states_between(states, before, row)):
        return None
    epochs = [*range(known + 1, row["leader_epoch"] + 1)]
    if row["leader"] < 0 or (before is None and row["flagged"]):
        epochs.pop()
    if not epochs:
        return None
    since_ns = -INF_NS
    if before is not None:
        since_ns = before["at_ns"] if before["after_ns"] is None else before["after_ns"]
    return Unrecorded(since_ns=since_ns, until_ns=row["at_ns"], epochs=tuple(epochs))


def lacks_states_between(
    states: list[dict[str, Any]], before: dict[str, Any], row: dict[str, Any]
) -> bool:
    steps = [row[name] - before[name] for name in ("leader_epoch", "partition_epoch")]
    has_isr = any(sorted(one["isr"]) != sorted(one["replicas"]) for one in states)
    return steps[0] > 1 or (has_isr and steps[1] > 1)


def elected_in(states: list[dict[str, Any]]) -> dict[int, int]:
    """Returns for each epoch in which a leader stayed the one in which it was elected."""
    found: dict[int, int] = {}
    for before, row in pairwise(states):
        last, epoch = before["leader_epoch"], row["leader_epoch"]
        is_missing = lacks_states_between(states, before, row)
        is_elected = row["flagged"] or row["leader"] < 0 or row["leader"] != before["leader"]
        if epoch > last and not (is_missing or is_elected):
            found[epoch] = found.get(last, last)
    return found


def ends_ns(states: list[dict[str, Any]], index: int) -> int:
    """Returns when the next leader epoch began, or the moment after the last state of this one."""
    epoch = states[index]["leader_epoch"]
    for before, row in pairwise(states[index:]):
        if row["leader_epoch"] > epoch:
            is_missing = lacks_states_between(states, before, row)
            return int(before["at_ns"] + 1 if is_missing else row["at_ns"])
    return INF_NS


def reign_ends_ns(states: list[dict[str, Any]], index: int) -> int:
    """Returns the same for all epochs in which the leader leads by one election."""
    epoch, reigns = states[index]["leader_epoch"], elected_in(states)
    while index + 1 < len(states):
        other = states[index + 1]["leader_epoch"]
        if reigns.get(other, other) != epoch:
            break
        index += 1
    return ends_ns(states, index)


def _is_after(event: Event, lost: Claim, low: int) -> bool:
    in_time = lost.from_ns <= event.committed_ns(lost) or (not event.was_in_isr and lost.epoch >= 0)
    return in_time and max(lost.epoch, low) < event.epoch


def _is_before(event: Event, until: Claim | None) -> bool:
    if until is None:
        return True
    return event.committed_ns(until) <= until.by_ns or event.epoch <= max(
        until.epoch, until.low_epoch
    )


def random_states(rng: random.Random) -> list[dict[str, Any]]:
    states, now, epoch = [], 0, 0
    changes = 0
    steps = rng.choice(((0, 1, 1), (0, 1, 1), (0, 1, 1), (0, 1, 1, 1, 1, 2)))
    for number in range(rng.randint(0, 7)):
        now += rng.choice((0, 1, 5, 8))
        leader = rng.choice((-1, 0, 1, 2, 3))
        epoch += rng.choice(steps if number else (0, 0, 0, 1))
        isr = sorted(rng.sample((0, 1, 2, 3), rng.randint(1, 3)))
        flagged = leader >= 0 and rng.random() < 0.5
        changes += 2 if rng.random() < 0.03 else 1
        row = state(now, leader, isr, epoch=epoch, flagged=flagged, metadata_offset=number)
        states.append(row | {"partition_epoch": changes, "after_ns": None})
    return states


def read_late(states: list[dict[str, Any]], rng: random.Random) -> list[dict[str, Any]]:
    """Returns the same states if some of them were read late from a controller."""
    return [{**row, "after_ns": max(0, row["at_ns"] - rng.choice((0, 1, 6, 15)))} for row in states]


def random_case(rng: random.Random) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns states and rows of replicas."""
    states = random_states(rng)
    rows = random_rows(rng) if rng.random() < 0.7 else []
    if rows and rng.random() < 0.8:
        # All replicas are recorded from the start.
        rows = [*(replica(-1, b, 0, cause="load") for b in range(4)), *rows]
    if rng.random() < 0.8:
        # Every process that runs hears of the last election.
        rows = heard(rows, states)
    if rng.random() < 0.4:
        states = read_late(states, rng)
    return states, rows


def random_claim(rng: random.Random) -> Claim:
    low, high = sorted((rng.randint(0, 5), rng.randint(0, 5)))
    low, high = rng.choice(((-1, ANY_EPOCH), (low, ANY_EPOCH), (low, low), (low, high)))
    from_ns, by_ns = sorted((rng.randint(0, 40), rng.randint(0, 40)))
    return Claim(
        offset=rng.randint(0, 6),
        low_epoch=low,
        high_epoch=high,
        from_ns=from_ns,
        by_ns=by_ns,
        epoch=rng.choice((-1, rng.randint(0, 6))),
        read_ns=rng.choice((-INF_NS, from_ns, rng.randint(0, 40))),
    )


def columns(claims: list[Claim]) -> Claims:
    names = ("offset", "low_epoch", "high_epoch", "from_ns", "by_ns", "epoch", "read_ns")
    return Claims(
        **{name: np.array([getattr(c, name) for c in claims], dtype=np.int64) for name in names}
    )


@pytest.mark.parametrize("part", range(12))
def test_fates_are_those_of_one_record_after_the_other(part: int) -> None:
    for number in range(part * CASES // 12, (part + 1) * CASES // 12):
        rng = random.Random(f"elections/{number}")
        states, rows = random_case(rng)
        naive = NaiveElections(states, rows)
        error = rng.choice((0, 0, 1, 4))
        shuffled = rng.sample(states, len(states))
        elr_on = rng.random() < 0.5
        elections = Elections(
            table("partition_states", shuffled),
            table("replica_states", rows),
            table("broker_states", []),
            table("faults", []),
            elr_on=elr_on,
            # Without broker states every flagged election is lawful then.
            unclean_election_enabled=not elr_on,
            clock_error_ns=error,
        )
        assert elections.settled_end_offset == naive.settled_end()
        may_excuse = any(e.excuses for e in naive.elections) or bool(naive.unrecorded)
        assert elections.can_excuse == may_excuse
        epochs = np.arange(-1, 12)
        assert elections.epoch_ends(epochs).tolist() == [naive.epoch_end(e) for e in epochs]
        for count in (1, 1, 1, 1, 8):
            lost = [random_claim(rng) for _ in range(count)]
            until = [random_claim(rng) for _ in range(count)] if rng.random() < 0.6 else None
            fates = elections.fates(columns(lost), columns(until) if until else None)
            expected = [
                fate_by_moments(naive, claim, until[at] if until else None, error)
                for at, claim in enumerate(lost)
            ]
            found = list(zip(fates.outcome.tolist(), fates.election.tolist(), strict=True))
            assert found == expected, f"case {number}: {states} {rows} {lost} {until}"


def test_some_random_logs_are_complete_and_some_states_are_missing() -> None:
    found = [NaiveElections(*random_case(random.Random(f"elections/{n}"))) for n in range(CASES)]
    assert sum(one.logs.has_all_changes for one in found) > CASES // 20
    assert sum(bool(one.unrecorded) for one in found) > CASES // 10


def test_of_two_fates_the_better_one_counts_and_of_equal_ones_the_first() -> None:
    from checkers.kernels.fates import Fates

    outcomes = [UNEXCUSED, UNDECIDED, EXCUSED]
    first = [a for a in outcomes for _ in outcomes]
    second = [b for _ in outcomes for b in outcomes]
    both = Fates(
        outcome=np.array(first, dtype=np.int8), election=np.full(9, 1, dtype=np.int64)
    ).or_else(
        Fates(outcome=np.array(second, dtype=np.int8), election=np.full(9, 2, dtype=np.int64))
    )
    assert both.outcome.tolist() == [max(pair) for pair in zip(first, second, strict=True)]
    assert both.election.tolist() == [
        1 if a >= b else 2 for a, b in zip(first, second, strict=True)
    ]
