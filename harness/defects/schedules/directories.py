"""Schedules of defects: log directories. The replicas begin in the first of two."""

from typing import Any

from harness.defects.story import Story
from harness.simulation.errors import LimitReached


def expect_soon(story: Story, complaint: str, **conditions: object) -> bool:
    """Waits for committed metadata; notes a complaint and returns False if they do not become so in time."""
    try:
        story.wait(**conditions)
    except LimitReached:
        story.complain(complaint)
        return False
    return True


def followers_move_while_the_leader_is_alone(story: Story) -> None:
    """B-28: 3 is eligible; the reports of moved replicas must not take that from it."""
    story.begin()
    cuts = [story.cut(1, 2)]
    story.append_ok(1)
    story.wait(isr=(1, 3))
    cuts.append(story.cut(1, 3))
    story.append(1, acks=1)
    story.wait(isr=(1,), elr=(3,))
    story.move(2, 3)
    story.power(1, keep_records=5)
    story.wait(fenced=(1,))
    story.start(1)
    story.wait(unfenced=(1,), has_leader=True)
    story.heal(*cuts)


def the_last_members_directory_breaks(story: Story) -> tuple[Any, Any]:
    """Broker 1 is the only member of the ISR, and its second directory fails; 2 is down, 3 isolated.

    Returns:
        What heals the isolation, and what heals the directory.
    """
    story.begin()
    story.move(1)
    story.kill(2)
    story.wait(fenced=(2,))
    isolated = story.isolate(3)
    story.wait(fenced=(3,), isr=(1,))
    broken = story.break_directory(1)
    story.append(1, acks=1)
    story.wait(isr=(), leader=-1)
    return isolated, broken


def a_disk_is_replaced_after_an_orderly_stop(story: Story) -> None:
    """V10b: the marker is in the first directory only, and the replica was in the second one."""
    isolated, broken = the_last_members_directory_breaks(story)
    story.stop(1)
    story.wait(fenced=(1,))
    story.world.nodes["b1"].disk.heal(broken)
    story.replace_directory(1)
    story.start(1)
    story.wait(unfenced=(1,))
    story.run_ms(500)
    story.start(2)
    story.heal(isolated)
    story.wait(unfenced=(2, 3), has_leader=True)


def a_leader_moves_before_its_epoch_has_records(story: Story) -> None:
    """B-46: broker 3 led an epoch without records; the leader of the next epoch moves, and must still know it."""
    story.begin()
    story.kill(1)
    story.wait(leader=2)
    story.kill(2)
    story.wait(leader=3)
    story.start(1, 2)
    story.wait(isr=(1, 2, 3))
    isolated = story.isolate(3)
    story.wait(leader=1, isr=(1, 2))
    story.move(1)
    story.heal(isolated)
    expect_soon(story, "a follower cannot find where its log diverges", isr=(1, 2, 3))
