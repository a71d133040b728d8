"""A system whose nodes are asked for their views: events, metadata, rows."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest

from harness.contracts.cluster import Topic
from harness.contracts.metadata import CommittedMetadata
from harness.contracts.polling import (
    LogView,
    NodeView,
    PolledObservation,
    PolledViews,
    json_over_http,
)
from harness.contracts.system import UNOBSERVED_EVENT, Node, RunningNodes
from harness.contracts.violation import Violation

NODES = tuple(Node(name=f"b{n}", role="broker", node_id=n, address=f"h:{n}") for n in (1, 2, 3))
TOPIC = Topic(name="t", min_insync_replicas=2, assignments=((1, 2, 3),))


def view(leader: str, *, end: int, current: tuple[str, ...] = ("b1", "b2", "b3")) -> NodeView:
    log = LogView(
        leader=leader, replicas=["b1", "b2", "b3"], current=list(current), start=0, end=end
    )
    return NodeView(serves=True, logs={"t-0": log})


class Followed:
    """An observation with what it made."""

    def __init__(self) -> None:
        self.view = CommittedMetadata()
        self.rows: list[tuple[Any, ...]] = []
        self.violations: list[Violation] = []
        self.observation = PolledObservation(
            NODES,
            self.view,
            lambda table, row: self.rows.append((table, *row)),
            self.violations.append,
        )
        self.observation.topic_created(TOPIC, 0)

    def take(self, node: str, seen: NodeView | None, at_ns: int) -> None:
        fields = {} if seen is None else asdict(seen)
        line = {"at_ns": at_ns, "node": node, "event": "view", **fields}
        self.observation.take(self.observation.parse(json.dumps(line).encode()), at_ns)

    def of(self, table: str) -> list[tuple[Any, ...]]:
        return [row[1:] for row in self.rows if row[0] == table]

    def states(self) -> list[tuple[Any, ...]]:
        return [
            (row[0], row[1], row[5], row[6], row[9], row[10]) for row in self.of("replica_states")
        ]

    def brokers(self) -> list[tuple[Any, ...]]:
        """Returns when which broker changed how, and in which epoch."""
        return [(row[0], row[2], row[3], row[4]) for row in self.of("broker_states")]

    def partitions(self) -> list[tuple[Any, ...]]:
        """Returns when the partition had which leader, ISR, last-known leader and replicas."""
        return [(row[0], row[4], row[7], row[9], row[10]) for row in self.of("partition_states")]


# -- the observation


def test_the_leader_is_the_node_that_says_so_and_that_most_others_name() -> None:
    followed = Followed()
    followed.take("b2", view("b1", end=5), 1)
    assert followed.view.partitions == {}, "b1 has not said that it leads"
    followed.take("b1", view("b1", end=5, current=("b1", "b2")), 2)
    state = followed.view.partitions["t-0"]
    assert (state.leader, state.replicas, state.isr) == (1, (1, 2, 3), (1, 2))
    followed.take("b3", view("b3", end=5), 3)
    assert followed.view.partitions["t-0"].leader == 1, "b3 is the only one that names b3"
    followed.take("b1", None, 4)
    assert followed.view.partitions["t-0"].leader == 3
    assert followed.view.is_fenced(1)
    assert not followed.view.is_fenced(3)


def test_a_node_that_knows_no_other_replica_does_not_lead_a_replicated_log() -> None:
    alone = LogView(leader="b1", replicas=["b1"], current=["b1"], start=0, end=5)
    seen = NodeView(serves=True, logs={"t-0": alone, "u-0": alone})
    followed = Followed()
    followed.observation.topic_created(
        Topic(name="u", min_insync_replicas=1, assignments=((1,),)), 0
    )
    followed.take("b1", seen, 1)
    assert list(followed.view.partitions) == ["u-0"]


def test_another_leader_has_another_epoch() -> None:
    followed = Followed()
    followed.take("b1", view("b1", end=5), 1)
    before = followed.view.partitions["t-0"].leader_epoch
    followed.take("b1", view("b1", end=6), 2)
    assert followed.view.partitions["t-0"].leader_epoch == before
    followed.take("b1", view("", end=6), 3)
    followed.take("b1", view("b1", end=6), 4)
    assert followed.view.partitions["t-0"].leader_epoch == before + 2


def test_what_a_node_has_becomes_a_row_only_when_it_changes() -> None:
    followed = Followed()
    for at_ns, end in enumerate((5, 5, 7)):
        followed.take("b1", view("b1", end=end), at_ns)
    followed.observation.node_went_down("b1", 9)
    assert followed.states() == [
        (0, "b1", 5, 5, "leader", "load"),
        (2, "b1", 7, 7, "leader", "observed"),
        (9, "b1", 7, 7, "offline", "down"),
    ]


def test_a_replica_that_was_removed_is_offline_and_one_that_is_unknown_is_not() -> None:
    followed = Followed()
    followed.take("b1", view("b1", end=5), 1)
    followed.take("b1", None, 2)
    assert len(followed.states()) == 1, "a node that does not respond may still have its replica"
    followed.take("b1", NodeView(serves=True), 3)
    assert followed.states()[1:] == [(3, "b1", 5, 5, "offline", "down")]


def test_a_process_that_serves_is_a_registration_and_one_that_stops_responding_is_fenced() -> None:
    followed = Followed()
    for at_ns, seen in enumerate((view("b1", end=5), view("b1", end=5), None, view("b1", end=5))):
        followed.take("b1", seen, at_ns)
    followed.observation.node_went_down("b1", 8)
    followed.take("b1", view("b1", end=5), 9)
    assert followed.brokers() == [
        (0, 1, 0, "registered"),
        (2, 1, 0, "fenced"),
        (3, 1, 0, "unfenced"),
        (8, 1, 0, "fenced"),
        (9, 1, 1, "registered"),
    ]
    offsets = [row[2] for row in followed.rows if row[0] != "replica_states"]
    assert offsets == sorted(set(offsets))


def test_leaders_and_replicas_become_rows_when_they_change_and_who_keeps_up_does_not() -> None:
    followed = Followed()
    followed.take("b1", view("b1", end=5), 1)
    followed.take("b1", view("b1", end=6, current=("b1",)), 2)
    assert followed.view.partitions["t-0"].isr == (1,), "final phases wait for all of them"
    followed.take("b1", view("", end=6), 3)
    followed.take("b2", view("", end=6), 4)
    assert followed.view.partitions["t-0"].last_known_elr == (1,)
    followed.take("b2", view("b2", end=6), 5)
    everyone = [1, 2, 3]
    assert followed.partitions() == [
        (1, 1, everyone, [], everyone),
        (3, -1, everyone, [1], everyone),
        (5, 2, everyone, [], everyone),
    ]


def test_a_log_that_is_gone_has_no_replicas_in_its_last_row() -> None:
    followed = Followed()
    line = json.dumps({"at_ns": 9, "node": "b1", "event": "gone", "log": "t-0"}).encode()
    followed.observation.take(followed.observation.parse(line), 1)
    assert followed.partitions() == [], "it was never there"
    followed.take("b1", view("b1", end=5), 2)
    followed.observation.take(followed.observation.parse(line), 9)
    assert followed.partitions()[-1] == (9, -1, [], [], [])


def test_a_violation_is_passed_on() -> None:
    followed = Followed()
    line = {"at_ns": 4, "node": "b1", "event": "violation", "sentence": "it is gone"}
    followed.observation.take(followed.observation.parse(json.dumps(line).encode()), 4)
    assert [each.sentence for each in followed.violations] == ["it is gone"]


def test_a_line_that_is_no_event_is_refused() -> None:
    with pytest.raises(ValueError, match="without 'node'"):
        Followed().observation.parse(b'{"at_ns": 1}')


# -- the source


class Source(PolledViews):
    """A source whose nodes are asked here."""

    def __init__(self, running: RunningNodes, answer: Callable[[Node], NodeView]) -> None:
        super().__init__(running)
        self.answer = answer

    async def view_of(self, node: Node) -> NodeView:
        return self.answer(node)


def test_every_node_has_a_view_and_one_that_does_not_respond_an_empty_one() -> None:
    def answer(node: Node) -> NodeView:
        assert node.name != "b3", "a node that does not run is not asked"
        if node.name == "b2":
            raise OSError
        return view("b1", end=5)

    async def first_events() -> dict[str, Any]:
        running = RunningNodes(nodes=NODES, files_of=None, runs=lambda name: name != "b3")  # type: ignore[arg-type]
        source = Source(running, answer)
        found: dict[str, Any] = {}
        while len(found) < len(NODES):
            for node, lines in (await source.read()).items():
                for line in lines.splitlines():
                    found[node] = json.loads(line)
            await asyncio.sleep(0)
        source.close()
        source.report_violation("it is gone")
        source.report_gone("t-0")
        *_, first, last = map(json.loads, (await source.read())["b1"].splitlines())
        assert (first["event"], first["sentence"]) == ("violation", "it is gone")
        assert (last["event"], last["log"]) == ("gone", "t-0")
        return found

    events = asyncio.run(first_events())
    assert events["b1"]["logs"]["t-0"]["end"] == 5
    for name in ("b2", "b3"):
        assert set(events[name]) == {"at_ns", "node", "event"}


def test_a_report_of_another_form_is_not_taken_for_a_node_that_is_down() -> None:
    def answer(node: Node) -> NodeView:
        raise KeyError("state")

    async def last_event() -> dict[str, Any]:
        running = RunningNodes(nodes=NODES[:1], files_of=None, runs=lambda name: True)  # type: ignore[arg-type]
        source = Source(running, answer)
        lines = b""
        while not lines:
            lines = (await source.read())["b1"]
            await asyncio.sleep(0)
        source.close()
        event: dict[str, Any] = json.loads(lines)
        return event

    event = asyncio.run(last_event())
    assert event["event"] == UNOBSERVED_EVENT
    assert "b1" in event["reason"]
    assert "'state'" in event["reason"]


def test_a_report_is_read_over_http() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readline()).split()[1].decode()
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + json.dumps({"path": path}).encode())
        writer.close()
        await writer.wait_closed()

    async def ask() -> Any:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            return await json_over_http(f"127.0.0.1:{port}", "/healthz")

    assert asyncio.run(ask()) == {"path": "/healthz"}
