"""Schedules of defects: min isr."""

from harness.defects.schedules.high_watermark import alone
from harness.defects.story import Story

REQUEST_IS_OVER_MS = 700
"""A fetch of metadata that was sent before has timed out: its response would have only a part of them."""


def min_isr_is_raised_behind_the_leader(story: Story) -> None:
    """B-29: 1 knows min ISR 1 only; it wants to continue without 2, when min ISR is 2 already."""
    story.begin()
    story.isolate(3)
    story.wait(fenced=(3,), isr=(1, 2))
    story.until(lambda: story.partition(1).replica.partition_epoch == story.state.partition_epoch)
    stalled = story.stall_metadata(1)
    story.until(lambda: sum(hold.dropped_or_stalled for hold in stalled) > 0)
    story.set_min_isr(2)
    silence = story.hold("FetchResponse", 1, 2)
    story.begin_append()
    story.run_ms(2500)
    story.kill(1)
    story.wait(fenced=(1,), leader=2)
    story.heal(silence)


def min_isr_is_raised_in_the_publish_that_shrinks_the_isr(story: Story) -> None:
    """B-29b: the leader learns at once that min ISR is 2 and that 2 has left the ISR."""
    story.begin()
    story.isolate(3)
    story.wait(fenced=(3,), isr=(1, 2))
    story.hold("FetchResponse", 1, 2)
    story.begin_append()
    stalled = story.stall_metadata(1)
    story.until(lambda: sum(hold.dropped_or_stalled for hold in stalled) > 0)
    story.set_min_isr(2)
    away = story.cut_from_controllers(2)
    story.wait(fenced=(2,), isr=(1,), elr=(2,))
    story.run_ms(REQUEST_IS_OVER_MS)
    story.merge_metadata(1)
    story.heal(stalled)
    story.until(lambda: story.partition(1).replica.partition_epoch == story.state.partition_epoch)
    story.run_ms(50)
    story.kill(1)
    story.wait(fenced=(1,))
    story.heal(away)
    story.wait(leader=2)


def min_isr_is_lowered_in_the_publish_that_deposes_the_leader(story: Story) -> None:
    """B-29c: 1, alone in the ISR, learns at once that min ISR is 1 and that 2 leads."""
    story.begin()
    story.isolate(3)
    story.wait(fenced=(3,), isr=(1, 2))
    story.hold("FetchResponse", 1, 2)
    story.begin_append()
    story.wait(isr=(1,), elr=(2,))
    story.until(lambda: story.partition(1).replica.partition_epoch == story.state.partition_epoch)
    away = story.cut_from_controllers(1)
    story.wait(fenced=(1,), leader=2)
    story.set_min_isr(1)
    story.run_ms(REQUEST_IS_OVER_MS)
    story.merge_metadata(1)
    story.heal(away)
    story.until(lambda: not story.partition(1).is_leader)


def min_isr_is_lowered_for_the_last_member(story: Story) -> None:
    """B-30b: 1 is alone and may commit alone now; the others are in the ELR of the older min ISR."""
    tokens = alone(story)
    story.set_min_isr(1)
    story.append_ok(client=story.new_client(asks=1))
    story.kill(1)
    story.wait(fenced=(1,))
    story.heal(*tokens)
    story.wait(unfenced=(2, 3))
    story.run_ms(100)


def min_isr_is_lowered_without_a_leader(story: Story) -> None:
    """B-48: nobody leads, all members of the ELR are away; an operator lowers min ISR, and they return."""
    tokens = alone(story)
    story.kill(1)
    story.wait(fenced=(1,), leader=-1, isr=())
    story.set_min_isr(1)
    story.start(1)
    story.heal(*tokens)
    story.wait(unfenced=(1, 2, 3))
    story.run_ms(500)
    if story.state.leader == -1:
        story.complain("all brokers are back, and nobody is elected")


def a_proposal_is_lost(story: Story) -> None:
    """B-45: the connection with the proposal to remove 2 breaks; an append waits for 2."""
    story.begin()
    story.drop("AlterPartitionRequest", 1, None)
    silence = story.hold("FetchResponse", 1, 2)
    task = story.begin_append()
    story.until(task.done)
    if story.is_unacked(task):
        story.complain("an append that the rest of the ISR had was not acknowledged")
    story.heal(silence)


def one_follower_has_no_copy(story: Story) -> None:
    """B-20: 1 and 3 have a record, 2 has not; all are in the ISR; the leader dies."""
    story.begin()
    silence = story.hold("FetchResponse", 1, 2)
    story.begin_append()
    story.until(lambda: story.log_end(3) == 11)
    story.run_ms(100)
    story.kill(1)
    story.wait(fenced=(1,), leader=2)
    story.heal(silence)
