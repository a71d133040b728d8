"""The replica manager around its partitions: deltas, timers, offsets, gauges."""

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest

from system_under_test.broker.interfaces import LocalPartitionsDelta
from system_under_test.broker.partition import Partition
from system_under_test.protocol.messages import decode, encode
from tests.unit.system_under_test.broker.node_fakes import run_virtually
from tests.unit.system_under_test.broker.replica_fakes import TOPIC, Broker, batch, only_produced
from tests.unit.system_under_test.broker.test_partition_leader import append, lead_with_followers_at


def test_a_topic_that_was_created_again_starts_with_an_empty_log():
    broker = lead_with_followers_at(3)
    broker.registration = replace(broker.registration, topic_id=UUID(int=8), leader_epoch=0)
    broker.register(partition_epoch=0)
    assert (broker.log_end, broker.high_watermark) == (0, 0)
    assert broker.partition.topic_id == UUID(int=8)


def test_removing_a_replica_removes_its_log_and_its_fetcher():
    broker = Broker()
    broker.follow(2)
    broker.replicate(batch("a", epoch=1))
    broker.manager.apply_delta(LocalPartitionsDelta(deletes=((TOPIC, 0, False),)), 101)
    assert broker.manager.partitions == {}
    assert broker.fetchers.following == {}
    assert broker.logs.get(TOPIC, 0) is None
    assert only_produced(broker.produce("a", acks=1)).error_code == 6


def test_a_publish_deletes_then_leads_then_follows(monkeypatch):
    broker = Broker()
    broker.follow(2)
    seen = []

    def note(name):
        original = getattr(Partition, name)

        def noted(self, *given):
            seen.append(name)
            return original(self, *given)

        monkeypatch.setattr(Partition, name, noted)

    for name in ("make_follower", "make_leader", "remove"):
        note(name)
    delta = LocalPartitionsDelta(
        deletes=((TOPIC, 0, False),),
        leaders=(replace(broker.registration, partition=1, leader=1),),
        followers=(replace(broker.registration, partition=2),),
    )
    broker.manager.apply_delta(delta, 101)
    assert seen == ["remove", "make_leader", "make_follower"]


def test_a_disk_that_fails_under_a_publish_ends_it():
    broker = Broker()
    broker.storage.failing.update({"append", "write"})
    with pytest.raises(OSError, match="input/output"):
        broker.lead()


def test_timers_shrink_isrs_and_write_checkpoints():
    async def story() -> None:
        broker = lead_with_followers_at(2)
        append(broker, "x")
        broker.manager.start()
        broker.clock.now_ns = 10**12
        await asyncio.sleep(0.6)
        assert broker.alter.proposed == (1,)
        assert broker.logs.checkpointed_high_watermark(TOPIC, 0) == 2
        broker.manager.stop()
        broker.alter.accept()
        broker.partition.replica.high_watermark = 3
        await asyncio.sleep(5)
        assert broker.logs.checkpointed_high_watermark(TOPIC, 0) == 2

    run_virtually(story())


def test_a_checkpoint_that_cannot_be_written_is_a_storage_failure():
    async def story() -> None:
        broker = lead_with_followers_at(1)
        broker.manager.start()
        broker.storage.failing.add("write")
        await asyncio.sleep(0.6)
        broker.manager.stop()
        assert len(broker.storage_failures) == 1

    run_virtually(story())


def test_gauges_show_the_state_of_the_isr():
    broker = lead_with_followers_at(1)
    gauges = broker.manager.gauges()
    assert (gauges["LeaderCount"], gauges["UnderReplicatedPartitions"]) == (1, 0)
    broker.register(isr=(1, 2))
    gauges = broker.manager.gauges()
    assert (gauges["UnderReplicatedPartitions"], gauges["AtMinIsrPartitionCount"]) == (1, 1)
    broker.register(isr=(1,))
    assert broker.manager.gauges()["UnderMinIsrPartitionCount"] == 1


def test_a_partition_that_is_being_extended_is_not_under_replicated():
    broker = lead_with_followers_at(1)
    broker.register(replicas=(1, 2, 3, 4), adding_replicas=(4,), isr=(1, 2, 3))
    assert not broker.partition.leadership.is_under_replicated


