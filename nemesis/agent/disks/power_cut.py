"""Power cuts on real file systems: the kernel loses what was not durable, then some of it is written back.

The file system is shut down without writing its log (`EXT4_IOC_SHUTDOWN`, `XFS_IOC_GOINGDOWN`), unmounted and
mounted again, which replays the journal. What is left then is the minimum that a power cut leaves. When the power
fails, a kernel may have written more, up to everything that processes saw; a mode chooses how much:

| mode          | data, per file                                      | names and cuts                      |
|---------------|-----------------------------------------------------|-------------------------------------|
| `lose_all`    | what the kernel left                                | what the kernel left                |
| `prefix`      | the oldest lost pages up to some point              | see below                           |
| `pages`       | any subset of the lost pages; holes read as zeros   | see below                           |
| `torn_sector` | as `prefix`, but cut at a sector                    | see below                           |
| `zero_tail`   | as `prefix`, and zeros after it                     | see below                           |
| `keep_all`    | everything                                          | everything                          |

The kernel's journal keeps an order that is not visible from outside. So changes of names come back all or not at
all; only if nothing but creations was lost, the oldest of them may come back alone, by their birth times. A file
that was truncated or overwritten is restored only together with all the rest, because its new bytes cannot be
older than the truncation. Other legal outcomes exist; they are never produced.

Everything that was fsynced is in what the kernel left, which is never changed.

Source: `harness/simulation/power_cut.py` has the same modes.
"""

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from nemesis.agent.disks import mounts
from nemesis.agent.disks.disk import NodeDisk
from nemesis.agent.disks.images import FOLDER, NO_LOG_FLUSH, remove_disk, shutdown_descriptor
from nemesis.agent.disks.snapshot import Snapshot
from nemesis.agent.disks.synthesis import MODES, NOTHING_GIVEN_BACK, FileCut, give_back
from nemesis.agent.errors import AgentError

FILES_MAX = 200
"""How many files a report lists; the totals cover all files."""

BARRIER_LIMIT_S = 30.0

