"""Whether a partition made progress again after everything was healed.

In the final phase every fault is healed and every node is started, so the replicas that the configuration needs
are alive and connected, unless a disk was destroyed. A partition must then have a leader and an ISR of min ISR
members, acknowledge appends and serve reads. If it did not for as long as `stuck_after_ms`, until the run ended,
it is `stuck`:

- *no leader*, although a replica is alive that may lead without losing records;
- *below min ISR*, although min ISR replicas are alive and none of them is still copying what it lacks;
- *not served*: clients tried all the time, but no append was acknowledged, or no read succeeded;
- *left out*: a live replica is not in the ISR, and nothing changes, neither its log nor the ISR. A replica whose
  log was never recorded may have received something.

A live replica that copies cannot join the ISR until it has everything. So it does not count while it is outside of
the ISR, and neither does one whose log was never recorded: fewer than min ISR others promise nothing. One that
cuts off again what it copied in the same leader epoch does count.

Nothing is claimed where that may be lawful: if the run ended too soon after healing, if clients did not try, if
they were refused for what they asked (a record larger than the setting allows) or by a min ISR that may be larger
than the number of replicas, if a disk was destroyed and its broker did not register again, if every replica that
may lead registered after an unclean shutdown, and if a node ended by itself, which is a finding of its own.
Nothing is known either of a run that does not record when it was healed and when it ended, like histories of other
tools.

A controller that is missing shows in what it does not do: partitions stay without a leader, or brokers that cannot
register serve no client.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa

from checkers.kernels.evidence import Evidence, duration, seconds
from checkers.kernels.history import INF_NS
from checkers.kernels.judging import judged_finding
from checkers.kernels.metadata_gaps import effective_min_isr
from harness.contracts.checker import CheckerFinding, CheckerReport
from harness.contracts.run_context import RunContext
from harness.contracts.verdict import Witness

STUCK = "stuck"
NO_LEADER, BELOW_MIN_ISR = "no leader", "below min ISR"
NOT_SERVED, LEFT_OUT = "not served", "left out"
"""How a partition can be stuck, what matters most first."""

GAPS = 4
"""A client that lets a quarter of the time pass without an attempt has given up."""

_SERVED = {
    "append": "append was acknowledged",
    "latest": "request for the log end succeeded",
    "poll": "poll returned a record",
}
"""What clients do in the final phase, and what they need."""

REFUSALS = {
    10: "MESSAGE_TOO_LARGE",
    18: "RECORD_LIST_TOO_LARGE",
    21: "INVALID_REQUIRED_ACKS",
    29: "TOPIC_AUTHORIZATION_FAILED",
    31: "CLUSTER_AUTHORIZATION_FAILED",
    32: "INVALID_TIMESTAMP",
    35: "UNSUPPORTED_VERSION",
    43: "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    44: "POLICY_VIOLATION",
    50: "INVALID_TRANSACTION_TIMEOUT",
    53: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    76: "UNSUPPORTED_COMPRESSION_TYPE",
    87: "INVALID_RECORD",
}
"""Errors of Kafka's protocol with which a system that works refuses a request for what it is."""

NOT_ENOUGH_REPLICAS = 19
"""The error for an append while the ISR has fewer than min ISR members."""

_RECEIVES = frozenset({"replicate", "observed", "truncate"})
"""Why the log of a replica that does not lead changes."""

MS = 1_000_000

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standstill:
    """How one partition is stuck.

    Attributes:
        form: `NO_LEADER`, `BELOW_MIN_ISR`, `NOT_SERVED` or `LEFT_OUT`.
        since_ns: Since when.
        sentence: What was there, and what should have been.
        operations: Attempts of clients that show it, in order of time.
    """

    form: str
    since_ns: int
    sentence: str
    operations: tuple[int, ...] = ()


def may_be_stuck(context: RunContext) -> bool:
    """Returns whether a run lasted long enough after it was healed, and did not end as planned."""
    healed_ns, ended_ns = context.healed_ns, context.ended_ns
    if context.final_phase_complete or not context.stuck_after_ms:
        return False
    if healed_ns is None or ended_ns is None:
        return False
    return ended_ns - healed_ns >= patience_ns(context)


