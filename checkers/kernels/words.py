"""Columns of short strings as numbers: one pass over the bytes instead of one comparison per word.

Most string columns of a history hold one of three words. Comparing a million strings with each word takes several
times as long as loading the eight bytes at which each of them begins. A string of up to eight bytes is its bytes,
the first one lowest, and its length is in the positions that are zero; a longer one has no code.

`codes` is for words that are not known before. If there are few possible words, `numbers` costs less, and a column
that repeats one word costs the least. Kind and outcome of operations are read by the validator and by the log
kernel; `operation_words` reads them once.
"""

import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

U64 = npt.NDArray[np.uint64]
I8 = npt.NDArray[np.int8]
Bools = npt.NDArray[np.bool_]

CODED_BYTES_MAX = 8
"""Longer strings have no code."""

NO_CODE = np.uint64(2**64 - 1)
"""Stands for a string without a code. Eight bytes of 0xff are no UTF-8, so no string has it."""

_BYTEWISE_MAX = 2
"""Words up to this length are compared byte by byte: loading eight bytes costs as much as three single ones."""

_MASKS = np.array([(1 << 8 * length) - 1 for length in range(9)] + [0], dtype=np.uint64)


def code_of(word: str) -> np.uint64:
    """Returns the code of a word.

    Raises:
        ValueError: It has no code.
    """
    data = word.encode()
    if len(data) > CODED_BYTES_MAX or b"\0" in data:
        raise ValueError(f"{word!r} has no code")
    return np.uint64(int.from_bytes(data, "little"))


def codes(column: Any) -> U64:
    """Returns the code of every string of a column; `NO_CODE` for null, for long ones and for those with a NUL.

    Args:
        column: A column of strings, dictionary encoded or not.
    """
    if column.null_count:
        column = column.cast(pa.string()).fill_null("\0")
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    parts = [_codes_of_chunk(chunk) for chunk in chunks if len(chunk)]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint64)


def numbers(column: Any, words: tuple[str, ...]) -> I8:
    """Returns for every string of a column its position in a list of words; -1 for null and for other strings.

    Args:
        column: A column of strings, dictionary encoded or not.
        words: At most 127 different words, each with a code; the most frequent one first.
    """
    if column.null_count:
        # No word is empty.
        column = column.cast(pa.string()).fill_null("")
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    parts = [_numbers_of_chunk(chunk, words) for chunk in chunks if len(chunk)]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int8)


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class OperationWords:
    """Kind and outcome of every operation of a table.

    Shape:
        kind: position in `KINDS`; outcome: position in `OUTCOMES`; -1 for any other word.
    """

    kind: I8
    outcome: I8


KINDS = ("append", "poll", "latest")
APPEND, POLL, LATEST = range(3)
OUTCOMES = ("ok", "fail", "info")
OK, FAIL, INFO = range(3)

_known: dict[int, tuple[weakref.ref[pa.Table], OperationWords]] = {}
"""Words of tables that are still in use, by the identity of the table, which never changes."""


def operation_words(operations: pa.Table) -> OperationWords:
    """Returns kind and outcome of every operation; read once for each table."""
    key = id(operations)
    known = _known.get(key)
    if known is not None and known[0]() is operations:
        return known[1]
    words = OperationWords(
        kind=numbers(operations.column("kind"), KINDS),
        outcome=numbers(operations.column("outcome"), OUTCOMES),
    )
    _known[key] = (weakref.ref(operations, lambda gone: _forget(key, gone)), words)
    return words


