"""Faults of processes and machines in the simulated world."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.simulation.node import SimNode
from harness.simulation.world import World
from nemesis.fault import Fault
from nemesis.mechanism import Effect, Injection, Moment
from nemesis.simulated.mechanism import (
    Inject,
    Outage,
    alive,
    incarnations,
    start_if_down,
    whole_batches,
)


@dataclass(slots=True, kw_only=True)
class Pause:
    """Paused processes. Mutable: the evidence is counted while the pause is in force.

    Attributes:
        world: The world in which the nodes live.
        incarnations: The paused incarnation of each node. A later incarnation is not paused.
        callbacks_that_waited: Per node, the largest number of callbacks that were seen waiting.
    """

    world: World
    incarnations: Mapping[str, int]
    callbacks_that_waited: dict[str, int] = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that were paused."""
        return tuple(self.incarnations)

    def count(self) -> None:
        """Counts the callbacks that wait now; called while the pause is in force, and before a node is killed."""
        for name, incarnation in self.incarnations.items():
            node = self.world.nodes[name]
            if node.state == "paused" and node.incarnation == incarnation:
                held = len(node.loop.ready) + len(node.loop.expired)
                seen = self.callbacks_that_waited.get(name, 0)
                self.callbacks_that_waited[name] = max(seen, held)

    async def heal(self) -> None:
        """Resumes the processes that were paused."""
        for name, incarnation in self.incarnations.items():
            node = self.world.nodes[name]
            if node.incarnation == incarnation:
                node.resume()

    async def effect(self) -> Effect:
        """Returns how many callbacks had to wait; one is enough."""
        self.count()
        return Effect(
            took_effect=any(self.callbacks_that_waited.values()),
            evidence={
                "paused": list(self.nodes),
                "callbacks_that_waited": dict(self.callbacks_that_waited),
            },
        )


@dataclass(slots=True, kw_only=True)
class SlowCpu:
    """Throttled processes. Mutable: the count of each node ends when it is healed.

    Attributes:
        world: The world in which the nodes live.
        nodes: The throttled nodes.
        percent: The share of a core that is left to each.
        counts_before: Slowed callbacks of each node that is still throttled, at the injection.
        callbacks_slowed: Per node, how many callbacks this fault slowed.
    """

    world: World
    nodes: tuple[str, ...]
    percent: int
    counts_before: dict[str, int]
    callbacks_slowed: dict[str, int] = field(default_factory=dict)

    async def heal(self) -> None:
        """Restores the full core."""
        self._count()
        for name in list(self.counts_before):
            del self.counts_before[name]
            self.world.nodes[name].slow_cpu(1.0)

    async def effect(self) -> Effect:
        """Returns how many callbacks were slowed; one is enough."""
        self._count()
        return Effect(
            took_effect=any(self.callbacks_slowed.values()),
            evidence={"percent": self.percent, "callbacks_slowed": dict(self.callbacks_slowed)},
        )

    def _count(self) -> None:
        for name, before in self.counts_before.items():
            self.callbacks_slowed[name] = self.world.nodes[name].slowed_callbacks - before


