"""Members of the `consumer-group` workload on a real cluster: their rows, their commits, their deaths."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pyarrow.compute as pc
import pytest
from wire_helpers import SharedCluster, new_name

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

from checkers.kernels.compose import judge_run
from checkers.kernels.consumer_group import group_counters
from checkers.kernels.linearizability import check_tables
from harness.contracts.run_context import RunContext
from harness.history.writer import HistoryWriter
from harness.runs.phases import RunRecorder
from system_under_test.real.host import ClientHost
from workloads.append import AppendProcess, ProcessIds
from workloads.append_config import AppendConfig
from workloads.consumer_group import ConsumerGroup, GroupWorkloadConfig

pytestmark = pytest.mark.wire
RUN_ID = 77


class World:
    """A history on the real clock, one producing process, and a group."""

    def __init__(self, cluster: SharedCluster, topic: str, **settings: Any) -> None:
        began_ns = time.monotonic_ns()
        self.history = HistoryWriter(None)
        recorder = RunRecorder(lambda: time.monotonic_ns() - began_ns, self.history)
        bootstrap = tuple(cluster.bootstrap.split(","))
        ids = ProcessIds()
        host = ClientHost("client-0")
        keys = [(topic, partition) for partition in range(len(cluster.describe(topic)))]
        self.writer = AppendProcess(
            host,
            AppendConfig(client="confluent", request_timeout_ms=5000),
            recorder,
            run_id=RUN_ID,
            topic_partitions=keys,
            bootstrap=bootstrap,
            ids=ids,
        )
        self.group = ConsumerGroup(
            bootstrap,
            GroupWorkloadConfig(
                group=new_name("group"),
                session_timeout_ms=1000,
                heartbeat_interval_ms=200,
                **settings,
            ),
            recorder,
            run_id=RUN_ID,
            topic_partitions=keys,
            ids=ids,
            random=host.random.stream("group"),
        )
        self.keys = keys

    async def live(self, keep_going: Callable[[], bool], meanwhile: Callable[[], None]) -> bool:
        """Appends while the group lives; then reads all, lets the group catch up; returns whether it did."""
        members = asyncio.create_task(self.group.run(keep_going))
        hurting = asyncio.create_task(asyncio.to_thread(meanwhile))
        while keep_going():
            for key in self.keys:
                await self.writer.append(*key, -1)
            await asyncio.sleep(0.01)
        await hurting
        await members
        assert await self.writer.final_phase(lambda: True)
        self.writer.close()
        deadline_s = time.monotonic() + 40
        return await self.group.drain(lambda: time.monotonic() < deadline_s)


@pytest.mark.long
def test_members_come_and_go_and_coordinators_die_and_every_record_is_delivered(
    cluster: SharedCluster,
) -> None:
    topic = cluster.topic(partitions=2)
    world = World(cluster, topic, mean_life_s=2.0, crash_share=0.5)
    until_s = time.monotonic() + 12

    def kill_two() -> None:
        for name in ("b1", "b2"):
            time.sleep(2)
            cluster.kill(name)
            time.sleep(1)
            cluster.start(name)

    async def story() -> bool:
        return await world.live(lambda: time.monotonic() < until_s, kill_two)

    assert asyncio.run(story())
    tables = world.history.close()
    context = RunContext(checkers=("consumer-group",))
    assert judge_run(tables, context).anomalies == ()
    counters = group_counters(tables)
    assert counters["group_assignments"] >= 3 and counters["group_commits"] >= 5, counters
    for partition in range(2):
        of = [
            tables[name].filter(_is(tables[name], topic, partition))
            for name in ("operations", "records_read", "end_offsets_seen")
        ]
        report = check_tables(*of)
        assert [finding.id for finding in report.findings if finding.id != "stale-end"] == []
        assert report.coverage["appends_acked"] > 10
    operations = tables["operations"]
    is_acked_append = pc.and_(
        pc.equal(operations.column("kind"), "append"), pc.equal(operations.column("outcome"), "ok")
    )
    assert counters["group_records"] >= operations.filter(is_acked_append).num_rows


def _is(table: Any, topic: str, partition: int) -> Any:
    return pc.and_(
        pc.equal(table.column("topic"), topic), pc.equal(table.column("partition"), partition)
    )
