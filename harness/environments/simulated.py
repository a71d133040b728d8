"""A cluster in the simulated world: the reference system, client hosts and the harness in one process.

It wires nodes to the world, turns what controllers commit and what brokers say of themselves into rows, and
carries out faults with the world's own means. Broker objects are looked into in one place only, the invariant
monitor; workloads and nemeses see the `Cluster` contract.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any

from harness.contracts.environment import Effect, InForce, Population
from harness.contracts.metadata import CommittedMetadata
from harness.environments.observation import MetadataWitness, NodeObserver
from harness.simulation.node import IdleProcess, SimNode
from harness.simulation.world import World
from system_under_test.broker.broker import BrokerNode
from system_under_test.config import LogConfig, NodeConfig, Timings, Voter
from system_under_test.config import profile_features as features_of
from system_under_test.protocol.record_batch import read_headers
from system_under_test.rules import Rules
from system_under_test.runtime import Host
from system_under_test.server import build_node

CONTROLLER_ID_FIRST = 11
BROKER_PORT = 9092
CONTROLLER_PORT = 9093
CLUSTER_ID = "laststand"
HARNESS_NODE = "harness"
STOP_GRACE_MS = 20_000

AddRow = Callable[[str, tuple[Any, ...]], None]
"""Takes (table, row in schema order)."""


class SimulatedCluster:
    """A cluster in a `World`. Implements `harness.contracts.environment.Cluster`.

    Args:
        world: The world to live in; nothing else may live there.
        add_row: Takes history rows.
        brokers, controllers, clients: How many of each.
        profile, timings, log, min_isr, disabled_rules: What the nodes are told.
    """

    supported_faults = frozenset(
        {"cut", "isolate", "pause", "stop", "kill", "power", "start", "heal"}
    )

    def __init__(
        self,
        world: World,
        add_row: AddRow,
        *,
        brokers: int,
        controllers: int,
        clients: int,
        profile: str,
        timings: Timings,
        log: LogConfig,
        unclean_leader_election: bool = False,
        disabled_rules: tuple[str, ...] = (),
    ) -> None:
        self.world = world
        self._add_row = add_row
        self.metadata = CommittedMetadata()
        self._pauses: list[InForce] = []
        self.features = features_of(profile)
        self.voters = tuple(
            Voter(node_id=node_id, address=f"c{node_id}:{CONTROLLER_PORT}")
            for node_id in range(CONTROLLER_ID_FIRST, CONTROLLER_ID_FIRST + controllers)
        )
        self._template = NodeConfig(
            node_id=0,
            role="broker",
            address="",
            cluster_id=CLUSTER_ID,
            voters=self.voters,
            features=self.features,
            timings=timings,
            log=log,
            unclean_leader_election_enable=unclean_leader_election,
            rules=Rules(disabled_rules),
        )
        self.witness = MetadataWitness(self.metadata, add_row, lambda: world.now)
        self.brokers = {f"b{index}": index for index in range(1, brokers + 1)}
        self.controllers = {f"c{voter.node_id}": voter.node_id for voter in self.voters}
        self.clients = tuple(f"client-{index}" for index in range(clients))
        self.harness_host = HARNESS_NODE
        self.bootstrap = tuple(f"{name}:{BROKER_PORT}" for name in self.brokers)
        self._add_nodes()

    def now_ns(self) -> int:
        """Returns the world's true time."""
        return self.world.now

    def population(self) -> Population:
        """Returns who there is, and who is down."""
        names = (*self.brokers, *self.controllers)
        return Population(
            brokers=tuple(self.brokers.items()),
            controllers=tuple(self.controllers.items()),
            clients=self.clients,
            down=tuple(name for name in names if self._is_down(name)),
        )

    def start(self) -> None:
        """Starts every node: harness and clients, controllers, brokers."""
        for name in (HARNESS_NODE, *self.clients, *self.controllers, *self.brokers):
            self.world.nodes[name].start()

    def spawn(self, node: str, coroutine: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Runs a coroutine on the loop of a node."""
        return self.world.spawn(node, coroutine)

    def client_host(self, name: str) -> Host:
        """Returns the doors of a client host."""
        return self.world.nodes[name].host

    async def call(self, node: str, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Runs a coroutine on another node's loop and waits for it on this one."""
        here = asyncio.get_running_loop()
        done: asyncio.Future[None] = here.create_future()
        task = self.spawn(node, coroutine)
        task.add_done_callback(lambda _: here.call_soon(_finish, done))
        await done
        return task.result()

    async def inject(
        self, fault: str, nodes: tuple[str, ...], params: Mapping[str, Any]
    ) -> InForce:
        """Injects a fault; returns when it is in force."""
        if fault in ("cut", "isolate"):
            return self._inject_network(fault, nodes, params)
        if fault == "pause":
            return self._inject_pause(nodes)
        if fault == "start":
            return self._inject_start(nodes)
        for pause in self._pauses:
            self._effect_of_pause(pause)
        alive = tuple(name for name in nodes if not self._is_down(name))
        if fault == "stop":
            return await self._inject_stop(alive, params)
        if fault == "power":
            return self._inject_power(alive, params)
        return self._inject_kill(alive)

    async def heal(self, fault: str, in_force: InForce) -> None:
        """Removes what this injection added; starts the nodes that it took down."""
        if fault in ("cut", "isolate"):
            for token in in_force.token:
                self.world.network.heal(token)
        elif fault == "pause":
            for name in in_force.nodes:
                if self._incarnation(name) == in_force.token[name]:
                    self.world.nodes[name].resume()
        elif fault in ("stop", "kill", "power"):
            for name in in_force.nodes:
                if self._is_down(name):
                    self.world.nodes[name].start()

    async def effect(self, fault: str, in_force: InForce) -> Effect:
        """Returns whether the fault bit."""
        evidence = dict(in_force.evidence)
        if not in_force.nodes:
            return Effect(bit=False, evidence={**evidence, "hit": "nobody"})
        if fault in ("cut", "isolate"):
            held = sum(token.dropped_or_stalled for token in in_force.token)
            return Effect(bit=held > 0, evidence={**evidence, "frames_held": held})
        if fault == "pause":
            return self._effect_of_pause(in_force)
        return Effect(bit=bool(evidence.get("bit", True)), evidence=evidence)

    def _effect_of_pause(self, in_force: InForce) -> Effect:
        """A pause bit if work had to wait: counted while it is in force, and before a paused node is killed."""
        waiting = in_force.evidence.setdefault("callbacks_that_waited", {})
        for name in in_force.nodes:
            node = self.world.nodes[name]
            if node.state == "paused" and node.incarnation == in_force.token[name]:
                held = len(node.loop.ready) + len(node.loop.expired)
                waiting[name] = max(waiting.get(name, 0), held)
        return Effect(bit=any(waiting.values()), evidence=dict(in_force.evidence))

    def flagged_partitions(self) -> frozenset[str]:
        """Returns the partitions in which a flagged election was committed."""
        return self.witness.flagged_partitions

    def true_high_watermark(self, topic: str, partition: int) -> int:
        """Returns the largest high watermark that any leader of the partition ever had."""
        return self.witness.true_high_watermarks.get((topic, partition), 0)

    def running_broker(self, name: str) -> BrokerNode | None:
        """Returns the broker process of a node that is alive, for the invariant monitor."""
        process = self.world.nodes[name].process if self.world.nodes[name].is_alive else None
        return process if isinstance(process, BrokerNode) else None

    def down_nodes(self) -> tuple[str, ...]:
        """Returns the nodes that are down and that nobody heals any more."""
        return self.population().down

    async def settle(self) -> None:
        """Heals the network, resets connections that may be stuck, and starts whatever is down."""
        self.world.network.heal_all()
        self.world.network.reset_connections()
        for name in self.down_nodes():
            self.world.nodes[name].start()

    # -- faults, one by one

    def _inject_network(
        self, fault: str, nodes: tuple[str, ...], params: Mapping[str, Any]
    ) -> InForce:
        network = self.world.network
        planes = set(params["planes"]) if params.get("planes") else None
        if fault == "isolate":
            tokens = [network.isolate(name, planes=planes) for name in nodes]
        else:
            direction = "both" if params.get("direction", "both") == "both" else "a_to_b"
            tokens = [
                network.cut(nodes[0], other, planes=planes, direction=direction)
                for other in nodes[1:]
            ]
        return InForce(nodes=nodes, token=tokens)

    def _inject_pause(self, nodes: tuple[str, ...]) -> InForce:
        hit = tuple(name for name in nodes if self.world.nodes[name].state == "running")
        for name in hit:
            self.world.nodes[name].pause()
        in_force = InForce(
            nodes=hit,
            token={name: self._incarnation(name) for name in hit},
            evidence={"paused": list(hit)},
        )
        self._pauses.append(in_force)
        return in_force

    def _inject_start(self, nodes: tuple[str, ...]) -> InForce:
        hit = tuple(name for name in nodes if self._is_down(name))
        for name in hit:
            self.world.nodes[name].start()
        incarnations = {name: self._incarnation(name) for name in hit}
        return InForce(nodes=hit, evidence={"incarnations": incarnations, "bit": bool(hit)})

    async def _inject_stop(self, nodes: tuple[str, ...], params: Mapping[str, Any]) -> InForce:
        grace_ms = int(params.get("grace_ms", STOP_GRACE_MS))
        here = asyncio.get_running_loop()
        waiting = []
        ends: dict[str, str] = {}
        for name in nodes:
            node = self.world.nodes[name]
            gone: asyncio.Future[None] = here.create_future()

            def ended(node: SimNode, reason: str, gone: "asyncio.Future[None]" = gone) -> None:
                if node.name not in ends:
                    ends[node.name] = reason
                    here.call_soon(_finish, gone)

            node.on_exit.append(ended)
            node.stop(grace_ms)
            waiting.append((node, ended, gone))
        for node, callback, gone in waiting:
            await gone
            node.on_exit.remove(callback)
        return InForce(
            nodes=nodes,
            evidence={"ended": ends, "bit": all(end == "stopped" for end in ends.values())},
        )

    def _inject_power(self, nodes: tuple[str, ...], params: Mapping[str, Any]) -> InForce:
        mode = params.get("mode", "lose_all")
        evidence: dict[str, Any] = {"mode": mode, "bit": bool(nodes)}
        keeps = {name: self._kept_bytes(name, params) for name in nodes}
        ends = {name: self._log_ends(name) for name in nodes}
        for name in nodes:
            node = self.world.nodes[name]
            report = node.power_off(mode, keep=keeps[name])
            evidence[name] = {
                "lost_bytes": report.lost_bytes,
                "unsynced_bytes_before": report.unsynced_bytes,
                "log_end_before": ends[name],
            }
        return InForce(nodes=nodes, evidence=evidence)

    def _inject_kill(self, nodes: tuple[str, ...]) -> InForce:
        incarnations = {name: self._incarnation(name) for name in nodes}
        for name in nodes:
            self.world.nodes[name].kill()
        return InForce(
            nodes=nodes, evidence={"killed_incarnations": incarnations, "bit": bool(nodes)}
        )

    def _kept_bytes(self, name: str, params: Mapping[str, Any]) -> dict[str, int] | None:
        """Translates `keep_records` into bytes per log file of the page cache (an exact cut)."""
        if "keep_records" not in params:
            return None
        wanted = params["keep_records"]
        if isinstance(wanted, Mapping) and name not in wanted:
            return None
        count = wanted[name] if isinstance(wanted, Mapping) else wanted
        disk = self.world.nodes[name].disk
        keep = {}
        for path in sorted(disk.files):
            if not path.endswith(".log") or "__cluster_metadata" in path:
                continue
            data = disk.read(path)
            end = len(data)
            for position, header in read_headers(data):
                if header.base_offset >= count:
                    end = min(position + int(params.get("torn_bytes", 0)), len(data))
                    break
            keep[path] = end
        return keep

    def _log_ends(self, name: str) -> dict[str, int]:
        broker = self.running_broker(name)
        if broker is None:
            return {}
        return {
            f"{topic}-{index}": partition.log.log_end_offset
            for (topic, index), partition in sorted(broker.replica_manager.partitions.items())
            if partition.log is not None
        }

    # -- wiring

    def _add_nodes(self) -> None:
        add = self.world.add_node
        add(HARNESS_NODE, kind="harness", address="harness:0", main=IdleProcess, observer=None)
        for name in self.clients:
            add(name, kind="client", address=f"{name}:0", main=IdleProcess, observer=None)
        for name, node_id in self.controllers.items():
            self._add_server(name, node_id, "controller", CONTROLLER_PORT)
        for name, node_id in self.brokers.items():
            self._add_server(name, node_id, "broker", BROKER_PORT)

    def _add_server(self, name: str, node_id: int, role: str, port: int) -> None:
        config = replace(self._template, node_id=node_id, role=role, address=f"{name}:{port}")
        observer = NodeObserver(name, node_id, self.witness, self._add_row, lambda: self.world.now)
        node = self.world.add_node(
            name,
            kind=role,
            address=config.address,
            main=lambda host: build_node(config, host),
            observer=observer,
        )
        node.on_exit.append(observer.node_went_down)

    def _is_down(self, name: str) -> bool:
        return not self.world.nodes[name].is_alive

    def _incarnation(self, name: str) -> int:
        return self.world.nodes[name].incarnation


def _finish(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
