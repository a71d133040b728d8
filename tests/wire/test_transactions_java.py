"""Transactions of Kafka's Java client, which follows `transaction.version` 2 (KIP-890), and Kafka's own tools."""

from pathlib import Path

import pytest
from java_applications import programs_or_skip
from kafka_tools import LIMIT_S, tools_or_skip
from wire_helpers import SharedCluster, new_name

pytestmark = [pytest.mark.wire, pytest.mark.timeout(LIMIT_S * 3)]

confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

RECORDS = 300
NUMBERS = 20


@pytest.mark.long
def test_transactions_of_the_java_client_have_an_epoch_each(
    cluster: SharedCluster, tmp_path: Path
) -> None:
    tools = tools_or_skip(cluster.bootstrap, tmp_path)
    topic, transactional_id = cluster.topic(), new_name("perf")
    summary = tools.run(
        *("producer-perf-test", "--topic", topic, "--throughput", "300"),
        *("--num-records", str(RECORDS), "--record-size", "20"),
        *("--transactional-id", transactional_id, "--transaction-duration-ms", "50"),
        *("--producer-props", f"bootstrap.servers={tools.bootstrap}"),
    )
    assert f"{RECORDS} records sent" in summary
    (listed,) = (
        row
        for row in tools.rows("TransactionalId", "transactions", "list")
        if row["TransactionalId"] == transactional_id
    )
    assert listed["TransactionState"] == "CompleteCommit"
    described = tools.transaction(transactional_id)
    assert described["TransactionState"] == "CompleteCommit"
    # Every transaction has a marker and an epoch of its own.
    epochs = int(described["ProducerEpoch"])
    (end,) = tools.offsets(topic).values()
    assert epochs == end - RECORDS
    assert epochs > 3
    read = tools.run(
        *("console-consumer", "--topic", topic, "--from-beginning"),
        *("--max-messages", str(RECORDS), "--timeout-ms", "30000"),
        *("--isolation-level", "read_committed"),
    )
    assert f"Processed a total of {RECORDS} messages" in read


@pytest.mark.long  # the coordinator looks for transactions that exceeded their timeout every ten seconds
def test_transactions_of_the_java_client_commit_abort_and_fence(
    cluster: SharedCluster, tmp_path: Path
) -> None:
    """Consume-transform-produce with the positions in the transaction, aborts, a zombie, and a timeout.

    Apache Kafka 4.1.2 gives the same results.
    """
    programs = programs_or_skip()
    source, sink = cluster.topic(), cluster.topic()
    write_numbers(cluster.bootstrap, source)
    tour = programs.start(
        *(tmp_path / "tour", "TransactionTour.java", cluster.bootstrap, source, sink),
        *(new_name("tour"), str(NUMBERS)),
    )
    lines = tour.finish(LIMIT_S)
    found = {name: value for name, _, value in (line.partition("=") for line in lines)}
    # Every other attempt was aborted, and its records were consumed again from the committed position.
    assert int(found["aborted"]) >= NUMBERS // 5
    assert found["position"] == str(NUMBERS)
    assert (found["stale_offsets"], found["stale_abort"]) == ("CommitFailedException", "none")
    assert found["zombie_before"] == "none"
    assert found["zombie_send"] in FENCED
    assert found["zombie_commit"] in FENCED
    assert (found["successor_send"], found["successor_commit"]) == ("none", "none")
    assert found["slow_send"] == "none"
    # Its epoch is the one before that of the abort, as if it repeated its request with another decision.
    assert found["slow_commit"] == "InvalidTxnStateException"
    assert (found["next_send"], found["next_commit"]) == ("none", "none")
    assert found["after_empty"] == "none"
    own = [f"of {number}" for number in range(NUMBERS)]
    assert found["committed"].split(",") == [*own, "successor", "next", "after empty"]
    assert int(found["uncommitted"]) > NUMBERS + 3


FENCED = ("ProducerFencedException", "InvalidProducerEpochException")
"""What the Java client throws for a producer that was replaced; from 4.0 on a leader knows only its epoch."""


def write_numbers(bootstrap: str, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(NUMBERS):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(30) == 0
