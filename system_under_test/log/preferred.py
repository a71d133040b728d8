"""Where an administrator wants logs that do not exist yet (KIP-113)."""

from collections.abc import Sequence
from uuid import UUID

from system_under_test.log.directory import LogDirectory

PREFERRED_MAX = 10_000
"""Requests may name partitions that never come, so the oldest are forgotten. Kafka has no limit."""


class PreferredDirectories:
    """Remembers the directory of a log that is created later; in memory only, as in Kafka. Mutable."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, int], str] = {}

    def remember(self, key: tuple[str, int], name: str) -> None:
        """Notes the name of the directory in which to create a log; the newest request counts."""
        self._names.pop(key, None)
        self._names[key] = name
        if len(self._names) > PREFERRED_MAX:
            del self._names[next(iter(self._names))]

    def name_of(self, key: tuple[str, int]) -> str:
        """Returns the name of the directory for a new log, "" if any will do."""
        return self._names.get(key, "")

    def choose(
        self, key: tuple[str, int], assigned: UUID, online: Sequence[LogDirectory]
    ) -> LogDirectory | None:
        """Returns the preferred directory of a new log, or else the assigned one; None if it is not online.

        A preference that could be followed is forgotten.

        Args:
            key: Topic and number of the partition.
            assigned: The directory that the metadata name, or a reserved id.
            online: The directories that can be used.
        """
        name = self.name_of(key)
        for directory in online:
            if directory.name == name if name else directory.directory_id == assigned:
                self._names.pop(key, None)
                return directory
        return None
