"""What happens to transactions in the simulated world, as plots of `harness.defects.story`."""

from typing import Any

from harness.defects.schedules.transactions import (
    REPLICAS,
    begun,
    coordinator_epoch,
    expect,
    settle,
)
from harness.defects.story import Story
from harness.defects.transactional import (
    LEDGER,
    TransactionalProducer,
    create_ledger,
    fetched,
    last_stable_offset,
    leader_of,
    read_committed,
)
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    describe_producers_request,
    describe_transactions_request,
    list_transactions_request,
)

OFFSETS = "__consumer_offsets"
GROUP = "billing"


def describe(producer: TransactionalProducer) -> Any:
    """Returns the transaction as its coordinator describes it."""
    request = describe_transactions_request.DescribeTransactionsRequest(
        transactional_ids=(producer.transactional_id,)
    )
    response = producer.story.send_to_broker(producer.coordinator(), request)
    return response.transaction_states[0]


def every_transaction_has_an_epoch(story: Story) -> None:
    """KIP-890: a batch of the transaction before is refused, and EndTxn may be repeated."""
    producer = begun(story)
    first = producer.epoch
    expect(producer.send(b"a"))
    late = producer.batch(b"late", is_late=True)
    again = producer.end_request(is_commit=True)
    expect(producer.end(is_commit=True))
    assert producer.epoch == first + 1
    settle(story)
    repeated = story.send_to_broker(producer.coordinator(), again)
    assert (repeated.error_code, repeated.producer_epoch) == (ErrorCode.NONE, first + 1)
    assert producer.deliver(late) is ErrorCode.INVALID_PRODUCER_EPOCH
    # The partition is not added by the producer: its leader does it.
    expect(producer.send(b"b"))
    assert [one.topic for one in describe(producer).topics] == [LEDGER]
    expect(producer.end(is_commit=True))
    settle(story)
    assert read_committed(story) == [b"a", b"b"]


def an_abort_waits_for_the_markers_of_the_commit_before_it(story: Story) -> None:
    """A producer aborts its next transaction before that has begun; it must wait, and is not refused.

    EndTxn returns the next epoch before the markers are written (KIP-890), so this abort arrives while the
    coordinator still has the transaction before. franz-go does so when its group rebalances.
    """
    producer = begun(story)
    expect(producer.send(b"a"))
    expect(producer.end(is_commit=True))
    early = producer.end_request(is_commit=False)
    response = story.send_to_broker(producer.coordinator(), early)
    assert response.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    epoch = producer.epoch
    expect(producer.end(is_commit=False))
    assert producer.epoch == epoch + 1
    settle(story)
    expect(producer.send(b"b"))
    expect(producer.end(is_commit=True))
    settle(story)
    assert read_committed(story) == [b"a", b"b"]


def a_transaction_begins_before_the_marker_of_the_one_before(story: Story) -> None:
    """The marker of a transaction is written while the leader adds its partition to the next one.

    It ends the transaction before and says nothing about the next, so the producer is not refused (KAFKA-18575).
    """
    story.begin()
    producer = TransactionalProducer(story)
    create_ledger(story, *((broker,) for broker in REPLICAS), min_isr=1)
    coordinator = producer.coordinator()
    leader = next(broker for broker in REPLICAS if broker != coordinator)
    index = REPLICAS.index(leader)
    producer.init()
    expect(producer.send(b"a", index))
    markers = story.hold("WriteTxnMarkersRequest", coordinator, leader)
    expect(producer.end(is_commit=True))
    additions = story.hold("AddPartitionsToTxnRequest", leader, coordinator)
    batch = producer.batch(b"b", index)

    async def send() -> Any:
        network = story.cluster.client_host("harness").network
        connection = await network.connect(f"b{leader}:9092", 500)
        return await connection.request(batch, 1000)

    sent = story.cluster.spawn("harness", send())
    story.run_ms(50)
    story.heal(markers)
    story.run_ms(300)
    assert describe(producer).transaction_state == "CompleteCommit"
    story.heal(additions)
    story.until(sent.done)
    refused = sent.result().responses[0].partition_responses[0].error_code
    assert refused == ErrorCode.CONCURRENT_TRANSACTIONS
    expect(producer.deliver(batch, index))
    expect(producer.end(is_commit=True))
    settle(story)
    assert read_committed(story, index) == [b"a", b"b"]


