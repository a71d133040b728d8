"""Writes lock files with Maven: `python -m harness.systems.apache_kafka.lock VERSION ...`, or `--all`.

For maintainers, when a version is added: Maven resolves what a node and the command-line tools of that version
need, the jars are downloaded with their published checksums verified, and size and SHA-256 of each go into
`locks/VERSION.toml`.
Locking the same version again writes the same bytes.
"""

import argparse
import hashlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness.errors import HarnessError, UsageError
from harness.systems.apache_kafka.jars import LOCK_DIRECTORY, Jar, lock_text, parse_coordinates
from harness.systems.apache_kafka.maven import dependency, find_maven, project, run_on_project
from harness.systems.apache_kafka.versions import SUPPORTED, Version, parse_version

KAFKA = ("org.apache.kafka", "kafka_2.13")
"""The broker, the controller and StorageTool, with all they need except a logging backend."""
TOOLS = ("org.apache.kafka", "kafka-tools")
"""The command-line tools. Their other dependencies belong to a node, or are for Kafka Connect only."""
LOG4J2 = ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3")
RELOAD4J = ("org.slf4j", "slf4j-reload4j", "1.7.36")
UNPUBLISHED = {"4.4.0": ("org.apache.kafka:kafka-tools-api",)}
"""Dependencies that a release names and that were never published. No class of a node needs them."""
WITHOUT_TOOLS = frozenset({"4.4.0"})
"""Releases whose tools were never published."""


def lock(version: Version) -> str:
    """Returns the text of the lock file of a version.

    Raises:
        UsageError: Maven is missing or failed.
    """
    maven = find_maven()
    if maven is None:
        raise UsageError("lock files are made with Maven; install it")
    backend = LOG4J2 if version.uses_log4j2 else RELOAD4J
    excluded = UNPUBLISHED.get(str(version), ())
    dependencies = [dependency(*KAFKA, str(version), exclude=excluded), dependency(*backend)]
    if str(version) not in WITHOUT_TOOLS:
        dependencies.append(dependency(*TOOLS, str(version), exclude=("*:*",)))
    text = project(dependencies)
    with tempfile.TemporaryDirectory(prefix="laststand-lock-") as folder:
        copied = Path(folder) / "lib"
        listed = Path(folder) / "list"
        run_on_project(
            maven,
            text,
            [
                "--strict-checksums",
                "dependency:copy-dependencies",
                "dependency:list",
                f"-DoutputDirectory={copied}",
                "-DincludeScope=runtime",
                f"-DoutputFile={listed}",
            ],
        )
        found = _jars(listed.read_text(encoding="utf-8"), copied)
    tools = [jar for jar in found if (jar.group, jar.artifact) == TOOLS]
    return lock_text(version, (jar for jar in found if jar not in tools), tools)


def _jars(listed: str, copied: Path) -> list[Jar]:
    """Returns the jars that Maven listed, with size and checksum of the files that it copied."""
    jars = []
    for line in listed.splitlines():
        parts = line.split(" --")[0].strip().split(":")
        # group:artifact:jar[:classifier]:version:scope
        if len(parts) not in (5, 6) or parts[2] != "jar":
            continue
        group, artifact, _, *classifier, version, _ = parts
        parse_coordinates(":".join((group, artifact, version, *classifier)))
        jar = Jar(
            group=group,
            artifact=artifact,
            version=version,
            classifier="".join(classifier),
            bytes=0,
            sha256="",
        )
        content = (copied / jar.file_name).read_bytes()
        jars.append(_with_content(jar, content))
    if {jar.file_name for jar in jars} != {path.name for path in copied.iterdir()}:
        raise UsageError("Maven copied other jars than it listed; look at its output")
    return jars


def _with_content(jar: Jar, content: bytes) -> Jar:
    return Jar(
        group=jar.group,
        artifact=jar.artifact,
        version=jar.version,
        classifier=jar.classifier,
        bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the lock files that are asked for; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m harness.systems.apache_kafka.lock")
    parser.add_argument("versions", nargs="*", metavar="VERSION", help="for example 4.1.2")
    parser.add_argument("--all", action="store_true", help="every supported version")
    options = parser.parse_args(arguments)
    try:
        versions = SUPPORTED if options.all else [parse_version(one) for one in options.versions]
        if not versions:
            raise UsageError("name versions, or --all")
        for version in versions:
            path = LOCK_DIRECTORY / f"{version}.toml"
            path.write_text(lock(version), encoding="utf-8")
            print(f"{path}: {path.read_text(encoding='utf-8').count('sha256')} jars")
    except HarnessError as error:
        print(f"lock: {error}", file=sys.stderr)
        return 254
    return 0


if __name__ == "__main__":
    sys.exit(main())
