"""The trace hash covers what messages say and what a run recorded, the same in every process."""

import os
import subprocess
import sys
import uuid
from dataclasses import dataclass, make_dataclass, replace
from datetime import timedelta
from enum import IntEnum
from pathlib import Path

import pyarrow as pa
import pytest

from harness.history.schema import TABLES
from harness.runs.simulated import whole_hash
from harness.simulation.contents import contents_code
from tests.simulation.sim_helpers import call, pair

ROOT = Path(__file__).parents[2]


class Code(IntEnum):
    """As error codes are: a number with a name."""

    NONE = 0
    STALE = 74


@dataclass(frozen=True, slots=True)
class Part:
    """A message within a message."""

    offset: int
    records: bytes | None


@dataclass(frozen=True, slots=True)
class Message:
    """With a field of every kind that messages have."""

    name: str
    parts: tuple[Part, ...]
    error: Code
    wait: timedelta
    topic: uuid.UUID
    is_last: bool
    share: float


@dataclass(frozen=True, slots=True)
class Single:
    """With one field, and that a tuple."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Maybe:
    """Of which only some have something that is not plain."""

    at: int
    part: Part | None


MESSAGE = Message(
    name="t",
    parts=(Part(5, b"abc"), Part(6, None)),
    error=Code.NONE,
    wait=timedelta(milliseconds=20),
    topic=uuid.UUID(int=7),
    is_last=False,
    share=0.5,
)


@pytest.mark.parametrize(
    "changed",
    [
        replace(MESSAGE, name="u"),
        replace(MESSAGE, parts=(Part(5, b"abd"), Part(6, None))),
        replace(MESSAGE, parts=(Part(5, b"abc"), Part(6, b""))),
        replace(MESSAGE, parts=(Part(5, b"abc"),)),
        replace(MESSAGE, parts=(Part(6, None), Part(5, b"abc"))),
        replace(MESSAGE, error=Code.STALE),
        replace(MESSAGE, wait=timedelta(milliseconds=21)),
        replace(MESSAGE, topic=uuid.UUID(int=8)),
        replace(MESSAGE, is_last=True),
        replace(MESSAGE, share=0.25),
    ],
)
def test_every_value_of_a_message_counts(changed: Message) -> None:
    assert contents_code(changed) != contents_code(MESSAGE)
    assert contents_code(replace(changed)) == contents_code(changed)


def test_equal_messages_have_one_code_whatever_came_before_them() -> None:
    """The first plain one and one after a nested one, which is read in another way."""
    plain = contents_code(Maybe(1, None))
    assert contents_code(Maybe(1, Part(1, b""))) != plain
    assert contents_code(Maybe(1, None)) == plain
    assert contents_code(Single((1, 2))) != contents_code(Single((1, 3)))


def test_a_message_whose_declared_types_are_unknown_has_a_code() -> None:
    kind = make_dataclass("Odd", [("value", "Missing"), ("parts", "tuple[Missing, ...]")])
    first, same, other = kind(Code.STALE, ()), kind(Code.STALE, ()), kind(Code.NONE, ())
    assert contents_code(first) == contents_code(same) != contents_code(other)


def test_a_value_of_another_type_than_declared_counts() -> None:
    named = Part(Code.STALE, b"")
    assert contents_code(named) == contents_code(Part(Code.STALE, b""))
    assert contents_code(named) != contents_code(Part(Code.NONE, b""))


def test_equal_text_has_one_code_whether_it_is_one_object_or_several() -> None:
    names = "ab", "".join(["a", "b"]), sys.intern("".join(["a", "b"]))
    assert len({contents_code(replace(MESSAGE, name=name)) for name in names}) == 1
    same = Part(1, bytes([1, 2]))
    shared, apart = (same, same), (same, Part(1, bytes([1, 2])))
    codes = {contents_code(replace(MESSAGE, parts=parts)) for parts in (shared, apart)}
    assert len(codes) == 1


@pytest.mark.long
def test_codes_are_the_same_in_processes_with_different_hash_seeds() -> None:
    program = (
        "from tests.simulation.test_message_contents import MESSAGE, Single\n"
        "from harness.simulation.contents import contents_code\n"
        "print([contents_code(one) for one in (MESSAGE, Single((1, 2)), 5, 'text', None)])\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        ).stdout
        for hash_seed in ("1", "20261")
    }
    assert len(outputs) == 1
    assert str(contents_code(MESSAGE)) in outputs.pop()


def hash_after(request: object) -> str:
    """The hash of a world in which a client sent this request; times and types do not depend on it."""
    world, _, client = pair()

    async def send() -> object:
        connection = await client.host.network.connect("b1:9092", 100)
        return await connection.request(request, 50)

    with world:
        assert call(world, "k1", send()) == ("echo", request)
        return world.trace_hash


def test_runs_that_differ_in_one_value_of_one_message_have_different_hashes() -> None:
    assert hash_after(1) == hash_after(1)
    assert hash_after(1) != hash_after(2)


def test_runs_that_differ_in_one_recorded_row_have_different_hashes() -> None:
    empty = {name: schema.empty_table() for name, schema in TABLES.items()}
    row = {"at_ns": 5, "node": "b1", "invariant": "", "sentence": "b1: ValueError: it broke"}
    broken = pa.Table.from_pylist([row], schema=TABLES["violations"])
    assert whole_hash("0", empty) == whole_hash("0", dict(empty))
    assert whole_hash("0", {**empty, "violations": broken}) != whole_hash("0", empty)
    assert whole_hash("1", empty) != whole_hash("0", empty)
