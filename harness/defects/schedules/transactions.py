"""Schedules of defects in transactions: lost and late markers, zombies, decisions that only one broker has."""

from harness.defects.story import Story
from harness.defects.transactional import (
    LEDGER,
    STATE_TOPIC,
    TransactionalProducer,
    create_ledger,
    last_stable_offset,
    leader_of,
    read_committed,
)
from system_under_test.group.records import offsets_partition
from system_under_test.protocol.errors import ErrorCode

REPLICAS = (1, 2, 3)
SETTLE_MS = 3000
"""Longer than markers and the search for transactions that exceeded their timeout take with fast timings."""
TIMEOUT_MS = 1000


def a_batch_arrives_after_the_marker(story: Story) -> None:
    """B-58: a batch is late by so much that its transaction was committed meanwhile (KIP-890)."""
    producer = begun(story)
    producer.send(b"in time")
    late = producer.batch(b"late")
    expect(producer.end(is_commit=True))
    settle(story)
    producer.deliver(late)
    settle(story)
    complain_if_stuck(story)


def the_coordinator_dies_with_its_decision(story: Story) -> None:
    """B-59: a coordinator that is cut off decides; its successor never hears of it and aborts."""
    producer = begun(story, timeout_ms=8000)
    expect(producer.send(b"paid"))
    coordinator = producer.coordinator()
    epoch = coordinator_epoch(story, producer)
    cut = story.isolate(coordinator)
    request = producer.end_request(is_commit=True)
    try:
        is_acknowledged = story.send_to_broker(coordinator, request).error_code == ErrorCode.NONE
    except (ConnectionError, TimeoutError):
        is_acknowledged = False
    story.kill(coordinator)
    # What was in flight when the node was cut off would arrive with the healing.
    story.until(lambda: coordinator_epoch(story, producer) > epoch)
    story.heal(cut)
    story.start(coordinator)
    settle(story, 12_000)
    if is_acknowledged and read_committed(story) != [b"paid"]:
        story.complain(
            "a transaction was committed for its producer and aborted for consumers", "T"
        )


def a_decision_waits_for_its_partition(story: Story) -> None:
    """B-60, B-61: the partition is away when its transaction is committed, then the coordinator is replaced."""
    story.begin()
    producer = TransactionalProducer(story)
    create_ledger(story, *((broker,) for broker in REPLICAS), min_isr=1)
    coordinator = producer.coordinator()
    # A partition on another broker, so that it alone is away.
    away = next(broker for broker in REPLICAS if broker != coordinator)
    index = REPLICAS.index(away)
    producer.init()
    expect(producer.add(index))
    expect(producer.send(b"paid", index))
    story.kill(away)
    partitions = story.cluster.metadata.partitions
    story.until(lambda: partitions[f"{LEDGER}-{index}"].leader == -1)
    expect(producer.end(is_commit=True))
    settle(story)
    story.kill(producer.coordinator())
    story.start(away, coordinator)
    settle(story)
    complain_if_stuck(story, index)


def two_producers_have_one_transactional_id(story: Story) -> None:
    """B-62: a producer is replaced by another one in the middle of a transaction."""
    zombie = begun(story)
    expect(zombie.send(b"zombie"))
    successor = TransactionalProducer(story)
    successor.init()
    expect(successor.add(0))
    expect(successor.send(b"successor"))
    expect(successor.end(is_commit=True))
    settle(story)
    if read_committed(story) != [b"successor"]:
        story.complain(
            "a record of a committed transaction is missing: it was taken for a repetition", "T"
        )


