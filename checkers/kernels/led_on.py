"""What faults had destroyed before each election, and before a leader led on after a restart.

`elections` states the rules, `destroyed` finds what faults destroyed. Without eligible leader replicas and with a
min ISR of 1, a loss may be excused by that.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from checkers.kernels.destroyed import Alone, Destroyed, Hit, Led
from checkers.kernels.fates import Election
from checkers.kernels.history import INF_NS
from checkers.kernels.log_contents import ANY_EPOCH
from checkers.kernels.metadata_gaps import MetadataGaps, earliest_ns
from checkers.kernels.replica_logs import ReplicaLogs, SelfCut


@dataclass(frozen=True, slots=True, kw_only=True)
class LedOn:
    """What leaders lost, or may have, that led on.

    Attributes:
        destroyed_before: What faults had destroyed when a leader led on whose log was cut, where they had
            destroyed anything.
        possible_cuts: Cuts that no log shows and that faults may have caused.
    """

    destroyed_before: Mapping[SelfCut, tuple[Alone, ...]] = field(default_factory=dict)
    possible_cuts: tuple[Election, ...] = ()


NOBODY_LED_ON = LedOn()


class Losses:
    """Passes the states of one partition in order and finds what faults had destroyed. Mutable while it does.

    Args:
        rows: The states.
        elected: The elections, by the row that begins with each.
        gaps: What is missing of the states.
        logs: The logs of the replicas.
        faults: Rows of the whole run.
        is_without_effect: Whether nobody led by an election.
        may_be_without_effect: Whether that may be so, where it is not known.

    Attributes:
        elections: The elections with what faults had destroyed before each of them.
        led_on: The same of leaders that led on.
    """

    def __init__(
        self,
        rows: Sequence[dict[str, Any]],
        elected: Mapping[int, Election],
        gaps: MetadataGaps,
        logs: ReplicaLogs,
        faults: pa.Table,
        is_without_effect: Callable[[Election], bool],
        may_be_without_effect: Callable[[Election], bool],
    ) -> None:
        gives_up = {
            index: e.excuses for index, e in elected.items() if e.is_flagged and e.is_lawful
        }
        self._rows, self._gaps, self._logs = rows, gaps, logs
        self._is_without_effect = is_without_effect
        self._may_be_without_effect = may_be_without_effect
        self._destroyed = Destroyed([*rows], gaps, faults, logs.node_of, gives_up)
        # Without a restart the leader itself cut its log.
        self._cuts = {(cut.at_ns, cut.broker): cut for cut in logs.self_cuts if cut.has_restarted}
        # If logs were looked at now and then, a leader may have lost more than was seen when it led on.
        self._moments = logs.led_on if logs.has_all_changes else tuple(self._cuts)
        self._led: dict[int, Led] = {}
        self._leader, self._reign_ends_ns = -1, INF_NS
        self._with_more: set[int] = set()
        """Members of the ISR that may have what the leader lacks."""
        self._before_cuts: dict[SelfCut, tuple[Alone, ...]] = {}
        self.elections: list[Election] = []
        possible: list[Election] = []
        for index, row in enumerate(rows):
            until_ns = rows[index + 1]["at_ns"] if index + 1 < len(rows) else INF_NS
            if index in elected:
                self._elect(index, elected[index])
            self._lead_on(index, until_ns)
            self._with_more &= {*row["isr"]}
            possible += self._possible_cuts(index, until_ns)
        possible += self._possible_cuts_in_gaps()
        self.led_on = LedOn(
            destroyed_before=self._before_cuts,
            possible_cuts=tuple(cut for cut in possible if cut.alone),
        )

    def _elect(self, index: int, election: Election) -> None:
        """Takes the next election."""
        election = replace(election, may_have_more=election.leader in self._with_more)
        led_ns = self._logs.led_after_restart_ns(
            election.leader, election.at_ns, election.leader_epoch
        )
        if not election.is_flagged:
            alone = self._destroyed.before(index, self._led, led_ns)
            election = replace(election, alone=alone)
            # The other members follow it later; until then they may have what it lacks.
            isr = {*self._rows[index]["isr"]}
            self._with_more |= isr - {election.leader} if alone else set()
        self.elections.append(election)
        if not self._is_without_effect(election):
            self._leader, self._reign_ends_ns = election.leader, election.until_ns
            earliest_ns = election.earliest_ns
            if self._may_be_without_effect(election):
                before = self._led.get(election.leader)
                earliest_ns = -INF_NS if before is None else before.earliest_ns
            self._led[election.leader] = Led(earliest_ns=earliest_ns, at_ns=election.at_ns)
            if led_ns is not None and self._logs.has_all_changes:
                self._led[election.leader] = Led(earliest_ns=led_ns, at_ns=led_ns)

    def _lead_on(self, index: int, until_ns: int) -> None:
        """Takes the leaders that led on while a state was in force, or before a first one that is late."""
        row, leader = self._rows[index], self._leader
        is_late = not index and self._gaps.is_missing_before[0]
        since_ns = -INF_NS if is_late else row["at_ns"]
        is_missing = self._gaps.is_missing_before[index + 1]
        for at_ns, broker in (each for each in self._moments if since_ns <= each[0] < until_ns):
            cut = self._cuts.get((at_ns, broker))
            alone: tuple[Alone, ...] = ()
            if is_missing or at_ns < row["at_ns"]:
                alone = self._destroyed.perhaps(broker, at_ns)
            elif leader == broker:
                alone = self._destroyed.within(index, leader, self._led, at_ns)
            if cut is not None and alone:
                self._before_cuts[cut] = alone
                self._with_more |= {*row["isr"]} - {broker}
            if leader == broker and self._logs.has_all_changes:
                self._led[leader] = Led(earliest_ns=at_ns, at_ns=at_ns)

    def _possible_cuts(self, index: int, until_ns: int) -> Iterator[Election]:
        """Yields what the leader of a state may have lost by restarts after faults that hit it meanwhile."""
        row, leader = self._rows[index], self._leader
        for hit in _during(self._hits(leader), earliest_ns(row), until_ns):
            # It may come back, and be down again, before it leads on.
            epoch = row["leader_epoch"]
            late_ns = min(self._reign_ends_ns, self._logs.led_by_ns(leader, hit.over_ns, epoch))
            late_ns = max(late_ns, hit.began_ns)
            alone = self._destroyed.within(index, leader, self._led, hit.began_ns, late_ns)
            possible = _cut_by(hit, leader, epoch, alone)
            yield replace(possible, at_ns=min(possible.at_ns, self._reign_ends_ns))

    def _possible_cuts_in_gaps(self) -> Iterator[Election]:
        """Yields the same of leaders where states are missing."""
        for broker, epoch, from_ns, until_ns in _leaders_of_gaps(self._rows, self._gaps):
            for hit in _during(self._hits(broker), from_ns, until_ns):
                yield _cut_by(hit, broker, epoch, self._destroyed.perhaps(broker, hit.began_ns))

    def _hits(self, leader: int) -> list[Hit]:
        """Returns the faults after which a leader may have led on with less; none if logs show that."""
        if leader < 0 or self._logs.has_all_changes:
            return []
        return self._destroyed.hits(leader)


def _during(hits: Iterable[Hit], since_ns: int, until_ns: int) -> Iterator[Hit]:
    """Yields the faults that may have struck in a span of time, as if they had begun there."""
    for hit in hits:
        if hit.began_ns < until_ns and hit.struck_ns >= since_ns:
            yield hit._replace(began_ns=max(hit.began_ns, since_ns))


def _cut_by(hit: Hit, leader: int, epoch: int, alone: tuple[Alone, ...]) -> Election:
    """Returns what a leader may have lost by a restart that followed a fault, if its log does not show that.

    Args:
        hit: The fault.
        leader: The leader.
        epoch: Its leader epoch.
        alone: What the fault may have destroyed.
    """
    return Election(
        at_ns=hit.over_ns,
        after_ns=hit.began_ns,
        leader=leader,
        leader_epoch=epoch + 1,
        is_flagged=False,
        alone=alone,
        cut_to=0,
        is_possible=True,
    )


def _leaders_of_gaps(
    rows: Sequence[dict[str, Any]], gaps: MetadataGaps
) -> Iterator[tuple[int, int, int, int]]:
    """Yields who may have led where states are missing, in the last epoch there, and from when until when."""
    for index, row in enumerate(rows):
        if gaps.is_missing_before[index] and row["leader"] >= 0:
            from_ns = earliest_ns(rows[index - 1]) if index else -INF_NS
            yield row["leader"], row["leader_epoch"], from_ns, row["at_ns"]
    gap = gaps.before(len(rows))
    if gap is not None and gap.last_epoch < ANY_EPOCH:
        for broker in rows[-1]["replicas"]:
            yield broker, gap.last_epoch, earliest_ns(rows[-1]), INF_NS
