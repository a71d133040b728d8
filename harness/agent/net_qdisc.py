"""What the kernel tells of queueing disciplines and their classes, over netlink.

The program `tc` tells it too, but not of classes in a form for machines.

Source: linux/rtnetlink.h, linux/gen_stats.h.
"""

import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from harness.agent.net_rules import NetworkError

ROOT = 0xFFFFFFFF
_GET_QDISC, _GET_CLASS = 38, 42
_REQUEST, _DUMP = 0x1, 0x300
_ERROR, _DONE = 2, 3
_KIND, _STATS2 = 1, 7
_BASIC, _QUEUE = 1, 3
_TYPE_MASK = 0x3FFF
_LIMIT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """A queueing discipline or a class.

    Attributes:
        kind: For example "htb".
        major, minor: Its handle; both 0 for what the kernel put there by itself.
        is_root: Whether it is all that its interface sends through.
        bytes, packets: That it sent.
        backlog: Bytes that wait in it.
        drops, overlimits: Packets lost because it was full, and how often something had to wait.
    """

    kind: str
    major: int
    minor: int
    is_root: bool
    bytes: int
    packets: int
    backlog: int
    drops: int
    overlimits: int


def qdiscs(interface: str) -> list[Traffic]:
    """Returns the queueing disciplines of an interface.

    Raises:
        NetworkError: The kernel does not tell.
    """
    return list(_dump(_GET_QDISC, interface))


def classes(interface: str) -> list[Traffic]:
    """Returns the classes of an interface's disciplines.

    Raises:
        NetworkError: The kernel does not tell.
    """
    return list(_dump(_GET_CLASS, interface))


def _dump(kind: int, interface: str) -> Iterator[Traffic]:
    try:
        index = socket.if_nametoindex(interface)
    except OSError:
        return  # it is gone, and its queues with it
    request = struct.pack("=IHHII", 36, kind, _REQUEST | _DUMP, 1, 0)
    request += struct.pack("=BBHiIII", 0, 0, 0, index, 0, 0, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as netlink:
        netlink.settimeout(_LIMIT_S)
        netlink.send(request)
        while True:
            data = netlink.recv(1 << 18)
            at = 0
            while at + 16 <= len(data):
                length, answer = struct.unpack_from("=IH", data, at)
                if answer == _DONE:
                    return
                if answer == _ERROR:
                    code = -struct.unpack_from("=i", data, at + 16)[0]
                    raise NetworkError(f"the kernel lists no queues: {os.strerror(code)}")
                body = data[at + 16 : at + length]
                # Dumps of queueing disciplines are of all interfaces.
                if struct.unpack_from("=i", body, 4)[0] == index:
                    yield _parse(body)
                at += (length + 3) & ~3


def _parse(body: bytes) -> Traffic:
    handle, parent = struct.unpack_from("=II", body, 8)
    attributes = dict(_attributes(body[20:]))
    stats = dict(_attributes(attributes.get(_STATS2, b"")))
    sent_bytes, packets = struct.unpack_from("=QI", stats.get(_BASIC, bytes(12)))
    _, backlog, drops, _, overlimits = struct.unpack_from("=5I", stats.get(_QUEUE, bytes(20)))
    return Traffic(
        kind=attributes.get(_KIND, b"").rstrip(b"\0").decode(),
        major=handle >> 16,
        minor=handle & 0xFFFF,
        is_root=parent == ROOT,
        bytes=sent_bytes,
        packets=packets,
        backlog=backlog,
        drops=drops,
        overlimits=overlimits,
    )


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 4:
            return
        yield kind & _TYPE_MASK, data[at + 4 : at + length]
        at += (length + 3) & ~3
