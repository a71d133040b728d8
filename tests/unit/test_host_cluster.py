"""A cluster on hosts, with an agent made of thin air: what is noted of deaths, half-done faults and heals."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from harness.agent.errors import AgentError
from harness.contracts.capability import YES, Capability
from harness.environments.host_clocks import _rate_ppm
from harness.environments.hosts import HostCluster, HostNode
from nemesis.fault import FAULT_NAMES


class FakeAgent:
    """Answers every command, notes it, and fails when it is told to."""

    name = "thin air"

    def __init__(self) -> None:
        self.commands: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[str, Any] = {}
        self.fails: set[str] = set()
        self.on_event: Callable[[dict[str, Any]], None] | None = None

    async def ask(self, command: str, **arguments: Any) -> Any:
        self.commands.append((command, arguments))
        if command in self.fails:
            raise AgentError(f"{command} failed")
        if command in ("net_apply", "net_evidence", "net_remove"):
            names = arguments.get("nodes") or list(arguments["rules"])
            more = self.answers.get(command, {})
            return {name: {"packets": 3, "in_force_ns": 1, **more.get(name, {})} for name in names}
        default = {"alive": True, "state": "S", "cpu_ticks": 1, "pid": 1, "in_time": True}
        return self.answers.get(command, default)

    def asked(self, command: str) -> list[dict[str, Any]]:
        return [arguments for name, arguments in self.commands if name == command]


class FakePlacement:
    def __init__(self) -> None:
        self.agent = FakeAgent()
        self.nodes = {
            name: HostNode(
                name=name,
                role="controller" if name[0] == "c" else "broker",
                node_id=int(name[1:]),
                address=f"192.0.2.{name[1:]}",
                port=9092,
                agent=self.agent,  # type: ignore[arg-type]
            )
            for name in ("c11", "b1", "b2")
        }
        self.client_addresses = {"harness": "192.0.2.100", "client-0": "192.0.2.101"}
        self.client_sources: dict[str, str] = {}
        self.packets_at_clients = ""
        self.pids = iter(range(100, 200))

    def capabilities(self) -> dict[str, Capability]:
        return {name: Capability(level=YES) for name in FAULT_NAMES}

    async def start_process(self, node: HostNode) -> int:
        await asyncio.sleep(0)
        return next(self.pids)

    async def exit_code(self, node: HostNode) -> int | None:
        return 1

    async def last_words(self, node: HostNode) -> str:
        return "farewell"


class World:
    """A cluster whose nodes have been started."""

    def __init__(self) -> None:
        self.placement = FakePlacement()
        self.agent = self.placement.agent
        self.violations: list[str] = []
        self.cluster = HostCluster(
            self.placement,  # type: ignore[arg-type]
            lambda table, row: None,
            clients=1,
            on_violation=self.violations.append,
            seed=7,
        )

    async def start(self) -> None:
        self.cluster._loop = asyncio.get_running_loop()
        for name in self.placement.nodes:
            await self.cluster.start_node(name)

    async def exits(self, name: str) -> None:
        event = {"event": "exited", "node": name, "pid": self.placement.nodes[name].pid}
        self.cluster._event_of_agent(event)
        for _ in range(5):
            await asyncio.sleep(0)


def live(story: Callable[[World], Coroutine[Any, Any, None]]) -> World:
    async def run() -> World:
        world = World()
        await world.start()
        await story(world)
        return world

    return asyncio.run(run())


def test_an_unexpected_end_is_an_anomaly() -> None:
    async def story(world: World) -> None:
        await world.exits("b1")
        assert not world.cluster.is_alive("b1")

    assert live(story).violations == ["b1 ended by itself (exit code 1): farewell"]


def test_the_end_of_a_killed_process_is_none_even_if_the_news_comes_late() -> None:
    async def story(world: World) -> None:
        pid = world.placement.nodes["b1"].pid
        in_force = await world.cluster.inject("kill", ("b1",), {})
        await world.cluster.heal("kill", in_force)
        assert world.cluster.is_alive("b1")
        world.cluster._event_of_agent({"event": "exited", "node": "b1", "pid": pid})
        await asyncio.sleep(0)
        assert world.cluster.is_alive("b1")

    assert live(story).violations == []


def test_a_node_may_die_of_its_disk_and_is_started_again_when_that_is_healed() -> None:
    async def story(world: World) -> None:
        in_force = await world.cluster.inject("disk_full", ("b1", "b2"), {})
        await world.exits("b1")
        assert world.cluster.population().down == ("b1",)
        again = await world.cluster.inject("disk_full", ("b1", "b2"), {})
        assert again.nodes == ()
        world.agent.answers["probe_write"] = {"errno": 0, "error": ""}
        effect = await world.cluster.effect("disk_full", in_force)
        assert effect.bit
        assert effect.evidence["ended_by_itself"] == {"b1": "farewell"}
        await world.cluster.heal("disk_full", in_force)
        assert world.cluster.population().down == ()
        await world.exits("b2")  # died of it, noticed a moment after it was healed
        assert world.cluster.population().down == ()

    assert live(story).violations == []


def test_a_fault_that_fails_half_way_is_undone_and_hits_nobody() -> None:
    async def story(world: World) -> None:
        world.agent.fails.add("power_cut")
        in_force = await world.cluster.inject("power", ("b1",), {"mode": "lose_all"})
        assert in_force.nodes == ()
        assert "power_cut failed" in in_force.evidence["error"]
        assert world.agent.asked("net_remove")
        assert world.agent.asked("resume") == [{"node": "b1"}]
        await world.exits("b1")

    assert live(story).violations == ["b1 ended by itself (exit code 1): farewell"]


def test_a_delay_says_by_what_it_was_done() -> None:
    async def story(world: World) -> None:
        cut = await world.cluster.inject("cut", ("b1", "b2"), {})
        delay = await world.cluster.inject("delay", ("b1", "b2"), {"ms": 9})
        assert "mechanism" not in (await world.cluster.effect("cut", cut)).evidence
        world.agent.answers["net_remove"] = {
            "b1": {"mechanism": "nfqueue"},
            "b2": {"mechanism": "netem"},
        }
        await world.cluster.heal("delay", delay)
        assert delay.evidence["mechanism"] == "netem, nfqueue"

    live(story)


def test_healing_twice_removes_once() -> None:
    async def story(world: World) -> None:
        in_force = await world.cluster.inject("cut", ("b1", "b2"), {"planes": ["inter-broker"]})
        (applied,) = world.agent.asked("net_apply")
        assert applied["rules"]["b1"][0]["pairs"] == [["192.0.2.2", "192.0.2.1"]]
        await world.cluster.heal("cut", in_force)
        await world.cluster.heal("cut", in_force)
        assert len(world.agent.asked("net_remove")) == 1

    live(story)


def test_packets_to_clients_are_caught_where_they_leave_if_nobody_sees_them_arrive() -> None:
    async def story(world: World) -> None:
        await world.cluster.inject("isolate", ("b1",), {"planes": ["client"]})
        (applied,) = world.agent.asked("net_apply")
        by_hook = {rule["hook"]: rule["pairs"] for rule in applied["rules"]["b1"]}
        assert ["192.0.2.1", "192.0.2.101"] in by_hook["output"]
        assert ["192.0.2.101", "192.0.2.1"] in by_hook["input"]

    live(story)


def test_one_clock_is_skewed_by_one_fault_at_a_time() -> None:
    async def story(world: World) -> None:
        first = await world.cluster.inject("clock_step", ("b1",), {"ms": 500})
        second = await world.cluster.inject("clock_drift", ("b1", "b2"), {"ppm": 100})
        assert (first.nodes, second.nodes) == (("b1",), ("b2",))
        await world.cluster.heal("clock_step", first)
        third = await world.cluster.inject("clock_step", ("b1",), {"ms": -500})
        assert third.nodes == ("b1",)

    live(story)


@pytest.mark.parametrize(("restart_at", "count"), [(None, 10), (6, 10), (2, 10)])
def test_a_drift_is_read_off_one_process_s_clock(restart_at: int | None, count: int) -> None:
    readings = [
        (n * 10**8, int(n * 10**8 * 1.01) + (10**15 if restart_at and n >= restart_at else 0))
        for n in range(count)
    ]
    assert _rate_ppm(readings) == pytest.approx(10_000, rel=1e-3)


def test_two_heals_at_once_start_a_node_once() -> None:
    async def story(world: World) -> None:
        first = await world.cluster.inject("kill", ("b1",), {})
        starts = world.placement.nodes["b1"].starts
        await asyncio.gather(
            world.cluster.heal("kill", first),
            world.cluster.start_node("b1"),
            world.cluster.settle(),
        )
        assert world.placement.nodes["b1"].starts == starts + 1

    assert live(story).violations == []
