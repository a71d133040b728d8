"""The real-time check in time order: a second, independent form of condition C6.

Events are walked as they happen. `known_end` is one more than the largest offset that any completed operation
proved to exist. It is noted when an operation is invoked; as soon as that operation turns out to need an offset
not to exist yet (an append its own offset, an observation the log end), this offset must not be below the note.

The form keeps no state per offset, only per open or unresolved operation, so it can watch a run and stop it at the
first violation. It shares no code with the array form; the two must agree on every history.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """An operation that needed an offset to be absent that had been proven to exist before its invocation.

    Attributes:
        op: The operation that came too late.
        offset: The offset that it needed to be absent.
        known_end: One more than the largest offset proven before its invocation.
        is_append: Whether `op` is an append (breaks `order`) or an observation (breaks `fresh`).
    """

    op: int
    offset: int
    known_end: int
    is_append: bool


class LiveMonitor:
    """Checks real time while a history grows.

    Call the methods in order of time; of an invocation and a completion at the same time, the invocation first
    (equal times are concurrent). The object is a mutable state machine and keeps every violation it saw.
    """

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self._known_end = 0
        self._noted: dict[int, int] = {}
        self._is_append: dict[int, bool] = {}

    def invoke(self, op: int, *, is_append: bool) -> None:
        """Notes what is known to exist when an operation begins."""
        self._noted[op] = self._known_end
        self._is_append[op] = is_append

    def place(self, op: int, offset: int) -> None:
        """Learns the place of an append, from its acknowledgement or from a read of its value."""
        noted = self._noted.get(op)
        if noted is not None and offset < noted:
            self._report(op, offset, noted)

    def observe_end(self, op: int, end_offset: int) -> None:
        """Learns the log end that an operation received."""
        noted = self._noted.get(op)
        if noted is not None and end_offset < noted:
            self._report(op, end_offset, noted)

    def prove(self, offset: int) -> None:
        """Learns that an operation completed which proves that an offset exists."""
        self._known_end = max(self._known_end, offset + 1)

    def forget(self, op: int) -> None:
        """Drops an operation that is completed and whose place is known."""
        self._noted.pop(op, None)
        self._is_append.pop(op, None)

    def _report(self, op: int, offset: int, noted: int) -> None:
        self.violations.append(
            Violation(op=op, offset=offset, known_end=noted, is_append=self._is_append[op])
        )
