"""The messages of a simulated run that matter in a part of it: who sent what to whom, and when it arrived.

`system_under_test/protocol/message_words.py` states which messages matter.
"""

from typing import Any

from system_under_test.protocol.message_words import meaning_of

MESSAGES_MAX = 5000
"""Messages that are kept; a diagram shows fewer, the nearest to its moment."""


class MessageRecorder:
    """Keeps what matters of a time. Implements `harness.simulation.timeline.MessageWatcher`.

    Args:
        begin_ns: From when on messages are kept, by the time at which they were sent.
        end_ns: Until when.
    """

    def __init__(self, begin_ns: int, end_ns: int) -> None:
        self._begin_ns = begin_ns
        self._end_ns = end_ns
        # The keys are objects, which must live as long as they are compared.
        self._on_the_way: dict[tuple[object, object], dict[str, Any]] = {}
        self._rows: list[dict[str, Any]] = []

    def sent(
        self, at_ns: int, key: tuple[object, object], src: str, dst: str, message: object
    ) -> None:
        """Notes a message that was sent."""
        if not self._begin_ns <= at_ns <= self._end_ns or key in self._on_the_way:
            return
        found = meaning_of(message)
        if found is None or len(self._rows) >= MESSAGES_MAX:
            return
        kind, text = found
        row = {
            "kind": kind,
            "src": src,
            "dst": dst,
            "text": text,
            "sent_ns": at_ns,
            "arrived_ns": None,
        }
        self._on_the_way[key] = row
        self._rows.append(row)

    def arrived(self, at_ns: int, key: tuple[object, object]) -> None:
        """Notes that a message arrived."""
        row = self._on_the_way.pop(key, None)
        if row is not None:
            row["arrived_ns"] = at_ns

    def rows(self) -> list[dict[str, Any]]:
        """Returns all messages in the order in which they were sent; `arrived_ns` is None for lost ones."""
        return list(self._rows)
