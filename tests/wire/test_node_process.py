"""One node as a process: its file, its life, its end."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from wire_helpers import eventually

from harness.environments.local.standing import LocalCluster, LocalNode, local_settings
from harness.systems.reference.node_files import CLUSTER_ID
from harness.systems.reference.status import broker_count
from system_under_test.real.events import parse_event
from system_under_test.real.node_file import NodeFileError, read_node_file
from system_under_test.real.observer import open_events
from tests.parts import parts

GOOD = """
node_id = 1
role = "broker"
listen = "127.0.0.1:19092"
data_dir = "data"
cluster_id = "c"
voters = ["11@127.0.0.1:19093"]
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "node.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_good_file_is_read_with_kafkas_defaults(tmp_path: Path) -> None:
    node = read_node_file(
        write(tmp_path, GOOD + "[broker]\nnum_partitions = 3\n[log]\nsegment_bytes = 1000\n")
    )
    assert node.name == "b1"
    assert node.data_dir == tmp_path / "data"
    assert node.config.num_partitions == 3
    assert node.config.log.segment_bytes == 1000
    assert node.config.timings.broker_session_timeout_ms == 9000
    assert node.config.advertised_address == "127.0.0.1:19092"


def test_a_broker_may_have_several_log_directories(tmp_path: Path) -> None:
    one = read_node_file(write(tmp_path, GOOD)).config
    assert (one.log_dirs, one.log_dirs_root) == (("data",), str(tmp_path / "data"))
    several = GOOD.replace("cluster_id", 'log_dirs = ["data", "data2"]\ncluster_id')
    assert read_node_file(write(tmp_path, several)).config.log_dirs == ("data", "data2")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("node_id = 1", ""), "'node_id' is missing"),
        (("node_id = 1", "node_id = -1"), "use 0 or more"),
        (("node_id = 1", "node_id = true"), "must be of type int"),
        (('role = "broker"', 'role = "king"'), 'use "broker" or "controller"'),
        (('role = "broker"', 'role = "controller"'), "voters does not name this controller"),
        (("127.0.0.1:19092", "127.0.0.1"), 'write "host:port"'),
        (("127.0.0.1:19092", "127.0.0.1:99999"), 'write "host:port"'),
        (("11@127.0.0.1:19093", "127.0.0.1:19093"), 'write "id@host:port"'),
        (('["11@127.0.0.1:19093"]', "[]"), "voters is empty"),
        (('["11@127.0.0.1:19093"]', '["1@a:1", "1@b:1"]'), "names a controller twice"),
        (("cluster_id", "profile = 'kafka-9.9'\ncluster_id"), "did you mean|known:"),
        (("cluster_id", "timings = 'slow'\ncluster_id"), "use fast or kafka|use kafka or fast"),
        (("cluster_id", "disabled_rules = ['HW-99']\ncluster_id"), "no switchable rule"),
        (("cluster_id", "log_dirs = ['/tmp/x']\ncluster_id"), "names of directories in data_dir"),
        (("cluster_id", "log_dirs = ['a', 'a']\ncluster_id"), "each once"),
        (("cluster_id", "log_dirs = []\ncluster_id"), "one directory or more"),
        (("cluster_id", "lisen = 'x'\ncluster_id"), "did you mean listen"),
        (
            ("cluster_id", "[broker]\nnum_partition = 1\n[x]\ncluster_id"),
            "is not a setting of a node",
        ),
        (("node_id = 1", "node_id = ="), "is not TOML"),
    ],
)
def test_a_wrong_file_is_refused_in_one_sentence(
    tmp_path: Path, change: tuple[str, str], sentence: str
) -> None:
    path = write(tmp_path, GOOD.replace(*change))
    with pytest.raises(NodeFileError, match=sentence) as refused:
        read_node_file(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_node_may_listen_on_all_addresses_if_it_advertises_one(tmp_path: Path) -> None:
    text = GOOD.replace("127.0.0.1:19092", "0.0.0.0:19092") + 'advertised = "broker-1:19092"\n'
    node = read_node_file(write(tmp_path, text))
    assert (node.config.address, node.config.advertised_address) == (
        "0.0.0.0:19092",
        "broker-1:19092",
    )


def test_a_missing_file_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(NodeFileError, match="cannot be read"):
        read_node_file(tmp_path / "nothing.toml")


COMMANDS = [("system_under_test",), ("harness.cli", "broker")]


def refusal(module: tuple[str, ...], *arguments: str) -> tuple[int, str]:
    """Returns how a node that cannot start ends: its exit code and its one sentence."""
    command = [sys.executable, "-m", *module, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    (sentence,) = ended.stderr.splitlines()
    assert sentence.startswith("laststand: ")
    assert "Error" not in sentence
    assert "harness failure" not in sentence
    return ended.returncode, sentence


@pytest.mark.parametrize("module", COMMANDS)
def test_the_commands_report_the_error_and_exit_with_254(
    tmp_path: Path, module: tuple[str, ...]
) -> None:
    path = write(tmp_path, GOOD.replace("broker", "king"))
    assert refusal(module, "--config", str(path))[0] == 254
    assert refusal(module, "--config", str(tmp_path)) == (
        254,
        f"laststand: {tmp_path} cannot be read: Is a directory",
    )
    assert refusal(module)[0] == 254
    assert refusal(module, "--confog", "x")[0] == 254


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster.create(
        tmp_path / "nodes",
        brokers=1,
        controllers=1,
        settings=local_settings(timings="fast", with_events=True),
    ) as cluster:
        cluster.start()
        cluster.wait_ready(60)
        yield cluster


pytestmark = pytest.mark.wire


def events_of(cluster: LocalCluster, name: str) -> list[str]:
    lines = (cluster.nodes[name].directory / "events.jsonl").read_bytes().splitlines()
    return [parse_event(line).event for line in lines]


def test_sigterm_is_a_controlled_shutdown_that_writes_the_clean_marker(pair: LocalCluster) -> None:
    marker = pair.nodes["b1"].directory / "data" / "data" / ".kafka_cleanshutdown"
    assert not marker.exists()
    assert pair.stop("b1") == 0
    assert marker.exists()
    assert events_of(pair, "b1")[0] == "started"
    assert events_of(pair, "b1")[-1] == "stopped"
    pair.start_node("b1")
    eventually(lambda: broker_count(pair.nodes["b1"].address) == 1)
    assert not marker.exists()


def test_sigkill_leaves_no_marker_and_the_node_comes_back(pair: LocalCluster) -> None:
    assert pair.kill("b1") == -signal.SIGKILL
    assert not (pair.nodes["b1"].directory / "data" / "data" / ".kafka_cleanshutdown").exists()
    assert events_of(pair, "b1")[-1] != "stopped"
    pair.start_node("b1")
    eventually(lambda: broker_count(pair.nodes["b1"].address) == 1)


@pytest.mark.parametrize("module", parts(COMMANDS, quick=1))
def test_a_node_that_cannot_start_reports_why_and_exits_with_255(
    pair: LocalCluster, tmp_path: Path, module: tuple[str, ...]
) -> None:
    node = pair.nodes["b1"]
    text = (node.directory / "node.toml").read_text(encoding="utf-8")

    def said(text: str) -> str:
        code, sentence = refusal(module, "--config", str(write(tmp_path, text)))
        assert code == 255
        return sentence

    own = f'data_dir = "{node.directory}/data"'
    assert own in text
    elsewhere = text.replace(own, 'data_dir = "data"')
    assert re.search(r"cannot listen on 127\.0\.0\.1:\d+: Address already in use", said(elsewhere))
    in_use = text
    assert "in use by another process" in said(in_use)
    pair.kill("b1")
    of_another_node = in_use.replace("node_id = 1\n", "node_id = 2\n")
    assert f"belongs to node 1 of cluster {CLUSTER_ID}" in said(of_another_node)
    of_another_cluster = in_use.replace(f'"{CLUSTER_ID}"', '"another"')
    assert "this is node 1 of cluster another" in said(of_another_cluster)
    (tmp_path / "file").touch()
    assert "cannot be used" in said(text.replace(own, 'data_dir = "file/data"'))


@pytest.mark.long
def test_a_node_that_loses_its_disk_ends_with_an_error(pair: LocalCluster) -> None:
    node = pair.nodes["c11"]
    log = next((node.directory / "data").rglob("__cluster_metadata-0/*.log"))
    descriptors = Path(f"/proc/{node.pid}/fd")
    assert any(os.path.realpath(one) == str(log) for one in descriptors.iterdir())
    # Every further append fails: files may not grow.
    import resource

    size = log.stat().st_size
    resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (size, size))
    eventually(lambda: not node.is_alive, what="the controller ends")
    assert node.exit_code not in (0, None)
    assert pair.kill("c11") is not None


def tear(node: LocalNode) -> None:
    """Leaves half a batch at the end of the log, as a crash of the machine does."""
    log = node.directory / "data" / "data" / "t-0" / "00000000000000000000.log"
    log.write_bytes(log.read_bytes()[:-1])


def flip(node: LocalNode) -> None:
    """Damages the last batch."""
    log = node.directory / "data" / "data" / "t-0" / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)


