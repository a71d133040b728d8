"""What the kernel reports about queueing disciplines, classes, filters and interfaces, over netlink.

The program `tc` reports it as well, but not all of it as JSON.

Source: linux/rtnetlink.h, linux/gen_stats.h, linux/pkt_cls.h, linux/if_link.h.
"""

import os
import socket
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from nemesis.agent.packets import netlink
from nemesis.agent.packets.nft_rules import ANY, NetworkError

ROOT = 0xFFFFFFFF
_INGRESS = 0xFFFF0000
_GET_LINK, _GET_QDISC, _GET_CLASS, _GET_FILTER = 18, 38, 42, 46
_KIND, _OPTIONS, _STATS2 = 1, 2, 7
_BASIC, _QUEUE = 1, 3
_U32_SELECTOR, _U32_ACTION = 5, 7
_SOURCE_AT, _TARGET_AT = 12, 16
_LINK_NAME, _LINK_LOWER, _LINK_MASTER, _LINK_ELSEWHERE = 3, 5, 10, 37
_TYPE_MASK = 0x3FFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """A queueing discipline or a class.

    Attributes:
        kind: For example "htb".
        major, minor: Its handle; both 0 for one that the kernel made by itself.
        is_root: Whether everything that its interface sends passes it.
        bytes, packets: What it sent.
        backlog, waiting: Bytes and packets that wait in it.
        drops, overlimits: Packets lost because it was full, and how often a packet had to wait.
    """

    kind: str
    major: int
    minor: int
    is_root: bool
    bytes: int
    packets: int
    backlog: int
    waiting: int
    drops: int
    overlimits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A filter for packets that arrive at an interface.

    Attributes:
        kind: For example "u32".
        preference: Filters are tried in this order.
        pair: Source and destination, each an IPv4 address or "*"; None if it has no action, or matches neither.
    """

    kind: str
    preference: int
    pair: tuple[str, str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """An interface.

    Attributes:
        name: Its name.
        below: The interface of this namespace through which it sends and receives; "" if there is none.
        above: The interface of which it is a port; "" if it is not a port.
    """

    name: str
    below: str
    above: str


def qdiscs(interface: str) -> list[Traffic]:
    """Returns the queueing disciplines of an interface.

    Raises:
        NetworkError: The kernel does not report it.
    """
    return [_parse(body) for body in _of_interface(_GET_QDISC, interface)]


def classes(interface: str) -> list[Traffic]:
    """Returns the classes of an interface's disciplines.

    Raises:
        NetworkError: The kernel does not report it.
    """
    return [_parse(body) for body in _of_interface(_GET_CLASS, interface)]


def arrival_filters(interface: str) -> list[Filter]:
    """Returns the filters that packets meet when they arrive at an interface.

    Raises:
        NetworkError: The kernel does not report it.
    """
    return [_parse_filter(body) for body in _of_interface(_GET_FILTER, interface, _INGRESS)]


def links() -> list[Link]:
    """Returns the interfaces of this namespace.

    Raises:
        NetworkError: The kernel does not report it.
    """
    found = {}
    for body in _dump(_GET_LINK, struct.pack("=BBHiII", 0, 0, 0, 0, 0, 0)):
        (index,) = struct.unpack_from("=i", body, 4)
        found[index] = dict(_attributes(body[16:]))
    names = {index: _text(attributes[_LINK_NAME]) for index, attributes in found.items()}
    return [
        Link(
            name=names[index],
            below="" if _LINK_ELSEWHERE in one else names.get(_number(one, _LINK_LOWER), ""),
            above=names.get(_number(one, _LINK_MASTER), ""),
        )
        for index, one in found.items()
    ]


def _of_interface(kind: int, interface: str, parent: int = 0) -> Iterator[bytes]:
    try:
        index = socket.if_nametoindex(interface)
    except OSError:
        return  # it is gone, together with its queues
    for body in _dump(kind, struct.pack("=BBHiIII", 0, 0, 0, index, 0, parent, 0)):
        # Dumps of queueing disciplines cover all interfaces.
        if struct.unpack_from("=i", body, 4)[0] == index:
            yield body


def _dump(kind: int, question: bytes) -> Iterator[bytes]:
    with netlink.open_netlink(socket.NETLINK_ROUTE) as opened:
        for response, body in netlink.request(opened, kind, netlink.DUMP, question):
            if response == netlink.ERROR:
                reason = os.strerror(netlink.error_number(body))
                raise NetworkError(f"the kernel lists no queues: {reason}")
            yield body


def _parse(body: bytes) -> Traffic:
    handle, parent = struct.unpack_from("=II", body, 8)
    attributes = dict(_attributes(body[20:]))
    stats = dict(_attributes(attributes.get(_STATS2, b"")))
    sent_bytes, packets = struct.unpack_from("=QI", stats.get(_BASIC, bytes(12)))
    waiting, backlog, drops, _, overlimits = struct.unpack_from("=5I", stats.get(_QUEUE, bytes(20)))
    return Traffic(
        kind=_text(attributes.get(_KIND, b"")),
        major=handle >> 16,
        minor=handle & 0xFFFF,
        is_root=parent == ROOT,
        bytes=sent_bytes,
        packets=packets,
        backlog=backlog,
        waiting=waiting,
        drops=drops,
        overlimits=overlimits,
    )


def _parse_filter(body: bytes) -> Filter:
    (info,) = struct.unpack_from("=I", body, 16)
    attributes = dict(_attributes(body[20:]))
    kind = _text(attributes.get(_KIND, b""))
    pair = None
    if kind == "u32":
        options = dict(_attributes(attributes.get(_OPTIONS, b"")))
        if _U32_SELECTOR in options and _U32_ACTION in options:
            pair = _pair(options[_U32_SELECTOR])
    return Filter(kind=kind, preference=info >> 16, pair=pair)


def _pair(selector: bytes) -> tuple[str, str] | None:
    found = {}
    for number in range(selector[2]):
        mask, value, at, _ = struct.unpack_from("=4s4sii", selector, 16 + 16 * number)
        if at in (_SOURCE_AT, _TARGET_AT) and mask == b"\xff\xff\xff\xff":
            found[at] = socket.inet_ntoa(value)
    return (found.get(_SOURCE_AT, ANY), found.get(_TARGET_AT, ANY)) if found else None


def _text(data: bytes) -> str:
    return data.rstrip(b"\0").decode()


def _number(attributes: dict[int, bytes], kind: int) -> int:
    return int.from_bytes(attributes.get(kind, b""), sys.byteorder)


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 4:
            return
        yield kind & _TYPE_MASK, data[at + 4 : at + length]
        at += (length + 3) & ~3
