"""Ports on loopback that stay a node's own while the node is down.

A port of the range from which the kernel gives ports to outgoing connections is unfit: while a node is down,
its peers try to connect to it, and the kernel may give such a connection, or any other, the very port that the
node wants back. A connection to oneself can even succeed then.

While a node is down or not yet up, its port is free as far as the kernel knows. So that clusters of other
processes do not choose it, a process reserves the ports that it has chosen.
"""

import contextlib
import itertools
import os
import random
import socket
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from harness.errors import HarnessFailure, UsageError

LOOPBACK = "127.0.0.1"
OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")
OUTGOING_FIRST = 32768
"""The first port of outgoing connections where the kernel does not say: Linux's default, the lowest in use."""
FIRST = 10000
"""Below it are the ports of well-known services."""
PORT_MAX = 65535
RESERVED_MAX = 500
"""How many reservations a process keeps, the newest ones: many more than the nodes that it runs at a time."""

_reserved: deque[int] = deque()


def listening_ports(count: int, first: int | None) -> list[int]:
    """Returns different free ports; each is held until all are known.

    Args:
        count: How many.
        first: The first of consecutive ports; any ports outside the range of outgoing connections if None.

    Raises:
        UsageError: A port of those asked for is taken.
        HarnessFailure: Too few ports are free.
    """
    with contextlib.ExitStack() as held:
        if first is None:
            return _any_free(count, held)
        ports = list(range(first, first + count))
        for port in ports:
            try:
                _hold(port, held)
            except OSError as error:
                raise UsageError(
                    f"port {port} is taken ({error.strerror}); choose another with --port"
                ) from None
        return ports


def _any_free(count: int, held: contextlib.ExitStack) -> list[int]:
    ports: list[int] = []
    # Where only a few ports can be chosen at all, a reserved one that is free is better than none.
    for must_be_ours, port in itertools.product((True, False), _candidates()):
        if port in ports:
            continue
        with contextlib.suppress(OSError):
            _hold(port, held)
            if must_be_ours:
                _reserve(port)
            ports.append(port)
            if len(ports) == count:
                return ports
    raise HarnessFailure(
        f"fewer than {count} ports are free outside the kernel's range of outgoing connections; "
        "choose the first with --port"
    )


def _candidates() -> Iterator[int]:
    """Yields ports in random order, so that clusters that start together rarely want the same."""
    first, last = _outgoing_range()
    # A machine may give nearly every port to outgoing connections; what is above is as good as what is below.
    ports = [*range(FIRST, first), *range(max(last + 1, FIRST), PORT_MAX + 1)]
    yield from random.SystemRandom().sample(ports, len(ports))


def _outgoing_range() -> tuple[int, int]:
    try:
        first, last = OUTGOING.read_text().split()
    except (OSError, ValueError):
        return OUTGOING_FIRST, PORT_MAX
    return int(first), int(last)


def _reserve(port: int) -> None:
    """Reserves a port among the processes of this program, until this one ends.

    Raises:
        OSError: It is reserved.
    """
    if sys.platform != "linux":
        return  # no other system has names of sockets that vanish with their process
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mark:
        mark.bind(f"\0laststand-port-{port}")
        _reserved.append(mark.detach())
    if len(_reserved) > RESERVED_MAX:
        os.close(_reserved.popleft())


def _hold(port: int, held: contextlib.ExitStack) -> None:
    probe = held.enter_context(socket.socket())
    # Connections of an earlier cluster in TIME_WAIT do not count.
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    probe.bind((LOOPBACK, port))
