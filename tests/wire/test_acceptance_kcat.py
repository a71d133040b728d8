"""kcat (librdkafka's command line) against a real cluster."""

import json
import shutil
import subprocess
import threading
from collections.abc import Callable

import pytest
from wire_helpers import SharedCluster, eventually, new_name

pytestmark = [
    pytest.mark.wire,
    pytest.mark.skipif(
        shutil.which("kcat") is None, reason="kcat is not installed (apt install kcat)"
    ),
]

Kcat = Callable[..., str]


@pytest.fixture
def kcat(bootstrap: str) -> Kcat:
    """Runs kcat to its end and returns what it printed; fails when it fails."""

    def run(*arguments: str, stdin: str = "") -> str:
        done = subprocess.run(
            ["kcat", "-b", bootstrap, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_list_shows_brokers_topics_leaders_and_replicas(kcat: Kcat, cluster: SharedCluster) -> None:
    topic = cluster.topic(partitions=2)
    listed = json.loads(kcat("-L", "-J", "-t", topic))
    assert sorted(broker["id"] for broker in listed["brokers"]) == [1, 2, 3]
    (described,) = listed["topics"]
    assert described["topic"] == topic
    for partition in described["partitions"]:
        assert partition["leader"] in (1, 2, 3)
        assert sorted(replica["id"] for replica in partition["replicas"]) == [1, 2, 3]
        assert sorted(replica["id"] for replica in partition["isrs"]) == [1, 2, 3]
    assert f'topic "{topic}" with 2 partitions' in kcat("-L")


def test_what_is_produced_line_by_line_is_consumed_line_by_line(
    kcat: Kcat, cluster: SharedCluster
) -> None:
    topic = cluster.topic()
    lines = "".join(f"line {number}\n" for number in range(100))
    kcat("-P", "-t", topic, stdin=lines)
    assert kcat("-C", "-t", topic, "-e", "-q") == lines


def test_keys_headers_and_offsets_are_printed(kcat: Kcat, cluster: SharedCluster) -> None:
    topic = cluster.topic()
    kcat("-P", "-t", topic, "-K:", "-H", "origin=test", stdin="one:1\ntwo:2\n")
    printed = kcat("-C", "-t", topic, "-e", "-q", "-f", "%p %o %k %s %h\n")
    assert printed.splitlines() == ["0 0 one 1 origin=test", "0 1 two 2 origin=test"]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_arrive_compressed_and_are_read_back(
    kcat: Kcat, cluster: SharedCluster, codec: str
) -> None:
    topic = cluster.topic()
    lines = "the same words again and again\n" * 2000
    kcat("-P", "-t", topic, "-z", codec, "-X", "linger.ms=100", stdin=lines)
    assert kcat("-C", "-t", topic, "-e", "-q") == lines
    # Old librdkafka silently sends plain batches to brokers that do not advertise Produce v0.
    leader = cluster.local.nodes[cluster.leader(topic)]
    eventually(lambda: list(leader.directory.glob(f"data/**/{topic}-0/*.log")))
    (segment,) = leader.directory.glob(f"data/**/{topic}-0/*.log")
    assert segment.stat().st_size < len(lines) / 4


@pytest.mark.parametrize("acks", ["0", "1", "-1"])
def test_all_acks_settings_work(kcat: Kcat, cluster: SharedCluster, acks: str) -> None:
    topic = cluster.topic()
    kcat("-P", "-t", topic, "-X", f"acks={acks}", stdin="a\nb\n")
    assert eventually(lambda: kcat("-C", "-t", topic, "-e", "-q")) == "a\nb\n"


def test_an_idempotent_producer_works(kcat: Kcat, cluster: SharedCluster) -> None:
    topic = cluster.topic()
    kcat("-P", "-t", topic, "-X", "enable.idempotence=true", stdin="a\nb\n")
    assert kcat("-C", "-t", topic, "-e", "-q") == "a\nb\n"


def test_reading_may_start_anywhere(kcat: Kcat, cluster: SharedCluster) -> None:
    topic = cluster.topic()
    kcat("-P", "-t", topic, stdin="".join(f"{number}\n" for number in range(10)))
    assert kcat("-C", "-t", topic, "-e", "-q", "-o", "7") == "7\n8\n9\n"
    assert kcat("-C", "-t", topic, "-e", "-q", "-o", "-2") == "8\n9\n"
    assert kcat("-C", "-t", topic, "-e", "-q", "-o", "beginning", "-c", "1") == "0\n"


def test_offsets_are_queried_by_time(kcat: Kcat, cluster: SharedCluster) -> None:
    topic = cluster.topic()
    kcat("-P", "-t", topic, stdin="a\nb\n")
    assert f"{topic} [0] offset 0" in kcat("-Q", "-t", f"{topic}:0:1")
    assert f"{topic} [0] offset 2" in kcat("-Q", "-t", f"{topic}:0:-1")


def test_a_group_reads_everything_once_and_resumes_where_it_stopped(
    kcat: Kcat, cluster: SharedCluster
) -> None:
    topic, group = cluster.topic(partitions=2), new_name("group")
    settings = ("-X", "auto.offset.reset=earliest", "-q", "-e")
    kcat("-P", "-t", topic, "-p", "0", stdin="a\nb\n")
    kcat("-P", "-t", topic, "-p", "1", stdin="c\n")
    first = kcat("-G", group, *settings, topic)
    assert sorted(first.split()) == ["a", "b", "c"]
    kcat("-P", "-t", topic, "-p", "1", stdin="d\n")
    assert kcat("-G", group, *settings, topic).split() == ["d"]


def test_two_members_of_a_group_share_the_work(
    kcat: Kcat, cluster: SharedCluster, bootstrap: str
) -> None:
    topic, group = cluster.topic(partitions=2), new_name("group")
    command = ["kcat", "-b", bootstrap, "-G", group, "-u", "-q", "-X", "auto.offset.reset=earliest"]
    members = [
        subprocess.Popen([*command, topic], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    printed: list[list[str]] = [[], []]

    def listen(index: int) -> None:
        pipe = members[index].stdout
        assert pipe is not None
        with pipe:
            printed[index].extend(line.strip() for line in iter(pipe.readline, ""))

    threads = [threading.Thread(target=listen, args=(index,)) for index in range(2)]
    try:
        for thread in threads:
            thread.start()
        sent = []

        def both_got_something() -> bool:
            for partition in (0, 1):
                sent.append(f"v{len(sent)}")
                kcat("-P", "-t", topic, "-p", str(partition), stdin=sent[-1] + "\n")
            return all(printed)

        eventually(both_got_something)
        eventually(lambda: {*printed[0], *printed[1]} == set(sent))
    finally:
        for member in members:
            member.terminate()
        for member, thread in zip(members, threads, strict=True):
            member.wait(30)
            thread.join(30)


def test_a_topic_is_created_by_the_first_produce_request(kcat: Kcat) -> None:
    topic = new_name("auto")
    kcat("-P", "-t", topic, stdin="a\n")
    assert kcat("-C", "-t", topic, "-e", "-q") == "a\n"
