"""Power cuts of one or several nodes at one instant, as a sequence of steps.

    silence   no packet leaves or reaches the node: a machine without power sends no FIN
    freeze    the process is stopped, so it cannot notice its disk failing and report it
    cut       the file system is shut down: what was not fsynced is gone   (power_cut.cut does this and the next)
    kill      the process is killed, and its sockets are destroyed silently
    remount   the journal is replayed, and what the mode keeps is written back

The harness decides when the node starts again; `power_on` ends the silence.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from nemesis.agent.disks.power_cut import CutPlan, cut
from nemesis.agent.errors import AgentError
from nemesis.agent.node import AgentNode
from nemesis.agent.processes import signals

Response = dict[str, Any]


def silence_rules(node: AgentNode) -> list[Response]:
    """Returns the packet rules that drop everything to and from a node."""
    into = [["*", address] for address in node.addresses]
    out = [[address, "*"] for address in node.addresses]
    return [
        {"kind": "drop", "pairs": into, "hook": "input"},
        {"kind": "drop", "pairs": out, "hook": "output"},
    ]


def power_cut(nodes: list[AgentNode], plans: dict[str, Any], token: str) -> Response:
    """Cuts the power of nodes at one instant; they stay silent until `power_on`.

    Args:
        nodes: The nodes. Nodes that are down lose what they had not made durable as well.
        plans: By node name: the fields of `CutPlan`.
        token: Names the packet rules of the silence.

    Returns:
        What each node lost, and how long each step took.
    """
    began_ns = time.monotonic_ns()
    with ThreadPoolExecutor(max_workers=2 * len(nodes)) as pool:
        list(pool.map(lambda node: node.net.apply(token, silence_rules(node)), nodes))
        silent_ns = time.monotonic_ns()
        for node in nodes:
            # A frozen file system can be neither shut down nor mounted again, and a process that waits for it
            # does not stop.
            node.thaw_disk()
        stand = list(pool.map(_freeze, nodes))
        frozen_ns = time.monotonic_ns()
        reports = cut(
            [node.disk for node in nodes],
            [CutPlan(**plans[node.name]) for node in nodes],
            lambda index: _bury(nodes[index]),
        )
        sockets = list(
            pool.map(lambda node: node.net.reset_connections(node.addresses, None), nodes)
        )
    ended_ns = time.monotonic_ns()
    return {
        "nodes": {
            node.name: {**report.to_json(), "stood": stood, "sockets_destroyed": destroyed}
            for node, report, stood, destroyed in zip(nodes, reports, stand, sockets, strict=True)
        },
        "timings_ms": {
            "silence": (silent_ns - began_ns) / 1e6,
            "freeze": (frozen_ns - silent_ns) / 1e6,
            "cut_and_remount": (ended_ns - frozen_ns) / 1e6,
            "total": (ended_ns - began_ns) / 1e6,
        },
    }


def power_on(nodes: list[AgentNode], token: str) -> Response:
    """Ends the silence of nodes."""
    return {node.name: node.net.remove(token) for node in nodes}


def _freeze(node: AgentNode) -> bool:
    return signals.freeze(node.process) if node.process.is_alive else False


def _bury(node: AgentNode) -> None:
    node.trace_end()
    if node.process.is_alive:
        signals.send(node.process, 9)
        if not signals.wait_gone(node.process):
            raise AgentError(f"{node.name}'s process does not end")
