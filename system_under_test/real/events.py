"""The event log of a real node: the events of the observer interface as JSON lines.

    {"at_ns": 1, "node": "b1", "event": "started", "node_id": 1, "role": "broker", "pid": 7}
    {"at_ns": 2, "node": "b1", "event": "mark", "name": "elected-from-elr", "details": {...}}
    {"at_ns": 3, "node": "b1", "event": "replica", "topic": "t", "partition": 0, "log_end_offset": 9, ...}
    {"at_ns": 4, "node": "c11", "event": "metadata", "offset": 7, "quorum_epoch": 2, "record": "<hex>"}
    {"at_ns": 5, "node": "b1", "event": "clock", "wall_ms": 9, "monotonic_ns": 8}      the node's own clocks
    {"at_ns": 6, "node": "b1", "event": "metrics", "values": {...}, "gone": [...]}     those that changed
    {"at_ns": 7, "node": "b1", "event": "stopped"}      or  "failed" with an "error"

A node with a fault point (`fault_point.py`) also reports which version of its file it has read, what its rules did
so far, and the messages and fsyncs that it was asked for:

    {"at_ns": 8, "node": "b1", "event": "fault-point", "version": 3}
    {"at_ns": 9, "node": "b1", "event": "fault-acted", "rule": "f2", "count": 4}
    {"at_ns": 10, "node": "b1", "event": "message", "what": "sent", "name": "FetchResponse", "source": "b1", ...}
    {"at_ns": 11, "node": "b1", "event": "fsync"}

`at_ns` is CLOCK_MONOTONIC of the machine, never skewed: it is the harness's time, not the node's. A line is
written with one `write`, so after a kill all lines are complete, except perhaps the last.
"""

import json
from dataclasses import dataclass
from typing import Any

from system_under_test.metadata.records import MetadataRecord
from system_under_test.protocol.metadata_codec import decode_metadata_batches, encode_metadata_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line.

    Attributes:
        fields: All fields except time, node and kind.
    """

    at_ns: int
    node: str
    event: str
    fields: dict[str, Any]


def format_event(at_ns: int, node: str, event: str, fields: dict[str, Any]) -> bytes:
    """Returns one line with its line feed."""
    line = {"at_ns": at_ns, "node": node, "event": event, **fields}
    return json.dumps(line, separators=(",", ":"), default=str).encode() + b"\n"


def parse_event(line: bytes) -> Event:
    """Reads one line.

    Raises:
        ValueError: The line is not an event.
    """
    try:
        data = json.loads(line)
        at_ns, node, event = data.pop("at_ns"), data.pop("node"), data.pop("event")
    except (KeyError, AttributeError, TypeError, UnicodeDecodeError) as error:
        raise ValueError(f"not an event: {error}") from None
    if type(at_ns) is not int or not isinstance(node, str) or not isinstance(event, str):
        raise ValueError("not an event: time, node or kind has the wrong type")
    return Event(at_ns=at_ns, node=node, event=event, fields=data)


def record_to_text(offset: int, quorum_epoch: int, record: MetadataRecord) -> str:
    """Returns a committed metadata record as a batch of one, in hexadecimal."""
    return encode_metadata_batch(
        (record,), timestamp_ms=0, base_offset=offset, quorum_epoch=quorum_epoch
    ).hex()


def record_from_text(text: str) -> tuple[int, int, MetadataRecord]:
    """Reads what `record_to_text` wrote: offset, quorum epoch, record.

    Raises:
        ValueError: The text is not a metadata record.
    """
    (batch,) = decode_metadata_batches(bytes.fromhex(text))
    (record,) = batch.records
    return batch.base_offset, batch.quorum_epoch, record
