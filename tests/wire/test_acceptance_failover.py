"""Leaders die while clients produce and consume: no acknowledged record is lost or duplicated.

Every story is the same: one idempotent producer with acks=all sends growing numbers to one partition, one consumer
follows by assignment, the partition's leader ends in the middle and comes back, and then the log is read.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import pytest
from wire_helpers import SharedCluster, eventually

from system_under_test.protocol.record_batch import decode_records

confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
pytestmark = [
    pytest.mark.wire,
    # kafka-python's
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.usefixtures("forgotten_sockets"),
]

PACE_S = 0.002
AFTERWARDS = 200
"""How many records must be acknowledged after the leader was ended; a producer that hangs would pass otherwise."""


@dataclass(slots=True, kw_only=True)
class Journal:
    """Delivery reports of the producer. Mutable; written by the producer's thread."""

    acknowledged: dict[int, int] = field(default_factory=dict)
    """Number to offset."""
    failed: dict[int, str] = field(default_factory=dict)
    sent: int = 0

    def report(self, number: int, offset: int | None, error: object = None) -> None:
        """Takes one delivery report."""
        if error is None and offset is not None:
            self.acknowledged[number] = offset
        else:
            self.failed[number] = str(error)


Produce = Callable[[str, str, Journal, threading.Event], None]


def produce_with_confluent(
    bootstrap: str,
    topic: str,
    journal: Journal,
    stop: threading.Event,
    *,
    delivery_timeout_ms: int = 30_000,
) -> None:
    sender = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "delivery.timeout.ms": delivery_timeout_ms,
            "request.timeout.ms": 3_000,
            "enable.metrics.push": False,
            "log_level": 0,
        }
    )

    def report(number: int) -> Callable[..., None]:
        return lambda error, message: journal.report(number, message.offset(), error)

    while not stop.is_set():
        number = journal.sent
        journal.sent += 1
        sender.produce(topic, b"%d" % number, partition=0, on_delivery=report(number))
        sender.poll(PACE_S)
    assert sender.flush(40) == 0


def produce_with_kafka_python(
    bootstrap: str, topic: str, journal: Journal, stop: threading.Event
) -> None:
    kafka = pytest.importorskip("kafka", reason="kafka-python is not installed")
    sender = kafka.KafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all",
        enable_idempotence=True,
        request_timeout_ms=3_000,
        delivery_timeout_ms=30_000,
    )
    try:
        while not stop.is_set():
            number = journal.sent
            journal.sent += 1
            future = sender.send(topic, b"%d" % number, partition=0)
            future.add_callback(lambda sent, number=number: journal.report(number, sent.offset))
            future.add_errback(lambda error, number=number: journal.report(number, None, error))
            time.sleep(PACE_S)
        sender.flush(40)
    finally:
        sender.close(timeout=10)


def produce_with_aiokafka(
    bootstrap: str, topic: str, journal: Journal, stop: threading.Event
) -> None:
    aiokafka = pytest.importorskip("aiokafka", reason="aiokafka is not installed")

    async def story() -> None:
        sender = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, request_timeout_ms=20_000
        )
        await sender.start()
        waiting = []
        try:
            while not stop.is_set():
                number = journal.sent
                journal.sent += 1
                waiting.append((number, await sender.send(topic, b"%d" % number, partition=0)))
                await asyncio.sleep(PACE_S)
                while waiting and waiting[0][1].done():
                    await take(*waiting.pop(0))
            for number, future in waiting:
                await take(number, future)
        finally:
            await sender.stop()

    async def take(number: int, future: "asyncio.Future[object]") -> None:
        try:
            sent = await future
        except aiokafka.errors.KafkaError as error:
            journal.report(number, None, error)
        else:
            journal.report(number, sent.offset)  # type: ignore[attr-defined]

    asyncio.run(story())


