"""Reads the log segments that brokers and controllers of Apache Kafka keep in their files."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from harness.contracts.system import NodeFiles
from system_under_test.protocol.record_batch import HEADER_BYTES, MAGIC

SEGMENT_SUFFIX = ".log"
CHUNK_BYTES = 1 << 16
VERIFIED_BYTES_MAX = 1 << 24

_START = Struct(">qiibIhi")
"""Base offset, length, leader epoch, magic, checksum, attributes, last offset delta."""
_BEFORE_LENGTH_ENDS = 12
_CRC_END = 21

LOG_DIRECTORIES = ("",)
"""Where a node keeps its logs, relative to its data directory: directly in it unless it has several."""


def log_directory(
    files: NodeFiles, name: str, log_directories: Sequence[str] = LOG_DIRECTORIES
) -> tuple[str, list[str]]:
    """Returns the directory of a log, and the names of its segments in order; no names if there is none.

    Args:
        files: Of the node.
        name: Topic and partition, for example "t-0".
        log_directories: Where logs may be.

    Raises:
        OSError: A directory cannot be read.
    """
    directory = name
    for parent in log_directories:
        directory = f"{parent}/{name}" if parent else name
        # Names are base offsets of equal width, so this is the order of the offsets.
        found = sorted(each for each in files.list(directory) if each.endswith(SEGMENT_SUFFIX))
        if found:
            return directory, found
    return directory, []


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """What the files of a log show.

    Attributes:
        end: Log end offset.
        kept: Up to which offset the log is what it was when it was read before; less than the end of that reading
            if the log was truncated meanwhile, even if it has grown again. The same as `end` at the first reading.
    """

    end: int
    kept: int


@dataclass(slots=True, kw_only=True)
class _Scan:
    """What is known of the last segment. Mutable.

    Attributes:
        directory, name: The segment.
        verifies: Whether the checksums of batches are verified.
        verified_from: From which position on.
        end: Offset after the last whole batch.
        last_position: Where the last whole batch begins, -1 before the first.
        last_header: Its header as bytes.
        next_position: Where the next batch begins.
        epochs: First offset and epoch of every run of batches of one leader epoch.
    """

    directory: str
    name: str
    end: int
    verifies: bool = False
    verified_from: int = 0
    last_position: int = -1
    last_header: bytes = b""
    next_position: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=list)


class LogTail:
    """Follows the end of one log through the headers of its batches. Mutable.

    Only headers that were not seen before are read, except after a truncation.

    Args:
        name: Topic and partition.
        log_directories: Where the node keeps its logs.
    """

    def __init__(self, name: str, log_directories: Sequence[str] = LOG_DIRECTORIES) -> None:
        self._name = name
        self._log_directories = tuple(log_directories)
        self._scan: _Scan | None = None
        self._was_read = False
        self._verifies = False
        self._must_rescan = False

    def restarted(self) -> None:
        """Reads the last segment again from its start, and verifies checksums from now on.

        A crash may leave batches whose content is damaged; the node cuts them off before it serves the log.
        """
        self._verifies = self._must_rescan = True

    def served(self) -> None:
        """Reads headers only from now on: the node serves the log, so it has cut off what was damaged."""
        self._verifies = False
        if self._scan is not None:
            self._scan.verifies = False

    def read(self, files: NodeFiles) -> LogState | None:
        """Returns the state of the log; None if there is no log.

        Raises:
            OSError: A file cannot be read.
        """
        old = self._scan
        directory, names = log_directory(files, self._name, self._log_directories)
        if not names:
            self._scan = None
            return None
        was_read, self._was_read = self._was_read, True
        if (
            old is not None
            and not self._must_rescan
            and (old.directory, old.name) == (directory, names[-1])
            and self._is_kept(files, old)
        ):
            before = old.end
            _continue(files, old)
            return LogState(end=old.end, kept=before)
        new = _Scan(
            directory=directory,
            name=names[-1],
            end=int(names[-1][: -len(SEGMENT_SUFFIX)]),
            verifies=self._verifies,
        )
        self._must_rescan = False
        if new.verifies:
            # What a crash can damage was written last.
            headers = replace(new, verifies=False, epochs=[])
            _continue(files, headers)
            new.verified_from = max(headers.next_position - VERIFIED_BYTES_MAX, 0)
        _continue(files, new)
        self._scan = new
        if old is None:
            return LogState(end=new.end, kept=0 if was_read else new.end)
        return LogState(end=new.end, kept=_common_end(files, old, new, names))

    def _is_kept(self, files: NodeFiles, scan: _Scan) -> bool:
        """Whether the last batch is still where it was."""
        if scan.last_position < 0:
            return True
        path = f"{scan.directory}/{scan.name}"
        return files.read(path, HEADER_BYTES, scan.last_position) == scan.last_header


def _continue(files: NodeFiles, scan: _Scan) -> None:
    """Reads the headers that follow, up to the first batch that is not whole."""
    path = f"{scan.directory}/{scan.name}"
    while True:
        start = scan.next_position
        chunk = files.read(path, CHUNK_BYTES, start)
        position = 0
        while len(chunk) - position >= HEADER_BYTES:
            header = _header(chunk, position)
            if header is None:
                return
            end = position + header.size_bytes
            # The last byte of a batch that is longer than the chunk shows that the batch is whole.
            if end > len(chunk) and not files.read(path, 1, start + end - 1):
                return
            if (
                scan.verifies
                and start + position >= scan.verified_from
                and not _is_intact(files, path, start, chunk, position, header)
            ):
                return
            scan.last_position = start + position
            scan.last_header = chunk[position : position + HEADER_BYTES]
            scan.end = header.last_offset + 1
            if not scan.epochs or scan.epochs[-1][1] != header.leader_epoch:
                scan.epochs.append((header.base_offset, header.leader_epoch))
            position = end
            scan.next_position = start + end
        if position == 0 or len(chunk) < CHUNK_BYTES:
            return


class _Header(NamedTuple):
    """The part of a batch header that matters here."""

    base_offset: int
    size_bytes: int
    leader_epoch: int
    checksum: int
    last_offset: int


def _header(chunk: bytes, position: int) -> _Header | None:
    """Returns the header at a position, None if there is none; the batch may be longer than the chunk."""
    base_offset, length, epoch, magic, checksum, _, delta = _START.unpack_from(chunk, position)
    size = _BEFORE_LENGTH_ENDS + length
    if size < HEADER_BYTES or magic != MAGIC or base_offset < 0 or delta < 0:
        return None
    return _Header(base_offset, size, epoch, checksum, base_offset + delta)


def _is_intact(
    files: NodeFiles, path: str, start: int, chunk: bytes, position: int, header: _Header
) -> bool:
    """Whether the batch at a position of a chunk matches its checksum."""
    data = chunk[position : position + header.size_bytes]
    if len(data) < header.size_bytes:
        # It is longer than the chunk. The others are not read again: a restarted broker has thousands of batches.
        data = files.read(path, header.size_bytes, start + position)
    return len(data) == header.size_bytes and crc32c(data[_CRC_END:]) == header.checksum


def _common_end(files: NodeFiles, old: _Scan, new: _Scan, names: Sequence[str]) -> int:
    """Returns the offset up to which two readings of a log are the same.

    A record is identified by its offset and leader epoch.
    """
    if (old.directory, old.name) != (new.directory, new.name):
        if old.name not in names or old.directory != new.directory:
            # Another copy of the log, or the last segment is gone: only what lay before both is certain.
            return min(int(scan.name[: -len(SEGMENT_SUFFIX)]) for scan in (old, new))
        # The log has a new segment. The old one is what it was, unless it was truncated before that.
        again = _Scan(
            directory=old.directory, name=old.name, end=int(old.name[: -len(SEGMENT_SUFFIX)])
        )
        _continue(files, again)
        new = again
    end = min(old.end, new.end)
    for offset in sorted({start for start, _ in (*old.epochs, *new.epochs)}):
        if offset < end and _epoch_at(old, offset) != _epoch_at(new, offset):
            return offset
    return end


def _epoch_at(scan: _Scan, offset: int) -> int:
    found = -1
    for start, epoch in scan.epochs:
        if start > offset:
            break
        found = epoch
    return found
