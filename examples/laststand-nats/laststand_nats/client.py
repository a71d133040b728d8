"""The client on nats-py: one connection at a time, one request per append, no retries.

**append** publishes with an acknowledgement. Every message has an id of its own (`Nats-Msg-Id`), so a server that
wrote one twice would break its promise. `fail` is only what was certainly not stored: no connection, or no server
that takes the subject. Every other error, and silence, is `info`.

**poll** and **latest** ask the leader of the stream for its newest sequence (`STREAM.INFO`) and then for messages
by sequence (`STREAM.MSG.GET`). A sequence without a message is asked again together with everything after it:
one answer then proves that the leader has a later message and not this one.

nats-py does not reconnect here: a client without a connection connects to the next server before its next request.
"""

import asyncio
import base64
import contextlib
import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from nats.aio.client import Client
from nats.errors import Error, NoRespondersError

from harness.contracts.client import (
    OFFSET_OUT_OF_RANGE,
    ClientType,
    FetchedBatch,
    PlainRecord,
    PollResult,
)
from harness.contracts.host import ClientHost
from harness.history.op import Completion, Outcome

FETCH_MAX = 100
"""How many messages a poll returns at most."""
NO_EPOCH = -1
NO_MESSAGE = 10037
NAME_IN_USE = 10058
NOT_FOUND = 10059
ATTEMPTS = 20
ASK_AGAIN_S = 0.25
DUPLICATES_NS = 120_000_000_000


class Failed(Exception):  # noqa: N818 - not an error of the client
    """A request failed.

    Args:
        word: How, for the report.
        code: The number that JetStream gives the error; 0 if there was no answer.
        may_have_happened: Whether the request may have had, or may still have, an effect.
    """

    def __init__(self, word: str, *, code: int = 0, may_have_happened: bool = True) -> None:
        super().__init__(word)
        self.word = word
        self.code = code
        self.may_have_happened = may_have_happened


