import base64
from pathlib import Path

import pytest

from harness.contracts.system import Node
from harness.errors import UsageError
from harness.java import JavaRuntime
from harness.systems.apache_kafka.cache import version_cache
from harness.systems.apache_kafka.storage import directory_id, disk_files, formatted_files
from harness.systems.apache_kafka.versions import ELR_FEATURE, feature_levels, parse_version
from tests.kafka_jars import kafka_or_skip

BROKER = Node(name="b1", role="broker", node_id=1, address="127.0.0.1:9092")


def test_a_node_has_the_files_of_the_tool_in_its_first_log_directory() -> None:
    files = disk_files(
        parse_version("4.1.2"), BROKER, {"bootstrap.checkpoint": b"x"}, log_dirs=("data", "data2")
    )
    assert sorted(files) == [
        "data/bootstrap.checkpoint",
        "data/meta.properties",
        "data2/meta.properties",
    ]
    lines = files["data/meta.properties"].decode().splitlines()
    assert lines[0] == "cluster.id=bGFzdHN0YW5kLWthZmthMQ"
    assert lines[1] == f"directory.id={directory_id(1, 0)}"
    assert lines[2:] == ["node.id=1", "version=1"]
    assert directory_id(1, 1) in files["data2/meta.properties"].decode()


def test_directories_have_no_identifier_before_3_7() -> None:
    meta = disk_files(parse_version("3.6.2"), BROKER, {})["data/meta.properties"].decode()
    assert "directory.id" not in meta
    assert (
        "directory.id"
        in disk_files(parse_version("3.7.2"), BROKER, {})["data/meta.properties"].decode()
    )


def test_directory_identifiers_are_distinct_repeatable_and_legal() -> None:
    arguments = [
        (node, number, seed, generation)
        for node in range(12)
        for number in range(2)
        for seed in range(8)
        for generation in range(3)
    ]
    made = [directory_id(a, b, seed=c, generation=d) for a, b, c, d in arguments]
    assert made == [directory_id(a, b, seed=c, generation=d) for a, b, c, d in arguments]
    assert len(set(made)) == len(arguments)
    for identifier in made:
        assert len(identifier) == 22
        assert not identifier.startswith("-")
        assert len(base64.urlsafe_b64decode(identifier + "==")) == 16


def test_a_version_that_is_not_fetched_is_refused_with_the_command(tmp_path: Path) -> None:
    cache = version_cache(parse_version("4.1.2"), tmp_path)
    java = JavaRuntime(home=tmp_path, version="17", source="PATH")
    with pytest.raises(
        UsageError, match=r"`laststand system fetch apache-kafka 4\.1\.2` gets them"
    ):
        formatted_files(cache, java, "broker", {})


@pytest.mark.wire
@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("3.6.2", {"bootstrap.checkpoint"}),
        ("4.1.2", {"bootstrap.checkpoint"}),
        ("4.4.0", {"__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"}),
    ],
)
def test_the_tool_formats_once_per_role_and_feature_levels(
    version: str, names: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched, java = kafka_or_skip(version)
    cache = version_cache(fetched.version, tmp_path)
    cache.directory.mkdir(parents=True)
    cache.lib.symlink_to(fetched.lib)
    levels = feature_levels(cache.version)
    first = formatted_files(cache, java, "controller", levels)
    assert set(first) == names
    monkeypatch.setattr(
        "harness.systems.apache_kafka.storage.subprocess.run",
        lambda *_, **__: pytest.fail("ran again"),
    )
    assert formatted_files(cache, java, "controller", levels) == first


@pytest.mark.wire
def test_the_reason_of_the_tool_is_reported(tmp_path: Path) -> None:
    fetched, java = kafka_or_skip("4.1.2")
    cache = version_cache(fetched.version, tmp_path)
    cache.directory.mkdir(parents=True)
    cache.lib.symlink_to(fetched.lib)
    with pytest.raises(UsageError, match=r"StorageTool of Apache Kafka 4\.1\.2 failed: .*no-such"):
        formatted_files(cache, java, "broker", {}, release="no-such")
    with pytest.raises(UsageError, match=ELR_FEATURE):
        formatted_files(cache, java, "broker", {ELR_FEATURE: 9})
    assert [path.name for path in cache.directory.iterdir()] == ["lib"]
