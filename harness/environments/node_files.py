"""The configuration of a node: the text of its `node.toml`, in every environment."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

CLUSTER_ID = "laststand-local"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """The settings that all nodes of a cluster share.

    Attributes:
        with_events: Whether nodes keep an event log.
        log, broker, limits: The tables of `node.toml`.
    """

    profile: str
    timings: str
    with_events: bool = True
    disabled_rules: tuple[str, ...] = ()
    log: dict[str, Any] = field(default_factory=dict)
    broker: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)


def node_toml(
    name: str,
    role: str,
    node_id: int,
    listen: str,
    voters: Sequence[str],
    settings: NodeSettings,
    *,
    data_dir: str = "data",
) -> str:
    """Returns the text of a node's file; paths in it are relative to the file."""
    lines = [
        f"# {name}",
        f"node_id = {node_id}",
        f"role = {_toml(role)}",
        f"listen = {_toml(listen)}",
        f"data_dir = {_toml(data_dir)}",
        f"cluster_id = {_toml(CLUSTER_ID)}",
        f"profile = {_toml(settings.profile)}",
        f"timings = {_toml(settings.timings)}",
        f"voters = {_toml(list(voters))}",
        'skew_file = "skew"',
        f"disabled_rules = {_toml(list(settings.disabled_rules))}",
    ]
    if settings.with_events:
        lines.append('events = "events.jsonl"')
    for table in ("log", "broker", "limits"):
        values: dict[str, Any] = getattr(settings, table)
        lines.extend(["", f"[{table}]"])
        lines.extend(f"{key} = {_toml(value)}" for key, value in values.items())
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return json.dumps(value)
