"""Dropped packets in the simulated network; each behaviour was observed on real Linux."""

from collections.abc import Collection
from typing import Any

import pytest

from harness.simulation.pipe import SEND_BUFFER_BYTES
from harness.simulation.weather import Weather
from harness.simulation.world import World
from nemesis.parameters import PLANES
from system_under_test.runtime import Host
from tests.simulation.network_helpers import (
    B1_TO_K1,
    K1_AND_B1,
    K1_TO_B1,
    across,
    around,
    ask,
    between,
    connect,
    on_planes,
    received,
)
from tests.simulation.sim_helpers import MS, ONE_WAY, RTT, Echo, S, outcome, pair


@pytest.mark.parametrize(
    ("cut_s", "late_s"), [(4.0, 2.72), (12.0, 1.44), (30.0, 23.76)]
)  # measured with INPUT-drop: 2.6, 1.3 and 23.5 s
def test_stalled_frames_resume_at_the_next_retransmission(cut_s: float, late_s: float) -> None:
    world, broker, _ = pair()
    connection = connect(world)
    cut = world.network.stall("cut", K1_AND_B1)
    began = world.now
    answers = [ask(world, connection, i) for i in range(3)]
    world.run_for(int(cut_s * S))
    assert received(broker) == []
    world.network.heal(cut)
    world.run(answers[-1].done, limit_ns=60 * S)
    assert [outcome(f) for f in answers] == [f"('echo', {i})" for i in range(3)]
    late = (world.now - began) / S - cut_s
    assert late == pytest.approx(late_s, abs=0.01)
    assert cut.dropped_or_stalled == 3


@pytest.mark.parametrize("at", ["sender", "receiver"])
def test_a_drop_at_the_sender_resumes_at_the_next_retransmission_like_any_other(at: str) -> None:
    world, _, _ = pair()
    connection = connect(world)
    cut = world.network.stall("cut", K1_AND_B1, at=at)
    began = world.now
    response = ask(world, connection, 1)
    world.run_for(4 * S)
    world.network.heal(cut)
    world.run(response.done, limit_ns=60 * S)
    assert (world.now - began) / S == pytest.approx(4 + 2.72, abs=0.01)  # measured: 2.65 s late


@pytest.mark.parametrize("at", ["sender", "receiver"])
def test_after_a_drop_at_the_sender_the_next_write_is_sent_at_once_with_the_pending_frames(
    at: str,
) -> None:
    world, broker, _ = pair()
    connection = connect(world)
    cut = world.network.stall("cut", K1_AND_B1, at=at)
    ask(world, connection, 1)
    world.run_for(2 * S)
    ask(world, connection, 2)
    world.run_for(2 * S)
    world.network.heal(cut)
    world.run_for(1 * S)
    assert received(broker) == [], "nothing is written, nothing is sent"
    response = ask(world, connection, 3)
    world.run_for(RTT)
    assert received(broker) == ([1, 2, 3] if at == "sender" else [])
    world.run(response.done, limit_ns=10 * S)
    assert received(broker) == [1, 2, 3]


def test_a_drop_at_the_receiver_before_or_after_one_at_the_sender_leaves_something_in_flight() -> (
    None
):
    for first, second in (("sender", "receiver"), ("receiver", "sender")):
        world, broker, _ = pair()
        connection = connect(world)
        cuts = [world.network.stall("cut", K1_AND_B1, at=first)]
        ask(world, connection, 1)
        world.run_for(1 * S)
        cuts.append(world.network.stall("cut", K1_AND_B1, at=second))
        world.run_for(1 * S)
        for cut in cuts:
            world.network.heal(cut)
            world.run_for(1 * MS)
        ask(world, connection, 2)
        world.run_for(RTT)
        assert received(broker) == []
        world.run_for(10 * S)
        assert received(broker) == [1, 2]


