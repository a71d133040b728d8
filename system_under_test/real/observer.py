"""The observer door of a real machine: an event log, or nothing."""

import asyncio
import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Any

from system_under_test.real.events import format_event, record_to_text


class _Told:
    """What everybody who runs a node wants to read in its output: that a log became shorter, and why."""

    def log_cut(
        self, topic: str, partition: int, end_offset: int, size_bytes: int, reason: str
    ) -> None:
        """Says that a log was repaired when it was loaded."""
        _say(
            f"log {topic}-{partition} was cut when it was loaded: "
            f"it ends at offset {end_offset} now, {size_bytes} bytes are gone: {reason}"
        )

    def _tell_mark(self, name: str, details: dict[str, Any]) -> None:
        if name == "truncated":
            _say(
                f"log {details['topic']}-{details['partition']} was truncated from offset "
                f"{details['end_before']} to {details['end_after']}, as the leader of epoch "
                f"{details['leader_epoch']} has it; its high watermark was {details['high_watermark']}"
            )
        elif name == "metadata-truncated":
            _say(
                f"the metadata log was truncated from offset {details['log_end_offset']} "
                f"to {details['offset']}, as the quorum's leader has it"
            )


def _say(sentence: str) -> None:
    # A full disk below the output does not stop the node.
    with contextlib.suppress(OSError):
        print(f"laststand: {sentence}", file=sys.stderr, flush=True)


class EventLog(_Told):
    """Implements `runtime.observer.Observer`; writes the format of `events.py`.

    The file grows with what happens: about 200 bytes per metadata record, mark, and change of a replica's log end
    or high watermark. Nothing is held back or left out: a node whose power is cut has said how far its log had
    come, and the judgement of what it lost rests on that. It is for runs, which end; it is never rotated.

    Args:
        path: Appended to.
        node: Name of the node in every line.

    Attributes:
        lost_lines: Lines that could not be written (a full disk does not stop the node for the log's sake).
    """

    def __init__(self, path: Path, node: str) -> None:
        self._descriptor = os.open(
            path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644
        )
        self._node = node
        self._committed_ns = 0
        self.lost_lines = 0

    def say(self, event: str, **fields: Any) -> None:
        """Writes a line about the node itself."""
        self._write(time.monotonic_ns(), event, fields)

    def close(self) -> None:
        """Closes the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def mark(self, name: str, **details: Any) -> None:
        """Writes a rare branch."""
        self._tell_mark(name, details)
        self._write(time.monotonic_ns(), "mark", {"name": name, "details": details})

    def replica_changed(self, topic: str, partition: int, **state: Any) -> None:
        """Writes a change of a replica."""
        fields = {"topic": topic, "partition": partition, **state}
        self._write(time.monotonic_ns(), "replica", fields)

    def metadata_committed(self, offset: int, quorum_epoch: int, record: Any) -> None:
        """Writes a committed metadata record.

        Records that are committed together are told of one after the other, in one step of the loop; they get one
        time, because readers reason about what was committed at the same moment.
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


class NoEvents(_Told):
    """An event log that nobody wanted."""

    def say(self, event: str, **fields: Any) -> None:
        """Ignores it."""

    def close(self) -> None:
        """Does nothing."""

    def mark(self, name: str, **details: Any) -> None:
        """Tells what is told without an event log, too."""
        self._tell_mark(name, details)

    def replica_changed(self, topic: str, partition: int, **state: Any) -> None:
        """Ignores it."""

    def metadata_committed(self, offset: int, quorum_epoch: int, record: Any) -> None:
        """Ignores it."""


def open_events(path: Path | None, node: str) -> EventLog | NoEvents:
    """Returns the event log at a path, or one that ignores everything."""
    if path is None:
        return NoEvents()
    with contextlib.suppress(FileExistsError):
        path.parent.mkdir(parents=True)
    return EventLog(path, node)