def patience_ns(context: RunContext) -> int:
    """Returns how long something must have lasted by any two clocks of the run to be stuck."""
    return context.stuck_after_ms * MS + context.clock_error_ns


class Progress:
    """The checker `progress`; see the module."""

    name = "progress"
    tables = (
        "operations",
        "partition_states",
        "broker_states",
        "replica_states",
        "faults",
        "violations",
    )
    per_partition = True

    def check(self, tables: Mapping[str, pa.Table], context: RunContext) -> CheckerReport:
        """Checks one partition."""
        if not may_be_stuck(context) or tables["violations"].num_rows:
            return CheckerReport()
        found = _Partition(tables, context).standstill()
        if found is None:
            return CheckerReport()
        return CheckerReport(findings=(_finding(found, tables["operations"], context),))


PROGRESS = Progress()


class _Partition:
    """One partition of a run that may be stuck.

    Args:
        tables: Its tables.
        context: What the run declares about itself.
    """

    def __init__(self, tables: Mapping[str, pa.Table], context: RunContext) -> None:
        assert context.ended_ns is not None
        self._context = context
        self._ended_ns = context.ended_ns
        self._begin_ns = context.ended_ns - patience_ns(context)
        self._tables = tables
        states = tables["partition_states"].to_pylist()
        self._states: list[Row] = sorted(states, key=lambda row: row["metadata_offset"])
        brokers = tables["broker_states"].to_pylist()
        self._brokers: list[Row] = sorted(brokers, key=lambda row: row["metadata_offset"])

    def standstill(self) -> Standstill | None:
        """Returns how the partition is stuck; None if it is not, or if that cannot be known."""
        lasting = self._lasting()
        if not lasting:
            return None
        live = live_brokers(
            self._brokers,
            self._tables["faults"].to_pylist(),
            self._node_of(),
            self._context.clock_error_ns,
        ) & set(lasting[-1]["replicas"])
        if all(state["leader"] < 0 for state in lasting):
            return self._no_leader(live)
        min_isr = effective_min_isr(lasting[-1])
        able = live - self._may_copy(lasting)
        if len(able) < min_isr:
            return None
        if any(state["leader"] < 0 for state in lasting):
            # It elects again and again. Why is not recorded, but clients may show that no leader served them.
            return self._not_served()
        if all(map(_is_below_min_isr, lasting)):
            isr = lasting[-1]["isr"]
            return Standstill(
                form=BELOW_MIN_ISR,
                since_ns=self._since(_is_below_min_isr),
                sentence=(
                    f"the ISR {isr} stayed below the min ISR of {min_isr}, although brokers {sorted(able)} with a "
                    "replica were up and connected"
                ),
            )
        return self._not_served() or self._left_out(lasting, live)

    def _may_copy(self, lasting: Sequence[Row]) -> set[int]:
        """Returns the replicas that were outside of the ISR and may have come closer to it in that time."""
        in_isr = set.intersection(*(set(state["isr"]) for state in lasting))
        columns = ["at_ns", "broker", "cause", "leader_epoch", "log_end_offset"]
        logs = self._tables["replica_states"].select(columns).sort_by("at_ns").to_pylist()
        earlier = {row["broker"]: [row] for row in logs if row["at_ns"] <= self._begin_ns}
        later: dict[int, list[Row]] = {row["broker"]: [] for row in logs}
        for row in logs:
            if row["at_ns"] > self._begin_ns:
                later[row["broker"]].append(row)
        still = {
            broker
            for broker, rows in later.items()
            if not any(row["cause"] in _RECEIVES for row in rows)
            or _goes_back([*earlier.get(broker, []), *rows])
        }
        return set(lasting[-1]["replicas"]) - in_isr - still

    def _lasting(self) -> list[Row]:
        """Returns the states in which the partition was in the last `stuck_after_ms` of the run."""
        before = [state for state in self._states if state["at_ns"] <= self._begin_ns]
        return [*before[-1:], *self._states[len(before) :]] if before else []

    def _node_of(self) -> dict[int, str]:
        replicas = self._tables["replica_states"].select(["node", "broker"])
        pairs = replicas.group_by(["node", "broker"]).aggregate([]).to_pylist()
        return {row["broker"]: row["node"] for row in pairs}

    def _since(self, holds: Any) -> int:
        """Returns since when something was true of the partition without a break, not before it was healed."""
        since_ns = self._ended_ns
        for state in reversed(self._states):
            if not holds(state):
                break
            since_ns = state["at_ns"]
        return max(since_ns, self._context.healed_ns or 0)

    def _no_leader(self, live: set[int]) -> Standstill | None:
        able = entitled(self._states, self._brokers, elr_on=self._context.elr_on) & live
        if not able:
            return None
        last = self._states[-1]
        return Standstill(
            form=NO_LEADER,
            since_ns=self._since(lambda state: state["leader"] < 0),
            sentence=(
                f"there was no leader, although brokers {sorted(able)} were up and connected and may lead without "
                f"losing records (replicas {last['replicas']}, ISR {last['isr']}, ELR {last['elr']})"
            ),
        )

    def _not_served(self) -> Standstill | None:
        operations = self._tables["operations"]
        columns = ["op_index", "kind", "invoked_ns", "completed_ns", "outcome", "record_count"]
        final = operations.filter(operations.column("final"))
        rows = final.select([*columns, "error_code"]).to_pylist()
        for kind, what in _SERVED.items():
            attempts = [row for row in rows if row["kind"] == kind and not self._is_refused(row)]
            if self._were_in_vain(attempts):
                shown = [row["op_index"] for row in attempts if self._ends_in_time(row)]
                return Standstill(
                    form=NOT_SERVED,
                    since_ns=self._begin_ns,
                    sentence=f"no {what}, although clients tried {len(shown)} times and went on until the end",
                    operations=(shown[0], *shown[-1:]),
                )
        return None

    def _is_refused(self, row: Row) -> bool:
        """Returns whether a system that works refuses an operation for ever, because of a setting.

        Brokers of releases that do not limit min ISR to the number of replicas (MIN-1) refuse every append if min
        ISR is larger. The record has the limited value, so the set one may be larger if all replicas are needed.
        """
        state = self._states[-1]
        needs_more = state["min_isr"] >= len(state["replicas"]) <= len(state["isr"])
        return row["error_code"] in REFUSALS or (
            needs_more and row["error_code"] == NOT_ENOUGH_REPLICAS
        )

    def _ends_in_time(self, row: Row) -> bool:
        return row["completed_ns"] is None or row["completed_ns"] > self._begin_ns

    def _were_in_vain(self, attempts: Sequence[Row]) -> bool:
        """Returns whether clients tried for the whole time without a longer pause, and nothing succeeded."""
        mine = [row for row in attempts if self._ends_in_time(row)]
        # The final phase polls below the log end only, so a poll without records brings it no further.
        if any(
            row["outcome"] == "ok" and (row["kind"] != "poll" or row["record_count"])
            for row in mine
        ):
            return False
        pause_ns = (self._ended_ns - self._begin_ns) // GAPS
        tried_ns = self._begin_ns
        for row in sorted(mine, key=lambda row: row["invoked_ns"]):
            if row["invoked_ns"] - tried_ns > pause_ns:
                return False
            done_ns = self._ended_ns if row["completed_ns"] is None else row["completed_ns"]
            tried_ns = max(tried_ns, done_ns)
        return bool(mine) and self._ended_ns - tried_ns <= pause_ns

    def _left_out(self, lasting: Sequence[Row], live: set[int]) -> Standstill | None:
        if len(lasting) > 1:
            return None  # something still changes
        state = lasting[0]
        logs = self._tables["replica_states"].select(["at_ns", "broker"]).to_pylist()
        recorded = {row["broker"] for row in logs}
        moved = {row["broker"] for row in logs if row["at_ns"] > self._begin_ns}
        missing = sorted((live & recorded) - set(state["isr"]) - moved)
        if not missing:
            return None
        return Standstill(
            form=LEFT_OUT,
            since_ns=max(state["at_ns"], self._context.healed_ns or 0),
            sentence=(
                f"the replicas of brokers {missing} stayed out of the ISR {state['isr']} and received nothing,"
                f" although they and the leader {state['leader']} were up and connected"
            ),
        )


