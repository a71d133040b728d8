"""Connections and requests of the simulated network, and their ends; each behaviour was observed on real Linux."""

import asyncio
import errno
from typing import Any

import pytest

from harness.simulation.connect import LISTEN_BACKLOG
from harness.simulation.network import Pairs
from harness.simulation.pipe import next_retransmission_ns
from harness.simulation.weather import CALM, Weather
from tests.simulation.network_helpers import B1_TO_K1, K1_AND_B1, K1_TO_B1, ask, connect, received
from tests.simulation.sim_helpers import MS, ONE_WAY, RTT, Echo, S, outcome, pair


def test_calm_latency_matches_the_weather() -> None:
    assert CALM.latency_base_ns == CALM.client_latency_base_ns == ONE_WAY


# Connecting


def test_connecting_takes_one_round_trip() -> None:
    world, _, _ = pair()
    connect(world)
    assert world.now == RTT


def test_connect_to_a_dead_process_is_refused_after_one_round_trip() -> None:
    world, broker, _ = pair()
    broker.kill()
    with pytest.raises(ConnectionRefusedError):
        connect(world)
    assert world.now == RTT


def test_connect_to_a_process_that_does_not_listen_yet_is_refused() -> None:
    world, _, _ = pair()
    with pytest.raises(ConnectionRefusedError):
        connect(world, src="b1", dst="k1:1")


@pytest.mark.parametrize("address", ["b1:9092", "nobody:1"])
def test_connect_to_a_host_without_power_is_unreachable_after_3_1_s(address: str) -> None:
    world, broker, _ = pair()
    broker.power_off("lose_all")
    with pytest.raises(OSError, match="no route") as caught:
        connect(world, timeout_ms=10_000, dst=address)
    assert caught.value.errno == errno.EHOSTUNREACH
    assert world.now == 3_100 * MS


@pytest.mark.parametrize("pairs", [K1_AND_B1, K1_TO_B1, B1_TO_K1], ids=["both", "a_to_b", "b_to_a"])
def test_connect_while_packets_are_dropped_either_way_hangs_until_the_callers_timeout(
    pairs: Pairs,
) -> None:
    world, _, _ = pair()
    cut = world.network.stall("cut", pairs)
    with pytest.raises(TimeoutError):
        connect(world, timeout_ms=3_500)
    assert world.now == 3_500 * MS
    assert cut.dropped_or_stalled == 4  # at 0, 1, 2 and 3 s


@pytest.mark.parametrize(
    ("linear", "healed_ms", "connected_s"),
    [(4, 3_500, 4), (4, 4_500, 5), (4, 5_500, 7), (4, 7_500, 11), (0, 1_500, 3), (0, 3_500, 7)],
)
def test_a_connect_in_progress_succeeds_with_the_next_syn_after_healing(
    linear: int, healed_ms: int, connected_s: int
) -> None:
    """SYN after 1, 2, 3, 4, 5, 7, 11 ... s; by kernels before 6.5 after 1, 3, 7 ... s."""
    world, _, _ = pair()
    world.network.syn_linear_timeouts = linear
    cut = world.network.stall("cut", K1_AND_B1)
    world.schedule(healed_ms * MS, world.network.heal, cut)
    connect(world, timeout_ms=30_000)
    assert world.now == connected_s * S + RTT


def test_a_new_connection_after_healing_works_at_once() -> None:
    world, _, _ = pair()
    cut = world.network.stall("cut", K1_AND_B1)
    world.run_for(60 * S)
    world.network.heal(cut)
    connect(world)
    assert world.now == 60 * S + RTT


def test_a_paused_process_is_connected_to_until_its_backlog_is_full() -> None:
    world, broker, client = pair()
    broker.pause()
    outcomes = [
        world.spawn("k1", client.host.network.connect("b1:9092", 500))
        for _ in range(LISTEN_BACKLOG + 4)
    ]
    world.run_for(1 * S)
    assert sum(task.exception() is None for task in outcomes) == LISTEN_BACKLOG + 1
    assert {type(task.exception()) for task in outcomes[LISTEN_BACKLOG + 1 :]} == {TimeoutError}


