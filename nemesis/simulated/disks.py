"""Disk faults in the simulated world."""

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from harness.simulation.device import DiskFault
from harness.simulation.disk import SimDisk
from harness.simulation.node import SimNode
from harness.simulation.world import World
from nemesis.fault import Fault
from nemesis.mechanism import Effect, Injection
from nemesis.simulated.mechanism import Inject, Outage, alive, start_if_down, whole_batches
from system_under_test.config import LOG_DIR_NAMES
from system_under_test.log.checkpoints import RECOVERY_POINT_CHECKPOINT, OffsetCheckpoint
from system_under_test.log.copies import SUPERSEDED_MARK, UNFINISHED_MARK
from system_under_test.runtime import Storage

AFTERMATH_NS = 1_000_000_000
"""A disk error may end a process shortly after its disk was healed; the process is then started again."""

CHECKSUMMED_FROM = 21
"""The checksum of a record batch covers it from this byte on; what lies before is not protected by it."""


class _BrokenDisk:
    """One node whose disk is broken, and how the node ended if it ended by itself."""

    def __init__(self, node: SimNode, fault: DiskFault) -> None:
        self.node = node
        self.fault = fault
        self.ended: str | None = None

    def node_ended(self, node: SimNode, reason: str) -> None:
        """Notes that the node ended by itself while the fault was in force on it, or just after."""
        if reason == "crashed":
            self.ended = str(node.crash)

    def start_if_it_crashed(self) -> None:
        """Starts the node if a broken disk ended it. A node that another fault took down stays down."""
        node = self.node
        is_of_the_disk = isinstance(node.crash, SystemExit) or (
            isinstance(node.crash, OSError)
            and node.crash.errno in (errno.EIO, errno.ENOSPC, errno.EROFS)
        )
        if node.state == "dead" and node.exit_reason == "crashed" and is_of_the_disk:
            node.start()

    def aftermath(self) -> None:
        """Stops watching a node whose disk was healed."""
        if self.node_ended in self.node.on_exit:
            self.node.on_exit.remove(self.node_ended)
        self.start_if_it_crashed()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenDisks:
    """A disk fault that lasts until it is healed.

    A node that ends by itself meanwhile ends because of the fault: that is evidence, and healing the fault
    starts the node again.

    Attributes:
        world: The world in which the nodes live.
        counted_as: The name of the count of calls that met the fault, in the evidence.
        needs_remount: Whether a running node has to be restarted to get its disk back.
        failed_directory: The log directory that failed; "" if the whole disk did.
        broken: The nodes by name.
        removed_logs: What healing removed, by node; see `_remove_older_copies`.
    """

    world: World
    counted_as: str
    needs_remount: bool = False
    failed_directory: str = ""
    broken: dict[str, _BrokenDisk] = field(default_factory=dict)
    removed_logs: dict[str, list[str]] = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes whose disks are broken."""
        return tuple(self.broken)

    async def heal(self) -> None:
        """Repairs the disks, and starts the nodes that the fault ended."""
        for broken in self.broken.values():
            if not broken.fault.active:
                continue
            node = broken.node
            is_remounted = self.needs_remount and node.is_alive
            if is_remounted:
                node.kill()  # a file system that is in use cannot be remounted
            node.disk.heal(broken.fault)
            if self.failed_directory:
                removed = _remove_older_copies(node.disk, self.failed_directory)
                self.removed_logs.update({node.name: removed} if removed else {})
            if is_remounted:
                node.start()
            else:
                broken.start_if_it_crashed()
            self.world.schedule(self.world.now + AFTERMATH_NS, broken.aftermath)

    async def effect(self) -> Effect:
        """Returns how many calls met the fault; one is enough."""
        hits = {name: broken.fault.hits for name, broken in self.broken.items()}
        ended = {
            name: broken.ended for name, broken in self.broken.items() if broken.ended is not None
        }
        evidence: dict[str, Any] = {"ended_by_itself": ended} if ended else {}
        if self.removed_logs:
            evidence["removed_logs"] = dict(self.removed_logs)
        return Effect(took_effect=any(hits.values()), evidence={**evidence, self.counted_as: hits})


@dataclass(frozen=True, slots=True, kw_only=True)
class ShorterFiles:
    """Nodes that lost a part of their files while they were down.

    Attributes:
        world: The world in which the nodes live.
        killed: The nodes that were killed for it. The others were down already; what took them down starts them.
        word: What happened to the files, in the evidence.
        files: Per node what was affected, with the sizes before and after; empty if there was nothing.
    """

    world: World
    killed: tuple[str, ...]
    word: str
    files: Mapping[str, Mapping[str, Any]]

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes whose files are shorter."""
        return tuple(self.files)

    async def heal(self) -> None:
        """Starts the nodes that were killed. What is gone stays lost."""
        for name in self.killed:
            start_if_down(self.world.nodes[name])

    async def effect(self) -> Effect:
        """Returns the sizes before and after; one node that has less is enough."""
        shorter = any(
            file["bytes_after"] < file["bytes_before"] for file in self.files.values() if file
        )
        return Effect(took_effect=shorter, evidence={self.word: dict(self.files)})