def _forget(key: int, gone: Any) -> None:
    known = _known.get(key)
    # Another table may have the same identity by now.
    if known is not None and known[0] is gone:
        del _known[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bytes:
    """The bytes of a chunk of strings.

    Shape:
        data: all bytes, and eight more; lengths: one row per string; edges: where each begins, and the end.
    """

    data: npt.NDArray[np.uint8]
    edges: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int32]

    @property
    def starts(self) -> npt.NDArray[np.intp]:
        # NumPy converts other indices each time.
        return self.edges[:-1].astype(np.intp)

    @property
    def heads(self) -> U64:
        """The eight bytes from every position on."""
        count = len(self.data) - CODED_BYTES_MAX + 1
        return np.ndarray((count,), dtype="<u8", buffer=self.data, strides=(1,))

    def only_word(self) -> bytes | None:
        """Returns the string that all rows hold; None if they differ or if it has no code."""
        width = int(self.lengths[0])
        total = len(self.data) - CODED_BYTES_MAX
        if width > CODED_BYTES_MAX or total != width * len(self.lengths):
            return None
        # Summing to the same length does not mean that all are equally long.
        if not (self.lengths == width).all():
            return None
        if not (self.data[width:total] == self.data[: max(total - width, 0)]).all():
            return None
        word = self.data[:width].tobytes()
        return None if b"\0" in word else word


def _bytes_of(chunk: Any) -> _Bytes:
    _, offset_buffer, data_buffer = chunk.buffers()
    edges = np.frombuffer(offset_buffer, dtype=np.int32)[
        chunk.offset : chunk.offset + len(chunk) + 1
    ]
    first, last = int(edges[0]), int(edges[-1])
    # Padded, so that eight bytes can be loaded at the beginning of the last string too.
    data = np.zeros(last - first + CODED_BYTES_MAX, dtype=np.uint8)
    if last > first:
        data[: last - first] = np.frombuffer(data_buffer, dtype=np.uint8)[first:last]
    edges = edges - first if first else edges
    return _Bytes(data=data, edges=edges, lengths=edges[1:] - edges[:-1])


def _numbers_of_chunk(chunk: Any, words: tuple[str, ...]) -> I8:
    if pa.types.is_dictionary(chunk.type):
        number_of = _numbers_of_chunk(chunk.dictionary.cast(pa.string()), words)
        result: I8 = number_of[chunk.indices.to_numpy()]
        return result
    text = _bytes_of(chunk)
    only = text.only_word()
    if only is not None:
        number_of_word = {word.encode(): number for number, word in enumerate(words)}
        return np.full(len(chunk), number_of_word.get(only, -1), dtype=np.int8)
    starts, first = text.starts, words[0].encode()
    is_first = text.lengths == len(first)
    if len(first) <= _BYTEWISE_MAX:
        for at, byte in enumerate(first):
            is_first &= text.data[starts + at] == byte
        rest = np.flatnonzero(~is_first)
        heads = text.heads[starts[rest]]
    else:
        heads = text.heads[starts]
        is_first &= (heads & _MASKS[len(first)]) == code_of(words[0])
        rest = np.flatnonzero(~is_first)
        heads = heads[rest]
    lengths = text.lengths[rest]
    number = np.full(len(rest), -1, dtype=np.int8)
    for at, word in enumerate(words[1:], start=1):
        length = len(word.encode())
        is_word = (lengths == length) & ((heads & _MASKS[length]) == code_of(word))
        # Arithmetic instead of a mask: with words in random order it is several times as fast.
        number += is_word.view(np.int8) * np.int8(at + 1)
    result = is_first.view(np.int8) - np.int8(1)
    result[rest] = number
    return result


def _codes_of_chunk(chunk: Any) -> U64:
    if pa.types.is_dictionary(chunk.type):
        code: U64 = _codes_of_chunk(chunk.dictionary.cast(pa.string()))[chunk.indices.to_numpy()]
        return code
    text = _bytes_of(chunk)
    only = text.only_word()
    if only is not None:
        return np.full(len(chunk), int.from_bytes(only, "little"), dtype=np.uint64)
    starts = text.starts
    lengths = np.minimum(text.lengths, CODED_BYTES_MAX + 1)
    result: U64 = text.heads[starts]
    result &= _MASKS[lengths]
    odd = lengths > CODED_BYTES_MAX
    bytes_ = text.data[: len(text.data) - CODED_BYTES_MAX]
    if not bytes_.all():
        # A NUL would make two strings of different lengths equal.
        has_nul = np.add.reduceat(np.append(bytes_ == 0, False), starts)
        odd |= (has_nul > 0) & (lengths > 0)
    if odd.any():
        result[odd] = NO_CODE
    return result
