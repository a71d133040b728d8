"""The timeouts of a group's members. They are not stored: a coordinator that takes over begins them anew.

Source:
    Kafka's `GroupMetadataManager` (`scheduleConsumerGroupSessionTimeout` and the like).
"""

from enum import StrEnum

from system_under_test.group.members import NEVER_MS


class Reason(StrEnum):
    """What a member did not do in time; every reason ends its membership."""

    SESSION = "session"
    """It sent no heartbeat."""
    REBALANCE = "rebalance"
    """It did not give up partitions within its rebalance timeout."""
    JOIN = "join"
    """It uses the classic protocol and did not join again."""
    SYNC = "sync"
    """It uses the classic protocol, joined, and did not ask for its assignment."""


class Deadlines:
    """Deadlines by member and reason. Mutable; times are in milliseconds."""

    def __init__(self) -> None:
        self._ends_ms: dict[tuple[str, Reason], int] = {}

    def set(self, member_id: str, reason: Reason, ends_ms: int) -> None:
        """Sets a deadline, or moves it."""
        self._ends_ms[(member_id, reason)] = ends_ms

    def set_if_absent(self, member_id: str, reason: Reason, ends_ms: int) -> None:
        """Sets a deadline that is not there yet."""
        self._ends_ms.setdefault((member_id, reason), ends_ms)

    def clear(self, member_id: str, *reasons: Reason) -> None:
        """Removes deadlines of a member: those of some reasons, or all."""
        for reason in reasons or Reason:
            self._ends_ms.pop((member_id, reason), None)

    def next_ms(self) -> int:
        """Returns the earliest deadline, `NEVER_MS` without one."""
        return min(self._ends_ms.values(), default=NEVER_MS)

    def take_due(self, now_ms: int) -> list[tuple[str, Reason]]:
        """Removes and returns what is over, the earliest first."""
        due = sorted((ends, key) for key, ends in self._ends_ms.items() if ends <= now_ms)
        for _, key in due:
            del self._ends_ms[key]
        return [key for _, key in due]
