"""Checks every change of a replica at once, against a log of everything that was ever committed.

The invariant monitor compares all replicas, a few times per virtual second. What is wrong between two of its
checks and right again at the next one escapes it: a high watermark that moves before every member of the ISR has
the records, or a member that truncates committed records and fetches them again. Here only what the change
concerns is compared, so that it can be done at every change:

- a leader's high watermark moves: every member of ISR and ELR has the records below it (INV-2);
- a replica begins to lead: it has everything that was committed (INV-1);
- a member of ISR or ELR truncates: it keeps everything that was committed (INV-2);
- the high watermark of a replica moves: the last record below it is the one that was committed there (INV-4);
- log start, high watermark and log end are in this order, leader epochs do not decrease, an epoch has one leader,
  and the high watermark of a leader does not move back (INV-8, INV-9);
- a leader that is not stale has a maximal ISR that covers the controller's ISR and ELR (INV-3);
- a member of the metadata quorum is elected: no other one was elected in its epoch (INV-8), and its log does not
  end below what was committed (INV-5). Commits of the quorum are checked where they are reported
  (`harness/systems/reference/states.py`).

The shadow log of a partition holds the leader epoch of every committed offset. An offset and a leader epoch
determine one record (INV-8), so the records themselves need not be kept.
"""

from bisect import bisect_right
from typing import Any, Protocol

from harness.contracts.metadata import CommittedMetadata, PartitionState
from harness.environments.simulated.log_comparison import epochs_between
from harness.systems.reference.states import ReplicaChange
from system_under_test.broker.broker import BrokerNode
from system_under_test.broker.leadership import Leadership
from system_under_test.broker.partition import Partition
from system_under_test.config import Features
from system_under_test.invariants import check_invariant
from system_under_test.log.log import Log

LEADER, OFFLINE, TRUNCATE = "leader", "offline", "truncate"
Key = tuple[str, int]


class Watched(Protocol):
    """What is needed of a simulated cluster."""

    metadata: CommittedMetadata
    features: Features
    brokers: dict[str, int]

    def flagged_partitions(self) -> frozenset[str]:
        """Names of partitions in which a flagged election was committed."""
        ...

    def running_broker(self, name: str) -> BrokerNode | None:
        """Returns the broker process of a node that runs now."""
        ...

    def committed_metadata_end(self) -> int:
        """Returns the end of the committed metadata that controllers have reported."""
        ...


class ShadowLog:
    """The leader epochs of all committed records of one partition. Mutable: it grows with what leaders commit."""

    def __init__(self) -> None:
        self.end_offset = 0
        self._epochs: list[int] = []
        self._starts: list[int] = []

    def epoch_at(self, offset: int) -> int:
        """Returns the leader epoch of a committed offset, -1 if it was never seen."""
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else -1

    def extend(self, log: Log, end_offset: int) -> None:
        """Takes what a leader committed beyond the end.

        Args:
            log: Of the leader.
            end_offset: Its high watermark.
        """
        newest = self._epochs[-1] if self._epochs else -1
        if newest != log.epochs.epoch_at(end_offset - 1):
            for epoch, start in epochs_between(log, self.end_offset, end_offset):
                if not self._epochs or self._epochs[-1] != epoch:
                    self._epochs.append(epoch)
                    self._starts.append(start)
        self.end_offset = end_offset


