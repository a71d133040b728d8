"""Starts and ends of local processes that overlap: a node that was killed did not end by itself."""

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harness.contracts.system import Settings
from harness.environments.local.cluster import ProcessCluster
from harness.environments.request import ClusterRequest
from harness.systems.registry import REFERENCE, SYSTEMS

LIMIT_S = 30.0


class FakeLocal:
    """One node, b1. A start returns after its process is there, once `may_return` is set."""

    def __init__(self) -> None:
        self.node = SimpleNamespace(
            pid=0, is_alive=False, exit_code=None, output=lambda: "final line", directory=Path()
        )
        self.nodes = {"b1": self.node}
        self.system = SYSTEMS.get(REFERENCE)
        self.was_started = threading.Event()
        self.may_return = threading.Event()

    def placed_nodes(self) -> list[Any]:
        return []

    def start_node(self, name: str) -> None:
        self.node.pid, self.node.is_alive = self.node.pid + 1, True
        self.was_started.set()
        assert self.may_return.wait(LIMIT_S)

    def kill(self, name: str) -> int:
        self.node.is_alive, self.node.exit_code = False, -9
        return -9


def cluster_of(local: FakeLocal, violations: list[str]) -> ProcessCluster:
    request = ClusterRequest(
        system=local.system,
        settings=Settings(profile="kafka-4.1", timings="fast"),
        brokers=1,
        controllers=0,
        clients=1,
        disk="ext4",
        inventory=Path(),
        logs_to=Path(),
        add_row=lambda table, row: None,
        on_violation=lambda violation: violations.append(violation.sentence),
        seed=7,
    )
    return ProcessCluster(local, request)  # type: ignore[arg-type]


def test_a_node_that_is_killed_while_it_starts_did_not_end_by_itself() -> None:
    violations: list[str] = []
    local = FakeLocal()

    async def story() -> None:
        cluster = cluster_of(local, violations)
        start = asyncio.create_task(cluster.start_node("b1"))
        await asyncio.to_thread(local.was_started.wait, LIMIT_S)
        kill = asyncio.create_task(cluster.end_process("b1", "kill", LIMIT_S))
        await asyncio.sleep(0)
        local.may_return.set()
        await start
        assert await kill == -9
        cluster.watch_processes()
        assert not cluster.runs("b1")
        assert [is_up for _, _, is_up in cluster._changes] == [True, False], "up, and then down"
        await cluster.start_node("b1")
        assert cluster.runs("b1")
        local.node.is_alive = False
        cluster.watch_processes()

    asyncio.run(story())
    assert violations == ["b1 ended by itself (exit code -9): final line"], "the second end only"


def test_a_node_that_two_faults_start_at_once_is_started_once() -> None:
    local = FakeLocal()
    local.may_return.set()

    async def story() -> None:
        cluster = cluster_of(local, [])
        await asyncio.gather(cluster.start_node("b1"), cluster.start_node("b1"))

    asyncio.run(story())
    assert local.node.pid == 1
