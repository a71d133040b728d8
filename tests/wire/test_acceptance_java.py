"""The client on the Java client of Apache Kafka, against a real cluster of the reference system."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from wire_helpers import SharedCluster, eventually, skip_without_java

from harness.contracts.client import PollResult
from harness.errors import HarnessFailure
from harness.history.op import Completion, Outcome
from workloads.clients import java_process
from workloads.clients.java_client import JavaClient

pytestmark = pytest.mark.wire
TIMEOUT_MS = 5000
KEPT = 10
"""Records on all replicas; the log that replaces another has other records from here on."""
SHOWN = 20
"""Where the log ended that was replaced."""
NEW = 25


@pytest.fixture(scope="module", autouse=True)
def needs_java() -> Iterator[None]:
    """Skips the tests where they cannot run; ends the Java process."""
    skip_without_java()
    yield
    java_process.end_java_process()


def use(
    bootstrap: str,
    story: Callable[[JavaClient], Awaitable[Any]],
    *,
    request_timeout_ms: int = TIMEOUT_MS,
) -> Any:
    client = JavaClient(
        None,
        tuple(bootstrap.split(",")),
        request_timeout_ms=request_timeout_ms,
        connect_timeout_ms=2000,
    )

    async def run() -> Any:
        return await story(client)

    try:
        return asyncio.run(run())
    finally:
        client.close()
        client.close()


async def poll(client: JavaClient, topic: str, position: int) -> PollResult:
    return await client.poll(topic, 0, position, max_bytes=1 << 20, max_wait_ms=20)


async def append(client: JavaClient, topic: str, *values: bytes) -> list[Completion]:
    return [await client.append(topic, 0, b"k", value, -1) for value in values]


async def sent(client: JavaClient, topic: str, acks: int) -> Completion:
    """Appends one record, again if the producer did not learn the leader in time because the machine is slow."""
    while True:
        completion = await client.append(topic, 0, b"k", b"v", acks)
        if (completion.outcome, completion.error) != (Outcome.FAIL, "TIMEOUT"):
            return completion


def values(result: PollResult) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for batch in result.batches for record in batch.records]


def test_an_append_with_acks_all_or_one_returns_its_offset_and_one_without_acks_is_unknown(
    cluster: SharedCluster,
) -> None:
    topic = cluster.topic()

    async def story(client: JavaClient) -> list[Completion]:
        return [
            await client.append(topic, 0, b"k", str(acks).encode(), acks) for acks in (-1, 1, 0, -1)
        ]

    one, two, three, four = use(cluster.bootstrap, story)
    assert (one.outcome, one.offset) == (Outcome.OK, 0)
    assert (two.outcome, two.offset) == (Outcome.OK, 1)
    assert (three.outcome, three.offset, three.error) == (Outcome.INFO, None, "no-ack-requested")
    assert four.outcome == Outcome.OK and four.offset is not None and four.offset in (2, 3)


def test_a_poll_returns_what_was_appended_with_its_key_and_epoch(cluster: SharedCluster) -> None:
    topic = cluster.topic()

    async def story(client: JavaClient) -> PollResult:
        await client.append(topic, 0, b"key", b"\0value\xff", -1)
        await client.append(topic, 0, b"", b"", -1)
        return await poll(client, topic, 0)

    result = use(cluster.bootstrap, story)
    (batch,) = result.batches
    assert result.completion == Completion(outcome=Outcome.OK, end_offset=2)
    found = [(record.offset, record.key, record.value) for record in batch.records]
    assert found == [(0, b"key", b"\0value\xff"), (1, b"", b"")]
    assert batch.leader_epoch == cluster.describe(topic)[0].leader_epoch


def test_polls_continue_where_others_ended_and_report_the_end(cluster: SharedCluster) -> None:
    topic = cluster.topic()

    async def story(client: JavaClient) -> list[PollResult]:
        await append(client, topic, b"a", b"b")
        results = [await poll(client, topic, position) for position in (0, 2, 2)]
        await append(client, topic, b"c")
        return [*results, await poll(client, topic, 2), await poll(client, topic, 3)]

    first, empty, again, more, last = use(cluster.bootstrap, story)
    assert values(first) == [(0, b"a"), (1, b"b")]
    for at_end in (empty, again):
        assert at_end == PollResult(completion=Completion(outcome=Outcome.OK, end_offset=2))
    assert values(more) == [(2, b"c")]
    assert last == PollResult(completion=Completion(outcome=Outcome.OK, end_offset=3))


def test_a_poll_never_returns_what_was_fetched_before_it(cluster: SharedCluster) -> None:
    """A consumer requests the next records before it returns those it has.

    Such a request would wait at the end of the log for the first of two more records. The next poll would return
    its response, with only that record and an old log end.
    """
    topic = cluster.topic()

    async def next_poll(client: JavaClient, position: int) -> PollResult:
        return await client.poll(topic, 0, position, max_bytes=1 << 20, max_wait_ms=3000)

    async def story(client: JavaClient) -> None:
        await append(client, topic, b"0")
        for position in range(0, 10, 2):
            assert values(await next_poll(client, position)) == [(position, b"%d" % position)]
            await append(client, topic, b"%d" % (position + 1), b"%d" % (position + 2))
            both = await next_poll(client, position + 1)
            assert [offset for offset, _ in values(both)] == [position + 1, position + 2]
            assert both.completion.end_offset == position + 3

    use(cluster.bootstrap, story)


def test_positions_may_jump_back_and_forth(cluster: SharedCluster) -> None:
    topic = cluster.topic()

    async def story(client: JavaClient) -> list[list[tuple[int, bytes | None]]]:
        await append(client, topic, b"0", b"1", b"2", b"3")
        return [values(await poll(client, topic, position))[:1] for position in (2, 0, 3, 1)]

    assert use(cluster.bootstrap, story) == [[(2, b"2")], [(0, b"0")], [(3, b"3")], [(1, b"1")]]


def test_a_position_beyond_the_end_fails_with_kafkas_code_and_other_reads_continue(
    cluster: SharedCluster,
) -> None:
    topic = cluster.topic()

    async def story(client: JavaClient) -> tuple[PollResult, PollResult]:
        await append(client, topic, b"a")
        return await poll(client, topic, 50), await poll(client, topic, 0)

    beyond, back = use(cluster.bootstrap, story)
    assert beyond.completion == Completion(
        outcome=Outcome.FAIL, error_code=1, error="OFFSET_OUT_OF_RANGE"
    )
    assert values(back) == [(0, b"a")]


def test_latest_is_the_log_end(cluster: SharedCluster) -> None:
    topic = cluster.topic()

    async def story(client: JavaClient) -> Completion:
        await append(client, topic, b"a", b"b", b"c")
        return await client.latest(topic, 0)

    assert use(cluster.bootstrap, story) == Completion(outcome=Outcome.OK, offset=3)


def test_an_append_without_enough_replicas_is_indeterminate_because_it_was_sent_more_than_once(
    cluster: SharedCluster,
) -> None:
    topic = cluster.topic(replicas=(1, 2), replication_factor=2)
    cluster.pause("b2")
    cluster.wait_for_isr(topic, 1)

    async def story(client: JavaClient) -> list[Completion]:
        return [await sent(client, topic, acks) for acks in (-1, 1)]

    with_all, with_one = use(cluster.bootstrap, story, request_timeout_ms=1000)
    assert with_all.outcome == Outcome.INFO
    assert with_all.error in ("TIMEOUT", "NOT_ENOUGH_REPLICAS")
    assert (with_one.outcome, with_one.offset) == (Outcome.OK, 0)


def test_what_no_broker_received_failed_and_reads_fail(cluster: SharedCluster) -> None:
    async def story(client: JavaClient) -> list[Completion]:
        appended = await client.append("t", 0, b"k", b"a", -1)
        polled = await poll(client, "t", 0)
        return [appended, polled.completion, await client.latest("t", 0)]

    # Without a broker the producer learns no leader and never queues the record.
    for completion in use("127.0.0.1:9", story, request_timeout_ms=300):
        assert completion == Completion(outcome=Outcome.FAIL, error_code=None, error="TIMEOUT")


def test_an_append_to_a_paused_leader_never_failed(cluster: SharedCluster) -> None:
    topic = cluster.topic(replicas=(1, 2, 3))

    async def story(client: JavaClient) -> list[Completion]:
        first = await sent(client, topic, 1)
        cluster.pause("b1")
        try:
            return [first, await client.append(topic, 0, b"k", b"b", 1)]
        finally:
            cluster.resume("b1")

    first, second = use(cluster.bootstrap, story, request_timeout_ms=1500)
    assert first.outcome == Outcome.OK
    # The producer knows the leader, so it sent the record or was about to.
    assert second.outcome != Outcome.FAIL


def test_a_record_that_is_too_large_was_never_sent(cluster: SharedCluster) -> None:
    topic = cluster.topic()

    async def story(client: JavaClient) -> tuple[Completion, Completion]:
        refused = await client.append(topic, 0, b"k", bytes(2 << 20), -1)
        return refused, await client.append(topic, 0, b"k", b"v", -1)

    refused, accepted = use(cluster.bootstrap, story)
    assert (refused.outcome, refused.error) == (Outcome.FAIL, "MESSAGE_TOO_LARGE")
    assert accepted == Completion(outcome=Outcome.OK, offset=0)


def test_clients_work_at_the_same_time(cluster: SharedCluster) -> None:
    topic = cluster.topic(partitions=4)
    clients = [
        JavaClient(
            None,
            tuple(cluster.bootstrap.split(",")),
            request_timeout_ms=TIMEOUT_MS,
            connect_timeout_ms=2000,
        )
        for _ in range(4)
    ]

    async def one(client: JavaClient, partition: int) -> list[int | None]:
        done = [await client.append(topic, partition, b"k", b"v", -1) for _ in range(20)]
        return [completion.offset for completion in done]

    async def run() -> list[list[int | None]]:
        return await asyncio.gather(*(one(client, n) for n, client in enumerate(clients)))

    assert asyncio.run(run()) == [list(range(20))] * 4
    for client in clients:
        client.close()


@pytest.mark.long
def test_a_truncation_is_recorded_by_its_name(cluster: SharedCluster) -> None:
    """The leader commits alone and is replaced; the position that was reached lies inside the new log.

    Only the epoch of the last record that was read shows that the records before the position are gone.
    """
    configs = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    topic = cluster.topic(replicas=(1, 2, 3), configs=configs)

    async def produce(client: JavaClient, word: bytes, count: int) -> None:
        done = await append(client, topic, *(b"%s %d" % (word, n) for n in range(count)))
        assert {completion.outcome for completion in done} == {Outcome.OK}

    async def answered(client: JavaClient, position: int) -> PollResult:
        for _ in range(20):
            result = await poll(client, topic, position)
            if result.completion.error not in ("client-timeout", "TIMEOUT"):
                break
        return result

    def lead_alone() -> None:
        for name in ("b2", "b3"):
            cluster.pause(name)
        cluster.wait_for_isr(topic, 1)

    def cut() -> None:
        cluster.kill("b1")
        for name in ("b2", "b3"):
            cluster.resume(name)
        eventually(lambda: cluster.leader(topic) != "b1", what="an unclean election")

    async def story(client: JavaClient) -> None:
        await produce(client, b"kept", KEPT)
        await asyncio.to_thread(lead_alone)
        await produce(client, b"lost", SHOWN - KEPT)
        position = 0
        while position < SHOWN:
            found = values(await answered(client, position))
            position = found[-1][0] + 1 if found else position
        await asyncio.to_thread(cut)
        await produce(client, b"new", NEW)
        truncated = await answered(client, SHOWN)
        assert truncated.completion.outcome == Outcome.FAIL
        assert truncated.completion.error == "LOG_TRUNCATION"
        # It continues from the same position regardless, and gets the new records there.
        assert values(await answered(client, SHOWN))[0] == (SHOWN, b"new 10")

    use(cluster.bootstrap, story)


def test_the_end_of_the_java_process_leaves_appends_indeterminate_and_ends_the_run(
    cluster: SharedCluster,
) -> None:
    topic = cluster.topic(replicas=(1, 2, 3))

    async def story(client: JavaClient) -> None:
        await append(client, topic, b"a")
        for name in cluster.brokers:
            cluster.pause(name)
        waiting = asyncio.create_task(client.append(topic, 0, b"k", b"b", -1))
        await asyncio.sleep(0.2)
        os.kill(java_process.java_process().pid, signal.SIGKILL)
        completion = await waiting
        assert completion == Completion(
            outcome=Outcome.INFO, error_code=None, error="java-process-ended"
        )
        with pytest.raises(HarnessFailure, match=r"process of the Java client ended \(-9\)"):
            await poll(client, topic, 0)

    use(cluster.bootstrap, story)
    cluster.mend()
    # The next run in this process gets a new one.
    assert use(cluster.bootstrap, lambda client: client.latest(topic, 0)).outcome == Outcome.OK
