"""Disk faults on hosts: file systems in images on loop devices, and tracers of system calls."""

import asyncio
import errno
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from nemesis.fault import Fault
from nemesis.hosts.mechanism import TRACER, HostInjection, Hosts, Mechanisms

FREEZE_WATCHDOG_S = 120.0
BLOCKED_MS_MIN = 50
"""A stuck disk took effect if a call had to wait longer than this."""


class OfflineDamage(HostInjection):
    """Nodes are killed, their files are damaged, and starting the nodes heals the fault."""

    _responses: Mapping[str, Any]

    async def begin(self) -> None:
        """Kills the nodes and damages their files."""
        await self.hosts.end(self.hosts.alive(self.nodes), "kill")
        responses = await asyncio.gather(*(self.damage(name) for name in self.nodes))
        self._responses = dict(zip(self.nodes, responses, strict=True))

    async def damage(self, name: str) -> Any:
        """Damages the files of a node that is down; returns the agent's response."""
        raise NotImplementedError


class Wipe(OfflineDamage):
    """The disk is replaced by an empty one."""

    async def damage(self, name: str) -> Any:
        """Replaces the disk of a node."""
        return await self.hosts.request(name, "wipe")

    def evidence(self) -> dict[str, Any]:
        """Returns how much each disk held before and after, and the ids of its file systems."""
        return {"wiped": dict(self._responses)}

    def took_effect(self) -> bool:
        """Whether a disk held data."""
        return any(int(response["bytes_before"]) > 0 for response in self._responses.values())


class BitFlip(OfflineDamage):
    """One bit of a partition log is flipped beyond the recovery point."""

    async def damage(self, name: str) -> Any:
        """Flips a bit in a log of a node."""
        seed = zlib.crc32(f"{self.token}/{name}".encode())
        return await self.hosts.request(name, "flip_bit", seed=seed)

    def evidence(self) -> dict[str, Any]:
        """Returns where a bit was flipped, or why there was none to flip."""
        return {"flipped": dict(self._responses)}

    def took_effect(self) -> bool:
        """Whether a bit was flipped."""
        return any(response.get("bit") is not None for response in self._responses.values())