class DiskFaults:
    """Fills, breaks, slows, wipes and damages disks.

    Args:
        world: The world in which the nodes live.
        count_pauses: Called before nodes are killed, because a paused process may be among them.
    """

    def __init__(self, world: World, count_pauses: Callable[[], None]) -> None:
        self._world = world
        self._count_pauses = count_pauses

    def injections(self) -> Mapping[str, Inject]:
        """Returns how each of its faults is injected."""
        return {
            "disk_full": self._disk_full,
            "io_error": self._io_error,
            "log_dir_error": self._log_dir_error,
            "slow_disk": self._slow_disk,
            "stuck_disk": self._stuck_disk,
            "read_only": self._read_only,
            "wipe": self._wipe,
            "wipe_log_dir": self._wipe_log_dir,
            "bit_flip": self._bit_flip,
            "truncate_file": self._truncate_file,
        }

    def settle(self) -> None:
        """Repairs every disk."""
        for node in self._world.nodes.values():
            node.disk.heal_all()

    async def _disk_full(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        free_bytes = fault.value("free_bytes")
        return self._break(nodes, lambda disk: disk.full(free_bytes), "writes_refused")

    async def _io_error(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        operation = "fsync" if fault.value("op") == "fsync" else "any"
        every = fault.value("every")
        return self._break(
            alive(self._world, nodes),
            lambda disk: disk.io_error(operation, every=every),
            "calls_failed",
        )

    async def _log_dir_error(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        directory = LOG_DIR_NAMES[fault.value("log_dir") - 1]
        prefix = f"{directory}/"
        # A broker does not use the directory again before it is restarted.
        disks = BrokenDisks(
            world=self._world,
            counted_as="calls_failed",
            needs_remount=True,
            failed_directory=directory,
        )
        for name in alive(self._world, nodes):
            _break_one(disks, self._world.nodes[name], lambda disk: disk.io_error("any", prefix))
        return disks

    async def _slow_disk(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        extra_ns = fault.value("ms") * 1_000_000
        living = alive(self._world, nodes)
        return self._break(living, lambda disk: disk.slow(extra_ns=extra_ns), "syncs_late")

    async def _stuck_disk(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        return self._break(nodes, lambda disk: disk.stuck(stops_writes=True), "calls_that_waited")

    async def _read_only(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        living = alive(self._world, nodes)
        self._count_pauses()
        disks = BrokenDisks(world=self._world, counted_as="writes_refused", needs_remount=True)
        for name in living:
            node = self._world.nodes[name]
            node.kill()
            _break_one(disks, node, SimDisk.read_only)
            node.start()
        return disks

    def _break(
        self, nodes: tuple[str, ...], begin: Callable[[SimDisk], DiskFault], counted_as: str
    ) -> BrokenDisks:
        disks = BrokenDisks(world=self._world, counted_as=counted_as)
        for name in nodes:
            _break_one(disks, self._world.nodes[name], begin)
        return disks

    async def _wipe(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        return self._damage(nodes, lambda node: _wiped(node.disk))

    async def _bit_flip(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        return self._damage(nodes, self._flipped)

    async def _truncate_file(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        size = fault.value("bytes")
        return self._shorten(nodes, lambda disk: _truncated(disk, size), "truncated")

    async def _wipe_log_dir(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        prefix = f"{LOG_DIR_NAMES[fault.value('log_dir') - 1]}/"
        return self._shorten(nodes, lambda disk: _wiped_directory(disk, prefix), "wiped")

    def _shorten(
        self, nodes: tuple[str, ...], shorten: Callable[[SimDisk], dict[str, Any]], word: str
    ) -> ShorterFiles:
        """Kills those nodes that run, and takes from the files of all what `shorten` takes."""
        living = alive(self._world, nodes)
        self._count_pauses()
        for name in living:
            self._world.nodes[name].kill()
        files = {name: shorten(self._world.nodes[name].disk) for name in nodes}
        return ShorterFiles(world=self._world, killed=living, word=word, files=files)

    def _damage(
        self, nodes: tuple[str, ...], damage: Callable[[SimNode], tuple[dict[str, Any], bool]]
    ) -> Outage:
        """Kills nodes and damages their disks; `damage` returns the evidence and whether there was an effect."""
        living = alive(self._world, nodes)
        self._count_pauses()
        facts: dict[str, Any] = {}
        took_effect = False
        for name in living:
            node = self._world.nodes[name]
            node.kill()
            facts[name], is_damaged = damage(node)
            took_effect = took_effect or is_damaged
        return Outage(
            world=self._world, nodes=living, taken_down=living, facts=facts, took_effect=took_effect
        )

    def _flipped(self, node: SimNode) -> tuple[dict[str, Any], bool]:
        """Flips a bit where recovery must detect it: in a batch beyond the recovery point, under its checksum."""
        random = self._world.random.stream("bit-flip", node.name).random
        places = _places_to_flip(node.disk)
        if not places:
            return {"why": "no log has a whole batch beyond its recovery point"}, False
        path, offset = _draw_byte(places, random())
        bit = int(random() * 8)
        before = node.disk.peek(path)[offset]
        node.disk.bit_flip(path, offset, bit)
        after = node.disk.peek(path)[offset]
        facts = {
            "path": path,
            "offset": offset,
            "bit": bit,
            "byte_before": before,
            "byte_after": after,
        }
        return facts, before != after


def _break_one(disks: BrokenDisks, node: SimNode, begin: Callable[[SimDisk], DiskFault]) -> None:
    broken = _BrokenDisk(node, begin(node.disk))
    node.on_exit.append(broken.node_ended)
    disks.broken[node.name] = broken


def _remove_older_copies(disk: SimDisk, failed: str) -> list[str]:
    """Removes the logs of a directory that failed which the broker has created anew in another one.

    A replica that is assigned to the broker again, while the directory with its old log is away, is created
    elsewhere. The broker refuses to start once it finds two logs of one replica. Kafka's error message tells the
    operator to remove the one in the directory that failed. What a move left unfinished, the broker itself
    removes.

    Returns:
        Their paths.
    """
    names: dict[tuple[str, str], set[str]] = {}
    for path in disk.files:
        directory, _, rest = path.partition("/")
        log, _, name = rest.partition("/")
        if name and directory in LOG_DIR_NAMES:
            names.setdefault((directory, log), set()).add(name)
    whole = sorted(
        key for key, files in names.items() if not files & {UNFINISHED_MARK, SUPERSEDED_MARK}
    )
    elsewhere = {log for directory, log in whole if directory != failed}
    older = [
        f"{failed}/{log}" for directory, log in whole if directory == failed and log in elsewhere
    ]
    for path in older:
        disk.wipe(f"{path}/")
    return older


def _wiped(disk: SimDisk) -> tuple[dict[str, Any], bool]:
    bytes_before, id_before = disk.stored_bytes(), disk.disk_id
    disk.wipe()
    facts = {
        "bytes_before": bytes_before,
        "bytes_after": disk.stored_bytes(),
        "disk_before": id_before,
        "disk_after": disk.disk_id,
    }
    return facts, bytes_before > 0


def _wiped_directory(disk: SimDisk, prefix: str) -> dict[str, Any]:
    """Empties a log directory and returns its size before and after."""
    before = _bytes_below(disk, prefix)
    disk.wipe(prefix)
    return {
        "directory": prefix.rstrip("/"),
        "bytes_before": before,
        "bytes_after": _bytes_below(disk, prefix),
    }


def _bytes_below(disk: SimDisk, prefix: str) -> int:
    return sum(len(file.data) for path, file in disk.files.items() if path.startswith(prefix))


def _truncated(disk: SimDisk, size: int) -> dict[str, Any]:
    """Cuts bytes off the newest segment of the largest partition log, durably. Empty segments do not count.

    Returns:
        Its path and the sizes before and after; empty if there is no such segment.
    """
    logs: dict[str, list[str]] = {}
    for path in _partition_segments(disk):
        if disk.files[path].data:
            logs.setdefault(path.rpartition("/")[0], []).append(path)
    if not logs:
        return {}
    largest = max(logs.values(), key=lambda paths: sum(len(disk.files[p].data) for p in paths))
    path = largest[-1]
    bytes_before = len(disk.files[path].data)
    bytes_after = max(0, bytes_before - size)
    with disk.timeline.inspecting():  # other disk faults apply to the node, not to this injection
        disk.truncate(path, bytes_after)
        disk.fsync_blocking(path)
    return {"path": path, "bytes_before": bytes_before, "bytes_after": bytes_after}


def _partition_segments(disk: SimDisk) -> list[str]:
    """Returns the paths of all segments of partition logs in order; the metadata log is not one of them."""
    found = []
    for path in sorted(disk.files):
        folder, _, name = path.rpartition("/")
        topic, _, index = folder.rpartition("/")[2].rpartition("-")
        if name.endswith(".log") and index.isdecimal() and topic != "__cluster_metadata":
            found.append(path)
    return found


def _draw_byte(places: list[tuple[str, int, int]], drawn: float) -> tuple[str, int]:
    """Returns a byte of one of the places; `drawn` lies in [0, 1)."""
    number = int(drawn * sum(end - start for _, start, end in places))
    for path, start, end in places:
        if number < end - start:
            return path, start + number
        number -= end - start
    raise AssertionError("drawn beyond the places")


class _Peek:
    """Read access to a storage, unaffected by faults."""

    def __init__(self, disk: SimDisk) -> None:
        self.exists = disk.files.__contains__
        self.read = disk.peek


def _places_to_flip(disk: SimDisk) -> list[tuple[str, int, int]]:
    """Returns (path, start, end) of bytes that a checksum covers and that recovery will read."""
    places = []
    points: dict[str, Mapping[tuple[str, int], int]] = {}
    for path in _partition_segments(disk):
        directory, _, log = path.rpartition("/")[0].rpartition("/")
        topic, _, index = log.rpartition("-")
        if directory not in points:
            checkpoint = f"{directory}/{RECOVERY_POINT_CHECKPOINT}"
            points[directory] = OffsetCheckpoint(cast(Storage, _Peek(disk)), checkpoint).read()
        point = points[directory].get((topic, int(index)), 0)
        for position, header in whole_batches(disk.peek(path)):
            if header.base_offset >= point:
                end = position + header.size_bytes
                places.append((path, position + CHECKSUMMED_FROM, end))
    return places
