"""`laststand cluster`: a cluster of processes on this machine to play with."""

import argparse
from collections.abc import Iterator
from typing import Any

from harness import exit_codes
from harness.agent.procfs import process_state
from harness.errors import HarnessFailure, UsageError
from harness.local_cluster import LocalCluster, LocalNode
from harness.pipeline import to_json_line
from harness.wire_client import ask
from system_under_test.config import PROFILES, TIMINGS
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    describe_quorum_request,
    describe_topic_partitions_request,
    list_offsets_request,
)
from system_under_test.protocol.metadata_codec import METADATA_TOPIC

READY_LIMIT_S = 60.0
PAGE_SIZE = 1000
UNKNOWN = -1


def up(options: argparse.Namespace) -> int:
    """Starts a cluster and returns when clients can use it."""
    _check_numbers(options)
    cluster = LocalCluster.create(
        options.directory.resolve(),
        brokers=options.brokers,
        controllers=options.controllers,
        profile=options.profile,
        timings=options.timings,
        first_port=options.port,
        ends_with_parent=False,
    )
    try:
        cluster.start()
        cluster.wait_ready(READY_LIMIT_S)
    except BaseException:
        cluster.down()
        raise
    if options.json:
        print(to_json_line({"bootstrap": cluster.bootstrap, "directory": str(options.directory)}))
    else:
        print(f"bootstrap  {cluster.bootstrap}")
        print(f"try        kcat -b {cluster.bootstrap} -L")
        print("then       laststand cluster status, laststand cluster down")
    return exit_codes.VALID


def down(options: argparse.Namespace) -> int:
    """Ends a cluster; nothing stays."""
    cluster = LocalCluster.attach(options.directory.resolve())
    ended = sum(node.is_alive for node in cluster.nodes.values())
    cluster.down()
    if options.json:
        print(to_json_line({"ended": ended}))
    else:
        print(f"ended {ended} nodes")
    return exit_codes.VALID


def act(options: argparse.Namespace) -> int:
    """Kills, stops, starts, pauses or resumes one node."""
    cluster = LocalCluster.attach(options.directory.resolve())
    name = options.node
    if name not in cluster.nodes:
        raise UsageError(f"no node is called {name!r} (known: {', '.join(cluster.nodes)})")
    node = cluster.nodes[name]
    was_alive = node.is_alive
    if options.action == "start":
        cluster.start_node(name)
    else:
        {
            "kill": cluster.kill,
            "stop": cluster.stop,
            "pause": cluster.pause,
            "resume": cluster.resume,
        }[options.action](name)
    if options.action != "start" and not was_alive:
        raise UsageError(f"{name} is down; `laststand cluster start {name}` starts it")
    word = _state(node)
    if options.json:
        print(to_json_line({"node": name, "action": options.action, "state": word}))
    else:
        print(f"{options.action} {name}: {word}")
    return exit_codes.VALID


def status(options: argparse.Namespace) -> int:
    """Says how a cluster is."""
    cluster = LocalCluster.attach(options.directory.resolve())
    data = cluster_status(cluster)
    if options.json:
        print(to_json_line(data))
    else:
        print("\n".join(_status_lines(data)))
    return exit_codes.VALID


def cluster_status(cluster: LocalCluster) -> dict[str, Any]:
    """Asks a cluster how it is.

    Raises:
        HarnessFailure: No broker that runs answers.
    """
    nodes = [
        {
            "name": node.name,
            "role": node.role,
            "address": node.address,
            "pid": node.pid,
            "state": _state(node),
        }
        for node in cluster.nodes.values()
    ]
    addresses = {
        node.node_id: node.address
        for node in cluster.nodes.values()
        if node.role == "broker" and _state(node) == "up"
    }
    failure = "every broker is down"
    for address in addresses.values():
        try:
            partitions = list(_partitions(address))
            quorum = _quorum(address)
            break
        except (OSError, ValueError) as error:
            failure = str(error)
    else:
        raise HarnessFailure(f"no broker tells how the cluster is: {failure}")
    marks = _high_watermarks(addresses, partitions)
    for partition in partitions:
        partition["high_watermark"] = marks.get((partition["topic"], partition["partition"]))
    return {
        "bootstrap": cluster.bootstrap,
        "profile": cluster.profile,
        "nodes": nodes,
        "quorum": quorum,
        "partitions": partitions,
    }


def _state(node: LocalNode) -> str:
    if not node.is_alive:
        return "down"
    return "paused" if process_state(node.pid) == "T" else "up"


