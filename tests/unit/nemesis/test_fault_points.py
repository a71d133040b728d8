"""Faults on messages in real worlds: what is written for the nodes, and what follows from their reports."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest

from harness.contracts.cluster import Population
from harness.contracts.metadata import CommittedMetadata, PartitionState
from harness.contracts.system import Event, HasFaultPoint, Node
from harness.errors import UsageError
from harness.systems.reference.adapter import ReferenceSystem
from nemesis import fault_points
from nemesis.fault import Fault
from nemesis.fault_points import FaultPoints, ReportedEvents
from nemesis.message_rules import check_message_fault
from nemesis.trigger import parse_trigger

SYSTEM = ReferenceSystem()


def partition(leader: int, isr: tuple[int, ...] = (1, 2)) -> PartitionState:
    return PartitionState(
        topic="t",
        partition=0,
        replicas=(1, 2),
        leader=leader,
        leader_epoch=leader,
        partition_epoch=0,
        isr=isr,
    )


@dataclass
class FakeCluster:
    """Two brokers and a controller that read their files at once, or do not."""

    fault_point: HasFaultPoint | None = field(default_factory=lambda: SYSTEM)
    reports: list[Callable[[Event], None]] = field(default_factory=list)
    metadata: CommittedMetadata = field(default_factory=CommittedMetadata)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)
    placed: tuple[Node, ...] = tuple(
        Node(name=name, role=role, node_id=node_id, address=f"{name}:9")
        for name, role, node_id in (
            ("b1", "broker", 1),
            ("b2", "broker", 2),
            ("c11", "controller", 11),
        )
    )

    def __post_init__(self) -> None:
        self.metadata.partitions["t-0"] = partition(1)
        self.metadata.active_controller = 11

    def now_ns(self) -> int:
        return 0

    def population(self) -> Population:
        return Population(
            brokers=(("b1", 1), ("b2", 2)),
            controllers=(("c11", 11),),
            clients=("client-0",),
            down=(),
        )

    def is_alive(self, name: str) -> bool:
        return True

    async def write_beside(self, name: str, file: str, text: str) -> None:
        if name in self.broken:
            raise OSError(f"{name} has no disk")
        assert file == SYSTEM.fault_point_file
        self.files[name] = json.loads(text)
        if name not in self.silent:
            self.tell(name, "fault-point", version=self.files[name]["version"])

    def tell(self, node: str, event: str, **fields: Any) -> None:
        for take in self.reports:
            take(Event(at_ns=0, node=node, event=event, fields=fields))

    def pairs(self) -> set[tuple[str, str]]:
        (one,) = self.files["b1"]["rules"]
        return {(source, target) for source, target in one["pairs"]}


def messages(fault: str, about: str, **params: Any) -> Fault:
    return Fault(id="f", fault=fault, targets=(), at_ms=0, params={"messages": about, **params})


Story = Callable[[FakeCluster, FaultPoints], Coroutine[Any, Any, None]]


def play(story: Story) -> None:
    async def run() -> None:
        cluster = FakeCluster()
        await story(cluster, FaultPoints(cluster, SYSTEM))

    asyncio.run(run())


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.001)


def test_every_node_gets_the_rule_with_the_pairs_that_have_the_roles_now() -> None:
    async def story(cluster: FakeCluster, points: FaultPoints) -> None:
        hold = await points.inject(
            messages("hold_messages", "Fetch from follower:t-0 to leader:t-0", count=2)
        )
        assert hold.nodes == ("b1", "b2")
        assert cluster.files["b1"] == cluster.files["b2"] == cluster.files["c11"]
        (row,) = cluster.files["b1"]["rules"]
        assert row == {
            "id": "f",
            "kind": "hold",
            "message": "FetchRequest",
            "pairs": [["b2", "b1"]],
            "count": 2,
            "delay_ms": 0,
            "error": "",
        }
        assert cluster.files["b1"]["nodes"] == {"b1": "b1:9", "b2": "b2:9", "c11": "c11:9"}
        cluster.metadata.partitions["t-0"] = partition(2)
        cluster.metadata.changed()
        await until(lambda: cluster.pairs() == {("b1", "b2")})
        await hold.heal()
        assert cluster.files["b1"]["rules"] == []
        version = cluster.files["b1"]["version"]
        cluster.metadata.partitions["t-0"] = partition(1)
        cluster.metadata.changed()
        await asyncio.sleep(0)
        assert cluster.files["b1"]["version"] == version

    play(story)


def test_clients_of_other_programs_count_as_clients() -> None:
    async def story(cluster: FakeCluster, points: FaultPoints) -> None:
        await points.inject(messages("drop_messages", "Produce from client to leader:t-0"))
        assert cluster.pairs() == {("client-0", "b1"), ("harness", "b1"), ("*", "b1")}
        await points.settle()
        await points.inject(messages("drop_messages", "Produce from client-0"))
        assert cluster.pairs() == {("client-0", node) for node in ("b1", "b2", "c11")}
        await points.settle()
        await points.inject(messages("duplicate_messages", "Fetch to b1"))
        assert cluster.pairs() == {("b2", "b1"), ("c11", "b1")}

    play(story)


def test_an_effect_counts_what_the_nodes_did() -> None:
    async def story(cluster: FakeCluster, points: FaultPoints) -> None:
        drop = await points.inject(messages("drop_messages", "Fetch"))
        assert not (await drop.effect()).took_effect
        cluster.tell("b1", "fault-acted", rule="f", count=2)
        cluster.tell("b2", "fault-acted", rule="f", count=4)
        # It was started again, and counts anew.
        cluster.tell("b2", "fault-acted", rule="f", count=1)
        cluster.tell("b2", "fault-acted", rule="another", count=9)
        effect = await drop.effect()
        assert effect.took_effect
        assert effect.evidence == {"messages_dropped": 6, "by_node": {"b1": 2, "b2": 4}}
        await drop.heal()
        assert drop.nodes == ("b1", "b2", "c11")

    play(story)


def test_a_fault_that_met_no_message_affected_no_node() -> None:
    async def story(cluster: FakeCluster, points: FaultPoints) -> None:
        drop = await points.inject(messages("drop_messages", "Fetch"))
        before = drop.nodes
        await drop.heal()
        assert (before, drop.nodes) == (("b1", "b2", "c11"), ())
        nobody = await points.inject(messages("drop_messages", "Fetch from elr_member"))
        assert nobody.nodes == ()

    play(story)


def test_a_node_that_does_not_read_its_rule_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_points, "READ_S", 0.0)

    async def story(cluster: FakeCluster, points: FaultPoints) -> None:
        cluster.silent.add("b2")
        hold = await points.inject(messages("hold_messages", "Fetch"))
        assert (await hold.effect()).evidence["not_read_in_time_by"] == ["b2"]

    play(story)


def test_a_rule_that_cannot_be_written_is_an_error_of_the_fault() -> None:
    async def story(cluster: FakeCluster, points: FaultPoints) -> None:
        cluster.broken.add("b2")
        hold = await points.inject(messages("hold_messages", "Fetch"))
        assert (await hold.effect()).evidence["error"] == "b2 has no disk"

    play(story)


def test_a_fault_waits_for_what_nodes_report() -> None:
    async def story(cluster: FakeCluster, points: FaultPoints) -> None:
        events = ReportedEvents(cluster, points)
        seen: list[str] = []

        def watch(text: str) -> Callable[[], None]:
            return events.watch(parse_trigger(text), lambda: seen.append(text))

        end = watch("sent:Fetch from follower:t-0")
        watch("mark:elected-from-elr at broker")
        watch("fsync at c11")
        watch("received:Produce from client")
        wanted = [["fsync", ""], ["received", "ProduceRequest"], ["sent", "FetchRequest"]]
        await until(lambda: cluster.files.get("b1", {}).get("watches") == wanted)
        sent = {"what": "sent", "name": "FetchRequest"}
        cluster.tell("b1", "message", **sent, source="b1", target="b2")
        assert seen == []
        cluster.tell("b2", "message", **sent, source="b2", target="b1")
        cluster.tell("b2", "mark", name="elected-from-elr", details={})
        cluster.tell("c11", "mark", name="elected-from-elr", details={})
        cluster.tell("b1", "fsync")
        cluster.tell("c11", "fsync")
        received = {"what": "received", "name": "ProduceRequest"}
        cluster.tell("b1", "message", **received, source="some-library", target="b1")
        assert seen == [
            "sent:Fetch from follower:t-0",
            "mark:elected-from-elr at broker",
            "fsync at c11",
            "received:Produce from client",
        ]
        end()
        end()
        await until(lambda: ["sent", "FetchRequest"] not in cluster.files["b1"]["watches"])
        cluster.tell("b2", "message", **sent, source="b2", target="b1")
        assert len(seen) == 4

    play(story)


@pytest.mark.parametrize(
    ("text", "has_points", "says"),
    [
        ("sent:Fetsch", True, "did you mean 'Fetch'"),
        ("mark:elected-from-erl", True, "docs/marks.md"),
        ("fsync at b9", True, "b9"),
        ("fsync at b1", False, "happens inside of nodes"),
    ],
)
def test_an_event_that_cannot_be_observed_is_refused(
    text: str, has_points: bool, says: str
) -> None:
    async def run() -> None:
        cluster = FakeCluster()
        events = ReportedEvents(cluster, FaultPoints(cluster, SYSTEM) if has_points else None)
        with pytest.raises(UsageError, match=says):
            events.check(parse_trigger(text))

    asyncio.run(run())


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (messages("hold_messages", "Fetsch"), "fault f: .*did you mean 'Fetch'"),
        (messages("duplicate_messages", "FetchResponse"), "name the API alone"),
        (
            messages("refuse_messages", "Produce", error="NOT_CONTROLLER"),
            "cannot be refused as a whole",
        ),
    ],
)
def test_a_fault_about_messages_that_it_cannot_be_about_is_refused(fault: Fault, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        check_message_fault(fault, SYSTEM.message_names, SYSTEM.wholly_refusable)
