"""The device of one node: a page cache, durable storage, and a journal between them.

Three profiles define what else an fsync makes durable. On "ext4" and "xfs", it commits the whole journal up to
now: on both, an fsync of any file made an earlier unlink of another file durable. It does so only if the synced
file or directory has changed since it was last durable. An fsync of an unchanged file commits nothing on either;
an fsync of an unchanged directory commits on ext4 but not on xfs. The two profiles also differ in how often the
journal commits without an fsync. On "posix-strict", an fsync makes durable only what POSIX guarantees: the data
and the size of the file. Its name needs an fsync of the directory.

Kernels also write files back without an fsync: when a file is renamed or removed, which closes it, and when a file
is cut to a size that is larger than its size on the disk (xfs writes the data, ext4 only the size). `inode.py`
describes what a power cut can leave then.

`power_cut.py` chooses what a power cut leaves. `storage.py` is the storage interface of a node.
"""

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from harness.simulation.inode import Inode, Sync
from harness.simulation.loop import NodeLoop
from harness.simulation.timeline import Timeline

SECOND_NS = 1_000_000_000

JOURNAL_COMMIT_NS = {"ext4": 5 * SECOND_NS, "xfs": 30 * SECOND_NS}
"""How often a journal commits without an fsync; "posix-strict" never does."""

FLUSHER_PERIOD_NS = 5 * SECOND_NS  # the kernel's dirty_writeback_centisecs
DIRTY_EXPIRE_NS = 30 * SECOND_NS  # the kernel's dirty_expire_centisecs

PROFILES = ("ext4", "xfs", "posix-strict")


@dataclass(slots=True, eq=False)
class JournalEntry:
    """A change of a directory or of a file size that is not durable yet.

    Attributes:
        sequence: Its number in the order of all metadata operations of the disk.
        at_ns: True time of the change.
        kind: "create", "rename", "unlink" or "truncate".
        path: The name that changes.
        inode: The file.
        target: New name of a rename.
        size: New size of a truncation.
    """

    sequence: int
    at_ns: int
    kind: str
    path: str
    inode: Inode
    target: str = ""
    size: int = 0

    def touches(self, directory: str) -> bool:
        """Whether the entry changes a directory."""
        return self.kind != "truncate" and directory in (parent(self.path), parent(self.target))


@dataclass(slots=True, eq=False, kw_only=True)
class DiskFault:
    """One disk fault, and the evidence that it took effect.

    Attributes:
        kind: "io-error", "full", "slow", "stuck", "read-only" or "fsync-lies".
        operation: I/O error: the operation that fails, or "any".
        prefix: I/O error: beginning of the paths on which it fails.
        error: I/O error: the errno.
        remaining: I/O error: how many more calls fail; None for all.
        every: I/O error: only every n-th call fails.
        calls: I/O error: number of calls to which it applied, whether they failed or not.
        free_bytes: Full: the free space.
        stops_writes: Stuck: a process that changes a file is blocked as well.
        extra_ns: Slow: added to every fsync.
        factor: Slow: factor of the duration of every fsync.
        hits: Number of calls that failed, were slow, or did nothing because of it.
        active: False once healed.
    """

    kind: str
    operation: str = ""
    prefix: str = ""
    error: int = errno.EIO
    remaining: int | None = None
    every: int = 1
    calls: int = 0
    free_bytes: int = 0
    stops_writes: bool = False
    extra_ns: int = 0
    factor: float = 1.0
    hits: int = 0
    active: bool = True


class StorageView(Protocol):
    """A storage interface that uses the device, and adapts when the state of the device changes."""

    @property
    def is_dead(self) -> bool:
        """Whether the process that uses it no longer exists."""
        ...

    def refresh(self) -> None:
        """Adapts to the faults of the device and to the end of the process."""
        ...


