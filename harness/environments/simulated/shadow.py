"""Checks every change of a replica and every fetch at once, against a log of everything that was ever committed.

The invariant monitor compares all replicas, a few times per virtual second. What is wrong between two of its
checks and right again at the next one escapes it: a high watermark that moves before every member of the ISR has
the records, or a member that truncates committed records and fetches them again. Here only what the change
concerns is compared, so that it can be done at every change:

- a leader's high watermark moves: every member of ISR and ELR has the records below it (INV-2);
- a replica begins to lead: it has everything that was committed (INV-1);
- a member of ISR or ELR truncates: it keeps everything that was committed (INV-2);
- the high watermark of a replica moves, or a replica is loaded, or a follower appends in the current leader epoch:
  its records below the high watermark (for the leader and that follower: all committed ones) are the batches that
  were committed there, byte for byte (INV-4). What was compared once is compared again only if its log changed;
- a fetch is served: what a consumer gets is committed, and is what was committed there (INV-6), and so is what a
  follower gets below the high watermark of the leader, or below every one if the leader is not stale (INV-4);
- log start, high watermark and log end are in this order, leader epochs do not decrease, an epoch has one leader,
  and the high watermark of a leader does not move back (INV-8, INV-9);
- a leader that is not stale has a maximal ISR that covers the controller's ISR and ELR (INV-3): at every change of
  the leader's ISR state (proposal, response, registration, min ISR) and of its high watermark, and at every change
  of the partition that the controller commits;
- a member of the metadata quorum votes: it voted for no other one in this epoch, and not in a later one (INV-8);
- a member of the metadata quorum is elected: no other one was elected in its epoch (INV-8), and its log does not
  end below what was committed (INV-5). Commits of the quorum are checked where they are reported
  (`harness/systems/reference/states.py`).

Records may be lost lawfully with ELR off and after a flagged election of the partition. Then committed records are
not compared (INV-1, INV-2, INV-4, INV-6); all else is checked. A new topic with an old name has a new shadow log.
"""

from typing import Any, NamedTuple, Protocol
from uuid import UUID

from harness.contracts.metadata import CommittedMetadata, PartitionState
from harness.environments.simulated.log_comparison import COMPARED_BYTES
from harness.environments.simulated.shadow_log import ShadowLog
from harness.systems.reference.states import ReplicaChange
from system_under_test.broker.broker import BrokerNode
from system_under_test.broker.partition import Partition
from system_under_test.config import Features
from system_under_test.invariants import check_invariant
from system_under_test.log.log import Log
from system_under_test.protocol.record_batch import end_offset_of

LEADER, OFFLINE, LOAD, REPLICATE, TRUNCATE = "leader", "offline", "load", "replicate", "truncate"
Key = tuple[str, int]


class Watched(Protocol):
    """What is needed of a simulated cluster."""

    metadata: CommittedMetadata
    features: Features
    brokers: dict[str, int]
    world: Any

    def flagged_partitions(self) -> frozenset[str]:
        """Names of partitions in which a flagged election was committed."""
        ...

    def running_broker(self, name: str) -> BrokerNode | None:
        """Returns the broker process of a node that runs now."""
        ...

    def true_high_watermark(self, topic: str, partition: int) -> int:
        """Returns the largest high watermark that any leader of the partition ever had."""
        ...

    def committed_metadata_end(self) -> int:
        """Returns the end of the committed metadata that controllers have reported."""
        ...

    def waits_for_disk_until_ns(self, name: str) -> float:
        """Returns until when a node is in a blocking call to its disk; until then nobody sees what it does."""
        ...


class _Partition:
    """What is known of a partition. Mutable.

    Attributes:
        name: For example "t-0".
        committed_end: The end of what was committed in any topic with this name.
    """

    __slots__ = ("_shadow", "_shadows", "_topic_id", "committed_end", "name")

    def __init__(self, key: Key) -> None:
        self.name = f"{key[0]}-{key[1]}"
        self.committed_end = 0
        self._topic_id: UUID | None = None
        self._shadow = ShadowLog()
        self._shadows: dict[UUID, ShadowLog] = {}

    def shadow(self, topic_id: UUID) -> ShadowLog:
        """Returns the shadow log; a topic that was created anew has another id."""
        if topic_id is not self._topic_id:
            self._topic_id = topic_id
            self._shadow = self._shadows.setdefault(topic_id, ShadowLog())
        return self._shadow


