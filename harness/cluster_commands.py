"""`laststand cluster`: a cluster of processes on this machine to play with."""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from harness import exit_codes
from harness.environments.local.standing import LocalCluster, LocalNode
from harness.environments.local.wire_client import ask
from harness.errors import UsageError
from harness.runs.record import to_json_line
from nemesis.agent.processes.procfs import process_state
from nemesis.local import processes
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
BROKER_LIMIT_S = 2.0
"""For what a broker knows by itself."""
PARTITIONS_LIMIT_S = 10.0
QUORUM_LIMIT_S = 5.0
SHORTEST_LIMIT_S = 0.1
"""A socket takes a limit of 0 for "do not wait at all"."""

T = TypeVar("T")


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
    elif options.action in ("kill", "stop"):
        {"kill": cluster.kill, "stop": cluster.stop}[options.action](name)
    else:
        {"pause": processes.pause, "resume": processes.resume}[options.action](node)
    if options.action != "start" and not was_alive:
        raise UsageError(f"{name} is down; `laststand cluster start {name}` starts it")
    word = _state(node)
    if options.json:
        print(to_json_line({"node": name, "action": options.action, "state": word}))
    else:
        print(f"{options.action} {name}: {word}")
    return exit_codes.VALID


def status(options: argparse.Namespace) -> int:
    """Says how a cluster is: all that can be known, and of the rest why not."""
    cluster = LocalCluster.attach(options.directory.resolve())
    data = cluster_status(cluster)
    if options.json:
        print(to_json_line(data))
    else:
        print("\n".join(_status_lines(data)))
    if not data["untold"]:
        return exit_codes.VALID
    print(f"laststand: nobody tells the {' and the '.join(data['untold'])}", file=sys.stderr)
    return exit_codes.FAILURE