Kill = Callable[[int], None]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CutPlan:
    """What a power cut does to one node.

    Attributes:
        mode: One of `MODES`.
        seed: Decides the choices that a mode leaves open.
        keep_records: An exact cut: the batches of every partition log below this offset survive. What was durable
            beyond it survives as well; the report notes it.
        torn_bytes: With `keep_records`: this many bytes of what follows survive as well.
        flag: What the shutdown writes first: `FLUSH`, `LOG_FLUSH` or `NO_LOG_FLUSH` of `images.py`.
    """

    mode: str = "lose_all"
    seed: int = 0
    keep_records: int | None = None
    torn_bytes: int = 0
    flag: int = NO_LOG_FLUSH

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise AgentError(
                f"no power cut mode is called {self.mode!r}; known: {', '.join(MODES)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CutReport:
    """What a power cut did to one node: the evidence of its effect.

    Attributes:
        mode: How the outcome was chosen.
        cached_bytes: Length of all files before.
        unsynced_bytes_before: How much of it was not durable: what the kernel lost.
        kept_bytes: How much of that was written back, counted from the beginning of each file.
        lost_bytes: How much of what processes saw is lost.
        files: Files that lost something or changed, by name; at most `FILES_MAX`.
        returned: Names that had been removed and exist again.
        missing: Names that had been made and are lost.
        metadata: "none", "all" or "k of n creations": which changes of names came back.
        notes: Further remarks, for instance that more was durable than the plan keeps.
        timings_ms: Per step.
        skew_ns: Time between the first and the last of the nodes that were cut together.
    """

    mode: str
    cached_bytes: int
    unsynced_bytes_before: int
    kept_bytes: int
    lost_bytes: int
    files: tuple[FileCut, ...]
    returned: tuple[str, ...]
    missing: tuple[str, ...]
    metadata: str
    notes: tuple[str, ...]
    timings_ms: dict[str, float] = field(default_factory=dict)
    skew_ns: int = 0

    @property
    def took_effect(self) -> bool:
        """Whether the node has lost or changed files."""
        return bool(self.lost_bytes or self.returned or self.missing)

    def to_json(self) -> dict[str, Any]:
        """Returns it as JSON has it."""
        return {**asdict(self), "took_effect": self.took_effect}


def cut(disks: Sequence[NodeDisk], plans: Sequence[CutPlan], kill: Kill) -> list[CutReport]:
    """Cuts the power of several nodes at one instant. The caller has frozen their processes.

    Args:
        disks: The disks of the nodes.
        plans: One for each disk.
        kill: Ends the process of a node and returns when it is gone; called from several threads.

    Returns:
        One report each; the disks are mounted again.

    Raises:
        AgentError: A step failed. The other nodes were cut all the same; `mount` mounts a disk that is not
            mounted.
    """
    if not disks:
        return []
    indices = range(len(disks))
    timings: list[dict[str, float]] = [{} for _ in indices]
    with contextlib.ExitStack() as open_snapshots, ThreadPoolExecutor(len(disks)) as pool:

        def snapshot(index: int) -> Snapshot | None:
            disks[index].thaw()
            return _snapshot_of(disks[index], open_snapshots)

        def bury_and_finish(index: int) -> CutReport:
            began_ns = time.monotonic_ns()
            kill(index)
            timings[index]["kill"] = (time.monotonic_ns() - began_ns) / 1e6
            return _finish(disks[index], plans[index], snapshots[index], timings[index])

        snapshots = _each(pool, indices, timings, "snapshot", snapshot)
        alive = [index for index in indices if snapshots[index] is not None]
        skew_ns = _shut_down(pool, disks, plans, alive, timings)
        for taken in snapshots:
            if taken is not None:
                taken.close_files()
        reports = _each(pool, indices, timings, "", bury_and_finish)
    return [
        CutReport(**{**_fields(report), "skew_ns": skew_ns, "timings_ms": _rounded(times)})
        for report, times in zip(reports, timings, strict=True)
    ]


def _snapshot_of(disk: NodeDisk, open_snapshots: contextlib.ExitStack) -> Snapshot | None:
    """Returns the files of a node; None if they cannot be read because the file system was shut down before."""
    try:
        taken = disk.snapshot()
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return None
    open_snapshots.callback(taken.close)
    return taken


def _fields(report: CutReport) -> dict[str, Any]:
    return {name: getattr(report, name) for name in CutReport.__slots__}


def _rounded(times: dict[str, float]) -> dict[str, float]:
    return {
        **{name: round(ms, 3) for name, ms in times.items()},
        "total": round(sum(times.values()), 3),
    }


def _each(
    pool: ThreadPoolExecutor,
    indices: Sequence[int],
    timings: list[dict[str, float]],
    step: str,
    work: Callable[[int], _T],
) -> list[_T]:
    """Runs one step for all nodes at once; waits for all of them before it raises an error."""

    def timed(index: int) -> _T:
        began_ns = time.monotonic_ns()
        try:
            return work(index)
        finally:
            if step:
                timings[index][step] = (time.monotonic_ns() - began_ns) / 1e6

    futures = [pool.submit(timed, index) for index in indices]
    failures = [error for future in futures if (error := future.exception()) is not None]
    if failures:
        raise failures[0] if len(failures) == 1 else AgentError("; ".join(map(str, failures)))
    return [future.result() for future in futures]


def _shut_down(
    pool: ThreadPoolExecutor,
    disks: Sequence[NodeDisk],
    plans: Sequence[CutPlan],
    indices: Sequence[int],
    timings: list[dict[str, float]],
) -> int:
    """Shuts file systems down together; returns the nanoseconds between the first and the last."""
    if not indices:
        return 0
    with contextlib.ExitStack() as stack:
        descriptors = {}
        for index in indices:
            descriptors[index] = disks[index].open_for_shutdown()
            stack.callback(os.close, descriptors[index])
        barrier = threading.Barrier(len(indices), timeout=BARRIER_LIMIT_S)
        began_ns = []

        def shut_down(index: int) -> None:
            barrier.wait()
            began_ns.append(time.monotonic_ns())
            shutdown_descriptor(descriptors[index], plans[index].flag)

        _each(pool, indices, timings, "shutdown", shut_down)
    return max(began_ns) - min(began_ns)


def _finish(
    disk: NodeDisk, plan: CutPlan, before: Snapshot | None, times: dict[str, float]
) -> CutReport:
    """Mounts one disk again and writes back what its plan keeps."""
    at_ns = time.monotonic_ns()

    def step(name: str) -> None:
        nonlocal at_ns
        now_ns = time.monotonic_ns()
        times[name] = (now_ns - at_ns) / 1e6
        at_ns = now_ns

    is_read_only = disk.is_read_only
    disk.unmount()
    step("unmount")
    disk.mount(read_only=is_read_only, with_ballast=False)
    step("mount")
    if before is None or is_read_only:
        why = "it could not be written" if is_read_only else "it was shut down before the cut"
        result = NOTHING_GIVEN_BACK
        notes: tuple[str, ...] = (f"nothing was written back to this disk: {why}",)
    else:
        result = give_back(
            disk.data,
            before,
            mode=plan.mode,
            seed=plan.seed,
            keep_records=plan.keep_records,
            torn_bytes=plan.torn_bytes,
        )
        notes = result.notes
    if not is_read_only:
        disk.restore_ballast()
    step("synthesis")
    return CutReport(
        mode=plan.mode,
        cached_bytes=before.size_bytes if before is not None else 0,
        unsynced_bytes_before=result.unsynced_bytes,
        kept_bytes=result.kept_bytes,
        lost_bytes=result.lost_bytes,
        files=result.files[:FILES_MAX],
        returned=result.returned,
        missing=result.missing,
        metadata=result.metadata,
        notes=notes,
    )


def leftovers(root: Path) -> list[str]:
    """Returns the disks below a directory: mounts, loop devices and images, one line each."""
    root = root.absolute()
    found = [f"mount {path}" for path in _mounts_below(root)]
    found += [f"loop device {dev} of {image}" for dev, image in mounts.loops_below(root).items()]
    return found + [f"image {path}" for path in _images_below(root)]


def reset(root: Path) -> list[str]:
    """Removes every disk below a directory; returns what was removed, one line each.

    Raises:
        AgentError: A disk is still in use. Everything else was removed.
    """
    root = root.absolute()
    disks = {path.parent if path.name == FOLDER else path for path in _mounts_below(root)}
    disks |= {Path(image).with_suffix("") for image in mounts.loops_below(root).values()}
    disks |= {path.with_suffix("") for path in _images_below(root)}
    removed: list[str] = []
    failures: list[str] = []
    for directory in sorted(disks):
        try:
            removed += remove_disk(directory)
        except (AgentError, OSError) as error:
            failures.append(str(error))
    if failures:
        raise AgentError("; ".join(failures))
    return removed


def _mounts_below(root: Path) -> list[Path]:
    return [Path(mount.path) for mount in mounts.mounts() if root in Path(mount.path).parents]


def _images_below(root: Path) -> list[Path]:
    """Returns images at two depths, because scratch images have their own folder."""
    return sorted([*root.glob("*.img"), *root.glob("*/*.img")])
