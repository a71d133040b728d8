"""Faults of processes and machines in the simulated world."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from harness.contracts.cluster import Effect, InForce
from harness.simulation.node import SimNode
from harness.simulation.world import World
from nemesis.simulated.mechanism import alive, start_if_down, told, whole_batches

STOP_GRACE_MS = 20_000
OUTAGES = ("stop", "kill", "oom", "power")


class ProcessFaults:
    """Pauses, ends, starts and slows processes.

    Args:
        world: Where.
        log_ends: Returns the log ends of a node's partitions by name, for the record.
    """

    faults = ("pause", *OUTAGES, "restart", "start", "slow_cpu")

    def __init__(self, world: World, log_ends: Callable[[str], dict[str, int]]) -> None:
        self._world = world
        self._log_ends = log_ends
        self._pauses: list[InForce] = []

    async def inject(
        self, fault: str, nodes: tuple[str, ...], params: Mapping[str, Any]
    ) -> InForce:
        """Injects one of them."""
        if fault == "pause":
            return self._pause(nodes)
        if fault == "start":
            return self._start(nodes)
        living = alive(self._world, nodes)
        if fault == "slow_cpu":
            return self._slow_cpu(living, int(params["percent"]))
        self.note_pauses()
        if fault == "stop":
            return await self._stop(living, params)
        if fault == "restart":
            return await self._restart(living, params)
        if fault == "power":
            return self._power(living, params)
        return self._kill(fault, living)

    def heal(self, fault: str, in_force: InForce) -> None:
        """Lets processes go on, starts those that were ended, and gives the processor back."""
        for name in in_force.nodes:
            node = self._world.nodes[name]
            if fault == "pause":
                if node.incarnation == in_force.token[name]:
                    node.resume()
            elif fault == "slow_cpu":
                if in_force.token.pop(name, None) is not None:
                    in_force.evidence["callbacks_slowed"] = self._slowed(in_force)
                    node.slow_cpu(1.0)
            elif fault in OUTAGES:
                start_if_down(node)

    def effect(self, fault: str, in_force: InForce) -> Effect:
        """Most of them are known to have bitten when they are done."""
        if fault == "pause":
            return self._effect_of_pause(in_force)
        if fault == "slow_cpu":
            if in_force.token:
                in_force.evidence["callbacks_slowed"] = self._slowed(in_force)
            bit = any(in_force.evidence["callbacks_slowed"].values())
            return Effect(bit=bit, evidence=dict(in_force.evidence))
        return told(in_force)

    def note_pauses(self) -> None:
        """Looks at all pauses in force: what a paused process that is about to be killed held up, counts."""
        for pause in self._pauses:
            self._effect_of_pause(pause)

    def settle(self) -> None:
        """Gives the processor back to everybody, and lets paused processes go on."""
        for node in self._world.nodes.values():
            if node.is_slowed:
                node.slow_cpu(1.0)
            node.resume()

    def _effect_of_pause(self, in_force: InForce) -> Effect:
        """A pause bit if work had to wait: counted while it is in force, and before a paused node is killed."""
        waiting = in_force.evidence.setdefault("callbacks_that_waited", {})
        for name in in_force.nodes:
            node = self._world.nodes[name]
            if node.state == "paused" and node.incarnation == in_force.token[name]:
                held = len(node.loop.ready) + len(node.loop.expired)
                waiting[name] = max(waiting.get(name, 0), held)
        return Effect(bit=any(waiting.values()), evidence=dict(in_force.evidence))

    def _pause(self, nodes: tuple[str, ...]) -> InForce:
        hit = tuple(name for name in nodes if self._world.nodes[name].state == "running")
        for name in hit:
            self._world.nodes[name].pause()
        in_force = InForce(nodes=hit, token=self._incarnations(hit), evidence={"paused": list(hit)})
        self._pauses.append(in_force)
        return in_force

    def _start(self, nodes: tuple[str, ...]) -> InForce:
        hit = tuple(name for name in nodes if not self._world.nodes[name].is_alive)
        for name in hit:
            self._world.nodes[name].start()
        return InForce(
            nodes=hit, evidence={"incarnations": self._incarnations(hit), "bit": bool(hit)}
        )

    async def _stop(self, nodes: tuple[str, ...], params: Mapping[str, Any]) -> InForce:
        ends = await self._stop_all(nodes, params)
        return InForce(
            nodes=nodes,
            evidence={"ended": ends, "bit": all(end == "stopped" for end in ends.values())},
        )

    async def _restart(self, nodes: tuple[str, ...], params: Mapping[str, Any]) -> InForce:
        before = self._incarnations(nodes)
        ends = await self._stop_all(nodes, params)
        for name, end in ends.items():
            if end in ("stopped", "stop-timeout"):  # else somebody else took it down meanwhile
                start_if_down(self._world.nodes[name])
        after = self._incarnations(nodes)
        evidence = {
            "ended": ends,
            "incarnations": after,
            "bit": bool(nodes) and all(after[name] > before[name] for name in nodes),
        }
        return InForce(nodes=nodes, evidence=evidence)

    async def _stop_all(self, nodes: tuple[str, ...], params: Mapping[str, Any]) -> dict[str, str]:
        """Stops nodes side by side; returns how each ended, when the last has."""
        grace_ms = int(params.get("grace_ms", STOP_GRACE_MS))
        here = asyncio.get_running_loop()
        waiting = []
        ends: dict[str, str] = {}
        for name in nodes:
            node = self._world.nodes[name]
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
        return ends

    def _power(self, nodes: tuple[str, ...], params: Mapping[str, Any]) -> InForce:
        mode = params.get("mode", "lose_all")
        evidence: dict[str, Any] = {"mode": mode, "bit": bool(nodes)}
        keeps = {name: kept_bytes(self._world.nodes[name], params) for name in nodes}
        ends = {name: self._log_ends(name) for name in nodes}
        for name in nodes:
            report = self._world.nodes[name].power_off(mode, keep=keeps[name])
            evidence[name] = {
                "lost_bytes": report.lost_bytes,
                "unsynced_bytes_before": report.unsynced_bytes,
                "log_end_before": ends[name],
            }
        return InForce(nodes=nodes, evidence=evidence)

    def _kill(self, fault: str, nodes: tuple[str, ...]) -> InForce:
        evidence: dict[str, Any] = {"killed_incarnations": self._incarnations(nodes)}
        for name in nodes:
            node = self._world.nodes[name]
            if fault == "oom":
                node.oom_kill()
            else:
                node.kill()
        evidence["bit"] = bool(nodes)
        if fault == "oom":
            evidence["oom_kills"] = {name: 1 for name in nodes}
        return InForce(nodes=nodes, evidence=evidence)

    def _slow_cpu(self, nodes: tuple[str, ...], percent: int) -> InForce:
        token = {name: self._world.nodes[name].slowed_callbacks for name in nodes}
        for name in nodes:
            self._world.nodes[name].slow_cpu(100 / percent)
        return InForce(nodes=nodes, token=token, evidence={"percent": percent})

    def _slowed(self, in_force: InForce) -> dict[str, int]:
        known = dict(in_force.evidence.get("callbacks_slowed", {}))
        for name, before in in_force.token.items():
            known[name] = self._world.nodes[name].slowed_callbacks - before
        return known

    def _incarnations(self, nodes: tuple[str, ...]) -> dict[str, int]:
        return {name: self._world.nodes[name].incarnation for name in nodes}


def kept_bytes(node: SimNode, params: Mapping[str, Any]) -> dict[str, int] | None:
    """Translates `keep_records`, if it is given, into bytes per log file of the page cache (an exact cut)."""
    if "keep_records" not in params:
        return None
    wanted = params["keep_records"]
    if isinstance(wanted, Mapping) and node.name not in wanted:
        return None
    count = wanted[node.name] if isinstance(wanted, Mapping) else wanted
    disk = node.disk
    keep = {}
    for path in sorted(disk.files):
        if not path.endswith(".log") or "__cluster_metadata" in path:
            continue
        data = disk.peek(path)
        end = len(data)
        for position, header in whole_batches(data):
            if header.base_offset >= count:
                end = min(position + int(params.get("torn_bytes", 0)), len(data))
                break
        keep[path] = end
    return keep


def _finish(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
