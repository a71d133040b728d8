"""The invariant monitor: inspects the simulated brokers while they run, and compares their states.

Checkers see from outside that a promise was broken; the monitor sees the moment from which it could be broken. It
compares all replicas after every committed metadata change and a few times per virtual second, and checks every
change of one replica at once (`harness/environments/simulated/shadow.py`); `docs/invariants.md` has the
statements. A violation ends the run.

INV-1, INV-2, INV-4 and INV-11 are promises of ELR on, and only until the controller itself flagged an unclean
election of the partition: from then on data may be gone, and the partition is no longer judged by them.

INV-10 speaks of the full list of last-known ELR members (KIP-966, part 2), which no release of Kafka has.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from harness.contracts.metadata import PartitionState
from harness.environments.simulated.log_comparison import clipped, epochs_between, first_difference
from harness.environments.simulated.shadow import ChangeMonitor
from harness.environments.simulated.shadow import Watched as WatchedByChanges
from system_under_test.broker.broker import BrokerNode
from system_under_test.broker.partition import Partition
from system_under_test.invariants import InvariantViolation, check_invariant
from system_under_test.log.log import Log

INTERVAL_NS = 100_000_000
"""Time between two checks of all replicas without a metadata change."""

SAME_LOOKS_MAX = 9
"""How many checks in a row may be skipped because nothing moved. Corruption of stored records moves nothing."""


class Watched(WatchedByChanges, Protocol):
    """What the monitor needs of a simulated cluster."""

    def watch_changes(self, watcher: ChangeMonitor) -> None:
        """Calls a watcher with every change that nodes report from now on."""
        ...

    def differing_controllers(self) -> dict[str, Any]:
        """Returns what differs between the image of a controller and the log up to there, by controller."""
        ...


class InvariantMonitor:
    """Checks INV-1 to INV-5, INV-7 to INV-9 and INV-11. Mutable: it remembers what it saw of every partition."""

    def __init__(self, cluster: Watched) -> None:
        self._cluster = cluster
        self._metadata = cluster.metadata
        self._elr_on = cluster.features.elr_on
        # Before Kafka 4.0 a broker may register while its last incarnation still leads (KAFKA-18106).
        self._leader_is_alive = cluster.features.shutdown_detection == "epoch_match"
        self._leaders: dict[tuple[str, int], int] = {}
        self._high_watermarks: dict[tuple[str, int], int] = {}
        self._epochs: dict[str, tuple[int, int]] = {}
        self._found_good: dict[str, tuple[Any, int]] = {}
        self._committed: dict[str, _Committed] = {}
        self._compared: dict[tuple[str, int, int], tuple[Any, int]] = {}
        self._names = {number: name for name, number in cluster.brokers.items()}
        self._last_offset = -1
        self.check_count = 0
        self.changes = ChangeMonitor(cluster)

    def start(self) -> None:
        """Starts checking."""
        self._cluster.watch_changes(self.changes)
        self._metadata.watch(self._metadata_changed)
        self._tick()

    def check(self) -> None:
        """Checks everything now.

        Raises:
            InvariantViolation: Something that must hold does not.
        """
        self.check_count += 1
        differing = self._cluster.differing_controllers()
        check_invariant(
            not differing,
            "INV-5",
            "a controller that continues from a snapshot has the image that the whole log describes",
            differing=differing,
        )
        brokers = list(self._brokers())
        for name, state in self._metadata.partitions.items():
            replicas = list(_replicas(brokers, (state.topic, state.partition)))
            seen = self._what_is_checked(state, replicas)
            found_good, same_count = self._found_good.get(name, (None, 0))
            nothing_moved = seen == found_good
            if nothing_moved and same_count < SAME_LOOKS_MAX:
                self._found_good[name] = (seen, same_count + 1)
                continue
            self._check_shape(state)
            self._check_epochs(state)
            for broker, partition, log in replicas:
                self._check_replica(state, broker, partition, log)
            if self._elr_on and name not in self._cluster.flagged_partitions():
                self._check_survival(state, replicas)
                self._check_completeness(state, replicas)
                self._check_leader(state, replicas)
                self._check_log_matching(state, replicas, compares_all=nothing_moved)
            self._found_good[name] = (seen, 0)

    def _what_is_checked(
        self, state: PartitionState, replicas: list[tuple[BrokerNode, Partition, Log]]
    ) -> tuple[Any, ...]:
        """Returns everything that the checks depend on, except the records themselves."""
        return (
            state,
            self._metadata.is_fenced(state.leader),
            self._cluster.true_high_watermark(state.topic, state.partition),
            [
                (
                    broker.node_id,
                    partition.high_watermark,
                    partition.leader_epoch,
                    None
                    if partition.leadership is None
                    else (
                        partition.leadership.state,
                        partition.leadership.effective_min_isr,
                    ),
                    log,
                    log.generation,
                    log.log_start_offset,
                    log.log_end_offset,
                )
                for broker, partition, log in replicas
            ],
        )

    def _tick(self) -> None:
        self._check_and_report()
        self._cluster.world.schedule(self._cluster.world.now + INTERVAL_NS, self._tick)

    def _metadata_changed(self) -> None:
        # Inside a batch the image is between two states; after the batch's last record, a check follows at the
        # same instant, once the controller's callback has returned.
        if self._metadata.offset != self._last_offset:
            self._last_offset = self._metadata.offset
            self._cluster.world.schedule(self._cluster.world.now, self._check_and_report)

    def _check_and_report(self) -> None:
        """Checks; a violation is a failure of the run, like a node crash, and not an error of the harness."""
        try:
            with self._cluster.world.inspecting():
                self.check()
        except InvariantViolation as broken:
            self._cluster.world.fail(broken)

    def _brokers(self) -> Iterator[BrokerNode]:
        """Yields the running brokers that agree with committed metadata about their incarnation."""
        for name, broker_id in self._cluster.brokers.items():
            registered = self._metadata.brokers.get(broker_id)
            broker = self._cluster.running_broker(name)
            if broker is None or registered is None:
                continue
            if broker.broker_epoch == registered.broker_epoch:
                yield broker

    def _check_shape(self, state: PartitionState) -> None:
        isr, elr = set(state.isr), set(state.elr)
        context = {"partition": state}
        check_invariant(isr <= set(state.replicas), "INV-7", "the ISR is assigned", **context)
        check_invariant(elr <= set(state.replicas), "INV-7", "the ELR is assigned", **context)
        check_invariant(not isr & elr, "INV-7", "ISR and ELR are disjoint", **context)
        check_invariant(
            not (elr and len(isr) >= state.min_isr),
            "INV-7",
            "an ISR of min ISR members has no ELR",
            **context,
        )
        check_invariant(
            state.leader == -1 or state.leader in isr,
            "INV-7",
            "the leader is in the ISR",
            **context,
        )
        check_invariant(
            state.leader == -1
            or not self._leader_is_alive
            or not self._metadata.is_fenced(state.leader),
            "INV-7",
            "the leader is not fenced",
            **context,
        )
        check_invariant(bool(isr) or self._elr_on, "INV-7", "ELR off keeps the ISR", **context)

    def _check_epochs(self, state: PartitionState) -> None:
        before = self._epochs.get(state.name, (0, 0))
        now = (state.leader_epoch, state.partition_epoch)
        check_invariant(
            now[0] >= before[0] and now[1] >= before[1],
            "INV-8",
            "leader and partition epochs never decrease",
            partition=state,
            before=before,
        )
        self._epochs[state.name] = now

    def _check_replica(
        self, state: PartitionState, broker: BrokerNode, partition: Partition, log: Log
    ) -> None:
        check_invariant(
            log.log_start_offset <= partition.high_watermark <= log.log_end_offset,
            "INV-9",
            "the high watermark is inside the log",
            broker=broker.node_id,
            partition=state.name,
            high_watermark=partition.high_watermark,
            log_end_offset=log.log_end_offset,
        )
        leadership = partition.leadership
        if leadership is None:
            return
        key = (state.name, partition.leader_epoch)
        check_invariant(
            self._leaders.setdefault(key, broker.node_id) == broker.node_id,
            "INV-8",
            "a leader epoch has one leader",
            partition=state.name,
            leader_epoch=partition.leader_epoch,
            first=self._leaders[key],
            second=broker.node_id,
        )
        check_invariant(
            partition.high_watermark >= self._high_watermarks.get(key, 0),
            "INV-9",
            "a leader's high watermark never moves back",
            broker=broker.node_id,
            partition=state.name,
            before=self._high_watermarks.get(key, 0),
            now=partition.high_watermark,
        )
        self._high_watermarks[key] = partition.high_watermark
        is_current = partition.leader_epoch == state.leader_epoch
        isr_state = leadership.state
        if is_current and not leadership.is_below_min_isr:
            check_invariant(
                set(isr_state.maximal_isr) >= set(state.isr) | set(state.elr),
                "INV-3",
                "the maximal ISR covers the controller's ISR and ELR",
                maximal_isr=isr_state.maximal_isr,
                partition=state,
            )

    def _check_completeness(
        self, state: PartitionState, replicas: list[tuple[BrokerNode, Partition, Log]]
    ) -> None:
        committed_end = self._cluster.true_high_watermark(state.topic, state.partition)
        last_epochs: dict[int, int] = {}
        for broker, _, log in replicas:
            if broker.node_id not in state.isr and broker.node_id not in state.elr:
                continue
            check_invariant(
                log.log_end_offset >= committed_end,
                "INV-2",
                "every member of ISR and ELR has all committed records",
                broker=broker.node_id,
                log_end_offset=log.log_end_offset,
                true_high_watermark=committed_end,
                partition=state,
            )
            if committed_end > log.log_start_offset:
                last_epochs[broker.node_id] = log.epochs.epoch_at(committed_end - 1)
        # A log that is long enough may still hold something else: what a deposed leader wrote there.
        check_invariant(
            len(set(last_epochs.values())) <= 1,
            "INV-2",
            "all members of ISR and ELR have the last committed record of the same leader epoch",
            leader_epochs=last_epochs,
            offset=committed_end - 1,
            partition=state,
        )

    def _check_survival(
        self, state: PartitionState, replicas: list[tuple[BrokerNode, Partition, Log]]
    ) -> None:
        """Checks INV-11 if every replica can be seen, and the controller still counts on one of them."""
        seen = {broker.node_id for broker, _, _ in replicas}
        # A broker that has to delete its replica may still have it.
        if not seen >= {*state.replicas} or not (state.isr or state.elr):
            return
        committed = self._committed.get(state.name, _NOTHING)
        check_invariant(
            any(committed.is_in(log) for _, _, log in replicas),
            "INV-11",
            "some replica has all committed records",
            committed=committed,
            logs={broker.node_id: _shape(log) for broker, _, log in replicas},
            partition=state,
        )

    def _check_leader(
        self, state: PartitionState, replicas: list[tuple[BrokerNode, Partition, Log]]
    ) -> None:
        """Checks INV-1, and remembers what is committed in the leader's log."""
        committed_end = self._cluster.true_high_watermark(state.topic, state.partition)
        for broker, partition, log in replicas:
            if partition.leadership is None or partition.leader_epoch != state.leader_epoch:
                continue
            committed = self._committed.get(state.name, _NOTHING)
            check_invariant(
                log.log_end_offset >= committed_end and committed.is_in(log),
                "INV-1",
                "the leader has all committed records",
                broker=broker.node_id,
                log=_shape(log),
                true_high_watermark=committed_end,
                committed=committed,
                partition=state,
            )
            self._committed[state.name] = _Committed(
                end_offset=committed_end, epochs=epochs_between(log, 0, committed_end)
            )

    def _check_log_matching(
        self,
        state: PartitionState,
        replicas: list[tuple[BrokerNode, Partition, Log]],
        *,
        compares_all: bool,
    ) -> None:
        """Checks INV-4; unless `compares_all`, not the records that were compared with the shadow log."""
        key = (state.topic, state.partition)
        has_compared = self.changes.has_compared
        for index, (broker, partition, log) in enumerate(replicas):
            for other, other_partition, other_log in replicas[index + 1 :]:
                below = min(partition.high_watermark, other_partition.high_watermark)
                start = max(log.log_start_offset, other_log.log_start_offset)
                if below <= start:
                    continue
                epochs, other_epochs = (
                    epochs_between(one, start, below) for one in (log, other_log)
                )
                check_invariant(
                    epochs == other_epochs,
                    "INV-4",
                    "two replicas have the same leader epochs below both high watermarks",
                    brokers=(broker.node_id, other.node_id),
                    below=below,
                    epochs=epochs,
                    other_epochs=other_epochs,
                    partition=state,
                )
                if not compares_all and all(
                    has_compared(self._names[one.node_id], key, its_log, below)
                    for one, its_log in ((broker, log), (other, other_log))
                ):
                    continue
                differing = self._first_difference(
                    (state.name, broker.node_id, other.node_id), log, other_log, below
                )
                check_invariant(
                    differing is None,
                    "INV-4",
                    "two replicas agree below both high watermarks",
                    brokers=(broker.node_id, other.node_id),
                    offset=differing,
                    partition=state,
                )

    def _first_difference(
        self, pair: tuple[str, int, int], log: Log, other: Log, below: int
    ) -> int | None:
        """Returns where two logs begin to differ below an offset, None if they agree.

        What was found equal before is not read again, except for the last record.
        """
        logs = (log, log.generation, other, other.generation)
        known, equal_to = self._compared.get(pair, (None, 0))
        start = max(log.log_start_offset, other.log_start_offset)
        if known == logs:
            start = max(start, min(equal_to, below - 1))
        differing = first_difference(log, other, start, below)
        if differing is None:
            self._compared[pair] = (logs, below)
        return differing


