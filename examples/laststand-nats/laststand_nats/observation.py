"""What the servers report, as the harness sees it: who leads each stream, and what each server has of it.

Every server is asked for its own view over its monitoring port. A view is a line

    {"at_ns": 1, "node": "b1", "event": "view", "streams": [...], "meta": "b2"}

and a server that does not respond has `null` for both. Nothing of it decides about acknowledged records.
At the end the cluster is asked for every stream that it once had, because it may have lost a whole stream:

    {"at_ns": 2, "node": "b1", "event": "gone", "stream": "t-0"}
"""

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.contracts.cluster import AddRow, Topic
from harness.contracts.metadata import BrokerState, CommittedMetadata, PartitionState
from harness.contracts.system import Event, Node, RunningNodes
from harness.contracts.violation import Violation
from harness.environments.client_host import PlainClientHost
from laststand_nats.client import NatsClient

ASK_EVERY_S = 0.25
ASK_LIMIT_S = 1.0
END_LIMIT_MS = 2000
MONITOR = 2
"""Where a server reports its state (`further_address`)."""
VIEW = "view"
GONE = "gone"
NO_LEADER = -1


def further_address(node: Node, number: int) -> str:
    """Returns another address of a node, which has one port: a loopback address, or a following port."""
    host, _, port = node.address.rpartition(":")
    is_loopback = host.startswith("127.")
    return (
        f"127.0.{number}.{node.node_id}:{port}" if is_loopback else f"{host}:{int(port) + number}"
    )


class ServerReports:
    """Implements `EventSource`. Mutable; its tasks begin with the first `read`."""

    def __init__(self, running: RunningNodes) -> None:
        self._running = running
        self._lines = {node.name: b"" for node in running.nodes}
        self._tasks: list[asyncio.Task[None]] = []
        self._seen: dict[str, None] = {}

    async def read(self) -> dict[str, bytes]:
        """Returns the views since the last call."""
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._ask(node)) for node in self._running.nodes]
        lines, self._lines = self._lines, dict.fromkeys(self._lines, b"")
        return lines

    def time_of(self, node: str, at_ns: int) -> int:
        """Returns the time as it is: the views are stamped with this machine's clock."""
        return at_ns

    async def check_at_end(self) -> None:
        """Adds the streams that the cluster no longer knows."""
        addresses = tuple(node.address for node in self._running.nodes)
        client = NatsClient(
            PlainClientHost("harness"),
            addresses,
            request_timeout_ms=END_LIMIT_MS,
            connect_timeout_ms=END_LIMIT_MS,
        )
        for stream in self._seen:
            if await client.is_gone(stream):
                self._add(self._running.nodes[0].name, GONE, stream=stream)
        await client.disconnect()

    def close(self) -> None:
        """Ends the tasks."""
        for task in self._tasks:
            task.cancel()

    async def _ask(self, node: Node) -> None:
        while True:
            view: dict[str, Any] = {"streams": None, "meta": None}
            if self._running.runs(node.name):
                with contextlib.suppress(OSError, ValueError, KeyError, TimeoutError):
                    async with asyncio.timeout(ASK_LIMIT_S):
                        view = view_of(await report_of(node, "/jsz?streams=true"))
            self._seen |= dict.fromkeys(stream["name"] for stream in view["streams"] or ())
            self._add(node.name, VIEW, **view)
            await asyncio.sleep(ASK_EVERY_S)

    def _add(self, node: str, event: str, **fields: Any) -> None:
        line = {"at_ns": time.monotonic_ns(), "node": node, "event": event, **fields}
        self._lines[node] += json.dumps(line).encode() + b"\n"


async def report_of(node: Node, path: str) -> Any:
    """Returns what a server reports over HTTP; the caller bounds the time."""
    host, _, port = further_address(node, MONITOR).rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        return json.loads((await reader.read()).partition(b"\r\n\r\n")[2])
    finally:
        writer.close()