def a_producer_is_too_slow(story: Story) -> None:
    """B-63: a transaction exceeds its timeout between the records for two partitions."""
    story.begin()
    create_ledger(story, REPLICAS, REPLICAS)
    producer = TransactionalProducer(story)
    producer.init(timeout_ms=TIMEOUT_MS)
    expect(producer.add(0))
    expect(producer.send(b"debit", 0))
    settle(story)
    committed = (
        producer.add(1) is ErrorCode.NONE
        and producer.send(b"credit", 1) is ErrorCode.NONE
        and producer.end(is_commit=True) is ErrorCode.NONE
    )
    settle(story)
    if committed and (read_committed(story, 0), read_committed(story, 1)) != (
        [b"debit"],
        [b"credit"],
    ):
        story.complain("a transaction was committed in one partition and aborted in the other", "T")


def a_consumer_reads_during_a_transaction(story: Story) -> None:
    """B-64: a read_committed consumer reads while a transaction is open, which is then aborted."""
    producer = begun(story)
    expect(producer.send(b"refunded"))
    if read_committed(story):
        story.complain("a record of an open transaction was read", "T")
    expect(producer.end(is_commit=False))


def a_consumer_reads_an_aborted_transaction(story: Story) -> None:
    """B-65: a read_committed consumer reads a log with an aborted transaction."""
    producer = begun(story)
    expect(producer.send(b"refunded"))
    expect(producer.end(is_commit=False))
    settle(story)
    if read_committed(story):
        story.complain("a record of an aborted transaction was read", "T")


def a_marker_of_an_old_coordinator_arrives(story: Story) -> None:
    """B-66: a marker that was on its way for long arrives in a transaction of a later coordinator."""
    producer = begun(story)
    expect(producer.send(b"first"))
    coordinator = producer.coordinator()
    epoch = coordinator_epoch(story, producer)
    expect(producer.end(is_commit=True))
    settle(story)
    story.kill(coordinator)
    story.until(lambda: coordinator_epoch(story, producer) > epoch)
    story.start(coordinator)
    expect(producer.add(0))
    expect(producer.send(b"second"))
    expect(producer.end(is_commit=True))
    settle(story)
    expect(producer.add(0))
    expect(producer.send(b"debit"))
    late = producer.marker(is_commit=False, coordinator_epoch=epoch)
    story.deliver_late(late, leader_of(story, LEDGER, 0))
    expect(producer.send(b"credit"))
    expect(producer.end(is_commit=True))
    settle(story)
    if read_committed(story) != [b"first", b"second", b"debit", b"credit"]:
        story.complain("a late marker aborted the first half of a committed transaction", "T")


def nothing_ends_a_transaction(story: Story) -> None:
    """B-67: a producer begins a transaction and is never heard of again."""
    producer = begun(story, timeout_ms=TIMEOUT_MS)
    expect(producer.send(b"abandoned"))
    settle(story)
    complain_if_stuck(story)


def begun(story: Story, *, timeout_ms: int = 60_000) -> TransactionalProducer:
    """Creates the ledger and a producer whose transaction has its only partition."""
    story.begin()
    create_ledger(story, REPLICAS)
    producer = TransactionalProducer(story)
    producer.init(timeout_ms=timeout_ms)
    expect(producer.add(0))
    return producer


def coordinator_epoch(story: Story, producer: TransactionalProducer) -> int:
    """Returns the leader epoch of the partition with the producer's transactional id."""
    partitions = story.cluster.metadata.partitions
    count = sum(name.startswith(f"{STATE_TOPIC}-") for name in partitions)
    index = offsets_partition(producer.transactional_id, count)
    epoch: int = partitions[f"{STATE_TOPIC}-{index}"].leader_epoch
    return epoch


def settle(story: Story, ms: int = SETTLE_MS) -> None:
    """Lets everything end that ends by itself."""
    story.run_ms(ms)


def expect(error: ErrorCode) -> None:
    """Requires that a request of the story succeeded."""
    assert error is ErrorCode.NONE, error.name


def complain_if_stuck(story: Story, index: int = 0) -> None:
    """Complains if read_committed consumers do not reach the end of a partition without an open transaction."""
    stable, end = last_stable_offset(story, index)
    if stable < end:
        story.complain(f"read_committed consumers stay at offset {stable} of {end} for ever", "L")
