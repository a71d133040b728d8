"""`laststand cluster`: what it prints, what it leaves, and what it refuses."""

import itertools
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from wire_helpers import eventually

from harness import exit_codes
from harness.cli.main import main
from harness.environments.local.standing import LocalCluster
from nemesis.agent.processes.procfs import process_start

pytestmark = pytest.mark.wire


class Shell:
    """Runs commands in one directory and keeps what they printed."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self._capsys = capsys

    def __call__(self, *words: str, expect: int = 0) -> str:
        code = main(["cluster", *words, "--directory", str(self.directory)])
        out, err = self._capsys.readouterr()
        assert code == expect, out + err
        assert not expect or len(err.strip().splitlines()) == 1
        return out + err

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--json"))


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Shell]:
    shell = Shell(tmp_path / "cluster", capsys)
    yield shell
    if (shell.directory / "cluster.json").exists():
        shell("down")


def states_in(text: str) -> dict[str, str]:
    """The states of the nodes in the first table of `status`, by name."""
    rows = itertools.takewhile(str.strip, text.splitlines()[2:])
    return {row.split()[0]: row.replace(" (active)", "").split()[2] for row in rows}


def test_a_cluster_starts_is_described_and_leaves_nothing(shell: Shell) -> None:
    up = shell.json("up", "--timings", "fast", "--brokers", "3", "--controllers", "1")
    addresses = up["bootstrap"].split(",")
    assert len(addresses) == 3
    status = shell.json("status")
    pids = [node["pid"] for node in status["nodes"]]
    assert [node["state"] for node in status["nodes"]] == ["up"] * 4
    assert status["quorum"]["leader"] == 11
    text = shell("status")
    assert "Metadata quorum: leader 11" in text
    assert "stopped 4 nodes" in shell("down")
    assert all(not process_start(pid) for pid in pids)
    assert not shell.directory.exists()
    for address in addresses:
        host, _, port = address.rpartition(":")
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, int(port)))


@pytest.mark.long
def test_one_broker_is_enough_for_groups_and_transactions(shell: Shell) -> None:
    """Internal topics have at most as many replicas as there are brokers; with three, InitProducerId times out."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    bootstrap = shell.json("up", "--timings", "fast", "--brokers", "1", "--controllers", "1")[
        "bootstrap"
    ]
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "payments"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("t", b"paid")
    producer.commit_transaction(30)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.assign([TopicPartition("t", 0, 0)])
        message = eventually(lambda: consumer.poll(1.0))
        assert (message.error(), message.value()) == (None, b"paid")
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def test_nodes_are_killed_paused_and_started_by_name(shell: Shell) -> None:
    shell("up", "--timings", "fast", "--controllers", "1")

    def states() -> dict[str, str]:
        return {node["name"]: node["state"] for node in shell.json("status")["nodes"]}

    assert shell("kill", "b2") == "kill b2: down\n"
    assert shell("pause", "b3") == "pause b3: paused\n"
    assert states() == {"c11": "up", "b1": "up", "b2": "down", "b3": "paused"}
    assert "laststand cluster start b2" in shell("kill", "b2", expect=exit_codes.USAGE)
    shell("resume", "b3")
    shell("start", "b2")
    eventually(lambda: set(states().values()) == {"up"})
    assert shell("stop", "b1") == "stop b1: down\n"
    assert "known: c11, b1, b2, b3" in shell("kill", "b9", expect=exit_codes.USAGE)


def test_the_table_has_leader_isr_elr_epochs_and_high_watermark(shell: Shell) -> None:
    bootstrap = shell.json("up", "--timings", "fast", "--controllers", "1")["bootstrap"]
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic("t", 1, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([topic])["t"].result(20)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for _ in range(7):
        producer.produce("t", b"x", partition=0)
    assert producer.flush(20) == 0
    (partition,) = eventually(
        lambda: (
            (found := shell.json("status")["partitions"])
            and found[0]["high_watermark"] == 7
            and found
        )
    )
    assert sorted(partition["isr"]) == [1, 2, 3]
    followers = [f"b{one}" for one in partition["replicas"] if one != partition["leader"]]
    for name in followers:
        shell("kill", name)
    (partition,) = eventually(
        lambda: (
            (found := shell.json("status")["partitions"]) and len(found[0]["isr"]) == 1 and found
        )
    )
    assert len(partition["elr"]) == 1
    header, _, row = shell("status").splitlines()[-3:]
    names = re.split(r"  +", header.strip())
    shown = dict(zip(names, row.split(), strict=True))
    assert shown["topic"] == "t"
    assert shown["partition"] == "0"
    assert shown["leader"] == str(partition["leader"])
    assert shown["leader epoch"] == str(partition["leader_epoch"])
    assert shown["replicas"] == ",".join(str(one) for one in partition["replicas"])
    assert shown["ISR"] == ",".join(str(one) for one in partition["isr"])
    assert shown["ELR"] == ",".join(str(one) for one in partition["elr"])
    assert shown["last known ELR"] == "none"
    assert shown["high watermark"] == "7"


def test_a_second_cluster_in_the_same_place_is_refused(shell: Shell) -> None:
    shell("up", "--timings", "fast", "--brokers", "1", "--controllers", "1")
    assert "already" in shell("up", expect=exit_codes.USAGE)


@pytest.mark.parametrize("action", [("status",), ("down",), ("kill", "b1")])
def test_without_a_cluster_the_commands_explain_how_to_start_one(
    shell: Shell, action: tuple[str, ...]
) -> None:
    assert "`laststand cluster up` starts one" in shell(*action, expect=exit_codes.USAGE)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--brokers", "0"), "choose 1 to 10"),
        (("--controllers", "99"), "choose 1 to 9"),
        (("--profile", "kafka-1"), "known: kafka-3.4"),
        (("--timings", "slow"), "fast or kafka"),
        (("--port", "99999"), "leaves room"),
    ],
)
def test_wrong_numbers_and_names_are_refused(
    shell: Shell, words: tuple[str, ...], sentence: str
) -> None:
    assert sentence in shell("up", *words, expect=exit_codes.USAGE)
    assert not shell.directory.exists()


