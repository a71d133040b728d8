"""Makes messages of what nodes recorded: both ends of a message become one row of `messages.parquet`."""

from collections.abc import Iterable, Mapping
from typing import Any

from harness.contracts.messages import MessageEnd, NodeMessages

CLOCK_ERROR_NS = 1_000_000_000
"""How much earlier than it was sent a message may seem to have arrived, where hosts have clocks of their own."""

_Key = tuple[str, int, bool]
Row = dict[str, Any]


def match_messages(recorded: Mapping[str, NodeMessages]) -> list[Row]:
    """Returns the messages in the order of time.

    A message of which a node recorded that it was sent is lost if the receiver is a node whose record of that time
    is complete and does not have it. A client records nothing, so no message to a client counts as lost.

    Args:
        recorded: What each node recorded, by its name.
    """
    rows = _matched(end for name in sorted(recorded) for end in recorded[name].ends)
    for row in rows:
        receiver = recorded.get(row["dst"])
        if row["arrived_ns"] is None and receiver is not None:
            since_ns = receiver.complete_from_ns
            row["lost"] = since_ns is not None and row["sent_ns"] >= since_ns
    return rows


def _matched(ends: Iterable[MessageEnd]) -> list[Row]:
    rows: list[Row] = []
    sent: dict[_Key, list[Row]] = {}
    arrived: dict[_Key, list[Row]] = {}
    for end in sorted(ends, key=_order):
        key = (end.connection, end.correlation_id, end.is_response)
        others = arrived if end.is_sent else sent
        # The newest one: an older connection may have had the same port, and its message may be lost.
        other = others[key].pop() if end.connection and others.get(key) else None
        column = "sent_ns" if end.is_sent else "arrived_ns"
        if other is not None and (
            not end.is_sent or end.at_ns - other["arrived_ns"] <= CLOCK_ERROR_NS
        ):
            other[column] = end.at_ns
            continue
        row = _row(end, column)
        rows.append(row)
        if end.connection:
            (sent if end.is_sent else arrived).setdefault(key, []).append(row)
    rows.sort(key=_time)
    return rows


def _row(end: MessageEnd, column: str) -> Row:
    return {
        "kind": end.kind,
        "src": end.src,
        "dst": end.dst,
        "text": end.text,
        "sent_ns": None,
        "arrived_ns": None,
        "lost": False,
        column: end.at_ns,
    }


def _order(end: MessageEnd) -> tuple[int, bool, MessageEnd]:
    return end.at_ns, not end.is_sent, end


def _time(row: Row) -> tuple[int, str, str, str]:
    at_ns = row["arrived_ns"] if row["sent_ns"] is None else row["sent_ns"]
    return at_ns, row["src"], row["dst"], row["text"]
