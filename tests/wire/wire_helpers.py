"""What the acceptance tests share: a cluster that may be hurt, and questions to it that need no foreign client."""

import contextlib
import itertools
import os
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from harness.environments.local.standing import LocalCluster
from harness.errors import UsageError
from nemesis.local import processes
from system_under_test.protocol.messages import (
    create_topics_request,
    delete_topics_request,
    metadata_request,
    millis,
)
from system_under_test.protocol.wire import ClientCodec
from workloads.clients import java_process

BROKER_SETTINGS: dict[str, Any] = {
    "min_insync_replicas": 2,
    "group_initial_rebalance_delay_ms": 0,
    "group_min_session_timeout_ms": 500,
}
"""As fast as tests want it; Kafka waits 3 s for the first members of a group."""

TOPIC_ALREADY_EXISTS = 36

RECENT_MS = int(time.time() * 1000) - 60_000
"""A timestamp for records. Older ones than a week may be deleted by retention before a test reads them."""

_names = itertools.count()


def new_name(what: str) -> str:
    """Returns a name that no other test uses."""
    return f"{what}-{os.getpid()}-{next(_names)}"


def eventually(condition: Callable[[], Any], *, within_s: float = 60.0, what: str = "") -> Any:
    """Waits until a condition is true and returns its value; fails when it does not come true."""
    deadline_s = time.monotonic() + within_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not within {within_s:g} s: {what or condition}")
        time.sleep(0.05)


def skip_without_java() -> None:
    """Skips the test where the jars of Apache Kafka or a JDK are missing."""
    try:
        java_process.find_files()
    except UsageError as missing:
        pytest.skip(str(missing))


def ask(address: str, request: Any, *, timeout_s: float = 10.0) -> Any:
    """Sends one request to a node with our own codec and returns the response."""
    codec = ClientCodec()
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=timeout_s) as connection:
        connection.sendall(codec.encode_request(request, 7, "acceptance"))
        with connection.makefile("rb") as file:
            frame = file.read(int.from_bytes(file.read(4), "big"))
    if not frame:
        raise ConnectionResetError(f"{address} closed the connection without a response")
    correlation_id, response = codec.decode_response(type(request), frame)
    assert correlation_id == 7
    return response


