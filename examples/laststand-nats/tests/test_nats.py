"""The plugin without a server: configuration, program, views, block files, outcomes."""

import asyncio
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.contracts.administration import AlterFeature, ElectLeader, Reassign
from harness.contracts.polling import LogView, NodeView
from harness.contracts.programs import FetchRequest
from harness.contracts.system import Node, Settings
from harness.environments.client_host import PlainClientHost
from harness.errors import UsageError
from harness.history.op import Outcome

pytest.importorskip("nats", reason="nats-py is not installed")

from laststand_nats import administration, client, program, store
from laststand_nats.client import Failed, NatsClient
from laststand_nats.observation import view_in
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


def test_what_a_stream_never_has_and_how_long_it_does_not_flush_are_stated() -> None:
    impossible = SYSTEM.impossible_targets()
    assert "use leader_or_replica or follower" in impossible["last_in_isr"]
    assert not {"leader", "follower", "last_known_leader"} & set(impossible)
    for value, interval_ms in (("always", 0), ("90s", 90_000), ("1h", 3_600_000), ("5ms", 5)):
        assert SYSTEM.flush_interval_ms({"jetstream.sync_interval": value}) == interval_ms
    assert SYSTEM.flush_interval_ms({}) == 120_000


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
    with pytest.raises(UsageError, match=r"'nats-server: v2\.10\.1', not nats-server 2\.12\.9"):
        SYSTEM.fetch(request)
    assert not program.SERVER.path("2.12.9", tmp_path).exists()
    with pytest.raises(UsageError, match="is no version of nats-server 2"):
        SYSTEM.of_version("latest", {})


def test_a_version_that_was_not_fetched_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LASTSTAND_CACHE", str(tmp_path))
    with pytest.raises(UsageError, match=r"`laststand system fetch nats 2\.12\.8` gets it"):
        SYSTEM.of_version("2.12.8", {}).program_paths()


# -- views


def test_a_view_has_the_leader_and_the_current_replicas_of_each_stream() -> None:
    peers = [
        {"name": "b2", "current": True},
        {"name": "b3", "current": False},
        {"name": "b4", "current": True, "offline": True},
    ]
    stream = {
        "name": "t-0",
        "cluster": {"leader": "b1", "replicas": peers},
        "state": {"first_seq": 1, "last_seq": 5},
    }
    view = view_in(
        {"account_details": [{"stream_detail": [stream]}], "meta_cluster": {"leader": "b1"}}
    )
    assert view.serves
    assert view.logs == {
        "t-0": LogView(
            leader="b1", replicas=["b1", "b2", "b3", "b4"], current=["b1", "b2"], start=0, end=5
        )
    }


def test_a_server_without_streams_and_leader_has_an_empty_view() -> None:
    assert view_in({"meta_cluster": {}}) == NodeView(serves=False, logs={})


@pytest.mark.parametrize(
    ("answers", "is_gone"),
    [
        ([Failed("request-timed-out"), Failed("refused", code=10059)], True),
        ([Failed("refused", code=10008), {"cluster": {"leader": "b1"}}], False),
        ([{"cluster": {}}, {}, Failed("refused", code=10059)], True),
        ([{"cluster": {}}] * client.ATTEMPTS, False),
        ([Failed("request-timed-out")] * client.ATTEMPTS, False),
    ],
)
def test_a_stream_is_gone_only_if_the_leader_of_the_metadata_says_so(
    answers: list[Any], is_gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that still has a forgotten stream answers without naming a leader."""
    monkeypatch.setattr(client, "ASK_AGAIN_S", 0)
    left = iter(answers)
    asking = Answers(lambda subject, payload: next(left))
    assert asyncio.run(asking.is_gone("t-0")) is is_gone


# -- administration


def administered(action: Any, answers: Any) -> tuple[Any, list[tuple[str, Any]]]:
    asked: list[tuple[str, Any]] = []

    def answer(subject: str, payload: bytes) -> Any:
        asked.append((subject, json.loads(payload or b"null")))
        return answers(subject)

    brokers = {number: f"h:{number}" for number in (1, 2, 3, 4)}
    client = Answers(answer)
    return asyncio.run(administration.request(client, action, brokers)), asked


UNNAMED = {"name": "Server name unknown at this time (peerID: 1Fnvk8Zh)"}
CLUSTER = {"cluster": {"leader": "b2", "replicas": [{"name": "b1"}, {"name": "b3"}, UNNAMED]}}


def test_a_reassignment_removes_the_server_that_it_leaves_out() -> None:
    action = Reassign(topic="t", partition=0, replicas=(2, 3, 4))
    outcome, asked = administered(action, lambda subject: CLUSTER)
    assert asked[-1] == ("$JS.API.STREAM.PEER.REMOVE.t-0", {"peer": "b1"})
    assert (outcome.is_accepted, outcome.is_known, outcome.evidence) == (True, True, {"peer": "b1"})
    outcome, asked = administered(
        Reassign(topic="t", partition=0, replicas=(4,)), lambda subject: CLUSTER
    )
    assert not outcome.is_accepted
    assert len(asked) == 1, "more than one server would leave, so nothing is requested"


@pytest.mark.parametrize(
    ("failed", "is_known"),
    [(Failed("request-timed-out"), False), (Failed("refused-10075", code=10075), True)],
)
def test_an_action_without_a_response_may_have_happened(failed: Failed, is_known: bool) -> None:
    action = ElectLeader(topic="t", partition=0, unclean=False)
    outcome, asked = administered(action, lambda subject: failed)
    assert asked[0][0] == "$JS.API.STREAM.LEADER.STEPDOWN.t-0"
    assert (outcome.is_accepted, outcome.is_known) == (False, is_known)


def test_what_jetstream_cannot_do_is_refused() -> None:
    unclean = ElectLeader(topic="t", partition=0, unclean=True)
    assert "no unclean elections" in SYSTEM.refusal(unclean)
    assert "alter_feature" in SYSTEM.refusal(AlterFeature(feature="f", level=1))
    assert SYSTEM.refusal(Reassign(topic="t", partition=0, replicas=())) == ""


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

    async def ask(self, subject: str, payload: bytes = b"", headers: Any = None) -> Any:
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
