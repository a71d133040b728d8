"""The message log of a real node: what is written, its limit, and what a killed process leaves."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harness.contracts.messages import MESSAGES_FILE, MessageEnd, NodeMessages
from harness.contracts.system import Node
from harness.systems.reference.message_log import MESSAGE_FILES, recorded_messages
from system_under_test.protocol.message_words import PARTITIONS_MAX, meaning_of
from system_under_test.real.message_log import (
    BLOCK_BYTES,
    LOG_BYTES_MAX,
    REQUEST_ARRIVED,
    REQUEST_SENT,
    TEXT_MAX,
    MessageLog,
    line_head,
    read_lines,
)

CLIENT, SERVER = ("127.0.0.1", 40112), ("127.0.0.1", 9092)
NODES = (
    Node(name="b1", role="broker", node_id=1, address="127.0.0.1:9092"),
    Node(name="b2", role="broker", node_id=2, address="127.0.0.1:9093"),
)


@dataclass
class BrokerHeartbeatRequest:
    """A message that matters, as far as its words need it."""

    broker_id: Any
    want_fence: bool = False


@dataclass
class Partition:
    """A partition of a produce request."""

    index: int


@dataclass
class TopicData:
    """A topic of a produce request; it has an id instead of a name from version 13 on."""

    partition_data: list[Partition]
    name: str = ""


@dataclass
class ProduceRequest:
    """A produce request."""

    topic_data: list[TopicData]
    acks: int = -1


@dataclass
class FetchResponse:
    """A fetch response without records, which does not matter."""

    responses: list[Any] = field(default_factory=list)


class TrueClock:
    """The clocks of a machine on which the run began at 0."""

    def of_monotonic(self, at_ns: int) -> int:
        return at_ns

    def of_wall(self, wall_ms: int, not_before_ns: int) -> int:
        raise AssertionError("the reference system writes no wall clock")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[MessageLog]:
    made = MessageLog(tmp_path / MESSAGES_FILE)
    yield made
    made.close()


def note(log: MessageLog, number: int, message: Any = None) -> None:
    head = line_head(REQUEST_SENT, CLIENT, SERVER, "b2")
    log.note(head, number, message or BrokerHeartbeatRequest(number))


def read(directory: Path) -> NodeMessages:
    paths = [directory / name for name in MESSAGE_FILES]
    files = {path.name: path.read_bytes() for path in paths if path.exists()}
    return recorded_messages(NODES[1], NODES, files, TrueClock())


def numbers(found: NodeMessages) -> list[int]:
    return [end.correlation_id for end in found.ends]


def test_a_message_is_read_back_as_it_was_noted(tmp_path: Path, log: MessageLog) -> None:
    note(log, 7)
    head = line_head(REQUEST_ARRIVED, CLIENT, SERVER, "client-0")
    log.note(head, 8, ProduceRequest([TopicData([Partition(3)])]))
    note(log, 9, FetchResponse())
    note(log, 10, object())
    log.close()
    found = read(tmp_path)
    assert found.complete_from_ns == 0
    assert found.remarks == []
    sent, arrived = found.ends
    assert 0 < sent.at_ns <= arrived.at_ns
    assert sent == MessageEnd(
        at_ns=sent.at_ns,
        is_sent=True,
        is_response=False,
        src="b2",
        dst="b1",
        kind="heartbeat",
        text="Heartbeat of broker 7",
        connection="127.0.0.1:40112 127.0.0.1:9092",
        correlation_id=7,
    )
    assert (arrived.src, arrived.dst, arrived.is_sent) == ("client-0", "b2", False)
    assert arrived.text == "Produce to partition 3, acks=-1"


KILLED = """
import os, signal, sys
from dataclasses import make_dataclass
from pathlib import Path
from system_under_test.real.message_log import REQUEST_SENT, MessageLog, line_head
Message = make_dataclass("BrokerHeartbeatRequest", ["broker_id", "want_fence"])
log = MessageLog(Path(sys.argv[1]))
head = line_head(REQUEST_SENT, ("127.0.0.1", 40112), ("127.0.0.1", 9092), "b2")
log.note(head, 1, Message(1, False))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_wrote_stays_and_its_successor_continues(tmp_path: Path) -> None:
    path = tmp_path / MESSAGES_FILE
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert numbers(read(tmp_path)) == [1]
    data = bytearray(path.read_bytes())
    end = data.index(b"\n") + 1
    data[end : end + 9] = b"12345\treq"  # a line that the kill interrupted
    path.write_bytes(data)
    successor = MessageLog(path)
    note(successor, 2)
    successor.close()
    assert numbers(read(tmp_path)) == [1, 2]


