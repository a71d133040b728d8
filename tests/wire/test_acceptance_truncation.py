"""Consumers notice that the log was cut below their position (KIP-320).

One scenario with real processes: the leader is left alone (both followers are frozen, so they fall out of the
ISR), commits records with an ISR of one, shows them to consumers, and is killed. Unclean elections are allowed, a
follower without those records is elected, and new records take their offsets and *more*, so that every consumer's
position lies inside the new log. Only OffsetForLeaderEpoch shows such a consumer that its history is gone: one
that does not send it reads on and skips the new records at offsets that it has already read.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from wire_helpers import SharedCluster, ask, eventually, new_name

confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

import asyncio  # noqa: E402

from confluent_kafka import (  # noqa: E402
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from harness.history.op import Outcome  # noqa: E402
from system_under_test.protocol.messages import offset_for_leader_epoch_request  # noqa: E402
from workloads.clients.confluent import ConfluentClient  # noqa: E402

pytestmark = pytest.mark.wire

KEPT = 10
"""Records on all replicas; the new log has other records from here on."""
SHOWN = 20
"""Where the log of the lonely leader ends, and every consumer stands."""
NEW = 25
"""Records that the new leader gets: the new log ends beyond `SHOWN`."""
COORDINATOR_MOVED = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)


class Story:
    """One topic whose log is cut. Mutable: the scenario continues.

    Args:
        cluster: The cluster whose nodes are affected.
    """

    def __init__(self, cluster: SharedCluster) -> None:
        self.cluster = cluster
        self.topic = cluster.topic(
            replicas=(1, 2, 3),
            configs={"min.insync.replicas": "1", "unclean.leader.election.enable": "true"},
        )
        self.old_epoch = -1
        self.opened: list[Consumer] = []
        self._produce(b"kept", KEPT)

    def lead_alone(self) -> None:
        """The leader commits and shows records that no other replica has."""
        cluster = self.cluster
        assert cluster.leader(self.topic) == "b1"
        for name in ("b2", "b3"):
            cluster.pause(name)
        cluster.wait_for_isr(self.topic, 1)
        self._produce(b"lost", SHOWN - KEPT)
        self.old_epoch = cluster.describe(self.topic)[0].leader_epoch

    def cut(self) -> None:
        """Another leader is elected, without those records, and gets others."""
        cluster = self.cluster
        cluster.kill("b1")
        for name in ("b2", "b3"):
            cluster.resume(name)
        eventually(lambda: cluster.leader(self.topic) != "b1", what="an unclean election")
        assert cluster.describe(self.topic)[0].leader_epoch > self.old_epoch
        self._produce(b"new", NEW)

    def consumer(self, **settings: Any) -> Consumer:
        """Returns a consumer that reads whole batches and is closed with the story."""
        made = Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "group.id": new_name("group"),
                "enable.auto.commit": False,
                "check.crcs": True,
                "fetch.wait.max.ms": 50,
                "enable.metrics.push": False,
                "log_level": 0,
            }
            | {name.replace("_", "."): value for name, value in settings.items()}
        )
        self.opened.append(made)
        return made

    def read(self, reader: Consumer, count: int) -> list[tuple[int, bytes]]:
        """Reads that many records; returns offset and value."""
        found: list[tuple[int, bytes]] = []

        def enough() -> bool:
            message = reader.poll(0.2)
            if message is not None:
                assert message.error() is None, message.error()
                found.append((message.offset(), message.value()))
            return len(found) >= count

        eventually(enough, what=f"{count} records")
        return found

    def _produce(self, word: bytes, count: int) -> None:
        sender = Producer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "acks": "all",
                "request.timeout.ms": 3000,
                "delivery.timeout.ms": 20_000,
                "enable.metrics.push": False,
                "log_level": 0,
            }
        )
        errors: list[Any] = []
        for number in range(count):
            sender.produce(
                self.topic,
                b"%s %d" % (word, number),
                partition=0,
                on_delivery=lambda error, _: errors.append(error),
            )
        assert sender.flush(30) == 0
        assert errors == [None] * count


@pytest.fixture
def story(cluster: SharedCluster) -> Iterator[Story]:
    reported = Story(cluster)
    yield reported
    for consumer in reported.opened:
        consumer.close()


def truncation_error(reader: Consumer) -> str:
    error = eventually(lambda: (m := reader.poll(0.2)) and m.error(), what="an error")
    assert error.code() == KafkaError._AUTO_OFFSET_RESET
    return str(error.str()).lower()


@pytest.mark.long
def test_librdkafka_consumers_detect_a_truncation_and_apply_their_reset_policy(
    story: Story,
) -> None:
    story.lead_alone()
    strict = story.consumer(auto_offset_reset="error")
    lenient = story.consumer(auto_offset_reset="earliest")
    for reader in (strict, lenient):
        reader.assign([TopicPartition(story.topic, 0, 0)])
        assert story.read(reader, SHOWN)[-1] == (SHOWN - 1, b"lost 9")
    story.cut()

    # The broker's own response: the old epoch ends where the new leader's log diverged from it.
    assert end_of_epoch(story) == KEPT
    # The position is 20 in the old epoch; offset 20 exists again, but with another record.
    assert "truncation" in truncation_error(strict)
    # Goes back to where the logs part and reads everything that it has not seen.
    assert story.read(lenient, NEW) == [(KEPT + n, b"new %d" % n) for n in range(NEW)]

    # A position that an application kept together with its epoch.
    seeker = story.consumer(auto_offset_reset="error")
    seeker.assign([TopicPartition(story.topic, 0, 0)])
    story.read(seeker, 1)
    seeker.seek(TopicPartition(story.topic, 0, SHOWN, leader_epoch=story.old_epoch))
    assert "truncation" in truncation_error(seeker)
    # Without the epoch a truncation is undetectable: consumers before KIP-320 lost records like this.
    blind = story.consumer(auto_offset_reset="error")
    blind.assign([TopicPartition(story.topic, 0, SHOWN)])
    assert story.read(blind, 1) == [(SHOWN, b"new 10")]

    # The old leader comes back, cuts its log and follows.
    story.cluster.start("b1")
    story.cluster.wait_for_isr(story.topic, 3)
    final = story.consumer(auto_offset_reset="error")
    final.assign([TopicPartition(story.topic, 0, 0)])
    values = [value for _, value in story.read(final, KEPT + NEW)]
    assert values == [b"kept %d" % n for n in range(KEPT)] + [b"new %d" % n for n in range(NEW)]


def commit(consumer: Consumer, position: TopicPartition) -> list[TopicPartition] | None:
    """Commits a position; None if the coordinator has moved and the client does not know yet."""
    try:
        done: list[TopicPartition] = consumer.commit(offsets=[position], asynchronous=False)
    except KafkaException as refused:
        if refused.args[0].code() not in COORDINATOR_MOVED:
            raise
        return None
    return done


def test_a_position_committed_with_its_epoch_is_checked_when_the_group_resumes(
    story: Story,
) -> None:
    group = new_name("group")
    first = story.consumer(group_id=group, auto_offset_reset="error")
    first.assign([TopicPartition(story.topic, 0, 0)])
    story.read(first, KEPT)
    # While all brokers are there, so that the offsets are replicated to all of them.
    first.commit(offsets=[TopicPartition(story.topic, 0, KEPT)], asynchronous=False)
    story.lead_alone()
    story.read(first, SHOWN - KEPT)
    story.cut()
    # It commits what it has read, with the epoch in which it read.
    position = TopicPartition(story.topic, 0, SHOWN, leader_epoch=story.old_epoch)
    (committed,) = eventually(lambda: commit(first, position), what="the commit is acknowledged")
    assert committed.error is None
    second = story.consumer(group_id=group, auto_offset_reset="error")
    (found,) = second.committed([TopicPartition(story.topic, 0)], timeout=15)
    assert (found.offset, found.leader_epoch) == (SHOWN, story.old_epoch)
    second.assign([found])
    second_error = eventually(lambda: (m := second.poll(0.2)) and m, what="a message or an error")
    assert second_error.error() is not None, "the consumer read on as if nothing had happened"
    assert "truncation" in second_error.error().str().lower()


class Stopped:
    """A consumer whose next seek is refused: it has stopped without an error. Mutable; the rest passes."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self.refused = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def seek(self, place: TopicPartition) -> None:
        if not self.refused:
            self.refused = 1
            raise KafkaException(KafkaError(KafkaError._STATE))
        self._consumer.seek(place)


