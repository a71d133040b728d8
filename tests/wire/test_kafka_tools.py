"""Kafka's own command-line tools with the reference system, and with Apache Kafka, which is the oracle."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_tool_stories import LONG, SHORT, Story
from kafka_tools import LIMIT_S, VERSION, tools_or_skip
from wire_helpers import SharedCluster

from harness.contracts.system import Settings
from harness.environments.local.standing import LocalCluster
from harness.systems.apache_kafka.adapter import SYSTEM
from tests.kafka_jars import kafka_or_skip
from tests.parts import parts

pytestmark = [pytest.mark.wire, pytest.mark.timeout(LIMIT_S * 3)]
PROPERTIES = {"group.initial.rebalance.delay.ms": "0", "min.insync.replicas": "2"}
"""As the tests want them; Kafka waits 3 s for the first members of a group."""


def _name(story: Story) -> str:
    return story.__name__


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Yields a running cluster of Apache Kafka; its jars may be missing."""
    kafka_or_skip(VERSION)
    system = SYSTEM.of_version(VERSION, {})
    settings = Settings(
        profile=next(iter(system.profiles)),
        timings="fast",
        with_events=False,
        properties=PROPERTIES,
    )
    directory: Path = tmp_path_factory.mktemp("kafka") / "nodes"
    with LocalCluster.create(directory, system=system, settings=settings) as cluster:
        cluster.start()
        cluster.wait_ready(240)
        yield cluster


@pytest.mark.parametrize("story", parts(SHORT, quick=1), ids=_name)
def test_the_tools_work_with_the_reference_system(
    cluster: SharedCluster, story: Story, tmp_path: Path
) -> None:
    story(tools_or_skip(cluster.bootstrap, tmp_path), cluster)


@pytest.mark.long
@pytest.mark.parametrize("story", LONG, ids=_name)
def test_more_tools_work_with_the_reference_system(
    cluster: SharedCluster, story: Story, tmp_path: Path
) -> None:
    story(tools_or_skip(cluster.bootstrap, tmp_path), cluster)


@pytest.mark.long
@pytest.mark.xdist_group("kafka-tools")
@pytest.mark.parametrize("story", [*SHORT, *LONG], ids=_name)
def test_what_the_tools_show_is_what_they_show_with_apache_kafka(
    kafka: LocalCluster, story: Story, tmp_path: Path
) -> None:
    cluster = SharedCluster(kafka)
    cluster.mend()
    story(tools_or_skip(cluster.bootstrap, tmp_path), cluster)
    cluster.check_no_node_died()