def _is_below_min_isr(state: Row) -> bool:
    return len(state["isr"]) < effective_min_isr(state)


def _goes_back(rows: Sequence[Row]) -> bool:
    """Returns whether a replica cut off what it had copied in the same leader epoch, which brings it nowhere."""
    grown: set[int] = set()
    for before, row in pairwise(rows):
        if row["cause"] == "load":
            grown.clear()
        elif row["log_end_offset"] > before["log_end_offset"]:
            grown.add(row["leader_epoch"])
        elif row["log_end_offset"] < before["log_end_offset"] and row["leader_epoch"] in grown:
            return True
    return False


def live_brokers(
    brokers: Iterable[Row],
    faults: Iterable[Row],
    node_of: Mapping[int, str],
    clock_error_ns: int,
) -> set[int]:
    """Returns the registered brokers that no fault can keep down once everything is healed and started.

    A broker whose disk failed or may have lost data counts if it has registered since.

    Args:
        brokers: Rows of `broker_states` in order.
        faults: Rows of `faults`.
        node_of: Names of nodes by broker id, as far as they are known.
        clock_error_ns: Largest difference between the clocks of the controller and of the harness.
    """
    registered_ns: dict[int, int] = {}
    for row in brokers:
        if row["change"] == "registered":
            registered_ns[row["broker"]] = row["at_ns"]
        elif row["change"] == "unregistered":
            registered_ns.pop(row["broker"], None)
    damages = [row for row in faults if row["broken_disk"] or row["can_lose_data"]]
    return {
        broker
        for broker, at_ns in registered_ns.items()
        if all(
            at_ns > _over_ns(row) + clock_error_ns
            for row in damages
            if node_of.get(broker, f"b{broker}") in row["resolved"]
        )
    }


