"""`laststand cluster`: a cluster of processes on this machine to try things on."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import exit_codes
from harness.cli.options import Subcommands, add_command, add_command_family, join_names
from harness.cli.output import print_json, show
from harness.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

DEFAULT_DIRECTORY = Path(".laststand-cluster")
READY_LIMIT_S = 60.0
BROKERS_MAX = 10
CONTROLLERS_MAX = 9
ACTIONS = {
    "kill": "stop a node at once with SIGKILL",
    "stop": "stop a node cleanly with SIGTERM",
    "start": "start a node that is down",
    "pause": "pause a node with SIGSTOP",
    "resume": "resume a paused node with SIGCONT",
}


def add_parser(commands: Subcommands) -> None:
    """Adds the command and its subcommands."""
    actions = add_command_family(
        commands,
        "cluster",
        "manage a cluster of processes on this machine: up, status, down, kill ...",
        "Manage a cluster of real processes on loopback, which Kafka clients can use.",
    )
    summary = "start a cluster in the background and print its bootstrap address"
    parser = add_command(actions, "up", up, summary, stores_runs=False)
    _add_directory(parser)
    parser.add_argument(
        "--brokers",
        type=int,
        default=3,
        metavar="N",
        help=f"start N brokers, 1 to {BROKERS_MAX} (default: %(default)s)",
    )
    parser.add_argument(
        "--controllers",
        type=int,
        default=3,
        metavar="N",
        help=f"start N controllers, 1 to {CONTROLLERS_MAX} (default: %(default)s)",
    )
    parser.add_argument(
        "--profile",
        default="kafka-4.1",
        metavar="NAME",
        help="behave like this version (default: %(default)s)",
    )
    parser.add_argument(
        "--timings",
        default="kafka",
        metavar="NAME",
        help="use the timings kafka, or fast, which are about ten times shorter "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--port", type=int, help="use this port for the first broker (default: free ports)"
    )
    parser.add_argument(
        "--metrics",
        action="store_true",
        help="let every node serve its metrics for Prometheus, at ports of their own",
    )
    summary = "show nodes, leaders, ISR, ELR, epochs, high watermarks and the metadata quorum"
    _add_directory(add_command(actions, "status", status, summary, stores_runs=False))
    summary = "stop all nodes and remove their files"
    _add_directory(add_command(actions, "down", down, summary, stores_runs=False))
    for name, summary in ACTIONS.items():
        parser = add_command(actions, name, act, summary, stores_runs=False)
        parser.set_defaults(node_action=name)
        parser.add_argument("node", metavar="NODE", help="the node, for example b1 or c11")
        _add_directory(parser)


def _add_directory(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--directory",
        type=Path,
        default=DEFAULT_DIRECTORY,
        metavar="DIR",
        help="keep the cluster's files in this directory (default: %(default)s)",
    )


def up(options: argparse.Namespace) -> int:
    """Starts a cluster and returns when clients can use it."""
    from harness.environments.local.standing import LocalCluster, local_settings

    _check_numbers(options)
    cluster = LocalCluster.create(
        options.directory.resolve(),
        brokers=options.brokers,
        controllers=options.controllers,
        settings=local_settings(profile=options.profile, timings=options.timings),
        first_port=options.port,
        with_metrics=options.metrics,
        ends_with_parent=False,
    )
    try:
        cluster.start()
        cluster.wait_ready(READY_LIMIT_S)
    except BaseException:
        cluster.down()
        raise
    metrics = {
        node.name: f"http://{node.metrics}/metrics"
        for node in cluster.nodes.values()
        if node.metrics
    }
    if options.json:
        started = {"bootstrap": cluster.bootstrap, "directory": str(options.directory)}
        print_json({**started, "metrics": metrics} if metrics else started)
    else:
        print(f"bootstrap  {cluster.bootstrap}")
        for name, url in metrics.items():
            print(f"metrics    {url} of {name}")
        print(f"try        kcat -b {cluster.bootstrap} -L")
        print("then       laststand cluster status, laststand cluster down")
    return exit_codes.VALID


def down(options: argparse.Namespace) -> int:
    """Stops a cluster and removes its files."""
    from harness.environments.local.standing import LocalCluster

    cluster = LocalCluster.attach(options.directory.resolve())
    stopped = sum(node.is_alive for node in cluster.nodes.values())
    cluster.down()
    if options.json:
        print_json({"stopped": stopped})
    else:
        print(f"stopped {stopped} nodes")
    return exit_codes.VALID


def act(options: argparse.Namespace) -> int:
    """Kills, stops, starts, pauses or resumes one node."""
    from harness.cli.cluster_status import node_state
    from harness.environments.local.standing import LocalCluster
    from nemesis.local import processes

    cluster = LocalCluster.attach(options.directory.resolve())
    name, action = options.node, options.node_action
    if name not in cluster.nodes:
        raise UsageError(f"no node is called {name!r} (known: {', '.join(cluster.nodes)})")
    node = cluster.nodes[name]
    was_alive = node.is_alive
    if action in ("pause", "resume"):
        {"pause": processes.pause, "resume": processes.resume}[action](node)
    else:
        {"start": cluster.start_node, "kill": cluster.kill, "stop": cluster.stop}[action](name)
    if action != "start" and not was_alive:
        raise UsageError(f"{name} is down; `laststand cluster start {name}` starts it")
    state = node_state(node)
    if options.json:
        print_json({"node": name, "action": action, "state": state})
    else:
        print(f"{action} {name}: {state}")
    return exit_codes.VALID


def status(options: argparse.Namespace) -> int:
    """Shows the state of a cluster: everything available, with a reason for each missing value."""
    from harness.cli.cluster_status import cluster_status
    from harness.environments.local.standing import LocalCluster

    cluster = LocalCluster.attach(options.directory.resolve())
    data = cluster_status(cluster)
    failed = ""
    if data["unavailable"]:
        failed = f"some values are unavailable: {', '.join(data['unavailable'])}"
    if options.json:
        print_json({**data, "error": failed})
    else:
        show(*_status_parts(data))
    if not failed:
        return exit_codes.VALID
    print(f"laststand: {failed}", file=sys.stderr)
    return exit_codes.FAILURE


def _status_parts(data: dict[str, Any]) -> "Iterator[RenderableType]":
    from results.tables import line, table

    quorum = data["quorum"]
    replicas = {replica["node"]: replica for replica in quorum["replicas"]} if quorum else {}
    rows = []
    for node in data["nodes"]:
        node_id = int(node["name"][1:])
        lag = replicas.get(node_id, {}).get("lag")
        is_leader = quorum and node_id == quorum["leader"]
        rows.append(
            (
                str(node["name"]),
                f"{node['role']} (active)" if is_leader else str(node["role"]),
                str(node["state"]),
                str(node["pid"]),
                str(node["address"]),
                "-" if lag is None else str(lag),
            )
        )
    names = ("node", "role", "state", "pid", "address", "metadata lag")
    yield table(names, rows, right={"pid", "metadata lag"})
    yield line("")
    if quorum is None:
        yield line(f"Metadata quorum: unavailable: {data['unavailable']['quorum']}")
    else:
        yield line(
            f"Metadata quorum: leader {quorum['leader']}, epoch {quorum['epoch']}, "
            f"high watermark {quorum['high_watermark']}"
        )
    if data["partitions"] is None:
        yield line(f"Partitions: unavailable: {data['unavailable']['partitions']}")
    elif data["partitions"]:
        yield line("")
        yield _partition_table(data["partitions"])


def _partition_table(partitions: list[dict[str, Any]]) -> "RenderableType":
    from results.tables import table

    names = (
        "topic",
        "partition",
        "leader",
        "leader epoch",
        "replicas",
        "ISR",
        "ELR",
        "last known ELR",
        "high watermark",
    )
    rows = [
        (
            str(one["topic"]),
            str(one["partition"]),
            "none" if one["leader"] < 0 else str(one["leader"]),
            str(one["leader_epoch"]),
            _ids(one["replicas"]),
            _ids(one["isr"]),
            _ids(one["elr"]),
            _ids(one["last_known_elr"]),
            "-" if one["high_watermark"] is None else str(one["high_watermark"]),
        )
        for one in partitions
    ]
    return table(names, rows, right={"partition", "leader", "leader epoch", "high watermark"})


def _ids(brokers: list[int]) -> str:
    return ",".join(str(broker) for broker in brokers) or "none"


def _check_numbers(options: argparse.Namespace) -> None:
    from harness.systems.reference.adapter import SYSTEM

    for name, largest in (("brokers", BROKERS_MAX), ("controllers", CONTROLLERS_MAX)):
        if not 1 <= getattr(options, name) <= largest:
            raise UsageError(f"--{name} is {getattr(options, name)}; choose 1 to {largest}")
    if options.profile not in SYSTEM.profiles:
        raise UsageError(
            f"no profile is called {options.profile!r} (known: {', '.join(sorted(SYSTEM.profiles))})"
        )
    if options.timings not in SYSTEM.timings:
        raise UsageError(f"--timings is {options.timings!r}; choose {join_names(SYSTEM.timings)}")
    if (
        options.port is not None
        and not 0 < options.port < 65536 - options.brokers - options.controllers
    ):
        raise UsageError(f"--port is {options.port}; choose a port that leaves room for all nodes")
