"""Mutations of bytes: the usual small ones, and those that hurt formats with lengths in them."""

import random

INTERESTING = (
    b"\x00",
    b"\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\x7f\xff",
    b"\xff\xff",
    b"\x00\x00\x00\x00",
    b"\x7f\xff\xff\xff\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x80\x80",
)
"""Signs, limits, the longest legal varint, and one that does not end."""


def mutate(data: bytes, stream: random.Random, other: bytes = b"") -> bytes:
    """Returns the bytes with one to four mutations; `other` is what may be spliced in."""
    mutated = bytearray(data)
    for _ in range(1 + int(stream.random() ** 2 * 4)):
        _once(mutated, stream, other)
    return bytes(mutated)


def _once(data: bytearray, stream: random.Random, other: bytes) -> None:
    kind = stream.randrange(9)
    position = stream.randrange(len(data)) if data else 0
    if kind <= 1 and data:
        data[position] ^= 1 << stream.randrange(8)
    elif kind == 2 and data:
        data[position] = stream.randrange(256)
    elif kind <= 4:
        block = stream.choice(INTERESTING)
        data[position : position + len(block)] = block
    elif kind == 5:
        del data[position:]
    elif kind == 6:
        del data[position : position + stream.randrange(1, 9)]
    elif kind == 7:
        length = stream.randrange(1, 33)
        data[position:position] = data[position : position + length]
    elif other:
        start = stream.randrange(len(other))
        data[position:position] = other[start : start + stream.randrange(1, 65)]
