"""What happens without the rules about requested elections, the balancing of leaders, and reassignments."""

from system_under_test.config import FAST_TIMINGS
from system_under_test.protocol.entities import fetch_of, fetch_partition, fetch_topic
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import fetch_request, millis
from tests.mutations.coverage import shows
from tests.mutations.mutation_story import Story, expect_defect, play

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
        story.complaints.append("no preferred leader was elected")
    story.run_ms(100)
    story.append_ok()
    if story.state.leader != 1 or len(story.state.isr) != 3:
        story.complaints.append("the preferred leader does not lead")


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
        story.complaints.append("the leader is not the preferred one")


@shows("EL-4")
def test_leaders_stay_where_a_fail_over_left_them() -> None:
    balanced = play(nobody_requests_anything)
    assert balanced.is_clean
    assert balanced.marks("leader-balanced") == 1
    ending = play(nobody_requests_anything, "EL-4")
    assert ending.codes == {"L"}, ending


# --- REAS-1


def a_reassignment_to_a_broker_that_is_away(story: Story) -> None:
    """B-41: 3 is away; the partition moves to 4 and 3, and 4 loses half its log."""
    story.begin()
    away = story.isolate(3)
    story.wait(fenced=(3,), isr=(1, 2))
    story.reassign(4, 3)
    story.until(lambda: 4 in story.state.isr)
    story.run_ms(200)
    story.power(4, keep_records=5)
    story.wait(fenced=(4,))
    story.start(4)
    story.wait(unfenced=(4,), has_leader=True)
    story.heal(away)
    story.wait(unfenced=(3, 4), has_leader=True)


@shows("REAS-1", "B-41")
def test_a_reassignment_that_completes_below_min_isr_leaves_one_copy() -> None:
    expect_defect("B-41", a_reassignment_to_a_broker_that_is_away, brokers=4)


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


def removed_and_added_in_one_step(story: Story) -> None:
    """B-17: the leader sees the removal of 2 and its return as one change, and never hears from 2 again."""
    story.begin()
    leader = story.world.nodes["b1"].host.random
    stalled = story.stall_metadata(1)
    story.cut(1, 2)
    story.reassign(1, 3)
    story.until(lambda: story.state.isr == (1, 3))
    story.until(lambda: story.log_end(2) == -1)
    story.reassign(1, 2, 3)
    story.until(lambda: story.log_end(2) == 0)
    leader.buggify = lambda point: point == "metadata-batch"
    story.heal(stalled)
    story.until(lambda: story.partition(1).leader_epoch == story.state.leader_epoch)
    del leader.buggify
    story.run_ms(2 * FAST_TIMINGS.replica_lag_time_max_ms)
    story.kill(1)
    story.wait(fenced=(1,), has_leader=True)


@shows("ISR-3", "B-17")
def test_a_follower_joins_by_what_was_known_before_it_lost_its_log() -> None:
    expect_defect("B-17", removed_and_added_in_one_step)


# --- REAS-4


def added_cancelled_and_added_again(story: Story) -> None:
    """B-34: 4 is added, enters the ELR, is removed by a cancellation, and is added again with an empty log."""
    story.begin()
    away_2 = story.isolate(2)
    story.wait(fenced=(2,), isr=(1, 3))
    story.reassign(1, 2, 4)
    story.wait(isr=(1, 3, 4))
    away = [away_2, story.isolate(3)]
    story.wait(fenced=(3,), isr=(1, 4))
    away_4 = story.isolate(4)
    story.wait(fenced=(4,), isr=(1,), elr=(4,))
    story.cancel_reassignment()
    story.heal(away_4)
    story.wait(unfenced=(4,))
    story.until(lambda: story.log_end(4) == -1)
    away.append(story.cut(1, 4))
    story.reassign(1, 2, 4)
    story.until(lambda: story.log_end(4) == 0)
    story.kill(1)
    story.wait(fenced=(1,))
    story.run_ms(500)
    story.heal(*away)
    story.start(1)
    story.wait(unfenced=(1, 2, 3, 4), has_leader=True)


@shows("REAS-4", "B-34")
def test_a_member_of_the_elr_that_is_no_replica_leads_with_an_empty_log() -> None:
    expect_defect("B-34", added_cancelled_and_added_again, brokers=4)
