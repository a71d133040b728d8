"""Where triggers get their events: committed metadata, in every environment.

The cluster calls `CommittedMetadata.changed` after every change. `CommittedEvents` compares what it sees then with
what it saw before. If an environment shows several changes as one, for example after a node continued from a
snapshot, an event that was undone meanwhile is not seen.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from harness.contracts.cluster import Cluster
from harness.contracts.metadata import BrokerState, CommittedMetadata, PartitionState
from harness.errors import UsageError
from nemesis.targets import check_role, kind_of_role
from nemesis.trigger import Event, Trigger

Happened = Callable[[], None]
"""Called at the moment of an event, possibly within a node; it must return at once and change nothing."""


class EventSource(Protocol):
    """Observes events in one environment."""

    def check(self, trigger: Trigger) -> None:
        """Raises `UsageError` if such an event cannot be observed here, or can never happen in this cluster."""
        ...

    def watch(self, trigger: Trigger, happened: Happened) -> Callable[[], None]:
        """Calls `happened` at each such event from now on, until the function that it returns is called."""
        ...


@dataclass(slots=True, eq=False)
class Watch:
    """One trigger that is waited for. Mutable: it can end while events are delivered."""

    trigger: Trigger
    happened: Happened
    is_active: bool = True


class Watches:
    """The triggers that are waited for in one environment. Mutable.

    Args:
        cluster: Whose roles decide.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._watches: list[Watch] = []

    def __bool__(self) -> bool:
        return bool(self._watches)

    def add(self, trigger: Trigger, happened: Happened) -> Watch:
        """Adds one."""
        watch = Watch(trigger, happened)
        self._watches.append(watch)
        return watch

    def end(self, watch: Watch) -> None:
        """Ends one; idempotent."""
        if watch.is_active:
            watch.is_active = False
            self._watches.remove(watch)

    def deliver(self, event: Event) -> None:
        """Calls those that wait for an event, in the order in which they were added."""
        kind, name = event.kind, event.name
        for watch in tuple(self._watches):
            trigger = watch.trigger
            if trigger.kind.name != kind or name != (trigger.message or trigger.name):
                continue
            population, metadata = self._cluster.population(), self._cluster.metadata
            if watch.is_active and trigger.matches(event, population, metadata):
                watch.happened()


class CommittedEvents:
    """Observes committed metadata. Implements `EventSource`. Mutable: what it saw last.

    Args:
        cluster: Whose metadata it observes.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._watches = Watches(cluster)
        self._partitions: dict[str, PartitionState] = {}
        self._brokers: dict[int, BrokerState] = {}
        self._controller = -1

    def check(self, trigger: Trigger) -> None:
        """Raises `UsageError` if a trigger is no committed change, or names a node that does not exist."""
        if not trigger.kind.is_committed:
            raise UsageError(
                f"the event {trigger.text()!r} happens inside of nodes, which only the simulation and fault "
                "points observe, and these nodes have none; wait for a committed change, such as isr-shrink"
            )
        self.check_names(trigger)

    def check_names(self, trigger: Trigger) -> None:
        """Raises `UsageError` if no node of the cluster can be what the trigger names, or have such an event."""
        population = self._cluster.population()
        for role in trigger.roles:
            check_role(role, population)
            possible = trigger.kind.at
            if kind_of_role(role, population) not in possible:
                raise UsageError(
                    f"the trigger {trigger.text()!r} can never happen: {trigger.kind.name!r} happens at a "
                    f"{' or a '.join(possible)}, and {role!r} is none"
                )

    def watch(self, trigger: Trigger, happened: Happened) -> Callable[[], None]:
        """Calls `happened` at each such event from now on, until the function that it returns is called."""
        metadata = self._cluster.metadata
        if not self._watches:
            self._remember(metadata)
            metadata.watch(self._changed)
        watch = self._watches.add(trigger, happened)

        def end() -> None:
            was_active = watch.is_active
            self._watches.end(watch)
            if was_active and not self._watches:
                metadata.unwatch(self._changed)

        return end

    def _remember(self, metadata: CommittedMetadata) -> None:
        self._partitions = dict(metadata.partitions)
        self._brokers = dict(metadata.brokers)
        self._controller = metadata.active_controller

    def _changed(self) -> None:
        metadata = self._cluster.metadata
        events = list(self._new_events(metadata))
        self._remember(metadata)
        for event in events:
            self._watches.deliver(event)

    def _new_events(self, metadata: CommittedMetadata) -> Iterator[Event]:
        for name, state in metadata.partitions.items():
            before = self._partitions.get(name)
            if before is not None and before is not state:
                for kind in partition_events(before, state):
                    yield Event(kind=kind, partition=name)
        population = self._cluster.population()
        names = {node_id: name for name, node_id in (*population.brokers, *population.controllers)}
        for broker, now in metadata.brokers.items():
            was = self._brokers.get(broker)
            if was is not now:
                for kind in broker_events(was, now):
                    yield Event(kind=kind, nodes=(names[broker],))
        active = metadata.active_controller
        if active not in (-1, self._controller):
            yield Event(kind="controller-election", nodes=(names[active],))


def partition_events(before: PartitionState, now: PartitionState) -> Iterator[str]:
    """Yields the kinds of events that a change of a partition is."""
    if now.leader != before.leader:
        yield "leader-change"
        if now.leader < 0:
            yield "leader-loss"
    if now.leader >= 0 and now.leader_epoch > before.leader_epoch:
        yield "election"
    if set(before.isr) - set(now.isr):
        yield "isr-shrink"
    if set(now.isr) - set(before.isr):
        yield "isr-expand"
    if set(now.elr) != set(before.elr):
        yield "elr-change"
    if now.replicas != before.replicas:
        yield "replicas-change"


def broker_events(before: BrokerState | None, now: BrokerState) -> Iterator[str]:
    """Yields the kinds of events that a change of a broker's registration is."""
    if before is None or before.broker_epoch != now.broker_epoch:
        yield "registration"
    elif before.fenced != now.fenced:
        yield "fencing" if now.fenced else "unfencing"
