"""Schedules of defects: lifecycle."""

from harness.defects.story import Story


def a_marker_of_an_earlier_stop_survives(story: Story) -> None:
    """B-26: 1 stopped cleanly once; later it is the only ISR member, loses power, and has the old marker."""
    story.begin()
    story.stop(1)
    story.start(1)
    story.wait(isr=(1, 2, 3), unfenced=(1,))
    story.append_ok(5, client=story.new_client(asks=2))
    story.until(lambda: story.log_end(1) == 15)
    tokens = [story.isolate(2)]
    story.wait(fenced=(2,), isr=(1, 3), leader=1)
    tokens.append(story.isolate(3))
    story.wait(fenced=(3,), isr=(1,))
    story.power(1, keep_records=12)
    story.wait(fenced=(1,))
    story.start(1)
    story.wait(unfenced=(1,))
    story.heal(*tokens)
    story.wait(unfenced=(2, 3), has_leader=True)


def a_leader_is_back_before_it_was_fenced(story: Story) -> None:
    """B-33: its session is over, but the controller has not acted on that yet."""
    story.begin()
    story.delay_fencing()
    before = story.cluster.metadata.brokers[1].broker_epoch
    story.power(1, keep_records=0)
    story.start(1)
    story.until(lambda: story.cluster.metadata.brokers[1].broker_epoch != before)
    story.fence_in_time()
    story.wait(unfenced=(1,), has_leader=True)
    story.run_ms(200)


def a_member_of_the_elr_is_stopped_while_it_starts(story: Story) -> None:
    """B-68: 1 loses its tail; 2, which has all records, has been started and stopped once more."""
    story.begin()
    story.stop(3)
    story.wait(fenced=(3,), isr=(1, 2))
    story.stop(2)
    story.wait(fenced=(2,), isr=(1,), elr=(2,))
    before = story.cluster.metadata.broker_epoch(2)
    story.start(2)
    story.until(lambda: story.cluster.metadata.broker_epoch(2) != before)
    story.stop(2)
    story.power(1, keep_records=5)
    story.wait(fenced=(1,), leader=-1)
    story.start(1)
    story.wait(unfenced=(1,))
    story.start(2)
    story.wait(unfenced=(2,), has_leader=True)
    story.start(3)
    story.wait(isr=(1, 2, 3))


def a_broker_acts_on_old_metadata(story: Story) -> None:
    """B-42: 1 lost its tail; 2 leads; 1 is back, and its metadata still name it as leader."""
    story.begin()
    story.power_keeping_metadata(1, keep_records=5)
    story.wait(fenced=(1,), leader=2)
    stalled = story.stall_metadata(1)
    story.start(1)
    story.run_ms(300)
    story.append(5, acks=1, client=story.new_client(asks=1))
    story.heal(stalled)
    story.wait(isr=(1, 2, 3))
    story.kill(2)
    story.wait(fenced=(2,), leader=1)
    story.until(lambda: story.partition(1).is_leader)
    story.read(story.new_client(asks=3))