class TruncateFile(OfflineDamage):
    """The end of the largest partition log is cut off; the metadata log is never cut."""

    def select(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        """Returns all nodes, also those that are down already; what took them down starts them."""
        return self.hosts.servers(nodes)

    async def damage(self, name: str) -> Any:
        """Cuts off the end of a log of a node."""
        return await self.hosts.request(name, "truncate_file", size=int(self.fault.params["bytes"]))

    def evidence(self) -> dict[str, Any]:
        """Returns which file of each node was cut, and its sizes; nothing for a node without a partition log."""
        return {"truncated": dict(self._responses)}

    def took_effect(self) -> bool:
        """Whether a file became shorter."""
        return any(
            response["bytes_after"] < response["bytes_before"]
            for response in self._responses.values()
            if response
        )


class DiskFull(HostInjection):
    """The disk is filled with a ballast file."""

    _filled: Mapping[str, Any]
    _probe: Mapping[str, Any] | None = None
    _is_full = False

    def select(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the nodes whose disk can be written to; a disk that is stuck cannot be filled."""
        return tuple(
            name
            for name in self.hosts.servers(nodes)
            if not any(isinstance(other, StuckDisk) for other in self.hosts.on(name))
        )

    async def begin(self) -> None:
        """Fills the disks."""
        free_bytes = int(self.fault.params.get("free_bytes", 0))
        self._filled = await self.hosts.each(self.nodes, "fill", free_bytes=free_bytes)
        self._note(response["probe"] for response in self._filled.values())

    async def remove(self) -> None:
        """Removes the ballast."""
        await self.hosts.each(self.nodes, "unfill")

    async def observe(self) -> None:
        """Tries to write to the disks."""
        self._probe = await self.hosts.each(self.nodes, "probe_write")
        self._note(self._probe.values())

    def evidence(self) -> dict[str, Any]:
        """Returns the size of the ballast, and the errors of writes."""
        evidence: dict[str, Any] = {"filled": dict(self._filled)}
        if self._probe is not None:
            evidence["probe"] = {name: probe["error"] for name, probe in self._probe.items()}
        return evidence

    def took_effect(self) -> bool:
        """Whether a write was refused."""
        return self._is_full

    def _note(self, probes: Iterable[Any]) -> None:
        self._is_full = self._is_full or has_errno(probes, errno.ENOSPC)


class TracedDisk(HostInjection):
    """A tracer makes the fsyncs of a process fail or wait."""

    is_shown_by_the_living = True
    _INJECT: Mapping[str, str] = {"io_error": "fsync-error", "slow_disk": "fsync-delay"}
    _calls: dict[str, int]

    @property
    def claims(self) -> frozenset[str]:
        """The tracer, in addition to the claim in the fault table."""
        return super().claims | {TRACER}

    async def begin(self) -> None:
        """Attaches the tracers."""
        self._calls = {}
        params = self.fault.params
        await self.hosts.each(
            self.nodes,
            "trace",
            inject=self._INJECT[self.fault.fault],
            every=int(params.get("every", 1)),
            delay_ms=params.get("ms", 0),
        )

    async def remove(self) -> None:
        """Detaches the tracers and keeps their counters."""
        self._count(await self.hosts.each(self.nodes, "trace_end"))

    async def observe(self) -> None:
        """Reads how many calls were hit."""
        self._count(await self.hosts.each(self.nodes, "trace_evidence"))

    def evidence(self) -> dict[str, Any]:
        """Returns how many calls were hit, by node."""
        return {"calls_hit": dict(self._calls)} if self._calls else {}

    def took_effect(self) -> bool:
        """Whether a call was hit."""
        return any(self._calls.values())

    def _count(self, responses: Mapping[str, Any]) -> None:
        # A power cut ends a tracer; what it had counted stays.
        for name, response in responses.items():
            self._calls[name] = max(int(response["calls"]), self._calls.get(name, 0))


class DeadDisk(HostInjection):
    """Every call to the disk fails with EIO."""

    is_shown_by_the_living = True
    _probe: Mapping[str, Any] | None = None
    _is_dead = False

    async def begin(self) -> None:
        """Shuts the file systems down below the running processes."""
        await self.hosts.each(self.nodes, "disk_dies")

    async def remove(self) -> None:
        """Mounts the disks again, unless a power cut has done so."""
        for name in self.nodes:
            if (await self.hosts.request(name, "probe_write"))["errno"] != errno.EIO:
                continue
            await self.hosts.cluster.end_process(name, "kill")
            await self.hosts.request(name, "disk_revives")
            if not self.hosts.is_kept_down(name):
                await self.hosts.cluster.start_node(name)

    async def observe(self) -> None:
        """Tries to write to the disks."""
        probe = await self.hosts.each(self.nodes, "probe_write")
        # What was seen once stays: a power cut mounts the disk again.
        if not self._is_dead:
            self._probe = probe
            self._is_dead = has_errno(probe.values(), errno.EIO)

    def evidence(self) -> dict[str, Any]:
        """Returns the errors of writes."""
        if self._probe is None:
            return {}
        return {"probe": {name: probe["error"] for name, probe in self._probe.items()}}

    def took_effect(self) -> bool:
        """Whether a write failed."""
        return self._is_dead


class StuckDisk(HostInjection):
    """Writes to the disk wait until it is thawed."""

    _blocked_ms: Mapping[str, float] | None = None

    def select(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        """Returns all nodes."""
        return self.hosts.servers(nodes)

    async def begin(self) -> None:
        """Freezes the file systems; a watchdog thaws them if the harness does not."""
        await self.hosts.each(self.nodes, "freeze_disk", watchdog_s=FREEZE_WATCHDOG_S)

    async def remove(self) -> None:
        """Thaws the file systems."""
        responses = await self.hosts.each(self.nodes, "thaw_disk")
        self._blocked_ms = {
            name: response.get("blocked_ms", 0) for name, response in responses.items()
        }

    def evidence(self) -> dict[str, Any]:
        """Returns how long a write had to wait, by node; known when the fault is healed."""
        return {} if self._blocked_ms is None else {"blocked_ms": dict(self._blocked_ms)}

    def took_effect(self) -> bool:
        """Whether a write had to wait for long."""
        return self._blocked_ms is not None and any(
            ms > BLOCKED_MS_MIN for ms in self._blocked_ms.values()
        )


class ReadOnly(HostInjection):
    """Nodes are killed and started again on a disk that is mounted read-only."""

    _remounted: Mapping[str, Any]

    async def begin(self) -> None:
        """Mounts the disks read-only and starts the nodes, which may end at once."""
        await self.hosts.end(self.nodes, "kill")
        self._remounted = await self.hosts.each(self.nodes, "remount", read_only=True)
        await self.hosts.start(self.nodes)

    async def remove(self) -> None:
        """Mounts the disks for writing."""
        for name in self.nodes:
            await self.hosts.cluster.end_process(name, "kill")
            await self.hosts.request(name, "remount", read_only=False)

    def evidence(self) -> dict[str, Any]:
        """Returns the errors of writes."""
        return {"probe": dict(self._remounted)}

    def took_effect(self) -> bool:
        """Whether a write was refused."""
        return has_errno((r["probe"] for r in self._remounted.values()), errno.EROFS)


def has_errno(probes: Iterable[Any], number: int) -> bool:
    """Whether one of several writes ended with an errno."""
    return any(probe["errno"] == number for probe in probes)


def _io_error(hosts: Hosts, fault: Fault, token: str) -> HostInjection:
    if fault.params.get("op", "fsync") == "all":
        return DeadDisk(hosts, fault, token)
    return TracedDisk(hosts, fault, token)


MECHANISMS: Mechanisms = {
    "wipe": Wipe,
    "bit_flip": BitFlip,
    "truncate_file": TruncateFile,
    "disk_full": DiskFull,
    "io_error": _io_error,
    "slow_disk": TracedDisk,
    "stuck_disk": StuckDisk,
    "read_only": ReadOnly,
}
