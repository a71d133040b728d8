"""Schedules of defects: controller."""

from harness.defects.schedules.high_watermark import alone
from harness.defects.story import Story


def an_old_elr_member_falls_behind(story: Story) -> None:
    """B-30: 2 enters the ELR; the ISR has min ISR members again and commits; then only 2 is left."""
    story.begin()
    away_3 = story.isolate(3)
    story.wait(fenced=(3,), isr=(1, 2))
    away_2 = story.isolate(2)
    story.wait(fenced=(2,), isr=(1,), elr=(2,))
    story.heal(away_3)
    story.wait(isr=(1, 3))
    story.append_ok()
    gone = [story.isolate(1), story.isolate(3)]
    story.wait(fenced=(1, 3), leader=-1)
    story.heal(away_2)
    story.wait(unfenced=(2,))
    story.run_ms(50)
    story.heal(*gone)
    story.wait(has_leader=True)


def the_last_replica_loses_its_tail(story: Story) -> None:
    """Schedule V3a: broker 1 is the only ISR member, loses power and half its log, and is back first."""
    tokens = alone(story)
    story.power(1, keep_records=5)
    story.wait(fenced=(1,))
    story.start(1)
    story.wait(unfenced=(1,))
    story.heal(*tokens)
    story.wait(unfenced=(2, 3), has_leader=True)
    # The producer stays the same one only if no append of it has an unknown outcome; a read finds the leader.
    story.read(story.producer)
    story.append_ok()


def the_last_known_leader_is_dead(story: Story) -> None:
    """B-32: with min ISR 1 the ELR is empty when the last leader dies."""
    tokens = alone(story)
    story.kill(1)
    story.wait(fenced=(1,))
    if story.state.leader == 1:
        story.complain("metadata name a dead leader")
    story.heal(*tokens)
    story.start(1)
    story.wait(unfenced=(1, 2, 3), has_leader=True)


def two_sessions_end_at_once(story: Story) -> None:
    """B-40: two brokers die; the next controller gives all sessions one beginning, so both end together."""
    story.begin()
    story.kill(1, 2, story.cluster.metadata.active_controller)
    story.wait(fenced=(1, 2))
    if story.state.leader in (1, 2):
        story.complain("the leader is dead although broker 3 is not")


def a_deposed_controller_responds(story: Story) -> None:
    """B-38: the leader proposes to continue without 2 to a controller that can no longer commit."""
    story.begin()
    story.hold("FetchResponse", 1, 2)
    story.append(acks=1)
    proposal = story.hold("AlterPartitionRequest", 1, None)
    story.until(lambda: proposal.dropped_or_stalled > 0)
    active = story.cluster.metadata.active_controller
    for other in story.cluster.controllers.values():
        if other != active:
            story.cut(active, other)
    story.heal(proposal)
    story.begin_append()
    story.run_ms(100)
    story.kill(1)
    story.wait(fenced=(1,), has_leader=True)
