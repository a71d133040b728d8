"""Schedules of defects: epoch requests."""

from harness.defects.story import Story


def a_leader_returns_before_it_appends(story: Story) -> None:
    """B-03: 1 leads again in an epoch without records; 2 has a newer epoch than 1 has entries for.

    Broker 2 has an acknowledged record, and has not heard that it is committed.
    """
    story.begin()
    story.isolate(3)
    story.wait(fenced=(3,), isr=(1, 2))
    task = story.begin_append()
    story.until(lambda: story.log_end(2) == 11)
    silence = story.hold("FetchResponse", 1, 2)
    story.until(task.done)
    away_1 = story.isolate(1)
    story.wait(fenced=(1,), leader=2, isr=(2,), elr=(1,))
    story.append_ok(acks=1, client=story.new_client(asks=2))
    away_2 = story.isolate(2)
    story.wait(fenced=(2,), leader=-1)
    story.heal(away_1)
    story.wait(leader=1, isr=(1,))
    story.heal(away_2)
    story.wait(unfenced=(2,))
    story.until(lambda: story.partition(2).leader_epoch == story.state.leader_epoch)
    story.until(lambda: story.log_end(2) < 12)
    story.kill(1)
    story.wait(fenced=(1,), leader=2)
    story.heal(silence)


def a_follower_misses_an_intermediate_leader(story: Story) -> None:
    """B-04: 1 leads, then 2, then 1 again; the metadata of 3 show it only that 1 leads in a newer epoch."""
    story.begin()
    cut = story.cut(1, 2)
    story.append(5, acks=1)
    story.until(lambda: story.log_end(3) == 15)
    # From here on broker 3 hears nothing: neither from its leader, which would refuse its epoch, nor of metadata.
    silence = story.cut(1, 3)
    stalled = story.stall_metadata(3)
    story.until(lambda: sum(hold.dropped_or_stalled for hold in stalled) > 0)
    away_1 = story.cut_from_controllers(1)
    story.wait(fenced=(1,), leader=2)
    story.heal(away_1, cut)
    client = story.new_client(asks=2)
    story.append_ok(5, acks=1, client=client)
    story.wait(isr=(1, 2))
    story.until(lambda: story.log_end(1) == 15)
    away_2 = story.isolate(2)
    story.wait(fenced=(2,), leader=1)
    story.run_ms(700)  # a fetch of metadata that was sent before has timed out
    story.merge_metadata(3)
    story.heal(stalled)
    story.until(lambda: story.partition(3).leader_epoch == story.state.leader_epoch)
    story.run_ms(1200)  # a fetch with the older epoch has timed out
    story.heal(silence)
    story.wait(isr=(1, 3))
    story.append_ok(client=story.new_client(asks=1))
    story.read(story.new_client(asks=1))
    story.kill(1)
    story.wait(fenced=(1,), leader=3)
    story.heal(away_2)