class SharedCluster:
    """The worker's cluster as one test sees it. Mutable: the test may hurt it.

    Args:
        cluster: The processes.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        self.local = cluster
        self.bootstrap = cluster.bootstrap
        self._ended: set[str] = set()
        self._paused: set[str] = set()

    @property
    def brokers(self) -> tuple[str, ...]:
        """Names of the brokers."""
        return tuple(name for name, node in self.local.nodes.items() if node.role == "broker")

    def address(self, name: str) -> str:
        """Returns where a node listens."""
        return self.local.nodes[name].address

    # -- life

    def kill(self, name: str) -> None:
        """Ends a node with SIGKILL."""
        self._ended.add(name)
        self._paused.discard(name)
        self.local.kill(name)

    def stop(self, name: str) -> None:
        """Ends a node with SIGTERM."""
        self._ended.add(name)
        self._paused.discard(name)
        assert self.local.stop(name) == 0, f"{name} did not stop cleanly"

    def start(self, name: str) -> None:
        """Starts a node that was ended."""
        self.local.start_node(name)
        self._ended.discard(name)

    def pause(self, name: str) -> None:
        """Stops a node with SIGSTOP."""
        assert processes.pause(self.local.nodes[name])
        self._paused.add(name)

    def resume(self, name: str) -> None:
        """Resumes a node."""
        processes.resume(self.local.nodes[name])
        self._paused.discard(name)

    def mend(self) -> None:
        """Makes every node run, and waits until brokers serve clients."""
        # All nodes: a test that failed may have left one paused.
        for name in self.local.nodes:
            self.resume(name)
        self.local.start()
        self.local.wait_ready(60)

    def delete_topics(self) -> None:
        """Deletes the topics of earlier tests.

        When a broker is fenced, all its partitions change. On a busy machine a hundred of them take longer than a
        session lasts, and then brokers are fenced again and again.
        """
        everything = metadata_request.MetadataRequest(
            topics=None,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        names = [topic.name for topic in self.ask_any(everything).topics if not topic.is_internal]
        if not names:
            return
        request = delete_topics_request.DeleteTopicsRequest(
            topics=tuple(
                delete_topics_request.DeleteTopicState(name=name, topic_id=None) for name in names
            ),
            timeout=millis(10_000),
        )
        self.ask_any(request)

    def check_no_node_died(self) -> None:
        """Fails when a node ended by itself."""
        dead = [node for node in self.local.dead_nodes() if node.name not in self._ended]
        assert not dead, "\n".join(
            f"{node.name} ended by itself ({node.exit_code}): {node.log_tail()}" for node in dead
        )

    # -- topics, without any foreign client

    def ask_any(self, request: Any) -> Any:
        """Sends to the first broker that responds, in id order, until one responds."""

        def answer() -> Any:
            for node in self.local.nodes.values():
                if node.role == "broker" and node.is_alive and node.name not in self._paused:
                    # One that has just been started does not listen yet.
                    with contextlib.suppress(OSError):
                        return ask(node.address, request)
            return None

        return eventually(answer, what="a broker answers")

    def topic(
        self,
        *,
        partitions: int = 1,
        name: str = "",
        replicas: tuple[int, ...] | None = None,
        replication_factor: int = 3,
        configs: dict[str, str] | None = None,
    ) -> str:
        """Creates a topic and waits until all brokers know a leader for every partition.

        Args:
            partitions: How many.
            name: One that no other test uses, if empty.
            replicas: The assignment of the only partition, preferred leader first; chosen if None.
            replication_factor: If no assignment is given.
            configs: Of the topic.
        """
        name = name or new_name("topic")
        self.create(
            name,
            partitions=partitions,
            replicas=replicas,
            replication_factor=replication_factor,
            configs=configs,
        )
        self.wait_for_leaders(name)
        return name

    def wait_for_leaders(self, topic: str) -> None:
        """Waits until all brokers that run know a leader for every partition of a topic."""
        for broker in self.brokers:
            node = self.local.nodes[broker]
            if node.is_alive and node.name not in self._paused:
                self._wait_for_leaders(node.address, topic)

    def create(
        self,
        name: str,
        *,
        partitions: int = 1,
        replicas: tuple[int, ...] | None = None,
        replication_factor: int = 3,
        configs: dict[str, str] | None = None,
    ) -> None:
        """Creates a topic of a given name unless there is one; see `topic`."""
        assignments = () if replicas is None else (_assignment(0, replicas),)
        request = create_topics_request.CreateTopicsRequest(
            topics=(
                create_topics_request.CreatableTopic(
                    name=name,
                    num_partitions=partitions if replicas is None else -1,
                    replication_factor=replication_factor if replicas is None else -1,
                    assignments=assignments,
                    configs=tuple(
                        create_topics_request.CreatableTopicConfig(name=key, value=value)
                        for key, value in (configs or {}).items()
                    ),
                ),
            ),
            timeout=millis(10_000),
            validate_only=False,
        )
        response = self.ask_any(request)
        assert response.topics[0].error_code in (0, TOPIC_ALREADY_EXISTS), response

    def _wait_for_leaders(self, address: str, topic: str) -> None:
        eventually(
            lambda: (
                (found := self.describe(topic, address=address))
                and all(item.leader_id >= 0 for item in found)
            ),
            what=f"{address} knows the leaders of {topic}",
        )

    def describe(self, topic: str, *, address: str | None = None) -> Any:
        """Returns a topic's partitions as Metadata describes them, in order; none if it is not known."""
        request = metadata_request.MetadataRequest(
            topics=(metadata_request.MetadataRequestTopic(topic_id=None, name=topic),),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        response = self.ask_any(request) if address is None else ask(address, request)
        return sorted(response.topics[0].partitions, key=lambda item: item.partition_index)

    def broker_ids(self) -> list[int]:
        """Returns the brokers that clients see."""
        request = metadata_request.MetadataRequest(
            topics=(),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        return sorted(broker.node_id for broker in self.ask_any(request).brokers)

    def leader(self, topic: str, partition: int = 0) -> str:
        """Returns the name of a partition's leader, waiting for one if need be."""
        leader: int = eventually(
            lambda: (item := self.describe(topic)[partition]).leader_id > 0 and item.leader_id,
            what=f"{topic}-{partition} has a leader",
        )
        return f"b{leader}"

    def wait_for_isr(self, topic: str, size: int, partition: int = 0) -> None:
        """Waits until a partition has that many in-sync replicas."""
        eventually(
            lambda: len(self.describe(topic)[partition].isr_nodes) == size,
            what=f"{topic}-{partition} has {size} in-sync replicas",
        )


def _assignment(partition: int, replicas: tuple[int, ...]) -> Any:
    return create_topics_request.CreatableReplicaAssignment(
        partition_index=partition,
        broker_ids=replicas,
    )
