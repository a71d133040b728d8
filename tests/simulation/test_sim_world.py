"""The world: running, stopping, guards, failures."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from harness.environments.simulated.world import KafkaCodec
from harness.simulation.errors import (
    CodecMismatch,
    Deadlock,
    LimitReached,
    Livelock,
    SimulationError,
)
from harness.simulation.weather import CALM, draw_weather
from harness.simulation.world import Limits, World
from system_under_test.invariants import InvariantViolation
from system_under_test.protocol.messages import fetch_request, metadata_response, millis
from tests.simulation.sim_helpers import MS, Echo, S, call, pair

CODEC_WAIT = millis(500)


def test_running_for_a_duration_ends_exactly_then() -> None:
    world = World(1)
    world.run_for(5 * S)
    assert world.now == 5 * S
    seen: list[int] = []
    world.schedule(7 * S, lambda: seen.append(world.now))
    world.run_for(1 * S)
    assert seen == []
    world.run_for(1 * S)
    assert seen == [7 * S]


def test_a_cancelled_world_event_does_not_happen() -> None:
    world = World(1)
    seen: list[int] = []
    world.schedule(1 * S, seen.append, 1)
    world.schedule(2 * S, seen.append, 2).cancel()
    world.run_for(3 * S)
    assert seen == [1]


def test_an_event_that_belongs_to_no_node_has_no_running_loop() -> None:
    world, _, _ = pair()
    task = world.spawn("k1", asyncio.sleep(2))
    seen: list[bool] = []

    def note() -> None:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        seen.append(task.done())

    world.schedule(1 * S, note)
    world.schedule(3 * S, note)
    world.run_for(4 * S)
    assert seen == [False, True]


def test_until_ends_the_run_at_once() -> None:
    world, _, _ = pair()
    task = world.spawn("k1", asyncio.sleep(2))
    world.run(task.done, limit_ns=10 * S)
    assert 2 * S <= world.now < 2 * S + MS


def test_reaching_the_time_limit_is_an_error_only_if_a_result_was_awaited() -> None:
    world, _, _ = pair()
    world.spawn("k1", asyncio.sleep(100))
    world.run(limit_ns=1 * S)
    with pytest.raises(LimitReached):
        world.run(lambda: False, limit_ns=1 * S)
    assert world.now == 2 * S


def test_a_deadlock_names_the_waiting_tasks_and_where_they_wait() -> None:
    world, _, _ = pair()

    async def waits_forever() -> None:
        await asyncio.Event().wait()

    task = world.spawn("k1", waits_forever())
    with pytest.raises(Deadlock, match=r"k1\.1-2: Event\.wait, line \d+"):
        world.run(task.done, limit_ns=10 * S)


def test_a_livelock_names_the_busiest_callbacks() -> None:
    world, _, _ = pair()

    async def spins() -> None:
        while True:
            await asyncio.sleep(0)

    world.spawn("k1", spins())
    with pytest.raises(Livelock, match=r"k1: .*spins"):
        world.run_for(1 * S)


@pytest.mark.parametrize(
    ("limits", "what"),
    [(Limits(callbacks=60_000), "callbacks"), (Limits(wall_s=0.0), "seconds of real time")],
)
def test_using_up_a_limit_is_an_outcome_of_its_own(limits: Limits, what: str) -> None:
    world, _, _ = pair(limits=limits)

    async def ticks() -> None:
        while True:
            await asyncio.sleep(0.001)

    world.spawn("k1", ticks())
    with pytest.raises(LimitReached, match=what):
        world.run_for(10_000 * S)


def test_an_invariant_violation_in_a_background_task_ends_the_run_and_the_process() -> None:
    world, broker, _ = pair(fatal_errors=(InvariantViolation,))

    async def breaks() -> None:
        await asyncio.sleep(1)
        raise InvariantViolation("INV-1", "one and one are two")

    with world.inside(broker.loop):
        kept = broker.loop.create_task(breaks())
    with pytest.raises(InvariantViolation, match="INV-1"):
        world.run_for(5 * S)
    assert world.now == pytest.approx(1 * S, abs=MS)
    assert broker.state == "dead"
    assert isinstance(broker.crash, InvariantViolation)
    assert world.failures[0].node == "b1"
    assert kept.done()


def test_an_invariant_violation_in_a_watched_task_is_raised_without_awaiting_it() -> None:
    world, _, _ = pair(fatal_errors=(InvariantViolation,))

    async def breaks() -> None:
        raise InvariantViolation("INV-2", "nothing")

    world.spawn("k1", breaks())
    with pytest.raises(InvariantViolation):
        world.run_for(1 * S)


def test_a_crash_in_a_handler_ends_the_process_and_the_run() -> None:
    class Broken(Echo):
        def handle(self, message: Any, context: Any) -> Any:
            raise KeyError("no such thing")

    world, broker, client = pair(main=Broken)

    async def asks() -> None:
        connection = await client.host.network.connect("b1:9092", 1_000)
        await connection.request("?", 1_000)

    world.spawn("k1", asks())
    with pytest.raises(KeyError):
        world.run_for(1 * S)
    assert broker.state == "dead"


def test_failures_can_be_collected_instead_of_raised() -> None:
    world, broker, _ = pair()
    world.raise_on_failure = False

    async def breaks() -> None:
        raise RuntimeError("forgotten")

    with world.inside(broker.loop):
        kept = broker.loop.create_task(breaks())
    world.run_for(1 * S)
    assert [type(failure.error) for failure in world.failures] == [RuntimeError]
    assert broker.state == "dead"
    assert kept.done()


def test_a_failed_task_that_is_awaited_is_not_a_crash() -> None:
    world, broker, _ = pair()

    async def fails() -> None:
        await asyncio.sleep(0.5)
        raise RuntimeError("expected")

    async def parent() -> str:
        child = asyncio.create_task(fails())
        try:
            await child
        except RuntimeError as error:
            return str(error)
        return "nothing"

    assert call(world, "b1", parent()) == "expected"
    world.run_for(1 * S)
    assert broker.state == "running"
    assert world.failures == []


def test_the_world_is_not_entered_twice_and_dead_nodes_run_nothing() -> None:
    world, broker, _ = pair()

    async def enters() -> None:
        world.run_for(1)

    with pytest.raises(SimulationError, match="from within"):
        call(world, "k1", enters())
    broker.kill()
    with pytest.raises(SimulationError, match="b1 is dead"):
        world.spawn("b1", asyncio.sleep(0))


def test_names_and_addresses_are_unique() -> None:
    world, _, _ = pair()
    with pytest.raises(SimulationError):
        world.add_node("b1", kind="broker", address="elsewhere:1")
    with pytest.raises(SimulationError):
        world.add_node("b2", kind="broker", address="b1:9092")
    with pytest.raises(ValueError, match="no node kind"):
        world.add_node("b3", kind="brokr", address="b3:1")


def test_an_asynchronous_generator_left_open_ends_the_run() -> None:
    world, _, _ = pair()

    async def numbers() -> Any:
        yield 1
        yield 2

    async def forgets() -> None:
        async for _ in numbers():
            break

    world.spawn("k1", forgets())
    with pytest.raises(SimulationError, match="numbers was left open"):
        world.run_for(1 * S)


def test_with_sim_wire_every_kafka_message_arrives_decoded() -> None:
    world, broker, client = pair(codec=KafkaCodec(), sim_wire=True)
    sent = fetch_request.FetchRequest(
        max_wait=CODEC_WAIT, min_bytes=1, topics=(), forgotten_topics_data=()
    )
    sent_after = replace(sent, min_bytes=2)

    async def asks() -> Any:
        connection = await client.host.network.connect("b1:9092", 1_000)
        await connection.request(sent_after, 1_000)
        return await connection.request(sent, 1_000)

    call(world, "k1", asks())
    assert isinstance(broker.process, Echo)
    received = [message for _, message in broker.process.received]
    assert received == [sent_after, sent]
    assert received[1] is not sent
    assert world.network.wire_checks == 2


def test_a_sample_of_messages_goes_through_the_codec_and_the_rest_by_reference() -> None:
    world, broker, client = pair(codec=KafkaCodec(), wire_sample=0.2)
    sent = fetch_request.FetchRequest(
        max_wait=CODEC_WAIT, min_bytes=1, topics=(), forgotten_topics_data=()
    )

    async def asks() -> Any:
        connection = await client.host.network.connect("b1:9092", 1_000)
        for _ in range(200):
            await connection.request(sent, 1_000)

    call(world, "k1", asks())
    assert isinstance(broker.process, Echo)
    by_reference = sum(message is sent for _, message in broker.process.received)
    assert 120 < by_reference < 195


def test_a_message_without_a_wire_form_is_a_failure_of_the_run() -> None:
    world, _, client = pair(codec=KafkaCodec(), sim_wire=True)
    unsendable = metadata_response.MetadataResponse(
        throttle_time=CODEC_WAIT, brokers=(), cluster_id=7, controller_id=1, topics=()
    )

    async def asks() -> Any:
        connection = await client.host.network.connect("b1:9092", 1_000)
        await connection.request(unsendable, 1_000)

    world.spawn("k1", asks())
    with pytest.raises(CodecMismatch, match="MetadataResponse"):
        world.run_for(1 * S)


class Note(str):
    """A message of a system that is not Kafka."""


class NoteCodec:
    """Encodes notes; an empty note does not survive it."""

    def covers(self, message_type: type[Any]) -> bool:
        return message_type is Note

    def encode(self, message: Any) -> bytes:
        return str(message).encode()

    def decode(self, message_type: type[Any], data: bytes) -> Any:
        return message_type(data.decode() or "lost")


class LedgerBroken(Exception):  # noqa: N818 - an invariant of that system, not an error of this one
    """What the same system raises when one of its invariants does not hold."""


def test_another_system_brings_its_own_codec() -> None:
    world, broker, client = pair(codec=NoteCodec(), sim_wire=True)

    async def sends(text: str) -> None:
        connection = await client.host.network.connect("b1:9092", 1_000)
        await connection.request(sent, 1_000)
        await connection.request(Note(text), 1_000)

    sent = Note("hello")
    call(world, "k1", sends("again"))
    assert isinstance(broker.process, Echo)
    received = [message for _, message in broker.process.received]
    assert received == ["hello", "again"]
    assert received[0] is not sent
    assert world.network.wire_checks == 2  # the echoes are tuples, which the codec does not cover
    world.spawn("k1", sends(""))
    with pytest.raises(CodecMismatch, match="Note changed on the wire"):
        world.run_for(1 * S)


def test_another_system_brings_its_own_fatal_errors() -> None:
    world, broker, _ = pair(fatal_errors=(LedgerBroken,))

    async def breaks(error: Exception) -> None:
        raise error

    world.raise_on_failure = False
    other = world.spawn("k1", breaks(ValueError("only the harness waits for it")))
    world.spawn("b1", breaks(LedgerBroken("two entries have one number")))
    world.run_for(1 * S)
    assert isinstance(broker.crash, LedgerBroken)
    assert world.nodes["k1"].is_alive
    assert isinstance(other.exception(), ValueError)


def test_without_a_codec_no_message_can_be_sent_through_one() -> None:
    with pytest.raises(ValueError, match="without a codec"):
        World(1, sim_wire=True)


def test_weather_is_drawn_from_its_stream_alone() -> None:
    first, second = (draw_weather(World(9).random.stream("swarm")) for _ in range(2))
    assert first == second
    assert draw_weather(World(10).random.stream("swarm")) != first
    assert CALM.name == "calm"
