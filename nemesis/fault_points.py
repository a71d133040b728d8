"""Faults on single messages, and events inside of nodes, in real worlds: through the fault points of the nodes.

A fault point is a file beside the files of a node (`system_under_test.real.fault_point`). The same content is
written for every node: rules about messages, with the pairs of nodes that they are about now, and what the nodes
are to report. Roles are those of committed metadata; a change of these is written as soon as the harness sees it.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from harness.contracts.cluster import Population
from harness.contracts.metadata import CommittedMetadata
from harness.contracts.system import (
    ACTED_EVENT,
    FAULT_POINT_EVENT,
    FSYNC_EVENT,
    MARK_EVENT,
    MESSAGE_EVENT,
    HasFaultPoint,
    Node,
)
from harness.contracts.system import Event as Report
from nemesis.events import CommittedEvents, Happened, Watches
from nemesis.fault import Fault
from nemesis.mechanism import Effect
from nemesis.message_rules import DUPLICATE, RULES, affected_nodes
from nemesis.targets import CLIENT, kinds_of
from nemesis.trigger import FSYNC, MARK, Event, Trigger, check_names

READ_S = 2.0
"""How long a fault waits until every node that runs has read its rule; a node that is paused does not."""
LOOK_S = 0.01
Pairs = list[tuple[str, str]]
"""Senders and receivers."""
ANYONE = "*"
"""In rules: everyone who is no node."""


class Cluster(Protocol):
    """A real cluster, as far as fault points need it."""

    @property
    def placed(self) -> Sequence[Node]:
        """All nodes."""
        ...

    @property
    def fault_point(self) -> HasFaultPoint | None:
        """What the system says of fault points; None if the nodes of this run have none."""
        ...

    @property
    def reports(self) -> list[Callable[[Report], None]]:
        """Called with the events of fault points, and with marks, in the order of time."""
        ...

    @property
    def metadata(self) -> CommittedMetadata:
        """Committed metadata, kept up to date by the cluster."""
        ...

    def now_ns(self) -> int:
        """Returns the time of the run."""
        ...

    def population(self) -> Population:
        """Returns all hosts, and which nodes are down."""
        ...

    def is_alive(self, name: str) -> bool:
        """Whether a node's process exists, running or not."""
        ...

    async def write_beside(self, name: str, file: str, text: str) -> None:
        """Replaces a file beside the files of a node.

        Raises:
            OSError: It cannot be written.
        """
        ...


