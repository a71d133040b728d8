"""The state of a disk after a power cut: one of the legal outcomes.

| mode          | data                                                           | metadata             |
|---------------|----------------------------------------------------------------|----------------------|
| `lose_all`    | exactly the durable image                                      | the durable names    |
| `prefix`      | per file, the oldest dirty pages up to some point              | a journal prefix     |
| `pages`       | per file, any subset of the dirty pages; holes read as zeros   | a journal prefix     |
| `torn_sector` | as `prefix`, but cut at a sector, inside a record              | a journal prefix     |
| `zero_tail`   | the size is durable but not the data: zeros at the end         | a journal prefix     |
| `keep_all`    | everything survives                                            | everything           |

If the kernel began to write a file back early, then `prefix`, `torn_sector`, `zero_tail` and `pages` may also end
the file where it ended at that time. If the file was cut afterwards and the journal lost the cut, they may restore
the bytes that were cut off. Data that was written back after a lost cut may be in the page of the cut, inside the
old content.

Bytes below the last completed fsync are never lost, unless fsync lies. An fsync in flight may or may not count as
completed, since its caller has not received a result.

Source: calibration on ext4 and xfs (`tests/containers/test_disk_calibration.py`).
"""

from dataclasses import dataclass
from random import Random

from harness.simulation.device import Device
from harness.simulation.errors import IllegalPowerCut
from harness.simulation.inode import PAGE_BYTES, SECTOR_BYTES, Inode

MODES = ("lose_all", "prefix", "torn_sector", "zero_tail", "pages", "keep_all")

_MODE_WEIGHTS = (
    ("lose_all", 0.30),
    ("prefix", 0.25),
    ("torn_sector", 0.15),
    ("zero_tail", 0.15),
    ("pages", 0.15),
)


def draw_mode(stream: Random) -> str:
    """Draws a mode with the usual weights; `keep_all` is never drawn, since it loses nothing."""
    draw = stream.random()
    for mode, weight in _MODE_WEIGHTS:
        draw -= weight
        if draw < 0:
            return mode
    return _MODE_WEIGHTS[-1][0]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCut:
    """The effect of a power cut on one file that the process saw.

    Attributes:
        path: Its name.
        cached_bytes: Its length before the power cut.
        unsynced_bytes: Number of bytes that were not known to be durable.
        kept_bytes: Length of the longest prefix of the cached content that survived.
        lost_bytes: Length of the rest of the cached content.
        size_after: Its length after the power cut; None if the name no longer exists.
    """

    path: str
    cached_bytes: int
    unsynced_bytes: int
    kept_bytes: int
    lost_bytes: int
    size_after: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerCutReport:
    """The effect of a power cut, as evidence.

    Attributes:
        mode: How the outcome was chosen.
        files: Files that had unsynced bytes or changed.
        returned: Names that the process had removed and that exist again.
        journal_entries_lost: Number of creations, renames, removals and size changes that were undone.
    """

    mode: str
    files: tuple[FileCut, ...]
    returned: tuple[str, ...]
    journal_entries_lost: int

    @property
    def unsynced_bytes(self) -> int:
        """Returns how many bytes could have been lost."""
        return sum(file.unsynced_bytes for file in self.files)

    @property
    def lost_bytes(self) -> int:
        """Returns how many bytes were lost."""
        return sum(file.lost_bytes for file in self.files)

    @property
    def took_effect(self) -> bool:
        """Whether anything that the process wrote was lost or undone."""
        return bool(self.lost_bytes or self.returned or self.journal_entries_lost)


def cut_power(disk: Device, mode: str, keep: dict[str, int]) -> PowerCutReport:
    """Replaces the content of a disk by the outcome of a power cut.

    Args:
        disk: The device.
        mode: One of `MODES`.
        keep: Exact outcomes for a scenario: path to length of the prefix of the *cached* content that survives.
            If the name of such a file is not durable yet, the whole journal survives.

    Raises:
        IllegalPowerCut: `keep` names a missing file, or would lose durable bytes.
        ValueError: There is no such mode.
    """
    if mode not in MODES:
        raise ValueError(f"no power cut mode is called {mode!r}; the modes are {', '.join(MODES)}")
    disk.settle()
    _check_keep(disk, keep)
    before = dict(disk.files)
    unsynced = {path: inode.unsynced_bytes() for path, inode in before.items()}
    _finish_some_syncs(disk, mode)
    entry_count = len(disk.journal)
    kept_entries = _kept_journal_entries(disk, mode, keep)
    disk.commit(disk.journal[:kept_entries])
    contents: dict[str, bytes] = {}
    for path in sorted(disk.names):
        inode = disk.names[path]
        if path in keep:
            contents[path] = inode.with_holes(bytes(inode.data[: keep[path]]))
        else:
            contents[path] = _outcome(inode, mode, disk.random)
    report = PowerCutReport(
        mode=mode,
        files=_file_cuts(before, unsynced, contents),
        returned=tuple(path for path in contents if path not in before),
        journal_entries_lost=entry_count - kept_entries,
    )
    disk.files.clear()
    disk.names.clear()
    for path, content in contents.items():
        disk.files[path] = disk.names[path] = Inode(content, durable_size=len(content))
    return report


def _check_keep(disk: Device, keep: dict[str, int]) -> None:
    for path, size in keep.items():
        inode = disk.files.get(path)
        if inode is None:
            raise IllegalPowerCut(f"{path} does not exist on {disk.node_name} and cannot be kept")
        floor = inode.durable_size if inode.durable is None else 0
        if not floor <= size <= len(inode.data):
            raise IllegalPowerCut(
                f"{path} on {disk.node_name} has {len(inode.data)} bytes, {floor} of them durable; "
                f"a power cut cannot leave {size}"
            )


