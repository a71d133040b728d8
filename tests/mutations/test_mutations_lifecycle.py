"""What happens without the rules of a broker's life: registration, markers, the first metadata."""

import asyncio
import random

import pytest

from harness.defects.playing import play
from harness.defects.schedules.high_watermark import alone
from harness.defects.schedules.lifecycle import (
    a_leader_is_back_before_it_was_fenced,
    a_marker_of_an_earlier_stop_survives,
)
from harness.defects.story import Story
from system_under_test.config import LogConfig, NodeConfig, Voter
from system_under_test.log import LogManager
from system_under_test.rules import Rules
from tests import controller_story
from tests.memory_storage import MemoryStorage
from tests.mutations.coverage import shows
from tests.mutations.expectation import expect_defect

MARKER = "data/.kafka_cleanshutdown"

# --- B-00: no rule is off, the profile has no ELR


@shows("B-00")
def test_the_last_replica_standing_bug_needs_no_defect_where_elr_is_off() -> None:
    expect_defect("B-00")


# --- REG-3, ELR-4


@shows("REG-3", "B-25")
def test_without_detecting_an_unclean_registration_a_truncated_log_leads() -> None:
    expect_defect("B-25")


@shows("ELR-4", "B-27")
def test_an_unclean_registration_that_keeps_its_elr_membership_lets_a_truncated_log_lead() -> None:
    expect_defect("B-27")


# --- REG-2 with CS-3


@shows("REG-2", "CS-3", "B-26")
def test_trusting_any_clean_shutdown_marker_lets_a_truncated_log_lead() -> None:
    expect_defect("B-26")


def test_either_of_the_two_rules_about_old_markers_suffices() -> None:
    for rule in ("REG-2", "CS-3"):
        ending = play(a_marker_of_an_earlier_stop_survives, rule)
        assert ending.is_clean, f"{rule} is off: {ending}"


# --- CS-3, REC-1: what recovery trusts


def bad_sector(story: Story, *, stopped_before: bool) -> None:
    """Broker 1 loses power; what it had not synced is there, but wrong."""
    story.begin()
    if stopped_before:
        story.stop(1)
        story.start(1)
        story.wait(isr=(1, 2, 3), unfenced=(1,))
        story.append_ok(5, client=story.new_client(asks=2))
        story.until(lambda: story.log_end(1) == 15)
    story.power(1, keep_records=15)
    story.flip_bit_of_last_record(1)
    story.wait(fenced=(1,), leader=2)
    story.start(1)
    story.wait(isr=(1, 2, 3))
    story.kill(2)
    story.wait(fenced=(2,), leader=1)
    story.until(lambda: story.partition(1).is_leader)
    story.read(story.new_client(asks=3))


def a_bad_sector_after_an_earlier_stop(story: Story) -> None:
    """As `bad_sector`; before it broker 1 had stopped cleanly once."""
    bad_sector(story, stopped_before=True)


def a_bad_sector(story: Story) -> None:
    """As `bad_sector`, in the first life of broker 1."""
    bad_sector(story, stopped_before=False)


@shows("CS-3")
def test_a_marker_that_was_not_deleted_skips_the_recovery_of_a_corrupt_log() -> None:
    assert play(a_bad_sector_after_an_earlier_stop).is_clean
    ending = play(a_bad_sector_after_an_earlier_stop, "CS-3", is_watched=False)
    assert "C" in ending.codes, ending


@shows("REC-1")
def test_a_recovery_that_trusts_wrong_checksums_serves_a_corrupt_record() -> None:
    assert play(a_bad_sector).is_clean
    ending = play(a_bad_sector, "REC-1", is_watched=False)
    assert "C" in ending.codes, ending


# --- CS-1