def _replicas(
    brokers: Iterable[BrokerNode], key: tuple[str, int]
) -> Iterator[tuple[BrokerNode, Partition, Log]]:
    """Yields the loaded replicas of a partition on some brokers."""
    for broker in brokers:
        partition = broker.replica_manager.partitions.get(key)
        if partition is not None and partition.log is not None:
            yield broker, partition, partition.log


@dataclass(frozen=True, slots=True, kw_only=True)
class _Committed:
    """The committed records of a partition, as they were seen in its leader's log.

    Attributes:
        end_offset: The true high watermark at that time.
        epochs: Leader epochs of the records with their first offsets. Equal epochs at equal offsets mean equal
            records (INV-8).
    """

    end_offset: int
    epochs: tuple[tuple[int, int], ...]

    def is_in(self, log: Log) -> bool:
        """Whether a log has all of these records, except those that it has deleted from its start."""
        start = log.log_start_offset
        return log.log_end_offset >= self.end_offset and epochs_between(
            log, start, self.end_offset
        ) == clipped(self.epochs, start, self.end_offset)


_NOTHING = _Committed(end_offset=0, epochs=())


def _shape(log: Log) -> dict[str, Any]:
    return {
        "start": log.log_start_offset,
        "end": log.log_end_offset,
        "epochs": log.epochs.entries,
    }
