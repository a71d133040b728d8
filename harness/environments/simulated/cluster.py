"""A cluster in the simulated world: the reference system, client hosts and the harness in one process.

It wires nodes to the world, and turns what controllers commit and what brokers report of themselves into rows. It
injects no faults: `nemesis.simulated` does, with the world's own means. Broker objects are inspected in one place
only, the invariant monitor; workloads and the nemesis use the `Cluster` contract.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from math import inf
from typing import Any

from harness.contracts.administration import Action, ActionOutcome
from harness.contracts.cluster import CONTROLLER_ID_FIRST, HARNESS_HOST, AddRow, Population, Topic
from harness.contracts.host import ClientHost
from harness.contracts.metadata import CommittedMetadata
from harness.contracts.system import NodeFiles, Settings
from harness.simulation.disk import SimDisk
from harness.simulation.node import IdleProcess
from harness.simulation.world import World
from harness.systems.administration import administer
from harness.systems.reference.node_files import (
    FAST_GROUPS,
    REPLICATION_FACTOR_MAX,
    transaction_log_properties,
)
from harness.systems.reference.states import ChangeWatcher, MetadataWitness, NodeObserver
from system_under_test.broker.broker import BrokerNode
from system_under_test.config import (
    LOG_DIR_NAMES,
    TIMINGS,
    GroupConfig,
    LogConfig,
    NodeConfig,
    Voter,
)
from system_under_test.config import profile_features as features_of
from system_under_test.controller.server import ControllerNode
from system_under_test.properties import configured
from system_under_test.rules import Rules
from system_under_test.server import build_node

BROKER_PORT = 9092
CONTROLLER_PORT = 9093
CLUSTER_ID = "laststand"


class SimulatedCluster:
    """A cluster in a `World`. Implements `harness.contracts.cluster.Cluster`.

    Args:
        world: The world of the nodes; it may have no others.
        add_row: Takes history rows.
        brokers, controllers, clients: How many of each.
        profile, timings, log, unclean_leader_election, disabled_rules: The configuration of the nodes.

    Attributes:
        mark_listeners: Called with node and mark whenever a node reports a mark.
    """

    def __init__(
        self,
        world: World,
        add_row: AddRow,
        *,
        brokers: int,
        controllers: int,
        clients: int,
        settings: Settings,
    ) -> None:
        self.world = world
        self._add_row = add_row
        self.metadata = CommittedMetadata()
        self.mark_listeners: list[Callable[[str, str], None]] = []
        self.features = features_of(settings.profile)
        self._log_dirs = settings.log_dirs
        self.voters = tuple(
            Voter(node_id=node_id, address=f"c{node_id}:{CONTROLLER_PORT}")
            for node_id in range(CONTROLLER_ID_FIRST, CONTROLLER_ID_FIRST + controllers)
        )
        template = NodeConfig(
            node_id=0,
            role="broker",
            address="",
            cluster_id=CLUSTER_ID,
            voters=self.voters,
            features=self.features,
            timings=TIMINGS[settings.timings],
            log=LogConfig(
                segment_bytes=settings.segment_bytes, flush_messages=settings.flush_messages
            ),
            unclean_leader_election_enable=settings.unclean_leader_election,
            group=_group_config(settings, brokers),
            rules=Rules(settings.disabled_rules),
        )
        properties = {**transaction_log_properties(brokers), **settings.properties}
        self._template = configured(template, properties)
        self.witness = MetadataWitness(self.metadata, add_row, lambda: world.now)
        self.brokers = {f"b{index}": index for index in range(1, brokers + 1)}
        self.controllers = {f"c{voter.node_id}": voter.node_id for voter in self.voters}
        self.clients = tuple(f"client-{index}" for index in range(clients))
        self.harness_host = HARNESS_HOST
        self.bootstrap = tuple(f"{name}:{BROKER_PORT}" for name in self.brokers)
        self._add_nodes()

    def now_ns(self) -> int:
        """Returns the world's true time."""
        return self.world.now

    def population(self) -> Population:
        """Returns all hosts, and which nodes are down."""
        names = (*self.brokers, *self.controllers)
        return Population(
            brokers=tuple(self.brokers.items()),
            controllers=tuple(self.controllers.items()),
            clients=self.clients,
            down=tuple(name for name in names if self._is_down(name)),
        )

    def start(self) -> None:
        """Starts every node: harness and clients, controllers, brokers."""
        for name in (HARNESS_HOST, *self.clients, *self.controllers, *self.brokers):
            self.world.nodes[name].start()

    def spawn(self, node: str, coroutine: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Runs a coroutine on the loop of a node."""
        return self.world.spawn(node, coroutine)

    def client_host(self, name: str) -> ClientHost:
        """Returns a client host, or that of the harness."""
        return self.world.nodes[name].host

    async def call(self, node: str, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Runs a coroutine on another node's loop and waits for it on this one."""
        here = asyncio.get_running_loop()
        done: asyncio.Future[None] = here.create_future()
        task = self.spawn(node, coroutine)
        task.add_done_callback(lambda _: here.call_soon(_finish, done))
        await done
        return task.result()

    def flagged_partitions(self) -> frozenset[str]:
        """Returns the partitions in which a flagged election was committed."""
        return self.witness.flagged_partitions

    def true_high_watermark(self, topic: str, partition: int) -> int:
        """Returns the largest high watermark that any leader of the partition ever had."""
        return self.witness.true_high_watermarks.get((topic, partition), 0)

    def committed_metadata_end(self) -> int:
        """Returns the end of the committed metadata that controllers have reported."""
        return self.witness.end_offset

    def watch_changes(self, watcher: ChangeWatcher) -> None:
        """Calls a watcher with every change that nodes report from now on."""
        self.witness.watcher = watcher

    def running_broker(self, name: str) -> BrokerNode | None:
        """Returns the broker process of a node that is alive, for the invariant monitor."""
        node = self.world.nodes[name]
        process = node.process if node.is_alive else None
        return process if isinstance(process, BrokerNode) else None

    def down_nodes(self) -> tuple[str, ...]:
        """Returns the nodes that are down."""
        return self.population().down

    def differing_controllers(self) -> dict[str, Any]:
        """Returns the partitions in which a controller's image differs from the log up to there, by controller.

        Only snapshots can cause that, so there is nothing to compare before a node loaded one.
        """
        differing: dict[str, Any] = {}
        if not self.witness.snapshot_loads:
            return differing
        known = self.witness.image
        for name in self.controllers:
            node = self.world.nodes[name]
            process = node.process if node.is_alive else None
            if not isinstance(process, ControllerNode):
                continue
            image = process.controller.image
            if image.last_offset == known.last_offset and image.partitions != known.partitions:
                differing[name] = [
                    (image.partitions.get(key), registration)
                    for key, registration in known.partitions.items()
                    if image.partitions.get(key) != registration
                ]
        return differing

    def hold_metadata(self, name: str) -> None:
        """Lets a running broker collect committed metadata without applying it (META-2)."""
        broker = self.running_broker(name)
        if broker is not None:
            with self.world.inside(self.world.nodes[name].loop):
                broker.publisher.hold()

    def release_metadata(self, name: str) -> None:
        """Lets a running broker apply everything since `hold_metadata` as one change (META-3)."""
        broker = self.running_broker(name)
        if broker is not None:
            with self.world.inside(self.world.nodes[name].loop):
                broker.publisher.release()

    async def administer(self, action: Action) -> ActionOutcome:
        """Requests an administrative action; called on the loop of the harness."""
        brokers = {node_id: f"{name}:{BROKER_PORT}" for name, node_id in self.brokers.items()}
        return await administer(self.client_host(HARNESS_HOST), brokers, action)

    def topic_created(self, topic: Topic) -> None:
        """Ignores the topic: the controllers report it."""

    async def settle(self) -> None:
        """Starts every node that is down."""
        for name in self.down_nodes():
            self.world.nodes[name].start()

    def log_ends(self, name: str) -> dict[str, int]:
        """Returns the log ends of a node's partitions by name; empty if it is no running broker."""
        broker = self.running_broker(name)
        if broker is None:
            return {}
        return {
            f"{topic}-{index}": partition.log.log_end_offset
            for (topic, index), partition in sorted(broker.replica_manager.partitions.items())
            if partition.log is not None
        }

    def node_files(self, name: str) -> NodeFiles:
        """Returns access to a node's files as its processes see them; no fault applies."""
        return _CachedFiles(self.world.nodes[name].disk)

    def waits_for_disk_until_ns(self, name: str) -> float:
        """Returns until when a node is in a blocking call to its disk; until then nobody sees what it does."""
        loop = self.world.nodes[name].loop
        return inf if loop.frozen else loop.busy_until_ns

    # -- wiring

    def _add_nodes(self) -> None:
        add = self.world.add_node
        add(HARNESS_HOST, kind="harness", address="harness:0", main=IdleProcess, observer=None)
        for name in self.clients:
            add(name, kind="client", address=f"{name}:0", main=IdleProcess, observer=None)
        for name, node_id in self.controllers.items():
            self._add_server(name, node_id, "controller", CONTROLLER_PORT)
        for name, node_id in self.brokers.items():
            self._add_server(name, node_id, "broker", BROKER_PORT)

    def _add_server(self, name: str, node_id: int, role: str, port: int) -> None:
        config = replace(
            self._template,
            node_id=node_id,
            role=role,
            address=f"{name}:{port}",
            log_dirs=LOG_DIR_NAMES[: self._log_dirs if role == "broker" else 1],
        )
        observer = NodeObserver(
            name, node_id, self.witness, self._add_row, lambda: self.world.now, self._marked
        )
        node = self.world.add_node(
            name,
            kind=role,
            address=config.address,
            main=lambda host: build_node(config, host),
            observer=observer,
        )
        node.on_exit.append(observer.node_went_down)

    def _marked(self, node: str, mark: str) -> None:
        for listener in self.mark_listeners:
            listener(node, mark)

    def _is_down(self, name: str) -> bool:
        return not self.world.nodes[name].is_alive


def _group_config(settings: Settings, brokers: int) -> GroupConfig:
    """Returns the group settings that real nodes get in their files (`harness.systems.reference.node_files`)."""
    usual = GroupConfig(offsets_topic_replication_factor=min(brokers, REPLICATION_FACTOR_MAX))
    return replace(usual, **FAST_GROUPS) if settings.timings == "fast" else usual


class _CachedFiles:
    """Implements `NodeFiles` over a simulated disk."""

    def __init__(self, disk: SimDisk) -> None:
        self._disk = disk

    def list(self, directory: str) -> list[str]:
        """Returns the names of the files in a directory."""
        prefix = f"{directory}/"
        names = (path[len(prefix) :] for path in self._disk.files if path.startswith(prefix))
        return sorted(name for name in names if "/" not in name)

    def read(self, path: str, length: int, offset: int = 0) -> bytes:
        """Returns bytes of a file."""
        return self._disk.peek(path)[offset : offset + length]


def _finish(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
