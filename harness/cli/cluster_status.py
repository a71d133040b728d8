"""The state of a local cluster, as its brokers report it."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from harness.environments.local.standing import LocalCluster, LocalNode
from harness.systems.reference import status
from nemesis.agent.processes.procfs import process_state

PARTITIONS_LIMIT_S = 10.0
QUORUM_LIMIT_S = 5.0

T = TypeVar("T")


def cluster_status(cluster: LocalCluster) -> dict[str, Any]:
    """Queries the state of a cluster.

    Returns:
        Everything available. "partitions" and "quorum" are None when no broker reports them; "unavailable" then
        holds the reason, one sentence under the same name.
    """
    nodes = [
        {
            "name": node.name,
            "role": node.role,
            "address": node.address,
            "pid": node.pid,
            "state": node_state(node),
        }
        for node in cluster.nodes.values()
    ]
    states = {str(node["name"]): str(node["state"]) for node in nodes}
    addresses = {
        node.node_id: node.address
        for node in cluster.nodes.values()
        if node.role == "broker" and states[node.name] == "up"
    }
    unavailable: dict[str, str] = {}
    partitions, failure = _first_response(addresses, PARTITIONS_LIMIT_S, status.partitions)
    if partitions is None:
        unavailable["partitions"] = _reason("broker", cluster, states, failure)
    high_watermarks = status.high_watermarks(addresses, partitions or [])
    for partition in partitions or []:
        partition["high_watermark"] = high_watermarks.get(
            (partition["topic"], partition["partition"])
        )
    # If no broker reported the partitions, none is asked for the quorum: each attempt costs its timeout.
    quorum, failure = _first_response(
        addresses if partitions is not None else {}, QUORUM_LIMIT_S, status.quorum
    )
    if quorum is None:
        role = "broker" if partitions is None else "controller"
        unavailable["quorum"] = _reason(role, cluster, states, failure)
    return {
        "bootstrap": cluster.bootstrap,
        "profile": cluster.profile,
        "nodes": nodes,
        "quorum": quorum,
        "partitions": partitions,
        "unavailable": unavailable,
    }


def _first_response(
    addresses: dict[int, str], limit_s: float, query: Callable[[str, float], T]
) -> tuple[T | None, str]:
    """Queries one broker after the other until one responds.

    Args:
        addresses: Addresses of the brokers that are up, by id.
        limit_s: Seconds for all of them together: a request that brokers forward is as slow with the next one.
        query: Queries the broker at an address within a number of seconds.

    Returns:
        The response, None if there was none, and the failure of the last broker.
    """
    failure = ""
    deadline_s = time.monotonic() + limit_s
    for broker, address in addresses.items():
        remaining_s = deadline_s - time.monotonic()
        if remaining_s <= 0:
            break
        try:
            return query(address, remaining_s), ""
        except TimeoutError:
            failure = f"b{broker} did not respond in time"
        except (OSError, ValueError) as error:
            failure = f"b{broker}: {error}"
    return None, failure


def _reason(role: str, cluster: LocalCluster, states: dict[str, str], failure: str) -> str:
    """Returns why nodes of a role did not respond: too few of them are up, or else the last failure."""
    names = [node.name for node in cluster.nodes.values() if node.role == role]
    missing = [name for name in names if states[name] != "up"]
    # One broker is enough; controllers need a majority.
    needed = 1 if role == "broker" else len(names) // 2 + 1
    if len(names) - len(missing) >= needed:
        return failure
    if len(missing) == len(names) and {states[name] for name in names} == {"down"}:
        return f"every {role} is down; `laststand cluster start NODE` starts one"
    listed = ", ".join(f"{name} is {states[name]}" for name in missing)
    return f"{listed}, and {needed} of {len(names)} {role}s must be up"


def node_state(node: LocalNode) -> str:
    """Returns the state of a node's process: up, down or paused."""
    if not node.is_alive:
        return "down"
    return "paused" if process_state(node.pid) == "T" else "up"
