import re

import pytest

from harness.systems.apache_kafka.jars import (
    LOCK_DIRECTORY,
    Jar,
    lock_text,
    locked_jars,
    locked_tools,
    parse_coordinates,
    parse_lock,
)
from harness.systems.apache_kafka.lock import WITHOUT_TOOLS
from harness.systems.apache_kafka.versions import SUPPORTED, Version


@pytest.mark.parametrize("version", SUPPORTED, ids=str)
def test_every_supported_version_is_locked_completely(version: Version) -> None:
    jars = locked_jars(version)
    names = [jar.file_name for jar in jars]
    assert names == sorted(set(names))
    assert all(jar.bytes > 0 and re.fullmatch("[0-9a-f]{64}", jar.sha256) for jar in jars)
    needed = {"kafka_2.13", "kafka-clients", "kafka-metadata", "kafka-raft", "scala-library"}
    assert needed <= {jar.artifact for jar in jars}
    assert {jar.version for jar in jars if jar.group == "org.apache.kafka"} == {str(version)}
    backends = {jar.artifact for jar in jars} & {"log4j-slf4j-impl", "slf4j-reload4j"}
    assert backends == {"log4j-slf4j-impl" if version.uses_log4j2 else "slf4j-reload4j"}


def test_lock_files_are_canonical_and_name_no_repository() -> None:
    files = sorted(LOCK_DIRECTORY.iterdir())
    assert {file.name for file in files} == {f"{version}.toml" for version in SUPPORTED}
    for version in SUPPORTED:
        text = (LOCK_DIRECTORY / f"{version}.toml").read_text()
        assert text == lock_text(version, locked_jars(version), locked_tools(version))
        assert "://" not in text


@pytest.mark.parametrize("version", SUPPORTED, ids=str)
def test_the_tools_of_every_version_are_locked_beside_the_jars_of_its_nodes(
    version: Version,
) -> None:
    tools = locked_tools(version)
    published = [] if str(version) in WITHOUT_TOOLS else [("kafka-tools", str(version))]
    assert [(jar.artifact, jar.version) for jar in tools] == published
    assert all(jar.bytes > 0 and re.fullmatch("[0-9a-f]{64}", jar.sha256) for jar in tools)
    assert not set(tools) & set(locked_jars(version))


def test_a_classifier_is_part_of_names_and_paths() -> None:
    (jar,) = parse_lock(
        '[jars]\n"io.netty:epoll:4.1.9:linux-x86_64" = { bytes = 5, sha256 = "ab" }\n'
    )
    assert jar == Jar(
        group="io.netty",
        artifact="epoll",
        version="4.1.9",
        classifier="linux-x86_64",
        bytes=5,
        sha256="ab",
    )
    assert jar.repository_path == "io/netty/epoll/4.1.9/epoll-4.1.9-linux-x86_64.jar"
    assert jar.coordinates == "io.netty:epoll:4.1.9:linux-x86_64"


@pytest.mark.parametrize("text", ["a:b", "a:b:c:d:e", "a:../b:c", "a:b:c/d", ""])
def test_coordinates_cannot_name_another_path(text: str) -> None:
    with pytest.raises(ValueError, match="is not of the form"):
        parse_coordinates(text)
