"""Whether the controller's flag on an unclean election is justified, and what faults destroyed before an election.

`elections` states the rules. This module reads `broker_states`, `faults` and the states of one partition for them.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa

from checkers.kernels.history import INF_NS


@dataclass(frozen=True, slots=True, kw_only=True)
class Objection:
    """Why a flagged election was wrong.

    Attributes:
        reason: A clause; empty if it was right or cannot be decided for another reason than registrations.
        is_certain: Whether the reason holds whatever the registrations were that may have been clean.
    """

    reason: str = ""
    is_certain: bool = False


NO_OBJECTION = Objection()


class Destroyed:
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

    def alone_since(self, broker: int, at_ns: int, since_ns: int) -> int:
        """Returns since when records were only on replicas whose data was destroyed before an election.

        Args:
            broker: The elected one.
            at_ns: When it was elected.
            since_ns: When the election before it was committed; faults before that one explain nothing.
        """
        hit = [f for f in self._faults if since_ns < f["invoked_ns"] <= at_ns]
        nodes = {node for fault in hit for node in fault["resolved"]}
        leader = self._node_of.get(broker, f"b{broker}")
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


class Requested:
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


class Lawfulness:
    """Decides whether a flagged election was unavoidable (second rule of `elections`)."""

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

    def objection(self, election: int) -> Objection:
        """Returns why the flagged election in a row was wrong, or may have been."""
        start = election - 1
        while start >= 0 and len(self._states[start]["isr"]) < self._states[start]["min_isr"]:
            start -= 1
        if start < 0:
            return NO_OBJECTION
        span = self._states[start : election + 1]
        min_isr = span[0]["min_isr"]
        if any(s["replicas"] != span[0]["replicas"] or s["min_isr"] != min_isr for s in span):
            return NO_OBJECTION  # an administrator changed the partition meanwhile
        if self._is_changed_by_administrator(span[0]["at_ns"], span[-1]):
            return NO_OBJECTION
        left, perhaps = (
            self._left(span, unknown_is_clean=unknown_is_clean)
            for unknown_is_clean in (True, False)
        )
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
