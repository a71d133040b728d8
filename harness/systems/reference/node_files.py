"""The text of a node's configuration file, `node.toml`."""

from collections.abc import Mapping, Sequence
from typing import Any

import tomli_w

from harness.contracts.messages import MESSAGES_FILE
from harness.contracts.system import EVENTS_FILE, Node, Settings
from system_under_test.config import LOG_DIR_NAMES

CLUSTER_ID = "bGFzdHN0YW5kLWxvY2FsAA"
"""As Kafka's tools make them: 16 bytes in base 64 without padding, here the text "laststand-local"."""
NODE_FILE = "node.toml"
FAULT_POINT_FILE = "fault-point.json"
FAST_GROUPS: Mapping[str, Any] = {
    "group_initial_rebalance_delay_ms": 100,
    "group_min_session_timeout_ms": 1000,
    "group_consumer_heartbeat_interval_ms": 500,
    "group_consumer_min_heartbeat_interval_ms": 100,
    "group_consumer_session_timeout_ms": 6000,
    "group_consumer_min_session_timeout_ms": 1000,
}
"""Group settings that go with the fast timings; Kafka's are 3 s and 6 s."""
REPLICATION_FACTOR_MAX = 3
MIN_ISR = 2
"""Kafka's default of `transaction.state.log.min.isr`."""


def transaction_log_properties(brokers: int) -> dict[str, str]:
    """Returns the properties of the transaction log that differ from Kafka's defaults in a small cluster.

    Kafka's defaults are three replicas, two of them in sync. With fewer brokers there would never be a transaction
    coordinator, and every InitProducerId request of a transactional producer would time out.

    Args:
        brokers: Number of brokers of the cluster.
    """
    if brokers >= REPLICATION_FACTOR_MAX:
        return {}
    properties = {"transaction.state.log.replication.factor": str(brokers)}
    if brokers < MIN_ISR:
        properties["transaction.state.log.min.isr"] = str(brokers)
    return properties


def node_toml(node: Node, nodes: Sequence[Node], settings: Settings, *, data_dir: str) -> str:
    """Returns the text of a node's file; paths in it are relative to the file.

    Args:
        node: Whose file.
        nodes: All nodes of the cluster, this one included.
        settings: What all nodes are configured with; `more` may hold the tables "log", "broker" and "limits".
        data_dir: Where the node keeps its logs.
    """
    voters = [f"{other.node_id}@{other.address}" for other in nodes if other.role == "controller"]
    values: dict[str, Any] = {
        "node_id": node.node_id,
        "role": node.role,
        "listen": node.address,
        "data_dir": data_dir,
        "cluster_id": CLUSTER_ID,
        "profile": settings.profile,
        "timings": settings.timings,
        "voters": voters,
        "skew_file": "skew",
        "disabled_rules": list(settings.disabled_rules),
    }
    if node.metrics:
        values["metrics_listen"] = node.metrics
    if settings.log_dirs > 1 and node.role == "broker":
        values["log_dirs"] = list(LOG_DIR_NAMES[: settings.log_dirs])
    if settings.with_events:
        values["events"] = EVENTS_FILE
        if settings.metrics_interval_ms:
            values["metrics_interval_ms"] = settings.metrics_interval_ms
    if settings.with_messages:
        values["messages"] = MESSAGES_FILE
    if settings.with_fault_point:
        values["fault_point"] = FAULT_POINT_FILE
    values |= _tables(nodes, settings)
    return f"# {node.name}\n{tomli_w.dumps(values)}"


def _tables(nodes: Sequence[Node], settings: Settings) -> dict[str, Mapping[str, Any]]:
    brokers = sum(other.role == "broker" for other in nodes)
    factor = min(brokers, REPLICATION_FACTOR_MAX)
    more = settings.more
    # Without a broker there is nothing to adapt to: a controller's file in a test.
    properties = transaction_log_properties(max(1, brokers))
    return {
        "log": {
            "segment_bytes": settings.segment_bytes,
            "flush_messages": settings.flush_messages,
            **more.get("log", {}),
        },
        "broker": {
            "default_replication_factor": factor,
            "offsets_topic_replication_factor": factor,
            "unclean_leader_election_enable": settings.unclean_leader_election,
            **(FAST_GROUPS if settings.timings == "fast" else {}),
            **more.get("broker", {}),
        },
        "limits": dict(more.get("limits", {})),
        "properties": {**properties, **settings.properties},
    }
