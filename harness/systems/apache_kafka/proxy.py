"""The fault point of a node: a proxy before its listener (`system_under_test.real.proxy`)."""

import json
from collections.abc import Sequence
from functools import cache

from harness.contracts.system import EVENTS_FILE, Node
from harness.systems.apache_kafka.request_log import OBSERVER

PROXY_FILE = "fault-point-proxy.json"
FAULT_POINT_FILE = "fault-point.json"


def program_address(node: Node) -> str:
    """Returns where a node itself listens: an address of its host's loopback that no other node has."""
    return (
        f"127.77.{node.node_id >> 8 & 255}.{node.node_id & 255}:{node.address.rpartition(':')[2]}"
    )


def proxy_text(node: Node, nodes: Sequence[Node]) -> str:
    """Returns the text of the proxy's file."""
    data = {
        "name": node.name,
        "listen": node.address,
        "program": program_address(node),
        "nodes": {str(other.node_id): other.name for other in nodes},
        # What the harness reads to observe the cluster is no message of the cluster.
        "unseen": [OBSERVER],
        "fault_point": FAULT_POINT_FILE,
        "events": EVENTS_FILE,
    }
    return json.dumps(data, indent=2) + "\n"


@cache
def message_names() -> tuple[str, ...]:
    """Returns every message of Kafka's protocol: requests by their API, responses with "Response" after it."""
    from system_under_test.protocol.frames import API_NAMES

    return tuple(f"{name}{end}" for name in API_NAMES.values() for end in ("", "Response"))


@cache
def wholly_refusable() -> tuple[str, ...]:
    """Returns the class names of the requests whose response has an error of the whole."""
    from system_under_test.protocol.frames import refusable_apis

    return tuple(f"{name}Request" for name in refusable_apis())