# Requests


def test_requests_of_one_connection_are_answered_one_at_a_time_in_order() -> None:
    class Parks(Echo):
        def handle(self, message: Any, context: Any) -> Any:
            super().handle(message, context)
            if message == "park":
                self.parked = asyncio.get_running_loop().create_future()
                return self.parked
            return message

    world, broker, _ = pair(main=Parks)
    connection = connect(world)
    answers = [ask(world, connection, m) for m in ("park", "a", "b")]
    other = ask(world, connect(world), "other connection")
    world.run_for(1 * S)
    assert received(broker) == ["park", "other connection"]
    assert [outcome(f) for f in answers] == ["pending"] * 3
    assert outcome(other) == "'other connection'"
    assert isinstance(broker.process, Parks)
    broker.process.parked.set_result("unparked")
    world.run_for(1 * S)
    assert received(broker) == ["park", "other connection", "a", "b"]
    assert [outcome(f) for f in answers] == ["'unparked'", "'a'", "'b'"]


def test_a_message_arrives_as_the_same_object() -> None:
    world, broker, _ = pair()
    message = ["a list"]
    ask(world, connect(world), message)
    world.run_for(1 * S)
    assert received(broker)[0] is message


def test_a_request_times_out_on_time_and_a_late_response_is_dropped() -> None:
    class Slow(Echo):
        def handle(self, message: Any, context: Any) -> Any:
            loop = asyncio.get_running_loop()
            future = loop.create_future()
            loop.call_later(message, future.set_result, message)
            return future

    world, _, _ = pair(main=Slow)
    connection = connect(world)
    late, long = ask(world, connection, 2.0, 1_500), ask(world, connection, 0.5, 5_000)
    started = world.now
    world.run(late.done, limit_ns=10 * S)
    assert outcome(late) == "TimeoutError"
    assert world.now - started == 1_500 * MS
    assert connection.is_open
    world.run_for(3 * S)
    assert outcome(long) == "0.5"  # in order: the dropped response did not take its place


def test_a_cancelled_request_only_drops_its_response() -> None:
    world, broker, _ = pair()
    connection = connect(world)
    first, second = ask(world, connection, 1), ask(world, connection, 2)
    first.cancel()
    world.run_for(1 * S)
    assert received(broker) == [1, 2]
    assert (outcome(first), outcome(second)) == ("cancelled", "('echo', 2)")


def test_a_handler_may_leave_a_request_unanswered_or_close_the_connection() -> None:
    class Picky(Echo):
        def handle(self, message: Any, context: Any) -> Any:
            if message == "abort":
                raise ConnectionAbortedError
            return None if message == "silence" else message

    world, _, _ = pair(main=Picky)
    connection = connect(world)
    with world.inside(world.nodes["k1"].loop):
        connection.send("silence")
    answered, aborted = ask(world, connection, "hello"), ask(world, connection, "abort")
    world.run_for(1 * S)
    assert outcome(answered) == "'hello'"
    assert outcome(aborted) == "ConnectionResetError"
    assert not connection.is_open
    assert outcome(ask(world, connection, "again")) == "ConnectionResetError"
    assert world.network.connections == {}


def test_closing_fails_requests_in_flight_and_the_server_may_act_on_them() -> None:
    world, broker, _ = pair()
    connection = connect(world)
    request = ask(world, connection, 1)
    with world.inside(world.nodes["k1"].loop):
        connection.close()
        connection.close()
    assert outcome(request) == "ConnectionAbortedError"
    world.run_for(1 * S)
    assert received(broker) == [1]
    assert world.network.connections == {}


