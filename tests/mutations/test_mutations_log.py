"""What happens without the rules about truncation, leader epochs and durability."""

import random
from uuid import UUID

import pytest

from harness.defects.playing import play
from harness.defects.schedules.controller import the_last_replica_loses_its_tail
from harness.defects.schedules.log import (
    a_new_leader_does_not_know_what_is_committed,
    and_a_follower_keeps_its_records,
    leadership_goes_there_and_back,
)
from harness.defects.story import Story
from harness.history.op import QueryKind
from system_under_test.config import LogConfig, NodeConfig, Voter
from system_under_test.log import LogManager
from system_under_test.log.verified import VerifiedBatches
from system_under_test.protocol.record_batch import CorruptBatchError, decode_records, encode_batch
from system_under_test.rules import Rules
from tests.memory_storage import MemoryStorage
from tests.mutations.coverage import shows
from tests.mutations.expectation import expect_defect

# --- TRUNC-1


@shows("TRUNC-1", "B-01")
def test_a_follower_that_truncates_to_its_high_watermark_cuts_committed_records() -> None:
    expect_defect("B-01")


# --- EC-1


@shows("EC-1", "B-07")
def test_unwritten_epochs_make_a_diverged_log_look_equal() -> None:
    expect_defect("B-07")


# --- EC-3, EC-8, LEAD-3


@shows("EC-3")
def test_an_end_offset_without_its_epoch_makes_a_diverged_log_look_equal() -> None:
    assert play(and_a_follower_keeps_its_records).is_clean
    assert play(and_a_follower_keeps_its_records, "EC-3").invariants & {"INV-2", "INV-4"}
    assert "D" in play(and_a_follower_keeps_its_records, "EC-3", is_watched=False).codes


@shows("EC-8", "B-77")
def test_an_epoch_that_begins_at_the_high_watermark_cuts_committed_records() -> None:
    expect_defect("B-77")


@shows("EC-8")
def test_clients_that_ask_where_an_epoch_ends_see_it_too() -> None:
    def plot(story: Story) -> None:
        a_new_leader_does_not_know_what_is_committed(story)
        # The first question after a death finds a closed connection.
        for _ in range(3):
            story.ask_about_newest(QueryKind.LEADER_EPOCH)
        # The follower cuts its log again and again, until the record that it copies has another one behind it.
        story.append_ok(acks=1, client=story.new_client(asks=2))

    settings = {"queries_per_s": 1.0}
    assert play(plot, workload=settings).is_clean
    ending = play(plot, "EC-8", is_watched=False, workload=settings)
    assert "epoch-ends-early" in ending.forbidden, str(ending)


@shows("LEAD-3")
def test_a_leader_without_its_own_epoch_entry_cannot_locate_the_divergence_of_a_follower() -> None:
    """With comparisons in every fetch the harm is a follower that does not return until the leader appends."""
    assert play(leadership_goes_there_and_back).is_clean
    assert play(leadership_goes_there_and_back, "LEAD-3").codes == {"L"}


# --- LOG-1


@shows("LOG-1")
def test_if_every_append_were_synced_the_last_replica_would_lose_nothing() -> None:
    """The rule is what makes the bug possible: with ELR off and a sync per append, V3a does no harm."""
    assert "A" in play(the_last_replica_loses_its_tail, profile="kafka-4.0").codes
    synced = play(the_last_replica_loses_its_tail_durably, "LOG-1", profile="kafka-4.0")
    assert synced.is_clean, synced


def the_last_replica_loses_its_tail_durably(story: Story) -> None:
    """As `the_last_replica_loses_its_tail`; everything unsynced goes, which is nothing."""
    story.loses_unsynced_only = True
    the_last_replica_loses_its_tail(story)


# --- TRUNC-3


@shows("TRUNC-3")
@pytest.mark.parametrize("off", [(), ("TRUNC-3",)])
def test_a_recovery_trusts_what_was_rewritten_after_a_cut_only_without_trunc_3(
    off: tuple[str, ...],
) -> None:
    """Six durable records are truncated to two and rewritten, not durably; then the power is cut.

    The checkpointed recovery point must not vouch for the four new ones, of which one went bad.
    """
    storage = MemoryStorage()
    batch = encode_batch([(None, b"x")], timestamp_ms=1)

    def start() -> LogManager:
        config = NodeConfig(
            node_id=1,
            role="broker",
            address="b1:9092",
            cluster_id="story",
            voters=(Voter(node_id=11, address="c11:9093"),),
            rules=Rules(off),
            log=LogConfig(segment_bytes=2 * len(batch)),
        )
        manager = LogManager(storage, config, random.Random(1))
        manager.load_all()
        return manager

    manager = start()
    log = manager.get_or_create("t", 0, UUID(int=9))
    for _ in range(6):
        log.append_as_leader(VerifiedBatches.verify(batch), 0)
    log.flush_blocking()
    manager.write_recovery_points()
    log.truncate_to(2)
    for _ in range(6):
        log.append_as_leader(VerifiedBatches.verify(batch), 1)
    storage.corrupt("data/t-0/00000000000000000002.log", len(batch) - 2)

    recovered = start().get("t", 0)
    assert recovered is not None
    if off:
        assert recovered.log_end_offset == 8
        with pytest.raises(CorruptBatchError, match="checksum"):
            decode_records(recovered.read(2, 1, 8))
    else:
        assert recovered.log_end_offset == 2