class NatsClient:
    """Implements `LogClient`. Mutable: its connection.

    Args:
        host: Decides with which server the client begins.
        bootstrap: Addresses of all servers.
        request_timeout_ms: After which a request counts as lost.
        connect_timeout_ms: After which the client tries the next server.
    """

    def __init__(
        self,
        host: ClientHost,
        bootstrap: tuple[str, ...],
        *,
        request_timeout_ms: int,
        connect_timeout_ms: int,
    ) -> None:
        self._servers = bootstrap
        self._next = host.random.stream("nats").randrange(0, len(bootstrap))
        self._request_timeout_s = request_timeout_ms / 1e3
        self._connect_timeout_s = connect_timeout_ms / 1e3
        self._connection: Client | None = None
        self._connecting = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()

    async def append(
        self, topic: str, partition: int, key: bytes, value: bytes, acks: int
    ) -> Completion:
        """Publishes one message; JetStream has one kind of acknowledgement, whatever `acks` is."""
        stream = f"{topic}-{partition}"
        message_id = hashlib.blake2b(value, digest_size=12).hexdigest()
        headers = {"Nats-Msg-Id": message_id, "Nats-Expected-Stream": stream}
        try:
            answer = await self.ask(f"{stream}.{key.decode()}", value, headers)
        except Failed as failed:
            return _ended(failed, Outcome.INFO if failed.may_have_happened else Outcome.FAIL)
        return Completion(outcome=Outcome.OK, offset=answer["seq"] - 1)

    async def poll(
        self, topic: str, partition: int, position: int, *, max_bytes: int, max_wait_ms: int
    ) -> PollResult:
        """Reads messages from a position on."""
        stream = f"{topic}-{partition}"
        try:
            info = await self.info(stream)
            first, last = info["state"]["first_seq"], info["state"]["last_seq"]
            if position > last:
                raise Failed(OFFSET_OUT_OF_RANGE)
            records = await self._read(stream, max(position + 1, first), last, max_bytes)
        except Failed as failed:
            return PollResult(completion=_ended(failed))
        return PollResult(
            completion=Completion(outcome=Outcome.OK, end_offset=last, node=_leader(info)),
            batches=(FetchedBatch(leader_epoch=NO_EPOCH, records=records),) if records else (),
        )

    async def latest(self, topic: str, partition: int) -> Completion:
        """Returns the log end."""
        try:
            info = await self.info(f"{topic}-{partition}")
        except Failed as failed:
            return _ended(failed)
        return Completion(outcome=Outcome.OK, offset=info["state"]["last_seq"], node=_leader(info))

    async def create(self, stream: str, replicas: int) -> bool:
        """Creates a stream; returns whether it exists now."""
        config = {
            "name": stream,
            "subjects": [f"{stream}.>"],
            "num_replicas": replicas,
            "storage": "file",
            "retention": "limits",
            "duplicate_window": DUPLICATES_NS,
        }
        try:
            await self.ask(f"$JS.API.STREAM.CREATE.{stream}", json.dumps(config).encode())
        except Failed as failed:
            if failed.code != NAME_IN_USE:
                await asyncio.sleep(self._connect_timeout_s)
                return False
        return True

    async def is_gone(self, stream: str) -> bool:
        """Whether the leader of the metadata says that there is no such stream; asks until an answer counts.

        A server that still has a stream which the others have forgotten answers too, and names no leader.
        """
        for _ in range(ATTEMPTS):
            try:
                if _leader(await self.info(stream)):
                    return False
            except Failed as failed:
                if failed.code == NOT_FOUND:
                    return True
            await asyncio.sleep(ASK_AGAIN_S)
        return False

    def close(self) -> None:
        """Closes the connection in the background."""
        if self._connection is not None:
            task = asyncio.get_running_loop().create_task(_close(self._connection))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
            self._connection = None

    async def disconnect(self) -> None:
        """Closes the connection."""
        self.close()
        await asyncio.gather(*self._closing)

    @property
    def server(self) -> str:
        """Address of the server that was tried last."""
        return self._servers[(self._next - 1) % len(self._servers)]

    async def info(self, stream: str) -> Any:
        """Returns what the stream's leader, or the leader of the metadata, reports of a stream."""
        return await self.ask(f"$JS.API.STREAM.INFO.{stream}")

    async def _read(
        self, stream: str, first: int, last: int, max_bytes: int
    ) -> tuple[PlainRecord, ...]:
        """Returns the messages from one sequence to another, as many as fit."""
        stop = min(last, first + FETCH_MAX - 1)
        found = await asyncio.gather(
            *(self._get(stream, {"seq": each}) for each in range(first, stop + 1))
        )
        records: list[PlainRecord] = []
        size = 0
        sequence = first
        while sequence <= last and size < max_bytes:
            record = found[sequence - first] if sequence <= stop else None
            if record is None:
                record = await self._get(stream, {"seq": sequence, "next_by_subj": ">"})
                if record is None or record.offset >= last:
                    break
            records.append(record)
            size += len(record.value or b"")
            sequence = record.offset + 2
            if sequence > stop:
                break
        return tuple(records)

    async def _get(self, stream: str, which: Mapping[str, Any]) -> PlainRecord | None:
        """Returns a message; None if the leader says that there is none."""
        try:
            answer = await self.ask(f"$JS.API.STREAM.MSG.GET.{stream}", json.dumps(which).encode())
        except Failed as failed:
            if failed.code == NO_MESSAGE:
                return None
            raise
        message = answer["message"]
        key = message["subject"].removeprefix(f"{stream}.").encode()
        return PlainRecord(message["seq"] - 1, key, base64.b64decode(message.get("data", "")))

    async def ask(
        self, subject: str, payload: bytes = b"", headers: dict[str, str] | None = None
    ) -> Any:
        """Sends a request and returns its answer.

        Raises:
            Failed: There was no answer, or it is an error.
        """
        connection = await self._connect()
        try:
            message = await connection.request(
                subject, payload, timeout=self._request_timeout_s, headers=headers
            )
            answer = json.loads(message.data)
        except NoRespondersError:
            raise Failed("no-responders", may_have_happened=False) from None
        except (Error, OSError, TimeoutError, ValueError):
            # The server may be cut off or paused, so the next request goes to another one.
            if self._connection is connection:
                self.close()
            raise Failed("request-timed-out") from None
        if "error" in answer:
            code = answer["error"].get("err_code", 0)
            raise Failed(f"refused-{code}", code=code)
        return answer

    async def _connect(self) -> Client:
        async with self._connecting:
            if self._connection is not None and self._connection.is_connected:
                return self._connection
            self.close()
            server = self._servers[self._next % len(self._servers)]
            self._next += 1
            connection = Client()
            try:
                async with asyncio.timeout(self._connect_timeout_s):
                    address = f"nats://{server}"
                    await connection.connect(address, allow_reconnect=False, error_cb=_ignore)
            except (Error, OSError, TimeoutError):
                await _close(connection)
                raise Failed("connect-failed", may_have_happened=False) from None
            self._connection = connection
            return connection


async def _close(connection: Client) -> None:
    with contextlib.suppress(Error, OSError, TimeoutError):
        await connection.close()


async def _ignore(error: Exception) -> None:
    """Takes errors of the connection, which the next request finds out by itself."""


def _leader(info: Mapping[str, Any]) -> str:
    leader: str = (info.get("cluster") or {}).get("leader", "")
    return leader


def _ended(failed: Failed, outcome: Outcome = Outcome.FAIL) -> Completion:
    return Completion(outcome=outcome, error_code=None, error=failed.word)


def _versions() -> Mapping[str, str]:
    return {"nats-py": version("nats-py")}


CLIENT = ClientType(name="nats", make=NatsClient, versions=_versions)
