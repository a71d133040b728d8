"""Events and metadata of a system whose nodes write none: each node is asked for its own view over and over.

{"at_ns": 1, "node": "b1", "event": "view", "serves": true, "logs": {"t-0": {...}}}
{"at_ns": 2, "node": "b1", "event": "view"}
{"at_ns": 3, "node": "b1", "event": "violation", "sentence": "..."}
{"at_ns": 4, "node": "b1", "event": "gone", "log": "t-0"}

A node that does not run or does not respond in time has no view (line 2). Views are stamped with the clock of this
machine. Two nodes may both believe that they lead a log: the leader is the one that says so and that most others
name.
"""

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from harness.contracts.cluster import AddRow, Topic
from harness.contracts.metadata import BrokerState, CommittedMetadata, PartitionState
from harness.contracts.system import UNOBSERVED_EVENT, Event, Node, RunningNodes
from harness.contracts.violation import Violation

VIEW_EVENT = "view"
VIOLATION_EVENT = "violation"
GONE_EVENT = "gone"
ASK_EVERY_S = 0.25
ASK_LIMIT_S = 1.0
NO_LEADER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogView:
    """What one node reports of a log of which it has a replica.

    Attributes:
        leader: Name of the node that leads; "" if this node knows none.
        replicas: Names of the nodes that have replicas; only the leader's own view of them counts.
        current: Those of them that keep up, the leader included; as above.
        start: Offset of its first record.
        end: One more than the offset of its last record.
    """

    leader: str
    replicas: Sequence[str]
    current: Sequence[str]
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """What one node reports of itself.

    Attributes:
        serves: Whether it takes part in the cluster.
        logs: Its replicas, by the name of the log: "topic-partition".
    """

    serves: bool = False
    logs: Mapping[str, LogView] = field(default_factory=dict)


class PolledViews:
    """Implements `EventSource`; a system derives its own source from this one. Mutable.

    Args:
        running: The nodes, and whether they run.
    """

    def __init__(self, running: RunningNodes) -> None:
        self.running = running
        self._lines = {node.name: b"" for node in running.nodes}
        self._tasks: list[asyncio.Task[None]] = []

    async def view_of(self, node: Node) -> NodeView:
        """Returns a node's own view; the caller bounds the time.

        Raises:
            OSError: The node does not respond.
            ValueError: Its response is cut off.
            AttributeError, TypeError, LookupError: Its response has another form than expected; the run cannot be
                observed, and its verdict is unknown.
        """
        raise NotImplementedError

    def report_violation(self, sentence: str) -> None:
        """Adds a violation of what the system promises."""
        self._add(self.running.nodes[0].name, VIOLATION_EVENT, {"sentence": sentence})

    def report_gone(self, log: str) -> None:
        """Notes that the cluster certainly no longer has a log: everything that it acknowledged there is lost."""
        self._add(self.running.nodes[0].name, GONE_EVENT, {"log": log})

    async def read(self) -> dict[str, bytes]:
        """Returns the events since the last call; the first call begins to ask."""
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._follow(node)) for node in self.running.nodes]
        lines, self._lines = self._lines, dict.fromkeys(self._lines, b"")
        return lines

    def time_of(self, node: str, at_ns: int) -> int:
        """Returns the time as it is: events are stamped with this machine's clock."""
        return at_ns

    def close(self) -> None:
        """Stops asking."""
        for task in self._tasks:
            task.cancel()

    async def _follow(self, node: Node) -> None:
        try:
            while True:
                self._add(node.name, VIEW_EVENT, await self._ask(node))
                await asyncio.sleep(ASK_EVERY_S)
        except (AttributeError, TypeError, LookupError) as error:
            reason = f"the report of {node.name} has another form than expected ({error!r})"
            self._add(node.name, UNOBSERVED_EVENT, {"reason": reason})

    async def _ask(self, node: Node) -> dict[str, Any]:
        """Returns a node's view; nothing if it does not run or does not respond in time."""
        if self.running.runs(node.name):
            with contextlib.suppress(OSError, ValueError, TimeoutError):
                async with asyncio.timeout(ASK_LIMIT_S):
                    return asdict(await self.view_of(node))
        return {}

    def _add(self, node: str, event: str, fields: Mapping[str, Any]) -> None:
        line = {"at_ns": time.monotonic_ns(), "node": node, "event": event, **fields}
        self._lines[node] += json.dumps(line).encode() + b"\n"


