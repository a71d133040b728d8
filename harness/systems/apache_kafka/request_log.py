"""Reads the request logs of Kafka's nodes: the messages that matter, as far as Kafka records them.

    2026-11-23T11:32:54.508 Completed request:{"requestHeader":{...},"request":{...},"response":{...},
    "connection":"127.0.0.1:27709-127.0.0.1:60808-0-7","totalTimeMs":242.192,"sendTimeMs":0.283,...}

A line is written when a response has been sent (`kafka.request.logger` at DEBUG): so a node records when it read a
request and sent its response, never the other ends, and nothing about a request that it did not complete. Times
are those of the node's wall clock, in milliseconds.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from harness.contracts.messages import MESSAGES_FILE, MessageEnd, NodeClock, NodeMessages
from harness.contracts.system import Node
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.message_words import meaning_of

MESSAGE_FILES = (f"{MESSAGES_FILE}.1", MESSAGES_FILE)
"""The files of a node, the older one first."""

OBSERVER = "metadata-reader"
"""Client id of the harness's own reader of committed metadata, which is no client of a run."""

_LINE = re.compile(r"(\S{23}) Completed request:(\{.*\})\s*")
_TYPES = {
    "PRODUCE": "Produce",
    "FETCH": "Fetch",
    "ALTER_PARTITION": "AlterPartition",
    "BROKER_HEARTBEAT": "BrokerHeartbeat",
    "BROKER_REGISTRATION": "BrokerRegistration",
    "VOTE": "Vote",
    "BEGIN_QUORUM_EPOCH": "BeginQuorumEpoch",
}
"""Names of messages that may matter, by the name of the API in the log."""
_NODE_CLIENT = re.compile(r"(?:broker-)?(\d+)(?:-fetcher-\d+)?|raft-client-(\d+)")
"""Client ids of nodes: of replica fetchers, of the quorum, and of brokers towards controllers (the id alone)."""


def recorded_messages(
    node: Node, nodes: Sequence[Node], files: Mapping[str, bytes], clock: NodeClock
) -> NodeMessages:
    """Returns what a node recorded; see `harness.contracts.system.RecordsMessages`."""
    names = {other.node_id: other.name for other in nodes}
    ends: list[MessageEnd] = []
    now_ns = 0
    for name in MESSAGE_FILES:
        for line in files.get(name, b"").decode(errors="replace").splitlines():
            parsed = _parse(line)
            if parsed is None:
                continue
            wall_ms, entry = parsed
            now_ns = clock.of_wall(wall_ms, now_ns)
            ends += _ends(node, names, entry, now_ns)
    remarks = []
    if MESSAGE_FILES[0] in files:
        since_ns = min((end.at_ns for end in ends), default=0)
        remarks.append(
            f"messages of {node.name} before {since_ns / 1e9:.3f} s may be missing: the size of its "
            "request log is limited"
        )
    return NodeMessages(ends=ends, complete_from_ns=None, remarks=remarks)


def _parse(line: str) -> tuple[int, Mapping[str, Any]] | None:
    """Returns the time of a line in milliseconds since the epoch, and its content; None for another line."""
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    try:
        at = datetime.fromisoformat(found[1]).replace(tzinfo=UTC)
        entry = json.loads(found[2])
    except (ValueError, RecursionError):
        return None
    return round(at.timestamp() * 1000), entry


def _ends(
    node: Node, names: Mapping[int, str], entry: Mapping[str, Any], completed_ns: int
) -> Iterator[MessageEnd]:
    """Yields the request and the response of a line, if they matter and it has the form of such a line."""
    try:
        header = entry["requestHeader"]
        kind = _TYPES.get(header["requestApiKeyName"])
        client_id = str(header["clientId"])
        if kind is None or client_id == OBSERVER:
            return
        client = _name_of(client_id, names)
        took_ns, sending_ns = (
            int(float(entry[key]) * 1e6) for key in ("totalTimeMs", "sendTimeMs")
        )
        for is_response in (False, True):
            part = "response" if is_response else "request"
            found = meaning_of(_Fields(entry[part]), f"{kind}{part.capitalize()}")
            if found is None:
                continue
            yield MessageEnd(
                at_ns=max(completed_ns - (sending_ns if is_response else took_ns), 0),
                is_sent=is_response,
                is_response=is_response,
                src=node.name if is_response else client,
                dst=client if is_response else node.name,
                kind=found[0],
                text=found[1],
                connection="",
                correlation_id=int(header["correlationId"]),
            )
    except (KeyError, TypeError, ValueError):
        return


def _name_of(client_id: str, names: Mapping[int, str]) -> str:
    found = _NODE_CLIENT.fullmatch(client_id)
    return client_id if found is None else names.get(int(found[1] or found[2]), client_id)


class _Fields:
    """A message in Kafka's JSON, with the fields that the codec's messages have."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data

    def __getattr__(self, name: str) -> Any:
        first, *rest = name.split("_")
        key = first + "".join(word.capitalize() for word in rest)
        if name == "records":
            return self._data.get("recordsSizeInBytes", 0)
        if name == "diverging_epoch":
            return _Fields(self._data.get(key) or {"epoch": -1})
        if name == "new_isr_with_epochs" and key not in self._data:
            return [_Fields({"brokerId": broker}) for broker in self._data.get("newIsr", ())]
        if key not in self._data:
            raise AttributeError(name)
        return _value(name, self._data[key])


def _value(name: str, value: Any) -> Any:
    if name == "error_code":
        try:
            return ErrorCode(value)
        except ValueError:
            return value
    if name == "topic_id":
        try:
            return UUID(bytes=base64.urlsafe_b64decode(f"{value}=="))
        except (ValueError, binascii.Error):
            return None
    if isinstance(value, list):
        return [_Fields(one) if isinstance(one, dict) else one for one in value]
    return _Fields(value) if isinstance(value, dict) else value
