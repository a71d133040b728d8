"""Clients of other languages on real brokers, over a kill, a fail-over and a restart.

Go has franz-go, Node KafkaJS, Rust krafka: three implementations of the protocol that share no code with each
other, with librdkafka or with Apache Kafka. All of them produce idempotently.
"""

from typing import Any

import pytest
from foreign_clients import BUILD_LIMIT_S, LANGUAGES, RUN_LIMIT_S, Client, Language, client_or_skip
from wire_helpers import SharedCluster, eventually, new_name

pytestmark = [
    pytest.mark.wire,
    pytest.mark.long,
    pytest.mark.timeout(BUILD_LIMIT_S + 4 * RUN_LIMIT_S),
]

COUNT = 3000
PARTITIONS = 3
KILL_AFTER = 500


@pytest.fixture(params=LANGUAGES, ids=lambda language: language.name)
def client(request: pytest.FixtureRequest) -> Client:
    language: Language = request.param
    return client_or_skip(language)


def _created(client: Client, cluster: SharedCluster) -> str:
    topic = new_name(f"foreign-{client.language.name}")
    (shown,) = client.run("admin", cluster.bootstrap, topic)
    assert shown == {
        "partitions": PARTITIONS,
        "replicas": 3 * PARTITIONS,
        "configs": {"min.insync.replicas": "2"},
        "exists": True,
        "listed": True,
        "gone": True,
    }
    return topic


def _placed(rows: list[dict[str, Any]]) -> dict[tuple[int, int], int]:
    """Returns the values by partition and offset; every place occurs once."""
    placed = {(row["partition"], row["offset"]): row["value"] for row in rows}
    assert len(placed) == len(rows)
    return placed


def test_every_record_is_written_and_read_once_and_in_order_over_a_kill_and_a_fail_over(
    client: Client, cluster: SharedCluster
) -> None:
    topic = _created(client, cluster)
    victim = cluster.leader(topic)
    producer = client.start("produce", cluster.bootstrap, topic, str(COUNT))
    eventually(lambda: producer.has_printed(KILL_AFTER), what="the producer has begun")
    cluster.kill(victim)
    eventually(lambda: cluster.leader(topic) != victim, what="another broker leads")
    so_far = len(producer.rows)
    eventually(lambda: producer.has_printed(so_far + KILL_AFTER), what="the producer continues")
    cluster.start(victim)
    acknowledged = _placed(producer.finish())
    assert sorted(acknowledged.values()) == list(range(COUNT))
    # Idempotent: the offsets have no gap, so no attempt was written twice, and the order is that of sending.
    for partition in range(PARTITIONS):
        own = [acknowledged[place] for place in sorted(acknowledged) if place[0] == partition]
        assert own == list(range(partition, COUNT, PARTITIONS))
        assert max(offset for one, offset in acknowledged if one == partition) == len(own) - 1

    group = new_name("group")
    first = client.run("consume", cluster.bootstrap, topic, group, str(COUNT // 2))
    # On a busy machine the first victim may be slow to rejoin; the last member of an ISR must not be the next one.
    for name in (topic, "__consumer_offsets"):
        for partition in range(len(cluster.describe(name))):
            cluster.wait_for_isr(name, 3, partition)
    victim = cluster.leader(topic)
    consumer = client.start("consume", cluster.bootstrap, topic, group, str(COUNT - len(first)))
    eventually(lambda: consumer.has_printed(1), what="the second consumer has begun")
    cluster.kill(victim)
    read = first + consumer.finish()
    for partition in range(PARTITIONS):
        offsets = [row["offset"] for row in read if row["partition"] == partition]
        wrong = next((i for i, offset in enumerate(offsets) if offset != i), len(offsets))
        assert wrong == len(offsets), (
            f"once and in order, from what the first committed; the first read {len(first)}, and around the"
            f" {wrong}th record of partition {partition}: {offsets[max(wrong - 3, 0) : wrong + 5]}"
        )
    assert _placed(read) == acknowledged
