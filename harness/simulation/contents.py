"""A number for the contents of a message, so that the trace covers what was sent and not only that it was sent.

Messages are frozen dataclasses of numbers, text, bytes, times, ids, and tuples and dataclasses of these. The bytes
of the encoder are never read again; they have to be the same in every process, and different for different values.
"""

from typing import Any
from zlib import crc32

import msgspec


def _plain(value: Any) -> Any:
    """Returns what the encoder knows instead of a value that it does not know."""
    plains: tuple[type[Any], ...] = (int, float, str, bytes)
    for plain in plains:
        if isinstance(value, plain):
            return plain(value)
    # Nothing else has values that are free of addresses in every process.
    return type(value).__qualname__


# Sets and mappings are sorted: their own order differs between processes.
_encode = msgspec.msgpack.Encoder(enc_hook=_plain, order="deterministic").encode


def contents_code(message: Any) -> int:
    """Returns a 32-bit checksum of a message's values; it is the same in every process."""
    return crc32(_encode(message))
