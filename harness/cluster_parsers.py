"""The command line of `laststand cluster`; `cluster_commands.py`, which takes longer to load, carries it out."""

from pathlib import Path
from typing import Any

DEFAULT_DIRECTORY = Path(".laststand-cluster")


def add_parsers(commands: Any, make: Any) -> None:
    """Adds `cluster` and its subcommands to a command line."""
    cluster = commands.add_parser(
        "cluster",
        help="a cluster of processes on this machine: up, status, down, kill ...",
        description="A cluster of real processes on loopback that Kafka clients can talk to.",
        allow_abbrev=False,
    )
    cluster.set_defaults(parser=cluster)
    actions = cluster.add_subparsers(metavar="ACTION", parser_class=type(cluster))
    up = make(actions, "up", "start a cluster in the background and print its bootstrap address")
    up.set_defaults(command="cluster_up")
    up.add_argument("--brokers", type=int, default=3, help="(default: %(default)s)")
    up.add_argument("--controllers", type=int, default=3, help="(default: %(default)s)")
    up.add_argument("--profile", default="kafka-4.1", help="(default: %(default)s)")
    up.add_argument("--timings", default="kafka", help="kafka or fast (default: %(default)s)")
    up.add_argument("--port", type=int, help="of the first broker (default: free ports)")
    status = make(actions, "status", "leaders, ISR, ELR, epochs, high watermarks, the quorum")
    status.set_defaults(command="cluster_status")
    down = make(actions, "down", "end all nodes and remove their files")
    down.set_defaults(command="cluster_down")
    everything = [up, status, down]
    for action, summary in (
        ("kill", "end a node with SIGKILL"),
        ("stop", "end a node in order, with SIGTERM"),
        ("start", "start a node that is down"),
        ("pause", "freeze a node with SIGSTOP"),
        ("resume", "thaw a node with SIGCONT"),
    ):
        parser = make(actions, action, summary)
        parser.set_defaults(command="cluster_act", action=action)
        parser.add_argument("node", help="for example b1 or c11")
        everything.append(parser)
    for parser in everything:
        parser.add_argument(
            "--directory",
            type=Path,
            default=DEFAULT_DIRECTORY,
            metavar="DIR",
            help="where the cluster's files are (default: %(default)s)",
        )
