"""Schedules of defects: administration."""

from harness.defects.story import Story
from system_under_test.config import FAST_TIMINGS


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


def a_lagging_replica_is_preferred(story: Story) -> None:
    """B-54: broker 2 is alive and lags; it becomes the first replica, and its election is requested."""
    story.begin()
    cut = story.cut(1, 2)
    story.append(acks=1)
    story.wait(isr=(1, 3))
    story.append_ok()
    story.reassign(2, 1, 3)
    story.until(lambda: story.state.replicas == (2, 1, 3))
    story.prefer()
    story.run_ms(100)
    story.kill(3)
    story.heal(cut)
    story.run_ms(500)


def removed_and_added_in_one_step(story: Story) -> None:
    """B-17: the leader sees the removal of 2 and its return as one change, and never hears from 2 again."""
    story.begin()
    stalled = story.stall_metadata(1)
    story.cut(1, 2)
    story.reassign(1, 3)
    story.until(lambda: story.state.isr == (1, 3))
    story.until(lambda: story.log_end(2) == -1)
    story.reassign(1, 2, 3)
    story.until(lambda: story.log_end(2) == 0)
    story.merge_metadata(1)
    story.heal(stalled)
    story.until(lambda: story.partition(1).leader_epoch == story.state.leader_epoch)
    story.apply_metadata_at_once(1)
    story.run_ms(2 * FAST_TIMINGS.replica_lag_time_max_ms)
    story.kill(1)
    story.wait(fenced=(1,), has_leader=True)


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
