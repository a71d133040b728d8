"""The messages that nodes of a real run recorded, for the space-time diagram. No verdict depends on them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

MESSAGES_FILE = "messages.log"
"""Name of a node's record of its messages, beside its files, if it keeps one."""


class MessageEnd(NamedTuple):
    """One end of a message, as a node recorded it.

    Both ends of a message have the same `connection`, `correlation_id` and `is_response`.

    Attributes:
        at_ns: When the node sent or read it, in nanoseconds since the start of the run.
        is_sent: Whether the node sent it.
        is_response: Whether it is a response.
        src, dst: Names of nodes, or client ids.
        kind: Kind of message (`system_under_test.protocol.message_words`).
        text: What it says, in a few words.
        connection: The addresses of the connecting and of the accepting side; empty if the other end is recorded
            nowhere.
        correlation_id: Of the request.
    """

    at_ns: int
    is_sent: bool
    is_response: bool
    src: str
    dst: str
    kind: str
    text: str
    connection: str
    correlation_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMessages:
    """The messages that one node recorded.

    Attributes:
        ends: In any order.
        complete_from_ns: From this time of the run on, a message to this node that is not among `ends` was not
            read by it; None if that cannot be known.
        remarks: What is missing, one sentence each.
    """

    ends: Sequence[MessageEnd]
    complete_from_ns: int | None
    remarks: Sequence[str] = ()


class NodeClock(Protocol):
    """Converts what a node's clocks showed to nanoseconds since the start of the run."""

    def of_monotonic(self, at_ns: int) -> int:
        """Returns when the monotonic clock of the node's machine, which no fault moves, showed a time."""
        ...

    def of_wall(self, wall_ms: int, not_before_ns: int) -> int:
        """Returns when the node's wall clock showed a time, which a fault may have made it show twice.

        Args:
            wall_ms: Milliseconds since the Unix epoch.
            not_before_ns: Of several times the first one from here on is returned, less a tenth of a second.
        """
        ...
