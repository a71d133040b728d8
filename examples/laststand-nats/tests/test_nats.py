"""The plugin without a server: configuration, program, views, block files, outcomes."""

import asyncio
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.contracts.cluster import Topic
from harness.contracts.metadata import CommittedMetadata
from harness.contracts.programs import FetchRequest
from harness.contracts.system import Node, Settings
from harness.contracts.violation import Violation
from harness.environments.client_host import PlainClientHost
from harness.errors import UsageError
from harness.history.op import Outcome

pytest.importorskip("nats", reason="nats-py is not installed")

from laststand_nats import program, store
from laststand_nats.client import Failed, NatsClient
from laststand_nats.observation import JetStreamObservation, view_of
from laststand_nats.system import SYSTEM

LOCAL = tuple(
    Node(name=f"b{n}", role="broker", node_id=n, address=f"127.0.0.1:{4000 + n}") for n in (1, 2, 3)
)


class Silent:
    """A progress display that shows nothing."""

    def message(self, text: str) -> None:
        pass

    def update(self, label: str, fraction: float, detail: str = "") -> None:
        pass


def config_of(node: Node, **properties: str) -> Any:
    settings = Settings(profile="nats", timings="fast", properties=properties)
    return json.loads(SYSTEM.node_files(node, LOCAL, settings, data_dir="/data")["nats.json"])


# -- configuration


def test_a_node_knows_its_own_places_and_those_of_the_others() -> None:
    config = config_of(LOCAL[0])
    assert config["listen"] == "127.0.0.1:4001"
    assert config["cluster"]["listen"] == "127.0.1.1:4001"
    assert config["cluster"]["routes"] == ["nats://127.0.1.2:4002", "nats://127.0.1.3:4003"]
    assert config["http"] == "127.0.2.1:4001"
    assert config["jetstream"] == {"store_dir": "/data"}
    there = Node(name="b1", role="broker", node_id=1, address="10.0.0.11:9092")
    assert config_of(there)["cluster"]["listen"] == "10.0.0.11:9093"
    assert config_of(there)["http"] == "10.0.0.11:9094"


def test_properties_have_the_names_and_types_of_the_server() -> None:
    properties = {"jetstream.sync_interval": "always", "max_payload": "1024", "debug": "true"}
    config = config_of(LOCAL[0], **properties)
    assert config["jetstream"] == {"store_dir": "/data", "sync_interval": "always"}
    assert (config["max_payload"], config["debug"]) == (1024, True)
    SYSTEM.check_properties(properties)
    for name in ("listen", "jetstream.store_dir", "cluster.routes", "accounts.a"):
        with pytest.raises(UsageError, match="is set by laststand"):
            SYSTEM.check_properties({name: "x"})


def test_what_cannot_be_expressed_is_refused_with_the_reason() -> None:
    impossible = SYSTEM.impossible_faults()
    assert "without the C library" in impossible["clock_step"]
    assert "Kafka's record batches" in impossible["power.keep_records"]
    assert "power" not in impossible


def test_the_reason_of_an_end_is_its_last_fatal_line() -> None:
    output = "[1] [INF] Starting\n[1] [FTL] cannot bind\n[1] [INF] more\n"
    assert SYSTEM.exit_reason(output) == "[1] [FTL] cannot bind"
    assert SYSTEM.exit_reason("panic: boom\n\ngoroutine 1\n") == "panic: boom"
    assert SYSTEM.exit_reason("[1] [INF] fine\n") == ""


# -- program


def a_program(folder: Path, says: str) -> Path:
    path = folder / "given"
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


def test_a_given_program_is_kept_if_it_is_the_version(tmp_path: Path) -> None:
    binary = a_program(tmp_path, "nats-server: v2.12.9")
    cache = tmp_path / "cache"
    request = FetchRequest(version="2.12.9", cache=cache, progress=Silent(), binary=binary)
    report = SYSTEM.fetch(request)
    assert report.data["was_there"] is False
    assert Path(report.data["program"]).read_bytes() == binary.read_bytes()
    listed = {each.version: each.is_fetched for each in SYSTEM.programs(cache)}
    assert listed == {"2.10.20": False, "2.10.23": False, "2.12.1": False, "2.12.9": True}
    again = SYSTEM.fetch(FetchRequest(version="2.12.9", cache=cache, progress=Silent()))
    assert again.data["was_there"] is True