class _Replica:
    """What is known of a replica while its process runs. Mutable.

    Attributes:
        last: Its last change, None before the first.
        log, generation: What `compared_end` is about: it means nothing for another log, or once its records may
            read differently.
        compared_end: The end of the records that were found to be what was committed.
        isr: The ISR state and the committed state of the partition that were last compared (INV-3).
    """

    __slots__ = ("compared_end", "generation", "isr", "last", "log")

    def __init__(self) -> None:
        self.last: ReplicaChange | None = None
        self.log: Log | None = None
        self.generation = 0
        self.compared_end = 0
        self.isr: tuple[object, object] = (None, None)

    def compared(self, log: Log) -> int:
        """Returns the end of the records of a log that need not be compared again."""
        return self.compared_end if self.log is log and self.generation == log.generation else 0

    def has_compared(self, log: Log, end_offset: int) -> None:
        """Notes how far a log was compared."""
        self.log = log
        self.generation = log.generation
        self.compared_end = end_offset

    def truncated(self, log: Log) -> None:
        """Notes that a log has other records only behind its new end."""
        # Anything else that happened to the log since would have raised its generation further.
        if self.log is log and log.generation == self.generation + 1:
            self.has_compared(log, min(self.compared_end, log.log_end_offset))


class _Vote(NamedTuple):
    """A vote of a member of the metadata quorum, when it is durable, and the one before it."""

    epoch: int
    candidate: int
    durable_ns: float
    before: "_Vote | None"


