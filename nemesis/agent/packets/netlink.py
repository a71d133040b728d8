"""Netlink: questions to the kernel, and its responses.

Source: linux/netlink.h.
"""

import socket
import struct
from collections.abc import Iterator

ACK, DUMP = 0x4, 0x300
ERROR = 2
_REQUEST = 0x1
_DONE = 3
_LIMIT_S = 5.0


def open_netlink(protocol: int) -> socket.socket:
    """Returns a netlink socket that does not wait for the kernel forever."""
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
    netlink.settimeout(_LIMIT_S)
    return netlink


def request(
    netlink: socket.socket, kind: int, flags: int, body: bytes
) -> Iterator[tuple[int, bytes]]:
    """Sends a request and returns the type and body of each response.

    The responses end with a dump or with one of type `ERROR`, which is how the kernel acknowledges a request, too.

    Args:
        netlink: On which socket.
        kind: Type of the request.
        flags: `ACK` or `DUMP`.
        body: What follows the header.
    """
    netlink.send(struct.pack("=IHHII", 16 + len(body), kind, _REQUEST | flags, 1, 0) + body)
    return _responses(netlink)


def error_number(body: bytes) -> int:
    """Returns the number in a response of type `ERROR`; 0 if it acknowledges the request."""
    return -int(struct.unpack_from("=i", body)[0])


def _responses(netlink: socket.socket) -> Iterator[tuple[int, bytes]]:
    while True:
        data = netlink.recv(1 << 18)
        at = 0
        while at + 16 <= len(data):
            length, kind = struct.unpack_from("=IH", data, at)
            if kind == _DONE:
                return
            yield kind, data[at + 16 : at + length]
            if kind == ERROR:
                return
            at += (length + 3) & ~3
