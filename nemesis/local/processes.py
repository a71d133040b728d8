"""Stops and resumes the process of a local node by signals."""

from nemesis.agent.processes import signals
from nemesis.agent.processes.signals import ProcessId
from nemesis.local.nodes import Node


def identity(node: Node) -> ProcessId:
    """Returns the last process of a node."""
    return ProcessId(pid=node.pid, began=node.began)


def pause(node: Node) -> bool:
    """Stops a node with SIGSTOP; returns whether every thread of it has stopped."""
    return signals.freeze(identity(node))


def resume(node: Node) -> bool:
    """Resumes a node with SIGCONT; returns whether it was there."""
    return signals.thaw(identity(node))
