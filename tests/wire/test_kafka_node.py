"""Real nodes of Apache Kafka: a controller and a broker are formatted, started and stopped."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.contracts.system import Node, Settings
from harness.java import JavaRuntime
from harness.systems.apache_kafka.archive import STARTED
from harness.systems.apache_kafka.cache import VersionCache
from harness.systems.apache_kafka.command import node_command
from harness.systems.apache_kafka.exits import exit_reason
from harness.systems.apache_kafka.properties import node_files
from harness.systems.apache_kafka.storage import disk_files, formatted_files
from harness.systems.apache_kafka.versions import feature_levels
from tests.kafka_jars import kafka_or_skip

pytestmark = [pytest.mark.wire, pytest.mark.timeout(900)]


@dataclass
class RunningNode:
    process: subprocess.Popen[bytes]
    log_path: Path

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def wait_started(self) -> None:
        while STARTED.decode() not in self.log:
            assert self.process.poll() is None, self.log[-3000:]
            time.sleep(0.05)


def _nodes() -> list[Node]:
    """Returns a controller and a broker on a loopback address that no other test has."""
    number = os.getpid()
    host = f"127.{64 + (number >> 16 & 63)}.{number >> 8 & 255}.{max(number & 255, 2)}"
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(2)]
        for one in sockets:
            one.bind((host, 0))
        ports = [one.getsockname()[1] for one in sockets]
    return [
        Node(name="c11", role="controller", node_id=11, address=f"{host}:{ports[0]}"),
        Node(name="b1", role="broker", node_id=1, address=f"{host}:{ports[1]}"),
    ]


def _write_files(
    cache: VersionCache, java: JavaRuntime, node: Node, nodes: list[Node], directory: Path
) -> None:
    directory.mkdir()
    version = cache.version
    log_dirs = ["data", "data2"] if node.role == "broker" else ["data"]
    texts = node_files(
        version,
        node,
        nodes,
        Settings(profile="", timings="fast"),
        log_dirs=[str(directory / name) for name in log_dirs],
    )
    for name, text in texts.items():
        (directory / name).write_text(text)
    formatted = formatted_files(cache, java, node.role, feature_levels(version))
    for name, content in disk_files(version, node, formatted, log_dirs=log_dirs).items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


@contextmanager
def _started(cache: VersionCache, java: JavaRuntime, directory: Path) -> Iterator[RunningNode]:
    command = node_command(cache, java, str(directory), python=sys.executable)
    log_path = directory / "node.log"
    with open(log_path, "ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
    try:
        yield RunningNode(process, log_path)
    finally:
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()


@pytest.mark.parametrize(
    "version",
    [
        "4.1.2",
        *(
            pytest.param(one, marks=pytest.mark.long)
            for one in ("3.6.2", "3.9.1", "4.0.2", "4.4.0")
        ),
    ],
)
def test_a_formatted_controller_and_broker_start_and_stop_cleanly(
    version: str, tmp_path: Path
) -> None:
    cache, java = kafka_or_skip(version)
    nodes = _nodes()
    for node in nodes:
        _write_files(cache, java, node, nodes, tmp_path / node.name)
    with (
        _started(cache, java, tmp_path / "c11") as controller,
        _started(cache, java, tmp_path / "b1") as broker,
    ):
        controller.wait_started()
        broker.wait_started()
        host, port = nodes[1].address.split(":")
        socket.create_connection((host, int(port))).close()
        for node in (broker, controller):
            node.process.terminate()
            assert node.process.wait() == 143, node.log[-3000:]
    assert exit_reason(broker.log) == ""
    assert exit_reason(controller.log) == ""


def test_a_node_with_an_empty_disk_says_why_it_ended(tmp_path: Path) -> None:
    cache, java = kafka_or_skip("4.1.2")
    nodes = _nodes()
    _write_files(cache, java, nodes[1], nodes, tmp_path / "b1")
    for path in (tmp_path / "b1").glob("data*/*"):
        path.unlink()
    with _started(cache, java, tmp_path / "b1") as broker:
        assert broker.process.wait() == 1
    reason = exit_reason(broker.log)
    assert "meta.properties" in reason
    assert "Exception: " in reason
    assert reason != broker.log.splitlines()[-1]