class FaultPoints:
    """The fault points of all nodes of a cluster. Mutable: the rules in force, and what nodes have reported.

    Args:
        cluster: The cluster.
        system: What its system says of fault points.
    """

    def __init__(self, cluster: Cluster, system: HasFaultPoint) -> None:
        self.system = system
        self._cluster = cluster
        self._rules: dict[str, MessagesInForce] = {}
        self._pairs: dict[str, Pairs] = {}
        self._watches: dict[tuple[str, str], int] = {}
        self._version = 0
        self._versions_read: dict[str, int] = {}
        self._acted: dict[tuple[str, str], int] = {}
        self._writing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        cluster.reports.append(self._reported)

    async def inject(self, fault: Fault) -> "MessagesInForce":
        """Puts a fault on messages in force; returns when the nodes that run have read it."""
        assert fault.messages is not None
        nodes = affected_nodes(fault.messages, self._cluster.population(), self._cluster.metadata)
        rule = MessagesInForce(fault, self, nodes)
        if not rule.nodes:
            return rule
        if not self._rules:
            self._cluster.metadata.watch(self._roles_may_have_changed)
        self._rules[fault.id] = rule
        try:
            rule.unread_by = await self._publish()
        except OSError as error:
            rule.error = str(error)
            await self.remove(rule)
        return rule

    async def remove(self, rule: "MessagesInForce") -> None:
        """Ends a rule; what waits because of it goes on. Idempotent."""
        if self._rules.pop(rule.fault.id, None) is None:
            return
        if not self._rules:
            self._cluster.metadata.unwatch(self._roles_may_have_changed)
        try:
            await self._publish()
        except OSError as error:
            rule.error = rule.error or f"not healed: {error}"

    async def settle(self) -> None:
        """Ends all rules."""
        for rule in list(self._rules.values()):
            await rule.heal()

    def acted(self, fault_id: str) -> dict[str, int]:
        """Returns the number of messages to which each node has done what a fault says; only those that did."""
        return {
            node: count for (fault, node), count in sorted(self._acted.items()) if fault == fault_id
        }

    def watch(self, event: str, name: str) -> Callable[[], None]:
        """Has the nodes report an event from now on, until the function that it returns is called.

        Args:
            event: "sent", "received" or "fsync".
            name: Class name of the messages; empty for "fsync".
        """
        key = (event, name)
        self._watches[key] = self._watches.get(key, 0) + 1
        self._publish_soon()

        def end() -> None:
            self._watches[key] -= 1
            if not self._watches[key]:
                del self._watches[key]
            self._publish_soon()

        return end

    # -- the files

    async def _publish(self) -> list[str]:
        """Writes the files; returns the nodes that run and have not read theirs in time."""
        nodes = self._cluster.placed
        async with self._writing:
            self._version += 1
            version = self._version
            self._pairs = self._pairs_now()
            text = json.dumps(
                {
                    "version": version,
                    "nodes": {node.name: node.address for node in nodes},
                    "watches": sorted(self._watches),
                    "rules": [
                        rule.row(self._pairs[fault_id]) for fault_id, rule in self._rules.items()
                    ],
                }
            )
            file = self.system.fault_point_file
            writes = (self._cluster.write_beside(node.name, file, text) for node in nodes)
            await asyncio.gather(*writes)

        def unread() -> list[str]:
            return [
                node.name
                for node in nodes
                if self._cluster.is_alive(node.name)
                and self._versions_read.get(node.name, 0) < version
            ]

        loop = asyncio.get_running_loop()
        until_s = loop.time() + READ_S
        while unread() and loop.time() < until_s:
            await asyncio.sleep(LOOK_S)
        return unread()

    def _publish_soon(self) -> None:
        async def publish() -> None:
            # A node without the file reports nothing, and the fault that waits for it is recorded as not started.
            with contextlib.suppress(OSError):
                await self._publish()

        self._background(publish())

    def _background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="fault-points")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _roles_may_have_changed(self) -> None:
        if self._pairs_now() != self._pairs:
            self._publish_soon()

    def _pairs_now(self) -> dict[str, Pairs]:
        return {fault_id: self._pairs_of(rule.fault) for fault_id, rule in self._rules.items()}

    def _pairs_of(self, fault: Fault) -> Pairs:
        """Returns the pairs of a sender and a receiver that a fault is about now."""
        pattern = fault.messages
        assert pattern is not None
        population, metadata = self._cluster.population(), self._cluster.metadata
        kinds = kinds_of(population)
        # A copy of what a client sent would be its own fault.
        of_clients = RULES[fault.fault].kind != DUPLICATE
        pairs = [
            (source, target)
            for source in kinds
            for target in kinds
            if source != target
            and not kinds[source] == kinds[target] == CLIENT
            and (of_clients or kinds[source] != CLIENT)
            and pattern.is_between(source, target, population=population, metadata=metadata)
        ]
        clients = [name for name, kind in kinds.items() if kind == CLIENT]
        # Clients of other programs have names of their own.
        for node in (name for name, kind in kinds.items() if kind != CLIENT):
            if all((client, node) in pairs for client in clients):
                pairs.append((ANYONE, node))
            if all((node, client) in pairs for client in clients):
                pairs.append((node, ANYONE))
        return pairs

    def _reported(self, report: Report) -> None:
        if report.event == FAULT_POINT_EVENT:
            self._versions_read[report.node] = report.fields["version"]
        elif report.event == ACTED_EVENT:
            key = (report.fields["rule"], report.node)
            # A node that was started again counts anew.
            self._acted[key] = max(self._acted.get(key, 0), report.fields["count"])


def fault_points_of(cluster: Cluster) -> FaultPoints | None:
    """Returns the fault points of a cluster; None if its nodes have none."""
    return None if cluster.fault_point is None else FaultPoints(cluster, cluster.fault_point)


