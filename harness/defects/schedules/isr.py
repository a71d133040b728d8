"""Schedules of defects: isr."""

from harness.defects.story import Story

LAG_IS_OVER_MS = 1100
"""A little more than `replica.lag.time.max.ms`."""


def without_2(story: Story) -> object:
    """Ten records are on all replicas, an eleventh only on 1 and 3: broker 2 is cut off and out of the ISR."""
    story.begin()
    away = story.isolate(2)
    story.wait(fenced=(2,), isr=(1, 3))
    story.append_ok()
    return away


def let_2_request_again(story: Story, away: object) -> None:
    """Lets broker 2 back, and lets its fetches through only when 1 knows that it may join."""
    asking = story.hold("FetchRequest", 2, 1)
    story.heal(away)
    story.until(lambda: story.knows_active(1, 2) and asking.dropped_or_stalled > 0)
    story.heal(asking)


def a_follower_joins_below_the_epochs_start(story: Story) -> None:
    """B-09: the new leader 2 does not know yet that offset 7 is committed; 3, which lacks it, catches up."""
    story.append_ok(7)
    story.until(lambda: all(story.log_end(broker) == 7 for broker in (2, 3)))
    story.until(lambda: story.partition(2).high_watermark == 7)
    away = story.isolate(3)
    story.wait(fenced=(3,), isr=(1, 2))
    # Broker 2 gets the record, and never learns that it is committed.
    task = story.begin_append()
    story.until(lambda: story.log_end(2) == 8)
    silence = story.hold("FetchResponse", 1, 2)
    story.until(task.done)
    story.kill(1)
    story.wait(leader=2, isr=(2,), elr=(1,))
    story.heal(silence)
    copying = story.hold("FetchResponse", 2, 3)
    asking = story.hold("FetchRequest", 3, 2)
    story.heal(away)
    story.until(lambda: story.knows_active(2, 3) and asking.dropped_or_stalled > 0)
    story.heal(asking)
    story.until(lambda: copying.dropped_or_stalled > 0)
    story.run_ms(50)
    story.kill(2)
    story.wait(fenced=(2,))
    story.heal(copying)


def an_empty_incarnation_joins(story: Story) -> None:
    """B-10: broker 2 has caught up; while the proposal to add it is under way, it comes back empty."""
    away = without_2(story)
    proposal = story.hold("AlterPartitionRequest", 1, None)
    let_2_request_again(story, away)
    story.until(lambda: proposal.dropped_or_stalled > 0)
    story.power(2, keep_records=0)
    story.wait(fenced=(2,))
    copying = story.hold("FetchResponse", 1, 2)
    story.start(2)
    story.wait(unfenced=(2,))
    story.until(lambda: copying.dropped_or_stalled > 0)
    story.heal(proposal)
    story.run_ms(100)
    story.kill(1)
    story.wait(fenced=(1,))
    story.heal(copying)


def a_fenced_replica_joins(story: Story) -> None:
    """B-12: broker 2 fetches, but is fenced; in the ISR, its power loss would go unnoticed."""
    away = without_2(story)
    fenced = story.cut_from_controllers(2)
    story.heal(away)
    story.until(lambda: story.log_end(2) == 11)
    story.run_ms(200)
    story.power(2, keep_records=0)
    story.heal(fenced)
    copying = story.hold("FetchResponse", 1, 2)
    story.start(2)
    story.wait(unfenced=(2,))
    story.until(lambda: copying.dropped_or_stalled > 0)
    story.kill(1)
    story.wait(fenced=(1,))
    story.heal(copying)


def a_shrink_is_only_proposed(story: Story) -> None:
    """B-14: the leader wants to continue without 2, and its proposal never reaches the controller."""
    story.begin()
    story.hold("FetchResponse", 1, 2)
    story.append(acks=1)
    proposal = story.hold("AlterPartitionRequest", 1, None)
    story.until(lambda: proposal.dropped_or_stalled > 0)
    story.begin_append()
    story.run_ms(100)
    story.kill(1)
    story.wait(fenced=(1,), has_leader=True)


def a_proposal_arrives_twice(story: Story) -> None:
    """B-15: the network delivers a copy of "add 2" again, after 2 has left once more."""
    away = without_2(story)
    proposal = story.hold("AlterPartitionRequest", 1, None)
    let_2_request_again(story, away)
    story.until(lambda: proposal.dropped_or_stalled > 0)
    copy = story.pending_proposal(1)
    story.heal(proposal)
    story.wait(isr=(1, 2, 3))
    story.cut(1, 2)
    story.append(acks=1)
    story.wait(isr=(1, 3))
    story.append_ok()
    story.send_to_controller(copy)
    story.run_ms(100)
    story.kill(1)
    story.wait(fenced=(1,), has_leader=True)


