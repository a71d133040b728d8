"""Moves the log directories of a cluster between the reference system and Apache Kafka, and compares records."""

import shutil
from pathlib import Path

import pytest
from kafka_tools import LIMIT_S, Tools
from wire_helpers import eventually

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

from confluent_kafka import Producer

from harness.contracts.system import Settings
from harness.environments.local.standing import DATA_FOLDER, LocalCluster, local_settings
from harness.systems.apache_kafka.adapter import SYSTEM
from tests.kafka_jars import kafka_or_skip

VERSION = "4.1.2"
TOPIC, GROUP, TRANSACTIONAL_ID = "exchanged", "readers", "exchange"
RECORDS = 12_000
COMMITTED = 2
"""Records of the transaction that `write_transactions` commits: one per partition."""
CLIENT_LIMIT_S = 120
META_PROPERTIES = "meta.properties"


def create_cluster(directory: Path, system: str, nodes: int) -> LocalCluster:
    """Writes the files of a cluster with as many brokers as controllers; starts nothing.

    Args:
        directory: For its files; must not exist.
        system: "kafka" or "reference".
        nodes: Number of brokers, and of controllers.
    """
    if system == "reference":
        settings = local_settings(timings="fast", broker={"group_initial_rebalance_delay_ms": 0})
        return LocalCluster.create(directory, settings=settings, brokers=nodes, controllers=nodes)
    kafka_or_skip(VERSION)
    kafka = SYSTEM.of_version(VERSION, {})
    settings = Settings(
        profile=next(iter(kafka.profiles)),
        timings="fast",
        with_events=False,
        properties={"group.initial.rebalance.delay.ms": "0"},
    )
    return LocalCluster.create(
        directory, system=kafka, settings=settings, brokers=nodes, controllers=nodes
    )


def move_directories(source: LocalCluster, target: LocalCluster) -> None:
    """Gives the stopped nodes of a new cluster the log directories of another one's stopped nodes."""
    for name, node in target.nodes.items():
        data = node.directory / DATA_FOLDER
        shutil.rmtree(data, ignore_errors=True)
        shutil.copytree(source.nodes[name].directory / DATA_FOLDER, data)
        node_file = node.directory / "node.toml"
        if node_file.exists():
            text = node_file.read_text()
            own = text.split('cluster_id = "')[1].split('"')[0]
            node_file.write_text(text.replace(own, cluster_id(data)))


def cluster_id(data: Path) -> str:
    """Returns the cluster id in the `meta.properties` of a node."""
    (path,) = data.rglob(META_PROPERTIES)
    lines = path.read_text().splitlines()
    return next(line.split("=")[1] for line in lines if line.startswith("cluster.id="))


def start(cluster: LocalCluster) -> None:
    """Starts all nodes and waits until they serve clients."""
    cluster.start()
    cluster.wait_ready(LIMIT_S)


def stop(cluster: LocalCluster) -> None:
    """Stops all nodes cleanly, brokers first."""
    for name in reversed(list(cluster.nodes)):
        # A Java process that SIGTERM ended has this exit code.
        assert cluster.stop(name) in (0, 143), cluster.nodes[name].output()[-2000:]


def tools_for(cluster: LocalCluster) -> Tools:
    """Returns Kafka's tools for a cluster, or skips the test."""
    cache, java = kafka_or_skip(VERSION)
    return Tools(cache=cache, java=java, bootstrap=cluster.bootstrap, directory=cluster.directory)


def fill(tools: Tools, replicas: int) -> None:
    """Creates a topic with a configuration; writes compressed and plain batches, transactions, and offsets."""
    # A busy machine can delay the heartbeats of all brokers so long that they are fenced for a moment.
    eventually(lambda: create_topic(tools, replicas), what="the topic is created")
    produce(tools, RECORDS, "compression.type=gzip", "enable.idempotence=true")
    write_transactions(tools.bootstrap)
    produce(tools, RECORDS, "compression.type=none", "enable.idempotence=true")
    consumed = ["--group", GROUP, "--from-beginning", "--max-messages", "1000"]
    tools.run("console-consumer", "--topic", TOPIC, *consumed)


def create_topic(tools: Tools, replicas: int) -> bool:
    """Tries to create the topic, with a configuration; returns whether it was created."""
    shown = tools.run(
        *("topics", "--create", "--topic", TOPIC, "--partitions", "2"),
        *("--replication-factor", str(replicas), "--config", "segment.bytes=1048576"),
        *("--config", "retention.ms=86400000", "--config", "flush.messages=1000"),
        exit_code=None,
    )
    assert "Created topic" in shown or "InvalidReplicationFactorException" in shown, shown
    return "Created topic" in shown


def produce(tools: Tools, count: int, *properties: str) -> None:
    """Writes records of 200 bytes."""
    tools.run(
        *("producer-perf-test", "--topic", TOPIC, "--num-records", str(count)),
        *("--record-size", "200", "--throughput", "-1", "--producer-props"),
        *(f"bootstrap.servers={tools.bootstrap}", "acks=all", *properties),
    )


def write_transactions(bootstrap: str) -> None:
    """Aborts a transaction and commits another one, each with a record in both partitions."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": TRANSACTIONAL_ID})
    producer.init_transactions(CLIENT_LIMIT_S)
    for value, end in (
        ("aborted", producer.abort_transaction),
        ("committed", producer.commit_transaction),
    ):
        producer.begin_transaction()
        for partition in range(COMMITTED):
            producer.produce(TOPIC, value, partition=partition)
        assert producer.flush(CLIENT_LIMIT_S) == 0
        end(CLIENT_LIMIT_S)


def state_of_transactions(tools: Tools) -> dict[str, str]:
    """Returns what the coordinator has about the transactional id, as `kafka-transactions` prints it."""
    row = tools.transaction(TRANSACTIONAL_ID)
    return {name: row[name] for name in ("ProducerId", "ProducerEpoch", "TransactionState")}


def records(tools: Tools, count: int) -> list[str]:
    """Returns partition, offset and value of the committed records; fails if there are not as many as expected."""
    lines = read(tools, "--max-messages", str(count), "--isolation-level", "read_committed")
    assert len(lines) == count, lines[-5:]
    assert not any(line.endswith("\taborted") for line in lines)
    return lines


def read(tools: Tools, *options: str) -> list[str]:
    """Returns partition, offset and value of the records that a consumer reads until it waits, sorted."""
    found = tools.run(
        *("console-consumer", "--topic", TOPIC, "--from-beginning", "--timeout-ms", "10000"),
        *("--property", "print.partition=true", "--property", "print.offset=true", *options),
    )
    return sorted(line for line in found.splitlines() if line.startswith("Partition:"))


def offsets_of_group(tools: Tools) -> dict[str, str]:
    """Returns the committed offsets of the group by partition, as `kafka-consumer-groups` prints them."""
    rows = tools.run("consumer-groups", "--describe", "--group", GROUP).splitlines()
    found = [row.split() for row in rows if row.startswith(GROUP)]
    return {row[2]: row[3] for row in found}
