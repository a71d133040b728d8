"""Disk faults in the simulated world."""

import errno
from collections.abc import Callable, Mapping
from typing import Any, cast

from harness.contracts.cluster import Effect, InForce
from harness.simulation.device import DiskFault
from harness.simulation.disk import SimDisk
from harness.simulation.node import SimNode
from harness.simulation.world import World
from nemesis.simulated.mechanism import alive, start_if_down, told, whole_batches
from system_under_test.log.checkpoints import RECOVERY_POINT_CHECKPOINT, OffsetCheckpoint
from system_under_test.runtime import Storage

AFTERMATH_NS = 1_000_000_000
"""An error that a process met may end it a little after its disk was healed; then it is started again."""

CHECKSUMMED_FROM = 21
"""The checksum of a record batch covers it from here on; what lies before is not protected by it."""

_SEEN_AS = {
    "disk_full": "writes_refused",
    "io_error": "calls_failed",
    "slow_disk": "syncs_late",
    "stuck_disk": "calls_that_waited",
    "read_only": "writes_refused",
}
_LASTING = tuple(_SEEN_AS)


class DiskFaults:
    """Fills, breaks, slows, wipes and spoils disks.

    A node that ends by itself while one of the lasting faults is in force suffers its effect: that is noted as
    evidence, and healing the fault starts the node again.
    """

    faults = (*_LASTING, "wipe", "bit_flip")

    def __init__(self, world: World, note_pauses: Callable[[], None]) -> None:
        self._world = world
        self._note_pauses = note_pauses

    async def inject(
        self, fault: str, nodes: tuple[str, ...], params: Mapping[str, Any]
    ) -> InForce:
        """Injects one of them."""
        if fault in ("wipe", "bit_flip"):
            return self._spoil(fault, alive(self._world, nodes))
        if fault in ("disk_full", "stuck_disk"):
            return self._lasting(fault, nodes, params)
        return self._lasting(fault, alive(self._world, nodes), params)

    def _lasting(self, fault: str, nodes: tuple[str, ...], params: Mapping[str, Any]) -> InForce:
        if fault == "read_only":
            self._note_pauses()
        in_force = InForce(nodes=nodes, token={})
        for name in nodes:
            node = self._world.nodes[name]
            if fault == "read_only":
                node.kill()
            disk_fault = _begin(node.disk, fault, params)
            watch = _Deaths(in_force)
            node.on_exit.append(watch)
            in_force.token[name] = (disk_fault, watch)
            if fault == "read_only":
                node.start()
        return in_force

    def _spoil(self, fault: str, nodes: tuple[str, ...]) -> InForce:
        self._note_pauses()
        evidence: dict[str, Any] = {}
        bit = False
        for name in nodes:
            node = self._world.nodes[name]
            node.kill()
            evidence[name] = _wipe(node.disk) if fault == "wipe" else self._flip(node)
            bit = bit or bool(evidence[name].pop("bit_it"))
        return InForce(nodes=nodes, evidence={**evidence, "bit": bit})

    def heal(self, fault: str, in_force: InForce) -> None:
        """Mends the disks, and starts the nodes that these faults took down."""
        for name in in_force.nodes:
            node = self._world.nodes[name]
            if fault not in _LASTING:
                start_if_down(node)
                continue
            disk_fault, _ = in_force.token[name]
            if not disk_fault.active:
                continue
            is_mounted_anew = fault == "read_only" and node.is_alive
            if is_mounted_anew:
                node.kill()  # a file system that is in use cannot be
            node.disk.heal(disk_fault)
            if is_mounted_anew:
                node.start()
            else:
                _start_if_it_crashed(node)
            self._world.schedule(self._world.now + AFTERMATH_NS, self._aftermath, in_force, name)

    def _aftermath(self, in_force: InForce, name: str) -> None:
        node = self._world.nodes[name]
        _, watch = in_force.token[name]
        if watch in node.on_exit:
            node.on_exit.remove(watch)
        _start_if_it_crashed(node)

    def effect(self, fault: str, in_force: InForce) -> Effect:
        """A broken disk bit if calls met it."""
        if fault not in _LASTING:
            return told(in_force)
        hits = {name: disk_fault.hits for name, (disk_fault, _) in in_force.token.items()}
        return Effect(bit=any(hits.values()), evidence={**in_force.evidence, _SEEN_AS[fault]: hits})

    def settle(self) -> None:
        """Mends every disk."""
        for node in self._world.nodes.values():
            node.disk.heal_all()

    def _flip(self, node: SimNode) -> dict[str, Any]:
        """Flips a bit where recovery has to find it: in a batch beyond the recovery point, under its checksum."""
        random = self._world.random.stream("bit-flip", node.name).random
        places = _places_to_flip(node.disk)
        if not places:
            return {"bit_it": False, "why": "no log has a whole batch beyond its recovery point"}
        path, offset = _draw_byte(places, random())
        bit = int(random() * 8)
        before = node.disk.peek(path)[offset]
        node.disk.bit_flip(path, offset, bit)
        after = node.disk.peek(path)[offset]
        return {
            "bit_it": before != after,
            "path": path,
            "offset": offset,
            "bit": bit,
            "byte_before": before,
            "byte_after": after,
        }


