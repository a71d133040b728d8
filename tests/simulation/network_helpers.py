"""What the tests of the simulated network share: whose packets a rule is about, and requests from k1 to b1."""

from collections.abc import Collection
from typing import Any

from harness.simulation.network import Pairs
from harness.simulation.node import SimNode
from harness.simulation.world import World
from nemesis.shapes import are_separated, plane_of
from system_under_test.runtime import Connection
from tests.simulation.sim_helpers import Echo, S, call

FOREVER_MS = 10_000_000.0


def between(a: str, b: str) -> Pairs:
    """Two nodes, both ways."""
    return (a, b), (b, a)


K1_TO_B1 = (("k1", "b1"),)
B1_TO_K1 = (("b1", "k1"),)
K1_AND_B1 = between("k1", "b1")


def around(world: World, node: str) -> Pairs:
    """A node and each of the others, both ways, clients and the harness included."""
    return [pair for other in world.nodes if other != node for pair in between(node, other)]


def across(*groups: Collection[str]) -> Pairs:
    """The nodes of different groups; a node in two groups is a bridge between them."""
    nodes = sorted({node for group in groups for node in group})
    return [(a, b) for a in nodes for b in nodes if are_separated(a, b, groups)]


def on_planes(world: World, planes: Collection[str], pairs: Pairs) -> Pairs:
    """Those of some pairs whose packets are on one of some planes."""
    kinds = {name: node.kind for name, node in world.nodes.items()}
    return [(src, dst) for src, dst in pairs if plane_of(kinds[src], kinds[dst]) in planes]


def connect(world: World, timeout_ms: float = 1_000, src: str = "k1", dst: str = "b1:9092") -> Any:
    return call(world, src, world.nodes[src].host.network.connect(dst, timeout_ms), 2_000 * S)


def ask(world: World, connection: Connection, message: Any, timeout_ms: float = FOREVER_MS) -> Any:
    with world.inside(world.nodes["k1"].loop):
        return connection.request(message, timeout_ms)


def received(node: SimNode) -> list[Any]:
    assert isinstance(node.process, Echo)
    return [message for _, message in node.process.received]
