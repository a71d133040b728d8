"""The lock files: which jars make up a version, by Maven coordinates and checksum.

`locks/VERSION.toml` is written by `python -m harness.systems.apache_kafka.lock`. A jar is the same wherever
it comes from, so a lock file has no address of a repository. The table `jars` has what a node needs, the table
`tools` what Kafka's command-line tools need in addition. Nodes do not get the tools on their class path.
"""

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from harness.systems.apache_kafka.versions import Version

LOCK_DIRECTORY = Path(__file__).parent / "locks"
_COORDINATES = re.compile(r"[\w.-]+:[\w.-]+:[\w.-]+(:[\w.-]+)?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Jar:
    """One jar.

    Attributes:
        group, artifact, version, classifier: Maven coordinates; the classifier is often empty.
        bytes: Size.
        sha256: Checksum, hexadecimal.
    """

    group: str
    artifact: str
    version: str
    classifier: str = ""
    bytes: int
    sha256: str

    @property
    def coordinates(self) -> str:
        """As Maven writes them: "group:artifact:version", with ":classifier" if there is one."""
        parts = (self.group, self.artifact, self.version, self.classifier)
        return ":".join(part for part in parts if part)

    @property
    def file_name(self) -> str:
        """Its name in a directory of jars."""
        suffix = f"-{self.classifier}" if self.classifier else ""
        return f"{self.artifact}-{self.version}{suffix}.jar"

    @property
    def repository_path(self) -> str:
        """Its path in a Maven repository, local or remote."""
        folder = self.group.replace(".", "/")
        return f"{folder}/{self.artifact}/{self.version}/{self.file_name}"


def parse_coordinates(text: str) -> tuple[str, str, str, str]:
    """Returns group, artifact, version and classifier.

    Raises:
        ValueError: The text is not of the form "group:artifact:version[:classifier]".
    """
    if not _COORDINATES.fullmatch(text):
        raise ValueError(f"{text!r} is not of the form group:artifact:version[:classifier]")
    group, artifact, version, *classifier = text.split(":")
    return group, artifact, version, classifier[0] if classifier else ""


@cache
def locked_jars(version: Version) -> tuple[Jar, ...]:
    """Returns the jars of a node of a supported version in the order of the class path."""
    return parse_lock(_text_of(version))


@cache
def locked_tools(version: Version) -> tuple[Jar, ...]:
    """Returns the jars that the command-line tools of a supported version need in addition to a node's."""
    return parse_lock(_text_of(version), "tools")


def _text_of(version: Version) -> str:
    return (LOCK_DIRECTORY / f"{version}.toml").read_text(encoding="utf-8")


def parse_lock(text: str, table: str = "jars") -> tuple[Jar, ...]:
    """Reads a table of a lock file.

    Args:
        text: Content of the file.
        table: "jars" or "tools".

    Returns:
        The jars by file name, which is the order of the class path.
    """
    jars = []
    for coordinates, entry in tomllib.loads(text)[table].items():
        group, artifact, version, classifier = parse_coordinates(coordinates)
        jars.append(
            Jar(
                group=group,
                artifact=artifact,
                version=version,
                classifier=classifier,
                bytes=int(entry["bytes"]),
                sha256=str(entry["sha256"]),
            )
        )
    return tuple(sorted(jars, key=lambda jar: jar.file_name))


def lock_text(version: Version, jars: Iterable[Jar], tools: Iterable[Jar]) -> str:
    """Returns the text of a lock file; the same jars always give the same text.

    Args:
        version: Which one.
        jars: What a node needs.
        tools: What the command-line tools need in addition.
    """
    head = (
        f"# The jars of a node of Apache Kafka {version}, and what its command-line tools need in addition.\n"
        f"# Written by `python -m harness.systems.apache_kafka.lock {version}`; do not edit.\n"
    )
    return head + _table_text("jars", jars) + _table_text("tools", tools)


def _table_text(name: str, jars: Iterable[Jar]) -> str:
    lines = [
        f'"{jar.coordinates}" = {{ bytes = {jar.bytes}, sha256 = "{jar.sha256}" }}\n'
        for jar in sorted(jars, key=lambda jar: jar.coordinates)
    ]
    return f"\n[{name}]\n" + "".join(lines)
