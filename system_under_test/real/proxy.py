"""The fault point of a program that has none: a proxy before its listener.

The proxy listens at the address that everyone uses for the node, and passes every frame on to the program, which
listens elsewhere on the same host. Between the two it applies the rules of `fault_point.py`. It reads no more than
the beginning of a frame, so it suits every version of a program that speaks Kafka's protocol. Its file is JSON:

    {"name": "b1", "listen": "198.18.0.11:9092", "program": "127.77.0.1:9092",
     "nodes": {"1": "b1", "11": "c11"}, "unseen": ["metadata-reader"],
     "fault_point": "fault-point.json", "events": "events.jsonl"}

`nodes` are the names of nodes by their ids in the cluster, which the client ids of nodes contain. Requests of the
client ids in `unseen` always pass, and are not reported. The other files are beside this one.

A message counts as sent when it arrives here: one that a network fault holds back was not sent. If one end of a
connection is closed, so is the other, and if one reads slowly, the other writes slowly.
"""

import asyncio
import contextlib
import json
import re
from collections import deque
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.frames import (
    RequestHead,
    has_response,
    refusal,
    request_head,
    sized,
)
from system_under_test.real.fault_point import FaultPoint
from system_under_test.real.observer import EventLog

FRAME_BYTES_MAX = 100 << 20
"""Kafka's `socket.request.max.bytes` is as large; responses stay below it."""
BUFFER_BYTES = 1 << 18
LISTEN_LIMIT_S = 10.0
"""For the address of a program that was killed, whose proxy ends a moment later."""
RETRY_S = 0.02
_NODE_ID = re.compile(r"(?:broker-|raft-client-|[A-Za-z]+Manager-client-)?(\d+)(?:-.*)?", re.ASCII)
"""Client ids of nodes: "broker-1-fetcher-0", "raft-client-11", "1", "AddPartitionsManager-client-1"."""

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
GO, LOSE = "go", "lose"


def serve(path: Path) -> None:
    """Serves until the process is killed."""
    data = json.loads(path.read_bytes())
    asyncio.run(_serve(data, path.parent))


async def _serve(data: Mapping[str, Any], directory: Path) -> None:
    name = data["name"]
    events = EventLog(directory / data["events"], name)
    faults = FaultPoint(directory / data["fault_point"], name, events.report, is_alone=True)
    proxy = Proxy(data, faults)
    await proxy.listen()
    faults.start()
    await asyncio.Event().wait()


class Proxy:
    """Accepts connections for a program. Mutable: its connections.

    Args:
        data: What it is told.
        faults: The fault point.
    """

    def __init__(self, data: Mapping[str, Any], faults: FaultPoint) -> None:
        self.name: str = data["name"]
        self.faults = faults
        self.program = _host_and_port(data["program"])
        self.unseen = frozenset(data["unseen"])
        self._address = _host_and_port(data["listen"])
        self._nodes: Mapping[str, str] = data["nodes"]
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self) -> None:
        """Begins to accept connections.

        Raises:
            OSError: The address is taken.
        """
        host, port = self._address
        loop = asyncio.get_running_loop()
        until_s = loop.time() + LISTEN_LIMIT_S
        while True:
            try:
                self._server = await asyncio.start_server(
                    self._accepted, host, port, limit=BUFFER_BYTES, reuse_address=True
                )
            except OSError:
                if loop.time() > until_s:
                    raise
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def close(self) -> None:
        """Accepts nothing any more, and ends its connections."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def sender(self, client_id: str) -> str:
        """Returns the name of a node, or the client id of anyone else."""
        match = _NODE_ID.fullmatch(client_id)
        node = self._nodes.get(match[1]) if match else None
        return client_id if node is None else node

    def background(self, work: Coroutine[Any, Any, None]) -> None:
        """Lets something go on until the proxy is closed."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            program = await asyncio.open_connection(*self.program, limit=BUFFER_BYTES)
        except OSError:
            writer.transport.abort()  # as if nobody listened
            return
        self.background(Connection(self, (reader, writer), program).run())


