"""The file that names the hosts of `--on ssh`.

The hosts are in a TOML file:

    user = "root"                        # faults need root; another user needs `sudo = true`
    key = "id_ed25519"                   # paths are relative to this file
    known_hosts = "known_hosts"          # host keys are always checked (default: ~/.ssh/known_hosts)
    python = "python3"                   # the harness's version of Python
    state_dir = "/var/lib/laststand"
    [[hosts]]
    address = "192.0.2.10"
    port = 22
    node_addresses = ["192.0.2.11", "192.0.2.12", "192.0.2.13"]

A host may have several nodes. Each node has its own address, which the agent adds to the host's interface if it is
missing, so that the packets of two nodes of one host can be distinguished.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.names import unknown_name

PORT_MAX = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One host of an inventory."""

    address: str
    port: int
    node_addresses: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its name in messages."""
        return self.address if self.port == 22 else f"{self.address}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The hosts, and how to reach them."""

    hosts: tuple[Host, ...]
    user: str = "root"
    key: Path | None = None
    known_hosts: Path = Path("~/.ssh/known_hosts")
    python: str = "python3"
    state_dir: str = "/var/lib/laststand"
    sudo: bool = False


_KEYS = {
    "hosts": list,
    "user": str,
    "key": str,
    "known_hosts": str,
    "python": str,
    "state_dir": str,
    "sudo": bool,
}
_HOST_KEYS = {"address": str, "port": int, "node_addresses": list}


def load_inventory(path: Path) -> Inventory:
    """Reads the hosts from a TOML file.

    Raises:
        UsageError: The file is missing or not TOML, or a key or value is wrong.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"there is no file {path} with hosts") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"the hosts in {path} cannot be read: {error}") from None
    _check_keys(data, _KEYS, str(path))
    entries = data.pop("hosts", [])
    if not entries or not all(isinstance(entry, dict) for entry in entries):
        raise UsageError(f"{path} names no hosts; write a [[hosts]] table for each")
    hosts = []
    for entry in entries:
        _check_keys(entry, _HOST_KEYS, f"{path}: hosts")
        if "address" not in entry:
            raise UsageError(f"{path}: a host has no address")
        hosts.append(
            Host(
                address=entry["address"],
                port=entry.get("port", 22),
                node_addresses=tuple(str(a) for a in entry.get("node_addresses", ())),
            )
        )
    _check_hosts(hosts, str(path))
    for key in ("key", "known_hosts"):
        if key in data:
            data[key] = path.parent / Path(data[key]).expanduser()
    return Inventory(hosts=tuple(hosts), **data)


def _check_hosts(hosts: Sequence[Host], where: str) -> None:
    """Raises `UsageError` unless all hosts differ and every node address is a different IPv4 address."""
    seen: set[tuple[str, int]] = set()
    taken: dict[str, str] = {}
    for host in hosts:
        if not host.address or host.address != host.address.strip():
            raise UsageError(f"{where}: {host.address!r} is not an address of a host")
        if host.address.replace(".", "").isdecimal():  # otherwise a name, which SSH resolves
            _check_ipv4(host.address, f"{where}: the address of a host")
        if not 0 < host.port <= PORT_MAX:
            raise UsageError(
                f"{where}: port of {host.address} is {host.port}, and ports range from 1 to {PORT_MAX}"
            )
        if (host.address, host.port) in seen:
            raise UsageError(f"{where}: the host {host.name} is listed twice")
        seen.add((host.address, host.port))
        for address in host.node_addresses:
            _check_ipv4(address, f"{where}: a node address of {host.name}")
            if address in taken:
                twice = " twice" if taken[address] == host.name else f", and of {taken[address]}"
                raise UsageError(
                    f"{where}: {address} is a node address of {host.name}{twice}; every node needs "
                    "its own"
                )
            taken[address] = host.name


def _check_ipv4(address: str, what: str) -> None:
    try:
        IPv4Address(address)
    except AddressValueError:
        raise UsageError(f"{what}, {address!r}, is not an IPv4 address") from None


def _check_keys(data: Mapping[str, Any], known: Mapping[str, type], where: str) -> None:
    for key, value in data.items():
        if key not in known:
            raise UsageError(f"{where}: {unknown_name('key', key, known)}")
        if type(value) is not known[key]:
            raise UsageError(f"{where}: {key} must be of type {known[key].__name__}")