def cluster_status(cluster: LocalCluster) -> dict[str, Any]:
    """Asks a cluster how it is.

    Returns:
        What is known of it. "partitions" and "quorum" are None when no broker tells them; "untold" then holds
        the reason, one sentence under the same name.
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
    states = {str(node["name"]): str(node["state"]) for node in nodes}
    addresses = {
        node.node_id: node.address
        for node in cluster.nodes.values()
        if node.role == "broker" and states[node.name] == "up"
    }
    untold: dict[str, str] = {}
    partitions, failure = _first_answer(addresses, PARTITIONS_LIMIT_S, _partitions)
    if partitions is None:
        untold["partitions"] = _without_answer("broker", cluster, states, failure)
    marks = _high_watermarks(addresses, partitions or [])
    for partition in partitions or []:
        partition["high_watermark"] = marks.get((partition["topic"], partition["partition"]))
    # A broker that has not told the partitions is not waited for once more.
    quorum, failure = _first_answer(
        addresses if partitions is not None else {}, QUORUM_LIMIT_S, _quorum
    )
    if quorum is None:
        role = "broker" if partitions is None else "controller"
        untold["quorum"] = _without_answer(role, cluster, states, failure)
    return {
        "bootstrap": cluster.bootstrap,
        "profile": cluster.profile,
        "nodes": nodes,
        "quorum": quorum,
        "partitions": partitions,
        "untold": untold,
    }


def _first_answer(
    addresses: dict[int, str], limit_s: float, ask_one: Callable[[str, float], T]
) -> tuple[T | None, str]:
    """Asks one broker after the other until one answers.

    Args:
        addresses: Of the brokers that are up.
        limit_s: For all of them together: a question that brokers pass on is as slow with the next one.
        ask_one: Asks the broker at an address within so many seconds.

    Returns:
        The answer, None if nobody gave one; and what the last of them said instead.
    """
    failure = ""
    deadline_s = time.monotonic() + limit_s
    for broker, address in addresses.items():
        remaining_s = deadline_s - time.monotonic()
        if remaining_s <= 0:
            break
        try:
            return ask_one(address, remaining_s), ""
        except TimeoutError:
            failure = f"b{broker} did not answer in time"
        except (OSError, ValueError) as error:
            failure = f"b{broker}: {error}"
    return None, failure


def _without_answer(role: str, cluster: LocalCluster, states: dict[str, str], failure: str) -> str:
    """Says why nodes of a role did not answer; when too few of them are up, that is why."""
    names = [node.name for node in cluster.nodes.values() if node.role == role]
    missing = [name for name in names if states[name] != "up"]
    # One broker is enough; of the controllers it takes a majority.
    needed = 1 if role == "broker" else len(names) // 2 + 1
    if len(names) - len(missing) >= needed:
        return failure
    if len(missing) == len(names) and {states[name] for name in names} == {"down"}:
        return f"every {role} is down; `laststand cluster start NODE` starts one"
    told = ", ".join(f"{name} is {states[name]}" for name in missing)
    return f"{told}, and {needed} of {len(names)} {role}s must be up"


def _state(node: LocalNode) -> str:
    if not node.is_alive:
        return "down"
    return "paused" if process_state(node.pid) == "T" else "up"


def _partitions(address: str, limit_s: float) -> list[dict[str, Any]]:
    """Returns every partition that one broker knows.

    Raises:
        OSError: It does not answer in time.
        ValueError: Its answer cannot be read.
    """
    found: list[dict[str, Any]] = []
    deadline_s = time.monotonic() + limit_s
    cursor = None
    while True:
        answer = ask(
            address,
            describe_topic_partitions_request.DescribeTopicPartitionsRequest(
                topics=(), response_partition_limit=PAGE_SIZE, cursor=cursor
            ),
            timeout_s=min(BROKER_LIMIT_S, max(deadline_s - time.monotonic(), SHORTEST_LIMIT_S)),
        )
        for topic in answer.topics:
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
        if answer.next_cursor is None:
            return found
        cursor = describe_topic_partitions_request.Cursor(
            topic_name=answer.next_cursor.topic_name,
            partition_index=answer.next_cursor.partition_index,
        )


def _quorum(address: str, limit_s: float) -> dict[str, Any]:
    """Returns the metadata quorum as its leader tells it through one broker.

    Raises:
        OSError: No answer in time. Brokers ask for a leader up to 30 s; whoever looks at a table waits less.
        ValueError: The answer says nothing.
    """
    request = describe_quorum_request.DescribeQuorumRequest(
        topics=(
            describe_quorum_request.TopicData(
                topic_name=METADATA_TOPIC,
                partitions=(describe_quorum_request.PartitionData(partition_index=0),),
            ),
        )
    )
    answer = ask(address, request, timeout_s=limit_s)
    if not answer.topics:
        raise ValueError(f"the quorum's answer is {answer.error_code.name}")
    (one,) = answer.topics[0].partitions
    if one.error_code != ErrorCode.NONE:
        raise ValueError(f"the quorum's answer is {one.error_code.name}")
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
    behind = {replica["node"]: replica for replica in quorum["replicas"]} if quorum else {}
    yield f"{'Node':<6}{'Role':<12}{'State':<8}{'Pid':>8}  {'Address':<22}{'Metadata lag':>12}"
    for node in data["nodes"]:
        node_id = int(node["name"][1:])
        lag = behind.get(node_id, {}).get("lag")
        leads = "  active" if quorum and node_id == quorum["leader"] else ""
        yield (
            f"{node['name']:<6}{node['role']:<12}{node['state']:<8}{node['pid']:>8}  "
            f"{node['address']:<22}{'-' if lag is None else lag:>12}{leads}"
        )
    yield ""
    if quorum is None:
        yield f"Metadata quorum: unknown: {data['untold']['quorum']}"
    else:
        yield (
            f"Metadata quorum: leader {quorum['leader']}, epoch {quorum['epoch']}, "
            f"high watermark {quorum['high_watermark']}"
        )
    if data["partitions"] is None:
        yield f"Partitions: unknown: {data['untold']['partitions']}"
    for one in data["partitions"] or ():
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