def _finish_some_syncs(disk: Device, mode: str) -> None:
    """Chooses which syncs in flight count as completed: some of the oldest, since the device works in order.

    A rename after a blocking sync must not survive without the data of that sync. So a blocking sync counts as
    completed, unless everything after it is lost as well.
    """
    inflight = list(disk.syncs)
    if mode == "lose_all":
        done = 0
    elif mode == "keep_all":
        done = len(inflight)
    else:
        done = int(disk.random.random() * (len(inflight) + 1))
        blocking = [index for index, sync in enumerate(inflight) if sync.is_blocking]
        done = max(done, blocking[-1] + 1 if blocking else 0)
    for sync in inflight[:done]:
        disk.complete(sync)
    for sync in list(disk.syncs):
        disk.end_sync(sync)


def _kept_journal_entries(disk: Device, mode: str, keep: dict[str, int]) -> int:
    count = len(disk.journal)
    if mode == "keep_all":
        return count
    for path in sorted(keep):
        inode = disk.files[path]
        if disk.names.get(path) is not inode or inode.truncations:
            return count
    if mode == "lose_all":
        return 0
    return int(disk.random.random() * (count + 1))


def _outcome(inode: Inode, mode: str, random: Random) -> bytes:
    """Chooses the content of one file after the power cut."""
    if mode == "lose_all":
        return inode.durable_image()
    if (inode.truncations or inode.durable is not None) and not (
        inode.may_be_as_cut and random.random() < 0.5
    ):
        # Data written after a cut is not durable before the cut is committed. Until then, the old content is.
        return _outcome_without_cut(inode, mode, random)
    start, end = inode.durable_size, len(inode.data)
    if start >= end:
        return inode.durable_image()
    if mode == "keep_all":
        return inode.with_holes(bytes(inode.data))
    return inode.with_holes(_written_back(inode.data, start, inode.ends, mode, random))


def _outcome_without_cut(inode: Inode, mode: str, random: Random) -> bytes:
    image = inode.durable_image()
    undone = inode.undone_cut
    if undone is not None and len(undone.image) > len(image):
        image = _written_back(undone.image, len(image), undone.ends, mode, random)
    for patch in inode.patches:
        if random.random() < 0.5:
            image = patch.applied_to(image)
    return image


def _written_back(
    data: bytes | bytearray, start: int, ends: tuple[int, ...], mode: str, random: Random
) -> bytes:
    """Chooses how much of a file was written back. The first `start` bytes are durable."""
    if mode == "pages":
        return _some_pages(data, start, ends, random)
    step = SECTOR_BYTES if mode == "torn_sector" else PAGE_BYTES
    written = _some_boundary(start, len(data), step, ends, random)
    image = bytes(data[:written])
    if mode == "zero_tail":
        image += bytes(int(random.random() * (len(data) - written + 1)))
    elif mode == "torn_sector" and ends and random.random() < 0.5:
        # The block exists since the early write-back: its part of the page is followed by zeros.
        image += bytes(min(len(data), written + -written % PAGE_BYTES) - written)
    return image


def _some_boundary(start: int, end: int, step: int, ends: tuple[int, ...], random: Random) -> int:
    """Draws an offset at which write-back may have stopped.

    It is the start, a multiple of `step`, the end, or an end of the file at the beginning of a write-back.
    """
    first = start // step + 1  # the first boundary after the start, in steps
    inner = max(0, (end - 1) // step - first + 1)
    early = [at for at in ends if start < at < end and at % step]
    choice = int(random.random() * (inner + 2 + len(early)))
    if choice == 0:
        return start
    if choice == inner + 1:
        return end
    if choice > inner:
        return early[choice - inner - 2]
    return (first + choice - 1) * step


def _some_pages(
    data: bytes | bytearray, start: int, ends: tuple[int, ...], random: Random
) -> bytes:
    image = bytearray(data[:start])
    at = start
    while at < len(data):
        page_end = min(len(data), at - at % PAGE_BYTES + PAGE_BYTES)
        if random.random() < 0.5:
            image += bytes(at - len(image))
            early = [end for end in ends if at < end < page_end]
            image += data[at : random.choice([*early, page_end]) if early else page_end]
        at = page_end
    return bytes(image)


def _file_cuts(
    before: dict[str, Inode], unsynced: dict[str, int], after: dict[str, bytes]
) -> tuple[FileCut, ...]:
    cuts = []
    for path, inode in before.items():
        content = after.get(path)
        kept = _common_prefix(inode.data, content or b"")
        lost = len(inode.data) - kept
        if lost or unsynced[path] or content is None or len(content) != len(inode.data):
            cuts.append(
                FileCut(
                    path=path,
                    cached_bytes=len(inode.data),
                    unsynced_bytes=unsynced[path],
                    kept_bytes=kept,
                    lost_bytes=lost,
                    size_after=None if content is None else len(content),
                )
            )
    return tuple(cuts)


def _common_prefix(left: bytes | bytearray, right: bytes) -> int:
    """Returns how many leading bytes are equal."""
    length = min(len(left), len(right))
    if left[:length] == right[:length]:
        return length
    low, high = 0, length  # left[:low] agrees, left[:high] does not
    while high - low > 1:
        middle = (low + high) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle
    return low
