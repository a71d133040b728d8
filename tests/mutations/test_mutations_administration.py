"""What happens without the rules about requested elections, the balancing of leaders, and reassignments."""

from harness.defects.playing import play
from harness.defects.story import Story
from system_under_test.config import FAST_TIMINGS
from system_under_test.protocol.entities import fetch_of, fetch_partition, fetch_topic
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import fetch_request, millis
from tests.mutations.coverage import shows
from tests.mutations.expectation import expect_defect

# --- EL-3, EL-4


def led_by_2(story: Story) -> None:
    """Broker 1 was killed, is back and in the ISR; 2 leads."""
    story.begin()
    story.kill(1)
    story.wait(fenced=(1,), has_leader=True)
    story.start(1)
    story.wait(unfenced=(1,), isr=(1, 2, 3))
    assert story.state.leader == 2


def the_preferred_leader_is_requested(story: Story) -> None:
    """Leadership moves back to broker 1 on request, and a client appends there."""
    led_by_2(story)
    if story.prefer() != ErrorCode.NONE:
        story.complain("no preferred leader was elected")
    story.run_ms(100)
    story.append_ok()
    if story.state.leader != 1 or len(story.state.isr) != 3:
        story.complain("the preferred leader does not lead")


@shows("EL-3")
def test_a_preferred_leader_cannot_be_elected_on_request() -> None:
    assert play(the_preferred_leader_is_requested).is_clean
    ending = play(the_preferred_leader_is_requested, "EL-3")
    assert ending.codes == {"L"}, ending


def nobody_requests_anything(story: Story) -> None:
    """Only time passes after a fail-over."""
    led_by_2(story)
    story.run_ms(FAST_TIMINGS.leader_imbalance_check_interval_ms + 1000)
    if story.state.leader != 1:
        story.complain("the leader is not the preferred one")


@shows("EL-3-ISR", "B-54")
def test_a_preferred_leader_that_lags_is_elected_without_committed_records() -> None:
    expect_defect("B-54")


@shows("EL-4")
def test_leaders_stay_where_a_fail_over_left_them() -> None:
    balanced = play(nobody_requests_anything)
    assert balanced.is_clean
    assert balanced.mark_counts()["leader-balanced"] == 1
    ending = play(nobody_requests_anything, "EL-4")
    assert ending.codes == {"L"}, ending


# --- REAS-1


@shows("REAS-1", "B-41")
def test_a_reassignment_that_completes_below_min_isr_leaves_one_copy() -> None:
    expect_defect("B-41")


# --- REAS-2


def removed_and_added_again(story: Story) -> None:
    """Broker 2 loses its log by two reassignments, and a fetch of before arrives late; then the leader dies."""
    story.begin()
    before = fetch_of(
        (
            fetch_topic(
                story.partition(1).topic_id,
                (fetch_partition(0, story.state.leader_epoch, 10, 1 << 20, 0, 0),),
            ),
        ),
        millis(0),
        1 << 20,
        fetch_request.ReplicaState(replica_id=2, replica_epoch=story.broker(2).broker_epoch),
    )
    story.cut(1, 2)
    story.reassign(1, 3)
    story.wait(isr=(1, 3))
    story.until(lambda: story.log_end(2) == -1)
    story.reassign(1, 2, 3)
    story.until(lambda: story.log_end(2) == 0)
    story.until(lambda: 2 in story.partition(1).leadership.followers)
    story.send_to_broker(1, before)
    story.run_ms(100)
    story.kill(1)
    story.wait(fenced=(1,), has_leader=True)


@shows("REAS-2")
def test_a_fetch_of_before_the_removal_counts_for_the_replica_that_was_added_again() -> None:
    assert play(removed_and_added_again).is_clean
    assert play(removed_and_added_again, "REAS-2").invariants == {"INV-2"}
    ending = play(removed_and_added_again, "REAS-2", is_watched=False)
    assert ending.codes >= {"A"}, ending


# --- ISR-3


@shows("ISR-3", "B-17")
def test_a_follower_joins_by_what_was_known_before_it_lost_its_log() -> None:
    expect_defect("B-17")


# --- REAS-4


@shows("REAS-4", "B-34")
def test_a_member_of_the_elr_that_is_no_replica_leads_with_an_empty_log() -> None:
    expect_defect("B-34")
