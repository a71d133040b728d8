"""The observer of a real machine: an event log, or no log."""

import asyncio
import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Any

from system_under_test.real.events import format_event, record_to_text


class _LogChanges:
    """Reports on standard error that a log became shorter, and why; with and without an event log.

    What is for monitors in the simulation is ignored.
    """

    def log_cut(
        self, topic: str, partition: int, end_offset: int, size_bytes: int, reason: str
    ) -> None:
        """Reports that a log was repaired when it was loaded."""
        _print(
            f"log {topic}-{partition} was cut when it was loaded: "
            f"it now ends at offset {end_offset}, {size_bytes} bytes were removed: {reason}"
        )

    def leader_isr_changed(self, topic: str, partition: int) -> None:
        """Ignores it: only monitors in the simulation can inspect the leader."""

    def records_served(self, topic: str, partition: int, *served: Any) -> None:
        """Ignores it: only monitors in the simulation know what was committed."""

    def _print_truncation(self, name: str, details: dict[str, Any]) -> None:
        if name == "truncated":
            _print(
                f"log {details['topic']}-{details['partition']} was truncated from offset "
                f"{details['end_before']} to {details['end_after']} to match the leader of epoch "
                f"{details['leader_epoch']}; its high watermark was {details['high_watermark']}"
            )
        elif name == "metadata-truncated":
            _print(
                f"the metadata log was truncated from offset {details['log_end_offset']} "
                f"to {details['offset']} to match the quorum leader"
            )


def _print(sentence: str) -> None:
    # A full disk under the output must not stop the node.
    with contextlib.suppress(OSError):
        print(f"laststand: {sentence}", file=sys.stderr, flush=True)


class EventLog(_LogChanges):
    """Implements `runtime.observer.Observer`; writes the format of `events.py`.

    The file grows by about 200 bytes per metadata record, mark, and change of a replica's log end or high
    watermark. Nothing is buffered or omitted: after a power cut the log shows how far each replica had come,
    and checkers decide from that what it lost. The file is meant for runs of limited length and is never
    rotated.

    Args:
        path: The file; lines are appended.
        node: Name of the node in every line.

    Attributes:
        lost_lines: Number of lines that could not be written; a full disk does not stop the node.
    """

    def __init__(self, path: Path, node: str) -> None:
        self._descriptor = os.open(
            path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644
        )
        self._node = node
        self._committed_ns = 0
        self.lost_lines = 0

    def report(self, event: str, **fields: Any) -> None:
        """Writes an event of the node itself."""
        self._write(time.monotonic_ns(), event, fields)

    def close(self) -> None:
        """Closes the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def mark(self, name: str, **details: Any) -> None:
        """Writes a mark."""
        self._print_truncation(name, details)
        self._write(time.monotonic_ns(), "mark", {"name": name, "details": details})

    def replica_changed(self, topic: str, partition: int, **state: Any) -> None:
        """Writes a change of a replica."""
        fields = {"topic": topic, "partition": partition, **state}
        self._write(time.monotonic_ns(), "replica", fields)

    def metadata_committed(self, offset: int, quorum_epoch: int, record: Any) -> None:
        """Writes a committed metadata record.

        Records that are committed together are reported one after the other in one step of the loop. They get
        the same time, because readers of the log compare commit times.
        """
        if not self._committed_ns:
            self._committed_ns = time.monotonic_ns()
            asyncio.get_running_loop().call_soon(self._step_is_over)
        fields = {
            "offset": offset,
            "quorum_epoch": quorum_epoch,
            "record": record_to_text(offset, quorum_epoch, record),
        }
        self._write(self._committed_ns, "metadata", fields)

    def _step_is_over(self) -> None:
        self._committed_ns = 0

    def _write(self, at_ns: int, event: str, fields: dict[str, Any]) -> None:
        if self._descriptor < 0:
            return
        try:
            os.write(self._descriptor, format_event(at_ns, self._node, event, fields))
        except OSError:
            self.lost_lines += 1


class NoEvents(_LogChanges):
    """Writes no event log."""

    def report(self, event: str, **fields: Any) -> None:
        """Ignores it."""

    def close(self) -> None:
        """Does nothing."""

    def mark(self, name: str, **details: Any) -> None:
        """Reports truncations on standard error; ignores other marks."""
        self._print_truncation(name, details)

    def replica_changed(self, topic: str, partition: int, **state: Any) -> None:
        """Ignores it."""

    def metadata_committed(self, offset: int, quorum_epoch: int, record: Any) -> None:
        """Ignores it."""


def open_events(path: Path | None, node: str) -> EventLog | NoEvents:
    """Returns the event log at a path, or an observer without a log if the path is None."""
    if path is None:
        return NoEvents()
    with contextlib.suppress(FileExistsError):
        path.parent.mkdir(parents=True)
    return EventLog(path, node)
