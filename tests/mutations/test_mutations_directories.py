"""Log directories: what clients see when a rule about them is off (DIR-1 to DIR-5, CS-2, EC-7).

Every broker has two directories. The replicas begin in the first one, which also has the metadata log; a test
moves a replica to the second one before that one fails.
"""

import pytest

from harness.defects.playing import Ending, play
from harness.defects.schedules.directories import expect_soon, the_last_members_directory_breaks
from harness.defects.story import Plot, Story
from tests.mutations.coverage import shows
from tests.mutations.expectation import expect_defect


def play_with_two(plot: Plot, *off: str, **options: object) -> Ending:
    return play(plot, *off, log_dirs=2, **options)  # type: ignore[arg-type]


# --- DIR-1, DIR-2: one directory of the leader fails


def a_directory_of_the_leader_fails(story: Story) -> None:
    story.begin()
    story.move(1)
    broken = story.break_directory(1)
    story.append(1)
    if expect_soon(story, "no other broker leads", leader=2, isr=(2, 3), unfenced=(1,)):
        story.append_ok(5)
        assert not story.has_replica(1)
    story.repair_directory(1, broken)
    story.wait(isr=(1, 2, 3))


@shows("DIR-1")
def test_a_failed_directory_that_is_not_reported_keeps_its_leaderships() -> None:
    control = play_with_two(a_directory_of_the_leader_fails)
    assert control.is_clean, control
    assert "L" in play_with_two(a_directory_of_the_leader_fails, "DIR-1").codes


@shows("DIR-2")
def test_a_failed_directory_that_the_controller_ignores_keeps_its_leaderships() -> None:
    assert "L" in play_with_two(a_directory_of_the_leader_fails, "DIR-2").codes


def test_a_failure_is_found_by_whatever_uses_the_directory_next() -> None:
    """Nothing is appended: the checkpoint of high watermarks finds it."""

    def plot(story: Story) -> None:
        story.begin()
        story.move(1)
        broken = story.break_directory(1)
        story.wait(leader=2, isr=(2, 3), unfenced=(1,))
        story.repair_directory(1, broken)
        story.wait(isr=(1, 2, 3))

    assert play_with_two(plot).is_clean


def test_a_follower_continues_without_the_replica_whose_directory_failed() -> None:
    def plot(story: Story) -> None:
        story.begin()
        story.move(3)
        broken = story.break_directory(3)
        story.append_ok(3)
        story.wait(leader=1, isr=(1, 2), unfenced=(3,))
        story.repair_directory(3, broken)
        story.wait(isr=(1, 2, 3))

    assert play_with_two(plot).is_clean


def test_the_failure_of_the_directory_with_the_metadata_log_ends_the_broker() -> None:
    def plot(story: Story) -> None:
        story.begin()
        broken = story.break_directory(1, "data")
        story.wait(leader=2, fenced=(1,))
        assert story.broker(1) is None
        story.world.nodes["b1"].disk.heal(broken)
        story.start(1)
        story.wait(isr=(1, 2, 3))

    assert play_with_two(plot).is_clean


# --- DIR-3: the replica is complete, and cannot be read


def the_last_members_directory_fails(story: Story) -> None:
    isolated, broken = the_last_members_directory_breaks(story)
    story.start(2)
    story.wait(unfenced=(2,))
    story.run_ms(300)
    story.heal(isolated)
    expect_soon(story, "a broker leads that cannot read its log", leader=3)
    story.repair_directory(1, broken)
    story.wait(isr=(1, 2, 3))


@shows("DIR-3")
def test_a_replica_in_an_offline_directory_leads_without_dir_3() -> None:
    control = play_with_two(the_last_members_directory_fails)
    assert control.is_clean, control
    assert "L" in play_with_two(the_last_members_directory_fails, "DIR-3").codes


# --- DIR-4: an empty log beside an offline directory


def a_broker_starts_without_a_directory(story: Story) -> None:
    """ELR is off, so the broker that has everything is still in the ISR when it is back without its directory."""
    story.begin()
    story.move(1)
    story.kill(2)
    story.wait(fenced=(2,))
    story.kill(3)
    story.wait(fenced=(3,), isr=(1,))
    story.stop(1)
    story.wait(leader=-1, isr=(1,))
    broken = story.break_directory(1)
    story.start(1)
    story.wait(unfenced=(1,))
    story.run_ms(500)
    story.start(2, 3)
    story.wait(unfenced=(2, 3))
    story.run_ms(500)
    if story.state.leader == 1:
        story.append_ok(1)
        story.world.nodes["b1"].disk.heal(broken)
        return
    story.repair_directory(1, broken)
    story.wait(leader=1, isr=(1, 2, 3))


@shows("DIR-4")
@pytest.mark.parametrize("profile", ["kafka-3.6", "kafka-4.0"])
def test_an_empty_log_beside_an_offline_directory_leads_without_dir_4(profile: str) -> None:
    """With ELR on, the unclean start excludes the broker from elections."""
    assert play_with_two(a_broker_starts_without_a_directory, profile=profile).is_clean
    ending = play_with_two(
        a_broker_starts_without_a_directory, "DIR-4", profile=profile, is_watched=False
    )
    assert "A" in ending.codes, ending


# --- DIR-5


@shows("DIR-5", "B-28")
def test_a_report_of_a_directory_that_erases_the_elr_lets_a_shorter_log_lead() -> None:
    expect_defect("B-28")


# --- CS-2: a disk is replaced


@shows("B-49")
def test_the_marker_of_one_directory_does_not_vouch_for_a_replaced_one() -> None:
    expect_defect("B-49")


# --- EC-7: moving a replica


@shows("EC-7", "B-46")
def test_a_moved_log_that_forgot_an_epoch_keeps_a_follower_out() -> None:
    expect_defect("B-46")


def test_a_replica_moves_while_it_is_written_and_moves_back() -> None:
    def plot(story: Story) -> None:
        story.begin()
        for _ in range(2):
            for broker in (1, 2, 3):
                story.append_ok(2)
                story.move(broker)
        assert {story.directory(broker) for broker in (1, 2, 3)} == {"data"}
        story.kill(2)
        story.wait(fenced=(2,))
        story.start(2)
        story.wait(isr=(1, 2, 3))
        assert story.log_end(2) == 22

    assert play_with_two(plot).is_clean