@pytest.mark.parametrize("place", ["/proc/nothing", "file/below", "file"])
def test_a_path_that_cannot_hold_a_cluster_is_reported(
    shell: Shell, tmp_path: Path, place: str
) -> None:
    (tmp_path / "file").write_text("not a directory")
    shell.directory = tmp_path / place
    assert "choose another with --directory" in shell("up", expect=exit_codes.USAGE)
    assert "`laststand cluster up` starts one" in shell("status", expect=exit_codes.USAGE)


def test_a_port_that_is_taken_is_reported(shell: Shell) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        output = shell("up", "--port", str(port), "--brokers", "1", expect=exit_codes.USAGE)
        assert f"port {port} is taken" in output


def test_a_damaged_state_file_is_reported(shell: Shell) -> None:
    shell.directory.mkdir()
    (shell.directory / "cluster.json").write_text("{")
    assert "is damaged" in shell("status", expect=exit_codes.USAGE)
    (shell.directory / "cluster.json").unlink()


def test_down_works_when_every_node_is_already_dead(shell: Shell) -> None:
    shell("up", "--timings", "fast", "--brokers", "1", "--controllers", "1")
    cluster = LocalCluster.attach(shell.directory)
    for name in cluster.nodes:
        cluster.kill(name)
    text = shell("status", expect=exit_codes.FAILURE)
    assert "Partitions: unavailable: every broker is down" in text
    assert states_in(text) == {"c11": "down", "b1": "down"}
    assert "laststand: some values are unavailable: partitions, quorum" in text
    data = json.loads(shell("status", "--json", expect=exit_codes.FAILURE).splitlines()[0])
    assert (data["partitions"], data["quorum"], len(data["nodes"])) == (None, None, 2)
    assert set(data["unavailable"]) == {"partitions", "quorum"}
    assert "stopped 0 nodes" in shell("down")
    assert not shell.directory.exists()


@pytest.mark.long
def test_without_a_quorum_nodes_and_partitions_are_still_reported(shell: Shell) -> None:
    bootstrap = shell.json("up", "--timings", "fast")["bootstrap"]
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 1, 3)])["t"].result(20)
    eventually(lambda: shell.json("status")["partitions"])
    before = shell.json("status")
    assert before["unavailable"] == {}
    # The leader goes first: as the only survivor it would lead until it notices that no follower fetches.
    leader = f"c{before['quorum']['leader']}"
    killed = sorted([leader, "c12" if leader == "c11" else "c11"])
    for name in killed:
        shell("kill", name)
    text = shell("status", expect=exit_codes.FAILURE)
    why = f"{killed[0]} is down, {killed[1]} is down, and 2 of 3 controllers must be up"
    assert f"Metadata quorum: unavailable: {why}" in text
    assert text.splitlines()[-2].split()[:2] == ["t", "0"]
    states = states_in(text)
    assert len(states) == 6
    assert {name for name in states if states[name] == "down"} == set(killed)
    data = json.loads(shell("status", "--json", expect=exit_codes.FAILURE).splitlines()[0])
    assert data["quorum"] is None
    assert [one["topic"] for one in data["partitions"]] == ["t"]
    assert data["unavailable"].keys() == {"quorum"}


def test_a_recycled_pid_is_not_killed(shell: Shell) -> None:
    """The state file names this very process, with another start time: it is another process."""
    import os

    shell("up", "--timings", "fast", "--brokers", "1", "--controllers", "1")
    path = shell.directory / "cluster.json"
    cluster = LocalCluster.attach(shell.directory)
    for name in cluster.nodes:
        cluster.kill(name)
    data = json.loads(path.read_text())
    data["nodes"][0]["pid"] = os.getpid()
    data["nodes"][0]["began"] = process_start(os.getpid()) - 1
    path.write_text(json.dumps(data))
    assert "stopped 0 nodes" in shell("down")


def test_a_node_that_cannot_start_is_reported_with_its_final_log_lines(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = LocalCluster.create

    def broken(*args: Any, **changes: Any) -> LocalCluster:
        cluster = create(*args, **changes)
        path = cluster.nodes["b1"].directory / "node.toml"
        path.write_text(path.read_text().replace('role = "broker"', 'role = "king"'))
        return cluster

    monkeypatch.setattr(LocalCluster, "create", broken)
    output = shell("up", "--timings", "fast", "--controllers", "1", expect=exit_codes.FAILURE)
    assert "b1 died while it started" in output
    assert "king" in output
    assert not (shell.directory / "cluster.json").exists()
