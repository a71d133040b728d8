"""Packets that are refused, late, lost, held or slow; each behaviour was observed on real Linux."""

from dataclasses import dataclass
from typing import Any

import pytest

from tests.simulation.network_helpers import B1_TO_K1, K1_AND_B1, K1_TO_B1, ask, connect, received
from tests.simulation.sim_helpers import MS, ONE_WAY, RTT, S, outcome, pair


def test_a_reject_resets_existing_connections_and_refuses_new_ones() -> None:
    world, _, _ = pair()
    connection = connect(world)
    response = ask(world, connection, 1)
    rule = world.network.refuse("reject", K1_AND_B1)
    world.run_for(1)
    assert outcome(response) == "ConnectionResetError"
    with pytest.raises(ConnectionRefusedError):
        connect(world)
    assert rule.dropped_or_stalled == 2
    world.network.heal(rule)
    connect(world)


def test_killed_sockets_are_aborted_locally_and_reset_remotely() -> None:
    world, _, _ = pair()
    connection = connect(world)
    response = ask(world, connection, 1)
    assert world.network.reset_connections(["k1"]) == 1
    world.run_for(1)
    assert outcome(response) == "ConnectionAbortedError"
    world.run_for(1 * S)
    assert world.network.connections == {}

    connection = connect(world)
    response = ask(world, connection, 1)
    assert world.network.reset_connections(["b1"]) == 1
    world.run_for(RTT)
    assert outcome(response) == "ConnectionResetError"

    connect(world)
    assert world.network.reset_connections() == 1
    assert world.network.connections == {}


def test_loss_makes_frames_late_and_loses_none() -> None:
    world, broker, _ = pair()
    connections = [connect(world) for _ in range(300)]
    rule = world.network.impair("lossy", K1_TO_B1, loss=0.3)
    began = world.now
    answers = [ask(world, connection, i) for i, connection in enumerate(connections)]
    world.run_for(RTT + ONE_WAY)
    in_time = sum(f.done() for f in answers)
    assert 180 < in_time < 240  # 70 %
    world.run_for(200 * MS)
    assert 255 < sum(f.done() for f in answers) < 290  # 91 %
    world.run(lambda: all(f.done() for f in answers), limit_ns=120 * S)
    assert len(received(broker)) == 300
    assert rule.dropped_or_stalled == 300 - in_time
    assert world.now - began < 60 * S


def test_a_delay_is_added_in_one_direction_only() -> None:
    world, _, _ = pair()
    connection = connect(world)
    rule = world.network.impair("late", K1_TO_B1, delay_ns=100 * MS)
    began = world.now
    response = ask(world, connection, 1)
    world.run(response.done, limit_ns=1 * S)
    assert world.now - began == RTT + 100 * MS
    world.network.heal(rule)
    began = world.now
    response = ask(world, connection, 2)
    world.run(response.done, limit_ns=1 * S)
    assert world.now - began == RTT


@dataclass(frozen=True)
class Fetch:
    n: int


@dataclass(frozen=True)
class Produce:
    n: int


def test_a_hold_keeps_one_type_back_until_released_in_order() -> None:
    world, broker, _ = pair()
    first, second = connect(world), connect(world)
    hold = world.network.hold("k1", "b1", "Fetch")
    answers = [
        ask(world, first, Produce(1)),
        ask(world, first, Fetch(2)),
        ask(world, first, Produce(3)),
        ask(world, second, Produce(4)),
    ]
    world.run_for(30 * S)
    assert received(broker) == [Produce(1), Produce(4)]
    assert [f.done() for f in answers] == [True, False, False, True]
    assert hold.dropped_or_stalled == 1
    world.network.release(hold)
    world.run_for(RTT)
    assert received(broker) == [Produce(1), Produce(4), Fetch(2), Produce(3)]
    assert all(f.done() for f in answers)


def test_a_response_can_be_held_after_the_request_was_acted_upon() -> None:
    world, broker, _ = pair()
    connection = connect(world)
    hold = world.network.hold("b1", None, "tuple")
    response = ask(world, connection, 1)
    world.run_for(1 * S)
    assert received(broker) == [1]
    assert outcome(response) == "pending"
    world.network.release(hold)
    world.run_for(RTT)
    assert outcome(response) == "('echo', 1)"


def test_a_drop_loses_the_message_and_its_connection() -> None:
    world, broker, _ = pair()
    connection = connect(world)
    drop = world.network.drop("b1", "k1", "tuple", count=1)
    response = ask(world, connection, 1)
    world.run_for(1 * S)
    assert received(broker) == [1]
    assert outcome(response) == "ConnectionResetError"
    assert drop.dropped_or_stalled == 1
    assert not drop.active
    response = ask(world, connect(world), 2)
    world.run_for(1 * S)
    assert outcome(response) == "('echo', 2)"


def test_a_jitter_spreads_the_delay_evenly_around_its_middle() -> None:
    world, _, _ = pair()
    connection = connect(world)
    world.network.impair("late", K1_TO_B1, delay_ns=100 * MS, jitter_ns=60 * MS)
    took = []
    for number in range(200):
        began = world.now
        response = ask(world, connection, number)
        world.run(response.done, limit_ns=1 * S)
        took.append(world.now - began - RTT)
    assert min(took) >= 40 * MS
    assert max(took) < 160 * MS
    assert 90 * MS < sum(took) / len(took) < 110 * MS
    assert sum(t < 70 * MS for t in took) > 30


