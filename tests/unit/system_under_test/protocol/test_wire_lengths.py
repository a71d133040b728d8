"""The walk over lengths: whatever a frame announces, the native reader never allocates memory for it."""

import random
import struct
import subprocess
import sys
import time

import pytest
from kio.schema.fetch.v17 import request as fetch_v17
from kio.serial import entity_reader
from kio.static.primitive import i32

from system_under_test.protocol import messages as m
from system_under_test.protocol.messages import decode, encode, millis
from system_under_test.protocol.skim import ELEMENTS_MAX, LengthError, read_uvarint, skim
from system_under_test.protocol.versions import wire_type
from tests.fuzz.mutate import mutate
from tests.unit.system_under_test.protocol.wire_examples import (
    NAMES,
    VERSIONS,
    api_of,
    arbitrary_request,
    arbitrary_response,
    body_of,
)

HUGE_LENGTHS = (b"\xff\xff\xff\xff\x07", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f")


@pytest.mark.parametrize(("role", "api", "version"), VERSIONS, ids=NAMES)
def test_a_complete_message_passes_unchanged(role, api, version):
    for seed in range(10):
        body = body_of(arbitrary_request(api, version, seed))
        assert skim(wire_type(api, version, "request"), body, 0) is body


def test_responses_pass_unchanged():
    for _, api, version in VERSIONS:
        for seed in range(3):
            response_type = wire_type(api, version, "response")
            body = body_of(arbitrary_response(response_type, seed))
            assert skim(response_type, body, 0) is body


# The native reader ends the process if it cannot allocate memory, so another process tries.
_HOSTILE = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
from tests.unit.system_under_test.protocol.test_wire_lengths import read_hostile_frames
print(read_hostile_frames())
"""


def read_hostile_frames() -> int:
    """Puts huge lengths everywhere into messages of all versions, reads what passes, and returns how many did."""
    count = 0
    for _, api, version in VERSIONS:
        for kind in ("request", "response"):
            entity_type = wire_type(api, version, kind)
            read = entity_reader(entity_type)
            example = (
                arbitrary_request(api, version, 2)
                if kind == "request"
                else arbitrary_response(entity_type, 2)
            )
            body = body_of(example)
            for position in range(min(len(body), 60)):
                for length in HUGE_LENGTHS:
                    hostile = body[:position] + length + body[position + len(length) :]
                    try:
                        read(skim(entity_type, hostile, 0), 0)
                    except Exception:
                        continue
                    count += 1
    return count


def test_no_announced_length_makes_the_reader_allocate_memory():
    done = subprocess.run(
        [sys.executable, "-c", _HOSTILE], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-500:]
    # Where the bytes were a number or text nothing is wrong with them.
    assert int(done.stdout) > 1000


def test_accepted_messages_have_no_more_elements_than_allowed():
    offsets = m.offset_fetch_request
    for count, passes in ((ELEMENTS_MAX - 2, True), (ELEMENTS_MAX - 1, False)):
        group = offsets.OffsetFetchRequestGroup(
            group_id="g",
            topics=(
                offsets.OffsetFetchRequestTopics(name="t", partition_indexes=(i32(0),) * count),
            ),
        )
        body = encode(offsets.OffsetFetchRequest(groups=(group,), require_stable=False))
        if passes:
            assert skim(offsets.OffsetFetchRequest, body, 0) is body
        else:
            with pytest.raises(LengthError, match="more than 100000 elements"):
                skim(offsets.OffsetFetchRequest, body, 0)


@pytest.mark.parametrize(
    "tail",
    [
        pytest.param(b"\x80\x80\x80\x04" + b"\x01" * (8 << 20), id="elements-of-one-byte"),
        pytest.param(b"\x01\0\0\0\0\x80\x80\x80\x02" + b"\x05\x00" * (4 << 20), id="tags"),
    ],
)
def test_a_large_hostile_frame_is_refused_at_once(tail):
    """Walked element by element it would take seconds, and a frame may be ten times as large."""
    began = time.perf_counter()
    with pytest.raises(LengthError, match="more than 100000 elements"):
        skim(m.delete_topics_request.DeleteTopicsRequest, tail, 0)
    assert time.perf_counter() - began < 0.5


def test_null_is_refused_where_a_value_is_required():
    api = api_of("Produce")
    legacy, flexible = wire_type(api, 7, "request"), wire_type(api, 9, "request")
    no_topics_legacy = struct.pack(">hhii", -1, 1, 1000, -1)
    no_topics_flexible = b"\0" + struct.pack(">hi", 1, 1000) + b"\0" + b"\0"
    for kind, body in ((legacy, no_topics_legacy), (flexible, no_topics_flexible)):
        with pytest.raises(LengthError, match="is null"):
            skim(kind, body, 0)
    no_name = struct.pack(">hhiih", -1, 1, 1000, 1, -1) + struct.pack(">i", 0)
    with pytest.raises(LengthError, match="is null"):
        skim(legacy, no_name, 0)


def test_only_an_unknown_tag_is_removed():
    kind = fetch_v17.FetchRequest
    topic = fetch_v17.FetchTopic(
        topic_id=None,
        partitions=tuple(
            fetch_v17.FetchPartition(partition=n, fetch_offset=n, partition_max_bytes=1)
            for n in range(3)
        ),
    )
    sent = kind(max_wait=millis(1), min_bytes=1, topics=(topic,), forgotten_topics_data=())
    body = encode(sent)
    # A zero follows every partition, the topic and the request: no tagged fields.
    mark = b"\x04\x09\x02zz\x0a\x00\xff\x01\x03abc\xff\xff\x7f\x00"
    size = 33
    start = body.index(b"\x04" + b"\0" * 4) + 1
    pieces = [body[:start]]
    for n in range(3):
        partition = body[start + n * size : start + (n + 1) * size]
        assert partition[-1] == 0
        pieces.append(partition[:-1] + mark)
    rest = body[start + 3 * size :]
    assert rest[0] == rest[-1] == 0
    tagged = b"".join(pieces) + mark + rest[1:-1] + mark
    assert skim(kind, b"header" + tagged, 6) == b"header" + body
    assert decode(kind, skim(kind, tagged, 0)) == sent


def test_mutated_messages_either_pass_or_are_refused():
    stream = random.Random(7)
    for _, api, version in VERSIONS:
        kind = wire_type(api, version, "request")
        for seed in range(30):
            body = body_of(arbitrary_request(api, version, seed))
            try:
                skim(kind, mutate(body, stream, body), 0)
            except LengthError:
                continue


def test_a_number_has_at_most_five_bytes():
    assert read_uvarint(b"\xff\xff\xff\xff\x0f", 0) == (2**32 - 1, 5)
    assert read_uvarint(b"x\x80\x01", 1) == (128, 3)
    with pytest.raises(LengthError, match="five"):
        read_uvarint(b"\x80" * 5 + b"\0", 0)
    with pytest.raises(LengthError, match="early"):
        read_uvarint(b"\x80", 0)
