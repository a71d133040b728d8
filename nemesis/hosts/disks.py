"""Faults of disks, on hosts: images on loop devices, and tracers."""

import asyncio
import errno
import zlib
from collections.abc import Mapping
from typing import Any

from nemesis.adapter import InForce
from nemesis.hosts.mechanism import FaultKind, Handler, is_kept_down

FREEZE_WATCHDOG_S = 120.0
STUCK_BIT_MS = 50


class DiskFaults(FaultKind):
    """Disks that are new, full, broken, slow, stuck, read-only, or not what they were."""

    def handlers(self) -> dict[str, Handler]:
        """Returns how each fault of this kind is done."""
        return {
            "wipe": Handler(inject=self._wipe),
            "bit_flip": Handler(inject=self._bit_flip),
            "disk_full": Handler(
                inject=self._disk_full, heal=self._heal_disk_full, effect=self._effect_disk_full
            ),
            "io_error": Handler(inject=self._io_error, heal=self._heal_io, effect=self._effect_io),
            "slow_disk": Handler(
                inject=self._slow_disk, heal=self._heal_io, effect=self._effect_io
            ),
            "stuck_disk": Handler(inject=self._stuck_disk, heal=self._heal_stuck_disk),
            "read_only": Handler(inject=self._read_only, heal=self._heal_read_only),
        }

    async def _wipe(self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str) -> InForce:
        alive = self._alive(nodes)
        await self._end(alive, "kill")
        answers = await self._each(alive, "wipe")
        gone = [int(answer["bytes_before"]) > 0 for answer in answers.values()]
        return InForce(nodes=alive, evidence={"wiped": answers, "bit": any(gone)})

    async def _bit_flip(
        self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str
    ) -> InForce:
        alive = self._alive(nodes)
        await self._end(alive, "kill")
        answers = {
            name: await self._ask(name, "flip_bit", seed=zlib.crc32(f"{token}/{name}".encode()))
            for name in alive
        }
        flipped = [answer.get("bit") is not None for answer in answers.values()]
        return InForce(nodes=alive, evidence={"flipped": answers, "bit": any(flipped)})

    async def _disk_full(
        self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str
    ) -> InForce:
        # A disk that is stuck cannot be filled.
        writable = [name for name in nodes if "stuck_disk" not in self._node(name).excuses.values()]
        free = self._excused_by(writable, "disk_full", token)
        answers = await self._each(free, "fill", free_bytes=int(params.get("free_bytes", 0)))
        full = any(answer["probe"]["errno"] == errno.ENOSPC for answer in answers.values())
        return InForce(nodes=free, evidence={"filled": answers, "bit": full})

    async def _heal_disk_full(self, in_force: InForce, token: str) -> None:
        await self._each(in_force.nodes, "unfill")
        in_force.token["is_removed"] = True

    async def _effect_disk_full(self, in_force: InForce, token: str) -> None:
        if in_force.token.get("is_removed"):
            return
        probes = await self._each(in_force.nodes, "probe_write")
        in_force.evidence["probe"] = {name: probe["error"] for name, probe in probes.items()}
        full = any(probe["errno"] == errno.ENOSPC for probe in probes.values())
        in_force.evidence["bit"] = in_force.evidence["bit"] or full

    async def _io_error(
        self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str
    ) -> InForce:
        free = self._excused_by(self._alive(nodes), "io_error", token)
        if params.get("op", "fsync") == "all":
            await self._each(free, "disk_dies")
            return InForce(nodes=free, token={"op": "all"})
        return await self._trace(free, {"op": "fsync"}, "fsync-error", params)

    async def _slow_disk(
        self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str
    ) -> InForce:
        return await self._trace(self._alive(nodes), {"op": "slow"}, "fsync-delay", params)

    async def _trace(
        self, nodes: tuple[str, ...], token: dict[str, Any], inject: str, params: Mapping[str, Any]
    ) -> InForce:
        free = tuple(
            name
            for name in nodes
            if not any(other.token.get("is_tracing") for other in self._of(name))
        )
        await self._each(
            free,
            "trace",
            inject=inject,
            every=int(params.get("every", 1)),
            delay_ms=params.get("ms", 0),
        )
        return InForce(nodes=free, token={**token, "is_tracing": True})

    async def _heal_io(self, in_force: InForce, token: str) -> None:
        if in_force.token["op"] != "all":
            self._traced(in_force, await self._each(in_force.nodes, "trace_end"))
            in_force.token["is_removed"] = True
            return
        in_force.token["is_removed"] = True
        for name in in_force.nodes:
            if (await self._ask(name, "probe_write"))["errno"] != errno.EIO:
                continue  # a power cut has mounted it anew
            await self._cluster.end_process(name, "kill")
            await self._ask(name, "disk_revives")
            if not is_kept_down(name, self._in_force):
                await self._cluster.start_node(name)

    async def _effect_io(self, in_force: InForce, token: str) -> None:
        if in_force.token.get("is_removed"):
            return
        if in_force.token["op"] != "all":
            self._traced(in_force, await self._each(in_force.nodes, "trace_evidence"))
            return
        probes = await self._each(in_force.nodes, "probe_write")
        if not in_force.evidence.get("bit"):
            in_force.evidence["probe"] = {name: probe["error"] for name, probe in probes.items()}
        broken = any(probe["errno"] == errno.EIO for probe in probes.values())
        self._has_bitten(in_force, broken)

    def _has_bitten(self, in_force: InForce, is_seen: bool) -> None:
        """What was seen once stays seen: a power cut ends a tracer, and brings a dead disk back."""
        ended = "ended_by_itself" in in_force.evidence
        in_force.evidence["bit"] = is_seen or ended or bool(in_force.evidence.get("bit"))

    def _traced(self, in_force: InForce, answers: Mapping[str, Any]) -> None:
        before = in_force.evidence.get("calls_hit", {})
        calls = {
            name: max(int(answer["calls"]), before.get(name, 0)) for name, answer in answers.items()
        }
        in_force.evidence["calls_hit"] = calls
        self._has_bitten(in_force, any(calls.values()))

    async def _stuck_disk(
        self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str
    ) -> InForce:
        free = self._excused_by(nodes, "stuck_disk", token)
        await self._each(free, "freeze_disk", watchdog_s=FREEZE_WATCHDOG_S)
        return InForce(nodes=free)

    async def _heal_stuck_disk(self, in_force: InForce, token: str) -> None:
        answers = await self._each(in_force.nodes, "thaw_disk")
        blocked = {name: answer.get("blocked_ms", 0) for name, answer in answers.items()}
        in_force.evidence["blocked_ms"] = blocked
        in_force.evidence["bit"] = any(ms > STUCK_BIT_MS for ms in blocked.values())

    async def _read_only(
        self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str
    ) -> InForce:
        free = self._excused_by(self._alive(nodes), "read_only", token)
        await self._end(free, "kill")
        answers = await self._each(free, "remount", read_only=True)
        refused = [answer["probe"]["errno"] == errno.EROFS for answer in answers.values()]
        in_force = InForce(nodes=free, evidence={"probe": answers, "bit": any(refused)})
        self._in_force[token] = in_force  # the node ends while it is being started
        await asyncio.gather(*(self._cluster.start_node(name) for name in free))
        return in_force

    async def _heal_read_only(self, in_force: InForce, token: str) -> None:
        for name in in_force.nodes:
            await self._cluster.end_process(name, "kill")
            await self._ask(name, "remount", read_only=False)