class Follower:
    """A consumer by assignment that reads everything from the start, on its own thread."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.records: list[tuple[int, int]] = []
        self.errors: list[str] = []
        self._stop = threading.Event()
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "follower",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
            "enable.metrics.push": False,
            "log_level": 0,
        }
        self._topic = topic
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> "Follower":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def _read(self) -> None:
        reader = confluent_kafka.Consumer(self._settings)
        reader.assign([confluent_kafka.TopicPartition(self._topic, 0, 0)])
        while not self._stop.is_set():
            message = reader.poll(0.1)
            if message is None:
                continue
            if message.error() is not None:
                self.errors.append(str(message.error()))
            else:
                self.records.append((message.offset(), int(message.value())))
        reader.close()


@pytest.fixture
def journal() -> Journal:
    return Journal()


@pytest.fixture
def producing(
    cluster: SharedCluster, journal: Journal
) -> Iterator[Callable[[Produce, str], "Run"]]:
    runs: list[Run] = []

    def begin(produce: Produce, topic: str) -> Run:
        runs.append(Run(produce, cluster.bootstrap, topic, journal))
        return runs[-1]

    yield begin
    for run in runs:
        run.end()


class Run:
    """A producer on its own thread."""

    def __init__(self, produce: Produce, bootstrap: str, topic: str, journal: Journal) -> None:
        self._stop = threading.Event()
        self._failure: list[BaseException] = []

        def work() -> None:
            try:
                produce(bootstrap, topic, journal, self._stop)
            except BaseException as error:
                self._failure.append(error)

        self._thread = threading.Thread(target=work)
        self._thread.start()

    def end(self) -> None:
        """Lets the producer finish what it has sent; raises what it raised."""
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "the producer did not end"
        if self._failure:
            raise self._failure.pop()


def check(journal: Journal, follower: Follower, *, epochs: int = 1) -> None:
    """Compares the delivery reports with what the consumer read.

    Args:
        journal: What the producer was told.
        follower: What was read.
        epochs: How many producer epochs the log has. With more than one, values may stand twice.
    """
    read = follower.records
    offsets = [offset for offset, _ in read]
    values = [value for _, value in read]
    assert follower.errors == []
    assert offsets == list(range(len(offsets))), "the consumer skipped or repeated offsets"
    if epochs == 1:
        assert len(set(values)) == len(values), "a record stands twice"
        assert values == sorted(values), "an idempotent producer's records lost their order"
    log = dict(read)
    wrong = {n: o for n, o in journal.acknowledged.items() if log.get(o) != n}
    assert not wrong, f"acknowledged, but not at the reported offset: {wrong}"


@pytest.mark.parametrize(
    "produce",
    [
        pytest.param(produce_with_confluent, id="confluent"),
        pytest.param(produce_with_kafka_python, id="kafka-python", marks=pytest.mark.long),
        pytest.param(produce_with_aiokafka, id="aiokafka", marks=pytest.mark.long),
    ],
)
def test_killing_the_leader_loses_and_repeats_nothing(
    cluster: SharedCluster, journal: Journal, producing: Callable[..., Run], produce: Produce
) -> None:
    topic = cluster.topic()
    with Follower(cluster.bootstrap, topic) as follower:
        run = producing(produce, topic)
        eventually(lambda: len(journal.acknowledged) > 100, what="a hundred records acknowledged")
        leader = cluster.leader(topic)
        cluster.kill(leader)
        before = len(journal.acknowledged)
        eventually(
            lambda: len(journal.acknowledged) > before + AFTERWARDS,
            what="records are acknowledged by another leader",
        )
        cluster.start(leader)
        cluster.wait_for_isr(topic, 3)
        run.end()
        last = max(journal.acknowledged.values())
        eventually(lambda: follower.records and follower.records[-1][0] >= last)
    check(journal, follower)


@pytest.mark.long
@pytest.mark.parametrize(
    "produce",
    [
        pytest.param(produce_with_confluent, id="confluent"),
        pytest.param(produce_with_kafka_python, id="kafka-python"),
        pytest.param(produce_with_aiokafka, id="aiokafka"),
    ],
)
def test_a_rolling_restart_goes_unnoticed(
    cluster: SharedCluster, journal: Journal, producing: Callable[..., Run], produce: Produce
) -> None:
    topic = cluster.topic()
    with Follower(cluster.bootstrap, topic) as follower:
        run = producing(produce, topic)
        for name in cluster.brokers:
            before = len(journal.acknowledged)
            eventually(lambda before=before: len(journal.acknowledged) > before + 100)
            cluster.stop(name)
            cluster.start(name)
            cluster.wait_for_isr(topic, 3)
        run.end()
        last = max(journal.acknowledged.values())
        eventually(lambda: follower.records and follower.records[-1][0] >= last)
    assert journal.failed == {}
    assert len(journal.acknowledged) == journal.sent == len(follower.records)
    check(journal, follower)


def values_by_epoch(cluster: SharedCluster, topic: str) -> dict[int, list[int]]:
    """Returns what the leader's log holds, by producer epoch."""
    folder = cluster.local.nodes[cluster.leader(topic)].directory
    (log,) = folder.rglob(f"{topic}-0/*.log")
    values: dict[int, list[int]] = {}
    for header, records in decode_records(log.read_bytes()):
        found = values.setdefault(header.producer_epoch, [])
        found += [int(record.value or b"") for record in records]
    return values


@pytest.mark.long
def test_a_paused_leader_that_comes_back_loses_nothing(
    cluster: SharedCluster, journal: Journal, producing: Callable[..., Run]
) -> None:
    topic = cluster.topic()
    with Follower(cluster.bootstrap, topic) as follower:
        # librdkafka sends nothing to the new leader before the old one responds or the delivery timeout is over.
        run = producing(partial(produce_with_confluent, delivery_timeout_ms=5_000), topic)
        eventually(lambda: len(journal.acknowledged) > 100)
        leader = cluster.leader(topic)
        cluster.pause(leader)
        eventually(lambda: cluster.leader(topic) != leader, what="another leader is elected")
        before = len(journal.acknowledged)
        eventually(lambda: len(journal.acknowledged) > before + AFTERWARDS)
        cluster.resume(leader)
        cluster.wait_for_isr(topic, 3)
        run.end()
        last = max(journal.acknowledged.values())
        eventually(lambda: follower.records and follower.records[-1][0] >= last)
    # A producer whose records reach their delivery timeout while requests are in flight goes on with a new epoch
    # (KIP-360) and sends again what may have been written already. Within an epoch nothing is repeated.
    written = values_by_epoch(cluster, topic)
    for values in written.values():
        assert values == sorted(set(values)), "an epoch repeats records, or mixes their order"
    check(journal, follower, epochs=len(written))


def test_killing_the_active_controller_stops_no_client(
    cluster: SharedCluster, journal: Journal, producing: Callable[..., Run]
) -> None:
    topic = cluster.topic()
    with Follower(cluster.bootstrap, topic) as follower:
        run = producing(produce_with_confluent, topic)
        for name in [name for name, node in cluster.local.nodes.items() if node.role != "broker"]:
            before = len(journal.acknowledged)
            cluster.kill(name)
            eventually(lambda before=before: len(journal.acknowledged) > before + AFTERWARDS)
            cluster.start(name)
        run.end()
        last = max(journal.acknowledged.values())
        eventually(lambda: follower.records and follower.records[-1][0] >= last)
    assert journal.failed == {}
    check(journal, follower)