def test_frames_of_one_connection_never_overtake_each_other() -> None:
    weather = Weather(name="jitter", latency_tail_ns=80 * MS, client_latency_base_ns=MS)
    world, broker, _ = pair(weather)
    connections = [connect(world) for _ in range(8)]
    for i in range(400):
        ask(world, connections[i % 8], (i % 8, i // 8))
        world.run_for(MS)
    world.run_for(5 * S)
    messages = received(broker)
    for c in range(8):
        assert [i for k, i in messages if k == c] == list(range(50))
    assert messages != [(i % 8, i // 8) for i in range(400)], "connections do overtake each other"


# Ends of processes and machines


def test_peers_see_the_end_of_the_stream_within_one_round_trip_of_a_kill() -> None:
    world, broker, _ = pair()
    connection = connect(world)
    broker.pause()
    response = ask(world, connection, 1)
    world.run_for(1 * S)
    broker.kill()
    killed = world.now
    world.run(response.done, limit_ns=10 * S)
    assert outcome(response) == "ConnectionResetError"
    assert world.now - killed <= RTT
    assert not connection.is_open


def test_requests_of_a_killed_client_are_acted_upon_by_a_server_that_was_paused() -> None:
    world, broker, client = pair()
    connection = connect(world)
    broker.pause()
    ask(world, connection, 1)
    world.run_for(1 * S)
    client.kill()
    world.run_for(1 * S)
    broker.resume()
    world.run_for(1 * S)
    assert received(broker) == [1]
    assert world.network.connections == {}


def test_a_response_sent_before_the_kill_still_arrives() -> None:
    world, broker, _ = pair()
    connection = connect(world)
    response = ask(world, connection, 1)
    world.run(lambda: bool(received(broker)), limit_ns=1 * S)
    broker.kill()
    world.run(response.done, limit_ns=1 * S)
    assert outcome(response) == "('echo', 1)"


def test_after_power_loss_peers_see_silence_until_the_restarted_host_resets_a_retransmission() -> (
    None
):
    world, broker, _ = pair()
    connection = connect(world)
    broker.power_off("lose_all")
    began = world.now
    response = ask(world, connection, 1)
    world.run_for(5 * S)
    assert outcome(response) == "pending"
    assert connection.is_open
    broker.start()
    world.run(response.done, limit_ns=60 * S)
    assert outcome(response) == "ConnectionResetError"
    since = world.now - began
    assert since == next_retransmission_ns(0, 5 * S) + RTT
    assert received(broker) == [], "nothing of an old connection reaches a new incarnation"


def test_an_idle_connection_to_a_host_that_lost_power_is_reset_at_the_next_send() -> None:
    world, broker, _ = pair()
    connection = connect(world)
    broker.power_off("lose_all")
    world.run_for(5 * S)
    broker.start()
    world.run_for(60 * S)
    assert connection.is_open
    began = world.now
    response = ask(world, connection, 1)
    world.run(response.done, limit_ns=10 * S)
    assert outcome(response) == "ConnectionResetError"
    assert world.now - began == RTT


def test_frames_buffered_on_a_host_that_loses_power_are_lost() -> None:
    world, broker, client = pair()
    connection = connect(world)
    cut = world.network.stall("cut", K1_AND_B1)
    ask(world, connection, 1)
    world.run_for(1 * S)
    client.power_off("lose_all")
    world.network.heal(cut)
    world.run_for(60 * S)
    assert received(broker) == []


def test_a_reset_that_cannot_be_delivered_is_sent_again() -> None:
    """The host restarted, and its responses are dropped: the sender learns of it after that heals."""
    world, broker, _ = pair()
    connection = connect(world)
    broker.power_off("lose_all")
    broker.start()
    cut = world.network.stall("cut", B1_TO_K1)
    response = ask(world, connection, 1)
    world.run_for(3 * S)
    assert outcome(response) == "pending"
    world.network.heal(cut)
    world.run(response.done, limit_ns=10 * S)
    assert outcome(response) == "ConnectionResetError"


def test_a_paused_process_gets_everything_in_order_when_it_is_resumed() -> None:
    world, broker, _ = pair()
    connection = connect(world)
    broker.pause()
    answers = [ask(world, connection, i) for i in range(5)]
    world.run_for(60 * S)
    assert received(broker) == []
    assert {outcome(f) for f in answers} == {"pending"}
    assert connection.is_open
    broker.resume()
    world.run_for(1 * S)
    assert [outcome(f) for f in answers] == [f"('echo', {i})" for i in range(5)]
