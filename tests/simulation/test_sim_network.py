"""The behaviour table of the simulated network; each row was observed on real Linux."""

import asyncio
import errno
from dataclasses import dataclass
from typing import Any

import pytest

from harness.simulation.connect import LISTEN_BACKLOG
from harness.simulation.node import SimNode
from harness.simulation.pipe import SEND_BUFFER_BYTES, next_retransmission_ns
from harness.simulation.weather import CALM, Weather
from harness.simulation.world import World
from system_under_test.runtime import Connection, Host
from tests.simulation.sim_helpers import MS, ONE_WAY, RTT, Echo, S, call, outcome, pair

FOREVER_MS = 10_000_000.0


def connect(world: World, timeout_ms: float = 1_000, src: str = "k1", dst: str = "b1:9092") -> Any:
    return call(world, src, world.nodes[src].host.network.connect(dst, timeout_ms), 2_000 * S)


def ask(world: World, connection: Connection, message: Any, timeout_ms: float = FOREVER_MS) -> Any:
    with world.inside(world.nodes["k1"].loop):
        return connection.request(message, timeout_ms)


def received(node: SimNode) -> list[Any]:
    assert isinstance(node.process, Echo)
    return [message for _, message in node.process.received]


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


@pytest.mark.parametrize("direction", ["both", "a_to_b", "b_to_a"])
def test_connect_while_packets_are_dropped_either_way_hangs_until_the_callers_timeout(
    direction: str,
) -> None:
    world, _, _ = pair()
    cut = world.network.cut("k1", "b1", direction=direction)
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
    cut = world.network.cut("k1", "b1")
    world.schedule(healed_ms * MS, world.network.heal, cut)
    connect(world, timeout_ms=30_000)
    assert world.now == connected_s * S + RTT


def test_a_new_connection_after_healing_works_at_once() -> None:
    world, _, _ = pair()
    cut = world.network.cut("k1", "b1")
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


# Drops on an existing connection


@pytest.mark.parametrize(
    ("cut_s", "late_s"), [(4.0, 2.72), (12.0, 1.44), (30.0, 23.76)]
)  # measured with INPUT-drop: 2.6, 1.3 and 23.5 s
def test_stalled_frames_resume_at_the_next_retransmission(cut_s: float, late_s: float) -> None:
    world, broker, _ = pair()
    connection = connect(world)
    cut = world.network.cut("k1", "b1")
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
    cut = world.network.cut("k1", "b1", at=at)
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
    cut = world.network.cut("k1", "b1", at=at)
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
        cuts = [world.network.cut("k1", "b1", at=first)]
        ask(world, connection, 1)
        world.run_for(1 * S)
        cuts.append(world.network.cut("k1", "b1", at=second))
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
    cut = world.network.cut("k1", "b1")
    world.run_for(1 * S)
    assert received(broker) == []
    assert cut.dropped_or_stalled == 1
    world.network.heal(cut)
    world.run(response.done, limit_ns=10 * S)
    assert outcome(response) == "('echo', 1)"


def test_an_idle_connection_does_not_notice_a_cut() -> None:
    world, _, _ = pair()
    connection = connect(world)
    cut = world.network.cut("k1", "b1")
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
    world.network.cut("k1", "b1")
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
    cut = world.network.cut("k1", "b1", direction="a_to_b")
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
    first = world.network.cut("k1", "b1")
    second = world.network.isolate("b1")
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
        token = world.network.cut(
            "k1", "b1", direction=("both", "a_to_b", "b_to_a")[stream.randrange(0, 3)]
        )
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
    cut = world.network.cut("k1", "b1")
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
    cut = world.network.cut("b1", "k1", direction="a_to_b")
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


# Other rules


def test_a_reject_resets_existing_connections_and_refuses_new_ones() -> None:
    world, _, _ = pair()
    connection = connect(world)
    response = ask(world, connection, 1)
    rule = world.network.reject("k1", "b1")
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
    rule = world.network.degrade("k1", "b1", loss=0.3, direction="a_to_b")
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
    rule = world.network.degrade("k1", "b1", delay_ns=100 * MS, direction="a_to_b")
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
        (None, both_ways("b1-b2", "b1-b3", "b1-c1", "b1-c2", "b1-k1", "b1-h")),
        ({"inter-broker"}, both_ways("b1-b2", "b1-b3")),
        ({"controller"}, both_ways("b1-c1", "b1-c2")),
        ({"client"}, both_ways("b1-k1", "b1-h")),
        (
            {"inter-broker", "controller"},
            both_ways("b1-b2", "b1-b3", "b1-c1", "b1-c2"),
        ),
    ],
)
def test_isolation_cuts_the_planes_it_names(planes: set[str] | None, cut: set[str]) -> None:
    world = cluster()
    assert unreachable(world) == set()
    token = world.network.isolate("b1", planes=planes)
    assert unreachable(world) == cut
    assert token.dropped_or_stalled >= len(cut)
    world.network.heal(token)
    assert unreachable(world) == set()


