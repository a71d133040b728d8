"""The client: one connection, one request at a time, no retries."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from harness.contracts.client import ClientType, FetchedBatch, PollResult
from harness.contracts.host import ClientHost
from harness.history.op import Completion, Outcome

RECORDS_MAX = 500
NO_EPOCH = -1


class RequestLost(Exception):  # noqa: N818 - not an error of the client
    """The request was sent, and no response came."""


class NotSent(Exception):  # noqa: N818
    """The request was certainly not sent."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it was read."""

    offset: int
    key: bytes | None
    value: bytes | None


class TinyClient:
    """Implements `LogClient`. Mutable: its connection.

    Args:
        host: Where it lives; its name is not needed, the client has a socket of its own.
        bootstrap: The address of the server.
        request_timeout_ms: After which a request counts as lost.
        connect_timeout_ms: After which a connection attempt is given up.
    """

    def __init__(
        self,
        host: ClientHost,
        bootstrap: tuple[str, ...],
        *,
        request_timeout_ms: int,
        connect_timeout_ms: int,
    ) -> None:
        self._address = bootstrap[0].rpartition(":")
        self._request_timeout_s = request_timeout_ms / 1e3
        self._connect_timeout_s = connect_timeout_ms / 1e3
        self._connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def append(
        self, topic: str, partition: int, key: bytes, value: bytes, acks: int
    ) -> Completion:
        """Appends one record. A response that never came makes it `info`: the record may be there."""
        place = {"topic": topic, "partition": partition}
        try:
            response = await self._ask(
                {"do": "append", **place, "key": key.hex(), "value": value.hex()}
            )
        except NotSent:
            return _ended(Outcome.FAIL, "connect-failed")
        except RequestLost:
            return _ended(Outcome.INFO, "connection-lost")
        if "error" in response:
            return _ended(Outcome.FAIL, response["error"])
        return Completion(outcome=Outcome.OK, offset=response["offset"], node="b1")

    async def poll(
        self, topic: str, partition: int, position: int, *, max_bytes: int, max_wait_ms: int
    ) -> PollResult:
        """Reads once from a position."""
        place = {"topic": topic, "partition": partition, "position": position}
        response = await self._read({"do": "read", **place, "count": RECORDS_MAX})
        if "error" in response:
            return PollResult(completion=_ended(Outcome.FAIL, response["error"]))
        records = tuple(
            Record(offset, bytes.fromhex(key), bytes.fromhex(value))
            for offset, key, value in response["records"]
        )
        return PollResult(
            completion=Completion(outcome=Outcome.OK, end_offset=response["end"], node="b1"),
            batches=(FetchedBatch(leader_epoch=NO_EPOCH, records=records),) if records else (),
        )

    async def latest(self, topic: str, partition: int) -> Completion:
        """Returns the log end."""
        response = await self._read({"do": "end", "topic": topic, "partition": partition})
        if "error" in response:
            return _ended(Outcome.FAIL, response["error"])
        return Completion(outcome=Outcome.OK, offset=response["end"], node="b1")

    async def create(self, topic: str, partitions: int) -> None:
        """Creates a topic unless it exists.

        Raises:
            NotSent: The server cannot be reached.
            RequestLost: It did not respond.
        """
        await self._ask({"do": "create", "topic": topic, "partitions": partitions})

    def close(self) -> None:
        """Closes the connection."""
        if self._connection is not None:
            self._connection[1].close()
            self._connection = None

    async def _read(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return await self._ask(request)
        except (NotSent, RequestLost) as error:
            return {"error": "connect-failed" if isinstance(error, NotSent) else "connection-lost"}

    async def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        reader, writer = await self._connect()
        try:
            async with asyncio.timeout(self._request_timeout_s):
                writer.write(json.dumps(request).encode() + b"\n")
                await writer.drain()
                line = await reader.readline()
        except (OSError, TimeoutError):
            line = b""
        if not line.endswith(b"\n"):
            # A late response must not be taken for the response to the next request.
            self.close()
            raise RequestLost
        response: dict[str, Any] = json.loads(line)
        return response

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._connection is None:
            host, _, port = self._address
            try:
                async with asyncio.timeout(self._connect_timeout_s):
                    self._connection = await asyncio.open_connection(host, int(port), limit=1 << 24)
            except (OSError, TimeoutError):
                raise NotSent from None
        return self._connection


def _ended(outcome: Outcome, error: str) -> Completion:
    return Completion(outcome=outcome, error_code=None, error=error)


CLIENT = ClientType(name="tinylog", make=TinyClient)
