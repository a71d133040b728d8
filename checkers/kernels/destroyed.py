"""What faults destroyed before an election, on every replica that had to have it.

`elections` states the rule. This module reads `faults` and the states of one partition for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from checkers.kernels.history import INF_NS
from checkers.kernels.lawful_losses import ends_after, may_have_destroyed, may_have_hit
from checkers.kernels.metadata_gaps import MetadataGaps, earliest_ns, effective_min_isr


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """A span of time whose records faults destroyed, or may have, on every replica that had to have them.

    Attributes:
        since_ns: When it began; infinity if it is not certain that they were destroyed.
        perhaps_since_ns: When it began, whether that is certain or not.
        until_ns: When it ended: the faults destroyed nothing that was established later. Infinity if they never
            were over.
    """

    since_ns: int
    perhaps_since_ns: int
    until_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Led:
    """Since when a broker led last: at the latest, and at the earliest (minus infinity: perhaps never)."""

    earliest_ns: int
    at_ns: int


class Hit(NamedTuple):
    """A fault that may have destroyed data of a broker, by its times.

    Attributes:
        began_ns: When its injection began, so that it may have struck from then on.
        struck_ns: By when it had struck, infinity if that is not known.
        over_ns: When it was over, infinity if it never was.
    """

    began_ns: int
    struck_ns: int
    over_ns: int


_NEVER_NS = -INF_NS - 1
"""Before any moment, also before those that are not known."""


class Destroyed:
    """Finds which records faults destroyed on every replica that had to have them.

    A replica has to have a record if it was in the ISR when the record was established, or joined the ISR later
    under a leader that had the record. If a lawful flagged election chose a replica with the record since, only
    that one has to have it, and those that joined the ISR later: the election gave up the others. A fault destroys
    only what its node had before the fault was over.

    Args:
        rows: States of one partition, in order.
        gaps: What is missing of them.
        faults: Rows of the whole run.
        node_of: Names of the nodes by the ids of their brokers.
        gives_up: For each row that begins with a flagged election which was or may have been lawful, whether it
            certainly was.
    """

    def __init__(
        self,
        rows: list[dict[str, Any]],
        gaps: MetadataGaps,
        faults: pa.Table,
        node_of: dict[int, str],
        gives_up: Mapping[int, bool],
    ) -> None:
        self._gives_up = gives_up
        self._rows = rows
        self._is_missing_before = gaps.is_missing_before
        self._may_hide_election = [gaps.before(index) is not None for index in range(len(rows))]
        self._node_of = node_of
        self._faults = [
            row for row in faults.to_pylist() if may_have_destroyed(row) and may_have_hit(row)
        ]
        self._brokers = {broker for row in rows for broker in (row["leader"], *row["isr"])}

    def before(
        self, election: int, led: Mapping[int, Led], led_ns: int | None = None
    ) -> tuple[Alone, ...]:
        """Returns which records were only on replicas whose data was destroyed before an election.

        Args:
            election: The row that begins with it.
            led: For each broker that led before, since when it did last. If it lacked a record then, that was when
                the record was lost; so what was destroyed before explains no later loss.
            led_ns: When the elected replica began to lead, if its process was down when it was elected.
        """
        early_ns, late_ns = (
            self._began_ns(election, is_early=each) if led_ns is None else led_ns
            for each in (True, False)
        )
        return self._alone(self._rows[election]["leader"], election, led, early_ns, late_ns)

    def within(
        self,
        index: int,
        leader: int,
        led: Mapping[int, Led],
        led_ns: int,
        late_ns: int | None = None,
    ) -> tuple[Alone, ...]:
        """Returns the same before a leader led on that was not elected again.

        Args:
            index: The row that was in force then.
            leader: The leader.
            led: As above, this leader's own election included.
            led_ns: When it led on.
            late_ns: When it did at the latest, if that is not known.
        """
        late_ns = led_ns if late_ns is None else late_ns
        if self._is_missing_before[index + 1]:
            return self.perhaps(leader, led_ns)
        return self._alone(leader, index + 1, led, led_ns, late_ns)

    def perhaps(self, broker: int, by_ns: int) -> tuple[Alone, ...]:
        """Returns what faults may have destroyed before a broker led on, if it is not known who had to have it."""
        began = any(hit.began_ns <= by_ns for hit in self.hits(broker))
        return (Alone(since_ns=INF_NS, perhaps_since_ns=-INF_NS, until_ns=INF_NS),) if began else ()

    def hits(self, broker: int) -> list[Hit]:
        """Returns the faults that may have destroyed data of a broker."""
        return [
            Hit(
                began_ns=int(fault["invoked_ns"]),
                struck_ns=INF_NS if fault["completed_ns"] is None else int(fault["completed_ns"]),
                over_ns=_over_ns(fault),
            )
            for fault in self._faults_of(broker, is_lenient=True)
        ]

    def _alone(
        self, leader: int, count: int, led: Mapping[int, Led], early_ns: int, late_ns: int
    ) -> tuple[Alone, ...]:
        """Returns the same before a moment, which was between two times, for as many rows as come before it."""
        certain, possible = (
            self._spans(leader, count, self._over_ns(by_ns, led, is_lenient=each), is_lenient=each)
            for each, by_ns in ((False, early_ns), (True, late_ns))
        )
        return (
            *(Alone(since_ns=ns, perhaps_since_ns=ns, until_ns=until) for ns, until in certain),
            *(
                Alone(since_ns=INF_NS, perhaps_since_ns=ns, until_ns=until)
                for ns, until in possible
                if (ns, until) not in certain
            ),
        )

    def _over_ns(self, by_ns: int, led: Mapping[int, Led], *, is_lenient: bool) -> dict[int, int]:
        """Returns when the last fault was over that destroyed data of a broker, for each broker with such a fault.

        Args:
            by_ns: Faults that began later do not count.
            led: As above.
            is_lenient: Whether a fault counts if it may have had an effect, or may have been in time.
        """
        over_ns = {}
        for broker in self._brokers:
            since_ns = -INF_NS
            if broker in led:
                since_ns = led[broker].earliest_ns if is_lenient else led[broker].at_ns
            ends_ns = [
                _over_ns(fault)
                for fault in self._faults_of(broker, is_lenient=is_lenient)
                if fault["invoked_ns"] <= by_ns and ends_after(fault, since_ns)
            ]
            if ends_ns:
                over_ns[broker] = max(ends_ns)
        return over_ns

    def _spans(
        self, leader: int, count: int, over_ns: Mapping[int, int], *, is_lenient: bool
    ) -> list[tuple[int, int]]:
        """Returns when the records were established that faults destroyed wherever they had to be.

        Args:
            leader: Who leads without them in the end.
            count: How many rows were before that.
            over_ns: When the last fault was over that destroyed data of a broker.
            is_lenient: Whether a moment counts if it may be one of them: states that were read late may have begun
                earlier, states may be missing, and a leader may not have heard yet that min ISR was raised.

        Returns:
            The first and the last moment of each span, from the last span to the first.
        """
        spans: list[tuple[int, int]] = []
        next_ns = last_ns = lost_ns = INF_NS
        elected: set[int] | None = None
        """Who alone had to have a record after a flagged election that gave up the others."""
        for index in range(count - 1, -1, -1) if leader in over_ns else ():
            had_to = {*self._rows[index]["isr"]} if elected is None else elected
            began_ns = self._began_ns(index, is_early=is_lenient)
            if elected is not None and not index and not self._is_missing_before[0]:
                # What the elected replica lacked, whenever that was established, the election itself lost.
                began_ns = -INF_NS
            is_destroyed = over_ns.keys() >= had_to
            if is_destroyed and self._may_commit_alone(index, is_lenient=is_lenient):
                until_ns = min(lost_ns, *(over_ns[broker] for broker in (leader, *had_to)))
                _add(spans, began_ns, until_ns, next_ns, last_ns)
            if is_destroyed and self._gives_up_others(index, is_lenient=is_lenient):
                elected = had_to
            is_missing = self._is_missing_before[index]
            if is_missing and not is_lenient:
                break
            joined_ns = self._joined_ns(index) if is_missing else began_ns
            has_kept = any(over_ns.get(b, _NEVER_NS) < joined_ns for b in self._joined(index))
            if has_kept and elected is None:
                # They joined without what their leader had lost before, and with what was established since.
                lost_ns = min(lost_ns, self._lost_ns(index, leader, is_lenient=is_lenient))
                if lost_ns == _NEVER_NS:
                    break
            last_ns = self._began_ns(index, is_early=not is_lenient) - 1
            if is_missing:
                _add(spans, joined_ns, min(lost_ns, over_ns[leader]), began_ns, last_ns)
            next_ns = joined_ns
        return spans

    def _gives_up_others(self, index: int, *, is_lenient: bool) -> bool:
        """Whether a flagged election gave up all brokers but those of the ISR of a row, or may have."""
        if index in self._gives_up:
            return is_lenient or self._gives_up[index]
        # Those that joined since have what the elected one had.
        return is_lenient and self._may_hide_election[index]

    def _joined(self, index: int) -> set[int]:
        """Returns the brokers that joined the ISR with a row, or in states that are missing before it."""
        isr = {*self._rows[index]["isr"]}
        if index and not self._is_missing_before[index]:
            isr -= {*self._rows[index - 1]["isr"]}
        return isr

    def _joined_ns(self, index: int) -> int:
        """Returns when they did at the earliest, if states are missing before the row."""
        return self._began_ns(index - 1, is_early=True) if index else -INF_NS

    def _lost_ns(self, index: int, elected: int, *, is_lenient: bool) -> int:
        """Returns until when a leader lost data in its own term, so that a follower joined the ISR without them.

        Args:
            index: The row with which the follower joined.
            elected: The broker that was elected in the end and lacks the data: if it is the same leader, the fault
                destroyed them.
            is_lenient: Whether the fault may have destroyed nothing, or may have been later.

        Returns:
            When the last such fault was over: it destroyed nothing that was established later. Before any
            moment if there was none.
        """
        leader = self._rows[index]["leader"]
        if not is_lenient and leader != elected:
            return _NEVER_NS
        since_ns = self._began_ns(self._term_of(index)[0], is_early=is_lenient)
        by_ns = self._began_ns(index, is_early=not is_lenient)
        return max(
            (
                _over_ns(fault)
                for fault in self._faults_of(leader, is_lenient=is_lenient)
                if ends_after(fault, since_ns)
                and (fault["invoked_ns"] < by_ns if is_lenient else _is_complete(fault, by_ns))
            ),
            default=_NEVER_NS,
        )

    def _may_commit_alone(self, index: int, *, is_lenient: bool) -> bool:
        row = self._rows[index]
        min_isr = effective_min_isr(row)
        if is_lenient and len(row["isr"]) == 1:
            # It has applied every setting that was committed before it became the leader.
            min_isr = min(effective_min_isr(self._rows[each]) for each in self._term_of(index))
        return min_isr <= 1

    def _term_of(self, index: int) -> range:
        """Returns the rows of a leader epoch up to a row."""
        first = index
        while first and self._rows[first - 1]["leader_epoch"] == self._rows[index]["leader_epoch"]:
            first -= 1
        return range(first, index + 1)

    def _faults_of(self, broker: int, *, is_lenient: bool) -> list[dict[str, Any]]:
        """Returns the faults that destroyed data of a broker, and if it is lenient also those that may have."""
        node = self._node_of.get(broker, f"b{broker}")
        return [
            fault
            for fault in self._faults
            if (
                may_have_hit(fault, node)
                if is_lenient
                else fault["took_effect"] and node in fault["resolved"]
            )
        ]

    def _began_ns(self, index: int, *, is_early: bool) -> int:
        row = self._rows[index]
        return earliest_ns(row) if is_early else int(row["at_ns"])


def _over_ns(fault: dict[str, Any]) -> int:
    """Returns when a fault was over, infinity if it never was."""
    return INF_NS if fault["healed_ns"] is None else int(fault["healed_ns"])


def _is_complete(fault: dict[str, Any], by_ns: int) -> bool:
    return fault["completed_ns"] is not None and bool(fault["completed_ns"] < by_ns)


def _add(
    spans: list[tuple[int, int]], began_ns: int, until_ns: int, next_ns: int, last_ns: int
) -> None:
    """Adds the span of a state before those of later states.

    Args:
        spans: The first and the last moment of each, the latest first.
        began_ns: When the state began.
        until_ns: Up to when all its members may have lost what was established.
        next_ns: When the next state began.
        last_ns: The last moment of the state.
    """
    if spans and spans[-1][0] == next_ns <= until_ns:
        spans[-1] = (began_ns, spans[-1][1])
    elif min(until_ns, last_ns) >= began_ns:
        spans.append((began_ns, min(until_ns, last_ns)))
