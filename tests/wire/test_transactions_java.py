"""Transactions of Kafka's Java client, which follows `transaction.version` 2 (KIP-890), and Kafka's own tools."""

from pathlib import Path

import pytest
from kafka_tools import LIMIT_S, tools_or_skip
from wire_helpers import SharedCluster, new_name

pytestmark = [pytest.mark.wire, pytest.mark.timeout(LIMIT_S * 3)]

RECORDS = 300


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
    text = tools.run("transactions", "describe", "--transactional-id", transactional_id)
    head, row = (line.split("\t") for line in text.splitlines())
    described = dict(zip((one.strip() for one in head), (one.strip() for one in row), strict=True))
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
