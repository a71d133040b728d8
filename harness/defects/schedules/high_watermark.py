"""Schedules of defects: high watermark."""

from typing import Any

from harness.defects.story import Story
from workloads.append import AppendProcess


def alone(story: Story) -> list[object]:
    """Ten records are everywhere; then 2 and, after it, 3 are fenced, and 1 is alone in the ISR."""
    story.begin()
    tokens = []
    for broker, left in ((2, (1, 3)), (3, (1,))):
        tokens.append(story.isolate(broker))
        story.wait(fenced=(broker,), isr=left)
    story.until(lambda: story.partition(1).leadership.state.isr == (1,))
    return tokens


def a_lone_leader_commits(story: Story) -> None:
    """B-18: below min ISR the leader alone moves the high watermark, and a consumer reads what only it has."""
    tokens = alone(story)
    story.append_ok(acks=1)
    story.run_ms(50)
    story.poll()
    story.kill(1)
    story.wait(fenced=(1,))
    story.heal(*tokens)
    story.wait(has_leader=True)


def led_with_a_tail(story: Story) -> tuple[AppendProcess, Any]:
    """Broker 2 has a record that 3 lacks, is cut off from it, and leads; returns a client of 2, and the cut."""
    story.begin()
    story.hold("FetchResponse", 1, 3)
    story.begin_append()
    story.until(lambda: story.log_end(2) == 11)
    cut = story.cut(2, 3)
    story.kill(1)
    story.wait(fenced=(1,), leader=2)
    client = story.new_client(asks=2)
    story.until(lambda: story.partition(2).is_leader)
    return client, cut


def a_new_leader_has_a_tail(story: Story) -> None:
    """B-23: broker 2 has records that 3 lacks, and becomes leader."""
    client, cut = led_with_a_tail(story)
    for _ in range(12):
        story.poll(client)
    story.kill(2)
    story.wait(fenced=(2,))
    story.heal(cut)
    story.wait(leader=3)


def a_new_leader_is_asked_for_the_log_end(story: Story) -> None:
    """B-74: broker 2 leads, has a record that 3 lacks, and does not know whether it was committed."""
    client, cut = led_with_a_tail(story)
    story.latest(client)
    story.heal(cut)


def a_replica_stops_in_order(story: Story) -> None:
    """B-44: a follower shuts down cleanly; the others have everything and need not wait for it."""
    story.begin()
    story.stop(2)
    began_ms = story.world.now / 1e6
    story.append_ok()
    if story.world.now / 1e6 - began_ms > 200:
        story.complain("an append had to wait for a replica that is gone")
    story.start(2)


def a_last_known_leader_comes_back_shorter(story: Story) -> None:
    """With min ISR 1 broker 1 may commit alone. It loses half of its log, and is the only one left to lead."""
    tokens = alone(story)
    story.run_ms(600)
    story.power(1, keep_records=5)
    story.wait(fenced=(1,), leader=-1)
    story.start(1)
    story.wait(leader=1)
    story.heal(*tokens)
    story.wait(unfenced=(2, 3))