def test_frames_in_flight_at_the_moment_of_a_cut_wait_too() -> None:
    world, broker, _ = pair()
    connection = connect(world)
    response = ask(world, connection, 1)
    world.run_for(ONE_WAY // 2)
    cut = world.network.stall("cut", K1_AND_B1)
    world.run_for(1 * S)
    assert received(broker) == []
    assert cut.dropped_or_stalled == 1
    world.network.heal(cut)
    world.run(response.done, limit_ns=10 * S)
    assert outcome(response) == "('echo', 1)"


def test_an_idle_connection_does_not_notice_a_cut() -> None:
    world, _, _ = pair()
    connection = connect(world)
    cut = world.network.stall("cut", K1_AND_B1)
    world.run_for(30 * S)
    world.network.heal(cut)
    healed = world.now
    response = ask(world, connection, 1)
    world.run(response.done, limit_ns=10 * S)
    assert world.now - healed == RTT
    assert cut.dropped_or_stalled == 0, "a fault without effect reports that"


def test_tcp_gives_up_after_some_15_minutes_and_both_ends_see_a_reset() -> None:
    world, _, _ = pair()
    connection = connect(world)
    world.network.stall("cut", K1_AND_B1)
    began = world.now
    response = ask(world, connection, 1)
    world.run(response.done, limit_ns=2_000 * S)
    assert outcome(response) == "ConnectionResetError"
    assert (world.now - began) / S == pytest.approx(924.6)
    assert not connection.is_open
    assert world.network.connections == {}


class Pusher(Echo):
    """Responds to a request with a value of the requested size."""

    def handle(self, message: Any, context: Any) -> Any:
        super().handle(message, context)
        return bytes(message)


def test_a_one_way_drop_stalls_the_request_and_lets_responses_through_until_the_buffer_is_full() -> (
    None
):
    """Requests were sent before the drop; their responses arrive, but no acknowledgement goes back."""
    world, broker, _ = pair(main=Pusher)
    connection = connect(world)
    broker.pause()
    size = SEND_BUFFER_BYTES // 4
    answers = [ask(world, connection, size) for _ in range(6)]
    world.run_for(1 * S)
    cut = world.network.stall("cut", K1_TO_B1)
    broker.resume()
    stalled = ask(world, connection, 1)
    world.run_for(20 * S)
    assert [f.done() for f in answers] == [True, True, True, False, False, False]
    assert len(received(broker)) == 6, "the request sent during the drop does not arrive"
    world.network.heal(cut)
    world.run(stalled.done, limit_ns=60 * S)
    assert [f.done() for f in answers] == [True] * 6
    assert outcome(stalled) == repr(bytes(1))


def test_overlapping_cuts_do_not_heal_one_another() -> None:
    world, _, _ = pair()
    connection = connect(world)
    first = world.network.stall("cut", K1_AND_B1)
    second = world.network.stall("isolate", around(world, "b1"))
    response = ask(world, connection, 1)
    world.network.heal(first)
    world.run_for(10 * S)
    assert outcome(response) == "pending"
    assert (first.dropped_or_stalled, second.dropped_or_stalled) == (1, 1)
    world.network.heal(second)
    world.network.heal(second)
    world.run(response.done, limit_ns=60 * S)
    assert outcome(response) == "('echo', 1)"


@pytest.mark.parametrize("seed", range(5))
def test_any_sequence_of_cuts_keeps_every_request_in_order_and_loses_none(seed: int) -> None:
    world, broker, _ = pair(Weather(name="jitter", latency_tail_ns=5 * MS), seed=seed)
    connection = connect(world)
    stream = world.random.stream("test")
    answers = []
    for i in range(60):
        token = world.network.stall("cut", (K1_AND_B1, K1_TO_B1, B1_TO_K1)[stream.randrange(0, 3)])
        answers.append(ask(world, connection, i))
        world.run_for(stream.randrange(1, 3_000) * MS)
        other = world.network.hold("k1", "b1", "int") if stream.random() < 0.2 else None
        world.network.heal(token)
        answers.append(ask(world, connection, 100 + i))
        world.run_for(stream.randrange(1, 700) * MS)
        if other is not None:
            world.network.release(other)
    world.network.heal_all()
    world.run(lambda: all(f.done() for f in answers), limit_ns=300 * S)
    sent = [n for i in range(60) for n in (i, 100 + i)]
    assert received(broker) == sent
    assert [outcome(f) for f in answers] == [f"('echo', {n})" for n in sent]


@pytest.mark.parametrize("rule", ["isolate", "partition"])
def test_frames_dropped_at_the_sender_are_sent_with_the_next_write(rule: str) -> None:
    world, _, _ = pair()
    connection = connect(world)
    token = (
        world.network.stall("isolate", around(world, "k1"), at="sender")
        if rule == "isolate"
        else world.network.stall("partition", across(["k1"], ["b1"]), at="sender")
    )
    response = ask(world, connection, 1)
    world.run_for(20 * S)
    assert not response.done()
    began = world.now
    world.network.heal(token)
    ask(world, connection, 2)
    world.run(response.done, limit_ns=1 * S)
    assert world.now - began == RTT


# Which nodes are cut from which


def cluster() -> World:
    world = World(1)
    for name, kind in (
        ("b1", "broker"),
        ("b2", "broker"),
        ("b3", "broker"),
        ("c1", "controller"),
        ("c2", "controller"),
        ("k1", "client"),
        ("h", "harness"),
    ):
        world.add_node(name, kind=kind, address=f"{name}:1", main=Echo).start()
    world.run_for(0)
    return world


def reachable(world: World) -> set[str]:
    """Pairs "a>b" for which connect succeeds."""

    async def can_connect(host: Host, address: str) -> bool:
        try:
            (await host.network.connect(address, 50)).close()
        except TimeoutError:
            return False
        return True

    tasks = {
        f"{a}>{b}": world.spawn(a, can_connect(world.nodes[a].host, f"{b}:1"))
        for a in world.nodes
        for b in world.nodes
    }
    world.run(lambda: all(task.done() for task in tasks.values()), limit_ns=1 * S)
    return {name for name, task in tasks.items() if task.result()}


def unreachable(world: World) -> set[str]:
    everything = {f"{a}>{b}" for a in world.nodes for b in world.nodes}
    return everything - reachable(world)


def both_ways(*pairs: str) -> set[str]:
    return {f"{a}>{b}" for p in pairs for a, b in (p.split("-"), p.split("-")[::-1])}


@pytest.mark.parametrize(
    ("planes", "cut"),
    [
        (PLANES, both_ways("b1-b2", "b1-b3", "b1-c1", "b1-c2", "b1-k1", "b1-h")),
        ({"inter-broker"}, both_ways("b1-b2", "b1-b3")),
        ({"controller"}, both_ways("b1-c1", "b1-c2")),
        ({"client"}, both_ways("b1-k1", "b1-h")),
        (
            {"inter-broker", "controller"},
            both_ways("b1-b2", "b1-b3", "b1-c1", "b1-c2"),
        ),
    ],
)
def test_isolation_cuts_the_planes_it_names(planes: Collection[str], cut: set[str]) -> None:
    world = cluster()
    assert unreachable(world) == set()
    token = world.network.stall("isolate", on_planes(world, planes, around(world, "b1")))
    assert unreachable(world) == cut
    assert token.dropped_or_stalled >= len(cut)
    world.network.heal(token)
    assert unreachable(world) == set()


def test_a_partition_separates_groups_and_a_bridge_sees_both() -> None:
    world = cluster()
    token = world.network.stall("partition", across({"b1", "b2"}, {"b2", "b3"}))
    assert unreachable(world) == both_ways("b1-b3")
    world.network.heal(token)
    world.network.stall("partition", across({"b1", "c1"}, {"b2", "b3", "c2"}))
    assert unreachable(world) == both_ways("b1-b2", "b1-b3", "b1-c2", "c1-b2", "c1-b3", "c1-c2")
    world.network.heal_all()
    assert unreachable(world) == set()


def test_controllers_among_themselves_are_the_controller_plane() -> None:
    world = cluster()
    pairs = between("c1", "c2")
    world.network.stall("cut", on_planes(world, {"inter-broker", "client"}, pairs))
    assert unreachable(world) == set()
    world.network.stall("cut", on_planes(world, {"controller"}, pairs))
    assert unreachable(world) == both_ways("c1-c2")


def test_misspelt_names_are_errors() -> None:
    world = cluster()
    with pytest.raises(ValueError, match="there is no node called 'b9'"):
        world.network.stall("cut", between("b1", "b9"))
    with pytest.raises(ValueError, match="'middle' is not one of receiver, sender"):
        world.network.stall("cut", between("b1", "b2"), at="middle")
    assert world.network.faults == []
