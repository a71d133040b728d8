"""Contents of files before a power cut."""

import os
from pathlib import Path

import pytest

from nemesis.agent.disks.snapshot import CHUNK_BYTES, PAGE_BYTES, Content

MANY = 10 << 20


@pytest.mark.parametrize(
    ("data", "written"),
    # Without ids, pytest would print the bytes.
    ids=range(8),
    argvalues=[
        (b"", 0),
        (b"\0" * 100, 0),
        (b"a" * 100, 100),
        (b"a" * 100 + b"\0" * 20, 120),
        (b"a" * 100 + b"\0" * MANY, PAGE_BYTES),
        (b"\0" * MANY + b"a", MANY + 1),
        (b"\0" * (CHUNK_BYTES - 1) + b"a" + b"\0" * MANY, CHUNK_BYTES),
        (b"a" * (2 * PAGE_BYTES) + b"\0" * MANY, 2 * PAGE_BYTES),
    ],
)
def test_pages_of_zeros_at_the_end_were_not_written(
    tmp_path: Path, data: bytes, written: int
) -> None:
    assert Content(data, len(data)).written_bytes() == written
    path = tmp_path / "spool"
    path.write_bytes(b"before" + data)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        assert Content(b"", len(data), (descriptor, 6)).written_bytes() == written
    finally:
        os.close(descriptor)
