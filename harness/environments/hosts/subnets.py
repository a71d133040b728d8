"""Finds a network that this machine does not use yet.

The engine knows only the networks that it made. The machine may have more: those of another engine, and bridges of
an engine that was killed. If two routes lead to the same addresses, the kernel uses the older one, and packets for
the new containers would go to the old bridge.
"""

import ipaddress
import sys
from collections.abc import Iterable
from pathlib import Path

from harness.errors import HarnessFailure

NETWORKS = 64
"""How many /24 networks are tried, one after the other."""
_ROUTES = Path("/proc/net/route")


def routed_networks(table: str | None = None) -> list[ipaddress.IPv4Network]:
    """Returns the networks to which this machine has a route, except the default route.

    Args:
        table: In the form of `/proc/net/route`; None for this machine's.
    """
    if table is None:
        table = _ROUTES.read_text(encoding="ascii") if _ROUTES.exists() else ""
    found = []
    for line in table.splitlines()[1:]:
        fields = line.split()
        destination, mask = (_host_order(fields[index]) for index in (1, 7))
        if mask:
            found.append(ipaddress.IPv4Network((destination, mask.bit_count())))
    return found


def _host_order(number: str) -> int:
    """Returns an address from the kernel's hexadecimal number, whose bytes are in network order."""
    return int.from_bytes(int(number, 16).to_bytes(4, sys.byteorder), "big")


def free_prefix(first: str, used: Iterable[ipaddress.IPv4Network]) -> str:
    """Returns the first three numbers of a /24 network that is not in use.

    Args:
        first: The first one to try, such as "198.18.64"; the following 63 are tried as well.
        used: Networks that are taken.

    Raises:
        HarnessFailure: All networks are in use.
    """
    taken = list(used)
    start = int(ipaddress.IPv4Address(f"{first}.0"))
    for index in range(NETWORKS):
        network = ipaddress.IPv4Network((start + 256 * index, 24))
        if not any(network.overlaps(other) for other in taken):
            return str(network.network_address).rpartition(".")[0]
    raise HarnessFailure(
        f"all {NETWORKS} networks from {first}.0/24 on are in use; `ip route` lists the routes"
    )
