"""What Kafka's own command-line tools request, with Apache Kafka's Java client."""

import subprocess
from pathlib import Path

import pytest
from wire_helpers import SharedCluster, new_name

from tests.kafka_jars import kafka_or_skip

pytestmark = [pytest.mark.wire, pytest.mark.long]

VERSION = "4.1.2"
PROGRAM = Path(__file__).with_name("AdminTour.java")
LIMIT_S = 240


def toured(cluster: SharedCluster, topic: str, group: str) -> dict[str, str]:
    """Runs the program and returns what it printed."""
    cache, java = kafka_or_skip(VERSION)
    if not (java.home / "bin" / "javac").is_file():
        pytest.skip(f"{java.home} has no compiler; install a JDK")
    classes = ":".join(str(path) for path in cache.jar_paths)
    command = [
        str(java.home / "bin" / "java"),
        "-XX:TieredStopAtLevel=1",
        "-cp",
        classes,
        str(PROGRAM),
        cluster.bootstrap,
        topic,
        group,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.partition("=") for line in done.stdout.splitlines() if "=" in line]
    return {name: value for name, _, value in lines}


@pytest.mark.timeout(LIMIT_S + 60)
def test_groups_offsets_features_and_quorum_are_as_the_tools_expect_them(
    cluster: SharedCluster,
) -> None:
    topic = cluster.topic(partitions=1)
    found = toured(cluster, topic, new_name("tour"))
    assert (found["log_start"], found["log_end"], found["partitions"]) == ("0", "3", "1")
    assert (found["producers"], found["last_sequence"]) == ("1", "2")
    assert (found["live_state"], found["live_members"]) == ("Stable", "1")
    assert found["live_assignment"] == "1"
    assert found["live_delete"] == "GroupNotEmptyException"
    assert found["live_delete_offsets"] == "GroupSubscribedToTopicException"
    assert (found["empty_state"], found["listed"]) == ("Empty", "Empty Classic")
    assert (found["committed"], found["reset"]) == ("3", "1")
    assert (found["delete_offsets"], found["after_delete_offsets"]) == ("null", "null")
    assert (found["delete"], found["gone"]) == ("null", "GroupIdNotFoundException")
    assert "metadata.version" in found["finalized"]
    assert "eligible.leader.replicas.version" in found["supported"]
    assert found["has_epoch"] == "true"
    assert (found["voters"], found["observers"], found["has_leader"]) == ("3", "3", "true")
    assert (found["low_watermark"], found["start_after_delete"]) == ("2", "2")
    assert found["delete_too_much"] == "OffsetOutOfRangeException"
    assert (found["directories"], found["replicas_in_directories"]) == ("3", "3")
