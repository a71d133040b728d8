"""Columns of short strings as numbers: one pass over the bytes instead of one comparison per word.

Most string columns of a history hold one of three words. Comparing a million strings with each word takes several
times as long as loading the eight bytes at which each of them begins. A string of up to eight bytes is its bytes,
the first one lowest, and its length is in the positions that are zero; a longer one has no code.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

U64 = npt.NDArray[np.uint64]

CODED_BYTES_MAX = 8
"""Longer strings have no code."""

NO_CODE = np.uint64(2**64 - 1)
"""Stands for a string without a code. Eight bytes of 0xff are no UTF-8, so no string has it."""

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
    if not pa.types.is_string(column.type):
        column = column.cast(pa.string())
    if column.null_count:
        column = column.fill_null("\0")
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    parts = [_codes_of_chunk(chunk) for chunk in chunks if len(chunk)]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint64)


def _codes_of_chunk(chunk: Any) -> U64:
    _, offset_buffer, data_buffer = chunk.buffers()
    edges = np.frombuffer(offset_buffer, dtype=np.int32)[
        chunk.offset : chunk.offset + len(chunk) + 1
    ]
    first, last = int(edges[0]), int(edges[-1])
    if first == last:
        return np.zeros(len(chunk), dtype=np.uint64)
    # Padded, so that eight bytes can be loaded at the beginning of the last string too.
    data = np.zeros(last - first + CODED_BYTES_MAX, dtype=np.uint8)
    if last > first:
        data[: last - first] = np.frombuffer(data_buffer, dtype=np.uint8)[first:last]
    words = np.ndarray((last - first + 1,), dtype="<u8", buffer=data, strides=(1,))
    lengths = edges[1:] - edges[:-1]
    width = int(lengths[0])
    if 0 < width <= CODED_BYTES_MAX and last - first == width * len(lengths):
        # Usually one word in every row; summing to the same length does not mean that all are equally long.
        columns = [data[at : last - first : width] for at in range(width)]
        if all(bytes_[0] and bool((bytes_ == bytes_[0]).all()) for bytes_ in columns) and bool(
            (lengths == width).all()
        ):
            return np.full(len(lengths), words[0] & _MASKS[width])
    lengths = np.minimum(lengths, CODED_BYTES_MAX + 1)
    starts = edges[:-1] - first if first else edges[:-1]
    result: U64 = words[starts]
    result &= _MASKS[lengths]
    odd = lengths > CODED_BYTES_MAX
    if not data[: last - first].all():
        # A NUL would make two strings of different lengths equal.
        has_nul = np.add.reduceat(np.append(data[: last - first] == 0, False), starts)
        odd |= (has_nul > 0) & (lengths > 0)
    if odd.any():
        result[odd] = NO_CODE
    return result
