"""The observer door of a real machine: an event log, or nothing."""

import asyncio
import contextlib
import os
import time
from pathlib import Path
from typing import Any

from system_under_test.real.events import format_event, record_to_text

REPLICA_INTERVAL_S = 0.05
"""A replica's log end and high watermark are written at most this often; changes of its role or epoch at once."""


class EventLog:
    """Implements `runtime.observer.Observer`; writes the format of `events.py`.

    The file grows with what happens: about 200 bytes per metadata record and mark, and up to 20 lines a second
    for each replica that is written to. It is for runs, which end; it is never rotated.

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
        self._known: dict[tuple[str, int], tuple[str, int]] = {}
        self._waiting: dict[tuple[str, int], tuple[int, dict[str, Any]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.lost_lines = 0

    def say(self, event: str, **fields: Any) -> None:
        """Writes a line about the node itself."""
        self._flush()
        self._write(time.monotonic_ns(), event, fields)

    def close(self) -> None:
        """Writes what waits and closes the file."""
        self._flush()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def mark(self, name: str, **details: Any) -> None:
        """Writes a rare branch."""
        self._write(time.monotonic_ns(), "mark", {"name": name, "details": details})

    def replica_changed(self, topic: str, partition: int, **state: Any) -> None:
        """Writes a change of role or epoch at once, of others the last one of each replica a little later."""
        key = (topic, partition)
        fields = {"topic": topic, "partition": partition, **state}
        now_ns = time.monotonic_ns()
        situation = (state["role"], state["leader_epoch"])
        if self._known.get(key) != situation or state["cause"] == "truncate":
            self._known[key] = situation
            self._flush()
            self._write(now_ns, "replica", fields)
            return
        self._waiting[key] = (now_ns, fields)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(REPLICA_INTERVAL_S, self._flush)

    def metadata_committed(self, offset: int, quorum_epoch: int, record: Any) -> None:
        """Writes a committed metadata record."""
        fields = {
            "offset": offset,
            "quorum_epoch": quorum_epoch,
            "record": record_to_text(offset, quorum_epoch, record),
        }
        self._write(time.monotonic_ns(), "metadata", fields)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, {}
        for at_ns, fields in waiting.values():
            self._write(at_ns, "replica", fields)

    def _write(self, at_ns: int, event: str, fields: dict[str, Any]) -> None:
        if self._descriptor < 0:
            return
        try:
            os.write(self._descriptor, format_event(at_ns, self._node, event, fields))
        except OSError:
            self.lost_lines += 1


class NoEvents:
    """An event log that nobody wanted."""

    def say(self, event: str, **fields: Any) -> None:
        """Ignores it."""

    def close(self) -> None:
        """Does nothing."""

    def mark(self, name: str, **details: Any) -> None:
        """Ignores it."""

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
