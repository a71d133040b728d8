"""aiokafka against a real cluster: old versions (ApiVersions 0, Produce 7, Fetch 11, JoinGroup 5), no epochs."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from wire_helpers import RECENT_MS, SharedCluster, new_name

pytest.importorskip("aiokafka", reason="aiokafka is not installed")

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import OffsetOutOfRangeError, TopicAlreadyExistsError

pytestmark = pytest.mark.wire
T = TypeVar("T")


def run(story: Callable[[contextlib.AsyncExitStack], Awaitable[T]]) -> T:
    """Runs a scenario on its own loop, within bounded time, and closes what it opened."""

    async def all_of_it() -> T:
        async with asyncio.timeout(60), contextlib.AsyncExitStack() as opened:
            return await story(opened)

    return asyncio.run(all_of_it())


async def producer(
    bootstrap: str, opened: contextlib.AsyncExitStack, **settings: Any
) -> AIOKafkaProducer:
    made = AIOKafkaProducer(bootstrap_servers=bootstrap, **settings)
    await made.start()
    opened.push_async_callback(made.stop)
    return made


async def consumer(
    bootstrap: str, opened: contextlib.AsyncExitStack, *topics: str, **settings: Any
) -> AIOKafkaConsumer:
    made = AIOKafkaConsumer(
        *topics,
        bootstrap_servers=bootstrap,
        **{"auto_offset_reset": "earliest", "enable_auto_commit": False, **settings},
    )
    await made.start()
    opened.push_async_callback(made.stop)
    return made


async def read(reader: AIOKafkaConsumer, count: int) -> list[Any]:
    return [await asyncio.wait_for(reader.getone(), 20) for _ in range(count)]


async def soon(condition: Callable[[], Any], what: str) -> None:
    for _ in range(400):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"not within 20 s: {what}")


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_records_of_every_acks_setting_can_be_read_back(
    cluster: SharedCluster, acks: int | str
) -> None:
    topic = cluster.topic()

    async def story(opened: contextlib.AsyncExitStack) -> None:
        sender = await producer(cluster.bootstrap, opened, acks=acks)
        for number in range(20):
            sent = await sender.send_and_wait(topic, b"%d" % number, partition=0)
            assert acks == 0 or sent.offset == number
        reader = await consumer(cluster.bootstrap, opened)
        reader.assign([TopicPartition(topic, 0)])
        assert [record.value for record in await read(reader, 20)] == [b"%d" % n for n in range(20)]

    run(story)


def test_an_idempotent_producer_works(cluster: SharedCluster) -> None:
    topic = cluster.topic()

    async def story(opened: contextlib.AsyncExitStack) -> None:
        sender = await producer(cluster.bootstrap, opened, enable_idempotence=True)
        futures = [await sender.send(topic, b"%d" % number) for number in range(50)]
        assert [(await future).offset for future in futures] == list(range(50))

    run(story)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_come_back_as_they_were(cluster: SharedCluster, codec: str) -> None:
    from aiokafka import codec as codecs

    if not getattr(codecs, f"has_{codec}")():
        pytest.skip(f"aiokafka has no {codec} here (an extra package)")
    topic = cluster.topic()
    sent = [b"value %d " % number * 30 for number in range(50)]

    async def story(opened: contextlib.AsyncExitStack) -> None:
        sender = await producer(cluster.bootstrap, opened, compression_type=codec, linger_ms=50)
        for future in [await sender.send(topic, value) for value in sent]:
            await future
        reader = await consumer(cluster.bootstrap, opened)
        reader.assign([TopicPartition(topic, 0)])
        assert [record.value for record in await read(reader, 50)] == sent

    run(story)


def test_keys_headers_and_timestamps_survive(cluster: SharedCluster) -> None:
    topic = cluster.topic()
    headers = [("first", b"1"), ("first", b"")]

    async def story(opened: contextlib.AsyncExitStack) -> None:
        sender = await producer(cluster.bootstrap, opened)
        await sender.send_and_wait(
            topic, b"v", key=b"k\x00", headers=headers, timestamp_ms=RECENT_MS
        )
        reader = await consumer(cluster.bootstrap, opened)
        reader.assign([TopicPartition(topic, 0)])
        (record,) = await read(reader, 1)
        assert (record.key, record.value, list(record.headers)) == (b"k\x00", b"v", headers)
        assert record.timestamp == RECENT_MS

    run(story)


def test_seek_and_offsets_by_time(cluster: SharedCluster) -> None:
    topic = cluster.topic()
    place = TopicPartition(topic, 0)

    async def story(opened: contextlib.AsyncExitStack) -> None:
        # The log end that clients see is the high watermark, which acks=1 does not wait for.
        sender = await producer(cluster.bootstrap, opened, acks="all")
        for number in range(10):
            await sender.send_and_wait(
                topic, b"%d" % number, timestamp_ms=RECENT_MS + 1000 * number
            )
        reader = await consumer(cluster.bootstrap, opened)
        reader.assign([place])
        assert await reader.beginning_offsets([place]) == {place: 0}
        assert await reader.end_offsets([place]) == {place: 10}
        found = (await reader.offsets_for_times({place: RECENT_MS + 3001}))[place]
        assert (found.offset, found.timestamp) == (4, RECENT_MS + 4000)
        reader.seek(place, 7)
        assert [record.offset for record in await read(reader, 3)] == [7, 8, 9]

    run(story)


def test_a_position_outside_the_log_is_an_error_if_configured(
    cluster: SharedCluster,
) -> None:
    topic = cluster.topic()

    async def story(opened: contextlib.AsyncExitStack) -> None:
        reader = await consumer(cluster.bootstrap, opened, auto_offset_reset="none")
        reader.assign([TopicPartition(topic, 0)])
        reader.seek(TopicPartition(topic, 0), 100)
        with pytest.raises(OffsetOutOfRangeError):
            await read(reader, 1)

    run(story)


def test_members_share_the_partitions_and_take_over_when_one_leaves(
    cluster: SharedCluster,
) -> None:
    topic, group = cluster.topic(partitions=4), new_name("group")

    async def story(opened: contextlib.AsyncExitStack) -> None:
        settings = {"group_id": group, "heartbeat_interval_ms": 200}
        first = await consumer(cluster.bootstrap, opened, topic, **settings)

        def is_shared(*members: AIOKafkaConsumer) -> bool:
            parts = [{place.partition for place in m.assignment()} for m in members]
            return all(parts) and sorted(p for part in parts for p in part) == [0, 1, 2, 3]

        await soon(lambda: is_shared(first), "one member has everything")
        second = await consumer(cluster.bootstrap, opened, topic, **settings)
        await soon(lambda: is_shared(first, second), "two members share")
        await first.stop()
        await soon(lambda: is_shared(second), "the other one takes over")

    run(story)


def test_the_next_member_starts_at_the_committed_offsets(cluster: SharedCluster) -> None:
    topic, group = cluster.topic(), new_name("group")
    place = TopicPartition(topic, 0)

    async def story(opened: contextlib.AsyncExitStack) -> None:
        sender = await producer(cluster.bootstrap, opened)
        for number in range(10):
            await sender.send_and_wait(topic, b"%d" % number)
        first = await consumer(cluster.bootstrap, opened, topic, group_id=group)
        await read(first, 10)
        await first.commit({place: (6, "note")})
        assert await first.committed(place) == 6
        await first.stop()
        second = await consumer(cluster.bootstrap, opened, topic, group_id=group)
        assert [record.offset for record in await read(second, 4)] == [6, 7, 8, 9]

    run(story)


def test_topics_are_created_described_and_deleted(cluster: SharedCluster) -> None:
    name = new_name("topic")

    async def story(opened: contextlib.AsyncExitStack) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap)
        await admin.start()
        opened.push_async_callback(admin.close)
        await admin.create_topics([NewTopic(name, 2, 3)])
        # aiokafka returns the response unchanged: (topic, error code, error message).
        again = await admin.create_topics([NewTopic(name, 2, 3)])
        assert [error[:2] for error in again.topic_errors] == [
            (name, TopicAlreadyExistsError.errno)
        ]
        (described,) = await admin.describe_topics([name])
        assert len(described["partitions"]) == 2
        await admin.delete_topics([name])
        for _ in range(200):
            if name not in await admin.list_topics():
                return
            await asyncio.sleep(0.05)
        raise AssertionError("the topic is still there")

    run(story)


def test_a_topic_is_created_by_the_first_produce_request(cluster: SharedCluster) -> None:
    topic = new_name("auto")

    async def story(opened: contextlib.AsyncExitStack) -> int:
        sender = await producer(cluster.bootstrap, opened)
        return int((await sender.send_and_wait(topic, b"v")).offset)

    assert run(story) == 0
