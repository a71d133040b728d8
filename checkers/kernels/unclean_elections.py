"""Whether the controller's flag on an unclean election is justified, and what faults destroyed before an election.

`elections` states the rules. Where states are missing (`metadata_gaps`), nothing is decided. This module
reads `broker_states`, `faults` and the states of one partition for them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa

from checkers.kernels.history import INF_NS
from checkers.kernels.lawful_losses import may_have_destroyed
from checkers.kernels.metadata_gaps import MetadataGaps, earliest_ns, effective_min_isr


@dataclass(frozen=True, slots=True, kw_only=True)
class Objection:
    """Why a flagged election was wrong.

    Attributes:
        reason: A clause; empty if it was right or cannot be decided for another reason than registrations.
        is_certain: Whether the reason holds whatever the registrations were that may have been clean.
    """

    reason: str = ""
    is_certain: bool = False

    @property
    def kind(self) -> tuple[bool, bool]:
        """Whether there is a reason, and whether it is certain."""
        return bool(self.reason), self.is_certain


NO_OBJECTION = Objection()
NOT_RECORDED = Objection(reason="states of the partition before it are not recorded")


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


_NEVER_NS = -INF_NS - 1
"""Before any moment, also before those that are not known."""


class Destroyed:
    """Finds which records faults destroyed on every replica that had to have them.

    A replica has to have a record if it was in the ISR when the record was established, or joined the ISR later
    under a leader that had the record. A fault destroys only what its node had before the fault was over.

    Args:
        rows: States of one partition, in order.
        gaps: What is missing of them.
        faults: Rows of the whole run.
        node_of: Names of the nodes by the ids of their brokers.
    """

    def __init__(
        self,
        rows: list[dict[str, Any]],
        gaps: MetadataGaps,
        faults: pa.Table,
        node_of: dict[int, str],
    ) -> None:
        self._rows = rows
        self._is_missing_before = gaps.is_missing_before
        self._node_of = node_of
        self._faults = [
            row for row in faults.to_pylist() if may_have_destroyed(row) and _may_hit(row)
        ]
        self._brokers = {broker for row in rows for broker in (row["leader"], *row["isr"])}

    def before(
        self, election: int, led: Mapping[int, int], led_ns: int | None = None
    ) -> tuple[Alone, ...]:
        """Returns which records were only on replicas whose data was destroyed before an election.

        Args:
            election: The row that begins with it.
            led: For each broker that was elected before, the row that begins with its last election. If the broker
                lacked a record then, that election lost it; so what was destroyed before explains no later loss.
            led_ns: When the elected replica began to lead, if its process was down when it was elected.
        """
        early_ns, late_ns = (
            self._began_ns(election, is_early=each) if led_ns is None else led_ns
            for each in (True, False)
        )
        return self._alone(self._rows[election]["leader"], election, led, early_ns, late_ns)

    def within(
        self, index: int, leader: int, led: Mapping[int, int], led_ns: int
    ) -> tuple[Alone, ...]:
        """Returns the same before a leader led on that was not elected again.

        Args:
            index: The row that was in force then.
            leader: The leader.
            led: As above, this leader's own election included.
            led_ns: When it led on.
        """
        return self._alone(leader, index + 1, led, led_ns, led_ns)

    def _alone(
        self, leader: int, count: int, led: Mapping[int, int], early_ns: int, late_ns: int
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

    def _over_ns(self, by_ns: int, led: Mapping[int, int], *, is_lenient: bool) -> dict[int, int]:
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
                since_ns = self._began_ns(led[broker], is_early=is_lenient)
            ends_ns = [
                INF_NS if fault["healed_ns"] is None else int(fault["healed_ns"])
                for fault in self._faults_of(broker, is_lenient=is_lenient)
                if fault["invoked_ns"] <= by_ns and _ends_after(fault, since_ns)
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
        next_ns = last_ns = INF_NS
        for index in range(count - 1, -1, -1) if leader in over_ns else ():
            isr = self._rows[index]["isr"]
            began_ns = self._began_ns(index, is_early=is_lenient)
            if over_ns.keys() >= {*isr} and self._may_commit_alone(index, is_lenient=is_lenient):
                until_ns = min(over_ns[broker] for broker in (leader, *isr))
                _add(spans, began_ns, until_ns, next_ns, last_ns)
            is_missing = self._is_missing_before[index]
            if is_missing and not is_lenient:
                break
            joined_ns = self._joined_ns(index) if is_missing else began_ns
            has_kept = any(over_ns.get(b, _NEVER_NS) < joined_ns for b in self._joined(index))
            if has_kept and not self._lost_before(index, leader, is_lenient=is_lenient):
                break
            last_ns = self._began_ns(index, is_early=not is_lenient) - 1
            if is_missing:
                _add(spans, joined_ns, over_ns[leader], began_ns, last_ns)
            next_ns = joined_ns
        return spans

    def _joined(self, index: int) -> set[int]:
        """Returns the brokers that joined the ISR with a row, or in states that are missing before it."""
        isr = {*self._rows[index]["isr"]}
        if index and not self._is_missing_before[index]:
            isr -= {*self._rows[index - 1]["isr"]}
        return isr

    def _joined_ns(self, index: int) -> int:
        """Returns when they did at the earliest, if states are missing before the row."""
        return self._began_ns(index - 1, is_early=True) if index else -INF_NS

    def _lost_before(self, index: int, elected: int, *, is_lenient: bool) -> bool:
        """Returns whether a leader lost data in its own term, so that a follower joined the ISR without them.

        Args:
            index: The row with which the follower joined.
            elected: The broker that was elected in the end and lacks the data: if it is the same leader, the fault
                destroyed them.
            is_lenient: Whether the fault may have destroyed nothing, or may have been later.
        """
        leader = self._rows[index]["leader"]
        if not is_lenient and leader != elected:
            return False
        since_ns = self._began_ns(self._term_of(index)[0], is_early=is_lenient)
        by_ns = self._began_ns(index, is_early=not is_lenient)
        return any(
            _ends_after(fault, since_ns)
            and (fault["invoked_ns"] < by_ns if is_lenient else _is_complete(fault, by_ns))
            for fault in self._faults_of(leader, is_lenient=is_lenient)
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
                _may_hit(fault, node)
                if is_lenient
                else fault["took_effect"] and node in fault["resolved"]
            )
        ]

    def _began_ns(self, index: int, *, is_early: bool) -> int:
        row = self._rows[index]
        return earliest_ns(row) if is_early else int(row["at_ns"])


def _is_complete(fault: dict[str, Any], by_ns: int) -> bool:
    return fault["completed_ns"] is not None and bool(fault["completed_ns"] <= by_ns)


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


@dataclass(slots=True, kw_only=True)
class _Request:
    """A request for an unclean election. Mutable: an election while it is open may have been the requested one."""

    invoked_ns: int
    completed_ns: int | None
    may_be_used_up: bool = False


class Requested:
    """The unclean elections of one partition that administrators requested. Mutable: each request explains one.

    Args:
        faults: Rows of the whole run.
        partition: Name of the partition, such as t-0.
    """

    def __init__(self, faults: list[dict[str, Any]], partition: str) -> None:
        self._open = [
            _Request(invoked_ns=row["invoked_ns"], completed_ns=row["completed_ns"])
            for row in faults
            if partition in (row["elects_uncleanly"] or ())
        ]

    def take(self, election: dict[str, Any]) -> Objection | None:
        """Returns what speaks against that an election was requested; None if it was not.

        The elections of the partition are passed in order. A flagged one uses up every request before it, and one
        without a flag every request that had been completed.
        """
        at_ns = election["at_ns"]
        mine = [request for request in self._open if request.invoked_ns <= at_ns]
        if not mine:
            return None
        kept = []
        if not election["flagged"]:
            kept = [one for one in mine if one.completed_ns is None or one.completed_ns > at_ns]
        is_certain = not all(request.may_be_used_up for request in mine)
        for request in kept:
            request.may_be_used_up = True
        self._open = [*kept, *(one for one in self._open if one.invoked_ns > at_ns)]
        return NO_OBJECTION if is_certain else _PERHAPS_REQUESTED

    def may_have_been_taken(self, until_ns: int) -> None:
        """Notes that elections until a moment are not recorded, which may have been the requested ones."""
        for request in self._open:
            request.may_be_used_up |= request.invoked_ns <= until_ns


_PERHAPS_REQUESTED = Objection(
    reason="an election before it, while the request was open, may have been the one that was requested"
)


class FlaggedElections:
    """Decides which flagged elections of one partition were lawful (second rule of `elections`).

    Args:
        states: States of the partition, in order.
        elected: The rows that begin with an election.
        gaps: What is missing of them.
        broker_states, faults: Rows of the whole run.
        node_of: Names of the nodes by the ids of their brokers.
        elr_on: Whether eligible leader replicas are in use.
        unclean_election_enabled: Whether the configuration allows unclean elections.
    """

    def __init__(
        self,
        states: list[dict[str, Any]],
        elected: Sequence[int],
        gaps: MetadataGaps,
        broker_states: pa.Table,
        faults: pa.Table,
        node_of: dict[int, str],
        *,
        elr_on: bool,
        unclean_election_enabled: bool,
    ) -> None:
        self._states = states
        self._elected = elected
        self._gaps = gaps
        self._brokers = broker_states.sort_by("metadata_offset").to_pylist()
        self._faults = faults.to_pylist()
        self._node_of = node_of
        self._elr_on = elr_on
        self._unclean_election_enabled = unclean_election_enabled

    def objections(self, clock_error_ns: int) -> dict[int, Objection]:
        """Returns what speaks against each of them, by its row; not for those after states that are missing.

        Args:
            clock_error_ns: By how much the clock of the harness may differ from that of the controller.
        """
        found = self._objections(0)
        for error_ns in {-clock_error_ns, clock_error_ns} - {0}:
            for row, objection in self._objections(error_ns).items():
                if objection.kind != found[row].kind:
                    reason = found[row].reason or objection.reason
                    found[row] = Objection(reason=reason, is_certain=False)
        return found

    def _objections(self, error_ns: int) -> dict[int, Objection]:
        faults = [_moved(fault, error_ns) for fault in self._faults]
        lawfulness = Lawfulness(self._states, self._gaps, self._brokers, faults, self._node_of)
        name = _name_of(self._states[0]) if self._states else ""
        requested = Requested(faults, name)
        found = {}
        for index in range(len(self._states)):
            gap = self._gaps.before(index)
            if gap is not None:
                requested.may_have_been_taken(gap.until_ns)
            if gap is None and index in self._elected:
                request = requested.take(self._states[index])
                if self._states[index]["flagged"]:
                    found[index] = self._objection(lawfulness, index, request)
        return found

    def _objection(
        self, lawfulness: "Lawfulness", index: int, request: Objection | None
    ) -> Objection:
        active = lawfulness.objection_to_active(index)
        if active.is_certain or self._unclean_election_enabled or request == NO_OBJECTION:
            other = NO_OBJECTION
        elif not self._elr_on:
            other = lawfulness.objection_without_elr(index)
        else:
            other = lawfulness.objection(index) if self._brokers else NO_OBJECTION
        found = other if other.is_certain or not active.reason else active
        return request if request is not None and other.is_certain else found


class Lawfulness:
    """Decides whether a flagged election was unavoidable (second rule of `elections`)."""

    def __init__(
        self,
        states: list[dict[str, Any]],
        gaps: MetadataGaps,
        brokers: list[dict[str, Any]],
        faults: list[dict[str, Any]],
        node_of: dict[int, str],
    ) -> None:
        self._states = states
        self._is_missing_before = gaps.is_missing_before
        self._brokers = brokers
        self._faults = [row for row in faults if _may_hit(row)]
        self._actions = [row for row in faults if row["allows_unclean"] or row["reconfigures"]]
        self._node_of = node_of

    def objection(self, election: int) -> Objection:
        """Returns why the flagged election in a row was wrong, or may have been, with ELR on."""
        if reason := self._another_had_to_lead(election):
            return Objection(reason=reason, is_certain=True)
        start = election - 1
        while start >= 0:
            state = self._states[start]
            if len(state["isr"]) >= effective_min_isr(state):
                break
            start -= 1
        # Where states are missing, neither who left is known nor whether the ISR had min ISR members again.
        if any(self._is_missing_before[start + 1 : election + 1]):
            allows = self._allows_unclean(self._states[election])
            return NO_OBJECTION if allows else NOT_RECORDED
        if start < 0:
            return NO_OBJECTION
        span = self._states[start : election + 1]
        min_isr = span[0]["min_isr"]
        if any(s["replicas"] != span[0]["replicas"] or s["min_isr"] != min_isr for s in span):
            return NO_OBJECTION  # an administrator changed the partition meanwhile
        if self._is_changed_by_administrator(span[0]["at_ns"], span[-1]):
            return NO_OBJECTION
        min_isr = effective_min_isr(span[0])
        left, perhaps = (self._left(span, is_lenient=is_lenient) for is_lenient in (False, True))
        if left >= min_isr:
            return NO_OBJECTION
        if perhaps < min_isr:
            return Objection(
                reason=(
                    f"only {perhaps} of at least {min_isr} brokers had left ISR and ELR by an unclean registration"
                    " that an injected fault explains"
                ),
                is_certain=True,
            )
        return Objection(
            reason=(
                f"{left} to {perhaps} of at least {min_isr} brokers had left ISR and ELR by an unclean"
                f" registration that an injected fault explains, because {self._unknown()}"
            )
        )

    def objection_to_active(self, election: int) -> Objection:
        """Returns why the flagged election in a row was wrong, or may have been, whoever allowed it."""
        if not election or self._is_missing_before[election]:
            return NO_OBJECTION
        before, row = self._states[election - 1], self._states[election]
        members = {*before["isr"]}
        if not self._is_reconfigured(earliest_ns(before), row):
            members |= {*before["elr"]}
        active = sorted(
            broker
            for broker in members & {*row["replicas"]}
            if self._is_active(broker, row["at_ns"])
        )
        if not active:
            return NO_OBJECTION
        online = [one for one in active if not self._may_be_offline(one, row["at_ns"])]
        broker = (online or active)[0]
        return Objection(
            reason=f"broker {broker} of ISR and ELR was active", is_certain=bool(online)
        )

    def _another_had_to_lead(self, election: int) -> str:
        """Returns why the controller had no choice but another leader, or none; empty if it is not known.

        The last-known leader is elected only if nobody is left in ISR and ELR.
        """
        if not election or self._is_missing_before[election]:
            return ""
        before, row = self._states[election - 1], self._states[election]
        if any(before[key] != row[key] for key in ("replicas", "min_isr")):
            return ""
        if self._is_changed_by_administrator(earliest_ns(before), row):
            return ""
        for broker in sorted({*before["isr"], *before["elr"]} & {*row["replicas"]}):
            if not self._leaves(broker, row["at_ns"]):
                return f"broker {broker} was in ISR or ELR"
        last_known = before["last_known_elr"]
        if last_known and row["leader"] not in last_known:
            return f"broker {last_known[0]} was the last-known leader"
        return ""

    def _leaves(self, broker: int, at_ns: int) -> bool:
        """Whether a broker was unregistered at a moment, or registered without proof of a clean shutdown."""
        return any(
            state["broker"] == broker
            and state["at_ns"] == at_ns
            and (
                state["change"] == "unregistered"
                or (state["change"] == "registered" and not state["clean"])
            )
            for state in self._brokers
        )

    def _may_be_offline(self, broker: int, at_ns: int) -> bool:
        """Whether a disk fault may have taken a broker's log offline since it was registered."""
        node = self._node_of.get(broker, f"b{broker}")
        registered_ns = max(
            (
                state["at_ns"]
                for state in self._brokers
                if state["broker"] == broker
                and state["change"] == "registered"
                and state["at_ns"] <= at_ns
            ),
            default=-INF_NS,
        )
        return any(
            fault["broken_disk"]
            and _may_hit(fault, node)
            and fault["invoked_ns"] <= at_ns
            and (fault["healed_ns"] is None or fault["healed_ns"] >= registered_ns)
            for fault in self._faults
        )

    def _is_active(self, broker: int, at_ns: int) -> bool:
        """Whether a broker was unfenced and not in controlled shutdown, and what was committed then left it so."""
        changes = [row for row in self._brokers if row["broker"] == broker]
        before = [row["change"] for row in changes if row["at_ns"] < at_ns]
        is_changed = any(row["at_ns"] == at_ns for row in changes)
        return before[-1:] == ["unfenced"] and not is_changed

    def objection_without_elr(self, election: int) -> Objection:
        """Returns why the flagged election in a row was wrong: without ELR one that nobody allowed always is."""
        row = self._states[election]
        if self._allows_unclean(row):
            return NO_OBJECTION
        # With a feature level ELR may have been switched on, which has a recovery of its own.
        is_certain = not self._is_changed_by_administrator(-INF_NS, row)
        return Objection(reason="unclean elections were not allowed", is_certain=is_certain)

    def _unknown(self) -> str:
        if any(row["change"] == "registered" and row["clean"] is None for row in self._brokers):
            return "the system does not report which registrations were clean"
        return "the evidence does not show that every such fault took effect"

    def _left(self, span: list[dict[str, Any]], *, is_lenient: bool) -> int:
        """Returns how many brokers left ISR and ELR by an unclean registration that an injected fault explains.

        Args:
            span: The states from the last moment with an ISR of min ISR members to the election.
            is_lenient: Whether a registration counts as unclean if the system does not report it, and a fault even
                if the evidence does not show an effect.
        """
        left: set[int] = set()
        for before, after in pairwise(span):
            gone = {*before["isr"], *before["elr"]} - {*after["isr"], *after["elr"]}
            left |= {
                broker
                for broker in gone
                if self._left_uncleanly(
                    broker, span[0]["at_ns"], after["at_ns"], is_lenient=is_lenient
                )
            }
        return len(left)

    def _is_changed_by_administrator(self, since_ns: int, election: dict[str, Any]) -> bool:
        """Whether an administrator allowed unclean elections, or changed the partition since a moment."""
        return self._allows_unclean(election) or self._is_reconfigured(since_ns, election)

    def _is_reconfigured(self, since_ns: int, election: dict[str, Any]) -> bool:
        """Whether an administrator changed the partition since a moment, which may have erased the ELR."""
        name = _name_of(election)
        return any(
            name in action["reconfigures"]
            and action["invoked_ns"] <= election["at_ns"]
            and _ends_after(action, since_ns)
            for action in self._actions
        )

    def _allows_unclean(self, election: dict[str, Any]) -> bool:
        name = _name_of(election)
        return any(
            name in action["allows_unclean"] and action["invoked_ns"] <= election["at_ns"]
            for action in self._actions
        )

    def _left_uncleanly(self, broker: int, after_ns: int, to_ns: int, *, is_lenient: bool) -> bool:
        # By time and not by offset: a registration comes after the partition changes of its own batch, and a
        # batch is committed at one moment.
        return any(
            state["broker"] == broker
            and after_ns <= state["at_ns"] <= to_ns
            and (
                state["change"] == "unregistered"
                or (
                    state["change"] == "registered"
                    and not _was_clean(state, is_lenient=is_lenient)
                    and self._is_explained(state, is_lenient=is_lenient)
                )
            )
            for state in self._brokers
        )

    def _is_explained(self, registration: dict[str, Any], *, is_lenient: bool) -> bool:
        """Returns whether an injected fault since the broker's last clean start explains its unclean end."""
        broker = registration["broker"]
        node = self._node_of.get(broker, f"b{broker}")
        orderly_ns = max(
            (
                state["at_ns"]
                for state in self._brokers
                if state["broker"] == broker
                and state["change"] == "registered"
                and _was_clean(state, is_lenient=is_lenient)
                and state["metadata_offset"] < registration["metadata_offset"]
            ),
            default=-INF_NS,
        )
        return any(
            _may_hit(fault, node)
            and (is_lenient or fault["took_effect"] or node in fault["cut_short"])
            and _ended_it(fault, node, orderly_ns, registration["at_ns"])
            for fault in self._faults
        )


