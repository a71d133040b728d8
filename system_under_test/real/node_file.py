"""The configuration file of a real node: reading, validation, resolution."""

import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from system_under_test.config import (
    TIMINGS,
    GroupConfig,
    LogConfig,
    NodeConfig,
    Voter,
    profile_features,
)
from system_under_test.properties import configured
from system_under_test.real.limits import Limits
from system_under_test.rules import Rules

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

T = TypeVar("T")


class NodeFileError(Exception):
    """A node file is wrong. The message is one sentence that also proposes a correction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFile:
    """Content of a node file, resolved.

    Attributes:
        config: The node's configuration.
        data_dir: Directory of its log directories.
        limits: Limits of its listener.
        events_path: Path of its event log; None for no log.
        messages_path: Path of its message log; None for no log.
        fault_point_path: File by which a test has it report and change single messages; None for no fault point.
        skew_file: File through which its clock is skewed; None for a true clock.
        metrics_address: Where it serves its metrics over HTTP, "host:port"; "" if it does not.
        metrics_interval_ms: How often it writes its metrics to the event log; 0 for never.
    """

    config: NodeConfig
    data_dir: Path
    limits: Limits
    events_path: Path | None = None
    messages_path: Path | None = None
    fault_point_path: Path | None = None
    skew_file: Path | None = None
    metrics_address: str = ""
    metrics_interval_ms: int = 0

    @property
    def name(self) -> str:
        """The node's name: "b1", "c11"."""
        return f"{self.config.role[0]}{self.config.node_id}"


_TOP = {
    "node_id": int,
    "role": str,
    "listen": str,
    "advertised": str,
    "data_dir": str,
    "cluster_id": str,
    "profile": str,
    "timings": str,
    "voters": list,
    "events": str,
    "messages": str,
    "fault_point": str,
    "skew_file": str,
    "log_dirs": list,
    "metrics_listen": str,
    "metrics_interval_ms": int,
    "disabled_rules": list,
    "log": dict,
    "broker": dict,
    "limits": dict,
    "properties": dict,
}
_REQUIRED = ("node_id", "role", "listen", "data_dir", "cluster_id", "voters")
_LOG_KEYS = {"segment_bytes": int, "flush_messages": int, "max_message_bytes": int}
"""The table `log`, from before properties; all other settings of logs are properties."""
_BROKER_KEYS = {
    "min_insync_replicas": int,
    "default_replication_factor": int,
    "num_partitions": int,
    "auto_create_topics_enable": bool,
    "auto_leader_rebalance_enable": bool,
    "unclean_leader_election_enable": bool,
}


def read_node_file(path: Path) -> NodeFile:
    """Reads and validates a node file.

    Raises:
        NodeFileError: The file cannot be read, or a key or value is wrong.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NodeFileError(f"{path} cannot be read: {error.strerror}") from None
    except RecursionError:
        raise NodeFileError(f"{path} is not TOML: it is nested too deeply") from None
    except ValueError as error:  # not TOML, not UTF-8, or a number with thousands of digits
        raise NodeFileError(f"{path} is not TOML: {error}") from None
    try:
        return _resolve(data, path.parent)
    except (NodeFileError, ValueError) as error:
        raise NodeFileError(f"{path}: {error}") from None


def _resolve(data: Mapping[str, Any], folder: Path) -> NodeFile:
    _check_keys(data, _TOP, "")
    for key in _REQUIRED:
        if key not in data:
            raise NodeFileError(f"{key!r} is missing")
    for key, value in data.items():
        if isinstance(value, str) and re.search(r"[\x00-\x1f\x7f]", value):
            raise NodeFileError(f"{key} is {value!r}; leave out the control characters")
    if data["role"] not in ("broker", "controller"):
        raise NodeFileError(f'role is {data["role"]!r}; use "broker" or "controller"')
    numbers = {key: data[key] for key in ("node_id", "metrics_interval_ms") if key in data}
    _check_bounds(numbers, "", 0, INT32_MAX)
    timings = data.get("timings", "kafka")
    if timings not in TIMINGS:
        raise NodeFileError(f"timings is {timings!r}; use {' or '.join(TIMINGS)}")
    config = NodeConfig(
        node_id=data["node_id"],
        role=data["role"],
        address=_address("listen", data["listen"]),
        advertised_address=_advertised(data),
        cluster_id=data["cluster_id"],
        voters=_voters(data["voters"]),
        features=profile_features(data.get("profile", "kafka-4.1")),
        timings=TIMINGS[timings],
        log=_log_settings(data.get("log", {})),
        log_dirs=_log_dirs(data),
        log_dirs_root=os.path.abspath(folder / data["data_dir"]),
        rules=_rules(data.get("disabled_rules", [])),
        **_broker_settings(data.get("broker", {})),
    )
    config = configured(config, _properties(data.get("properties", {})))
    is_voter = config.node_id in [voter.node_id for voter in config.voters]
    if config.role == "controller" and not is_voter:
        raise NodeFileError(f"voters does not name this controller ({config.node_id})")
    if config.role == "broker" and is_voter:
        raise NodeFileError(
            f"node_id {config.node_id} is also the id of a controller in voters; "
            "give every node of the cluster a different id"
        )
    return NodeFile(
        config=config,
        data_dir=folder / data["data_dir"],
        limits=_table(Limits, data.get("limits", {}), "limits."),
        events_path=folder / data["events"] if data.get("events") else None,
        messages_path=folder / data["messages"] if data.get("messages") else None,
        fault_point_path=folder / data["fault_point"] if data.get("fault_point") else None,
        skew_file=folder / data["skew_file"] if data.get("skew_file") else None,
        metrics_address=_address("metrics_listen", data["metrics_listen"])
        if data.get("metrics_listen")
        else "",
        metrics_interval_ms=data.get("metrics_interval_ms", 0),
    )


def _broker_settings(table: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of the table `broker` as arguments of a `NodeConfig`."""
    broker = dict(table)
    # Texts and lists are set as properties, which check them.
    group_keys = {item.name: int for item in fields(GroupConfig) if item.type is int}
    _check_keys(broker, {**_BROKER_KEYS, **group_keys}, "broker.")
    group = {key: broker.pop(key) for key in list(broker) if key in group_keys}
    _check_bounds(group, "broker.", 0, INT32_MAX)
    _check_bounds(broker, "broker.", 1, INT32_MAX)
    return {"group": GroupConfig(**group), **broker}


