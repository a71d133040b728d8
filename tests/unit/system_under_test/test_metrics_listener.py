"""Names and text of metrics, and the listener that serves them."""

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from system_under_test.real.metrics_listener import CONNECTIONS_MAX, MetricsListener
from system_under_test.runtime.metrics import Sample, exposition, gauge, meter


def test_names_are_those_of_the_exporter_with_the_usual_rules() -> None:
    assert gauge("kafka.server", "ReplicaManager", "UnderReplicatedPartitions", 1).name == (
        "kafka_server_replicamanager_underreplicatedpartitions"
    )
    assert meter("kafka.server", "ReplicaManager", "IsrShrinksPerSec", 2).name == (
        "kafka_server_replicamanager_isrshrinks_total"
    )
    assert gauge("kafka.server", "raft-metrics", "current-leader", 3).name == (
        "kafka_server_raft_metrics_current_leader"
    )


def test_the_text_groups_samples_by_name_and_escapes_labels() -> None:
    samples = [
        meter("z", "T", "LaterPerSec", 1 << 60),
        gauge("a", "T", "G", 0.5, (("topic", 'q"\\\n'), ("partition", "0"))),
        Sample("z_t_later_total", "counter", 3, (("x", "y"),)),
    ]
    assert exposition(samples) == (
        "# TYPE a_t_g gauge\n"
        'a_t_g{topic="q\\"\\\\\\n",partition="0"} 0.5\n'
        "# TYPE z_t_later_total counter\n"
        "z_t_later_total 1152921504606846976\n"
        'z_t_later_total{x="y"} 3\n'
    )
    assert exposition([]) == ""


async def asked(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await asyncio.wait_for(reader.read(), 30)
    except ConnectionError:
        return b""  # closed before all of the request was read
    finally:
        await ended(writer)


async def ended(writer: asyncio.StreamWriter) -> None:
    """Closes a connection; returns when its socket is closed."""
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def closed(listener: MetricsListener) -> None:
    """Closes a listener; returns when all its sockets are closed."""
    listener.close()
    while len(asyncio.all_tasks()) > 1:
        await asyncio.sleep(0.01)
    for _ in range(3):
        await asyncio.sleep(0)  # a transport closes its socket a step after it was told to


def port_of(listener: MetricsListener) -> int:
    assert listener._server is not None
    return int(listener._server.sockets[0].getsockname()[1])


@pytest.mark.parametrize(
    ("request_line", "status", "content"),
    [
        (b"GET /metrics HTTP/1.1", b"200 OK", b"# TYPE m gauge\nm 7\n"),
        (b"GET /metrics?name=x HTTP/1.0", b"200 OK", b"m 7\n"),
        (b"GET / HTTP/1.1", b"404 Not Found", b"/metrics"),
        (b"POST /metrics HTTP/1.1", b"405 Method Not Allowed", b"GET"),
        (b"\xff\x00", b"404 Not Found", b"/metrics"),
    ],
)
def test_the_listener_serves_one_path(request_line: bytes, status: bytes, content: bytes) -> None:
    async def run() -> bytes:
        listener = MetricsListener("127.0.0.1:0", lambda: [Sample("m", "gauge", 7)])
        await listener.start()
        try:
            return await asked(port_of(listener), request_line + b"\r\nHost: x\r\n\r\n")
        finally:
            await closed(listener)

    response = asyncio.run(run())
    head, _, body = response.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 " + status + b"\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    assert content in body


def test_requests_that_never_end_or_are_too_long_get_no_response_and_block_nobody() -> None:
    def samples() -> Iterator[Sample]:
        yield Sample("m", "gauge", 1)

    async def run() -> tuple[bytes, bytes, bytes]:
        listener = MetricsListener("127.0.0.1:0", samples)
        await listener.start()
        port = port_of(listener)
        try:
            too_long = await asked(port, b"GET /metrics " + b"x" * 100_000)
            open_ones = [
                await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_MAX)
            ]
            while len(listener._open) < CONNECTIONS_MAX:
                await asyncio.sleep(0.01)
            refused = await asked(port, b"GET /metrics HTTP/1.1\r\n\r\n")
            for _, writer in open_ones:
                await ended(writer)
            while listener._open:
                await asyncio.sleep(0.01)
            return too_long, refused, await asked(port, b"GET /metrics HTTP/1.1\r\n\r\n")
        finally:
            await closed(listener)

    too_long, refused, served = asyncio.run(run())
    assert too_long == refused == b""
    assert served.endswith(b"m 1\n")