class MessagesInForce:
    """A fault on messages. Implements `Injection`. Mutable: which nodes it affected is known once it is healed.

    Args:
        fault: What to inject.
        points: The fault points.
        nodes: The nodes that it is about.

    Attributes:
        fault: What was injected.
        unread_by: Nodes that ran and did not read the rule in time.
        error: Why it could not be injected or healed; "" if all went well.
    """

    def __init__(self, fault: Fault, points: FaultPoints, nodes: tuple[str, ...]) -> None:
        self.fault = fault
        self.unread_by: list[str] = []
        self.error = ""
        self._points = points
        self._nodes = nodes
        self._is_over = False

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that it affects; none if it is over and there was no such message."""
        return () if self._is_over and not self._points.acted(self.fault.id) else self._nodes

    def row(self, pairs: Pairs) -> dict[str, Any]:
        """Returns the rule as nodes read it."""
        pattern = self.fault.messages
        assert pattern is not None
        return {
            "id": self.fault.id,
            "kind": RULES[self.fault.fault].kind,
            "message": pattern.message,
            "pairs": pairs,
            "count": self.fault.value("count"),
            "delay_ms": self.fault.value("ms") or 0,
            "error": self.fault.value("error") or "",
        }

    async def heal(self) -> None:
        """Ends the rule."""
        await self._points.remove(self)
        self._is_over = True

    async def effect(self) -> Effect:
        """Returns to how many messages each node did what the fault says; one is enough."""
        acted = self._points.acted(self.fault.id)
        evidence: dict[str, Any] = {RULES[self.fault.fault].counted_as: sum(acted.values())}
        if acted:
            evidence["by_node"] = acted
        if self.unread_by:
            evidence["not_read_in_time_by"] = self.unread_by
        if self.error:
            evidence["error"] = self.error
        return Effect(took_effect=bool(acted), evidence=evidence)


class ReportedEvents:
    """Observes committed metadata, and what nodes report through their fault points. Mutable.

    Implements `EventSource`. The harness learns of an event some tens of milliseconds after it happened.

    Args:
        cluster: The cluster whose events it observes.
        points: Its fault points; None if it has none.
    """

    def __init__(self, cluster: Cluster, points: FaultPoints | None) -> None:
        self._cluster = cluster
        self._points = points
        self._committed = CommittedEvents(cluster)
        self._watches = Watches(cluster)
        cluster.reports.append(self._reported)

    def check(self, trigger: Trigger) -> None:
        """Raises `UsageError` if such an event cannot be observed, or names what does not exist."""
        points = self._points
        kind = trigger.kind
        if points is None or not (kind.is_committed or kind.name in points.system.events_inside):
            self._committed.check(trigger)
            return
        self._committed.check_names(trigger)
        system = points.system
        check_names(trigger, messages=system.message_names, marks=system.mark_names)

    def watch(self, trigger: Trigger, happened: Happened) -> Callable[[], None]:
        """Calls `happened` at each such event from now on, until the function that it returns is called."""
        if trigger.kind.is_committed:
            return self._committed.watch(trigger, happened)
        assert self._points is not None
        watch = self._watches.add(trigger, happened)
        # Marks are reported anyway.
        is_asked_for = trigger.kind.name != MARK
        ends = [self._points.watch(trigger.kind.name, trigger.message)] if is_asked_for else []

        def end() -> None:
            if watch.is_active:
                self._watches.end(watch)
                for end_reports in ends:
                    end_reports()

        return end

    def _reported(self, report: Report) -> None:
        if not self._watches:
            return
        fields = report.fields
        if report.event == MARK_EVENT:
            event = Event(kind=MARK, name=str(fields["name"]), nodes=(report.node,))
        elif report.event == FSYNC_EVENT:
            event = Event(kind=FSYNC, nodes=(report.node,))
        elif report.event == MESSAGE_EVENT:
            ends = tuple(self._known(str(fields[end])) for end in ("source", "target"))
            event = Event(kind=str(fields["what"]), name=str(fields["name"]), nodes=ends)
        else:
            return
        self._watches.deliver(event)

    def _known(self, name: str) -> str:
        """Returns the name of a host; clients of other programs count as the first client."""
        population = self._cluster.population()
        return name if name in kinds_of(population) else population.clients[0]
