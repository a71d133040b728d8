"""Runs Kafka's command-line tools: their main classes, with the jars that `laststand system fetch` brings."""

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.java import JavaRuntime
from harness.systems.apache_kafka.cache import VersionCache, fetch_command
from harness.systems.apache_kafka.command import QUIET_FLAGS, jvm_flags, logging_flag
from harness.systems.apache_kafka.properties import logging_file
from tests.kafka_jars import kafka_or_skip

VERSION = "4.0.2"
"""The version that `.ci/run` fetches."""
LIMIT_S = 180
CLASSES: Mapping[str, str] = {
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "dump-log": "kafka.tools.DumpLogSegments",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}
"""Main classes by the names of Kafka's shell scripts (`kafka-topics.sh`)."""
SUBCOMMAND_FIRST = frozenset({"cluster"})
"""Tools that expect the addresses of the brokers behind their subcommand."""
WITHOUT_SERVER = frozenset({"dump-log", "producer-perf-test"})
"""Tools that know no option with the addresses of the brokers."""


@dataclass(frozen=True, kw_only=True)
class Tools:
    """The tools, for one cluster.

    Attributes:
        cache, java: What runs them.
        bootstrap: Addresses of the brokers.
        directory: For the files that they read.
    """

    cache: VersionCache
    java: JavaRuntime
    bootstrap: str
    directory: Path

    def run(self, tool: str, *arguments: str, exit_code: int | None = 0) -> str:
        """Runs a tool until it ends and returns its output; fails if its exit code is not the given one."""
        server = ["--bootstrap-server", self.bootstrap]
        words = list(arguments)
        if tool in SUBCOMMAND_FIRST:
            words += server
        elif tool not in WITHOUT_SERVER:
            words = server + words
        done = subprocess.run(
            self._command(tool, *words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert exit_code in (None, done.returncode), f"{tool} {arguments}: {done.stdout}"
        return done.stdout

    def rows(self, first: str, tool: str, *arguments: str) -> list[dict[str, str]]:
        """Runs a tool that prints a table; returns the rows by the names of the columns.

        Args:
            first: Name of the first column.
            tool: As for `run`.
            arguments: As for `run`.
        """
        lines = [line.split() for line in self.run(tool, *arguments).splitlines() if line.strip()]
        head = next(number for number, line in enumerate(lines) if line[0] == first)
        return [dict(zip(lines[head], line, strict=True)) for line in lines[head + 1 :]]

    def events(self, tool: str, *arguments: str) -> list[dict[str, Any]]:
        """Runs a tool that prints one JSON object per line, and returns them."""
        return [json.loads(line) for line in self.run(tool, *arguments).splitlines()]

    def partitions(self, topic: str) -> list[dict[str, str]]:
        """Returns a topic's partitions as `topics --describe` prints them: `Leader`, `Replicas`, `Isr`."""
        found = self.run("topics", "--describe", "--topic", topic).splitlines()
        rows = [line for line in found if line.startswith("\t")]
        return [dict(re.findall(r"(\w+): (\S*)", row)) for row in rows]

    def offsets(self, topic: str, time: str = "latest") -> dict[int, int]:
        """Returns the offset of each partition at a time, as `get-offsets` prints it."""
        lines = self.run("get-offsets", "--topic", topic, "--time", time).splitlines()
        return {int(line.split(":")[1]): int(line.split(":")[2]) for line in lines}

    def transaction(self, transactional_id: str) -> dict[str, str]:
        """Returns what the coordinator has about a transactional id, by the names of the columns."""
        text = self.run("transactions", "describe", "--transactional-id", transactional_id)
        head, row = ([one.strip() for one in line.split("\t")] for line in text.splitlines())
        return dict(zip(head, row, strict=True))

    def file(self, name: str, content: Any) -> str:
        """Writes a JSON file for a tool and returns its path."""
        path = self.directory / name
        path.write_text(json.dumps({"version": 1, **content}), encoding="utf-8")
        return str(path)

    def _command(self, tool: str, *arguments: str) -> list[str]:
        # The archive of nodes halves the time: the class path of tools begins with the jars of a node.
        archive = [f"-XX:SharedArchiveFile={self.cache.archive(self.java)}", "-Xshare:auto"]
        version = self.cache.version
        (self.directory / logging_file(version)).write_text(
            logging_to_stderr("error", "%m%n"), encoding="utf-8"
        )
        return [
            str(self.java.java),
            *jvm_flags(),
            *archive,
            *QUIET_FLAGS,
            logging_flag(version, str(self.directory)),
            "-cp",
            ":".join(map(str, self.cache.tool_paths)),
            CLASSES[tool],
            *arguments,
        ]


def logging_to_stderr(level: str, pattern: str) -> str:
    """Returns the configuration of Log4j 2 with which a program logs to standard error."""
    return f"""
status = error
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = {pattern}
rootLogger.level = {level}
rootLogger.appenderRef.err.ref = err
"""


def tools_or_skip(bootstrap: str, directory: Path) -> Tools:
    """Returns the tools of Apache Kafka for a cluster; skips the test if they or a Java are missing."""
    cache, java = kafka_or_skip(VERSION)
    if not cache.has_tools:
        pytest.skip(f"no tools of Apache Kafka {VERSION}: `{fetch_command(cache.version)}`")
    return Tools(cache=cache, java=java, bootstrap=bootstrap, directory=directory)