def _may_hit(fault: dict[str, Any], node: str = "") -> bool:
    """Returns whether a fault was injected, perhaps into a node; if that failed halfway, any may be the one."""
    if fault["resolved"]:
        return not node or node in fault["resolved"]
    return bool(fault["failed"])


def _moved(fault: dict[str, Any], by_ns: int) -> dict[str, Any]:
    """Returns a fault with other times."""
    names = ("invoked_ns", "completed_ns", "healed_ns")
    return fault | {name: None if fault[name] is None else fault[name] + by_ns for name in names}


def _name_of(state: dict[str, Any]) -> str:
    return f"{state['topic']}-{state['partition']}"


def _was_clean(registration: dict[str, Any], *, is_lenient: bool) -> bool:
    clean = registration["clean"]
    return not is_lenient if clean is None else bool(clean)


def _ends_after(action: dict[str, Any], at_ns: int) -> bool:
    """Returns whether an action was completed after a moment, or never for certain."""
    return action["completed_ns"] is None or bool(action["completed_ns"] >= at_ns)


def _ended_it(fault: dict[str, Any], node: str, since_ns: int, to_ns: int) -> bool:
    """Returns whether a fault may be why a node ended uncleanly between two moments."""
    invoked_ns, healed_ns = fault["invoked_ns"], fault["healed_ns"]
    is_over = healed_ns is not None and healed_ns <= since_ns
    if fault["broken_disk"] and invoked_ns <= to_ns and not is_over:
        return True
    # A fault that was still being injected when the node had started cleanly ended it afterwards.
    if invoked_ns > to_ns or not _ends_after(fault, since_ns):
        return False
    return bool(fault["unclean_end"]) or node in fault["cut_short"]
