"""A cluster on hosts, with an agent made of thin air: what is noted of deaths, half-done faults and heals."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from harness.contracts.capability import YES, Capability
from harness.environments.hosts.cluster import HostCluster, HostNode
from nemesis.agent.errors import AgentError
from nemesis.faults import FAULT_NAMES
from nemesis.hosts.clocks import _rate_ppm


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
        self.words = "farewell"

    def capabilities(self) -> dict[str, Capability]:
        return {name: Capability(level=YES) for name in FAULT_NAMES}

    async def start_process(self, node: HostNode) -> int:
        await asyncio.sleep(0)
        return next(self.pids)

    async def exit_code(self, node: HostNode) -> int | None:
        return 1

    async def last_words(self, node: HostNode) -> str:
        return self.words


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
            on_violation=lambda violation: self.violations.append(violation.sentence),
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
        world.agent.answers["fill"] = {"probe": {"errno": 0}}
        in_force = await world.cluster.inject("disk_full", ("b1", "b2"), {})
        await world.exits("b1")
        assert world.cluster.population().down == ("b1",)
        again = await world.cluster.inject("disk_full", ("b1", "b2"), {})
        assert again.nodes == ()
        world.agent.answers["probe_write"] = {"errno": 0, "error": ""}
        assert not in_force.evidence["filled"]["b2"]["probe"]["errno"]
        effect = await world.cluster.effect("disk_full", in_force)
        assert effect.bit
        assert effect.evidence["ended_by_itself"] == {"b1": "farewell"}
        await world.cluster.heal("disk_full", in_force)
        assert world.cluster.population().down == ()
        await world.exits("b2")  # died of it, noticed a moment after it was healed
        assert world.cluster.population().down == ()

    assert live(story).violations == []


def test_what_hit_nobody_excuses_nobody() -> None:
    async def story(world: World) -> None:
        world.agent.answers["trace_end"] = {"calls": 2}
        slow = await world.cluster.inject("slow_disk", ("b1",), {"ms": 5})
        broken = await world.cluster.inject("io_error", ("b1",), {"op": "fsync"})
        assert (slow.nodes, broken.nodes) == (("b1",), ())
        await world.cluster.heal("slow_disk", slow)
        await world.exits("b1")

    assert live(story).violations == ["b1 ended by itself (exit code 1): farewell"]


@pytest.mark.parametrize(
    ("words", "blamed"),
    [
        ("OSError: [Errno 30] Read-only file system", ["read_only"]),
        ("OSError: [Errno 28] No space left on device", ["disk_full"]),
        ("farewell", ["disk_full", "read_only"]),
    ],
)
def test_a_death_is_put_down_to_the_fault_that_its_last_words_name(
    words: str, blamed: list[str]
) -> None:
    async def story(world: World) -> None:
        world.agent.answers["fill"] = {"probe": {"errno": 0}}
        world.agent.answers["remount"] = {"probe": {"errno": 30}}
        world.placement.words = words
        faults = {
            name: await world.cluster.inject(name, ("b1",), {})
            for name in ("disk_full", "read_only")
        }
        await world.exits("b1")
        assert [name for name, one in faults.items() if "ended_by_itself" in one.evidence] == blamed

    assert live(story).violations == []


def test_a_disk_that_is_stuck_is_not_filled() -> None:
    async def story(world: World) -> None:
        world.agent.answers["fill"] = {"probe": {"errno": 28}}
        await world.cluster.inject("stuck_disk", ("b1",), {})
        full = await world.cluster.inject("disk_full", ("b1", "b2"), {})
        assert full.nodes == ("b2",)

    world = live(story)
    assert [one["node"] for one in world.agent.asked("fill")] == ["b2"]


@pytest.mark.parametrize(("errno_seen", "is_revived"), [(5, True), (0, False)])
def test_a_disk_that_died_is_revived_only_if_it_is_dead_and_starts_nobody_that_is_kept_down(
    errno_seen: int, is_revived: bool
) -> None:
    async def story(world: World) -> None:
        world.agent.answers["probe_write"] = {"errno": errno_seen, "error": ""}
        dead = await world.cluster.inject("io_error", ("b1",), {"op": "all"})
        cut = await world.cluster.inject("kill", ("b1",), {})
        await world.cluster.heal("io_error", dead)
        assert not world.cluster.is_alive("b1")
        assert bool(world.agent.asked("disk_revives")) == is_revived
        await world.cluster.heal("kill", cut)
        assert world.cluster.is_alive("b1")

    assert live(story).violations == []


def test_of_two_pauses_at_one_instant_one_hits_and_only_that_one_resumes() -> None:
    async def story(world: World) -> None:
        pid = world.placement.nodes["b1"].pid
        world.agent.answers["pause"] = {"stopped": True, "pid": pid, "cpu_ticks": 4}
        first, second = await asyncio.gather(
            *(world.cluster.inject("pause", ("b1",), {}) for _ in range(2))
        )
        assert (first.nodes, second.nodes) == (("b1",), ())
        await world.cluster.heal("pause", second)
        assert not world.agent.asked("resume")
        await world.cluster.heal("pause", first)
        assert world.agent.asked("resume") == [{"node": "b1", "pid": pid}]
        assert (await world.cluster.inject("pause", ("b1",), {})).nodes == ("b1",)

    live(story)


@pytest.mark.parametrize(
    ("state", "ticks", "bit"), [("T", 4, True), ("t", 4, True), ("T", 5, False)]
)
def test_a_pause_is_proved_before_the_node_is_killed(state: str, ticks: int, bit: bool) -> None:
    async def story(world: World) -> None:
        pid = world.placement.nodes["b1"].pid
        world.agent.answers["pause"] = {"stopped": True, "pid": pid, "cpu_ticks": 4}
        paused = await world.cluster.inject("pause", ("b1",), {})
        world.agent.answers["status"] = {"state": state, "pid": pid, "cpu_ticks": ticks}
        await world.cluster.inject("kill", ("b1",), {})
        world.agent.answers["status"] = {"state": "", "pid": pid, "cpu_ticks": 0}
        assert (await world.cluster.effect("pause", paused)).bit is bit

    live(story)


def test_what_a_tracer_counted_outlives_it() -> None:
    async def story(world: World) -> None:
        traced = await world.cluster.inject("io_error", ("b1",), {"op": "fsync"})
        world.agent.answers["trace_evidence"] = {"calls": 3}
        world.agent.answers["power_cut"] = {"nodes": {}, "timings_ms": {}}
        await world.cluster.inject("power", ("b1",), {})
        world.agent.answers["trace_evidence"] = world.agent.answers["trace_end"] = {"calls": 0}
        await world.cluster.heal("io_error", traced)
        assert traced.evidence["calls_hit"] == {"b1": 3}
        assert (await world.cluster.effect("io_error", traced)).bit

    live(story)


def test_a_heal_that_fails_is_told_and_ends_no_run() -> None:
    async def story(world: World) -> None:
        stuck = await world.cluster.inject("stuck_disk", ("b1",), {})
        world.agent.fails.add("thaw_disk")
        await world.cluster.heal("stuck_disk", stuck)
        effect = await world.cluster.effect("stuck_disk", stuck)
        assert (effect.bit, effect.evidence["error"]) == (False, "not healed: thaw_disk failed")

    live(story)


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


@pytest.mark.parametrize("ppm", [10_000, 600_000, -600_000, 10_000_000, -999_999])
@pytest.mark.parametrize(("restart_at", "count"), [(None, 10), (6, 10), (2, 10)])
def test_a_drift_is_read_off_one_process_s_clock(
    restart_at: int | None, count: int, ppm: int
) -> None:
    rate = 1 + ppm / 1e6
    readings = [
        (n * 10**8, int(n * 10**8 * rate) + (10**15 if restart_at and n >= restart_at else 0))
        for n in range(count)
    ]
    assert _rate_ppm(readings, ppm) == pytest.approx(ppm, rel=1e-3)


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