def test_other_messages_are_not_handled():
    assert not Broker().manager.handles("something else")


# --- ListOffsets


def test_clients_see_the_high_watermark_and_replicas_the_log_end():
    broker = lead_with_followers_at(2)
    append(broker, "x")
    latest = broker.list_offsets()
    assert (latest.error_code, latest.offset, latest.leader_epoch) == (0, 2, 1)
    assert broker.list_offsets(replica=2).offset == 3
    earliest = broker.list_offsets(-2)
    assert (earliest.offset, earliest.leader_epoch) == (0, 1)


def new_leader_behind(**options) -> Broker:
    """A new leader with the high watermark 1 whose epoch starts at 2."""
    broker = Broker(**options)
    broker.follow(2)
    broker.replicate(batch("a", epoch=1), batch("b", base_offset=1, epoch=1), high_watermark=1)
    broker.lead()
    return broker


def test_the_latest_offset_is_refused_until_the_epoch_start_is_committed():
    broker = new_leader_behind()
    assert broker.list_offsets().error_code == 78
    assert broker.list_offsets(replica=2).offset == 2
    assert broker.list_offsets(-2).error_code == 0
    broker.follower_fetch(2, 2)
    broker.follower_fetch(3, 2)
    assert broker.list_offsets().offset == 2


def test_without_lo1_the_latest_offset_may_go_back():
    assert new_leader_behind(without=("LO-1",)).list_offsets().offset == 1


def test_offsets_are_found_by_timestamp_below_the_high_watermark():
    broker = Broker()
    broker.lead()
    for time_ms, value in ((10, "a"), (30, "b"), (20, "c"), (50, "d")):
        broker.produce(data=batch(value, timestamp_ms=time_ms), acks=1)
    broker.follower_fetch(2, 3)
    broker.follower_fetch(3, 3)
    found = broker.list_offsets(15)
    assert (found.offset, found.timestamp, found.leader_epoch) == (1, 30, 1)
    assert broker.list_offsets(40).offset == -1  # offset 3 is not committed
    assert broker.list_offsets(40, replica=2).offset == 3
    assert broker.list_offsets(60, replica=2).offset == -1
    largest = broker.list_offsets(-3, replica=2)
    assert (largest.offset, largest.timestamp) == (3, 50)


def test_a_timestamp_beyond_what_may_be_read_is_refused_while_the_leader_is_behind():
    broker = new_leader_behind()
    assert broker.list_offsets(1).offset == 0
    assert broker.list_offsets(2).error_code == 78


def test_unknown_kinds_of_timestamps_are_refused():
    assert lead_with_followers_at(0).list_offsets(-6).error_code == 35


def test_tiered_storage_timestamps_have_no_offset():
    response = lead_with_followers_at(3).list_offsets(-5)
    assert (response.error_code, response.offset) == (0, -1)


def test_offsets_are_reported_only_by_the_leader_of_that_epoch():
    broker = lead_with_followers_at(1)
    assert broker.list_offsets(epoch=0).error_code == 74
    assert broker.list_offsets(epoch=2).error_code == 75
    broker.follow(2)
    assert broker.list_offsets().error_code == 6
    assert broker.end_of_epoch(1).error_code == 6


# --- OffsetForLeaderEpoch


def test_the_end_of_an_epoch_is_where_the_next_one_starts():
    broker = lead_with_followers_at(2)
    broker.lead(leader_epoch=4)
    append(broker, "x")
    for asked, epoch, end in ((1, 1, 2), (3, 1, 2), (4, 4, 3), (5, -1, -1), (0, 0, 0)):
        response = broker.end_of_epoch(asked)
        assert (response.error_code, response.leader_epoch, response.end_offset) == (0, epoch, end)
    assert broker.end_of_epoch(1, current=1).error_code == 74


def test_offset_responses_survive_the_codec():
    broker = lead_with_followers_at(1)
    seen = []
    send = broker.send
    broker.send = lambda message: seen.append(send(message)) or seen[-1]
    broker.list_offsets()
    broker.end_of_epoch(1)
    assert len(seen) == 2
    for response in seen:
        assert decode(type(response), encode(response)) == response
