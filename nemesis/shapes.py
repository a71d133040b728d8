"""Who is split from whom, and whose packets a network fault concerns. Pure, and the same in every world.

A partition is a list of groups, and a node may be in several: two nodes are separated when both are in some group
and no group has both. So a bridge is in both groups, and a ring is the list of its edges.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from harness.contracts.cluster import HARNESS_HOST, Population
from nemesis.targets import Chooser

BROKER, CONTROLLER, CLIENT = "broker", "controller", "client"

Groups = tuple[tuple[str, ...], ...]
Pairs = tuple[tuple[str, str], ...]

_LEAST_NODES = {"halves": 2, "minority": 3, "bridge": 3, "majorities_ring": 3, "groups": 2}


def split(
    shape: str, nodes: Sequence[str], groups: Sequence[Sequence[str]], chooser: Chooser
) -> Groups:
    """Splits nodes into groups that will not hear of one another.

    Args:
        shape: "halves"; "minority": as many as can be without being half, and the rest; "bridge": halves, with the
            first node in both; "majorities_ring": every node sees a majority, and no two the same; "groups".
        nodes: Whom to split, each once.
        groups: Names of nodes, for shape "groups"; those that are not among `nodes` are left out.
        chooser: Decides who goes where.

    Returns:
        Two or more groups in which every node occurs, in the order of `nodes`; none if there are too few nodes for
        the shape, or if the groups would separate nobody.
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

    Links work both ways here (half a TCP connection is none), so with an odd number of links per node and an odd
    number of nodes there is no ring in which everybody sees a bare majority; they then see one node more.
    Three nodes make a path: the middle sees both others.
    """
    count = len(ring)
    if count == 3:
        return _in_order(nodes, ring[:2]), _in_order(nodes, ring[1:])
    others = count // 2  # a majority, without oneself
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
    """Whether a partition lies between two nodes. Nodes in no group see everybody."""
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


def kinds_of(population: Population) -> dict[str, str]:
    """Returns every host and its kind: brokers, controllers, clients, and the host of the harness."""
    return {
        **{name: BROKER for name, _ in population.brokers},
        **{name: CONTROLLER for name, _ in population.controllers},
        **dict.fromkeys(population.clients, CLIENT),
        HARNESS_HOST: CLIENT,
    }


def affected_pairs(
    fault: str, nodes: tuple[str, ...], params: Mapping[str, Any], population: Population
) -> Pairs:
    """Returns whose packets a fault concerns, as ordered pairs (source, destination) of host names.

    Clients and the harness have nothing to say to one another, so no pair is made of two of them.

    Args:
        fault: "cut", "isolate", "partition", "reject", "loss" or "delay".
        nodes: The nodes it hits: resolved names, in the order of its targets.
        params: Its parameters; of a partition, `groups` are the names of nodes that `split` returned.
        population: All hosts.

    Raises:
        ValueError: The fault is none of these.
    """
    kinds = kinds_of(population)
    planes = params.get("planes") or ("inter-broker", "controller", "client")
    pairs: dict[tuple[str, str], None] = {}
    for source, target in _candidates(fault, nodes, params, tuple(kinds)):
        ends = kinds[source], kinds[target]
        is_served = BROKER in ends or CONTROLLER in ends
        if source != target and is_served and plane_of(*ends) in planes:
            pairs[source, target] = None
    return tuple(pairs)


def _candidates(
    fault: str, nodes: tuple[str, ...], params: Mapping[str, Any], hosts: tuple[str, ...]
) -> Iterable[tuple[str, str]]:
    if fault in ("cut", "reject"):
        for other in nodes[1:]:
            yield nodes[0], other
            if params.get("direction", "both") == "both":
                yield other, nodes[0]
    elif fault in ("isolate", "loss"):
        for node in nodes:
            for host in hosts:
                yield from ((node, host), (host, node))
    elif fault == "delay":
        yield from ((host, node) for node in nodes for host in hosts)
    elif fault == "partition":
        groups = params.get("groups", ())
        yield from ((a, b) for a in nodes for b in nodes if are_separated(a, b, groups))
    else:
        raise ValueError(f"{fault!r} does not concern the packets between pairs of hosts")
