"""What differs between any two clusters becomes a symbol; what is behaviour stays."""

import datetime
import uuid
from dataclasses import dataclass, field
from typing import Any

from harness.conformance.normalisation import Symbols, normalised
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.record_batch import encode_batch

TOPIC_ID = uuid.UUID(int=77)


@dataclass
class Part:
    partition_index: int
    error_code: ErrorCode = ErrorCode.NONE
    leader_epoch: int = 0
    records: bytes | None = None


@dataclass
class Response:
    throttle_time: datetime.timedelta = datetime.timedelta(0)
    error_message: str | None = None
    topic_id: uuid.UUID | None = None
    port: int = 1
    member_id: str = ""
    leader: str = ""
    producer_id: int = -1
    session_id: int = 0
    timestamp: int = -1
    name: str = ""
    partitions: tuple[Part, ...] = field(default=())


def tree(symbols: Symbols | None = None, api: str = "api", **values: Any) -> Any:
    return normalised(api, Response(**values), symbols or Symbols())


def test_load_and_wording_are_left_out():
    assert "throttle_time" not in tree()
    assert "error_message" not in tree(error_message="no")


def test_ids_and_ports_become_what_they_stand_for():
    symbols = Symbols(topics={TOPIC_ID: "t"}, ports={9093: 11})
    assert tree(symbols, topic_id=TOPIC_ID)["topic_id"] == "<id of topic t>"
    assert tree(symbols, topic_id=uuid.UUID(int=5))["topic_id"] == "<id>"
    assert tree(symbols, port=9093)["port"] == "<port of node 11>"
    assert tree(symbols, port=5)["port"] == 5


def test_an_id_that_was_sent_stays():
    symbols = Symbols()
    symbols.sent.add(str(TOPIC_ID))
    assert tree(symbols, topic_id=TOPIC_ID)["topic_id"] == str(TOPIC_ID)


def test_members_are_numbered_and_those_that_were_sent_stay():
    symbols = Symbols()
    symbols.record_sent({"members": [{"member_id": "who"}]})
    found = tree(symbols, member_id="m-123", leader="m-456")
    assert (found["member_id"], found["leader"]) == ("<member 1>", "<member 2>")
    assert tree(symbols, member_id="m-456", leader="who")["member_id"] == "<member 2>"
    assert tree(symbols, member_id="who")["member_id"] == "who"
    symbols.record_sent({"member_id": "m-123"})
    assert tree(symbols, member_id="m-123")["member_id"] == "<member 1>"


def test_producers_sessions_and_times_become_symbols_only_if_there_are_any():
    found = tree(producer_id=4000, session_id=7, timestamp=1700000000000)
    values = (found["producer_id"], found["session_id"], found["timestamp"])
    assert values == ("<producer 1>", "<session>", "<time>")
    found = tree()
    assert (found["producer_id"], found["session_id"], found["timestamp"]) == (-1, 0, -1)


def test_names_and_the_partition_of_the_case_become_symbols():
    symbols = Symbols(own={"topic-12": "<own topic>"}, own_partition=4)
    assert tree(symbols, name="topic-12.x")["name"] == "<own topic>.x"
    assert list(tree(symbols, partitions=(Part(4),))["partitions"]) == ["<own partition>"]
    assert list(tree(partitions=(Part(-1),))["partitions"]) == ["-1"]


def test_elements_with_a_number_become_a_mapping_in_which_order_does_not_count():
    forward = tree(partitions=(Part(0), Part(1)))
    assert forward == tree(partitions=(Part(1), Part(0)))
    assert list(forward["partitions"]) == ["0", "1"]
    assert forward["partitions"]["0"]["error_code"] == "NONE"


def test_a_list_with_one_element_twice_stays_a_list():
    assert len(tree(partitions=(Part(0), Part(0)))["partitions"]) == 2


def test_epochs_count_from_the_current_one_if_a_broker_was_fenced():
    found = tree(Symbols(leader_epoch=3), partitions=(Part(0, leader_epoch=4),))
    assert found["partitions"]["0"]["leader_epoch"] == 1
    found = tree(Symbols(leader_epoch=3), partitions=(Part(0, leader_epoch=-1),))
    assert found["partitions"]["0"]["leader_epoch"] == -1


def test_records_become_the_headers_of_their_batches():
    data = encode_batch([(None, b"v")] * 2, timestamp_ms=5, base_offset=7, leader_epoch=1)
    (found,) = tree(partitions=(Part(0, records=data),))["partitions"]["0"]["records"]
    assert (found["base_offset"], found["record_count"], found["leader_epoch"]) == (7, 2, 1)
    cut = tree(partitions=(Part(0, records=data + data[:30]),))["partitions"]["0"]["records"]
    assert cut[1] == "<incomplete batch>"


def test_of_what_the_run_decides_only_the_sign_is_compared():
    @dataclass
    class Quorum:
        high_watermark: int
        leader_id: int

    assert normalised("describe_quorum", Quorum(12, -1), Symbols()) == {
        "high_watermark": "<any>",
        "leader_id": "<negative>",
    }
    assert normalised("fetch", Quorum(12, -1), Symbols()) == {"high_watermark": 12, "leader_id": -1}