def test_healing_a_delay_delivers_waiting_frames_at_once_and_in_order() -> None:
    world, broker, _ = pair()
    connection = connect(world)
    rule = world.network.impair("late", K1_TO_B1, delay_ns=10 * S)
    answers = [ask(world, connection, number) for number in range(5)]
    world.run_for(1 * S)
    assert not any(response.done() for response in answers)
    began = world.now
    world.network.heal(rule)
    world.run(lambda: all(response.done() for response in answers), limit_ns=1 * S)
    assert world.now - began == RTT
    assert received(broker) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("pair_of_hosts", K1_AND_B1)
def test_a_delay_holds_up_the_packets_that_open_a_connection(
    pair_of_hosts: tuple[str, str],
) -> None:
    world, _, _ = pair()
    world.network.impair("late", [pair_of_hosts], delay_ns=300 * MS)
    began = world.now
    connect(world)
    assert world.now - began == RTT + 300 * MS


def test_a_lossy_link_loses_connection_requests_and_they_are_sent_again() -> None:
    world, _, _ = pair()
    rule = world.network.impair("lossy", K1_AND_B1, loss=0.3)
    took = []
    for _ in range(60):
        began = world.now
        connect(world, 60_000)
        took.append((world.now - began) // S)
    assert took.count(0) > 15
    assert set(took) <= {0, 1, 2, 3, 4, 5, 7, 11, 19}
    assert took.count(1) > 5
    assert rule.dropped_or_stalled >= sum(t > 0 for t in took)


def test_a_link_that_loses_everything_is_cut() -> None:
    world, _, _ = pair()
    connection = connect(world)
    rule = world.network.impair("gone", K1_TO_B1, loss=1.0)
    response = ask(world, connection, 1)
    world.run_for(10 * S)
    assert not response.done()
    world.network.heal(rule)
    world.run(response.done, limit_ns=30 * S)


@pytest.mark.parametrize("bad", [{"loss": 1.1}, {"loss": -0.1}, {"delay_ns": 5, "jitter_ns": 6}])
def test_network_parameters_have_limits(bad: dict[str, Any]) -> None:
    world, _, _ = pair()
    with pytest.raises(ValueError, match="cannot be"):
        world.network.impair("bad", K1_TO_B1, **bad)


def test_a_throttled_node_sends_at_its_rate_and_not_faster() -> None:
    world, _, client = pair()
    connection = connect(world)
    rule = world.network.shape("throttle", K1_TO_B1, bytes_per_s=50_000)
    began = world.now
    answers = [ask(world, connection, bytes(10_000)) for _ in range(10)]
    world.run(lambda: all(response.done() for response in answers), limit_ns=60 * S)
    seconds = (world.now - began) / S
    assert 100_000 / 50_000 <= seconds < 2.1
    assert rule.dropped_or_stalled == 10
    assert client.is_alive


def test_all_connections_of_a_throttled_node_share_its_bandwidth_and_receiving_is_not_limited() -> (
    None
):
    world, _, _ = pair()
    connections = [connect(world) for _ in range(4)]
    other = world.network.shape("throttle", B1_TO_K1, bytes_per_s=1 << 30)
    world.network.shape("throttle", K1_TO_B1, bytes_per_s=10_000)
    began = world.now
    answers = [ask(world, connection, bytes(5_000)) for connection in connections]
    world.run(lambda: all(response.done() for response in answers), limit_ns=60 * S)
    assert 1.7 < (world.now - began) / S < 2.2
    assert other.dropped_or_stalled == 0


def test_an_idle_throttled_link_carries_a_small_frame_at_once() -> None:
    world, _, _ = pair()
    connection = connect(world)
    rule = world.network.shape("throttle", K1_TO_B1, bytes_per_s=2_000)
    world.run_for(5 * S)
    began = world.now
    response = ask(world, connection, b"small")
    world.run(response.done, limit_ns=1 * S)
    assert world.now - began == RTT
    assert rule.dropped_or_stalled == 0


def test_healing_a_bandwidth_limit_empties_the_queue() -> None:
    world, broker, _ = pair()
    connection = connect(world)
    rule = world.network.shape("throttle", K1_TO_B1, bytes_per_s=1_000)
    answers = [ask(world, connection, bytes(2_000)) for _ in range(20)]
    world.run_for(3 * S)
    assert sum(response.done() for response in answers) < 3
    began = world.now
    world.network.heal(rule)
    world.run(lambda: all(response.done() for response in answers), limit_ns=1 * S)
    assert world.now - began == RTT
    assert len(received(broker)) == 20


def test_frames_queued_for_a_slow_link_are_lost_when_the_sender_loses_power() -> None:
    world, broker, client = pair()
    connection = connect(world)
    world.network.shape("throttle", K1_TO_B1, bytes_per_s=1_000)
    ask(world, connection, bytes(50_000))
    world.run_for(1 * S)
    client.power_off("lose_all")
    world.run_for(120 * S)
    assert received(broker) == []