class PolledObservation:
    """Implements `Observation` for the events of `PolledViews`. Mutable: the newest view of each node.

    A view decides about metadata and about the tables `partition_states`, `broker_states` and `replica_states`,
    never about acknowledged records. In `partition_states` every replica is in the ISR: such a system commits no
    ISR, and every replica may lead. Whether a process that was started again had ended cleanly is unknown.

    Args:
        nodes, view, add_row, on_violation: As for `System.observation`.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        view: CommittedMetadata,
        add_row: AddRow,
        on_violation: Callable[[Violation], None],
    ) -> None:
        self.doubt = ""
        self._on_violation = on_violation
        self._ids = {node.name: node.node_id for node in nodes}
        self._view = view
        self._add_row = add_row
        self._places: dict[str, tuple[str, int]] = {}
        self._min_isr: dict[str, int] = {}
        self._replicated: set[str] = set()
        self._offset = -1
        self._registered: set[str] = set()
        self._reports: dict[str, Mapping[str, LogView]] = {}
        self._rows: dict[tuple[str, str], tuple[int, int, int, str]] = {}

    def parse(self, line: bytes) -> Event:
        """Reads one line."""
        fields = json.loads(line)
        try:
            at_ns, node, event = (fields.pop(name) for name in ("at_ns", "node", "event"))
        except KeyError as missing:
            raise ValueError(f"an event without {missing}") from None
        return Event(at_ns=at_ns, node=node, event=event, fields=fields)

    def take(self, event: Event, at_ns: int) -> None:
        """Takes a view or a violation."""
        if event.event == VIOLATION_EVENT:
            sentence = event.fields["sentence"]
            self._on_violation(Violation(at_ns=at_ns, node="", invariant="", sentence=sentence))
            return
        if event.event == GONE_EVENT:
            self._log_is_gone(event.fields["log"], at_ns)
            return
        logs = event.fields.get("logs", {})
        self._reports[event.node] = {name: LogView(**each) for name, each in logs.items()}
        self._set_broker(event.node, at_ns, is_up=event.fields.get("serves", False))
        for name in self._places:
            self._set_partition(name, at_ns)
            if name in self._reports[event.node]:
                self._note(event.node, name, self._reports[event.node][name], at_ns)
            elif event.fields:
                self._has_no_replica(event.node, name, at_ns)
        self._view.changed()

    def topic_created(self, topic: Topic, at_ns: int) -> None:
        """Notes which logs belong to a topic."""
        for index, replicas in enumerate(topic.assignments):
            self._places[f"{topic.name}-{index}"] = (topic.name, index)
            if len(replicas) > 1:
                self._replicated.add(f"{topic.name}-{index}")
            self._min_isr[topic.name] = topic.min_insync_replicas

    def node_started(self, name: str, at_ns: int) -> None:
        """Does nothing: a node is up when it responds."""

    def node_went_down(self, name: str, at_ns: int) -> None:
        """Forgets what the node reported."""
        self._reports.pop(name, None)
        self._set_broker(name, at_ns, is_up=False)
        self._registered.discard(name)
        for log in self._places:
            self._set_partition(log, at_ns)
            self._has_no_replica(name, log, at_ns)
        self._view.changed()

    def _set_broker(self, name: str, at_ns: int, *, is_up: bool) -> None:
        """Sets the state of a broker: the first time that a process serves is its registration."""
        broker = self._ids[name]
        known = self._view.brokers.get(broker)
        epoch = -1 if known is None else known.broker_epoch
        if is_up and name not in self._registered:
            self._registered.add(name)
            epoch += 1
            self._add_row("broker_states", (at_ns, self._next(), broker, epoch, "registered", None))
        elif known is not None and known.fenced == is_up:
            change = "unfenced" if is_up else "fenced"
            self._add_row("broker_states", (at_ns, self._next(), broker, epoch, change, False))
        self._view.brokers[broker] = BrokerState(
            broker=broker, broker_epoch=epoch, fenced=not is_up, in_controlled_shutdown=False
        )

    def _next(self) -> int:
        """Returns a metadata offset for a row: the rows of both tables are numbered together."""
        self._offset += 1
        return self._offset

    def _set_partition(self, name: str, at_ns: int) -> None:
        """Sets the state of a log: its leader is the node that says so and that most nodes name."""
        topic, partition = self._places[name]
        reports = {node: each[name] for node, each in self._reports.items() if name in each}
        named = Counter(report.leader for report in reports.values() if report.leader)
        leader = next(
            (one for one, _ in named.most_common() if one in reports and self._leads(one, name)), ""
        )
        known = self._view.partitions.get(name)
        if leader:
            replicas = self._numbers(reports[leader].replicas)
            isr = self._numbers(reports[leader].current)
        elif known is not None:
            replicas, isr = known.replicas, known.isr
        else:
            return
        number = self._ids[leader] if leader else NO_LEADER
        changes = known is not None and known.leader != number
        last_leader: tuple[int, ...] = ()
        if known is not None and not leader:
            last_leader = known.last_known_elr if known.leader == NO_LEADER else (known.leader,)
        is_new = known is None or changes or known.replicas != replicas
        state = PartitionState(
            topic=topic,
            partition=partition,
            replicas=replicas,
            leader=number,
            leader_epoch=0 if known is None else known.leader_epoch + changes,
            partition_epoch=0 if known is None else known.partition_epoch + is_new,
            isr=isr,
            last_known_elr=last_leader,
            # No partition needs more than it has replicas.
            min_isr=min(self._min_isr[topic], max(len(replicas), 1)),
        )
        self._view.partitions[name] = state
        if is_new:
            self._partition_row(state, at_ns)

    def _leads(self, node: str, name: str) -> bool:
        """Whether a node says that it leads a log.

        A node that has just started and knows no other node yet may believe that it leads alone.
        """
        report = self._reports[node][name]
        is_alone = name in self._replicated and len(report.replicas) < 2
        return report.leader == node and not is_alone

    def _log_is_gone(self, name: str, at_ns: int) -> None:
        """Adds the last row of a log: it has no replicas any more."""
        known = self._view.partitions.get(name)
        if known is None:
            return
        epoch = known.partition_epoch + 1
        gone = replace(known, replicas=(), isr=(), leader=NO_LEADER, partition_epoch=epoch)
        self._partition_row(gone, at_ns)

    def _partition_row(self, state: PartitionState, at_ns: int) -> None:
        replicas, last_leader = list(state.replicas), list(state.last_known_elr)
        epochs = (state.leader_epoch, state.partition_epoch)
        head = (at_ns, self._next(), state.topic, state.partition, state.leader, *epochs)
        sets: tuple[list[int], ...] = (replicas, [], last_leader, replicas)
        self._add_row("partition_states", (*head, *sets, 0, False, state.min_isr, None))

    def _numbers(self, names: Sequence[str]) -> tuple[int, ...]:
        return tuple(sorted(self._ids[name] for name in names if name in self._ids))

    def _note(self, node: str, name: str, log: LogView, at_ns: int) -> None:
        """Adds a row if what a node has of a log has changed."""
        known = self._view.partitions.get(name)
        epoch = NO_LEADER if known is None else known.leader_epoch
        role = "leader" if log.leader == node else "follower"
        state = (log.end, log.start, epoch, role)
        last = self._rows.get((node, name))
        if state != last:
            self._rows[(node, name)] = state
            self._row(at_ns, node, name, state, "load" if last is None else "observed")

    def _has_no_replica(self, node: str, name: str, at_ns: int) -> None:
        """Adds a row if a node had a replica: it is down, or the replica was removed."""
        last = self._rows.pop((node, name), None)
        if last is not None:
            self._row(at_ns, node, name, (*last[:3], "offline"), "down")

    def _row(
        self, at_ns: int, node: str, name: str, state: tuple[int, int, int, str], cause: str
    ) -> None:
        end, start, epoch, role = state
        place = (self._ids[node], *self._places[name])
        # Every replica reports one number: what it has is what it believes to be committed.
        row = (at_ns, node, *place, end, end, start, epoch, role, cause)
        self._add_row("replica_states", row)


async def json_over_http(address: str, path: str) -> Any:
    """Returns what a node reports in JSON over HTTP/1.0; the caller bounds the time.

    Args:
        address: "host:port".
        path: Of the report, for example "/healthz".

    Raises:
        OSError: The node does not respond.
        ValueError: The response is not JSON.
    """
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        return json.loads((await reader.read()).partition(b"\r\n\r\n")[2])
    finally:
        writer.close()