class ChangeMonitor:
    """Checks every change that replicas report. Mutable: it remembers what it saw of every replica.

    Args:
        cluster: The cluster.
    """

    def __init__(self, cluster: Watched) -> None:
        self._cluster = cluster
        self._metadata = cluster.metadata
        self._elr_on = cluster.features.elr_on
        self._names: dict[Key, str] = {}
        self._shadows: dict[Key, ShadowLog] = {}
        self._leaders: dict[tuple[Key, int], str] = {}
        self._last: dict[tuple[str, Key], ReplicaChange] = {}
        self._quorum_leaders: dict[int, str] = {}
        self.change_count = 0

    def node_went_down(self, node: str) -> None:
        """Forgets a process that ended; its successor may know less."""
        for place in [place for place in self._last if place[0] == node]:
            del self._last[place]

    def quorum_leader_elected(self, node: str, epoch: int, start_offset: int) -> None:
        """Checks an election of the metadata quorum.

        Raises:
            InvariantViolation: Another leader was elected in this epoch, or the new one lacks committed records.
        """
        first = self._quorum_leaders.setdefault(epoch, node)
        check_invariant(
            first == node,
            "INV-8",
            "a quorum epoch has one leader",
            quorum_epoch=epoch,
            first=first,
            second=node,
        )
        if epoch < max(self._quorum_leaders):
            return  # it was paused with the votes for an epoch that is over, and cannot commit anything
        committed_end = self._cluster.committed_metadata_end()
        check_invariant(
            start_offset >= committed_end,
            "INV-5",
            "a new leader of the quorum has all committed metadata",
            node=node,
            log_end_offset=start_offset,
            committed_end=committed_end,
        )

    def replica_changed(self, node: str, key: Key, change: ReplicaChange) -> None:
        """Checks one change.

        Args:
            node: The node whose replica changed.
            key: Topic and partition.
            change: The replica's new state.

        Raises:
            InvariantViolation: Something that must hold does not.
        """
        self.change_count += 1
        place = (node, key)
        if change.role == OFFLINE:
            self._last.pop(place, None)
            return
        before = None if change.cause == "load" else self._last.get(place)
        self._last[place] = change
        is_inside = change.log_start_offset <= change.high_watermark <= change.log_end_offset
        if not is_inside:
            self._broken("INV-9", "the high watermark is inside the log", node, key, change=change)
        leads = change.role == LEADER
        begins = leads
        if before is not None:
            begins = leads and not (
                before.role == LEADER and before.leader_epoch == change.leader_epoch
            )
            self._check_order(node, key, before, change, leads_on=leads and not begins)
        if begins:
            first = self._leaders.setdefault((key, change.leader_epoch), node)
            if first != node:
                statement = "a leader epoch has one leader"
                self._broken("INV-8", statement, node, key, change=change, first=first)
        has_moved = before is None or change.high_watermark != before.high_watermark
        if self._elr_on and (has_moved or begins or change.cause == TRUNCATE):
            self._check_committed(node, key, change, begins=begins)

    def _check_order(
        self, node: str, key: Key, before: ReplicaChange, now: ReplicaChange, *, leads_on: bool
    ) -> None:
        if now.leader_epoch < before.leader_epoch:
            statement = "leader epochs never decrease"
            self._broken("INV-8", statement, node, key, before=before, now=now)
        if leads_on and now.high_watermark < before.high_watermark:
            statement = "a leader's high watermark never moves back"
            self._broken("INV-9", statement, node, key, before=before, now=now)

    def _check_committed(self, node: str, key: Key, change: ReplicaChange, *, begins: bool) -> None:
        """Compares a change with what was committed, unless an election gave that up."""
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = f"{key[0]}-{key[1]}"
        state = self._metadata.partitions.get(name)
        if state is None or name in self._cluster.flagged_partitions():
            return
        partition = self._registered(node, key)
        if partition is None or partition.log is None:
            return
        log, leads = partition.log, change.role == LEADER
        shadow = self._shadows.get(key)
        if shadow is None:
            shadow = self._shadows[key] = ShadowLog()
        number = self._cluster.brokers[node]
        is_member = number in state.isr or number in state.elr
        leads_now = leads and change.leader_epoch == state.leader_epoch
        # First, because it is the reason for other violations.
        if leads_now and partition.leadership is not None:
            self._check_maximal_isr(node, key, partition.leadership, state)
        if change.log_end_offset < shadow.end_offset:
            values = {"change": change, "committed_end": shadow.end_offset, "state": state}
            if leads_now:
                statement = "the leader has all committed records"
                self._broken("INV-1", statement, node, key, **values)
            if is_member and change.cause == TRUNCATE:
                statement = "a member of ISR or ELR truncates no committed record"
                self._broken("INV-2", statement, node, key, **values)
        if begins and leads_now:
            self._check_offset(node, key, log, shadow.end_offset, "INV-1")
        if leads and change.high_watermark > shadow.end_offset:
            self._check_members(node, key, change.high_watermark, state)
            shadow.extend(log, change.high_watermark)
        if leads_now or is_member:
            known = min(change.high_watermark, shadow.end_offset)
            self._check_offset(node, key, log, known, "INV-4")

    def _check_offset(self, node: str, key: Key, log: Log, end_offset: int, invariant: str) -> None:
        """Compares the last record below an offset with the one that was committed there."""
        if end_offset <= log.log_start_offset:
            return
        committed = self._shadows[key].epoch_at(end_offset - 1)
        epoch = log.epochs.epoch_at(end_offset - 1)
        # -1: nothing is known of that offset.
        if epoch != committed and epoch >= 0 and committed >= 0:
            self._broken(
                invariant,
                "a replica has the record that was committed at an offset",
                node,
                key,
                offset=end_offset - 1,
                leader_epoch=epoch,
                committed_leader_epoch=committed,
            )

    def _check_maximal_isr(
        self, node: str, key: Key, leadership: Leadership, state: PartitionState
    ) -> None:
        if leadership.is_below_min_isr:
            return
        # A leader no longer counts on a proposal that a registration without news has cancelled (LEAD-2).
        counted = {*leadership.state.maximal_isr, *leadership.cancelled_isr}
        if not (counted.issuperset(state.isr) and counted.issuperset(state.elr)):
            self._broken(
                "INV-3",
                "the maximal ISR covers the controller's ISR and ELR",
                node,
                key,
                maximal_isr=leadership.state.maximal_isr,
                state=state,
            )

    def _check_members(
        self, node: str, key: Key, high_watermark: int, state: PartitionState
    ) -> None:
        """Checks that every running member of ISR and ELR has what a leader commits now."""
        for name, number in self._cluster.brokers.items():
            if name == node or not (number in state.isr or number in state.elr):
                continue
            partition = self._registered(name, key)
            if partition is None or partition.log is None:
                continue
            if partition.log.log_end_offset < high_watermark:
                self._broken(
                    "INV-2",
                    "every member of ISR and ELR has all committed records",
                    node,
                    key,
                    broker=number,
                    log_end_offset=partition.log.log_end_offset,
                    high_watermark=high_watermark,
                    state=state,
                )

    def _registered(self, node: str, key: Key) -> Partition | None:
        """Returns a replica whose broker runs and agrees with committed metadata about its incarnation."""
        registered = self._metadata.brokers.get(self._cluster.brokers[node])
        broker = self._cluster.running_broker(node)
        if broker is None or registered is None or broker.broker_epoch != registered.broker_epoch:
            return None
        return broker.replica_manager.partitions.get(key)

    def _broken(self, invariant: str, message: str, node: str, key: Key, **values: Any) -> None:
        check_invariant(
            False, invariant, message, partition=f"{key[0]}-{key[1]}", node=node, **values
        )
