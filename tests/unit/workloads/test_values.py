import pytest
from hypothesis import given
from hypothesis import strategies as st

from system_under_test.protocol.record_batch import Record
from workloads.values import VALUE_SIZE_BYTES, encode_value, read_record

MINE = {"run_id": 7, "process": 2, "sequence": 5, "op_index": 99, "topic": "t", "partition": 1}


def record(value):
    return Record(offset=4, timestamp_ms=0, key=b"k1", value=value, headers=())


def read(value, run_id=7, topic="t", partition=1):
    return read_record(
        record(value), run_id=run_id, topic=topic, partition=partition, leader_epoch=3
    )


def test_a_value_identifies_its_writer():
    got = read(encode_value(**MINE))
    assert (got.status, got.value, got.process, got.sequence, got.key) == ("ok", 99, 2, 5, "k1")


@pytest.mark.parametrize(
    "elsewhere", [{"run_id": 8}, {"topic": "other"}, {"partition": 0}], ids=str
)
def test_an_intact_value_of_another_run_is_foreign(elsewhere):
    got = read(encode_value(**MINE), **elsewhere)
    assert (got.status, got.value) == ("foreign", -1)


@pytest.mark.parametrize("size", [0, VALUE_SIZE_BYTES, VALUE_SIZE_BYTES + 1, 300])
def test_a_padded_value_is_as_large_as_requested_and_means_the_same(size):
    value = encode_value(**MINE, size=size)
    assert len(value) == max(size, VALUE_SIZE_BYTES)
    assert (read(value).status, read(value).value) == ("ok", 99)
    assert size == 0 or read(value[:-1]).status == "corrupt"


@given(st.integers(0, 199), st.integers(1, 255))
def test_any_flipped_byte_makes_a_padded_value_corrupt(position, flip):
    value = bytearray(encode_value(**MINE, size=200))
    value[position] ^= flip
    assert read(bytes(value)).status == "corrupt"


@given(st.integers(0, VALUE_SIZE_BYTES - 1), st.integers(1, 255))
def test_any_flipped_byte_makes_a_value_corrupt(position, flip):
    value = bytearray(encode_value(**MINE))
    value[position] ^= flip
    assert read(bytes(value)).status == "corrupt"


@pytest.mark.parametrize("value", [None, b"", b"hello", b"LSv1" + bytes(200)])
def test_anything_else_is_corrupt(value):
    assert read(value).status == "corrupt"