def a_response_gets_lost(story: Story) -> None:
    """B-16: "add 2" is applied, its response is lost, and the second attempt is refused as outdated."""
    away = without_2(story)
    story.drop("AlterPartitionResponse", None, 1)
    asking = story.hold("FetchRequest", 2, 1)
    story.heal(away)
    story.until(lambda: story.knows_active(1, 2))
    story.stall_metadata(1)
    story.heal(asking)
    story.wait(isr=(1, 2, 3))
    story.run_ms(100)
    story.cut(1, 2)
    story.run_ms(LAG_IS_OVER_MS)
    story.begin_append()
    story.run_ms(100)
    story.kill(1)
    story.wait(fenced=(1,), has_leader=True)


def an_expansion_is_applied_before_the_leader_knows(story: Story) -> None:
    """B-13: the controller has added 2; the leader waits for the response."""
    away = without_2(story)
    asking = story.hold("FetchRequest", 2, 1)
    story.heal(away)
    story.until(lambda: story.knows_active(1, 2))
    story.hold("AlterPartitionResponse", None, 1)
    story.stall_metadata(1)
    story.heal(asking)
    story.wait(isr=(1, 2, 3))
    story.cut(1, 2)
    # For so long the high watermark would wait for 2 anyway (HW-4).
    story.run_ms(LAG_IS_OVER_MS)
    story.begin_append()
    story.run_ms(100)
    story.kill(1)
    story.wait(fenced=(1,), has_leader=True)


def news_of_the_expansion_before_is_late(story: Story) -> None:
    """B-69: 3 has joined, and the metadata tell it when the leader has already proposed to add 2.

    Both have all that is committed and lack what the leader appended alone, so only a proposal makes the high
    watermark wait for 2 (HW-4).
    """
    story.begin()
    away = [story.isolate(2), story.isolate(3)]
    story.wait(fenced=(2, 3), isr=(1,))
    story.append(5, acks=1)
    copying = [story.hold("FetchResponse", 1, follower) for follower in (2, 3)]
    asking = [story.hold("FetchRequest", follower, 1) for follower in (2, 3)]
    story.heal(away)
    story.until(lambda: all(story.knows_active(1, follower) for follower in (2, 3)))
    metadata = story.stall_metadata(1)
    story.heal(asking[1])
    leadership = story.partition(1).leadership
    story.until(lambda: set(leadership.state.isr) == {1, 3})
    proposal = story.hold("AlterPartitionRequest", 1, None)
    story.heal(asking[0])
    story.until(lambda: proposal.dropped_or_stalled > 0)
    story.heal(metadata)
    story.until(lambda: set(story.knows_isr(1)) == {1, 3})
    story.stall_metadata(1)
    story.hold("AlterPartitionResponse", None, 1)
    story.heal(proposal)
    story.wait(isr=(1, 2, 3))
    story.begin_append()
    story.heal(copying[1])
    story.run_ms(100)
    story.kill(1)
    story.wait(fenced=(1,), has_leader=True)


def a_diverging_fetch_counts(story: Story) -> None:
    """B-08: broker 1 has a tail that no other replica has; its first fetch shows how long its log is."""
    story.begin()
    away = story.isolate(1)
    story.append(5, acks=1)
    story.wait(fenced=(1,), leader=2, isr=(2, 3))
    client = story.new_client(asks=2)
    story.append_ok(2, client=client)
    copying = story.hold("FetchResponse", 2, 1)
    asking = story.hold("FetchRequest", 1, 2)
    story.heal(away)
    story.until(lambda: story.knows_active(2, 1) and asking.dropped_or_stalled > 0)
    story.heal(asking)
    story.until(lambda: copying.dropped_or_stalled > 0)
    story.run_ms(50)
    story.append_ok(client=client)
    story.read(client)
    story.kill(2)
    story.wait(fenced=(2,), has_leader=True)
    story.read(story.new_client(asks=3))
    story.heal(copying)


def only_the_lagging_replica_leaves(story: Story) -> None:
    """B-43: a record waits for 2 alone; when 2 has left the ISR, nothing else happens."""
    story.begin()
    cut = story.cut(1, 2)
    task = story.begin_append()
    story.wait(isr=(1, 3))
    story.until(task.done)
    if story.is_unacked(task):
        story.complain("an append that all of the ISR had was not acknowledged")
    story.heal(cut)
