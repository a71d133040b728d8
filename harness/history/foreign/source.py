"""The bytes of a foreign history, as lines or as pieces of text, never all at once."""

import codecs
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from harness.errors import HistoryError

PIECE_BYTES = 2**16
"""Bytes that are read at once."""
LINE_BYTES_MAX = 64 * 2**20
"""Bytes of one JSON or log line; a final read of a million records has about twenty million."""

_GZIP_MAGIC = b"\x1f\x8b"
_MARK = codecs.BOM_UTF8


class Source:
    """An open file. Mutable: it is read once, either as lines or as text.

    Args:
        file: The file, decompressed.
        origin: Its name, for errors.

    Attributes:
        head: Its beginning, before anything was read.
    """

    def __init__(self, file: BinaryIO | gzip.GzipFile, origin: str) -> None:
        self._file = file
        self.origin = origin
        self.head = file.read(PIECE_BYTES).removeprefix(_MARK)

    def lines(self) -> Iterator[bytes]:
        """Returns the lines, without their ends.

        Raises:
            HistoryError: A line has more than `LINE_BYTES_MAX` bytes.
        """
        number = 0
        rest = self.head
        while True:
            *whole, rest = rest.split(b"\n")
            number += len(whole)
            yield from whole
            if len(rest) > LINE_BYTES_MAX:
                raise HistoryError(
                    f"{self.origin}, line {number + 1}: the line has more than"
                    f" {LINE_BYTES_MAX >> 20} million bytes"
                )
            # Twice as much each time, so that a long line is not searched again for every piece.
            piece = self._file.read(max(PIECE_BYTES, len(rest)))
            if not piece:
                break
            rest += piece
        if rest:
            yield rest

    def text_lines(self) -> Iterator[str]:
        """Returns the lines as text, without their ends.

        Raises:
            HistoryError: As `lines`, or a line is not UTF-8.
        """
        for number, raw in enumerate(self.lines(), 1):
            try:
                yield raw.decode("utf-8")
            except UnicodeDecodeError:
                raise self._not_text(number) from None

    def text(self) -> Iterator[str]:
        """Returns the text in pieces.

        Raises:
            HistoryError: It is not UTF-8.
        """
        decoder = codecs.getincrementaldecoder("utf-8")()
        number = 1
        piece = self.head
        while True:
            try:
                yield decoder.decode(piece, final=not piece)
            except UnicodeDecodeError as error:
                bad = bytes(error.object[: error.start])
                raise self._not_text(number + bad.count(b"\n")) from None
            if not piece:
                return
            number += piece.count(b"\n")
            piece = self._file.read(PIECE_BYTES)

    def _not_text(self, number: int) -> HistoryError:
        return HistoryError(f"{self.origin}, line {number}: the text is not UTF-8")


@contextmanager
def open_source(path: Path) -> Iterator[Source]:
    """Opens a file, decompressing it if it is compressed with gzip.

    Raises:
        HistoryError: It cannot be read, now or while it is open.
    """
    try:
        with path.open("rb") as raw:
            is_packed = raw.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
            raw.seek(0)
            if is_packed:
                with gzip.open(raw) as file:
                    yield Source(file, str(path))
            else:
                yield Source(raw, str(path))
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise HistoryError(f"cannot read the history {path}: {reason}") from None
