"""The proxy before a program's listener: what passes, and what its fault point does to it."""

import asyncio
import contextlib
import datetime
import io
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32, i32Timedelta

from system_under_test.protocol.frames import (
    API_NAMES,
    RequestHead,
    has_response,
    refusable_apis,
    refusal,
    request_head,
    sized,
)
from system_under_test.real.fault_point import FaultPoint
from system_under_test.real.proxy import Proxy

HOST = "127.0.0.1"
PRODUCE, FETCH, HEARTBEAT = 0, 1, 63
NOT_CONTROLLER = 41
OF_B2 = "broker-2-fetcher-0"


ACKS_0 = b"\0\0"
"""The beginning of a request to produce of a version without transactions."""


def request(key: int, number: int, client_id: str = OF_B2, body: bytes = b"", v: int = 1) -> bytes:
    return struct.pack(">hhih", key, v, number, len(client_id)) + client_id.encode() + body


def correlation_id_of(frame: bytes) -> int:
    return int.from_bytes(frame[:4])


class Program:
    """Answers every request but those to produce with acks=0 with its own body.

    It is slow with a body that begins with "slow", until `go` is set.
    """

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.connections: list[asyncio.StreamWriter] = []
        self.closed = 0
        self.go = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        # Bytes that are no request end the connection.
        with contextlib.suppress(asyncio.IncompleteReadError, OSError, ValueError):
            while True:
                size = int.from_bytes(await reader.readexactly(4))
                frame = await reader.readexactly(size)
                self.got.append(frame)
                head = request_head(frame)
                body = frame[10 + len(head.client_id) :]
                if body.startswith(b"slow"):
                    await self.go.wait()
                if (head.key, body) != (PRODUCE, ACKS_0):
                    writer.write(sized(struct.pack(">i", head.correlation_id) + body))
                    await writer.drain()
        await end(writer)
        self.closed += 1


async def end(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


class Client:
    """A connection to the proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(map(sized, frames)))

    async def get(self) -> bytes:
        async with asyncio.timeout(30):
            size = int.from_bytes(await self.reader.readexactly(4))
            return await self.reader.readexactly(size)

    async def ends(self) -> bool:
        """Whether the connection ends without another byte."""
        async with asyncio.timeout(30):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True

    async def is_silent(self) -> bool:
        """Whether nothing comes for a moment."""
        try:
            async with asyncio.timeout(0.05):
                await self.reader.read(1)
        except TimeoutError:
            return True
        return False


class Bench:
    """A program, the proxy of b1 before it, and what its fault point reported."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "fault-point.json"
        self.program = Program()
        self.reports: list[tuple[str, dict[str, Any]]] = []
        self.version = 0
        self.clients: list[Client] = []

    async def open(self) -> None:
        server = await asyncio.start_server(self.program.serve, HOST, 0)
        self.server = server
        self.listen = f"{HOST}:{free_port()}"
        data = {
            "name": "b1",
            "listen": self.listen,
            "program": "{}:{}".format(*server.sockets[0].getsockname()),
            "nodes": {"1": "b1", "2": "b2", "11": "c11"},
            "unseen": ["observer"],
        }
        self.faults = FaultPoint(
            self.path,
            "b1",
            lambda event, **fields: self.reports.append((event, fields)),
            is_alone=True,
        )
        self.proxy = Proxy(data, self.faults)
        await self.proxy.listen()

    async def close(self) -> None:
        for client in self.clients:
            await end(client.writer)
        await self.proxy.close()
        self.server.close()
        await until(lambda: self.program.closed == len(self.program.connections))

    async def client(self) -> Client:
        host, _, port = self.listen.rpartition(":")
        self.clients.append(Client(*await asyncio.open_connection(host, int(port))))
        return self.clients[-1]

    async def write(self, *rules: Mapping[str, Any], watches: Any = ()) -> None:
        """Replaces the file, and returns when it was read."""
        self.version += 1
        nodes = {"b1": self.listen, "b2": "x:1", "c11": "x:2"}
        content = {"version": self.version, "nodes": nodes, "watches": watches, "rules": rules}
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(content))
        os.replace(new, self.path)
        if self.version == 1:
            self.faults.start()
        await until(lambda: ("fault-point", {"version": self.version}) in self.reports)

    @property
    def got(self) -> list[int]:
        """The numbers of the requests that the program got."""
        return [request_head(frame).correlation_id for frame in self.program.got]