@pytest.mark.parametrize("is_stopped", [False, True], ids=["by-seek", "by-assignment"])
def test_the_harness_client_records_a_truncation_by_its_name(
    story: Story, is_stopped: bool
) -> None:
    story.lead_alone()
    client = ConfluentClient(
        None,
        tuple(story.cluster.bootstrap.split(",")),
        request_timeout_ms=3000,
        connect_timeout_ms=1000,
    )

    async def poll(position: int) -> Any:
        for _ in range(20):
            result = await client.poll(story.topic, 0, position, max_bytes=1 << 20, max_wait_ms=20)
            if result.completion.error != "client-timeout":
                break
        return result

    async def before_and_after() -> None:
        position = 0
        while position < SHOWN:
            result = await poll(position)
            if result.batches:
                position = result.batches[-1].records[-1].offset + 1
        await asyncio.to_thread(story.cut)
        if is_stopped:
            client._reader.consumer = Stopped(client._reader.consumer)
        result = await poll(SHOWN)
        assert result.completion.outcome == Outcome.FAIL
        assert result.completion.error == "LOG_TRUNCATION"
        assert not is_stopped or client._reader.consumer.refused
        # It continues from the same position regardless, and gets the new records there.
        result = await poll(SHOWN)
        assert result.completion.outcome == Outcome.OK
        assert result.batches[0].records[0].value == b"new 10"

    try:
        asyncio.run(before_and_after())
    finally:
        client.close()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.usefixtures("forgotten_sockets")
