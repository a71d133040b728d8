"""A distributed worker of Kafka Connect with exactly-once sources: a file becomes a topic and a file again."""

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from java_applications import Application, Applications, applications_or_skip
from wire_helpers import SharedCluster, eventually, new_name

from harness.environments.local.ports import LOOPBACK, listening_ports

confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

pytestmark = [
    pytest.mark.wire,
    pytest.mark.long,
    pytest.mark.xdist_group("applications"),
    pytest.mark.timeout(900),
]

LINES = 2000
MORE = 100
PADDING = "x" * 1000
"""The source reads 1024 characters at once. If they have several lines and a poll returns only some of them, the
others wait until the file grows, so the end of the file would be missing."""
LINES_PER_TRANSACTION = 20
LIMIT_S = 240
NOT_READY = (404, 409, 500, 503)
"""Status of a response: not known yet, a rebalance, the worker has not joined its group."""


class Worker:
    """The only worker of a Connect cluster. Mutable: its process.

    Args:
        applications: What runs it.
        directory: Its files.
        bootstrap: Addresses of the brokers.
    """

    def __init__(self, applications: Applications, directory: Path, bootstrap: str) -> None:
        self.name = new_name("connect")
        (self._port,) = listening_ports(1, None)
        self._applications = applications
        self._directory = directory
        self._process: Application | None = None
        converter = "org.apache.kafka.connect.storage.StringConverter"
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": self.name,
            "exactly.once.source.support": "enabled",
            "listeners": f"http://{LOOPBACK}:{self._port}",
            "rest.advertised.host.name": LOOPBACK,
            "key.converter": converter,
            "value.converter": converter,
            "config.storage.topic": f"{self.name}-configs",
            "offset.storage.topic": f"{self.name}-offsets",
            "offset.storage.partitions": "3",
            "status.storage.topic": f"{self.name}-status",
            "status.storage.partitions": "2",
            "offset.flush.interval.ms": "500",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            "plugin.discovery": "service_load",
        }
        directory.mkdir()
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        (directory / "worker.properties").write_text(text, encoding="utf-8")

    def start(self) -> None:
        """Starts it and waits until it has joined its group."""
        self._process = self._applications.start(
            self._directory,
            "org.apache.kafka.connect.cli.ConnectDistributed",
            str(self._directory / "worker.properties"),
        )
        self.until(lambda: self.call("GET", "/connectors") is not None, "the worker is ready")

    def kill(self) -> None:
        """Ends it with SIGKILL."""
        if self._process is not None:
            self._process.kill()

    def stop(self) -> None:
        """Ends it with SIGTERM."""
        assert self._process is not None
        self._process.terminate()

    def connect(self, name: str, **config: str) -> None:
        """Creates a connector and waits until its task runs."""
        self.until(
            lambda: self.call("PUT", f"/connectors/{name}/config", config), f"{name} is accepted"
        )
        self.until(lambda: self.is_running(name), f"{name} runs")

    def is_running(self, name: str) -> bool:
        """Whether a connector and its only task run."""
        status = self.call("GET", f"/connectors/{name}/status")
        if status is None:
            return False
        tasks = [task["state"] for task in status["tasks"]]
        assert "FAILED" not in tasks, status
        return [status["connector"]["state"], *tasks] == ["RUNNING", "RUNNING"]

    def until(self, condition: Any, what: str) -> Any:
        """Waits until a condition is true; fails if the worker ends."""
        process = self._process
        assert process is not None
        return eventually(
            lambda: process.is_alive() and condition(),
            within_s=LIMIT_S,
            what=what,
        )

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Returns what a request to the worker's REST interface returns; None if it is not ready for it."""
        request = urllib.request.Request(
            f"http://{LOOPBACK}:{self._port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                if error.code not in NOT_READY:
                    raise AssertionError(error.read().decode()) from None
                return None
        except OSError:
            return None


def read_committed(bootstrap: str, topic: str) -> list[str]:
    """Returns the lines that a topic holds for read_committed consumers."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": new_name("lines"),
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[str] = []
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None, "no end of the partition within 30 s"
            if message.error() is None:
                found.append(message.value().decode())
            elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                return found
    finally:
        consumer.close()


class Progress:
    """How far the connectors are. Its one consumer never joins a group.

    Args:
        bootstrap: Addresses of the brokers.
        topic: The topic of both connectors, with one partition.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "connect-sink", "log_level": 0}
        self._consumer = confluent_kafka.Consumer(settings)
        self._place = confluent_kafka.TopicPartition(topic, 0)

    def has(self, count: int) -> bool:
        """Whether the topic has more offsets; not if it is unknown now."""
        try:
            return bool(self._consumer.get_watermark_offsets(self._place, 10)[1] > count)
        except confluent_kafka.KafkaException:
            return False

    def is_committed(self) -> bool:
        """Whether the sink has committed that it read the whole topic; not if it is unknown now."""
        try:
            _, end = self._consumer.get_watermark_offsets(self._place, 10)
            (found,) = self._consumer.committed([self._place], 10)
        except confluent_kafka.KafkaException:
            return False
        # The last offset is that of a marker.
        return bool(found.offset >= end - 1)

    def close(self) -> None:
        self._consumer.close()


def lines(first: int, count: int) -> list[str]:
    return [f"{number} {PADDING}" for number in range(first, first + count)]


def append_lines(path: Path, first: int, count: int) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines(first, count))


def test_a_file_arrives_in_a_topic_and_in_a_file_exactly_once_over_the_end_of_the_worker(
    steady_cluster: SharedCluster, tmp_path: Path
) -> None:
    """The source is killed in the middle of the file, the worker again after the sink has committed.

    The sink of Kafka Connect writes at least once: a worker that is killed before it commits writes lines again.
    """
    topic = steady_cluster.topic(partitions=1)
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    append_lines(source, 0, LINES)
    bootstrap = steady_cluster.bootstrap
    worker = Worker(applications_or_skip(), tmp_path / "worker", bootstrap)
    progress = Progress(bootstrap, topic)
    try:
        worker.start()
        worker.connect(
            "source",
            **{"connector.class": "FileStreamSource", "tasks.max": "1", "file": str(source)},
            **{"topic": topic, "batch.size": str(LINES_PER_TRANSACTION)},
            **{"exactly.once.support": "required", "transaction.boundary": "poll"},
        )
        worker.until(lambda: progress.has(LINES // 4), "the topic has lines")
        worker.kill()
        before = len(read_committed(bootstrap, topic))
        assert 0 < before < LINES, "the worker was not killed in the middle"

        worker.start()
        worker.connect(
            "sink",
            **{"connector.class": "FileStreamSink", "tasks.max": "1", "file": str(sink)},
            **{"topics": topic, "consumer.override.isolation.level": "read_committed"},
        )
        worker.until(
            lambda: sink.exists() and sink.read_bytes().count(b"\n") >= LINES,
            "the sink has all lines",
        )
        worker.until(progress.is_committed, "the sink has committed")
        worker.kill()

        append_lines(source, LINES, MORE)
        worker.start()
        worker.until(
            lambda: sink.read_bytes().count(b"\n") >= LINES + MORE, "the sink has more lines"
        )
        worker.stop()
    finally:
        worker.kill()
        progress.close()
    expected = lines(0, LINES + MORE)
    assert read_committed(bootstrap, topic) == expected
    assert sink.read_text(encoding="utf-8").splitlines() == expected
