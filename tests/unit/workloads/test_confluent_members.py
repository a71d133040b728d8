"""What a member of a consumer group on librdkafka records of its commits."""

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest

from harness.history.op import FETCHED_AHEAD
from harness.history.writer import HistoryWriter
from harness.runs.phases import RunRecorder
from workloads.append import ProcessIds
from workloads.consumer_group import GroupMember
from workloads.group import CommittedOffsets, GroupWorkloadConfig
from workloads.values import encode_value

MS = 1_000_000


def member_of(clock: list[int], writer: HistoryWriter) -> GroupMember:
    return GroupMember(
        ("b1:9092",),
        GroupWorkloadConfig(request_timeout_ms=1500),
        RunRecorder(lambda: clock[0], writer),
        CommittedOffsets(),
        run_id=1,
        topics=["t"],
        ids=ProcessIds(),
        random=random.Random(1),
    )


@pytest.mark.parametrize(("took_ms", "requests"), [(1499, 1), (1500, 2)])
def test_a_commit_that_took_as_long_as_a_request_may_has_a_second_request(
    took_ms: int, requests: int
) -> None:
    clock = [0]
    writer = HistoryWriter(None)
    member = member_of(clock, writer)

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


def test_a_poll_names_no_leader_epoch_because_librdkafka_fetches_ahead() -> None:
    clock, writer = [20], HistoryWriter(None)
    member = member_of(clock, writer)
    member._assigned([SimpleNamespace(topic="t", partition=0, offset=1)])
    clock[0] = 70
    value = encode_value(run_id=1, process=0, sequence=0, op_index=1, topic="t", partition=0)
    message = SimpleNamespace(
        error=lambda: None,
        topic=lambda: "t",
        partition=lambda: 0,
        offset=lambda: 1,
        key=lambda: b"k",
        value=lambda: value,
        leader_epoch=lambda: 3,
    )
    member._process_messages([message])
    tables = writer.close()
    polled = tables["operations"].to_pylist()[0]
    assert (polled["position"], polled["outcome"], polled["invoked_ns"]) == (1, "ok", 20)
    assert polled["leader_epoch"] == FETCHED_AHEAD
    assert [row["leader_epoch"] for row in tables["records_read"].to_pylist()] == [3]
