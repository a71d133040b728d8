"""Malformed frames, APIs and versions that do not exist, and APIs that only Apache Kafka serves."""

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from harness.conformance.connection import SILENCE_LIMIT_S
from harness.conformance.probe import READ_TOPIC, Case, Probe
from harness.conformance.wire import framed, request_frame

_METADATA = {"topics": [{"name": READ_TOPIC}]}


def _header(key: int, version: int, rest: bytes = b"") -> bytes:
    """A request header of version 1 with the client id "x", and what follows."""
    return framed(struct.pack(">hhih", key, version, 7, 1) + b"x" + rest)


def _cut(data: bytes, count: int) -> bytes:
    return framed(data[4:-count])


def _extended(data: bytes, more: bytes) -> bytes:
    return framed(data[4:] + more)


def _metadata_frame() -> bytes:
    return request_frame("metadata", 12, _METADATA)


FRAMES: Mapping[str, Callable[..., bytes]] = {
    "size 0": lambda: b"\0\0\0\0",
    "size -1": lambda: b"\xff\xff\xff\xff",
    "size 2^31 - 1": lambda: b"\x7f\xff\xff\xff",
    "size 101 MB": lambda: struct.pack(">i", 101 << 20),
    "size 1": lambda: framed(b"\0"),
    "garbage": lambda: framed(b"\x7e" * 32),
    "zeros": lambda: framed(bytes(32)),
    "metadata cut by 3 bytes": lambda: _cut(_metadata_frame(), 3),
    "metadata with 4 bytes more": lambda: _extended(_metadata_frame(), b"\1\2\3\4"),
    "metadata v1, 2^31 - 1 topics": lambda: _header(3, 1, b"\x7f\xff\xff\xff"),
    "metadata v1, -2 topics": lambda: _header(3, 1, struct.pack(">i", -2)),
    "metadata v1, null topics": lambda: _header(3, 1, struct.pack(">i", -1)),
    "metadata v1, name that is not UTF-8": lambda: _header(
        3, 1, struct.pack(">ih", 1, 2) + b"\xff\xfe"
    ),
    "only a header": lambda: _header(3, 12),
    "null client id": lambda: framed(struct.pack(">hhih", 3, 1, 7, -1) + struct.pack(">i", 0)),
    "HTTP": lambda: b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    **{
        f"api {key} version {version}": lambda key=key, version=version: _header(
            key, version, bytes(8)
        )
        for key, version in (
            (999, 0),
            (-1, 0),
            (3, 99),
            (3, -1),
            (0, 0),
            (0, 2),
            (1, 3),
            (1, 99),
            (2, 0),
            (8, 1),
            (9, 0),
            (19, 1),
            (20, 0),
            (23, 1),
            (32, 0),
            (18, 99),
            (52, 2),
            (53, 1),
            (54, 1),
            (56, 3),
            (62, 4),
            (63, 1),
            (67, 0),
        )
    },
}
"""Frames that are sent to a broker; only whether it responds is compared."""

UNSERVED: Mapping[str, tuple[str, int, dict[str, Any]]] = {
    "alter configs (not incremental)": (
        "alter_configs",
        2,
        {"resources": [], "validate_only": True},
    ),
    "list transactions": ("list_transactions", 0, {}),
    "end transaction": (
        "end_txn",
        3,
        {"transactional_id": "nope", "producer_id": 1, "producer_epoch": 0, "committed": True},
    ),
    "describe quotas": ("describe_client_quotas", 1, {"components": [], "strict": False}),
    "describe features": ("update_features", 1, {"timeout": 2000, "validate_only": True}),
    "SASL handshake": ("sasl_handshake", 1, {"mechanism": "PLAIN"}),
    "consumer group heartbeat": (
        "consumer_group_heartbeat",
        0,
        {"group_id": "nope", "member_id": "who", "member_epoch": 5},
    ),
}
"""Requests that only Apache Kafka serves, none of which changes anything."""


def cases() -> Iterator[Case]:
    """Yields the cases of this family."""
    for name, make in FRAMES.items():

        def run(probe: Probe, name: str = name, make: Callable[..., bytes] = make) -> None:
            probe.send_bytes(name, make(), limit_s=SILENCE_LIMIT_S)

        yield Case(id=f"frame/{name}", run=run)
    for name, (api, version, values) in UNSERVED.items():

        def ask(probe: Probe, api: str = api, version: int = version, values: Any = values) -> None:
            probe.ask(api, version, values)

        yield Case(id=f"other api/{name}", run=ask)