def test_the_log_keeps_the_newest_messages_and_says_so(tmp_path: Path) -> None:
    log = MessageLog(tmp_path / MESSAGES_FILE, bytes_max=2 * BLOCK_BYTES)
    count = 4 * BLOCK_BYTES // 80
    for number in range(count):
        note(log, number)
    log.close()
    sizes = [(tmp_path / name).stat().st_size for name in MESSAGE_FILES]
    assert all(size <= BLOCK_BYTES for size in sizes)
    found = read(tmp_path)
    kept = numbers(found)
    assert kept == list(range(kept[0], count))
    assert kept[0] > 0
    assert found.complete_from_ns == found.ends[0].at_ns
    (remark,) = found.remarks
    assert remark.startswith("messages of b2 before ")
    assert remark.endswith(" s are missing: the size of its record is limited")


def test_before_the_limit_is_reached_nothing_is_dropped(tmp_path: Path) -> None:
    log = MessageLog(tmp_path / MESSAGES_FILE, bytes_max=LOG_BYTES_MAX)
    for number in range(3 * BLOCK_BYTES // 80):
        note(log, number)
    log.close()
    found = read(tmp_path)
    assert numbers(found) == list(range(3 * BLOCK_BYTES // 80))
    assert found.complete_from_ns == 0


def test_lines_that_cannot_be_written_are_reported(
    tmp_path: Path, log: MessageLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(*_: Any) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.posix_fallocate", no_space)
        note(log, 1)
    note(log, 2)
    log.close()
    found = read(tmp_path)
    assert numbers(found) == [2]
    assert found.complete_from_ns is None  # a message that is missing need not be lost
    assert found.remarks == ["messages of b2 are missing: it could not write all of them"]


def test_untrusted_names_end_no_field_and_no_line(tmp_path: Path, log: MessageLog) -> None:
    evil = "a\tb\nc\0d\x7f\udc80" + "x" * (2 * BLOCK_BYTES)
    head = line_head(REQUEST_ARRIVED, CLIENT, SERVER, evil)
    log.note(head, 1, BrokerHeartbeatRequest(evil))
    note(log, 2)
    log.close()
    first, second = read(tmp_path).ends
    assert first.src.startswith("a\\tb\\nc\\x00d\\x7f\\udc80x")
    assert len(first.text) < 2 * TEXT_MAX
    assert second.correlation_id == 2


def test_only_whole_lines_are_read() -> None:
    assert list(read_lines(b"one\n\0\0two\nthr\0\0four\nfive")) == ["one", "two", "four"]
    assert list(read_lines(b"")) == []


def test_lines_of_other_forms_are_left_out() -> None:
    lines = [
        "1\trequest-sent\ta:1\t127.0.0.1:9092\tb2\t5\theartbeat\tHeartbeat",
        "x\trequest-sent\ta:1\t127.0.0.1:9092\tb2\t5\theartbeat\tHeartbeat",
        "1\trequest-sent\ta:1\t127.0.0.1:9092\tb2\tfive\theartbeat\tHeartbeat",
        "1\trequest-lost\ta:1\t127.0.0.1:9092\tb2\t5\theartbeat\tHeartbeat",
        "1\trequest-sent\ta:1\t127.0.0.1:9092\tb2\t5\theartbeat",
        "",
    ]
    data = "".join(f"{line}\n" for line in lines).encode()
    found = recorded_messages(NODES[1], NODES, {MESSAGES_FILE: data}, TrueClock())
    assert len(found.ends) == 1


def test_words_name_few_partitions_of_a_large_message() -> None:
    request = ProduceRequest([TopicData([Partition(index) for index in range(100)], name="t")])
    found = meaning_of(request)
    assert found is not None
    named = ", ".join(f"t-{index}" for index in range(PARTITIONS_MAX))
    assert found[1] == f"Produce to {named} and {100 - PARTITIONS_MAX} more, acks=-1"