class _Deaths:
    """Notes that a node ended by itself while a fault was in force on it. Mutable through the fault's evidence."""

    def __init__(self, in_force: InForce) -> None:
        self._in_force = in_force

    def __call__(self, node: SimNode, reason: str) -> None:
        if reason == "crashed":
            self._in_force.evidence.setdefault("ended_by_itself", {})[node.name] = str(node.crash)


def _start_if_it_crashed(node: SimNode) -> None:
    """Starts a node that a broken disk ended; what others took down, others will start."""
    is_of_the_disk = isinstance(node.crash, SystemExit) or (
        isinstance(node.crash, OSError)
        and node.crash.errno in (errno.EIO, errno.ENOSPC, errno.EROFS)
    )
    if node.state == "dead" and node.exit_reason == "crashed" and is_of_the_disk:
        node.start()


def _begin(disk: SimDisk, fault: str, params: Mapping[str, Any]) -> DiskFault:
    if fault == "disk_full":
        return disk.full(int(params.get("free_bytes", 0)))
    if fault == "io_error":
        operation = "fsync" if params.get("op", "fsync") == "fsync" else "any"
        return disk.io_error(operation, every=int(params.get("every", 1)))
    if fault == "slow_disk":
        return disk.slow(extra_ns=int(params["ms"]) * 1_000_000)
    if fault == "stuck_disk":
        return disk.stuck(stops_writes=True)
    return disk.read_only()


def _wipe(disk: SimDisk) -> dict[str, Any]:
    bytes_before, id_before = disk.stored_bytes(), disk.disk_id
    disk.wipe()
    return {
        "bytes_before": bytes_before,
        "bytes_after": disk.stored_bytes(),
        "disk_before": id_before,
        "disk_after": disk.disk_id,
        "bit_it": bytes_before > 0,
    }


def _draw_byte(places: list[tuple[str, int, int]], drawn: float) -> tuple[str, int]:
    """Returns a byte of one of the places; `drawn` lies in [0, 1)."""
    number = int(drawn * sum(end - start for _, start, end in places))
    for path, start, end in places:
        if number < end - start:
            return path, start + number
        number -= end - start
    raise AssertionError("drawn beyond the places")


class _Peek:
    """The reading half of a storage door that meets no fault."""

    def __init__(self, disk: SimDisk) -> None:
        self.exists = disk.files.__contains__
        self.read = disk.peek


def _places_to_flip(disk: SimDisk) -> list[tuple[str, int, int]]:
    """Returns (path, start, end) of bytes that a checksum covers and that recovery will look at."""
    places = []
    points: dict[str, Mapping[tuple[str, int], int]] = {}
    for path in sorted(disk.files):
        folder, _, name = path.rpartition("/")
        directory, _, log = folder.rpartition("/")
        topic, _, index = log.rpartition("-")
        if not name.endswith(".log") or not index.isdecimal() or topic == "__cluster_metadata":
            continue
        if directory not in points:
            checkpoint = f"{directory}/{RECOVERY_POINT_CHECKPOINT}"
            points[directory] = OffsetCheckpoint(cast(Storage, _Peek(disk)), checkpoint).read()
        point = points[directory].get((topic, int(index)), 0)
        for position, header in whole_batches(disk.peek(path)):
            if header.base_offset >= point:
                end = position + header.size_bytes
                places.append((path, position + CHECKSUMMED_FROM, end))
    return places
