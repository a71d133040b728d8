"""The file that names the hosts of `--on ssh`.

The hosts are in a TOML file:

    user = "root"                        # faults are root's work; another user needs `sudo = true`
    key = "id_ed25519"                   # paths are relative to this file
    known_hosts = "known_hosts"          # host keys are always checked (default: ~/.ssh/known_hosts)
    python = "python3"                   # of the harness's version
    state_dir = "/var/lib/laststand"
    [[hosts]]
    address = "192.0.2.10"
    port = 22
    node_addresses = ["192.0.2.11", "192.0.2.12", "192.0.2.13"]

A host may have several nodes. Each has an address of its own, which the agent adds to the host's interface if
it is not there: whoever looks at packets must be able to tell two nodes of one host apart.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.names import unknown_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One host of an inventory."""

    address: str
    port: int
    node_addresses: tuple[str, ...]

    @property
    def name(self) -> str:
        """How it is called in messages."""
        return self.address if self.port == 22 else f"{self.address}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The hosts, and how to get at them."""

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
    for key in ("key", "known_hosts"):
        if key in data:
            data[key] = path.parent / Path(data[key]).expanduser()
    return Inventory(hosts=tuple(hosts), **data)


def _check_keys(data: Mapping[str, Any], known: Mapping[str, type], where: str) -> None:
    for key, value in data.items():
        if key not in known:
            raise UsageError(f"{where}: {unknown_name('key', key, known)}")
        if type(value) is not known[key]:
            raise UsageError(f"{where}: {key} must be of type {known[key].__name__}")
