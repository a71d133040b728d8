"""Which nodes a partition separates, and whose packets a network fault concerns. Pure; the same in every world.

A partition is a list of groups, and a node may be in several: two nodes are separated when both are in some group
and no group has both. So a bridge is in both groups, and a ring is the list of its edges.
"""

from collections.abc import Collection, Iterable, Sequence

from harness.contracts.cluster import Population
from nemesis.fault import Fault
from nemesis.faults import Packets
from nemesis.parameters import PLANES
from nemesis.targets import BROKER, CONTROLLER, Chooser, kinds_of

Groups = tuple[tuple[str, ...], ...]
Pairs = tuple[tuple[str, str], ...]

_LEAST_NODES = {"halves": 2, "minority": 3, "bridge": 3, "majorities_ring": 3, "groups": 2}


def split(
    shape: str, nodes: Sequence[str], groups: Sequence[Sequence[str]], chooser: Chooser
) -> Groups:
    """Splits nodes into groups whose packets do not reach one another.

    Args:
        shape: "halves"; "minority": as many as can be without being half, and the rest; "bridge": halves, with the
            first node in both; "majorities_ring": every node sees a majority, and no two the same; "groups".
        nodes: The nodes to split, each once.
        groups: Names of nodes, for shape "groups"; those that are not among `nodes` are left out.
        chooser: Decides which node goes into which group.

    Returns:
        Two or more groups in which every node occurs, in the order of `nodes`; none if there are too few nodes for
        the shape, or if the groups would separate no two nodes.
    """
    if len(nodes) < _LEAST_NODES[shape]:
        return ()
    if shape == "groups":
        found = tuple(tuple(n for n in nodes if n in group) for group in groups)
        return _if_it_separates(tuple(group for group in found if group))
    if shape == "bridge":
        bridge, rest = nodes[0], _shuffled(nodes[1:], chooser)
        half = len(rest) // 2
        return tuple(_in_order(nodes, [bridge, *part]) for part in (rest[:half], rest[half:]))
    shuffled = _shuffled(nodes, chooser)
    if shape == "majorities_ring":
        return _ring(nodes, shuffled)
    count = len(nodes) // 2 if shape == "halves" else (len(nodes) - 1) // 2
    return _in_order(nodes, shuffled[:count]), _in_order(nodes, shuffled[count:])


def _ring(nodes: Sequence[str], ring: Sequence[str]) -> Groups:
    """Returns the edges of a ring in which every node sees its neighbours, and as many of theirs as it needs.

    Links work both ways here (TCP needs both directions), so with an odd number of links per node and an odd
    number of nodes there is no ring in which every node sees a bare majority; each then sees one node more.
    Three nodes make a path: the middle sees both others.
    """
    count = len(ring)
    if count == 3:
        return _in_order(nodes, ring[:2]), _in_order(nodes, ring[1:])
    others = count // 2  # a majority, without the node itself
    distances = list(range(1, others // 2 + 1))
    if others % 2:
        distances.append(count // 2 if count % 2 == 0 else others // 2 + 1)
    edges = {
        _in_order(nodes, (ring[index], ring[(index + distance) % count])): None
        for index in range(count)
        for distance in distances
    }
    return tuple(edges)


def _in_order(nodes: Sequence[str], group: Collection[str]) -> tuple[str, ...]:
    return tuple(node for node in nodes if node in group)


def _shuffled(nodes: Sequence[str], chooser: Chooser) -> list[str]:
    remaining = list(nodes)
    return [remaining.pop(int(chooser.random() * len(remaining))) for _ in nodes]


def _if_it_separates(groups: Groups) -> Groups:
    names = {name for group in groups for name in group}
    return groups if any(are_separated(a, b, groups) for a in names for b in names) else ()


def are_separated(a: str, b: str, groups: Sequence[Collection[str]]) -> bool:
    """Whether a partition lies between two nodes. A node in no group is separated from no other."""
    of_a = {index for index, group in enumerate(groups) if a in group}
    of_b = {index for index, group in enumerate(groups) if b in group}
    return bool(of_a) and bool(of_b) and not of_a & of_b


def plane_of(kind_a: str, kind_b: str) -> str:
    """Returns the plane of the packets between nodes of two kinds.

    Anything with a controller at one end is the controller plane, then broker to broker is inter-broker, and
    all the rest, the harness included, is the client plane.
    """
    if CONTROLLER in (kind_a, kind_b):
        return "controller"
    return "inter-broker" if kind_a == kind_b == BROKER else "client"


def affected_pairs(fault: Fault, nodes: tuple[str, ...], population: Population) -> Pairs:
    """Returns whose packets a fault concerns, as ordered pairs (source, destination) of host names.

    Clients and the harness never send packets to one another, so no pair is made of two of them.

    Args:
        fault: A fault of the network. A partition has the parameter `groups`, the names of nodes that `split`
            returned.
        nodes: The nodes that it is for: resolved names, in the order of its targets.
        population: All hosts.

    Raises:
        ValueError: The fault does not concern the packets between pairs of hosts.
    """
    kinds = kinds_of(population)
    planes = fault.value("planes") or PLANES
    pairs: dict[tuple[str, str], None] = {}
    for source, target in _candidates(fault, nodes, tuple(kinds)):
        ends = kinds[source], kinds[target]
        is_served = BROKER in ends or CONTROLLER in ends
        if source != target and is_served and plane_of(*ends) in planes:
            pairs[source, target] = None
    return tuple(pairs)


def _candidates(
    fault: Fault, nodes: tuple[str, ...], hosts: tuple[str, ...]
) -> Iterable[tuple[str, str]]:
    match fault.type.packets:
        case Packets.BETWEEN:
            for other in nodes[1:]:
                yield nodes[0], other
                if fault.value("direction") != "one-way":
                    yield other, nodes[0]
        case Packets.TO_AND_FROM:
            for node in nodes:
                for host in hosts:
                    yield from ((node, host), (host, node))
        case Packets.TO:
            yield from ((host, node) for node in nodes for host in hosts)
        case Packets.FROM:
            yield from ((node, host) for node in nodes for host in hosts)
        case Packets.ACROSS:
            groups = fault.value("groups") or ()
            yield from ((a, b) for a in nodes for b in nodes if are_separated(a, b, groups))
        case Packets.NONE:
            raise ValueError(f"{fault.fault!r} does not concern the packets between pairs of hosts")
