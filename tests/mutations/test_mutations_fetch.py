"""What happens without the rules that limit fetches, and how a follower handles the records."""

import asyncio
from typing import Any

import pytest

from system_under_test.broker.replica_fetcher import FetcherManager
from system_under_test.broker.tasks import TaskScope
from system_under_test.config import NodeConfig
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import fetch_response, millis
from system_under_test.rules import Rules
from tests.mutations.coverage import shows
from tests.mutations.expectation import expect_defect
from tests.unit.system_under_test.broker.node_fakes import FakeRandom
from tests.unit.system_under_test.broker.replica_fakes import TOPIC_ID, Broker, batch, only_produced

# --- FETCH-5


@shows("FETCH-5", "B-05")
def test_a_leader_that_does_not_compare_epochs_keeps_a_diverged_follower() -> None:
    expect_defect("B-05")


# --- FETCH-6


@shows("FETCH-6", "B-22")
def test_a_consumer_above_the_high_watermark_reads_records_that_disappear() -> None:
    expect_defect("B-22")


# --- FETCH-8, FETCH-9


@shows("FETCH-8", "B-70")
def test_a_read_that_goes_on_behind_what_does_not_fit_skips_records() -> None:
    expect_defect("B-70")


@shows("FETCH-9", "B-71")
def test_a_response_with_the_newest_segment_first_is_out_of_order() -> None:
    expect_defect("B-71")


# --- FF-2


@shows("FF-2", "B-51")
def test_followers_that_do_not_verify_checksums_commit_a_corrupt_record() -> None:
    expect_defect("B-51")


# --- FETCH-2: component


@shows("FETCH-2")
@pytest.mark.parametrize("rules", [(), ("FETCH-2",)])
def test_a_fetch_of_an_older_leader_epoch_counts_only_without_fetch_2(
    rules: tuple[str, ...],
) -> None:
    """B-06 in small: the follower has truncated since it sent the fetch that contains its log end."""

    async def story() -> None:
        broker = Broker(without=rules)
        broker.lead(isr=(1, 3), leader_epoch=0)
        waiting = broker.produce("a", "b")
        # Another broker led meanwhile, and 3 truncated; this one never heard of it (META-3).
        broker.register(leader=1, leader_epoch=2, isr=(1, 3))
        response = broker.follower_fetch(3, 2, epoch=0)
        if rules:
            assert broker.high_watermark == 2
            assert only_produced(waiting).error_code == ErrorCode.NONE
        else:
            assert response.error_code == ErrorCode.FENCED_LEADER_EPOCH
            assert broker.high_watermark == 0
            assert not waiting.done()
            broker.manager.fail_all_pending()

    asyncio.run(story())


# --- FS-2: component


@shows("FS-2")
@pytest.mark.parametrize("rules", [(), ("FS-2",)])
def test_a_fetch_of_an_older_incarnation_counts_only_without_fs_2(rules: tuple[str, ...]) -> None:
    """B-11 in small: broker 3 has restarted, empty; an old request claims that it has everything."""

    async def story() -> None:
        broker = Broker(without=rules)
        broker.lead(isr=(1, 3))
        waiting = broker.produce("a")
        broker.metadata.epochs[3] = 203
        response = broker.follower_fetch(3, 1, broker_epoch=103)
        if rules:
            assert only_produced(waiting).error_code == ErrorCode.NONE
        else:
            assert response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert broker.high_watermark == 0
            assert not waiting.done()
            broker.manager.fail_all_pending()

    asyncio.run(story())


# --- FOLL-2: component


class SlowLeader:
    """Broker 2 as a network: it keeps every request until the test responds."""

    def __init__(self) -> None:
        self.is_open = True
        self.asked: list[tuple[Any, asyncio.Future[Any]]] = []

    async def connect(self, address: str, timeout_ms: float) -> "SlowLeader":
        return self

    def request(self, message: Any, timeout_ms: float) -> "asyncio.Future[Any]":
        future = asyncio.get_running_loop().create_future()
        self.asked.append((message, future))
        return future

    def close(self) -> None:
        self.is_open = False


def fetched(records: bytes, high_watermark: int) -> Any:
    """Returns the response to a fetch of the partition."""
    return fetch_response.FetchResponse(
        throttle_time=millis(0),
        error_code=0,
        session_id=0,
        responses=(
            fetch_response.FetchableTopicResponse(
                topic_id=TOPIC_ID,
                partitions=(
                    fetch_response.PartitionData(
                        partition_index=0,
                        error_code=0,
                        high_watermark=high_watermark,
                        log_start_offset=0,
                        records=records,
                        aborted_transactions=None,
                    ),
                ),
            ),
        ),
    )


@shows("FOLL-2")
@pytest.mark.parametrize("rules", [(), ("FOLL-2",)])
def test_a_response_of_an_older_leader_epoch_is_appended_only_without_foll_2(
    rules: tuple[str, ...],
) -> None:
    """B-04 in small: broker 2 lost the leadership, truncated, and leads again, before an old response arrives."""

    async def story() -> tuple[int, int]:
        broker = Broker(without=rules)
        leader = SlowLeader()
        broker.host.network = leader
        broker.host.random = FakeRandom()
        failures: list[BaseException] = []
        scope = TaskScope(failures.append)
        config = NodeConfig(
            node_id=1, role="broker", address="b1:9092", cluster_id="story", voters=()
        ).with_rules(Rules(rules))
        fetchers = FetcherManager(
            broker.host,
            config,
            scope,
            alive_address=lambda _: "b2:9092",
            broker_epoch=lambda: 101,
            on_storage_failure=failures.append,
        )
        broker.manager.attach(fetchers, broker.alter)
        broker.follow(2, leader_epoch=1)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        (_, old_answer) = leader.asked[0]
        broker.follow(2, leader_epoch=3)
        old_answer.set_result(fetched(batch("gone", epoch=1), 1))
        for _ in range(5):
            await asyncio.sleep(0)
        scope.cancel_all()
        assert failures == []
        return broker.log_end, broker.high_watermark

    assert asyncio.run(story()) == ((1, 1) if rules else (0, 0))