class Device:
    """The state of one disk: the cached files, the durable files, the journal, syncs in flight, and faults.

    Args:
        timeline: The timeline of the world.
        node_name: The node that owns the disk.

    Attributes:
        files: What a process sees: name to file.
        names: The durable directory: name to file.
        journal: Changes of the directory that are not durable yet, oldest first.
        faults: The faults in force, oldest first.
        syncs: Syncs in flight, oldest first.
    """

    def __init__(self, timeline: Timeline, node_name: str) -> None:
        self.timeline = timeline
        self.node_name = node_name
        self.profile = timeline.weather.disk_profile
        if self.profile not in PROFILES:
            raise ValueError(f"no disk profile is called {self.profile!r}: {', '.join(PROFILES)}")
        self.files: dict[str, Inode] = {}
        self.names: dict[str, Inode] = {}
        self.journal: list[JournalEntry] = []
        self.faults: list[DiskFault] = []
        self.random = timeline.random.stream("disk", node_name)
        self._trace_code = timeline.trace.intern(f"disk {node_name} sync")
        self.background = timeline.weather.background_writeback
        self.blocking_takes_time = timeline.weather.blocking_fsync_takes_time
        self.syncs: list[Sync] = []
        self._latency_random = timeline.random.stream("disk-latency", node_name).random
        self._sequence = 0
        self._sync_number = 0
        self._committed_sequence = 0  # all operations up to this one are durable, journalled or not
        self._committed_ns = 0
        self._mounted_ns = timeline.now
        self._device_free_ns = 0
        self._stuck: list[tuple[Sync, Callable[[Sync], None]]] = []
        self._stopped_writers: list[NodeLoop] = []
        self._epoch = 0
        self._views: list[StorageView] = []

    def attach(self, view: StorageView) -> None:
        """Adds a storage interface to those that `refresh_views` updates."""
        self._views = [old for old in self._views if not old.is_dead] + [view]

    def refresh_views(self) -> None:
        """Updates the storage interfaces after faults changed or a process ended."""
        for view in self._views:
            view.refresh()

    # The journal

    def log(
        self, kind: str, path: str, inode: Inode, *, target: str = "", size: int = 0
    ) -> JournalEntry:
        """Adds a metadata operation to the journal."""
        entry = JournalEntry(
            self.next_sequence(), self.timeline.now, kind, path, inode, target=target, size=size
        )
        self.journal.append(entry)
        return entry

    def next_sequence(self) -> int:
        """Returns the number of the next metadata operation."""
        self._sequence += 1
        return self._sequence

    def commit(self, entries: list[JournalEntry]) -> None:
        """Makes metadata operations durable, in order."""
        if not entries:
            return
        names = self.names
        for entry in entries:
            if entry.kind == "truncate":
                entry.inode.truncation_committed(entry.sequence, entry.size)
            elif entry.kind == "create":
                names[entry.path] = entry.inode
            elif entry.kind == "unlink":
                if names.get(entry.path) is entry.inode:
                    del names[entry.path]
            else:
                if names.get(entry.path) is entry.inode:
                    del names[entry.path]
                names[entry.target] = entry.inode
        if len(entries) == len(self.journal):
            self.journal.clear()
        else:
            done = {entry.sequence for entry in entries}
            self.journal = [entry for entry in self.journal if entry.sequence not in done]

    def settle(self) -> None:
        """Applies everything that the kernel has written without an fsync until now."""
        if not self.background:
            return
        settled_ns = self.timeline.now - self._mounted_ns
        interval_ns = JOURNAL_COMMIT_NS.get(self.profile)
        if interval_ns is not None:
            # Written-back data is part of the file only after the journal has committed the size.
            settled_ns = settled_ns // interval_ns * interval_ns
            committed_ns = self._mounted_ns + settled_ns
            if self.journal:
                self.commit([entry for entry in self.journal if entry.at_ns < committed_ns])
            if committed_ns > self._committed_ns:
                self._committed_ns = committed_ns
                self._committed_sequence = self._sequence
        flushed_ns = self._mounted_ns + settled_ns // FLUSHER_PERIOD_NS * FLUSHER_PERIOD_NS
        cutoff_ns = flushed_ns - DIRTY_EXPIRE_NS
        for names in (self.files, self.names):
            for inode in names.values():
                if inode.settles_at_ns <= cutoff_ns:
                    inode.write_back_older_than(cutoff_ns)

    # Syncs

    def begin_sync(self, path: str, inode: Inode | None) -> Sync:
        """Begins an fsync of a file, or, if `inode` is None, of a directory."""
        self.settle()
        self._sync_number += 1
        sync = Sync(self._sync_number, path, inode, self._sequence)
        # In the usual case, there are new bytes and no other sync, and the whole journal is committed.
        if inode is None or inode.syncs or len(inode.data) == inode.durable_size:
            sync.commits_to = self._commits_to(path, inode)
        self.syncs.append(sync)
        if inode is not None:
            inode.syncs.append(sync)
        return sync

    def _commits_to(self, path: str, inode: Inode | None) -> int:
        """Returns the newest metadata operation that a sync that begins now makes durable; 0 for none.

        A kernel checks whether the file or directory is part of the open transaction. If it is instead part of one
        that another sync is committing, the kernel waits for that one.
        """
        if inode is None and not self._folder_exists(path):
            return 0
        if self.profile == "posix-strict":
            return self._sequence  # `_entries_of` chooses among them
        if inode is not None:
            last = inode.syncs[-1] if inode.syncs else None
            changed = self._file_changed(inode, last)
        else:
            last = next(
                (s for s in reversed(self.syncs) if s.inode is None and s.path == path), None
            )
            since = last.journal_sequence if last is not None else 0
            changed = self.profile == "ext4" or any(
                entry.sequence > since and self._changes(entry, path) for entry in self.journal
            )
        if changed:
            return self._sequence
        return last.commits_to if last is not None else 0

    def _file_changed(self, inode: Inode, last: Sync | None) -> bool:
        """Whether a file has changed since its last sync began, or since it was durable."""
        if last is None:
            if inode.unsynced_bytes() or inode.cut_sequence > self._committed_sequence:
                return True
            since = 0
        else:
            since = last.journal_sequence
            if len(inode.data) != last.size or inode.cut_sequence > since:
                return True
        return any(entry.inode is inode and entry.sequence > since for entry in self.journal)

    def _changes(self, entry: JournalEntry, directory: str) -> bool:
        """Whether an entry changes a directory: a name in it, or one of a directory in it that is gone with it."""
        if entry.touches(directory):
            return True
        folder = parent(entry.path)
        is_in_it = entry.kind in ("unlink", "rename") and folder and parent(folder) == directory
        return bool(is_in_it) and not self._folder_exists(folder)

    def _folder_exists(self, path: str) -> bool:
        """Whether a directory exists; it is removed with its last file."""
        if not path:
            return True
        for entry in self.journal:
            name = entry.target or entry.path
            if parent(name) == path and name in self.files:
                return True
        return any(name.startswith(path + "/") for name in self.files)

    def schedule_completion(self, sync: Sync, on_device_done: Callable[[Sync], None]) -> int:
        """Schedules the completion of a sync; the device completes one at a time.

        Returns:
            The true time of the completion. If the device is stuck, the present time; the sync then completes
            after the fault is healed.
        """
        timeline = self.timeline
        stuck = self._fault("stuck")
        if stuck is not None:
            stuck.hits += 1
            self._stuck.append((sync, on_device_done))
            return timeline.now
        weather = timeline.weather
        latency_ns = weather.fsync_base_ns
        if weather.fsync_tail_ns:
            latency_ns += int(weather.fsync_tail_ns * self._latency_random() ** 4)
        slow = self._fault("slow")
        if slow is not None:
            slow.hits += 1
            latency_ns = int(latency_ns * slow.factor) + slow.extra_ns
        self._device_free_ns = max(timeline.now, self._device_free_ns) + latency_ns
        timeline.push(self._device_free_ns, self._device_done, (self._epoch, sync, on_device_done))
        return self._device_free_ns

    def _device_done(self, job: tuple[int, Sync, Callable[[Sync], None]]) -> None:
        epoch, sync, on_device_done = job
        if epoch == self._epoch:  # otherwise the power was cut, or the disk was replaced
            on_device_done(sync)

    @property
    def is_stuck(self) -> bool:
        """Whether the device completes no sync."""
        return self._fault("stuck") is not None

    @property
    def syncs_take_time(self) -> bool:
        """Whether a blocking sync takes virtual time."""
        return self.blocking_takes_time or any(
            fault.kind in ("stuck", "slow") for fault in self.faults
        )

    def stop_writer(self, loop: NodeLoop | None) -> None:
        """Blocks a process that changed a file, if the disk is stuck for writes.

        The change itself has already happened, since a plain call cannot wait in virtual time. The process does
        not continue until the disk is healed.
        """
        fault = self._fault("stuck")
        if fault is None or not fault.stops_writes or loop is None or loop.dead:
            return
        if not loop.frozen:
            fault.hits += 1
        loop.freeze()
        self._stopped_writers.append(loop)

    def check_sync(self, sync: Sync) -> OSError | None:
        """Returns the error with which a sync fails, if any. A failed sync is over."""
        try:
            self.check_io("fsync", sync.path)
        except OSError as error:
            self.end_sync(sync)
            if sync.inode is not None:
                sync.inode.write_back_failed(sync)
            return error
        return None

    def complete(self, sync: Sync) -> None:
        """Completes a sync: the state at its beginning is durable."""
        self.end_sync(sync)
        lies = self._fault("fsync-lies")
        if lies is not None:
            lies.hits += 1
            return
        self.settle()
        if self.journal:
            self.commit(self._entries_of(sync))
        if sync.commits_to > self._committed_sequence:
            self._committed_sequence = sync.commits_to
        if sync.inode is not None:
            sync.inode.sync_completed(sync)
        self.timeline.trace.record(self.timeline.now, self._trace_code, sync.size)

    def end_sync(self, sync: Sync) -> None:
        """Removes a sync from the lists."""
        self.syncs.remove(sync)
        if sync.inode is not None:
            sync.inode.syncs.remove(sync)

    def _entries_of(self, sync: Sync) -> list[JournalEntry]:
        """Returns the journal entries that a completed sync makes durable."""
        before = [entry for entry in self.journal if entry.sequence <= sync.commits_to]
        if self.profile != "posix-strict" or not before:
            return before
        if sync.inode is not None:
            return [e for e in before if e.kind == "truncate" and e.inode is sync.inode]
        # Earlier renames of the file are included, or it would appear under two names.
        moved = [e for e in before if self._changes(e, sync.path)]
        inodes = {id(entry.inode): entry.sequence for entry in moved}
        return [
            e for e in before if e.kind != "truncate" and e.sequence <= inodes.get(id(e.inode), 0)
        ]

    def heal(self, fault: DiskFault) -> None:
        """Ends one fault; idempotent."""
        if not fault.active:
            return
        fault.active = False
        self.faults.remove(fault)
        self.timeline.trace.note(self.timeline.now, f"disk {self.node_name} heal {fault.kind}")
        self.refresh_views()
        if fault.kind == "stuck" and not self.is_stuck:
            stuck, self._stuck = self._stuck, []
            for sync, on_device_done in stuck:
                self.schedule_completion(sync, on_device_done)
            writers, self._stopped_writers = self._stopped_writers, []
            for loop in writers:
                loop.thaw()

    def heal_all(self) -> None:
        """Ends every fault."""
        for fault in list(self.faults):
            self.heal(fault)

    def add_fault(self, fault: DiskFault) -> DiskFault:
        """Puts a fault in force."""
        self.faults.append(fault)
        self.timeline.trace.note(self.timeline.now, f"disk {self.node_name} {fault.kind}")
        self.refresh_views()
        return fault

    def _fault(self, kind: str) -> DiskFault | None:
        for fault in self.faults:
            if fault.kind == kind:
                return fault
        return None

    def check_io(self, operation: str, path: str, *, changes: bool = True) -> None:
        """Raises the error of a fault that applies to an operation.

        Raises:
            OSError: `EROFS`, or the error of an `io_error` fault.
        """
        if self.timeline.is_inspected:
            return
        for fault in list(self.faults):
            if fault.kind == "read-only" and changes:
                fault.hits += 1
                raise OSError(
                    errno.EROFS, f"the file system of {self.node_name} is read-only", path
                )
            if (
                fault.kind == "io-error"
                and fault.operation in (operation, "any")
                and path.startswith(fault.prefix)
            ):
                fault.calls += 1
                if fault.calls % fault.every:
                    continue
                fault.hits += 1
                if fault.remaining is not None:
                    fault.remaining -= 1
                    if not fault.remaining:
                        self.heal(fault)
                raise OSError(fault.error, f"{operation} failed on {self.node_name}", path)

    def take_space(self, size: int) -> int:
        """Reserves space for `size` bytes, and returns how many of them fit."""
        fault = self._fault("full")
        if fault is None:
            return size
        fits = min(size, max(0, fault.free_bytes))
        fault.free_bytes -= fits
        if fits < size:
            fault.hits += 1
        return fits

    def release_space(self, size: int) -> None:
        """Adds bytes to the free space."""
        fault = self._fault("full")
        if fault is not None:
            fault.free_bytes += size


def parent(path: str) -> str:
    """Returns the directory of a path, "" for the root."""
    return path.rpartition("/")[0]