def view_of(report: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what matters of a server's report about JetStream."""
    accounts = report.get("account_details") or ()
    streams = []
    for stream in (each for account in accounts for each in account.get("stream_detail") or ()):
        cluster, state = stream.get("cluster") or {}, stream["state"]
        peers = cluster.get("replicas") or ()
        streams.append(
            {
                "name": stream["name"],
                "leader": cluster.get("leader", ""),
                "peers": [peer["name"] for peer in peers],
                "current": [p["name"] for p in peers if p["current"] and not p.get("offline")],
                "start": max(state["first_seq"] - 1, 0),
                "end": state["last_seq"],
            }
        )
    return {"streams": streams, "meta": (report.get("meta_cluster") or {}).get("leader", "")}


class JetStreamObservation:
    """Implements `Observation`. Mutable: the newest view of each server."""

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
        self._reports: dict[str, Mapping[str, Any]] = {}
        self._rows: dict[tuple[str, str], tuple[Any, ...]] = {}

    def parse(self, line: bytes) -> Event:
        """Reads one view."""
        fields = json.loads(line)
        try:
            at_ns, node, event = (fields.pop(name) for name in ("at_ns", "node", "event"))
        except KeyError as missing:
            raise ValueError(f"a view without {missing}") from None
        return Event(at_ns=at_ns, node=node, event=event, fields=fields)

    def take(self, event: Event, at_ns: int) -> None:
        """Takes a view, of which metadata and rows are made, or a stream that is gone."""
        if event.event == GONE:
            self._gone(event.fields["stream"], at_ns)
            return
        streams = event.fields["streams"]
        self._reports[event.node] = {stream["name"]: stream for stream in streams or ()}
        self._set_broker(event.node, is_up=bool(event.fields["meta"]))
        for name in self._places:
            self._set_partition(name)
            if name in self._reports[event.node]:
                self._note(event.node, self._reports[event.node][name], at_ns)
        self._view.changed()

    def _gone(self, stream: str, at_ns: int) -> None:
        if stream in self._places:
            sentence = (
                f"the stream {stream} is gone: its creation was acknowledged, and at the end of the run the"
                " leader of the cluster's metadata does not know it"
            )
            self._on_violation(Violation(at_ns=at_ns, node="", invariant="", sentence=sentence))

    def topic_created(self, topic: Topic, at_ns: int) -> None:
        """Notes which streams belong to a topic."""
        for index in range(len(topic.assignments)):
            self._places[f"{topic.name}-{index}"] = (topic.name, index)

    def node_started(self, name: str, at_ns: int) -> None:
        """Does nothing: a server is up when it responds."""

    def node_went_down(self, name: str, at_ns: int) -> None:
        """Forgets what the server reported."""
        self._reports.pop(name, None)
        self._set_broker(name, is_up=False)
        for stream in self._places:
            self._set_partition(stream)
        for stream, (topic, partition) in self._places.items():
            last = self._rows.pop((name, stream), None)
            if last is not None:
                self._row(at_ns, name, topic, partition, (*last[:3], "offline"), "down")
        self._view.changed()

    def _set_broker(self, name: str, *, is_up: bool) -> None:
        broker = self._ids[name]
        self._view.brokers[broker] = BrokerState(
            broker=broker, broker_epoch=0, fenced=not is_up, in_controlled_shutdown=False
        )

    def _set_partition(self, name: str) -> None:
        """Sets the state of a stream: its leader is the one that most servers name, and that agrees."""
        topic, partition = self._places[name]
        reports = {node: each[name] for node, each in self._reports.items() if name in each}
        named = Counter(report["leader"] for report in reports.values() if report["leader"])
        leader = next(
            (one for one, _ in named.most_common() if reports.get(one, {}).get("leader") == one), ""
        )
        known = self._view.partitions.get(name)
        if leader:
            members = (leader, *reports[leader]["peers"])
            replicas = tuple(sorted(self._ids[one] for one in members if one in self._ids))
            isr = tuple(sorted(self._ids[one] for one in (leader, *reports[leader]["current"])))
        elif known is not None:
            replicas, isr = known.replicas, known.isr
        else:
            return
        number = self._ids[leader] if leader else NO_LEADER
        changes = known is not None and known.leader != number
        self._view.partitions[name] = PartitionState(
            topic=topic,
            partition=partition,
            replicas=replicas,
            leader=number,
            leader_epoch=0 if known is None else known.leader_epoch + changes,
            partition_epoch=0 if known is None else known.partition_epoch + 1,
            isr=isr,
        )

    def _note(self, node: str, stream: Mapping[str, Any], at_ns: int) -> None:
        """Adds a row if what a server has of a stream has changed."""
        name, end = stream["name"], stream["end"]
        known = self._view.partitions.get(name)
        leads = stream["leader"] == node
        state = (
            end,
            stream["start"],
            NO_LEADER if known is None else known.leader_epoch,
            "leader" if leads else "follower",
        )
        last = self._rows.get((node, name))
        if state != last:
            self._rows[(node, name)] = state
            self._row(
                at_ns, node, *self._places[name], state, "load" if last is None else "observed"
            )

    def _row(
        self, at_ns: int, node: str, topic: str, partition: int, state: tuple[Any, ...], cause: str
    ) -> None:
        end, start, epoch, role = state
        broker = self._ids[node]
        row = (at_ns, node, broker, topic, partition, end, end, start, epoch, role, cause)
        self._add_row("replica_states", row)