class ProcessFaults:
    """Pauses, ends, starts and slows processes.

    Args:
        world: The world in which the nodes live.
        log_ends: Returns the log ends of a node's partitions by name, as evidence of a power cut.
    """

    def __init__(self, world: World, log_ends: Callable[[str], dict[str, int]]) -> None:
        self._world = world
        self._log_ends = log_ends
        self._pauses: list[Pause] = []

    def injections(self) -> Mapping[str, Inject]:
        """Returns how each of its faults is injected."""
        return {
            "pause": self._pause,
            "start": self._start,
            "slow_cpu": self._slow_cpu,
            "stop": self._stop,
            "restart": self._restart,
            "power": self._power,
            "kill": self._kill,
            "oom": self._oom,
        }

    def settle(self) -> None:
        """Restores the full core of every node, and resumes paused processes."""
        for node in self._world.nodes.values():
            if node.is_slowed:
                node.slow_cpu(1.0)
            node.resume()

    def count_pauses(self) -> None:
        """Counts what waits for all pauses in force, because one of the paused nodes may be about to end."""
        for pause in self._pauses:
            pause.count()

    async def _pause(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        running = [name for name in nodes if self._world.nodes[name].state == "running"]
        for name in running:
            self._world.nodes[name].pause()
        pause = Pause(world=self._world, incarnations=incarnations(self._world, running))
        self._pauses.append(pause)
        return pause

    async def _slow_cpu(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        living = alive(self._world, nodes)
        percent = fault.value("percent")
        before = {name: self._world.nodes[name].slowed_callbacks for name in living}
        for name in living:
            self._world.nodes[name].slow_cpu(100 / percent)
        return SlowCpu(world=self._world, nodes=living, percent=percent, counts_before=before)

    async def _start(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        down = tuple(name for name in nodes if not self._world.nodes[name].is_alive)
        for name in down:
            self._world.nodes[name].start()
        facts = {"incarnations": incarnations(self._world, down)}
        return Moment(nodes=down, facts=facts, took_effect=bool(down))

    async def _stop(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        living = self._about_to_end(nodes)
        ends = await self._stop_all(living, fault)
        stopped = all(end == "stopped" for end in ends.values())
        return self._outage(living, {"ended": ends}, stopped)

    async def _restart(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        living = self._about_to_end(nodes)
        before = incarnations(self._world, living)
        ends = await self._stop_all(living, fault)
        for name, end in ends.items():
            if end in ("stopped", "stop-timeout"):  # otherwise another fault took it down meanwhile
                start_if_down(self._world.nodes[name])
        after = incarnations(self._world, living)
        return Moment(
            nodes=living,
            facts={"ended": ends, "incarnations": after},
            took_effect=bool(living) and all(after[name] > before[name] for name in living),
        )

    async def _power(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        living = self._about_to_end(nodes)
        powered = [name for name in nodes if self._world.nodes[name].host_is_up]
        mode = fault.value("mode")
        facts: dict[str, Any] = {"mode": mode}
        keeps = {name: kept_bytes(self._world.nodes[name], fault.params) for name in powered}
        ends = {name: self._log_ends(name) for name in powered}
        hit = []
        for name in powered:
            report = self._world.nodes[name].power_off(mode, keep=keeps[name])
            # A node that was down, and lost nothing, is as it was.
            if name in living or report.lost_bytes:
                hit.append(name)
                facts[name] = {
                    "lost_bytes": report.lost_bytes,
                    "unsynced_bytes_before": report.unsynced_bytes,
                    "log_end_before": ends[name],
                }
        return Outage(
            world=self._world,
            nodes=tuple(hit),
            taken_down=living,
            facts=facts,
            took_effect=bool(hit),
        )

    async def _kill(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        living = self._about_to_end(nodes)
        facts = {"killed_incarnations": incarnations(self._world, living)}
        for name in living:
            self._world.nodes[name].kill()
        return self._outage(living, facts, bool(living))

    async def _oom(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        living = self._about_to_end(nodes)
        facts = {
            "killed_incarnations": incarnations(self._world, living),
            "oom_kills": dict.fromkeys(living, 1),
        }
        for name in living:
            self._world.nodes[name].oom_kill()
        return self._outage(living, facts, bool(living))

    def _about_to_end(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the nodes that have a process to end."""
        living = alive(self._world, nodes)
        self.count_pauses()
        return living

    def _outage(
        self, nodes: tuple[str, ...], facts: Mapping[str, Any], took_effect: bool
    ) -> Outage:
        return Outage(
            world=self._world, nodes=nodes, taken_down=nodes, facts=facts, took_effect=took_effect
        )

    async def _stop_all(self, nodes: tuple[str, ...], fault: Fault) -> dict[str, str]:
        """Stops nodes at the same time; returns how each ended, after the last has ended."""
        grace_ms = fault.value("grace_ms")
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


def kept_bytes(node: SimNode, params: Mapping[str, Any]) -> dict[str, int] | None:
    """Translates the parameter `keep_records` of a power cut into bytes per log file of the page cache.

    Returns:
        Path to length, an exact cut; None if the parameter does not name this node.
    """
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
                end = min(position + params.get("torn_bytes", 0), len(data))
                break
        keep[path] = end
    return keep


def _finish(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