def test_kafka_python_detects_a_truncation(story: Story) -> None:
    kafka = pytest.importorskip("kafka", reason="kafka-python is not installed")
    from kafka.errors import LogTruncationError

    place = kafka.TopicPartition(story.topic, 0)
    reader = kafka.KafkaConsumer(
        bootstrap_servers=story.cluster.bootstrap,
        auto_offset_reset="none",
        enable_auto_commit=False,
        # After an error it would look for brokers while one is left, and would then never find another one.
        request_timeout_ms=60_000,
    )
    try:
        reader.assign([place])
        reader.seek(place, 0)
        found: list[Any] = []

        def has_read(count: int) -> bool:
            found.extend(reader.poll(timeout_ms=200).get(place, []))
            return len(found) >= count

        eventually(lambda: has_read(KEPT))
        story.lead_alone()
        eventually(lambda: has_read(SHOWN))
        story.cut()
        with pytest.raises(LogTruncationError):
            eventually(lambda: reader.poll(timeout_ms=200), what="a truncation")
    finally:
        reader.close(autocommit=False)


def end_of_epoch(story: Story) -> int:
    """Queries the current leader for the end of the isolated leader's epoch."""
    leader = story.cluster.leader(story.topic)
    request = offset_for_leader_epoch_request.OffsetForLeaderEpochRequest(
        replica_id=-2,
        topics=(
            offset_for_leader_epoch_request.OffsetForLeaderTopic(
                topic=story.topic,
                partitions=(
                    offset_for_leader_epoch_request.OffsetForLeaderPartition(
                        partition=0, current_leader_epoch=-1, leader_epoch=story.old_epoch
                    ),
                ),
            ),
        ),
    )
    response = ask(story.cluster.local.nodes[leader].address, request)
    result = response.topics[0].partitions[0]
    assert result.error_code == 0
    return int(result.end_offset)
