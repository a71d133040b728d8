"""A cluster of real processes on this machine as a run needs it: faults, evidence, what nodes say of themselves.

Faults are what a signal can do: kill (SIGKILL), stop (SIGTERM), pause (SIGSTOP), start. A killed process loses
nothing that it wrote, since the page cache is the machine's; whoever wants to lose data needs a world that can
cut power.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from harness.contracts.violation import Violation
from harness.environments.local.standing import LocalCluster, LocalNode
from harness.environments.observation.event_tail import EventTail, LocalFiles
from harness.environments.real import HARNESS_HOST, STOP_GRACE_MS, AddRow, RealCluster
from nemesis.adapter import Effect, InForce
from nemesis.agent.processes.procfs import cpu_ticks, process_state
from system_under_test.real.host import ClientHost


class ProcessCluster(RealCluster):
    """Implements `harness.contracts.cluster.Deployment` over a `LocalCluster` that was created with event logs.

    Args:
        local: The processes; not started yet.
        add_row: Takes history rows.
        clients: How many client hosts.
        on_violation: Called with everything that no node may do: end by itself, contradict another.
    """

    supported_faults = frozenset({"pause", "stop", "kill", "start", "heal"})

    def __init__(
        self,
        local: LocalCluster,
        add_row: AddRow,
        *,
        clients: int,
        on_violation: Callable[[Violation], None],
    ) -> None:
        super().__init__(
            ((name, node.role, node.node_id) for name, node in local.nodes.items()),
            add_row,
            clients=clients,
            on_violation=on_violation,
        )
        self.local = local
        self.bootstrap = tuple(local.bootstrap.split(","))
        self._hosts = {name: ClientHost(name) for name in (*self.clients, HARNESS_HOST)}
        self._taken_down: dict[str, None] = {}

    # -- life

    async def start(self) -> None:
        """Starts all processes, and to follow what they say."""
        await asyncio.to_thread(self.local.start)
        paths = {name: node.directory / "events.jsonl" for name, node in self.local.nodes.items()}
        self.follow(EventTail(LocalFiles(paths)))

    async def end(self) -> None:
        """Stops to follow, after a last look, and ends all processes."""
        await self.stop_following()
        await asyncio.to_thread(self.local.down, keep=True)

    def describe(self) -> dict[str, Any]:
        """Has nothing to say: signals are the same everywhere."""
        return {}

    def is_alive(self, name: str) -> bool:
        """Whether a node's process is there, running or not."""
        return self.local.nodes[name].is_alive

    def watch_processes(self) -> None:
        """Looks whether a process has ended by itself."""
        for name, node in self.local.nodes.items():
            if name not in self._taken_down and node.pid and not node.is_alive:
                self._taken_down[name] = None
                last = node.log_tail().splitlines()
                self.died(name, f"exit code {node.exit_code}", last[-1] if last else "no word")

    async def settle(self) -> None:
        """Thaws and starts everything."""
        for name in self.local.nodes:
            await asyncio.to_thread(self.local.resume, name)
            await self._start(name)

    # -- faults

    async def inject(
        self, fault: str, nodes: tuple[str, ...], params: Mapping[str, Any]
    ) -> InForce:
        """Injects a fault; returns when it is in force."""
        if fault == "start":
            down = [name for name in nodes if not self.local.nodes[name].is_alive]
            for name in down:
                await self._start(name)
            return InForce(
                nodes=tuple(down),
                evidence={"pids": {name: self._node(name).pid for name in down}, "bit": bool(down)},
            )
        alive = tuple(name for name in nodes if self.local.nodes[name].is_alive)
        if fault == "pause":
            return self._pause(alive)
        pids = {name: self._node(name).pid for name in alive}
        for name in alive:
            self._taken_down[name] = None
        grace_s = int(params.get("grace_ms", STOP_GRACE_MS)) / 1000
        ends = await asyncio.gather(
            *(
                asyncio.to_thread(self.local.kill, name)
                if fault == "kill"
                else asyncio.to_thread(self.local.stop, name, grace_s)
                for name in alive
            )
        )
        wanted = -9 if fault == "kill" else 0
        self.went_down(alive)
        return InForce(
            nodes=alive,
            evidence={
                "pids": pids,
                "exit_codes": dict(zip(alive, ends, strict=True)),
                "bit": bool(alive) and all(code == wanted for code in ends),
            },
        )

    async def heal(self, fault: str, in_force: InForce) -> None:
        """Removes what this injection added; starts the nodes that it took down."""
        for name in in_force.nodes:
            if fault == "pause":
                if self._node(name).pid == in_force.token[name]:
                    self.local.resume(name)
            elif fault in ("stop", "kill"):
                await self._start(name)

    async def effect(self, fault: str, in_force: InForce) -> Effect:
        """Returns whether the fault bit."""
        evidence = dict(in_force.evidence)
        if not in_force.nodes:
            return Effect(bit=False, evidence={**evidence, "hit": "nobody"})
        if fault == "pause":
            for name, pid in in_force.token.items():
                if process_state(pid) == "T":
                    # Stopped by the signal, and not one clock tick of work since then.
                    stood_still = cpu_ticks(pid) == evidence["cpu_ticks"][name]
                    in_force.evidence.setdefault("stood_still", {})[name] = stood_still
            evidence = dict(in_force.evidence)
            return Effect(
                bit=any(evidence.get("stood_still", {}).values()),
                evidence=evidence,
            )
        return Effect(bit=bool(evidence.get("bit", True)), evidence=evidence)

    def _pause(self, nodes: tuple[str, ...]) -> InForce:
        nodes = tuple(name for name in nodes if not self._node(name).is_paused)
        for name in nodes:
            self.local.pause(name)
        pids = {name: self._node(name).pid for name in nodes}
        # The signal is delivered when the process is next scheduled, at once on an idle processor.
        deadline_s = time.monotonic() + 1.0
        while time.monotonic() < deadline_s and any(
            process_state(pid) not in ("T", "") for pid in pids.values()
        ):
            time.sleep(0.001)
        return InForce(
            nodes=nodes,
            token=pids,
            evidence={
                "paused": list(nodes),
                "cpu_ticks": {name: cpu_ticks(pid) for name, pid in pids.items()},
            },
        )

    async def _start(self, name: str) -> None:
        await asyncio.to_thread(self.local.start_node, name)
        self._taken_down.pop(name, None)

    def _node(self, name: str) -> LocalNode:
        return self.local.nodes[name]
