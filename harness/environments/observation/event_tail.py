"""Follows the event logs of real nodes while they grow, and returns the events in the order of their time."""

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from harness.contracts.system import Event, EventSource


class LocalFiles:
    """Event logs that are files of this machine.

    Args:
        paths: Event log by node name; a file may not exist yet.
    """

    def __init__(self, paths: Mapping[str, Path]) -> None:
        self._paths = dict(paths)
        self._descriptors: dict[str, int] = {}

    async def read(self) -> dict[str, bytes]:
        """Returns what was added to each node's log since the last call."""
        return {name: data for name in self._paths if (data := self._read_one(name))}

    def time_of(self, node: str, at_ns: int) -> int:
        """Returns the time unchanged: it is this machine's."""
        return at_ns

    def close(self) -> None:
        """Closes the files."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()

    def _read_one(self, name: str) -> bytes:
        descriptor = self._descriptors.get(name)
        if descriptor is None:
            try:
                descriptor = os.open(self._paths[name], os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return b""
            self._descriptors[name] = descriptor
        chunks = []
        while chunk := os.read(descriptor, 1 << 20):
            chunks.append(chunk)
        return b"".join(chunks)


class JoinedSources:
    """Several sources as one; each keeps its own time.

    Args:
        sources: They may report events of the same nodes.
    """

    def __init__(self, *sources: EventSource) -> None:
        self._sources = sources

    async def read(self) -> dict[str, bytes]:
        """Returns what was added to each log since the last call; a log is named by its source and its node."""
        added = {}
        for number, source in enumerate(self._sources):
            for node, data in (await source.read()).items():
                added[f"{number}/{node}"] = data
        return added

    def time_of(self, node: str, at_ns: int) -> int:
        """Returns the time of a log's event on this machine's monotonic clock."""
        number, _, name = node.partition("/")
        return self._sources[int(number)].time_of(name, at_ns)

    def close(self) -> None:
        """Lets go of all logs."""
        for source in self._sources:
            source.close()


class EventTail:
    """Puts the events of several growing logs in the order of their time.

    Args:
        source: The logs.
        parse: Reads one line; raises `ValueError` if it is not an event.

    Attributes:
        damaged_lines: Lines that were not events. A killed node may leave its last line unfinished, and its
            successor continues right behind it.
    """

    def __init__(self, source: EventSource, parse: Callable[[bytes], Event]) -> None:
        self._source = source
        self._parse_line = parse
        self._rest: dict[str, bytes] = {}
        self._waiting: list[Event] = []
        self.damaged_lines = 0

    async def read(self, until_ns: int) -> list[Event]:
        """Returns the events up to a time that were not returned before, in the order of their time.

        Nodes write at the same time but not in step: events younger than `until_ns` are held back, so that an
        earlier event of another node that is read later still comes first.
        """
        for name, data in (await self._source.read()).items():
            self._waiting.extend(self._parse(name, data))
        self._waiting.sort(key=lambda event: event.at_ns)
        count = 0
        while count < len(self._waiting) and self._waiting[count].at_ns <= until_ns:
            count += 1
        due, self._waiting = self._waiting[:count], self._waiting[count:]
        return due

    def close(self) -> None:
        """Lets go of the logs."""
        self._source.close()

    def _parse(self, name: str, data: bytes) -> list[Event]:
        *lines, self._rest[name] = (self._rest.get(name, b"") + data).split(b"\n")
        events = []
        for line in lines:
            with contextlib.suppress(ValueError):
                event = self._parse_line(line)
                at_ns = self._source.time_of(name, event.at_ns)
                events.append(
                    Event(at_ns=at_ns, node=event.node, event=event.event, fields=event.fields)
                )
                continue
            self.damaged_lines += 1
        return events