def _over_ns(fault: Row) -> int:
    """Returns when a fault was over; infinity if it never was."""
    over_ns = fault["healed_ns" if fault["broken_disk"] else "completed_ns"]
    return INF_NS if over_ns is None else int(over_ns)


def entitled(states: Iterable[Row], brokers: Iterable[Row], *, elr_on: bool) -> set[int]:
    """Returns the replicas that may lead at the end without losing records.

    These are the members of ISR and ELR. While there is no leader nothing is committed, so none of them stops
    having what was committed, except one that registers after an unclean shutdown; without ELR that one may lead
    too.

    Args:
        states: Rows of `partition_states` in order.
        brokers: Rows of `broker_states` in order.
        elr_on: Whether eligible leader replicas are in use.
    """
    changes = [(row["metadata_offset"], row) for row in (*brokers, *states)]
    members: set[int] = set()
    had_leader = True
    for _, row in sorted(changes, key=lambda change: change[0]):
        if "isr" in row:
            now = {*row["isr"], *row["elr"]}
            members = (now if had_leader and now else members | now) & set(row["replicas"])
            had_leader = row["leader"] >= 0
        elif row["change"] == "registered" and elr_on and row["clean"] is not True:
            members.discard(row["broker"])
    return members


def _finding(found: Standstill, operations: pa.Table, context: RunContext) -> CheckerFinding:
    assert context.ended_ns is not None
    assert context.healed_ns is not None
    evidence = Evidence(operations)
    unique = dict.fromkeys(found.operations)
    return judged_finding(
        STUCK,
        1,
        f"from {seconds(found.since_ns)} until the run ended at {seconds(context.ended_ns)} {found.sentence};"
        f" everything was healed at {seconds(context.healed_ns)}, and a partition has to make progress within"
        f" {duration(context.stuck_after_ms * MS)}",
        context,
        witnesses=tuple(Witness(op_index=op, text=evidence.describe(op)) for op in unique),
        details={"form": found.form, "at_ns": found.since_ns},
    )