def the_power_fails_in_an_orderly_stop(story: Story) -> None:
    """The last replica stops cleanly; its marker is written; then it loses power."""
    tokens = alone(story)
    node = story.world.nodes["b1"]
    node.stop(20_000)
    story.until(lambda: MARKER in node.disk.files)
    story.power(1)
    story.wait(fenced=(1,), leader=-1)
    story.start(1)
    story.wait(unfenced=(1,), leader=1)
    story.heal(*tokens)
    story.wait(unfenced=(2, 3))


@shows("CS-1")
def test_a_marker_written_before_the_logs_are_flushed_lets_an_empty_log_lead() -> None:
    assert play(the_power_fails_in_an_orderly_stop).is_clean
    assert play(the_power_fails_in_an_orderly_stop, "CS-1").invariants == {"INV-2"}
    ending = play(the_power_fails_in_an_orderly_stop, "CS-1", is_watched=False)
    assert "A" in ending.codes, ending


# --- CS-2: two directories


@shows("CS-2")
@pytest.mark.parametrize("off", [(), ("CS-2",)])
def test_an_old_copy_of_one_directory_counts_as_clean_only_without_cs_2(
    off: tuple[str, ...],
) -> None:
    """B-49 in small: one disk is replaced by a backup; the marker of the other must not vouch for it."""
    storage = MemoryStorage()

    def start() -> LogManager:
        config = NodeConfig(
            node_id=1,
            role="broker",
            address="b1:9092",
            cluster_id=controller_story.CLUSTER_ID,
            voters=(Voter(node_id=11, address="c11:9093"),),
            log_dirs=("a", "b"),
            rules=Rules(off),
            log=LogConfig(),
        )
        return LogManager(storage, config, random.Random(1))

    first = start()
    first.load_all()
    asyncio.run(first.shutdown(0))
    backup = storage.read("b/.kafka_cleanshutdown")

    story = controller_story.Story(controller_story.policy_of("kafka-4.1", without=off))
    story.start(1, 2, 3)
    story.topic((1, 2, 3), min_isr=2)
    story.fence(2, 3, 1)
    assert 1 in story.p.elr
    second = start()
    second.load_all()
    asyncio.run(second.shutdown(story.image.brokers[1].broker_epoch))
    storage.write("b/.kafka_cleanshutdown", backup)

    story.now_ns += 2 * controller_story.SESSION_NS
    story.register(1, previous_epoch=start().clean_broker_epoch())
    assert (1 in story.p.elr) == bool(off)


# --- REG-1, REG-4


def a_leader_is_back_at_once(story: Story) -> None:
    """The leader loses power and everything it had, and registers again within its session."""
    story.begin()
    story.power(1, keep_records=0)
    story.start(1)
    story.wait(unfenced=(1,), has_leader=True)
    story.run_ms(700)
    story.wait(unfenced=(1,), has_leader=True)


@shows("REG-1")
def test_a_second_incarnation_accepted_within_the_session_leads_with_an_empty_log() -> None:
    assert play(a_leader_is_back_at_once, profile="kafka-3.9").is_clean
    ending = play(a_leader_is_back_at_once, "REG-1", profile="kafka-3.9")
    assert "A" in ending.codes, ending


@shows("REG-4", "B-33")
def test_a_registration_that_does_not_clean_the_isr_lets_an_empty_log_lead() -> None:
    expect_defect("B-33")


@shows("CS-5", "B-68")
def test_a_stop_during_a_start_that_leaves_no_marker_lets_a_truncated_log_lead() -> None:
    expect_defect("B-68")


def test_in_3_9_registration_does_not_clean_the_isr() -> None:
    """KAFKA-18106: the profile needs no defect for it."""
    ending = play(a_leader_is_back_before_it_was_fenced, profile="kafka-3.9")
    assert "A" in ending.codes, ending


# --- LIFE-1


@shows("LIFE-1", "B-42")
def test_a_broker_that_acts_on_old_metadata_writes_diverging_records_in_its_old_epoch() -> None:
    expect_defect("B-42")