def test_a_partition_separates_groups_and_a_bridge_sees_both() -> None:
    world = cluster()
    token = world.network.partition([{"b1", "b2"}, {"b2", "b3"}])
    assert unreachable(world) == both_ways("b1-b3")
    world.network.heal(token)
    world.network.partition([{"b1", "c1"}, {"b2", "b3", "c2"}])
    assert unreachable(world) == both_ways("b1-b2", "b1-b3", "b1-c2", "c1-b2", "c1-b3", "c1-c2")
    world.network.heal_all()
    assert unreachable(world) == set()


def test_controllers_among_themselves_are_the_controller_plane() -> None:
    world = cluster()
    world.network.cut("c1", "c2", planes={"inter-broker", "client"})
    assert unreachable(world) == set()
    world.network.cut("c1", "c2", planes={"controller"})
    assert unreachable(world) == both_ways("c1-c2")


def test_misspelt_names_are_errors() -> None:
    world = cluster()
    with pytest.raises(ValueError, match="there is no node called 'b9'"):
        world.network.cut("b1", "b9")
    with pytest.raises(ValueError, match="no plane is called"):
        world.network.isolate("b1", planes={"clients"})
    with pytest.raises(ValueError, match="not one of both"):
        world.network.cut("b1", "b2", direction="b1->b2")
    assert world.network.faults == []


def test_calm_latency_matches_the_weather() -> None:
    assert CALM.latency_base_ns == CALM.client_latency_base_ns == ONE_WAY


def test_a_jitter_spreads_the_delay_evenly_around_its_middle() -> None:
    world, _, _ = pair()
    connection = connect(world)
    world.network.impair("late", [("k1", "b1")], delay_ns=100 * MS, jitter_ns=60 * MS)
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
    rule = world.network.impair("late", [("k1", "b1")], delay_ns=10 * S)
    answers = [ask(world, connection, number) for number in range(5)]
    world.run_for(1 * S)
    assert not any(response.done() for response in answers)
    began = world.now
    world.network.heal(rule)
    world.run(lambda: all(response.done() for response in answers), limit_ns=1 * S)
    assert world.now - began == RTT
    assert received(broker) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("pair_of_hosts", [("k1", "b1"), ("b1", "k1")])
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
    rule = world.network.impair("lossy", [("k1", "b1"), ("b1", "k1")], loss=0.3)
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
    rule = world.network.impair("gone", [("k1", "b1")], loss=1.0)
    response = ask(world, connection, 1)
    world.run_for(10 * S)
    assert not response.done()
    world.network.heal(rule)
    world.run(response.done, limit_ns=30 * S)


@pytest.mark.parametrize("bad", [{"loss": 1.1}, {"loss": -0.1}, {"delay_ns": 5, "jitter_ns": 6}])
def test_network_parameters_have_limits(bad: dict[str, Any]) -> None:
    world, _, _ = pair()
    with pytest.raises(ValueError, match="cannot be"):
        world.network.impair("bad", [("k1", "b1")], **bad)


def test_a_throttled_node_sends_at_its_rate_and_not_faster() -> None:
    world, _, client = pair()
    connection = connect(world)
    rule = world.network.throttle("k1", bytes_per_s=50_000)
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
    other = world.network.throttle("b1", bytes_per_s=1 << 30)
    world.network.throttle("k1", bytes_per_s=10_000)
    began = world.now
    answers = [ask(world, connection, bytes(5_000)) for connection in connections]
    world.run(lambda: all(response.done() for response in answers), limit_ns=60 * S)
    assert 1.7 < (world.now - began) / S < 2.2
    assert other.dropped_or_stalled == 0


def test_an_idle_throttled_link_carries_a_small_frame_at_once() -> None:
    world, _, _ = pair()
    connection = connect(world)
    rule = world.network.throttle("k1", bytes_per_s=2_000)
    world.run_for(5 * S)
    began = world.now
    response = ask(world, connection, b"small")
    world.run(response.done, limit_ns=1 * S)
    assert world.now - began == RTT
    assert rule.dropped_or_stalled == 0


def test_healing_a_bandwidth_limit_empties_the_queue() -> None:
    world, broker, _ = pair()
    connection = connect(world)
    rule = world.network.throttle("k1", bytes_per_s=1_000)
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
    world.network.throttle("k1", bytes_per_s=1_000)
    ask(world, connection, bytes(50_000))
    world.run_for(1 * S)
    client.power_off("lose_all")
    world.run_for(120 * S)
    assert received(broker) == []


@pytest.mark.parametrize("rule", ["isolate", "partition"])
def test_frames_dropped_at_the_sender_are_sent_with_the_next_write(rule: str) -> None:
    world, _, _ = pair()
    connection = connect(world)
    token = (
        world.network.isolate("k1", at="sender")
        if rule == "isolate"
        else world.network.partition([["k1"], ["b1"]], at="sender")
    )
    response = ask(world, connection, 1)
    world.run_for(20 * S)
    assert not response.done()
    began = world.now
    world.network.heal(token)
    ask(world, connection, 2)
    world.run(response.done, limit_ns=1 * S)
    assert world.now - began == RTT
