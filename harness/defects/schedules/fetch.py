"""Schedules of defects: fetch."""

from harness.defects.story import Story


def a_deposed_leader_has_a_short_tail(story: Story) -> None:
    """B-05: broker 1 wrote two records alone; 2 wrote three others in their place, and 1 returns."""
    story.begin()
    away = story.isolate(1)
    story.append_ok(2, acks=1)
    story.wait(fenced=(1,), leader=2, isr=(2, 3))
    client = story.new_client(asks=2)
    story.append_ok(3, client=client)
    story.read(client)
    story.heal(away)
    story.wait(isr=(1, 2, 3))
    story.kill(2)
    story.wait(fenced=(2,), has_leader=True)
    story.read(story.new_client(asks=3))


def a_consumer_reads_an_unreplicated_record(story: Story) -> None:
    """B-22: a record is in the leader's log only; a consumer polls; the leader dies."""
    story.begin()
    for follower in (2, 3):
        story.hold("FetchResponse", 1, follower)
    story.begin_append()
    story.poll()
    story.kill(1)
    story.wait(fenced=(1,), has_leader=True)
    story.append_ok(client=story.new_client(asks=2))


def a_bit_flips_on_the_leaders_disk(story: Story) -> None:
    """B-51: the newest record goes bad before the followers have copied it."""
    story.begin()
    # Fetches that already wait at the leader would get the good record.
    holds = [story.hold("FetchRequest", follower, 1) for follower in (2, 3)]
    story.until(lambda: all(hold.dropped_or_stalled > 0 for hold in holds))
    story.begin_append()
    story.flip_bit_of_last_record(1)
    story.heal(*holds)
    story.run_ms(300)
    story.poll()
    story.kill(1)
    story.wait(fenced=(1,), has_leader=True)
    story.start(1)


def a_consumer_reads_many_segments(story: Story) -> None:
    """B-71: a consumer begins at offset 0 of a log with many segments, which were written long before."""
    story.begin()
    story.append_ok(30)
    story.read(story.new_client())


def and_of_some_records_only_it_learns(story: Story) -> None:
    """B-70: likewise, and nobody was told whether the last records are in the log."""
    story.begin()
    story.append_ok(40)
    story.append(30, acks=0)
    story.read(story.new_client())
