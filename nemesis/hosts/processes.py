"""Faults of processes, on hosts, and power cuts."""

import asyncio
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.environments.real import STOP_GRACE_MS
from nemesis.adapter import InForce
from nemesis.hosts.mechanism import FaultKind, Handler

if TYPE_CHECKING:
    from harness.environments.hosts.cluster import HostCluster


class ProcessFaults(FaultKind):
    """Pauses, stops, kills, starts, want of memory and processor, power."""

    def __init__(self, cluster: "HostCluster", in_force: dict[str, InForce]) -> None:
        super().__init__(cluster, in_force)
        # Which process of a node is paused, and by which fault.
        self._paused: dict[str, tuple[int, str]] = {}

    def forget(self, name: str, token: str) -> None:
        """Forgets a pause that did not come about."""
        if self._paused.get(name, (0, ""))[1] == token:
            del self._paused[name]

    def handlers(self) -> dict[str, Handler]:
        """Returns how each fault of this kind is done."""
        return {
            "pause": Handler(inject=self._pause, heal=self._heal_pause, effect=self._effect_pause),
            "stop": Handler(inject=self._stop),
            "kill": Handler(inject=self._kill),
            "restart": Handler(inject=self._restart),
            "start": Handler(inject=self._start),
            "oom": Handler(inject=self._oom),
            "slow_cpu": Handler(
                inject=self._slow_cpu, heal=self._heal_slow_cpu, effect=self._effect_slow_cpu
            ),
            "power": Handler(inject=self._power),
        }

    async def _pause(
        self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str
    ) -> InForce:
        # Before anything is awaited: two pauses may come at the same instant, and only one may resume the node.
        running = tuple(
            name
            for name in self._alive(nodes)
            if self._paused.get(name, (0, ""))[0] != self._node(name).pid
        )
        for name in running:
            self._paused[name] = (self._node(name).pid, token)
        answers = await self._each(running, "pause")
        hit = tuple(name for name in running if answers[name]["stopped"])
        for name in set(running) - set(hit):
            self.forget(name, token)
        return InForce(
            nodes=hit,
            token={"pids": {name: answers[name]["pid"] for name in hit}},
            evidence={
                "paused": list(hit),
                "cpu_ticks": {name: answers[name]["cpu_ticks"] for name in hit},
            },
        )

    async def _heal_pause(self, in_force: InForce, token: str) -> None:
        for name, pid in in_force.token["pids"].items():
            self.forget(name, token)
            await self._ask(name, "resume", pid=pid)

    async def _effect_pause(self, in_force: InForce, token: str) -> None:
        for name in in_force.nodes:
            status = await self._ask(name, "status")
            # "t" is how a process stands that has a tracer.
            if status["state"] in ("T", "t") and status["pid"] == in_force.token["pids"][name]:
                # Stopped by the signal, and not one clock tick of work since then.
                stood = status["cpu_ticks"] == in_force.evidence["cpu_ticks"][name]
                in_force.evidence.setdefault("stood_still", {})[name] = stood
        in_force.evidence["bit"] = any(in_force.evidence.get("stood_still", {}).values())

    async def _stop(self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str) -> InForce:
        limit_s = int(params.get("grace_ms", STOP_GRACE_MS)) / 1000
        alive = self._alive(nodes)
        answers = await self._end(alive, "stop", limit_s)
        codes = {name: await self._cluster.placement.exit_code(self._node(name)) for name in alive}
        return InForce(
            nodes=alive,
            evidence={
                "ended": answers,
                "exit_codes": codes,
                "bit": bool(alive) and all(answer["in_time"] for answer in answers.values()),
            },
        )

    async def _kill(self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str) -> InForce:
        alive = self._alive(nodes)
        answers = await self._end(alive, "kill")
        return InForce(nodes=alive, evidence={"killed": answers, "bit": bool(alive)})

    async def _restart(
        self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str
    ) -> InForce:
        stopped = await self._stop(nodes, params, token)
        await asyncio.gather(*(self._cluster.start_node(name) for name in stopped.nodes))
        starts = {name: self._node(name).starts for name in stopped.nodes}
        stopped.evidence["starts"] = starts
        return stopped

    async def _start(
        self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str
    ) -> InForce:
        down = tuple(name for name in nodes if not self._cluster.is_alive(name))
        await asyncio.gather(*(self._cluster.start_node(name) for name in down))
        pids = {name: self._node(name).pid for name in down}
        return InForce(nodes=down, evidence={"pids": pids, "bit": bool(down)})

    async def _oom(self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str) -> InForce:
        alive = self._alive(nodes)
        await self._cluster.look_before_end(alive)
        for name in alive:
            self._cluster.expect_end(name)
        answers = await self._each(alive, "oom")
        for name in alive:
            self._cluster.process_is_gone(name)
        return InForce(nodes=alive, evidence={"oom": answers, "bit": bool(alive)})

    async def _slow_cpu(
        self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str
    ) -> InForce:
        free = [
            name
            for name in self._alive(nodes)
            if not any("slow_cpu" in other.token for other in self._of(name))
        ]
        answers = await self._each(free, "slow_cpu", percent=params["percent"])
        return InForce(nodes=tuple(free), token={"slow_cpu": True}, evidence={"mechanism": answers})

    async def _heal_slow_cpu(self, in_force: InForce, token: str) -> None:
        self._throttled(in_force, await self._each(in_force.nodes, "cpu_restore"))
        in_force.token["is_removed"] = True

    async def _effect_slow_cpu(self, in_force: InForce, token: str) -> None:
        if not in_force.token.get("is_removed"):
            self._throttled(in_force, await self._each(in_force.nodes, "cpu_evidence"))

    def _throttled(self, in_force: InForce, answers: Mapping[str, Any]) -> None:
        counts = {name: int(answer["throttled"]) for name, answer in answers.items()}
        in_force.evidence["throttled"] = counts
        in_force.evidence["bit"] = any(counts.values())

    # -- power

    async def _power(
        self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str
    ) -> InForce:
        alive = self._alive(nodes)
        await self._cluster.look_before_end(alive)
        for name in alive:
            self._cluster.expect_end(name)
        plans = {name: self._plan(name, params, token) for name in alive}
        answers = await self._at(
            list(alive),
            "power_cut",
            lambda names: {
                "nodes": names,
                "token": token,
                "plans": {name: plans[name] for name in names},
            },
            whole=True,
        )
        evidence: dict[str, Any] = {"mode": params.get("mode", "lose_all"), "bit": bool(alive)}
        for answer in answers:
            evidence.update(answer["nodes"])
            evidence.setdefault("timings_ms", []).append(answer["timings_ms"])
        for name in alive:
            self._node(name).silent = token
            self._cluster.process_is_gone(name)
        return InForce(nodes=alive, evidence=evidence)

    def _plan(self, name: str, params: Mapping[str, Any], token: str) -> dict[str, Any]:
        keep = params.get("keep_records")
        if isinstance(keep, Mapping):
            keep = keep.get(name)
        return {
            "mode": params.get("mode", "lose_all"),
            "seed": zlib.crc32(f"{token}/{name}".encode()),
            "keep_records": keep,
            "torn_bytes": int(params.get("torn_bytes", 0)),
        }