@pytest.mark.parametrize(
    ("ends", "damages", "why"),
    [
        ("kill", tear, "incomplete, "),
        ("kill", flip, "its checksum does not match"),
        ("stop", tear, "incomplete, "),
    ],
)
def test_a_node_reports_what_it_truncates_from_its_logs(
    pair: LocalCluster, ends: str, damages: Callable[[LocalNode], None], why: str
) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": pair.bootstrap, "acks": "all", "linger.ms": 0})
    for number in range(3):
        producer.produce("t", b"%d" % number, partition=0)
        assert producer.flush(20) == 0
    node = pair.nodes["b1"]
    getattr(pair, ends)("b1")
    damages(node)
    pair.start_node("b1")

    def told() -> list[str]:
        text = (node.directory / "node.log").read_text(encoding="utf-8")
        return [line for line in text.splitlines() if "was cut" in line]

    (line,) = eventually(told)
    assert line.startswith(
        "laststand: log t-0 was cut when it was loaded: it now ends at offset 2, "
    )
    assert why in line


def test_a_node_reports_when_a_leader_shortens_its_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    observer = open_events(None, "b1")
    observer.mark("elected-from-elr", topic="t")
    observer.mark(
        "truncated",
        topic="t",
        partition=0,
        leader_epoch=3,
        end_before=9,
        end_after=7,
        high_watermark=7,
    )
    observer.mark("metadata-truncated", offset=4, log_end_offset=6)
    partition, metadata = capsys.readouterr().err.splitlines()
    assert "log t-0 was truncated from offset 9 to 7" in partition
    assert "the metadata log was truncated from offset 6 to 4" in metadata


def test_nodes_of_a_run_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from harness.environments.local.standing import LocalCluster, local_settings\n"
        "settings = local_settings(timings='fast')\n"
        "cluster = LocalCluster.create("
        "Path(sys.argv[1]), brokers=1, controllers=1, settings=settings)\n"
        "cluster.start()\n"
        "cluster.wait_ready(60)\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "nodes")], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    with parent.stdout:
        assert parent.stdout.readline() == "ready\n"
        nodes = LocalCluster.attach(tmp_path / "nodes").nodes
        assert all(node.is_alive for node in nodes.values())
        parent.kill()
        parent.wait()
        deadline_s = time.monotonic() + 10
        while any(node.is_alive for node in nodes.values()):
            assert time.monotonic() < deadline_s, "a node outlived its run"
            time.sleep(0.05)