def _partitions(address: str) -> Iterator[dict[str, Any]]:
    cursor = None
    while True:
        answer = ask(
            address,
            describe_topic_partitions_request.DescribeTopicPartitionsRequest(
                topics=(), response_partition_limit=PAGE_SIZE, cursor=cursor
            ),
        )
        for topic in answer.topics:
            for one in topic.partitions:
                yield {
                    "topic": topic.name,
                    "partition": one.partition_index,
                    "leader": one.leader_id,
                    "leader_epoch": one.leader_epoch,
                    "replicas": list(one.replica_nodes),
                    "isr": list(one.isr_nodes),
                    "elr": list(one.eligible_leader_replicas or ()),
                    "last_known_elr": list(one.last_known_elr or ()),
                }
        if answer.next_cursor is None:
            return
        cursor = describe_topic_partitions_request.Cursor(
            topic_name=answer.next_cursor.topic_name,
            partition_index=answer.next_cursor.partition_index,
        )


def _quorum(address: str) -> dict[str, Any]:
    request = describe_quorum_request.DescribeQuorumRequest(
        topics=(
            describe_quorum_request.TopicData(
                topic_name=METADATA_TOPIC,
                partitions=(describe_quorum_request.PartitionData(partition_index=0),),
            ),
        )
    )
    answer = ask(address, request, timeout_s=5.0)
    if not answer.topics:
        return {"leader": UNKNOWN, "epoch": UNKNOWN, "high_watermark": UNKNOWN, "replicas": []}
    (one,) = answer.topics[0].partitions
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
    """Asks every leader for the latest offsets of what it leads."""
    marks: dict[tuple[str, int], int] = {}
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
            answer = ask(address, request)
        except (OSError, ValueError):
            continue  # its partitions have no high watermark in the table
        for topic in answer.topics:
            for one in topic.partitions:
                if one.error_code == ErrorCode.NONE:
                    marks[(topic.name, one.partition_index)] = one.offset
    return marks


def _status_lines(data: dict[str, Any]) -> Iterator[str]:
    quorum = data["quorum"]
    behind = {replica["node"]: replica for replica in quorum["replicas"]}
    yield f"{'Node':<6}{'Role':<12}{'State':<8}{'Pid':>8}  {'Address':<22}{'Metadata lag':>12}"
    for node in data["nodes"]:
        replica = behind.get(int(node["name"][1:]), {})
        lag = replica.get("lag")
        leads = "  active" if int(node["name"][1:]) == quorum["leader"] else ""
        yield (
            f"{node['name']:<6}{node['role']:<12}{node['state']:<8}{node['pid']:>8}  "
            f"{node['address']:<22}{'-' if lag is None else lag:>12}{leads}"
        )
    yield ""
    yield (
        f"Metadata quorum: leader {quorum['leader']}, epoch {quorum['epoch']}, "
        f"high watermark {quorum['high_watermark']}"
    )
    for one in data["partitions"]:
        mark = one["high_watermark"]
        yield (
            f"Topic: {one['topic']}\tPartition: {one['partition']}\tLeader: {_id(one['leader'])}\t"
            f"LeaderEpoch: {one['leader_epoch']}\tReplicas: {_ids(one['replicas'])}\t"
            f"Isr: {_ids(one['isr'])}\tElr: {_ids(one['elr'])}\t"
            f"LastKnownElr: {_ids(one['last_known_elr'])}\tHW: {'-' if mark is None else mark}"
        )


def _id(broker: int) -> str:
    return "none" if broker < 0 else str(broker)


def _ids(brokers: list[int]) -> str:
    return ",".join(str(broker) for broker in brokers)


def _check_numbers(options: argparse.Namespace) -> None:
    for name, largest in (("brokers", 10), ("controllers", 9)):
        if not 1 <= getattr(options, name) <= largest:
            raise UsageError(f"--{name} is {getattr(options, name)}; choose 1 to {largest}")
    if options.profile not in PROFILES:
        raise UsageError(f"no profile is called {options.profile!r} (known: {', '.join(PROFILES)})")
    if options.timings not in TIMINGS:
        raise UsageError(f"--timings is {options.timings!r}; choose {' or '.join(TIMINGS)}")
    if (
        options.port is not None
        and not 0 < options.port < 65536 - options.brokers - options.controllers
    ):
        raise UsageError(f"--port is {options.port}; choose a port that leaves room for all nodes")
