"""Whether the controller's flag on an unclean election is justified.

`elections` states the rules. Where states are missing (`metadata_gaps`), nothing is decided. This module
reads `broker_states`, `faults` and the states of one partition for them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa

from checkers.kernels.history import INF_NS
from checkers.kernels.lawful_losses import ends_after, may_have_hit
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
        self._elected = frozenset(elected)
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
        requested = Requested(faults, _name_of(self._states[0]))
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
        self._faults = [row for row in faults if may_have_hit(row)]
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
        """Returns why the flagged election in a row was wrong, or may have been, also if it was allowed."""
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
                or (state["change"] == "registered" and not _was_clean(state, is_lenient=True))
            )
            for state in self._brokers
        )

    def _registered_ns(self, broker: int, is_wanted: Callable[[dict[str, Any]], bool]) -> int:
        """Returns when a broker was last registered in the wanted way; before any moment if it was not."""
        return max(
            (
                state["at_ns"]
                for state in self._brokers
                if state["broker"] == broker
                and state["change"] == "registered"
                and is_wanted(state)
            ),
            default=-INF_NS,
        )

    def _may_be_offline(self, broker: int, at_ns: int) -> bool:
        """Whether a disk fault may have taken a broker's log offline since it was registered."""
        node = self._node_of.get(broker, f"b{broker}")
        registered_ns = self._registered_ns(broker, lambda state: bool(state["at_ns"] <= at_ns))
        return any(
            fault["broken_disk"]
            and may_have_hit(fault, node)
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
            and ends_after(action, since_ns)
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
        orderly_ns = self._registered_ns(
            broker,
            lambda state: bool(
                _was_clean(state, is_lenient=is_lenient)
                and state["metadata_offset"] < registration["metadata_offset"]
            ),
        )
        return any(
            may_have_hit(fault, node)
            and (is_lenient or fault["took_effect"] or node in fault["cut_short"])
            and _ended_it(fault, node, orderly_ns, registration["at_ns"])
            for fault in self._faults
        )


def _moved(fault: dict[str, Any], by_ns: int) -> dict[str, Any]:
    """Returns a fault with other times."""
    names = ("invoked_ns", "completed_ns", "healed_ns")
    return fault | {name: None if fault[name] is None else fault[name] + by_ns for name in names}


def _name_of(state: dict[str, Any]) -> str:
    return f"{state['topic']}-{state['partition']}"


def _was_clean(registration: dict[str, Any], *, is_lenient: bool) -> bool:
    clean = registration["clean"]
    return not is_lenient if clean is None else bool(clean)


def _ended_it(fault: dict[str, Any], node: str, since_ns: int, to_ns: int) -> bool:
    """Returns whether a fault may be why a node ended uncleanly between two moments."""
    invoked_ns, healed_ns = fault["invoked_ns"], fault["healed_ns"]
    is_over = healed_ns is not None and healed_ns <= since_ns
    if fault["broken_disk"] and invoked_ns <= to_ns and not is_over:
        return True
    # A fault that was still being injected when the node had started cleanly ended it afterwards.
    if invoked_ns > to_ns or not ends_after(fault, since_ns):
        return False
    return bool(fault["unclean_end"]) or node in fault["cut_short"]
