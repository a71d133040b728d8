"""What the agent needs to know about a broker's files: which are partition logs, and where batches begin.

Only the fixed beginning of a record batch is read: base offset (8 bytes) and length of the rest (4). The checksum
covers a batch from its byte 21 on; a bit that is flipped before that byte might go unnoticed.

Source: Kafka's record batch format, version 2.
"""

import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

METADATA_TOPIC = "__cluster_metadata"
LOG_SUFFIX = ".log"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
CHECKSUMMED_FROM = 21
BATCH_HEADER_BYTES = 61

_START = struct.Struct(">qi")

ReadAt = Callable[[int, int], bytes]


@dataclass(frozen=True, slots=True)
class BatchPlace:
    """One whole batch of a file."""

    position: int
    size_bytes: int
    base_offset: int


def is_partition_log(path: str) -> bool:
    """Whether a file is a segment of a partition that clients write to."""
    folder = os.path.basename(os.path.dirname(path))
    topic, _, index = folder.rpartition("-")
    return (
        path.endswith(LOG_SUFFIX)
        and bool(topic)
        and index.isdecimal()
        and not folder.startswith(METADATA_TOPIC)
    )


def batches(read_at: ReadAt, size: int) -> Iterator[BatchPlace]:
    """Yields the whole batches of a file from its start up to the first torn or invalid one.

    Args:
        read_at: Returns bytes of the file: offset, length.
        size: Its length.
    """
    position = 0
    last_base = -1
    while position + BATCH_HEADER_BYTES <= size:
        base_offset, length = _START.unpack(read_at(position, _START.size))
        size_bytes = _START.size + length
        if (
            size_bytes < BATCH_HEADER_BYTES
            or position + size_bytes > size
            or base_offset <= last_base
        ):
            return
        yield BatchPlace(position, size_bytes, base_offset)
        position += size_bytes
        last_base = base_offset


def bytes_of_records(read_at: ReadAt, size: int, keep_records: int, torn_bytes: int) -> int:
    """Returns the length that keeps the batches below an offset, and some bytes of what follows them."""
    for batch in batches(read_at, size):
        if batch.base_offset >= keep_records:
            return min(batch.position + torn_bytes, size)
    return size


def newest_segment_of_largest_log(root: Path, pattern: str = "") -> Path | None:
    """Returns the newest segment with data of the partition log that has the most bytes; None if there is none.

    The metadata log is not a partition log. Of several logs of the same size, the first by name counts.

    Args:
        root: The node's files.
        pattern: Which files are segments, relative to `root`; "" if they are Kafka's.
    """
    logs: dict[Path, list[Path]] = {}
    for path in _segments(root, pattern):
        if path.stat().st_size:
            logs.setdefault(path.parent, []).append(path)
    if not logs:
        return None
    largest = max(logs.values(), key=lambda paths: sum(path.stat().st_size for path in paths))
    return largest[-1]


def _segments(root: Path, pattern: str) -> list[Path]:
    """Returns the segments of all partition logs, of each log the oldest first."""
    if pattern:
        # Numbers in names may have no leading zeros.
        found = sorted(
            root.glob(pattern), key=lambda path: (path.parent, len(path.name), path.name)
        )
        return [path for path in found if path.is_file()]
    return [
        path
        for path in sorted(root.rglob("*" + LOG_SUFFIX))
        if path.is_file() and is_partition_log(os.fspath(path))
    ]


def recovery_points(directory: Path) -> dict[str, int]:
    """Returns the checkpointed recovery points of a log directory, by name of the partition's folder."""
    points = {}
    try:
        lines = (directory / RECOVERY_POINTS).read_text(encoding="ascii").splitlines()
        for line in lines[2:]:
            topic, index, offset = line.split(" ")
            points[f"{topic}-{int(index)}"] = int(offset)
    except (OSError, ValueError):
        return {}
    return points


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipPlace:
    """Where a bit can be flipped so that a reader of the file must detect it.

    Attributes:
        ranges: Byte ranges [start, end) that a checksum covers.
    """

    path: Path
    ranges: tuple[tuple[int, int], ...]


def choose_flip(root: Path, random: Random, pattern: str = "") -> tuple[FlipPlace, int, int] | None:
    """Chooses a bit of a partition log beyond its recovery point, where recovery has to read.

    Data below the recovery point was durable once; a flipped bit there need not be detected before it is read.
    Nothing is known of other systems' files, so of those any bit is chosen.

    Args:
        root: The node's files.
        random: Chooses.
        pattern: Which files are segments, relative to `root`; "" if they are Kafka's.

    Returns:
        The place, the byte's offset in the file and the bit; None if there is no whole batch there.
    """
    places = _whole_files(root, pattern) if pattern else list(_flip_places(root))
    if not places:
        return None
    place = random.choice(places)
    drawn = random.randrange(sum(end - start for start, end in place.ranges))
    for start, end in place.ranges:
        if drawn < end - start:
            return place, start + drawn, random.randrange(8)
        drawn -= end - start
    raise AssertionError("drawn beyond the ranges")


def _whole_files(root: Path, pattern: str) -> list[FlipPlace]:
    sizes = {path: path.stat().st_size for path in _segments(root, pattern)}
    return [FlipPlace(path=path, ranges=((0, size),)) for path, size in sizes.items() if size]


def _flip_places(root: Path) -> Iterator[FlipPlace]:
    points_of: dict[Path, dict[str, int]] = {}
    for path in _segments(root, ""):
        directory = path.parent.parent
        if directory not in points_of:
            points_of[directory] = recovery_points(directory)
        point = points_of[directory].get(
            path.parent.name, 0
        )  # unknown: recovery begins at the start
        ranges = tuple(
            (batch.position + CHECKSUMMED_FROM, batch.position + batch.size_bytes)
            for batch in _batches_of(path)
            if batch.base_offset >= point
        )
        if ranges:
            yield FlipPlace(path=path, ranges=ranges)


def _batches_of(path: Path) -> Iterator[BatchPlace]:
    with open(path, "rb") as file:
        descriptor = file.fileno()
        yield from batches(
            lambda offset, length: os.pread(descriptor, length, offset),
            os.fstat(descriptor).st_size,
        )
