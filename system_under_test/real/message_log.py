"""The message log of a real node: the messages that matter, as this node sent and read them, one line per message.

    13205 request-sent 127.0.0.1:40112 127.0.0.1:9092 b2 7 heartbeat Heartbeat of broker 2

The fields, with a tab between two of them, are the time, what happened, the addresses of the connecting and of
the accepting side, the client id, the correlation id, the kind of the message, and its words
(`protocol/message_words.py`). The time is CLOCK_MONOTONIC of the machine in nanoseconds, never skewed, as in the
event log. Both ends of a message have the same addresses, correlation id and direction, so a reader of all logs
can match them.

The log is limited, unlike the event log: no verdict depends on it. When the file is half as large as the limit
it is renamed, and replaces the one that was renamed before. A file that continues another one begins with
`CONTINUES`. A line `OMITTED` is where lines could not be written: a missing line must not be taken for a lost
message.

Lines are written into mapped memory, which costs less than a `write` for each. The kernel keeps what a killed
process wrote. The file is extended by whole blocks, so zeros may follow a line; `read_lines` skips them.
"""

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from time import monotonic_ns
from typing import Any

from system_under_test.protocol.message_words import meaning_of

REQUEST_SENT, REQUEST_ARRIVED = "request-sent", "request-arrived"
RESPONSE_SENT, RESPONSE_ARRIVED = "response-sent", "response-arrived"
CONTINUES, OMITTED = "continues", "omitted"
"""Lines of their own: the file continues the renamed one; lines could not be written here."""
LOG_BYTES_MAX = 16 << 20
"""About a hundred thousand messages."""
BLOCK_BYTES = 256 << 10
TEXT_MAX = 400
"""Characters of one message's words; a line is always shorter than a block."""


def older_name(name: str) -> str:
    """Returns the name of the older half of a message log."""
    return f"{name}.1"


def line_head(what: str, client: Any, server: Any, name: str) -> str:
    """Returns what all lines of a connection with the same `what` have in common.

    Args:
        what: `REQUEST_SENT` and so on.
        client: Address of the connecting side, as a socket returns it; None if it is not known.
        server: Address of the accepting side.
        name: Client id of the requests.
    """
    addresses = (f"{one[0]}:{one[1]}" if isinstance(one, tuple) else "" for one in (client, server))
    return "\t".join(("", what, *addresses, _plain(name), ""))


def read_lines(data: bytes) -> Iterator[str]:
    """Yields the whole lines of a file; what a killed process left unfinished is skipped."""
    for line in data.split(b"\n")[:-1]:
        yield line.rpartition(b"\0")[2].decode(errors="replace")


class MessageLog:
    """Writes the message log of one node.

    Args:
        path: The file; what it holds stays.
        bytes_max: Limit for both files together; at least two blocks are kept.

    Raises:
        OSError: The file cannot be opened.
    """

    def __init__(self, path: Path, bytes_max: int = LOG_BYTES_MAX) -> None:
        self._path = path
        self._half_bytes = bytes_max // 2
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = self._open()
        self._map: mmap.mmap | None = None
        # Where the next line begins in the block, and where lines may end; 0 if there is no block to write to.
        self._position = self._end = 0
        self._has_omitted = False
        # Behind everything that an earlier process wrote.
        self._file_bytes = -(-os.fstat(self._descriptor).st_size // BLOCK_BYTES) * BLOCK_BYTES

    def note(self, head: str, correlation_id: int, message: object) -> None:
        """Writes a message if it matters. Called for every message, so it does little.

        Args:
            head: See `line_head`.
            correlation_id: Of the request.
            message: The request or response.
        """
        found = meaning_of(message)
        if found is None or self._descriptor < 0:
            return
        kind, text = found
        if not text.isprintable() or len(text) > TEXT_MAX:
            text = _plain(text)
        data = f"{monotonic_ns()}{head}{correlation_id}\t{kind}\t{text}\n".encode()
        end = self._position + len(data)
        if end <= self._end and self._map is not None:
            self._map[self._position : end] = data
            self._position = end
            return
        try:
            if self._has_omitted:
                self._write(f"{OMITTED}\n".encode())
                self._has_omitted = False
            self._write(data)
        except OSError:
            # A full disk must not stop the node.
            self._has_omitted = True
            self._end = 0

    def close(self) -> None:
        """Closes the file and removes the rest of its last block; idempotent."""
        if self._descriptor < 0:
            return
        if self._map is not None:
            self._map.close()
            os.ftruncate(self._descriptor, self._file_bytes - BLOCK_BYTES + self._position)
        os.close(self._descriptor)
        self._descriptor = -1

    def _write(self, data: bytes) -> None:
        """Writes into the present block, or makes the next one."""
        end = self._position + len(data)
        if end > self._end or self._map is None:
            self._map = self._next_block()
            end = self._position + len(data)
        self._map[self._position : end] = data
        self._position = end

    def _next_block(self) -> mmap.mmap:
        """Extends the file, with reserved blocks: writing into a page without one would end the process."""
        is_full = self._file_bytes + BLOCK_BYTES > max(self._half_bytes, BLOCK_BYTES)
        if is_full:
            os.replace(self._path, self._path.with_name(older_name(self._path.name)))
            full, self._descriptor = self._descriptor, self._open()
            self._file_bytes = 0
            os.close(full)
        os.posix_fallocate(self._descriptor, self._file_bytes, BLOCK_BYTES)
        block = mmap.mmap(self._descriptor, BLOCK_BYTES, offset=self._file_bytes)
        self._file_bytes += BLOCK_BYTES
        first = f"{CONTINUES}\n".encode() if is_full else b""
        block[: len(first)] = first
        self._position, self._end = len(first), BLOCK_BYTES
        return block

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


def _plain(text: str) -> str:
    """Returns text without what would end a field or a line: names of topics and clients are untrusted."""
    if len(text) > TEXT_MAX:
        text = f"{text[:TEXT_MAX]}..."
    return text if text.isprintable() else ascii(text)[1:-1]