def _log_dirs(data: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the names of the log directories, the one with the metadata log first."""
    names = data.get("log_dirs", ["data"])
    for name in names:
        if not isinstance(name, str) or re.fullmatch("[A-Za-z0-9_-]{1,64}", name) is None:
            raise NodeFileError(
                f"log_dirs contains {name!r}; write names of directories in data_dir, of A-Z a-z 0-9 _ -"
            )
    if not names or len(set(names)) != len(names):
        raise NodeFileError(f"log_dirs is {names!r}; name one directory or more, each once")
    if len(names) > 1 and data["role"] == "controller":
        raise NodeFileError("log_dirs names several directories; a controller has one")
    return tuple(names)


def _log_settings(table: Mapping[str, Any]) -> LogConfig:
    """Returns the settings of the table `log`."""
    _check_keys(table, _LOG_KEYS, "log.")
    _check_bounds(table, "log.", 1, INT64_MAX)
    return LogConfig(**table)


def _properties(table: Mapping[str, Any]) -> dict[str, str]:
    """Returns the table `properties`: texts by Kafka's names, which contain dots and are therefore quoted."""
    for name, value in table.items():
        if not isinstance(value, str):
            raise NodeFileError(
                f'properties contains {name} = {value!r}; quote name and value: "log.roll.ms" = "60000"'
            )
    return dict(table)


def _rules(names: list[Any]) -> Rules:
    for name in names:
        if not isinstance(name, str):
            raise NodeFileError(
                f'disabled_rules contains {name!r}; write rule ids, for example "HW-1"'
            )
    return Rules(names)


def _check_keys(data: Mapping[str, Any], known: Mapping[str, type], prefix: str) -> None:
    for key, value in data.items():
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f"; did you mean {prefix}{near[0]}?" if near else ""
            raise NodeFileError(f"{prefix}{key} is not a setting of a node{hint}")
        if type(value) is not known[key]:
            raise NodeFileError(
                f"{prefix}{key} is {value!r}; it must be of type {known[key].__name__}"
            )


def _check_bounds(data: Mapping[str, Any], prefix: str, least: int, most: int) -> None:
    for key, value in data.items():
        if type(value) is not int:
            continue
        if value < least:
            raise NodeFileError(f"{prefix}{key} is {value}; use {least} or more")
        if value > most:
            raise NodeFileError(f"{prefix}{key} is {value}; use {most} or less")


def _table(kind: type[T], data: Mapping[str, Any], prefix: str) -> T:
    _check_keys(data, {item.name: int for item in fields(kind)}, prefix)  # type: ignore[arg-type]
    _check_bounds(data, prefix, 1, INT64_MAX)
    return kind(**data)


def _address(key: str, text: str) -> str:
    if not _is_address(text):
        raise NodeFileError(f'{key} is {text!r}; write "host:port"')
    return text


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    # Only ASCII digits: `int` accepts digits of every script, but clients do not.
    is_port = re.fullmatch("[0-9]{1,5}", port) is not None and 0 < int(port) < 65536
    return is_port and re.fullmatch(r"[^\s\0]+", host) is not None


def _advertised(data: Mapping[str, Any]) -> str:
    """Returns the advertised address; like Kafka, refuses one that every machine would resolve to itself."""
    key = "advertised" if "advertised" in data else "listen"
    address = _address(key, data[key])
    if data["role"] == "broker" and _is_unspecified(address):
        raise NodeFileError(
            f"{key} is {address!r}, to which clients cannot connect; "
            'set advertised to the "host:port" under which other machines reach this broker'
        )
    return address


def _is_unspecified(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return host == "0"  # short form of 0.0.0.0 in the C library


def _voters(entries: list[Any]) -> tuple[Voter, ...]:
    voters = []
    for entry in entries:
        node_id, _, address = entry.partition("@") if isinstance(entry, str) else ("", "", "")
        if not re.fullmatch("[0-9]{1,10}", node_id) or not _is_address(address):
            raise NodeFileError(f'voters contains {entry!r}; write "id@host:port"')
        if int(node_id) > INT32_MAX:
            raise NodeFileError(f"voters contains {entry!r}; use an id of {INT32_MAX} or less")
        if _is_unspecified(address):
            raise NodeFileError(
                f"voters contains {entry!r}; write the address under which other machines reach that controller"
            )
        voters.append(Voter(node_id=int(node_id), address=address))
    if not voters:
        raise NodeFileError('voters is empty; name every controller as "id@host:port"')
    voters.sort(key=lambda voter: voter.node_id)
    if len({voter.node_id for voter in voters}) != len(voters):
        raise NodeFileError("voters names a controller twice")
    return tuple(voters)
