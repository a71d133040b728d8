"""The command that starts a program of Kafka in a small JVM that starts fast."""

from collections.abc import Sequence
from pathlib import Path

from harness.contracts.launcher import tied_to_parent
from harness.contracts.messages import MESSAGES_FILE
from harness.java import JavaRuntime
from harness.systems.apache_kafka.cache import VersionCache
from harness.systems.apache_kafka.properties import (
    MESSAGES_PROPERTY,
    PROPERTIES_FILE,
    logging_file,
)
from harness.systems.apache_kafka.versions import Version

MAIN_CLASS = "kafka.Kafka"
HEAP_MIB = 192
"""Six nodes with a few partitions each fit into a machine with 2 GiB."""
QUIET_FLAGS = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""The JVM would print warnings if the class-data archive does not fit; it then starts without it."""


def jvm_flags(*, heap_mib: int = HEAP_MIB) -> list[str]:
    """Returns flags for a JVM that starts fast and stays small.

    The first compiler tier and the serial collector cost the least, and none of them changes what Kafka does.
    """
    return [
        f"-Xmx{heap_mib}m",
        "-Xms64m",
        "-Xss512k",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:MaxMetaspaceSize=128m",
        "-XX:ReservedCodeCacheSize=48m",
        "-XX:-UsePerfData",
        "-Djava.awt.headless=true",
    ]


def class_path(cache: VersionCache) -> str:
    """Returns every jar by its path, always in the same order, as a class-data archive requires."""
    return ":".join(str(path) for path in cache.jar_paths)


def logging_flag(version: Version, directory: str) -> str:
    """Returns the flag that names the logging configuration in a node's directory."""
    key = "log4j2.configurationFile" if version.uses_log4j2 else "log4j.configuration"
    # As an address, so that a path with spaces is understood.
    return f"-D{key}={Path(directory, logging_file(version)).as_uri()}"


def java_command(
    cache: VersionCache,
    java: Path,
    directory: str,
    arguments: Sequence[str],
    *,
    flags: Sequence[str] = (),
    heap_mib: int = HEAP_MIB,
) -> list[str]:
    """Returns the command that runs a class of Kafka.

    Args:
        cache: Where the jars are.
        java: The Java home.
        directory: Absolute; it has the logging configuration, and gets a report if the JVM crashes.
        arguments: The class and its arguments.
        flags: More flags of the JVM.
        heap_mib: Largest heap.
    """
    return [
        str(java / "bin" / "java"),
        *jvm_flags(heap_mib=heap_mib),
        *flags,
        f"-XX:ErrorFile={directory}/jvm-crash.log",
        logging_flag(cache.version, directory),
        "-cp",
        class_path(cache),
        *arguments,
    ]


def node_command(
    cache: VersionCache,
    java: JavaRuntime,
    directory: str,
    *,
    python: str = "",
    heap_mib: int = HEAP_MIB,
) -> list[str]:
    """Returns the command that starts a node.

    Args:
        cache: Where the jars and the class-data archive are; the same paths on the node's host.
        java: Which Java; its home has the same path on the node's host.
        directory: The node's directory, with its files; absolute.
        python: If given, this interpreter starts the node so that it ends with the process that starts it.
        heap_mib: Largest heap.
    """
    archive = cache.archive(java)
    flags = [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"] if archive.exists() else []
    command = java_command(
        cache,
        java.home,
        directory,
        [MAIN_CLASS, f"{directory}/{PROPERTIES_FILE}"],
        flags=[*flags, *QUIET_FLAGS, f"-D{MESSAGES_PROPERTY}={directory}/{MESSAGES_FILE}"],
        heap_mib=heap_mib,
    )
    return tied_to_parent(command, python) if python else command