class Connection:
    """A connection of a client and one to the program. Mutable: the requests without response."""

    def __init__(self, proxy: Proxy, client: Stream, program: Stream) -> None:
        self.proxy = proxy
        self.is_open = True
        self._client_reader, self._client = client
        self._program_reader, self._program = program
        # Responses come in the order of requests.
        self._unanswered: deque[RequestHead] = deque()
        self._answered = asyncio.Event()

    async def run(self) -> None:
        """Passes frames on until one end is closed."""
        pumps = [asyncio.ensure_future(self._requests()), asyncio.ensure_future(self._responses())]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.is_open = False
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            writers = (self._client, self._program)
            for writer in writers:
                writer.close()
            await asyncio.gather(*(one.wait_closed() for one in writers), return_exceptions=True)

    def abort(self) -> None:
        """Breaks both connections at once."""
        self.is_open = False
        self._client.transport.abort()
        self._program.transport.abort()

    async def _requests(self) -> None:
        while (frame := await _read_frame(self._client_reader)) is not None:
            try:
                head = request_head(frame)
            except ValueError:
                head = None  # the program answers it as it likes
            if head is not None and head.client_id not in self.proxy.unseen:
                passage = Request(self, head, frame)
                outcome: Any = GO
                if self.proxy.faults.takes(passage):
                    outcome = await passage.outcome
                if outcome == LOSE:
                    self.abort()
                    return
                if outcome != GO:
                    await self._respond(head, outcome)
                    continue
            if head is not None and has_response(head, frame):
                self._unanswered.append(head)
            self._program.write(sized(frame))
            await self._program.drain()

    async def _responses(self) -> None:
        while (frame := await _read_frame(self._program_reader)) is not None:
            head = self._unanswered[0] if self._unanswered else None
            is_seen = head is not None and head.client_id not in self.proxy.unseen
            if head is not None and is_seen and not await self._leaves(head):
                return
            self._client.write(sized(frame))
            await self._client.drain()
            if head is not None:
                self._unanswered.popleft()
                self._answered.set()

    async def _respond(self, head: RequestHead, frame: bytes) -> None:
        """Sends the response to a request that the program never sees, in its turn."""
        while self._unanswered:
            self._answered.clear()
            await self._answered.wait()
        if await self._leaves(head):
            self._client.write(sized(frame))
            await self._client.drain()

    async def _leaves(self, head: RequestHead) -> bool:
        """Applies the rules to a response; returns whether it may leave, when it may."""
        passage = Passage(self, head, is_request=False)
        outcome = await passage.outcome if self.proxy.faults.takes(passage) else GO
        if outcome == LOSE:
            self.abort()
        return outcome == GO


class Passage:
    """A response, or the common part of a request. Implements `fault_point.Passage`. Mutable: its outcome."""

    def __init__(self, connection: Connection, head: RequestHead, *, is_request: bool) -> None:
        sender = connection.proxy.sender(head.client_id)
        here = connection.proxy.name
        self.source, self.target = (sender, here) if is_request else (here, sender)
        self.is_request = is_request
        self.name = f"{head.api}{'Request' if is_request else 'Response'}"
        self.head = head
        self.connection = connection
        self.outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    @property
    def is_open(self) -> bool:
        """Whether its connection still exists."""
        return self.connection.is_open

    def wait(self) -> None:
        """Does nothing: the connection waits for the outcome."""

    def go(self) -> None:
        """Lets it go on after it has waited."""
        self._end(GO)

    def lose(self) -> None:
        """Breaks the connection."""
        self._end(LOSE)

    def copy(self) -> None:
        """Does nothing: only requests are processed."""

    def refusal(self, error: str) -> Any:
        """Returns None: only requests are refused."""

    def answer(self, response: Any) -> None:
        """Does nothing: only requests are answered."""

    def _end(self, outcome: Any) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)


class Request(Passage):
    """A request that has arrived."""

    def __init__(self, connection: Connection, head: RequestHead, frame: bytes) -> None:
        super().__init__(connection, head, is_request=True)
        self._frame = frame

    def copy(self) -> None:
        """Has the program process it over another connection, whose response nobody reads."""
        proxy = self.connection.proxy
        proxy.background(_send_copy(proxy.program, self._frame))

    def refusal(self, error: str) -> Any:
        """Returns the frame that refuses all of it; None if there is none."""
        return refusal(self.head, int(ErrorCode[error]))

    def answer(self, response: Any) -> None:
        """Responds to it with a frame; the program never sees it."""
        self._end(response)


async def _send_copy(program: tuple[str, int], frame: bytes) -> None:
    with contextlib.suppress(OSError):
        reader, writer = await asyncio.open_connection(*program, limit=BUFFER_BYTES)
        try:
            writer.write(sized(frame))
            await writer.drain()
            await _read_frame(reader)
        finally:
            writer.close()


async def _read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """Returns the next frame without its size; None if the connection ends, or its bytes are no frames."""
    try:
        size = int.from_bytes(await reader.readexactly(4), signed=True)
        if not 0 <= size <= FRAME_BYTES_MAX:
            return None
        return await reader.readexactly(size)
    except (asyncio.IncompleteReadError, OSError):
        return None


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)