def rule(kind: str, message: str = "FetchRequest", **values: Any) -> dict[str, Any]:
    pairs = [["b1", "b2"]] if message.endswith("Response") else [["b2", "b1"]]
    base = {"id": "f", "kind": kind, "message": message, "pairs": pairs}
    return {**base, "count": None, "delay_ms": 0, "error": "", **values}


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.001)


Story = Callable[[Bench], Coroutine[Any, Any, None]]


def play(directory: Path, story: Story) -> None:
    async def run() -> None:
        bench = Bench(directory)
        await bench.open()
        try:
            await story(bench)
        finally:
            await bench.close()

    asyncio.run(run())


def free_port() -> int:
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])


def test_everything_passes_without_rules(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        one, other = await bench.client(), await bench.client()
        large = os.urandom(3 << 20)
        one.send(request(FETCH, 1, body=large), request(FETCH, 2, body=b"b"))
        other.send(request(FETCH, 1, body=b"c"), request(99, 7, "", body=b"unknown"))
        assert (await one.get())[4:] == large
        assert (await one.get())[4:] == b"b"
        assert [(await other.get())[4:] for _ in range(2)] == [b"c", b"unknown"]
        # The program decides what to do with bytes that are no request.
        other.send(b"x")
        assert await other.ends()
        assert b"x" in bench.program.got

    play(tmp_path, story)


def test_a_connection_ends_at_both_ends(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        one, other = await bench.client(), await bench.client()
        for client in (one, other):
            client.send(request(FETCH, 1))
            await client.get()
        first, second = bench.program.connections
        first.close()
        assert await one.ends()
        other.writer.close()
        await until(second.is_closing)
        # Nobody listens behind the proxy.
        bench.server.close()
        await bench.server.wait_closed()
        assert await (await bench.client()).ends()

    play(tmp_path, story)


@pytest.mark.parametrize("message", ["FetchRequest", "FetchResponse"])
def test_a_held_message_waits_with_everything_behind_it(message: str, tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.write(rule("hold", message, count=1))
        client, other = await bench.client(), await bench.client()
        client.send(request(FETCH, 1), request(FETCH, 2), request(HEARTBEAT, 3))
        await until(lambda: ("fault-acted", {"rule": "f", "count": 1}) in bench.reports)
        other.send(request(FETCH, 9, body=b"other"))
        assert (await other.get())[4:] == b"other"
        assert await client.is_silent()
        assert (1 in bench.got) == (message == "FetchResponse")
        await bench.write()
        numbers = [correlation_id_of(await client.get()) for _ in range(3)]
        assert numbers == [1, 2, 3]

    play(tmp_path, story)


@pytest.mark.parametrize("message", ["FetchRequest", "FetchResponse"])
def test_a_dropped_message_breaks_its_connection(message: str, tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.write(rule("drop", message, count=1))
        client = await bench.client()
        client.send(request(HEARTBEAT, 1))
        assert correlation_id_of(await client.get()) == 1
        client.send(request(FETCH, 2))
        assert await client.ends()
        assert bench.got == ([1] if message == "FetchRequest" else [1, 2])
        again = await bench.client()
        again.send(request(FETCH, 3))
        assert correlation_id_of(await again.get()) == 3

    play(tmp_path, story)


def test_a_message_without_a_response_does_not_shift_the_others(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.write(rule("drop", "FetchResponse"))
        client = await bench.client()
        # With acks=0 there is no response; the next response belongs to the next request.
        client.send(request(PRODUCE, 1, body=ACKS_0), request(PRODUCE, 2, body=b"two"))
        assert (await client.get())[4:] == b"two"
        client.send(request(PRODUCE, 3, body=ACKS_0), request(FETCH, 4))
        assert await client.ends()
        assert bench.got == [1, 2, 3, 4]

    play(tmp_path, story)


def test_a_duplicate_is_processed_twice_and_answered_once(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.write(rule("duplicate", delay_ms=5))
        client = await bench.client()
        client.send(request(FETCH, 1), request(HEARTBEAT, 2))
        assert [correlation_id_of(await client.get()) for _ in range(2)] == [1, 2]
        await until(lambda: sorted(bench.got) == [1, 1, 2])
        assert await client.is_silent()

    play(tmp_path, story)


def test_a_refused_request_never_reaches_the_program(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        heartbeat = rule("refuse", "BrokerHeartbeatRequest", error="NOT_CONTROLLER")
        produce = {**heartbeat, "id": "g", "message": "ProduceRequest"}
        await bench.write(heartbeat, produce)
        client = await bench.client()
        client.send(request(FETCH, 1, body=b"slow"), request(HEARTBEAT, 2), request(PRODUCE, 3))
        await until(lambda: ("fault-acted", {"rule": "f", "count": 1}) in bench.reports)
        assert await client.is_silent()  # its turn comes after that of the first one
        bench.program.go.set()
        assert correlation_id_of(await client.get()) == 1
        read = await client.get()
        assert correlation_id_of(read) == 2
        assert parsed(HEARTBEAT, 1, read).error_code == NOT_CONTROLLER
        # Its response has no error of the whole.
        assert correlation_id_of(await client.get()) == 3
        assert bench.got == [1, 3]

    play(tmp_path, story)


def test_a_message_is_overtaken_by_one_of_another_connection(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.write(rule("reorder", delay_ms=60_000, count=1))
        one, other = await bench.client(), await bench.client()
        one.send(request(FETCH, 1))
        await until(lambda: bench.faults._rules["f"].waiting)
        other.send(request(FETCH, 2))
        await asyncio.gather(one.get(), other.get())
        assert bench.got == [2, 1]

    play(tmp_path, story)


def test_messages_are_reported_with_the_names_of_their_nodes(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        requests = [[event, "FetchRequest"] for event in ("sent", "received")]
        await bench.write(rule("hold"), watches=[*requests, ["received", "FetchResponse"]])
        client = await bench.client()
        client.send(request(FETCH, 1, "raft-client-11"), request(FETCH, 2, "observer"))
        await client.get()
        await client.get()
        ends = {"source": "c11", "target": "b1"}
        back = {"source": "b1", "target": "c11"}
        assert [fields for event, fields in bench.reports if event == "message"] == [
            {"what": "sent", "name": "FetchRequest", **ends},
            {"what": "received", "name": "FetchRequest", **ends},
            {"what": "received", "name": "FetchResponse", **back},
        ]

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("client_id", "name"),
    [
        ("2", "b2"),
        ("broker-2-fetcher-0", "b2"),
        ("broker-2-txn-marker-sender", "b2"),
        ("AddPartitionsManager-client-2", "b2"),
        ("raft-client-11", "c11"),
        ("3", "3"),
        ("producer-2", "producer-2"),
        ("client-2", "client-2"),
        ("consumer-group-2", "consumer-group-2"),
        ("", ""),
    ],
)
def test_nodes_are_known_by_their_client_ids(client_id: str, name: str, tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        assert bench.proxy.sender(client_id) == name

    play(tmp_path, story)


def parsed(key: int, version: int, frame: bytes) -> Any:
    """Returns a response; its frame must have nothing behind it."""
    schema: Any = load_response_schema(key, version)
    _, start = entity_reader(schema.__header_schema__)(frame, 0)
    response, size = entity_reader(schema)(frame, start)
    assert start + size == len(frame)
    return response


def _responses() -> Iterator[tuple[int, int]]:
    for key, name in api_key_map.items():
        for version, kinds in schema_name_map[name].items():
            if EntityType.response in kinds:
                yield key, version


def test_every_refusal_is_a_response_of_the_version_of_its_request() -> None:
    refused = set()
    for key, version in _responses():
        frame = refusal(RequestHead(key, version, 7, "x"), NOT_CONTROLLER)
        if frame is not None:
            assert correlation_id_of(frame) == 7
            assert parsed(key, version, frame).error_code == NOT_CONTROLLER
            refused.add(API_NAMES[key])
    assert (
        refused >= set(refusable_apis()) >= {"AlterPartition", "BrokerHeartbeat", "Fetch", "Vote"}
    )
    assert refusal(RequestHead(FETCH, 999, 7, "x"), NOT_CONTROLLER) is None
    assert refusal(RequestHead(999, 0, 7, "x"), NOT_CONTROLLER) is None


@pytest.mark.parametrize("frame", [b"", b"\0" * 9, b"\0" * 9 + b"\5", b"\0" * 8 + b"\xff\x00"])
def test_bytes_that_are_no_request_are_refused(frame: bytes) -> None:
    with pytest.raises(ValueError, match="request"):
        request_head(frame)


@pytest.mark.parametrize("transactional_id", [None, "", "app"])
@pytest.mark.parametrize("client_id", [None, "", "caf\u00e9"])
@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_a_request_to_produce_with_acks_0_has_no_response(
    acks: int, client_id: str | None, transactional_id: str | None
) -> None:
    for version, kinds in schema_name_map["produce"].items():
        if EntityType.request not in kinds:
            continue
        schema: Any = load_request_schema(PRODUCE, version)
        header: Any = schema.__header_schema__
        frame = io.BytesIO()
        head = header(
            request_api_key=i16(PRODUCE),
            request_api_version=i16(version),
            correlation_id=i32(1),
            client_id=client_id,
        )
        entity_writer(header)(frame, head)
        message = schema(
            transactional_id=transactional_id,
            acks=i16(acks),
            timeout=i32Timedelta(datetime.timedelta(seconds=1)),
            topic_data=(),
        )
        entity_writer(schema)(frame, message)
        data = frame.getvalue()
        assert has_response(request_head(data), data) == (acks != 0), version
    assert has_response(request_head(request(PRODUCE, 1)), request(PRODUCE, 1))


def test_a_request_without_a_client_id_has_an_empty_one() -> None:
    assert request_head(b"\0\1\0\2\0\0\0\3\xff\xff") == (1, 2, 3, "")
    assert request_head(b"\0\1\0\2\0\0\0\3\xff\xff").api == "Fetch"
    assert request_head(b"\3\xe7\0\2\0\0\0\3\xff\xff").api == "Api999"


def test_the_program_has_the_pid_and_the_proxy_ends_with_it(tmp_path: Path) -> None:
    port = free_port()
    data = {
        "name": "b1",
        "listen": f"{HOST}:{port}",
        "program": f"{HOST}:{free_port()}",
        "nodes": {},
        "unseen": [],
        "fault_point": "fault-point.json",
        "events": "events.jsonl",
    }
    (tmp_path / "proxy.json").write_text(json.dumps(data))
    (tmp_path / "fault-point.json").write_text(
        json.dumps({"version": 4, "nodes": {}, "watches": [], "rules": []})
    )
    command = [sys.executable, "-m", "system_under_test.real.beside", str(tmp_path / "proxy.json")]
    with subprocess.Popen([*command, "sleep", "600"], stdin=subprocess.PIPE) as process:
        try:
            wait_for(lambda: (tmp_path / "events.jsonl").exists() and listens(port))
            wait_for(lambda: b"sleep" in Path(f"/proc/{process.pid}/cmdline").read_bytes())
            wait_for(lambda: (tmp_path / "events.jsonl").read_text() != "")
            os.kill(process.pid, signal.SIGSTOP)
            assert listens(port)
        finally:
            process.kill()
    wait_for(lambda: not listens(port))
    event = json.loads((tmp_path / "events.jsonl").read_text())
    assert (event["node"], event["event"], event["version"]) == ("b1", "fault-point", 4)


def test_a_program_whose_proxy_cannot_listen_ends_and_says_why(tmp_path: Path) -> None:
    data = {
        "name": "b1",
        "listen": "203.0.113.1:9",  # an address for documents, which no host has
        "program": f"{HOST}:9",
        "nodes": {},
        "unseen": [],
        "fault_point": "fault-point.json",
        "events": "events.jsonl",
    }
    (tmp_path / "proxy.json").write_text(json.dumps(data))
    program = "from system_under_test.real import beside, proxy; proxy.LISTEN_LIMIT_S = 0.1; "
    words = [str(tmp_path / "proxy.json"), "sleep", "600"]
    ended = subprocess.run(
        [sys.executable, "-c", f"{program}beside.main({words!r})"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL
    assert ended.stderr.startswith("laststand: the proxy before this node has ended: ")
    assert "203.0.113.1" in ended.stderr


def listens(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=5).close()
    except OSError:
        return False
    return True


def wait_for(condition: Callable[[], Any], limit_s: float = 60.0) -> None:
    deadline_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