def test_a_program_of_another_version_is_refused_and_not_kept(tmp_path: Path) -> None:
    binary = a_program(tmp_path, "nats-server: v2.10.1")
    request = FetchRequest(version="2.12.9", cache=tmp_path, progress=Silent(), binary=binary)
    with pytest.raises(UsageError, match=r"'nats-server: v2\.10\.1', not nats-server v2\.12\.9"):
        SYSTEM.fetch(request)
    assert not program.program_path(tmp_path, "2.12.9").exists()
    with pytest.raises(UsageError, match="is no version of nats-server 2"):
        SYSTEM.of_version("latest", {})


def test_a_version_that_was_not_fetched_is_named_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LASTSTAND_CACHE", str(tmp_path))
    with pytest.raises(UsageError, match=r"`laststand system fetch nats 2\.12\.8` gets it"):
        SYSTEM.of_version("2.12.8", {}).program_paths()


# -- views


def report(leader: str, *, end: int, current: tuple[str, ...] = ("b2", "b3")) -> Any:
    peers = [{"name": each, "current": each in current} for each in ("b2", "b3")]
    stream = {
        "name": "t-0",
        "cluster": {"leader": leader, "replicas": peers},
        "state": {"first_seq": 1, "last_seq": end},
    }
    return {"account_details": [{"stream_detail": [stream]}], "meta_cluster": {"leader": "b1"}}


class Followed:
    """An observation with what it made."""

    def __init__(self) -> None:
        self.view = CommittedMetadata()
        self.rows: list[tuple[Any, ...]] = []
        self.violations: list[Violation] = []
        self.observation = JetStreamObservation(
            LOCAL,
            self.view,
            lambda table, row: self.rows.append((table, *row)),
            self.violations.append,
        )
        self.observation.topic_created(TOPIC, 0)

    def take(self, node: str, view: Mapping[str, Any], at_ns: int) -> None:
        line = {"at_ns": at_ns, "node": node, "event": "view", **view}
        self.observation.take(self.observation.parse(json.dumps(line).encode()), at_ns)


TOPIC = Topic(name="t", min_insync_replicas=2, assignments=((1, 2, 3),))
NO_VIEW = {"streams": None, "meta": None}


def test_the_leader_is_the_server_that_agrees_and_most_others_name() -> None:
    followed = Followed()
    followed.take("b2", view_of(report("b1", end=5)), 1)
    assert followed.view.partitions == {}, "b1 has not said that it leads"
    followed.take("b1", view_of(report("b1", end=5, current=("b2",))), 2)
    state = followed.view.partitions["t-0"]
    assert (state.leader, state.replicas, state.isr) == (1, (1, 2, 3), (1, 2))
    assert not followed.view.is_fenced(1)
    followed.take("b1", NO_VIEW, 3)
    assert followed.view.partitions["t-0"].leader == -1
    assert followed.view.is_fenced(1)


def test_what_a_server_has_becomes_a_row_only_when_it_changes() -> None:
    followed = Followed()
    for at_ns, end in enumerate((5, 5, 7)):
        followed.take("b1", view_of(report("b1", end=end)), at_ns)
    followed.observation.node_went_down("b1", 9)
    assert [(row[1], row[6], row[7], row[10], row[11]) for row in followed.rows] == [
        (0, 5, 5, "leader", "load"),
        (2, 7, 7, "leader", "observed"),
        (9, 7, 7, "offline", "down"),
    ]


def test_a_stream_that_is_gone_at_the_end_is_a_violation() -> None:
    followed = Followed()
    line = {"at_ns": 4, "node": "b1", "event": "gone", "stream": "t-0"}
    followed.observation.take(followed.observation.parse(json.dumps(line).encode()), 4)
    assert [each.sentence[:22] for each in followed.violations] == ["the stream t-0 is gone"]


@pytest.mark.parametrize(
    ("answers", "is_gone"),
    [
        ([Failed("request-timed-out"), Failed("refused", code=10059)], True),
        ([Failed("refused", code=10008), {"state": {}}], False),
        ([Failed("request-timed-out")] * 9, False),
    ],
)
def test_a_stream_is_gone_only_if_the_cluster_says_so(answers: list[Any], is_gone: bool) -> None:
    left = iter(answers)
    client = Answers(lambda subject, payload: next(left))
    assert asyncio.run(client.is_gone("t-0")) is is_gone


def test_a_line_that_is_no_view_is_refused() -> None:
    with pytest.raises(ValueError, match="without 'node'"):
        Followed().observation.parse(b'{"at_ns": 1}')


def test_a_server_without_streams_has_an_empty_view() -> None:
    assert view_of({"meta_cluster": {}}) == {"streams": [], "meta": ""}


# -- block files


