"""Polls that consist of several fetches: one operation, with all records in the order in which they came."""

import asyncio
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from checkers.kernels.linearizability import check_tables
from harness.contracts.client import OFFSET_OUT_OF_RANGE, FetchedBatch, PollResult
from harness.contracts.host import ClientHost
from harness.errors import UsageError
from harness.history.op import Completion, Outcome
from harness.history.writer import HistoryWriter
from harness.runs.phases import RunRecorder
from workloads.append import AppendProcess, ProcessIds, join_fetches
from workloads.append_config import AppendConfig

KEY = ("t", 0)
RUN_ID = 5


@dataclass(frozen=True)
class Stored:
    """A record of the fake log. Implements `FetchedRecord`."""

    offset: int
    key: bytes
    value: bytes


@dataclass
class FakeClient:
    """A log that stores appends and returns to fetches what a script says.

    Attributes:
        script: Per fetch the offsets to return, with the log end and the leader epoch; or an error.
        positions: From which offset each fetch was requested.
    """

    script: list[tuple[tuple[int, ...], int | None, int] | str] = field(default_factory=list)
    log: list[Stored] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)

    async def append(
        self, topic: str, partition: int, key: bytes, value: bytes, acks: int
    ) -> Completion:
        self.log.append(Stored(len(self.log), key, value))
        return Completion(outcome=Outcome.OK, offset=len(self.log) - 1)

    async def poll(self, topic: str, partition: int, position: int, **_: int) -> PollResult:
        self.positions.append(position)
        step = self.script.pop(0)
        if isinstance(step, str):
            return PollResult(completion=Completion(outcome=Outcome.FAIL, error=step))
        offsets, end, epoch = step
        records = tuple(self.log[offset] for offset in offsets)
        return PollResult(
            completion=Completion(
                outcome=Outcome.OK, end_offset=end, leader_epoch=epoch, node=f"b{epoch}"
            ),
            batches=(FetchedBatch(leader_epoch=epoch, records=records),) if records else (),
        )

    async def latest(self, topic: str, partition: int) -> Completion:
        return Completion(outcome=Outcome.OK, offset=len(self.log))


class Most:
    """A random stream whose draws are as large as possible; it counts them."""

    def __init__(self) -> None:
        self.draws = 0

    def random(self) -> float:
        self.draws += 1
        return 1 - 2**-53


@dataclass
class Polled:
    """What one poll left behind."""

    operation: dict[str, Any]
    offsets: list[int]
    tables: dict[str, pa.Table]
    client: FakeClient
    process: AppendProcess
    draws: int


def poll(*script: tuple[tuple[int, ...], int | None, int] | str, most: int = 3) -> Polled:
    """Appends six records and lets a process poll them once, with up to `most` fetches."""
    history = HistoryWriter(None)
    clock = iter(range(10**6))
    stream = Most()
    host = SimpleNamespace(random=SimpleNamespace(stream=lambda *_: stream))
    process = AppendProcess(
        cast(ClientHost, host),
        AppendConfig(fetches_per_poll_max=most),
        RunRecorder(lambda: next(clock), history),
        run_id=RUN_ID,
        topic_partitions=[KEY],
        bootstrap=("b1:1",),
        ids=ProcessIds(),
    )
    client = FakeClient(script=list(script))
    process._client = client

    async def main() -> int:
        for _ in range(6):
            await process.append(*KEY, -1)
        before = stream.draws
        await process.poll(*KEY)
        return stream.draws - before

    draws = asyncio.run(main())
    tables = history.close()
    operation = next(row for row in tables["operations"].to_pylist() if row["kind"] == "poll")
    records = [
        row
        for row in tables["records_read"].to_pylist()
        if row["op_index"] == operation["op_index"]
    ]
    assert [row["index_in_poll"] for row in records] == list(range(len(records)))
    offsets = [row["offset"] for row in records]
    assert operation["record_count"] == len(records)
    return Polled(operation, offsets, tables, client, process, draws)


def found(polled: Polled) -> set[str]:
    """Returns what the kernel finds in the history of a poll."""
    names = ("operations", "records_read", "end_offsets_seen")
    return {finding.id for finding in check_tables(*(polled.tables[n] for n in names)).findings}


def test_each_fetch_begins_where_the_one_before_ended_and_all_are_one_operation() -> None:
    polled = poll(((0, 1), 6, 1), ((2, 3), 6, 1), ((4,), 6, 1))
    assert polled.client.positions == [0, 2, 4]
    assert polled.offsets == [0, 1, 2, 3, 4]
    row = polled.operation
    assert (row["outcome"], row["position"], row["end_offset"]) == ("ok", 0, 6)
    assert (row["leader_epoch"], row["node"]) == (1, "b1")
    assert polled.process._positions[KEY] == 5
    assert found(polled) == set()


