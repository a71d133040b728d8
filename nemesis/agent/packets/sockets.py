"""TCP sockets of a network namespace: lists them, destroys them, and tries to open one.

Destroying needs no tool on the host: it is a netlink message (`SOCK_DESTROY`, kernel option INET_DIAG_DESTROY).
The local process gets ECONNABORTED, the peer a reset.

Source: linux/inet_diag.h, linux/sock_diag.h.
"""

import errno
import os
import select
import socket
import struct
import time
from collections.abc import Collection
from dataclasses import dataclass

from nemesis.agent.packets import netlink
from nemesis.agent.packets.nft_rules import NetworkError

_NETLINK_SOCK_DIAG = 4
_BY_FAMILY = 20
_DESTROY = 21
_TIME_WAIT, _CLOSE, _LISTEN = 6, 7, 10
_STATES = ((1 << 13) - 1) & ~(1 << _CLOSE) & ~(1 << _LISTEN) & ~1
_ID_BYTES = 48
_GONE_LIMIT_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpSocket:
    """A TCP socket as the kernel names it.

    Attributes:
        family: AF_INET or AF_INET6.
        state: The kernel's number.
        identity: Identifies the socket in a request; it includes a cookie that no later socket gets.
        local, remote: Address and port; addresses of IPv4 in IPv6 sockets are given as IPv4.
    """

    family: int
    state: int
    identity: bytes
    local: tuple[str, int]
    remote: tuple[str, int]


def reset_connections(
    addresses: Collection[str], ports: Collection[int] | None = None
) -> dict[str, int]:
    """Destroys every TCP connection of this namespace with one of the addresses at one of its ends.

    Args:
        addresses: Local or remote.
        ports: Only connections with one of these ports; None for all.

    Returns:
        `before`: how many connections there were; `after`: how many of these still exist; `waiting_out`: how many
        closed ones were removed as well (TIME_WAIT).

    Raises:
        NetworkError: The kernel cannot destroy sockets, or this process may not.
    """
    chosen = [one for one in tcp_sockets() if _is_chosen(one, addresses, ports)]
    live = [one for one in chosen if one.state != _TIME_WAIT]
    with _open() as opened:
        for one in chosen:
            _destroy(opened, one)
    deadline_s = time.monotonic() + _GONE_LIMIT_S
    while True:
        there = {one.identity for one in tcp_sockets()}
        after = sum(one.identity in there for one in live)
        if after == 0 or time.monotonic() > deadline_s:
            break
        time.sleep(0.002)
    return {"before": len(live), "after": after, "waiting_out": len(chosen) - len(live)}


def _is_chosen(one: TcpSocket, addresses: Collection[str], ports: Collection[int] | None) -> bool:
    if one.local[0] not in addresses and one.remote[0] not in addresses:
        return False
    return ports is None or one.local[1] in ports or one.remote[1] in ports


def tcp_sockets() -> list[TcpSocket]:
    """Returns the TCP sockets of this namespace, except those that listen or are closed.

    Raises:
        NetworkError: The kernel does not report them.
    """
    found: list[TcpSocket] = []
    with _open() as opened:
        for family in (socket.AF_INET, socket.AF_INET6):
            body = _request(family, _STATES, bytes(_ID_BYTES))
            for kind, response in netlink.request(opened, _BY_FAMILY, netlink.DUMP, body):
                if kind == netlink.ERROR:
                    if family == socket.AF_INET:
                        reason = os.strerror(netlink.error_number(response))
                        raise NetworkError(f"the kernel lists no sockets: {reason}")
                    break  # no IPv6 here
                found.append(_parse(response))
    return found


def _open() -> socket.socket:
    try:
        return netlink.open_netlink(_NETLINK_SOCK_DIAG)
    except OSError as error:
        raise NetworkError(f"the kernel has no sock_diag netlink ({error.strerror})") from None


def _request(family: int, states: int, identity: bytes) -> bytes:
    return struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, states) + identity


def _parse(response: bytes) -> TcpSocket:
    family, state = response[0], response[1]
    identity = response[4 : 4 + _ID_BYTES]
    local_port, remote_port = struct.unpack_from(">HH", identity)
    return TcpSocket(
        family=family,
        state=state,
        identity=identity,
        local=(_address(family, identity[4:20]), local_port),
        remote=(_address(family, identity[20:36]), remote_port),
    )


def _address(family: int, data: bytes) -> str:
    if family == socket.AF_INET:
        return socket.inet_ntop(socket.AF_INET, data[:4])
    if data[:12] == b"\0" * 10 + b"\xff\xff":
        return socket.inet_ntop(socket.AF_INET, data[12:])
    return socket.inet_ntop(socket.AF_INET6, data)


def _destroy(opened: socket.socket, one: TcpSocket) -> None:
    # Every state: the socket may have changed its state since it was listed.
    body = _request(one.family, 0xFFFFFFFF, one.identity)
    for kind, response in netlink.request(opened, _DESTROY, netlink.ACK, body):
        if kind != netlink.ERROR:
            continue
        code = netlink.error_number(response)
        if code in (errno.EOPNOTSUPP, errno.EPERM):
            raise NetworkError(
                f"the kernel destroys no sockets ({os.strerror(code)}): "
                "it needs CONFIG_INET_DIAG_DESTROY and the capability NET_ADMIN"
            )
        # Otherwise it ended by itself meanwhile; counting again shows it.


def connect_probe(
    address: str, port: int, timeout_ms: float, source: str = ""
) -> dict[str, object]:
    """Tries to open a TCP connection from this namespace.

    Returns:
        `outcome`: "connected", "refused", "reset", "timeout" or "unreachable"; `ms`: how long that took.

    Raises:
        NetworkError: It could not be tried, for example because this host does not have the source address.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    began_ns = time.monotonic_ns()
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            if source:
                probe.bind((source, 0))
            code = probe.connect_ex((address, port))
        except OSError as error:
            raise NetworkError(f"no probe from {source or 'here'}: {error.strerror}") from None
        if code == errno.EINPROGRESS:
            _, ready, _ = select.select([], [probe], [], timeout_ms / 1000)
            code = (
                probe.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) if ready else errno.ETIMEDOUT
            )
        elapsed_ms = (time.monotonic_ns() - began_ns) / 1e6
    outcome = _OUTCOMES.get(code)
    if outcome is None:
        raise NetworkError(f"the probe of {address}:{port} failed: {os.strerror(code)}")
    return {"outcome": outcome, "ms": round(elapsed_ms, 3)}


_OUTCOMES = {
    0: "connected",
    errno.ECONNREFUSED: "refused",
    errno.ECONNRESET: "reset",
    errno.ETIMEDOUT: "timeout",
    errno.EHOSTUNREACH: "unreachable",
    errno.ENETUNREACH: "unreachable",
}
