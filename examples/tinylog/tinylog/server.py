"""The server: topics are lists of records in one file; requests and responses are lines of JSON over TCP.

    {"do": "create", "topic": "t", "partitions": 1}                             -> {}
    {"do": "append", "topic": "t", "partition": 0, "key": "..", "value": ".."}  -> {"offset": 7}
    {"do": "read", "topic": "t", "partition": 0, "position": 5, "count": 100}   -> {"records": [...], "end": 8}
    {"do": "end", "topic": "t", "partition": 0}                                 -> {"end": 8}

A record is [offset, key, value]; keys and values are hexadecimal. With `"durability": "buffered"` a record is
acknowledged while it is in a buffer of this process, which is written ten times a second: a killed server loses
acknowledged records. With "written" the record is in the page cache first.
"""

import asyncio
import contextlib
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

WRITE_EVERY_S = 0.1
LINE_BYTES_MAX = 1 << 24


class Store:
    """All records, in memory and in one file. Mutable."""

    def __init__(self, path: Path, *, is_buffered: bool) -> None:
        self.topics: dict[str, list[list[tuple[str, str]]]] = {}
        self._is_buffered = is_buffered
        self._unwritten: list[str] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            self._load(path)
        self._file = path.open("a", encoding="utf-8")

    def create(self, topic: str, partitions: int) -> None:
        """Creates a topic unless it exists."""
        if topic not in self.topics:
            self._apply(["create", topic, partitions])
            self._write(["create", topic, partitions])
            self.flush()

    def append(self, topic: str, partition: int, key: str, value: str) -> int:
        """Appends a record and returns its offset."""
        self._apply(["append", topic, partition, key, value])
        self._write(["append", topic, partition, key, value])
        if not self._is_buffered:
            self.flush()
        return len(self.topics[topic][partition]) - 1

    def flush(self) -> None:
        """Writes what waits in the buffer into the page cache."""
        self._file.write("".join(self._unwritten))
        self._file.flush()
        self._unwritten.clear()

    def _write(self, entry: list[Any]) -> None:
        self._unwritten.append(json.dumps(entry) + "\n")

    def _apply(self, entry: list[Any]) -> None:
        if entry[0] == "create":
            self.topics[entry[1]] = [[] for _ in range(entry[2])]
        else:
            self.topics[entry[1]][entry[2]].append((entry[3], entry[4]))

    def _load(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        for line in whole.splitlines():
            self._apply(json.loads(line))
        if whole != text:  # the last write was cut short
            path.write_text(whole, encoding="utf-8")


class Server:
    """Serves one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def serve(self, host: str, port: int) -> None:
        """Serves until the process ends."""
        server = await asyncio.start_server(self._client, host, port, limit=LINE_BYTES_MAX)
        async with server:
            while True:
                await asyncio.sleep(WRITE_EVERY_S)
                self._store.flush()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                writer.write(json.dumps(self._respond(json.loads(line))).encode() + b"\n")
                await writer.drain()
        writer.close()

    def _respond(self, request: dict[str, Any]) -> dict[str, Any]:
        store = self._store
        if request["do"] == "create":
            store.create(request["topic"], request["partitions"])
            return {}
        if request["topic"] not in store.topics:
            return {"error": "no such topic"}
        log = store.topics[request["topic"]][request["partition"]]
        if request["do"] == "append":
            offset = store.append(
                request["topic"], request["partition"], request["key"], request["value"]
            )
            return {"offset": offset}
        if request["do"] == "end":
            return {"end": len(log)}
        first = request["position"]
        if first > len(log):
            return {"error": "OFFSET_OUT_OF_RANGE"}
        records = enumerate(log[first : first + request["count"]], first)
        return {"records": [[offset, *record] for offset, record in records], "end": len(log)}


def _end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


async def _main(config: dict[str, Any]) -> None:
    data = Path(config["data_dir"]) / "log.jsonl"
    host, _, port = config["listen"].rpartition(":")
    store = Store(data, is_buffered=config["durability"] == "buffered")
    await Server(store).serve(host, int(port))


def main() -> None:
    """Runs the server of the configuration file that the command line names."""
    path = Path(sys.argv[1])
    config = json.loads(path.read_text(encoding="utf-8"))
    config["data_dir"] = str(path.parent / config["data_dir"])
    if "--until-stdin-closes" in sys.argv[2:]:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_main(config))


if __name__ == "__main__":
    main()
