"""The state of a local cluster, as its brokers report it."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from harness.environments.local.standing import LocalCluster, LocalNode
from harness.systems.reference.wire_client import ask
from nemesis.agent.processes.procfs import process_state
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    describe_quorum_request,
    describe_topic_partitions_request,
    list_offsets_request,
)
from system_under_test.protocol.metadata_codec import METADATA_TOPIC

PAGE_SIZE = 1000
UNKNOWN = -1
BROKER_LIMIT_S = 2.0
"""For a request that a broker can answer without asking another node."""
PARTITIONS_LIMIT_S = 10.0
QUORUM_LIMIT_S = 5.0
SHORTEST_LIMIT_S = 0.1
"""A socket timeout of 0 means "do not wait at all"."""

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
    partitions, failure = _first_response(addresses, PARTITIONS_LIMIT_S, _partitions)
    if partitions is None:
        unavailable["partitions"] = _reason("broker", cluster, states, failure)
    high_watermarks = _high_watermarks(addresses, partitions or [])
    for partition in partitions or []:
        partition["high_watermark"] = high_watermarks.get(
            (partition["topic"], partition["partition"])
        )
    # If no broker reported the partitions, none is asked for the quorum: each attempt costs its timeout.
    quorum, failure = _first_response(
        addresses if partitions is not None else {}, QUORUM_LIMIT_S, _quorum
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


def _partitions(address: str, limit_s: float) -> list[dict[str, Any]]:
    """Returns every partition that one broker knows.

    Raises:
        OSError: It does not respond in time.
        ValueError: Its response cannot be read.
    """
    found: list[dict[str, Any]] = []
    deadline_s = time.monotonic() + limit_s
    cursor = None
    while True:
        response = ask(
            address,
            describe_topic_partitions_request.DescribeTopicPartitionsRequest(
                topics=(), response_partition_limit=PAGE_SIZE, cursor=cursor
            ),
            timeout_s=min(BROKER_LIMIT_S, max(deadline_s - time.monotonic(), SHORTEST_LIMIT_S)),
        )
        for topic in response.topics:
            found.extend(
                {
                    "topic": topic.name,
                    "partition": one.partition_index,
                    "leader": one.leader_id,
                    "leader_epoch": one.leader_epoch,
                    "replicas": list(one.replica_nodes),
                    "isr": list(one.isr_nodes),
                    "elr": list(one.eligible_leader_replicas or ()),
                    "last_known_elr": list(one.last_known_elr or ()),
                }
                for one in topic.partitions
            )
        if response.next_cursor is None:
            return found
        cursor = describe_topic_partitions_request.Cursor(
            topic_name=response.next_cursor.topic_name,
            partition_index=response.next_cursor.partition_index,
        )


def _quorum(address: str, limit_s: float) -> dict[str, Any]:
    """Returns the metadata quorum as its leader reports it through one broker.

    Raises:
        OSError: No response in time. A broker searches for the leader for up to 30 s; this query waits less.
        ValueError: The response contains an error.
    """
    request = describe_quorum_request.DescribeQuorumRequest(
        topics=(
            describe_quorum_request.TopicData(
                topic_name=METADATA_TOPIC,
                partitions=(describe_quorum_request.PartitionData(partition_index=0),),
            ),
        )
    )
    response = ask(address, request, timeout_s=limit_s)
    if not response.topics:
        raise ValueError(f"the quorum responded with {response.error_code.name}")
    (one,) = response.topics[0].partitions
    if one.error_code != ErrorCode.NONE:
        raise ValueError(f"the quorum responded with {one.error_code.name}")
    end = max((replica.log_end_offset for replica in one.current_voters), default=UNKNOWN)
    return {
        "leader": one.leader_id,
        "epoch": one.leader_epoch,
        "high_watermark": one.high_watermark,
        "replicas": [
            {
                "node": replica.replica_id,
                "role": role,
                "log_end_offset": replica.log_end_offset,
                "lag": end - replica.log_end_offset if replica.log_end_offset >= 0 else None,
            }
            for role, replicas in (("voter", one.current_voters), ("observer", one.observers))
            for replica in replicas
        ],
    }


def _high_watermarks(
    addresses: dict[int, str], partitions: list[dict[str, Any]]
) -> dict[tuple[str, int], int]:
    """Queries every leader for the high watermarks of the partitions that it leads."""
    high_watermarks: dict[tuple[str, int], int] = {}
    for broker, address in addresses.items():
        led: dict[str, list[int]] = {}
        for one in partitions:
            if one["leader"] == broker:
                led.setdefault(one["topic"], []).append(one["partition"])
        if not led:
            continue
        request = list_offsets_request.ListOffsetsRequest(
            replica_id=UNKNOWN,
            isolation_level=0,
            topics=tuple(
                list_offsets_request.ListOffsetsTopic(
                    name=topic,
                    partitions=tuple(
                        list_offsets_request.ListOffsetsPartition(
                            partition_index=index, timestamp=UNKNOWN
                        )
                        for index in indexes
                    ),
                )
                for topic, indexes in led.items()
            ),
        )
        try:
            response = ask(address, request)
        except (OSError, ValueError):
            continue  # its partitions have no high watermark in the result
        for topic in response.topics:
            for one in topic.partitions:
                if one.error_code == ErrorCode.NONE:
                    high_watermarks[(topic.name, one.partition_index)] = one.offset
    return high_watermarks
