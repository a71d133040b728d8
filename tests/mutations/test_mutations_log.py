"""What happens without the rules about truncation, leader epochs and durability."""

import random
from uuid import UUID

import pytest

from system_under_test.config import LogConfig, NodeConfig, Voter
from system_under_test.log import LogManager
from system_under_test.log.verified import VerifiedBatches
from system_under_test.protocol.record_batch import CorruptBatchError, decode_records, encode_batch
from system_under_test.rules import Rules
from tests.memory_storage import MemoryStorage
from tests.mutations.coverage import shows
from tests.mutations.mutation_story import Story, expect_defect, play
from tests.mutations.test_mutations_controller import the_last_replica_loses_its_tail

# --- TRUNC-1


def two_leaders_die_in_a_row(story: Story) -> None:
    """B-01: 2 and 3 have a committed record and have not heard that it is committed."""
    story.begin()
    task = story.begin_append()
    story.until(lambda: story.log_end(2) == 11 and story.log_end(3) == 11)
    holds = [story.hold("FetchResponse", 1, follower) for follower in (2, 3)]
    story.until(task.done)
    cut = story.cut(2, 3)
    story.kill(1)
    story.wait(fenced=(1,), leader=2, isr=(2, 3))
    story.heal(*holds)
    story.until(lambda: story.partition(3).leader_epoch == story.state.leader_epoch)
    story.kill(2)
    story.wait(fenced=(2,), leader=3)
    story.heal(cut)


@shows("TRUNC-1", "B-01")
def test_a_follower_that_truncates_to_its_high_watermark_cuts_committed_records() -> None:
    expect_defect("B-01", two_leaders_die_in_a_row)


# --- EC-1


def all_replicas_but_one_stop_in_order(story: Story) -> None:
    """B-07: 2 restarts cleanly and leads at once, with the epochs in its file.

    Broker 1, cut off, has a tail of epoch 0; whether that diverges is decided by where epoch 0 ends at 2.
    """
    story.begin()
    away = story.isolate(1)
    story.append(5, acks=1)
    story.wait(fenced=(1,), leader=2, isr=(2, 3))
    client = story.new_client(asks=2)
    story.append_ok(10, client=client)
    story.read(client)
    story.stop(3, 2)
    story.wait(isr=(), leader=-1)
    story.start(2)
    story.wait(leader=2)
    story.heal(away)
    story.wait(isr=(1, 2))
    story.start(3)
    story.wait(isr=(1, 2, 3))
    story.kill(2)
    story.wait(fenced=(2,), leader=1)
    story.until(lambda: story.partition(1).is_leader)
    story.read(story.new_client(asks=3))


@shows("EC-1", "B-07")
def test_unwritten_epochs_make_a_diverged_log_look_equal() -> None:
    expect_defect("B-07", all_replicas_but_one_stop_in_order)


# --- EC-3, LEAD-3


def leadership_goes_there_and_back(story: Story) -> None:
    """1 wrote five records in epoch 0, 2 wrote two in epoch 1, and 1, which never saw epoch 1, leads again.

    Every one of these records was acknowledged with acks=1 only, so they may go. What may not happen is that 2
    keeps its two, and follows 1 from there on.
    """
    story.begin()
    story.isolate(3)
    story.wait(fenced=(3,), isr=(1, 2))
    cut = story.isolate(1, planes=("inter-broker",))
    story.append(5, acks=1)
    away_1 = story.isolate(1)
    story.wait(fenced=(1,), leader=2, isr=(2,), elr=(1,))
    client = story.new_client(asks=2)
    story.append_ok(2, acks=1, client=client)
    away_2 = story.isolate(2)
    story.wait(fenced=(2,), leader=-1)
    story.heal(away_1)
    story.wait(leader=1, isr=(1,))
    story.heal(away_2, cut)
    story.wait(unfenced=(2,))


def and_a_follower_keeps_its_records(story: Story) -> None:
    """B-02: afterwards 2 leads once more."""
    leadership_goes_there_and_back(story)
    story.wait(isr=(1, 2))
    client = story.new_client(asks=1)
    story.append_ok(3, client=client)
    story.read(client)
    story.kill(1)
    story.wait(fenced=(1,), leader=2)
    story.until(lambda: story.partition(2).is_leader)


@shows("EC-3")
def test_an_end_offset_without_its_epoch_makes_a_diverged_log_look_equal() -> None:
    assert play(and_a_follower_keeps_its_records).is_clean
    assert play(and_a_follower_keeps_its_records, "EC-3").invariants & {"INV-2", "INV-4"}
    assert "D" in play(and_a_follower_keeps_its_records, "EC-3", is_watched=False).codes


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
