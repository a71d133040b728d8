"""What a member of a consumer group on librdkafka records of its commits."""

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest

from harness.history.writer import HistoryWriter
from harness.runs.phases import RunRecorder
from workloads.append import ProcessIds
from workloads.consumer_group import GroupMember
from workloads.group import CommittedOffsets, GroupWorkloadConfig

MS = 1_000_000


@pytest.mark.parametrize(("took_ms", "requests"), [(1499, 1), (1500, 2)])
def test_a_commit_that_took_as_long_as_a_request_may_has_a_second_request(
    took_ms: int, requests: int
) -> None:
    clock = [0]
    writer = HistoryWriter(None)
    member = GroupMember(
        ("b1:9092",),
        GroupWorkloadConfig(request_timeout_ms=1500),
        RunRecorder(lambda: clock[0], writer),
        CommittedOffsets(),
        run_id=1,
        topics=["t"],
        ids=ProcessIds(),
        random=random.Random(1),
    )

    def commit(offsets: list[Any], asynchronous: bool) -> list[Any]:
        clock[0] += took_ms * MS
        return [
            SimpleNamespace(topic=o.topic, partition=o.partition, offset=o.offset, error=None)
            for o in offsets
        ]

    member._consumer = SimpleNamespace(commit=commit)
    asyncio.run(member._commit({("t", 0): 7}))
    events = writer.close()["group_events"].to_pylist()
    assert [(row["event"], row["offset"]) for row in events] == [
        *[("commit-sent", 7)] * requests,
        ("commit-acknowledged", 7),
    ]
