"""Faults on a cluster on hosts with a fake agent: nodes that end, faults that fail half-way, heals."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from harness.contracts.capability import YES, Capability
from harness.contracts.system import Settings
from harness.environments.hosts.cluster import DISK_MIB, HostCluster, HostNode, add_node
from harness.environments.request import ClusterRequest
from harness.systems.registry import REFERENCE, SYSTEMS
from nemesis.administration import ACTIONS
from nemesis.agent.errors import AgentError
from nemesis.fault import Fault
from nemesis.faults import FAULT_NAMES
from nemesis.hosts.capabilities import OF_DIRECTORIES, OF_MESSAGES
from nemesis.hosts.clocks import rate_ppm
from nemesis.hosts.injector import MECHANISMS, HostInjector
from nemesis.hosts.mechanism import HostInjection


class FakeAgent:
    """Responds to every command, records it, and fails on the commands in `fails`."""

    name = "fake"

    def __init__(self) -> None:
        self.commands: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[str, Any] = {}
        self.fails: set[str] = set()
        self.on_event: Callable[[dict[str, Any]], None] | None = None

    async def request(self, command: str, **arguments: Any) -> Any:
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
        self.line = "final line"

    def mechanisms(self) -> list[dict[str, Any]]:
        return []

    async def start_process(self, node: HostNode) -> int:
        await asyncio.sleep(0)
        return next(self.pids)

    async def exit_code(self, node: HostNode) -> int | None:
        return 1

    async def output(self, node: HostNode) -> str:
        return self.line


class World:
    """A cluster whose nodes have been started."""

    def __init__(self) -> None:
        self.placement = FakePlacement()
        self.agent = self.placement.agent
        self.violations: list[str] = []
        self.request = ClusterRequest(
            system=SYSTEMS.get(REFERENCE),
            settings=Settings(profile="kafka-4.1", timings="fast"),
            brokers=3,
            controllers=3,
            clients=1,
            disk="ext4",
            inventory=Path(),
            logs_to=Path(),
            add_row=lambda table, row: None,
            on_violation=lambda violation: self.violations.append(violation.sentence),
            seed=7,
        )
        self.cluster = HostCluster(self.placement, self.request)  # type: ignore[arg-type]
        self.injector = HostInjector(
            self.cluster, {name: Capability(level=YES) for name in FAULT_NAMES}
        )

    async def inject(
        self, name: str, nodes: tuple[str, ...], params: dict[str, Any]
    ) -> HostInjection:
        fault = Fault(id="f", fault=name, targets=nodes, params=params)
        return await self.injector.inject(fault, nodes)

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


@pytest.mark.parametrize(
    ("seen_at", "data_dir"), [("", "/state/b1/disk/data"), ("/data", "/data/disk/data")]
)
def test_the_agent_makes_a_nodes_disk_and_its_files_name_the_data_directory(
    seen_at: str, data_dir: str
) -> None:
    async def story(world: World) -> None:
        world.agent.answers["add_node"] = {"directory": "/state/b1", "log": "/state/logs/b1"}
        nodes = world.placement.nodes
        made = await add_node(nodes["b1"], nodes, world.request, seen_at=seen_at)
        assert world.agent.asked("add_node") == [
            {
                "node": "b1",
                "addresses": ["192.0.2.1"],
                "filesystem": "ext4",
                "size_mib": DISK_MIB,
                "log_files": "",
            }
        ]
        assert (made.directory, made.log) == ("/state/b1", "/state/logs/b1")
        assert f'"{data_dir}"' in made.files["node.toml"]
        assert "192.0.2.11:9092" in made.files["node.toml"]

    live(story)


def test_an_unexpected_end_is_an_anomaly() -> None:
    async def story(world: World) -> None:
        await world.exits("b1")
        assert not world.cluster.is_alive("b1")

    assert live(story).violations == ["b1 ended by itself (exit code 1): final line"]


def test_the_end_of_a_killed_process_is_no_anomaly_even_if_it_is_reported_late() -> None:
    async def story(world: World) -> None:
        pid = world.placement.nodes["b1"].pid
        in_force = await world.inject("kill", ("b1",), {})
        await in_force.heal()
        assert world.cluster.is_alive("b1")
        world.cluster._event_of_agent({"event": "exited", "node": "b1", "pid": pid})
        await asyncio.sleep(0)
        assert world.cluster.is_alive("b1")

    assert live(story).violations == []


def test_a_node_may_end_because_of_its_disk_and_is_started_by_the_heal() -> None:
    async def story(world: World) -> None:
        world.agent.answers["fill"] = {"probe": {"errno": 0}}
        in_force = await world.inject("disk_full", ("b1", "b2"), {})
        await world.exits("b1")
        assert world.cluster.population().down == ("b1",)
        again = await world.inject("disk_full", ("b1", "b2"), {})
        assert again.nodes == ()
        world.agent.answers["probe_write"] = {"errno": 0, "error": ""}
        assert not in_force.evidence()["filled"]["b2"]["probe"]["errno"]
        effect = await in_force.effect()
        assert effect.took_effect
        assert effect.evidence["ended_by_itself"] == {"b1": "final line"}
        await in_force.heal()
        assert world.cluster.population().down == ()
        await world.exits("b2")  # died of it, noticed a moment after it was healed
        assert world.cluster.population().down == ()

    assert live(story).violations == []


def test_a_fault_without_targets_excuses_no_node() -> None:
    async def story(world: World) -> None:
        world.agent.answers["trace_end"] = {"calls": 2}
        slow = await world.inject("slow_disk", ("b1",), {"ms": 5})
        broken = await world.inject("io_error", ("b1",), {"op": "fsync"})
        assert (slow.nodes, broken.nodes) == (("b1",), ())
        await slow.heal()
        await world.exits("b1")

    assert live(story).violations == ["b1 ended by itself (exit code 1): final line"]


@pytest.mark.parametrize(
    ("line", "blamed"),
    [
        ("OSError: [Errno 30] Read-only file system", ["read_only"]),
        ("OSError: [Errno 28] No space left on device", ["disk_full"]),
        ("final line", ["disk_full", "read_only"]),
    ],
)
def test_an_end_is_attributed_to_the_fault_that_the_final_log_line_names(
    line: str, blamed: list[str]
) -> None:
    async def story(world: World) -> None:
        world.agent.answers["fill"] = {"probe": {"errno": 0}}
        world.agent.answers["remount"] = {"probe": {"errno": 30}}
        world.placement.line = line
        faults = {
            name: await world.inject(name, ("b1",), {}) for name in ("disk_full", "read_only")
        }
        await world.exits("b1")
        assert [name for name, one in faults.items() if "b1" in one.ended_by_itself] == blamed

    assert live(story).violations == []


def test_a_disk_that_is_stuck_is_not_filled() -> None:
    async def story(world: World) -> None:
        world.agent.answers["fill"] = {"probe": {"errno": 28}}
        await world.inject("stuck_disk", ("b1",), {})
        full = await world.inject("disk_full", ("b1", "b2"), {})
        assert full.nodes == ("b2",)

    world = live(story)
    assert [one["node"] for one in world.agent.asked("fill")] == ["b2"]


@pytest.mark.parametrize(("errno_seen", "is_revived"), [(5, True), (0, False)])
def test_a_failed_disk_is_remounted_only_if_it_still_fails_and_starts_no_node_that_is_kept_down(
    errno_seen: int, is_revived: bool
) -> None:
    async def story(world: World) -> None:
        world.agent.answers["probe_write"] = {"errno": errno_seen, "error": ""}
        dead = await world.inject("io_error", ("b1",), {"op": "all"})
        cut = await world.inject("kill", ("b1",), {})
        await dead.heal()
        assert not world.cluster.is_alive("b1")
        assert bool(world.agent.asked("disk_revives")) == is_revived
        await cut.heal()
        assert world.cluster.is_alive("b1")

    assert live(story).violations == []


def test_of_two_pauses_at_one_instant_one_affects_the_node_and_only_that_one_resumes_it() -> None:
    async def story(world: World) -> None:
        pid = world.placement.nodes["b1"].pid
        world.agent.answers["pause"] = {"stopped": True, "pid": pid, "cpu_ticks": 4}
        first, second = await asyncio.gather(
            *(world.inject("pause", ("b1",), {}) for _ in range(2))
        )
        assert (first.nodes, second.nodes) == (("b1",), ())
        await second.heal()
        assert not world.agent.asked("resume")
        await first.heal()
        assert world.agent.asked("resume") == [{"node": "b1", "pid": pid}]
        assert (await world.inject("pause", ("b1",), {})).nodes == ("b1",)

    live(story)


@pytest.mark.parametrize(
    ("state", "ticks", "bit"), [("T", 4, True), ("t", 4, True), ("T", 5, False)]
)
def test_evidence_of_a_pause_is_collected_before_the_node_is_killed(
    state: str, ticks: int, bit: bool
) -> None:
    async def story(world: World) -> None:
        pid = world.placement.nodes["b1"].pid
        world.agent.answers["pause"] = {"stopped": True, "pid": pid, "cpu_ticks": 4}
        paused = await world.inject("pause", ("b1",), {})
        world.agent.answers["status"] = {"state": state, "pid": pid, "cpu_ticks": ticks}
        await world.inject("kill", ("b1",), {})
        world.agent.answers["status"] = {"state": "", "pid": pid, "cpu_ticks": 0}
        assert (await paused.effect()).took_effect is bit

    live(story)


def test_the_counters_of_a_tracer_outlive_it() -> None:
    async def story(world: World) -> None:
        traced = await world.inject("io_error", ("b1",), {"op": "fsync"})
        world.agent.answers["trace_evidence"] = {"calls": 3}
        world.agent.answers["power_cut"] = {"nodes": {}, "timings_ms": {}}
        await world.inject("power", ("b1",), {})
        world.agent.answers["trace_evidence"] = world.agent.answers["trace_end"] = {"calls": 0}
        await traced.heal()
        assert traced.evidence()["calls_hit"] == {"b1": 3}
        assert (await traced.effect()).took_effect

    live(story)


def test_a_heal_that_fails_is_reported_and_does_not_end_the_run() -> None:
    async def story(world: World) -> None:
        stuck = await world.inject("stuck_disk", ("b1",), {})
        world.agent.fails.add("thaw_disk")
        await stuck.heal()
        effect = await stuck.effect()
        assert (effect.took_effect, effect.evidence["error"]) == (
            False,
            "not healed: thaw_disk failed",
        )

    live(story)


def test_a_fault_that_fails_halfway_is_undone_and_affects_no_node() -> None:
    async def story(world: World) -> None:
        world.agent.fails.add("power_cut")
        in_force = await world.inject("power", ("b1",), {"mode": "lose_all"})
        assert in_force.nodes == ()
        assert "power_cut failed" in (await in_force.effect()).evidence["error"]
        assert world.agent.asked("net_remove")
        assert world.agent.asked("resume") == [{"node": "b1"}]
        await world.exits("b1")

    assert live(story).violations == ["b1 ended by itself (exit code 1): final line"]


def test_a_delay_reports_its_mechanism() -> None:
    async def story(world: World) -> None:
        cut = await world.inject("cut", ("b1", "b2"), {})
        delay = await world.inject("delay", ("b1", "b2"), {"ms": 9})
        assert "mechanism" not in (await cut.effect()).evidence
        world.agent.answers["net_remove"] = {
            "b1": {"mechanism": "nfqueue"},
            "b2": {"mechanism": "netem"},
        }
        await delay.heal()
        assert delay.evidence()["mechanism"] == "netem, nfqueue"

    live(story)


def test_healing_twice_removes_once() -> None:
    async def story(world: World) -> None:
        in_force = await world.inject("cut", ("b1", "b2"), {"planes": ["inter-broker"]})
        (applied,) = world.agent.asked("net_apply")
        assert applied["rules"]["b1"][0]["pairs"] == [["192.0.2.2", "192.0.2.1"]]
        await in_force.heal()
        await in_force.heal()
        assert len(world.agent.asked("net_remove")) == 1

    live(story)


def test_packets_to_clients_are_handled_at_the_sender_if_the_receiver_has_no_agent() -> None:
    async def story(world: World) -> None:
        await world.inject("isolate", ("b1",), {"planes": ["client"]})
        (applied,) = world.agent.asked("net_apply")
        by_hook = {rule["hook"]: rule["pairs"] for rule in applied["rules"]["b1"]}
        assert ["192.0.2.1", "192.0.2.101"] in by_hook["output"]
        assert ["192.0.2.101", "192.0.2.1"] in by_hook["input"]

    live(story)


def test_one_clock_is_skewed_by_one_fault_at_a_time() -> None:
    async def story(world: World) -> None:
        first = await world.inject("clock_step", ("b1",), {"ms": 500})
        second = await world.inject("clock_drift", ("b1", "b2"), {"ppm": 100})
        assert (first.nodes, second.nodes) == (("b1",), ("b2",))
        await first.heal()
        third = await world.inject("clock_step", ("b1",), {"ms": -500})
        assert third.nodes == ("b1",)

    live(story)


@pytest.mark.parametrize("ppm", [10_000, 600_000, -600_000, 10_000_000, -999_999])
@pytest.mark.parametrize(("restart_at", "count"), [(None, 10), (6, 10), (2, 10)])
def test_a_drift_is_measured_on_the_clock_of_one_process(
    restart_at: int | None, count: int, ppm: int
) -> None:
    rate = 1 + ppm / 1e6
    readings = [
        (n * 10**8, int(n * 10**8 * rate) + (10**15 if restart_at and n >= restart_at else 0))
        for n in range(count)
    ]
    assert rate_ppm(readings, ppm) == pytest.approx(ppm, rel=1e-3)


def test_two_heals_at_once_start_a_node_once() -> None:
    async def story(world: World) -> None:
        first = await world.inject("kill", ("b1",), {})
        starts = world.placement.nodes["b1"].starts
        await asyncio.gather(
            first.heal(),
            world.cluster.start_node("b1"),
            world.cluster.settle(),
        )
        assert world.placement.nodes["b1"].starts == starts + 1

    assert live(story).violations == []


def test_every_fault_of_the_table_has_a_mechanism() -> None:
    # All log directories of a node are on one disk there.
    elsewhere = {"heal", *OF_DIRECTORIES, *OF_MESSAGES, *ACTIONS}
    assert set(MECHANISMS) | elsewhere == set(FAULT_NAMES)
    assert not set(MECHANISMS) & set(ACTIONS), "these need no agent"


def test_a_file_is_cut_while_its_node_is_down_and_the_heal_starts_the_node() -> None:
    async def story(world: World) -> None:
        cut = {"path": "t-0/0.log", "bytes_before": 90, "bytes_after": 60}
        world.agent.answers["truncate_file"] = cut
        fault = await world.inject("truncate_file", ("b1", "b2"), {"bytes": 30})
        assert world.cluster.population().down == ("b1", "b2")
        effect = await fault.effect()
        assert effect.took_effect
        assert effect.evidence["truncated"] == {"b1": cut, "b2": cut}
        assert world.agent.asked("truncate_file")[0] == {"node": "b1", "size": 30}
        await fault.heal()
        assert world.cluster.population().down == ()

    assert live(story).violations == []


def test_a_cut_that_finds_no_file_has_no_effect() -> None:
    async def story(world: World) -> None:
        world.agent.answers["truncate_file"] = {}
        fault = await world.inject("truncate_file", ("b1",), {"bytes": 30})
        assert not (await fault.effect()).took_effect

    live(story)


def test_settling_heals_what_is_in_force_and_retries_what_could_not_be_healed() -> None:
    async def story(world: World) -> None:
        stuck = await world.inject("stuck_disk", ("b1",), {})
        cut = await world.inject("cut", ("b1", "b2"), {})
        world.agent.fails.add("thaw_disk")
        await stuck.heal()
        assert not stuck.is_removed
        world.agent.fails.clear()
        await world.injector.settle()
        assert (stuck.is_removed, cut.is_removed) == (True, True)
        assert len(world.agent.asked("thaw_disk")) == 2
        assert world.agent.asked("reset_connections") == [{"nodes": ["c11", "b1", "b2"]}]

    live(story)


def test_packet_rules_of_a_fault_that_failed_halfway_are_removed_from_every_node() -> None:
    async def story(world: World) -> None:
        world.agent.fails.add("net_apply")
        fault = await world.inject("isolate", ("client-0",), {})
        assert fault.nodes == ()
        (removed,) = world.agent.asked("net_remove")
        assert set(removed["nodes"]) == {"c11", "b1", "b2"}

    live(story)


def test_a_client_is_not_paused_because_it_is_not_a_process_of_a_host() -> None:
    async def story(world: World) -> None:
        assert (await world.inject("pause", ("client-0",), {})).nodes == ()

    live(story)


def test_the_power_comes_back_before_the_node_is_started() -> None:
    async def story(world: World) -> None:
        world.agent.answers["power_cut"] = {"nodes": {}, "timings_ms": {}}
        cut = await world.inject("power", ("b1",), {})
        await world.cluster.start_node("b1")
        assert world.agent.asked("power_on") == [{"nodes": ["b1"], "token": cut.token}]
        await cut.heal()
        assert len(world.agent.asked("power_on")) == 1

    assert live(story).violations == []
