"""Follows the event logs of real nodes while they grow, and hands the events on in the order of their time."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from system_under_test.real.events import Event, parse_event


class EventTail:
    """Reads several growing files of JSON lines.

    Args:
        paths: Event log by node name; a file may not exist yet.

    Attributes:
        damaged_lines: Lines that were no events. A node that is killed may leave its last line unfinished, and its
            successor continues right behind it.
    """

    def __init__(self, paths: Mapping[str, Path]) -> None:
        self._paths = dict(paths)
        self._descriptors: dict[str, int] = {}
        self._rest: dict[str, bytes] = dict.fromkeys(paths, b"")
        self._waiting: list[Event] = []
        self.damaged_lines = 0

    def read(self, until_ns: int) -> list[Event]:
        """Returns the events up to a time that were not returned before, in the order of their time.

        Nodes write at once but not in step: events younger than `until_ns` are kept, so that one that happened
        earlier elsewhere and is read later still comes first.
        """
        for name in self._paths:
            self._waiting.extend(self._read_one(name))
        self._waiting.sort(key=lambda event: event.at_ns)
        count = 0
        while count < len(self._waiting) and self._waiting[count].at_ns <= until_ns:
            count += 1
        due, self._waiting = self._waiting[:count], self._waiting[count:]
        return due

    def close(self) -> None:
        """Closes the files."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()

    def _read_one(self, name: str) -> list[Event]:
        descriptor = self._descriptors.get(name)
        if descriptor is None:
            try:
                descriptor = os.open(self._paths[name], os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return []
            self._descriptors[name] = descriptor
        data = self._rest[name]
        while chunk := os.read(descriptor, 1 << 20):
            data += chunk
        *lines, self._rest[name] = data.split(b"\n")
        events = []
        for line in lines:
            with contextlib.suppress(ValueError):
                events.append(parse_event(line))
                continue
            self.damaged_lines += 1
        return events