class Blocks:
    """The files of a server, in memory."""

    def __init__(self, blocks: Mapping[str, bytes]) -> None:
        self.blocks = blocks

    def list(self, directory: str) -> list[str]:
        assert directory == "jetstream/$G/streams/t-0/msgs"
        return ["index.db", *self.blocks]

    def read(self, path: str, length: int, offset: int = 0) -> bytes:
        return self.blocks[path.rpartition("/")[2]][offset : offset + length]


def a_record(sequence: int, payload: bytes) -> bytes:
    subject = b"t-0.k"
    length = 22 + len(subject) + len(payload) + 8
    return struct.pack("<IQQH", length, sequence, 1, len(subject)) + subject + payload + b"checksum"


def read(**blocks: bytes) -> list[tuple[int, int]]:
    files = Blocks({f"{name[1:]}.blk": data for name, data in blocks.items()})
    batches = store.read_records(files, "t-0", bytes_max=1 << 20)
    return [(batch.base_offset, batch.checksum) for batch in batches]


def test_records_are_read_in_the_order_of_blocks_without_deletions() -> None:
    deleted = a_record(3 | 1 << 63, b"")
    whole = read(_10=a_record(3, b"c"), _2=a_record(1, b"a") + a_record(2, b"b") + deleted)
    assert [offset for offset, _ in whole] == [0, 1, 2]
    damaged = read(_2=a_record(1, b"a") + a_record(2, b"B"))
    assert damaged[0] == whole[0]
    assert damaged[1] != whole[1]


def test_reading_ends_at_a_record_that_is_no_record() -> None:
    first = a_record(1, b"a")
    assert [offset for offset, _ in read(_1=first + b"\0" * 30, _2=a_record(2, b"b"))] == [0]
    assert [offset for offset, _ in read(_1=first + a_record(2, b"b")[:-3])] == [0]


# -- outcomes


class Answers(NatsClient):
    """A client whose requests are answered here."""

    def __init__(self, answers: Any) -> None:
        super().__init__(
            PlainClientHost("client-0"), ("h:1",), request_timeout_ms=1, connect_timeout_ms=1
        )
        self.answers = answers

    async def _ask(self, subject: str, payload: bytes = b"", headers: Any = None) -> Any:
        answer = self.answers(subject, payload)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ({"stream": "t-0", "seq": 7}, Outcome.OK),
        (Failed("no-responders", may_have_happened=False), Outcome.FAIL),
        (Failed("request-timed-out"), Outcome.INFO),
        (Failed("refused-10077", code=10077), Outcome.INFO),
    ],
)
def test_an_append_fails_only_if_it_was_certainly_not_stored(answer: Any, outcome: Outcome) -> None:
    client = Answers(lambda subject, payload: answer)
    completion = asyncio.run(client.append("t", 0, b"k1", b"value", -1))
    assert completion.outcome == outcome
    assert completion.offset == (6 if outcome == Outcome.OK else None)


def a_stream(messages: Mapping[int, str], *, last: int) -> Any:
    def answer(subject: str, payload: bytes) -> Any:
        if ".INFO." in subject:
            return {"state": {"first_seq": 1, "last_seq": last}, "cluster": {"leader": "b2"}}
        request = json.loads(payload)
        sequences = [each for each in messages if each >= request["seq"]]
        if "next_by_subj" not in request:
            sequences = [each for each in sequences if each == request["seq"]]
        if not sequences:
            return Failed("refused", code=10037)
        return {"message": {"subject": "t-0.k1", "seq": min(sequences), "data": "dg=="}}

    return answer


def offsets(client: NatsClient, position: int) -> list[int]:
    result = asyncio.run(client.poll("t", 0, position, max_bytes=1 << 20, max_wait_ms=0))
    assert result.completion.outcome == Outcome.OK
    assert result.completion.node == "b2"
    return [record.offset for batch in result.batches for record in batch.records]


def test_a_poll_returns_what_the_stream_has_in_order() -> None:
    client = Answers(a_stream({each: "" for each in range(1, 251)}, last=250))
    assert offsets(client, 0) == list(range(100))
    assert offsets(client, 240) == list(range(240, 250))
    assert offsets(client, 250) == []


def test_a_poll_goes_past_messages_that_are_lost_and_not_past_the_end() -> None:
    client = Answers(a_stream({1: "", 2: "", 6: "", 9: ""}, last=7))
    assert offsets(client, 0) == [0, 1, 5]
    assert offsets(client, 6) == []
    beyond = asyncio.run(client.poll("t", 0, 8, max_bytes=1, max_wait_ms=0)).completion
    assert (beyond.outcome, beyond.error) == (Outcome.FAIL, "OFFSET_OUT_OF_RANGE")
