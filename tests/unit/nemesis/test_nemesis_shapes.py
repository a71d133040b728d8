"""Which nodes are separated, and which packets a fault affects: properties that hold for every draw."""

from itertools import combinations
from random import Random

import pytest

from harness.contracts.cluster import Population
from nemesis import shapes
from nemesis.fault import Fault
from nemesis.shapes import are_separated, kinds_of, plane_of, split

SIZES = range(2, 12)
BROKERS = ("b1", "b2", "b3")
CONTROLLERS = ("c11", "c12", "c13")
POPULATION = Population(
    brokers=tuple((name, int(name[1:])) for name in BROKERS),
    controllers=tuple((name, int(name[1:])) for name in CONTROLLERS),
    clients=("client-0", "client-1"),
)
HOSTS = (*BROKERS, *CONTROLLERS, "client-0", "client-1", "harness")


def affected_pairs(fault, nodes, params, population):
    """Returns the pairs of a fault as the driver passes it on, with a partition's groups drawn."""
    made = Fault(id="f1", fault=fault, targets=(*nodes, "b9"), params=params, is_drawn=True)
    return shapes.affected_pairs(made, nodes, population)


def names(count):
    return tuple(f"n{index}" for index in range(count))


def draws(shape, least=2):
    """Yields (nodes, groups) of many draws."""
    for count in SIZES:
        for seed in range(25):
            groups = split(shape, names(count), (), Random(f"{shape}/{count}/{seed}"))
            if count >= least:
                assert groups
                yield names(count), groups
            else:
                assert groups == ()


def seen_by(node, nodes, groups):
    return {other for other in nodes if not are_separated(node, other, groups)}


