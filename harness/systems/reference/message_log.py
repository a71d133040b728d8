"""Reads the message logs of nodes of the reference system."""

from collections.abc import Iterator, Mapping, Sequence

from harness.contracts.messages import MESSAGES_FILE, MessageEnd, NodeClock, NodeMessages
from harness.contracts.system import Node
from system_under_test.real.message_log import (
    CONTINUES,
    OMITTED,
    REQUEST_ARRIVED,
    REQUEST_SENT,
    RESPONSE_ARRIVED,
    RESPONSE_SENT,
    older_name,
    read_lines,
)

MESSAGE_FILES = (older_name(MESSAGES_FILE), MESSAGES_FILE)
"""The files of a node, the older one first."""

_FIELDS = 8
_SENT = {REQUEST_SENT: True, REQUEST_ARRIVED: False, RESPONSE_SENT: True, RESPONSE_ARRIVED: False}
_IS_AT_CLIENT = (REQUEST_SENT, RESPONSE_ARRIVED)
_IS_RESPONSE = (RESPONSE_SENT, RESPONSE_ARRIVED)


def recorded_messages(
    node: Node, nodes: Sequence[Node], files: Mapping[str, bytes], clock: NodeClock
) -> NodeMessages:
    """Returns what a node recorded; see `harness.contracts.system.RecordsMessages`."""
    lines = [line for name in MESSAGE_FILES for line in read_lines(files.get(name, b""))]
    names = {other.address: other.name for other in nodes}
    ends = list(_ends(node, names, lines, clock))
    remarks = []
    complete_from_ns: int | None = 0
    if lines and lines[0] == CONTINUES:
        complete_from_ns = min((end.at_ns for end in ends), default=None)
        since = "" if complete_from_ns is None else f" before {complete_from_ns / 1e9:.3f} s"
        remarks.append(
            f"messages of {node.name}{since} are missing: the size of its record is limited"
        )
    if OMITTED in lines:
        complete_from_ns = None
        remarks.append(f"messages of {node.name} are missing: it could not write all of them")
    return NodeMessages(ends=ends, complete_from_ns=complete_from_ns, remarks=remarks)


def _ends(
    node: Node, names: Mapping[str, str], lines: Sequence[str], clock: NodeClock
) -> Iterator[MessageEnd]:
    for line in lines:
        fields = line.split("\t")
        if len(fields) != _FIELDS or fields[1] not in _SENT:
            continue
        at, what, client, server, client_id, correlation_id, kind, text = fields
        if not (at.isdecimal() and correlation_id.lstrip("-").isdecimal()):
            continue
        is_sent = _SENT[what]
        other = names.get(server, server) if what in _IS_AT_CLIENT else client_id
        yield MessageEnd(
            at_ns=clock.of_monotonic(int(at)),
            is_sent=is_sent,
            is_response=what in _IS_RESPONSE,
            src=node.name if is_sent else other,
            dst=other if is_sent else node.name,
            kind=kind,
            text=text,
            connection=f"{client} {server}",
            correlation_id=int(correlation_id),
        )