class ChangeMonitor:
    """Checks every change and every fetch that nodes report. Mutable: it remembers what it saw of every replica.

    Args:
        cluster: The cluster.

    Attributes:
        change_count: How many changes of replicas were reported.
        served_count: How many responses with records were reported, per partition.
    """

    def __init__(self, cluster: Watched) -> None:
        self._cluster = cluster
        self._metadata = cluster.metadata
        self._elr_on = cluster.features.elr_on
        self._nodes = {number: name for name, number in cluster.brokers.items()}
        self._partitions: dict[Key, _Partition] = {}
        self._replicas: dict[tuple[str, Key], _Replica] = {}
        self._leaders: dict[tuple[Key, int], str] = {}
        self._quorum_leaders: dict[int, str] = {}
        self._votes: dict[str, _Vote] = {}
        self.change_count = 0
        self.served_count = 0

    def node_went_down(self, node: str) -> None:
        """Forgets a process that ended; its successor may know less."""
        for place in [place for place in self._replicas if place[0] == node]:
            del self._replicas[place]
        vote = self._votes.get(node)
        if vote is not None and self._cluster.world.now < vote.durable_ns:
            # Nobody has seen it, and a power cut may have undone it.
            if vote.before is None:
                del self._votes[node]
            else:
                self._votes[node] = vote.before

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

    def quorum_voted(self, node: str, epoch: int, candidate: int) -> None:
        """Checks a vote of a member of the metadata quorum.

        Raises:
            InvariantViolation: It voted before, for another one in this epoch or in a later epoch.
        """
        last = self._votes.get(node)
        last_epoch, last_candidate = (-1, -1) if last is None else (last.epoch, last.candidate)
        check_invariant(
            epoch > last_epoch or (epoch, candidate) == (last_epoch, last_candidate),
            "INV-8",
            "a member of the metadata quorum votes for one candidate in an epoch, and then only in later ones",
            node=node,
            last_epoch=last_epoch,
            last_candidate=last_candidate,
            epoch=epoch,
            candidate=candidate,
        )
        durable_ns = self._cluster.waits_for_disk_until_ns(node)
        self._votes[node] = _Vote(epoch, candidate, durable_ns, last)

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
            self._replicas.pop(place, None)
            return
        replica = self._replicas.get(place)
        if replica is None:
            replica = self._replicas[place] = _Replica()
        before = None if change.cause == LOAD else replica.last
        replica.last = change
        is_inside = change.log_start_offset <= change.high_watermark <= change.log_end_offset
        if not is_inside:
            self._broken("INV-9", "the high watermark is inside the log", node, key, change=change)
        leads = change.role == LEADER
        begins = leads
        if before is not None:
            begins = leads and not (
                before.role == LEADER and before.leader_epoch == change.leader_epoch
            )
            if change.leader_epoch < before.leader_epoch:
                statement = "leader epochs never decrease"
                self._broken("INV-8", statement, node, key, before=before, now=change)
            if leads and not begins and change.high_watermark < before.high_watermark:
                statement = "a leader's high watermark never moves back"
                self._broken("INV-9", statement, node, key, before=before, now=change)
        if begins:
            first = self._leaders.setdefault((key, change.leader_epoch), node)
            if first != node:
                statement = "a leader epoch has one leader"
                self._broken("INV-8", statement, node, key, change=change, first=first)
        if before is None or begins or change.high_watermark != before.high_watermark:
            self._check_committed(node, key, replica, change, begins=begins)
        elif change.cause == TRUNCATE or (
            # Usually a follower appends what is not committed yet.
            change.cause == REPLICATE and before.log_end_offset < self._partition(key).committed_end
        ):
            self._check_committed(node, key, replica, change, begins=False)

    def leader_isr_changed(self, node: str, key: Key) -> None:
        """Checks a leader whose ISR state changed.

        Raises:
            InvariantViolation: It counts on too few replicas (INV-3).
        """
        state = self._metadata.partitions.get(self._partition(key).name)
        partition = self._registered(node, key)
        if state is not None and partition is not None:
            self._check_maximal_isr(node, key, partition, state)

    def partition_committed(self, key: Key) -> None:
        """Checks the leader of a partition of which the controller committed a change.

        Raises:
            InvariantViolation: The leader counts on too few replicas (INV-3).
        """
        leader = self._nodes.get(self._metadata.partitions[self._partition(key).name].leader)
        if leader is not None:
            self.leader_isr_changed(leader, key)

    def records_served(
        self, node: str, key: Key, offset: int, records: bytes, to_follower: bool
    ) -> None:
        """Checks the records of one partition in a response to a fetch.

        Args:
            node: The node that responds.
            key: Topic and partition.
            offset: The offset from which was fetched.
            records: Whole batches.
            to_follower: Whether a follower fetches, as opposed to a consumer.

        Raises:
            InvariantViolation: A consumer gets uncommitted records, or the records differ from the committed ones.
        """
        self.served_count += 1
        known = self._partition(key)
        if to_follower and offset >= known.committed_end:
            return
        end = -1
        partition = self._registered(node, key)
        state = self._metadata.partitions.get(known.name)
        if partition is not None and state is not None and self._promises(known):
            shadow = known.shadow(partition.topic_id)
            below = shadow.end_offset
            if partition.leadership is None or partition.leader_epoch != state.leader_epoch:
                below = min(below, partition.high_watermark)
            difference, end = self._difference(key, shadow, records, offset, below)
            if difference is not None:
                self._broken(
                    "INV-4" if to_follower else "INV-6",
                    "a fetch returns the record that was committed at an offset",
                    node,
                    key,
                    offset=difference,
                    fetch_offset=offset,
                    committed_leader_epoch=shadow.epoch_at(difference),
                    committed_end=shadow.end_offset,
                    to_follower=to_follower,
                    state=state,
                )
        if not to_follower:
            end = end if end >= 0 else end_offset_of(records) or 0
            if end <= known.committed_end:
                return
            committed_end = self._cluster.true_high_watermark(*key)
            if end > committed_end:
                self._broken(
                    "INV-6",
                    "a consumer gets committed records only",
                    node,
                    key,
                    fetch_offset=offset,
                    end_offset=end,
                    true_high_watermark=committed_end,
                )

    def has_compared(self, node: str, key: Key, log: Log, end_offset: int) -> bool:
        """Whether the records of a replica up to an offset were found to be what was committed."""
        known = self._replicas.get((node, key))
        return known is not None and known.compared(log) >= end_offset

    def _partition(self, key: Key) -> _Partition:
        known = self._partitions.get(key)
        if known is None:
            known = self._partitions[key] = _Partition(key)
        return known

    def _promises(self, known: _Partition) -> bool:
        """Whether no committed record of a partition may be lost."""
        return self._elr_on and known.name not in self._cluster.flagged_partitions()

    def _check_committed(
        self, node: str, key: Key, replica: _Replica, change: ReplicaChange, *, begins: bool
    ) -> None:
        """Compares a change with what was committed, unless an election gave that up."""
        known = self._partition(key)
        leads = change.role == LEADER
        state = self._metadata.partitions.get(known.name)
        partition = self._registered(node, key)
        if state is None or partition is None or partition.log is None:
            return
        # First, because it is the reason for other violations.
        if leads and partition.leadership is not None:
            seen = (partition.leadership.state, state)
            # Every change is reported, so this finds something only if a report is missing.
            if seen[0] is not replica.isr[0] or seen[1] is not replica.isr[1]:
                self._check_maximal_isr(node, key, partition, state)
                replica.isr = seen
        if not self._promises(known):
            return
        log = partition.log
        shadow = known.shadow(partition.topic_id)
        number = self._cluster.brokers[node]
        is_member = number in state.isr or number in state.elr
        is_current = change.leader_epoch == state.leader_epoch
        leads_now = leads and is_current
        if change.log_end_offset < shadow.end_offset:
            self._check_end(
                node,
                key,
                leads_now=leads_now,
                cuts_member=is_member and change.cause == TRUNCATE,
                values={"change": change, "committed_end": shadow.end_offset, "state": state},
            )
        if change.cause == TRUNCATE:
            replica.truncated(log)
        if begins and leads_now:
            self._check_offset(node, key, log, shadow, shadow.end_offset, "INV-1")
            self._check_records(node, key, replica, log, shadow, shadow.end_offset, "INV-1")
        end_offset = min(change.high_watermark, shadow.end_offset)
        if (leads_now or is_member) and end_offset > replica.compared(log):
            self._check_offset(node, key, log, shadow, end_offset, "INV-4")
        if is_current and change.cause == REPLICATE:
            # The leader compared epochs before it sent them, so the whole log is the beginning of its own.
            end_offset = min(change.log_end_offset, shadow.end_offset)
        self._check_records(node, key, replica, log, shadow, end_offset, "INV-4")
        if leads and change.high_watermark > shadow.end_offset:
            self._check_members(node, key, change.high_watermark, state)
            try:
                with self._cluster.world.inspecting():
                    shadow.extend(log, change.high_watermark)
            except OSError:
                return  # the disk is gone; the next leader has the same records
            known.committed_end = max(known.committed_end, change.high_watermark)
            replica.has_compared(log, change.high_watermark)

    def _check_end(
        self, node: str, key: Key, *, leads_now: bool, cuts_member: bool, values: dict[str, Any]
    ) -> None:
        """Judges a replica whose log ends below what was committed."""
        if leads_now:
            statement = "the leader has all committed records"
            self._broken("INV-1", statement, node, key, **values)
        if cuts_member:
            statement = "a member of ISR or ELR truncates no committed record"
            self._broken("INV-2", statement, node, key, **values)

    def _check_records(
        self,
        node: str,
        key: Key,
        replica: _Replica,
        log: Log,
        shadow: ShadowLog,
        below: int,
        invariant: str,
    ) -> None:
        """Compares those records of a replica below an offset that were not compared before."""
        start = max(log.log_start_offset, replica.compared(log))
        if start >= below:
            return
        while start < below:
            try:
                with self._cluster.world.inspecting():
                    data = log.read(start, COMPARED_BYTES, below)
            except OSError:
                return
            if not data:
                break
            difference, end = shadow.compare(data, start, below)
            if difference is not None:
                difference, end = self._difference(key, shadow, data, start, below)
            if difference is not None:
                self._broken(
                    invariant,
                    "a replica has the records that were committed",
                    node,
                    key,
                    offset=difference,
                    leader_epoch=log.epochs.epoch_at(difference),
                    committed_leader_epoch=shadow.epoch_at(difference),
                    committed_end=shadow.end_offset,
                )
            if end < 0:
                break
            start = end
        replica.has_compared(log, below)

    def _difference(
        self, key: Key, shadow: ShadowLog, data: bytes, start: int, below: int
    ) -> tuple[int | None, int]:
        found = shadow.compare(data, start, below)
        if found[0] is not None and not shadow.lacks_records and self._is_compacted(key):
            shadow.lacks_records = True
            found = shadow.compare(data, start, below)
        return found

    def _is_compacted(self, key: Key) -> bool:
        """Whether some replica of a partition may lack records."""
        for name in self._cluster.brokers:
            broker = self._cluster.running_broker(name)
            partition = None if broker is None else broker.replica_manager.partitions.get(key)
            log = None if partition is None else partition.log
            if log is not None and (log.config.compacts or log.first_dirty_offset > 0):
                return True
        return False

    def _check_offset(
        self, node: str, key: Key, log: Log, shadow: ShadowLog, end_offset: int, invariant: str
    ) -> None:
        """Compares the last record below an offset with the one that was committed there."""
        if end_offset <= log.log_start_offset:
            return
        committed = shadow.epoch_at(end_offset - 1)
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
        self, node: str, key: Key, partition: Partition, state: PartitionState
    ) -> None:
        leadership = partition.leadership
        if leadership is None or partition.leader_epoch != state.leader_epoch:
            return
        if leadership.is_below_min_isr:
            return
        counted = set(leadership.state.maximal_isr)
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
            replica = self._replicas.get((name, key))
            if (
                replica is not None
                and replica.last is not None
                and replica.last.log_end_offset >= high_watermark
            ):
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
