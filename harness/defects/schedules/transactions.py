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
from system_under_test.transaction.transaction import BUMPS_EPOCHS

REPLICAS = (1, 2, 3)
ORDERS, PAYMENTS = 0, 1
"""Partitions of the ledger that a group reads from, and that it writes to."""
GROUP = "billing"
SETTLE_MS = 3000
"""Longer than markers and the search for transactions that exceeded their timeout take with fast timings."""
TIMEOUT_MS = 1000


def a_batch_arrives_after_the_marker(story: Story) -> None:
    """B-58: a batch is late by so much that its transaction was committed meanwhile (KIP-890)."""
    producer = begun(story)
    producer.send(b"in time")
    late = producer.batch(b"late", is_late=True)
    expect(producer.end(is_commit=True))
    settle(story)
    producer.deliver(late)
    settle(story)
    complain_if_stuck(story)


def the_coordinator_dies_with_its_decision(story: Story) -> None:
    """B-59: a coordinator that is cut off decides; its successor never hears of it and aborts.

    The transaction consumed an order, so the next processor of the group consumes that again.
    """
    two_partitions(story)
    orders = TransactionalProducer(story, "orders")
    orders.init()
    send_and_commit(orders, (b"order", ORDERS), (b"opening balance", PAYMENTS))
    processor = TransactionalProducer(story, group=GROUP)
    processor.init(timeout_ms=8000)
    processor.poll(ORDERS)
    expect(processor.add(PAYMENTS))
    expect(processor.send(b"paid", PAYMENTS))
    expect(processor.send_position(1, ORDERS))
    coordinator = processor.coordinator()
    epoch = coordinator_epoch(story, processor)
    cut = story.isolate(coordinator)
    is_acknowledged = processor.commit_at(coordinator)
    story.kill(coordinator)
    story.until(lambda: coordinator_epoch(story, processor) > epoch)
    settle(story, 12_000)
    # Only now: the healing delivers the markers that the node had sent when it was cut off. The partition refuses
    # them, because it has a marker of the successor.
    story.heal(cut)
    story.start(coordinator)
    settle(story)
    if is_acknowledged and read_committed(story, PAYMENTS) != [b"opening balance", b"paid"]:
        story.complain(
            "a transaction was committed for its producer and aborted for consumers", "T"
        )
    successor = TransactionalProducer(story, group=GROUP)
    successor.init()
    _, position = successor.position(ORDERS)
    if successor.poll(ORDERS, position=max(position, 0)):
        expect(successor.add(PAYMENTS))
        expect(successor.send(b"paid again", PAYMENTS))
        expect(successor.send_position(1, ORDERS))
        expect(successor.end(is_commit=True))
    settle(story)


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
    """B-62: a producer is replaced by another one in the middle of a transaction, and later a processor is."""
    two_partitions(story)
    zombie = TransactionalProducer(story, "orders")
    zombie.init()
    expect(zombie.add(ORDERS))
    expect(zombie.send(b"zombie", ORDERS))
    successor = TransactionalProducer(story, "orders")
    successor.init()
    send_and_commit(successor, (b"successor", ORDERS))
    zombie.end(is_commit=True)
    if read_committed(story, ORDERS) != [b"successor"]:
        story.complain(
            "a record of a committed transaction is missing: it was taken for a repetition", "T"
        )
    offsets = []
    for order in (b"first", b"second", b"third"):
        offsets.append(last_stable_offset(story, ORDERS)[0])
        send_and_commit(successor, (order, ORDERS))
    _a_processor_is_replaced(story, *offsets[:2])


def _a_processor_is_replaced(story: Story, first: int, second: int) -> None:
    """The zombie's position becomes a part of the transaction of the processor that replaced it.

    Args:
        story: The run.
        first: Offset of the first order that the group consumes.
        second: Offset of the next one.
    """
    zombie = TransactionalProducer(story, group=GROUP)
    zombie.init()
    zombie.poll(ORDERS, position=first, count=2)
    expect(zombie.add(PAYMENTS))
    expect(zombie.send(b"paid by the zombie", PAYMENTS))
    successor = TransactionalProducer(story, group=GROUP)
    successor.init()
    successor.poll(ORDERS, position=first, count=1)
    expect(successor.add(PAYMENTS))
    expect(successor.send_position(first + 1, ORDERS))
    zombie.send_position(second + 1, ORDERS)
    expect(successor.end(is_commit=True))
    zombie.end(is_commit=False)
    settle(story)
    next_one = TransactionalProducer(story, group=GROUP)
    next_one.init()
    _, position = next_one.position(ORDERS)
    next_one.poll(ORDERS, position=position)
    expect(next_one.add(PAYMENTS))
    expect(next_one.send(b"paid", PAYMENTS))
    expect(next_one.send_position(last_stable_offset(story, ORDERS)[0], ORDERS))
    expect(next_one.end(is_commit=True))
    settle(story)


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
    """B-64: read_committed consumers read during two transactions; the first is aborted, the second committed."""
    producer = begun(story)
    for word, is_commit in ((b"refunded", False), (b"paid", True)):
        expect(producer.add(0))
        expect(producer.send(word))
        if read_committed(story):
            story.complain("a record of an open transaction was read", "T")
        expect(producer.end(is_commit=is_commit))
        settle(story)


def a_consumer_reads_an_aborted_transaction(story: Story) -> None:
    """B-65: consumers read a log with an aborted transaction, one of them in a transaction of its own."""
    producer = begun(story)
    expect(producer.send(b"refunded"))
    expect(producer.end(is_commit=False))
    settle(story)
    if read_committed(story):
        story.complain("a record of an aborted transaction was read", "T")
    processor = TransactionalProducer(story, "processor", group=GROUP)
    processor.init()
    processor.poll()
    expect(processor.add(0))
    expect(processor.end(is_commit=False))


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


def a_marker_arrives_twice(story: Story) -> None:
    """B-78: the marker that aborted a transaction arrives again in the next one, which has its epoch."""
    producer = begun(story)
    expect(producer.send(b"refunded"))
    expect(producer.end(is_commit=False))
    settle(story)
    late = producer.marker(
        is_commit=False,
        coordinator_epoch=coordinator_epoch(story, producer),
        transaction_version=BUMPS_EPOCHS,
    )
    expect(producer.add(0))
    expect(producer.send(b"debit"))
    story.deliver_late(late, leader_of(story, LEDGER, 0))
    expect(producer.send(b"credit"))
    expect(producer.end(is_commit=True))
    settle(story)
    if read_committed(story) != [b"debit", b"credit"]:
        story.complain("a late marker aborted the first half of a committed transaction", "T")


def nothing_ends_a_transaction(story: Story) -> None:
    """B-67: a producer begins a transaction and is never heard of again."""
    producer = begun(story, timeout_ms=TIMEOUT_MS)
    expect(producer.send(b"abandoned"))
    settle(story)
    complain_if_stuck(story)


def two_partitions(story: Story) -> None:
    """Creates the ledger with a partition of orders and one of payments."""
    story.begin()
    create_ledger(story, REPLICAS, REPLICAS)


def send_and_commit(producer: TransactionalProducer, *records: tuple[bytes, int]) -> None:
    """Sends records, each with its partition, in a transaction that commits."""
    for word, index in records:
        expect(producer.add(index))
        expect(producer.send(word, index))
    expect(producer.end(is_commit=True))
    settle(producer.story)


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
