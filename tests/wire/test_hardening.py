"""Misbehaving clients: a node must keep serving others, and use little memory."""

import contextlib
import os
import resource
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from wire_helpers import eventually

from harness.environments.local.standing import LocalCluster, local_settings
from harness.systems.reference.status import broker_count
from harness.systems.reference.wire_client import ask
from system_under_test.protocol.messages import (
    create_topics_request,
    fetch_by_name_request,
    metadata_request,
    millis,
    produce_request,
)
from system_under_test.protocol.record_batch import encode_batch
from system_under_test.protocol.wire import ClientCodec

pytestmark = [pytest.mark.wire, pytest.mark.xdist_group("hardening")]

LIMITS = {
    "max_request_bytes": 20_000_000,
    "queued_max_bytes": 30_000_000,
    "partial_timeout_ms": 1_500,
    "write_stall_timeout_ms": 2_000,
    "max_connections": 12_000,
    "max_connections_per_ip": 12_000,
}
TOPIC = "t"
IDLE_CONNECTIONS = 10_000


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One broker and one controller with tight limits."""
    directory: Path = tmp_path_factory.mktemp("victim") / "nodes"
    with LocalCluster.create(
        directory,
        brokers=1,
        controllers=1,
        settings=local_settings(timings="fast", limits=LIMITS, with_events=True),
    ) as cluster:
        cluster.start()
        cluster.wait_ready(60)
        request = create_topics_request.CreateTopicsRequest(
            topics=(
                create_topics_request.CreatableTopic(
                    name=TOPIC, num_partitions=1, replication_factor=1, assignments=(), configs=()
                ),
            ),
            timeout=millis(5000),
            validate_only=False,
        )
        assert ask(broker(cluster), request, timeout_s=10).topics[0].error_code == 0
        eventually(lambda: produce(cluster, b"first") == 0)
        yield cluster
        assert not list(cluster.dead_nodes())


def broker(cluster: LocalCluster) -> str:
    return cluster.nodes["b1"].address


def connect(address: str, *, source: str = "127.0.0.1") -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=5, source_address=(source, 0))


def resident_kb(cluster: LocalCluster) -> int:
    text = Path(f"/proc/{cluster.nodes['b1'].pid}/status").read_text(encoding="ascii")
    return int(text.split("VmRSS:")[1].split()[0])


def produce(cluster: LocalCluster, value: bytes, *, records: bytes | None = None) -> int:
    request = produce_request.ProduceRequest(
        acks=-1,
        timeout=millis(2000),
        topic_data=(
            produce_request.TopicProduceData(
                name=TOPIC,
                partition_data=(
                    produce_request.PartitionProduceData(
                        index=0, records=records or encode_batch([(None, value)], timestamp_ms=1)
                    ),
                ),
            ),
        ),
    )
    response = ask(broker(cluster), request, timeout_s=10)
    return int(response.responses[0].partition_responses[0].error_code)


def is_closed(connection: socket.socket, within_s: float) -> bool:
    """Whether the other side closes the connection in time; what it sends before does not matter."""
    connection.settimeout(within_s)
    with contextlib.suppress(ConnectionError):
        try:
            while connection.recv(65536):
                pass
        except TimeoutError:
            return False
    return True


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, LIMITS["max_request_bytes"] + 1])
def test_a_frame_of_an_impossible_size_closes_its_connection(
    victim: LocalCluster, size: int
) -> None:
    with connect(broker(victim)) as connection:
        connection.sendall(struct.pack(">i", size) + b"x" * 100)
        assert is_closed(connection, 10)
    assert produce(victim, b"after") == 0


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0",
        b"\xff" * 40,
        struct.pack(">hhih", 999, 0, 1, -1),  # no such API
        struct.pack(">hhih", 0, 99, 1, -1),  # no such version
        struct.pack(">hhih", 3, 12, 1, -1) + b"\0\xff\xff\xff\xff\x0f",  # 2^32 - 2 topics
        struct.pack(">hhih", 3, 1, 1, -1) + b"\x7f\xff\xff\xff",  # 2^31 - 1 topics
    ],
)
def test_a_frame_that_is_not_a_request_closes_only_its_connection(
    victim: LocalCluster, frame: bytes
) -> None:
    before_kb = resident_kb(victim)
    with connect(broker(victim)) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        assert is_closed(connection, 10)
    assert broker_count(broker(victim)) == 1
    assert resident_kb(victim) < before_kb + 20_000


def test_an_incomplete_frame_times_out_and_other_connections_are_served_meanwhile(
    victim: LocalCluster,
) -> None:
    with contextlib.ExitStack() as stack:
        half_open = [stack.enter_context(connect(broker(victim))) for _ in range(50)]
        for connection in half_open:
            connection.sendall(struct.pack(">i", 1000) + b"half")
        began = time.monotonic()
        assert produce(victim, b"meanwhile") == 0
        assert all(is_closed(connection, 20) for connection in half_open)
        assert time.monotonic() - began < 20


def test_a_slow_writer_is_served(victim: LocalCluster) -> None:
    request = metadata_request.MetadataRequest(
        topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    frame = ClientCodec().encode_request(request, 5, "slow")
    with connect(broker(victim)) as connection:
        for index in range(len(frame)):
            connection.sendall(frame[index : index + 1])
            time.sleep(0.01)
        connection.settimeout(5)
        assert len(connection.recv(4)) == 4


def test_pipelined_requests_get_responses_in_order(victim: LocalCluster) -> None:
    request = metadata_request.MetadataRequest(
        topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    count = 500
    codec = ClientCodec()
    with connect(broker(victim)) as connection:
        connection.sendall(b"".join(codec.encode_request(request, i, "p") for i in range(count)))
        with connection.makefile("rb") as file:
            for index in range(count):
                frame = file.read(int.from_bytes(file.read(4), "big"))
                assert struct.unpack_from(">i", frame)[0] == index


def test_large_incomplete_frames_do_not_fill_the_memory(
    victim: LocalCluster,
) -> None:
    """200 connections announce 15 MB each and send 1 MB: 200 MB in flight, of which 30 MB may be kept."""
    before_kb = resident_kb(victim)
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connect(broker(victim))) for _ in range(200)]
        for connection in connections:
            connection.settimeout(0.05)
            with contextlib.suppress(TimeoutError, ConnectionError):
                connection.sendall(struct.pack(">i", 15_000_000) + b"x" * 1_000_000)
        grown_kb = resident_kb(victim) - before_kb
        assert produce(victim, b"meanwhile") == 0
        print(f"{grown_kb} kB for 200 MB of begun frames")
        assert grown_kb < 200_000
        assert all(is_closed(connection, 20) for connection in connections)
    assert produce(victim, b"after") == 0


def test_a_client_that_never_reads_is_disconnected_and_does_not_fill_the_memory(
    victim: LocalCluster,
) -> None:
    batch = encode_batch([(None, os.urandom(100_000))] * 8, timestamp_ms=1)
    for _ in range(12):
        assert produce(victim, b"", records=batch) == 0
    request = fetch_by_name_request.FetchRequest(
        max_wait=millis(0),
        min_bytes=1,
        max_bytes=10_000_000,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=(
            fetch_by_name_request.FetchTopic(
                topic=TOPIC,
                partitions=(
                    fetch_by_name_request.FetchPartition(
                        partition=0, fetch_offset=0, partition_max_bytes=10_000_000
                    ),
                ),
            ),
        ),
        forgotten_topics_data=(),
        rack_id="",
    )
    codec = ClientCodec()
    before_kb = resident_kb(victim)
    with contextlib.ExitStack() as stack:
        readers = []
        for _ in range(10):
            connection = stack.enter_context(connect(broker(victim)))
            connection.sendall(b"".join(codec.encode_request(request, i, "r") for i in range(50)))
            readers.append(connection)
        time.sleep(0.5)
        assert produce(victim, b"meanwhile") == 0
        # One response each may wait (10 MB), of 50 that were requested.
        assert resident_kb(victim) - before_kb < 250_000
        time.sleep(3.5)
        for connection in readers:
            with contextlib.suppress(ConnectionError):
                assert is_closed(connection, 20)
    eventually(lambda: resident_kb(victim) - before_kb < 150_000)


@pytest.mark.long
def test_ten_thousand_idle_connections_cost_little_and_do_not_slow_others(
    victim: LocalCluster,
) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < IDLE_CONNECTIONS + 500:
        pytest.skip(f"this machine allows {hard} open files, and {IDLE_CONNECTIONS} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    before_kb = resident_kb(victim)
    with contextlib.ExitStack() as stack:
        for index in range(IDLE_CONNECTIONS):
            stack.enter_context(connect(broker(victim), source=f"127.0.1.{index % 200 + 1}"))
        began = time.monotonic()
        for _ in range(20):
            assert produce(victim, b"meanwhile") == 0
        assert time.monotonic() - began < 10
        per_connection_kb = (resident_kb(victim) - before_kb) / IDLE_CONNECTIONS
        print(f"{per_connection_kb:.1f} kB per idle connection")
        assert per_connection_kb < 15
    eventually(lambda: broker_count(broker(victim)) == 1)


def test_connections_beyond_the_limit_are_closed_at_once(tmp_path: Path) -> None:
    limits = {"max_connections": 30, "max_connections_per_ip": 10}
    with LocalCluster.create(
        tmp_path / "nodes",
        brokers=1,
        controllers=1,
        settings=local_settings(timings="fast", limits=limits),
    ) as cluster:
        cluster.start()
        cluster.wait_ready(60)
        address = broker(cluster)
        with contextlib.ExitStack() as stack:
            crowd = [stack.enter_context(connect(address, source="127.0.0.77")) for _ in range(14)]

            def closed() -> int:
                return sum(is_closed(connection, 0.1) for connection in crowd)

            eventually(lambda: closed() >= 4)
            assert closed() == 4
            assert broker_count(address) == 1  # from another address
        eventually(lambda: broker_count(address) == 1)


def test_a_batch_with_a_wrong_checksum_is_refused(victim: LocalCluster) -> None:
    batch = bytearray(encode_batch([(None, b"value")], timestamp_ms=1))
    batch[-3] ^= 1
    assert produce(victim, b"", records=bytes(batch)) == 2  # CORRUPT_MESSAGE
    assert produce(victim, b"after") == 0
