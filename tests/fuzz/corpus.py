"""Frames to begin with: valid requests of every API in every version, with ordinary and with extreme values.

`corpus/frames.txt` keeps one frame per API, version and role (role, API, version, hexadecimal), so that what is
fuzzed does not depend on the generator, and a frame that once broke something can be added by hand. `python -m
tests.fuzz.corpus` rewrites the file.
"""

import io
import random
import struct
import types
import typing
from dataclasses import fields, is_dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from kio.serial import entity_writer

from system_under_test.protocol.apis import APIS, Api
from system_under_test.protocol.record_batch import encode_batch
from system_under_test.protocol.versions import wire_type

CORPUS = Path(__file__).parent / "corpus" / "frames.txt"
TOPIC = "events"
STRINGS = (
    TOPIC,
    TOPIC,
    "__consumer_offsets",
    "__cluster_metadata",
    "other",
    "group",
    "consumer",
    "range",
    "min.insync.replicas",
    "unclean.leader.election.enable",
    "2",
    "true",
    "",
    "no such topic!",
    "é\u0000",
    "x" * 300,
)
SMALL = (0, 0, 0, 1, 1, 2, 3, 5, 11, 12, 13, -1, -2)
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
UNSIGNED = {"uint16": 16, "uint32": 32}
TIMES_MS = (0, 1, 20, 500, 6000, 30000, -1)


def arbitrary(entity_type: type[Any], stream: random.Random, ids: tuple[UUID, ...]) -> Any:
    """Returns an entity of a type with values that are legal for the codec, and often not for anybody else."""
    return entity_type(**{item.name: _field(item, stream, ids) for item in fields(entity_type)})


def _field(item: Any, stream: random.Random, ids: tuple[UUID, ...]) -> Any:
    kind, nullable = item.type, False
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        nullable = True
        (kind,) = (one for one in typing.get_args(kind) if one is not type(None))
    if nullable and stream.random() < 0.15:
        return None
    if typing.get_origin(kind) is tuple:
        inner = typing.get_args(kind)[0]
        count = stream.choice((0, 1, 1, 1, 1, 2, 3)) if stream.random() < 0.99 else 40
        return tuple(_value(inner, item, stream, ids) for _ in range(count))
    return _value(kind, item, stream, ids)


def _value(kind: Any, item: Any, stream: random.Random, ids: tuple[UUID, ...]) -> Any:
    if is_dataclass(kind):
        return arbitrary(typing.cast(type[Any], kind), stream, ids)
    name = item.metadata.get("kafka_type")
    if name in BITS:
        return _integer(BITS[name], stream)
    if name in UNSIGNED:
        return stream.choice((0, 1, 9092, 2 ** UNSIGNED[name] - 1))
    if name == "bool":
        return stream.random() < 0.5
    if name == "string":
        return stream.choice(STRINGS)
    if name in ("bytes", "records"):
        return _bytes(stream)
    if name == "uuid":
        return stream.choice((*ids, UUID(int=stream.getrandbits(128))))
    if name.startswith("timedelta"):
        return timedelta(milliseconds=stream.choice(TIMES_MS))
    if name == "error_code":
        return 0
    if name == "float64":
        return stream.choice((0.0, -1.5, 1e300))
    raise LookupError(f"no values for {name}")


def _integer(bits: int, stream: random.Random) -> int:
    if stream.random() < 0.85:
        return stream.choice(SMALL)
    largest = 2 ** (bits - 1) - 1
    return stream.choice((largest, -largest - 1, largest - 1, stream.randrange(-largest, largest)))


def _bytes(stream: random.Random) -> bytes:
    kind = stream.randrange(6)
    if kind == 0:
        return b""
    if kind == 1:
        return bytes(stream.randrange(256) for _ in range(stream.randrange(80)))
    producer = stream.choice((-1, -1, 0, 1, 2**62))
    batch = encode_batch(
        [(b"k", bytes([stream.randrange(256)]))] * stream.randrange(1, 4),
        timestamp_ms=stream.choice((0, 10**12, -1)),
        base_offset=stream.choice((0, 0, 5, 2**62)),
        leader_epoch=stream.choice((-1, 0, 3)),
        is_control=stream.random() < 0.05,
        producer_id=producer,
        producer_epoch=-1 if producer < 0 else stream.choice((0, 0, 1, 32767)),
        base_sequence=-1 if producer < 0 else stream.choice((0, 0, 1, 2**31 - 1)),
    )
    return batch * stream.choice((1, 1, 1, 2))


def frame_of(api: Api, version: int, stream: random.Random, ids: tuple[UUID, ...]) -> bytes:
    """Returns a valid frame of one API in one version, without its size."""
    request_type = wire_type(api, version, "request")
    entity = arbitrary(request_type, stream, ids)
    buffer = io.BytesIO()
    client_id = stream.choice((b"fuzz", b""))
    buffer.write(struct.pack(">hhih", api.key, version, stream.getrandbits(31), len(client_id)))
    buffer.write(client_id)
    if request_type.__flexible__:
        buffer.write(b"\0")
    entity_writer(request_type)(buffer, entity)
    return buffer.getvalue()


def stored(role: str) -> list[bytes]:
    """Returns the frames of the corpus for a role."""
    frames = []
    for line in CORPUS.read_text(encoding="ascii").splitlines():
        if line and not line.startswith("#"):
            for_role, _, _, data = line.split()
            if for_role == role:
                frames.append(bytes.fromhex(data))
    return frames


def main() -> None:
    """Writes the corpus."""
    stream = random.Random(1)
    lines = [
        "# role, API, version, frame without its size; written by `python -m tests.fuzz.corpus`"
    ]
    for role in ("broker", "controller"):
        for api in APIS:
            if role in api.roles:
                lines.extend(
                    f"{role} {api.name} {version} {frame_of(api, version, stream, (UUID(int=7),)).hex()}"
                    for version in range(api.min_version, api.max_version + 1)
                )
    CORPUS.write_text("\n".join(lines) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
