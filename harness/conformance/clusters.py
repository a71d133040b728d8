"""The two clusters: six processes each on this machine, with what the catalogue needs in them."""

import contextlib
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from harness.conformance.catalogue.batches import batch
from harness.conformance.probe import (
    EMPTY_TOPIC,
    READ_RECORDS,
    READ_TOPIC,
    WRITE_TOPIC,
    PreparationError,
    Probe,
    Target,
)
from harness.contracts.progress import ProgressDisplay
from harness.contracts.system import Settings, System
from harness.environments.local.standing import LocalCluster
from harness.environments.real import final_line
from harness.errors import HarnessFailure
from harness.systems.apache_kafka.adapter import SYSTEM as APACHE_KAFKA
from harness.systems.apache_kafka.cache import version_cache
from harness.systems.apache_kafka.versions import Version, feature_levels, profile_name
from harness.systems.registry import REFERENCE, SYSTEMS

READY_LIMIT_S = 240.0
KAFKA_SIDE, REFERENCE_SIDE = "apache_kafka", "reference"
READ_ASSIGNMENTS: Mapping[int, tuple[int, ...]] = {0: (1, 2, 3), 1: (2, 3, 1)}
WRITE_ASSIGNMENT = (1, 2, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One running cluster.

    Attributes:
        target: As cases see it.
        cluster: Its processes.
        description: For messages and reports.
    """

    target: Target
    cluster: LocalCluster
    description: str

    def check_alive(self, case: str) -> None:
        """Raises `HarnessFailure` if a node has ended; the sentence names the request before."""
        for node in self.cluster.dead_nodes():
            reason = final_line(self.cluster.system, node.output()) or "it logged no reason"
            raise HarnessFailure(
                f"{node.name} of {self.description} ended, at the latest after case {case!r}: {reason}"
            )


def reference_profile(version: Version) -> str:
    """Returns the profile of the reference system for a version of Kafka: its own, else the newest before."""
    wanted = profile_name(version, feature_levels(version))
    known = SYSTEMS.get(REFERENCE).profiles
    if wanted in known:
        return wanted
    # The names of derived profiles have a suffix behind the number.
    releases = [name for name in known if name.count("-") == 1]
    return max((name for name in releases if _number(name) <= _number(wanted)), key=_number)


def _number(profile: str) -> tuple[int, ...]:
    return tuple(int(part) for part in profile.removeprefix("kafka-").split("."))


@contextlib.contextmanager
def running_sides(
    version: Version, directory: Path, *, writers: int, progress: ProgressDisplay
) -> Iterator[tuple[Side, Side]]:
    """Starts Apache Kafka and the reference system and creates topics; ends both.

    Args:
        version: Of Apache Kafka.
        directory: For the files of all nodes.
        writers: Number of cases that need a partition.
        progress: Gets a line per step.

    Yields:
        Apache Kafka and the reference system.

    Raises:
        UsageError: This version was not fetched, or no Java suits it.
        HarnessFailure: A cluster did not start.
    """
    version_cache(version).require()
    kafka = APACHE_KAFKA.of_version(str(version), {})
    reference = SYSTEMS.get(REFERENCE)
    profile = reference_profile(version)
    now_ms = time.time_ns() // 1_000_000
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        sides = []
        for name, system, settings, description in (
            (KAFKA_SIDE, kafka, _kafka_settings(kafka), f"Apache Kafka {version}"),
            (REFERENCE_SIDE, reference, _reference_settings(profile), f"reference ({profile})"),
        ):
            cluster = LocalCluster.create(directory / name, system=system, settings=settings)
            stack.callback(cluster.down)
            cluster.start()
            target = _target(name, cluster, now_ms)
            sides.append(Side(target=target, cluster=cluster, description=description))
        progress.message(f"starting {sides[0].description} and the {sides[1].description}")
        list(pool.map(lambda side: side.cluster.wait_ready(READY_LIMIT_S), sides))
        progress.message("creating topics")
        list(pool.map(lambda side: _prepare(side, writers), sides))
        yield sides[0], sides[1]


def _kafka_settings(system: System) -> Settings:
    return Settings(
        profile=next(iter(system.profiles)),
        timings="kafka",
        with_events=False,
        properties={"group.initial.rebalance.delay.ms": "0"},
    )


def _reference_settings(profile: str) -> Settings:
    return Settings(
        profile=profile,
        timings="kafka",
        with_events=False,
        more={
            "broker": {"auto_create_topics_enable": False, "group_initial_rebalance_delay_ms": 0}
        },
    )


def _target(name: str, cluster: LocalCluster, now_ms: int) -> Target:
    def addresses(role: str) -> dict[int, str]:
        return {one.node_id: one.address for one in cluster.nodes.values() if one.role == role}

    return Target(
        name=name,
        brokers=addresses("broker"),
        controllers=addresses("controller"),
        now_ms=now_ms,
    )


def _prepare(side: Side, writers: int) -> None:
    """Creates the topics of the catalogue, fills the one that is read, and loads the offsets topic."""
    try:
        probe = Probe(side.target, 0)
        _create(probe, READ_TOPIC, READ_ASSIGNMENTS, {"min.insync.replicas": "2"})
        _create(probe, EMPTY_TOPIC, {0: WRITE_ASSIGNMENT}, {})
        if writers:
            _create(probe, WRITE_TOPIC, dict.fromkeys(range(writers), WRITE_ASSIGNMENT), {})
        probe.wait("brokers that know all topics", lambda: _all_know(side.target, writers))
        for _ in range(READ_RECORDS):
            _append(probe)
        probe.coordinator("g")
    except PreparationError as error:
        raise HarnessFailure(f"{side.description} could not be prepared: {error}") from error


def _create(
    probe: Probe, name: str, assignments: Mapping[int, tuple[int, ...]], configs: Mapping[str, str]
) -> None:
    topic = {
        "name": name,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [
            {"partition_index": index, "broker_ids": brokers}
            for index, brokers in assignments.items()
        ],
        "configs": [{"name": key, "value": value} for key, value in configs.items()],
    }

    def is_created() -> bool:
        values = {"topics": [topic], "timeout": 30_000, "validate_only": False}
        error = probe.prepare("create_topics", 7, values).topics[0].error_code.name.upper()
        return error in ("NONE", "TOPIC_ALREADY_EXISTS")

    probe.wait(f"topic {name!r}", is_created)


def _all_know(target: Target, writers: int) -> bool:
    """Whether every broker knows a leader of every partition."""
    wanted = {READ_TOPIC: len(READ_ASSIGNMENTS), EMPTY_TOPIC: 1}
    if writers:
        wanted[WRITE_TOPIC] = writers
    probe = Probe(target, 0)
    for address in target.brokers.values():
        response = probe.prepare("metadata", 12, {"topics": None}, to=address)
        led = {
            topic.name: sum(
                not one.error_code and len(one.isr_nodes) == len(one.replica_nodes)
                for one in topic.partitions
            )
            for topic in response.topics
        }
        if any(led.get(name) != count for name, count in wanted.items()):
            return False
    probe.refresh()
    return True


def _append(probe: Probe) -> None:
    """Appends one record to the topic that is read."""
    probe.refresh()
    data = {"index": 0, "records": batch(probe.target.now_ms)}
    values = {
        "acks": -1,
        "timeout": 15_000,
        "topic_data": [{"name": READ_TOPIC, "partition_data": [data]}],
    }

    def is_appended() -> bool:
        response = probe.prepare("produce", 11, values, to=probe.leader())
        error = response.responses[0].partition_responses[0].error_code.name.upper()
        if error not in ("NONE", "NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION"):
            raise PreparationError(f"producing to {READ_TOPIC!r}: {error}")
        return bool(error == "NONE")

    probe.wait("acknowledged record", is_appended)