def test_the_number_of_fetches_is_drawn_only_if_there_may_be_several() -> None:
    polled = poll(((0, 1), 6, 1), most=1)
    assert (polled.draws, polled.client.positions) == (0, [0])
    polled = poll(((), 6, 1), ((), 6, 1), most=2)
    assert (polled.draws, polled.client.positions) == (1, [0, 0])


def test_every_number_of_fetches_is_drawn() -> None:
    counts = set()
    for seed in range(40):
        process = poll(((), 6, 1), ((), 6, 1), ((), 6, 1)).process
        process._random = Random(seed)
        counts.add(process._draw_fetches(final=False))
        assert process._draw_fetches(final=True) == 1
    assert counts == {1, 2, 3}


def test_a_fetch_that_fails_ends_the_poll_and_what_came_before_counts() -> None:
    polled = poll(((0, 1), 6, 1), "client-timeout")
    assert polled.offsets == [0, 1]
    assert (polled.operation["outcome"], polled.operation["error"]) == ("ok", "")
    assert polled.process._positions[KEY] == 2


def test_a_poll_whose_first_fetch_fails_fails() -> None:
    polled = poll("client-timeout")
    assert (polled.operation["outcome"], polled.operation["error"]) == ("fail", "client-timeout")
    assert polled.client.positions == [0]


def test_a_position_outside_of_the_log_is_reset_as_ever() -> None:
    polled = poll(OFFSET_OUT_OF_RANGE)
    assert polled.process._positions[KEY] == 6


def test_a_new_leader_that_lags_does_not_lower_the_log_end_of_the_poll() -> None:
    """Otherwise a record of the first fetch would seem to be beyond the end of the log."""
    polled = poll(((0, 1, 2, 3, 4), 6, 1), ((), 3, 2), ((), 3, 2))
    assert (polled.operation["end_offset"], polled.operation["leader_epoch"]) == (6, -1)
    assert found(polled) == set()


def test_a_record_beyond_the_end_of_its_own_fetch_is_not_hidden_by_another_fetch() -> None:
    polled = poll(((0,), 6, 1), ((1, 2), 2, 1), ((), 6, 1))
    assert polled.client.positions == [0, 1]
    assert polled.operation["end_offset"] == 2
    assert "torn-fetch" in found(polled)


@pytest.mark.parametrize(
    ("second", "anomalies"),
    [
        # Jepsen: int-poll-skip.
        ((3, 4), {"lost-record"}),
        # Jepsen: int-nonmonotonic-poll, a record once more.
        ((1, 2), {"nonmonotonic-poll"}),
        # The same, further back.
        ((0,), {"nonmonotonic-poll", "unordered-poll"}),
    ],
)
@pytest.mark.parametrize("fetches", [1, 2])
def test_the_order_is_judged_within_a_fetch_and_between_fetches(
    second: tuple[int, ...], anomalies: set[str], fetches: int
) -> None:
    if fetches == 1:
        polled = poll(((0, 1, *second), 6, 1), most=1)
    else:
        polled = poll(((0, 1), 6, 1), (second, 6, 1), ((), 6, 1))
    assert found(polled) == anomalies


def test_completions_of_one_fetch_are_kept_as_they_are() -> None:
    failed = Completion(outcome=Outcome.FAIL, error_code=3, error="x", node="b2")
    good = Completion(outcome=Outcome.OK, end_offset=4, node="b1", leader_epoch=7)
    assert join_fetches([failed], last_offset=-1) is failed
    assert join_fetches([good], last_offset=3) is good


def test_a_client_that_knows_no_log_end_claims_none() -> None:
    good = Completion(outcome=Outcome.OK)
    assert join_fetches([good, good], last_offset=7).end_offset is None


@pytest.mark.parametrize(
    ("ends", "last_offset", "end"),
    [
        ((6, None), 5, 6),
        # Another process appended after the first fetch, and the second one does not know the end.
        ((6, None), 6, None),
        ((None, 6), 5, 6),
        ((6, 7), 6, 7),
        ((0, None), -1, 0),
    ],
)
def test_a_log_end_that_is_older_than_the_records_is_not_claimed(
    ends: tuple[int | None, ...], last_offset: int, end: int | None
) -> None:
    fetches = [Completion(outcome=Outcome.OK, end_offset=each) for each in ends]
    assert join_fetches(fetches, last_offset=last_offset).end_offset == end


@pytest.mark.parametrize(
    ("second_end", "anomalies"), [(None, set()), (6, set()), (1, {"torn-fetch", "stale-end"})]
)
def test_only_a_fetch_that_knows_its_end_is_torn(
    second_end: int | None, anomalies: set[str]
) -> None:
    polled = poll(((), 1, 1), ((0, 1), second_end, 1), ((), second_end, 1))
    assert found(polled) == anomalies


@pytest.mark.parametrize("count", [0, 101])
def test_an_impossible_number_of_fetches_is_refused(count: int) -> None:
    with pytest.raises(UsageError, match="fetches_per_poll_max is"):
        AppendConfig(fetches_per_poll_max=count)