def test_halves_are_halves():
    for nodes, groups in draws("halves"):
        assert sorted(node for group in groups for node in group) == sorted(nodes)
        assert [len(group) for group in groups] == [len(nodes) // 2, (len(nodes) + 1) // 2]


def test_a_minority_is_as_large_as_possible_and_the_rest_is_a_majority():
    for nodes, (few, many) in draws("minority", least=3):
        assert sorted((*few, *many)) == sorted(nodes)
        assert len(few) == (len(nodes) - 1) // 2
        assert 2 * len(many) > len(nodes)


def test_a_bridge_reaches_every_node_and_each_half_reaches_only_itself_and_the_bridge():
    for nodes, groups in draws("bridge", least=3):
        bridge = nodes[0]
        assert all(bridge in group for group in groups)
        assert seen_by(bridge, nodes, groups) == set(nodes)
        left, right = (set(group) - {bridge} for group in groups)
        assert abs(len(left) - len(right)) <= 1
        assert all(are_separated(a, b, groups) for a in left for b in right)


def test_in_a_majorities_ring_every_node_reaches_a_different_majority():
    for nodes, groups in draws("majorities_ring", least=3):
        views = [frozenset(seen_by(node, nodes, groups)) for node in nodes]
        assert all(2 * len(view) > len(nodes) for view in views)
        assert len(set(views)) == len(nodes)
        assert any(are_separated(a, b, groups) for a, b in combinations(nodes, 2))


@pytest.mark.parametrize("count", [4, 5, 6, 8, 9, 10])
def test_where_a_ring_of_bare_majorities_exists_no_node_reaches_more(count):
    groups = split("majorities_ring", names(count), (), Random(1))
    for node in names(count):
        assert len(seen_by(node, names(count), groups)) == count // 2 + 1


def test_given_groups_are_used_except_for_nodes_that_must_not_be_split():
    groups = split("groups", ("a", "b", "c"), (("c", "a"), ("b",), ("z",)), Random(1))
    assert groups == (("a", "c"), ("b",))
    assert split("groups", ("a", "b"), (("a",), ("a", "b")), Random(1)) == ()
    assert split("groups", ("a", "z"), (("a",), ("b",)), Random(1)) == ()


@pytest.mark.parametrize("shape", ["halves", "minority", "bridge", "majorities_ring"])
def test_a_split_is_drawn_from_the_random_stream(shape):
    drawn = {split(shape, names(5), (), Random(seed)) for seed in range(20)}
    assert len(drawn) > 1
    assert split(shape, names(5), (), Random(3)) == split(shape, names(5), (), Random(3))


def test_a_controller_at_one_end_decides_the_plane_and_then_a_broker_at_both():
    kinds = ("broker", "controller", "client", "harness")
    for a in kinds:
        assert plane_of(a, "controller") == plane_of("controller", a) == "controller"
    assert plane_of("broker", "broker") == "inter-broker"
    for a in ("broker", "client", "harness"):
        for b in ("client", "harness"):
            assert plane_of(a, b) == plane_of(b, a) == "client"


def cases():
    """Yields (fault, nodes, params) of every kind that concerns pairs."""
    for nodes in (("b1",), ("b1", "c11"), ("b2", "b1", "client-0"), CONTROLLERS):
        for planes in ({}, *({"planes": (p,)} for p in ("inter-broker", "controller", "client"))):
            yield from ((fault, nodes, planes) for fault in ("isolate", "loss", "delay"))
            yield "bandwidth", nodes, planes
            if len(nodes) > 1:
                yield "cut", nodes, planes
                yield "reject", nodes, planes
                yield "cut", nodes, {**planes, "direction": "one-way"}
                groups = split("halves", nodes, (), Random(1))
                yield "partition", nodes, {**planes, "groups": groups}


@pytest.mark.parametrize(("fault", "nodes", "params"), list(cases()))
def test_pairs_are_of_known_hosts_on_the_right_planes_each_once(fault, nodes, params):
    pairs = affected_pairs(fault, nodes, params, POPULATION)
    kinds = kinds_of(POPULATION)
    assert len(set(pairs)) == len(pairs)
    for source, target in pairs:
        assert source != target
        assert {source, target} <= set(HOSTS)
        assert {source, target} & set(nodes)
        assert not {kinds[source], kinds[target]} <= {"client"}
        assert plane_of(kinds[source], kinds[target]) in params.get(
            "planes", ("inter-broker", "controller", "client")
        )
    if fault not in ("delay", "bandwidth") and params.get("direction") != "one-way":
        assert {(b, a) for a, b in pairs} == set(pairs)


@pytest.mark.parametrize(("fault", "nodes", "params"), list(cases()))
def test_all_planes_together_mean_no_named_plane(fault, nodes, params):
    whole = {key: value for key, value in params.items() if key != "planes"}
    parts = [
        set(affected_pairs(fault, nodes, {**whole, "planes": (plane,)}, POPULATION))
        for plane in ("inter-broker", "controller", "client")
    ]
    assert set().union(*parts) == set(affected_pairs(fault, nodes, whole, POPULATION))
    assert sum(map(len, parts)) == len(set().union(*parts))


def test_an_isolated_node_is_cut_from_every_node_in_both_directions():
    pairs = affected_pairs("isolate", ("b1",), {}, POPULATION)
    others = set(HOSTS) - {"b1"}
    assert set(pairs) == {("b1", host) for host in others} | {(host, "b1") for host in others}


def test_a_cut_separates_only_the_first_node_from_each_of_the_others():
    both = affected_pairs("cut", ("b1", "b2", "b3"), {}, POPULATION)
    assert set(both) == {("b1", "b2"), ("b2", "b1"), ("b1", "b3"), ("b3", "b1")}
    one_way = affected_pairs("cut", ("b1", "b2", "b3"), {"direction": "one-way"}, POPULATION)
    assert one_way == (("b1", "b2"), ("b1", "b3"))


def test_a_delay_affects_traffic_that_arrives_at_the_node():
    pairs = affected_pairs("delay", ("b1",), {}, POPULATION)
    assert set(pairs) == {(host, "b1") for host in HOSTS if host != "b1"}


def test_a_bandwidth_limit_affects_traffic_that_the_node_sends():
    pairs = affected_pairs("bandwidth", ("b1",), {}, POPULATION)
    assert set(pairs) == {("b1", host) for host in HOSTS if host != "b1"}


def test_a_partition_does_not_affect_nodes_outside_its_groups():
    groups = (("b1", "c11"), ("b2", "b3"))
    pairs = affected_pairs("partition", ("b1", "c11", "b2", "b3"), {"groups": groups}, POPULATION)
    expected = {(a, b) for a in groups[0] for b in groups[1]}
    assert set(pairs) == expected | {(b, a) for a, b in expected}


def test_clients_send_no_packets_to_one_another():
    pairs = affected_pairs("isolate", ("client-0",), {}, POPULATION)
    assert not {name for pair in pairs for name in pair} & {"client-1", "harness"}


def test_a_fault_without_packets_is_refused():
    with pytest.raises(ValueError, match="does not concern"):
        affected_pairs("kill", ("b1",), {}, POPULATION)
