"""Kafka Streams' word count with exactly-once, over the end of a broker and of the application."""

import struct
import time
from collections import Counter
from pathlib import Path

import pytest
from java_applications import Application, applications_or_skip
from wire_helpers import SharedCluster, eventually, new_name

confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

pytestmark = [
    pytest.mark.wire,
    pytest.mark.long,
    pytest.mark.xdist_group("applications"),
    pytest.mark.timeout(900),
]

WORDS = ("to", "be", "or", "not", "that", "is", "the", "question")
LINES = 600
PARTITIONS = 2
LIMIT_S = 240


def line(number: int) -> list[str]:
    """Returns the words of a line; they differ in how often they occur."""
    return [word for place, word in enumerate(WORDS) if number % (place + 1) == 0]


def words(count: int) -> Counter[str]:
    """Returns how often each word occurs in the first lines."""
    return Counter(word for number in range(count) for word in line(number))


class Lines:
    """Writes lines, in parts. Mutable: the next line."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
        )
        self._topic = topic
        self._next = 0

    def write(self, until: int) -> None:
        """Writes the next lines, slowly enough that a node ends between them."""
        while self._next < until:
            text = " ".join(line(self._next)).encode()
            self._producer.produce(self._topic, text, partition=self._next % PARTITIONS)
            self._producer.poll(0)
            self._next += 1
            time.sleep(0.01)
        assert self._producer.flush(LIMIT_S) == 0


class Counts:
    """The output topic as a read_committed consumer sees it. Mutable.

    Attributes:
        values: Every count of a word, in order.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.values: dict[str, list[int]] = {}
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": new_name("counts"),
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._consumer.assign(
            [confluent_kafka.TopicPartition(topic, index, 0) for index in range(PARTITIONS)]
        )

    def total(self) -> int:
        """Reads what there is and returns how many counts it has read."""
        while (message := self._consumer.poll(0.2)) is not None:
            if message.error() is None:
                (count,) = struct.unpack(">q", message.value())
                self.values.setdefault(message.key().decode(), []).append(count)
        return sum(map(len, self.values.values()))

    def close(self) -> None:
        self._consumer.close()


def test_a_word_count_counts_every_word_once_over_the_end_of_a_broker_and_of_the_application(
    steady_cluster: SharedCluster, tmp_path: Path
) -> None:
    """Each change of a count is a record of the output, so a word that was counted twice or lost shows."""
    applications = applications_or_skip()
    cluster = steady_cluster
    source, sink = (cluster.topic(partitions=PARTITIONS) for _ in range(2))
    name = new_name("word-count")

    def started() -> Application:
        arguments = (cluster.bootstrap, name, source, sink, str(tmp_path / "state"))
        return applications.start(tmp_path / "logs", "WordCount.java", *arguments)

    lines, counts = Lines(cluster.bootstrap, source), Counts(cluster.bootstrap, sink)
    with started() as first:
        eventually(lambda: first.has_printed("state=RUNNING"), within_s=LIMIT_S, what="it runs")
        lines.write(LINES // 6)
        eventually(lambda: first.is_alive() and counts.total() > 0, within_s=LIMIT_S)
        cluster.kill(cluster.leader(sink))
        lines.write(LINES // 2)
        so_far = words(LINES // 2).total()
        eventually(
            lambda: first.is_alive() and counts.total() >= so_far,
            within_s=LIMIT_S,
            what="it counts with two brokers",
        )
        lines.write(2 * LINES // 3)
        first.kill()
    cluster.mend()
    with started() as second:
        lines.write(LINES)
        expected = words(LINES)
        eventually(
            lambda: second.is_alive() and counts.total() >= expected.total(),
            within_s=LIMIT_S,
            what="everything is counted",
        )
        # Its last state is printed by another thread, before or after this.
        assert "closed=true" in second.finish()
    counts.total()
    counts.close()
    assert {word: values[-1] for word, values in counts.values.items()} == expected
    for word, values in counts.values.items():
        assert values == list(range(1, expected[word] + 1)), word