def transactions_are_described(story: Story) -> None:
    """KIP-664: state of transactions and of producers."""
    producer = begun(story)
    expect(producer.send(b"a"))
    found = describe(producer)
    assert (found.error_code, found.transaction_state) == (ErrorCode.NONE, "Ongoing")
    assert (found.producer_id, found.producer_epoch) == (producer.producer_id, producer.epoch)
    m = describe_producers_request
    topic = m.TopicRequest(name=LEDGER, partition_indexes=(0,))
    response = story.send_to_broker(
        leader_of(story, LEDGER, 0), m.DescribeProducersRequest(topics=(topic,))
    )
    (one,) = response.topics[0].partitions[0].active_producers
    assert (one.current_txn_start_offset, one.coordinator_epoch) == (0, -1)
    listed = story.send_to_broker(
        producer.coordinator(),
        list_transactions_request.ListTransactionsRequest(
            state_filters=("Ongoing", "Nonsense"), producer_id_filters=()
        ),
    )
    assert listed.unknown_state_filters == ("Nonsense",)
    assert [each.transactional_id for each in listed.transaction_states] == ["payments"]
    for pattern, error, count in (
        ("pay.*", ErrorCode.NONE, 1),
        ("pay", ErrorCode.NONE, 0),
        ("pay(", ErrorCode.INVALID_REGULAR_EXPRESSION, 0),
    ):
        request = list_transactions_request.ListTransactionsRequest(
            transactional_id_pattern=pattern
        )
        listed = story.send_to_broker(producer.coordinator(), request)
        assert (listed.error_code, len(listed.transaction_states)) == (error, count)
    expect(producer.end(is_commit=False))
    settle(story)
    assert describe(producer).transaction_state == "CompleteAbort"
    unknown = TransactionalProducer(story, "unknown")
    assert describe(unknown).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def a_zombie_is_fenced_everywhere(story: Story) -> None:
    """A producer that was replaced can neither add, nor write, nor end."""
    zombie = begun(story)
    expect(zombie.send(b"zombie"))
    successor = TransactionalProducer(story)
    successor.init()
    assert successor.producer_id == zombie.producer_id
    assert successor.epoch > zombie.epoch
    assert zombie.add(0) is ErrorCode.PRODUCER_FENCED
    assert zombie.send(b"again") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert zombie.end(is_commit=True) is ErrorCode.PRODUCER_FENCED
    expect(successor.send(b"successor"))
    expect(successor.end(is_commit=True))
    settle(story)
    assert read_committed(story) == [b"successor"]


def a_timeout_fences_the_producer(story: Story) -> None:
    """A transaction that exceeds its timeout is aborted, and its producer is fenced."""
    producer = begun(story, timeout_ms=1000)
    expect(producer.send(b"slow"))
    settle(story)
    assert describe(producer).transaction_state == "CompleteAbort"
    assert producer.send(b"slower") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.end(is_commit=True) is ErrorCode.PRODUCER_FENCED
    assert read_committed(story) == []
    stable, end = last_stable_offset(story)
    assert stable == end


def unused_transactional_ids_are_forgotten(story: Story) -> None:
    """After transactional.id.expiration.ms without a transaction the id is unknown, also after fail-over."""
    producer = begun(story)
    node = producer.coordinator()
    settle(story)
    assert describe(producer).transaction_state == "Ongoing"
    expect(producer.end(is_commit=False))
    settle(story)
    assert describe(producer).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    epoch = coordinator_epoch(story, producer)
    story.kill(node)
    story.until(lambda: coordinator_epoch(story, producer) > epoch)
    settle(story)
    assert describe(producer).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def coordinators_lose_power_in_a_row(story: Story) -> None:
    """Committed transactions stay committed, aborted ones aborted, whichever coordinator dies."""
    producer = begun(story)
    for number in range(6):
        expect(producer.send(b"%d" % number))
        node = producer.coordinator()
        epoch = coordinator_epoch(story, producer)
        if number % 2:
            story.power(node)
            expect(producer.end(is_commit=number < 4))
        else:
            expect(producer.end(is_commit=number < 4))
            story.power(node)
        story.until(lambda epoch=epoch: coordinator_epoch(story, producer) > epoch)
        story.start(node)
        story.until(lambda: len(story.cluster.metadata.partitions[f"{LEDGER}-0"].isr) == 3)
    settle(story, 5000)
    assert read_committed(story) == [b"0", b"1", b"2", b"3"]
    stable, end = last_stable_offset(story)
    assert stable == end


def a_leader_dies_with_an_open_transaction(story: Story) -> None:
    """The next leader knows the open transaction, and the aborted one before it."""
    producer = begun(story)
    expect(producer.send(b"aborted"))
    expect(producer.end(is_commit=False))
    settle(story)
    expect(producer.send(b"open"))
    leader = leader_of(story, LEDGER, 0)
    story.power(leader)
    partitions = story.cluster.metadata.partitions
    story.until(lambda: partitions[f"{LEDGER}-0"].leader not in (leader, -1))
    stable, end = last_stable_offset(story)
    assert (stable, end) == (2, 3)
    assert read_committed(story) == []
    expect(producer.end(is_commit=True))
    settle(story)
    data = fetched(story)
    assert [one.first_offset for one in data.aborted_transactions] == [0]
    assert read_committed(story) == [b"open"]
    assert fetched(story, isolation_level=0).aborted_transactions is None


def offsets_of_an_aborted_transaction(story: Story) -> None:
    """Offsets that were sent to a transaction count when it is committed, and not when it is aborted."""
    story.begin()
    create_ledger(story, REPLICAS)
    producer = TransactionalProducer(story, group=GROUP)
    producer.init()
    found = []
    for offset, is_commit in ((3, True), (7, False)):
        expect(producer.send_position(offset))
        found.append(producer.position())
        expect(producer.end(is_commit=is_commit))
        settle(story)
        found.append(producer.position(require_stable=False))
    unstable = (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    three = (ErrorCode.NONE, 3)
    if found != [unstable, three, unstable, three]:
        story.complain(f"offsets of transactions counted before their markers: {found}", "T")
    # A new coordinator of the group reads the same from the log.
    node = producer.group_coordinator()
    partitions = story.cluster.metadata.partitions
    led = [name for name, one in partitions.items() if one.leader == node]
    story.kill(node)
    story.until(lambda: all(partitions[name].leader != node for name in led))
    settle(story)
    if producer.position() != three:
        story.complain("the next coordinator counts offsets of an aborted transaction", "T")
